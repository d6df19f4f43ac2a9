"""Counting and scattering kernels of a GPU on the emulator, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelgraph.compiler.pipeline import compile_graph_to_program
from kernelgraph.compiler.targets.cuda.algorithms import privatized_scatter, scatter
from kernelgraph.runtime.core.settings import override
from kernelgraph.runtime.program.program import Library

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


@pytest.mark.parametrize("every", [1, 1000], ids=["chunks", "elements"])
def test_many_values_for_few_places(every: int, monkeypatch: Any) -> None:
    """Places of 1, 7, 8, 9, 17 and 100 values, in chunks of 8, of a thread each or not."""
    monkeypatch.setattr(scatter, "CHUNK", 8)
    monkeypatch.setattr(scatter, "EVERY", every)
    i = RNG.permutation(np.repeat(np.arange(6), [1, 7, 8, 9, 17, 100]))
    v = RNG.integers(-9, 9, 142)

    def together(x: Any, i: Any, v: Any) -> Any:
        y, z = x.copy(), x.copy()
        np.subtract.at(y, i, v)
        np.minimum.at(z, i, v)
        return y, z

    agrees(together, np.arange(7), i, v)
    agrees(lambda i, v: np.bincount(i, v, 7), i, v.astype("f4"))


def test_warps_with_places_of_their_own(monkeypatch: Any) -> None:
    """Also where all lanes have one place, and where nobody has one."""
    for name, value in (("LEAST", 1), ("EVERY", 1), ("WARPS", 2), ("TOGETHER", 1)):
        monkeypatch.setattr(privatized_scatter, name, value)
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
    text = privatized_scatter.cuda_privatized_scatter_text
    monkeypatch.setattr(
        privatized_scatter, "cuda_privatized_scatter_text", lambda *args: text(*args).replace("sync_warp()", "")
    )
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
