"""PolyBench/C 4.2's thirty kernels (Pouchet & Yuki, 2016), their inner loops as slices where these say the same."""

from __future__ import annotations

import numpy as np

from . import Case


def correlation(data):
    n, m = data.shape
    data -= np.sum(data, axis=0) / n
    deviation = np.sqrt(np.sum(data * data, axis=0) / n)
    deviation = np.where(deviation <= 0.1, 1.0, deviation)
    data /= np.sqrt(n) * deviation
    result = np.eye(m)
    for i in range(m - 1):
        result[i, i + 1 :] = data[:, i] @ data[:, i + 1 :]
        result[i + 1 :, i] = result[i, i + 1 :]
    return result


def covariance(data):
    n, m = data.shape
    data -= np.sum(data, axis=0) / n
    result = np.zeros((m, m))
    for i in range(m):
        result[i, i:] = data[:, i] @ data[:, i:] / (n - 1.0)
        result[i:, i] = result[i, i:]
    return result


def gemm(alpha, beta, C, A, B):
    C[:] = alpha * (A @ B) + beta * C


def gemver(alpha, beta, A, u1, v1, u2, v2, w, x, y, z):
    A += np.outer(u1, v1) + np.outer(u2, v2)
    x += beta * (A.T @ y) + z
    w += alpha * (A @ x)


def gesummv(alpha, beta, A, B, x):
    return alpha * (A @ x) + beta * (B @ x)


def symm(alpha, beta, C, A, B):
    m, n = C.shape
    for i in range(m):
        for j in range(n):
            C[:i, j] += alpha * B[i, j] * A[i, :i]
            product = np.dot(B[:i, j], A[i, :i])
            C[i, j] = beta * C[i, j] + alpha * B[i, j] * A[i, i] + alpha * product


def syr2k(alpha, beta, C, A, B):
    for i in range(A.shape[0]):
        C[i, : i + 1] *= beta
        for k in range(A.shape[1]):
            C[i, : i + 1] += A[: i + 1, k] * alpha * B[i, k] + B[: i + 1, k] * alpha * A[i, k]


def syrk(alpha, beta, C, A):
    for i in range(A.shape[0]):
        C[i, : i + 1] *= beta
        for k in range(A.shape[1]):
            C[i, : i + 1] += alpha * A[i, k] * A[: i + 1, k]


def trmm(alpha, A, B):
    for i in range(B.shape[0]):
        for j in range(B.shape[1]):
            B[i, j] += np.dot(A[i + 1 :, i], B[i + 1 :, j])
    B *= alpha


def k2mm(alpha, beta, A, B, C, D):
    D[:] = (alpha * (A @ B)) @ C + beta * D


def k3mm(A, B, C, D):
    return (A @ B) @ (C @ D)


def atax(A, x):
    return A.T @ (A @ x)


def bicg(A, p, r):
    return A.T @ r, A @ p


def doitgen(A, C4):
    for r in range(A.shape[0]):
        for q in range(A.shape[1]):
            A[r, q] = A[r, q] @ C4


def mvt(x1, x2, y1, y2, A):
    x1 += A @ y1
    x2 += A.T @ y2


def cholesky(A):
    for i in range(A.shape[0]):
        for j in range(i):
            A[i, j] = (A[i, j] - np.dot(A[i, :j], A[j, :j])) / A[j, j]
        A[i, i] = np.sqrt(A[i, i] - np.dot(A[i, :i], A[i, :i]))


def durbin(r):
    y = np.empty_like(r)
    y[0] = -r[0]
    alpha = -r[0]
    beta = 1.0
    for k in range(1, r.shape[0]):
        beta *= 1.0 - alpha * alpha
        alpha = -(r[k] + np.dot(r[:k][::-1], y[:k])) / beta
        y[:k] += alpha * y[:k][::-1]
        y[k] = alpha
    return y


def gramschmidt(A):
    m, n = A.shape
    Q = np.zeros((m, n))
    R = np.zeros((n, n))
    for k in range(n):
        R[k, k] = np.sqrt(np.dot(A[:, k], A[:, k]))
        Q[:, k] = A[:, k] / R[k, k]
        for j in range(k + 1, n):
            R[k, j] = np.dot(Q[:, k], A[:, j])
            A[:, j] -= Q[:, k] * R[k, j]
    return Q, R


def lu(A):
    for i in range(A.shape[0]):
        for j in range(i):
            A[i, j] = (A[i, j] - np.dot(A[i, :j], A[:j, j])) / A[j, j]
        for j in range(i, A.shape[0]):
            A[i, j] -= np.dot(A[i, :i], A[:i, j])


