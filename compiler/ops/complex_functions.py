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
from ..kernel.body_builder import KernelValue, complex_pair, select
from .complex import divide, multiply
from .real import isfinite, isinf


def _by_size(x: KernelValue, single: float, double: float) -> float:
    return single if x.dtype == FLOAT32 else double


def _times_i(z: KernelValue) -> KernelValue:
    return complex_pair(-z.im, z.re)


def _times_minus_i(z: KernelValue) -> KernelValue:
    return complex_pair(z.im, -z.re)


def _scale(z: KernelValue, factor: float) -> KernelValue:
    return complex_pair(z.re * factor, z.im * factor)


def _turned(function: Callable[[KernelValue], KernelValue]) -> Callable[[KernelValue], KernelValue]:
    """The circular function of a hyperbolic one: f(z) = -i g(i z)."""
    return lambda z: _times_minus_i(function(_times_i(z)))


# Exponentials


def _exponential(
    x: KernelValue, turn: KernelValue, exp: Callable[[KernelValue], KernelValue], limit: float
) -> KernelValue:
    """exp(x) * (cos turn + i sin turn); beyond the limit in two factors exp(x / 2), as exp(x) alone may overflow."""
    far = x.abs() > limit
    e = exp(select(far, x * 0.5, x))
    rest = select(far, e, 1)
    gone = x.eq(-math.inf) & ~isfinite(turn)  # 0 * NaN is 0 here
    lost = x.eq(math.inf) & ~isfinite(turn)  # infinity * NaN has an infinite real part
    re = select(gone, 0, select(lost, math.inf, e * turn.cos() * rest))
    im = select(gone, 0, e * turn.sin() * rest)
    return complex_pair(re, select(turn.eq(0), turn, im))


def exp(z: KernelValue) -> KernelValue:
    return _exponential(z.re, z.im, KernelValue.exp, _by_size(z.re, 80.0, 700.0))


def exp2(z: KernelValue) -> KernelValue:
    return _exponential(z.re, z.im * math.log(2), KernelValue.exp2, _by_size(z.re, 120.0, 1000.0))


def expm1(z: KernelValue) -> KernelValue:
    """exp(z) - 1, its real part as expm1(x) cos(y) - 2 sin(y / 2)**2 where exp(x) is not small."""
    half, e, cos = (z.im * 0.5).sin(), z.re.exp(), z.im.cos()
    re = select(z.re < -0.5, e * cos - 1, z.re.expm1() * cos - 2 * half * half)
    return complex_pair(re, e * z.im.sin())


# Logarithms


def _log(x: KernelValue, y: KernelValue, near_one: KernelValue) -> KernelValue:
    """log(x + i y). near_one is x**2 + y**2 - 1 computed without cancellation, used where it is small."""
    ax, ay = x.abs(), y.abs()
    big, small = ax.maximum(ay), ax.minimum(ay)
    ratio = select(small.eq(big), 1, small / big)
    close = near_one.abs() < 0.5
    tail = select(close, near_one, ratio * ratio).log1p() * 0.5
    length = select(close, tail, big.log() + tail)
    infinite = isinf(ax) | isinf(ay)
    return complex_pair(select(infinite, math.inf, length), y.atan2(x))


def log(z: KernelValue) -> KernelValue:
    x, y = z.re.abs(), z.im.abs()
    big, small = x.maximum(y), x.minimum(y)
    return _log(z.re, z.im, (big - 1).fma(big + 1, small * small))


def log2(z: KernelValue) -> KernelValue:
    return _scale(log(z), math.log2(math.e))


def log10(z: KernelValue) -> KernelValue:
    return _scale(log(z), math.log10(math.e))


def log1p(z: KernelValue) -> KernelValue:
    return _log(z.re + 1, z.im, z.re.fma(z.re + 2, z.im * z.im))


# Square root and power


def sqrt(z: KernelValue) -> KernelValue:
    """The root with real part >= 0 and the sign of the imaginary part; scaled by powers of 4."""
    x, y = z.re, z.im
    ax, ay = x.abs(), y.abs()
    big = ax.maximum(ay)
    least, most = _by_size(x, 2.0**-100, 2.0**-900), _by_size(x, 2.0**120, 2.0**1000)
    up, down = _by_size(x, 2.0**60, 2.0**600), 2.0**-4
    factor = select(big < least, up, select(big > most, down, x.const(1)))
    back = select(big < least, up**-0.5, select(big > most, down**-0.5, x.const(1)))
    sx, sy = ax * factor, ay * factor
    root = ((sx + sx.hypot(sy)) * 0.5).sqrt()
    other = sy / (root + root)
    zero = big.eq(0)
    long, short = root * back, select(zero, 0, other * back)
    right = x >= 0
    re, im = select(right, long, short), select(right, short, long)
    # an infinite part decides, whatever the other is
    re = select(isinf(y), math.inf, select(isinf(x), select(x > 0, x, select(y.ne(y), y, 0)), re))
    im = select(isinf(y), math.inf, select(isinf(x), select(x > 0, select(y.ne(y), y, 0), ax), im))
    return complex_pair(select(zero, 0, re), im.copysign(y))


