"""Loads at computed places on the CPU, and reports of bad indices. An operand and offsets in, its elements out.

Lanes whose elements follow each other, as in a row that one index chose, are one vector load.
"""

from __future__ import annotations

from ...core.types import BOOL, INT64, real_dtype
from ...kernel.loop_nest import Instr
from .access import Lanes, VectorAccess, llvm_element_type
from .llvm_ir import (
    UNLIKELY,
    LlvmValue,
    emit_llvm_masked_load,
    llvm_constant,
    llvm_intrinsic_suffix,
    llvm_type,
    llvm_type_bits,
)
from .primitives import llvm_memory_type


def emit_llvm_vector_gather(access: VectorAccess, instr: Instr, offset: LlvmValue, lanes: Lanes) -> LlvmValue:
    """The elements `offset` beyond those of a load; lanes that the mask forbids read nothing."""
    number, part = instr.attr
    operand = access.frame.nest.operands[number]
    elem, parts = llvm_memory_type(real_dtype(operand.dtype)), 1 + (operand.dtype.kind == "c")
    walks = access.moves_along_vectors(number)
    letter = operand.layout[access.axis] if walks and access.axis is not None else "0"
    if offset.lanes == 1 and not walks:
        raw = access.places[number][0].at(offset, llvm_element_type(operand)).at(part, elem).load(elem)
    elif offset.lanes == 1 and letter == "1" and parts == 1:
        place = access.place(number, lanes.i).at(offset, llvm_element_type(operand))
        raw = emit_llvm_masked_load(place, elem, lanes.count, lanes.mask if lanes.count > 1 else None)
    else:
        f = access.frame.f
        if walks:
            assert lanes.i is not None
            steps = lanes.i + f.vector(list(range(lanes.count)), "i64")
            offset = offset + (steps if letter == "1" else steps * access.frame.strides[number, access.axis])  # type: ignore[index]
        raw = gather_vector_lanes(
            access.places[number][0].at(part, elem), elem, offset * parts if parts > 1 else offset, lanes.mask
        )
    return raw.ne(0) if operand.dtype == BOOL else raw


def gather_vector_lanes(base: LlvmValue, elem: str, offset: LlvmValue, mask: LlvmValue | None) -> LlvmValue:
    """Bytes are picked from the aligned words that they lie in: processors gather no bytes, and no such word is in part
    in memory that may not be read."""
    f, wide = base.f, offset.lanes
    where = f.let(f"getelementptr {elem}, ptr {base}, {offset.typed}", "ptr", wide)
    if elem != "i8":
        return _gather_from(where, elem, mask)
    place = f.let(f"ptrtoint {where.typed} to <{wide} x i64>", "i64", wide)
    aligned = f.let(f"inttoptr {(place & -4).typed} to <{wide} x ptr>", "ptr", wide)
    shift = f.let(f"trunc {((place & 3) * 8).typed} to <{wide} x i32>", "i32", wide)
    word = _gather_from(aligned, "i32", mask).binary("lshr", shift)
    return f.let(f"trunc {word.typed} to <{wide} x i8>", "i8", wide)


def _gather_from(where: LlvmValue, elem: str, mask: LlvmValue | None) -> LlvmValue:
    f, wide = where.f, where.lanes
    name, kind = f"@llvm.masked.gather.{llvm_intrinsic_suffix(elem, wide)}.v{wide}p0", llvm_type(elem, wide)
    f.module.declare(name, f"{kind} {name}(<{wide} x ptr>, i32, <{wide} x i1>, {kind})")
    allowed = f"<{wide} x i1> {llvm_constant(1, 'i1', wide) if mask is None else mask}"
    args = f"{where.typed}, i32 {max(1, llvm_type_bits(elem) // 8)}, {allowed}, {kind} zeroinitializer"
    return f.let(f"call {kind} {name}({args})", elem, wide)


def emit_vector_index_report(
    access: VectorAccess, instr: Instr, value: LlvmValue, condition: LlvmValue, lanes: Lanes
) -> None:
    """Store one of the values for which the condition holds, if any."""
    f, place = access.frame.f, access.places[instr.attr[0]][0]
    if condition.lanes == 1:
        with f.when(condition, UNLIKELY):
            place.store(value.lane(0), 8)
        return
    bad = condition if lanes.mask is None else condition & lanes.mask
    name = f"@llvm.vector.reduce.or.v{bad.lanes}i1"
    f.module.declare(name, f"i1 {name}({bad.kind})")
    some = f.let(f"call i1 {name}({bad.typed})", "i1")
    with f.when(some, UNLIKELY):
        one = bad.pick(value, f.const(-(2**63), llvm_memory_type(INT64)))
        name = f"@llvm.vector.reduce.smax.v{one.lanes}i64"
        f.module.declare(name, f"i64 {name}({one.kind})")
        place.store(f.let(f"call i64 {name}({one.typed})", "i64"), 8)
