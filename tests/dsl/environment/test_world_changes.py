"""Changes between calls that random worlds have found: each gives what Python gives, or is refused and undone."""

from __future__ import annotations

import collections
import copy
import dataclasses
import functools
import operator
import threading
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

import kernelgraph as kg
from tests.dsl.tracing import assert_same
from tests.dsl.world_objects import cpu

X = np.array([1.0, 2.0])


def check_changes(function: Callable[..., Any], changes: tuple[Callable[[], Any], ...], *args: Any) -> None:
    """The decorated function agrees with the plain one at first and after each change."""
    f = cpu(function)
    for change in (lambda: None, *changes):
        change()
        assert_same(f(X, *args), function(X, *args))


def test_what_is_put_into_an_ordered_dict_past_its_class_is_found_by_its_key() -> None:
    holder = collections.OrderedDict(k=2.0, j=1.0)
    check_changes(
        lambda x: x * holder.get("k", 7.0) + len([*holder]) + len(holder),
        (lambda: holder.pop("k"), lambda: dict.__setitem__(holder, "k", 3.0), lambda: dict.__delitem__(holder, "k")),
    )


def test_what_only_a_key_finds_in_an_ordered_dict_is_told_from_what_is_listed() -> None:
    holder = collections.OrderedDict(k=3.0)

    def hide() -> None:
        holder.clear()
        dict.__setitem__(holder, "k", 3.0)

    check_changes(lambda x: x * dict([*holder.items()]).get("k", 7.0), (hide,))


class Pair(NamedTuple):
    a: Any
    b: int = 2


def test_static_arguments_are_told_apart_past_their_own_way_of_iterating() -> None:
    class Own(Pair):
        __slots__ = ()

        def __iter__(self) -> Any:
            return iter([5.5, 1])

    class Holder(tuple[Any, ...]):
        pass

    f = cpu(lambda x, r: x * r[0].a)
    for value in (2.0, 3.0):
        assert_same(f(X, Holder((Own(value),))), X * value)


def test_a_descriptor_whose_class_changes_is_another_kind_of_descriptor() -> None:
    class Way:
        def __get__(self, instance: Any, owner: Any) -> float:
            return 2.0

    class Holder:
        a = Way()

    holder = Holder()

    def set_(self: Any, instance: Any, value: Any) -> None:
        pass

    check_changes(
        lambda x: x * getattr(holder, "a", 7.0),
        (
            lambda: vars(holder).update(a=5.5),
            lambda: setattr(Way, "__set__", set_),
            lambda: delattr(Way, "__set__"),
            lambda: setattr(Way, "__delete__", set_),
        ),
    )
    wrapped = Holder()
    check_changes(lambda x: x * (2 if isinstance(wrapped.a, Way) else wrapped.a), (lambda: delattr(Way, "__get__"),))


def test_attributes_of_a_dataclass_argument_are_those_in_it_past_later_properties() -> None:
    @dataclasses.dataclass
    class Record:
        a: Any
        b: int = 1

    record = Record(2)
    check_changes(
        lambda x, r: x * r.__dict__.get("a", 7.0) + r.a,
        (lambda: setattr(Record, "a", property(lambda self: 8.5)), lambda: setattr(Record, "b", 3)),
        record,
    )


def test_objects_with_an_answer_to_every_name_are_read_from_arrays_of_objects() -> None:
    class Holder:
        def __init__(self, a: float) -> None:
            self.a = a

    held = np.empty(1, object)
    held[0] = Holder(2.0)
    check_changes(lambda x: x * held.tolist()[0].a, (lambda: setattr(Holder, "__getattr__", lambda self, name: 9.5),))


