"""Graph -> Graph for a GPU: what products multiply. 16-bit numbers stay as they are, float32 is rounded where that is
allowed; sums are in float32.

A library multiplies 16-bit numbers and adds them in float32, whichever of the two the result is. NumPy has no such
product: a graph casts the operands first, which writes them out anew and multiplies at a tenth of the speed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..core.types import FLOAT32, HALVES, ArrayType, bfloat16
from ..graph.builder import GraphBuilder
from ..graph.graph import Graph, Node, Value, Values
from ..graph.precision import ROUNDED_DTYPES, precision_of_attrs
from .simplify import rewrite_nodes

Rule = Callable[[GraphBuilder, Node, Values], Value | None]


def multiply_16_bit_operands(graph: Graph) -> Graph:
    """cast(a) @ cast(b) in float32 -> a @ b with a float32 result, of arrays of one 16-bit dtype: the same numbers. A
    cast to 16 bits of views of a product becomes views of a cast, which is the product's epilogue."""
    if all(node.op != "matmul" for node in graph.nodes):
        return graph
    rules = {"matmul": _product_of_16_bit_operands, "cast": _cast_before_views_of_product}
    return rewrite_nodes(
        graph, lambda builder, node, args: rules[node.op](builder, node, args) if node.op in rules else None
    )


def _cast_before_views_of_product(builder: GraphBuilder, node: Node, args: Values) -> Value | None:
    """cast(permute(a @ b)) -> permute(cast(a @ b))"""
    views, number = list[Node](), args[0].number
    while builder.nodes[number].op in ("permute", "reshape"):
        views.append(builder.nodes[number])
        number = builder.nodes[number].args[0]
    if not views or builder.nodes[number].op != "matmul" or node.dtype not in HALVES:
        return None
    value = builder.cast(builder.at(number), node.dtype)
    for view in reversed(views):
        value = builder.copy(view, [value], ArrayType(view.shape, value.dtype))
    return value


def round_operands_as_allowed(graph: Graph, precision: str) -> Graph:
    """a @ b of float32 -> the same with numbers rounded as the product or else `precision` allows."""

    def round_operands(builder: GraphBuilder, node: Node, args: Values) -> Value | None:
        name = precision_of_attrs(node.attrs) or precision
        rule = _PRODUCTS.get(name) if args[0].dtype in ROUNDED_DTYPES else None
        return None if rule is None else rule(builder, node, args)

    return _rewrite_products(graph, round_operands)


def forget_precision(graph: Graph) -> Graph:
    """a @ b with a precision -> a @ b, for a library that has no other than float32."""
    if not any(node.op == "matmul" and node.attrs for node in graph.nodes):
        return graph
    return _rewrite_products(graph, lambda builder, node, args: builder.matmul(*args, precision=""))


def multiply_float16_in_float32(graph: Graph) -> Graph:
    """a @ b of float16 -> cast(cast(a) @ cast(b)), which a library has, and which adds as NumPy does."""

    def widen_operands(builder: GraphBuilder, node: Node, args: Values) -> Value | None:
        if any(a.dtype != np.float16 for a in args) or node.dtype != np.float16:
            return None
        return builder.cast(builder.matmul(*(builder.cast(a, FLOAT32) for a in args)), node.dtype)

    return _rewrite_products(graph, widen_operands)


def _rewrite_products(graph: Graph, rule: Rule) -> Graph:
    if all(node.op != "matmul" for node in graph.nodes):
        return graph
    return rewrite_nodes(graph, lambda builder, node, args: rule(builder, node, args) if node.op == "matmul" else None)


def _product_of_16_bit_operands(builder: GraphBuilder, node: Node, args: Values) -> Value | None:
    narrow = [_array_before_widening(builder, a) for a in args]
    a, b = narrow[0], narrow[1]
    if node.dtype != FLOAT32 or a is None or b is None or a.dtype != b.dtype or a.dtype not in HALVES:
        return None
    return builder.add("matmul", (a.number, b.number), node.type)


def _array_before_widening(builder: GraphBuilder, value: Value) -> Value | None:
    """The 16-bit array that a float32 one is a cast of, perhaps seen through views."""
    node = builder.nodes[value.number]
    if not node.args or value.dtype != FLOAT32:
        return None
    given = builder.at(node.args[0])
    if node.op == "cast":
        return given if given.dtype in HALVES else None
    inner = _array_before_widening(builder, given) if node.kind == "view" else None
    return inner and builder.copy(node, [inner], ArrayType(value.shape, inner.dtype))


def _product_in_tf32(builder: GraphBuilder, node: Node, args: Values, name: str = "tf32") -> Value:
    """Numbers rounded to 11 bits."""
    return builder.add("matmul", tuple(a.number for a in args), node.type, (("precision", name),))


def _product_in_bf16(builder: GraphBuilder, node: Node, args: Values) -> Value | None:
    """Numbers rounded to 8 bits, at twice the speed of TF32 and with half of the memory."""
    if node.dtype != FLOAT32:
        return _product_in_tf32(builder, node, args)
    numbers = []
    for a in args:
        given = _array_before_widening(builder, a)
        numbers.append((builder.cast(a, bfloat16) if given is None or given.dtype != bfloat16 else given).number)
    return builder.add("matmul", tuple(numbers), node.type, (("precision", "bf16"),))


def _product_in_tf32_parts(builder: GraphBuilder, node: Node, args: Values) -> Value | None:
    """a @ b -> [a1 a1 a2] @ [b1; b2; b1], where a = a1 + a2: some 21 bits of each number. An infinity gives NaN where
    the other's second part is 0, as elsewhere in this method."""
    if node.dtype != FLOAT32:
        return None
    parts = []
    for a in args:
        high = builder.map("high_bits", a)
        parts.append((high, builder.map("subtract", a, high)))
    (a1, a2), (b1, b2) = parts
    left = builder.concat([a1, a1, a2], len(a1.shape) - 1)
    return _product_in_tf32(builder, node, [left, builder.concat([b1, b2, b1], b1.ndim - 2)], "tf32x3")


_PRODUCTS: dict[str, Rule] = {"tf32": _product_in_tf32, "bf16": _product_in_bf16, "tf32x3": _product_in_tf32_parts}
