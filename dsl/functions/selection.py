"""Elements chosen by index, by mask and by condition, and put where an index says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core.errors import DTypeError, IndexingError, ShapeError, UnsupportedError
from ..trace.aliasing import assign_to_tracer, store_elements_in_tracer
from ..trace.dispatch import call_function, implements
from ..trace.failures import is_failure_awaited
from ..trace.items import AS_ARRAY, convert_known_operand, convert_operand_for_element, wrap_integer_operand_to_dtype
from ..trace.operands import (
    is_traced,
    loop_operations,
    new_traced_array,
    new_traced_result,
    to_axis_of_operand,
    to_native_axis_of_operand,
    to_traced_array,
    to_traced_shape,
)
from ..trace.tracer import SCALAR, TracedNumber, Tracer
from .elementwise import apply
from .elementwise import select_choices_in_one_dtype as common
from .gather import check_assigned_axis_not_empty, gather_elements_of_axes, index_in_range, indices_of_known_mask
from .host_calls import (
    assign_to_converted_numpy_out,
    fail_unless,
    host_call,
    host_call_of_one_result,
    require_out_to_convert,
)
from .indexing import getitem
from .views import broadcast_to, cast, ravel, reshape

# by index


@implements(np.take, method=True)
def take(a: Any, indices: Any, axis: int | None = None, out: Any = None, mode: str = "raise") -> Tracer:
    """`x[..., indices, ...]` along an axis, with indices that `mode` brings into range."""
    if mode not in ("raise", "wrap", "clip"):
        raise ShapeError(f"mode={mode!r} is none of 'raise', 'wrap' and 'clip'")
    x = to_traced_array(a)
    at = 0 if axis is None else to_native_axis_of_operand(axis, x.ndim)
    if axis is None or not x.ndim:
        x = ravel(x)
    n, head = x.shape[at], (slice(None),) * at
    if loop_operations() is not None and mode == "raise":
        return assign_to_converted_numpy_out(getitem(x, (*head, indices)), out)
    if type(indices) in (int, float, range) or (isinstance(indices, (list, tuple)) and not is_traced(indices)):
        numbers = convert_known_operand(list(indices) if type(indices) is range else indices, np.dtype(np.intp))
        shape = (*x.shape[:at], *numbers.shape, *x.shape[at + 1 :])
        require_out_to_convert(out, shape, x.dtype)
        chosen = getitem(x, (*head, _known_indices_brought_in_range(numbers.ravel().tolist(), n, mode)))
        return assign_to_converted_numpy_out(reshape(chosen, shape), out)
    if not isinstance(indices, np.ndarray):  # numbers, and lists of them, are converted as NumPy converts numbers
        indices = new_traced_result(convert_operand_for_element(x._trace, indices, np.dtype(np.intp), AS_ARRAY), x)
    index = to_traced_array(indices)
    if not np.can_cast(index.dtype, np.intp, "same_kind"):
        raise DTypeError(f"take needs integers as indices, not {index.dtype}; write indices.astype(np.int64)")
    shape = (*x.shape[:at], *index.shape, *x.shape[at + 1 :])
    index, checked = _traced_indices_in_range(index, n, mode), False
    if mode == "raise":
        index, checked = index_in_range(index, at, n, is_failure_awaited(x._trace))
    value = index._value
    value = x._trace.builder.reshape(value, (*index.shape, *(1,) * (x.ndim - at - 1)))
    rest = [i if i < at else i + index.ndim - 1 for i in range(x.ndim) if i != at]
    return assign_to_converted_numpy_out(
        new_traced_result(gather_elements_of_axes(x, [value], [at], rest, shape, checked), x), out
    )


def _traced_indices_in_range(index: Tracer, n: int, mode: str) -> Tracer:
    """Indices of an axis of length n, brought into range by `wrap` or `clip`."""
    if mode not in ("raise", "wrap", "clip"):
        raise ShapeError(f"clipmode must be one of 'clip', 'raise', or 'wrap' (got {mode!r})")
    wide = cast(index, np.int64, copy=False)
    if mode == "raise" or n == 0:
        return wide
    return apply("remainder", wide, n) if mode == "wrap" else apply("clip", wide, 0, n - 1)


def _known_indices_brought_in_range(numbers: Sequence[int], n: int, mode: str) -> list[int]:
    if mode == "wrap":
        return [i % n for i in numbers]
    if mode == "clip":
        return [min(max(i, 0), n - 1) for i in numbers]
    for i in numbers:
        if not -n <= i < n:
            raise IndexingError(f"index {i} is out of bounds for axis with size {n}")
    return [i % n for i in numbers]


def _array_and_indices_along_axis(x: Tracer, indices: Any, axis: int | None) -> tuple[Tracer, Tracer, int]:
    if axis is None:
        x, axis = ravel(x), 0
    at = to_axis_of_operand(axis, x.ndim)
    return x, _indices_along_axis(indices, x.ndim), at


def _indices_along_axis(indices: Any, ndim: int) -> Tracer:
    """Indices along an axis of an array of so many axes. Raises IndexingError, ShapeError."""
    index = to_traced_array(indices)
    if index.dtype.kind not in "iu":
        raise IndexingError(f"`indices` must be an integer array, not {index.dtype}")
    if index.ndim != ndim:
        raise ShapeError(f"indices of {index.ndim} axes do not fit an array of {ndim}")
    return index


@implements(np.take_along_axis)
def take_along_axis(arr: Any, indices: Any, axis: int | None = -1) -> Tracer:
    x, index, at = _array_and_indices_along_axis(to_traced_array(arr), indices, axis)
    rest = [s.shape[:at] + s.shape[at + 1 :] for s in (x, index)]
    shape = list(x._trace.builder.broadcast_shapes("take_along_axis", rest))
    shape.insert(at, index.shape[at])
    wide = broadcast_to(x, (*shape[:at], x.shape[at], *shape[at + 1 :]))
    others = [i for i in range(x.ndim) if i != at]
    index, checked = index_in_range(index, at, x.shape[at], is_failure_awaited(x._trace))
    return new_traced_array(gather_elements_of_axes(wide, [index._value], [at], others, tuple(shape), checked), x)


@implements(np.put_along_axis)
def put_along_axis(arr: Tracer, indices: Any, values: Any, axis: int | None) -> None:
    where = None if axis is None else to_axis_of_operand(axis, arr.ndim)
    index = _indices_along_axis(indices, 1 if axis is None else arr.ndim)
    check_assigned_axis_not_empty(arr, 0 not in index.shape)
    new = host_call_of_one_result(
        "put_along_axis",
        [arr, index, _assigned_values_in_dtype(values, arr)],
        arr.shape,
        dtypes=[arr.dtype],
        axis=where,
    )
    assign_to_tracer(arr, new)


@implements(np.put, method=True)
def put(a: Tracer, ind: Any, v: Any, mode: str = "raise") -> None:
    _require_traced_target(a, "put")
    if np.ndim(ind) == 0 and not isinstance(ind, Tracer):
        ind = new_traced_result(convert_operand_for_element(a._trace, ind, np.dtype(np.intp)), a)
    values = _assigned_values_in_dtype(v, a)
    known = None if is_traced(ind) else np.ravel(ind)
    places: Any = to_traced_array(ind) if known is None else known
    check_assigned_axis_not_empty(a, places.size > 0)
    if mode == "raise" and values.size and places.size and places.dtype.kind in "iu":
        inside: Any = ((places >= -a.size) & (places < a.size)).all()
        if known is None:  # NumPy writes what comes before one that is outside
            fail_unless(inside, IndexError, f"an index is out of bounds for axis 0 with size {a.size}")
        if known is None or inside:
            a.flat[ravel(places) if known is None else known.tolist()] = values
            return
    assign_to_tracer(a, host_call_of_one_result("put", [a, ind, values], a.shape, dtypes=[a.dtype], mode=mode))


@implements(np.place)
def place(arr: Any, mask: Any, vals: Any) -> None:
    """One value after the other, and again from the first, where the mask holds."""
    _require_traced_target(arr, "place")
    if to_traced_array(mask).size != arr.size:
        raise ShapeError("place: mask and data must be the same size")
    values = ravel(_inserted_values_in_dtype(vals, arr, "place"))
    assign_to_tracer(arr, host_call_of_one_result("place", [arr, mask, values], arr.shape, dtypes=[arr.dtype]))


@implements(np.choose, method=True)
def choose(a: Any, choices: Any, out: Any = None, mode: str = "raise") -> Tracer:
    index = to_traced_array(a)
    parts, dtype = common(*choices)
    every = [cast(to_traced_array(c), dtype, copy=False) for c in parts]
    shape = index._trace.builder.broadcast_shapes("choose", [index.shape, *(c.shape for c in every)])
    result = host_call_of_one_result("choose", [index, *every], shape, dtypes=[dtype], mode=mode)
    return result if out is None else assign_to_tracer(out, result, "unsafe")


@implements(np.unravel_index)
def unravel_index(indices: Any, shape: Any, order: str = "C") -> tuple[Tracer, ...]:
    index = to_traced_array(indices)
    lengths = to_traced_shape(shape)
    dtypes = [np.intp] * len(lengths)
    return tuple(host_call("unravel_index", [index], [index.shape] * len(lengths), dtypes, shape=lengths, order=order))


@implements(np.ravel_multi_index)
def ravel_multi_index(multi_index: Any, dims: Any, mode: Any = "raise", order: str = "C") -> Tracer:
    every = [to_traced_array(i) for i in multi_index]
    shape = every[0]._trace.builder.broadcast_shapes("ravel_multi_index", [i.shape for i in every])
    lengths = to_traced_shape(dims)
    modes = tuple(mode) if isinstance(mode, (tuple, list)) else mode
    return host_call_of_one_result(
        "ravel_multi_index", every, shape, dtypes=[np.intp], dims=lengths, mode=modes, order=order
    )


# by condition


@implements(method=True)
def nonzero(x: Tracer) -> Any:
    return call_function(np.nonzero, (x,), {})


@implements(np.compress)
def compress(condition: Any, a: Any, axis: int | None = None, out: Any = None) -> Tracer:
    """What lies where the condition holds. Raises UnsupportedError where the call decides it."""
    mask = cast(to_traced_array(condition), np.bool_, copy=False)
    if mask.ndim != 1:
        raise ShapeError("condition must be a 1-d array")
    places = indices_of_known_mask(mask)
    if places is None:
        raise UnsupportedError(
            "np.compress with an array as condition gives a shape that depends on data; write np.where(condition, a, "
            "0), or decorate with @kg.kernel_graph(untraceable='split')"
        )
    (index,) = places
    return take(a, index.tolist() if type(index) is np.ndarray else index, axis, out)


@implements(method="compress")
def _compress_method(x: Tracer, condition: Any, axis: int | None = None, out: Any = None) -> Tracer:
    return compress(condition, x, axis, out)


@implements(np.select)
def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Tracer:
    """From the first choice whose condition holds, else the default."""
    if len(condlist) != len(choicelist):
        raise ShapeError("list of cases must be same length as list of conditions")
    if not condlist:
        raise ShapeError("select with an empty condition list is not possible")
    (*choices, default), wanted = common(*choicelist, default)
    for choice in choicelist:
        choice = choice._number if type(choice) is TracedNumber else choice
        if type(choice) in (int, float, complex) and not np.can_cast(np.asarray(choice).dtype, wanted, "same_kind"):
            raise DTypeError(f"select cannot cast the Python number {choice} to {wanted}; write {wanted}({choice})")
    conditions = [to_traced_array(c) for c in condlist]
    for i, condition in enumerate(conditions):
        if condition.dtype != np.bool_:
            raise DTypeError(f"invalid entry {i} in condlist: should be boolean ndarray, not {condition.dtype}")
    result: Any = _cast_wrapped_for_selection(default, wanted)
    for condition, choice in zip(reversed(conditions), reversed(choices), strict=True):
        result = apply("where", condition, _cast_wrapped_for_selection(choice, wanted), result)
    return result  # type: ignore[no-any-return]


def _cast_wrapped_for_selection(x: Any, dtype: np.dtype[Any]) -> Tracer:
    return cast(to_traced_array(wrap_integer_operand_to_dtype(x, dtype)), dtype, copy=False)


def _require_traced_target(x: Any, name: str) -> None:
    if not isinstance(x, Tracer) or x._owner == SCALAR:
        raise DTypeError(f"np.{name} changes its first argument, which must be an array")


def _assigned_values_in_dtype(x: Any, like: Tracer) -> Tracer:
    """What is assigned to elements of an array, in its dtype."""
    return new_traced_result(convert_operand_for_element(like._trace, x, like.dtype, AS_ARRAY), like)


def _inserted_values_in_dtype(x: Any, like: Tracer, name: str) -> Tracer:
    """What is put among an array's elements, for which an array must lose nothing; numbers and lists may."""
    if isinstance(x, np.ndarray) and not np.can_cast(x.dtype, like.dtype):
        raise DTypeError(f"{name} cannot cast {x.dtype} to {like.dtype} safely; write values.astype(a.dtype)")
    return _assigned_values_in_dtype(x, like)


