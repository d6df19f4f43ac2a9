"""Each kind of Python object by each walk over objects: read, compared, undone, flattened, made, replaced."""

from __future__ import annotations

import array
import collections
import contextlib
import functools
import io
import random
import threading
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl.core.exact import exact_key_of_value
from kernelgraph.dsl.core.object_journal import ObjectJournal
from kernelgraph.dsl.core.object_model import (
    BUFFERS,
    KINDS,
    make_object,
    mutators_of_class,
    named_parts_of_object,
    parts_of_object,
    row_of_class,
    slots_of_class,
    walk_objects,
)
from kernelgraph.dsl.core.object_state import comparable_object_state
from kernelgraph.dsl.core.pytree import LEAF, flatten, unflatten
from kernelgraph.dsl.environment.raised_errors import give_users_objects_to_error


class Held:
    """What each object below holds: equal to itself alone."""

    def __init__(self, number: int) -> None:
        self.number = number


HELD, OTHER = Held(1), Held(2)


class Misleading:
    """Ways of its own, which no walk may ask."""

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("asked")

    __setitem__ = __len__ = items = keys = values = extend = update = clear = __iter__


class List(Misleading, list):  # type: ignore[type-arg]
    pass


class Dict(Misleading, dict):  # type: ignore[type-arg]
    pass


class Ordered(Misleading, collections.OrderedDict):  # type: ignore[type-arg]
    pass


class Deque(Misleading, collections.deque):  # type: ignore[type-arg]
    pass


class Noted(list):  # type: ignore[type-arg]
    def __init__(self, note: Any) -> None:
        super().__init__([1])
        self.note = note


class Plain:
    def __init__(self, a: Any) -> None:
        self.a = a


class Slots:
    __slots__ = ("a", "empty")

    def __init__(self, a: Any) -> None:
        self.a = a


class SlotsBesideDict(Slots):
    def __init__(self, a: Any) -> None:
        super().__init__(1)
        self.b = a


class Renamed(Slots):
    """Has a slot of a base by another name too, and a property in front of it."""

    __slots__ = ()
    other = Slots.a

    @property
    def a(self) -> Any:
        raise AssertionError("asked")

    def __init__(self, a: Any) -> None:
        Slots.a.__set__(self, a)  # type: ignore[attr-defined]


class Bare:
    """Holds nothing."""

    __slots__ = ()


@dataclass
class Fields:
    a: Any
    b: Any = field(default=1)


@dataclass(slots=True)
class SlottedFields:
    a: Any


class Pair(collections.namedtuple("Pair", "left right")):
    __slots__ = ()


class Failure(Exception):
    pass


def _closure(a: Any) -> Callable[[], Any]:
    return lambda: a


def _class(a: Any) -> Any:
    class Made:
        note = a
        last = 1

    return Made


def put(container: Any, key: Any, value: Any) -> None:
    container[key] = value


def _set_all(value: Any) -> None:
    value.clear()
    value.add(OTHER)


def _extended(base: type, *given: Any) -> Callable[[Any], Any]:
    """Makes objects of a class that extends one of Python's, with an attribute."""
    kind: Any = type(f"Extended{base.__name__}", (base,), {})

    def make(a: Any) -> Any:
        found = kind(*given)
        found.note = a
        return found

    return make


def _attributed_masked_array(a: Any) -> Any:
    found = np.ma.array([1.0, 2.0], mask=[0, 1])
    found.note = a  # type: ignore[attr-defined]
    return found


EXTENDED = {int: 5, float: 2.5, complex: 1j, str: "text", bytes: b"bytes"}

