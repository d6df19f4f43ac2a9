"""Loops and branches run in native code, as functions on words. Each is a kernel to whoever launches it.

`words.records` describes the records; `word_language` makes machine code of this text; Python never runs it.
"""

from __future__ import annotations

from ...codegen.word_language import copy, load, load_shared, stack, store
from .calls import run_native_plan_inline
from .queues import wake_native_threads
from .records import (
    BODY,
    BODY_BYTES,
    BODY_COLUMNS,
    BODY_ENGINE,
    BODY_HELPERS,
    BODY_MOVES,
    BODY_NUMBERS,
    BODY_ROWS,
    LOOP_BYTES,
    LOOP_CARRIED,
    LOOP_COUNT_AT,
    LOOP_COUNT_KIND,
    LOOP_FINAL,
    LOOP_LEAD,
    LOOP_NAMES,
    LOOP_NUMBERS_AT,
    LOOP_OTHERS,
    LOOP_POOL,
    LOOP_ROW_COUNT,
    LOOP_SIZES,
    LOOP_STRIDE,
    STOP,
)
from .signals import check_signals_in_native_loop, native_signal_handler_raised

BY_NUMBER, BY_ADDRESS, BY_FLAG = 0, 1, 2


def is_native_loop_flag_true(address: int) -> int:
    """A byte of memory, by the aligned word that it is in."""
    return (load(address & ~7) >> ((address & 7) * 8)) & 255


def run_native_loop_body(body: int, row: int, places: int, iteration: int, numbers: int) -> None:
    """One iteration: the body's table from the places that its row names, moved on, then the iteration's and other
    numbers."""
    columns = load(body + BODY_COLUMNS)
    count = load(body + BODY_NUMBERS)
    table = stack(8 * (columns + count) + 8)
    at = load(body + BODY_ROWS) + 8 * columns * row
    move = load(body + BODY_MOVES)
    target = table
    last = table + 8 * columns
    while target != last:
        store(target, load(places + load(at)) + load(move) * iteration)
        target += 8
        at += 8
        move += 8
    copy(target, numbers, 8 * count)
    if load(body + BODY_HELPERS):
        wake_native_threads(load(body + BODY_ENGINE), load(body + BODY_HELPERS))
    run_native_plan_inline(load(body + BODY), table)


def native_loop_state_of_iteration(record: int, iteration: int) -> int:
    rows = load(record + LOOP_ROW_COUNT)
    if iteration < rows:
        return iteration
    return load(record + LOOP_LEAD) + (iteration - load(record + LOOP_LEAD)) % (rows - load(record + LOOP_LEAD))


def run_native_loop(slots: int, begin: int, end: int) -> None:
    """A kernel: slot 0 is the record, then come the arguments of the task."""
    record = load(slots)
    arguments = slots + 8
    carried = load(record + LOOP_CARRIED)
    pool = load(record + LOOP_POOL)
    kind = load(record + LOOP_COUNT_KIND)
    rows = load(record + LOOP_ROW_COUNT)
    body = record + LOOP_BYTES
    count = ~0
    if kind != BY_FLAG:
        count = load(arguments + load(record + LOOP_COUNT_AT))
        if kind == BY_ADDRESS:
            count = load(count)
        if count >> 63:
            count = 0
    others = load(record + LOOP_OTHERS)
    places = stack(8 * (carried + pool + others) + 8)
    copy(places, arguments, 8 * carried)
    name = load(record + LOOP_NAMES)
    if kind != BY_FLAG:
        name += 8 * pool * native_loop_state_of_iteration(record, count)
    place = places + 8 * carried
    last = place + 8 * pool
    while place != last:
        store(place, load(arguments + 16 * carried + load(name)))
        place += 8
        name += 8
    copy(last, arguments + 16 * carried + 8 * pool, 8 * others)
    numbers = stack(8 * load(body + BODY_NUMBERS) + 8)
    if load(body + BODY_NUMBERS) > 1:
        copy(numbers + 8, arguments + load(record + LOOP_NUMBERS_AT), 8 * load(body + BODY_NUMBERS) - 8)
    engine = load(body + BODY_ENGINE)
    look_at = load(record + LOOP_STRIDE)
    iteration = 0
    row = 0
    while iteration != count:
        if (
            kind == BY_FLAG
            and is_native_loop_flag_true(load(places + load(load(record + LOOP_FINAL) + 8 * carried * row))) == 0
        ):
            break
        if load_shared(engine + STOP) or native_signal_handler_raised(engine):
            break
        store(numbers, iteration)
        run_native_loop_body(body, row, places, iteration, numbers)
        iteration += 1
        row += 1
        if iteration == look_at:
            look_at = iteration + check_signals_in_native_loop(engine, record)
        if row == rows:
            row = load(record + LOOP_LEAD)
    final = load(record + LOOP_FINAL) + 8 * carried * row
    size = load(record + LOOP_SIZES)
    result = arguments + 8 * carried
    last = result + 8 * carried
    while result != last:
        source = load(places + load(final))
        if source != load(result):
            copy(load(result), source, load(size))
        final += 8
        size += 8
        result += 8


def run_native_branch(slots: int, begin: int, end: int) -> None:
    """A kernel: slot 0 is the record, two bodies whose one row names the arguments. Then come the arguments."""
    body = load(slots)
    arguments = slots + 8
    numbers = arguments + load(body + 2 * BODY_BYTES)
    if is_native_loop_flag_true(load(arguments)) == 0:
        body += BODY_BYTES
    run_native_loop_body(body, 0, arguments, 0, numbers)
