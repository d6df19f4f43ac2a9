"""What the engine's threads share, as functions on words. Parking and waking, queues of streams, slots, events.

`words.records` describes the records; `word_language` makes machine code of this text; Python never runs it.
"""

from __future__ import annotations

from ...codegen.word_language import (
    clock_gettime,
    cond_broadcast,
    cond_init,
    cond_signal,
    fetch_add,
    fetch_and,
    fetch_or,
    launch,
    load,
    load_shared,
    lowest_bit,
    mutex_init,
    mutex_lock,
    mutex_unlock,
    relax,
    stack,
    store,
    store_shared,
    swapped,
)
from .records import (
    ARGUMENTS,
    CHAOS,
    CHUNK,
    CHUNKS,
    DICE,
    DONE,
    FREE,
    FUNCTION,
    GENERATION,
    HAPPENED,
    HOST_WORK,
    LAST,
    LIVE,
    LOCK,
    LOW_HALF,
    MONOTONIC,
    NEXT,
    PARKED,
    PENDING,
    POISON,
    READY,
    RESERVE,
    RUN_BYTES,
    SLOT_BYTES,
    SLOT_STEP,
    SLOT_STREAM,
    SLOTS,
    STEP,
    STREAM_BYTES,
    STREAM_COUNT,
    TICKET,
    UNITS,
    URGENT,
    WAITERS,
    WAITING,
    WORK,
    C,
    D,
    E,
)


def set_up_native_engine(engine: int) -> None:
    """Make an engine of zeroed memory."""
    mutex_init(engine + LOCK, 0)
    cond_init(engine + WORK, 0)
    cond_init(engine + DONE, 0)
    cond_init(engine + HOST_WORK, 0)
    cond_init(engine + RESERVE, 0)
    store(engine + FREE, ~0)


def native_monotonic_clock_ns() -> int:
    time = stack(16)
    clock_gettime(MONOTONIC, time)
    return load(time) * 1_000_000_000 + load(time + 8)


def wake_native_threads(engine: int, threads: int) -> None:
    """Work has come for as many threads."""
    if load_shared(engine + PARKED) or load_shared(engine + WAITING):
        mutex_lock(engine + LOCK)
        if load(engine + PARKED) <= threads:
            cond_broadcast(engine + WORK)
        else:
            while threads:
                cond_signal(engine + WORK)
                threads -= 1
        if load(engine + WAITING):
            cond_broadcast(engine + DONE)
            cond_signal(engine + RESERVE)
        mutex_unlock(engine + LOCK)


