"""Covariances, statistics that skip NaN, and comparisons of whole arrays, composed so that they fuse."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...compiler.core.types import FLOAT64, dtype_kind
from ..core.errors import ArgumentsError, DTypeError, ShapeError, numpy_error_as_ours
from ..core.spec import checked_dtype
from ..trace.dispatch import implements
from ..trace.operands import Axes, shape_without_axes, to_axes_of_operand, to_axis_of_operand, to_traced_array
from ..trace.tracer import Tracer
from .elementwise import apply, isclose, ufunc_where_mask
from .host_calls import assign_to_out, host_call_of_one_result, require, require_known_numpy_scalar
from .joining import concatenate
from .products import matmul
from .reduction_calls import NO_VALUE, implements_reduction
from .reductions import all, mean, root_of_variance, subtracted_variance_count, sum, var
from .reductions import reduce as reduce_by
from .ufunc_methods import general_reduce
from .views import broadcast_to, cast, diagonal, reshape, squeeze, transpose


@implements_reduction(np.average)
def average(a: Any, axis: Axes = None, weights: Any = None, returned: bool = False, *, keepdims: Any = False) -> Any:
    """With weights of the array's own shape, or of that of its `axis`."""
    x = to_traced_array(a)
    if weights is None:
        result = mean(x, None if axis is None else to_axes_of_operand(axis, x.ndim), keepdims=keepdims)
        count = cast(to_traced_array(x.size / (result.size or 1)), result.dtype)
        return (result, broadcast_to(count, result.shape)) if returned else result
    w = to_traced_array(weights)
    if w.shape != x.shape:
        axes = to_axes_of_operand(axis, x.ndim)
        if axis is None:
            raise ArgumentsError(f"weights of shape {w.shape} and no axis do not fit {x.shape}; pass axis=")
        if w.shape != tuple(x.shape[i] for i in axes):
            raise ShapeError(f"weights of shape {w.shape} do not fit {x.shape}; pass one weight for each element")
        w = transpose(w, sorted(range(len(axes)), key=axes.__getitem__))
        w = reshape(w, tuple(n if i in axes else 1 for i, n in enumerate(x.shape)))
    wanted = np.result_type(x.dtype, w.dtype, *([FLOAT64] if dtype_kind(x.dtype) in "biu" else []))
    scale = sum(w, axis, wanted, keepdims=keepdims)
    product = apply("multiply", cast(x, wanted, copy=False), cast(w, wanted, copy=False))
    weighed = all(apply("not_equal", scale, 0))
    scale = require(scale, weighed, ZeroDivisionError, "Weights sum to zero, can't be normalized")
    result = apply("divide", sum(product, axis, keepdims=keepdims), scale)
    return (result, broadcast_to(scale, result.shape)) if returned else result


@implements_reduction(np.cov)
def cov(
    m: Any,
    y: Any = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: Any = None,
    aweights: Any = None,
    *,
    dtype: Any = None,
) -> Tracer:
    """Covariances of the rows, as NumPy: products of the rows less their (weighted) means."""
    less = _checked_ddof(ddof)
    arrays = [to_traced_array(a) for a in (m, y) if a is not None]
    if any(a.ndim > 2 for a in arrays):
        raise ShapeError("m and y have more than 2 dimensions")
    wanted = np.result_type(*(a.dtype for a in arrays), np.float64) if dtype is None else checked_dtype(dtype)
    rows = [_observation_rows(a, rowvar, i == 1, wanted) for i, a in enumerate(arrays)]
    if not rows[0].shape[0]:
        return to_traced_array(np.zeros((0, 0)))  # of whatever dtype the rows would be
    x = rows[0] if len(rows) == 1 else concatenate(rows)
    less = int(bias == 0) if less is None else less
    weights = _covariance_weights(fweights, aweights, x.shape[1])
    if weights is None:
        centre, factor = mean(x, 1, keepdims=True), to_traced_array(_np_cov_reciprocal_of_count(x.shape[1], less))
        left = apply("subtract", x, centre)
        right = left
    else:
        centre, total = average(x, 1, weights, True, keepdims=True)
        total = reshape(total[0], ())
        if less == 0:
            scale = total
        elif aweights is None:
            scale = apply("subtract", total, less)
        else:
            squares = sum(apply("multiply", weights, aweights))
            scale = apply("subtract", total, apply("divide", apply("multiply", less, squares), total))
        factor = apply("divide", to_traced_array(1.0), apply("maximum", scale, 0.0))
        left = apply("subtract", x, centre)
        right = apply("multiply", left, weights)
    right = apply("conjugate", right) if right.dtype.kind == "c" else right
    product = matmul(left, transpose(right))
    return squeeze(apply("multiply", product, cast(factor, np.result_type(product.real.dtype))))


