"""A specialisation is chosen by the structure of objects: a table of classes, kinds of fields, uses and changes.

Each case runs a function on new objects beside plain Python on twins of them: results, what the objects hold afterwards
and which objects are one must be the same; an object with equal fields, or with other numbers, is traced no more."""

from __future__ import annotations

import abc
import copy
import dataclasses
import enum
import warnings
from collections.abc import Callable
from functools import cached_property, partialmethod
from types import MethodType, SimpleNamespace
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import pytest

import kernelgraph as kg
from tests.dsl.tracing import assert_same
from tests.dsl.world_objects import cpu

X = np.linspace(0.5, 2.0, 4)
T = TypeVar("T")


class Plain:
    def __init__(self, field: Any) -> None:
        self.field, self.total, self.name, self.history = field, 1.0, "n", [1.0]

    @property
    def shown(self) -> Any:
        return self.field

    def read(self) -> Any:
        return number_of(self.field)


class Derived(Plain):
    kind = "derived"

    def __init__(self, field: Any) -> None:
        super().__init__(field)
        self.more = 2.0

    def read(self) -> Any:
        return super().read() * self.more


class Slots:
    __slots__ = ("field", "history", "kept", "name", "total")
    __init__, shown, read = Plain.__init__, Plain.shown, Plain.read


class SlotsAndDict(Slots):
    def __init__(self, field: Any) -> None:
        super().__init__(field)  # type: ignore[no-untyped-call]
        self.more = 2.0


@dataclasses.dataclass
class Data:
    field: Any
    total: float = 1.0
    name: str = "n"
    history: Any = dataclasses.field(default_factory=lambda: [1.0])
    shown, read = Plain.shown, Plain.read


class OwnEquality(Plain):
    def __eq__(self, other: object) -> bool:
        return isinstance(other, OwnEquality) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)


class OwnLookup(Plain):
    def __getattr__(self, name: str) -> Any:
        if name == "absent":
            return self.total
        raise AttributeError(name)


class Abstract(abc.ABC):
    @abc.abstractmethod
    def read(self) -> Any: ...


class Concrete(Plain, Abstract):
    pass


class Boxed(Plain, Generic[T]):
    pass


CLASSES = (Plain, Derived, Slots, SlotsAndDict, Data, OwnEquality, OwnLookup, Concrete, Boxed, SimpleNamespace)


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Pair(NamedTuple):
    a: Any
    b: Any


class Inner:
    def __init__(self, k: float) -> None:
        self.values, self.k = np.arange(3.0) + k, k

    def scaled(self) -> Any:
        return self.values.sum() * self.k


def twice(x: Any) -> Any:
    return x * 2


def thrice(x: Any) -> Any:
    return x * 3


# a field of a kind, from a number; what traces another time in its place, if anything does
KINDS: dict[str, tuple[Callable[[float], Any], Any]] = {
    "array": (lambda k: np.arange(3.0) + k, np.arange(3, dtype=np.float32)),
    "array of another shape": (lambda k: np.arange(3.0) + k, np.arange(4.0)),
    "float": (lambda k: k, 3),
    "int": (lambda k: int(k), 3.5),
    "complex": (lambda k: 2 + 1j, 2.0),
    "numpy scalar": (np.float32, np.float64(2.0)),
    "bool": (lambda k: True, False),
    "text": (lambda k: "ab", "abc"),
    "nothing": (lambda k: None, 1.0),
    "enum": (lambda k: Colour.RED, Colour.BLUE),
    "function": (lambda k: twice, thrice),
    "class": (lambda k: Inner, Pair),
    "list": (lambda k: [np.arange(3.0) + k, k], [np.arange(3.0)]),
    "dict": (lambda k: {"a": np.arange(3.0) + k, "b": k}, {"a": np.arange(3.0), "c": 1.0}),
    "tuple": (lambda k: (k, np.ones(2) * k), (1.0, 2.0, 3.0)),
    "namedtuple": (lambda k: Pair(k, np.ones(2) * k), Pair(1.0, 2.0)),
    "namedtuple of objects": (lambda k: Pair(Inner(k), {"a": k}), Pair(Inner(1.0), 2.0)),
    "object": (Inner, Pair(1.0, np.ones(2))),
    "objects": (lambda k: [Inner(k), Inner(k + 1)], [Inner(1.0)]),
    "bound method": (lambda k: Inner(k).scaled, None),
    "array of text": (lambda k: np.array(["a", "b"]), np.array(["a", "c"])),
    "array of objects": (lambda k: np.array([None, 1]), np.array([None, 2])),
    "set": (lambda k: {1, 2}, {1, 2, 3}),
    "frozenset": (lambda k: frozenset({1, 2}), frozenset({1})),
}


