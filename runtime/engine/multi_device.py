"""A plan over several devices made ready. Each part is prepared by its device; a run starts the steps in their order.

Nothing waits on the host: a part or copy is given the events of the values that it reads, which may be of another
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
from ..program.multi_device import Collective, CopyValue, MultiDevicePlan, RunPart
from ..program.plan import Plan
from . import unread_errors
from .collective_calls import EngineCollectiveCall, rank_collective_lines_of_plan
from .communicator import SMALL_BYTES, Agreement, EngineCommunicator, rank_agreement_on_collectives

REPLAYS = 4  # of one plan: for calls whose arrays are on the same devices
Prepare = Callable[[Device, Plan], Executable]
Events = list[Event | None]


@dataclass(frozen=True, slots=True)
class PreparedPart:
    """A part on its device. values: of each buffer of its program, None for temporaries. reads: (buffer, value) of what
    it reads; writes: values; scalars: which of the call's numbers are its own; arena: bytes."""

    executable: Executable
    device: Device
    values: tuple[int | None, ...]
    reads: tuple[tuple[int, int], ...]
    writes: tuple[int, ...]
    scalars: tuple[int, ...]
    arena: int

    def start(self, memories: Sequence[Any], arena: Any, scalars: Sequence[Any], events: Events) -> None:
        after = [(buffer, event) for buffer, v in self.reads if (event := events[v]) is not None]
        addresses = [None if v is None else memories[v].address for v in self.values]
        numbers = [scalars[i] for i in self.scalars]
        found = self.executable.run(addresses, 0 if arena is None else arena.address, numbers, after)
        for v, event in zip(self.writes, found, strict=True):
            events[v] = event
            if settings.engine == "sync":
                _wait_for_engine_event_quietly(event)


@dataclass(frozen=True, slots=True)
class PreparedDeviceCopy:
    """A copy of value `read` on device `source` to value `write` on device `target`."""

    source: Device
    target: Device
    read: int
    write: int
    nbytes: int

    def start(self, memories: Sequence[Any], arena: Any, scalars: Sequence[Any], events: Events) -> None:
        given, after = memories[self.read], events[self.read]
        events[self.write] = self.target.copy_from(self.source, given, memories[self.write], self.nbytes, after)


