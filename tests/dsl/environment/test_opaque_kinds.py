"""Kinds of objects that Python reads past their attributes: what is in them is watched, or read as anything else is."""

from __future__ import annotations

import dataclasses
import enum
import functools
import sys
import types
from abc import ABC
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from tests.dsl.tracing import assert_same

X = np.linspace(0.5, 2.0, 3)


class Holder:
    def __init__(self, held: Any) -> None:
        self.held = held

    def get(self) -> Any:
        return self.held


class Fruit(enum.Enum):
    APPLE = (Holder(2.0), 0)


class Weight(float, enum.Enum):
    HEAVY = 4.0


class Gram(float):
    held: Any


class Base(ABC):  # noqa: B024
    pass


RATE = [2.0]


def dispatching(held: Any) -> Any:
    found = functools.singledispatch(lambda x: 7.0)
    found.register(float, lambda x: held)
    return found


def gram(held: Any) -> Gram:
    found = Gram(2.0)
    found.held = held
    return found


def weight(held: Any) -> Any:
    Weight.HEAVY.held = held  # type: ignore[attr-defined]
    return Weight


def fruit(held: Any) -> Any:
    Fruit.APPLE._value_ = (held, 0)
    return Fruit


def annotated(held: float) -> float:
    return held


Made, Read, Change = Callable[[], Any], Callable[[Any], Any], Callable[[Any], Any]
CASES: dict[str, tuple[Made, Read, Change]] = {
    "object in a member": (
        lambda: fruit(Holder(2.0)),
        lambda o: o.APPLE.value[0].held if o.APPLE.value[0].__class__ is Holder else 7.0,
        lambda o: setattr(o.APPLE.value[0], "held", 3.0),
    ),
    "object in a member that is a number": (
        lambda: weight(Holder(2.0)),
        lambda o: o.HEAVY.held.held if o.HEAVY.held.__class__ is Holder else 7.0,
        lambda o: setattr(o.HEAVY.held, "held", 3.0),
    ),
    "object in a number": (
        lambda: gram(Holder(2.0)),
        lambda o: o * o.held.held if o.held.__class__ is Holder else 7.0,
        lambda o: setattr(o.held, "held", 3.0),
    ),
    "property": (lambda: property(lambda self: RATE[0]), lambda o: o.fget(None), lambda o: RATE.__setitem__(0, 3.0)),
    "ordering": (
        lambda: functools.cmp_to_key(lambda a, b: RATE[0] * (a - b)),
        lambda o: sorted([2.0, 5.0, 3.0], key=o)[0],
        lambda o: RATE.__setitem__(0, -1.0),
    ),
    "annotations": (
        lambda: annotated,
        lambda o: len(o.__annotations__) + len(Parent.__annotations__) + len(Parent.__name__),
        lambda o: Parent.__annotations__.update(more=float),
    ),
    "super": (lambda: super(Gram, gram(2.0)), lambda o: o.__add__(1.0), lambda o: None),
    "method of a list": (lambda: [2.0].__getitem__, lambda o: o(0), lambda o: o.__self__.__setitem__(0, 3.0)),
    "method of an array": (lambda: np.ones(3).sum, lambda o: o(), lambda o: o.__self__.__setitem__(0, 3.0)),
    "special method of a list": (lambda: [2.0].__len__, lambda o: o(), lambda o: o.__self__.append(1)),
    "cell": (lambda: types.CellType(2.0), lambda o: o.cell_contents, lambda o: setattr(o, "cell_contents", 3.0)),
    "exception": (lambda: ValueError(2.0), lambda o: o.args[0], lambda o: setattr(o, "args", (3.0,))),
    "function by class": (lambda: dispatching(2.0), lambda o: o(1.0), lambda o: o.register(float, lambda x: 3.0)),
    "function by class, another": (lambda: dispatching(2.0), lambda o: o("x"), lambda o: o.register(str, len)),
    "namespace": (
        lambda: types.SimpleNamespace(held=2.0),
        lambda o: o.held if o.__class__ is types.SimpleNamespace else 7.0,
        lambda o: setattr(o, "held", 3.0),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_is_in_it_is_seen_when_it_changes(name: str) -> None:
    made, read, change = CASES[name]
    RATE[0] = 2.0
    held = made()

    def f(x: Any) -> Any:
        return x * read(held)

    traced = kg.kernel_graph(f, device="cpu")
    for _ in range(2):
        assert_same(traced(X), f(X))
    change(held)
    for _ in range(2):
        assert_same(traced(X), f(X))


def test_what_an_abstract_class_is_told_of_later_is_seen() -> None:
    class Late:
        pass

    late = Late()
    traced = kg.kernel_graph(lambda x: x if isinstance(late, Base) else -x, device="cpu")
    assert_same(traced(X), -X)
    Base.register(Late)
    assert_same(traced(X), X)


class Parent:
    rate: float

    def __init_subclass__(cls, factor: float = 1.0) -> None:
        cls.rate = factor * RATE[0]


def test_what_a_class_does_with_those_made_of_it_is_traced() -> None:
    @kg.kernel_graph(device="cpu")
    def f(x: Any) -> Any:
        class Child(Parent, factor=3.0):
            pass

        return x * Child.rate

    RATE[0] = 2.0
    assert_same(f(X), X * 6.0)
    RATE[0] = 3.0
    assert_same(f(X), X * 9.0)


def test_a_property_that_is_read_off_its_class_is_traced() -> None:
    RATE[0] = 2.0
    traced = kg.kernel_graph(lambda x: x * Rated.rate.fget(None) * Rated.kept.func(None), device="cpu")
    assert_same(traced(X), X * 4.0)
    RATE[0] = 3.0
    assert_same(traced(X), X * 9.0)


class Rated:
    @property
    def rate(self) -> float:
        return RATE[0]

    @functools.cached_property
    def kept(self) -> float:
        return RATE[0]


KEY = Holder(1.0)


def test_keys_of_dicts_are_the_user_s_own_objects() -> None:
    """In the arguments, in what is put into them, in the results, and in an error."""

    def f(d: Any, x: Any) -> Any:
        d[Fruit.APPLE] += 1.0
        d[Weight.HEAVY] = {KEY: x}
        return {KEY: x * d[KEY], Fruit.APPLE: [m for m in d if m is Fruit.APPLE]}

    traced, given, expected = (
        kg.kernel_graph(f, device="cpu"),
        {KEY: 2.0, Fruit.APPLE: 1.0},
        {KEY: 2.0, Fruit.APPLE: 1.0},
    )
    for _ in range(2):
        found, wanted = traced(given, X), f(expected, X)
        assert [*found] == [*wanted] and found[Fruit.APPLE] == [Fruit.APPLE]
        assert_same(found[KEY], wanted[KEY])
    assert [*given] == [*expected] and given[Fruit.APPLE] == expected[Fruit.APPLE] and [*given[Weight.HEAVY]] == [KEY]


def test_an_error_holds_the_user_s_own_objects() -> None:
    def f(x: Any) -> Any:
        raise ValueError(Fruit.APPLE, KEY)

    with pytest.raises(ValueError, match="APPLE") as raised:
        kg.kernel_graph(f, device="cpu")(X)
    assert raised.value.args[0] is Fruit.APPLE and raised.value.args[1] is KEY


class Names(dict[str, Any]):
    def __getattr__(self, name: str) -> Any:
        return self[name]  # a KeyError where Python asks for an AttributeError


def test_a_dict_whose_attributes_raise_key_errors_is_read() -> None:
    names = Names(rate=2.0)
    traced = kg.kernel_graph(lambda x: x * names.rate * names["rate"], device="cpu")
    assert_same(traced(X), X * 4.0)
    names["rate"] = 3.0
    assert_same(traced(X), X * 9.0)


def test_a_class_body_in_a_function_reads_globals_as_it_does() -> None:
    def f(x: Any) -> Any:
        class Local:
            rate = RATE[0]
            weights = WEIGHTS * 2

        return x * Local.rate + Local.weights

    traced = kg.kernel_graph(f, device="cpu")
    RATE[0] = 2.0
    assert_same(traced(X), f(X))
    RATE[0] = 3.0
    WEIGHTS[0] = 5.0
    assert_same(traced(X), f(X))


WEIGHTS = np.ones(3)


def test_a_module_in_another_one_s_place_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x: Any) -> Any:
        import replaced_module  # type: ignore[import-not-found]

        return x * replaced_module.rate

    traced = kg.kernel_graph(f, device="cpu")
    for rate in (2.0, 3.0):
        module = types.ModuleType("replaced_module")
        module.rate = rate  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "replaced_module", module)
        assert_same(traced(X), X * rate)


