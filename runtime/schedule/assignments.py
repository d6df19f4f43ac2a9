"""Dependences and costs in; assignments with their predicted times, and the best of them, out."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.frozen import dataclass, replace
from ..program.dag import critical_path_ranks, depth_first_order, max_parallelism, transitive_predecessors
from ..program.report import Candidate, SyncCount
from .assign_streams import StreamAssignment, assign_max_parallel, assign_to_one_stream, list_schedule
from .cost_model import MachineModel, predict_makespan
from .waits import StreamOrder, StreamWaits, minimal_stream_waits

# A plan on several streams must be predicted to be this much better than one stream, else one stream it is.
MARGIN = 0.05

# Above this many tasks the width is not computed: its cost grows faster than that of all else.
WIDTH_LIMIT = 2000


@dataclass(frozen=True, slots=True)
class SchedulingProblem:
    """What is to be scheduled. preds[v]: what task `v` follows; costs in us; shares of the machine, 0 to 1."""

    preds: tuple[frozenset[int], ...]
    costs: tuple[float, ...]
    shares: tuple[float, ...]
    machine: MachineModel


@dataclass(frozen=True, slots=True)
class AssignmentOption:
    """An assignment, the waits that it needs, and the summary of both."""

    assignment: StreamAssignment
    waits: StreamWaits
    summary: Candidate


@dataclass(frozen=True, slots=True)
class AssignmentOptions:
    """All options found, the one to take, and why. width: of the program, if it was computed."""

    all: tuple[AssignmentOption, ...]
    best: AssignmentOption
    reason: str
    width: int | None


def stream_order_of(preds: Sequence[frozenset[int]], assignment: StreamAssignment) -> StreamOrder:
    return StreamOrder(len(preds), assignment.order, tuple(preds), assignment.stream, assignment.streams)


def evaluate_assignment(
    work: SchedulingProblem, assignment: StreamAssignment, preds: tuple[frozenset[int], ...] | None = None
) -> AssignmentOption:
    """The exact waits of an assignment and its predicted time. preds: if there are more than the work's own."""
    waits = minimal_stream_waits(stream_order_of(work.preds if preds is None else preds, assignment))
    predicted = predict_makespan(
        assignment.order, assignment.stream, waits.needed, work.costs, work.shares, work.machine
    )
    count = SyncCount(len(waits.recorded_nodes), waits.waits)
    return AssignmentOption(assignment, waits, Candidate(assignment.name, assignment.streams, count, predicted))


def enumerate_assignments(
    work: SchedulingProblem, streams: str | int, *, frugal: bool = False, thorough: bool = False
) -> AssignmentOptions:
    """The assignments for `streams` (`auto`, `max` or a number), and the cheapest predicted.

    One stream is always among those of `auto`, and wins unless another is clearly faster. What cannot be faster is not
    tried: others than one stream where that is as fast as the longest path or the machine's full load allow, and
    `k` streams where a `k`-th of all work takes longer than another. frugal: also assignments that keep few buffers
    alive. thorough: several streams are tried wherever there are independent tasks, for the clock to judge.
    """
    n, machine, preds = len(work.preds), work.machine, work.preds
    above = transitive_predecessors(preds)
    known = max_parallelism(above) if n <= WIDTH_LIMIT else None
    most = n if known is None else known
    rank = critical_path_ranks(preds, [cost + machine.gap for cost in work.costs])

    def listed(k: int, order: Sequence[int] | None = None) -> AssignmentOption:
        return evaluate_assignment(
            work, list_schedule(preds, work.costs, k, gap=machine.gap, hop=machine.hop, rank=rank, order=order)
        )

    if streams == "max":
        asked = evaluate_assignment(work, assign_max_parallel(preds, work.costs, above=above))
        return AssignmentOptions((asked,), asked, "asked for", known)
    one = evaluate_assignment(work, assign_to_one_stream(preds))
    if isinstance(streams, int):
        asked = listed(min(streams, most)) if min(streams, most) > 1 else one
        return AssignmentOptions((asked,), asked, "asked for", known)
    reason = _why_one_stream_is_best(work, one, most, rank)
    if reason and (most <= 1 or not thorough):
        return AssignmentOptions((one,), one, reason, known)
    found, total = (
        [one, evaluate_assignment(work, assign_max_parallel(preds, work.costs, above=above))],
        sum(work.costs),
    )
    counts = sorted({min(k, most) for k in machine.counts if k > 1}, reverse=True)
    for k in counts:
        if total / k < min(each.summary.predicted for each in found):
            found.append(listed(k))
    if frugal:
        order = depth_first_order(preds, above)
        found += [listed(k, order) for k in counts]
    chosen = _cheapest_assignment(found, known)
    return replace(chosen, best=one, reason=reason) if reason else chosen


def _why_one_stream_is_best(work: SchedulingProblem, one: AssignmentOption, most: int, rank: Sequence[float]) -> str:
    """Why no other assignment can be clearly faster than one stream; empty if one may be."""
    alone = one.summary.predicted * (1 - MARGIN)
    if most <= 1 or alone <= max(rank, default=0.0):
        return "one stream is as fast as the longest chain of tasks"
    if alone <= sum(cost * share for cost, share in zip(work.costs, work.shares, strict=True)):
        return "one stream keeps the machine full"
    return ""


def _cheapest_assignment(found: Sequence[AssignmentOption], width: int | None) -> AssignmentOptions:
    one, best = found[0], min(found, key=lambda o: (o.summary.predicted, o.summary.streams))
    if best.summary.predicted > one.summary.predicted * (1 - MARGIN):
        best = one
    if best is one:
        reason = f"no other candidate is predicted to be {MARGIN:.0%} faster"
    else:
        reason = f"predicted {one.summary.predicted / best.summary.predicted:.2f} times as fast as one stream"
    return AssignmentOptions(tuple(found), best, reason, width)
