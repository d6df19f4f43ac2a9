"""Chains of kernels done strip by strip: what one kernel stores, the next one reads while it is in a cache.

A strip is some rows of the last kernel's results. Before it each earlier kernel makes the rows that the strip needs;
neighbouring strips overlap there and make those rows twice (Ragan-Kelley et al., 2013: overlapping tiles). What is
passed on lies in scratch memory, a piece for each chunk of strips, so it never has to leave the cache. All kernels stay
as they are: they are called for some of their units. The bits are the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence, Set
from functools import lru_cache
from itertools import islice

from ....runtime.core.frozen import dataclass, replace
from ....runtime.program.program import (
    Argument,
    Buffer,
    Int,
    Kernel,
    Pointer,
    Program,
    Region,
    Task,
    renumber_task,
    union_bytes_of_regions,
)
from ...core.cost import WorkCostModel
from ...graph.graph import joined_user_lines
from ...kernel.loop_nest import LoopNest
from .kernel import choose_vector_axis, cpu_launch_units, llvm_function_of_nest
from .llvm_ir import LINE, METADATA, LlvmFunction, LlvmModule, LlvmValue
from .transpose import cpu_transpose_tiling

LEAST_BYTES = 1 << 21  # that are passed on: less stays in a cache anyway
SCRATCH_BYTES = 3 << 18  # of a strip
STRIPS = 16  # at least, for cores to share
PIECES = 64  # of scratch memory at most, and no more bytes than the arrays would take
OVERLAP = 2  # strips have at least so many times the rows that are made twice
SURELY = 0.05  # of a predicted time that must be saved
CACHED = 3.0  # how many times as fast as memory a cache is

Features = tuple[str | None, int]


@dataclass(frozen=True, slots=True)
class _RowOperand:
    """An operand of a task that goes along rows. step: bytes from row to row; low, high: where its first row is."""

    slot: int
    buffer: int
    role: str
    offset: int
    step: int
    low: int
    high: int

    @property
    def rows(self) -> tuple[int, int]:
        """The rows of its buffer in which its first row lies: the first and the last one."""
        return self.low // self.step, (self.high - 1) // self.step


@dataclass(frozen=True, slots=True)
class _RowTask:
    """A task whose units are rows, or equal parts of them."""

    number: int
    task: Task
    nest: LoopNest
    arguments: tuple[Argument, ...]
    rows: int
    parts: int
    operands: tuple[_RowOperand, ...]


@dataclass(frozen=True, slots=True)
class StripNest:
    """Kernels that are done strip by strip. calls: for each its form and the slots that lie in scratch memory, with the
    number of the array there; arrays: how many there are."""

    calls: tuple[tuple[LoopNest, tuple[tuple[int, int], ...]], ...]
    arrays: int

    def __str__(self) -> str:
        kept = ([f"a{slot} in scratch {array}" for slot, array in scratch] for _, scratch in self.calls)
        return "\n".join(
            f"strips {', '.join(words)}\n{nest}" for words, (nest, _) in zip(kept, self.calls, strict=True)
        )


@dataclass(frozen=True, slots=True)
class _Strips:
    """tasks: those that are done strip by strip, in order; the last one is whole. ranges: from which row before a strip
    to which one behind it a task is done; kept: of arrays in scratch memory the same, and the bytes from row to row;
    height: the rows of a strip; passed: bytes of those arrays as wholes; gain: in us, as predicted."""

    tasks: tuple[_RowTask, ...]
    ranges: Mapping[int, tuple[int, int]]
    kept: Mapping[int, tuple[int, int, int]]
    height: int
    passed: int
    gain: float
    cost: float


def join_tasks_in_strips(program: Program, model: WorkCostModel, features: Features) -> Program:
    """The program with chains of tasks as one where that is predicted to be faster. features: the vector mathematics
    that texts may call, and the bytes of a vector."""
    if sum(b.nbytes for b in program.buffers if b.kind == "temp") < LEAST_BYTES:
        return program
    rows = _row_tasks(program)
    users: dict[int, tuple[set[int], set[int]]] = {}
    for number, task in enumerate(program.tasks):
        for side, regions in enumerate((task.writes, task.reads)):
            for region in regions:
                users.setdefault(region.buffer, (set(), set()))[side].add(number)
    joined: dict[int, _Strips] = {}
    taken: set[int] = set()
    for number in sorted(rows, reverse=True):
        if number not in taken and rows[number].rows >= 2 * STRIPS:
            found = _widest_strips(program, number, rows, users, taken, model)
            if found is not None:
                joined[number] = found
                taken.update(each.number for each in found.tasks)
    return _with_joined_tasks(program, joined, taken, features) if joined else program


def _row_tasks(program: Program) -> dict[int, _RowTask]:
    """All that go along rows, by number. A task whose arrays are without gaps has one axis: it takes its rows from the
    tasks beside it."""
    rows: dict[int, _RowTask] = {}
    flat: dict[int, tuple[Task, LoopNest]] = {}
    lengths: dict[int, int] = {}  # bytes from row to row of temporaries
    for number, task in enumerate(program.tasks):
        if (nest := _nest_of_rows(task)) is None:
            continue
        if nest.axes > 1 and choose_vector_axis(nest) != 0:
            rows[number] = _row_task(number, task, nest, task.arguments)
            lengths.update((o.buffer, o.step) for o in rows[number].operands if o.step > 0)
        elif nest.axes == 1 and all(o.layout in ("0", "1") for o in nest.operands) and not _uses(nest, "index"):
            flat[number] = task, nest
    for numbers in (sorted(flat), sorted(flat, reverse=True)):
        for number in numbers:
            task, nest = flat[number]
            pairs = zip(task.arguments, nest.operands, strict=False)
            steps = [(lengths.get(p.buffer), o) for p, o in pairs if isinstance(p, Pointer) and o.layout == "1"]
            found = [step // o.dtype.itemsize for step, o in steps if step]
            if number not in rows and found and (cut := _cut_into_rows(number, task, nest, found[0])):
                rows[number] = cut
                lengths.update((o.buffer, o.step) for o in cut.operands if o.step > 0)
    return rows


def _nest_of_rows(task: Task) -> LoopNest | None:
    kernel = task.kernel
    if not isinstance(kernel, Kernel) or not isinstance(nest := kernel.form, LoopNest) or kernel.functions:
        return None
    if _uses(nest, "report", "size") or nest.parallel < 1 or cpu_transpose_tiling(nest) is not None:
        return None
    return nest


def _uses(nest: LoopNest, *ops: str) -> bool:
    return any(instr.op in ops for phase in nest.phases for instr in phase.instrs)


def _row_task(number: int, task: Task, nest: LoopNest, arguments: Sequence[Argument]) -> _RowTask:
    """arguments: as the nest's run-time parameters are."""
    numbers = [a.value for a in arguments if isinstance(a, Int)]
    lengths, rest = numbers[: nest.axes], iter(numbers[nest.axes :])
    operands = []
    for slot, operand in enumerate(nest.operands):
        pointer, item = arguments[slot], operand.dtype.itemsize
        assert isinstance(pointer, Pointer)
        steps = [item * (next(rest) if c == "s" else int(c)) for c in operand.layout]
        ends = [(n - 1) * s for n, s in zip(lengths[1:], steps[1:], strict=True)]
        low = pointer.offset + sum(e for e in ends if e < 0)
        high = pointer.offset + sum(e for e in ends if e > 0) + item
        operands.append(_RowOperand(slot, pointer.buffer, operand.role, pointer.offset, steps[0], low, high))
    parts = cpu_launch_units(nest, lengths)[0] // lengths[0]
    return _RowTask(number, task, nest, tuple(arguments), lengths[0], parts, tuple(operands))


