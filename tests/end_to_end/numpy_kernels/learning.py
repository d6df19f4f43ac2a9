"""Machine learning: steps of training, written out."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import Case


def sigmoid(z):
    return 1.0 / (1.0 + np.exp(-z))


def logistic_regression(X, y, rate, steps):
    w, b = np.zeros(X.shape[1]), 0.0
    for _ in range(steps):
        p = sigmoid(X @ w + b)
        w -= rate * X.T @ (p - y) / len(y)
        b -= rate * np.mean(p - y)
    loss = -np.mean(y * np.log(p) + (1 - y) * np.log(1 - p))
    return w, b, loss


def kmeans(points, centroids, steps):
    """Lloyd's algorithm with sums over one-hot labels."""
    k = len(centroids)
    for _ in range(steps):
        distance = np.linalg.norm(points[:, None, :] - centroids[None, :, :], axis=2)
        labels = np.argmin(distance, axis=1)
        one_hot = np.eye(k)[labels]
        centroids = (one_hot.T @ points) / np.maximum(one_hot.sum(axis=0), 1)[:, None]
    return centroids, labels


def kmeans_by_masks(points, centroids, steps):
    """The same, a mean over each cluster's own points."""
    for _ in range(steps):
        labels = np.argmin(((points[:, None] - centroids) ** 2).sum(-1), axis=1)
        centroids = np.array([points[labels == k].mean(axis=0) for k in range(len(centroids))])
    return centroids, labels


def two_layer_network(X, y, W1, b1, W2, b2, rate, steps):
    """Softmax classifier with a hidden layer, trained by its gradients (as in Stanford's CS231n notes)."""
    n = len(X)
    for _ in range(steps):
        hidden = np.maximum(0, np.dot(X, W1) + b1)
        scores = np.dot(hidden, W2) + b2
        exp_scores = np.exp(scores - np.max(scores, axis=1, keepdims=True))
        probs = exp_scores / np.sum(exp_scores, axis=1, keepdims=True)
        loss = np.sum(-np.log(probs[range(n), y])) / n
        dscores = probs.copy()
        dscores[range(n), y] -= 1
        dscores /= n
        dW2 = np.dot(hidden.T, dscores)
        db2 = np.sum(dscores, axis=0, keepdims=True)
        dhidden = np.dot(dscores, W2.T)
        dhidden[hidden <= 0] = 0
        dW1 = np.dot(X.T, dhidden)
        db1 = np.sum(dhidden, axis=0, keepdims=True)
        W1 += -rate * dW1
        b1 += -rate * db1
        W2 += -rate * dW2
        b2 += -rate * db2
    return loss


def adam(params, grads, m, v, t, lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8):
    """One step of the optimiser on a dict of arrays."""
    out = {}
    for name, p in params.items():
        g = grads[name]
        m_new = beta1 * m[name] + (1 - beta1) * g
        v_new = beta2 * v[name] + (1 - beta2) * g**2
        m_hat = m_new / (1 - beta1**t)
        v_hat = v_new / (1 - beta2**t)
        out[name] = p - lr * m_hat / (np.sqrt(v_hat) + eps), m_new, v_new
    return out


def ridge_path(X, y, strengths):
    G, c = X.T @ X, X.T @ y
    return np.array([np.linalg.solve(G + s * np.eye(X.shape[1]), c) for s in strengths])


def lasso_ista(X, y, strength, steps):
    """Proximal gradient with soft thresholds."""
    L = np.linalg.norm(X, 2) ** 2
    w = np.zeros(X.shape[1])
    for _ in range(steps):
        z = w - X.T @ (X @ w - y) / L
        w = np.sign(z) * np.maximum(np.abs(z) - strength / L, 0.0)
    return w


def hopfield(patterns, state, steps):
    """Recall in an associative memory."""
    n = patterns.shape[1]
    W = patterns.T @ patterns / n
    np.fill_diagonal(W, 0)
    for _ in range(steps):
        state = np.where(W @ state >= 0, 1.0, -1.0)
    return state, -0.5 * state @ W @ state


