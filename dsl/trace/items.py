"""Python numbers, NumPy's scalars, and lists of them, as NumPy converts them: to an array's elements, or among arrays
of a dtype.

What NumPy does with a value that its dtype cannot hold depends on what the value is and on the way in which it is
assigned; arrays, of no axis too, are cast in each way.

| way      | is that of                                  | a Python number is | a NumPy scalar is          | a list   |
|----------|---------------------------------------------|--------------------|----------------------------|----------|
| ITEM     | x[i:j] = v, fill, initial=, a list's items  | checked            | checked by signed integers | by items |
| AS_ARRAY | np.array(v, dtype), x[[i]] = v, put, insert | checked            | cast                       | by items |
| COPYTO   | np.full, np.copyto                          | an int is checked  | cast                       | cast     |
| CAST     | x.real = v                                  | cast               | cast                       | cast     |

Values that are known go through NumPy itself; of those of the call a check is made at each call. A NumPy scalar that
is computed in the trace is cast: no kernel can raise.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...compiler.core.types import BOOL, dtype_kind
from ...compiler.graph.graph import Value
from ..core.errors import ConversionError, IndexingError, numpy_error_as_ours
from ..core.spec import checked_dtype
from .concrete_values import constant_value_of_traced_node
from .dispatch import TO_ARRAY
from .operands import is_traced, to_graph_operand, to_traced_array
from .trace import Trace
from .tracer import SCALAR, TracedNumber, Tracer


def key_of_every_axis(entries: Sequence[Any], ndim: int) -> list[Any]:
    """A key with an entry for each axis: whole slices for what an ellipsis stands for, or what is left out. Raises
    IndexingError."""
    used = sum(entry is not None and entry is not Ellipsis for entry in entries)
    if used > ndim:
        raise IndexingError(f"too many indices: the array has {ndim} axes, but {used} were indexed")
    dots = [i for i, entry in enumerate(entries) if entry is Ellipsis]
    if len(dots) > 1:
        raise IndexingError("an index can only have a single ellipsis ('...')")
    at = dots[0] if dots else len(entries)
    return [*entries[:at], *[slice(None)] * (ndim - used), *entries[at + 1 :]]


def _convert_operand_as_item(value: Any, dtype: np.dtype[Any]) -> Any:
    if isinstance(value, (list, tuple)):
        return np.array(value, dtype)
    found = np.empty((), dtype)
    found[...] = value
    return found


def _convert_operand_as_array(value: Any, dtype: np.dtype[Any]) -> Any:
    return np.array(value, dtype)


def _convert_operand_by_cast(value: Any, dtype: np.dtype[Any]) -> Any:
    return np.asarray(value).astype(dtype)


def _convert_operand_as_copyto(value: Any, dtype: np.dtype[Any]) -> Any:
    found = np.empty(np.shape(value), dtype)
    np.copyto(found, value, casting="unsafe")
    return found


_KNOWN = (int, float, complex, np.number, np.bool_, list, tuple)
Way = Callable[[Any, np.dtype[Any]], Any]
ITEM, AS_ARRAY, COPYTO, CAST = (
    _convert_operand_as_item,
    _convert_operand_as_array,
    _convert_operand_as_copyto,
    _convert_operand_by_cast,
)


def convert_operand_for_element(trace: Trace, value: Any, dtype: np.dtype[Any], way: Way = ITEM) -> Value:
    """The value as that way of assignment converts it for an array of `dtype`.

    Raises ConversionError, NumberError, DTypeError where NumPy refuses it."""
    builder, kind = trace.builder, type(value)
    if way is CAST and (kind is TracedNumber or (kind is int and dtype != BOOL)):
        value = to_traced_array(wrap_integer_operand_to_dtype(value, dtype))
    elif kind is TracedNumber:
        _check_float_fits_integer(trace, value, dtype, way)
    elif isinstance(value, Tracer):
        if way is ITEM and value._owner == SCALAR:
            return _convert_traced_numpy_scalar(trace, value, dtype)
    elif isinstance(value, (list, tuple)) and is_traced(value):
        value = TO_ARRAY[list](value, dtype if way in (ITEM, AS_ARRAY) else None)
    elif isinstance(value, _KNOWN) and (kind is not int or dtype == BOOL):
        if isinstance(value, np.generic):
            checked_dtype(value.dtype)
        array = convert_known_operand(value, dtype, way)
        return trace.capture_constant(array) if array.ndim else builder.const(array[()])
    found = to_graph_operand(value)
    return builder.cast(found if isinstance(found, Value) else builder.value(found, dtype), dtype)


def convert_known_operand(value: Any, dtype: np.dtype[Any], way: Way = AS_ARRAY) -> Any:
    """What that way of assignment makes of a known value, with errors of ours."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return way(value, dtype)
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(error, ValueError) and "NaN" in str(error):
            raise ConversionError(
                f"{error}; no {dtype} stands for it, write np.nan_to_num(x), or a float dtype"
            ) from None
        raise numpy_error_as_ours(error, f"{dtype}: ") from None


def _check_float_fits_integer(trace: Trace, number: TracedNumber, dtype: np.dtype[Any], way: Way) -> None:
    """A float of the call that goes to integers must fit at every call; of those that do not, the value is known."""
    if type(number._number) is not float or dtype_kind(dtype) not in "iu" or way is COPYTO:
        return
    low, high = _range_ends_of_operand_integers(dtype)
    if not low < number._number < high:
        raise number._need_number_value()
    trace.checks.append(f"{low} < {number._name} < {high}")


def _convert_traced_numpy_scalar(trace: Trace, scalar: Tracer, dtype: np.dtype[Any]) -> Value:
    """A NumPy scalar as an item: signed integers check those of the call and those that are known."""
    value = scalar._value
    if dtype.kind == "i" and not np.can_cast(scalar.dtype, dtype):
        name = trace.host_scalar_name(value.number)
        if name is not None:
            low, high = _range_ends_of_operand_integers(dtype)
            trace.checks.append(f"{low} < {name}.real < {high}")
        elif (known := trace.values.get(value.number, constant_value_of_traced_node(trace, value))) is not None:
            return trace.builder.const(convert_known_operand(known[()], dtype, ITEM)[()])
    return trace.builder.cast(value, dtype)


def _range_ends_of_operand_integers(dtype: np.dtype[Any]) -> tuple[int, int]:
    """What lies just below and above an integer type's range."""
    info = np.iinfo(dtype)
    return int(info.min) - 1, int(info.max) + 1


def wrap_integer_operand_to_dtype(value: Any, dtype: np.dtype[Any]) -> Any:
    """A Python int among arrays of `dtype` where NumPy makes an array of it first: modulo the integers' range."""
    if type(value) is not int or dtype == BOOL or dtype_kind(dtype) not in "iu":
        return value
    return convert_known_operand(value, np.dtype(np.int64 if value < 1 << 63 else np.uint64)).astype(dtype)[()]
