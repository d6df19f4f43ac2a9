"""A look inside the GPU's host path: the parts of one small call, and what graphs and streams cost, in microseconds.

    python benchmarks/gpu_probe.py

A part is timed by itself, in 30 rounds of 200 calls in a row with 2 ms of rest before each; medians, and the fastest.
"""

# ruff: noqa: E402
from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "src"), str(Path(__file__).parent)]
from gpu_time import device_microseconds

import kernelgraph as kg
from kernelgraph.dsl.array.array import Array
from kernelgraph.dsl.array.in_flight import waitall
from kernelgraph.dsl.interop.fast_import import import_arguments
from kernelgraph.dsl.jit.launcher import NOT_TAKEN
from kernelgraph.runtime.core.settings import override
from tests.gpu.gpu_runs import plan_of
from tests.gpu.test_device import branches


def host(call: Callable[[], Any], sync: Callable[[], None], calls: int = 200, rounds: int = 30) -> tuple[float, float]:
    """Median and fastest host time of one call, without the wait at the end of a round."""
    samples = []
    for _ in range(rounds):
        sync()
        waitall()
        time.sleep(2e-3)
        start = time.perf_counter()
        for _ in range(calls):
            call()
        samples.append((time.perf_counter() - start) / calls * 1e6)
    sync()
    return statistics.median(samples), min(samples)


def show(what: str, times: tuple[float, float]) -> None:
    print(f"- {what}: {times[0]:.2f} us median, {times[1]:.2f} fastest", flush=True)


def chain(x: Any) -> Any:
    return np.exp(-(x * x)) * np.sin(x) + 0.5 * x


def call_parts() -> None:
    """A call on one kernel of 4096 elements, and its parts by themselves."""
    f = kg.kernel_graph(device="cuda")(chain)
    x = kg.asarray(np.ones(4096, "f4"), device="cuda")
    for _ in range(100):
        f(x).wait()
    device: Any = x._device
    sync = device.synchronize
    fast: Any = f._fast
    if not hasattr(fast, "__globals__") or "start" not in fast.__globals__:
        print("- calls do not take the direct way")
        return
    scope = fast.__globals__
    start, spec, memory = scope["start"], x._spec, device.allocate(16384)
    print(f"\n### One call of the chain, 4096 elements: its parts\n\n{f._latest.text}")
    show("the whole call, guards on", host(lambda: f(x), sync))
    f._fast = lambda arguments, caller=0: x
    show("up to the fast path", host(lambda: f(x), sync))
    f._fast = fast
    show("memory: one block of 16 KiB taken and given back", host(lambda: device.allocate(16384), sync))
    places = x._memory.address, memory.address
    what = "launch and event: addresses into the graph, its launch, the event after it"
    show(what, host(lambda: start((), 0, *places), sync))
    stream = device._streams[False][0]
    show("of that, an event: taken from the pool and recorded", host(lambda: device.events.record(stream), sync))
    event = device.events.record(stream)
    show("result: the array", host(lambda: Array(memory, spec, device, event), sync))
    show("what it uses held until it is done", host(lambda: scope["track"]((event,), (memory, memory), 32768), sync))
    print("- the rest of the call: the lines of its function, and what is freed")
    f(x).wait()
    kept: list[Any] = []
    show("a call on the result of the call before", host(lambda: kept.append(f(kept.pop() if kept else x)), sync))
    with override(engine="sync"):
        show("a call one step at a time", host(lambda: f(x), sync, 50))
    ready = f(x).wait()
    show("a call and the wait for it", host(lambda: f(ready).wait(), sync, 50))
    print(f"- device time of the kernel: {device_microseconds(f, (x,)):.2f} us")


