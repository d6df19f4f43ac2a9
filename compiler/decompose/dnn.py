"""Calls that a library for deep neural networks does. A call in, that of the library out, or why it has none."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ...runtime.core.frozen import frozen
from ...runtime.program.dnn import DnnLibrary, DnnPart, Order, dnn_call_of_arrays
from ..core.cost import WorkCostModel
from ..core.types import FLOAT32, ArrayType, dtype_kind
from ..graph.builder import GraphBuilder
from ..graph.graph import Graph, Node, Value, Values
from ..layout.operands import ALIGNMENT, contiguous_strides, strides_of_memory_view_node
from ..passes.attention import bound_of_mask, matrix_transpose
from ..passes.simplify import rewrite_nodes, simplify_graph
from .convolution import Padding, image_within_zeros, microseconds_of_convolution_as_products

NO_LIBRARY = "no cuDNN: pip install '.[cudnn]' in kernelgraph's folder"
FEW_PRODUCTS = 32  # products for one result that are summed up within a kernel
FEW_RESULTS = 2  # results that an element of a window is multiplied for
FEW_CHANNELS = 8  # of windows of one element: more are a product of matrices
MOST_ELEMENTS = 2**31
MOST_FLOAT16 = 65504.0
LOW_BIAS = -1e4
MOST_BIAS = 2**28  # bytes of what is added to scores; more is computed block by block
SLOWER = "cuDNN takes"
SECTION = 4  # how many times larger an array may be that is stored for a section of it
EPILOGUE_US = 2.0  # that products of matrices save: what follows them may be part of them, and of no convolution


def _why_no_dnn_arrays(types: Sequence[ArrayType]) -> str:
    """Floats of 16 or 32 bits, all of one dtype; neither none nor too many."""
    dtypes = sorted({str(t.dtype) for t in types})
    if len(dtypes) > 1 or dtype_kind(types[0].dtype) != "f" or types[0].dtype.itemsize > 4:
        return f"arrays of {' and '.join(dtypes)}; cuDNN takes float16, bfloat16 or float32, one for all"
    return "" if all(0 < t.size < MOST_ELEMENTS for t in types) else "no elements, or 2**31 or more"


def add_dnn_call(
    library: DnnLibrary,
    builder: GraphBuilder,
    args: Values,
    results: Sequence[ArrayType],
    options: dict[str, Any],
    part: int = 0,
    limit: float = math.inf,
) -> Value | str:
    """Add the library's call; one of its results, or why there is none. All arrays come to lie without gaps, their axes
    as the option `orders` says, which costs nothing where they lie so; or they are `parts` of such. limit: microseconds
    that it may take, if that is known."""
    orders: Sequence[Order] = options["orders"]
    inside = [_type_in_memory(t, order) for t, order in zip((*(a.type for a in args), *results), orders, strict=True)]
    given = [_permuted(builder, a, np.argsort(order)) for a, order in zip(args, orders, strict=False)]
    if options.get("parts"):
        found = [_part_of_array(builder, a) for a in given]
        options = {**options, "parts": tuple(part for _, part in found)}
        given = [whole for whole, _ in found]
        inside[: len(given)] = [a.type for a in given]
    call = dnn_call_of_arrays([(t.shape, t.dtype.name) for t in inside], options)
    workspace = library.workspace(call)
    if isinstance(workspace, str):
        return workspace
    if (took := library.microseconds(call)) is not None and took > limit:
        return f"{SLOWER} {took:.0f} us, products of matrices {max(0.0, limit):.0f}"
    made = inside[len(args) :]
    every = {**options, "results": tuple((t.shape, t.dtype.name) for t in made), "workspace": workspace}
    fixed = ("function", "dnn"), ("options", tuple(sorted(every.items())))
    attrs = (*fixed, ("by", "kernels"), ("contiguous", True), ("part", part))
    result = builder.add("host", tuple(a.number for a in given), made[part], attrs)
    return _permuted(builder, result, orders[len(args) + part])


def _part_of_array(builder: GraphBuilder, x: Value) -> tuple[Value, DnnPart | None]:
    """Of a large section of an array that array, which is stored as a whole, and where in it the section lies, if the
    library takes it so: rows of elements side by side that begin where memory is aligned."""
    views, number = list[Node](), x.number
    while builder.nodes[number].kind == "view" and builder.nodes[number].op in ("slice", "reshape", "permute"):
        views.append(builder.nodes[number])
        number = builder.nodes[number].args[0]
    whole = builder.at(number)
    if all(node.op != "slice" for node in views) or SECTION * x.size < whole.type.size:
        return x, None
    shape, strides, offset = whole.shape, contiguous_strides(whole.shape, 1), 0
    for node in reversed(views):
        found = strides_of_memory_view_node(node, shape, strides)
        if found is None:
            return x, None
        offset += sum(map(operator.mul, node.attr("starts"), strides)) if node.op == "slice" else 0
        shape, strides = node.shape, found
    fits = strides[-1] == 1 and all(n * x.dtype.itemsize % ALIGNMENT == 0 for n in (offset, *strides[:-1]))
    return (whole, (shape, strides, offset)) if fits else (x, None)


def _type_in_memory(type: ArrayType, order: Order) -> ArrayType:
    return ArrayType(tuple(type.shape[i] for i in np.argsort(order)), type.dtype)


def _permuted(builder: GraphBuilder, value: Value, axes: Iterable[int]) -> Value:
    wanted = tuple(map(int, axes))
    return value if wanted == tuple(range(len(wanted))) else builder.permute(value, wanted)


# convolutions

# of (first array, second array, result): which are the weights, and which the convolution's result
_PLACES = {"convolution": (1, 2), "convolution_image": (1, 0), "convolution_weights": (2, 1)}
CONVOLUTION_CALLS = tuple(_PLACES)


def call_dnn_convolution(
    library: DnnLibrary | None, model: WorkCostModel, builder: GraphBuilder, node: Node, args: Values
) -> Value | str:
    """A convolution or a gradient of one. Zeros around the image are part of the call where that is not refused; one
    axis is an image of one row; of 16 bits the channels come last, as tensor cores take them. Of float32 the library's
    is not the fastest of every convolution: its time is measured, that of products predicted."""
    name, options = str(node.attr("function")), node.options
    types = [*(a.type for a in args), node.type]
    weights, convolved = (types[i] for i in _PLACES[name])
    each = math.prod(weights.shape[1:])
    refusal = _why_no_dnn_arrays(types) or _why_no_dnn_convolution(name, weights, options)
    if refusal or library is None:
        return refusal or NO_LIBRARY
    rows = (1,) * (node.ndim == 3)
    rank = len(rows) + node.ndim
    order = (0, rank - 1, *range(1, rank - 1)) if node.dtype.itemsize == 2 else tuple(range(rank))
    options |= {"operation": name, "orders": (order,) * 3, "flops": 2.0 * each * convolved.size}
    options |= {key: (*rows, *options[key]) for key in ("stride", "dilation")}
    if "shape" in options:
        options["shape"] = _with_rows(options["shape"], rows)
    limit = math.inf
    if name == "convolution" and node.dtype == FLOAT32:
        limit = microseconds_of_convolution_as_products(node, weights, model) - EPILOGUE_US
    result: Value | str = ""
    for x, padding in _images_and_their_padding(builder, args[0], name != "convolution_image"):
        given = [builder.reshape(a, _with_rows(a.shape, rows)) if rows else a for a in (x, args[1])]
        type = ArrayType(_with_rows(node.shape, rows), node.dtype)
        whole = {**options, "padding": (*((0, 0) for _ in rows), *padding)}
        result = add_dnn_call(library, builder, given, [type], whole, limit=limit)
        if isinstance(result, Value):
            return builder.reshape(result, node.shape) if rows else result
        if result.startswith(SLOWER):
            break
    return result


def _why_no_dnn_convolution(name: str, weights: ArrayType, options: dict[str, Any]) -> str:
    few = math.prod(weights.shape[1:]) <= FEW_PRODUCTS and weights.shape[0] // options["groups"] <= FEW_RESULTS
    many = math.prod(weights.shape[2:]) == 1 and weights.shape[1] > FEW_CHANNELS
    if name == "convolution" and few and not many:
        return "few products for each element"
    if name == "convolution" and math.prod(weights.shape[2:]) == 1 and weights.dtype == FLOAT32:
        return "windows of one element: products of matrices"
    precision = options.get("precision", "float32")
    has = precision in ("float32", "tf32")
    return "" if has else f"precision={precision!r}, of which cuDNN has no convolution; write 'tf32'"


def _with_rows(shape: Sequence[int], rows: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape[:2], *rows, *shape[2:])


def _images_and_their_padding(builder: GraphBuilder, x: Value, padded: bool) -> Iterator[tuple[Value, Padding]]:
    """To try in turn: the image without the zeros that were put around it, which the call adds; the image as it is."""
    plain, around = image_within_zeros(builder, x)
    if padded and plain.number != x.number:
        yield plain, around
    yield x, ((0, 0),) * len(around)


def operation_of_dnn_call(node: Node) -> str:
    """What the library does in a node; empty where that is none of its calls."""
    is_call = node.op == "host" and node.attr("function") == "dnn"
    return str(node.options["operation"]) if is_call else ""


def undecided_options_of_dnn_call(node: Node) -> dict[str, Any]:
    """The options of a call as they were before it was added."""
    return {name: value for name, value in node.attr("options") if name not in ("results", "workspace")}


def logical_arrays_of_dnn_call(builder: GraphBuilder, node: Node, args: Values) -> list[Value]:
    """The arrays of a call before their axes were put into the order in which they lie."""
    orders: Sequence[Order] = node.options["orders"]
    return [_permuted(builder, a, order) for a, order in zip(args, orders, strict=False)]


def cut_images_of_gradients(graph: Graph, library: DnnLibrary) -> Graph:
    """convolution_image(ct, w)[..., p:-p, p:-p] -> convolution_image(ct, w, padding=p), which computes no more than is
    kept: what comes back to zeros around an image is dropped"""
    if all(operation_of_dnn_call(node) != "convolution_image" for node in graph.nodes):
        return graph

    def inside(node: Node) -> tuple[Sequence[int], Sequence[int]] | None:
        """Where along the axes of places a section lies, and how long it is."""
        is_section = node.op == "slice" and all(step == 1 for step in node.attr("steps"))
        return (node.attr("starts")[2:], node.shape[2:]) if is_section else None

    def rule(builder: GraphBuilder, node: Node, args: Values) -> Value | None:
        kept = inside(node)
        if kept is None:
            return None
        read = graph.nodes[node.args[0]]
        place = builder.nodes[args[0].number].args[0] if read.op == "permute" else args[0].number
        call = builder.nodes[place]
        shared = read.op == "permute" and len(graph.users[read.args[0]]) > 1
        same = all(inside(graph.nodes[user]) == kept for user in graph.users[node.args[0]])
        if operation_of_dnn_call(call) != "convolution_image" or shared or not same:
            return None
        options = undecided_options_of_dnn_call(call)
        order = read.attr("axes") if read.op == "permute" else tuple(range(len(read.shape)))
        if order != options["orders"][-1]:
            return None
        around = zip(options["padding"], *kept, options["shape"][2:], strict=True)
        options["padding"] = tuple((before + s, after + n - s - m) for (before, after), s, m, n in around)
        options["shape"] = (*options["shape"][:2], *kept[1])
        given = logical_arrays_of_dnn_call(builder, call, [builder.at(a) for a in call.args])
        found = add_dnn_call(library, builder, given, [ArrayType(options["shape"], node.dtype)], options)
        if not isinstance(found, Value):
            return None
        rank = len(kept[0])
        return builder.slice(found, (*node.attr("starts")[:2], *(0,) * rank), (1,) * (rank + 2), node.shape)

    return simplify_graph(rewrite_nodes(graph, rule))


# attention


def call_dnn_attention(
    library: DnnLibrary | None, model: WorkCostModel, builder: GraphBuilder, node: Node, args: Values
) -> Value | str:
    """An attention of 16-bit arrays. Axes may lie in any order, the last one last; the result's lie as the queries'. It
    is rounded to 16 bits, as the weights are within."""
    options, part = node.options, node.attr("part")
    q, k, v = (_with_four_axes(builder, a) for a in args[:3])
    k, v = (_without_repeated_heads(builder, a) for a in (k, v))
    refusal = _why_no_dnn_attention(library, args[:3], (q, k, v))
    if refusal or library is None:
        return refusal
    added = _additions_to_scores(builder, args[0], args[1], args[3:], options["hidden"])
    if added.nbytes > MOST_BIAS:
        return LARGE_MASK
    q = added.without_hidden_rows(builder, q)
    orders = [_order_in_memory(builder, a) for a in (q, k, v)]
    types = [
        ArrayType((*q.shape[:3], v.shape[3]), q.dtype),
        *([ArrayType((*q.shape[:3], 1), FLOAT32)] if options["stats"] else []),
    ]
    whole = {
        "scale": options["scale"],
        "stats": options["stats"],
        "bound": added.bound,
        "bias": bool(added.bias),
        "operation": "attention",
        "parts": True,
        "orders": (*orders, *added.orders, *(orders[0], FOUR_AXES)[: len(types)]),
        "flops": 2.0 * math.prod(q.shape[:3]) * k.shape[2] * (q.shape[3] + v.shape[3]),
    }
    result = add_dnn_call(library, builder, [q, k, v, *added.bias], types, whole, part)
    if not isinstance(result, Value):
        return result
    return builder.cast(builder.reshape(result, node.shape), node.dtype)


def call_dnn_attention_gradient(
    library: DnnLibrary | None, model: WorkCostModel, builder: GraphBuilder, node: Node, args: Values
) -> Value | str:
    """The cotangents of queries, keys and values, of 16-bit arrays."""
    stats, masks, options = args[5], args[6:], node.options
    q, k, v, o, ct = (_with_four_axes(builder, builder.cast(a, args[0].dtype)) for a in args[:5])
    refusal = _why_no_dnn_attention(library, args[:3], (q, k, v))
    if refusal or library is None or node.attr("part") > 2:
        return refusal or "the cotangent of what is added to scores"
    added = _additions_to_scores(builder, args[0], args[1], masks, options["hidden"])
    if added.nbytes > MOST_BIAS:
        return LARGE_MASK
    q = added.without_hidden_rows(builder, q)
    orders = [_order_in_memory(builder, a) for a in (q, k, v, o, ct)]
    whole = {
        "scale": options["scale"],
        "bound": added.bound,
        "bias": bool(added.bias),
        "operation": "attention_gradient",
        "parts": True,
        "orders": (*orders, FOUR_AXES, *added.orders, *orders[:3]),
        "flops": 5.0 * math.prod(q.shape[:3]) * k.shape[2] * (q.shape[3] + v.shape[3]),
    }
    types = [a.type for a in (q, k, v)]
    every = [q, k, v, o, ct, _with_four_axes(builder, stats), *added.bias]
    result = add_dnn_call(library, builder, every, types, whole, node.attr("part"))
    if not isinstance(result, Value):
        return result
    result = result if node.attr("part") else added.without_hidden_rows(builder, result)
    return builder.reshape(result, node.shape)


FOUR_AXES: Order = (0, 1, 2, 3)
LARGE_MASK = f"a mask or bias of more than {MOST_BIAS >> 20} MiB"


@frozen
class _Additions:
    """To the scores of an attention. bound: how many places after its own a query sees keys at most; None: all. bias:
    of four axes, if there is one. rows: which queries see something, where scores that are hidden are numbers."""

    bound: int | None = None
    bias: tuple[Value, ...] = ()
    rows: Value | None = None

    @property
    def orders(self) -> tuple[Order, ...]:
        return (FOUR_AXES,) * len(self.bias)

    @property
    def nbytes(self) -> int:
        return sum(each.type.nbytes for each in self.bias)

    def without_hidden_rows(self, builder: GraphBuilder, x: Value) -> Value:
        """Queries, or what comes back to them, with zeros for those that see nothing: all scores of these are equal,
        and give nothing back."""
        return x if self.rows is None else builder.map("where", self.rows, x, builder.const(0, x.dtype))


def split_attention_masks(masks: Values) -> tuple[list[Value], list[Value]]:
    """What is added to scores, and what says which are seen."""
    return [m for m in masks if m.dtype != np.bool_], [m for m in masks if m.dtype == np.bool_]


def _additions_to_scores(builder: GraphBuilder, q: Value, k: Value, masks: Values, hidden: float) -> _Additions:
    """A mask that compares places is a bound; any other, and one beside a bias, becomes part of the bias."""
    biases, seen = split_attention_masks(masks)
    bound = bound_of_mask(builder, seen[0].number) if seen else None
    if not biases and (not seen or bound is not None):
        return _Additions(bound)
    finite = math.isfinite(hidden)
    bias = biases[0] if biases else builder.const(0, FLOAT32 if hidden < -MOST_FLOAT16 and finite else q.dtype)
    bias = _array_before_cast(builder, bias, q.dtype)
    rows = None
    if seen:
        bias = builder.map("where", seen[0], bias, builder.const(hidden, bias.dtype))
        if finite and bound is None:
            rows = _kept_reduction(builder, "any", _with_all_columns(builder, seen[0], k))
    bias = _relative_to_hidden_rows(builder, _with_all_columns(builder, bias, k))
    whole = np.broadcast_shapes(bias.shape, (q.shape[-2], k.shape[-2]))
    return _Additions(
        bound,
        (_mask_with_four_axes(builder, builder.broadcast(bias, whole), q),),
        rows and _mask_with_four_axes(builder, rows, q),
    )


def _relative_to_hidden_rows(builder: GraphBuilder, bias: Value) -> Value:
    """What is added to the scores of a query that sees nothing is NaN, as of NumPy's softmax, where it is -inf, and 0
    where it is a low number, beside which the library would lose the scores."""
    largest = _kept_reduction(builder, "max", bias)
    low = builder.map("less", largest, builder.const(LOW_BIAS, bias.dtype))
    nothing = builder.map("equal", largest, builder.const(-np.inf, bias.dtype))
    shift = builder.map("where", low, largest, builder.const(0, bias.dtype))
    shift = builder.map("where", nothing, builder.const(np.nan, bias.dtype), shift)
    return builder.cast(builder.map("subtract", bias, shift), bias.dtype)


def _array_before_cast(builder: GraphBuilder, x: Value, dtype: Any) -> Value:
    """The array of this dtype that an array is a cast of, or the array."""
    node = builder.nodes[x.number]
    return builder.at(node.args[0]) if node.op == "cast" and builder.at(node.args[0]).dtype == dtype else x


def _with_all_columns(builder: GraphBuilder, mask: Value, k: Value) -> Value:
    return builder.broadcast(mask, np.broadcast_shapes(mask.shape, (1, k.shape[-2])))


def _kept_reduction(builder: GraphBuilder, op: str, x: Value) -> Value:
    """Over the last axis, which is kept with one element."""
    return builder.reshape(builder.reduce(op, x, (x.ndim - 1,), x.dtype), (*x.shape[:-1], 1))


def _mask_with_four_axes(builder: GraphBuilder, x: Value, q: Value) -> Value:
    """As those of the queries: axes of one element stay so where all that become one are."""
    outer = q.shape[:-2]
    own = (*(1,) * (q.ndim - x.ndim), *x.shape)
    batch = own[: max(len(outer) - 1, 0)]
    wide = batch if set(batch) <= {1} else outer[:-1]
    x = builder.broadcast(builder.reshape(x, own), (*wide, *own[len(batch) :]))
    return builder.reshape(x, (math.prod(wide), own[len(batch)] if outer else 1, *own[-2:]))


def _why_no_dnn_attention(library: DnnLibrary | None, given: Values, arrays: Values) -> str:
    q, k, v = arrays
    if refusal := _why_no_dnn_arrays([a.type for a in given]):
        return refusal
    if q.dtype == FLOAT32:
        return "float32, of which cuDNN has no engine that is as exact"
    fits = k.shape[:3] == v.shape[:3] and k.shape[0] == q.shape[0] and q.shape[1] % k.shape[1] == 0
    return NO_LIBRARY * (library is None) if fits else "batches or heads that do not fit"


def _with_four_axes(builder: GraphBuilder, x: Value) -> Value:
    """(batch, heads, places, elements)"""
    *outer, places, elements = x.shape
    wanted = (math.prod(outer[:-1]), outer[-1] if outer else 1, places, elements)
    return x if wanted == x.shape else builder.reshape(x, wanted)


def _without_repeated_heads(builder: GraphBuilder, x: Value) -> Value:
    """What np.repeat along the heads was made of."""
    node = builder.nodes[x.number]
    if node.op != "reshape" or (wide := builder.nodes[node.args[0]]).op != "broadcast":
        return x
    source = builder.at(wide.args[0])
    batch, heads, times, *rest = wide.shape if wide.ndim == 5 else (0,) * 5
    fits = (batch, heads * times, *rest) == x.shape and source.shape == (batch, heads, 1, *rest)
    return builder.reshape(source, (batch, heads, *rest)) if fits else x


def _order_in_memory(builder: GraphBuilder, x: Value) -> Order:
    """The order of an array's axes in memory, as far as views tell, if its last axis is the last there too."""
    order: Order = tuple(range(x.ndim))
    node = builder.nodes[x.number]
    while node.op in ("permute", "cast"):
        order = tuple(node.attr("axes")[i] for i in order) if node.op == "permute" else order
        node = builder.nodes[node.args[0]]
    return order if order[-1] == len(order) - 1 else tuple(range(len(order)))


