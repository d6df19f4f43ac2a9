"""Norms of vectors and matrices, with NumPy's orders and names."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...compiler.core.types import FLOAT64, dtype_kind
from ..core.errors import ShapeError
from ..trace.operands import to_axes_of_operand, to_traced_array
from ..trace.tracer import Tracer
from .elementwise import apply, root_of_squares_for_norm
from .host_calls import require_known_numpy_option
from .linalg import svdvals
from .reduction_calls import implements_reduction
from .reductions import max, min, squared_magnitude, sum
from .views import cast, expand_dims, moveaxis


@implements_reduction(np.linalg.norm)
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Tracer:
    """Of vectors along one axis, of matrices along two; without `ord` of all elements along any number."""
    a, ord = to_traced_array(x), require_known_numpy_option(ord)
    if dtype_kind(a.dtype) in "biu":
        a = cast(a, FLOAT64)
    axes = to_axes_of_operand(axis, a.ndim)
    if axis is None and (ord is None or (ord in ("f", "fro") and a.ndim == 2) or (ord == 2 and a.ndim == 1)):
        return root_of_squares_for_norm(sum(_squares_of_magnitudes(a), axes, None, None, keepdims))
    if len(axes) == 1:
        return _vector_norm(a, ord, axes, keepdims)
    if len(axes) == 2:
        return _matrix_norm(a, ord, axes, keepdims)
    raise ShapeError("Improper number of dimensions to norm.")


def _squares_of_magnitudes(a: Tracer) -> Tracer:
    return squared_magnitude(a) if dtype_kind(a.dtype) == "c" else apply("square", a)


def _vector_norm(a: Tracer, ord: Any, axes: tuple[int, ...], keepdims: bool) -> Tracer:
    if ord is None or ord == 2:
        return root_of_squares_for_norm(sum(_squares_of_magnitudes(a), axes, None, None, keepdims))
    if isinstance(ord, str):
        raise ShapeError(f"Invalid norm order '{ord}' for vectors")
    size = apply("absolute", a)
    if ord == np.inf:
        return max(size, axes, None, keepdims, 0)
    if ord == -np.inf:
        return min(size, axes, None, keepdims)
    if ord == 0:
        return sum(cast(apply("not_equal", a, 0), size.dtype), axes, None, None, keepdims)
    if ord == 1:
        return sum(size, axes, None, None, keepdims)
    powers = sum(apply("power", size, ord), axes, None, None, keepdims)
    return (
        root_of_squares_for_norm(powers, lambda x: apply("power", x, 1 / ord))
        if ord > 0
        else apply("power", powers, 1 / ord)
    )


def _matrix_norm(a: Tracer, ord: Any, axes: tuple[int, ...], keepdims: bool) -> Tracer:
    if ord in (None, "f", "fro"):
        return root_of_squares_for_norm(sum(_squares_of_magnitudes(a), axes, None, None, keepdims))
    matrices = moveaxis(a, axes, (-2, -1))
    if ord in _BY_SVD:
        result = _BY_SVD[ord](svdvals(matrices), -1)
    elif ord in _BY_SUMS:
        extreme, summed = _BY_SUMS[ord]
        result = extreme(sum(apply("absolute", matrices), summed), -1)
    else:
        raise ShapeError(f"Invalid norm order {ord!r} for matrices.")
    return expand_dims(result, axes) if keepdims else result


_BY_SVD: dict[Any, Any] = {2: max, -2: min, "nuc": sum}
_BY_SUMS: dict[Any, Any] = {1: (max, -2), -1: (min, -2), np.inf: (max, -1), -np.inf: (min, -1)}


@implements_reduction(np.linalg.matrix_norm)
def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Tracer:
    return norm(x, ord, (-2, -1), keepdims)


@implements_reduction(np.linalg.vector_norm)
def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Tracer:
    """Along any number of axes, as if they were one."""
    a = to_traced_array(x)
    if dtype_kind(a.dtype) in "biu":
        a = cast(a, FLOAT64)
    return _vector_norm(a, require_known_numpy_option(ord), to_axes_of_operand(axis, a.ndim), keepdims)
