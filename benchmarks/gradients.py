"""Gradients beside JAX and PyTorch: milliseconds of a value and of a value with its gradient, and what compiling takes.

    python benchmarks/gradients.py [--seconds 1] [--only stencil mlp] [--device cuda] [--json FILE] [--limit 260]

JAX is timed with `block_until_ready`; ours with results that are there when a call returns. The workloads are those of
GradBench (logsumexp, GMM, k-means) and others that are common; `ratio` is both by value. `planning` is tracing,
deriving, fusing and scheduling of the gradient by that of the value, without making machine code.

On a GPU sizes are larger, PyTorch's `torch.compile` runs too, a sample is 20 ms of calls and one synchronisation, and
`copy` is the time that a copy of as many bytes as are read and written at least would take, by ours. No workload begins
after `--limit` seconds.
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
PARSER.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
PARSER.add_argument("--json", type=Path, help="where the figures are written too")
PARSER.add_argument("--limit", type=float, default=1e9, help="seconds after which nothing new begins")
PARSER.add_argument("--small", action="store_true", help="on a GPU sizes of the CPU: a check, no measurement")
OPTIONS = PARSER.parse_args()
ON_GPU = OPTIONS.device == "cuda"
if not ON_GPU:
    pin(OPTIONS.threads)

import importlib
import json
import math
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import kernelgraph as kg

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # the others need memory too
try:
    jax = importlib.import_module("jax")
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_default_matmul_precision", "highest")  # float32, as the others
except ImportError:
    jax = None
try:
    torch = importlib.import_module("torch") if ON_GPU else None
except ImportError:
    torch = None

RNG = np.random.default_rng(0)
SOME = RNG.normal(size=1 << 20)


def normal(*shape: int, dtype: Any = np.float32) -> Any:
    """A million random numbers, again and again: they take time to make."""
    return np.resize(np.roll(SOME, RNG.integers(1 << 20)), shape).astype(dtype)


def large(size: int, factor: int) -> int:
    return size * factor if ON_GPU and not OPTIONS.small else size


# (name, function of a namespace that gives the function, arguments; the first is differentiated)


def top(x: Any, *axis: int, **keep: bool) -> Any:
    """The maximum, under the name that each library has for it."""
    return (x.amax if hasattr(x, "amax") else x.max)(*axis, **keep)


def logsumexp(xp: Any) -> Callable[..., Any]:
    def f(x: Any) -> Any:
        m = top(x)
        return m + xp.log(xp.exp(x - m).sum())

    return f


def chain(xp: Any) -> Callable[..., Any]:
    return lambda x: (xp.exp(-(x * x)) * xp.sin(x) + 0.5 * x).sum()


def erf_of(xp: Any) -> Any:
    return kg.erf if xp is np else xp.erf if xp is torch else jax.scipy.special.erf  # type: ignore[union-attr]


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
        m = top(inner, 1)
        lse = m + xp.log(xp.exp(inner - m[:, None]).sum(1))
        a = top(alphas)
        return lse.sum() - n * (a + xp.log(xp.exp(alphas - a).sum())) - 0.5 * (xp.exp(q) ** 2).sum()

    return f


def mlp(xp: Any) -> Callable[..., Any]:
    relu = torch.relu if xp is torch else lambda x: xp.maximum(x, 0)

    def f(p: Any, x: Any, y: Any) -> Any:
        w, b, v, c = p
        h = relu(x @ w + b)
        z = h @ v + c
        z = z - top(z, 1, keepdims=True)
        return -(y * (z - xp.log(xp.exp(z).sum(1, keepdims=True)))).sum() / len(x)

    return f


def kmeans(xp: Any) -> Callable[..., Any]:
    def f(c: Any, x: Any) -> Any:
        distances = ((x[:, None, :] - c[None]) ** 2).sum(2)
        return (distances.amin if xp is torch else distances.min)(1).sum()

    return f


def softmax(xp: Any) -> Callable[..., Any]:
    """Cross entropy of rows."""

    def f(x: Any, y: Any) -> Any:
        z = x - top(x, 1, keepdims=True)
        return -(y * (z - xp.log(xp.exp(z).sum(1, keepdims=True)))).sum()

    return f


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
        e = xp.exp(s - top(s, -1, keepdims=True))
        return ((e / e.sum(-1, keepdims=True)) @ v).sum()

    return f


def lstm(xp: Any) -> Callable[..., Any]:
    def f(w: Any, xs: Any) -> Any:
        h = c = xp.zeros_like(xs[0])
        for t in range(20):
            z = xp.concatenate([xs[t], h], 1) @ w
            i, j, o, g = (z[:, 64 * n : 64 * n + 64] for n in range(4))
            c = c / (1 + xp.exp(-j)) + xp.tanh(g) / (1 + xp.exp(-i))
            h = xp.tanh(c) / (1 + xp.exp(-o))
        return (h * h).sum()

    return f


def loop_of_torch(x: Any) -> Any:
    c = x
    for _ in range(500):
        c = torch.sin(c) * 0.9 + 0.1 * x  # type: ignore[union-attr]
    return c.sum()


def market(n: int) -> Any:
    spans = ((80, 120), (0.1, 0.4), (0, 0.1), (0.2, 2))
    spots, *others = (np.resize(RNG.uniform(a, b, 1 << 16), n).astype(np.float32) for a, b in spans)
    return (spots, *others), np.resize(RNG.uniform(80, 120, 1 << 15), n).astype(np.float32)


def mixture(n: int) -> Any:
    lower = np.tril(0.1 * normal(25, 10, 10, dtype=float), -1)
    return (normal(25, dtype=float), normal(25, 10, dtype=float), 0.1 * normal(25, 10, dtype=float), lower), normal(
        n, 10, dtype=float
    )


def perceptron(n: int) -> Any:
    one_hot = np.eye(10, dtype=np.float32)[RNG.integers(0, 10, n)]
    return (0.05 * normal(784, 512), normal(512), 0.05 * normal(512, 10), normal(10)), normal(n, 784), one_hot


# name: the function of a namespace, what makes the arguments of a size, the size (and how much larger on a GPU)
WORKLOADS: dict[str, tuple[Callable[[Any], Callable[..., Any]], Callable[[int], tuple[Any, ...]], tuple[int, int]]] = {
    "logsumexp f64": (logsumexp, lambda n: (normal(n, dtype=np.float64),), (1 << 22, 16)),
    "chain f32": (chain, lambda n: (normal(n),), (1 << 22, 32)),
    "black_scholes f32": (black_scholes, market, (1 << 20, 64)),
    "gmm 10x25 f64": (gmm, mixture, (1000, 100)),
    "mlp 784-512-10 f32": (mlp, perceptron, (256, 64)),
    "kmeans 4x25 f64": (kmeans, lambda n: (normal(25, 4, dtype=float), normal(n, 4, dtype=float)), (20000, 50)),
    "stencil side f32": (stencil, lambda n: (normal(n, n),), (2048, 5)),
    "softmax rows of 1024 f32": (softmax, lambda n: (normal(n, 1024), abs(normal(n, 1024))), (4096, 24)),
    "layer_norm rows of 1024 f32": (layer_norm, lambda n: (normal(n, 1024), normal(1024), normal(1024)), (4096, 24)),
    "attention 256x64 f32": (attention, lambda n: tuple(normal(n, 256, 64) for _ in range(3)), (8, 64)),
    "lstm of 20 turns f32": (lstm, lambda n: (0.1 * normal(128, 256), normal(20, n, 64)), (16, 16)),
    "fori_loop of 500 f32": (loop, lambda n: (normal(n),), (4096, 256)),
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


def tree(function: Callable[[Any], Any], x: Any) -> Any:
    return tuple(tree(function, v) for v in x) if isinstance(x, (tuple, list)) else function(x)


def main() -> None:
    print(machine(None if ON_GPU else OPTIONS.threads, ("numpy", "jax", "torch") if ON_GPU else ("numpy", "jax")))
    rows, began = [], time.perf_counter()
    measure = measure_on_gpu if ON_GPU else measure_on_cpu
    for name, (make, arguments, (size, factor)) in WORKLOADS.items():
        if OPTIONS.only and not any(name.startswith(word) for word in OPTIONS.only):
            continue
        if time.perf_counter() - began > OPTIONS.limit:
            print(f"{name}: left out, the time is over")
            continue
        size = large(size, factor)
        found = measure(make, arguments(size), name)
        if not rows:
            print(" " * 36 + "".join(f"{head:>10}" for head in found))
        rows.append({"name": f"{name}, {size}", **found})
        shown = "".join(f"{v:10.3g}" if isinstance(v, float) else f"{v:>10}" for v in found.values())
        print(f"{rows[-1]['name']:36}{shown}", flush=True)
        if OPTIONS.json:
            OPTIONS.json.write_text(json.dumps(rows, indent=1))


def measure_on_cpu(make: Callable[[Any], Any], args: tuple[Any, ...], name: str) -> dict[str, Any]:
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
    return {
        "value": v, "both": b, "ratio": b / v, "jax": j, "jax both": jb, "jax ratio": jb / j, "jax:ours": jb / b,
        "planning": plan,
    }  # fmt: skip


def measure_on_gpu(make: Callable[[Any], Any], args: tuple[Any, ...], name: str) -> dict[str, Any]:
    from common import clock_of, interleave
    from cuda.core import Device

    def sync() -> None:
        if "jax" in results:
            jax.block_until_ready(results["jax"])  # type: ignore[union-attr]
        Device(0).sync()

    results: dict[str, Any] = {}
    value = kg.kernel_graph(make(np), device="cuda")
    gradient = kg.value_and_grad(value)
    mine = tree(lambda x: kg.asarray(x, device="cuda").wait(), args)
    calls = {"value": lambda: value(*mine), "both": lambda: gradient(*mine)}
    expected = tree(np.asarray, calls["both"]())
    failed = {}
    for label, maker in {"jax": jax_both, "torch": torch_both}.items():
        try:
            call = maker(make, args)
            results[label] = call()
            calls[label] = partial(kept, call, results, label)
            check(tree(host, results[label]), expected, name)
        except Exception as error:  # named, not hidden; another result is timed all the same
            failed[label] = type(error).__name__
            print(f"{name}: {label}: {type(error).__name__}: {' '.join(str(error).split())[:200]}", flush=True)
    least = sum(x.nbytes for x in flat(args)) + sum(x.nbytes for x in flat(args[0]))
    source = kg.asarray(np.zeros(least // 8, np.float32), device="cuda").wait()
    copy = kg.kernel_graph(lambda x: x + np.float32(1), device="cuda")  # as many bytes, at the speed of a copy
    calls["copy"] = lambda: copy(source)
    samples = interleave(calls, OPTIONS.seconds * len(calls), clock_of(sync), 20e-3)
    ms = {k: 1e3 * min(v) for k, v in samples.items()}
    both = ms["both"]
    shown = {f"{k}:ours": ms[k] / both if k in ms else failed.get(k, "") for k in ("jax", "torch", "copy")}
    wrong = [k for k, kind in failed.items() if kind == "AssertionError"]
    return {"value": ms["value"], "both": both, "ratio": both / ms["value"], **shown, "differs": ", ".join(wrong)}


def kept(call: Callable[[], Any], results: dict[str, Any], label: str) -> None:
    """JAX's last result is waited for where a sample ends."""
    results[label] = call()


def jax_both(make: Callable[[Any], Any], args: Any) -> Callable[[], Any]:
    assert jax is not None
    function = jax.jit(jax.value_and_grad(make(jax.numpy)))
    arrays = tree(jax.device_put, args)
    return lambda: function(*arrays)


def torch_both(make: Callable[[Any], Any], args: Any) -> Callable[[], Any]:
    assert torch is not None
    function = torch.compile(loop_of_torch if make is loop else make(torch))
    first, *others = tree(lambda x: torch.from_numpy(x).cuda(), args)
    leaves = first if isinstance(first, tuple) else (first,)
    for leaf in leaves:
        leaf.requires_grad_()

    def call() -> Any:
        found = function(first, *others)
        gradients = torch.autograd.grad(found, leaves)
        return found.detach(), gradients if isinstance(first, tuple) else gradients[0]

    return call


def host(x: Any) -> Any:
    return x.cpu().numpy() if hasattr(x, "cpu") else np.asarray(x)


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
