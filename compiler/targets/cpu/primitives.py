"""How each primitive is written as LLVM IR. A table of name -> function from argument values to the result's value.

A value of dtype d lives in registers as `elem_of(d)`: bool as i1, bfloat16 as its bits in i16, the others as
themselves. Signedness is in the dtypes, so each row is given the dtype of its last argument and of its result.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import numpy as np

from ...core.types import BOOL, FLOAT32, FLOAT64, DType, bfloat16
from ...kernel.primitives import PRIMITIVES as MEANINGS
from .inline_math import FLOAT_MATH, llvm_any_lane, llvm_clamp
from .llvm_ir import UNLIKELY, LlvmFunction, LlvmValue, llvm_constant, llvm_intrinsic_suffix, llvm_type_bits
from .vector_libm import llvm_libm_call, llvm_libm_call_for_each_lane

Row: TypeAlias = Callable[[DType, DType, list[LlvmValue]], LlvmValue]

FLOAT16 = np.dtype(np.float16)


def llvm_register_type(dtype: DType) -> str:
    """The element type of a real dtype in registers."""
    if dtype == BOOL:
        return "i1"
    if dtype.kind == "f":
        return {2: "half", 4: "float", 8: "double"}[dtype.itemsize]
    return f"i{dtype.itemsize * 8}"


def llvm_memory_type(dtype: DType) -> str:
    """The element type of a real dtype in memory."""
    return "i8" if dtype == BOOL else llvm_register_type(dtype)


def llvm_scalar_constant(f: LlvmFunction, dtype: DType, raw: bytes) -> LlvmValue:
    """The scalar with these bytes. NaNs keep their bits."""
    elem = llvm_register_type(dtype)
    if elem in ("float", "double") and not np.isfinite(np.frombuffer(raw, dtype)[0]):
        as_double = np.frombuffer(raw, dtype).astype(np.float64).view(np.uint64)[0]
        return LlvmValue(f, f"0x{int(as_double):016X}", elem)
    if elem == "half":
        return LlvmValue(f, f"0xH{int(np.frombuffer(raw, np.uint16)[0]):04X}", elem)
    if dtype == bfloat16:
        return f.const(int(np.frombuffer(raw, np.int16)[0]), elem)
    return f.const(np.frombuffer(raw, dtype)[0].item(), elem)


def emit_llvm_primitive(op: str, from_dtype: DType, dtype: DType, args: list[LlvmValue]) -> LlvmValue:
    """Write primitive `op`. `from_dtype` is the dtype of its last argument, `dtype` that of its result."""
    return PRIMITIVES[op](from_dtype, dtype, args)


# conversions


def emit_llvm_cast(source: DType, target: DType, x: LlvmValue) -> LlvmValue:
    """NumPy's `astype`. Floats beyond an integer type's range give some integer, as in C on this machine."""
    if source == target:
        return x
    if source == bfloat16:
        return emit_llvm_cast(FLOAT32, target, (x.to("zext", "i32") << 16).as_float())
    if source == FLOAT16 and target != FLOAT64:
        return emit_llvm_cast(FLOAT32, target, x.to("fpext", "float"))
    if target == BOOL:
        return x.ne(0)
    if target == bfloat16:
        return _llvm_round_to_bfloat16(emit_llvm_cast(source, FLOAT32, x))
    if target == FLOAT16 and source != FLOAT32:
        return (
            _llvm_round_to_half(x)
            if source == FLOAT64
            else emit_llvm_cast(FLOAT32, target, emit_llvm_cast(source, FLOAT32, x))
        )
    elem, unsigned = llvm_register_type(target), source.kind in "bu"
    if source.kind == "f" and target.kind == "f":
        return x.to("fpext" if llvm_type_bits(elem) > llvm_type_bits(x.elem) else "fptrunc", elem)
    if source.kind == "f":
        return _llvm_float_to_int(x, target)
    if target.kind == "f":
        return x.to("uitofp" if unsigned else "sitofp", elem)
    if llvm_type_bits(elem) == llvm_type_bits(x.elem):
        return x
    return x.to("trunc" if llvm_type_bits(elem) < llvm_type_bits(x.elem) else "zext" if unsigned else "sext", elem)


def _llvm_float_to_int(x: LlvmValue, target: DType) -> LlvmValue:
    """Narrow integers go through int32, uint32 through int64, as in C; `freeze` makes overflow harmless."""
    elem = llvm_register_type(target)
    if target == np.uint64:
        return x.to("fptoui", elem).freeze()
    through = "i64" if elem == "i64" or target == np.uint32 else "i32"
    wide = x.to("fptosi", through).freeze()
    return wide if through == elem else wide.to("trunc", elem)


def _llvm_round_to_bfloat16(x: LlvmValue) -> LlvmValue:
    """To nearest, ties to even; a NaN becomes the quiet NaN of its sign."""
    raw = x.as_int()
    odd = raw.binary("lshr", 16) & 1
    rounded = (raw + odd + 0x7FFF).binary("lshr", 16)
    nan = raw.binary("lshr", 16) & 0x8000 | 0x7FC0
    return x.is_nan().pick(nan, rounded).to("trunc", "i16")


def _llvm_round_to_half(x: LlvmValue) -> LlvmValue:
    """float64 to float16, rounded once: by way of a float32 rounded to odd (Boldo and Melquiond 2008)."""
    near = x.to("fptrunc", "float")
    back, raw = near.to("fpext", "double"), near.as_int()
    too_far = back.abs() > x.abs()
    toward_zero = too_far.pick(raw - 1, raw)
    odd = back.ne(x).pick(toward_zero | 1, raw)
    return x.is_nan().pick(raw, odd).as_float().to("fptrunc", "half")


def emit_llvm_bitcast_text(source: DType, target: DType, x: LlvmValue) -> LlvmValue:
    elem = llvm_register_type(target)
    if target == BOOL:
        return x.ne(0)
    return x if x.elem == elem else x.to("bitcast", elem)


# division


def _llvm_divide_floats(a: LlvmValue, b: LlvmValue) -> LlvmValue:
    """a / b. Many by one is the product with 1/b, put right twice: rounded as a division is, and several times faster.

    The last step rounds correctly if its quotient is good to an ulp and 1/b is rounded to nearest (Markstein 1990),
    where nothing over- or underflows; if something might, all lanes are divided.
    """
    if a.lanes == 1 or b.lanes > 1:
        return a / b
    name = f"@divide.{llvm_intrinsic_suffix(a.elem, a.lanes)}"
    a.f.module.function(name, a.elem, (a.elem, a.elem), (a.lanes, 1), _llvm_divide_vector_by_scalar)
    return a.f.call(name, a.elem, a, b)


def _llvm_divide_vector_by_scalar(a: LlvmValue, b: LlvmValue) -> LlvmValue:
    f, bound = a.f, 2.0**60 if a.elem == "float" else 2.0**400
    inverse, size = 1.0 / b, b.abs()
    quotient = a * inverse
    for _ in range(2):
        quotient = quotient.fma(-b, a).fma(inverse, quotient)
    place = f.slot(quotient.kind)
    place.store(quotient, 64)
    sizes = a.abs()
    if f.module.vector_library == "libmvec-avx512":  # compares under a mask
        safe = (sizes >= 1 / bound) & (sizes <= bound) & ((size >= 1 / bound) & (size <= bound))
        far = llvm_any_lane(~safe)
    else:
        far = llvm_any_lane(llvm_clamp(sizes, 1 / bound, bound).compare("une", sizes))
        far = far | size.compare("ult", 1 / bound) | size.compare("ugt", bound)
    with f.when(far, UNLIKELY):
        place.store(a / b, 64)
    return place.load(a.elem, a.lanes, 64)


# integers


def _llvm_divide_truncating(a: LlvmValue, b: LlvmValue, dtype: DType, op: str) -> LlvmValue:
    """Truncating division; 0 for a divisor of 0, and the least integer divided by -1 wraps. Never traps.

    Up to 32 bits the quotient of two floats of twice the digits truncates to the right integer, and vectorises.
    """
    zero, signed = b.eq(0), dtype.kind == "i"
    width = llvm_type_bits(a.elem)
    divisor = zero.pick(1, b)
    if width <= 32:
        wide = "float" if width <= 16 else "double"
        up = "sitofp" if signed else "uitofp"
        quotient = a.to(up, wide) / divisor.to(up, wide)
        whole = quotient.to("fptosi", "i64" if width == 32 else "i32").to("trunc", a.elem)
    elif (lanes := max(a.lanes, b.lanes)) == 1 or not b.text.startswith("%"):
        return zero.pick(0, _llvm_divide_wide(a, divisor, signed, op))
    else:  # lane by lane, which takes LLVM long to write
        name = f"@{dtype.kind}quot.{llvm_intrinsic_suffix(b.elem, lanes)}"
        write = partial(_llvm_divide_wide, signed=signed, op="quot")
        a.f.module.function(name, b.elem, (b.elem, b.elem), (lanes, lanes), write, "noinline")
        whole = a.f.call(name, b.elem, a.splat(lanes), divisor.splat(lanes))
    return zero.pick(0, whole if op == "quot" else a - whole * divisor)


def _llvm_divide_wide(a: LlvmValue, b: LlvmValue, signed: bool, op: str) -> LlvmValue:
    name = "div" if op == "quot" else "rem"
    if not signed:
        return a.binary(f"u{name}", b)
    minus = b.eq(-1)
    return minus.pick(-a if op == "quot" else 0, a.binary(f"s{name}", minus.pick(1, b)))


def _llvm_shift_like_numpy(source: DType, dtype: DType, args: list[LlvmValue], left: bool) -> LlvmValue:
    """NumPy's shifts: a count outside the width shifts all bits out; a signed number keeps its sign to the right."""
    a, count = args
    width = llvm_type_bits(a.elem)
    inside = count.compare("ult", width)
    if left:
        return inside.pick(a << inside.pick(count, 0), 0)
    if dtype.kind == "i":
        return a >> inside.pick(count, width - 1)
    return inside.pick(a.binary("lshr", inside.pick(count, 0)), 0)


