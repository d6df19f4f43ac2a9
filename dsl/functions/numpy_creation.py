"""`np.array`, `np.zeros`, `np.r_`, ... as a traced function calls them, with NumPy's whole signatures."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any

import numpy as np

from ..core.errors import ShapeError, UnsupportedError
from ..trace.aliasing import whole_array_of_rows
from ..trace.dispatch import REFUSED, SPECIAL, LoopOperand
from ..trace.items import convert_operand_for_element
from ..trace.numpy_fallback import numpy_result_as_traced_constant
from ..trace.operands import is_traced, new_traced_array, to_traced_array, trace_of_operands
from ..trace.trace import current_trace
from ..trace.tracer import Tracer
from . import creation, manipulation, views
from .elementwise import select_choices_in_one_dtype
from .joining import concatenate, stack
from .sequences import array_of_nested_list
from .views import atleast_1d, cast, contiguous, copy, in_order, ravel, reshape


def _traced_array_function(
    object: Any,
    dtype: Any = None,
    *,
    copy: bool | None = True,
    order: Any = "K",
    subok: bool = False,
    ndmin: int = 0,
    ndmax: int = 0,
    like: Any = None,
) -> Tracer:
    object, copy = _nested_sequences_as_lists(object), _copy_option_as_bool(copy)
    found = array_of_nested_list(object, dtype)
    if copy is False:
        _refuse_np_array_copy(object, found)
    if found.ndim < ndmin:
        found = reshape(found, (1,) * (ndmin - found.ndim) + found.shape)
    if copy or not _np_array_needs_no_copy(object):
        return views.copy(found, order)
    return contiguous(found, order)


def _copy_option_as_bool(copy: Any) -> bool | None:
    """NumPy's own names for copy=True, False and None, which code for many array libraries passes."""
    return {"ALWAYS": True, "NEVER": False, "IF_NEEDED": None}[copy.name] if isinstance(copy, Enum) else copy


def _nested_sequences_as_lists(x: Any) -> Any:
    """Nested sequences that hold traced values, as lists; what stands for an array, as that array."""
    if type(x) in SPECIAL:
        return to_traced_array(x)
    if whole_array_of_rows(x) is not None or isinstance(x, LoopOperand):
        return x
    if isinstance(x, (list, tuple)):
        return [_nested_sequences_as_lists(i) for i in x] if is_traced(x) else x
    return list(x) if isinstance(x, range) else x


def traced_asarray(
    a: Any, dtype: Any = None, order: Any = None, *, device: Any = None, copy: bool | None = None, like: Any = None
) -> Tracer:
    """`np.asarray` of anything, traced."""
    a, copy = _nested_sequences_as_lists(a), _copy_option_as_bool(copy)
    found = array_of_nested_list(a, dtype)
    same = _np_array_needs_no_copy(a) and a._value.number == found._value.number
    if copy is False:
        _refuse_np_array_copy(a, found)
    if copy or not same:
        return Tracer(found._trace, found._value, layout=in_order(order, found))
    x = to_traced_array(a)
    if getattr(x._step, "flat", False):  # which is made an array: a view of what is contiguous
        x = ravel(x._parent)
    return contiguous(x, order)


def _refuse_np_array_copy(given: Any, array: Tracer) -> None:
    """Raises ShapeError where copy=False is asked for, and what was given has to be converted."""
    if not (_np_array_needs_no_copy(given) or type(given) is np.ndarray) or given.dtype != array.dtype:
        raise ShapeError("unable to avoid a copy while creating an array as requested; write copy=None")


def _np_array_needs_no_copy(x: Any) -> bool:
    """Whether it is a traced array that NumPy need not copy, unlike a scalar."""
    return isinstance(x, Tracer) and not isinstance(x, np.generic)


def _traced_ascontiguousarray(a: Any, dtype: Any = None, *, like: Any = None) -> Tracer:
    found: Tracer = atleast_1d(traced_asarray(a, dtype, "C"))
    return found


def _traced_asfortranarray(a: Any, dtype: Any = None, *, like: Any = None) -> Tracer:
    found: Tracer = atleast_1d(traced_asarray(a, dtype, "F"))
    return found


def _traced_require(a: Any, dtype: Any = None, requirements: Any = None, *, like: Any = None) -> Tracer:
    asked = {str(r).upper()[0] for r in ([requirements] if isinstance(requirements, str) else requirements or ())}
    if asked & {"C", "F"} == {"C", "F"}:
        raise ShapeError("Cannot specify both 'C' and 'F' order")
    found = traced_asarray(a, dtype, "F" if "F" in asked else "C" if "C" in asked else None)
    return copy(found) if "O" in asked and found._parent is not None else found


