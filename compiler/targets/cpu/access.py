"""Reading and writing a kernel's operands, a group of lanes at a time: whole, under a mask, streamed, prefetched."""

from __future__ import annotations

from collections.abc import Sequence

from ....runtime.core.frozen import dataclass, field
from ....runtime.program.user_function import UserFunction
from ...core.types import BOOL, real_dtype
from ...kernel.loop_nest import Instr, LoopNest
from .frame import CpuKernelFrame, llvm_element_type
from .llvm_ir import LINE, NONTEMPORAL, LlvmValue, masked_load, masked_store
from .primitives import memory_type


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
        self._fetched = operands_to_prefetch(frame.nest, axis)

    def locate(self, operands: set[int]) -> None:
        """Take the operands' places at the current index of all axes but that of the vectors."""
        axes = [a for a in range(self.frame.nest.axes) if a != self.axis and a in self.frame.index]
        for operand in sorted(operands):
            self.places[operand] = self.packed.get(operand) or (self.frame.address(operand, axes), None)

    def walks(self, operand: int) -> bool:
        """Whether the operand moves along the vector axis."""
        return self.axis is not None and self.frame.nest.operands[operand].layout[self.axis] != "0"

    def place(self, operand: int, i: LlvmValue | None) -> LlvmValue:
        """The address of the operand at index `i` of the vector axis."""
        base, origin = self.places[operand]
        if i is None or not self.walks(operand):
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
        place, elem = self.place(operand, lanes.i), memory_type(real_dtype(dtype))
        self._prefetch_operand(operand, place, lanes, write=False)
        count = lanes.count if self.walks(operand) else 1
        parts = 2 if dtype.kind == "c" else 1
        if lanes.mask is None or count == 1:
            raw = place.load(elem, parts * count)
        else:
            raw = masked_load(place, elem, parts * count, _repeat_mask_lanes(lanes.mask, parts))
        if parts == 2:
            return tuple(raw.shuffle(list(range(p, 2 * count, 2))) for p in range(2))
        return (raw.ne(0) if dtype == BOOL else raw,)

    def store(self, instr: Instr, value: LlvmValue, lanes: Lanes) -> None:
        """Complex numbers are stored when both their parts are there."""
        operand, part = instr.attr
        dtype = self.frame.nest.operands[operand].dtype
        count = lanes.count if self.walks(operand) else 1
        value = value.splat(count) if value.lanes == 1 else value if count > 1 else value.lane(0)
        if dtype == BOOL:
            value = value.to("zext", "i8")
        if dtype.kind == "c":
            halves = lanes.halves.setdefault(operand, {})
            halves[part] = value
            if len(halves) < 2:
                return
            value = _interleave_pair(halves[0], halves[1])
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
        value = interleave_lanes([turns[o] for o in zipped])
        if lanes.mask is None:
            place.store(value)
        else:
            masked_store(place, value, _repeat_mask_lanes(lanes.mask, count))

    def _write_operand(self, operand: int, value: LlvmValue, lanes: Lanes) -> None:
        place, streaming = self.place(operand, lanes.i), self.streaming.get(operand)
        self._prefetch_operand(operand, place, lanes, write=True)
        if streaming is not None:
            align = min(LINE, value.lanes * real_dtype(self.frame.nest.operands[operand].dtype).itemsize)
            self.frame.f.fork(streaming, lambda: place.store(value, align, NONTEMPORAL), lambda: place.store(value))
        elif lanes.mask is None or not self.walks(operand):
            place.store(value)
        else:
            masked_store(place, value, _repeat_mask_lanes(lanes.mask, value.lanes // lanes.count))

    def _prefetch_operand(self, operand: int, place: LlvmValue, lanes: Lanes, write: bool) -> None:
        first = self._fetched.get(operand)
        if first is None or lanes.mask is not None or lanes.i is None:
            return
        if self.phase != first and self.step_axis is None:  # a row that was read is in a cache
            return
        if operand in self.streaming or self.places[operand][1] is not None:
            return
        emit_prefetch(self.frame, operand, place, lanes.count, self.step_axis, self.step_rows, write)


def _repeat_mask_lanes(mask: LlvmValue, times: int) -> LlvmValue:
    """Each lane of the mask, `times` times in a row."""
    return mask if times == 1 else mask.shuffle([i for i in range(mask.lanes) for _ in range(times)])


def interleave_lanes(values: Sequence[LlvmValue]) -> LlvmValue:
    """The lanes of several vectors in turn."""
    wide, joined = values[0].lanes, values[0]
    for count, value in enumerate(values[1:], 1):  # a shuffle takes two vectors of one length
        padded = value if count == 1 else value.shuffle([*range(wide), *[0] * (wide * count - wide)])
        joined = joined.shuffle(list(range(wide * (count + 1))), padded)
    return joined.shuffle([turn * wide + i for i in range(wide) for turn in range(len(values))])


def _interleave_pair(re: LlvmValue, im: LlvmValue) -> LlvmValue:
    """Pairs of the lanes of two vectors, or of two scalars."""
    if re.lanes > 1:
        return re.shuffle([p for i in range(re.lanes) for p in (i, i + re.lanes)], im)
    f = re.f
    one = f.let(f"insertelement <2 x {re.elem}> poison, {re.typed}, i64 0", re.elem, 2)
    return f.let(f"insertelement {one.typed}, {im.typed}, i64 1", re.elem, 2)


# Prefetches, before the machine guesses by itself. A pass along contiguous memory fetches some distance ahead of its
# loads into the second-level cache and, for ordinary stores, lines to write into the first. A pass over short stretches
# of many rows fetches the same stretch a few rows on.
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
