"""A Plan: the steps that run a Program on streams joined by events, with every buffer's place. Plain data."""

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
        from ..core.readable_text import shorten_lines

        return shorten_lines(self.lines())