def tensors_of_torch() -> None:
    """A call on two arrays, on two CUDA tensors of PyTorch on its default and on another stream, and the parts."""
    try:
        import torch
    except ImportError:
        return
    if not torch.cuda.is_available():
        return
    print("\n### x * 2 + y on two arrays of 4096 elements\n")
    n = 4096
    f = kg.kernel_graph(lambda x, y: x * 2 + y, device="cuda")
    several = kg.kernel_graph(lambda x, y: (x * 2 + y, (x - y).sum()), device="cuda")
    a, b = (kg.asarray(np.ones(n, "f4"), device="cuda").wait() for _ in range(2))
    x, y = (torch.ones(n, device="cuda") for _ in range(2))
    sync = torch.cuda.synchronize
    for _ in range(50):
        f(a, b)
        f(x, y)
        several(a, b)
        several(x, y)
    fast = f._fast
    leaves, lender = import_arguments((x, y)) or ([], None)
    assert lender is not None and lender.handle is not None
    handle = lender.handle() or 1
    print(f"- calls with tensors take the fast path: {fast(leaves, handle) is not NOT_TAKEN}")
    ways: dict[str, Callable[[], Any]] = {
        "two arrays of ours": lambda: f(a, b),
        "two tensors": lambda: f(x, y),
        "an array of ours and a tensor": lambda: f(a, y),
        "of that: both tensors read": lambda: import_arguments((x, y)),
        "the current stream asked for": lender.handle,
        "whether it is being captured": lambda: a._device.is_capturing(handle),
        "the fast path on what was read": lambda: fast(leaves, handle),
        "the fast path on arrays of ours": lambda: fast((a, b)),
        "two kernels, arrays of ours": lambda: several(a, b),
        "two kernels, tensors": lambda: several(x, y),
        "PyTorch's own torch.add(y, x, alpha=2)": lambda: torch.add(y, x, alpha=2),
        "PyTorch's `x.__dlpack__(stream=1)`": lambda: x.__dlpack__(stream=1),
    }
    try:
        import cupy

        u, v = cupy.ones(n, "f4"), cupy.ones(n, "f4")
        ways["two arrays of CuPy"] = lambda: f(u, v)
    except ImportError:
        pass
    for call in ways.values():
        for _ in range(50):
            call()
    samples: dict[str, list[tuple[float, float]]] = {what: [] for what in ways}
    for _ in range(12):  # by turns: the host is quicker at some times than at others
        for what, call in ways.items():
            samples[what].append(host(call, sync, 200, 2))
    for what, times in samples.items():
        show(what, (statistics.median(median for median, _ in times), min(fastest for _, fastest in times)))
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(50):
            f(x, y)
        show("two tensors, on another stream of PyTorch's", host(lambda: f(x, y), sync))


def graphs_and_streams() -> None:
    """Eight branches as a graph and on streams: a call and the wait for it."""
    probe = kg.asarray(np.ones(16, "f4"), device="cuda")
    device: Any = probe._device
    print("\n### 8 x 4 x (matmul, relu): a call and the wait for all of it\n")
    for n in (256, 1024):
        for streams in (1, 8):
            executable = device.prepare(plan_of(branches(8, 4, n), streams))
            plan = executable.plan
            inputs = [device.allocate(4 * n * n) for _ in plan.program.inputs]
            for memory in inputs:
                device.upload(np.zeros((n, n), "f4"), memory).wait()
            memories: list[Any] = [None] * len(plan.program.buffers)
            for b, memory in zip(plan.program.inputs, inputs, strict=True):
                memories[b] = memory.address
            outputs = [device.allocate(4 * n * n) for _ in plan.program.outputs]
            for b, memory in zip(plan.program.outputs, outputs, strict=True):
                memories[b] = memory.address
            arena = device.allocate(max(1, plan.arena_bytes))

            def once(executable: Any = executable, memories: Any = memories, arena: Any = arena) -> None:
                for event in executable.run(memories, arena.address, (), ()):
                    event.wait()

            for mode in ("graph", "streams"):
                replay = executable._replay
                if mode == "streams":
                    executable._replay = None
                for _ in range(5):
                    once()
                times = host(once, device.synchronize, 20, 10)
                executable._replay = replay
                show(f"{n} x {n}, {plan.streams} streams, {mode}{''.join(executable.notes)}", times)


def main() -> None:
    print(kg.asarray(np.ones(1), device="cuda")._device.properties)  # type: ignore[attr-defined]
    call_parts()
    tensors_of_torch()
    graphs_and_streams()


if __name__ == "__main__":
    main()
