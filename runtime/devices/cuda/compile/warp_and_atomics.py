"""What threads do together in kernel text. Exchanges within a warp, atomic additions, words that pass between blocks.

A word that one block posts and another peeks at is written and read whole, past the caches that a multiprocessor has
of its own; what it says has to be in the word itself, since nothing orders it with other memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from .lanes import (
    NUMBA,
    Typed,
    make_numba_lane_intrinsic,
    numba_cuda_type_of_lanes,
    numba_lane_count,
    numba_lane_element_type,
)
from .loads_and_stores import NumbaElementAccess
from .numba_parts import types
from .primitives import I1, I32, I64, Value, call_external_nvvm_function

GLOBAL, SHARED = 1, 3  # LLVM address spaces
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


def _narrow_lane_to_32_bits(b: ir.IRBuilder, x: Value) -> Value:
    return x if x.type == I32 else b.trunc(x, I32)


def warp_shuffle_intrinsic(name: str, kind: str) -> Any:
    """shuffle_xor(x, o), shuffle_up(x, o), shuffle_idx(x, lane): of each lane of the value."""
    clamp = I32(0) if kind == "up" else CLAMP
    shfl = {"xor": "bfly"}.get(kind, kind)

    def numba_typing_rule(t: Any, which: Any) -> Typed:
        def generate_nvvm(b: ir.IRBuilder, lanes: Sequence[Value], which: Sequence[Value]) -> list[Value]:
            by = _narrow_lane_to_32_bits(b, which[0])
            return [exchange_lanes_of_warp(b, shfl, x, by, clamp) for x in lanes]

        return numba_cuda_type_of_lanes(numba_lane_element_type(t), numba_lane_count(t)), generate_nvvm

    return make_numba_lane_intrinsic(name, 2, numba_typing_rule)


def warp_match_intrinsic(name: str, bits: str) -> Any:
    """match_8(x): the lanes of the warp whose u32 has the same lowest 8 bits, as the bits of a u32. One ballot for each
    bit: on an H200 that is faster than the instruction `match` (a sort of 2^26 keys takes 2.5 ms instead of
    2.9)."""

    def generate_nvvm(b: ir.IRBuilder, x: Sequence[Value]) -> list[Value]:
        peers: Value = FULL
        for k in range(int(bits)):
            bit = b.trunc(b.lshr(x[0], I32(k)), I1)
            votes = call_external_nvvm_function(b, "llvm.nvvm.vote.ballot.sync", I32, FULL, bit)
            peers = b.and_(peers, b.select(bit, votes, b.not_(votes)))
        return [peers]

    return make_numba_lane_intrinsic(name, 1, (types.uint32, generate_nvvm))


def warp_ballot_intrinsic(name: str) -> Any:
    """ballot(c): for which lanes of the warp c holds, as the bits of a u32."""

    def generate_nvvm(b: ir.IRBuilder, c: Sequence[Value]) -> list[Value]:
        return [call_external_nvvm_function(b, "llvm.nvvm.vote.ballot.sync", I32, FULL, c[0])]

    return make_numba_lane_intrinsic(name, 1, (types.uint32, generate_nvvm))


def sync_warp_intrinsic(name: str) -> Any:
    """sync_warp(): what the warp's lanes have written to shared memory is seen by all of them."""

    def generate_nvvm(b: ir.IRBuilder) -> list[Value]:
        call_external_nvvm_function(b, "llvm.nvvm.bar.warp.sync", ir.VoidType(), FULL)
        return []

    return make_numba_lane_intrinsic(name, 0, (types.void, generate_nvvm))


def _address_of_atomic_element(b: ir.IRBuilder, cell: NumbaElementAccess, base: Value, number: Value) -> Value:
    return cell._nvvm_pointer_to_element(b, base, number, cell.storage)


def atomic_intrinsic(name: str, where: str, op: str, dtype: str) -> Any:
    """sadd_u32(s, i, x), gadd_u64(p, i, x), gmax_i64(p, i, x): what was at element i before x was added (or the greater
    of the two was kept), in one step."""
    cell = NumbaElementAccess(dtype, SHARED if where == "s" else GLOBAL)
    op = "umax" if op == "max" and dtype[0] == "u" else op

    def generate_nvvm(b: ir.IRBuilder, base: Any, number: Any, x: Any) -> list[Value]:
        return [b.atomic_rmw(op, _address_of_atomic_element(b, cell, base[0], number[0]), x[0], "monotonic")]

    return make_numba_lane_intrinsic(name, 3, (NUMBA[dtype], generate_nvvm))


def atomic_read_intrinsic(name: str) -> Any:
    """peek_u64(p, i): the word as it is now."""
    cell = NumbaElementAccess("u64", GLOBAL)

    def generate_nvvm(b: ir.IRBuilder, base: Any, number: Any) -> list[Value]:
        pointer = b.ptrtoint(_address_of_atomic_element(b, cell, base[0], number[0]), I64)
        asm = ir.InlineAsm(ir.FunctionType(I64, [I64]), "ld.relaxed.gpu.global.u64 $0, [$1];", "=l,l", side_effect=True)
        return [b.call(asm, [pointer])]

    return make_numba_lane_intrinsic(name, 2, (NUMBA["u64"], generate_nvvm))


def atomic_write_intrinsic(name: str) -> Any:
    """post_u64(p, i, x): the word is x from now on."""
    cell = NumbaElementAccess("u64", GLOBAL)

    def generate_nvvm(b: ir.IRBuilder, base: Any, number: Any, x: Any) -> list[Value]:
        pointer = b.ptrtoint(_address_of_atomic_element(b, cell, base[0], number[0]), I64)
        asm = ir.InlineAsm(
            ir.FunctionType(ir.VoidType(), [I64, I64]),
            "st.relaxed.gpu.global.u64 [$0], $1;",
            "l,l",
            side_effect=True,
        )
        b.call(asm, [pointer, x[0]])
        return []

    return make_numba_lane_intrinsic(name, 3, (types.void, generate_nvvm))
