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
from kernelgraph.dsl.array import Array
from kernelgraph.dsl.flights import waitall
from kernelgraph.runtime.settings import override
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
    entry, _ = f._last
    if entry is None:
        print("- calls do not take the direct way")
        return
    scope, own = entry.direct.__globals__, entry.direct
    start, spec, memory = scope["start"], x._spec, device.allocate(16384)
    print(f"\n### One call of the chain, 4096 elements: its parts\n\n{entry.text}")
    show("the whole call, guards on", host(lambda: f(x), sync))
    entry.direct = lambda arguments: x
    show("key and guards: up to the entry's own function", host(lambda: f(x), sync))
    entry.direct = own
    show("memory: one block of 16 KiB taken and given back", host(lambda: device.allocate(16384), sync))
    places = x._memory.address, memory.address
    what = "launch and event: addresses into the graph, its launch, the event after it"
    show(what, host(lambda: start(None, *places), sync))
    stream = device._streams[False][0]
    show("of that, an event: taken from the pool and recorded", host(lambda: device.events.record(stream), sync))
    event = device.events.record(stream)
    show("result: the array", host(lambda: Array(memory, spec, device, event), sync))
    show("what it uses held until it is done", host(lambda: scope["fly"]((event,), (memory, memory), 32768), sync))
    print("- the rest of the call: the lines of its function, and what is freed")
    f(x).wait()
    kept: list[Any] = []
    show("a call on the result of the call before", host(lambda: kept.append(f(kept.pop() if kept else x)), sync))
    with override(engine="sync"):
        show("a call one step at a time", host(lambda: f(x), sync, 50))
    ready = f(x).wait()
    show("a call and the wait for it", host(lambda: f(ready).wait(), sync, 50))
    print(f"- device time of the kernel: {device_microseconds(f, (x,)):.2f} us")


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
    graphs_and_streams()


if __name__ == "__main__":
    main()
