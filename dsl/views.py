"""Indexing and changes of shape: each becomes an index map, never a copy. Meanings and defaults are NumPy's."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ..compiler.graph import Value
from .errors import AxisError, DTypeError, IndexingError, ShapeError, TraceError, UnsupportedError
from .tracer import (
    TracedNumber,
    Tracer,
    array_of,
    check_alive,
    checked_dtype,
    fresh,
    implements,
    operand,
    to_index,
    trace_of,
    value_of,
    view,
)

Axes = int | Sequence[int] | None


def to_axis(axis: Any, ndim: int, name: str = "axis") -> int:
    """A number in [0, ndim). Raises AxisError."""
    number = to_index(axis, name)
    if not -ndim <= number < ndim:
        raise AxisError(f"{name} {number} is out of bounds for an array of dimension {ndim}")
    return number % ndim


def to_axes(axis: Any, ndim: int, name: str = "axis") -> tuple[int, ...]:
    """Distinct numbers in [0, ndim), in the given order; None means all. Raises AxisError, ShapeError."""
    if axis is None:
        return tuple(range(ndim))
    entries = axis if isinstance(axis, (tuple, list)) else (axis,)
    axes = tuple(to_axis(a, ndim, name) for a in entries)
    if len(set(axes)) != len(axes):
        raise ShapeError(f"{name} {axis} names an axis twice")
    return axes


def to_shape(shape: Any) -> tuple[int, ...]:
    """A tuple of Python ints from an int or a sequence of ints."""
    if isinstance(shape, Tracer):
        raise TraceError("a traced value cannot be a shape; pass it as a Python int argument of the function")
    entries = (
        shape if isinstance(shape, (tuple, list)) else np.asarray(shape).tolist() if _is_array(shape) else (shape,)
    )
    return tuple(to_index(n, "a length in a shape") for n in entries)


def _is_array(x: Any) -> bool:
    return type(x) is np.ndarray and x.ndim == 1


@implements(method="__getitem__")
def getitem(x: Tracer, key: Any) -> Tracer:
    """Basic indexing: integers, slices with any step, None and Ellipsis."""
    check_alive(x)
    keys = _expand(key if isinstance(key, tuple) else (key,), x)
    starts, steps, lengths, shape = [], [], [], []
    axis = 0
    for entry in keys:
        if entry is None:
            shape.append(1)
            continue
        n = x.shape[axis]
        if isinstance(entry, slice):
            start, stop, step = _slice(entry, n)
            length = len(range(start, stop, step))
            starts.append(start if length else 0)
            steps.append(step)
            lengths.append(length)
            shape.append(length)
        else:
            i = operator.index(entry)
            if not -n <= i < n:
                raise IndexingError(f"index {i} is out of bounds for axis {axis} with size {n}")
            starts.append(i % n)
            steps.append(1)
            lengths.append(1)
        axis += 1
    builder = x._trace.builder
    return view(builder.reshape(builder.slice(x._value, starts, steps, lengths), shape), x)


def _slice(entry: slice, n: int) -> tuple[int, int, int]:
    try:
        return entry.indices(n)
    except TypeError:
        raise IndexingError("slice bounds must be ints or None; write x[int_a:int_b]") from None
    except ValueError as error:
        raise ShapeError(str(error)) from None


def _expand(keys: tuple[Any, ...], x: Tracer) -> list[Any]:
    """The keys with Ellipsis written out, each checked. Raises IndexingError, UnsupportedError."""
    found: list[Any] = []
    for entry in keys:
        found.append(_checked(entry))
    used = sum(entry is not None and entry is not Ellipsis for entry in found)
    if used > x.ndim:
        raise IndexingError(f"too many indices: the array has {x.ndim} axes, but {used} were indexed")
    dots = [i for i, entry in enumerate(found) if entry is Ellipsis]
    if len(dots) > 1:
        raise IndexingError("an index can only have a single ellipsis ('...')")
    at = dots[0] if dots else len(found)
    return found[:at] + [slice(None)] * (x.ndim - used) + found[at + bool(dots) :]


def _checked(entry: Any) -> Any:
    if entry is None or entry is Ellipsis or isinstance(entry, slice):
        return entry
    if isinstance(entry, (bool, np.bool_)) or getattr(entry, "dtype", None) == np.bool_:
        raise UnsupportedError(
            "indexing with booleans gives a shape that depends on data; write np.where(mask, x, 0), "
            "or a reduction with where=mask"
        )
    if isinstance(entry, (list, np.ndarray, Tracer)):
        raise UnsupportedError(
            "indexing with integer arrays is not supported; index with ints and slices, or join them by np.stack"
        )
    try:
        return operator.index(entry)
    except TypeError:
        raise IndexingError("only integers, slices (`:`), ellipsis (`...`), and np.newaxis are valid indices") from None


@implements(np.reshape)
def reshape(a: Any, /, shape: Any = None, order: str = "C", *, copy: bool | None = None) -> Tracer:
    x = array_of(a)
    if order not in ("C", "A", "K"):
        raise UnsupportedError(f"reshape with order={order!r} is not supported; write x.T.reshape(...).T")
    return view(x._trace.builder.reshape(x._value, to_shape(shape)), x)


@implements(method="reshape")
def _reshape_method(x: Tracer, *shape: Any, order: str = "C", copy: bool | None = None) -> Tracer:
    return reshape(x, shape[0] if len(shape) == 1 else shape, order=order, copy=copy)


@implements(np.ravel, method=True)
def ravel(a: Any, order: str = "C") -> Tracer:
    return reshape(a, -1 if array_of(a).size else 0, order=order)


@implements(method=True)
def flatten(a: Any, order: str = "C") -> Tracer:
    return copy(ravel(a, order))


@implements(np.transpose, np.permute_dims)
def transpose(a: Any, axes: Any = None) -> Tracer:
    x = array_of(a)
    if axes is None:
        order = tuple(reversed(range(x.ndim)))
    else:
        order = to_axes(tuple(axes), x.ndim, "axes")
        if len(order) != x.ndim:
            raise ShapeError(f"axes {tuple(axes)} don't match an array of dimension {x.ndim}")
    return view(x._trace.builder.permute(x._value, order), x)


@implements(method="transpose")
def _transpose_method(x: Tracer, *axes: Any) -> Tracer:
    if len(axes) == 1 and (axes[0] is None or isinstance(axes[0], (tuple, list))):
        return transpose(x, axes[0])
    return transpose(x, axes or None)


@implements(np.matrix_transpose)
def matrix_transpose(x: Any) -> Tracer:
    return swapaxes(x, -1, -2)


@implements(np.swapaxes, method=True)
def swapaxes(a: Any, axis1: int, axis2: int) -> Tracer:
    x = array_of(a)
    i, j = to_axis(axis1, x.ndim, "axis1"), to_axis(axis2, x.ndim, "axis2")
    order = list(range(x.ndim))
    order[i], order[j] = order[j], order[i]
    return transpose(x, order)


@implements(np.moveaxis)
def moveaxis(a: Any, source: Axes, destination: Axes) -> Tracer:
    x = array_of(a)
    origin, target = to_axes(source, x.ndim, "source"), to_axes(destination, x.ndim, "destination")
    if len(origin) != len(target):
        raise ShapeError("source and destination must name the same number of axes")
    order = [n for n in range(x.ndim) if n not in origin]
    for to, axis in sorted(zip(target, origin, strict=True)):
        order.insert(to, axis)
    return transpose(x, order)


@implements(np.rollaxis)
def rollaxis(a: Any, axis: int, start: int = 0) -> Tracer:
    x = array_of(a)
    at = to_axis(axis, x.ndim)
    to = start if start >= 0 else start + x.ndim
    return moveaxis(x, at, to - (at < to))


@implements(np.expand_dims)
def expand_dims(a: Any, axis: Any) -> Tracer:
    x = array_of(a)
    entries = axis if isinstance(axis, (tuple, list)) else (axis,)
    ndim = x.ndim + len(entries)
    new = to_axes(tuple(entries), ndim)
    lengths = iter(x.shape)
    return reshape(x, tuple(1 if i in new else next(lengths) for i in range(ndim)))


@implements(np.squeeze, method=True)
def squeeze(a: Any, axis: Axes = None) -> Tracer:
    x = array_of(a)
    if axis is None:
        gone = tuple(i for i, n in enumerate(x.shape) if n == 1)
    else:
        gone = to_axes(axis, x.ndim)
        if any(x.shape[i] != 1 for i in gone):
            raise ShapeError(
                f"cannot squeeze axis {axis} of shape {x.shape}: its length is not one; write x.reshape(...)"
            )
    return reshape(x, tuple(n for i, n in enumerate(x.shape) if i not in gone))


@implements(np.broadcast_to)
def broadcast_to(array: Any, shape: Any, subok: bool = False) -> Tracer:
    x = array_of(array)
    return view(x._trace.builder.broadcast(x._value, to_shape(shape)), x)


@implements(np.broadcast_arrays)
def broadcast_arrays(*args: Any, subok: bool = False) -> tuple[Tracer, ...]:
    arrays = [array_of(a) for a in args]
    shape = trace_of(*args).builder.broadcast_shapes("broadcast_arrays", [x.shape for x in arrays])
    return tuple(broadcast_to(x, shape) for x in arrays)


@implements(np.flip)
def flip(m: Any, axis: Axes = None) -> Tracer:
    x = array_of(m)
    axes = to_axes(axis, x.ndim)
    return getitem(x, tuple(slice(None, None, -1 if i in axes else 1) for i in range(x.ndim)))


@implements(np.flipud)
def flipud(m: Any) -> Tracer:
    return flip(m, 0)


@implements(np.fliplr)
def fliplr(m: Any) -> Tracer:
    return flip(m, 1)


@implements(np.rot90)
def rot90(m: Any, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Tracer:
    x = array_of(m)
    first, second = to_axes(axes, x.ndim, "axes")
    turns = k % 4
    if turns == 0:
        return getitem(x, ...)
    if turns == 2:
        return flip(x, (first, second))
    return swapaxes(flip(x, second), first, second) if turns == 1 else flip(swapaxes(x, first, second), second)


@implements(np.atleast_1d)
def atleast_1d(*arys: Any) -> Any:
    return _each(arys, lambda x: x if x.ndim else reshape(x, (1,)))


@implements(np.atleast_2d)
def atleast_2d(*arys: Any) -> Any:
    return _each(arys, lambda x: x if x.ndim >= 2 else reshape(x, (1, *x.shape) if x.ndim else (1, 1)))


def _each(arrays: tuple[Any, ...], change: Any) -> Any:
    found = tuple(change(array_of(a)) for a in arrays)
    return found[0] if len(found) == 1 else found


@implements(np.concatenate, np.concat)
def concatenate(
    arrays: Sequence[Any], /, axis: int | None = 0, out: Any = None, *, dtype: Any = None, casting: str = "same_kind"
) -> Tracer:
    """Parts of any dtypes, promoted as NumPy promotes arrays (numbers among them are refused, as they have no axis)."""
    parts = [array_of(a) for a in arrays]
    if out is not None:
        raise UnsupportedError("concatenate with out= is not supported; use its result")
    if not parts:
        raise ShapeError("need at least one array to concatenate")
    if axis is None:
        parts = [ravel(p) for p in parts]
        axis = 0
    if any(p.ndim == 0 for p in parts):
        raise ShapeError("zero-dimensional arrays cannot be concatenated; write np.stack([...])")
    at = to_axis(axis, parts[0].ndim)
    wanted = np.result_type(*(p.dtype for p in parts)) if dtype is None else np.dtype(dtype)
    for p in parts:
        if not np.can_cast(p.dtype, wanted, casting):  # type: ignore[arg-type]
            raise DTypeError(
                f"concatenate cannot cast {p.dtype} to {wanted} with casting={casting!r}; write x.astype(...)"
            )
    builder = parts[0]._trace.builder
    return fresh(builder.concat([builder.cast(p._value, wanted) for p in parts], at), *parts)


@implements(np.stack)
def stack(
    arrays: Sequence[Any], axis: int = 0, out: Any = None, *, dtype: Any = None, casting: str = "same_kind"
) -> Tracer:
    parts = [array_of(a) for a in arrays]
    if not parts:
        raise ShapeError("need at least one array to stack")
    if len({p.shape for p in parts}) > 1:
        shapes = ", ".join(str(p.shape) for p in parts)
        raise ShapeError(
            f"all arrays to stack must have the same shape, got {shapes}; write np.concatenate or broadcast_to"
        )
    at = to_axis(axis, parts[0].ndim + 1)
    return concatenate([expand_dims(p, at) for p in parts], at, out, dtype=dtype, casting=casting)


@implements(np.vstack)
def vstack(tup: Sequence[Any], *, dtype: Any = None, casting: str = "same_kind") -> Tracer:
    return concatenate([atleast_2d(a) for a in tup], 0, dtype=dtype, casting=casting)


@implements(np.hstack)
def hstack(tup: Sequence[Any], *, dtype: Any = None, casting: str = "same_kind") -> Tracer:
    parts = [atleast_1d(a) for a in tup]
    return concatenate(parts, 0 if parts and parts[0].ndim == 1 else 1, dtype=dtype, casting=casting)


@implements(np.column_stack)
def column_stack(tup: Sequence[Any]) -> Tracer:
    return concatenate([x if x.ndim >= 2 else reshape(x, (x.size, 1)) for x in map(array_of, tup)], 1)


@implements(np.split)
def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Tracer]:
    x = array_of(ary)
    at = to_axis(axis, x.ndim)
    if isinstance(indices_or_sections, (tuple, list, np.ndarray)):
        cuts = [0, *(to_index(i, "a split point") for i in indices_or_sections), x.shape[at]]
    else:
        sections = to_index(indices_or_sections, "the number of sections")
        if sections <= 0 or x.shape[at] % sections:
            raise ShapeError(
                f"an axis of length {x.shape[at]} does not split into {sections} equal parts; pass split points"
            )
        cuts = list(range(0, x.shape[at] + 1, x.shape[at] // sections)) if x.shape[at] else [0] * (sections + 1)
    head = (slice(None),) * at
    return [getitem(x, (*head, slice(i, j))) for i, j in pairwise(cuts)]


@implements(np.unstack)
def unstack(x: Any, /, *, axis: int = 0) -> tuple[Tracer, ...]:
    return tuple(moveaxis(array_of(x), axis, 0))


@implements(np.roll)
def roll(a: Any, shift: Any, axis: Any = None) -> Tracer:
    x = array_of(a)
    if axis is None:
        return reshape(roll(ravel(x), shift, 0), x.shape)
    shifts, axes = np.broadcast_arrays(shift, axis)
    for by, at in zip(shifts.ravel().tolist(), axes.ravel().tolist(), strict=True):
        at = to_axis(at, x.ndim)
        cut = -by % x.shape[at] if x.shape[at] else 0
        if cut:
            head = (slice(None),) * at
            x = concatenate([getitem(x, (*head, slice(cut, None))), getitem(x, (*head, slice(cut)))], at)
    return copy(x)


@implements(np.tile)
def tile(A: Any, reps: Any) -> Tracer:
    x = array_of(A)
    times = to_shape(reps)
    ndim = max(x.ndim, len(times))
    shape = (1,) * (ndim - x.ndim) + x.shape
    times = (1,) * (ndim - len(times)) + times
    between = [m for n in shape for m in (1, n)]
    wide = [m for n, t in zip(shape, times, strict=True) for m in (t, n)]
    return copy(reshape(broadcast_to(reshape(x, between), wide), [n * t for n, t in zip(shape, times, strict=True)]))


@implements(np.repeat, method=True)
def repeat(a: Any, repeats: Any, axis: int | None = None) -> Tracer:
    x = array_of(a)
    if axis is None:
        x, axis = ravel(x), 0
    at = to_axis(axis, x.ndim)
    if isinstance(repeats, (Tracer, np.ndarray, list, tuple)):
        raise UnsupportedError("repeat with an array of counts is not supported; pass one int")
    times = to_index(repeats, "repeats")
    lead, n, rest = x.shape[:at], x.shape[at], x.shape[at + 1 :]
    return copy(
        reshape(broadcast_to(reshape(x, (*lead, n, 1, *rest)), (*lead, n, times, *rest)), (*lead, n * times, *rest))
    )


@implements(np.pad)
def pad(array: Any, pad_width: Any, mode: str = "constant", *, constant_values: Any = 0) -> Tracer:
    """Modes constant (one value for all sides), edge, wrap, reflect and symmetric."""
    x = array_of(array)
    widths = np.broadcast_to(np.asarray(pad_width), (x.ndim, 2)).tolist()
    if mode not in _PADS and mode != "constant":
        raise UnsupportedError(f"pad with mode={mode!r} is not supported; supported are constant, {', '.join(_PADS)}")
    for axis, (before, after) in enumerate(widths):
        if before or after:
            x = _pad_axis(x, axis, before, after, mode, constant_values)
    return copy(x)


_PADS = {  # mode -> the source index of position i in an axis of length n
    "edge": lambda i, n: min(max(i, 0), n - 1),
    "wrap": lambda i, n: i % n,
    "reflect": lambda i, n: n - 1 - abs(i % max(2 * n - 2, 1) - (n - 1)),
    "symmetric": lambda i, n: min(i % (2 * n), 2 * n - 1 - i % (2 * n)),
}


def _pad_axis(x: Tracer, axis: int, before: int, after: int, mode: str, constant: Any) -> Tracer:
    n = x.shape[axis]
    head = (slice(None),) * axis

    def side(positions: range) -> list[Tracer]:
        if not positions:
            return []
        if mode == "constant":
            shape = (*x.shape[:axis], len(positions), *x.shape[axis + 1 :])
            builder = x._trace.builder
            filled = builder.cast(builder.value(operand(constant), x.dtype), x.dtype)
            return [view(builder.broadcast(filled, shape), x)]
        if n == 0:
            raise ShapeError(f"an empty axis cannot be padded with mode={mode!r}; write mode='constant'")
        sources = [_PADS[mode](i, n) for i in positions]
        return [getitem(x, (*head, slice(*run))) for run in _runs(sources)]

    return concatenate([*side(range(-before, 0)), x, *side(range(n, n + after))], axis)


def _runs(numbers: list[int]) -> list[tuple[int, int | None, int]]:
    """The numbers as slices (start, stop, step) with steps 1 or -1."""
    found: list[tuple[int, int | None, int]] = []
    at = 0
    while at < len(numbers):
        step = numbers[at + 1] - numbers[at] if at + 1 < len(numbers) else 1
        step = step if step in (1, -1) else 1
        end = at + 1
        while end < len(numbers) and numbers[end] - numbers[end - 1] == step:
            end += 1
        stop = numbers[end - 1] + step
        found.append((numbers[at], stop if stop >= 0 else None, step))
        at = end
    return found


@implements(np.copy, method=True)
def copy(a: Any, order: str = "K", subok: bool = False) -> Tracer:
    """An array of its own."""
    x = array_of(a)
    return fresh(x._value, x)


@implements(np.astype)
def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Tracer:
    return cast(x, dtype, copy=copy)


@implements(method="astype")
def cast(
    x: Any, dtype: Any, order: str = "K", casting: str = "unsafe", subok: bool = True, copy: bool = True
) -> Tracer:
    """Conversion with NumPy's C casts."""
    a = array_of(x)
    wanted = checked_dtype(dtype)
    if not np.can_cast(a.dtype, wanted, casting):  # type: ignore[arg-type]
        raise DTypeError(f"cannot cast {a.dtype} to {wanted} with casting={casting!r}; leave casting out")
    if a.dtype == wanted and not copy:
        return a
    return fresh(a._trace.builder.cast(a._value, wanted), a)


