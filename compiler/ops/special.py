"""Functions of `scipy.special`: formulas of real floats in primitives, and derivatives, a row each.

Formulas with series work in float64 whatever they are given. Sources: Abramowitz and Stegun, Handbook of Mathematical
Functions, 1964, chapters 6, 7 and 9; Clenshaw, Chebyshev series for mathematical functions, 1962; Shepherd and
Laframboise, Chebyshev approximation of (1 + 2x) exp(x**2) erfc(x), 1981; Wichura, Algorithm AS 241, 1988.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NamedTuple, TypeAlias

from ..core.types import FLOAT64
from ..kernel.body_builder import KernelValue, kernel_select
from . import derivatives as d
from . import special_coefficients as series
from .derivatives import Term, where_term
from .real import isnan_formula

Formula: TypeAlias = Callable[..., KernelValue]
Numbers: TypeAlias = Sequence[float]


def scipy_function(name: str) -> Callable[..., Any]:
    """What the row means: SciPy's own function, which is there where a program calls it."""
    return lambda *args: getattr(import_module("scipy.special"), name)(*args)


def _in_float64(formula: Formula) -> Formula:
    @functools.wraps(formula)
    def compute_in_float64(*args: KernelValue) -> KernelValue:
        return formula(*(x.cast(FLOAT64) for x in args)).cast(args[0].dtype)

    return compute_in_float64


def _chebyshev(t: KernelValue, coefficients: Sequence[Any]) -> KernelValue:
    """The series at t in [-1, 1] (Clenshaw 1955). Coefficients: numbers or values."""
    twice = t + t
    after, last = coefficients[-1], twice * coefficients[-1] + coefficients[-2]
    for c in coefficients[-3:0:-1]:
        after, last = last, twice * last - after + c
    found: KernelValue = t * last - after + coefficients[0]
    return found


def _chebyshev_of_either(
    is_near: KernelValue, near: KernelValue, far: KernelValue, coefficients: tuple[Numbers, Numbers]
) -> KernelValue:
    """The first series at `near` or the second at `far`."""
    length = max(map(len, coefficients))
    padded = [(*c, *(0.0,) * (length - len(c))) for c in coefficients]
    chosen = [kernel_select(is_near, is_near.body.const(a, FLOAT64), b) for a, b in zip(*padded, strict=True)]
    return _chebyshev(kernel_select(is_near, near, far), chosen)


def _polynomial(x: KernelValue, coefficients: Numbers) -> KernelValue:
    """By powers from the lowest, by Horner's rule."""
    *rest, last = coefficients
    found = x * last + rest.pop()
    for c in reversed(rest):
        found = x * found + c
    return found


# The gamma function and its relatives


def _is_pole_of_gamma(x: KernelValue) -> KernelValue:
    return (x <= 0) & x.floor().eq(x)


def _gamma(x: KernelValue) -> KernelValue:
    return x.tgamma()


def _reciprocal_gamma(x: KernelValue) -> KernelValue:
    small = kernel_select(x > 170, (-x.lgamma()).exp(), 1 / x.tgamma())
    return kernel_select(_is_pole_of_gamma(x), 0, small)


def _digamma(x: KernelValue) -> KernelValue:
    """A series around its root on [1, 2], which others are shifted or reflected to, and an asymptotic one beyond."""
    z = kernel_select(x < 0, 1 - x, x)
    w = kernel_select(z < 1, z + 1, z)
    root, rest = series.DIGAMMA_ROOT
    near = _chebyshev(w + w - 3, series.DIGAMMA) * (w - root - rest)
    shifted, before = w + 8, 1 / w
    for k in range(1, 8):
        before = before + 1 / (w + k)
    inverse = 1 / (shifted * shifted)
    tail = inverse * _polynomial(inverse, (1 / 12, -1 / 120, 1 / 252, -1 / 240, 5 / 660, -691 / 32760))
    far = shifted.log() - 0.5 / shifted - tail - before
    found = kernel_select(w <= 2, near, far)
    found = kernel_select(z < 1, found - 1 / z, found)
    turn = (x - x.rint()) * math.pi
    left = kernel_select(turn.eq(0), x.const(math.nan), found - math.pi / turn.tan())
    return kernel_select(x < 0, left, found)


