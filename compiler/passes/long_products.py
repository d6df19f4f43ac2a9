"""Graph -> Graph for a GPU: several products of small matrices that sum much are cut, so that they occupy it; products
of one matrix with many thin ones are joined.

A library gives each tile of a result to one multiprocessor; of a single product it cuts the sums itself. A matrix of
few columns leaves most of a tile unused.
"""

from __future__ import annotations

import math

from ..core.types import FLOAT32, FLOAT64
from ..graph.builder import GraphBuilder
from ..graph.graph import Graph, Node, Value, Values
from .simplify import rewrite_nodes, simplify_graph

TILE = 64  # rows and columns of a library's tile
TILES = 512  # that occupy a GPU
CALLS = 4  # how many times as many parts as calls pay
COPY = 160  # products that take as long as copying an element to where it is joined and back
LONG = 256  # products that are summed in one go at least


def join_thin_products(graph: Graph) -> Graph:
    """a @ b of one matrix with many of few columns -> one product with all columns side by side; and of many of few
    rows with one matrix likewise. What is copied for it is little beside the products."""
    joined = False

    def rule(builder: GraphBuilder, node: Node, args: Values) -> Value | None:
        nonlocal joined
        if node.op != "matmul" or node.attrs or args[0].dtype not in (FLOAT32, FLOAT64):
            return None
        a, b = args
        many = [v for v in (a, b) if math.prod(v.shape[:-2]) > 1]
        if len(many) != 1 or math.prod(node.shape[:-2]) != math.prod(many[0].shape[:-2]):
            return None
        (m, k), n = a.shape[-2:], b.shape[-1]
        thin = m if many[0] is a else n
        if (m * n // thin) * k * (TILE - thin) <= COPY * thin * (m * n // thin + k):
            return None
        joined = True
        return (_product_of_joined_rows if many[0] is a else _product_of_joined_columns)(builder, node, a, b)

    written = rewrite_nodes(graph, rule)
    return simplify_graph(written) if joined else graph


def _product_of_joined_rows(builder: GraphBuilder, node: Node, a: Value, b: Value) -> Value:
    rows = builder.reshape(a, (a.size // a.shape[-1], a.shape[-1]))
    return builder.reshape(builder.matmul(rows, builder.reshape(b, b.shape[-2:])), node.shape)


def _product_of_joined_columns(builder: GraphBuilder, node: Node, a: Value, b: Value) -> Value:
    batch, rank = b.shape[:-2], b.ndim
    (m, k), n = a.shape[-2:], b.shape[-1]
    columns = builder.reshape(builder.permute(b, (rank - 2, *range(rank - 2), rank - 1)), (k, b.size // k))
    product = builder.reshape(builder.matmul(builder.reshape(a, (m, k)), columns), (m, *batch, n))
    return builder.reshape(builder.permute(product, (*range(1, rank - 1), 0, rank - 1)), node.shape)


def cut_long_products(graph: Graph) -> Graph:
    """a @ b -> the sum of products of parts of a's rows and b's columns, where results are few and sums long."""
    cut = False

    def rule(builder: GraphBuilder, node: Node, args: Values) -> Value | None:
        nonlocal cut
        parts = _parts_of_product(builder, node, args[0], args[1]) if node.op == "matmul" and not node.attrs else 0
        cut = cut or bool(parts)
        return _sum_of_partial_products(builder, args[0], args[1], parts) if parts else None

    written = rewrite_nodes(graph, rule)
    return simplify_graph(written) if cut else graph


def _parts_of_product(builder: GraphBuilder, node: Node, a: Value, b: Value) -> int:
    """Into how many parts its sums are cut; 0 for none. Where the products of all parts are several calls, each has to
    do much less."""
    products, long = math.prod(a.shape[:-2]), a.shape[-1]
    if (
        products < 2
        or a.shape[:-2] != b.shape[:-2]
        or node.dtype != a.dtype
        or node.dtype.char not in "fd"
        or not node.size
    ):
        return 0
    tiles = products * -(-a.shape[-2] // TILE) * -(-b.shape[-1] // TILE)
    least = CALLS * products if _is_sum_innermost(builder, a, b) else 1
    return next((n for n in range(min(TILES // tiles, long // LONG), least, -1) if long % n == 0), 0)


def _is_sum_innermost(builder: GraphBuilder, a: Value, b: Value) -> bool:
    """Whether elements that are summed lie side by side in either; every n-th of them then make no rows or columns."""
    rank = a.ndim
    return any(_axis_in_memory(builder, v, axis)[1] == rank - 1 for v, axis in ((a, rank - 1), (b, rank - 2)))


def _axis_in_memory(builder: GraphBuilder, value: Value, axis: int) -> tuple[Value, int, list[int]]:
    """What an array is a permutation of, the place of an axis there, and that of all of its axes."""
    node, axes = builder.nodes[value.number], list(range(value.ndim))
    if node.op == "permute":
        value, axes = builder.at(node.args[0]), list(node.attr("axes"))
    return value, axes[axis], axes


def _sum_of_partial_products(builder: GraphBuilder, a: Value, b: Value, parts: int) -> Value:
    """A part is every `parts`-th element: where the summed axis is the outermost in memory, all products of all parts
    then lie at one distance from each other, and are one call. Where that axis is the innermost, a part is a run."""
    long, rank, runs = a.shape[-1] // parts, a.ndim, int(_is_sum_innermost(builder, a, b))

    def cut(value: Value, axis: int) -> Value:
        value, place, axes = _axis_in_memory(builder, value, axis)  # cut as it lies in memory
        both = (parts, long) if runs else (long, parts)
        shape = (*value.shape[:place], *both, *value.shape[place + 1 :])
        moved = [i + (i > place or (runs and i == place)) for i in axes]
        return builder.permute(builder.reshape(value, shape), [place + 1 - runs, *moved])

    product = builder.matmul(cut(a, rank - 1), cut(b, rank - 2))
    return builder.reduce("sum", product, (0,), product.dtype)