def _cut_into_rows(number: int, task: Task, nest: LoopNest, columns: int) -> _RowTask | None:
    """A task over one axis as one over rows of so many elements."""
    count = len(nest.operands)
    length = task.arguments[count]
    assert isinstance(length, Int)
    if columns < 2 or length.value % columns or length.value == columns:
        return None
    operands = tuple(replace(o, layout="s1" if o.layout == "1" else "00") for o in nest.operands)
    cut = replace(nest, parallel=2, operands=operands)
    cut = replace(cut, name=f"k_{hashlib.sha256(str(cut).encode()).hexdigest()[:16]}")
    sizes = Int(length.value // columns), Int(columns), *[Int(columns) for o in nest.operands if o.layout == "1"]
    return _row_task(number, task, cut, (*task.arguments[:count], *sizes, *task.arguments[count + 1 :]))


def _widest_strips(
    program: Program,
    last: int,
    rows: Mapping[int, _RowTask],
    users: Mapping[int, tuple[Set[int], Set[int]]],
    taken: Set[int],
    model: WorkCostModel,
) -> _Strips | None:
    """The task with as many of those that it needs as pay. None where none do."""
    best: _Strips | None = None
    private, members = set[int](), {last}

    def joined_with(buffer: int) -> tuple[set[int], set[int]] | None:
        """The temporaries and tasks that come along with one; None where something else writes or reads them."""
        buffers, writers = {buffer}, set[int]()
        while True:
            writers |= set().union(*(users[b][0] for b in buffers))
            more = {r.buffer for w in writers for r in program.tasks[w].writes}
            if more <= buffers:
                break
            buffers |= more
        temporary = all(program.buffers[b].kind == "temp" and users[b][1] <= members | writers for b in buffers)
        return (buffers, writers) if temporary and writers <= rows.keys() - taken - members else None

    while True:
        read = {o.buffer for n in members for o in rows[n].operands if o.role == "in"} - private
        near = [both for b in sorted(read) if (both := joined_with(b)) is not None]
        if not near:
            return best
        buffers, writers = max(near, key=lambda both: max(both[1], default=-1))
        private, members = private | buffers, members | writers
        found = _strips_of_tasks(program, [rows[n] for n in sorted(members)], private, model)
        if found is not None and found.gain > (best.gain if best is not None else 0.0):
            best = found


def _strips_of_tasks(
    program: Program, tasks: Sequence[_RowTask], private: Set[int], model: WorkCostModel
) -> _Strips | None:
    """How the tasks are done strip by strip, if they can be."""
    kept = {t.number: [o for o in t.operands if o.buffer in private] for t in tasks}
    steps = {o.buffer: o.step for operands in kept.values() for o in operands}
    if _meets_other_memory(program, tasks) or not all(_passes_rows_on(t, kept[t.number], steps) for t in tasks):
        return None
    ranges: dict[int, tuple[int, int]] = {tasks[-1].number: (0, 0)}
    needed: dict[int, tuple[int, int]] = {}  # of each array in scratch memory
    for t in reversed(tasks):
        for o in kept[t.number]:
            if o.role == "out":
                low, high = needed.get(o.buffer, (0, 0))
                _widen(ranges, t.number, low - o.rows[0], high - o.rows[0])
        low, high = ranges[t.number]
        for o in kept[t.number]:
            if o.role == "in":
                _widen(needed, o.buffer, low + o.rows[0], high + o.rows[1])
    return _strips_of_height(tasks, ranges, {b: (*needed[b], steps[b]) for b in sorted(needed)}, program, model)


def _widen(ranges: dict[int, tuple[int, int]], number: int, low: int, high: int) -> None:
    before = ranges.get(number, (low, high))
    ranges[number] = min(low, before[0]), max(high, before[1])


def _passes_rows_on(task: _RowTask, kept: Sequence[_RowOperand], steps: Mapping[int, int]) -> bool:
    """Whether it goes row by row along the arrays that are kept in scratch memory. steps: bytes from row to row."""
    return all(
        o.role != "inout"
        and o.slot not in task.nest.looked_up
        and o.step == steps[o.buffer] > 0
        and (o.role == "in" or o.rows[0] == o.rows[1])
        for o in kept
    )


def _meets_other_memory(program: Program, tasks: Sequence[_RowTask]) -> bool:
    """Whether the last task writes what the others read, or tasks between them write that: these run before them."""
    last, numbers = tasks[-1], {t.number for t in tasks}
    written = {r.buffer for r in last.task.writes}
    read = {o.buffer for t in tasks for o in t.operands}
    others = {o.buffer for t in tasks[:-1] for o in t.operands} | {o.buffer for o in last.operands if o.role == "in"}
    between = [n for n in range(tasks[0].number, last.number) if n not in numbers]
    return bool(written & others) or any(r.buffer in read for n in between for r in program.tasks[n].writes)


def _strips_of_height(
    tasks: Sequence[_RowTask],
    ranges: Mapping[int, tuple[int, int]],
    kept: Mapping[int, tuple[int, int, int]],
    program: Program,
    model: WorkCostModel,
) -> _Strips | None:
    """None where strips are too low for the rows that are made twice, or nothing is gained."""
    rows, halo = tasks[-1].rows, max(high - low for low, high in ranges.values())
    around = sum((high - low) * step for low, high, step in kept.values())
    height = (SCRATCH_BYTES - around) // max(1, sum(step for _, _, step in kept.values()))
    height = min(height, max(-(-rows // STRIPS), OVERLAP * halo))
    passed = sum(program.buffers[b].nbytes for b in kept)
    if height < max(1, OVERLAP * halo) or passed < LEAST_BYTES:
        return None
    regions = [r for t in tasks for r in (*t.task.reads, *t.task.writes) if r.buffer not in kept]
    inside = [union_bytes_of_regions(r for r in (*t.task.reads, *t.task.writes) if r.buffer in kept) for t in tasks]
    again = sum((ranges[t.number][1] - ranges[t.number][0]) / height * t.task.flops for t in tasks)
    gain = sum(inside) * (1 - 1 / CACHED) / model.bandwidth - again / model.flops
    separate, least = sum(t.task.cost for t in tasks), model.time(union_bytes_of_regions(regions), 0)
    if gain <= SURELY * separate:
        return None
    return _Strips(tuple(tasks), ranges, kept, height, passed, gain, round(max(separate - gain, least), 3))


def _with_joined_tasks(program: Program, joined: Mapping[int, _Strips], taken: Set[int], features: Features) -> Program:
    scalars = {i: i for i in range(len(program.scalars))}
    gone = {b for strips in joined.values() for b in strips.kept}
    left = [b for b in range(len(program.buffers)) if b not in gone]
    renumbered = {b: n for n, b in enumerate(left)}
    buffers = [program.buffers[b] for b in left]
    tasks: list[Task] = []
    for number, task in enumerate(program.tasks):
        if number in joined:
            scratch = len(program.buffers)  # known under this number until all are renumbered
            made, nbytes = _strip_task(joined[number], scratch, features)
            tasks.append(renumber_task(made, {**renumbered, scratch: len(buffers)}, scalars))
            buffers.append(Buffer(nbytes, "temp"))
        elif number not in taken:
            tasks.append(renumber_task(task, renumbered, scalars))
    inputs, outputs = (tuple(renumbered[b] for b in each) for each in (program.inputs, program.outputs))
    return replace(program, buffers=tuple(buffers), tasks=tuple(tasks), inputs=inputs, outputs=outputs)


def _strip_task(strips: _Strips, scratch: int, features: Features) -> tuple[Task, int]:
    """The task, and the bytes of its scratch memory."""
    *_, last = strips.tasks
    arrays = {b: n for n, b in enumerate(strips.kept)}
    offsets, piece = [], 0
    for low, high, step in strips.kept.values():
        offsets.append(piece)
        piece += -(-(strips.height + high - low) * step // LINE) * LINE + LINE
    count = -(-last.rows // strips.height)
    grain = -(-count // max(1, min(PIECES, strips.passed // piece)))
    pieces = -(-count // grain)
    calls, given, shape = [], list[Argument](), list[int]()
    for t in strips.tasks:
        own = list(t.arguments)
        inside = [o for o in t.operands if o.buffer in arrays]
        for o in inside:
            own[o.slot] = Int(o.offset)
        calls.append((t.nest, tuple((o.slot, arrays[o.buffer]) for o in inside)))
        given += own
        shape += (*strips.ranges[t.number], t.rows, t.parts)
    for (low, _, step), offset in zip(strips.kept.values(), offsets, strict=True):
        shape += (offset - low * step, step)
    kernel = _print_strip_kernel(StripNest(tuple(calls), len(arrays)), *features)
    tasks = [t.task for t in strips.tasks]
    reads = dict.fromkeys(r for t in tasks for r in t.reads if r.buffer not in arrays)
    writes = dict.fromkeys(r for t in tasks for r in t.writes if r.buffer not in arrays)
    return Task(
        f"{tasks[-1].name}_in_strips",
        kernel,
        (*given, *map(Int, (strips.height, last.rows, grain, piece, *shape)), Pointer(scratch)),
        tuple(reads),
        (*writes, Region(scratch, 0, (pieces * piece,), (1,), 1, "uint8")),
        tasks[-1].same_element,
        units=count,
        grain=grain,
        cost=strips.cost,
        line=joined_user_lines([t.line for t in tasks]),
        flops=sum(t.flops for t in tasks),
        nodes=tuple(sorted({n for t in tasks for n in t.nodes})),
    ), pieces * piece


@lru_cache(256)
def _print_strip_kernel(form: StripNest, library: str | None, vector_bytes: int) -> Kernel:
    """Slots: those of all calls, one after the other, with offsets in scratch memory instead of addresses; then the
    rows of a strip, all rows, the strips of a chunk and the bytes of its scratch memory; for each call from which row
    before a strip to which one behind it it is done, its rows, and units of a row; for each array in scratch memory
    where its row 0 is in that of the first strip, and the bytes from row to row; scratch memory."""
    nests = [nest for nest, _ in form.calls]
    name = f"k_strips_{hashlib.sha256(str(form).encode()).hexdigest()[:16]}"
    module = LlvmModule(library, " contract" if nests[-1].fastmath else "")
    texts = [
        llvm_function_of_nest(module, nest, vector_bytes, "internal ", nest not in nests[:-1])
        for nest in dict.fromkeys(nests)
    ]
    f = LlvmFunction(module)
    counts = [len(nest.signature) for nest in nests]
    own, more, slots = sum(counts), 4 + 4 * len(nests) + 2 * form.arrays, LlvmValue(f, "%slots", "ptr")
    begin, end = LlvmValue(f, "%begin", "i64"), LlvmValue(f, "%end", "i64")
    numbers = (slots.at(place, "i64").load("i64") for place in range(own, own + more))
    height, rows, grain, piece = islice(numbers, 4)
    calls = [tuple(islice(numbers, 4)) for _ in nests]
    arrays = [tuple(islice(numbers, 2)) for _ in range(form.arrays)]
    scratch = slots.at(own + more, "i64").load("ptr")
    scratch = scratch.at(begin.binary("udiv", grain) * piece, "i8")
    given = f.slot("i64", own)
    with f.loop(f.const(0, "i64"), f.const(own, "i64")) as place:
        given.at(place, "i64").store(slots.at(place, "i64").load("i64"))
    with f.loop(begin, end) as strip:
        low = strip * height
        high = f.intrinsic("umin", "i64", low + height, rows)
        bases = [scratch.at(start - low * step, "i8", inside=False) for start, step in arrays]
        first = 0
        for (nest, inside), (before, behind, length, parts), count in zip(form.calls, calls, counts, strict=True):
            for slot, array in inside:
                offset = slots.at(first + slot, "i64").load("i64")
                given.at(first + slot, "i64").store(bases[array].at(offset, "i8", inside=False))
            top = f.intrinsic("smax", "i64", low + before, f.const(0, "i64"))
            bottom = f.intrinsic("smin", "i64", high + behind, length)
            with f.when(top < bottom):
                ends = f"i64 {top * parts}, i64 {bottom * parts}"
                f.do(f"call void @{nest.name}(ptr {given.at(first, 'i64')}, {ends})")
            first += count
    f.do("ret void")
    driver = f.render(f"define void @{name}(ptr noundef %slots, i64 %begin, i64 %end)")
    source = "\n".join([str(module), *texts, driver, METADATA, ""])
    signature = tuple(kind for nest in nests for kind in nest.signature)
    return Kernel(name, "cpu", source, (*signature, *["i64"] * more, "ptr"), form=form)
