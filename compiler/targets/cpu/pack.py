"""Operands with a run-time stride along the vector axis: copied to the stack and back, PACK elements at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ...core.types import real_of
from ...kernel.loop_nest import Instr
from .access import Access
from .frame import item
from .llvm_ir import UNROLLED, Value

PACK = 512


def strided(access: Access, instrs: Sequence[Instr]) -> list[int]:
    """The operands that the instructions touch, have a run-time stride along the vectors and are not packed yet."""
    if access.axis is None:
        return []
    touched = sorted({i.attr[0] for i in instrs if i.op in ("load", "store")})
    layouts = [o.layout for o in access.frame.nest.operands]
    return [o for o in touched if layouts[o][access.axis] == "s" and o not in access.packed and o not in access.zipped]


@contextmanager
def packing(
    access: Access, scratch: dict[int, Value], operands: list[int], instrs: Sequence[Instr], low: Value, high: Value
) -> Iterator[None]:
    """Let the operands' places be on the stack for [low, high) of the vector axis."""
    f, known = access.frame.f, access.frame.nest.operands
    ops = {op: {i.attr[0] for i in instrs if i.op == op} for op in ("load", "store")}
    before = {o: access.places[o] for o in operands}
    for operand in operands:
        if operand not in scratch:
            scratch[operand] = f.slot(item(known[operand]), PACK)
        if operand in ops["load"]:
            _copy(access, operand, before[operand][0], scratch[operand], low, high, pack=True)
        access.places[operand] = (scratch[operand], low)
    yield
    for operand in operands:
        if operand in ops["store"]:
            _copy(access, operand, before[operand][0], scratch[operand], low, high, pack=False)
        access.places[operand] = before[operand]


def _copy(access: Access, number: int, base: Value, near: Value, low: Value, high: Value, pack: bool) -> None:
    f, operand, axis = access.frame.f, access.frame.nest.operands[number], access.axis
    assert axis is not None
    kind, align = f"i{8 * operand.dtype.itemsize}", real_of(operand.dtype).itemsize
    with f.loop(low, high, note=UNROLLED) as i:
        far = base.at(i.binary("mul nsw", access.frame.strides[number, axis]), item(operand))
        here = near.at(i - low, item(operand))
        source, target = (far, here) if pack else (here, far)
        target.store(source.load(kind, 1, align), align)
