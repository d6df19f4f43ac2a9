"""A plan in; a function that runs it on the caller's thread out. It does one step at a time in issue order.

Errors follow data: a failed task poisons the tasks and outputs that depend on it, and nothing else. A task is poisoned
if it fails, reads or writes over what a poisoned task should have written, or touches a poisoned argument; it is not
run then. Tasks that share no more than a stream with one that failed go on. Errors are kept by index: one for each
buffer (as an argument), then one for each task.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import get_ident
from typing import Any

import numpy as np

from ..core import deferred_fork
from ..core.errors import CompileError, DeviceLost, add_note_to_error_once
from ..core.frozen import frozen
from ..core.readable_text import with_article
from ..program.collective import Collective
from ..program.plan import ENTRY, Launch, Plan
from ..program.program import (
    Kernel,
    Library,
    Pointer,
    Scalar,
    Task,
    control_flow_bodies,
    task_dependences_of_program,
)
from .control_flow import RunIteration, run_control_flow
from .library_calls import LIBRARY, numpy_region_viewer


@frozen
class ErrorSources:
    """The indices of the errors that poison each task, and each output."""

    tasks: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]


def serial_error_sources_of_plan(plan: Plan) -> ErrorSources:
    """Which errors poison which tasks and outputs of a plan.

    A task that leads to no output poisons all outputs, so that no failure goes unseen."""
    program = plan.program
    first, before = len(program.buffers), task_dependences_of_program(program, anti=False)
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


def poisoned_buffers_of_plan(plan: Plan, after: Iterable[tuple[int, Any]]) -> dict[int, BaseException]:
    """The error of each buffer that something known to have failed should have written. error: of an event."""
    bad: dict[int, BaseException] = {}
    for buffer, event in after:
        error = getattr(event, "error", None)
        if error is not None:
            bad |= dict.fromkeys(range(len(plan.program.buffers)) if buffer == ENTRY else (buffer,), error)
    return bad


class SerialPoisonTracker:
    """The errors of one call so far. True if there are any. bad: the errors of poisoned arguments, by buffer."""

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

    def error_of_task(self, task: int) -> BaseException | None:
        """What a task has failed with, or is known to be poisoned by."""
        return self._errors.get(len(self._plan.program.buffers) + task)

    def output_errors(self) -> tuple[BaseException | None, ...]:
        """The error of each output of the program, or None."""
        if not self._errors:
            return (None,) * len(self._plan.program.outputs)
        return tuple(map(self._first_error_at, self._error_sources().outputs))

    def _first_error_at(self, indices: Iterable[int]) -> BaseException | None:
        return next((self._errors[i] for i in indices if i in self._errors), None)

    def _error_sources(self) -> ErrorSources:
        if self._sources is None:
            self._sources = serial_error_sources_of_plan(self._plan)
        return self._sources


Addresses = Sequence[int]  # of every buffer of the program
HostCall = Callable[[Addresses], None]
Call = Callable[[Addresses, Sequence[Any]], None]  # with the call's scalars
KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


def numpy_call_of_library_task(task: Task) -> HostCall:
    """What does a library task, given the addresses of the program's buffers."""
    assert isinstance(task.kernel, Library)
    function = LIBRARY.get(task.kernel.name)
    if function is None:
        raise CompileError(f"the CPU has no library call {task.kernel.name!r}; it has {', '.join(LIBRARY)}")
    checks = task.kernel.name == "check"  # it has results for what waits for them: it looks at its report alone
    reads = [(r.buffer, numpy_region_viewer(r)) for r in (task.reads[:1] if checks else task.reads)]
    writes = [(w.buffer, numpy_region_viewer(w)) for w in (() if checks else task.writes)]
    attrs = dict(task.kernel.attrs)

    def call_library_task(addresses: Addresses) -> None:
        deferred_fork.inside.append(me := get_ident())
        try:
            if deferred_fork.forking:
                deferred_fork.wait_until_fork_is_over()
            with np.errstate(all="ignore"):  # as kernels do, and the same on any thread
                function([view(addresses[b]) for b, view in reads], [view(addresses[b]) for b, view in writes], attrs)
        finally:
            deferred_fork.inside.remove(me)

    return call_library_task


