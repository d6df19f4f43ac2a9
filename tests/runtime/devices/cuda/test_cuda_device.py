"""The CUDA device on a GPU in memory: plans mean what their graphs mean in any order that the events allow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelgraph.runtime.core.errors import DeviceLost, OutOfMemory
from kernelgraph.runtime.core.settings import override
from kernelgraph.runtime.devices.cuda import device as cuda
from kernelgraph.runtime.devices.cuda.memory.pool import GpuMemoryPool
from kernelgraph.runtime.program.plan import Launch
from tests.compiler.programs import agree, graphs
from tests.counts import examples
from tests.processes import forked
from tests.runtime.cuda_calls import call, chain, device_on, downloaded, ready, start, uneven
from tests.runtime.cuda_fake import FakeContext
from tests.runtime.oracles import spoiled_outputs

relaxed = settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(autouse=True)
def _text_as_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake GPU runs text: nothing is compiled."""
    monkeypatch.setattr(cuda, "compile_cubins", lambda kernels, cc: list(kernels))


@relaxed
@given(case=graphs(dtypes=("float32", "float64", "int32", "bool", "complex64")), seed=st.integers(0, 999))
def test_plans_mean_what_graphs_mean(case: Any, seed: int) -> None:
    graph, arrays = case
    device = device_on(FakeContext(seed))
    plan = ready(graph)
    executable = device.prepare(plan)
    kept, wanted = [], []
    for turn in range(2):
        given_ = [(a[::-1] if turn and a.ndim else a).copy(order="C") for a in arrays]
        inputs = []
        for a in given_:
            memory = device.allocate(a.nbytes)
            inputs.append((memory, device.upload(a, memory)))
        kept.append(call(device, executable, inputs))
        wanted.append(given_)
    for (memories, (events, *_)), given_ in zip(kept, wanted, strict=True):
        agree(graph, given_, downloaded(device, graph, memories, events))


def test_calls_that_depend_stay_on_one_stream() -> None:
    device = device_on(FakeContext())
    executable, inputs = start(device, chain())
    driver = device.context.driver
    for _ in range(3):
        memories, (events, *_) = call(device, executable, inputs)
        inputs = [(memories[0], events[0])]
    launches = [entry for entry in driver.log if entry[0] == "launch"]
    assert len({stream for _, stream, _ in launches}) == 1
    assert sum(entry[0] == "wait" for entry in driver.log) == 1  # for the upload
    got = np.empty(40, "f4")
    inputs[0][1].wait()
    device.download(inputs[0][0], got)
    np.testing.assert_array_equal(got, np.arange(40, dtype="f4") * 8)


def test_independent_calls_take_turns() -> None:
    device = device_on(FakeContext())
    executable, inputs = start(device, chain())
    for _ in range(4):
        call(device, executable, [(inputs[0][0], None)])
    launches = [entry[1] for entry in device.context.driver.log if entry[0] == "launch"]
    assert len(set(launches)) == 4


def test_a_refused_launch_poisons_its_outputs_alone() -> None:
    device = device_on(FakeContext())
    executable, inputs = start(device, chain())
    device.context.driver.refuse["launch"] = 1
    memories, (events, *_) = call(device, executable, inputs)
    for _ in range(2):  # at every read
        with pytest.raises(cuda.LaunchError, match="CUDA error 1"):
            events[0].wait()
    poisoned = [(memories[0], events[0])]
    _, (events, *_) = call(device, executable, poisoned)
    with pytest.raises(cuda.LaunchError):
        events[0].wait()
    _, (events, *_) = call(device, executable, inputs)
    events[0].wait()


def test_on_one_stream_too_only_outputs_made_from_what_was_refused_are_bad() -> None:
    plan = ready(uneven(), streams=1)
    order = [s.task for s in plan.steps if isinstance(s, Launch)]
    kinds = set()
    for which, task in enumerate(order):
        device = device_on(FakeContext())
        driver = device.context.driver
        memory = device.allocate(160)
        inputs = [(memory, device.upload(np.arange(40, dtype="f4"), memory))]
        launch, asked = driver.launch, iter(range(len(order)))

        def refuse(*args: Any, launch: Any = launch, asked: Any = asked, which: int = which) -> int:
            return 1 if next(asked) == which else int(launch(*args))

        driver.launch = refuse
        _, (events, *_) = call(device, device.prepare(plan), inputs)
        expected = spoiled_outputs(plan.program, {task})
        for event, bad in zip(events, expected, strict=True):
            if bad:
                with pytest.raises(cuda.LaunchError):
                    event.wait()
            else:
                event.wait()
        kinds.add(tuple(expected))
    assert (True, False) in kinds and (False, True) in kinds


def test_a_sticky_error_loses_the_device() -> None:
    device = device_on(FakeContext())
    executable, inputs = start(device, chain())
    _, (events, *_) = call(device, executable, inputs)
    device.context.driver.refuse["synchronize_event"] = 700
    with pytest.raises(DeviceLost, match="KERNELGRAPH_ENGINE=sync"):
        events[0].wait()
    device.context.driver.refuse["launch"] = 1
    _, (events, *_) = call(device, executable, inputs)
    with pytest.raises(DeviceLost):
        events[0].wait()


