"""Calls that go the shortest way, between calls that cannot: always what NumPy says."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelgraph as kg
from kernelgraph.dsl.jit.launcher import NOT_TAKEN
from kernelgraph.dsl.jit.signature import GENERICS
from kernelgraph.runtime.core.settings import override
from tests.counts import examples

BASE = np.arange(1, 49, dtype=np.float32).reshape(6, 8)
WEIGHTS = np.linspace(0, 1, 8, dtype=np.float32)
KINDS: list[Any] = [
    BASE,
    BASE[::-1],
    BASE[:, ::-1],
    BASE[1:, :],
    BASE.reshape(-1)[1:41].reshape(5, 8),
    np.asfortranarray(BASE),
    BASE.astype(np.float64),
    BASE.astype(">f4"),
    BASE.view(type("Subclass", (np.ndarray,), {})),
    BASE[0],
    np.zeros((0, 8), np.float32),
    BASE[0].tolist()[0],
    kg.asarray(BASE, device="cpu"),
    kg.asarray(BASE[0], device="cpu"),
]


@kg.kernel_graph(device="cpu")
def weighted(x: Any, y: Any) -> Any:
    total = np.exp(-x) * WEIGHTS + y
    return total, [total.max(axis=-1), x]


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(KINDS) - 1), st.integers(1, 3), st.booleans()), min_size=1, max_size=6))
def test_calls_of_many_kinds_in_a_row(calls: list[tuple[int, int, bool]]) -> None:
    for kind, repeats, serial in calls:
        x = KINDS[kind]
        for _ in range(repeats):
            with override(engine="sync" if serial else "async"):
                total, (top, given_back) = weighted(x, x)
            values = np.asarray(x)
            expected = np.exp(-values) * WEIGHTS + values
            np.testing.assert_allclose(np.asarray(total), expected, rtol=1e-6)
            np.testing.assert_allclose(np.asarray(top), expected.max(axis=-1), rtol=1e-6)
            np.testing.assert_array_equal(np.asarray(given_back), values)


def test_results_feed_the_next_call() -> None:
    @kg.kernel_graph(device="cpu")
    def step(x: Any) -> Any:
        return x * 0.5 + 1

    x: Any = np.full(100, 8, np.float32)
    expected = x
    for _ in range(10):
        x, expected = step(x), expected * np.float32(0.5) + np.float32(1)
    np.testing.assert_array_equal(np.asarray(x), expected)


def test_what_was_read_may_change_between_calls() -> None:
    scale = 2.0

    @kg.kernel_graph(device="cpu")
    def scaled(x: Any) -> Any:
        return x * scale

    x = np.ones(5, np.float32)
    for scale in (2.0, 2.0, 3.0, 3.0, 2.0):
        np.testing.assert_array_equal(np.asarray(scaled(x)), x * np.float32(scale))


@kg.kernel_graph(device="cpu")
def scaled(x: Any, factor: Any, flag: Any, count: Any) -> Any:
    total = x * factor + count
    return (total if flag is None else total * 2 if flag else -total), factor * count


NUMBERS: list[Any] = [2.0, 3, 0.1, -0.0, float("inf"), float("nan"), True, 1 << 40, np.float32(1.5), np.int64(7), 1e300]


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(st.sampled_from(NUMBERS), st.sampled_from([None, True, False]), st.sampled_from(NUMBERS))))
def test_numbers_of_many_kinds_in_a_row(calls: list[tuple[Any, Any, Any]]) -> None:
    x = BASE[0].astype(np.float64)
    for factor, flag, count in calls:
        for _ in range(2):
            with np.errstate(all="ignore"):
                expected, product = scaled._function(x, factor, flag, count)
                found, its_product = scaled(x, factor, flag, count)
                np.testing.assert_array_equal(np.asarray(found), expected)
                assert type(its_product) is type(product) or isinstance(its_product, kg.Array)
                np.testing.assert_array_equal(np.asarray(its_product), product)


def test_numbers_take_the_fast_path() -> None:
    f = kg.kernel_graph(device="cpu")(lambda x, a, n: (x * a + n, n * 2, a > 1))
    x = np.arange(5, dtype=np.float32)
    for a, n in ((2.0, 3), (0.5, 3), (1e30, 7)):
        for _ in range(3):
            result, twice, _ = f(x, a, n)
        np.testing.assert_array_equal(np.asarray(result), x * np.float32(a) + np.float32(n))
        assert twice == 2 * n


def change(x: Any, y: Any) -> Any:
    x[1:] += y[:-1]
    x *= 2
    return x, x + y


def given_one_of(kind: int) -> tuple[Any, Any]:
    """What to pass, and how it lies: among it what may not be assigned to."""
    x, y = BASE.copy(), BASE / 4
    if kind < 6:
        key = [np.s_[...], np.s_[::-1], np.s_[:, ::2], np.s_[2:2], np.s_[1:], np.s_[:, 1]][kind]
        return x[key], y[key]
    if kind == 6:
        x.flags.writeable = False
        return x, y
    if kind == 7:
        return x, x
    if kind == 8:
        return x[:4], x[2:]
    if kind == 9:
        return np.lib.stride_tricks.as_strided(x, (6, 8), (4, 4)), y
    if kind == 10:
        return x[:, ::2], x[:, 1::2]  # side by side
    if kind in (11, 12):
        array = kg.asarray(x, device="cpu")
        return array, array if kind == 11 else y
    return x.astype(">f4"), y


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 13), st.booleans()), min_size=1, max_size=8))
def test_assignments_of_many_kinds_in_a_row(calls: list[tuple[int, bool]]) -> None:
    for kind, in_a_list in calls:
        x, y = given_one_of(kind)
        expected, other = given_one_of(kind)
        if kind in (11, 12):
            expected = np.array(expected)
        other = expected if kind == 11 else other
        f = listed if in_a_list else changed
        for _ in range(2):
            before = x.copy()
            if kind == 6:  # NumPy's own error after many calls that NumPy alone could do
                with pytest.raises(ValueError, match="read-only"):
                    f([x, y]) if in_a_list else f(x, y)
                np.testing.assert_array_equal(x, before)
                continue
            try:
                found, its_total = f([x, y]) if in_a_list else f(x, y)
            except kg.ReadOnlyError:
                assert kind == 9
                np.testing.assert_array_equal(x, before)
            else:  # those that share memory in NumPy
                _, total = change(expected, other)
                assert found is x
                np.testing.assert_array_equal(x, expected)
                np.testing.assert_array_equal(np.asarray(its_total), total)


changed = kg.kernel_graph(change, device="cpu")
listed = kg.kernel_graph(lambda given: change(*given), device="cpu")


@pytest.mark.parametrize("made", [np.array, lambda x: kg.asarray(x, device="cpu", copy=True)])
def test_assignments_take_the_fast_path(made: Any) -> None:
    f = kg.kernel_graph(change, device="cpu")
    x, y = made(BASE), BASE.copy()
    for _ in range(3):
        f(x, y)
    assert f._fast((x, y))[0] is x


OFFSET = np.array([1.0, 2.0])


def sliced(x: Any, i: Any) -> None:
    x[0, :2] = np.sin(OFFSET)


def masked(x: Any, i: Any) -> None:
    x[x > OFFSET[1]] = np.float32(OFFSET[0])


def put(x: Any, i: Any) -> None:
    np.put(x, [1, 2], OFFSET)


@pytest.mark.parametrize("made", [np.array, lambda x: kg.asarray(x, device="cpu", copy=True)])
@pytest.mark.parametrize("function", [sliced, masked, put])
def test_assignments_of_functions_that_read_globals_take_the_fast_path(function: Any, made: Any) -> None:
    f = kg.kernel_graph(function, device="cpu")
    x, expected = made(BASE), BASE.copy()
    for _ in range(3):
        f(x, None)
    assert f._fast((x, None)) is not NOT_TAKEN
    function(expected, None)
    np.testing.assert_array_equal(x, expected)


def weighed(x: Any, w: Any) -> Any:
    x[1:] = x[1:] - np.average(x[0], weights=w)
    return x.sum()


def caught(x: Any, w: Any) -> Any:
    try:
        x[:] = x * np.average(x[0], weights=w)
        x[0] += float(x[0, 1]) / float(w[0])
    except ZeroDivisionError:
        return x - 1
    return x + 1


@pytest.mark.parametrize("made", [np.array, lambda x: kg.asarray(x, device="cpu", copy=True)])
@pytest.mark.parametrize("function", [weighed, caught])
def test_errors_that_values_decide_take_the_fast_path_until_there_is_one(function: Any, made: Any) -> None:
    f = kg.kernel_graph(function, device="cpu")
    good, none, first = np.linspace(1, 2, 8), np.zeros(8), np.array([0.0, *range(1, 8)])
    x, expected = made(BASE.astype(np.float64)), BASE.astype(np.float64)
    for w in (good, good, good, none, good, first, good, good):
        assert (f._fast((x, w)) is NOT_TAKEN) or w is good or (function is weighed and w is first)
        x, expected = made(BASE.astype(np.float64)), BASE.astype(np.float64)
        try:
            result = function(expected, w)
        except ZeroDivisionError as error:
            with pytest.raises(ZeroDivisionError, match=str(error)):
                f(x, w)
        else:
            np.testing.assert_allclose(np.asarray(f(x, w)), result)
        np.testing.assert_allclose(np.asarray(x), expected)
    assert f._fast((x, good)) is not NOT_TAKEN


def test_the_fast_path_refuses_what_would_be_a_view() -> None:
    f = kg.kernel_graph(change, device="cpu")
    x, y = kg.asarray(BASE, device="cpu"), BASE[1:].copy()
    for _ in range(3):
        f(kg.asarray(BASE[1:], device="cpu"), y)
    with pytest.raises(kg.ReadOnlyError):
        f(x[1:], y)


@pytest.mark.parametrize("kind", sorted(GENERICS, key=lambda kind: kind.__name__))
def test_numpy_scalars_give_what_numpy_gives(kind: Any) -> None:
    @kg.kernel_graph(device="cpu")
    def rated(a: Any, b: Any, n: int) -> Any:
        return a + b, (a * b + a) * n

    for _ in range(4):
        for x, y, n in ((kind(1), kind(2), 3), (kind(3), kind(1), 2), (np.float32(2.5), kind(1), 2)):
            for found, wanted in zip(rated(x, y, n), (x + y, (x * y + x) * n), strict=True):
                assert found.dtype == wanted.dtype and found.shape == ()
                assert found.item() == wanted.item()  # exact in every dtype


FIRST_CALLS = """
import sys
import numpy as np
import kernelgraph as kg

f, x, entered = kg.kernel_graph(lambda x: x + x, device="cpu"), np.ones(8), []
with {first}:
    f(x)
for _ in range(3):
    f(x)
sys.setprofile(lambda frame, event, argument: entered.append(frame.f_code.co_qualname))
f(x)
sys.setprofile(None)
print("KernelGraph.__call__" in entered)
"""


@pytest.mark.parametrize("first", ["kg.override()", "kg.override(verify=True)", "kg.override(engine='sync')"])
def test_calls_begin_natively_whatever_the_first_one_was(first: str) -> None:
    command = [sys.executable, "-c", FIRST_CALLS.format(first=first)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
