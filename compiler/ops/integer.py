"""Expansions of the op table for bool and integers. Values in, the value that NumPy's integer loop gives out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..core.types import BOOL, integer_dtype
from ..kernel.body_builder import KernelValue, kernel_select


def is_signed_operand_of_row(x: KernelValue) -> bool:
    return x.dtype.kind == "i"


def nonzero_formula(x: KernelValue) -> KernelValue:
    """x as bool, of any dtype."""
    return x.cast(BOOL)


def constant_false_formula(x: KernelValue) -> KernelValue:
    return x.body.const(False, BOOL)


def constant_true_formula(x: KernelValue) -> KernelValue:
    return x.body.const(True, BOOL)


def absolute_formula(x: KernelValue) -> KernelValue:
    return kernel_select(x < 0, -x, x) if is_signed_operand_of_row(x) else x


def sign_formula(x: KernelValue) -> KernelValue:
    positive = (x > 0).cast(x.dtype)
    return positive - (x < 0).cast(x.dtype) if is_signed_operand_of_row(x) else positive


def reciprocal_formula(x: KernelValue) -> KernelValue:
    """1 / x truncated; 0 for 0, where NumPy's result is undefined."""
    small = absolute_formula(x).eq(1)
    return kernel_select(small, x, 0)


def _unsigned_magnitude(x: KernelValue) -> KernelValue:
    """|x| in the unsigned dtype of the same size."""
    return absolute_formula(x).as_bits(signed=False)


def bitwise_count_formula(x: KernelValue) -> KernelValue:
    return _unsigned_magnitude(x).popcount()


def gcd_formula(a: KernelValue, b: KernelValue) -> KernelValue:
    return _unsigned_magnitude(a).gcd(_unsigned_magnitude(b)).bitcast(a.dtype)


def lcm_formula(a: KernelValue, b: KernelValue) -> KernelValue:
    ua, ub = _unsigned_magnitude(a), _unsigned_magnitude(b)
    divisor = ua.gcd(ub)
    return (ua.quot(kernel_select(divisor.eq(0), 1, divisor)) * ub).bitcast(a.dtype)


# Division by zero gives 0, and the least integer divided by -1 itself.


def _safe_divisor(a: KernelValue, b: KernelValue) -> KernelValue:
    """A divisor that the primitives allow: b, but 1 where b is 0 or the quotient overflows."""
    if b.known is not None and b.known not in (0, -1):
        return b
    bad = b.eq(0)
    if is_signed_operand_of_row(a):
        bad = bad | (a.eq(int(np.iinfo(a.dtype).min)) & b.eq(-1))
    return kernel_select(bad, 1, b)


def _quotient_or_zero(b: KernelValue, quotient: KernelValue) -> KernelValue:
    return quotient if b.known is not None and b.known != 0 else kernel_select(b.eq(0), 0, quotient)


def floor_divide_formula(a: KernelValue, b: KernelValue) -> KernelValue:
    safe = _safe_divisor(a, b)
    quotient = a.quot(safe)
    if is_signed_operand_of_row(a):
        rest = a - quotient * safe
        quotient = quotient - (rest.ne(0) & ((rest ^ safe) < 0)).cast(a.dtype)
    return _quotient_or_zero(b, quotient)


def remainder_formula(a: KernelValue, b: KernelValue) -> KernelValue:
    safe = _safe_divisor(a, b)
    rest = a.rem(safe)
    return kernel_select(rest.ne(0) & ((rest ^ safe) < 0), rest + safe, rest) if is_signed_operand_of_row(a) else rest


def fmod_formula(a: KernelValue, b: KernelValue) -> KernelValue:
    return a.rem(_safe_divisor(a, b))


def power_formula(a: KernelValue, n: KernelValue) -> KernelValue:
    """a ** n, wrapping. For n < 0 (NumPy raises) it is 1 / a**-n truncated, and 0 for a = 0."""
    if n.known is not None and n.known >= 0:
        return _constant_integer_power_formula(a, int(n.known))
    result = a.as_bits(signed=False).ipow(n.as_bits(signed=False)).bitcast(a.dtype)
    return kernel_select((n < 0) & absolute_formula(a).ne(1), 0, result) if is_signed_operand_of_row(n) else result


