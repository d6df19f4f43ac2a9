"""A Program and a machine in; the best Plan by the cost model out. Or the Plans that may be the fastest in truth.

Pure and deterministic. All plans of a program give the same bits: they differ in streams, waits, places, packing and
replay, never in what a kernel or a library does.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from ..core.frozen import frozen, replace
from ..core.gc_pause import paused_garbage_collection
from ..program.dag import critical_path_ranks_of_dag, followers_in_dag, transitive_predecessors_in_dag
from ..program.plan import Plan, happens_before_relation_of_plan, nested_plans, plan_boundary
from ..program.program import Program, task_dependences_of_program
from ..program.report import AddedDependence, Report, SyncCount
from .assign_streams import (
    AssignmentOption,
    AssignmentOptions,
    SchedulingProblem,
    StreamAssignment,
    enumerate_stream_assignments,
    evaluate_stream_assignment,
    stream_order_of_assignment,
)
from .batching import pack_launches_that_write_one_buffer, pack_small_launches, schedule_matmul_batches
from .cost_model import MachineModel, machine_share_of_task
from .memory_orders import add_memory_saving_orders
from .memory_plan import (
    Placement,
    Temporaries,
    collect_temporary_buffers,
    exact_arena_bound,
    place_temporaries_in_arena,
)
from .surroundings import ALONE, Surroundings, scheduled_sends_of_tasks, serial_order
from .waits import add_output_completion_waits, emit_plan_steps, replace_waits_by_join_points

MODES = ("concurrency", "balanced", "small")

# With memory="small" the fastest of the assignments whose arena is this near to the smallest is taken.
NEAR_SMALLEST = 1.05


@frozen
class _PlacedAssignment:
    """An assignment with its memory. preds: the dependences and those that were added to save memory."""

    option: AssignmentOption
    preds: tuple[frozenset[int], ...]
    placement: Placement
    added: tuple[AddedDependence, ...] = ()


def schedule(
    program: Program,
    streams: str | int = "auto",
    memory: str = "balanced",
    *,
    join_points: bool = True,
    machine: MachineModel,
    surroundings: Surroundings = ALONE,
) -> Plan:
    """Puts a program's tasks on streams, with the fewest waits. Its temporaries go in one arena.

    streams: `auto` (the cheapest predicted, one stream always among the candidates), `max` (all that may run side by
    side does), or how many at most; a join point may be on one more, which runs no task. memory: `concurrency` shares
    bytes by data dependences alone, `balanced` by the streams' orders too, `small` also adds orders. surroundings: what
    comes late and what is sent; times then include the sends. Raises ValueError for anything else.
    """
    work, found, placed = _assignment_options_with_memory(program, streams, memory, machine, surroundings=surroundings)
    return _build_scheduled_plan(program, work, found, next(placed), memory, join_points)


def schedule_alternative_plans(
    program: Program,
    streams: str | int = "auto",
    memory: str = "balanced",
    *,
    machine: MachineModel,
    most: int = 4,
    keep: Collection[str] = (),
) -> tuple[Plan, ...]:
    """The plan of `schedule`, then others that may in truth be as fast.

    Those are, `most` in all, one stream and, nearest first, the assignments that the model finds at most twice
    as slow; and those whose name is in `keep`. Raises ValueError as `schedule` does.
    """
    work, found, placed = _assignment_options_with_memory(program, streams, memory, machine, thorough=True)
    plans: list[Plan] = []
    known: list[frozenset[tuple[int, ...]]] = []
    for each in placed:
        summary, same = each.option.summary, _tasks_by_stream(each.option.assignment)
        near = summary.streams == 1 or summary.predicted <= found.best.summary.predicted * 2
        if same not in known and ((near and len(plans) < most) or summary.name in keep):
            known.append(same)
            plans.append(_build_scheduled_plan(program, work, found, each, memory, True))
            found = replace(found, reason=f"for the clock to judge; the model prefers {found.best.summary.name}")
    return tuple(plans)


def _tasks_by_stream(assignment: StreamAssignment) -> frozenset[tuple[int, ...]]:
    """The tasks of each stream, in order: all that tells one assignment from another when it runs."""
    lanes: list[list[int]] = [[] for _ in range(assignment.streams)]
    for v in assignment.order:
        lanes[assignment.stream[v]].append(v)
    return frozenset(map(tuple, lanes))


def _assignment_options_with_memory(
    program: Program,
    streams: str | int,
    memory: str,
    machine: MachineModel,
    thorough: bool = False,
    surroundings: Surroundings = ALONE,
) -> tuple[SchedulingProblem, AssignmentOptions, Iterator[_PlacedAssignment]]:
    """The options and, made as they are asked for, each with its memory: the best, one stream, others by time."""
    wanted = check_schedule_streams_option(streams)
    if memory not in MODES:
        raise ValueError(f"memory={memory!r}: write one of {', '.join(map(repr, MODES))}")
    costs, preds = tuple(task.cost for task in program.tasks), task_dependences_of_program(program)
    shares = tuple(machine_share_of_task(task, machine) for task in program.tasks)
    work = SchedulingProblem(preds, costs, shares, machine)
    if surroundings is not ALONE and surroundings:
        sends = scheduled_sends_of_tasks(program, surroundings)
        work = replace(work, sends=sends, order=serial_order(program, preds, surroundings, sends))
    found = enumerate_stream_assignments(work, wanted, frugal=memory == "small", thorough=thorough)
    others = sorted(
        (o for o in found.all if o is not found.best),
        key=lambda o: (o.summary.streams > 1, _predicted_makespan_of_option(o)),
    )
    if memory != "small" and all(buffer.kind != "temp" for buffer in program.buffers):
        placement = Placement((None,) * len(program.buffers), 0, 0)
        return work, found, (_PlacedAssignment(o, work.preds, placement) for o in (found.best, *others))
    temps = collect_temporary_buffers(program)
    if memory == "small":
        found, best = _schedule_option_of_fewest_bytes(program, temps, work, found)
        return work, found, iter((best,))
    if memory == "balanced":
        placed = (
            _PlacedAssignment(o, work.preds, place_temporaries_in_arena(program, temps, o.waits.before))
            for o in (found.best, *others)
        )
        return work, found, placed
    by_data = [mask | 1 << v for v, mask in enumerate(transitive_predecessors_in_dag(work.preds))]
    placement = place_temporaries_in_arena(program, temps, by_data)
    return work, found, (_PlacedAssignment(o, work.preds, placement) for o in (found.best, *others))


def _predicted_makespan_of_option(each: AssignmentOption) -> float:
    return each.summary.predicted


def check_schedule_streams_option(streams: Any) -> str | int:
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


def _schedule_option_of_fewest_bytes(
    program: Program, temps: Temporaries, work: SchedulingProblem, assignments: AssignmentOptions
) -> tuple[AssignmentOptions, _PlacedAssignment]:
    """The fastest of those that need the fewest bytes, once orders are added to the most promising options.

    They are one stream, the fastest, and the one of the smallest arena as it stands.
    """

    def option_arena_bytes(each: AssignmentOption) -> int:
        return place_temporaries_in_arena(program, temps, each.waits.before).arena

    def option_with_less_memory(each: AssignmentOption) -> _PlacedAssignment:
        preds, assignment, added = add_memory_saving_orders(program, temps, work.preds, each.assignment, work.machine)
        ordered = evaluate_stream_assignment(work, assignment, preds)
        return _PlacedAssignment(
            ordered, preds, place_temporaries_in_arena(program, temps, ordered.waits.before), added
        )

    promising = {
        id(each): each for each in (assignments.all[0], assignments.best, min(assignments.all, key=option_arena_bytes))
    }
    tried = [option_with_less_memory(each) for each in promising.values()]
    least = min(placed.placement.arena for placed in tried)
    near = [placed for placed in tried if placed.placement.arena <= least * NEAR_SMALLEST]
    best = min(near, key=lambda placed: (placed.option.summary.predicted, placed.placement.arena))
    every = tuple(placed.option for placed in tried)
    reason = assignments.reason if len(tried) == 1 else f"the fastest of those near the smallest arena, {least} bytes"
    return replace(assignments, all=every, best=best.option, reason=reason), best


def _build_scheduled_plan(
    program: Program,
    work: SchedulingProblem,
    assignments: AssignmentOptions,
    placed: _PlacedAssignment,
    memory: str,
    join_points: bool,
) -> Plan:
    """Join points, completion and steps, and the report."""
    assignment, direct = placed.option.assignment, placed.option.waits
    nodes = stream_order_of_assignment(placed.preds, assignment)
    nodes, inner = replace_waits_by_join_points(nodes, direct) if join_points else (nodes, direct)
    joins = len(nodes.preds) - nodes.tasks
    writers = [0] * len(program.buffers)
    for number, task in enumerate(program.tasks):
        for region in task.writes:
            writers[region.buffer] |= 1 << number
    nodes, full, last = add_output_completion_waits(nodes, inner, [writers[b] for b in program.outputs])
    steps, events, completion = emit_plan_steps(nodes, full, last)
    rank = critical_path_ranks_of_dag(work.preds, work.costs) if len(work.preds) > 1 else work.costs
    stream = assignment.stream
    plan = Plan(
        program=program,
        steps=steps,
        streams=nodes.streams,
        events=events,
        offsets=placed.placement.offsets,
        arena_bytes=placed.placement.arena,
        completion=completion,
        high_priority=_critical_stream(work.preds, rank, work.costs, assignment),
    )
    ends = plan_boundary(plan)
    report = Report(
        width=assignments.width,
        streams=nodes.streams,
        inner=SyncCount(len(inner.recorded_nodes), inner.waits),
        entry=SyncCount(1, len(ends.roots)) if ends.roots else SyncCount(),
        exit=SyncCount(0, len(ends.exits)),
        completion=SyncCount(events - len(inner.recorded_nodes), full.waits - inner.waits),
        crossing=sum(stream[p] != stream[v] for v, sources in enumerate(placed.preds) for p in sources),
        critical_path=max(rank, default=0.0),
        candidates=tuple(each.summary for each in assignments.all),
        chosen=assignment.name,
        reason=assignments.reason,
        memory=memory,
        arena=placed.placement.arena,
        live=placed.placement.live,
        added=placed.added,
        joins=joins,
    )
    return replace(plan, report=report)


def _critical_stream(
    preds: Sequence[frozenset[int]], rank: Sequence[float], costs: Sequence[float], assignment: StreamAssignment
) -> frozenset[int]:
    """The stream that runs most of the critical path, if there are several streams."""
    if assignment.streams <= 1:
        return frozenset()
    followers = followers_in_dag(preds)
    spent: dict[int, float] = {}
    critical: int | None = max(range(len(preds)), key=lambda u: rank[u])
    while critical is not None:
        s = assignment.stream[critical]
        spent[s] = spent.get(s, 0.0) + costs[critical]
        critical = max(followers[critical], key=lambda u: rank[u], default=None)
    return frozenset({max(spent, key=lambda s: spent[s])})


def plan_memory_bound(plan: Plan) -> tuple[int, tuple[int, ...]]:
    """The least bytes that an arena can have, and the buffers that force it. Given what the plan's steps order. Exact,
    not cheap."""
    return exact_arena_bound(plan.program, happens_before_relation_of_plan(plan))


def explain_plan(plan: Plan) -> str:
    """The plan's report as text, with the arena beside the exact memory bound."""
    lines = list(plan.report.lines()) if plan.report else [f"{plan.streams} streams"]
    bound, _ = plan_memory_bound(plan)
    if bound:
        lines.append(f"the least that any arena needs in this order: {bound} bytes")
    for task, body in nested_plans(plan):
        lines.append(f"the body of {task.name}{f' of {task.line}' if task.line else ''}: {len(body.tasks)} tasks")
        lines += [f"  {line}" for line in (*map(str, body.tasks), *explain_plan(body).splitlines())]
    return "\n".join(lines)


