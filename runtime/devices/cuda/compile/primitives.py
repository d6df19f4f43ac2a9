"""How each primitive is written for one lane on NVIDIA GPUs. A table of name -> emitter of LLVM IR through llvmlite.

Dtypes are the short names of kernel text (`f32`, `i8`, `b1`, ...). A bool is an i1; float16 and bfloat16 values are the
i16 of their bits. Transcendental functions are libdevice's (CUDA's libdevice user's guide).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from ....core.frozen import frozen

I1, I8, I16, I32, I64 = (ir.IntType(n) for n in (1, 8, 16, 32, 64))
F32, F64 = ir.FloatType(), ir.DoubleType()
LLVM: dict[str, Any] = {
    "b1": I1,
    "i8": I8,
    "i16": I16,
    "i32": I32,
    "i64": I64,
    "u8": I8,
    "u16": I16,
    "u32": I32,
    "u64": I64,
    "f16": I16,
    "bf16": I16,
    "f32": F32,
    "f64": F64,
}
BITS = {"b1": 1, **{t: int(t.lstrip("iubf")) for t in LLVM if t != "b1"}}
Value = Any
Emit = Callable[..., Value]  # (builder, dtype of the last argument, *values) -> value


def nvvm_dtype_kind_letter(dtype: str) -> str:
    """`f`, `i` (signed), `u` (unsigned) or `b`; float16 and bfloat16 have none."""
    return {"f32": "f", "f64": "f", "f16": "h", "bf16": "h"}.get(dtype, dtype[0])


@frozen
class PrimitiveRow:
    """emit(builder, dtype, *lanes) -> lane, where dtype is that of the last argument. result: its dtype if another."""

    arity: int
    emit: Emit
    result: str | None = None


def call_external_nvvm_function(b: ir.IRBuilder, name: str, result: Any, *args: Value) -> Value:
    """Call an external function, declared on first use."""
    function = b.module.globals.get(name)
    if function is None:
        function = ir.Function(b.module, ir.FunctionType(result, [a.type for a in args]), name)
    return b.call(function, args)


def nvvm_call_of_libdevice(stem: str) -> Emit:
    def emit_libdevice_call(b: ir.IRBuilder, dtype: str, *args: Value) -> Value:
        return call_external_nvvm_function(b, f"__nv_{stem}" + ("f" if dtype == "f32" else ""), LLVM[dtype], *args)

    return emit_libdevice_call


def _nvvm_instruction_by_dtype_kind(**methods: str) -> Emit:
    """One IRBuilder method for each kind: f, i, u, b."""

    def emit_instruction_of_kind(b: ir.IRBuilder, dtype: str, *args: Value) -> Value:
        return getattr(b, methods[nvvm_dtype_kind_letter(dtype)])(*args)

    return emit_instruction_of_kind


def _nvvm_comparison(symbol: str) -> Emit:
    def emit_comparison(b: ir.IRBuilder, dtype: str, x: Value, y: Value) -> Value:
        if nvvm_dtype_kind_letter(dtype) == "f":
            return b.fcmp_unordered(symbol, x, y) if symbol == "!=" else b.fcmp_ordered(symbol, x, y)
        return b.icmp_signed(symbol, x, y) if nvvm_dtype_kind_letter(dtype) == "i" else b.icmp_unsigned(symbol, x, y)

    return emit_comparison


def _nvvm_nan_propagating_min_or_max(symbol: str) -> Emit:
    """Minimum or maximum; a NaN wins."""
    better = _nvvm_comparison(symbol)

    def emit_min_or_max(b: ir.IRBuilder, dtype: str, x: Value, y: Value) -> Value:
        take = better(b, dtype, x, y)
        if nvvm_dtype_kind_letter(dtype) == "f":
            take = b.or_(take, b.fcmp_unordered("uno", x, x))
        return b.select(take, x, y)

    return emit_min_or_max


def _nvvm_argmin_or_argmax_preference(symbol: str) -> Emit:
    """Whether candidate (y, j) replaces (x, i) in an argmin or argmax: NaN first, then value, then the lower index."""
    better = _nvvm_comparison(symbol)

    def emit_preference(b: ir.IRBuilder, dtype: str, x: Value, i: Value, y: Value, j: Value) -> Value:
        lower = b.icmp_signed("<", j, i)
        if nvvm_dtype_kind_letter(dtype) != "f":
            same = b.icmp_signed("==", x, y)
            return b.or_(better(b, dtype, y, x), b.and_(same, lower))
        x_nan, y_nan = b.fcmp_unordered("uno", x, x), b.fcmp_unordered("uno", y, y)
        tie = b.or_(b.fcmp_ordered("==", x, y), b.and_(x_nan, y_nan))
        wins = b.or_(better(b, dtype, y, x), b.and_(y_nan, b.not_(x_nan)))
        return b.or_(wins, b.and_(tie, lower))

    return emit_preference


def _nvvm_negate(b: ir.IRBuilder, dtype: str, x: Value) -> Value:
    if nvvm_dtype_kind_letter(dtype) != "f":
        return b.neg(x)
    integer = ir.IntType(BITS[dtype])  # flip the sign bit, also of zero and NaN
    sign = integer(1 << (BITS[dtype] - 1))
    return b.bitcast(b.xor(b.bitcast(x, integer), sign), x.type)


_QUOTIENT = ir.InlineAsm(ir.FunctionType(F32, [F32, F32]), "div.full.f32 $0, $1, $2;", "=f,f,f")


def _nvvm_approximate_quotient(b: ir.IRBuilder, dtype: str, x: Value, y: Value) -> Value:
    """Over all numbers, subnormal ones too; no lane branches."""
    return b.call(_QUOTIENT, [x, y]) if dtype == "f32" else b.fdiv(x, y)


def _nvvm_shift_like_numpy(method: str) -> Emit:
    """NumPy's shifts: a count of the width or more gives 0, or the sign for an arithmetic shift right."""

    def emit_shift(b: ir.IRBuilder, dtype: str, x: Value, count: Value) -> Value:
        bits = BITS[dtype]
        inside = b.icmp_unsigned("<", count, x.type(bits))
        if method == "shr" and nvvm_dtype_kind_letter(dtype) == "i":
            return b.ashr(x, b.select(inside, count, x.type(bits - 1)))
        shifted = (b.shl if method == "shl" else b.lshr)(x, b.select(inside, count, x.type(0)))
        return b.select(inside, shifted, x.type(0))

    return emit_shift


