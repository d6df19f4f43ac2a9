"""Twenty textbook programs that are loops: recurrences, filters, tables, checksums, sparse rows, pairs, searches."""

from __future__ import annotations

import numpy as np

from . import Case


def biquad(x, b, a):
    """A second-order filter, transposed direct form II."""
    y = np.zeros_like(x)
    s1 = 0.0
    s2 = 0.0
    for n in range(x.shape[0]):
        y[n] = b[0] * x[n] + s1
        s1 = b[1] * x[n] - a[1] * y[n] + s2
        s2 = b[2] * x[n] - a[2] * y[n]
    return y


def thomas(lower, diagonal, upper, d):
    """A tridiagonal system."""
    n = d.shape[0]
    c = np.zeros(n)
    x = np.zeros(n)
    c[0] = upper[0] / diagonal[0]
    x[0] = d[0] / diagonal[0]
    for i in range(1, n):
        pivot = diagonal[i] - lower[i] * c[i - 1]
        c[i] = upper[i] / pivot
        x[i] = (d[i] - lower[i] * x[i - 1]) / pivot
    for i in range(n - 2, -1, -1):
        x[i] -= c[i] * x[i + 1]
    return x


def edit_distance(s, t):
    table = np.zeros((len(s) + 1, len(t) + 1), np.int64)
    table[:, 0] = np.arange(len(s) + 1)
    table[0, :] = np.arange(len(t) + 1)
    for i in range(1, len(s) + 1):
        for j in range(1, len(t) + 1):
            cost = 0 if s[i - 1] == t[j - 1] else 1
            table[i, j] = min(table[i - 1, j] + 1, table[i, j - 1] + 1, table[i - 1, j - 1] + cost)
    return table[len(s), len(t)]


def knapsack(weights, values, room):
    best = np.zeros(room + 1, np.int64)
    for i in range(len(weights)):
        w = weights[i]
        best[w:] = np.maximum(best[w:], best[: room + 1 - w] + values[i])
    return best[room]


def matrix_chain(sizes):
    n = len(sizes) - 1
    cost = np.zeros((n, n), np.int64)
    for length in range(2, n + 1):
        for i in range(n - length + 1):
            j = i + length - 1
            best = 1 << 60
            for k in range(i, j):
                best = min(best, cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1])
            cost[i, j] = best
    return cost[0, n - 1]


def viterbi(start, step, emit, seen):
    """Logarithms of probabilities in, the likeliest states out."""
    n, states = len(seen), start.shape[0]
    score = start + emit[:, seen[0]]
    fresh = np.zeros(states)
    back = np.zeros((n, states), np.int64)
    for t in range(1, n):
        for s in range(states):
            ways = score + step[:, s]
            best = np.argmax(ways)
            back[t, s] = best
            fresh[s] = ways[best] + emit[s, seen[t]]
        score[:] = fresh
    path = np.zeros(n, np.int64)
    path[n - 1] = np.argmax(score)
    for t in range(n - 1, 0, -1):
        path[t - 1] = back[t, path[t]]
    return path


def crc16(data):
    crc = 0xFFFF
    for i in range(len(data)):
        crc ^= data[i]
        for _ in range(8):
            if crc & 1:
                crc = (crc >> 1) ^ 0x8408
            else:
                crc >>= 1
    return crc


def adler32(data):
    a, b = 1, 0
    for i in range(len(data)):
        a = (a + data[i]) % 65521
        b = (b + a) % 65521
    return (b << 16) | a


def sparse_rows(starts, columns, values, x):
    y = np.zeros(len(starts) - 1)
    for i in range(len(starts) - 1):
        row = slice(starts[i], starts[i + 1])
        y[i] = np.sum(values[row] * x[columns[row]])
    return y


def lms_filter(x, wanted, taps, rate):
    """Least mean squares: the weights follow the error."""
    w = np.zeros(taps)
    errors = np.zeros(len(x))
    for n in range(taps, len(x)):
        window = x[n - taps : n]
        errors[n] = wanted[n] - np.dot(w, window)
        w += rate * errors[n] * window
    return w, errors


