"""Expansions of the complex elementary functions in real ones: pairs of reals in and out.

The error is small against the modulus of the result, intermediate results neither overflow nor underflow needlessly,
branch cuts follow the sign of zero, and special values are those of C99 Annex G. Formulas: Kahan, "Branch cuts for
complex elementary functions" (1987), with selects in place of branches.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ..core.types import COMPLEX128, FLOAT32
from ..kernel.body_builder import KernelValue, complex_kernel_value, kernel_select
from .complex import divide_formula, multiply_scalars_formula
from .real import isfinite_formula, isinf_formula


def _choose_by_float_size(x: KernelValue, single: float, double: float) -> float:
    return single if x.dtype == FLOAT32 else double


def _times_i_formula(z: KernelValue) -> KernelValue:
    return complex_kernel_value(-z.im, z.re)


def _times_minus_i_formula(z: KernelValue) -> KernelValue:
    return complex_kernel_value(z.im, -z.re)


def _complex_times_real(z: KernelValue, factor: float) -> KernelValue:
    return complex_kernel_value(z.re * factor, z.im * factor)


def _circular_formula_of_hyperbolic(
    function: Callable[[KernelValue], KernelValue],
) -> Callable[[KernelValue], KernelValue]:
    """The circular function of a hyperbolic one: f(z) = -i g(i z)."""
    return lambda z: _times_minus_i_formula(function(_times_i_formula(z)))


# Exponentials


def _complex_exponential_formula(
    x: KernelValue, turn: KernelValue, exp: Callable[[KernelValue], KernelValue], limit: float
) -> KernelValue:
    """exp(x) * (cos turn + i sin turn); beyond the limit in two factors exp(x / 2), as exp(x) alone may overflow."""
    far = x.abs() > limit
    e = exp(kernel_select(far, x * 0.5, x))
    rest = kernel_select(far, e, 1)
    gone = x.eq(-math.inf) & ~isfinite_formula(turn)  # 0 * NaN is 0 here
    lost = x.eq(math.inf) & ~isfinite_formula(turn)  # infinity * NaN has an infinite real part
    re = kernel_select(gone, 0, kernel_select(lost, math.inf, e * turn.cos() * rest))
    im = kernel_select(gone, 0, e * turn.sin() * rest)
    return complex_kernel_value(re, kernel_select(turn.eq(0), turn, im))


def exp_formula(z: KernelValue) -> KernelValue:
    return _complex_exponential_formula(z.re, z.im, KernelValue.exp, _choose_by_float_size(z.re, 80.0, 700.0))


def exp2_formula(z: KernelValue) -> KernelValue:
    return _complex_exponential_formula(
        z.re, z.im * math.log(2), KernelValue.exp2, _choose_by_float_size(z.re, 120.0, 1000.0)
    )


def expm1_formula(z: KernelValue) -> KernelValue:
    """exp(z) - 1, its real part as expm1(x) cos(y) - 2 sin(y / 2)**2 where exp(x) is not small."""
    half, e, cos = (z.im * 0.5).sin(), z.re.exp(), z.im.cos()
    re = kernel_select(z.re < -0.5, e * cos - 1, z.re.expm1() * cos - 2 * half * half)
    return complex_kernel_value(re, e * z.im.sin())


# Logarithms


def _complex_log_formula(x: KernelValue, y: KernelValue, near_one: KernelValue) -> KernelValue:
    """log(x + i y). near_one is x**2 + y**2 - 1 computed without cancellation, used where it is small."""
    ax, ay = x.abs(), y.abs()
    big, small = ax.maximum(ay), ax.minimum(ay)
    ratio = kernel_select(small.eq(big), 1, small / big)
    close = near_one.abs() < 0.5
    tail = kernel_select(close, near_one, ratio * ratio).log1p() * 0.5
    length = kernel_select(close, tail, big.log() + tail)
    infinite = isinf_formula(ax) | isinf_formula(ay)
    return complex_kernel_value(kernel_select(infinite, math.inf, length), y.atan2(x))


def log_formula(z: KernelValue) -> KernelValue:
    x, y = z.re.abs(), z.im.abs()
    big, small = x.maximum(y), x.minimum(y)
    return _complex_log_formula(z.re, z.im, (big - 1).fma(big + 1, small * small))


def log2_formula(z: KernelValue) -> KernelValue:
    return _complex_times_real(log_formula(z), math.log2(math.e))


def log10_formula(z: KernelValue) -> KernelValue:
    return _complex_times_real(log_formula(z), math.log10(math.e))


def log1p_formula(z: KernelValue) -> KernelValue:
    return _complex_log_formula(z.re + 1, z.im, z.re.fma(z.re + 2, z.im * z.im))


# Square root and power


def sqrt_formula(z: KernelValue) -> KernelValue:
    """The root with real part >= 0 and the sign of the imaginary part. Scaled by powers of 4."""
    x, y = z.re, z.im
    ax, ay = x.abs(), y.abs()
    big = ax.maximum(ay)
    least, most = _choose_by_float_size(x, 2.0**-100, 2.0**-900), _choose_by_float_size(x, 2.0**120, 2.0**1000)
    up, down = _choose_by_float_size(x, 2.0**60, 2.0**600), 2.0**-4
    factor = kernel_select(big < least, up, kernel_select(big > most, down, x.const(1)))
    back = kernel_select(big < least, up**-0.5, kernel_select(big > most, down**-0.5, x.const(1)))
    sx, sy = ax * factor, ay * factor
    root = ((sx + sx.hypot(sy)) * 0.5).sqrt()
    other = sy / (root + root)
    zero = big.eq(0)
    long, short = root * back, kernel_select(zero, 0, other * back)
    right = x >= 0
    re, im = kernel_select(right, long, short), kernel_select(right, short, long)
    # an infinite part decides, whatever the other is
    re = kernel_select(
        isinf_formula(y),
        math.inf,
        kernel_select(isinf_formula(x), kernel_select(x > 0, x, kernel_select(y.ne(y), y, 0)), re),
    )
    im = kernel_select(
        isinf_formula(y),
        math.inf,
        kernel_select(isinf_formula(x), kernel_select(x > 0, kernel_select(y.ne(y), y, 0), ax), im),
    )
    return complex_kernel_value(kernel_select(zero, 0, re), im.copysign(y))


def power_formula(z: KernelValue, w: KernelValue) -> KernelValue:
    """z ** w: whole exponents of modulus below 100 by repeated squaring, others as exp(w log z); complex64 inside
    complex128, as the error of log z is multiplied by w."""
    n = w.re
    if w.im.known == 0 and n.known is not None and n.known == np.trunc(n.known) and abs(n.known) < 100:
        return _complex_whole_power_formula(z, n)
    exponent = _complex_product_with_infinities(w.cast(COMPLEX128), log_formula(z.cast(COMPLEX128)))
    general = _complex_power_of_zero_formula(z, w, exp_formula(exponent).cast(z.dtype))
    return kernel_select(w.im.eq(0) & n.eq(n.trunc()) & (n.abs() < 100), _complex_whole_power_formula(z, n), general)


def _complex_power_of_zero_formula(z: KernelValue, w: KernelValue, otherwise: KernelValue) -> KernelValue:
    """0 ** w is 0 where the real part of w is positive, else NaN (0 ** 0 = 1 is whole)."""
    value = kernel_select(w.re > 0, w.re.const(0), math.nan)
    return kernel_select(z.re.eq(0) & z.im.eq(0), complex_kernel_value(value, value), otherwise)


def _complex_whole_power_formula(z: KernelValue, n: KernelValue) -> KernelValue:
    """z ** n for a whole number |n| < 128, in NumPy's order of products; NaN for 0 to a negative one."""
    count, power, result = n.abs(), z, complex_kernel_value(n.const(1), 0.0)
    for _ in range(7):
        half = (count * 0.5).trunc()
        result = kernel_select(count.ne(half + half), multiply_scalars_formula(result, power), result)
        power, count = multiply_scalars_formula(power, power), half
    lost = kernel_select(z.re.eq(0) & z.im.eq(0), math.nan, n.const(1))
    result = kernel_select(n < 0, divide_formula(complex_kernel_value(lost, 0.0), result), result)
    squared = multiply_scalars_formula(z, z)
    for small, exact in ((1, z), (2, squared), (3, multiply_scalars_formula(z, squared))):
        result = kernel_select(n.eq(small), exact, result)
    zero = complex_kernel_value(n.const(0), 0.0)  # without the signs that its products would have
    return kernel_select(z.re.eq(0) & z.im.eq(0) & (n > 0), zero, result)


