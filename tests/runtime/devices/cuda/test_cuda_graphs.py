"""Replay on a GPU in memory: graphs mean what their plans mean, with new pointers, and what goes wrong is said."""

from __future__ import annotations

import gc
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelgraph.compiler import pipeline
from kernelgraph.compiler.core.types import ArrayType
from kernelgraph.compiler.graph.builder import GraphBuilder
from kernelgraph.compiler.graph.interpret import interpret_graph
from kernelgraph.runtime.devices.cuda import device as cuda
from kernelgraph.runtime.devices.cuda.graphs import instances as cuda_instances
from kernelgraph.runtime.devices.cuda.graphs import replay
from kernelgraph.runtime.devices.cuda.modules.launch import words_of_kernel_scalars
from kernelgraph.runtime.engine.direct_call import DirectArgument
from kernelgraph.runtime.program.program import Buffer, Int, Kernel, Library, Pointer, Program, Region, Scalar, Task
from kernelgraph.runtime.schedule.batching import pack_small_launches, schedule_matmul_batches
from kernelgraph.runtime.schedule.cost_model import MACHINES
from kernelgraph.runtime.schedule.schedule import schedule
from tests.compiler.programs import agree, graphs
from tests.counts import examples
from tests.runtime.cuda_calls import branches, call, chain, counted, device_on, downloaded, forms, ready, start, uneven
from tests.runtime.cuda_fake import FakeContext

