"""Structures come back as they were, and equal ones have one key."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelgraph.dsl.core.pytree import LEAF, flatten, unflatten

Pair = namedtuple("Pair", "left right")


@dataclass(frozen=True)
class Box:
    content: Any
    label: Any = None


leaves = st.integers() | st.none() | st.text(max_size=2)
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.builds(Pair, inner, inner)
        | st.builds(Box, inner, inner)
        | st.dictionaries(st.text(max_size=2), inner, max_size=3)
        | st.dictionaries(st.text(max_size=2), inner, max_size=3).map(OrderedDict)
    ),
    max_leaves=12,
)


@given(trees)
@settings(suppress_health_check=[HealthCheck.too_slow])  # on a busy machine
def test_round_trip(value: Any) -> None:
    found: list[Any] = []
    tree = flatten(value, found)
    again = unflatten(tree, found)
    assert again == value and type(again) is type(value)
    other: list[Any] = []
    assert flatten(again, other) == tree and hash(flatten(again, [])) == hash(tree) and other == found


@given(trees, trees)
def test_different_structures_have_different_trees(a: Any, b: Any) -> None:
    left: list[Any] = []
    right: list[Any] = []
    if flatten(a, left) == flatten(b, right) and left == right:
        assert a == b


def test_what_contains_itself_is_a_leaf() -> None:
    loop: list[Any] = [1]
    loop.append(loop)
    found: list[Any] = []
    assert flatten(loop, found).children == (LEAF, LEAF) and found[1] is loop


@dataclass
class Answering:
    """Has an answer for what was deleted."""

    a: Any
    b: int = 1

    def __getattr__(self, name: str) -> Any:
        return 9.5


@dataclass(slots=True)
class Slotted:
    a: Any

    def __getattr__(self, name: str) -> Any:
        return 9.5


def test_fields_that_were_deleted_are_none() -> None:
    for value, names in ((Answering(2.0), ("a", "b")), (Slotted(2.0), ("a",))):
        found: list[Any] = []
        assert flatten(value, found).names == names and found[0] == 2.0
        del value.a
        again: list[Any] = []
        tree = flatten(value, again)
        assert tree.names == names[1:] and 9.5 not in again  # an object with an empty slot is a leaf
    value = Answering(2.0)
    del value.b  # what the class has stays the class's
    assert vars(unflatten(flatten(value, found := []), found)) == {"a": 2.0}
