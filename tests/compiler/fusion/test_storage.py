"""What is stored and what is computed again: the least cost, the same bits, and the text of some decisions."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

from kernelgraph.compiler import pipeline
from kernelgraph.compiler.core.minimum_cut import NEVER, FlowNetwork
from kernelgraph.compiler.core.types import ArrayType
from kernelgraph.compiler.fusion.groups import Fusion
from kernelgraph.compiler.fusion.storage import MOST_PLACES, UNIT, StoragePlan
from kernelgraph.compiler.graph.builder import GraphBuilder
from kernelgraph.compiler.graph.graph import Graph, Value
from kernelgraph.compiler.targets.target import target_of
from tests.compiler.fusion.stencil_graphs import differences, stencil_graph
from tests.counts import examples


def fused(graph: Graph, target: str) -> tuple[Graph, Fusion]:
    layouts = [pipeline.MemoryLayout.contiguous(graph.nodes[i].type) for i in graph.inputs]
    form = pipeline.run_graph_pass_stages(graph, target_of(target))[0]
    return pipeline.run_fusion_stage(form, layouts, target_of(target))


def graph_of(make: Callable[[GraphBuilder, Value], list[Value]], *shape: int) -> Graph:
    b = GraphBuilder("made")
    return b.finish(make(b, b.input(ArrayType(shape, np.dtype("f4")))))


def taps(b: GraphBuilder, x: Value, axis: int, count: int) -> Value:
    """A sum of weighed views, shifted along an axis."""
    lengths = [n - (count - 1 if i == axis else 0) for i, n in enumerate(x.shape)]
    total: Value | None = None
    for k in range(count):
        tap = b.slice(x, [k if i == axis else 0 for i in range(2)], (1, 1), lengths)
        tap = b.map("multiply", tap, b.const(0.5 + k, "f4"))
        total = tap if total is None else b.map("add", total, tap)
    assert total is not None
    return total


def blur(b: GraphBuilder, x: Value) -> list[Value]:
    return [taps(b, taps(b, x, 0, 11), 1, 11)]


def heat(b: GraphBuilder, x: Value) -> Value:
    n, m = x.shape
    at = lambda i, j: b.slice(x, (i, j), (1, 1), (n - 2, m - 2))  # noqa: E731
    near = b.map("add", b.map("add", at(0, 1), at(2, 1)), b.map("add", at(1, 0), at(1, 2)))
    return b.map("add", at(1, 1), b.map("multiply", b.map("subtract", near, b.map("multiply", at(1, 1), 4)), 0.1))


# the differences


@pytest.mark.parametrize("seed", range(examples(16)))
def test_the_bits_are_the_same_whatever_is_stored(seed: int) -> None:
    assert not differences(*stencil_graph(Random(seed)))


@pytest.mark.parametrize("seed", range(examples(4)))
def test_the_bits_are_the_same_on_a_gpu(seed: int) -> None:
    assert not differences(*stencil_graph(Random(seed), steps=4, length=8), ("cuda",))


@pytest.mark.parametrize("number", range(examples(3)))
def test_the_bits_of_sums_over_indices_are_the_same_on_a_gpu(number: int) -> None:
    graphs = (stencil_graph(Random(seed), steps=4, length=8) for seed in itertools.count(1000))
    summing = (case for case in graphs if any(node.op == "host" for node in case[0].nodes))
    assert not differences(*next(itertools.islice(summing, number, None)), ("cuda",))


# the least cost


def least_cost(plan: StoragePlan, region: list[int]) -> int:
    """Of all ways to compute some values of a region again, by what each value then costs."""
    values: dict[int, Any] = {}
    for n in region:
        values[n] = plan._cut_value(n, plan.users[n], values, FlowNetwork())
    memory: dict[int, list[Any]] = {}
    for n in region:
        for arg, views in plan.args[n]:
            if arg not in values and plan.graph.nodes[arg].type.size > 1:
                memory.setdefault(arg, []).append((n, views))
    loads = {n: plan._cut_value(n, users, values, FlowNetwork()) for n, users in memory.items()}

    def units(flops: float) -> int:
        return round(UNIT * flops)

    def cost(number: int, again: dict[int, bool]) -> int:
        value = values[number]
        wanted = any(again.get(user, False) for user, _ in plan.users[number])
        if again[number]:
            return units(value.cost) if len(value.everywhere) <= MOST_PLACES else NEVER
        store, more = (units(plan._cost_of_storing(number, at)) for at in (value.own, value.everywhere))
        once = len(value.own) == 1 and plan._is_whole(number, *value.own)
        return (store if wanted or not once else 0) + (max(0, more - store) if wanted else 0)

    def cost_in_memory(number: int, again: dict[int, bool]) -> int:
        if not any(again[user] for user, _ in memory[number]):
            return 0
        beyond = plan.open[number] and number not in plan.places
        return units(loads[number].cost + (plan._cost_of_storing(number, loads[number].own) if beyond else 0.0))

    costs = []
    for chosen in itertools.product((False, True), repeat=len(region)):
        again = dict(zip(region, chosen, strict=True))
        costs.append(sum(cost(n, again) for n in region) + sum(cost_in_memory(n, again) for n in memory))
    less = sum(min(0, units(values[n].cost)) for n in region)  # a network has no capacities below 0
    return min(costs) - less


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_what_a_region_stores_costs_the_least(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the cuts of random stencils, those of at most ten values."""
    cut, source_side = StoragePlan._cut, FlowNetwork.source_side
    found: list[int] = []
    costs: list[tuple[int, int]] = []

    def compared(plan: StoragePlan, region: list[int]) -> None:
        least = least_cost(plan, region) if len(region) <= 10 else None
        cut(plan, region)
        cost = found.pop()
        if least is not None:
            costs.append((least, cost))

    def recorded(network: FlowNetwork) -> list[bool]:
        edges = [(network.head[e ^ 1], network.head[e], network.left[e]) for e in range(0, len(network.head), 2)]
        side = source_side(network)
        found.append(sum(c for a, b, c in edges if side[a] and not side[b]))
        return side

    monkeypatch.setattr(StoragePlan, "_cut", compared)
    monkeypatch.setattr(FlowNetwork, "source_side", recorded)
    for seed in range(examples(120)):
        fused(stencil_graph(Random(seed), steps=5, length=60)[0], target)
    assert len(costs) > 10 and all(least == cost for least, cost in costs)


