"""Sliding windows: a view in which each element is the start of a window, whose elements have axes of their own."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...compiler.graph.builder import GraphBuilder
from ...compiler.graph.graph import Value
from ...runtime.core.frozen import frozen
from ..core.errors import ReadOnlyError, ShapeError
from ..core.spec import entries_of
from ..trace.aliasing import Part, view_of_tracer
from ..trace.dispatch import implements
from ..trace.memory_layout import StandIn
from ..trace.operands import to_axes_of_operand, to_traced_array, to_traced_shape
from ..trace.tracer import Tracer


@frozen
class SlidingWindowView:
    """Windows of a length along one axis; what they hold becomes the last axis."""

    axis: int
    length: int

    def apply(self, builder: GraphBuilder, value: Value) -> Value:
        return builder.windows(value, self.axis, self.length)

    def part_of_base(self, builder: GraphBuilder, base: Value, part: Part) -> Part:
        raise ReadOnlyError(self.read_only())

    def read_only(self) -> str:
        return "sliding windows share their elements and are read-only; assign to the array itself"

    def numpy_view(self, a: StandIn) -> StandIn | None:
        return np.lib.stride_tricks.sliding_window_view(a, self.length, self.axis)


@implements(np.lib.stride_tricks.sliding_window_view)
def sliding_window_view(
    x: Any, window_shape: Any, axis: Any = None, *, subok: bool = False, writeable: bool = False
) -> Tracer:
    """All windows of a shape; those along several axes have their axes in the given order, last."""
    a = to_traced_array(x)
    lengths = to_traced_shape(window_shape)
    axes = tuple(range(a.ndim)) if axis is None else to_axes_of_sliding_windows(axis, a.ndim)
    if len(lengths) != len(axes):
        raise ShapeError(f"a window of shape {lengths} does not fit {len(axes)} axes; pass axis=")
    for at, w in zip(axes, lengths, strict=True):
        if w < 0 or w > a.shape[at]:
            raise ShapeError(f"a window of length {w} does not fit axis {at} of length {a.shape[at]}")
        if w == 0:
            raise ShapeError("windows without elements are not supported; pass a length of 1 or more")
        a = view_of_tracer(a, SlidingWindowView(at, w))
    return a


def to_axes_of_sliding_windows(axis: Any, ndim: int) -> tuple[int, ...]:
    """As `to_axes_of_operand`; an axis may come twice."""
    return tuple(to_axes_of_operand(a, ndim)[0] for a in entries_of(axis))
