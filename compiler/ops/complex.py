"""Expansions of the op table for complex numbers: pairs of reals in, pairs of reals out.

Products, quotients, squares and comparisons are NumPy's formulas, to the bit. The functions keep the error small
against the modulus of the result, and give the special values of C99 Annex G.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ..core.types import FLOAT32
from ..kernel.body_builder import KernelValue, complex_pair, select
from .real import isinf, isnan
from .real import nan_to_num as real_nan_to_num


def real_and_imaginary(function: Callable[[KernelValue], KernelValue]) -> Callable[[KernelValue], KernelValue]:
    """The same real function of both parts."""
    return lambda z: complex_pair(function(z.re), function(z.im))


# Arithmetic


def add(a: KernelValue, b: KernelValue) -> KernelValue:
    return complex_pair(a.re + b.re, a.im + b.im)


def subtract(a: KernelValue, b: KernelValue) -> KernelValue:
    return complex_pair(a.re - b.re, a.im - b.im)


def multiply(a: KernelValue, b: KernelValue) -> KernelValue:
    return complex_pair(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re)


def divide(a: KernelValue, b: KernelValue) -> KernelValue:
    """Smith's algorithm (1962), with selects in place of its branch."""
    flat = b.re.abs() >= b.im.abs()
    big, small = select(flat, b.re, b.im), select(flat, b.im, b.re)
    x, y = select(flat, a.re, a.im), select(flat, a.im, a.re)
    zero = flat & big.eq(0)
    ratio = small / big
    factor = 1 / select(zero, big.abs(), big + small * ratio)
    xr, yr = select(zero, 0, x * ratio), select(zero, 0, y * ratio)
    return complex_pair((x + yr) * factor, select(flat, y - xr, xr - y) * factor)


def negative(z: KernelValue) -> KernelValue:
    return complex_pair(-z.re, -z.im)


def conjugate(z: KernelValue) -> KernelValue:
    return complex_pair(z.re, -z.im)


def square(z: KernelValue) -> KernelValue:
    return complex_pair(z.re * z.re - z.im * z.im, z.re * z.im + z.im * z.re)


def reciprocal(z: KernelValue) -> KernelValue:
    flat = z.im.abs() <= z.re.abs()
    big, small = select(flat, z.re, z.im), select(flat, z.im, z.re)
    ratio = small / big
    length = big + small * ratio
    one, other = 1 / length, ratio / length
    return complex_pair(select(flat, one, other), -select(flat, other, one))


def absolute(z: KernelValue) -> KernelValue:
    return z.re.hypot(z.im)


def angle(z: KernelValue, deg: bool = False) -> KernelValue:
    turned = z.im.atan2(z.re)
    return turned * (180 / math.pi) if deg else turned


def sign(z: KernelValue) -> KernelValue:
    """z / |z|, large z scaled down; 0 for 0; +-1 or +-i where one part is infinite, NaN where both are."""
    large = 2.0**120 if z.re.dtype == FLOAT32 else 2.0**1000
    scale = select(z.re.abs().maximum(z.im.abs()) > large, 0.25, z.re.const(1))
    z = complex_pair(z.re * scale, z.im * scale)
    length = absolute(z)
    infinite = isinf(length)

    def part(x: KernelValue, other: KernelValue) -> KernelValue:
        at_infinity = select(isinf(x), select(isinf(other), math.nan, x.const(1).copysign(x)), 0)
        return select(infinite, at_infinity, select(length.eq(0), 0, x / length))

    return complex_pair(part(z.re, z.im), part(z.im, z.re))


def any_component(function: Callable[[KernelValue], KernelValue]) -> Callable[[KernelValue], KernelValue]:
    return lambda z: function(z.re) | function(z.im)


def all_components(function: Callable[[KernelValue], KernelValue]) -> Callable[[KernelValue], KernelValue]:
    return lambda z: function(z.re) & function(z.im)


# Comparisons: by the real part, then by the imaginary part; never with NaN.


def _ordered(
    strict: Callable[[KernelValue, KernelValue], KernelValue], last: Callable[[KernelValue, KernelValue], KernelValue]
) -> Callable[[KernelValue, KernelValue], KernelValue]:
    def compare(a: KernelValue, b: KernelValue) -> KernelValue:
        numbers = a.im.eq(a.im) & b.im.eq(b.im)
        return (strict(a.re, b.re) & numbers) | (a.re.eq(b.re) & last(a.im, b.im))

    return compare


less = _ordered(KernelValue.__lt__, KernelValue.__lt__)
less_equal = _ordered(KernelValue.__lt__, KernelValue.__le__)
greater = _ordered(KernelValue.__gt__, KernelValue.__gt__)
greater_equal = _ordered(KernelValue.__gt__, KernelValue.__ge__)


def equal(a: KernelValue, b: KernelValue) -> KernelValue:
    return a.re.eq(b.re) & a.im.eq(b.im)


def not_equal(a: KernelValue, b: KernelValue) -> KernelValue:
    return a.re.ne(b.re) | a.im.ne(b.im)


def _nan(z: KernelValue) -> KernelValue:
    return isnan(z.re) | isnan(z.im)


def maximum(a: KernelValue, b: KernelValue) -> KernelValue:
    return select(greater_equal(a, b) | _nan(a), a, b)


def minimum(a: KernelValue, b: KernelValue) -> KernelValue:
    return select(less_equal(a, b) | _nan(a), a, b)


def fmax(a: KernelValue, b: KernelValue) -> KernelValue:
    return select(greater_equal(a, b) | _nan(b), a, b)


def fmin(a: KernelValue, b: KernelValue) -> KernelValue:
    return select(less_equal(a, b) | _nan(b), a, b)


def clip(z: KernelValue, low: KernelValue, high: KernelValue) -> KernelValue:
    """NumPy compares here without a look at NaN in an imaginary part that does not decide, unlike in its maximum."""
    below = select(_nan(z) | _after(z, low), z, low)
    return select(_nan(below) | _after(high, below), below, high)


def _after(a: KernelValue, b: KernelValue) -> KernelValue:
    return (a.re > b.re) | (a.re.eq(b.re) & (a.im > b.im))


def nan_to_num(z: KernelValue, **attrs: float) -> KernelValue:
    return complex_pair(real_nan_to_num(z.re, **attrs), real_nan_to_num(z.im, **attrs))
