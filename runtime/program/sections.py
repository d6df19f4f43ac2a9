"""A plan over several devices in, what is started one after another out. Plans of one device, and what is between.

A section is a run of steps on streams that are started together, as a plan of its own: alike parts of a plan are equal
sections, on whichever device. Its temporaries lie in an arena of its own; every other buffer that it touches is written
once in the plan, so all that another section or a copy has to wait for is that buffer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..core.errors import PlanError
from ..core.frozen import dataclass
from .collective import Collective
from .plan import Launch, Plan, Record, Step, is_device_copy
from .program import Buffer, Program, Scalar, Task, buffers_of_task, renumber_task


@dataclass(frozen=True, slots=True)
class Section:
    """A plan of one device of a larger plan. buffers: of the larger plan, one for each of its own; None for its
    temporaries. reads, writes: the buffers that its inputs and outputs are; scalars: which of the call's numbers are
    its own."""

    plan: Plan
    device: int
    buffers: tuple[int | None, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    scalars: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DeviceCopy:
    """A buffer copied to another device, as another buffer."""

    source: int
    target: int


@dataclass(frozen=True, slots=True)
class Meeting:
    """A collective and its buffers."""

    kernel: Collective
    reads: tuple[int, ...]
    writes: tuple[int, ...]


PlanPart = Section | DeviceCopy | Meeting


def sections_of_plan(plan: Plan) -> tuple[PlanPart, ...]:
    """In the order of the steps. Raises PlanError where two of them write one buffer, or have a temporary in common, or
    one reads what comes later: to start them one after another would not do."""
    between = {s.stream for s in plan.steps if isinstance(s, Launch) and _is_between(plan.program, plan.tasks[s.task])}
    found: list[PlanPart] = []
    steps: list[Step] = []
    taken = {b for b, buffer in enumerate(plan.program.buffers) if buffer.kind == "input" or not buffer.nbytes}
    for step in plan.steps:
        if step.stream not in between:
            if steps and plan.sections[steps[0].stream] != plan.sections[step.stream]:
                found += _sections_of_steps(plan, steps, taken)
                steps = []
            steps.append(step)
        elif isinstance(step, Launch):
            found += _sections_of_steps(plan, steps, taken)
            steps = []
            found.append(_part_between_devices(plan, plan.tasks[step.task], taken))
    found += _sections_of_steps(plan, steps, taken)
    return tuple(found)


def _take_buffers(plan: Plan, reads: Sequence[int], own: Sequence[int], taken: set[int]) -> None:
    """Add a step's own buffers to those of the steps before it, which have written what it reads."""
    wrong = [b for b in reads if b not in taken] + [b for b in own if b in taken and plan.program.buffers[b].nbytes]
    if wrong:
        raise PlanError(f"plan {plan.program.name} passes on b{wrong[0]} before it is written, or writes it twice")
    taken |= {*own}


def _is_between(program: Program, task: Task) -> bool:
    return isinstance(task.kernel, Collective) or is_device_copy(program, task)


def _part_between_devices(plan: Plan, task: Task, taken: set[int]) -> PlanPart:
    reads, writes = (tuple(region.buffer for region in regions) for regions in (task.reads, task.writes))
    _take_buffers(plan, reads, writes, taken)
    if isinstance(task.kernel, Collective):
        return Meeting(task.kernel, reads, writes)
    if not is_device_copy(plan.program, task):
        raise PlanError(f"{task.name} is on a stream of copies or collectives")
    return DeviceCopy(*reads, *writes)


def _sections_of_steps(plan: Plan, steps: Sequence[Step], taken: set[int]) -> list[Section]:
    program = plan.program
    tasks = {s.task: program.tasks[s.task] for s in steps if isinstance(s, Launch)}
    if not tasks:
        return []
    local = _number_in_order(b for task in tasks.values() for b in buffers_of_task(task))
    written = {region.buffer for task in tasks.values() for region in task.writes}
    kinds = {b: _kind_in_section(program.buffers[b], b in written) for b in local}
    reads, writes, temps = ([b for b in local if kinds[b] == kind] for kind in ("input", "output", "temp"))
    _take_buffers(plan, reads, [*temps, *writes], taken)
    scalars = _number_in_order(a.index for t in tasks.values() for a in t.arguments if isinstance(a, Scalar))
    made = Program(
        tuple(Buffer(program.buffers[b].nbytes, kinds[b], program.buffers[b].name) for b in local),
        tuple(renumber_task(task, local, scalars) for task in tasks.values()),
        tuple(local[b] for b in reads),
        tuple(local[b] for b in writes),
        tuple(program.scalars[i] for i in scalars),
        program.target,
        program.name,
    )
    buffers = tuple(None if kinds[b] == "temp" else b for b in local)
    section = _plan_of_section(plan, steps, made, local, [b for b in temps if plan.offsets[b] is not None], writes)
    return [Section(section, plan.homes[steps[0].stream], buffers, tuple(reads), tuple(writes), tuple(scalars))]


def _kind_in_section(buffer: Buffer, is_written: bool) -> str:
    return "temp" if buffer.kind == "temp" else "output" if is_written else "input"


def _plan_of_section(
    plan: Plan, steps: Sequence[Step], program: Program, local: Mapping[int, int], placed: list[int], writes: list[int]
) -> Plan:
    """The steps, under numbers of their own; waits for what comes before them are left out. placed: temporaries."""
    events = _number_in_order(s.event for s in steps if isinstance(s, Record))
    streams, tasks = (
        _number_in_order(s.stream for s in steps),
        _number_in_order(s.task for s in steps if isinstance(s, Launch)),
    )
    starts = {b: offset for b in placed if (offset := plan.offsets[b]) is not None}
    low = min(starts.values(), default=0)
    ready = dict(plan.ready)
    return Plan(
        program,
        tuple(
            Launch(streams[s.stream], tasks[s.task])
            if isinstance(s, Launch)
            else type(s)(streams[s.stream], events[s.event])
            for s in steps
            if isinstance(s, Launch) or s.event in events
        ),
        len(streams),
        len(events),
        tuple(starts[b] - low if b in starts else None for b in local),
        max((start + plan.program.buffers[b].nbytes for b, start in starts.items()), default=low) - low,
        tuple(events[ready[b]] for b in writes),
        frozenset(streams[s] for s in plan.high_priority if s in streams),
    )


def _number_in_order(things: Iterable[int]) -> dict[int, int]:
    return {thing: number for number, thing in enumerate(dict.fromkeys(things))}
