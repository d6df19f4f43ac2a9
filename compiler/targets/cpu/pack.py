"""Operands with a run-time stride along the vector axis: copied to the stack and back, PACK elements at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ...core.types import real_dtype
from ...kernel.loop_nest import Instr
from .access import VectorAccess
from .frame import llvm_element_type
from .llvm_ir import UNROLLED, LlvmValue

PACK = 512


def strided_operands(access: VectorAccess, instrs: Sequence[Instr]) -> list[int]:
    """The operands that the instructions touch, have a run-time stride along the vectors and are not packed yet."""
    if access.axis is None:
        return []
    touched = sorted({i.attr[0] for i in instrs if i.op in ("load", "store")})
    layouts = [o.layout for o in access.frame.nest.operands]
    return [o for o in touched if layouts[o][access.axis] == "s" and o not in access.packed and o not in access.zipped]


@contextmanager
def pack_operands(
    access: VectorAccess,
    scratch: dict[int, LlvmValue],
    operands: list[int],
    instrs: Sequence[Instr],
    low: LlvmValue,
    high: LlvmValue,
) -> Iterator[None]:
    """Let the operands' places be on the stack for [low, high) of the vector axis."""
    f, known = access.frame.f, access.frame.nest.operands
    ops = {op: {i.attr[0] for i in instrs if i.op == op} for op in ("load", "store")}
    before = {o: access.places[o] for o in operands}
    for operand in operands:
        if operand not in scratch:
            scratch[operand] = f.slot(llvm_element_type(known[operand]), PACK)
        if operand in ops["load"]:
            _pack_operand_copy(access, operand, before[operand][0], scratch[operand], low, high, pack=True)
        access.places[operand] = (scratch[operand], low)
    yield
    for operand in operands:
        if operand in ops["store"]:
            _pack_operand_copy(access, operand, before[operand][0], scratch[operand], low, high, pack=False)
        access.places[operand] = before[operand]


def _pack_operand_copy(
    access: VectorAccess, number: int, base: LlvmValue, near: LlvmValue, low: LlvmValue, high: LlvmValue, pack: bool
) -> None:
    f, operand, axis = access.frame.f, access.frame.nest.operands[number], access.axis
    assert axis is not None
    kind, align = f"i{8 * operand.dtype.itemsize}", real_dtype(operand.dtype).itemsize
    with f.loop(low, high, note=UNROLLED) as i:
        far = base.at(i.binary("mul nsw", access.frame.strides[number, axis]), llvm_element_type(operand))
        here = near.at(i - low, llvm_element_type(operand))
        source, target = (far, here) if pack else (here, far)
        target.store(source.load(kind, 1, align), align)
