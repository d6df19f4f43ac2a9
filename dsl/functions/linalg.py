"""Linear algebra: solvers and decompositions by NumPy on the host, powers and chains of matrices in kernels."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from ..core.errors import MatrixError, ShapeError, UnsupportedError
from ..core.spec import checked_dtype, to_index
from ..trace.dispatch import implements
from ..trace.operands import to_axis_of_operand, to_traced_array, trace_of_operands
from ..trace.tracer import Tracer
from .creation import eye
from .elementwise import apply
from .host_calls import Shape, assign_to_out, host_call, host_call_of_one_result, require_known_numpy_option
from .products import matmul, outer, product_out_written_by_blas, tensordot, vecdot
from .reduction_calls import NO_VALUE
from .reductions import trace
from .views import copy, diagonal, matrix_transpose, reshape


@lru_cache
def _decomposition_result_type(name: str) -> Any:
    """The named tuple that a decomposition gives."""
    return type(getattr(np.linalg, name)(np.ones((1, 1))))


def _checked_matrix(a: Any, name: str) -> Tracer:
    """An array of at least two axes."""
    x = to_traced_array(a)
    if x.ndim < 2:
        raise MatrixError(f"np.linalg.{name} needs an array of at least two axes, not of shape {x.shape}")
    return x


def _checked_square_matrix(a: Any, name: str) -> Tracer:
    x = _checked_matrix(a, name)
    if x.shape[-1] != x.shape[-2]:
        raise MatrixError(f"np.linalg.{name}: the last two axes must be square, not {x.shape[-2]} x {x.shape[-1]}")
    return x


def _broadcast_batch_shape(*shapes: Shape) -> Shape:
    return trace_of_operands().builder.broadcast_shapes("np.linalg", shapes)


@implements(np.linalg.solve)
def solve(a: Any, b: Any) -> Tracer:
    """x with a @ x == b; a 1-d `b` is one column, else its last two axes are a matrix."""
    left, right = _checked_square_matrix(a, "solve"), to_traced_array(b)
    rows = 1 if right.ndim == 1 else 2
    if right.ndim == 0 or right.shape[-rows] != left.shape[-1]:
        raise ShapeError(f"np.linalg.solve of {left.shape} and {right.shape}: {left.shape[-1]} rows are needed")
    shape = _broadcast_batch_shape(left.shape[:-2], right.shape[:-rows]) + right.shape[-rows:]
    return host_call_of_one_result("linalg.solve", [left, right], shape)


@implements(np.linalg.inv)
def inv(a: Any) -> Tracer:
    x = _checked_square_matrix(a, "inv")
    return host_call_of_one_result("linalg.inv", [x], x.shape)


@implements(np.linalg.pinv)
def pinv(a: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Tracer:
    x = _checked_matrix(a, "pinv")
    limits = {k: v for k, v in (("rcond", rcond), ("rtol", rtol)) if v is not None and v is not NO_VALUE}
    shape = (*x.shape[:-2], x.shape[-1], x.shape[-2])
    arrays = [x, *map(to_traced_array, limits.values())]
    dtypes = None if x.size else [x.dtype]  # NumPy computes nothing then
    return host_call_of_one_result(
        "linalg.pinv", arrays, shape, dtypes=dtypes, named=tuple(limits) or None, hermitian=bool(hermitian)
    )


@implements(np.linalg.det)
def det(a: Any) -> Tracer:
    x = _checked_square_matrix(a, "det")
    return host_call_of_one_result("linalg.det", [x], x.shape[:-2])


@implements(np.linalg.slogdet)
def slogdet(a: Any) -> Any:
    x = _checked_square_matrix(a, "slogdet")
    return _decomposition_result_type("slogdet")(*host_call("linalg.slogdet", [x], [x.shape[:-2]] * 2))


@implements(np.linalg.cholesky)
def cholesky(a: Any, /, *, upper: bool = False) -> Tracer:
    x = _checked_square_matrix(a, "cholesky")
    return host_call_of_one_result("linalg.cholesky", [x], x.shape, upper=bool(upper))


@implements(np.linalg.qr)
def qr(a: Any, mode: str = "reduced") -> Any:
    x = _checked_matrix(a, "qr")
    batch, (m, n) = x.shape[:-2], x.shape[-2:]
    k = min(m, n)
    shapes: Any = {
        "reduced": [(m, k), (k, n)],
        "complete": [(m, m), (m, n)],
        "r": [(k, n)],
        "raw": [(n, m), (k,)],
    }.get(mode)
    if shapes is None:
        raise ShapeError(f"np.linalg.qr has no mode {mode!r}; write 'reduced', 'complete', 'r' or 'raw'")
    results = host_call("linalg.qr", [x], [batch + s for s in shapes], mode=mode)
    if mode in ("r", "raw"):
        return results[0] if mode == "r" else tuple(results)
    return _decomposition_result_type("qr")(*results)


@implements(np.linalg.svd)
def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    x = _checked_matrix(a, "svd")
    batch, (m, n) = x.shape[:-2], x.shape[-2:]
    k = min(m, n)
    options: dict[str, Any] = {"hermitian": bool(hermitian)}
    if not compute_uv:
        return host_call_of_one_result("linalg.svd", [x], (*batch, k), compute_uv=False, **options)
    left, right = (m, n) if full_matrices else (k, k)
    shapes = [(*batch, m, left), (*batch, k), (*batch, right, n)]
    return _decomposition_result_type("svd")(
        *host_call("linalg.svd", [x], shapes, full_matrices=bool(full_matrices), **options)
    )


@implements(np.linalg.svdvals)
def svdvals(x: Any, /) -> Tracer:
    a = _checked_matrix(x, "svdvals")
    return host_call_of_one_result("linalg.svdvals", [a], (*a.shape[:-2], min(a.shape[-2:])))


@implements(np.linalg.eigh)
def eigh(a: Any, UPLO: str = "L") -> Any:
    x = _checked_square_matrix(a, "eigh")
    return _decomposition_result_type("eigh")(
        *host_call("linalg.eigh", [x], [x.shape[:-1], x.shape], UPLO=UPLO.upper())
    )


@implements(np.linalg.eigvalsh)
def eigvalsh(a: Any, UPLO: str = "L") -> Tracer:
    x = _checked_square_matrix(a, "eigvalsh")
    return host_call_of_one_result("linalg.eigvalsh", [x], x.shape[:-1], UPLO=UPLO.upper())


def _checked_complex_matrix(a: Any, name: str) -> Tracer:
    x = _checked_square_matrix(a, name)
    if x.dtype.kind != "c":
        raise UnsupportedError(
            f"the dtype of np.linalg.{name} of a real array depends on data (complex only where it must be); "
            f"write np.linalg.{name}(x.astype(complex)), or np.linalg.{name}h(x) for a symmetric matrix"
        )
    return x


@implements(np.linalg.eig)
def eig(a: Any) -> Any:
    """Of complex matrices: what a real matrix gives is complex or not according to its values."""
    x = _checked_complex_matrix(a, "eig")
    return _decomposition_result_type("eig")(*host_call("linalg.eig", [x], [x.shape[:-1], x.shape]))


@implements(np.linalg.eigvals)
def eigvals(a: Any) -> Tracer:
    """Of complex matrices, as `eig`."""
    x = _checked_complex_matrix(a, "eigvals")
    return host_call_of_one_result("linalg.eigvals", [x], x.shape[:-1])


@implements(np.linalg.cond)
def cond(x: Any, p: Any = None) -> Tracer:
    a = _checked_matrix(x, "cond")
    return host_call_of_one_result("linalg.cond", [a], a.shape[:-2], p=require_known_numpy_option(p))


@implements(np.linalg.matrix_rank)
def matrix_rank(A: Any, tol: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Tracer:
    x = to_traced_array(A)
    limits = {k: to_traced_array(v) for k, v in (("tol", tol), ("rtol", rtol)) if v is not None}
    shape = _broadcast_batch_shape(x.shape[:-2], *(v.shape for v in limits.values() if x.ndim >= 2))
    arrays, named = [x, *limits.values()], tuple(limits) or None
    return host_call_of_one_result(
        "linalg.matrix_rank", arrays, shape, dtypes=[np.intp], named=named, hermitian=hermitian or None
    )


@implements(np.linalg.tensorinv)
def tensorinv(a: Any, ind: int = 2) -> Tracer:
    x = to_traced_array(a)
    at = to_index(ind, "ind")
    return host_call_of_one_result("linalg.tensorinv", [x], x.shape[at:] + x.shape[:at], ind=at)


@implements(np.linalg.tensorsolve)
def tensorsolve(a: Any, b: Any, axes: Any = None) -> Tracer:
    x, y = to_traced_array(a), to_traced_array(b)
    if axes is not None:
        moved = [to_axis_of_operand(i, x.ndim) for i in axes]
        order = [*(i for i in range(x.ndim) if i not in moved), *moved]
        x = x.transpose(order)
    shape = x.shape[-(x.ndim - y.ndim) :]
    if x.size != math.prod(shape) ** 2:
        raise MatrixError(
            f"a of shape {x.shape} is no square matrix for b of {y.ndim} axes: {shape} elements are wanted"
        )
    return host_call_of_one_result("linalg.tensorsolve", [x, y], shape)


@implements(np.linalg.matrix_power)
def matrix_power(a: Any, n: int) -> Tracer:
    """By repeated squaring, as NumPy does it."""
    x = _checked_square_matrix(a, "matrix_power")
    times = to_index(n, "n")
    if times == 0:
        one = eye(x.shape[-1], dtype=x.dtype)
        return copy(apply("add", one, apply("multiply", x, 0))) if x.ndim > 2 else one
    if times < 0:
        x, times = inv(x), -times
    if times == 3:
        return matmul(matmul(x, x), x)
    power, result = x, None
    while times:
        times, odd = divmod(times, 2)
        if odd:
            result = power if result is None else matmul(result, power)
        if times:
            power = matmul(power, power)
    assert result is not None
    return copy(result)


@implements(np.linalg.multi_dot)
def multi_dot(arrays: Any, *, out: Any = None) -> Tracer:
    """A chain of products, in the order with the fewest multiplications (NumPy's choice)."""
    chain = [to_traced_array(a) for a in arrays]
    if len(chain) < 2:
        raise ShapeError("multi_dot needs at least two arrays")
    result = _multiply_matrix_chain(
        chain, 0, len(chain) - 1, _matrix_chain_splits([_row_count(chain[0]), *(_column_count(c) for c in chain)])
    )
    if out is None:
        return result
    if len(chain) == 2:
        return assign_to_out(result, product_out_written_by_blas(out, result))
    whole = reshape(
        result, (_row_count(chain[0]), _column_count(chain[-1]))
    )  # a vector is a matrix of one row or column
    whole = assign_to_out(whole, product_out_written_by_blas(out, whole))
    return reshape(whole, result.shape) if result.ndim else result


def _row_count(x: Tracer) -> int:
    return x.shape[0] if x.ndim == 2 else 1


def _column_count(x: Tracer) -> int:
    return x.shape[-1] if x.ndim == 2 else 1


def _matrix_chain_splits(lengths: list[int]) -> dict[tuple[int, int], int]:
    """Where to cut the chain i..j: dynamic programming over all chains, shorter ones first."""
    n = len(lengths) - 1
    cost = {(i, i): 0 for i in range(n)}
    cut: dict[tuple[int, int], int] = {}
    for width in range(1, n):
        for i in range(n - width):
            j = i + width
            totals = [cost[i, k] + cost[k + 1, j] + lengths[i] * lengths[k + 1] * lengths[j + 1] for k in range(i, j)]
            cost[i, j] = min(totals)
            cut[i, j] = i + totals.index(cost[i, j])
    return cut


def _multiply_matrix_chain(arrays: list[Tracer], i: int, j: int, cut: dict[tuple[int, int], int]) -> Tracer:
    if i == j:
        return arrays[i]
    k = cut[i, j]
    return matmul(_multiply_matrix_chain(arrays, i, k, cut), _multiply_matrix_chain(arrays, k + 1, j, cut))


# the Array API's names


@implements(np.linalg.diagonal)
def _linalg_diagonal(x: Any, /, *, offset: int = 0) -> Tracer:
    return diagonal(x, offset, -2, -1)


@implements(np.linalg.trace)
def _linalg_trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Tracer:
    return trace(x, offset, -2, -1, None if dtype is None else checked_dtype(dtype))


@implements(np.linalg.outer)
def _linalg_outer(x1: Any, x2: Any, /) -> Tracer:
    a, b = to_traced_array(x1), to_traced_array(x2)
    if a.ndim != 1 or b.ndim != 1:
        raise ShapeError(f"Input arrays must be one-dimensional, but they are {a.ndim} and {b.ndim}-dimensional.")
    return outer(a, b)


@implements(np.linalg.matmul)
def _linalg_matmul(x1: Any, x2: Any, /) -> Tracer:
    return matmul(x1, x2)


@implements(np.linalg.tensordot)
def _linalg_tensordot(x1: Any, x2: Any, /, *, axes: Any = 2) -> Tracer:
    return tensordot(x1, x2, axes)


@implements(np.linalg.vecdot)
def _linalg_vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Tracer:
    return vecdot(x1, x2, axis=axis)


@implements(np.linalg.matrix_transpose)
def _linalg_matrix_transpose(x: Any, /) -> Tracer:
    return matrix_transpose(x)
