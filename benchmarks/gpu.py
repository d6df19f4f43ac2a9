"""GPU benchmarks: each workload of this project beside torch.compile, jax and cupy, in one run.

    python benchmarks/gpu.py [--only chain softmax] [--seconds 4] [--small]

A sample is 20 ms or more of calls in a row, then one synchronisation of the device: what the host adds is below 0.1 %.
The limit is a device-to-device copy of as many bytes as the workload must move. `call` is the host's time for one small
call; `branches` are 8 chains of 4 (matmul, relu), each call on another of 8 inputs, all outputs of a sample kept, and a
peer of its own, a graph on 8 streams written by hand with PyTorch. `stacked` is the device's own time for 64 small
branches. A peer that fails is named with its error, and left out.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # the others need memory too
sys.path.insert(0, str(Path(__file__).parent))
from common import Peers, clock_of, machine, print_tables
from gpu_time import device_microseconds

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
    nbytes: the least traffic of a call; host: time the call's return, not the device; fresh: the first argument is
    another at each call, and the results of a sample are kept."""

    name: str
    title: str
    shapes: tuple[tuple[int, ...], ...]
    body: Callable[..., Any]
    nbytes: int = 0
    low: float = 0.1
    host: bool = False
    cupy: bool = True
    fresh: bool = False


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


def stencil(m: Any, x: Any) -> Any:
    return 0.25 * (x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:])


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
        Workload("stencil", "4-neighbour mean, 16384 x 8192", (wide,), stencil, 8 * wide[0] * wide[1], cupy=False),
        Workload("call", "one call of the chain, 4096 elements, host time", ((4096,),), chain, host=True),
        *(Workload(f"branches-{s[0][0]}", f"8 branches of 4 x ({s[0][0]} x {s[0][0]} matmul, relu)", s, branches,
                   low=-0.01, cupy=False, fresh=True) for s in square),
    ]  # fmt: skip


def arrays_of(work: Workload) -> list[np.ndarray[Any, Any]]:
    """A few million random numbers, again and again: they take time to make."""
    rng = np.random.default_rng(0)
    some = rng.random(1 << 22, np.float32) * np.float32(2 - work.low) + np.float32(work.low)
    return [np.resize(np.roll(some, k), shape) for k, shape in enumerate(work.shapes)]


BRANCHES, LENGTH = 64, 1000


def stacked() -> str:
    """The device's time for 64 independent branches stacked into one output, and for one of them."""
    rng = np.random.default_rng(0)
    xs = [kg.asarray(rng.random(LENGTH, np.float32), device="cuda").wait() for _ in range(BRANCHES)]
    lines = [f"### {BRANCHES} branches of {LENGTH} elements stacked into one output, device time", ""]
    lines += ["| branch | one | all | all / one | launches |", "|---|--:|--:|--:|--:|"]
    for name, branch in BODIES.items():
        one = kg.kernel_graph(device="cuda")(branch)
        all_ = kg.kernel_graph(device="cuda")(_stack_of(branch))
        times = [device_microseconds(f, given) for f, given in ((one, xs[:1]), (all_, xs))]
        launches = len(all_.plan(*xs).tasks)
        lines.append(f"| {name} | {times[0]:.2f} us | {times[1]:.2f} us | {times[1] / times[0]:.2f} | {launches} |")
    return "\n".join([*lines, ""])