# name: what makes one that holds a value, and what changes it; None where nothing can
MAKERS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any] | None]] = {
    "list": (lambda a: [1, a], lambda x: x.append(OTHER)),
    "list with ways of its own": (lambda a: List([1, a]), lambda x: list.append(x, OTHER)),
    "list with attributes": (lambda a: Noted(a), lambda x: setattr(x, "note", OTHER)),
    "tuple": (lambda a: (1, a), None),
    "named tuple": (lambda a: Pair(1, a), None),
    "dict": (lambda a: {"k": a}, lambda x: put(x, "k", OTHER)),
    "dict with ways of its own": (lambda a: Dict(k=a), lambda x: dict.__setitem__(x, "k", OTHER)),
    "OrderedDict": (lambda a: collections.OrderedDict(j=1, k=a), lambda x: x.move_to_end("j")),
    "OrderedDict of its own": (lambda a: make_object(Ordered, ("k",), [a]), lambda x: dict.__setitem__(x, "k", OTHER)),
    "OrderedDict filled past its class": (
        lambda a: collections.OrderedDict(k=a),
        lambda x: dict.__setitem__(x, "hidden", OTHER),
    ),
    "defaultdict": (lambda a: collections.defaultdict(list, k=a), lambda x: x["missing"]),
    "its factory": (lambda a: collections.defaultdict(list, k=a), lambda x: setattr(x, "default_factory", None)),
    "Counter": (lambda a: collections.Counter({a: 2}), lambda x: x.update([OTHER])),
    "set": (lambda a: {1, a}, _set_all),
    "frozenset": (lambda a: frozenset({1, a}), None),
    "deque": (lambda a: collections.deque([1, a], 3), lambda x: x.rotate()),
    "deque with ways of its own": (lambda a: make_object(Deque, (), [3, a]), lambda x: collections.deque.pop(x)),
    "bytearray": (lambda a: bytearray(b"abc"), lambda x: put(x, 0, 7)),
    "array": (lambda a: array.array("d", [1.0, 2.0]), lambda x: put(x, 0, 7.0)),
    "plain object": (Plain, lambda x: setattr(x, "a", OTHER)),
    "slots": (Slots, lambda x: setattr(x, "empty", OTHER)),
    "a slot that is emptied": (Slots, lambda x: delattr(x, "a")),
    "slots beside a dict": (SlotsBesideDict, lambda x: setattr(x, "a", OTHER)),
    "a slot behind a property": (Renamed, lambda x: setattr(x, "other", OTHER)),
    "dataclass": (Fields, lambda x: setattr(x, "a", OTHER)),
    "dataclass with slots": (SlottedFields, lambda x: setattr(x, "a", OTHER)),
    "nothing": (lambda a: Bare(), None),
    "namespace": (lambda a: types.SimpleNamespace(a=a), lambda x: setattr(x, "a", OTHER)),
    "UserDict": (lambda a: collections.UserDict(k=a), lambda x: put(x, "k", OTHER)),
    "ChainMap": (lambda a: collections.ChainMap({"k": a}), None),
    "exception": (lambda a: Failure(a), lambda x: setattr(x, "args", (OTHER,))),
    "partial": (lambda a: functools.partial(print, a, end=""), lambda x: x.__setstate__((max, (OTHER,), {}, {}))),
    "method": (lambda a: types.MethodType(print, a), None),
    "property": (property, None),
    "static method": (staticmethod, None),
    "cell": (types.CellType, lambda x: setattr(x, "cell_contents", OTHER)),
    "function": (_closure, lambda x: setattr(x.__closure__[0], "cell_contents", OTHER)),
    "random numbers": (lambda a: random.Random(2), lambda x: x.random()),
    "bit generator": (lambda a: np.random.MT19937(2), lambda x: x.random_raw()),
    "text in memory": (lambda a: io.StringIO("a\nb"), lambda x: x.readline()),
    "bytes in memory": (lambda a: io.BytesIO(b"a\nb"), lambda x: x.readline()),
    "class": (_class, lambda x: setattr(x, "note", OTHER)),
    "a class that gets more": (_class, lambda x: setattr(x, "other", OTHER)),
    "a class that gets less": (_class, lambda x: delattr(x, "note")),
    "array of objects": (lambda a: np.array([1, a], object), lambda x: put(x, 0, OTHER)),
    "numbers": (lambda a: np.arange(3.0), lambda x: put(x, 0, 9.0)),
    "masked array": (lambda a: np.ma.array([1.0, 2.0], mask=[0, 1]), lambda x: put(x, 0, np.ma.masked)),
    "its attribute": (_attributed_masked_array, lambda x: setattr(x, "note", OTHER)),
    "object of a thread": (_extended(threading.local), lambda x: setattr(x, "note", OTHER)),
    **{base.__name__: (_extended(base, x), lambda x: setattr(x, "note", OTHER)) for base, x in EXTENDED.items()},
}
CHANGED = [name for name, (_, change) in MAKERS.items() if change is not None]
# those whose parts are in a function, in an array or in C
UNSEEN = (
    "nothing",
    "bytearray",
    "array",
    "function",
    "random numbers",
    "bit generator",
    "text in memory",
    "bytes in memory",
    "class",
    "a class that gets more",
    "a class that gets less",
    "array of objects",
    "numbers",
    "masked array",
)


def test_each_row_of_a_container_or_holder_is_made_here() -> None:
    kinds = {row_of_class(type(make(HELD))).base for make, _ in MAKERS.values()}
    others = {"builtin_function_or_method", "method-wrapper", "super", "memoryview", "classmethod"}
    missing = {base.__name__ for base in KINDS.keys() - kinds}
    assert missing <= {*others, "_lru_cache_wrapper"}, missing


