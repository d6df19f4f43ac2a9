"""Steps that need Python, errors, and events of other devices, on the native engine."""

from __future__ import annotations

import threading
import time

import pytest

from kernelgraph.runtime.core.errors import PlanError
from kernelgraph.runtime.core.settings import override
from kernelgraph.runtime.engine import engine as native
from kernelgraph.runtime.interpret.library_calls import LIBRARY
from kernelgraph.runtime.program.plan import Launch, Plan, Record, Wait
from kernelgraph.runtime.program.program import Buffer, Program
from tests.runtime.cpu_plans import in_order, library_task, region
from tests.runtime.native_runs import blocked_task, host_plan, slow_task, start, way_of_running

pytestmark = pytest.mark.usefixtures("engine_comes_to_rest")


@pytest.mark.parametrize("mode", ["async", "chaos", "sync", "waits"])
@pytest.mark.parametrize("cost", [0.5, 1000.0])
def test_python_steps_take_their_turn(device, library, mode, cost):
    settings, waits = way_of_running(mode)
    with settings:
        plan = host_plan(["slow", "add_one", "slow", "add_one", "add_one"], cost)
        arrays, (event,) = start(device, plan, waits=waits)
        assert not waits or event.query()
        event.wait()
    assert arrays.views[0][0] == 43 * 2 + 1 + 2
    here = threading.current_thread()
    if mode in ("sync", "waits") or (mode == "async" and cost < 1):
        assert all(t is here for t in library)
    else:  # who waits helps
        assert all(t is here or t.name.startswith("kernelgraph") for t in library)


def test_who_waits_does_the_python_steps_of_what_it_waits_for(device, library, monkeypatch):
    """The engine's own Python threads are busy with other runs, for as long as the test wants."""
    begun, door = threading.Semaphore(0), threading.Event()

    def block(reads, writes, attrs):
        begun.release()
        assert door.wait(60)
        writes[0][...] = 77

    monkeypatch.setitem(LIBRARY, "block", block)
    blocked = [start(device, host_plan(["block"], 1000.0)) for _ in range(native.native_engine_thread_count())]
    for _ in blocked:
        assert begun.acquire(timeout=60)
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
    limit = time.monotonic() + 60
    while not (all(slow.query() for _, (slow,) in blocked) and alone.query()):
        assert time.monotonic() < limit
    assert [memories.views[0][0] for memories, _ in blocked] == [77] * native.native_engine_thread_count()
    assert left.views[0][0] == 44


def test_python_steps_of_independent_streams_run_at_the_same_time(device, monkeypatch):
    """Each waits for the others to have begun."""
    together = threading.Barrier(native.native_engine_thread_count(), timeout=60)

    def meet(reads, writes, attrs):
        together.wait()

    monkeypatch.setitem(LIBRARY, "meet", meet)
    regions = [region(b, 1, "int64") for b in range(native.native_engine_thread_count())]
    tasks = [library_task("meet", (r,), (r,), 1000.0) for r in regions]
    streams = range(len(tasks))
    steps = (*(Launch(s, s) for s in streams), *(Record(s, s) for s in streams))
    program = Program(tuple(Buffer(8, "output") for _ in tasks), tuple(tasks), (), tuple(streams))
    plan = Plan(program, steps, len(tasks), len(tasks), (None,) * len(tasks), 0, tuple(streams))
    memories, events = start(device, plan)
    for event in events:
        event.wait()
    del memories


@pytest.mark.skipif(native.native_engine_thread_count() < 2, reason="one core is enough for the callers")
def test_while_a_caller_sleeps_another_thread_works(device):
    """All workers wait for a branch that the caller, who waits for them, does not need: it goes on."""
    engine = native.engine_of_process()
    assert engine.start()
    workers = range(engine.workers)
    flag, last = engine.workers, engine.workers
    buffers = [Buffer(8, "output") for _ in workers] + [Buffer(16, "input")]
    tasks = [*(blocked_task(flag, w) for w in workers), slow_task(flag, 10)]
    steps = [*(Launch(s, s) for s in (*workers, last)), *(Record(s, s) for s in (*workers, last))]
    program = Program(tuple(buffers), tuple(tasks), (flag,), tuple(workers))
    plan = Plan(program, tuple(steps), last + 1, last + 1, (None,) * len(buffers), 0, tuple(workers))
    memories, events = start(device, plan)
    limit = time.monotonic() + 60
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
        assert door.wait(60)

    def open_door(reads, writes, attrs):
        door.set()

    monkeypatch.setitem(LIBRARY, "block", block)
    monkeypatch.setitem(LIBRARY, "open", open_door)
    kept = [start(device, host_plan(["block"], 1000.0)) for _ in range(native.native_engine_thread_count() - 1)]
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


@pytest.mark.parametrize("mode", ["async", "chaos", "sync", "waits"])
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
    settings, waits = way_of_running(mode)
    with settings:
        arrays, (bad, good, dependent) = start(device, plan, waits=waits)
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
        self.error, self.add_span_of_stream_wait = error, 0

    def query(self):
        return self.add_span_of_stream_wait > 0

    def wait(self):
        self.add_span_of_stream_wait += 1
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
        assert foreign.add_span_of_stream_wait
        assert arrays.views[0][0] == 2
        arrays, (event,) = start(device, plan, after=((0, ForeignEvent(OSError("lost"))),))
        with pytest.raises(OSError, match="lost"):
            event.wait()
        assert arrays.views[0][0] == 0


def test_a_wait_without_its_record_is_refused(device):
    program = Program((Buffer(8, "output"),), (slow_task(0, 1),), (), (0,))
    with pytest.raises(PlanError, match="wait e0 on s0"):
        device.prepare(Plan(program, (Wait(0, 0), Launch(0, 0), Record(0, 0)), 1, 1, (None,), 0, (0,)))
