"""Programs and calls of executables on a GPU in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings

from kernelgraph.compiler import pipeline
from kernelgraph.compiler.core.types import ArrayType
from kernelgraph.compiler.graph.builder import GraphBuilder
from kernelgraph.runtime.devices.cuda import device as cuda
from kernelgraph.runtime.schedule.batching import pack_small_launches, schedule_matmul_batches
from kernelgraph.runtime.schedule.cost_model import MACHINES
from kernelgraph.runtime.schedule.schedule import schedule
from tests.counts import examples
from tests.runtime.cuda_fake import FakeBlas, FakeContext

relaxed = settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))


def device_on(context: FakeContext, replay: bool = False) -> cuda.CUDADevice:
    made = cuda.CUDADevice(0, context)
    made.blas = FakeBlas(context, made.pool.allocate)  # type: ignore[assignment]
    if not replay:
        made.graph_replay_of_executable = lambda executable, way: None  # type: ignore[method-assign]
    return made


def counted(device: Any, name: str) -> int:
    return sum(entry[0] == name for entry in device.context.driver.log)


def ready(graph: Any, streams: Any = "max") -> Any:
    program = pipeline.compile_graph_to_program(graph, "cuda")
    return schedule(program, streams, machine=MACHINES["cuda"])


def call(
    device: cuda.CUDADevice, executable: Any, inputs: list[tuple[Any, Any]], timed: bool = False
) -> tuple[list[Any], Any]:
    """One call on (memory, event) inputs; the outputs' memories, and the events with all that must stay alive."""
    plan = executable.plan
    memories: list[Any] = [None] * len(plan.program.buffers)
    after = []
    for buffer, (memory, event) in zip(plan.program.inputs, inputs, strict=True):
        memories[buffer] = memory.address
        if event is not None:
            after.append((buffer, event))
    outputs = {b: device.allocate(plan.program.buffers[b].nbytes) for b in dict.fromkeys(plan.program.outputs)}
    for b, memory in outputs.items():
        memories[b] = memory.address
    arena = device.allocate(plan.arena_bytes) if plan.arena_bytes else None
    run = executable.run_timed if timed else executable.run
    events = run(memories, arena.address if arena else None, (), after)
    return [outputs[b] for b in plan.program.outputs], (events, arena, inputs)


def downloaded(device: cuda.CUDADevice, graph: Any, memories: list[Any], events: Any) -> list[np.ndarray[Any, Any]]:
    """The outputs of a call, each when its event has happened."""
    found = []
    for output, memory, event in zip(graph.outputs, memories, events, strict=True):
        event.wait()
        type = graph.nodes[output].type
        found.append(np.empty(type.shape, type.dtype))
        device.download(memory, found[-1])
    return found


def chain(kernels: int = 1) -> Any:
    """x -> x + x, and for more kernels sums over one axis after another."""
    b = GraphBuilder("chain")
    x = b.input(ArrayType((40,), np.dtype("f4")))
    if kernels == 1:
        return b.finish([b.map("add", x, x)])
    square = b.reshape(x, (8, 5))
    found = [b.map("exp", b.reduce("sum", square, (k % 2,))) for k in range(2)]
    found += [b.map("sin", b.reduce("sum", v, (0,))) for v in found]
    return b.finish(found)


def uneven() -> Any:
    """One output after one kernel, the other after a chain of six."""
    b = GraphBuilder("uneven")
    x = b.reshape(b.input(ArrayType((40,), np.dtype("f4"))), (8, 5))
    value = x
    for k in range(6):
        value = b.map("negative", b.reduce("max", b.map("add", value, x), (k % 2,)))
        value = b.broadcast(b.reshape(value, (1, 5) if k % 2 == 0 else (8, 1)), (8, 5))
    return b.finish([b.reduce("max", x, (0,)), value])


def start(device: cuda.CUDADevice, graph: Any) -> tuple[Any, Any]:
    plan = ready(graph)
    memory = device.allocate(160)
    event = device.upload(np.arange(40, dtype="f4"), memory)
    return device.prepare(plan), [(memory, event)]


def branches(count: int, depth: int, n: int = 4, dtype: str = "f8") -> Any:
    b = GraphBuilder("branches")
    kind = ArrayType((n, n), np.dtype(dtype))
    x, weights = b.input(kind), [b.input(kind) for _ in range(count)]
    found = []
    for w in weights:
        value = x
        for turn in range(depth):
            value = b.matmul(value, w)
            value = b.map("maximum", value, 0) if turn < depth - 1 or w is not weights[0] else value
        found.append(value)
    return b.finish(found)


def forms(program: Any) -> list[Any]:
    machine = MACHINES["cuda"]
    batched = schedule_matmul_batches(program, machine)
    return [program, batched, pack_small_launches(program, machine), pack_small_launches(batched, machine)]
