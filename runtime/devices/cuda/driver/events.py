"""Events of a GPU: the moment when launched work is done. Their handles are recycled."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from ....engine import unread_errors
from ....engine.native_call import native_maker_of_objects
from .driver import LOST, NOT_READY, SUCCESS


class CudaEvent:
    """Recorded on physical stream `stream` (a handle). `error` is set where the host knows that the work failed, `done`
    where it knows that it is over. line: what it happens in the order of: the events that a thread records there happen
    one after another; None where that is not known."""

    __slots__ = ("_pool", "done", "error", "handle", "line", "stream")
    captured = False  # whether it belongs to somebody's graph

    def __init__(self, pool: EventPool, handle: int, stream: int) -> None:
        self._pool, self.handle, self.stream, self.line = pool, handle, stream, pool.lines[stream]
        self.error: BaseException | None = None
        self.done = False

    @property
    def is_known_to_be_done(self) -> bool:
        """Whether somebody has seen it happen."""
        return self.done and self.error is None

    def query(self) -> bool:
        if not self.done:
            code = self._pool.query(self.handle)
            if code == NOT_READY:
                return False
            self._finish_with_result_code(code)
        return True

    def finish(self) -> None:
        """Another one, which was recorded behind it, has happened."""
        if not self.done:
            if self._pool.lost_code:
                self._finish_with_result_code(SUCCESS)
            self.done = True

    def wait(self) -> None:
        if not self.done and self.error is None:
            self._finish_with_result_code(self._pool.wait(self.handle))
        if self.error is not None:
            unread_errors.mark_error_read(self.error)
            raise self.error.with_traceback(None)  # else it grows with each wait

    def not_seen(self) -> None:
        """Whoever waited keeps the error to itself."""
        unread_errors.mark_error_unread(self.error)

    def _finish_with_result_code(self, code: int) -> None:
        code = code or self._pool.lost_code
        if code != SUCCESS and self.error is None:
            self.error = self._pool.failure(code, "work that was launched earlier")
            unread_errors.carry_unread_error(self.error)
        self.done = True

    def __del__(self) -> None:
        self._pool.free.append(self.handle)


def pending_gpu_events(events: Iterable[Any]) -> list[CudaEvent] | None:
    """Those that have not happened; None where one is of another kind of device, or of work that failed."""
    pending = []
    for event in events:
        if type(event) is CudaEvent:
            if not event.query():
                pending.append(event)
            if event.error is not None:
                return None
        elif event is not None:
            return None
    return pending


class EventPool:
    """Handles of events. An event's handle is free when its object dies: waits that were issued keep what they need.

    context: makes events and has the driver. timed: events that tell the time. failure(code, what) gives the exception
    for a result code.
    """

    def __init__(self, context: Any, failure: Any, timed: bool = False) -> None:
        self.free: list[int] = []
        self.lines: defaultdict[int, object] = defaultdict(object, {0: None})  # by stream; 0 is none that is known
        self.failure = failure
        self.query = context.driver.query
        self.wait = context.driver.synchronize_event
        self._record = context.driver.record
        self._make = context.timed_event if timed else context.event
        self._objects: list[Any] = []
        self.lost_code = SUCCESS  # of all events of a device whose work cannot be trusted any more

    def take(self, stream: int, kind: type[CudaEvent] = CudaEvent) -> CudaEvent:
        """An event that is to be recorded on the stream."""
        while True:
            try:
                return kind(self, self.free.pop(), stream)
            except IndexError:
                self.add_free_handle()

    def add_free_handle(self) -> None:
        """One more."""
        made = self._make()
        self._objects.append(made)
        self.free.append(int(made.handle))

    def maker(self, stream: int) -> Callable[[int], CudaEvent]:
        """make(handle) gives an event that is to be recorded on the stream. handle: one of those that are free."""
        others = {"_pool": self, "done": False, "error": None, "line": self.lines[stream], "stream": stream}
        made = native_maker_of_objects(CudaEvent, ("handle",), others)
        return made or (lambda handle: CudaEvent(self, handle, stream))

    def record(self, stream: int) -> CudaEvent:
        """The moment when all that was put on the stream before is done."""
        try:
            event = CudaEvent(self, self.free.pop(), stream)
        except IndexError:
            event = self.take(stream)
        code = self._record(event.handle, stream)
        if code:
            event.error = self.failure(code, "recording an event")
        return event


def is_cuda_context_lost(code: int) -> bool:
    """Whether a result code means that the context cannot be used any more."""
    return code in LOST
