"""What traced functions return beside arrays: objects of the user's own classes, never of stand-ins of a trace."""

from __future__ import annotations

import array
import collections
import functools
from typing import Any, NamedTuple

import numpy as np
import pytest

import kernelgraph as kg

X = np.ones(2)
RATE = np.arange(2.0)


class Items(list[Any]): ...


class Pair(tuple[Any, ...]):
    def __new__(cls, *args: Any) -> Pair:
        return super().__new__(cls, args)


class Names(set[Any]): ...


class Fixed(frozenset[Any]): ...


class Table(dict[Any, Any]): ...


class Queue(collections.deque[Any]): ...


class Ordered(collections.OrderedDict[Any, Any]): ...


class Slotted(list[Any]):
    __slots__ = ("note",)


class Number(int): ...


class Plain:
    def scaled(self, x: Any) -> Any:
        return x * RATE


MADE = (
    lambda: Items([1, 2]), lambda: Pair(1, 2), lambda: Names([1]), lambda: Fixed([1]), lambda: Table(a=1),
    lambda: Queue([1], 3), lambda: Ordered(a=1), lambda: Slotted([1]), lambda: {1, 2}, lambda: frozenset([1]),
)  # fmt: skip


@pytest.mark.parametrize("number", range(len(MADE)))
@pytest.mark.parametrize("noted", [False, True])
def test_containers_are_of_the_users_classes(number: int, noted: bool) -> None:
    make: Any = MADE[number]

    def function(x: Any) -> Any:
        made = make()
        if noted and type(made) not in (set, frozenset):
            made.note = x * 2
        return made

    f = kg.kernel_graph(function, device="cpu")
    found, again, want = f(X), f(X), make()
    assert type(found) is type(want) and found == want and found is not again
    assert getattr(found, "maxlen", None) == getattr(want, "maxlen", None)
    if hasattr(found, "note"):
        assert found.note.numpy().tolist() == [2, 2]


def function_made_inside(x: Any) -> Any:
    return lambda y: y * RATE


def closure(x: Any) -> Any:
    return {"f": lambda y: y * x}


def partial(x: Any) -> Any:
    return functools.partial(lambda y: y, 1)


def class_made_inside(x: Any) -> Any:
    class Made:
        def scaled(self, y: Any) -> Any:
            return y * RATE

    return Made


def object_of_it(x: Any) -> Any:
    return class_made_inside(x)()


def subclass(x: Any) -> Any:
    class More(Plain): ...

    return More()


def attribute(x: Any) -> Any:
    made = Plain()
    made.scaled = lambda y: y  # type: ignore[method-assign]
    return made


def mapped(x: Any) -> Any:
    return map(lambda y: y, [1])


def number(x: Any) -> Any:
    return Number(3)


FUNCTIONS = [f for f in [*globals().values()] if getattr(f, "__code__", None) and f.__code__.co_varnames[:1] == ("x",)]


@pytest.mark.usefixtures("refusing")
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_what_would_run_after_the_trace_is_refused(function: Any) -> None:
    with pytest.raises(kg.TraceError, match=r"test_returned_objects.py:\d+: the function returns"):
        kg.kernel_graph(function, device="cpu")(X)


PLAIN, HELD = Plain(), np.array([array.array("d", [2.0]), bytearray(b"a"), {1}], object)


@pytest.mark.parametrize("number", range(3))
def test_containers_from_outside_are_what_they_are(number: int) -> None:
    found = kg.kernel_graph(lambda x: (x, HELD[number]), device="cpu")(X)[1]
    assert type(found) is type(HELD[number]) and found == HELD[number]


def test_methods_of_the_users_objects_are_the_users() -> None:
    found = kg.kernel_graph(lambda x: PLAIN.scaled, device="cpu")(X)
    assert found.__self__ is PLAIN and found.__func__ is Plain.scaled


class Rows(NamedTuple):
    rows: Any


class Shelf:
    def __init__(self, held: Rows) -> None:
        self.held = held

    @kg.kernel_graph(device="cpu")
    def read(self, x: Any) -> Any:
        return x, self.held.rows


@pytest.mark.parametrize("rows", [[], [1], {"a": 1}, (1, [2])])
def test_containers_in_named_tuples_of_an_argument_are_pythons(rows: Any) -> None:
    found = Shelf(Rows(rows)).read(X)[1]
    assert type(found) is type(rows) and found == rows
