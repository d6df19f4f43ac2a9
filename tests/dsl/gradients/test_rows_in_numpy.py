"""`kg.vmap` of functions whose rows raise, catch or look at values: what a loop over the rows gives."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg

ROWS = np.array([[1.0, -2.0, 3.0], [4.0, 5.0, -6.0], [0.0, 0.0, 0.5]])
PLACES = (np.array([0, 1, 2]), np.array([2, 0, 5]), np.array([1, 1, 1]))


def raises(x: Any, i: Any) -> Any:
    if x[1] < 0:
        raise ValueError("negative")
    return x.sum()


def asserts(x: Any, i: Any) -> Any:
    assert x[1] >= -1, "negative"
    return x


def catches_a_domain(x: Any, i: Any) -> Any:
    try:
        return math.sqrt(x[1])
    except ValueError:
        return -1.0


def catches_an_index(x: Any, i: Any) -> Any:
    try:
        return x[i]
    except IndexError:
        return np.float64(-7.0)


def catches_a_singular_matrix(x: Any, i: Any) -> Any:
    try:
        return np.linalg.inv(np.array([[x[0], 0.0], [0.0, 1.0]]))
    except np.linalg.LinAlgError:
        return np.zeros((2, 2))


def divides_numbers(x: Any, i: Any) -> Any:
    return 6 // int(i), 6 % int(i)


def divides_by_a_count(x: Any, i: Any) -> Any:
    count = 0
    for v in x:
        if v > 4.5:
            count += 1
    return 6 / count


def divides_guarded(x: Any, i: Any) -> Any:
    return 6 // int(i) if i else -1


def takes_integers(x: Any, i: Any) -> Any:
    k = int(x[0])
    return {"square": k * k, "rest": (k // 2, -k % 3)}


def writes_at_a_place(x: Any, i: Any) -> Any:
    items = [0.0, 0.0]
    items[1 if x[0] > 0 else 0] = x[1]
    return items


def chooses_a_kind(x: Any, i: Any) -> Any:
    return (x[0] > 0 and x[1]) or x[2]


def writes_to_its_row(x: Any, i: Any) -> Any:
    x[0] = 6 // int(i)
    return x[x > 0].max()


FUNCTIONS: tuple[Callable[..., Any], ...] = (
    raises, asserts, catches_a_domain, catches_an_index, catches_a_singular_matrix, divides_numbers, divides_by_a_count,
    divides_guarded, takes_integers, writes_at_a_place, chooses_a_kind, writes_to_its_row,
)  # fmt: skip


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:
        return type(error), str(error)


def of_each_row(function: Callable[..., Any], rows: Any, places: Any) -> Any:
    found = [function(x.copy(), i) for x, i in zip(rows, places, strict=True)]

    def stacked(parts: list[Any]) -> Any:
        if isinstance(parts[0], dict):
            return {key: stacked([p[key] for p in parts]) for key in parts[0]}
        if isinstance(parts[0], (tuple, list)):
            return type(parts[0])(stacked(list(column)) for column in zip(*parts, strict=True))
        return np.stack(parts)

    return stacked(found)


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: plain(v) for key, v in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(map(plain, value))
    return value if isinstance(value, (type, str)) else (str(value.dtype), np.asarray(value).tolist())


@pytest.mark.filterwarnings("ignore::kernelgraph.FallbackWarning")
@pytest.mark.parametrize("within", [False, True], ids=["alone", "in a decorated function"])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_rows_are_as_those_of_a_loop(function: Callable[..., Any], within: bool) -> None:
    mapped: Any = kg.vmap(function)
    if within:
        mapped = kg.kernel_graph(lambda x, i: kg.vmap(function)(x, i), device="cpu")
    for rows in (ROWS, np.abs(ROWS), -ROWS, ROWS):
        for places in PLACES:
            wanted = outcome(lambda: of_each_row(function, rows, places))  # noqa: B023
            given = rows.copy()
            assert plain(outcome(lambda: mapped(given, places))) == plain(wanted)  # noqa: B023
            assert np.array_equal(given, rows)


def test_axes_and_shared_arguments_are_those_of_the_call() -> None:
    def f(x: Any, shared: Any, options: Any) -> Any:
        shared += 1  # its own copy
        if x.sum() < options["least"]:
            raise ValueError("small")
        return np.outer(x, shared), int(x[0])

    x, shared = np.arange(6.0).reshape(2, 3), np.ones(2)
    mapped = kg.vmap(f, in_axes=(1, None, None), out_axes=-1)
    with pytest.warns(kg.FallbackWarning, match=r"int|cannot raise"):
        outer, whole = mapped(x, shared, {"least": 1.0})
    assert np.array_equal(outer, np.stack([np.outer(row, shared + 1) for row in x.T], -1)) and np.array_equal(
        shared, [1, 1]
    )
    assert whole.tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="small"):
        mapped(x, shared, {"least": 4.0})


def test_what_rows_cannot_give_is_told() -> None:
    mapped = kg.vmap(kg.kernel_graph(lambda x: [int(v) for v in x if v > 0], untraceable="numpy", device="cpu"))
    with pytest.raises(kg.UserError, match="one structure"):
        mapped(ROWS)
    with pytest.raises(kg.UserError, match="no rows"):
        mapped(ROWS[:0])
    with pytest.raises(kg.UserError):
        kg.vmap(kg.kernel_graph(raises, untraceable="refuse", device="cpu"))(ROWS, PLACES[0])
