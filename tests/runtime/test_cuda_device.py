"""The CUDA device on a GPU in memory: plans mean what their graphs mean in any order that the events allow."""

from __future__ import annotations

import gc
import math
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelgraph.compiler import pipeline
from kernelgraph.compiler.graph import Builder
from kernelgraph.compiler.interpret import interpret
from kernelgraph.compiler.types import ArrayType
from kernelgraph.runtime.batch import batched, packed
from kernelgraph.runtime.devices import cuda, cuda_direct, cuda_graph
from kernelgraph.runtime.devices.cuda_pool import DevicePool
from kernelgraph.runtime.errors import DeviceLost, OutOfMemory
from kernelgraph.runtime.machine import MACHINES
from kernelgraph.runtime.native_direct import Taken
from kernelgraph.runtime.plan import Launch
from kernelgraph.runtime.program import Buffer, Int, Kernel, Library, Pointer, Program, Region, Scalar, Task
from kernelgraph.runtime.schedule import schedule
from kernelgraph.runtime.settings import override
from kernelgraph.runtime.trial import identity

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2])]
from cuda_fake import FakeBlas, FakeContext  # noqa: E402

from tests.compiler.programs import close, graphs, precision  # noqa: E402

relaxed = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(autouse=True)
def _text_as_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake GPU runs text: nothing is compiled."""
    monkeypatch.setattr(cuda, "cubins", lambda kernels, cc: list(kernels))


def device_on(context: FakeContext, replay: bool = False) -> cuda.CUDADevice:
    made = cuda.CUDADevice(0, context)
    made.blas = FakeBlas(context, made.pool.allocate)  # type: ignore[assignment]
    if not replay:
        made.replay_of = lambda executable, way: None  # type: ignore[method-assign]
    return made


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever can be replayed is."""
    monkeypatch.setattr(cuda, "worth_replay", lambda plan, runners: True)


def counted(device: Any, name: str) -> int:
    return sum(entry[0] == name for entry in device.context.driver.log)


def ready(graph: Any, streams: Any = "max") -> Any:
    program = pipeline.build(graph, "cuda")
    return schedule(program, streams, machine=MACHINES["cuda"])


def call(
    device: cuda.CUDADevice, executable: Any, inputs: list[tuple[Any, Any]], timed: bool = False
) -> tuple[list[Any], Any]:
    """One call on (memory, event) inputs; the outputs' memories, and the events with all that must stay alive."""
    plan = executable.plan
    memories: list[Any] = [None] * len(plan.program.buffers)
    after = []
    for buffer, (memory, event) in zip(plan.program.inputs, inputs, strict=True):
        memories[buffer] = memory.address
        if event is not None:
            after.append((buffer, event))
    outputs = {b: device.allocate(plan.program.buffers[b].nbytes) for b in dict.fromkeys(plan.program.outputs)}
    for b, memory in outputs.items():
        memories[b] = memory.address
    arena = device.allocate(plan.arena_bytes) if plan.arena_bytes else None
    run = executable.run_timed if timed else executable.run
    events = run(memories, arena.address if arena else None, (), after)
    return [outputs[b] for b in plan.program.outputs], (events, arena, inputs)


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
        wanted.append(interpret(graph, given_))
    for (memories, (events, *_)), results in zip(kept, wanted, strict=True):
        for memory, event, result in zip(memories, events, results, strict=True):
            event.wait()
            got = np.empty_like(result)
            device.download(memory, got)
            close(got, result, precision(graph))


def chain(kernels: int = 1) -> Any:
    """x -> x + x, and for more kernels sums over one axis after another."""
    b = Builder("chain")
    x = b.input(ArrayType((40,), np.dtype("f4")))
    if kernels == 1:
        return b.finish([b.map("add", x, x)])
    square = b.reshape(x, (8, 5))
    found = [b.map("exp", b.reduce("sum", square, (k % 2,))) for k in range(2)]
    found += [b.map("sin", b.reduce("sum", v, (0,))) for v in found]
    return b.finish(found)


def uneven() -> Any:
    """One output after one kernel, the other after a chain of six."""
    b = Builder("uneven")
    x = b.reshape(b.input(ArrayType((40,), np.dtype("f4"))), (8, 5))
    value = x
    for k in range(6):
        value = b.map("negative", b.reduce("max", b.map("add", value, x), (k % 2,)))
        value = b.broadcast(b.reshape(value, (1, 5) if k % 2 == 0 else (8, 1)), (8, 5))
    return b.finish([b.reduce("max", x, (0,)), value])


