"""Where a CPU kernel's operands lie, and how groups of their lanes are accessed.

The frame knows the kernel's parameters and the current indices; an address follows from them. Lanes are accessed whole,
under a mask, prefetched, or streamed round the caches: an ordinary store reads its cache line from memory first, a
streaming one does not, so a kernel that merely passes over memory saves a third of its traffic. Between long
computations they are slower than ordinary stores (measured), so only light bodies use them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ....runtime.core.frozen import dataclass, field
from ....runtime.program.user_function import UserFunction
from ...core.types import BOOL, real_dtype
from ...kernel.loop_nest import LOOP, MEMORY, Instr, LoopNest, Operand, Phase, loop_nest_calls_looping_function
from .llvm_ir import (
    LINE,
    NONTEMPORAL,
    UNROLLED,
    LlvmFunction,
    LlvmValue,
    emit_llvm_masked_load,
    emit_llvm_masked_store,
)
from .primitives import MATH, llvm_memory_type, llvm_register_type


class CpuKernelFrame:
    """What is known at the current place of a kernel that is being written.

    index: the value of every axis that has one here. values, results: the SSA values in reach.
    """

    def __init__(self, nest: LoopNest, f: LlvmFunction) -> None:
        self.nest, self.f = nest, f
        slots = LlvmValue(f, "%slots", "ptr")
        count = 0

        def add_llvm_parameter(elem: str) -> LlvmValue:
            nonlocal count
            count += 1
            return slots.at(count - 1, "i64").load(elem)

        self.pointers = [add_llvm_parameter("ptr") for _ in nest.operands]
        self.lengths = [add_llvm_parameter("i64") for _ in range(nest.axes)]
        self.strides = {
            (number, axis): add_llvm_parameter("i64")
            for number, operand in enumerate(nest.operands)
            for axis, letter in enumerate(operand.layout)
            if letter == "s"
        }
        self.scalars = [
            self.bool_in_register(add_llvm_parameter(llvm_memory_type(s)))
            if s.kind == "b"
            else add_llvm_parameter(llvm_register_type(s))
            for s in nest.scalars
        ]
        self.index: dict[int, LlvmValue] = {}
        self.values: dict[int, LlvmValue] = {}
        self.results: dict[tuple[int, int, int], LlvmValue] = {}

    @staticmethod
    def bool_in_register(stored: LlvmValue) -> LlvmValue:
        """A bool from the byte that holds it."""
        return stored.ne(0)

    def address_of_operand(self, number: int, axes: Sequence[int]) -> LlvmValue:
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
    one = llvm_memory_type(real_dtype(operand.dtype))
    return f"[2 x {one}]" if operand.dtype.kind == "c" else one


def numbered_instructions_of_cpu_kernel(nest: LoopNest) -> dict[int, Instr]:
    return {at: instr for phase in nest.phases for at, instr in enumerate(phase.instrs, phase.first)}


def vector_axis_dependences(nest: LoopNest, axis: int | None) -> dict[int, frozenset[int]]:
    """For each value (or store) the axes along which it may vary. `axis` is that of the vectors.

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
        stores: dict[int, list[int]] = {}  # both parts of complex numbers are stored together
        for at, instr in enumerate(phase.instrs, phase.first):
            if instr.op == "store":
                stores.setdefault(instr.attr[0], []).append(at)
        for parts in stores.values():
            found.update(dict.fromkeys(parts, frozenset[int]().union(*(found[at] for at in parts))))
        for r, reduction in enumerate(phase.reductions):
            axes = columns.union(*(found[v] for v in reduction.values))
            by_result[number, r] = axes - reduced
    return found


