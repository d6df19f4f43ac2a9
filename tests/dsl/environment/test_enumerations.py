"""Enumerations outside of a traced function are read as Python reads them, and what is in their members is watched."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl.core.object_state import comparable_object_state

X = np.arange(4.0)


class Colour(enum.Enum):
    RED = 2.0
    BLUE = 3.0


class Order(enum.IntEnum):
    A = 1
    B = 2


class Side(enum.Flag):
    LEFT = 1
    RIGHT = 2


class Name(enum.StrEnum):
    X = "x"
    Y = "y"


class Planet(enum.Enum):
    EARTH = (6.0, 2.0)
    MARS = (1.0, 1.0)

    def __init__(self, mass: float, radius: float) -> None:
        self.mass, self.radius = mass, radius

    @property
    def gravity(self) -> float:
        return self.mass / self.radius**2


READERS = (
    lambda x: x * Colour.RED.value,
    lambda x: x * Colour["BLUE"].value + len(Colour),
    lambda x: x * sum(c.value for c in Colour),
    lambda x: x * Colour(3.0).value,
    lambda x: x * Order.B + Order(1),
    lambda x: x * 2 if (Side.LEFT | Side.RIGHT) & Side.RIGHT else x,
    lambda x: x * (~Side.LEFT).value + (Side.LEFT ^ Side.LEFT).value,
    lambda x: x * {"x": 2, "y": 3}[Name.Y],
    lambda x: x * Planet.EARTH.gravity,
)


@pytest.mark.parametrize("number", range(len(READERS)))
def test_an_enumeration_is_read(number: int) -> None:
    np.testing.assert_array_equal(kg.kernel_graph(READERS[number], device="cpu")(X), READERS[number](X))


@pytest.mark.parametrize("kind", [Colour, Order, Side, Name, Planet])
def test_a_state_does_not_depend_on_where_objects_lie(kind: Any) -> None:
    """What is made only to be looked at may get the place of what was looked at before."""
    kept: list[Any] = []
    then = comparable_object_state(kind, kept)
    for _ in range(50):
        junk = [object() for _ in range(7)]
        assert comparable_object_state(kind) == then
        kept.append(junk)


def test_what_a_member_is_given_later_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    traced = kg.kernel_graph(lambda x: x * Planet.EARTH.gravity, device="cpu")
    np.testing.assert_array_equal(traced(X), X * 1.5)
    monkeypatch.setattr(Planet.EARTH, "mass", 8.0)
    np.testing.assert_array_equal(traced(X), X * 2)


@pytest.mark.usefixtures("refusing")
def test_a_write_to_a_member_is_refused() -> None:
    def function(x: Any) -> Any:
        Planet.MARS.mass = 4.0
        return x * 2

    with pytest.raises(kg.KernelGraphError, match="cannot change"):
        kg.kernel_graph(function, device="cpu")(X)
    assert Planet.MARS.mass == 1.0


@pytest.mark.usefixtures("refusing")
def test_a_slot_that_was_empty_is_so_after_a_refusal() -> None:
    class Slotted:
        __slots__ = ("a",)

    held = Slotted()
    kinds = enum.Enum("Kinds", {"A": (held, 0)})

    def function(x: Any) -> Any:
        next(iter(kinds)).value[0].a = 1
        return x * 2

    with pytest.raises(kg.TraceError, match="cannot change"):
        kg.kernel_graph(function, device="cpu")(X)
    assert not hasattr(held, "a")
