"""Plans of one device each in, with the copies and collectives between; one plan over all the devices out.

Each part keeps its steps, on streams and in bytes of its device's arena that are its own. On each of its streams, what
is first to touch a value that others write waits for that value, and for nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..core.frozen import replace
from ..program.collective import Collective
from ..program.plan import Launch, Plan, Record, Step, Wait
from ..program.program import Buffer, Library, Program, Region, Task, buffers_of_task, renumber_task

ALIGNMENT = 256
COPY_BYTES_PER_US = 1e5


class PlanJoiner:
    """Parts, copies and collectives are added in an order in which each comes after what it reads."""

    def __init__(self, devices: Sequence[tuple[str, int]], values: Sequence[Buffer]) -> None:
        """values: inputs, outputs, and what is passed on; they are the first buffers of the plan."""
        self._devices, self._buffers = tuple(devices), [*values]
        self._offsets: list[int | None] = [None] * len(values)
        self._tasks: list[Task] = []
        self._steps: list[Step] = []
        self._homes: list[int] = []
        self._high = set[int]()
        self._events = 0
        self._arenas = [0] * len(devices)
        self._scalars: dict[int, str] = {}
        self._ready: dict[int, int] = {}  # the event of each value that is written
        self._own_streams: dict[tuple[str, int], int] = {}  # by what they are for and the device
        self._notes: dict[str, None] = {}

    def add_part(
        self, part: Plan, device: int, reads: Sequence[int], writes: Sequence[int], scalars: Sequence[int]
    ) -> None:
        """reads, writes: the values that are its inputs and its outputs; scalars: which of the call's numbers are its
        own."""
        program, first = part.program, len(self._tasks)
        places = dict(zip((*program.inputs, *program.outputs), (*reads, *writes), strict=True))
        for b, (buffer, offset) in enumerate(zip(program.buffers, part.offsets, strict=True)):
            if b not in places:
                places[b] = len(self._buffers)
                self._buffers.append(replace(buffer, device=device))
                self._offsets.append(None if offset is None else self._arenas[device] + offset)
        self._arenas[device] += -(-part.arena_bytes // ALIGNMENT) * ALIGNMENT
        self._scalars.update(zip(scalars, program.scalars, strict=True))
        numbers = dict(enumerate(scalars))
        self._tasks += [renumber_task(task, places, numbers) for task in part.tasks]
        stream, event = len(self._homes), self._events
        self._homes += [device] * part.streams
        self._high |= {stream + s for s in part.high_priority}
        self._events += part.events
        self._notes.update(dict.fromkeys(part.notes))
        awaited = set[Wait]()
        for step in part.steps:
            at = stream + step.stream
            if isinstance(step, Launch):
                self._launch(at, first + step.task, awaited)
            else:
                self._steps.append(replace(step, stream=at, event=event + step.event))
        self._ready.update(zip(writes, (event + e for e in part.completion), strict=True))

    def add_copy(self, source: int, target: int) -> None:
        """Of a value to another device, as another value."""
        regions = ((self._whole_region(source),), (self._whole_region(target),))
        task = Task("copy", Library("copy"), (), *regions, cost=self._buffers[source].nbytes / COPY_BYTES_PER_US)
        self._add_between("copies", self._buffers[source].device, task)

    def add_collective(self, kernel: Collective, reads: Sequence[int], writes: Sequence[int]) -> None:
        """Of this process' devices, or of this rank and others; all are on one stream, in the order of all ranks."""
        given, taken = (tuple(map(self._whole_region, values)) for values in (reads, writes))
        self._add_between("collectives", 0, Task(kernel.meaning, kernel, (), given, taken, line=kernel.line))

    def finish(self, outputs: Sequence[int], name: str, target: str) -> Plan:
        """outputs: values, in the order of the call's results."""
        ends = dict(self._ready)
        for v in dict.fromkeys(outputs):
            if v not in ends:  # an input that is a result as it is
                ends[v] = self._record(self._own_stream("results", self._buffers[v].device))
        awaited = {step.event for step in self._steps if isinstance(step, Wait)}
        unread = [e for v, e in self._ready.items() if e not in awaited and v not in outputs]
        if unread and outputs:  # so that the results tell when all of a call is over
            stream = self._own_stream("results", self._buffers[outputs[0]].device)
            self._steps += [Wait(stream, e) for e in dict.fromkeys([*unread, ends[outputs[0]]])]
            ends[outputs[0]] = self._record(stream)
        program = Program(
            tuple(self._buffers),
            tuple(self._tasks),
            tuple(v for v, b in enumerate(self._buffers) if b.kind == "input"),
            tuple(outputs),
            tuple(self._scalars.get(i, "float64") for i in range(max(self._scalars, default=-1) + 1)),
            target,
            name,
            self._devices,
        )
        return Plan(
            program,
            tuple(self._steps),
            len(self._homes),
            self._events,
            tuple(self._offsets),
            max(self._arenas),
            tuple(ends[v] for v in outputs),
            frozenset(self._high),
            tuple(self._notes),
            homes=tuple(self._homes),
        )

    def _launch(self, stream: int, task: int, awaited: set[Wait]) -> None:
        for b in buffers_of_task(self._tasks[task]):
            if b in self._ready and (wait := Wait(stream, self._ready[b])) not in awaited:
                awaited.add(wait)
                self._steps.append(wait)
        self._steps.append(Launch(stream, task))

    def _record(self, stream: int) -> int:
        self._steps.append(Record(stream, self._events))
        self._events += 1
        return self._events - 1

    def _own_stream(self, what: str, device: int) -> int:
        if (what, device) not in self._own_streams:
            self._own_streams[what, device] = len(self._homes)
            self._homes.append(device)
        return self._own_streams[what, device]

    def _add_between(self, what: str, device: int, task: Task) -> None:
        stream = self._own_stream(what, device)
        self._tasks.append(task)
        self._launch(stream, len(self._tasks) - 1, set())
        self._ready.update(dict.fromkeys([region.buffer for region in task.writes], self._record(stream)))

    def _whole_region(self, value: int) -> Region:
        return Region(value, 0, (self._buffers[value].nbytes,), (1,), 1, "uint8")
