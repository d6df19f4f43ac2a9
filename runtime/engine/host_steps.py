"""A loop or branch some of whose steps need Python, as a call. It runs natively, turn after turn, and calls Python back
for those steps alone.

It runs on one core, on the thread of whoever calls. A step that fails ends the loop, and the call raises its error.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

from ..core.frozen import replace
from ..core.settings import settings
from ..interpret.serial import (
    KERNEL,
    Addresses,
    Call,
    numpy_call_of_library_task,
    serial_call_of_kernel_task,
    serial_error_with_task_location,
)
from ..program.program import Pointer, Task
from .deferred_interrupt import (
    SIGNALS_AT,
    call_with_interrupt_deferred,
    interrupt_is_pending,
    raise_error_of_signal_handler,
    signal_handler_has_raised,
)
from .encode_plan import Function, encode_control_task
from .engine import allocate_aligned_words, engine_of_process, native_engine_functions
from .words import records as e


def make_engine_control_flow_call(task: Task, function: Function, program: str, by_steps: Call) -> Call:
    """What runs a loop or branch task, given the addresses of its program's buffers and the call's scalars.

    function: the address of a kernel. program: whose task it is, for errors. by_steps: runs it from Python, which it is
    where there is nothing native, or every step is to run by itself."""
    made: list[_EngineControlFlowCall] = []  # at the first call

    def run_control_flow_task(addresses: Addresses, scalars: Any) -> None:
        if settings.engine == "sync" or native_engine_functions() is None:
            by_steps(addresses, scalars)
            return
        if not made:
            made.append(_EngineControlFlowCall(task, function, program))
        made[0].run(addresses, scalars)

    return run_control_flow_task


class _EngineControlFlowCall:
    """`native_engine_functions`, `address`: what `encode_plan` asks of an engine. This has no threads; its word STOP
    ends loops."""

    def __init__(self, task: Task, function: Function, program: str) -> None:
        found = native_engine_functions()
        assert found is not None
        self.native, self.program = found, program
        self._owner, self.address, self._words = allocate_aligned_words(e.ENGINE_BYTES // 8)
        self._words[e.SIGNALS // 8] = SIGNALS_AT
        self._failed: BaseException | None = None
        self._running = threading.RLock()
        self._callbacks: list[Any] = []
        looped, address, self._keep = encode_control_task(task, function, self, self._host_step)
        self._call = serial_call_of_kernel_task(looped, KERNEL(address))

    def run(self, addresses: Addresses, scalars: Any) -> None:
        with self._running:
            self._failed = None
            self._words[e.STOP // 8] = 0
            call_with_interrupt_deferred(
                lambda: self._run_natively(addresses, scalars)
            )  # nothing raises as a step is called back
            if self._failed is not None:
                raise self._failed

    def _run_natively(self, addresses: Addresses, scalars: Any) -> None:
        self._call(addresses, scalars)
        if signal_handler_has_raised():
            try:
                raise_error_of_signal_handler()
            except BaseException as raised:
                self._failed = raised

    def _host_step(self, task: Task) -> tuple[Task, int]:
        """The task with the addresses of its buffers as arguments, and the address of what does it."""
        buffers = tuple(dict.fromkeys(r.buffer for r in (*task.reads, *task.writes)))
        callback = KERNEL(self._do_task_in_python(task, buffers, numpy_call_of_library_task(task)))
        self._callbacks.append(callback)
        address = ctypes.cast(callback, ctypes.c_void_p).value
        assert address is not None
        return replace(task, arguments=tuple(Pointer(b) for b in buffers)), address

    def _do_task_in_python(self, task: Task, buffers: tuple[int, ...], call: Any) -> Callable[[int, int, int], None]:
        kind = ctypes.c_uint64 * len(buffers)

        def do_python_step(slots: int, begin: int, end: int) -> None:
            if self._failed is not None:
                return
            try:
                call(dict(zip(buffers, kind.from_address(slots), strict=True)))
                stopping = engine_of_process()
                if stopping is not None and stopping.stopped:
                    self._words[e.STOP // 8] = 1
                if interrupt_is_pending():
                    raise KeyboardInterrupt
            except BaseException as raised:
                self._failed = serial_error_with_task_location(raised, task, self.program)
                self._words[e.STOP // 8] = 1

        return do_python_step
