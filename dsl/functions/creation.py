"""New arrays inside a trace: constants and indices, never memory of the caller's."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...compiler.core.types import FLOAT64, INT64
from ..core.errors import ShapeError, UnsupportedError, numpy_error_as_ours
from ..core.spec import checked_dtype, to_index, to_length
from ..trace.dispatch import implements
from ..trace.items import COPYTO, convert_operand_for_element
from ..trace.memory_layout import C, F
from ..trace.operands import (
    loop_operations,
    new_traced_result,
    to_traced_array,
    to_traced_shape,
    trace_of_operands,
    traced_length,
)
from ..trace.tracer import TracedNumber, Tracer
from .elementwise import apply
from .views import broadcast_to, cast, checked_numpy_order, copy, in_order, moveaxis, reshape, result_type

Shape = int | Sequence[int]


def full(shape: Shape, fill_value: Any, dtype: Any = None, *, order: str | None = "C", device: Any = None) -> Tracer:
    """An array of `shape` filled with one value; dtype defaults to the value's own."""
    order = checked_numpy_order(order, "CF") or "C"
    if (loop := loop_operations()) is not None:
        return loop.filled(shape, fill_value, None if dtype is None else checked_dtype(dtype))
    if dtype is None:
        return copy(broadcast_to(to_traced_array(fill_value), shape), order)
    trace = trace_of_operands(fill_value)
    value, lengths = (
        convert_operand_for_element(trace, fill_value, checked_dtype(dtype), COPYTO),
        to_traced_shape(shape),
    )
    while len(value.shape) > len(lengths) and value.shape[0] == 1:
        value = trace.builder.reshape(value, value.shape[1:])
    value = trace.builder.broadcast(value, lengths)
    return Tracer(trace, value, layout=F if order == "F" else C)


def zeros(shape: Shape, dtype: Any = None, *, order: str | None = "C", device: Any = None) -> Tracer:
    return full(shape, 0, FLOAT64 if dtype is None else dtype, order=order)


def ones(shape: Shape, dtype: Any = None, *, order: str | None = "C", device: Any = None) -> Tracer:
    return full(shape, 1, FLOAT64 if dtype is None else dtype, order=order)


def empty(shape: Shape, dtype: Any = None, *, order: str | None = "C", device: Any = None) -> Tracer:
    """Zeros: what is undefined in NumPy is the same in every run here, but in loops that are recorded."""
    if (loop := loop_operations()) is not None:
        return loop.filled(shape, None, FLOAT64 if dtype is None else checked_dtype(dtype))
    return zeros(shape, dtype, order=order)


@implements(np.full_like)
def full_like(
    a: Any,
    /,
    fill_value: Any,
    dtype: Any = None,
    order: str = "K",
    subok: bool = True,
    shape: Any = None,
    *,
    device: Any = None,
) -> Tracer:
    x = to_traced_array(a)
    lengths = x.shape if shape is None else to_traced_shape(shape)
    found = full(lengths, fill_value, x.dtype if dtype is None else dtype)
    if order != "C" and type(found) is Tracer:
        like = x if len(lengths) == x.ndim else found
        found._layout = in_order(order, like) if like.shape == lengths else None
    return found


def _filled_like(number: int) -> Callable[..., Tracer]:
    def filled_array_like(
        a: Any, /, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, *, device: Any = None
    ) -> Tracer:
        return full_like(a, number, dtype, order, shape=shape)

    return filled_array_like


zeros_like = empty_like = implements(np.zeros_like, np.empty_like)(_filled_like(0))
ones_like = implements(np.ones_like)(_filled_like(1))


def arange(start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None) -> Tracer:
    """start, start + step, ... below stop, each `start + i * step`. The length must be known while tracing."""
    if stop is None:
        start, stop = 0, start
    start, stop, step = _known_range_bound(start), _known_range_bound(stop), _known_range_bound(step)
    if step == 0:
        raise ShapeError("arange with step 0 has no end")
    count = (stop - start) / step
    if not abs(count) < 2.0**63:
        raise ShapeError(f"arange from {start} to {stop} by {step}: the maximum allowed size is exceeded")
    length = max(0, math.ceil(count))
    whole = all(isinstance(x, int) for x in (start, stop, step))
    wanted = checked_dtype(dtype) if dtype is not None else INT64 if whole else FLOAT64
    builder = trace_of_operands().builder
    computed = INT64 if wanted.kind in "iu" and whole else FLOAT64
    numbers = new_traced_result(builder.cast(builder.index((length,), 0), computed))
    # NumPy's own rule: the step is the difference of the first two elements
    delta = step if whole else (start + step) - start
    return cast(apply("add", apply("multiply", numbers, delta), start), wanted)


def _known_range_bound(x: Any) -> int | float:
    """The value of a bound; the trace starts again where it is not known yet."""
    if isinstance(x, (float, np.floating)):
        return float(x)
    if isinstance(x, str):
        raise UnsupportedError("np.arange of dates in a text cannot be traced; write np.datetime64(...)")
    return to_index(x, "a bound of arange")