def power(z: KernelValue, w: KernelValue) -> KernelValue:
    """z ** w: whole exponents of modulus below 100 by repeated squaring, others as exp(w log z); complex64 inside
    complex128, as the error of log z is multiplied by w."""
    n = w.re
    if w.im.known == 0 and n.known is not None and n.known == np.trunc(n.known) and abs(n.known) < 100:
        return _whole_power(z, n)
    exponent = _multiply_with_infinities(w.cast(COMPLEX128), log(z.cast(COMPLEX128)))
    general = _power_of_zero(z, w, exp(exponent).cast(z.dtype))
    return select(w.im.eq(0) & n.eq(n.trunc()) & (n.abs() < 100), _whole_power(z, n), general)


def _power_of_zero(z: KernelValue, w: KernelValue, otherwise: KernelValue) -> KernelValue:
    """0 ** w is 0 where the real part of w is positive, else NaN (0 ** 0 = 1 is whole)."""
    value = select(w.re > 0, w.re.const(0), math.nan)
    return select(z.re.eq(0) & z.im.eq(0), complex_pair(value, value), otherwise)


def _whole_power(z: KernelValue, n: KernelValue) -> KernelValue:
    """z ** n for a whole number |n| < 128, in NumPy's order of products; NaN for 0 to a negative one."""
    count, power, result = n.abs(), z, complex_pair(n.const(1), 0.0)
    for _ in range(7):
        half = (count * 0.5).trunc()
        result = select(count.ne(half + half), multiply(result, power), result)
        power, count = multiply(power, power), half
    lost = select(z.re.eq(0) & z.im.eq(0), math.nan, n.const(1))
    result = select(n < 0, divide(complex_pair(lost, 0.0), result), result)
    squared = multiply(z, z)
    for small, exact in ((1, z), (2, squared), (3, multiply(z, squared))):
        result = select(n.eq(small), exact, result)
    return result


def _multiply_with_infinities(a: KernelValue, b: KernelValue) -> KernelValue:
    """The product of C99 Annex G: infinite, not NaN, where a factor is infinite (or a partial product is)."""
    plain = multiply(a, b)
    lost = plain.re.ne(plain.re) & plain.im.ne(plain.im)
    a_infinite, b_infinite = (isinf(v.re) | isinf(v.im) for v in (a, b))
    partial = isinf(a.re * b.re) | isinf(a.im * b.im) | isinf(a.re * b.im) | isinf(a.im * b.re)

    def boxed(v: KernelValue, infinite: KernelValue) -> KernelValue:
        """Infinite parts as +-1 and others as +-0 if any is infinite; NaN parts as 0."""
        parts = (select(infinite, select(isinf(x), 1, x.const(0)), select(x.ne(x), 0, x)).copysign(x) for x in v.parts)
        return complex_pair(*parts)

    direction = multiply(boxed(a, a_infinite), boxed(b, b_infinite))
    recovered = complex_pair(direction.re * math.inf, direction.im * math.inf)
    return select(lost & (a_infinite | b_infinite | partial), recovered, plain)


# Hyperbolic and circular functions


def _sinh_cosh(x: KernelValue, limit: float) -> tuple[KernelValue, KernelValue, KernelValue]:
    """(s, c, f): sinh|x| = s * f and cosh x = c * f; f is 1 up to the limit, where s = c to all digits."""
    far = x.abs() > limit
    t = select(far, x.abs() * 0.5, x.abs()).expm1()
    e = t + 1
    s = select(far, e, t + t / e) * 0.5
    c = select(far, e, e + 1 / e) * 0.5
    return s, c, select(far, e, 1)


def sinh(z: KernelValue) -> KernelValue:
    x, y = z.parts
    s, c, f = _sinh_cosh(x, _by_size(x, 40.0, 80.0))
    wild = ~isfinite(y)
    re = select(wild & (isinf(x) | x.eq(0)), x, s.copysign(x) * y.cos() * f)
    return complex_pair(re, select(y.eq(0), y, c * y.sin() * f))


