"""The language of words agrees with Python; the native engine runs any plan as its program runs in order."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import random
import subprocess
import sys
import textwrap
import threading
import time
import types
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
import word_functions
from cpu_plans import (
    BLOCKED,
    COUNT,
    DOUBLE,
    HASH,
    hash_program,
    hash_reference,
    in_order,
    kernel_task,
    library_task,
    random_plan,
    region,
)

from kernelgraph.runtime import machine_code, native, native_ir
from kernelgraph.runtime.devices.cpu import CPUDevice
from kernelgraph.runtime.errors import PlanError
from kernelgraph.runtime.library import LIBRARY
from kernelgraph.runtime.native_plan import LONG_US, split
from kernelgraph.runtime.plan import Launch, Plan, Record, Wait
from kernelgraph.runtime.pool import as_numpy
from kernelgraph.runtime.program import Buffer, Int, Pointer, Program, Task
from kernelgraph.runtime.settings import override

NUMBERS = st.integers(0, 1 << 20)


@pytest.fixture(scope="module")
def device():
    return CPUDevice(0)


@pytest.fixture(autouse=True)
def engine_comes_to_rest():
    """After each test: no work is left, no slot is lost, every worker sleeps."""
    yield
    check_rest()


def check_rest():
    engine = native.engine()
    limit = time.monotonic() + 5
    while engine is not None and not engine.at_rest:
        assert time.monotonic() < limit, "the engine does not come to rest"
        time.sleep(0.001)


# The language of words.


ENTRIES = ["gcd", "collatz", "bits", "logic", "loops"]


@pytest.fixture(scope="module")
def compiled():
    return machine_code.build(native_ir.translate([word_functions], ENTRIES, "x86_64"), "words")


@given(NUMBERS, NUMBERS, st.sampled_from(ENTRIES))
def test_native_functions_agree_with_python(compiled, a, b, name):
    function = compiled.function(name, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64)
    assert function(a, b) == getattr(word_functions, name)(a, b) % (1 << 64)


def test_only_entries_can_be_called_from_outside(compiled):
    assert set(compiled.functions) == set(ENTRIES)


OUTSIDE = ["return [a]", "for i in range(a): pass", "a.b = 1", "x = y = 1", "return unknown", "return print(a)"]


@pytest.mark.parametrize("body", [*OUTSIDE, "return a < b < 3", "return a / b", "return a < 'b'"])
def test_what_is_outside_the_language_is_refused(body, monkeypatch):
    module = types.ModuleType("made")
    monkeypatch.setattr(native_ir, "source_of", lambda _: f"def f(a, b):\n    {body}\n")
    with pytest.raises(SyntaxError):
        native_ir.translate([module], [], "x86_64")


def test_words_are_no_python_functions():
    with pytest.raises(TypeError, match="native code"):
        native_ir.load(0)


# Calls.


class Arrays:
    """Memory of a plan's buffers, seen as int64."""

    def __init__(self, device, plan, contents):
        self.plan = plan
        self.kept = [device.allocate(b.nbytes) for b in plan.program.buffers]
        self.arena = device.allocate(max(1, plan.arena_bytes))
        places = zip(self.kept, plan.program.buffers, plan.offsets, strict=True)
        self.views = [
            as_numpy(k if o is None else self.arena, np.int64, (b.nbytes // 8,), o or 0) for k, b, o in places
        ]
        for view, content in zip(self.views, contents, strict=True):
            view[...] = content

    def run(self, executable, after=()):
        memories = [k.address if o is None else None for k, o in zip(self.kept, self.plan.offsets, strict=True)]
        return executable.run(memories, self.arena.address, (), after)


def contents_of(rng, program):
    generator = np.random.default_rng(rng.randrange(1 << 30))
    return [generator.integers(-(1 << 62), 1 << 62, b.nbytes // 8) for b in program.buffers]


def check_random_plan(device, seed, mode, until_all=True):
    """The outputs are right, as soon as their events say so. Gives what must live until all tasks are done."""
    rng = random.Random(seed)
    program = hash_program(rng, rng.choice([1, 5, 64]), rng.randrange(1, 14), rng.randrange(5))
    plan = random_plan(rng, program, rng.randrange(1, 5))
    executable = device.prepare(plan)
    kept = []
    for _ in range(2):
        contents = contents_of(rng, program)
        arrays = Arrays(device, plan, contents)
        kept.append(arrays)
        with override(engine=mode):
            events = arrays.run(executable)
        for event in events:
            event.wait()
            assert event.query()
        hash_reference(program, contents)
        for o in program.outputs:
            np.testing.assert_array_equal(arrays.views[o], contents[o], err_msg=f"seed {seed} {mode}\n{plan}")
        if until_all:
            device.synchronize()
    return kept


@pytest.mark.parametrize("mode", ["async", "chaos", "sync"])
@given(seed=st.integers(0, 1 << 32))
@hypothesis_settings(max_examples=60, deadline=None)
def test_any_plan_gives_what_its_program_gives_in_order(device, mode, seed):
    check_random_plan(device, seed, mode)


@given(
    units=st.integers(1, 5000),
    grain=st.integers(1, 600),
    cost=st.sampled_from([1.0, 10.0, 1000.0]),
    mode=st.sampled_from(["async", "chaos", "sync"]),
)
@hypothesis_settings(max_examples=80, deadline=None)
def test_chunks_cover_every_unit_once(device, units, grain, cost, mode):
    buffers = [Buffer(4 * units, "input"), Buffer(8, "output")]
    parts = (region(0, units, "int32"), region(1, 1, "int64"))
    task = Task("count", COUNT, (Pointer(0), Pointer(1)), parts, parts, units=units, grain=grain, cost=cost)
    executable = device.prepare(in_order(buffers, [task, task], (0,), (1,)))
    seen, calls = device.allocate(4 * units), device.allocate(8)
    as_numpy(seen, np.int32, (units,))[...] = 0
    as_numpy(calls, np.int64, (1,))[...] = 0
    with override(engine=mode):
        (event,) = executable.run((seen.address, calls.address), None, (), ())
    event.wait()
    assert (as_numpy(seen, np.int32, (units,)) == 2).all()
    assert 2 <= as_numpy(calls, np.int64, (1,))[0] <= 2 * split(task, native.cores())[1]


@given(units=st.integers(0, 10**9), grain=st.integers(1, 10**7), cores=st.integers(1, 128), cost=st.floats(0, 1e6))
def test_chunks_are_multiples_of_the_grain(units, grain, cores, cost):
    task = Task("t", HASH, (), (), (), units=units, grain=grain, cost=cost)
    size, chunks = split(task, cores)
    assert chunks <= max(8 * cores, cost / LONG_US + 1)
    if chunks > 1:
        assert size % grain == 0
        assert (chunks - 1) * size < units <= chunks * size
    else:
        assert size >= units


# Dependences between calls.


@pytest.mark.parametrize("mode", ["async", "chaos"])
@given(seed=st.integers(0, 1 << 32))
@hypothesis_settings(max_examples=25, deadline=None)
def test_calls_that_wait_for_each_other_give_what_they_give_in_order(device, mode, seed):
    """Programs on shared buffers; each waits for the last writers and readers of its buffers and for nothing else."""
    rng = random.Random(seed)
    program = hash_program(rng, 3, rng.randrange(1, 5), 0)
    plans = [random_plan(rng, program, rng.randrange(1, 4)) for _ in range(2)]
    executables = [device.prepare(replace(p, events=p.events + 1, completion=(p.events,))) for p in plans]
    touched = {r.buffer for t in program.tasks for r in t.reads}
    shared = [rng.randrange(1000) + np.zeros(3, np.int64) for _ in range(6)]
    memory = [device.allocate(24) for _ in shared]
    for m, content in zip(memory, shared, strict=True):
        as_numpy(m, np.int64, (3,))[...] = content
    busy = {}
    for _ in range(rng.randrange(2, 25)):
        which = rng.sample(range(6), 4)
        after = [(b, event) for b, m in enumerate(which) for event in busy.get(m, ())]
        with override(engine=mode):
            events = rng.choice(executables).run([memory[m].address for m in which], None, (), after)
        for b, m in enumerate(which):
            if b in touched:
                busy[m] = events
        hash_reference(program, [shared[m] for m in which])
    order = [e for events in busy.values() for e in events]
    rng.shuffle(order)
    for event in order:
        event.wait()
    for m, content in zip(memory, shared, strict=True):
        np.testing.assert_array_equal(as_numpy(m, np.int64, (3,)), content)


def slow_task(buffer, turns, n=1, cost=1000.0, tag=1):
    """HASH of one buffer with itself, `turns` turns long (a nanosecond or less each)."""
    r = (region(buffer, n, "int64"),)
    arguments = (Pointer(buffer), Pointer(buffer), Pointer(buffer), Int(tag), Int(turns))
    return Task("slow", HASH, arguments, r, r, frozenset((buffer,)), units=n, grain=1, cost=cost, line="model.py:3")


def slow_plan(turns, tag=1):
    return in_order([Buffer(8, "output")], [slow_task(0, turns, tag=tag)], (), (0,))


def start(device, plan, contents=None, after=()):
    program = plan.program
    arrays = Arrays(device, plan, contents or [np.zeros(b.nbytes // 8, np.int64) for b in program.buffers])
    return arrays, arrays.run(device.prepare(plan), after)


def blocked_task(flag, out, units=1):
    """Waits for the flag: see BLOCKED."""
    r = (region(flag, 2, "int64"), region(out, 1, "int64"))
    return Task("blocked", BLOCKED, (Pointer(flag), Pointer(out)), r, r, units=units, grain=1, cost=1000.0)


SHORT, LONG = slow_task(0, 10), blocked_task(2, 1)
ALONE = {
    "streams": (LONG, SHORT, (Launch(0, 0), Record(0, 0), Launch(1, 1), Record(1, 1)), (1, 0)),
    "urgent": (LONG, SHORT, (Launch(1, 0), Record(1, 0), Launch(0, 1), Record(0, 1)), (1, 0)),
    "before": (SHORT, LONG, (Launch(0, 0), Record(0, 0), Launch(0, 1), Record(0, 1)), (0, 1)),
    "many": (blocked_task(2, 1, 40), SHORT, (Launch(1, 0), Record(1, 0), Launch(0, 1), Record(0, 1)), (1, 0)),
    "end": (SHORT, LONG, (Launch(0, 0), Record(0, 0), Launch(0, 1)), (0, 1)),
}


@pytest.mark.parametrize("name", ALONE)
def test_a_wait_is_for_one_result_alone(device, name):
    """What is short is waited for while what is long goes on: it ends when the test says so, or in some seconds."""
    first, second, steps, completion = ALONE[name]
    program = Program((Buffer(8, "output"), Buffer(8, "output"), Buffer(16, "input")), (first, second), (2,), (0, 1))
    plan = Plan(program, steps, 2, 2, (None,) * 3, 0, completion, frozenset((1,)))
    arrays, (short, long) = start(device, plan)
    short.wait()
    assert not long.query()
    other, (third,) = start(device, slow_plan(10, tag=5))
    third.wait()
    assert not long.query()
    _fourth, (late,) = start(device, slow_plan(10, tag=5), after=((0, third), (0, short)))
    late.wait()
    assert not long.query()
    arrays.views[2][0] = 1
    long.wait()
    units = 40 if name == "many" else 1
    assert [v.tolist() for v in arrays.views] == [[1], [units], [1, units]]
    assert int(other.views[0][0]) == 5


@contextlib.contextmanager
def busy_workers(device):
    """Every native worker is in a chunk of BLOCKED for as long as the block lasts."""
    engine = native.engine()
    assert engine.start()
    task = blocked_task(1, 0, engine.workers)
    arrays, (event,) = start(device, in_order([Buffer(8, "output"), Buffer(16, "input")], [task], (1,), (0,)))
    limit = time.monotonic() + 5
    while arrays.views[1][1] < engine.workers:
        assert time.monotonic() < limit
    yield
    assert not event.query(), "this took too long"
    arrays.views[1][0] = 1
    event.wait()


@pytest.mark.parametrize("seed", range(20))
def test_who_waits_alone_does_all_that_the_result_needs(device, seed):
    with busy_workers(device):
        kept = check_random_plan(device, seed, "async", until_all=False)
    device.synchronize()
    del kept


def test_who_waits_and_is_interrupted_leaves_no_python_step_behind(device, library, monkeypatch):
    plan = host_plan(["slow", "add_one", "slow"], 1000.0)
    interrupted = []
    start(device, plan)[1][0].wait()  # the Python thread is there
    time.sleep(0.01)  # and asleep
    library.clear()

    ordinary = native.Engine.do_python_step

    def interrupt(self, run=0, needs=0):
        if not run:  # one of the engine's own threads: it would die, and other tests count them
            return ordinary(self)
        interrupted.append(run)
        raise KeyboardInterrupt

    with busy_workers(device):
        arrays, (event,) = start(device, plan)
        with monkeypatch.context() as patch:
            patch.setattr(native.Engine, "do_python_step", interrupt)
            with pytest.raises(KeyboardInterrupt):
                event.wait()
        assert interrupted == [event.run.record.address]
        limit = time.monotonic() + 5
        while not library:
            assert time.monotonic() < limit
    event.wait()
    assert arrays.views[0][0] == 43 * 2 + 1


def test_work_is_not_forgotten_when_threads_go_to_sleep(device):
    """Nobody helps: the workers are alone with work that comes at any moment, and while they park."""
    plan = in_order([Buffer(64, "output")], [slow_task(0, 1, n=8)], (), (0,))
    executable = device.prepare(plan)
    arrays = Arrays(device, plan, [np.zeros(8, np.int64)])
    rng = random.Random(3)
    for turn in range(1500):
        with override(engine="chaos" if turn % 3 == 0 else "async"):
            (event,) = arrays.run(executable)
        limit = time.monotonic() + 5
        while not event.query():
            assert time.monotonic() < limit, turn
        pause = time.perf_counter() + rng.choice([0, 40e-6, 50e-6, 55e-6, 60e-6, 80e-6])
        while time.perf_counter() < pause:
            pass


def test_a_call_starts_after_what_it_waits_for(device):
    first, (before,) = start(device, slow_plan(50_000_000, tag=3))
    executable = device.prepare(slow_plan(1, tag=4))
    (event,) = executable.run((first.kept[0].address,), None, (), ((0, before),))
    assert not event.query()
    event.wait()
    assert before.query()
    assert int(first.views[0][0]) == (31 + 7 + 5) * 3 + 4


def test_small_work_behind_running_work_does_not_run_at_once(device):
    first, (before,) = start(device, slow_plan(50_000_000, tag=3))
    small = in_order([Buffer(8, "output")], [slow_task(0, 1, cost=1.0, tag=4)], (), (0,))
    (event,) = device.prepare(small).run((first.kept[0].address,), None, (), ((0, before),))
    event.wait()
    assert int(first.views[0][0]) == (31 + 7 + 5) * 3 + 4


def test_an_executable_may_die_before_its_calls_end(device):
    arrays, (event,) = start(device, slow_plan(100_000_000, tag=3))
    gc.collect()
    junk = [bytearray(4096) for _ in range(1000)]
    event.wait()
    assert int(arrays.views[0][0]) == 3
    assert len(junk) == 1000


def test_long_chains_of_calls_hold_nothing(device):
    """x = f(x) without a wait, 10,000 times: the native words are used again, and old calls are let go."""
    plan = slow_plan(1, tag=1)
    executable = device.prepare(plan)
    arrays = Arrays(device, plan, [np.zeros(1, np.int64)])
    event = None
    for _ in range(10_000):
        (event,) = arrays.run(executable, () if event is None else ((0, event),))
    event.wait()
    expected = np.zeros(1, np.int64)
    with np.errstate(over="ignore"):
        for _ in range(10_000):
            expected = 43 * expected + 1
    assert arrays.views[0][0] == expected[0]
    device.synchronize()
    del event
    assert len(native.engine().runs) == 0
    assert len(executable._free) >= 1


def test_threads_call_at_once(device):
    """Several threads run plans of their own, small and large, with the same executables."""
    rng = random.Random(7)
    program = hash_program(rng, 5, 8, 2, work=200)
    executables = [device.prepare(random_plan(rng, program, streams)) for streams in (1, 3)]
    buffers = [Buffer(64, "input"), Buffer(64, "output")]
    small = device.prepare(in_order(buffers, [kernel_task(DOUBLE, (0,), 1, 16)], (0,), (1,)))
    wrong = []

    def work(seed):
        rng = random.Random(seed)
        for _ in range(40):
            executable = rng.choice(executables)
            contents = contents_of(rng, program)
            arrays = Arrays(device, executable.plan, contents)
            events = arrays.run(executable)
            x, y = device.allocate(64), device.allocate(64)
            device.upload(np.full(16, seed, np.float32), x)
            small.run((x.address, y.address), None, (), ())
            if (as_numpy(y, np.float32, (16,)) != 2 * seed).any():
                wrong.append("small")
            for event in events:
                event.wait()
            hash_reference(program, contents)
            if any((arrays.views[o] != contents[o]).any() for o in program.outputs):
                wrong.append("large")
            device.synchronize()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


# Steps that need Python, and errors.


@pytest.fixture
def library(monkeypatch):
    """Library calls: `add_one` to the write; `fail`; `python_thread` notes the thread it runs on."""
    seen = []

    def add_one(reads, writes, attrs):
        writes[0][...] += attrs.get("by", 1)
        seen.append(threading.current_thread())

    def fail(reads, writes, attrs):
        raise ZeroDivisionError("on purpose")

    monkeypatch.setitem(LIBRARY, "add_one", add_one)
    monkeypatch.setitem(LIBRARY, "fail", fail)
    return seen


def host_plan(names, cost, streams=1):
    """Tasks on one int64 buffer, in order: `slow` kernels and library calls."""
    r = region(0, 1, "int64")
    tasks = [slow_task(0, 1000, cost=cost) if n == "slow" else library_task(n, (r,), (r,), cost=cost) for n in names]
    return in_order([Buffer(8, "output")], tasks, (), (0,))


@pytest.mark.parametrize("mode", ["async", "chaos", "sync"])
@pytest.mark.parametrize("cost", [0.5, 1000.0])
def test_python_steps_take_their_turn(device, library, mode, cost):
    with override(engine=mode):
        arrays, (event,) = start(device, host_plan(["slow", "add_one", "slow", "add_one", "add_one"], cost))
        event.wait()
    assert arrays.views[0][0] == 43 * 2 + 1 + 2
    here = threading.current_thread()
    if mode == "sync" or (mode == "async" and cost < 1):
        assert all(t is here for t in library)
    else:  # who waits helps
        assert all(t is here or t.name.startswith("kernelgraph") for t in library)


def test_who_waits_does_the_python_steps_of_what_it_waits_for(device, library, monkeypatch):
    """The engine's own Python threads are busy with other runs, for as long as the test wants."""
    begun, door = threading.Semaphore(0), threading.Event()

    def block(reads, writes, attrs):
        begun.release()
        assert door.wait(10)
        writes[0][...] = 77

    monkeypatch.setitem(LIBRARY, "block", block)
    blocked = [start(device, host_plan(["block"], 1000.0)) for _ in range(native.cores())]
    for _ in blocked:
        assert begun.acquire(timeout=10)
    arrays, (event,) = start(device, host_plan(["slow", "add_one", "slow", "add_one"], 1000.0))
    event.wait()
    assert arrays.views[0][0] == 43 * 2 + 1 + 1
    later = device.prepare(host_plan(["add_one"], 1000.0))
    (second,) = arrays.run(later, ((0, event),))
    (third,) = arrays.run(later, ((0, second),))
    third.wait()
    assert not any(slow.query() for _, (slow,) in blocked)
    assert all(t is threading.current_thread() for t in library)
    assert arrays.views[0][0] == 43 * 2 + 1 + 3
    left, (alone,) = start(device, host_plan(["add_one", "slow"], 1000.0))
    door.set()
    limit = time.monotonic() + 10
    while not (all(slow.query() for _, (slow,) in blocked) and alone.query()):
        assert time.monotonic() < limit
    assert [memories.views[0][0] for memories, _ in blocked] == [77] * native.cores()
    assert left.views[0][0] == 44


def test_python_steps_of_independent_streams_run_at_the_same_time(device, monkeypatch):
    """Each waits for the others to have begun."""
    together = threading.Barrier(native.cores(), timeout=10)

    def meet(reads, writes, attrs):
        together.wait()

    monkeypatch.setitem(LIBRARY, "meet", meet)
    regions = [region(b, 1, "int64") for b in range(native.cores())]
    tasks = [library_task("meet", (r,), (r,), 1000.0) for r in regions]
    streams = range(len(tasks))
    steps = (*(Launch(s, s) for s in streams), *(Record(s, s) for s in streams))
    program = Program(tuple(Buffer(8, "output") for _ in tasks), tuple(tasks), (), tuple(streams))
    plan = Plan(program, steps, len(tasks), len(tasks), (None,) * len(tasks), 0, tuple(streams))
    memories, events = start(device, plan)
    for event in events:
        event.wait()
    del memories


@pytest.mark.skipif(native.cores() < 2, reason="one core is enough for the callers")
def test_while_a_caller_sleeps_another_thread_works(device):
    """All workers wait for a branch that the caller, who waits for them, does not need: it goes on."""
    engine = native.engine()
    assert engine.start()
    workers = range(engine.workers)
    flag, last = engine.workers, engine.workers
    buffers = [Buffer(8, "output") for _ in workers] + [Buffer(16, "input")]
    tasks = [*(blocked_task(flag, w) for w in workers), slow_task(flag, 10)]
    steps = [*(Launch(s, s) for s in (*workers, last)), *(Record(s, s) for s in (*workers, last))]
    program = Program(tuple(buffers), tuple(tasks), (flag,), tuple(workers))
    plan = Plan(program, tuple(steps), last + 1, last + 1, (None,) * len(buffers), 0, tuple(workers))
    memories, events = start(device, plan)
    limit = time.monotonic() + 5
    while memories.views[flag][1] < engine.workers:
        assert time.monotonic() < limit
    events[0].wait()
    assert memories.views[flag][0], "the workers gave up"
    device.synchronize()


def test_waiting_for_a_whole_run_helps_with_all_of_it(device, library, monkeypatch):
    """The engine's Python threads and workers are busy; one stream is stuck until the caller has done the other's."""
    begun, door = threading.Semaphore(0), threading.Event()

    def block(reads, writes, attrs):
        begun.release()
        assert door.wait(10)

    def open_door(reads, writes, attrs):
        door.set()

    monkeypatch.setitem(LIBRARY, "block", block)
    monkeypatch.setitem(LIBRARY, "open", open_door)
    kept = [start(device, host_plan(["block"], 1000.0)) for _ in range(native.cores() - 1)]
    regions = [region(b, 1, "int64") for b in range(2)]
    tasks = tuple(library_task(n, (r,), (r,), 1000.0) for n, r in zip(("block", "open"), regions, strict=True))
    steps = (Launch(0, 0), Launch(1, 1), Record(0, 0), Record(1, 1))
    program = Program((Buffer(8, "output"), Buffer(8, "output")), tasks, (), (0, 1))
    memories, events = start(device, Plan(program, steps, 2, 2, (None, None), 0, (0, 1)))
    events[0].finish()
    assert all(event.query() for event in events)
    for _, (event,) in kept:
        event.wait()
    del memories


@pytest.mark.parametrize("mode", ["async", "chaos", "sync"])
@pytest.mark.parametrize("cost", [0.5, 1000.0])
def test_an_error_is_raised_at_every_wait_and_skips_what_depends_on_it(device, library, mode, cost):
    buffers = [Buffer(8, "output"), Buffer(8, "output"), Buffer(8, "output")]
    r = [region(b, 1, "int64") for b in range(3)]
    tasks = (
        library_task("fail", (r[0],), (r[0],), cost=cost),
        library_task("add_one", (r[0],), (r[0],), cost=cost),
        slow_task(1, 10, cost=cost),
        library_task("add_one", (r[0], r[2]), (r[2],), cost=cost),
    )
    steps = (
        Launch(0, 0), Record(0, 0), Launch(0, 1), Record(0, 1), Launch(1, 2), Record(1, 2),
        Wait(2, 0), Launch(2, 3), Record(2, 3),
    )  # fmt: skip
    plan = Plan(Program(tuple(buffers), tasks, (), (0, 1, 2)), steps, 3, 4, (None,) * 3, 0, (1, 2, 3))
    with override(engine=mode):
        arrays, (bad, good, dependent) = start(device, plan)
        good.wait()
        tracebacks = set()
        for event in (bad, dependent, bad):
            for _ in range(5):
                with pytest.raises(ZeroDivisionError, match="on purpose") as caught:
                    event.wait()
                assert any("fail" in note and "model.py:7" in note for note in caught.value.__notes__)
                tracebacks.add(len(caught.traceback))
            assert event.query()
        assert max(tracebacks) < min(tracebacks) + 4  # no longer with each wait
        assert [int(v[0]) for v in arrays.views] == [0, 1, 0]
        # The next call inherits it from what it reads, in any way of running.
        for again in (["slow"], ["add_one"]):
            executable, event = device.prepare(host_plan(again, cost)), dependent
            for _ in range(3):
                (event,) = executable.run((arrays.kept[2].address,), None, (), ((0, event),))
                with pytest.raises(ZeroDivisionError):
                    event.wait()
        assert arrays.views[2][0] == 0
        # The engine stays usable.
        arrays, (event,) = start(device, host_plan(["add_one"], cost))
        event.wait()
        assert arrays.views[0][0] == 1
    device.synchronize()


def test_errors_pass_through_long_chains(device, library):
    arrays, (event,) = start(device, host_plan(["slow", "fail"], 1000.0))
    executable = device.prepare(host_plan(["slow"], 1000.0))
    for _ in range(3000):
        (event,) = arrays.run(executable, ((0, event),))
    with pytest.raises(ZeroDivisionError):
        event.wait()
    device.synchronize()
    with pytest.raises(ZeroDivisionError):
        event.wait()


class ForeignEvent:
    """An event of another device."""

    def __init__(self, error=None):
        self.error, self.waited = error, 0

    def query(self):
        return self.waited > 0

    def wait(self):
        self.waited += 1
        if self.error:
            raise self.error


@pytest.mark.parametrize("mode", ["async", "sync", "chaos"])
@pytest.mark.parametrize("cost", [0.5, 1000.0])
def test_events_of_other_devices(device, mode, cost):
    plan = in_order([Buffer(8, "output")], [slow_task(0, 10, cost=cost, tag=2)], (), (0,))
    with override(engine=mode):
        foreign = ForeignEvent()
        arrays, (event,) = start(device, plan, after=((0, foreign),))
        event.wait()
        assert foreign.waited
        assert arrays.views[0][0] == 2
        arrays, (event,) = start(device, plan, after=((0, ForeignEvent(OSError("lost"))),))
        with pytest.raises(OSError, match="lost"):
            event.wait()
        assert arrays.views[0][0] == 0


def test_a_wait_without_its_record_is_refused(device):
    program = Program((Buffer(8, "output"),), (slow_task(0, 1),), (), (0,))
    with pytest.raises(PlanError, match="wait e0 on s0"):
        device.prepare(Plan(program, (Wait(0, 0), Launch(0, 0), Record(0, 0)), 1, 1, (None,), 0, (0,)))


# Processes.


def run_script(text, threads=2, timeout=60, **environment):
    folder = Path(__file__).parent
    header = f"""
        import os, random, signal, sys, threading, time
        sys.path.insert(0, {str(folder)!r})
        import numpy as np
        from kernelgraph.runtime.errors import KernelGraphError
        from test_native import *
        device = CPUDevice(0)
    """
    script = textwrap.dedent(header) + textwrap.dedent(text)
    given = {**os.environ, "KERNELGRAPH_THREADS": str(threads), "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=timeout, env=given)


@pytest.mark.parametrize("threads", [1, 6])
def test_any_number_of_threads(threads):
    """With six threads on few cores, threads are stopped at any point: what races will show."""
    done = run_script(
        """
        assert native.cores() == int(os.environ["KERNELGRAPH_THREADS"])
        for seed in range(150):
            check_random_plan(device, seed, random.choice(["async", "async", "chaos"]))
        rng = random.Random(0)
        tasks = [slow_task(b, 1, n=64) for b in range(8) for _ in range(5)]
        buffers = [Buffer(8 * 64, "output") for _ in range(8)]
        program = Program(tuple(buffers), tuple(tasks), (), tuple(range(8)))
        many = random_plan(rng, program, 8)
        executable = device.prepare(many)
        expected = [np.ones(64, np.int64)] * 8
        hash_reference(program, expected := [e.copy() for e in expected])
        for turn in range(600):
            arrays = Arrays(device, many, [np.ones(64, np.int64)] * 8)
            for event in arrays.run(executable):
                event.wait()
            assert all((a == b).all() for a, b in zip(arrays.views, expected))
        check_rest()
        print(native.engine().workers)
        """,
        threads,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(max(1, threads - 1))]


def test_urgent_streams_go_first():
    done = run_script(
        """
        tasks = tuple(replace(slow_task(0, 1, tag=t), name=f"t{t}") for t in range(1, 5))
        program = Program((Buffer(8, "output"),), tasks, (), (0,))
        steps = tuple(Launch(s, s) for s in range(4))
        plan = Plan(program, steps, 4, 1, (None,), 0, (0,), frozenset((2,)))  # races, but for the one worker
        with busy_workers(device):
            arrays, (event,) = start(device, plan)
        while not event.query():
            pass
        order, left = [], int(arrays.views[0][0])
        for _ in range(4):
            order.append(left % 43)
            left //= 43
        print(*reversed(order))
        """,
        threads=1,
    )
    assert done.stdout == "3 1 2 4\n", done.stderr


def test_the_interpreter_exits_with_work_in_flight():
    done = run_script(
        """
        kept = [start(device, slow_plan(200_000_000)) for _ in range(50)]
        kept += [start(device, host_plan(["slow", "copy"], 1000.0))]
        print("leaving")
        """,
        timeout=30,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "leaving\n", "")


def test_a_forked_child_has_an_engine_of_its_own():
    done = run_script(
        """
        arrays, (event,) = start(device, slow_plan(500_000_000))
        executable = device.prepare(slow_plan(1, tag=9))
        idle, (before,) = start(device, slow_plan(1, tag=9))
        before.wait()
        child = os.fork()
        if child == 0:
            before.wait()
            try:
                event.wait()
            except KernelGraphError as error:
                print("child:", error, flush=True)
            try:
                (late,) = idle.run(executable, ((0, event),))
                late.wait()
            except KernelGraphError as error:
                print("child:", error, flush=True)
            again, (event,) = start(device, slow_plan(1, tag=8))
            event.wait()
            more = Arrays(device, executable.plan, [np.zeros(1, np.int64)])
            more.run(executable)[0].wait()
            print(again.views[0][0], more.views[0][0], native.engine().workers, flush=True)
            sys.exit(0)
        pid, status = os.waitpid(child, 0)
        event.wait()
        print(status, arrays.views[0][0])
        """
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 4, done.stdout + done.stderr
    assert all("in flight when the process forked" in line for line in lines[:2])
    assert lines[2:] == ["8 9 1", "0 1"]


def test_ctrl_c_interrupts_a_wait_and_leaves_the_work():
    done = run_script(
        """
        arrays, (event,) = start(device, slow_plan(1_500_000_000, tag=6))
        small, (other,) = start(device, slow_plan(10, tag=7))
        other.wait()
        main = threading.main_thread().ident
        threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        begin = time.time()
        try:
            while True:
                event.wait()
                print("not interrupted", time.time() - begin)
                break
        except KeyboardInterrupt:
            print("interrupted", event.query())
        event.wait()
        print(arrays.views[0][0])
        """,
        threads=3,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["interrupted False", "6"], done.stdout + done.stderr


def test_without_a_native_engine_plans_run_serially():
    done = run_script(
        """
        native._failed = "no engine here"
        assert native.engine() is None and native.why_not() == "no engine here"
        for seed in range(20):
            check_random_plan(device, seed, "async")
        arrays, (event,) = start(device, host_plan(["slow", "copy"], 1000.0))
        event.wait()
        device.synchronize()
        print(arrays.views[0][0])
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")