def decompose_attention(builder: GraphBuilder, node: Node, args: Values) -> Value | str:
    """attention(q, k, v) -> softmax(q @ k.T * scale) @ v, or the logarithms of the sums of its rows"""
    options = node.options
    wanted = np.dtype(options["dtype"])
    q, k, v = (builder.cast(a, wanted) for a in args[:3])
    powers, sums, largest = _weights_of_attention(builder, q, k, args[3:], options)
    if node.attr("part"):
        return builder.cast(builder.map("add", largest, builder.map("log", sums)), node.dtype)
    return builder.matmul(builder.map("divide", powers, sums), v)


def _weights_of_attention(
    builder: GraphBuilder, q: Value, k: Value, masks: Values, options: dict[str, Any]
) -> tuple[Value, Value, Value]:
    """Exponentials of scores below the largest of their row, the sums of these, and the largest scores."""
    scores = builder.map("multiply", builder.matmul(q, matrix_transpose(builder, k)), options["scale"])
    biases, seen = split_attention_masks(masks)
    for bias in biases:
        scores = builder.map("add", scores, builder.cast(bias, scores.dtype))
    for mask in seen:
        scores = builder.map("where", mask, scores, options["hidden"])
    kept, axes = (*scores.shape[:-1], 1), (scores.ndim - 1,)
    largest = builder.reshape(builder.reduce("max", scores, axes, scores.dtype), kept)
    powers = builder.map("exp", builder.map("subtract", scores, largest))
    return powers, builder.reshape(builder.reduce("sum", powers, axes, scores.dtype), kept), largest


