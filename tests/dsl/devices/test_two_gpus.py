"""Programs on two GPUs in memory: what a call uses is its own until it is done, and lies where it runs."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl.array import devices
from kernelgraph.runtime.devices.cuda import device as cuda
from tests.counts import examples
from tests.dsl.two_gpus_in_memory import Machine

X = np.arange(32, dtype=np.float32).reshape(8, 4)
SUM = X[:4] + X[4:]


@pytest.fixture(params=range(examples(3)))
def machine(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """The devices `cuda:0` and `cuda:1`, for a while."""
    monkeypatch.setattr(cuda, "compile_cubins", lambda kernels, cc: list(kernels))
    made = Machine(request.param)
    for gpu in made.devices:
        monkeypatch.setitem(devices._open, ("cuda", gpu.index), gpu)
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


@pytest.mark.parametrize("body", [of_arguments, of_results, of_both])
def test_calls_in_flight_keep_to_their_own_memory(machine: Machine, body: Any) -> None:
    mesh, rng = kg.Mesh(("cuda:0", "cuda:1")), random.Random(1)
    program = kg.kernel_graph(body, mesh=mesh, in_axes=0, out_axes=None)
    x, kept = kg.shard(X, mesh), []
    for _ in range(20):
        result = program(x)  # most are dropped while they are computed
        if rng.random() < 0.3:
            kept.append(result)
    assert kept
    for result in kept:
        for part in result.parts:
            np.testing.assert_array_equal(part.numpy(), SUM)
