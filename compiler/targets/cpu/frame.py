"""The parameters of a CPU kernel and the place in its loops: pointers, lengths, strides, indices, addresses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ...core.types import real_dtype
from ...kernel.loop_nest import MEMORY, Instr, LoopNest, Operand
from .llvm_ir import LlvmFunction, LlvmValue
from .primitives import memory_type, register_type


class CpuKernelFrame:
    """What is known at the current place of a kernel that is being written.

    index: the value of every axis that has one here. values, results: the SSA values in reach.
    """

    def __init__(self, nest: LoopNest, f: LlvmFunction) -> None:
        self.nest, self.f = nest, f
        slots = LlvmValue(f, "%slots", "ptr")
        count = 0

        def parameter(elem: str) -> LlvmValue:
            nonlocal count
            count += 1
            return slots.at(count - 1, "i64").load(elem)

        self.pointers = [parameter("ptr") for _ in nest.operands]
        self.lengths = [parameter("i64") for _ in range(nest.axes)]
        self.strides = {
            (number, axis): parameter("i64")
            for number, operand in enumerate(nest.operands)
            for axis, letter in enumerate(operand.layout)
            if letter == "s"
        }
        self.scalars = [
            self.to_register(parameter(memory_type(s))) if s.kind == "b" else parameter(register_type(s))
            for s in nest.scalars
        ]
        self.index: dict[int, LlvmValue] = {}
        self.values: dict[int, LlvmValue] = {}
        self.results: dict[tuple[int, int, int], LlvmValue] = {}

    @staticmethod
    def to_register(stored: LlvmValue) -> LlvmValue:
        """A bool from the byte that holds it."""
        return stored.ne(0)

    def address(self, number: int, axes: Sequence[int]) -> LlvmValue:
        """The address of operand `number` at the current index of `axes`. All other indices are 0."""
        operand, place = self.nest.operands[number], self.pointers[number]
        for axis in axes:
            if operand.layout[axis] != "0":
                offset = self.index[axis]
                if operand.layout[axis] == "s":
                    offset = offset.binary("mul nsw", self.strides[number, axis])
                place = place.at(offset, llvm_element_type(operand))
        return place


def llvm_element_type(operand: Operand) -> str:
    """The type of an element in memory; a pair for complex."""
    one = memory_type(real_dtype(operand.dtype))
    return f"[2 x {one}]" if operand.dtype.kind == "c" else one


def numbered_instructions(nest: LoopNest) -> dict[int, Instr]:
    return {at: instr for phase in nest.phases for at, instr in enumerate(phase.instrs, phase.first)}


def axis_dependences(nest: LoopNest, axis: int | None) -> dict[int, frozenset[int]]:
    """For each value (or store) the axes along which it may vary; `axis` is that of the vectors.

    A reduction by columns is kept for each column, whether or not it varies.
    """
    columns = frozenset([axis] if axis is not None and axis < nest.parallel else [])
    found: dict[int, frozenset[int]] = {}
    reduced = frozenset(range(nest.parallel, nest.axes))
    by_result: dict[tuple[int, int], frozenset[int]] = {}
    for number, phase in enumerate(nest.phases):
        for at, instr in enumerate(phase.instrs, phase.first):
            axes = frozenset[int]().union(*(found[a] for a in instr.args))
            if instr.op in MEMORY:
                layout = nest.operands[instr.attr[0]].layout
                axes |= {axis for axis, letter in enumerate(layout) if letter != "0"}
            elif instr.op == "index":
                axes |= {instr.attr}
            elif instr.op == "result":
                axes |= by_result[instr.attr[:2]]
            found[at] = axes
        for r, reduction in enumerate(phase.reductions):
            axes = columns.union(*(found[v] for v in reduction.values))
            by_result[number, r] = axes - reduced
    return found


@contextmanager
def emit_flat_loop(
    frame: CpuKernelFrame, dims: Sequence[tuple[int, LlvmValue]], begin: LlvmValue, end: LlvmValue
) -> Iterator[None]:
    """Runs the body for units begin..end of a row-major box. dims: (axis, length); the body gets the index of each
    axis.

    One division an axis at the start; then the index is carried along.
    """
    f = frame.f
    slots = {axis: f.slot("i64") for axis, _ in dims}
    with f.when(begin.compare("ult", end)):
        rest = begin
        for axis, length in reversed(dims[1:]):
            slots[axis].store(rest.binary("urem", length))
            rest = rest.binary("udiv", length)
        if dims:
            slots[dims[0][0]].store(rest)
        with f.loop(begin, end):
            current = {axis: slots[axis].load("i64") for axis, _ in dims}
            frame.index.update(current)
            yield
            carry: LlvmValue | None = None
            for axis, length in reversed(dims):
                following = current[axis] + (1 if carry is None else carry.to("zext", "i64"))
                carry = following.eq(length)
                slots[axis].store(carry.pick(0, following))


@contextmanager
def emit_loop_nest(frame: CpuKernelFrame, axes: Sequence[int]) -> Iterator[None]:
    """Run the body for every index of `axes`, the last one fastest."""
    if not axes:
        yield
        return
    with frame.f.loop(frame.f.const(0, "i64"), frame.lengths[axes[0]]) as i:
        frame.index[axes[0]] = i
        with emit_loop_nest(frame, axes[1:]):
            yield
