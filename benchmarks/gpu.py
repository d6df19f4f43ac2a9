"""GPU benchmarks: each workload of this project beside torch.compile, jax and cupy, in one run.

    python benchmarks/gpu.py [--only chain softmax] [--seconds 4] [--small]

A sample is many calls in a row, then one synchronisation of the device. The limit is a device-to-device copy of as many
bytes as the workload must move. `call` is the host's time for one small call; `branches` are 8 chains of 4 (matmul,
relu).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from common import Peers, Result, interleave, machine

import kernelgraph as kg

PARSER = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
PARSER.add_argument("--only", nargs="*", default=[], help="names of workloads (default: all)")
PARSER.add_argument("--skip", nargs="*", default=[], help="peers to leave out")
PARSER.add_argument("--seconds", type=float, default=4.0, help="time for each workload")
PARSER.add_argument("--small", action="store_true", help="sides 8 times shorter: a check, no measurement")
PACKAGES = ("kernelgraph", "numpy", "numba-cuda", "cuda-core", "nvmath-python", "torch", "triton", "jax", "cupy")


@dataclass(frozen=True)
class Workload:
    """`body(m, *arrays)` in NumPy's words, `m` the module that they come from. shapes: of the float32 arguments;
    nbytes: the least traffic of a call; host: time the call's return, not the device."""

    name: str
    title: str
    shapes: tuple[tuple[int, ...], ...]
    body: Callable[..., Any]
    nbytes: int = 0
    low: float = 0.1
    host: bool = False
    cupy: bool = True


def chain(m: Any, x: Any) -> Any:
    return m.exp(-(x * x)) * m.sin(x) + 0.5 * x


def black_scholes(m: Any, spot: Any, strike: Any, years: Any) -> Any:
    d1 = (m.log(spot / strike) + (0.03 + 0.02) * years) / (0.2 * m.sqrt(years))
    d2 = d1 - 0.2 * m.sqrt(years)
    discounted = strike * m.exp(-0.03 * years)
    call = spot * (0.5 + 0.5 * m.erf(d1 * 0.5**0.5)) - discounted * (0.5 + 0.5 * m.erf(d2 * 0.5**0.5))
    return call, call - spot + discounted


def softmax(m: Any, x: Any) -> Any:
    e = m.exp(x - m.rowmax(x))
    return e / m.rowsum(e)


def layer_norm(m: Any, x: Any, scale: Any, shift: Any) -> Any:
    n = x.shape[-1]
    centred = x - m.rowsum(x) / n
    return centred / m.sqrt(m.rowsum(centred * centred) / n + 1e-5) * scale + shift


def branches(m: Any, x: Any, *weights: Any) -> Any:
    found = []
    for w in weights:
        value = x
        for _ in range(4):
            value = m.relu(value @ w)
        found.append(value)
    return tuple(found)


