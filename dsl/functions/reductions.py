"""Reductions: sum, prod, min, max, any, all, argmin, argmax and what NumPy composes from them, with its dtype rules."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...compiler.core.combiners import COMBINERS
from ...compiler.core.types import FLOAT32, FLOAT64, dtype_kind
from ..core.errors import ShapeError
from ..core.spec import checked_dtype
from ..trace.aliasing import assign_to_tracer
from ..trace.items import convert_operand_for_element
from ..trace.operands import (
    Axes,
    axes_without_booleans,
    loop_operations,
    new_traced_result,
    to_axes_of_operand,
    to_axis_number_of_operand,
    to_traced_array,
    traced_length,
)
from ..trace.tracer import Tracer
from .elementwise import apply, fitting_ufunc_where_mask, root_of_squares_for_norm
from .host_calls import assign_to_converted_numpy_out
from .reduction_calls import NO_VALUE, implements_reduction
from .views import broadcast_to, cast, diagonal, reshape, transpose, with_axes_of_one


def _is_numpy_option_given(x: Any) -> bool:
    return x is not NO_VALUE and x is not None


def reduce(
    op: str,
    a: Any,
    axis: Any,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = False,
    initial: Any = None,
    where: Any = NO_VALUE,
    neutral: Any = None,
) -> Tracer:
    """Row `op` over `axis`. neutral: what stands where `where` is False; without it `initial` does."""
    x = to_traced_array(a)
    axes = _reduced_axes(x, axis)
    if where is not NO_VALUE and where is not True:
        x = _with_stand_in(op, x, where, initial if neutral is None else neutral)
    kept = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
    carries_index = COMBINERS[op].carries_index
    if carries_index and not axes:
        x, axes = reshape(x, (1,)), (0,)
    if neutral is None and _is_numpy_option_given(initial) and 0 in [x.shape[i] for i in axes]:
        shape = tuple(n for i, n in enumerate(x.shape) if i not in axes)
        result = broadcast_to(_scalar_in_array_dtype(initial, x), shape)
    else:
        result = _reduce_axes(op, x, axes, None if dtype is None else checked_dtype(dtype), initial, neutral)
    if keepdims and keepdims is not NO_VALUE:
        result = with_axes_of_one(result, kept)
    if carries_index:
        return assign_to_converted_numpy_out(result, out)
    return result if out is None else assign_to_tracer(out, result)


def _reduced_axes(x: Tracer, axis: Any) -> tuple[int, ...]:
    if x.ndim == 0 and isinstance(axis, (int, np.integer)) and axis in (0, -1):
        axis = None  # a ufunc's reduce takes these for a 0-d array; mean, var and the like do not
    return to_axes_of_operand(axes_without_booleans(axis), x.ndim)


def _with_stand_in(op: str, x: Tracer, where: Any, stand_in: Any) -> Tracer:
    """With a number in place of the elements that do not count."""
    if not _is_numpy_option_given(stand_in):
        raise ShapeError(f"{op} with where= has no identity; pass initial=")
    return apply("where", fitting_ufunc_where_mask(where, x.shape), x, _scalar_in_array_dtype(stand_in, x))


def _reduce_axes(op: str, x: Tracer, axes: tuple[int, ...], dtype: Any, initial: Any, neutral: Any) -> Tracer:
    """Without the axes, and with `initial` where it is given."""
    ordered = neutral is not None and axes and _is_numpy_option_given(initial)
    if ordered and _is_order_seen(op, dtype or x.dtype, initial):
        x, axes, initial = _with_initial_first(x, axes, dtype, initial)
    result = _reduced_by_row(op, x, tuple(sorted(axes)), dtype)
    if op == "sum" and not axes and result.dtype.kind in "fc":
        result = apply("add", result, 0)  # NumPy begins with 0.0
    if _is_numpy_option_given(initial):
        result = apply(COMBINERS[op].ufunc.__name__, result, _scalar_in_array_dtype(initial, result))
    return result


def _reduced_by_row(op: str, x: Tracer, axes: tuple[int, ...], dtype: Any) -> Tracer:
    if (loop := loop_operations()) is not None:
        return loop.reduce(op, x, axes, dtype)
    return new_traced_result(x._trace.builder.reduce(op, x._value, axes, dtype), x)


def _is_order_seen(op: str, dtype: Any, initial: Any) -> bool:
    """Whether it is by when `initial` comes that a sum or product overflows."""
    if dtype_kind(dtype) not in "fc":
        return False
    if isinstance(initial, (int, float)):  # numbers up to 8 are lost beside the largest float16
        return initial != 1 if op == "prod" else not abs(initial) <= 8
    return True


def _with_initial_first(x: Tracer, axes: tuple[int, ...], dtype: Any, initial: Any) -> tuple[Any, ...]:
    """The values along one axis, the last one, behind `initial`: what NumPy's sums and products begin with."""
    rest = tuple(i for i in range(x.ndim) if i not in axes)
    shape, count = tuple(x.shape[i] for i in rest), math.prod(x.shape[i] for i in axes)
    rows = reshape(transpose(x if dtype is None else cast(x, dtype), (*rest, *sorted(axes))), (*shape, count))
    first = broadcast_to(_scalar_in_array_dtype(initial, rows), (*shape, 1))
    value = x._trace.builder.concat([first._value, rows._value], len(rest))
    return new_traced_result(value, x, first), (len(rest),), None