@pytest.mark.parametrize("name", [n for n in MAKERS if n not in UNSEEN])
def test_what_an_object_holds_is_found(name: str) -> None:
    value = MAKERS[name][0](HELD)
    assert any(x is HELD for x in walk_objects(value, parts_of_object))


@pytest.mark.parametrize("name", CHANGED)
def test_a_change_is_seen_and_undone(name: str) -> None:
    make, change = MAKERS[name]
    value, kept = make(HELD), list[Any]()
    then, before = comparable_object_state(value, kept), [*walk_objects(value, parts_of_object)]
    journal = ObjectJournal()
    journal.note_objects(before)
    assert comparable_object_state(value, kept) == then
    assert change is not None
    change(value)
    assert comparable_object_state(value, kept) != then
    journal.undo()
    assert comparable_object_state(value, kept) == then
    after = [*walk_objects(value, parts_of_object)]
    assert [type(x) for x in after] == [type(x) for x in before]


@pytest.mark.parametrize("name", [n for n, row in MAKERS.items() if row_of_class(type(row[0](HELD))).family])
def test_a_container_is_made_of_its_parts(name: str) -> None:
    value = MAKERS[name][0](HELD)
    again = make_object(type(value), *named_parts_of_object(value))
    assert type(again) is type(value)
    for a, b in zip(named_parts_of_object(again), named_parts_of_object(value), strict=True):
        assert [*a] == [*b]
    assert all(hasattr(type(value), name) for name in mutators_of_class(type(value)))


@pytest.mark.parametrize("name", MAKERS)
def test_what_is_flattened_is_put_together_again(name: str) -> None:
    value = MAKERS[name][0](HELD)
    found: list[Any] = []
    tree = flatten(value, found, results=True)
    if tree == LEAF:
        assert found == [value] if not isinstance(value, np.ndarray) else found[0] is value
        return
    again, kept = unflatten(tree, found), list[Any]()
    assert type(again) is type(value) and again is not value
    assert comparable_object_state(again, kept) == comparable_object_state(value, kept)
    assert flatten(again, [], results=True) == tree
    if row_of_class(type(value)).family and HELD in found:  # no objects in it that are made anew
        assert exact_key_of_value(again) == exact_key_of_value(value)


class OneStandIn:
    """A world in which HELD stands for OTHER."""

    def original_value(self, value: Any) -> Any:
        return OTHER if value is HELD else value

    def is_container_of_arguments(self, value: Any) -> bool:
        return False


def test_what_an_error_holds_itself_is_replaced() -> None:
    error = Failure(HELD, 1)
    error.held = HELD  # type: ignore[attr-defined]
    error.__cause__ = KeyError(HELD)
    give_users_objects_to_error(error, OneStandIn())
    assert error.args == (OTHER, 1) and error.held is OTHER and error.__cause__.args == (OTHER,)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", [n for n in MAKERS if n not in UNSEEN])
def test_an_error_that_holds_more_of_a_trace_is_raised_in_numpy(name: str) -> None:
    value = MAKERS[name][0](HELD)
    row = row_of_class(type(value))
    found = any(x is HELD for x in walk_objects(value, parts_of_object))
    assert found or row.family is None or row.is_made_whole or row.family in BUFFERS
    with pytest.raises(kg.TraceError, match="holds") if found else contextlib.nullcontext():
        give_users_objects_to_error(Failure(value), OneStandIn())


@pytest.mark.parametrize("base", EXTENDED)
def test_values_of_classes_that_extend_numbers_and_texts_are_compared(base: type) -> None:
    make = type(f"Another{base.__name__}", (base,), {"__repr__": lambda self: "one"})
    one, same, other = make(EXTENDED[base]), make(EXTENDED[base]), make(EXTENDED[base] * 2)
    assert comparable_object_state([one]) == comparable_object_state([same]) != comparable_object_state([other])
    assert exact_key_of_value(one) == exact_key_of_value(same) != exact_key_of_value(other)
    assert type(make_object(make, *named_parts_of_object(one))) is make and [*named_parts_of_object(one)[1]] == [one]


def test_an_object_of_nothing_is_made_again() -> None:
    assert type(make_object(Bare, (), [])) is Bare


def test_slots_come_in_order_those_of_bases_first() -> None:
    class More(Slots):
        __slots__ = ("b", "c")

    assert [*slots_of_class(More)] == ["a", "empty", "b", "c"]
    value = More(1)
    value.c, value.b = 3, 2
    assert named_parts_of_object(value) == (("a", "b", "c"), [1, 2, 3])
