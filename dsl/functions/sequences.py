"""Lists and tuples that hold traced values, nested too, as the arrays that `np.array` makes of them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import Any

import numpy as np

from ..core.errors import ShapeError
from ..core.object_model import is_proxy_class
from ..core.spec import checked_dtype
from ..trace.aliasing import whole_array_of_rows
from ..trace.dispatch import SPECIAL, TO_ARRAY
from ..trace.items import AS_ARRAY, ITEM, Way, convert_known_operand, convert_operand_for_element
from ..trace.operands import is_traced, loop_operations, new_traced_array, to_traced_array, trace_of_operands
from ..trace.tracer import TracedNumber, Tracer
from .joining import stack
from .views import cast


def array_of_nested_list(x: Any, dtype: Any = None) -> Tracer:
    """A traced array of a nested list of anything, as np.array makes it; a traced array itself. Raises ShapeError."""
    if (loop := loop_operations()) is not None:
        found = loop.to_array(x)
        return found if dtype is None else cast(found, dtype, copy=False)
    parts = _np_array_parts_of_list(x, None if dtype is None else checked_dtype(dtype), AS_ARRAY)
    return (
        parts
        if isinstance(parts, Tracer)
        else _stack_nested_parts(parts, reduce(np.promote_types, _dtypes_of_nested_elements(parts)))
    )


def _stack_nested_parts(parts: Any, dtype: np.dtype[Any]) -> Tracer:
    if isinstance(parts, Tracer):
        return parts
    rows = [_stack_nested_parts(p, dtype) for p in parts]
    if len({r.shape for r in rows}) > 1:
        shapes = ", ".join(str(r.shape) for r in rows)
        raise ShapeError(f"a list of values of shapes {shapes} is no array; give them one shape, or pad them")
    return stack(rows, dtype=dtype)


def _dtypes_of_nested_elements(parts: Any) -> Iterator[np.dtype[Any]]:
    """Those of all elements in order: NumPy promotes the first two, then what they give and the third."""
    if isinstance(parts, Tracer):
        yield parts.dtype
    else:
        for part in parts:
            yield from _dtypes_of_nested_elements(part)


def _np_array_parts_of_list(x: Any, dtype: np.dtype[Any] | None, way: Way) -> Any:
    """A nested list with traced arrays for what is no list, or is not traced."""
    if (rows := whole_array_of_rows(x)) is not None:
        return new_traced_array(rows._value if dtype is None else cast(rows, dtype)._value)
    if isinstance(x, (list, tuple)) and is_traced(x):
        return [_np_array_parts_of_list(i, dtype, ITEM) for i in x]
    if isinstance(x, Tracer) or type(x) is TracedNumber or type(x) in SPECIAL:
        if dtype is not None and (type(x) is TracedNumber or (way is ITEM and not x.shape)):
            return new_traced_array(convert_operand_for_element(trace_of_operands(x), x, dtype, way))
        found = to_traced_array(x)
        return found if dtype is None else cast(found, dtype, copy=False)
    if isinstance(x, (int, float, complex, np.number, np.bool_)):
        if dtype is None:
            return to_traced_array(x)  # in a kernel's text, not in memory
        return to_traced_array(convert_known_operand(x, dtype, way)[()])
    if type(x) is not np.ndarray and type(found := _np_array_of_user_object(x)) is Tracer:
        return _np_array_parts_of_list(found, dtype, way)
    array = np.asarray(x) if dtype is None else convert_known_operand(x, dtype)
    checked_dtype(array.dtype)
    trace = trace_of_operands()
    return Tracer(trace, trace.capture_constant(array))


def _np_array_of_user_object(x: Any) -> Any:
    """What the `__array__` of an object of the user's gives, if it is traced."""
    kind = type(x)
    return x.__array__() if is_proxy_class(kind) and hasattr(kind, "__array__") else None


TO_ARRAY[list] = array_of_nested_list
