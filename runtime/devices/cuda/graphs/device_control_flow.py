"""Loops and branches in which the GPU decides, as CUDA graphs. One for each set of addresses that calls bring."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from ..driver.driver import CAPTURE_RELAXED
from ..driver.events import CudaEvent
from .conditional_nodes import ControlFlowGraph
from .nodes import DEPTH, GraphNodeSequence, capture_nodes_into_cuda_graph, require_graph_call_success

GRAPHS = 16  # of one loop or branch: calls in flight bring different addresses


class GraphExecutable:
    """A graph with what it needs: memory, and steps whose kernels it has. stream: where it has to be launched, if its
    libraries' memory is that stream's."""

    def __init__(self, driver: Any, handle: int, kept: Sequence[Any], stream: int) -> None:
        self._driver, self.handle, self._kept, self.stream = driver, handle, kept, stream
        self.last: CudaEvent | None = None  # after the latest launch

    def launch(self, device: Any, stream: int) -> None:
        """In the order of a stream. Raises Refused."""
        record, own = device.events.record, self.stream or stream
        if own != stream:
            require_graph_call_success(self._driver.wait(own, record(stream).handle, 0))
        require_graph_call_success(self._driver.launch_graph(self.handle, own))
        self.last = record(own)
        if own != stream:
            require_graph_call_success(self._driver.wait(stream, self.last.handle, 0))

    def __del__(self) -> None:
        if sys is None or sys.is_finalizing():
            return
        if self.last is not None and self.last.error is None and not self.last.query():
            self._driver.synchronize_event(self.last.handle)  # its memory goes back
        self._driver.destroy_executable(self.handle)


class GraphControlFlow:
    """The graphs of one loop or branch. Called under its executable's lock."""

    def __init__(self, device: Any, whole: ControlFlowGraph) -> None:
        self._device, self._driver, self._whole = device, device.context.driver, whole
        self._made: OrderedDict[tuple[Any, ...], GraphExecutable] = OrderedDict()

    def run(self, addresses: Sequence[int], scalars: Sequence[Any], stream: int) -> None:
        """Launch it, or add it to the graph that the stream is captured into. Raises Refused, TooMuch, and what
        libraries raise."""
        graph = self._driver.captures(stream)[1]
        if graph:
            self._join_captured_graph(graph, addresses, scalars, stream)
            return
        key = self._whole.key(addresses, scalars)
        found = self._made.get(key)
        if found is None:  # to make it takes as long as some six iterations of the host
            found = self._instantiate_graph(addresses, scalars)
            while len(self._made) >= GRAPHS:
                self._made.popitem(last=False)
            self._made[key] = found
        else:
            self._made.move_to_end(key)
        found.launch(self._device, stream)

    def _capture_nodes(self, addresses: Sequence[int], scalars: Sequence[Any]) -> GraphNodeSequence:
        nodes = GraphNodeSequence(self._device)
        self._whole.add(nodes, addresses, scalars)
        return nodes

    def _join_captured_graph(self, graph: int, addresses: Sequence[int], scalars: Sequence[Any], stream: int) -> None:
        graphs = self._device.graphs
        nodes = self._capture_nodes(addresses, scalars)
        self._device.captures.keep(graph, nodes.kept)
        with graphs.lock:
            capture_nodes_into_cuda_graph(
                self._device, nodes.nodes, [stream, *graphs.bodies.streams_for_capture((False,) * DEPTH)]
            )

    def _instantiate_graph(self, addresses: Sequence[int], scalars: Sequence[Any]) -> GraphExecutable:
        nodes, driver, graphs = self._capture_nodes(addresses, scalars), self._driver, self._device.graphs
        with graphs.lock:
            lane = graphs.lane() if self._whole.library else graphs.bodies
            streams = lane.streams_for_capture((False,) * (DEPTH + 1))
            if self._whole.library:
                nodes.kept += self._device.blas.prepare(streams[: 1 + self._whole.depth])
            graph = self._capture_into_graph(nodes, streams)
            code, handle = driver.instantiate(graph)
            driver.destroy_graph(graph)
        require_graph_call_success(code)
        return GraphExecutable(driver, handle, nodes.kept, lane.stream if self._whole.library else 0)

    def _capture_into_graph(self, nodes: GraphNodeSequence, streams: Sequence[int]) -> int:
        driver = self._driver
        require_graph_call_success(driver.begin_capture(streams[0], CAPTURE_RELAXED))
        try:
            capture_nodes_into_cuda_graph(self._device, nodes.nodes, streams)
        except BaseException:
            code, graph = driver.end_capture(streams[0])
            if graph:
                driver.destroy_graph(graph)
            raise
        code, graph = driver.end_capture(streams[0])
        require_graph_call_success(code)
        return int(graph)
