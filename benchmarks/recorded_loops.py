"""Loops whose turns differ, beside numba and NumPy: the first call, the same at another size, and a settled call.

    python benchmarks/recorded_loops.py [--device cpu] [--sizes 16 160 1000] [--only lu] [--no-peers]
    python benchmarks/recorded_loops.py --turns 50 500 5000    # first calls of ten loops

Every program is plain NumPy; numba compiles the same source, on a machine with a GPU CuPy runs it too. Every call gets
arguments of its own, copied before the clock starts; the least of several calls counts.
"""

# ruff: noqa: E402
from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT / "src")]
from common import machine, pin, show

PARSER = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
PARSER.add_argument("--device", default="cpu")
PARSER.add_argument("--sizes", type=int, nargs="*", default=[16, 160])
PARSER.add_argument("--only", nargs="*", default=[])
PARSER.add_argument("--seconds", type=float, default=0.3, help="for each candidate")
PARSER.add_argument("--no-peers", action="store_true")
PARSER.add_argument("--turns", type=int, nargs="*", default=[])
OPTIONS = PARSER.parse_args() if __name__ == "__main__" else PARSER.parse_args([])
if __name__ == "__main__":
    pin(2)

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import kernelgraph as kg

SLOW = 4e6  # turns of the innermost loop from which NumPy is not waited for


def square(n: int, rng: Any) -> Any:
    return rng.random((n, n)) + n * np.eye(n)


def symmetric(n: int, rng: Any) -> Any:
    a = rng.random((n, n))
    return a @ a.T / n + n * np.eye(n)


def lu(a):  # type: ignore[no-untyped-def]
    for i in range(a.shape[0]):
        for j in range(i):
            a[i, j] -= a[i, :j] @ a[:j, j]
            a[i, j] /= a[j, j]
        for j in range(i, a.shape[0]):
            a[i, j] -= a[i, :i] @ a[:i, j]
    return a


def eliminate(a):  # type: ignore[no-untyped-def]
    for k in range(a.shape[0] - 1):
        a[k + 1 :, k] /= a[k, k]
        a[k + 1 :, k + 1 :] -= np.outer(a[k + 1 :, k], a[k, k + 1 :])
    return a


def cholesky(a):  # type: ignore[no-untyped-def]
    a[0, 0] = np.sqrt(a[0, 0])
    for i in range(1, a.shape[0]):
        for j in range(i):
            a[i, j] -= np.dot(a[i, :j], a[j, :j])
            a[i, j] /= a[j, j]
        a[i, i] -= np.dot(a[i, :i], a[i, :i])
        a[i, i] = np.sqrt(a[i, i])
    return a


def solve_triangle(a, b):  # type: ignore[no-untyped-def]
    x = np.zeros_like(b)
    for i in range(b.shape[0]):
        x[i] = (b[i] - a[i, :i] @ x[:i]) / a[i, i]
    return x


def durbin(r):  # type: ignore[no-untyped-def]
    y = np.empty_like(r)
    alpha = -r[0]
    beta = 1.0
    y[0] = -r[0]
    for k in range(1, r.shape[0]):
        beta *= 1.0 - alpha * alpha
        alpha = -(r[k] + np.dot(np.flip(r[:k]), y[:k])) / beta
        y[:k] += alpha * np.flip(y[:k])
        y[k] = alpha
    return y


def gram_schmidt(a):  # type: ignore[no-untyped-def]
    q = np.zeros_like(a)
    r = np.zeros_like(a)
    for k in range(a.shape[1]):
        r[k, k] = np.sqrt(np.dot(a[:, k], a[:, k]))
        q[:, k] = a[:, k] / r[k, k]
        for j in range(k + 1, a.shape[1]):
            r[k, j] = np.dot(q[:, k], a[:, j])
            a[:, j] -= q[:, k] * r[k, j]
    return q, r


def seidel(a):  # type: ignore[no-untyped-def]
    for _ in range(10):
        for i in range(1, a.shape[0] - 1):
            for j in range(1, a.shape[1] - 1):
                a[i, j] = (a[i - 1, j] + a[i, j - 1] + a[i, j] + a[i, j + 1] + a[i + 1, j]) / 5.0
    return a


def longest_common(s, t):  # type: ignore[no-untyped-def]
    table = np.zeros((s.shape[0] + 1, t.shape[0] + 1), np.int64)
    for i in range(1, s.shape[0] + 1):
        for j in range(1, t.shape[0] + 1):
            if s[i - 1] == t[j - 1]:
                table[i, j] = table[i - 1, j - 1] + 1
            else:
                table[i, j] = max(table[i - 1, j], table[i, j - 1])
    return table


