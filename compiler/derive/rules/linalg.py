"""Rules of linear algebra: solvers, inverses, determinants, least squares, norms of matrices.

Sources: Giles, An extended collection of matrix derivative results for forward and reverse mode AD, 2008; of
pseudo-inverses Golub and Pereyra, The differentiation of pseudo-inverses and nonlinear least squares problems whose
variables separate, 1973. Inverses, and logarithms of determinants, have derivatives where the matrix has an inverse
(else NumPy's LinAlgError is raised at the call); pseudo-inverses and least squares where the rank does not change near
by.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core.types import ArrayType, real_dtype
from ...graph.builder import GraphBuilder
from ...graph.graph import Value
from ..core.call import RuleCall, cotangent_fitted_to
from ..core.kinds import Choice, Cotangents, Linear, Maybe, Refused, Rule, Tangent, Tangents, Written
from ..core.matrix import RuleMatrix, rule_matrix_of_value
from .determinant import DETERMINANT
from .factorization import FACTORIZATIONS, hermitian_of_triangle_in_rule, singular_value_tangents
from .structure import add_tangents_in_rule


def is_first_argument_of_rule(call: RuleCall, place: int) -> bool:
    """Whether the results follow an argument: the first one. The others are limits of what counts as 0."""
    return place == 0


# solve, inv, det


def _column_matrix_in_linalg_rule(call: RuleCall, value: Value) -> RuleMatrix:
    """The second argument of solve, or the result for it, as matrices: of one axis it is one column."""
    if call.args[1].ndim == 1:
        value = call.builder.reshape(value, (*value.shape, 1))
    return rule_matrix_of_value(call, value)


def _solve_tangents(call: RuleCall, tangents: Sequence[Maybe]) -> Tangents:
    """a^-1 (db - da x)"""
    builder, (ta, tb) = call.builder, tangents
    right = None if tb is None else _column_matrix_in_linalg_rule(call, tb).value
    if ta is not None:
        moved = -(RuleMatrix(builder, ta) @ _column_matrix_in_linalg_rule(call, call.result))
        right = add_tangents_in_rule(builder, moved.value, right)
    assert right is not None
    found = rule_matrix_of_value(call, call.args[0]).solve(RuleMatrix(builder, right))
    return {0: builder.cast(builder.reshape(found.value, call.node.shape), call.node.dtype)}


def _solve_cotangents(call: RuleCall, cts: Cotangents) -> Sequence[Maybe]:
    """db = a^-H ct; da = -db x^H"""
    builder, (a, b) = call.builder, call.args
    moved = rule_matrix_of_value(call, a).H.solve(_column_matrix_in_linalg_rule(call, cts[0]))
    found = moved
    if b.ndim == 1:
        found = RuleMatrix(builder, builder.reshape(moved.value, moved.shape[:-1]))
    left = -(moved @ _column_matrix_in_linalg_rule(call, call.result).H) if call.active[0] else None
    return [
        None if left is None else cotangent_fitted_to(builder, left.value, a),
        cotangent_fitted_to(builder, found.value, b) if call.active[1] else None,
    ]


def _inverse_tangents(call: RuleCall, tangents: Sequence[Maybe]) -> Tangents:
    """-a^-1 da a^-1"""
    (t,), x = tangents, rule_matrix_of_value(call, call.result)
    return {0: None if t is None else (-(x @ RuleMatrix(call.builder, t) @ x)).value}


def _log_determinant_tangent(call: RuleCall, t: Value) -> Value:
    """trace(a^-1 da): how the determinant's logarithm changes."""
    a = call.args[0]
    (inverse,) = call.builder.host("linalg.inv", [a], [a.type])
    weighted = RuleMatrix(call.builder, inverse).T * RuleMatrix(call.builder, t)
    return call.builder.reshape(weighted.sum(-2, -1).value, a.shape[:-2])


def _slogdet_tangents(call: RuleCall, tangents: Sequence[Maybe]) -> Tangents:
    """Of the logarithm, the real part of the trace; of a complex sign, what turns it."""
    (t,), builder = tangents, call.builder
    if t is None:
        return {}
    change = _log_determinant_tangent(call, t)
    if change.dtype.kind != "c":
        return {1: change}
    found: dict[int, Maybe] = {1: builder.map("real", change)}
    if 0 in call.results:
        imaginary = builder.map("imag", change)
        turn = builder.map("complex", builder.const(0, imaginary.dtype), imaginary)
        found[0] = builder.map("multiply", call.results[0], turn)
    return found


