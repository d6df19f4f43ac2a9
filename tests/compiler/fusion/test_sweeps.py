"""One kernel that stores results element by element and reduces values of the same elements."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kernelgraph as kg
from kernelgraph.compiler import pipeline
from kernelgraph.compiler.core.types import ArrayType
from kernelgraph.compiler.fusion import fuse, sweeps
from kernelgraph.compiler.fusion.sweeps import reduce_axis_by_axis
from kernelgraph.compiler.graph.builder import GraphBuilder
from kernelgraph.compiler.graph.graph import Graph, Value
from kernelgraph.compiler.graph.interpret import interpret_graph
from kernelgraph.compiler.kernel.loop_nest import LoopNest
from kernelgraph.compiler.passes.materialize import MemoryLayout
from kernelgraph.compiler.targets.cuda.launch_shape import _most_cuda_register_words_alive, choose_cuda_launch_shape
from kernelgraph.compiler.targets.target import target_of
from kernelgraph.runtime.core.frozen import replace
from kernelgraph.runtime.program.program import Kernel, union_bytes_of_regions
from tests.compiler.access_audit import run_program
from tests.compiler.device_calls import on_device
from tests.compiler.targets.cpu.test_compiled import compiled
from tests.counts import examples

Make = Callable[[GraphBuilder, Value], list[Value]]


def graph_of(make: Make, shape: tuple[int, ...], dtype: str = "f4") -> Graph:
    b = GraphBuilder("sweep")
    return b.finish(make(b, b.input(ArrayType(shape, np.dtype(dtype)))))


def kernels_of(graph: Graph, target: str) -> list[Any]:
    layouts = [MemoryLayout.contiguous(graph.nodes[i].type) for i in graph.inputs]
    made_for = target_of(target)
    form = pipeline.run_graph_pass_stages(graph, made_for)[0]
    return [g for g in pipeline.run_fusion_stage(form, layouts, made_for)[1].groups if g.kind == "kernel"]


def slope(b: GraphBuilder, x: Value) -> Value:
    return b.map("subtract", b.map("multiply", x, b.map("cos", x)), b.map("sin", x))


def loss_and_slope(*axes: int) -> Make:
    """A reduction, and what is stored for each element: they share costly work."""

    def make(b: GraphBuilder, x: Value) -> list[Value]:
        return [b.reduce("sum", b.map("multiply", b.map("sin", x), x), axes), slope(b, x)]

    return make


def stencil_energy(b: GraphBuilder, x: Value) -> list[Value]:
    n, m = x.shape
    at = lambda i, j: b.slice(x, (i, j), (1, 1), (n - 2, m - 2))  # noqa: E731
    r = b.map("subtract", b.map("add", at(0, 1), at(2, 1)), b.map("multiply", at(1, 1), 2))
    return [b.reduce("sum", b.map("multiply", r, r), (0, 1)), b.map("add", r, r)]


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (loss_and_slope(0), (1 << 20,)),
        (loss_and_slope(0, 1), (2048, 2048)),
        (loss_and_slope(1), (2048, 2048)),
        (loss_and_slope(0), (1 << 18, 512)),
        (stencil_energy, (1026, 1026)),
    ],
)
def test_one_kernel_stores_and_reduces(make: Make, shape: tuple[int, ...], target: str) -> None:
    (group,) = kernels_of(graph_of(make, shape), target)
    assert len(group.stores) == 2 and group.reduced


def rows_then_all(b: GraphBuilder, x: Value) -> list[Value]:
    """The rows' own sums belong to what is stored, not to the sum of all."""
    e = b.map("exp", x)
    total = b.reshape(b.reduce("sum", e, (1,)), (x.shape[0], 1))
    return [b.reduce("sum", b.map("sin", e), (0, 1)), b.map("divide", e, total)]


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (loss_and_slope(1), (1 << 18, 4)),  # rows too short for vectors
        (lambda b, x: [b.reduce("sum", x, (0, 1)), b.permute(slope(b, b.permute(x, (1, 0))), (1, 0))], (64, 1024)),
        (rows_then_all, (4096, 512)),
    ],
)
def test_two_kernels_where_the_loop_would_be_worse(make: Make, shape: tuple[int, ...], target: str) -> None:
    groups = kernels_of(graph_of(make, shape), target)
    if make is rows_then_all:
        (rows,) = [g for g in groups if g.reduced == (1,)]
        assert any(len(g.reduced) == 2 for g in groups) and len(rows.stores) >= 1
    else:
        assert all(not g.reduced or len(g.stores) == 1 for g in groups) or len(groups) == 1


