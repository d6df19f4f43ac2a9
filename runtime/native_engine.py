"""The engine's native half: functions on 64-bit words, which `native_ir` turns into machine code; never run by Python.

Records, all made of words, at the byte offsets named below:

- the engine: `LIVE`, a bit for each slot with unclaimed chunks; a queue of streams that are ready to go on, and one of
  streams whose next step is Python's; how many threads are parked; one lock with three conditions.
- a slot: a launch that several threads work on. `TICKET` holds a generation (high half) and the number of unclaimed
  chunks (low half); who lowers it by compare-and-swap owns a chunk, and until that chunk is done the slot's other words
  stand still. `PENDING` counts unfinished chunks; who brings it to 0 goes on with the stream.
- a run: one call of a plan: its streams, events, gates and argument slots. A stream is a queue of steps, not a thread:
  whoever holds it runs `_advance`, and a stream that has to wait is left on its event's list.
- needs: for a thread that helps only until some event has happened: for each stream of the event's run the last step
  that the event needs, or 0; in the place of the whole list 0, if all of the run is needed.
- an event: `HAPPENED`, the number of the last run in which it happened (numbers grow, so nothing is ever reset), the
  streams that wait for it, and the poison: the number of the error that it brings along, or 0.

A run's last touch is `RELEASED`: after that its memory may be used again.
The lock guards both queues, the lists of waiting streams, and parking. The words that are read without it are written
first and the other side's word read second, on both sides (Dekker): a publisher sets `LIVE` then reads `PARKED`, a
worker raises `PARKED` then reads `LIVE`; so does an event with its list.
"""

from __future__ import annotations

from .native_ir import (
    clock_gettime,
    cond_broadcast,
    cond_init,
    cond_signal,
    cond_timedwait,
    cond_wait,
    copy,
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
    sched_yield,
    stack,
    store,
    store_shared,
    swapped,
)

# The engine.
LIVE, READY, READY_LAST = 0, 8, 16
FREE = 64
PARKED, WAITING, SPINNING, STOP, CHAOS, DICE = 128, 136, 144, 152, 160, 168
HOST, HOST_LAST, HOST_PARKED = 192, 200, 208
ACTIVE, BEGUN = 216, 224  # runs that have begun and not ended; runs that have ever begun
LOCK, WORK, DONE, HOST_WORK = 256, 384, 512, 640
SLOTS, SLOT_BYTES, SLOT_COUNT = 1024, 128, 64
ENGINE_BYTES = 1024 + 64 * 128

# A slot.
TICKET, PENDING, FUNCTION, ARGUMENTS, UNITS, CHUNK, CHUNKS, SLOT_STREAM, SLOT_STEP = 0, 64, 8, 16, 24, 32, 40, 48, 56

# A run. Its own event says that all of it is done; RELEASED comes after the last touch. BEGAN and ENDED: when its first
# launch began and its last ended; ORDINAL: its place among all that have begun; OTHERS: whether others ran in between.
# LAUNCHING: streams that launch anything; CEASE comes after the last launch of each, before the events after that.
NUMBER, STREAMS_LEFT, RUN_EVENT, RELEASED, RUN_FAILED, STREAM_COUNT = 0, 8, 16, 40, 48, 56
BEGAN, ENDED, ORDINAL, OTHERS, LAUNCHING, LAUNCHING_LEFT = 64, 72, 80, 88, 96, 104
RUN_BYTES = 128

# A stream. NEXT is its link in whatever list it is on.
NEXT, STEP, RUN, FAILED, FIRST_STEP, URGENT = 0, 8, 16, 24, 32, 40
STREAM_BYTES = 64

# An event, and a pair of a gate: the event's address and its run's number. A gate is a list of pairs that ends in 0.
HAPPENED, WAITERS, POISON = 0, 8, 16
EVENT_BYTES = 24
PAIR_BYTES = 16

# A step: its operation and operands. Places inside the run are offsets.
OPERATION, A, B, C, D, E = 0, 8, 16, 24, 32, 40
STEP_BYTES = 64
LAUNCH, RECORD, WAIT, GATE, PYTHON, CEASE, END = 0, 1, 2, 3, 4, 5, 6

# A call's arguments: a template of all slots, and for each word that differs from call to call (its place in the slots,
# its place in the call's table, what to add).
TEMPLATE, TEMPLATE_BYTES, PATCHES, PATCH_COUNT, LAUNCHES, LAUNCH_COUNT, PLAN_ENGINE = 0, 8, 16, 24, 32, 40, 48
PATCH_BYTES = 24