def _stirling_rest(x: KernelValue) -> KernelValue:
    """log(gamma(x)) less (x - 1/2) log(x) - x + log(2 pi) / 2, from 10 on."""
    inverse = 1 / x
    series = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)
    return inverse * _polynomial(inverse * inverse, series)


def _log_of_large_beta(p: KernelValue, q: KernelValue, is_large: KernelValue) -> KernelValue:
    """log(abs(beta)) where p, if it is large, or else p + q, and q reach 10: what is large cancels in Stirling's series
    (DiDonato and Morris, Algorithm 708, 1992)."""
    total = p + q
    share = q * (-p / total).log1p()
    rest = _stirling_rest(q) - _stirling_rest(total)
    both = 0.5 * math.log(2 * math.pi) - 0.5 * q.log() + _stirling_rest(p) + (p - 0.5) * (p / total).log()
    one = p.lgamma() + p - p * total.log() - 0.5 * (-p / total).log1p()
    return kernel_select(is_large, both, one) + rest + share


def _rising_factorial(x: KernelValue, count: int) -> KernelValue:
    found = x
    for k in range(1, count):
        found = found * (x + k)
    return found


def _sine_of_pi(x: KernelValue) -> KernelValue:
    turns = x.rint()
    half = turns * 0.5
    return ((x - turns) * math.pi).sin() * kernel_select(half.floor() < half, x.const(-1.0), 1)


def _sign_of_gamma(x: KernelValue) -> KernelValue:
    half = x.floor() * 0.5
    return kernel_select((x < 0) & (half.floor() < half), x.const(-1.0), 1)


def _beta_parts(a: KernelValue, b: KernelValue) -> tuple[KernelValue, KernelValue]:
    """A factor, and the logarithm of what it is of: their product with the exponential is beta."""
    pole = kernel_select(_is_pole_of_gamma(a), a, b)
    other = kernel_select(_is_pole_of_gamma(a), b, a)
    whole = (
        _is_pole_of_gamma(pole) & (pole > -(2.0**31)) & other.floor().eq(other) & (1 - pole - other > 0)
    )  # reflected
    x, y = kernel_select(whole, 1 - pole - other, a), kernel_select(whole, other, b)
    infinite = _is_pole_of_gamma(x) | _is_pole_of_gamma(y)
    sign = kernel_select(whole & ((other * 0.5).floor() < other * 0.5), x.const(-1.0), 1)
    p, q = x.minimum(y), x.maximum(y)
    low = p <= -9  # gamma(p) / gamma(p + q) by their reflections
    sines = kernel_select(low, _sine_of_pi(p + q) / _sine_of_pi(p), 1)
    p = kernel_select(low, 1 - p - q, p)
    x, y = p.minimum(q), p.maximum(q)
    small = y < 20  # shifted by 20
    shifted = kernel_select(small, x + 20, x)
    log = _log_of_large_beta(shifted, kernel_select(small, y + 20, y), small | (x >= 10))
    shift = _rising_factorial(x + y, 40) / _rising_factorial(x, 20) / _rising_factorial(y, 20)
    factor = sign * sines * kernel_select(small, shift, _sign_of_gamma(x))
    log = kernel_select(y.eq(math.inf), x - x - x * math.inf, log)
    return kernel_select(infinite, sign, factor), kernel_select(infinite, p.const(math.inf), log)


def _beta(a: KernelValue, b: KernelValue) -> KernelValue:
    factor, log = _beta_parts(a, b)
    return factor * log.exp()


def _log_of_beta(a: KernelValue, b: KernelValue) -> KernelValue:
    factor, log = _beta_parts(a, b)
    return factor.abs().log() + log


# The normal distribution and erf