def _nvvm_popcount(b: ir.IRBuilder, dtype: str, x: Value) -> Value:
    if BITS[dtype] == 64:
        return b.trunc(call_external_nvvm_function(b, "__nv_popcll", I32, x), I8)
    return b.trunc(call_external_nvvm_function(b, "__nv_popc", I32, x if BITS[dtype] == 32 else b.zext(x, I32)), I8)


def _nvvm_multiply_high(b: ir.IRBuilder, dtype: str, x: Value, y: Value) -> Value:
    return call_external_nvvm_function(b, {"u32": "__nv_umulhi", "u64": "__nv_umul64hi"}[dtype], LLVM[dtype], x, y)


def _nvvm_gcd(b: ir.IRBuilder, dtype: str, x: Value, y: Value) -> Value:
    """Euclid's algorithm on unsigned integers."""
    return _nvvm_until_last_is_zero(b, (x, y), lambda p, q: (q, b.urem(p, q)))


def _nvvm_until_last_is_zero(b: ir.IRBuilder, firsts: Sequence[Value], turn: Callable[..., Sequence[Value]]) -> Value:
    """What values become, turn by turn, until the last of them is 0: the first of them."""
    before = b.block
    head, body, done = (b.append_basic_block(n) for n in ("head", "body", "done"))
    b.branch(head)
    b.position_at_end(head)
    phis = [b.phi(first.type) for first in firsts]
    b.cbranch(b.icmp_unsigned("==", phis[-1], phis[-1].type(0)), done, body)
    b.position_at_end(body)
    laters = turn(*phis)
    b.branch(head)
    for phi, first, later in zip(phis, firsts, laters, strict=True):
        phi.add_incoming(first, before)
        phi.add_incoming(later, body)
    b.position_at_end(done)
    return phis[0]


