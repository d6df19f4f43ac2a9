"""Print a LoopNest as LLVM IR text for the CPU. It is `void @name(ptr slots, i64 begin, i64 end)` over units of work.

Slots are 8 bytes each, in the order of `LoopNest`'s run-time parameters; a scalar lies in the low bytes of its slot.
A unit is a parallel index (reductions along rows) or a block of the innermost parallel axis. Any split of the units
into calls gives the same bits, but for the signs of NaNs, which LLVM leaves open. The text names no size, no address
and no feature of the machine.

Rows are vectors along the innermost reduced axis: a unit is one parallel index; accumulators are vectors in registers.
Columns are along the innermost parallel one: a unit is one index of the outer parallel axes and BLOCK columns;
accumulators and the values that pass between phases are stack arrays over the block. Elementwise kernels are columns
without reductions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial, reduce
from math import prod
from typing import TypeAlias

from ....runtime.core.frozen import replace
from ...core.types import DType, real_dtype
from ...kernel.loop_nest import LOOP, POINT, Instr, LoopNest, Phase, loop_nest_calls_looping_function
from .access import (
    CpuKernelFrame,
    Lanes,
    emit_llvm_flat_loop,
    emit_llvm_loop_nest,
    is_operand_worth_nontemporal_stores,
    nontemporal_store_operands,
    numbered_instructions_of_cpu_kernel,
    vector_axis_dependences,
)
from .body import VectorLoopBody
from .inline_math import FLOAT_MATH, llvm_any_lane
from .llvm_ir import METADATA, UNLIKELY, LlvmFunction, LlvmModule, LlvmValue, llvm_type_bits
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
from .transpose import cpu_transpose_tiling, write_llvm_transpose_tiles

WORK = 16384  # elements that a chunk has at least
CHUNKS = 64  # chunks that a launch has at most
LOOPED = 16  # times as many where elements differ in what they cost, and as few elements


def print_llvm_kernel(nest: LoopNest, vector_library: str | None = None, vector_bytes: int | None = None) -> str:
    """The kernel's text. vector_library: what it may call, `libmvec-avx512`, `libmvec-avx2` or None.

    vector_bytes: the length that vectors are written for; any is correct on any machine.
    """
    module = LlvmModule(vector_library, " contract" if nest.fastmath else "")
    text = llvm_function_of_nest(module, nest, vector_bytes or (32 if vector_library == "libmvec-avx2" else 64))
    return f"{module}\n{text}\n{METADATA}\n"


def llvm_function_of_nest(
    module: LlvmModule, nest: LoopNest, vector_bytes: int, linkage: str = "", streams: bool = True
) -> str:
    """The text of its function alone; what it declares and calls is added to the module. streams: whether large results
    may go round the caches."""
    f = LlvmFunction(module)
    frame = CpuKernelFrame(nest, f)
    axis = choose_vector_axis(nest)
    depends = vector_axis_dependences(nest, axis)
    body = VectorLoopBody(frame, axis, choose_vector_lanes(nest, depends, axis, vector_bytes), depends)
    phases = nest.phases if streams else ()
    streamed = [number for phase in phases for number in nontemporal_store_operands(nest, phase, axis, body.lanes)]
    body.large = {number: is_operand_worth_nontemporal_stores(frame, number) for number in streamed}
    begin, end = LlvmValue(f, "%begin", "i64"), LlvmValue(f, "%end", "i64")
    if axis is None or axis >= nest.parallel:
        write_llvm_row_loops(frame, body, begin, end)
    elif (tiling := cpu_transpose_tiling(nest)) is not None:
        write_llvm_transpose_tiles(frame, body, tiling, begin, end, vector_bytes)
    else:
        write_llvm_column_loops(frame, body, begin, end)
    for large in body.large.values():
        with f.when(large):
            f.do("fence seq_cst")  # streaming stores are ordered by nothing else
    f.do("ret void")
    return f.render(f"define {linkage}void @{nest.name}(ptr noundef %slots, i64 %begin, i64 %end)")


def choose_vector_lanes(nest: LoopNest, depends: dict[int, frozenset[int]], axis: int | None, vector_bytes: int) -> int:
    """The lanes with which the widest varying value fills one vector, or several. Indices do not count."""
    if axis is None:
        return 1
    varying = {at: i for at, i in numbered_instructions_of_cpu_kernel(nest).items() if axis in depends[at]}
    widest = max((real_dtype(i.dtype).itemsize for i in varying.values() if i.op != "index"), default=4)
    return max(2, vector_bytes // widest) * interleaved_vector_count(nest, varying, vector_bytes < 64)


def cpu_launch_units(nest: LoopNest, sizes: Sequence[int]) -> tuple[int, int]:
    """The units of a launch over axes of these lengths, and those of a chunk."""
    axis = choose_vector_axis(nest)
    if 0 in sizes[: nest.parallel]:
        return 0, 1
    if axis is None or axis >= nest.parallel:
        count, work = prod(sizes[: nest.parallel]), prod(sizes[nest.parallel :])
    elif (tiling := cpu_transpose_tiling(nest)) is not None:
        cut = {axis: tiling.columns, tiling.axis: tiling.rows}
        count = prod(-(-n // cut.get(a, 1)) for a, n in enumerate(sizes[: nest.parallel]))
        work = prod(min(sizes[a], n) for a, n in cut.items())
    else:
        block = cpu_column_block_length(nest)
        count = prod(sizes[:axis]) * -(-sizes[axis] // block)
        loops = any(p.kind == LOOP for p in nest.phases)
        work = min(sizes[axis], block) * (prod(sizes[nest.parallel :]) if loops else 1)
    finer = LOOPED if loop_nest_calls_looping_function(nest) else 1
    return count, max(1, WORK // finer // max(1, work), -(-count // (CHUNKS * finer)))


# Vectors that an elementwise kernel takes at a time: several where a long chain of values depend on each other. A core
# looks some hundred instructions ahead; the next vector of a long chain lies beyond that, so the chain's latency would
# be what counts; in vectors side by side the core has as many chains to work at.
LONG = 16  # instructions in a row, for each vector beside the first
MOST = 4  # vectors, a power of two
REGISTERS = 24  # vector registers that their values may take
RARE = 16  # instructions for each that is a long chain, with values of its own, itself

# Inlined functions, whose constants alone fill 16 registers: they are read again for each vector, or for each two.
# A power computes in float64, and two vectors of that spill.
CONSTANTS = FLOAT_MATH.keys() - {("pow", "float")}
CHAINED = 2  # inlined functions one after the other, whose latency counts as that of a long chain does

_FREE = frozenset({"const", "load", "scalar", "size"})


def interleaved_vector_count(nest: LoopNest, varying: dict[int, Instr], few: bool) -> int:
    """Vectors. varying: the kernel's instructions whose values vary along the vectors, by number. few: there are 16
    vector registers."""
    ops = [i.op for i in varying.values()]
    if loop_nest_calls_looping_function(nest) or not {"gather", "report", "call"}.isdisjoint(ops):
        return 1
    if few and any((i.op, llvm_register_type(i.dtype)) in CONSTANTS for i in varying.values() if i.op in MATH):
        return 2
    if len(nest.phases) > 1 or nest.phases[0].kind != POINT:
        return 1
    if not few and _longest_inlined_function_chain(varying) >= CHAINED:
        return MOST
    if sum(op in MATH for op in ops) * RARE > len(ops):
        return 1
    count, depth, alive = 1, _longest_vector_instruction_chain(varying), _max_live_vector_values(varying)
    while count < MOST and depth >= LONG * 2 * count and alive * 2 * count <= REGISTERS:
        count *= 2
    return count


def _longest_inlined_function_chain(varying: dict[int, Instr]) -> int:
    """How many inlined functions follow each other, a power for two; 0 where others are called."""
    kinds = {at: (i.op, llvm_register_type(i.dtype)) for at, i in varying.items() if i.op in MATH}
    if not all(kind in FLOAT_MATH for kind in kinds.values()):
        return 0
    return _longest_chain(varying, {at: 2 if op == "pow" else 1 for at, (op, _) in kinds.items()})


def _longest_vector_instruction_chain(varying: dict[int, Instr]) -> int:
    """The instructions of the longest chain."""
    return _longest_chain(varying, {at: 1 for at, instr in varying.items() if instr.op not in _FREE})


def _longest_chain(varying: dict[int, Instr], lengths: Mapping[int, int]) -> int:
    """Of instructions that take each other's values, the most in a row. lengths: of those that count."""
    found: dict[int, int] = {}
    for at, instr in varying.items():
        found[at] = max((found.get(a, 0) for a in instr.args), default=0) + lengths.get(at, 0)
    return max(found.values(), default=0)