def _scaled_erfc(x: KernelValue) -> KernelValue:
    z = x.abs()
    right = _chebyshev(1 - 7.5 / (z + 3.75), series.ERFCX) / (1 + 2 * z)
    y = z.minimum(x.const(30.0))
    square = y * y
    power = square.exp() * (1 + y.fma(y, -square))
    return kernel_select(x < 0, 2 * power - right, right)


def _normal_distribution(x: KernelValue) -> KernelValue:
    t = x * math.sqrt(0.5)
    return kernel_select(t.abs() < 1, 0.5 + 0.5 * t.erf(), 0.5 * (-t).erfc())


def _log_of_normal_distribution(x: KernelValue) -> KernelValue:
    t = x * math.sqrt(0.5)
    left = (_scaled_erfc(-t) * 0.5).log() - t * t
    return kernel_select(x < -1, left, (t.erfc() * -0.5).log1p())


def _numbers(text: str) -> Numbers:
    return tuple(map(float, text.split()))


_QUANTILE_CENTRE = (
    _numbers(
        "3.3871328727963666080 133.14166789178437745 1971.5909503065514427 13731.693765509461125 "
        "45921.953931549871457 67265.770927008700853 33430.575583588128105 2509.0809287301226727"
    ),
    _numbers(
        "1 42.313330701600911252 687.18700749205790830 5394.1960214247511077 "
        "21213.794301586595867 39307.895800092710610 28729.085735721942674 5226.4952788528545610"
    ),
)
_QUANTILE_NEAR = (
    _numbers(
        "1.42343711074968357734 4.63033784615654529590 5.76949722146069140550 3.64784832476320460504 "
        "1.27045825245236838258 0.241780725177450611770 0.0227238449892691845833 7.74545014278341407640e-4"
    ),
    _numbers(
        "1 2.05319162663775882187 1.67638483018380384940 0.689767334985100004550 "
        "0.148103976427480074590 0.0151986665636164571966 5.47593808499534494600e-4 1.05075007164441684324e-9"
    ),
)
_QUANTILE_FAR = (
    _numbers(
        "6.65790464350110377720 5.46378491116411436990 1.78482653991729133580 0.296560571828504891230 "
        "0.0265321895265761230930 1.24266094738807843860e-3 2.71155556874348757815e-5 2.01033439929228813265e-7"
    ),
    _numbers(
        "1 0.599832206555887937690 0.136929880922735805310 0.0148753612908506148525 "
        "7.86869131145613259100e-4 1.84631831751005468180e-5 1.42151175831644588870e-7 2.04426310338993978564e-15"
    ),
)


def _quotient_of_polynomials(x: KernelValue, pair: tuple[Numbers, Numbers]) -> KernelValue:
    return _polynomial(x, pair[0]) / _polynomial(x, pair[1])


def _normal_quantile(centred: KernelValue, tail: KernelValue) -> KernelValue:
    """Of the probability 1/2 + centred, whose distance from the nearer of 0 and 1 is `tail` (AS 241)."""
    middle = centred * _quotient_of_polynomials(0.180625 - centred * centred, _QUANTILE_CENTRE)
    s = (-tail.log()).sqrt()
    near, far = _quotient_of_polynomials(s - 1.6, _QUANTILE_NEAR), _quotient_of_polynomials(s - 5, _QUANTILE_FAR)
    outer = kernel_select(s <= 5, near, kernel_select(tail.eq(0), tail.const(math.inf), far))
    return kernel_select(
        centred.abs() <= 0.425, middle, kernel_select(tail < 0, tail.const(math.nan), outer.copysign(centred))
    )


def _normal_quantile_of_probability(p: KernelValue) -> KernelValue:
    return _normal_quantile(p - 0.5, kernel_select(p < 0.5, p, 1 - p))


def _erf_inverse(y: KernelValue) -> KernelValue:
    return _normal_quantile(y * 0.5, (1 - y.abs()) * 0.5) * math.sqrt(0.5)


