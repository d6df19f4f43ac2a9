"""The primitives that every target prints. A table of name -> (NumPy meaning, dtype rule).

Dtypes are bool, the integers, float32 and float64. float16 and bfloat16 values can only be loaded, stored, selected,
cast and bitcast, and complex numbers are pairs of reals; see `compiler/kernel/body_builder.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np

from ...runtime.core.frozen import frozen
from ..core.types import BOOL, DTYPES, FLOAT32, FLOAT64, HALVES, SHORT_NAMES, DType

Array: TypeAlias = np.ndarray[Any, Any]

FLOATS = frozenset({FLOAT32, FLOAT64})
INTS = frozenset(d for d in SHORT_NAMES if d.kind in "iu")
UINTS = frozenset(d for d in SHORT_NAMES if d.kind == "u")
NUMBERS = FLOATS | INTS
BITS = INTS | {BOOL}
STORED = NUMBERS | {BOOL, *HALVES}


@frozen
class Primitive:
    """`numpy(*args, dtype)` gives its meaning on arrays.

    accepts: the dtypes of its arguments, which are all the same (from argument `same_from` on); result: its dtype,
    or None for that of the last argument, or "any" where the instruction says. row: the row of the op table that means
    the same, whose derivative it has. libm: whether it is C's function of that name, which takes many instructions;
    libmvec: whether glibc (2.35 and later) has one of vectors; costly: whether a GPU takes as long for it in float32 as
    for moving 4 bytes.
    """

    numpy: Callable[..., Any]
    arity: int
    accepts: frozenset[DType]
    result: DType | Literal["any"] | None = None
    same_from: int = 0
    row: str = ""
    libm: bool = False
    libmvec: bool = False
    costly: bool = False


def _ufunc_as_kernel_primitive(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: function(*args[:-1])


def _evaluate_cast_primitive(x: Array, dtype: DType) -> Array:
    if x.dtype in HALVES:
        x = x.astype(np.float32)
    return x != 0 if dtype == BOOL else x.astype(dtype)


def _split_float_in_kernel_primitive(x: Array) -> tuple[Array, Array]:
    """x as a sum of two numbers of half the digits (Dekker 1971)."""
    c = 134217729.0 * x
    high = c - (c - x)
    return high, x - high


def _evaluate_fma_primitive(a: Array, b: Array, c: Array) -> Array:
    """a*b + c, rounded once for float32; float64 is exact where c = -fl(a*b), and else twice rounded at worst."""
    dtype = c.dtype
    a, b, c = (np.asarray(x, np.float64) for x in (a, b, c))
    product = a * b
    (a1, a2), (b1, b2) = _split_float_in_kernel_primitive(a), _split_float_in_kernel_primitive(b)
    low = ((a1 * b1 - product) + a1 * b2 + a2 * b1) + a2 * b2
    total = product + c
    back = total - product
    error = (product - (total - back)) + (c - back)
    if dtype == FLOAT32:  # round to odd, so that the second rounding is the only one
        even = (total.view(np.int64) & 1) == 0
        target = np.where(error > 0, np.inf, -np.inf)
        odd = np.where((error != 0) & even, np.nextafter(total, target), total)
        return np.where(np.isfinite(total), odd, total).astype(np.float32)
    exact = total + (error + low)
    found = np.where(np.isfinite(exact) & (exact != total), exact, total)  # else with the sign of its zero
    large = np.isinf(product) & np.isfinite(a) & np.isfinite(b)  # what is added may bring it back
    if not large.any():
        return found
    scale = 2.0**-512
    near = _evaluate_fma_primitive(*np.broadcast_arrays(a * scale, b * scale, c * scale * scale))
    return np.where(large, near / scale / scale, found)


def _evaluate_popcount_primitive(x: Array) -> Array:
    found: Array = np.bitwise_count(x.view(np.dtype(f"u{x.dtype.itemsize}")))
    return found


def _evaluate_multiply_high_primitive(a: Array, b: Array) -> Array:
    half = a.dtype.type(a.dtype.itemsize * 4)
    mask = a.dtype.type((1 << int(half)) - 1)
    a1, a0, b1, b0 = a >> half, a & mask, b >> half, b & mask
    middle = a1 * b0 + (a0 * b0 >> half)
    other = a0 * b1 + (middle & mask)
    high: Array = a1 * b1 + (middle >> half) + (other >> half)
    return high


def _math_module_kernel_primitive(function: Callable[[float], float], overflow: float) -> Callable[..., Any]:
    """A function of the math module over arrays, computed in float64."""

    def evaluate_element(x: float) -> float:
        try:
            return function(x)
        except (ValueError, OverflowError):
            return overflow

    over = np.vectorize(evaluate_element, otypes=[np.float64])
    return lambda x, dtype: over(x.astype(np.float64)).astype(x.dtype)


def _gamma_of_float(x: float) -> float:
    if x == -math.inf or (x < 0 and x == math.floor(x)):
        return math.nan
    try:
        return math.gamma(x) if x else math.copysign(math.inf, x)
    except OverflowError:
        return math.copysign(math.inf, x)


def _same_dtype_kernel_primitive(
    function: Callable[..., Any], accepts: frozenset[DType], arity: int = 2, row: str = "", costly: bool = False
) -> Primitive:
    return Primitive(_ufunc_as_kernel_primitive(function), arity, accepts, row=row, costly=costly)


def _comparison_kernel_primitive(function: Callable[..., Any]) -> Primitive:
    return Primitive(_ufunc_as_kernel_primitive(function), 2, NUMBERS, BOOL)


def _math_kernel_primitive(function: Callable[..., Any], arity: int = 1, costly: bool = False) -> Primitive:
    return Primitive(_ufunc_as_kernel_primitive(function), arity, FLOATS, costly=costly)


def _libm_kernel_primitive(
    function: Callable[..., Any], row: str = "", arity: int = 1, libmvec: bool = True, costly: bool = False
) -> Primitive:
    meaning = _ufunc_as_kernel_primitive(function) if isinstance(function, np.ufunc) else function
    return Primitive(meaning, arity, FLOATS, row=row, libm=True, libmvec=libmvec, costly=costly)


PRIMITIVES: dict[str, Primitive] = {
    "add": _same_dtype_kernel_primitive(np.add, NUMBERS),
    "sub": _same_dtype_kernel_primitive(np.subtract, NUMBERS, row="subtract"),
    "mul": _same_dtype_kernel_primitive(np.multiply, NUMBERS, row="multiply"),
    "div": _same_dtype_kernel_primitive(np.divide, FLOATS, row="divide", costly=True),
    "approx_div": _same_dtype_kernel_primitive(
        np.divide, FLOATS, row="approximate_divide", costly=True
    ),  # to two units in the last place
    "neg": _same_dtype_kernel_primitive(np.negative, NUMBERS, 1, row="negative"),
    "quot": _same_dtype_kernel_primitive(lambda a, b: (a - np.fmod(a, b)) // b, INTS),
    "rem": _same_dtype_kernel_primitive(np.fmod, INTS),
    "and": _same_dtype_kernel_primitive(np.bitwise_and, BITS),
    "or": _same_dtype_kernel_primitive(np.bitwise_or, BITS),
    "xor": _same_dtype_kernel_primitive(np.bitwise_xor, BITS),
    "not": _same_dtype_kernel_primitive(np.invert, BITS, 1),
    "shl": _same_dtype_kernel_primitive(np.left_shift, INTS),
    "shr": _same_dtype_kernel_primitive(np.right_shift, INTS),
    "lt": _comparison_kernel_primitive(np.less),
    "le": _comparison_kernel_primitive(np.less_equal),
    "gt": _comparison_kernel_primitive(np.greater),
    "ge": _comparison_kernel_primitive(np.greater_equal),
    "eq": _comparison_kernel_primitive(np.equal),
    "ne": _comparison_kernel_primitive(np.not_equal),
    "select": Primitive(_ufunc_as_kernel_primitive(np.where), 3, STORED, same_from=1, row="where"),
    "cast": Primitive(_evaluate_cast_primitive, 1, STORED, "any"),
    "bitcast": Primitive(lambda x, dtype: x.view(dtype), 1, STORED - {BOOL}, "any"),
    "abs": Primitive(_ufunc_as_kernel_primitive(np.abs), 1, FLOATS, row="absolute"),
    "sqrt": _math_kernel_primitive(np.sqrt, costly=True),
    "floor": _math_kernel_primitive(np.floor),
    "ceil": _math_kernel_primitive(np.ceil),
    "trunc": _math_kernel_primitive(np.trunc),
    "rint": _math_kernel_primitive(np.rint),
    "copysign": _math_kernel_primitive(np.copysign, 2),
    "fma": _math_kernel_primitive(_evaluate_fma_primitive, 3),
    "maximum": _same_dtype_kernel_primitive(np.maximum, NUMBERS),
    "minimum": _same_dtype_kernel_primitive(np.minimum, NUMBERS),
    "exp": _libm_kernel_primitive(np.exp, costly=True),
    "exp2": _libm_kernel_primitive(np.exp2, costly=True),
    "expm1": _libm_kernel_primitive(np.expm1, costly=True),
    "log": _libm_kernel_primitive(np.log, costly=True),
    "log2": _libm_kernel_primitive(np.log2, costly=True),
    "log10": _libm_kernel_primitive(np.log10, costly=True),
    "log1p": _libm_kernel_primitive(np.log1p, costly=True),
    "sin": _libm_kernel_primitive(np.sin),
    "cos": _libm_kernel_primitive(np.cos),
    "tan": _libm_kernel_primitive(np.tan),
    "asin": _libm_kernel_primitive(np.arcsin, "arcsin"),
    "acos": _libm_kernel_primitive(np.arccos, "arccos"),
    "atan": _libm_kernel_primitive(np.arctan, "arctan"),
    "sinh": _libm_kernel_primitive(np.sinh),
    "cosh": _libm_kernel_primitive(np.cosh),
    "tanh": _libm_kernel_primitive(np.tanh, costly=True),
    "asinh": _libm_kernel_primitive(np.arcsinh, "arcsinh"),
    "acosh": _libm_kernel_primitive(np.arccosh, "arccosh"),
    "atanh": _libm_kernel_primitive(np.arctanh, "arctanh"),
    "cbrt": _libm_kernel_primitive(np.cbrt),
    "erf": _libm_kernel_primitive(_math_module_kernel_primitive(math.erf, math.nan), costly=True),
    "erfc": _libm_kernel_primitive(_math_module_kernel_primitive(math.erfc, math.nan), costly=True),
    "lgamma": _libm_kernel_primitive(_math_module_kernel_primitive(math.lgamma, math.inf), libmvec=False),
    "tgamma": _libm_kernel_primitive(_math_module_kernel_primitive(_gamma_of_float, math.inf), "gamma", libmvec=False),
    "pow": _libm_kernel_primitive(np.power, "power", arity=2),
    "atan2": _libm_kernel_primitive(np.arctan2, "arctan2", arity=2),
    "hypot": _libm_kernel_primitive(np.hypot, arity=2),
    "fmod": _libm_kernel_primitive(np.fmod, arity=2, libmvec=False),
    "popcount": Primitive(_ufunc_as_kernel_primitive(_evaluate_popcount_primitive), 1, INTS, DTYPES["u8"]),
    "gcd": _same_dtype_kernel_primitive(np.gcd, UINTS),
    "ipow": _same_dtype_kernel_primitive(np.power, UINTS),
    "mulhi": _same_dtype_kernel_primitive(_evaluate_multiply_high_primitive, frozenset({DTYPES["u32"], DTYPES["u64"]})),
}

COSTLY = frozenset(name for name, primitive in PRIMITIVES.items() if primitive.costly)
