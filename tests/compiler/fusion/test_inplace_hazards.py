"""Which buffer an assignment writes to: in place where nothing that is still read is lost, else a second one."""

from __future__ import annotations

import random

import numpy as np
import pytest

from kernelgraph.compiler import pipeline
from kernelgraph.compiler.core.types import ArrayType
from kernelgraph.compiler.fusion.fuse import fuse
from kernelgraph.compiler.fusion.inplace_hazards import inplace_overwrites_between_nodes
from kernelgraph.compiler.graph.builder import GraphBuilder
from kernelgraph.compiler.graph.graph import Graph, Node
from kernelgraph.compiler.passes.materialize import MemoryLayout, materialize_copies, materialized_regions_of_assembly
from kernelgraph.compiler.targets.target import target_of
from kernelgraph.runtime.core.box_index import Box, boxes_meet

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
        graph = pipeline.run_graph_pass_stages(assigned(random.Random(seed)), TARGET)[0]
        pipeline.run_fusion_stage(graph, layouts_of(graph), TARGET)
        updates = frozenset(number for number, node in enumerate(graph.nodes) if node.op == "update")
        fuse(
            materialize_copies(graph, layouts_of(graph), updates, updates), TARGET
        )  # where all is copied nothing conflicts


def test_parts_are_stored_before_what_replaces_them() -> None:
    """Kernels that read one array are not joined over an assignment: it needs no second buffer."""
    b = GraphBuilder()
    x = b.input(ArrayType((4,), np.float32))
    graph = b.finish([b.update(b.concat([x, x], 0), x, (0,), (2,))])
    prepared, fusion = pipeline.run_fusion_stage(graph, layouts_of(graph), TARGET)
    assert sum(node.op == "assemble" for node in prepared.nodes) == 1
    stores = [group.stores for group in fusion.groups if group.kind == "kernel"]
    assert len(stores) == 2 and prepared.nodes[stores[1][0]].type.shape == (4,)


def updated(b: GraphBuilder, turns: int) -> Graph:
    """Windows of one array that are computed from others, each window another one than the last."""
    x, y = b.map("add", b.input(ArrayType((64,), np.float32)), 1), b.input(ArrayType((64,), np.float32))
    for i in range(turns):
        low, length = i % 13, 27 + i * i % 23
        value = b.map("multiply", b.slice(y, (low + 1,), (1,), (length,)), b.slice(x, (i % 60,), (1,), (1,)))
        x = b.update(x, value, (low,), (1,))
    return b.finish([x])


def prepared_of(graph: Graph) -> Graph:
    return materialize_copies(graph, layouts_of(graph), frozenset())


def test_orders_of_updates_grow_with_the_updates() -> None:
    few, many = (len([*inplace_overwrites_between_nodes(prepared_of(updated(GraphBuilder(), n)))]) for n in (500, 2000))
    assert many < 6 * few  # pairs of all: 16


@pytest.mark.parametrize("read", [(3,), (5,), (8,), (40,)])
def test_a_conflict_that_is_sure_is_not_tried(read: tuple[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """What a kernel would read and overwrite is copied before anything is fused, and only that."""
    b = GraphBuilder()
    x = b.map("add", b.input(ArrayType((64,), np.float32)), 1)
    value = b.map("multiply", b.map("sin", b.slice(x, read, (1,), (4,))), 2.5)
    graph = b.finish([b.update(x, value, (5,), (1,))])
    tried: list[Graph] = []
    monkeypatch.setattr(pipeline, "fuse", lambda graph, target: tried.append(graph) or fuse(graph, target))
    prepared, _ = pipeline.run_fusion_stage(graph, layouts_of(graph), TARGET)
    copies = sum(node.op == "assemble" for node in prepared.nodes)
    assert tried == [prepared] and copies == (read not in [(5,), (40,)])


def test_an_element_computed_from_itself_is_written_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Elements are read and written as arrays without axes; what is read where it is written is no conflict."""
    b = GraphBuilder()
    x = b.map("add", b.input(ArrayType((64,), np.float64)), 1)
    for k in (5, 9, 5, 7):
        one, other = (b.reshape(b.slice(x, (at,), (1,), (1,)), ()) for at in (k, 20))
        x = b.update(x, b.reshape(b.map("add", b.map("multiply", one, 0.5), other), (1,)), (k,), (1,))
    graph = b.finish([x])
    tried: list[Graph] = []
    monkeypatch.setattr(pipeline, "fuse", lambda graph, target: tried.append(graph) or fuse(graph, target))
    prepared, _ = pipeline.run_fusion_stage(graph, layouts_of(graph), TARGET)
    assert tried == [prepared] and not [node for node in prepared.nodes if node.op == "assemble"]


def test_no_order_of_stores_is_lost() -> None:
    """What an update writes over is stored before it, if not by a pair of its own then through others."""
    for seed in range(150):
        graph = prepared_of(assigned(random.Random(seed)))
        before: dict[int, set[int]] = {}
        for earlier, later in inplace_overwrites_between_nodes(graph):
            before.setdefault(later, set()).add(earlier)

        def all_before(node: int, before: dict[int, set[int]] = before) -> set[int]:
            found, todo = set[int](), [node]
            while todo:
                new = before.get(todo.pop(), set()) - found
                found |= new
                todo += new
            return found

        for node in graph.nodes:
            if node.op == "update":
                later = stored_for(graph, node.args[1])
                region, version = box_of(graph, node.args[1], node.attr("starts"), node.attr("steps")), node.args[0]
                while version is not None:
                    inner = graph.nodes[version]
                    parts = (
                        [*zip(inner.args, materialized_regions_of_assembly(inner), strict=True)]
                        if is_assembly(inner)
                        else []
                    )
                    for part, place in parts[inner.op == "update" :]:
                        if boxes_meet(box_of(graph, part, *place), region):
                            assert stored_for(graph, part) in all_before(later) | {later}
                    version = inner.args[0] if inner.op == "update" else None


def is_assembly(node: Node) -> bool:
    return node.op in ("update", "assemble")


def stored_for(graph: Graph, part: int) -> int:
    return graph.nodes[part].args[0] if graph.nodes[part].op == "reshape" else part


def box_of(graph: Graph, part: int, starts: tuple[int, ...], steps: tuple[int, ...]) -> Box:
    ends = [(a, a + t * (n - 1)) for a, t, n in zip(starts, steps, graph.nodes[part].type.shape, strict=True)]
    return tuple((min(end), max(end)) for end in ends)
