"""Time steps on grids: slices shifted against each other."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import Case


def jacobi_1d(steps, A, B):
    for _ in range(1, steps):
        B[1:-1] = 0.33333 * (A[:-2] + A[1:-1] + A[2:])
        A[1:-1] = 0.33333 * (B[:-2] + B[1:-1] + B[2:])


def jacobi_2d(steps, A, B):
    for _ in range(1, steps):
        B[1:-1, 1:-1] = 0.2 * (A[1:-1, 1:-1] + A[1:-1, :-2] + A[1:-1, 2:] + A[2:, 1:-1] + A[:-2, 1:-1])
        A[1:-1, 1:-1] = 0.2 * (B[1:-1, 1:-1] + B[1:-1, :-2] + B[1:-1, 2:] + B[2:, 1:-1] + B[:-2, 1:-1])


def heat_2d(u, alpha, dt, dx, dy, steps):
    """Explicit Euler on a plate, as in introductory texts, with a fixed border."""
    u = u.copy()
    for _ in range(steps):
        un = u.copy()
        u[1:-1, 1:-1] = un[1:-1, 1:-1] + alpha * dt * (
            (un[2:, 1:-1] - 2 * un[1:-1, 1:-1] + un[:-2, 1:-1]) / dx**2
            + (un[1:-1, 2:] - 2 * un[1:-1, 1:-1] + un[1:-1, :-2]) / dy**2
        )
        u[0, :] = 1
        u[-1, :] = 1
        u[:, 0] = 1
        u[:, -1] = 1
    return u


def heat_3d(steps, A, B):
    def sweep(a):
        return (
            0.125 * (a[2:, 1:-1, 1:-1] - 2.0 * a[1:-1, 1:-1, 1:-1] + a[:-2, 1:-1, 1:-1])
            + 0.125 * (a[1:-1, 2:, 1:-1] - 2.0 * a[1:-1, 1:-1, 1:-1] + a[1:-1, :-2, 1:-1])
            + 0.125 * (a[1:-1, 1:-1, 2:] - 2.0 * a[1:-1, 1:-1, 1:-1] + a[1:-1, 1:-1, :-2])
            + a[1:-1, 1:-1, 1:-1]
        )

    for _ in range(1, steps):
        B[1:-1, 1:-1, 1:-1] = sweep(A)
        A[1:-1, 1:-1, 1:-1] = sweep(B)


def wave_2d(n, steps, c):
    """A membrane that is let go from a bump: second order in time, two fields swapped."""
    x = np.linspace(-1, 1, n)
    X, Y = np.meshgrid(x, x)
    u = np.exp(-20 * (X**2 + Y**2))
    u_old = u.copy()
    u_new = np.zeros_like(u)
    energy = np.empty(steps)
    for t in range(steps):
        laplacian = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1]
        u_new[1:-1, 1:-1] = 2 * u[1:-1, 1:-1] - u_old[1:-1, 1:-1] + c**2 * laplacian
        u_new[[0, -1], :] = 0
        u_new[:, [0, -1]] = 0
        energy[t] = np.sum((u_new - u) ** 2)
        u_old, u, u_new = u, u_new, u_old.copy()
    return u, energy


def advection_upwind(u, c, dt, dx, steps):
    for _ in range(steps):
        u[1:] = u[1:] - c * dt / dx * (u[1:] - u[:-1])
        u[0] = u[-1]
    return u


def burgers_1d(u, nu, dt, dx, steps):
    """Viscous Burgers with periodic ends."""
    for _ in range(steps):
        un = u.copy()
        u[1:-1] = (
            un[1:-1] - un[1:-1] * dt / dx * (un[1:-1] - un[:-2]) + nu * dt / dx**2 * (un[2:] - 2 * un[1:-1] + un[:-2])
        )
        u[0] = un[0] - un[0] * dt / dx * (un[0] - un[-2]) + nu * dt / dx**2 * (un[1] - 2 * un[0] + un[-2])
        u[-1] = u[0]
    return u


def laplace_relaxation(n, steps):
    """Laplace's equation in a box with one hot side."""
    T = np.zeros((n, n))
    T[0, :] = 100.0
    for _ in range(steps):
        T[1:-1, 1:-1] = 0.25 * (T[:-2, 1:-1] + T[2:, 1:-1] + T[1:-1, :-2] + T[1:-1, 2:])
    return T


def red_black(u, f, h, omega, steps):
    """Over-relaxation of Poisson's equation on the two colours of a checkerboard."""
    i, j = np.indices(u.shape)
    inside = (i > 0) & (i < u.shape[0] - 1) & (j > 0) & (j < u.shape[1] - 1)
    for _ in range(steps):
        for colour in (0, 1):
            mask = inside & ((i + j) % 2 == colour)
            padded = np.pad(u, 1)
            around = padded[:-2, 1:-1] + padded[2:, 1:-1] + padded[1:-1, :-2] + padded[1:-1, 2:]
            u = np.where(mask, (1 - omega) * u + omega * 0.25 * (around - h * h * f), u)
    return u


def pair(rank: int) -> Any:
    def make(n: int) -> tuple[Any, ...]:
        rng = np.random.default_rng(1)
        return 6, rng.random((n,) * rank), rng.random((n,) * rank)

    return make


def plate(n: int) -> tuple[Any, ...]:
    u = np.ones((n, n))
    u[n // 4 : n // 2, n // 4 : n // 2] = 2
    return u, 0.05, 0.2, 1.0, 1.25, 8


def line(n: int) -> tuple[Any, ...]:
    return np.where(np.arange(n) < n // 3, 2.0, 1.0), 1.0, 0.02, 0.05, 10


def burgers(n: int) -> tuple[Any, ...]:
    return 4 + np.sin(np.linspace(0, 2 * np.pi, n)), 0.07, 0.001, 0.02, 10


def poisson(n: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(2)
    return np.zeros((n, n)), rng.normal(size=(n, n)), 1.0 / n, 1.7, 4


CASES = [
    Case(jacobi_1d, pair(1), 60, 1_000_000, "PolyBench 4.2"),
    Case(jacobi_2d, pair(2), 20, 1000, "PolyBench 4.2"),
    Case(heat_2d, plate, 20, 1000, "Barba & Forsyth, CFD Python, step 7"),
    Case(heat_3d, pair(3), 9, 100, "PolyBench 4.2"),
    Case(wave_2d, lambda n: (n, 8, 0.5), 24, 1000, "Langtangen & Linge, Finite Difference Computing, 2017"),
    Case(advection_upwind, line, 50, 1_000_000, "Barba & Forsyth, CFD Python, step 1"),
    Case(burgers_1d, burgers, 50, 1_000_000, "Barba & Forsyth, CFD Python, step 4"),
    Case(laplace_relaxation, lambda n: (n, 10), 24, 1000, "Press et al., Numerical Recipes, 19.5"),
    Case(red_black, poisson, 20, 1000, "Young, 1954"),
]