def decompose_attention_gradient(builder: GraphBuilder, node: Node, args: Values) -> Value | str:
    """attention_gradient(q, k, v, o, ct, stats) -> with weights computed again, from the scores alone, and what comes
    back to scores, products of these with the other arrays"""
    options = node.options
    wanted = np.dtype(options["dtype"])
    q, k, v, o, ct = (builder.cast(a, wanted) for a in args[:5])
    powers, sums, _ = _weights_of_attention(builder, q, k, args[6:], options)
    weights = builder.map("divide", powers, sums)
    part = node.attr("part")
    if part == 2:
        found = builder.matmul(matrix_transpose(builder, weights), ct)
    else:
        means = builder.reduce("sum", builder.map("multiply", ct, o), (len(o.shape) - 1,), wanted)
        slope = builder.map(
            "subtract", builder.matmul(ct, matrix_transpose(builder, v)), builder.reshape(means, (*o.shape[:-1], 1))
        )
        back = builder.map("multiply", weights, slope)
        for mask in split_attention_masks(args[6:])[1]:
            back = builder.map("where", mask, back, 0)
        scaled = builder.map("multiply", back, options["scale"])
        if part == 3:
            found = back
        else:
            found = builder.matmul(scaled, k) if part == 0 else builder.matmul(matrix_transpose(builder, scaled), q)
    shape = (*(1,) * (len(found.shape) - node.ndim), *node.shape)
    axes = tuple(i for i, (n, m) in enumerate(zip(found.shape, shape, strict=True)) if n != m)
    if axes:  # of heads that share their keys, scores that share what is added
        found = builder.reduce("sum", found, axes, wanted)
    return builder.cast(builder.reshape(found, node.shape), node.dtype)
