"""Arrays put together, cut apart and repeated, with NumPy's meanings."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ...compiler.core.types import dtype_kind
from ..core.errors import DTypeError, NumberError, ShapeError, UnsupportedError
from ..core.spec import checked_dtype, entries_of, to_index
from ..trace.aliasing import whole_array_of_rows, whole_arrays_among_rows
from ..trace.dispatch import implements
from ..trace.items import ITEM, convert_operand_for_element, wrap_integer_operand_to_dtype
from ..trace.operands import (
    axes_without_booleans,
    is_traced,
    new_traced_result,
    to_axis_of_operand,
    to_native_axis_of_operand,
    to_traced_array,
    to_traced_shape,
)
from ..trace.tracer import TracedNumber, Tracer
from .elementwise import select_choices_in_one_dtype
from .gather import known_index_array, numbers_as_slices
from .host_calls import require_known_numpy_option
from .indexing import getitem
from .views import atleast_1d, atleast_2d, broadcast_to, cast, copy, expand_dims, moveaxis, ravel, reshape


@implements(np.concatenate, np.concat)
def concatenate(
    arrays: Sequence[Any], /, axis: int | None = 0, out: Any = None, *, dtype: Any = None, casting: str = "same_kind"
) -> Tracer:
    """Parts of any dtypes, promoted as NumPy promotes arrays. Numbers among them are refused, as they have no axis."""
    wanted = None if dtype is None else checked_dtype(dtype)
    if axis is None and wanted is None:  # numbers take the arrays' dtype
        arrays, wanted = select_choices_in_one_dtype(*arrays)
    parts = [
        to_traced_array(a) if axis is not None or wanted is None else _flatten_part_of_concatenate(a, wanted)
        for a in arrays
    ]
    if out is not None:
        raise UnsupportedError("concatenate with out= is not supported; use its result")
    if not parts:
        raise ShapeError("need at least one array to concatenate")
    if axis is None:
        parts = [ravel(p) for p in parts]
        axis = 0
    if any(p.ndim == 0 for p in parts):
        raise ShapeError("zero-dimensional arrays cannot be concatenated; write np.stack([...])")
    at = to_axis_of_operand(axes_without_booleans(axis), parts[0].ndim)
    wanted = np.result_type(*(p.dtype for p in parts)) if wanted is None else wanted
    for p in parts:
        if not np.can_cast(p.dtype, wanted, casting):  # type: ignore[arg-type]
            raise DTypeError(
                f"concatenate cannot cast {p.dtype} to {wanted} with casting={casting!r}; write x.astype(...)"
            )
    builder = parts[0]._trace.builder
    return new_traced_result(builder.concat([builder.cast(p._value, wanted) for p in parts], at), *parts)


_KINDS = {"i": "iufc", "f": "fc", "c": "c"}  # kind of a Python number -> the dtypes that hold it by any rule


def _flatten_part_of_concatenate(a: Any, dtype: np.dtype[Any]) -> Tracer:
    """A part of what is joined without axes: a Python number among them has no dtype of its own."""
    x = to_traced_array(a)
    if type(a) not in (int, float, complex, TracedNumber) or dtype_kind(dtype) not in _KINDS.get(
        dtype_kind(x.dtype), ""
    ):
        return x
    return cast(to_traced_array(wrap_integer_operand_to_dtype(a, dtype)), dtype)


@implements(np.stack)
def stack(
    arrays: Sequence[Any], axis: int = 0, out: Any = None, *, dtype: Any = None, casting: str = "same_kind"
) -> Tracer:
    if (rows := whole_array_of_rows(arrays)) is not None and out is None and dtype is None:
        return moveaxis(Tracer(rows._trace, rows._value), 0, to_axis_of_operand(axis, rows.ndim))
    parts = [to_traced_array(a) for a in arrays]
    if not parts:
        raise ShapeError("need at least one array to stack")
    if len({p.shape for p in parts}) > 1:
        shapes = ", ".join(str(p.shape) for p in parts)
        raise ShapeError(
            f"all arrays to stack must have the same shape, got {shapes}; write np.concatenate or broadcast_to"
        )
    at = to_axis_of_operand(axis, parts[0].ndim + 1)
    pieces = [moveaxis(x, 0, at) if whole else expand_dims(x, at) for x, whole in whole_arrays_among_rows(arrays)]
    return concatenate(pieces, at, out, dtype=dtype, casting=casting)


@implements(np.vstack)
def vstack(tup: Sequence[Any], *, dtype: Any = None, casting: str = "same_kind") -> Tracer:
    if (rows := whole_array_of_rows(tup)) is not None and rows.ndim == 2 and dtype is None:
        return stack(tup)
    return concatenate([atleast_2d(a) for a in tup], 0, dtype=dtype, casting=casting)


@implements(np.hstack)
def hstack(tup: Sequence[Any], *, dtype: Any = None, casting: str = "same_kind") -> Tracer:
    parts = [atleast_1d(a) for a in tup]
    return concatenate(parts, 0 if parts and parts[0].ndim == 1 else 1, dtype=dtype, casting=casting)


@implements(np.column_stack)
def column_stack(tup: Sequence[Any]) -> Tracer:
    return concatenate([x if x.ndim >= 2 else reshape(x, (x.size, 1)) for x in map(to_traced_array, tup)], 1)


def checked_section_count(count: Any) -> int:
    """How many parts, of which NumPy takes a float too, rounded towards 0. Raises ShapeError, DTypeError."""
    count = require_known_numpy_option(count)
    if not isinstance(count, (float, np.floating, np.bool_)):
        return to_index(count, "the number of sections")
    if np.isnan(count):
        raise ShapeError("cannot convert float NaN to integer: an array cannot be split into NaN parts")
    if np.isinf(count):
        raise NumberError("cannot convert float infinity to integer: an array cannot be split into so many parts")
    return int(count)


@implements(np.split)
def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Tracer]:
    x = to_traced_array(ary)
    at = to_axis_of_operand(axis, x.ndim)
    if isinstance(indices_or_sections, (tuple, list, np.ndarray)):
        cuts = [0, *(to_index(i, "a split point") for i in indices_or_sections), x.shape[at]]
    else:
        uneven = "array split does not result in an equal division"
        if x.shape[at] and require_known_numpy_option(indices_or_sections) in (
            np.inf,
            -np.inf,
        ):  # whose remainder NumPy asks for first
            raise ShapeError(uneven)
        sections = checked_section_count(indices_or_sections)
        if sections != indices_or_sections:
            raise ShapeError(uneven)
        if sections <= 0 or x.shape[at] % sections:
            raise ShapeError(
                f"an axis of length {x.shape[at]} does not split into {sections} equal parts; pass split points"
            )
        cuts = list(range(0, x.shape[at] + 1, x.shape[at] // sections)) if x.shape[at] else [0] * (sections + 1)
    head = (slice(None),) * at
    return [getitem(x, (*head, slice(i, j))) for i, j in pairwise(cuts)]


@implements(np.unstack)
def unstack(x: Any, /, *, axis: int = 0) -> tuple[Tracer, ...]:
    return tuple(moveaxis(to_traced_array(x), axis, 0))


@implements(np.roll)
def roll(a: Any, shift: Any, axis: Any = None) -> Tracer:
    x = to_traced_array(a)
    if axis is None:
        return reshape(roll(ravel(x), shift, 0), x.shape)
    shifts, axes = np.broadcast_arrays(shift, [to_axis_of_operand(entry, x.ndim) for entry in entries_of(axis)])
    for by, at in zip(shifts.ravel().tolist(), axes.ravel().tolist(), strict=True):
        cut = -by % x.shape[at] if x.shape[at] else 0
        if cut:
            head = (slice(None),) * at
            x = concatenate([getitem(x, (*head, slice(cut, None))), getitem(x, (*head, slice(cut)))], at)
    return copy(x)


@implements(np.tile)
def tile(A: Any, reps: Any) -> Tracer:
    x = to_traced_array(A)
    many = entries_of(reps)
    times = to_traced_shape([int(n) for n in many] if any(type(n) is bool for n in many) else reps)
    ndim = max(x.ndim, len(times))
    shape = (1,) * (ndim - x.ndim) + x.shape
    times = (1,) * (ndim - len(times)) + times
    between = [m for n in shape for m in (1, n)]
    wide = [m for n, t in zip(shape, times, strict=True) for m in (t, n)]
    return copy(reshape(broadcast_to(reshape(x, between), wide), [n * t for n, t in zip(shape, times, strict=True)]))


@implements(np.repeat, method=True)
def repeat(a: Any, repeats: Any, axis: int | None = None) -> Tracer:
    x = to_traced_array(a)
    if axis is None:
        x, axis = ravel(x), 0
    at = to_native_axis_of_operand(axis, x.ndim)
    if not x.ndim:
        x = reshape(x, (1,))
    if isinstance(repeats, (Tracer, np.ndarray, list, tuple)):
        counts = known_index_array(repeats)
        if counts is None:
            raise UnsupportedError(
                "repeat with an array of counts gives a shape that depends on data; pass an int, or a list of ints"
            )
        if counts.size != 1:
            if counts.shape != (x.shape[at],):
                raise ShapeError(f"{counts.size} counts do not fit an axis of length {x.shape[at]}")
            chosen: Tracer = getitem(x, (*(slice(None),) * at, np.repeat(np.arange(x.shape[at]), counts).tolist()))
            return chosen
        repeats = int(counts.reshape(()))
    times = to_index(repeats, "repeats")
    if times < 0:
        raise ShapeError(f"repeats may not be negative, got {times}")
    lead, n, rest = x.shape[:at], x.shape[at], x.shape[at + 1 :]
    return copy(
        reshape(broadcast_to(reshape(x, (*lead, n, 1, *rest)), (*lead, n, times, *rest)), (*lead, n * times, *rest))
    )


@implements(np.pad)
def pad(array: Any, pad_width: Any, mode: str = "constant", *, constant_values: Any = 0) -> Tracer:
    """Modes constant, edge, wrap, reflect and symmetric."""
    x = to_traced_array(array)
    widths = _pad_widths_of_axes(pad_width, x.ndim)
    values = _pad_constants_of_sides(constant_values, x)
    if mode not in _PADS and mode != "constant":
        text = f"pad with mode={mode!r} is not supported; supported are constant, {', '.join(_PADS)}"
        raise UnsupportedError(text)
    for axis, (before, after) in enumerate(widths):
        if before or after:
            x = _pad_axis(x, axis, before, after, mode, values[axis])
    return copy(x)


def _pad_widths_of_axes(pad_width: Any, ndim: int) -> list[list[int]]:
    """(before, after) for each axis; of a dict those that it does not name are 0."""
    if isinstance(pad_width, dict):
        named = {to_axis_of_operand(axis, ndim): width for axis, width in pad_width.items()}
        pad_width = [named.get(axis, 0) for axis in range(ndim)]
        pad_width = [w if isinstance(w, (tuple, list)) else (w, w) for w in pad_width]
    widths = np.asarray(require_known_numpy_option(pad_width))
    if widths.dtype.kind not in "iu":
        raise DTypeError("`pad_width` must be of integral type.")
    try:
        found: list[list[int]] = np.broadcast_to(widths, (ndim, 2)).tolist()
    except ValueError:
        raise ShapeError(f"pad_width of shape {widths.shape} does not fit {ndim} axes, each with two sides") from None
    if widths.size and widths.min() < 0:
        raise ShapeError("index can't contain negative values")
    return found


def _pad_constants_of_sides(values: Any, x: Tracer) -> list[tuple[Tracer, Tracer]]:
    """The constants before and after each axis, as NumPy converts them: as an array of all, whose items are assigned.
    Of more than two it makes Python numbers again."""
    every = to_traced_array(values) if is_traced(values) else np.asarray(values)
    try:
        places = np.broadcast_to(np.arange(every.size).reshape(every.shape), (x.ndim, 2)).tolist()
    except ValueError:
        text = f"constant_values of shape {every.shape} do not fit {x.ndim} axes, each with two sides"
        raise ShapeError(text) from None
    if isinstance(every, Tracer) and isinstance(values, (list, tuple)) and every.ndim == 1:
        given = [new_traced_result(i._value, i) if isinstance(i, Tracer) else i for i in values]
        items = given if x.dtype.kind == "i" else [*every]  # which are checked as they are given
    elif isinstance(every, Tracer):
        items = [every[()]] if not every.ndim else [*ravel(every)]
    else:
        items = every.ravel().tolist() if every.size > 2 or every.shape == (2, 1) else [*every.ravel()]
    chosen = [new_traced_result(convert_operand_for_element(x._trace, i, x.dtype, ITEM), x) for i in items]
    return [(chosen[before], chosen[after]) for before, after in places]


_PADS = {  # mode -> the source index of position i in an axis of length n
    "edge": lambda i, n: min(max(i, 0), n - 1),
    "wrap": lambda i, n: i % n,
    "reflect": lambda i, n: n - 1 - abs(i % max(2 * n - 2, 1) - (n - 1)),
    "symmetric": lambda i, n: min(i % (2 * n), 2 * n - 1 - i % (2 * n)),
}


def _pad_axis(x: Tracer, axis: int, before: int, after: int, mode: str, constants: tuple[Tracer, Tracer]) -> Tracer:
    n = x.shape[axis]
    head = (slice(None),) * axis

    def padding_at_one_side(positions: range, constant: Tracer) -> list[Tracer]:
        if not positions:
            return []
        shape = (*x.shape[:axis], len(positions), *x.shape[axis + 1 :])
        if mode == "constant":
            return [broadcast_to(constant, shape)]
        if n == 0:
            raise ShapeError(f"an empty axis cannot be padded with mode={mode!r}; write mode='constant'")
        sources = [_PADS[mode](i, n) for i in positions]
        if len({*sources}) == 1:  # an edge: one part, however wide, instead of one for each row
            return [broadcast_to(getitem(x, (*head, slice(sources[0], sources[0] + 1))), shape)]
        return [getitem(x, (*head, run)) for run in numbers_as_slices(sources)]

    return concatenate(
        [
            *padding_at_one_side(range(-before, 0), constants[0]),
            x,
            *padding_at_one_side(range(n, n + after), constants[1]),
        ],
        axis,
    )
