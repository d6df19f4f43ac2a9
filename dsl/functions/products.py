"""Products of matrices and vectors, with NumPy's rules for one, two and more axes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..core.errors import ShapeError, UnsupportedError
from ..trace.aliasing import assign_to_tracer, memory_layout_of_tracer
from ..trace.dispatch import LoopOperand, implements
from ..trace.memory_layout import resolve_layout_of_tracer
from ..trace.operands import (
    loop_operations,
    new_traced_result,
    to_axes_of_operand,
    to_axis_of_operand,
    to_traced_array,
    trace_of_operands,
)
from ..trace.tracer import SCALAR, Tracer
from .elementwise import apply, assign_to_outputs
from .reductions import reduce, sum
from .views import cast, expand_dims, moveaxis, ravel, reshape, swapaxes, transpose


@implements(np.matmul)
def matmul(x1: Any, x2: Any, /, out: Any = None, *, dtype: Any = None, casting: str = "same_kind") -> Tracer:
    """`x1 @ x2`: a 1-d argument is a row (left) or a column (right) whose axis vanishes; batches broadcast."""
    a, b = to_traced_array(x1), to_traced_array(x2)
    if a.ndim == 0 or b.ndim == 0:
        raise ShapeError("matmul of a 0-d array is not defined; write a * b")
    if dtype is not None:  # of the products and sums too
        a, b = (cast(v, dtype, casting=casting) for v in (a, b))
    result = _product_of_arrays(a, b) if loop_operations() is None else _product_in_loop(a, b)
    if dtype is not None:
        result = cast(result, dtype, casting=casting)
    if out is None:
        return result
    own = 2 - (a.ndim == 1) - (b.ndim == 1)  # axes that are no batch's: those fit exactly
    fits = isinstance(out, np.ndarray) and (not own or out.shape[-own:] == result.shape[-own:])
    return assign_to_outputs(out, result, casting) if fits else assign_to_tracer(out, result, casting)


def _product_in_loop(a: Any, b: Any) -> Tracer:
    """The sum of the products of rows of `a` and columns of `b`, which become rows."""
    loop: Any = loop_operations()
    loop.check_product(a, b)
    length = b.shape[-2 if b.ndim > 1 else -1]
    loop.raise_where(apply("not_equal", a.shape[-1], length), ValueError, "matmul: the lengths of its operands differ")
    if b.ndim > 1:
        b = swapaxes(b, -1, -2)
        b = expand_dims(b, -3) if b.ndim > 2 else b
        a = expand_dims(a, -2) if a.ndim > 1 else a
    products = apply("multiply", a, b)
    return reduce("any" if products.dtype == np.bool_ else "sum", products, -1, products.dtype)


def _product_of_arrays(a: Tracer, b: Tracer) -> Tracer:
    left = reshape(a, (1, *a.shape)) if a.ndim == 1 else a
    right = reshape(b, (*b.shape, 1)) if b.ndim == 1 else b
    if left.shape[-1] != right.shape[-2]:
        raise ShapeError(
            f"matmul of {a.shape} and {b.shape}: {left.shape[-1]} columns against {right.shape[-2]} rows; "
            "transpose one of them, or reshape"
        )
    result = matrix_product(left, right)
    shape = list(result.shape)
    if b.ndim == 1:
        del shape[-1]
    if a.ndim == 1:
        del shape[-1 if b.ndim == 1 else -2]
    return new_traced_result(reshape(result, shape)._value, a, b)


# A library's product costs a call of some us, which small ones never earn back; as a sum of products they are part of
# a kernel. So are products of vectors, which read each element once, and with one, until the library's threads pay.
SMALL, SMALL_BY_VECTOR = 1 << 13, 1 << 18


def _most_unrolled_matmul_products(m: int, n: int) -> float:
    """The most products of an unrolled (m, k) @ (k, n)."""
    return math.inf if m == n == 1 else SMALL_BY_VECTOR if 1 in (m, n) else SMALL


def matrix_product(a: Tracer, b: Tracer) -> Tracer:
    """(..., m, k) @ (..., k, n), as a node of its own. Where it is small it is a sum of products."""
    (m, k), n = a.shape[-2:], b.shape[-1]
    batch = trace_of_operands(a, b).builder.broadcast_shapes("matmul", [a.shape[:-2], b.shape[:-2]])
    work = math.prod(batch) * m * k * n
    dtype = np.result_type(a.dtype, b.dtype)
    plain = dtype.kind in "iufc" and dtype.itemsize >= 4
    if plain and k == 1:
        return add_zero_like_numpy_blas(apply("multiply", a, b))
    if not plain or work > _most_unrolled_matmul_products(m, n):
        return new_traced_result(a._trace.builder.matmul(a._value, b._value), a, b)
    if m == 1 or n == 1:  # the sum goes along the last axis
        rows = a if m > 1 or n == 1 else swapaxes(b, -1, -2)
        row = swapaxes(b, -1, -2) if rows is a else a
        result = add_zero_like_numpy_blas(sum(apply("multiply", rows, row), -1, dtype))
        return expand_dims(result, -1 if rows is a else -2)
    products = apply("multiply", expand_dims(a, -1), expand_dims(b, -3))
    return add_zero_like_numpy_blas(sum(products, -2, dtype))


def add_zero_like_numpy_blas(result: Tracer) -> Tracer:
    """A product of BLAS adds to 0.0: it never gives -0.0."""
    return apply("add", result, 0) if result.dtype.kind in "fc" and result.dtype.itemsize > 2 else result


def _np_dot_scaled_like_blas(x: Tracer, y: Tracer) -> Tracer:
    """An array times a number, as BLAS has it: added to 0, and where the number is 0 nothing is, of NaN neither."""
    result = add_zero_like_numpy_blas(apply("multiply", x, y))
    if result.size < 2 or result.dtype.char not in "fdFD":
        return result
    zero = apply("equal", y if y.ndim == 0 else x, 0)
    return apply("where", zero, result.dtype.type(0), result)


@implements(np.dot, method=True)
def dot(a: Any, b: Any, out: Any = None) -> Tracer:
    """NumPy's dot: the last axis of `a` against the second-last of `b` (its only one if it has one)."""
    x, y = to_traced_array(a), to_traced_array(b)
    if x.ndim == 0 or y.ndim == 0:
        result = _np_dot_scaled_like_blas(x, y)
    elif y.ndim <= 2:
        result = matmul(x, y)
    else:
        result = tensordot(x, y, ((x.ndim - 1,), (y.ndim - 2,)))
    return result if out is None else assign_to_tracer(product_out_written_by_blas(out, result), result)