def _nvvm_integer_power(b: ir.IRBuilder, dtype: str, x: Value, n: Value) -> Value:
    """By repeated squaring: one function of the module for all uses."""
    name = f"power_{dtype}"
    if name not in b.module.globals:
        function = ir.Function(b.module, ir.FunctionType(x.type, [x.type, x.type]), name)
        function.linkage = "internal"
        function.attributes.add("noinline")
        own, one = ir.IRBuilder(function.append_basic_block("entry")), x.type(1)

        def square(power: Value, square: Value, bits: Value) -> Sequence[Value]:
            found = own.select(own.trunc(bits, I1), own.mul(power, square), power)
            return found, own.mul(square, square), own.lshr(bits, one)

        own.ret(_nvvm_until_last_is_zero(own, (one, *function.args), square))
    return b.call(b.module.globals[name], [x, n])


def nvvm_fma(b: ir.IRBuilder, x: Value, y: Value, z: Value) -> Value:
    return nvvm_call_of_libdevice("fma")(b, "f32" if x.type == F32 else "f64", x, y, z)


def nvvm_negative(b: ir.IRBuilder, x: Value) -> Value:
    """Of a float."""
    return b.fsub(x.type(-0.0), x)


def _nvvm_hypot(b: ir.IRBuilder, dtype: str, x: Value, y: Value) -> Value:
    """For float64 scaled by a power of two, and corrected (Borges, "An improved algorithm for hypot(a, b)", 2019):
    libdevice's is an ulp too large near the largest number, which is infinity."""
    if dtype == "f32":
        return nvvm_call_of_libdevice("hypot")(b, dtype, x, y)

    x, y = (call_external_nvvm_function(b, "__nv_fabs", F64, v) for v in (x, y))
    infinite = b.or_(*(b.fcmp_ordered("==", v, F64(float("inf"))) for v in (x, y)))
    wide = b.fcmp_ordered(">", x, y)
    x, y = b.select(wide, x, y), b.select(wide, y, x)
    large, small = b.fcmp_ordered(">", x, F64(2.0**500)), b.fcmp_ordered("<", x, F64(2.0**-400))
    scale, back = (b.select(large, F64(1 / f), b.select(small, F64(f), F64(1.0))) for f in (2.0**600, 2.0**-600))
    x, y = b.fmul(x, scale), b.fmul(y, scale)
    h = call_external_nvvm_function(b, "__nv_sqrt", F64, nvvm_fma(b, x, x, b.fmul(y, y)))
    hh, xx = b.fmul(h, h), b.fmul(x, x)
    low = b.fsub(nvvm_fma(b, h, h, nvvm_negative(b, hh)), nvvm_fma(b, x, x, nvvm_negative(b, xx)))
    error = b.fadd(nvvm_fma(b, nvvm_negative(b, y), y, b.fsub(hh, xx)), low)
    found = b.fsub(h, b.fdiv(error, b.fadd(h, h)))
    found = b.fmul(b.select(b.fcmp_ordered("==", h, F64(0.0)), h, found), back)
    return b.select(infinite, F64(float("inf")), found)


_SAME_NAME = (
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "pow", "cbrt", "fmod", "erf", "erfc"),
    *("lgamma", "tgamma"),
    *("sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
    *("sqrt", "floor", "ceil", "trunc", "rint", "copysign", "fma"),
)
_LIBDEVICE = {"abs": "fabs", **{name: name for name in _SAME_NAME}}
_ARITY = {"copysign": 2, "pow": 2, "atan2": 2, "fmod": 2, "fma": 3}

