"""The fake device logs what it is asked, keeps count of its memory, and fails when told to."""

from __future__ import annotations

import gc
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from kernelgraph.runtime.core.errors import CompileError, DeviceLost, KernelGraphError, LaunchError, OutOfMemory
from kernelgraph.runtime.devices.fake import FakeDevice
from kernelgraph.runtime.program.device import Device, Event, Executable, Memory
from kernelgraph.runtime.program.plan import Launch, Plan, Record, Wait
from kernelgraph.runtime.program.program import Buffer, Int, Pointer, Program, Scalar, Task
from kernelgraph.runtime.schedule.cost_model import MACHINES
from kernelgraph.runtime.schedule.schedule import schedule
from tests.runtime.dags import KERNEL, random_program, region
from tests.runtime.oracles import spoiled_outputs

FAKE = MACHINES["fake"]


def two_branches() -> Plan:
    """Two tasks side by side, an output each; the second also has a temporary."""
    buffers = (Buffer(64, "input"), Buffer(64, "output"), Buffer(64, "temp"), Buffer(64, "output"))
    read = (region(0, 0, 16),)
    tasks = (
        Task("left", KERNEL, (Pointer(0), Pointer(1, 8), Int(16)), read, (region(1, 0, 16),)),
        Task("right", KERNEL, (Pointer(2), Scalar(0, "f32")), read, (region(2, 0, 16),)),
        Task("last", KERNEL, (Pointer(2), Pointer(3)), (region(2, 0, 16),), (region(3, 0, 16),)),
    )
    return schedule(Program(buffers, tasks, (0,), (1, 3), ("f32",)), "max", machine=FAKE)


def test_it_has_the_shape_of_a_device() -> None:
    device: Device = FakeDevice()
    memory: Memory = device.allocate(10)
    event: Event = device.upload(np.zeros(2), memory)
    executable: Executable = device.prepare(two_branches())
    assert event.query()
    assert len(executable.run([0] * 4, 0, [1.0], [])) == 2


def test_addresses_are_deterministic_aligned_and_apart() -> None:
    def addresses() -> list[int]:
        device = FakeDevice()
        return [device.allocate(n).address for n in (1, 0, 256, 300, 5)]

    assert addresses() == addresses()
    assert all(a % 256 == 0 for a in addresses())
    assert len(set(addresses())) == 5
    device = FakeDevice()
    one, two = device.allocate(1000), device.allocate(1000)
    assert one.address + one.nbytes <= two.address


def test_memory_is_counted_and_its_end_is_logged() -> None:
    device = FakeDevice(capacity=1000)
    memory = device.allocate(900)
    address = memory.address
    with pytest.raises(OutOfMemory, match="101 B asked for, 100 B free"):
        device.allocate(101)
    assert device.in_use == 900
    del memory
    gc.collect()
    assert device.in_use == 0
    assert device.log[-1] == ("free", address)
    device.allocate(1000)


def test_a_run_is_the_plans_steps_in_order_with_the_values_of_arguments() -> None:
    rng = Random(1)
    for _ in range(50):
        plan = schedule(random_program(rng, rng.randint(1, 15)), rng.choice([1, 3, "max"]), machine=FAKE)
        device = FakeDevice()
        executable = device.prepare(plan)
        device.log.clear()
        events = executable.run([0] * len(plan.offsets), 0, [], [])
        assert len(events) == len(plan.program.outputs)
        expected = []
        for step in plan.steps:
            match step:
                case Launch(stream, task):
                    expected.append(("launch", stream, plan.tasks[task].name, ()))
                case Record(stream, event):
                    expected.append(("record", stream, event))
                case Wait(stream, event):
                    expected.append(("wait", stream, event))
        assert device.log == expected
    plan = two_branches()
    device = FakeDevice()
    device.prepare(plan).run([100, 200, None, 300], 4096, [2.5], [])
    values = {entry[2]: entry[3] for entry in device.log if entry[0] == "launch"}
    assert values == {"left": (100, 208, 16), "right": (4096, 2.5), "last": (4096, 300)}


