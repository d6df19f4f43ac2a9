"""Layers `activation(x @ w + bias)` on a GPU, beside torch.compile and jax.jit, in one run.

    python benchmarks/gpu_matmul.py [--seconds 1.5] [--only float16]
    PYTHONPATH=. python benchmarks/gpu_matmul.py --random 100 [--seconds 0.2]    # random products, beside torch
    PYTHONPATH=. python benchmarks/gpu_matmul.py --loss [--seconds 2]    # linear + cross entropy in bfloat16

TF32 is off for all; 16-bit products are added in float32 by all. `product` is this project's `x @ w` alone: what the
bias and the activation cost on top. A sample is 20 ms or more of calls in a row, then one synchronisation.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
sys.path.insert(0, str(Path(__file__).parent))
from common import Peers, Result, interleave, machine

import kernelgraph as kg

PARSER = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
PARSER.add_argument("--seconds", type=float, default=1.5, help="time for each layer")
PARSER.add_argument("--random", type=int, default=0, help="so many products of tests/gpu/random_products.py instead")
PARSER.add_argument("--seed", type=int, default=0, help="of these")
PARSER.add_argument("--loss", action="store_true", help="linear + cross entropy instead")
PARSER.add_argument("--only", nargs="*", default=[], help="dtypes (default: all)")
PACKAGES = ("kernelgraph", "numpy", "nvmath-python", "torch", "jax")
SHAPES = ((256, 256, 256), (2048, 2048, 2048), (65536, 1024, 256))  # rows, columns, what is summed
DTYPES = ("float32", "float16", "bfloat16")
Call = Callable[[], Any]


def _ours(dtype: str, activation: str, arrays: list[Any]) -> dict[str, Call]:
    narrow = arrays[0].dtype  # NumPy's products of bfloat16 are float32
    finish = {"relu": lambda x: np.maximum(x, 0), "gelu": lambda x: kg.gelu(x, approximate=True)}[activation]
    layer = kg.kernel_graph(device="cuda")(lambda x, w, b: finish((x @ w).astype(narrow) + b))
    alone = kg.kernel_graph(device="cuda")(lambda x, w: (x @ w).astype(narrow))
    x, w, b = (kg.asarray(a, device="cuda") for a in arrays)
    return {"kernelgraph": lambda: layer(x, w, b), "product": lambda: alone(x, w)}


def _torch(dtype: str, activation: str, arrays: list[Any], torch: Any) -> dict[str, Call]:
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    functional = torch.nn.functional
    finish = {"relu": torch.relu, "gelu": lambda x: functional.gelu(x, approximate="tanh")}[activation]
    layer = torch.compile(lambda x, w, b: finish(x @ w + b))
    x, w, b = (torch.from_numpy(a.astype("f4")).to(getattr(torch, dtype)).cuda() for a in arrays)
    return {"torch.compile": lambda: layer(x, w, b)}


def _jax(dtype: str, activation: str, arrays: list[Any], jax: Any) -> dict[str, Call]:
    jax.config.update("jax_default_matmul_precision", "highest")
    layer = jax.jit(lambda x, w, b: getattr(jax.nn, activation)(x @ w + b))
    x, w, b = (jax.device_put(a, jax.devices("gpu")[0]) for a in arrays)
    return {"jax.jit": lambda: layer(x, w, b)}


PEERS = {"torch": _torch, "jax": _jax}


def candidates(dtype: str, activation: str, arrays: list[Any], peers: Peers) -> tuple[dict[str, Call], list[str]]:
    """Each candidate as a call that returns before its result is there, and what failed."""
    found, notes = _ours(dtype, activation, arrays), []
    wanted = np.asarray(found["kernelgraph"]())[:8].astype("f4")
    for name, make in PEERS.items():
        module = peers.get(name)
        try:
            for label, call in make(dtype, activation, arrays, module).items() if module else ():
                result = call()[:8]
                host = result.float().cpu().numpy() if hasattr(result, "cpu") else np.asarray(result)
                np.testing.assert_allclose(host.astype("f4"), wanted, rtol=2e-2, atol=2e-2 * np.abs(wanted).max())
                found[label] = call
        except Exception as error:  # named, not hidden
            notes.append(f"{name} fails: {type(error).__name__}: {' '.join(str(error).split())[:160]}")
    return found, notes


LEAST = 10e-6  # seconds that a call takes anyway, in the predictions


def print_random_products(count: int, seed: int, seconds: float, torch: Any, clock: Any) -> None:
    """A line for each product, slowest beside torch first; then what they come to."""
    from kernelgraph.runtime.schedule.schedule import predicted_microseconds
    from tests.gpu.random_products import random_products

    torch.backends.cuda.matmul.allow_tf32 = False
    rows: list[tuple[float, float, str]] = []
    for product in random_products(count, seed):
        x, w = product.arrays()
        ours = kg.kernel_graph(product.body, device="cuda")
        a, b = (kg.asarray(v, device="cuda") for v in (x, w))
        wide = "f8" if product.dtype == "float64" else "f4"
        s, t = (torch.from_numpy(v.astype(wide)).to(getattr(torch, product.dtype)).cuda() for v in (x, w))
        calls: dict[str, Call] = {"ours": partial(ours, a, b), "torch": partial(product.peer, s, t)}
        for _ in range(100):  # in which a plan is chosen
            calls["ours"]()
        samples = interleave(calls, seconds, clock, sample_seconds=5e-3)
        mine, theirs = (statistics.median(samples[name]) for name in ("ours", "torch"))
        predicted = predicted_microseconds(ours.plan(a, b)) * 1e-6
        text = f"{mine * 1e6:9.1f} {theirs * 1e6:9.1f} {predicted * 1e6:9.1f}  {product}"
        rows.append((mine / theirs, mine / max(predicted, LEAST), text))
        notes = [line for line in ours.explain(a, b).splitlines() if "predicted; " in line or "other ways" in line]
        rows[-1] = (*rows[-1][:2], "\n    ".join([text, *notes]))
    print("ours/torch of prediction  ours us  torch us predicted  product")
    for ratio, missed, text in sorted(rows, reverse=True):
        print(f"{ratio:10.2f} {missed:13.2f} {text}")
    mean = math.exp(sum(math.log(ratio) for ratio, _, _ in rows) / len(rows))
    above = sum(ratio > 1.3 for ratio, _, _ in rows)
    print(
        f"\n{len(rows)} products: geometric mean of ours / torch {mean:.2f}, worst {max(r[0] for r in rows):.2f} "
        f"({above} above 1.3); worst of its own prediction {max(r[1] for r in rows):.2f}",
        flush=True,
    )


def print_loss(seconds: float, torch: Any, clock: Any) -> None:
    """Linear + cross entropy of 4096 rows, 2048 numbers, 32768 classes in bfloat16, and its gradients."""
    rng = np.random.default_rng(0)
    arrays = [(rng.standard_normal(s, np.float32) / 45).astype(kg.bfloat16) for s in ((4096, 2048), (2048, 32768))]
    labels = rng.integers(0, 32768, 4096)

    def loss(x: Any, w: Any, labels: Any) -> Any:
        return kg.nn.cross_entropy((x @ w).astype(np.float32), labels)

    def layer(x: Any, w: Any, labels: Any) -> Any:
        return kg.nn.cross_entropy(kg.nn.linear(x, w.T), labels)

    def torch_loss(x: Any, w: Any, labels: Any) -> Any:
        return torch.nn.functional.cross_entropy((x @ w).float(), labels)

    def torch_gradients(x: Any, w: Any, labels: Any) -> Any:
        x.grad = w.grad = None
        torch_loss(x, w, labels).backward()

    given = [kg.asarray(a, device="cuda") for a in (*arrays, labels)]
    theirs = [torch.from_numpy(a.astype("f4")).bfloat16().cuda().requires_grad_() for a in arrays]
    theirs.append(torch.from_numpy(labels).cuda())
    ours = {name: kg.kernel_graph(f, device="cuda") for name, f in (("`(x @ w).astype(f4)`", loss), ("kg.nn", layer))}
    derived = {
        name: kg.kernel_graph(lambda x, w, y, f=f: kg.value_and_grad(f, argnums=(0, 1))(x, w, y), device="cuda")
        for name, f in (("`(x @ w).astype(f4)`", loss), ("kg.nn", layer))
    }
    compiled = torch.compile(torch_loss)

    def forward(f: Any) -> Any:
        with torch.no_grad():
            return f(*theirs)

    forms = {
        "loss": (ours, {"torch": partial(forward, torch_loss), "torch.compile": partial(forward, compiled)}),
        "loss and gradients": (derived, {"torch": partial(torch_gradients, *theirs)}),
    }
    for title, (functions, peers) in forms.items():
        calls = {name: partial(f, *given) for name, f in functions.items()} | peers
        samples = interleave(calls, seconds, clock, sample_seconds=20e-3)
        print(Result(f"{title}, bfloat16 4096 x 2048 @ 2048 x 32768", samples, 0, (), "kg.nn").markdown(), flush=True)
        for name, f in functions.items():
            print(f"- {name}: {f.explain(*given)}\n", flush=True)


def main() -> None:
    options = PARSER.parse_args()
    peers = Peers(["torch"] if options.random or options.loss else list(PEERS)).load()
    from cuda.core import Device

    device = Device(0)
    device.set_current()

    def batch(call: Call, calls: int) -> float:
        device.sync()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        device.sync()
        return (time.perf_counter() - start) / calls

    print(f"## {device.name}\n\n{machine(None, PACKAGES, device.name)}\n")
    if options.random:
        print_random_products(options.random, options.seed, options.seconds, peers.get("torch"), batch)
        return
    if options.loss:
        print_loss(options.seconds, peers.get("torch"), batch)
        return
    rng = np.random.default_rng(0)
    for dtype in options.only or DTYPES:
        for m, n, k in SHAPES:
            kind = np.dtype(kg.bfloat16 if dtype == "bfloat16" else dtype)
            arrays = [rng.standard_normal(s, np.float32).astype(kind) for s in ((m, k), (k, n), (n,))]
            for activation in ("relu", "gelu"):
                calls, notes = candidates(dtype, activation, arrays, peers)
                samples = interleave(calls, options.seconds, batch, sample_seconds=20e-3)
                title = f"`{activation}(x @ w + bias)`, {dtype}, {m} x {k} @ {k} x {n}"
                print(Result(title, samples, 0, tuple(notes)).markdown(), flush=True)


if __name__ == "__main__":
    main()
