"""`kg.topk`: the greatest or least values along an axis and where they are, in order."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.interpret.topk import numpy_topk as top_places
from ..core.errors import ShapeError
from ..core.spec import to_index
from ..trace.operands import new_traced_array, to_axis_of_operand, to_traced_array
from .gather import gather_elements_of_axes
from .host_calls import host_call_of_one_result


def topk(x: Any, k: int, axis: int = -1, largest: bool = True) -> tuple[Any, Any]:
    """The k greatest (or least) values along an axis, in order, and their indices.

    Of equal values the first comes first; NaN counts as the greatest. Shapes: that of x with k along the axis; dtypes:
    that of x, and int64. Raises ShapeError for k below 0 or above the axis' length, AxisError for an axis out of range.
    """
    a = to_traced_array(x)
    at, count = _checked_topk_arguments(a.shape, k, axis)
    shape = tuple(count if i == at else n for i, n in enumerate(a.shape))
    places = host_call_of_one_result("topk", [a], shape, dtypes=[np.intp], k=count, axis=at, largest=bool(largest))
    others = [i for i in range(a.ndim) if i != at]
    return new_traced_array(gather_elements_of_axes(a, [places._value], [at], others, places.shape, False), a), places


def topk_of_arrays(x: Any, k: int, axis: int = -1, largest: bool = True) -> tuple[Any, Any]:
    """`topk` of NumPy arrays."""
    a = np.asarray(x)
    at, count = _checked_topk_arguments(a.shape, k, axis)
    places = top_places(a, count, at, bool(largest))
    return np.take_along_axis(a, places, at), places


def _checked_topk_arguments(shape: tuple[int, ...], k: Any, axis: int) -> tuple[int, int]:
    at, count = to_axis_of_operand(axis, len(shape)), to_index(k, "k")
    if not 0 <= count <= shape[at]:
        raise ShapeError(f"topk: k={count} is not between 0 and {shape[at]}, the length of axis {at}")
    return at, count
