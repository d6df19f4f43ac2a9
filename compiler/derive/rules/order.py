"""Rules of sorting, selection, histograms and interpolation.

Values in an order are the same values at other places: derivatives go with them. Where two are equal, one is taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...core.types import FLOAT64, INT64, ArrayType
from ...decompose.histograms import decompose_bincount, decompose_histogram, decompose_histogram_in_range
from ...decompose.order_statistics import (
    decompose_median,
    decompose_nanmedian,
    decompose_nanquantile,
    decompose_quantile,
)
from ...graph.builder import GraphBuilder
from ...graph.graph import GraphError, Value, Values
from ..core.call import RuleCall, cotangent_fitted_to
from ..core.kinds import ZERO, Choice, Cotangents, Linear, Maybe, Refused, Rule, Tangent, Tangents, Written
from .structure import rule_tangents_or_zeros


def _take_along_axis_in_rule(builder: GraphBuilder, x: Value, places: Value, axis: int) -> Value:
    """take_along_axis."""
    others = [i for i in range(x.ndim) if i != axis]
    return builder.gather(x, [places], [axis], others, places.shape, checked=False)


def sorted_places_in_rule(builder: GraphBuilder, x: Value, axis: int) -> Value:
    """Where the values in order come from; equal ones stay in theirs."""
    return builder.host("argsort", [x], [ArrayType(x.shape, INT64)], axis=axis, kind="stable")[0]


def _sorted_axis_of_rule(call: RuleCall) -> int:
    return int(call.options.get("axis", -1)) % call.args[0].ndim


def _rule_of_sorted_places(places: Callable[[RuleCall], Value]) -> Linear:
    """The rule of what puts values in other places of their row."""

    def permuted_tangents(call: RuleCall, tangents: Sequence[Maybe]) -> Tangents:
        (t,) = tangents
        return {
            0: None
            if t is None
            else _take_along_axis_in_rule(call.builder, t, places(call), _sorted_axis_of_rule(call))
        }

    def permuted_cotangents(call: RuleCall, cts: Cotangents) -> Sequence[Maybe]:
        back = sorted_places_in_rule(call.builder, places(call), _sorted_axis_of_rule(call))
        return [_take_along_axis_in_rule(call.builder, cts[0], back, _sorted_axis_of_rule(call))]

    return Linear(permuted_tangents, permuted_cotangents)


def _sort_places_in_rule(call: RuleCall) -> Value:
    return sorted_places_in_rule(call.builder, call.args[0], _sorted_axis_of_rule(call))


def _partition_places_in_rule(call: RuleCall) -> Value:
    """Of a partition only the result says where its values are: the k-th of its order is the k-th of the array's."""
    builder, axis = call.builder, _sorted_axis_of_rule(call)
    before, after = (sorted_places_in_rule(builder, v, axis) for v in (call.args[0], call.result))
    return _take_along_axis_in_rule(builder, before, sorted_places_in_rule(builder, after, axis), axis)


def _rewrite_kth_for_derivative(call: RuleCall) -> dict[int, Value]:
    """kth(x) -> those places of sort(x)"""
    builder, (x,) = call.builder, call.args
    (ordered,) = builder.host("sort", [x], [x.type], axis=-1)
    lead, ones = (0,) * (x.ndim - 1), (1,) * x.ndim
    parts = [builder.slice(ordered, (*lead, k), ones, (*x.shape[:-1], 1)) for k in call.options["kth"]]
    return {0: builder.concat(parts, len(lead))}


def _derivative_rule_by_decomposition(decompose: Callable[..., Value | str]) -> Written:
    """The rule of a call that ops can do."""

    def decomposed_results(call: RuleCall) -> dict[int, Value]:
        found: dict[int, Value] = {}
        for number in call.results:
            node = call.builder.nodes[call.results[number].number]
            made = decompose(call.builder, node, call.args)
            if isinstance(made, str):
                why = made or "this call is NumPy's alone"
                raise GraphError(f"{call.name} has no derivative: {why}", NotImplementedError, call.builder.where())
            found[number] = made
        return found

    return Written(decomposed_results)


# choose


def _choose_tangents(call: RuleCall, tangents: Sequence[Maybe]) -> Tangents:
    return {0: call.copy(call.args[0], *rule_tangents_or_zeros(call, tangents)[1:])}