def _checked_ddof(ddof: Any) -> Any:
    """A whole number of any type. Raises what NumPy raises, as ours."""
    less = require_known_numpy_scalar(ddof)
    try:
        whole = less is None or less == int(less)
    except (ValueError, OverflowError, TypeError) as error:
        raise numpy_error_as_ours(error, "ddof: ") from None
    if not whole:
        raise ShapeError("ddof must be integer")
    return less


def _np_cov_reciprocal_of_count(n: int, less: Any) -> Any:
    """1 / (n - less), infinite below 0, in the arithmetic of NumPy's scalars: unsigned ones wrap."""
    try:
        with np.errstate(all="ignore"):
            degrees = n - less
            return np.true_divide(1, degrees if degrees > 0 else 0.0)
    except (OverflowError, TypeError) as error:
        raise numpy_error_as_ours(error, "ddof: ") from None


def _observation_rows(a: Tracer, rowvar: bool, second: bool, dtype: Any) -> Tracer:
    x = cast(a, dtype, copy=False)
    x = reshape(x, (1, -1) if x.size else (1, 0)) if x.ndim < 2 else x
    turn = not rowvar and (x.shape[0] != 1 if second else a.ndim != 1)
    return transpose(x) if turn else x


def _covariance_weights(fweights: Any, aweights: Any, n: int) -> Tracer | None:
    found: Tracer | None = None
    for name, given in (("fweights", fweights), ("aweights", aweights)):
        if given is None:
            continue
        w = to_traced_array(given)
        if w.ndim != 1 or w.shape[0] != n:
            raise ShapeError(f"incompatible numbers of samples and {name}: {w.shape} against {n}")
        if name == "fweights" and dtype_kind(w.dtype) not in "iu":
            raise DTypeError("fweights must be integer; write fweights.astype(np.int64)")
        w = cast(w, np.float64)
        found = w if found is None else apply("multiply", found, w)
    return found


@implements(np.corrcoef)
def corrcoef(x: Any, y: Any = None, rowvar: bool = True, *, dtype: Any = None) -> Tracer:
    c = cov(x, y, rowvar, dtype=dtype)
    if c.ndim == 0:
        return apply("divide", c, c)
    deviation = apply("sqrt", diagonal(c).real)
    c = apply("divide", apply("divide", c, reshape(deviation, (-1, 1))), reshape(deviation, (1, -1)))
    if c.dtype.kind != "c":
        return apply("clip", c, -1, 1)
    turned = apply("multiply", apply("clip", c.imag, -1, 1), c.dtype.type(1j))
    return apply("add", apply("clip", c.real, -1, 1), turned)


# statistics that skip NaN


def _non_nan_mask(a: Any, where: Any) -> Tracer:
    """Where `a` is a number, and `where` holds."""
    valid = apply("logical_not", apply("isnan", a))
    everywhere = where is NO_VALUE or where is True
    return valid if everywhere else apply("logical_and", valid, ufunc_where_mask(where))


@implements_reduction(np.nanmean)
def nanmean(
    a: Any, axis: Axes = None, dtype: Any = None, out: Any = None, keepdims: Any = False, *, where: Any = NO_VALUE
) -> Tracer:
    x = to_traced_array(a)
    if dtype_kind(x.dtype) not in "fc":
        return mean(x, axis, dtype, out, keepdims, where=where)
    return mean(x, axis, dtype, out, keepdims, where=_non_nan_mask(x, where))


