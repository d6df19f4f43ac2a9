"""How streams go on, and what threads do, as functions on words. Steps, workers, waiting, stopping.

`words.records` describes the records; `word_language` makes machine code of this text; Python never runs it.
"""

from __future__ import annotations

from ...codegen.word_language import (
    clock_gettime,
    cond_broadcast,
    cond_signal,
    cond_timedwait,
    cond_wait,
    fetch_add,
    launch,
    load,
    load_shared,
    lowest_bit,
    mutex_lock,
    mutex_unlock,
    relax,
    stack,
    store,
    store_shared,
)
from .errors import (
    begin_native_run,
    cease_native_launches,
    end_native_run_stream,
    first_native_poison,
    propagate_native_poison,
    set_native_poison,
)
from .queues import (
    await_native_event_on_stream,
    claim_chunk,
    delay_native_thread_at_random,
    find_ready_native_stream,
    free_native_launch_slot,
    is_native_step_needed,
    native_monotonic_clock_ns,
    pop_ready_native_stream,
    publish_native_launch,
    push_ready_native_stream,
    record_native_event,
    requeue_native_stream,
    run_claimed_native_chunk,
    take_native_launch_slot,
    wake_native_threads,
)
from .records import (
    AWAKE,
    CEASE,
    CHAOS,
    DONE,
    ENDED_EARLY,
    ERROR_SOURCES,
    GATE,
    GATED_BYTES,
    HAPPENED,
    HOST,
    HOST_WORK,
    LAUNCH,
    LIVE,
    LOCK,
    LONG,
    NUMBER,
    OPERATION,
    PARKED,
    POISON,
    PYTHON,
    READY,
    REALTIME,
    RECORD,
    RESERVE,
    RUN,
    RUN_FAILED,
    SLICE_NS,
    SLOT_BYTES,
    SLOT_STEP,
    SLOT_STREAM,
    SLOTS,
    SPIN_NS,
    SPINS_PER_CHECK,
    STAMP,
    STEP,
    STEP_BYTES,
    STOP,
    WAIT,
    WAITING,
    WORK,
    A,
    B,
    C,
    E,
)
from .signals import native_signal_handler_raised


def launch_native_step_shared(engine: int, stream: int, run: int, step: int) -> int:
    """Launch in chunks, helping. Whether the caller still holds the stream: else another thread does the last chunk."""
    function = load(step + A)
    arguments = run + load(step + B)
    slot = 0
    if load(step + E) > 1:
        slot = take_native_launch_slot(engine)
    if slot == 0:
        if load(step + C):
            launch(function, arguments, 0, load(step + C))
        return 1
    chunks = load(step + E)
    generation = publish_native_launch(engine, slot, function, arguments, step, stream)
    wake_native_threads(engine, chunks - 1)
    left = claim_chunk(engine, slot, 0, 0, generation)
    while left:
        if run_claimed_native_chunk(engine, slot, left):
            free_native_launch_slot(engine, slot)
            return 1
        left = claim_chunk(engine, slot, 0, 0, generation)
    return 0


def advance_native_stream(engine: int, stream: int, helped: int, needs: int) -> None:
    """Go on with a stream until it ends, waits, or another thread has it. A helper launches only what it needs."""
    run = load(stream + RUN)
    until = 0
    held = 1
    while held:
        if load_shared(engine + STOP):
            return
        if load(engine + CHAOS):
            delay_native_thread_at_random(engine)
        step = load(stream + STEP)
        operation = load(step + OPERATION)
        if operation == LAUNCH:
            if is_native_step_needed(helped, needs, stream, step) == 0:
                requeue_native_stream(engine, stream)
                return
            store(stream + STEP, step + STEP_BYTES)
            if is_native_step_poisoned(run, step) == 0:
                begin_native_run(engine, run)
                held = launch_native_step_shared(engine, stream, run, step)
                if held and load(step + LONG):
                    until = end_of_native_slice(engine, run, step, helped, until)
                    if until and native_monotonic_clock_ns() > until:
                        requeue_native_stream(engine, stream)
                        return
        elif operation == RECORD:
            store(stream + STEP, step + STEP_BYTES)
            poison = first_native_poison(run, load(step + B))
            record_native_event(engine, run + load(step + A), load(run + NUMBER), poison)
        elif operation == WAIT:
            held = await_native_event_on_stream(engine, stream, run + load(step + A), load(run + NUMBER))
            if held:
                store(stream + STEP, step + STEP_BYTES)
        elif operation == GATE:
            held = pass_native_gates(engine, stream, run, load(run + load(step + A)))
            if held:
                store(stream + STEP, step + STEP_BYTES)
        elif operation == PYTHON:
            if is_native_step_poisoned(run, step):
                store(stream + STEP, step + STEP_BYTES)
            else:
                begin_native_run(engine, run)
                hand_native_step_to_python(engine, stream, helped, needs, step)
                held = 0
        elif operation == STAMP:
            store(stream + STEP, step + STEP_BYTES)
            store(run + load(step + A), native_monotonic_clock_ns())
        elif operation == CEASE:
            store(stream + STEP, step + STEP_BYTES)
            cease_native_launches(engine, run)
        else:
            end_native_run_stream(engine, stream, run)
            held = 0


