"""Prefetches beside loads and stores: what a pass over memory needs soon, before the machine guesses it by itself.

A pass along contiguous memory fetches some distance ahead of its loads into the second-level cache and, for ordinary
stores, lines to write into the first. A pass over short stretches of many rows fetches the same stretch a few rows on.
"""

from __future__ import annotations

from ...kernel.loop_nest import LoopNest
from .frame import CpuKernelFrame, llvm_element_type
from .llvm_ir import LINE, LlvmValue

READ_AHEAD = 2048  # bytes; 8192 is no faster beside stores, and a fifth slower in a loop that only reads
WRITE_AHEAD = 1024
ROWS_AHEAD = 4


def operands_to_prefetch(nest: LoopNest, axis: int | None) -> dict[int, int]:
    """The operands worth it, contiguous along the vectors and read once only: number -> its first phase."""
    found: dict[int, int] = {}
    for number, phase in enumerate(nest.phases):
        for instr in phase.instrs:
            if axis is not None and instr.op in ("load", "store"):
                layout = nest.operands[instr.attr[0]].layout
                if layout[axis] == "1" and "0" not in layout:
                    found.setdefault(instr.attr[0], number)
    return found


def emit_prefetch(
    frame: CpuKernelFrame, number: int, place: LlvmValue, lanes: int, step_axis: int | None, step_rows: int, write: bool
) -> None:
    """Fetch for operand `number`, whose vector lies at `place`; step_axis: what the next stretch is along, if short;
    step_rows: how many rows a stretch takes."""
    f, operand = frame.f, frame.nest.operands[number]
    if step_axis is None:
        far = place.at(WRITE_AHEAD if write else READ_AHEAD, "i8", inside=False)
    elif (number, step_axis) in frame.strides:
        far = place.at(
            frame.strides[number, step_axis] * max(ROWS_AHEAD, step_rows), llvm_element_type(operand), inside=False
        )
    else:
        return
    f.module.declare("@llvm.prefetch.p0", "void @llvm.prefetch.p0(ptr, i32, i32, i32)")
    for line in range(0, max(LINE, lanes * operand.dtype.itemsize), LINE):
        address = far.at(line, "i8", inside=False) if line else far
        f.do(f"call void @llvm.prefetch.p0(ptr {address}, i32 {int(write)}, i32 {3 if write else 2}, i32 1)")
