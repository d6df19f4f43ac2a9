"""Expansions of the op table for complex numbers. Pairs of reals in, pairs of reals out.

Products, quotients, squares and comparisons are NumPy's formulas, to the bit. The functions keep the error small
against the modulus of the result, and give the special values of C99 Annex G.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ..core.types import FLOAT32
from ..kernel.body_builder import KernelValue, complex_kernel_value, kernel_select
from .real import isinf_formula, isnan_formula
from .real import nan_to_num_formula as real_nan_to_num


def formula_on_both_parts(function: Callable[[KernelValue], KernelValue]) -> Callable[[KernelValue], KernelValue]:
    """The same real function of both parts."""
    return lambda z: complex_kernel_value(function(z.re), function(z.im))


# Arithmetic


def add_formula(a: KernelValue, b: KernelValue) -> KernelValue:
    return complex_kernel_value(a.re + b.re, a.im + b.im)


def subtract_formula(a: KernelValue, b: KernelValue) -> KernelValue:
    return complex_kernel_value(a.re - b.re, a.im - b.im)


def multiply_formula(a: KernelValue, b: KernelValue) -> KernelValue:
    """As NumPy multiplies arrays: of each part one product is not rounded, and cannot overflow alone."""
    return complex_kernel_value(a.re.fma(b.re, -(a.im * b.im)), a.re.fma(b.im, a.im * b.re))


def multiply_scalars_formula(a: KernelValue, b: KernelValue) -> KernelValue:
    """As NumPy multiplies two numbers, in powers too: every product is rounded."""
    return complex_kernel_value(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re)


def divide_formula(a: KernelValue, b: KernelValue) -> KernelValue:
    """Smith's algorithm (1962), with selects in place of its branch."""
    flat = b.re.abs() >= b.im.abs()
    big, small = kernel_select(flat, b.re, b.im), kernel_select(flat, b.im, b.re)
    x, y = kernel_select(flat, a.re, a.im), kernel_select(flat, a.im, a.re)
    zero = flat & big.eq(0)
    ratio = small / big
    factor = 1 / kernel_select(zero, big.abs(), big + small * ratio)
    xr, yr = kernel_select(zero, 0, x * ratio), kernel_select(zero, 0, y * ratio)
    return complex_kernel_value((x + yr) * factor, kernel_select(flat, y - xr, xr - y) * factor)


def negative_formula(z: KernelValue) -> KernelValue:
    return complex_kernel_value(-z.re, -z.im)


def conjugate_formula(z: KernelValue) -> KernelValue:
    return complex_kernel_value(z.re, -z.im)


def square_formula(z: KernelValue) -> KernelValue:
    return multiply_formula(z, z)


def reciprocal_formula(z: KernelValue) -> KernelValue:
    flat = z.im.abs() <= z.re.abs()
    big, small = kernel_select(flat, z.re, z.im), kernel_select(flat, z.im, z.re)
    ratio = small / big
    length = big + small * ratio
    one, other = 1 / length, ratio / length
    return complex_kernel_value(kernel_select(flat, one, other), -kernel_select(flat, other, one))


def absolute_formula(z: KernelValue) -> KernelValue:
    return z.re.hypot(z.im)


def angle_formula(z: KernelValue, deg: bool = False) -> KernelValue:
    turned = z.im.atan2(z.re)
    return turned * (180 / math.pi) if deg else turned


def sign_formula(z: KernelValue) -> KernelValue:
    """z / |z|, large z scaled down; 0 for 0; +-1 or +-i where one part is infinite, NaN where both are."""
    large = 2.0**120 if z.re.dtype == FLOAT32 else 2.0**1000
    scale = kernel_select(z.re.abs().maximum(z.im.abs()) > large, 0.25, z.re.const(1))
    z = complex_kernel_value(z.re * scale, z.im * scale)
    length = absolute_formula(z)
    infinite = isinf_formula(length)

    def signed_part_formula(x: KernelValue, other: KernelValue) -> KernelValue:
        at_infinity = kernel_select(
            isinf_formula(x), kernel_select(isinf_formula(other), math.nan, x.const(1).copysign(x)), 0
        )
        return kernel_select(infinite, at_infinity, kernel_select(length.eq(0), 0, x / length))

    return complex_kernel_value(signed_part_formula(z.re, z.im), signed_part_formula(z.im, z.re))


def any_part_formula(function: Callable[[KernelValue], KernelValue]) -> Callable[[KernelValue], KernelValue]:
    return lambda z: function(z.re) | function(z.im)


def all_parts_formula(function: Callable[[KernelValue], KernelValue]) -> Callable[[KernelValue], KernelValue]:
    return lambda z: function(z.re) & function(z.im)


# Comparisons: by the real part, then by the imaginary part; never with NaN.


def _lexicographic_order_formula(
    strict: Callable[[KernelValue, KernelValue], KernelValue], last: Callable[[KernelValue, KernelValue], KernelValue]
) -> Callable[[KernelValue, KernelValue], KernelValue]:
    def compare_parts(a: KernelValue, b: KernelValue) -> KernelValue:
        numbers = a.im.eq(a.im) & b.im.eq(b.im)
        return (strict(a.re, b.re) & numbers) | (a.re.eq(b.re) & last(a.im, b.im))

    return compare_parts


less = _lexicographic_order_formula(KernelValue.__lt__, KernelValue.__lt__)
less_equal = _lexicographic_order_formula(KernelValue.__lt__, KernelValue.__le__)
greater = _lexicographic_order_formula(KernelValue.__gt__, KernelValue.__gt__)
greater_equal = _lexicographic_order_formula(KernelValue.__gt__, KernelValue.__ge__)


def equal_formula(a: KernelValue, b: KernelValue) -> KernelValue:
    return a.re.eq(b.re) & a.im.eq(b.im)


def not_equal_formula(a: KernelValue, b: KernelValue) -> KernelValue:
    return a.re.ne(b.re) | a.im.ne(b.im)


def _complex_nan_formula(z: KernelValue) -> KernelValue:
    return isnan_formula(z.re) | isnan_formula(z.im)


def maximum_formula(a: KernelValue, b: KernelValue) -> KernelValue:
    return kernel_select(greater_equal(a, b) | _complex_nan_formula(a), a, b)


def minimum_formula(a: KernelValue, b: KernelValue) -> KernelValue:
    return kernel_select(less_equal(a, b) | _complex_nan_formula(a), a, b)


def fmax_formula(a: KernelValue, b: KernelValue) -> KernelValue:
    return kernel_select(greater_equal(a, b) | _complex_nan_formula(b), a, b)


def fmin_formula(a: KernelValue, b: KernelValue) -> KernelValue:
    return kernel_select(less_equal(a, b) | _complex_nan_formula(b), a, b)


def clip_formula(z: KernelValue, low: KernelValue, high: KernelValue) -> KernelValue:
    """NumPy compares here without a look at NaN in an imaginary part that does not decide, unlike in its maximum."""
    below = kernel_select(_complex_nan_formula(z) | _comes_after_complex_formula(z, low), z, low)
    return kernel_select(_complex_nan_formula(below) | _comes_after_complex_formula(high, below), below, high)


def _comes_after_complex_formula(a: KernelValue, b: KernelValue) -> KernelValue:
    return (a.re > b.re) | (a.re.eq(b.re) & (a.im > b.im))


def nan_to_num_formula(z: KernelValue, **attrs: float) -> KernelValue:
    return complex_kernel_value(real_nan_to_num(z.re, **attrs), real_nan_to_num(z.im, **attrs))
