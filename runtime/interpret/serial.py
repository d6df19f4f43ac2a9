"""A plan in; a function that runs it on the caller's thread, one step at a time in issue order, out.

Errors of host steps poison what depends on them, and nothing else: see `error_propagation`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from threading import get_ident
from typing import Any

import numpy as np

from ..core import deferred_fork
from ..core.errors import CompileError, add_note_once
from ..program.plan import Launch, Plan
from ..program.program import Kernel, Library, Pointer, Scalar, Task
from .control_flow import RunIteration, run_control_flow
from .error_propagation import PoisonTracker
from .library_calls import LIBRARY, region_viewer

Addresses = Sequence[int]  # of every buffer of the program
HostCall = Callable[[Addresses], None]
Call = Callable[[Addresses, Sequence[Any]], None]  # with the call's scalars
KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


def library_task_call(task: Task) -> HostCall:
    """What does a library task, given the addresses of the program's buffers."""
    assert isinstance(task.kernel, Library)
    function = LIBRARY.get(task.kernel.name)
    if function is None:
        raise CompileError(f"the CPU has no library call {task.kernel.name!r}; it has {', '.join(LIBRARY)}")
    reads = [(r.buffer, region_viewer(r)) for r in task.reads]
    writes = [(w.buffer, region_viewer(w)) for w in task.writes]
    attrs = dict(task.kernel.attrs)

    def call(addresses: Addresses) -> None:
        deferred_fork.inside.append(me := get_ident())
        try:
            if deferred_fork.forking:
                deferred_fork.wait_for_fork()
            with np.errstate(all="ignore"):  # as kernels do, and the same on any thread
                function([view(addresses[b]) for b, view in reads], [view(addresses[b]) for b, view in writes], attrs)
        finally:
            deferred_fork.inside.remove(me)

    return call


def scalar_to_bits(value: Any, dtype: str) -> int:
    """The bits of a number as `dtype`, in the low bytes of a slot. The conversion is NumPy's."""
    with np.errstate(all="ignore"):
        raw = np.asarray(value).astype(dtype).tobytes()
    if len(raw) > 8:
        raise CompileError(f"a {dtype} does not fit one argument slot")
    return int.from_bytes(raw, "little")


class HostMemory:
    """What loops do with memory that the host can read."""

    def integer(self, address: int) -> int:
        return ctypes.c_int64.from_address(address).value

    def boolean(self, address: int) -> bool:
        return ctypes.c_uint8.from_address(address).value != 0

    def repeat(self, rows: Sequence[Sequence[int]], numbers: Sequence[Any], times: int) -> int:
        return 0

    def copy(self, target: int, source: int, nbytes: int) -> None:
        ctypes.memmove(target, source, nbytes)


def task_calls(plan: Plan, function: Callable[[Kernel], int]) -> list[Call]:
    """What does each task of a plan, iteration by iteration where it is a loop. function: the address of a kernel."""
    return [_task_call(task, function) for task in plan.tasks]


def _task_call(task: Task, function: Callable[[Kernel], int]) -> Call:
    if isinstance(task.kernel, Kernel):
        return kernel_task_call(task, KERNEL(function(task.kernel)))
    if isinstance(task.kernel, Library):
        call = library_task_call(task)
        return lambda addresses, scalars: call(addresses)
    iterations = [_body_iteration_call(body, task_calls(body, function)) for body in task.kernel.bodies]
    return lambda addresses, scalars: run_control_flow(task, iterations, HostMemory(), addresses, scalars)


def _body_iteration_call(body: Plan, calls: Sequence[Call]) -> RunIteration:
    order = [step.task for step in body.steps if isinstance(step, Launch)]

    def iteration(addresses: Addresses, numbers: Sequence[Any]) -> None:
        for number in order:
            try:
                calls[number](addresses, numbers)
            except Exception as error:
                raise error_with_task_location(error, body.tasks[number], body.program.name) from None

    return iteration


def kernel_task_call(task: Task, function: Any) -> Call:
    """What launches a kernel task once, given the addresses and the call's scalars."""
    count = len(task.arguments)

    def call(addresses: Addresses, scalars: Sequence[Any]) -> None:
        slots = (ctypes.c_uint64 * count)()
        for i, argument in enumerate(task.arguments):
            if isinstance(argument, Pointer):
                slots[i] = addresses[argument.buffer] + argument.offset
            elif isinstance(argument, Scalar):
                slots[i] = scalar_to_bits(scalars[argument.index], argument.dtype)
            else:
                slots[i] = argument.word
        function(slots, 0, task.units)

    return call


def run_serially(
    plan: Plan,
    calls: Sequence[Call],
    addresses: Addresses,
    scalars: Sequence[Any],
    poisoned: Mapping[int, BaseException],
) -> tuple[BaseException | None, ...]:
    """Run every step; for each output the error that poisons it, or None.

    poisoned: errors that buffers bring along; a task that touches such a buffer is not run.
    """
    poison = PoisonTracker(plan, poisoned)
    for step in plan.steps:
        if not isinstance(step, Launch) or (poison and poison.is_poisoned(step.task)):
            continue
        try:
            calls[step.task](addresses, scalars)
        except Exception as error:
            poison.fail(step.task, error_with_task_location(error, plan.tasks[step.task], plan.program.name))
    return poison.output_errors()


def error_with_task_location(error: BaseException, task: Task, program: str) -> BaseException:
    """The error with the task, the program and the user's line in its text."""
    add_note_once(error, f"in task {task.name} of {program}" + (f", {task.line}" if task.line else ""))
    return error
