"""What a traced function sees of the user's objects beside their contents: identity, text, classes above and below."""

from __future__ import annotations

import collections
import copy
import dataclasses
import functools
import gc
import types
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import pytest

import kernelgraph as kg
from tests.dsl.environment.test_states import classes_that_hold
from tests.dsl.tracing import assert_same
from tests.dsl.world_objects import X, cpu


class Base:
    weight = 1.0


class First(Base):
    weight = 2.0


class Point(NamedTuple):
    x: float


T = TypeVar("T")


class Box(Generic[T]):
    def __init__(self, k: float) -> None:
        self.k = k


@functools.lru_cache
def cached(k: float) -> float:
    return k


FIRST, ITEMS, VALUES, VARIABLE = First(), [1, 2], np.arange(3.0), ContextVar[float]("VARIABLE", default=2.0)
POINT = Point(2.0)
SET, QUEUE = {3, "a", 1}, collections.deque([1, 2])
TABLE = {id(v): float(i) for i, v in enumerate((FIRST, ITEMS, VALUES, First, cached), 2)}
TEXT = {str(v): float(i) for i, v in enumerate((FIRST, First, ITEMS, SET, QUEUE, cached, VARIABLE), 2)}

READS = (
    lambda x: x * TABLE.get(id(FIRST), 9.0) * TABLE.get(id(ITEMS), 9.0) * TABLE.get(id(VALUES), 9.0),
    lambda x: x * TABLE.get(id(First), 9.0) * TABLE.get(id(cached), 9.0),
    lambda x: x * TEXT.get(str(FIRST), 9.0) * TEXT.get(str(First), 9.0) * TEXT.get(str(ITEMS), 9.0),
    lambda x: x * TEXT.get(str(SET), 9.0) * TEXT.get(str(QUEUE), 9.0) * TEXT.get(repr(cached), 9.0),
    lambda x: x * TEXT.get(str(VARIABLE), 9.0) * len(VARIABLE.name),
    lambda x: x * isinstance(VARIABLE, ContextVar) * 2.0 + isinstance(types, types.ModuleType),
    lambda x: x * len(First.__mro__) * len(First.__bases__) + (First.__base__ is Base) + (First.__bases__ == (Base,)),
    lambda x: x * [c.weight for c in First.__mro__ if c is not object][1],
    lambda x: x * Box[float](2.0).k,
    lambda x: x * copy.deepcopy(POINT).x + copy.copy(FIRST).weight,
)


@pytest.mark.parametrize("number", range(len(READS)))
def test_they_are_pythons_own(number: int) -> None:
    read = READS[number]
    assert_same(cpu(read)(X), read(X))
    assert Box[float].__origin__ is Box and type(Box[float](1.0)) is Box  # type: ignore[attr-defined]


def test_subclasses_are_found_and_new_ones_seen() -> None:
    def total(x: Any) -> Any:
        return x * sum(c.weight for c in Base.__subclasses__())

    f = cpu(total)
    assert_same(f(X), total(X))
    assert Base.__subclasses__() == [First]  # no stand-in is left there
    second = type("Second", (Base,), {"weight": 5.0})
    assert_same(f(X), total(X))
    assert second in Base.__subclasses__() and "Base.__subclasses__() is asked while tracing" in str(f.why())


@pytest.mark.usefixtures("refusing")
def test_what_a_cached_function_wraps_is_traced() -> None:
    rate = 2.0

    def read() -> Any:
        return rate

    held = functools.lru_cache(read)

    def function(x: Any) -> Any:
        held.__wrapped__.__closure__[0].cell_contents = 5.0  # type: ignore[attr-defined]
        return x * held()

    with pytest.raises(kg.TraceError, match="cannot assign to the outer function's 'rate'"):
        cpu(function)(X)
    assert rate == 2.0
    with pytest.raises(kg.TraceError, match="from call to call"):
        cpu(lambda x: x * held.cache_info().hits)(X)


@pytest.mark.usefixtures("refusing")
def test_an_attribute_that_is_read_past_its_class_is_refused() -> None:
    FIRST.rate = 2.0  # type: ignore[attr-defined]
    native = object.__getattribute__

    def caught(x: Any) -> Any:
        try:
            return x * [object.__getattribute__(FIRST, n) for n in ("rate",)][0]  # noqa: RUF015
        except AttributeError:
            return x * 7

    for f in (caught, lambda x: x * native(FIRST, "rate"), lambda x: x * type.__getattribute__(type(FIRST), "a")):
        with pytest.raises(kg.TraceError, match=r"test_identities.py:\d+: object.__getattribute__.* write getattr"):
            cpu(f)(X)


def test_texts_that_are_evaluated_see_what_is_outside() -> None:
    def function(x: Any) -> Any:
        k = 2.0  # noqa: F841
        found: dict[str, Any] = {}
        exec("first = ITEMS[0]", None, found)
        return x * eval("k * sum(i for i in ITEMS)") * eval("lambda y: y * ITEMS[-1]")(x) + len(found)

    f = cpu(function)
    for item in (2, 5, 5, 2):
        ITEMS[1] = item
        assert_same(f(X), function(X))


