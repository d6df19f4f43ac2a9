"""What a function does after a refusal that it caught, or writes past the stand-ins, leaves nothing behind."""

from __future__ import annotations

import contextlib
import enum
import functools
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg

X = np.arange(3.0)
SHELF = [1.0]


class Meta(type):
    scale = 2.0


class Thing(metaclass=Meta):
    width = 3.0


class First:
    def get(self) -> float:
        return 2.0


class Second:
    def get(self) -> float:
        return 5.0


class Heir(First):
    pass


HEIR = Heir()
DOUBLE: Any = functools.partial(lambda v=1.0: v, v=2.0)
Colour: Any = enum.Enum("Colour", {"RED": ([2.0], 0)})
NUMBER = np.array(2.5)


def float_of(x: Any) -> Any:
    try:
        return x * float(x[0])
    except TypeError:
        return x * 7


def append(x: Any) -> Any:
    with contextlib.suppress(Exception):
        SHELF.append(4.0)
    return x * len(SHELF)


def append_then_fail(x: Any) -> Any:
    with contextlib.suppress(Exception):
        SHELF.append(4.0)
    raise KeyError("later")


def clear_keywords(x: Any) -> Any:
    DOUBLE.keywords.clear()
    return x * DOUBLE()


def write_metaclass(x: Any) -> Any:
    Meta.scale = 9.0
    return x * Thing.scale


def write_member(x: Any) -> Any:
    Colour.RED.value[0].append(x)
    return x * 2


def write_value(x: Any) -> Any:
    Colour.RED._value_ = (x, 0)
    return x * 2


REFUSED = [append, append_then_fail, clear_keywords, write_metaclass, write_member, write_value]


@pytest.mark.usefixtures("refusing")
@pytest.mark.parametrize("function", REFUSED, ids=lambda f: f.__name__)
def test_the_call_is_refused_and_nothing_is_written(function: Any) -> None:
    with pytest.raises(kg.TraceError):
        kg.kernel_graph(function, device="cpu")(X)
    assert SHELF == [1.0] and Meta.scale == 2.0 and DOUBLE.keywords == {"v": 2.0}
    assert Colour.RED.value == ([2.0], 0)


def test_a_number_that_is_asked_for_in_a_try_is_read() -> None:
    assert np.array_equal(kg.kernel_graph(float_of, device="cpu")(X), float_of(X))


def test_what_numpy_refuses_too_may_be_caught() -> None:
    def function(x: Any) -> Any:
        try:
            return {x: 1}[x]
        except TypeError:
            return x * 7

    assert np.array_equal(kg.kernel_graph(function, device="cpu")(X), function(X))


def test_other_bases_are_seen() -> None:
    f = kg.kernel_graph(lambda x: x * HEIR.get(), device="cpu")
    assert np.array_equal(f(X), X * 2)
    Heir.__bases__ = (Second,)
    assert np.array_equal(f(X), X * 5)


def test_the_text_of_a_number_outside_is_its_own() -> None:
    f = kg.kernel_graph(lambda x: x * len(f"{NUMBER}") + len(str(NUMBER)), device="cpu")
    assert np.array_equal(f(X), X * 3 + 3)
    NUMBER[()] = 2.25
    try:
        assert np.array_equal(f(X), X * 4 + 4)
    finally:
        NUMBER[()] = 2.5


def test_the_names_of_a_class_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    f = kg.kernel_graph(lambda x: x * Thing.__dict__["width"], device="cpu")
    assert np.array_equal(f(X), X * 3)
    monkeypatch.setattr(Thing, "width", 4.0)
    assert np.array_equal(f(X), X * 4)