def _max_live_vector_values(varying: dict[int, Instr]) -> int:
    """The most values that are still needed at one time."""
    last = {a: at for at, instr in varying.items() for a in instr.args}
    alive, most = set[int](), 0
    for at in varying:
        alive = {a for a in alive if last[a] > at}
        if at in last:
            alive.add(at)
        most = max(most, len(alive))
    return most


BLOCK = 2048  # elements of a unit along the vector axis, elementwise
COLUMNS = 512  # the same with values of several phases on the stack
FEW_COLUMNS = 128  # the same where points differ in what they cost, or each column is a row that is to stay in a cache

Combines: TypeAlias = list[tuple[LlvmReductionCombine, tuple[int, ...]]]


SHORT, SHORT_INDEXED = 12, 24  # elements of a row across which vectors lie; the same where a place in it is found
ROWS = 32  # that there must be for it


def cpu_rows_are_short(parallel: Sequence[int], reduced: Sequence[int], indexed: bool) -> bool:
    """Of axes of these lengths. Vectors along short rows are mostly empty, and each is merged lane by lane; across them
    rows are packed again for each phase. indexed: a reduction finds a place."""
    return bool(parallel) and parallel[-1] >= ROWS and 1 < reduced[-1] <= (SHORT_INDEXED if indexed else SHORT)


