"""A plan over several devices made ready: each part prepared by its device; a run starts the steps in their order.

Nothing waits on the host: a part or copy is given the events of the values that it reads, which may be of another
device, and its own events are those of what it writes. Failures travel with the events.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..core.settings import settings
from ..program.device import Device, Event, Executable, error_of_event
from ..program.multi_device import CopyValue, MultiDevicePlan, RunPart
from ..program.plan import Plan

Prepare = Callable[[Device, Plan], Executable]


class MultiDeviceExecutable:
    """See `Executable`; memories are those of values. prepare: what makes a part ready, verified if need be."""

    def __init__(self, devices: Sequence[Device], plan: MultiDevicePlan, prepare: Prepare) -> None:
        self.plan, self._devices = plan, devices
        made: dict[tuple[int, int], Executable] = {}
        self._steps: list[tuple[Any, Any, tuple[Any, ...]]] = []
        for step in plan.steps:
            if isinstance(step, CopyValue):
                source, target = (devices[plan.values[v].device] for v in (step.source, step.target))
                self._steps.append((None, (source, target), (step.source, step.target)))
                continue
            key = step.part, step.device
            if key not in made:
                made[key] = prepare(devices[step.device], plan.parts[step.part])
            self._steps.append((made[key], step, self._buffers(plan.parts[step.part], step)))

    def _buffers(self, part: Plan, step: RunPart) -> tuple[Any, ...]:
        """The value of each buffer of a part's program, None for temporaries; (buffer, value) of what it reads; the
        bytes of its arena."""
        program = part.program
        given = dict(zip(program.inputs, step.reads, strict=True)) | dict(
            zip(program.outputs, step.writes, strict=True)
        )
        pairs = tuple(zip(program.inputs, step.reads, strict=True))
        return tuple(given.get(b) for b in range(len(program.buffers))), pairs, part.arena_bytes

    def run(
        self, memories: Sequence[Any], scalars: Sequence[Any], events: list[Event | None]
    ) -> tuple[list[Event | None], list[Any]]:
        """Start the plan once. memories: of each value. events: when each is there, None for what is, or is not yet.

        The events of all values, and memory beside theirs that must live until those have happened. Raises
        OutOfMemory before anything has started."""
        arenas = [
            None if executable is None or not more[2] else self._devices[step.device].allocate(more[2])
            for executable, step, more in self._steps
        ]
        plan = self.plan
        for (executable, step, more), arena in zip(self._steps, arenas, strict=True):
            if executable is None:
                (source, target), (read, written) = step, more
                nbytes = plan.values[read].nbytes
                events[written] = target.copy_from(source, memories[read], memories[written], nbytes, events[read])
                continue
            buffers, pairs, _ = more
            after = [(buffer, event) for buffer, v in pairs if (event := events[v]) is not None]
            found = executable.run(
                [None if v is None else memories[v].address for v in buffers],
                0 if arena is None else arena.address,
                [scalars[i] for i in step.scalars],
                after,
            )
            for v, event in zip(step.writes, found, strict=True):
                events[v] = event
            if settings.engine == "sync":
                for event in found:
                    _settle(event)
        return events, [arena for arena in arenas if arena is not None]


def _settle(event: Event) -> None:
    """Wait; what failed raises where it is read."""
    while not event.query():
        error_of_event(event)
