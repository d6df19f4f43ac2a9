"""Rules of views, joins, casts and matrix products: all linear, in one argument or in each."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from ...core.types import FLOAT32, bfloat16
from ...graph.builder import GraphBuilder
from ...graph.graph import Value
from ...graph.precision import precision_of_attrs
from ..core.call import (
    RuleCall,
    adjoint_matrices_in_rule,
    cotangent_fitted_to,
    mask_fitted_to,
    sum_cotangent_over_broadcast_axes,
    zero_cotangent,
)
from ..core.cotangents import CotangentPart
from ..core.kinds import Cotangents, Lifted, Linear, Maybe, Rule, Tangents


def linear_view_derivative_rule(
    tangent: Callable[[RuleCall, Value], Value], cotangent: Callable[[RuleCall, Value], Value]
) -> Linear:
    """The rule of an operation on one array whose one result is linear in it."""
    return Linear(
        lambda call, t: {0: None if t[0] is None else tangent(call, t[0])},
        lambda call, cts: [cotangent(call, cts[0]), *[None] * (len(call.args) - 1)],
        lambda call, place: place == 0,
    )


def _same_view_of_tangent(call: RuleCall, t: Value) -> Value:
    """The same view of the tangent."""
    return call.copy(t)


def _slice_cotangent_part(call: RuleCall, part: CotangentPart) -> CotangentPart:
    starts, steps = call.attr("starts"), call.attr("steps")
    first = tuple(s + t * a for s, t, a in zip(starts, steps, part.starts, strict=True))
    return CotangentPart(part.value, first, tuple(t * b for t, b in zip(steps, part.steps, strict=True)))


def _under_its_mask(
    turn: Callable[[RuleCall, Value], Value], turn_mask: Callable[[RuleCall, Value], Value] | None = None
) -> Callable[[RuleCall, Value], Value]:
    """What turns a cotangent, and its mask with it: likewise, or as is said."""

    def turn_with_mask(call: RuleCall, ct: Value) -> Value:
        return call.put_under_mask_of(ct, turn(call, ct), lambda mask: (turn_mask or turn)(call, mask))

    return turn_with_mask


def _permute_cotangent(call: RuleCall, ct: Value) -> Value:
    axes = call.attr("axes")
    return call.builder.permute(ct, [axes.index(i) for i in range(len(axes))])


def _windows_cotangent(call: RuleCall, ct: Value) -> Value:
    """Element k of what the windows look at is element k - i of each window i: with zeros around all of them, a walk
    through their memory, whose step is one window less one element."""
    builder, axis, length = call.builder, call.attr("axis"), call.attr("length")
    if length == 1:
        return builder.reshape(ct, call.args[0].shape)
    rank = ct.ndim
    order = [*(i for i in range(rank - 1) if i != axis), axis, rank - 1]
    ct = builder.permute(ct, order)
    *rest, many, _ = ct.shape
    lead, n, step = len(rest), many + length - 1, length - 1
    rows = many + 2 * step
    base = builder.broadcast(builder.const(0, ct.dtype), (*rest, rows, length))
    framed = builder.update(base, ct, (*(0,) * lead, step, 0), (1,) * rank)
    flat = builder.reshape(framed, (*rest, rows * length))
    flat = builder.slice(flat, (*(0,) * lead, step), (1,) * (lead + 1), (*rest, rows * length - step))
    seen = builder.windows(flat, lead, step * step + 1)
    picked = builder.slice(seen, (0,) * rank, (*(1,) * lead, length, step), (*rest, n, length))
    summed = builder.reduce("sum", picked, [rank - 1], ct.dtype)
    places = [i for i in range(rank - 1) if i != axis]
    return builder.permute(summed, [len(places) if i == axis else places.index(i) for i in range(rank - 1)])


def _concat_cotangents(call: RuleCall, cts: Cotangents) -> Sequence[Maybe]:
    builder, axis, ct = call.builder, call.attr("axis"), cts[0]
    found: list[Maybe] = []
    at = 0
    for arg, active in zip(call.args, call.active, strict=True):
        starts, steps = tuple(at if i == axis else 0 for i in range(ct.ndim)), (1,) * ct.ndim
        part = _box_of_cotangent(builder, ct, starts, arg.shape, sum(call.active) == 1) if active else None
        if part is not None:
            call.put_under_mask_of(ct, part, partial(builder.slice, starts=starts, steps=steps, shape=arg.shape))
        found.append(part)
        at += arg.shape[axis]
    return found


def _box_of_cotangent(
    builder: GraphBuilder, ct: Value, starts: tuple[int, ...], shape: tuple[int, ...], alone: bool
) -> Value:
    """Some elements; of a matrix product, where nobody wants others, the product of some rows and columns."""
    node, steps = builder.nodes[ct.number], (1,) * len(starts)
    if not alone or node.op != "matmul" or node.attrs or any(len(builder.at(n).shape) != 2 for n in node.args):
        return builder.slice(ct, starts, steps, shape)
    a, b = map(builder.at, node.args)
    rows = builder.slice(a, (starts[0], 0), steps, (shape[0], a.shape[1]))
    return builder.matmul(rows, builder.slice(b, (0, starts[1]), steps, (b.shape[0], shape[1])))


def rule_tangents_or_zeros(call: RuleCall, tangents: Sequence[Maybe]) -> list[Value]:
    """The tangents with zeros in the place of those that are None."""
    return [zero_cotangent(call.builder, a) if t is None else t for a, t in zip(call.args, tangents, strict=True)]


def _concat_tangents(call: RuleCall, tangents: Sequence[Maybe]) -> Tangents:
    return {0: call.builder.concat(rule_tangents_or_zeros(call, tangents), call.attr("axis"))}


def _update_tangents(call: RuleCall, tangents: Sequence[Maybe]) -> Tangents:
    base, value = rule_tangents_or_zeros(call, tangents)
    return {0: call.builder.update(base, value, call.attr("starts"), call.attr("steps"))}


def _update_cotangents(call: RuleCall, cts: Cotangents) -> Sequence[Maybe]:
    builder, ct, value = call.builder, cts[0], call.args[1]
    starts, steps = call.attr("starts"), call.attr("steps")
    base = builder.update(ct, zero_cotangent(builder, value), starts, steps) if call.active[0] else None
    return [base, builder.slice(ct, starts, steps, value.shape) if call.active[1] else None]


def _cast_tangent(call: RuleCall, t: Value) -> Value:
    real = t.dtype.kind == "c" and call.node.dtype.kind != "c"
    return call.builder.cast(call.builder.map("real", t) if real else t, call.node.dtype)


def matmul_cotangent(builder: GraphBuilder, a: Value, b: Value, like: Value, precision: str | None = None) -> Value:
    """The matrix product, summed over the batches along which `like` was broadcast."""
    found = builder.matmul(a, b, precision=precision)
    return cotangent_fitted_to(builder, sum_cotangent_over_broadcast_axes(builder, found, like.shape), like)


def _matmul_tangents(call: RuleCall, tangents: Sequence[Maybe]) -> Tangents:
    builder, (a, b), (ta, tb) = call.builder, call.args, tangents
    own = precision_of_attrs(call.node.attrs)
    left = None if ta is None else builder.matmul(ta, b, precision=own)
    right = None if tb is None else builder.matmul(a, tb, precision=own)
    return {0: add_tangents_in_rule(builder, left, right)}


def add_tangents_in_rule(builder: GraphBuilder, a: Maybe, b: Maybe) -> Maybe:
    """The sum of two tangents, either of which may be zero."""
    return a if b is None else b if a is None else builder.map("add", a, b)


def _matmul_cotangents(call: RuleCall, cts: Cotangents) -> Sequence[Maybe]:
    builder, (a, b), own = call.builder, call.args, precision_of_attrs(call.node.attrs)
    ct = _cotangent_of_narrow_product(builder, cts[0], a, b)
    transposed = [adjoint_matrices_in_rule(builder, b), adjoint_matrices_in_rule(builder, a)]
    rows = _rows_of_all_batches(builder, a, b, ct)
    second = (adjoint_matrices_in_rule(builder, rows[0]), rows[1]) if rows else (transposed[1], ct)
    return [
        matmul_cotangent(builder, ct, transposed[0], a, own) if call.active[0] else None,
        matmul_cotangent(builder, *second, b, own) if call.active[1] else None,
    ]


def _rows_of_all_batches(builder: GraphBuilder, a: Value, b: Value, ct: Value) -> tuple[Value, Value] | None:
    """Of many products with the one matrix b the rows of all as those of one matrix, and of their cotangent: what comes
    back to b is one product of these, in the place of a sum of products."""
    if b.ndim != 2 or a.ndim < 3 or a.shape[:-1] != ct.shape[:-1] or not a.size:
        return None
    first, second = (builder.reshape(v, (math.prod(v.shape[:-1]), v.shape[-1])) for v in (a, ct))
    return first, second


def _cotangent_of_narrow_product(builder: GraphBuilder, ct: Value, a: Value, b: Value) -> Value:
    """That of a float32 product of bfloat16 arrays, rounded as what comes of it: products of it are of bfloat16 too.
    float16 has too few exponents for cotangents."""
    given = [builder.nodes[v.number] for v in (a, b)]
    narrow = all(n.op == "cast" and builder.at(n.args[0]).dtype == bfloat16 for n in given)
    return builder.cast(builder.cast(ct, bfloat16), ct.dtype) if narrow and ct.dtype == FLOAT32 else ct


STRUCTURE: dict[str, Rule] = {
    "slice": Lifted(
        _slice_cotangent_part, lambda call, t: {0: None if t[0] is None else _same_view_of_tangent(call, t[0])}
    ),
    "permute": linear_view_derivative_rule(_same_view_of_tangent, _under_its_mask(_permute_cotangent)),
    "broadcast": linear_view_derivative_rule(
        _same_view_of_tangent,
        _under_its_mask(
            lambda call, ct: sum_cotangent_over_broadcast_axes(call.builder, ct, call.args[0].shape),
            lambda call, mask: mask_fitted_to(call.builder, mask, call.args[0].shape),
        ),
    ),
    "reshape": linear_view_derivative_rule(
        _same_view_of_tangent, _under_its_mask(lambda call, ct: call.builder.reshape(ct, call.args[0].shape))
    ),
    "windows": linear_view_derivative_rule(_same_view_of_tangent, _windows_cotangent),
    "concat": Linear(_concat_tangents, _concat_cotangents),
    "place": linear_view_derivative_rule(_same_view_of_tangent, lambda call, ct: ct),
    "update": Linear(_update_tangents, _update_cotangents),
    "cast": linear_view_derivative_rule(
        _cast_tangent,
        _under_its_mask(lambda call, ct: cotangent_fitted_to(call.builder, ct, call.args[0]), lambda call, mask: mask),
    ),
    "matmul": Linear(_matmul_tangents, _matmul_cotangents),
}