def cpu_reduces_by_columns(nest: LoopNest) -> bool:
    """Whether vectors along the innermost parallel axis need less packing than along the innermost reduced one, or as
    little where windows overlap: those are short."""
    if not nest.parallel or nest.short:
        return nest.short
    parallel, reduced = nest.parallel - 1, nest.axes - 1
    in_loops = {i.attr[0] for p in nest.phases if p.kind == LOOP for i in p.instrs if i.op in ("load", "store")}
    layouts = [nest.operands[o].layout for o in sorted(in_loops)]
    packed_rows, packed_columns = ([y[axis] for y in layouts].count("s") for axis in (reduced, parallel))
    read = {i.attr[0] for p in nest.phases if p.kind == LOOP for i in p.instrs if i.op == "load"}
    overlap = any(y[reduced] == y[parallel] == "1" for y in (nest.operands[o].layout for o in read))
    return packed_rows > packed_columns or (overlap and packed_rows == packed_columns)


def choose_vector_axis(nest: LoopNest) -> int | None:
    """The axis that vectors run along: an innermost one. None for a kernel that computes one point."""
    if any(p.kind == LOOP for p in nest.phases) and nest.reduced and not cpu_reduces_by_columns(nest):
        return nest.axes - 1
    return nest.parallel - 1 if nest.parallel else None


def cpu_column_block_length(nest: LoopNest) -> int:
    """The length of a unit along the innermost parallel axis, in the column strategy."""
    if nest.short or loop_nest_calls_looping_function(nest):
        return FEW_COLUMNS
    return COLUMNS if len(nest.phases) > 1 else BLOCK


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
    combines = llvm_combines_of_phase(frame.nest, body, phase)
    found = _write_llvm_row_loop(frame, body, phase, take, combines, cpu_reduction_unroll_factor(phase, body))
    if lost := _lost_llvm_results(frame.nest, phase, combines, found):
        places = [[frame.f.slot(part.kind) for part in parts] for parts in found]
        for slots, parts in zip(places, found, strict=True):
            _store_llvm_parts(slots, parts)
        with frame.f.when(lost[0], UNLIKELY):
            again = [(c.again or c, sources) for c, sources in combines]
            second = _write_llvm_row_loop(frame, body, phase, take, again, 1)
            for (first, _), slots, parts in zip(combines, places, second, strict=True):
                _store_llvm_parts(slots, first.again.finish(parts) if first.again else parts)
        found = [
            tuple(p.load(part.elem) for p, part in zip(*pair, strict=True)) for pair in zip(places, found, strict=True)
        ]
    for r, ((combine, _), parts) in enumerate(zip(combines, found, strict=True)):
        for part, value in enumerate(combine.finish(parts)):
            frame.results[number, r, part] = value


