"""Every kind of thing that a traced function may read outside: a change is seen, a write is refused."""

from __future__ import annotations

import abc
import argparse
import array
import collections
import copy
import functools
import threading
import types
import typing
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from tests.dsl.tracing import assert_same
from tests.dsl.world_objects import cpu

X = np.linspace(0.5, 2.0, 3)


class Meta(type):
    rate = 2.0

    @property
    def doubled(cls) -> float:
        return 2 * cls.rate


class Descriptor:
    held = 2.0

    def __get__(self, instance: Any, owner: Any) -> float:
        return self.held


class Config(metaclass=Meta):
    k = 2.0
    d = Descriptor()

    def act(self, x: Any) -> Any:
        return x * self.k

    @classmethod
    def made(cls, x: Any) -> Any:
        return x * cls.k

    @functools.cached_property
    def squared(self) -> float:
        return self.k**2


class Slotted:
    __slots__ = ("k",)

    def __init__(self, k: float) -> None:
        self.k = k


class Params(dict[str, Any]):
    pass


class Items(list[Any]):
    def first(self) -> Any:
        return self[0]


class Lazy:
    def __init__(self) -> None:
        self.store = {"k": 2.0}

    def __getattr__(self, name: str) -> Any:
        if name in self.store:
            return self.store[name]
        raise AttributeError(name)


def put(key: Any, value: Any = 5.0) -> Callable[[Any], Any]:
    return lambda o: o.__setitem__(key, value)


def give(name: str, value: Any = 5.0) -> Callable[[Any], Any]:
    return lambda o: setattr(o, name, value)


def helper(k: Any) -> Any:
    return lambda x: x * k


def attributed() -> Any:
    def read(x: Any) -> Any:
        return x * read.k  # type: ignore[attr-defined]

    read.k = 2.0  # type: ignore[attr-defined]
    return read


def variable() -> ContextVar[float]:
    made: ContextVar[float] = ContextVar("made")
    made.set(2.0)
    return made


def fresh_class() -> Any:
    return type("Config", (Config,), {})


def local() -> Any:
    made = threading.local()
    made.k = 2.0
    return made


def view() -> Any:
    held = {"k": 2.0}
    return types.SimpleNamespace(held=held, values=held.values(), proxy=types.MappingProxyType(held))