def cosh(z: KernelValue) -> KernelValue:
    x, y = z.parts
    s, c, f = _sinh_cosh(x, _by_size(x, 40.0, 80.0))
    sin = y.sin()
    re = select(isinf(x) & ~isfinite(y), math.inf, c * y.cos() * f)
    flat = x.const(0).copysign(x) * x.const(1).copysign(sin)
    return complex_pair(re, select(x.eq(0) | y.eq(0), flat, s.copysign(x) * sin * f))


def tanh(z: KernelValue) -> KernelValue:
    """(sinh(2x) / 2 + i sin y cos y) / (sinh(x)**2 + cos(y)**2), with x clamped where the result has converged.

    With t = exp(2x) - 1 and q = t / (t + 1), sinh(2x) = (t + q) / 2 and sinh(x)**2 = t q / 4. The square of a cosine
    near 1 is best had from the sine.
    """
    x, y = z.parts
    limit = _by_size(x, 40.0, 350.0)
    t = (x.abs().minimum(limit) * 2).expm1()
    q = t / (t + 1)
    sin, cos = y.sin(), y.cos()
    divisor = t.fma(q, select(sin.abs() < 0.5, 1 - sin * sin, cos * cos) * 4)
    far = x.abs() > limit
    wild = ~isfinite(y)
    turn = select(isinf(x) & wild, 0, sin * cos)
    gone = turn * 0
    re = select(far, 1 + gone, (t + q) / divisor).copysign(x)
    im = select(far, gone, turn * 4 / divisor)
    return complex_pair(select(wild & x.eq(0), x, re), select(y.eq(0), y, im))


sin = _turned(sinh)
tan = _turned(tanh)


def cos(z: KernelValue) -> KernelValue:
    return cosh(_times_i(z))


# Inverse functions. Beyond _FAR, arcsin z is atan2(x, |y|) + i log(2 |z|) to all digits.


def _far(x: KernelValue, y: KernelValue) -> tuple[KernelValue, KernelValue]:
    """Whether |x + i y| is huge or infinite, and log(2 |x + i y|)."""
    limit = _by_size(x, 2.0**60, 2.0**500)
    return (x.abs() > limit) | (y.abs() > limit), log(complex_pair(x, y)).re + math.log(2)


def arcsin(z: KernelValue) -> KernelValue:
    x, y = z.parts
    a, b = sqrt(complex_pair(1 - x, -y)), sqrt(complex_pair(1 + x, y))
    im = (a.re * b.im - a.im * b.re).asinh()
    far, length = _far(x, y)
    tangent = x / select(far, y.abs(), a.re * b.re - a.im * b.im)
    tangent = select(isinf(x) & isinf(y), x.const(1).copysign(x), tangent)
    return complex_pair(select(x.eq(0), x, tangent.atan()), select(far, length.copysign(y), im))


def arccos(z: KernelValue) -> KernelValue:
    x, y = z.parts
    a, b = sqrt(complex_pair(1 - x, -y)), sqrt(complex_pair(1 + x, y))
    re = 2 * (a.re / b.re).atan()
    im = (b.re * a.im - b.im * a.re).asinh()
    far, length = _far(x, y)
    re = select(x.eq(0), math.pi / 2, select(far, y.abs().atan2(x), re))
    return complex_pair(re, select(far, length.copysign(-y), im))


def arccosh(z: KernelValue) -> KernelValue:
    """+-i arccos(z), with real part >= 0."""
    w = arccos(z)
    return complex_pair(w.im.abs(), w.re.copysign(z.im))


arcsinh = _turned(arcsin)


def arctanh(z: KernelValue) -> KernelValue:
    x, y = z.parts
    ax = x.abs()
    gap = 1 - ax
    re = (ax / (gap * gap + y * y) * 4).log1p() * 0.25
    near = ax.eq(1) & (y.abs() < _by_size(x, 1e-15, 1e-150))
    re = select(near, (math.log(2) - y.abs().log()) * 0.5, re)
    im = y.atan2(0.5 * (gap * (1 + ax) - y * y)) * 0.5
    re = select(isinf(x) | isinf(y), 0, re).copysign(x)
    im = select(isinf(y) | (isinf(x) & y.eq(y)), x.const(math.pi / 2).copysign(y), im)
    return complex_pair(select(x.eq(0), x, re), im)


arctan = _turned(arctanh)
