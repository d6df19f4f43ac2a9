"""Ranks whose arrays are on a GPU in memory: what another rank sends is waited for before a kernel reads it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl.array import devices
from kernelgraph.dsl.stores import kvstore
from kernelgraph.runtime.devices.cuda import device as cuda
from tests.dsl.two_gpus_in_memory import Machine

X = np.arange(8, dtype=np.float32).reshape(2, 4)


def read_by_the_program(x: Any) -> Any:
    return kg.all_reduce(x * 2) + 1


def read_by_the_next(x: Any) -> Any:
    return kg.all_reduce(x * 2 + np.float32(0.5))


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "compile_cubins", lambda kernels, cc: list(kernels))
    made = Machine(0)
    for gpu in made.devices:
        monkeypatch.setitem(devices._open, ("cuda", gpu.index), gpu)


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize("body", [read_by_the_program, read_by_the_next])
def test_a_kernel_waits_for_what_other_ranks_send(body: Any) -> None:
    def live() -> list[Any]:
        with kg.device(f"cuda:{kg.distributed.rank()}"):
            mesh = kg.Mesh(2)
            added = kg.kernel_graph(body, mesh=mesh, in_axes=0, out_axes=None, device=None)
            halved = kg.kernel_graph(lambda x: x / 2)
            return [np.asarray(halved(added(X + i).parts[0])) for i in range(30)]

    for found in kg.distributed.run_threads(2, live):
        for i, y in enumerate(found):
            np.testing.assert_array_equal(y, (2 * (X + i).sum(0, keepdims=True) + 1) / 2)


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize("dtype", ["float32", "float16", "int64"])
def test_a_synchronous_store_sums_on_gpus_as_their_programs_do(monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    def by_the_host(*args: Any) -> None:
        raise AssertionError("an array on a GPU went by way of the host")

    monkeypatch.setattr(kvstore, "EngineCollectiveCall", by_the_host)

    def live() -> Any:
        with kg.device(f"cuda:{kg.distributed.rank()}"):
            store = kg.KVStore("dist_sync")
            store.init(["w", 3], [np.zeros(5, dtype), np.ones(2, dtype)])
            store.push("w", np.arange(5).astype(dtype) + store.rank)
            before = np.asarray(store.pull("w"))
            store.set_updater(lambda key, pushed, stored: stored.__iadd__(pushed * pushed.dtype.type(2)))
            for _ in range(3):
                store.push(["w", 3], [np.full(5, 1 + store.rank, dtype), np.ones(2, dtype)])
            return before, *(np.asarray(x) for x in store.pull(["w", 3]))

    for before, w, last in kg.distributed.run_threads(2, live):
        np.testing.assert_array_equal(before, (2 * np.arange(5) + 1).astype(dtype))
        np.testing.assert_array_equal(w, (2 * np.arange(5) + 19).astype(dtype))
        np.testing.assert_array_equal(last, np.full(2, 13, dtype))


@pytest.mark.usefixtures("two_gpus")
def test_gpus_that_push_other_keys_are_told_so() -> None:
    def live() -> None:
        with kg.device(f"cuda:{kg.distributed.rank()}"):
            store = kg.KVStore("dist_sync")
            store.init(["a", "b"], [np.zeros(3), np.zeros(3)])
            store.push("ab"[store.rank], np.ones(3))
            store.pull("ab"[store.rank]).wait()

    with pytest.raises(kg.PlanError, match=r"push of '[ab]'.* push of '[ab]'"):
        kg.distributed.run_threads(2, live)
