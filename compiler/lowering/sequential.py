"""A node that is a whole loop nest -> one kernel. It takes its sizes as numbers, and copies of what it starts from."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from ...runtime.core.settings import settings
from ...runtime.program.program import Argument, Buffer, Int, Library, Pointer, Region, Task
from ..core.types import ArrayType
from ..graph.graph import Graph, Node
from ..layout.operands import BufferLocation, contiguous_strides
from ..sequential.form import Let, Routine, Store, statements_in_routine_block
from ..sequential.lifting import lift_routine_sizes
from ..sequential.parallel_turns import routine_for_printing
from ..targets.target import Target
from .gathers import GatherErrorReports

STEP_US = 1e-3  # what a step takes, by and large


def lower_sequential_node(
    graph: Graph,
    parts: Sequence[int],
    places: dict[int, BufferLocation],
    buffers: list[Buffer],
    target: Target,
    line: str,
) -> list[Task]:
    """parts: the nodes of the results that are wanted; what else it writes goes to buffers that nobody reads."""
    node = graph.nodes[parts[0]]
    routine: Routine = node.attr("routine")
    wanted = {graph.nodes[n].attr("part"): places[n] for n in parts}
    given = iter(node.args)
    copies: list[Task] = []
    arguments: list[Pointer] = []
    starts: list[Region] = []
    reads: list[Region] = []
    writes: list[Region] = []
    unwanted: list[int] = []
    reports = GatherErrorReports()
    part = 0
    for n, array in enumerate(routine.arrays):
        type = ArrayType(array.shape, array.dtype)
        if array.role == "in":
            region = _buffer_region_of_routine_array(type, places[next(given)])
            reads.append(region)
        elif array.role == "report":
            region = _buffer_region_of_routine_array(type, _place_of_lookup_reports(routine, reports, buffers))
            writes.append(region)
        else:
            place = wanted.get(part) if array.role != "temp" else None
            part += array.role != "temp"
            if place is None:
                unwanted.append(n)
                place = BufferLocation(len(buffers), 0, contiguous_strides(type.shape, type.dtype.itemsize), True)
                buffers.append(Buffer(type.nbytes, "temp"))
            region = _buffer_region_of_routine_array(type, place)
            if array.role == "inout":
                source = _buffer_region_of_routine_array(type, places[next(given)])
                if target.routine_copies:
                    starts.append(source)
                elif type.size and source != region:
                    cost = round(target.model.time(2 * type.nbytes, 0), 3)
                    copies.append(Task("copy", Library("copy"), (), (source,), (region,), cost=cost, line=line))
                reads.append(source if target.routine_copies else region)
            writes.append(region)
        arguments.append(Pointer(region.buffer, region.offset))
    over = {w.buffer for w in writes}
    reads = [r for r in reads if r in writes or r.buffer not in over]  # see `reads_before_routine_writes`
    regions = tuple(reads), tuple(writes)
    launch = _launch_of_routine(routine_for_printing(routine, unwanted), target, arguments, starts, regions, line)
    if routine.lookups and (target.checks_indices or settings.verify):
        return reports.wrap_tasks_with_report_checks([*copies, launch], target, line)
    return [*copies, launch]


def _launch_of_routine(
    routine: Routine,
    target: Target,
    arguments: Sequence[Pointer],
    starts: Sequence[Region],
    regions: tuple[tuple[Region, ...], tuple[Region, ...]],
    line: str,
) -> Task:
    """arguments: its arrays; starts: what it copies first; regions: what it reads and writes."""
    lifted, numbers = lift_routine_sizes(routine)
    kernel, shape = target.routine(lifted, numbers)
    cost = round(routine.turns * STEP_US + 1, 3)
    reads, writes = regions
    both = frozenset(r.buffer for r in reads) & frozenset(w.buffer for w in writes)  # the kernel orders its steps there
    words: tuple[Argument, ...] = (
        *arguments,
        *(Pointer(s.buffer, s.offset) for s in starts),
        *(Int(n - 1) for n in numbers),  # see the targets
        *(Int(0 if s in writes else math.prod(s.shape) * s.itemsize) for s in starts),
    )
    return Task(
        "loop", kernel, words, *regions, both,
        units=shape.units, grain=shape.grain, grid=shape.grid, block=shape.block, cost=cost, line=line,
    )  # fmt: skip


def _place_of_lookup_reports(routine: Routine, reports: GatherErrorReports, buffers: list[Buffer]) -> BufferLocation:
    places = [
        reports.place_of_report(slot, lookup.axis, lookup.length, lookup.line, buffers)
        for slot, lookup in enumerate(routine.lookups)
    ]
    return places[0]


def source_of_routine_result(node: Node) -> int | None:
    """The argument that a result of a routine starts from, where it starts from one."""
    given, part = iter(node.args), node.attr("part")
    for array in node.attr("routine").arrays:
        source = next(given) if array.role in ("in", "inout") else None
        if array.role in ("out", "inout"):
            if part == 0:
                return source
            part -= 1
    raise AssertionError(f"a routine has no result {part}")


def reads_before_routine_writes(node: Node, arguments: Collection[int]) -> bool:
    """Whether a result may share memory with these arguments, one of which it starts from: whatever reads the others
    stands before all that writes to that one."""
    routine, given = node.attr("routine"), iter(node.args)
    numbers = [n for n, a in enumerate(routine.arrays) if a.role in ("in", "inout") and next(given) in arguments]
    written = [n for n in numbers if routine.arrays[n].role == "inout"]
    begun = False
    for statement in routine.body:
        inner = [*statements_in_routine_block((statement,))]
        begun |= any(isinstance(s, Store) and s.array in written for s in inner)
        loads = (s.instr.attr for s in inner if isinstance(s, Let) and s.instr.op == "load")
        if begun and any(n in numbers and n not in written for n in loads):
            return False
    return len(written) == 1


def _buffer_region_of_routine_array(type: ArrayType, place: BufferLocation) -> Region:
    strides = contiguous_strides(type.shape, type.dtype.itemsize)
    return Region(place.buffer, place.offset, type.shape, strides, type.dtype.itemsize, type.dtype.name)
