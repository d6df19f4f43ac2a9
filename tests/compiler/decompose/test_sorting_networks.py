"""Sorts of many short rows on the CPU: networks that sort, and NumPy's values, special ones and dtypes with them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.compiler.decompose.sorting_networks import FEWEST, LONGEST, comparators_of_sorting_network
from kernelgraph.runtime.program.program import Library

SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, 2.5, -3.0, 7.0])
CALLS: dict[str, Any] = {
    "sort": lambda x: np.sort(x, axis=1),
    "last": lambda x: np.sort(np.swapaxes(x, 1, 2)),
    "median": lambda x: np.median(x, axis=1),
    "axes": lambda x: np.median(x.reshape(x.shape[0], x.shape[1], 2, -1)[:, :, 0], axis=1),
    "nanmedian": lambda x: np.nanmedian(x, axis=1),
    "quantile": lambda x: np.quantile(x, 0.3, axis=1, keepdims=True),
    "percentile": lambda x: np.percentile(x, [10, 50, 90], axis=1),
}


@pytest.mark.parametrize("count", range(LONGEST + 4))
def test_networks_sort(count: int) -> None:
    pairs = list(comparators_of_sorting_network(count))
    for bits in itertools.product((0, 1), repeat=count):  # what sorts all of these sorts everything
        values = list(bits)
        for i, j in pairs:
            values[i], values[j] = sorted((values[i], values[j]))
        assert values == sorted(bits)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int32", "uint8"])
@pytest.mark.parametrize("length", [1, 2, 5, 8])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_short_rows_are_numpys(name: str, dtype: str, length: int) -> None:
    rng = np.random.default_rng(length)
    with np.errstate(all="ignore"):
        values = rng.choice(SPECIAL, (FEWEST // 8, length, 8), p=[0.04, *[0.12] * 8]).astype(dtype)
    f = kg.kernel_graph(device="cpu")(CALLS[name])
    found, wanted = np.asarray(f(values)), CALLS[name](values)
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)
    if name in ("sort", "last") and values.dtype.kind == "f":  # each zero has kept its sign
        assert (np.signbit(found) & (found == 0)).sum() == (np.signbit(values) & (values == 0)).sum()


@pytest.mark.parametrize("name", ["sort", "last", "median", "quantile"])
def test_many_short_rows_are_no_call_of_numpy(name: str) -> None:
    def host_calls(rows: int, length: int) -> int:
        plan = kg.kernel_graph(device="cpu")(CALLS[name]).plan(kg.spec((rows // 8, length, 8), "f8"))
        return sum(isinstance(task.kernel, Library) for task in plan.tasks)

    assert host_calls(FEWEST, 5) == 0
    assert host_calls(FEWEST, LONGEST + 1) == host_calls(FEWEST - 8, 5) == 1