@implements_reduction(np.nanvar)
def nanvar(
    a: Any,
    axis: Axes = None,
    dtype: Any = None,
    out: Any = None,
    ddof: Any = 0,
    keepdims: Any = False,
    *,
    where: Any = NO_VALUE,
    mean: Any = NO_VALUE,
    correction: Any = NO_VALUE,
) -> Tracer:
    x = to_traced_array(a)
    options: dict[str, Any] = {"mean": None if mean is NO_VALUE else mean}
    less = subtracted_variance_count(ddof, correction)
    if dtype_kind(x.dtype) not in "fc":
        return var(x, axis, dtype, out, less, keepdims, where=where, **options)
    valid = _non_nan_mask(x, where)
    result = var(x, axis, dtype, None, less, keepdims, where=valid, **options)
    count = sum(valid, axis, np.intp, None, keepdims)
    too_few = apply("less_equal", apply("subtract", count, less), 0)
    return assign_to_out(apply("where", too_few, result.dtype.type(np.nan), result), out)


implements_reduction(np.nanstd)(root_of_variance(nanvar))


def _extreme_function_that_skips_nan(op: str, stand_in: float) -> Any:
    """min or max that skips NaN; NaN where there is nothing else."""

    def extreme_without_nan(
        a: Any,
        axis: Axes = None,
        out: Any = None,
        keepdims: Any = False,
        initial: Any = NO_VALUE,
        where: Any = NO_VALUE,
    ) -> Tracer:
        x = to_traced_array(a)
        plain = {"keepdims": keepdims, "initial": initial, "where": where}
        if dtype_kind(x.dtype) == "c":
            given = {k: v for k, v in plain.items() if v is not NO_VALUE and v is not None}
            return general_reduce(np.fmax if op == "max" else np.fmin, x, axis, None, out, **given)
        if dtype_kind(x.dtype) != "f":
            return assign_to_out(reduce_by(op, x, axis, **plain), out)
        missing = apply("isnan", x)
        number = x.dtype.type(stand_in)
        values = apply("where", missing, number, x)
        found = reduce_by(op, values, axis, **plain)
        nothing = missing if where is NO_VALUE else apply("logical_or", missing, apply("logical_not", where))
        empty = all(broadcast_to(nothing, x.shape), axis, None, keepdims)
        if initial is NO_VALUE or initial is None:
            return assign_to_out(apply("where", empty, x.dtype.type(np.nan), found), out)
        others = apply("where", empty, x.dtype.type(np.nan), reduce_by(op, values, axis, **plain | {"initial": number}))
        return assign_to_out(apply("where", apply("isnan", found), others, found), out)  # an initial NaN is skipped too

    return extreme_without_nan


nanmin = implements_reduction(np.nanmin)(_extreme_function_that_skips_nan("min", float("inf")))
nanmax = implements_reduction(np.nanmax)(_extreme_function_that_skips_nan("max", float("-inf")))


def _arg_function_that_skips_nan(name: str) -> Any:
    def arg_extreme_without_nan(a: Any, axis: int | None = None, out: Any = None, *, keepdims: Any = False) -> Tracer:
        """On the host, which raises where all are NaN."""
        x = to_traced_array(a)
        at = None if axis is None else to_axis_of_operand(axis, x.ndim)
        axes = to_axes_of_operand(at, x.ndim)
        keep = keepdims is True
        shape = shape_without_axes(x.shape, axes, keep)
        return host_call_of_one_result(name, [x], shape, out, dtypes=[np.intp], axis=at, keepdims=keep or None)

    return arg_extreme_without_nan


nanargmin = implements_reduction(np.nanargmin, options=False)(_arg_function_that_skips_nan("nanargmin"))
nanargmax = implements_reduction(np.nanargmax, options=False)(_arg_function_that_skips_nan("nanargmax"))


# whole arrays compared


@implements(np.allclose)
def allclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Tracer:
    return all(isclose(a, b, rtol, atol, equal_nan))


@implements(np.array_equal)
def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Any:
    """False at once where the shapes differ."""
    x, y = to_traced_array(a1), to_traced_array(a2)
    if x.shape != y.shape:
        return False
    same = apply("equal", x, y)
    if equal_nan and {dtype_kind(x.dtype), dtype_kind(y.dtype)} <= {"f", "c"}:
        same = apply("logical_or", same, apply("logical_and", apply("isnan", x), apply("isnan", y)))
    return all(same)


@implements(np.array_equiv)
def array_equiv(a1: Any, a2: Any) -> Any:
    x, y = to_traced_array(a1), to_traced_array(a2)
    try:
        np.broadcast_shapes(x.shape, y.shape)
    except ValueError:
        return False
    return all(apply("equal", x, y))
