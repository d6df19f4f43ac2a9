"""An event that Python completes. Work of the native engine waits for it as for any other: no thread sits there.

It is the event of a run that has no steps: whoever made the promise writes the words that a run's end would write.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ..program.device import Event
from . import unread_errors
from .engine import NativeEngine, allocate_aligned_words, engine_of_process
from .run import EngineFailedEvent, EngineRunEvent, NativeRun
from .words import records as e

_EVENT = e.RUN_BYTES  # where the event lies in the record


class _Record:
    """The native words of a promise: a run's without streams, and one event."""

    __slots__ = ("_owner", "address", "gated", "words")

    def __init__(self) -> None:
        self._owner, self.address, self.words = allocate_aligned_words((e.RUN_BYTES + e.EVENT_BYTES) // 8)
        self.gated = False


Help = Callable[[Event], None]  # does what an event waits for, if whoever is to do it has not begun


def _wait_for_engine_event_alone(event: Event) -> None:
    """Whoever waits for it does nothing else."""


class _PromiseEvent(EngineRunEvent):
    """The event of a promise: who waits for it helps."""

    __slots__ = ()

    def wait(self) -> None:
        promise: Any = self.run.owner
        if promise is not None and not self.query():
            promise.help(self)
        super().wait()


class EnginePromise:
    """event: what happens when `complete` is called, once. help: what whoever waits for it does first."""

    __slots__ = ("_engine", "_run", "event", "help")

    def __init__(self, engine: NativeEngine, help: Help = _wait_for_engine_event_alone) -> None:
        free = engine.free_promises
        self._engine, self.help = engine, help
        record: Any = free.pop() if free else _Record()
        self._run = NativeRun(engine, record, free, self)
        self.event = _PromiseEvent(self._run, _EVENT, 0)
        engine.runs[self._run.number] = self._run

    def host_step(self, task: int, addresses: Any, scalars: Any) -> None:
        """There are no steps."""

    def complete(self, error: BaseException | None = None, unread: bool = True) -> None:
        """The event happens. With an error it poisons what waits for it. unread: say so at exit if nobody has read
        it."""
        run, engine, cause = self._run, self._engine, 0
        if error is not None:
            cause = next(engine.causes)
            run.failures[cause] = make_engine_failed_event(error, unread)
        run.record.words[e.RUN_FAILED // 8] = cause
        address, number = run.record.address, run.number
        engine.native.record_native_event(engine.address, address + _EVENT, number, cause)
        engine.native.record_native_event(engine.address, address + e.RUN_EVENT, number, 0)
        run.record.words[e.RELEASED // 8] = number
        run.owner = None  # type: ignore[assignment]  # so that no circle keeps its record
        engine.runs.pop(number, None)


def make_engine_failed_event(error: BaseException, unread: bool) -> EngineFailedEvent:
    return EngineFailedEvent(error, unread_errors.keep_unread_error(error) if unread else 0)


class PythonPromise:
    """The same where there is no native engine; its event is one of Python's."""

    def __init__(self, help: Help = _wait_for_engine_event_alone) -> None:
        self.event, self.help = self, help
        self.failure: EngineFailedEvent | None = None
        self._done = threading.Event()

    def complete(self, error: BaseException | None = None, unread: bool = True) -> None:
        if error is not None:
            self.failure = make_engine_failed_event(error, unread)
        self._done.set()

    def query(self) -> bool:
        return self._done.is_set()

    def finish(self) -> None:
        self._done.wait()

    def wait(self) -> None:
        self.help(self)
        self._done.wait()
        if self.failure is not None:
            self.failure.raise_error()


def make_promise(help: Help = _wait_for_engine_event_alone) -> EnginePromise | PythonPromise:
    """help: see `EnginePromise`."""
    engine = engine_of_process()
    return PythonPromise(help) if engine is None or not engine.start() else EnginePromise(engine, help)
