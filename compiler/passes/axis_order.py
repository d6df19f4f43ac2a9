"""Graph -> Graph for a CPU: elementwise work in the axis order of matrix products. They write and read their arrays in
it.

What is stored lies in the order of its axes. A product's result that is transposed before more is computed of it, and
transposed back for the next product, is read with long strides all along; computed as the product wrote it, and
transposed once it is small, it is read as it lies.
"""

from __future__ import annotations

from ...runtime.core.frozen import frozen
from ..core.combiners import COMBINERS
from ..graph.builder import GraphBuilder
from ..graph.graph import Graph, Node, Value, Values
from .simplify import rewrite_nodes, simplify_graph

LEAST = 1 << 12  # elements of an array that is worth it
SMALLER = 4  # how many times smaller an array is that is read in any order
ROUNDS = 4  # a sum over what was turned is turned itself


def keep_axis_order_of_products(graph: Graph) -> Graph:
    """f(permute(a @ b)).sum(i) -> permute(f(a @ b).sum(j)), where all that f takes and gives may be turned."""
    for turned in range(ROUNDS):
        region = _first_region_to_turn(graph, reduced=turned > 0)
        if region is None:
            break
        graph = simplify_graph(_turn_region_axis_order(graph, region))
    return graph


@frozen
class TurnedRegion:
    """Maps of one shape. axes: of the permutation that leads to their order of axes."""

    axes: tuple[int, ...]
    nodes: frozenset[int]


def _first_region_to_turn(graph: Graph, reduced: bool) -> TurnedRegion | None:
    """reduced: also behind a reduction, which may be what an earlier turn has left."""
    for number, node in enumerate(graph.nodes):
        if node.op == "permute" and node.size >= LEAST and _is_axis_order_change(node):
            nodes = (
                _maps_around(graph, number) if _is_source_of_axis_order(graph.nodes[node.args[0]], reduced) else None
            )
            if nodes:
                return TurnedRegion(node.attr("axes"), nodes)
    return None


def _is_source_of_axis_order(node: Node, reduced: bool) -> bool:
    """Whether a node is stored by itself, and computed in one order of axes as well as in another."""
    return node.op == "matmul" or (reduced and node.kind == "reduce")


def _is_axis_order_change(node: Node) -> bool:
    """Whether axes longer than 1 change places."""
    moved = [axis for axis, n in zip(node.attr("axes"), node.shape, strict=True) if n != 1]
    return moved != sorted(moved)


def _maps_around(graph: Graph, start: int) -> frozenset[int]:
    """The maps that the permuted array `start` leads to; none where one of them may not be turned."""
    first = graph.nodes[start]
    found, todo = set[int](), list(graph.users[start])
    while todo:
        number = todo.pop()
        if number in found:
            continue
        node = graph.nodes[number]
        if not _may_read_turned(node, first):
            return frozenset()
        if node.kind == "map":
            if number in graph.outputs:
                return frozenset()
            found.add(number)
            todo += graph.users[number]
            for arg in node.args:
                inner = graph.nodes[arg]
                if inner.kind == "map" and inner.shape == first.shape:
                    todo.append(arg)
                elif inner.shape == first.shape and not _can_axis_order_change(graph, inner, first):
                    return frozenset()
    return frozenset(found)


def _may_read_turned(node: Node, first: Node) -> bool:
    """Whether a node that reads an array of the region may read it turned."""
    kind = node.kind
    if kind == "reduce":
        return len(node.attr("axes")) == 1 or not COMBINERS[node.op].carries_index
    if node.op == "reshape":
        return [n for n in node.shape if n != 1] == [n for n in first.shape if n != 1]
    return node.op in ("permute", "broadcast") or (kind == "map" and node.shape == first.shape)


def _can_axis_order_change(graph: Graph, node: Node, first: Node) -> bool:
    """Whether an array of the region's shape that is none of its maps lies well for them when they are turned."""
    if node.op == "permute":
        return bool(node.attr("axes") == first.attr("axes"))
    if node.op == "broadcast":
        return graph.nodes[node.args[0]].type.size * SMALLER <= node.size
    return node.op == "index"


def _turn_region_axis_order(graph: Graph, region: TurnedRegion) -> Graph:
    """The graph with the region's maps, and reductions of them, in the order of axes that they are permuted from."""
    axes = region.axes
    back = sorted(range(len(axes)), key=lambda i: axes[i])
    shape = graph.nodes[min(region.nodes)].shape
    inside = {graph.nodes[n] for n in region.nodes}
    before = tuple(shape[i] for i in back)

    def turned(builder: GraphBuilder, value: Value) -> Value:
        node = builder.nodes[value.number]
        if value.size == 1:
            return builder.reshape(value, ())
        if node.op == "permute" and node.attr("axes") == axes:
            return builder.at(node.args[0])
        return builder.permute(builder.broadcast(value, shape), back)

    def rule(builder: GraphBuilder, node: Node, args: Values) -> Value | None:
        if node in inside:
            given = tuple(turned(builder, a).number for a in args)
            return builder.permute(builder.add(node.op, given, type(node.type)(before, node.dtype), node.attrs), axes)
        if node.kind != "reduce" or node.args[0] not in region.nodes:
            return None
        gone = node.attr("axes")
        kept = [i for i in range(len(axes)) if i not in {axes[g] for g in gone}]
        kind = type(node.type)(tuple(before[i] for i in kept), node.dtype)
        reduced = tuple(sorted(axes[g] for g in gone))
        total = builder.add(node.op, (turned(builder, args[0]).number,), kind, (("axes", reduced),))
        return builder.permute(total, [kept.index(a) for i, a in enumerate(axes) if i not in gone])

    return rewrite_nodes(graph, rule)