def test_what_python_does_not_copy_is_copied_as_python_does() -> None:
    @dataclasses.dataclass
    class Record:
        a: Any

    assert_same(cpu(lambda x: dataclasses.astuple(Record(np.negative))[0](x))(X), -X)
    functions = Record(np.negative)
    assert_same(cpu(lambda x: dataclasses.astuple(functions)[0](x) + copy.copy(functions).a(x))(X), -2 * X)
    local = threading.local()
    for f in (copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot pickle"):
            cpu(lambda x: x * f(local).a)(X)  # noqa: B023


@pytest.mark.usefixtures("refusing")
def test_an_attribute_that_is_none_cannot_be_deleted() -> None:
    def get() -> Any:
        return None

    get.a = None  # type: ignore[attr-defined]

    def function(x: Any) -> Any:
        del get.a  # type: ignore[attr-defined]
        return x

    with pytest.raises(kg.TraceError, match=r"test_world_changes.py:\d+: .*'a' of get"):
        cpu(function)(X)
    assert get.a is None  # type: ignore[attr-defined]


@pytest.mark.usefixtures("refusing")
def test_a_cached_property_stays_as_it_was_where_what_it_gives_is_refused() -> None:
    class Holder:
        @functools.cached_property
        def a(self) -> Any:
            return np.datetime64("2020-01-01")

    holder = Holder()
    with pytest.raises(kg.DTypeError):
        cpu(lambda x: (x, operator.attrgetter("a")(holder)))(X)
    assert vars(holder) == {}


@pytest.mark.usefixtures("refusing")
def test_a_refusal_that_python_swallows_is_remembered() -> None:
    class Own:
        def __getattribute__(self, name: str) -> Any:
            return object.__getattribute__(self, name)

    holder = collections.UserList([Own()])
    for read in (tuple, list, lambda v: [*v]):
        with pytest.raises(kg.TraceError, match="__getattribute__"):
            cpu(lambda x: x * read(holder)[0].a)(X)  # noqa: B023


@pytest.mark.usefixtures("refusing")
def test_an_ordered_dict_with_a_hidden_item_is_no_argument() -> None:
    holder = collections.OrderedDict(k=2.0)

    def function(x: Any, held: Any) -> Any:
        try:
            return x * held.__getitem__("k")
        except LookupError:
            return x * 7.0

    check_changes(function, (lambda: holder.pop("k"),), holder)
    dict.__setitem__(holder, "k", 3.0)
    with pytest.raises(kg.ArgumentsError, match="OrderedDict"):
        cpu(function)(X, holder)


def ordered_dict_without_a_listed_key(**items: float) -> Any:
    holder = collections.OrderedDict(items)
    dict.__delitem__(holder, "k")
    return holder


@pytest.mark.usefixtures("refusing")
@pytest.mark.parametrize("read", [len, lambda o: o["j"], lambda o: [*o], lambda o: dict(o), lambda o: o.copy()])
def test_an_ordered_dict_emptied_past_its_class_is_refused(read: Callable[[Any], Any]) -> None:
    holder = ordered_dict_without_a_listed_key(j=2.0, k=3.0)
    with pytest.raises(kg.TraceError, match=r"\.py:\d+: .*changed past its class"):
        cpu(lambda x: (read(holder), x))(X)
    with pytest.raises(kg.ArgumentsError, match="OrderedDict"):
        cpu(lambda x, o: (read(o), x))(X, holder)


@pytest.mark.usefixtures("refusing")
def test_an_ordered_dict_that_calls_clear_and_others_fill_past_its_class_is_no_argument() -> None:
    def clear(x: Any, held: Any) -> Any:
        value = held["k"]
        held.clear()
        return x * value

    f, holder = cpu(clear), collections.OrderedDict(k=2.0)
    assert_same(f(X, holder), X * 2.0)
    dict.__setitem__(holder, "k", 3.0)
    with pytest.raises(kg.KernelGraphError, match="OrderedDict"):
        f(X, holder)
    assert dict.items(holder) == {("k", 3.0)}


@pytest.mark.usefixtures("refusing")
def test_a_known_ordered_dict_of_an_argument_that_gets_a_hidden_item_is_read_again() -> None:
    def function(x: Any, held: Any) -> Any:
        held["k"] = 2.0
        return x * len(held)

    f, holder = cpu(function), collections.OrderedDict(k=1.0)
    for _ in range(5):
        assert_same(f(X, holder), X)
    dict.__setitem__(holder, "j", 3.0)
    with pytest.raises(kg.KernelGraphError, match="OrderedDict"):
        f(X, holder)


@pytest.mark.usefixtures("refusing")
def test_a_cached_property_is_taken_out_where_the_call_is_refused_after_its_trace() -> None:
    class Held:
        @functools.cached_property
        def gain(self) -> float:
            return 2.0

    held = Held()
    holder = SimpleNamespace(table=collections.defaultdict(float, k=held))

    def function(x: Any, r: Any = holder) -> Any:
        gain = r.table["k"].gain
        vars(r).update(table=x)
        return x * gain

    with pytest.raises(kg.ArgumentsError, match="by another name"):
        cpu(function)(X)
    assert vars(held) == {}


@pytest.mark.usefixtures("refusing")
def test_in_asks_a_scalar_as_numpy_does() -> None:
    def ask(x: Any, value: Any) -> Any:
        return x * (2 if "a" in value else 3)

    with pytest.raises(TypeError, match="not iterable"):
        cpu(lambda x: ask(x, x.sum()))(X)
    with pytest.raises(kg.TraceError, match="no axes"):
        cpu(ask)(X, cpu(lambda x: x.sum())(X))


def test_what_a_pattern_takes_apart_is_watched() -> None:
    @dataclasses.dataclass
    class Point:
        a: float
        b: float

    held = Point(2.0, 3.0)

    def function(x: Any) -> Any:
        match held:
            case Point(first):
                return x * first
        return x

    names = ("b",), ("a", "b")
    check_changes(function, tuple(functools.partial(setattr, Point, "__match_args__", n) for n in names))


class SlotBesideDict:
    __slots__ = ("__dict__", "a")

    def __init__(self, a: Any) -> None:
        self.a = a


def test_a_slot_beside_a_dict_is_read_from_arguments_and_what_they_hold() -> None:
    def function(x: Any, held: Any) -> Any:
        return x * held.a + getattr(held, "b", 1.0)

    held = SlotBesideDict(2.0)
    check_changes(function, (lambda: setattr(held, "a", 3.0), lambda: setattr(held, "b", 5.0)), held)

    class Holder:
        def __init__(self) -> None:
            self.inner = held

        @cpu
        def scaled(self, x: Any) -> Any:
            return x * self.inner.a

    for value in (4.0, 5.0):
        held.a = value
        assert_same(Holder().scaled(X), X * value)


@pytest.mark.usefixtures("refusing")
def test_what_is_in_a_tuple_of_a_class_is_refused_as_elsewhere() -> None:
    class Kept(tuple[Any, ...]):
        pass

    target = np.arange(2.0)
    for inside, words in ((weakref.ref(target), "weakly"), (iter([1.0]), "next items once")):
        holder = Kept((inside,))
        with pytest.raises(kg.TraceError, match=words):
            cpu(lambda x: x * len([*holder]), untraceable="refuse")(X)  # noqa: B023


@pytest.mark.usefixtures("refusing")
def test_attributes_of_cached_and_dispatching_functions_are_not_written() -> None:
    cached, dispatching = functools.cache(lambda n: 2.0), functools.singledispatch(lambda n: 3.0)
    for function, words in (
        (cached, "a traced function cannot change"),
        (dispatching, "function is a function, which"),
    ):

        def assign(x: Any) -> Any:
            function.a = 3.0  # noqa: B023
            return x * function(1)  # noqa: B023

        with pytest.raises(kg.TraceError, match=rf"\.py:\d+: {words}"):
            cpu(assign)(X)
        assert not hasattr(function, "a")