def ludcmp(A, b):
    lu(A)
    n = A.shape[0]
    x = np.zeros(n)
    y = np.zeros(n)
    for i in range(n):
        y[i] = b[i] - np.dot(A[i, :i], y[:i])
    for i in range(n - 1, -1, -1):
        x[i] = (y[i] - np.dot(A[i, i + 1 :], x[i + 1 :])) / A[i, i]
    return x, y


def trisolv(L, b):
    x = np.zeros_like(b)
    for i in range(b.shape[0]):
        x[i] = (b[i] - np.dot(L[i, :i], x[:i])) / L[i, i]
    return x


def deriche(alpha, image):
    k = (1.0 - np.exp(-alpha)) ** 2 / (1.0 + 2.0 * alpha * np.exp(-alpha) - np.exp(-2.0 * alpha))
    a1, a2 = k, k * np.exp(-alpha) * (alpha - 1.0)
    a3, a4 = k * np.exp(-alpha) * (alpha + 1.0), -k * np.exp(-2.0 * alpha)
    b1, b2 = 2.0 ** (-alpha), -np.exp(-2.0 * alpha)
    w, h = image.shape
    y1 = np.zeros_like(image)
    y2 = np.zeros_like(image)
    y1[:, 0] = a1 * image[:, 0]
    y1[:, 1] = a1 * image[:, 1] + a2 * image[:, 0] + b1 * y1[:, 0]
    for j in range(2, h):
        y1[:, j] = a1 * image[:, j] + a2 * image[:, j - 1] + b1 * y1[:, j - 1] + b2 * y1[:, j - 2]
    y2[:, h - 2] = a3 * image[:, h - 1]
    for j in range(h - 3, -1, -1):
        y2[:, j] = a3 * image[:, j + 1] + a4 * image[:, j + 2] + b1 * y2[:, j + 1] + b2 * y2[:, j + 2]
    out = y1 + y2
    y1[0] = a1 * out[0]
    y1[1] = a1 * out[1] + a2 * out[0] + b1 * y1[0]
    for i in range(2, w):
        y1[i] = a1 * out[i] + a2 * out[i - 1] + b1 * y1[i - 1] + b2 * y1[i - 2]
    y2[w - 1] = 0.0
    y2[w - 2] = a3 * out[w - 1]
    for i in range(w - 3, -1, -1):
        y2[i] = a3 * out[i + 1] + a4 * out[i + 2] + b1 * y2[i + 1] + b2 * y2[i + 2]
    return y1 + y2


def floyd_warshall(paths):
    for k in range(paths.shape[0]):
        paths[:] = np.minimum(paths, paths[:, k : k + 1] + paths[k])


def nussinov(bases):
    n = bases.shape[0]
    table = np.zeros((n, n), np.int64)
    for i in range(n - 1, -1, -1):
        for j in range(i + 1, n):
            table[i, j] = max(table[i, j], table[i, j - 1])
            if i + 1 < n:
                table[i, j] = max(table[i, j], table[i + 1, j])
                if i < j - 1:
                    pair = 1 if bases[i] + bases[j] == 3 else 0
                    table[i, j] = max(table[i, j], table[i + 1, j - 1] + pair)
                else:
                    table[i, j] = max(table[i, j], table[i + 1, j - 1])
            for k in range(i + 1, j):
                table[i, j] = max(table[i, j], table[i, k] + table[k + 1, j])
    return table


def adi(steps, u):
    n = u.shape[0]
    v = np.zeros_like(u)
    p = np.zeros_like(u)
    q = np.zeros_like(u)
    mul1, mul2 = 2.0 * n * n / steps, 1.0 * n * n / steps
    a, b, d, e = -mul1 / 2.0, 1.0 + mul1, -mul2 / 2.0, 1.0 + mul2
    for _ in range(steps):
        v[0, 1:-1] = 1.0
        p[1:-1, 0] = 0.0
        q[1:-1, 0] = v[0, 1:-1]
        for j in range(1, n - 1):
            below = a * p[1:-1, j - 1] + b
            p[1:-1, j] = -a / below
            across = -d * u[j, :-2] + (1.0 + 2.0 * d) * u[j, 1:-1] - d * u[j, 2:]
            q[1:-1, j] = (across - a * q[1:-1, j - 1]) / below
        v[n - 1, 1:-1] = 1.0
        for j in range(n - 2, 0, -1):
            v[j, 1:-1] = p[1:-1, j] * v[j + 1, 1:-1] + q[1:-1, j]
        u[1:-1, 0] = 1.0
        p[1:-1, 0] = 0.0
        q[1:-1, 0] = u[1:-1, 0]
        for j in range(1, n - 1):
            below = d * p[1:-1, j - 1] + e
            p[1:-1, j] = -d / below
            across = -a * v[:-2, j] + (1.0 + 2.0 * a) * v[1:-1, j] - a * v[2:, j]
            q[1:-1, j] = (across - d * q[1:-1, j - 1]) / below
        u[1:-1, n - 1] = 1.0
        for j in range(n - 2, 0, -1):
            u[1:-1, j] = p[1:-1, j] * u[1:-1, j + 1] + q[1:-1, j]