def symmetric_product(a, b):  # type: ignore[no-untyped-def]
    c = np.zeros_like(b)
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            c[:i, j] += b[i, j] * a[i, :i]
            c[i, j] += b[i, j] * a[i, i] + np.dot(b[:i, j], a[i, :i])
    return c


def triangular_product(a, b):  # type: ignore[no-untyped-def]
    for i in range(b.shape[0]):
        for j in range(b.shape[1]):
            b[i, j] += np.dot(a[i + 1 :, i], b[i + 1 :, j])
    return b


def distances(x):  # type: ignore[no-untyped-def]
    n = x.shape[0]
    d = np.zeros((n, n))
    for i in range(n):
        for j in range(i + 1, n):
            d[i, j] = np.sqrt(np.sum((x[i] - x[j]) ** 2))
            d[j, i] = d[i, j]
    return d


def shortest_paths(d):  # type: ignore[no-untyped-def]
    n = d.shape[0]
    for k in range(n):
        for i in range(n):
            for j in range(n):
                if d[i, k] + d[k, j] < d[i, j]:
                    d[i, j] = d[i, k] + d[k, j]
    return d


def recurrence(x, a, b):  # type: ignore[no-untyped-def]
    y = np.zeros_like(x)
    for i in range(2, x.shape[0]):
        y[i] = x[i] - a[1] * y[i - 1] - a[2] * y[i - 2] + b * x[i - 1]
    return y


# name -> the function, and its arguments for a size
PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[int, Any], tuple[Any, ...]]]] = {
    "lu": (lu, lambda n, g: (square(n, g),)),
    "eliminate": (eliminate, lambda n, g: (square(n, g),)),
    "cholesky": (cholesky, lambda n, g: (symmetric(n, g),)),
    "solve_triangle": (solve_triangle, lambda n, g: (square(n, g), g.random(n))),
    "durbin": (durbin, lambda n, g: (g.random(n) / n,)),
    "gram_schmidt": (gram_schmidt, lambda n, g: (square(n, g),)),
    "seidel": (seidel, lambda n, g: (g.random((n, n)),)),
    "longest_common": (longest_common, lambda n, g: (g.integers(0, 4, n), g.integers(0, 4, n))),
    "symmetric_product": (symmetric_product, lambda n, g: (g.random((n, n)), g.random((n, n)))),
    "triangular_product": (triangular_product, lambda n, g: (g.random((n, n)), g.random((n, n)))),
    "distances": (distances, lambda n, g: (g.random((n, 3)),)),
    "shortest_paths": (shortest_paths, lambda n, g: (g.random((n, n)),)),
    "recurrence": (recurrence, lambda n, g: (g.random(n * n), np.array([1.0, -0.3, 0.2]), 0.5)),
}


def step_oscillator(y, times):  # type: ignore[no-untyped-def]
    for t in times:
        k1 = np.array([y[1], np.sin(t) - y[0]])
        middle = y + 0.005 * k1
        y = y + 0.01 * np.array([middle[1], np.sin(t + 0.005) - middle[0]])
    return y


def diffuse(u, turns):  # type: ignore[no-untyped-def]
    for _ in range(turns):
        u[1:-1, 1:-1] += 0.1 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1])
    return u


def run_network(w, x):  # type: ignore[no-untyped-def]
    h = np.zeros(w.shape[0])
    for i in range(x.shape[0]):
        h = np.tanh(w @ h + x[i])
    return h


def smooth_rows(x):  # type: ignore[no-untyped-def]
    for i in range(1, x.shape[0]):
        x[i] = 0.9 * x[i - 1] + 0.1 * x[i]
    return x


def largest_so_far(x):  # type: ignore[no-untyped-def]
    best = x[0]
    for i in range(1, x.shape[0]):
        best = max(best, x[i])
        x[i] = best
    return x


def check_sum(data):  # type: ignore[no-untyped-def]
    total = 0
    for i in range(data.shape[0]):
        total = (total ^ data[i]) * 31 % 65521
    return total


def band_solve(a, b):  # type: ignore[no-untyped-def]
    for i in range(1, b.shape[0]):
        w = a[i, 0] / a[i - 1, 1]
        a[i, 1] -= w * a[i - 1, 2]
        b[i] -= w * b[i - 1]
    for i in range(b.shape[0] - 2, -1, -1):
        b[i] = (b[i] - a[i, 2] * b[i + 1]) / a[i, 1]
    return b