def loss_of_rows(b: GraphBuilder, x: Value) -> list[Value]:
    """A cross entropy of rows with the gradient of its logarithm."""
    n = x.shape[0]
    z = b.map("subtract", x, b.reshape(b.reduce("max", x, (1,)), (n, 1)))
    e = b.map("exp", z)
    total = b.reshape(b.reduce("sum", e, (1,)), (n, 1))
    return [
        b.reduce("sum", b.map("multiply", x, b.map("subtract", z, b.map("log", total))), (0, 1)),
        b.map("divide", e, total),
    ]


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_a_loss_over_rows_reads_them_once(target: str) -> None:
    first, *others = kernels_of(graph_of(loss_of_rows, (4096, 512)), target)
    assert first.reduced == (1,) and len(first.stores) == 2 and all(math.prod(g.domain) <= 4096 for g in others)


@pytest.mark.parametrize("shape", [(3, 5), (30, 40), (4, 300), (10, 1, 33)])
@pytest.mark.parametrize("dtype", ["f4", "f8", "f2"])
def test_a_loss_over_rows_means_what_the_graph_means(shape: tuple[int, ...], dtype: str) -> None:
    def make(b: GraphBuilder, x: Value) -> list[Value]:
        rows = b.reduce("sum", x, (len(shape) - 1,))
        y = b.map("add", b.reshape(rows, (*rows.shape, 1)), x)
        every = tuple(range(len(shape)))
        return [b.reduce("sum", y, every), b.reduce("max", y, every[1:]), b.reduce("argmax", y, every), y]

    graph = graph_of(make, shape, dtype)
    array = np.random.default_rng(3).integers(-1, 2, shape).astype(dtype)
    for run in (compiled, on_device):
        for got, want in zip(run(graph, [array]), interpret_graph(graph, [array]), strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_what_one_core_would_sum_leaves_the_stores_to_all(target: str) -> None:
    groups = kernels_of(graph_of(loss_and_slope(0), (1 << 14,)), target)
    assert sorted(len(g.reduced) for g in groups) == [0, 1] and all(len(g.stores) == 1 for g in groups)
    (group,) = kernels_of(graph_of(loss_and_slope(0), (1 << 12,)), target)
    assert len(group.stores) == 2


def test_what_is_assigned_to_is_stored_after_the_sum_has_read_it() -> None:
    b = GraphBuilder("assigned")
    x = b.input(ArrayType((64, 256), np.dtype("f4")))
    y = b.map("multiply", x, 3)
    near = b.slice(y, (0, 0), (1, 1), (63, 256))
    new = b.update(y, b.map("add", near, 1), (1, 0), (1, 1))
    graph = b.finish([new, b.reduce("sum", b.map("sin", near), (0, 1))])
    array = np.random.default_rng(1).normal(size=(64, 256)).astype("f4")
    for got, want in zip(compiled(graph, [array]), interpret_graph(graph, [array]), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)


@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_means_what_the_graph_means(data: st.DataObject) -> None:
    """Long axes too, whose sums are cut into pieces, on the CPU and as CUDA text."""
    shapes = st.sampled_from(
        [(7,), (3, 300), (5, 3, 129), (70000,), (300, 259), (2, 3, 20000), (40000, 2), (20000, 1, 3)]
    )
    shape = data.draw(shapes)
    axes = data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))
    dtype = data.draw(st.sampled_from(["f4", "f8", "i4", "f2"]))
    ops = data.draw(st.lists(st.sampled_from(["sum", "max", "argmin", "any"]), min_size=1, max_size=2, unique=True))
    if dtype == "f2" and "sum" in ops:  # float16 counts to 2,048
        dtype = "f4"

    def make(b: GraphBuilder, x: Value) -> list[Value]:
        y = b.map("add", b.map("multiply", x, x), 1)
        z = b.map("subtract", b.map("absolute", x), y)
        return [*(b.reduce(op, z, tuple(sorted(axes))) for op in ops), z, b.map("maximum", y, x)]

    graph = graph_of(make, shape, dtype)
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    array = np.asarray(rng.integers(-3, 4, shape)).astype(dtype)
    wanted = interpret_graph(graph, [array])
    runs = [compiled] if array.size > 1 << 11 else [compiled, on_device]
    for run in runs:
        for got, want in zip(run(graph, [array]), wanted, strict=True):
            np.testing.assert_array_equal(got, want)


