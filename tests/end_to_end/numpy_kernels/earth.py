"""Weather and the globe."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import Case


def haversine(lat1, lon1, lat2, lon2):
    """Great-circle distance in km, of angles in degrees."""
    lat1, lon1, lat2, lon2 = map(np.radians, (lat1, lon1, lat2, lon2))
    a = np.sin((lat2 - lat1) / 2) ** 2 + np.cos(lat1) * np.cos(lat2) * np.sin((lon2 - lon1) / 2) ** 2
    return 2 * 6371.0 * np.arcsin(np.sqrt(a))


def arc_distance(theta_1, phi_1, theta_2, phi_2):
    """Between all pairs of points."""
    temp = np.sin((theta_2 - theta_1) / 2) ** 2 + np.cos(theta_1) * np.cos(theta_2) * np.sin((phi_2 - phi_1) / 2) ** 2
    return 2 * np.arctan2(np.sqrt(temp), np.sqrt(1 - temp))


def hdiff(in_field, out_field, coeff):
    """Horizontal diffusion of a weather model, with a flux limiter."""
    I, J = out_field.shape[0], out_field.shape[1]  # noqa: E741
    lap_field = 4.0 * in_field[1 : I + 3, 1 : J + 3, :] - (
        in_field[2 : I + 4, 1 : J + 3, :]
        + in_field[0 : I + 2, 1 : J + 3, :]
        + in_field[1 : I + 3, 2 : J + 4, :]
        + in_field[1 : I + 3, 0 : J + 2, :]
    )
    res = lap_field[1:, 1 : J + 1, :] - lap_field[:-1, 1 : J + 1, :]
    flx_field = np.where((res * (in_field[2 : I + 3, 2 : J + 2, :] - in_field[1 : I + 2, 2 : J + 2, :])) > 0, 0, res)
    res = lap_field[1 : I + 1, 1:, :] - lap_field[1 : I + 1, :-1, :]
    fly_field = np.where((res * (in_field[2 : I + 2, 2 : J + 3, :] - in_field[2 : I + 2, 1 : J + 2, :])) > 0, 0, res)
    out_field[:, :, :] = in_field[2 : I + 2, 2 : J + 2, :] - coeff[:, :, :] * (
        flx_field[1:, :, :] - flx_field[:-1, :, :] + fly_field[:, 1:, :] - fly_field[:, :-1, :]
    )


def vadv(utens_stage, u_stage, wcon, u_pos, utens, dtr_stage):
    """Vertical advection of a weather model: a tridiagonal solve up and down each column."""
    I, J, K = utens_stage.shape  # noqa: E741
    bet_m, bet_p = 0.5 * (1.0 - 0.1), 0.5 * (1.0 + 0.1)
    ccol = np.zeros((I, J, K), dtype=utens_stage.dtype)
    dcol = np.zeros((I, J, K), dtype=utens_stage.dtype)
    data_col = np.zeros((I, J), dtype=utens_stage.dtype)
    for k in range(K):
        acol = np.zeros((I, J))
        correction = np.zeros((I, J))
        upper = np.zeros((I, J))
        if k > 0:
            gav = -0.25 * (wcon[1:, :, k] + wcon[:-1, :, k])
            acol = gav * bet_p
            correction = correction - gav * bet_m * (u_stage[:, :, k - 1] - u_stage[:, :, k])
        if k < K - 1:
            gcv = 0.25 * (wcon[1:, :, k + 1] + wcon[:-1, :, k + 1])
            upper = gcv * bet_p
            correction = correction - gcv * bet_m * (u_stage[:, :, k + 1] - u_stage[:, :, k])
        bcol = dtr_stage - acol - upper
        d = dtr_stage * u_pos[:, :, k] + utens[:, :, k] + utens_stage[:, :, k] + correction
        if k == 0:
            divided = 1.0 / bcol
            ccol[:, :, k] = upper * divided
            dcol[:, :, k] = d * divided
        else:
            divided = 1.0 / (bcol - ccol[:, :, k - 1] * acol)
            ccol[:, :, k] = upper * divided
            dcol[:, :, k] = (d - dcol[:, :, k - 1] * acol) * divided
    for k in range(K - 1, -1, -1):
        datacol = dcol[:, :, k]
        data_col[:] = datacol if k == K - 1 else datacol - ccol[:, :, k] * data_col[:, :]
        utens_stage[:, :, k] = dtr_stage * (data_col - u_pos[:, :, k])


def lorenz_96(x, forcing, dt, steps):
    """A ring of latitude, by Runge-Kutta steps."""

    def slope(x):
        return (np.roll(x, -1, -1) - np.roll(x, 2, -1)) * np.roll(x, 1, -1) - x + forcing

    for _ in range(steps):
        k1 = slope(x)
        k2 = slope(x + dt / 2 * k1)
        k3 = slope(x + dt / 2 * k2)
        k4 = slope(x + dt * k3)
        x = x + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return x


def hillshade(dem, cell, azimuth, altitude):
    """Relief of a terrain under the sun."""
    dy, dx = np.gradient(dem, cell)
    slope = np.pi / 2 - np.arctan(np.hypot(dx, dy))
    aspect = np.arctan2(-dx, dy)
    az, alt = np.radians(360 - azimuth + 90), np.radians(altitude)
    shaded = np.sin(alt) * np.sin(slope) + np.cos(alt) * np.cos(slope) * np.cos(az - np.pi / 2 - aspect)
    return (255 * (shaded + 1) / 2).astype(np.uint8)


def thornthwaite(temperature, daylight):
    """Potential evapotranspiration from monthly means of many stations."""
    t = np.maximum(temperature, 0)
    heat = ((t / 5) ** 1.514).sum(axis=1, keepdims=True)
    a = 6.75e-7 * heat**3 - 7.71e-5 * heat**2 + 1.792e-2 * heat + 0.49239
    pet = 16 * (10 * t / heat) ** a
    hot = t > 26.5
    pet[hot] = -415.85 + 32.24 * t[hot] - 0.43 * t[hot] ** 2
    return pet * daylight / 12


def seasonal_anomaly(field):
    """Monthly means taken out of years of maps, the trend fitted."""
    years = field.reshape(-1, 12, *field.shape[1:])
    anomaly = (years - years.mean(axis=0)).reshape(field.shape)
    t = np.arange(len(field)) - (len(field) - 1) / 2
    trend = np.tensordot(t, anomaly, axes=(0, 0)) / (t @ t)
    return anomaly - t[:, None, None] * trend, trend


def places(n: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(42)
    return rng.uniform(-80, 80, n), rng.uniform(-180, 180, n), rng.uniform(-80, 80, n), rng.uniform(-180, 180, n)


def angles(n: int) -> tuple[Any, ...]:
    return tuple(np.random.default_rng(43).random((4, n)))


def layers(n: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(44)
    return rng.random((n + 4, n + 4, 5)), np.zeros((n, n, 5)), rng.random((n, n, 5))


def columns(n: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(45)
    shape = (n, n, 6)
    return (
        rng.random(shape),
        rng.random(shape),
        rng.random((n + 1, n, 6)),
        rng.random(shape),
        rng.random(shape),
        3.0 / 20.0,
    )


def terrain(n: int) -> tuple[Any, ...]:
    x = np.linspace(0, 5, n)
    return 100 * np.sin(x)[:, None] * np.cos(x), 10.0, 315.0, 45.0


def stations(n: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(46)
    return rng.uniform(-5, 32, (n, 12)), rng.uniform(8, 16, (n, 12))


def maps(n: int) -> tuple[Any, ...]:
    return (np.random.default_rng(47).normal(size=(36, n, n)),)


CASES = [
    Case(haversine, places, 50, 1_000_000, "Sinnott, 1984"),
    Case(arc_distance, angles, 50, 1_000_000, "NPBench"),
    Case(hdiff, layers, 10, 200, "NPBench; COSMO"),
    Case(vadv, columns, 8, 100, "NPBench; COSMO", ulps=1e3),
    Case(
        lorenz_96,
        lambda n: (8 + np.random.default_rng(48).normal(size=(n, 40)), 8.0, 0.01, 3),
        4,
        20_000,
        "Lorenz, 1996",
    ),
    Case(hillshade, terrain, 20, 1000, "Horn, 1981"),
    Case(thornthwaite, stations, 20, 50_000, "Thornthwaite, 1948"),
    Case(seasonal_anomaly, maps, 8, 100, "von Storch & Zwiers, 1999"),
]