relaxed = settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(autouse=True)
def _text_as_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake GPU runs text: nothing is compiled."""
    monkeypatch.setattr(cuda, "compile_cubins", lambda kernels, cc: list(kernels))


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever can be replayed is."""
    monkeypatch.setattr(cuda, "is_graph_replay_worthwhile", lambda plan, runners: True)


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results of a plan have moments of their own, however short it is."""
    monkeypatch.setattr(replay, "EARLY_US", 0.0)


@settings(relaxed, max_examples=examples(40))
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
    for found, (events, *_) in kept:
        agree(graph, [a.copy(order="C") for a in arrays], downloaded(device, graph, found, events))
    assert not any("no replay" in note for note in executable.notes), executable.notes
    if executable._replay is not None:
        assert counted(device, "launch_graph") == 4


@pytest.mark.parametrize("others", range(cuda_instances.LANES))
def test_the_instances_of_a_plan_have_lanes_of_their_own(always: None, others: int) -> None:
    """However many graphs of other plans were captured between them: on one lane they would not overlap."""
    device = device_on(FakeContext(), replay=True)
    executable, inputs = start(device, chain(4))
    replayed = executable._replay
    kept = []
    while not replayed.instances:
        kept.append(call(device, executable, inputs))
    for _ in range(others):
        device.graphs.lane()
    while len(replayed.instances) < replay.INSTANCES:
        kept.append(call(device, executable, inputs))
    assert len({instance.lane for instance in replayed.instances}) == replay.INSTANCES


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
    always: None, apart: None, call_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = device_on(FakeContext(), replay=True)
    executable, inputs = start(device, chain(4))
    kept = []
    warned = []
    monkeypatch.setattr("warnings.warn_explicit", lambda text, *place: warned.append(text))
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


@pytest.mark.parametrize("form", range(4))
@pytest.mark.parametrize("replay", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_batches_and_packs_with_fresh_pointers(always: None, form: int, replay: bool, seed: int) -> None:
    graph = branches(3, 3)
    program = forms(pipeline.compile_graph_to_program(graph, "cuda"))[form]
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
        kept.append((call(device, executable, inputs), interpret_graph(graph, arrays)))
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


@pytest.mark.parametrize(("movable", "graphs"), [(True, 1), (False, 2), (None, 2)])
def test_a_large_input_of_a_product_that_is_elsewhere_once_is_not_copied_ever_after(
    always: None, monkeypatch: pytest.MonkeyPatch, movable: bool | None, graphs: int
) -> None:
    """The library's kernel gets its other place, if captures tell where it has that. Else there is a graph for each of
    few places."""
    monkeypatch.setattr(replay, "SLOT_BYTES", 100)
    graph = branches(2, 2)
    device = device_on(FakeContext(), replay=True)
    device.blas.movable = movable  # type: ignore[attr-defined]
    executable = device.prepare(schedule(pipeline.compile_graph_to_program(graph, "cuda"), 1, machine=MACHINES["cuda"]))
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(4, 4)) for _ in range(3)]
    places = [[device.allocate(128) for _ in arrays] for _ in range(2)]
    for memories in places:
        for memory, a in zip(memories, arrays, strict=True):
            device.upload(a, memory).wait()
    replayed = ""
    for place in "AAABAABBBAAAAAB":
        before = counted(device, "launch_graph")
        found, (events, *_) = call(device, executable, [(memory, None) for memory in places[place == "B"]])
        for memory, event, result in zip(found, events, interpret_graph(graph, arrays), strict=True):
            event.wait()
            got = np.empty_like(result)
            device.download(memory, got)
            np.testing.assert_allclose(got, result, rtol=1e-12, atol=1e-12)
        replayed += place if counted(device, "launch_graph") > before else "-"
    assert replayed == "-AABAABBBAAAAAB" and counted(device, "instantiate") == graphs
    assert not executable.notes


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("movable", [False, True])
def test_a_product_alone_is_replayed_where_its_kernel_gets_other_places(
    monkeypatch: pytest.MonkeyPatch, movable: bool, direct: bool
) -> None:
    """Those that are aligned as the ones that were captured. Where it gets none, copies would take longer than that
    gains."""
    monkeypatch.setattr(replay, "COPY_US", 50.0)
    graph = branches(1, 1)
    device = device_on(FakeContext(), replay=True)
    device.blas.movable = movable  # type: ignore[attr-defined]
    plan = schedule(pipeline.compile_graph_to_program(graph, "cuda"), 1, machine=MACHINES["cuda"])
    assert device.ways(plan) == ("replay",)
    executable = device.prepare(plan)
    program = plan.program
    go = executable.direct([DirectArgument(b) for b in (*program.inputs, *program.outputs)])
    assert go is not None
    rng = np.random.default_rng(0)
    replays, wanted = 0, 0
    for turn, offset in enumerate((0, 0, 0, 64, 8, 0, 0, 256)):
        arrays = [rng.normal(size=(4, 4)) for _ in range(2)]
        kept = [device.allocate(512) for _ in arrays]
        inputs = [SimpleNamespace(address=memory.address + offset) for memory in kept]
        for memory, a in zip(inputs, arrays, strict=True):
            device.upload(a, memory).wait()
        before, event = counted(device, "launch_graph"), None
        if direct:
            target = device.allocate(128)
            event = go((), 0, *(m.address for m in inputs), target.address)
        if event is None:
            (target,), (events, *_) = call(device, executable, [(memory, None) for memory in inputs])
            (event,) = events
        event.wait()
        got = np.empty((4, 4))
        device.download(target, got)
        np.testing.assert_allclose(got, arrays[0] @ arrays[1], rtol=1e-12, atol=1e-12)
        replays += counted(device, "launch_graph") - before
        wanted += movable and turn > 0 and offset % 256 == 0
    assert replays == wanted and not executable.notes


def test_a_batch_that_the_gpu_has_not_goes_to_the_host() -> None:
    graph = branches(3, 2, dtype="i4")
    program = schedule_matmul_batches(pipeline.compile_graph_to_program(graph, "cuda"), MACHINES["cuda"])
    device = device_on(FakeContext(), replay=True)
    executable = device.prepare(schedule(program, "max", machine=MACHINES["cuda"]))
    assert any("runs on the host" in note for note in executable.notes) and executable._replay is None
    arrays = [np.random.default_rng(i).integers(-9, 9, (4, 4)).astype("i4") for i in range(4)]
    memories = [device.allocate(64) for _ in arrays]
    inputs = [(m, device.upload(a, m)) for m, a in zip(memories, arrays, strict=True)]
    found, (events, *_) = call(device, executable, inputs)
    for memory, event, result in zip(found, events, interpret_graph(graph, arrays), strict=True):
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
    program = pack_small_launches(
        Program(buffers, tuple(tasks), (0,), (1,), ("float32",) * 3, "cuda"), MACHINES["cuda"]
    )
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


@pytest.mark.parametrize("seed", range(6))
def test_an_output_of_a_replayed_call_is_waited_for_alone(always: None, apart: None, seed: int) -> None:
    """It is there while the other is not."""
    graph = uneven()
    device = device_on(FakeContext(seed), replay=True)
    executable, inputs = start(device, graph)
    wanted = interpret_graph(graph, [np.arange(40, dtype="f4")])
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


def test_graphs_that_are_given_back_are_made_anew(always: None) -> None:
    device = device_on(FakeContext(), replay=True)
    graph = chain(4)
    executable, inputs = start(device, graph)
    expected = np.arange(40, dtype="f4")
    for _ in range(2):
        for _ in range(3):
            found, (events, *_) = call(device, executable, inputs)
            agree(graph, [expected], downloaded(device, graph, found, events))
        assert device.context.driver.graphs and device.graph_bytes
        device.trim()
        assert not device.context.driver.graphs and not device.graph_bytes


def test_graphs_that_outlive_the_modules_die_quietly(always: None, monkeypatch: pytest.MonkeyPatch) -> None:
    complaints: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", complaints.append)
    device = device_on(FakeContext(), replay=True)
    executable, inputs = start(device, chain(4))
    for _ in range(3):
        _, (events, *_) = call(device, executable, inputs)
    assert executable._replay is not None and executable._replay.instances
    monkeypatch.setattr(cuda_instances, "sys", None)
    del executable, events
    gc.collect()
    assert complaints == []


def test_a_plan_with_a_host_step_has_one_way() -> None:
    b = GraphBuilder("spectra")
    x = b.input(ArrayType((64,), np.dtype("c8")))
    graph = b.finish([*b.host("fft.fft", [x], [x.type]), *b.host("fft.ifft", [x], [x.type])])
    plan = schedule(pipeline.compile_graph_to_program(graph, "cuda"), machine=MACHINES["cuda"])
    assert device_on(FakeContext(), replay=True).ways(plan) == ("streams",)


@settings(relaxed, max_examples=examples(40))
@given(
    case=graphs(steps=16, dtypes=("float32", "float64")),
    seed=st.integers(0, 999),
    ways=st.lists(st.sampled_from(["direct", "direct", "ordinary", "moved", "other input", "waited"]), max_size=12),
)
def test_replays_by_one_native_call_mean_what_graphs_mean(always: None, case: Any, seed: int, ways: list[str]) -> None:
    """Direct calls and ordinary ones of a plan in any order, with memory that stays and that moves."""
    graph, arrays = case
    device = device_on(FakeContext(seed), replay=True)
    executable = device.prepare(ready(graph))
    program = executable.plan.program
    order = list(dict.fromkeys((*program.inputs, *program.outputs)))
    go = executable.direct([DirectArgument(b) for b in order])
    memories = [device.allocate(max(1, a.nbytes)) for a in arrays]
    events: list[Any] = [device.upload(a.copy(order="C"), m) for a, m in zip(arrays, memories, strict=True)]
    kept = []
    for way in ["ordinary", "ordinary", *ways]:
        if way in ("moved", "other input"):
            for _, (results, *_) in kept:
                for event in results:
                    event.wait()
            if way == "moved":
                memories = [device.allocate(max(1, a.nbytes)) for a in arrays]
            else:
                arrays = [a[::-1].copy() if a.ndim else a for a in arrays]
            events = [device.upload(a.copy(order="C"), m) for a, m in zip(arrays, memories, strict=True)]
        inputs = list(zip(memories, events, strict=True))
        event, outputs = None, {b: device.allocate(program.buffers[b].nbytes) for b in program.outputs}
        places = outputs | dict(zip(program.inputs, memories, strict=True))
        if way != "ordinary" and go is not None:
            event = go(tuple(dict.fromkeys(events)), 0, *(places[b].address for b in order))
        if event is None:
            found, (results, *held) = call(device, executable, inputs)
        else:
            found, results, held = [places[b] for b in program.outputs], [event] * len(program.outputs), []
        kept.append((found, (results, held, memories)))
        if way == "waited":
            for event in results:
                event.wait()
        wanted = [a.copy(order="C") for a in arrays]
        if way in ("moved", "other input", "waited"):
            agree(graph, wanted, downloaded(device, graph, found, results))
    for found, (results, *_) in kept[-1:]:
        agree(graph, [a.copy(order="C") for a in arrays], downloaded(device, graph, found, results))
    assert not any("no replay" in note for note in executable.notes), executable.notes


def test_a_plan_of_several_tasks_is_one_native_call() -> None:
    """After it was replayed once; with results that end apart it is left to the ordinary way where that is worth it."""
    device = device_on(FakeContext(), replay=True)
    executable, inputs = start(device, chain(4))
    program = executable.plan.program
    go = executable.direct([DirectArgument(b) for b in (*program.inputs, *program.outputs)])
    (source, upload), targets = inputs[0], [device.allocate(160) for _ in program.outputs]
    addresses = [source.address, *(t.address for t in targets)]
    assert go((upload,), 0, *addresses) is None
    for _ in range(2):
        for event in call(device, executable, inputs)[1][0]:
            event.wait()
    before = counted(device, "update_kernel")
    first = go((upload,), 0, *addresses)
    updated = counted(device, "update_kernel") - before
    first.wait()
    second = go((upload,), 0, *addresses)
    assert updated and counted(device, "update_kernel") == before + updated and second.stream == first.stream
    assert go((), 1, *addresses) is None  # somebody's stream


def ready_for_native_calls() -> tuple[Any, Any, Any, list[int], tuple[Any, Any]]:
    """A device, an executable that was replayed, its direct call, the addresses for that, and its input."""
    device = device_on(FakeContext(), replay=True)
    executable, inputs = start(device, chain(4))
    program = executable.plan.program
    go = executable.direct([DirectArgument(b) for b in (*program.inputs, *program.outputs)])
    for _ in range(2):
        for event in call(device, executable, inputs)[1][0]:
            event.wait()
    targets = [device.allocate(160) for _ in program.outputs]
    executable.kept = targets
    return device, executable, go, [inputs[0][0].address, *(t.address for t in targets)], inputs


def test_a_short_plan_that_is_called_faster_than_it_runs_gets_a_second_graph() -> None:
    """Also where the call that finds the first one running comes to an end before another is made."""
    device, executable, go, addresses, inputs = ready_for_native_calls()
    first = go((), 0, *addresses)
    assert first is not None and go((), 0, *addresses) is None
    first.wait()
    for event in call(device, executable, inputs)[1][0]:
        event.wait()
    found = [go((), 0, *addresses) for _ in range(4)]
    assert None not in found and len({event.stream for event in found}) == 2


def test_a_wait_that_is_over_is_made_once_at_most() -> None:
    """Uploads of arguments that nobody has waited for."""
    device, executable, go, addresses, _ = ready_for_native_calls()
    upload = device.upload(np.ones(40, np.float32), executable.kept[0])
    go((upload,), 0, *addresses).wait()
    device.synchronize()
    before = counted(device, "wait")
    for _ in range(3):
        go((upload,), 0, *addresses).wait()
    assert counted(device, "wait") == before and upload.is_known_to_be_done


@pytest.mark.parametrize("early", [0.0, 1e9])
def test_short_work_has_one_end(early: float, always: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results of long work have moments of their own, which ordinary calls alone give."""
    monkeypatch.setattr(replay, "EARLY_US", early)
    device = device_on(FakeContext(), replay=True)
    executable, inputs = start(device, uneven())
    program = executable.plan.program
    go = executable.direct([DirectArgument(b) for b in (*program.inputs, *program.outputs)])
    for _ in range(3):
        _, ((first, last), *_) = call(device, executable, inputs)
    targets = [device.allocate(160) for _ in program.outputs]
    event = go((inputs[0][1],), 0, inputs[0][0].address, *(t.address for t in targets))
    assert (event is None) == (first is not last) == (early == 0.0)