def _store_llvm_parts(slots: Sequence[LlvmValue], parts: Sequence[LlvmValue], align: int | None = None) -> None:
    for slot, part in zip(slots, parts, strict=True):
        slot.store(part, align)


def _lost_llvm_results(
    nest: LoopNest, phase: Phase, combines: Combines, accumulated: Sequence[Parts]
) -> list[LlvmValue]:
    """Whether some result must be computed again: one value, or none where that is never so, or cannot be."""
    if not phase_can_run_again(nest, phase):
        return []
    lost = [combine.lost(parts) for (combine, _), parts in zip(combines, accumulated, strict=True) if combine.lost]
    return [reduce(LlvmValue.__or__, lost)] if lost else []


def phase_can_run_again(nest: LoopNest, phase: Phase) -> bool:
    """Whether a second run reads what the first one read, and calls no user's function."""
    stored = {i.attr[0] for i in phase.instrs if i.op == "store"}
    in_place = any(nest.operands[o].role == "inout" for o in stored)
    return not in_place and all(i.op != "call" for i in phase.instrs)


def _accumulated_values(combine: LlvmReductionCombine, old: Parts, values: Parts, mask: LlvmValue | None) -> Parts:
    """The accumulator with the values of all lanes that the mask has: side by side, or in order."""
    if not combine.ordered:
        new = combine.step(old, values)
        return new if mask is None else tuple(mask.pick(n, o) for n, o in zip(new, old, strict=True))
    for lane in range(values[0].lanes):
        one = replace(combine, ordered=False)
        old = _accumulated_values(
            one, old, tuple(v.lane(lane) for v in values), None if mask is None else mask.lane(lane)
        )
    return old


def _write_llvm_row_loop(
    frame: CpuKernelFrame,
    body: VectorLoopBody,
    phase: Phase,
    take: dict[int, LlvmValue],
    rows: Combines,
    copies: int,
) -> list[Parts]:
    """The loop, and what each reduction has accumulated."""
    f, nest, accumulators = frame.f, frame.nest, _RowAccumulators(frame, body, rows, copies)
    folding = any(combine.fold is not None for combine, _ in rows)
    *outer, inner = range(nest.parallel, nest.axes)
    start, stop, finish = f.const(0, "i64"), frame.lengths[inner], accumulators.fold if folding else None
    fits = stop <= vector_row_buffer_capacity(nest)
    for chosen, condition in ((take, fits), ({}, ~fits)) if take else (({}, None),):
        body.take = chosen
        with emit_llvm_loop_nest(frame, outer), nullcontext() if condition is None else f.when(condition):
            body.run(phase, start, stop, accumulators.accumulate, copies, finish)
    for axis in outer:
        del frame.index[axis]
    return accumulators.merged()


class _RowAccumulators:
    """What each reduction of a row has accumulated, in memory: of each copy the parts."""

    def __init__(self, frame: CpuKernelFrame, body: VectorLoopBody, rows: Combines, copies: int) -> None:
        self.body = body
        self.rows: list[tuple[LlvmReductionCombine, Sequence[int], list[list[LlvmValue]]]] = []
        for combine, sources in rows:
            start = partial(combine.start, frame.f, 1 if combine.ordered else body.lanes)
            copied = [[frame.f.slot(v.kind) for v in start()] for _ in range(copies)]
            for places in copied:
                _store_llvm_parts(places, start(), 64)
            self.rows.append((combine, sources, copied))

    def load(self, combine: LlvmReductionCombine, places: Sequence[LlvmValue]) -> Parts:
        lanes = 1 if combine.ordered else self.body.lanes
        return tuple(p.load(llvm_register_type(k), lanes, 64) for p, k in zip(places, combine.kinds, strict=True))

    def accumulate(self, lanes: Lanes) -> None:
        for combine, sources, copied in self.rows:
            places = copied[lanes.copy]
            old = self.load(combine, places)
            values = tuple(self.body.value(v, lanes).splat(self.body.lanes) for v in sources)
            _store_llvm_parts(places, _accumulated_values(combine, old, values, lanes.mask), 64)

    def fold(self) -> None:
        for combine, _, copied in self.rows:
            if combine.fold is not None:
                folded = fold_vector_accumulators(combine, [self.load(combine, places) for places in copied])
                for places, parts in zip(copied, folded, strict=True):
                    _store_llvm_parts(places, parts, 64)

    def merged(self) -> list[Parts]:
        """The result of each reduction."""
        merged = [
            merge_vector_lanes(
                combine, merge_vector_accumulators(combine, [self.load(combine, places) for places in copied])
            )
            for combine, _, copied in self.rows
        ]
        return [
            combine.fold(parts) if combine.fold else parts
            for (combine, *_), parts in zip(self.rows, merged, strict=True)
        ]


