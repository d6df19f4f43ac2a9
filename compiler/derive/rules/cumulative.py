"""Rules of running sums and products, and of ufuncs' methods."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from ...core.types import INT64, ArrayType
from ...graph.builder import GraphBuilder
from ...graph.graph import Value
from ..core.call import RuleCall, copied_tangents
from ..core.kinds import Choice, Cotangents, Linear, Maybe, Refused, Rule, Tangents, Written


def flip_axis_in_rule(builder: GraphBuilder, value: Value, axis: int) -> Value:
    """Reversed along an axis."""
    shape = value.shape
    starts = [n - 1 if i == axis else 0 for i, n in enumerate(shape)]
    steps = [-1 if i == axis else 1 for i in range(len(shape))]
    return builder.slice(value, starts, steps, shape) if value.size else value


def _cumsum_cotangents(call: RuleCall, cts: Cotangents) -> Sequence[Maybe]:
    """The running sum from the other end."""
    builder, axis, ct = call.builder, call.options.get("axis", 0), cts[0]
    if ct.shape != call.args[0].shape:  # with the initial zero
        starts = tuple(1 if i == axis else 0 for i in range(ct.ndim))
        ct = builder.slice(ct, starts, (1,) * len(starts), call.args[0].shape)
    turned = flip_axis_in_rule(builder, ct, axis)
    (summed,) = builder.host("cumsum", [turned], [turned.type], axis=axis)
    return [builder.cast(flip_axis_in_rule(builder, summed, axis), call.args[0].dtype)]


def _rewrite_scan_for_derivative(call: RuleCall, ufunc: str) -> dict[int, Value]:
    """Running results in log2(n) steps, each of twice as many elements (Hillis and Steele, 1986): derivatives of
    products, to any order, divide by nothing. ufunc: an associative one."""
    builder, (x,), axis = call.builder, call.args, call.options.get("axis", 0)
    value = builder.cast(x, call.node.dtype)
    n, step, ones = x.shape[axis], 1, (1,) * x.ndim

    def slice_along_axis(source: Value, start: int, length: int) -> Value:
        starts = [start if i == axis else 0 for i in range(len(ones))]
        return builder.slice(source, starts, ones, [length if i == axis else m for i, m in enumerate(source.shape)])

    while step < n:
        both = builder.map(ufunc, slice_along_axis(value, 0, n - step), slice_along_axis(value, step, n - step))
        value = builder.concat([slice_along_axis(value, 0, step), both], axis)
        step *= 2
    if value.shape != call.node.shape:  # with the initial one
        first = builder.broadcast(builder.const(1, value.dtype), [1 if i == axis else m for i, m in enumerate(x.shape)])
        value = builder.concat([first, value], axis)
    return {0: value}


def _differentiable_inverse_scan(call: RuleCall, ufunc: str, inverse: str) -> dict[int, Value]:
    """x[0] - x[1] - x[2], ...: the first less the running sum of the others; quotients as these."""
    builder, (x,), axis = call.builder, call.args, call.options.get("axis", 0)
    if not x.size:
        return {0: builder.cast(x, call.node.dtype)}
    ones, first = (1,) * x.ndim, [1 if i == axis else n for i, n in enumerate(x.shape)]
    start = builder.slice(x, (0,) * len(ones), ones, first)
    unit = builder.broadcast(builder.const(0 if ufunc == "add" else 1, x.dtype), first)
    rest = builder.slice(
        x, [int(i == axis) for i in range(len(ones))], ones, [n - (i == axis) for i, n in enumerate(x.shape)]
    )
    padded = builder.concat([unit, rest], axis)
    (total,) = builder.host("accumulate", [padded], [call.node.type], **{**call.options, "ufunc": ufunc})
    return {0: builder.cast(builder.map(inverse, start, total), call.node.dtype)}


# what a masked element counts as
UNITS = {"add": 0.0, "multiply": 1.0, "logaddexp": -math.inf, "logaddexp2": -math.inf, "hypot": 0.0}
UNITS |= {"maximum": -math.inf, "minimum": math.inf, "fmax": math.nan, "fmin": math.nan}


def _rewrite_ufunc_reduce_for_derivative(call: RuleCall) -> dict[int, Value]:
    """A reduction as a tree of halves."""
    builder, (x, *mask), options, rank = call.builder, call.args, call.options, call.args[0].ndim
    ufunc, axis = options["ufunc"], options["axis"]
    axes = [i % rank for i in (axis if isinstance(axis, tuple) else (axis,))]
    kept = [i for i in range(rank) if i not in axes]
    x = builder.cast(x, options.get("dtype", call.node.dtype))
    if mask:
        x = builder.map("where", builder.broadcast(mask[0], x.shape), x, builder.const(UNITS[ufunc], x.dtype))
    count = math.prod(x.shape[i] for i in axes)
    rest = builder.reshape(builder.permute(x, [*kept, *axes]), (*(x.shape[i] for i in kept), count))
    lead = (0,) * len(kept)
    if "initial" in options:
        one = builder.broadcast(builder.const(options["initial"], x.dtype), (*rest.shape[:-1], 1))
        rest = builder.concat([one, rest], len(kept))
    if not rest.shape[-1]:
        rest = builder.broadcast(builder.const(UNITS[ufunc], x.dtype), (*rest.shape[:-1], 1))
    while (n := rest.shape[-1]) > 1:
        ones, half = (1,) * rest.ndim, n // 2
        low, high = (builder.slice(rest, (*lead, i), ones, (*rest.shape[:-1], half)) for i in (0, half))
        both = builder.map(ufunc, low, high)
        odd = builder.slice(rest, (*lead, n - 1), ones, (*rest.shape[:-1], 1))
        rest = builder.concat([both, odd], len(kept)) if n % 2 else both
    return {0: builder.cast(builder.reshape(rest, call.node.shape), call.node.dtype)}


def _reduceat_tangents(call: RuleCall, tangents: Sequence[Maybe]) -> Tangents:
    t = tangents[0]
    return {0: None if t is None else call.copy(t, call.args[1])}


def _reduceat_cotangents(call: RuleCall, cts: Cotangents) -> Sequence[Maybe]:
    """Each element gets what its part gets; an element alone, whose index is not less than the next one, that too. NaN
    where indices fall, so that parts overlap."""
    builder, (x, indices), ct, axis = call.builder, call.args, cts[0], call.options.get("axis", 0)
    (m,), n = indices.shape, x.shape[axis]
    at = builder.cast(indices, INT64)
    at = builder.from_front(at, n)
    every = builder.index((n,), 0)
    (place,) = builder.host("searchsorted", [at, every], [ArrayType((n,), INT64)], side="right")
    place = builder.map("subtract", place, np.int64(1))
    rank = x.ndim
    wide = [n if i == axis else 1 for i in range(rank)]
    known = builder.reshape(builder.map("maximum", place, np.int64(0)), wide)
    others = [i for i in range(rank) if i != axis]
    found = builder.gather(ct, [known], [axis], others, x.shape, checked=False)
    zero = builder.const(0, ct.dtype)
    found = builder.map("where", builder.reshape(builder.map("less", place, np.int64(0)), wide), zero, found)
    if m > 1:
        before, after = (builder.slice(at, (i,), (1,), (m - 1,)) for i in (0, 1))
        falls = builder.reduce("any", builder.map("greater", before, after), (0,))
        alone = builder.reshape(builder.map("equal", before, after), [m - 1 if i == axis else 1 for i in range(rank)])
        lone = builder.slice(ct, (0,) * rank, (1,) * rank, [s - (i == axis) for i, s in enumerate(ct.shape)])
        lone = builder.map("where", alone, lone, zero)
        order = [axis, *others]
        rows = builder.reshape(builder.permute(lone, order), (m - 1, -1))
        columns = rows.shape[1]
        places = builder.map(
            "add",
            builder.map("multiply", builder.reshape(before, (m - 1, 1)), np.int64(columns)),
            builder.index((m - 1, columns), 1),
        )
        base = builder.permute(found, order)
        flat = builder.reshape(base, (base.type.size,))
        arrays = [flat, builder.reshape(places, (-1,)), builder.reshape(rows, (-1,))]
        (added,) = builder.host("combine_at", arrays, [flat.type], ufunc="add")
        found = builder.permute(builder.reshape(added, base.shape), [order.index(i) for i in range(rank)])
        found = builder.map("where", falls, builder.const(math.nan, ct.dtype), found)
    return [builder.cast(found, x.dtype), None]


def _is_first_scan_argument(call: RuleCall, place: int) -> bool:
    return place == 0


def _scan_rule_by_ufunc(rules: dict[str, Rule], what: str) -> Choice:
    def rule_of_ufunc(call: RuleCall) -> Rule:
        ufunc = call.options["ufunc"]
        return rules.get(ufunc, Refused(f"np.{ufunc}.{what} has no derivative; give it one with kg.custom_vjp"))

    return Choice(rule_of_ufunc)


_SUM, _PRODUCT = (
    Linear(copied_tangents, _cumsum_cotangents),
    Written(lambda call: _rewrite_scan_for_derivative(call, "multiply")),
)
_ASSOCIATIVE = ("maximum", "minimum", "fmax", "fmin", "logaddexp", "logaddexp2", "hypot")
_ACCUMULATED: dict[str, Rule] = {
    "add": _SUM,
    "multiply": _PRODUCT,
    "subtract": Written(partial(_differentiable_inverse_scan, ufunc="add", inverse="subtract")),
    "divide": Written(partial(_differentiable_inverse_scan, ufunc="multiply", inverse="divide")),
    **{ufunc: Written(partial(_rewrite_scan_for_derivative, ufunc=ufunc)) for ufunc in _ASSOCIATIVE},
}
CUMULATIVE: dict[str, Rule] = {
    "cumsum": _SUM,
    "cumulative_sum": _SUM,
    "cumprod": _PRODUCT,
    "cumulative_prod": _PRODUCT,
    "accumulate": _scan_rule_by_ufunc(_ACCUMULATED, "accumulate"),
    "reduceat": _scan_rule_by_ufunc(
        {"add": Linear(_reduceat_tangents, _reduceat_cotangents, _is_first_scan_argument)}, "reduceat"
    ),
    "ufunc_reduce": _scan_rule_by_ufunc(dict.fromkeys(UNITS, Written(_rewrite_ufunc_reduce_for_derivative)), "reduce"),
    "require": Linear(lambda call, t: {0: t[0]}, lambda call, cts: [cts[0], None], _is_first_scan_argument),
    "view": Refused("a view of other bits has no derivative; write x.astype(dtype), or kg.custom_vjp"),
}