@implements(np.piecewise)
def piecewise(x: Any, condlist: Any, funclist: Sequence[Any], *args: Any, **kw: Any) -> Tracer:
    """Each function on all of `x`, and of that what its condition chooses; the functions must be elementwise."""
    a = to_traced_array(x)
    if isinstance(condlist, (Tracer, np.ndarray)):
        conditions = [condlist] if a.ndim == 0 or condlist.ndim == 1 else list(condlist)
    else:
        nested = a.ndim == 0 or isinstance(condlist[0], (list, np.ndarray, Tracer))
        conditions = list(condlist) if isinstance(condlist, (list, tuple)) and nested else [condlist]
    masks = [cast(to_traced_array(c), np.bool_, copy=False) for c in conditions]
    for mask in masks:
        if mask.shape != a.shape:
            raise ShapeError(f"a condition of shape {mask.shape} does not fit an array of shape {a.shape}")
    if len(funclist) == len(masks) + 1:
        chosen = masks[0]
        for mask in masks[1:]:
            chosen = apply("logical_or", chosen, mask)
        masks.append(apply("logical_not", chosen))
    if len(funclist) != len(masks):
        raise ShapeError(
            f"with {len(masks)} condition(s), either {len(masks)} or {len(masks) + 1} functions are expected"
        )
    result = _cast_wrapped_for_selection(np.zeros((), a.dtype)[()], a.dtype)
    result = broadcast_to(result, a.shape)
    for mask, function in zip(masks, funclist, strict=True):
        value = _call_piecewise_function(function, a, *args, **kw) if callable(function) else function
        new = _assigned_values_in_dtype(value, a)
        result = apply("where", mask, reshape(new, ()) if new.size == 1 else new, result)
    return result


