"""One phase of a kernel over a stretch of its vector axis: row addresses, scalar part, vector loop, packed operands.

What does not vary along the vector axis is computed once before the loop. The loop takes whole vectors; the rest runs
once under a mask through the same instructions, so a value does not depend on where it stands. Operands with a
run-time stride along the vector axis are packed into stack memory, PACK elements at a time, and unpacked after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from ..kernel import Instr, Phase
from ..types import BOOL, DType, real_of
from .cpu_frame import Frame, item, numbered
from .cpu_prefetch import fetched, prefetch
from .cpu_primitives import constant, emit, memory_elem
from .cpu_reduce import FOLD
from .cpu_reuse import place_in
from .cpu_stream import LINE, same_line, streamed, to_boundary
from .cpu_text import NONTEMPORAL, Value, mask_below, masked_load, masked_store

PACK = 512


@dataclass
class Lanes:
    """The lanes being computed: from index `i` of the vector axis, `count` of them, those that `mask` allows.

    `copy` numbers the copies of an unrolled loop. values: what varies along the vector axis, by number.
    """

    i: Value | None
    count: int
    mask: Value | None = None
    copy: int = 0
    values: dict[int, Value] = field(default_factory=dict)
    pairs: dict[int, tuple[Value, ...]] = field(default_factory=dict)
    halves: dict[int, dict[int, Value]] = field(default_factory=dict)


@dataclass
class Body:
    """Writes phases of a nest along `axis` (None: no vector axis, scalars only) in vectors of `lanes`.

    places: for each operand the address that index `origin` of the vector axis has (origin None: index 0).
    packed: the places of operands that were copied beforehand.
    recall: gives a varying value of an earlier phase, or a reduction's result, at some lanes (column strategy).
    large: for the operands that may be streamed, whether they are worth it; streaming: whether they are just now.
    number: of the phase being written; step_axis: the axis whose next index follows after a short stretch.
    keep: values of a row to store, and the buffers for them; take: values to load from buffers, not to compute.
    """

    frame: Frame
    axis: int | None
    lanes: int
    depends: dict[int, frozenset[int]]
    recall: Callable[[Instr | int, Lanes], Value] | None = None
    places: dict[int, tuple[Value, Value | None]] = field(default_factory=dict)
    packed: dict[int, tuple[Value, Value]] = field(default_factory=dict)
    scratch: dict[int, Value] = field(default_factory=dict)
    keep: dict[int, Value] = field(default_factory=dict)
    take: dict[int, Value] = field(default_factory=dict)
    number: int = 0
    step_axis: int | None = None
    large: dict[int, Value] = field(default_factory=dict)
    streaming: dict[int, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        nest = self.frame.nest
        self.instrs = numbered(nest)
        self.fetched = fetched(nest, self.axis)
        home = {at: phase for phase in nest.phases for at in range(phase.first, phase.first + len(phase.instrs))}
        self.needed_later: set[int] = set()
        for phase in nest.phases:
            used = [a for i in phase.instrs for a in i.args] + [v for r in phase.reductions for v in r.values]
            self.needed_later.update(a for a in used if home[a] is not phase)

    def varies(self, at: int) -> bool:
        return self.axis is not None and self.axis in self.depends[at]

    def walks(self, operand: int) -> bool:
        """Whether the operand moves along the vector axis."""
        return self.axis is not None and self.frame.nest.operands[operand].layout[self.axis] != "0"

    # rows

    def prepare(self, phase: Phase) -> None:
        """Addresses at the current index of all other axes, then the phase's scalar part."""
        frame = self.frame
        for operand in sorted({i.attr[0] for i in phase.instrs if i.op in ("load", "store")}):
            axes = [a for a in range(frame.nest.axes) if a != self.axis and a in frame.index]
            self.places[operand] = self.packed.get(operand) or (frame.address(operand, axes), None)
        once = Lanes(None, 1)
        for at, instr in enumerate(phase.instrs, phase.first):
            if not self.varies(at):
                self.write(at, instr, once)

    def run(
        self,
        phase: Phase,
        start: Value,
        stop: Value,
        copies: int,
        step: Callable[[Lanes], None],
        fold: Callable[[], None] | None = None,
    ) -> None:
        """The phase over [start, stop) of the vector axis, in a loop of so many copies of the instructions.

        `step` is called at the end of each copy, `fold` after every FOLD turns of the loop.
        """
        self.prepare(phase)
        self.number = self.frame.nest.phases.index(phase)
        packed = self.strided(phase)
        if not packed and fold is None:
            self.loop(phase, start, stop, copies, step)
            return
        f = self.frame.f
        block = PACK if packed else FOLD * copies * self.lanes
        with f.loop(start, stop, block) as low:
            high = f.intrinsic("umin", "i64", low + block, stop)
            with self.packing(packed, phase, low, high):
                self.loop(phase, low, high, copies, step)
            if fold is not None:
                fold()

    def loop(self, phase: Phase, start: Value, stop: Value, unroll: int, step: Callable[[Lanes], None]) -> None:
        f, wide = self.frame.f, self.lanes
        streams = streamed(self.frame.nest, phase, self.axis, wide)
        if streams:
            self.stream_loop(phase, streams, start, stop, step)
            return
        position = start
        for copies in sorted({unroll, 1}, reverse=True):
            whole = position + ((stop - position) & -(wide * copies))
            with f.loop(position, whole, wide * copies) as i:
                for copy in range(copies):
                    self.group(phase, Lanes(i + wide * copy if copy else i, wide, None, copy), step)
            position = whole
        with f.when(position.compare("ult", stop)):
            self.group(phase, Lanes(position, wide, mask_below(f, stop - position, wide)), step)

    def stream_loop(
        self, phase: Phase, streams: list[int], start: Value, stop: Value, step: Callable[[Lanes], None]
    ) -> None:
        """The loop with streaming stores, if all their operands are large and lie equally in their cache lines.

        What is before the first whole line and after the last whole vector is done first, under masks.
        """
        f, wide = self.frame.f, self.lanes
        places = [self.place(o, Lanes(start, wide)) for o in streams]
        itemsize = self.frame.nest.operands[streams[0]].dtype.itemsize
        rest, whole_items = to_boundary(places[0], itemsize, min(LINE, wide * itemsize))
        streaming = self.large[streams[0]] & whole_items
        for number, place in zip(streams[1:], places[1:], strict=True):
            streaming = streaming & self.large[number] & same_line(places[0], place)
        before = streaming.pick(f.intrinsic("umin", "i64", rest, stop - start), 0)
        first = start + before
        whole = first + ((stop - first) & -wide)
        with f.loop(f.const(0, "i64"), f.const(2, "i64")) as end:
            position = end.eq(0).pick(start, whole)
            count = end.eq(0).pick(before, stop - whole)
            with f.when(count.ne(0)):
                self.group(phase, Lanes(position, wide, mask_below(f, count, wide)), step)
        self.streaming = dict.fromkeys(streams, streaming)
        with f.loop(first, whole, wide) as i:
            self.group(phase, Lanes(i, wide), step)
        self.streaming = {}

    def live(self, phase: Phase) -> list[tuple[int, Instr]]:
        """The varying instructions of the phase that anything needs."""
        values = [v for r in phase.reductions for v in r.values]
        needed, live = {*values, *self.keep, *self.needed_later}, []
        for at, instr in reversed(list(enumerate(phase.instrs, phase.first))):
            if self.varies(at) and (instr.op == "store" or at in needed):
                live.append((at, instr))
                needed.update(() if at in self.take else instr.args)
        return live[::-1]

    def group(self, phase: Phase, lanes: Lanes, step: Callable[[Lanes], None]) -> None:
        for at, instr in self.live(phase):
            if at in self.take:
                lanes.values[at] = self.buffered(at, instr, lanes, self.take[at])
            else:
                self.write(at, instr, lanes)
            if at in self.keep:
                self.buffer(at, instr, lanes, self.keep[at])
        step(lanes)

    def buffer(self, at: int, instr: Instr, lanes: Lanes, where: Value) -> None:
        """Store a value of the row, whole vectors (buffers have room for them)."""
        assert lanes.i is not None
        value = lanes.values[at]
        place_in(where, memory_elem(instr.dtype), lanes.i).store(
            value.to("zext", "i8") if instr.dtype == BOOL else value
        )

    def buffered(self, at: int, instr: Instr, lanes: Lanes, where: Value) -> Value:
        assert lanes.i is not None
        elem = memory_elem(instr.dtype)
        raw = place_in(where, elem, lanes.i).load(elem, lanes.count)
        return raw.ne(0) if instr.dtype == BOOL else raw

    # instructions

    def value(self, number: int, lanes: Lanes) -> Value:
        if number in lanes.values:
            return lanes.values[number]
        if number in self.frame.values:
            return self.frame.values[number]
        assert self.recall is not None
        lanes.values[number] = self.recall(number, lanes)
        return lanes.values[number]

    def write(self, at: int, instr: Instr, lanes: Lanes) -> None:
        if instr.op == "store":
            self.store(instr, self.value(instr.args[0], lanes), lanes)
            return
        source = SOURCES.get(instr.op)
        if source is not None:
            found = source(self, instr, lanes)
        else:
            args = [self.value(a, lanes) for a in instr.args]
            found = emit(instr.op, self.instrs[instr.args[-1]].dtype, instr.dtype, args)
        (lanes.values if self.varies(at) else self.frame.values)[at] = found

    def place(self, operand: int, lanes: Lanes) -> Value:
        """The address of the first of the lanes."""
        base, origin = self.places[operand]
        if lanes.i is None or not self.walks(operand):
            return base
        return base.at(lanes.i if origin is None else lanes.i - origin, item(self.frame.nest.operands[operand]))

    def load(self, instr: Instr, lanes: Lanes) -> Value:
        operand: int = instr.attr[0]
        part: int = instr.attr[1]
        if operand not in lanes.pairs:
            lanes.pairs[operand] = self.load_parts(operand, lanes)
        return lanes.pairs[operand][part]

    def load_parts(self, operand: int, lanes: Lanes) -> tuple[Value, ...]:
        dtype = self.frame.nest.operands[operand].dtype
        place, elem = self.place(operand, lanes), memory_elem(real_of(dtype))
        self.prefetch(operand, place, lanes, write=False)
        count = lanes.count if self.walks(operand) else 1
        parts = 2 if dtype.kind == "c" else 1
        if lanes.mask is None or count == 1:
            raw = place.load(elem, parts * count)
        else:
            raw = masked_load(place, elem, parts * count, _spread(lanes.mask, parts))
        if parts == 2:
            return tuple(raw.shuffle(list(range(p, 2 * count, 2))) for p in range(2))
        return (raw.ne(0) if dtype == BOOL else raw,)

    def prefetch(self, operand: int, place: Value, lanes: Lanes, write: bool) -> None:
        first = self.fetched.get(operand)
        if first is None or lanes.mask is not None or lanes.i is None:
            return
        if self.number != first and self.step_axis is None:  # a row that was read is in a cache
            return
        if operand in self.streaming or self.places[operand][1] is not None:
            return
        prefetch(self.frame, operand, place, lanes.count, self.step_axis, write)

    def store(self, instr: Instr, value: Value, lanes: Lanes) -> None:
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
            order = [p for i in range(count) for p in (i, i + count)]
            value = _join(halves[0], halves[1]) if count == 1 else halves[0].shuffle(order, halves[1])
        place, mask = self.place(operand, lanes), lanes.mask
        self.prefetch(operand, place, lanes, write=True)
        align, streaming = memory_align(dtype), self.streaming.get(operand)
        if streaming is not None:
            self.frame.f.fork(
                streaming,
                lambda: place.store(value, min(LINE, value.lanes * align), NONTEMPORAL),
                lambda: place.store(value, align),
            )
        elif mask is None or count == 1:
            place.store(value, align)
        else:
            masked_store(place, value, _spread(mask, value.lanes // mask.lanes))

    # packing

    def strided(self, phase: Phase) -> list[int]:
        """The operands of the phase that have a run-time stride along the vector axis and are not packed yet."""
        kept = [i for at, i in self.live(phase) if at not in self.take]
        touched = sorted({i.attr[0] for i in kept if i.op in ("load", "store")})
        layouts = [o.layout for o in self.frame.nest.operands]
        return [o for o in touched if self.axis is not None and layouts[o][self.axis] == "s" and o not in self.packed]

    @contextmanager
    def packing(self, operands: list[int], phase: Phase, low: Value, high: Value) -> Iterator[None]:
        loaded = {i.attr[0] for i in phase.instrs if i.op == "load"}
        stored = {i.attr[0] for i in phase.instrs if i.op == "store"}
        before = {o: self.places[o] for o in operands}
        for operand in operands:
            if operand not in self.scratch:
                self.scratch[operand] = self.frame.f.slot(item(self.frame.nest.operands[operand]), PACK)
            if operand in loaded:
                self.copy(operand, before[operand][0], low, high, pack=True)
            self.places[operand] = (self.scratch[operand], low)
        yield
        for operand in operands:
            if operand in stored:
                self.copy(operand, before[operand][0], low, high, pack=False)
            self.places[operand] = before[operand]

    def copy(self, operand: int, base: Value, low: Value, high: Value, pack: bool) -> None:
        f, assumed = self.frame.f, self.frame.nest.operands[operand]
        axis = self.axis
        assert axis is not None
        raw = "i128" if assumed.dtype.itemsize == 16 else f"i{8 * assumed.dtype.itemsize}"
        align = memory_align(assumed.dtype)
        with f.loop(low, high, unroll=True) as i:
            far = base.at(i.binary("mul nsw", self.frame.strides[operand, axis]), item(assumed))
            near = self.scratch[operand].at(i - low, item(assumed))
            source, target = (far, near) if pack else (near, far)
            target.store(source.load(raw, 1, align), align)


def memory_align(dtype: DType) -> int:
    return real_of(dtype).itemsize


def _spread(mask: Value, times: int) -> Value:
    """Each lane of the mask, `times` times in a row."""
    return mask if times == 1 else mask.shuffle([i for i in range(mask.lanes) for _ in range(times)])


def _join(re: Value, im: Value) -> Value:
    f = re.f
    one = f.let(f"insertelement <2 x {re.elem}> poison, {re.typed}, i64 0", re.elem, 2)
    return f.let(f"insertelement {one.typed}, {im.typed}, i64 1", re.elem, 2)


def _index(body: Body, instr: Instr, lanes: Lanes) -> Value:
    if instr.attr != body.axis:
        return body.frame.index[instr.attr]
    assert lanes.i is not None
    return lanes.i + body.frame.f.vector(list(range(lanes.count)), "i64")


def _result(body: Body, instr: Instr, lanes: Lanes) -> Value:
    known = body.frame.results.get(instr.attr)
    if known is not None:
        return known
    assert body.recall is not None
    return body.recall(instr, lanes)


SOURCES: dict[str, Callable[[Body, Instr, Lanes], Value]] = {
    "const": lambda body, instr, lanes: constant(body.frame.f, instr.dtype, instr.attr),
    "load": lambda body, instr, lanes: body.load(instr, lanes),
    "scalar": lambda body, instr, lanes: body.frame.scalars[instr.attr],
    "size": lambda body, instr, lanes: body.frame.lengths[instr.attr],
    "index": _index,
    "result": _result,
}
