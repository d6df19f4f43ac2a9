"""Functions of Python's `math` on traced numbers: NumPy's rows on a float, and the errors that Python raises."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import BuiltinFunctionType
from typing import Any

from ...runtime.core.frozen import dataclass

ApplyRow = Callable[..., Any]  # a row's name and operands in, what it gives out


@dataclass(frozen=True)
class MathFunction:
    """The row that computes a function; which arguments it is not defined for; whether it may overflow."""

    row: str
    undefined: Callable[[ApplyRow, Any], Any] | None = None
    overflows: bool = False


def _is_negative(apply_row: ApplyRow, x: Any) -> Any:
    return apply_row("less", x, 0.0)


def _is_not_positive(apply_row: ApplyRow, x: Any) -> Any:
    return apply_row("less_equal", x, 0.0)


def _is_infinite(apply_row: ApplyRow, x: Any) -> Any:
    return apply_row("isinf", x)


def _is_beyond_one(apply_row: ApplyRow, x: Any) -> Any:
    return apply_row("greater", apply_row("absolute", x), 1.0)


MATH_FUNCTIONS: dict[Any, MathFunction] = {
    math.sqrt: MathFunction("sqrt", _is_negative),
    math.exp: MathFunction("exp", None, True),
    math.expm1: MathFunction("expm1", None, True),
    math.log: MathFunction("log", _is_not_positive),
    math.log2: MathFunction("log2", _is_not_positive),
    math.log10: MathFunction("log10", _is_not_positive),
    math.sin: MathFunction("sin", _is_infinite),
    math.cos: MathFunction("cos", _is_infinite),
    math.tan: MathFunction("tan", _is_infinite),
    math.asin: MathFunction("arcsin", _is_beyond_one),
    math.acos: MathFunction("arccos", _is_beyond_one),
    math.atan: MathFunction("arctan"),
    math.sinh: MathFunction("sinh", None, True),
    math.cosh: MathFunction("cosh", None, True),
    math.tanh: MathFunction("tanh"),
    math.fabs: MathFunction("absolute"),
}


def math_function(function: Any, args: tuple[Any, ...]) -> MathFunction | None:
    """What computes `function(*args)` of a traced number; None of other functions."""
    if not isinstance(function, BuiltinFunctionType) or len(args) != 1:
        return None
    return MATH_FUNCTIONS.get(function)


def apply_math_function(
    function: MathFunction, x: Any, apply_row: ApplyRow, raise_where: Callable[[Any, type[Exception], str], None]
) -> Any:
    """The function of a float. raise_where: the call raises an error where a condition holds."""
    if function.undefined is not None:
        raise_where(function.undefined(apply_row, x), ValueError, "math domain error")
    result = apply_row(function.row, x)
    if function.overflows:
        wrong = apply_row("logical_and", apply_row("isinf", result), apply_row("logical_not", apply_row("isinf", x)))
        raise_where(wrong, OverflowError, "math range error")
    return result
