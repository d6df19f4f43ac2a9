"""What is in objects that traced code sees as they are is compared in full; odd classes of the user's stay odd."""

from __future__ import annotations

import copy
import dataclasses
import enum
import functools
import itertools
import types
import weakref
from collections import Counter
from contextvars import Context, ContextVar, copy_context
from typing import Any, Generic, TypeVar

import numpy as np
import pytest

import kernelgraph as kg
from tests.dsl.core.test_errors import refused
from tests.dsl.tracing import assert_same
from tests.dsl.world_objects import cpu

X = np.linspace(0.5, 2.0, 3)


class Holder:
    def __init__(self, held: Any) -> None:
        self.held = held

    def get(self) -> Any:
        return self.held[0]


class Made(Holder):
    def get(self) -> Any:
        return super().get()


def held_by_a_closure(held: Any) -> Any:
    return property(lambda self: held[0])


HELD: dict[str, tuple[Any, Any]] = {  # what holds a list in a member of an enumeration, and how it is read
    "namespace": (lambda held: types.SimpleNamespace(held=held), lambda member: member.held[0]),
    "method": (lambda held: Holder(held).get, lambda member: member()),
    "property": (held_by_a_closure, lambda member: member.fget(None)),
    "static method": (lambda held: staticmethod(lambda: held[0]), lambda member: member()),
    "cached function": (lambda held: functools.lru_cache(lambda: held), lambda member: member.__wrapped__()[0]),
}


@pytest.mark.parametrize("name", HELD)
def test_what_is_in_a_member_of_an_enumeration_is_seen(name: str) -> None:
    make, read = HELD[name]
    held: Any = [2.0, 1.0]
    kinds: Any = enum.Enum("kinds", {"A": (make(held), 0)})

    def function(x: Any) -> Any:
        return x * read(kinds.A.value[0])

    f = cpu(function)
    for k in (2, 3, 5):
        held[0] = k
        assert_same(f(X), function(X))


@pytest.mark.usefixtures("refusing")
def test_what_a_metaclass_holds_is_not_written() -> None:
    class Meta(type):
        space = types.SimpleNamespace(a=2.0)

    class Config(metaclass=Meta):
        pass

    def function(x: Any) -> Any:
        type(Config).space.a = 5.0
        return x * 2

    with pytest.raises(kg.KernelGraphError, match="no trace follows"):
        cpu(function)(X)
    assert Meta.space.a == 2.0


@pytest.mark.usefixtures("refusing")
def test_a_class_is_not_written_past_its_own_way() -> None:
    class Config:
        a = 2.0

    def function(x: Any) -> Any:
        type.__setattr__(Config, "a", 3.0)
        return x

    def deleting(x: Any) -> Any:
        type.__delattr__(Config, "a")
        return x

    refused(lambda: cpu(function)(X), kg.TraceError, "Config.a", line=function.__code__.co_firstlineno + 1)
    refused(lambda: cpu(deleting)(X), kg.TraceError, "Config.a", line=deleting.__code__.co_firstlineno + 1)
    assert Config.a == 2.0


def test_super_of_another_class_is_no_end_of_an_iterator() -> None:
    table: dict[str, Any] = {"k": 4.0}

    def function(x: Any) -> Any:
        return x * Made.get(table["k"])

    for f in (function, cpu(function)):
        with pytest.raises(TypeError, match="an instance or subtype"):
            f(X)


class AnswersAll:
    def __getattr__(self, name: str) -> Any:
        return 8.5


class AnswersNone:
    def __getattr__(self, name: str) -> Any:
        return {}[name]


def test_an_argument_that_answers_to_every_name_is_no_array() -> None:
    module = types.ModuleType("module")
    module.__getattr__ = lambda name: 8.5  # type: ignore[method-assign]

    def function(x: Any, o: Any) -> Any:
        return x * o.a

    for o in (AnswersAll(), module):
        assert_same(cpu(function)(X, o), function(X, o))
    for f in (function, cpu(function)):
        with pytest.raises(KeyError):
            f(X, AnswersNone())