@pytest.mark.parametrize(("microseconds", "one"), [(1.0, True), (150.0, True), (900.0, True), (5000.0, False)])
def test_moments_of_their_own_are_for_work_beside_which_the_host_s_is_little(
    microseconds: float, one: bool, always: None
) -> None:
    """Each takes the host some microseconds, and calls then go through Python."""
    plan = ready(uneven())
    program = plan.program
    tasks = tuple(replace(task, cost=microseconds / len(program.tasks)) for task in program.tasks)
    device = device_on(FakeContext(), replay=True)
    executable = device.prepare(replace(plan, program=replace(program, tasks=tasks)))
    inputs = []
    for b in program.inputs:
        memory = device.allocate(program.buffers[b].nbytes)
        inputs.append((memory, device.upload(np.zeros(program.buffers[b].nbytes, np.uint8), memory)))
    for _ in range(3):
        _, (events, *_) = call(device, executable, inputs)
    assert (len(set(map(id, events))) == 1) == one


def scaled() -> Any:
    """A chain of kernels of which one takes a number of the call's."""
    b = GraphBuilder("scaled")
    x = b.reshape(b.input(ArrayType((40,), np.dtype("f4"))), (8, 5))
    rows = b.map("divide", b.reduce("max", x, (0,)), b.cast(b.scalar(float), "f4"))  # zeros tell
    return b.finish([b.map("negative", b.reduce("max", b.map("add", x, rows), (1,)))])


