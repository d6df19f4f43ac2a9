"""Which costly values of a row a later loop would compute again: they are kept in a buffer of the row instead.

`exp(x - max)` of a softmax is one: its sum needs it, then its quotient does. The buffer holds the whole row if it is
at most `capacity` long; a longer row is computed again (the buffer then holds nothing of use).
"""

from __future__ import annotations

from ....runtime.core.frozen import dataclass, field
from ...core.types import BOOL, DType
from ...kernel.loop_nest import LOOP, LoopNest
from .llvm_ir import LlvmValue, type_bits
from .primitives import MATH, memory_type

BYTES = 65536  # of a buffer
BUFFERS = 2


@dataclass(frozen=True)
class RowBufferReuse:
    """keep: values to store, by number; take: values to load instead, each with the number of the kept one."""

    keep: tuple[int, ...] = ()
    take: dict[int, int] = field(default_factory=dict)


def values_to_buffer(nest: LoopNest) -> RowBufferReuse:
    """The costly values that loops of one reduced axis have in common."""
    if nest.reduced != 1:
        return RowBufferReuse()
    keys: dict[int, int] = {}  # each value's: the first value that equals it at every point
    known: dict[object, int] = {}
    costly: set[int] = set()
    first: dict[int, int] = {}
    take: dict[int, int] = {}
    for phase in nest.phases:
        here: dict[int, int] = {}
        again: dict[int, int] = {}
        for at, instr in enumerate(phase.instrs, phase.first):
            changing = instr.op == "load" and nest.operands[instr.attr[0]].role != "in"
            own = phase.kind != LOOP or instr.op == "store" or changing
            key = at if own else (instr.op, instr.dtype, tuple(keys[a] for a in instr.args), instr.attr)
            keys[at] = known.setdefault(key, at)
            if phase.kind == LOOP and (instr.op in MATH or any(a in costly for a in instr.args)):
                costly.add(at)
                again.update({at: first[keys[at]]} if keys[at] in first else {})
                here.setdefault(keys[at], at)
        outside = [i.args for at, i in enumerate(phase.instrs, phase.first) if at not in again]
        used = {a for args in (*outside, *(r.values for r in phase.reductions)) for a in args}
        take.update({at: kept for at, kept in again.items() if at in used})
        for key, at in here.items():
            first.setdefault(key, at)
    keep = tuple(dict.fromkeys(take.values()))[:BUFFERS]
    return RowBufferReuse(keep, {at: kept for at, kept in take.items() if kept in keep})


def row_buffer_capacity(nest: LoopNest) -> int:
    """The longest row that a buffer can hold, whatever it is of."""
    dtypes = {i.dtype for p in nest.phases for i in p.instrs}
    return BYTES // max((type_bits(memory_type(d)) // 8 for d in dtypes), default=8)


def _row_buffer_address(buffer: LlvmValue, dtype: DType, i: LlvmValue) -> LlvmValue:
    """Where index i of a row lies; rows that are too long run round."""
    elem = memory_type(dtype)
    return buffer.at(i & (8 * BYTES // type_bits(elem) - 1), elem)


def store_in_row_buffer(buffer: LlvmValue, dtype: DType, i: LlvmValue, value: LlvmValue) -> None:
    """Store a vector of the row, whole: buffers have room for it."""
    _row_buffer_address(buffer, dtype, i).store(value.to("zext", "i8") if dtype == BOOL else value)


def load_from_row_buffer(buffer: LlvmValue, dtype: DType, i: LlvmValue, lanes: int) -> LlvmValue:
    raw = _row_buffer_address(buffer, dtype, i).load(memory_type(dtype), lanes)
    return raw.ne(0) if dtype == BOOL else raw
