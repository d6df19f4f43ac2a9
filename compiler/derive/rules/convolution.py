"""Rules of convolutions: linear in each of two arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...core.types import ArrayType
from ...graph.builder import GraphBuilder
from ...graph.control_flow import ITERATION, Loop, Window, add_body_scalar, add_control_flow_node
from ...graph.graph import Value
from ..core.call import RuleCall, conjugated_cotangent, cotangent_fitted_to
from ..core.kinds import Cotangents, Linear, Maybe, Rule, Tangents, Written
from .cumulative import flip_axis_in_rule
from .structure import add_tangents_in_rule


def _convolve_tangents(call: RuleCall, tangents: Sequence[Maybe]) -> Tangents:
    total: Maybe = None
    for place, t in enumerate(tangents):
        if t is not None:
            args = [t if i == place else a for i, a in enumerate(call.args)]
            (found,) = call.builder.host(
                "convolve", args, [_convolution_type_in_rule(args, call.node.type.shape)], **call.options
            )
            total = add_tangents_in_rule(call.builder, total, call.builder.cast(found, call.node.type.dtype))
    return {0: total}


def _convolution_type_in_rule(args: Sequence[Value], shape: tuple[int, ...]) -> ArrayType:
    return ArrayType(shape, np.result_type(*(a.dtype for a in args)))


def _start_of_convolution_in_rule(mode: str, n: int, m: int) -> int:
    """Where the result begins in the full convolution of arrays of these lengths."""
    least = min(n, m)
    return {"full": 0, "same": (least - 1) // 2, "valid": least - 1}[mode]


def _convolve_cotangents(call: RuleCall, cts: Cotangents) -> Sequence[Maybe]:
    """With zeros around it, the full convolution's cotangent: correlated with one array it is the other's."""
    builder, (x, w), ct = call.builder, call.args, cts[0]
    (n,), (m,) = x.shape, w.shape
    base = builder.broadcast(builder.const(0, ct.dtype), (n + m - 1,))
    whole = builder.update(base, ct, (_start_of_convolution_in_rule(call.options["mode"], n, m),), (1,))
    found: list[Maybe] = [None, None]
    for place, (arg, other) in enumerate(((x, w), (w, x))):
        if call.active[place]:
            both = [whole, other]
            (part,) = builder.host("correlate", both, [_convolution_type_in_rule(both, arg.shape)], mode="valid")
            found[place] = cotangent_fitted_to(builder, part, arg)
    return found


def _rewrite_correlate_for_derivative(call: RuleCall) -> dict[int, Value]:
    """correlate(x, w) -> a part of convolve(x, conj(w[::-1])); of an even number of values it begins later in `same`
    where the second array is longer, as NumPy exchanges them"""
    builder, (x, w), mode = call.builder, call.args, call.options["mode"]
    (n,), (m,) = x.shape, w.shape
    turned = conjugated_cotangent(builder, flip_axis_in_rule(builder, w, 0))
    start = n // 2 if mode == "same" and m > n else _start_of_convolution_in_rule(mode, n, m)
    whole = _full_convolution_in_rule(builder, x, turned)
    found = builder.slice(whole, (start,), (1,), call.node.type.shape)
    return {0: builder.cast(found, call.node.type.dtype)}


def _full_convolution_in_rule(builder: GraphBuilder, x: Value, w: Value) -> Value:
    both = [x, w] if x.type.size >= w.type.size else [w, x]
    return builder.host(
        "convolve", both, [_convolution_type_in_rule(both, (x.type.size + w.type.size - 1,))], mode="full"
    )[0]


# convolutions of several axes


def _convolution_tangents(call: RuleCall, tangents: Sequence[Maybe]) -> Tangents:
    total: Maybe = None
    for place, t in enumerate(tangents):
        if t is not None:
            args = [t if i == place else a for i, a in enumerate(call.args)]
            (found,) = call.builder.host("convolution", args, [call.node.type], **call.options)
            total = add_tangents_in_rule(call.builder, total, found)
    return {0: total}


def _convolution_cotangents(call: RuleCall, cts: Cotangents) -> Sequence[Maybe]:
    (x, w), ct = call.args, cts[0]
    return [
        cotangent_fitted_to(call.builder, part(call, ct), arg) if active else None
        for part, arg, active in zip((_cotangent_of_image, _cotangent_of_weights), (x, w), call.active, strict=True)
    ]


def _cotangent_of_image(call: RuleCall, ct: Value) -> Value:
    """The cotangent, as far apart as the strides, with zeros between and around: convolved with the weights turned."""
    builder, (x, w), groups = call.builder, call.args, call.options["groups"]
    out, each, *kernel = w.shape
    dilation, lengths = call.options["dilation"], x.shape[2:]
    ends = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    wide = (*ct.shape[:2], *(n + end for n, end in zip(lengths, ends, strict=True)))
    zeros = builder.broadcast(builder.const(0, ct.dtype), wide)
    spread = builder.update(zeros, ct, (0, 0, *ends), (1, 1, *call.options["stride"]))
    rank = len(w.shape)
    turned = builder.slice(w, (0, 0, *(k - 1 for k in kernel)), (1, 1, *(-1 for _ in kernel)), w.shape)
    parts = builder.reshape(turned, (groups, out // groups, each, *kernel))
    swapped = builder.permute(parts, (0, 2, 1, *range(3, rank + 1)))
    weights = builder.reshape(swapped, (groups * each, out // groups, *kernel))
    args = [spread, conjugated_cotangent(builder, weights)]
    type = _convolution_type_in_rule(args, x.shape)
    options = {**call.options, "stride": (1,) * len(kernel), "dilation": dilation, "groups": groups}
    return builder.host("convolution", args, [type], **options)[0]


def _cotangent_of_weights(call: RuleCall, ct: Value) -> Value:
    """For each place in a window what the cotangent gives with all elements there. A loop along each axis, so that
    those of one place are copied at a time."""
    builder, (x, w), groups = call.builder, call.args, call.options["groups"]
    kernel, n, lengths = w.shape[2:], ct.shape[0], ct.shape[2:]

    def rows(builder: GraphBuilder, value: Value, count: int) -> Value:
        parts = builder.reshape(value, (n, groups, count, math.prod(lengths)))
        return builder.reshape(builder.permute(parts, (1, 2, 0, 3)), (groups, count, n * math.prod(lengths)))

    def along_axis(builder: GraphBuilder, x: Value, given: Value, level: int) -> Value:
        if level == len(kernel):
            other = conjugated_cotangent(builder, rows(builder, x, w.shape[1]))
            own = call.options.get("precision", "")
            return builder.reshape(_products_of_rows(builder, given, other, own), w.shape[:2])
        rank, axis, body = len(x.shape), level + 2, GraphBuilder("body")
        part = body.input(ArrayType((*x.shape[:axis], lengths[level], *x.shape[axis + 1 :]), x.dtype))
        whole = body.input(given.type)
        add_body_scalar(body, ITERATION)
        result = along_axis(body, part, whole, level + 1)
        steps = tuple(call.options["stride"][level] if i == axis else 1 for i in range(rank))
        moves = tuple(call.options["dilation"][level] if i == axis else 0 for i in range(rank))
        loop = Loop(body.finish([result]), 0, (Window((0,) * rank, steps, moves),), kernel[level])
        (stacked,) = add_control_flow_node(builder, loop, [x, given])
        return builder.permute(stacked, (1, 2, 0, *range(3, len(stacked.shape))))

    return along_axis(builder, x, rows(builder, ct, w.shape[0] // groups), 0)


def _products_of_rows(builder: GraphBuilder, a: Value, b: Value, precision: str) -> Value:
    """a @ b^T, of single rows as sums."""
    if a.shape[1] * b.shape[1] > 1:
        return builder.matmul(a, builder.permute(b, (0, 2, 1)), precision=precision)
    terms = builder.map("multiply", a, b)
    return builder.reduce("sum", terms, (2,), terms.dtype)


CONVOLUTIONS: dict[str, Rule] = {
    "convolve": Linear(_convolve_tangents, _convolve_cotangents),
    "convolution": Linear(_convolution_tangents, _convolution_cotangents),
    "correlate": Written(_rewrite_correlate_for_derivative),
}