@dataclass(frozen=True, slots=True)
class PreparedDeviceCollective:
    """A collective of this rank and all others."""

    call: EngineCollectiveCall
    communicator: EngineCommunicator
    doing: str

    def start_after(
        self, agreed: Event | Agreement | None, arguments: Sequence[Event], memories: Sequence[Any], events: Events
    ) -> Event | None:
        """agreed: the event when the ranks have, or on what they are to agree first. arguments: when those of the call
        are there. The event when the ranks have agreed."""
        call, step = self.call, self.call.step
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

    step: Collective
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
        step, devices = self.step, range(self.step.devices)
        reads, writes = ([step.of_device(vs, d) for d in devices] for vs in (step.reads, step.writes))
        parts = [
            CollectivePart(
                [memories[v] for v in read],
                [memories[v] for v in written],
                [e for v in read if (e := events[v]) is not None],
            )
            for read, written in zip(reads, writes, strict=True)
        ]
        ends = self.exchange.start(step, parts, self.doing)
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
    """What runs a plan on its devices. prepare: makes a part ready, verified if need be. communicator: of the ranks
    that the plan's collectives are of. exchange: what does these between devices, if anything does."""

    def __init__(
        self,
        devices: Sequence[Device],
        plan: MultiDevicePlan,
        prepare: Prepare,
        communicator: EngineCommunicator | None = None,
        exchange: DeviceCommunicator | None = None,
    ) -> None:
        self.plan = plan
        self._exchange = exchange
        self.devices = devices
        self._executables: dict[tuple[int, int], Executable] = {}
        self._communicator = communicator if plan.ranks > 1 else None
        self._agreed = False
        self._collectives = bool(plan.collectives)
        lines = rank_collective_lines_of_plan(plan)
        self._agreement = rank_agreement_on_collectives(lines, lines[0])
        self._steps = [
            self._prepare_copy(step)
            if isinstance(step, CopyValue)
            else self._prepare_part(step, prepare)
            if isinstance(step, RunPart)
            else self._prepare_collective(step)
            for step in plan.steps
        ]
        first = next((step for step in self._steps if isinstance(step, PreparedDeviceCollective)), None)
        rows = [(v, devices[value.device], value) for v, value in enumerate(plan.values)]
        runs = [step for step in plan.steps if isinstance(step, RunPart)]
        shared = {v for step in runs for v in step.reads if plan.values[v].device != step.device}
        # (value, device, which array of the call, whether it is a result, whether other devices read it);
        # (value, device, bytes); (value, device, whether it comes for the first time)
        self.given = tuple(
            (v, device, x.source, v in plan.outputs, v in shared) for v, device, x in rows if x.source >= 0
        )
        self.results = tuple((v, device, x.nbytes) for v, device, x in rows if x.source < 0 and v in plan.outputs)
        self.outputs = tuple(
            (v, devices[plan.values[v].device], v not in plan.outputs[:i]) for i, v in enumerate(plan.outputs)
        )
        self.nbytes = sum(x.nbytes for v, _, x in rows if x.source >= 0 or v in plan.outputs)
        self._replays: dict[tuple[tuple[int, int], ...], MultiDeviceReplay | None] = {}  # by what is elsewhere
        self._may_replay = communicator is None and exchange is None
        small = first is not None and (first is self._steps[0] or first.call.fits_agreement)
        self._agrees_with_collective = small or exchange is not None

    def _prepare_collective(self, step: Collective) -> PreparedDeviceCollective | PreparedDeviceExchange:
        doing = " + ".join(step.meanings)
        if self._exchange is not None:
            return PreparedDeviceExchange(step, self._exchange, self._communicator, doing)
        assert self._communicator is not None
        device = self.devices[self.plan.values[step.reads[0]].device]
        return PreparedDeviceCollective(
            EngineCollectiveCall(step, device, self._communicator), self._communicator, doing
        )

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

    def _prepare_copy(self, step: CopyValue) -> PreparedDeviceCopy:
        source, target = self.plan.values[step.source], self.plan.values[step.target]
        devices = self.devices[source.device], self.devices[target.device]
        return PreparedDeviceCopy(*devices, step.source, step.target, target.nbytes)

    def _prepare_part(self, step: RunPart, prepare: Prepare) -> PreparedPart:
        device, part = self.devices[step.device], self.plan.parts[step.part]
        key = step.part, step.device
        if key not in self._executables:
            self._executables[key] = prepare(device, part)
        program = part.program
        reads = tuple(zip(program.inputs, step.reads, strict=True))
        held = dict((*reads, *zip(program.outputs, step.writes, strict=True)))
        values = tuple(held.get(b) for b in range(len(program.buffers)))
        executable = self._executables[key]
        return PreparedPart(executable, device, values, reads, step.writes, step.scalars, part.arena_bytes)

    def run(
        self, memories: list[Any], scalars: Sequence[Any], events: Events, elsewhere: Sequence[tuple[int, Device]] = ()
    ) -> tuple[Events, Sequence[Event], Sequence[Any]]:
        """Start the plan once. memories: of the values that a call brings or gets, None for others. events: when each
        is there, None for what is, or is not yet. elsewhere: values that lie on another device than their own, and
        where.

        The events of all values, those of them that may not have happened, and memory beside that of the call that must
        live until they have. Raises OutOfMemory before anything has started; where a step cannot start, what has is
        waited for."""
        if self._may_replay and settings.engine == "async" and profile.active is None:
            replay = self._replay_of_calls(elsewhere)
            if replay is not None and (done := replay.run(memories, scalars, events)) is not None:
                values = self.plan.values
                for v, _, _ in self.results:
                    events[v] = done[values[v].device]
                return events, tuple(dict.fromkeys(filter(None, done))), ()
        kept = self._issue_steps(memories, scalars, events, elsewhere)
        return events, [e for e in dict.fromkeys(events) if e is not None and not e.query()], kept

    def _replay_of_calls(self, elsewhere: Sequence[tuple[int, Device]]) -> MultiDeviceReplay | None:
        """Of calls whose arrays are where this one's are."""
        key = tuple((v, device.index) for v, device in elsewhere) if elsewhere else ()
        if key not in self._replays and len(self._replays) < REPLAYS:
            parts = [step for step in self._steps if isinstance(step, PreparedPart)]
            self._replays[key] = self.devices[0].make_multi_device_replay(
                self.devices, self.plan, parts, dict(elsewhere)
            )
        return self._replays.get(key)

    def _issue_steps(
        self, given: list[Any], scalars: Sequence[Any], events: Events, elsewhere: Sequence[tuple[int, Device]]
    ) -> list[Any]:
        """Write the events of all values. Memory beside the call's that is in use."""
        values, devices = self.plan.values, self.devices
        memories = [
            devices[value.device].allocate(value.nbytes) if memory is None else memory
            for memory, value in zip(given, values, strict=True)
        ]
        arenas = [
            step.device.allocate(step.arena) if isinstance(step, PreparedPart) and step.arena else None
            for step in self._steps
        ]
        for v, _ in elsewhere:
            memories[v] = devices[values[v].device].allocate(values[v].nbytes)
        arguments = () if self._communicator is None else tuple([e for e in events if e is not None])
        agreed = self._agree_with_ranks_on_plan(arguments)
        try:
            for v, home in elsewhere:
                target = devices[values[v].device]
                events[v] = target.copy_from(home, given[v], memories[v], values[v].nbytes, events[v])
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
