"""Launches and conditional nodes as data, and their capture into a CUDA graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ....core.frozen import field, frozen
from ....program.program import Task
from ..driver.driver import SUCCESS, WHILE
from ..modules.predicated_kernels import FLAGS_BYTES, LaunchPredicate, make_graph_condition_kernel_task

DEPTH = 8  # conditional nodes within each other
MOST_LAUNCHES = 4096  # of one graph
MISTAKES = (AssertionError, AttributeError, LookupError, NameError, TypeError)
"""What neither a driver nor a library raises: a mistake of ours is not to pass for a graph that cannot be made."""


class DriverRefusal(Exception):
    """The driver's answer to what was asked of it."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class GraphTooLarge(Exception):
    """A graph would have too many nodes, or too many within each other. The message says which."""


def require_graph_call_success(code: int) -> None:
    if code != SUCCESS:
        raise DriverRefusal(code)


@frozen
class LaunchNode:
    """A launch, or what a library launches."""

    runner: Any
    addresses: Sequence[int]
    numbers: Sequence[Any]


@frozen
class ConditionalNode:
    """Nodes that run if the guard holds (IF), or again and again as long as it does (WHILE)."""

    kind: int
    guard: LaunchPredicate
    nodes: list[LaunchNode | ConditionalNode] = field(default_factory=list)


class GraphNodeSequence:
    """One after another. What kernels they need is loaded as they are added, before any capture."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self.nodes: list[LaunchNode | ConditionalNode] = []
        self.kept: list[Any] = []  # memory and steps, until nothing of the graph is left
        self._within = [self.nodes]
        self._launches = 0

    def flags(self) -> int:
        """A new block of flags."""
        self.kept.append(self._device.pool.allocate(FLAGS_BYTES))
        return int(self.kept[-1].address)

    def run(self, runner: Any, addresses: Sequence[int] = (), numbers: Sequence[Any] = ()) -> None:
        self._launches += 1
        if self._launches > MOST_LAUNCHES:
            raise GraphTooLarge(f"a graph would have more than {MOST_LAUNCHES} launches")
        self._within[-1].append(LaunchNode(runner, addresses, numbers))
        self.kept.append(runner)

    def launch(self, task: Task) -> None:
        """A task of which all is known."""
        self.run(self._device.kernel_step_of_task(task))

    @contextmanager
    def only(self, kind: int, guard: LaunchPredicate) -> Iterator[None]:
        """What is added within is for an `ConditionalNode`."""
        if len(self._within) > DEPTH:
            raise GraphTooLarge(f"more than {DEPTH} loops and branches within each other")
        self.kept.append(
            self._device.kernel_step_of_task(make_graph_condition_kernel_task(guard, 0))
        )  # whose kernel `capture_nodes_into_cuda_graph` needs
        made = ConditionalNode(kind, guard)
        self._within[-1].append(made)
        self._within.append(made.nodes)
        yield
        self._within.pop()


def capture_nodes_into_cuda_graph(
    device: Any, nodes: Sequence[LaunchNode | ConditionalNode], streams: Sequence[int]
) -> None:
    """Add nodes to the graph that the first stream is captured into. The others are for what is within. Raises
    Refused, and what libraries raise."""
    driver, stream = device.context.driver, streams[0]
    for node in nodes:
        if isinstance(node, LaunchNode):
            require_graph_call_success(node.runner(node.addresses, node.numbers, stream))
            continue
        code, handle = driver.conditional_handle(stream)
        require_graph_call_success(code)
        decide = device.kernel_step_of_task(make_graph_condition_kernel_task(node.guard, handle))
        require_graph_call_success(decide((), (), stream))
        code, body = driver.add_conditional(stream, handle, node.kind)
        require_graph_call_success(code)
        require_graph_call_success(driver.capture_into(streams[1], body))
        try:
            capture_nodes_into_cuda_graph(device, node.nodes, streams[1:])
            if node.kind == WHILE:
                require_graph_call_success(decide((), (), streams[1]))
        finally:
            code, _ = driver.end_capture(streams[1])
        require_graph_call_success(code)
