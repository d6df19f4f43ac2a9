"""Counting and scattering kernels of a GPU on the emulator, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelgraph.compiler.core import cost
from kernelgraph.compiler.core.types import ArrayType
from kernelgraph.compiler.decompose import assignments
from kernelgraph.compiler.decompose.rules import decompose_host_calls
from kernelgraph.compiler.graph.builder import GraphBuilder
from kernelgraph.compiler.pipeline import compile_graph_to_program
from kernelgraph.compiler.targets.cuda.algorithms import (
    ordered_scatter,
    ordered_scatter_kernels,
    radix_sort_kernels,
    scatter,
    scatter_kernels,
)
from kernelgraph.runtime.core.settings import override
from kernelgraph.runtime.program.program import Library
from tests.compiler.device_calls import on_device

from .test_device_calls import agrees, graph_of

few = settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
RNG = np.random.default_rng(0)


def test_counts() -> None:
    for dtype, bins in (("i4", 30), ("u1", 300), ("i8", 9000)):
        agrees(lambda x, n=bins: np.bincount(x, minlength=n), RNG.integers(0, 30, 700).astype(dtype))
    agrees(lambda x: np.bincount(x[::-2], minlength=8), RNG.integers(0, 8, 90))


def test_a_histogram_is_two_kernels() -> None:
    x = RNG.standard_normal(300).astype("f4")
    tasks = compile_graph_to_program(graph_of(lambda x: np.histogram(x, 8, (-1.0, 1.0))[0] + 1, x), "cuda").tasks
    assert [t.name for t in tasks][1:] == ["fill", "bincount", "add"]


@st.composite
def keys(draw: Any) -> tuple[tuple[int, ...], list[Any], Any]:
    """A shape, a key for it, and arrays for the key."""
    shape = tuple(draw(st.integers(1, 5)) for _ in range(draw(st.integers(1, 3))))
    key: list[Any] = []
    arrays = []
    for n in shape[: draw(st.integers(1, len(shape)))]:
        kind = draw(st.sampled_from(["array", "array", "slice", "int", "new"]))
        if kind == "new":
            key.append(None)
        if kind in ("array", "new"):
            key.append("array")
            arrays.append(np.array(draw(st.lists(st.integers(-n, n - 1), min_size=4, max_size=4))))
        elif kind == "slice":
            key.append(slice(None, None, draw(st.sampled_from([None, 2, -1]))))
        else:
            key.append(draw(st.integers(-n, n - 1)))
    if not arrays:
        key[0] = "array"
        arrays.append(np.array([0, -1, 0]))
    return shape, key, arrays


def filled(key: list[Any], arrays: Any) -> Any:
    left = list(arrays)
    return tuple(left.pop(0) if isinstance(k, str) else k for k in key)


@given(keys(), st.sampled_from(["f4", "i8", "c8", "?"]))
@few
def test_assigning(case: Any, dtype: str) -> None:
    shape, key, arrays = case
    x = RNG.integers(0, 2 if dtype == "?" else 9, shape).astype(dtype)
    values = RNG.integers(0, 2 if dtype == "?" else 9, x[filled(key, arrays)].shape).astype(dtype)

    def function(x: Any, values: Any, *arrays: Any) -> Any:
        y = x.copy()
        y[filled(key, arrays)] = values
        return y

    wanted = function(x, values, *arrays)
    agrees(function, x, values, *arrays)
    assert wanted.shape == shape


def test_combining_at_indices() -> None:
    i = RNG.integers(-20, 20, 50)
    v = RNG.standard_normal(50).astype("f4")  # summed in NumPy's order: the same bits

    def function(x: Any, i: Any, v: Any) -> Any:
        y = x.copy()
        np.add.at(y, i, v)
        return y

    def greatest(x: Any, i: Any, v: Any) -> Any:
        y = x.copy()
        np.maximum.at(y, (slice(None), i), v)
        return y

    agrees(function, RNG.standard_normal(20).astype("f4"), i, v)
    agrees(greatest, RNG.integers(-3, 3, (2, 20)), i, RNG.integers(-9, 9, 50))


@pytest.mark.parametrize("every", [0, 1000], ids=["elements", "places"])
def test_many_values_for_few_places(every: int, monkeypatch: Any) -> None:
    """Places of 1, 7, 8, 9, 17 and 100 values, in parts of 8, a thread for each value or for each place."""
    monkeypatch.setattr(assignments, "PART", 8)
    monkeypatch.setattr(assignments, "SPARSE", every)
    i = RNG.permutation(np.repeat(np.arange(6), [1, 7, 8, 9, 17, 100]))
    v = RNG.integers(-9, 9, 142)

    def together(x: Any, i: Any, v: Any) -> Any:
        y, z = x.copy(), x.copy()
        np.subtract.at(y, i, v)
        np.minimum.at(z, i, v)
        return y, z

    agrees(together, np.arange(7), i, v)
    agrees(lambda i, v: np.bincount(i, v, 7), i, v.astype("f4"))


@pytest.mark.parametrize("sparse", [0, 1000], ids=["elements", "places"])
@pytest.mark.parametrize("dtype", ["f4", "f2", "f8"])
def test_an_order_of_places_serves_all_sums_of_it(sparse: int, dtype: str, monkeypatch: Any) -> None:
    """Sums of what tables have at indices, in turns, with negative indices, places without values, and one of many:
    in NumPy's order up to two parts, the places sorted once."""
    monkeypatch.setattr(assignments, "SPARSE", sparse)
    source, goal = RNG.integers(-40, 40, 300), np.where(RNG.random(300) < 0.02, 7, RNG.integers(-40, 40, 300))
    x = RNG.standard_normal(40).astype(dtype)

    def turns(x: Any, source: Any, goal: Any) -> Any:
        for _ in range(3):
            there, back = np.zeros(40, x.dtype), x / 8
            np.add.at(there, goal, x[source])
            np.subtract.at(back, source, x[goal])
            x = there / 4 + back
        return x

    agrees(turns, x, source, goal)
    program = compile_graph_to_program(graph_of(turns, x, source, goal), "cuda")
    names = [task.name for task in program.tasks]
    assert names.count("starts") == 2 and names.count("combine_at") == 6


