"""Patterns that grow: cellular automata, reaction and diffusion, fractals."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import Case


def game_of_life(Z, steps):
    for _ in range(steps):
        N = (
            Z[0:-2, 0:-2]
            + Z[0:-2, 1:-1]
            + Z[0:-2, 2:]
            + Z[1:-1, 0:-2]
            + Z[1:-1, 2:]
            + Z[2:, 0:-2]
            + Z[2:, 1:-1]
            + Z[2:, 2:]
        )
        birth = (N == 3) & (Z[1:-1, 1:-1] == 0)
        survive = ((N == 2) | (N == 3)) & (Z[1:-1, 1:-1] == 1)
        Z[...] = 0
        Z[1:-1, 1:-1][birth | survive] = 1
    return Z


def life_by_roll(grid, steps):
    for _ in range(steps):
        around = sum(
            np.roll(np.roll(grid, i, axis=0), j, axis=1) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0)
        )
        grid = ((around == 3) | ((grid == 1) & (around == 2))).astype(grid.dtype)
    return grid


def gray_scott(U, V, Du, Dv, F, k, steps):
    u, v = U[1:-1, 1:-1], V[1:-1, 1:-1]
    for _ in range(steps):
        Lu = U[0:-2, 1:-1] + U[1:-1, 0:-2] - 4 * U[1:-1, 1:-1] + U[1:-1, 2:] + U[2:, 1:-1]
        Lv = V[0:-2, 1:-1] + V[1:-1, 0:-2] - 4 * V[1:-1, 1:-1] + V[1:-1, 2:] + V[2:, 1:-1]
        uvv = u * v * v
        u += Du * Lu - uvv + F * (1 - u)
        v += Dv * Lv + uvv - (F + k) * v
    return V


def mandelbrot_masks(xmin, xmax, ymin, ymax, xn, yn, itermax, horizon=2.0):
    X = np.linspace(xmin, xmax, xn, dtype=np.float64)
    Y = np.linspace(ymin, ymax, yn, dtype=np.float64)
    C = X + Y[:, None] * 1j
    N = np.zeros(C.shape, dtype=np.int64)
    Z = np.zeros(C.shape, dtype=np.complex128)
    for n in range(itermax):
        I = np.less(abs(Z), horizon)  # noqa: E741
        N[I] = n
        Z[I] = Z[I] ** 2 + C[I]
    N[N == itermax - 1] = 0  # noqa: SIM300
    return Z, N


def julia(n, c, steps):
    y, x = np.ogrid[-1.5 : 1.5 : n * 1j, -1.5 : 1.5 : n * 1j]
    z = x + 1j * y
    count = np.zeros(z.shape, dtype=int)
    for _ in range(steps):
        inside = np.abs(z) <= 2
        z = np.where(inside, z**2 + c, z)
        count += inside
    return count


def newton_fractal(n, steps):
    """Which root of z^3 = 1 Newton's method finds."""
    x = np.linspace(-2, 2, n)
    z = x[None, :] + 1j * x[:, None] + 1e-3
    for _ in range(steps):
        z = z - (z**3 - 1) / (3 * z**2)
    roots = np.exp(2j * np.pi * np.arange(3) / 3)
    return np.argmin(np.abs(z[..., None] - roots), axis=-1)


def forest_fire(forest, lightning, growth, steps):
    """0: ground, 1: tree, 2: fire; given random numbers."""
    for t in range(steps):
        fire = forest == 2
        near = np.zeros_like(fire)
        near[1:] |= fire[:-1]
        near[:-1] |= fire[1:]
        near[:, 1:] |= fire[:, :-1]
        near[:, :-1] |= fire[:, 1:]
        new = np.zeros_like(forest)
        new[(forest == 1) & ~near & (lightning[t] > 0.01)] = 1
        new[(forest == 1) & (near | (lightning[t] <= 0.01))] = 2
        new[(forest == 0) & (growth[t] < 0.05)] = 1
        forest = new
    return forest, (forest == 2).sum()


def prime_sieve(n):
    """The primes below n: slices of a table that decides for itself."""
    sieve = np.ones(n, dtype=bool)
    sieve[:2] = False
    for i in range(2, int(n**0.5) + 1):
        if sieve[i]:
            sieve[i * i :: i] = False
    return sieve


def life(n: int) -> tuple[Any, ...]:
    return np.random.default_rng(3).integers(0, 2, (n, n)), 5


def reaction(n: int) -> tuple[Any, ...]:
    U, V = np.zeros((n + 2, n + 2)), np.zeros((n + 2, n + 2))
    rng = np.random.default_rng(4)
    U[1:-1, 1:-1] = 1.0 + 0.02 * rng.normal(size=(n, n))
    V[1:-1, 1:-1] = 0.02 * rng.normal(size=(n, n))
    r = n // 4
    U[n // 2 - r : n // 2 + r, n // 2 - r : n // 2 + r] = 0.5
    V[n // 2 - r : n // 2 + r, n // 2 - r : n // 2 + r] = 0.25
    return U, V, 0.16, 0.08, 0.035, 0.065, 10


def forest(n: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(5)
    return rng.integers(0, 3, (n, n)), rng.random((4, n, n)), rng.random((4, n, n)), 4


CASES = [
    Case(game_of_life, life, 20, 1000, "Rougier, From Python to NumPy, 2017, 4.2"),
    Case(life_by_roll, life, 20, 1000, "Conway, 1970"),
    Case(gray_scott, reaction, 24, 1000, "Rougier, From Python to NumPy, 2017, 4.2; Pearson, 1993"),
    Case(
        mandelbrot_masks,
        lambda n: (-2.0, 0.5, -1.25, 1.25, n, n, 10),
        24,
        500,
        "Rougier, From Python to NumPy, 2017, 4.2",
        ulps=1e6,
    ),
    Case(julia, lambda n: (n, -0.4 + 0.6j, 10), 24, 500, "Julia, 1918"),
    Case(newton_fractal, lambda n: (n, 8), 24, 500, "Hubbard, Schleicher & Sutherland, 2001"),
    Case(forest_fire, forest, 20, 500, "Drossel & Schwabl, 1992"),
    Case(prime_sieve, lambda n: (n,), 200, 20_000, "Eratosthenes"),
]