CANDIDATES = 4  # at most


@frozen
class ScheduledPlanCandidate:
    """A plan, and the way that the device is to run it. It is one of those it offers; empty: the only one."""

    plan: Plan
    way: str = ""
    packed: bool = False

    @property
    def name(self) -> str:
        assert self.plan.report is not None
        return ", ".join(filter(None, (self.plan.report.chosen, "packed" if self.packed else "", self.way)))

    @property
    def predicted(self) -> float:
        return predicted_microseconds(self.plan)


def predicted_microseconds(plan: Plan) -> float:
    """Microseconds, by the cost model."""
    report = plan.report
    assert report is not None
    return next(c.predicted for c in report.candidates if c.name == report.chosen)


def batch_matmul_tasks_where_faster(
    program: Program, machine: MachineModel, streams: str | int = "auto", surroundings: Surroundings = ALONE
) -> Program:
    """The program with its matmuls in batches. The device must have them, and the model find that no slower.

    streams: on which it is judged. They are never the user's choice, which would then decide how products round.
    """
    other = schedule_matmul_batches(program, machine) if machine.batches else program
    if other is program:
        return program
    plans = [schedule(each, streams, machine=machine, surroundings=surroundings) for each in (program, other)]
    times = [predicted_microseconds(plan) for plan in plans]
    return other if times[1] <= times[0] else program