def test_an_attribute_whose_text_cannot_be_made() -> None:
    class Model:
        def __init__(self) -> None:
            self.counts = Counter({"k": np.ones((2, 3)), "j": 1})  # compares its counts for its text

        def f(self, x: Any) -> Any:
            return x * self.counts["k"]

    f = cpu(Model.f)
    assert_same(f(Model(), X), Model().f(X))
    assert "traced for" in f.why()


def test_a_key_whose_hash_has_changed() -> None:
    class Key:
        number = 1

        def __hash__(self) -> int:
            return self.number

    class Table(dict[Any, Any]):
        pass

    def reader(kinds: Any, table: Any) -> Any:
        return lambda x: x * next(iter(kinds.A.value[0].values()))[0] * len(table)

    key = Key()
    for table in ({key: [2.0]}, Table({key: [2.0]})):
        function = reader(enum.Enum("kinds", {"A": (table, 0)}), table)
        f = cpu(function)
        assert_same(f(X), function(X))
        Key.number += 1
        assert_same(f(X), function(X))
        next(iter(table.values()))[0] = 3.0
        assert_same(f(X), function(X))


def test_an_array_is_no_dtype_and_a_bool_no_length() -> None:
    def typed(x: Any, v: Any) -> Any:
        return np.zeros(2, v) + x[0]

    def shaped(x: Any, v: Any) -> Any:
        return x[0] + np.zeros((v, 2))

    def reshaped(x: Any, v: Any) -> Any:
        return x.reshape(v, 3)

    for function, v in ((typed, X), (shaped, True), (reshaped, True)):
        with pytest.raises(TypeError):
            function(X, v)
        refused(lambda: cpu(function)(X, v), kg.DTypeError, line=function.__code__.co_firstlineno + 1)  # noqa: B023
    assert_same(cpu(lambda x, v: np.tile(x, v))(X, True), X)


def with_keyword(k: Any) -> Any:
    def read(*, v: Any = k) -> Any:
        return v

    return read


def test_defaults_that_come_later_are_seen() -> None:
    keyword, place = with_keyword(2.0), lambda v: v

    def function(x: Any) -> Any:
        try:
            return x * keyword()
        except TypeError:
            return x * 7

    def other(x: Any) -> Any:
        try:
            return x * place()  # type: ignore[call-arg]
        except TypeError:
            return x * 7

    f, g = cpu(function), cpu(other)
    for defaults in (None, {"v": 3.0}, None, {"v": 4}):
        keyword.__kwdefaults__ = defaults
        place.__defaults__ = tuple(defaults.values()) if defaults else None
        for _ in range(2):
            assert_same(f(X), function(X))
            assert_same(g(X), other(X))


def scale(x: Any) -> Any:
    return x * 2


class Scaled:
    scale = scale


SCALED = Scaled()


@pytest.mark.usefixtures("refusing")
def test_a_function_in_a_class_is_not_written() -> None:
    def of_class(x: Any) -> Any:
        Scaled.scale.k = 3
        return x

    def of_method(x: Any) -> Any:
        SCALED.scale.__func__.k = 3
        return x

    for function in (of_class, of_method):
        refused(lambda: cpu(function)(X), kg.TraceError, "'k'", line=function.__code__.co_firstlineno + 1)  # noqa: B023
    assert not vars(scale)


class Shadowed:
    def __init__(self) -> None:
        self.held = 2.0

    @property
    def a(self) -> Any:
        return self.held

    @a.setter
    def a(self, value: Any) -> None:
        self.held = value

    def f(self, x: Any) -> Any:
        return x * self.a


def test_an_attribute_behind_a_property() -> None:
    model: Any = type("Kind", (Shadowed,), {"f": cpu(Shadowed.f)})()
    for _ in range(2):
        assert_same(model.f(X), X * 2)
        vars(model)["a"] = 5.5