def _choose_cotangents(call: RuleCall, cts: Cotangents) -> Sequence[Maybe]:
    builder, (index, *choices), ct, mode = call.builder, call.args, cts[0], call.options["mode"]
    number = builder.cast(index, INT64)
    if mode == "wrap":
        number = builder.map("remainder", number, np.int64(len(choices)))
    if mode == "clip":
        number = builder.map("minimum", builder.map("maximum", number, np.int64(0)), np.int64(len(choices) - 1))
    found: list[Maybe] = [None]
    for i, (choice, active) in enumerate(zip(choices, call.active[1:], strict=True)):
        here = builder.map("equal", number, np.int64(i))
        taken = builder.map("where", here, ct, builder.const(0, ct.dtype)) if active else None
        found.append(None if taken is None else cotangent_fitted_to(builder, taken, choice))
    return found


# interpolation


def _differentiable_interp(call: RuleCall) -> dict[int, Value]:
    """A value between two points, of the line between them; on a point, of the line that begins there."""
    builder, (x, xp, fp, *sides), options, type_ = call.builder, call.args, call.options, call.node.type
    x, xp, fp = builder.cast(x, FLOAT64), builder.cast(xp, FLOAT64), builder.cast(fp, type_.dtype)
    given = dict(zip(options.get("named", ()), sides, strict=True))
    period = options.get("period")
    if period is not None:
        period = np.float64(abs(period))
        x, xp = builder.map("remainder", x, period), builder.map("remainder", xp, period)
        places = sorted_places_in_rule(builder, xp, 0)
        xp, fp = _take_along_axis_in_rule(builder, xp, places, 0), _take_along_axis_in_rule(builder, fp, places, 0)
        first, last = (_interp_point_in_rule(builder, xp, i) for i in (0, -1))
        xp = builder.concat([builder.map("subtract", last, period), xp, builder.map("add", first, period)], 0)
        fp = builder.concat([_interp_point_in_rule(builder, fp, -1), fp, _interp_point_in_rule(builder, fp, 0)], 0)
        given = {}
    (n,) = xp.shape
    ends = [builder.reshape(_interp_point_in_rule(builder, v, i), ()) for v in (xp, fp) for i in (0, -1)]
    low, high, left, right = ends
    left, right = (builder.cast(given.get(k, v), type_.dtype) for k, v in (("left", left), ("right", right)))
    inside = ends[2]
    if n > 1:
        (place,) = builder.host("searchsorted", [xp, x], [ArrayType(x.shape, INT64)], side="right")
        place = builder.map("subtract", builder.map("maximum", place, np.int64(1)), np.int64(1))
        place = builder.map("minimum", place, np.int64(n - 2))
        after = builder.map("add", place, np.int64(1))
        x0, x1, f0, f1 = (
            builder.gather(v, [i], [0], [], x.shape, checked=False) for v in (xp, fp) for i in (place, after)
        )
        slope = builder.map("divide", builder.map("subtract", f1, f0), builder.map("subtract", x1, x0))
        inside = builder.map("add", builder.map("multiply", slope, builder.map("subtract", x, x0)), f0)
    inside = builder.map("where", builder.map("less", x, low), left, inside)
    found = builder.map("where", builder.map("greater", x, high), right, inside)
    return {0: builder.broadcast(found, type_.shape)}


def _interp_point_in_rule(builder: GraphBuilder, values: Value, at: int) -> Value:
    return builder.slice(values, (at % values.shape[0],), (1,), (1,))


# i0

POINTS = 128  # of half a circle; the rest of the integral's error is e^(-(2 * 128)^2 / 2x), 4e-21 at x = 700


def _i0_tangents(call: RuleCall, tangents: Sequence[Maybe]) -> Tangents:
    """i1(x) = the mean of cos(a) e^(x cos a) over the circle (Abramowitz and Stegun 9.6.19), which the trapezoidal rule
    gives to all digits (Trefethen and Weideman, The exponentially convergent trapezoidal rule, 2014)."""
    builder, (x,), (t,) = call.builder, call.args, tangents
    if t is None:
        return {0: None}
    shape, kind = (*x.shape, POINTS), x.dtype.type
    angle = builder.cast(builder.index((POINTS,), 0), FLOAT64)
    angle = builder.map("multiply", builder.map("add", angle, np.float64(0.5)), np.float64(math.pi / POINTS))
    cosine = builder.cast(builder.map("cos", angle), x.dtype)
    wide = builder.broadcast(builder.reshape(x, (*x.shape, 1)), shape)
    terms = builder.map("multiply", cosine, builder.map("exp", builder.map("multiply", wide, cosine)))
    mean = builder.map("divide", builder.reduce("sum", terms, (x.ndim,), x.dtype), kind(POINTS))
    return {0: builder.cast(builder.map("multiply", t, mean), call.node.dtype)}