def test_events_of_other_calls_are_waited_for_where_their_buffer_is_touched() -> None:
    plan, device = two_branches(), FakeDevice()
    event = device.upload(np.zeros(16, np.float32), device.allocate(64))
    executable = device.prepare(plan)
    device.log.clear()
    executable.run([0] * 4, 0, [0.0], [(0, event)])
    follows = [device.log[i + 1][2] for i, entry in enumerate(device.log) if entry[0] == "after"]
    assert sorted(follows) == ["left", "right"]


def test_kernels_are_loaded_once() -> None:
    device, plan = FakeDevice(), two_branches()
    device.prepare(plan)
    device.prepare(plan)
    assert [entry for entry in device.log if entry[0] == "load"] == [("load", "k")]


@pytest.mark.parametrize(
    ("what", "error"),
    [
        ("allocate", OutOfMemory),
        ("upload", LaunchError),
        ("download", LaunchError),
        ("load", CompileError),
        ("prepare", CompileError),
        ("launch", LaunchError),
    ],
)
def test_the_call_that_is_told_to_fail_fails_and_no_other(what: str, error: type[KernelGraphError]) -> None:
    device, plan, host = FakeDevice(), two_branches(), np.ones(4)
    memory = device.allocate(64)
    executable = device.prepare(plan)
    kernels = [replace(KERNEL, source=f"// {i}") for i in range(3)]
    calls = {
        "allocate": lambda i: device.allocate(8),
        "upload": lambda i: device.upload(host, memory),
        "download": lambda i: device.download(memory, host),
        "load": lambda i: device.load([kernels[i]]),
        "prepare": lambda i: device.prepare(plan),
        "launch": lambda i: [event.wait() for event in executable.run([0] * 4, 0, [0.0], [])],
    }
    each = 3 if what == "launch" else 1
    device.fail(what, each)
    calls[what](0)
    with pytest.raises(error, match="as it was told to"):
        calls[what](1)
    calls[what](2)
    mine = ValueError("mine")
    device.fail(what, error=mine)
    if what != "load":
        with pytest.raises(ValueError, match="mine"):
            calls[what](0)


def test_work_that_fails_later_fails_the_outputs_that_come_from_it_and_no_other() -> None:
    rng = Random(2)
    seen = 0
    for _ in range(100):
        plan = schedule(random_program(rng, rng.randint(2, 15)), rng.choice([2, 4, "max"]), machine=FAKE)
        device = FakeDevice(eager=False)
        executable = device.prepare(plan)
        order = [step.task for step in plan.steps if isinstance(step, Launch)]
        number = rng.randrange(len(order))
        device.fail("work", number)
        events = executable.run([0] * len(plan.offsets), 0, [], [])
        for event, bad in zip(events, spoiled_outputs(plan.program, {order[number]}), strict=True):
            assert not event.query()
            if bad:
                with pytest.raises(LaunchError):
                    event.wait()
            else:
                event.wait()
                seen += 1
            assert event.query()
        assert all(not event.wait() for event in executable.run([0] * len(plan.offsets), 0, [], []))
    assert seen > 10


def test_a_device_that_is_not_eager_finishes_when_it_is_asked_to() -> None:
    device = FakeDevice(eager=False)
    events = device.prepare(two_branches()).run([0] * 4, 0, [0.0], [])
    assert not any(event.query() for event in events)
    device.synchronize()
    assert all(event.query() for event in events)


def test_a_lost_device_fails_for_ever_with_what_it_was_lost_to() -> None:
    device, host = FakeDevice(), np.ones(4)
    memory = device.allocate(64)
    device.fail("work", error=DeviceLost("gone"))
    events = device.prepare(two_branches()).run([0] * 4, 0, [0.0], [])
    calls = [
        events[0].wait,
        lambda: device.allocate(1),
        lambda: device.upload(host, memory),
        lambda: device.download(memory, host),
        lambda: device.prepare(two_branches()),
    ]
    for call in calls * 2:
        with pytest.raises(DeviceLost, match="gone"):
            call()


def test_a_fault_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="write one of allocate"):
        FakeDevice().fail("explode")