def kalman_1d(z, q, r):
    x = np.zeros_like(z)
    guess = z[0]
    p = 1.0
    for k in range(len(z)):
        p = p + q
        gain = p / (p + r)
        guess = guess + gain * (z[k] - guess)
        p = (1.0 - gain) * p
        x[k] = guess
    return x


def pair_forces(position, mass):
    n = len(mass)
    force = np.zeros((n, 3))
    for i in range(n):
        for j in range(i + 1, n):
            d = position[j] - position[i]
            r2 = np.dot(d, d) + 0.01
            f = mass[i] * mass[j] * d / (r2 * np.sqrt(r2))
            force[i] += f
            force[j] -= f
    return force


def insertion_sort(x):
    for i in range(1, len(x)):
        key = x[i]
        j = i - 1
        while j >= 0 and x[j] > key:
            x[j + 1] = x[j]
            j -= 1
        x[j + 1] = key


def sieve(n):
    prime = np.ones(n, np.bool_)
    prime[:2] = False
    for i in range(2, int(n**0.5) + 1):
        if prime[i]:
            prime[i * i :: i] = False
    return prime


def escape_times(re, im, most):
    """Mandelbrot's set, point by point."""
    count = np.zeros((len(im), len(re)), np.int64)
    for i in range(len(im)):
        for j in range(len(re)):
            x = 0.0
            y = 0.0
            for k in range(most):
                if x * x + y * y > 4.0:
                    break
                x, y = x * x - y * y + re[j], 2.0 * x * y + im[i]
                count[i, j] = k
    return count


def bisect(a, b, steps):
    """Roots of x**3 + b x - a, between -10 and 10."""
    low = np.full_like(a, -10.0)
    high = np.full_like(a, 10.0)
    for _ in range(steps):
        middle = 0.5 * (low + high)
        above = middle**3 + b * middle - a > 0
        high = np.where(above, middle, high)
        low = np.where(above, low, middle)
    return 0.5 * (low + high)


def convolve_2d(image, window):
    k, m = window.shape
    out = np.zeros((image.shape[0] - k + 1, image.shape[1] - m + 1))
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = np.sum(image[i : i + k, j : j + m] * window)
    return out


def time_warp(a, b):
    """Dynamic time warping of two series."""
    cost = np.full((len(a) + 1, len(b) + 1), np.inf)
    cost[0, 0] = 0.0
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            last = min(cost[i - 1, j], cost[i, j - 1], cost[i - 1, j - 1])
            cost[i, j] = abs(a[i - 1] - b[j - 1]) + last
    return cost[len(a), len(b)]


def autocorrelation(x, lags):
    x = x - np.mean(x)
    out = np.zeros(lags)
    for k in range(lags):
        out[k] = np.dot(x[: len(x) - k], x[k:]) / np.dot(x, x)
    return out


def power_iteration(A, tolerance, most):
    v = np.ones(A.shape[0])
    value = 0.0
    for _ in range(most):
        w = A @ v
        before = value
        value = np.sqrt(np.dot(w, w))
        v = w / value
        if abs(value - before) < tolerance * value:
            break
    return value, v


def rng():
    return np.random.default_rng(5)


def letters(n, kinds=4):
    return rng().integers(0, kinds, n)


def sparse(n):
    g = rng()
    counts = g.integers(0, 12, n)
    starts = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
    return starts, g.integers(0, n, starts[-1]), g.random(starts[-1]), g.random(n)


def hidden(n, states=5, kinds=6):
    g = rng()
    rows = [np.log(g.random(shape) + 0.05) for shape in (states, (states, states), (states, kinds))]
    return (*rows, g.integers(0, kinds, n))


def with_gap(n):
    """Symmetric, with a largest eigenvalue far from the others."""
    a = rng().random((n, n))
    return a + a.T


def noise(n):
    return rng().random(n)


