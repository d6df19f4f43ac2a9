"""How native code sees to Python's signals, as functions on words. A handler that raises ends what its thread runs.

`words.records` describes the records; `word_language` makes machine code of this text; Python never runs it.
"""

from __future__ import annotations

from ...codegen.word_language import (
    enter_gil,
    fetch_error,
    give_gil,
    handle_signals,
    has_gil,
    leave_gil,
    load,
    load_shared,
    pthread_self,
    restore_error,
    set_error,
    store,
    store_shared,
    take_gil,
)
from .queues import native_monotonic_clock_ns
from .records import ASKED, BROKEN, CTRL_C, KIND, LOOP_LOOKED, LOOP_STRIDE, MAIN, SIGNALS, SLICE_NS, TRACE, VALUE


def native_signal_handler_raised(engine: int) -> int:
    """Whether the caller's thread ends what it runs: it is Python's main thread, and a handler has raised."""
    signals = load(engine + SIGNALS)
    return load_shared(signals + BROKEN) and pthread_self() == load(signals + MAIN)


def handle_pending_signals_natively(engine: int) -> None:
    """Let Python's other threads run where the caller has its lock, and the handlers in its main thread."""
    if has_gil():
        enter_gil(leave_gil())
    signals = load(engine + SIGNALS)
    if pthread_self() == load(signals + MAIN) and load_shared(signals + BROKEN) == 0:
        lock = take_gil()
        raised = handle_signals()
        if raised == 0 and load_shared(signals + ASKED):
            set_error(load(signals + CTRL_C))
            raised = 1
        if raised:
            fetch_error(signals + KIND, signals + VALUE, signals + TRACE)
            store_shared(signals + BROKEN, 1)
        give_gil(lock)


def check_signals_in_native_loop(engine: int, loop: int) -> int:
    """After a number of iterations: the number to the next look, so that the looks are about a slice apart."""
    time = native_monotonic_clock_ns()
    since = time - load(loop + LOOP_LOOKED)
    stride = load(loop + LOOP_STRIDE)
    if since < SLICE_NS // 4:
        stride = stride * 2
    elif since > SLICE_NS:
        stride = (stride + 1) // 2
    store(loop + LOOP_LOOKED, time)
    store(loop + LOOP_STRIDE, stride)
    if since >= SLICE_NS // 4:
        handle_pending_signals_natively(engine)
    return stride


def raise_native_signal_handler_exception(engine: int) -> None:
    """The exception that ended what the caller ran, as Python's own functions raise. The caller has Python's lock."""
    signals = load(engine + SIGNALS)
    store_shared(signals + BROKEN, 0)
    restore_error(load(signals + KIND), load(signals + VALUE), load(signals + TRACE))
