"""Arrays of integers as indices: reading and assigning mean what NumPy means."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelgraph as kg
from tests.counts import examples
from tests.dsl.agreement import ANY, agrees, arrays
from tests.dsl.tracing import assert_same

many = settings(max_examples=examples(200), deadline=None)


@st.composite
def keys(draw: Any, shape: tuple[int, ...]) -> tuple[list[Any], list[np.ndarray[Any, Any]]]:
    """A key whose arrays are named by their position in the list beside it."""
    found: list[Any] = []
    indices: list[np.ndarray[Any, Any]] = []
    together = draw(st.sampled_from([(), (2,), (2, 3), (1, 3)]))
    for n in shape[: draw(st.integers(1, len(shape)))]:
        kind = draw(st.sampled_from(["array", "array", "slice", "int", "list"]))
        if draw(st.integers(0, 4)) == 0:
            found.append(None)
        if kind == "array":
            own = together[draw(st.integers(0, len(together))) :]
            indices.append(draw(arrays(("i8", "u1", "i4"), shape=own)) % n - (n if draw(st.booleans()) else 0) * 0)
            found.append(("array", len(indices) - 1))
        elif kind == "slice":
            part = st.one_of(st.none(), st.integers(-n, n))
            found.append(slice(draw(part), draw(part), draw(st.sampled_from([None, 1, 2, -1]))))
        elif kind == "int":
            found.append(draw(st.integers(-n, n - 1)))
        else:
            length = together[-1] if together else 1
            found.append(draw(st.lists(st.integers(-n, n - 1), min_size=length, max_size=length)))
    if draw(st.integers(0, 3)) == 0:
        found.insert(draw(st.integers(0, len(found))), Ellipsis)
    return found, indices


def filled(key: list[Any], indices: Any) -> tuple[Any, ...]:
    return tuple(indices[k[1]] if isinstance(k, tuple) else k for k in key)


@given(arrays(ANY, (1, 3), 1), st.data())
@many
def test_reading(x: Any, data: Any) -> None:
    key, indices = data.draw(keys(x.shape))
    agrees(lambda x, indices: x[filled(key, indices)], x, indices)
    agrees(lambda x, indices: (x * 2)[filled(key, indices)] + 1, x, indices)


@given(arrays(("i8", "f4", "c16"), (1, 3), 1), arrays(("i8", "f8"), (0, 1), 1, 1), st.data())
@many
def test_assigning(x: Any, value: Any, data: Any) -> None:
    key, indices = data.draw(keys(x.shape))
    try:
        if not isinstance(x[filled(key, indices)], np.ndarray):
            value = value.reshape(())  # NumPy takes no sequence for one element
    except IndexError:
        pass

    def function(x: Any, value: Any, indices: Any) -> Any:
        y = x.copy()
        y[filled(key, indices)] = value
        z = x.copy()
        z[filled(key, indices)] += 1
        return y, z

    agrees(function, x, value, indices)


def test_views_see_what_is_assigned() -> None:
    def function(x: Any, i: Any) -> Any:
        y = x.copy()
        rows = y[1:]
        rows[i] = 7
        y[[0, 2], [1, 1]] = [5, 6]
        return y, rows

    agrees(function, np.arange(12.0).reshape(4, 3), np.array([0, 2]))


def test_an_index_of_one_number() -> None:
    agrees(
        lambda x, y: (x[np.argmin(y)], x[np.argmax(y), 1], x[:, np.argmax(y)]),
        np.arange(12.0).reshape(4, 3),
        np.array([1, 0, 2]),
    )


def test_compiled_arguments_assigned_to() -> None:
    @kg.kernel_graph(device="cpu")
    def function(x: Any, i: Any) -> Any:
        x[i] = 0
        return x[i[:1]] + 1

    x = np.ones((4, 2))
    np.testing.assert_array_equal(function(x, np.array([1, 3])), [[1, 1]])
    np.testing.assert_array_equal(x, [[1, 1], [0, 0], [1, 1], [0, 0]])


def test_indices_out_of_range_are_refused_when_they_are_known_to_be() -> None:
    read = kg.kernel_graph(lambda x, i: x[i], device="cpu")
    with pytest.raises(IndexError, match="out of bounds"):
        read(np.ones(3), np.array([3])).wait()
    of_none = kg.kernel_graph(lambda x, i: (x[:0, i], x[i, 1:1], x[:0, i[0]]), device="cpu")
    assert [a.shape for a in of_none(np.ones((3, 3)), np.array([1, -3]))] == [(0, 2), (2, 0), (0,)]
    for i in (3, -4):  # though nothing is chosen
        with pytest.raises(IndexError, match=rf"index {i} is out of bounds for axis . with size 3"):
            of_none(np.ones((3, 3)), np.array([0, i]))[0].wait() if i < 0 else of_none(np.ones((3, 3)), np.array([i]))
    with pytest.raises(kg.IndexingError, match="integer"):
        read.graph(np.ones(3), np.array([1.0]))
    with pytest.raises(kg.UnsupportedError, match="depends on data"):
        read.graph(np.ones(3), np.array([True, False, True]))
    with pytest.raises(kg.IndexingError, match="broadcast"):
        kg.kernel_graph(lambda x, i: x[i, i[:2]], device="cpu").graph(np.ones((3, 3)), np.array([0, 1, 2]))


def test_an_ellipsis_of_no_axis_parts_the_indices() -> None:
    x = np.arange(6).reshape(2, 3)
    agrees(lambda x, i: (x[None, 0, ..., i], x[None, 0, i], x[..., 1, i], x[0, i, ...]), x, np.array([0, 2]))


def test_a_few_known_places_are_assigned_by_kernels() -> None:
    def function(x: Any) -> Any:
        x[[0, -1]] = 0
        x[:, [0, -1]] = [[1], [2], [3], [4]]
        x[[2, 1, 2], 0] = 5
        return x * 2

    agrees(function, np.ones((4, 5)))
    shown = kg.kernel_graph(lambda x: x.__setitem__([0, -1], 0) or x[[1, 2, 3, 7]] * 2, device="fake")
    names = [t.name for t in shown.program(kg.spec((9, 5))).tasks]
    assert not {"getitem", "setitem"} & set(names)


def test_the_lowest_index_is_out_of_range() -> None:
    lowest = np.iinfo(np.int64).min
    with pytest.raises(IndexError, match=f"index {lowest} is out of bounds for axis 0 with size 4"):
        np.asarray(kg.kernel_graph(lambda x, i: x[i], device="cpu")(np.arange(4.0), np.array([1, lowest])))


@pytest.mark.parametrize("indices", [[0, 2, 3], [[0, 1], [2, 3]], 3, [], [3, 1, 0, 2] * 9])
def test_a_take_of_known_indices_checks_none_of_them_in_the_call(indices: Any) -> None:
    """Few runs of them are slices, more a load at places that are in range."""
    x = np.arange(20.0).reshape(4, 5)
    agrees(lambda x: (np.take(x, indices, 0), np.take(x, indices, 1, mode="wrap")), x)
    tasks = kg.kernel_graph(lambda x: np.take(x, indices, 0), device="fake").program(x).tasks
    assert not any(task.name.endswith(("report", "indices")) for task in tasks)


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 4), (0, 3), (4,)])
@pytest.mark.parametrize("options", [{}, {"untraceable": "split"}])
def test_a_mask_of_no_length_fits_any_axis(shape: tuple[int, ...], options: dict[str, Any]) -> None:
    mask, x = np.ones(shape, np.bool_), np.ones((3, 4))
    for function in (lambda a: a[mask], lambda a: a[..., mask], lambda a: a[mask, ...], lambda a: a[None, mask]):
        traced = kg.kernel_graph(function, device="cpu", **options)
        try:
            wanted = function(x)
        except IndexError:
            with pytest.raises(IndexError):
                traced(x)
        else:
            assert_same(traced(x), wanted)


def test_what_is_assigned_must_fit_before_the_indices_do() -> None:
    def function(x: Any) -> None:
        x[[7, 0]] = x[:0]

    for call in (function, kg.kernel_graph(function, device="cpu")):
        with pytest.raises(ValueError, match="broadcast"):
            call(np.ones((3, 4)))


def test_put_along_no_axis() -> None:
    def put(x: Any, i: Any, v: Any) -> Any:
        x = x.copy()
        np.put_along_axis(x, i, v, axis=None)
        return x

    f = kg.kernel_graph(put, device="cpu")
    x = np.arange(6.0).reshape(2, 3)
    for i, v in (([3], -9.0), ([1, -2, 5], np.array([7.0, 8.0, 9.0])), ([0, 0], np.array([1.0, 2.0]))):
        np.testing.assert_array_equal(f(x, np.array(i), v), put(x, np.array(i), v))
    for refused in ([[1]], [1.0]):
        with pytest.raises((ValueError, IndexError)):
            put(x, np.array(refused), 2.0)
        with pytest.raises((ValueError, IndexError)):
            f(x, np.array(refused), 2.0)