@implements(np.linspace)
def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
    *,
    device: Any = None,
) -> Any:
    """`num` numbers from start to stop, as NumPy computes them: start + i * step, the last one exactly stop."""
    count = to_index(num, "num")
    if count < 0:
        raise ShapeError(f"num={count} must not be negative")
    first, last = to_traced_array(start), to_traced_array(stop)
    trace = trace_of_operands(start, stop)
    weak = (int, float, complex, TracedNumber)  # as Python numbers these have no dtype of their own
    kinds = (a if type(a) in weak else to_traced_array(a) for a in (start, stop))
    real = np.result_type(result_type(*kinds), 1.0)
    wanted = real if dtype is None else checked_dtype(dtype)
    delta = apply("subtract", cast(apply("multiply", last, 1.0), real), cast(apply("multiply", first, 1.0), real))
    shape = (count,) + (1,) * delta.ndim
    i = cast(reshape(new_traced_result(trace.builder.index((count,), 0)), shape), real)
    divisor = count - 1 if endpoint else count
    step = apply("divide", delta, traced_length(trace, divisor)) if divisor > 0 else delta
    result = apply("add", apply("multiply", i, step), cast(first, real))
    if endpoint and count > 1:
        result = apply("where", apply("equal", i, traced_length(trace, count - 1)), cast(last, result.dtype), result)
    if wanted.kind in "iu":
        result = apply("floor", result)
    result = moveaxis(cast(result, wanted), 0, axis)
    return (result, step if divisor > 0 else math.nan) if retstep else result


def eye(n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None) -> Tracer:
    shape = (to_index(n_rows, "n_rows"), to_length(n_rows if n_cols is None else n_cols))
    builder = trace_of_operands().builder
    rows, columns = new_traced_result(builder.index(shape, 0)), new_traced_result(builder.index(shape, 1))
    return cast(
        apply("equal", apply("subtract", columns, rows), checked_diagonal_number(k)),
        FLOAT64 if dtype is None else dtype,
    )


def checked_diagonal_number(k: Any) -> Any:
    """The number of a diagonal, which may be one of the call. Raises UnsupportedError."""
    if not isinstance(k, (int, np.integer)):
        raise UnsupportedError("a diagonal has an integer as its number; write int(k)")
    return k


_EXACT_DIAGONALS = np.lib.NumpyVersion(np.__version__) >= "2.5.0.dev0"
_LARGE = 2**62  # beyond which numbers of diagonals wrap, or are refused


def diagonal_threshold_of_columns(k: Any, columns: int, shift: int = 0) -> Any:
    """The number of a diagonal of so many columns as `np.tri(k=k + shift)` takes it: before NumPy 2.5 it computes with
    k's negative in the integers that k is of.

    Raises UnsupportedError, and what NumPy raises as ours."""
    k = checked_diagonal_number(k)
    if isinstance(k, Tracer):
        if k.dtype.kind == "u":
            raise UnsupportedError(f"a diagonal's number has a sign, which {k.dtype} has not; pass it as a Python int")
        return k
    if type(k) is TracedNumber:
        if not -_LARGE < k._number < _LARGE:
            raise k._need_number_value()
        trace_of_operands(k).checks.append(f"{-_LARGE} < {k._name} < {_LARGE}")
        return k
    try:
        with np.errstate(all="ignore"):
            moved = k + shift
            np.tri(0, columns, moved, bool)
            return (int(moved) if _EXACT_DIAGONALS and isinstance(moved, np.integer) else -int(-moved)) - shift
    except (OverflowError, TypeError, ValueError) as error:
        raise numpy_error_as_ours(error, "k: ") from None


def empty_ndarray(
    shape: Shape, dtype: Any = float, buffer: Any = None, offset: int = 0, strides: Any = None, order: Any = None
) -> Tracer:
    """`np.ndarray(shape, dtype)`: an array of any contents. Raises UnsupportedError for one of a buffer."""
    if buffer is not None or strides is not None:
        raise UnsupportedError("np.ndarray of a buffer cannot be traced; write slices, or x.view(dtype)")
    return empty(shape, dtype, order=order)


def _mask_triangle(m: Any, k: int, keep_lower: bool) -> Tracer:
    x = to_traced_array(m)
    if x.ndim == 0:
        raise ShapeError("tril and triu need an array of at least one axis")
    x = x if x.ndim > 1 else broadcast_to(x, 2 * x.shape)  # a row, as often as it is long
    builder = x._trace.builder
    k = diagonal_threshold_of_columns(k, x.shape[-1], 0 if keep_lower else -1)
    distance = apply(
        "subtract", new_traced_result(builder.index(x.shape[-2:], 1)), new_traced_result(builder.index(x.shape[-2:], 0))
    )
    keep = apply("less_equal", distance, k) if keep_lower else apply("greater_equal", distance, k)
    return apply("where", keep, x, x.dtype.type(0))


@implements(np.tril)
def tril(m: Any, k: int = 0) -> Tracer:
    return _mask_triangle(m, k, True)


@implements(np.triu)
def triu(m: Any, k: int = 0) -> Tracer:
    return _mask_triangle(m, k, False)


@implements(np.meshgrid)
def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> tuple[Tracer, ...]:
    if indexing not in ("xy", "ij"):
        raise ShapeError(f"indexing={indexing!r} is neither 'xy' nor 'ij'")
    arrays = [reshape(to_traced_array(x), (-1,)) for x in xi]
    n = len(arrays)
    grids = [reshape(x, tuple(-1 if i == j else 1 for j in range(n))) for i, x in enumerate(arrays)]
    if indexing == "xy" and n >= 2:
        grids = [moveaxis(g, 0, 1) for g in grids]
    if not sparse:
        shape = trace_of_operands(*xi).builder.broadcast_shapes("meshgrid", [g.shape for g in grids])
        grids = [broadcast_to(g, shape) for g in grids]
    return tuple(Tracer(g._trace, g._value, layout=C) if copy else g for g in grids)