@contextmanager
def emit_llvm_flat_loop(
    frame: CpuKernelFrame, dims: Sequence[tuple[int, LlvmValue]], begin: LlvmValue, end: LlvmValue
) -> Iterator[None]:
    """Runs the body for units begin..end of a row-major box. dims: (axis, length). The body gets the index of each
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
def emit_llvm_loop_nest(frame: CpuKernelFrame, axes: Sequence[int]) -> Iterator[None]:
    """Run the body for every index of `axes`, the last one fastest."""
    if not axes:
        yield
        return
    with frame.f.loop(0, frame.lengths[axes[0]]) as i:
        frame.index[axes[0]] = i
        with emit_llvm_loop_nest(frame, axes[1:]):
            yield


@dataclass
class Lanes:
    """The lanes being computed: from index `i` of the vector axis, `count` of them, those that `mask` allows.

    `i` is None, and `count` 1, for what does not vary along the vector axis. `copy` numbers the copies of an unrolled
    loop. values: what varies along the vector axis, by number. loaded: the parts of operands. halves: the parts of
    complex operands that are to be stored together. called: the results of users' functions.
    """

    i: LlvmValue | None
    count: int
    mask: LlvmValue | None = None
    copy: int = 0
    values: dict[int, LlvmValue] = field(default_factory=dict)
    loaded: dict[int, tuple[LlvmValue, ...]] = field(default_factory=dict)
    halves: dict[int, dict[int, LlvmValue]] = field(default_factory=dict)
    called: dict[tuple[UserFunction, tuple[int, ...]], list[LlvmValue]] = field(default_factory=dict)


class VectorAccess:
    """Where the operands are now, and how they are read and written.

    places: for each operand the address that index `origin` of the vector axis has (origin None: index 0).
    packed: the places of operands that were copied beforehand. zipped: those stored together, see `LoopNest`.
    streaming: whether operands are streamed just now. phase: the number of the phase being written.
    step_axis: the axis whose next index follows after a short stretch; step_rows: how many of its indices one takes.
    """

    def __init__(self, frame: CpuKernelFrame, axis: int | None) -> None:
        self.frame, self.axis = frame, axis
        self.places: dict[int, tuple[LlvmValue, LlvmValue | None]] = {}
        self.packed: dict[int, tuple[LlvmValue, LlvmValue]] = {}
        self.streaming: dict[int, LlvmValue] = {}
        self.phase = 0
        self.step_axis: int | None = None
        self.step_rows = 1
        zips = frame.nest.zips if axis == frame.nest.parallel - 1 else ()
        self.zipped = {operand: zipped for zipped in zips for operand in zipped}
        self._fetched = cpu_operands_to_prefetch(frame.nest, axis)

    def locate_operands(self, operands: set[int]) -> None:
        """Take the operands' places at the current index of all axes but that of the vectors."""
        axes = [a for a in range(self.frame.nest.axes) if a != self.axis and a in self.frame.index]
        for operand in sorted(operands):
            self.places[operand] = self.packed.get(operand) or (self.frame.address_of_operand(operand, axes), None)

    def moves_along_vectors(self, operand: int) -> bool:
        """Whether the operand moves along the vector axis."""
        return self.axis is not None and self.frame.nest.operands[operand].layout[self.axis] != "0"

    def place(self, operand: int, i: LlvmValue | None) -> LlvmValue:
        """The address of the operand at index `i` of the vector axis."""
        base, origin = self.places[operand]
        if i is None or not self.moves_along_vectors(operand):
            return base
        return base.at(i if origin is None else i - origin, llvm_element_type(self.frame.nest.operands[operand]))

    def load(self, instr: Instr, lanes: Lanes) -> LlvmValue:
        operand: int = instr.attr[0]
        part: int = instr.attr[1]
        if operand not in lanes.loaded:
            lanes.loaded[operand] = self._load_parts(operand, lanes)
        return lanes.loaded[operand][part]

    def _load_parts(self, operand: int, lanes: Lanes) -> tuple[LlvmValue, ...]:
        dtype = self.frame.nest.operands[operand].dtype
        place, elem = self.place(operand, lanes.i), llvm_memory_type(real_dtype(dtype))
        self._prefetch_operand(operand, place, lanes, write=False)
        count = lanes.count if self.moves_along_vectors(operand) else 1
        parts = 2 if dtype.kind == "c" else 1
        mask = None if count == 1 else _repeat_llvm_mask_lanes(lanes.mask, parts)
        raw = emit_llvm_masked_load(place, elem, parts * count, mask)
        if parts == 2:
            return tuple(raw.shuffle(list(range(p, 2 * count, 2))) for p in range(2))
        return (raw.ne(0) if dtype == BOOL else raw,)

    def store(self, instr: Instr, value: LlvmValue, lanes: Lanes) -> None:
        """Complex numbers are stored when both their parts are there."""
        operand, part = instr.attr
        dtype = self.frame.nest.operands[operand].dtype
        count = lanes.count if self.moves_along_vectors(operand) else 1
        value = value.splat(count) if value.lanes == 1 else value if count > 1 else value.lane(0)
        if dtype == BOOL:
            value = value.to("zext", "i8")
        if dtype.kind == "c":
            halves = lanes.halves.setdefault(operand, {})
            halves[part] = value
            if len(halves) < 2:
                return
            value = _interleave_llvm_lanes_of_pair(halves[0], halves[1])
        if operand in self.zipped:
            self._store_interleaved_outputs(operand, value, lanes)
        else:
            self._write_operand(operand, value, lanes)

    def _store_interleaved_outputs(self, operand: int, value: LlvmValue, lanes: Lanes) -> None:
        """Outputs that lie in turn are stored when all are there."""
        zipped = self.zipped[operand]
        turns = lanes.halves.setdefault(zipped[0], {})
        turns[operand] = value
        if len(turns) < len(zipped):
            return
        assert lanes.i is not None
        base, count = self.places[zipped[0]][0], len(zipped)
        place = base.at(lanes.i * count, llvm_element_type(self.frame.nest.operands[operand]))
        value = interleave_vector_lanes([turns[o] for o in zipped])
        emit_llvm_masked_store(place, value, _repeat_llvm_mask_lanes(lanes.mask, count))

    def _write_operand(self, operand: int, value: LlvmValue, lanes: Lanes) -> None:
        place, streaming = self.place(operand, lanes.i), self.streaming.get(operand)
        self._prefetch_operand(operand, place, lanes, write=True)
        if streaming is not None:
            align = min(LINE, value.lanes * real_dtype(self.frame.nest.operands[operand].dtype).itemsize)
            self.frame.f.fork(streaming, lambda: place.store(value, align, NONTEMPORAL), lambda: place.store(value))
        else:
            mask = lanes.mask if self.moves_along_vectors(operand) else None
            emit_llvm_masked_store(place, value, _repeat_llvm_mask_lanes(mask, value.lanes // lanes.count))

    def _prefetch_operand(self, operand: int, place: LlvmValue, lanes: Lanes, write: bool) -> None:
        first = self._fetched.get(operand)
        if first is None or lanes.mask is not None or lanes.i is None:
            return
        if self.phase != first and self.step_axis is None:  # a row that was read is in a cache
            return
        if operand in self.streaming or self.places[operand][1] is not None:
            return
        emit_llvm_prefetch(self.frame, operand, place, lanes.count, self.step_axis, self.step_rows, write)


def _repeat_llvm_mask_lanes(mask: LlvmValue | None, times: int) -> LlvmValue | None:
    """Each lane of the mask, `times` times in a row."""
    if mask is None or times == 1:
        return mask
    return mask.shuffle([i for i in range(mask.lanes) for _ in range(times)])


def interleave_vector_lanes(values: Sequence[LlvmValue]) -> LlvmValue:
    """The lanes of several vectors in turn."""
    wide, joined = values[0].lanes, values[0]
    for count, value in enumerate(values[1:], 1):  # a shuffle takes two vectors of one length
        padded = value if count == 1 else value.shuffle([*range(wide), *[0] * (wide * count - wide)])
        joined = joined.shuffle(list(range(wide * (count + 1))), padded)
    return joined.shuffle([turn * wide + i for i in range(wide) for turn in range(len(values))])


def _interleave_llvm_lanes_of_pair(re: LlvmValue, im: LlvmValue) -> LlvmValue:
    """Pairs of the lanes of two vectors, or of two scalars."""
    if re.lanes > 1:
        return re.shuffle([p for i in range(re.lanes) for p in (i, i + re.lanes)], im)
    f = re.f
    one = f.let(f"insertelement <2 x {re.elem}> poison, {re.typed}, i64 0", re.elem, 2)
    return f.let(f"insertelement {one.typed}, {im.typed}, i64 1", re.elem, 2)


# Copies of elements that lie some stride apart, from and to others that lie side by side.
PAIRED = 32  # bytes of the vectors in which every second element is copied


def gather_strided_elements(
    operand: Operand, far: LlvmValue, stride: LlvmValue, near: LlvmValue, count: LlvmValue
) -> None:
    """Every second one is taken out of vectors, all else is copied one by one."""
    f, elem, lanes = far.f, llvm_element_type(operand), PAIRED // operand.dtype.itemsize
    raw, align = f"i{8 * operand.dtype.itemsize}", real_dtype(operand.dtype).itemsize

    def copy_one_by_one() -> None:
        with f.loop(0, count, note=UNROLLED) as i:
            source = far.at(i.binary("mul nsw", stride), elem)
            near.at(i, elem).store(source.load(raw, 1, align), align)

    def copy_vector(i: LlvmValue) -> None:
        """From two vectors that overlap by one element: none behind the last one is read."""
        place = far.at(i * 2, elem)
        first, second = place.load(raw, lanes, align), place.at(lanes - 1, elem).load(raw, lanes, align)
        even = first.shuffle([*range(0, lanes, 2), *range(lanes + 1, 2 * lanes, 2)], second)
        near.at(i, elem).store(even, align)

    def copy_every_second() -> None:
        last = count - lanes
        with f.loop(0, last, lanes) as i:
            copy_vector(i)
        copy_vector(last)

    if lanes < 4:
        copy_one_by_one()
    else:
        f.fork(stride.eq(2) & (f.const(lanes, "i64") <= count), copy_every_second, copy_one_by_one)


def scatter_strided_elements(
    operand: Operand, near: LlvmValue, far: LlvmValue, stride: LlvmValue, count: LlvmValue
) -> None:
    f, elem = far.f, llvm_element_type(operand)
    raw, align = f"i{8 * operand.dtype.itemsize}", real_dtype(operand.dtype).itemsize
    with f.loop(0, count, note=UNROLLED) as i:
        far.at(i.binary("mul nsw", stride), elem).store(near.at(i, elem).load(raw, 1, align), align)


# Prefetches, before the machine guesses by itself. A pass along contiguous memory fetches some distance ahead of its
# loads into the second-level cache and, for ordinary stores, lines to write into the first. A pass over short stretches
# of many rows fetches the same stretch a few rows on.
READ_AHEAD = 2048  # bytes; 8192 is no faster beside stores, and a fifth slower in a loop that only reads
WRITE_AHEAD = 1024
ROWS_AHEAD = 4


def cpu_operands_to_prefetch(nest: LoopNest, axis: int | None) -> dict[int, int]:
    """The operands worth it, contiguous along the vectors and read once only: number -> its first phase."""
    found: dict[int, int] = {}
    for number, phase in enumerate(nest.phases):
        for instr in phase.instrs:
            if axis is not None and instr.op in ("load", "store"):
                layout = nest.operands[instr.attr[0]].layout
                if layout[axis] == "1" and "0" not in layout:
                    found.setdefault(instr.attr[0], number)
    return found


def emit_llvm_prefetch(
    frame: CpuKernelFrame, number: int, place: LlvmValue, lanes: int, step_axis: int | None, step_rows: int, write: bool
) -> None:
    """Fetch for operand `number`, whose vector lies at `place`. step_axis: what the next stretch is along, if short;
    step_rows: how many rows a stretch takes."""
    operand = frame.nest.operands[number]
    if step_axis is None:
        far = place.at(WRITE_AHEAD if write else READ_AHEAD, "i8", inside=False)
    elif (number, step_axis) in frame.strides:
        far = place.at(
            frame.strides[number, step_axis] * max(ROWS_AHEAD, step_rows), llvm_element_type(operand), inside=False
        )
    else:
        return
    for line in range(0, max(LINE, lanes * operand.dtype.itemsize), LINE):
        (far.at(line, "i8", inside=False) if line else far).prefetch(write, 3 if write else 2)


STREAMED_BYTES = 32 << 20  # of an output that the caches will not hold until it is read
MAX_STREAMED_INSTRUCTIONS = 12  # of a light body
SLOW_PRIMITIVES = MATH | {"div", "approx_div", "sqrt", "quot", "rem", "gcd", "ipow"}


def nontemporal_store_operands(nest: LoopNest, phase: Phase, axis: int | None, lanes: int) -> list[int]:
    """The operands that a phase may stream: outputs of one item size, contiguous along the vector axis."""
    work = [i for i in phase.instrs if i.op not in ("load", "store", "const", "scalar", "result", "size")]
    if axis is None or phase.reductions:
        return []
    if len(work) > MAX_STREAMED_INSTRUCTIONS or any(i.op in SLOW_PRIMITIVES for i in work):
        return []
    if phase.kind == LOOP or len(nest.phases) > 1 or loop_nest_calls_looping_function(nest):
        return []
    stored = sorted({i.attr[0] for i in phase.instrs if i.op == "store"})
    fitting = [o for o in stored if nest.operands[o].role == "out" and nest.operands[o].layout[axis] == "1"]
    sizes = {nest.operands[o].dtype.itemsize for o in fitting}
    return fitting if len(sizes) == 1 and min(sizes) >= 4 and min(sizes) * lanes % 32 == 0 else []


def is_operand_worth_nontemporal_stores(frame: CpuKernelFrame, number: int) -> LlvmValue:
    """Whether the operand has STREAMED_BYTES bytes or more, by the lengths of its axes."""
    operand, size = frame.nest.operands[number], frame.f.const(1, "i64")
    for letter, length in zip(operand.layout, frame.lengths, strict=True):
        size = size * length if letter != "0" else size
    return size.compare("uge", STREAMED_BYTES // operand.dtype.itemsize)


def nontemporal_store_alignment(
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