ROWS: dict[str, PrimitiveRow] = {
    "add": PrimitiveRow(2, _nvvm_instruction_by_dtype_kind(f="fadd", i="add", u="add")),
    "sub": PrimitiveRow(2, _nvvm_instruction_by_dtype_kind(f="fsub", i="sub", u="sub")),
    "mul": PrimitiveRow(2, _nvvm_instruction_by_dtype_kind(f="fmul", i="mul", u="mul")),
    "div": PrimitiveRow(2, _nvvm_instruction_by_dtype_kind(f="fdiv")),
    "approx_div": PrimitiveRow(2, _nvvm_approximate_quotient),
    "neg": PrimitiveRow(1, _nvvm_negate),
    "quot": PrimitiveRow(2, _nvvm_instruction_by_dtype_kind(i="sdiv", u="udiv")),
    "rem": PrimitiveRow(2, _nvvm_instruction_by_dtype_kind(i="srem", u="urem")),
    "and_": PrimitiveRow(2, _nvvm_instruction_by_dtype_kind(i="and_", u="and_", b="and_")),
    "or_": PrimitiveRow(2, _nvvm_instruction_by_dtype_kind(i="or_", u="or_", b="or_")),
    "xor": PrimitiveRow(2, _nvvm_instruction_by_dtype_kind(i="xor", u="xor", b="xor")),
    "not_": PrimitiveRow(1, _nvvm_instruction_by_dtype_kind(i="not_", u="not_", b="not_")),
    "shl": PrimitiveRow(2, _nvvm_shift_like_numpy("shl")),
    "shr": PrimitiveRow(2, _nvvm_shift_like_numpy("shr")),
    "lt": PrimitiveRow(2, _nvvm_comparison("<"), "b1"),
    "le": PrimitiveRow(2, _nvvm_comparison("<="), "b1"),
    "gt": PrimitiveRow(2, _nvvm_comparison(">"), "b1"),
    "ge": PrimitiveRow(2, _nvvm_comparison(">="), "b1"),
    "eq": PrimitiveRow(2, _nvvm_comparison("=="), "b1"),
    "ne": PrimitiveRow(2, _nvvm_comparison("!="), "b1"),
    "select": PrimitiveRow(3, lambda b, dtype, condition, x, y: b.select(condition, x, y)),
    "maximum": PrimitiveRow(2, _nvvm_nan_propagating_min_or_max(">")),
    "minimum": PrimitiveRow(2, _nvvm_nan_propagating_min_or_max("<")),
    "popcount": PrimitiveRow(1, _nvvm_popcount, "u8"),
    "gcd": PrimitiveRow(2, _nvvm_gcd),
    "ipow": PrimitiveRow(2, _nvvm_integer_power),
    "mulhi": PrimitiveRow(2, _nvvm_multiply_high),
    "hypot": PrimitiveRow(2, _nvvm_hypot),
    **{op: PrimitiveRow(_ARITY.get(op, 1), nvvm_call_of_libdevice(stem)) for op, stem in _LIBDEVICE.items()},
}
PREFER = {
    "prefer_argmax": _nvvm_argmin_or_argmax_preference(">"),
    "prefer_argmin": _nvvm_argmin_or_argmax_preference("<"),
}


def nvvm_dtype_conversion(b: ir.IRBuilder, x: Value, source: str, target: str) -> Value:
    """C's conversion from one dtype to another, and != 0 to bool. Float to integer beyond the range is unspecified."""
    if source == target:
        return x
    if source in _WIDEN:
        return nvvm_dtype_conversion(b, _WIDEN[source](b, x), "f32", target)
    if target in _NARROW:
        if source == "f64":
            return _NARROW[target](b, x, True)
        return _NARROW[target](b, nvvm_dtype_conversion(b, x, source, "f32"), False)
    return _CONVERT[nvvm_dtype_kind_letter(source), nvvm_dtype_kind_letter(target)](b, x, source, target)


def emit_inline_ptx(text: str, result: Any, given: Any, constraints: str) -> Emit:
    """One PTX instruction. Between floats not LLVM's conversions: it takes `x < 0 ? 0 : wide(x)` for a maximum of x
    and 0, which loses the sign of a zero."""
    asm = ir.InlineAsm(ir.FunctionType(result, [given]), f"{text} $0, $1;", constraints)
    return lambda b, x, *rest: b.call(asm, [x])


