"""Ragged regions of turns: those that are proved to be apart are; every mutant that is not is refused."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import pytest

from kernelgraph.dsl.recorded_loops.linear import LinearExpression as Linear
from kernelgraph.dsl.recorded_loops.linear import LoopIntegerAtom as Atom
from kernelgraph.dsl.recorded_loops.sections import Access, recorded_iterations_are_independent
from kernelgraph.dsl.recorded_loops.values import LoopArraySection as Section
from kernelgraph.dsl.recorded_loops.values import LoopArrayStorage as Storage

N = 7
FLOAT64 = np.dtype(np.float64)


class Nest:
    """`for i in range(N): for j in range(low, high): for k in range(j)`, of which the turns of j are looked at."""

    def __init__(self, rng: Random) -> None:
        any_value: Any = None
        self.i = Atom(any_value, (Linear(0),), (Linear(N - 1),))
        i = of(self.i)
        self.low, self.high = rng.choice([Linear(0), i, i + 1]), rng.choice([Linear(N), i, i + 1])
        self.j = Atom(any_value, (self.low,), (self.high - 1,))
        self.k = Atom(any_value, (Linear(0),), (of(self.j) - 1,))
        self.storage = Storage(0, FLOAT64, (N, N))

    def indices(self) -> tuple[Linear, ...]:
        return Linear(0), Linear(1), Linear(N - 1), of(self.i), of(self.j), of(self.k), of(self.j) * 2, -of(self.j) + N


def of(atom: Atom) -> Linear:
    return Linear(0, ((atom, 1),))


def worth(x: Linear, values: dict[Atom, int]) -> int:
    return x.constant + sum(values[atom] * factor for atom, factor in x.terms)


def section(rng: Random, nest: Nest) -> Section:
    """Of none, one or both axes."""
    subs: list[tuple[Linear, int, int]] = []
    shape: list[Linear] = []
    for _ in range(2):
        start = rng.choice(nest.indices()) + rng.choice([0, 0, 0, 1, -1])
        if rng.random() < 0.5:
            subs.append((start, 1, -1))
        else:
            subs.append((start, rng.choice([1, 1, -1, 2]), len(shape)))
            shape.append(rng.choice(nest.indices()) + rng.choice([0, 0, 1]))
    return Section(nest.storage, tuple(subs), tuple(shape))


def mutants(access: Access) -> Iterator[Access]:
    """One start, step, length or axis changed; and a read that is a write."""
    s, writes = access
    for axis, (start, step, own) in enumerate(s.subs):
        for changed in ((start + 1, step, own), (start - 1, step, own), (start, -step, own)):
            yield Section(s.storage, (*s.subs[:axis], changed, *s.subs[axis + 1 :]), s.shape), writes
    for axis, n in enumerate(s.shape):
        for longer in (n + 1, n - 1, n * 2):
            yield Section(s.storage, s.subs, (*s.shape[:axis], longer, *s.shape[axis + 1 :])), writes
    yield Section(s.storage, s.subs[::-1], s.shape), writes
    yield s, not writes


def places(s: Section, values: dict[Atom, int]) -> set[tuple[int, ...]]:
    lengths = [range(max(0, worth(n, values))) for n in s.shape]
    return {
        tuple(worth(start, values) + (index[own] * step if own >= 0 else 0) for start, step, own in s.subs)
        for index in itertools.product(*lengths)
    }


def is_unsafe(nest: Nest, accesses: list[Access]) -> bool:
    """Whether a turn touches what another one writes, by trying them all."""
    for i in range(N):
        touched: list[tuple[set[Any], set[Any]]] = []
        for j in range(worth(nest.low, {nest.i: i}), worth(nest.high, {nest.i: i})):
            read, written = set[Any](), set[Any]()
            for s, writes in accesses:
                inner = any(
                    atom is nest.k for x in (*(start for start, _, _ in s.subs), *s.shape) for atom, _ in x.terms
                )
                for k in range(j) if inner else (0,):
                    (written if writes else read).update(places(s, {nest.i: i, nest.j: j, nest.k: k}))
            touched.append((read, written))
        for (read, written), (other, wrote) in itertools.combinations(touched, 2):
            if written & (other | wrote) or wrote & (read | written):
                return True
    return False


def test_turns_that_are_proved_to_be_apart_are_and_every_unsafe_mutant_is_refused(
    record_property: pytest.RecordProperty,
) -> None:
    rng = Random(7)
    proved = killed = cautious = 0
    while killed < 400:
        nest = Nest(rng)
        accesses: list[Access] = [
            (section(rng, nest), True),
            *((section(rng, nest), False) for _ in range(rng.randint(0, 2))),
        ]
        if not recorded_iterations_are_independent(nest.j, accesses):
            continue
        assert not is_unsafe(nest, accesses), accesses
        proved += 1
        for at, access in enumerate(accesses):
            for mutant in mutants(access):
                changed = [*accesses[:at], mutant, *accesses[at + 1 :]]
                apart, unsafe = recorded_iterations_are_independent(nest.j, changed), is_unsafe(nest, changed)
                assert not (apart and unsafe), changed
                killed += unsafe
                cautious += not apart and not unsafe
    print(f"{killed} killed of {killed} unsafe mutants of {proved} proved nests, {cautious} safe ones refused")
    record_property("mutants", {"killed": killed, "unsafe": killed, "proved": proved, "refused": cautious})


def test_the_turns_of_known_programs() -> None:
    """Those of LU, Gram-Schmidt and symmetric products are apart; those of recurrences and sweeps are not."""
    any_value: Any = None
    i = Atom(any_value, (Linear(0),), (Linear(N - 1),))
    j = Atom(any_value, (of(i),), (Linear(N - 1),))
    a = Storage(0, FLOAT64, (N, N))

    def element(row: Linear, column: Linear) -> Section:
        return Section(a, ((row, 1, -1), (column, 1, -1)), ())

    row = Section(a, ((of(i), 1, -1), (Linear(0), 1, 0)), (of(i),))
    column = Section(a, ((Linear(0), 1, 0), (of(j), 1, -1)), (of(i),))
    own = element(of(i), of(j))
    assert recorded_iterations_are_independent(j, [(own, True), (own, False), (row, False), (column, False)])
    assert not recorded_iterations_are_independent(j, [(own, True), (element(of(i), of(j) - 1), False)])
    assert not recorded_iterations_are_independent(j, [(own, True), (Section(a, row.subs, (of(i) + 1,)), False)])
    assert not recorded_iterations_are_independent(j, [(element(of(i), of(i)), True)])