# decisions


BLUR = """\
g0: kernel over (246, 256): computes %3, %6, %7, %10, %11, %14, %15, %18, %19, %22, %23, %26 and 9 more; stores %43
g1: kernel over (246, 246): computes %45, %47, %48, %50, %51, %53, %54, %56, %57, %59, %60, %62 and 9 more; stores %75
# %43 from g0 to g1: computing it again there costs {} flops an element, loading it as much as {}"""


@pytest.mark.parametrize(("target", "again", "stored"), [("cpu", 306, 46), ("cuda", 252, 64)])
def test_the_middle_of_a_blur_is_stored_and_no_part_of_it(target: str, again: int, stored: int) -> None:
    assert str(fused(graph_of(blur, 256, 256), target)[1]) == BLUR.format(again, stored)


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_three_blurs_of_one_image_store_their_middles_and_an_image_that_is_dear(target: str) -> None:
    """A change of sign is computed again in each blur; a power of a sine is stored for all."""

    def blurs(b: GraphBuilder, image: Value) -> list[Value]:
        return [taps(b, taps(b, image, 0, k), 1, k) for k in (5, 7, 9)]

    cheap = fused(graph_of(lambda b, x: blurs(b, b.map("negative", x)), 256, 256), target)[1]
    dear = fused(graph_of(lambda b, x: blurs(b, b.map("power", x, b.map("sin", x))), 256, 256), target)[1]
    assert [sum(len(g.stores) for g in fusion.groups) for fusion in (cheap, dear)] == [6, 7]


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_what_long_sums_and_later_work_need_is_computed_twice_or_stored_whole(target: str) -> None:
    """An edge map and its least and largest: once parts of its sum were stored, since each kernel could hold some."""

    def edges(b: GraphBuilder, x: Value) -> list[Value]:
        n, m = x.shape
        at = lambda i, j: b.slice(x, (i, j), (1, 1), (n - 2, m - 2))  # noqa: E731
        across, down = b.map("subtract", at(0, 2), at(0, 0)), b.map("subtract", at(2, 0), at(0, 0))
        for k in (1, 2):
            across = b.map("add", across, b.map("subtract", at(k, 2), at(k, 0)))
            down = b.map("add", down, b.map("subtract", at(2, k), at(0, k)))
        made = b.map("sqrt", b.map("add", b.map("multiply", across, across), b.map("multiply", down, down)))
        least, largest = (b.reduce(op, made, (0, 1)) for op in ("min", "max"))
        return [b.map("divide", b.map("subtract", made, least), b.map("subtract", largest, least))]

    graph, fusion = fused(graph_of(edges, 512, 512), target)
    images = [n for group in fusion.groups for n in group.stores if graph.nodes[n].type.shape == (510, 510)]
    assert len(images) <= 2 and len(fusion.groups) == 2


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("steps", [3, 12])
def test_no_kernel_of_repeated_stencils_reads_at_more_places_than_the_limit(target: str, steps: int) -> None:
    def repeated(b: GraphBuilder, x: Value) -> list[Value]:
        for _ in range(steps):
            x = heat(b, x)
        return [x]

    program = pipeline.compile_graph_to_program(graph_of(repeated, 128, 128), target)
    forms = [task.kernel.form for task in program.tasks]  # type: ignore[union-attr]
    loads = [sum(i.op == "load" for phase in form.phases for i in phase.instrs) for form in forms]
    assert len(forms) == (steps + 1) // 2 and max(loads) <= MOST_PLACES


def test_decisions_are_the_same_in_another_process() -> None:
    code = (
        "from random import Random; from tests.compiler.fusion.test_storage import *\n"
        "print([str(fused(stencil_graph(Random(s), 9, 60)[0], 'cpu')[1]) for s in range(12)])"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, check=True, capture_output=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(texts) == 1


@pytest.mark.parametrize("make", ["chain", "blurs"])
def test_decisions_take_as_long_a_node_in_large_graphs(make: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The values that cuts look at, counted."""
    looked, value = [0], StoragePlan._cut_value

    def counted(plan: StoragePlan, *given: Any) -> Any:
        looked[0] += 1
        return value(plan, *given)

    def chain(b: GraphBuilder, x: Value, count: int) -> list[Value]:
        for _ in range(count):
            x = heat(b, x)
        return [x]

    def blurs(b: GraphBuilder, x: Value, count: int) -> list[Value]:
        image = b.map("sqrt", x)
        return [taps(b, taps(b, b.map("multiply", image, 1.5 + k), 0, 3), 1, 3) for k in range(count)]

    monkeypatch.setattr(StoragePlan, "_cut_value", counted)
    per_node = []
    for count in (12, 96):
        graph = graph_of(lambda b, x, n=count: (chain if make == "chain" else blurs)(b, x, n), 300, 300)  # type: ignore[misc]
        looked[0] = 0
        fused(graph, "cuda")
        per_node.append(looked[0] / len(graph.nodes))
    assert per_node[1] < 1.3 * per_node[0] + 0.5