# the kernels of (40, 2100) are those of (4, 2100), and of (9000, 5) those of (3000, 2), which take a tenth of the time
LONG = [((4, 2100), (1,)), ((18000,), (0,)), ((3000, 2), (0,)), ((9, 2100), (0, 1))]
LONGER = [((40, 2100), (1,)), ((9000, 5), (0,))]


@pytest.mark.parametrize(("shape", "axes"), LONG + LONGER * (examples(2) > 1))
def test_cuda_text_of_long_sweeps(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    """On the emulator: rows that loop, sums in two stages, columns."""
    graph = graph_of(lambda b, x: [b.reduce("sum", b.map("multiply", x, x), axes), b.map("add", x, 1)], shape)
    array = np.random.default_rng(2).integers(-3, 4, shape).astype("f4")
    for got, want in zip(on_device(graph, [array]), interpret_graph(graph, [array]), strict=True):
        np.testing.assert_array_equal(got, want)


def many_at_a_time(b: GraphBuilder, x: Value) -> list[Value]:
    """Values that all wait for the last one."""
    values = [b.map("sin", b.map("add", x, i)) for i in range(20)]
    total = values[0]
    for value in values[1:]:
        total = b.map("multiply", b.map("add", total, value), value)
    for value in values:
        total = b.map("maximum", b.map("multiply", total, value), value)
    return [b.reduce("sum", total, (0,)), b.map("add", total, 1)]


@pytest.mark.parametrize("shape", [(1 << 20,), (1 << 24,)])
def test_a_gpu_thread_takes_what_its_registers_hold(shape: tuple[int, ...]) -> None:
    program = pipeline.compile_graph_to_program(graph_of(many_at_a_time, shape), "cuda")
    kernel = program.tasks[0].kernel
    assert isinstance(kernel, Kernel) and isinstance(kernel.form, LoopNest)
    form = kernel.form
    lanes = choose_cuda_launch_shape(form).lanes
    assert lanes == 4 and max(_most_cuda_register_words_alive(p) for p in form.phases) > 16


@pytest.mark.parametrize("rows", [2046, 10238, 1000, 4099])
def test_pieces_of_a_long_reduction_are_alike(rows: int) -> None:
    """What was left over of the rows was once the work of one block."""
    program = pipeline.compile_graph_to_program(graph_of(stencil_energy, (rows + 2, 1026)), "cuda")
    first, *rest = [t for t in program.tasks if "_part" in t.name]
    assert all(
        union_bytes_of_regions(t.writes) / t.grid[0] <= 1.01 * union_bytes_of_regions(first.writes) / first.grid[0]
        for t in rest
    )


@pytest.mark.parametrize("dtype", ["f4", "f2"])
@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((6304, 768), (0,)), ((32, 197, 768), (0, 1)), ((8, 1024, 3072), (0, 1)), ((32, 56, 56, 64), (0, 1, 2)),
        ((8, 128, 128, 32), (0, 1, 2)), ((2, 3000, 16), (0, 1)), ((3, 2, 2, 700, 5), (1, 2, 3)),
        ((8, 1024, 768), (0, 1, 2)), ((2, 3, 500000), (1, 2)),
        ((32, 56, 56, 256), (0, 1, 2, 3)), ((2, 2, 2, 1 << 18), (0, 1, 2, 3)),
    ],
)  # fmt: skip
def test_reductions_to_few_elements_occupy_a_gpu(shape: tuple[int, ...], axes: tuple[int, ...], dtype: str) -> None:
    """Half of its processors have a part at least, or all parts there are, of what is read."""
    b = GraphBuilder("columns")
    x = b.input(ArrayType(shape, np.dtype(dtype)))
    graph = b.finish([b.reduce("sum", b.map("multiply", x, x), axes, np.dtype(dtype)), b.reduce("max", x, axes)])
    program = pipeline.compile_graph_to_program(graph, "cuda")
    size = math.prod(shape)
    largest = [t for t in program.tasks if sum(math.prod(r.shape) for r in t.reads) * 2 > size]
    assert largest and all(math.prod(t.grid) >= min(66, size // (64 * 256)) for t in largest)


@given(st.lists(st.integers(1, 40), min_size=3, max_size=4), st.data())
@settings(max_examples=examples(40), deadline=None)
def test_axes_are_reduced_one_after_another(shape: list[int], data: Any) -> None:
    """With the same results, whatever the op and the dtype."""
    model = replace(target_of("cuda").model, column_length=8, split_length=16)
    axes = tuple(sorted(data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))))
    op, dtype = data.draw(
        st.sampled_from([("sum", "f4"), ("sum", "f2"), ("max", "f4"), ("sum", "i4"), ("argmax", "f4")])
    )
    if op == "argmax":
        axes = axes[:1]
    b = GraphBuilder("columns")
    x = b.input(ArrayType(tuple(shape), np.dtype(dtype)))
    graph = b.finish([b.reduce(op, x, axes, np.dtype(dtype) if op != "argmax" else None)])
    found = reduce_axis_by_axis(graph, model)
    given_array = (np.random.default_rng(0).normal(size=shape) * 3).astype(dtype)
    (ours,), (theirs,) = interpret_graph(found, [given_array]), interpret_graph(graph, [given_array])
    assert ours.dtype == theirs.dtype
    np.testing.assert_allclose(ours.astype(float), theirs.astype(float), rtol=1e-2, atol=2e-2 * max(shape))


