"""Fluids: the Navier-Stokes equations on grids, the Euler equations in volumes, lattice gases."""

# ruff: noqa: B905
from __future__ import annotations

from typing import Any

import numpy as np

from . import Case


def build_up_b(b, rho, dt, u, v, dx, dy):
    b[1:-1, 1:-1] = rho * (
        1 / dt * ((u[1:-1, 2:] - u[1:-1, 0:-2]) / (2 * dx) + (v[2:, 1:-1] - v[0:-2, 1:-1]) / (2 * dy))
        - ((u[1:-1, 2:] - u[1:-1, 0:-2]) / (2 * dx)) ** 2
        - 2 * ((u[2:, 1:-1] - u[0:-2, 1:-1]) / (2 * dy) * (v[1:-1, 2:] - v[1:-1, 0:-2]) / (2 * dx))
        - ((v[2:, 1:-1] - v[0:-2, 1:-1]) / (2 * dy)) ** 2
    )


def pressure_poisson(nit, p, dx, dy, b):
    pn = np.empty_like(p)
    pn = p.copy()
    for _ in range(nit):
        pn = p.copy()
        p[1:-1, 1:-1] = ((pn[1:-1, 2:] + pn[1:-1, 0:-2]) * dy**2 + (pn[2:, 1:-1] + pn[0:-2, 1:-1]) * dx**2) / (
            2 * (dx**2 + dy**2)
        ) - dx**2 * dy**2 / (2 * (dx**2 + dy**2)) * b[1:-1, 1:-1]
        p[:, -1] = p[:, -2]
        p[0, :] = p[1, :]
        p[:, 0] = p[:, 1]
        p[-1, :] = 0


def cavity_flow(ny, nx, nt, nit, u, v, dt, dx, dy, p, rho, nu):
    """A lid that drags the fluid in a box along."""
    b = np.zeros((ny, nx))
    for _ in range(nt):
        un = u.copy()
        vn = v.copy()
        build_up_b(b, rho, dt, u, v, dx, dy)
        pressure_poisson(nit, p, dx, dy, b)
        u[1:-1, 1:-1] = (
            un[1:-1, 1:-1]
            - un[1:-1, 1:-1] * dt / dx * (un[1:-1, 1:-1] - un[1:-1, 0:-2])
            - vn[1:-1, 1:-1] * dt / dy * (un[1:-1, 1:-1] - un[0:-2, 1:-1])
            - dt / (2 * rho * dx) * (p[1:-1, 2:] - p[1:-1, 0:-2])
            + nu
            * (
                dt / dx**2 * (un[1:-1, 2:] - 2 * un[1:-1, 1:-1] + un[1:-1, 0:-2])
                + dt / dy**2 * (un[2:, 1:-1] - 2 * un[1:-1, 1:-1] + un[0:-2, 1:-1])
            )
        )
        v[1:-1, 1:-1] = (
            vn[1:-1, 1:-1]
            - un[1:-1, 1:-1] * dt / dx * (vn[1:-1, 1:-1] - vn[1:-1, 0:-2])
            - vn[1:-1, 1:-1] * dt / dy * (vn[1:-1, 1:-1] - vn[0:-2, 1:-1])
            - dt / (2 * rho * dy) * (p[2:, 1:-1] - p[0:-2, 1:-1])
            + nu
            * (
                dt / dx**2 * (vn[1:-1, 2:] - 2 * vn[1:-1, 1:-1] + vn[1:-1, 0:-2])
                + dt / dy**2 * (vn[2:, 1:-1] - 2 * vn[1:-1, 1:-1] + vn[0:-2, 1:-1])
            )
        )
        u[0, :] = 0
        u[:, 0] = 0
        u[:, -1] = 0
        u[-1, :] = 1
        v[0, :] = 0
        v[-1, :] = 0
        v[:, 0] = 0
        v[:, -1] = 0


