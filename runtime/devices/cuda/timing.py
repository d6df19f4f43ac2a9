"""How long runs take on a GPU. A timed run has the device to itself, between two events that tell the time.

On an idle device it is issued as any run is, and its time is what a caller waits for who needs the results, launches
and all. On a busy one it waits for its first event: its time is that of the device, or of the host if that is slower.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

from .driver.driver import NOT_READY, SUCCESS
from .driver.events import CudaEvent, EventPool


class CudaRunTiming:
    """See `Timing` in `runtime/program/device.py`."""

    def __init__(self, driver: Any, start: CudaEvent, end: CudaEvent, counts: bool) -> None:
        self._driver, self._start, self._end, self._counts = driver, start, end, counts

    def query(self) -> float | None:
        if not self._counts or self._end.error is not None:
            return math.nan
        if not self._end.query():
            return None
        code, found = self._driver.elapsed(self._start.handle, self._end.handle)
        return found if code == SUCCESS else math.nan


class CudaTimedRunClock:
    """Starts timed runs when all that was launched before is done. What is launched after them waits for their end."""

    def __init__(self, context: Any, failure: Any, stream: int, streams: Callable[[], Sequence[int]]) -> None:
        """stream: of its own. streams: all that work is launched on."""
        self._driver, self._stream, self._streams = context.driver, stream, streams
        self._marks = EventPool(context, failure)
        self._events = EventPool(context, failure, timed=True)
        self.lock = threading.Lock()  # of timed runs
        self.runs = 0  # of the device, timed or not
        self.end: CudaEvent | None = None  # of the latest timed run, until that is known to be over

    def start(self, after: Sequence[tuple[int, Any]]) -> tuple[CudaEvent, bool]:
        """The moment when the device is free and what is to be waited for is done; whether that is so already, so that
        nothing has to wait for the moment."""
        idle = True
        for stream in self._streams():
            if self._driver.query_stream(stream) == NOT_READY:
                self._make_launches_follow(self._marks.record(stream))
                idle = False
        for _, event in after:
            if not isinstance(event, CudaEvent):
                idle = False
            elif event.error is None and not event.query():
                self._make_launches_follow(event)
                idle = False
        return self._events.record(self._stream), idle

    def stop(self, start: CudaEvent, events: Sequence[Any], counts: bool) -> CudaRunTiming:
        """The time from `start` until the events have happened."""
        for event in set(events):
            counts = counts and event.error is None
            self._make_launches_follow(event)
        self.end = self._events.record(self._stream)
        return CudaRunTiming(self._driver, start, self.end, counts)

    def pending(self) -> CudaEvent | None:
        """The end of a timed run that may still be on."""
        if self.end is not None and self.end.query():
            self.end = None
        return self.end

    def _make_launches_follow(self, event: CudaEvent) -> None:
        self._driver.wait(self._stream, event.handle, 0)
