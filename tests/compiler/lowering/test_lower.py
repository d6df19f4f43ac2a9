"""Random graphs: the lowered program, run in NumPy from its structured kernels, means what the graph means."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import kernelgraph as kg
from kernelgraph.compiler import pipeline
from kernelgraph.compiler.core.types import ArrayType
from kernelgraph.compiler.graph.builder import GraphBuilder
from kernelgraph.compiler.graph.interpret import interpret_graph
from kernelgraph.compiler.passes.materialize import MemoryLayout
from kernelgraph.compiler.targets.target import target_of
from kernelgraph.runtime.program.program import Kernel, Pointer
from tests.compiler.access_audit import Touched, declared, run_program
from tests.compiler.programs import agree, graphs
from tests.counts import examples
from tests.turn_programs import recorded

RELAXED = settings(max_examples=examples(300), deadline=None, suppress_health_check=list(HealthCheck))


def test_an_update_of_a_view_inside_an_update():
    b = GraphBuilder()
    x = b.input(ArrayType((6,), np.float64))
    base = x
    even = b.slice(base, (0,), (2,), (3,))
    inner = b.update(even, b.broadcast(b.const(0.0), (1,)), (0,), (1,))
    outer = b.update(base, inner, (0,), (2,))
    graph = b.finish([b.map("add", outer, 0.5), b.map("add", inner, 0.5)])
    arrays = [np.arange(1.0, 7.0)]
    for got, wanted in zip(
        run_program(pipeline.compile_graph_to_program(graph), arrays), interpret_graph(graph, arrays), strict=True
    ):
        np.testing.assert_array_equal(got.view(np.float64), wanted)


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@RELAXED
@given(case=graphs())
def test_program_means_what_the_graph_means(target, case):
    graph, arrays = case
    layouts = [MemoryLayout(a.strides, a.ctypes.data % 16 == 0) for a in arrays]
    program = pipeline.compile_graph_to_program(graph, target, layouts)
    touched: list[Touched] = []
    results = run_program(program, arrays, touched=touched)
    agree(graph, arrays, results)
    for task, record in zip(program.tasks, touched, strict=True):
        if record.writes:
            assert record.writes == declared(task.writes)
            assert record.reads <= declared(task.reads)


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("length", [10**5, 2**20, 10**6 + 7, 2**24, 10**8])
def test_a_long_reduction_is_cut_into_parts_that_cover_it(length, target):
    """Each element is in one part; a length that allows it has equal parts and no launch for a rest."""
    builder = GraphBuilder()
    x = builder.input(ArrayType((length,), np.dtype(np.float32)))
    program = pipeline.compile_graph_to_program(builder.finish([builder.reduce("sum", x, (0,))]), target)
    read = [r for task in program.tasks for r in task.reads if r.buffer == 0]
    assert sum(int(np.prod(r.shape)) for r in read) == length
    ends = sorted(r.span for r in read)
    assert ends[0][0] == 0 and ends[-1][1] == 4 * length
    assert all(a[1] <= b[0] for a, b in pairwise(ends))
    if length in (2**20, 2**24, 10**8):
        assert len(program.tasks) == 2


STORED = {
    "all": lambda x: (y := x * 2 - 1, y.max(), np.abs(y).argmin()),
    "rows": lambda x: (y := x + 1, y.sum(-1)),
    "columns": lambda x: (y := x + 1, y.sum(0), x.max(0)),
    "reversed": lambda x: (y := x[::-1] - x, (y * y).sum()),
    "after": lambda x: (x - x.max(), x * 2),
}


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("shape", [(700,), (1024,), (641, 3), (3, 650)])
@pytest.mark.parametrize("name", STORED)
def test_what_a_long_reduction_reads_is_stored_by_its_parts(name, shape, target, monkeypatch):
    made_for = target_of(target)
    short = replace(made_for, model=replace(made_for.model, split_length=128))
    monkeypatch.setattr(pipeline, "target_of", lambda name, gpu: short)
    x = np.random.default_rng(0).random(shape)
    graph = kg.kernel_graph(device="fake")(STORED[name]).graph(x)
    program = pipeline.compile_graph_to_program(graph, target)
    if name == "all":  # one sweep over x, in parts
        assert any(t.name.endswith("_part") for t in program.tasks)
        assert sum(int(np.prod(r.shape)) for t in program.tasks for r in t.reads if r.buffer == 0) == x.size
    touched: list[Touched] = []
    agree(graph, [x], run_program(program, [x], touched=touched))
    for task, record in zip(program.tasks, touched, strict=True):
        assert record.writes == declared(task.writes) and record.reads <= declared(task.reads)


PROGRAMS = {
    "mean": lambda x: x.mean(1),
    "norm": lambda x: (x - x.mean(0)) / x.std(0),
    "pad": lambda x: np.pad(x, 1),
    "roll": lambda x: np.roll(x, 1, 0),
    "tril": lambda x: np.tril(x),
    "linspace": lambda x: x * np.linspace(0, 1, x.shape[1]),
    "one hot": lambda x: (np.arange(x.shape[1]) == x.argmax(1)[:, None]) * 1.0,
    "gradient": lambda x: np.gradient(x)[0],
    "row": lambda x: x[x.shape[0] // 2] * x.shape[0],
    "take": lambda x: x[:, np.array([1, 2, 3])],
}


@pytest.mark.parametrize(("target", "shapes"), [("cpu", [(40, 50), (41, 53)]), ("cuda", [(40, 48), (44, 64)])])
@pytest.mark.parametrize("name", PROGRAMS)
def test_sizes_are_no_part_of_the_text(name, target, shapes):
    """Nor, on the CPU, is how the rows are aligned."""
    texts = []
    for shape in shapes:
        graph = kg.kernel_graph(device="fake")(PROGRAMS[name]).graph(np.ones(shape, np.float32))
        texts.append(
            [
                t.kernel.source
                for t in pipeline.compile_graph_to_program(graph, target).tasks
                if isinstance(t.kernel, Kernel)
            ]
        )
    assert texts[0] == texts[1]


def test_windows_are_not_read_as_aligned_vectors() -> None:
    """The next window starts one element on: a GPU that reads two at once would read them at an odd address."""
    made = kg.kernel_graph(device="fake")(lambda x: np.lib.stride_tricks.sliding_window_view(x, 2, -1))
    (task,) = made.program(np.zeros((3, 4))).tasks
    assert isinstance(task.kernel, Kernel) and task.kernel.form is not None
    read, written = task.kernel.form.operands
    assert (read.layout, read.aligned, written.aligned) == ("s11", False, True)


def running(x: Any) -> Any:
    y = np.zeros_like(x)
    y[0] = 1.0
    for i in range(1, len(x)):
        y[i] = 0.5 * y[i - 1] + x[i]
    return y


def running_from_sorted(x: Any) -> Any:
    y = np.sort(x)
    backwards = y[::-1] * 2.0
    for i in range(1, len(x)):
        y[i] = 0.5 * y[i - 1] + x[i]
    return y, backwards


def running_from_joined(x: Any) -> Any:
    y = np.zeros(2 * len(x))
    y[: len(x)] = np.sort(x)
    early = y[3:7] * 2.0
    y[len(x) :] = 2.0
    for i in range(1, len(y)):
        y[i] = 0.5 * y[i - 1] + y[i]
    return y, early


@pytest.mark.parametrize(("function", "copies"), [(running, 0), (running_from_sorted, 1), (running_from_joined, 0)])
def test_a_loop_changes_what_it_starts_from_where_nobody_else_reads_it(function: Any, copies: int) -> None:
    """So nothing is copied before it; what is read elsewhere keeps its own memory."""
    x = np.random.default_rng(3).random(40)
    with recorded():
        ours = kg.kernel_graph(function, device="cpu")
        tasks = ours.program(x).tasks
        loop = next(t for t in tasks if t.name == "loop")
        written = {w.buffer for w in loop.writes}
        made = {w.buffer for t in tasks if t is not loop for w in t.writes}
        started = {a.buffer for a in loop.arguments if isinstance(a, Pointer)} & made
        assert len(started - written) == copies
        found, wanted = ours(x), function(x)
        for got, want in zip(found, wanted, strict=True) if isinstance(wanted, tuple) else [(found, wanted)]:
            np.testing.assert_allclose(np.asarray(got), want)


def test_a_part_of_an_array_and_what_was_stored_there_are_one_operand() -> None:
    """`v[1:] += x` where x is the part of v that it is added to: both lie in one place, which the sum replaces."""

    def f(x: Any) -> Any:
        y = 2 - x
        v = np.concatenate([np.array([0]), y[None]])
        v[1:] += y
        return v

    for x in (np.array(1), np.array(-3)):
        np.testing.assert_array_equal(kg.kernel_graph(f, device="cpu")(x), f(x))


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_a_few_rows_of_a_large_table_cost_little(target: str) -> None:
    """What is taken of a table counts, not what lies there; a table that is all read costs what it did."""

    def cost(rows: int, taken: int) -> float:
        f = kg.kernel_graph(lambda table, places: table[places].sum(1), device="fake")
        graph = f.graph(kg.spec((rows, 16), np.float32), kg.spec((taken, 26), np.int64))
        return sum(t.cost for t in pipeline.compile_graph_to_program(graph, target).tasks if "gather" in t.name)

    assert cost(1_000_000, 1) < 2 * cost(1_000, 1) < cost(1_000_000, 100_000) / 5