def channel_flow(nit, u, v, dt, dx, dy, p, rho, nu, F, tolerance):
    """A periodic channel, driven until the mean speed no longer changes."""

    def across(q):  # the neighbours in x, which is periodic
        return np.roll(q, 1, axis=1), np.roll(q, -1, axis=1)

    udiff = 1.0
    stepcount = 0
    while udiff > tolerance:
        un = u.copy()
        vn = v.copy()
        uw, ue = across(un)
        vw, ve = across(vn)
        b = np.zeros_like(u)
        b[1:-1] = rho * (
            1 / dt * ((ue[1:-1] - uw[1:-1]) / (2 * dx) + (vn[2:] - vn[:-2]) / (2 * dy))
            - ((ue[1:-1] - uw[1:-1]) / (2 * dx)) ** 2
            - 2 * ((un[2:] - un[:-2]) / (2 * dy) * (ve[1:-1] - vw[1:-1]) / (2 * dx))
            - ((vn[2:] - vn[:-2]) / (2 * dy)) ** 2
        )
        for _ in range(nit):
            pn = p.copy()
            pw, pe = across(pn)
            p[1:-1] = ((pe[1:-1] + pw[1:-1]) * dy**2 + (pn[2:] + pn[:-2]) * dx**2) / (2 * (dx**2 + dy**2)) - (
                dx**2 * dy**2 / (2 * (dx**2 + dy**2)) * b[1:-1]
            )
            p[-1, :] = p[-2, :]
            p[0, :] = p[1, :]
        pw, pe = across(p)
        u[1:-1] = (
            un[1:-1]
            - un[1:-1] * dt / dx * (un[1:-1] - uw[1:-1])
            - vn[1:-1] * dt / dy * (un[1:-1] - un[:-2])
            - dt / (2 * rho * dx) * (pe[1:-1] - pw[1:-1])
            + nu * (dt / dx**2 * (ue[1:-1] - 2 * un[1:-1] + uw[1:-1]) + dt / dy**2 * (un[2:] - 2 * un[1:-1] + un[:-2]))
            + F * dt
        )
        v[1:-1] = (
            vn[1:-1]
            - un[1:-1] * dt / dx * (vn[1:-1] - vw[1:-1])
            - vn[1:-1] * dt / dy * (vn[1:-1] - vn[:-2])
            - dt / (2 * rho * dy) * (p[2:] - p[:-2])
            + nu * (dt / dx**2 * (ve[1:-1] - 2 * vn[1:-1] + vw[1:-1]) + dt / dy**2 * (vn[2:] - 2 * vn[1:-1] + vn[:-2]))
        )
        u[0, :] = 0
        u[-1, :] = 0
        v[0, :] = 0
        v[-1, :] = 0
        udiff = (np.sum(u) - np.sum(un)) / np.sum(u)
        stepcount += 1
    return stepcount


def lattice_boltzmann(F, cylinder, tau, steps):
    """Flow past a cylinder on nine velocities: drift, collision, and reflection at the boundary."""
    idxs = np.arange(9)
    cxs = np.array([0, 0, 1, 1, 1, 0, -1, -1, -1])
    cys = np.array([0, 1, 1, 0, -1, -1, -1, 0, 1])
    weights = np.array([4 / 9, 1 / 9, 1 / 36, 1 / 9, 1 / 36, 1 / 9, 1 / 36, 1 / 9, 1 / 36])
    for _ in range(steps):
        for i, cx, cy in zip(idxs, cxs, cys):
            F[:, :, i] = np.roll(F[:, :, i], cx, axis=1)
            F[:, :, i] = np.roll(F[:, :, i], cy, axis=0)
        bounced = F[:, :, [0, 5, 6, 7, 8, 1, 2, 3, 4]]
        rho = np.sum(F, 2)
        ux = np.sum(F * cxs, 2) / rho
        uy = np.sum(F * cys, 2) / rho
        Feq = np.zeros(F.shape)
        for i, cx, cy, w in zip(idxs, cxs, cys, weights):
            Feq[:, :, i] = (
                rho * w * (1 + 3 * (cx * ux + cy * uy) + 9 * (cx * ux + cy * uy) ** 2 / 2 - 3 * (ux**2 + uy**2) / 2)
            )
        F += -(1.0 / tau) * (F - Feq)
        F = np.where(cylinder[:, :, None], bounced, F)
    return F


def euler_2d(rho, vx, vy, P, dx, dt, gamma, steps):
    """Finite volumes for the Euler equations with a Rusanov flux, second order in space."""
    R, L = -1, 1

    def gradient(f):
        return (np.roll(f, R, 0) - np.roll(f, L, 0)) / (2 * dx), (np.roll(f, R, 1) - np.roll(f, L, 1)) / (2 * dx)

    def extrapolate(f, f_dx, f_dy):
        XL, XR = np.roll(f - f_dx * dx / 2, R, 0), f + f_dx * dx / 2
        YL, YR = np.roll(f - f_dy * dx / 2, R, 1), f + f_dy * dx / 2
        return XL, XR, YL, YR

    def flux(rL, rR, vxL, vxR, vyL, vyR, pL, pR):
        eL = pL / (gamma - 1) + 0.5 * rL * (vxL**2 + vyL**2)
        eR = pR / (gamma - 1) + 0.5 * rR * (vxR**2 + vyR**2)
        r = 0.5 * (rL + rR)
        mx = 0.5 * (rL * vxL + rR * vxR)
        my = 0.5 * (rL * vyL + rR * vyR)
        e = 0.5 * (eL + eR)
        p = (gamma - 1) * (e - 0.5 * (mx**2 + my**2) / r)
        C = np.maximum(np.sqrt(gamma * pL / rL) + np.abs(vxL), np.sqrt(gamma * pR / rR) + np.abs(vxR))
        return (
            mx - C * 0.5 * (rL - rR),
            mx**2 / r + p - C * 0.5 * (rL * vxL - rR * vxR),
            mx * my / r - C * 0.5 * (rL * vyL - rR * vyR),
            (e + p) * mx / r - C * 0.5 * (eL - eR),
        )

    def apply(F, fX, fY):
        F = F + -dt * dx * fX
        F += dt * dx * np.roll(fX, L, 0)
        F += -dt * dx * fY
        F += dt * dx * np.roll(fY, L, 1)
        return F

    vol = dx**2
    mass, momx, momy = rho * vol, rho * vx * vol, rho * vy * vol
    energy = (P / (gamma - 1) + 0.5 * rho * (vx**2 + vy**2)) * vol
    for _ in range(steps):
        rho = mass / vol
        vx, vy = momx / rho / vol, momy / rho / vol
        P = (energy / vol - 0.5 * rho * (vx**2 + vy**2)) * (gamma - 1)
        faces = [extrapolate(q, *gradient(q)) for q in (rho, vx, vy, P)]
        (rXL, rXR, rYL, rYR), (uXL, uXR, uYL, uYR), (wXL, wXR, wYL, wYR), (pXL, pXR, pYL, pYR) = faces
        fx = flux(rXL, rXR, uXL, uXR, wXL, wXR, pXL, pXR)
        g0, g2, g1, g3 = flux(rYL, rYR, wYL, wYR, uYL, uYR, pYL, pYR)
        mass, momx, momy, energy = (apply(q, a, b) for q, a, b in zip((mass, momx, momy, energy), fx, (g0, g1, g2, g3)))
    return mass / vol, momx, momy, energy


