"""Axes and shapes as the user gives them, as tuples of numbers in range."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core import checks
from ..core.checks import to_index
from ..core.errors import AxisError, DTypeError, ShapeError
from .tracer import Tracer

Axes = int | Sequence[int] | None


def to_axis(axis: Any, ndim: int, name: str = "axis") -> int:
    """A number in [0, ndim). Raises AxisError, DTypeError."""
    number = to_index(axis, name)
    if not -ndim <= number < ndim:
        raise AxisError(f"{name} {number} is out of bounds for an array of dimension {ndim}")
    return number % ndim


def to_axis_number(axis: Any, name: str = "axis") -> int:
    """An int, in range or not. Raises DTypeError, for a bool too: NumPy's reductions do not take it."""
    if type(axis) is bool:
        raise DTypeError(f"{name}: an integer is required, not {axis}; write int({axis})")
    return to_index(axis, name)


def to_axes(axis: Any, ndim: int, name: str = "axis") -> tuple[int, ...]:
    """Distinct numbers in [0, ndim), in the given order; None means all. Raises AxisError, ShapeError."""
    if axis is None:
        return tuple(range(ndim))
    entries = axis if isinstance(axis, (tuple, list)) else (axis,)
    axes = tuple(to_axis(a, ndim, name) for a in entries)
    if len(set(axes)) != len(axes):
        raise ShapeError(f"{name} {axis} names an axis twice")
    return axes


def to_native_axis(axis: Any, ndim: int) -> int:
    """`to_axis` of what NumPy does in C: it takes no True and False, and an array of no axis has one."""
    return to_axis(axes_without_booleans(axis), max(ndim, 1))


def axes_without_booleans(axis: Any) -> Any:
    """The axes of what NumPy does in C, which takes no True and False. Raises DTypeError."""
    for entry in axis if isinstance(axis, (tuple, list)) else (axis,):
        if type(entry) is bool:
            to_axis_number(entry)
    return axis


def to_traced_shape(shape: Any) -> tuple[int, ...]:
    """A tuple of Python ints from an int or a sequence of ints, traced or not. Raises DTypeError, TraceError."""
    if isinstance(shape, Tracer):
        shape = shape._known_scalar("cannot be a shape", "pass it as a Python int argument of the function")
    return checks.to_shape(shape)
