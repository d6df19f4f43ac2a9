"""Equations solved, and graphs walked."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import Case


def conjugate_gradient(A, b, tolerance):
    """Until the residual is small."""
    x = np.zeros_like(b)
    r = b - A @ x
    p = r.copy()
    rs = r @ r
    for _ in range(len(b)):
        Ap = A @ p
        alpha = rs / (p @ Ap)
        x = x + alpha * p
        r = r - alpha * Ap
        new = r @ r
        if np.sqrt(new) < tolerance:
            break
        p = r + (new / rs) * p
        rs = new
    return x


def jacobi_solve(A, b, steps):
    D = np.diag(A)
    R = A - np.diagflat(D)
    x = np.zeros_like(b)
    for _ in range(steps):
        x = (b - R @ x) / D
    return x, np.linalg.norm(A @ x - b)


def power_iteration(A, steps):
    v = np.ones(A.shape[0])
    for _ in range(steps):
        w = A @ v
        v = w / np.linalg.norm(w)
    return v @ A @ v, v


def pagerank(links, damping, steps):
    n = len(links)
    out = links.sum(axis=0)
    M = np.where(out > 0, links / np.where(out > 0, out, 1), 1.0 / n)
    rank = np.full(n, 1.0 / n)
    for _ in range(steps):
        rank = (1 - damping) / n + damping * (M @ rank)
    return rank / rank.sum()


def floyd_warshall(path):
    for k in range(path.shape[0]):
        path[:] = np.minimum(path[:], np.add.outer(path[:, k], path[k, :]))


def gram_schmidt(A):
    """PolyBench's: Q and R of a matrix, column by column."""
    Q = np.zeros_like(A)
    R = np.zeros((A.shape[1], A.shape[1]), dtype=A.dtype)
    for k in range(A.shape[1]):
        nrm = np.dot(A[:, k], A[:, k])
        R[k, k] = np.sqrt(nrm)
        Q[:, k] = A[:, k] / R[k, k]
        for j in range(k + 1, A.shape[1]):
            R[k, j] = np.dot(Q[:, k], A[:, j])
            A[:, j] -= Q[:, k] * R[k, j]
    return Q, R


def cholesky(A):
    """PolyBench's, a row at a time."""
    A[0, 0] = np.sqrt(A[0, 0])
    for i in range(1, A.shape[0]):
        for j in range(i):
            A[i, j] -= np.dot(A[i, :j], A[j, :j])
            A[i, j] /= A[j, j]
        A[i, i] -= np.dot(A[i, :i], A[i, :i])
        A[i, i] = np.sqrt(A[i, i])


def gauss_elimination(A, b):
    """Without pivoting, the back substitution included."""
    A, b, n = A.copy(), b.copy(), len(b)
    for k in range(n - 1):
        factors = A[k + 1 :, k] / A[k, k]
        A[k + 1 :, k:] -= factors[:, None] * A[k, k:]
        b[k + 1 :] -= factors * b[k]
    x = np.zeros(n)
    for k in range(n - 1, -1, -1):
        x[k] = (b[k] - A[k, k + 1 :] @ x[k + 1 :]) / A[k, k]
    return x


def crank_nicolson(u, r, steps):
    """Diffusion by a dense solve at each step."""
    n = len(u)
    main, off = np.ones(n), np.ones(n - 1)
    A = np.diag((1 + r) * main) - np.diag(r / 2 * off, 1) - np.diag(r / 2 * off, -1)
    B = np.diag((1 - r) * main) + np.diag(r / 2 * off, 1) + np.diag(r / 2 * off, -1)
    for _ in range(steps):
        u = np.linalg.solve(A, B @ u)
    return u


def newton_root(f0, guess, tolerance):
    """Cube roots of many numbers, until the largest step is small."""
    x = guess
    count = 0
    while True:
        step = (x**3 - f0) / (3 * x**2)
        x = x - step
        count += 1
        if np.abs(step).max() < tolerance or count > 50:
            return x, count


def romberg(a, b, tolerance):
    """The integral of exp(-x^2) over many intervals by Romberg's table, until two diagonals agree."""
    h = b - a
    rows = [[h / 2 * (np.exp(-(a**2)) + np.exp(-(b**2)))]]
    for i in range(1, 12):
        h = h / 2
        points = a[:, None] + h[:, None] * np.arange(1, 2**i, 2)
        new = [rows[-1][0] / 2 + h * np.exp(-(points**2)).sum(axis=1)]
        for j in range(i):
            new.append(new[j] + (new[j] - rows[-1][j]) / (4 ** (j + 1) - 1))
        rows.append(new)
        if np.all(np.abs(new[-1] - rows[-2][-1]) < tolerance):
            break
    return new[-1], len(rows)


def trapezoid_quadrature(f0, n):
    x = np.linspace(0, 1, n)
    y = np.exp(-f0[:, None] * x**2) * np.cos(x)
    return np.trapezoid(y, x, axis=1), ((x[1] - x[0]) / 3 * (y[:, :-2:2] + 4 * y[:, 1::2] + y[:, 2::2])).sum(axis=1)


def spd(n: int) -> Any:
    A = np.random.default_rng(49).normal(size=(n, n))
    return A @ A.T / n + 2 * np.eye(n)


def system(n: int, *more: Any) -> tuple[Any, ...]:
    return (spd(n), np.random.default_rng(50).normal(size=n), *more)


def graph(n: int) -> tuple[Any, ...]:
    return (np.random.default_rng(51).random((n, n)) < 0.2).astype(float), 0.85, 8


def roads(n: int) -> tuple[Any, ...]:
    path = np.random.default_rng(52).integers(1, 100, (n, n))
    np.fill_diagonal(path, 0)
    return (path,)


CASES = [
    Case(conjugate_gradient, lambda n: system(n, 1e-6), 20, 500, "Hestenes & Stiefel, 1952", decides=True, ulps=1e4),
    # its second result is a residual, all of it rounding
    Case(jacobi_solve, lambda n: (spd(n) + n * np.eye(n), np.ones(n), 8), 20, 1000, "Jacobi, 1845", ulps=1e8),
    Case(power_iteration, lambda n: (spd(n), 8), 20, 1000, "von Mises & Pollaczek-Geiringer, 1929", ulps=1e3),
    Case(pagerank, graph, 20, 1000, "Page & Brin, 1998"),
    Case(floyd_warshall, roads, 12, 60, "PolyBench 4.2; Floyd, 1962"),
    Case(
        gram_schmidt, lambda n: (np.random.default_rng(53).normal(size=(n, n // 2)),), 10, 24, "PolyBench 4.2", ulps=1e4
    ),
    Case(cholesky, lambda n: (spd(n),), 8, 16, "PolyBench 4.2", ulps=1e4),
    Case(gauss_elimination, system, 10, 40, "Gauss, 1810", ulps=1e4),
    Case(
        crank_nicolson,
        lambda n: (np.sin(np.linspace(0, np.pi, n)), 0.5, 5),
        16,
        200,
        "Crank & Nicolson, 1947",
        ulps=1e3,
    ),
    Case(
        newton_root,
        lambda n: (np.linspace(1, 30, n), np.full(n, 2.0), 1e-8),
        20,
        500_000,
        "Newton, 1669",
        decides=True,
    ),
    Case(
        romberg,
        lambda n: (np.linspace(0, 1, n), np.linspace(1, 3, n), 1e-9),
        6,
        5_000,
        "Romberg, 1955",
        decides=True,
        ulps=256,
    ),
    Case(trapezoid_quadrature, lambda n: (np.linspace(0.1, 3, n), 41), 10, 20_000, "Simpson, 1743"),
]
