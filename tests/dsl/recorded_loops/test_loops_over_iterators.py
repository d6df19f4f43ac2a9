"""Recorded loops over `zip`, `enumerate`, `reversed`, `np.ndindex` and their like: what Python and NumPy give."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from tests.turn_programs import recorded


def numbered_pairs(a: Any, x: Any) -> Any:
    s, i = 0.0, -1
    for i, (row, v) in enumerate(zip(a, x, strict=False), 3):
        row[1:] += row[:-1] * v
        a[i - 3, 0] += v * i
        s += row.sum()
    return s, i


def shorter_ends(a: Any, x: Any) -> Any:
    last = -1
    for i, v, j in zip(range(2, 3 * len(x), 3), x, reversed(range(len(x) + 4)), strict=False):
        x[0] += v * i - j
        last = j
    return last


def places(a: Any, x: Any) -> Any:
    out, i, j = np.zeros(a.shape), -1, -1
    for i, j in np.ndindex(*a.shape):
        out[i, j] = a[i, : j + 1].sum() * x[i] + i
    return out, i, j


def first_place(a: Any, x: Any) -> Any:
    s = 0.0
    for place in np.ndindex(a.shape):
        if a[place] > 4:
            break
        s += a[place]
    else:
        s = -1.0
    return s


def backwards(a: Any, x: Any) -> Any:
    for i in reversed(range(1, len(x))):
        x[i] -= x[i - 1]
    for v in reversed(x):
        if v > 3:
            break
    else:
        v = 100.0
    return v


def one_in_another(a: Any, x: Any) -> Any:
    for i in range(len(x)):
        for k, (v, j) in enumerate(zip(x[:i], range(i, 0, -1), strict=False)):
            a[k % 2, j % 2] += v * j
            x[k] = x[k] / 2 + j
        for k, m in np.ndindex(2, i):
            x[i] += a[k, 1] - m
    return x


def elements(a: Any, x: Any) -> Any:
    total = 0.0
    for (i, j), v in np.ndenumerate(a):
        a[i, j] = v * x[i] - total
        total = total * 0.5 + a[i, 0]
    for (i,), v in np.ndenumerate(x):
        if v > 4:
            break
        x[i] += i
    return total, i


def again_and_again(a: Any, x: Any) -> Any:
    for v in itertools.repeat(x[0], 2 * len(x)):
        for _ in itertools.repeat(None, len(x)):
            x[-1] = x[-1] * 0.5 + v
    return v


def all_of_both(a: Any, x: Any) -> Any:
    s = 0.0
    for row, v in zip(a, x, strict=True):
        s += row[0] * v
    return s


def skipped(a: Any, x: Any) -> Any:
    count = 0
    for i, v in enumerate(x):
        if v > 3:
            continue
        x[i] = count
        count += 1
    return count, i, v


PROGRAMS = [numbered_pairs, shorter_ends, places, first_place, backwards, one_in_another, skipped]
PROGRAMS += [elements, again_and_again, all_of_both]


def outcome(function: Callable[..., Any], *given: Any) -> tuple[str, list[Any]]:
    """The name of the error, or all values afterwards."""
    try:
        results = function(*given)
    except (NameError, IndexError) as error:
        return "NameError" if isinstance(error, NameError) else "IndexError", [*given]
    return "", [*(results if isinstance(results, tuple) else (results,)), *given]


@pytest.mark.parametrize("shape", [(12, 7), (3, 4), (2, 30), (20, 2)], ids=str)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_gives_what_python_gives(program: Callable[..., Any], shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(shape)
    given = rng.integers(0, 6, shape).astype(float), rng.integers(0, 6, shape[0]).astype(float)
    ours, theirs = ([x.copy() for x in given] for _ in range(2))
    with recorded() as traces:
        got = outcome(kg.kernel_graph(program, device="cpu"), *ours)
    want = outcome(program, *theirs)
    assert got[0] == want[0]
    for a, b in zip(got[1], want[1], strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    assert not [reason for trace in traces for reason in trace.reasons.values()]
    assert program in (backwards, shorter_ends) or shape[0] < 12 or bool(traces)


@pytest.mark.parametrize("shape", [(0, 3), (5, 0), (0, 0)], ids=str)
@pytest.mark.parametrize("program", [numbered_pairs, shorter_ends, places, first_place, backwards])
def test_gives_what_python_gives_of_nothing(program: Callable[..., Any], shape: tuple[int, int]) -> None:
    ours, theirs = ((np.zeros(shape), np.ones(shape[0])) for _ in range(2))
    with recorded():
        got = outcome(kg.kernel_graph(program, device="cpu"), *ours)
    want = outcome(program, *theirs)
    assert got[0] == want[0]
    for a, b in zip(got[1], want[1], strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_long_ones_are_recorded() -> None:
    a, x = np.ones((300, 40)), np.arange(300.0)
    for program in (numbered_pairs, places, one_in_another, elements, again_and_again, all_of_both):
        assert len(kg.kernel_graph(program, device="cpu").graph(a, x).nodes) < 30


def test_python_refuses_what_it_refuses() -> None:
    def unequal(a: Any, x: Any) -> Any:
        for i, v in zip(range(20), x, strict=True):
            x[i] = v + 1
        return x

    def negative(a: Any, x: Any) -> Any:
        for i, j in np.ndindex(20, -1):
            x[i] += j
        return x

    def of_pairs(a: Any, x: Any) -> Any:
        for i, v in reversed(enumerate(x)):  # type: ignore[call-overload]
            x[i] = v
        return x

    for program, kind in ((unequal, ValueError), (negative, ValueError), (of_pairs, TypeError)):
        with recorded(), pytest.raises(kind):
            kg.kernel_graph(program, device="cpu")(np.ones((2, 2)), np.ones(21))
