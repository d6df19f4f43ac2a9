"""Replay: a plan's steps as one CUDA graph, built once, given new pointers and launched at each call.

Kernels and copies are explicit nodes with the plan's edges; a library call is captured alone and embedded as a child
graph. The graphs of a plan run on one stream, one after another, so they share an arena of their own: only pointers to
inputs and outputs change. Those of kernels and copies are written into their nodes; graphs are kept for the pointers
that library calls were captured with, the least recently used dropped. Whatever goes wrong, the plan is walked on
streams, and `CUDAExecutable.notes` says why.
"""

from __future__ import annotations

import gc
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from ..plan import Launch, Plan, Record, Wait
from .cuda_events import CudaEvent
from .cuda_launch import KernelStep
from .cuda_library import Blas, CopyStep, MatmulStep

# Host time in microseconds (measured on an H200's host): of a launch, of launching a graph, of updating one node.
LAUNCH_US, GRAPH_US, UPDATE_US = 3.0, 7.0, 2.4
INSTANCES = 8  # graphs kept of one plan
WARM_CALLS = 1  # walked on streams first, so that libraries are loaded before a capture


def worth_replay(plan: Plan, runners: Sequence[Any]) -> bool:
    """Whether a graph can do the plan and costs the host less, if all pointers to inputs and outputs are new."""
    busy = [r for r in runners if not r.empty]
    if not all(isinstance(r, (KernelStep, MatmulStep, CopyStep)) for r in busy):
        return False
    outer = _outer(plan)
    updates = sum(not isinstance(r, MatmulStep) and _changes(r, outer) for r in busy)
    return LAUNCH_US * len(busy) > GRAPH_US + UPDATE_US * updates


def _outer(plan: Plan) -> frozenset[int]:
    """The buffers that a call brings: inputs and outputs."""
    return frozenset(b for b, offset in enumerate(plan.offsets) if offset is None)


def _changes(runner: Any, outer: frozenset[int]) -> bool:
    """Whether a step's arguments may differ from call to call."""
    return bool(runner.buffers & outer) or runner.numbers


class _Instance:
    """An executable graph; for each step whose arguments change: its runner, its node's view, the last arguments."""

    def __init__(self, graph: Any, nodes: list[tuple[Any, Any]], known: list[Any]) -> None:
        self.graph, self.nodes, self.known = graph, nodes, known


