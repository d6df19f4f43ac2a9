"""What threads do together in kernel text. Exchanges within a warp, atomic additions, words that pass between blocks.

A word that one block posts and another peeks at is written and read whole, past the caches that a multiprocessor has
of its own; what it says has to be in the word itself, since nothing orders it with other memory.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from .lanes import NUMBA, Lanes, make_numba_lane_intrinsic
from .loads_and_stores import GLOBAL, SHARED, NumbaElementAccess
from .numba_parts import types
from .primitives import I1, I32, I64, Value, call_external_nvvm_function, emit_inline_ptx_effect

FULL, CLAMP = I32(-1), I32(31)


def exchange_lanes_of_warp(b: ir.IRBuilder, kind: str, x: Value, which: Value, clamp: Value = CLAMP) -> Value:
    """x of another lane of the warp, by `shfl.sync` of a kind (bfly, up, idx). 64-bit values go in two halves."""
    bits = {ir.FloatType(): 32, ir.DoubleType(): 64}.get(x.type) or x.type.width

    def exchange_32_bit_word(x: Value) -> Value:
        pair = ir.LiteralStructType([I32, I1])
        mode = I32({"up": 1, "bfly": 3, "idx": 0}[kind])
        return b.extract_value(
            call_external_nvvm_function(b, "llvm.nvvm.shfl.sync.i32", pair, FULL, mode, x, which, clamp), 0
        )

    whole = b.bitcast(x, ir.IntType(bits))
    if bits == 64:
        low, high = (exchange_32_bit_word(b.trunc(part, I32)) for part in (whole, b.lshr(whole, I64(32))))
        moved = b.or_(b.zext(low, I64), b.shl(b.zext(high, I64), I64(32)))
    else:
        moved = (
            exchange_32_bit_word(whole) if bits == 32 else b.trunc(exchange_32_bit_word(b.zext(whole, I32)), whole.type)
        )
    return b.bitcast(moved, x.type)


def warp_shuffle_intrinsic(name: str, kind: str) -> Any:
    """shuffle_xor(x, o), shuffle_up(x, o), shuffle_idx(x, lane): of each lane of the value."""
    clamp = I32(0) if kind == "up" else CLAMP
    shfl = {"xor": "bfly"}.get(kind, kind)

    def generate_nvvm(b: ir.IRBuilder, lanes: Lanes, which: Lanes) -> list[Value]:
        by = which[0] if which[0].type == I32 else b.trunc(which[0], I32)
        return [exchange_lanes_of_warp(b, shfl, x, by, clamp) for x in lanes]

    return make_numba_lane_intrinsic(name, 2, lambda t, which: t, generate_nvvm)


def _ballot(b: ir.IRBuilder, bit: Value) -> Value:
    return call_external_nvvm_function(b, "llvm.nvvm.vote.ballot.sync", I32, FULL, bit)


def warp_match_intrinsic(name: str, bits: str) -> Any:
    """match_8(x): the lanes of the warp whose u32 has the same lowest 8 bits, as the bits of a u32. One ballot for each
    bit: on an H200 that is faster than the instruction `match` (a sort of 2^26 keys takes 2.5 ms instead of
    2.9)."""

    def generate_nvvm(b: ir.IRBuilder, x: Lanes) -> list[Value]:
        peers: Value = FULL
        for k in range(int(bits)):
            bit = b.trunc(b.lshr(x[0], I32(k)), I1)
            votes = _ballot(b, bit)
            peers = b.and_(peers, b.select(bit, votes, b.not_(votes)))
        return [peers]

    return make_numba_lane_intrinsic(name, 1, types.uint32, generate_nvvm)


def warp_ballot_intrinsic(name: str) -> Any:
    """ballot(c): for which lanes of the warp c holds, as the bits of a u32."""
    return make_numba_lane_intrinsic(name, 1, types.uint32, lambda b, c: [_ballot(b, c[0])])


def atomic_intrinsic(name: str, where: str, op: str, dtype: str) -> Any:
    """sadd_u32(s, i, x), gadd_u64(p, i, x), gmax_i64(p, i, x): what was at element i before x was added (or the greater
    of the two was kept), in one step."""
    cell = NumbaElementAccess(dtype, SHARED if where == "s" else GLOBAL)
    op = "umax" if op == "max" and dtype[0] == "u" else op

    def generate_nvvm(b: ir.IRBuilder, base: Lanes, number: Lanes, x: Lanes) -> list[Value]:
        return [b.atomic_rmw(op, cell.pointer(b, base[0], number[0]), x[0], "monotonic")]

    return make_numba_lane_intrinsic(name, 3, NUMBA[dtype], generate_nvvm)


def atomic_read_intrinsic(name: str) -> Any:
    """peek_u64(p, i): the word as it is now."""
    cell = NumbaElementAccess("u64", GLOBAL)

    def generate_nvvm(b: ir.IRBuilder, base: Lanes, number: Lanes) -> list[Value]:
        pointer = b.ptrtoint(cell.pointer(b, base[0], number[0]), I64)
        return [emit_inline_ptx_effect(b, "ld.relaxed.gpu.global.u64 $0, [$1];", "=l,l", pointer, result=I64)]

    return make_numba_lane_intrinsic(name, 2, NUMBA["u64"], generate_nvvm)


def atomic_write_intrinsic(name: str) -> Any:
    """post_u64(p, i, x): the word is x from now on."""
    cell = NumbaElementAccess("u64", GLOBAL)

    def generate_nvvm(b: ir.IRBuilder, base: Lanes, number: Lanes, x: Lanes) -> list[Value]:
        pointer = b.ptrtoint(cell.pointer(b, base[0], number[0]), I64)
        emit_inline_ptx_effect(b, "st.relaxed.gpu.global.u64 [$0], $1;", "l,l", pointer, x[0])
        return []

    return make_numba_lane_intrinsic(name, 3, types.void, generate_nvvm)
