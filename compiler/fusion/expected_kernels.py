"""What is known of kernels before there are groups: which one would store each node, and who computes with what."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ..core.cost import WorkCostModel, rereading_rows_costs_little
from ..graph.graph import Graph
from ..layout.operands import is_index_map_view, is_node_view_of_memory, pointwise_index_maps
from .sweeps import ReductionsAbove

Use = tuple[int, tuple[int, ...]]  # what computes with a value (or what is computed with), through these views


class ExpectedKernel(NamedTuple):
    """Kernels of one domain are taken for one where neither waits for what the other feeds. level: how many kernels
    come before it, one after the other; rows: the axes of rows that are reduced in it."""

    domain: tuple[int, ...]
    level: int
    rows: frozenset[int]


def uses_of_values(graph: Graph) -> tuple[list[list[Use]], list[list[Use]], list[bool]]:
    """What each node computes with, what computes with it, and whether it is elementwise and not stored anyway."""
    nodes = graph.nodes
    args: list[list[Use]] = [[] for _ in nodes]
    users: list[list[Use]] = [[] for _ in nodes]
    live, forced = [False] * len(nodes), [False] * len(nodes)
    for output in graph.outputs:
        live[output] = forced[output] = True
    for number in range(len(nodes) - 1, -1, -1):
        node = nodes[number]
        if not live[number]:
            continue
        kind = node.kind
        in_memory = node.args  # what it takes from there
        if kind == "view":
            in_memory = node.args if forced[number] or _is_view_of_memory(graph, number) else ()
        elif kind in ("map", "gather", "reduce"):
            in_memory = node.args[:1] if kind == "gather" else ()
            for arg in dict.fromkeys(pointwise_index_maps(node)):
                views = []
                while is_index_map_view(nodes[arg]) and not _is_view_of_memory(graph, arg):
                    views.append(arg)
                    arg = nodes[arg].args[0]
                args[number].append((arg, tuple(views)))
                users[arg].append((number, tuple(views)))
        for arg in node.args:
            live[arg] = True
        for arg in in_memory:
            forced[arg] = True
    elementwise = [node.kind in ("map", "gather") for node in nodes]
    return args, users, [e and there and not f for e, there, f in zip(elementwise, live, forced, strict=True)]


def _is_view_of_memory(graph: Graph, number: int) -> bool:
    node = graph.nodes[number]
    return is_node_view_of_memory(node, graph.nodes[node.args[0]].type)


def expected_kernels_of_nodes(graph: Graph, model: WorkCostModel) -> list[ExpectedKernel]:
    """The kernel that computes each node where it is stored."""
    nodes = graph.nodes
    above = ReductionsAbove(graph)
    rows: dict[tuple[int, ...], list[tuple[frozenset[int], int]]] = {}  # by the shape of what is reduced: axes, a bit
    for (shape, axes), bit in above.kinds.items():
        if rereading_rows_costs_little(shape, axes, model):
            rows.setdefault(shape, []).append((_long_axes(shape, axes), bit))
    below = [0] * len(nodes)  # the reductions that a node feeds, as `above.bits` are those that it is made of
    for number in range(len(nodes) - 1, -1, -1) if rows else ():
        node = nodes[number]
        kind = node.kind
        if kind == "reduce":
            below[number] |= 1 << above.kinds[nodes[node.args[0]].shape, frozenset(node.attr("axes"))]
        for arg in node.args if kind not in ("library", "assembly") else ():
            below[arg] |= below[number]
    found = []
    for number, level in enumerate(_levels_of_kernels(graph, model)):
        node, shape = nodes[number], nodes[number].shape
        if node.kind == "reduce":
            shape = nodes[node.args[0]].shape
            found.append(ExpectedKernel(shape, level, _long_axes(shape, node.attr("axes"))))
        else:
            bits = above.bits[number] | below[number]
            reduced = [axes for axes, bit in rows.get(shape, ()) if bits >> bit & 1]
            found.append(ExpectedKernel(shape, level, reduced[0] if reduced else frozenset()))
    return found


def _levels_of_kernels(graph: Graph, model: WorkCostModel) -> list[int]:
    """For each node how many kernels, one after the other, come before the one that computes it."""
    nodes = graph.nodes
    levels: list[int] = []
    following: list[int] = []  # the level of what uses a node
    for number, node in enumerate(nodes):
        kind = node.kind
        level = max((following[arg] for arg in node.args), default=0)
        late = kind in ("library", "assembly", "device")
        if kind == "gather" and nodes[node.args[0]].kind != "source":
            level = max(level, following[node.args[0]] + 1)
        elif kind == "view" and _is_view_of_memory(graph, number):
            late = nodes[node.args[0]].kind != "source"
        elif kind == "reduce":
            late = not rereading_rows_costs_little(nodes[node.args[0]].shape, frozenset(node.attr("axes")), model)
        levels.append(level)
        following.append(level + late)
    return levels


def _long_axes(shape: tuple[int, ...], axes: Iterable[int]) -> frozenset[int]:
    """Those of these axes that are not of length 1."""
    return frozenset(axis for axis in axes if shape[axis] != 1)
