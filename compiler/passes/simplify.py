"""Graph -> Graph: rewrite rules that are exact for every value. NaN, infinities and -0 are included."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...runtime.core.frozen import frozen
from ..core.types import FLOAT32, FLOAT64, dtype_kind
from ..graph.builder import GraphBuilder, nodes_to_copy
from ..graph.graph import Graph, Node, Value, Values
from ..layout.operands import contiguous_strides, reshape_strides, shapes_differ_in_unit_axes_only
from ..ops.table import OPS
from .materialize import MemoryLayout

Rule = Callable[[GraphBuilder, Node, Values], Value | None]


def simplify_graph(graph: Graph) -> Graph:
    """Each node rebuilt once, its rules tried first; what nobody needs vanishes."""
    return rewrite_nodes(graph, _apply_simplify_rules)


def rewrite_nodes(graph: Graph, rule: Rule) -> Graph:
    """The graph with what the rule gives for a node in that node's place. None leaves it."""
    builder, new = GraphBuilder(graph.name), list[Value]()
    for _, node in nodes_to_copy(graph, builder):
        args = [new[a] for a in node.args]
        new.append(rebuild_node_by_rule(builder, node, args, rule))
    return builder.finish([new[o] for o in graph.outputs])


def rebuild_node_by_rule(builder: GraphBuilder, node: Node, args: Values, rule: Rule) -> Value:
    """What the rule gives for a node; a copy where it gives None."""
    if node.op == "input":
        return builder.input(node.type)
    if node.op == "number":
        value = builder.add("number", (), node.type, node.attrs)
        builder.numbers.append(value.number)
        return value
    found = rule(builder, node, args)
    return builder.copy(node, args) if found is None else found


def _apply_simplify_rules(builder: GraphBuilder, node: Node, args: Values) -> Value | None:
    for rule in RULES.get(node.op, ANYWHERE):
        found = rule(builder, node, args)
        if found is not None:
            return found
    return None


def constant_value_of_node(builder: GraphBuilder | Graph, number: int) -> np.generic | None:
    """What all elements are, where that is known; None where it is not."""
    node = builder.nodes[number]
    while node.op in ("broadcast", "reshape"):
        node = builder.nodes[node.args[0]]
    return np.frombuffer(node.attr("value"), node.dtype)[0] if node.op == "const" else None


def _simplified_to_value(builder: GraphBuilder, node: Node, value: Value) -> Value | None:
    """`value` in the node's place: only where type and broadcasting agree."""
    return builder.broadcast(value, node.shape) if value.dtype == node.dtype else None


def is_real_float_dtype(dtype: np.dtype[Any]) -> bool:
    return dtype_kind(dtype) == "f"


def _is_constant_node_of_number(builder: GraphBuilder, value: Value, number: float) -> bool:
    found = constant_value_of_node(builder, value.number)
    return found is not None and bool(found == number) and not np.signbit(np.asarray(found, np.complex128).real)


def simplify_constants(builder: GraphBuilder, node: Node, args: Values) -> Value | None:
    """f(2, 3) -> the number NumPy gives"""
    if not args or node.kind != "map":
        return None
    values: list[np.generic] = []
    for arg in args:
        value = constant_value_of_node(builder, arg.number)
        if value is None:
            return None
        values.append(value)
    scalar = Node(node.op, node.args, type(node.type)((), node.dtype), node.attrs)
    from ..graph.interpret import interpret_node

    result = interpret_node(scalar, [np.asarray(v) for v in values])
    return builder.broadcast(builder.const(result.reshape(1)[0], node.dtype), node.shape)


def simplify_multiply_by_one(builder: GraphBuilder, node: Node, args: Values) -> Value | None:
    """x * 1 -> x, 1 * x -> x (complex x stays: inf * (1+0j) has a NaN part)"""
    if node.dtype.kind == "c":
        return None
    for one, other in ((1, 0), (0, 1)):
        if _is_constant_node_of_number(builder, args[one], 1):
            return _simplified_to_value(builder, node, args[other])
    return None


def simplify_divide_by_one(builder: GraphBuilder, node: Node, args: Values) -> Value | None:
    """x / 1 -> x (real x)"""
    if node.dtype.kind != "c" and _is_constant_node_of_number(builder, args[1], 1):
        return _simplified_to_value(builder, node, args[0])
    return None


