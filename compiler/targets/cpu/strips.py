"""Chains of kernels done strip by strip: what one kernel stores, the next one reads while it is in a cache.

A strip is some rows of the results. Before it each earlier kernel makes the rows that the strip needs; neighbouring
strips overlap there and make those rows twice (Ragan-Kelley et al., 2013: overlapping tiles). What is passed on and
read by nothing else lies in scratch memory, a piece for each chunk of strips, so it never has to leave the cache; what
others read as well is stored. All kernels stay as they are: they are called for some units. The bits are the same.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from functools import lru_cache
from itertools import combinations, islice
from math import lcm

from ....runtime.core.frozen import frozen, replace
from ....runtime.program.program import (
    Argument,
    Buffer,
    Int,
    Kernel,
    Pointer,
    Program,
    Region,
    Task,
    regions_overlap,
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


@frozen
class _RowOperand:
    """An operand of a task that goes along rows. step: bytes from row to row; low, high: where its first row is."""

    slot: int
    buffer: int
    role: str
    offset: int
    step: int
    low: int
    high: int

    def rows(self, step: int) -> tuple[int, int]:
        """The rows of its buffer, so many bytes apart, in which its first row lies: the first and the last one."""
        return self.low // step, (self.high - 1) // step


@frozen
class _RowTask:
    """A task whose units are rows, or equal parts of them. A row of one that reduces may be several of its arrays."""

    number: int
    task: Task
    nest: LoopNest
    arguments: tuple[Argument, ...]
    rows: int
    parts: int
    operands: tuple[_RowOperand, ...]


@frozen
class StripNest:
    """Kernels that are done strip by strip. calls: for each its form and the slots that lie in scratch memory, with the
    number of the array there; arrays: how many there are; read: forms of those whose results later ones read."""

    calls: tuple[tuple[LoopNest, tuple[tuple[int, int], ...]], ...]
    arrays: int
    read: frozenset[LoopNest]

    def __str__(self) -> str:
        kept = ([f"a{slot} in scratch {array}" for slot, array in scratch] for _, scratch in self.calls)
        return "\n".join(
            f"strips {', '.join(words)}\n{nest}" for words, (nest, _) in zip(kept, self.calls, strict=True)
        )


@frozen
class _RowProgram:
    """rows: its tasks that go along rows, by number. writers, readers: of each buffer the tasks that write it and those
    that read it."""

    program: Program
    rows: Mapping[int, _RowTask]
    writers: Mapping[int, Set[int]]
    readers: Mapping[int, Set[int]]


@frozen
class _Chain:
    """tasks: those that are done strip by strip, in order; rows: of all strips. ranges: from which row before a strip
    to which one behind it a task is done; grains: rows that one of a task's own is made of; passed: of arrays that are
    passed on the same as in ranges, and the bytes from row to row; private: those that nothing else reads."""

    tasks: tuple[_RowTask, ...]
    rows: int
    ranges: Mapping[int, tuple[int, int]]
    grains: Mapping[int, int]
    passed: Mapping[int, tuple[int, int, int]]
    private: Set[int]


@frozen
class _Strips:
    """chain: what is done strip by strip; height: the rows of a strip; passed: bytes of the arrays in scratch memory as
    wholes; gain: in us, as predicted."""

    chain: _Chain
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
    if len(rows) < 2:
        return program
    writers, readers = defaultdict[int, set[int]](set), defaultdict[int, set[int]](set)
    for number, task in enumerate(program.tasks):
        for users, regions in (writers, task.writes), (readers, task.reads):
            for region in regions:
                users[region.buffer].add(number)
    whole = _RowProgram(program, rows, writers, readers)
    joined: dict[int, _Strips] = {}
    taken: set[int] = set()
    open_ = {n: strips for n in rows if (strips := _widest_strips(whole, n, taken, model))}
    while open_:
        last = max(open_, key=lambda n: (open_[n].gain, n))
        joined[last] = open_.pop(last)
        taken |= (new := joined[last].chain.ranges.keys())
        for number in [n for n, strips in open_.items() if strips.chain.ranges.keys() & new]:
            del open_[number]
            if number not in taken and (strips := _widest_strips(whole, number, taken, model)):
                open_[number] = strips
    return _with_joined_tasks(program, joined, taken, features) if joined else program


def _row_tasks(program: Program) -> dict[int, _RowTask]:
    """All that go along rows, by number. A task whose arrays are without gaps, or which fills a part of one row or
    column, has one axis: it takes its rows from the tasks beside it."""
    rows: dict[int, _RowTask] = {}
    flat: dict[int, tuple[Task, LoopNest]] = {}
    lengths: dict[int, int] = {}  # bytes from row to row of temporaries
    for number, task in enumerate(program.tasks):
        if (nest := _nest_of_rows(task)) is None:
            continue
        if nest.axes > 1 and choose_vector_axis(nest) != 0:
            rows[number] = _row_task(number, task, nest, task.arguments)
            for o in rows[number].operands:
                if o.step > 0:
                    lengths[o.buffer] = min(o.step, lengths.get(o.buffer, o.step))
        elif nest.axes == 1 and not _uses(nest, "index"):
            flat[number] = task, nest
    for numbers in (sorted(flat), sorted(flat, reverse=True)):
        for number in numbers:
            task, nest = flat[number]
            pairs = zip(task.arguments, nest.operands, strict=False)
            steps = [(lengths.get(p.buffer), o) for p, o in pairs if isinstance(p, Pointer) and o.layout != "0"]
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
    """arguments: as the nest's run-time parameters are. What is looked up does not go along rows."""
    looked_up = nest.looked_up
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
        step = 0 if slot in looked_up else steps[0]
        operands.append(_RowOperand(slot, pointer.buffer, operand.role, pointer.offset, step, low, high))
    parts = cpu_launch_units(nest, lengths)[0] // lengths[0]
    return _RowTask(number, task, nest, tuple(arguments), lengths[0], parts, tuple(operands))


