"""A single launch as a graph of one node: new arguments in, the driver's result code out."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from .cuda_driver import CAPTURE_RELAXED
from .cuda_launch import KernelStep, Node

ALONE_AFTER = 64  # calls: a graph takes some 0.1 ms to make, and memory


class Alone:
    """The one launch of a plan: called as its step is. After ALONE_AFTER calls it is launched as a graph, one for each
    stream: that costs the host less (measured: 2.7 us, 1.3 us more for new arguments; the kernel itself 6.1 us)."""

    def __init__(self, device: Any, step: KernelStep) -> None:
        self._device, self._driver, self._step = device, device.context.driver, step
        self._launch, self._update = device.context.driver.launch_graph, device.context.driver.update_kernel
        self._made: dict[int, tuple[int, Node, int]] = {}  # by stream: executable graph, its node, the graph
        self._plain = ALONE_AFTER  # calls that launch the kernel

    def __call__(self, memories: Sequence[Any], scalars: Sequence[Any], stream: int) -> int:
        if self._plain:
            self._plain -= 1
            return self._step(memories, scalars, stream)
        found = self._made.get(stream) or self._graph(memories, scalars, stream)
        if found is None:
            self._plain = sys.maxsize  # never again
            return self._step(memories, scalars, stream)
        executable, node, _ = found
        if node.fill(memories, scalars) and (code := self._update(executable, node.handle, node.address)):
            return int(code)
        return int(self._launch(executable, stream))

    def _graph(self, memories: Sequence[Any], scalars: Sequence[Any], stream: int) -> tuple[int, Node, int] | None:
        driver, graphs = self._driver, self._device.graphs
        with graphs.lock:
            capture = graphs.capturing()
            if driver.begin_capture(capture, CAPTURE_RELAXED):
                return None
            launched = self._step(memories, scalars, capture)
            found, handle = driver.captured_node(capture)
            ended, graph = driver.end_capture(capture)
        if ended:
            return None
        code, executable = driver.instantiate(graph)
        if launched or found or code:
            driver.destroy_graph(graph)
            return None
        node = self._step.node(handle, memories, {b: b for b in range(len(memories))})
        node.places(len(memories), [])
        node.fill(memories, scalars)
        made = self._made[stream] = (executable, node, graph)
        return made

    def __del__(self) -> None:
        if sys is not None and not sys.is_finalizing():
            for stream, (executable, _, graph) in self._made.items():
                self._driver.synchronize_stream(stream)
                self._driver.destroy_executable(executable)
                self._driver.destroy_graph(graph)
