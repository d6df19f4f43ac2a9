"""Division and square root of float32 lanes, correctly rounded. Lanes in, lanes out, with one branch for all of them.

The compiler's own `div.rn.f32` and `sqrt.rn.f32` branch for each lane: no two lanes overlap. Here all lanes take
the approximation of the hardware and one correction by fused multiply-adds (Markstein, "Computation of elementary
functions on the IBM RISC System/6000 processor", 1990); where an intermediate of some lane may have been rounded
otherwise (too small, too large, zero, not finite), all lanes are done again by the compiler's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llvmlite import ir

from .lanes import all_numba_lane_flags_hold, emit_nvvm_branch
from .primitives import (
    F32,
    ROWS,
    Value,
    call_external_nvvm_function,
    emit_inline_ptx,
    nvvm_fma,
    nvvm_negative,
)

_SMALLEST = 2.0**-100  # of a numerator or a square: below it the remainder, 2^-47 times as small, may be no float32
_LEAST, _MOST = 2.0**-125, 2.0**127  # of a quotient
TOGETHER = 4  # lanes of one branch: until then, all their arguments stay in registers
_RECIPROCAL = emit_inline_ptx("rcp.approx.ftz.f32", F32, F32, "=f,f")
_INVERSE_ROOT = emit_inline_ptx("rsqrt.approx.ftz.f32", F32, F32, "=f,f")


def _nvvm_magnitude_at_least(b: ir.IRBuilder, x: Value, least: float) -> Value:
    return b.fcmp_ordered(">=", call_external_nvvm_function(b, "__nv_fabsf", F32, x), F32(least))


def _nvvm_rounded_quotient(b: ir.IRBuilder, x: Value, y: Value) -> tuple[Value, Value]:
    """x / y, and whether it is correctly rounded."""
    near = _RECIPROCAL(b, y)
    minus = nvvm_negative(b, y)
    reciprocal = nvvm_fma(b, near, nvvm_fma(b, minus, near, F32(1.0)), near)
    first = b.fmul(x, reciprocal)
    found = nvvm_fma(b, reciprocal, nvvm_fma(b, minus, first, x), first)
    low = b.and_(_nvvm_magnitude_at_least(b, x, _SMALLEST), _nvvm_magnitude_at_least(b, found, _LEAST))
    high = b.fcmp_ordered("<=", call_external_nvvm_function(b, "__nv_fabsf", F32, found), F32(_MOST))
    return found, b.and_(low, high)


def _nvvm_rounded_square_root(b: ir.IRBuilder, x: Value) -> tuple[Value, Value]:
    """The square root of x, and whether it is correctly rounded. Infinity and zero give NaN here."""
    near = _INVERSE_ROOT(b, x)
    first, half = b.fmul(x, near), b.fmul(near, F32(0.5))
    found = nvvm_fma(b, nvvm_fma(b, nvvm_negative(b, first), first, x), half, first)
    positive = b.fcmp_ordered(">=", x, F32(_SMALLEST))
    return found, b.and_(positive, b.fcmp_ordered(">=", found, F32(0.0)))


def _nvvm_round_lanes_together(name: str, fast: Callable[..., tuple[Value, Value]]) -> Callable[..., Sequence[Value]]:
    def emit_some_lanes(b: ir.IRBuilder, rows: Sequence[tuple[Value, ...]]) -> list[Value]:
        values, good = zip(*(fast(b, *row) for row in rows), strict=True)
        return emit_nvvm_branch(
            b,
            all_numba_lane_flags_hold(b, good),
            lambda: values,
            lambda: [ROWS[name].emit(b, "f32", *row) for row in rows],
        )

    def emit_all_lanes(b: ir.IRBuilder, rows: Sequence[tuple[Value, ...]]) -> list[Value]:
        return [value for k in range(0, len(rows), TOGETHER) for value in emit_some_lanes(b, rows[k : k + TOGETHER])]

    return emit_all_lanes


LANES = {
    ("div", "f32"): _nvvm_round_lanes_together("div", _nvvm_rounded_quotient),
    ("sqrt", "f32"): _nvvm_round_lanes_together("sqrt", _nvvm_rounded_square_root),
}
"""(primitive, dtype) -> emitter for several lanes: (builder, arguments of each lane) -> lanes."""