def number_of(value: Any) -> Any:
    """A number that a field of any kind decides."""
    if value is None or isinstance(value, (str, bool)):
        return 7.0 if value is None else float(len(str(value)))
    if isinstance(value, enum.Enum):
        return 2.0 if value is Colour.RED else 5.0
    if isinstance(value, type):
        return float(len(value.__name__))
    if callable(value):
        return value(3.0) if not isinstance(value, MethodType) else value()
    if isinstance(value, Pair):
        return number_of(value.a) * 3 + number_of(value.b)
    if isinstance(value, (list, tuple)):
        return sum(number_of(v) for v in value) + len(value)
    if isinstance(value, dict):
        return sum(number_of(value[key]) * len(key) for key in value) + ("b" in value)
    if isinstance(value, (set, frozenset)):
        return float(sum(value))
    if isinstance(value, Inner):
        return value.scaled()
    if isinstance(value, np.ndarray) and value.dtype.kind in "UO":
        return float(sum(len(str(v)) for v in value))
    return value.sum() if isinstance(value, np.ndarray) else value * 2


def assign(o: Any, x: Any) -> Any:
    o.total = number_of(o.field) * 2
    o.history.append(o.total)
    return x + o.total


def replace(o: Any, x: Any) -> Any:
    before, o.field = o.field, o.total
    o.total += 1
    o.kept = before
    return x * o.field


USES: dict[str, Callable[[Any, Any], Any]] = {
    "read": lambda o, x: x * number_of(o.field),
    "property": lambda o, x: x * number_of(o.shown if hasattr(o, "shown") else o.field),
    "method": lambda o, x: x * (o.read() if hasattr(o, "read") else number_of(o.field)),
    "by a name that is made": lambda o, x: x * number_of(getattr(o, "".join(("fi", "eld")))),
    "all attributes": lambda o, x: x * sum(len(name) for name in vars(o)) if hasattr(o, "__dict__") else x,
    "copied": lambda o, x: x * number_of(copy.copy(o).field) * number_of(copy.deepcopy(o).field),
    "assigned": assign,
    "replaced": replace,
    "given back": lambda o, x: (o, x * o.total),
    "within a list": lambda o, x: x * number_of(next(p for p in [o] if p is o).field),
}


def made(kind: Any, field: Any) -> Any:
    if kind is SimpleNamespace:
        return SimpleNamespace(field=field, total=1.0, name="n", history=[1.0])
    return kind(field)


def plain(value: Any, known: dict[int, Any] | None = None) -> Any:
    """What is in a value, as nested lists; where an object comes again, which one it is."""
    known = {} if known is None else known
    if isinstance(value, kg.Array):
        return value.numpy()
    if isinstance(value, (np.ndarray, np.generic, enum.Enum, type, int, float, complex, str, type(None))):
        return value if not isinstance(value, np.ndarray) or value.dtype.kind not in "UO" else value.tolist()
    if id(value) in known:
        return ["again", known[id(value)]]
    known[id(value)] = len(known)
    if isinstance(value, dict):
        return [[k, plain(v, known)] for k, v in value.items()]
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *(plain(v, known) for v in value)]
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if isinstance(value, MethodType):
        return [value.__func__.__name__, plain(value.__self__, known)]
    if callable(value) and hasattr(value, "__name__"):
        return value.__name__
    names = [*getattr(value, "__dict__", ()), *(n for b in type(value).__mro__ for n in vars(b).get("__slots__", ()))]
    return [type(value).__name__, *([n, plain(getattr(value, n), known)] for n in names if hasattr(value, n))]


def traces(f: Any) -> int:
    return str(f.why()).count("traced for")


def agree(f: Any, function: Any, make: Callable[[], Any]) -> None:
    mine, its = make(), make()
    found, expected = f(mine, X), function(its, X)
    assert_same(plain([found, mine]), plain([expected, its]))