class Tagged(np.ndarray[Any, Any]):
    tag: float


def test_an_attribute_of_a_subclass_of_arrays_is_seen() -> None:
    held = np.ones(3).view(Tagged)
    held.tag = 2.0
    traced = kg.kernel_graph(lambda x: x * held.tag, device="cpu")
    assert_same(traced(X), X * 2.0)
    held.tag = 3.0
    assert_same(traced(X), X * 3.0)


def test_an_object_of_a_class_that_is_made_by_a_call_is_seen() -> None:
    held = dataclasses.make_dataclass("Made", ["rate"])(2.0)
    traced = kg.kernel_graph(lambda x: x * held.rate, device="cpu")
    assert_same(traced(X), X * 2.0)
    held.rate = 3.0
    assert_same(traced(X), X * 3.0)


def test_a_cached_function_in_a_member_gives_what_its_cache_has() -> None:
    holder = Holder(2.0)
    given = functools.lru_cache(lambda: holder.held)
    fruit(given)
    traced = kg.kernel_graph(lambda x: x * next(iter(Fruit)).value[0](), device="cpu")
    assert_same(traced(X), X * 2.0)
    holder.held = 3.0
    assert_same(traced(X), X * 2.0)
    given.cache_clear()
    assert_same(traced(X), X * 3.0)


