"""The device on a GPU: plans mean what graphs mean, on streams and replayed; products, copies, concurrency, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from kernelgraph.compiler import pipeline
from kernelgraph.compiler.core.types import ArrayType
from kernelgraph.compiler.graph.builder import GraphBuilder
from kernelgraph.compiler.graph.interpret import interpret_graph
from kernelgraph.runtime.core.settings import override
from kernelgraph.runtime.devices.cuda.graphs.replay import GraphReplay
from kernelgraph.runtime.program.program import Buffer, Int, Kernel, Pointer, Program, Region, Scalar, Task
from kernelgraph.runtime.schedule.batching import pack_small_launches, schedule_matmul_batches
from kernelgraph.runtime.schedule.cost_model import MACHINES
from kernelgraph.runtime.schedule.schedule import schedule
from tests.compiler.programs import agree, graphs
from tests.gpu.gpu_runs import Call, notes_beside_times, plan_of

some = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@some
@given(case=graphs())
def test_plans_mean_what_graphs_mean(device: Any, case: Any) -> None:
    graph, arrays = case
    executable = device.prepare(plan_of(graph, "max"))
    for turn in range(3):  # the later ones may be replayed as a graph
        inputs = [(a[::-1] if turn == 1 and a.ndim else a).copy(order="C") for a in arrays]
        agree(graph, inputs, Call(device, executable, inputs).results(interpret_graph(graph, inputs)))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "complex64", "complex128", "int32"])
@pytest.mark.parametrize(
    ("left", "right"),
    [((5, 7), (7, 3)), ((1, 7), (7, 1)), ((4, 5, 7), (4, 7, 3)), ((4, 5, 7), (7, 3)), ((5, 7), (4, 7, 3)),
     ((2, 1, 5, 7), (3, 7, 3)), ((64, 1), (1, 64)), ((256, 256), (256, 256)), ((3, 0), (0, 4))],
)  # fmt: skip
@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True), (True, True)])
def test_matmul(device: Any, dtype: str, left: Any, right: Any, transposed: Any) -> None:
    rng = np.random.default_rng(0)
    arrays, b, values = [], GraphBuilder("product"), []
    for shape, flip in zip((left, right), transposed, strict=True):
        stored = (*shape[:-2], shape[-1], shape[-2]) if flip else shape
        real = rng.normal(size=stored) * (8 if dtype == "int32" else 1)
        a = (real + 1j * rng.normal(size=stored) if dtype[0] == "c" else real).astype(dtype)
        arrays.append(a)
        value = b.input(ArrayType(stored, a.dtype))
        order = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
        values.append(b.permute(value, order) if flip else value)
    graph = b.finish([b.matmul(*values)])
    wanted = interpret_graph(graph, arrays)
    (got,) = Call(device, device.prepare(plan_of(graph)), arrays).results(wanted)
    if dtype == "int32":
        np.testing.assert_array_equal(got, wanted[0])
    else:
        eps = np.finfo(dtype).eps
        wide = arrays[0].astype("c16" if dtype[0] == "c" else "f8")
        scale = float(np.abs(wide).max(initial=1)) ** 2 * max(1, left[-1])
        np.testing.assert_allclose(got, wanted[0], rtol=8 * eps, atol=4 * eps * scale)


def branches(count: int = 8, depth: int = 4, n: int = 256) -> Any:
    """Independent chains of (matmul, relu)."""
    b = GraphBuilder("branches")
    kind = ArrayType((n, n), np.dtype("f4"))
    x, weights = b.input(kind), [b.input(kind) for _ in range(count)]
    found = []
    for w in weights:
        value = x
        for _ in range(depth):
            value = b.map("maximum", b.matmul(value, w), 0)
        found.append(value)
    return b.finish(found)


def test_replay_with_fresh_pointers(device: Any) -> None:
    graph = branches(4, 3, 64)
    executable = device.prepare(plan_of(graph, 8))
    rng = np.random.default_rng(0)
    kept = []
    for turn in range(12):  # the third half of the calls frees nothing, so their addresses differ
        arrays = [rng.normal(size=(64, 64)).astype("f4") / 8 for _ in range(5)]
        call = Call(device, executable, arrays)
        kept.append((call, interpret_graph(graph, arrays)))
        if turn < 8:
            call, wanted = kept.pop()
            for got, result in zip(call.results(wanted), wanted, strict=True):
                np.testing.assert_allclose(got, result, rtol=1e-3, atol=1e-4)
    for call, wanted in kept:
        for got, result in zip(call.results(wanted), wanted, strict=True):
            np.testing.assert_allclose(got, result, rtol=1e-3, atol=1e-4)
    assert notes_beside_times(executable) == []
    assert executable._replay is not None and executable._replay.instances


@pytest.mark.parametrize("form", range(4))
@pytest.mark.parametrize("way", ["streams", "replay"])
def test_batches_and_packs(device: Any, form: int, way: str) -> None:
    graph = branches(5, 3, 48)
    program, machine = pipeline.compile_graph_to_program(graph, "cuda"), MACHINES["cuda"]
    if form % 2:
        program = schedule_matmul_batches(program, machine)
    if form > 1:
        program = pack_small_launches(program, machine)
    executable = device.prepare(schedule(program, "max", machine=machine))
    executable._replay = GraphReplay(executable) if way == "replay" else None
    kept = []
    for turn in range(6):
        arrays = [np.random.default_rng(turn + i).normal(size=(48, 48)).astype("f4") / 6 for i in range(6)]
        if turn > 3:
            arrays[0][3, 5] = np.nan
        kept.append((Call(device, executable, arrays), interpret_graph(graph, arrays)))
    for call, wanted in kept:
        for got, result in zip(call.results(wanted), wanted, strict=True):
            np.testing.assert_allclose(got, result, rtol=1e-3, atol=1e-4)
    assert notes_beside_times(executable) == []


@pytest.mark.parametrize("way", ["streams", "replay"])
def test_packed_launches_with_numbers(device: Any, way: str) -> None:
    """out[i] = x[i] * number[i] for rows that start inside of their buffers."""
    text = "THREADS = 32\ndef scale(a0, a1, n0, s0):\n"
    text += "    i = bid_x() * bdim_x() + tid_x()\n    if i < n0:\n"
    text += "        store_f32_1x1(a1, i32(i), i32(0), i32(1), load_f32_1x1(a0, i32(i), i32(0), i32(1)) * s0)\n"
    kernel = Kernel("scale", "cuda", text, ("ptr", "ptr", "i64", "float32"))
    tasks = []
    for i in range(60):
        reads, writes = (Region(b, 400 * i, (100,), (4,), 4, "float32") for b in (0, 1))
        arguments = (Pointer(0, 400 * i), Pointer(1, 400 * i), Int(90 + i % 11), Scalar(i, "float32"))
        tasks.append(Task("scale", kernel, arguments, (reads,), (writes,), grid=(4, 1, 1), block=(32, 1, 1)))
    buffers = (Buffer(24000, "input"), Buffer(24000, "output"))
    program = pack_small_launches(
        Program(buffers, tuple(tasks), (0,), (1,), ("float32",) * 60, "cuda"), MACHINES["cuda"]
    )
    assert len(program.tasks) == 1
    executable = device.prepare(schedule(program, 1, machine=MACHINES["cuda"]), way)
    x = np.arange(6000, dtype="f4").reshape(60, 100)
    for turn in range(5):
        source, target = device.allocate(24000), device.allocate(24000)
        device.upload(np.zeros_like(x), target).wait()
        event = device.upload(x, source)
        numbers = tuple(float(i + turn) for i in range(60))
        executable.run([source.address, target.address], None, numbers, [(0, event)])[0].wait()
        got = np.empty_like(x)
        device.download(target, got)
        wanted = x * np.array(numbers, "f4")[:, None]
        for i in range(60):
            wanted[i, 90 + i % 11 :] = 0
        np.testing.assert_array_equal(got, wanted)
    assert notes_beside_times(executable) == [] and (way == "streams" or executable._replay.instances)


def test_a_launch_alone_becomes_a_graph(device: Any) -> None:
    """Hundreds of calls of one kernel, which wait for nothing, with other memory each."""
    b = GraphBuilder("double")
    x = b.input(ArrayType((1000,), np.dtype("f4")))
    executable = device.prepare(plan_of(b.finish([b.map("add", x, x)])))
    given = [np.arange(1000, dtype="f4") + turn for turn in range(300)]
    sources, targets = ([device.allocate(4000) for _ in given] for _ in range(2))
    for a, memory in zip(given, sources, strict=True):
        device.upload(a, memory).wait()
    pairs = zip(sources, targets, strict=True)
    events = [executable.run([m.address for m in pair], None, (), ())[0] for pair in pairs]
    for event, a, memory in zip(events, given, targets, strict=True):
        event.wait()
        got = np.empty_like(a)
        device.download(memory, got)
        np.testing.assert_array_equal(got, a + a)


def test_timed_runs(device: Any) -> None:
    graph = branches(4, 3, 64)
    arrays = [np.random.default_rng(i).normal(size=(64, 64)).astype("f4") / 8 for i in range(5)]
    for way in device.ways(plan_of(graph, 4)):
        executable = device.prepare(plan_of(graph, 4), way)
        found = []

        class Timed:
            plan = executable.plan

            def run(self, *given: Any, executable: Any = executable, found: Any = found) -> Any:
                found.append(executable.run_timed(*given))
                return found[-1][0]

        for _ in range(6):
            Call(device, Timed(), arrays).results(interpret_graph(graph, arrays))
        device.synchronize()
        times = [timing.query() for _, timing in found]
        assert all(5 < us < 1e6 for us in times[3:]), (way, times)


def test_replay_of_kernels_only(device: Any) -> None:
    b = GraphBuilder("sums")
    x = b.input(ArrayType((300, 200), np.dtype("f4")))
    total = b.reduce("sum", x, (0,))
    other = b.reduce("max", x, (1,))
    roots = b.map("exp", b.reduce("sum", total, (0,))), b.reduce("sum", other, (0,)), b.reduce("min", x, (0, 1))
    graph = b.finish(roots)
    executable = device.prepare(plan_of(graph, "max"))
    for turn in range(5):
        a = np.random.default_rng(turn).normal(size=(300, 200)).astype("f4") * 1e-2
        wanted = interpret_graph(graph, [a])
        for got, result in zip(Call(device, executable, [a]).results(wanted), wanted, strict=True):
            np.testing.assert_allclose(got, result, rtol=1e-4, atol=1e-5)
    assert notes_beside_times(executable) == []


def test_one_step_at_a_time_and_chaos(device: Any) -> None:
    graph = branches(3, 2, 32)
    arrays = [np.random.default_rng(0).normal(size=(32, 32)).astype("f4") for _ in range(4)]
    wanted = interpret_graph(graph, arrays)
    executable = device.prepare(plan_of(graph, "max"))
    for mode in ("sync", "chaos", "async"):
        with override(engine=mode):
            for got, result in zip(Call(device, executable, arrays).results(wanted), wanted, strict=True):
                np.testing.assert_allclose(got, result, rtol=1e-3, atol=1e-3)


def test_calls_return_before_the_work_is_done(device: Any) -> None:
    b = GraphBuilder("long")
    x = b.input(ArrayType((1 << 26,), np.dtype("f4")))
    value = x
    for _ in range(40):
        value = b.map("sin", value)
    graph = b.finish([value])
    executable = device.prepare(plan_of(graph))
    a = np.zeros(1 << 26, "f4")
    first = Call(device, executable, [a])
    first.events[0].wait()
    before = 0
    for _ in range(8):  # others may use the machine between two lines
        call = Call(device, executable, [a])
        before += not call.events[0].query()
        call.events[0].wait()
        assert call.events[0].query()
    assert before


@pytest.mark.parametrize("nbytes", [0, 1, 1000, 262145, (20 << 20) + 5])
def test_transfers(device: Any, nbytes: int) -> None:
    host = np.random.default_rng(0).integers(0, 256, nbytes).astype(np.uint8)
    wanted = host.copy()
    memory = device.allocate(nbytes)
    event = device.upload(host, memory)
    host[...] = 0
    event.wait()
    got = np.empty_like(wanted)
    device.download(memory, got)
    np.testing.assert_array_equal(got, wanted)


def test_out_of_memory_leaves_the_device_usable(device: Any) -> None:
    from kernelgraph.runtime.core.errors import OutOfMemory

    with pytest.raises(OutOfMemory):
        device.allocate(1 << 50)
    assert device.allocate(1000).nbytes == 1000
