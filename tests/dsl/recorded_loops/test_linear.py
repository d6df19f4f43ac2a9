"""What is proved of linear integers holds for every value of their atoms."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kernelgraph.dsl.recorded_loops.linear import RULES, LinearExpression, LoopIntegerAtom

OPERATORS = {
    "less": lambda a, b: a < b,
    "less_equal": lambda a, b: a <= b,
    "greater": lambda a, b: a > b,
    "greater_equal": lambda a, b: a >= b,
    "equal": lambda a, b: a == b,
    "not_equal": lambda a, b: a != b,
}


def nest(rng: random.Random, depth: int) -> list[LoopIntegerAtom]:
    """Turns of loops, one in another: each runs from one linear integer of those around to below another."""
    atoms: list[LoopIntegerAtom] = []
    for _ in range(depth):
        low, high = linear(rng, atoms, 3), linear(rng, atoms, 5)
        atoms.append(LoopIntegerAtom(None, (low,), (high,)))  # type: ignore[arg-type]
    return atoms


def linear(rng: random.Random, atoms: list[LoopIntegerAtom], most: int) -> LinearExpression:
    found = LinearExpression(rng.randint(-most, most))
    for atom in rng.sample(atoms, rng.randint(0, len(atoms))):
        found = found + LinearExpression(0, ((atom, 1),)) * rng.choice((-2, -1, 1, 1, 2))
    return found


def value(x: LinearExpression, at: dict[LoopIntegerAtom, int]) -> int:
    return x.constant + sum(factor * at[atom] for atom, factor in x.terms)


def turns(atoms: list[LoopIntegerAtom], at: dict[LoopIntegerAtom, int]) -> Any:
    """All values that the atoms take together."""
    if not atoms:
        yield dict(at)
        return
    first, *rest = atoms
    for i in range(value(first.lows[0], at), value(first.highs[0], at) + 1):
        yield from turns(rest, at | {first: i})


@pytest.mark.parametrize("seed", range(40))
def test_what_is_proved_holds_in_every_turn(seed: int) -> None:
    rng = random.Random(seed)
    atoms = nest(rng, rng.choice((1, 2, 3)))
    a, b = linear(rng, atoms, 6), linear(rng, atoms, 6)
    for at in turns(atoms, {}):
        x, y = value(a, at), value(b, at)
        assert a.least is None or a.least <= x
        assert a.greatest is None or x <= a.greatest
        assert not a.is_at_least(b) or x >= y
        assert value(a + b, at) == x + y and value(a - b, at) == x - y and value(a * 3, at) == 3 * x
        for name, operator in OPERATORS.items():
            assert RULES[name](a, b) in (None, operator(x, y))


def test_a_triangle_is_seen() -> None:
    i = LoopIntegerAtom(None, (LinearExpression(0),), (LinearExpression(9),))  # type: ignore[arg-type]
    row = LinearExpression(0, ((i, 1),))
    j = LoopIntegerAtom(None, (LinearExpression(0),), (row - 1,))  # type: ignore[arg-type]
    column = LinearExpression(0, ((j, 1),))
    assert row.is_at_least(column + 1) and LinearExpression(9).is_at_least(column + 1) and (row - column).least == 1
    assert (row - column).greatest == 9 and not column.is_at_least(row)
