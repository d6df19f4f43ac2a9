"""Arrays that are no arguments: read at every call as they then are, in whatever way they lie in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from tests.dsl.tracing import assert_same

DTYPES = ("?", "i2", "f4", "i8", "c16")


def cpu(function: Any, **options: Any) -> Any:
    return kg.kernel_graph(function, device="cpu", **options)


def lain(layout: str, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Six elements of a dtype, in memory that is not as compact, aligned and native as it could be."""
    if layout == "field of a packed record":
        return np.zeros(6, [("a", "u1"), ("b", dtype), ("c", "u2")])["b"]
    if layout == "field of a record in rows":
        return np.zeros((2, 3), [("a", dtype), ("c", "u2", 3)]).T["a"]
    if layout == "not aligned":
        return np.zeros(6 * dtype.itemsize + 1, np.uint8)[1:].view(dtype)
    if layout == "the other byte order":
        return np.zeros((3, 2), dtype.newbyteorder())
    if layout == "a step of several":
        return np.zeros(24, dtype)[::-4]
    if layout == "one element in all places":
        return np.broadcast_to(np.zeros(1, dtype), 6)
    return np.zeros((6, 0), dtype)[:, :0]


LAYOUTS = [
    "field of a packed record", "field of a record in rows", "not aligned", "the other byte order",
    "a step of several", "one element in all places", "empty",
]  # fmt: skip


def fill(array: np.ndarray[Any, Any], seed: int) -> None:
    if array.flags.writeable:
        values = np.random.default_rng(seed).integers(0, 9, array.shape)
        array[...] = values % 2 if array.dtype.kind == "b" else values


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("options", [{}, {"untraceable": "split"}], ids=["whole", "split"])
def test_every_layout(layout: str, options: dict[str, str]) -> None:
    tables = [lain(layout, np.dtype(d)) for d in DTYPES]

    def function(x: Any) -> Any:
        return [(t + x, t[1:]) for t in tables]

    for table in tables:
        fill(table, 0)
    f, x = cpu(function, **options), np.zeros(1, np.int8)
    for seed in range(3):
        native = [[np.asarray(v).astype(v.dtype.newbyteorder("=")) for v in row] for row in function(x)]
        assert_same([list(row) for row in f(x)], native)
        for table in tables:
            fill(table, seed)
    assert f.why().count("traced") == 1


@pytest.mark.parametrize("layout", LAYOUTS)
def test_values_that_decide(layout: str) -> None:
    table = lain(layout, np.dtype("i4"))

    def function(x: Any) -> Any:
        return x + 1 if table.sum() > 10 else x - 1

    f = cpu(function)
    for seed in range(4):
        fill(table, seed)
        if table.flags.writeable:
            table *= seed % 2
        assert_same(f(np.zeros(2)), function(np.zeros(2)))


def test_an_argument_that_is_assigned_shares_no_memory_with_them() -> None:
    table = np.arange(6.0)

    def function(x: Any) -> Any:
        x[0] = 5
        return table[0] + x

    f = cpu(function)
    assert_same(f(np.ones(6)), function(np.ones(6)))
    with pytest.warns(UserWarning, match="runs in NumPy.*x.copy()"):
        found = f(table[::2])
    assert table.tolist() == [5, 1, 2, 3, 4, 5]
    assert_same(found, table[0] + table[::2])
