"""Graph -> Graph for a GPU. Determinants and QR from factors as cuSOLVER leaves them, eigenvectors and singular vectors
of many small matrices. A few small ones NumPy has."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..core.types import ArrayType, real_dtype
from ..graph.builder import GraphBuilder
from ..graph.graph import Node, Value, Values

LEAST = 64  # rows; below, the host is done before the GPU has begun
MANY = 128  # smaller matrices that are as much work
SMALL = f"matrices that are few or of less than {LEAST} rows"
FEW, SHORT = 32, 32  # small matrices that are worth it where vectors are wanted, and their longest axis for an svd


def gpu_factorization_pays(shape: Sequence[int]) -> bool:
    """Whether a GPU factors matrices of this shape faster than the host."""
    return 0 not in shape and (min(shape[-2:]) >= LEAST or (math.prod(shape[:-2]) >= MANY and min(shape[-2:]) > 1))


def decompose_det(builder: GraphBuilder, node: Node, args: Values) -> Value | str:
    """det(a) -> sign * exp(log |det|), as NumPy has it"""
    if not gpu_factorization_pays(args[0].shape):
        return SMALL
    sign, log = _decompose_slogdet_by_lu(builder, builder.cast(args[0], node.dtype))
    return builder.map("multiply", sign, builder.cast(builder.map("exp", log), node.dtype))


def decompose_slogdet(builder: GraphBuilder, node: Node, args: Values) -> Value | str:
    """slogdet(a) -> from the diagonal of its LU factors and the row exchanges"""
    real = node.dtype.kind == "f" and args[0].dtype.kind != "c"
    if not gpu_factorization_pays(args[0].shape) or not (real or args[0].dtype.kind == "c"):
        return SMALL
    kind = node.dtype if real else args[0].dtype
    return _decompose_slogdet_by_lu(builder, builder.cast(args[0], kind))[node.attr("part")]


def _decompose_slogdet_by_lu(builder: GraphBuilder, a: Value) -> tuple[Value, Value]:
    *batch, n, _ = a.shape
    kind = "i8" if n >= LEAST else "i4"  # as the libraries have them
    types = [a.type, ArrayType((*batch, n), np.dtype(kind))]
    factors, pivots = builder.host("linalg.lu", [a], types, pivots=kind)
    flat = builder.reshape(factors, (*batch, n * n))
    diagonal = builder.slice(flat, [0] * (len(batch) + 1), [1] * len(batch) + [n + 1], (*batch, n))
    size = builder.map("absolute", diagonal)
    moved = builder.map("not_equal", pivots, builder.map("add", builder.index((*batch, n), len(batch)), np.int64(1)))
    odd = builder.map("bitwise_and", builder.reduce("sum", moved, (len(batch),)), np.int64(1))
    sign = builder.map("subtract", np.int64(1), builder.map("multiply", odd, np.int64(2)))
    units = builder.map("sign", diagonal)
    return (
        builder.map("multiply", _decompose_product_by_halves(builder, units), builder.cast(sign, a.dtype)),
        builder.reduce("sum", builder.map("log", size), (len(batch),), real_dtype(a.dtype)),
    )


def _decompose_product_by_halves(builder: GraphBuilder, x: Value) -> Value:
    """Along the last axis, by halves: complex numbers have no kernel that reduces them."""
    rank = x.ndim
    if x.dtype.kind != "c":
        return builder.reduce("prod", x, (rank - 1,), x.dtype)

    def slice_last_axis(x: Value, start: int, length: int) -> Value:
        return builder.slice(x, [0] * (rank - 1) + [start], [1] * rank, (*x.shape[:-1], length))

    while (n := x.shape[-1]) > 1:
        half = builder.map("multiply", slice_last_axis(x, 0, n // 2), slice_last_axis(x, n // 2, n // 2))
        x = builder.concat([half, slice_last_axis(x, n - 1, 1)], rank - 1) if n % 2 else half
    return builder.reshape(x, x.shape[:-1])


def decompose_qr(builder: GraphBuilder, node: Node, args: Values) -> Value | str:
    """qr(a) -> its factors, with zeros where cuSOLVER leaves what it needs of Q"""
    mode = node.options["mode"]
    (a,) = args
    if mode == "raw" or 0 in a.shape or min(a.shape[-2:]) < LEAST:
        return SMALL
    *batch, m, n = a.shape
    rows = m if mode == "complete" else min(m, n)
    x = builder.cast(a, node.dtype)
    upper = ArrayType((*batch, rows, n), x.dtype)
    if mode == "r":
        (r,) = builder.host("linalg.qr_upper", [x], [upper])
    else:
        types = [ArrayType((*batch, m, rows), x.dtype), upper]
        q, r = builder.host("linalg.qr_factors", [x], types, mode=mode)
        if node.attr("part") == 0:
            return q
    axes = len(batch), len(batch) + 1
    inside = builder.map("less_equal", *(builder.index(upper.shape, axis) for axis in axes))
    return builder.map("where", inside, r, builder.const(0, x.dtype))


def decompose_cholesky(builder: GraphBuilder, node: Node, args: Values) -> Value | str:
    """cholesky of many matrices -> their factors, with zeros beside them"""
    (a,) = args
    if a.ndim == 2 or not gpu_factorization_pays(a.shape) or node.options.get("upper"):
        return ""
    x = builder.cast(a, node.dtype)
    (factor,) = builder.host("linalg.cholesky_factor", [x], [x.type])
    last = x.ndim - 1
    inside = builder.map("greater_equal", builder.index(x.shape, last - 1), builder.index(x.shape, last))
    return builder.map("where", inside, factor, builder.const(0, x.dtype))


def _small_matrices_repay_decomposition(shape: Sequence[int], longest: int) -> bool:
    """Whether these are enough small matrices."""
    return len(shape) > 2 and math.prod(shape[:-2]) >= FEW and min(shape[-2:]) > 1 and max(shape[-2:]) <= longest


def decompose_eigh(builder: GraphBuilder, node: Node, args: Values) -> Value | str:
    """eigh of many small matrices -> eigenvalues, and vectors that cuSOLVER leaves as conjugated rows"""
    (a,) = args
    if not _small_matrices_repay_decomposition(a.shape, LEAST - 1):
        return ""
    x = a if a.dtype.kind == "c" else builder.cast(a, node.dtype)
    types = [ArrayType(a.shape[:-1], real_dtype(x.dtype)), x.type]
    values, rows = builder.host("linalg.eigh_rows", [x], types, UPLO=node.options["UPLO"])
    return _decomposed_eigenvectors_of_rows(builder, rows) if node.attr("part") else values


def decompose_svd(builder: GraphBuilder, node: Node, args: Values) -> Value | str:
    """svd of many small matrices -> all singular vectors, then those that are wanted"""
    (a,), options = args, node.options
    if not _small_matrices_repay_decomposition(a.shape, SHORT) or options.get("hermitian"):
        return ""
    x = a if a.dtype.kind == "c" else builder.cast(a, node.dtype)
    *batch, m, n = a.shape
    values = ArrayType((*batch, min(m, n)), real_dtype(x.dtype))
    if not options.get("compute_uv", True):
        return builder.host("linalg.svdvals", [x], [values])[0]
    types = [ArrayType((*batch, m, m), x.dtype), values, ArrayType((*batch, n, n), x.dtype)]
    rows, found, right = builder.host("linalg.svd_whole", [x], types)
    every = (_decomposed_eigenvectors_of_rows(builder, rows), found, right)[node.attr("part")]
    rank = every.ndim
    return builder.slice(every, [0] * rank, [1] * rank, node.shape)


def _decomposed_eigenvectors_of_rows(builder: GraphBuilder, rows: Value) -> Value:
    """What has these rows, conjugated, as its columns."""
    last = rows.ndim - 1
    turned = builder.permute(rows, [*range(last - 1), last, last - 1])
    return builder.map("conjugate", turned) if rows.dtype.kind == "c" else turned
