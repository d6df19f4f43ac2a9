"""Gradients on the CPU beside JAX: milliseconds of a value and of a value with its gradient, and what compiling takes.

    python benchmarks/gradients.py [--seconds 1] [--only stencil mlp]

JAX is timed with `block_until_ready`; ours with results that are there when a call returns. The workloads are those of
GradBench (logsumexp, GMM, k-means) and others that are common; `ratio` is both by value. `planning` is tracing,
deriving, fusing and scheduling of the gradient by that of the value, without making machine code.
"""

# ruff: noqa: E402
from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from common import machine, pin

PARSER = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
PARSER.add_argument("--seconds", type=float, default=1.0, help="time for each function")
PARSER.add_argument("--only", nargs="*", default=(), help="names of workloads")
PARSER.add_argument("--threads", type=int, default=2)
OPTIONS = PARSER.parse_args()
pin(OPTIONS.threads)

import importlib
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import kernelgraph as kg

try:
    jax = importlib.import_module("jax")
    jax.config.update("jax_enable_x64", True)
except ImportError:
    jax = None

RNG = np.random.default_rng(0)


def normal(*shape: int, dtype: Any = np.float32) -> Any:
    return RNG.normal(size=shape).astype(dtype)


# (name, function of a namespace that gives the function, arguments; the first is differentiated)


def logsumexp(xp: Any) -> Callable[..., Any]:
    def f(x: Any) -> Any:
        m = x.max()
        return m + xp.log(xp.exp(x - m).sum())

    return f


def chain(xp: Any) -> Callable[..., Any]:
    return lambda x: (xp.exp(-(x * x)) * xp.sin(x) + 0.5 * x).sum()


def erf_of(xp: Any) -> Any:
    return kg.erf if xp is np else jax.scipy.special.erf  # type: ignore[union-attr]


def black_scholes(xp: Any) -> Callable[..., Any]:
    def f(p: Any, k: Any) -> Any:
        s, v, r, t = p
        root = v * xp.sqrt(t)
        d = (xp.log(s / k) + (r + v * v / 2) * t) / root

        def normal(x: Any) -> Any:
            return 0.5 * (1 + erf_of(xp)(x * math.sqrt(0.5)))

        return (s * normal(d) - k * xp.exp(-r * t) * normal(d - root)).sum()

    return f


def gmm(xp: Any) -> Callable[..., Any]:
    """GradBench's, of a diagonal and a lower triangle as in ADBench, without the constant terms."""

    def f(p: Any, x: Any) -> Any:
        alphas, means, q, lower = p
        n = len(x)
        centred = x[:, None, :] - means
        scaled = xp.exp(q) * centred + xp.einsum("kij,nkj->nki", lower, centred)
        inner = alphas + q.sum(1) - 0.5 * (scaled**2).sum(2)
        m = inner.max(1)
        lse = m + xp.log(xp.exp(inner - m[:, None]).sum(1))
        a = alphas.max()
        return lse.sum() - n * (a + xp.log(xp.exp(alphas - a).sum())) - 0.5 * (xp.exp(q) ** 2).sum()

    return f


def mlp(xp: Any) -> Callable[..., Any]:
    def f(p: Any, x: Any, y: Any) -> Any:
        w, b, v, c = p
        h = xp.maximum(x @ w + b, 0)
        z = h @ v + c
        z = z - z.max(1, keepdims=True)
        return -(y * (z - xp.log(xp.exp(z).sum(1, keepdims=True)))).sum() / len(x)

    return f


def kmeans(xp: Any) -> Callable[..., Any]:
    return lambda c, x: ((x[:, None, :] - c[None]) ** 2).sum(2).min(1).sum()


def stencil(xp: Any) -> Callable[..., Any]:
    def f(u: Any) -> Any:
        r = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1]
        return (r * r).sum()

    return f


def loop(xp: Any) -> Callable[..., Any]:
    turns = kg.fori_loop if xp is np else jax.lax.fori_loop  # type: ignore[union-attr]
    return lambda x: turns(0, 500, lambda i, c: xp.sin(c) * 0.9 + 0.1 * x, x).sum()


def layer_norm(xp: Any) -> Callable[..., Any]:
    def f(x: Any, g: Any, b: Any) -> Any:
        m = x.mean(1, keepdims=True)
        v = ((x - m) ** 2).mean(1, keepdims=True)
        return xp.tanh((x - m) / xp.sqrt(v + 1e-5) * g + b).sum()

    return f


def attention(xp: Any) -> Callable[..., Any]:
    def f(q: Any, k: Any, v: Any) -> Any:
        s = q @ k.swapaxes(-1, -2) * 0.125
        e = xp.exp(s - s.max(-1, keepdims=True))
        return ((e / e.sum(-1, keepdims=True)) @ v).sum()

    return f


def lstm(xp: Any) -> Callable[..., Any]:
    def f(w: Any, xs: Any) -> Any:
        h = c = xp.zeros((16, 64), np.float32)
        for t in range(20):
            z = xp.concatenate([xs[t], h], 1) @ w
            i, j, o, g = (z[:, 64 * n : 64 * n + 64] for n in range(4))
            c = c / (1 + xp.exp(-j)) + xp.tanh(g) / (1 + xp.exp(-i))
            h = xp.tanh(c) / (1 + xp.exp(-o))
        return (h * h).sum()

    return f


