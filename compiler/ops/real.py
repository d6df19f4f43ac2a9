"""Expansions of the op table for real floats. Values in, the value that NumPy's float loop gives out.

They see float32 and float64; the rows that work on bits see float16 and bfloat16 too.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..core.types import DTYPES, FLOAT32, FLOAT64, HALVES, DType, integer_dtype
from ..kernel.body_builder import KernelValue, kernel_select

FLOAT16, INT32 = DTYPES["f16"], DTYPES["i32"]
LOW_BITS = 13  # of a float32, which TF32 has not


def widened_half_float(x: KernelValue) -> KernelValue:
    """x where it can be compared: 16-bit floats in float32."""
    return x.cast(FLOAT32) if x.dtype in HALVES else x


def isnan_formula(x: KernelValue) -> KernelValue:
    return x.ne(x)


def isinf_formula(x: KernelValue) -> KernelValue:
    return x.abs().eq(math.inf)


def isfinite_formula(x: KernelValue) -> KernelValue:
    return x.abs() < math.inf


def signbit_formula(x: KernelValue) -> KernelValue:
    return x.as_bits() < 0


def high_bits_formula(x: KernelValue) -> KernelValue:
    return (x.as_bits() & -(1 << LOW_BITS)).bitcast(x.dtype)


def _sign_mask_formula(x: KernelValue) -> int:
    return int(np.iinfo(x.as_bits().dtype).min)


def negative_formula(x: KernelValue) -> KernelValue:
    return (x.as_bits() ^ _sign_mask_formula(x)).bitcast(x.dtype) if x.dtype in HALVES else -x


def absolute_formula(x: KernelValue) -> KernelValue:
    return (x.as_bits() & ~_sign_mask_formula(x)).bitcast(x.dtype) if x.dtype in HALVES else x.abs()


def copysign_formula(x: KernelValue, y: KernelValue) -> KernelValue:
    if x.dtype not in HALVES:
        return x.copysign(y)
    mask = _sign_mask_formula(x)
    return ((x.as_bits() & ~mask) | (y.as_bits() & mask)).bitcast(x.dtype)


def sign_formula(x: KernelValue) -> KernelValue:
    return kernel_select(x > 0, 1, kernel_select(x < 0, -1, kernel_select(x.eq(0), 0, x)))


def square_formula(x: KernelValue) -> KernelValue:
    return x * x


def reciprocal_formula(x: KernelValue) -> KernelValue:
    return 1 / x


def relu_formula(x: KernelValue) -> KernelValue:
    return kernel_select(x < 0, 0, x)


def sigmoid_formula(x: KernelValue) -> KernelValue:
    """1 / (1 + exp(-x)), whose exp must not overflow where the result is subnormal."""
    e = (-x.abs()).exp()
    return kernel_select(x < 0, e, 1) / (1 + e)


def lgamma_formula(x: KernelValue) -> KernelValue:
    """In float64: near the zeros between the poles the float32 functions of the C libraries have few digits."""
    return x.cast(FLOAT64).lgamma().cast(x.dtype)


def gelu_formula(x: KernelValue, approximate: bool = False) -> KernelValue:
    """x * Phi(x), Phi the normal distribution; or its approximation by tanh (Hendrycks and Gimpel 2016)."""
    is_half, x = x.dtype in HALVES, widened_half_float(x)
    if approximate:
        return 0.5 * x * (1 + (math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)).tanh())
    turned = x * -math.sqrt(0.5)
    part = turned.erfc()
    if not is_half:  # 1 - erf has less error near 0, which 16 bits do not show
        part = kernel_select(x.abs() < 0.5, 1 - turned.erf(), part)
    return 0.5 * x * part


def _pi_of_dtype(dtype: DType) -> Any:
    return dtype.type(math.pi)


def rad2deg_formula(x: KernelValue) -> KernelValue:
    return x * float(180 / _pi_of_dtype(x.dtype))  # NumPy rounds pi to the dtype first


def deg2rad_formula(x: KernelValue) -> KernelValue:
    return x * float(_pi_of_dtype(x.dtype) / 180)


def angle_formula(x: KernelValue, deg: bool = False) -> KernelValue:
    return kernel_select(isnan_formula(x), x, kernel_select(signbit_formula(x), x.const(180 if deg else math.pi), 0))


def heaviside_formula(x: KernelValue, at_zero: KernelValue) -> KernelValue:
    return kernel_select(isnan_formula(x), x, kernel_select(x.eq(0), at_zero, kernel_select(x < 0, 0, x.const(1))))


def fmax_formula(a: KernelValue, b: KernelValue) -> KernelValue:
    return kernel_select((a >= b) | isnan_formula(b), a, b)


def fmin_formula(a: KernelValue, b: KernelValue) -> KernelValue:
    return kernel_select((a <= b) | isnan_formula(b), a, b)


def clip_formula(x: KernelValue, low: KernelValue, high: KernelValue) -> KernelValue:
    """One instruction each way: what is not beyond a bound stays as it is, and so does the sign of a zero."""
    below = kernel_select((x < low) | isnan_formula(low), low, x)
    return kernel_select((below > high) | isnan_formula(high), kernel_select(isnan_formula(below), below, high), below)


def floor_divide_formula(a: KernelValue, b: KernelValue) -> KernelValue:
    """As npy_divmod: the quotient is corrected so that it is the floor of the exact one, with its sign at zero."""
    rest, ratio = a.fmod(b), a / b
    quotient = (a - rest) / b
    quotient = kernel_select(rest.ne(0) & ((b < 0) ^ (rest < 0)), quotient - 1, quotient)
    floor = quotient.floor()
    floor = kernel_select(quotient - floor > 0.5, floor + 1, floor)
    floor = kernel_select(quotient.ne(0), floor, a.const(0).copysign(ratio))
    return kernel_select(b.eq(0), ratio, floor)


def remainder_formula(a: KernelValue, b: KernelValue) -> KernelValue:
    rest = a.fmod(b)
    moved = kernel_select((b < 0) ^ (rest < 0), rest + b, rest)
    return kernel_select(rest.ne(0), moved, a.const(0).copysign(b))


def logaddexp_formula(a: KernelValue, b: KernelValue) -> KernelValue:
    return kernel_select(a.eq(b), a + math.log(2), a.maximum(b) + (-(a - b).abs()).exp().log1p())


def logaddexp2_formula(a: KernelValue, b: KernelValue) -> KernelValue:
    return kernel_select(a.eq(b), a + 1, a.maximum(b) + (-(a - b).abs()).exp2().log1p() * math.log2(math.e))


def modf_int_formula(x: KernelValue) -> KernelValue:
    return x.trunc()


def modf_frac_formula(x: KernelValue) -> KernelValue:
    return kernel_select(isinf_formula(x), 0, x - x.trunc()).copysign(x)


def nan_to_num_formula(
    x: KernelValue, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> KernelValue:
    high = x.const(_greatest_finite_float_in_formula(x.dtype) if posinf is None else posinf)
    low = x.const(-_greatest_finite_float_in_formula(x.dtype) if neginf is None else neginf)
    w = widened_half_float(x)
    return kernel_select(
        isnan_formula(w), x.const(nan), kernel_select(w.eq(math.inf), high, kernel_select(w.eq(-math.inf), low, x))
    )


def _greatest_finite_float_in_formula(dtype: DType) -> float:
    """The greatest finite number: the one below infinity."""
    infinity = np.array(math.inf, dtype)
    return float((infinity.view(integer_dtype(dtype)) - 1).view(dtype))


# By their bits


def nextafter_formula(x: KernelValue, y: KernelValue) -> KernelValue:
    """The neighbour of x on the side of y (IEEE 754 section 5.3.1, C99 nextafter)."""
    wx, wy, bits = widened_half_float(x), widened_half_float(y), x.as_bits()
    away_from_zero = ~((wy > wx) ^ (wx > 0))
    least = (y.as_bits() & _sign_mask_formula(y)) | 1
    moved = kernel_select(wx.eq(0), least, kernel_select(away_from_zero, bits + 1, bits - 1)).bitcast(x.dtype)
    moved = kernel_select(wx.eq(wy), x if x.dtype == FLOAT16 else y, moved)  # differ in the sign of zero
    return kernel_select(isnan_formula(wx), x, kernel_select(isnan_formula(wy), y, moved))


def spacing_formula(x: KernelValue) -> KernelValue:
    """The distance to the next number away from zero, with the sign of x. NaN for infinities.

    float16 as NumPy's own loop: the distance to the next number towards infinity, never negative.
    """
    w, bits = widened_half_float(x), x.as_bits()
    if x.dtype == FLOAT16:
        above = kernel_select(w.eq(0), 1, kernel_select(w > 0, bits + 1, bits - 1)).bitcast(x.dtype)
        return kernel_select(isfinite_formula(w), widened_half_float(above) - w, math.nan)
    bits = bits if x.dtype in HALVES else kernel_select(w.eq(0), 0, bits)
    return widened_half_float((bits + 1).bitcast(x.dtype)) - w


def _float_bit_layout(dtype: DType) -> tuple[int, int]:
    """Digits after the point, and exponent bias."""
    info = np.finfo(dtype)
    return info.nmant, -int(info.minexp) + 1


def _frexp_bits(x: KernelValue) -> tuple[KernelValue, KernelValue, KernelValue]:
    """Bits of x scaled into the normal range, the exponent those bits hold less that scaling, and whether x is
    neither zero nor infinite nor NaN."""
    digits, bias = _float_bit_layout(x.dtype)
    subnormal = x.abs() < float(np.finfo(x.dtype).smallest_normal)
    bits = kernel_select(subnormal, x * 2.0 ** (digits + 1), x).as_bits()
    mask = 2 * bias + 1
    exponent = ((bits >> digits) & mask) - kernel_select(subnormal, bits.const(digits + 1), 0)
    return bits, exponent, isfinite_formula(x) & x.ne(0)


def frexp_mantissa_formula(x: KernelValue) -> KernelValue:
    digits, bias = _float_bit_layout(x.dtype)
    bits, _, normal = _frexp_bits(x)
    cleared = bits & ~((2 * bias + 1) << digits)
    return kernel_select(normal, (cleared | ((bias - 1) << digits)).bitcast(x.dtype), x)


def frexp_exp_formula(x: KernelValue) -> KernelValue:
    _, bias = _float_bit_layout(x.dtype)
    _, exponent, normal = _frexp_bits(x)
    return kernel_select(normal, exponent - (bias - 1), 0).cast(INT32)


def ldexp_formula(x: KernelValue, n: KernelValue) -> KernelValue:
    """x * 2**n rounded once: three factors, of which only the last can round (as musl's scalbn)."""
    digits, bias = _float_bit_layout(x.dtype)
    low, high, step = 1 - bias, bias, digits + 2 - bias
    limit = 4 * bias
    rest = n.maximum(-limit).minimum(limit).cast(INT32) if n.bits > 16 else n.cast(INT32)
    for _ in range(2):
        part = kernel_select(rest < low, step, rest.minimum(high))
        x, rest = x * _power_of_two_formula(part, x.dtype), rest - part
    return x * _power_of_two_formula(rest.maximum(low).minimum(high), x.dtype)


def _power_of_two_formula(n: KernelValue, dtype: DType) -> KernelValue:
    digits, bias = _float_bit_layout(dtype)
    bits = DTYPES["i32"] if dtype == FLOAT32 else DTYPES["i64"]
    return ((n + bias).cast(bits) << digits).bitcast(dtype)
