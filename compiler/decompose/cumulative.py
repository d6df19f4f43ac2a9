"""Graph -> Graph for a GPU: running sums and products that no kernel does. There are kernels for real numbers."""

from __future__ import annotations

from ..core.types import ArrayType
from ..graph.builder import GraphBuilder
from ..graph.graph import Node, Value, Values


def decompose_cumulative(builder: GraphBuilder, node: Node, args: Values, name: str) -> Value | str:
    """cumulative_sum(a, include_initial=True) -> 0, then cumsum(a)"""
    (a,), options = args, node.options
    axis = options.get("axis", 0)
    if 0 in a.shape or not a.shape:
        return "an array without elements or axes"
    result = _decompose_scan_along_axis(builder, a, axis % a.ndim, node, name)
    if options.get("include_initial"):
        shape = tuple(1 if i == axis % a.ndim else n for i, n in enumerate(a.shape))
        first = builder.broadcast(builder.const(name == "cumprod", node.dtype), shape)
        result = builder.concat([first, result], axis % a.ndim)
    return result


def decompose_complex_scan(builder: GraphBuilder, node: Node, args: Values, name: str = "") -> Value | str:
    """cumprod(z) -> products of 2, 4, 8, ... neighbours; cumsum(x, dtype=complex) -> cumsum of complex numbers"""
    (a,), options = args, node.options
    name = name or {"add": "cumsum", "multiply": "cumprod"}.get(options["ufunc"], "")
    if node.dtype.kind != "c" or not name or 0 in a.shape or not a.shape:
        return ""
    if name == "cumsum" and a.dtype == node.dtype:
        return ""  # which one scan does
    return _decompose_scan_along_axis(builder, a, (options.get("axis") or 0) % a.ndim, node, name)


def _decompose_scan_along_axis(builder: GraphBuilder, a: Value, axis: int, node: Node, name: str) -> Value:
    dtype = node.dtype
    if dtype.kind != "c":
        return builder.host(name, [a], [ArrayType(a.shape, dtype)], axis=axis, dtype=dtype)[0]
    x = builder.cast(a, dtype)
    if name == "cumsum":
        return builder.host(name, [x], [x.type], axis=axis)[0]
    return _decompose_cumprod_in_log_steps(builder, x, axis)


def _decompose_cumprod_in_log_steps(builder: GraphBuilder, x: Value, axis: int) -> Value:
    """Each step multiplies by what ends a step before (Hillis and Steele, 1986): positions alone decide the order."""
    n, rank, step = x.shape[axis], x.ndim, 1
    while step < n:

        def slice_along_axis(start: int, length: int, x: Value = x) -> Value:
            starts = [start if i == axis else 0 for i in range(rank)]
            return builder.slice(x, starts, [1] * rank, [length if i == axis else m for i, m in enumerate(x.shape)])

        later = builder.map("multiply", slice_along_axis(0, n - step), slice_along_axis(step, n - step))
        x = builder.concat([slice_along_axis(0, step), later], axis)
        step *= 2
    return x
