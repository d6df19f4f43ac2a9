"""Rules of reductions."""

from __future__ import annotations

from collections.abc import Sequence

from ...graph.builder import GraphBuilder
from ...graph.graph import Value
from ..core.call import RuleCall
from ..core.kinds import ZERO, Cotangents, Linear, Maybe, Rule, Tangents, Written


def spread_over_reduced_axes(builder: GraphBuilder, value: Value, axes: Sequence[int], shape: Sequence[int]) -> Value:
    """A reduction's result along the axes that it has reduced."""
    kept = tuple(1 if i in axes else n for i, n in enumerate(shape))
    return builder.broadcast(builder.reshape(value, kept), shape)


def _sum_tangents(call: RuleCall, tangents: Sequence[Maybe]) -> Tangents:
    (t,) = tangents
    return {0: None if t is None else call.builder.reduce("sum", t, call.attr("axes"), call.node.dtype)}


def _spread_with_mask(call: RuleCall, ct: Value, value: Value) -> Value:
    """`spread_over_reduced_axes`, under the mask of the cotangent."""

    def spread(x: Value) -> Value:
        return spread_over_reduced_axes(call.builder, x, call.attr("axes"), call.args[0].shape)

    return call.put_under_mask_of(ct, spread(value), spread)


def _rewrite_product_for_derivative(call: RuleCall) -> dict[int, Value]:
    """A product as a tree of products of two halves: its derivatives, to any order, divide by nothing."""
    builder, (x,), axes = call.builder, call.args, call.attr("axes")
    kept = [i for i in range(x.ndim) if i not in axes]
    shape = tuple(x.shape[i] for i in kept)
    rest = builder.reshape(builder.permute(x, [*kept, *axes]), (*shape, -1) if x.size else (*shape, 0))
    lead, over = (0,) * len(shape), list[Value]()
    while (n := rest.shape[-1]) > 1:
        half, ones = n // 2, (1,) * rest.ndim
        if n % 2:
            over.append(builder.slice(rest, (*lead, n - 1), ones, (*shape, 1)))
        first, second = (builder.slice(rest, (*lead, i), ones, (*shape, half)) for i in (0, half))
        rest = builder.map("multiply", first, second)
    for value in over:
        rest = builder.map("multiply", rest, value)
    if not rest.shape[-1]:
        return {0: builder.broadcast(builder.const(1, call.node.dtype), shape)}
    return {0: builder.cast(builder.reshape(rest, shape), call.node.dtype)}


def _chosen_by_extremum(call: RuleCall) -> tuple[Value, Value]:
    """1 where an element is the least or greatest one, else 0; and how many are."""
    builder, (x,), axes = call.builder, call.args, call.attr("axes")
    best = spread_over_reduced_axes(builder, call.result, axes, x.shape)
    chosen = builder.cast(builder.map("equal", x, best), x.dtype)
    return chosen, builder.reduce("sum", chosen, axes, x.dtype)


def _extremum_tangents(call: RuleCall, tangents: Sequence[Maybe]) -> Tangents:
    """The mean of the tangents of all that are the extremum."""
    (t,) = tangents
    if t is None:
        return {0: None}
    chosen, count = _chosen_by_extremum(call)
    total = call.builder.reduce("sum", call.builder.map("multiply", t, chosen), call.attr("axes"), call.node.dtype)
    return {0: call.builder.map("divide", total, count)}


def _extremum_cotangents(call: RuleCall, cts: Cotangents) -> Sequence[Maybe]:
    """Equal shares for all that are the extremum: divided once for all of them, not for each element."""
    chosen, count = _chosen_by_extremum(call)
    share = _spread_with_mask(call, cts[0], call.builder.map("divide", cts[0], count))
    return [call.put_under_mask_of(share, call.builder.map("multiply", chosen, share), lambda mask: mask)]


EXTREMUM = Linear(_extremum_tangents, _extremum_cotangents)
REDUCTIONS: dict[str, Rule] = {
    "sum": Linear(_sum_tangents, lambda call, cts: [_spread_with_mask(call, cts[0], cts[0])]),
    "prod": Written(_rewrite_product_for_derivative),
    "min": EXTREMUM,
    "max": EXTREMUM,
    "any": ZERO,
    "all": ZERO,
    "argmin": ZERO,
    "argmax": ZERO,
}