def _cut_into_rows(number: int, task: Task, nest: LoopNest, columns: int) -> _RowTask | None:
    """A task over one axis as one over rows of so many elements, or within one row or column of an array of such."""
    count = len(nest.operands)
    length, *rest = task.arguments[count:]
    assert isinstance(length, Int)
    moving = [o.layout for o in nest.operands if o.layout != "0"]
    steps = rest[: moving.count("s")]
    if moving.count("s") == len(moving) and all(step == Int(columns) for step in steps):
        sizes = length, Int(1)
    elif steps or columns < 2 or (length.value > columns and length.value % columns):
        return None
    else:
        sizes = (Int(length.value // columns), Int(columns)) if length.value > columns else (Int(1), length)
    operands = tuple(replace(o, layout="00" if o.layout == "0" else "s1") for o in nest.operands)
    cut = replace(nest, parallel=2, operands=operands)
    cut = replace(cut, name=f"k_{hashlib.sha256(str(cut).encode()).hexdigest()[:16]}")
    return _row_task(
        number, task, cut, (*task.arguments[:count], *sizes, *[Int(columns) for _ in moving], *rest[len(steps) :])
    )


def _widest_strips(whole: _RowProgram, last: int, taken: Set[int], model: WorkCostModel) -> _Strips | None:
    """The task with as many of those before it as pay. None where none do."""
    best: _Strips | None = None
    members, refused = {last}, set[int]()
    free = {number for number in whole.rows.keys() - taken if number < last}
    while True:
        read = {o.buffer for n in members for o in whole.rows[n].operands if o.role == "in"} - refused
        near = [(max(writers), b) for b in read if (writers := whole.writers[b]) and not writers <= members]
        if not near:
            return best
        _, buffer = max(near)
        refused.add(buffer)
        for others in (False, True):  # that read what it reads as well
            wider = _with_writers(whole, buffer, members, free, others)
            chain = wider and _chain_of_tasks(whole, wider)
            if wider and chain:
                members = wider
                found = _strips_of_height(chain, whole.program, model)
                if found is not None and found.gain > (best.gain if best is not None else 0.0):
                    best = found
                break


def _with_writers(whole: _RowProgram, buffer: int, members: Set[int], free: Set[int], others: bool) -> set[int] | None:
    """The tasks, and those that write a buffer; with others also those that read what these write, and so on."""
    wider, left, seen = set(members), [buffer], set[int]()
    while left:
        seen.add(read := left.pop())
        if not whole.writers[read] <= wider | free:
            return None
        for writer in whole.writers[read] - wider:
            wider.add(writer)
            for made in {o.buffer for o in whole.rows[writer].operands if o.role == "out"} if others else ():
                wider |= whole.readers[made] & free
                left += {made} - seen if whole.readers[made] & wider else ()
    return wider


def _chain_of_tasks(whole: _RowProgram, numbers: Set[int]) -> _Chain | None:
    """How the tasks are done strip by strip, if they can be."""
    tasks = [whole.rows[n] for n in sorted(numbers)]
    made = {o.buffer: o for t in tasks for o in t.operands if o.role != "in"}
    temporary = {b for b in made if whole.program.buffers[b].kind == "temp"}
    private = {b for b in temporary if whole.writers[b] | whole.readers[b] <= numbers}
    passed = {b for t in tasks for o in t.operands if o.role == "in" and (b := o.buffer) in made} | private
    steps = {b: made[b].step for b in passed}
    if min(steps.values(), default=0) < 1:
        return None
    grains = dict[int, int]()
    for t in tasks:
        if not (grain := _rows_of_a_row(t, steps)):
            return None
        grains[t.number] = grain
    if not all(_is_stored_once(whole, b, numbers, b in passed) for b in made.keys() - private):
        return None
    if _waits_for_others(whole, tasks):
        return None
    ranges, needed, rows = _ranges_of_tasks(tasks, steps, grains, private)
    if not all(ranges[t.number] == (0, 0) or _may_be_done_twice(t, private, grains[t.number]) for t in tasks):
        return None
    both = {b: (*needed[b], steps[b]) for b in sorted(needed)}
    return _Chain(tuple(tasks), rows, ranges, grains, both, private)


Ranges = dict[int, tuple[int, int]]


def _ranges_of_tasks(
    tasks: Sequence[_RowTask], steps: Mapping[int, int], grains: Mapping[int, int], private: Set[int]
) -> tuple[Ranges, Ranges, int]:
    """From which row before a strip to which one behind it tasks are done, and what they pass on is made; all rows."""
    stored = [(t, o) for t in tasks for o in t.operands if o.role != "in" and o.buffer not in private]
    ranges = {t.number: (0, 0) for t, o in stored if o.buffer not in steps}
    needed = {o.buffer: (0, 0) for _, o in stored if o.buffer in steps}
    ends = [t.rows * grains[t.number] + (o.rows(o.step)[0] if o.buffer in steps else 0) for t, o in stored]
    for t in reversed(tasks):
        along = [(o, *o.rows(steps[o.buffer])) for o in t.operands if o.buffer in steps]
        for o, row, _ in along:
            if o.role == "out":
                low, high = needed.get(o.buffer, (row, row))
                _widen(ranges, t.number, low - row, high - row)
        low, high = ranges[t.number]
        for o, above, below in along:
            _widen(needed, o.buffer, low + above, high + below - grains[t.number] + 1)
    return ranges, needed, max(ends, default=0)


def _widen(ranges: Ranges, number: int, low: int, high: int) -> None:
    before = ranges.get(number, (low, high))
    ranges[number] = min(low, before[0]), max(high, before[1])


def _rows_of_a_row(task: _RowTask, steps: Mapping[int, int]) -> int:
    """How many rows of the arrays that are passed on one of its rows is made of; 0 where it does not go along them.
    steps: bytes from row to row."""
    grains = set[int]()
    for o in task.operands:
        if (step := steps.get(o.buffer)) is None:
            continue
        if o.role == "inout" or o.step <= 0 or o.step % step:
            return 0
        if o.role == "out" and (o.step != step or len(set(o.rows(step))) > 1):
            return 0
        grains.add(o.step // step)
    return max(grains, default=1) if len(grains) <= 1 else 0


def _may_be_done_twice(task: _RowTask, private: Set[int], grain: int) -> bool:
    """Whether some of its rows may be made by two strips at once: into memory each element is stored once, as it is."""
    stored = any(o.role != "in" and o.buffer not in private for o in task.operands)
    return grain == 1 and not (stored and (len(task.nest.phases) > 1 or any(o.role == "inout" for o in task.operands)))


def _waits_for_others(whole: _RowProgram, tasks: Sequence[_RowTask]) -> bool:
    """Whether tasks between these, which run before them, would find or leave other memory."""
    between = set(range(tasks[0].number, tasks[-1].number)) - {t.number for t in tasks}
    for t in tasks if between else ():
        for region in (*t.task.writes, *t.task.reads):
            writes = region in t.task.writes
            users = whole.writers[region.buffer] | (whole.readers[region.buffer] if writes else set())
            others = [whole.program.tasks[n] for n in users & between if n > t.number]
            theirs = (r for other in others for r in (*other.writes, *(other.reads if writes else ())))
            if any(regions_overlap(region, other) for other in theirs):
                return True
    return False


def _is_stored_once(whole: _RowProgram, buffer: int, numbers: Set[int], passed: bool) -> bool:
    """Whether strips of tasks may store it: in parts that lie apart. Is it passed on, all are made by these tasks and
    before others read them; else who reads it writes it in place."""
    program = whole.program
    writers, readers = whole.writers[buffer] & numbers, whole.readers[buffer] & numbers
    parts = [r for n in writers for r in program.tasks[n].writes if r.buffer == buffer]
    if any(regions_overlap(*two) for two in combinations(parts, 2)):
        return False
    if not passed:
        return not readers or len(readers | writers) == 1
    return program.buffers[buffer].kind != "input" and writers == whole.writers[buffer] and max(writers) < min(readers)


def _strips_of_height(chain: _Chain, program: Program, model: WorkCostModel) -> _Strips | None:
    """None where strips are too low for the rows that are made twice, or nothing is gained."""
    ranges, tasks, passed = chain.ranges, chain.tasks, chain.passed
    halo, least = max(high - low for low, high in ranges.values()), lcm(*chain.grains.values())
    around = sum((high - low) * step for low, high, step in passed.values())
    height = (SCRATCH_BYTES - around) // max(1, sum(step for _, _, step in passed.values()))
    height = min(height, max(-(-chain.rows // STRIPS), OVERLAP * halo)) // least * least
    saved = sum(program.buffers[b].nbytes for b in chain.private)
    if height < max(1, OVERLAP * halo) or saved < LEAST_BYTES or chain.rows < 2 * STRIPS:
        return None
    private = chain.private
    regions = [r for t in tasks for r in (*t.task.reads, *t.task.writes) if r.buffer not in private]
    inside = [
        union_bytes_of_regions(
            [r for r in t.task.reads if r.buffer in passed] + [r for r in t.task.writes if r.buffer in private]
        )
        for t in tasks
    ]
    again = sum((ranges[t.number][1] - ranges[t.number][0]) / height * t.task.flops for t in tasks)
    gain = sum(inside) * (1 - 1 / CACHED) / model.bandwidth - again / model.flops
    separate, fewest = sum(t.task.cost for t in tasks), model.time(union_bytes_of_regions(regions), 0)
    if gain <= SURELY * separate:
        return None
    return _Strips(chain, height, saved, gain, round(max(separate - gain, fewest), 3))


def _with_joined_tasks(program: Program, joined: Mapping[int, _Strips], taken: Set[int], features: Features) -> Program:
    scalars = {i: i for i in range(len(program.scalars))}
    gone = {b for strips in joined.values() for b in strips.chain.private}
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


def _scratch_pieces(strips: _Strips) -> tuple[dict[int, int], int]:
    """Where each array begins in the scratch memory of a chunk of strips, and its bytes."""
    offsets, piece = dict[int, int](), 0
    for b, (low, high, step) in strips.chain.passed.items():
        if b in strips.chain.private:
            offsets[b] = piece
            piece += -(-(strips.height + high - low) * step // LINE) * LINE + LINE
    return offsets, piece


def _strip_task(strips: _Strips, scratch: int, features: Features) -> tuple[Task, int]:
    """The task, and the bytes of its scratch memory."""
    chain = strips.chain
    offsets, piece = _scratch_pieces(strips)
    arrays = {b: n for n, b in enumerate(offsets)}
    count = -(-chain.rows // strips.height)
    grain = -(-count // max(1, min(PIECES, strips.passed // piece)))
    pieces = -(-count // grain)
    calls, given, shape = [], list[Argument](), list[int]()
    for t in chain.tasks:
        own = list(t.arguments)
        inside = [o for o in t.operands if o.buffer in arrays]
        for o in inside:
            own[o.slot] = Int(o.offset)
        calls.append((t.nest, tuple((o.slot, arrays[o.buffer]) for o in inside)))
        given += own
        rows = chain.grains[t.number]
        shape += (*chain.ranges[t.number], t.rows * rows, t.parts, rows)
    for b, offset in offsets.items():
        low, _, step = chain.passed[b]
        shape += (offset - low * step, step)
    made = [(t.nest, o) for t in chain.tasks for o in t.operands if o.role == "out"]
    read = frozenset(nest for nest, o in made if o.buffer in chain.passed)
    kernel = _print_strip_kernel(StripNest(tuple(calls), len(arrays), read), *features)
    tasks = [t.task for t in chain.tasks]
    reads = dict.fromkeys(r for t in tasks for r in t.reads if r.buffer not in chain.passed)
    writes = dict.fromkeys(r for t in tasks for r in t.writes if r.buffer not in arrays)
    return Task(
        f"{tasks[-1].name}_in_strips",
        kernel,
        (*given, *map(Int, (strips.height, chain.rows, grain, piece, *shape)), Pointer(scratch)),
        tuple(reads),
        (*writes, Region(scratch, 0, (pieces * piece,), (1,), 1, "uint8")),
        frozenset[int]().union(*(task.same_element for task in tasks)),
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
    before a strip to which one behind it it is done, its rows, units of a row of its own and how many
    rows that is; for each array in scratch memory
    where its row 0 is in that of the first strip, and the bytes from row to row; scratch memory."""
    nests = [nest for nest, _ in form.calls]
    name = f"k_strips_{hashlib.sha256(str(form).encode()).hexdigest()[:16]}"
    module = LlvmModule(library, " contract" if nests[-1].fastmath else "")
    texts = [
        llvm_function_of_nest(module, nest, vector_bytes, "internal ", nest not in form.read)
        for nest in dict.fromkeys(nests)
    ]
    f = LlvmFunction(module)
    counts = [len(nest.signature) for nest in nests]
    own, more, slots = sum(counts), 4 + 5 * len(nests) + 2 * form.arrays, LlvmValue(f, "%slots", "ptr")
    begin, end = LlvmValue(f, "%begin", "i64"), LlvmValue(f, "%end", "i64")
    numbers = (slots.at(place, "i64").load("i64") for place in range(own, own + more))
    height, rows, grain, piece = islice(numbers, 4)
    calls = [tuple(islice(numbers, 5)) for _ in nests]
    arrays = [tuple(islice(numbers, 2)) for _ in range(form.arrays)]
    scratch = slots.at(own + more, "i64").load("ptr")
    scratch = scratch.at(begin.binary("udiv", grain) * piece, "i8")
    given = f.slot("i64", own)
    with f.loop(0, own) as place:
        given.at(place, "i64").store(slots.at(place, "i64").load("i64"))
    with f.loop(begin, end) as strip:
        low = strip * height
        high = f.intrinsic("umin", "i64", low + height, rows)
        bases = [scratch.at(start - low * step, "i8", inside=False) for start, step in arrays]
        first = 0
        for (nest, inside), (before, behind, length, parts, of), count in zip(form.calls, calls, counts, strict=True):
            for slot, array in inside:
                offset = slots.at(first + slot, "i64").load("i64")
                given.at(first + slot, "i64").store(bases[array].at(offset, "i8", inside=False))
            top = f.intrinsic("smax", "i64", low + before, f.const(0, "i64"))
            bottom = f.intrinsic("smin", "i64", high + behind, length)
            with f.when(top < bottom):
                ends = ", ".join(f"i64 {(end * parts).binary('udiv', of)}" for end in (top, bottom))
                f.do(f"call void @{nest.name}(ptr {given.at(first, 'i64')}, {ends})")
            first += count
    f.do("ret void")
    driver = f.render(f"define void @{name}(ptr noundef %slots, i64 %begin, i64 %end)")
    source = "\n".join([str(module), *texts, driver, METADATA, ""])
    signature = tuple(kind for nest in nests for kind in nest.signature)
    return Kernel(name, "cpu", source, (*signature, *["i64"] * more, "ptr"), form=form)