# (what it is, how it is read, what changes it)
CHANGES: tuple[tuple[Callable[[], Any], Callable[[Any, Any], Any], Callable[[Any], Any]], ...] = (
    (lambda: types.SimpleNamespace(k=2.0), lambda o, x: x * o.k, give("k")),
    (lambda: types.SimpleNamespace(k=2.0), lambda o, x: x * copy.copy(o).k, give("k")),
    (lambda: types.SimpleNamespace(), lambda o, x: x * getattr(o, "k", 1.0), give("k")),
    (lambda: argparse.Namespace(k=2.0), lambda o, x: x * o.k, give("k")),
    (local, lambda o, x: x * o.k, give("k")),
    (lambda: Slotted(2.0), lambda o, x: x * o.k, give("k")),
    (lambda: Slotted(2.0), lambda o, x: x * (o.k if hasattr(o, "k") else 7.0), lambda o: delattr(o, "k")),
    (lambda: collections.OrderedDict(k=2.0), lambda o, x: x * o["k"], put("k")),
    (lambda: collections.OrderedDict(a=2.0, b=3.0), lambda o, x: x * [*o].index("a"), lambda o: o.move_to_end("a")),
    (lambda: collections.defaultdict(float, k=2.0), lambda o, x: x * o["k"], put("k")),
    (lambda: collections.Counter(k=2), lambda o, x: x * o["k"], put("k")),
    (lambda: collections.UserDict(k=2.0), lambda o, x: x * o["k"], put("k")),
    (lambda: collections.ChainMap({}, {"k": 2.0}), lambda o, x: x * o["k"], put("k")),
    (lambda: collections.deque([2.0], maxlen=2), lambda o, x: x * o[0] * o.maxlen, lambda o: o.extend([1.0, 5.0])),
    (lambda: Params(k=2.0), lambda o, x: x * o["k"], put("k")),
    (lambda: Params(k=2.0), lambda o, x: x if "j" in o else -x, put("j")),
    (lambda: Items([2.0]), lambda o, x: x * o.first(), put(0)),
    (lambda: array.array("d", [2.0]), lambda o, x: x * o[0], put(0)),
    (lambda: bytearray(b"ab"), lambda o, x: x * o[0], put(0, 9)),
    (lambda: {2, 3}, lambda o, x: x * len(o), lambda o: o.clear()),
    (lambda: np.array(["a", "b"]), lambda o, x: x * (o == "a").sum(), put(1, "a")),
    (lambda: np.array(["2020-01-01"], "M8[D]"), lambda o, x: x * o.astype(int)[0], put(0, "2021-01-01")),
    (lambda: np.array([Slotted(2.0)], object), lambda o, x: x * o[0].k, lambda o: setattr(o[0], "k", 5.0)),
    (view, lambda o, x: x * next(iter(o.values)) * o.proxy["k"], lambda o: o.held.update(k=5.0)),
    (lambda: Config(), lambda o, x: x * o.k, give("k")),
    (lambda: Config(), lambda o, x: x * vars(o).get("k", 1.0), give("k")),
    (lambda: Config(), lambda o, x: x * o.d, lambda o: setattr(Descriptor, "held", 5.0)),
    (lambda: Config(), lambda o, x: o.act(x), give("act", helper(5.0))),
    (lambda: fresh_class()(), lambda o, x: o.act(x), lambda o: setattr(type(o), "act", lambda self, x: x * 7)),
    (lambda: fresh_class()(), lambda o, x: o.act(x), give("__class__", type("Other", (Config,), {"k": 9.0}))),
    (lambda: fresh_class()(), lambda o, x: x if o else -x, lambda o: setattr(type(o), "__bool__", lambda self: False)),
    (lambda: fresh_class()(), lambda o, x: x * o.squared, lambda o: o.__dict__.update(squared=9.0)),
    (fresh_class, lambda o, x: o.made(x), give("k")),
    (fresh_class, lambda o, x: x * o.doubled, lambda o: setattr(Meta, "rate", 3.0)),
    (fresh_class, lambda o, x: x * {o: 2.0, int: 3.0}[type(o())], lambda o: None),
    (lambda: Lazy(), lambda o, x: x * o.k, lambda o: o.store.update(k=5.0)),
    (lambda: Lazy(), lambda o, x: x * o.k, give("k")),
    (attributed, lambda o, x: o(x), give("k")),
    (lambda: [2.0], lambda o, x: functools.partial(lambda k, x: x * k[0], o)(x), put(0)),
    (lambda: functools.partial(lambda k, x: x * k[0], [2.0]), lambda o, x: o(x), lambda o: put(0)(o.args[0])),
    (lambda: functools.lru_cache(lambda: 2.0), lambda o, x: x * o(), lambda o: None),
    (variable, lambda o, x: x * o.get(), lambda o: o.set(5.0)),
    (lambda: [2.0], lambda o, x: x * o.__len__(), lambda o: o.append(1.0)),
)  # fmt: skip


@pytest.fixture(autouse=True)
def as_it_was() -> typing.Iterator[None]:
    yield
    Descriptor.held, Meta.rate = 2.0, 2.0


@pytest.mark.parametrize("number", range(len(CHANGES)))
def test_a_change_is_seen(number: int) -> None:
    make, read, change = CHANGES[number]
    o = make()
    f = cpu(lambda x: read(o, x))
    for step in (lambda o: None, lambda o: None, change, lambda o: None):
        step(o)
        assert_same(f(X), read(o, X))
    assert f.why().count("traced for") <= 2


class Count:
    n = 0


def counted() -> Any:
    def count() -> int:
        return 1

    count.n = 0  # type: ignore[attr-defined]
    return count


class Plain:
    pass


def plain_in_metaclass() -> Any:
    class Meta(type):
        held = Plain()

    class Holder(metaclass=Meta):
        pass

    return Holder