ROWS = ((20, 40), (3, 5, 33), (2, 9, 1, 65), (10, 520))


@st.composite
def rows_and_sums(draw: st.DrawFn, op: str) -> Graph:
    """Reductions of rows, what is computed with them, and sums of some of it over all other axes."""
    shape, b = draw(st.sampled_from(ROWS)), GraphBuilder("rows")
    dtypes = [np.dtype(draw(st.sampled_from(["f4", "f4", ml_dtypes.bfloat16]))) for _ in range(2)]
    types = [ArrayType(shape, dtypes[0]), ArrayType(shape, dtypes[1]), ArrayType(shape[-1:], dtypes[0])]
    wide = [b.cast(b.input(t), np.dtype("f4")) for t in types]
    values, last = wide[:2], (len(shape) - 1,)
    for turn in range(draw(st.integers(2, 7))):
        value, other = draw(st.sampled_from(values)), draw(st.sampled_from(values))
        step = draw(st.sampled_from(["row", "map", "scaled"])) if turn else "row"
        if step == "row":
            row = b.reduce(draw(st.sampled_from(["sum", "max"])), value, last)
            row = b.map("multiply", row, 1 / 64) if draw(st.booleans()) else row
            value = b.map("subtract", other, b.reshape(row, (*shape[:-1], 1)))
        elif step == "map":
            value = b.map(draw(st.sampled_from(["add", "multiply", "maximum"])), value, b.map("sin", other))
        else:
            value = b.map("multiply", value, b.reshape(wide[2], (*(1,) * (len(shape) - 1), shape[-1])))
        values.append(b.map("multiply", value, 0.25))
    summed = draw(st.lists(st.sampled_from(values), min_size=1, max_size=3))
    sums = [b.reduce(op, value, tuple(range(len(shape) - 1))) for value in summed]
    sums = [b.cast(b.map("multiply", s, 0.5), dtypes[0]) if draw(st.booleans()) else s for s in sums]
    stored = [b.cast(draw(st.sampled_from(values[2:])), dtypes[1]) for _ in range(draw(st.integers(1, 2)))]
    return b.finish([*sums, *stored])


