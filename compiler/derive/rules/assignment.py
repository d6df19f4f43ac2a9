"""Rules of elements at computed places: gathers, and assignments at indices, which is what they are transposed to."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...core.types import INT64, ArrayType
from ...decompose.assignments import flat_numbers_of_assigned_elements
from ...graph.builder import GraphBuilder
from ...graph.graph import Value
from ..core.call import RuleCall, cotangent_fitted_to, zero_cotangent
from ..core.kinds import Choice, Cotangents, Linear, Maybe, Refused, Rule, Tangents
from .structure import rule_tangents_or_zeros


def gather_rule_element_numbers(call: RuleCall) -> Value:
    """The numbers of the elements that a gather reads, in the order of its result, as one axis."""
    builder, a, indices = call.builder, call.args[0], call.args[1:]
    shape = call.node.shape
    along = dict(zip(call.attr("axes"), indices, strict=True))
    rest = iter(call.attr("rest"))
    every = []
    for axis, n in enumerate(a.shape):
        index = along[axis] if axis in along else builder.index(shape, next(rest))
        every.append(builder.from_front(index, n) if axis in along and call.attr("checked") else index)
    found = builder.element_numbers(a.shape, every)
    return builder.reshape(builder.broadcast(found, shape), (-1,) if math.prod(shape) else (0,))


def add_cotangents_at_places(builder: GraphBuilder, base: Value, places: Value, values: Value) -> Value:
    """`np.add.at(base.flat, places, values)`: both of one axis."""
    if not values.size:
        return base
    flat = builder.reshape(base, (base.type.size,))
    (result,) = builder.host("combine_at", [flat, places, values], [flat.type], ufunc="add")
    return builder.reshape(result, base.shape)


def take_flat_elements_in_rule(builder: GraphBuilder, a: Value, places: Value) -> Value:
    """The elements of `a` at flat places."""
    flat = builder.reshape(a, (a.size,))
    return builder.gather(flat, [places], [0], [], places.shape, checked=False)


def _gather_tangents(call: RuleCall, tangents: Sequence[Maybe]) -> Tangents:
    t = tangents[0]
    args = (0 if t is None else t.number, *(a.number for a in call.args[1:]))
    return {0: None if t is None else call.builder.add("gather", args, call.node.type, call.node.attrs)}


def _gather_cotangents(call: RuleCall, cts: Cotangents) -> Sequence[Maybe]:
    builder, a, ct = call.builder, call.args[0], cts[0]
    values = builder.reshape(ct, (ct.size,))
    found = add_cotangents_at_places(builder, zero_cotangent(builder, a), gather_rule_element_numbers(call), values)
    return [found, *[None] * (len(call.args) - 1)]


def _combine_at_tangents(call: RuleCall, tangents: Sequence[Maybe]) -> Tangents:
    base, _, values = rule_tangents_or_zeros(call, tangents)
    return {0: call.copy(base, call.args[1], values)}


def _combine_at_cotangents(call: RuleCall, cts: Cotangents) -> Sequence[Maybe]:
    seen = take_flat_elements_in_rule(call.builder, cts[0], call.args[1]) if call.active[2] else None
    return [cts[0], None, None if seen is None else call.builder.cast(seen, call.args[2].dtype)]


def _assignment_tangents(call: RuleCall, tangents: Sequence[Maybe]) -> Tangents:
    given = rule_tangents_or_zeros(call, tangents)
    return {0: call.copy(given[0], *call.args[1:-1], given[-1])}


def are_last_assigned_in_rule(builder: GraphBuilder, places: Value, size: int) -> Value:
    """Of values that are assigned one after the other: those that stay."""
    (last,) = builder.host("last_places", [places], [ArrayType((size,), INT64)], length=size)
    return builder.map("equal", take_flat_elements_in_rule(builder, last, places), builder.index(places.shape, 0))


def _assignment_cotangents(call: RuleCall, cts: Cotangents, places: Value, shape: tuple[int, ...]) -> Sequence[Maybe]:
    """The base keeps the cotangent where nothing was assigned; the value gets it at its places."""
    builder, ct, value = call.builder, cts[0], call.args[-1]
    keys = call.args[1:-1]
    base = call.copy(ct, *keys, builder.const(0, value.dtype) if not value.shape else zero_cotangent(builder, value))
    found: Maybe = None
    if call.active[-1]:
        seen = take_flat_elements_in_rule(builder, ct, places)
        stays = are_last_assigned_in_rule(builder, places, ct.size)
        seen = builder.map("where", stays, seen, builder.const(0, ct.dtype))
        excess = max(value.ndim - len(shape), 0)
        reached = builder.reshape(seen, shape)
        shaped = builder.reshape(value, value.shape[excess:])
        found = builder.reshape(cotangent_fitted_to(builder, reached, shaped), value.shape)
    return [base if call.active[0] else None, *[None] * len(keys), found]


def _setitem_cotangents(call: RuleCall, cts: Cotangents) -> Sequence[Maybe]:
    if call.args[1].dtype.kind == "b":
        return _masked_setitem_cotangents(call, cts)
    places, shape = flat_numbers_of_assigned_elements(
        call.builder, call.node.shape, call.options["key"], call.args[1:-1]
    )
    return _assignment_cotangents(call, cts, places, shape)


def _masked_setitem_cotangents(call: RuleCall, cts: Cotangents) -> Sequence[Maybe]:
    """x[mask] = values: the k-th value gets the cotangent where the mask holds for the k-th time."""
    builder, (_, mask, value), ct = call.builder, call.args, cts[0]
    n, rest = mask.size, ct.shape[mask.ndim :]
    m = value.shape[-len(rest) - 1]
    chosen = builder.cast(builder.reshape(mask, (n,)), INT64)
    (count,) = builder.host("cumsum", [chosen], [chosen.type], axis=0)
    wanted = builder.map("add", builder.index((m,), 0), np.int64(1))
    (place,) = builder.host("searchsorted", [count, wanted], [wanted.type], side="left")
    place = builder.reshape(builder.map("minimum", place, np.int64(n - 1)), (m, *(1 for _ in rest)))
    rows = builder.reshape(ct, (n, *rest))
    seen = builder.gather(rows, [place], [0], list(range(1, len(rest) + 1)), (m, *rest), checked=False)
    base = call.copy(ct, mask, zero_cotangent(builder, value)) if call.active[0] else None
    shaped = builder.reshape(value, value.shape[-len(rest) - 1 :])
    return [
        base,
        None,
        builder.reshape(cotangent_fitted_to(builder, seen, shaped), value.shape) if call.active[2] else None,
    ]


def _put_along_axis_cotangents(call: RuleCall, cts: Cotangents) -> Sequence[Maybe]:
    builder, ct, indices, axis = call.builder, cts[0], call.args[1], call.options.get("axis")
    if axis is None:
        size = ct.size
        flat = builder.cast(builder.reshape(indices, (-1,)), INT64)
        places = builder.from_front(flat, size)
        return _assignment_cotangents(call, cts, places, places.shape)
    shape = tuple(indices.shape[axis] if i == axis else n for i, n in enumerate(ct.shape))
    every = [builder.index(shape, i) for i in range(ct.ndim)]
    every[axis] = builder.from_front(builder.cast(builder.broadcast(indices, shape), INT64), ct.shape[axis])
    found = builder.element_numbers(ct.shape, every)
    return _assignment_cotangents(call, cts, builder.reshape(found, (-1,)), shape)


def _ufunc_at_cotangents(call: RuleCall, cts: Cotangents) -> Sequence[Maybe]:
    builder, ct, value, options = call.builder, cts[0], call.args[-1], call.options
    keys = call.args[1:-1]
    found: Maybe = None
    if call.active[-1]:
        places, shape = flat_numbers_of_assigned_elements(builder, ct.shape, options["key"], keys)
        seen = builder.reshape(take_flat_elements_in_rule(builder, ct, places), shape)
        seen = builder.map("negative", seen) if options["ufunc"] == "subtract" else seen
        found = cotangent_fitted_to(builder, seen, value)
    return [ct if call.active[0] else None, *[None] * len(keys), found]


def _shares_of_extremum_at(call: RuleCall) -> tuple[Value, Value, Value, Value]:
    """Of the greatest or least of an element and the values at its place: for each element and each value its share,
    equal ones where several are that; and the places, and the values laid out as these."""
    builder, (a, *keys, value), ct = call.builder, call.args, call.result
    places, shape = flat_numbers_of_assigned_elements(builder, a.shape, call.options["key"], keys)
    wide = builder.reshape(builder.broadcast(value, shape), (-1,))
    best = take_flat_elements_in_rule(builder, ct, places)
    mine = builder.cast(builder.map("equal", a, ct), a.dtype)
    given = builder.cast(builder.map("equal", builder.cast(wide, a.dtype), best), a.dtype)
    count = add_cotangents_at_places(builder, mine, places, given)
    return (
        builder.map("divide", mine, count),
        builder.map("divide", given, take_flat_elements_in_rule(builder, count, places)),
        places,
        wide,
    )


def _routine_partial_of_extremum(call: RuleCall, tangents: Sequence[Maybe]) -> Tangents:
    builder, (ta, *_, tv) = call.builder, rule_tangents_or_zeros(call, tangents)
    mine, given, places, wide = _shares_of_extremum_at(call)
    _, shape = flat_numbers_of_assigned_elements(builder, ta.shape, call.options["key"], call.args[1:-1])
    moved = builder.reshape(builder.broadcast(builder.cast(tv, ta.dtype), shape), wide.shape)
    return {
        0: add_cotangents_at_places(
            builder, builder.map("multiply", mine, ta), places, builder.map("multiply", given, moved)
        )
    }


def _extremum_at_cotangents(call: RuleCall, cts: Cotangents) -> Sequence[Maybe]:
    builder, ct, value = call.builder, cts[0], call.args[-1]
    mine, given, places, _ = _shares_of_extremum_at(call)
    _, shape = flat_numbers_of_assigned_elements(builder, ct.shape, call.options["key"], call.args[1:-1])
    seen = builder.reshape(builder.map("multiply", given, take_flat_elements_in_rule(builder, ct, places)), shape)
    return [
        builder.map("multiply", mine, ct),
        *[None] * (len(call.args) - 2),
        cotangent_fitted_to(builder, seen, value),
    ]


_ATS: dict[str, Rule] = {
    **dict.fromkeys(("add", "subtract"), Linear(_assignment_tangents, _ufunc_at_cotangents)),
    **dict.fromkeys(("maximum", "minimum"), Linear(_routine_partial_of_extremum, _extremum_at_cotangents)),
}


def _ufunc_at_rule(call: RuleCall) -> Rule:
    ufunc = call.options["ufunc"]
    if any(a.dtype.kind == "b" for a in call.args[1:-1]):
        return Refused("a mask among its indices has none; write an assignment, x[mask] += values")
    return _ATS.get(ufunc, Refused(f"np.{ufunc}.at has none; np.add.at has one, and kg.custom_vjp gives one"))


def _put_cotangents(call: RuleCall, cts: Cotangents) -> Sequence[Maybe]:
    """np.put repeats values that are too few, and leaves out those that are too many."""
    builder, (a, indices, values), mode = call.builder, call.args, call.options["mode"]
    n, count, given = a.size, indices.size, values.size
    at = builder.cast(builder.reshape(indices, (count,)), INT64)
    if mode == "wrap":
        at = builder.map("remainder", at, np.int64(n))
    elif mode == "clip":
        at = builder.map("minimum", builder.map("maximum", at, np.int64(0)), np.int64(n - 1))
    else:
        at = builder.from_front(at, n)
    kept = are_last_assigned_in_rule(builder, at, n)
    zero = builder.const(0, a.dtype)
    base = call.copy(cts[0], indices, zero_cotangent(builder, values)) if call.active[0] else None
    seen = builder.map("where", kept, take_flat_elements_in_rule(builder, cts[0], at), zero)
    numbers = builder.map("remainder", builder.index((count,), 0), np.int64(given))
    found = add_cotangents_at_places(builder, builder.broadcast(zero, (given,)), numbers, seen)
    return [base, None, builder.cast(builder.reshape(found, values.shape), values.dtype)]


def _cotangents_of_numpy_place(call: RuleCall, cts: Cotangents) -> Sequence[Maybe]:
    """np.place repeats values that are too few."""
    builder, (a, mask, values), ct = call.builder, call.args, cts[0]
    n, given, zero = a.size, values.size, builder.const(0, a.dtype)
    chosen = builder.reshape(builder.map("not_equal", mask, builder.const(0, mask.dtype)), (n,))
    (count,) = builder.host("cumsum", [builder.cast(chosen, INT64)], [ArrayType((n,), INT64)], axis=0)
    number = builder.map("subtract", builder.map("maximum", count, np.int64(1)), np.int64(1))
    flat = builder.reshape(ct, (n,))
    base = builder.reshape(builder.map("where", chosen, zero, flat), a.shape)
    seen = builder.map("where", chosen, flat, zero)
    found = add_cotangents_at_places(
        builder, builder.broadcast(zero, (given,)), builder.map("remainder", number, np.int64(given)), seen
    )
    return [base, None, builder.cast(builder.reshape(found, values.shape), values.dtype)]


def _assignment_derivative_rule_unless_empty(call: RuleCall, rule: Rule) -> Rule:
    """Nothing is assigned where there are no values or no elements."""
    return rule if all(a.size for a in call.args) else NOTHING


NOTHING = Linear(lambda call, t: {0: t[0]}, lambda call, cts: [cts[0], None, None], lambda call, place: place == 0)
GATHER: dict[str, Rule] = {"gather": Linear(_gather_tangents, _gather_cotangents, lambda call, place: place == 0)}
ASSIGNMENTS: dict[str, Rule] = {
    "combine_at": Linear(_combine_at_tangents, _combine_at_cotangents),
    "setitem": Linear(_assignment_tangents, _setitem_cotangents),
    "put_along_axis": Linear(_assignment_tangents, _put_along_axis_cotangents),
    "at": Choice(_ufunc_at_rule),
    "put": Choice(
        lambda call: _assignment_derivative_rule_unless_empty(call, Linear(_assignment_tangents, _put_cotangents))
    ),
    "place": Choice(
        lambda call: _assignment_derivative_rule_unless_empty(
            call, Linear(_assignment_tangents, _cotangents_of_numpy_place)
        )
    ),
}