def simplify_divide_by_power_of_two(builder: GraphBuilder, node: Node, args: Values) -> Value | None:
    """x / 4 -> x * 0.25, for every power of two whose reciprocal is a number too (real x): both round the same value.
    Not for a reduction, which has few results: the kernel of a mean is not to depend on how many numbers it takes."""
    divisor = constant_value_of_node(builder, args[1].number) if is_real_float_dtype(node.dtype) else None
    if divisor is None or _is_view_of_reduction(builder, args[0]) or abs(math.frexp(float(divisor))[0]) != 0.5:
        return None
    inverse = 1 / float(divisor)
    with np.errstate(over="ignore"):
        if float(np.asarray(inverse, node.dtype)) != inverse or not math.isfinite(inverse):
            return None
    factor = builder.broadcast(builder.const(inverse, node.dtype), args[1].shape)
    return builder.add("multiply", (args[0].number, factor.number), node.type)


def _is_view_of_reduction(builder: GraphBuilder, value: Value) -> bool:
    node = builder.nodes[value.number]
    while node.op == "cast" or node.kind == "view":
        node = builder.nodes[node.args[0]]
    return node.kind == "reduce"


def simplify_subtract_zero(builder: GraphBuilder, node: Node, args: Values) -> Value | None:
    """x - 0 -> x (not x + 0: -0 + 0 is 0)"""
    if node.dtype.kind != "c" and _is_constant_node_of_number(builder, args[1], 0):
        return _simplified_to_value(builder, node, args[0])
    return None


def simplify_double_negative(builder: GraphBuilder, node: Node, args: Values) -> Value | None:
    """-(-x) -> x"""
    inner = builder.nodes[args[0].number]
    return builder.at(inner.args[0]) if inner.op == "negative" else None


def simplify_double_invert(builder: GraphBuilder, node: Node, args: Values) -> Value | None:
    """~~x -> x"""
    inner = builder.nodes[args[0].number]
    return builder.at(inner.args[0]) if inner.op == "invert" else None


def _argument_of_negative(builder: GraphBuilder, value: Value) -> Value | None:
    """x where the value is -x, of real floats."""
    node = builder.nodes[value.number]
    return builder.at(node.args[0]) if node.op == "negative" and is_real_float_dtype(node.dtype) else None


def _simplified_negative(builder: GraphBuilder, op: str, args: Values, node: Node) -> Value:
    value = builder.add(op, tuple(a.number for a in args), node.type, node.attrs)
    return builder.add("negative", (value.number,), node.type)


def simplify_odd_or_even_of_negative(builder: GraphBuilder, node: Node, args: Values) -> Value | None:
    """sin(-x) -> -sin(x), cos(-x) -> cos(x), and so for every odd and even row"""
    kind = OPS[node.op].parity
    inner = _argument_of_negative(builder, args[0]) if kind else None
    if inner is None:
        return None
    if kind == "odd":
        return _simplified_negative(builder, node.op, [inner], node)
    return builder.copy(node, [inner])


def simplify_negative_factor(builder: GraphBuilder, node: Node, args: Values) -> Value | None:
    """(-x) * y -> -(x * y), x / (-y) -> -(x / y): rounding knows no sign"""
    x, y = args
    left, right = _argument_of_negative(builder, x), _argument_of_negative(builder, y)
    if left is not None and right is not None:
        return builder.add(node.op, (left.number, right.number), node.type)
    if left is not None:
        return _simplified_negative(builder, node.op, [left, y], node)
    return _simplified_negative(builder, node.op, [x, right], node) if right is not None else None


def simplify_add_of_negative(builder: GraphBuilder, node: Node, args: Values) -> Value | None:
    """x + (-y) -> x - y, (-x) + y -> y - x"""
    for one, other in ((0, 1), (1, 0)):
        inner = _argument_of_negative(builder, args[other])
        if inner is not None:
            return builder.add("subtract", (args[one].number, inner.number), node.type)
    return None


def simplify_subtract_of_negative(builder: GraphBuilder, node: Node, args: Values) -> Value | None:
    """x - (-y) -> x + y"""
    inner = _argument_of_negative(builder, args[1])
    return None if inner is None else builder.add("add", (args[0].number, inner.number), node.type)


def simplify_absolute_of_negative(builder: GraphBuilder, node: Node, args: Values) -> Value | None:
    """abs(-x) -> abs(x) (floats; unsigned and the least integer keep their own rules)"""
    inner = builder.nodes[args[0].number]
    if inner.op == "negative" and is_real_float_dtype(inner.dtype):
        return builder.add("absolute", inner.args, node.type)
    return None


