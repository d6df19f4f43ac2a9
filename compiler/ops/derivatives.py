"""The derivatives of elementwise rows: for each argument, what its tangent adds to the result's.

A formula is linear in its first operand, the tangent `t`, which the arguments and the result follow: that of `sin` is
`t * cos(x)`. One formula serves both modes, since a factor at each element is its own transpose, up to the conjugate.
Real formulas hold for complex numbers where the function is holomorphic; the others have a `Pair`. Sources: Abramowitz
and Stegun, Handbook of Mathematical Functions, 1964, sections 3.3, 4.2, 4.4, 4.6, 6.3, 7.1; for what is not
holomorphic Kreutz-Delgado, The Complex Gradient Operator and the CR-Calculus, 2009.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Self, TypeAlias


class Term:
    """A value of a graph that is being built, with Python's operators. builder: a GraphBuilder."""

    __slots__ = ("builder", "value")

    def __init__(self, builder: Any, value: Any) -> None:
        self.builder, self.value = builder, value

    def map(self, op: str, *others: Any) -> Self:
        """Row `op` on this and on others: terms, or numbers."""
        return type(self)(self.builder, self.builder.map(op, self.value, *map(derivative_formula_operand, others)))

    @property
    def is_complex(self) -> bool:
        return bool(self.value.dtype.kind == "c")

    def __add__(self, other: Any) -> Self:
        return self.map("add", other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Self:
        return self.map("subtract", other)

    def __rsub__(self, other: Any) -> Self:
        return type(self)(self.builder, self.builder.map("subtract", other, self.value))

    def __mul__(self, other: Any) -> Self:
        return self.map("multiply", other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Self:
        return self.map("approximate_divide", other)

    def __rtruediv__(self, other: Any) -> Self:
        return type(self)(self.builder, self.builder.map("approximate_divide", other, self.value))

    def __neg__(self) -> Self:
        return self.map("negative")


def derivative_formula_operand(x: Any) -> Any:
    """What a builder takes."""
    return x.value if isinstance(x, Term) else x


Formula: TypeAlias = Callable[..., Term]


# Plain classes: every start makes these rows, and a dataclass takes longer to make than all of them.


class Zero:
    """The result does not follow small changes of the arguments, almost everywhere."""

    __slots__ = ()


class Refused:
    """There is no derivative here. why: what to write."""

    __slots__ = ("why",)

    def __init__(self, why: str) -> None:
        self.why = why


class Pair:
    """What is linear over the reals alone: a formula for tangents, and its transpose, for cotangents."""

    __slots__ = ("cotangent", "tangent")

    def __init__(self, tangent: Formula, cotangent: Formula) -> None:
        self.tangent, self.cotangent = tangent, cotangent


Formulas: TypeAlias = tuple[Formula | Pair | None, ...]


class Partials:
    """formulas: one for each argument, None where its derivative is zero. complex: in their place for complex results
    or arguments. bounded: no partial is infinite or NaN where the function is finite at all near points."""

    __slots__ = ("bounded", "complex", "formulas")

    def __init__(self, formulas: Formulas, complex: Formulas | None = None, bounded: bool = False) -> None:
        self.formulas, self.complex, self.bounded = formulas, complex, bounded


class ByGraph:
    """The row has more than elements: its rule is in `compiler/derive`."""

    __slots__ = ()


Derivative: TypeAlias = Zero | Refused | Partials | ByGraph
ZERO, BY_GRAPH = Zero(), ByGraph()


def partial_derivative_formulas(*formulas: Formula | Pair | None, complex: Any = None) -> Partials:
    return Partials(formulas, complex)


def bounded_derivative_formulas(*formulas: Formula | Pair | None, complex: Any = None) -> Partials:
    """`partial_derivative_formulas` that are finite wherever the arguments are."""
    return Partials(formulas, complex, True)


def _derivative_term_function(op: str) -> Formula:
    return lambda x, *others: x.map(op, *others)


sin, cos, sinh, cosh, exp, exp2, log, sqrt = map(
    _derivative_term_function, ["sin", "cos", "sinh", "cosh", "exp", "exp2", "log", "sqrt"]
)
sign, floor_divide, conj, real, imag = map(
    _derivative_term_function, ["sign", "floor_divide", "conjugate", "real", "imag"]
)
equal, not_equal, less, greater, isfinite, isinf = map(
    _derivative_term_function, ["equal", "not_equal", "less", "greater", "isfinite", "isinf"]
)
logical_and, logical_or, ldexp, sigmoid, hypot, clip = map(
    _derivative_term_function, ["logical_and", "logical_or", "ldexp", "sigmoid", "hypot", "clip"]
)
LN2, LN10 = math.log(2), math.log(10)


def where_term(condition: Term, a: Any, b: Any) -> Term:
    return condition.map("where", a, b)


def complex_term(re: Any, im: Any) -> Term:
    """The complex number of two real terms, one of which may be 0."""
    known = re if isinstance(re, Term) else im
    zero = known.builder.const(0, known.value.dtype)
    builder = known.builder
    parts = [zero if not isinstance(x, Term) else x.value for x in (re, im)]
    return Term(builder, builder.map("complex", *parts))


# arithmetic

ADD = bounded_derivative_formulas(lambda t, x, y, r: t, lambda t, x, y, r: t)
SUBTRACT = bounded_derivative_formulas(lambda t, x, y, r: t, lambda t, x, y, r: -t)
MULTIPLY = partial_derivative_formulas(lambda t, x, y, r: t * y, lambda t, x, y, r: t * x)
DIVIDE = partial_derivative_formulas(lambda t, x, y, r: t / y, lambda t, x, y, r: -(t / y) * r)
REMAINDER = partial_derivative_formulas(lambda t, x, y, r: t, lambda t, x, y, r: -t * floor_divide(x, y))
FMOD = partial_derivative_formulas(  # x / y, rounded, may be a whole number too large
    lambda t, x, y, r: t, lambda t, x, y, r: -t * (x - r).map("divide", y).map("rint")
)
NEGATIVE = bounded_derivative_formulas(lambda t, x, r: -t)
BARRIER = bounded_derivative_formulas(lambda t, x, after, r: t, None)
SAME = bounded_derivative_formulas(lambda t, x, r: t)
ABSOLUTE = bounded_derivative_formulas(
    lambda t, x, r: t * sign(x),
    complex=(Pair(lambda t, x, r: real(conj(sign(x)) * t), lambda t, x, r: t * sign(x)),),
)


def _sign_derivative(t: Term, x: Term, r: Term) -> Term:
    """Of z / |z|: the part of t that is orthogonal to it, by |z|."""
    size = x.map("absolute")
    return where_term(equal(size, 0), 0.0, (t - r * real(conj(r) * t)) / size)


SIGN = Partials((None,), (Pair(_sign_derivative, _sign_derivative),))
SQUARE = partial_derivative_formulas(lambda t, x, r: t * x * 2)
RECIPROCAL = partial_derivative_formulas(lambda t, x, r: -t * (r * r))


def _power_derivative_by_base(t: Term, x: Term, y: Term, r: Term) -> Term:
    """y x^(y-1), which follows y at 0 too; and 0 for y = 0 where that is 0 times infinity or NaN."""
    power = x.map("power", y - 1)
    return t * where_term(logical_or(not_equal(y, 0), isfinite(power)), y * power, 0.0)


def _power_exponent_derivative_formula(t: Term, x: Term, y: Term, r: Term) -> Term:
    """r log x, and 0 for x = 0, where all powers near are 0."""
    return t * r * log(where_term(equal(x, 0), 1.0, x))


POWER = partial_derivative_formulas(_power_derivative_by_base, _power_exponent_derivative_formula)
CONJUGATE = bounded_derivative_formulas(
    lambda t, x, r: t, complex=(Pair(lambda t, x, r: conj(t), lambda t, x, r: conj(t)),)
)
HEAVISIDE = partial_derivative_formulas(None, lambda t, x, y, r: where_term(equal(x, 0), t, 0.0))


def _extremum_derivative(t: Term, mine: Term, other: Term, r: Term) -> Term:
    """All of it where this argument is the result, half where both are."""
    return where_term(equal(mine, r), where_term(equal(mine, other), t * 0.5, t), 0.0)


EXTREMUM = bounded_derivative_formulas(
    lambda t, x, y, r: _extremum_derivative(t, x, y, r), lambda t, x, y, r: _extremum_derivative(t, y, x, r)
)
COPYSIGN = bounded_derivative_formulas(
    lambda t, x, y, r: where_term(equal(x.map("signbit"), y.map("signbit")), t, -t), None
)
LDEXP = partial_derivative_formulas(lambda t, x, i, r: ldexp(t, i), None)
FREXP = partial_derivative_formulas(lambda t, x, r: ldexp(t, -x.map("frexp_exp")))

# functions

SQRT = partial_derivative_formulas(lambda t, x, r: t * 0.5 / r)
CBRT = partial_derivative_formulas(lambda t, x, r: t * (1 / 3) / r / r)
EXP = partial_derivative_formulas(lambda t, x, r: t * r)
EXP2 = partial_derivative_formulas(lambda t, x, r: t * (r * LN2))
EXPM1 = partial_derivative_formulas(lambda t, x, r: t * (r + 1))
LOG = partial_derivative_formulas(lambda t, x, r: t / x)
LOG2 = partial_derivative_formulas(lambda t, x, r: t / (x * LN2))
LOG10 = partial_derivative_formulas(lambda t, x, r: t / (x * LN10))
LOG1P = partial_derivative_formulas(lambda t, x, r: t / (x + 1))


def _logaddexp_derivative(t: Term, mine: Term, other: Term, scale: float) -> Term:
    """The share of the sum, as a sigmoid, which is smooth at ties too; 1 where both are the same infinity."""
    gap = mine - other if scale == 1 else (mine - other) * scale
    return t * sigmoid(where_term(logical_and(isinf(other), equal(mine, other)), math.inf, gap))


def _logaddexp_derivatives(scale: float) -> Partials:
    return partial_derivative_formulas(
        lambda t, x, y, r: _logaddexp_derivative(t, x, y, scale),
        lambda t, x, y, r: _logaddexp_derivative(t, y, x, scale),
    )


LOGADDEXP, LOGADDEXP2 = _logaddexp_derivatives(1), _logaddexp_derivatives(LN2)
SIN = bounded_derivative_formulas(lambda t, x, r: t * cos(x))
COS = bounded_derivative_formulas(lambda t, x, r: -t * sin(x))
TAN = partial_derivative_formulas(lambda t, x, r: t * (r * r + 1))
ARCSIN = partial_derivative_formulas(lambda t, x, r: t / sqrt(1 - x * x))
ARCCOS = partial_derivative_formulas(lambda t, x, r: -t / sqrt(1 - x * x))
ARCTAN = partial_derivative_formulas(lambda t, x, r: t / (x * x + 1))
ARCTAN2 = partial_derivative_formulas(
    lambda t, y, x, r: t * (x / hypot(x, y) / hypot(x, y)),
    lambda t, y, x, r: -t * (y / hypot(x, y) / hypot(x, y)),
)
SINH = partial_derivative_formulas(lambda t, x, r: t * cosh(x))
COSH = partial_derivative_formulas(lambda t, x, r: t * sinh(x))
TANH = bounded_derivative_formulas(lambda t, x, r: t * (1 - r) * (1 + r))
ARCSINH = partial_derivative_formulas(lambda t, x, r: t / hypot(x, 1.0), complex=(lambda t, x, r: t / sqrt(x * x + 1),))
ARCCOSH = partial_derivative_formulas(lambda t, x, r: t / sqrt(x - 1) / sqrt(x + 1))
ARCTANH = partial_derivative_formulas(lambda t, x, r: t / (1 - x * x))


def _absolute_derivative(t: Term, x: Term, r: Term) -> Term:
    """x / r, and 0 where both are 0, as of `absolute`: to every order."""
    return t * where_term(equal(r, 0), 0.0, x / r)


HYPOT = partial_derivative_formulas(
    lambda t, x, y, r: _absolute_derivative(t, x, r), lambda t, x, y, r: _absolute_derivative(t, y, r)
)
DEGREES, RADIANS = (
    bounded_derivative_formulas(lambda t, x, r: t.map("rad2deg")),
    bounded_derivative_formulas(lambda t, x, r: t.map("deg2rad")),
)
FLAT = 40.0  # beyond it e^(-x^2/2), and the tanh of `gelu`, are constant in every dtype


def _erf_derivative(t: Term, x: Term, r: Term) -> Term:
    x = clip(x, -FLAT, FLAT)  # whose square does not overflow
    return t * (exp(-x * x) * (2 / math.sqrt(math.pi)))


ERF = bounded_derivative_formulas(_erf_derivative)
ERFC = bounded_derivative_formulas(lambda t, x, r: _erf_derivative(-t, x, r))


def digamma_derivative_term(x: Term) -> Term:
    """The logarithmic derivative of gamma: reflected for x < 1/2, shifted by 8, then its asymptotic series (Abramowitz
    and Stegun 6.3.5, 6.3.7, 6.3.18); of rows that have derivatives of their own, to any order."""
    left = less(x, 0.5)
    z = where_term(left, 1 - x, x)
    shifted, near = z + 8, 1 / z
    for k in range(1, 8):
        near = near + 1 / (z + k)
    w = 1 / (shifted * shifted)
    series = w * (1 / 12 - w * (1 / 120 - w * (1 / 252 - w * (1 / 240 - w * (5 / 660 - w * (691 / 32760))))))
    found = log(shifted) - 0.5 / shifted - series - near
    turn = (x - x.map("rint")) * math.pi  # of cot(pi x): exactly infinite where x is an integer
    return where_term(left, found - math.pi * (cos(turn) / sin(turn)), found)


LGAMMA = partial_derivative_formulas(lambda t, x, r: t * digamma_derivative_term(x))
SIGMOID = bounded_derivative_formulas(lambda t, x, r: t * (r * (1 - r)))
RELU = bounded_derivative_formulas(lambda t, x, r: where_term(greater(x, 0), t, 0.0))


def _gelu_derivative(t: Term, x: Term, r: Term, approximate: bool = False) -> Term:
    """Of x within +-40, where no power of it overflows."""
    x = clip(x, -FLAT, FLAT)
    if not approximate:
        density = exp(x * x * -0.5) * (1 / math.sqrt(2 * math.pi))
        return t * ((x * -math.sqrt(0.5)).map("erfc") * 0.5 + x * density)
    scale = math.sqrt(2 / math.pi)
    tail = ((x + x * x * x * 0.044715) * scale).map("tanh")
    inner = (x * x * (3 * 0.044715) + 1) * scale
    return t * ((tail + 1) * 0.5 + x * 0.5 * (1 - tail) * (1 + tail) * inner)


GELU = bounded_derivative_formulas(_gelu_derivative)
WHERE = bounded_derivative_formulas(
    None, lambda t, c, a, b, r: where_term(c, t, 0.0), lambda t, c, a, b, r: where_term(c, 0.0, t)
)


def _clip_derivative_at_lower_bound(t: Term, x: Term, low: Term, high: Term, r: Term) -> Term:
    """What goes on to the maximum of which a clip is the minimum with the upper bound."""
    return _extremum_derivative(t, x.map("maximum", low), high, r)


CLIP = bounded_derivative_formulas(
    lambda t, x, low, high, r: _extremum_derivative(
        _clip_derivative_at_lower_bound(t, x, low, high, r), x, low, x.map("maximum", low)
    ),
    lambda t, x, low, high, r: _extremum_derivative(
        _clip_derivative_at_lower_bound(t, x, low, high, r), low, x, x.map("maximum", low)
    ),
    lambda t, x, low, high, r: _extremum_derivative(t, high, x.map("maximum", low), r),
)
REAL = bounded_derivative_formulas(
    lambda t, x, r: t, complex=(Pair(lambda t, x, r: real(t), lambda t, x, r: complex_term(t, 0)),)
)
IMAG = Partials((None,), (Pair(lambda t, x, r: imag(t), lambda t, x, r: complex_term(0, t)),), True)
COMPLEX = Partials(
    (None, None),
    (
        Pair(lambda t, x, y, r: complex_term(t, 0), lambda t, x, y, r: real(t)),
        Pair(lambda t, x, y, r: complex_term(0, t), lambda t, x, y, r: imag(t)),
    ),
    True,
)


def _angle_derivative_formula(x: Term, deg: bool = False) -> Term:
    """i x / |x|^2: the direction in which the angle grows, by its speed. deg: in degrees."""
    size = hypot(real(x), imag(x))
    near = size * (math.pi / 180) if deg else size
    return complex_term(-imag(x) / size / near, real(x) / size / near)


ANGLE = Partials(
    (None,),
    (
        Pair(
            lambda t, x, r, **way: real(conj(_angle_derivative_formula(x, **way)) * t),
            lambda t, x, r, **way: t * _angle_derivative_formula(x, **way),
        ),
    ),
)


def _nan_to_num_derivative(t: Term, x: Term, r: Term, **way: Any) -> Term:
    return where_term(x.map("isfinite"), t, 0.0)


def _complex_nan_to_num_derivative(t: Term, x: Term, r: Term, **way: Any) -> Term:
    return complex_term(_nan_to_num_derivative(real(t), real(x), r), _nan_to_num_derivative(imag(t), imag(x), r))


NAN_TO_NUM = bounded_derivative_formulas(
    _nan_to_num_derivative, complex=(Pair(_complex_nan_to_num_derivative, _complex_nan_to_num_derivative),)
)
