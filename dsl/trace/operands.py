"""Operands as nodes of the trace in progress: what stands for an array, and the axes and shapes that users give."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any, Protocol

import numpy as np

from ...compiler.core.types import DType
from ...compiler.graph.builder import Scalar
from ...compiler.graph.graph import Value
from ..core import spec
from ..core.context import context
from ..core.errors import AxisError, DTypeError, DTypeRefusal, ShapeError, TraceError
from ..core.spec import (
    Host,
    array_subclass_spec_error,
    checked_dtype,
    describe_value,
    is_plain_array,
    native_byte_order,
    to_index,
)
from ..interop.labelled import labelled_kind
from .dispatch import SPECIAL, TO_ARRAY
from .trace import Trace, current_trace
from .tracer import CAPTURED, SCALAR, TracedNumber, Tracer, check_trace_alive


class LoopOperations(Protocol):
    """What NumPy's functions are made of in the body of a recorded loop, whose numbers and arrays stand where they have
    traced ones. Each operation writes statements there; elsewhere functions make nodes."""

    def lift(self, x: Any) -> Any:
        """An operand of any kind as one of the loop's; Python's own numbers as they are."""

    def to_array(self, x: Any) -> Tracer:
        """An operand of any kind as an array, or as a number of NumPy's."""

    def python_number(self, x: Any, kind: Any) -> Any:
        """What has been computed, as a number of one of Python's types."""

    def raise_where(self, condition: Any, kind: type[Exception], text: str) -> None:
        """The call raises an error where a condition holds."""

    def scalar(self, x: Any, dtype: DType) -> Tracer:
        """A number in the dtype of an array that it takes part in."""

    def apply(self, op: str, *args: Any, dtype: Any = None, **attrs: Any) -> Tracer:
        """Row `op` on broadcast operands."""

    def reduce(self, op: str, x: Tracer, axes: Sequence[int], dtype: DType | None) -> Tracer:
        """Row `op` along axes, which are gone then."""

    def host_call(self, function: str, arrays: Sequence[Any], options: dict[str, Any]) -> Tracer:
        """What a function of the host with one result gives, of few elements."""

    def check_product(self, x: Tracer, y: Tracer) -> None:
        """To be called before x @ y. Raises LoopNotRecordable where the loop had better not compute it."""

    def cast(self, x: Tracer, dtype: DType) -> Tracer:
        """With NumPy's C casts."""

    def view(self, x: Tracer, steps: Sequence[Any]) -> Tracer:
        """The same memory, looked at in other ways."""

    def copied(self, x: Tracer) -> Tracer:
        """In memory of its own."""

    def filled(self, shape: Any, value: Any, dtype: DType | None) -> Tracer:
        """A new array. value: of all its elements; None where nobody reads them."""

    def store(self, target: Any, value: Tracer, casting: str) -> Tracer:
        """`target[...] = value`, of the same shape; target."""

    def index_of_axis(self, index: Any, length: int, axis: int) -> int:
        """An index of an axis, from 0 on. What is out of range raises when it runs."""

    def slice_of_axis(self, entry: slice, length: int) -> tuple[int, int, int]:
        """Where a slice starts, its step, and how long it is."""

    def element(self, x: Tracer) -> Tracer:
        """The element of an array of no axis."""

    def store_elements(self, target: Tracer, value: Any) -> None:
        """`target[...] = value`, broadcast and converted."""

    def broadcast_shapes(self, shapes: Sequence[Any]) -> tuple[int, ...]:
        """What arrays of these shapes are broadcast to."""

    def is_in_range(self, index: Tracer, length: int) -> bool:
        """Whether indices are known to be in range, and not negative."""

    def check_indices(self, indices: Tracer, outside: Tracer, length: int, axis: int) -> None:
        """The call raises an IndexError for the first index that is outside."""

    def gather(self, x: Tracer, arrays: Any, axes: Any, rest: Any, shape: Any, own: range) -> Tracer:
        """The elements of x that arrays choose along axes. rest: which axes of the result the other ones are; own:
        those of the arrays."""

    def scatter(self, value: Any, *chosen: Any) -> None:
        """Assigns to what `gather` gives; of places that are the same the last value stays."""

    def assign_where(self, x: Tracer, keys: tuple[Any, ...], value: Any) -> bool:
        """`x[keys] = value`, where that is a number, and a mask the only key. Returns whether it was done."""