def _erfc_inverse(y: KernelValue) -> KernelValue:
    tail = kernel_select(y < 0, y.const(math.nan), kernel_select(y < 1, y, 2 - y) * 0.5)
    return _normal_quantile((1 - y) * 0.5, tail) * math.sqrt(0.5)


# Logistic functions and entropy


def _logit(x: KernelValue) -> KernelValue:
    s = 2 * (x - 0.5)
    return kernel_select((x >= 0.3) & (x <= 0.65), s.log1p() - (-s).log1p(), (x / (1 - x)).log())


def _log_of_expit(x: KernelValue) -> KernelValue:
    return kernel_select(x < 0, x, 0) - (-x.abs()).exp().log1p()


def _x_log_y(x: KernelValue, y: KernelValue) -> KernelValue:
    return kernel_select(x.eq(0) & ~isnan_formula(y), 0, x * y.log())


def _x_log1p_y(x: KernelValue, y: KernelValue) -> KernelValue:
    return kernel_select(x.eq(0) & ~isnan_formula(y), 0, x * y.log1p())


def _entropy(x: KernelValue) -> KernelValue:
    outside = kernel_select(x.eq(0), 0, kernel_select(x < 0, x.const(-math.inf), x))
    return kernel_select(x > 0, -x * x.log(), outside)


_LEAST_NORMAL = 2.0**-1022


def _nan_or_infinite(x: KernelValue, y: KernelValue) -> KernelValue:
    return kernel_select(isnan_formula(x) | isnan_formula(y), x.const(math.nan), math.inf)


def _relative_entropy(x: KernelValue, y: KernelValue) -> KernelValue:
    ratio = x / y
    log = kernel_select((ratio > 0.5) & (ratio < 2), ((x - y) / y).log1p(), ratio.log())
    log = kernel_select((ratio > _LEAST_NORMAL) & (ratio < math.inf), log, x.log() - y.log())
    outside = kernel_select(x.eq(0) & (y >= 0), 0, _nan_or_infinite(x, y))
    return kernel_select((x > 0) & (y > 0), x * log, outside)


def _divergence(x: KernelValue, y: KernelValue) -> KernelValue:
    outside = kernel_select(x.eq(0) & (y >= 0), y, _nan_or_infinite(x, y))
    return kernel_select((x > 0) & (y > 0), x * (x / y).log() - x + y, outside)


# Bessel functions


def _scaled_i(x: KernelValue, order: int) -> KernelValue:
    """exp(-|x|) I(x)."""
    z = x.abs()
    tables = ((series.I0_NEAR, series.I0_FAR), (series.I1_NEAR, series.I1_FAR))[order]
    found = _chebyshev_of_either(z <= 8, z * 0.25 - 1, 16 / z - 1, tables)
    if order:
        return kernel_select(z <= 8, found * x, (found / z.sqrt()).copysign(x))
    return kernel_select(z <= 8, found, found / z.sqrt())


def _modified_i(x: KernelValue, order: int) -> KernelValue:
    z = x.abs()
    return z.exp() * _scaled_i(x, order)


def _scaled_k(x: KernelValue, order: int) -> KernelValue:
    """exp(x) K(x)."""
    tables = ((series.K0_NEAR, series.K0_FAR), (series.K1_NEAR, series.K1_FAR))[order]
    found = _chebyshev_of_either(x <= 2, x * x * 0.5 - 1, 4 / x - 1, tables)
    small = x.exp()
    log = (x * 0.5).log() * small * _scaled_i(x, order)  # of I itself
    near = (found / x + log) if order else (found - log)
    found = kernel_select(x <= 2, near * small, found / x.sqrt())
    return kernel_select(x > 0, found, kernel_select(x.eq(0), x.const(math.inf), x.const(math.nan)))


def _modified_k(x: KernelValue, order: int) -> KernelValue:
    return kernel_select(x.eq(0), x.const(math.inf), _scaled_k(x, order) * (-x).exp())


