"""Programs on two GPUs in memory: what a call uses is its own until it is done, and lies where it runs."""

from __future__ import annotations

import ctypes
import functools
import random
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl.array import devices
from kernelgraph.dsl.interop import fast_import
from kernelgraph.dsl.stores import updaters
from kernelgraph.runtime.devices.cuda import device as cuda
from kernelgraph.runtime.devices.cuda.graphs import one_launch
from tests.counts import examples
from tests.dsl.gpu_in_memory import Lender
from tests.dsl.torch_in_memory import Tensor, tensor_of, torch_with
from tests.dsl.two_gpus_in_memory import Machine

X = np.arange(32, dtype=np.float32).reshape(8, 4)
SUM = X[:4] + X[4:]


@pytest.fixture(params=range(examples(3)))
def machine(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """The devices `cuda:0` and `cuda:1`, for a while."""
    monkeypatch.setattr(cuda, "compile_cubins", lambda kernels, cc: list(kernels))
    monkeypatch.setattr(devices, "_default", ("cpu", 0))  # for other tests, it is decided without them
    made = Machine(request.param)
    sums = functools.cache(updaters._program_of_sum.__wrapped__)
    monkeypatch.setattr(updaters, "_program_of_sum", sums)  # those of other tests are of other GPUs
    for gpu in made.devices:
        monkeypatch.setitem(devices._open, ("cuda", gpu.index), gpu)
    with kg.override(tune=False):
        yield made
        kg.waitall()


def of_arguments(x: Any) -> Any:
    """Devices read each other's arguments."""
    return kg.all_reduce(x)


def of_results(x: Any) -> Any:
    return kg.all_reduce(x + 1) - 2


def of_both(x: Any) -> Any:
    every = kg.all_gather(x)
    return every[:4] + kg.all_reduce(every[4:], "mean")


@pytest.mark.parametrize("way", ["copies", "reads"])
@pytest.mark.parametrize("body", [of_arguments, of_results, of_both])
def test_calls_in_flight_keep_to_their_own_memory(machine: Machine, body: Any, way: str) -> None:
    machine.reads_peers = way == "reads"
    mesh, rng = kg.Mesh(("cuda:0", "cuda:1")), random.Random(1)
    program = kg.kernel_graph(body, mesh=mesh, in_axes=0, out_axes=None)
    x, kept = kg.shard(X, mesh), []
    with kg.override(collectives=way):
        for _ in range(20):
            result = program(x)  # most are dropped while they are computed
            if rng.random() < 0.3:
                kept.append(result)
    assert kept
    for result in kept:
        for part in result.parts:
            np.testing.assert_array_equal(part.numpy(), SUM)


@pytest.fixture
def torch(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """PyTorch, which works on the default stream of the current GPU, and hands over that GPU's tensors alone."""

    class Given(Tensor):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self.index = machine.current_index

        def __dlpack_device__(self) -> tuple[int, int]:
            return (2, self.index)

        def __dlpack__(self, **options: Any) -> Any:
            if machine.current_index != self.index:
                raise BufferError("Can't export tensors on a different CUDA device index")
            return super().__dlpack__(**options)

    Given.__module__ = "torch"
    monkeypatch.setattr(one_launch, "PLAIN", 1)
    made = Given.library = torch_with(Lender(machine.first, 1), Given)
    made.cuda.device_count = lambda: 2
    made.cuda.current_device = lambda: machine.current_index
    monkeypatch.setitem(sys.modules, "torch", made)
    yield made
    fast_import.VIEWS.pop(Given, None)


def test_a_tensor_is_read_whichever_gpu_is_current(machine: Machine, torch: Any) -> None:
    double = {index: kg.kernel_graph(lambda x: x * 2, device=f"cuda:{index}") for index in (0, 1)}
    for turn in range(12):
        machine.set_current(turn % 2)
        tensor = tensor_of(torch, X + turn)
        machine.set_current(turn // 2 % 2)
        found = double[tensor.index](tensor)
        assert found.device == f"cuda:{tensor.index}"
        np.testing.assert_array_equal(found, (X + turn) * 2)


def test_calls_do_not_ask_which_gpu_is_current(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_launch, "PLAIN", 1)
    double = {index: kg.kernel_graph(lambda x: x * 2, device=f"cuda:{index}") for index in (0, 1)}
    given = {index: kg.asarray(X + index, device=f"cuda:{index}") for index in (0, 1)}
    for turn in range(24):
        machine.set_current(turn % 3 % 2)  # as `torch.cuda.set_device` does
        index = turn // 2 % 2
        np.testing.assert_array_equal(double[index](given[index]), (X + index) * 2)


def test_a_call_is_on_the_default_stream_of_its_own_gpu(machine: Machine, torch: Any) -> None:
    """Which the driver takes for that of the current one."""
    both, held = kg.kernel_graph(lambda x, y: x * 2 + y, device="cuda:0"), kg.asarray(X, device="cuda:0")
    for turn in range(12):
        machine.set_current(0)
        tensor = tensor_of(torch, X + turn)
        if turn % 3:
            held = kg.asarray(X, device="cuda:1").to_device("cuda:0")
        found = both(tensor, held)
        machine.set_current(0)
        tensor.late(np.full_like(X, np.nan))  # right after the call
        np.testing.assert_array_equal(found, (X + turn) * 2 + X)


def test_a_profile_shows_copies_between_gpus(machine: Machine) -> None:
    x = kg.asarray(X, device="cuda:0")
    with kg.profile() as p:
        y = x.to_device("cuda:1")
        np.testing.assert_array_equal(y, X)
    assert [s.nbytes for s in p.spans if (s.kind, s.name) == ("copy", "to another GPU")] == [X.nbytes]


@pytest.mark.parametrize("way", ["auto", "reads", "copies"])
def test_a_store_adds_arrays_up_where_they_are(machine: Machine, way: str) -> None:
    """In one program of the GPUs that have them. The caller may assign to them meanwhile; a list may repeat a GPU."""
    machine.reads_peers = True
    x = np.arange(12, dtype=np.float32)
    with kg.override(collectives=way):
        store = kg.KVStore("device")
        store.init(["a", "b"], [kg.asarray(x, device="cuda:1"), kg.asarray(x, device="cuda:0")])
        store.set_updater(lambda key, pushed, stored: stored.__iadd__(pushed * 2))
        want = {"a": x.copy(), "b": x.copy()}
        for turn in range(6):
            pushed = [kg.asarray(x + turn, device=f"cuda:{i}") for i in range(2)]
            store.push("a", pushed)
            for array in pushed:
                array[...] = 0
            want["a"] += 4 * (x + turn)
            store.push(["b", "b"], [[kg.asarray(x, device="cuda:1"), kg.asarray(x, device="cuda:0")]] * 2)
            want["b"] += 8 * x
            for key, value in want.items():
                np.testing.assert_allclose(store.pull(key), value)
    assert store.pull("a").device == "cuda:1" and store.pull("b").device == "cuda:0"


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("adds", [True, False])
def test_a_store_hands_out_what_it_has(
    machine: Machine, alone: bool, adds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each GPU has a new value when a push is over: pulls start nothing, and wait for nothing. What is written to a
    pulled array, by assignment or by another library, or to what was pushed, nobody else sees."""
    machine.reads_peers = True
    monkeypatch.setattr(updaters, "ALONE_BYTES", 1000 * alone)
    names = ("cuda:0", "cuda:1")
    store, want = kg.KVStore("device"), X
    store.init("w", kg.asarray(X, device="cuda:1"))
    if adds:
        store.set_updater(lambda key, pushed, stored: stored.__iadd__(pushed))
    for turn in range(8):
        given = [kg.asarray(X + turn, device=name) for name in names]
        outs = [kg.asarray(X * 0, device=name) for name in names]
        want = 2 * (X + turn) + want * adds
        store.push("w", given)
        if turn % 3 == 2:
            store.push("w", kg.asarray(X, device=names[turn % 2]))
            want = X + want * adds
        before, near = len(machine.driver.log), turn % 3 < 2
        first = store.pull("w")
        store.pull("w", outs)
        started = [call for call in machine.driver.log[before:] if call[0] not in ("record", "wait")]
        assert not (near and started), started
        written = (first, *outs, *given)
        for array in written[turn % 2 :: 2]:
            array[...] = -1
        for array in written[1 - turn % 2 :: 2]:
            array.wait()
            ctypes.memset(array.__cuda_array_interface__["data"][0], 7, array.nbytes)
        np.testing.assert_array_equal(store.pull("w"), want)
        store.pull("w", outs)
        for array in outs:
            np.testing.assert_array_equal(array, want)
