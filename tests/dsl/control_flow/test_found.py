"""Programs that random runs have found wrong once: decisions on traced values against NumPy."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg


def agrees(function: Any, *calls: list[Any]) -> None:
    """What is compiled gives what NumPy gives, and leaves the arguments as NumPy does."""
    compiled = kg.kernel_graph(function, device="cpu", untraceable="refuse")
    for arguments in calls:
        mine, its = copy.deepcopy(arguments), copy.deepcopy(arguments)
        for got, want in zip([compiled(*mine), mine], [function(*its), its], strict=True):
            for x, y in zip(got, want, strict=True):
                np.testing.assert_array_equal(x, y)


class Box:
    def __init__(self, x: Any) -> None:
        self.x = x

    def step(self, s: Any) -> Any:
        if self.x[0] > s:
            return self.x
        self.x = self.x + s
        return self.x


def counts_promote_as_python_numbers(a: Any) -> Any:
    s, count = a[0], 0
    while abs(s) > 1:
        count += 1
        s = s / 2
    return s + count


def energies_in_an_ndarray(a: Any) -> Any:
    found = np.ndarray(3, np.float64)
    found[0], found[1:] = a.sum(), a[1:3]
    return found


@pytest.mark.parametrize("function", [counts_promote_as_python_numbers, energies_in_an_ndarray])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_values_and_dtypes(function: Any, dtype: str) -> None:
    a = np.arange(3, 7).astype(dtype)
    got, want = np.asarray(kg.kernel_graph(function, device="cpu")(a)), np.asarray(function(a))
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


def test_what_a_method_returns_may_be_what_its_object_holds() -> None:
    def written(a: Any, s: Any) -> Any:
        box = Box(a * 2)
        found = box.step(s.sum())
        box.x[1] = 9
        return found, box.x

    agrees(written, [np.arange(4.0), np.ones(2)], [np.arange(4.0), -np.ones(2)])


def test_a_carried_view_may_be_an_argument() -> None:
    def swapped(a: Any, b: Any, m: Any) -> Any:
        u, v, k = a, b[:], 0
        while abs(v[-1]) > 0.5:
            k += 1
            if k > m.sum():
                break
            q = (u, k)
            v, k = q
        u[:] = b[::-1]
        return u, v

    with pytest.raises(kg.TraceError, match="may share its memory"):
        kg.kernel_graph(swapped, device="cpu", untraceable="refuse")(np.arange(4.0), np.arange(4.0), np.ones(2))


def test_an_error_of_a_turn_that_may_not_run_is_raised_where_it_runs() -> None:
    def raising(a: Any) -> Any:
        while a.sum() < 0:
            raise ZeroDivisionError
        return a

    for untraceable in ("refuse", "warn"):
        compiled = kg.kernel_graph(raising, device="cpu", untraceable=untraceable)
        np.testing.assert_array_equal(compiled(np.arange(4.0)), np.arange(4.0))
        with pytest.raises(ZeroDivisionError):
            compiled(-np.arange(4.0))


def clipped(x: Any) -> Any:
    if x.max() > 2:
        return x - 1
    if x.min() < 0:
        return x * 2
    return x


def test_what_one_of_three_returns_gives_may_be_an_argument() -> None:
    def subtracting(a: Any, b: Any) -> Any:
        a = clipped(a)
        a -= b
        return a

    agrees(subtracting, *([np.array(a), np.ones(3)] for a in ([1.0, 1, 1], [3.0, 1, 1], [-1.0, 1, 1])))


def test_a_row_that_a_side_looks_up_is_written_to() -> None:
    def written(m: Any, x: Any) -> Any:
        k = int(x[0])
        if x[1] > 0:
            row = m[k]
            row[1] = 77.0
        return m.sum(), x

    def chosen(m: Any, x: Any) -> Any:
        k = int(x[0])
        row = m[k] if x[1] > 0 else m[2]
        row[1] = 77.0
        return row.sum(), x

    for function in (written, chosen):
        agrees(function, *([np.arange(9.0).reshape(3, 3), np.array(x)] for x in ([1.0, 1.0], [0.0, 1.0], [1.0, -1.0])))


def test_a_finally_writes_to_what_is_about_to_be_returned() -> None:
    def sorting(a: Any) -> Any:
        v = a + 1
        try:
            if a[1]:
                return v, a
        finally:
            v.sort()
        return v, a

    agrees(sorting, [np.array([3.0, 0, 1])], [np.array([3.0, 2, 1])])


def test_items_are_read_when_their_turn_comes() -> None:
    def halving(a: Any, b: Any) -> Any:
        s = t = 0.0
        for s, t in zip(a, b, strict=True):  # noqa: B007
            if not a[2]:
                break
            b *= 0.5
        return s, t, b

    f = kg.kernel_graph(halving, device="cpu")
    for last in (0.0, 1.0):
        a, b = np.array([1.0, 2, last]), np.array([8.0, 8, 8])
        for got, want in zip(f(a, b.copy()), halving(a, b.copy()), strict=True):
            np.testing.assert_array_equal(np.asarray(got), want)
