"""What becomes of a run, as functions on words: it begins, ends, and some of its values go bad.

`words.records` describes the records; `word_language` makes machine code of this text; Python never runs it.
"""

from __future__ import annotations

from ...codegen.word_language import fetch_add, load, load_shared, store, store_shared, swapped
from .queues import now, record
from .records import ACTIVE, BEGAN, BEGUN, ENDED, NUMBER, ORDINAL, OTHERS, RELEASED, RUN_EVENT, RUN_FAILED, STREAMS_LEFT


def make_bad(run: int, place: int, error: int) -> None:
    if load_shared(run + place) == 0:
        store_shared(run + place, error)
    store_shared(run + RUN_FAILED, error)


def found_bad(run: int, places: int) -> int:
    """The error at the first bad one of a list of places, or 0."""
    error = 0
    while error == 0 and load(places):
        error = load_shared(run + load(places))
        places += 8
    return error


def stops(run: int, looks: int) -> int:
    """The error of something that makes a step bad, or 0."""
    error = found_bad(run, looks + 8)
    if error:
        make_bad(run, load(looks), error)
    return error


def begin(engine: int, run: int) -> None:
    if swapped(run + BEGAN, 0, now()):
        store(run + OTHERS, fetch_add(engine + ACTIVE, 1))
        store(run + ORDINAL, fetch_add(engine + BEGUN, 1) + 1)


def cease(engine: int, run: int) -> None:
    store(run + ENDED, now())
    if load_shared(engine + BEGUN) != load(run + ORDINAL):
        store(run + OTHERS, 1)
    fetch_add(engine + ACTIVE, -1)


def end(engine: int, stream: int, run: int) -> None:
    number = load(run + NUMBER)
    if fetch_add(run + STREAMS_LEFT, -1) == 1:
        record(engine, run + RUN_EVENT, number, load_shared(run + RUN_FAILED))
        store_shared(run + RELEASED, number)