@pytest.mark.usefixtures("refusing")
def test_a_class_with_a_way_of_its_own_is_refused_within_self() -> None:
    @dataclasses.dataclass
    class Odd:
        a: Any

        def __getattribute__(self, name: str) -> Any:
            return 9.5 if name == "a" else object.__getattribute__(self, name)

    class Model:
        def __init__(self) -> None:
            self.r = Odd((1.0, 2.0))

        def f(self, x: Any) -> Any:
            return x * self.r.__dict__.get("a")[0]

    model: Any = type("Kind", (Model,), {"f": cpu(Model.f)})()
    refused(lambda: model.f(X), kg.KernelGraphError, "__getattribute__")


@pytest.mark.parametrize("make", [lambda k: {k: 1}, lambda k: {k}, lambda k: frozenset({k}), lambda k: ({k: {k}},)])
def test_keys_and_members_that_are_equal_are_told_apart(make: Any) -> None:
    held: Any = None

    def kind_of(holder: Any) -> str:
        return kind_of(next(iter(holder))) if isinstance(holder, (dict, set, frozenset, tuple)) else repr(holder)

    def function(x: Any) -> Any:
        return x * {"1": 2, "1.0": 3, "True": 4, "(1+0j)": 5, "np.int64(1)": 6}[kind_of(held)]

    f = cpu(function)
    for held in (1, 1.0, True, 1 + 0j, np.int64(1), 1):
        held = make(held)
        assert_same(f(X), function(X))


class Meta(type):
    held: Any = None


class OfMeta(metaclass=Meta):
    pass


@pytest.mark.parametrize("place", ["metaclass", "global"])
def test_a_set_from_outside_is_returned_itself(place: str) -> None:
    held: Any = None

    def function(x: Any) -> Any:
        return x, (OfMeta.held if place == "metaclass" else held)

    f = cpu(function)
    for made in ({1}, set(), {1}, {1}):
        held = Meta.held = made
        assert f(X)[1] == function(X)[1] == made
        made.discard(1)
        assert f(X)[1] == set()
        assert f(X)[1] is made


FEWER = set(range(100))
for number in range(100):
    if number not in (64, 33, 1):
        FEWER.discard(number)

ORDERS: tuple[Any, ...] = (
    list,
    lambda held: [*held.copy()],
    lambda held: [*copy.copy(held)],
    lambda held: [*copy.deepcopy(held)],
    lambda held: [*set(held)],
    lambda held: [*(held | {16})],
    lambda held: [held.copy().pop()],
    lambda held: [*dict.fromkeys(held)],
)


@pytest.mark.parametrize("number", range(len(ORDERS)))
def test_a_set_keeps_its_order(number: int) -> None:
    for held in (FEWER, {16, 0, 1, 2, 3}, {f"{i}" for i in range(40)}):

        def function(x: Any) -> Any:
            return x, ORDERS[number](KEPT[0])

        KEPT[:] = [held]
        assert cpu(function)(X)[1] == function(X)[1]


KEPT: list[Any] = []


class Members(set[Any]):
    pass


HOLDERS = [Holder(i) for i in range(20)]
OBJECTS = {  # sets that lie by the identities of what is in them, or by what was once in them
    "set": set(HOLDERS),
    "frozen set": frozenset(HOLDERS),
    "of a class": Members(HOLDERS),
}
FEWER_MEMBERS: Any = Members(range(100))
FEWER_MEMBERS.difference_update(range(2, 64), range(65, 100), (0,))
OBJECTS["fewer"] = FEWER_MEMBERS


@pytest.mark.parametrize("name", OBJECTS)
def test_a_set_of_objects_keeps_its_order(name: str) -> None:
    def function(x: Any) -> Any:
        held = OBJECTS[name]
        ways = [held, held.copy(), set(held), held | {1}, held - {2}, {*held}]
        kinds = type(held) is frozenset, isinstance(held, Members), hash(frozenset(held)) == hash(frozenset([*held]))
        return x, [[getattr(item, "held", item) for item in way] for way in ways], kinds

    assert cpu(function)(X)[1:] == function(X)[1:]


def test_a_frozen_set_of_objects_is_returned_as_it_is() -> None:
    held = frozenset(HOLDERS)
    assert cpu(lambda x: (x, held))(X)[1] is held


