"""CPU benchmarks: each workload of this project beside NumPy, numexpr, numba, jax and torch.compile, in one run.

    python benchmarks/cpu.py [--only chain softmax] [--seconds 8] [--threads 2] [--small]

*fresh* allocates its output and pays for page faults; *warm* writes into an existing tensor. kernelgraph recycles
its output buffers, so its figure includes allocation. The copy moves the same bytes: it is the limit.
"""

# ruff: noqa: E402
from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from common import Peers, Result, interleave, machine, pin

PARSER = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
PARSER.add_argument("--only", nargs="*", default=[], help="names of workloads (default: all)")
PARSER.add_argument("--seconds", type=float, default=8.0, help="time for each workload")
PARSER.add_argument("--threads", type=int, default=2, help="cores for every candidate")
PARSER.add_argument(
    "--small", action="store_true", help="sides 16 times shorter: checks the benchmark, measures nothing"
)
OPTIONS = PARSER.parse_args()
pin(OPTIONS.threads)

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
from cpu_workloads import WORKLOADS, Workload, black_scholes, words

import kernelgraph as kg

PACKAGES = ("kernelgraph", "numpy", "llvmlite", "numexpr", "numba", "jax", "torch", "scipy")
peers = Peers(("numexpr", "numba", "jax", "torch", "scipy.special")).load()
ne, nb, jax, torch, special = map(peers.get, peers.wanted)
pool = ThreadPoolExecutor(OPTIONS.threads)


def leaves(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def candidates(work: Workload, arrays: tuple[Any, ...]) -> dict[str, Callable[[], Any]]:
    """Each candidate as a call that returns when its result is there."""
    found: dict[str, Callable[[], Any]] = {}
    body, m = work.body, words(np, kg.erf)
    ours = kg.kernel_graph(device="cpu")(
        (lambda a: body(m, a), lambda a, b: body(m, a, b), lambda a, b, c: body(m, a, b, c))[len(arrays) - 1]
    )

    def ours_waited() -> Any:
        outputs = ours(*arrays)
        for output in leaves(outputs):
            output.wait()
        return outputs

    found["kernelgraph"] = ours_waited
    shapes = [(output.shape, output.dtype) for output in leaves(ours_waited())]
    if special or work.body is not black_scholes:
        plain = words(np, special and special.erf)
        found["NumPy"] = lambda: work.body(plain, *arrays)
    if ne and work.numexpr:
        ne.set_num_threads(OPTIONS.threads)
        names = {**dict(zip("abc", arrays, strict=False)), "at": arrays[0].T, "half": np.float32(0.5)}
        # A literal 0.5 is a double to numexpr, which would then compute in float64.
        formula = work.numexpr.replace("0.5", "half")
        found["numexpr"] = lambda: ne.evaluate(formula, local_dict=names, global_dict={})
    if nb and work.numba:
        kernel = nb.njit(parallel=not work.call)(work.numba)
        outs = [np.empty(shape, dtype) for shape, dtype in shapes]

        def numba_call() -> Any:
            kernel(*arrays, *outs)
            return outs

        found["numba warm"] = numba_call
    if jax:
        module = words(jax.numpy, jax.scipy.special.erf)
        traced = getattr(jax.nn, work.library) if work.library else (lambda *a: work.body(module, *a))
        jitted, given = jax.jit(traced), [jax.device_put(a) for a in arrays]
        found["jax"] = lambda: jax.block_until_ready(jitted(*given))
    if torch:
        found |= torch_candidates(work, arrays, shapes)
    if not work.call:
        found["copy (limit)"] = copy(arrays, shapes)
    return found


def torch_candidates(work: Workload, arrays: tuple[Any, ...], shapes: list[Any]) -> dict[str, Callable[[], Any]]:
    assert torch is not None
    torch.set_num_threads(OPTIONS.threads)
    given = [torch.from_numpy(a) for a in arrays]
    body = (lambda x: getattr(torch, work.library)(x, -1)) if work.library else (lambda *a: work.body(torch, *a))
    fresh = torch.compile(body, dynamic=False)
    outs = [torch.zeros(shape) for shape, _ in shapes]

    @torch.compile(dynamic=False)
    def into(outs: Any, *given: Any) -> None:
        for out, value in zip(outs, leaves(body(*given)), strict=True):
            out.copy_(value)

    def warm() -> Any:
        into(outs, *given)
        return outs

    torch._dynamo.reset()
    try:
        fresh(*given)
    except Exception as error:
        peers.skipped["torch.compile"] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        return {"torch eager": lambda: body(*given)}
    return {"torch.compile fresh": lambda: fresh(*given), "torch.compile warm": warm}


def copy(arrays: tuple[Any, ...], shapes: list[Any]) -> Callable[[], Any]:
    """A memcpy on all threads that reads and writes as many bytes in all as the workload must."""
    nbytes = traffic(arrays, shapes) // 2
    source, target = np.ones(nbytes, np.uint8), np.zeros(nbytes, np.uint8)
    cuts = [nbytes * i // OPTIONS.threads // 64 * 64 for i in range(OPTIONS.threads)] + [nbytes]
    parts = [(target[a:b], source[a:b]) for a, b in pairwise(cuts)]
    return lambda: list(pool.map(lambda part: np.copyto(*part), parts))


def traffic(arrays: tuple[Any, ...], shapes: list[Any]) -> int:
    """The bytes that must be read and written at least once."""
    return sum(a.nbytes for a in arrays) + sum(math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in shapes)


def check(outputs: Any, expected: Any) -> None:
    """Raises AssertionError where an answer is wrong: a fast wrong answer is no answer."""
    for output, value in zip(leaves(outputs), leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(output), value, rtol=2e-3, atol=2e-3)


def run(work: Workload) -> Result:
    """A peer whose answer is wrong is left out, with a note; ours has to be right."""
    arrays = work.arrays(16 if OPTIONS.small else 1)
    calls, notes = candidates(work, arrays), []
    expected = calls["NumPy"]() if "NumPy" in calls else tuple(map(np.asarray, leaves(calls["kernelgraph"]())))
    check(calls["kernelgraph"](), expected)
    for name in [name for name in calls if not name.startswith(("kernelgraph", "copy"))]:
        try:
            check(calls[name](), expected)
        except AssertionError as error:
            worst = next((line for line in str(error).splitlines() if "relative difference" in line), "wrong")
            notes.append(f"{name} is left out, its answer is wrong: {worst.strip()}")
            del calls[name]
    shapes = [(value.shape, value.dtype) for value in map(np.asarray, leaves(expected))]
    samples = interleave(calls, OPTIONS.seconds)
    return Result(work.title, samples, 0 if work.call else traffic(arrays, shapes), tuple(notes))


def main() -> None:
    chosen = [work for work in WORKLOADS if not OPTIONS.only or work.name in OPTIONS.only]
    if len(chosen) < len(OPTIONS.only):
        raise SystemExit(f"workloads: {', '.join(work.name for work in WORKLOADS)}")
    print(machine(OPTIONS.threads, PACKAGES), flush=True)
    for work in chosen:
        print("\n" + run(work).markdown(), flush=True)
    print("skipped:", "; ".join(f"{name} ({why})" for name, why in peers.skipped.items()) or "nothing")


if __name__ == "__main__":
    main()