class Replay:
    """The graphs of one executable. They are launched on one stream, so they never overlap one another."""

    def __init__(self, device: Any, executable: Any) -> None:
        self._device, self._plan, self._notes = device, executable.plan, executable.notes
        self._runners = executable.runners
        self._outer = _outer(self._plan)
        self._matmuls = [r for r in self._runners if isinstance(r, MatmulStep) and r.buffers & self._outer]
        self._instances: OrderedDict[tuple[int, ...], _Instance] = OrderedDict()
        self._seen: OrderedDict[tuple[int, ...], None] = OrderedDict()
        self._calls = 0
        self._broken = False
        self._arena: Any = None
        self._stream: Any = None
        self._captures: dict[int, Any] = {}  # stream of the plan -> stream that its library calls are captured on
        self._blas = Blas(device.pool.allocate, device.properties.memory_bytes)

    def run(
        self, memories: Sequence[Any], scalars: Sequence[Any], after: Sequence[tuple[int, Any]]
    ) -> list[CudaEvent] | None:
        """Launch the graph; the completion events. None where this call is to be walked on streams instead."""
        self._calls += 1
        if self._broken or self._calls <= WARM_CALLS:
            return None
        if any(not isinstance(e, CudaEvent) or e.error is not None for _, e in after):
            return None
        try:
            if self._arena is None:
                self._arena = self._device.pool.allocate(max(1, self._plan.arena_bytes))
                self._inner = [(b, self._arena.address + o) for b, o in enumerate(self._plan.offsets) if o is not None]
            addresses = list(memories)
            for buffer, address in self._inner:
                addresses[buffer] = address
            instance = self._instance(addresses, scalars)
            if instance is None:
                return None
            self._update(instance, addresses, scalars)
            stream = int(self._stream.handle)
            for event in {event.handle: event for _, event in after}.values():
                if event.stream != stream and self._device.context.driver.wait(stream, event.handle, 0):
                    return None
            instance.graph.launch(self._stream)
        except Exception as error:  # graphs are an optimisation: say so, and go on without
            self._broken = True
            self._notes.append(f"no replay as a graph: {type(error).__name__}: {error}")
            return None
        done = self._device.events.record(stream)
        return [done] * len(self._plan.completion)

    def _instance(self, addresses: Sequence[int], scalars: Sequence[Any]) -> _Instance | None:
        """The graph for these library pointers; built when they come for the second time."""
        key = tuple(addresses[b] for m in self._matmuls for b in m.buffers & self._outer)
        found = self._instances.get(key)
        if found is not None:
            self._instances.move_to_end(key)
            return found
        if key and key not in self._seen:
            self._seen[key] = None
            if len(self._seen) > 4 * INSTANCES:
                self._seen.popitem(last=False)
            return None
        if self._stream is None:
            self._stream = self._device.context.stream(False)
        built = self._instances[key] = self._build(addresses, scalars)
        if len(self._instances) > INSTANCES:
            self._instances.popitem(last=False)
        return built

    def _build(self, addresses: Sequence[int], scalars: Sequence[Any]) -> _Instance:
        """One walk over the plan: a node for each launch, after the last of its stream and what it waits for."""
        core: Any = import_module("cuda.core")
        graphs: Any = import_module("cuda.core.graph")
        definition = graphs.GraphDefinition()
        last: dict[int, set[Any]] = {}  # stream -> nodes that its next one must follow
        events: dict[int, set[Any]] = {}
        nodes: list[tuple[Any, Any]] = []
        known: list[Any] = []
        for step in self._plan.steps:
            before = last.setdefault(step.stream, set())
            if isinstance(step, Wait):
                last[step.stream] = before | events[step.event]
            elif isinstance(step, Record):
                events[step.event] = set(before)
            elif isinstance(step, Launch) and not self._runners[step.task].empty:
                runner = self._runners[step.task]
                node, values = self._node(core, definition, runner, step, addresses, scalars)
                if before:
                    node.pred = before
                last[step.stream] = {node}
                if values is not None and _changes(runner, self._outer):
                    nodes.append((runner, node))
                    known.append(values)
        graph = definition.instantiate()
        return _Instance(graph, [(runner, graph[node]) for runner, node in nodes], known)

    def _node(
        self, core: Any, definition: Any, runner: Any, step: Launch, addresses: Sequence[int], scalars: Sequence[Any]
    ) -> tuple[Any, Any]:
        """A node without edges, and the values that later calls may change (None if there are none)."""
        if isinstance(runner, KernelStep):
            task = self._plan.tasks[step.task]
            runner.config = core.LaunchConfig(grid=task.grid, block=task.block)
            runner.kernel = self._device.kernel(task.kernel)
            values = runner.values(addresses, scalars)
            return definition.launch(runner.config, runner.kernel, *values), values
        if isinstance(runner, CopyStep):
            values = runner.values(addresses)
            return definition.memcpy(*values), values
        return definition.embed(self._captured(runner, step.stream, addresses)), None

    def _captured(self, runner: MatmulStep, stream: int, addresses: Sequence[int]) -> Any:
        """A library call as a graph of its own. Calls of one stream share a workspace: they never overlap."""
        if stream not in self._captures:
            self._captures[stream] = self._device.context.stream(False)
        capture = self._captures[stream]
        self._blas.handle(int(capture.handle))
        builder = capture.create_graph_builder()
        with _no_collection():
            builder.begin_building("thread_local")
            try:
                runner.enqueue(self._blas, addresses, int(capture.handle))
            finally:
                builder.end_building()
        return builder.graph_definition

    def _update(self, instance: _Instance, addresses: Sequence[int], scalars: Sequence[Any]) -> None:
        """Write the pointers and numbers that are not those of the last launch."""
        for i, (runner, view) in enumerate(instance.nodes):
            if isinstance(runner, KernelStep):
                values = runner.values(addresses, scalars)
                if values != instance.known[i]:
                    view.update(config=runner.config, kernel=runner.kernel, args=values)
            else:
                values = runner.values(addresses)
                if values != instance.known[i]:
                    view.update(dst=values[0], src=values[1], size=values[2])
            instance.known[i] = values

    def __del__(self) -> None:
        if self._stream is not None and self._device.lost is None:
            self._device.context.driver.synchronize_stream(int(self._stream.handle))  # its workspaces go back


@contextmanager
def _no_collection() -> Iterator[None]:
    """No garbage collection, whose frees a capture does not allow."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
