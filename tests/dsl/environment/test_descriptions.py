"""What functions say of themselves and what libraries keep: watched where traced code asks, or read at each call."""

from __future__ import annotations

import collections
import contextvars
import ctypes
import dataclasses
import decimal
import enum
import functools
import inspect
import mmap
import random
import typing
from collections.abc import Callable, Iterator
from typing import Any, ClassVar
from xml.etree import ElementTree

import numpy as np
import pytest

import kernelgraph as kg
from tests.dsl.core.test_errors import refused
from tests.dsl.environment.test_world_changes import X, check_changes
from tests.dsl.world_objects import cpu


class Kind:
    def method(self, a: int) -> int:
        """One."""
        return a


def helper(a: int) -> int:
    """Two."""
    return a


def other(a: int, b: int = 2) -> int:
    return a * b


@functools.wraps(helper)
def wrapped(a: int) -> int:
    return helper(a)


@dataclasses.dataclass
class Pair:
    a: Any
    b: int = 1


READS: dict[str, Callable[[Any, Any], Any]] = {
    "__name__": lambda x, h: x * len(h.__name__),
    "__qualname__": lambda x, h: x * len(h.__qualname__),
    "__module__": lambda x, h: x * len(h.__module__),
    "__doc__": lambda x, h: x * len(h.__doc__ or ""),
    "__annotations__": lambda x, h: x * len(h.__annotations__) + ("b" in h.__annotations__),
    "__defaults__": lambda x, h: x * len(h.__defaults__ or ()),
    "__code__": lambda x, h: x * h.__code__.co_argcount,
    "getattr": lambda x, h: x * len(getattr(h, "__name__")),  # noqa: B009
}
NEW = {"__annotations__": {"a": int, "b": Kind, "c": int}, "__defaults__": (1,), "__code__": other.__code__}


@pytest.mark.parametrize("name", [*READS][:-1])
@pytest.mark.parametrize("way", ["itself", "method", "wrapped", "getattr"])
def test_an_attribute_of_a_function_that_is_read_is_watched(name: str, way: str) -> None:
    holder = {"itself": helper, "method": Kind.method, "wrapped": wrapped, "getattr": helper}[way]
    read = READS["getattr" if way == "getattr" and name == "__name__" else name]
    before = getattr(holder, name)
    try:
        check_changes(lambda x: read(x, holder), (lambda: setattr(holder, name, NEW.get(name, "another text")),))
    finally:
        setattr(holder, name, before)


def test_annotations_name_classes_as_traced_code_knows_them() -> None:
    def annotated(a: Any) -> Any:
        return a

    annotated.__annotations__["a"] = Kind
    check_changes(
        lambda x: x * (2 if annotated.__annotations__["a"] is Kind else 3),
        (lambda: annotated.__annotations__.update(a=int),),
    )


def test_libraries_that_ask_for_annotations_and_texts_are_watched() -> None:
    def described(a: int) -> int:
        """One."""
        return a

    def annotate(value: Any) -> None:
        described.__annotations__["a"] = value

    changes = functools.partial(annotate, float), functools.partial(setattr, described, "__doc__", "Another.")
    check_changes(lambda x: x * len(str(typing.get_type_hints(described)["a"])), changes)
    check_changes(lambda x: x * len(str(inspect.signature(described))), (functools.partial(annotate, int),))
    check_changes(lambda x: x * len(inspect.getdoc(described) or ""), (lambda: setattr(described, "__doc__", "T"),))


@pytest.mark.usefixtures("refusing")
@pytest.mark.parametrize("name", ["__name__", "__doc__", "__annotations__"])
def test_what_a_function_says_of_itself_cannot_be_written(name: str) -> None:
    def function(x: Any) -> Any:
        if name == "__name__":
            helper.__name__ = "new"
        elif name == "__doc__":
            helper.__doc__ = "new"
        else:
            helper.__annotations__ = {}
        return x

    line = function.__code__.co_firstlineno + 2 + 2 * ["__name__", "__doc__", "__annotations__"].index(name)
    before = getattr(helper, name)
    refused(lambda: cpu(function)(X), kg.TraceError, line=line)
    assert getattr(helper, name) is before


@pytest.fixture
def precision() -> Iterator[Any]:
    with decimal.localcontext() as context:
        yield context


THIRD = decimal.Decimal(1)
OWN = decimal.Context(prec=5)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * float(THIRD / 3),
        lambda x: x * float(decimal.Decimal(1) / 3),
        lambda x: x * decimal.getcontext().prec,
        lambda x: x * float(OWN.divide(1, 3)),
    ],
)
def test_the_context_of_decimals_is_watched(precision: Any, function: Any) -> None:
    try:
        check_changes(
            function,
            (
                lambda: setattr(precision, "prec", 4),
                lambda: setattr(OWN, "prec", 6),
                lambda: setattr(precision, "rounding", decimal.ROUND_UP),
                lambda: setattr(precision, "prec", 28),
            ),
        )
    finally:
        OWN.prec = 5


