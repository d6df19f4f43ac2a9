"""Errors follow data through a plan: a failed task poisons the tasks and outputs that depend on it.

A task is poisoned if it fails, reads or writes over what a poisoned task should have written, or touches a poisoned
argument; it is not run then. Tasks that share no more than a stream with one that failed go on. Errors are kept by
index: one for each buffer (as an argument), then one for each task.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..core.errors import DeviceLost
from ..core.frozen import dataclass
from ..program.plan import ENTRY, Plan
from ..program.program import task_dependences


@dataclass(frozen=True, slots=True)
class ErrorSources:
    """The indices of the errors that poison each task, and each output."""

    tasks: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]


def error_sources(plan: Plan) -> ErrorSources:
    """Which errors poison which tasks and outputs of a plan.

    A task that leads to no output poisons all outputs, so that no failure goes unseen."""
    program = plan.program
    first, before = len(program.buffers), task_dependences(program, anti=False)
    writers = {o: [t for t, task in enumerate(program.tasks) if o in {w.buffer for w in task.writes}]
               for o in program.outputs}  # fmt: skip
    leads = {t for found in writers.values() for t in found}
    for number in reversed(range(len(program.tasks))):
        if number in leads:
            leads |= before[number]
    astray = [t for t in range(len(program.tasks)) if t not in leads]
    tasks = tuple(
        (*dict.fromkeys(r.buffer for r in (*task.reads, *task.writes)), *(first + t for t in sorted(before[number])))
        for number, task in enumerate(program.tasks)
    )
    return ErrorSources(tasks, tuple((o, *(first + t for t in (*writers[o], *astray))) for o in program.outputs))


def poisoned_buffers(plan: Plan, after: Iterable[tuple[int, Any]]) -> dict[int, BaseException]:
    """The error of each buffer that something known to have failed should have written. error: of an event."""
    bad: dict[int, BaseException] = {}
    for buffer, event in after:
        error = getattr(event, "error", None)
        if error is not None:
            bad |= dict.fromkeys(range(len(plan.program.buffers)) if buffer == ENTRY else (buffer,), error)
    return bad


class PoisonTracker:
    """The errors of one call so far; true if there are any. bad: the errors of poisoned arguments, by buffer."""

    def __init__(self, plan: Plan, bad: Mapping[int, BaseException] | None = None) -> None:
        self._plan = plan
        self._sources: ErrorSources | None = None  # of use only once something has failed
        self._errors = dict(bad or {})  # by index

    def __bool__(self) -> bool:
        return bool(self._errors)

    def fail(self, task: int, error: BaseException) -> None:
        """A task has failed, or cannot be run. On a device that is lost nothing goes on."""
        program = self._plan.program
        first = len(program.buffers)
        everything = range(first + len(program.tasks))
        self._errors |= dict.fromkeys(everything if isinstance(error, DeviceLost) else (first + task,), error)

    def is_poisoned(self, task: int) -> bool:
        """Whether a task depends on an error, and is not to be run."""
        error = self._first_error_at(self._error_sources().tasks[task])
        if error is not None:
            self.fail(task, error)
        return error is not None

    def output_errors(self) -> tuple[BaseException | None, ...]:
        """The error of each output of the program, or None."""
        if not self._errors:
            return (None,) * len(self._plan.program.outputs)
        return tuple(map(self._first_error_at, self._error_sources().outputs))

    def _first_error_at(self, indices: Iterable[int]) -> BaseException | None:
        return next((self._errors[i] for i in indices if i in self._errors), None)

    def _error_sources(self) -> ErrorSources:
        if self._sources is None:
            self._sources = error_sources(self._plan)
        return self._sources
