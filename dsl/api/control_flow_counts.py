"""How many turns a loop takes, and what it counts and decides by: bounds, lengths and conditions in, nodes out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...compiler.core.types import BOOL, INT64
from ...compiler.graph.graph import Value
from ..core.errors import DTypeError, ShapeError
from ..functions.elementwise import apply
from ..trace.operands import to_graph_operand, to_traced_array
from ..trace.trace import Trace
from ..trace.tracer import SCALAR, TracedNumber, Tracer


def fori_loop_count(trace: Trace, lower: Any, upper: Any) -> int | Value:
    """How many turns: an int, or the node of one."""
    for bound in (lower, upper):
        integer = isinstance(bound, (int, np.integer)) and not isinstance(bound, bool)
        if not integer and not (isinstance(bound, Tracer) and bound.shape == () and bound.dtype.kind in "iu"):
            raise DTypeError(f"a bound of fori_loop is an integer, not {bound!r}; write int(...)")
    if not any(isinstance(b, (Tracer, TracedNumber)) or type(b) is TracedNumber for b in (lower, upper)):
        return max(0, int(upper) - int(lower))
    first, last = _loop_bound_as_int64(lower), _loop_bound_as_int64(upper)
    zero = type(first) is int and first == 0
    turns = last if zero else last - first
    if not zero and isinstance(turns, Tracer):  # the difference of two int64 may be more than one
        far = apply("where", apply("less", turns, 0), np.iinfo(np.int64).max, turns)
        turns = apply("where", apply("less", first, last), far, 0)
    found = to_graph_operand(turns)
    if not isinstance(found, Value):
        return max(0, int(found))  # type: ignore[arg-type]
    plain = Value(found.number, found.type)
    return plain if plain.dtype == INT64 else trace.builder.cast(plain, INT64)


def _loop_bound_as_int64(bound: Any) -> Any:
    """A traced bound as int64: narrow ones would wrap where one is taken from the other, and a huge uint64 here."""
    if not isinstance(bound, Tracer):
        return int(bound) if isinstance(bound, np.integer) else bound
    return (apply("minimum", bound, np.iinfo(np.int64).max) if bound.dtype == np.uint64 else bound).astype(np.int64)


def fori_loop_index(trace: Trace, index: Value, lower: Any) -> Tracer:
    """The turn's number as Python's `range` counts it: an integer that promotes like a Python int."""
    value = index
    if not (type(lower) is int and lower == 0):
        first = to_graph_operand(lower)
        value = trace.builder.map("add", index, first if isinstance(first, Value) else int(lower), dtype=INT64)
    return Tracer(trace, Value(value.number, value.type, int), SCALAR)


def condition_of_while_or_cond(trace: Trace, name: str, x: Any) -> Value:
    value = to_traced_array(x)._value
    if value.shape != ():
        raise ShapeError(f"a condition of {name} is one bool, not {value.type}; write .any() or .all()")
    return trace.builder.cast(Value(value.number, value.type), BOOL)


def scan_length(shapes: Sequence[tuple[int, ...]], length: Any) -> int:
    found = {shape[0] if shape else None for shape in shapes}
    if None in found:
        raise ShapeError("scan goes over the first axis of each array of xs, and one of them has none")
    if length is not None:
        found.add(length.__index__())
    if len(found) != 1:
        what = " and ".join(map(str, sorted(found))) or "no length"  # type: ignore[type-var]
        raise ShapeError(f"scan needs one length, got {what}; pass xs of equal first lengths, or length=n")
    (n,) = found
    assert n is not None
    return n
