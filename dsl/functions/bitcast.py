"""`x.view(dtype)`: the same bytes read as another dtype, by NumPy on the host."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from ...compiler.core.types import ArrayType
from ...compiler.graph.builder import GraphBuilder
from ...compiler.graph.graph import Value
from ...runtime.core.frozen import frozen
from ..core.errors import ShapeError, UnsupportedError
from ..core.spec import checked_dtype
from ..trace.aliasing import Part, assign_part_of_array, memory_layout_of_tracer, part_of_whole_array, view_of_tracer
from ..trace.dispatch import implements
from ..trace.memory_layout import StandIn, resolve_layout_of_tracer
from ..trace.operands import new_traced_result
from ..trace.tracer import SCALAR, Tracer


@frozen
class BitcastView:
    """The bytes of each element as another dtype; where the sizes differ those of the last axis."""

    type: ArrayType

    def apply(self, builder: GraphBuilder, value: Value) -> Value:
        if builder.nodes[value.number].type == self.type:
            return value
        return builder.host("view", [value], [self.type], dtype=self.type.dtype)[0]

    def part_of_base(self, builder: GraphBuilder, base: Value, part: Part) -> Part:
        return part_of_whole_array(
            BitcastView(base.type).apply(builder, assign_part_of_array(builder, self.apply(builder, base), part))
        )

    def numpy_view(self, a: StandIn) -> StandIn | None:
        try:
            return a.view(self.type.dtype)
        except ValueError:  # NumPy refuses it
            return None


@implements(method="view")
def view_as(x: Tracer, dtype: Any = None, type: Any = None) -> Tracer:
    """The bytes of `x` as another dtype; without one a view of `x`. Raises ShapeError where they do not fit."""
    if isinstance(dtype, builtins.type) and issubclass(dtype, np.ndarray):
        dtype, type = None, dtype
    if type not in (None, np.ndarray):
        raise UnsupportedError("x.view(type=...) of another class cannot be traced; leave it out")
    if dtype is not None:
        x._trace.require_native_byte_order()
    wanted = x.dtype if dtype is None else checked_dtype(dtype)
    shape = x.shape
    if wanted.itemsize != x.dtype.itemsize:
        length = shape[-1] * x.dtype.itemsize if shape else 0
        if not shape or length % wanted.itemsize:
            raise ShapeError(f"the last axis of {x.dtype}{list(shape)} does not come out even as {wanted}")
        shape = (*shape[:-1], length // wanted.itemsize)
        _check_last_axis_contiguous(x, wanted)
    step = BitcastView(ArrayType(shape, wanted))
    return (
        new_traced_result(step.apply(x._trace.builder, x._value), x) if x._owner == SCALAR else view_of_tracer(x, step)
    )


def _check_last_axis_contiguous(x: Tracer, dtype: np.dtype[Any]) -> None:
    """Raises ShapeError where NumPy cannot give elements of another size, as far as the layout is known."""
    found = resolve_layout_of_tracer(memory_layout_of_tracer(x), x._held.type)
    try:
        if found is not None:
            found.view(dtype)
    except ValueError as error:
        raise ShapeError(f"{error}; write np.ascontiguousarray(x).view(...)") from None
