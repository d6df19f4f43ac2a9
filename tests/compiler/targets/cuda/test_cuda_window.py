"""Stencils on a GPU: what shifted views share is read once, and what comes out is what NumPy says, bit by bit."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kernelgraph as kg
from kernelgraph.compiler.fusion import sweeps
from kernelgraph.compiler.kernel.loop_nest import LoopNest
from kernelgraph.compiler.lowering import kernels
from kernelgraph.compiler.pipeline import compile_graph_to_program
from kernelgraph.compiler.targets.cuda.kernel import cuda_grid_and_block
from kernelgraph.compiler.targets.cuda.launch_shape import choose_cuda_launch_shape
from kernelgraph.runtime.program.device import H200, GpuProperties
from kernelgraph.runtime.program.program import Int
from tests.compiler.cuda_nests import F32, Array, _array, emulate, reference
from tests.compiler.device_calls import emulated
from tests.compiler.stencils import Stencil, first_elements, five_point, forms, graph_of, program_of, stencils
from tests.counts import examples

SEEDS = st.integers(0, 2**32 - 1)


@settings(max_examples=examples(40), deadline=None)
@given(stencils(), st.booleans(), SEEDS)
def test_stencils_mean_what_numpy_says(stencil: Stencil, many: bool, seed: int) -> None:
    arrays = stencil.arrays(seed)
    graph, given_arrays = graph_of(stencil, arrays)
    found = emulated(program_of(graph, many), given_arrays)
    wanted = stencil(*arrays)
    for got, want in zip(found, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        np.testing.assert_array_equal(got.view(want.dtype).reshape(want.shape), want)


@settings(max_examples=examples(60), deadline=None)
@given(stencils(), SEEDS)
def test_windows_say_where_operands_lie(stencil: Stencil, seed: int) -> None:
    """Operands of a window start where their shifts say; so many elements of it are aligned."""
    program = compile_graph_to_program(graph_of(stencil, stencil.arrays(seed))[0], "cuda")
    for form, starts, strides in first_elements(program):
        for window in form.windows:
            size = form.operands[window.operands[0]].dtype.itemsize
            corners = {
                starts[k] - size * sum(n * s for n, s in zip(shift, strides[k], strict=True))
                for k, shift in zip(window.operands, window.shifts, strict=True)
            }
            assert len(corners) == 1 and min(map(min, window.shifts)) == 0
            rows = [size * s for s in strides[window.operands[0]][:-1]]
            assert all(n % (form.vector * size) == 0 for n in (*corners, *rows))


@settings(max_examples=examples(20), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(stencils(24), st.sampled_from(["f32", "f64", "i32"]), st.integers(0, 2), st.booleans(), st.booleans(), SEEDS)
def test_sums_of_stencils_mean_what_numpy_says(
    monkeypatch: pytest.MonkeyPatch, stencil: Stencil, dtype: str, kept: int, stored: bool, many: bool, seed: int
) -> None:
    """Sums and maxima along the last axes, with or without what they are made of, in tiles and parts of all sizes."""
    for module in (kernels, sweeps):
        monkeypatch.setattr(module, "SWEPT_ELEMENTS", 1)
    stencil = replace(stencil, dtype=dtype, indexed=False)
    axes = tuple(range(min(kept, len(stencil.shape) - 1), len(stencil.shape)))

    def reductions(x: Any, y: Any) -> Any:
        values = stencil(x, y)
        return values.sum(axes), values.max(axes), *([values * 2] if stored else [])

    arrays = [np.round(a) for a in stencil.arrays(seed)]
    graph, given_arrays = graph_of(reductions, arrays)
    found = emulated(program_of(graph, many), given_arrays)
    for got, want in zip(found, reductions(*arrays), strict=True):
        np.testing.assert_array_equal(got.view(want.dtype).reshape(want.shape), want)


def energy(u: Any) -> Any:
    """The sum of squares of a five-point stencil, and a stencil of its inside: as a gradient is."""
    r = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1]
    return (r * r).sum(), r[2:, 1:-1] + r[:-2, 1:-1] + r[1:-1, 2:] + r[1:-1, :-2] - 4 * r[1:-1, 1:-1]


@pytest.mark.parametrize("shape", [(270, 80), (521, 45)])  # as many rows as fill the machine
def test_a_stencil_and_the_sum_around_it_are_one_kernel(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int]
) -> None:
    monkeypatch.setattr(sweeps, "SPLIT_ELEMENTS", 1 << 12)
    u = np.random.default_rng(0).integers(-3, 4, shape).astype("f4")
    graph, given_arrays = graph_of(energy, [u])
    program = compile_graph_to_program(graph, "cuda")
    whole = [f for f in forms(program) if choose_cuda_launch_shape(f).strategy == "swept window"]
    assert whole and all(any(o.role == "out" and o.layout[-1] == "1" for o in f.operands) for f in whole)
    for many in (False, True):
        for got, want in zip(emulated(program_of(graph, many), given_arrays), energy(u), strict=True):
            np.testing.assert_array_equal(got.view(want.dtype).reshape(want.shape), want)


@pytest.mark.parametrize(
    ("shape", "part"), [((10238, 10240), 8), ((4096, 4096), 8), ((1000, 1000), 16), ((40000, 100), 88)]
)
def test_parts_of_a_stencils_sum_have_whole_threads(shape: tuple[int, int], part: int) -> None:
    rows, columns = shape
    u = np.zeros((rows + 1, columns + 1), np.float32)
    graph, _ = graph_of(lambda u: ((u[1:, 1:] - u[:-1, 1:]) ** 2).sum(), [u])
    program = compile_graph_to_program(graph, "cuda")
    first = program.tasks[0]
    numbers = [a.value for a in first.arguments if isinstance(a, Int)]
    assert choose_cuda_launch_shape(first.kernel.form).strategy == "swept window"  # type: ignore[union-attr]
    assert numbers[1] == part and numbers[0] == rows // part


def five_arrays(nest: LoopNest, sizes: tuple[int, int]) -> list[Array]:
    rows, columns = sizes[0] + 2, sizes[1] + 2
    data = np.random.default_rng(0).normal(size=rows * columns).astype("f4").view(np.uint8)
    shared = [_array(data, 4 * (r * columns + c), F32, sizes, (columns, 1)) for r, c in nest.windows[0].shifts]
    return [*shared, _array(np.zeros(4 * sizes[0] * sizes[1], np.uint8), 0, F32, sizes, (sizes[1], 1))]


@pytest.mark.parametrize(("vector", "many", "rows"), [(2, False, 4), (2, True, 8), (1, False, 8)])
def test_a_warp_reads_what_views_share_once(vector: int, many: bool, rows: int) -> None:
    """Of each row so many columns as it has lanes, and two rows more than it computes: not five times as many."""
    nest = five_point(vector, many)
    tile = 32 * vector - 2
    sizes = (2 * rows, 3 * tile)
    arrays = five_arrays(nest, sizes)
    pointers = emulate(nest, arrays, sizes)
    wanted = five_arrays(nest, sizes)
    reference(nest, wanted, sizes)
    np.testing.assert_array_equal(arrays[5].view, wanted[5].view)
    assert [sum(p.loads.values()) for p in pointers[:5]] == [2 * 3 * (rows + 2) * (tile + 2), 0, 0, 0, 0]
    assert set(pointers[5].stores.values()) == {1} and len(pointers[5].stores) == sizes[0] * sizes[1]


def windows(function: Any, *arrays: Any) -> list[set[tuple[int, ...]]]:
    """The shifts of each window."""
    return [
        set(w.shifts)
        for form in forms(compile_graph_to_program(graph_of(function, arrays)[0], "cuda"))
        for w in form.windows
    ]


X = np.ones((60, 80), np.float32)


def test_what_has_windows() -> None:
    assert windows(lambda x: x[2:, 1:] + x[:-2, :-1], X) == [{(2, 1), (0, 0)}]
    assert windows(lambda x: x[::-1][1:, 1:] + x[::-1][:-1, 1:], X) == [{(1, 0), (0, 0)}]
    assert windows(lambda x: x[0, 1:] + x[0, :-1], X) == [{(1,), (0,)}]
    assert windows(lambda x: x[:, 1:] + x[:, :-1] + x[:, :1], X) == [{(0, 1), (0, 0)}]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[:, ::-1][:, 1:] + x[:, ::-1][:, :-1],  # backwards along the innermost axis
        lambda x: x[:, ::2] + x[:, 1::2],  # every other element
        lambda x: x[::2, 1:] + x[1::2, 1:],  # no steps apart
        lambda x: x[0, 1:] + x[1, 1:],  # rows of no axis
        lambda x: x[:, :10] + x[:, 1:11],  # less than a warp
        lambda x: x[:, 40:] + x[:, :40],  # too far apart
        lambda x: x[1:] + x[:-1],  # of one long axis, and far apart
        lambda x: x + 1,
    ],
)
def test_what_has_none(function: Any) -> None:
    assert windows(function, X) == []


def test_what_is_written_in_place_is_in_no_window() -> None:
    def shifted(x: Any) -> Any:
        x = x * 2
        x[:, :40] = x[:, :40] + x[:, 40:]
        x[:, :40] += x[:, 1:41]
        return x

    for form in forms(compile_graph_to_program(graph_of(shifted, [X])[0], "cuda")):
        assert all(form.operands[k].role == "in" for w in form.windows for k in w.operands)


@pytest.mark.parametrize("sizes", [(1022, 1022), (5, 40), (16382, 8190), (1, 10**6)])
@pytest.mark.parametrize("gpu", [H200, replace(H200, multiprocessors=16)])
def test_blocks_are_as_large_as_leaves_enough_of_them(sizes: tuple[int, int], gpu: GpuProperties) -> None:
    nest = five_point()
    (blocks, _, _), (x, y, z) = cuda_grid_and_block(nest, sizes, gpu)
    rows, columns = choose_cuda_launch_shape(nest).groups, 62 * x // 32
    assert (x % 32, z) == (0, 1) and 32 <= x * y <= 256
    assert blocks == -(-sizes[1] // columns) * -(-sizes[0] // (rows * y))
    assert blocks >= 2 * gpu.multiprocessors or x * y == 32


def test_users_functions_and_gathers_take_no_windows() -> None:
    """Lanes without columns of their own compute as well: they may call nothing, and look up nothing."""
    table = np.arange(100, dtype=np.int64)

    def looked_up(x: Any, t: Any) -> Any:
        return t[x[1:] + x[:-1]]

    graph, _ = graph_of(looked_up, [np.ones(100, np.int64), table])
    for form in forms(compile_graph_to_program(graph, "cuda")):
        assert not form.looked_up or choose_cuda_launch_shape(form).strategy == "elementwise"


def test_the_cpu_has_no_windows() -> None:
    graph, _ = graph_of(lambda x: x[1:] + x[:-1], [np.ones(100, np.float32)])
    assert all(not form.windows for form in forms(compile_graph_to_program(graph, "cpu")))
    assert kg.kernel_graph(device="cpu")(lambda x: x[1:] + x[:-1])(np.arange(9.0)).shape == (8,)


def test_the_size_class() -> None:
    """Threads take more rows where those still fill the GPU."""
    for columns, many in ((1000, False), (10_000, True)):
        x = kg.spec((1000, columns), np.float32)
        (form,) = forms(
            compile_graph_to_program(kg.kernel_graph(device="fake")(lambda x: x[1:, 1:] + x[:-1, :-1]).graph(x), "cuda")
        )
        assert form.many == many and form.width == 1


def in_place(x: Any) -> Any:
    y = x * 2
    y[1:, 1:] += x[1:, :-1] + x[:-1, 1:]
    return y


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[::-1][1:, 1:] - x[::-1][:-1, 1:],
        lambda x: x[::2, 1:] - x[::2, :-1] + x[1::2, 1:],
        lambda x: x.reshape(3, 2, 10, 80)[1:, :, 1:, 2:] - x.reshape(3, 2, 10, 80)[:-1, :, :-1, :-2],
        lambda x: (x[1:, 1:] - x[:-1, :-1], (x[1:, 1:] > x[1:, :-1]).astype(np.int8)),
        in_place,
    ],
)
def test_other_views(function: Any, many: bool) -> None:
    """Rows from below, every other row, four axes, outputs of other sizes, what is read and written."""
    x = np.random.default_rng(0).normal(size=X.shape).astype(np.float32)
    program = program_of(graph_of(function, [x])[0], many)
    assert any(form.windows for form in forms(program))
    wanted = function(x)
    for got, want in zip(emulated(program, [x]), wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        np.testing.assert_array_equal(got.view(want.dtype).reshape(want.shape), want)


def corners(x: Any, size: int) -> Any:
    """Products of two gradients, divided, summed over boxes of so many along each axis."""
    inside = [slice(1, -1)] * x.ndim

    def gradient(axis: int) -> Any:
        late, early = ([*inside[:axis], slice(a, b), *inside[axis + 1 :]] for a, b in ((2, None), (None, -2)))
        return (x[tuple(late)] - x[tuple(early)]) / 12

    def boxed(y: Any) -> Any:
        places = itertools.product(range(size), repeat=x.ndim)
        return sum(y[tuple(slice(a, n - size + 1 + a) for a, n in zip(at, y.shape, strict=True))] for at in places)

    first, last = gradient(0), gradient(x.ndim - 1)
    return boxed(first * last) - boxed(last * last)


@settings(max_examples=examples(12), deadline=None)
@given(st.integers(1, 3), st.integers(2, 3), st.integers(0, 4), st.sampled_from(["f4", "f8"]), st.booleans(), SEEDS)
def test_what_several_shifts_share_means_what_numpy_says(
    axes: int, size: int, beyond: int, dtype: str, many: bool, seed: int
) -> None:
    size = min(size, 5 - axes)
    shape = (*(size + 2 + beyond + k for k in range(axes - 1)), 70 + 13 * beyond)
    x = np.random.default_rng(seed).normal(size=shape).astype(dtype)
    graph, given_arrays = graph_of(lambda x: corners(x, size), [x])
    (found,) = emulated(program_of(graph, many), given_arrays)
    wanted = corners(x, size)
    np.testing.assert_array_equal(found.view(wanted.dtype).reshape(wanted.shape), wanted)


def test_what_several_shifts_share_is_computed_once() -> None:
    """Two quotients, on the rows of a thread's tile and those around it: once at each of nine shifts, eighteen."""
    x = np.zeros((300, 300), np.float32)
    program = compile_graph_to_program(graph_of(lambda x: corners(x, 3), [x])[0], "cuda")
    (kernel,) = [task.kernel for task in program.tasks]
    whole, _ = kernel.source.split("        else:")  # type: ignore[union-attr]
    assert choose_cuda_launch_shape(kernel.form).strategy == "window"  # type: ignore[union-attr]
    assert whole.count(" div(") <= 2 * 3


