"""Results die with their last reference, not when Python looks for cycles: they hold memory of devices."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl.core.pytree import flatten

X = np.arange(8, dtype=np.float32)


def mesh_call() -> Callable[[], Any]:
    mesh = kg.Mesh(("cpu:0", "cpu:1"))
    f = kg.kernel_graph(lambda x: {"sum": kg.all_reduce(x), "own": [x * 2, x + 1]}, mesh=mesh, out_axes=None, in_axes=0)
    x = kg.shard(X, mesh)
    return lambda: f(x)


def mesh_call_of_numpy_arrays() -> Callable[[], Any]:
    f = kg.kernel_graph(lambda x, k: kg.all_reduce(x * k), mesh=kg.Mesh(("cpu:0", "cpu:1")), out_axes=None)
    return lambda: f(X, X)


def placed_call() -> Callable[[], Any]:
    f = kg.kernel_graph(lambda x: (kg.place(x, "cpu:1") * 2, [x + 1]), device="cpu:0")
    return lambda: f(X)


def training_step() -> Callable[[], Any]:
    mesh = kg.Mesh(("cpu:0", "cpu:1"))
    train = kg.DataParallel(lambda p, x: ((x * p["w"]) ** 2).mean(), mesh, update=lambda p, g: {"w": p["w"] - g["w"]})
    p, x = train.replicate({"w": np.float32(1) + X[:4]}), kg.shard(X.reshape(2, 4), mesh)
    return lambda: train(p, x)


def forward_call() -> Callable[[], Any]:
    f = kg.DataParallel(lambda x: (x + 1, {"twice": x * 2}), kg.Mesh(("cpu:0", "cpu:1")))
    return lambda: f(X.reshape(2, 4))


def store_turn() -> Callable[[], Any]:
    store = kg.KVStore("device")
    store.init([3, 4], [X, X])
    store.set_optimizer(kg.optimizer.SGD(0.1, momentum=0.9))
    given = [[kg.asarray(X, device=f"cpu:{i}") for i in range(2)]] * 2

    def turn() -> Any:
        store.push([3, 4], given)
        return store.pull([3, 4])

    return turn


def ordinary_call() -> Callable[[], Any]:
    f = kg.kernel_graph(lambda x: {"a": [x + 1, (x * 2, 3)]})
    return lambda: f(X)


def scan() -> Callable[[], Any]:
    f = kg.kernel_graph(lambda x: kg.scan(lambda c, v: (c + v, {"b": c * v}), np.float32(0), x))
    return lambda: f(X)


CALLS = [
    mesh_call, mesh_call_of_numpy_arrays, placed_call, training_step, forward_call, store_turn, ordinary_call, scan,
]  # fmt: skip


@pytest.fixture
def two_devices() -> Iterator[None]:
    with kg.override(cpu_devices=2):
        yield


@pytest.mark.parametrize("make", CALLS)
def test_results_die_with_their_last_reference(two_devices: None, make: Callable[[], Callable[[], Any]]) -> None:
    call = make()
    for _ in range(24):
        call()
    gc.collect()
    gc.disable()
    try:
        refs: list[Any] = []
        for _ in range(4):
            leaves: list[Any] = []
            flatten(call(), leaves)
            refs += [weakref.ref(x) for x in leaves if isinstance(x, kg.Array | kg.Sharded)]
        del leaves
        kg.waitall()
        assert refs and not [x() for x in refs if x() is not None]
    finally:
        gc.enable()