def _llvm_greatest_common_divisor(source: DType, dtype: DType, args: list[LlvmValue]) -> LlvmValue:
    f, elem = args[0].f, args[0].elem
    scalar = f"@gcd.{elem}"

    def write_euclidean_loop() -> str:
        """Euclid's algorithm."""
        return (
            f"define internal {elem} {scalar}({elem} %a, {elem} %b) nounwind {{\nentry:\n  br label %head\nhead:\n"
            f"  %x = phi {elem} [ %a, %entry ], [ %y, %loop ]\n  %y = phi {elem} [ %b, %entry ], [ %r, %loop ]\n"
            f"  %go = icmp ne {elem} %y, 0\n  br i1 %go, label %loop, label %done\nloop:\n"
            f"  %r = urem {elem} %x, %y\n  br label %head\ndone:\n  ret {elem} %x\n}}"
        )

    f.module.define(scalar, write_euclidean_loop)
    lanes = max(a.lanes for a in args)
    return (
        llvm_libm_call_for_each_lane(scalar, [a.splat(lanes) for a in args])
        if lanes > 1
        else f.call(scalar, elem, *args)
    )


def _llvm_integer_power(source: DType, dtype: DType, args: list[LlvmValue]) -> LlvmValue:
    """By repeated squaring, of all lanes until no exponent has a bit left: one function for all uses."""
    f, elem, lanes = args[0].f, args[0].elem, max(a.lanes for a in args)

    def write_squarings(base: LlvmValue, exponent: LlvmValue) -> LlvmValue:
        g = base.f
        places = [g.slot(base.kind) for _ in range(3)]
        for place, first in zip(places, (g.const(1, elem, lanes), base, exponent), strict=True):
            place.store(first, 64)
        g.jump("squaring")
        g.block("squaring")
        power, square, bits = (place.load(elem, lanes, 64) for place in places)
        rest = bits.binary("lshr", 1)
        for place, later in zip(
            places, ((bits & 1).ne(0).pick(power * square, power), square * square, rest), strict=True
        ):
            place.store(later, 64)
        g.do(f"br i1 {llvm_any_lane(rest.ne(0))}, label %squaring, label %done")
        g.block("done")
        return places[0].load(elem, lanes, 64)

    name = f"@power.{llvm_intrinsic_suffix(elem, lanes)}"
    f.module.function(name, elem, (elem, elem), (lanes, lanes), write_squarings, "noinline")
    return f.call(name, elem, *(a.splat(lanes) for a in args))