def engine_random_bits(engine: int) -> int:
    bits = fetch_add(engine + DICE, 0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB
    return bits ^ (bits >> 31)


def delay_native_thread_at_random(engine: int) -> None:
    """Chaos: nothing, or a delay of up to some 100 us."""
    turns = engine_random_bits(engine) & 4095
    if turns & 1:
        turns = 0
    while turns:
        relax()
        turns -= 1


# Queues of streams: the first at `queue`, the last in the word after it. The caller holds the lock.


def push_ready_native_stream(queue: int, stream: int) -> None:
    first = load(queue)
    if first == 0:
        store(stream + NEXT, 0)
        store(queue + LAST, stream)
        store_shared(queue, stream)
    elif load(stream + URGENT):
        store(stream + NEXT, first)
        store_shared(queue, stream)
    else:
        store(stream + NEXT, 0)
        store(load(queue + LAST) + NEXT, stream)
        store(queue + LAST, stream)


def is_native_step_needed(run: int, needs: int, stream: int, step: int) -> int:
    """Whether a helper of `run` should do the step of the stream. Run 0 is a worker, who does anything."""
    if run == 0:
        return 1
    number = (stream - run - RUN_BYTES) // STREAM_BYTES  # huge if the stream is of another run
    if number >= load(run + STREAM_COUNT):
        return 0
    return needs == 0 or step <= load(needs + 8 * number)


def find_ready_native_stream(queue: int, run: int, needs: int) -> int:
    """The first stream of a queue (that `run` needs, if not 0), or 0."""
    stream = load(queue)
    while stream and is_native_step_needed(run, needs, stream, load(stream + STEP)) == 0:
        stream = load(stream + NEXT)
    return stream


def pop_ready_native_stream(engine: int, queue: int, run: int, needs: int) -> int:
    """Take what `find_ready_native_stream` finds; under chaos any that it might have found."""
    chaos = load(engine + CHAOS)
    found = 0
    before_found = 0
    before = 0
    stream = load(queue)
    while stream:
        if is_native_step_needed(run, needs, stream, load(stream + STEP)):
            found = stream
            before_found = before
            if chaos == 0 or engine_random_bits(engine) & 1:
                break
        before = stream
        stream = load(stream + NEXT)
    if found:
        after = load(found + NEXT)
        if before_found:
            store(before_found + NEXT, after)
        else:
            store_shared(queue, after)
        if after == 0:
            store(queue + LAST, before_found)
    return found


def requeue_native_stream(engine: int, stream: int) -> None:
    mutex_lock(engine + LOCK)
    push_ready_native_stream(engine + READY, stream)
    mutex_unlock(engine + LOCK)
    wake_native_threads(engine, 1)


# Slots.


def take_native_launch_slot(engine: int) -> int:
    free = load_shared(engine + FREE)
    while free:
        if swapped(engine + FREE, free, free & (free - 1)):
            return engine + SLOTS + lowest_bit(free) * SLOT_BYTES
        free = load_shared(engine + FREE)
    return 0


def native_launch_slot_bit(engine: int, slot: int) -> int:
    return 1 << (slot - engine - SLOTS) // SLOT_BYTES


def publish_native_launch(engine: int, slot: int, function: int, arguments: int, step: int, stream: int) -> int:
    """Offer a launch to all threads; the generation of its tickets."""
    chunks = load(step + E)
    store(slot + FUNCTION, function)
    store(slot + ARGUMENTS, arguments)
    store(slot + UNITS, load(step + C))
    store(slot + CHUNK, load(step + D))
    store(slot + CHUNKS, chunks)
    store(slot + SLOT_STREAM, stream)
    store(slot + SLOT_STEP, step)
    store_shared(slot + PENDING, chunks)
    generation = (load(slot + TICKET) & ~LOW_HALF) + GENERATION
    fetch_or(
        engine + LIVE, native_launch_slot_bit(engine, slot)
    )  # before the tickets: who takes the last one clears it
    store_shared(slot + TICKET, generation | chunks)
    return generation


def claim_chunk(engine: int, slot: int, run: int, needs: int, generation: int) -> int:
    """Own a chunk of a slot: how many were left, or 0. Only what `run` needs and of `generation`, if not 0."""
    ticket = load_shared(slot + TICKET)
    while ticket & LOW_HALF:
        if generation and ticket & ~LOW_HALF != generation:
            return 0
        if is_native_step_needed(run, needs, load_shared(slot + SLOT_STREAM), load_shared(slot + SLOT_STEP)) == 0:
            return 0
        if swapped(slot + TICKET, ticket, ticket - 1):
            if ticket & LOW_HALF == 1:
                fetch_and(engine + LIVE, ~native_launch_slot_bit(engine, slot))
            return ticket & LOW_HALF
        ticket = load_shared(slot + TICKET)
    return 0


def run_claimed_native_chunk(engine: int, slot: int, left: int) -> int:
    """Do an owned chunk; whether it was the last to be done."""
    if load(engine + CHAOS):
        delay_native_thread_at_random(engine)
    size = load(slot + CHUNK)
    units = load(slot + UNITS)
    begin = (load(slot + CHUNKS) - left) * size
    end = begin + size
    if end > units:
        end = units
    launch(load(slot + FUNCTION), load(slot + ARGUMENTS), begin, end)
    return fetch_add(slot + PENDING, -1) == 1


def free_native_launch_slot(engine: int, slot: int) -> None:
    fetch_or(engine + FREE, native_launch_slot_bit(engine, slot))


# Events.


def record_native_event(engine: int, event: int, number: int, poison: int) -> None:
    store(event + POISON, poison)
    store_shared(event + HAPPENED, number)
    woken = 0
    if load_shared(event + WAITERS):
        mutex_lock(engine + LOCK)
        stream = load(event + WAITERS)
        store_shared(event + WAITERS, 0)
        while stream:
            following = load(stream + NEXT)
            push_ready_native_stream(engine + READY, stream)
            woken += 1
            stream = following
        mutex_unlock(engine + LOCK)
    if woken or load_shared(engine + WAITING):
        wake_native_threads(engine, woken)


def await_native_event_on_stream(engine: int, stream: int, event: int, number: int) -> int:
    """Whether the event has happened. If not, the stream is left on its list, and no longer the caller's."""
    if load_shared(event + HAPPENED) < number:
        if load(engine + CHAOS):
            delay_native_thread_at_random(engine)
        mutex_lock(engine + LOCK)
        first = load(event + WAITERS)
        store(stream + NEXT, first)
        store_shared(event + WAITERS, stream)
        if load_shared(event + HAPPENED) < number:
            mutex_unlock(engine + LOCK)
            return 0
        store_shared(event + WAITERS, first)
        mutex_unlock(engine + LOCK)
    return 1
