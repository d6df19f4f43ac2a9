"""Plans for the native engine, memory for them, and what must hold after each test of it."""

from __future__ import annotations

import contextlib
import random
import time

import numpy as np

from kernelgraph.runtime.core.host_pool import numpy_view_of_pool_block
from kernelgraph.runtime.core.settings import override
from kernelgraph.runtime.engine import engine as native
from kernelgraph.runtime.engine.words import records as e
from kernelgraph.runtime.program.program import Buffer, Int, Pointer, Task
from tests.runtime.cpu_plans import (
    BLOCKED,
    HASH,
    hash_program,
    hash_reference,
    in_order,
    library_task,
    random_plan,
    region,
)


def at_rest(engine):
    """Whether there is nothing to do, all slots are free, and all workers sleep."""
    w = engine._words
    busy = w[e.LIVE // 8] or w[e.READY // 8] or w[e.HOST // 8] or w[e.FREE // 8] != (1 << e.SLOT_COUNT) - 1
    return not busy and engine.parked_workers == engine.workers


def check_rest():
    engine = native.engine_of_process()
    limit = time.monotonic() + 60
    while engine is not None and not at_rest(engine):
        assert time.monotonic() < limit, "the engine does not come to rest"
        time.sleep(0.001)


class Arrays:
    """Memory of a plan's buffers, seen as int64."""

    def __init__(self, device, plan, contents):
        self.plan = plan
        self.kept = [device.allocate(b.nbytes) for b in plan.program.buffers]
        self.arena = device.allocate(max(1, plan.arena_bytes))
        places = zip(self.kept, plan.program.buffers, plan.offsets, strict=True)
        self.views = [
            numpy_view_of_pool_block(k if o is None else self.arena, np.int64, (b.nbytes // 8,), o or 0)
            for k, b, o in places
        ]
        for view, content in zip(self.views, contents, strict=True):
            view[...] = content

    def run(self, executable, after=(), waits=False):
        memories = [k.address if o is None else None for k, o in zip(self.kept, self.plan.offsets, strict=True)]
        run = executable.run_and_wait if waits else executable.run
        return run(memories, self.arena.address, (), after)


def contents_of(rng, program):
    generator = np.random.default_rng(rng.randrange(1 << 30))
    return [generator.integers(-(1 << 62), 1 << 62, b.nbytes // 8) for b in program.buffers]


def check_random_plan(device, seed, mode, until_all=True):
    """The outputs are right, as soon as their events say so. Gives what must live until all tasks are done."""
    rng = random.Random(seed)
    program = hash_program(rng, rng.choice([1, 5, 64]), rng.randrange(1, 14), rng.randrange(5))
    plan = random_plan(rng, program, rng.randrange(1, 5))
    with way_of_running(mode)[0]:
        executable = device.prepare(plan)
    kept = []
    for _ in range(2):
        contents = contents_of(rng, program)
        arrays = Arrays(device, plan, contents)
        kept.append(arrays)
        settings, waits = way_of_running(mode)
        with settings:
            events = arrays.run(executable, waits=waits)
        for event in events:
            event.wait()
            assert event.query()
        hash_reference(program, contents)
        for o in program.outputs:
            np.testing.assert_array_equal(arrays.views[o], contents[o], err_msg=f"seed {seed} {mode}\n{plan}")
        if until_all:
            device.synchronize()
    return kept


def slow_task(buffer, turns, n=1, cost=1000.0, tag=1):
    """HASH of one buffer with itself, `turns` turns long (a nanosecond or less each)."""
    r = (region(buffer, n, "int64"),)
    arguments = (Pointer(buffer), Pointer(buffer), Pointer(buffer), Int(tag), Int(turns))
    return Task("slow", HASH, arguments, r, r, frozenset((buffer,)), units=n, grain=1, cost=cost, line="model.py:3")


def slow_plan(turns, tag=1):
    return in_order([Buffer(8, "output")], [slow_task(0, turns, tag=tag)], (), (0,))


def start(device, plan, contents=None, after=(), waits=False):
    program = plan.program
    arrays = Arrays(device, plan, contents or [np.zeros(b.nbytes // 8, np.int64) for b in program.buffers])
    return arrays, arrays.run(device.prepare(plan), after, waits)


def way_of_running(mode):
    """Settings, and whether the caller waits: `waits` is one core for everybody, the caller's."""
    waits = mode == "waits"
    return override(engine="async", threads=1) if waits else override(engine=mode), waits


def blocked_task(flag, out, units=1):
    """Waits for the flag: see BLOCKED."""
    r = (region(flag, 2, "int64"), region(out, 1, "int64"))
    return Task("blocked", BLOCKED, (Pointer(flag), Pointer(out)), r, r, units=units, grain=1, cost=1000.0)


SHORT, LONG = slow_task(0, 10), blocked_task(2, 1)


def start_blocked(device, units=1):
    """BLOCKED as many times, each by a worker by now: until the first number of the second array is other than 0."""
    plan = in_order([Buffer(8, "output"), Buffer(16, "input")], [blocked_task(1, 0, units)], (1,), (0,))
    arrays, events = start(device, plan)
    limit = time.monotonic() + 60
    while arrays.views[1][1] < units:
        assert time.monotonic() < limit
    return arrays, events


@contextlib.contextmanager
def busy_workers(device):
    """Every native worker is in a chunk of BLOCKED for as long as the block lasts."""
    engine = native.engine_of_process()
    assert engine.start()
    arrays, (event,) = start_blocked(device, engine.workers)
    yield
    assert not event.query(), "this took too long"
    arrays.views[1][0] = 1
    event.wait()


def host_plan(names, cost, streams=1):
    """Tasks on one int64 buffer, in order: `slow` kernels and library calls."""
    r = region(0, 1, "int64")
    tasks = [slow_task(0, 1000, cost=cost) if n == "slow" else library_task(n, (r,), (r,), cost=cost) for n in names]
    return in_order([Buffer(8, "output")], tasks, (), (0,))
