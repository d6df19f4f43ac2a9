"""Ways to call NumPy's functions that no kernel has: NumPy does them, with a warning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg


def ramped(vector: Any, width: Any, axis: Any, options: Any) -> None:
    vector[: width[0]] = 7.0


def filled_with_array(x: Any) -> Any:
    np.fill_diagonal(x, x[0, :3] + 1)
    return x.sum()


def filled_and_wrapped(x: Any) -> Any:
    np.fill_diagonal(x, 5.0, wrap=True)
    return x * 2


CALLS: dict[str, Callable[[Any], Any]] = {
    **{mode: lambda x, mode=mode: np.pad(x, ((1, 2), (0, 1)), mode=mode) * 2  # type: ignore[misc]
       for mode in ("maximum", "minimum", "mean", "median", "linear_ramp", "empty")},
    "a function": lambda x: np.pad(x, 1, ramped) + 1,  # type: ignore[arg-type]
    "a diagonal of an array": filled_with_array,
    "a diagonal that goes on": filled_and_wrapped,
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::kernelgraph.FallbackWarning")
@pytest.mark.parametrize("name", [*CALLS])
def test_calls_that_numpy_does(name: str) -> None:
    compiled = kg.kernel_graph(CALLS[name], device="cpu")
    for shape in ((3, 4), (7, 3), (3, 4)):
        ours, theirs = (np.arange(float(np.prod(shape))).reshape(shape) for _ in range(2))
        got, want = np.asarray(compiled(ours)), np.asarray(CALLS[name](theirs))
        assert got.shape == want.shape and got.dtype == want.dtype and np.array_equal(ours, theirs)
        assert name == "empty" or np.array_equal(got, want)
