"""Calls of numbers alone: in value and type what the function itself gives, whatever was called before."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelgraph as kg
from kernelgraph.runtime.core.settings import override
from kernelgraph.runtime.engine.engine import native_engine_functions
from tests.counts import examples
from tests.processes import forked

SCALE, OFFSET = 2.5, 3


def polynomial(a: Any, b: Any, c: Any) -> Any:
    return a * b + c, a - c


def with_globals(a: Any, b: Any, c: Any) -> Any:
    return [a * SCALE - OFFSET, b + c * 2, -c]


def one_result(a: Any, b: Any, c: Any) -> Any:
    return (a + b) * (c + 1) - 0.5


def given_back(a: Any, b: Any, c: Any) -> Any:
    return a, 7, (b + c, None)


def quotient(a: Any, b: Any, c: Any) -> Any:
    return a / (b * b + 1) + c / 4


FUNCTIONS: list[Callable[..., Any]] = [polynomial, with_globals, one_result, given_back, quotient]
DECORATED = [kg.kernel_graph(f, device="cpu") for f in FUNCTIONS]
PYTHON: list[Any] = [1.5, -0.0, float("inf"), 3, 0, -7, 1 << 40, True]
SCALARS = [*PYTHON, np.float64(1.25), np.float32(0.5), np.int64(5)]


def plain(x: Any) -> Any:
    """A result, with the types of its numbers, and of arrays without axes the dtypes."""
    if isinstance(x, tuple | list):
        return type(x), [plain(part) for part in x]
    if isinstance(x, kg.Array):
        x = x.numpy()[()]
    return type(x), repr(x)


@settings(max_examples=examples(40), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, len(FUNCTIONS) - 1),
            st.tuples(*[st.sampled_from(PYTHON)] * 3) | st.tuples(*[st.sampled_from(SCALARS)] * 3),
            st.integers(1, 3),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_calls_of_any_scalars_in_a_row(calls: list[tuple[int, tuple[Any, ...], int]]) -> None:
    for which, args, repeats in calls:
        with np.errstate(all="ignore"):
            try:
                expected = plain(FUNCTIONS[which](*args))
            except (TypeError, OverflowError):  # what NumPy refuses of bools, and of numbers too large
                continue
            for _ in range(repeats):
                assert plain(DECORATED[which](*args)) == expected


def test_what_changes_is_seen_by_the_next_call(monkeypatch: pytest.MonkeyPatch) -> None:
    f = kg.kernel_graph(with_globals, device="cpu")
    for scale in (2.5, 4.0, 1, 2.5):
        monkeypatch.setattr(sys.modules[__name__], "SCALE", scale)
        for _ in range(2):
            assert plain(f(1.0, 2.0, 3.0)) == plain(with_globals(1.0, 2.0, 3.0))
    g = kg.kernel_graph(lambda a, n=2: a + n, device="cpu")
    assert g(1.0) == 3.0
    g._function.__defaults__ = (5,)
    assert g(1.0) == 6.0
    g._function.__code__ = (lambda a, n=2: a * n).__code__
    assert g(2.0) == 10.0


def test_errors_are_pythons_own() -> None:
    f = kg.kernel_graph(lambda a, b: a / b, device="cpu")
    assert [f(1.0, 2.0), f(1.0, 4.0)] == [0.5, 0.25]
    with pytest.raises(ZeroDivisionError):
        f(1.0, 0.0)
    assert f(3.0, 2.0) == 1.5
    for wrong in ((), (1.0,), (1.0, 2.0, 3.0)):
        with pytest.raises(TypeError):
            f(*wrong)
    with pytest.raises(TypeError):
        f(1.0, c=2.0)


def test_every_way_to_call() -> None:
    f = kg.kernel_graph(polynomial, device="cpu")
    expected = polynomial(1.5, 2.0, 3.0)
    for _ in range(3):
        assert f(1.5, 2.0, 3.0) == f(*(1.5, 2.0, 3.0)) == f(1.5, 2.0, 3.0, **{}) == expected
        assert f(1.5, 2.0, c=3.0) == f(**{"a": 1.5, "b": 2.0, "c": 3.0}) == expected
        assert f.__call__(1.5, 2.0, 3.0) == type(f).__call__(f, 1.5, 2.0, 3.0) == expected
        assert list(map(f, [1.5], [2.0], [3.0])) == [expected]


def test_more_arguments_than_fit_a_stack() -> None:
    def call_with_all() -> int:
        f = kg.kernel_graph(polynomial, device="cpu")
        f(1.5, 2.0, 3.0)
        for options in ({}, {"c": 3.0}):
            with pytest.raises(TypeError):
                f(*range(3_000_000), **options)
        return 0

    assert forked(call_with_all) == 0


def test_what_is_unusual_is_seen() -> None:
    f = kg.kernel_graph(polynomial, device="cpu")
    expected = polynomial(1.5, 2.0, 3.0)
    outer = kg.kernel_graph(lambda x: f(x, 2.0, 3.0)[0] + f(1.5, 2.0, 3.0)[1], device="cpu")
    for _ in range(2):
        assert f(1.5, 2.0, 3.0) == expected
        for options in ({"engine": "sync"}, {"disable": True}, {"verify": True}):
            with override(**options):
                assert plain(f(1.5, 2.0, 3.0)) == plain(expected)
        with kg.device("cpu"):
            assert f(1.5, 2.0, 3.0) == expected
        np.testing.assert_array_equal(outer(np.ones(3)), np.full(3, 5.0 - 1.5))
        with pytest.raises(ZeroDivisionError):
            kg.kernel_graph(lambda x: f(x, 2.0, 1 / 0), device="cpu")(1.0)


class Mine(kg.KernelGraph[..., Any]):
    """A class of a user's own."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        return "mine", super().__call__(*args, **options)