def _complex_product_with_infinities(a: KernelValue, b: KernelValue) -> KernelValue:
    """The product of C99 Annex G: infinite, not NaN, where a factor is infinite (or a partial product is)."""
    plain = multiply_scalars_formula(a, b)
    lost = plain.re.ne(plain.re) & plain.im.ne(plain.im)
    a_infinite, b_infinite = (isinf_formula(v.re) | isinf_formula(v.im) for v in (a, b))
    partial = (
        isinf_formula(a.re * b.re)
        | isinf_formula(a.im * b.im)
        | isinf_formula(a.re * b.im)
        | isinf_formula(a.im * b.re)
    )

    def infinities_as_ones(v: KernelValue, infinite: KernelValue) -> KernelValue:
        """Infinite parts as +-1 and others as +-0 if any is infinite; NaN parts as 0."""
        parts = (
            kernel_select(
                infinite, kernel_select(isinf_formula(x), 1, x.const(0)), kernel_select(x.ne(x), 0, x)
            ).copysign(x)
            for x in v.parts
        )
        return complex_kernel_value(*parts)

    direction = multiply_scalars_formula(infinities_as_ones(a, a_infinite), infinities_as_ones(b, b_infinite))
    recovered = complex_kernel_value(direction.re * math.inf, direction.im * math.inf)
    return kernel_select(lost & (a_infinite | b_infinite | partial), recovered, plain)