class Thing:
    n = 2.0


THINGS = [Thing()]
WEAK_THINGS = weakref.WeakValueDictionary(k=THINGS[0])


@pytest.mark.filterwarnings("ignore:.*runs in NumPy")
def test_nothing_keeps_what_a_guarded_list_held_where_a_weak_reference_is_caught() -> None:
    """The trace goes on, and what it then reads is not kept alive by what the next calls look at."""

    @kg.kernel_graph(device="cpu")
    def found(x: Any) -> Any:
        try:
            v = WEAK_THINGS["k"].n
        except (LookupError, TypeError):
            v = 7.0
        THINGS[0].last = x
        return x * v

    assert found(np.ones(2)).tolist() == [2.0, 2.0]
    THINGS.clear()
    gc.collect()
    assert not WEAK_THINGS


STEPS = [iter([Thing()])]


@pytest.mark.filterwarnings("ignore:.*runs in NumPy")
@pytest.mark.parametrize("keyword", [False, True])
def test_nothing_keeps_what_a_call_in_numpy_has_read_where_others_refer_to_it_weakly(keyword: bool) -> None:
    def positional(x: Any, thing: Any = None) -> Any:
        return x * thing.n * WATCHED[thing]

    def named(x: Any, *, thing: Any = None) -> Any:
        return x * HELD[0].n * next(STEPS[0]).n * WATCHED[thing]

    function: Any = named if keyword else positional
    WATCHED: weakref.WeakKeyDictionary[Thing, float] = weakref.WeakKeyDictionary()
    HELD = [Thing()]
    STEPS[0] = iter([Thing()] * 3)
    f = kg.kernel_graph(function, device="cpu")
    for _ in range(3):
        thing = Thing()
        WATCHED[thing] = WATCHED[HELD[0]] = 3.0
        function.__defaults__, function.__kwdefaults__ = (None, {"thing": thing}) if keyword else ((thing,), None)
        del thing
        assert f(X).tolist() == (X * 6.0 * (2.0 if keyword else 1.0)).tolist()
        HELD[0] = Thing()
    function.__defaults__ = function.__kwdefaults__ = None
    gc.collect()
    assert not WATCHED


@pytest.mark.usefixtures("refusing")
@pytest.mark.parametrize("make", [weakref.ref, weakref.proxy, lambda o: weakref.WeakSet([o])])
def test_weak_references_are_refused(make: Any) -> None:
    held = make(FIRST)
    with pytest.raises(kg.TraceError, match=r"test_identities.py:\d+: held refers to an object weakly"):
        cpu(lambda x: x * bool(held))(X)


OWN = np.ones(3)


@pytest.mark.parametrize(
    "same",
    [
        lambda a, b: a is b,
        lambda a, b: not a is not b,
        lambda a, b: (a is b) is (b is a) is (a is b),
        lambda a, b: a is OWN,
    ],
)
@pytest.mark.filterwarnings("ignore:.*runs in NumPy")
def test_one_array_that_is_given_twice_is_one(same: Any) -> None:
    def f(a: Any, b: Any) -> Any:
        return a * 2 if same(a, b) else a

    traced = kg.kernel_graph(f, device="cpu")
    other, ours = np.ones(3), kg.asarray(np.ones(3))
    for given in ((OWN, OWN), (OWN, other), (other, OWN), (other, np.ones(2)), (other, other)):
        assert_same(traced(*given), f(*given))
    assert_same(traced(ours, ours).numpy(), np.asarray(f(ours, ours)))


def test_what_cannot_be_one_array_is_told_apart_without_its_values() -> None:
    traced = kg.kernel_graph(lambda a, b: a * 2 if a is b else a, device="cpu", untraceable="refuse")
    assert_same(traced(X, np.ones(2)), X)
    with pytest.raises(kg.TraceError, match=r"are one \(`is`\) is not known"):
        traced(X, X + 1)


class Told:
    """One of which equal ones share a trace."""

    def __init__(self, a: int, b: int) -> None:
        self.a, self.b = a, b

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Told) and self.a == other.a

    def __hash__(self) -> int:
        return hash(self.a)


@dataclasses.dataclass(eq=False)
class Node:
    k: float


class Root:
    left: Any
    right: Any
    root: Any = None


KEPT = Node(1.0)
PAIRS: dict[str, Callable[[], Any]] = {
    "list": lambda: [1.0],
    "tuple": lambda: (1.0, "a"),
    "set": lambda: frozenset([1]),
    "told": lambda: Told(1, 2),
    "dataclass": lambda: Node(1.0),
    "dict": lambda: {"a": X},
}
ASKS: list[Callable[[Any, Any], Any]] = [
    lambda a, b: 2.0 if a is b else 3.0,
    lambda a, b: 2.0 if a is not b else 3.0,
    lambda a, b: len({id(a), id(b)}),
    lambda a, b: 2.0 if a is KEPT else 3.0,
]


