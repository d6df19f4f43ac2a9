"""Anything that stands for an array in an expression (traced or not) as nodes of the trace in progress."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...compiler.graph.builder import Scalar
from ...compiler.graph.graph import Value
from ..core.checks import checked_dtype, describe, is_plain_array, refused_kind
from ..core.errors import DTypeError, TraceError
from ..core.readable import native
from .dispatch import SPECIAL, TO_ARRAY
from .trace import Trace, current
from .tracer import CAPTURED, SCALAR, TracedNumber, Tracer, check_alive


def trace_of(*args: Any) -> Trace:
    """The trace that the traced values among `args` belong to, else the trace in progress."""
    for arg in args:
        if isinstance(arg, Tracer) or type(arg) is TracedNumber:
            return check_alive(arg)
    trace = current()
    if trace is None:
        raise TraceError("there is no trace in progress")
    return trace


def is_traced(x: Any) -> bool:
    """Whether it is, or is a nested list that holds, a traced value."""
    if isinstance(x, Tracer) or type(x) is TracedNumber or type(x) in SPECIAL:
        return True
    return isinstance(x, (list, tuple)) and any(is_traced(i) for i in x)


def holds_array(x: Any) -> bool:
    """Whether it is a nested list that holds a traced array."""
    return isinstance(x, (list, tuple)) and any(
        isinstance(i, Tracer) or type(i) in SPECIAL or holds_array(i) for i in x
    )


def operand(x: Any) -> Value | Scalar | np.generic:
    """What the builder takes: a node, or a number that is known. Arrays and lists are captured; lists that hold traced
    arrays are joined.

    Raises DTypeError for what cannot be an array of numbers."""
    if type(x) is Tracer:
        check_alive(x)
        return x._value
    if type(x) is TracedNumber:
        check_alive(x)
        if isinstance(x._number, (bool, complex)):  # kernels take real numbers only
            raise x._need()
        return x._trace.scalar(x._name, x._number, x._sources)
    if isinstance(x, (bool, int, float, complex, np.generic)) and not isinstance(x, (np.str_, np.bytes_, np.void)):
        if type(x) in _WEAK:
            return x
        # a subclass of Python's, an IntEnum say, gets a dtype as arrays do
        number: np.generic = x if isinstance(x, np.generic) else np.asarray(x)[()]  # type: ignore[assignment]
        checked_dtype(number.dtype)
        return number
    if type(x) in SPECIAL:
        return SPECIAL[type(x)][3](x)._value  # type: ignore[no-any-return]
    if holds_array(x):
        return array_of(x)._value
    array = host_array(x)
    return trace_of().capture(array)


_WEAK = frozenset({bool, int, float, complex})  # Python's own numbers, which take the dtype of what they meet


def host_array(x: Any) -> np.ndarray[Any, Any]:
    """Anything array-like that is not traced as a NumPy array of a supported dtype, in any byte order."""
    if isinstance(x, str) or x is None or isinstance(x, (dict, set, bytes)) or callable(x):
        raise DTypeError(f"{describe(x)} is no array of numbers; pass numbers or arrays")
    if isinstance(x, np.ndarray) and not is_plain_array(type(x)):
        raise refused_kind(type(x))
    from ..interop.host_import import values_of

    array = np.asarray(values_of(x))
    checked_dtype(native(array.dtype))
    return array


def value_of(x: Any) -> Value:
    """The operand as a node; a number that is known becomes a 0-d constant of its own dtype."""
    found = operand(x)
    return found if isinstance(found, Value) else trace_of().builder.value(found)


def array_of(x: Any) -> Tracer:
    """Anything array-like as a traced array (0-d for numbers, with NumPy's default dtype)."""
    if isinstance(x, Tracer):
        check_alive(x)
        return x
    if type(x) in SPECIAL:
        return SPECIAL[type(x)][3](x)  # type: ignore[no-any-return]
    if holds_array(x):
        return TO_ARRAY[list](x)  # type: ignore[no-any-return]
    trace = trace_of(x)
    if type(x) is TracedNumber and type(x._number) is int and not -(1 << 63) <= x._number < 1 << 63:
        raise x._need()  # NumPy makes an array of uint64 of it, or of objects
    value = value_of(x)
    if value.weak is not None:
        value = Value(value.number, value.type)
    return Tracer(trace, value, CAPTURED)


def fresh(value: Value, *args: Any) -> Tracer:
    """What an operation on `args` gives: a new array, or, of shape (), what is a NumPy scalar and never changes."""
    return Tracer(trace_of(*args), value, None if value.shape else SCALAR)


def fresh_array(value: Value, *args: Any) -> Tracer:
    """A new array, of shape () too."""
    return Tracer(trace_of(*args), value)


def length(trace: Trace, n: int) -> TracedNumber:
    """A number that comes from a shape, as an argument of the kernels: their text serves all sizes."""
    return TracedNumber(trace, trace.host.constant(n), n, frozenset())