def test_a_lost_device_names_what_was_not_seen_to_end_and_fails_everything() -> None:
    device = device_on(FakeContext())
    driver = device.context.driver
    executable, inputs = start(device, chain(3))
    _, (events, *_) = call(device, executable, inputs)
    events[-1].wait()
    one, more = start(device, chain())
    _, (events, *_) = call(device, one, more)
    driver.refuse["synchronize_event"] = 700
    with pytest.raises(DeviceLost) as caught:
        events[0].wait()
    first, last = device.recent_launches[0], device.recent_launches[-1]
    assert last[1][0] in str(caught.value) and first[1][0] not in str(caught.value)
    device.context.capacity = 0
    driver.query_stream = lambda stream: 700
    for act in (lambda: device.allocate(1 << 20), lambda: device.download(more[0][0], np.empty(40, "f4"))):
        driver.refuse["to_host"] = 700
        with pytest.raises(DeviceLost):
            act()


def test_memory_that_a_lost_device_refuses_is_no_lack_of_memory() -> None:
    device = device_on(FakeContext(capacity=0))
    device.context.driver.query_stream = lambda stream: 700
    with pytest.raises(DeviceLost, match="allocating"):
        device.allocate(1 << 20)


def test_in_the_child_of_a_fork_the_device_is_lost() -> None:
    device = device_on(FakeContext())
    executable, inputs = start(device, chain())

    def child() -> int:
        device.context.driver.refuse["launch"] = 3  # not initialised
        said = 0
        host = np.zeros(40, "f4")
        for act in (
            lambda: call(device, executable, [(inputs[0][0], None)])[1][0][0].wait(),
            lambda: device.prepare(ready(chain(2))),
            lambda: device.upload(host, inputs[0][0]),
            lambda: device.download(inputs[0][0], host),
            lambda: device.allocate(8 << 20),
        ):
            try:
                act()
            except DeviceLost as error:
                said += "forked" in str(error)
        return said

    assert forked(child) == 5
    _, (events, *_) = call(device, executable, inputs)
    events[0].wait()


def test_sync_names_the_step() -> None:
    device = device_on(FakeContext())
    executable, inputs = start(device, chain())
    with override(engine="sync"):
        device.context.driver.refuse["synchronize_stream"] = 700
        _, (events, *_) = call(device, executable, inputs)
    with pytest.raises(DeviceLost) as caught:
        events[0].wait()
    assert any("add" in note for note in caught.value.__notes__)


@given(st.lists(st.integers(0, 3 << 20), max_size=30), st.randoms())
@settings(max_examples=examples(50), deadline=None)
def test_pool(sizes: list[int], rng: Any) -> None:
    context = FakeContext(capacity=24 << 20)
    pool = GpuMemoryPool(context.allocate, context.release, context.synchronize)
    alive: list[Any] = []
    for size in sizes:
        try:
            block = pool.allocate(size)
        except OutOfMemory:
            assert sum(b.nbytes for b in alive) + size > 8 << 20  # slabs and size classes cost something
            alive.clear()
            continue
        assert block.address % 256 == 0 and block.nbytes == size
        for other in alive:
            assert block.address + size <= other.address or other.address + other.nbytes <= block.address or not size
        alive.append(block)
        rng.shuffle(alive)
        del alive[rng.randint(4, 8) :]
    block = other = None
    alive.clear()
    stats = pool.statistics()
    assert stats["in_use"] == 0 and stats["reserved"] == stats["cached"] <= stats["peak"]


@pytest.mark.parametrize("nbytes", [0, 1, 1000, 262144, 262145, 8 << 20, (20 << 20) + 5])
def test_transfers(nbytes: int) -> None:
    device = device_on(FakeContext(nbytes))
    host = np.random.default_rng(0).integers(0, 256, nbytes).astype(np.uint8)
    wanted = host.copy()
    memory = device.allocate(nbytes)
    event = device.upload(host, memory)
    host[...] = 0  # it has been read
    event.wait()
    got = np.empty_like(wanted)
    device.download(memory, got)
    np.testing.assert_array_equal(got, wanted)


def test_memory_outlives_its_upload() -> None:
    device = device_on(FakeContext())
    memory = device.allocate(1000)
    address = memory.address
    event = device.upload(np.zeros(1000, np.uint8), memory)
    del memory
    assert device.allocate(1000).address != address  # the copy is still on its way
    event.wait()
    device.upload(np.zeros(1, np.uint8), device.allocate(1))
    assert device.allocate(1000).address == address


def test_no_driver_is_said() -> None:
    try:
        cuda.CUDADevice()
    except cuda.DeviceNotFound as error:
        assert "driver" in str(error) or "GPU" in str(error)
    else:
        pytest.skip("this machine has a GPU")


@pytest.mark.parametrize("way", ["streams", "replay"])
def test_the_critical_path_runs_on_a_stream_of_high_priority(way: str) -> None:
    """A chain of six kernels beside one: the chain's stream is the critical one, captured or not."""
    device = device_on(FakeContext(), replay=True)
    executable, inputs = start(device, uneven())
    plan = executable.plan
    assert len(plan.high_priority) == 1 and plan.streams > 1
    executable = device.prepare(plan, way)
    log, high = device.context.driver.log, device.context.high
    kept = []
    for _ in range(2):
        log.clear()
        kept.append(call(device, executable, inputs))
    launched = [entry[1] for entry in log if entry[0] == "launch"]
    wanted = [step.stream in plan.high_priority for step in plan.steps if isinstance(step, Launch)]
    assert [stream in high for stream in launched] == wanted and any(wanted)


def test_events_are_recycled() -> None:
    context = FakeContext()
    device = device_on(context)
    executable, inputs = start(device, chain())
    for _ in range(50):
        _, (events, *_) = call(device, executable, inputs)
        events[0].wait()
        del events
    assert len(device.events._objects) < 10 + cuda.RECENT
