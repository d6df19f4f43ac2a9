"""Dependences and costs in; assignments with their predicted times, and the best of them, out."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.frozen import dataclass, replace
from ..program.dag import ancestors, depth_first, ranks, width
from ..program.report import Candidate, Count
from .assign_streams import Assignment, assign_list, assign_max, assign_one
from .cost_model import Machine, simulate
from .waits import Order, Waits, exact_waits

# A plan on several streams must be predicted to be this much better than one stream, else one stream it is.
MARGIN = 0.05

# Above this many tasks the width is not computed: its cost grows faster than that of all else.
WIDTH_LIMIT = 2000


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be scheduled. preds[v]: what task `v` follows; costs in us; shares of the machine, 0 to 1."""

    preds: tuple[frozenset[int], ...]
    costs: tuple[float, ...]
    shares: tuple[float, ...]
    machine: Machine


@dataclass(frozen=True, slots=True)
class Option:
    """An assignment, the waits that it needs, and the summary of both."""

    assignment: Assignment
    waits: Waits
    summary: Candidate


@dataclass(frozen=True, slots=True)
class Options:
    """All options found, the one to take, and why. width: of the program, if it was computed."""

    all: tuple[Option, ...]
    best: Option
    reason: str
    width: int | None


def nodes_of(preds: Sequence[frozenset[int]], assignment: Assignment) -> Order:
    return Order(len(preds), assignment.order, tuple(preds), assignment.stream, assignment.streams)


def option(work: Work, assignment: Assignment, preds: tuple[frozenset[int], ...] | None = None) -> Option:
    """The exact waits of an assignment and its predicted time. preds: if there are more than the work's own."""
    waits = exact_waits(nodes_of(work.preds if preds is None else preds, assignment))
    predicted = simulate(assignment.order, assignment.stream, waits.needed, work.costs, work.shares, work.machine)
    count = Count(len(waits.recorded), waits.waits)
    return Option(assignment, waits, Candidate(assignment.name, assignment.streams, count, predicted))


def options(work: Work, streams: str | int, *, frugal: bool = False, thorough: bool = False) -> Options:
    """The assignments for `streams` (`auto`, `max` or a number), and the cheapest predicted.

    One stream is always among those of `auto`, and wins unless another is clearly faster. What cannot be faster is not
    tried: others than one stream where that is as fast as the longest path or the machine's full load allow, and
    `k` streams where a `k`-th of all work takes longer than another. frugal: also assignments that keep few buffers
    alive. thorough: several streams are tried wherever there are independent tasks, for the clock to judge.
    """
    n, machine, preds = len(work.preds), work.machine, work.preds
    above = ancestors(preds)
    known = width(above) if n <= WIDTH_LIMIT else None
    most = n if known is None else known
    rank = ranks(preds, [cost + machine.gap for cost in work.costs])

    def listed(k: int, order: Sequence[int] | None = None) -> Option:
        return option(work, assign_list(preds, work.costs, k, gap=machine.gap, hop=machine.hop, rank=rank, order=order))

    if streams == "max":
        asked = option(work, assign_max(preds, work.costs, above=above))
        return Options((asked,), asked, "asked for", known)
    one = option(work, assign_one(preds))
    if isinstance(streams, int):
        asked = listed(min(streams, most)) if min(streams, most) > 1 else one
        return Options((asked,), asked, "asked for", known)
    reason = _one_is_best(work, one, most, rank)
    if reason and (most <= 1 or not thorough):
        return Options((one,), one, reason, known)
    found, total = [one, option(work, assign_max(preds, work.costs, above=above))], sum(work.costs)
    counts = sorted({min(k, most) for k in machine.counts if k > 1}, reverse=True)
    for k in counts:
        if total / k < min(each.summary.predicted for each in found):
            found.append(listed(k))
    if frugal:
        order = depth_first(preds, above)
        found += [listed(k, order) for k in counts]
    chosen = _cheapest(found, known)
    return replace(chosen, best=one, reason=reason) if reason else chosen


def _one_is_best(work: Work, one: Option, most: int, rank: Sequence[float]) -> str:
    """Why no other assignment can be clearly faster than one stream; empty if one may be."""
    alone = one.summary.predicted * (1 - MARGIN)
    if most <= 1 or alone <= max(rank, default=0.0):
        return "one stream is as fast as the longest chain of tasks"
    if alone <= sum(cost * share for cost, share in zip(work.costs, work.shares, strict=True)):
        return "one stream keeps the machine full"
    return ""


def _cheapest(found: Sequence[Option], width: int | None) -> Options:
    one, best = found[0], min(found, key=lambda o: (o.summary.predicted, o.summary.streams))
    if best.summary.predicted > one.summary.predicted * (1 - MARGIN):
        best = one
    if best is one:
        reason = f"no other candidate is predicted to be {MARGIN:.0%} faster"
    else:
        reason = f"predicted {one.summary.predicted / best.summary.predicted:.2f} times as fast as one stream"
    return Options(tuple(found), best, reason, width)