# Hyperbolic and circular functions


def _scaled_sinh_and_cosh_formula(x: KernelValue, limit: float) -> tuple[KernelValue, KernelValue, KernelValue]:
    """(s, c, f): sinh|x| = s * f and cosh x = c * f; f is 1 up to the limit, where s = c to all digits."""
    far = x.abs() > limit
    t = kernel_select(far, x.abs() * 0.5, x.abs()).expm1()
    e = t + 1
    s = kernel_select(far, e, t + t / e) * 0.5
    c = kernel_select(far, e, e + 1 / e) * 0.5
    return s, c, kernel_select(far, e, 1)


def sinh_formula(z: KernelValue) -> KernelValue:
    x, y = z.parts
    s, c, f = _scaled_sinh_and_cosh_formula(x, _choose_by_float_size(x, 40.0, 80.0))
    wild = ~isfinite_formula(y)
    re = kernel_select(wild & (isinf_formula(x) | x.eq(0)), x, s.copysign(x) * y.cos() * f)
    return complex_kernel_value(re, kernel_select(y.eq(0), y, c * y.sin() * f))


def cosh_formula(z: KernelValue) -> KernelValue:
    x, y = z.parts
    s, c, f = _scaled_sinh_and_cosh_formula(x, _choose_by_float_size(x, 40.0, 80.0))
    sin = y.sin()
    re = kernel_select(isinf_formula(x) & ~isfinite_formula(y), math.inf, c * y.cos() * f)
    flat = x.const(0).copysign(x) * x.const(1).copysign(sin)
    return complex_kernel_value(re, kernel_select(x.eq(0) | y.eq(0), flat, s.copysign(x) * sin * f))


