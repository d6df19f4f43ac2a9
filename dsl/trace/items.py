"""Python numbers, and lists of them, as NumPy converts them: to an array's elements, or among arrays of a dtype."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ...compiler.core.types import BOOL, kind_of
from ...compiler.graph.graph import Value
from ..core.errors import ConversionError, numpys
from .operands import is_traced, operand
from .trace import Trace
from .tracer import TracedNumber

_NUMBERS = (bool, int, float, complex)


def as_element(trace: Trace, value: Any, dtype: np.dtype[Any]) -> Value:
    """The value as `x[...] = value` converts it for an array of `dtype`. A number that it cannot hold is refused, which
    NaN is by integers; arrays are cast.

    Raises ConversionError, NumberError, DTypeError."""
    builder, kind = trace.builder, type(value)
    if kind is TracedNumber:
        _check(trace, value, dtype)
    elif dtype == BOOL and kind is int:
        return builder.const(np.bool_(value))
    elif dtype.kind == "i" and isinstance(value, np.integer) and not is_traced(value):
        return builder.const(converted(int(value), np.dtype(np.int64)).astype(dtype)[()])
    elif kind in (bool, float, complex) or (kind in (list, tuple) and not is_traced(value)):
        array = converted(value, dtype)
        return trace.capture_constant(array) if array.ndim else builder.const(array[()])
    found = operand(value)
    return builder.cast(found if isinstance(found, Value) else builder.value(found, dtype), dtype)


def converted(value: Any, dtype: np.dtype[Any]) -> Any:
    """np.array(value, dtype), with errors of ours."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return np.array(value, dtype)
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(error, ValueError) and "NaN" in str(error):
            raise ConversionError(
                f"{error}; no {dtype} stands for it, write np.nan_to_num(x), or a float dtype"
            ) from None
        raise numpys(error, f"{dtype}: ") from None


def _check(trace: Trace, number: TracedNumber, dtype: np.dtype[Any]) -> None:
    """A float of the call that goes to integers must fit at every call; of those that do not, the value is known."""
    if type(number._number) is not float or kind_of(dtype) not in "iu":
        return
    info = np.iinfo(dtype)
    low, high = int(info.min) - 1, int(info.max) + 1
    if not low < number._number < high:
        raise number._need()
    trace.checks.append(f"{low} < {number._name} < {high}")


def wrapped(value: Any, dtype: np.dtype[Any]) -> Any:
    """A Python int among arrays of `dtype` where NumPy makes an array of it first: modulo the integers' range."""
    if type(value) is not int or dtype == BOOL or kind_of(dtype) not in "iu":
        return value
    return converted(value, np.dtype(np.int64 if value < 1 << 63 else np.uint64)).astype(dtype)[()]
