"""A timed run does what a run does; its time is that of its own work, and does not count where others ran beside it."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest

from kernelgraph.runtime.devices.cpu.device import CPUDevice
from kernelgraph.runtime.engine.run import EngineFailedEvent
from kernelgraph.runtime.program.device import DoneEvent
from kernelgraph.runtime.program.program import Buffer, Int, Pointer, Program, Region, Task
from kernelgraph.runtime.schedule.cost_model import MACHINES
from kernelgraph.runtime.schedule.schedule import schedule
from tests.runtime.cpu_plans import HASH

N = 64
DEVICE = CPUDevice()


def region(b: int) -> Region:
    return Region(b, 0, (N,), (8,), 8, "int64")


def executable(turns: int, cost: float, streams: int = 1, links: int = 1):
    """`streams` independent chains of HASH tasks, each of `turns` turns of nothing, cost us by its own account."""
    buffers = [Buffer(8 * N, "input")]
    tasks = []
    for _ in range(streams):
        buffers.append(Buffer(8 * N, "output"))
        b = len(buffers) - 1
        for _ in range(links):
            arguments = (Pointer(0), Pointer(0), Pointer(b), Int(1), Int(turns))
            same = frozenset({b})
            tasks.append(Task("hash", HASH, arguments, (region(0), region(b)), (region(b),), same, N, N, cost=cost))
    program = Program(tuple(buffers), tuple(tasks), (0,), tuple(range(1, streams + 1)))
    return DEVICE.prepare(schedule(program, streams, machine=MACHINES["cpu"]))


def arrays(count: int) -> list[np.ndarray]:
    return [np.zeros(N, np.int64) for _ in range(count)]


def timed(ready, given, after=()):
    events, timing = ready.run_timed([a.ctypes.data for a in given], None, (), after)
    return events, timing


def finish(timing) -> float:
    end = time.monotonic() + 60
    while (found := timing.query()) is None:
        assert time.monotonic() < end
        time.sleep(1e-4)
    return found


@pytest.mark.parametrize(("cost", "streams"), [(1.0, 1), (1000.0, 1), (1000.0, 2)])
def test_a_time_is_that_of_the_work(cost, streams):
    """On the caller's thread (cheap by its own account) and on the engine."""
    long, short = executable(1_000_000, cost, streams), executable(10, cost, streams)
    given = arrays(1 + streams)
    best = {}
    for name, ready in (("long", long), ("short", short)):
        times = []
        for _ in range(5):
            DEVICE.synchronize()
            start = time.monotonic()
            events, timing = timed(ready, given)
            for event in events:
                event.wait()
            times.append(finish(timing))
            assert 0 < times[-1] <= (time.monotonic() - start) * 1e6
        best[name] = min(times)
    assert best["long"] > best["short"]  # 100,000 times the work
    assert given[1][0] != 0


def test_runs_side_by_side_do_not_count():
    first, second = executable(3_000_000, 1000.0), executable(3_000_000, 1000.0)
    DEVICE.synchronize()
    a = timed(first, arrays(2))
    b = timed(second, arrays(2))
    found = [finish(a[1]), finish(b[1])]
    DEVICE.synchronize()
    one_after_the_other = all(map(math.isfinite, found))  # on a machine with one worker
    assert one_after_the_other or any(map(math.isnan, found))


def test_chained_calls_count_each_for_itself():
    """A call that waits for another's output is timed from the end of that one."""
    ready = executable(2_000_000, 1000.0)
    given = arrays(2)
    DEVICE.synchronize()
    start = time.monotonic()
    events, first = timed(ready, given)
    timings = [first]
    for _ in range(4):
        events, timing = timed(ready, given, [(1, events[0])])
        timings.append(timing)
    times = [finish(t) for t in timings]
    DEVICE.synchronize()
    wall = (time.monotonic() - start) * 1e6
    assert all(map(math.isfinite, times))
    assert sum(times) <= wall * 1.01


def test_a_failed_run_does_not_count():
    ready = executable(10, 1000.0)

    lost = DoneEvent(EngineFailedEvent(RuntimeError("lost")))
    events, timing = timed(ready, arrays(2), [(0, lost)])
    with pytest.raises(RuntimeError):
        events[0].wait()
    DEVICE.synchronize()
    assert math.isnan(finish(timing))


def test_the_time_between_two_ends_is_that_of_the_runs_behind_the_first():
    """Marked runs may overlap others, which does not matter."""
    ready, short = executable(2_000_000, 1000.0), executable(10, 1000.0)
    DEVICE.synchronize()
    marks, began = [], DEVICE.runs
    given = [arrays(2) for _ in range(4)]
    for each, mine in zip((ready, ready, short, ready), given, strict=True):
        _, mark = each.run_marked([a.ctypes.data for a in mine], None, (), ())
        marks.append(mark)
    assert DEVICE.runs == began + 4
    DEVICE.synchronize()
    assert ready.time_between_marks(marks[0], marks[0]).query() == 0
    assert ready.time_between_marks(marks[0], marks[3]).query() != 0
    assert math.isnan(ready.time_between_marks(None, marks[3]).query())  # done in the caller