def test_a_member_that_is_returned_or_given_is_the_user_s_own() -> None:
    found, same = kg.kernel_graph(lambda x, m: ([m, Fruit.APPLE, Weight.HEAVY], m is Fruit.APPLE), device="cpu")(
        X, Fruit.APPLE
    )
    assert found[0] is found[1] is Fruit.APPLE and found[2] is Weight.HEAVY and same


def test_what_an_exception_holds_is_what_it_is_elsewhere() -> None:
    """Objects among its arguments are of their class, and functions by class are watched there too."""
    held = ValueError(gram([3.0]), dispatching(2.0))

    def compute(x: Any) -> Any:
        own = held.args[0].held[0] if held.args[0].__class__ is Gram else 7.0
        return x * own * held.args[1](1.0)

    f = kg.kernel_graph(compute, device="cpu")
    assert_same(f(X), compute(X))
    held.args[1].register(float, lambda x: 5.0)
    assert_same(f(X), compute(X))
    held.args = (gram([4.0]), held.args[1])
    assert_same(f(X), compute(X))

    def write(x: Any) -> Any:
        held.args = ()
        return x

    with pytest.raises(kg.KernelGraphError, match="no trace follows"):
        kg.kernel_graph(write, device="cpu", untraceable="refuse")(X)
    assert len(held.args) == 2


def test_an_exception_of_plain_values_is_the_users_own() -> None:
    mine = KeyError("k", 2.0)

    def compute(x: Any) -> Any:
        try:
            raise mine
        except KeyError as error:
            return x * error.args[1] + (error is mine)

    assert_same(kg.kernel_graph(compute, device="cpu")(X), compute(X))


def test_a_module_that_gets_a_getattr_later_is_asked_again() -> None:
    module = types.ModuleType("late")

    def compute(x: Any) -> Any:
        return x * (module.rate if hasattr(module, "rate") else 7.0)

    f = kg.kernel_graph(compute, device="cpu")
    changes: list[Callable[[], Any]] = [
        lambda: None,
        lambda: setattr(module, "__getattr__", lambda name: 6.5),
        lambda: setattr(module, "__getattr__", lambda name: 5.5),
        lambda: delattr(module, "__getattr__"),
    ]
    for change in changes:
        change()
        assert_same(f(X), compute(X))