ONE_HOT = np.eye(10, dtype=np.float32)[RNG.integers(0, 10, 256)]
WORKLOADS: dict[str, tuple[Callable[[Any], Callable[..., Any]], tuple[Any, ...]]] = {
    "logsumexp 2^22 f64": (logsumexp, (normal(2**22, dtype=np.float64),)),
    "chain 2^22 f32": (chain, (normal(2**22),)),
    "black_scholes 2^20 f32": (
        black_scholes,
        (tuple(RNG.uniform(a, b, 2**20).astype(np.float32) for a, b in ((80, 120), (0.1, 0.4), (0, 0.1), (0.2, 2))),
         RNG.uniform(80, 120, 2**20).astype(np.float32)),
    ),
    "gmm 1000x10x25 f64": (
        gmm,
        ((normal(25, dtype=float), normal(25, 10, dtype=float), 0.1 * normal(25, 10, dtype=float),
          np.tril(0.1 * normal(25, 10, 10, dtype=float), -1)), normal(1000, 10, dtype=float)),
    ),
    "mlp 256x784-512-10 f32": (
        mlp,
        ((0.05 * normal(784, 512), normal(512), 0.05 * normal(512, 10), normal(10)), normal(256, 784), ONE_HOT),
    ),
    "kmeans 20000x4x25 f64": (kmeans, (normal(25, 4, dtype=float), normal(20000, 4, dtype=float))),
    "stencil 2048^2 f32": (stencil, (normal(2048, 2048),)),
    "layer_norm 4096x1024 f32": (layer_norm, (normal(4096, 1024), normal(1024), normal(1024))),
    "attention 8x256x64 f32": (attention, (normal(8, 256, 64), normal(8, 256, 64), normal(8, 256, 64))),
    "lstm 20 turns f32": (lstm, (0.1 * normal(128, 256), normal(20, 16, 64))),
    "fori_loop 500 of 4096 f32": (loop, (normal(4096),)),
}  # fmt: skip


def planning(function: Any, args: Any) -> float:
    """Seconds of tracing, deriving, fusing and scheduling."""
    made = kg.kernel_graph(function, device="cpu") if not isinstance(function, kg.KernelGraph) else function
    start = time.perf_counter()
    made.plan(*args)
    return time.perf_counter() - start


def fresh(function: Any) -> Any:
    """The same function, of which nothing is kept."""
    return lambda *args: function(*args)


def blocking(function: Any) -> Any:
    return lambda *args: jax.block_until_ready(function(*args))  # type: ignore[union-attr]


def milliseconds(functions: dict[str, Any], args: dict[str, Any]) -> dict[str, float]:
    """The best of calls that take turns."""
    for name, function in functions.items():
        function(*args[name])
    best = dict.fromkeys(functions, math.inf)
    end = time.perf_counter() + OPTIONS.seconds * len(functions)
    while time.perf_counter() < end:
        for name, function in functions.items():
            start = time.perf_counter()
            function(*args[name])
            best[name] = min(best[name], 1e3 * (time.perf_counter() - start))
    return best


def main() -> None:
    print(machine(OPTIONS.threads, ("numpy", "jax")))
    heads = ("value", "both", "ratio", "jax", "both", "ratio", "jax:ours", "planning")
    print(" " * 28 + "".join(f"{head:>10}" for head in heads))
    for name, (make, args) in WORKLOADS.items():
        if OPTIONS.only and not any(name.startswith(word) for word in OPTIONS.only):
            continue
        mine = make(np)
        value = kg.kernel_graph(mine, device="cpu")
        both = kg.value_and_grad(value)
        functions, given = {"value": value, "both": both}, {"value": args, "both": args}
        if jax is not None:
            theirs = make(jax.numpy)
            arrays = jax.tree_util.tree_map(jax.numpy.asarray, args)
            functions |= {"jax": blocking(jax.jit(theirs)), "jax both": blocking(jax.jit(jax.value_and_grad(theirs)))}
            given |= {"jax": arrays, "jax both": arrays}
        found = milliseconds(functions, given)
        if jax is not None:
            check(both(*args), functions["jax both"](*arrays), name)
        once = [(planning(kg.value_and_grad(fresh(mine)), args), planning(fresh(mine), args)) for _ in range(3)]
        plan = min(a for a, _ in once) / min(b for _, b in once)
        v, b, j, jb = (found.get(k, math.nan) for k in ("value", "both", "jax", "jax both"))
        figures = (v, b, b / v, j, jb, jb / j, jb / b, plan)
        print(f"{name:28}" + "".join(f"{figure:10.2f}" for figure in figures), flush=True)


def check(ours: Any, theirs: Any, name: str) -> None:
    """Raises AssertionError where the two do not agree."""
    a, b = flat(ours), flat(theirs)
    for x, y in zip(a, b, strict=True):
        scale = float(np.max(np.abs(y))) or 1.0
        worst = float(np.max(np.abs(x - y))) / scale
        assert worst < (1e-3 if x.dtype == np.float32 else 1e-9), (name, worst)


def flat(x: Any) -> list[Any]:
    return [a for i in x for a in flat(i)] if isinstance(x, (tuple, list)) else [np.asarray(x)]


if __name__ == "__main__":
    main()
