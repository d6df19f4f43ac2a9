"""Sliding windows against NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view

import kernelgraph as kg

from .agreement import REALS, agrees, arrays
from .test_errors import graph, line_in, refused

many = settings(max_examples=60, deadline=None)
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
        (lambda x: sliding_window_view(x, 0, axis=0), ValueError, ("length of 1",)),
        (lambda x: sliding_window_view(x, 2, axis=2), np.exceptions.AxisError, ("axis 2",)),
        (
            lambda x: sliding_window_view(x, 2, axis=0).__setitem__(0, 1),
            kg.ReadOnlyError,
            ("array itself",),
        ),
    ):
        decorated = graph(function)
        refused(lambda f=decorated: f(X), kind, *words, line=line_in(function, 0))  # type: ignore[misc]
