"""What the Array API standard asks of `kg.Array` beyond operations: assignment, DLPack, signatures, `copy`."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import kernelgraph as kg
from tests.counts import examples
from tests.dsl.tracing import assert_same

X = np.linspace(-2, 2, 12).reshape(3, 4)


def put(x: Any) -> kg.Array:
    return kg.array(x, device="cpu")


# assignment


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_assignment_is_numpys(data: st.DataObject) -> None:
    """Some assignments in a row, each read between or not: values as NumPy's, and what was read keeps its values."""
    x = data.draw(hnp.arrays(np.int64, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)))
    a, wanted = put(x), x.copy()
    read: list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = []
    for _ in range(data.draw(st.integers(1, 4))):
        mask = hnp.arrays(np.bool_, x.shape)
        key = data.draw(mask | hnp.basic_indices(x.shape, allow_newaxis=True, allow_ellipsis=True))
        value = data.draw(st.integers(-9, 9))
        if data.draw(st.booleans()):
            read.append((a.numpy(), wanted.copy()))
        a[put(key) if isinstance(key, np.ndarray) else key] = put(value) if data.draw(st.booleans()) else value
        wanted[key] = value
        assert_same(a, wanted)
    for view, then in read:
        assert_same(view, then)


def test_assignment_broadcasts_casts_and_overlaps() -> None:
    a, x = put(X), X.copy()
    for key, value in ((slice(1, 3), [1, 2, 3, 4]), ((slice(None), -1), 7), (([0, 2], [1, 1]), np.float32(5))):
        a[key] = x[key] = value
    a[1:], x[1:] = a[:-1], x[:-1].copy()
    a[...], x[...] = a * 2, x * 2
    assert_same(a, x)