@pytest.mark.parametrize(("sparse", "tiles"), [(0, 0), (1000, 0), (1000, 1)], ids=["elements", "places", "tiles"])
@pytest.mark.parametrize("dtype", ["f4", "f8", "f2"])
def test_sums_of_a_table_times_a_number_do_not_wait_for_it(
    sparse: int, tiles: int, dtype: str, monkeypatch: Any
) -> None:
    """What a table is divided or multiplied by is read by the sums, also by those in parts; tables of halves are made
    first. Whole numbers, which are the same in any order."""
    monkeypatch.setattr(assignments, "PART", 8)
    monkeypatch.setattr(assignments, "SPARSE", sparse)
    monkeypatch.setattr(ordered_scatter_kernels, "TILES", tiles)
    source, goal = RNG.integers(-40, 40, 300), np.where(RNG.random(300) < 0.1, 7, RNG.integers(-40, 40, 300))
    x, n = RNG.integers(-4, 5, 40).astype(dtype), np.array(4, dtype)

    def sums(x: Any, n: Any, source: Any, goal: Any) -> Any:
        there, back = np.ones(40, x.dtype), np.ones(40, x.dtype)
        np.add.at(there, goal, (x / n)[source])
        np.subtract.at(back, source, (n * x)[goal])
        return there, back

    agrees(sums, x, n, source, goal)
    names = {task.name for task in compile_graph_to_program(graph_of(sums, x, n, source, goal), "cuda").tasks}
    assert ("divide_multiply" in names) == (dtype == "f2") and not names & {"divide", "multiply"}


@pytest.mark.parametrize("dtype", ["i8", "u8", "i4"])
def test_places_out_of_range_get_nothing(dtype: str) -> None:
    """Of 64 bits too, whose lowest 32 may be in range."""
    far = [2**32 + 1, 2**63 - 1, *([-(2**32) + 2, -1] if dtype == "i8" else [])] if dtype[1] == "8" else [-1, 7, 2**30]
    places, values = np.array([*far, 1, 2, 1, 6], dtype), np.arange(len(far) + 4, dtype="f4") + 1
    builder = GraphBuilder()
    types = [ArrayType(a.shape, a.dtype) for a in (np.zeros(7, "f4"), places, values)]
    found = builder.host("combine_at", [builder.input(t) for t in types], types[:1], ufunc="add")
    graph = builder.finish(found)
    assert "starts" in [t.name for t in compile_graph_to_program(graph, "cuda").tasks]
    (got,) = on_device(graph, [np.zeros(7, "f4"), places, values])
    wanted = np.zeros(7, "f4")
    np.add.at(wanted, places[-4:].astype("i8"), values[-4:])
    np.testing.assert_array_equal(got, wanted)


def test_parts_of_many_values(monkeypatch: Any) -> None:
    """Parts of parts, in a block's shared memory and beyond, of whole numbers, which are the same in any order."""
    monkeypatch.setattr(assignments, "PART", 8)
    monkeypatch.setattr(ordered_scatter, "HELD", 16)
    for held in (16, 2):
        monkeypatch.setattr(ordered_scatter, "HELD", held)
        i = np.where(RNG.random(1300) < 0.8, 3, RNG.integers(0, 700, 1300))
        agrees(lambda i, v: np.bincount(i, v, 700), i, RNG.integers(-9, 9, 1300).astype("f4"))