@implements(np.shape)
def shape(a: Any) -> tuple[int, ...]:
    return array_of(a).shape


@implements(np.ndim)
def ndim(a: Any) -> int:
    return array_of(a).ndim


@implements(np.size)
def size(a: Any, axis: Axes = None) -> int:
    x = array_of(a)
    return math.prod(x.shape[i] for i in to_axes(axis, x.ndim))


@implements(np.result_type)
def result_type(*arrays_and_dtypes: Any) -> np.dtype[Any]:
    return np.result_type(*(_promoted(a) for a in arrays_and_dtypes))


def _promoted(a: Any) -> Any:
    value: Any = operand(a) if isinstance(a, Tracer) or type(a) is TracedNumber else a
    if isinstance(value, Value):
        return value.weak(0) if value.weak is not None else value.dtype
    return value


@implements(np.can_cast)
def can_cast(from_: Any, to: Any, casting: Any = "safe") -> bool:
    return np.can_cast(value_of(from_).dtype, to, casting)


@implements(np.diagonal, method=True)
def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tracer:
    """Through a flat view with one step per row and column."""
    x = array_of(a)
    i, j = to_axis(axis1, x.ndim, "axis1"), to_axis(axis2, x.ndim, "axis2")
    x = moveaxis(x, (i, j), (-2, -1))
    rows, columns = x.shape[-2:]
    length = max(0, min(rows + min(offset, 0), columns - max(offset, 0)))
    first = max(offset, 0) + max(-offset, 0) * columns
    flat = reshape(x, (*x.shape[:-2], rows * columns))
    stop = first + (length - 1) * (columns + 1) + 1 if length else first
    return getitem(flat, (..., slice(first, stop, columns + 1)))
