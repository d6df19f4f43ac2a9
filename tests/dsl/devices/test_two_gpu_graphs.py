"""Plans over two GPUs in memory as one graph: what they compute, whose memory they use, and what goes wrong."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl.array import devices
from kernelgraph.runtime.core.errors import KernelGraphError
from kernelgraph.runtime.devices.cuda import device as cuda
from kernelgraph.runtime.devices.cuda.graphs import replay
from tests.counts import examples
from tests.dsl.two_gpus_in_memory import Machine
from tests.runtime.cuda_fake import FakeBlas

X = np.arange(32, dtype=np.float32).reshape(8, 4)


@pytest.fixture(params=range(examples(2)))
def machine(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    monkeypatch.setattr(cuda, "compile_cubins", lambda kernels, cc: list(kernels))
    monkeypatch.setattr(devices, "_default", ("cpu", 0))  # for other tests, it is decided without them
    made = Machine(request.param)
    for gpu in made.devices:
        monkeypatch.setitem(devices._open, ("cuda", gpu.index), gpu)
    with kg.override(verify=True, tune=False):
        yield made
        kg.waitall()


def launches(machine: Machine) -> int:
    return sum(entry[0] == "launch_graph" for entry in machine.driver.log)


def branches(x: Any, y: Any, k: float) -> Any:
    a = np.sqrt(kg.place(x, "cuda:1") + k) * 2
    b = y @ y
    c = kg.place(b, "cuda:1") @ kg.place(y, "cuda:1")
    return a, np.tanh(b) - x, kg.place(a + c, "cuda:0") + y, x


def expected(x: Any, y: Any, k: float) -> Any:
    a, b = np.sqrt(x + np.float32(k)) * 2, y @ y
    return a, np.tanh(b) - x, a + b @ y + y, x


@pytest.mark.parametrize(("n", "kernel_copies"), [(8, True), (24, True), (24, False)])
def test_calls_in_flight_are_one_launch_each(
    machine: Machine, n: int, kernel_copies: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """n: 8 for products by kernels, more for cuBLAS's, whose arrays are fixed in a graph, as those of large copies."""
    monkeypatch.setattr(replay, "KERNEL_COPY_BYTES", (1 << 30) * kernel_copies)
    rng, kept, f = Random(n), [], kg.kernel_graph(branches, device="cuda:0")
    given = [np.random.default_rng(i).random((n, n)).astype(np.float32) / n for i in range(12)]
    x, y = (kg.asarray(v, device="cuda:0") for v in given[:2])
    for turn in range(10):
        k = 0.5 + turn % 3
        if turn % 5 == 4:  # pointers that were captured move
            y = kg.asarray(given[turn], device="cuda:0")
        if turn % 7 == 3:
            x = kg.asarray(given[turn], device=f"cuda:{turn % 2}")
        found = f(x, y, k)
        if rng.random() < 0.6:  # others are dropped while they are computed
            kept.append((found, expected(np.asarray(x), np.asarray(y), k)))
    for found, want in kept:
        assert [r.device for r in found] == ["cuda:1", "cuda:0", "cuda:0", "cuda:0"]
        for got, value in zip(found, want, strict=True):
            np.testing.assert_allclose(got, value, rtol=1e-5, atol=1e-6)
    assert launches(machine) >= 7  # all but the first for each way in which arrays lie


class OfContext:
    """An allocator of a GPU's memory."""

    def __init__(self, device: Any) -> None:
        self.device, self.held = device, dict[int, Any]()

    def allocate(self, nbytes: int, stream: int) -> int:
        memory = self.device.context.allocate(nbytes)
        self.held[memory.handle] = memory
        return int(memory.handle)

    def free(self, pointer: int, nbytes: int, stream: int) -> None:
        self.device.context.release(self.held.pop(pointer))


