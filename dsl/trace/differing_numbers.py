"""Numbers that are not what they are held as, as values decide.

That is: Python's, where it is held as an array's, or an int, where it is held as a float."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np

from ...compiler.core.types import WeakType
from ...compiler.graph.graph import Value
from ..core.errors import ConversionError
from .failures import fail_where
from .number_kinds import number_kinds_of_operand
from .trace import Trace

Flag = Value | bool
# rows of operators that give an int of ints alone
_WHOLE_OF_WHOLE = frozenset(
    {"add", "subtract", "multiply", "floor_divide", "remainder", "negative", "positive", "absolute"}
)


def note_joined_number(trace: Trace, a: Any, b: Any, like: Value, join: Callable[..., Any]) -> Callable[[Value], None]:
    """Of two numbers that a branch joins, what notes when the joined one is not what it is held as. join: what joins
    two nodes."""
    flags = [_flag_of_operand(trace, x, like) for x in (a, b)]
    if not like.others or None in flags:
        return lambda value: None
    joined = join(*(x if isinstance(x, Value) else trace.builder.const(np.bool_(x)) for x in flags))

    def note(value: Value) -> None:
        trace.differing[value.number] = joined()

    return note


def note_operator_result(trace: Trace, row: str, operands: Sequence[Any], result: Value) -> None:
    """Of what an operator gives of numbers, notes when it is not what it is held as."""
    if not result.others or not (result.weak is None or row in _WHOLE_OF_WHOLE):
        return
    flags = [flag for x in operands if (flag := _flag_of_operand(trace, x, result)) is not True]
    if flags and all(isinstance(flag, Value) for flag in flags):
        trace.differing[result.number] = reduce(partial(trace.builder.map, "logical_and"), flags)


def fail_where_number_differs(trace: Trace, value: Value) -> None:
    """Notes that compiled code cannot give a number as what it is, where it is not what it is held as."""
    others = [weak for _, weak in value.others]
    if not trace.reruns or trace.depth or not (int in others or bool in others or value.dtype != np.float64):
        return
    if (flag := trace.differing.get(value.number)) is not None:
        fail_where(trace, flag, ConversionError("a number is of one type or another one, as values decide"))


def _flag_of_operand(trace: Trace, x: Any, like: Value) -> Flag | None:
    """Whether an operand is not what `like` is held as; None where no node says so."""
    held_as_arrays = like.weak is None
    found = {_differs(weak, held_as_arrays) for _, weak in number_kinds_of_operand(x)}
    return found.pop() if len(found) == 1 else trace.differing.get(x.number)


def _differs(weak: WeakType | None, held_as_arrays: bool) -> bool:
    return weak is not None if held_as_arrays else weak in (int, bool)
