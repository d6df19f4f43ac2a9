"""Python's builtins that ask for a value, on what the body of a recorded loop computes with."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from types import BuiltinFunctionType
from typing import Any

from ...compiler.core.types import FLOAT64, INT64
from ...compiler.graph.builder import WEAK_DTYPES
from ...compiler.kernel.body_builder import complex_kernel_value
from ..control_flow.decisions import BEYOND_INT64, NO_INT64
from ..control_flow.math_functions import MathFunction, apply_math_function, math_function
from ..trace.python_operators import magnitude_of_dtype
from ..trace.trace import LoopNotRecordable
from ..trace.tracer import Tracer
from .kinds import LoopList, is_number, kind_of
from .values import FixedLoopError, LoopArray, LoopNumber, LoopSymbol, Recorder


class LoopRange:
    """A `range` whose ends differ from turn to turn."""

    def __init__(self, start: Any, stop: Any, step: int) -> None:
        self.start, self.stop, self.step = start, stop, step

    def __iter__(self) -> Iterator[Any]:
        raise LoopNotRecordable("a range whose length differs from turn to turn is used outside of a for")

    def __len__(self) -> int:
        raise LoopNotRecordable("len() of a range whose length differs from turn to turn")


def record_builtin_call_in_loop(recorder: Recorder, function: Any, args: Sequence[Any], options: dict[str, Any]) -> Any:
    """What one of the builtins gives; NotImplemented where Python itself knows."""
    mathematics = math_function(function, tuple(args))
    if mathematics is not None and not options and isinstance(args[0], (LoopSymbol, Tracer)):
        return _record_math_call_in_loop(recorder, mathematics, args[0])
    row = CONVERSIONS.get(function) if isinstance(function, (type, BuiltinFunctionType)) else None
    return NotImplemented if row is None or options or not args else row(recorder, *args)


def _record_range_in_loop(recorder: Recorder, *args: Any) -> Any:
    if not any(isinstance(x, LoopSymbol) for x in args):
        return NotImplemented
    start, stop, step = (0, *args, 1) if len(args) == 1 else (*args, 1)[:3]
    if type(step) is not int or step == 0:
        raise LoopNotRecordable("the step of a range differs from turn to turn")
    return LoopRange(start, stop, step)


def _record_len_in_loop(recorder: Recorder, x: Any) -> Any:
    return x.shape[0] if isinstance(x, LoopArray) else NotImplemented


def _number_conversion_recorder_of_loop(kind: type) -> Callable[..., Any]:
    def record_number_conversion_in_loop(recorder: Recorder, x: Any) -> Any:
        if not isinstance(x, (LoopSymbol, Tracer)):
            return NotImplemented
        value = recorder.lift(x)
        if isinstance(value, LoopArray):
            value = LoopNumber(recorder, value.expression.element([recorder.zero()] * value.ndim))
        if kind is bool:
            return LoopNumber(recorder, recorder.truth(value), bool)
        if kind is int and isinstance(value, LoopNumber) and value.linear is not None:
            return value
        if kind is int and value.dtype.kind == "f":
            whole = value.value
            recorder.fail_if(
                whole.ne(whole), recorder.zero(), FixedLoopError(ValueError, "cannot convert float NaN to integer")
            )
            recorder.fail_if(whole.abs() >= BEYOND_INT64, recorder.zero(), FixedLoopError(OverflowError, NO_INT64))
        number = LoopNumber(recorder, value.value.cast(WEAK_DTYPES[kind]), kind)
        number.magnitude = magnitude_of_dtype(value.dtype)
        return number

    return record_number_conversion_in_loop


def _whole_number_recorder_of_loop(op: str) -> Callable[..., Any]:
    """round() and its like: an int of Python's."""

    def record_whole_number_in_loop(recorder: Recorder, *args: Any) -> Any:
        if len(args) > 1 or not isinstance(args[0], (LoopSymbol, Tracer)):
            return NotImplemented
        value = recorder.lift(args[0])
        if not is_number(value) or kind_of(value)[0] not in (FLOAT64, INT64):
            return NotImplemented
        whole = value if kind_of(value)[0] == INT64 else recorder.map(op, value)
        return recorder.convert(int, (whole,), {})

    return record_whole_number_in_loop


def _record_complex_in_loop(recorder: Recorder, *args: Any) -> Any:
    if len(args) > 2 or not any(isinstance(x, (LoopSymbol, Tracer)) for x in args):
        return NotImplemented
    parts = [recorder.lift(x) for x in args]
    if not all(is_number(x) and kind_of(x)[0].kind in "biuf" for x in parts):
        raise LoopNotRecordable("complex() of arrays or of complex numbers")
    re, im = (recorder.element_value(x, FLOAT64) for x in (*parts, 0.0)[:2])
    return LoopNumber(recorder, complex_kernel_value(re, im), complex)


def _record_math_call_in_loop(recorder: Recorder, function: MathFunction, x: Any) -> Any:
    def raise_where(condition: Any, kind: type[Exception], text: str) -> None:
        recorder.fail_if(recorder.truth(condition), recorder.zero(), FixedLoopError(kind, text))

    number = recorder.convert(float, (x,), {})
    found = apply_math_function(function, number, recorder.map, raise_where)
    return LoopNumber(recorder, found.value, float)


def _min_or_max_recorder_of_loop(op: str) -> Callable[..., Any]:
    def record_min_or_max_in_loop(recorder: Recorder, *args: Any) -> Any:
        if len(args) == 1 and isinstance(args[0], LoopList):
            return args[0].fold(max if op == "greater" else min)
        items = args if len(args) > 1 else args[0] if isinstance(args[0], (list, tuple)) else ()
        if not any(isinstance(x, (LoopSymbol, Tracer)) for x in items):
            return NotImplemented
        best = recorder.lift(items[0])
        for item in map(recorder.lift, items[1:]):
            if not (is_number(best) and is_number(item)):
                raise LoopNotRecordable("max() or min() of arrays")
            best = recorder.better(op, best, item)
        return best

    return record_min_or_max_in_loop


def _record_sum_in_loop(recorder: Recorder, *args: Any) -> Any:
    return args[0].fold(sum) if len(args) == 1 and isinstance(args[0], LoopList) else NotImplemented


# Python's builtins that ask for a value
CONVERSIONS: dict[Any, Callable[..., Any]] = {
    round: _whole_number_recorder_of_loop("rint"),
    math.floor: _whole_number_recorder_of_loop("floor"),
    math.ceil: _whole_number_recorder_of_loop("ceil"),
    math.trunc: _whole_number_recorder_of_loop("trunc"),
    range: _record_range_in_loop,
    len: _record_len_in_loop,
    int: _number_conversion_recorder_of_loop(int),
    float: _number_conversion_recorder_of_loop(float),
    complex: _record_complex_in_loop,
    bool: _number_conversion_recorder_of_loop(bool),
    max: _min_or_max_recorder_of_loop("greater"),
    min: _min_or_max_recorder_of_loop("less"),
    sum: _record_sum_in_loop,
}
