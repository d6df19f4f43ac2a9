"""Expansions of the op table for bool and integers: values in, the value that NumPy's integer loop gives out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..core.types import BOOL, integer_dtype
from ..kernel.body_builder import KernelValue, select


def is_signed(x: KernelValue) -> bool:
    return x.dtype.kind == "i"


def nonzero(x: KernelValue) -> KernelValue:
    """x as bool, of any dtype."""
    return x.cast(BOOL)


def constant_false(x: KernelValue) -> KernelValue:
    return x.body.const(False, BOOL)


def constant_true(x: KernelValue) -> KernelValue:
    return x.body.const(True, BOOL)


def absolute(x: KernelValue) -> KernelValue:
    return select(x < 0, -x, x) if is_signed(x) else x


def sign(x: KernelValue) -> KernelValue:
    positive = (x > 0).cast(x.dtype)
    return positive - (x < 0).cast(x.dtype) if is_signed(x) else positive


def reciprocal(x: KernelValue) -> KernelValue:
    """1 / x truncated; 0 for 0, where NumPy's result is undefined."""
    small = absolute(x).eq(1)
    return select(small, x, 0)


def _unsigned(x: KernelValue) -> KernelValue:
    """|x| in the unsigned dtype of the same size."""
    return absolute(x).as_bits(signed=False)


def bitwise_count(x: KernelValue) -> KernelValue:
    return _unsigned(x).popcount()


def gcd(a: KernelValue, b: KernelValue) -> KernelValue:
    return _unsigned(a).gcd(_unsigned(b)).bitcast(a.dtype)


def lcm(a: KernelValue, b: KernelValue) -> KernelValue:
    ua, ub = _unsigned(a), _unsigned(b)
    divisor = ua.gcd(ub)
    return (ua.quot(select(divisor.eq(0), 1, divisor)) * ub).bitcast(a.dtype)


# Division by zero gives 0, and the least integer divided by -1 itself.


def _safe(a: KernelValue, b: KernelValue) -> KernelValue:
    """A divisor that the primitives allow: b, but 1 where b is 0 or the quotient overflows."""
    if b.known is not None and b.known not in (0, -1):
        return b
    bad = b.eq(0)
    if is_signed(a):
        bad = bad | (a.eq(int(np.iinfo(a.dtype).min)) & b.eq(-1))
    return select(bad, 1, b)


def _or_zero(b: KernelValue, quotient: KernelValue) -> KernelValue:
    return quotient if b.known is not None and b.known != 0 else select(b.eq(0), 0, quotient)


def floor_divide(a: KernelValue, b: KernelValue) -> KernelValue:
    safe = _safe(a, b)
    quotient = a.quot(safe)
    if is_signed(a):
        rest = a - quotient * safe
        quotient = quotient - (rest.ne(0) & ((rest ^ safe) < 0)).cast(a.dtype)
    return _or_zero(b, quotient)


def remainder(a: KernelValue, b: KernelValue) -> KernelValue:
    safe = _safe(a, b)
    rest = a.rem(safe)
    return select(rest.ne(0) & ((rest ^ safe) < 0), rest + safe, rest) if is_signed(a) else rest


def fmod(a: KernelValue, b: KernelValue) -> KernelValue:
    return a.rem(_safe(a, b))


def power(a: KernelValue, n: KernelValue) -> KernelValue:
    """a ** n by repeated squaring, wrapping. For n < 0 (NumPy raises) it is 1 / a**-n truncated, and 0 for a = 0."""
    if n.known is not None and n.known >= 0:
        return _known_power(a, int(n.known))
    result, base = a.const(1), a
    for k in range(n.bits - is_signed(n)):
        result = select((n & (1 << k)).ne(0), result * base, result)
        base = base * base
    return select((n < 0) & absolute(a).ne(1), 0, result) if is_signed(n) else result


def _known_power(a: KernelValue, n: int) -> KernelValue:
    result, base = a.const(1), a
    while n:
        result = result * base if n & 1 else result
        n >>= 1
        base = base * base if n else base
    return result


# Shifts by a negative amount, or by all the bits or more, leave 0 or the sign.


def left_shift(a: KernelValue, n: KernelValue) -> KernelValue:
    if n.known is not None and 0 <= n.known < n.bits:
        return a << n
    inside = n.as_bits(signed=False) < n.bits
    return select(inside, a << select(inside, n, 0), 0)


def right_shift(a: KernelValue, n: KernelValue) -> KernelValue:
    if n.known is not None and 0 <= n.known < n.bits:
        return a >> n
    inside = n.as_bits(signed=False) < n.bits
    if is_signed(a):
        return a >> select(inside, n, n.bits - 1)
    return select(inside, a >> select(inside, n, 0), 0)


# Comparisons of int64 with uint64 compare values, as NumPy does.


def _mixed(
    a: KernelValue,
    b: KernelValue,
    compare: Callable[[KernelValue, KernelValue], KernelValue],
    signed_less: bool,
    signed_greater: bool,
) -> KernelValue:
    """compare(a, b) of a signed and an unsigned value: decided by the sign where that is negative."""
    if a.dtype == b.dtype:
        return compare(a, b)
    if is_signed(a):
        positive = compare(a.bitcast(integer_dtype(a.dtype, signed=False)), b)
        return (a < 0) | positive if signed_less else (a >= 0) & positive
    positive = compare(a, b.bitcast(integer_dtype(b.dtype, signed=False)))
    return (b < 0) | positive if signed_greater else (b >= 0) & positive


def less(a: KernelValue, b: KernelValue) -> KernelValue:
    return _mixed(a, b, KernelValue.__lt__, True, False)


def less_equal(a: KernelValue, b: KernelValue) -> KernelValue:
    return _mixed(a, b, KernelValue.__le__, True, False)


def greater(a: KernelValue, b: KernelValue) -> KernelValue:
    return _mixed(a, b, KernelValue.__gt__, False, True)


def greater_equal(a: KernelValue, b: KernelValue) -> KernelValue:
    return _mixed(a, b, KernelValue.__ge__, False, True)


def equal(a: KernelValue, b: KernelValue) -> KernelValue:
    return _mixed(a, b, KernelValue.eq, False, False)


def not_equal(a: KernelValue, b: KernelValue) -> KernelValue:
    return _mixed(a, b, KernelValue.ne, True, True)


# bool: False < True.


def bool_less(a: KernelValue, b: KernelValue) -> KernelValue:
    return ~a & b


def bool_less_equal(a: KernelValue, b: KernelValue) -> KernelValue:
    return ~a | b


def bool_greater(a: KernelValue, b: KernelValue) -> KernelValue:
    return a & ~b


def bool_greater_equal(a: KernelValue, b: KernelValue) -> KernelValue:
    return a | ~b


def bool_equal(a: KernelValue, b: KernelValue) -> KernelValue:
    return ~(a ^ b)


def logical_and(a: KernelValue, b: KernelValue) -> KernelValue:
    return nonzero(a) & nonzero(b)


def logical_or(a: KernelValue, b: KernelValue) -> KernelValue:
    return nonzero(a) | nonzero(b)


def logical_xor(a: KernelValue, b: KernelValue) -> KernelValue:
    return nonzero(a) ^ nonzero(b)


def logical_not(a: KernelValue) -> KernelValue:
    return ~nonzero(a)


def same_value(x: KernelValue, **attrs: object) -> KernelValue:
    return x