LOW_HALF = 0xFFFFFFFF
GENERATION = 1 << 32
SPIN_NS = 50_000
TURNS_A_LOOK = 32  # spins between two looks at the clock


def setup(engine: int) -> None:
    """Make an engine of zeroed memory."""
    mutex_init(engine + LOCK, 0)
    cond_init(engine + WORK, 0)
    cond_init(engine + DONE, 0)
    cond_init(engine + HOST_WORK, 0)
    store(engine + FREE, ~0)


def _now() -> int:
    time = stack(16)
    clock_gettime(1, time)
    return load(time) * 1_000_000_000 + load(time + 8)


def _wake(engine: int, threads: int) -> None:
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
        mutex_unlock(engine + LOCK)


def _random(engine: int) -> int:
    bits = fetch_add(engine + DICE, 0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB
    return bits ^ (bits >> 31)


def _dawdle(engine: int) -> None:
    """Chaos: nothing, or a delay of up to some 100 us."""
    turns = _random(engine) & 4095
    if turns & 1:
        turns = 0
    while turns:
        relax()
        turns -= 1


# Queues of streams; the caller holds the lock.


def _push(engine: int, stream: int) -> None:
    first = load(engine + READY)
    if first == 0:
        store(stream + NEXT, 0)
        store(engine + READY_LAST, stream)
        store_shared(engine + READY, stream)
    elif load(stream + URGENT):
        store(stream + NEXT, first)
        store_shared(engine + READY, stream)
    else:
        store(stream + NEXT, 0)
        store(load(engine + READY_LAST) + NEXT, stream)
        store(engine + READY_LAST, stream)


def _needed(run: int, needs: int, stream: int, step: int) -> int:
    """Whether a helper of `run` should do the step of the stream; run 0 is a worker, who does anything."""
    if run == 0:
        return 1
    number = (stream - run - RUN_BYTES) // STREAM_BYTES  # huge if the stream is of another run
    if number >= load(run + STREAM_COUNT):
        return 0
    return needs == 0 or step <= load(needs + 8 * number)


def _pop(engine: int, run: int, needs: int) -> int:
    """The first ready stream (that `run` needs, if not 0), or 0; under chaos any."""
    chaos = load(engine + CHAOS)
    found = 0
    before_found = 0
    before = 0
    stream = load(engine + READY)
    while stream:
        if _needed(run, needs, stream, load(stream + STEP)):
            found = stream
            before_found = before
            if chaos == 0 or _random(engine) & 1:
                break
        before = stream
        stream = load(stream + NEXT)
    if found:
        after = load(found + NEXT)
        if before_found:
            store(before_found + NEXT, after)
        else:
            store_shared(engine + READY, after)
        if after == 0:
            store(engine + READY_LAST, before_found)
    return found


def _ready_again(engine: int, stream: int) -> None:
    mutex_lock(engine + LOCK)
    _push(engine, stream)
    mutex_unlock(engine + LOCK)
    _wake(engine, 1)


# Slots.


def _take_slot(engine: int) -> int:
    free = load_shared(engine + FREE)
    while free:
        if swapped(engine + FREE, free, free & (free - 1)):
            return engine + SLOTS + lowest_bit(free) * SLOT_BYTES
        free = load_shared(engine + FREE)
    return 0


def _bit(engine: int, slot: int) -> int:
    return 1 << (slot - engine - SLOTS) // SLOT_BYTES


def _publish(engine: int, slot: int, function: int, arguments: int, step: int, stream: int) -> int:
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
    fetch_or(engine + LIVE, _bit(engine, slot))  # before the tickets: who takes the last one clears it
    store_shared(slot + TICKET, generation | chunks)
    return generation


def _claim(engine: int, slot: int, run: int, needs: int, generation: int) -> int:
    """Own a chunk of a slot: how many were left, or 0. Only what `run` needs and of `generation`, if not 0."""
    ticket = load_shared(slot + TICKET)
    while ticket & LOW_HALF:
        if generation and ticket & ~LOW_HALF != generation:
            return 0
        if _needed(run, needs, load_shared(slot + SLOT_STREAM), load_shared(slot + SLOT_STEP)) == 0:
            return 0
        if swapped(slot + TICKET, ticket, ticket - 1):
            if ticket & LOW_HALF == 1:
                fetch_and(engine + LIVE, ~_bit(engine, slot))
            return ticket & LOW_HALF
        ticket = load_shared(slot + TICKET)
    return 0


def _chunk(engine: int, slot: int, left: int) -> int:
    """Do an owned chunk; whether it was the last to be done."""
    if load(engine + CHAOS):
        _dawdle(engine)
    size = load(slot + CHUNK)
    units = load(slot + UNITS)
    begin = (load(slot + CHUNKS) - left) * size
    end = begin + size
    if end > units:
        end = units
    launch(load(slot + FUNCTION), load(slot + ARGUMENTS), begin, end)
    return fetch_add(slot + PENDING, -1) == 1


def _give_slot(engine: int, slot: int) -> None:
    fetch_or(engine + FREE, _bit(engine, slot))


def _launch_shared(engine: int, stream: int, run: int, step: int) -> int:
    """Launch in chunks, helping. Whether the caller still holds the stream: else another thread does the last chunk."""
    function = load(step + A)
    arguments = run + load(step + B)
    slot = 0
    if load(step + E) > 1:
        slot = _take_slot(engine)
    if slot == 0:
        if load(step + C):
            launch(function, arguments, 0, load(step + C))
        return 1
    chunks = load(step + E)
    generation = _publish(engine, slot, function, arguments, step, stream)
    _wake(engine, chunks - 1)
    left = _claim(engine, slot, 0, 0, generation)
    while left:
        if _chunk(engine, slot, left):
            _give_slot(engine, slot)
            return 1
        left = _claim(engine, slot, 0, 0, generation)
    return 0


# Events.


def _record(engine: int, event: int, number: int, poison: int) -> None:
    store(event + POISON, poison)
    store_shared(event + HAPPENED, number)
    woken = 0
    if load_shared(event + WAITERS):
        mutex_lock(engine + LOCK)
        stream = load(event + WAITERS)
        store_shared(event + WAITERS, 0)
        while stream:
            following = load(stream + NEXT)
            _push(engine, stream)
            woken += 1
            stream = following
        mutex_unlock(engine + LOCK)
    if woken or load_shared(engine + WAITING):
        _wake(engine, woken)


def _await(engine: int, stream: int, event: int, number: int) -> int:
    """Whether the event has happened; if not, the stream is left on its list, and no longer the caller's."""
    if load_shared(event + HAPPENED) < number:
        if load(engine + CHAOS):
            _dawdle(engine)
        mutex_lock(engine + LOCK)
        first = load(event + WAITERS)
        store(stream + NEXT, first)
        store_shared(event + WAITERS, stream)
        if load_shared(event + HAPPENED) < number:
            mutex_unlock(engine + LOCK)
            return 0
        store_shared(event + WAITERS, first)
        mutex_unlock(engine + LOCK)
    if load(stream + FAILED) == 0:
        store(stream + FAILED, load(event + POISON))
    return 1


# Streams.


def _advance(engine: int, stream: int, helped: int, needs: int) -> None:
    """Go on with a stream until it ends, waits, or another thread has it; a helper launches only what it needs."""
    run = load(stream + RUN)
    held = 1
    while held:
        if load_shared(engine + STOP):
            return
        if load(engine + CHAOS):
            _dawdle(engine)
        step = load(stream + STEP)
        operation = load(step + OPERATION)
        if operation == LAUNCH:
            if _needed(helped, needs, stream, step) == 0:
                _ready_again(engine, stream)
                return
            store(stream + STEP, step + STEP_BYTES)
            if load(stream + FAILED) == 0:
                if load_shared(run + BEGAN) == 0:
                    _begin(engine, run)
                held = _launch_shared(engine, stream, run, step)
        elif operation == RECORD:
            store(stream + STEP, step + STEP_BYTES)
            _record(engine, run + load(step + A), load(run + NUMBER), load(stream + FAILED))
        elif operation == WAIT:
            held = _await(engine, stream, run + load(step + A), load(run + NUMBER))
            if held:
                store(stream + STEP, step + STEP_BYTES)
        elif operation == GATE:
            pair = load(run + load(step + A))
            while held and pair and load(pair):
                held = _await(engine, stream, load(pair), load(pair + 8))
                pair += PAIR_BYTES
            if held:
                store(stream + STEP, step + STEP_BYTES)
        elif operation == PYTHON:
            if load(stream + FAILED):
                store(stream + STEP, step + STEP_BYTES)
            else:
                if load_shared(run + BEGAN) == 0:
                    _begin(engine, run)
                _to_python(engine, stream)
                held = 0
        elif operation == CEASE:
            store(stream + STEP, step + STEP_BYTES)
            if fetch_add(run + LAUNCHING_LEFT, -1) == 1 and load_shared(run + BEGAN):
                _cease(engine, run)
        else:
            _end(engine, stream, run)
            held = 0


def _begin(engine: int, run: int) -> None:
    if swapped(run + BEGAN, 0, _now()):
        store(run + OTHERS, fetch_add(engine + ACTIVE, 1))
        store(run + ORDINAL, fetch_add(engine + BEGUN, 1) + 1)


def _cease(engine: int, run: int) -> None:
    store(run + ENDED, _now())
    if load_shared(engine + BEGUN) != load(run + ORDINAL):
        store(run + OTHERS, 1)
    fetch_add(engine + ACTIVE, -1)


def _end(engine: int, stream: int, run: int) -> None:
    number = load(run + NUMBER)
    if load(stream + FAILED):
        store_shared(run + RUN_FAILED, load(stream + FAILED))
    if fetch_add(run + STREAMS_LEFT, -1) == 1:
        _record(engine, run + RUN_EVENT, number, load_shared(run + RUN_FAILED))
        store_shared(run + RELEASED, number)


def _to_python(engine: int, stream: int) -> None:
    mutex_lock(engine + LOCK)
    store(stream + NEXT, 0)
    if load(engine + HOST):
        store(load(engine + HOST_LAST) + NEXT, stream)
    else:
        store(engine + HOST, stream)
    store(engine + HOST_LAST, stream)
    cond_signal(engine + HOST_WORK)
    mutex_unlock(engine + LOCK)


def next_for_python(engine: int, answer: int) -> int:
    """Sleep until a stream needs Python: its address, with the run's number and the step's task in `answer`; or 0."""
    mutex_lock(engine + LOCK)
    while load(engine + HOST) == 0 and load_shared(engine + STOP) == 0:
        cond_wait(engine + HOST_WORK, engine + LOCK)
    stream = load(engine + HOST)
    if load_shared(engine + STOP):
        stream = 0
    if stream:
        store(engine + HOST, load(stream + NEXT))
        store(answer, load(load(stream + RUN) + NUMBER))
        store(answer + 8, load(load(stream + STEP) + A))
    mutex_unlock(engine + LOCK)
    return stream


def done_by_python(engine: int, stream: int, failed: int) -> None:
    """The step is done, or has failed: the number of the error. The stream goes on."""
    store(stream + FAILED, failed)
    store(stream + STEP, load(stream + STEP) + STEP_BYTES)
    _ready_again(engine, stream)


# Threads.


def _work(engine: int, run: int, needs: int) -> int:
    """Find one piece of work (that `run` needs, if not 0) and do it; whether there was any."""
    live = load_shared(engine + LIVE)
    while live:
        slot = engine + SLOTS + lowest_bit(live) * SLOT_BYTES
        left = _claim(engine, slot, run, needs, 0)
        if left:
            stream = load(slot + SLOT_STREAM)
            if _chunk(engine, slot, left) and stream:
                _give_slot(engine, slot)
                _advance(engine, stream, run, needs)
            return 1
        live = live & (live - 1)
    if load_shared(engine + READY):
        mutex_lock(engine + LOCK)
        stream = _pop(engine, run, needs)
        mutex_unlock(engine + LOCK)
        if stream:
            _advance(engine, stream, run, needs)
            return 1
    return 0


def worker(engine: int) -> int:
    """A thread's life: work, spin a while, park."""
    fetch_add(engine + SPINNING, 1)
    until = _now() + SPIN_NS
    turns = 0
    while load_shared(engine + STOP) == 0:
        if _work(engine, 0, 0):
            turns = 0
            until = 0
        else:
            relax()
            turns += 1
            if turns % TURNS_A_LOOK == 0:
                if until == 0:
                    until = _now() + SPIN_NS
                elif _now() > until:
                    _park(engine)
                    until = 0
    fetch_add(engine + SPINNING, -1)
    return 0


def _park(engine: int) -> None:
    if load(engine + CHAOS):
        _dawdle(engine)
    mutex_lock(engine + LOCK)
    fetch_add(engine + SPINNING, -1)
    fetch_add(engine + PARKED, 1)
    while load_shared(engine + LIVE) == 0 and load_shared(engine + READY) == 0 and load_shared(engine + STOP) == 0:
        cond_wait(engine + WORK, engine + LOCK)
    fetch_add(engine + PARKED, -1)
    fetch_add(engine + SPINNING, 1)
    mutex_unlock(engine + LOCK)


def _happened(event: int, number: int, goal: int, goal_number: int) -> int:
    return load_shared(event + HAPPENED) >= number or load_shared(goal + HAPPENED) >= goal_number


def wait(engine: int, run: int, needs: int, event: int, number: int, goal: int, goal_number: int, limit_ns: int) -> int:
    """Help with what `run` needs until one of two events has happened, or the time is over; whether one has."""
    if _happened(event, number, goal, goal_number):
        return 1
    start = _now()
    turns = 0
    while _happened(event, number, goal, goal_number) == 0:
        if load_shared(engine + STOP):
            return 0
        if _work(engine, run, needs):
            turns = 0
        else:
            relax()
            turns += 1
            if turns % TURNS_A_LOOK == 0 and _now() - start > SPIN_NS:
                _sleep(engine, run, needs, event, number, goal, goal_number, limit_ns)
        if turns % TURNS_A_LOOK == 0 and _now() - start > limit_ns:
            return _happened(event, number, goal, goal_number)
    return 1


def _sleep(
    engine: int, run: int, needs: int, event: int, number: int, goal: int, goal_number: int, limit_ns: int
) -> None:
    time = stack(16)
    mutex_lock(engine + LOCK)
    fetch_add(engine + WAITING, 1)
    stay = _happened(event, number, goal, goal_number) or load_shared(engine + STOP) or _has_work(engine, run, needs)
    if stay == 0:
        clock_gettime(0, time)
        nanoseconds = load(time + 8) + limit_ns
        store(time, load(time) + nanoseconds // 1_000_000_000)
        store(time + 8, nanoseconds % 1_000_000_000)
        cond_timedwait(engine + DONE, engine + LOCK, time)
    fetch_add(engine + WAITING, -1)
    mutex_unlock(engine + LOCK)


def _has_work(engine: int, run: int, needs: int) -> int:
    """Whether there is work that `run` needs; the caller holds the lock."""
    live = load_shared(engine + LIVE)
    while live:
        slot = engine + SLOTS + lowest_bit(live) * SLOT_BYTES
        if _needed(run, needs, load_shared(slot + SLOT_STREAM), load_shared(slot + SLOT_STEP)):
            return 1
        live = live & (live - 1)
    stream = load(engine + READY)
    while stream:
        if _needed(run, needs, stream, load(stream + STEP)):
            return 1
        stream = load(stream + NEXT)
    return 0


def stop(engine: int) -> None:
    """Every thread leaves after the chunk or step that it is doing."""
    mutex_lock(engine + LOCK)
    store_shared(engine + STOP, 1)
    cond_broadcast(engine + WORK)
    cond_broadcast(engine + DONE)
    cond_broadcast(engine + HOST_WORK)
    mutex_unlock(engine + LOCK)


# Calls.


def _fill(plan: int, arguments: int, table: int) -> None:
    """Lay out the argument slots of a call: the template, then what the call's table decides."""
    copy(arguments, load(plan + TEMPLATE), load(plan + TEMPLATE_BYTES))
    patch = load(plan + PATCHES)
    last = patch + load(plan + PATCH_COUNT) * PATCH_BYTES
    while patch != last:
        store(arguments + load(patch), load(table + load(patch + 8)) + load(patch + 16))
        patch += PATCH_BYTES


def submit(engine: int, plan: int, run: int, arguments: int, table: int, number: int) -> None:
    """Start a run: its streams become ready."""
    _fill(plan, arguments, table)
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
        store(stream + FAILED, 0)
        _push(engine, stream)
        stream += STREAM_BYTES
    mutex_unlock(engine + LOCK)
    _wake(engine, streams)


def inline(plan: int, table: int) -> None:
    """Run a small plan here and now, in issue order; spinning workers help with launches of several chunks."""
    arguments = stack(load(plan + TEMPLATE_BYTES))
    _fill(plan, arguments, table)
    step = load(plan + LAUNCHES)
    last = step + load(plan + LAUNCH_COUNT) * STEP_BYTES
    while step != last:
        if load(step + E) <= 1 or _join(load(plan + PLAN_ENGINE), arguments, step) == 0:
            launch(load(step + A), arguments + load(step + B), 0, load(step + C))
        step += STEP_BYTES


def _join(engine: int, arguments: int, step: int) -> int:
    """Fork a launch, help, and wait for all of it; 0, and nothing done, if nobody is there to help."""
    if engine == 0 or load_shared(engine + SPINNING) == 0:
        return 0
    slot = _take_slot(engine)
    if slot == 0:
        return 0
    generation = _publish(engine, slot, load(step + A), arguments + load(step + B), step, 0)
    left = _claim(engine, slot, 0, 0, generation)
    while left:
        _chunk(engine, slot, left)
        left = _claim(engine, slot, 0, 0, generation)
    turns = 0
    while load_shared(slot + PENDING):
        relax()
        turns += 1
        if turns % 4096 == 0:
            sched_yield()
    _give_slot(engine, slot)
    return 1
