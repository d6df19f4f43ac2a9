"""1,000 runs with random delays and random legal orders: not one bit differs from the same plan, one step at a time."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from kernelgraph.compiler.core.types import ArrayType
from kernelgraph.compiler.graph.builder import GraphBuilder
from kernelgraph.compiler.passes.materialize import MemoryLayout
from kernelgraph.compiler.pipeline import compile_graph_to_program
from kernelgraph.runtime.core.settings import override
from kernelgraph.runtime.devices.cpu.device import CPUDevice
from kernelgraph.runtime.program.plan import Wait
from kernelgraph.runtime.schedule.cost_model import MACHINES
from kernelgraph.runtime.schedule.schedule import MODES, schedule
from tests.compiler.programs import graphs

from .chaos_runs import CASES, chained, differences

OPTIONS = [("max", "balanced"), (2, "small"), ("max", "concurrency"), (3, "balanced")]
CALLS = 12  # 10 programs x 3 plans x 12 = 360
CHAINED = 40
GRAPHS, RUNS = 75, 8  # 600


@pytest.mark.parametrize("name", CASES)
def test_programs(name: str) -> None:
    which = list(CASES).index(name)
    for i in range(3):
        streams, memory = OPTIONS[(which + i) % len(OPTIONS)]
        assert differences(name, "cpu", streams, memory, CALLS) == 0


def test_calls_on_the_results_of_calls() -> None:
    assert chained("cpu", CHAINED) == 0


def test_there_are_a_thousand_runs() -> None:
    assert len(CASES) * 3 * CALLS + CHAINED + GRAPHS * RUNS >= 1000


DEVICE = CPUDevice()
turns = count()


class Call:
    """One call of an executable on arrays; what it uses lives as long as the object."""

    def __init__(self, executable: Any, arrays: list[np.ndarray]) -> None:
        plan = executable.plan
        memories: list[Any] = [None] * len(plan.program.buffers)
        self.kept: list[Any] = [arrays]
        for number, array in zip(plan.program.inputs, arrays, strict=True):
            memories[number] = np.lib.array_utils.byte_bounds(array)[0]
        self.outputs = [DEVICE.allocate(max(1, plan.program.buffers[b].nbytes)) for b in plan.program.outputs]
        self.sizes = [plan.program.buffers[b].nbytes for b in plan.program.outputs]
        for b, memory in zip(plan.program.outputs, self.outputs, strict=True):
            memories[b] = memory.address
        self.arena = DEVICE.allocate(max(1, plan.arena_bytes))
        for memory in (*self.outputs, self.arena):  # what a racing step reads too early shall not be right by chance
            ctypes.memset(memory.address, 0xA5, memory.nbytes)
        self.events = executable.run(memories, self.arena.address, (), ())

    def results(self) -> list[bytes]:
        for event in self.events:
            event.wait()
        return [bytes(memory)[:n] for memory, n in zip(self.outputs, self.sizes, strict=True)]


@settings(max_examples=GRAPHS, deadline=None, suppress_health_check=list(HealthCheck))
@given(case=graphs(steps=16, largest=12))
def test_random_graphs(case: Any) -> None:
    graph, arrays = case
    program = compile_graph_to_program(graph, "cpu", [MemoryLayout(a.strides, a.ctypes.data % 16 == 0) for a in arrays])
    if len(set(program.outputs)) < len(program.outputs):
        return  # two names of one buffer: each call would need one memory for both
    turn = next(turns)
    streams = ("max", 2, "max", 3)[turn % 4]
    executable = DEVICE.prepare(schedule(program, streams, MODES[turn % 3], machine=MACHINES["cpu"]))
    with override(engine="sync"):
        wanted = Call(executable, arrays).results()
    with override(engine="chaos"):
        flying = [Call(executable, arrays) for _ in range(RUNS)]
        for call in flying:
            assert call.results() == wanted


def test_chaos_shows_a_plan_without_its_waits() -> None:
    """The runs above could not have found anything if this one did not."""
    n = 256
    builder = GraphBuilder("racy")
    x = builder.input(ArrayType((n, n), np.dtype(np.float32)))
    ends = []
    for i in range(4):
        y = builder.map("add", x, i)
        for _ in range(3):
            y = builder.map("sin", builder.reduce("sum", builder.map("sin", y), (0,)))
            y = builder.broadcast(y, (n, n))
        ends.append(y)
    graph = builder.finish([builder.map("add", builder.map("add", *ends[:2]), builder.map("add", *ends[2:]))])
    plan = schedule(compile_graph_to_program(graph, "cpu"), "max", machine=MACHINES["cpu"])
    assert plan.waits > 0
    racy = replace(plan, steps=tuple(s for s in plan.steps if not isinstance(s, Wait)))
    executable = DEVICE.prepare(racy)
    arrays = [np.random.default_rng(0).random((n, n), np.float32)]
    with override(engine="sync"):
        wanted = Call(executable, arrays).results()
    with override(engine="chaos"):
        assert any(Call(executable, arrays).results() != wanted for _ in range(300))
