"""An event that Python completes, which work of the native engine waits for as for any other: no thread sits there.

It is the event of a run that has no steps: whoever made the promise writes the words that a run's end would write.
"""

from __future__ import annotations

import threading
from typing import Any

from . import unread_errors
from .engine import Engine, allocate_aligned_words, engine_of_process
from .run import FailedEvent, NativeRun, RunEvent
from .words import records as e

_EVENT = e.RUN_BYTES  # where the event lies in the record


class _Record:
    """The native words of a promise: a run's without streams, and one event."""

    __slots__ = ("_owner", "address", "gated", "words")

    def __init__(self) -> None:
        self._owner, self.address, self.words = allocate_aligned_words((e.RUN_BYTES + e.EVENT_BYTES) // 8)
        self.gated = False


class Promise:
    """event: what happens when `complete` is called, once."""

    __slots__ = ("_engine", "_run", "event")

    def __init__(self, engine: Engine) -> None:
        free: list[Any] = []
        self._engine = engine
        self._run = NativeRun(engine, _Record(), free, self)  # type: ignore[arg-type]
        self.event = RunEvent(self._run, _EVENT, 0)
        engine.runs[self._run.number] = self._run

    def host_step(self, task: int, addresses: Any, scalars: Any) -> None:
        """There are no steps."""

    def complete(self, error: BaseException | None = None, unread: bool = True) -> None:
        """The event happens; with an error it poisons what waits for it. unread: say so at exit if nobody has read
        it."""
        run, engine, cause = self._run, self._engine, 0
        if error is not None:
            cause = next(engine.causes)
            run.failures[cause] = make_failed_event(error, unread)
        run.record.words[e.RUN_FAILED // 8] = cause
        address, number = run.record.address, run.number
        engine.native.record_event(engine.address, address + _EVENT, number, cause)
        engine.native.record_event(engine.address, address + e.RUN_EVENT, number, 0)
        run.record.words[e.RELEASED // 8] = number


def make_failed_event(error: BaseException, unread: bool) -> FailedEvent:
    return FailedEvent(error, unread_errors.keep_unread_error(error) if unread else 0)


class PlainPromise:
    """The same where there is no native engine; its event is one of Python's."""

    def __init__(self) -> None:
        self.event = self
        self.failure: FailedEvent | None = None
        self._done = threading.Event()

    def complete(self, error: BaseException | None = None, unread: bool = True) -> None:
        if error is not None:
            self.failure = make_failed_event(error, unread)
        self._done.set()

    def query(self) -> bool:
        return self._done.is_set()

    def finish(self) -> None:
        self._done.wait()

    def wait(self) -> None:
        self._done.wait()
        if self.failure is not None:
            self.failure.raise_error()


def make_promise() -> Promise | PlainPromise:
    engine = engine_of_process()
    return PlainPromise() if engine is None or not engine.start() else Promise(engine)