def _traced_copy_function(a: Any, order: Any = "K", subok: bool = False) -> Tracer:
    return copy(array_of_nested_list(_nested_sequences_as_lists(a)), order)


def _traced_fromiter(iter: Iterable[Any], dtype: Any, count: int = -1, *, like: Any = None) -> Tracer:
    items = [x for _, x in zip(range(count), iter)] if count >= 0 else list(iter)  # noqa: B905
    if len(items) < count:
        raise ShapeError(f"iterator too short: Expected {count} but iterator had only {len(items)} items.")
    found = array_of_nested_list(items, dtype) if items else creation.zeros((0,), dtype)
    if found.ndim > 1 and (found.dtype != np.bool_ or found.size != len(items)):  # whose truth NumPy takes
        raise ShapeError("setting an array element with a sequence: np.fromiter takes numbers; write np.stack")
    return ravel(found) if found.ndim > 1 else found


def _filled_array_function(make: Callable[..., Tracer]) -> Callable[..., Tracer]:
    def create_filled_array(
        shape: Any, dtype: Any = None, order: Any = "C", *, device: Any = None, like: Any = None
    ) -> Tracer:
        return make(shape, dtype, order=order)

    return create_filled_array


def _traced_full(
    shape: Any, fill_value: Any, dtype: Any = None, order: Any = "C", *, device: Any = None, like: Any = None
) -> Tracer:
    value = array_of_nested_list(fill_value) if isinstance(fill_value, (list, tuple)) else fill_value
    return creation.full(shape, value, dtype, order=order)


def _filled_array_like_function(make: Callable[..., Tracer]) -> Callable[..., Tracer]:
    def create_filled_array_like(
        a: Any, dtype: Any = None, order: Any = "K", subok: bool = True, shape: Any = None, *, device: Any = None
    ) -> Tracer:
        return make(array_of_nested_list(a), dtype, order, shape=shape)

    return create_filled_array_like


def _traced_full_like(
    a: Any,
    fill_value: Any,
    dtype: Any = None,
    order: Any = "K",
    subok: bool = True,
    shape: Any = None,
    *,
    device: Any = None,
) -> Tracer:
    return creation.full_like(array_of_nested_list(a), fill_value, dtype, order, shape=shape)


def _traced_arange(*args: Any, **options: Any) -> Tracer:
    named = [options.pop(name, None) for name in ("start", "stop", "step")]
    start, stop, step = (*args[:3], *named[len(args[:3]) :])
    dtype = options.pop("dtype", args[3] if len(args) > 3 else None)
    if start is None or (stop is None and len(args) == 0):
        start, stop = (0 if start is None else start), stop
    return creation.arange(start, stop, 1 if step is None else step, dtype=dtype)


def _traced_linspace(start: Any, stop: Any, num: Any = 50, *args: Any, **options: Any) -> Any:
    options.pop("device", None)
    start, stop = (array_of_nested_list(x) if isinstance(x, (list, tuple)) else x for x in (start, stop))
    return creation.linspace(start, stop, num, *args, **options)


def _traced_eye(
    N: Any, M: Any = None, k: Any = 0, dtype: Any = float, order: Any = "C", *, device: Any = None, like: Any = None
) -> Tracer:
    found = creation.eye(N, M, k=k, dtype=dtype)
    found._layout = in_order(order or "C")
    return found


def _traced_isscalar(element: Any) -> bool:
    if isinstance(element, Tracer):
        return not isinstance(element, np.ndarray)
    return bool(np.isscalar(element))


def _np_shape_of_nested(a: Any) -> tuple[int, ...]:
    return array_of_nested_list(a).shape if is_traced(a) else np.shape(a)


def _traced_ndim(a: Any) -> int:
    return len(_np_shape_of_nested(a))


def _traced_size(a: Any, axis: Any = None) -> int:
    found = array_of_nested_list(a)
    return found.size if axis is None else found.shape[axis]


def _open_or_dense_grid_function(dense: bool) -> Callable[[Any], Any]:
    """`np.mgrid[...]` and `np.ogrid[...]`."""

    def grid_of_key(key: Any) -> Any:
        if not isinstance(key, (tuple, list)):
            return _mgrid_slice_range(key)
        axes = [_mgrid_slice_range(k) for k in key]
        dtype = np.result_type(*(a.dtype for a in axes))
        grids = creation.meshgrid(*(cast(a, dtype, copy=False) for a in axes), sparse=not dense, indexing="ij")
        return stack(grids) if dense else tuple(grids)

    return grid_of_key