@pytest.mark.parametrize("ask", ASKS)
@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.filterwarnings("ignore:.*runs in NumPy")
def test_arguments_that_are_one_or_equal_are_told_apart(kind: str, ask: Any) -> None:
    first, second = PAIRS[kind](), PAIRS[kind]()
    traced = cpu(lambda x, a, b: x * ask(a, b))
    for given in ((first, second), (first, first), (second, first), (KEPT, first), (second, second)):
        assert_same(traced(X, *given), X * ask(*given))


@pytest.mark.parametrize(
    "ask",
    [
        lambda s: s.left is s.right,
        lambda s: s.left == s.right,
        lambda s: s.left in [s.right],
        lambda s: s.left is KEPT,
        lambda s: s is Root.root,
    ],
)
@pytest.mark.filterwarnings("ignore:.*runs in NumPy")
def test_objects_that_an_object_holds_are_told_apart(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    traced = type("Kind", (Root,), {"f": cpu(lambda self, x: x * (2 if ask(self) else 3))})
    one, two = traced(), traced()
    for holder in (one, two):
        holder.left, holder.right = Node(1.0), Node(1.0)
    for change in ({}, {"right": one.left}, {"left": KEPT}, {"right": KEPT}, {"right": Node(1.0)}):
        vars(one).update(change)
        for root in (one, two):
            monkeypatch.setattr(Root, "root", root)
            assert_same(one.f(X), X * (2 if ask(one) else 3))


LEVEL = 1


def test_a_number_is_the_one_that_a_name_stands_for() -> None:
    traced = cpu(lambda x, level: x * (2 if level is LEVEL else 3))
    for level in (1, 2, 1):
        assert_same(traced(X, level), X * (2 if level == LEVEL else 3))


@dataclasses.dataclass(order=True)
class Ordered:
    n: int
    k: float


ORDERED = Ordered(2, 2.0)


def test_dataclasses_are_compared_in_a_trace() -> None:
    def made_inside(x: Any) -> Any:
        return x * (2 if Ordered(1, 2.0) == Ordered(1, 2.0) else 3), Ordered(1, 2.0) < Ordered(1, 3.0)

    def from_outside(x: Any) -> Any:
        return x * (2 if Ordered(2, 2.0) == ORDERED else 3), Ordered(1, 2.0) < ORDERED

    def given(x: Any, o: Any) -> Any:
        return x * (2 if o == ORDERED else 3), sorted([o, ORDERED])[0].k

    assert_same(cpu(made_inside)(X), made_inside(X))
    assert_same(cpu(from_outside)(X), from_outside(X))
    f = cpu(given)
    for o in (Ordered(1, 2.0), Ordered(2, 2.0), Ordered(3, 2.0)):
        assert_same(f(X, o), given(X, o))


# what asks for a method whose look-up Python takes for missing where it raises
LOOKED_UP: dict[str, Any] = {
    "__eq__": lambda o: 2 if o == o.other else 3,
    "__ne__": lambda o: 2 if o != o.other else 3,
    "__lt__": lambda o: 2 if o < o.other else 3,
    "__iter__": lambda o: next(iter(o)),
    "__hash__": hash,
    "__repr__": lambda o: len(repr(o)),
}


@pytest.mark.parametrize("name", LOOKED_UP)
def test_a_method_that_compares_by_identity_is_found(name: str) -> None:
    def method(self: Any, other: Any = None) -> Any:
        found = other is self or other is None
        return {"__iter__": iter([found]), "__hash__": 7 + found, "__repr__": "four" * (1 + found)}.get(name, not found)

    kind = type("Kind", (), {name: method, "__module__": __name__, "other": 1.0})
    use = LOOKED_UP[name]

    def function(x: Any) -> Any:
        return x * use(kind())

    assert_same(cpu(function)(X), function(X))


@dataclasses.dataclass(frozen=True, order=True)
class Key:
    n: int


KEY = Key(1)
# what classes hold as it is, compared with what stands for it, or is made in the trace
COMPARED: dict[str, Callable[[Any], Any]] = {
    "item": lambda held: held[1][Key(2)],
    "equal": lambda held: 2 if held[0] == Key(1) == held[0] else 3,
    "global": lambda held: 2 if held[0] == KEY else 3,
    "order": lambda held: 2 if held[0] < Key(2) and Key(2) > held[0] else 3,
    "in": lambda held: 2 if Key(1) in held[2] and Key(1) in held[1] else 3,
    "index": lambda held: held[2].index(Key(2)),
    "made by what it holds": lambda held: 2 if held[3](1) == Key(1) else 3,
    "set": lambda held: len({held[0], Key(1), KEY}),
}


@pytest.mark.parametrize("holder", ["metaclass", "exception", "flags"])
@pytest.mark.parametrize("name", COMPARED)
def test_dataclasses_that_a_class_holds_are_compared(name: str, holder: str) -> None:
    items = [Key(1), {Key(1): 2.0, Key(2): 3.0}, [Key(1), Key(2)], Key]
    owner = classes_that_hold(items)[holder]
    use = COMPARED[name]

    def function(x: Any) -> Any:
        return x * use(owner().held)

    f = cpu(function)
    assert_same(f(X), function(X))
    items[0], items[1] = Key(2), {Key(2): 5.0}
    assert_same(f(X), function(X))
