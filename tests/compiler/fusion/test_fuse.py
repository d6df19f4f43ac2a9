"""What becomes one kernel, and what must not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelgraph.compiler import pipeline
from kernelgraph.compiler.core.types import ArrayType
from kernelgraph.compiler.fusion.groups import FusionCover
from kernelgraph.compiler.graph.builder import GraphBuilder
from kernelgraph.compiler.graph.graph import Value
from kernelgraph.compiler.ops.table import OPS
from kernelgraph.compiler.targets.target import target_of
from tests.compiler.programs import graphs
from tests.counts import examples


def groups_of(make, *shapes, target="cpu"):
    b = GraphBuilder()
    outputs = make(b, *(b.input(ArrayType(s, np.float32)) for s in shapes))
    graph = b.finish(outputs if isinstance(outputs, list) else [outputs])
    layouts = [pipeline.MemoryLayout.contiguous(graph.nodes[i].type) for i in graph.inputs]
    fusion = pipeline.run_fusion_stage(
        pipeline.run_graph_pass_stages(graph, target_of(target))[0], layouts, target_of(target)
    )[1]
    return [g for g in fusion.groups if g.kind != "assembly"]


def keep(b, value, axis):
    shape = list(value.shape)
    shape.insert(axis, 1)
    return b.reshape(value, shape)


def softmax(b, x):
    e = b.map("exp", b.map("subtract", x, keep(b, b.reduce("max", x, (1,)), 1)))
    return b.map("divide", e, keep(b, b.reduce("sum", e, (1,)), 1))


def layer_norm(b, x):
    n = x.shape[1]
    centred = b.map("subtract", x, keep(b, b.map("divide", b.reduce("sum", x, (1,)), n), 1))
    variance = b.map("divide", b.reduce("sum", b.map("multiply", centred, centred), (1,)), n)
    return b.map("divide", centred, keep(b, b.map("sqrt", b.map("add", variance, 1e-5)), 1))


def chain(length):
    def make(b, x):
        value = x
        for i in range(length):
            value = b.map(("sin", "exp", "tanh")[i % 3], value)
        return [value, b.map("add", value, 1)]

    return make


def stencil(b, x):
    n, m = x.shape
    at = lambda i, j: b.slice(x, (i, j), (1, 1), (n - 2, m - 2))  # noqa: E731
    near = b.map("add", b.map("add", at(0, 1), at(2, 1)), b.map("add", at(1, 0), at(1, 2)))
    return b.map("subtract", near, b.map("multiply", at(1, 1), 4))


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (softmax, (512, 1024)),
        (layer_norm, (512, 1024)),
        (chain(3), (1 << 20,)),
        (chain(300), (1 << 12,)),
        (stencil, (512, 512)),
        (lambda b, x: b.map("sqrt", b.reduce("sum", b.map("multiply", x, x), (0, 1))), (512, 512)),
        (lambda b, x: [b.reduce("max", x, (1,)), b.reduce("sum", x, (1,))], (512, 512)),
        (lambda b, x: b.map("add", b.permute(x, (1, 0)), 1), (64, 512)),
        (lambda b, x: b.concat([b.map("exp", x), b.map("sin", x)], 0), (64, 512)),
    ],
)
def test_one_kernel(make, shape, target):
    assert len(groups_of(make, shape, target=target)) == 1


def test_a_whole_array_reduction_cannot_be_used_in_its_own_kernel():
    both = groups_of(lambda b, x: b.map("divide", x, b.reduce("sum", x, (0,))), (1 << 22,))
    assert len(both) == 2


def test_cheap_work_is_done_again_rather_than_stored():
    pair = groups_of(
        lambda b, x: (lambda e: [b.reduce("sum", e, (0,)), b.reduce("sum", e, (1,))])(b.map("exp", x)), (512, 512)
    )
    assert [len(g.stores) for g in pair] == [1, 1]


def test_a_costly_stencil_of_a_computed_array_is_stored_first():
    def make(b, x):
        y = b.map("power", x, b.map("sin", x))
        return stencil(b, y)

    assert len(groups_of(make, (512, 512))) == 2


@settings(max_examples=examples(200), deadline=None, suppress_health_check=list(HealthCheck))
@given(case=graphs(steps=20))
def test_groups_cover_the_graph_in_a_runnable_order(case):
    graph, arrays = case
    layouts = [pipeline.MemoryLayout(a.strides) for a in arrays]
    graph, fusion = pipeline.run_fusion_stage(
        pipeline.run_graph_pass_stages(graph, target_of("cpu"))[0], layouts, target_of("cpu")
    )
    done = {n for n, node in enumerate(graph.nodes) if OPS[node.op].kind == "source"}
    stored: set[int] = set()
    for group in fusion.groups:
        inside = set(group.computes)
        for number in sorted((*group.computes, *(s for s in group.stores if group.kind != "kernel"))):
            for arg in graph.nodes[number].args:
                assert _known(graph, arg, done | stored | inside), f"{group} uses %{arg} too early"
        assert not stored & set(group.stores), "stored twice"
        stored |= set(group.stores)
    for output in graph.outputs:
        assert _known(graph, output, stored)


def _known(graph, number, known):
    node = graph.nodes[number]
    return number in known or (OPS[node.op].kind == "view" and _known(graph, node.args[0], known))


@given(st.data())
@settings(max_examples=examples(60), deadline=None)
def test_what_comes_after_a_group_is_what_paths_lead_to(data: st.DataObject) -> None:
    cover = FusionCover(GraphBuilder("none").finish([]))
    alive: list[int] = []
    for _ in range(data.draw(st.integers(1, 30))):
        if len(alive) < 2 or data.draw(st.booleans()):
            alive.append(cover.open("kernel", (4,), frozenset(), 0).number)
            continue
        a, b = data.draw(st.permutations(alive))[:2]
        if data.draw(st.booleans()):
            cover.order(a, b)
        else:
            cover._merge_groups(cover.groups[a], cover.groups[b])
            alive.remove(b)
    for start in alive:
        todo, seen = [start], {start}
        while todo:
            new = {cover.find(g) for g in cover.groups[todo.pop()].after} - seen
            seen |= new
            todo += new
        assert {goal for goal in alive if cover.reaches(start, goal)} == seen


def test_orders_of_groups_are_not_searched_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter of 80 turns that are not rolled, with three assignments each, was compiled for half a minute."""
    b = GraphBuilder("filter")
    x, b1, a1 = (b.input(ArrayType(shape, np.dtype("f8"))) for shape in ((40,), (3,), (3,)))
    y = b.broadcast(b.const(0.0, "f8"), (40,))

    def at(array: Value, i: int) -> Value:
        return b.slice(array, (i,), (1,), (1,))

    for i in range(2, 40):
        y = b.update(y, b.map("multiply", at(b1, 0), at(x, i)), (i,), (1,))
        for back in (1, 2):
            terms = b.map("multiply", at(b1, back), at(x, i - back)), b.map("multiply", at(a1, back), at(y, i - back))
            y = b.update(y, b.map("subtract", b.map("add", at(y, i), terms[0]), terms[1]), (i,), (1,))
    graph = b.finish([y])
    looks = 0
    find = FusionCover.find

    def counted(cover: FusionCover, group: int) -> int:
        nonlocal looks
        looks += 1
        return find(cover, group)

    monkeypatch.setattr(FusionCover, "find", counted)
    assert pipeline.compile_graph_to_program(graph, "cpu").tasks
    assert looks < 100 * len(graph.nodes)