# fmt: off
# small and large are sizes of the data; turns makes arguments whose outermost loop has so many turns
CASES = [
    Case(biquad, lambda n: (noise(n), np.array([0.2, 0.3, 0.2]), np.array([1.0, -0.4, 0.1])), 40, 20_000,
         "Bristow-Johnson, 1998", turns=lambda t: (noise(t), np.array([0.2, 0.3, 0.2]), np.array([1.0, -0.4, 0.1]))),
    Case(thomas, lambda n: (noise(n), noise(n) + 3, noise(n), noise(n)), 40, 20_000, "Thomas, 1949", ulps=1e3,
         turns=lambda t: (noise(t), noise(t) + 3, noise(t), noise(t))),
    Case(edit_distance, lambda n: (letters(n), letters(n + 3)), 10, 300, "Levenshtein, 1965",
         turns=lambda t: (letters(t), letters(9))),
    Case(knapsack, lambda n: (letters(n, 9) + 1, letters(n, 50) + 1, 10 * n), 12, 1_000, "Bellman, 1957",
         turns=lambda t: (letters(t, 9) + 1, letters(t, 50) + 1, 100)),
    Case(matrix_chain, lambda n: (letters(n, 40) + 1,), 9, 100, "Godbole, 1973",
         turns=lambda t: (letters(t, 40) + 1,)),
    Case(viterbi, hidden, 20, 2_000, "Viterbi, 1967", turns=hidden),
    Case(crc16, lambda n: (letters(n, 256),), 20, 20_000, "Peterson & Brown, 1961", decides=True,
         turns=lambda t: (letters(t, 256),)),
    Case(adler32, lambda n: (letters(n, 256),), 50, 50_000, "Deutsch & Gailly, 1996", decides=True,
         turns=lambda t: (letters(t, 256),)),
    Case(sparse_rows, sparse, 20, 20_000, "Tinney & Walker, 1967", turns=sparse),
    Case(lms_filter, lambda n: (noise(n), noise(n), 16, 0.01), 40, 10_000, "Widrow & Hoff, 1960", ulps=1e3,
         turns=lambda t: (noise(t + 16), noise(t + 16), 16, 0.01)),
    Case(kalman_1d, lambda n: (noise(n), 1e-3, 0.1), 40, 20_000, "Kalman, 1960", turns=lambda t: (noise(t), 1e-3, 0.1)),
    Case(pair_forces, lambda n: (rng().random((n, 3)), noise(n)), 10, 300, "Newton, 1687", ulps=1e3,
         turns=lambda t: (rng().random((t, 3)), noise(t))),
    Case(insertion_sort, lambda n: (noise(n),), 20, 800, "Knuth, 1973", turns=lambda t: (noise(t),)),
    Case(sieve, lambda n: (n,), 200, 1_000_000, "Eratosthenes", turns=lambda t: (t * t,)),
    Case(escape_times, lambda n: (np.linspace(-2, 0.5, n), np.linspace(-1, 1, n), 100), 8, 60, "Mandelbrot, 1980",
         turns=lambda t: (np.linspace(-2, 0.5, 9), np.linspace(-1, 1, t), 50)),
    Case(bisect, lambda n: (noise(n), noise(n) + 1, 50), 20, 50_000, "Bolzano, 1817",
         turns=lambda t: (noise(1_000), noise(1_000) + 1, t)),
    Case(convolve_2d, lambda n: (rng().random((n, n)), rng().random((5, 5))), 12, 150, "Prewitt, 1970",
         turns=lambda t: (rng().random((t + 4, 20)), rng().random((5, 5)))),
    Case(time_warp, lambda n: (noise(n), noise(n + 3)), 10, 300, "Sakoe & Chiba, 1978", decides=True,
         turns=lambda t: (noise(t), noise(9))),
    Case(autocorrelation, lambda n: (noise(n), n // 10), 100, 20_000, "Yule, 1927", ulps=1e3,
         turns=lambda t: (noise(2_000), t)),
    Case(power_iteration, lambda n: (with_gap(n), 1e-10, 200), 10, 400, "von Mises, 1929", decides=True, ulps=1e3,
         turns=lambda t: (with_gap(40), 0.0, t)),
]
