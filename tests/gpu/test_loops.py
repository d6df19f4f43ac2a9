"""Loops, branches and rolled time steps on a GPU give what NumPy gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.runtime.devices.cuda.graphs import conditional_nodes, host_control_flow
from tests.compiler.joining.test_iterations import PROGRAMS
from tests.compiler.loop_programs import COUNTED, DECIDED, FUNCTIONS, multiplied, shrunk


def leaves(value: Any) -> list[Any]:
    return [x for v in value for x in leaves(v)] if isinstance(value, (tuple, list)) else [np.asarray(value)]


@pytest.mark.parametrize("turns", [0, 1, 7, 300])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_loops(function: Any, turns: int) -> None:
    u = np.random.default_rng(turns).integers(-4, 4, 6).astype(np.float64)
    decorated = kg.kernel_graph(device="cuda")(lambda u: function(u, turns))
    for _ in range(3):
        for one, other in zip(leaves(decorated(u)), leaves(function(u, turns)), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-300)


@pytest.mark.parametrize("name", PROGRAMS)
def test_rolled_programs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, start = PROGRAMS[name]
    for least in (2, 1 << 30):
        monkeypatch.setattr(host_control_flow, "LEAST_LAUNCHES", least)
        decorated = kg.kernel_graph(device="cuda")(lambda x: function(x, 12))
        for one, other in zip(leaves(decorated(start.copy())), leaves(function(start.copy(), 12)), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("turns", [0, 1, 2, 5, 13, 40])
@pytest.mark.parametrize("function", DECIDED)
def test_the_gpu_decides(function: Any, turns: int) -> None:
    arrays = [np.random.default_rng(i).integers(-4, 5, 6).astype(np.float64) for i in range(3)]
    decorated = kg.kernel_graph(device="cuda")(lambda u: function(u, turns))
    for _ in range(2):
        calls = [decorated(u) for u in arrays]  # all of them in flight
        for u, found in zip(arrays, calls, strict=True):
            for one, other in zip(leaves(found), leaves(function(u, turns)), strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-300)
    text = decorated.explain(arrays[0], verbose=True)
    assert "the GPU decides" in text and "no graph" not in text and "the host reads" not in text, text


@pytest.mark.parametrize("turns", [0, 1, 5, 6, 13, 300])
@pytest.mark.parametrize("function", COUNTED)
def test_the_gpu_counts(function: Any, turns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_control_flow, "COUNTED", 1)
    monkeypatch.setattr(conditional_nodes, "UNROLLED", 3)
    arrays = [np.random.default_rng(i).integers(-4, 5, 6).astype(np.float64) for i in range(3)]
    decorated = kg.kernel_graph(device="cuda")(lambda u: function(u, turns))
    for _ in range(2):
        calls = [decorated(u) for u in arrays]
        for u, found in zip(arrays, calls, strict=True):
            for one, other in zip(leaves(found), leaves(function(u, turns)), strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
    text = decorated.explain(arrays[0], verbose=True)
    assert turns < 2 or "the GPU counts" in text, text
    assert "no graph" not in text and "the host reads" not in text, text


@pytest.mark.parametrize("n", [3, 1000, 100_003])
def test_arrays_of_many_blocks_that_decide(n: int) -> None:
    """The kernel that writes the condition is one of many blocks, of which each looks whether it is to run."""
    for special in (0.5, np.nan, np.inf):
        u = np.random.default_rng(n).random(n)
        u[n // 2] = special
        decorated = kg.kernel_graph(device="cuda")(lambda u: shrunk(u, 9))
        for one, other in zip(leaves(decorated(u)), leaves(shrunk(u, 9)), strict=True):
            np.testing.assert_array_equal(one, other)


def test_loops_in_somebody_elses_graph() -> None:
    torch = pytest.importorskip("torch")
    decorated = kg.kernel_graph(device="cuda")(lambda u: shrunk(u, 7))
    x = torch.ones(6, dtype=torch.float64, device="cuda")
    decorated(x)[0].wait()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), kg.stream(torch.cuda.current_stream().cuda_stream):
        found = decorated(x)
    for start in (1.0, 1024.0, 0.0):
        x.fill_(start)
        graph.replay()
        torch.cuda.synchronize()
        for one, other in zip(found, leaves(shrunk(np.full(6, start), 7)), strict=True):
            np.testing.assert_array_equal(one._read(), other)


def test_products_of_loops_in_flight() -> None:
    """Graphs of one stream share its cuBLAS workspace: they come one after another."""
    decorated = kg.kernel_graph(device="cuda")(lambda u: multiplied(u, 30))
    arrays = [np.arange(6.0) + i for i in range(6)]
    for u, found in [(u, decorated(u)) for u in arrays]:
        for one, other in zip(leaves(found), leaves(multiplied(u, 30)), strict=True):
            np.testing.assert_array_equal(one, other)


def test_products_of_a_known_number_of_turns_in_flight() -> None:
    """The same, of graphs of turns that the host launches."""
    weights = np.triu(np.ones((200, 200))) / 200

    def powers(x: Any) -> Any:
        return kg.fori_loop(0, 100, lambda i, x: np.minimum(x @ weights + x, 3), x)

    decorated = kg.kernel_graph(device="cuda")(powers)
    arrays = [np.random.default_rng(i).random((200, 200)) for i in range(6)]
    for u, found in [(u, decorated(u)) for u in arrays]:
        np.testing.assert_allclose(np.asarray(found), np.asarray(powers(u)), rtol=1e-9)