def fdtd_2d(steps, ex, ey, hz, source):
    for t in range(steps):
        ey[0] = source[t]
        ey[1:] -= 0.5 * (hz[1:] - hz[:-1])
        ex[:, 1:] -= 0.5 * (hz[:, 1:] - hz[:, :-1])
        hz[:-1, :-1] -= 0.7 * (ex[:-1, 1:] - ex[:-1, :-1] + ey[1:, :-1] - ey[:-1, :-1])


def heat_3d(steps, A, B):
    for _ in range(steps):
        B[1:-1, 1:-1, 1:-1] = (
            0.125 * (A[2:, 1:-1, 1:-1] - 2.0 * A[1:-1, 1:-1, 1:-1] + A[:-2, 1:-1, 1:-1])
            + 0.125 * (A[1:-1, 2:, 1:-1] - 2.0 * A[1:-1, 1:-1, 1:-1] + A[1:-1, :-2, 1:-1])
            + 0.125 * (A[1:-1, 1:-1, 2:] - 2.0 * A[1:-1, 1:-1, 1:-1] + A[1:-1, 1:-1, :-2])
            + A[1:-1, 1:-1, 1:-1]
        )
        A[1:-1, 1:-1, 1:-1] = (
            0.125 * (B[2:, 1:-1, 1:-1] - 2.0 * B[1:-1, 1:-1, 1:-1] + B[:-2, 1:-1, 1:-1])
            + 0.125 * (B[1:-1, 2:, 1:-1] - 2.0 * B[1:-1, 1:-1, 1:-1] + B[1:-1, :-2, 1:-1])
            + 0.125 * (B[1:-1, 1:-1, 2:] - 2.0 * B[1:-1, 1:-1, 1:-1] + B[1:-1, 1:-1, :-2])
            + B[1:-1, 1:-1, 1:-1]
        )


def jacobi_1d(steps, A, B):
    for _ in range(steps):
        B[1:-1] = 0.33333 * (A[:-2] + A[1:-1] + A[2:])
        A[1:-1] = 0.33333 * (B[:-2] + B[1:-1] + B[2:])


def jacobi_2d(steps, A, B):
    for _ in range(steps):
        B[1:-1, 1:-1] = 0.2 * (A[1:-1, 1:-1] + A[1:-1, :-2] + A[1:-1, 2:] + A[2:, 1:-1] + A[:-2, 1:-1])
        A[1:-1, 1:-1] = 0.2 * (B[1:-1, 1:-1] + B[1:-1, :-2] + B[1:-1, 2:] + B[2:, 1:-1] + B[:-2, 1:-1])


def seidel_2d(steps, A):
    n = A.shape[0]
    for _ in range(steps):
        for i in range(1, n - 1):
            for j in range(1, n - 1):
                above = A[i - 1, j - 1] + A[i - 1, j] + A[i - 1, j + 1]
                below = A[i + 1, j - 1] + A[i + 1, j] + A[i + 1, j + 1]
                A[i, j] = (above + A[i, j - 1] + A[i, j] + A[i, j + 1] + below) / 9.0


def rng():
    return np.random.default_rng(4)


def random(*shapes):
    g = rng()
    return tuple(g.random(shape) for shape in shapes)


def positive(n):
    """Symmetric and positive definite."""
    (a,) = random((n, n))
    return a @ a.T / n + n * np.eye(n)


def dominant(n):
    """With a diagonal that needs no pivoting."""
    return random((n, n))[0] + n * np.eye(n)


AFTER = "PolyBench/C 4.2"

