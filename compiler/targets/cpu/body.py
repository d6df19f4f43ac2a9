"""One phase of a kernel over a stretch of its vector axis. Its scalar part, then a loop over groups of lanes.

What does not vary along the vector axis is computed once before the loop. The loop takes whole vectors; the rest runs
once under a mask through the same instructions, so a value does not depend on where it stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from ....runtime.core.frozen import dataclass
from ....runtime.program.user_function import UserFunction as UserFunction
from ...kernel.loop_nest import EFFECTS, MEMORY, Instr, Phase
from .access import (
    CpuKernelFrame,
    Lanes,
    VectorAccess,
    gather_strided_elements,
    llvm_element_type,
    nontemporal_store_alignment,
    nontemporal_store_operands,
    numbered_instructions_of_cpu_kernel,
    scatter_strided_elements,
)
from .gather import emit_llvm_vector_gather, emit_vector_index_report
from .llvm_ir import LlvmValue, llvm_mask_below
from .primitives import emit_llvm_primitive, llvm_scalar_constant
from .reduce import FOLD, load_vector_from_row_buffer, store_vector_in_row_buffer
from .user_functions import emit_llvm_user_call

Step: TypeAlias = Callable[[Lanes], None]
Fold: TypeAlias = Callable[[], None]


class VectorLoopBody:
    """Writes the phases of a nest along `axis` (None: no vector axis, scalars only) in vectors of `lanes`.

    recall: gives a varying value of an earlier phase, or a reduction's result, at some lanes (column strategy).
    keep: values of a row to store, and the buffers for them; take: values to load from buffers, not to compute.
    large: for the operands that may be streamed, whether they are worth it.
    """

    def __init__(self, frame: CpuKernelFrame, axis: int | None, lanes: int, depends: dict[int, frozenset[int]]) -> None:
        nest = frame.nest
        self.frame, self.axis, self.lanes, self.depends = frame, axis, lanes, depends
        self.instrs = numbered_instructions_of_cpu_kernel(nest)
        self.access = VectorAccess(frame, axis)
        self.recall: Callable[[Instr | int, Lanes], LlvmValue] | None = None
        self.keep: dict[int, LlvmValue] = {}
        self.take: dict[int, LlvmValue] = {}
        self.large: dict[int, LlvmValue] = {}
        self._scratch: dict[int, LlvmValue] = {}
        self.crossing: set[int] = set()  # values used in a later phase than their own
        home = {at: phase for phase in nest.phases for at in range(phase.first, phase.first + len(phase.instrs))}
        for phase in nest.phases:
            used = [a for i in phase.instrs for a in i.args] + [v for r in phase.reductions for v in r.values]
            self.crossing.update(a for a in used if home[a] is not phase)

    def varies_along_vectors(self, at: int) -> bool:
        return self.axis is not None and self.axis in self.depends[at]

    def prepare(self, phase: Phase) -> None:
        """Addresses at the current index of all other axes, then the phase's scalar part."""
        self.access.locate_operands({i.attr[0] for i in phase.instrs if i.op in MEMORY})
        self.access.phase = self.frame.nest.phases.index(phase)
        once = Lanes(None, 1)
        for at, instr in enumerate(phase.instrs, phase.first):
            if not self.varies_along_vectors(at):
                self._write_instruction(at, instr, once)

    def run(
        self, phase: Phase, start: LlvmValue, stop: LlvmValue, step: Step, copies: int = 1, fold: Fold | None = None
    ) -> None:
        """Writes the phase over [start, stop) of the vector axis. The loop holds so many copies of the instructions.

        `step` is called at the end of each copy, `fold` after every FOLD turns of the loop.
        """
        self.prepare(phase)
        instrs = [i for at, i in self._live_instructions(phase) if at not in self.take]
        packed = strided_vector_operands(self.access, instrs)
        if not packed and copies % SECTIONS == 0:
            start, copies = self._unrolled_loop(phase, start, stop, step, copies, fold), 1
        if not packed and fold is None:
            self._phase_loop(phase, start, stop, step, copies)
            return
        f = self.frame.f
        block = PACK if packed else FOLD * copies * self.lanes
        with f.loop(start, stop, block) as low:
            high = f.intrinsic("umin", "i64", low + block, stop)
            with pack_strided_vector_operands(self.access, self._scratch, packed, instrs, low, high):
                self._phase_loop(phase, low, high, step, copies)
            if fold is not None:
                fold()

    def packs_operands(self, phase: Phase) -> bool:
        """Whether operands are copied to the stack before the phase's loops."""
        return bool(strided_vector_operands(self.access, [i for _, i in self._live_instructions(phase)]))

    def run_rows(
        self,
        phase: Phase,
        axis: int,
        rows: int,
        start: LlvmValue,
        stop: LlvmValue,
        step: Callable[[LlvmValue, Iterable[Lanes]], None],
    ) -> None:
        """Writes the phase over [start, stop) for neighbouring rows in one pass.

        `step` is called with the first lane and the lanes of each of them, to be taken one after the other. More than
        one: of a phase that packs nothing."""
        if rows == 1:
            self.run(phase, start, stop, lambda lanes: step(lanes.i, [lanes]))  # type: ignore[arg-type]
            return
        f, wide, frame, access = self.frame.f, self.lanes, self.frame, self.access
        first, places = frame.index[axis], []
        for row in range(rows):
            frame.index[axis] = first + row if row else first
            self.prepare(phase)
            places.append((frame.index[axis], dict(access.places), dict(frame.values)))

        def write_row_lanes(i: LlvmValue, mask: LlvmValue | None) -> Iterator[Lanes]:
            for place in places:
                frame.index[axis], access.places, frame.values = place
                lanes = Lanes(i, wide, mask)
                self._write_vector_group(phase, lanes, lambda lanes: None)
                yield lanes

        f.vectors(start, stop, wide, lambda i, mask, copy: step(i, write_row_lanes(i, mask)))

    def _unrolled_loop(
        self, phase: Phase, start: LlvmValue, stop: LlvmValue, step: Step, copies: int, fold: Fold | None
    ) -> LlvmValue:
        """The loop of all copies, which are in several parts of a long stretch; where the rest of it begins."""
        f, parts = self.frame.f, split_vector_loop_into_sections(start, stop, self.lanes, copies)

        def loop_over_copies(low: LlvmValue, high: LlvmValue) -> None:
            with f.loop(low, high, parts.advance) as i:
                for copy, offset in enumerate(parts.offsets):
                    self._write_vector_group(phase, Lanes(i + offset, self.lanes, None, copy), step)

        if fold is None:
            loop_over_copies(start, parts.end)
            return parts.rest
        block = parts.advance * FOLD
        with f.loop(start, parts.end, block) as low:
            loop_over_copies(low, f.intrinsic("umin", "i64", low + block, parts.end))
            fold()
        return parts.rest

    def _phase_loop(self, phase: Phase, start: LlvmValue, stop: LlvmValue, step: Step, most: int) -> None:
        f, wide = self.frame.f, self.lanes
        streams = nontemporal_store_operands(self.frame.nest, phase, self.axis, wide)
        if streams and self.large:
            self._streaming_store_loop(phase, streams, start, stop, step)
            return

        def write(i: LlvmValue, mask: LlvmValue | None, copy: int) -> None:
            self._write_vector_group(phase, Lanes(i, wide, mask, copy), step)

        f.vectors(start, stop, wide, write, most)

    def _streaming_store_loop(
        self, phase: Phase, streams: list[int], start: LlvmValue, stop: LlvmValue, step: Step
    ) -> None:
        """The loop with streaming stores where they pay.

        What is before the first whole line, and after the last whole vector, is done first, under masks.
        """
        f, wide, access = self.frame.f, self.lanes, self.access
        streaming, before = nontemporal_store_alignment(
            access, streams, [self.large[s] for s in streams], start, stop, wide
        )
        first = start + before
        whole = first + ((stop - first) & -wide)
        with f.loop(0, 2) as end:
            position, count = end.eq(0).pick(start, whole), end.eq(0).pick(before, stop - whole)
            with f.when(count.ne(0)):
                self._write_vector_group(phase, Lanes(position, wide, llvm_mask_below(f, count, wide)), step)
        access.streaming = dict.fromkeys(streams, streaming)
        with f.loop(first, whole, wide) as i:
            self._write_vector_group(phase, Lanes(i, wide), step)
        access.streaming = {}

    # instructions

    def _live_instructions(self, phase: Phase) -> list[tuple[int, Instr]]:
        """The varying instructions of the phase that anything needs."""
        needed, live = {*(v for r in phase.reductions for v in r.values), *self.keep, *self.crossing}, []
        for at, instr in reversed(list(enumerate(phase.instrs, phase.first))):
            if self.varies_along_vectors(at) and (instr.op in EFFECTS or at in needed):
                live.append((at, instr))
                needed.update(() if at in self.take else instr.args)
        return live[::-1]

    def _write_vector_group(self, phase: Phase, lanes: Lanes, step: Step) -> None:
        for at, instr in self._live_instructions(phase):
            if at in self.take and lanes.i is not None:
                lanes.values[at] = load_vector_from_row_buffer(self.take[at], instr.dtype, lanes.i, lanes.count)
            else:
                self._write_instruction(at, instr, lanes)
            if at in self.keep and lanes.i is not None:
                store_vector_in_row_buffer(self.keep[at], instr.dtype, lanes.i, lanes.values[at])
        step(lanes)

    def value(self, number: int, lanes: Lanes) -> LlvmValue:
        """A value at these lanes, wherever it was made."""
        if number in lanes.values:
            return lanes.values[number]
        if number in self.frame.values:
            return self.frame.values[number]
        assert self.recall is not None
        lanes.values[number] = self.recall(number, lanes)
        return lanes.values[number]

    def _write_instruction(self, at: int, instr: Instr, lanes: Lanes) -> None:
        if instr.op == "store":
            self.access.store(instr, self.value(instr.args[0], lanes), lanes)
            return
        if instr.op == "report":
            value, condition = (self.value(a, lanes) for a in instr.args)
            emit_vector_index_report(self.access, instr, value, condition, lanes)
            return
        source = SOURCES.get(instr.op)
        if source is not None:
            found = source(self, instr, lanes)
        else:
            args = [self.value(a, lanes) for a in instr.args]
            found = emit_llvm_primitive(instr.op, self.instrs[instr.args[-1]].dtype, instr.dtype, args)
        (lanes.values if self.varies_along_vectors(at) else self.frame.values)[at] = found


