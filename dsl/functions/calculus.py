"""Differences, slopes and integrals, in kernels; convolutions."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...compiler.core.types import FLOAT64, dtype_kind
from ..core.errors import DTypeError, ShapeError
from ..core.spec import to_index
from ..trace.dispatch import implements
from ..trace.operands import axes_without_booleans, to_axes_of_operand, to_axis_of_operand, to_traced_array
from ..trace.tracer import TracedNumber, Tracer
from .cumulative import cumsum
from .elementwise import apply
from .host_calls import host_call_of_one_result, require_known_numpy_option
from .indexing import getitem
from .joining import concatenate
from .reduction_calls import NO_VALUE
from .reductions import sum
from .views import broadcast_to, cast, ravel, reshape


def _key_along_axis(axis: int, key: Any) -> tuple[Any, ...]:
    return (*(slice(None),) * axis, key)


@implements(np.diff)
def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = NO_VALUE, append: Any = NO_VALUE) -> Tracer:
    """Differences of neighbours, n times; of booleans `!=`."""
    x = to_traced_array(a)
    times = to_index(n, "n")
    if times < 0:
        raise ShapeError(f"order must be non-negative but got {times}")
    if x.ndim == 0:
        raise ShapeError("diff requires input that is at least one dimensional")
    if times == 0:
        return x
    at = to_axis_of_operand(axis, x.ndim)
    edge = (*x.shape[:at], 1, *x.shape[at + 1 :])
    ends = [None if e is NO_VALUE else to_traced_array(e) for e in (prepend, append)]
    wide = [None if e is None else e if e.ndim else broadcast_to(e, edge) for e in ends]
    parts = [part for part in (wide[0], x, wide[1]) if part is not None]
    x = concatenate(parts, at) if len(parts) > 1 else x
    op = "not_equal" if x.dtype == np.bool_ else "subtract"
    for _ in range(times):
        x = apply(op, x[_key_along_axis(at, slice(1, None))], x[_key_along_axis(at, slice(-1))])
    return x


@implements(np.ediff1d)
def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Tracer:
    x = ravel(ary)
    middle = apply("subtract", x[1:], x[:-1])
    parts = []
    for part in (to_begin, middle, to_end):
        if part is not None:
            array = ravel(part)
            if not np.can_cast(array.dtype, x.dtype, "same_kind"):
                raise DTypeError(f"dtype of `to_begin` and `to_end` must be compatible with {x.dtype}")
            parts.append(cast(array, x.dtype))
    return concatenate(parts) if len(parts) > 1 else middle


@implements(np.trapezoid)
def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Tracer:
    """The trapezoidal rule."""
    values = to_traced_array(y)
    at = to_axis_of_operand(axes_without_booleans(axis), values.ndim)
    step: Any = dx
    if x is not None:
        points = to_traced_array(x)
        step = diff(points, axis=-1 if points.ndim == 1 else axis)
        if points.ndim == 1:
            step = reshape(step, (-1,) + (1,) * (values.ndim - 1 - at))
    pairs = apply("add", values[_key_along_axis(at, slice(1, None))], values[_key_along_axis(at, slice(-1))])
    return sum(apply("divide", apply("multiply", step, pairs), 2.0), at)


@implements(np.gradient)
def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    """Slopes along each axis: central differences inside, one-sided ones at both ends (NumPy's formulas)."""
    x = to_traced_array(f)
    axes = to_axes_of_operand(axis, x.ndim)
    if dtype_kind(x.dtype) in "iu":
        x = cast(x, FLOAT64)
    if edge_order not in (1, 2):
        raise ShapeError("'edge_order' greater than 2 not supported")
    given = (
        varargs * len(axes) if len(varargs) == 1 and _is_scalar_spacing(varargs[0]) else varargs or (1.0,) * len(axes)
    )
    if len(given) != len(axes):
        raise ShapeError(f"gradient takes a spacing for each of {len(axes)} axes, got {len(given)}")
    found = tuple(_slope_along_axis(x, at, spacing, edge_order) for at, spacing in zip(axes, given, strict=True))
    return found[0] if len(found) == 1 else found


def _is_scalar_spacing(x: Any) -> bool:
    return type(x) is TracedNumber or np.ndim(x) == 0


def _slope_along_axis(f: Tracer, axis: int, spacing: Any, edge_order: int) -> Tracer:
    n = f.shape[axis]
    if n < edge_order + 1:
        raise ShapeError(
            f"an axis of length {n} is too short for a gradient: at least edge_order + 1 = {edge_order + 1} are needed"
        )

    def slice_of_samples(start: int, stop: int | None) -> Tracer:
        found: Tracer = getitem(f, _key_along_axis(axis, slice(start, stop)))
        return found

    def sum_of_weighted_samples(*terms: tuple[Any, Tracer]) -> Tracer:
        total = apply("multiply", *terms[0])
        for weight, x in terms[1:]:
            total = apply("add", total, apply("multiply", weight, x))
        return total

    low, high = (
        (slice_of_samples(0, 1), slice_of_samples(1, 2), slice_of_samples(2, 3)),
        (slice_of_samples(-3, -2), slice_of_samples(-2, -1), slice_of_samples(n - 1, None)),
    )
    if _is_scalar_spacing(spacing):
        middle = apply("divide", apply("subtract", slice_of_samples(2, None), slice_of_samples(0, -2)), 2.0 * spacing)
        ends = (spacing, spacing)
        if edge_order == 2:
            first = sum_of_weighted_samples((-1.5 / spacing, low[0]), (2.0 / spacing, low[1]), (-0.5 / spacing, low[2]))
            last = sum_of_weighted_samples(
                (0.5 / spacing, high[0]), (-2.0 / spacing, high[1]), (1.5 / spacing, high[2])
            )
    else:
        points = to_traced_array(spacing)
        if points.shape != (n,):
            raise ShapeError(f"when 1d, distances must match the length of the axis: {points.shape} against {n}")
        steps = diff(cast(points, FLOAT64) if dtype_kind(points.dtype) in "biu" else points)
        steps = reshape(steps, tuple(-1 if i == axis else 1 for i in range(f.ndim)))
        one, two = steps[_key_along_axis(axis, slice(None, -1))], steps[_key_along_axis(axis, slice(1, None))]
        middle = sum_of_weighted_samples(
            (-two / (one * (one + two)), slice_of_samples(0, -2)),
            ((two - one) / (one * two), slice_of_samples(1, -1)),
            (one / (two * (one + two)), slice_of_samples(2, None)),
        )
        ends = (steps[_key_along_axis(axis, slice(0, 1))], steps[_key_along_axis(axis, slice(-1, None))])
        if edge_order == 2:
            one, two = steps[_key_along_axis(axis, slice(0, 1))], steps[_key_along_axis(axis, slice(1, 2))]
            first = sum_of_weighted_samples(
                (-(2.0 * one + two) / (one * (one + two)), low[0]),
                ((one + two) / (one * two), low[1]),
                (-one / (two * (one + two)), low[2]),
            )
            one, two = steps[_key_along_axis(axis, slice(-2, -1))], steps[_key_along_axis(axis, slice(-1, None))]
            last = sum_of_weighted_samples(
                (two / (one * (one + two)), high[0]),
                (-(two + one) / (one * two), high[1]),
                ((2.0 * two + one) / (two * (one + two)), high[2]),
            )
    if edge_order == 1:
        first = apply("divide", apply("subtract", slice_of_samples(1, 2), slice_of_samples(0, 1)), ends[0])
        last = apply(
            "divide", apply("subtract", slice_of_samples(n - 1, None), slice_of_samples(n - 2, n - 1)), ends[1]
        )
    wanted = FLOAT64 if dtype_kind(f.dtype) == "b" else f.dtype
    return concatenate([cast(part, wanted) for part in (first, middle, last)], axis)


@implements(np.unwrap)
def unwrap(p: Any, discont: Any = None, axis: int = -1, *, period: Any = 2 * np.pi) -> Tracer:
    """Phases without jumps of more than half a period."""
    x = to_traced_array(p)
    at = to_axis_of_operand(axis, x.ndim)
    period = require_known_numpy_option(period)
    steps = diff(x, axis=at)
    wanted = np.result_type(steps.dtype, period)
    limit = period / 2 if discont is None else discont
    high, rest = divmod(period, 2) if wanted.kind in "iu" else (period / 2, 0)
    folded = apply("add", apply("remainder", apply("subtract", steps, -high), period), -high)
    if rest == 0:
        both = apply("logical_and", apply("equal", folded, -high), apply("greater", steps, 0))
        folded = apply("where", both, cast(to_traced_array(high), folded.dtype), folded)
    change = apply("subtract", folded, steps)
    change = apply("where", apply("less", apply("absolute", steps), limit), change.dtype.type(0), change)
    rest_of = apply("add", x[_key_along_axis(at, slice(1, None))], cumsum(change, at))
    return concatenate([cast(x[_key_along_axis(at, slice(0, 1))], wanted), cast(rest_of, wanted)], at)


# convolutions


@implements(np.convolve)
def convolve(a: Any, v: Any, mode: str = "full") -> Tracer:
    """`sum_j a[k - j] * v[j]`."""
    x, weights = _checked_convolution_operand(a), _checked_convolution_operand(v)
    return _convolve_in_mode("convolve", *((weights, x) if weights.size > x.size else (x, weights)), mode)


@implements(np.correlate)
def correlate(a: Any, v: Any, mode: str = "valid") -> Tracer:
    """`sum_n a[n + k] * conj(v[n])`."""
    x, weights = _checked_convolution_operand(a), _checked_convolution_operand(v)
    if to_traced_array(a).ndim == 0 or to_traced_array(v).ndim == 0:
        raise ShapeError("a correlation is of two arrays of one axis; write np.correlate([a], v)")
    return _convolve_in_mode("correlate", x, weights, mode)


def _checked_convolution_operand(a: Any) -> Tracer:
    x = to_traced_array(a)
    if x.ndim > 1:
        raise ShapeError(f"object too deep for desired array: a convolution takes one axis, not shape {x.shape}")
    if x.size == 0:
        raise ShapeError("a convolution needs at least one element in each array")
    return reshape(x, (x.size,))


def _convolve_in_mode(name: str, x: Tracer, weights: Tracer, mode: Any) -> Tracer:
    if mode not in ("full", "same", "valid"):
        raise ShapeError(f"mode {mode!r} is none of 'full', 'same', 'valid'")
    n, m = max(x.size, weights.size), min(x.size, weights.size)
    length = {"full": n + m - 1, "same": n, "valid": n - m + 1}[mode]
    return host_call_of_one_result(name, [x, weights], (length,), mode=str(mode))