# pseudo-inverses and least squares


def _pinv_tangents(call: RuleCall, tangents: Sequence[Maybe]) -> Tangents:
    """-p da p + p p^H da^H (1 - a p) + (1 - p a) da^H p^H p"""
    t = tangents[0]
    if t is None:
        return {0: None}
    a, p, ta = (
        rule_matrix_of_value(call, call.args[0]),
        rule_matrix_of_value(call, call.result),
        RuleMatrix(call.builder, t),
    )
    if call.options.get("hermitian"):
        a, ta = hermitian_of_triangle_in_rule(a), hermitian_of_triangle_in_rule(ta)
    left, right = p @ p.H @ ta.H, ta.H @ p.H @ p
    return {0: (left - left @ a @ p + right - p @ (a @ right) - p @ ta @ p).value}


def pseudo_inverse_in_rule(call: RuleCall, a: Value, rcond: Any) -> RuleMatrix:
    """The pseudo-inverse, with lstsq's limit of what counts as 0."""
    builder, (*batch, m, n) = call.builder, a.shape
    arrays, options = [a], {}
    if rcond is not None:
        arrays, options = [a, builder.const(rcond, real_dtype(a.dtype))], {"named": ("rcond",)}
    types = [ArrayType((*batch, n, m), a.dtype)]
    (found,) = builder.host("linalg.pinv", arrays, types, hermitian=False, **options)
    return RuleMatrix(builder, found)


def _lstsq_tangents(call: RuleCall, tangents: Sequence[Maybe]) -> Tangents:
    """p (db - da x) + p p^H da^H (b - a x) + (1 - p a) da^H p^H x, with p the pseudo-inverse"""
    builder, (a, b), (ta, tb) = call.builder, call.args, tangents
    found: dict[int, Maybe] = {}
    if ta is not None and 3 in call.results:
        found[3] = singular_value_tangents(call, rule_matrix_of_value(call, a), RuleMatrix(builder, ta)).value
    if 0 not in call.results:
        return found
    x = _column_matrix_in_linalg_rule(call, call.results[0])
    p = pseudo_inverse_in_rule(call, rule_matrix_of_value(call, a).value, call.options.get("rcond"))
    total = None if tb is None else (p @ _column_matrix_in_linalg_rule(call, tb)).value
    if ta is not None:
        da, wide = RuleMatrix(builder, ta), rule_matrix_of_value(call, a)
        rest = _column_matrix_in_linalg_rule(call, b) - wide @ x
        turned = da.H @ (p.H @ x)
        moved = p @ (p.H @ (da.H @ rest)) - p @ (da @ x) + turned - p @ (wide @ turned)
        total = add_tangents_in_rule(builder, total, moved.value)
    if total is not None:
        found[0] = builder.cast(builder.reshape(total, call.results[0].shape), call.results[0].dtype)
    return found


def _rewrite_polyfit_for_derivative(call: RuleCall) -> dict[int, Value]:
    """As NumPy does it: least squares of powers, each of length 1."""
    builder, (x, y, *weights), options = call.builder, call.args, call.options
    degree, kind = options["deg"], call.node.dtype
    n = x.shape[0]
    x = builder.cast(x, x.dtype if x.dtype.kind in "fc" else "f8")
    powers = [builder.broadcast(builder.const(1, x.dtype), (n,))]
    for _ in range(degree):
        powers.append(builder.map("multiply", powers[-1], x))
    left = builder.concat([builder.reshape(p, (n, 1)) for p in reversed(powers)], 1)
    right = builder.reshape(y, (n, -1))
    if weights:
        w = builder.reshape(weights[0], (n, 1))
        left, right = builder.map("multiply", left, w), builder.map("multiply", right, w)
    squares = builder.map("multiply", left, left)
    scale = builder.map("sqrt", builder.reduce("sum", squares, (0,), squares.dtype))
    left = builder.map("divide", left, scale)
    rcond = options.get("rcond")
    rcond = n * float(np.finfo(x.dtype).eps) if rcond is None else rcond
    shapes = [(degree + 1, right.shape[1]), (0,), (), (min(n, degree + 1),)]
    dtype = np.result_type(left.dtype, right.dtype, "f4")
    kinds = [dtype, real_dtype(dtype), np.dtype(np.int32), real_dtype(dtype)]
    types = [ArrayType(s, k) for s, k in zip(shapes, kinds, strict=True)]
    found = builder.host("linalg.lstsq", [left, right], types, rcond=rcond)[0]
    found = builder.map("divide", found, builder.reshape(scale, (degree + 1, 1)))
    return {0: builder.cast(builder.reshape(found, call.node.shape), kind)}


