"""Graph -> Graph for a GPU: several products of small matrices that sum much are cut, so that they occupy it.

A library gives each tile of a result to one multiprocessor; of a single product it cuts the sums itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..graph.builder import GraphBuilder
from ..graph.graph import Graph, Node, Value
from .simplify import rewrite_nodes, simplify_graph

TILE = 64  # rows and columns of a library's tile
TILES = 512  # that occupy a GPU
LONG = 256  # products that are summed in one go at least


def cut_long_products(graph: Graph) -> Graph:
    """a @ b -> the sum of products of parts of a's rows and b's columns, where results are few and sums long."""
    cut = False

    def rule(builder: GraphBuilder, node: Node, args: Sequence[Value]) -> Value | None:
        nonlocal cut
        parts = _parts_of_product(node, args[0], args[1]) if node.op == "matmul" and not node.attrs else 0
        cut = cut or bool(parts)
        return _sum_of_partial_products(builder, args[0], args[1], parts) if parts else None

    written = rewrite_nodes(graph, rule)
    return simplify_graph(written) if cut else graph


def _parts_of_product(node: Node, a: Value, b: Value) -> int:
    """Into how many parts its sums are cut; 0 for none."""
    products, long = math.prod(a.shape[:-2]), a.shape[-1]
    if products < 2 or a.shape[:-2] != b.shape[:-2] or node.type.dtype.char not in "fd" or not node.type.size:
        return 0
    tiles = products * -(-a.shape[-2] // TILE) * -(-b.shape[-1] // TILE)
    return next((n for n in range(min(TILES // tiles, long // LONG), 1, -1) if long % n == 0), 0)


def _sum_of_partial_products(builder: GraphBuilder, a: Value, b: Value, parts: int) -> Value:
    """A part is every `parts`-th element: where the summed axis is the outermost in memory, all products of all parts
    then lie at one distance from each other, and are one call."""
    long, rank = a.shape[-1] // parts, len(a.shape)

    def cut(value: Value, axis: int) -> Value:
        node, axes = builder.nodes[value.number], list(range(rank))
        if node.op == "permute":  # cut as it lies in memory
            value, axes = builder.at(node.args[0]), list(node.attr("axes"))
        place = axes[axis]
        shape = (*value.shape[:place], long, parts, *value.shape[place + 1 :])
        return builder.permute(builder.reshape(value, shape), [place + 1, *(i + (i > place) for i in axes)])

    product = builder.matmul(cut(a, rank - 1), cut(b, rank - 2))
    return builder.reduce("sum", product, (0,), product.dtype)
