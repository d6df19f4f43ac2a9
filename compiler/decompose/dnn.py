"""Calls that a library for deep neural networks does. A call in, that of the library out, or why it has none."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ...runtime.core.frozen import dataclass
from ...runtime.program.dnn import DnnLibrary, Order, dnn_call_of_arrays
from ..core.cost import WorkCostModel
from ..core.types import FLOAT32, ArrayType, dtype_kind
from ..graph.builder import GraphBuilder
from ..graph.graph import Node, Value
from ..passes.attention import bound_of_mask, matrix_transpose
from .convolution import Padding, image_within_zeros, microseconds_of_convolution_as_products

NO_LIBRARY = "no cuDNN: pip install '.[cudnn]' in kernelgraph's folder"
FEW_PRODUCTS = 32  # products for one result that are summed up within a kernel
FEW_RESULTS = 2  # results that an element of a window is multiplied for
MOST_ELEMENTS = 2**31
SLOWER = "cuDNN takes"
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
    args: Sequence[Value],
    results: Sequence[ArrayType],
    options: dict[str, Any],
    part: int = 0,
    limit: float = math.inf,
) -> Value | str:
    """Add the library's call; one of its results, or why there is none. All arrays come to lie without gaps, their axes
    as the option `orders` says, which costs nothing where they lie so. limit: microseconds that it may take, if that is
    known."""
    orders: Sequence[Order] = options["orders"]
    inside = [_type_in_memory(t, order) for t, order in zip((*(a.type for a in args), *results), orders, strict=True)]
    call = dnn_call_of_arrays([(t.shape, t.dtype.name) for t in inside], options)
    workspace = library.workspace(call)
    if isinstance(workspace, str):
        return workspace
    if (took := library.microseconds(call)) is not None and took > limit:
        return f"{SLOWER} {took:.0f} us, products of matrices {max(0.0, limit):.0f}"
    given = [_permuted(builder, a, np.argsort(order)) for a, order in zip(args, orders, strict=False)]
    made = inside[len(args) :]
    every = {**options, "results": tuple((t.shape, t.dtype.name) for t in made), "workspace": workspace}
    fixed = ("function", "dnn"), ("options", tuple(sorted(every.items())))
    attrs = (*fixed, ("by", "kernels"), ("contiguous", True), ("part", part))
    result = builder.add("host", tuple(a.number for a in given), made[part], attrs)
    return _permuted(builder, result, orders[len(args) + part])


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
    library: DnnLibrary | None, model: WorkCostModel, builder: GraphBuilder, node: Node, args: Sequence[Value]
) -> Value | str:
    """A convolution or a gradient of one. Zeros around the image are part of the call where that is not refused; one
    axis is an image of one row; of 16 bits the channels come last, as tensor cores take them. Of float32 the library's
    is not the fastest of every convolution: its time is measured, that of products predicted."""
    name, options = str(node.attr("function")), dict(node.attr("options"))
    types = [*(a.type for a in args), node.type]
    weights, convolved = (types[i] for i in _PLACES[name])
    each = math.prod(weights.shape[1:])
    refusal = _why_no_dnn_arrays(types) or _why_no_dnn_convolution(name, weights, options)
    if refusal or library is None:
        return refusal or NO_LIBRARY
    rows = (1,) * (len(node.type.shape) == 3)
    rank = len(rows) + len(node.type.shape)
    order = (0, rank - 1, *range(1, rank - 1)) if node.type.dtype.itemsize == 2 else tuple(range(rank))
    options |= {"operation": name, "orders": (order,) * 3, "flops": 2.0 * each * convolved.size}
    options |= {key: (*rows, *options[key]) for key in ("stride", "dilation")}
    if "shape" in options:
        options["shape"] = _with_rows(options["shape"], rows)
    limit = math.inf
    if name == "convolution" and node.type.dtype == FLOAT32:
        limit = microseconds_of_convolution_as_products(node, weights, model) - EPILOGUE_US
    result: Value | str = ""
    for x, padding in _images_and_their_padding(builder, args[0], name != "convolution_image"):
        given = [builder.reshape(a, _with_rows(a.shape, rows)) if rows else a for a in (x, args[1])]
        type = ArrayType(_with_rows(node.type.shape, rows), node.type.dtype)
        whole = {**options, "padding": (*((0, 0) for _ in rows), *padding)}
        result = add_dnn_call(library, builder, given, [type], whole, limit=limit)
        if isinstance(result, Value):
            return builder.reshape(result, node.type.shape) if rows else result
        if result.startswith(SLOWER):
            break
    return result


def _why_no_dnn_convolution(name: str, weights: ArrayType, options: dict[str, Any]) -> str:
    few = math.prod(weights.shape[1:]) <= FEW_PRODUCTS and weights.shape[0] // options["groups"] <= FEW_RESULTS
    if name == "convolution" and few:
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


# attention


def call_dnn_attention(
    library: DnnLibrary | None, model: WorkCostModel, builder: GraphBuilder, node: Node, args: Sequence[Value]
) -> Value | str:
    """An attention of 16-bit arrays. Axes may lie in any order, the last one last; the result's lie as the queries'. It
    is rounded to 16 bits, as the weights are within."""
    options, part = dict(node.attr("options")), node.attr("part")
    bound = _bound_of_attention(builder, args[3:])
    q, k, v = (_with_four_axes(builder, a) for a in args[:3])
    k, v = (_without_repeated_heads(builder, a) for a in (k, v))
    refusal = bound.refusal or _why_no_dnn_arrays([a.type for a in args[:3]]) or _why_no_dnn_attention(q, k, v)
    if refusal or library is None:
        return refusal or NO_LIBRARY
    orders = [_order_in_memory(builder, a) for a in (q, k, v)]
    types = [
        ArrayType((*q.shape[:3], v.shape[3]), q.dtype),
        *([ArrayType((*q.shape[:3], 1), FLOAT32)] if options["stats"] else []),
    ]
    whole = {
        "scale": options["scale"],
        "stats": options["stats"],
        "bound": bound.places,
        "operation": "attention",
        "orders": (*orders, orders[0], FOUR_AXES)[: 3 + len(types)],
        "flops": 2.0 * math.prod(q.shape[:3]) * k.shape[2] * (q.shape[3] + v.shape[3]),
    }
    result = add_dnn_call(library, builder, [q, k, v], types, whole, part)
    if not isinstance(result, Value):
        return result
    return builder.cast(builder.reshape(result, node.type.shape), node.type.dtype)


def call_dnn_attention_gradient(
    library: DnnLibrary | None, model: WorkCostModel, builder: GraphBuilder, node: Node, args: Sequence[Value]
) -> Value | str:
    """The cotangents of queries, keys and values, of 16-bit arrays."""
    bound, stats = _bound_of_attention(builder, args[6:]), args[5]
    q, k, v, o, ct = (_with_four_axes(builder, builder.cast(a, args[0].dtype)) for a in args[:5])
    refusal = bound.refusal or _why_no_dnn_arrays([a.type for a in args[:3]]) or _why_no_dnn_attention(q, k, v)
    if refusal or library is None:
        return refusal or NO_LIBRARY
    orders = [_order_in_memory(builder, a) for a in (q, k, v, o, ct)]
    options = {
        "scale": dict(node.attr("options"))["scale"],
        "bound": bound.places,
        "operation": "attention_gradient",
        "orders": (*orders, FOUR_AXES, *orders[:3]),
        "flops": 5.0 * math.prod(q.shape[:3]) * k.shape[2] * (q.shape[3] + v.shape[3]),
    }
    types = [a.type for a in (q, k, v)]
    every = [q, k, v, o, ct, _with_four_axes(builder, stats)]
    result = add_dnn_call(library, builder, every, types, options, node.attr("part"))
    return builder.reshape(result, node.type.shape) if isinstance(result, Value) else result


FOUR_AXES: Order = (0, 1, 2, 3)


@dataclass(frozen=True, slots=True)
class _MaskBound:
    """places: how many after its own a query sees keys; None: it sees all."""

    places: int | None
    refusal: str = ""


def _bound_of_attention(builder: GraphBuilder, masks: Sequence[Value]) -> _MaskBound:
    if not masks:
        return _MaskBound(None)
    places = bound_of_mask(builder, masks[0].number)
    return _MaskBound(places, "" if places is not None else "a mask that compares no places")


def _why_no_dnn_attention(q: Value, k: Value, v: Value) -> str:
    if q.dtype == FLOAT32:
        return "float32, of which cuDNN has no engine that is as exact"
    fits = k.shape[:3] == v.shape[:3] and k.shape[0] == q.shape[0] and q.shape[1] % k.shape[1] == 0
    return "" if fits else "batches or heads that do not fit"


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
    batch, heads, times, *rest = wide.type.shape if len(wide.type.shape) == 5 else (0,) * 5
    fits = (batch, heads * times, *rest) == x.shape and source.shape == (batch, heads, 1, *rest)
    return builder.reshape(source, (batch, heads, *rest)) if fits else x


def _order_in_memory(builder: GraphBuilder, x: Value) -> Order:
    """The order of an array's axes in memory, as far as views tell, if its last axis is the last there too."""
    order: Order = tuple(range(len(x.shape)))
    node = builder.nodes[x.number]
    while node.op in ("permute", "cast"):
        order = tuple(node.attr("axes")[i] for i in order) if node.op == "permute" else order
        node = builder.nodes[node.args[0]]
    return order if order[-1] == len(order) - 1 else tuple(range(len(order)))