def _scalar_in_array_dtype(number: Any, like: Tracer) -> Tracer:
    if isinstance(number, (list, tuple)) or getattr(number, "ndim", False):
        raise ShapeError("setting an array element with a sequence: initial= is one number")
    if (loop := loop_operations()) is not None:
        return loop.scalar(number, like.dtype)
    return new_traced_result(convert_operand_for_element(like._trace, number, like.dtype), like)


def _from_neutral(op: str, neutral: int, skips_nan: bool = False) -> Callable[..., Tracer]:
    """A sum or product. skips_nan: NaN counts as nothing."""

    def reduce_from_neutral(
        a: Any,
        axis: Axes = None,
        dtype: Any = None,
        out: Any = None,
        keepdims: Any = False,
        initial: Any = None,
        where: Any = NO_VALUE,
    ) -> Tracer:
        x = replace_nans_for_nanfunctions(a, neutral) if skips_nan else a
        return reduce(op, x, axis, dtype, out, keepdims, initial, where, neutral)

    return reduce_from_neutral


sum = implements_reduction(np.sum, method=True)(_from_neutral("sum", 0))
prod = implements_reduction(np.prod, method=True)(_from_neutral("prod", 1))
nansum = implements_reduction(np.nansum)(_from_neutral("sum", 0, skips_nan=True))
nanprod = implements_reduction(np.nanprod)(_from_neutral("prod", 1, skips_nan=True))


def _extreme(op: str) -> Callable[..., Tracer]:
    def reduce_to_extreme(
        a: Any, axis: Axes = None, out: Any = None, keepdims: Any = False, initial: Any = None, where: Any = NO_VALUE
    ) -> Tracer:
        return reduce(op, a, axis, None, out, keepdims, initial, where)

    return reduce_to_extreme


min = implements_reduction(np.min, np.amin, method=True)(_extreme("min"))
max = implements_reduction(np.max, np.amax, method=True)(_extreme("max"))


def _truth(op: str, neutral: int) -> Callable[..., Tracer]:
    def reduce_to_truth(
        a: Any, axis: Axes = None, out: Any = None, keepdims: Any = False, *, where: Any = NO_VALUE
    ) -> Tracer:
        return reduce(op, a, axis, None, out, keepdims, None, where, neutral)

    return reduce_to_truth


any = implements_reduction(np.any, method=True)(_truth("any", 0))
all = implements_reduction(np.all, method=True)(_truth("all", 1))


def _place_of_extreme(op: str) -> Callable[..., Tracer]:
    def reduce_to_place(a: Any, axis: int | None = None, out: Any = None, *, keepdims: Any = False) -> Tracer:
        return reduce(op, a, axis if axis is None else to_axis_number_of_operand(axis), None, out, keepdims)

    return reduce_to_place


argmin = implements_reduction(np.argmin, method=True)(_place_of_extreme("argmin"))
argmax = implements_reduction(np.argmax, method=True)(_place_of_extreme("argmax"))


@implements_reduction(np.ptp)
def ptp(a: Any, axis: Axes = None, out: Any = None, keepdims: Any = False) -> Tracer:
    result = apply("subtract", max(a, axis, None, keepdims), min(a, axis, None, keepdims))
    return result if out is None else assign_to_tracer(out, result)


@implements_reduction(np.count_nonzero)
def count_nonzero(a: Any, axis: Axes = None, *, keepdims: Any = False) -> Tracer:
    return sum(apply("not_equal", a, 0), axis, np.intp, None, keepdims)


def _reduced_element_count(x: Tracer, axes: tuple[int, ...], keepdims: Any, where: Any) -> Any:
    """How many elements each result is made of: an int, or with `where` an array."""
    if where is NO_VALUE or where is True:
        return math.prod(x.shape[i] for i in axes)
    return sum(broadcast_to(where, x.shape), axes, np.intp, None, keepdims)