def simplify_small_power(builder: GraphBuilder, node: Node, args: Values) -> Value | None:
    """x ** n -> products of x for n = 2, 3, 4; x ** 1 -> x; x ** 0.5 stays (its -inf and -0 differ from sqrt's)"""
    exponent = constant_value_of_node(builder, args[1].number)
    if exponent is None or node.dtype.kind not in "fiu" or args[0].dtype != node.dtype:
        return None
    if not any(exponent == n for n in (1, 2, 3, 4)):
        return None
    base = builder.broadcast(args[0], node.shape)
    if exponent == 1:
        return base
    square = builder.add("multiply", (base.number, base.number), node.type)
    if exponent == 2:
        return square
    other = base if exponent == 3 else square
    return builder.add("multiply", (square.number, other.number), node.type)


def drop_stop_gradient(builder: GraphBuilder, node: Node, args: Values) -> Value | None:
    """stop_gradient(x) -> x: derivatives have been made"""
    return args[0]


def simplify_device_place(builder: GraphBuilder, node: Node, args: Values) -> Value | None:
    """place(x) -> x: on one device all is there"""
    return args[0]


def drop_custom_derivative(builder: GraphBuilder, node: Node, args: Values) -> Value | None:
    """custom(results, ...) -> the result: derivatives have been made"""
    part: int = node.attr("part")
    return args[part]


def simplify_where_of_same(builder: GraphBuilder, node: Node, args: Values) -> Value | None:
    """where(c, x, x) -> x"""
    return _simplified_to_value(builder, node, args[1]) if args[1].number == args[2].number else None


def push_reshape_below_elementwise(builder: GraphBuilder, node: Node, args: Values) -> Value | None:
    """reshape(f(x, 2)) -> f(reshape(x), 2), where x is whole and contiguous: the reshape then costs nothing"""
    free = shapes_differ_in_unit_axes_only(node.shape, args[0].shape)
    if free or not _can_push_reshape(builder, args[0].number, 0, {}):
        return None
    return push_reshape_into_args(builder, args[0], node.shape, {})


def _can_push_reshape(builder: GraphBuilder, number: int, depth: int, known: dict[int, bool]) -> bool:
    """known: the answers so far, since what is used twice would be asked twice, and what that uses four times."""
    if number not in known:
        node = builder.nodes[number]
        if depth and (node.op == "input" or node.kind in ("library", "assembly")):
            known[number] = True
        elif depth > 32 or node.kind != "map":
            known[number] = False
        else:
            inner = [builder.nodes[a].type for a in node.args]
            known[number] = all(t.size == 1 or t.shape == node.shape for t in inner) and all(
                _can_push_reshape(builder, a, depth + 1, known)
                for a, t in zip(node.args, inner, strict=True)
                if t.size != 1
            )
    return known[number]


def push_reshape_into_args(
    builder: GraphBuilder, value: Value, shape: tuple[int, ...], known: dict[int, Value]
) -> Value:
    """The value in another shape: what it is computed of is reshaped. known: what was reshaped so far."""
    if value.number not in known:
        node = builder.nodes[value.number]
        if node.kind != "map":
            known[value.number] = builder.reshape(value, shape)
        else:
            every = [builder.at(a) for a in node.args]
            args = [
                push_reshape_into_args(builder, a, shape, known) if a.shape == value.shape else builder.reshape(a, ())
                for a in every
            ]
            known[value.number] = builder.copy(node, args, type(value.type)(shape, value.dtype))
    return known[value.number]


def simplify_slice_of_slice(builder: GraphBuilder, node: Node, args: Values) -> Value | None:
    """x[a::s][b::t] -> x[a + b s::s t]"""
    inner = builder.nodes[args[0].number]
    if inner.op != "slice" or 0 in node.shape:
        return None
    pairs = zip(inner.attr("starts"), inner.attr("steps"), node.attr("starts"), node.attr("steps"), strict=True)
    starts, steps = zip(*((a + b * s, s * t) for a, s, b, t in pairs), strict=True)
    return builder.slice(builder.at(inner.args[0]), starts, steps, node.shape)


def simplify_permute_of_permute(builder: GraphBuilder, node: Node, args: Values) -> Value | None:
    """x.transpose(p).transpose(q) -> x.transpose(p[q])"""
    inner = builder.nodes[args[0].number]
    if inner.op != "permute":
        return None
    return builder.permute(builder.at(inner.args[0]), [inner.attr("axes")[i] for i in node.attr("axes")])


