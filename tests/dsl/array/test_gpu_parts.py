"""A result of a GPU that would be a view in NumPy is not written to, as on the CPU: the write would reach nobody."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgraph as kg

X = np.arange(12.0).reshape(3, 4)
VIEWS = (
    lambda r: r[0],
    lambda r: r.T,
    lambda r: r.mT,
    lambda r: r.reshape(-1),
    lambda r: np.ravel(r),
    lambda r: np.transpose(r),
    lambda r: r.swapaxes(0, 1),
    lambda r: np.flip(r, 0),
    lambda r: np.expand_dims(r, 0),
    lambda r: r.squeeze(),
    lambda r: np.split(r, 3)[1],
    lambda r: np.atleast_1d(r),
    lambda r: np.diagonal(r),
)
COPIES = (
    lambda r: r + 1,
    lambda r: r.copy(),
    lambda r: r.flatten(),
    lambda r: np.ravel(r, order="F"),
    lambda r: np.sort(r, axis=0),
    lambda r: np.concatenate([r, r]),
    lambda r: r.T + r.T,
    lambda r: r[[0, 1]],
)


def result(device: str) -> Any:
    return kg.asarray(X, device=device)


def test_what_numpy_would_view_is_not_written_to(gpu: Any) -> None:
    for view in VIEWS:
        for device in ("cpu", "cuda"):
            r = result(device)
            part = view(r)
            np.testing.assert_array_equal(part, view(X))
            with pytest.raises(kg.ReadOnlyError, match=r"x\[0, 1\] = value"):
                part[0] = 5
            np.testing.assert_array_equal(r, X)


def test_copies_are_written_to(gpu: Any) -> None:
    for make in COPIES:
        for device in ("cpu", "cuda"):
            r = result(device)
            copy, expected = make(r), np.array(make(X))
            copy[0], expected[0] = 5, 5
            np.testing.assert_array_equal(copy, expected)
            np.testing.assert_array_equal(r, X)