for value in (*(made(kind, 1.0) for kind in CLASSES), Inner(1.0), Pair(1, 2)):
    copy.copy(value)  # the first copy writes down the slots of a class in the class


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_new_objects_use_the_specialisation_that_is_there(kind: Any, use: str) -> None:
    function = USES[use]
    for name, (field, other) in KINDS.items():
        f = cpu(function)
        for k in (2.0, 2.0, 5.0):
            agree(f, function, lambda k=k, field=field: made(kind, field(k)))
            assert traces(f) == 1, (name, str(f.why()))
        agree(f, function, lambda other=other: made(kind, other))
        if use in ("read", "assigned"):
            assert traces(f) == 2 and "o.field" in str(f.why()).rpartition("differs in")[2], (name, str(f.why()))


def test_numbers_that_decide_are_told_from_values_of_other_types() -> None:
    def function(o: Any, x: Any) -> Any:
        return x * (3.0 if o.field else 2.0)

    f, values = cpu(function), [2**70, np.bool_(True), True, 1, 1.0, np.int8(1), np.float32(2), np.ones(1), 0, -(2**70)]
    for value in [*values, *values]:
        agree(f, function, lambda value=value: Plain(value))


def chain(length: int) -> Plain:
    found = Plain(None)
    for _ in range(length):
        found = Plain(found)
    return found


def nested(length: int) -> list[Any]:
    found: list[Any] = [1.0]
    for _ in range(length):
        found = [found]
    return found


@pytest.mark.parametrize(("make", "length"), [(chain, 150), (chain, 250), (chain, 500), (nested, 150), (nested, 250)])
def test_arguments_that_nest_too_deep_for_a_trace_run_in_numpy(make: Any, length: int) -> None:
    def function(o: Any, x: Any) -> Any:
        while o is not None and type(o) is not float:
            o, x = (o[0] if type(o) is list else o.field), x + 1.0
        return x

    f = cpu(function)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*the arguments nest too deep for a trace")
        for _ in range(2):
            assert_same(f(make(length), X), function(make(length), X))
    if length > 200:
        with pytest.raises(kg.UserError, match=r"test_structures.py:\d+: the arguments nest too deep"):
            kg.kernel_graph(function, device="cpu", untraceable="refuse")(make(length), X)


def test_what_no_code_names_is_no_part_of_it() -> None:
    def function(o: Any, x: Any) -> Any:
        return x * o.field + (o.extra if hasattr(o, "extra") else 0)

    f = cpu(function)
    for n in range(5):  # a text that differs, a history that grows, a generator of random numbers, an iterator
        o = made(Plain, 2.0 + n)
        o.name, o.history, o.random, o.rest = f"n{n}", [1.0] * n, np.random.default_rng(n), iter(())
        if n == 3:
            del o.name
        assert_same(f(o, X), function(o, X))
    assert traces(f) == 1
    for extra in (1.0, 2.0):
        o = made(Plain, 2.0)
        o.extra = extra
        assert_same(f(o, X), function(o, X))
    assert traces(f) == 2 and "o.extra: float, not none" in str(f.why())
    del o.extra
    assert_same(f(o, X), function(o, X))
    assert traces(f) == 2


def test_attributes_that_are_taken_out_and_put_back_keep_the_others() -> None:
    def function(o: Any, x: Any) -> Any:
        before = o.field
        del o.field
        o.field = before * 2
        return x * before

    f = cpu(function)
    for n in range(3):
        agree(f, function, lambda n=n: made(Plain, 2.0 + n))  # type: ignore[misc]
    assert traces(f) == 1