def simplify_cast_of_cast(builder: GraphBuilder, node: Node, args: Values) -> Value | None:
    """x.astype(wider).astype(x.dtype) -> x, of floats"""
    inner = builder.nodes[args[0].number]
    if inner.op != "cast" or not all(is_real_float_dtype(n.dtype) for n in (inner, node)):
        return None
    source = builder.at(inner.args[0])
    wider = source.dtype.itemsize < inner.dtype.itemsize and inner.dtype.itemsize >= 4
    return source if wider and source.dtype == node.dtype else None


def simplify_broadcast_of_broadcast(builder: GraphBuilder, node: Node, args: Values) -> Value | None:
    """broadcast_to(broadcast_to(x, s), t) -> broadcast_to(x, t)"""
    inner = builder.nodes[args[0].number]
    return builder.broadcast(builder.at(inner.args[0]), node.shape) if inner.op == "broadcast" else None


def simplify_update_of_whole(builder: GraphBuilder, node: Node, args: Values) -> Value | None:
    """x[:] = v -> v"""
    whole = args[1].shape == node.shape and all(
        start == 0 and (step == 1 or n == 1)
        for start, step, n in zip(node.attr("starts"), node.attr("steps"), node.shape, strict=True)
    )
    return args[1] if whole else None


def simplify_updates_side_by_side(builder: GraphBuilder, node: Node, args: Values) -> Value | None:
    """x[:n] = a; x[n:] = b -> concat(a, b);  x[::2] = a; x[1::2] = b -> stack(a, b, 1).reshape(-1)"""
    shape, parts = node.shape, _updates_that_cover(builder, node, args)
    cut = [i for i, n in enumerate(shape) if parts[0][1].shape[i] != n]
    if len(parts) == 1 or len(cut) != 1:
        return None
    (axis,) = cut
    for i, size in enumerate(shape):
        if i != axis and size != 1 and {(n.attr("steps")[i], v.shape[i]) for n, v in parts} != {(1, size)}:
            return None
    parts.sort(key=lambda part: part[0].attr("starts")[axis])
    starts, values = [n.attr("starts")[axis] for n, _ in parts], [v for _, v in parts]
    steps = {n.attr("steps")[axis] for n, v in parts if v.shape[axis] != 1}
    lengths = [v.shape[axis] for v in values]
    if steps <= {1} and starts == [sum(lengths[:i]) for i in range(len(parts))]:
        return builder.concat(values, axis)
    if steps == {len(parts)} and starts == list(range(len(parts))) and len(set(lengths)) == 1:
        return builder.reshape(
            builder.concat([_simplified_with_unit_axis(builder, v, axis) for v in values], axis + 1), shape
        )
    return None


def _updates_that_cover(builder: GraphBuilder, node: Node, args: Values) -> list[tuple[Node, Value]]:
    """The updates one on another, with their values, that are as large as the array; the last one where none are."""
    found, covered, below = [(node, args[1])], args[1].size, builder.nodes[args[0].number]
    while covered < node.size and len(found) < CONCATENATED and below.op == "update":
        found.append((below, builder.at(below.args[1])))
        covered += found[-1][1].type.size
        below = builder.nodes[below.args[0]]
    return found if covered == node.size else found[:1]


def _simplified_with_unit_axis(builder: GraphBuilder, value: Value, axis: int) -> Value:
    """With an axis of length 1 after this one."""
    return builder.reshape(value, (*value.shape[: axis + 1], 1, *value.shape[axis + 1 :]))


CONCATENATED = 16  # parts; more are written one after the other
ANYWHERE: tuple[Rule, ...] = (simplify_constants, simplify_odd_or_even_of_negative)
_RULES_OF_OPS: dict[str, tuple[Rule, ...]] = {
    "stop_gradient": (drop_stop_gradient,),
    "custom": (drop_custom_derivative,),
    "place": (simplify_device_place,),
    "multiply": (simplify_multiply_by_one, simplify_negative_factor),
    "divide": (simplify_divide_by_one, simplify_divide_by_power_of_two, simplify_negative_factor),
    "approximate_divide": (simplify_divide_by_one, simplify_divide_by_power_of_two, simplify_negative_factor),
    "add": (simplify_add_of_negative,),
    "subtract": (simplify_subtract_zero, simplify_subtract_of_negative),
    "negative": (simplify_double_negative,),
    "invert": (simplify_double_invert,),
    "absolute": (simplify_absolute_of_negative,),
    "power": (simplify_small_power,),
    "where": (simplify_where_of_same,),
    "reshape": (push_reshape_below_elementwise,),
    "update": (simplify_update_of_whole, simplify_updates_side_by_side),
    "slice": (simplify_slice_of_slice,),
    "permute": (simplify_permute_of_permute,),
    "cast": (simplify_cast_of_cast,),
    "broadcast": (simplify_broadcast_of_broadcast,),
}
RULES = {op: rules + ANYWHERE for op, rules in _RULES_OF_OPS.items()}