@pytest.mark.usefixtures("refusing")
@pytest.mark.parametrize("before", [2.0, None])
def test_a_context_variable_is_put_back(before: float | None) -> None:
    variable: ContextVar[Any] = ContextVar("variable", default=3.0)
    if before is not None:
        variable.set(before)
    kinds: Any = enum.Enum("kinds", {"A": (variable, 0)})

    def function(x: Any) -> Any:
        found = x * kinds.A.value[0].get()
        kinds.A.value[0].set(x)
        return found

    with pytest.raises(kg.TraceError, match="no trace follows"):
        cpu(function)(X)
    assert variable.get() == (before or 3.0)


@pytest.mark.usefixtures("refusing")
def test_a_context_variable_that_gets_a_value_is_refused() -> None:
    variable: ContextVar[Any] = ContextVar("unset")
    kinds: Any = enum.Enum("kinds", {"A": (variable, 0)})

    def function(x: Any) -> Any:
        kinds.A.value[0].set(None)
        return x

    with pytest.raises(kg.TraceError, match="no trace follows"):
        cpu(function)(X)


class Lazy:
    @functools.cached_property
    def k(self) -> Any:
        return None


def test_a_cached_property_that_is_none() -> None:
    lazy = Lazy()
    with pytest.raises(TypeError):
        cpu(lambda x: x * lazy.k)(X)
    assert vars(lazy) == {"k": None}  # as Python keeps it


class Bound:
    k = 2.0

    @functools.lru_cache  # noqa: B019
    def cached(self) -> Any:
        return self.k

    @functools.cached_property
    def lazy(self) -> Any:
        return self.k

    def times(self, k: Any) -> Any:
        return self.k * k

    twice = functools.partialmethod(times, 2.0)


class Binder(Bound):
    k = 3.0
    cached = lazy = twice = None  # type: ignore[assignment]

    def read(self, name: str) -> Any:
        found = getattr(super(), name)
        return found if name == "lazy" else found()


@pytest.mark.parametrize("name", ["cached", "lazy", "twice"])
def test_super_binds_whatever_it_finds(name: str) -> None:
    binder = Binder()
    own = Binder()  # the plain function's
    f = cpu(lambda x: x * binder.read(name))
    for k in (3.0, 5.0):
        binder.k = own.k = k
        assert_same(f(X), X * own.read(name))
        assert vars(binder) == vars(own)


def test_what_a_dispatching_function_of_a_metaclass_chooses_from_is_seen() -> None:
    held = np.array([2.0, 3.0])

    class Meta(type):
        found = functools.singledispatch(lambda i: 7.0)

    Meta.found.register(int, lambda i: held)

    def f(x: Any) -> Any:
        return x * Meta.found(1)[0]  # type: ignore[index]

    g = cpu(f)
    for value in (2.0, 5.0):
        held[0] = value
        assert_same(g(X), f(X))


class ReducesItself:
    def __init__(self, a: float) -> None:
        self.a = a

    def __reduce__(self) -> Any:
        return ReducesItself, (self.a + 1,)


class GivesItsState:
    __slots__ = ("a",)

    def __init__(self, a: float) -> None:
        self.a = a

    def __getstate__(self) -> Any:
        return self.a + 1

    def __setstate__(self, state: Any) -> None:
        self.a = state * 2


@dataclasses.dataclass(frozen=True, slots=True)
class FrozenWithSlots:  # dataclasses give it a __getstate__
    a: float


@pytest.mark.parametrize("kind", [ReducesItself, GivesItsState, FrozenWithSlots])
@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy])
def test_a_copy_by_an_objects_own_state(kind: Any, way: Any) -> None:
    held = kind(2.0)
    assert_same(cpu(lambda x: x * way(held).a)(X), X * way(held).a)


class Referred:
    def __init__(self, a: Any) -> None:
        self.a = a

    def put(self, a: Any) -> None:
        self.a = a


def chained(held: Any) -> Exception:
    error = KeyError()
    error.__cause__ = ValueError(held)
    return error


def context_with(held: Any) -> Any:
    def hold() -> Any:
        variable.set(held)
        return copy_context()

    variable: ContextVar[Any] = ContextVar("variable")
    return Context().run(hold)


