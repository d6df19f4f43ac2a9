"""Streams that callers put calls on. A queue of events, for devices whose work runs as soon as it can.

Such a stream holds no work: it knows the events of what was put on it last, and each call follows those.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ...engine.run import EngineRunEvent
from ...engine.words.records import ENDED
from ...program.device import error_of_event

Events = tuple[Any, ...]


class CPUStreamEvent:
    """The moment when all that was on a stream is done."""

    __slots__ = ("_at", "_events")

    def __init__(self, events: Events) -> None:
        self._events, self._at = events, time.monotonic_ns()

    @property
    def events(self) -> Events:
        return self._events

    def query(self) -> bool:
        return all(event.query() for event in self._events)

    def wait(self) -> None:
        """What failed raises where its arrays are read, not here."""
        for event in self._events:
            error_of_event(event)

    def nanoseconds(self) -> int:
        """When it happened, by the monotonic clock: what it waits for is over."""
        self.wait()
        return max((self._at, *map(_cpu_run_completion_nanoseconds, self._events)))


def _cpu_run_completion_nanoseconds(event: Any) -> int:
    if not isinstance(event, EngineRunEvent):
        return 0
    with suppress(Exception):
        event.finish()
    return int(event.run.record.words[ENDED // 8])


class CPUStream:
    """See `Stream` in `runtime/program/device.py`."""

    handle = 0
    capturing = False

    def __init__(self, priority: int = 0) -> None:
        self.priority = priority
        self._tail: Events = ()

    def fork(self, after: list[tuple[int, Any]], buffers: int) -> Events:
        pending = self._pending_events()
        after += [(buffer, event) for event in pending for buffer in range(buffers)]
        return pending

    def join(self, events: Sequence[Any], forked: Events, kept: Sequence[Any]) -> None:
        own = tuple(event for event in dict.fromkeys(events) if not event.query())
        if own:
            self._tail = (*(event for event in self._pending_events() if event not in forked), *own)

    def record(self) -> CPUStreamEvent:
        return CPUStreamEvent(self._pending_events())

    def wait(self, event: Any) -> None:
        new = event.events if isinstance(event, CPUStreamEvent) else (event,)
        self._tail = (*self._pending_events(), *(each for each in new if not each.query()))

    def query(self) -> bool:
        return not self._pending_events()

    def synchronize(self) -> None:
        CPUStreamEvent(self._pending_events()).wait()

    def _pending_events(self) -> Events:
        self._tail = tuple(event for event in self._tail if not event.query())
        return self._tail


def milliseconds_between_cpu_events(start: CPUStreamEvent, end: CPUStreamEvent) -> float:
    """From one event to another; waits for both."""
    return (end.nanoseconds() - start.nanoseconds()) / 1e6