def k_nearest(train, labels, test, k):
    d = ((test[:, None, :] - train[None, :, :]) ** 2).sum(axis=2)
    nearest = np.argsort(d, axis=1)[:, :k]
    votes = labels[nearest]
    counts = (votes[:, :, None] == np.arange(3)).sum(axis=1)
    return counts.argmax(axis=1)


def gaussian_process(X, y, Xs, length, noise):
    """Posterior mean and variance with a squared exponential kernel."""

    def kernel(a, b):
        return np.exp(-0.5 * ((a[:, None] - b[None, :]) / length) ** 2)

    K = kernel(X, X) + noise * np.eye(len(X))
    Ls = np.linalg.cholesky(K)
    alpha = np.linalg.solve(Ls.T, np.linalg.solve(Ls, y))
    Ks = kernel(X, Xs)
    v = np.linalg.solve(Ls, Ks)
    return Ks.T @ alpha, 1.0 - np.sum(v**2, axis=0)


def labelled(n: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(30)
    X = rng.normal(size=(n, 5))
    return X, (X @ np.arange(5.0) > 0).astype(float), 0.5, 5


def blobs(n: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(31)
    centres = 8 * rng.random((4, 3))
    return centres[np.arange(n) % 4] + rng.normal(size=(n, 3)), centres + 0.3, 4


def network(n: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(32)
    X, y = rng.normal(size=(n, 6)), rng.integers(0, 3, n)
    return (
        X,
        y,
        0.3 * rng.normal(size=(6, 16)),
        np.zeros((1, 16)),
        0.3 * rng.normal(size=(16, 3)),
        np.zeros((1, 3)),
        0.1,
        3,
    )


def parameters(n: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(33)
    p, g, m, v = ({"w": rng.random((n, 8)), "b": rng.random(n)} for _ in range(4))
    return p, g, m, v, 3


def design(n: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(34)
    X = rng.normal(size=(n, 6))
    return X, X @ np.array([3.0, 0, 0, -2.0, 0, 1.0]) + 0.1 * rng.normal(size=n)


def memory(n: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(35)
    patterns = np.where(rng.random((3, n)) < 0.5, -1.0, 1.0)
    return patterns, np.where(rng.random(n) < 0.1, -1, 1) * patterns[0], 4


def neighbours(n: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(36)
    return rng.normal(size=(n, 3)), rng.integers(0, 3, n), rng.normal(size=(n // 2, 3)), 5


def curve(n: int) -> tuple[Any, ...]:
    x = np.linspace(0, 5, n)
    return x, np.sin(x), np.linspace(0, 5, 2 * n), 0.7, 0.01


CASES = [
    Case(logistic_regression, labelled, 40, 200_000, "Cox, 1958"),
    Case(kmeans, blobs, 40, 100_000, "Lloyd, 1957"),
    Case(kmeans_by_masks, blobs, 40, 100_000, "Lloyd, 1957"),
    Case(two_layer_network, network, 30, 50_000, "Karpathy, CS231n notes, 2015", ulps=1e3),
    Case(adam, parameters, 10, 100_000, "Kingma & Ba, 2014"),
    Case(
        ridge_path, lambda n: (*design(n), np.array([0.1, 1.0, 10.0])), 30, 100_000, "Hoerl & Kennard, 1970", ulps=1e3
    ),
    Case(lasso_ista, lambda n: (*design(n), 1.0, 6), 30, 100_000, "Daubechies, Defrise & De Mol, 2004", ulps=1e3),
    Case(hopfield, memory, 30, 1000, "Hopfield, 1982"),
    Case(k_nearest, neighbours, 30, 1000, "Cover & Hart, 1967"),
    Case(gaussian_process, curve, 20, 300, "Rasmussen & Williams, 2006", ulps=1e6),
]
