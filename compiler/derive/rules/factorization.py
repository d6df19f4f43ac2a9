"""Rules of factorizations: Cholesky, QR, eigenvalues, singular values.

Sources: Murray, Differentiation of the Cholesky decomposition, 2016; Walter and Lehmann, Algorithmic differentiation of
linear algebra functions, 2010 (QR); Giles, An extended collection of matrix derivative results, 2008 (eigenvalues);
Wan and Zhang, Automatic differentiation for complex valued SVD, 2019.

Of a Hermitian matrix NumPy reads one triangle: what its elements do to the result is theirs alone, and a gradient has
zeros in the other one. Vectors of equal eigenvalues or singular values have no derivative: infinity or NaN. A phase
that is free (complex `eigh` and `svd`) stays as it is: what is computed of the vectors must not follow it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core.types import ArrayType, real_dtype
from ...graph.graph import GraphError, Value
from ..core.call import RuleCall
from ..core.kinds import Maybe, Rule, Tangent, Tangents
from ..core.matrix import RuleMatrix, rule_matrix_of_value


def hermitian_of_triangle_in_rule(t: RuleMatrix, lower: bool = True) -> RuleMatrix:
    """The Hermitian matrix that one triangle stands for; of the diagonal the real part."""
    beside = t.where("greater" if lower else "less")
    on = (t + t.conj) * 0.5 if t.is_complex else t
    return beside + beside.H + on.where("equal")


def _factorization_results_in_rule(
    call: RuleCall, function: str, shapes: Sequence[tuple[int, ...]], real: int = -1, **options: Any
) -> Any:
    """All results of a factorization of the argument, the one of this number real."""
    a = rule_matrix_of_value(call, call.args[0]).value if call.args[0].dtype.kind not in "fc" else call.args[0]
    types = [ArrayType(s, real_dtype(a.dtype) if i == real else a.dtype) for i, s in enumerate(shapes)]
    return [RuleMatrix(call.builder, v) for v in call.builder.host(function, [a], types, **options)]


def _row_matrix_in_factorization_rule(call: RuleCall, values: Value) -> RuleMatrix:
    """Vectors as matrices of one row."""
    return RuleMatrix(call.builder, call.builder.reshape(values, (*values.shape[:-1], 1, values.shape[-1])))


def _vectors_in_factorization_rule(call: RuleCall, rows: RuleMatrix) -> Value:
    return call.builder.reshape(rows.value, (*rows.shape[:-2], rows.shape[-1]))


def _off_diagonal_inverses_in_rule(differences: RuleMatrix) -> RuleMatrix:
    """1 / x beside the diagonal, 0 on it."""
    return (1 / differences.where("not_equal", 1)).where("not_equal")


# Cholesky


def _cholesky_tangents(call: RuleCall, tangents: Sequence[Maybe]) -> Tangents:
    """l (the lower triangle of l^-1 da l^-H, its diagonal halved)"""
    (t,) = tangents
    if t is None:
        return {0: None}
    upper = call.options.get("upper")
    factor = rule_matrix_of_value(call, call.result)
    lower = factor.H if upper else factor
    inner = lower.solve(lower.solve(hermitian_of_triangle_in_rule(RuleMatrix(call.builder, t), not upper)).H).H
    found = lower @ (inner.where("greater") + (inner * 0.5).where("equal"))
    return {0: (found.H if upper else found).value}


# QR


def _qr_tangents(call: RuleCall, tangents: Sequence[Maybe]) -> Tangents:
    (t,), mode = tangents, call.options["mode"]
    if t is None:
        return {}
    *batch, m, n = call.args[0].shape
    k = min(m, n)
    if mode == "raw":
        _refuse_factorization_derivative(call, "what LAPACK leaves is no function that has one; write np.linalg.qr(a)")
    if mode == "complete" and m > n:
        _refuse_factorization_derivative(call, "the columns of q beyond a's are not unique; write mode='reduced'")
    shapes = [(*batch, m, k), (*batch, k, n)]
    q, r = _factorization_results_in_rule(
        call, "linalg.qr", shapes, mode="complete" if mode == "complete" else "reduced"
    )
    da = RuleMatrix(call.builder, t)
    square, rest = range(k), range(k, n)
    first = da.part(range(m), square)
    scaled = r.part(square, square).T.solve(first.T).T  # da r^-1
    inner = q.H @ scaled
    below = inner.where("greater")
    turn = below - below.H  # of Q, antisymmetric
    if inner.is_complex:  # the diagonal of r stays real
        turn = turn + (inner - inner.map("conjugate")).where("equal") * 0.5
    dq = q @ (turn - inner) + scaled
    dr = (inner - turn) @ r.part(square, square)
    if n > k:
        beside = dq.H @ (q @ r.part(square, rest)) + q.H @ da.part(range(m), rest)
        joined = call.builder.concat([dr.value, beside.value], len(batch) + 1)
        dr = RuleMatrix(call.builder, joined)
    return {0: dr.value} if mode == "r" else {0: dq.value, 1: dr.value}


def _refuse_factorization_derivative(call: RuleCall, why: str) -> None:
    raise GraphError(f"{call.name} has no derivative: {why}", NotImplementedError, call.builder.where())


# eigenvalues


def _eigh_tangents(call: RuleCall, tangents: Sequence[Maybe]) -> Tangents:
    """dw = diag(v^H da v); dv = v (v^H da v / (w_j - w_i), beside the diagonal)"""
    (t,) = tangents
    if t is None:
        return {}
    shape = call.args[0].shape
    w, v = _factorization_results_in_rule(call, "linalg.eigh", [shape[:-1], shape], real=0, UPLO=call.options["UPLO"])
    inner = v.H @ hermitian_of_triangle_in_rule(RuleMatrix(call.builder, t), call.options["UPLO"] == "L") @ v
    found: dict[int, Maybe] = {0: _vectors_in_factorization_rule(call, inner.real.diagonal)}
    if 1 in call.results:
        row = _row_matrix_in_factorization_rule(call, w.value)
        found[1] = (v @ (inner * _off_diagonal_inverses_in_rule(row - row.T))).value
    return found


def _eig_tangents(call: RuleCall, tangents: Sequence[Maybe]) -> Tangents:
    """As `_eigh_tangents`, of v^-1 da v; vectors keep their length, their greatest element stays real, as in LAPACK."""
    (t,) = tangents
    if t is None:
        return {}
    shape = call.args[0].shape
    w, v = _factorization_results_in_rule(call, "linalg.eig", [shape[:-1], shape])
    inner = v.solve(RuleMatrix(call.builder, t) @ v)
    found: dict[int, Maybe] = {0: _vectors_in_factorization_rule(call, inner.diagonal)}
    if 1 in call.results:
        row = _row_matrix_in_factorization_rule(call, w.value)
        found[1] = _normalized_eigenvector_tangents(
            call, v, v @ (inner * _off_diagonal_inverses_in_rule(row - row.T))
        ).value
    return found


def _normalized_eigenvector_tangents(call: RuleCall, v: RuleMatrix, dv: RuleMatrix) -> RuleMatrix:
    """Changes of vectors without what changes their length, or turns their greatest element in the complex plane."""
    builder, axis = call.builder, len(v.shape) - 2
    dv = dv - v * (v.conj * dv).sum(-2).real
    size = v.map("absolute")
    greatest = builder.reduce("argmax", size.value, (axis,))
    place = builder.reshape(greatest, (*v.shape[:-2], 1, v.shape[-1]))
    chosen = builder.map("equal", builder.index(v.shape, axis), place)

    def take_at_greatest(x: Value) -> RuleMatrix:
        return RuleMatrix(builder, builder.map("where", chosen, x, builder.const(0, x.dtype))).sum(-2)

    turn = take_at_greatest(dv.map("imag").value) / take_at_greatest(v.map("real").value)
    zero = builder.broadcast(builder.const(0, turn.value.dtype), turn.shape)
    return dv - v * RuleMatrix(builder, builder.map("complex", zero, turn.value))


# singular values


def _svd_tangents(call: RuleCall, tangents: Sequence[Maybe]) -> Tangents:
    """ds = diag(u^H da v); du and dv as in the paper"""
    (t,), options = tangents, call.options
    if t is None:
        return {}
    *batch, m, n = call.args[0].shape
    k, da = min(m, n), RuleMatrix(call.builder, t)
    da = hermitian_of_triangle_in_rule(da) if options.get("hermitian") else da
    full, values = bool(options.get("full_matrices", True)), options.get("compute_uv", True)
    if not values or (full and m != n and not {0, 2} & set(call.results)):
        alone = singular_value_tangents(
            call, rule_matrix_of_value(call, call.args[0]), da, bool(options.get("hermitian"))
        )
        return {1 if values else 0: alone.value}
    for part, more in ((0, m > n), (2, n > m)):
        if full and more and part in call.results:
            _refuse_factorization_derivative(
                call, "the vectors beyond the singular values are not unique; write full_matrices=False"
            )
    shapes = [(*batch, m, m if full else k), (*batch, k), (*batch, n if full else k, n)]
    u, s, vh = _factorization_results_in_rule(call, "linalg.svd", shapes, real=1, **options)
    u, vh = u.part(range(m), range(k)), vh.part(range(k), range(n))
    inner = u.H @ da @ vh.H
    found: dict[int, Maybe] = {1: _vectors_in_factorization_rule(call, inner.real.diagonal)}
    if not {0, 2} & set(call.results):
        return found
    row, v = _row_matrix_in_factorization_rule(call, s.value), vh.H
    gaps = _off_diagonal_inverses_in_rule((row + row.T) * (row - row.T))
    right, left = inner * row, row.T * inner
    du, dv = u @ ((right + right.H) * gaps), v @ ((left + left.H) * gaps)
    if inner.is_complex:
        turn = (inner - inner.H).where("equal") * 0.5 / row
        du = du + u @ turn
    if m > n:
        seen = da @ v
        du = du + (seen - u @ (u.H @ seen)) / row
    if n > m:
        seen = da.H @ u
        dv = dv + (seen - v @ (vh @ seen)) / row
    return {**found, 0: du.value, 2: dv.H.value}


def singular_value_tangents(call: RuleCall, a: RuleMatrix, da: RuleMatrix, symmetric: bool = False) -> RuleMatrix:
    """The tangents of singular values alone."""
    *batch, m, n = a.shape
    k = min(m, n)
    types = [
        ArrayType((*batch, m, k), a.value.dtype),
        ArrayType((*batch, k), real_dtype(a.value.dtype)),
        ArrayType((*batch, k, n), a.value.dtype),
    ]
    options = {"full_matrices": False, "hermitian": symmetric}
    u, _, vh = (RuleMatrix(call.builder, v) for v in call.builder.host("linalg.svd", [a.value], types, **options))
    return RuleMatrix(call.builder, _vectors_in_factorization_rule(call, (u.H @ da @ vh.H).real.diagonal))


def _svdvals_tangents(call: RuleCall, tangents: Sequence[Maybe]) -> Tangents:
    (t,) = tangents
    found = (
        None
        if t is None
        else singular_value_tangents(call, rule_matrix_of_value(call, call.args[0]), RuleMatrix(call.builder, t))
    )
    return {0: None if found is None else found.value}


FACTORIZATIONS: dict[str, Rule] = {
    "linalg.cholesky": Tangent(_cholesky_tangents),
    "linalg.qr": Tangent(_qr_tangents),
    "linalg.eigh": Tangent(_eigh_tangents),
    "linalg.eigvalsh": Tangent(_eigh_tangents),
    "linalg.eig": Tangent(_eig_tangents),
    "linalg.eigvals": Tangent(_eig_tangents),
    "linalg.svd": Tangent(_svd_tangents),
    "linalg.svdvals": Tangent(_svdvals_tangents),
}