@pytest.mark.parametrize("make", [put, lambda x: kg.asarray(x, device="cpu") + 0, kg.kernel_graph(lambda x: x + 0)])
def test_assignment_is_in_place_where_nothing_else_reads(make: Any) -> None:
    a = make(X)
    a[0] = 0  # a call that is over may still be on record: the first assignment may move the array
    memory = id(a._memory)
    for i in range(12):
        a[i // 4, i % 4] = i
        assert_same(np.array(a).ravel()[: i + 1], np.arange(i + 1.0))
    assert id(a._memory) == memory
    view = a.numpy()[1:]
    a[...] = -1
    assert id(a._memory) != memory
    assert_same(view, np.arange(4.0, 12).reshape(2, 4))
    assert_same(a, np.full((3, 4), -1.0))


def test_assignment_waits_for_the_array_and_leaves_calls_in_flight_alone() -> None:
    @kg.kernel_graph
    def slow(x: Any) -> Any:
        for _ in range(5):
            x = np.sin(x) + np.sort(x)
        return x

    x = np.linspace(0, 1, 100_000)
    wanted = x
    for _ in range(5):
        wanted = np.sin(wanted) + np.sort(wanted)
    a = put(x)
    b = slow(a)
    a[...] = 0
    c = slow(b)
    b[::2] = 1
    assert_same(a, np.zeros_like(x))
    assert_same(b.numpy()[1::2], wanted[1::2])
    assert float(b[0]) == 1.0
    again = wanted
    for _ in range(5):
        again = np.sin(again) + np.sort(again)
    np.testing.assert_allclose(c.numpy(), again, rtol=1e-12)


@pytest.mark.usefixtures("refusing")
def test_a_trace_sees_an_assignment_to_an_array_from_outside() -> None:
    weights = put(X)

    @kg.kernel_graph
    def f(x: Any) -> Any:
        return x * weights

    assert_same(f(X), X * X)
    weights[1] = 3
    assert_same(f(X), X * weights.numpy())
    weights[2] = 4  # by now the array could be changed in place
    assert_same(f(X), X * weights.numpy())

    @kg.kernel_graph
    def g(x: Any) -> Any:
        weights[0] = 1
        return x

    with pytest.raises(kg.TraceError):
        g(X)
    assert not np.any(weights.numpy()[0] == 1)


def test_a_failed_assignment_changes_nothing() -> None:
    a = put(X)
    for key, value, error in ((3, 0, IndexError), ((0, 0, 0), 0, IndexError), (0, [1, 2, 3], ValueError)):
        with pytest.raises(error):
            a[key] = value
    assert_same(a, X)


def test_copies_are_apart() -> None:
    a = put(X)
    for b in (copy.copy(a), copy.deepcopy(a), kg.array(a), kg.asarray(a, copy=True), a[...].copy(), a[[0, 1, 2]]):
        b[...] = 0
    assert_same(a, X)


@pytest.mark.parametrize("function", [kg.real, kg.atleast_1d, lambda x: kg.atleast_1d(x, x)[1]])
def test_a_result_is_never_the_callers_numpy_array(function: Any) -> None:
    x = X.copy()
    a = function(x)
    x[...] = 5
    assert_same(a, X)
    a[...] = 6
    assert np.all(x == 5)


# copy=


def test_copy_false_raises_where_a_copy_is_needed() -> None:
    a = put(X)
    assert kg.asarray(a, copy=False) is a
    for x, dtype in ((X, None), (a, np.float32)):
        with pytest.raises(ValueError):
            kg.asarray(x, dtype, copy=False)


# DLPack


def test_dlpack_shares_memory_read_only() -> None:
    a = put(X)
    there = np.from_dlpack(a)
    assert np.shares_memory(there, a.numpy()) and not there.flags.writeable
    a[0] = 9
    assert_same(there, X)
    assert a.__dlpack_device__() == (1, 0)
    assert not np.shares_memory(np.from_dlpack(a, copy=True), a.numpy())
    assert np.shares_memory(np.from_dlpack(a, copy=False, device="cpu"), a.numpy())


class Old:
    """An array as a consumer from before DLPack 1.0 asks for it."""

    def __init__(self, array: kg.Array, **options: Any) -> None:
        self.array, self.options = array, options

    def __dlpack__(self, **_: Any) -> Any:
        return self.array.__dlpack__(**self.options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


def test_dlpack_for_old_consumers_is_a_copy_unless_they_refuse_one() -> None:
    a = put(X)
    there = np.from_dlpack(Old(a))
    assert_same(there, X)
    assert not np.shares_memory(there, a.numpy())
    there = np.from_dlpack(Old(a, copy=False))
    assert np.shares_memory(there, a.numpy())
    a[...] = 0
    assert_same(there, X)


def test_dlpack_refuses_what_it_cannot_do() -> None:
    a = put(X)
    for options in ({"dl_device": (2, 0)}, {"stream": 1}):
        with pytest.raises((BufferError, RuntimeError, ValueError)):  # the stream: as NumPy of that version
            a.__dlpack__(max_version=(1, 0), **options)  # type: ignore[arg-type]
    fake = kg.asarray(X, device="fake")
    with pytest.raises(BufferError):
        fake.__dlpack__()
    with pytest.raises(BufferError):
        fake.__dlpack_device__()


# signatures


def test_signatures() -> None:
    assert list(inspect.signature(kg.clip).parameters)[1:3] == ["min", "max"]
    assert list(inspect.signature(kg.Array.to_device).parameters) == ["self", "device", "stream"]
    with pytest.raises(kg.ArgumentsError):
        put(X).to_device("cpu", stream=1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options", [{}, {"min": 0}, {"max": 1}, {"min": -1, "max": 1}, {"a_min": -1, "a_max": 1}, {"a_max": 0, "min": -1}]
)
def test_clip(options: Any) -> None:
    wanted = np.minimum(
        np.maximum(X, options.get("min", options.get("a_min", -9))), options.get("max", options.get("a_max", 9))
    )
    assert_same(kg.clip(put(X), **options), wanted)
    assert_same(kg.clip(X, *options.values()) if set(options) == {"min", "max"} else wanted, wanted)
    assert_same(kg.kernel_graph(lambda x: kg.clip(x, **options))(X), wanted)


def test_a_result_is_apart_where_tracing_is_disabled() -> None:
    x = X.copy()
    with kg.override(disable=True):
        a, b = kg.kernel_graph(lambda x: (x, x))(x)
    x[...] = 5
    a[...] = 6
    assert_same(b, X)
    assert np.all(x == 5)