def shallow_water(h, u, v, dt, dx, g, steps):
    """Lax-Friedrichs steps of the shallow water equations in conservative form."""
    U = np.array([h, h * u, h * v])
    for _ in range(steps):
        h, hu, hv = U
        F = np.array([hu, hu**2 / h + 0.5 * g * h**2, hu * hv / h])
        G = np.array([hv, hu * hv / h, hv**2 / h + 0.5 * g * h**2])
        mean = 0.25 * (np.roll(U, 1, 1) + np.roll(U, -1, 1) + np.roll(U, 1, 2) + np.roll(U, -1, 2))
        U = mean - dt / (2 * dx) * (np.roll(F, -1, 1) - np.roll(F, 1, 1) + np.roll(G, -1, 2) - np.roll(G, 1, 2))
    return U


def box(n: int) -> tuple[Any, ...]:
    dx = 2 / (n - 1)
    return n, n, 4, 5, np.zeros((n, n)), np.zeros((n, n)), 0.1 / n**2, dx, dx, np.zeros((n, n)), 1.0, 0.1


def channel(n: int) -> tuple[Any, ...]:
    dx = 2 / (n - 1)
    fields = [np.zeros((n, n)) for _ in range(3)]
    return 5, fields[0], fields[1], 0.05 / n, dx, dx, fields[2], 1.0, 0.1, 1.0, 0.1


def wind(n: int) -> tuple[Any, ...]:
    Ny, Nx = n // 2, n
    rng = np.random.default_rng(12)
    F = np.ones((Ny, Nx, 9)) + 0.01 * rng.normal(size=(Ny, Nx, 9))
    X, Y = np.meshgrid(range(Nx), range(Ny))
    F[:, :, 3] += 2 * (1 + 0.2 * np.cos(2 * np.pi * X / Nx * 4))
    F *= 100 / F.sum(2, keepdims=True)
    return F, (X - Nx / 4) ** 2 + (Y - Ny / 2) ** 2 < (Ny / 4) ** 2, 0.6, 3


def shear(n: int) -> tuple[Any, ...]:
    x = np.linspace(0, 1, n, endpoint=False) + 0.5 / n
    Y, X = np.meshgrid(x, x)
    layer = (np.abs(Y - 0.5) < 0.25).astype(float)
    vy = 0.1 * np.sin(4 * np.pi * X) * (np.exp(-((Y - 0.25) ** 2) / 0.005) + np.exp(-((Y - 0.75) ** 2) / 0.005))
    return 1.0 + layer, -0.5 + layer, vy, 2.5 * np.ones_like(X), 1 / n, 0.1 / n, 5 / 3, 3


def pond(n: int) -> tuple[Any, ...]:
    x = np.linspace(-1, 1, n)
    X, Y = np.meshgrid(x, x)
    return 1 + 0.3 * np.exp(-20 * (X**2 + Y**2)), np.zeros((n, n)), np.zeros((n, n)), 0.2 / n, 2 / n, 9.81, 6


CASES = [
    Case(cavity_flow, box, 16, 500, "Barba & Forsyth, CFD Python, step 11", ulps=1e4),
    Case(channel_flow, channel, 12, 200, "Barba & Forsyth, CFD Python, step 12", decides=True, ulps=1e4),
    Case(lattice_boltzmann, wind, 24, 400, "Mocz, Create Your Own Lattice Boltzmann Simulation, 2020"),
    Case(euler_2d, shear, 16, 500, "Mocz, Create Your Own Finite Volume Fluid Simulation, 2021", ulps=1e4),
    Case(shallow_water, pond, 16, 500, "Lax, 1954"),
]