@pytest.mark.parametrize(
    "numbers", [(3, 3, 3, 3, 3), (3, 3, 3, 4, 4, 3), (0.0, 0.0, 0.0, -0.0, 0.0), (1, 1, True, 1.0, 2)]
)
@pytest.mark.parametrize("native", [False, True])
def test_replays_have_the_numbers_of_their_call(numbers: Any, native: bool, always: None) -> None:
    """Also where those of the call before are equal to them and not the same."""
    graph = scaled()
    device = device_on(FakeContext(), replay=True)
    executable = device.prepare(ready(graph))
    program = executable.plan.program
    x = -np.ones(40, "f4")
    memory, target, (output,) = device.allocate(160), device.allocate(160), program.outputs
    event = device.upload(x, memory)
    go = executable.direct([DirectArgument(b) for b in (*program.inputs, output)])
    for number in numbers:
        direct = None
        if native:
            numbered = words_of_kernel_scalars([number], program.scalars)
            direct = go((event,), 0, memory.address, target.address, *numbered)
        memories = {program.inputs[0]: memory.address, output: target.address}
        places = [memories.get(b) for b in range(len(program.buffers))]
        arena = device.allocate(max(1, executable.plan.arena_bytes))
        done = direct or executable.run(places, arena.address, (number,), [(program.inputs[0], event)])[0]
        done.wait()
        got = np.empty(8, "f4")
        device.download(target, got)
        (wanted,) = interpret_graph(graph, [x], [number])
        assert got.tobytes() == wanted.tobytes(), number
