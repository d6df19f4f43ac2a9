"""The CPU workloads: arrays and the same arithmetic in the words of NumPy, numexpr and numba. Times nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

try:
    from numba import prange
except ImportError:
    prange = range


Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Workload:
    """`body(m, *arrays)` is the workload in NumPy's words, `m` the module that they come from.

    arrays: makes the arguments, with every side divided by `shrink`. library: the peers' own function of that name.
    numexpr: a formula over a, b (and at, a transposed); numba: a function of the arrays and of the outputs it fills;
    None where the peer cannot say it. call: what counts is the time of one small call, not the bandwidth.
    """

    name: str
    title: str
    arrays: Callable[[int], tuple[Array, ...]]
    body: Callable[..., Any]
    library: str | None = None
    numexpr: str | None = None
    numba: Callable[..., Any] | None = None
    call: bool = False


def words(module: Any, erf: Any) -> Any:
    """What the workloads call `m`: looked up once, so that a small call pays for no look-up of ours."""
    names = ("exp", "log", "sin", "sqrt")
    return SimpleNamespace(erf=erf, **{name: getattr(module, name) for name in names})


def uniform(*shape: int, low: float = 0.1, high: float = 2.0, seed: int = 0) -> Array:
    return np.random.default_rng(seed).uniform(low, high, shape).astype(np.float32)


def chain(m: Any, x: Any) -> Any:
    return m.exp(-(x * x)) * m.sin(x) + 0.5 * x


def chain_numba(x: Any, out: Any) -> None:
    for i in prange(x.size):
        out[i] = math.exp(-(x[i] * x[i])) * math.sin(x[i]) + np.float32(0.5) * x[i]


def softmax(m: Any, x: Any) -> Any:
    e = m.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def softmax_numba(x: Any, out: Any) -> None:
    for i in prange(x.shape[0]):
        top = x[i].max()
        total = np.float32(0)
        for j in range(x.shape[1]):
            out[i, j] = math.exp(x[i, j] - top)
            total += out[i, j]
        for j in range(x.shape[1]):
            out[i, j] /= total


def total(m: Any, x: Any) -> Any:
    return x.sum()


def total_numba(x: Any, out: Any) -> None:
    s = 0.0  # float64: one float32 stops growing at 2^25
    for i in prange(x.size):
        s += x[i]
    out[()] = s


def stencil(m: Any, u: Any) -> Any:
    return 0.6 * u[1:-1, 1:-1] + 0.1 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])


def stencil_numba(u: Any, out: Any) -> None:
    for i in prange(out.shape[0]):
        for j in range(out.shape[1]):
            around = u[i, j + 1] + u[i + 2, j + 1] + u[i + 1, j] + u[i + 1, j + 2]
            out[i, j] = np.float32(0.6) * u[i + 1, j + 1] + np.float32(0.1) * around


def transpose(m: Any, x: Any, y: Any) -> Any:
    return x.T + 2 * y


def transpose_numba(x: Any, y: Any, out: Any) -> None:
    for i in prange(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = x[j, i] + 2 * y[i, j]


def black_scholes(m: Any, spot: Any, strike: Any, years: Any) -> Any:
    d1 = (m.log(spot / strike) + (0.03 + 0.02) * years) / (0.2 * m.sqrt(years))
    d2 = d1 - 0.2 * m.sqrt(years)
    discounted = strike * m.exp(-0.03 * years)
    call = spot * (0.5 + 0.5 * m.erf(d1 * 0.5**0.5)) - discounted * (0.5 + 0.5 * m.erf(d2 * 0.5**0.5))
    return call, call - spot + discounted


def black_scholes_numba(spot: Any, strike: Any, years: Any, call: Any, put: Any) -> None:
    half, root = np.float32(0.5), np.float32(0.5**0.5)
    for i in prange(spot.size):
        spread = np.float32(0.2) * math.sqrt(years[i])
        d1 = (math.log(spot[i] / strike[i]) + np.float32(0.05) * years[i]) / spread
        discounted = strike[i] * math.exp(np.float32(-0.03) * years[i])
        n1, n2 = half + half * math.erf(d1 * root), half + half * math.erf((d1 - spread) * root)
        call[i] = spot[i] * n1 - discounted * n2
        put[i] = call[i] - spot[i] + discounted


CHAIN = "exp(-(a * a)) * sin(a) + 0.5 * a"


def vector(n: int, shrink: int) -> tuple[Array, ...]:
    return (uniform(max(16, n // shrink**2)),)


def square(rows: int, columns: int, shrink: int, count: int = 1) -> tuple[Array, ...]:
    return tuple(uniform(rows // shrink, columns // shrink, seed=seed) for seed in range(count))


def market(shrink: int) -> tuple[Array, ...]:
    n = 2**22 // shrink**2
    return uniform(n, low=20, high=200), uniform(n, low=20, high=200, seed=1), uniform(n, high=3, seed=2)


WORKLOADS = (
    Workload(
        "chain",
        "chain `exp(-(x*x))*sin(x) + 0.5*x`, 2^24 float32",
        partial(vector, 2**24),
        chain,
        numexpr=CHAIN,
        numba=chain_numba,
    ),
    Workload(
        "softmax",
        "row softmax, 4096 x 2048 float32",
        partial(square, 4096, 2048),
        softmax,
        library="softmax",
        numba=softmax_numba,
    ),
    Workload("sum", "sum, 2^26 float32", partial(vector, 2**26), total, numexpr="sum(a)", numba=total_numba),
    Workload(
        "stencil",
        "5-point stencil, 4096 x 4096 float32",
        partial(square, 4096, 4096),
        stencil,
        numba=stencil_numba,
    ),
    Workload(
        "transpose",
        "`x.T + 2*y`, 4096 x 4096 float32",
        partial(square, 4096, 4096, count=2),
        transpose,
        numexpr="at + 2 * b",
        numba=transpose_numba,
    ),
    Workload(
        "black-scholes", "Black-Scholes, 3 in 2 out, 2^22 float32", market, black_scholes, numba=black_scholes_numba
    ),
    *(
        Workload(
            f"call-{n}",
            f"one call: the chain on {n} float32",
            lambda shrink, n=n: (uniform(n),),
            chain,
            numexpr=CHAIN,
            numba=chain_numba,
            call=True,
        )
        for n in (4096, 1024, 16)
    ),
)
