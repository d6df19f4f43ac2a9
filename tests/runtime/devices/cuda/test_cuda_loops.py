"""Loops and branches on a GPU in memory: launched turn by turn, and as graphs of turns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.runtime.devices.cuda import device as cuda
from kernelgraph.runtime.devices.cuda.graphs import host_control_flow
from tests.compiler.loop_programs import FUNCTIONS, jacobi
from tests.runtime.cuda_calls import call, counted, device_on, ready
from tests.runtime.cuda_fake import FakeContext


@pytest.fixture(autouse=True)
def _text_as_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake GPU runs text: nothing is compiled."""
    monkeypatch.setattr(cuda, "compile_cubins", lambda kernels, cc: list(kernels))


@pytest.mark.parametrize("turns", [0, 1, 7, 30])
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("least", [2, 1000])
def test_loops_mean_what_numpy_means(function: Any, turns: int, least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_control_flow, "LEAST_LAUNCHES", least)
    u = np.random.default_rng(turns).integers(-4, 4, 6).astype(np.float64)
    graph = kg.kernel_graph(device="fake")(lambda u: function(u, turns)).graph(u)
    captured = [np.arange(turns * 6.0).reshape(turns, 6)] if len(graph.inputs) > 1 else []
    context = FakeContext(turns)
    device = device_on(context)
    executable = device.prepare(ready(graph))
    inputs = []
    for array in (u, *captured):
        memory = device.allocate(max(1, array.nbytes))
        inputs.append((memory, device.upload(np.ascontiguousarray(array), memory)))
    wanted = function(u, turns)
    for _ in range(2):
        memories, kept = call(device, executable, inputs)
        for event in kept[0]:
            event.wait()
        for memory, other in zip(memories, _leaves(wanted), strict=True):
            host = np.empty(np.shape(other), np.asarray(other).dtype)
            device.download(memory, host)
            np.testing.assert_array_equal(host, np.asarray(other))
        del kept
    if function is jacobi and turns == 30 and least == 2:
        assert counted(device, "launch_graph") > 0, executable.notes


def _leaves(value: Any) -> list[Any]:
    return [x for v in value for x in _leaves(v)] if isinstance(value, tuple) else [value]