def serial_scalar_argument_bits(value: Any, dtype: str) -> int:
    """The bits of a number as `dtype`, in the low bytes of a slot. The conversion is NumPy's."""
    with np.errstate(all="ignore"):
        raw = np.asarray(value).astype(dtype).tobytes()
    if len(raw) > 8:
        raise CompileError(f"{with_article(dtype)} does not fit one argument slot")
    return int.from_bytes(raw, "little")


class SerialLoopDevice:
    """What loops do with memory that the host can read."""

    def integer(self, address: int) -> int:
        return ctypes.c_int64.from_address(address).value

    def boolean(self, address: int) -> bool:
        return ctypes.c_uint8.from_address(address).value != 0

    def repeat(self, rows: Sequence[Sequence[int]], numbers: Sequence[Any], times: int) -> int:
        return 0

    def copy(self, target: int, source: int, nbytes: int) -> None:
        ctypes.memmove(target, source, nbytes)


def serial_calls_of_tasks(plan: Plan, function: Callable[[Kernel], int]) -> list[Call]:
    """What does each task of a plan, iteration by iteration where it is a loop. function: the address of a kernel."""
    return [_serial_call_of_task(task, function) for task in plan.tasks]


def _serial_call_of_task(task: Task, function: Callable[[Kernel], int]) -> Call:
    if isinstance(task.kernel, Kernel):
        return serial_call_of_kernel_task(task, KERNEL(function(task.kernel)))
    if isinstance(task.kernel, Library):
        call = numpy_call_of_library_task(task)
        return lambda addresses, scalars: call(addresses)
    if isinstance(task.kernel, Collective):
        return _refuse_collective
    iterations = [
        _serial_call_of_loop_body(body, serial_calls_of_tasks(body, function)) for body in control_flow_bodies(task)
    ]
    return lambda addresses, scalars: run_control_flow(task, iterations, SerialLoopDevice(), addresses, scalars)


def _refuse_collective(addresses: Addresses, scalars: Sequence[Any]) -> None:
    raise CompileError("a collective is done by what knows the others")


def _serial_call_of_loop_body(body: Plan, calls: Sequence[Call]) -> RunIteration:
    order = [step.task for step in body.steps if isinstance(step, Launch)]

    def run_body_iteration(addresses: Addresses, numbers: Sequence[Any]) -> None:
        for number in order:
            try:
                calls[number](addresses, numbers)
            except Exception as error:
                raise serial_error_with_task_location(error, body.tasks[number], body.program.name) from None

    return run_body_iteration


def serial_call_of_kernel_task(task: Task, function: Any) -> Call:
    """What launches a kernel task once, given the addresses and the call's scalars."""
    count = len(task.arguments)

    def launch_kernel_once(addresses: Addresses, scalars: Sequence[Any]) -> None:
        slots = (ctypes.c_uint64 * count)()
        for i, argument in enumerate(task.arguments):
            if isinstance(argument, Pointer):
                slots[i] = addresses[argument.buffer] + argument.offset
            elif isinstance(argument, Scalar):
                slots[i] = serial_scalar_argument_bits(scalars[argument.index], argument.dtype)
            else:
                slots[i] = argument.word
        function(slots, 0, task.units)

    return launch_kernel_once


def run_plan_serially(
    plan: Plan,
    calls: Sequence[Call],
    addresses: Addresses,
    scalars: Sequence[Any],
    poisoned: Mapping[int, BaseException],
    meet: Callable[[int, BaseException | None], None] | None = None,
) -> tuple[BaseException | None, ...]:
    """Run every step; for each output the error that poisons it, or None.

    poisoned: errors that buffers bring along; a task that touches such a buffer is not run. meet: does a collective, to
    which the others come whatever has failed here.
    """
    poison = SerialPoisonTracker(plan, poisoned)
    for step in plan.steps:
        if not isinstance(step, Launch):
            continue
        meets = isinstance(plan.tasks[step.task].kernel, Collective)
        if poison and poison.is_poisoned(step.task) and not meets:
            continue
        try:
            if meets and meet is not None:
                meet(step.task, poison.error_of_task(step.task))
            else:
                calls[step.task](addresses, scalars)
        except Exception as error:
            poison.fail(step.task, serial_error_with_task_location(error, plan.tasks[step.task], plan.program.name))
    return poison.output_errors()


def serial_error_with_task_location(error: BaseException, task: Task, program: str) -> BaseException:
    """The error with the task, the program and the user's line in its text."""
    add_note_to_error_once(error, f"in task {task.name} of {program}" + (f", {task.line}" if task.line else ""))
    return error