def test_a_context_that_is_changed_and_put_back_is_no_change(precision: Any) -> None:
    def function(x: Any) -> Any:
        with decimal.localcontext() as context:
            context.prec = 3
            return x * float(THIRD / 3)

    check_changes(function, (lambda: setattr(precision, "prec", 4),))


@pytest.mark.usefixtures("refusing")
def test_a_change_of_the_context_is_refused_and_undone(precision: Any) -> None:
    def function(x: Any) -> Any:
        decimal.getcontext().prec = 3
        return x * float(THIRD / 3)

    before = precision.prec
    refused(lambda: cpu(function)(X), kg.TraceError, line=function.__code__.co_firstlineno + 1)
    assert precision.prec == before


@pytest.mark.usefixtures("refusing")
def test_the_class_of_an_object_that_flags_hold_is_asked_by_type() -> None:
    class Sides(enum.Flag):
        LEFT = 1

    Sides.LEFT.held = Kind()  # type: ignore[attr-defined]

    def by_attribute(x: Any) -> Any:
        return x * (2 if Sides.LEFT.held.__class__ is Kind else 3)  # type: ignore[attr-defined]

    def by_type(x: Any) -> Any:
        return x * (2 if type(Sides.LEFT.held) is Kind else 3)  # type: ignore[attr-defined]

    refused(lambda: cpu(by_attribute)(X), kg.TraceError, line=by_attribute.__code__.co_firstlineno + 1)
    check_changes(by_type, (lambda: setattr(Sides.LEFT, "held", 5.0),))


def test_a_dataclass_in_a_list_of_a_class_of_its_own_is_read() -> None:
    held = collections.UserList([Pair(np.array([True, False]))])

    def replace() -> None:
        held[0] = Pair(np.array([2.0, 3.0]))

    check_changes(lambda x, *, held=held: x * max(vars(held[0])["a"].ravel()), (replace,))


def test_the_mask_of_a_masked_array_is_watched() -> None:
    held = np.ma.array([1.0, 1e20], mask=[False, True])  # what it holds there is what is shown for it
    check_changes(lambda x: x * held.count(), (lambda: setattr(held, "mask", [False, False]),))


class Drawing(random.Random):
    pass


GENERATORS = [np.random.default_rng(3), random.Random(3), Drawing(3)]


@pytest.mark.parametrize("held", GENERATORS, ids=lambda held: type(held).__name__)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_generator_of_random_numbers_is_of_its_class_and_has_its_attributes(held: Any) -> None:
    is_numpys = isinstance(held, np.random.Generator)

    def function(x: Any) -> Any:
        of_class = isinstance(held, np.random.Generator), isinstance(held, random.Random), held is None
        has = hasattr(held, "bit_generator"), hasattr(held, "getrandbits"), hasattr(held, "nothing")
        return x * sum((1 << i) * b for i, b in enumerate((*of_class, *has)))

    def state(x: Any) -> Any:
        values = held.bit_generator.state["state"]["state"] if is_numpys else held.getstate()[1][0]
        return x * (values % 1000)

    check_changes(function, ())
    check_changes(lambda x: x * (2 if type(held) is type(GENERATORS[0]) else 3), ())
    check_changes(state, (lambda: held.random(), lambda: held.random()))


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", ["context", "bytes", "structure", "array", "element"])
def test_what_is_in_an_object_that_cannot_be_seen_is_read_at_each_call(kind: str) -> None:
    class Structure(ctypes.Structure):
        _fields_: ClassVar[Any] = [("a", ctypes.c_double)]

    variable = contextvars.ContextVar("variable", default=1.0)
    context, memory, structure = contextvars.copy_context(), mmap.mmap(-1, 4), Structure(2.0)
    array, element = (ctypes.c_double * 2)(1, 2), ElementTree.Element("a", {"k": "2"})
    cases: dict[str, tuple[Callable[[Any], Any], Callable[[], Any]]] = {
        "context": (lambda x: x * context.run(variable.get), lambda: context.run(variable.set, 3.0)),
        "bytes": (lambda x: x * memory[0], lambda: memory.__setitem__(0, 3)),
        "structure": (lambda x: x * structure.a, lambda: setattr(structure, "a", 3.0)),
        "array": (lambda x: x * array[0], lambda: array.__setitem__(0, 3.0)),
        "element": (lambda x: x * float(element.get("k") or 0), lambda: element.set("k", "3")),
    }
    function, change = cases[kind]
    check_changes(function, (change,))