WRITES: tuple[tuple[Callable[[], Any], Callable[[Any, Any], Any]], ...] = (
    (lambda: Count, lambda o, x: setattr(o, "n", 1)),
    (lambda: Count(), lambda o, x: setattr(o, "n", 1)),
    (lambda: types.SimpleNamespace(n=0), lambda o, x: setattr(o, "n", x)),
    (lambda: Slotted(0.0), lambda o, x: setattr(o, "k", 1.0)),
    (lambda: Slotted(0.0), lambda o, x: object.__setattr__(o, "k", 1.0)),
    (lambda: collections.deque(), lambda o, x: o.append(1)),
    (lambda: collections.defaultdict(int), lambda o, x: o["n"]),
    (lambda: collections.Counter(), lambda o, x: o.update("ab")),
    (lambda: collections.OrderedDict(a=1, b=2), lambda o, x: o.move_to_end("a")),
    (lambda: collections.UserDict(), lambda o, x: o.update(n=1)),
    (lambda: Params(), lambda o, x: o.update(n=x)),
    (lambda: Items(), lambda o, x: o.append(x)),
    (lambda: array.array("d", [1.0]), lambda o, x: o.append(2.0)),
    (lambda: bytearray(b"a"), lambda o, x: o.append(1)),
    (lambda: {1}, lambda o, x: o.add(2)),
    (lambda: [1.0], lambda o, x: list.append(o, 2.0)),
    (lambda: np.array(["a"]), lambda o, x: o.__setitem__(0, "b")),
    (counted, lambda o, x: setattr(o, "n", 1)),
    (lambda: [].append, lambda o, x: o(1)),
    (variable, lambda o, x: o.set(1.0)),
    (lambda: iter([1.0]), lambda o, x: next(o)),
    (plain_in_metaclass, lambda o, x: setattr(type(o).held, "__class__", type("Other", (Plain,), {}))),
)


@pytest.mark.usefixtures("refusing")
@pytest.mark.parametrize("number", range(len(WRITES)))
def test_a_write_is_refused(number: int) -> None:
    make, write = WRITES[number]
    o = make()

    def function(x: Any) -> Any:
        write(o, x)
        return x + 1

    f = cpu(function, untraceable="refuse")
    before = copy.deepcopy(dict(vars(o))) if hasattr(o, "__dict__") and not isinstance(o, type) else repr(o)
    for _ in range(2):
        with pytest.raises(kg.TraceError, match=r"test_world_kinds.py:\d+: "):
            f(X)
    assert (vars(o) if hasattr(o, "__dict__") and not isinstance(o, type) else repr(o)) == before and Count.n == 0


# results


class Whole:
    def __init__(self, a: Any, b: Any) -> None:
        self.a, self.b = a, b


def test_results_that_can_change_are_made_for_each_call() -> None:
    f = cpu(lambda x: ({1, 2}, bytearray(b"a"), collections.deque([x], 3), collections.defaultdict(list, a=x)))
    for _ in range(2):
        found, text, queue, table = f(X)
        assert found == {1, 2} and text == b"a" and queue.maxlen == 3 and table["new"] == []
        assert_same([queue[0], table["a"]], [X, X])
        found.add(3)
        text += b"b"
        queue.append(1)


@pytest.mark.usefixtures("refusing")
def test_objects_of_the_users_classes_are_results() -> None:
    result = cpu(lambda x: Whole(x, [x * 2, 1]))(X)
    assert type(result) is Whole
    assert_same([result.a, result.b], [X, [X * 2, 1]])

    def inside(x: Any) -> Any:
        class Local:
            def __init__(self) -> None:
                self.x = x

        return Local()

    with pytest.raises(kg.TraceError, match="class Local, which holds traced values"):
        cpu(inside)(X)


# classes


class Layer(abc.ABC):
    @abc.abstractmethod
    def run(self) -> float: ...


class Settings(collections.UserDict[str, Any]):
    pass


class Box(typing.Generic[typing.TypeVar("T")]):  # type: ignore[misc]
    def __init__(self, k: float) -> None:
        self.k = k

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.full(3, self.k)


def test_abstract_classes_stay_whole() -> None:
    settings = Settings(k=2.0)
    for _ in range(3):
        assert_same(cpu(lambda x: x * settings["k"] if isinstance(settings, collections.abc.Mapping) else x)(X), X * 2)
        assert not isinstance(type("New", (), {})(), collections.abc.Mapping)
    assert_same(cpu(lambda x: x[0] if isinstance(x, (list, Layer)) else x)(X), X)
    with pytest.raises(TypeError, match="abstract"):
        cpu(lambda x: x * Layer().run())(X)  # type: ignore[abstract]


def test_ordinary_python_on_own_objects() -> None:
    box = Box(2.0)
    for f in (
        lambda x: x * vars(box)["k"],
        lambda x: x * copy.copy(box).k,
        lambda x: x * copy.deepcopy(box).k,
        lambda x: x * {Box: 2.0}[type(box)],
        lambda x: x * Box[float](2.0).k,
        lambda x: x * np.asarray(box),
    ):
        assert_same(cpu(f)(X), f(X))