def _hankel(z: KernelValue, order: int, second: bool) -> KernelValue:
    """J or Y beyond 8, by its modulus and phase. z: positive."""
    parts = ((series.P0, series.Q0), (series.P1, series.Q1))[order]
    inverse = 8 / z
    t = 2 * inverse * inverse - 1
    p, q = _chebyshev(t, parts[0]), _chebyshev(t, parts[1]) / z
    sine, cosine = z.sin(), z.cos()
    if order:
        cos_phase, sin_phase = sine - cosine, -(sine + cosine)
    else:
        cos_phase, sin_phase = cosine + sine, sine - cosine
    found = (p * sin_phase + q * cos_phase) if second else (p * cos_phase - q * sin_phase)
    return found / (z * math.pi).sqrt()


def _near_j(z: KernelValue, order: int) -> KernelValue:
    square = z * z
    low = z.fma(z, -square)  # what the square lacks: it counts beside a zero
    zeros = (series.J0_ZEROS_SQUARED, series.J1_ZEROS_SQUARED)[order]
    found = _chebyshev(square * (1 / 32) - 1, (series.J0_NEAR, series.J1_NEAR)[order])
    for high, rest in zeros:
        found = found * ((square - high) + (low - rest))
    return found * z if order else found


def _bessel_j(x: KernelValue, order: int) -> KernelValue:
    z = x.abs()
    found = kernel_select(z <= 8, _near_j(z, order), _hankel(z, order, second=False))
    return kernel_select(x < 0, -found, found) if order else found


def _bessel_y(x: KernelValue, order: int) -> KernelValue:
    rest = _chebyshev(x * x * (1 / 32) - 1, (series.Y0_NEAR, series.Y1_NEAR)[order])
    log = x.log() * _near_j(x, order)
    near = (log - 1 / x) * (2 / math.pi) + rest * x if order else log * (2 / math.pi) + rest
    found = kernel_select(x <= 8, near, _hankel(x, order, second=True))
    return kernel_select(x < 0, x.const(math.nan), kernel_select(x.eq(0), x.const(-math.inf), found))


# Powers and losses


def _exp10(x: KernelValue) -> KernelValue:
    return x.const(10.0).pow(x)


def _cosine_minus_1(x: KernelValue) -> KernelValue:
    half = (x * 0.5).sin()
    return -2 * half * half


def _relative_exponential(x: KernelValue) -> KernelValue:
    return kernel_select(x.abs() < 1e-18, 1, kernel_select(x.eq(math.inf), x, x.expm1() / x))


def _power_transform(log: KernelValue, power: KernelValue) -> KernelValue:
    """(exp(power log) - 1) / power, and its limit where power is 0."""
    return kernel_select(power.abs() < 1e-19, log, (power * log).expm1() / power)


def _boxcox(x: KernelValue, power: KernelValue) -> KernelValue:
    return _power_transform(x.log(), power)


def _boxcox1p(x: KernelValue, power: KernelValue) -> KernelValue:
    return _power_transform(x.log1p(), power)


def _log_of_inverse_boxcox(y: KernelValue, power: KernelValue) -> KernelValue:
    product = power * y
    return kernel_select(product.eq(math.inf), power.abs().log() + y.abs().log(), product.log1p()) / power


def _inverse_boxcox(y: KernelValue, power: KernelValue) -> KernelValue:
    return kernel_select(power.eq(0), y.exp(), _log_of_inverse_boxcox(y, power).exp())


def _inverse_boxcox1p(y: KernelValue, power: KernelValue) -> KernelValue:
    return kernel_select(power.eq(0), y.expm1(), _log_of_inverse_boxcox(y, power).expm1())


def _huber(bound: KernelValue, residual: KernelValue) -> KernelValue:
    size = residual.abs()
    found = kernel_select(size <= bound, 0.5 * residual * residual, bound * (size - 0.5 * bound))
    return kernel_select(bound < 0, bound.const(math.inf), found)


