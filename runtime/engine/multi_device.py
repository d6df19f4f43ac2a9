"""A plan over several devices or ranks made ready: what a call of it needs beside its one executable.

That is memory on each device, arguments copied to where they are read, and the collectives, to which all ranks come in
one order. Nothing waits on the host; failures travel with the events.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from ..core import profile
from ..core.settings import settings
from ..program.collective import Collective
from ..program.device import CollectivePart, Device, DeviceCommunicator, Event, Executable, Meetings, error_of_event
from ..program.plan import Launch, Plan
from ..program.program import Scalar, Task
from . import unread_errors
from .collective_calls import EngineCollectiveCall, rank_collective_lines_of_plan
from .communicator import SMALL_BYTES, Agreement, EngineCommunicator, rank_agreement_on_collectives

Events = list[Event | None]


class MultiDeviceExecutable:
    """What runs a plan on its devices. prepare: makes it ready. communicator: of the ranks that the plan's collectives
    are of. exchange: what does these between devices, if anything does."""

    def __init__(
        self,
        devices: Sequence[Device],
        plan: Plan,
        prepare: Callable[[Sequence[Device], Plan], Executable],
        communicator: EngineCommunicator | None = None,
        exchange: DeviceCommunicator | None = None,
    ) -> None:
        self.plan, self.devices, self.exchange = plan, devices, exchange
        buffers, outputs = plan.program.buffers, plan.program.outputs
        self.count = 1 + max((b for b, buffer in enumerate(buffers) if buffer.kind != "temp"), default=-1)
        self.communicator = communicator if plan.ranks > 1 else None
        lines = rank_collective_lines_of_plan(plan)
        self.agreement = rank_agreement_on_collectives(lines, lines[0])
        self.agreed = False
        launched = [step.task for step in plan.steps if isinstance(step, Launch)]
        self.collectives = {t: plan.tasks[t] for t in launched if isinstance(plan.tasks[t].kernel, Collective)}
        self.calls = {} if exchange is not None else {t: self._call(task) for t, task in self.collectives.items()}
        alone = len(self.collectives) == len(launched)  # nothing is done but collectives
        self.executable = None if alone else prepare(devices, plan)
        rows = [(v, devices[b.device], b) for v, b in enumerate(buffers)]
        shared = _buffers_read_by_peers(plan)
        # (buffer, device, which array of the call, whether it is a result, whether other devices read it);
        # (buffer, device, bytes) of results and of what is passed on; (buffer, device, whether it comes first)
        self.given = tuple((v, device, b.source, v in outputs, v in shared) for v, device, b in rows if b.source >= 0)
        self.results = tuple((v, device, max(1, b.nbytes)) for v, device, b in rows if b.kind == "output")
        self._values = tuple((v, device, max(1, b.nbytes)) for v, device, b in rows if b.kind == "value")
        self.outputs = tuple((v, rows[v][1], v not in outputs[:i]) for i, v in enumerate(outputs))
        self.repeats_results = len({*outputs}) < len(outputs)
        self._passes_inputs = any(buffers[v].kind == "input" for v in outputs)
        self._may_replay = self.executable is not None and not self.collectives
        self._takes = _numbers_taken(plan)
        self.nbytes = sum(b.nbytes for b in buffers if b.kind in ("input", "output"))
        self._temporaries = tuple((v, buffers[v].device, at) for v, at in enumerate(plan.offsets) if at is not None)
        self._arena_bytes = _arena_bytes(plan, len(devices))
        self.temporary_bytes = sum(self._arena_bytes)
        first = next(iter(self.calls), None)
        small = first is not None and (first == launched[0] or self.calls[first].fits_agreement)
        self.agrees_with_collective = small or exchange is not None

    def _call(self, task: Task) -> EngineCollectiveCall:
        kernel, device = task.kernel, self.devices[self.plan.program.buffers[task.reads[0].buffer].device]
        assert self.communicator is not None and isinstance(kernel, Collective)
        return EngineCollectiveCall(kernel, device, self.communicator)

    def run(
        self, memories: list[Any], scalars: Sequence[Any], events: Events
    ) -> tuple[Sequence[Event | None], Sequence[Event], Sequence[Any]]:
        """Start the plan once. memories: of the buffers that a call brings or gets, None for others. events: when each
        is there, None for what is, or is not yet.

        The event of each output, those events that may not have happened, and memory beside `memories` that must live
        until they have. Raises OutOfMemory before anything has started; where a step cannot start, what has is
        waited for."""
        if self._takes:
            scalars = [x if taken else 0 for x, taken in zip(scalars, self._takes, strict=False)]
        replayed, arenas = None, list[Any]()
        if self._may_replay and settings.engine == "async" and profile.active is None:
            addresses = [0 if m is None else m.address for m in memories]
            replayed = self.executable.replay(addresses, scalars, events)  # type: ignore[union-attr]
        if replayed is not None:
            ends, pending = replayed
        else:
            arenas = self._allocate(memories)
            ends = self._run(memories, scalars, events, arenas)
            pending = [e for e in dict.fromkeys([*events, *ends]) if e is not None and not e.query()]
        if self._passes_inputs:
            rows = zip(self.outputs, ends, strict=True)
            ends = [events[v] if self.plan.program.buffers[v].kind == "input" else end for (v, *_), end in rows]
        return ends, pending, arenas

    def _allocate(self, memories: list[Any]) -> list[Any]:
        """Memory of values that are passed on, and an arena of each device."""
        for v, device, nbytes in self._values:
            memories[v] = device.allocate(nbytes)
        sizes = zip(self.devices, self._arena_bytes, strict=True)
        return [device.allocate(nbytes) for device, nbytes in sizes]

    def _run(
        self,
        memories: list[Any],
        scalars: Sequence[Any],
        events: Events,
        arenas: Sequence[Any],
    ) -> Sequence[Event | None]:
        """The events of the outputs. arenas: of the devices."""
        after = [(v, event) for v, event in enumerate(events) if event is not None]
        meetings = _CallMeetings(self, memories, events) if self.collectives else None
        addresses = [0 if m is None else m.address for m in memories]
        addresses += [0] * (len(self.plan.offsets) - self.count)
        for v, home, at in self._temporaries:
            addresses[v] = arenas[home].address + at
        try:
            if self.executable is not None:
                ends: Sequence[Event | None] = self.executable.run(addresses, None, scalars, after, meetings)
            else:
                if meetings is not None:
                    meetings.start_all()
                ends = [events[v] for v, *_ in self.outputs]
        except BaseException:  # what has started uses the memory
            for device in self.devices if self.exchange is not None else ():
                device.synchronize()
            raise
        if meetings is not None:
            meetings.raise_first_disagreement(ends)
        if settings.engine == "sync":
            _wait_for_events_quietly(ends)
        return ends


def _buffers_read_by_peers(plan: Plan) -> set[int]:
    """What kernels of other devices than their own read."""
    buffers, found = plan.program.buffers, set[int]()
    for step in plan.steps:
        if isinstance(step, Launch) and not isinstance(plan.tasks[step.task].kernel, Collective):
            home = plan.homes[step.stream] if plan.homes else 0
            found |= {r.buffer for r in plan.tasks[step.task].reads if buffers[r.buffer].device != home}
    return found


def _arena_bytes(plan: Plan, count: int) -> list[int]:
    """Of each device."""
    found, buffers = [0] * count, plan.program.buffers
    for v, at in enumerate(plan.offsets):
        if at is not None:
            found[buffers[v].device] = max(found[buffers[v].device], at + buffers[v].nbytes)
    return found


def _numbers_taken(plan: Plan) -> tuple[bool, ...]:
    """Whether some task takes each of the program's numbers."""
    taken = {a.index for task in plan.tasks for a in task.arguments if isinstance(a, Scalar)}
    return tuple(i in taken for i in range(len(plan.program.scalars)))


