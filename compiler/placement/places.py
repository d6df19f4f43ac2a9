"""Where each node of a graph is computed. What the user's places say, and what may be chosen."""

from __future__ import annotations

from collections.abc import Sequence

from ...runtime.core.frozen import frozen
from ..graph.graph import Graph, GraphError, Node, bodies_of_node, graph_has_place_nodes
from ..ops.table import OPS

Place = tuple[str, int]  # a device's kind and number


@frozen
class Places:
    """slots[n]: the device that computes node n, a place in `devices`; None for what each device has or makes itself:
    inputs, numbers and what follows from constants alone. open: nodes whose device may be chosen."""

    devices: tuple[Place, ...]
    slots: tuple[int | None, ...]
    open: frozenset[int]


def devices_of_placed_graph(graph: Graph, devices: Sequence[Place]) -> tuple[Place, ...]:
    """The devices that a program runs on: those given, then those that the graph names, in order."""
    named = [node.attr("device") for node in graph.nodes if node.op == "place"]
    return tuple(dict.fromkeys([*devices, *named]))


def nodes_computable_on_any_device(graph: Graph) -> list[bool]:
    """For each node whether it follows from constants, numbers and indices alone, in operations that cost little."""
    found: list[bool] = []
    for node in graph.nodes:
        row = OPS[node.op]
        cheap = row.kind in ("map", "view") and all(found[a] for a in node.args)
        found.append(node.op in ("const", "number", "index") or (bool(node.args) and cheap))
    return found


def place_nodes_by_arguments(graph: Graph, devices: Sequence[Place]) -> Places:
    """Computation follows data: a node runs where its placed arguments are, of several where most of their bytes are.

    What follows no place runs on the first device, and is open to choice. Raises GraphError for a place in the body of
    a loop or branch."""
    anywhere = nodes_computable_on_any_device(graph)
    slots: list[int | None] = []
    open_: set[int] = set()
    for number, node in enumerate(graph.nodes):
        if any(map(graph_has_place_nodes, bodies_of_node(node))):
            line = graph.lines[number] if graph.lines else ""
            raise GraphError("the body of a loop or branch runs on one device; place its arguments", line=line)
        if node.op == "place":
            slots.append(devices.index(node.attr("device")))
        elif anywhere[number] or node.op == "input":
            slots.append(None)
        else:
            fixed = [a for a in node.args if slots[a] is not None and a not in open_]
            if fixed:
                slots.append(_device_with_most_bytes(graph, slots, fixed))
            else:
                slots.append(0)
                open_.add(number)
    return Places(tuple(devices), tuple(slots), frozenset(open_))


def _device_with_most_bytes(graph: Graph, slots: Sequence[int | None], args: Sequence[int]) -> int:
    """The slot with most bytes of some arguments, of several the first."""
    held: dict[int, int] = {}
    for a in dict.fromkeys(args):
        slot = slots[a]
        assert slot is not None
        held[slot] = held.get(slot, 0) + graph.nodes[a].type.nbytes
    return min(held, key=lambda slot: (-held[slot], slot))


def is_node_copy_on_device(node: Node) -> bool:
    """Whether a node is its argument, on another device perhaps."""
    return node.op == "place"