@implements_reduction(np.mean, method=True)
def mean(
    a: Any, axis: Axes = None, dtype: Any = None, out: Any = None, keepdims: Any = False, *, where: Any = NO_VALUE
) -> Tracer:
    """As NumPy's `_mean`: bool and integers in float64; float16 summed in float32, the result float16."""
    x = to_traced_array(a)
    axes = to_axes_of_operand(axes_without_booleans(axis), x.ndim)
    wanted = _accumulation_dtype_of_mean(x, dtype)
    total = sum(x, axes, wanted, None, keepdims, where=where)
    return _mean_of_total(x, total, _reduced_element_count(x, axes, keepdims, where), dtype, out)


def _mean_of_total(x: Tracer, total: Tracer, count: Any, dtype: Any, out: Any) -> Tracer:
    """A sum over a count; of halves, which are summed in float32, a half."""
    result = _divide_sum_by_count(total, count)
    if dtype is None and x.dtype.itemsize == 2 and dtype_kind(x.dtype) == "f":
        result = cast(result, x.dtype)
    return result if out is None else assign_to_tracer(out, result)


def _accumulation_dtype_of_mean(x: Tracer, dtype: Any) -> Any:
    """The dtype that a mean or variance of `x` is summed in."""
    if dtype is not None:
        return checked_dtype(dtype)
    kind = dtype_kind(x.dtype)
    if kind in "biu":
        return FLOAT64
    return FLOAT32 if kind == "f" and x.dtype.itemsize == 2 else None


def _divide_sum_by_count(total: Tracer, count: Any) -> Tracer:
    """total / count in total's dtype, whatever that is. A count that is an int is passed at each call, so that the
    kernel serves every length."""
    divisor = traced_length(total._trace, count) if type(count) is int else count
    return cast(apply("divide", total, divisor), total.dtype)


def subtracted_variance_count(ddof: Any, correction: Any) -> Any:
    """What is taken from the count of a variance's elements: `correction` is the standard's name for `ddof`."""
    if not _is_numpy_option_given(correction):
        return ddof
    if ddof != 0:
        raise ShapeError("ddof and correction can't be provided simultaneously")
    return correction


@implements_reduction(np.var, method=True)
def var(
    a: Any,
    axis: Axes = None,
    dtype: Any = None,
    out: Any = None,
    ddof: Any = 0,
    keepdims: Any = False,
    *,
    where: Any = NO_VALUE,
    mean: Any = None,
    correction: Any = None,
) -> Tracer:
    """As NumPy's `_var`: the mean of |x - mean|^2, with the sum divided by max(count - ddof, 0)."""
    x = to_traced_array(a)
    axes = to_axes_of_operand(axes_without_booleans(axis), x.ndim)
    if dtype is None and dtype_kind(x.dtype) in "biu":
        dtype = FLOAT64
    wanted = _accumulation_dtype_of_mean(x, dtype)
    less = subtracted_variance_count(ddof, correction)
    centre = mean
    if not _is_numpy_option_given(mean):
        centre = _divide_sum_by_count(
            sum(x, axes, wanted, None, True, where=where), _reduced_element_count(x, axes, True, where)
        )
    off = apply("subtract", x, centre)
    squares = squared_magnitude(off) if dtype_kind(off.dtype) == "c" else apply("multiply", off, off)
    total = sum(squares, axes, dtype, None, keepdims, where=where)
    count = _reduced_element_count(x, axes, keepdims, where)
    if isinstance(count, Tracer):
        divisor: Any = apply("maximum", apply("subtract", count, less), 0)
    else:
        divisor = _count_at_least_zero(count - less)
    return _mean_of_total(x, total, divisor, dtype, out)


def _count_at_least_zero(n: Any) -> Any:
    return n if n > 0 else 0


def root_of_variance(variance: Callable[..., Tracer]) -> Callable[..., Tracer]:
    """A standard deviation, from the variance that it is the root of."""

    @functools.wraps(variance)
    def standard_deviation(
        a: Any, axis: Axes = None, dtype: Any = None, out: Any = None, *rest: Any, **options: Any
    ) -> Tracer:
        result = root_of_squares_for_norm(variance(a, axis, dtype, None, *rest, **options))
        return result if out is None else assign_to_tracer(out, result)

    return standard_deviation


std = implements_reduction(np.std, method=True)(root_of_variance(var))


def replace_nans_for_nanfunctions(a: Any, stand_in: Any) -> Tracer:
    x = to_traced_array(a)
    return (
        x
        if dtype_kind(x.dtype) not in "fc"
        else apply("where", apply("isnan", x), _scalar_in_array_dtype(stand_in, x), x)
    )


def squared_magnitude(a: Tracer) -> Tracer:
    return apply("add", apply("square", apply("real", a)), apply("square", apply("imag", a)))


@implements_reduction(np.trace, method=True)
def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None) -> Tracer:

    return sum(diagonal(a, offset, axis1, axis2), -1, dtype, out)