def _constant_integer_power_formula(a: KernelValue, n: int) -> KernelValue:
    result, base = a.const(1), a
    while n:
        result = result * base if n & 1 else result
        n >>= 1
        base = base * base if n else base
    return result


# Shifts by a negative amount, or by all the bits or more, leave 0 or the sign.


def left_shift_formula(a: KernelValue, n: KernelValue) -> KernelValue:
    if n.known is not None and 0 <= n.known < n.bits:
        return a << n
    inside = n.as_bits(signed=False) < n.bits
    return kernel_select(inside, a << kernel_select(inside, n, 0), 0)


def right_shift_formula(a: KernelValue, n: KernelValue) -> KernelValue:
    if n.known is not None and 0 <= n.known < n.bits:
        return a >> n
    inside = n.as_bits(signed=False) < n.bits
    if is_signed_operand_of_row(a):
        return a >> kernel_select(inside, n, n.bits - 1)
    return kernel_select(inside, a >> kernel_select(inside, n, 0), 0)


# Comparisons of int64 with uint64 compare values, as NumPy does.


def _mixed_sign_comparison(
    a: KernelValue,
    b: KernelValue,
    compare: Callable[[KernelValue, KernelValue], KernelValue],
    signed_less: bool,
    signed_greater: bool,
) -> KernelValue:
    """compare(a, b) of a signed and an unsigned value: decided by the sign where that is negative."""
    if a.dtype == b.dtype:
        return compare(a, b)
    if is_signed_operand_of_row(a):
        positive = compare(a.bitcast(integer_dtype(a.dtype, signed=False)), b)
        return (a < 0) | positive if signed_less else (a >= 0) & positive
    positive = compare(a, b.bitcast(integer_dtype(b.dtype, signed=False)))
    return (b < 0) | positive if signed_greater else (b >= 0) & positive


def less_formula(a: KernelValue, b: KernelValue) -> KernelValue:
    return _mixed_sign_comparison(a, b, KernelValue.__lt__, True, False)


def less_equal_formula(a: KernelValue, b: KernelValue) -> KernelValue:
    return _mixed_sign_comparison(a, b, KernelValue.__le__, True, False)


def greater_formula(a: KernelValue, b: KernelValue) -> KernelValue:
    return _mixed_sign_comparison(a, b, KernelValue.__gt__, False, True)


def greater_equal_formula(a: KernelValue, b: KernelValue) -> KernelValue:
    return _mixed_sign_comparison(a, b, KernelValue.__ge__, False, True)


def equal_formula(a: KernelValue, b: KernelValue) -> KernelValue:
    return _mixed_sign_comparison(a, b, KernelValue.eq, False, False)


def not_equal_formula(a: KernelValue, b: KernelValue) -> KernelValue:
    return _mixed_sign_comparison(a, b, KernelValue.ne, True, True)


# bool: False < True.


def bool_less_formula(a: KernelValue, b: KernelValue) -> KernelValue:
    return ~a & b


def bool_less_equal_formula(a: KernelValue, b: KernelValue) -> KernelValue:
    return ~a | b


def bool_greater_formula(a: KernelValue, b: KernelValue) -> KernelValue:
    return a & ~b


def bool_greater_equal_formula(a: KernelValue, b: KernelValue) -> KernelValue:
    return a | ~b


def bool_equal_formula(a: KernelValue, b: KernelValue) -> KernelValue:
    return ~(a ^ b)


def logical_and_formula(a: KernelValue, b: KernelValue) -> KernelValue:
    return nonzero_formula(a) & nonzero_formula(b)


def logical_or_formula(a: KernelValue, b: KernelValue) -> KernelValue:
    return nonzero_formula(a) | nonzero_formula(b)


def logical_xor_formula(a: KernelValue, b: KernelValue) -> KernelValue:
    return nonzero_formula(a) ^ nonzero_formula(b)


def logical_not_formula(a: KernelValue) -> KernelValue:
    return ~nonzero_formula(a)


def same_value_formula(x: KernelValue, **attrs: object) -> KernelValue:
    return x
