"""Each array that passes from one kernel to another has a reason, and the reasons are the rules that decided."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from functools import partial
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from kernelgraph.compiler import pipeline
from kernelgraph.compiler.core.types import ArrayType
from kernelgraph.compiler.fusion import fuse, groups
from kernelgraph.compiler.fusion.groups import LIMITS, MAX_STORES, RULES, Cut, Fusion
from kernelgraph.compiler.graph.builder import GraphBuilder
from kernelgraph.compiler.graph.graph import Graph
from kernelgraph.compiler.ops.table import OPS
from kernelgraph.compiler.targets.target import target_of
from tests.compiler.programs import graphs
from tests.counts import examples


def covered(graph: Graph, layouts=None, target: str = "cpu") -> tuple[Graph, Fusion]:
    layouts = layouts or [pipeline.MemoryLayout.contiguous(graph.nodes[i].type) for i in graph.inputs]
    form = pipeline.run_graph_pass_stages(graph, target_of(target))[0]
    return pipeline.run_fusion_stage(form, layouts, target_of(target))


def cuts_of(make, *shapes, target: str = "cpu") -> tuple[Cut, ...]:
    b = GraphBuilder()
    outputs = make(b, *(b.input(ArrayType(shape, np.dtype("f4"))) for shape in shapes))
    return covered(b.finish(outputs if isinstance(outputs, list) else [outputs]), target=target)[1].cuts


def loaded(graph: Graph, fusion: Fusion) -> set[tuple[int, int, int]]:
    """What each kernel takes from memory that another group has stored, found from the graph and the groups alone."""
    home = {node: i for i, group in enumerate(fusion.groups) for node in group.stores}
    found = set()
    for i, group in enumerate(fusion.groups):
        todo = [a for n in group.computes for a in graph.nodes[n].args if a not in group.computes]
        while todo and group.kind == "kernel":
            number = todo.pop()
            if number in home and home[number] != i:
                found.add((number, home[number], i))
            elif OPS[graph.nodes[number].op].kind == "view":
                todo += graph.nodes[number].args
    return found


@settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(case=graphs(steps=25))
def test_every_cut_between_kernels_has_a_reason(case) -> None:
    graph, arrays = case
    graph, fusion = covered(graph, [pipeline.MemoryLayout(a.strides) for a in arrays])
    known = {(cut.node, cut.writer, cut.reader) for cut in fusion.cuts}
    assert len(known) == len(fusion.cuts) and loaded(graph, fusion) <= known
    assert all(cut.reason.rule in RULES and str(cut.reason) for cut in fusion.cuts)
    assert all(fusion.groups[cut.reader].kind != "assembly" for cut in fusion.cuts)


def lifted(rule: str, lift: bool) -> ExitStack:
    """A limit, so low that small programs meet it, or so high that none does."""
    patches = ExitStack()
    if rule == "long rows":
        patches.enter_context(patch.object(fuse, "rereading_rows_costs_little", lambda *given: lift))
        return patches
    name, low = {"stores": ("MAX_STORES", 1), "loads": ("MAX_LOADS", 2), "nodes": ("MAX_NODES", 3)}[rule]
    for module in (groups, fuse):
        if hasattr(module, name):
            patches.enter_context(patch.object(module, name, 10**6 if lift else low))
    return patches


def uses(graph: Graph) -> set[tuple[int, int]]:
    """Each node with those that take it, also through views."""
    found = set()
    for user, node in enumerate(graph.nodes):
        todo = [] if OPS[node.op].kind == "view" else list(node.args)
        while todo:
            taken = todo.pop()
            found.add((taken, user))
            todo += graph.nodes[taken].args if OPS[graph.nodes[taken].op].kind == "view" else ()
    return found


@pytest.mark.parametrize("rule", [*LIMITS, "long rows"])
@settings(max_examples=examples(80), deadline=None, suppress_health_check=list(HealthCheck))
@given(case=graphs(steps=25))
def test_lifting_a_limit_removes_its_reasons_and_no_others(rule, case) -> None:
    """Kernels that no cut of that rule touches stay as far apart as they were."""
    graph, arrays = case
    graph, _ = covered(graph, [pipeline.MemoryLayout(a.strides) for a in arrays])
    with lifted(rule, False):
        before = fuse.fuse(graph, target_of("cpu"))
    with lifted(rule, True):
        after = fuse.fuse(graph, target_of("cpu"))
    assert rule not in [cut.reason.rule for cut in after.cuts]

    def apart(fusion: Fusion) -> dict[tuple[int, int], Cut]:
        edges = {(cut.node, user): cut for cut in fusion.cuts for user in fusion.groups[cut.reader].computes}
        return {edge: cut for edge, cut in edges.items() if edge in taken}

    taken = uses(graph)
    touched = {group for cut in before.cuts if cut.reason.rule == rule for group in (cut.writer, cut.reader)}
    gone = [cut for edge, cut in apart(before).items() if edge not in apart(after)]
    assert all(touched & {cut.writer, cut.reader} for cut in gone), [str(cut) for cut in gone]


def rows(b, x, f):
    """f of each row, as a column."""
    return b.reshape(f(x), (x.shape[0], 1))


def neighbours(b, x):
    """The sum of each element and the next ones along both axes."""
    n, m = x.shape
    parts = [b.slice(x, (i, j), (1, 1), (n - 2, m - 2)) for i in range(3) for j in range(3)]
    total = parts[0]
    for part in parts[1:]:
        total = b.map("add", total, part)
    return total


@pytest.mark.parametrize(
    ("rule", "make", "shapes"),
    [
        ("library result", lambda b, x, y: b.map("exp", b.matmul(x, y)), [(64, 64), (64, 64)]),
        ("library argument", lambda b, x, y: b.matmul(b.map("exp", x), y), [(64, 64), (64, 64)]),
        ("long rows", lambda b, x: b.map("divide", x, rows(b, x, lambda y: b.reduce("sum", y, (1,)))), [(4, 1 << 20)]),
        ("recompute", lambda b, x: neighbours(b, b.map("power", x, b.map("sin", x))), [(512, 512)]),
        ("partial", lambda b, x: (lambda y: [y, neighbours(b, y)])(b.map("negative", x)), [(512, 512)]),
        ("axes", lambda b, x: b.map("add", b.reduce("sum", x, (0,)), b.reduce("max", x, (1,))), [(64, 64)]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_reason_is_the_rule_that_decided(rule, make, shapes) -> None:
    assert rule in [cut.reason.rule for cut in cuts_of(make, *shapes)]


def shifts(b, x):
    """A sine that is returned, and more results over the same shape than one kernel may store."""
    y = b.map("sin", x)
    return [y] + [b.map("add", y, b.const(float(i), "f4")) for i in range(12)]


def test_lifting_a_limit_removes_its_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Counter(cut.reason.rule for cut in cuts_of(shifts, (1 << 20,)))
    for module in (groups, fuse):
        monkeypatch.setattr(module, "MAX_STORES", 100)
    after = Counter(cut.reason.rule for cut in cuts_of(shifts, (1 << 20,)))
    assert before["stores"] and not after


def columns(b, x, y, *, results: int):
    """A power that one kernel takes for many results, and another one once for each sum over a column."""
    power = b.map("power", x, b.const(1.3, "f4"))
    weighed = b.map("multiply", y, power)
    return [b.reduce("sum", weighed, (0,))] + [b.map("add", power, b.const(float(i), "f4")) for i in range(results)]


@pytest.mark.parametrize(("results", "rule"), [(MAX_STORES - 1, "recompute"), (MAX_STORES, "stores")])
def test_a_full_kernel_loads_what_it_would_have_stored(results, rule) -> None:
    """It is too dear to compute twice either way: that a kernel of results loads it is due to the limit alone."""
    assert [cut.reason.rule for cut in cuts_of(partial(columns, results=results), (64,), (64, 64))] == [rule]
