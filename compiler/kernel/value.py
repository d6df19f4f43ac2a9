"""Val: one value of a kernel's body, whose operators and methods write primitives into it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...runtime.program.user_function import UserFunction
from ..core.types import DType, bit_width, integer_dtype, real_dtype

if TYPE_CHECKING:
    from .body_builder import KernelBody


def _primitive_method(name: str) -> Callable[..., KernelValue]:
    def method(self: KernelValue, *others: KernelValue | float) -> KernelValue:
        return self.body.emit(name, self, *others)

    return method


class KernelValue:
    """One value of a body: its number (two for complex: real and imaginary part) and dtype.

    Python operators and methods write primitives; a Python number takes the dtype of its partner. Complex values have
    only `re`, `im` and `parts`. `==` is Python's; the primitive is `a.eq(b)`.
    """

    __slots__ = ("body", "dtype", "numbers")

    def __init__(self, body: KernelBody, numbers: tuple[int, ...], dtype: DType) -> None:
        self.body, self.numbers, self.dtype = body, numbers, dtype

    def __repr__(self) -> str:
        return f"<{self.dtype} {', '.join(f'v{n}' for n in self.numbers)}>"

    @property
    def re(self) -> KernelValue:
        return KernelValue(self.body, self.numbers[:1], real_dtype(self.dtype))

    @property
    def im(self) -> KernelValue:
        return KernelValue(self.body, self.numbers[1:], real_dtype(self.dtype))

    @property
    def parts(self) -> tuple[KernelValue, KernelValue]:
        return self.re, self.im

    @property
    def bits(self) -> int:
        return bit_width(self.dtype)

    @property
    def known(self) -> Any:
        """The value of a real constant, else None. A number that is looked at stays in the text: the formula is its."""
        return self.body.constant(self)

    def const(self, value: Any) -> KernelValue:
        """A constant of this value's dtype."""
        return self.body.const(value, self.dtype)

    def cast(self, dtype: DType) -> KernelValue:
        return self.body.cast(self, dtype)

    def bitcast(self, dtype: DType) -> KernelValue:
        return self if dtype == self.dtype else self.body.emit("bitcast", self, dtype=dtype)

    def as_bits(self, signed: bool = True) -> KernelValue:
        """The same bits as an integer."""
        return self.bitcast(integer_dtype(self.dtype, signed))

    def __add__(self, other: KernelValue | float) -> KernelValue:
        return self.body.emit("add", self, other)

    def __radd__(self, other: float) -> KernelValue:
        return self.body.emit("add", other, self)

    def __sub__(self, other: KernelValue | float) -> KernelValue:
        return self.body.emit("sub", self, other)

    def __rsub__(self, other: float) -> KernelValue:
        return self.body.emit("sub", other, self)

    def __mul__(self, other: KernelValue | float) -> KernelValue:
        return self.body.emit("mul", self, other)

    def __rmul__(self, other: float) -> KernelValue:
        return self.body.emit("mul", other, self)

    def __truediv__(self, other: KernelValue | float) -> KernelValue:
        return self.body.emit("div", self, other)

    def __rtruediv__(self, other: float) -> KernelValue:
        return self.body.emit("div", other, self)

    def __neg__(self) -> KernelValue:
        return self.body.emit("neg", self)

    def __and__(self, other: KernelValue | int) -> KernelValue:
        for value in (self, other):
            if isinstance(value, KernelValue):
                self.body.constant(value)  # a mask stays in the text: it tells which bits are known
        return self.body.emit("and", self, other)

    def __or__(self, other: KernelValue | int) -> KernelValue:
        return self.body.emit("or", self, other)

    def __xor__(self, other: KernelValue | int) -> KernelValue:
        return self.body.emit("xor", self, other)

    def __invert__(self) -> KernelValue:
        return self.body.emit("not", self)

    def __lshift__(self, other: KernelValue | int) -> KernelValue:
        return self.body.emit("shl", self, other)

    def __rshift__(self, other: KernelValue | int) -> KernelValue:
        return self.body.emit("shr", self, other)

    def __lt__(self, other: KernelValue | float) -> KernelValue:
        return self.body.emit("lt", self, other)

    def __le__(self, other: KernelValue | float) -> KernelValue:
        return self.body.emit("le", self, other)

    def __gt__(self, other: KernelValue | float) -> KernelValue:
        return self.body.emit("gt", self, other)

    def __ge__(self, other: KernelValue | float) -> KernelValue:
        return self.body.emit("ge", self, other)

    eq, ne = _primitive_method("eq"), _primitive_method("ne")
    quot, rem, gcd, mulhi, popcount = map(_primitive_method, ("quot", "rem", "gcd", "mulhi", "popcount"))
    abs, sqrt, floor, ceil, trunc, rint = map(_primitive_method, ("abs", "sqrt", "floor", "ceil", "trunc", "rint"))
    copysign, fma, maximum, minimum = map(_primitive_method, ("copysign", "fma", "maximum", "minimum"))
    exp, exp2, expm1, log, log2 = map(_primitive_method, ("exp", "exp2", "expm1", "log", "log2"))
    log10, log1p, sin, cos, tan = map(_primitive_method, ("log10", "log1p", "sin", "cos", "tan"))
    asin, acos, atan, sinh, cosh = map(_primitive_method, ("asin", "acos", "atan", "sinh", "cosh"))
    tanh, asinh, acosh, atanh, cbrt = map(_primitive_method, ("tanh", "asinh", "acosh", "atanh", "cbrt"))
    erf, erfc, lgamma = map(_primitive_method, ("erf", "erfc", "lgamma"))
    pow, atan2, hypot, fmod = map(_primitive_method, ("pow", "atan2", "hypot", "fmod"))

    def __bool__(self) -> bool:
        raise TypeError("a value of a kernel's body has no truth value; write select(condition, a, b)")


def select(condition: KernelValue, a: KernelValue | float, b: KernelValue | float) -> KernelValue:
    """`a` where the condition holds, else `b`; complex values part by part."""
    return condition.body.select(condition, a, b)


def complex_pair(re: KernelValue, im: KernelValue | float) -> KernelValue:
    """The complex value of two reals of one dtype."""
    return re.body.pair(re, im)


def call_user_function(*args: KernelValue, function: UserFunction, part: int) -> KernelValue:
    """Result `part` of a user's scalar function."""
    return args[0].body.call(function, part, args)