def decompose_attention(builder: GraphBuilder, node: Node, args: Sequence[Value]) -> Value | str:
    """attention(q, k, v) -> softmax(q @ k.T * scale) @ v, or the logarithms of the sums of its rows"""
    options = dict(node.attr("options"))
    wanted = np.dtype(options["dtype"])
    q, k, v = (builder.cast(a, wanted) for a in args[:3])
    powers, sums, largest = _weights_of_attention(builder, q, k, args[3:], options)
    if node.attr("part"):
        return builder.cast(builder.map("add", largest, builder.map("log", sums)), node.type.dtype)
    return builder.matmul(builder.map("divide", powers, sums), v)


def _weights_of_attention(
    builder: GraphBuilder, q: Value, k: Value, masks: Sequence[Value], options: dict[str, Any]
) -> tuple[Value, Value, Value]:
    """Exponentials of scores below the largest of their row, the sums of these, and the largest scores."""
    scores = builder.map("multiply", builder.matmul(q, matrix_transpose(builder, k)), options["scale"])
    scores = builder.map("where", masks[0], scores, options["hidden"]) if masks else scores
    kept, axes = (*scores.shape[:-1], 1), (len(scores.shape) - 1,)
    largest = builder.reshape(builder.reduce("max", scores, axes, scores.dtype), kept)
    powers = builder.map("exp", builder.map("subtract", scores, largest))
    return powers, builder.reshape(builder.reduce("sum", powers, axes, scores.dtype), kept), largest


def decompose_attention_gradient(builder: GraphBuilder, node: Node, args: Sequence[Value]) -> Value | str:
    """attention_gradient(q, k, v, o, ct, stats) -> with weights computed again, from the scores alone, and what comes
    back to scores, products of these with the other arrays"""
    options = dict(node.attr("options"))
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
        back = builder.map("multiply", builder.map("multiply", weights, slope), options["scale"])
        back = builder.map("where", args[6], back, 0) if args[6:] else back
        found = builder.matmul(back, k) if part == 0 else builder.matmul(matrix_transpose(builder, back), q)
    axes = tuple(i for i, (n, m) in enumerate(zip(found.shape, node.type.shape, strict=True)) if n != m)
    if axes:  # of heads that share their keys
        found = builder.reduce("sum", found, axes, wanted)
    return builder.cast(builder.reshape(found, node.type.shape), node.type.dtype)