# small and large are sizes of the data; turns makes arguments whose outermost loop has so many turns
CASES = [
    Case(correlation, lambda n: random((n + 20, n)), 12, 240, AFTER, ulps=1e3, turns=lambda t: random((20, t))),
    Case(covariance, lambda n: random((n + 20, n)), 12, 240, AFTER, ulps=1e3, turns=lambda t: random((20, t))),
    Case(gemm, lambda n: (1.5, 1.2, *random((n, n + 20), (n, n + 40), (n + 40, n + 20))), 8, 200, AFTER),
    Case(
        gemver,
        lambda n: (1.5, 1.2, *random((n, n), *[n] * 8)),
        8,
        400,
        AFTER,
        ulps=1e3,
    ),
    Case(gesummv, lambda n: (1.5, 1.2, *random((n, n), (n, n), n)), 8, 250, AFTER),
    Case(
        symm,
        lambda n: (1.5, 1.2, *random((n, n + 40), (n, n), (n, n + 40))),
        9,
        200,
        AFTER,
        turns=lambda t: (1.5, 1.2, *random((t, 9), (t, t), (t, 9))),
    ),
    Case(
        syr2k,
        lambda n: (1.5, 1.2, *random((n, n), (n, n), (n, n))),
        9,
        200,
        AFTER,
        turns=lambda t: (1.5, 1.2, *random((t, t), (t, 9), (t, 9))),
    ),
    Case(
        syrk,
        lambda n: (1.5, 1.2, *random((n, n), (n, n))),
        9,
        200,
        AFTER,
        turns=lambda t: (1.5, 1.2, *random((t, t), (t, 9))),
    ),
    Case(
        trmm,
        lambda n: (1.5, *random((n, n), (n, n + 40))),
        9,
        200,
        AFTER,
        ulps=1e3,
        turns=lambda t: (1.5, *random((t, t), (t, 9))),
    ),
    Case(
        k2mm,
        lambda n: (1.5, 1.2, *random((n, n + 30), (n + 30, n + 10), (n + 10, n + 40), (n, n + 40))),
        8,
        180,
        AFTER,
    ),
    Case(k3mm, lambda n: random((n, n + 20), (n + 20, n + 10), (n + 10, n + 40), (n + 40, n + 30)), 8, 180, AFTER),
    Case(atax, lambda n: random((n, n + 20), n + 20), 8, 390, AFTER),
    Case(bicg, lambda n: random((n + 20, n), n, n + 20), 8, 390, AFTER),
    Case(
        doitgen,
        lambda n: random((n, n - 2, n), (n, n)),
        10,
        50,
        AFTER,
        turns=lambda t: random((t, 9, 9), (9, 9)),
    ),
    Case(mvt, lambda n: random(n, n, n, n, (n, n)), 8, 400, AFTER),
    Case(cholesky, lambda n: (positive(n),), 12, 400, AFTER, ulps=1e4, turns=lambda t: (positive(t),)),
    Case(durbin, lambda n: (random(n)[0] / n,), 30, 400, AFTER, ulps=1e4, turns=lambda t: (random(t)[0] / t,)),
    Case(
        gramschmidt,
        lambda n: (np.concatenate((dominant(n), random((20, n))[0])),),
        9,
        200,
        AFTER,
        ulps=1e4,
        turns=lambda t: (dominant(t),),
    ),
    Case(lu, lambda n: (dominant(n),), 12, 400, AFTER, ulps=1e4, turns=lambda t: (dominant(t),)),
    Case(
        ludcmp,
        lambda n: (dominant(n), random(n)[0]),
        12,
        400,
        AFTER,
        ulps=1e4,
        turns=lambda t: (dominant(t), random(t)[0]),
    ),
    Case(
        trisolv,
        lambda n: (dominant(n), random(n)[0]),
        30,
        400,
        AFTER,
        ulps=1e3,
        turns=lambda t: (dominant(t), random(t)[0]),
    ),
    Case(
        deriche,
        lambda n: (0.25, random((n, n - n // 3))[0]),
        18,
        720,
        AFTER,
        ulps=1e3,
        turns=lambda t: (0.25, random((t, t))[0]),
    ),
    Case(floyd_warshall, lambda n: random((n, n)), 16, 300, AFTER, turns=lambda t: random((t, t))),
    Case(nussinov, lambda n: (rng().integers(0, 4, n),), 14, 150, AFTER, turns=lambda t: (rng().integers(0, 4, t),)),
    Case(adi, lambda n: (n // 2, *random((n, n))), 10, 200, AFTER, ulps=1e4, turns=lambda t: (t, *random((40, 40)))),
    Case(
        fdtd_2d,
        lambda n: (n // 2, *random((n, n + 40), (n, n + 40), (n, n + 40), n)),
        12,
        200,
        AFTER,
        ulps=1e4,
        turns=lambda t: (t, *random((40, 40), (40, 40), (40, 40), t)),
    ),
    Case(
        heat_3d,
        lambda n: (n, *random((n, n, n), (n, n, n))),
        8,
        40,
        AFTER,
        ulps=1e3,
        turns=lambda t: (t, *random((12,) * 3, (12,) * 3)),
    ),
    Case(
        jacobi_1d, lambda n: (n // 4, *random(n, n)), 40, 400, AFTER, ulps=1e3, turns=lambda t: (t, *random(400, 400))
    ),
    Case(
        jacobi_2d,
        lambda n: (n // 2, *random((n, n), (n, n))),
        12,
        250,
        AFTER,
        ulps=1e3,
        turns=lambda t: (t, *random((40, 40), (40, 40))),
    ),
    Case(
        seidel_2d, lambda n: (n // 4, *random((n, n))), 10, 80, AFTER, ulps=1e4, turns=lambda t: (t, *random((20, 20)))
    ),
]