# norms


def _matrix_norm_in_cond_rule(builder: GraphBuilder, a: Value, p: Any) -> Value:
    """np.linalg.norm of matrices, by one of its names for them."""
    first = a.ndim - 2
    size = builder.map("absolute", a)
    if p == "fro":
        squares = builder.map("multiply", size, size)
        return builder.map("sqrt", builder.reduce("sum", squares, (first, first + 1), squares.dtype))
    if p == "nuc":
        values = _singular_values_in_cond_rule(builder, a)
        return builder.reduce("sum", values, (first,), values.dtype)
    along = first if abs(p) == 1 else first + 1
    sums = builder.reduce("sum", size, (along,), size.dtype)
    return builder.reduce("max" if p > 0 else "min", sums, (first,))


def _singular_values_in_cond_rule(builder: GraphBuilder, a: Value) -> Value:
    type_ = ArrayType((*a.shape[:-2], min(a.shape[-2:])), real_dtype(a.dtype))
    return builder.host("linalg.svdvals", [a], [type_])[0]


def _rewrite_cond_for_derivative(call: RuleCall) -> dict[int, Value]:
    """cond(a, p) -> norm(a, p) * norm(inv(a), p), or of the greatest and the least singular value"""
    builder, a, p = call.builder, call.args[0], call.options.get("p")
    if p in (None, 2, -2):
        values = _singular_values_in_cond_rule(builder, a)
        rank = values.ndim
        first, last = (
            builder.reshape(
                builder.slice(values, (*(0,) * (rank - 1), i), (1,) * rank, (*values.shape[:-1], 1)), values.shape[:-1]
            )
            for i in (0, values.shape[-1] - 1)
        )
        found = builder.map("divide", *((last, first) if p == -2 else (first, last)))
    else:
        (inverse,) = builder.host("linalg.inv", [a], [a.type])
        found = builder.map(
            "multiply", _matrix_norm_in_cond_rule(builder, a, p), _matrix_norm_in_cond_rule(builder, inverse, p)
        )
    return {0: builder.cast(found, call.node.dtype)}


# of arrays as matrices


def _rewrite_tensorsolve_for_derivative(call: RuleCall) -> dict[int, Value]:
    builder, (a, b) = call.builder, call.args
    n = b.size
    square, flat = builder.reshape(a, (n, n)), builder.reshape(b, (n,))
    (found,) = builder.host("linalg.solve", [square, flat], [ArrayType((n,), call.node.dtype)])
    return {0: builder.reshape(found, call.node.shape)}


def _rewrite_tensorinv_for_derivative(call: RuleCall) -> dict[int, Value]:
    builder, (a,) = call.builder, call.args
    n = math.prod(a.shape[: call.options["ind"]])
    (found,) = builder.host("linalg.inv", [builder.reshape(a, (n, n))], [ArrayType((n, n), a.dtype)])
    return {0: builder.reshape(found, call.node.shape)}


_EMPTY = Refused("it is of no elements; leave it out")


def _linalg_derivative_rule_unless_empty(rule: Rule) -> Choice:
    return Choice(lambda call: _EMPTY if any(0 in a.shape for a in call.args) else rule)


LINALG: dict[str, Rule] = {
    name: _linalg_derivative_rule_unless_empty(rule)
    for name, rule in {
        "linalg.solve": Linear(_solve_tangents, _solve_cotangents),
        "linalg.inv": Tangent(_inverse_tangents),
        "linalg.det": DETERMINANT,
        "linalg.slogdet": Tangent(_slogdet_tangents),
        "linalg.pinv": Tangent(_pinv_tangents, is_first_argument_of_rule),
        "linalg.lstsq": Tangent(_lstsq_tangents),
        "polyfit": Written(_rewrite_polyfit_for_derivative),
        "linalg.cond": Written(_rewrite_cond_for_derivative),
        "linalg.tensorsolve": Written(_rewrite_tensorsolve_for_derivative),
        "linalg.tensorinv": Written(_rewrite_tensorinv_for_derivative),
        **FACTORIZATIONS,
    }.items()
}
