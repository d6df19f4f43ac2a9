"""Functions that are written inline rather than called from a library. (name, element type) -> formula over values.

Branch-free over whole vectors, over the full range and with the special values of C. Method: reduction to a small
interval in two or three steps with fma (Cody and Waite 1980), a polynomial there, reconstruction. The coefficients are
minimax fits of this project (Lawson's weighted least squares, 1961, in 60 digits, then rounded), whose error is given
beside each. Arguments that the reduction does not reach go to the C library, lane by lane.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from .llvm_ir import UNLIKELY, LlvmValue, llvm_intrinsic_suffix
from .vector_libm import llvm_libm_call

INF, NAN = math.inf, math.nan
LOG2E, LN2, PI = 1 / math.log(2), math.log(2), math.pi


def llvm_horner(x: LlvmValue, coefficients: Sequence[float]) -> LlvmValue:
    """The polynomial with these coefficients, lowest power first."""
    result = x.fma(coefficients[-1], coefficients[-2])
    for c in reversed(coefficients[:-2]):
        result = result.fma(x, c)
    return result


def llvm_polynomial(x: LlvmValue, coefficients: Sequence[float]) -> LlvmValue:
    """`llvm_horner` in x * x of pairs: one product more, and half as many steps that wait for each other."""
    pairs = [x.fma(high, low) for low, high in zip(coefficients[::2], coefficients[1::2], strict=False)]
    odd = [x.f.const(coefficients[-1], x.elem, x.lanes)] * (len(coefficients) % 2)
    square = x * x
    *rest, result = pairs + odd
    for pair in reversed(rest):
        result = result.fma(square, pair)
    return result


def _llvm_split_float64_sum(value: float, rest: float) -> tuple[float, float]:
    """value + rest as a float32 and the float32 nearest to what it leaves."""
    high = float(np.float32(value))
    return high, float(np.float32(value - high + rest))


# Rounding to an integer by adding a large number leaves the integer in the low bits of the sum.
MAGIC = {"float": 1.5 * 2.0**23, "double": 1.5 * 2.0**52}
MANTISSA = {"float": 23, "double": 52}
BIAS = {"float": 127, "double": 1023}
# The same with the bias of an exponent, so that a shift alone makes a power of two; twice for a product of two.
ONCE, TWICE = ({elem: MAGIC[elem] + times * BIAS[elem] for elem in MAGIC} for times in (1, 2))


def llvm_scale_by_power_of_two(y: LlvmValue, n: LlvmValue, magic: LlvmValue) -> LlvmValue:
    """y * 2**n, rounded once (y about 1); n is a whole number, `magic` the sum of TWICE that it was rounded by."""
    if _llvm_has_scalef(y):
        return _llvm_scalef(y, n)
    first, second = _llvm_two_powers_of_two(magic)
    return y * first * second


def llvm_scale_one_plus(t: LlvmValue, n: LlvmValue, magic: LlvmValue) -> LlvmValue:
    """(1 + t) * 2**n, rounded as `scale` of the rounded sum."""
    if _llvm_has_scalef(t):
        return _llvm_scalef(t + 1.0, n)
    first, second = _llvm_two_powers_of_two(magic)
    return t.fma(first, first) * second


def _llvm_two_powers_of_two(magic: LlvmValue) -> tuple[LlvmValue, LlvmValue]:
    """Two powers of two whose product is 2**n, and which are normal numbers where that is not."""
    whole, digits = magic.as_int(), MANTISSA[magic.elem]
    half = whole.binary("lshr", 1)
    return (half << digits).as_float(), ((whole - half) << digits).as_float()


def _llvm_has_scalef(y: LlvmValue) -> bool:
    """Whether the machine has an instruction for it."""
    return y.f.module.vector_library == "libmvec-avx512" and y.lanes == {"float": 16, "double": 8}[y.elem]


def _llvm_scalef(y: LlvmValue, n: LlvmValue) -> LlvmValue:
    name, mask = f"@llvm.x86.avx512.mask.scalef.p{y.elem[0].replace('f', 's')}.512", f"i{y.lanes}"
    y.f.module.declare(name, f"{y.kind} {name}({y.kind}, {y.kind}, {y.kind}, {mask}, i32)")
    args = f"{y.typed}, {n.typed}, {y.kind} zeroinitializer, {mask} -1, i32 4"
    return y.f.let(f"call {y.kind} {name}({args})", y.elem, y.lanes)


def llvm_power_of_two(magic: LlvmValue) -> LlvmValue:
    """2**n for an integer n of a normal result; `magic` is the sum of ONCE that it was rounded by."""
    return (magic.as_int() << MANTISSA[magic.elem]).as_float()


def llvm_clamp(x: LlvmValue, low: float, high: float) -> LlvmValue:
    """x within [low, high]; NaN stays (the comparison's other side is given)."""
    below = x.f.const(low, x.elem, x.lanes)
    return llvm_clamp_above((below > x).pick(below, x), high)


def llvm_clamp_above(x: LlvmValue, high: float) -> LlvmValue:
    """x, but no more than `high`; NaN stays."""
    above = x.f.const(high, x.elem, x.lanes)
    return (above < x).pick(above, x)


# exponentials

LN2_32, LN2_64 = (
    _llvm_split_float64_sum(LN2, 2.3190468138462996e-17),
    (6.93147180369123816490e-01, 1.90821492927058770002e-10),
)
# (e^r - 1 - r) / r^2 on |r| <= ln2 / 2: 2^-27.6 of e^r, 2^-28.7 of e^r - 1, 2^-56.8 of e^r
EXP_32 = (0.5, 0.166665122, 0.0416661873, 0.00836959854, 0.00139517151)
EXPM1_32 = (0.5, 0.166666657, 0.0416663475, 0.00833339151, 0.00139416556, 0.000198460169)
EXP_64 = (
    *(0.5000000000000013, 0.16666666666666693, 0.04166666666651379, 0.008333333333309847, 0.001388888894744469),
    *(0.00019841269912111134, 2.480148949071582e-05, 2.755722072022054e-06, 2.7631445009721176e-07),
    2.5116532437408964e-08,
)
# (2^r - 1) / r on |r| <= 1/2: 2^-26 of 2^r
EXP2_32 = (0.693147182, 0.240226507, 0.0555032715, 0.00961800758, 0.00134005793, 0.000154753885)


def llvm_reduce_exp_argument(
    x: LlvmValue, ln2: tuple[float, float], add: float
) -> tuple[LlvmValue, LlvmValue, LlvmValue]:
    """(r, n, n + add) with x = n ln2 + r; add: a magic number."""
    magic = x.fma(LOG2E, add)
    n = magic - add
    return n.fma(-ln2[1], n.fma(-ln2[0], x)), n, magic


def llvm_zero_below(x: LlvmValue, low: float, high: float, formula: Callable[[LlvmValue], LlvmValue]) -> LlvmValue:
    """The formula of x up to `high`, 0 below `low`: a result that underflows costs a core a hundred times as much, and
    a softmax with a mask has many."""
    none = x < low
    y = formula(none.pick(0.0, llvm_clamp_above(x, high)))
    return none.pick(0.0, y)


EXP = {"float": (LN2_32, EXP_32, -104.0, 89.0), "double": (LN2_64, EXP_64, -745.2, 710.0)}


def llvm_exp(x: LlvmValue) -> LlvmValue:
    ln2, coefficients, low, high = EXP[x.elem]

    def exp_of_small_argument(x: LlvmValue) -> LlvmValue:
        r, n, magic = llvm_reduce_exp_argument(x, ln2, TWICE[x.elem])
        return llvm_scale_one_plus((r * r).fma(llvm_polynomial(r, coefficients), r), n, magic)

    return llvm_zero_below(x, low, high, exp_of_small_argument)


def llvm_exp2_f32(x: LlvmValue) -> LlvmValue:
    def exp2_of_small_argument(x: LlvmValue) -> LlvmValue:
        magic = x + TWICE["float"]
        n = magic - TWICE["float"]
        r = x - n
        return llvm_scale_by_power_of_two(r.fma(llvm_polynomial(r, EXP2_32), 1.0), n, magic)

    return llvm_zero_below(x, -151.0, 129.0, exp2_of_small_argument)


def llvm_expm1_f32(x: LlvmValue) -> LlvmValue:
    """2^n (e^r - 1) + (2^n - 1), halved on the way so that n = 128 does not overflow early."""
    r, _, magic = llvm_reduce_exp_argument(llvm_clamp(x, -18.0, 89.0), LN2_32, ONCE["float"] - 1)
    p = (r * r).fma(llvm_polynomial(r, EXPM1_32), r)
    half = llvm_power_of_two(magic)
    return x.eq(0.0).pick(x, half.fma(p, half - 0.5) * 2.0)


# logarithms

SQRT_HALF_32, SQRT_HALF_64 = 0x3F3504F3, 0x3FE6A09E667F3BCD
# (log(1+r) - r + r^2/2) / r^3 on [sqrt 1/2, sqrt 2]: 2^-26.9 of log(1+r)
LOG_32 = (
    *(0.333333313, -0.250008225, 0.200012267, -0.166233554, 0.142017677, -0.131602108, 0.127615154),
    -0.0763434395,
)
# (2 atanh(s) - 2 s) / s^3 in s^2, s = r / (2 + r): 2^-57.9
LOG_64 = (
    *(0.6666666666666734, 0.3999999999941466, 0.2857142874239106, 0.2222219857287634, 0.18183564340485855),
    *(0.1531405021647604, 0.14795952807829227),
)


def llvm_reduce_log_argument(x: LlvmValue) -> tuple[LlvmValue, LlvmValue]:
    """(m, e) with x = m 2^e and m in [sqrt 1/2, sqrt 2), for positive finite x; e as a float."""
    elem, digits = x.elem, MANTISSA[x.elem]
    tiny = x < 2.0 ** (2 - BIAS[elem])
    raw = tiny.pick(x * 2.0**digits, x).as_int()
    root = SQRT_HALF_32 if elem == "float" else SQRT_HALF_64
    e = (raw - root) >> digits
    m = (raw - (e << digits)).as_float()
    return m, tiny.pick(e - digits, e).to("sitofp", elem)


def llvm_special_log_values(x: LlvmValue, y: LlvmValue) -> LlvmValue:
    """y with the values of a logarithm at 0, below it, and at infinity and NaN."""
    y = (x < INF).pick(y, x)
    y = x.eq(0.0).pick(-INF, y)
    return (x < 0.0).pick(NAN, y)


def llvm_log_tail_f32(r: LlvmValue) -> LlvmValue:
    """log(1+r) - r."""
    square = r * r
    return square.fma(-0.5, square * r * llvm_polynomial(r, LOG_32))


def llvm_log_f32(x: LlvmValue) -> LlvmValue:
    m, e = llvm_reduce_log_argument(x)
    r = m - 1.0
    return llvm_special_log_values(x, e.fma(LN2_32[0], e.fma(LN2_32[1], llvm_log_tail_f32(r)) + r))


def llvm_log2_f32(x: LlvmValue) -> LlvmValue:
    m, e = llvm_reduce_log_argument(x)
    r = m - 1.0
    high, low = _llvm_split_float64_sum(LOG2E, 0.0)
    return llvm_special_log_values(x, e + r.fma(high, llvm_log_tail_f32(r).fma(high, r * low)))


def llvm_log10_f32(x: LlvmValue) -> LlvmValue:
    m, e = llvm_reduce_log_argument(x)
    r = m - 1.0
    (high, low), (two_high, two_low) = (
        _llvm_split_float64_sum(1 / math.log(10), 0.0),
        _llvm_split_float64_sum(math.log10(2), 0.0),
    )
    tail = llvm_log_tail_f32(r).fma(high, r.fma(low, e * two_low))
    return llvm_special_log_values(x, e.fma(two_high, r.fma(high, tail)))


def llvm_log1p_f32(x: LlvmValue) -> LlvmValue:
    """log(u) of u = 1 + x rounded, put right by the first order of what u lost."""
    u = x + 1.0
    m, e = llvm_reduce_log_argument(u)
    lost = (x > 1.0).pick(1.0 - (u - x), x - (u - 1.0)) / u
    r = m - 1.0
    y = e.fma(LN2_32[0], e.fma(LN2_32[1], llvm_log_tail_f32(r) + lost) + r)
    return (x.abs() < 2.0**-24).pick(x, llvm_special_log_values(u, y))


def llvm_log_f64(x: LlvmValue) -> LlvmValue:
    """k ln2 + r - (r^2/2 - s (r^2/2 + R(s^2) s^2)), s = r / (2 + r) (fdlibm, Sun Microsystems 1993)."""
    m, e = llvm_reduce_log_argument(x)
    r = m - 1.0
    s = r / (r + 2.0)
    z = s * s
    half = r * r * 0.5
    tail = s.fma(half + z * llvm_polynomial(z, LOG_64), e * LN2_64[1])
    return llvm_special_log_values(x, e.fma(LN2_64[0], r - (half - tail)))


# sine and cosine

PI_32 = (3.14159274, -8.74227766e-08, -3.43024902e-15)
PI_64 = (math.pi, 1.2246467991473532e-16, -2.9947698097183397e-33)
# (sin(r)/r - 1) / r^2 in r^2 on |r| <= pi/2: 2^-26.4 and 2^-57.7 of sin(r)
SIN_32 = (-0.166666597, 0.00833306555, -0.000198095353, 2.60562547e-06)
SIN_64 = (
    *(-0.16666666666666666, 0.008333333333333194, -0.0001984126984120917, 2.755731921112894e-06),
    *(-2.5052106872044307e-08, 1.6058939667827675e-10, -7.642990495763529e-13, 2.7211644466878612e-15),
)
SIN = {"float": (PI_32, SIN_32, 105000.0), "double": (PI_64, SIN_64, 2.0**30)}


def llvm_sine_by_half_turns(x: LlvmValue, shift: float, name: str) -> LlvmValue:
    """sin(x) of q = round(x/pi) half turns, cos(x) (shift 1/2) of q = round(x/pi - 1/2) + 1/2: (-1)^n sin(x - q pi).

    The first step of the reduction is exact, so the result is good to the last place up to the bound; beyond it the
    C library is called for the lanes that need it.
    """
    f, elem = x.f, x.elem
    pi, coefficients, bound = SIN[elem]
    size = x.abs()
    magic = size.fma(1 / PI, -shift) + MAGIC[elem] if shift else size.fma(1 / PI, MAGIC[elem])
    n = magic - MAGIC[elem]
    q = n + shift if shift else n
    r = size
    for part in pi:
        r = q.fma(-part, r)
    square = r * r
    y = (r * square).fma(llvm_horner(square, coefficients), r)
    odd = magic.as_int() << (31 if elem == "float" else 63)
    top = -(2**31) if elem == "float" else -(2**63)
    sign = odd ^ top if shift else odd ^ (x.as_int() & top)
    y = (y.as_int() ^ sign).as_float()
    place = f.slot(y.kind)
    place.store(y, 64)
    large = size > bound
    with f.when(llvm_any_lane(large), UNLIKELY):
        place.store(large.pick(llvm_libm_call(name, large.pick(x, 0.0), scalar_only=True), y), 64)
    return place.load(elem, x.lanes, 64)


def llvm_any_lane(condition: LlvmValue) -> LlvmValue:
    """Whether an i1 holds in some lane."""
    if condition.lanes == 1:
        return condition
    return condition.f.let(f"bitcast {condition.typed} to i{condition.lanes}", f"i{condition.lanes}").ne(0)


# hyperbolic tangent, error function, power

# (tanh(x)/x - 1) / x^2 in x^2 on |x| <= 0.625: 2^-26.8
TANH_32 = (-0.333332807, 0.133314416, -0.0537397079, 0.0206390675, -0.00570496777)
# erf(x)/x - 1 in x^2 on |x| <= 0.93: 2^-25; -log(erfc(x)) on [0.92, 4]: 2^-27 of erf
ERF_SMALL_32 = (0.128379151, -0.376124799, 0.112816811, -0.0267616808, 0.00498589082, -0.000595351448)
ERF_LARGE_32 = (0.000195654749, 1.12767577, 0.637182057, 0.103931747, -0.0222269986, 0.00304323854, -0.000195939545)


def llvm_tanh_f32(x: LlvmValue) -> LlvmValue:
    size = x.abs()
    square = x * x
    small = (size * square).fma(llvm_horner(square, TANH_32), size)
    large = 1.0 - 2.0 / (llvm_exp(size * 2.0) + 1.0)
    return (size < 0.625).pick(small, large).apply("copysign", x)


def llvm_erf_f32(x: LlvmValue) -> LlvmValue:
    size = x.abs()
    square = x * x
    small = x.fma(llvm_polynomial(square, ERF_SMALL_32), x)
    capped = (x.f.const(4.0, "float", x.lanes) < size).pick(4.0, size)
    large = 1.0 - llvm_exp(-llvm_polynomial(capped, ERF_LARGE_32))
    return (size < 0.925).pick(small, large.apply("copysign", x))


# log2(m)/s in s^2, s = (m-1)/(m+1): 2^-36.3; 2^r on |r| <= 1/2: 2^-29
POW_LOG = (2.885390081790141, 0.9617966732841521, 0.5770835944623107, 0.4116722185954967, 0.3407383396101823)
POW_EXP = (
    *(1.000000000554213, 0.6931472057371113, 0.2402264689028914, 0.05550328777217318, 0.00961848899445095),
    *(0.0013399931138233395, 0.000153458019597435),
)


def llvm_pow_f32(x: LlvmValue, y: LlvmValue) -> LlvmValue:
    """2^(y log2 |x|) in float64, rounded once; then C's special cases."""
    lanes = max(x.lanes, y.lanes)
    x, y = x.splat(lanes), y.splat(lanes)
    size, wide = x.abs(), y.to("fpext", "double")
    raw = size.to("fpext", "double").as_int()
    e = (raw - SQRT_HALF_64) >> 52
    m = (raw - (e << 52)).as_float()
    s = (m - 1.0) / (m + 1.0)
    log = s.fma(llvm_polynomial(s * s, POW_LOG), e.to("sitofp", "double"))
    log = size.eq(0.0).pick(-INF, size.eq(INF).pick(INF, log))
    t = llvm_clamp(log * wide, -1000.0, 1000.0)
    magic = t + ONCE["double"]
    r = t - (magic - ONCE["double"])
    z = (llvm_polynomial(r, POW_EXP) * llvm_power_of_two(magic)).to("fptrunc", "float")
    whole = y.apply("trunc").eq(y)
    half = y * 0.5
    odd = whole & half.apply("trunc").ne(half) & (y.abs() < INF)
    negative = x.as_int() < 0
    z = ((x < 0.0) & (size < INF) & ~whole).pick(NAN, z)
    z = (odd & negative).pick(-z, z)
    z = (x.is_nan() | y.is_nan()).pick(NAN, z)
    minus_one = x.eq(-1.0) & y.abs().eq(INF)
    return (x.eq(1.0) | y.eq(0.0) | minus_one).pick(1.0, z)


def _llvm_math_helper_caller(write: Callable[..., LlvmValue], name: str) -> Callable[..., LlvmValue]:
    """A call of the helper function that holds the formula, at the lanes of its arguments."""

    def call_math_helper(*args: LlvmValue) -> LlvmValue:
        f, elem, lanes = args[0].f, args[0].elem, max(a.lanes for a in args)
        full = f"@{name}.{llvm_intrinsic_suffix(elem, lanes)}"
        f.module.function(full, elem, (elem,) * len(args), (lanes,) * len(args), write)
        return f.call(full, elem, *(a.splat(lanes) for a in args))

    return call_math_helper


_SIN = partial(llvm_sine_by_half_turns, shift=0.0, name="sin")
_COS = partial(llvm_sine_by_half_turns, shift=0.5, name="cos")
FORMULAS: list[tuple[str, str, Callable[..., LlvmValue]]] = [
    ("exp", "float", llvm_exp),
    ("exp", "double", llvm_exp),
    ("exp2", "float", llvm_exp2_f32),
    ("expm1", "float", llvm_expm1_f32),
    ("log", "float", llvm_log_f32),
    ("log", "double", llvm_log_f64),
    ("log2", "float", llvm_log2_f32),
    ("log10", "float", llvm_log10_f32),
    ("log1p", "float", llvm_log1p_f32),
    ("sin", "float", _SIN),
    ("sin", "double", _SIN),
    ("cos", "float", _COS),
    ("cos", "double", _COS),
    ("tanh", "float", llvm_tanh_f32),
    ("erf", "float", llvm_erf_f32),
    ("pow", "float", llvm_pow_f32),
]
FLOAT_MATH = {(name, elem): _llvm_math_helper_caller(write, name) for name, elem, write in FORMULAS}