def test_many_groups_that_read_one_array_are_joined_without_a_look_at_each_pair(monkeypatch) -> None:
    looked, refusal = [], FusionCover.merge_refusal
    monkeypatch.setattr(FusionCover, "merge_refusal", lambda *given: looked.append(given) or refusal(*given))
    assert len(groups_of(lambda b, x: [b.map("multiply", x, 1.5 + i) for i in range(400)], (32,))) == 50
    assert len(looked) < 1200


def test_what_others_read_a_few_rows_of_is_not_stored_for_them():
    def make(b, x, y):
        made = b.map("multiply", b.map("add", x, y), 0.5)
        few = [b.slice(made, (4 * i, 0), (1, 1), (2, 2048 - i)) for i in range(4)]
        return [b.reduce("sum", made, (0, 1)), *(b.map("exp", f) for f in few)]

    groups = groups_of(make, (2048, 2048), (2048, 2048))
    assert [len(g.stores) for g in groups] == [1] * 5


def test_of_a_large_array_the_part_is_stored_in_which_elements_are_looked_up():
    def make(b, x):
        made = b.map("add", x, 1.0)
        part = b.slice(made, (0, 0), (1, 1), (4, 2048))
        index = [b.index((4, 100), 0), b.map("remainder", b.index((4, 100), 1), np.int64(7))]
        looked_up = [b.map(op, b.gather(part, index, (0, 1), (), (4, 100))) for op in ("exp", "sin")]
        return [b.reduce("sum", made, (0, 1)), *looked_up]

    for target in ("cpu", "cuda"):
        groups = groups_of(make, (2048, 2048), target=target)
        assert sorted(g.domain for g in groups if not g.reduced) == [(4, 100), (4, 2048)]


@pytest.mark.parametrize(("target", "stores"), [("cpu", 2), ("cuda", 1)])
def test_a_stencil_that_is_summed_is_stored_whole_or_not_at_all_for_a_stencil_of_it(target, stores):
    """Each part of its sum would be read as often, and more beside it."""

    def neighbours(b, u, n):
        place = [(1, 1), (0, 1), (2, 1), (1, 0), (1, 2)]
        middle, *others = (b.slice(u, p, (1, 1), (n, n)) for p in place)
        total = b.map("multiply", middle, -4.0)
        for other in others:
            total = b.map("add", total, other)
        return total

    def make(b, u):
        once = neighbours(b, u, 2046)
        return [b.reduce("sum", once, (0, 1)), neighbours(b, once, 2044)]

    groups = groups_of(make, (2048, 2048), target=target)
    assert [len(g.stores) for g in groups] == [stores, 1]
    assert [len(g.computes) for g in groups] == [6, 5 if stores == 2 else 10]
