"""Loops and branches in which a GPU in memory decides: as conditional nodes and guarded kernels of one graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.runtime.devices.cuda import device as cuda
from kernelgraph.runtime.devices.cuda.driver.driver import IF, WHILE
from kernelgraph.runtime.devices.cuda.graphs import conditional_nodes, device_control_flow, host_control_flow, instances
from tests.compiler.loop_programs import COUNTED, DECIDED, either, halved, leapfrog, multiplied, shrunk
from tests.runtime.cuda_calls import call, counted, device_on, ready
from tests.runtime.cuda_fake import FakeContext


@pytest.fixture(autouse=True)
def _text_as_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake GPU runs text: nothing is compiled."""
    monkeypatch.setattr(cuda, "compile_cubins", lambda kernels, cc: list(kernels))


def start(function: Any, turns: int, old: bool = False, u: Any = None) -> tuple[Any, Any, Any, Any]:
    """A device, the executable on it, an array, and what comes out of the function for it."""
    u = np.random.default_rng(turns).integers(-4, 5, 6).astype(np.float64) if u is None else u
    graph = kg.kernel_graph(device="fake")(lambda u: function(u, turns)).graph(u)
    device = device_on(FakeContext(turns))
    device.context.driver.conditionals = not old
    executable = device.prepare(ready(graph))
    wanted = [np.asarray(x) for x in _leaves(function(u, turns))]
    return device, executable, u, (graph, wanted)


def put(device: Any, graph: Any, u: Any) -> list[tuple[Any, Any]]:
    found = []
    for number in graph.inputs:
        shape = graph.nodes[number].type.shape
        others = {(40, 40): np.arange(1600.0).reshape(40, 40) % 5}  # of `multiplied`
        array = u if shape == u.shape else others.get(shape, np.arange(float(np.prod(shape))).reshape(shape))
        memory = device.allocate(max(1, array.nbytes))
        found.append((memory, device.upload(np.ascontiguousarray(array), memory)))
    return found


def got(device: Any, memories: Any, kept: Any, wanted: Any) -> list[Any]:
    for event in kept[0]:
        event.wait()
    hosts = [np.empty(w.shape, w.dtype) for w in wanted]
    for memory, host in zip(memories, hosts, strict=True):
        device.download(memory, host)
    return hosts


def same(found: Any, wanted: Any) -> None:
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)


def reads(device: Any) -> int:
    """Copies to the host so far."""
    return counted(device, "to_host")


@pytest.mark.parametrize("turns", [0, 2, 7])  # none, part of a round, a turn before it and a whole one
@pytest.mark.parametrize("function", DECIDED)
def test_the_gpu_decides(function: Any, turns: int) -> None:
    device, executable, u, (graph, wanted) = start(function, turns)
    inputs = put(device, graph, u)
    memories, kept = call(device, executable, inputs)
    assert reads(device) == counted(device, "synchronize_stream") == 0  # the host waits for nothing
    assert counted(device, "launch_graph") == 1
    assert any("the GPU decides" in note for note in executable.notes)
    same(got(device, memories, kept, wanted), wanted)


def test_a_graph_of_turns_holds_loops_in_which_the_gpu_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_control_flow, "LEAST_LAUNCHES", 1)

    def within(u: Any, turns: int) -> Any:
        def turn(i: Any, u: Any) -> Any:
            return kg.while_loop(lambda c: c[1] < 2, lambda c: (c[0] * 0.5, c[1] + 1), (u, 0))[0] + 1

        return kg.fori_loop(0, turns, turn, u)

    device, executable, u, (graph, wanted) = start(within, 7)
    memories, kept = call(device, executable, put(device, graph, u))
    assert reads(device) == 0 and counted(device, "launch_graph") > 1, executable.notes
    same(got(device, memories, kept, wanted), wanted)


@pytest.mark.parametrize("turns", [0, 7, 9])
@pytest.mark.parametrize("function", COUNTED)
def test_the_gpu_counts(function: Any, turns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditional_nodes, "UNROLLED", 0)
    monkeypatch.setattr(host_control_flow, "COUNTED", 1)
    device, executable, u, (graph, wanted) = start(function, turns)
    memories, kept = call(device, executable, put(device, graph, u))
    assert reads(device) == counted(device, "synchronize_stream") == 0
    if turns > 1:
        assert counted(device, "launch_graph") >= 1 and any("the GPU counts" in note for note in executable.notes)
    same(got(device, memories, kept, wanted), wanted)


