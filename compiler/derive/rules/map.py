"""The rule that the formulas of an elementwise row make, in both modes."""

from __future__ import annotations

from collections.abc import Sequence

from ...graph.graph import Value
from ...ops.derivatives import Formula, Pair, Partials, Term
from ..core.call import Call, conjugated, differentiable, fitted
from ..core.kinds import Linear, Maybe


def elementwise(row: Partials) -> Linear:
    """The rule of a row."""

    def formula_of(call: Call, place: int) -> Formula | Pair | None:
        complex_ = any(v.dtype.kind == "c" for v in (call.result, *call.args))
        formulas = row.formulas if row.complex is None or not complex_ else row.complex
        return formulas[place]

    def tangent(call: Call, tangents: Sequence[Maybe]) -> dict[int, Maybe]:
        found: Maybe = None
        for place, t in enumerate(tangents):
            formula = formula_of(call, place)
            if t is not None and formula is not None:
                use = formula.tangent if isinstance(formula, Pair) else formula
                part = call.builder.cast(_applied(call, use, t), call.result.dtype)
                found = part if found is None else call.builder.map("add", found, part)
        if found is not None:
            found = call.builder.broadcast(found, call.result.shape)
        return {0: found}

    def cotangent(call: Call, cts: dict[int, Value]) -> Sequence[Maybe]:
        found: list[Maybe] = []
        for place, active in enumerate(call.active):
            formula = formula_of(call, place) if active else None
            found.append(None if formula is None else _cotangent(call, row, formula, place, cts[0]))
        return found

    def follows(call: Call, place: int) -> bool:
        return formula_of(call, place) is not None

    return Linear(tangent, cotangent, follows)


def _applied(call: Call, formula: Formula, t: Value) -> Value:
    terms = (Term(call.builder, v) for v in (t, *call.args, call.result))
    value: Value = formula(*terms, **dict(call.node.attrs)).value
    return value


def _cotangent(call: Call, row: Partials, formula: Formula | Pair, place: int, ct: Value) -> Value:
    """The formula on a cotangent. Where a `where` has let nothing through, nothing comes through here, be the factor
    infinite or NaN."""
    builder, mask = call.builder, call.masks.get(ct.number)
    if isinstance(formula, Pair):
        found = _applied(call, formula.cotangent, ct)
    else:
        found = conjugated(builder, _applied(call, formula, conjugated(builder, ct)))
    if mask is not None and not row.bounded and found.shape == mask.shape:
        found = builder.map("where", mask, found, builder.const(0, found.dtype))
    result = fitted(builder, found, call.args[place])
    if mask is not None and result.shape == mask.shape:
        call.masks[result.number] = mask
    if call.node.op == "where" and result.shape == call.args[0].shape:
        condition = call.args[0]
        call.masks[result.number] = condition if place == 1 else builder.map("logical_not", condition)
    return result


def is_differentiable(call: Call, place: int) -> bool:
    return differentiable(call.args[place])
