"""Random graphs: what the CPU device computes is what the graph means."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings

from kernelgraph.compiler import pipeline
from kernelgraph.compiler.passes.materialize import MemoryLayout
from kernelgraph.runtime.devices.cpu.device import CPUDevice
from kernelgraph.runtime.schedule.cost_model import MACHINES
from kernelgraph.runtime.schedule.schedule import schedule
from tests.compiler.programs import agree, graphs
from tests.counts import examples

DEVICE = CPUDevice()


def lowest(array: np.ndarray) -> int:
    """Address of the array's lowest byte."""
    return np.lib.array_utils.byte_bounds(array)[0]


def compiled(graph: Any, arrays: list[np.ndarray], streams: Any = "auto") -> list[np.ndarray]:
    layouts = [MemoryLayout(a.strides, a.ctypes.data % 16 == 0) for a in arrays]
    program = pipeline.compile_graph_to_program(graph, "cpu", layouts)
    plan = schedule(program, streams, machine=MACHINES["cpu"])
    executable = DEVICE.prepare(plan)
    memories: list[Any] = [None] * len(program.buffers)
    for number, array in zip(program.inputs, arrays, strict=True):
        memories[number] = lowest(array)
    kept = {o: DEVICE.allocate(program.buffers[o].nbytes) for o in program.outputs}
    for number, memory in kept.items():
        memories[number] = memory.address
    arena = DEVICE.allocate(plan.arena_bytes)
    for event in executable.run(memories, arena.address, (), ()):
        event.wait()
    results = []
    for output, number in zip(graph.outputs, program.outputs, strict=True):
        type = graph.nodes[output].type
        data = bytes((ctypes.c_char * type.nbytes).from_address(kept[number].address)) if type.nbytes else b""
        results.append(np.frombuffer(data, type.dtype).reshape(type.shape))
    return results


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(case=graphs(steps=10, largest=20))
def test_compiled_means_what_the_graph_means(case):
    graph, arrays = case
    agree(graph, arrays, compiled(graph, arrays))
