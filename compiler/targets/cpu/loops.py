"""The loop strategies: rows (vectors along the innermost reduced axis) and columns (along the innermost parallel one).

Rows: a unit is one parallel index; accumulators are vectors in registers. Columns: a unit is one index of the outer
parallel axes and BLOCK columns; accumulators and the values that pass between phases are stack arrays over the block.
Elementwise kernels are columns without reductions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TypeAlias

from ...core.types import DType
from ...kernel.loop_nest import LOOP, POINT, Instr, LoopNest, Phase, nest_calls_looping_function
from .access import CpuKernelFrame, Lanes, emit_llvm_flat_loop, emit_llvm_loop_nest
from .body import VectorLoopBody
from .llvm_ir import LlvmValue, llvm_type_bits
from .primitives import MATH, llvm_memory_type, llvm_register_type
from .reduce import (
    BYTES,
    LlvmReductionCombine,
    Parts,
    fold_vector_accumulators,
    llvm_reduction_combine,
    merge_vector_accumulators,
    merge_vector_lanes,
    vector_row_buffer_capacity,
    vector_values_to_buffer,
)

BLOCK = 2048  # elements of a unit along the vector axis, elementwise
COLUMNS = 512  # the same with values of several phases on the stack
LOOPED = 128  # the same where points differ in what they cost

Combines: TypeAlias = list[tuple[LlvmReductionCombine, tuple[int, ...]]]


def cpu_reduces_by_columns(nest: LoopNest) -> bool:
    """Whether vectors along the innermost parallel axis need less packing than along the innermost reduced one, or as
    little where windows overlap: those are short."""
    if not nest.parallel:
        return False
    parallel, reduced = nest.parallel - 1, nest.axes - 1
    in_loops = {i.attr[0] for p in nest.phases if p.kind == LOOP for i in p.instrs if i.op in ("load", "store")}
    layouts = [nest.operands[o].layout for o in sorted(in_loops)]
    packed_rows, packed_columns = ([y[axis] for y in layouts].count("s") for axis in (reduced, parallel))
    read = {i.attr[0] for p in nest.phases if p.kind == LOOP for i in p.instrs if i.op == "load"}
    overlap = any(y[reduced] == y[parallel] == "1" for y in (nest.operands[o].layout for o in read))
    return packed_rows > packed_columns or (overlap and packed_rows == packed_columns)


def choose_vector_axis(nest: LoopNest) -> int | None:
    """The axis that vectors run along: an innermost one; None for a kernel that computes one point."""
    if any(p.kind == LOOP for p in nest.phases) and nest.reduced and not cpu_reduces_by_columns(nest):
        return nest.axes - 1
    return nest.parallel - 1 if nest.parallel else None


def cpu_column_block_length(nest: LoopNest) -> int:
    """The length of a unit along the innermost parallel axis, in the column strategy."""
    return LOOPED if nest_calls_looping_function(nest) else COLUMNS if len(nest.phases) > 1 else BLOCK


def llvm_combines_of_phase(nest: LoopNest, body: VectorLoopBody, phase: Phase) -> Combines:
    return [
        (llvm_reduction_combine(r, tuple(body.instrs[v].dtype for v in r.values)), r.values) for r in phase.reductions
    ]


# rows


def cpu_reduction_unroll_factor(phase: Phase, body: VectorLoopBody) -> int:
    """How often a loop of reductions is unrolled, with accumulators for each copy: short bodies wait for them."""
    if not phase.reductions:
        return 1
    work = sum(
        20 if i.op in MATH else 1 for at, i in enumerate(phase.instrs, phase.first) if body.varies_along_vectors(at)
    )
    work += sum(4 * len(r.values) - 4 for r in phase.reductions)
    return 8 if work <= 2 else 4 if work <= 8 else 2 if work <= 16 else 1


def write_llvm_row_loops(frame: CpuKernelFrame, body: VectorLoopBody, begin: LlvmValue, end: LlvmValue) -> None:
    nest = frame.nest
    axes = [(axis, frame.lengths[axis]) for axis in range(nest.parallel)]
    reuse = vector_values_to_buffer(nest)
    buffers = {kept: frame.f.slot("i8", BYTES) for kept in reuse.keep}
    body.keep = buffers
    take = {at: buffers[kept] for at, kept in reuse.take.items()}
    with emit_llvm_flat_loop(frame, axes, begin, end):
        for number, phase in enumerate(nest.phases):
            if phase.kind == POINT:
                body.prepare(phase)
            else:
                again = {at: b for at, b in take.items() if phase.first <= at < phase.first + len(phase.instrs)}
                _write_llvm_row_reduction(frame, body, number, phase, again)


def _write_llvm_row_reduction(
    frame: CpuKernelFrame, body: VectorLoopBody, number: int, phase: Phase, take: dict[int, LlvmValue]
) -> None:
    """A LOOP phase over a row; `take`: its values that are in buffers, if the row is short enough."""
    f, nest = frame.f, frame.nest
    rows, copies = llvm_combines_of_phase(nest, body, phase), cpu_reduction_unroll_factor(phase, body)
    slots: list[list[list[LlvmValue]]] = []  # reduction, copy, part
    for combine, _ in rows:
        slots.append([[f.slot(v.kind) for v in combine.start(f, body.lanes)] for _ in range(copies)])
        for places in slots[-1]:
            for place, value in zip(places, combine.start(f, body.lanes), strict=True):
                place.store(value, 64)

    def load_accumulators(combine: LlvmReductionCombine, places: list[LlvmValue]) -> Parts:
        return tuple(p.load(llvm_register_type(k), body.lanes, 64) for p, k in zip(places, combine.kinds, strict=True))

    def accumulate_lanes(lanes: Lanes) -> None:
        for (combine, sources), copied in zip(rows, slots, strict=True):
            places = copied[lanes.copy]
            old = load_accumulators(combine, places)
            values = tuple(body.value(v, lanes).splat(body.lanes) for v in sources)
            for place, before, after in zip(places, old, combine.step(old, values), strict=True):
                place.store(after if lanes.mask is None else lanes.mask.pick(after, before), 64)

    def fold_all_accumulators() -> None:
        for (combine, _), copied in zip(rows, slots, strict=True):
            if combine.fold is not None:
                for places, parts in zip(
                    copied,
                    fold_vector_accumulators(combine, [load_accumulators(combine, c) for c in copied]),
                    strict=True,
                ):
                    for place, value in zip(places, parts, strict=True):
                        place.store(value, 64)

    folding = any(combine.fold is not None for combine, _ in rows)
    *outer, inner = range(nest.parallel, nest.axes)
    start, stop, finish = f.const(0, "i64"), frame.lengths[inner], fold_all_accumulators if folding else None
    fits = stop <= vector_row_buffer_capacity(nest)
    for chosen, condition in ((take, fits), ({}, ~fits)) if take else (({}, None),):
        body.take = chosen
        with emit_llvm_loop_nest(frame, outer), nullcontext() if condition is None else f.when(condition):
            body.run(phase, start, stop, accumulate_lanes, copies, finish)
    for axis in outer:
        del frame.index[axis]
    for r, ((combine, _), copied) in enumerate(zip(rows, slots, strict=True)):
        parts = merge_vector_lanes(
            combine, merge_vector_accumulators(combine, [load_accumulators(combine, places) for places in copied])
        )
        for part, value in enumerate(combine.finish(parts)):
            frame.results[number, r, part] = value


# columns


def hide_from_llvm_optimizer(value: LlvmValue) -> LlvmValue:
    """The same bits. Of a choice between a new value and the one in memory LLVM makes a store under a mask, which is
    dozens of instructions inside an AMD core with AVX2, and which a later load has to wait for."""
    if not value.text.startswith("%") or llvm_type_bits(value.elem) not in (32, 64):
        return value
    whole = value if value.is_float else value.as_float()
    return whole.apply("arithmetic.fence")


class VectorColumnAccumulators:
    """Stack arrays over the block of columns that starts at `low`: accumulators, and values passing between phases."""

    def __init__(self, frame: CpuKernelFrame, body: VectorLoopBody) -> None:
        self.frame, self.body = frame, body
        self.low = frame.f.const(0, "i64")
        self.values = {
            n: self.array(body.instrs[n].dtype) for n in sorted(body.crossing) if body.varies_along_vectors(n)
        }
        self.combines: dict[tuple[int, int], tuple[LlvmReductionCombine, tuple[int, ...], list[LlvmValue]]] = {}
        for number, phase in enumerate(frame.nest.phases):
            for r, (combine, sources) in enumerate(llvm_combines_of_phase(frame.nest, body, phase)):
                arrays = [self.array(kind) for kind in combine.kinds]
                self.combines[number, r] = combine, sources, arrays

    def array(self, dtype: DType) -> LlvmValue:
        return self.frame.f.slot(llvm_memory_type(dtype), COLUMNS)

    def get(self, array: LlvmValue, dtype: DType, i: LlvmValue) -> LlvmValue:
        raw = array.at(i - self.low, llvm_memory_type(dtype)).load(llvm_memory_type(dtype), self.body.lanes)
        return raw.ne(0) if dtype.kind == "b" else raw

    def put(self, array: LlvmValue, dtype: DType, i: LlvmValue, value: LlvmValue) -> None:
        wide = value.splat(self.body.lanes)
        raw = wide.to("zext", "i8") if dtype.kind == "b" else hide_from_llvm_optimizer(wide)
        array.at(i - self.low, llvm_memory_type(dtype)).store(raw)

    def recall(self, what: Instr | int, lanes: Lanes) -> LlvmValue:
        assert lanes.i is not None
        if isinstance(what, int):
            return self.get(self.values[what], self.body.instrs[what].dtype, lanes.i)
        number, reduction, part = (int(n) for n in what.attr)
        combine, _, arrays = self.combines[number, reduction]
        return combine.finish(self.parts(combine, arrays, lanes.i))[part]

    def parts(self, combine: LlvmReductionCombine, arrays: Sequence[LlvmValue], i: LlvmValue) -> Parts:
        return tuple(self.get(a, k, i) for a, k in zip(arrays, combine.kinds, strict=True))

    def start(self, number: int, phase: Phase, high: LlvmValue) -> None:
        f = self.frame.f
        with f.loop(self.low, high, self.body.lanes) as i:
            for r in range(len(phase.reductions)):
                combine, _, arrays = self.combines[number, r]
                values = combine.start(f, self.body.lanes)
                for array, kind, value in zip(arrays, combine.kinds, values, strict=True):
                    self.put(array, kind, i, value)

    def step(self, number: int, phase: Phase, i: LlvmValue, rows: Iterable[Lanes]) -> None:
        """Take what the rows have at lanes `i`, one row after the other; the accumulators are in memory before and
        after."""
        every = [self.combines[number, r] for r in range(len(phase.reductions))]
        found = [self.parts(combine, arrays, i) for combine, _, arrays in every]
        for lanes in rows:
            for r, (combine, sources, _) in enumerate(every):
                values = tuple(self.body.value(v, lanes).splat(self.body.lanes) for v in sources)
                found[r] = combine.step(found[r], values)
        for (combine, _, arrays), parts in zip(every, found, strict=True):
            folded = combine.fold(parts) if combine.fold else parts
            for array, kind, value in zip(arrays, combine.kinds, folded, strict=True):
                self.put(array, kind, i, value)

    def save(self, phase: Phase, lanes: Lanes) -> None:
        assert lanes.i is not None
        for at in range(phase.first, phase.first + len(phase.instrs)):
            if at in self.values:
                self.put(self.values[at], self.body.instrs[at].dtype, lanes.i, lanes.values[at])


def write_llvm_column_loops(frame: CpuKernelFrame, body: VectorLoopBody, begin: LlvmValue, end: LlvmValue) -> None:
    f, nest = frame.f, frame.nest
    inner, block = nest.parallel - 1, cpu_column_block_length(nest)
    length = frame.lengths[inner]
    blocks = (length + (block - 1)).binary("lshr", block.bit_length() - 1)
    columns = VectorColumnAccumulators(frame, body)
    body.recall = columns.recall
    outer = [(axis, frame.lengths[axis]) for axis in range(inner)]
    with emit_llvm_flat_loop(frame, [*outer, (inner, blocks)], begin, end):
        low = frame.index.pop(inner) * block
        high = f.intrinsic("umin", "i64", low + block, length)
        columns.low = low
        for number, phase in enumerate(nest.phases):
            if phase.kind == POINT:
                body.run(phase, low, high, partial(columns.save, phase))
                continue
            columns.start(number, phase, high)
            _write_llvm_column_reduction(frame, body, columns, number, low, high)


def _write_llvm_column_reduction(
    frame: CpuKernelFrame,
    body: VectorLoopBody,
    columns: VectorColumnAccumulators,
    number: int,
    low: LlvmValue,
    high: LlvmValue,
) -> None:
    """A LOOP phase over a block of columns: several rows in one pass, so that the accumulators are loaded and stored
    once for them."""
    f, nest, phase = frame.f, frame.nest, frame.nest.phases[number]
    *outer, inner = range(nest.parallel, nest.axes)
    body.access.step_axis = inner
    with emit_llvm_loop_nest(frame, outer):
        start = f.const(0, "i64")
        for rows in sorted(
            {1 if body.packs_operands(phase) else cpu_reduction_unroll_factor(phase, body), 1}, reverse=True
        ):
            stop = frame.lengths[inner] & -rows if rows > 1 else frame.lengths[inner]
            with f.loop(start, stop, rows) as row:
                body.access.step_rows = rows
                frame.index[inner] = row
                body.run_rows(phase, inner, rows, low, high, partial(columns.step, number, phase))
            start = stop
    for axis in (*outer, inner):
        frame.index.pop(axis)
    body.access.step_axis = None