def _call_piecewise_function(function: Callable[..., Any], x: Tracer, *args: Any, **kw: Any) -> Any:
    """function(x, ...). Raises UnsupportedError where an element of the result needs more than its own element of x."""
    builder = x._trace.builder
    start = len(builder.nodes)
    copied = builder.add("cast", (x._value.number,), x._value.type, (("copy", start),))  # a node that is nothing else
    result = function(new_traced_result(copied, x), *args, **kw)
    if not isinstance(result, Tracer):
        return result
    made = {start}  # of x
    for number in range(start + 1, len(builder.nodes)):
        if not made.isdisjoint(builder.nodes[number].args):
            made.add(number)
    todo = [result._value.number]
    while todo:
        number = todo.pop()
        if number in made and number != start:
            made.discard(number)
            node = builder.nodes[number]
            if node.kind != "map":
                raise UnsupportedError(
                    "np.piecewise with a function that is not elementwise cannot be traced, since it would see only "
                    "the chosen elements; write np.where(condition, value, other)"
                )
            todo.extend(node.args)
    return result


@implements(np.putmask)
def putmask(a: Tracer, mask: Any, values: Any) -> None:
    _require_traced_target(a, "putmask")
    condition = apply("not_equal", np.asarray(mask) if type(mask) is int else mask, False)
    if condition.size != a.size:
        raise ShapeError(f"putmask: a mask of shape {condition.shape} does not fit an array of shape {a.shape}")
    condition = reshape(condition, a.shape)
    value = _inserted_values_in_dtype(values, a, "putmask")
    if not value.size:
        assign_to_tracer(a, a)  # which NumPy refuses of read-only memory too
        return
    if value.size != 1 and value.shape != a.shape:  # they are repeated
        place = apply("remainder", new_traced_result(a._trace.builder.index((a.size,), 0), a), value.size)
        value = new_traced_result(gather_elements_of_axes(ravel(value), [place._value], [0], [], (a.size,), False), a)
    wide = reshape(value, () if value.size == 1 else a.shape)
    store_elements_in_tracer(a, apply("where", condition, _cast_wrapped_for_selection(wide, a.dtype), a))


@implements(np.fill_diagonal)
def fill_diagonal(a: Tracer, val: Any, wrap: bool = False) -> None:
    if to_traced_array(a).ndim < 2:
        raise ShapeError("array must be at least 2-d")
    value = _assigned_values_in_dtype(val, a)
    if value.size != 1 or wrap or a.ndim != 2:
        text = "np.fill_diagonal is supported of matrices with one value; assign with np.where instead"
        raise UnsupportedError(text)
    builder = a._trace.builder
    on = apply(
        "equal", new_traced_result(builder.index(a.shape, 0), a), new_traced_result(builder.index(a.shape, 1), a)
    )
    store_elements_in_tracer(a, apply("where", on, _cast_wrapped_for_selection(reshape(value, ()), a.dtype), a))