@pytest.mark.parametrize("comes_first", [True, False])
def test_memory_that_kernels_of_another_gpu_may_not_reach(machine: Machine, comes_first: bool) -> None:
    """An allocator that comes first keeps plans out of graphs; one that comes after them is refused."""
    x, y = (np.random.default_rng(i).random((8, 8)).astype(np.float32) for i in range(2))
    f = kg.kernel_graph(branches, device="cuda:0")
    allocator = OfContext(machine.devices[1])
    if comes_first:
        kg.use_allocator(allocator, "cuda:1")
    for turn in range(8):
        for got, value in zip(f(x, y, 0.5), expected(x, y, 0.5), strict=True):
            np.testing.assert_allclose(got, value, rtol=1e-5, atol=1e-6)
        if turn == 5 and not comes_first:
            with pytest.raises(KernelGraphError, match=r"GPUs reach the memory of cuda:1.*use_allocator before"):
                kg.use_allocator(allocator, "cuda:1")
    assert bool(allocator.held) == comes_first and bool(launches(machine)) != comes_first


@pytest.mark.parametrize("way", ["copies", "reads", "root"])
def test_a_body_on_a_mesh_is_one_launch(machine: Machine, way: str) -> None:
    machine.reads_peers = way != "copies"

    def body(x: Any) -> Any:
        every = kg.all_gather(x)
        return every[:4] * 2 + kg.all_reduce(every[4:] + x, "mean"), kg.all_reduce(x)

    with kg.override(collectives=way):
        program, x = (
            kg.kernel_graph(body, mesh=(mesh := kg.Mesh(("cuda:0", "cuda:1"))), out_axes=None),
            kg.shard(X, mesh),
        )
        found = [program(x) for _ in range(6)]
    want = X[:4] * 2 + X[4:] + (X[:4] + X[4:]) / 2, X[:4] + X[4:]
    for result in found:
        for got, value in zip(result, want, strict=True):
            np.testing.assert_allclose(got, value, rtol=1e-6)
            assert [part.device for part in got.parts] == ["cuda:0", "cuda:1"]
    assert launches(machine) == 5


@pytest.mark.parametrize("refused", ["", "update_kernel", "launch_graph", "instantiate", "wait"])
def test_one_task_on_each_device_is_one_launch_there(machine: Machine, refused: str) -> None:
    """All launches are made by one native call. A call may follow others, whose results are dropped."""
    machine.reads_peers = True
    rng, mesh = Random(1), kg.Mesh(("cuda:0", "cuda:1"))
    with kg.override(collectives="reads"):
        program = kg.kernel_graph(lambda x: kg.all_reduce(x * 0.5) + 1, mesh=mesh, in_axes=None, out_axes=None)
        x = kg.replicate(X, mesh)
        state, want, kept = x, X, []
        for turn in range(12):
            if refused and turn == 6:
                machine.driver.refuse[refused] = 1
            with warnings.catch_warnings():
                warnings.simplefilter("error" if turn != 6 else "ignore")
                state = program(state if turn % 4 else x)
            want = (want if turn % 4 else X) + 1
            if rng.random() < 0.5:
                kept.append((state, want))
            if rng.random() < 0.3:
                kg.waitall()
    for found, value in kept:
        for part in found.parts:
            np.testing.assert_array_equal(part, value)
    launched = [entry[1] for entry in machine.driver.log if entry[0] == "launch_graph"]
    assert len({*launched}) == 2 and (refused or len(launched) == 2 * 11)


