"""A Program: buffers, tasks and who reads and writes what. It is right when its tasks run in order. Plain data."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..core.frozen import field, frozen, replace

if TYPE_CHECKING:
    from .plan import Branch, Loop, Plan

import numpy as np

from .collective import Collective
from .user_function import UserFunction


@frozen
class Buffer:
    """A run of bytes on a device, one of the program's. `kind` is `input` (given by the caller), `output` (returned),
    `temp` (lives inside a call) or `value` (the same, in memory of its own, where devices pass it on). source: which of
    the call's arrays an input is, where several devices read one."""

    nbytes: int
    kind: str
    name: str = ""
    device: int = 0
    source: int = -1


@frozen
class Region:
    """The elements of `buffer` at byte `offset + sum(index[i] * strides[i])`, each `itemsize` bytes long."""

    buffer: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int
    dtype: str = ""

    @property
    def span(self) -> tuple[int, int]:
        """The smallest byte interval [low, high) of the buffer that holds the region. Empty regions give (0, 0)."""
        low = high = self.offset
        for length, stride in zip(self.shape, self.strides, strict=True):
            if length == 0:
                return (0, 0)
            if stride > 0:
                high += stride * (length - 1)
            else:
                low += stride * (length - 1)
        return (low, high + self.itemsize)

    @property
    def matrix_order(self) -> tuple[bool, int] | None:
        """Of its matrices: whether columns, rather than rows, lie side by side, and the elements from one to the next.
        None where neither do, which no library of linear algebra takes."""
        (rows, columns), (row, column) = self.shape[-2:], (s // self.itemsize for s in self.strides[-2:])
        if (column == 1 or columns == 1) and (row >= columns or rows == 1):
            return False, max(row if rows > 1 else 0, columns, 1)
        if (row == 1 or rows == 1) and (column >= rows or columns == 1):
            return True, max(column if columns > 1 else 0, rows, 1)
        return None

    def __str__(self) -> str:
        dims = "x".join(map(str, self.shape)) or "scalar"
        return f"b{self.buffer}[{self.dtype or self.itemsize}:{dims}@{self.offset}]"


@frozen
class Kernel:
    """Kernel source text for one target. Equal text is the same kernel: it is compiled once and cached on disk.

    `signature` names the parameters in order: `ptr`, `i64`, or a scalar type such as `f32`.
    functions: the user's scalar functions that the text calls. `form` is the structured form that the text was printed
    from, kept for audits; it takes no part in equality.
    """

    name: str
    target: str
    source: str
    signature: tuple[str, ...]
    options: tuple[tuple[str, Any], ...] = ()
    functions: tuple[UserFunction, ...] = ()
    form: Any = field(default=None, compare=False, repr=False)


@frozen
class Library:
    """A call into a library, e.g. `matmul`. It takes the task's `reads` and `writes` regions, in order."""

    name: str
    attrs: tuple[tuple[str, Any], ...] = ()


@frozen
class Pointer:
    """The address of byte `offset` of `buffer`."""

    buffer: int
    offset: int = 0


@frozen
class Int:
    """A 64-bit integer (a size or a stride in elements)."""

    value: int

    @property
    def word(self) -> int:
        """As an unsigned 64-bit word."""
        return self.value & (1 << 64) - 1


@frozen
class Scalar:
    """The caller's number `index` of the program's scalars, passed by value as `dtype`."""

    index: int
    dtype: str


@frozen
class Constant:
    """A number of the program itself, such as 0.1 in `0.1 * x`. Its bytes in native order, passed by value as `dtype`.

    As an argument it is no part of the kernel's text, so programs that differ in their numbers share their kernels.
    """

    value: bytes
    dtype: str

    @property
    def word(self) -> int:
        """As the low bytes of a 64-bit word."""
        return int.from_bytes(self.value, sys.byteorder)

    @property
    def number(self) -> Any:
        """As a NumPy scalar."""
        return np.frombuffer(self.value, self.dtype)[0]


Argument = Pointer | Int | Scalar | Constant


@frozen
class Task:
    """One launch, or one loop or branch with all that it launches. Everything that it touches is in `reads` and
    `writes`; a buffer that is in both is either listed in `same_element` (each element is read only by the iteration
    that writes it, or the kernel itself orders its iterations there) or may be touched in any order.

    units: parallel iterations of a kernel; `units` is cut into chunks of `grain` on the CPU.
    grid, block: the launch shape on a GPU. cost: estimated microseconds of the whole task on the target device.
    line: the user's source lines, `file:line`, that the task computes. flops: the arithmetic that the cost counts, of a
    loop that of its body's tasks. nodes: the numbers of the prepared graph's nodes that it computes, for people.
    """

    name: str
    kernel: Kernel | Library | Loop | Branch | Collective
    arguments: tuple[Argument, ...]
    reads: tuple[Region, ...]
    writes: tuple[Region, ...]
    same_element: frozenset[int] = frozenset()
    units: int = 1
    grain: int = 1
    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (1, 1, 1)
    cost: float = 1.0
    line: str = ""
    flops: float = field(default=0.0, compare=False, repr=False)
    nodes: tuple[int, ...] = field(default=(), compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.name}: {_format_task_regions(self.writes)} <- {_format_task_regions(self.reads)}"


def packed_member_tasks(task: Task) -> tuple[Task, ...]:
    """The tasks that a packed or batched task does side by side, in order. Any other task is its own only member.

    Each has an equal part of the arguments, reads and writes: the first the first part, and so on.
    """
    kernel = task.kernel
    if not isinstance(kernel, (Kernel, Library)):
        return (task,)
    extra, name = (kernel.options, "packed") if isinstance(kernel, Kernel) else (kernel.attrs, "batch")
    n = next((value for key, value in extra if key == name), 1)
    if n == 1:
        return (task,)
    rest = tuple(item for item in extra if item[0] != name)
    own = replace(kernel, options=rest) if isinstance(kernel, Kernel) else replace(kernel, attrs=rest)
    x, y, z = task.grid
    shape: dict[str, Any] = {"units": task.units // n, "grid": (x // n, y, z)} if isinstance(kernel, Kernel) else {}
    parts = zip(
        _split_among_packed_tasks(task.arguments, n),
        _split_among_packed_tasks(task.reads, n),
        _split_among_packed_tasks(task.writes, n),
        strict=True,
    )
    return tuple(replace(task, kernel=own, arguments=a, reads=r, writes=w, **shape) for a, r, w in parts)


def control_flow_bodies(task: Task) -> tuple[Plan, ...]:
    """The plans that a loop or branch runs; nothing for other tasks."""
    return () if isinstance(task.kernel, (Kernel, Library, Collective)) else task.kernel.bodies


def buffers_of_task(task: Task) -> tuple[int, ...]:
    """The buffers that it touches or is given, each once: those of its reads, writes and arguments, in their order."""
    given = [a.buffer for a in task.arguments if isinstance(a, Pointer)]
    return tuple(dict.fromkeys([*(r.buffer for r in (*task.reads, *task.writes)), *given]))


def renumber_task(task: Task, buffers: Mapping[int, int], scalars: Mapping[int, int]) -> Task:
    """The task of another program, which has its buffers and its scalars under other numbers."""

    def renumber_argument(given: Argument) -> Argument:
        if isinstance(given, Pointer):
            return replace(given, buffer=buffers[given.buffer])
        return replace(given, index=scalars[given.index]) if isinstance(given, Scalar) else given

    return replace(
        task,
        arguments=tuple(map(renumber_argument, task.arguments)),
        reads=tuple(replace(r, buffer=buffers[r.buffer]) for r in task.reads),
        writes=tuple(replace(r, buffer=buffers[r.buffer]) for r in task.writes),
        same_element=frozenset(buffers[b] for b in task.same_element),
    )


def _split_among_packed_tasks(values: tuple[Any, ...], n: int) -> list[tuple[Any, ...]]:
    each = len(values) // n
    return [values[i * each : (i + 1) * each] for i in range(n)]


def _format_task_regions(regions: tuple[Region, ...]) -> str:
    """The regions; of many alike (a stencil's shifted reads) the first and how many."""
    alike: dict[tuple[int, tuple[int, ...]], list[Region]] = {}
    for region in regions:
        alike.setdefault((region.buffer, region.shape), []).append(region)
    shown = (rs if len(rs) <= 8 else [f"{rs[0]} and {len(rs) - 1} shifted"] for rs in alike.values())
    return ", ".join(str(r) for rs in shown for r in rs)


@frozen
class Program:
    """Tasks over buffers. `inputs[i]` and `outputs[i]` are buffer numbers, in the order of the call's arrays;
    `scalars` are the dtypes of the numbers that a call passes. devices: those that buffers are on, where there are
    several."""

    buffers: tuple[Buffer, ...]
    tasks: tuple[Task, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    scalars: tuple[str, ...] = ()
    target: str = "cpu"
    name: str = "program"
    devices: tuple[tuple[str, int], ...] = ()

    def lines(self) -> Iterator[str]:
        yield f"program {self.name} on {self.target}: {len(self.tasks)} tasks, {len(self.buffers)} buffers"
        for i, b in enumerate(self.buffers):
            place = f" on d{b.device}" if self.devices else ""
            yield f"  b{i} {b.kind}{place} {b.nbytes} bytes{' ' + b.name if b.name else ''}"
        for i, t in enumerate(self.tasks):
            yield f"  t{i} {t}" + (f"    # {t.line}" if t.line else "")
            for body in control_flow_bodies(t):
                yield from (f"    {line}" for line in body.program.lines())
        yield "  return " + ", ".join(f"b{o}" for o in self.outputs)

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def __repr__(self) -> str:
        from ..core.readable_text import shorten_printed_lines

        return shorten_printed_lines(self.lines())


def task_dependences_of_program(program: Program, anti: bool = True) -> tuple[frozenset[int], ...]:
    """For each task the earlier tasks that it must follow: true, anti- and output dependences on overlapping bytes.
    anti: False leaves out those that write over what the earlier one only reads."""
    written: dict[int, _ProgramBufferAccesses] = {}
    read: dict[int, _ProgramBufferAccesses] = {}
    result: list[frozenset[int]] = []
    for number, task in enumerate(program.tasks):
        found: set[int] = set()
        accesses = [(r, False, r.span) for r in task.reads] + [(w, True, w.span) for w in task.writes]
        for region, writes, span in accesses:
            for before in (written, read) if anti and writes else (written,):
                if region.buffer in before:
                    for other, other_region, _, _ in before[region.buffer].at(*span):
                        if other not in found and _region_lattices_meet(region, other_region):
                            found.add(other)
        for region, writes, span in accesses:
            before = written if writes else read
            if region.buffer not in before:
                before[region.buffer] = _ProgramBufferAccesses()
            known = before[region.buffer]
            known.add(number, region, span)
            if len(known.all) >= known.many and region.buffer in written:
                known.forget_overwritten_accesses({w: writer for writer, w, _, _ in written[region.buffer].all})
        result.append(frozenset(found))
    return tuple(result)


class _ProgramBufferAccesses:
    """Who reads a buffer, or who writes it, found by place."""

    FEW = 16  # that are looked at one by one

    def __init__(self) -> None:
        self.all: list[tuple[int, Region, int, int]] = []  # task, region, and its lowest and highest byte
        self.spans = _NO_SPANS  # of many the bytes as a table, which has room for more
        self.many = 256  # with so many those are left out that others stand for

    def add(self, number: int, region: Region, span: tuple[int, int]) -> None:
        count = len(self.all)
        self.all.append((number, region, *span))
        if count >= self.FEW:
            if count >= len(self.spans):
                self.spans = np.array([each[2:] for each in self.all] * 2, np.int64)
            self.spans[count] = span

    def forget_overwritten_accesses(self, newest: Mapping[Region, int]) -> None:
        """Leave out what a later task writes over as a whole: who follows it follows that task too. newest: writers."""
        kept = [each for each in self.all if each[0] >= newest.get(each[1], -1)]
        self.all, self.spans, self.many = [], _NO_SPANS, max(self.many, 2 * len(kept))
        for number, region, low, high in kept:
            self.add(number, region, (low, high))

    def at(self, low: int, high: int) -> list[tuple[int, Region, int, int]]:
        """Those whose span meets these bytes."""
        if len(self.all) <= self.FEW:
            return [each for each in self.all if each[2] < high and low < each[3]]
        lows, highs = self.spans[: len(self.all)].T
        return [self.all[i] for i in ((lows < high) & (low < highs)).nonzero()[0].tolist()]


_NO_SPANS = np.empty((0, 2), np.int64)


def regions_overlap(a: Region, b: Region) -> bool:
    """Whether two regions of one buffer may share a byte. Exact for items of one size and strides of which one
    has all of the other's, else by their spans."""
    (alow, ahigh), (blow, bhigh) = a.span, b.span
    return a.buffer == b.buffer and alow < bhigh and blow < ahigh and _region_lattices_meet(a, b)


def _region_lattices_meet(a: Region, b: Region) -> bool:
    """As `regions_overlap`, for two regions of one buffer whose spans overlap."""
    if a.offset == b.offset and 0 not in a.shape and 0 not in b.shape:
        return True
    strides, others = ({s for n, s in zip(r.shape, r.strides, strict=True) if n > 1} for r in (a, b))
    return a.itemsize != b.itemsize or not (strides <= others or others <= strides) or _region_boxes_overlap(a, b)


def _region_boxes_overlap(a: Region, b: Region) -> bool:
    """Whether some difference of indices lands within an item of the distance between the origins.

    Splits that distance into grid steps, largest stride first; gives up (True) past 64 open possibilities.
    """
    steps: dict[int, list[int]] = {}  # of each stride the largest sum of indices, in each
    for side, region in enumerate((a, b)):
        for length, stride in zip(region.shape, region.strides, strict=True):
            if length > 1:
                steps.setdefault(stride, [0, 0])[side] += length - 1
    strides = sorted(steps, key=abs, reverse=True)
    reach = sum(abs(s) * max(steps[s]) for s in strides) + a.itemsize - 1
    states = {b.offset - a.offset}
    for stride in strides:
        high, low = steps[stride]
        reach -= abs(stride) * max(high, low)
        following: set[int] = set()
        for distance in states:
            if stride == 0:
                following.add(distance)
                continue
            first, last = sorted(((distance - reach) / stride, (distance + reach) / stride))
            for step in range(max(-low, int(first) - 1), min(high, int(last) + 1) + 1):
                if abs(distance - step * stride) <= reach:
                    following.add(distance - step * stride)
        states = following
        if not states:
            return False
        if len(states) > 64:
            return True
    return any(abs(distance) < a.itemsize for distance in states)


def union_bytes_of_regions(regions: Iterable[Region]) -> int:
    """An upper bound of the bytes of the elements that regions cover. Of each buffer at most those between its ends."""
    buffers: dict[int, list[tuple[int, int, int]]] = {}
    for region in regions:
        low, high = region.span
        if high > low:
            buffers.setdefault(region.buffer, []).append(
                (low, high, _distinct_elements_of_region(region) * region.itemsize)
            )
    return sum(map(_bytes_covered_by_regions, buffers.values()))


def _bytes_covered_by_regions(parts: list[tuple[int, int, int]]) -> int:
    """Of (low, high, bytes): for each run of parts that touch each other, the bytes, at most those between its ends."""
    total = size = 0
    low = high = min(parts)[0]
    for start, end, nbytes in sorted(parts):
        if start > high:
            total += min(size, high - low)
            low, high, size = start, end, 0
        high, size = max(high, end), size + nbytes
    return total + min(size, high - low)


def _distinct_elements_of_region(region: Region) -> int:
    """Those at different places: an axis of stride 0 repeats them."""
    count = 1
    for length, stride in zip(region.shape, region.strides, strict=True):
        count *= length if stride else 1
    return count
