"""Elementwise functions and polynomials that are formulas of other rows, so that they fuse."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...compiler.core.types import dtype_kind, real_dtype
from ..core.errors import DTypeError, ShapeError
from ..core.spec import to_index
from ..trace.dispatch import implements
from ..trace.operands import to_traced_array
from ..trace.tracer import Tracer
from .creation import arange, linspace
from .elementwise import apply, is_tracing_for_derivatives
from .host_calls import assign_to_out, host_call_of_one_result, require, require_known_numpy_option
from .joining import concatenate
from .reductions import all
from .views import atleast_1d, broadcast_to, cast, copy, expand_dims, moveaxis, reshape


def _is_infinite_of_sign(x: Any, out: Any, negative: bool) -> Tracer:
    a = to_traced_array(x)
    if a.dtype.kind == "c":
        raise DTypeError("this operation is not supported for complex128 values because it would be ambiguous")
    sign = apply("signbit", a) if dtype_kind(a.dtype) != "b" else apply("logical_and", a, False)
    return assign_to_out(apply("logical_and", apply("isinf", a), sign if negative else apply("logical_not", sign)), out)


@implements(np.isposinf)
def isposinf(x: Any, out: Any = None) -> Tracer:
    return _is_infinite_of_sign(x, out, False)


@implements(np.isneginf)
def isneginf(x: Any, out: Any = None) -> Tracer:
    return _is_infinite_of_sign(x, out, True)


@implements(np.isreal)
def isreal(x: Any) -> Tracer:
    return apply("equal", to_traced_array(x).imag, 0)


@implements(np.iscomplex)
def iscomplex(x: Any) -> Tracer:
    return apply("not_equal", to_traced_array(x).imag, 0)


@implements(np.fix)
def fix(x: Any, out: Any = None) -> Tracer:
    """Rounded towards zero."""
    return assign_to_out(apply("trunc", x), out)


SINC_TERMS = {2: 5, 4: 7, 8: 11}  # by a real number's bytes: the rest is below the rounding of third derivatives


@implements(np.sinc)
def sinc(x: Any) -> Tracer:
    """sin(pi x) / (pi x), and 1 at 0 (NumPy's formula); where it is differentiated, by its series near 0, of which all
    derivatives have all digits there."""
    angle = apply("multiply", np.pi, x)
    tiny = np.finfo(angle.dtype).eps if dtype_kind(angle.dtype) == "f" else 1e-20
    if not is_tracing_for_derivatives():
        angle = apply("where", apply("not_equal", angle, 0), angle, tiny)
        return apply("divide", apply("sin", angle), angle)
    near = apply("less", apply("absolute", angle), 1)
    square = apply("where", near, apply("square", angle), 0.0)
    series: Any = 1.0
    terms = SINC_TERMS[real_dtype(angle.dtype).itemsize]
    for k in range(terms, 0, -1):  # 1 - z^2/(2 3) (1 - z^2/(4 5) (...))
        series = apply("subtract", 1.0, apply("multiply", apply("multiply", square, 1 / (2 * k * (2 * k + 1))), series))
    far = apply("where", near, 1.0, angle)
    return apply("where", near, series, apply("divide", apply("sin", far), far))


@implements(np.i0)
def i0(x: Any) -> Tracer:
    """The modified Bessel function of the first kind, order 0; by NumPy on the host."""
    a = to_traced_array(x)
    return host_call_of_one_result("i0", [a], a.shape)


@implements(np.geomspace)
def geomspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0) -> Tracer:
    """Powers of ten of evenly spaced logarithms, times the sign of `start`; the ends exact (NumPy's formula)."""
    first, last = to_traced_array(start), to_traced_array(stop)
    count = to_index(num, "num")
    real = np.result_type(first.dtype, last.dtype, float(count), np.zeros((), dtype or float).dtype)
    wanted = real if dtype is None else np.dtype(dtype)
    shape = first._trace.builder.broadcast_shapes("geomspace", [first.shape, last.shape])
    first, last = (broadcast_to(cast(x, real), shape) for x in (first, last))
    ends = apply("logical_and", apply("not_equal", first, 0), apply("not_equal", last, 0))
    first = require(first, all(ends), ValueError, "Geometric sequence cannot include zero")
    sign = apply("sign", first)
    low, high = apply("divide", first, sign), apply("divide", last, sign)
    exponents = linspace(apply("log10", low), apply("log10", high), count, endpoint)
    result = apply("power", cast(to_traced_array(10.0), exponents.dtype), exponents)
    parts = [result]
    if count:
        parts = [reshape(low, (1, *shape)), result[1:]]
        if count > 1 and endpoint:
            parts = [parts[0], result[1:-1], reshape(high, (1, *shape))]
    result = apply("multiply", concatenate([cast(p, result.dtype) for p in parts], 0), sign)
    return cast(moveaxis(result, 0, axis), wanted)


# polynomials: coefficients from the highest power down


@implements(np.polyval)
def polyval(p: Any, x: Any) -> Tracer:
    """Horner's rule."""
    coefficients = _polynomial_coefficients(p)
    at = to_traced_array(x)
    y = apply("multiply", at, 0) if dtype_kind(at.dtype) in "biu" else broadcast_to(at.dtype.type(0), at.shape)
    if at.dtype == np.bool_:
        y = broadcast_to(np.False_, at.shape)
    for i in range(coefficients.shape[0]):
        y = apply("add", apply("multiply", y, at), coefficients[i])
    return y


def _polynomial_coefficients(p: Any) -> Tracer:
    x = to_traced_array(p)
    if x.ndim == 0:
        raise DTypeError("a polynomial is an array of coefficients, not a number; write [p]")
    return x


def _pad_polynomial_coefficients(a: Any, n: int) -> Tracer:
    x = atleast_1d(to_traced_array(a))
    return x if x.size == n else concatenate([broadcast_to(x.dtype.type(0), (n - x.size,)), x])


def _polynomial_sum_or_difference(op: str) -> Any:
    def add_or_subtract_polynomials(a1: Any, a2: Any) -> Tracer:
        x, y = atleast_1d(to_traced_array(a1)), atleast_1d(to_traced_array(a2))
        n = max(x.size, y.size)
        return apply(op, _pad_polynomial_coefficients(x, n), _pad_polynomial_coefficients(y, n))

    return add_or_subtract_polynomials


polyadd = implements(np.polyadd)(_polynomial_sum_or_difference("add"))
polysub = implements(np.polysub)(_polynomial_sum_or_difference("subtract"))


@implements(np.polyder)
def polyder(p: Any, m: int = 1) -> Tracer:
    x = _polynomial_coefficients(p)
    times = to_index(m, "m")
    if times < 0:
        raise ShapeError("Order of derivative must be positive (see polyint)")
    for _ in range(times):
        n = x.size - 1
        x = apply("multiply", x[:-1], arange(n, 0, -1))
    return copy(x)


@implements(np.polyint)
def polyint(p: Any, m: int = 1, k: Any = None) -> Tracer:
    """The integral with constants `k` (0 by default)."""
    times = to_index(m, "m")
    if times < 0:
        raise ShapeError("Order of integral must be positive (see polyder)")
    constants = [0.0] * times if k is None else require_known_numpy_option(k)
    constants = list(constants) if isinstance(constants, (list, tuple)) else [constants]
    if len(constants) == 1 and times > 1:
        constants = constants * times
    if len(constants) < times:
        raise ShapeError("k must be a scalar or a rank-1 array of length 1 or >m.")
    x = _polynomial_coefficients(p)
    for constant in constants[:times]:
        divided = apply("divide", x, arange(x.size, 0, -1))
        x = concatenate([divided, atleast_1d(to_traced_array(constant))])
    return copy(x)


@implements(np.vander)
def vander(x: Any, N: int | None = None, increasing: bool = False) -> Tracer:
    """Columns 1, x, x * x, ... (reversed unless increasing)."""
    a = to_traced_array(x)
    if a.ndim != 1:
        raise ShapeError("x must be a one-dimensional array or sequence.")
    a = cast(a, np.promote_types(a.dtype, int))
    count = a.size if N is None else to_index(N, "N")
    columns = [broadcast_to(a.dtype.type(1), a.shape)]
    while len(columns) < count:
        columns.append(a if len(columns) == 1 else apply("multiply", columns[-1], a))
    columns = columns[:count] if increasing else columns[:count][::-1]
    if not columns:
        return broadcast_to(a.dtype.type(0), (a.size, 0))
    return concatenate([expand_dims(c, -1) for c in columns], -1)
