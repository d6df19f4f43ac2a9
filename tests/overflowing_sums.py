"""Reductions of numbers whose partial sums or products overflow, in every layout, beside NumPy.

python -m tests.overflowing_sums [--count N] [--seed S]

`wrong` is what is infinite or NaN where NumPy's result is finite, or further from it than sums of other orders are.
Longer products are cut into parts, and not here.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import kernelgraph as kg

SHORT = (*range(1, 71), 127, 128, 129)
LONG = (1000, 4097, 70_001, (1 << 17) + 3)
DTYPES = ("f2", "f4", "f8", "c8", "c16")

# each takes x and a mask of its shape
REDUCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda x, m: x.sum(),
    "sum last": lambda x, m: x.sum(axis=-1),
    "sum first": lambda x, m: np.sum(x, axis=0, keepdims=True),
    "sum where": lambda x, m: np.sum(x, where=m, initial=3.0),
    "sum initial": lambda x, m: np.sum(x, axis=0, initial=-x.flat[0]),
    "sum initial, where": lambda x, m: np.sum(x, axis=-1, where=m, initial=-np.finfo(x.dtype).max, keepdims=True),
    "prod initial": lambda x, m: np.prod(x[:1000], axis=0, initial=1e-3),
    "prod initial, where": lambda x, m: np.multiply.reduce(x.real[:1000], axis=0, where=m[:1000], initial=2.0),
    "reduce": lambda x, m: np.add.reduce(x),
    "nansum": lambda x, m: np.nansum(x, axis=-1),
    "mean": lambda x, m: x.mean(axis=0),
    "mean all": lambda x, m: np.mean(x),
    "var": lambda x, m: np.var(x * x.dtype.type(1e-3), axis=-1),
    "std": lambda x, m: np.std(x),
    "average": lambda x, m: np.average(x, axis=-1),
    "fused": lambda x, m: (np.where(m, -x, x) + 1).sum(axis=-1),
    "two": lambda x, m: (x.sum(axis=-1), np.abs(x).max(axis=-1), (-x).sum(axis=-1)),
    "after": lambda x, m: x - x.mean(axis=-1, keepdims=True),
    "stored": lambda x, m: (x * 1, (x * 1).sum(axis=-1)),
    "dot": lambda x, m: np.dot(x.ravel(), np.where(m, x.dtype.type(1), x.dtype.type(-1)).ravel()),
    "einsum": lambda x, m: np.einsum("...i->...", x),
    "cumsum": lambda x, m: np.cumsum(x),
    "norm": lambda x, m: np.linalg.norm(x, axis=-1, ord=1),
    "logaddexp": lambda x, m: np.logaddexp.reduce(x.real, axis=-1),
    "prod last": lambda x, m: x[..., :1000].prod(axis=-1),
    "prod first": lambda x, m: x[:1000].prod(axis=0),
    "nanprod": lambda x, m: np.nanprod(x[..., :1000], axis=-1),
}
COMPILED = {name: kg.kernel_graph(function, device="cpu") for name, function in REDUCTIONS.items()}


def numbers(rng: np.random.Generator, n: int, big: float) -> Any:
    """Numbers of which some are as large as can be, in patterns that cancel."""
    way = rng.integers(7)
    x = rng.standard_normal(n)
    if way == 0:
        return np.where(np.arange(n) % 2 == 0, big, -big)
    if way == 1:
        return np.where(rng.random(n) < 0.2, rng.choice([big, -big], n), x)
    if way == 2:  # a few, far apart
        places = np.sort(rng.choice(n, min(n, int(rng.integers(2, 9))), replace=False))
        x[places] = np.where(np.arange(len(places)) % 2 == 0, big, -big)
        return x
    if way == 3:
        return np.exp(rng.uniform(-0.6, 0.6, n) * np.log(big))
    if way == 4:
        return np.repeat(rng.choice([big, -big, 0.0], n), rng.integers(1, 5))[:n]
    if way == 5:
        return rng.choice([big, -big, big / 3, -big / 3, big / 1.8, 1.0], n)
    x[rng.integers(0, n)] = rng.choice([np.inf, -np.inf, np.nan, big])
    return x


def laid_out(rng: np.random.Generator, x: Any) -> Any:
    """The same values in another layout of memory."""
    way = rng.integers(5)
    if way == 0:
        return np.asfortranarray(x)
    if way == 1:
        return x[..., ::-1].copy()[..., ::-1]
    if way == 2:
        wide = np.zeros((*x.shape, 2), x.dtype)
        wide[..., 0] = x
        return wide[..., 0]
    return x


def case(seed: str) -> tuple[str, Any, Any]:
    pick = random.Random(seed)
    rng = np.random.default_rng(pick.getrandbits(64))
    n = pick.choice(SHORT) if pick.random() < 0.8 else pick.choice(LONG)
    dtype = pick.choice(DTYPES)
    info = np.finfo(dtype)
    values = numbers(rng, n, float(info.max) * pick.choice((1.0, 0.9, 0.55, 0.3)))
    if dtype[0] == "c":
        values = np.stack([values, np.roll(values, 1)], -1).view(complex)[..., 0]
    rows = pick.choice((None, None, 2, 3, 7, 40))
    if rows and n < 1000:
        values = np.stack([np.roll(values, k) for k in range(rows)], pick.choice((0, 1)))
    with np.errstate(over="ignore"):
        x = laid_out(rng, values.astype(dtype))
    return pick.choice(sorted(REDUCTIONS)), x, rng.random(x.shape) < 0.8


def judge(name: str, x: Any, m: Any) -> str:
    """What is wrong, if anything is."""
    with np.errstate(all="ignore"):
        expected = REDUCTIONS[name](x.copy(order="K"), m)
    found = COMPILED[name](x, m)
    for a, b in zip(*(v if isinstance(v, tuple) else (v,) for v in (expected, found)), strict=True):
        p, q = (np.ascontiguousarray(v).reshape(-1) for v in (a, b))
        p, q = p.view(p.real.dtype), q.view(q.real.dtype)
        lost = np.isfinite(p) & ~np.isfinite(q)
        if "prod" not in name:  # underflow, and a product of other factors, is NumPy's order of them
            with np.errstate(all="ignore"):
                size = float(np.abs(x[np.isfinite(x)].astype(complex)).sum(dtype=np.longdouble)) or 1.0
                size = np.abs(p.astype("g")) + size * max(1, x.size**0.5)
                both = np.isfinite(p) & np.isfinite(q)
                lost |= both & (np.abs(p.astype("g") - q.astype("g")) > 64 * np.finfo(p.dtype).eps * size)
        if lost.any():
            k = int(np.flatnonzero(lost)[0])
            return f"{name} of {x.dtype}{x.shape}, strides {x.strides}: {lost.sum()} wrong; NumPy {p[k]}, got {q[k]}"
    return ""


def run(count: int, seed: int = 0) -> list[str]:
    every = (f"{seed} {i}" for i in range(count))
    return [f"{key}: {why}" for key in every if (why := judge(*case(key)))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    wrong = run(options.count, options.seed)
    print(*wrong, sep="\n")
    print(f"seed {options.seed}: {options.count} reductions, {len(wrong)} wrong")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
