"""One call of a plan in flight on the native engine. What keeps it alive, its events, and the errors that poison them.

A `RunRecord` is the native memory of one call; the numbers of calls grow, so a record is used again without being
reset. A `NativeRun` holds a record for as long as anybody holds an event of it, and the runs that it waits for as long
as they last.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from ..core.errors import KernelGraphError
from ..program.device import error_of_event
from . import unread_errors
from .deferred_interrupt import raise_error_of_signal_handler
from .encode_plan import PlanLayout
from .engine import BROKEN_OFF, HAPPENED, PYTHON_STEP, NativeEngine, allocate_aligned_words
from .words import records as e

_ENDED_EARLY = "Ctrl-C, or a signal handler that raised, ended a loop of this work: it has no result"


class RunOwner(Protocol):
    """An executable, as its runs see it: it owns the native steps and the kernels."""

    def host_step(self, task: int, addresses: Sequence[int], scalars: Sequence[Any]) -> None:
        """Do a task that needs Python; addresses are those of all buffers, scalars the call's."""
        ...


class EngineFailedEvent:
    """An exception that is raised again at every wait. Each time it is from where it was raised first.

    number: that of an error that is printed at exit, if nobody has seen it by then."""

    __slots__ = ("_text", "error", "number", "traceback")

    def __init__(self, error: BaseException, number: int = 0) -> None:
        self.error = error
        self.number = number
        self.traceback = error.__traceback__
        self._text = ""

    def not_seen(self) -> None:
        """Whoever it was thrown to keeps it to itself."""
        unread_errors.put_back_unread_error(self.number, self._text)

    def raise_error(self) -> None:
        self._text = unread_errors.forget_read_engine_error(self.number)
        raise self.error.with_traceback(self.traceback)