# histograms


def _decompose_histogram_in_rule(builder: GraphBuilder, node: Any, args: Values) -> Value | str:
    found = decompose_histogram_in_range(builder, node, args)
    return found if isinstance(found, Value) else decompose_histogram(builder, node, args)


def _histogramdd_derivative_rule(call: RuleCall) -> Rule:
    """Linear in the weights; points that move a little stay in their bins."""
    options = call.options
    if options.get("density"):
        return Refused("the density of points has none; divide the counts yourself")
    if call.active[0] and options.get("range") is None and not options["edges"]:
        return Refused("the edges follow the points; pass range=, or edges as bins=")
    return Linear(
        _histogramdd_tangents,
        _histogramdd_cotangents,
        lambda call, place: bool(place == len(call.args) - 1 > call.options["edges"]),
    )


def _histogramdd_tangents(call: RuleCall, tangents: Sequence[Maybe]) -> Tangents:
    t = tangents[-1]
    if t is None:
        return {}
    return {0: call.copy(*call.args[:-1], t)}


def _histogramdd_cotangents(call: RuleCall, cts: Cotangents) -> Sequence[Maybe]:
    """Each point's weight gets what its bin gets."""
    builder, (points, *_, weights), nothing = call.builder, call.args, [None] * (len(call.args) - 1)
    if 0 not in cts:
        return [*nothing, None]
    ct, options = cts[0], call.options
    n, d = points.shape
    sides = [ArrayType((m + 1,), FLOAT64) for m in ct.shape]
    types = [ct.type, *(s if options["edges"] == 0 else call.args[1 + i].type for i, s in enumerate(sides))]
    edges = builder.host("histogramdd", call.args, types, **options)[1:]
    inside: Value | None = None
    places = []
    for i, edge in enumerate(edges):
        x = builder.reshape(builder.slice(points, (0, i), (1, 1), (n, 1)), (n,))
        (place,) = builder.host("searchsorted", [edge, x], [ArrayType((n,), INT64)], side="right")
        place = builder.map("subtract", place, np.int64(1))
        last = builder.reshape(_interp_point_in_rule(builder, edge, -1), ())
        place = builder.map("where", builder.map("equal", x, last), np.int64(ct.shape[i] - 1), place)
        low, high = builder.map("greater_equal", place, np.int64(0)), builder.map("less", place, np.int64(ct.shape[i]))
        here = builder.map("logical_and", low, high)
        inside = here if inside is None else builder.map("logical_and", inside, here)
        places.append(builder.map("where", here, place, np.int64(0)))
    assert inside is not None
    seen = builder.gather(ct, places, list(range(d)), [], (n,), checked=False)
    return [
        *nothing,
        cotangent_fitted_to(builder, builder.map("where", inside, seen, builder.const(0, ct.dtype)), weights),
    ]


ORDER: dict[str, Rule] = {
    "sort": _rule_of_sorted_places(_sort_places_in_rule),
    "partition": _rule_of_sorted_places(_partition_places_in_rule),
    "kth": Written(_rewrite_kth_for_derivative),
    "topk": ZERO,
    "median": _derivative_rule_by_decomposition(decompose_median),
    "nanmedian": _derivative_rule_by_decomposition(decompose_nanmedian),
    "quantile": _derivative_rule_by_decomposition(decompose_quantile),
    "percentile": _derivative_rule_by_decomposition(partial(decompose_quantile, scale=100)),
    "nanquantile": _derivative_rule_by_decomposition(decompose_nanquantile),
    "nanpercentile": _derivative_rule_by_decomposition(partial(decompose_nanquantile, scale=100)),
    "choose": Linear(_choose_tangents, _choose_cotangents, lambda call, place: place > 0),
    "interp": Written(_differentiable_interp),
    "i0": Tangent(_i0_tangents),
    "bincount": _derivative_rule_by_decomposition(decompose_bincount),
    "histogram": _derivative_rule_by_decomposition(_decompose_histogram_in_rule),
    "histogramdd": Choice(_histogramdd_derivative_rule),
}
