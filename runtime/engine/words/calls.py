"""How a call starts, as functions on words. Its arguments, a run on the engine, or all of it inline in the caller.

`words.records` describes the records; `word_language` makes machine code of this text; Python never runs it.
"""

from __future__ import annotations

from ...codegen.word_language import (
    BYTES_AT,
    DATA_AT,
    DTYPE_AT,
    FLAGS_AT,
    LENGTH_AT,
    NDIM_AT,
    SHAPE_AT,
    STRIDES_AT,
    TYPE_AT,
    WRITEABLE,
    copy,
    launch,
    load,
    load_shared,
    mutex_lock,
    mutex_unlock,
    relax,
    sched_yield,
    stack,
    store,
    store_shared,
)
from .queues import (
    claim_chunk,
    free_native_launch_slot,
    publish_native_launch,
    push_ready_native_stream,
    run_claimed_native_chunk,
    take_native_launch_slot,
    wake_native_threads,
)
from .records import (
    ARRAY_TYPE,
    ASSIGNS,
    AWAKE,
    BEGAN,
    BOXED,
    DIRECT_BYTES,
    DIRECT_PLAN,
    FIRST_STEP,
    LAUNCH_COUNT,
    LAUNCHES,
    LAUNCHING,
    LAUNCHING_LEFT,
    LOCK,
    LONG,
    LOW_HALF,
    NO,
    NUMBER,
    PACKED,
    PATCH_BYTES,
    PATCH_COUNT,
    PATCHES,
    PENDING,
    PLAN_ENGINE,
    READY,
    REFERENCE,
    ROW_ADD,
    ROW_ASSIGNED,
    ROW_BYTES,
    ROW_DTYPE,
    ROW_EXTENT,
    ROW_LENGTH,
    ROW_MODULO,
    ROW_NDIM,
    ROW_PLACE,
    ROW_TYPE,
    RUN_BYTES,
    RUN_FAILED,
    STACK_BYTES,
    STACK_PLACE,
    STEP,
    STEP_BYTES,
    STREAM_BYTES,
    STREAM_COUNT,
    STREAMS_LEFT,
    TABLE_BYTES,
    TAKES,
    TEMPLATE,
    TEMPLATE_BYTES,
    WATCHED,
    WATCHED_BYTES,
    YES,
    A,
    B,
    C,
    E,
)
from .signals import native_signal_handler_raised, raise_native_signal_handler_exception


def fill_native_argument_slots(plan: int, arguments: int, table: int) -> None:
    """Lay out the argument slots of a call: the template, then what the call's table decides."""
    copy(arguments, load(plan + TEMPLATE), load(plan + TEMPLATE_BYTES))
    patch = load(plan + PATCHES)
    last = patch + load(plan + PATCH_COUNT) * PATCH_BYTES
    while patch != last:
        store(arguments + load(patch), load(table + load(patch + 8)) + load(patch + 16))
        patch += PATCH_BYTES


def submit_native_run(engine: int, plan: int, run: int, arguments: int, table: int, number: int) -> None:
    """Start a run: its streams become ready."""
    fill_native_argument_slots(plan, arguments, table)
    streams = load(run + STREAM_COUNT)
    store(run + NUMBER, number)
    store(run + RUN_FAILED, 0)
    store(run + BEGAN, 0)
    store_shared(run + LAUNCHING_LEFT, load(run + LAUNCHING))
    store_shared(run + STREAMS_LEFT, streams)
    mutex_lock(engine + LOCK)
    stream = run + RUN_BYTES
    last = stream + streams * STREAM_BYTES
    while stream != last:
        store(stream + STEP, load(stream + FIRST_STEP))
        push_ready_native_stream(engine + READY, stream)
        stream += STREAM_BYTES
    mutex_unlock(engine + LOCK)
    wake_native_threads(engine, streams)


def run_native_plan_inline(plan: int, table: int) -> int:
    """Run a small plan here and now, in issue order. Spinning workers help with launches of several chunks. Whether it
    was ended early: see `signals`."""
    arguments = stack(load(plan + TEMPLATE_BYTES))
    fill_native_argument_slots(plan, arguments, table)
    step = load(plan + LAUNCHES)
    last = step + load(plan + LAUNCH_COUNT) * STEP_BYTES
    while step != last:
        if load(step + E) <= 1 or fork_native_launch_and_join(load(plan + PLAN_ENGINE), arguments, step) == 0:
            launch(load(step + A), arguments + load(step + B), 0, load(step + C))
        if load(step + LONG) and native_signal_handler_raised(load(plan + PLAN_ENGINE)):
            return 1
        step += STEP_BYTES
    return 0


def run_native_plan_from_python(plan: int, table: int) -> None:
    """`run_native_plan_inline` for Python, whose lock the caller has: it raises what ended it."""
    if run_native_plan_inline(plan, table):
        raise_native_signal_handler_exception(load(plan + PLAN_ENGINE))


