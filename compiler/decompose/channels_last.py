"""Graph -> Graph for a GPU with a library of convolutions: between those with channels last, arrays keep them last.

A call of the library reads and writes its images with channels last; around each its axes are turned. What lies between
two calls (elementwise work, windows of pooling, parts that are joined, sums) is turned as a whole: the axes are changed
once at each end of such a chain. A call by itself takes its images as they are, where that is faster.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ...runtime.core.frozen import frozen
from ...runtime.program.dnn import DnnLibrary, dnn_call_of_arrays
from ..core.combiners import COMBINERS
from ..core.cost import HALF_SPEED, WorkCostModel
from ..core.types import FLOAT32, ArrayType
from ..graph.builder import GraphBuilder
from ..graph.graph import Graph, Node, Value, Values
from ..passes.matmul_epilogue import match_epilogue_activation, match_epilogue_bias
from ..passes.simplify import rewrite_nodes, simplify_graph
from .dnn import add_dnn_call, logical_arrays_of_dnn_call, operation_of_dnn_call, undecided_options_of_dnn_call

# calls, how many of their arrays, which are read first, are images, and whether they give one
CALLS = {"convolution": (1, True), "convolution_image": (1, True), "convolution_weights": (2, False)}

PRODUCT_SLOWNESS = 1.3  # of products of matrices beside their model


def keep_channels_last(graph: Graph, library: DnnLibrary, model: WorkCostModel) -> Graph:
    """conv(turn(f(turn_back(conv(x))))) -> conv(g(conv(x))), where g is f of turned arrays"""
    calls = {node: i for i, node in enumerate(graph.nodes) if operation_of_dnn_call(node) in CALLS}
    if not any(graph.nodes[a].op == "permute" for node in calls for a in node.args):
        return graph
    orders = {order for node in calls for order in node.options["orders"]}
    ends = _nodes_that_lead_to_channels_last(graph)
    turned = dict[int, tuple[int, ...]]()

    def rule(builder: GraphBuilder, node: Node, args: Values) -> Value | None:
        if node in calls:
            leads = any(graph.nodes[user] in ends for user in graph.users[calls[node]])
            return None if leads else _call_with_channels_second(library, model, builder, node, args)
        row, places = _row_of_turning(node), {a.number: turned[a.number] for a in args if a.number in turned}
        found: Turned | None = None
        if row and places and node in ends:
            found = row(builder, node, args, places)
        elif node.op == "permute" and node in ends and node.attr("axes") in orders:
            found = args[0], node.attr("axes")
        if found is None:
            return None
        result = builder.permute(*found)
        if result.number != found[0].number:
            turned[result.number] = tuple(found[1])
        return result

    return simplify_graph(rewrite_nodes(graph, rule))


def finish_convolutions(graph: Graph, library: DnnLibrary, model: WorkCostModel) -> Graph:
    """relu(conv(x, w) + bias) -> conv(x, w, bias) with the relu, with channels last, where calls alone read that and it
    takes less by the clock"""
    ends = {
        node
        for number, node in enumerate(graph.nodes)
        if (found := _match_finished_convolution(graph.nodes, node)) is not None
        and all(len(graph.users[n]) == 1 and n not in graph.outputs for n in found.inner)
        and graph.users[number]
        and all(operation_of_dnn_call(graph.nodes[user]) for user in graph.users[number])
    }

    def rule(builder: GraphBuilder, node: Node, args: Values) -> Value | None:
        given = Node(node.op, tuple(a.number for a in args), node.type, node.attrs)
        found = _match_finished_convolution(builder.nodes, given) if node in ends else None
        if found is None:
            return None
        call = builder.nodes[found.inner[-1]]
        options, reads = undecided_options_of_dnn_call(call), [builder.at(a) for a in call.args]
        orders, every = options["orders"], [*(a.type for a in reads), call.type]
        took = library.microseconds(dnn_call_of_arrays([(t.shape, t.dtype.name) for t in every], options))
        if took is None:
            return None
        bias = builder.reshape(builder.at(found.bias), (*(1,) * (len(call.shape) - 1), -1))
        options |= {"orders": (*orders, orders[-1]), "bias": True, "relu": len(found.inner) > 1}
        type = ArrayType(tuple(call.shape[i] for i in orders[-1]), call.dtype)
        logical = [builder.permute(a, order) for a, order in zip([*reads, bias], orders, strict=True)]
        limit = took + model.time(2 * type.nbytes, 0)
        made = add_dnn_call(library, builder, logical, [type], options, limit=limit)
        return builder.permute(made, _inverse_axes(orders[-1])) if isinstance(made, Value) else None

    return simplify_graph(rewrite_nodes(graph, rule)) if ends else graph


@frozen
class _FinishedConvolution:
    """bias: of each channel. inner: what else vanishes, the call last."""

    bias: int
    inner: tuple[int, ...]


def _match_finished_convolution(nodes: Sequence[Node], end: Node) -> _FinishedConvolution | None:
    activated = match_epilogue_activation(nodes, end, end.dtype)
    inner = (activated[1],) if activated is not None and activated[0] == "relu" else ()
    biased = match_epilogue_bias(nodes, nodes[inner[0]] if inner else end, ("host",))
    if biased is None or operation_of_dnn_call(nodes[biased[0]]) != "convolution":
        return None
    return _FinishedConvolution(biased[1], (*inner, biased[0]))


def _call_with_channels_second(
    library: DnnLibrary, model: WorkCostModel, builder: GraphBuilder, node: Node, args: Values
) -> Value | None:
    """A call of arrays that are there with channels second, and whose result is read so, if it takes less by the clock
    than the other one, its arrays turned before and after; or products of matrices, if they take less."""
    options, places = node.options, [builder.nodes[a.number] for a in args]
    images, gives = CALLS[options["operation"]]
    orders, results = options["orders"], options["results"]
    took = library.microseconds(dnn_call_of_arrays([*((a.shape, a.dtype.name) for a in args), *results], options))
    if took is None or any(place.op != "permute" for place in places[:images]):
        return None
    copied = [place.type.nbytes for place in places if place.op == "permute"] + [node.type.nbytes] * gives
    type = ArrayType(tuple(node.shape[i] for i in orders[-1]), node.dtype)
    plain = undecided_options_of_dnn_call(node) | {"orders": (tuple(range(len(orders[-1]))),) * len(orders)}
    limit = took + sum(model.launch + 2 * nbytes / model.bandwidth for nbytes in copied)
    given = logical_arrays_of_dnn_call(builder, node, args)
    second = dnn_call_of_arrays([*((a.shape, a.dtype.name) for a in given), (type.shape, type.dtype.name)], plain)
    limit = min(limit, library.microseconds(second) or limit)
    found: Value | str | None = _products_of_images(model, builder, plain, given, type, limit)
    if found is None:
        found = add_dnn_call(library, builder, given, [type], plain, limit=limit)
    return builder.permute(found, _inverse_axes(orders[-1])) if isinstance(found, Value) else None


def _products_of_images(
    model: WorkCostModel,
    builder: GraphBuilder,
    options: dict[str, Any],
    given: Values,
    type: ArrayType,
    limit: float,
) -> Value | None:
    """conv(x, w) -> w @ x for each image, where windows are single elements side by side, if that takes less; and its
    gradients so too"""
    name, (image, other) = options["operation"], given
    out, into, *window = (type if name == "convolution_weights" else other.type).shape
    if math.prod((*window, *options["stride"], options["groups"])) > 1 or any(map(any, options["padding"])):
        return None
    parts = 8 * image.shape[0] * out * into * (name == "convolution_weights")  # bytes that are written and read again
    nbytes = sum(a.type.nbytes for a in given) + type.nbytes + parts
    flops = 2.0 * image.size * (into if name == "convolution_image" else out)
    if PRODUCT_SLOWNESS * model.time(nbytes, flops / HALF_SPEED) + (parts and model.launch) >= limit:
        return None
    columns, rows = (builder.reshape(builder.cast(a, FLOAT32), (*a.shape[:2], math.prod(a.shape[2:]))) for a in given)
    if name == "convolution_weights":
        products = builder.matmul(rows, builder.permute(columns, (0, 2, 1)))
        found = builder.reduce("sum", products, (0,), FLOAT32)
    else:
        rows = builder.reshape(rows, (out, into))
        rows = builder.permute(rows, (1, 0)) if name == "convolution_image" else rows
        found = builder.matmul(rows, columns)
    return builder.cast(builder.reshape(found, type.shape), type.dtype)


def _nodes_that_lead_to_channels_last(graph: Graph) -> frozenset[Node]:
    """Those of which the library, or a reduction, reads what is computed of them: turning others gains nothing, as
    what is given back to the caller has its axes in their order."""
    ends = set[int]()
    for number in reversed(range(len(graph.nodes))):
        node = graph.nodes[number]
        if operation_of_dnn_call(node) in CALLS:
            ends |= set(node.args)
        elif number in ends or node.kind == "reduce":
            ends |= {number, *(node.args if _row_of_turning(node) else ())}
    return frozenset(graph.nodes[n] for n in ends)


# rows: how a node is computed of turned arrays

# a value, and the axes of the permutation that leads from it to what it stands for
Turned = tuple[Value, Sequence[int]]
Row = Callable[[GraphBuilder, Node, Values, dict[int, tuple[int, ...]]], Turned | None]


def _row_of_turning(node: Node) -> Row | None:
    return _ROWS.get(node.op) or _ROWS.get(node.kind)


def _inverse_axes(axes: Sequence[int]) -> list[int]:
    return sorted(range(len(axes)), key=lambda i: axes[i])


def _turned_operand(builder: GraphBuilder, x: Value, axes: Sequence[int], places: dict[int, tuple[int, ...]]) -> Value:
    """An operand of what is computed before its axes are permuted so."""
    if places.get(x.number) == tuple(axes):
        return builder.at(builder.nodes[x.number].args[0])
    if x.size == 1:
        return builder.reshape(x, ())
    node, back = builder.nodes[x.number], _inverse_axes(axes)
    whole = (*(1,) * (len(axes) - x.ndim), *x.shape)
    if node.op == "cast":
        return builder.cast(_turned_operand(builder, builder.at(node.args[0]), axes, places), x.dtype)
    if node.op == "broadcast":
        inner = _turned_operand(builder, builder.at(node.args[0]), axes, places)
        return builder.broadcast(inner, [whole[i] for i in back])
    return builder.permute(builder.reshape(x, whole), back)


def _turn_map(builder: GraphBuilder, node: Node, args: Values, places: dict[int, tuple[int, ...]]) -> Turned | None:
    axes = next((places[a.number] for a in args if a.number in places and a.shape == node.shape), None)
    if axes is None:
        return None
    given = [_turned_operand(builder, a, axes, places) for a in args]
    shape = tuple(node.shape[i] for i in _inverse_axes(axes))
    return builder.copy(node, given, ArrayType(shape, node.dtype)), axes


def _turn_slice(builder: GraphBuilder, node: Node, args: Values, places: dict[int, tuple[int, ...]]) -> Turned:
    axes = places[args[0].number]
    back = _inverse_axes(axes)
    starts, steps, shape = ([given[i] for i in back] for given in (*_slice_attrs(node), node.shape))
    return builder.slice(_turned_operand(builder, args[0], axes, places), starts, steps, shape), axes


def _slice_attrs(node: Node) -> tuple[Sequence[int], Sequence[int]]:
    return node.attr("starts"), node.attr("steps")


def _turn_concat(builder: GraphBuilder, node: Node, args: Values, places: dict[int, tuple[int, ...]]) -> Turned:
    axes = next(iter(places.values()))
    return builder.concat([_turned_operand(builder, a, axes, places) for a in args], axes[node.attr("axis")]), axes


def _turn_update(builder: GraphBuilder, node: Node, args: Values, places: dict[int, tuple[int, ...]]) -> Turned:
    axes = next(iter(places.values()))
    back = _inverse_axes(axes)
    starts, steps = ([given[i] for i in back] for given in _slice_attrs(node))
    base, value = (_turned_operand(builder, a, axes, places) for a in args)
    return builder.update(builder.broadcast(base, [node.shape[i] for i in back]), value, starts, steps), axes


def _turn_reduction(
    builder: GraphBuilder, node: Node, args: Values, places: dict[int, tuple[int, ...]]
) -> Turned | None:
    axes, gone = places[args[0].number], node.attr("axes")
    if len(gone) > 1 and COMBINERS[node.op].carries_index:
        return None
    source = _turned_operand(builder, args[0], axes, places)
    kept = [i for i in range(len(axes)) if i not in {axes[g] for g in gone}]
    type = ArrayType(tuple(source.shape[i] for i in kept), node.dtype)
    total = builder.add(node.op, (source.number,), type, (("axes", tuple(sorted(axes[g] for g in gone))),))
    return total, [kept.index(a) for i, a in enumerate(axes) if i not in gone]


def _turn_broadcast(
    builder: GraphBuilder, node: Node, args: Values, places: dict[int, tuple[int, ...]]
) -> Turned | None:
    axes = places[args[0].number]
    if len(axes) != node.ndim:
        return None
    source = _turned_operand(builder, args[0], axes, places)
    return builder.broadcast(source, [node.shape[i] for i in _inverse_axes(axes)]), axes


def _turn_reshape(builder: GraphBuilder, node: Node, args: Values, places: dict[int, tuple[int, ...]]) -> Turned | None:
    """Of axes that are split, and of those that become one and follow each other before they are turned too."""
    axes, before, after = places[args[0].number], args[0].shape, node.shape
    groups = _groups_of_reshaped_axes(before, after)
    if groups is None:
        return None
    parts = []  # of each group where it begins before the axes are turned, and its axes after
    for old, new in groups:
        inside = [axes[i] for i in old]
        if inside != list(range(inside[0], inside[0] + len(inside))):
            return None
        parts.append((inside[0], new))
    order = [i for _, new in sorted(parts) for i in new]
    source = _turned_operand(builder, args[0], axes, places)
    return builder.reshape(source, [after[i] for i in order]), _inverse_axes(order)


def _groups_of_reshaped_axes(before: Sequence[int], after: Sequence[int]) -> list[tuple[list[int], list[int]]] | None:
    """The least groups of neighbouring axes that have as many elements before as after; None where there are axes
    without elements, or axes of one element that belong to no other."""
    groups, i, j = list[tuple[list[int], list[int]]](), 0, 0
    while i < len(before) and j < len(after):
        old, new, have, want = [i], [j], before[i], after[j]
        i, j = i + 1, j + 1
        while have != want:
            if have < want:
                if i == len(before):
                    return None
                old, have, i = [*old, i], have * before[i], i + 1
            else:
                if j == len(after):
                    return None
                new, want, j = [*new, j], want * after[j], j + 1
        groups.append((old, new))
    if 0 in before or not groups or any(n != 1 for n in (*before[i:], *after[j:])) or i < len(before):
        return None
    groups[-1][1].extend(range(j, len(after)))
    return groups


def _turn_permute(builder: GraphBuilder, node: Node, args: Values, places: dict[int, tuple[int, ...]]) -> Turned:
    axes = places[args[0].number]
    return _turned_operand(builder, args[0], axes, places), [axes[i] for i in node.attr("axes")]


# by op, or by kind of ops
_ROWS: dict[str, Row] = {
    "map": _turn_map,
    "reduce": _turn_reduction,
    "slice": _turn_slice,
    "concat": _turn_concat,
    "update": _turn_update,
    "broadcast": _turn_broadcast,
    "reshape": _turn_reshape,
    "permute": _turn_permute,
}
