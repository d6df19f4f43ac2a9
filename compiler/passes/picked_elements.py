"""Graph -> Graph: a few elements that are picked of a large array are computed alone; the rest of it need not be there.

The loss of a classifier picks one of each row's logarithms of probabilities, by an index or by a mask that is true at
one place. As a gather of what is in memory anyway it reads no more than that.
"""

from __future__ import annotations

import numpy as np

from ..core.types import HALVES, INT64, ArrayType
from ..graph.builder import GraphBuilder
from ..graph.graph import Graph, Node, Value, Values
from .simplify import constant_value_of_node, rewrite_nodes, simplify_graph

LARGE = 1 << 20  # elements of an array of which a mask picks some
FEW = 16  # times as many elements as are picked
EPILOGUES = ("add", "relu", "maximum")  # a bias, and an activation


def compute_picked_elements(graph: Graph) -> Graph:
    """sum(where(labels[:, None] == arange(n), x, 0), -1) -> x[arange, labels] or 0, and f(x, y)[i] -> f(x[i], y[i])."""
    rules = {"sum": _pick_by_index, "gather": _gather_arguments}
    if not any(node.op in rules for node in graph.nodes):
        return graph
    picked = False

    def rule(builder: GraphBuilder, node: Node, args: Values) -> Value | None:
        nonlocal picked
        found = rules[node.op](builder, node, args) if node.op in rules else None
        picked = picked or found is not None
        return found

    written = rewrite_nodes(graph, rule)
    return simplify_graph(written) if picked else graph


def _pick_by_index(builder: GraphBuilder, node: Node, args: Values) -> Value | None:
    """The sum of a row of which a comparison of a label with the places leaves one element; of none it is 0."""
    masked, rank = builder.nodes[args[0].number], args[0].ndim
    if masked.op != "where" or node.attr("axes") != (rank - 1,) or args[0].size < LARGE:
        return None
    condition, x, zero = map(builder.at, masked.args)
    zeros = constant_value_of_node(builder, zero.number)
    labels = _labels_of_one_place(builder, condition)
    shape, length = node.shape, args[0].shape[-1]
    if labels is None or zeros is None or zeros != 0 or labels.shape != shape or node.dtype != x.dtype:
        return None
    if length < FEW:
        return None
    labels = builder.cast(labels, INT64)
    known = builder.map("bitwise_and", builder.map("greater_equal", labels, 0), builder.map("less", labels, length))
    places = builder.map("where", known, labels, 0)
    attrs = (("axes", (rank - 1,)), ("rest", tuple(range(rank - 1))), ("checked", False))
    gather = Node("gather", (x.number, places.number), ArrayType(shape, x.dtype), attrs)
    found = _Gather(builder, args[0].shape, gather, [places]).elements(x)
    if found is None:
        return None
    chosen = builder.map("where", known, found, builder.const(0, x.dtype))
    return builder.broadcast(builder.map("add", chosen, builder.const(0, x.dtype)), shape)


def _labels_of_one_place(builder: GraphBuilder, condition: Value) -> Value | None:
    """labels of labels[..., None] == arange(n)"""
    node = builder.nodes[condition.number]
    if node.op != "equal":
        return None
    for one, other in (node.args, node.args[::-1]):
        labels = builder.at(one)
        if _counts_from_zero(builder, other) and labels.shape[-1:] == (1,) and labels.dtype.kind in "iu":
            return builder.reshape(labels, labels.shape[:-1])
    return None


def _counts_from_zero(builder: GraphBuilder, number: int) -> bool:
    """Whether the elements of an array of one axis are their places."""
    node = builder.nodes[number]
    if node.op == "add":
        values = [constant_value_of_node(builder, a) for a in node.args]
        return values[1] == 0 and _counts_from_zero(builder, node.args[0])
    return node.op == "index" and node.ndim == 1


def _gather_arguments(builder: GraphBuilder, node: Node, args: Values) -> Value | None:
    """Elements of what is computed -> computed of elements"""
    x, *indices = args
    source = builder.nodes[x.number]
    if source.kind != "map" or _may_end_a_product(builder, source) or node.size * FEW > x.size:
        return None
    return _Gather(builder, x.shape, node, indices).elements(x)


class _Gather:
    """Of what is made of arrays of a shape, and of such that repeat along its axes: the elements at some indices."""

    def __init__(self, builder: GraphBuilder, shape: tuple[int, ...], node: Node, indices: Values) -> None:
        """node: the gather of such an array."""
        self.builder, self.shape, self.result = builder, shape, node.shape
        self.checked = node.attr("checked")
        self.at = dict(zip(node.attr("axes"), indices, strict=True))
        rest = [axis for axis in range(len(shape)) if axis not in self.at]
        self.rest = dict(zip(rest, node.attr("rest"), strict=True))
        self.known: dict[int, Value | None] = {}

    def elements(self, x: Value) -> Value | None:
        """Computed of elements of arrays in memory; None where there is none such."""
        if not x.shape:
            return x
        if x.number not in self.known:
            node = self.builder.nodes[x.number]
            if node.op == "broadcast":
                return self.elements(self.builder.at(node.args[0]))
            computed = node.kind == "map" and not _may_end_a_product(self.builder, node)
            self.known[x.number] = self.computed(node) if computed else self.looked_up(x)
        return self.known[x.number]

    def computed(self, node: Node) -> Value | None:
        found = list[int]()
        for arg in map(self.builder.at, node.args):
            part = self.elements(arg)
            if part is None:
                return None
            found.append(part.number)
        shape = np.broadcast_shapes(*(self.builder.at(n).shape for n in found))
        return self.builder.add(node.op, tuple(found), ArrayType(shape, node.dtype), node.attrs)

    def looked_up(self, x: Value) -> Value | None:
        """Of an array that may repeat along some axes. An axis of which it has all keeps its number, which an error may
        name."""
        source = _source_of_views(self.builder, x.number)
        inner = source.kind == "map" and not _may_end_a_product(self.builder, source)
        first = len(self.shape) - x.ndim
        own = [i for i in range(first, len(self.shape)) if x.shape[i - first] == self.shape[i]]
        if inner or source.op in ("index", "const") or own != list(range(len(own))):
            return None
        x = self.builder.reshape(x, self.shape[: len(own)])
        axes = tuple(axis for axis in own if axis in self.at)
        kept = tuple(self.rest[axis] for axis in own if axis not in self.at)
        if axes:
            indices = [self.at[axis] for axis in axes]
            return self.builder.gather(x, indices, axes, kept, self.result, self.checked)
        if kept != tuple(sorted(kept)):
            return None
        spread = [self.result[axis] if axis in kept else 1 for axis in range(len(self.result))]
        return self.builder.broadcast(self.builder.reshape(x, spread), self.result)


def _source_of_views(builder: GraphBuilder, number: int) -> Node:
    while builder.nodes[number].kind == "view":
        number = builder.nodes[number].args[0]
    return builder.nodes[number]


def _may_end_a_product(builder: GraphBuilder, node: Node) -> bool:
    """Whether a library may write this instead of the product that it is made of: one in 16 bits, with a bias that is a
    row, or after an activation."""
    args = [builder.at(n) for n in node.args]
    products = [a for a in args if _source_of_views(builder, a.number).op == "matmul" and a.shape == node.shape]
    if len(products) != 1:
        return False
    rows = all(a.size <= node.shape[-1] for a in args if a is not products[0])
    return rows and (node.op in EPILOGUES or (node.op == "cast" and node.dtype in HALVES))
