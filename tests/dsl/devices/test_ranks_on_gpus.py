"""Ranks whose arrays are on a GPU in memory: what another rank sends is waited for before a kernel reads it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl.array import devices
from kernelgraph.runtime.devices.cuda import device as cuda
from tests.dsl.two_gpus_in_memory import Machine

X = np.arange(8, dtype=np.float32).reshape(2, 4)


def read_by_the_program(x: Any) -> Any:
    return kg.all_reduce(x * 2) + 1


def read_by_the_next(x: Any) -> Any:
    return kg.all_reduce(x * 2 + np.float32(0.5))


@pytest.mark.parametrize("body", [read_by_the_program, read_by_the_next])
def test_a_kernel_waits_for_what_other_ranks_send(monkeypatch: pytest.MonkeyPatch, body: Any) -> None:
    monkeypatch.setattr(cuda, "compile_cubins", lambda kernels, cc: list(kernels))
    made = Machine(0)
    for gpu in made.devices:
        monkeypatch.setitem(devices._open, ("cuda", gpu.index), gpu)

    def live() -> list[Any]:
        with kg.device(f"cuda:{kg.distributed.rank()}"):
            mesh = kg.Mesh(2)
            added = kg.kernel_graph(body, mesh=mesh, in_axes=0, out_axes=None, device=None)
            halved = kg.kernel_graph(lambda x: x / 2)
            return [np.asarray(halved(added(X + i).parts[0])) for i in range(30)]

    for found in kg.distributed.run_threads(2, live):
        for i, y in enumerate(found):
            np.testing.assert_array_equal(y, (2 * (X + i).sum(0, keepdims=True) + 1) / 2)