@paused_garbage_collection()
def plan_by_cost_model(
    program: Program, streams: str | int, memory: str, machine: MachineModel, surroundings: Surroundings = ALONE
) -> Plan:
    """The plan that the cost model finds fastest, small launches packed or not."""
    plans = [
        schedule(each, streams, memory, machine=machine, surroundings=surroundings)
        for each in _batched_and_packed_program_variants(program, machine, surroundings)
    ]
    return min(plans, key=predicted_microseconds)


def _batched_and_packed_program_variants(
    program: Program, machine: MachineModel, surroundings: Surroundings = ALONE
) -> tuple[Program, ...]:
    if not machine.packs:
        return (program,)
    if surroundings.reads_peers:
        program = pack_launches_that_write_one_buffer(program, machine)
    other = pack_small_launches(program, machine)
    return (program,) if other is program else (program, other)


def is_schedule_worth_tuning(program: Program, plan: Plan, machine: MachineModel) -> bool:
    """Whether the choice between plans of the program matters at all."""
    return len(program.tasks) > 1 and plan.report is not None and predicted_microseconds(plan) >= machine.tiny


def choose_plan_candidates(
    program: Program,
    streams: str | int,
    memory: str,
    machine: MachineModel,
    ways: Sequence[str] = ("",),
    keep: Collection[str] = (),
) -> tuple[ScheduledPlanCandidate, ...]:
    """At most four candidates, the simplest first: fewer streams, then the device's first way.

    Those named in `keep` come first, then, in the device's first way, the best of the program as it is, one stream
    (where `streams` is `auto`), and the best of the packed program; then the next best by prediction, in every way.
    """
    every: list[ScheduledPlanCandidate] = []
    must: list[ScheduledPlanCandidate] = []
    assignments = [name.split(",")[0] for name in keep]
    for number, each in enumerate(_batched_and_packed_program_variants(program, machine)):
        plans = schedule_alternative_plans(each, streams, memory, machine=machine, most=CANDIDATES, keep=assignments)
        every += [ScheduledPlanCandidate(plan, way, number > 0) for way in ways for plan in plans]
        must += [ScheduledPlanCandidate(plans[0], ways[0], number > 0)]
        must += [ScheduledPlanCandidate(plan, ways[0]) for plan in plans[1:] if number == 0 and plan.streams == 1]
    kept = [c for c in every if c.name in keep]
    chosen: list[ScheduledPlanCandidate] = []
    for candidate in (*kept, *must, *sorted(every, key=lambda c: c.predicted)):
        if candidate.name not in [c.name for c in chosen] and len(chosen) < CANDIDATES:
            chosen.append(candidate)
    return tuple(sorted(chosen, key=lambda c: (c.plan.streams, ways.index(c.way), c.packed)))