def _vector_of_indices(body: VectorLoopBody, instr: Instr, lanes: Lanes) -> LlvmValue:
    if instr.attr != body.axis:
        return body.frame.index[instr.attr]
    assert lanes.i is not None
    return lanes.i + body.frame.f.vector(list(range(lanes.count)), "i64")


def _reduction_result_in_vector_loop(body: VectorLoopBody, instr: Instr, lanes: Lanes) -> LlvmValue:
    known = body.frame.results.get(instr.attr)
    if known is not None:
        return known
    assert body.recall is not None
    return body.recall(instr, lanes)


def _user_call_result_in_vector_loop(body: VectorLoopBody, instr: Instr, lanes: Lanes) -> LlvmValue:
    """A result of a user's function; all are computed by the first that asks for one."""
    function, part = instr.attr
    call: tuple[UserFunction, tuple[int, ...]] = (function, instr.args)
    if call not in lanes.called:
        args = [body.value(a, lanes) for a in instr.args]
        lanes.called[call] = emit_llvm_user_call(body.frame.f, function, args, lanes.count, lanes.mask)
    result: LlvmValue = lanes.called[call][part]
    return result


SOURCES: dict[str, Callable[[VectorLoopBody, Instr, Lanes], LlvmValue]] = {
    "const": lambda body, instr, lanes: llvm_scalar_constant(body.frame.f, instr.dtype, instr.attr),
    "load": lambda body, instr, lanes: body.access.load(instr, lanes),
    "gather": lambda body, instr, lanes: emit_llvm_vector_gather(
        body.access, instr, body.value(instr.args[0], lanes), lanes
    ),
    "scalar": lambda body, instr, lanes: body.frame.scalars[instr.attr],
    "size": lambda body, instr, lanes: body.frame.lengths[instr.attr],
    "index": _vector_of_indices,
    "call": _user_call_result_in_vector_loop,
    "result": _reduction_result_in_vector_loop,
}


