"""Reductions along rows of a few elements: vectors lie across the rows, and the results are NumPy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.compiler.kernel.loop_nest import LoopNest
from kernelgraph.compiler.targets.cpu.kernel import SHORT, SHORT_INDEXED, choose_vector_axis

LENGTHS = (2, 3, 8, 10, 12, 13, 24, 25)
ROWS = 131  # a block of them and some
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: x.sum(-1),
    "prod": lambda x: x.prod(-1),
    "max": lambda x: x.max(-1),
    "argmax": lambda x: x.argmax(-1),
    "argmin": lambda x: x.argmin(-1),
    "any": lambda x: (x > 1).any(-1),
    "two sums": lambda x: (x.sum(-1), (x * x).max(-1)),
    "rows that are kept": lambda x: x - x.max(-1, keepdims=True),
    "argmax of centred rows": lambda x: (x - x.min(-1, keepdims=True)).argmax(-1),
}
DTYPES = ("f4", "f8", "f2", "i8", "i1", "?", "c16")
LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "rows": lambda x: x,
    "every other": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    "backwards": lambda x: x[::-1, ::-1],
    "within wider rows": lambda x: np.pad(x, ((0, 0), (1, 2)))[:, 1:-2],
}


def numbers(shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    """Small whole numbers, equal ones among them, whose sums are exact; some NaN."""
    found = np.random.default_rng(sum(shape)).integers(-2, 3, shape).astype(dtype)
    if found.dtype.kind == "f" and shape[-1] > 8:
        found[::7, 3] = np.nan
    return found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_they_are_numpys(name: str, dtype: str) -> None:
    function = FUNCTIONS[name]
    if dtype in ("?", "c16") and ("kept" in name or "centred" in name or dtype == "c16"):
        function = lambda x: x.sum(-1)  # noqa: E731
    for length in LENGTHS:
        for layout in LAYOUTS.values():
            x = layout(numbers((ROWS, length), dtype))
            with kg.override(numpy=False):
                found = kg.kernel_graph(function, device="cpu")(x)
            wanted = function(x)
            pairs = zip(found, wanted, strict=True) if isinstance(wanted, tuple) else [(found, wanted)]
            for one, other in pairs:
                assert np.asarray(one).dtype == other.dtype
                np.testing.assert_array_equal(np.asarray(one), other)


def nest_of(function: Callable[[Any], Any], shape: tuple[int, ...]) -> LoopNest:
    (task,) = kg.kernel_graph(function, device="cpu").plan(kg.spec(shape, np.float32)).tasks
    form: LoopNest = task.kernel.form
    return form


@pytest.mark.parametrize(
    ("function", "shape", "across"),
    [
        (FUNCTIONS["sum"], (1000, SHORT), True),
        (FUNCTIONS["sum"], (1000, SHORT + 1), False),
        (FUNCTIONS["argmax"], (1000, SHORT_INDEXED), True),
        (FUNCTIONS["argmax"], (1000, SHORT_INDEXED + 1), False),
        (FUNCTIONS["rows that are kept"], (1000, 2), True),
        (FUNCTIONS["sum"], (10, 10), False),  # there is no vector of them
    ],
)
def test_vectors_lie_across_short_rows(function: Callable[[Any], Any], shape: tuple[int, ...], across: bool) -> None:
    nest = nest_of(function, shape)
    assert (choose_vector_axis(nest) == nest.parallel - 1) == across == nest.short