def product_out_written_by_blas(out: Any, result: Tracer) -> Any:
    """The `out` of a product that BLAS writes as it lies in memory. Raises ShapeError, UnsupportedError."""
    if isinstance(out, LoopOperand):
        raise UnsupportedError("out= must be a C-array, which is not followed in a loop; write out[...] = np.dot(a, b)")
    if not isinstance(out, Tracer) or out._owner == SCALAR:
        return out
    found = resolve_layout_of_tracer(memory_layout_of_tracer(out), out._held.type)
    if found is None:
        raise UnsupportedError("out= must be a C-array, which is not known here; write out[...] = np.dot(a, b)")
    if out.dtype != result.dtype or out.ndim != result.ndim or not found.flags.c_contiguous:
        raise ShapeError(
            "output array is not acceptable (must have the right datatype, number of dimensions, and be a C-Array); "
            "write out[...] = np.dot(a, b)"
        )
    return out


@implements(np.tensordot)
def tensordot(a: Any, b: Any, axes: Any = 2) -> Tracer:
    """Sums over pairs of axes, as one matrix product."""
    x, y = to_traced_array(a), to_traced_array(b)
    if isinstance(axes, (tuple, list)):
        gone_a, gone_b = to_axes_of_operand(axes[0], x.ndim), to_axes_of_operand(axes[1], y.ndim)
    else:
        gone_a, gone_b = tuple(range(x.ndim - axes, x.ndim)), tuple(range(axes))
    lengths = [x.shape[i] for i in gone_a]
    if lengths != [y.shape[i] for i in gone_b]:
        raise ShapeError(f"tensordot: axes {axes} of {x.shape} and {y.shape} have different lengths; choose other axes")
    kept_a = [i for i in range(x.ndim) if i not in gone_a]
    kept_b = [i for i in range(y.ndim) if i not in gone_b]
    left, right = [x.shape[i] for i in kept_a], [y.shape[i] for i in kept_b]
    inner = math.prod(lengths)
    rows = reshape(transpose(x, (*kept_a, *gone_a)), (math.prod(left), inner))
    columns = reshape(transpose(y, (*gone_b, *kept_b)), (inner, math.prod(right)))
    return reshape(matrix_product(rows, columns), (*left, *right))


@implements(np.inner)
def inner(a: Any, b: Any, /) -> Tracer:
    x, y = to_traced_array(a), to_traced_array(b)
    if x.ndim == 0 or y.ndim == 0:
        return _np_dot_scaled_like_blas(x, y)
    if x.ndim == y.ndim == 1:
        return matmul(x, y)
    return tensordot(x, y, ((x.ndim - 1,), (y.ndim - 1,)))


@implements(np.outer)
def outer(a: Any, b: Any, out: Any = None) -> Tracer:
    result = apply("multiply", expand_dims(ravel(a), 1), expand_dims(ravel(b), 0))
    return result if out is None else assign_to_tracer(out, result)


@implements(np.vdot)
def vdot(a: Any, b: Any, /) -> Tracer:
    x = to_traced_array(a)
    return matmul(ravel(apply("conjugate", x) if x.dtype.kind == "c" else x), ravel(b))


@implements(np.vecdot)
def vecdot(x1: Any, x2: Any, /, out: Any = None, *, axis: int = -1, dtype: Any = None) -> Tracer:
    x, y = to_traced_array(x1), to_traced_array(x2)
    if dtype is not None:
        x, y = (cast(v, dtype, casting="same_kind") for v in (x, y))
    if to_axis_of_operand(axis, x.ndim) != x.ndim - 1 or to_axis_of_operand(axis, y.ndim) != y.ndim - 1:
        x, y = moveaxis(x, axis, -1), moveaxis(y, axis, -1)
    if x.shape[-1] != y.shape[-1]:
        raise ShapeError(f"vecdot of {x.shape} and {y.shape}: {x.shape[-1]} components against {y.shape[-1]}")
    product = apply("multiply", apply("conjugate", x) if x.dtype.kind == "c" else x, y)
    if product.dtype == np.bool_:
        return reduce("any", product, -1, out=out)
    result = add_zero_like_numpy_blas(sum(product, -1, product.dtype))
    return result if out is None else assign_to_tracer(out, result)
