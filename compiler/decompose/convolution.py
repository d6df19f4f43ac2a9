"""Convolutions as other operations: with few weights one sum of shifted products; else products of matrices, or what a
target's own kernel does without copies of the windows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial, reduce
from itertools import product
from typing import Any

import numpy as np

from ...runtime.core.frozen import frozen
from ..core.cost import TF32_SPEED, WorkCostModel
from ..core.types import FLOAT32, HALVES, ArrayType, DType, dtype_kind
from ..graph.builder import GraphBuilder
from ..graph.control_flow import ITERATION, Loop, Window, add_body_scalar, add_control_flow_node
from ..graph.graph import Node, Value
from ..passes.simplify import constant_value_of_node

FEW = 32  # weights
FEW_ON_CPU = 12  # measured: more are faster as rows (4x4 of 28x28 by 1.9, 5x5 of 8x28x28 by 1.7; 3x3 slower by 1.3)
FEW_OUT = 2  # results that one element of a window is multiplied for
# measured: a product's tile (rows, columns), us for each product that is added to a sum, products of float32 in a us as
# part of the model's flops; bytes that are moved while an element of a window is laid out, in rows so wide
TILE, STEP_US, PRODUCT_SPEED = (64, 128), 0.004, 0.7
WINDOW_BYTES, WIDE_ROW = 16, 28


def decompose_convolve(builder: GraphBuilder, node: Node, args: Sequence[Value]) -> Value | str:
    """convolve(x, weights) -> sum over j of x[k - j] * weights[j]"""
    x, weights = args
    if weights.shape[0] > FEW:
        return f"more than {FEW} weights"
    return _decompose_full_convolution(builder, x, weights, node.options["mode"])


def decompose_correlate(builder: GraphBuilder, node: Node, args: Sequence[Value]) -> Value | str:
    """correlate(x, weights) -> convolve(x, conj(weights[::-1]))"""
    x, weights = args
    m = weights.shape[0]
    if m > min(FEW, x.shape[0]):
        return f"more than {FEW} weights, or more than values"
    turned = builder.slice(weights, [m - 1], [-1], (m,))
    turned = builder.map("conjugate", turned) if turned.dtype.kind == "c" else turned
    return _decompose_full_convolution(builder, x, turned, node.options["mode"])


def _decompose_full_convolution(builder: GraphBuilder, x: Value, weights: Value, mode: str) -> Value:
    n, m = x.shape[0], weights.shape[0]
    wanted = np.result_type(x.dtype, weights.dtype)
    x, weights = builder.cast(x, wanted), builder.cast(weights, wanted)
    add = "logical_or" if wanted == np.bool_ else "add"
    first, last = {"full": (0, n + m - 1), "same": ((m - 1) // 2, (m - 1) // 2 + n), "valid": (m - 1, n)}[mode]
    inner, end = max(first, m - 1), min(last, n)  # where all weights meet x
    parts = []
    if end > inner:
        shifted = (_slice_convolution_input(builder, x, inner - j, end - j) for j in range(m))
        terms = (
            builder.map("multiply", part, _single_weight_of_convolution(builder, weights, j))
            for j, part in enumerate(shifted)
        )
        parts.append(_sum_convolution_terms(builder, add, terms))
    if first < inner:
        parts.insert(0, _edge_terms_of_convolution(builder, x, weights, add, first, inner))
    if end < last:
        parts.append(_edge_terms_of_convolution(builder, x, weights, add, end, last))
    result = builder.concat(parts, 0)
    # a product of BLAS adds to 0.0: it never gives -0.0
    return builder.map("add", result, 0) if wanted.kind in "fc" and wanted.itemsize > 2 else result


def _edge_terms_of_convolution(
    builder: GraphBuilder, x: Value, weights: Value, add: str, first: int, last: int
) -> Value:
    """Elements first..last of the full convolution, where x does not reach all weights."""
    n, m, zero = x.shape[0], weights.shape[0], x.dtype.type(0)
    low, high = max(0, first - m + 1), min(n, last)  # of x, what reaches them
    counts = max(0, m - 1 - first), max(0, last - n)
    before, after = (builder.broadcast(builder.const(zero), (count,)) for count in counts)
    wide = builder.concat(
        [v for v in (before, _slice_convolution_input(builder, x, low, high), after) if v.shape[0]], 0
    )
    at = builder.index((last - first,), 0)
    terms = []
    for j in range(m):
        start = m - 1 - j  # of the window in `wide`; what lies outside of x counts for nothing
        reached = builder.map("greater_equal", at, j - first), builder.map("less", at, n + j - first)
        inside = builder.map("logical_and", *reached)
        term = builder.map(
            "multiply",
            _slice_convolution_input(builder, wide, start, start + last - first),
            _single_weight_of_convolution(builder, weights, j),
        )
        terms.append(builder.map("where", inside, term, zero))
    return _sum_convolution_terms(builder, add, terms)


def _slice_convolution_input(builder: GraphBuilder, x: Value, first: int, last: int) -> Value:
    return builder.slice(x, [first], [1], (last - first,))


def _single_weight_of_convolution(builder: GraphBuilder, x: Value, at: int) -> Value:
    return builder.reshape(_slice_convolution_input(builder, x, at, at + 1), ())


def _sum_convolution_terms(builder: GraphBuilder, add: str, terms: Iterable[Value]) -> Value:
    return reduce(partial(builder.map, add), terms)


# convolutions of several axes: x (batch, channels, ...), weights (out, channels / groups, ...)


def decompose_convolution(builder: GraphBuilder, node: Node, args: Sequence[Value]) -> Value | str:
    """convolution(x, w) -> few products for each result: one sum of them; else the windows laid out as a matrix
    (im2col: Chellapilla, Puri and Simard, 2006), multiplied"""
    x, w = args
    options = node.options
    out, each, *kernel = w.shape
    groups, lengths = options["groups"], node.shape[2:]
    n, count = x.shape[0], each * math.prod(kernel)
    if count <= FEW:
        x, w = (builder.cast(a, _dtype_of_convolution_sums(node)) for a in args)
        views = [_elements_at_place_in_window(builder, x, place, node) for place in product(*map(range, kernel))]
        result = _sum_of_convolution_windows(builder, views, builder.reshape(w, (groups, out // groups, each, -1)))
        return builder.cast(builder.reshape(result, node.shape), node.dtype)
    if math.prod(kernel) == 1:
        windows = _elements_at_place_in_window(builder, x, (0,) * len(kernel), node)
    else:
        windows = _windows_of_convolution(builder, x, kernel, lengths, options["stride"], options["dilation"])
    apart = (groups,) * (groups > 1)
    columns = builder.reshape(windows, (*(n,) * (n != 1), *apart, count, math.prod(lengths)))
    rows = builder.reshape(w, (*apart, out // groups, count))
    both = (builder.cast(a, node.dtype) for a in (rows, columns))
    result = builder.matmul(*both, precision=options.get("precision", ""))
    return builder.cast(builder.reshape(result, node.shape), node.dtype)


def microseconds_of_convolution_as_products(node: Node, weights: ArrayType, model: WorkCostModel) -> float:
    """What `decompose_convolution` takes on a GPU, as measured on an H200 (float32, batches of 1 and 16): products in
    tiles, of sums that are added up one after another, and the windows laid out before."""
    options = node.options
    (out, each, *kernel), groups, (n, _, *lengths) = weights.shape, options["groups"], node.shape
    summed, places = each * math.prod(kernel), math.prod(kernel)
    tiles = math.ceil(out / groups / TILE[0]) * math.ceil(math.prod(lengths) / TILE[1])
    work = n * groups * tiles * math.prod(TILE) * summed
    speed = TF32_SPEED if options.get("precision") == "tf32" else 1.0
    products = 2 * model.launch + STEP_US * summed + work / (PRODUCT_SPEED * speed * model.flops)
    elements = n * groups * summed * math.prod(lengths)
    rate = model.bandwidth / (WINDOW_BYTES if lengths[-1] >= WIDE_ROW else 3 * WINDOW_BYTES)
    return float(products if places == 1 else products + 2 * model.launch + elements / rate)


def _elements_at_place_in_window(builder: GraphBuilder, x: Value, place: Sequence[int], node: Node) -> Value:
    """What all windows have at one place."""
    options = node.options
    starts = (i * d for i, d in zip(place, options["dilation"], strict=True))
    return builder.slice(x, (0, 0, *starts), (1, 1, *options["stride"]), (*x.shape[:2], *node.shape[2:]))


Padding = tuple[tuple[int, int], ...]


def image_within_zeros(builder: GraphBuilder, x: Value) -> tuple[Value, Padding]:
    """The image without the zeros that were put around it, and how many there are before and after, along each axis."""
    around = [(0, 0)] * (x.ndim - 2)
    while (found := _image_within_zeros_of_axis(builder, x)) is not None:
        x, axis, (before, after) = found
        around[axis - 2] = (around[axis - 2][0] + before, around[axis - 2][1] + after)
    return x, tuple(around)


def _image_within_zeros_of_axis(builder: GraphBuilder, x: Value) -> tuple[Value, int, tuple[int, int]] | None:
    """Of concat(zeros, image, zeros) the image, the axis, and how many zeros there are along it."""
    node = builder.nodes[x.number]
    if node.op != "concat" or (axis := node.attr("axis")) < 2:
        return None
    places = [i for i, a in enumerate(node.args) if constant_value_of_node(builder, a) != 0]
    if len(places) != 1 or not builder.nodes[node.args[places[0]]].type.size:
        return None
    lengths = [builder.nodes[a].shape[axis] for a in node.args]
    (place,) = places
    return builder.at(node.args[place]), axis, (sum(lengths[:place]), sum(lengths[place + 1 :]))


def _windows_of_convolution(
    builder: GraphBuilder,
    x: Value,
    kernel: Sequence[int],
    lengths: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
) -> Value:
    """(batch, channels, places in a window, windows), in one kernel: elements outside of the image are zeros, which
    are nowhere stored."""
    x, padding = image_within_zeros(builder, x)
    rank, shape = len(kernel), (*x.shape[:2], *kernel, *lengths)
    at, inside = [], []
    for i, (length, (before, _)) in enumerate(zip(x.shape[2:], padding, strict=True)):
        place = builder.map("multiply", builder.index(shape, 2 + i), dilation[i])
        first = builder.map("multiply", builder.index(shape, 2 + rank + i), stride[i])
        own = builder.map("subtract", builder.map("add", place, first), before)
        if before:
            inside.append(builder.map("greater_equal", own, 0))
            own = builder.map("maximum", own, 0)
        if (kernel[i] - 1) * dilation[i] + (lengths[i] - 1) * stride[i] >= before + length:
            inside.append(builder.map("less", own, length))
            own = builder.map("minimum", own, length - 1)
        at.append(own)
    found = builder.gather(x, at, range(2, 2 + rank), (0, 1), shape, checked=False)
    return builder.map("where", reduce(partial(builder.map, "logical_and"), inside), found, 0) if inside else found


def _sum_of_convolution_windows(builder: GraphBuilder, views: Sequence[Value], w: Value) -> Value:
    """The sum of shifted products: (batch, groups, out / groups, ...). w: (groups, out / groups, channels, places)."""
    groups, out, each, _ = w.shape
    n, _, *lengths = views[0].shape
    ones, terms = (1,) * len(lengths), []
    for place, view in enumerate(views):
        parts = builder.reshape(view, (n, groups, each, *lengths))
        for c in range(each):
            part = builder.slice(parts, (0, 0, c, *(0 for _ in lengths)), (1,) * parts.ndim, (n, groups, 1, *lengths))
            weight = builder.slice(w, (0, 0, c, place), (1,) * 4, (groups, out, 1, 1))
            terms.append(builder.map("multiply", part, builder.reshape(weight, (1, groups, out, *ones))))
    return _sum_convolution_terms(builder, "add", terms)


def decompose_convolution_without_windows(builder: GraphBuilder, node: Node, args: Sequence[Value]) -> Value | str:
    """convolution(x, w) -> sums of rows of x, which lie behind each other and are shifted as a whole: an element of a
    window lies at one distance from its first one. What such a row gives behind the end of a line is left out; with
    strides, x is taken apart into the elements that are as far apart first."""
    if refusal := _why_no_convolution_of_rows(args, node):
        return refusal
    x, w = (builder.cast(a, _dtype_of_convolution_sums(node)) for a in args)
    options = node.options
    out, each, *kernel = w.shape
    groups = options["groups"]
    few = out // groups <= FEW_OUT and each * math.prod(kernel) <= min(FEW, FEW_ON_CPU)
    if few and max(options["stride"]) == 1:
        return "few products for each element"
    rows = _rows_of_convolution(builder, x, node.shape[2:], kernel, options)
    wanted = node.shape[2:]
    width = wanted[0] * math.prod(rows.lengths[1:])
    weights = builder.reshape(w, (groups, out // groups, each * len(rows.taps)))
    (sums,) = builder.host(
        "shifted_products",
        [weights, rows.x],
        [ArrayType((x.shape[0], groups, out // groups, width), x.dtype)],
        taps=rows.taps,
        length=rows.length,
        width=width,
        line=rows.line,
    )
    lines = builder.reshape(sums, (x.shape[0], out, wanted[0], *rows.lengths[1:]))
    result = builder.slice(lines, (0,) * lines.ndim, (1,) * lines.ndim, node.shape)
    return builder.cast(result, node.dtype)


@frozen
class _ConvolutionRows:
    """x: (batch, groups, channels / groups, elements); lengths: of the axes of what lies in a row, phase after phase;
    taps: how far each element of a window lies behind its first one; length: of the row of all results; line: how far
    apart elements of windows lie that are next to each other along the last axis but one."""

    x: Value
    lengths: Sequence[int]
    taps: tuple[int, ...]
    length: int
    line: int


def _rows_of_convolution(
    builder: GraphBuilder, x: Value, counts: Sequence[int], kernel: Sequence[int], options: Mapping[str, Any]
) -> _ConvolutionRows:
    """The image as rows, of a convolution whose results have the lengths `counts`."""
    stride = options["stride"]
    if math.prod(kernel) == 1:  # the other phases are not needed
        x = builder.slice(x, (0,) * x.ndim, (1, 1, *stride), (*x.shape[:2], *counts))
        stride = (1,) * len(stride)
    x, lengths = _phases_of_convolution_input(builder, x, options["groups"], stride)
    steps = [math.prod(lengths[i + 1 :]) for i in range(len(lengths))]
    apart = math.prod(lengths)  # elements of one phase
    taps = []
    for place in product(*map(range, kernel)):
        phase, tap = 0, 0
        for i, d, s, step in zip(place, options["dilation"], stride, steps, strict=True):
            phase, tap = phase * s + i * d % s, tap + i * d // s * step
        taps.append(phase * apart + tap)
    length = 1 + sum((n - 1) * step for n, step in zip(counts, steps, strict=True))
    line = length
    if len(kernel) > 1:
        line = steps[-2] * options["dilation"][-2] // math.gcd(options["dilation"][-2], stride[-2])
    return _ConvolutionRows(x, lengths, tuple(taps), length, line)


def _why_no_convolution_of_rows(args: Sequence[Value], node: Node) -> str:
    if dtype_kind(node.dtype) != "f":
        return "no floats"
    return "" if all(t.size for t in (node.type, *(a.type for a in args))) else "no elements"


def _dtype_of_convolution_sums(node: Node) -> DType:
    """Of 16-bit numbers they are in float32."""
    return FLOAT32 if node.dtype in HALVES else node.dtype


def _phases_of_convolution_input(
    builder: GraphBuilder,
    x: Value,
    groups: int,
    stride: Sequence[int],
) -> tuple[Value, list[int]]:
    """(batch, groups, channels / groups, elements), of phase after phase; and the lengths of axes in one of them."""
    n, channels, *lengths = x.shape
    if any(s > 1 for s in stride):
        lengths = [-(-length // s) for length, s in zip(lengths, stride, strict=True)]
        x = _windows_of_convolution(builder, x, stride, lengths, stride, (1,) * len(stride))
    return builder.reshape(x, (n, groups, channels // groups, -1)), lengths


# their derivatives


def decompose_convolution_image(builder: GraphBuilder, node: Node, args: Sequence[Value]) -> Value | str:
    """convolution_image(ct, w) -> the cotangent, as far apart as the strides, with zeros between and around: convolved
    with the weights turned"""
    (ct, w), options = args, node.options
    if max(options["stride"]) > 1 == max(options["dilation"]) and node.size and ct.size:
        return _image_of_phases(builder, node, ct, w, options)
    groups, dilation, lengths = options["groups"], options["dilation"], node.shape[2:]
    out, each, *kernel = w.shape
    ends = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    wide = (*ct.shape[:2], *(n + end for n, end in zip(lengths, ends, strict=True)))
    zeros = builder.broadcast(builder.const(0, ct.dtype), wide)
    spread = builder.update(zeros, ct, (0, 0, *ends), (1, 1, *options["stride"]))
    rank = w.ndim
    turned = builder.slice(w, (0, 0, *(k - 1 for k in kernel)), (1, 1, *(-1 for _ in kernel)), w.shape)
    parts = builder.reshape(turned, (groups, out // groups, each, *kernel))
    swapped = builder.permute(parts, (0, 2, 1, *range(3, rank + 1)))
    weights = builder.reshape(swapped, (groups * each, out // groups, *kernel))
    plain = {name: value for name, value in options.items() if name != "shape"} | {"stride": (1,) * len(kernel)}
    return builder.host("convolution", [spread, weights], [node.type], **plain)[0]


@frozen
class _Phases:
    """Of elements as far apart as the stride along an axis, those that meet so many places of a window."""

    places: int
    first: int
    count: int


def _image_of_phases(builder: GraphBuilder, node: Node, ct: Value, w: Value, options: Mapping[str, Any]) -> Value:
    """convolution_image(ct, w) -> elements of the image that are as far apart as the strides meet the same places of
    the windows: the cotangent convolved with these alone, for all that meet equally many at once"""
    stride, kernel, lengths = options["stride"], w.shape[2:], node.shape[2:]
    wide = [-(-length // s) for length, s in zip(lengths, stride, strict=True)]
    weights = _weights_by_phases(builder, w, options["groups"], stride)

    def joined(phases: tuple[_Phases, ...]) -> Value:
        if (axis := len(phases)) == len(kernel):
            return _part_of_phases(builder, node, (ct, weights), options, phases, wide)
        fewer, rest = divmod(kernel[axis], stride[axis])
        ways = (_Phases(fewer + 1, 0, rest), _Phases(fewer, rest, stride[axis] - rest))
        parts = [joined((*phases, way)) for way in ways if way.count]
        return parts[0] if len(parts) == 1 else builder.concat(parts, 3 + 2 * axis)

    whole = (q * s for q, s in zip(wide, stride, strict=True))
    image = builder.reshape(joined(()), (*node.shape[:2], *whole))
    return builder.slice(image, (0,) * image.ndim, (1,) * image.ndim, node.shape)


def _weights_by_phases(builder: GraphBuilder, w: Value, groups: int, stride: Sequence[int]) -> Value:
    """(groups, out / groups, channels / groups, for each axis places and phases), with zeros where there are none."""
    out, each, *kernel = w.shape
    pairs = [(-(-k // s), s) for k, s in zip(kernel, stride, strict=True)]
    whole = (out, each, *(places * s for places, s in pairs))
    w = _with_zeros_behind(builder, w, whole)
    return builder.reshape(w, (groups, out // groups, each, *(n for pair in pairs for n in pair)))


def _with_zeros_behind(builder: GraphBuilder, x: Value, shape: tuple[int, ...]) -> Value:
    if x.shape == shape:
        return x
    zeros = builder.broadcast(builder.const(0, x.dtype), shape)
    return builder.update(zeros, x, (0,) * len(shape), (1,) * len(shape))


def _part_of_phases(
    builder: GraphBuilder,
    node: Node,
    args: tuple[Value, Value],
    options: Mapping[str, Any],
    phases: Sequence[_Phases],
    wide: Sequence[int],
) -> Value:
    """Of an image the elements of some phases: (batch, channels, for each axis elements and phases)."""
    ct, weights = args
    rank, groups, inner, each = len(wide), *weights.shape[:3]
    counts, places = [p.count for p in phases], [p.places for p in phases]
    if not all(places):
        shape = (*node.shape[:2], *(a for pair in zip(wide, counts, strict=True) for a in pair))
        return builder.broadcast(builder.const(0, node.dtype), shape)
    both = (a for p in phases for a in (p.places, p.count))
    starts = (a for p in phases for a in (p.places - 1, p.first))
    met = builder.slice(weights, (0, 0, 0, *starts), (1, 1, 1, *(-1, 1) * rank), (groups, inner, each, *both))
    axes = range(3, 3 + 2 * rank)
    met = builder.permute(met, (0, 2, *axes[1::2], 1, *axes[::2]))
    met = builder.reshape(met, (groups * each * math.prod(counts), inner, *places))
    around = (*ct.shape[:2], *(q + p - 1 for q, p in zip(wide, places, strict=True)))
    if around != ct.shape:
        zeros = builder.broadcast(builder.const(0, ct.dtype), around)
        ct = builder.update(zeros, ct, (0, 0, *(p - 1 for p in places)), (1,) * len(around))
    plain = {name: value for name, value in options.items() if name != "shape"} | {"stride": (1,) * rank}
    made = ArrayType((ct.shape[0], met.shape[0], *wide), node.dtype)
    (found,) = builder.host("convolution", [ct, met], [made], **plain)
    found = builder.reshape(found, (*node.shape[:2], *counts, *wide))
    return builder.permute(found, (0, 1, *(a for i in range(rank) for a in (2 + rank + i, 2 + i))))


def decompose_convolution_weights_without_windows(
    builder: GraphBuilder, node: Node, args: Sequence[Value]
) -> Value | str:
    """convolution_weights(x, ct) -> products of rows of the cotangent with rows of x, shifted by each tap; between the
    lines of the cotangent there are zeros where x has elements that no window begins at"""
    if refusal := _why_no_convolution_of_rows(args, node):
        return refusal
    x, ct = (builder.cast(a, _dtype_of_convolution_sums(node)) for a in args)
    options = node.options
    out, each, *kernel = node.shape
    groups, (n, _, *wanted) = options["groups"], ct.shape
    if math.prod(kernel) == 1:
        return "windows of one element: products of matrices"
    rows = _rows_of_convolution(builder, x, wanted, kernel, options)
    wide = (n, out, wanted[0], *rows.lengths[1:])
    ct = _with_zeros_behind(builder, ct, wide)
    (sums,) = builder.host(
        "shifted_dots",
        [builder.reshape(ct, (n, groups, out // groups, -1)), rows.x],
        [ArrayType((groups, out // groups, each * len(rows.taps)), x.dtype)],
        taps=rows.taps,
        length=rows.length,
    )
    return builder.cast(builder.reshape(sums, node.shape), node.dtype)


def decompose_convolution_weights(builder: GraphBuilder, node: Node, args: Sequence[Value]) -> Value | str:
    """convolution_weights(x, ct) -> for each place in a window what the cotangent gives with all elements there. A loop
    along each axis, so that those of one place are copied at a time."""
    (x, ct), options = args, node.options
    (out, each, *kernel), groups, n, lengths = node.shape, options["groups"], ct.shape[0], ct.shape[2:]
    own = options.get("precision", "")

    def rows(builder: GraphBuilder, value: Value, count: int) -> Value:
        parts = builder.reshape(value, (n, groups, count, math.prod(lengths)))
        return builder.reshape(builder.permute(parts, (1, 2, 0, 3)), (groups, count, n * math.prod(lengths)))

    def along_axis(builder: GraphBuilder, x: Value, given: Value, level: int) -> Value:
        if level == len(kernel):
            products = _products_of_convolution_rows(builder, given, rows(builder, x, each), own)
            return builder.reshape(products, (out, each))
        rank, axis, body = x.ndim, level + 2, GraphBuilder("body")
        part = body.input(ArrayType((*x.shape[:axis], lengths[level], *x.shape[axis + 1 :]), x.dtype))
        whole = body.input(given.type)
        add_body_scalar(body, ITERATION)
        result = along_axis(body, part, whole, level + 1)
        steps = tuple(options["stride"][level] if i == axis else 1 for i in range(rank))
        moves = tuple(options["dilation"][level] if i == axis else 0 for i in range(rank))
        loop = Loop(body.finish([result]), 0, (Window((0,) * rank, steps, moves),), kernel[level])
        (stacked,) = add_control_flow_node(builder, loop, [x, given])
        return builder.permute(stacked, (1, 2, 0, *range(3, stacked.ndim)))

    return builder.cast(along_axis(builder, x, rows(builder, ct, out // groups), 0), node.dtype)


def _products_of_convolution_rows(builder: GraphBuilder, a: Value, b: Value, precision: str) -> Value:
    """a @ b^T, of single rows as sums."""
    if a.shape[1] * b.shape[1] > 1:
        return builder.matmul(a, builder.permute(b, (0, 2, 1)), precision=precision)
    terms = builder.map("multiply", a, b)
    return builder.reduce("sum", terms, (2,), terms.dtype)
