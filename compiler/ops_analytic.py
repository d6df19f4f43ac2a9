"""Expansions of the complex elementary functions in real ones: pairs of reals in and out.

The error is small against the modulus of the result, intermediate results neither overflow nor underflow needlessly,
branch cuts follow the sign of zero, and special values are those of C99 Annex G. Formulas: Kahan, "Branch cuts for
complex elementary functions" (1987), with selects in place of branches.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from .body import Val, pair, select
from .ops_complex import multiply, reciprocal, square
from .ops_real import isfinite, isinf
from .types import FLOAT32


def _by_size(x: Val, single: float, double: float) -> float:
    return single if x.dtype == FLOAT32 else double


def _times_i(z: Val) -> Val:
    return pair(-z.im, z.re)


def _times_minus_i(z: Val) -> Val:
    return pair(z.im, -z.re)


def _scale(z: Val, factor: float) -> Val:
    return pair(z.re * factor, z.im * factor)


def _turned(function: Callable[[Val], Val]) -> Callable[[Val], Val]:
    """The circular function of a hyperbolic one: f(z) = -i g(i z)."""
    return lambda z: _times_minus_i(function(_times_i(z)))


# Exponentials


def _exponential(x: Val, turn: Val, exp: Callable[[Val], Val], limit: float) -> Val:
    """exp(x) * (cos turn + i sin turn); beyond the limit in two factors exp(x / 2), as exp(x) alone may overflow."""
    far = x.abs() > limit
    e = exp(select(far, x * 0.5, x))
    rest = select(far, e, 1)
    gone = x.eq(-math.inf) & ~isfinite(turn)  # 0 * NaN is 0 here
    lost = x.eq(math.inf) & ~isfinite(turn)  # infinity * NaN has an infinite real part
    re = select(gone, 0, select(lost, math.inf, e * turn.cos() * rest))
    im = select(gone, 0, e * turn.sin() * rest)
    return pair(re, select(turn.eq(0), turn, im))


def exp(z: Val) -> Val:
    return _exponential(z.re, z.im, Val.exp, _by_size(z.re, 80.0, 700.0))


def exp2(z: Val) -> Val:
    return _exponential(z.re, z.im * math.log(2), Val.exp2, _by_size(z.re, 120.0, 1000.0))


def expm1(z: Val) -> Val:
    """exp(z) - 1, its real part as expm1(x) cos(y) - 2 sin(y / 2)**2."""
    half = (z.im * 0.5).sin()
    big = exp(z)
    re = z.re.expm1() * z.im.cos() - 2 * half * half
    return pair(select(z.re > 1, big.re - 1, re), big.im)


# Logarithms


def _log(x: Val, y: Val, near_one: Val) -> Val:
    """log(x + i y). near_one is x**2 + y**2 - 1 computed without cancellation, used where it is small."""
    ax, ay = x.abs(), y.abs()
    big, small = ax.maximum(ay), ax.minimum(ay)
    ratio = select(small.eq(big), 1, small / big)
    close = near_one.abs() < 0.5
    tail = select(close, near_one, ratio * ratio).log1p() * 0.5
    length = select(close, tail, big.log() + tail)
    infinite = isinf(ax) | isinf(ay)
    return pair(select(infinite, math.inf, length), y.atan2(x))


def log(z: Val) -> Val:
    x, y = z.re.abs(), z.im.abs()
    big, small = x.maximum(y), x.minimum(y)
    return _log(z.re, z.im, (big - 1) * (big + 1) + small * small)


def log2(z: Val) -> Val:
    return _scale(log(z), math.log2(math.e))


def log10(z: Val) -> Val:
    return _scale(log(z), math.log10(math.e))


def log1p(z: Val) -> Val:
    return _log(z.re + 1, z.im, z.re * (z.re + 2) + z.im * z.im)


# Square root and power


def sqrt(z: Val) -> Val:
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
    return pair(select(zero, 0, re), im.copysign(y))


def power(z: Val, w: Val) -> Val:
    """z ** w: whole exponents of modulus below 128 by repeated squaring, others as exp(w log z)."""
    whole = _whole_power(z, w.re)
    general = exp(multiply(w, log(z)))
    return select(w.im.eq(0) & w.re.eq(w.re.trunc()) & (w.re.abs() < 100), whole, _power_of_zero(z, w, general))


def _power_of_zero(z: Val, w: Val, otherwise: Val) -> Val:
    """0 ** w is 0 where w is real and positive, else NaN (0 ** 0 = 1 is whole)."""
    zero = z.re.eq(0) & z.im.eq(0)
    value = select((w.re > 0) & w.im.eq(0), w.re.const(0), math.nan)
    return select(zero, pair(value, value), otherwise)


def _whole_power(z: Val, n: Val) -> Val:
    """z ** n for a whole number |n| < 128."""
    count = n.abs()
    result, base = pair(n.const(1), 0.0), z
    for k in range(7):
        half = (count * 0.5).trunc()
        odd = count.ne(half + half)
        result = select(odd, base if k == 0 else multiply(result, base), result)
        base, count = square(base), half
    return select(n < 0, reciprocal(result), result)


# Hyperbolic and circular functions


def _sinh_cosh(x: Val, limit: float) -> tuple[Val, Val, Val]:
    """(s, c, f): sinh|x| = s * f and cosh x = c * f; f is 1 up to the limit, where s = c to all digits."""
    far = x.abs() > limit
    t = select(far, x.abs() * 0.5, x.abs()).expm1()
    e = t + 1
    s = select(far, e, t + t / e) * 0.5
    c = select(far, e, e + 1 / e) * 0.5
    return s, c, select(far, e, 1)


def sinh(z: Val) -> Val:
    x, y = z.parts
    s, c, f = _sinh_cosh(x, _by_size(x, 40.0, 80.0))
    re = select(x.eq(0), x, s.copysign(x) * y.cos() * f)
    im = select(y.eq(0), y, c * y.sin() * f)
    return pair(select(isinf(x) & ~isfinite(y), x.abs(), re), im)


def cosh(z: Val) -> Val:
    x, y = z.parts
    s, c, f = _sinh_cosh(x, _by_size(x, 40.0, 80.0))
    re = c * y.cos() * f
    flat = x.eq(0) | y.eq(0)
    im = select(flat, x.copysign(x) * y.copysign(y) if False else x * 0 + y * 0, s.copysign(x) * y.sin() * f)
    return pair(select(isinf(x) & ~isfinite(y), math.inf, re), im)


def tanh(z: Val) -> Val:
    """(sinh x cosh x + i sin y cos y) / (sinh(x)**2 + cos(y)**2), with x clamped where the result has converged."""
    x, y = z.parts
    limit = _by_size(x, 40.0, 350.0)
    s, c, _ = _sinh_cosh(x.abs().minimum(limit), math.inf)
    sin, cos = y.sin(), y.cos()
    divisor = s * s + cos * cos
    far = x.abs() > limit
    turn = select(isinf(x) & ~isfinite(y), 0, sin * cos)
    re = select(far, 1, s * c / divisor).copysign(x)
    im = select(far, turn * 0, turn / divisor)
    return pair(re, select(y.eq(0), y, im))


sin = _turned(sinh)
tan = _turned(tanh)


def cos(z: Val) -> Val:
    return cosh(_times_i(z))


# Inverse functions (Kahan 1987)


def arcsin(z: Val) -> Val:
    x, y = z.parts
    a, b = sqrt(pair(1 - x, -y)), sqrt(pair(1 + x, y))
    re = x.atan2(a.re * b.re - a.im * b.im)
    im = (a.re * b.im - a.im * b.re).asinh()
    return pair(re, im)


def arccos(z: Val) -> Val:
    x, y = z.parts
    a, b = sqrt(pair(1 - x, -y)), sqrt(pair(1 + x, y))
    re = 2 * a.re.atan2(b.re)
    im = (b.re * a.im - b.im * a.re).asinh()
    return pair(re, im)


def arccosh(z: Val) -> Val:
    x, y = z.parts
    a, b = sqrt(pair(x - 1, y)), sqrt(pair(x + 1, y))
    re = (a.re * b.re + a.im * b.im).asinh()
    im = 2 * a.im.atan2(b.re)
    return pair(re, im)


arcsinh = _turned(arcsin)


def arctanh(z: Val) -> Val:
    x, y = z.parts
    ax = x.abs()
    gap = 1 - ax
    re = (4 * ax / (gap * gap + y * y)).log1p() * 0.25
    near = ax.eq(1) & (y.abs() < _by_size(x, 1e-15, 1e-150))
    re = select(near, (math.log(2) - y.abs().log()) * 0.5, re)
    im = y.atan2(0.5 * (gap * (1 + ax) - y * y)) * 0.5
    infinite = isinf(x) | isinf(y)
    re = select(infinite, 0, re).copysign(x)
    return pair(re, select(infinite, x.const(math.pi / 2).copysign(y), im))


arctan = _turned(arctanh)
