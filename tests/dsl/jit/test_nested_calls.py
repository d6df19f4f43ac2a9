"""Calls with lists and tuples of arrays and numbers take a short way, which gives what the long one does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

import kernelgraph as kg
from kernelgraph.dsl.jit.kernel_graph import SHAPES, KernelGraph
from tests.counts import examples


def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on a call that takes the long way fails."""

    def long_way(*_: Any) -> Any:
        raise AssertionError("the long way")

    monkeypatch.setattr(KernelGraph, "_call_in_full", long_way)


GIVEN = [
    ([1.0, 2.0, 3.0], 2.5),
    ((1, 2, 3), 2),
    ([np.arange(3.0), 2.0, 1], np.ones(3)),
    (2.0, [np.float32(1), 4]),
    ([True, 2.0], (3.0, 4.0)),
    ([], 3.0),
    ({"a": 1.0, "b": np.arange(3.0)}, 2.0),
    ({"a": [1.0, (2.0, np.arange(3.0))], "b": 4}, [[], {"c": 2.0}]),
]


def numbers_in(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    return [x for part in value for x in numbers_in(part)] if isinstance(value, (list, tuple)) else [value]


@pytest.mark.parametrize("given", GIVEN, ids=str)
def test_the_short_way_gives_what_the_function_does(given: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def f(a: Any, b: Any) -> Any:
        total: Any = np.zeros(3)
        for part in (a, b):
            for x in numbers_in(part):
                total = total * 2 + x
        return total, len(a) if isinstance(a, list) else -1

    g = kg.kernel_graph(device="cpu")(f)
    g(*given)
    short(monkeypatch)
    total, length = g(*given)
    np.testing.assert_array_equal(total, f(*given)[0])
    assert length == f(*given)[1]


ITEMS = [1.0, 2, np.float64(3), np.arange(3.0), np.float32(2), 7.5, -1]


@settings(max_examples=examples(60), deadline=None)
@drawn(
    st.lists(
        st.tuples(st.sampled_from(["list", "tuple", "dict"]), st.lists(st.sampled_from(ITEMS), min_size=1, max_size=3)),
        min_size=1,
        max_size=8,
    )
)
def test_nested_arguments_of_many_kinds_in_a_row(calls: list[tuple[str, list[Any]]]) -> None:
    for kind, items in calls:
        given: Any = (
            dict(zip("xyz", items, strict=False)) if kind == "dict" else {"list": list, "tuple": tuple}[kind](items)
        )
        for _ in range(3):
            expected, found = folded._function(given, 0.5), folded(given, 0.5)
            np.testing.assert_array_equal(np.asarray(found[0]), expected[0])
            assert found[1] == expected[1]
            assert len(found[2]) == len(expected[2])
            assert all(np.array_equal(np.asarray(a), b) for a, b in zip(found[2], expected[2], strict=True))


@kg.kernel_graph(device="cpu")
def folded(a: Any, b: Any) -> Any:
    parts = numbers_in(a)
    return sum(parts, b), repr(type(a)), [part * 2 for part in parts]


@pytest.mark.parametrize("given", [*GIVEN, (np.float64(2), np.float32(3)), (1.5, 2)], ids=str)
def test_the_next_call_of_a_structure_takes_the_fast_path(given: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def by_key(*_: Any) -> Any:
        raise AssertionError("looked up by its key")

    f = kg.kernel_graph(device="cpu")(lambda a, b: (sum(numbers_in(a), 1.0), numbers_in(b)))
    for _ in range(5):
        f(*given)
    monkeypatch.setattr(KernelGraph, "_call_by_key", by_key)
    np.testing.assert_array_equal(np.asarray(f(*given)[0]), f._function(*given)[0])


def test_lists_and_tuples_of_any_length_and_type_are_told_apart() -> None:
    g = kg.kernel_graph(device="cpu")(lambda x: (type(x) is list, len(x), sum(x)))
    for turn in range(3):
        for given in ([1.0, 2.0], (1.0, 2.0), [1.0, 2.0, 3.0], [1, 2], [1.0 + turn, 2], [[1.0, 2.0][0], 4.0]):
            kind, length, total = g(given)
            assert (kind, length, float(total)) == (type(given) is list, len(given), sum(given))
    assert float(kg.kernel_graph(device="cpu")(lambda x: x[0][1] + x[1])([[1.0, 2.0], 3.0])) == 5.0


def test_structures_that_flatten_to_the_same_leaves_are_told_apart() -> None:
    g = kg.kernel_graph(device="cpu")(lambda *x: repr(x))
    a = 1.0
    given: list[Any] = [
        ([[a], a],), ([a, [a]],), ([a, a],), ((a, a),), ([[a, a]],), ([a], a), ([a, a], []), ([[], a, a],),
        ({"x": a, "y": a},), ({"y": a, "x": a},), ([{"x": a}, a],), ({"x": [a, a]},), ({"x": {"y": a}, "z": a},),
        ({1: a, 2: a},), ({True: a, 2: a},), ([[a], [a]],), ([[a]], [a]), ([a, a], [a]), ([[a, a], [a]],),
    ]  # fmt: skip
    for _ in range(3):
        for args in given:
            assert g(*args).replace("<traced float>", "1.0") == repr(args)


@pytest.mark.usefixtures("refusing")
def test_a_list_that_contains_itself_is_a_value() -> None:
    loop: list[Any] = []
    loop.append(loop)
    for _ in range(2):
        with pytest.raises(kg.ArgumentsError):
            kg.kernel_graph(device="cpu")(lambda x: 1.0)(loop)


def test_what_stands_outside_and_a_number_that_is_part_of_the_key_are_seen() -> None:
    scale = [2.0]

    @kg.kernel_graph(device="cpu")
    def f(x: Any, n: Any) -> Any:
        return np.zeros(int(n)) + x[0] * scale[0]

    for n in (2, 3, 2):
        for factor in (2.0, 5.0):
            scale[0] = factor
            np.testing.assert_array_equal(f([1.5], n), np.full(n, 1.5 * factor))


def test_the_shapes_kept_are_bounded() -> None:
    g = kg.kernel_graph(device="cpu")(lambda x: len(x))
    for n in range(0, 3):
        g([1.0] * n)
    g._shapes.update(((i,), None) for i in range(SHAPES))  # type: ignore[misc]
    assert g([1.0] * 7) == 7
    assert len(g._shapes) <= SHAPES


def test_numpy_asks_a_result_for_protocols_that_it_has_not_cheaply(monkeypatch: pytest.MonkeyPatch) -> None:
    result = kg.kernel_graph(device="cpu")(lambda x: x + 1)(np.ones(3))
    monkeypatch.setattr("kernelgraph.dsl.jit.eager.bound_method", lambda *_: pytest.fail("looked up"))
    assert np.asarray(result).tolist() == [2.0] * 3
    with pytest.raises(AttributeError, match="no attribute '__array_struct__'"):
        getattr(result, "__array_struct__")  # noqa: B009
