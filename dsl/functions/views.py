"""Changes of shape: each becomes an index map, never a copy. Meanings and defaults are NumPy's."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...compiler.graph.graph import Value
from ..core.errors import DTypeError, ShapeError, UnsupportedError
from ..core.spec import checked_dtype, to_index
from ..trace.aliasing import (
    TracerBroadcastView,
    TracerContiguousView,
    TracerDiagonalView,
    TracerPermuteView,
    TracerReshapeView,
    memory_layout_of_tracer,
    view_of_tracer,
)
from ..trace.dispatch import LoopOperand, implements
from ..trace.memory_layout import (
    C,
    CopyTracerLayout,
    F,
    MemoryLayout,
    has_one_dense_tracer_layout,
    resolve_layout_of_tracer,
)
from ..trace.operands import (
    Axes,
    axes_without_booleans,
    loop_operations,
    new_traced_array,
    new_traced_result,
    to_axes_of_operand,
    to_axis_of_operand,
    to_graph_operand,
    to_graph_value,
    to_traced_array,
    to_traced_shape,
    trace_of_operands,
)
from ..trace.trace import current_trace
from ..trace.tracer import SCALAR, TracedNumber, Tracer
from .indexing import getitem


@implements(np.reshape)
def reshape(a: Any, /, shape: Any = None, order: str = "C", *, copy: bool | None = None) -> Tracer:
    x, order = to_traced_array(a), checked_numpy_order(order, "CFA") or "C"
    if (loop := loop_operations()) is not None:
        found = with_axes_of_one(x, shape if isinstance(shape, (tuple, list)) else (shape,))
        return loop.copied(found) if copy else found
    if numpy_memory_order(x, order) == "F" and x.ndim + len(to_traced_shape(shape)) > 2:
        return transpose(reshape(transpose(x), to_traced_shape(shape)[::-1], copy=copy))
    step = TracerReshapeView(x._trace.builder.reshape(x._value, to_traced_shape(shape)).shape)
    if (
        copy is False
        and not step.is_view_of(x._held.type)
        and step.numpy_view(_stand_in_for_numpy_order(x, "copy=False")) is None
    ):
        raise ShapeError("unable to avoid creating a copy while reshaping; leave copy=False out")
    found = view_of_tracer(x, step)
    return new_traced_array(found._value, x) if copy else found


def with_axes_of_one(x: Tracer, shape: Any) -> Tracer:
    """A new array, of a shape that has other axes of length 1. In a loop that is recorded it is a view."""
    if loop_operations() is not None:
        return view_of_tracer(x, TracerReshapeView(tuple(shape)))
    return new_traced_array(x._trace.builder.reshape(x._value, shape), x)


def checked_numpy_order(order: str | None, known: str = "CFAK") -> str | None:
    """An order of memory as a capital letter; NumPy takes small ones too. Raises ShapeError."""
    found = order.upper() if isinstance(order, str) else order
    if found is not None and (len(found) != 1 or found not in known):
        *first, last = map(repr, known)
        raise ShapeError(f"order={order!r} is none of {', '.join(first)} and {last}")
    return found


def numpy_memory_order(x: Tracer, order: str | None) -> str:
    """`C` or `F`: where an order of memory is asked for, that of the array."""
    order = checked_numpy_order(order)
    if order not in ("A", "K"):
        return order or "C"
    if sum(n != 1 for n in x.shape) < 2:
        return "C"
    found = _stand_in_for_numpy_order(x, f"order={order!r}").flags
    return "F" if found.f_contiguous and not found.c_contiguous else "C"


def _stand_in_for_numpy_order(x: Tracer, request: str) -> Any:
    """What stands for the array, as it lies in memory. Raises UnsupportedError where that is not known."""
    found = resolve_layout_of_tracer(memory_layout_of_tracer(x), x._held.type)
    if found is None:
        raise UnsupportedError(f"{request} needs the order of memory, which is not known here; write 'C' or 'F'")
    return found


def contiguous(x: Tracer, order: str | None) -> Tracer:
    """The array itself where it lies in this order, else a copy that does. A and K are any."""
    order = checked_numpy_order(order)
    return x if order in (None, "K", "A") else view_of_tracer(x, TracerContiguousView(order))


def in_order(order: str | None, *arrays: Tracer) -> MemoryLayout | None:
    """The layout of a copy in this order."""
    order = checked_numpy_order(order)
    if arrays and has_one_dense_tracer_layout(arrays[0]._held.type):
        return None
    if order in ("K", None):
        return (
            CopyTracerLayout((memory_layout_of_tracer(arrays[0]), arrays[0]._held.type))
            if arrays and arrays[0].shape
            else C
        )
    return F if order == "F" or (order == "A" and arrays and numpy_memory_order(arrays[0], order) == "F") else C


@implements(method="reshape")
def _reshape_method(x: Tracer, *shape: Any, order: str = "C", copy: bool | None = None) -> Tracer:
    return reshape(x, shape[0] if len(shape) == 1 else shape, order=order, copy=copy)


@implements(np.ravel, method=True)
def ravel(a: Any, order: str = "C") -> Tracer:
    order = checked_numpy_order(order) or "C"
    x = _ravel_axes_in_memory_order(to_traced_array(a)) if order == "K" else to_traced_array(a)
    if order in ("F", "A") and numpy_memory_order(x, order) == "F":
        x = transpose(x)
    return view_of_tracer(x, TracerContiguousView("C"), TracerReshapeView((x.size,), True))


def _ravel_axes_in_memory_order(x: Tracer) -> Tracer:
    """The axes in the order of memory, the outermost first."""
    if sum(n != 1 for n in x.shape) < 2:
        return x
    strides = _stand_in_for_numpy_order(x, "order='K'").strides
    if 0 in [s for s, n in zip(strides, x.shape, strict=True) if n != 1]:
        raise UnsupportedError("order='K' of an array whose elements share memory is not supported; write 'C' or 'F'")
    return transpose(x, sorted(range(x.ndim), key=lambda i: -abs(strides[i])))


@implements(method=True)
def flatten(a: Any, order: str = "C") -> Tracer:
    return copy(ravel(a, order), "C")


@implements(np.transpose, np.permute_dims)
def transpose(a: Any, axes: Any = None) -> Tracer:
    x = to_traced_array(a)
    if axes is None:
        order = tuple(reversed(range(x.ndim)))
    else:
        order = to_axes_of_operand(axes_without_booleans(tuple(axes)), x.ndim, "axes")
        if len(order) != x.ndim:
            raise ShapeError(f"axes {tuple(axes)} don't match an array of dimension {x.ndim}")
    return view_of_tracer(x, TracerPermuteView(order))


@implements(method="transpose")
def _transpose_method(x: Tracer, *axes: Any) -> Tracer:
    if len(axes) == 1 and (axes[0] is None or isinstance(axes[0], (tuple, list, range))):
        return transpose(x, axes[0])
    return transpose(x, axes or None)


@implements(np.matrix_transpose)
def matrix_transpose(x: Any) -> Tracer:
    return swapaxes(x, -1, -2)


@implements(np.swapaxes, method=True)
def swapaxes(a: Any, axis1: int, axis2: int) -> Tracer:
    x = to_traced_array(a)
    i, j = to_axis_of_operand(axis1, x.ndim, "axis1"), to_axis_of_operand(axis2, x.ndim, "axis2")
    order = list(range(x.ndim))
    order[i], order[j] = order[j], order[i]
    return transpose(x, order)


@implements(np.moveaxis)
def moveaxis(a: Any, source: Axes, destination: Axes) -> Tracer:
    x = to_traced_array(a)
    origin, target = (
        to_axes_of_operand(source, x.ndim, "source"),
        to_axes_of_operand(destination, x.ndim, "destination"),
    )
    if len(origin) != len(target):
        raise ShapeError("source and destination must name the same number of axes")
    order = [n for n in range(x.ndim) if n not in origin]
    for to, axis in sorted(zip(target, origin, strict=True)):
        order.insert(to, axis)
    return transpose(x, order)


@implements(np.rollaxis)
def rollaxis(a: Any, axis: int, start: int = 0) -> Tracer:
    x = to_traced_array(a)
    at = to_axis_of_operand(axis, x.ndim)
    to = start if start >= 0 else start + x.ndim
    return moveaxis(x, at, to - (at < to))


@implements(np.expand_dims)
def expand_dims(a: Any, axis: Any) -> Tracer:
    x = to_traced_array(a)
    entries = axis if isinstance(axis, (tuple, list)) else (axis,)
    ndim = x.ndim + len(entries)
    new = to_axes_of_operand(tuple(entries), ndim)
    lengths = iter(x.shape)
    return reshape(x, tuple(1 if i in new else next(lengths) for i in range(ndim)))


@implements(np.squeeze, method=True)
def squeeze(a: Any, axis: Axes = None) -> Tracer:
    x = to_traced_array(a)
    if axis is None:
        gone = tuple(i for i, n in enumerate(x.shape) if n == 1)
    else:
        gone = (
            to_axes_of_operand(axes_without_booleans(axis), max(x.ndim, 1)) if type(axis) is not tuple or axis else ()
        )
        if x.ndim and any(x.shape[i] != 1 for i in gone):
            raise ShapeError(
                f"cannot squeeze axis {axis} of shape {x.shape}: its length is not one; write x.reshape(...)"
            )
    return reshape(x, tuple(n for i, n in enumerate(x.shape) if i not in gone))


@implements(np.broadcast_to)
def broadcast_to(array: Any, shape: Any, subok: bool = False) -> Tracer:
    x = to_traced_array(array)
    return view_of_tracer(x, TracerBroadcastView(to_traced_shape(shape)))


@implements(np.broadcast_arrays)
def broadcast_arrays(*args: Any, subok: bool = False) -> tuple[Tracer, ...]:
    arrays = [to_traced_array(a) for a in args]
    shape = trace_of_operands(*args).builder.broadcast_shapes("broadcast_arrays", [x.shape for x in arrays])
    return tuple(x if x.shape == shape else broadcast_to(x, shape) for x in arrays)


@implements(np.flip)
def flip(m: Any, axis: Axes = None) -> Tracer:
    x = to_traced_array(m)
    axes = to_axes_of_operand(axis, x.ndim)
    return getitem(x, tuple(slice(None, None, -1 if i in axes else 1) for i in range(x.ndim)))


@implements(np.flipud)
def flipud(m: Any) -> Tracer:
    return flip(m, 0)


@implements(np.fliplr)
def fliplr(m: Any) -> Tracer:
    return flip(m, 1)


@implements(np.rot90)
def rot90(m: Any, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Tracer:
    x = to_traced_array(m)
    first, second = to_axes_of_operand(axes, x.ndim, "axes")
    turns = int(np.rot90([[0, 1], [3, 2]], k)[0, 0])  # NumPy's own word on a `k` that is no integer
    if turns == 0:
        return getitem(x, ...)
    if turns == 2:
        return flip(x, (first, second))
    if any(type(axis) is bool for axis in axes):
        raise ShapeError("setting an array element with a sequence: axes must be integers; write int(axis)")
    return swapaxes(flip(x, second), first, second) if turns == 1 else flip(swapaxes(x, first, second), second)


@implements(np.atleast_1d)
def atleast_1d(*arys: Any) -> Any:
    return apply_to_each_array(arys, lambda x: x if x.ndim else reshape(x, (1,)))


@implements(np.atleast_2d)
def atleast_2d(*arys: Any) -> Any:
    return apply_to_each_array(arys, lambda x: x if x.ndim >= 2 else reshape(x, (1, *x.shape) if x.ndim else (1, 1)))


def apply_to_each_array(arrays: tuple[Any, ...], change: Any) -> Any:
    found = tuple(change(to_traced_array(a)) for a in arrays)
    return found[0] if len(found) == 1 else found


@implements(method="copy")
def _copy_method(x: Tracer, order: str = "C") -> Tracer:
    return x if x._owner == SCALAR else copy(x, "C" if order is None else order)


@implements(np.copy)
def copy(a: Any, order: str = "K", subok: bool = False) -> Tracer:
    """An array of its own."""
    x = to_traced_array(a)
    if (loop := loop_operations()) is not None:
        return loop.copied(x)
    return Tracer(x._trace, x._value, layout=in_order(order, x))


@implements(np.astype)
def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Tracer:
    return cast(x, dtype, copy=copy)


@implements(method="astype")
def cast(
    x: Any, dtype: Any, order: str = "K", casting: str = "unsafe", subok: bool = True, copy: bool = True
) -> Tracer:
    """Conversion with NumPy's C casts."""
    a = to_traced_array(x)
    wanted = checked_dtype(dtype)
    if not np.can_cast(a.dtype, wanted, casting):  # type: ignore[arg-type]
        raise DTypeError(f"cannot cast {a.dtype} to {wanted} with casting={casting!r}; leave casting out")
    if a.dtype == wanted and not copy:
        return contiguous(a, numpy_memory_order(a, order) if checked_numpy_order(order) == "A" else order)
    if (loop := loop_operations()) is not None:
        return loop.cast(a, wanted)
    value = a._trace.builder.cast(a._value, wanted)
    return new_traced_result(value, a) if a._owner == SCALAR else Tracer(a._trace, value, layout=in_order(order, a))