def _pseudo_huber(bound: KernelValue, residual: KernelValue) -> KernelValue:
    ratio = residual / bound
    found = bound * bound * (0.5 * (ratio * ratio).log1p()).expm1()
    found = kernel_select(bound.eq(0) | residual.eq(0), 0, found)
    return kernel_select(bound < 0, bound.const(math.inf), found)


# Derivatives

_ROOT_TWO_PI = math.sqrt(2 * math.pi)


def _trigamma_term(x: Term) -> Term:
    """The derivative of digamma, differentiable again: reflected for x < 1/2, shifted by 8, then asymptotic."""
    left = d.less(x, 0.5)
    z = where_term(left, 1 - x, x)
    shifted, found = z + 8, 1 / (z * z)
    for k in range(1, 8):
        found = found + 1 / ((z + k) * (z + k))
    w = 1 / (shifted * shifted)
    tail = w * (1 / 6 - w * (1 / 30 - w * (1 / 42 - w * (1 / 30 - w * (5 / 66 - w * (691 / 2730))))))
    found = found + (1 + 0.5 / shifted + tail) / shifted
    sine = d.sin((x - x.map("rint")) * math.pi)
    return where_term(left, math.pi**2 / (sine * sine) - found, found)


def _relative_exponential_slope(x: Term) -> Term:
    """The derivative of (exp(x) - 1) / x, by its power series near 0."""
    small = d.less(x.map("absolute"), 1.0)
    near: Any = 0.0
    inside = where_term(small, x, 0.0)
    for k in range(17, -1, -1):
        near = inside * near + (k + 1) / math.factorial(k + 2)
    far = where_term(small, 1.0, x)
    return where_term(small, near, (far.map("exprel") * (far - 1) + 1) / far)


def _inverse_boxcox_slope(u: Term) -> Term:
    """1 / (u (1 + u)) - log(1 + u) / u**2, by its power series near 0."""
    small = d.less(u.map("absolute"), 0.1)
    near: Any = 0.0
    inside = where_term(small, u, 0.0)
    for k in range(20, -1, -1):
        near = inside * near + (-1) ** (k + 1) * (k + 1) / (k + 2)
    far = where_term(small, 1.0, u)
    return where_term(small, near, (1 / (1 + far) - far.map("log1p") / far) / far)


def _bell_term(x: Term) -> Term:
    x = d.clip(x, -d.FLAT, d.FLAT)
    return d.exp(x * x * -0.5) * (1 / _ROOT_TWO_PI)


def _over_argument(x: Term, r: Term, sign: float = 1.0) -> Term:
    """I1(x) / x, and J1(x) / x with sign -1: by its power series near 0, where its derivatives would cancel."""
    small = d.less(x.map("absolute"), 0.05)
    inside = where_term(small, x, 0.0)
    square = inside * inside
    near = 0.5 + square * (sign / 16 + square * (1 / 384 + square * (sign / 18432)))
    return where_term(small, near, r / where_term(small, 1.0, x))


def _scaled_over_argument(x: Term, r: Term) -> Term:
    small = d.less(x.map("absolute"), 0.05)
    decay = d.exp(-x.map("absolute"))
    return where_term(small, _over_argument(where_term(small, x, 0.0), r) * decay, r / where_term(small, 1.0, x))


def _inverse_boxcox_by_power(y: Term, power: Term) -> Term:
    return y * y * _inverse_boxcox_slope(power * y)


def _pseudo_huber_root(bound: Term, residual: Term) -> Term:
    ratio = residual / bound
    return d.sqrt(1 + ratio * ratio)


def _pseudo_huber_by_bound(bound: Term, residual: Term) -> Term:
    root = _pseudo_huber_root(bound, residual)
    return 2 * bound * (root - 1) - residual * residual / (bound * root)


class SpecialFunction(NamedTuple):
    """A row: its formula, flop-equivalents an element, the derivative by each argument, whether it is computed in
    float64 for narrower types too, and whether it is `odd`, `even` or neither."""

    formula: Formula
    cost: float
    partials: tuple[Callable[..., Term], ...]
    in_float64: bool = False
    parity: str = ""

    @property
    def expansion(self) -> Formula:
        return _in_float64(self.formula) if self.in_float64 else self.formula