# columns


def hide_llvm_value_from_optimizer(value: LlvmValue) -> LlvmValue:
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
                self.combines[number, r] = combine, sources, [self.array(kind) for kind in combine.kinds]

    def array(self, dtype: DType) -> LlvmValue:
        return self.frame.f.slot(llvm_memory_type(dtype), COLUMNS)

    def get(self, array: LlvmValue, dtype: DType, i: LlvmValue) -> LlvmValue:
        raw = array.at(i - self.low, llvm_memory_type(dtype)).load(llvm_memory_type(dtype), self.body.lanes)
        return raw.ne(0) if dtype.kind == "b" else raw

    def put(self, array: LlvmValue, dtype: DType, i: LlvmValue, value: LlvmValue) -> None:
        wide = value.splat(self.body.lanes)
        raw = wide.to("zext", "i8") if dtype.kind == "b" else hide_llvm_value_from_optimizer(wide)
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
        """Take what the rows have at lanes `i`, one row after the other. The accumulators are in memory before and
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

    def lost(self, number: int, phase: Phase, high: LlvmValue) -> LlvmValue | None:
        """Whether a column of the block must be accumulated again."""
        f, lanes = self.frame.f, self.body.lanes
        rows = [self.combines[number, r] for r in range(len(phase.reductions))]
        if not phase_can_run_again(self.frame.nest, phase) or not any(combine.lost for combine, *_ in rows):
            return None
        none = f.const(0, "i1", lanes)
        found = f.slot(none.kind)
        found.store(none, 64)
        with f.loop(self.low, high, lanes) as i:
            parts = [self.parts(combine, arrays, i) for combine, _, arrays in rows]
            lost = [combine.lost(p) for (combine, *_), p in zip(rows, parts, strict=True) if combine.lost]
            found.store(found.load("i1", lanes, 64) | reduce(LlvmValue.__or__, lost), 64)
        return llvm_any_lane(found.load("i1", lanes, 64))

    def accumulate_again(self, number: int, phase: Phase, high: LlvmValue, loop: Callable[[], None]) -> None:
        """Writes the loop a second time, by the rows of what is done again, then what those have as the first's."""
        before = dict(self.combines)
        for r in range(len(phase.reductions)):
            combine, sources, arrays = before[number, r]
            if combine.again:
                self.combines[number, r] = combine.again, sources, [self.array(k) for k in combine.again.kinds]
        self.start(number, phase, high)
        loop()
        with self.frame.f.loop(self.low, high, self.body.lanes) as i:
            for key, (again, _, arrays) in self.combines.items():
                if again is not before[key][0]:
                    combine, _, targets = before[key]
                    parts = again.finish(self.parts(again, arrays, i))
                    for target, kind, value in zip(targets, combine.kinds, parts, strict=True):
                        self.put(target, kind, i, value)
        self.combines = before

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
            write = partial(_write_llvm_column_reduction, frame, body, columns, number, low, high)
            columns.start(number, phase, high)
            write()
            lost = columns.lost(number, phase, high)
            if lost is not None:
                with f.when(lost, UNLIKELY):
                    columns.accumulate_again(number, phase, high, write)


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