@pytest.mark.parametrize("kernel_copies", [True, False])
def test_copies_to_and_fro_are_one_graph(
    machine: Machine, kernel_copies: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each writes a result on the other GPU, and neither waits for anything."""
    monkeypatch.setattr(replay, "KERNEL_COPY_BYTES", (1 << 30) * kernel_copies)
    f = kg.kernel_graph(lambda x, y: (kg.place(x, "cuda:1"), kg.place(y, "cuda:0")), device=("cuda:0", "cuda:1"))
    for turn in range(6):
        x, y = (kg.asarray(X + turn + i, device=f"cuda:{i}") for i in range(2))
        for i, found in enumerate(f(x, y)):
            np.testing.assert_array_equal(found, X + turn + i)
    assert launches(machine) == 5


@pytest.mark.parametrize("way", ["reads", "copies"])
def test_trimming_a_gpu_lets_graphs_go_that_have_no_memory_of_their_own(machine: Machine, way: str) -> None:
    machine.reads_peers = True
    with kg.override(collectives=way):
        mesh = kg.Mesh(("cuda:0", "cuda:1"))
        f, x = kg.kernel_graph(lambda x: kg.all_reduce(x * 2), mesh=mesh, out_axes=None), kg.shard(X, mesh)
        for _ in range(2):
            for _ in range(4):
                for part in f(x).parts:
                    np.testing.assert_array_equal(part, 2 * (X[:4] + X[4:]))
            assert machine.driver.graphs
            kg.waitall()
            machine.devices[1].trim()
            assert not machine.driver.graphs


@pytest.mark.parametrize("apart", [True, False])
def test_a_mesh_of_one_gpu_is_replayed_in_memory_of_its_own(
    machine: Machine, apart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the plans of a rank are. apart: results have moments of their own, which no native call launches."""
    monkeypatch.setattr(replay, "EARLY_US", 0.0 if apart else 1e9)

    def chain(x: Any) -> Any:
        value = x
        for k in range(4):
            value = np.exp(np.negative(value + x).max(axis=k % 2, keepdims=True)) + x
        return x.max(axis=0), value

    f, mesh = kg.kernel_graph(chain, mesh=(mesh := kg.Mesh(("cuda:1",))), out_axes=None), mesh
    for turn in range(6):
        y = X / 32 + turn % 3
        for got, want in zip(f(kg.shard(y, mesh)), chain(y), strict=True):
            np.testing.assert_allclose(got.parts[0], want, rtol=1e-5)
    assert launches(machine) == 5


def iterate(machine: Machine, steps: int, kept: list[Any] | None = None) -> int:
    """Weights that each step makes anew, checked; how many graphs were captured. kept: the weights of all steps."""
    n, rng = 70, np.random.default_rng(0)
    w, x = ((rng.random((n, n)) / n).astype(np.float32) for _ in range(2))

    def step(w: Any, x: Any) -> Any:
        return w - kg.all_reduce(x @ w)

    with kg.override(collectives="copies"):
        mesh = kg.Mesh(("cuda:0", "cuda:1"))
        program, state, y = (
            kg.kernel_graph(step, mesh=mesh, in_axes=None, out_axes=None),
            kg.replicate(w, mesh),
            kg.replicate(x, mesh),
        )
        for turn in range(steps):
            state = program(state, y)
            w = w - 2 * (x @ w)
            if kept is not None:
                kept.append(state)
            elif turn % 2:  # memory of calls before comes back
                kg.waitall()
    for part in state.parts:
        np.testing.assert_allclose(part, w, rtol=1e-3, atol=1e-5)
    return sum(entry[0] == "begin_capture" for entry in machine.driver.log)


TOLD, ASKED = 6, 2  # captures that look for the addresses of two products' kernels: where they tell, and where not


@pytest.mark.parametrize("told", [True, False])
def test_weights_that_move_between_few_places_have_a_graph_for_each(
    machine: Machine, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One graph for all of them where captures tell where a product's kernels have their addresses."""
    monkeypatch.setattr(FakeBlas, "movable", told)
    monkeypatch.setattr(replay, "SLOT_BYTES", 1 << 15)
    captures = iterate(machine, 12)
    assert launches(machine) == 11 and (captures == TOLD + 1 if told else ASKED < captures <= ASKED + 6)


@pytest.mark.parametrize(("told", "slots"), [(True, False), (False, True), (False, False)])
def test_weights_that_never_come_back_have_slots_or_no_graph(
    machine: Machine, told: bool, slots: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeBlas, "movable", told)
    for name, value in (("SLOT_BYTES", 1 << (17 if slots else 15)), ("GRAPHS_OF_LANE", 3)):
        monkeypatch.setattr(replay, name, value)
    monkeypatch.setattr(replay, "LIBRARY_US", 0)  # a part's product alone has no graph of its own
    captures = iterate(machine, 9, [])
    wanted = (8, TOLD + 1) if told else (8, ASKED + 2) if slots else (3, ASKED + 3)
    assert (launches(machine), captures) == wanted


def test_gpus_that_do_not_reach_each_other_have_no_graph(machine: Machine) -> None:
    machine.contexts[1].reachable = False
    f = kg.kernel_graph(branches, device="cuda:0")
    for _ in range(3):
        np.testing.assert_allclose(f(X[:, :4].T @ X, X.T @ X, 0.5)[0], np.sqrt(X.T @ X + 0.5) * 2, rtol=1e-6)
    assert not launches(machine)


@pytest.mark.parametrize("call", ["begin_capture", "record", "instantiate", "update_kernel", "launch_graph"])
def test_what_goes_wrong_is_said_and_done_without(machine: Machine, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    warned: list[str] = []
    monkeypatch.setattr("warnings.warn_explicit", lambda text, *place: warned.append(str(text)))
    f, y = kg.kernel_graph(branches, device="cuda:0"), X.T @ X
    given = [kg.asarray(v, device="cuda:0") for v in (X[:4], y)]
    for turn in range(6):
        if turn == (2 if call == "update_kernel" else 1):
            machine.driver.refuse[call] = 999
        for got, value in zip(f(*given, 0.5 + turn), expected(X[:4], y, 0.5 + turn), strict=True):
            np.testing.assert_allclose(got, value, rtol=1e-5)
    assert len(warned) == 1 and "no replay as a graph: LaunchError" in warned[0]
    assert not machine.driver.capturing


def test_a_failure_before_the_call_is_that_of_its_results(machine: Machine) -> None:
    f, y = kg.kernel_graph(branches, device="cuda:0"), kg.asarray(X.T @ X, device="cuda:0")
    for turn in range(4):
        x = kg.asarray(X[:4], device="cuda:0") + 1
        if turn == 2:
            assert x._event is not None
            x._event.error = ValueError("lost")
        a, b, c, _ = f(x, y, 0.5)
        if turn == 2:
            for result in (a, b, c):
                with pytest.raises(ValueError, match="lost"):
                    result.numpy()
        else:
            np.testing.assert_allclose(a, np.sqrt(X[:4] + 1.5) * 2, rtol=1e-6)
    assert launches(machine) >= 2


@pytest.mark.parametrize("seed", range(examples(4)))
def test_random_programs_are_numpys(machine: Machine, seed: int) -> None:
    rng = Random(seed)
    steps = [(rng.random(), rng.randrange(99), rng.randrange(99), rng.randrange(2)) for _ in range(10)]

    def program(x: Any, y: Any, place: Any = kg.place) -> Any:
        values = [x, y]
        for what, i, j, device in steps:
            a, b = values[i % len(values)], values[j % len(values)]
            if what < 0.5:
                a = place(a, f"cuda:{device}")
            values.append(np.minimum(a, b) if what < 0.6 else a * b if what < 0.8 else a - b.sum(axis=0))
        return values[-3:]

    f, kept = kg.kernel_graph(lambda x, y: program(x, y), device="cuda:0"), []
    x = kg.asarray(X[:4] / 32, device="cuda:0")
    for turn in range(8):
        y = kg.asarray(X[4:] / 32 - turn, device=f"cuda:{turn % 2}")
        kept.append((f(x, y), program(X[:4] / 32, X[4:] / 32 - turn, lambda a, _: a)))
    for found, want in kept:
        for got, value in zip(found, want, strict=True):
            np.testing.assert_allclose(got, value, rtol=1e-5, atol=1e-5)