@pytest.mark.parametrize(("size", "dtype"), [(9, "f4"), (11, "f4"), (8, "f8")])
def test_windows_larger_than_the_registers_are_read_in_turn(size: int, dtype: str) -> None:
    """Each of their elements was loaded for 16 points at once: kernels of 26,000 instructions that spilled."""
    places = list(itertools.product(range(size), repeat=2))
    n, m = 9, 90

    def box(x: Any) -> Any:
        return sum(x[i : i + n, j : j + m] for i, j in places)

    x = np.random.default_rng(size).integers(-9, 9, (n + size - 1, m + size - 1)).astype(dtype)
    graph, given_arrays = graph_of(box, [x])
    program = compile_graph_to_program(graph, "cuda")
    assert [choose_cuda_launch_shape(form).strategy for form in forms(program)] == ["window"]
    (found,) = emulated(program, given_arrays)
    np.testing.assert_array_equal(found.view(dtype).reshape(n, m), box(x))


@pytest.mark.parametrize(
    ("length", "strategy"), [(1, ""), (3, "elementwise"), (7, "elementwise"), (8, "tile"), (40, "tile")]
)
@pytest.mark.parametrize("axes", [(0, 2, 1), (1, 0)])
def test_axes_are_turned_in_tiles_where_these_are_filled(axes: tuple[int, ...], length: int, strategy: str) -> None:
    """Three channels became last in tiles of 32: most threads had nothing to do."""
    for shape in ((length, 300), (300, length)):
        x = np.random.default_rng(length).normal(size=(2,) * (len(axes) - 2) + shape).astype(np.float32)
        graph, given_arrays = graph_of(lambda x: x.transpose(axes) + np.float32(1), [x])
        program = compile_graph_to_program(graph, "cuda")
        if strategy:
            assert [choose_cuda_launch_shape(form).strategy for form in forms(program)] == [strategy]
        (found,) = emulated(program, given_arrays)
        np.testing.assert_array_equal(found.view(np.float32).reshape(x.transpose(axes).shape), x.transpose(axes) + 1)