def _llvm_multiply_high(source: DType, dtype: DType, args: list[LlvmValue]) -> LlvmValue:
    width = llvm_type_bits(args[0].elem)
    wide = [a.to("zext", f"i{2 * width}") for a in args]
    return (wide[0] * wide[1]).binary("lshr", width).to("trunc", args[0].elem)


def _llvm_population_count(source: DType, dtype: DType, args: list[LlvmValue]) -> LlvmValue:
    count = args[0].apply("ctpop")
    return count if count.elem == "i8" else count.to("trunc", "i8")


def _llvm_nan_propagating_extreme(source: DType, dtype: DType, args: list[LlvmValue], greatest: bool) -> LlvmValue:
    """NumPy's maximum and minimum: a NaN wins (the first of two), and of equal values the second is given."""
    a, b = args
    if dtype.kind != "f":
        sign = "s" if dtype.kind == "i" else "u"
        return a.apply(f"{sign}{'max' if greatest else 'min'}", b)
    return a.is_nan().pick(a, (a > b if greatest else a < b).pick(a, b))


def _llvm_select(source: DType, dtype: DType, args: list[LlvmValue]) -> LlvmValue:
    """LLVM 22 takes `x < 0 ? 0 : wide(x)` for a maximum, which gives 0 for -0; it does not look past a fence."""
    condition, *arms = args
    if dtype.kind == "f" and any(arm.text == llvm_constant(0.0, arm.elem) for arm in arms):
        arms = [arm.apply("arithmetic.fence") if arm.text.startswith("%") else arm for arm in arms]
    return condition.pick(*arms)