class _CallMeetings(Meetings):
    """The collectives of one call. agreed: when all ranks have said that they run this plan, or on what they are to
    agree with the first one."""

    def __init__(self, owner: MultiDeviceExecutable, memories: Sequence[Any], events: Events) -> None:
        self._owner, self._memories, self._events = owner, memories, events
        communicator = owner.communicator
        self._arguments = () if communicator is None else tuple([e for e in events if e is not None])
        self._agreed: Event | Agreement | None = None
        self._ends: list[Event] = []  # of what was started
        if communicator is not None:
            self._agreed = (
                owner.agreement
                if owner.agrees_with_collective
                else communicator.agree(owner.agreement, self._arguments)
            )

    def promise(self) -> Any:
        assert self._owner.communicator is not None
        return self._owner.communicator.promise()

    def start(self, task: int, before: Event | None, promise: Any = None) -> Sequence[Event]:
        return self._start(task, [] if before is None else [before], promise)

    def start_all(self) -> None:
        """Of a plan of nothing else: each follows those whose results it reads."""
        for number, task in self._owner.collectives.items():
            before = [e for region in task.reads if (e := self._events[region.buffer]) is not None]
            ends = self._start(number, list(dict.fromkeys(before)), None)
            each = len(task.writes) // len(ends)
            for i, region in enumerate(task.writes):
                self._events[region.buffer] = ends[i // each]

    def raise_first_disagreement(self, events: Sequence[Event | None]) -> None:
        """Whether ranks differ is said at the first call of a plan, later at its results."""
        owner, agreed = self._owner, self._agreed
        if owner.agreed or agreed is None or isinstance(agreed, Agreement):
            return
        if (error := error_of_event(agreed)) is not None:
            for event in (*events, *self._ends):
                if event is not None:
                    with suppress(type(error)):  # nobody gets these results
                        event.wait()
            agreed.wait()
        owner.agreed = True

    def _start(self, number: int, before: Sequence[Event], promise: Any) -> Sequence[Event]:
        owner, task = self._owner, self._owner.collectives[number]
        kernel = task.kernel
        assert isinstance(kernel, Collective)
        doing = " + ".join(kernel.meanings)
        if owner.exchange is not None:
            return self._exchange(owner.exchange, task, kernel, before, doing)
        call, communicator = owner.calls[number], owner.communicator
        assert communicator is not None
        agreement = self._agreed if isinstance(self._agreed, Agreement) else None
        waited: Sequence[Any] = before if agreement or self._agreed is None else [self._agreed, *before]
        read, written = ([self._memories[r.buffer] for r in regions] for regions in (task.reads, task.writes))
        job = partial(call.run, waited, read, written, agreement, self._arguments)
        event = communicator.submit(job, doing, soon=call.nbytes > SMALL_BYTES, promise=promise)
        self._ends.append(event)
        if agreement is not None:
            self._agreed = event
        if settings.engine == "sync":
            _wait_for_events_quietly([event])
        return [event]

    def _exchange(
        self, exchange: DeviceCommunicator, task: Task, kernel: Collective, before: Sequence[Event], doing: str
    ) -> Sequence[Event]:
        """In the memory of devices: those of this process, or this rank's and the others'. What comes before has
        started, so the host may wait for the ranks."""
        owner, memories, made = self._owner, self._memories, list[Event]()
        sources, targets = ([memories[r.buffer] for r in regions] for regions in (task.reads, task.writes))
        parts = [
            CollectivePart(kernel.of_device(sources, d), kernel.of_device(targets, d), before)
            for d in range(kernel.devices)
        ]

        def start_on_devices() -> None:
            made[:] = exchange.start(kernel, parts, doing)
            for end in made:
                if (error := getattr(end, "error", None)) is not None:
                    if owner.communicator is not None:  # the other ranks wait for this one
                        raise error
                    unread_errors.carry_unread_error(error)
            if settings.engine == "sync":
                _wait_for_events_quietly(made)

        agreed, self._agreed = self._agreed, None
        if owner.communicator is None:
            start_on_devices()
        elif isinstance(agreed, Agreement):
            owner.communicator.run(agreed, start_on_devices)
        else:
            owner.communicator.perform(start_on_devices, doing)
        return made


def _wait_for_events_quietly(events: Sequence[Event | None]) -> None:
    """Whatever is in flight is over then. What failed, its results say."""
    for event in events:
        if event is not None:
            error_of_event(event)
