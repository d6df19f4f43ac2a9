"""Host calls that are kernels on a GPU: their tasks on the emulator, against NumPy; and they compile for GPUs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import kernelgraph as kg
from kernelgraph.compiler.pipeline import compile_graph_to_program
from kernelgraph.compiler.targets.cuda.algorithms import scan, scan_kernels
from kernelgraph.runtime.program.program import Library
from tests.compiler.device_calls import on_device
from tests.counts import examples

few = settings(max_examples=examples(12), deadline=None, suppress_health_check=list(HealthCheck))


def graph_of(function: Any, *args: Any) -> Any:
    return kg.kernel_graph(device="fake")(function).graph(*args)


def agrees(function: Any, *args: Any, rtol: float = 0.0) -> None:
    wanted = function(*args)
    found = on_device(graph_of(function, *args), args)
    for got, want in zip(found, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        want = np.asarray(want)
        assert got.dtype == want.dtype and got.shape == want.shape
        if rtol:
            np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol, rtol)
        else:
            np.testing.assert_array_equal(got, want)


def layouts(draw: Any, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    kind = draw(st.sampled_from(["c", "c", "f", "reversed", "strided"]))
    if kind == "f":
        return np.asfortranarray(x)
    if kind == "reversed":
        return np.ascontiguousarray(x[..., ::-1])[..., ::-1]
    return np.repeat(x, 2, axis=-1)[..., ::2] if kind == "strided" else x


@st.composite
def cases(draw: Any, dtypes: tuple[str, ...], longest: int) -> tuple[np.ndarray[Any, Any], int]:
    """An array and one of its axes."""
    rank = draw(st.integers(1, 3))
    shape = [draw(st.integers(1, 5)) for _ in range(rank)]
    axis = draw(st.integers(0, rank - 1))
    shape[axis] = draw(st.integers(1, longest))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    dtype = np.dtype(draw(st.sampled_from(dtypes)))
    x = rng.integers(0 if dtype.kind in "ub" else -9, 9, shape).astype(dtype)
    return layouts(draw, x), axis


@given(cases(("f4", "f8", "i4", "i8", "u2", "?", "f2"), 200))
@few
def test_running_sums(case: Any) -> None:
    x, axis = case
    agrees(lambda x: np.cumsum(x, axis=axis), x, rtol=1e-6)


@st.composite
def overlapping(draw: Any) -> Any:
    """Windows of one array: elements that are neighbours along several axes."""
    length, step = draw(st.integers(1, 6)), draw(st.sampled_from([1, 1, 2, -1]))
    axes = draw(st.permutations(range(3)))
    dtype = draw(st.sampled_from(["f4", "i4", "i8", "f8", "u2"]))
    x = np.random.default_rng(draw(st.integers(0, 99))).integers(0, 9, (draw(st.integers(1, 3)), 11)).astype(dtype)
    view = np.lib.stride_tricks.sliding_window_view
    return x, lambda x: view(x, length, -1)[:, ::step].transpose(axes)


@given(overlapping())
@settings(few, max_examples=4)
@example((np.arange(12).reshape(2, 6), lambda x: np.lib.stride_tricks.sliding_window_view(x, 2, -1)))
def test_windows_of_one_array(case: Any) -> None:
    x, windows = case
    agrees(lambda x: (np.cumsum(windows(x), axis=-1), np.add(windows(x), 1)), x)


@given(cases(("f4", "i4"), 90))
@few
def test_running_extremes_and_products(case: Any) -> None:
    x, axis = case
    agrees(lambda x: (np.maximum.accumulate(x, axis), np.minimum.accumulate(x, axis)), x)
    agrees(lambda x: np.cumprod(x / 8, axis=axis), x, rtol=1e-4)


def test_tiles_look_back(monkeypatch: Any) -> None:
    """Groups of 4 tiles of 1024 elements, as if a row were that much longer."""
    for module in (scan, scan_kernels):
        monkeypatch.setattr(module, "TOGETHER", 2)
        monkeypatch.setattr(module, "AHEAD", 1)
    monkeypatch.setattr(scan, "TILES", (64,))
    rng = np.random.default_rng(0)
    agrees(lambda x: np.cumsum(x, axis=1), rng.integers(-9, 9, (2, 2600)).astype("f8"))
    agrees(lambda x: np.cumsum(x, axis=1), rng.integers(-9, 9, (1, 5100)).astype("f4"))


def test_no_host_call_is_left() -> None:
    x = np.zeros((70, 90), np.float32)
    for function in (lambda x: np.cumsum(x, 0), lambda x: np.cumsum(x, 1), lambda x: np.cumprod(x)):
        tasks = compile_graph_to_program(graph_of(function, x), "cuda").tasks
        assert not any(isinstance(t.kernel, Library) for t in tasks)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "u1", "f2", "?"])
def test_they_compile(dtype: str) -> None:
    compile_module = pytest.importorskip("kernelgraph.runtime.devices.cuda.compile.compile")
    x = np.zeros((3, 9000), dtype)
    for axis in (0, 1):
        for task in compile_graph_to_program(graph_of(lambda x, a=axis: np.cumsum(x, a), x), "cuda").tasks:
            assert compile_module.compile_cubin(task.kernel, (9, 0))