@pytest.mark.usefixtures("refusing")
def test_an_object_with_a_way_of_its_own_is_refused() -> None:
    class Own:
        def __getattribute__(self, name: str) -> Any:
            return 2.0

    own = Own()
    with pytest.raises(kg.TraceError, match="__getattribute__"):
        cpu(lambda x: x * own.k)(X)


def test_arrays_of_static_arguments_come_after_those_of_the_call() -> None:
    weights = np.array(2.0)

    def held(y: Any) -> Any:
        return y * weights

    assert_same(cpu(lambda g, x: g(x) + x)(held, X), X * 3)


def test_defaults_are_those_that_the_function_has_now() -> None:
    def function(x: Any, k: Any = 2.0, *, j: Any = 1.0) -> Any:
        return x * k + j

    f = cpu(function)
    assert_same(f(X), function(X))
    function.__defaults__ = (3.0,)
    assert_same(f(X), function(X))
    assert function.__kwdefaults__ is not None
    function.__kwdefaults__["j"] = 4.0
    assert_same(f(X), function(X))


CHANGED: Any = None
# what is held, what is computed of it, and changes of it, one after the other
NUMPYS: dict[str, tuple[Any, Any, tuple[Any, ...]]] = {
    "masked array": (
        lambda: np.ma.masked_array([1.0, 2.0, 3.0], [0, 1, 0]),
        lambda x: x * CHANGED.mean(),
        (lambda v: v.__setitem__(0, 50.0), lambda v: v.mask.__setitem__(2, True), lambda v: v.data.__setitem__(0, 4.0)),
    ),
    "poly1d": (lambda: np.poly1d([1.0, 2.0]), lambda x: x * CHANGED(2.0), (lambda v: v.coeffs.__setitem__(0, 9.0),)),
    "polynomial": (
        lambda: np.polynomial.Polynomial([1.0, 2.0]),
        lambda x: x * CHANGED(2.0),
        (lambda v: v.coef.__setitem__(0, 9.0), lambda v: setattr(v, "coef", np.array([3.0, 4.0]))),
    ),
    "vectorize": (
        lambda: np.vectorize(lambda t: t + 1),
        lambda x: x * CHANGED(1.0),
        (lambda v: setattr(v, "pyfunc", lambda t: t + 5),),
    ),
    "record": (
        lambda: np.array([(1.0, 2)], [("p", "f8"), ("q", "i4")])[0],
        lambda x: x * CHANGED["p"],
        (lambda v: v.__setitem__("p", 9.0),),
    ),
    "memoryview": (lambda: memoryview(np.ones(3)), lambda x: x * CHANGED[0], (lambda v: v.__setitem__(0, 5.0),)),
}


@pytest.mark.parametrize("kind", NUMPYS)
def test_what_is_numpys_and_changes_is_read_again(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made, function, changes = NUMPYS[kind]
    held = made()
    monkeypatch.setitem(globals(), "CHANGED", held)
    traced = kg.kernel_graph(function, device="cpu")
    for change in (lambda v: None, *changes, lambda v: None):
        change(held)
        np.testing.assert_array_equal(np.asarray(traced(np.ones(2))), function(np.ones(2)))


def test_functions_that_ask_for_floating_point_errors_run_in_numpy() -> None:
    def function(x: Any, how: str) -> Any:
        try:
            with np.errstate(divide=how, call=lambda *told: called.append(told)):
                return 1 / x
        except FloatingPointError as error:
            return str(error)

    called: list[Any] = []
    traced = kg.kernel_graph(function, device="cpu", static_argnames=("how",))
    assert np.isinf(np.asarray(traced(np.zeros(2), "ignore"))).all()
    with pytest.warns(UserWarning, match=r"np.errstate\(...='raise'\) changes nothing in kernels"):
        assert traced(np.zeros(2), "raise") == "divide by zero encountered in divide"
    assert np.isinf(traced(np.zeros(2), "call")).all() and called == [("divide by zero", 1)]  # a line warns once
    refused = kg.kernel_graph(function, device="cpu", static_argnames=("how",), untraceable="refuse")
    for how in ("raise", "call", "log"):
        with pytest.raises(kg.UnsupportedError, match="changes nothing"):
            refused(np.ones(2), how)


def test_elements_are_not_deleted() -> None:
    def function(x: Any) -> Any:
        del x[0]
        return x

    for call in (function, kg.kernel_graph(function, device="cpu")):
        with pytest.raises(ValueError, match="cannot delete array elements"):
            call(np.ones(2))
