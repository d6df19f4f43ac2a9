"""The native engine runs any plan as its program runs in order; calls wait for what they read and for nothing else."""

from __future__ import annotations

import gc
import random
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from kernelgraph.runtime.core.host_pool import numpy_view_of_pool_block
from kernelgraph.runtime.core.settings import override
from kernelgraph.runtime.engine import engine
from kernelgraph.runtime.engine.encode_plan import LONG_US, split_engine_launch_into_chunks
from kernelgraph.runtime.program.plan import Launch, Plan, Record
from kernelgraph.runtime.program.program import Buffer, Pointer, Program, Task
from tests.counts import examples
from tests.runtime.cpu_plans import (
    COUNT,
    DOUBLE,
    HASH,
    hash_program,
    hash_reference,
    in_order,
    kernel_task,
    random_plan,
    region,
)
from tests.runtime.native_runs import (
    Arrays,
    blocked_task,
    busy_workers,
    check_random_plan,
    contents_of,
    host_plan,
    slow_plan,
    slow_task,
    start,
    start_blocked,
)

pytestmark = pytest.mark.usefixtures("engine_comes_to_rest")


@pytest.mark.parametrize("mode", ["async", "chaos", "sync", "waits"])
@given(seed=st.integers(0, 1 << 32))
@hypothesis_settings(max_examples=examples(60), deadline=None)
def test_any_plan_gives_what_its_program_gives_in_order(device, mode, seed):
    check_random_plan(device, seed, mode)


@given(
    units=st.integers(1, 5000),
    grain=st.integers(1, 600),
    cost=st.sampled_from([1.0, 10.0, 1000.0]),
    mode=st.sampled_from(["async", "chaos", "sync"]),
)
@hypothesis_settings(max_examples=examples(80), deadline=None)
def test_chunks_cover_every_unit_once(device, units, grain, cost, mode):
    buffers = [Buffer(4 * units, "input"), Buffer(8, "output")]
    parts = (region(0, units, "int32"), region(1, 1, "int64"))
    task = Task("count", COUNT, (Pointer(0), Pointer(1)), parts, parts, units=units, grain=grain, cost=cost)
    executable = device.prepare(in_order(buffers, [task, task], (0,), (1,)))
    seen, calls = device.allocate(4 * units), device.allocate(8)
    numpy_view_of_pool_block(seen, np.int32, (units,))[...] = 0
    numpy_view_of_pool_block(calls, np.int64, (1,))[...] = 0
    with override(engine=mode):
        (event,) = executable.run((seen.address, calls.address), None, (), ())
    event.wait()
    assert (numpy_view_of_pool_block(seen, np.int32, (units,)) == 2).all()
    assert (
        2
        <= numpy_view_of_pool_block(calls, np.int64, (1,))[0]
        <= 2 * split_engine_launch_into_chunks(task, engine.native_engine_thread_count())[1]
    )


@given(units=st.integers(0, 10**9), grain=st.integers(1, 10**7), cores=st.integers(1, 128), cost=st.floats(0, 1e6))
def test_chunks_are_multiples_of_the_grain(units, grain, cores, cost):
    task = Task("t", HASH, (), (), (), units=units, grain=grain, cost=cost)
    size, chunks = split_engine_launch_into_chunks(task, cores)
    assert chunks <= max(8 * cores, cost / LONG_US + 1)
    if chunks > 1:
        assert size % grain == 0
        assert (chunks - 1) * size < units <= chunks * size
    else:
        assert size >= units


# Dependences between calls.


@pytest.mark.parametrize("mode", ["async", "chaos"])
@given(seed=st.integers(0, 1 << 32))
@hypothesis_settings(max_examples=examples(25), deadline=None)
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
        numpy_view_of_pool_block(m, np.int64, (3,))[...] = content
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
        np.testing.assert_array_equal(numpy_view_of_pool_block(m, np.int64, (3,)), content)


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

    ordinary = engine.NativeEngine.do_python_step

    def interrupt(self, run=0, needs=0):
        if not run:  # one of the engine's own threads: it would die, and other tests count them
            return ordinary(self)
        interrupted.append(run)
        raise KeyboardInterrupt

    with busy_workers(device):
        arrays, (event,) = start(device, plan)
        with monkeypatch.context() as patch:
            patch.setattr(engine.NativeEngine, "do_python_step", interrupt)
            with pytest.raises(KeyboardInterrupt):
                event.wait()
        assert interrupted == [event.run.record.address]
        limit = time.monotonic() + 60
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
        limit = time.monotonic() + 60
        while not event.query():
            assert time.monotonic() < limit, turn
        pause = time.perf_counter() + rng.choice([0, 40e-6, 50e-6, 55e-6, 60e-6, 80e-6])
        while time.perf_counter() < pause:
            pass


def test_a_call_starts_after_what_it_waits_for(device):
    first, (before,) = start_blocked(device)
    executable = device.prepare(slow_plan(1, tag=4))
    (event,) = executable.run((first.kept[0].address,), None, (), ((0, before),))
    assert not event.query()
    first.views[1][0] = 1
    event.wait()
    assert before.query()
    assert int(first.views[0][0]) == (31 + 7 + 5) * 1 + 4


def test_small_work_behind_running_work_does_not_run_at_once(device):
    first, (before,) = start_blocked(device)
    small = in_order([Buffer(8, "output")], [slow_task(0, 1, cost=1.0, tag=4)], (), (0,))
    (event,) = device.prepare(small).run((first.kept[0].address,), None, (), ((0, before),))
    first.views[1][0] = 1
    event.wait()
    assert int(first.views[0][0]) == (31 + 7 + 5) * 1 + 4


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
    assert len(engine.engine_of_process().runs) == 0
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
            if (numpy_view_of_pool_block(y, np.float32, (16,)) != 2 * seed).any():
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
