"""Recorded loops over the elements or the rows of an array: what NumPy gives, whatever their number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from tests.turn_programs import recorded


def checksum(a: Any, x: Any) -> Any:
    """As crc16 of NPBench."""
    total = 0xFFFF
    for b in x:
        byte = 0xFF & b
        for _ in range(8):
            total = (total >> 1) ^ 0x8408 if (total & 1) ^ (byte & 1) else total >> 1
            byte >>= 1
    return total


def by_rows(a: Any, x: Any) -> Any:
    s = 0
    for row in a:
        row[1:] += row[:-1] * 2
        for v in row:
            if v > 3:
                s = s + v
            a[0, 0] += 1
    return s


def until(a: Any, x: Any) -> Any:
    count = 0
    for v in x[::-1]:
        if v == 4:
            break
        count = count + v
    return count


def chosen(a: Any, x: Any) -> Any:
    """Recorded however few the rows are, since values decide the slices."""
    out = np.zeros(len(a))
    for row in a:
        out[row[1] % 3] += row[: row[0]].sum()
    return out


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 12])
@pytest.mark.parametrize("program", [checksum, by_rows, until, chosen], ids=lambda p: p.__name__)
def test_gives_what_numpy_gives(program: Callable[..., Any], rows: int) -> None:
    rng = np.random.default_rng(rows)
    given = rng.integers(0, 6, (rows + 2, 7))[:rows], rng.integers(0, 200, rows * 5)
    ours, theirs = ([x.copy() for x in given] for _ in range(2))
    if program is chosen and rows < 3:
        ours[0][:, 1] = theirs[0][:, 1] = 0
    with recorded():
        got = kg.kernel_graph(program, device="cpu")(*ours)
    np.testing.assert_array_equal(np.asarray(got), program(*theirs))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_long_loop_over_elements_is_recorded() -> None:
    x = np.random.default_rng(1).integers(0, 256, 400)
    compiled = kg.kernel_graph(checksum, device="cpu")
    assert len(compiled.graph(x, x).nodes) < 20
    assert int(compiled(x, x)) == checksum(x, x)