# Parts of memory that an unrolled loop reads side by side. A core that reads one place after another waits for memory
# it could have asked for: each stream of reads has a few misses under way, and starts anew at each page. Four streams
# read a quarter more than one (measured), if they do not lie a power of two apart, where they would meet in the same
# sets of the caches. A short stretch, which the caches hold, is read from front to back. The order of a sum depends on
# the stretch's length alone.
SECTIONS = 4
LONG = 1 << 17  # elements of a stretch that is read in sections
PAGE = 1024  # elements: a section is whole pages and
SKEW = 320  # these


@dataclass(frozen=True)
class ReadSections:
    """The loop is for position in range(start, end, advance), its copies at position + offsets[copy]. rest: where what
    no copy does begins."""

    end: LlvmValue
    advance: LlvmValue
    offsets: Sequence[LlvmValue]
    rest: LlvmValue


def split_vector_loop_into_sections(start: LlvmValue, stop: LlvmValue, wide: int, copies: int) -> ReadSections:
    """For [start, stop) in vectors of `wide` lanes; copies: a multiple of SECTIONS."""
    f, per = start.f, copies // SECTIONS
    unit = wide * per
    length = stop - start
    long = length.compare("uge", LONG)
    skew = -(-SKEW // unit) * unit
    size = ((length.binary("lshr", SECTIONS.bit_length() - 1) - skew) & -max(PAGE, unit)) + skew
    whole = length & -(wide * copies)
    apart = long.pick(size, unit)
    return ReadSections(
        end=start + long.pick(size, whole),
        advance=long.pick(unit, f.const(wide * copies, "i64")),
        offsets=[apart * (copy // per) + wide * (copy % per) for copy in range(copies)],
        rest=start + long.pick(size * SECTIONS, whole),
    )


PACK = 512  # elements of operands with a run-time stride along the vectors, which are copied to the stack and back


def strided_vector_operands(access: VectorAccess, instrs: Sequence[Instr]) -> list[int]:
    """The operands that the instructions touch, have a run-time stride along the vectors and are not packed yet."""
    if access.axis is None:
        return []
    touched = sorted({i.attr[0] for i in instrs if i.op in ("load", "store")})
    layouts = [o.layout for o in access.frame.nest.operands]
    return [o for o in touched if layouts[o][access.axis] == "s" and o not in access.packed and o not in access.zipped]


@contextmanager
def pack_strided_vector_operands(
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
            _pack_strided_vector_operand(access, operand, before[operand][0], scratch[operand], low, high, pack=True)
        access.places[operand] = (scratch[operand], low)
    yield
    for operand in operands:
        if operand in ops["store"]:
            _pack_strided_vector_operand(access, operand, before[operand][0], scratch[operand], low, high, pack=False)
        access.places[operand] = before[operand]


def _pack_strided_vector_operand(
    access: VectorAccess, number: int, base: LlvmValue, near: LlvmValue, low: LlvmValue, high: LlvmValue, pack: bool
) -> None:
    operand, axis = access.frame.nest.operands[number], access.axis
    assert axis is not None
    stride, elem = access.frame.strides[number, axis], llvm_element_type(operand)
    far, count = base.at(low.binary("mul nsw", stride), elem), high - low
    if pack:
        gather_strided_elements(operand, far, stride, near, count)
    else:
        scatter_strided_elements(operand, near, far, stride, count)
