"""Prices and risks."""

# ruff: noqa: B905
from __future__ import annotations

from typing import Any

import numpy as np

from . import Case


def normal_cdf(x):
    """Abramowitz & Stegun 26.2.17."""
    k = 1.0 / (1.0 + 0.2316419 * np.abs(x))
    tail = ((((1.330274429 * k - 1.821255978) * k + 1.781477937) * k - 0.356563782) * k + 0.319381530) * k
    tail = tail * np.exp(-0.5 * x * x) / np.sqrt(2 * np.pi)
    return np.where(x >= 0, 1 - tail, tail)


def black_scholes(S, K, T, r, sigma):
    d1 = (np.log(S / K) + (r + 0.5 * sigma**2) * T) / (sigma * np.sqrt(T))
    d2 = d1 - sigma * np.sqrt(T)
    call = S * normal_cdf(d1) - K * np.exp(-r * T) * normal_cdf(d2)
    put = call - S + K * np.exp(-r * T)
    return {"call": call, "put": put, "delta": normal_cdf(d1)}


def asian_option(normals, S0, K, r, sigma, T):
    """The payoff of the mean of simulated paths, with its standard error."""
    paths, steps = normals.shape
    dt = T / steps
    increments = (r - 0.5 * sigma**2) * dt + sigma * np.sqrt(dt) * normals
    S = S0 * np.exp(np.cumsum(increments, axis=1))
    payoff = np.exp(-r * T) * np.maximum(S.mean(axis=1) - K, 0)
    return payoff.mean(), payoff.std(ddof=1) / np.sqrt(paths)


def binomial_american_put(S0, K, T, r, sigma, n):
    """Cox, Ross and Rubinstein's tree, walked backwards."""
    dt = T / n
    u = np.exp(sigma * np.sqrt(dt))
    d = 1 / u
    p = (np.exp(r * dt) - d) / (u - d)
    discount = np.exp(-r * dt)
    S = S0 * u ** np.arange(n, -n - 1, -2)
    V = np.maximum(K - S, 0)
    for _ in range(n - 1, -1, -1):
        S = S[:-1] * d
        V = discount * (p * V[:-1] + (1 - p) * V[1:])
        V = np.maximum(V, K - S)
    return V[0]


def heston_paths(S0, v0, kappa, theta, xi, rho, r, dt, z1, z2):
    """Full-truncation Euler for stochastic volatility, given normals."""
    S = np.full(z1.shape[1], S0)
    v = np.full(z1.shape[1], v0)
    for a, b in zip(z1, z2):
        w = rho * a + np.sqrt(1 - rho**2) * b
        vp = np.maximum(v, 0)
        S *= np.exp((r - 0.5 * vp) * dt + np.sqrt(vp * dt) * a)
        v += kappa * (theta - vp) * dt + xi * np.sqrt(vp * dt) * w
    return S, v


def portfolio_risk(returns, weights, level):
    """Mean and covariance, value at risk, expected shortfall, drawdown."""
    r = returns @ weights
    mean, cov = returns.mean(axis=0), np.cov(returns, rowvar=False)
    variance = weights @ cov @ weights
    var = -np.quantile(r, level)
    shortfall = -np.sum(np.where(r <= -var, r, 0)) / np.sum(r <= -var)
    wealth = np.cumprod(1 + r)
    drawdown = 1 - wealth / np.maximum.accumulate(wealth)
    return mean @ weights, np.sqrt(variance), var, shortfall, drawdown.max()


def implied_volatility(price, S, K, T, r, steps):
    """Newton's method on Black-Scholes for all options at once."""
    sigma = np.full_like(price, 0.3)
    for _ in range(steps):
        d1 = (np.log(S / K) + (r + sigma**2 / 2) * T) / (sigma * np.sqrt(T))
        value = S * normal_cdf(d1) - K * np.exp(-r * T) * normal_cdf(d1 - sigma * np.sqrt(T))
        vega = S * np.sqrt(T) * np.exp(-(d1**2) / 2) / np.sqrt(2 * np.pi)
        sigma -= (value - price) / vega
    return sigma


def moving_average_cross(prices, fast, slow):
    """A trading rule: long where the fast mean is above the slow one."""
    total = np.cumsum(np.insert(prices, 0, 0.0))
    quick = (total[fast:] - total[:-fast]) / fast
    lazy = (total[slow:] - total[:-slow]) / slow
    position = np.sign(quick[slow - fast :] - lazy)
    daily = np.diff(prices[slow - 1 :]) / prices[slow - 1 : -1]
    profit = position[:-1] * daily
    return np.prod(1 + profit) - 1, profit.std()


def options(n: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(13)
    return rng.uniform(10, 50, n), rng.uniform(10, 50, n), rng.uniform(1, 2, n), 0.02, 0.3


def quotes(n: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(14)
    S, K, T = rng.uniform(20, 30, n), rng.uniform(20, 30, n), rng.uniform(1, 2, n)
    return 0.4 * S * 0.25 * np.sqrt(T) + np.maximum(S - K, 0) * 0.6, S, K, T, 0.01, 4


def market(n: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(15)
    return 0.01 * rng.normal(size=(n, 8)) + 0.0005, np.full(8, 1 / 8), 0.05


def paths(n: int) -> tuple[Any, ...]:
    z = np.random.default_rng(16).normal(size=(2, 8, n))
    return 100.0, 0.04, 1.5, 0.04, 0.3, -0.7, 0.02, 0.05, z[0], z[1]


CASES = [
    Case(black_scholes, options, 50, 1_000_000, "Black & Scholes, 1973"),
    Case(
        asian_option,
        lambda n: (np.random.default_rng(17).normal(size=(n, 12)), 100.0, 100.0, 0.05, 0.2, 1.0),
        40,
        100_000,
        "Glasserman, Monte Carlo Methods in Financial Engineering, 2003",
    ),
    Case(
        binomial_american_put,
        lambda n: (100.0, 105.0, 1.0, 0.05, 0.2, n),
        20,
        200,
        "Cox, Ross & Rubinstein, 1979",
        ulps=256,
    ),
    Case(heston_paths, paths, 30, 500_000, "Heston, 1993; Lord, Koekkoek & van Dijk, 2010"),
    Case(portfolio_risk, market, 60, 100_000, "Markowitz, 1952"),
    Case(implied_volatility, quotes, 40, 500_000, "Manaster & Koehler, 1982", ulps=1e5),
    Case(
        moving_average_cross,
        lambda n: (100 * np.exp(np.cumsum(0.01 * np.random.default_rng(18).normal(size=n))), 5, 20),
        100,
        500_000,
        "Brock, Lakonishok & LeBaron, 1992",
    ),
]