def test_many_places_are_sorted_in_tiles(monkeypatch: Any) -> None:
    """Tiles of 256 elements, all passes one kernel."""
    monkeypatch.setitem(radix_sort_kernels.EACH, 4, 1)
    i, v = RNG.integers(-300, 300, 600), RNG.standard_normal(600).astype("f4")

    def function(x: Any, i: Any, v: Any) -> Any:
        y = x.copy()
        np.add.at(y, i, v)
        return y

    agrees(function, np.zeros(300, "f4"), i, v)
    tasks = compile_graph_to_program(graph_of(function, np.zeros(300, "f4"), i, v), "cuda").tasks
    assert [len({t.kernel.name for t in tasks if t.name == n}) for n in ("sort_pass", "starts", "cast")] == [1, 1, 0]


def test_tables_are_checked_where_their_order_is_known() -> None:
    """A bad index of what is summed is an IndexError still."""
    graph = graph_of(lambda x, i, j: np.add.at(y := x * 0, i, x[j]) or y, np.ones(9), np.arange(3), np.arange(3))
    checked = [n for n in decompose_host_calls(graph, "cuda").nodes if n.op == "gather" and n.attr("checked")]
    assert len(checked) == 1


def test_warps_with_private_copies(monkeypatch: Any) -> None:
    """Also where all lanes have one place, and where nobody has one."""
    for name, value in (("VALUES", 1), ("DENSITY", 1), ("WARPS", 2)):
        monkeypatch.setattr(cost, f"PRIVATE_COPY_{name}", value)
    for module in (scatter, scatter_kernels):
        monkeypatch.setattr(module, "TOGETHER", 1)
    i = np.where(np.arange(90) < 60, RNG.integers(-7, 7, 90), RNG.choice([2, 99], 90))
    v = RNG.integers(-9, 9, 90)

    def together(x: Any, i: Any, v: Any) -> Any:
        y = x.copy()
        np.subtract.at(y, i, v)
        return y

    x = np.arange(7.0) - 3
    agrees(together, x, i % 7, v)
    agrees(lambda i, v: np.bincount(i, v, 9), (i % 7).astype("u1"), v.astype("f4"))

    def greatest(x: Any, i: Any, v: Any) -> Any:
        y = x.copy()
        np.maximum.at(y, i, v)
        return y

    agrees(greatest, RNG.integers(-9, 9, 40).astype("i2"), i % 7, v.astype("i2"))
    text = scatter.kernel_text
    monkeypatch.setattr(scatter, "kernel_text", lambda *args: text(*args).replace("sync_warp()", "pass"))
    with pytest.raises(AssertionError, match="without a barrier"):
        agrees(together, x, i % 7, v)


def test_along_an_axis() -> None:
    def function(x: Any, i: Any, v: Any) -> Any:
        y = x.copy()
        np.put_along_axis(y, i, v, 1)
        return y

    agrees(function, RNG.random((3, 20)), RNG.integers(0, 20, (3, 7)), RNG.random((3, 7)))


def test_bad_indices_are_dropped_or_raise() -> None:
    def function(x: Any, i: Any) -> Any:
        y = x.copy()
        y[i] = 5
        return y

    x, i = np.arange(4.0), np.array([1, 9, -8])
    from tests.compiler.device_calls import on_device

    graph = graph_of(function, x, i)
    np.testing.assert_array_equal(on_device(graph, [x, i])[0], [0, 5, 2, 3])
    with override(verify=True):
        assert any(isinstance(t.kernel, Library) for t in compile_graph_to_program(graph, "cuda").tasks)


@pytest.mark.parametrize("dtype", ["f2", "f8", "u1"])
def test_they_compile(dtype: str) -> None:
    compile_module = pytest.importorskip("kernelgraph.runtime.devices.cuda.compile.compile")

    def function(x: Any, i: Any, v: Any) -> Any:
        y = x.copy()
        np.add.at(y, i, v)
        y[i] = v
        return y, np.bincount(i, minlength=50)

    for n in (9, 5000):
        program = compile_graph_to_program(
            graph_of(function, np.zeros(50, dtype), np.zeros(n, "i8"), np.zeros(n, dtype)), "cuda"
        )
        for kernel in dict.fromkeys(t.kernel for t in program.tasks if n == 9 or t.name.startswith("combine")):
            assert compile_module.compile_cubin(kernel, (9, 0))