LEAST = 1 << 9  # elements of the matrix: below, one kernel more costs what the better one gains


def rewrite_sums_as_vector_products(graph: Graph, layouts: Sequence[MemoryLayout]) -> Graph:
    """add(sum(multiply(matrix, row), axis 1), 0.0) -> matmul(matrix, column); layouts: of the graph's inputs"""
    found = {node for node in graph.nodes if _simplifies_to_vector_product(graph, layouts, node)}
    if not found:
        return graph

    def replace_by_matmul(builder: GraphBuilder, node: Node, args: Values) -> Value | None:
        if node not in found:
            return None
        total = _row_sum_that_is_matmul(
            builder.nodes, Node(node.op, tuple(a.number for a in args), node.type, node.attrs)
        )
        assert total is not None
        matrix, row = (builder.at(n) for n in _matrix_and_row_of_product(builder.nodes, total))
        return builder.reshape(builder.matmul(matrix, builder.reshape(row, (row.shape[1], 1))), node.shape)

    return rewrite_nodes(graph, replace_by_matmul)


@frozen
class _Sum:
    """The numbers of a sum and of the product that it adds up."""

    sum: int
    product: int


def _simplifies_to_vector_product(graph: Graph, layouts: Sequence[MemoryLayout], node: Node) -> bool:
    total = _row_sum_that_is_matmul(graph.nodes, node)
    if total is None or any(n in graph.outputs or len(graph.users[n]) != 1 for n in (total.sum, total.product)):
        return False
    matrix, row = _matrix_and_row_of_product(graph.nodes, total)
    rows, columns = (_strides_of_materialized_node(graph.nodes, n, layouts) for n in (matrix, row))
    item = node.dtype.itemsize
    if rows is None or item not in rows or graph.nodes[matrix].size < LEAST:
        return False
    return columns is None or rows[1] != item or columns[1] == item


def _row_sum_that_is_matmul(nodes: Sequence[Node], node: Node) -> _Sum | None:
    """What the front end writes for a product of a matrix and a vector: from 0.0 on, which makes it a product."""
    if node.op != "add" or node.dtype not in (FLOAT32, FLOAT64) or node.ndim != 1:
        return None
    number, zero = node.args
    total = nodes[number]
    if total.op != "sum" or nodes[zero].op != "const" or any(nodes[zero].attr("value")):
        return None
    product = nodes[total.args[0]]
    if product.op != "multiply" or total.attr("axes") != (1,) or product.dtype != node.dtype:
        return None
    found = _Sum(number, total.args[0])
    matrix, row = (nodes[n].type for n in _matrix_and_row_of_product(nodes, found))
    fits = matrix.shape == product.shape and row.shape == (1, product.shape[1]) and product.shape[0] > 1
    return found if fits and matrix.dtype == row.dtype == node.dtype else None


def _matrix_and_row_of_product(nodes: Sequence[Node], total: _Sum) -> tuple[int, int]:
    """The matrix and the row."""
    a, b = nodes[total.product].args
    return (b, a) if nodes[a].shape[:1] == (1,) else (a, b)


def _strides_of_materialized_node(
    nodes: Sequence[Node], number: int, layouts: Sequence[MemoryLayout]
) -> tuple[int, ...] | None:
    """How a node that is in memory anyway lies there; None for what is computed where it is read."""
    node = nodes[number]
    if node.op == "input":
        layout: MemoryLayout = layouts[node.attr("index")]
        return layout.strides
    if node.kind == "library":
        return contiguous_strides(node.shape, node.dtype.itemsize)
    source = _strides_of_materialized_node(nodes, node.args[0], layouts) if node.kind == "view" else None
    if source is None:
        return None
    if node.op == "slice":
        return tuple(s * step for s, step in zip(source, node.attr("steps"), strict=True))
    if node.op == "permute":
        return tuple(source[axis] for axis in node.attr("axes"))
    if node.op == "reshape":
        return reshape_strides(nodes[node.args[0]].shape, source, node.shape)
    return None