# how a class holds an object, and how a function reaches that
REACHED: dict[str, tuple[Any, Any]] = {
    "weak reference": (weakref.ref, lambda h: h()),
    "weak proxy": (weakref.proxy, lambda h: h),
    "weak method": (lambda held: weakref.WeakMethod(held.put), lambda h: h().__self__),
    "weak values": (lambda held: weakref.WeakValueDictionary(k=held), lambda h: h["k"]),
    "weak keys": (lambda held: weakref.WeakKeyDictionary({held: 1}), lambda h: next(iter(h))),
    "weak set": (lambda held: weakref.WeakSet([held]), lambda h: next(iter(h))),
    "list iterator": (lambda held: iter([held] * 9), next),
    "generator": (lambda held: (held for _ in range(9)), next),
    "map": (lambda held: map(lambda _: held, range(9)), next),
    "callable iterator": (lambda held: iter(lambda: held, None), next),
    "context": (context_with, lambda h: next(iter(h.values()))),
    "cause": (chained, lambda h: h.__cause__.args[0]),
}


def classes_that_hold(value: Any) -> dict[str, Any]:
    """What has no stand-in, and holds the value under the name `held`."""

    class Meta(type):
        held = value

    class Config(metaclass=Meta):
        pass

    class Failed(Exception):
        held = value

    class Flags(enum.Flag):
        A = 1

    Flags.held = value  # type: ignore[attr-defined]
    return {"metaclass": lambda: type(Config), "exception": lambda: Failed, "flags": lambda: Flags}


@pytest.mark.usefixtures("refusing")
@pytest.mark.parametrize("holder", ["metaclass", "exception", "flags"])
@pytest.mark.parametrize("name", REACHED)
def test_what_a_class_leads_to_is_not_written(name: str, holder: str) -> None:
    make, reach = REACHED[name]
    kept = Referred(2.0)
    owner = classes_that_hold(make(kept))[holder]

    def function(x: Any) -> Any:
        found = reach(owner().held)
        y = x * found.a
        found.a = y
        return y

    refused_whole = (hasattr(make(kept), "__next__") and not name.startswith("weak")) or name == "context"
    words = "no trace follows" if holder == "metaclass" else "holds" if refused_whole else "cannot change"
    line = function.__code__.co_firstlineno + 3 if words == "cannot change" else None
    refused(lambda: cpu(function)(X), kg.TraceError, words, line=line)
    assert kept.a == 2.0


@pytest.mark.parametrize("name", [n for n in REACHED if n.startswith("weak") or n in ("context", "cause")])
def test_what_a_class_leads_to_is_read_anew(name: str) -> None:
    make, reach = REACHED[name]
    kept = Referred(2.0)
    owner = classes_that_hold(make(kept))["metaclass"]

    def function(x: Any) -> Any:
        return x * reach(owner().held).a

    f = cpu(function)
    for k in (2.0, 3.0, 5.0):
        kept.a = k
        assert_same(f(X), function(X))


def test_a_trace_does_not_keep_alive_what_is_in_a_weak_set() -> None:
    first, second = Referred(2.0), Referred(3.0)
    owner = classes_that_hold(weakref.WeakSet([first, second]))["metaclass"]

    def function(x: Any) -> Any:
        return x * len(owner().held)

    f = cpu(function)
    assert_same(f(X), X * 2)
    del second
    assert_same(f(X), X * 1)


def test_a_trace_does_not_keep_alive_what_a_class_refers_to_weakly() -> None:
    kept = Referred(2.0)
    owner = classes_that_hold(weakref.ref(kept))["metaclass"]

    def function(x: Any) -> Any:
        return x * 3 if owner().held() is None else x * owner().held().a

    f = cpu(function)
    assert_same(f(X), X * 2)
    del kept
    assert_same(f(X), X * 3)


