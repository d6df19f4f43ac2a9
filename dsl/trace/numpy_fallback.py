"""Functions that have no implementation: NumPy itself computes them, where the values of their arguments are known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...compiler.core.types import dtype_of
from ..core.pytree import flatten, unflatten
from .concrete_values import constant_value_of_traced_node
from .dispatch import FALLBACKS, SPECIAL, NumpyProtocols
from .operands import to_traced_array
from .trace import current_trace
from .tracer import Tracer


def numpy_result_as_traced_constant(result: Any) -> Any:
    """NumPy arrays in a result become traced values that can be assigned to."""
    if type(result) is np.ndarray:
        try:
            dtype_of(result.dtype)
        except TypeError:
            return result
        trace = current_trace()
        return result if trace is None else Tracer(trace, trace.capture_constant(result))
    if type(result) is list:
        return [numpy_result_as_traced_constant(r) for r in result]
    if type(result) is tuple:
        return tuple(map(numpy_result_as_traced_constant, result))
    if isinstance(result, tuple) and hasattr(result, "_fields"):
        return type(result)(*map(numpy_result_as_traced_constant, result))
    return result


def call_numpy_on_known_tracers(function: Any, args: Any, options: Any) -> tuple[Any] | None:
    """What NumPy itself gives for arrays that no call decides."""
    trace = current_trace()
    if trace is None or "out" in options:
        return None
    leaves: list[Any] = []
    tree = flatten((args, options), leaves)
    for i, x in enumerate(leaves):
        if isinstance(x, NumpyProtocols):
            value = None if type(x) in SPECIAL else constant_value_of_traced_node(trace, to_traced_array(x)._value)
            if value is None:
                return None
            leaves[i] = value
    args, options = unflatten(tree, leaves)
    return (numpy_result_as_traced_constant(function(*args, **options)),)


def call_numpy_as_trace_fallback(function: Any, args: Any, options: Any) -> tuple[Any] | None:
    """What NumPy itself gives, where the trace may be split there."""
    trace = current_trace()
    if trace is None or trace.split is None:
        return None
    leaves: list[Any] = []
    tree = flatten((args, options), leaves)
    traced = [i for i, x in enumerate(leaves) if isinstance(x, NumpyProtocols)]

    def call_numpy_fallback_with_values(values: Sequence[Any]) -> Any:
        filled = [values[traced.index(i)] if i in traced else x for i, x in enumerate(leaves)]
        args, options = unflatten(tree, filled)
        return function(*args, **options)

    return (
        trace.split.call(trace, [to_traced_array(leaves[i])._value for i in traced], call_numpy_fallback_with_values),
    )


FALLBACKS += call_numpy_on_known_tracers, call_numpy_as_trace_fallback