def fork_native_launch_and_join(engine: int, arguments: int, step: int) -> int:
    """Fork a launch, help, and wait for all of it. 0, and nothing done, if nobody is there to help."""
    if engine == 0 or load_shared(engine + AWAKE) == 0:
        return 0
    slot = take_native_launch_slot(engine)
    if slot == 0:
        return 0
    generation = publish_native_launch(engine, slot, load(step + A), arguments + load(step + B), step, 0)
    left = claim_chunk(engine, slot, 0, 0, generation)
    while left:
        run_claimed_native_chunk(engine, slot, left)
        left = claim_chunk(engine, slot, 0, 0, generation)
    turns = 0
    while load_shared(slot + PENDING):
        relax()
        turns += 1
        if turns % 4096 == 0:
            sched_yield()
    free_native_launch_slot(engine, slot)
    return 1


def native_direct_call_from_python(this: int, given: int, count: int) -> int:
    """A function for Python (METH_FASTCALL, `this` is bytes): if every watched word is as it was and every argument as
    its row says, `run_native_plan_inline`, and True; else nothing, and False. It raises what ended it early."""
    head = this + BYTES_AT
    table = stack(load(head + TABLE_BYTES))
    fits = 0
    if count == load(head + TAKES):
        fits = 1
    watched = head + DIRECT_BYTES
    rows = watched + load(head + WATCHED) * WATCHED_BYTES
    row = rows
    while fits and watched != row:
        if load(load(watched)) != load(watched + 8):
            fits = 0
        watched += WATCHED_BYTES
    at = given
    last = given + 8 * count
    while fits and at != last:
        argument = load(at)
        kind = load(row + ROW_DTYPE)
        if kind == PACKED:
            fits = unpack_native_call_scalars(argument, row, table)
        elif kind == BOXED:
            fits = load(argument + TYPE_AT) == load(row + ROW_TYPE) and argument & 15 == 0
            store(table + load(row + ROW_PLACE), argument + load(row + ROW_ADD))
        elif kind == 0 or is_array_like_native_row(argument, load(head + ARRAY_TYPE), row):
            store(table + load(row + ROW_PLACE), load(argument + DATA_AT) + load(row + ROW_ADD))
        else:
            fits = 0
        row += ROW_BYTES + 16 * load(row + ROW_NDIM)
        at += 8
    answer = load(head + NO)
    if fits and (load(head + ASSIGNS) == 0 or are_assigned_arrays_free(rows, given, last)):
        if load(head + STACK_BYTES):
            store(table + load(head + STACK_PLACE), stack(load(head + STACK_BYTES)))
        if run_native_plan_inline(load(head + DIRECT_PLAN), table):
            raise_native_signal_handler_exception(load(load(head + DIRECT_PLAN) + PLAN_ENGINE))
            return 0
        answer = load(head + YES)
    store(answer, load(answer) + load(head + REFERENCE))
    return answer


def unpack_native_call_scalars(argument: int, row: int, table: int) -> int:
    """Scalars, in `bytes`, go to the table. 0, and nothing is done, for any other argument."""
    if load(argument + TYPE_AT) != load(row + ROW_TYPE) or load(argument + LENGTH_AT) != load(row + ROW_LENGTH):
        return 0
    copy(table + load(row + ROW_PLACE), argument + BYTES_AT, load(row + ROW_LENGTH))
    return 1


def are_assigned_arrays_free(rows: int, given: int, last: int) -> int:
    """Whether each array that is assigned to is writeable and ends before any other argument's begins, or after it."""
    row = rows
    target = given
    while target != last:
        if load(row + ROW_ASSIGNED):
            if load(load(target) + FLAGS_AT) & WRITEABLE == 0:
                return 0
            begin = load(load(target) + DATA_AT) + load(row + ROW_ADD)
            end = begin + load(row + ROW_EXTENT)
            beside = rows
            other = given
            while other != last:
                if other != target and load(beside + ROW_EXTENT):
                    start = load(load(other) + DATA_AT) + load(beside + ROW_ADD)
                    if start < end and begin < start + load(beside + ROW_EXTENT):
                        return 0
                beside += ROW_BYTES + 16 * load(beside + ROW_NDIM)
                other += 8
        row += ROW_BYTES + 16 * load(row + ROW_NDIM)
        target += 8
    return 1


def is_array_like_native_row(argument: int, kind: int, row: int) -> int:
    """Whether an argument is a NumPy array of the row's dtype, shape, strides, and address modulo 16."""
    if load(argument + TYPE_AT) != kind or load(argument + DTYPE_AT) != load(row + ROW_DTYPE):
        return 0
    if load(argument + DATA_AT) & 15 != load(row + ROW_MODULO):
        return 0
    left = load(row + ROW_NDIM)
    if load(argument + NDIM_AT) & LOW_HALF != left:
        return 0
    size = load(argument + SHAPE_AT)
    stride = load(argument + STRIDES_AT)
    row += ROW_BYTES
    while left:
        if load(size) != load(row) or load(stride) != load(row + 8):
            return 0
        size += 8
        stride += 8
        row += 16
        left -= 1
    return 1