def tanh_formula(z: KernelValue) -> KernelValue:
    """(sinh(2x) / 2 + i sin y cos y) / (sinh(x)**2 + cos(y)**2), with x clamped where the result has converged.

    With t = exp(2x) - 1 and q = t / (t + 1), sinh(2x) = (t + q) / 2 and sinh(x)**2 = t q / 4. The square of a cosine
    near 1 is best had from the sine.
    """
    x, y = z.parts
    limit = _choose_by_float_size(x, 40.0, 350.0)
    t = (x.abs().minimum(limit) * 2).expm1()
    q = t / (t + 1)
    sin, cos = y.sin(), y.cos()
    divisor = t.fma(q, kernel_select(sin.abs() < 0.5, 1 - sin * sin, cos * cos) * 4)
    far = x.abs() > limit
    wild = ~isfinite_formula(y)
    turn = kernel_select(isinf_formula(x) & wild, 0, sin * cos)
    gone = turn * 0
    re = kernel_select(far, 1 + gone, (t + q) / divisor).copysign(x)
    im = kernel_select(far, gone, turn * 4 / divisor)
    return complex_kernel_value(kernel_select(wild & x.eq(0), x, re), kernel_select(y.eq(0), y, im))


sin = _circular_formula_of_hyperbolic(sinh_formula)
tan = _circular_formula_of_hyperbolic(tanh_formula)


def cos_formula(z: KernelValue) -> KernelValue:
    return cosh_formula(_times_i_formula(z))


# Inverse functions. Beyond _FAR, arcsin z is atan2(x, |y|) + i log(2 |z|) to all digits.


def _huge_complex_mask_and_log(x: KernelValue, y: KernelValue) -> tuple[KernelValue, KernelValue]:
    """Whether |x + i y| is huge or infinite, and log(2 |x + i y|)."""
    limit = _choose_by_float_size(x, 2.0**60, 2.0**500)
    return (x.abs() > limit) | (y.abs() > limit), log_formula(complex_kernel_value(x, y)).re + math.log(2)


def arcsin_formula(z: KernelValue) -> KernelValue:
    x, y = z.parts
    a, b = sqrt_formula(complex_kernel_value(1 - x, -y)), sqrt_formula(complex_kernel_value(1 + x, y))
    im = (a.re * b.im - a.im * b.re).asinh()
    far, length = _huge_complex_mask_and_log(x, y)
    tangent = x / kernel_select(far, y.abs(), a.re * b.re - a.im * b.im)
    tangent = kernel_select(isinf_formula(x) & isinf_formula(y), x.const(1).copysign(x), tangent)
    return complex_kernel_value(kernel_select(x.eq(0), x, tangent.atan()), kernel_select(far, length.copysign(y), im))


def arccos_formula(z: KernelValue) -> KernelValue:
    x, y = z.parts
    a, b = sqrt_formula(complex_kernel_value(1 - x, -y)), sqrt_formula(complex_kernel_value(1 + x, y))
    re = 2 * (a.re / b.re).atan()
    im = (b.re * a.im - b.im * a.re).asinh()
    far, length = _huge_complex_mask_and_log(x, y)
    re = kernel_select(x.eq(0), math.pi / 2, kernel_select(far, y.abs().atan2(x), re))
    return complex_kernel_value(re, kernel_select(far, length.copysign(-y), im))


def arccosh_formula(z: KernelValue) -> KernelValue:
    """+-i arccos(z), with real part >= 0."""
    w = arccos_formula(z)
    return complex_kernel_value(w.im.abs(), w.re.copysign(z.im))


arcsinh = _circular_formula_of_hyperbolic(arcsin_formula)


def arctanh_formula(z: KernelValue) -> KernelValue:
    x, y = z.parts
    ax = x.abs()
    gap = 1 - ax
    re = (ax / (gap * gap + y * y) * 4).log1p() * 0.25
    near = ax.eq(1) & (y.abs() < _choose_by_float_size(x, 1e-15, 1e-150))
    re = kernel_select(near, (math.log(2) - y.abs().log()) * 0.5, re)
    im = y.atan2(0.5 * (gap * (1 + ax) - y * y)) * 0.5
    re = kernel_select(isinf_formula(x) | isinf_formula(y), 0, re).copysign(x)
    im = kernel_select(isinf_formula(y) | (isinf_formula(x) & y.eq(y)), x.const(math.pi / 2).copysign(y), im)
    return complex_kernel_value(kernel_select(x.eq(0), x, re), im)


arctan = _circular_formula_of_hyperbolic(arctanh_formula)