def loop_operations() -> LoopOperations | None:
    """Those of the loop whose body runs in this thread, if one is recorded."""
    return None if context.trace is None else context.trace.recorder


def trace_of_operands(*args: Any) -> Trace:
    """The trace that the traced values among `args` belong to, else the trace in progress."""
    for arg in args:
        if isinstance(arg, Tracer) or type(arg) is TracedNumber:
            return check_trace_alive(arg)
    trace = current_trace()
    if trace is None:
        raise TraceError("there is no trace in progress")
    return trace


def leaves_operator_to(other: Any) -> bool:
    """Whether NumPy's arrays leave one of Python's operators to the other operand: a sparse matrix, say. Arrays of
    other libraries, which come in anywhere, do not ask for it here."""
    if hasattr(other, "__array_ufunc__"):
        return other.__array_ufunc__ is None
    return getattr(other, "__array_priority__", 0) > 0 and not hasattr(other, "__dlpack__")


def is_traced(x: Any) -> bool:
    """Whether it is, or is a nested list that holds, a traced value."""
    if isinstance(x, Tracer) or type(x) is TracedNumber or type(x) in SPECIAL:
        return True
    return isinstance(x, (list, tuple)) and any(is_traced(i) for i in x)


def holds_traced_array(x: Any) -> bool:
    """Whether it is a nested list that holds a traced array."""
    return isinstance(x, (list, tuple)) and any(
        isinstance(i, Tracer) or type(i) in SPECIAL or holds_traced_array(i) for i in x
    )


def held_number(x: Any) -> Any:
    """What a number is held as: a node, or a number that is known or an example."""
    return x._held if type(x) is Tracer else x._number if type(x) is TracedNumber else x


def to_graph_operand(x: Any) -> Value | Scalar | np.generic:
    """What the builder takes: a node, or a number that is known. Arrays and lists are captured; lists that hold traced
    arrays are joined.

    Raises DTypeError for what cannot be an array of numbers."""
    if type(x) is Tracer:
        check_trace_alive(x)
        return x._value
    if type(x) is TracedNumber:
        check_trace_alive(x)
        if isinstance(x._number, (bool, complex)):  # kernels take real numbers only
            raise x._need_number_value()
        return x._trace.host_scalar_node(x._name, x._number, x._sources)
    if isinstance(x, (bool, int, float, complex, np.generic)) and not isinstance(x, (np.str_, np.bytes_, np.void)):
        if type(x) in _WEAK:
            return x
        # a subclass of Python's, an IntEnum say, gets a dtype as arrays do
        number: np.generic = x if isinstance(x, np.generic) else np.asarray(x)[()]  # type: ignore[assignment]
        checked_dtype(number.dtype)
        return number
    if type(x) in SPECIAL:
        return SPECIAL[type(x)][3](x)._value  # type: ignore[no-any-return]
    if holds_traced_array(x):
        return to_traced_array(x)._value
    array = host_array_of_operand(x)
    return trace_of_operands().capture_array(array)


_WEAK = frozenset({bool, int, float, complex})  # Python's own numbers, which take the dtype of what they meet


def host_array_of_operand(x: Any) -> Host:
    """Anything array-like and not traced as a NumPy array of a supported dtype. Any byte order will do."""
    if isinstance(x, str) or x is None or isinstance(x, (dict, set, bytes)) or callable(x):
        raise DTypeRefusal(f"{describe_value(x)} is no array of numbers; pass numbers or arrays")
    if isinstance(x, np.ndarray) and not is_plain_array(type(x)):
        raise array_subclass_spec_error(type(x))
    from ..interop.host_import import foreign_array_as_numpy

    kind = labelled_kind(type(x))
    if kind is not None:
        text = f"{describe_value(x)} has labels, which compiled code would lose; write {kind.array} for its values"
        raise TraceError(text)
    array = np.asarray(foreign_array_as_numpy(x))
    checked_dtype(native_byte_order(array.dtype))
    return array


