"""Groups that are lowered in numbers of their own, beside each group lowered as it stands."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from kernelgraph.compiler import pipeline
from kernelgraph.compiler.core.types import ArrayType
from kernelgraph.compiler.graph.builder import GraphBuilder
from kernelgraph.compiler.graph.graph import Graph, Value
from kernelgraph.compiler.lowering.equal_groups import EqualGroupsLowering
from kernelgraph.compiler.lowering.lower import lower_to_program
from kernelgraph.compiler.passes.materialize import MemoryLayout
from kernelgraph.compiler.targets.target import target_of
from tests.compiler.programs import graphs
from tests.counts import examples

FACTORS = (0.3, 0.7, 1.5, 2.0, 7.0, 0.3 + 2**-40, float("inf"), -0.0)


def as_they_stand(self: EqualGroupsLowering, group: Any, buffers: Any, line: str) -> Any:
    lowering = self.lower.__self__  # type: ignore[attr-defined]
    return lowering._kernel_tasks(self.graph, group, self.places, buffers, line)[0]


def assert_lowered_alike(graph: Graph, target_name: str) -> None:
    target = target_of(target_name)
    layouts = [MemoryLayout.contiguous(graph.nodes[i].type) for i in graph.inputs]
    for form in pipeline.run_graph_pass_stages(graph, target, layouts=layouts):
        prepared, fusion = pipeline.run_fusion_stage(form, layouts, target)
        found = lower_to_program(prepared, fusion, layouts, target)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(EqualGroupsLowering, "tasks_of", as_they_stand)
            wanted = lower_to_program(prepared, fusion, layouts, target)
        assert found == wanted
        assert [t.flops for t in found.tasks] == [t.flops for t in wanted.tasks]
        assert [t.nodes for t in found.tasks] == [t.nodes for t in wanted.tasks]


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@settings(max_examples=examples(60))
@given(case=graphs(steps=16))
def test_random_graphs(target: str, case: tuple[Graph, list[np.ndarray]]) -> None:
    assert_lowered_alike(case[0], target)


def repeated(rng: random.Random, dtype: Any) -> Graph:
    """A few kinds of steps on windows of arrays, time and again, with other places and factors."""
    b = GraphBuilder()
    b.where = lambda: f"program.py:{len(b.nodes)}"
    x, y = b.input(ArrayType((64,), dtype)), b.input(ArrayType((8, 12), dtype))
    results: list[Value] = []
    for _ in range(24):
        kind, low, length = rng.randrange(6), rng.randrange(24), rng.choice((8, 9, 32))
        part, factor = b.slice(x, (low,), (1,), (length,)), b.const(rng.choice(FACTORS), dtype)
        if kind == 0:
            results.append(b.map("multiply", part, factor))
        elif kind == 1:
            shifted = b.slice(x, (low + rng.randrange(4),), (1,), (length,))
            results.append(b.map("add", b.map("multiply", part, factor), b.map("divide", shifted, factor)))
        elif kind == 2:
            results.append(b.map("multiply", b.reduce("sum", b.map("power", part, factor), (0,)), factor))
        elif kind == 3:
            rows = b.slice(y, (rng.randrange(4), 0), (1, 1), (4, 12))
            results.append(b.map("multiply", rows, b.slice(y, (rng.randrange(8), 0), (1, 1), (1, 12))))
        elif kind == 4:
            x = b.update(x, b.map("add", part, factor), (rng.randrange(0, 24),), (1,))
        else:
            even, odd = b.map("add", part, factor), b.map("sqrt", part)
            ends = [b.reshape(v, (length, 1)) for v in (even, odd)]
            results.append(b.reshape(b.concat(ends, 1), (2 * length,)))
    return b.finish([*results, x])


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.complex64])
def test_steps_that_repeat(dtype: Any, target: str) -> None:
    for seed in range(6):
        assert_lowered_alike(repeated(random.Random(seed), np.dtype(dtype)), target)


def test_a_kind_of_group_is_lowered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    b = GraphBuilder()
    x = b.input(ArrayType((400,), np.float64))
    found = b.map("negative", x)
    for i in range(50):
        part = b.slice(x, (2 * i + 1,), (1,), (100,))
        found = b.update(found, b.map("multiply", part, 0.1 + i), (2 * i,), (1,))
    lowered = []
    lower = EqualGroupsLowering.tasks_of

    def tasks_of(self: EqualGroupsLowering, *given: Any) -> Any:
        found = lower(self, *given)
        lowered.append(len(self.known))
        return found

    monkeypatch.setattr(EqualGroupsLowering, "tasks_of", tasks_of)
    pipeline.compile_graph_to_program(b.finish([found]))
    assert len(lowered) >= 50
    assert lowered[-1] <= 8