def emit_inline_ptx_effect(b: ir.IRBuilder, text: str, constraints: str, *args: Value, result: Any = None) -> Value:
    """PTX that does something besides what it gives (by default nothing)."""
    kind = ir.FunctionType(result or ir.VoidType(), [x.type for x in args])
    return b.call(ir.InlineAsm(kind, text, constraints, side_effect=True), args)


_half_to_float = emit_inline_ptx("cvt.f32.f16", F32, I16, "=f,h")
_TO_HALF = {
    False: emit_inline_ptx("cvt.rn.f16.f32", I16, F32, "=h,f"),
    True: emit_inline_ptx("cvt.rn.f16.f64", I16, F64, "=h,d"),
}
_TO_FLOAT = {
    "f32": emit_inline_ptx("cvt.rn.f32.f64", F32, F64, "=f,d"),
    "f64": emit_inline_ptx("cvt.f64.f32", F64, F32, "=d,f"),
}


def _nvvm_float_to_bfloat(b: ir.IRBuilder, x: Value, double: bool) -> Value:
    """Round to nearest even; from float64 by way of a float32 rounded to odd, so that only one rounding counts."""
    if double:
        near = call_external_nvvm_function(b, "__nv_double2float_rz", F32, x)
        inexact = b.fcmp_ordered("!=", b.fpext(near, F64), x)
        bits = b.or_(b.bitcast(near, I32), b.zext(inexact, I32))
        x = b.bitcast(bits, F32)
    return emit_inline_ptx("cvt.rn.bf16.f32", I16, F32, "=h,f")(b, x)


_WIDEN: dict[str, Emit] = {"f16": _half_to_float, "bf16": lambda b, x: b.bitcast(b.shl(b.zext(x, I32), I32(16)), F32)}
_NARROW: dict[str, Emit] = {"f16": lambda b, x, double: _TO_HALF[double](b, x), "bf16": _nvvm_float_to_bfloat}


def _nvvm_resize_integer(b: ir.IRBuilder, x: Value, source: str, target: str) -> Value:
    if BITS[target] <= BITS[source]:
        return x if BITS[target] == BITS[source] else b.trunc(x, LLVM[target])
    return (b.sext if nvvm_dtype_kind_letter(source) == "i" else b.zext)(x, LLVM[target])


def _nvvm_float_to_int(b: ir.IRBuilder, x: Value, source: str, target: str) -> Value:
    """Through 64 bits (32 for what a signed int holds), then wrapped, as x86-64 does and so NumPy there."""
    if target == "u64":
        low = b.fptosi(x, I64)
        return b.select(b.fcmp_ordered("<", x, x.type(0.0)), low, b.fptoui(x, I64))
    through = "i64" if BITS[target] >= 32 and target != "i32" else "i32"
    return _nvvm_resize_integer(b, b.fptosi(x, LLVM[through]), through, target)


def _nvvm_is_nonzero(b: ir.IRBuilder, x: Value, source: str, target: str) -> Value:
    zero = x.type(0.0 if nvvm_dtype_kind_letter(source) == "f" else 0)
    return b.fcmp_unordered("!=", x, zero) if nvvm_dtype_kind_letter(source) == "f" else b.icmp_unsigned("!=", x, zero)


_CONVERT: dict[tuple[str, str], Emit] = {
    ("f", "f"): lambda b, x, source, target: _TO_FLOAT[target](b, x),
    ("i", "f"): lambda b, x, source, target: b.sitofp(x, LLVM[target]),
    **{(k, "f"): lambda b, x, source, target: b.uitofp(x, LLVM[target]) for k in "ub"},
    **{("f", k): _nvvm_float_to_int for k in "iu"},
    **{(s, k): _nvvm_resize_integer for s in "iub" for k in "iu"},
    **{(k, "b"): _nvvm_is_nonzero for k in "fiu"},
}
