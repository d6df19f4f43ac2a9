"""Plans over two GPUs in memory as one graph: what they compute, whose memory they use, and what goes wrong."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl.array import devices
from kernelgraph.runtime.devices.cuda import device as cuda
from kernelgraph.runtime.devices.cuda.graphs import multi_device_replay
from tests.counts import examples
from tests.dsl.two_gpus_in_memory import Machine

X = np.arange(32, dtype=np.float32).reshape(8, 4)


@pytest.fixture(params=range(examples(3)))
def machine(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    monkeypatch.setattr(cuda, "compile_cubins", lambda kernels, cc: list(kernels))
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


@pytest.mark.parametrize(("n", "kernel_copies"), [(8, True), (70, True), (70, False)])
def test_calls_in_flight_are_one_launch_each(
    machine: Machine, n: int, kernel_copies: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """n: 8 for products by kernels, more for cuBLAS's, whose arrays are fixed in a graph, as those of large copies."""
    monkeypatch.setattr(multi_device_replay, "KERNEL_COPY_BYTES", (1 << 30) * kernel_copies)
    rng, kept, f = Random(n), [], kg.kernel_graph(branches, device="cuda:0")
    given = [np.random.default_rng(i).random((n, n)).astype(np.float32) / n for i in range(20)]
    x, y = (kg.asarray(v, device="cuda:0") for v in given[:2])
    for turn in range(16):
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
            np.testing.assert_allclose(got, value, rtol=1e-5)
    assert launches(machine) >= 13  # all but the first for each way in which arrays lie