class RunRecord:
    """The native words of one call of a plan."""

    __slots__ = ("_owner", "address", "gated", "words")

    def __init__(self, layout: PlanLayout) -> None:
        self._owner, self.address, self.words = allocate_aligned_words(len(layout.image))
        self.gated = False
        for i, value in enumerate(layout.image):
            self.words[i] = value
        for stream in layout.streams:
            self.words[(stream + e.RUN) // 8] = self.address
            self.words[(stream + e.STEP) // 8] = layout.image[(stream + e.FIRST_STEP) // 8]


class NativeRun:
    """One call. `after` are the events that it waits for; they are let go when it is over."""

    __slots__ = (
        "_free", "_gates", "addresses", "after", "engine", "failures", "lost", "number", "owner", "record", "scalars"
    )  # fmt: skip

    def __init__(self, engine: NativeEngine, record: RunRecord, free: list[RunRecord], owner: RunOwner) -> None:
        self.engine = engine
        self.record = record
        self.owner = owner
        self.number = engine.latest = next(engine.numbers)
        self.after: tuple[EngineRunEvent, ...] = ()
        self.failures: dict[int, EngineFailedEvent] = {}
        self.addresses: Sequence[int] = ()
        self.scalars: Sequence[Any] = ()
        self.lost = False
        self._gates: Any = None
        self._free = free

    def __del__(self) -> None:
        if e is not None and not self.lost and self.released:  # modules go before the last objects at exit
            self._free.append(self.record)

    @property
    def released(self) -> bool:
        """Whether the engine has touched the record for the last time."""
        return self.record.words[e.RELEASED // 8] >= self.number

    def start(self, layout: PlanLayout, table: bytes, after: Iterable[tuple[int, Any]]) -> None:
        """Hand the run to the engine. after: (buffer, event) gated. Events of other devices are waited for here."""
        engine, words = self.engine, self.record.words
        if words[e.RUN_FAILED // 8]:  # the last time
            for place in layout.poison:
                words[place // 8] = 0
        self._write_gates_of_buffers(layout, after)
        _settle_finished_engine_runs(engine)
        engine.runs[self.number] = self
        address = self.record.address
        engine.native.submit(engine.address, layout.plan, address, address + layout.arguments, table, self.number)

    def _write_gates_of_buffers(self, layout: PlanLayout, after: Iterable[tuple[int, Any]]) -> None:
        """Write what each gate waits for (event, number, the place of the buffer's poison); a bad past event becomes a
        poisoned one."""
        gated: dict[int, list[int]] = {}
        poisons: list[int] = []
        waited: list[EngineRunEvent] = []
        for buffer, event in after:
            gates = layout.gates.get(buffer, ())
            if isinstance(event, EngineRunEvent) and event.run.engine is self.engine:
                if not gates or (event.query() and event.failure is None):
                    continue
                waited.append(event)
                entry = [event.address, event.run.number, layout.poison[buffer]]
            else:
                failure = _failure_poisoning_event(event)
                if failure is None:
                    continue
                cause = next(self.engine.causes)
                self.failures[cause] = failure
                poisons += [self.number, 0, cause]
                entry = [-len(poisons), self.number, layout.poison[buffer]]
            for gate in gates:
                gated.setdefault(gate, []).extend(entry)
        record = self.record
        if record.gated or gated:
            for gate in {g for places in layout.gates.values() for g in places}:
                record.words[gate // 8] = 0
            record.gated = bool(gated)
        if gated:
            self.after = tuple(waited)
            total = len(poisons) + sum(len(p) + 1 for p in gated.values())
            owner, base, memory = allocate_aligned_words(total)
            self._gates = owner
            for i, value in enumerate(poisons):
                memory[i] = value
            at = len(poisons)
            for gate, values in gated.items():
                record.words[gate // 8] = base + 8 * at
                for value in values:
                    # A poisoned event of ours is written as minus the words up to its end.
                    memory[at] = value if value >= 0 else base + 8 * (-value - 3)
                    at += 1
                at += 1

    def do(self, task: int) -> int:
        """The engine's Python thread: do a task; the number of its error, or 0."""
        try:
            self.owner.host_step(task, self.addresses, self.scalars)
        except KeyboardInterrupt:  # who does it raises this one
            return e.ENDED_EARLY
        except BaseException as error:
            cause = next(self.engine.causes)
            self.failures[cause] = EngineFailedEvent(error, unread_errors.keep_unread_error(error))
            return cause
        return 0

    def failure(self, cause: int) -> EngineFailedEvent:
        """The error with a number, of this run or of one that it waited for."""
        if cause == e.ENDED_EARLY:
            return EngineFailedEvent(KernelGraphError(_ENDED_EARLY))
        seen, left = set(), [self]
        while left:
            run = left.pop()
            if cause in run.failures:
                return run.failures[cause]
            seen.add(run.number)
            left += [event.run for event in run.after if event.run.number not in seen]
        return EngineFailedEvent(KernelGraphError("the work before this failed"))

    def settle(self) -> None:
        """The run is over. Errors that came from others are taken over, and those are let go."""
        if self.after:
            cause = self.record.words[e.RUN_FAILED // 8]
            if cause:
                for event in self.after:
                    self.failures = {**event.run.failures, **self.failures}
            self.after = ()
            self._gates = None

    def wait(self, goal: int, needs: int) -> None:
        """Wait until an event of this run (its address) has happened. Help with what it waits for and what it needs."""
        try:
            self._wait(goal, needs)
        finally:
            self.engine.nudge()

    def _wait(self, goal: int, needs: int) -> None:
        native, engine = self.engine.native, self.engine
        for event in self._pending_events():
            while not event.query() and self.record.words[(goal - self.record.address) // 8] < self.number:
                self._require_live_process()
                run, at = event.run, event.run.record.address
                want = (event.address, run.number, goal, self.number)
                self._react_to_native_wait(
                    native.wait(engine.address, at, event.needs, *want, e.SLICE_NS), at, event.needs
                )
        at, want = self.record.address, (goal, self.number, goal, self.number)
        while (found := native.wait(engine.address, at, needs, *want, e.SLICE_NS)) != HAPPENED:
            self._require_live_process()
            self._react_to_native_wait(found, at, needs)

    def _react_to_native_wait(self, outcome: int, run: int, needs: int) -> None:
        """To what a native wait has answered."""
        if outcome == PYTHON_STEP:
            self.engine.do_python_step(run, needs)
        elif outcome == BROKEN_OFF:
            raise_error_of_signal_handler()

    def _require_live_process(self) -> None:
        if self.lost:
            raise KernelGraphError("this work was in flight when the process forked: its result is in the parent alone")
        if self.engine.stopped:
            raise KernelGraphError("the engine has stopped: the interpreter is exiting")

    def _pending_events(self) -> list[EngineRunEvent]:
        """The events that this run still waits for, and those that they wait for: oldest first."""
        found: dict[tuple[int, int], EngineRunEvent] = {}
        left = list(self.after)
        while left:
            event = left.pop()
            key = (event.run.number, event.place)
            if key not in found and not event.query():
                found[key] = event
                left += event.run.after
        return [found[key] for key in sorted(found)]


class EngineRunEvent:
    """An event of a run. place: its offset in the run's record. needs: which steps it takes, natively; 0: all."""

    __slots__ = ("needs", "place", "run")

    def __init__(self, run: NativeRun, place: int, needs: int) -> None:
        self.run = run
        self.place = place
        self.needs = needs

    @property
    def address(self) -> int:
        return self.run.record.address + self.place

    def query(self) -> bool:
        return self.run.record.words[self.place // 8] >= self.run.number

    @property
    def failure(self) -> EngineFailedEvent | None:
        """What poisons the event, once it has happened."""
        cause = self.run.record.words[(self.place + e.POISON) // 8]
        return self.run.failure(cause) if cause else None

    def wait(self) -> None:
        """Block until it has happened, helping with the work. Raises, each time, what the work raised."""
        if not self.query():
            self.run._require_live_process()
            self.run.wait(self.address, self.needs)
        failure = self.failure
        if failure is not None:
            failure.raise_error()

    def finish(self) -> None:
        """Block until all of its run is over, well or badly. Help with all of it."""
        if not self.run.released:
            self.run._require_live_process()
            self.run.wait(self.run.record.address + e.RUN_EVENT, 0)


class EngineRunTiming:
    """How long a run takes, from `start` (of the monotonic clock, in ns; 0: its first launch) to its end."""

    __slots__ = ("run", "start")

    def __init__(self, run: NativeRun, start: int) -> None:
        self.run = run
        self.start = start

    def query(self) -> float | None:
        """Microseconds; None while it runs; nan if it failed or others ran at the same time."""
        if self.run.lost:
            return math.nan
        if not self.run.released:
            return None
        words = self.run.record.words
        began = words[e.BEGAN // 8]
        if not began or words[e.OTHERS // 8] or words[e.RUN_FAILED // 8]:
            return math.nan
        return (words[e.ENDED // 8] - (self.start or began)) / 1e3


class EngineEndsTiming:
    """From the end of a run to that of a later one."""

    __slots__ = ("first", "last")

    def __init__(self, first: NativeRun, last: NativeRun) -> None:
        self.first, self.last = first, last

    def query(self) -> float | None:
        """Microseconds; None while one of them runs; nan if one failed."""
        runs = self.first, self.last
        if any(run.lost for run in runs):
            return math.nan
        if not all(run.released for run in runs):
            return None
        if any(run.record.words[e.RUN_FAILED // 8] for run in runs):
            return math.nan
        first, last = (run.record.words[e.ENDED // 8] for run in runs)
        return (last - first) / 1e3


class EngineDoneTiming:
    """What is known already: microseconds, or nan."""

    __slots__ = ("microseconds",)

    def __init__(self, microseconds: float) -> None:
        self.microseconds = microseconds

    def query(self) -> float:
        return self.microseconds


def _failure_poisoning_event(event: Any) -> EngineFailedEvent | None:
    error = error_of_event(event)
    number = getattr(getattr(event, "failure", None), "number", 0)
    return None if error is None else EngineFailedEvent(error, number)


def _settle_finished_engine_runs(engine: NativeEngine) -> None:
    """Let go of the runs that are over, oldest first (a run settles after those that it waited for)."""
    runs = engine.runs
    while runs:
        try:
            number, run = next(iter(runs.items()))
        except (RuntimeError, StopIteration):
            return  # another thread is at it
        if not run.released:
            return
        run.settle()
        runs.pop(number, None)


def wait_for_all_runs(engine: NativeEngine) -> None:
    """Until every run that has started is over, well or badly."""
    for run in list(engine.runs.values()):
        if not run.released and not run.lost:
            run.wait(run.record.address + e.RUN_EVENT, 0)
    _settle_finished_engine_runs(engine)
