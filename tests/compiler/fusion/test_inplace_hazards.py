"""Which buffer an assignment writes to: in place where nothing that is still read is lost, else a second one."""

from __future__ import annotations

import random

import numpy as np
import pytest

from kernelgraph.compiler import pipeline
from kernelgraph.compiler.core.types import ArrayType
from kernelgraph.compiler.fusion.fuse import fuse
from kernelgraph.compiler.graph.builder import GraphBuilder
from kernelgraph.compiler.graph.graph import Graph
from kernelgraph.compiler.passes.materialize import MemoryLayout, materialize_copies
from kernelgraph.compiler.targets.target import target_of

TARGET = target_of("cpu")
PARTS = [((0,), (2,), (4,)), ((1,), (2,), (4,)), ((7,), (-2,), (4,)), ((0,), (1,), (4,)), ((2,), (1,), (4,))]


def assigned(rng: random.Random) -> Graph:
    """Parts of arrays put together and assigned to each other, time and again."""
    b = GraphBuilder()
    values = [b.input(ArrayType((8,), np.float32)), b.input(ArrayType((8,), np.float32))]
    for _ in range(rng.randint(2, 6)):
        x, y = rng.choice(values), rng.choice(values)
        part, other = b.slice(x, *rng.choice(PARTS)), b.slice(y, *rng.choice(PARTS))
        kind = rng.randrange(4)
        if kind == 0:
            values.append(b.concat([part, other], 0))
        elif kind == 1:
            values.append(b.map("add", x, rng.choice((y, 1))))
        else:
            values.append(b.update(x, other, *rng.choice(PARTS)[:2]))
    return b.finish(rng.sample(values[2:], min(2, len(values) - 2)))


def layouts_of(graph: Graph) -> list[MemoryLayout]:
    return [MemoryLayout.contiguous(graph.nodes[i].type) for i in graph.inputs]


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_every_assignment_has_a_buffer(first: int) -> None:
    for seed in range(first, first + 100):
        graph = pipeline.alternative_forms(assigned(random.Random(seed)), TARGET)[0]
        pipeline.cover_with_groups(graph, layouts_of(graph), TARGET)
        updates = frozenset(number for number, node in enumerate(graph.nodes) if node.op == "update")
        fuse(
            materialize_copies(graph, layouts_of(graph), updates, updates), TARGET
        )  # where all is copied nothing conflicts


def test_parts_are_stored_before_what_replaces_them() -> None:
    """Kernels that read one array are not joined over an assignment: it needs no second buffer."""
    b = GraphBuilder()
    x = b.input(ArrayType((4,), np.float32))
    graph = b.finish([b.update(b.concat([x, x], 0), x, (0,), (2,))])
    prepared, fusion = pipeline.cover_with_groups(graph, layouts_of(graph), TARGET)
    assert sum(node.op == "assemble" for node in prepared.nodes) == 1
    stores = [group.stores for group in fusion.groups if group.kind == "kernel"]
    assert len(stores) == 2 and prepared.nodes[stores[1][0]].type.shape == (4,)
