"""A look inside the GPU's host path: what one call, one launch, one event and one graph replay cost in microseconds."""

# ruff: noqa: E402
from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "src")]
import kernelgraph as kg
from kernelgraph.runtime.devices.cuda import CUDADevice
from kernelgraph.runtime.settings import override
from tests.gpu.gpu_runs import plan_of
from tests.gpu.test_device import branches


def microseconds(call: Callable[[], Any], sync: Callable[[], None], calls: int = 200, rounds: int = 15) -> float:
    """Host time of one call, without the wait at the end of a round."""
    samples = []
    for _ in range(rounds):
        sync()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        samples.append((time.perf_counter() - start) / calls)
    sync()
    return statistics.median(samples) * 1e6


def main() -> None:
    device = CUDADevice(0)
    print(device.properties)

    @kg.kernel_graph(device="cuda")
    def chain(x: Any) -> Any:
        return np.exp(-(x * x)) * np.sin(x) + 0.5 * x

    x = kg.asarray(np.ones(4096, "f4"), device="cuda")
    for _ in range(20):
        chain(x).wait()
    sync = device.synchronize
    print("call of the decorated function", microseconds(lambda: chain(x), sync))
    stream = device.streams_for((False,), ())[0]
    print("record an event", microseconds(lambda: device.events.record(stream), sync))
    print("allocate 16 KiB", microseconds(lambda: device.allocate(16384), sync))
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
                taken = microseconds(once, sync, 20)
                executable._replay = replay
                print(f"8 x 4 x ({n} matmul, relu), {plan.streams} streams, {mode}: {taken:.1f}", executable.notes)
    with override(engine="sync"):
        print("call in sync mode", microseconds(lambda: chain(x), sync, 20))


if __name__ == "__main__":
    main()
