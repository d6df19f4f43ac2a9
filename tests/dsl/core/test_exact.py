"""Static arguments and keys of dicts that are equal, and yet not the same, have traces of their own."""

from __future__ import annotations

import decimal
import enum
import fractions
import zlib
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelgraph as kg
from kernelgraph.dsl.core.exact import exact_key_of_value
from kernelgraph.dsl.core.pytree import Tree
from kernelgraph.dsl.jit.signature import StaticArgument
from tests.counts import examples


class Order(enum.IntEnum):
    ONE = 1
    ZERO = 0


class Level(enum.IntFlag):
    ONE = 1


class Whole(int):
    pass


class Unit(float):
    def __new__(cls, value: float, name: str) -> Unit:
        self = super().__new__(cls, value)
        self.name = name
        return self

    name: str


@dataclass(frozen=True)
class Config:
    k: Any


@dataclass(frozen=True, slots=True)
class Slotted:
    k: Any


class Loose:
    """Equal by a part of what it holds."""

    def __init__(self, k: Any) -> None:
        self.k = k

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Loose) and bool(self.k == other.k)

    def __hash__(self) -> int:
        return hash(self.k)


Pair = namedtuple("Pair", "a b")

NUMBERS: list[Any] = [
    *(True, 1, 1.0, 1 + 0j, np.int64(1), np.int8(1), np.float32(1), np.float64(1), np.bool_(True)),
    *(False, 0, 0.0, -0.0, 0j, complex(-0.0, 0.0), complex(0.0, -0.0), np.float64(0.0), np.float64(-0.0)),
    *(fractions.Fraction(1), decimal.Decimal(1), decimal.Decimal("1.0"), Order.ONE, Order.ZERO, Level.ONE, Whole(1)),
    *(Unit(1.0, "m"), Unit(1.0, "km"), float("nan"), np.float64("nan"), 2, "1", b"1", None),
]
HOLDERS: list[Callable[[Any], Any]] = [
    lambda x: x,
    lambda x: (x,),
    lambda x: ((2, x), "a"),
    lambda x: frozenset({x}),
    lambda x: (frozenset({(x, x)}),),
    lambda x: Pair(x, 0),
    lambda x: Config(x),
    lambda x: Config((x, Config(x))),
    lambda x: Slotted(x),
    lambda x: Loose(x),
    lambda x: (Loose((x,)),),
]


@pytest.mark.parametrize("number", range(len(HOLDERS)))
def test_equal_values_are_told_apart(number: int) -> None:
    """The form of every value differs from that of every other one, and is that of another one of its kind."""
    hold = HOLDERS[number]
    keep = [(StaticArgument(hold(x)), Tree(dict, (hold(x),), (Tree(None),))) for x in NUMBERS]
    assert len({s for s, _ in keep}) == len({t for _, t in keep}) == len(NUMBERS)
    for x, (static, tree) in zip(NUMBERS, keep, strict=True):
        if hold(x) == hold(x):  # an own __eq__ may say that NaN is another one each time
            assert static == StaticArgument(hold(x)) and tree == Tree(dict, (hold(x),), (Tree(None),))


# no sets of them: NumPy's and Python's numbers cannot all be compared with each other
values = st.recursive(st.sampled_from(NUMBERS), lambda inner: st.lists(inner, max_size=3).map(tuple))


@settings(max_examples=examples(200), deadline=None)
@given(values, values)
def test_values_with_one_form_print_the_same(a: Any, b: Any) -> None:
    if exact_key_of_value(a) == exact_key_of_value(b):
        assert type(a) is type(b) and (repr(a) == repr(b) or isinstance(a, tuple))


def test_ranges_slices_and_what_is_equal_to_itself_alone() -> None:
    assert StaticArgument(range(0, 4, 2)) != StaticArgument(range(0, 3, 2)) and range(0, 4, 2) == range(0, 3, 2)
    assert StaticArgument(range(3)) == StaticArgument(range(3))
    one, other = object(), object()
    assert StaticArgument(one) == StaticArgument(one) != StaticArgument(other)
    assert StaticArgument(len) == StaticArgument(len) != StaticArgument(max) and StaticArgument(int) == StaticArgument(
        int
    ) != StaticArgument(bool)
    with pytest.raises(TypeError):
        StaticArgument([1])
    with pytest.raises(TypeError):
        StaticArgument(([1],))


def seen(k: Any) -> Any:
    """What a function can see of a value."""
    while not isinstance(k, (bool, int, float, complex, np.generic, str, bytes, type(None))):
        if isinstance(k, (tuple, frozenset)):
            k = next(iter(k))
        elif hasattr(k, "k"):
            k = k.k
        else:
            break
    return type(k), str(k)


@pytest.mark.parametrize("number", [0, 1, 3, 6, 8, 9])
def test_calls_see_their_own_static_argument_and_keys(number: int) -> None:
    def mark(k: Any) -> float:
        return float(zlib.crc32(repr(seen(k)).encode()))

    def static(x: Any, k: Any) -> Any:
        return x + mark(k)

    def keys(x: Any, d: dict[Any, Any]) -> Any:
        return x + mark(next(iter(d)))

    by_value = kg.kernel_graph(static, static_argnames="k", device="cpu")
    by_key = kg.kernel_graph(keys, device="cpu")
    x = np.zeros(2)
    for _ in range(2):
        for value in NUMBERS[:20:2]:
            k = HOLDERS[number](value)
            assert np.asarray(by_value(x, k)).tolist() == static(x, k).tolist()
            assert np.asarray(by_key(x, {k: 0})).tolist() == keys(x, {k: 0}).tolist()


def test_a_static_argument_that_has_changed_is_another_one() -> None:
    settings_ = Loose(1)
    f = kg.kernel_graph(lambda x, s: x * s.k, static_argnames="s", device="cpu")
    assert np.asarray(f(np.ones(2), settings_)).tolist() == [1, 1]
    settings_.k = 1.5
    assert np.asarray(f(np.ones(2), settings_)).tolist() == [1.5, 1.5]