def _of_order(formula: Callable[..., KernelValue], order: int) -> Formula:
    return lambda x: formula(x, order)


# By SciPy's names. The partials follow (tangent, *arguments, result).
SPECIAL_FUNCTIONS: dict[str, SpecialFunction] = {
    "gamma": SpecialFunction(_gamma, 60, (lambda t, x, r: t * r * x.map("psi"),), True),
    "rgamma": SpecialFunction(_reciprocal_gamma, 90, (lambda t, x, r: -t * r * x.map("psi"),), True),
    "psi": SpecialFunction(_digamma, 160, (lambda t, x, r: t * _trigamma_term(x),), True),
    "beta": SpecialFunction(
        _beta,
        300,
        (
            lambda t, a, b, r: t * r * (a.map("psi") - (a + b).map("psi")),
            lambda t, a, b, r: t * r * (b.map("psi") - (a + b).map("psi")),
        ),
        True,
    ),
    "betaln": SpecialFunction(
        _log_of_beta,
        300,
        (
            lambda t, a, b, r: t * (a.map("psi") - (a + b).map("psi")),
            lambda t, a, b, r: t * (b.map("psi") - (a + b).map("psi")),
        ),
        True,
    ),
    "erfcx": SpecialFunction(_scaled_erfc, 110, (lambda t, x, r: t * (2 * x * r - 2 / math.sqrt(math.pi)),), True),
    "erfinv": SpecialFunction(
        _erf_inverse, 90, (lambda t, y, r: t * d.exp(r * r) * (math.sqrt(math.pi) / 2),), True, "odd"
    ),
    "erfcinv": SpecialFunction(
        _erfc_inverse, 90, (lambda t, y, r: -t * d.exp(r * r) * (math.sqrt(math.pi) / 2),), True
    ),
    "ndtr": SpecialFunction(_normal_distribution, 40, (lambda t, x, r: t * _bell_term(x),), True),
    "ndtri": SpecialFunction(
        _normal_quantile_of_probability, 90, (lambda t, p, r: t * d.exp(r * r * 0.5) * _ROOT_TWO_PI,), True
    ),
    "log_ndtr": SpecialFunction(
        _log_of_normal_distribution,
        180,
        (lambda t, x, r: t * math.sqrt(2 / math.pi) / (x * -math.sqrt(0.5)).map("erfcx"),),
        True,
    ),
    "logit": SpecialFunction(_logit, 40, (lambda t, x, r: t / (x * (1 - x)),)),
    "log_expit": SpecialFunction(_log_of_expit, 30, (lambda t, x, r: t * (-x).map("sigmoid"),)),
    "entr": SpecialFunction(_entropy, 16, (lambda t, x, r: -t * (d.log(x) + 1),)),
    "xlogy": SpecialFunction(_x_log_y, 16, (lambda t, x, y, r: t * d.log(y), lambda t, x, y, r: t * x / y)),
    "xlog1py": SpecialFunction(
        _x_log1p_y, 18, (lambda t, x, y, r: t * y.map("log1p"), lambda t, x, y, r: t * x / (1 + y))
    ),
    "rel_entr": SpecialFunction(
        _relative_entropy, 50, (lambda t, x, y, r: t * (d.log(x / y) + 1), lambda t, x, y, r: -t * x / y), True
    ),
    "kl_div": SpecialFunction(
        _divergence, 52, (lambda t, x, y, r: t * d.log(x / y), lambda t, x, y, r: t * (1 - x / y)), True
    ),
    "i0": SpecialFunction(_of_order(_modified_i, 0), 150, (lambda t, x, r: t * x.map("i1"),), True, "even"),
    "i1": SpecialFunction(
        _of_order(_modified_i, 1), 150, (lambda t, x, r: t * (x.map("i0") - _over_argument(x, r)),), True, "odd"
    ),
    "i0e": SpecialFunction(
        _of_order(_scaled_i, 0), 130, (lambda t, x, r: t * (x.map("i1e") - d.sign(x) * r),), True, "even"
    ),
    "i1e": SpecialFunction(
        _of_order(_scaled_i, 1),
        130,
        (lambda t, x, r: t * (x.map("i0e") - d.sign(x) * r - _scaled_over_argument(x, r)),),
        True,
        "odd",
    ),
    "k0": SpecialFunction(_of_order(_modified_k, 0), 320, (lambda t, x, r: -t * x.map("k1"),), True),
    "k1": SpecialFunction(_of_order(_modified_k, 1), 320, (lambda t, x, r: -t * (x.map("k0") + r / x),), True),
    "k0e": SpecialFunction(_of_order(_scaled_k, 0), 300, (lambda t, x, r: t * (r - x.map("k1e")),), True),
    "k1e": SpecialFunction(_of_order(_scaled_k, 1), 300, (lambda t, x, r: t * (r - r / x - x.map("k0e")),), True),
    "j0": SpecialFunction(_of_order(_bessel_j, 0), 220, (lambda t, x, r: -t * x.map("j1"),), True, "even"),
    "j1": SpecialFunction(
        _of_order(_bessel_j, 1), 220, (lambda t, x, r: t * (x.map("j0") - _over_argument(x, r, -1.0)),), True, "odd"
    ),
    "y0": SpecialFunction(_of_order(_bessel_y, 0), 300, (lambda t, x, r: -t * x.map("y1"),), True),
    "y1": SpecialFunction(_of_order(_bessel_y, 1), 300, (lambda t, x, r: t * (x.map("y0") - r / x),), True),
    "exp10": SpecialFunction(_exp10, 30, (lambda t, x, r: t * r * d.LN10,)),
    "cosm1": SpecialFunction(_cosine_minus_1, 20, (lambda t, x, r: -t * d.sin(x),), parity="even"),
    "exprel": SpecialFunction(_relative_exponential, 20, (lambda t, x, r: t * _relative_exponential_slope(x),), True),
    "boxcox": SpecialFunction(
        _boxcox,
        40,
        (
            lambda t, x, power, r: t * d.exp(power * d.log(x)) / x,
            lambda t, x, power, r: t * d.log(x) * d.log(x) * _relative_exponential_slope(power * d.log(x)),
        ),
        True,
    ),
    "boxcox1p": SpecialFunction(
        _boxcox1p,
        40,
        (
            lambda t, x, power, r: t * d.exp(power * x.map("log1p")) / (1 + x),
            lambda t, x, power, r: (
                t * x.map("log1p") * x.map("log1p") * _relative_exponential_slope(power * x.map("log1p"))
            ),
        ),
        True,
    ),
    "inv_boxcox": SpecialFunction(
        _inverse_boxcox,
        40,
        (
            lambda t, y, power, r: t * r / (1 + power * y),
            lambda t, y, power, r: t * r * _inverse_boxcox_by_power(y, power),
        ),
        True,
    ),
    "inv_boxcox1p": SpecialFunction(
        _inverse_boxcox1p,
        40,
        (
            lambda t, y, power, r: t * (r + 1) / (1 + power * y),
            lambda t, y, power, r: t * (r + 1) * _inverse_boxcox_by_power(y, power),
        ),
        True,
    ),
    "huber": SpecialFunction(
        _huber,
        8,
        (
            lambda t, bound, x, r: t * d.clip(x.map("absolute") - bound, 0.0, math.inf),
            lambda t, bound, x, r: t * x.map("maximum", -bound).map("minimum", bound),
        ),
    ),
    "pseudo_huber": SpecialFunction(
        _pseudo_huber,
        40,
        (
            lambda t, bound, x, r: t * _pseudo_huber_by_bound(bound, x),
            lambda t, bound, x, r: t * x / _pseudo_huber_root(bound, x),
        ),
        True,
    ),
}