def test_what_helpers_read_by_odd_names_is_read() -> None:
    def helper(o: Any) -> Any:
        return o.__odd__ * o._Plain__hidden + len(o)

    class Sized(Plain):
        def __len__(self) -> int:
            return len(self.texts)

    def function(o: Any, x: Any) -> Any:
        return x * helper(o)

    f = cpu(function)
    for n in range(3):
        o = Sized(2.0)
        o.__odd__, o._Plain__hidden, o.texts = 2.0 + n, 3.0, ["a"] * (1 + n // 2)
        assert_same(f(o, X), function(o, X))
    assert traces(f) == 2


def test_an_attribute_shadows_a_method_and_a_class_attribute() -> None:
    f, function = cpu(USES["method"]), USES["method"]
    for n in range(4):

        def make(n: int = n) -> Any:
            o = made(Derived, 2.0)
            if n > 1:
                o.read = twice_pi
            return o

        agree(f, function, make)
    assert traces(f) == 2
    counted = cpu(lambda o, x: x * len(o.kind))
    for kind in ("derived", "other", "other"):
        o = made(Derived, 2.0)
        vars(o).update({} if kind == "derived" else {"kind": kind})
        assert_same(counted(o, X), X * len(kind))
    assert traces(counted) == 2


def twice_pi() -> float:
    return 6.25


class Partials:
    factor = 2.0

    def __init__(self, k: float) -> None:
        self.values = np.arange(4.0) + k

    def times(self, k: Any, more: Any = 0.0) -> Any:
        return self.values * k + more

    def grow(self, k: Any) -> Any:
        self.values = self.values + k
        return self.values

    @classmethod
    def scaled(cls, k: Any) -> Any:
        return cls.factor * k

    double = partialmethod(times, 2.0, more=X)
    triple = partialmethod(double, more=1.0)
    grown = partialmethod(grow, 3.0)
    of_class = partialmethod(scaled, 4.0)
    of_none = partialmethod(staticmethod(number_of), 5.0)


@pytest.mark.parametrize("name", ["double", "triple", "grown", "of_class", "of_none"])
def test_partial_methods_of_new_objects(name: str) -> None:
    def function(o: Any, x: Any) -> Any:
        return x * getattr(o, name)()

    f = cpu(function)
    for k in (1.0, 2.0, 3.0):
        agree(f, function, lambda k=k: Partials(k))
    assert traces(f) == 1


def test_a_class_attribute_that_changes_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    f = cpu(lambda o, x: x * len(o.kind))
    for text in ("derived", "d", "derived"):
        monkeypatch.setattr(Derived, "kind", text)
        assert_same(f(made(Derived, 2.0), X), X * len(text))


def linked(shape: str) -> Any:
    a, b = Inner(1.0), Inner(2.0)
    root = SimpleNamespace(a=a, b=a if shape == "one" else b, list=[a, b], back=None)
    if shape == "cycle":
        root.back = root
    if shape == "array":
        b.values = a.values
    return root


@pytest.mark.filterwarnings("ignore:.*runs in NumPy")
def test_objects_and_arrays_that_are_one_are_told_apart() -> None:
    def asked(o: Any, x: Any) -> Any:
        return x * (2 if o.a is o.b else 3) * (5 if o.back is o else 7) * (2 if o.list[0] is o.a else 1)

    def written(o: Any, x: Any) -> Any:
        o.a.values = o.a.values + x[:3]
        o.b.k += 1
        o.list[1].values[0] = 9.0
        return o.a.values.sum() + o.b.values.sum()

    for function in (asked, written):
        f = cpu(function)
        for shape in ("two", "one", "two", "cycle", "array", "one", "cycle", "array"):
            agree(f, function, lambda shape=shape: linked(shape))  # type: ignore[misc]
        assert traces(f) <= 4


OUTSIDE = Plain(2.0)
TABLE = {OUTSIDE: 5.0}


@pytest.mark.parametrize(
    "ask",
    [
        lambda o: 2 if o is OUTSIDE else 3,
        lambda o: 2 if o == OUTSIDE else 3,
        lambda o: TABLE.get(o, 1.0),
        lambda o: 2 if o in [OUTSIDE] else 3,
        lambda o: 2 if hash(o) == hash(OUTSIDE) else 3,
        lambda o: 2 if id(o) == id(OUTSIDE) else 3,
        lambda o: len({o, OUTSIDE}),
        lambda o: 2 if repr(o) == repr(OUTSIDE) else 3,
        lambda o: 2 if object.__hash__(o) == hash(OUTSIDE) else 3,
        lambda o: 2 if object.__repr__(o) == repr(OUTSIDE) else 3,
    ],
)
@pytest.mark.filterwarnings("ignore:.*runs in NumPy")
def test_which_object_one_is_stays_known(ask: Any) -> None:
    def read(o: Any, x: Any) -> Any:
        return x * ask(o)

    def changed(o: Any, x: Any) -> Any:
        o.total = ask(o) * 1.0
        return x * o.total

    for function in (read, changed):
        f = cpu(function)
        for o in (Plain(2.0), OUTSIDE, Plain(2.0), OUTSIDE):
            twin = copy.copy(o)
            assert_same(np.asarray(f(o, X)), X * ask(o))
            assert (o.total == ask(o)) if function is changed else (vars(o) == vars(twin))
        OUTSIDE.total = 1.0


class IdentityBySuper(Plain):
    def __hash__(self) -> int:
        return super().__hash__()

    def __repr__(self) -> str:
        return "an " + super().__repr__()


class IdentityByObject(Plain):
    def __hash__(self) -> int:
        return object.__hash__(self)

    def __repr__(self) -> str:
        return "an " + object.__repr__(self)


@pytest.mark.parametrize("kind", [IdentityBySuper, IdentityByObject], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("ask", [hash, repr])
@pytest.mark.filterwarnings("ignore:.*runs in NumPy")
def test_methods_that_ask_python_for_the_identity_have_it(kind: Any, ask: Any) -> None:
    f, objects = cpu(lambda o: ask(o)), [kind(1.0) for _ in range(3)]
    for o in [*objects, *objects]:
        assert f(o) == ask(o)


def test_objects_as_keys_are_themselves() -> None:
    a, b = Inner(1.0), Inner(2.0)
    f = cpu(lambda o, x: x * sum(o.rates[i] * i.k for i in o.items))
    for rates in ({a: 2.0, b: 3.0}, {b: 2.0, a: 3.0}):
        o = SimpleNamespace(items=[a, b], rates=rates)
        assert_same(f(o, X), X * (rates[a] * 1.0 + rates[b] * 2.0))


class Watched:
    def __init__(self, k: float) -> None:
        self.k = k

    def __getattribute__(self, name: str) -> Any:
        return object.__getattribute__(self, name)


@pytest.mark.usefixtures("refusing")
def test_what_decides_on_its_attributes_itself_is_not_opened() -> None:
    f = cpu(lambda o, x: x * o.k)
    with pytest.raises(kg.TraceError, match="__getattribute__ of its own"):
        f(Watched(2.0), X)


COMPUTED: list[str] = []


class Lazy:
    def __init__(self, k: float) -> None:
        self.k = k

    @cached_property
    def squares(self) -> Any:
        return np.arange(3.0) * self.k

    @cached_property
    def noted(self) -> Any:  # which no trace can compute
        COMPUTED.append("noted")
        return np.arange(3.0) * self.k


@pytest.mark.parametrize("name", ["squares", "noted"])
def test_cached_properties_of_new_objects(name: str) -> None:
    def function(o: Any, x: Any) -> Any:
        return x * getattr(o, name).sum()

    f = cpu(function)
    for n in range(4):
        agree(f, function, lambda n=n: Lazy(2.0 + n))  # type: ignore[misc]
    assert traces(f) <= 2


def test_a_method_takes_new_objects_in_one_specialisation() -> None:
    class Model:
        def __init__(self, k: float) -> None:
            self.w, self.steps, self.rule = np.ones(3) * k, 0, Inner(k)

        @kg.kernel_graph(device="cpu")
        def step(self, x: Any, rate: float = 0.5) -> Any:
            self.w -= rate * self.rule.values * x
            self.steps += 1
            return self.w.sum()

    for n in range(4):
        model, w = Model(1.0 + n), np.ones(3) * (1.0 + n)
        for turn in range(3):
            got = model.step(X[:3])
            w = w - 0.5 * (np.arange(3.0) + 1 + n) * X[:3]
            assert_same(np.asarray(got), w.sum())
            assert model.steps == turn + 1
    assert traces(Model.step) == 1


def test_labels_of_a_model_are_its_own() -> None:
    f = cpu(lambda o, x: (o.labels, x * len(o.labels)))
    for _ in range(3):
        o = SimpleNamespace(labels=np.array(["a", "b"]))
        labels, scaled = f(o, X)
        assert labels is o.labels
        assert_same(scaled, X * 2)
    assert traces(f) == 1
