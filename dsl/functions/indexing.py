"""`x[key]` and `x[key] = value`: integers, slices with any step, None and Ellipsis; and assignment through masks."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from ...runtime.interpret.numpy_calls import ARRAY
from ..core.errors import (
    ConversionError,
    DTypeError,
    IndexingError,
    NumberError,
    ShapeError,
    TraceError,
    UnsupportedError,
)
from ..core.spec import Host
from ..trace.aliasing import (
    TracerReshapeView,
    TracerSliceView,
    assign_to_tracer,
    check_shape_fits_part,
    converted_for_assignment,
    store_elements_in_tracer,
    view_of_tracer,
)
from ..trace.concrete_values import constant_value_of_traced_node
from ..trace.dispatch import METHODS, LoopOperand, implements
from ..trace.items import AS_ARRAY, COPYTO, ITEM, key_of_every_axis, wrap_integer_operand_to_dtype
from ..trace.operands import LoopOperations, loop_operations, new_traced_array, new_traced_result, to_traced_array
from ..trace.trace import LoopNotRecordable
from ..trace.tracer import SCALAR, Tracer, check_trace_alive
from .elementwise import apply, fitting_ufunc_where_mask, select_choices_in_one_dtype
from .gather import (
    MANY,
    gather,
    index_array,
    index_of_axis,
    is_indexed_by_arrays,
    known_index_array,
    scatter,
    slice_of_axis,
)
from .host_calls import fail_unless, host_call_of_one_result
from .masked_values import masked_selection_of, value_matching_mask

_SIMPLE = frozenset({int, slice})
_PLAIN = frozenset({int, slice, type(None), type(Ellipsis)})  # keys that are no arrays


@implements(method="__getitem__")
def getitem(x: Tracer, key: Any) -> Tracer:
    """Integers, slices with any step, None and Ellipsis; arrays of integers, see `gather`; a mask, see
    `masked_values`."""
    x, loop = _array_to_index(x)
    keys = key if isinstance(key, tuple) else (key,)
    plain = _PLAIN.issuperset(map(type, keys))
    if not plain and loop is None:
        found = _masked_part_and_mask(x, keys)
        if found is not None:
            return masked_selection_of(*found)  # type: ignore[return-value]
    every = _expand_ellipsis(keys, x)
    if not plain and is_indexed_by_arrays(every):
        numbers = _known_keys_as_numbers(every)
        if not is_indexed_by_arrays(numbers):
            chosen = getitem(x, (*numbers, Ellipsis) if _indexing_key_has_ellipsis(keys) else (*numbers,))
        else:
            chosen = gather(x, numbers)
            if not any(isinstance(k, np.ndarray) and not k.ndim for k in every):
                return chosen
        return new_traced_result(chosen._value, x)  # an array of no axis makes a copy
    views, shape = _views_of_key(x, every)
    if shape or (loop is None and _indexing_key_has_ellipsis(keys)):
        return view_of_tracer(x, *views)
    if loop is not None:
        if _indexing_key_has_ellipsis(keys):
            raise LoopNotRecordable("a view of one element")
        return loop.element(view_of_tracer(x, *views))
    value = x._value
    for view in views:
        value = view.apply(x._trace.builder, value)
    return new_traced_result(value, x)  # NumPy makes a scalar


def _array_to_index(x: Any) -> tuple[Tracer, LoopOperations | None]:
    """What a key is applied to, and the loop that is recorded, if one is."""
    loop = loop_operations()
    if loop is None:
        check_trace_alive(x)
    elif not isinstance(x, LoopOperand):
        x = loop.lift(x)
    return x, loop


def _views_of_key(x: Tracer, every: list[Any]) -> tuple[list[Any], tuple[int, ...]]:
    """What integers, slices and None choose of each axis, as views, and their shape."""
    starts, steps, lengths, shape = [], [], [], []
    axis = 0
    lengths_of_x = x.shape
    for entry in every:
        if entry is None:
            shape.append(1)
            continue
        n = lengths_of_x[axis]
        if isinstance(entry, slice):
            start, step, length = slice_of_axis(entry, n)
            shape.append(length)
        else:
            start, step, length = index_of_axis(entry, n, axis), 1, 1
        starts.append(start)
        steps.append(step)
        lengths.append(length)
        axis += 1
    look = TracerSliceView(tuple(starts), tuple(steps), tuple(lengths))
    return [look] if shape == lengths else [look, TracerReshapeView(tuple(shape))], tuple(shape)


def _known_keys_as_numbers(every: list[Any]) -> list[Any]:
    """Ints for known arrays of no axis. They mean the same beside other arrays, or in an assignment."""
    return [int(k) if isinstance(k, np.ndarray) and not k.ndim else k for k in every]


@implements(method="__setitem__")
def setitem(x: Tracer, key: Any, value: Any) -> None:
    """`x[key] = value` with a key of `getitem`, or with a mask."""
    x, loop = _array_to_index(x)
    if x._owner == SCALAR:
        raise TraceError("a NumPy scalar does not support item assignment; assign to x.copy() of an array", numpys=True)
    keys = key if isinstance(key, tuple) else (key,)
    if loop is None and getattr(x._step, "flat", False):
        keys, value = _flat_assignment_as_indexing(x, keys, value)
    plain = _PLAIN.issuperset(map(type, keys))
    if plain or not (_assign_through_mask(x, keys, value) if loop is None else loop.assign_where(x, keys, value)):
        _assign_elements(x, keys, value)


def _assign_through_mask(x: Tracer, keys: tuple[Any, ...], value: Any) -> bool:
    """x[keys] = value, where a mask is among the keys. Returns whether one is."""
    through = _masked_part_and_mask(x, keys)
    if len(keys) == 1 and type(keys[0]) is list and getattr(known_index_array(keys[0]), "dtype", None) == np.bool_:
        keys = (np.array(keys[0]),)
    if len(keys) == 1 and _is_mask_index(keys[0]):
        if np.ndim(keys[0]) == x.ndim and _value_axis_count(value) > 1:
            raise DTypeError("a mask of all axes takes a value, or values in one axis; write x[mask] = values.ravel()")
        through = x, to_traced_array(keys[0])
    if through is not None:
        _assign_where_mask_holds(*through, value)
    return through is not None


def _value_axis_count(value: Any) -> int:
    """The number of axes of a value, a list of traced values too."""
    if isinstance(value, (list, tuple)):
        return 1 + max(map(_value_axis_count, value), default=0)
    return getattr(value, "ndim", 0)


def _assign_elements(x: Tracer, keys: tuple[Any, ...], value: Any) -> None:
    """x[keys] = value with keys of which none is a mask. One element takes one value."""
    every = _known_keys_as_numbers(_expand_ellipsis(keys, x))
    if is_indexed_by_arrays(every):
        scatter(x, every, value)
        return
    views, shape = _views_of_key(x, every)
    part = view_of_tracer(x, *views)
    if not shape and not _indexing_key_has_ellipsis(keys):
        value = _value_for_one_element(value, x)
    try:
        store_elements_in_tracer(part, value)
    except (NumberError, ConversionError, DTypeError):
        if not shape and getattr(x._step, "flat", False):
            raise ConversionError(f"Error setting single item of array: {x.dtype} cannot hold it") from None
        raise


def _value_for_one_element(value: Any, x: Tracer) -> Any:
    """What an element of x gets of a value, as one number. Raises what NumPy raises of several, or of an axis."""
    if loop_operations() is not None or not (isinstance(value, (list, tuple)) or getattr(value, "ndim", False)):
        return value
    listed = isinstance(value, (list, tuple))
    try:
        np.zeros(1, x.dtype)[0] = [1] * len(value) if listed else np.ones(value.shape, value.dtype)
    except (TypeError, ValueError) as error:
        text = "setting an array element with a sequence: one element takes one value; write values[0]"
        raise (ShapeError if isinstance(error, ValueError) else DTypeError)(text) from None
    return len(value) > 0 if listed else value.reshape(())  # whose truth NumPy takes


def _flat_assignment_as_indexing(x: Tracer, keys: tuple[Any, ...], value: Any) -> tuple[tuple[Any, ...], Any]:
    """What `x.flat[keys] = value` assigns, as a key and value of x: one element takes one number, several take the
    values in turn, as often as they go. Raises IndexingError, ShapeError, UnsupportedError."""
    key = keys[0] if len(keys) == 1 else None
    if key is None or (type(key) is list and any(isinstance(k, (bool, np.bool_)) for k in key)):
        raise IndexingError("x.flat takes one integer, slice, Ellipsis or array as its index")
    one = isinstance(key, (bool, np.bool_))
    key = slice(0, int(key)) if one else _indices_of_known_mask(key) if _is_mask_index(key) else key
    if np.ndim(value) == 0:
        return (key,), value
    part = getitem(x, key)
    if not (one or part.ndim) and x.dtype == np.bool_ and getattr(value, "size", 0) == 1:  # whose truth NumPy takes
        return (key,), value.reshape(())
    if one or not part.ndim:
        raise ShapeError("Error setting single item of array: an element of x.flat takes one number")
    if isinstance(key, (list, np.ndarray, Tracer)):
        key = np.ravel(key)
    values = to_traced_array(value)
    return ((key,), np.resize(values, part.size)) if values.size else ((slice(0, 0),), 0)


def _indices_of_known_mask(mask: Any) -> Any:
    """The indices where a mask holds, if its value is known while tracing; else the mask."""
    known = _known_mask_value(mask) if isinstance(mask, Tracer) else np.asarray(mask)
    return mask if known is None else np.flatnonzero(known)


def _is_mask_index(entry: Any) -> bool:
    return isinstance(entry, (bool, np.bool_)) or getattr(entry, "dtype", None) == np.bool_


def _masked_part_and_mask(x: Tracer, keys: tuple[Any, ...]) -> tuple[Tracer, Tracer] | None:
    """The part of x that a key's mask chooses from, and the mask; None where there is none.

    Before the mask there may be integers, after it integers, slices and Ellipsis."""
    at = next((i for i, k in enumerate(keys) if isinstance(k, Tracer) and k.ndim and k.dtype == np.bool_), -1)
    if at < 0:
        return None
    mask, before, after = keys[at], keys[:at], keys[at + 1 :]
    plain = all(_is_integer_indexing_entry(k) for k in before)
    plain = plain and all(_is_integer_indexing_entry(k) or isinstance(k, slice) or k is Ellipsis for k in after)
    if not plain:
        return None
    every = (*before, *(slice(None),) * mask.ndim, *after)
    numbers = tuple(new_traced_result(k._value, k) if isinstance(k, Tracer) else k for k in every)
    part = x if len(keys) == 1 else getitem(x, numbers)
    if mask.shape != part.shape[: mask.ndim]:
        builder = x._trace.builder
        mask = new_traced_array(
            builder.broadcast(builder.const(np.False_), _mask_that_selects_nothing(mask, part).shape), x
        )
    return part, mask


def _known_mask_value(mask: Tracer) -> Host | None:
    """The value of a mask that no call decides, and that is small enough."""
    if not mask.size:
        return np.zeros(mask.shape, np.bool_)
    return constant_value_of_traced_node(mask._trace, mask._value) if mask.ndim and mask.size <= MANY else None


def _spread_masked_assignment_values(values: Tracer, mask: Host) -> Tracer:
    """Values for the places where a mask holds, each at its place; elsewhere any of them. Raises ShapeError."""
    count = int(mask.sum())
    if len(values) != count:
        raise ShapeError(
            f"NumPy boolean array indexing assignment cannot assign {len(values)} input values to the {count} output "
            "values where the mask is true"
        )
    places = np.maximum(np.cumsum(mask).reshape(mask.shape) - 1, 0)
    return gather(values, [places, *(slice(None),) * (values.ndim - 1)])


def _mask_that_selects_nothing(mask: Tracer, x: Tracer) -> Host:
    """The mask of another shape that chooses nothing: a length of 0 fits any. Raises IndexingError."""
    lengths = x.shape[: mask.ndim]
    if len(lengths) < mask.ndim or not all(m in (0, n) for m, n in zip(mask.shape, lengths, strict=True)):
        raise IndexingError(f"a mask of shape {mask.shape} does not fit an array of shape {x.shape}")
    return np.zeros(lengths, np.bool_)


def _is_integer_indexing_entry(k: Any) -> bool:
    """Whether it is an integer, a computed one too; beside a mask an array of no axis is one."""
    return isinstance(k, (int, np.integer)) or (isinstance(k, Tracer) and not k.ndim and k.dtype.kind in "iu")


def _assign_where_mask_holds(x: Tracer, mask: Tracer, value: Any) -> None:
    """x[mask] = value"""
    if mask.shape != x.shape[: mask.ndim]:
        METHODS["__setitem__"](x, _mask_that_selects_nothing(mask, x), value)
        return
    rest = x.ndim - mask.ndim
    new = value_matching_mask(value, mask)
    if new is None or new.ndim != x.ndim:
        listed = isinstance(value, (np.ndarray, list, tuple))
        new = new_traced_array(converted_for_assignment(value, x, AS_ARRAY), x) if listed else None
        known = None if new is None else _known_mask_value(mask)
        if new is not None and new.ndim == rest + 1 and len(new) != 1 and known is not None:
            if not known.any() and not len(new):
                check_shape_fits_part(new, new.shape, (0, *x.shape[mask.ndim :]))
                return
            new = _spread_masked_assignment_values(new, known)
        elif new is not None and new.ndim > rest and any(n != 1 for n in new.shape[: new.ndim - rest]):
            _assign_each_where_mask_holds(x, mask, new)
            return
        elif new is not None and new.ndim > rest:
            new = METHODS["reshape"](new, new.shape[new.ndim - rest :])
    number = converted_for_assignment(value if new is None else new, x, AS_ARRAY)
    wide = view_of_tracer(mask, TracerReshapeView(mask.shape + (1,) * rest))
    store_elements_in_tracer(x, apply("where", wide, Tracer(x._trace, number), x))


def _assign_each_where_mask_holds(x: Tracer, mask: Tracer, new: Tracer) -> None:
    """x[mask] = new, which has an element for each place where the mask holds."""
    rest = x.ndim - mask.ndim
    if not x.size:  # of which nothing is computed
        raise UnsupportedError(
            f"whether values of shape {new.shape} fit depends on how often the mask holds; write one value"
        )
    if new.ndim == rest + 1:
        text = f"cannot assign {len(new)} values to the places where a mask holds"
        fail_unless(METHODS["sum"](mask) == len(new), ShapeError, text)
    key = (ARRAY, *((None, None, None),) * rest)
    assign_to_tracer(x, host_call_of_one_result("setitem", [x, mask, new], x.shape, dtypes=[x.dtype], key=key))


def _expand_ellipsis(keys: tuple[Any, ...], x: Tracer) -> list[Any]:
    """The keys with Ellipsis written out, each checked. Raises IndexingError, UnsupportedError."""
    if len(keys) == len(x.shape) and _SIMPLE.issuperset(map(type, keys)):
        return [*keys]
    found: list[Any] = []
    masks: list[tuple[int, tuple[int, ...]]] = []  # where in `found` its places begin; its shape
    for entry in keys:
        checked = _checked_indexing_key_entry(entry)
        if isinstance(checked, tuple):
            masks.append((len(found), np.shape(entry)))
            found.extend(checked)
        else:
            found.append(checked)
    every = key_of_every_axis(found, x.ndim)
    dots = [i for i, entry in enumerate(found) if entry is Ellipsis]
    for at, shape in masks:
        at += len(every) - len(found) if dots and dots[0] < at else 0
        axis = sum(entry is not None for entry in every[:at])
        if not all(m in (n, 0) for m, n in zip(shape, x.shape[axis:], strict=False)):  # a length of 0 fits any
            raise IndexingError(f"a mask of shape {shape} does not fit axis {axis} of {x.shape}")
    # an ellipsis of no axis parts what stands before it from what follows
    return found if len(every) < len(found) and is_indexed_by_arrays(found) else every


def _checked_indexing_key_entry(entry: Any) -> Any:
    if entry is None or entry is Ellipsis or isinstance(entry, slice):
        return entry
    if isinstance(entry, (bool, np.bool_)) or (getattr(entry, "dtype", None) == np.bool_ and not entry.ndim):
        raise UnsupportedError("indexing with one boolean is not supported; write x[None], or x[None][:0]")
    index = index_array(entry)
    if index is not None or loop_operations() is not None:
        return entry if index is None else index
    try:
        return operator.index(entry)
    except TypeError:
        raise IndexingError("only integers, slices (`:`), ellipsis (`...`), and np.newaxis are valid indices") from None


@implements(np.copyto)
def copyto(dst: Any, src: Any, casting: str = "same_kind", where: Any = True) -> None:
    """`dst[...] = src`, where the mask holds."""
    if not isinstance(dst, Tracer):
        raise TraceError("a traced value cannot be copied into an untraced array; use the value itself")
    if isinstance(dst, np.generic):
        raise DTypeError(f"copyto() argument 1 must be a numpy.ndarray, not numpy.{dst.dtype}; write np.array(x)")
    weak = isinstance(src, (int, float, complex)) and not isinstance(src, np.generic)
    if not weak or select_choices_in_one_dtype(dst, src)[1] != dst.dtype:
        source = to_traced_array(wrap_integer_operand_to_dtype(src, dst.dtype)).dtype
        if not np.can_cast(source, dst.dtype, casting):  # type: ignore[arg-type]
            raise DTypeError(f"copyto: no {casting!r} cast from {source} to {dst.dtype}; write x.astype(...)")
    new = Tracer(dst._trace, converted_for_assignment(src, dst, COPYTO))
    store_elements_in_tracer(
        dst, new if where is True else apply("where", fitting_ufunc_where_mask(where, dst.shape), new, dst)
    )


@implements(method="fill")
def fill_traced_array(x: Tracer, value: Any) -> None:
    """`x[...] = value` of one value."""
    store_elements_in_tracer(x, _value_for_one_element(value, x), ITEM)


def _indexing_key_has_ellipsis(key: Any) -> bool:
    return any(entry is Ellipsis for entry in (key if isinstance(key, tuple) else (key,)))