@pytest.mark.usefixtures("refusing")
@pytest.mark.parametrize(
    "iterator",
    (
        *(iter([2.0, 3.0]), iter((2.0, 3.0)), iter({2.0: 1, 3.0: 1}), map(float, (2, 3)), reversed([2.0, 3.0])),
        *((float(k) for k in (2, 3)), np.array([2.0, 3.0]).flat, itertools.count(2), filter(None, [2.0, 3.0])),
    ),
    ids=lambda iterator: type(iterator).__name__,
)
def test_an_iterator_in_a_class_gives_its_items_to_no_trace(iterator: Any) -> None:
    owner = classes_that_hold(iterator)["exception"]
    with pytest.raises(kg.TraceError, match="holds a"):
        cpu(lambda x: x * next(owner().held))(X)


@pytest.mark.usefixtures("refusing")
@pytest.mark.parametrize("make", [lambda: reversed([2.0, 3.0]), lambda: iter([2.0, 3.0].pop, 1)])
def test_every_iterator_from_outside_is_refused(make: Any) -> None:
    outside = make()
    refused(lambda: cpu(lambda x: x * next(outside), untraceable="refuse")(X), kg.TraceError, "once, for all")


def test_what_an_exception_class_has_is_read_anew() -> None:
    class Failed(Exception):
        code = 2.0

    class Bare(Exception):
        pass

    def function(x: Any) -> Any:
        return x * Failed.code * getattr(Bare, "code", 1.0)

    f = cpu(function)
    assert_same(f(X), function(X))
    Failed.code = 3.0
    assert_same(f(X), function(X))
    Bare.code = 5.0  # type: ignore[attr-defined]
    assert_same(f(X), function(X))


def test_an_object_is_found_in_a_table_that_a_metaclass_holds() -> None:
    key = Referred(1.0)

    class Meta(type):
        table = {key: 2.0}  # noqa: RUF012

    class Config(metaclass=Meta):
        pass

    def function(x: Any) -> Any:
        return x * type(Config).table[key] * (key in type(Config).table)  # type: ignore[attr-defined]

    assert_same(cpu(function)(X), function(X))


def test_what_a_module_lets_go_ends_after_a_trace() -> None:
    scope: dict[str, Any] = {"__name__": __name__, "__builtins__": __builtins__, "other": Referred(1.0), "scale": 2.0}
    function = types.FunctionType((lambda x: x * scale).__code__, scope)  # type: ignore[name-defined]
    assert_same(cpu(function)(X), X * 2)
    ended = weakref.ref(scope.pop("other"))
    assert ended() is None


def test_a_partial_object_that_takes_another_ones_place_is_read_anew() -> None:
    class Meta(type):
        held: Any = functools.partial(max, 2.0)

    class Config(metaclass=Meta):
        pass

    def function(x: Any) -> Any:
        return x * type(Config).held(1.0)

    f = cpu(function)
    for k in (2.0, 3.0, 5.0):
        Meta.held = functools.partial(max, k)
        assert_same(f(X), function(X))


def test_a_descriptor_of_a_metaclass_is_asked() -> None:
    class Twice:
        factor = 2.0

        def __get__(self, owner: Any, kind: Any) -> Any:
            return owner.n * self.factor

    class Meta(type):
        twice = Twice()

    class Config(metaclass=Meta):
        n = 1.5

    def function(x: Any) -> Any:
        return x * Config.twice

    f = cpu(function)
    assert_same(f(X), function(X))
    Twice.factor = 3.0
    assert_same(f(X), function(X))
    Config.n = 2.5
    assert_same(f(X), function(X))


T = TypeVar("T")


class Generic1(Generic[T]):
    gain = 2.0

    def scaled(self, x: Any) -> Any:
        return x * self.gain


class Subscripted:
    __class_getitem__ = classmethod(types.GenericAlias)
    gain = 2.0


def test_an_alias_of_a_generic_class_is_read_anew() -> None:
    alias, other = Generic1[int], Subscripted[int]  # type: ignore[misc]

    def function(x: Any) -> Any:
        return alias().scaled(x) + alias.gain, other.gain * x, other().gain

    f = cpu(function)
    for k in (2.0, 3.0):
        Generic1.gain, Subscripted.gain = k, k + 1
        assert_same(f(X), function(X))
