"""A Program in; the plans that may be the fastest in truth out, each with a name that holds for every size. Pure.

All of them give the same bits: they differ in streams, packing and replay, never in what a kernel or a library does.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from .machine import Machine
from .plan import Plan
from .program import Program
from .schedule import contenders
from .tune import CANDIDATES

TINY_US = 10.0  # programs predicted to take less are left to the model


@dataclass(frozen=True, slots=True)
class Candidate:
    """A plan, and the way that the device is to run it (one of those it offers; empty: the only one)."""

    plan: Plan
    way: str = ""

    @property
    def name(self) -> str:
        assert self.plan.report is not None
        return ", ".join(filter(None, (self.plan.report.chosen, self.way)))

    @property
    def predicted(self) -> float:
        """Microseconds, by the cost model."""
        report = self.plan.report
        assert report is not None
        return next(c.predicted for c in report.candidates if c.name == report.chosen)


def worth_measuring(plan: Plan, ways: Sequence[str] = ("",)) -> bool:
    """Whether another plan of the program may be clearly faster than what the model chose, and it matters."""
    if len(plan.tasks) < 2 or plan.report is None or Candidate(plan).predicted < TINY_US:
        return False
    return len(plan.report.candidates) > 1 or len(ways) > 1


def contest(
    program: Program,
    streams: str | int,
    memory: str,
    machine: Machine,
    ways: Sequence[str] = ("",),
    keep: Collection[str] = (),
) -> tuple[Candidate, ...]:
    """At most four candidates, the simplest first: fewer streams, then the device's first way.

    Among them are the model's choice, one stream (where `streams` is `auto`), both in the device's first way, and those
    named in `keep`. The others are the next best by prediction, in every way.
    """
    plans = contenders(
        program, streams, memory, machine=machine, most=2 * CANDIDATES, keep=[_assignment(k) for k in keep]
    )
    every = [Candidate(plan, way) for way in ways for plan in plans]
    first = [c for c in every if c.name in keep]
    must = [c for c in every if c.way == ways[0] and (c.plan is plans[0] or c.plan.streams == 1)]
    others = sorted(every, key=lambda c: c.predicted)
    chosen: list[Candidate] = []
    for candidate in (*first, *must, *others):
        if candidate not in chosen and len(chosen) < CANDIDATES:
            chosen.append(candidate)
    return tuple(sorted(chosen, key=lambda c: (c.plan.streams, ways.index(c.way))))


def _assignment(name: str) -> str:
    return name.split(",")[0]
