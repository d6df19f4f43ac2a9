"""Graphs on several devices: parts and moves give what the graph gives; the verifier tells right from wrong."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from kernelgraph.compiler.core.cost import CPU
from kernelgraph.compiler.core.types import ArrayType
from kernelgraph.compiler.graph.builder import GraphBuilder
from kernelgraph.compiler.graph.control_flow import Loop, add_control_flow_node
from kernelgraph.compiler.graph.graph import Graph, GraphError, graph_and_bodies, graph_has_place_nodes
from kernelgraph.compiler.graph.interpret import interpret_graph
from kernelgraph.compiler.placement.clusters import (
    LINKS,
    DeviceLink,
    choose_device_slots,
    clusters_of_placed_nodes,
    place_clusters,
)
from kernelgraph.compiler.placement.partition import Move, Part, partition_graph_by_device
from kernelgraph.compiler.placement.places import devices_of_placed_graph, place_nodes_by_arguments
from kernelgraph.compiler.placement.replicate import graph_exchanges_between_devices, replicate_graph_on_devices
from kernelgraph.compiler.targets.target import target_of
from kernelgraph.runtime.core.errors import PlanError
from kernelgraph.runtime.verify.plan import find_plan_violations, require_safe_plan
from tests.compiler.placement.random_places import F64, NUMBER, plan_of, random_graph, simulate, verify_random_plans


@pytest.mark.parametrize("seed", range(6))
def test_the_verifier_tells_right_plans_from_wrong_ones(seed: int) -> None:
    """Parts give what the graph gives; the verifier finds what a machine with a memory for each device stumbles over,
    and nothing else."""
    verdicts = verify_random_plans(Random(seed), 60)
    assert (verdicts.refused, verdicts.wrong, verdicts.missed) == (0, 0, [])
    assert {"dropped", "moved", "device", "value", "read"} <= verdicts.killed.keys()
    assert verdicts.killed.total() > 400 and verdicts.accepted
    assert all("nothing has recorded the event" in why for why in verdicts.doubted)


@pytest.mark.parametrize("seed", range(3))
def test_replicas_give_what_each_device_gives(seed: int) -> None:
    """Of random bodies, and sums over devices of random values in them."""
    rng = Random(seed)
    for _ in range(30):
        count = rng.randint(1, 4)
        body = random_graph(rng, 1, placing=0.0)
        reads_peers = rng.random() < 0.5
        replicas = replicate_graph_on_devices(body, count, reads_peers, reads_peers and rng.random() < 0.5)
        targets = [r for _ in body.outputs for r in range(count)]
        homes = [r for _ in body.inputs for r in range(count)] if reads_peers else None
        partition = partition_graph_by_device(replicas.graph, replicas.slots, targets, homes)
        plan = plan_of(partition, count, reads_peers)
        assert not find_plan_violations(plan)
        arrays = [np.full((3, 4), rng.random()) for _ in range(len(body.inputs) * count)]
        found = simulate(plan, partition, arrays, [NUMBER])
        for r in range(count):
            for got, want in zip(found[r::count], interpret_graph(body, arrays[r::count], [NUMBER]), strict=True):
                np.testing.assert_array_equal(got, want)


def two_branches() -> Graph:
    b = GraphBuilder("two")
    x, w, v = (b.input(ArrayType((512, 512), F64)) for _ in range(3))
    left = b.map("maximum", b.matmul(b.matmul(x, w), w), 0.0)
    right = b.map("maximum", b.matmul(b.matmul(x, v), v), 0.0)
    return b.finish([b.map("add", left, right)])


def test_branches_go_to_different_devices_if_that_pays() -> None:
    graph = two_branches()
    places = place_nodes_by_arguments(graph, [("cpu", 0), ("cpu", 1)])
    clusters = clusters_of_placed_nodes(graph, places, CPU)
    assert [len(c.nodes) for c in clusters] == [3, 3, 1]
    assert sorted(place_clusters(clusters, 2, DeviceLink(10.0, 1e5))) in ([0, 0, 1], [0, 1, 1])
    assert place_clusters(clusters, 2, DeviceLink(1e6, 1e5)) == [0, 0, 0]


@pytest.mark.parametrize("count", [2, 3, 5, 8])
def test_a_result_for_the_first_device_is_made_there(count: int) -> None:
    """Whichever branch of a sum ends last: to add it where it is would copy the sum there, and the result back."""
    b = GraphBuilder("sum")
    type_ = ArrayType((1024, 1024), np.dtype(np.float32))
    x, total = b.input(type_), None
    for _ in range(count):
        w, y = b.input(type_), x
        for _ in range(4):
            y = b.map("maximum", b.matmul(y, w), 0.0)
        total = y if total is None else b.map("add", total, y)
    assert total is not None
    graph = b.finish([total])
    places = place_nodes_by_arguments(graph, [("cuda", 0), ("cuda", 1)])
    slots = choose_device_slots(graph, places, target_of("cuda").model, LINKS["cuda"])
    assert slots[graph.outputs[0]] == 0 and 1 in slots


def test_a_value_is_copied_once_to_each_device() -> None:
    b = GraphBuilder("once")
    x = b.map("negative", b.input(ArrayType((4,), F64)))
    outputs = [b.map(op, b.placed(x, ("cpu", 1))) for op in ("exp", "sin", "cos")]
    graph = b.finish(outputs)
    places = place_nodes_by_arguments(graph, devices_of_placed_graph(graph, [("cpu", 0)]))
    steps = partition_graph_by_device(graph, places.slots, [None] * 3).steps
    assert [type(s) for s in steps] == [Part, Move, Part]


def test_a_place_in_a_loop_is_refused() -> None:
    from kernelgraph.compiler.graph.graph import Node

    b = GraphBuilder("body")
    body = b.finish([b.placed(b.input(ArrayType((4,), F64)), ("cpu", 1))])
    control = type("Control", (), {"bodies": (body,)})()
    node = Node("input", (), ArrayType((4,), F64), (("control", control),))
    with pytest.raises(GraphError, match="body of a loop"):
        place_nodes_by_arguments(Graph((node,), (0,), (), (0,)), [("cpu", 0)])


def test_what_is_wrong_is_named() -> None:
    graph = two_branches()
    plan = plan_of(
        partition_graph_by_device(graph, [None] * 3 + [0, 0, 0, 1, 1, 1, 0, 1][: len(graph.nodes) - 3], [0]), 2
    )
    require_safe_plan(plan)
    with pytest.raises(PlanError, match=r"t0 part0: the task is never launched"):
        require_safe_plan(replace(plan, steps=plan.steps[1:]))


def test_bodies_of_loops_in_loops_are_looked_at_once() -> None:
    """Each of a loop's results is a node that has its body: 2 ** 40 ways lead to the innermost one."""
    type_ = ArrayType((4,), F64)
    graph = Graph((), (), (), ())
    for depth in range(40):
        b = GraphBuilder(f"body {depth}")
        values = [b.input(type_), b.input(type_)]
        results = add_control_flow_node(b, Loop(graph, 2, (), 3), values) if depth else values
        graph = b.finish(results)
    assert len(list(graph_and_bodies(graph))) == 40
    assert not graph_has_place_nodes(graph)
    assert not graph_exchanges_between_devices(graph)
