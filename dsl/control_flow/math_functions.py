"""Functions of Python's `math` on traced numbers: NumPy's rows on a float, and the errors that Python raises."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ...runtime.core.frozen import dataclass
from ..functions.elementwise import apply


@dataclass(frozen=True)
class MathFunction:
    """The row that computes a function; which arguments it is not defined for; whether it may overflow."""

    row: str
    undefined: Callable[[Any], Any] | None = None
    overflows: bool = False


def _is_negative(x: Any) -> Any:
    return apply("less", x, 0.0)


def _is_not_positive(x: Any) -> Any:
    return apply("less_equal", x, 0.0)


def _is_infinite(x: Any) -> Any:
    return apply("isinf", x)


def _is_beyond_one(x: Any) -> Any:
    return apply("greater", apply("absolute", x), 1.0)


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


def apply_math_function(
    function: MathFunction, x: Any, raise_where: Callable[[Any, type[Exception], str], None]
) -> Any:
    """The function of a float. raise_where: the call raises an error where a condition holds."""
    if function.undefined is not None:
        raise_where(function.undefined(x), ValueError, "math domain error")
    result = apply(function.row, x)
    if function.overflows:
        wrong = apply("logical_and", apply("isinf", result), apply("logical_not", apply("isinf", x)))
        raise_where(wrong, OverflowError, "math range error")
    return result