def _mgrid_slice_range(key: slice) -> Tracer:
    start = 0 if key.start is None else key.start
    step = 1 if key.step is None else key.step
    if isinstance(step, complex):  # so many points, the last one included
        return creation.linspace(start, key.stop, int(abs(step)))  # type: ignore[no-any-return]
    return creation.arange(start, key.stop, step)


def _concatenate_row_key(key: Any) -> Any:
    """`np.r_[...]` of arrays, numbers and ranges, along the first axis."""
    entries = key if isinstance(key, tuple) else (key,)
    if not is_traced(entries) or any(isinstance(e, str) for e in entries):
        return numpy_result_as_traced_constant(np.r_[key])
    parts = [_mgrid_slice_range(e) if isinstance(e, slice) else e for e in entries]
    return concatenate([atleast_1d(p) for p in _mgrid_entries_of_one_dtype(parts)])


def _mgrid_entries_of_one_dtype(entries: list[Any]) -> list[Tracer]:
    """Arrays, in the dtype that they have together: a Python number among them takes it, or does not fit."""
    parts, dtype = select_choices_in_one_dtype(
        *(array_of_nested_list(e) if isinstance(e, (list, tuple)) else e for e in entries)
    )
    trace = trace_of_operands(*parts)
    return [
        p if type(p) is Tracer else new_traced_array(convert_operand_for_element(trace, e, dtype))
        for p, e in zip(parts, entries, strict=True)
    ]


def _concatenate_column_key(key: Any) -> Any:
    """`np.c_[...]`: arrays as columns."""
    entries = key if isinstance(key, tuple) else (key,)
    if not is_traced(entries):
        return numpy_result_as_traced_constant(np.c_[key])
    parts = _mgrid_entries_of_one_dtype([_mgrid_slice_range(e) if isinstance(e, slice) else e for e in entries])
    return concatenate([reshape(p, (p.size, 1)) if p.ndim < 2 else p for p in parts], -1)


def _numpy_class_that_needs_values(kind: type) -> Callable[..., Any]:
    """A class of NumPy's that looks at values: where a trace may be split it does."""

    def refuse_numpy_class_on_tracers(*args: Any, **options: Any) -> Any:
        trace = current_trace()
        if trace is not None and trace.split is None and is_traced([*args, *options.values()]):
            raise UnsupportedError(f"np.{kind.__name__} cannot be traced: {REFUSED[kind]}")
        return kind(*args, **options)

    return refuse_numpy_class_on_tracers


def traced_ndenumerate(arr: Any) -> Any:
    """Indices and elements, which are read one by one."""
    if not is_traced([arr]):
        return np.ndenumerate(arr)
    array = to_traced_array(arr)
    return ((index, array[index]) for index in np.ndindex(array.shape))


TRACED_CREATION: dict[Any, Callable[..., Any]] = {
    np.array: _traced_array_function,
    np.asarray: traced_asarray,
    np.asanyarray: traced_asarray,
    np.ascontiguousarray: _traced_ascontiguousarray,
    np.asfortranarray: _traced_asfortranarray,
    np.require: _traced_require,
    np.copy: _traced_copy_function,
    np.fromiter: _traced_fromiter,
    np.zeros: _filled_array_function(creation.zeros),
    np.ones: _filled_array_function(creation.ones),
    np.empty: _filled_array_function(creation.empty),
    np.full: _traced_full,
    np.zeros_like: _filled_array_like_function(creation.zeros_like),
    np.ones_like: _filled_array_like_function(creation.ones_like),
    np.empty_like: _filled_array_like_function(creation.empty_like),
    np.full_like: _traced_full_like,
    np.arange: _traced_arange,
    np.linspace: _traced_linspace,
    np.eye: _traced_eye,
    np.identity: manipulation.identity,
    np.indices: manipulation.indices,
    np.tri: manipulation.tri,
    np.fromfunction: manipulation.fromfunction,
    np.isscalar: _traced_isscalar,
    np.shape: _np_shape_of_nested,
    np.ndim: _traced_ndim,
    np.size: _traced_size,
}
# objects and classes of NumPy's that work alike
TRACED_OBJECTS: dict[Any, Callable[..., Any]] = {
    np.mgrid: _open_or_dense_grid_function(True),
    np.ogrid: _open_or_dense_grid_function(False),
    np.r_: _concatenate_row_key,
    np.c_: _concatenate_column_key,
    np.nditer: _numpy_class_that_needs_values(np.nditer),
    np.ndenumerate: traced_ndenumerate,
}