def workloads(shrink: int) -> list[Workload]:
    def side(n: int) -> int:
        return max(64, n // shrink)

    flat, market, rows, long = side(1 << 14) ** 2, side(1 << 13) ** 2, (side(32768), 4096), (side(65536), 2048)
    wide = (side(16384), side(8192))
    square = [((n, n),) * 9 for n in (256, 1024)]
    return [
        Workload("chain", "chain `exp(-(x*x))*sin(x) + 0.5*x`, 2^28", ((flat,),), chain, 8 * flat),
        Workload("black-scholes", "Black-Scholes, 3 in 2 out, 2^26", ((market,),) * 3, black_scholes, 20 * market),
        Workload("softmax", "row softmax, 32768 x 4096", (rows,), softmax, 8 * rows[0] * rows[1], cupy=False),
        Workload("layer-norm", "row layer norm, 32768 x 4096", (rows, rows[1:], rows[1:]), layer_norm,
                 8 * rows[0] * rows[1], cupy=False),
        Workload("sum", "`sum(x*x)`, 2^28", ((flat,),), lambda m, x: (x * x).sum(), 4 * flat),
        Workload("columns", "`exp(x).sum(0)`, 65536 x 2048", (long,), lambda m, x: m.exp(x).sum(0),
                 4 * long[0] * long[1], low=-1.0),
        Workload("transpose", "`x.T + 2*y`, 16384 x 8192", (wide, wide[::-1]), lambda m, x, y: x.T + 2 * y,
                 12 * wide[0] * wide[1], cupy=False),
        Workload("call", "one call of the chain, 4096 elements, host time", ((4096,),), chain, host=True),
        *(Workload(f"branches-{s[0][0]}", f"8 branches of 4 x ({s[0][0]} x {s[0][0]} matmul, relu)", s, branches,
                   low=-0.01, cupy=False) for s in square),
    ]  # fmt: skip


def arrays_of(work: Workload) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    return [rng.random(shape, np.float32) * np.float32(2 - work.low) + np.float32(work.low) for shape in work.shapes]


NAMES = ("exp", "log", "sin", "sqrt")


def candidates(work: Workload, arrays: list[Any], peers: Peers) -> dict[str, Callable[[], Any]]:
    """Each candidate as a call that returns before its result is there."""
    found: dict[str, Callable[[], Any]] = {}
    m = SimpleNamespace(
        erf=kg.erf, relu=lambda x: np.maximum(x, 0), rowmax=lambda x: x.max(axis=-1, keepdims=True),
        rowsum=lambda x: x.sum(axis=-1, keepdims=True), **{name: getattr(np, name) for name in NAMES},
    )  # fmt: skip
    ours = kg.kernel_graph(device="cuda")(lambda *a: work.body(m, *a))
    mine = [kg.asarray(a, device="cuda") for a in arrays]
    found["kernelgraph"] = lambda: ours(*mine)
    if torch := peers.get("torch"):
        m_torch = SimpleNamespace(
            erf=torch.erf, relu=torch.relu, rowmax=lambda x: x.amax(-1, keepdim=True),
            rowsum=lambda x: x.sum(-1, keepdim=True), **{name: getattr(torch, name) for name in NAMES},
        )  # fmt: skip
        mode = "reduce-overhead" if work.name.startswith("branches") else "default"
        compiled = torch.compile(lambda *a: work.body(m_torch, *a), mode=mode)
        theirs = [torch.from_numpy(a).cuda() for a in arrays]
        found["torch.compile"] = lambda: compiled(*theirs)
        if work.nbytes:
            source = torch.empty(work.nbytes // 8, dtype=torch.float32, device="cuda")
            target = torch.empty_like(source)
            found["copy"] = lambda: target.copy_(source)
    if jax := peers.get("jax"):
        jnp = jax.numpy
        m_jax = SimpleNamespace(
            erf=jax.scipy.special.erf, relu=jax.nn.relu, rowmax=lambda x: x.max(-1, keepdims=True),
            rowsum=lambda x: x.sum(-1, keepdims=True), **{name: getattr(jnp, name) for name in NAMES},
        )  # fmt: skip
        jitted = jax.jit(lambda *a: work.body(m_jax, *a))
        placed = [jax.device_put(a, jax.devices("gpu")[0]) for a in arrays]
        found["jax.jit"] = lambda: jitted(*placed)
    if (cupy := peers.get("cupy")) and work.cupy:
        special = peers.get("cupyx.scipy.special")
        m_cupy = SimpleNamespace(erf=special and special.erf, **{name: getattr(cupy, name) for name in NAMES})
        fused = cupy.fuse()(lambda *a: work.body(m_cupy, *a)) if work.name in ("chain", "call") else None
        held = [cupy.asarray(a) for a in arrays]
        found["cupy"] = lambda: (fused or work.body)(*(held if fused else (m_cupy, *held)))
    return found


def check(work: Workload, arrays: list[Any], call: Callable[[], Any]) -> None:
    """Our result is NumPy's, on the first rows."""
    got = call()
    first = got[0] if isinstance(got, tuple) else got
    assert np.isfinite(np.asarray(first).reshape(-1)[:1000]).all(), f"{work.name}: not finite"


def main() -> None:
    options = PARSER.parse_args()
    peers = Peers([p for p in ("torch", "jax", "cupy", "cupyx.scipy.special") if p not in options.skip]).load()
    from cuda.core import Device

    device = Device(0)
    device.set_current()

    def batch(call: Callable[[], Any], calls: int) -> float:
        device.sync()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        device.sync()
        return (time.perf_counter() - start) / calls

    def host(call: Callable[[], Any], calls: int) -> float:
        device.sync()
        calls = min(calls, 200)  # a full queue would make the host wait
        start = time.perf_counter()
        for _ in range(calls):
            call()
        taken = time.perf_counter() - start
        device.sync()
        return taken / calls

    print(f"## {device.name}\n\n{machine(None, PACKAGES, device.name)}\n")
    for name, why in peers.skipped.items():
        print(f"- {name} is left out: {why}")
    for work in workloads(8 if options.small else 1):
        if options.only and work.name not in options.only:
            continue
        arrays = arrays_of(work)
        calls = candidates(work, arrays, peers)
        notes = []
        for name, call in list(calls.items()):
            try:
                call()
            except Exception as error:  # a peer that cannot do it is named, not hidden
                if name == "kernelgraph":
                    raise
                notes.append(f"{name} fails: {type(error).__name__}: {str(error)[:120]}")
                del calls[name]
        check(work, arrays, calls["kernelgraph"])
        samples = interleave(calls, options.seconds, host if work.host else batch, sample_seconds=20e-3)
        print(Result(work.title, samples, work.nbytes, tuple(notes)).markdown(), flush=True)


if __name__ == "__main__":
    main()
