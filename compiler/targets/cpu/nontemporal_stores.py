"""Streaming stores: which outputs may be written round the caches, and whether a call's are large enough for it.

An ordinary store reads its cache line from memory first. A streaming one does not, so a kernel that merely passes over
memory saves a third of its traffic. Between long computations they are slower than ordinary stores (measured), so only
light bodies use them.
"""

from __future__ import annotations

from ...kernel.loop_nest import LOOP, LoopNest, Phase, calls_looping_function
from .access import VectorAccess
from .frame import CpuKernelFrame
from .llvm_ir import LINE, LlvmValue
from .primitives import MATH

LARGE = 32 << 20  # bytes of an output that the caches will not hold until it is read
LIGHT = 12  # instructions of a light body
SLOW = MATH | {"div", "sqrt", "quot", "rem", "gcd"}


def streamable_outputs(nest: LoopNest, phase: Phase, axis: int | None, lanes: int) -> list[int]:
    """The operands that a phase may stream: outputs of one item size, contiguous along the vector axis."""
    work = [i for i in phase.instrs if i.op not in ("load", "store", "const", "scalar", "result", "size")]
    if axis is None or phase.reductions or len(work) > LIGHT or any(i.op in SLOW for i in work):
        return []
    if phase.kind == LOOP or len(nest.phases) > 1 or calls_looping_function(nest):
        return []
    stored = sorted({i.attr[0] for i in phase.instrs if i.op == "store"})
    fitting = [o for o in stored if nest.operands[o].role == "out" and nest.operands[o].layout[axis] == "1"]
    sizes = {nest.operands[o].dtype.itemsize for o in fitting}
    return fitting if len(sizes) == 1 and min(sizes) >= 4 and min(sizes) * lanes % 32 == 0 else []


def is_large_operand(frame: CpuKernelFrame, number: int) -> LlvmValue:
    """Whether the operand has LARGE bytes or more, by the lengths of its axes."""
    operand, size = frame.nest.operands[number], frame.f.const(1, "i64")
    for letter, length in zip(operand.layout, frame.lengths, strict=True):
        size = size * length if letter != "0" else size
    return size.compare("uge", LARGE // operand.dtype.itemsize)


def store_alignment(
    access: VectorAccess, streams: list[int], large: list[LlvmValue], start: LlvmValue, stop: LlvmValue, lanes: int
) -> tuple[LlvmValue, LlvmValue]:
    """Whether to stream over [start, stop), and how many elements come before it.

    All operands are large and lie equally in their cache lines; whole elements lead up to the next line (or vector).
    """
    f = start.f
    itemsize = access.frame.nest.operands[streams[0]].dtype.itemsize
    first, *others = [f.let(f"ptrtoint ptr {access.place(s, start)} to i64", "i64") for s in streams]
    streaming = large[0] & (first & (itemsize - 1)).eq(0)
    for other, is_large in zip(others, large[1:], strict=True):
        streaming = streaming & is_large & ((first - other) & (LINE - 1)).eq(0)
    rest = ((0 - first) & (min(LINE, lanes * itemsize) - 1)).binary("udiv", itemsize)
    return streaming, streaming.pick(f.intrinsic("umin", "i64", rest, stop - start), 0)
