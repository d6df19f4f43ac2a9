"""Graph -> Graph: sums of exp(x - max(x)) over long rows, with the maximum, in one pass over x.

A part of a row is read once for its own maximum and its own sums; these few are put together for the maximum of all
(Milakov and Gimelshein, Online normalizer calculation for softmax, 2018).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...runtime.core.frozen import frozen
from ..core.cost import WorkCostModel, rereading_rows_costs_little
from ..graph.builder import GraphBuilder
from ..graph.graph import Graph, Node, Value, Values, own_maximum_of_comparison
from ..layout.operands import contiguous_strides
from ..ops.table import OPS
from .materialize import MemoryLayout
from .simplify import push_reshape_into_args, rewrite_nodes

LARGE = 1 << 20  # elements of x: fewer are read again from a cache
LONGEST, SHORTEST = 1024, 256  # elements of a part


@frozen
class _Parts:
    """The parts of rows, the maximum of each, and that of each whole row."""

    x: Value
    maxima: Value
    most: Value


def sum_exponentials_in_parts(graph: Graph, layouts: Sequence[MemoryLayout], model: WorkCostModel) -> Graph:
    """sum(exp(x - max(x))) -> sum(sum(exp(p - max(p))) * exp(max(p) - max(x))) over parts p of the rows of x, and so
    the number of elements that are the maximum. layouts: of the graph's inputs."""
    sums = {node: most for node in graph.nodes if (most := _maximum_of_sum(graph.nodes, node)) is not None}
    exponentials = {most for node, most in sums.items() if graph.nodes[node.args[0]].op == "exp"}
    maxima = {
        graph.nodes[most]: length
        for most in exponentials
        if (length := _length_of_parts(graph.nodes, graph.nodes[most], layouts, model))
    }
    if not maxima:
        return graph
    found: dict[Node, _Parts] = {}

    def replace_by_parts(builder: GraphBuilder, node: Node, args: Values) -> Value | None:
        if node in maxima:
            found[node] = _parts_of_rows(builder, node, args[0], maxima[node])
            return builder.reshape(found[node].most, node.shape)
        parts = found.get(graph.nodes[sums[node]]) if node in sums else None
        if parts is None:
            return None
        add = _sum_of_exponentials if graph.nodes[node.args[0]].op == "exp" else _count_of_maxima
        return builder.reshape(builder.reduce("sum", add(builder, parts), (parts.most.ndim - 1,)), node.shape)

    return rewrite_nodes(graph, replace_by_parts)


def _maximum_of_sum(nodes: Sequence[Node], node: Node) -> int | None:
    """The maximum, by number, where the node adds up exp(x - max(x)), or counts x == max(x), along rows of x."""
    if node.op != "sum" or node.dtype.char not in "fd":
        return None
    term = nodes[node.args[0]]
    if term.op not in ("exp", "cast") or term.dtype != node.dtype:
        return None
    compared = nodes[term.args[0]]
    if compared.op != ("subtract" if term.op == "exp" else "equal"):
        return None
    most = own_maximum_of_comparison(nodes, compared)
    return most if most is not None and nodes[most].attr("axes") == node.attr("axes") else None


def _length_of_parts(nodes: Sequence[Node], most: Node, layouts: Sequence[MemoryLayout], model: WorkCostModel) -> int:
    """Into parts of how many elements the rows of a maximum are cut; 0 for none."""
    x, axes = nodes[most.args[0]], frozenset(most.attr("axes"))
    shape, kept = x.shape, x.ndim - len(axes)
    if x.size < LARGE or min(axes) != kept or rereading_rows_costs_little(shape, axes, model):
        return 0
    cost = _flops_of_reshaped_element(nodes, most.args[0], layouts)
    if cost > 2 * x.dtype.itemsize * model.flops_per_byte:  # it is better stored for all who read it
        return 0
    long = math.prod(shape[kept:])
    return next((n for n in range(LONGEST, SHORTEST - 1, -4) if long % n == 0), 0)


def _flops_of_reshaped_element(nodes: Sequence[Node], number: int, layouts: Sequence[MemoryLayout]) -> float:
    """What it costs to compute an element in another shape; infinity where a reshape has to copy what it is made of."""
    shape, cost, todo, seen = nodes[number].shape, 0.0, [number], {number}
    while todo:
        node = nodes[todo.pop()]
        if node.op == "input":
            lies = layouts[node.attr("index")].strides == contiguous_strides(node.shape, node.dtype.itemsize)
        else:
            lies = node.kind in ("map", "library")
        if not lies or len(seen) > 32:
            return math.inf
        if node.kind == "map":
            cost += OPS[node.op].cost
            for arg in node.args:
                if nodes[arg].shape == shape and arg not in seen:
                    seen.add(arg)
                    todo.append(arg)
                elif nodes[arg].size != 1:
                    return math.inf
    return cost


def _parts_of_rows(builder: GraphBuilder, most: Node, x: Value, length: int) -> _Parts:
    kept = most.shape
    parts = push_reshape_into_args(builder, x, (*kept, x.size // math.prod(kept) // length, length), {})
    maxima = builder.reduce("max", parts, (len(kept) + 1,))
    return _Parts(parts, maxima, builder.reshape(builder.reduce("max", maxima, (len(kept),)), (*kept, 1)))


def _sum_of_exponentials(builder: GraphBuilder, parts: _Parts) -> Value:
    """Each part's sum as it counts in all: 0 for one of -inf alone, NaN where the maximum is infinite."""
    nothing = builder.map("equal", parts.maxima, builder.const(-np.inf, parts.maxima.dtype))
    least = builder.map("where", nothing, builder.const(0, parts.maxima.dtype), parts.maxima)
    shape, axis = parts.x.shape, parts.x.ndim - 1
    powers = builder.map("exp", builder.map("subtract", parts.x, builder.reshape(least, (*shape[:-1], 1))))
    share = builder.map("exp", builder.map("subtract", parts.maxima, parts.most))
    return builder.map("multiply", builder.reduce("sum", powers, (axis,)), share)


def _count_of_maxima(builder: GraphBuilder, parts: _Parts) -> Value:
    """How many elements of each part are the maximum of all."""
    shape, dtype, axis = parts.x.shape, parts.x.dtype, parts.x.ndim - 1
    same = builder.map("equal", parts.x, builder.reshape(parts.maxima, (*shape[:-1], 1)))
    count = builder.reduce("sum", builder.cast(same, dtype), (axis,))
    return builder.map("where", builder.map("equal", parts.maxima, parts.most), count, builder.const(0, dtype))