def is_native_step_poisoned(run: int, step: int) -> int:
    """Whether an error keeps a step from being done; who waits for it gets that."""
    return load_shared(run + RUN_FAILED) and propagate_native_poison(run, load(step + ERROR_SOURCES))


def end_of_native_slice(engine: int, run: int, step: int, helped: int, until: int) -> int:
    """When a helper stops to see to its signals, or 0: at once where a handler of one has raised an error."""
    if native_signal_handler_raised(engine):
        set_native_poison(run, load(load(step + ERROR_SOURCES)), ENDED_EARLY)
        return 1
    if helped and until == 0:
        return native_monotonic_clock_ns() + SLICE_NS
    return until


def pass_native_gates(engine: int, stream: int, run: int, gated: int) -> int:
    """Wait for each event of a list, and take its poison. Whether the caller still holds the stream."""
    while gated and load(gated):
        if await_native_event_on_stream(engine, stream, load(gated), load(gated + 8)) == 0:
            return 0
        if load(load(gated) + POISON):
            set_native_poison(run, load(gated + 16), load(load(gated) + POISON))
        gated += GATED_BYTES
    return 1


# Steps that need Python.


def hand_native_step_to_python(engine: int, stream: int, helper: int, needs: int, step: int) -> None:
    """Leave a stream to Python: to the helper itself, if it needs it, or to the Python thread or who waits for it."""
    helped = helper and is_native_step_needed(helper, needs, stream, step)
    mutex_lock(engine + LOCK)
    push_ready_native_stream(engine + HOST, stream)
    if helped == 0:
        cond_signal(engine + HOST_WORK)
        if load(engine + WAITING):
            cond_broadcast(engine + DONE)
    mutex_unlock(engine + LOCK)


def wake_python_from_native_thread(engine: int) -> None:
    """A helper leaves; the Python thread looks after what it may have left."""
    mutex_lock(engine + LOCK)
    cond_signal(engine + HOST_WORK)
    mutex_unlock(engine + LOCK)


def take_native_stream_for_python(engine: int, answer: int, run: int, needs: int) -> int:
    """A stream that needs Python, or 0. The run's number and the step's task go to `answer`.

    With run 0 it sleeps until there is one (0: the engine has stopped), else it takes only what `run` needs."""
    mutex_lock(engine + LOCK)
    while run == 0 and load(engine + HOST) == 0 and load_shared(engine + STOP) == 0:
        cond_wait(engine + HOST_WORK, engine + LOCK)
    stream = 0
    if load_shared(engine + STOP) == 0:
        stream = pop_ready_native_stream(engine, engine + HOST, run, needs)
    if stream:
        store(answer, load(load(stream + RUN) + NUMBER))
        store(answer + 8, load(load(stream + STEP) + A))
        if load(engine + HOST):  # a helper leaves its steps without a signal, and can do but one at a time
            cond_signal(engine + HOST_WORK)
    mutex_unlock(engine + LOCK)
    return stream


def finish_native_step_of_python(engine: int, stream: int, failed: int) -> None:
    """The step is done, or has failed: the number of the error. The stream goes on."""
    step = load(stream + STEP)
    if failed:
        set_native_poison(load(stream + RUN), load(load(step + ERROR_SOURCES)), failed)
    store(stream + STEP, step + STEP_BYTES)
    requeue_native_stream(engine, stream)


# Threads.


def do_one_piece_of_work(engine: int, run: int, needs: int) -> int:
    """Find one piece of work (that `run` needs, if not 0) and do it. Whether there was any."""
    live = load_shared(engine + LIVE)
    while live:
        slot = engine + SLOTS + lowest_bit(live) * SLOT_BYTES
        left = claim_chunk(engine, slot, run, needs, 0)
        if left:
            stream = load(slot + SLOT_STREAM)
            if run_claimed_native_chunk(engine, slot, left) and stream:
                free_native_launch_slot(engine, slot)
                advance_native_stream(engine, stream, run, needs)
            return 1
        live = live & (live - 1)
    if load_shared(engine + READY):
        mutex_lock(engine + LOCK)
        stream = pop_ready_native_stream(engine, engine + READY, run, needs)
        mutex_unlock(engine + LOCK)
        if stream:
            advance_native_stream(engine, stream, run, needs)
            return 1
    return 0


def run_native_worker_thread(engine: int) -> int:
    """A thread's life: work, spin a while, park."""
    fetch_add(engine + AWAKE, 1)
    until = native_monotonic_clock_ns() + SPIN_NS
    turns = 0
    while load_shared(engine + STOP) == 0:
        if do_one_piece_of_work(engine, 0, 0):
            turns = 0
            until = 0
        else:
            relax()
            turns += 1
            if turns % SPINS_PER_CHECK == 0:
                if until == 0:
                    until = native_monotonic_clock_ns() + SPIN_NS
                elif native_monotonic_clock_ns() > until:
                    park_worker(engine)
                    until = 0
    fetch_add(engine + AWAKE, -1)
    return 0


