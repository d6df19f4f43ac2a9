"""Poison follows data: on every device a failed task spoils the outputs that come from it, and all others are right."""

from __future__ import annotations

import random
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from kernelgraph.runtime.core.errors import DeviceLost
from kernelgraph.runtime.core.settings import override
from kernelgraph.runtime.devices.cpu.device import CPUDevice
from kernelgraph.runtime.devices.fake import FakeDevice
from kernelgraph.runtime.interpret.library_calls import LIBRARY
from kernelgraph.runtime.interpret.serial import SerialPoisonTracker, poisoned_buffers_of_plan
from kernelgraph.runtime.program.plan import ENTRY, Launch, Plan
from kernelgraph.runtime.program.program import Buffer, Program
from tests.runtime.cpu_plans import hash_program, hash_reference, library_task, random_plan, region
from tests.runtime.native_runs import Arrays, contents_of
from tests.runtime.oracles import spoiled_outputs


def failing_plan(rng: random.Random) -> tuple[Program, Plan, set[int]]:
    """A program, a plan of it in which some tasks fail, and which. Outputs are few, so that most tasks share some."""
    program = hash_program(rng, rng.choice([1, 5]), rng.randrange(2, 12), rng.randrange(3, 8), work=20)
    program = replace(program, outputs=tuple(range(2, len(program.buffers))))
    buffers = tuple(Buffer(b.nbytes, "output" if b.kind == "temp" else b.kind) for b in program.buffers)
    program = replace(program, buffers=buffers)
    failing = set(rng.sample(range(len(program.tasks)), rng.choice([1, 1, 2])))
    tasks = [
        library_task("fail", t.reads, t.writes, cost=50.0) if i in failing else t for i, t in enumerate(program.tasks)
    ]
    return program, random_plan(rng, replace(program, tasks=tuple(tasks)), rng.randrange(1, 4)), failing


@pytest.mark.parametrize("mode", ["async", "chaos", "sync"])
def test_outputs_that_do_not_come_from_what_failed_are_right(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(reads: object, writes: object, attrs: object) -> None:
        raise ZeroDivisionError("on purpose")

    monkeypatch.setitem(LIBRARY, "fail", fail)
    device, rng, good = CPUDevice(), random.Random(3), 0
    for _ in range(30):
        program, plan, failing = failing_plan(rng)
        executable, right = device.prepare(plan), device.prepare(random_plan(rng, program, 2))
        for _ in range(2):  # the second call finds what the first one left
            contents = contents_of(rng, program)
            arrays = Arrays(device, plan, contents)
            with override(engine=mode):
                events = arrays.run(executable)
            hash_reference(program, contents)
            expected = spoiled_outputs(program, failing)
            for event, bad, output in zip(events, expected, program.outputs, strict=True):
                if bad:
                    with pytest.raises(ZeroDivisionError):
                        event.wait()
                else:
                    event.wait()
                    np.testing.assert_array_equal(arrays.views[output], contents[output])
                    good += 1
        # What inherits from the outputs does so by buffer: tasks that touch a good one alone are run.
        with override(engine=mode):
            again = Arrays(device, right.plan, contents_of(rng, program)).run(
                right, list(zip(program.outputs, events, strict=True))
            )
        for event in again:
            assert raises(event) in (True, False)
        device.synchronize()
    assert good > 50


def raises(event: object) -> bool:
    try:
        event.wait()  # type: ignore[attr-defined]
    except ZeroDivisionError:
        return True
    return False


def test_what_a_poisoned_argument_spoils(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two independent tasks on one stream; the first one's input is bad."""
    r = [region(b, 1, "int64") for b in range(4)]
    monkeypatch.setitem(LIBRARY, "copy_one", lambda reads, writes, attrs: np.copyto(writes[0], reads[0]))
    tasks = (library_task("copy_one", (r[0],), (r[2],)), library_task("copy_one", (r[1],), (r[3],)))
    kinds = ("input", "input", "output", "output")
    program = Program(tuple(Buffer(8, kind) for kind in kinds), tasks, (0, 1), (2, 3))
    plan = random_plan(random.Random(0), program, 1)
    failed = SimpleNamespace(
        error=ValueError("bad"), query=lambda: True, wait=lambda: (_ for _ in ()).throw(failed.error)
    )
    device = CPUDevice()
    for mode in ("async", "chaos", "sync"):
        arrays = Arrays(device, plan, [np.full(1, i) for i in range(4)])
        with override(engine=mode):
            first, second = arrays.run(device.prepare(plan), [(0, failed)])
        with pytest.raises(ValueError, match="bad"):
            first.wait()
        second.wait()
        assert [int(v[0]) for v in arrays.views] == [0, 1, 2, 1]
    fake = FakeDevice()
    events = fake.prepare(plan).run([0] * 4, 0, [], [(0, failed)])
    assert [e.error for e in events] == [failed.error, None]
    assert sum(entry[0] == "launch" for entry in fake.log) == 1


def test_a_lost_device_and_a_stream_that_failed_spoil_everything() -> None:
    program = hash_program(random.Random(1), 1, 6, 2)
    plan = random_plan(random.Random(1), program, 2)
    lost, error = SerialPoisonTracker(plan), ValueError("no")
    lost.fail(next(s.task for s in plan.steps if isinstance(s, Launch)), DeviceLost("gone"))
    assert all(isinstance(e, DeviceLost) for e in lost.output_errors())
    entry = poisoned_buffers_of_plan(plan, [(ENTRY, SimpleNamespace(error=error))])
    assert SerialPoisonTracker(plan, entry).output_errors() == (error,) * len(program.outputs)
    assert poisoned_buffers_of_plan(plan, [(0, SimpleNamespace(error=None)), (1, object())]) == {}