@pytest.mark.parametrize("op", ["sum", "max"])
@settings(max_examples=examples(16), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_sums_that_begin_where_rows_are(op: str, data: st.DataObject) -> None:
    """They mean what the graph means, as loop nests and as CUDA text; other reductions do not begin there."""
    graph = data.draw(rows_and_sums(op))
    rng, types = np.random.default_rng(data.draw(st.integers(0, 99))), [graph.nodes[i].type for i in graph.inputs]
    arrays = [rng.normal(size=t.shape).astype(t.dtype) for t in types]
    exact = interpret_graph(graph, arrays)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweeps, "SUMMED_ELEMENTS", 0)
        patch.setattr(sweeps, "SUMMED_ROW", 0)
        program = pipeline.compile_graph_to_program(graph, "cuda")
        types = [graph.nodes[o].type for o in graph.outputs]
        nests = [f.view(t.dtype).reshape(t.shape) for f, t in zip(run_program(program, arrays), types, strict=True)]
        for found in (nests, on_device(graph, arrays)):
            for got, want in zip(found, exact, strict=True):
                assert got.dtype == want.dtype
                got, want = np.float64(got), np.float64(want)
                np.testing.assert_allclose(got, want, rtol=2e-2, atol=1e-4 * (1 + np.abs(want).max()))


@pytest.mark.parametrize("count", [8, 32])
def test_rows_for_sums_are_looked_for_among_those_that_share_an_array(count: int) -> None:
    """Work grows with the graph, not with its square."""
    b, asked = GraphBuilder("many"), []
    two, xs = b.const(2, np.float32), [b.input(ArrayType((600, 8), np.dtype("f4"))) for _ in range(count)]
    graph = b.finish([b.reduce("sum", b.map("multiply", x, two), (0,)) for x in xs])
    with pytest.MonkeyPatch.context() as patch:
        ask = fuse.may_begin_with_rows
        patch.setattr(fuse, "may_begin_with_rows", lambda *args: asked.append(args) or ask(*args))
        pipeline.compile_graph_to_program(graph, "cuda")
    assert len(asked) <= count


def layer(x, w, b):
    return kg.nn.layer_norm(x, w, b)


def layer_in_numpy(x, w, b):
    mean = x.mean(-1, keepdims=True)
    spread = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) / np.sqrt(spread + np.float32(1e-5)) * w + b


def root_mean_square(x, w, b):
    return kg.nn.rms_norm(x, w) + b


@pytest.mark.parametrize("norm", [layer, layer_in_numpy, root_mean_square])
@pytest.mark.parametrize("shape", [(40, 70), (3, 9, 65)])
def test_gradients_of_norms_read_their_arrays_once(norm: Any, shape: tuple[int, ...]) -> None:
    """Those of the weights too, which are sums over all rows."""

    def gradients(x, w, b, ct):
        return kg.grad(lambda x, w, b: (norm(x, w, b) * ct).sum(), (0, 1, 2))(x, w, b)

    rng, touched = np.random.default_rng(0), []
    arrays = [rng.normal(size=s).astype("f4") for s in (shape, shape[-1:], shape[-1:], shape)]
    graph = kg.kernel_graph(device="fake")(gradients).graph(*arrays)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweeps, "SUMMED_ELEMENTS", 0)
        patch.setattr(sweeps, "SUMMED_ROW", 0)
        program = pipeline.compile_graph_to_program(graph, "cuda")
        numbers = [graph.nodes[n].dtype.type(2) for n in graph.numbers]
        found = run_program(program, arrays, numbers, touched=touched)
    size, rows = math.prod(shape), math.prod(shape[:-1])
    assert len(program.tasks) == 2 and touched[0].loads == 2 * size + shape[-1]
    assert touched[1].loads == touched[0].stores - size <= 2 * -(-rows // 8) * shape[-1]
    for got, want in zip(found, interpret_graph(graph, arrays, numbers), strict=True):
        np.testing.assert_allclose(got.view("f4").reshape(want.shape), want, rtol=1e-3, atol=1e-4)
