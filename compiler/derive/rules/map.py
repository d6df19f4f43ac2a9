"""The rule that the formulas of an elementwise row make, in both modes; and that of a user's scalar function."""

from __future__ import annotations

from collections.abc import Sequence

from ....runtime.program.user_function import UserFunction, derivatives_of_user_function
from ...core.types import FLOAT32, HALVES
from ...graph.graph import Value
from ...ops.derivatives import Formula, Pair, Partials, Term
from ...ops.table import OPS
from ..core.call import (
    RuleCall,
    conjugated_cotangent,
    cotangent_fitted_to,
    mask_fitted_to,
)
from ..core.kinds import Choice, Cotangents, Linear, Maybe, Refused, Rule, Tangents
from .structure import add_tangents_in_rule

MOVES = 2  # the cost of rows whose formulas multiply once at most, or choose


def derivative_rule_of_elementwise_op(row: Partials) -> Linear:
    """The rule of a row."""

    def derivative_formula_of(call: RuleCall, place: int) -> Formula | Pair | None:
        complex_ = any(v.dtype.kind == "c" for v in (call.result, *call.args))
        formulas = row.formulas if row.complex is None or not complex_ else row.complex
        return formulas[place]

    def tangents_of_row(call: RuleCall, tangents: Sequence[Maybe]) -> Tangents:
        found: Maybe = None
        for place, t in enumerate(tangents):
            formula = derivative_formula_of(call, place)
            if t is not None and formula is not None:
                use = formula.tangent if isinstance(formula, Pair) else formula
                part = call.builder.cast(_differentiate_by_row_formula(call, use, t), call.result.dtype)
                found = part if found is None else call.builder.map("add", found, part)
        if found is not None:
            found = call.builder.broadcast(found, call.result.shape)
        return {0: found}

    def cotangents_of_row(call: RuleCall, cts: Cotangents) -> Sequence[Maybe]:
        found: list[Maybe] = []
        for place, active in enumerate(call.active):
            formula = derivative_formula_of(call, place) if active else None
            found.append(None if formula is None else _elementwise_cotangent(call, row, formula, place, cts[0]))
        return found

    def has_derivative_formula(call: RuleCall, place: int) -> bool:
        return derivative_formula_of(call, place) is not None

    return Linear(tangents_of_row, cotangents_of_row, has_derivative_formula)


def _differentiate_by_row_formula(call: RuleCall, formula: Formula, t: Value) -> Value:
    """What the formula makes of a tangent; of 16-bit floats in float32, as functions of them are computed: what is
    between, a square say, may be beyond their range."""
    builder, operands = call.builder, [t, *call.args, call.result]
    wide = t.dtype in HALVES and OPS[call.node.op].cost > MOVES
    if wide:
        operands = [builder.cast(v, FLOAT32) if v.dtype in HALVES else v for v in operands]
    value: Value = formula(*(Term(builder, v) for v in operands), **dict(call.node.attrs)).value
    return builder.cast(value, t.dtype) if wide else value


def _elementwise_cotangent(call: RuleCall, row: Partials, formula: Formula | Pair, place: int, ct: Value) -> Value:
    """The formula on a cotangent. Where a `where` has let nothing through, nothing comes through here, be the factor
    infinite or NaN, unless the options ask for IEEE's products."""
    builder = call.builder
    mask = None if call.walks.options.ieee else call.masks.get(ct.number)
    if isinstance(formula, Pair):
        found = _differentiate_by_row_formula(call, formula.cotangent, ct)
    else:
        found = conjugated_cotangent(
            builder, _differentiate_by_row_formula(call, formula, conjugated_cotangent(builder, ct))
        )
    if mask is not None and not row.bounded and found.shape == mask.shape:
        found = builder.map("where", mask, found, builder.const(0, found.dtype))
    result = cotangent_fitted_to(builder, found, call.args[place])
    if call.node.op == "where":
        condition = call.args[0] if place == 1 else builder.map("logical_not", call.args[0])
        taken = builder.broadcast(condition, found.shape)
        mask = taken if mask is None or mask.shape != found.shape else builder.map("logical_and", mask, taken)
    if mask is not None and mask.shape == found.shape:
        call.masks[result.number] = mask_fitted_to(builder, mask, result.shape)
    return result


# a user's scalar function: its partial derivatives are one more function, of dual numbers


def _derivative_of_scalar_function(call: RuleCall) -> UserFunction:
    found: UserFunction = call.attr("function")
    return found


def _partials_of_user_call(call: RuleCall, places: Sequence[int]) -> dict[tuple[int, int], Value]:
    """(result, argument) -> the partial derivative."""
    function, builder = _derivative_of_scalar_function(call), call.builder
    count = len(function.arguments)
    mask = call.args[count] if len(call.args) > count else None
    derived = derivatives_of_user_function(function, tuple(places))
    values = iter(builder.call(derived, *call.args[:count], where=mask))
    floats = [i for i, r in enumerate(function.results) if r.startswith("float")]
    return {(part, place): next(values) for part in floats for place in places}


def _user_call_tangents(call: RuleCall, tangents: Sequence[Maybe]) -> Tangents:
    builder = call.builder
    places = [i for i, t in enumerate(tangents) if t is not None]
    partials = _partials_of_user_call(call, places)
    found: dict[int, Maybe] = {}
    for part, result in call.results.items():
        total: Maybe = None
        for place in places:
            t = tangents[place]
            assert t is not None
            if (part, place) in partials:
                change = builder.map("multiply", t, partials[part, place])
                total = add_tangents_in_rule(builder, total, builder.cast(change, result.dtype))
        found[part] = None if total is None else builder.broadcast(total, result.shape)
    return found


def _scalar_function_cotangents(call: RuleCall, cts: Cotangents) -> Sequence[Maybe]:
    """Where a mask says that it was not called, partial derivatives are of no use."""
    builder, count = call.builder, len(_derivative_of_scalar_function(call).arguments)
    places = [i for i, active in enumerate(call.active) if active]
    partials = _partials_of_user_call(call, places)
    found: list[Maybe] = [None] * len(call.args)
    for place in places:
        total: Maybe = None
        for part, ct in cts.items():
            total = add_tangents_in_rule(builder, total, builder.map("multiply", ct, partials[part, place]))
        if total is not None and len(call.args) > count:
            total = builder.map("where", call.args[count], total, builder.const(0, total.dtype))
        found[place] = None if total is None else cotangent_fitted_to(builder, total, call.args[place])
    return found


_DUAL = Linear(
    _user_call_tangents,
    _scalar_function_cotangents,
    lambda call, place: place < len(_derivative_of_scalar_function(call).arguments),
)


def _scalar_function_derivative_rule(call: RuleCall) -> Rule:
    kinds = [call.args[i].dtype.kind for i, active in enumerate(call.active) if active]
    kinds += [value.dtype.kind for value in call.results.values()]
    if "c" in kinds:
        return Refused("of complex numbers a scalar function has none; pass two reals, or give one with kg.custom_jvp")
    return _DUAL


USER_FUNCTIONS: dict[str, Rule] = {
    "call": Choice(_scalar_function_derivative_rule),
    "call_loop": Choice(_scalar_function_derivative_rule),
}
