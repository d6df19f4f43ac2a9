"""Particles, spins and orbits."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import Case


def acceleration(pos, mass, G, softening):
    x, y, z = pos[:, 0:1], pos[:, 1:2], pos[:, 2:3]
    dx, dy, dz = x.T - x, y.T - y, z.T - z
    inv_r3 = dx**2 + dy**2 + dz**2 + softening**2
    inv_r3[inv_r3 > 0] = inv_r3[inv_r3 > 0] ** (-1.5)
    ax = G * (dx * inv_r3) @ mass
    ay = G * (dy * inv_r3) @ mass
    az = G * (dz * inv_r3) @ mass
    return np.hstack((ax, ay, az))


def energy(pos, vel, mass, G):
    kinetic = 0.5 * np.sum(np.sum(mass * vel**2))
    x, y, z = pos[:, 0:1], pos[:, 1:2], pos[:, 2:3]
    dx, dy, dz = x.T - x, y.T - y, z.T - z
    inv_r = np.sqrt(dx**2 + dy**2 + dz**2)
    inv_r[inv_r > 0] = 1.0 / inv_r[inv_r > 0]
    potential = G * np.sum(np.sum(np.triu(-(mass * mass.T) * inv_r, 1)))
    return kinetic, potential


def nbody(mass, pos, vel, steps, dt, G, softening):
    """Leapfrog with direct summation, the energies recorded."""
    vel -= np.mean(mass * vel, 0) / np.mean(mass)
    acc = acceleration(pos, mass, G, softening)
    KE = np.zeros(steps + 1)
    PE = np.zeros(steps + 1)
    KE[0], PE[0] = energy(pos, vel, mass, G)
    for i in range(steps):
        vel += acc * dt / 2.0
        pos += vel * dt
        acc = acceleration(pos, mass, G, softening)
        vel += acc * dt / 2.0
        KE[i + 1], PE[i + 1] = energy(pos, vel, mass, G)
    return KE, PE


def lorenz_rk4(state, dt, steps, sigma=10.0, rho=28.0, beta=8.0 / 3.0):
    """Many trajectories at once, by the classical Runge-Kutta method."""

    def slope(s):
        x, y, z = s
        return np.array([sigma * (y - x), x * (rho - z) - y, x * y - beta * z])

    path = np.empty((steps + 1, *state.shape))
    path[0] = state
    for n in range(steps):
        s = path[n]
        k1 = slope(s)
        k2 = slope(s + dt / 2 * k1)
        k3 = slope(s + dt / 2 * k2)
        k4 = slope(s + dt * k3)
        path[n + 1] = s + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return path


def ising(spins, uniforms, beta):
    """Metropolis sweeps on the two colours of a checkerboard, given uniform random numbers."""
    i, j = np.indices(spins.shape)
    for sweep in uniforms:
        for colour in (0, 1):
            around = np.roll(spins, 1, 0) + np.roll(spins, -1, 0) + np.roll(spins, 1, 1) + np.roll(spins, -1, 1)
            cost = 2 * spins * around
            flip = ((i + j) % 2 == colour) & (sweep < np.exp(-beta * cost))
            spins = np.where(flip, -spins, spins)
    return spins, np.abs(spins.mean())


def lennard_jones(pos, box):
    """Forces and energy of a periodic fluid."""
    delta = pos[:, None, :] - pos[None, :, :]
    delta -= box * np.round(delta / box)
    r2 = (delta**2).sum(axis=-1)
    np.fill_diagonal(r2, np.inf)
    inv6 = 1.0 / r2**3
    force = (24 * (2 * inv6**2 - inv6) / r2)[:, :, None] * delta
    return force.sum(axis=1), 2 * (inv6**2 - inv6).sum()


def boids(position, velocity, steps):
    """Separation, alignment and cohesion of a flock."""
    n = len(position)
    for _ in range(steps):
        dx = np.subtract.outer(position[:, 0], position[:, 0])
        dy = np.subtract.outer(position[:, 1], position[:, 1])
        distance = np.hypot(dx, dy)
        mask = (distance > 0) & (distance < 25)
        count = np.maximum(mask.sum(axis=1), 1).reshape(n, 1)
        target = np.dot(mask, velocity) / count
        centre = np.dot(mask, position) / count - position
        close = (distance > 0) & (distance < 10)
        repulsion = np.stack([np.where(close, dx, 0), np.where(close, dy, 0)], axis=-1).sum(axis=1)
        velocity = velocity + 0.1 * (target - velocity) + 0.01 * centre + 0.05 * repulsion
        norm = np.sqrt((velocity * velocity).sum(axis=1)).reshape(n, 1)
        np.multiply(velocity, 2 / norm, out=velocity, where=norm > 2)
        position = (position + velocity) % 100
    return position, velocity


def go_fast(a):
    trace = 0.0
    for i in range(a.shape[0]):
        trace += np.tanh(a[i, i])
    return a + trace


def galaxy(n: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(6)
    mass = 20.0 * np.ones((n, 1)) / n
    return mass, rng.normal(size=(n, 3)), rng.normal(size=(n, 3)), 3, 0.01, 1.0, 0.1


def trajectories(n: int) -> tuple[Any, ...]:
    return np.random.default_rng(7).normal(size=(3, n)) + 1, 0.01, 10


def magnet(n: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(8)
    return np.where(rng.random((n, n)) < 0.5, -1, 1), rng.random((3, n, n)), 0.44


def fluid(n: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(9)
    side = int(np.ceil(n ** (1 / 3)))
    grid = np.stack(np.meshgrid(*[np.arange(side)] * 3), -1).reshape(-1, 3)[:n] * 1.2
    return grid + 0.05 * rng.normal(size=(n, 3)), side * 1.2


def flock(n: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(10)
    return 100 * rng.random((n, 2)), rng.normal(size=(n, 2)), 3


CASES = [
    Case(nbody, galaxy, 12, 300, "Mocz, Create Your Own N-body Simulation (With Python), 2020", ulps=1e4),
    Case(lorenz_rk4, trajectories, 5, 100_000, "Lorenz, 1963"),
    Case(ising, magnet, 16, 1000, "Metropolis et al., 1953"),
    Case(lennard_jones, fluid, 12, 500, "Allen & Tildesley, 1987"),
    Case(boids, flock, 20, 500, "Reynolds, 1987; Rougier, From Python to NumPy, 2017, 5.2", ulps=1e4),
    Case(go_fast, lambda n: (np.random.default_rng(11).random((n, n)),), 12, 200, "numba's 5 minute guide"),
]
