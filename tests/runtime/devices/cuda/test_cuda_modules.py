"""Kernels of a GPU in memory are unloaded once nothing needs them: never while a launch or a graph may use them."""

from __future__ import annotations

import gc
import random
import threading
import time
from collections import Counter, deque
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.compiler import pipeline
from kernelgraph.compiler.core.types import ArrayType
from kernelgraph.compiler.graph.builder import GraphBuilder
from kernelgraph.runtime.core.errors import CompileError
from kernelgraph.runtime.core.settings import override
from kernelgraph.runtime.devices.cuda import device as cuda
from kernelgraph.runtime.devices.cuda.compile import compile as cuda_compile
from kernelgraph.runtime.devices.cuda.modules import modules as cuda_modules
from kernelgraph.runtime.devices.cuda.modules.modules import LoadedGpuModules
from kernelgraph.runtime.program.program import Kernel
from kernelgraph.runtime.schedule.cost_model import MACHINES
from kernelgraph.runtime.schedule.schedule import schedule
from tests.compiler.loop_programs import either, shrunk
from tests.runtime.cuda_calls import branches, call, device_on, forms, ready
from tests.runtime.cuda_fake import FakeContext


@pytest.fixture(autouse=True)
def _text_as_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake GPU runs text: nothing is compiled."""
    monkeypatch.setattr(cuda, "compile_cubins", lambda kernels, cc: list(kernels))


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """No kernel stays loaded that nobody holds."""
    monkeypatch.setattr(cuda_modules, "RECENT", 0)


def different(i: int, kernels: int = 2) -> Any:
    """A graph that shares no kernel with that of another number."""
    b = GraphBuilder(f"different{i}")
    x = b.reshape(b.input(ArrayType((12,), np.dtype("f4"))), (4, 3))
    for k in range(kernels):
        total = b.map("add", b.reduce("sum", b.map("multiply", x, np.float32(i + 2)), (k % 2,)), np.float32(i))
        x = b.map("add", x, b.reshape(total, (1, 3) if k % 2 == 0 else (4, 1)))
    return b.finish([x])


def begin(device: Any, i: int, turns: int = 1) -> list[Any]:
    """Calls of a new executable, which nobody keeps, and which may still run; what the calls use."""
    executable = device.prepare(ready(different(i)))
    memory = device.allocate(48)
    event = device.upload(np.arange(12, dtype="f4"), memory)
    return [call(device, executable, [(memory, event)]) for _ in range(turns)]


def finish(calls: list[Any]) -> None:
    for _, (events, *_) in calls:
        for event in events:
            event.wait()


def unloaded(device: Any) -> list[int]:
    return [entry[1] for entry in device.context.driver.log if entry[0] == "unload"]


@pytest.mark.parametrize("replay", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_what_nothing_needs_is_unloaded_after_it_has_run(
    forgetful: None, monkeypatch: pytest.MonkeyPatch, replay: bool, seed: int
) -> None:
    """The GPU in memory refuses to unload what a launch that is to come, or a graph, has."""
    monkeypatch.setattr(cuda, "is_graph_replay_worthwhile", lambda plan, runners: True)
    device = device_on(FakeContext(seed), replay=replay)
    most, rng = 0, random.Random(seed)
    running: list[Any] = []
    for i in range(9):
        running.append(begin(device, i, 3 if replay else 1))
        if rng.random() < 0.5:
            finish(running.pop(rng.randrange(len(running))))
        if not i % 3:
            device.synchronize()
        most = max(most, device.kernels)
    assert most < 18 and device.kernels == len(device.context.kernels)
    del running
    gc.collect()
    device.trim()
    assert device.kernels == 0 and not device.context.kernels and not device.context.libraries
    assert len(unloaded(device)) == len(set(unloaded(device))) == 18


def test_nothing_is_unloaded_while_its_work_runs(forgetful: None) -> None:
    device = device_on(FakeContext())
    calls = begin(device, 0)
    gc.collect()
    begin(device, 1)
    assert device.kernels > 2 and not unloaded(device)  # nobody has let the GPU do anything
    finish(calls)
    device.synchronize()
    begin(device, 2)
    assert unloaded(device)


def test_recent_kernels_stay_until_memory_is_asked_back(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: Counter[Kernel] = Counter()
    monkeypatch.setattr(cuda, "compile_cubins", lambda kernels, cc: asked.update(kernels) or list(kernels))
    device = device_on(FakeContext())
    for _ in range(3):
        finish(begin(device, 0))
    assert set(asked.values()) == {1} and not unloaded(device)
    device.trim()
    assert device.kernels == 0
    finish(begin(device, 0))
    assert set(asked.values()) == {2} and device.kernels == len(asked)


def test_an_executable_keeps_its_kernels(forgetful: None) -> None:
    device = device_on(FakeContext())
    executable = device.prepare(ready(different(0)))
    own = device.kernels
    for i in range(1, 5):
        finish(begin(device, i))
    device.trim()
    assert device.kernels == own == len(set(device.context.kernels.values()))
    memory = device.allocate(48)
    finish([call(device, executable, [(memory, device.upload(np.ones(12, "f4"), memory))])])


def whole(device: Any) -> bool:
    """Whether all kernels of graphs, and of what waits, are loaded."""
    used = device.context.driver.used() - {0}
    return bool(used) and used <= device.context.kernels.keys()


@pytest.mark.parametrize("form", range(4))
def test_a_replay_keeps_the_kernels_of_its_graphs(forgetful: None, monkeypatch: pytest.MonkeyPatch, form: int) -> None:
    """Those that copy, and that write tables of addresses, too."""
    monkeypatch.setattr(cuda, "is_graph_replay_worthwhile", lambda plan, runners: True)
    device = device_on(FakeContext(), replay=True)
    program = forms(pipeline.compile_graph_to_program(branches(3, 3), "cuda"))[form]
    executable = device.prepare(schedule(program, "max", machine=MACHINES["cuda"]))
    for turn in range(4):  # arrays in other places: they are copied into slots
        inputs = [device.allocate(128) for _ in executable.plan.program.inputs]
        events = [device.upload(np.eye(4), memory) for memory in inputs]
        finish([call(device, executable, list(zip(inputs, events, strict=True)))])
        device.modules.trim()
        assert not turn or whole(device)
    assert not executable.notes


@pytest.mark.parametrize("function", [shrunk, either])
def test_a_loop_keeps_the_kernels_of_its_graphs(forgetful: None, function: Any) -> None:
    device, u = device_on(FakeContext()), np.arange(6.0)
    executable = device.prepare(ready(kg.kernel_graph(device="fake")(lambda u: function(u, 3)).graph(u)))
    inputs = [device.allocate(1 << 14) for _ in executable.plan.program.inputs]
    given = [(memory, device.upload(np.zeros(1 << 11), memory)) for memory in inputs]
    for _ in range(2):
        finish([call(device, executable, given)])
        device.trim()
        assert whole(device)


def test_what_the_driver_does_not_unload_now_it_does_later(forgetful: None) -> None:
    device = device_on(FakeContext())
    finish(begin(device, 0))
    had = device.kernels
    device.context.driver.refuse["unload"] = 900
    device.trim()
    assert device.kernels == had == len(device.context.libraries)
    device.trim()
    assert device.kernels == 0


def test_a_kernel_that_cannot_be_loaded_leaves_the_others(forgetful: None) -> None:
    device = device_on(FakeContext())
    load = device.context.kernel

    def broken(code: Any, name: str) -> Any:
        raise CompileError("no", name)

    device.context.kernel = broken
    with pytest.raises(CompileError):
        begin(device, 0)
    device.context.kernel = load
    finish(begin(device, 0))
    device.trim()
    assert device.kernels == 0 and not device.context.libraries


class Yielding(deque[Any]):
    """Lets other threads go on as soon as something is noted."""

    def append(self, x: Any) -> None:
        super().append(x)
        time.sleep(0)


@pytest.mark.parametrize("noted", [deque, Yielding])
def test_threads_load_and_let_go(noted: type[deque[Any]]) -> None:
    """Each finds its kernel loaded for as long as it holds it; each library is unloaded once."""
    context = FakeContext()
    modules = LoadedGpuModules(context, list, tuple)
    modules._dropped = noted()
    kernels = [Kernel(f"k{i}", "cuda", f"text {i}", ()) for i in range(12)]
    wrong: list[Any] = []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(400):
            some = rng.sample(kernels, 3)
            held = modules.load(some)
            if rng.random() < 0.2:
                modules.trim()
            for kernel, loaded in zip(some, held, strict=True):
                if context.kernels.get(loaded.function) is not kernel:
                    wrong.append(kernel)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    modules.trim()
    gone = [entry[1] for entry in context.driver.log if entry[0] == "unload"]
    assert not wrong and modules.count == 0 and not context.libraries and len(gone) == len(set(gone)) > 12


def test_machine_code_stays_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is loaded again is not compiled again, without a disk cache too; not more than so many bytes stay."""
    compiled: list[str] = []
    monkeypatch.setattr(cuda_compile, "_recent", type(cuda_compile._recent)())
    monkeypatch.setattr(cuda_compile, "compile_cubin", lambda k, cc: compiled.append(k.name) or k.name.encode() * 10)
    kernels = [Kernel(f"k{i}", "cuda", f"text {i}", ()) for i in range(4)]
    with override(cache_dir=""):
        for _ in range(3):
            assert cuda_compile.compile_cubins(kernels[:2], (9, 0)) == [b"k0" * 10, b"k1" * 10]
        assert sorted(compiled) == ["k0", "k1"]
        monkeypatch.setattr(cuda_compile, "RECENT_BYTES", 45)
        cuda_compile.compile_cubins(kernels[1:3], (9, 0))
        assert sorted(cuda_compile._recent.values()) == [b"k1" * 10, b"k2" * 10]