def test_methods_and_classes_of_ones_own() -> None:
    class Holder:
        @kg.kernel_graph(device="cpu")
        def scaled(self, a: Any) -> Any:
            return a * 2.0

    holder, mine = Holder(), Mine(polynomial, device="cpu")
    for _ in range(3):
        assert holder.scaled(1.5) == 3.0
        assert mine(1.5, 2.0, 3.0) == ("mine", polynomial(1.5, 2.0, 3.0))
    empty = kg.KernelGraph.__new__(kg.KernelGraph)
    with pytest.raises(AttributeError):
        empty(1.0)


def test_recursion_ends_as_pythons() -> None:
    @kg.kernel_graph(device="cpu")
    def endless(a: Any) -> Any:
        return endless(a + 1.0)

    with pytest.raises((RecursionError, kg.KernelGraphError)):
        endless(1.0)


@pytest.mark.skipif(not hasattr(sys, "getrefcount"), reason="counts of references")
def test_no_reference_is_kept_or_lost() -> None:
    f = kg.kernel_graph(polynomial, device="cpu")
    one, two = float("1.5"), np.float64(2.5)
    things = [f, one, two, f._function]

    def call_often() -> list[int]:
        for _ in range(100):
            f(one, one, one)
            f(two, one, one)
            f(a=one, b=one, c=one)
        return [sys.getrefcount(thing) for thing in things]

    call_often()
    assert call_often() == call_often()


def test_threads_that_change_what_is_called() -> None:
    f = kg.kernel_graph(polynomial, device="cpu")
    arguments = [(1.5, 2.0, 3.0), (1, 2, 3), (1.5, 2, 3), (np.float64(1), 2.0, 3.0)]
    wrong: list[Any] = []

    def call_it(n: int) -> None:
        args = arguments[n]
        expected = plain(polynomial(*args))
        for _ in range(300):
            if plain(f(*args)) != expected:
                wrong.append(args)

    threads = [threading.Thread(target=call_it, args=(n,)) for n in range(len(arguments))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.skipif(native_engine_functions() is None, reason="the engine cannot be built here")
def test_numbers_are_computed_natively() -> None:
    f = kg.kernel_graph(with_globals, device="cpu")
    f(1.0, 2.0, 3.0)
    f(1.0, 2.0, 3.0)
    assert type(f._fast) is type(len)


def test_results_of_few_bytes_are_apart_and_live_on() -> None:
    f = kg.kernel_graph(polynomial, device="cpu")
    kept = [(f(*map(np.float64, (n, 2.0, 3.0))), n) for n in range(300)]
    weak = weakref.ref(kept[-1][0][0])
    views = [(first.numpy(), n) for (first, _), n in kept]
    for (first, second), n in kept:
        assert (float(first), float(second)) == (2.0 * n + 3, n - 3.0)
        assert isinstance(first, kg.Array) and first.dtype == np.float64 and first.shape == () and first.is_ready()
    first, second = kept.pop()[0]
    first[...] = 7.0
    assert (float(first), float(second)) == (7.0, 296.0) and weak() is first
    first = second = None
    assert weak() is None
    kept.clear()
    assert all(float(view) == 2.0 * n + 3 for view, n in views)  # which hold the memory


@pytest.mark.parametrize("dtype", ["?", "i1", "f2", "f4", "f8", "c16"])
@pytest.mark.parametrize("size", [0, 1, 2, 3])
def test_results_around_few_bytes(dtype: str, size: int) -> None:
    f = kg.kernel_graph(lambda x, y: (x + y, x * y, x), device="cpu")
    x = np.arange(1, size + 1).astype(dtype)
    for _ in range(3):
        for got, want in zip(f(x, x[::-1]), (x + x[::-1], x * x[::-1], x), strict=True):
            np.testing.assert_array_equal(np.asarray(got), want, strict=True)
            assert got.nbytes == want.nbytes