def to_graph_value(x: Any) -> Value:
    """The operand as a node; a number that is known becomes a 0-d constant of its own dtype."""
    found = to_graph_operand(x)
    return found if isinstance(found, Value) else trace_of_operands().builder.value(found)


def to_traced_array(x: Any) -> Tracer:
    """Anything array-like as a traced array (0-d for numbers, with NumPy's default dtype)."""
    if (loop := loop_operations()) is not None:
        return loop.to_array(x)
    if isinstance(x, Tracer):
        check_trace_alive(x)
        return x
    if type(x) in SPECIAL:
        return SPECIAL[type(x)][3](x)  # type: ignore[no-any-return]
    if holds_traced_array(x):
        return TO_ARRAY[list](x)  # type: ignore[no-any-return]
    trace = trace_of_operands(x)
    if type(x) is TracedNumber and type(x._number) is int and not -(1 << 63) <= x._number < 1 << 63:
        raise x._need_number_value()  # NumPy makes an array of uint64 of it, or of objects
    value = to_graph_value(x)
    if value.weak is not None:
        value = Value(value.number, value.type)
    return Tracer(trace, value, CAPTURED)


def new_traced_result(value: Value, *args: Any) -> Tracer:
    """What an operation on `args` gives: a new array, or, of shape (), what is a NumPy scalar and never changes."""
    return Tracer(trace_of_operands(*args), value, None if value.shape else SCALAR)


def new_traced_array(value: Value, *args: Any) -> Tracer:
    """A new array, of shape () too."""
    return Tracer(trace_of_operands(*args), value)


def traced_length(trace: Trace, n: int) -> TracedNumber | int:
    """A number that comes from a shape, as an argument of the kernels: their text serves all sizes."""
    return n if trace.recorder is not None else TracedNumber(trace, trace.host_code.constant(n), n, frozenset())


Axes = int | Sequence[int] | None


def to_axis_of_operand(axis: Any, ndim: int, name: str = "axis") -> int:
    """A number in [0, ndim). Raises AxisError, DTypeError."""
    number = to_index(axis, name)
    if not -ndim <= number < ndim:
        raise AxisError(f"{name} {number} is out of bounds for an array of dimension {ndim}")
    return number % ndim


def to_axis_number_of_operand(axis: Any) -> int:
    """An int, in range or not. Raises DTypeError, for a bool too: NumPy's reductions do not take it."""
    if type(axis) is bool:
        raise DTypeError(f"axis: an integer is required, not {axis}; write int({axis})")
    return to_index(axis, "axis")


def to_axes_of_operand(axis: Any, ndim: int, name: str = "axis") -> tuple[int, ...]:
    """Distinct numbers in [0, ndim), in the given order; None means all. Raises AxisError, ShapeError."""
    if axis is None:
        return tuple(range(ndim))
    axes = tuple(to_axis_of_operand(a, ndim, name) for a in spec.entries_of(axis))
    if len(set(axes)) != len(axes):
        raise ShapeError(f"{name} {axis} names an axis twice")
    return axes


def shape_without_axes(shape: Sequence[int], axes: Container[int], keepdims: bool) -> tuple[int, ...]:
    """The shape of what is reduced over the axes; keepdims: with 1 for each of them."""
    return tuple(1 if i in axes else n for i, n in enumerate(shape) if keepdims or i not in axes)


def to_native_axis_of_operand(axis: Any, ndim: int) -> int:
    """`to_axis_of_operand` of what NumPy does in C: it takes no True and False, and an array of no axis has one."""
    return to_axis_of_operand(axes_without_booleans(axis), max(ndim, 1))


def axes_without_booleans(axis: Any) -> Any:
    """The axes of what NumPy does in C, which takes no True and False. Raises DTypeError."""
    for entry in spec.entries_of(axis):
        if type(entry) is bool:
            to_axis_number_of_operand(entry)
    return axis


def to_traced_shape(shape: Any) -> tuple[int, ...]:
    """A tuple of Python ints from ints, one or a sequence, traced or not. Raises DTypeError, TraceError."""
    if isinstance(shape, Tracer):
        shape = shape._known_scalar("cannot be a shape", "pass it as a Python int argument of the function")
    return spec.to_shape(shape)