def _stack_of(branch: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda *given: np.stack([branch(x) for x in given])


BODIES: dict[str, Callable[[Any], Any]] = {
    "`exp(x)*2 + 1`": lambda x: np.exp(x) * 2 + 1,
    "`x + 1`": lambda x: x + 1,
    "the chain": lambda x: chain(np, x),
}
KEPT: list[Any] = []  # results of a sample
INPUTS = 8  # first arguments that fresh calls take in turn


def _call(work: Workload, function: Callable[..., Any], place: Callable[[Any], Any], arrays: list[Any]) -> Call:
    """A call of a function on arrays that are placed on the GPU."""
    first, *others = [place(a) for a in arrays]
    if not work.fresh:
        return lambda: function(first, *others)
    turns = cycle([first, *(place(np.roll(arrays[0], k)) for k in range(1, INPUTS))])

    def call() -> Any:
        KEPT.append(function(next(turns), *others))
        return KEPT[-1]

    return call


NAMES = ("exp", "log", "sin", "sqrt")
Call = Callable[[], Any]


def _functions(module: Any, **others: Any) -> SimpleNamespace:
    return SimpleNamespace(**others, **{name: getattr(module, name) for name in NAMES})


def _ours(work: Workload, arrays: list[Any]) -> dict[str, Call]:
    m = _functions(
        np, erf=kg.erf, relu=lambda x: np.maximum(x, 0), rowmax=lambda x: x.max(axis=-1, keepdims=True),
        rowsum=lambda x: x.sum(axis=-1, keepdims=True),
    )  # fmt: skip
    ours = kg.kernel_graph(device="cuda")(lambda *a: work.body(m, *a))
    return {"kernelgraph": _call(work, ours, lambda a: kg.asarray(a, device="cuda"), arrays)}


def _torch(work: Workload, arrays: list[Any], torch: Any) -> dict[str, Call]:
    m = _functions(
        torch, erf=torch.erf, relu=torch.relu, rowmax=lambda x: x.amax(-1, keepdim=True),
        rowsum=lambda x: x.sum(-1, keepdim=True),
    )  # fmt: skip
    # No graphs of its own where there is one written by hand: to make them, it frees memory that the other one uses.
    compiled = torch.compile(lambda *a: work.body(m, *a))
    return {"torch.compile": _call(work, compiled, lambda a: torch.from_numpy(a).cuda(), arrays)}


def _by_hand(work: Workload, arrays: list[Any], torch: Any) -> dict[str, Call]:
    """The branches as a graph that was captured on a stream each: the input is copied in, the results stay in place,
    so that the next call writes over them."""
    if not work.fresh:
        return {}
    x, *weights = [torch.from_numpy(a).cuda() for a in arrays]
    graph, streams = torch.cuda.CUDAGraph(), [torch.cuda.Stream() for _ in weights]

    def branch(w: Any) -> Any:
        value = x
        for _ in range(4):
            value = torch.relu_(value @ w)
        return value

    for w, stream in zip(weights, streams, strict=True):
        with torch.cuda.stream(stream):
            branch(w)  # its libraries get ready
    torch.cuda.synchronize()
    results = []
    with torch.cuda.graph(graph):
        main = torch.cuda.current_stream()
        for w, stream in zip(weights, streams, strict=True):
            stream.wait_stream(main)
            with torch.cuda.stream(stream):
                results.append(branch(w))
        for stream in streams:
            main.wait_stream(stream)

    def replay(weights: Any, given: Any) -> Any:
        """weights: what the graph reads has to live."""
        x.copy_(given)
        graph.replay()
        return results

    return {"graph by hand": _call(work, partial(replay, weights), lambda a: torch.from_numpy(a).cuda(), arrays[:1])}


def _copy(work: Workload, arrays: list[Any], torch: Any) -> dict[str, Call]:
    source = torch.empty(work.nbytes // 8, dtype=torch.float32, device="cuda")
    target = torch.empty_like(source)
    return {"copy": lambda: target.copy_(source)} if work.nbytes else {}


def _jax(work: Workload, arrays: list[Any], jax: Any) -> dict[str, Call]:
    m = _functions(
        jax.numpy, erf=jax.scipy.special.erf, relu=jax.nn.relu, rowmax=lambda x: x.max(-1, keepdims=True),
        rowsum=lambda x: x.sum(-1, keepdims=True),
    )  # fmt: skip
    jax.config.update("jax_default_matmul_precision", "highest")  # float32, as the others
    jitted = jax.jit(lambda *a: work.body(m, *a))
    return {"jax.jit": _call(work, jitted, lambda a: jax.device_put(a, jax.devices("gpu")[0]), arrays)}


def _cupy(work: Workload, arrays: list[Any], cupy: Any) -> dict[str, Call]:
    from cupyx.scipy import special

    m = _functions(cupy, erf=special.erf)

    def body(*given: Any) -> Any:
        return work.body(m, *given)

    call = cupy.fuse(kernel_name=work.name)(body) if work.name in ("chain", "call") else body
    return {"cupy": _call(work, call, cupy.asarray, arrays)}


PEERS = {"torch": (_copy, _torch, _by_hand), "jax": (_jax,), "cupy": (_cupy,)}


def candidates(work: Workload, arrays: list[Any], peers: Peers) -> tuple[dict[str, Call], list[str]]:
    """Each candidate as a call that returns before its result is there, and what failed."""
    found, notes = _ours(work, arrays), []
    wanted = _head(found["kernelgraph"]())
    assert np.isfinite(wanted).all(), f"{work.name}: not finite"
    for name, makers in PEERS.items():
        module = peers.get(name)
        for make in makers if module and (work.cupy or name != "cupy") else ():
            try:
                for label, call in make(work, arrays, module).items():
                    result = call()
                    if label != "copy":
                        np.testing.assert_allclose(_head(result), wanted, rtol=1e-2, atol=1e-3)
                    found[label] = call
            except Exception as error:  # named, not hidden
                text = " ".join(str(error).split())
                notes.append(f"{make.__name__.strip('_')} fails: {type(error).__name__}: {text[:160]}")
    return found, notes


def _head(result: Any) -> Any:
    """The first numbers of the first result."""
    first = result[0] if isinstance(result, tuple | list) else result
    if hasattr(first, "wait"):
        return np.asarray(first).reshape(-1)[:1000]
    some = first.reshape(-1)[:1000]
    return some.cpu().numpy() if hasattr(some, "cpu") else some.get() if hasattr(some, "get") else np.asarray(some)


def _release(peers: Peers) -> None:
    """Give the memory that libraries keep back to the device."""
    KEPT.clear()
    gc.collect()
    if torch := peers.get("torch"):
        torch.compiler.reset()
        torch.cuda.empty_cache()
    if jax := peers.get("jax"):
        jax.clear_caches()
    if cupy := peers.get("cupy"):
        cupy.get_default_memory_pool().free_all_blocks()


def main() -> None:
    options = PARSER.parse_args()
    peers = Peers([p for p in PEERS if p not in options.skip]).load()
    from cuda.core import Device

    device = Device(0)
    device.set_current()

    on_device = clock_of(device.sync)

    def batch(call: Call, calls: int) -> float:
        KEPT.clear()
        return on_device(call, calls)

    def host(call: Call, calls: int) -> float:
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
    failed = print_tables(
        [w for w in workloads(8 if options.small else 1) if not options.only or w.name in options.only],
        lambda work: candidates(work, arrays_of(work), peers),
        lambda work: host if work.host else batch,
        options.seconds,
        partial(_release, peers),
    )
    if not options.only or "stacked" in options.only:
        print(stacked(), flush=True)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
