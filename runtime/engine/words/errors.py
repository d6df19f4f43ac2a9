"""The beginning, the end and the errors of a run, as functions on words.

`words.records` describes the records; `word_language` makes machine code of this text; Python never runs it.
"""

from __future__ import annotations

from ...codegen.word_language import fetch_add, load, load_shared, store, store_shared, swapped
from .queues import native_monotonic_clock_ns, record_native_event
from .records import (
    ACTIVE,
    BEGAN,
    BEGUN,
    ENDED,
    LAUNCHING_LEFT,
    NUMBER,
    ORDINAL,
    OTHERS,
    RELEASED,
    RUN_EVENT,
    RUN_FAILED,
    STREAMS_LEFT,
)


def set_native_poison(run: int, offset: int, error: int) -> None:
    """Write an error at an offset of the run, unless there is one, and mark the run as failed."""
    if load_shared(run + offset) == 0:
        store_shared(run + offset, error)
    store_shared(run + RUN_FAILED, error)


def first_native_poison(run: int, offsets: int) -> int:
    """The first error at a list of offsets of a run that ends in 0; or 0, without a list too."""
    error = 0
    while error == 0 and offsets and load(offsets):
        error = load_shared(run + load(offsets))
        offsets += 8
    return error


def propagate_native_poison(run: int, sources: int) -> int:
    """The error of what a step depends on, which is then the step's own; or 0."""
    error = first_native_poison(run, sources + 8)
    if error:
        set_native_poison(run, load(sources), error)
    return error


def begin_native_run(engine: int, run: int) -> None:
    if load_shared(run + BEGAN) == 0 and swapped(run + BEGAN, 0, native_monotonic_clock_ns()):
        store(run + OTHERS, fetch_add(engine + ACTIVE, 1))
        store(run + ORDINAL, fetch_add(engine + BEGUN, 1) + 1)


def finish_native_launches(engine: int, run: int) -> None:
    store(run + ENDED, native_monotonic_clock_ns())
    if load_shared(engine + BEGUN) != load(run + ORDINAL):
        store(run + OTHERS, 1)
    fetch_add(engine + ACTIVE, -1)


def cease_native_launches(engine: int, run: int) -> None:
    """A stream launches no more; after the last one the launches of its run have ended."""
    if fetch_add(run + LAUNCHING_LEFT, -1) == 1 and load_shared(run + BEGAN):
        finish_native_launches(engine, run)


def end_native_run_stream(engine: int, stream: int, run: int) -> None:
    number = load(run + NUMBER)
    if fetch_add(run + STREAMS_LEFT, -1) == 1:
        record_native_event(engine, run + RUN_EVENT, number, load_shared(run + RUN_FAILED))
        store_shared(run + RELEASED, number)