# rows

# Functions that take many instructions.
MATH = frozenset(name for name, primitive in MEANINGS.items() if primitive.libm)


def _llvm_binary_operator(write: Callable[..., LlvmValue]) -> Row:
    return lambda source, dtype, args: write(*args)


def _llvm_comparison(float_predicate: str, int_predicate: str) -> Row:
    def write_comparison(source: DType, dtype: DType, args: list[LlvmValue]) -> LlvmValue:
        if source.kind == "f":
            return args[0].compare(float_predicate, args[1])
        sign = "" if int_predicate in ("eq", "ne") else "s" if source.kind == "i" else "u"
        return args[0].compare(sign + int_predicate, args[1])

    return write_comparison


def _llvm_intrinsic(name: str) -> Row:
    return lambda source, dtype, args: args[0].apply(name, *args[1:])


def _llvm_math_function(name: str) -> Row:
    """An inlined function of `inline_math` where there is one for this type, else the C library's."""

    def write_math_call(source: DType, dtype: DType, args: list[LlvmValue]) -> LlvmValue:
        inlined = FLOAT_MATH.get((name, args[0].elem))
        return inlined(*args) if inlined else llvm_libm_call(name, *args)

    return write_math_call


PRIMITIVES: dict[str, Row] = {
    "add": _llvm_binary_operator(lambda a, b: a + b),
    "sub": _llvm_binary_operator(lambda a, b: a - b),
    "mul": _llvm_binary_operator(lambda a, b: a * b),
    "div": _llvm_binary_operator(_llvm_divide_floats),
    "approx_div": _llvm_binary_operator(_llvm_divide_floats),
    "neg": _llvm_binary_operator(lambda a: -a),
    "quot": lambda source, dtype, args: _llvm_divide_truncating(args[0], args[1], dtype, "quot"),
    "rem": lambda source, dtype, args: _llvm_divide_truncating(args[0], args[1], dtype, "rem"),
    "and": _llvm_binary_operator(lambda a, b: a & b),
    "or": _llvm_binary_operator(lambda a, b: a | b),
    "xor": _llvm_binary_operator(lambda a, b: a ^ b),
    "not": _llvm_binary_operator(lambda a: ~a),
    "shl": lambda source, dtype, args: _llvm_shift_like_numpy(source, dtype, args, left=True),
    "shr": lambda source, dtype, args: _llvm_shift_like_numpy(source, dtype, args, left=False),
    "lt": _llvm_comparison("olt", "lt"),
    "le": _llvm_comparison("ole", "le"),
    "gt": _llvm_comparison("ogt", "gt"),
    "ge": _llvm_comparison("oge", "ge"),
    "eq": _llvm_comparison("oeq", "eq"),
    "ne": _llvm_comparison("une", "ne"),
    "select": _llvm_select,
    "cast": lambda source, dtype, args: emit_llvm_cast(source, dtype, args[0]),
    "bitcast": lambda source, dtype, args: emit_llvm_bitcast_text(source, dtype, args[0]),
    "abs": _llvm_intrinsic("fabs"),
    "sqrt": _llvm_intrinsic("sqrt"),
    "floor": _llvm_intrinsic("floor"),
    "ceil": _llvm_intrinsic("ceil"),
    "trunc": _llvm_intrinsic("trunc"),
    "rint": _llvm_intrinsic("rint"),
    "copysign": _llvm_intrinsic("copysign"),
    "fma": _llvm_intrinsic("fma"),
    "maximum": lambda source, dtype, args: _llvm_nan_propagating_extreme(source, dtype, args, greatest=True),
    "minimum": lambda source, dtype, args: _llvm_nan_propagating_extreme(source, dtype, args, greatest=False),
    "popcount": _llvm_population_count,
    "gcd": _llvm_greatest_common_divisor,
    "ipow": _llvm_integer_power,
    "mulhi": _llvm_multiply_high,
    **{name: _llvm_math_function(name) for name in sorted(MATH)},
}
