"""A Plan: the steps that run a Program on streams joined by events, with every buffer's place. Plain data.

The queries at the end: what the steps order, and where a caller's stream meets them."""

from __future__ import annotations

from collections.abc import Iterator

from ..core.frozen import dataclass, field
from .program import Program, Task, control_flow_bodies
from .report import Report


@dataclass(frozen=True, slots=True)
class Launch:
    """Start task number `task` of the program on `stream`."""

    stream: int
    task: int

    def __str__(self) -> str:
        return f"launch t{self.task} on s{self.stream}"


@dataclass(frozen=True, slots=True)
class Record:
    """`event` happens when all that was put on `stream` before it is done."""

    stream: int
    event: int

    def __str__(self) -> str:
        return f"record e{self.event} on s{self.stream}"


@dataclass(frozen=True, slots=True)
class Wait:
    """What is put on `stream` after this starts only when `event` has happened."""

    stream: int
    event: int

    def __str__(self) -> str:
        return f"wait e{self.event} on s{self.stream}"


Step = Launch | Record | Wait


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps in issue order.

    offsets[b] is the byte of the arena where temporary buffer `b` lives; inputs and outputs have None, they live in
    memory of their own. completion[i] is the event that output `i` is ready at (recorded last on its stream).
    high_priority: streams that hold the critical path. report: why the plan is as it is; it takes no part in equality.
    """

    program: Program
    steps: tuple[Step, ...]
    streams: int
    events: int
    offsets: tuple[int | None, ...]
    arena_bytes: int
    completion: tuple[int, ...] = ()
    high_priority: frozenset[int] = frozenset()
    notes: tuple[str, ...] = ()
    report: Report | None = field(default=None, compare=False, repr=False)

    @property
    def tasks(self) -> tuple[Task, ...]:
        return self.program.tasks

    @property
    def waits(self) -> int:
        """The number of waits between streams, at join points and for outputs too."""
        return sum(isinstance(s, Wait) for s in self.steps)

    @property
    def records(self) -> int:
        """The number of event records that a wait needs. Others only complete outputs."""
        waited = {s.event for s in self.steps if isinstance(s, Wait)}
        return sum(isinstance(s, Record) and s.event in waited for s in self.steps)

    @property
    def peak_bytes(self) -> int:
        """Bytes of temporaries and outputs that one call needs beyond its inputs."""
        return self.arena_bytes + sum(b.nbytes for b in self.program.buffers if b.kind == "output")

    def lines(self) -> Iterator[str]:
        yield (
            f"plan {self.program.name}: {len(self.tasks)} tasks on {self.streams} streams, "
            f"{self.waits} waits, {self.records} records, peak {self.peak_bytes} bytes"
        )
        for step in self.steps:
            yield f"  {step}" + (f"    {self.tasks[step.task].name}" if isinstance(step, Launch) else "")
            if isinstance(step, Launch):
                for body in control_flow_bodies(self.tasks[step.task]):
                    yield from (f"    {line}" for line in body.lines())
        for number, offset in enumerate(self.offsets):
            if offset is not None:
                yield f"  b{number} at {offset}, {self.program.buffers[number].nbytes} bytes"
        yield from (f"  # {note}" for note in self.notes)

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def __repr__(self) -> str:
        from ..core.readable_text import shorten_printed_lines

        return shorten_printed_lines(self.lines())


ENTRY = -1  # in place of a buffer, in what a run comes after: the whole plan


@dataclass(frozen=True, slots=True)
class PlanBoundary:
    """roots: numbers of the steps that launch the first task of a stream which follows no other: one wait for each, on
    one event of the caller's stream, and everything follows it.
    exits: the outputs whose completion events precede no other's: once these have happened, every task is done."""

    roots: tuple[int, ...]
    exits: tuple[int, ...]


def plan_boundary(plan: Plan) -> PlanBoundary:
    """The borders of a plan whose every task precedes some output's completion. The verifier proves that."""
    entered = [False] * plan.streams  # whether all that comes on a stream follows a root
    roots: list[int] = []
    known = [0] * plan.streams  # the set of tasks that what comes on a stream follows
    recorded: dict[int, tuple[int, bool]] = {}
    for number, step in enumerate(plan.steps):
        s = step.stream
        if isinstance(step, Record):
            recorded[step.event] = known[s], entered[s]
        elif isinstance(step, Wait):
            before, follows = recorded[step.event]
            known[s] |= before
            entered[s] |= follows
        elif isinstance(step, Launch):
            if not entered[s]:
                roots.append(number)
                entered[s] = True
            known[s] |= 1 << step.task
    done = {recorded[e][0]: i for i, e in reversed(list(enumerate(plan.completion))) if recorded[e][0]}
    exits = [i for tasks, i in done.items() if not any(tasks != other and tasks & ~other == 0 for other in done)]
    return PlanBoundary(tuple(roots), tuple(sorted(exits)))


def plan_happens_before(plan: Plan) -> list[int]:
    """For each task, as bits, the tasks that are done when it is. It is one of them; the plan's steps alone decide."""
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
