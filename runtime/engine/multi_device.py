"""A plan over several devices made ready. Each section is prepared by its device; a run starts them in their order.

Nothing waits on the host: a section or copy is given the events of the values that it reads, which may be of another
device, and its own events are those of what it writes. Failures travel with the events.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from ..core import profile
from ..core.frozen import dataclass
from ..core.settings import settings
from ..program.device import (
    CollectivePart,
    Device,
    DeviceCommunicator,
    Event,
    Executable,
    MultiDeviceReplay,
    error_of_event,
)
from ..program.plan import Plan
from ..program.sections import DeviceCopy, Meeting, PlanPart, Section, sections_of_plan
from . import unread_errors
from .collective_calls import EngineCollectiveCall, rank_collective_lines_of_plan
from .communicator import SMALL_BYTES, Agreement, EngineCommunicator, rank_agreement_on_collectives

REPLAYS = 4  # of one plan: for calls whose arrays are on the same devices
Prepare = Callable[[Device, Plan], Executable]
Events = list[Event | None]


@dataclass(frozen=True, slots=True)
class PreparedPart:
    """A section on its device. reads: (its own buffer, the plan's) of what it reads."""

    executable: Executable
    device: Device
    section: Section
    reads: tuple[tuple[int, int], ...]

    def start(self, memories: Sequence[Any], arena: Any, scalars: Sequence[Any], events: Events) -> None:
        section = self.section
        after = [(buffer, event) for buffer, v in self.reads if (event := events[v]) is not None]
        addresses = [None if v is None else memories[v].address for v in section.buffers]
        numbers = [scalars[i] for i in section.scalars]
        found = self.executable.run(addresses, 0 if arena is None else arena.address, numbers, after)
        for v, event in zip(section.writes, found, strict=True):
            events[v] = event
            if settings.engine == "sync":
                _wait_for_engine_event_quietly(event)


@dataclass(frozen=True, slots=True)
class PreparedDeviceCopy:
    """A copy between the buffers of a step, from device `source` to device `target`."""

    source: Device
    target: Device
    step: DeviceCopy
    nbytes: int

    def start(self, memories: Sequence[Any], arena: Any, scalars: Sequence[Any], events: Events) -> None:
        read, written = self.step.source, self.step.target
        events[written] = self.target.copy_from(
            self.source, memories[read], memories[written], self.nbytes, events[read]
        )


@dataclass(frozen=True, slots=True)
class PreparedDeviceCollective:
    """A collective of this rank and all others."""

    call: EngineCollectiveCall
    step: Meeting
    communicator: EngineCommunicator
    doing: str

    def start_after(
        self, agreed: Event | Agreement | None, arguments: Sequence[Event], memories: Sequence[Any], events: Events
    ) -> Event | None:
        """agreed: the event when the ranks have, or on what they are to agree first. arguments: when those of the call
        are there. The event when the ranks have agreed."""
        call, step = self.call, self.step
        agreement = agreed if isinstance(agreed, Agreement) else None
        given = [events[v] for v in step.reads] if agreement else [agreed, *(events[v] for v in step.reads)]
        before: list[Any] = [e for e in given if e is not None]
        blocks = [memories[v] for v in step.reads], [memories[v] for v in step.writes]
        job = partial(call.run, before, *blocks, agreement, arguments)
        event = self.communicator.submit(job, self.doing, soon=call.nbytes > SMALL_BYTES)
        for v in step.writes:
            events[v] = event
        if settings.engine == "sync":
            _wait_for_engine_event_quietly(event)
        return event if agreement is not None else agreed  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class PreparedDeviceExchange:
    """A collective in the memory of devices: those of this process, or (communicator) this rank's and the others'."""

    step: Meeting
    exchange: DeviceCommunicator
    communicator: EngineCommunicator | None
    doing: str

    def start_after(
        self, agreed: Event | Agreement | None, arguments: Sequence[Event], memories: Sequence[Any], events: Events
    ) -> None:
        """agreed: see `PreparedDeviceCollective`; what comes before has started, so the host may wait for the ranks."""
        communicator = self.communicator
        if communicator is None:
            self._start_on_devices(memories, events)
        elif isinstance(agreed, Agreement):
            communicator.run(agreed, lambda: self._start_on_devices(memories, events))
        else:
            communicator.perform(lambda: self._start_on_devices(memories, events), self.doing)

    def _start_on_devices(self, memories: Sequence[Any], events: Events) -> None:
        step, kernel = self.step, self.step.kernel
        reads, writes = ([kernel.of_device(vs, d) for d in range(kernel.devices)] for vs in (step.reads, step.writes))
        parts = [
            CollectivePart(
                [memories[v] for v in read],
                [memories[v] for v in written],
                [e for v in read if (e := events[v]) is not None],
            )
            for read, written in zip(reads, writes, strict=True)
        ]
        ends = self.exchange.start(kernel, parts, self.doing)
        for vs, end in zip(writes, ends, strict=True):
            if (error := getattr(end, "error", None)) is not None:
                if self.communicator is not None:  # the other ranks wait for this one
                    raise error
                unread_errors.carry_unread_error(error)
            for v in vs:
                events[v] = end
            if settings.engine == "sync":
                _wait_for_engine_event_quietly(end)


class MultiDeviceExecutable:
    """What runs a plan on its devices. prepare: makes a section ready, verified if need be. communicator: of the ranks
    that the plan's collectives are of. exchange: what does these between devices, if anything does."""

    def __init__(
        self,
        devices: Sequence[Device],
        plan: Plan,
        prepare: Prepare,
        communicator: EngineCommunicator | None = None,
        exchange: DeviceCommunicator | None = None,
    ) -> None:
        self.plan = plan
        self._exchange = exchange
        self.devices = devices
        buffers = plan.program.buffers
        self.count = 1 + max((b for b, buffer in enumerate(buffers) if buffer.kind != "temp"), default=-1)
        self._buffers = buffers[: self.count]  # that steps have in common, and few others
        self.executables: dict[tuple[Plan, int], Executable] = {}
        self._communicator = communicator if plan.ranks > 1 else None
        self._agreed = False
        self._collectives = bool(plan.collectives)
        lines = rank_collective_lines_of_plan(plan)
        self._agreement = rank_agreement_on_collectives(lines, lines[0])
        self._steps = [self._prepare_step(step, prepare) for step in sections_of_plan(plan)]
        first = next((step for step in self._steps if isinstance(step, PreparedDeviceCollective)), None)
        rows = [(v, devices[b.device], b) for v, b in enumerate(self._buffers)]
        outputs = plan.program.outputs
        sections = [step.section for step in self._steps if isinstance(step, PreparedPart)]
        shared = {v for section in sections for v in section.reads if self._buffers[v].device != section.device}
        # (buffer, device, which array of the call, whether it is a result, whether other devices read it);
        # (buffer, device, bytes); (buffer, device, whether it comes for the first time)
        self.given = tuple((v, device, b.source, v in outputs, v in shared) for v, device, b in rows if b.source >= 0)
        self.results = tuple((v, device, max(1, b.nbytes)) for v, device, b in rows if b.kind == "output")
        self.outputs = tuple((v, rows[v][1], v not in outputs[:i]) for i, v in enumerate(outputs))
        self.nbytes = sum(b.nbytes for b in self._buffers if b.kind in ("input", "output"))
        self._replays: dict[tuple[tuple[int, int], ...], MultiDeviceReplay | None] = {}  # by what is elsewhere
        self._may_replay = communicator is None and exchange is None
        small = first is not None and (first is self._steps[0] or first.call.fits_agreement)
        self._agrees_with_collective = small or exchange is not None

    def _prepare_step(
        self, step: PlanPart, prepare: Prepare
    ) -> PreparedPart | PreparedDeviceCopy | PreparedDeviceCollective | PreparedDeviceExchange:
        if isinstance(step, Section):
            return self._prepare_section(step, prepare)
        if isinstance(step, DeviceCopy):
            source, target = self._buffers[step.source], self._buffers[step.target]
            return PreparedDeviceCopy(
                self.devices[source.device], self.devices[target.device], step, max(1, target.nbytes)
            )
        doing = " + ".join(step.kernel.meanings)
        if self._exchange is not None:
            return PreparedDeviceExchange(step, self._exchange, self._communicator, doing)
        assert self._communicator is not None
        call = EngineCollectiveCall(step.kernel, self.devices[self._buffers[step.reads[0]].device], self._communicator)
        return PreparedDeviceCollective(call, step, self._communicator, doing)

    def _agree_with_ranks_on_plan(self, arguments: Sequence[Event]) -> Event | Agreement | None:
        """All ranks are about to run this plan. They say so with the first collective, if it is small, else before it:
        while the first part runs, if there is one. Whether it is small follows from what they agree on."""
        communicator = self._communicator
        if communicator is None or not self._collectives:
            return None
        return self._agreement if self._agrees_with_collective else communicator.agree(self._agreement, arguments)

    def _raise_first_disagreement(self, agreed: Any, events: Events) -> None:
        """Whether ranks differ is said at the first call of a plan, later at its results."""
        if (error := error_of_event(agreed)) is not None:
            for event in events:
                if event is not None:
                    with suppress(type(error)):  # nobody gets these results
                        event.wait()
            agreed.wait()
        self._agreed = True

    def _prepare_section(self, section: Section, prepare: Prepare) -> PreparedPart:
        key, device = (section.plan, section.device), self.devices[section.device]
        if key not in self.executables:
            self.executables[key] = prepare(device, section.plan)
        reads = tuple(zip(section.plan.program.inputs, section.reads, strict=True))
        return PreparedPart(self.executables[key], device, section, reads)

    def run(
        self, memories: list[Any], scalars: Sequence[Any], events: Events, elsewhere: Sequence[tuple[int, Device]] = ()
    ) -> tuple[Events, Sequence[Event], Sequence[Any]]:
        """Start the plan once. memories: of the buffers that a call brings or gets, None for others. events: when each
        is there, None for what is, or is not yet. elsewhere: buffers that lie on another device than their own, and
        where.

        The events of all buffers, those of them that may not have happened, and memory beside that of the call that
        must live until they have. Raises OutOfMemory before anything has started; where a step cannot start, what has
        is waited for."""
        if self._may_replay and settings.engine == "async" and profile.active is None:
            replay = self._replay_of_calls(elsewhere)
            if replay is not None and (done := replay.run(memories, scalars, events)) is not None:
                buffers = self.plan.program.buffers
                for v, _, _ in self.results:
                    events[v] = done[buffers[v].device]
                return events, tuple(dict.fromkeys(filter(None, done))), ()
        kept = self._issue_steps(memories, scalars, events, elsewhere)
        return events, [e for e in dict.fromkeys(events) if e is not None and not e.query()], kept

    def _replay_of_calls(self, elsewhere: Sequence[tuple[int, Device]]) -> MultiDeviceReplay | None:
        """Of calls whose arrays are where this one's are."""
        key = tuple((v, device.index) for v, device in elsewhere) if elsewhere else ()
        if key not in self._replays and len(self._replays) < REPLAYS:
            self._replays[key] = self.devices[0].make_multi_device_replay(self.devices, self.plan, dict(elsewhere))
        return self._replays.get(key)

    def _issue_steps(
        self, given: list[Any], scalars: Sequence[Any], events: Events, elsewhere: Sequence[tuple[int, Device]]
    ) -> list[Any]:
        """Write the events of all buffers. Memory beside the call's that is in use."""
        buffers, devices = self._buffers, self.devices
        memories = [
            devices[b.device].allocate(max(1, b.nbytes)) if memory is None and b.kind == "value" else memory
            for memory, b in zip(given, buffers, strict=True)
        ]
        arenas = [
            step.device.allocate(nbytes)
            if isinstance(step, PreparedPart) and (nbytes := step.section.plan.arena_bytes)
            else None
            for step in self._steps
        ]
        for v, _ in elsewhere:
            memories[v] = devices[buffers[v].device].allocate(buffers[v].nbytes)
        arguments = () if self._communicator is None else tuple([e for e in events if e is not None])
        agreed = self._agree_with_ranks_on_plan(arguments)
        try:
            for v, home in elsewhere:
                target = devices[buffers[v].device]
                events[v] = target.copy_from(home, given[v], memories[v], buffers[v].nbytes, events[v])
            for step, arena in zip(self._steps, arenas, strict=True):
                if isinstance(step, PreparedDeviceCollective):
                    agreed = step.start_after(agreed, arguments, memories, events)
                elif isinstance(step, PreparedDeviceExchange):
                    step.start_after(agreed, arguments, memories, events)
                    agreed = None
                else:
                    step.start(memories, arena, scalars, events)
        except BaseException:  # what has started uses the memory
            _wait_for_events_quietly(events)
            raise
        if not self._agreed and agreed is not None:
            self._raise_first_disagreement(agreed, events)
        own = [memory for memory, before in zip(memories, given, strict=True) if memory is not before]
        return [*own, *(arena for arena in arenas if arena is not None)]


def _wait_for_events_quietly(events: Events) -> None:
    for event in events:
        if event is not None:
            _wait_for_engine_event_quietly(event)


def _wait_for_engine_event_quietly(event: Event) -> None:
    """Wait; what failed raises where it is read."""
    if not event.query():
        error_of_event(event)
