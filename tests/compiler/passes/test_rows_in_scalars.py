"""Loops over rows that decide how long they run, as routines: what they give is what the loops give, on each target."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.compiler.graph.graph import Graph
from kernelgraph.compiler.graph.interpret import interpret_node
from kernelgraph.compiler.passes.rows_in_scalars import compute_rows_in_scalars, routine_of_rows
from kernelgraph.compiler.sequential.evaluate import evaluate_routine
from kernelgraph.compiler.sequential.form import Routine, While, statements_in_routine_block
from kernelgraph.compiler.sequential.lifting import lift_routine_sizes
from kernelgraph.compiler.sequential.parallel_turns import routine_for_printing
from kernelgraph.compiler.targets.cpu import rows, sequential
from kernelgraph.compiler.targets.cuda.sequential import cuda_kernel_of_routine, cuda_routine_and_shape
from kernelgraph.runtime.core.frozen import replace
from kernelgraph.runtime.devices.cuda.compile.compile import compile_ptx
from tests.compiler.sequential.test_routines import arguments, emulated
from tests.ensemble_programs import load, programs

AXES = (0, 0, 0, None, None)


def ensembles(seed: int, count: int) -> Iterator[Graph]:
    """Graphs of random functions of rows."""
    made = [*programs(seed, count)]
    with tempfile.TemporaryDirectory() as folder:
        scope = load(made, Path(folder))
        for p in made:
            try:
                graph = kg.kernel_graph(kg.vmap(scope[p.name], AXES), device="cpu").graph(*p.arguments(0))
            except kg.KernelGraphError:
                continue
            yield graph


def routines_of(graph: Graph) -> list[Routine]:
    return [*dict.fromkeys(node.attr("routine") for node in graph.nodes if node.op == "sequential")]


def graph_of(function: Callable[..., Any], *args: Any, axes: Any = 0) -> Graph:
    return compute_rows_in_scalars(kg.kernel_graph(kg.vmap(function, axes), device="cpu").graph(*args))


def test_the_routine_means_what_the_loop_means() -> None:
    seen = 0
    for graph in ensembles(31, 12):
        for loop in {node.attr("control"): node for node in graph.nodes if node.op == "loop"}.values():
            rng = np.random.default_rng(seen)
            types = [graph.nodes[a].type for a in loop.args]
            given = [rng.integers(-4, 5, t.shape).astype(t.dtype) for t in types]
            made = routine_of_rows(loop, types)
            assert made is not None
            found = evaluate_routine(made[0], [given[n] for n in made[1]])
            for part, got in enumerate(found):
                node = replace(loop, attrs=(*loop.attrs[:1], ("part", part)), type=loop.attr("control").types[part])
                np.testing.assert_array_equal(got, interpret_node(node, given))
            seen += 1
    assert seen >= 8


def test_the_text_for_a_gpu_means_the_same() -> None:
    """Of the rows of random functions; their turns are bounded whatever the arguments are."""
    seen = 0
    for graph in ensembles(32, 12):
        for routine in map(routine_for_printing, routines_of(compute_rows_in_scalars(graph))):
            if routine.width > 7:
                continue  # emulated threads are slow
            given = arguments(routine)
            for got, want in zip(emulated(routine, given), evaluate_routine(routine, given), strict=True):
                np.testing.assert_array_equal(got, want)
            seen += 1
    assert seen >= 2


def halvings(x: Any) -> Any:
    turns = 0
    while x > 1.0:
        x, turns = x * 0.5, turns + 1
    return x, turns


def test_it_compiles_for_a_gpu() -> None:
    (routine,) = routines_of(graph_of(halvings, np.arange(3000.0)))
    lifted, _ = lift_routine_sizes(routine_for_printing(routine))
    turned, shape = cuda_routine_and_shape(lifted, True)
    assert shape.blocks * shape.threads >= 3000 and not shape.together
    kernel = cuda_kernel_of_routine(turned, shape)
    ptx = compile_ptx(kernel, (9, 0))
    assert "barrier" not in kernel.source and "bar.sync" not in ptx
    assert ptx.count("ld.global") <= 3 and ptx.count("st.global") == 2  # the turns keep all in registers


def test_all_results_are_of_one_loop() -> None:
    """Also what the turns carry and nobody sees is gone."""
    (routine,) = routines_of(graph_of(halvings, np.arange(9.0)))
    (loop,) = (s for s in statements_in_routine_block(routine.body) if isinstance(s, While))
    assert [a.role for a in routine.arrays].count("out") == 2
    assert len(routine.variables) == 3 and len(loop.body) == 13


def sums(x: Any) -> Any:
    total = x[0] * 0.0
    while total < 50.0:
        x = x * 1.5
        total = np.sum(np.abs(x))
    return x, total


@pytest.mark.parametrize("n", [1, 3, 7, 8, 9, 20, 37, 64])
def test_sums_in_the_loop_have_numpys_order(n: int) -> None:
    given = np.random.default_rng(n).normal(size=(30, n)) * 1e-3
    expected = [sums(row) for row in given]
    found = kg.vmap(sums)(given)
    np.testing.assert_array_equal(found[0], [x for x, _ in expected])
    np.testing.assert_array_equal(found[1], [total for _, total in expected])


def follow(i: Any, table: Any) -> Any:
    turns = 0
    while table[i] != 0 and turns < 9:
        i, turns = table[i], turns + 1
    return turns


def test_an_index_out_of_range_is_numpys_error() -> None:
    """Also where other rows go on, and of rows that never get there not at all."""
    table = np.array([0, 0, 1, 7, 2, -1])
    ours = kg.kernel_graph(kg.vmap(follow, (0, None)), untraceable="refuse")
    assert routines_of(compute_rows_in_scalars(ours.graph(np.arange(3), table)))
    for rows_of in ([2, 4, 1, 5], [0] * 400):
        np.testing.assert_array_equal(ours(np.array(rows_of), table), [follow(i, table) for i in rows_of])
    with pytest.raises(IndexError, match=r"index 7 is out of bounds for axis 0 with size 6"):
        np.asarray(ours(np.array([0] * 300 + [3] + [4] * 99), table))


def first_terms(k: Any, table: Any) -> Any:
    n, total = 0, 0.0
    while n < k % 5 + 2:
        if k + n < 5:
            total = total + table[k + n]
            n = n + 1
        else:
            total = total - 1.0
            n = n + 2
    return total


def test_an_index_that_a_branch_avoids_is_no_error() -> None:
    """Both branches are computed side by side."""
    table, rows_of = np.linspace(1, 2, 5), np.arange(90) % 9
    ours = kg.kernel_graph(kg.vmap(first_terms, (0, None)), untraceable="refuse")
    (routine,) = routines_of(compute_rows_in_scalars(ours.graph(rows_of, table)))
    assert routine.lookups
    np.testing.assert_array_equal(ours(rows_of, table), [first_terms(k, table) for k in rows_of])


def own_element(x: Any) -> Any:
    k = 0
    while x[k] < 1.0:
        x, k = x * 1.5, (k + 1) % 3
    return x, k


def many(x: Any) -> Any:
    while np.sum(x) < 100.0:
        x = x * 2.0
    return x


def test_a_row_looks_up_its_own_values() -> None:
    given = np.random.default_rng(1).uniform(0.01, 0.5, (70, 3))
    ours = kg.vmap(own_element)(given)
    expected = [own_element(row) for row in given]
    np.testing.assert_array_equal(ours[0], [x for x, _ in expected])
    np.testing.assert_array_equal(ours[1], [k for _, k in expected])


@pytest.mark.parametrize("n", [65, 500])
def test_rows_of_large_arrays_stay_a_loop(n: int) -> None:
    given = np.random.default_rng(1).integers(1, 5, (4, n)) / 4
    assert not routines_of(graph_of(many, given))
    np.testing.assert_array_equal(kg.vmap(many)(given), [many(row) for row in given])


@pytest.mark.parametrize(("group", "cache"), [(16, 1 << 15), (64, 1 << 15), (64, 500)])
def test_rows_make_place_for_others(group: int, cache: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In chunks, groups and vectors of every length, of rows that take no turn up to many."""
    monkeypatch.setattr(rows, "GROUP", group)
    monkeypatch.setattr(rows, "CACHE", cache)
    monkeypatch.setattr(sequential, "GRAIN", 40)
    for n in (1, 2, group - 1, group, group + 1, 333, 1000):
        x = 2.0 ** np.random.default_rng(n).integers(-3, 60, n)
        ours = kg.kernel_graph(kg.vmap(halvings))
        found = ours(x)
        expected = [halvings(value) for value in x]
        np.testing.assert_array_equal(found[0], [value for value, _ in expected])
        np.testing.assert_array_equal(found[1], [turns for _, turns in expected])
        (task,) = (t for t in ours.program(x).tasks if t.name == "loop")
        assert (task.units, task.grain) == (n, 40)


def test_rows_with_much_state_run_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a group of them has no room on the stack."""
    x = np.arange(300.0)
    texts = []
    for room in (rows.STACK, 100):
        monkeypatch.setattr(rows, "STACK", room)
        ours = kg.kernel_graph(kg.vmap(halvings))
        np.testing.assert_array_equal(ours(x)[0], [halvings(value)[0] for value in x])
        texts += [t.kernel.source for t in ours.program(x).tasks if t.name == "loop"]
    vectors, one_by_one = texts
    assert re.search(r"fmul <\d+ x double>", vectors) and "x double>" not in one_by_one


def test_a_loop_that_starts_from_an_array_runs_in_one_thread() -> None:
    """Each thread would copy that array first, over what others have written."""
    routine = routine_for_printing(*routines_of(graph_of(halvings, np.arange(9.0))))
    assert rows.loop_over_deciding_rows(routine) is not None
    copied = tuple(replace(a, role="inout" if a.role == "out" else a.role) for a in routine.arrays)
    assert rows.loop_over_deciding_rows(replace(routine, arrays=copied)) is None
