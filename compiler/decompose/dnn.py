"""Calls that a library for deep neural networks does. A call in, that of the library out, or why it has none."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ...runtime.program.dnn import DnnLibrary, Order, dnn_call_of_arrays
from ..core.types import ArrayType, dtype_kind
from ..graph.builder import GraphBuilder
from ..graph.graph import Node, Value
from ..passes.simplify import constant_value_of_node

NO_LIBRARY = "no cuDNN: pip install 'kernelgraph[cudnn]'"
FEW = 32  # products for one result that are summed up within a kernel
FEW_OUT = 2  # results that an element of a window is multiplied for
MOST = 2**31  # elements

Padding = tuple[tuple[int, int], ...]


def why_no_dnn_arrays(types: Sequence[ArrayType]) -> str:
    """Floats of 16 or 32 bits, all of one dtype; neither none nor too many."""
    dtypes = sorted({str(t.dtype) for t in types})
    if len(dtypes) > 1 or dtype_kind(types[0].dtype) != "f" or types[0].dtype.itemsize > 4:
        return f"{' and '.join(dtypes)} in one call of cuDNN"
    return "" if all(0 < t.size < MOST for t in types) else "no elements, or 2**31 of them"


def dnn_operation(
    library: DnnLibrary, builder: GraphBuilder, args: Sequence[Value], result: ArrayType, options: dict[str, Any]
) -> Value | str:
    """The library's call, or why it refuses. All arrays come to lie without gaps, their axes as the option `orders`
    says, which costs nothing where they lie so."""
    orders: Sequence[Order] = options["orders"]
    inside = [_type_in_memory(t, order) for t, order in zip((*(a.type for a in args), result), orders, strict=True)]
    workspace = library.workspace(dnn_call_of_arrays([(t.shape, t.dtype.name) for t in inside], options))
    if isinstance(workspace, str):
        return workspace
    given = [_permuted(builder, a, np.argsort(order)) for a, order in zip(args, orders, strict=False)]
    fixed = ("function", "dnn"), ("options", tuple(sorted({**options, "workspace": workspace}.items())))
    attrs = (*fixed, ("by", "kernels"), ("contiguous", True), ("part", 0))
    return _permuted(builder, builder.add("host", tuple(a.number for a in given), inside[-1], attrs), orders[-1])


def _type_in_memory(type: ArrayType, order: Order) -> ArrayType:
    return ArrayType(tuple(type.shape[i] for i in np.argsort(order)), type.dtype)


def _permuted(builder: GraphBuilder, value: Value, axes: Sequence[int]) -> Value:
    wanted = tuple(map(int, axes))
    return value if wanted == tuple(range(len(wanted))) else builder.permute(value, wanted)


# convolutions

# of (first array, second array, result): which are the weights, and which the convolution's result
_PLACES = {"convolution": (1, 2), "convolution_image": (1, 0), "convolution_weights": (2, 1)}
CONVOLUTION_CALLS = tuple(_PLACES)


def call_dnn_convolution(
    library: DnnLibrary | None, builder: GraphBuilder, node: Node, args: Sequence[Value]
) -> Value | str:
    """A convolution or a gradient of one. Zeros around the image are part of the call where that is not refused; one
    axis is an image of one row; of 16 bits the channels come last, as tensor cores take them."""
    name, options = str(node.attr("function")), dict(node.attr("options"))
    types = [*(a.type for a in args), node.type]
    weights, convolved = (types[i] for i in _PLACES[name])
    each = math.prod(weights.shape[1:])
    refusal = why_no_dnn_arrays(types)
    if name == "convolution" and each <= FEW and weights.shape[0] // options["groups"] <= FEW_OUT:
        refusal = refusal or "few products for each element"
    if refusal or library is None:
        return refusal or NO_LIBRARY
    rows = (1,) * (len(node.type.shape) == 3)
    rank = len(rows) + len(node.type.shape)
    order = (0, rank - 1, *range(1, rank - 1)) if node.type.dtype.itemsize == 2 else tuple(range(rank))
    options |= {"operation": name, "orders": (order,) * 3, "flops": 2.0 * each * convolved.size}
    options |= {key: (*rows, *options[key]) for key in ("stride", "dilation")}
    if "shape" in options:
        options["shape"] = _with_rows(options["shape"], rows)
    result: Value | str = ""
    for x, padding in _with_less_and_less_padding(builder, args[0], name != "convolution_image"):
        given = [builder.reshape(a, _with_rows(a.shape, rows)) if rows else a for a in (x, args[1])]
        type = ArrayType(_with_rows(node.type.shape, rows), node.type.dtype)
        whole = {**options, "padding": (*((0, 0) for _ in rows), *padding)}
        result = dnn_operation(library, builder, given, type, whole)
        if isinstance(result, Value):
            return builder.reshape(result, node.type.shape) if rows else result
    return result


def _with_rows(shape: Sequence[int], rows: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape[:2], *rows, *shape[2:])


def _with_less_and_less_padding(builder: GraphBuilder, x: Value, padded: bool) -> Iterator[tuple[Value, Padding]]:
    """An image without the zeros that were put around it, and how many they are; and the image as it is."""
    plain, around = x, [(0, 0)] * (len(x.shape) - 2)
    while padded and (found := _image_within_zeros(builder, plain)) is not None:
        plain, axis, (before, after) = found
        around[axis - 2] = (around[axis - 2][0] + before, around[axis - 2][1] + after)
    if plain is not x:
        yield plain, tuple(around)
    yield x, ((0, 0),) * len(around)


def _image_within_zeros(builder: GraphBuilder, x: Value) -> tuple[Value, int, tuple[int, int]] | None:
    """Of concat(zeros, image, zeros) the image, the axis, and how many zeros there are along it."""
    node = builder.nodes[x.number]
    if node.op != "concat" or (axis := node.attr("axis")) < 2:
        return None
    places = [i for i, a in enumerate(node.args) if constant_value_of_node(builder, a) != 0]
    if len(places) != 1:
        return None
    lengths = [builder.nodes[a].type.shape[axis] for a in node.args]
    (place,) = places
    return builder.at(node.args[place]), axis, (sum(lengths[:place]), sum(lengths[place + 1 :]))