@implements(np.shape)
def shape(a: Any) -> tuple[int, ...]:
    return to_traced_array(a).shape


@implements(np.ndim)
def ndim(a: Any) -> int:
    return to_traced_array(a).ndim


@implements(np.size)
def size(a: Any, axis: Axes = None) -> int:
    x = to_traced_array(a)
    return math.prod(x.shape[i] for i in to_axes_of_operand(axis, x.ndim))


@implements(np.result_type)
def result_type(*arrays_and_dtypes: Any) -> np.dtype[Any]:
    return np.result_type(*(_np_result_type_argument(a) for a in arrays_and_dtypes))


def _np_result_type_argument(a: Any) -> Any:
    if isinstance(a, LoopOperand):
        return a.promotes_as
    value: Any = to_graph_operand(a) if isinstance(a, Tracer) or type(a) is TracedNumber else a
    if isinstance(value, Value) and value.others:
        raise UnsupportedError("whether a number is Python's or NumPy's is decided by a traced value")
    if isinstance(value, Value):
        return value.weak(0) if value.weak is not None else value.dtype
    return value


@implements(np.can_cast)
def can_cast(from_: Any, to: Any, casting: Any = "safe") -> bool:
    if casting == "no" and (trace := current_trace()) is not None:
        trace.require_native_byte_order()
    return np.can_cast(to_graph_value(from_).dtype, to, casting)


@implements(np.diagonal, method=True)
def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tracer:
    """A view, which NumPy makes read-only."""
    x = to_traced_array(a)
    i, j = to_axis_of_operand(axis1, x.ndim, "axis1"), to_axis_of_operand(axis2, x.ndim, "axis2")
    return view_of_tracer(moveaxis(x, (i, j), (-2, -1)), TracerDiagonalView(to_index(offset, "offset")))