def start(device: cuda.CUDADevice, graph: Any) -> tuple[Any, Any]:
    plan = ready(graph)
    memory = device.allocate(160)
    event = device.upload(np.arange(40, dtype="f4"), memory)
    return device.prepare(plan), [(memory, event)]


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
    assert device.recent[-1][1][0] in str(caught.value) and device.recent[0][1][0] not in str(caught.value)
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
    child = os.fork()
    if child == 0:
        device.context.driver.refuse["launch"] = 3  # not initialised
        _, (events, *_) = call(device, executable, [(inputs[0][0], None)])
        try:
            events[0].wait()
        except DeviceLost as error:
            os._exit(7 if "forked" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
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
@settings(max_examples=50, deadline=None)
def test_pool(sizes: list[int], rng: Any) -> None:
    context = FakeContext(capacity=24 << 20)
    pool = DevicePool(context.allocate, context.release, context.synchronize)
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


@settings(relaxed, max_examples=40)
@given(case=graphs(steps=16, dtypes=("float32", "float64", "complex64")), seed=st.integers(0, 999))
def test_replayed_plans_mean_what_graphs_mean(always: None, case: Any, seed: int) -> None:
    graph, arrays = case
    device = device_on(FakeContext(seed), replay=True)
    executable = device.prepare(ready(graph))
    kept = []
    memories = [device.allocate(max(1, a.nbytes)) for a in arrays]
    for turn in range(5):
        inputs = []
        for a, memory in zip(arrays, memories, strict=True):
            place = device.allocate(max(1, a.nbytes)) if turn == 3 else memory  # other pointers
            inputs.append((place, device.upload(a.copy(order="C"), place)))
        kept.append(call(device, executable, inputs))
        for event in kept[-1][1][0]:
            if turn != 2:  # what is in flight reads memory that the next upload writes
                event.wait()
        if turn == 2:
            memories = [device.allocate(max(1, a.nbytes)) for a in arrays]
    wanted = interpret(graph, [a.copy(order="C") for a in arrays])
    for found, (events, *_) in kept:
        for memory, event, result in zip(found, events, wanted, strict=True):
            event.wait()
            got = np.empty_like(result)
            device.download(memory, got)
            close(got, result, precision(graph))
    assert not any("no replay" in note for note in executable.notes), executable.notes
    if executable._replay is not None:
        assert counted(device, "launch_graph") == 4


def test_replay_writes_new_pointers_alone(always: None) -> None:
    device = device_on(FakeContext(), replay=True)
    executable, inputs = start(device, chain(4))
    kept = [call(device, executable, inputs) for _ in range(6)]
    launches = sum(step.__class__.__name__ == "Launch" for step in executable.plan.steps)
    assert counted(device, "launch_graph") == 5 and counted(device, "instantiate") == 2  # none has come to its end
    assert 0 < counted(device, "update_kernel") <= 3 * launches
    for _, (events, *_) in kept:
        for event in events:
            event.wait()


@pytest.mark.parametrize(
    "call_name", ["begin_capture", "add_event", "instantiate", "update_kernel", "update_event", "launch_graph"]
)
def test_what_goes_wrong_with_graphs_is_said_and_done_without(
    always: None, call_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = device_on(FakeContext(), replay=True)
    executable, inputs = start(device, chain(4))
    kept = []
    warned = []
    monkeypatch.setattr("warnings.warn", lambda text, *_, **options: warned.append(text))
    for turn in range(6):
        if turn == 3:
            (note,) = executable.notes
            assert note.startswith("no replay as a graph: LaunchError")
            executable.notes.clear()
        device.context.driver.refuse[call_name] = 999
        kept.append(call(device, executable, inputs))
        for event in kept[-1][1][0]:
            event.wait()
    assert len(warned) == 1 and "it runs on streams" in warned[0]
    assert not executable.notes and "launch_graph" not in [e[0] for e in device.context.driver.log[-8:]]


def branches(count: int, depth: int, n: int = 4, dtype: str = "f8") -> Any:
    b = Builder("branches")
    kind = ArrayType((n, n), np.dtype(dtype))
    x, weights = b.input(kind), [b.input(kind) for _ in range(count)]
    found = []
    for w in weights:
        value = x
        for turn in range(depth):
            value = b.matmul(value, w)
            value = b.map("maximum", value, 0) if turn < depth - 1 or w is not weights[0] else value
        found.append(value)
    return b.finish(found)


def forms(program: Any) -> list[Any]:
    return [program, batched(program, MACHINES["cuda"]), packed(program, MACHINES["cuda"]),
            packed(batched(program, MACHINES["cuda"]), MACHINES["cuda"])]  # fmt: skip


@pytest.mark.parametrize("form", range(4))
@pytest.mark.parametrize("replay", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_batches_and_packs_with_fresh_pointers(always: None, form: int, replay: bool, seed: int) -> None:
    graph = branches(3, 3)
    program = forms(pipeline.build(graph, "cuda"))[form]
    kernels = [t.kernel for t in program.tasks]
    assert form % 2 == any(dict(k.attrs).get("batch") for k in kernels if isinstance(k, Library))
    assert (form > 1) == any(dict(k.options).get("packed") for k in kernels if isinstance(k, Kernel))
    device = device_on(FakeContext(seed), replay=replay)
    executable = device.prepare(schedule(program, "max", machine=MACHINES["cuda"]))
    rng = np.random.default_rng(seed)
    kept = []
    fixed = [rng.normal(size=(4, 4)) for _ in range(4)]
    memories = [device.allocate(128) for _ in fixed]
    for memory, a in zip(memories, fixed, strict=True):
        device.upload(a, memory).wait()
    for turn in range(9):  # all pointers stay, then x is another each time, then all are
        arrays, inputs = list(fixed), [(memory, None) for memory in memories]
        for i in range(4 if turn > 5 else 1 if turn > 2 else 0):
            arrays[i] = rng.normal(size=(4, 4))
            memory = device.allocate(128)
            inputs[i] = (memory, device.upload(arrays[i], memory))
        kept.append((call(device, executable, inputs), interpret(graph, arrays)))
    for (found, (events, *_)), wanted in kept:
        for memory, event, result in zip(found, events, wanted, strict=True):
            event.wait()
            got = np.empty_like(result)
            device.download(memory, got)
            np.testing.assert_allclose(got, result, rtol=1e-12, atol=1e-12)
    assert not executable.notes
    assert counted(device, "launch_graph") == (8 if replay else 0)
    assert counted(device, "instantiate") <= 6
    driver = device.context.driver
    del executable, kept
    gc.collect()
    assert not driver.graphs and not driver.functions


def test_a_batch_that_the_gpu_has_not_goes_to_the_host() -> None:
    graph = branches(3, 2, dtype="i4")
    program = batched(pipeline.build(graph, "cuda"), MACHINES["cuda"])
    device = device_on(FakeContext(), replay=True)
    executable = device.prepare(schedule(program, "max", machine=MACHINES["cuda"]))
    assert any("runs on the host" in note for note in executable.notes) and executable._replay is None
    arrays = [np.random.default_rng(i).integers(-9, 9, (4, 4)).astype("i4") for i in range(4)]
    memories = [device.allocate(64) for _ in arrays]
    inputs = [(m, device.upload(a, m)) for m, a in zip(memories, arrays, strict=True)]
    found, (events, *_) = call(device, executable, inputs)
    for memory, event, result in zip(found, events, interpret(graph, arrays), strict=True):
        event.wait()
        got = np.empty_like(result)
        device.download(memory, got)
        np.testing.assert_array_equal(got, result)


@pytest.mark.parametrize("replay", [False, True])
def test_numbers_and_offsets_of_packed_launches(always: None, replay: bool) -> None:
    """out[i] = x[i] * number[i] for rows that start inside of their buffers, packed and replayed."""
    text = "THREADS = 32\ndef scale(a0, a1, n0, s0):\n"
    text += "    i = bid_x() * bdim_x() + tid_x()\n    if i < n0:\n"
    text += "        store_f32_1x1(a1, i32(i), i32(0), i32(1), load_f32_1x1(a0, i32(i), i32(0), i32(1)) * s0)\n"
    kernel = Kernel("scale", "cuda", text, ("ptr", "ptr", "i64", "float32"))
    tasks = []
    for i in range(3):
        reads, writes = (Region(b, 80 * i, (20,), (4,), 4, "float32") for b in (0, 1))
        arguments = (Pointer(0, 80 * i), Pointer(1, 80 * i), Int(20), Scalar(i, "float32"))
        tasks.append(Task("scale", kernel, arguments, (reads,), (writes,), block=(32, 1, 1)))
    buffers = (Buffer(240, "input"), Buffer(240, "output"))
    program = packed(Program(buffers, tuple(tasks), (0,), (1,), ("float32",) * 3, "cuda"), MACHINES["cuda"])
    assert len(program.tasks) == 1
    device = device_on(FakeContext(), replay=replay)
    executable = device.prepare(schedule(program, 1, machine=MACHINES["cuda"]))
    x = np.arange(60, dtype="f4")
    for turn in range(4):
        source, target = device.allocate(240), device.allocate(240)
        event = device.upload(x, source)
        numbers = (1.5 + turn, 2, -3.0)
        events = executable.run([source.address, target.address], None, numbers, [(0, event)])
        events[0].wait()
        got = np.empty_like(x)
        device.download(target, got)
        np.testing.assert_array_equal(got, x * np.repeat(np.array(numbers, "f4"), 20))
    assert counted(device, "launch_graph") == (3 if replay else 0) and not executable.notes


def directly(device: Any, executable: Any) -> Any:
    """f(after, x): a call of a plan of one launch by its direct way, else by the ordinary one; the event, and what must
    stay alive."""
    program = executable.plan.program
    go = executable.direct([Taken(b) for b in (*program.inputs, *program.outputs)])

    def run(after: Any, source: Any) -> Any:
        target = device.allocate(160)
        event = go(after, source.address, target.address)
        direct = event is not None
        if not direct:
            memories = [source.address, target.address]
            (event,) = executable.run(memories, None, (), [(0, after)] if after else ())
        return event, target, direct

    return run


@pytest.mark.parametrize("refused", ["", "begin_capture", "instantiate", "update_kernel", "launch_graph"])
@pytest.mark.parametrize("chained", [False, True])
def test_a_launch_becomes_a_graph_of_one_node(monkeypatch: pytest.MonkeyPatch, refused: str, chained: bool) -> None:
    monkeypatch.setattr(cuda_direct, "PLAIN", 3)
    device = device_on(FakeContext())
    executable, _ = start(device, chain())
    driver = device.context.driver
    run = directly(device, executable)
    kept: list[Any] = []
    for turn in range(40):
        x = np.arange(40, dtype="f4") + turn
        source, after = device.allocate(160), None
        if chained and turn % 4:
            after, source, x = kept[-1][0], kept[-1][2], 2 * kept[-1][1]
        else:
            device.upload(x, source).wait()
        if turn == 3 and refused:
            driver.refuse[refused] = 1
        event, target, direct = run(after, source)
        assert not direct or turn > 3
        kept.append((event, x, target, source, direct))
    for event, x, target, *_ in kept:
        event.wait()
        got = np.empty_like(x)
        device.download(target, got)
        np.testing.assert_array_equal(got, x + x)
    count = sum(direct for *_, direct in kept)
    if refused in ("begin_capture", "instantiate"):
        assert count == counted(device, "launch_graph") == 0
    else:
        assert count >= 20
        assert len({event.stream for event, *_, direct in kept if direct}) == counted(device, "instantiate") > 1
        assert chained or count == 36 - bool(refused)
    run, executable = None, None
    gc.collect()
    assert not driver.graphs and not driver.functions


def test_a_direct_call_leaves_to_others_what_it_cannot_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_direct, "PLAIN", 0)
    device = device_on(FakeContext())
    executable, inputs = start(device, chain())
    program = executable.plan.program
    go = executable.direct([Taken(b) for b in (*program.inputs, *program.outputs)])
    (source, upload), target = inputs[0], device.allocate(160)
    assert go(None, source.address, target.address) is None  # makes the graphs
    assert go(None, source.address, target.address) is not None
    assert go(upload, source.address, target.address) is None  # of a stream that no plan is launched on
    failed = device.events.record(device._streams[False][0])
    failed.error = ValueError("no")
    assert go(failed, source.address, target.address) is None
    with pytest.raises(TypeError):
        go(None, source.address, None)
    two, _ = start(device, chain(4))
    assert two.direct([Taken(b) for b in (*two.plan.program.inputs, *two.plan.program.outputs)]) is None


def test_winners_are_kept_by_gpu_and_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    device = device_on(FakeContext())
    first = identity(device)
    assert first == device.identity and "H200" in first and "13.0" in first and "nvmath-python" in first
    monkeypatch.setattr(device.context.driver, "version", lambda: (13, 1))
    second = identity(device)
    device.properties = replace(device.properties, multiprocessors=100)
    assert len({first, second, identity(device)}) == 3


@pytest.mark.parametrize("seed", range(6))
def test_an_output_of_a_replayed_call_is_waited_for_alone(always: None, seed: int) -> None:
    """It is there while the other is not."""
    graph = uneven()
    device = device_on(FakeContext(seed), replay=True)
    executable, inputs = start(device, graph)
    wanted = interpret(graph, [np.arange(40, dtype="f4")])
    alone = 0
    for turn in range(4):
        memories, (events, *_kept) = call(device, executable, inputs)
        assert turn == 0 or events[0].handle != events[1].handle
        events[0].wait()
        alone += not events[1].query()
        for memory, event, result in zip(memories, events, wanted, strict=True):
            event.wait()
            got = np.empty_like(result)
            device.download(memory, got)
            np.testing.assert_allclose(got, result, rtol=1e-5)
    assert counted(device, "launch_graph") == 3 and not executable.notes
    assert alone


def test_graphs_keep_a_bounded_number_of_bytes(always: None) -> None:
    device = device_on(FakeContext(), replay=True)
    device.graphs.limit = 1000
    kept = []
    for _ in range(4):
        executable, inputs = start(device, chain(4))
        kept += [executable, *(call(device, executable, inputs) for _ in range(3))]
    assert sum(bool(e._replay.instances) for e in kept if hasattr(e, "_replay")) < 4


@pytest.mark.parametrize("way", ["streams", "replay"])
@pytest.mark.parametrize("seed", range(4))
def test_timed_runs_have_the_device_to_themselves(way: str, seed: int) -> None:
    device = device_on(FakeContext(seed), replay=True)
    plan = ready(chain(4))
    assert set(device.ways(plan)) == {"streams", "replay"}
    timed, other = device.prepare(plan, way), device.prepare(plan, "streams")
    _, inputs = start(device, chain(4))
    kept, times = [], []
    for turn in range(12):
        kept.append(call(device, timed if turn % 2 else other, inputs, timed=turn % 2 == 1))
        if turn % 2:
            (_, timing), *_ = kept[-1][1]
            times.append(timing)
            assert timing.query() is None or math.isnan(timing.query())
    device.synchronize()
    found = [timing.query() for timing in times]
    replayed = way == "replay"
    assert [math.isnan(us) for us in found] == [replayed and turn < 3 for turn in range(6)]
    steps = 3 + 2 * len(plan.steps)
    assert all(0 < us <= steps + 2 * len(plan.program.buffers) for us in found if not math.isnan(us))


@pytest.mark.parametrize("way", ["streams", "replay"])
def test_on_an_idle_device_a_timed_run_is_issued_as_any_other(way: str) -> None:
    device = device_on(FakeContext(), replay=True)
    executable = device.prepare(ready(chain(4)), way)
    _, inputs = start(device, chain(4))
    kept = []
    for _ in range(3):
        kept.append(call(device, executable, inputs))
        device.synchronize()
    log, found = device.context.driver.log, []
    for timed in (False, True):
        log.clear()
        kept.append(call(device, executable, [(inputs[0][0], None)], timed=timed))
        own = [entry[0] for entry in log if device.clock._stream not in entry]
        found.append([name for name in own if name != "record"])
        device.synchronize()
    assert found[0] == found[1] and found[0]
    assert 0 < kept[-1][1][0][1].query() < 1e6


def test_a_timed_run_that_fails_does_not_count() -> None:
    device = device_on(FakeContext())
    executable, inputs = start(device, chain())
    device.context.driver.refuse["launch"] = 1
    _, ((events, timing), *_) = call(device, executable, inputs, timed=True)
    with pytest.raises(cuda.LaunchError):
        events[0].wait()
    assert math.isnan(timing.query())


def test_graphs_that_outlive_the_modules_die_quietly(always: None, monkeypatch: pytest.MonkeyPatch) -> None:
    complaints: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", complaints.append)
    device = device_on(FakeContext(), replay=True)
    executable, inputs = start(device, chain(4))
    for _ in range(3):
        _, (events, *_) = call(device, executable, inputs)
    assert executable._replay is not None and executable._replay.instances
    monkeypatch.setattr(cuda_graph, "sys", None)
    del executable, events
    gc.collect()
    assert complaints == []


def test_a_plan_with_a_host_step_has_one_way() -> None:
    b = Builder("sorted")
    x = b.input(ArrayType((64,), np.dtype("f4")))
    graph = b.finish([*b.host("sort", [x], [x.type]), *b.host("argsort", [x], [ArrayType((64,), np.dtype("i8"))])])
    plan = schedule(pipeline.build(graph, "cuda"), machine=MACHINES["cuda"])
    assert device_on(FakeContext(), replay=True).ways(plan) == ("streams",)
