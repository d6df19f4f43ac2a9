"""Statistics: means that move, principal axes, filters, mixtures."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from . import Case


def moving_average(x, w):
    c = np.cumsum(np.concatenate(([0.0], x)))
    return (c[w:] - c[:-w]) / w


def rolling_std(x, w):
    return sliding_window_view(x, w).std(axis=-1)


def exponential_smoothing(x, alpha):
    """Holt's simple smoothing, many series at once."""
    out = np.empty_like(x)
    out[0] = x[0]
    for t in range(1, len(x)):
        out[t] = alpha * x[t] + (1 - alpha) * out[t - 1]
    return out


def standardize(X):
    mean, std = X.mean(axis=0), X.std(axis=0)
    std[std == 0] = 1.0
    return (X - mean) / std


def pca(X, k):
    """Scores and explained variance, signs fixed by the largest loading."""
    Xc = X - X.mean(axis=0)
    C = Xc.T @ Xc / (len(X) - 1)
    w, V = np.linalg.eigh(C)
    order = np.argsort(w)[::-1][:k]
    V = V[:, order]
    V = V * np.sign(V[np.argmax(np.abs(V), axis=0), np.arange(k)])
    return Xc @ V, w[order] / w.sum()


def pairwise_distances(X, Y):
    xx, yy = np.sum(X**2, axis=1), np.sum(Y**2, axis=1)
    return np.sqrt(np.maximum(xx[:, None] + yy[None, :] - 2 * X @ Y.T, 0))


def cosine_similarity(X, Y):
    Xn = X / np.linalg.norm(X, axis=1, keepdims=True)
    Yn = Y / np.linalg.norm(Y, axis=1, keepdims=True)
    return Xn @ Yn.T


def correlation(data):
    """PolyBench's: the columns centred and scaled, then their products."""
    mean = np.mean(data, axis=0)
    stddev = np.std(data, axis=0)
    stddev[stddev <= 0.1] = 1.0
    data = data - mean
    data /= np.sqrt(data.shape[0]) * stddev
    corr = np.eye(data.shape[1], dtype=data.dtype)
    for i in range(data.shape[1] - 1):
        corr[i + 1 :, i] = corr[i, i + 1 :] = data[:, i] @ data[:, i + 1 :]
    return corr


def ordinary_least_squares(X, y):
    """Coefficients, their standard errors, and R squared."""
    A = np.column_stack([np.ones(len(X)), X])
    G = np.linalg.inv(A.T @ A)
    beta = G @ A.T @ y
    residuals = y - A @ beta
    s2 = residuals @ residuals / (len(y) - A.shape[1])
    return beta, np.sqrt(s2 * np.diag(G)), 1 - residuals @ residuals / np.sum((y - y.mean()) ** 2)


def kalman_filter(z, F, H, Q, R, x, P):
    """A constant-velocity track from noisy positions."""
    track = np.zeros((len(z), len(x)))
    for t in range(len(z)):
        x = F @ x
        P = F @ P @ F.T + Q
        S = H @ P @ H.T + R
        K = P @ H.T @ np.linalg.inv(S)
        x = x + K @ (z[t] - H @ x)
        P = (np.eye(len(x)) - K @ H) @ P
        track[t] = x
    return track, P


def gaussian_mixture_em(X, means, variances, weights, steps):
    """Spherical components."""
    n, d = X.shape
    for _ in range(steps):
        dist = ((X[:, None, :] - means[None]) ** 2).sum(-1)
        log_p = np.log(weights) - 0.5 * (d * np.log(2 * np.pi * variances) + dist / variances)
        top = log_p.max(axis=1, keepdims=True)
        resp = np.exp(log_p - top)
        resp /= resp.sum(axis=1, keepdims=True)
        Nk = resp.sum(axis=0)
        means = (resp.T @ X) / Nk[:, None]
        dist = ((X[:, None, :] - means[None]) ** 2).sum(-1)
        variances = (resp * dist).sum(axis=0) / (Nk * d)
        weights = Nk / n
    return means, variances, weights


def kernel_density(x, grid, h):
    z = (grid[:, None] - x[None, :]) / h
    return np.exp(-0.5 * z**2).sum(axis=1) / (len(x) * h * np.sqrt(2 * np.pi))


def bootstrap_mean(x, indices):
    """Resampled means, given the indices."""
    means = x[indices].mean(axis=1)
    return means.mean(), means.std(), np.percentile(means, [2.5, 97.5])


def autocorrelation(x, lags):
    x = x - x.mean()
    return np.array([np.dot(x[: len(x) - k], x[k:]) for k in range(lags)]) / np.dot(x, x)


def table(columns: int, *more: Any) -> Any:
    return lambda n: (np.random.default_rng(22).normal(size=(n, columns)) + np.arange(columns), *more)


def series(n: int, *more: Any) -> tuple[Any, ...]:
    return (np.cumsum(np.random.default_rng(23).normal(size=n)), *more)


def two_tables(n: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(24)
    return rng.normal(size=(n, 6)), rng.normal(size=(n, 6))


def regression(n: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(25)
    X = rng.normal(size=(n, 4))
    return X, X @ [1.0, -2.0, 0.5, 3.0] + 0.3 * rng.normal(size=n)


def radar(n: int) -> tuple[Any, ...]:
    F = np.eye(4)
    F[0, 2] = F[1, 3] = 0.1
    H = np.eye(2, 4)
    z = np.cumsum(np.random.default_rng(26).normal(size=(n, 2)), axis=0)
    return z, F, H, 0.01 * np.eye(4), 0.5 * np.eye(2), np.zeros(4), np.eye(4)


def clusters(n: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(27)
    means = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]])
    X = means[rng.integers(0, 3, n)] + rng.normal(size=(n, 2))
    return X, means + 0.5, np.ones(3), np.full(3, 1 / 3), 4


def resamples(n: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(28)
    return rng.normal(size=n), rng.integers(0, n, (50, n))


def density(n: int) -> tuple[Any, ...]:
    return np.random.default_rng(29).normal(size=n), np.linspace(-4, 4, 100), 0.3


CASES = [
    Case(moving_average, lambda n: series(n, 5), 60, 1_000_000, "common"),
    Case(rolling_std, lambda n: series(n, 8), 60, 200_000, "common", ulps=256),
    Case(exponential_smoothing, lambda n: (*table(n)(20), 0.3), 6, 100_000, "Holt, 1957"),
    Case(standardize, table(6), 40, 200_000, "common"),
    Case(pca, table(5, 3), 40, 200_000, "Pearson, 1901", ulps=1e4),
    Case(pairwise_distances, two_tables, 20, 1000, "common", ulps=1e6),
    Case(cosine_similarity, two_tables, 20, 1000, "Salton, 1975"),
    Case(correlation, table(7), 30, 50_000, "PolyBench 4.2"),
    Case(ordinary_least_squares, regression, 40, 200_000, "Gauss, 1809", ulps=1e4),
    Case(kalman_filter, radar, 10, 50, "Kalman, 1960", ulps=1e4),
    Case(gaussian_mixture_em, clusters, 40, 200_000, "Dempster, Laird & Rubin, 1977", ulps=1e4),
    Case(kernel_density, density, 60, 20_000, "Parzen, 1962"),
    Case(bootstrap_mean, resamples, 40, 10_000, "Efron, 1979"),
    Case(autocorrelation, lambda n: series(n, 10), 80, 500_000, "Box & Jenkins, 1970"),
]
