"""Graph -> Graph for a target with kernels for products of a matrix and a vector: what is a sum of products becomes a
matmul again where the matrix is in memory, so that nothing but its sum would be in the kernel.

The front end writes small products as sums, which fuse with whatever computes their factors. Of a matrix that is read
from memory there is nothing to fuse, and a kernel that takes several rows at a time loads the vector once for them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...runtime.core.frozen import dataclass
from ..core.types import FLOAT32, FLOAT64
from ..graph.builder import GraphBuilder
from ..graph.graph import Graph, Node, Value
from ..layout.index_maps import contiguous_strides, reshape_strides
from ..ops.table import OPS
from .materialize import MemoryLayout
from .simplify import rewrite_nodes

LEAST = 1 << 9  # elements of the matrix: below, one kernel more costs what the better one gains


def find_vector_products(graph: Graph, layouts: Sequence[MemoryLayout]) -> Graph:
    """add(sum(multiply(matrix, row), axis 1), 0.0) -> matmul(matrix, column); layouts: of the graph's inputs"""
    found = {node for node in graph.nodes if _is_product(graph, layouts, node)}
    if not found:
        return graph

    def rule(builder: GraphBuilder, node: Node, args: Sequence[Value]) -> Value | None:
        if node not in found:
            return None
        total = _total(builder.nodes, Node(node.op, tuple(a.number for a in args), node.type, node.attrs))
        assert total is not None
        matrix, row = (builder.at(n) for n in _factors(builder.nodes, total))
        return builder.reshape(builder.matmul(matrix, builder.reshape(row, (row.shape[1], 1))), node.type.shape)

    return rewrite_nodes(graph, rule)


@dataclass(frozen=True, slots=True)
class _Sum:
    """The numbers of a sum and of the product that it adds up."""

    sum: int
    product: int


def _is_product(graph: Graph, layouts: Sequence[MemoryLayout], node: Node) -> bool:
    total = _total(graph.nodes, node)
    if total is None or any(n in graph.outputs or len(graph.users[n]) != 1 for n in (total.sum, total.product)):
        return False
    matrix, row = _factors(graph.nodes, total)
    rows, columns = (_strides(graph.nodes, n, layouts) for n in (matrix, row))
    item = node.type.dtype.itemsize
    if rows is None or item not in rows or graph.nodes[matrix].type.size < LEAST:
        return False
    return columns is None or rows[1] != item or columns[1] == item


def _total(nodes: Sequence[Node], node: Node) -> _Sum | None:
    """What the front end writes for a product of a matrix and a vector: from 0.0 on, which makes it a product."""
    if node.op != "add" or node.type.dtype not in (FLOAT32, FLOAT64) or len(node.type.shape) != 1:
        return None
    number, zero = node.args
    total = nodes[number]
    if total.op != "sum" or nodes[zero].op != "const" or any(nodes[zero].attr("value")):
        return None
    product = nodes[total.args[0]]
    if product.op != "multiply" or total.attr("axes") != (1,) or product.type.dtype != node.type.dtype:
        return None
    found = _Sum(number, total.args[0])
    matrix, row = (nodes[n].type for n in _factors(nodes, found))
    fits = matrix.shape == product.type.shape and row.shape == (1, product.type.shape[1]) and product.type.shape[0] > 1
    return found if fits and matrix.dtype == row.dtype == node.type.dtype else None


def _factors(nodes: Sequence[Node], total: _Sum) -> tuple[int, int]:
    """The matrix and the row."""
    a, b = nodes[total.product].args
    return (b, a) if nodes[a].type.shape[:1] == (1,) else (a, b)


def _strides(nodes: Sequence[Node], number: int, layouts: Sequence[MemoryLayout]) -> tuple[int, ...] | None:
    """How a node that is in memory anyway lies there; None for what is computed where it is read."""
    node = nodes[number]
    if node.op == "input":
        layout: MemoryLayout = layouts[node.attr("index")]
        return layout.strides
    if OPS[node.op].kind == "library":
        return contiguous_strides(node.type.shape, node.type.dtype.itemsize)
    source = _strides(nodes, node.args[0], layouts) if OPS[node.op].kind == "view" else None
    if source is None:
        return None
    if node.op == "slice":
        return tuple(s * step for s, step in zip(source, node.attr("steps"), strict=True))
    if node.op == "permute":
        return tuple(source[axis] for axis in node.attr("axes"))
    if node.op == "reshape":
        return reshape_strides(nodes[node.args[0]].type.shape, source, node.type.shape)
    return None
