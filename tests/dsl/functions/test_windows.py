"""Sliding windows against NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view

import kernelgraph as kg
from tests.counts import examples
from tests.dsl.agreement import REALS, agrees, arrays
from tests.dsl.core.test_errors import graph, line_in, refused

many = settings(max_examples=examples(60), deadline=None)
X = np.arange(24.0).reshape(4, 6)


@given(arrays(REALS, (1, 3), 1), st.data())
@many
def test_windows(x: Any, data: Any) -> None:
    axes = data.draw(st.one_of(st.none(), st.lists(st.integers(-x.ndim, x.ndim - 1), min_size=1, max_size=3)))
    lengths = list(x.shape)
    window = []
    for axis in range(x.ndim) if axes is None else axes:
        window.append(data.draw(st.integers(1, lengths[axis])))
        lengths[axis] -= window[-1] - 1
    agrees(lambda x: sliding_window_view(x, window, axes), x)
    agrees(lambda x: np.lib.stride_tricks.sliding_window_view(x, window[0], 0)[::2].sum(axis=-1), x)


def test_windows_see_what_is_assigned() -> None:
    def function(x: Any) -> Any:
        y = x * 1
        windows = sliding_window_view(y, 3, axis=1)
        y[0] = 7
        return windows, windows.mean(axis=-1)

    agrees(function, X)


def test_mistakes() -> None:
    for function, kind, words in (
        (lambda x: sliding_window_view(x, 7, axis=1), ValueError, ("length 7", "axis 1")),
        (lambda x: sliding_window_view(x, (2,)), ValueError, ("axis=",)),
        (lambda x: sliding_window_view(x, 0, axis=0), kg.UnsupportedError, ("length of 1",)),  # NumPy has such windows
        (lambda x: sliding_window_view(x, 2, axis=2), np.exceptions.AxisError, ("axis 2",)),
        (
            lambda x: sliding_window_view(x, 2, axis=0).__setitem__(0, 1),
            kg.ReadOnlyError,
            ("array itself",),
        ),
    ):
        decorated = graph(function)
        refused(lambda f=decorated: f(X), kind, *words, line=line_in(function, 0))  # type: ignore[misc]


def test_windows_are_views_of_memory() -> None:
    """Nothing is copied: moving sums, standard deviations and frames are one kernel that reads the array itself."""
    size = 10_000

    def frames(x: Any) -> Any:
        return sliding_window_view(x, 64)[::16] * np.hanning(64)

    for function in (
        lambda x: sliding_window_view(x, 20).sum(axis=-1),
        lambda x: sliding_window_view(x, 20).std(axis=-1),
        lambda x: sliding_window_view(x, (20,)).max(axis=-1) - x[19:],
        frames,
    ):
        program = kg.kernel_graph(function, device="fake").program(kg.spec(size))
        assert len(program.tasks) == 1
        assert sum(b.nbytes for b in program.buffers if b.kind == "temp") == 0
        assert max(len(t.reads) for t in program.tasks) <= 2


def test_windows_of_what_is_computed() -> None:
    """It is stored once, and its windows are read from there."""
    program = kg.kernel_graph(lambda x: sliding_window_view(np.exp(x), 20).mean(axis=-1), device="fake").program(
        kg.spec(1000)
    )
    assert [b.nbytes for b in program.buffers if b.kind == "temp"] == [8000]


@given(arrays(("f4", "f8"), (1, 2), 4, 40), st.integers(1, 4), st.integers(1, 3))
@settings(max_examples=6, deadline=None)
def test_compiled_windows(x: Any, w: int, hop: int) -> None:
    def function(x: Any) -> Any:
        windows = sliding_window_view(x, w, axis=0)
        later = sliding_window_view(x * 2, w, axis=-1)[..., ::-1]
        return windows[::hop] * 1, windows.sum(axis=-1), later.mean(axis=-1), windows.reshape(-1, w).max(axis=0)

    found = kg.kernel_graph(function, device="cpu")(x)
    for a, b in zip(found, function(x), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


def test_windows_keep_what_an_assignment_overwrites() -> None:
    @kg.kernel_graph(device="cpu")
    def program(x: Any) -> Any:
        windows = sliding_window_view(x, 3).copy()
        x[1:-1] = sliding_window_view(x, 3).sum(axis=-1)
        return windows, x

    x = np.arange(50.0)
    windows, same = program(x)
    before = np.arange(50.0)
    np.testing.assert_array_equal(windows, sliding_window_view(before, 3))
    before[1:-1] = sliding_window_view(before, 3).sum(axis=-1)
    np.testing.assert_array_equal(x, before)
    assert same is x
