"""A Program and a Machine in, a Plan out: streams, waits and places chosen. Pure and deterministic."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from .assign import Assignment, assign_list, assign_max, assign_one
from .dag import ancestors, ranks, width
from .machine import Machine, share, simulate
from .memory import arena_bound, place, temporaries
from .plan import Launch, Plan, Record, Wait
from .program import Program, dependences
from .report import Candidate, Count, Edge, Report
from .shrink import shrink
from .waits import Order, emit, exact_waits, foreign_stream, with_completion, with_join_points

MODES = ("concurrency", "balanced", "small")

# A plan on several streams must be predicted to be this much better than one stream, else one stream it is.
MARGIN = 0.02

# Above this many tasks the width is not computed: its cost grows faster than that of all else.
WIDTH_LIMIT = 2000


def schedule(
    program: Program,
    streams: str | int = "auto",
    memory: str = "balanced",
    *,
    join_points: bool = True,
    machine: Machine,
) -> Plan:
    """Put a program's tasks on streams, with the fewest waits, and its temporaries in one arena.

    streams: `auto` (the cheapest predicted, one stream always among the candidates), `max` (all that may run side by
    side does), or how many at most. memory: `concurrency` shares bytes by data dependences alone, `balanced` by the
    streams' orders too, `small` also adds orders. Raises ValueError for anything else.
    """
    wanted = checked_streams(streams)
    if memory not in MODES:
        raise ValueError(f"memory={memory!r}: write one of {', '.join(map(repr, MODES))}")
    preds = dependences(program)
    costs = [task.cost for task in program.tasks]
    shares = [share(task, machine) for task in program.tasks]
    return _finish(program, preds, _choose(preds, costs, shares, wanted, machine), memory, join_points, machine)


def checked_streams(streams: Any) -> str | int:
    """`auto`, `max` or a number of streams; raises ValueError with what to write instead."""
    if isinstance(streams, str) and streams in ("auto", "max"):
        return streams
    if not isinstance(streams, str | bool | float | complex):
        try:
            number = operator.index(streams)
        except TypeError:
            number = 0
        if number >= 1:
            return number
    raise ValueError(f'streams={streams!r}: write "auto", "max" or a whole number of streams, 1 or more')


def _choose(
    preds: Sequence[frozenset[int]],
    costs: Sequence[float],
    shares: Sequence[float],
    wanted: str | int,
    machine: Machine,
) -> tuple[Assignment, tuple[Candidate, ...], str, int | None]:
    """The assignment, all candidates, why it was chosen, and the width if it was computed."""
    n = len(preds)
    above = ancestors(preds)
    known = width(above) if n <= WIDTH_LIMIT else None
    most = n if known is None else known
    found: list[tuple[Assignment, Candidate]] = []

    def consider(assignment: Assignment) -> None:
        waits = exact_waits(_order(preds, assignment))
        predicted = simulate(assignment.order, assignment.stream, waits.needed, costs, shares, machine)
        count = Count(len(waits.recorded), waits.waits)
        found.append((assignment, Candidate(assignment.name, assignment.streams, count, predicted)))

    def answer(reason: str) -> tuple[Assignment, tuple[Candidate, ...], str, int | None]:
        best = min(found, key=lambda item: (item[1].predicted, item[1].streams))
        if best[1].predicted > found[0][1].predicted * (1 - MARGIN):
            best = found[0]
        return best[0], tuple(candidate for _, candidate in found), reason or _reason(found, best[1]), known

    delays = {"gap": machine.gap, "hop": machine.hop}
    rank = ranks(preds, [cost + machine.gap for cost in costs])
    if wanted == "max":
        consider(assign_max(preds, costs, above=above))
        return answer("asked for")
    if isinstance(wanted, int):
        consider(assign_one(preds) if min(wanted, n) <= 1 else assign_list(preds, costs, wanted, rank=rank, **delays))
        return answer("asked for")
    consider(assign_one(preds))
    alone = found[0][1].predicted
    path, work = max(rank, default=0.0), sum(c * s for c, s in zip(costs, shares, strict=True))
    if most <= 1 or alone * (1 - MARGIN) <= path:
        return answer("one stream is as fast as the longest chain of tasks")
    if alone * (1 - MARGIN) <= work:
        return answer("one stream keeps the machine full")
    for k in dict.fromkeys(min(k, most) for k in machine.counts if k > 1):
        consider(assign_list(preds, costs, k, rank=rank, **delays))
    consider(assign_max(preds, costs, above=above))
    return answer("")


def _reason(found: Sequence[tuple[Assignment, Candidate]], best: Candidate) -> str:
    one = found[0][1]
    if best is one:
        return f"no other candidate is predicted to be {MARGIN:.0%} faster"
    return f"predicted {one.predicted / max(best.predicted, 1e-9):.2f} times as fast as one stream"


def _order(preds: Sequence[frozenset[int]], assignment: Assignment) -> Order:
    return Order(len(preds), assignment.order, tuple(preds), assignment.stream, assignment.streams)


def _finish(
    program: Program,
    preds: Sequence[frozenset[int]],
    choice: tuple[Assignment, tuple[Candidate, ...], str, int | None],
    memory: str,
    join_points: bool,
    machine: Machine,
) -> Plan:
    """Waits, places and steps for a chosen assignment, and the report."""
    assignment, candidates, reason, known = choice
    data, added = preds, tuple[Edge, ...]()
    temps = temporaries(program)
    if memory == "small":
        preds, assignment, added = shrink(program, temps, preds, assignment, machine)
    nodes = _order(preds, assignment)
    direct = exact_waits(nodes)
    if memory == "concurrency":
        placement = place(program, temps, [mask | 1 << v for v, mask in enumerate(ancestors(data))])
    else:
        placement = place(program, temps, direct.before)
    nodes, inner = with_join_points(nodes, direct) if join_points else (nodes, direct)
    joins = len(nodes.preds) - nodes.tasks
    forked, joined = foreign_stream(nodes, inner)
    writers = [0] * len(program.buffers)
    for number, task in enumerate(program.tasks):
        for region in task.writes:
            writers[region.buffer] |= 1 << number
    nodes, full, last = with_completion(nodes, inner, [writers[b] for b in program.outputs])
    steps, events, completion = emit(nodes, full, last)
    costs = [task.cost for task in program.tasks]
    rank = ranks(data, costs)
    report = Report(
        width=known,
        streams=nodes.streams,
        inner=Count(len(inner.recorded), inner.waits),
        entry=Count(1, forked) if forked else Count(),
        exit=Count(joined, joined),
        completion=Count(events - len(inner.recorded), full.waits - inner.waits),
        crossing=sum(assignment.stream[p] != assignment.stream[v] for v, ps in enumerate(preds) for p in ps),
        critical_path=max(rank, default=0.0),
        candidates=candidates,
        chosen=assignment.name,
        reason=reason,
        memory=memory,
        arena=placement.arena,
        live=placement.live,
        added=added,
        joins=joins,
    )
    return Plan(
        program=program,
        steps=steps,
        streams=nodes.streams,
        events=events,
        offsets=placement.offsets,
        arena_bytes=placement.arena,
        completion=completion,
        high_priority=_critical_stream(data, rank, costs, assignment),
        report=report,
    )


def _critical_stream(
    preds: Sequence[frozenset[int]], rank: Sequence[float], costs: Sequence[float], assignment: Assignment
) -> frozenset[int]:
    """The stream that runs most of the critical path, if there are several streams."""
    if assignment.streams <= 1:
        return frozenset()
    followers: list[list[int]] = [[] for _ in preds]
    for v, sources in enumerate(preds):
        for p in sources:
            followers[p].append(v)
    spent: dict[int, float] = {}
    critical: int | None = max(range(len(preds)), key=lambda u: rank[u])
    while critical is not None:
        s = assignment.stream[critical]
        spent[s] = spent.get(s, 0.0) + costs[critical]
        critical = max(followers[critical], key=lambda u: rank[u], default=None)
    return frozenset({max(spent, key=lambda s: spent[s])})


def memory_bound(plan: Plan) -> int:
    """The least bytes that an arena can have, given what the plan's steps order. Exact, not cheap."""
    return arena_bound(plan.program, happens_before(plan))


def happens_before(plan: Plan) -> list[int]:
    """For each task the set of tasks, itself included, that are done when it is done, by the plan's steps alone."""
    before = [0] * len(plan.tasks)
    known = [0] * plan.streams
    events = [0] * plan.events
    for step in plan.steps:
        match step:
            case Launch(s, task):
                known[s] |= 1 << task
                before[task] = known[s]
            case Record(s, event):
                events[event] = known[s]
            case Wait(s, event):
                known[s] |= events[event]
    return before


def explain(plan: Plan) -> str:
    """The plan's report as text, with the exact memory bound and the ratio of the arena to it."""
    lines = list(plan.report.lines()) if plan.report else [f"{plan.streams} streams"]
    bound = memory_bound(plan)
    if bound:
        lines.append(f"the arena is {plan.arena_bytes / bound:.3f} of the least possible for this order, {bound} bytes")
    return "\n".join(lines)