# name -> a function, and its arguments for a number of turns
TURNS: dict[str, tuple[Callable[..., Any], Callable[[int, Any], tuple[Any, ...]]]] = {
    "recurrence": (recurrence, lambda n, g: (g.random(n), np.array([1.0, -0.3, 0.2]), 0.5)),
    "durbin": (durbin, lambda n, g: (g.random(n) / n,)),
    "longest_common": (longest_common, lambda n, g: (g.integers(0, 4, n), g.integers(0, 4, 50))),
    "step_oscillator": (step_oscillator, lambda n, g: (g.random(2), np.linspace(0, 1, n))),
    "diffuse": (diffuse, lambda n, g: (g.random((64, 64)), n)),
    "run_network": (run_network, lambda n, g: (g.random((32, 32)) / 32, g.random((n, 32)))),
    "smooth_rows": (smooth_rows, lambda n, g: (g.random((n, 100)),)),
    "largest_so_far": (largest_so_far, lambda n, g: (g.random(n),)),
    "check_sum": (check_sum, lambda n, g: (g.integers(0, 256, n),)),
    "band_solve": (band_solve, lambda n, g: (g.random((n, 3)) + np.array([0, 4, 0]), g.random(n))),
}


def copied(given: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(x.copy() if isinstance(x, np.ndarray) else x for x in given)


def waited(found: Any) -> Any:
    for x in found if isinstance(found, tuple) else (found,):
        if hasattr(x, "wait"):
            x.wait()
    return found


def timed(call: Callable[..., Any], given: tuple[Any, ...]) -> float:
    arguments = copied(given)
    start = time.perf_counter()
    waited(call(*arguments))
    return time.perf_counter() - start


def least(call: Callable[..., Any], given: tuple[Any, ...]) -> float:
    found, end = [], time.perf_counter() + OPTIONS.seconds
    while len(found) < 3 or (time.perf_counter() < end and len(found) < 2000):
        found.append(timed(call, given))
    return min(found)


def main() -> None:
    print(machine(2, ("numpy", "numba", "llvmlite")))
    print("| program | n | first call | at n - 1 then n | a call | numba: first | a call | NumPy | ours / numba |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    for name, (function, make) in PROGRAMS.items():
        if OPTIONS.only and name not in OPTIONS.only:
            continue
        for n in OPTIONS.sizes:
            rng = np.random.default_rng(n)
            given, near = make(n, rng), make(n - 1, rng)
            ours = kg.kernel_graph(function, device=OPTIONS.device)
            first = timed(ours, near)
            second = timed(ours, given)
            settled = least(ours, given)
            mine = copied(given)
            results = [np.asarray(x) for x in _each(ours(*mine))]
            row = [show(first), show(second), show(settled)]
            if OPTIONS.no_peers:
                print(f"| {name} | {n} | " + " | ".join(row) + " | | | | |", flush=True)
                continue
            import numba

            peer = numba.njit(function)
            first = timed(peer, near)
            theirs = least(peer, given)
            want = [np.asarray(x) for x in _each(peer(*copied(given)))]
            for got, wanted in zip(results, want, strict=True):
                np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-11)
            plain = timed(function, given) if n <= 160 else float("nan")
            row += [show(first), show(theirs), show(plain), f"{settled / theirs:.2f}"]
            print(f"| {name} | {n} | " + " | ".join(row) + " |", flush=True)


def by_turns() -> None:
    print(machine(2, ("numpy", "llvmlite")))
    print("| loop | " + " | ".join(f"first call, {n} turns | processor time | a call" for n in OPTIONS.turns) + " |")
    print("|---" + "|--:|--:|--:" * len(OPTIONS.turns) + "|")
    least(kg.kernel_graph(np.negative, device=OPTIONS.device), (np.ones(3),))  # what any first call loads
    for name, (function, make) in TURNS.items():
        if OPTIONS.only and name not in OPTIONS.only:
            continue
        row = []
        for n in OPTIONS.turns:
            given = make(n, np.random.default_rng(n))
            ours = kg.kernel_graph(function, device=OPTIONS.device)
            start = time.process_time()
            row += [show(timed(ours, given)), show(time.process_time() - start), show(least(ours, given))]
            mine, want = copied(given), copied(given)
            for got, wanted in zip(_each(ours(*mine)), _each(function(*want)), strict=True):
                np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-9, atol=1e-11)
        print(f"| {name} | " + " | ".join(row) + " |", flush=True)


def _each(found: Any) -> tuple[Any, ...]:
    return found if isinstance(found, tuple) else (found,)


if __name__ == "__main__":
    by_turns() if OPTIONS.turns else main()