def park_worker(engine: int) -> None:
    if load(engine + CHAOS):
        delay_native_thread_at_random(engine)
    mutex_lock(engine + LOCK)
    fetch_add(engine + AWAKE, -1)
    fetch_add(engine + PARKED, 1)
    while load_shared(engine + LIVE) == 0 and load_shared(engine + READY) == 0 and load_shared(engine + STOP) == 0:
        cond_wait(engine + WORK, engine + LOCK)
    fetch_add(engine + PARKED, -1)
    fetch_add(engine + AWAKE, 1)
    mutex_unlock(engine + LOCK)


def run_native_reserve_thread(engine: int) -> int:
    """The life of a thread that works only while another one sleeps until something has happened: its core is free."""
    mutex_lock(engine + LOCK)
    while load_shared(engine + STOP) == 0:
        if load_shared(engine + WAITING) and (load_shared(engine + READY) or load_shared(engine + LIVE)):
            mutex_unlock(engine + LOCK)
            do_one_piece_of_work(engine, 0, 0)
            mutex_lock(engine + LOCK)
        else:
            cond_wait(engine + RESERVE, engine + LOCK)
    mutex_unlock(engine + LOCK)
    return 0


def has_native_event_happened(event: int, number: int, goal: int, goal_number: int) -> int:
    return load_shared(event + HAPPENED) >= number or load_shared(goal + HAPPENED) >= goal_number


def wait_for_native_event(
    engine: int, run: int, needs: int, event: int, number: int, goal: int, goal_number: int, limit_ns: int
) -> int:
    """Help with what `run` needs until one of two events has happened (1), or the time is over (0), or the run needs
    a step of Python's (2), or a loop was ended early, which Python is to hear of (3)."""
    if has_native_event_happened(event, number, goal, goal_number):
        return 1
    start = native_monotonic_clock_ns()
    turns = 0
    while has_native_event_happened(event, number, goal, goal_number) == 0:
        if load_shared(engine + STOP):
            return 0
        if do_one_piece_of_work(engine, run, needs):
            turns = 0
            if native_signal_handler_raised(engine):
                return 3
        elif (
            turns % SPINS_PER_CHECK == 0
            and load_shared(engine + HOST)
            and next_native_step_needs_python(engine, run, needs)
        ):
            return 2
        else:
            relax()
            turns += 1
            if turns % SPINS_PER_CHECK == 0 and native_monotonic_clock_ns() - start > SPIN_NS:
                sleep_until_native_event(engine, run, needs, event, number, goal, goal_number, limit_ns)
        if turns % SPINS_PER_CHECK == 0 and native_monotonic_clock_ns() - start > limit_ns:
            return has_native_event_happened(event, number, goal, goal_number)
    return 1


def next_native_step_needs_python(engine: int, run: int, needs: int) -> int:
    mutex_lock(engine + LOCK)
    stream = find_ready_native_stream(engine + HOST, run, needs)
    mutex_unlock(engine + LOCK)
    return stream != 0


def sleep_until_native_event(
    engine: int, run: int, needs: int, event: int, number: int, goal: int, goal_number: int, limit_ns: int
) -> None:
    time = stack(16)
    mutex_lock(engine + LOCK)
    fetch_add(engine + WAITING, 1)
    stay = (
        has_native_event_happened(event, number, goal, goal_number)
        or load_shared(engine + STOP)
        or has_native_work_for_run(engine, run, needs)
    )
    if stay == 0:
        if load_shared(engine + READY) or load_shared(engine + LIVE):
            cond_signal(engine + RESERVE)
        clock_gettime(REALTIME, time)
        nanoseconds = load(time + 8) + limit_ns
        store(time, load(time) + nanoseconds // 1_000_000_000)
        store(time + 8, nanoseconds % 1_000_000_000)
        cond_timedwait(engine + DONE, engine + LOCK, time)
    fetch_add(engine + WAITING, -1)
    mutex_unlock(engine + LOCK)


def has_native_work_for_run(engine: int, run: int, needs: int) -> int:
    """Whether there is work that `run` needs; the caller holds the lock."""
    live = load_shared(engine + LIVE)
    while live:
        slot = engine + SLOTS + lowest_bit(live) * SLOT_BYTES
        if is_native_step_needed(run, needs, load_shared(slot + SLOT_STREAM), load_shared(slot + SLOT_STEP)):
            return 1
        live = live & (live - 1)
    return find_ready_native_stream(engine + READY, run, needs) or find_ready_native_stream(engine + HOST, run, needs)


def stop_native_threads(engine: int) -> None:
    """Every thread leaves after the chunk or step that it is doing."""
    mutex_lock(engine + LOCK)
    store_shared(engine + STOP, 1)
    cond_broadcast(engine + WORK)
    cond_broadcast(engine + DONE)
    cond_broadcast(engine + HOST_WORK)
    cond_broadcast(engine + RESERVE)
    mutex_unlock(engine + LOCK)