@pytest.mark.parametrize("function", [shrunk, leapfrog, either])
def test_an_old_driver_leaves_it_to_the_host(function: Any) -> None:
    device, executable, u, (graph, wanted) = start(function, 3, old=True)
    memories, kept = call(device, executable, put(device, graph, u))
    assert reads(device) > 0 and counted(device, "launch_graph") == 0
    assert any("driver is older" in note for note in executable.notes)
    same(got(device, memories, kept, wanted), wanted)


@pytest.mark.parametrize("refused", ["add_conditional", "instantiate", "launch_graph"])
def test_what_the_driver_refuses_the_host_does(refused: str) -> None:
    device, executable, u, (graph, wanted) = start(shrunk, 2)
    inputs = put(device, graph, u)
    device.context.driver.refuse[refused] = 801
    for _ in range(2):
        memories, kept = call(device, executable, inputs)
        same(got(device, memories, kept, wanted), wanted)
    assert any("no graph" in note for note in executable.notes)


def test_a_mistake_of_ours_is_not_taken_for_a_graph_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    device, executable, u, (graph, _) = start(shrunk, 2)
    inputs = put(device, graph, u)
    monkeypatch.delattr(instances.GraphReplayLane, "streams_for_capture")
    _, (events, *_) = call(device, executable, inputs)
    with pytest.raises(AttributeError, match="streams_for_capture"):
        events[0].wait()
    assert not any("no graph" in note for note in executable.notes)


def test_what_only_the_host_can_do_keeps_its_loop() -> None:
    def solved(u: Any, turns: int) -> Any:
        def turn(c: Any) -> Any:
            return c[0] + np.linalg.det(c[0][:4].reshape(2, 2)), c[1] + 1

        return kg.while_loop(lambda c: c[1] < turns, turn, (u, 0))

    device, executable, u, (graph, wanted) = start(solved, 3)
    assert any("waits for the host" in note for note in executable.notes), executable.notes
    memories, kept = call(device, executable, put(device, graph, u))
    same(got(device, memories, kept, wanted), wanted)


def test_conditions_that_are_not_numbers() -> None:
    for special in (np.nan, np.inf, -np.inf):
        u = np.array([special, 1.0, 2, 3, 4, 5])
        device, executable, u, (graph, wanted) = start(shrunk, 2, u=u)
        memories, kept = call(device, executable, put(device, graph, u))
        same(got(device, memories, kept, wanted), wanted)


def test_kernels_that_can_look_need_no_node_of_their_own() -> None:
    def kinds(function: Any) -> list[int]:
        device, executable, u, (graph, _) = start(function, 3)
        kept = call(device, executable, put(device, graph, u))
        device.synchronize()
        del kept
        return [entry[1] for entry in device.context.driver.log if entry[0] == "add_conditional"]

    assert kinds(halved) == [WHILE]
    assert kinds(either) == []  # both bodies look at the flag
    assert kinds(multiplied) == [IF, WHILE, IF]  # the turn before, the round, its second turn


def test_calls_in_flight_have_graphs_of_their_own() -> None:
    device, executable, _, (graph, _) = start(leapfrog, 9)
    arrays = [np.arange(6.0) + i for i in range(3)]
    inputs = [put(device, graph, u) for u in arrays]
    calls = [call(device, executable, each) for each in inputs]  # nothing has run yet
    assert counted(device, "instantiate") == 3
    for u, (memories, kept) in zip(arrays, calls, strict=True):
        wanted = [np.asarray(x) for x in _leaves(leapfrog(u, 9))]
        same(got(device, memories, kept, wanted), wanted)


def test_graphs_that_make_room_end_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_control_flow, "GRAPHS", 1)
    device, executable, _, (graph, _) = start(shrunk, 2)
    arrays = [np.arange(6.0) + i for i in range(3)]
    inputs = [put(device, graph, u) for u in arrays]
    calls = [call(device, executable, each) for each in inputs]  # the graphs' memory is not taken while they run
    for u, (memories, kept) in zip(arrays, calls, strict=True):
        wanted = [np.asarray(x) for x in _leaves(shrunk(u, 2))]
        same(got(device, memories, kept, wanted), wanted)


def test_addresses_that_come_again_have_their_graph() -> None:
    device, executable, u, (graph, wanted) = start(shrunk, 2)
    inputs = put(device, graph, u)
    for _ in range(3):
        memories, kept = call(device, executable, inputs)
        same(got(device, memories, kept, wanted), wanted)
        del memories, kept
    assert counted(device, "instantiate") == 1 and counted(device, "launch_graph") == 3


def _leaves(value: Any) -> list[Any]:
    return [x for v in value for x in _leaves(v)] if isinstance(value, tuple) else [value]
