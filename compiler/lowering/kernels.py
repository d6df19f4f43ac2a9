"""One group -> its kernels. What is evaluated at which loop, and long reductions cut into two stages.

`LoopNestLowering` emits one of them over one domain: phases through the body builder, operands, collapsed axes.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import chain

import numpy as np

from ...runtime.core.frozen import dataclass, field, replace
from ...runtime.program.program import Argument, Buffer, Constant, Int, Region, Scalar
from ..core.combiners import COMBINERS
from ..core.cost import SWEPT_ELEMENTS, SWEPT_ROWS, rows_of_block
from ..core.types import FLOAT32, FLOAT64, INT64, DType, dtype_name
from ..fusion.groups import Group
from ..graph.graph import Graph
from ..kernel.body_builder import KernelBody, KernelValue, lift_constants_of_loop_nest
from ..kernel.loop_nest import LIMIT_32, LOOP, POINT, LoopNest, Operand, Phase, Reduction, Window
from ..layout.operands import (
    ALIGNMENT,
    BufferLocation,
    IterationDomain,
    Map,
    OperandAccess,
    PlacedLoopNest,
    are_operand_elements_aligned,
    contiguous_strides,
    identity_index_map,
    index_map_depends_on,
    index_map_through_node,
    is_index_map_view,
    is_node_view_of_memory,
    operands_interleaved_in_memory,
    pointwise_index_maps,
    running_operand_dtypes_of_reduction,
    shifted_operand_windows,
)
from ..ops.table import OPS
from ..targets.target import Target
from .gathers import GatherErrorReports, lower_gather

LoweredNest = tuple[PlacedLoopNest, list[OperandAccess], tuple[Argument, ...]]  # and its arguments behind the sizes


class LoopNestLowering:
    """Emits one kernel over one domain."""

    def __init__(
        self, builder: KernelGroupLowering, domain: IterationDomain, split: tuple[int, int, int, int] | None = None
    ) -> None:
        self.b, self.domain, self.split = builder, domain, split
        self.graph = builder.graph
        self.body = KernelBody()
        self.accesses: list[OperandAccess] = []
        self.operand_of: dict[tuple[int, Map], int] = {}
        self.scalars: list[DType] = []
        self.extra: list[Argument] = []
        self.scalar_of: dict[int, int] = {}
        self.indexed: set[int] = set()
        self.flops = 0.0
        self.points: dict[tuple[int, Map], KernelValue] = {}  # values that POINT phases made
        self.finished: dict[int, list[tuple[int, int]]] = {}  # reduce node -> (phase, reduction) of each running value

    # the three shapes of kernel

    def lower_whole_group(self) -> LoweredNest:
        """All of the group in one kernel."""
        b = self.b
        row_stores = b.stores_of_each_iteration()
        last = max([b.level[n] for n in b.need] + [0])
        for level in range(last + 1):
            self._emit_point_values(level)
            reductions = b.reductions_of_level(level)
            stores = [n for n in row_stores if b.level[n] == level]
            if reductions or stores or b.sums_of_level(level):
                self._emit_reduction_loop(level, reductions, stores)
        return self._finish_nest("")

    def lower_partial_reduction(self, partials: Sequence[BufferLocation]) -> LoweredNest:
        """Only the loop; its results go to `partials`."""
        assert self.split is not None
        _, part, first, _ = self.split
        self._emit_point_values(0)
        self._emit_reduction_loop(0, self.b.reductions_of_level(0), self.b.stores_of_each_iteration())
        self.body.begin_phase(POINT)
        running = [r for n in self.b.reductions_of_level(0) for r in self._loop_results(n)]
        for value, place in zip(running, partials, strict=True):
            offset = place.offset + first * place.strides[0]
            strides = dict(zip([part, *self.domain.parallel[1:]], place.strides, strict=True))
            self.body.store(self.operand(value.dtype, "out", place, offset, strides), value)
        self.body.end_phase()
        return self._finish_nest(f"_part{'' if first == 0 else '_rest'}")

    def lower_combination_of_partials(self, partials: Sequence[BufferLocation]) -> LoweredNest:
        """The reduction of `partials` over the part axis, then all that follows."""
        b = self.b
        (part,) = self.domain.reduced
        b_reduced = b.reductions_of_level(0)
        self._emit_point_values(0)
        phase = self.body.begin_phase(LOOP)
        found: list[Reduction] = []
        remaining = list(partials)
        for number in b_reduced:
            values = []
            for dtype in running_operand_dtypes_of_reduction(self.graph, number):
                place = remaining.pop(0)
                strides = dict(zip([part, *self.domain.parallel], place.strides, strict=True))
                value = self.body.load(self.operand(dtype, "in", place, place.offset, strides), dtype)
                # The sum of a few sums adds no error of its own.
                exact = self.graph.nodes[number].op == "sum" and dtype == FLOAT32
                values.append(value.cast(FLOAT64) if exact else value)
            self._add_reduction(number, values, phase, found)
        self.body.end_phase(found)
        self._emit_point_values(1)
        return self._finish_nest("_combine")

    # phases

    def _emit_point_values(self, level: int) -> None:
        """All values of this level that do not depend on the reduced axes, and their stores."""
        b = self.b
        at_level = [n for n in sorted(b.need, key=self._place_in_phase) if b.level[n] == level]
        wanted = [(n, m) for n in at_level for m in b.need[n] if not index_map_depends_on(m, b.reduced)]
        if not wanted:
            return
        self.body.begin_phase(POINT)
        for n, m in wanted:
            self.points[n, m] = self._emit_value(n, m, self.points)
        for n in b.group.stores:
            m = b.stored_at[n]
            if b.level[n] == level and not index_map_depends_on(m, b.reduced):
                self._emit_store(n, m, self.points[n, m])
        self.body.end_phase()

    def _emit_reduction_loop(self, level: int, reductions: Sequence[int], stores: Sequence[int]) -> None:
        """One sweep over the reduced axes: what the reductions and the stores need, evaluated at each iteration."""
        b = self.b
        phase = self.body.begin_phase(LOOP)
        roots = [(self.graph.nodes[r].args[0], identity_index_map(b.group.domain)) for r in reductions]
        roots += [(n, b.stored_at[n]) for n in stores]
        roots += [(self.graph.nodes[r].args[0], identity_index_map(b.group.domain)) for r in b.sums_of_level(level)]
        values = dict(self.points)
        for n, m in self._axis_dependent_closure(roots):
            values[n, m] = self._emit_value(n, m, values)
        for n in stores:
            self._emit_store(n, b.stored_at[n], values[n, b.stored_at[n]])
        for r in b.sums_of_level(level):
            self._emit_sum(r, values[self.graph.nodes[r].args[0], identity_index_map(b.group.domain)])
        found: list[Reduction] = []
        for r in reductions:
            node = self.graph.nodes[r]
            source = values[node.args[0], identity_index_map(b.group.domain)]
            self._add_reduction(r, self._accumulated_values(r, source), phase, found)
        self.body.end_phase(found)

    def _axis_dependent_closure(self, roots: Sequence[tuple[int, Map]]) -> list[tuple[int, Map]]:
        """Everything that depends on the reduced axes below the roots, arguments first."""
        b, found, todo = self.b, set(roots), list(roots)
        while todo:
            number, m = todo.pop()
            if number not in b.inline:
                continue
            node = self.graph.nodes[number]
            for arg in pointwise_index_maps(node):
                key = (arg, index_map_through_node(node, self.graph.nodes[arg].type, m))
                if key not in found and index_map_depends_on(key[1], b.reduced):
                    found.add(key)
                    todo.append(key)
        below = [k for k in found if index_map_depends_on(k[1], b.reduced) or k not in self.points]
        return sorted(below, key=lambda k: (self._place_in_phase(k[0]), k[1]))

    def _place_in_phase(self, number: int) -> tuple[bool, int]:
        """Constants come first, so that kernels are the same wherever the graph makes them."""
        return self.graph.nodes[number].op != "const", number

    # values

    def _emit_value(self, number: int, m: Map, values: dict[tuple[int, Map], KernelValue]) -> KernelValue:
        node = self.graph.nodes[number]
        dtype = node.dtype
        if node.op == "const":
            return self.body.literal(np.frombuffer(node.attr("value"), dtype)[0], dtype)
        if node.op == "number":
            return self._emit_scalar(node.attr("index"), dtype)
        if node.op == "index":
            return self._emit_index_entry(m[node.attr("axis")])
        if number not in self.b.inline:
            return self._emit_load(number, m)
        kind = node.kind
        if kind == "reduce":
            return self._finished_reduction(number)
        args = [
            values[a, index_map_through_node(node, self.graph.nodes[a].type, m)] for a in pointwise_index_maps(node)
        ]
        if kind == "view":
            return args[0]
        if kind == "gather":
            self.flops += OPS[node.op].cost * self._evaluation_count(m)
            return lower_gather(self, number, node, m, args)
        self.flops += OPS[node.op].cost * self._evaluation_count(m)
        if node.op == "cast":
            return self.body.cast(args[0], dtype)
        return self.body.apply(OPS[node.op], args, dtype, dict(node.attrs))

    def _evaluation_count(self, m: Map) -> int:
        """How often a value at this map is computed, if what does not move is hoisted."""
        moving = [a for a, _, _ in m if a >= 0]
        return math.prod(self.domain.sizes[a] for a in moving) if moving else 1

    def _emit_index_entry(self, entry: tuple[int, int, int]) -> KernelValue:
        axis, step, start = entry
        if axis < 0:
            return self.body.literal(start, INT64)
        value = self._axis_index(axis)
        value = value * self.body.literal(step, INT64) if step != 1 else value
        return value + self.body.literal(start, INT64) if start else value

    def _axis_index(self, axis: int) -> KernelValue:
        """The index along a domain axis; in a split kernel, along the whole axis that was cut into parts."""
        self.indexed.add(axis)
        value = self.body.index(axis)
        if self.split is None or axis != self.split[0]:
            return value
        _, part, first, length = self.split
        self.indexed.add(part)
        base = self.run_time_scalar(first * length)
        return (self.body.index(part) * self.run_time_scalar(length) + base) + value

    def run_time_scalar(self, value: int) -> KernelValue:
        self.scalars.append(INT64)
        self.extra.append(Int(value))
        return self.body.scalar(len(self.scalars) - 1, INT64)

    def _emit_scalar(self, index: int, dtype: DType) -> KernelValue:
        number = self.scalar_of.get(index)
        if number is None:
            number = self.scalar_of[index] = len(self.scalars)
            self.scalars.append(dtype)
            self.extra.append(Scalar(index, dtype_name(dtype)))
        return self.body.scalar(number, dtype)

    def _emit_load(self, number: int, m: Map) -> KernelValue:
        dtype = self.graph.nodes[number].dtype
        key = (number, m)
        if key not in self.operand_of:
            place = self.b.places[number]
            offset = place.offset + sum(start * s for (_, _, start), s in zip(m, place.strides, strict=True))
            strides: dict[int, int] = {}
            for (axis, step, _), stride in zip(m, place.strides, strict=True):
                if axis >= 0:
                    strides[axis] = strides.get(axis, 0) + step * stride
            offset += self.divide_strides_of_split_axis(strides)
            operand = self.operand(dtype, "in", place, offset, strides)
            self.accesses[operand].source = key
            self.operand_of[key] = self._one_operand_for_place(operand)
        return self.body.load(self.operand_of[key], dtype)

    def divide_strides_of_split_axis(self, strides: dict[int, int]) -> int:
        """In a split kernel: the strides along the parts of the axis that was cut are added; where they start."""
        if self.split is None or self.split[0] not in strides:
            return 0
        axis, part, first, length = self.split
        strides[part] = strides[axis] * length
        return first * strides[part]

    def _emit_store(self, number: int, m: Map, value: KernelValue) -> None:
        place = self.b.places[number]
        strides = {axis: s for (axis, _, _), s in zip(m, place.strides, strict=True) if axis >= 0}
        operand = self.operand(
            value.dtype, "out", place, place.offset + self.divide_strides_of_split_axis(strides), strides
        )
        kept = self._one_operand_for_place(operand)
        if kept != operand:
            self.accesses[kept].role = "inout"  # in place: one parameter, never two equal pointers
        self.body.store(kept, value)

    def _emit_sum(self, number: int, value: KernelValue) -> None:
        """Add to what a block has of a sum over its rows."""
        (place,) = self.b.partials[number]
        (axis,) = (a for a in self.domain.reduced if self.domain.sizes[a] != 1)
        operand = self.operand(FLOAT32, "sum", place, place.offset, {axis: place.strides[-1]})
        nbytes = self.b.buffers[place.buffer].nbytes
        self.accesses[operand].region = Region(place.buffer, 0, (nbytes // 4,), (4,), 4, dtype_name(FLOAT32))
        self.body.store(operand, value.cast(FLOAT32))

    def _one_operand_for_place(self, new: int) -> int:
        """An earlier operand that lies where the last one does, instead of it."""
        last = self.accesses[new]
        place = last.place.buffer, last.offset, last.strides
        for earlier, access in enumerate(self.accesses[:new]):
            same = (access.place.buffer, access.offset, access.strides) == place
            if same and (last.role == "out" or access.region == last.region):
                self.accesses.pop()
                return earlier
        return new

    def operand(self, dtype: DType, role: str, place: BufferLocation, offset: int, strides: dict[int, int]) -> int:
        axes = [*self.domain.parallel, *self.domain.reduced]
        moving = [a for a in axes if strides.get(a, 0) != 0 and self.domain.sizes[a] != 1]
        shape = tuple(self.domain.sizes[a] for a in moving)
        region = Region(
            place.buffer, offset, shape, tuple(strides[a] for a in moving), dtype.itemsize, dtype_name(dtype)
        )
        every = [0] * (max(axes, default=-1) + 1)
        for axis, stride in strides.items():
            every[axis] = stride
        self.accesses.append(OperandAccess(dtype, role, place, offset, every, region))
        return len(self.accesses) - 1

    def looked_up_operand(
        self,
        dtype: DType,
        place: BufferLocation,
        offset: int,
        strides: dict[int, int],
        steps: Sequence[int],
        region: Region,
    ) -> int:
        """An operand that is read at indices which step by so many bytes."""
        operand = self.operand(dtype, "in", place, offset, strides)
        access = self.accesses[operand]
        access.region = region
        access.place = replace(place, aligned=place.aligned and all(step % ALIGNMENT == 0 for step in steps))
        return operand

    # reductions

    def _accumulated_values(self, number: int, source: KernelValue) -> list[KernelValue]:
        """The values that a reduction accumulates, from the element it takes."""
        dtypes = running_operand_dtypes_of_reduction(self.graph, number)
        if source.dtype.kind == "c":
            return list(source.parts)
        value = source.cast(dtypes[0])
        if len(dtypes) == 1:
            return [value]
        flat: KernelValue | None = None
        for axis in self.b.group.reduced:
            if self.b.group.domain[axis] == 1:
                continue
            index = self._axis_index(axis)
            if flat is not None:
                index = flat * self.body.size(axis) + index
            flat = index
        return [value, self.body.const(0, INT64) if flat is None else flat]

    def _add_reduction(self, number: int, values: list[KernelValue], phase: int, reductions: list[Reduction]) -> None:
        combine = self.graph.nodes[number].op
        if COMBINERS[combine].carries_index:
            numbers = tuple(v.numbers[0] for v in values)
            self.finished[number] = [(phase, len(reductions))]
            reductions.append(Reduction(combine, values[0].dtype, numbers))
            return
        self.finished[number] = []
        for value in values:
            self.finished[number].append((phase, len(reductions)))
            reductions.append(Reduction(combine, value.dtype, value.numbers))
        self.flops += 2.0 * math.prod(self.domain.sizes[a] for a in (*self.domain.parallel, *self.domain.reduced))

    def _loop_results(self, number: int) -> list[KernelValue]:
        """The running values at the end of the loop."""
        where = self.finished[number]
        if COMBINERS[self.graph.nodes[number].op].carries_index:
            return [self.body.result(*where[0], part) for part in (0, 1)]
        return [self.body.result(*w) for w in where]

    def _finished_reduction(self, number: int) -> KernelValue:
        results, dtype = self._loop_results(number), self.graph.nodes[number].dtype
        if COMBINERS[self.graph.nodes[number].op].carries_index:
            return results[1].cast(dtype)
        return (self.body.pair(*results) if len(results) == 2 else results[0]).cast(dtype)

    # the finished form

    def _finish_nest(self, suffix: str) -> LoweredNest:
        phases = self._lifted_phases()
        loops = sum(p.kind == LOOP for p in phases)
        parallel = self._collapse_axes(self.domain.parallel) or [[]]
        reduced = (self._collapse_axes(self.domain.reduced) or [[]]) if loops else []
        axes = [*parallel, *reduced]
        number = {a: i for i, group in enumerate(axes) for a in group}
        sizes = tuple(math.prod(self.domain.sizes[a] for a in group) for group in axes)
        phases = tuple(_renumber_axes_of_lowered_phase(p, number) for p in phases)
        ints, target, row = [Int(n) for n in sizes], self.b.target, sizes[len(parallel) :]
        operands, reaches = [], [math.prod(sizes[: len(parallel)]), math.prod(row)]
        for access in self.accesses:
            operand, elements = self._operand_of_access(access, axes, sizes, len(parallel) - 1)
            operands.append(operand)
            ints += [Int(n) for n, layout in zip(elements, operand.layout, strict=True) if layout == "s"]
            reach = sum(abs(n) * size for n, size in zip(elements, sizes, strict=True))
            reaches.append(reach * (1 + (access.dtype.kind == "c")))
        points = math.prod(sizes) or 1
        windows, vector = self._shifted_windows(axes, row, loops)
        width = target.width(row, max(a.dtype.itemsize for a in self.accesses), self.flops / points, loops > 1)
        form = LoopNest(
            "",
            len(parallel),
            len(reduced),
            tuple(operands),
            tuple(self.scalars),
            phases,
            64 if max(reaches) > LIMIT_32 else 32,
            width,
            self.b.fastmath,
            windows,
            vector,
            bool(windows) and points >= target.windows,
            operands_interleaved_in_memory(self.accesses, parallel[-1], phases) if target.zips else (),
            self._are_rows_short(phases, sizes[: len(parallel)], row, operands),
            self.b.rows_of_block() if self.b.group.sums else 0,
        )
        digest = hashlib.sha256(str(form).encode()).hexdigest()[:16]
        form = replace(form, name=f"k_{digest}")
        return PlacedLoopNest(form, sizes, tuple(ints), self.flops, suffix), self.accesses, tuple(self.extra)

    def _are_rows_short(
        self, phases: Sequence[Phase], parallel: Sequence[int], reduced: Sequence[int], operands: Sequence[Operand]
    ) -> bool:
        """The size class of a nest with axes of these lengths."""
        found = [r for phase in phases for r in phase.reductions]
        target = self.b.target
        if not found:
            layouts = zip(*(operand.layout for operand in operands), strict=True)
            turned = [n for n, layout in zip(parallel, layouts, strict=False) if "1" in layout]
            return len(turned) > 1 and min(turned) < target.narrow
        indexed = any(r.combiner.carries_index for r in found)
        return target.short is not None and target.short(parallel, reduced, indexed)

    def _lifted_phases(self) -> tuple[Phase, ...]:
        """The phases with their constants as scalars."""
        phases, literals = lift_constants_of_loop_nest(self.body.finish(), self.body.fixed_literals, len(self.scalars))
        self.b.depends_on_constants |= bool(self.body.fixed_literals)
        self.scalars += [literal.dtype for literal in literals]
        self.extra += [Constant(literal.attr, dtype_name(literal.dtype)) for literal in literals]
        return phases

    def _shifted_windows(
        self, axes: Sequence[Sequence[int]], row: Sequence[int], loops: int
    ) -> tuple[tuple[Window, ...], int]:
        """The windows of a kernel that sweeps, and its vector. row: the lengths of reduced axes."""
        sweeps = not loops or (math.prod(row) >= SWEPT_ELEMENTS and loops == 1)
        found = self.b.target.windows and sweeps
        return shifted_operand_windows(self.accesses, axes, self.domain.sizes) if found else ((), 1)

    def _operand_of_access(
        self, access: OperandAccess, axes: Sequence[Sequence[int]], sizes: Sequence[int], last: int
    ) -> tuple[Operand, list[int]]:
        """How a kernel walks an operand, and by how many elements along each axis. last: of the parallel ones."""
        itemsize = access.dtype.itemsize
        strides = [_stride_of_lowered_operand(access, group[-1]) if group else 0 for group in axes]
        elements = [stride // itemsize for stride in strides]
        layout = ["1" if n == 1 else "s" if n else "0" for n in elements]
        if access.role == "out" and not axes[last]:
            layout[last] = "1"
        aligned = access.place.aligned and access.offset % ALIGNMENT == 0
        aligned = aligned and are_operand_elements_aligned(itemsize, zip(sizes, strides, strict=True))
        return Operand(access.dtype, access.role, "".join(layout), aligned or not self.b.target.aligns), elements

    def _collapse_axes(self, axes: Sequence[int]) -> list[list[int]]:
        """Neighbouring axes that every operand walks as one become one; axes of length 1 vanish."""
        groups: list[list[int]] = []
        for axis in axes:
            if self.domain.sizes[axis] == 1 and axis not in self.indexed:
                continue
            if groups and axis not in self.indexed and not any(a in self.indexed for a in groups[-1]):
                last = groups[-1][-1]
                if all(
                    _stride_of_lowered_operand(a, last) == _stride_of_lowered_operand(a, axis) * self.domain.sizes[axis]
                    for a in self.accesses
                ):
                    groups[-1].append(axis)
                    continue
            groups.append([axis])
        return groups


def _stride_of_lowered_operand(access: OperandAccess, axis: int) -> int:
    return access.strides[axis] if axis < len(access.strides) else 0


def _renumber_axes_of_lowered_phase(phase: Phase, number: dict[int, int]) -> Phase:
    """index and size speak of the kernel's axes, not the domain's."""
    instrs = tuple(replace(i, attr=number[i.attr]) if i.op in ("index", "size") else i for i in phase.instrs)
    return replace(phase, instrs=instrs)


ALIGNED = 16  # elements


@dataclass(slots=True)
class KernelGroupLowering:
    """Builds the one or two kernels of a group."""

    graph: Graph
    group: Group
    places: dict[int, BufferLocation]
    fastmath: bool
    target: Target
    need: dict[int, dict[Map, None]] = field(default_factory=dict)
    inline: set[int] = field(default_factory=set)  # computed here from their arguments; others are loaded, or sources
    stored_at: dict[int, Map] = field(default_factory=dict)
    level: dict[int, int] = field(default_factory=dict)
    reduced: frozenset[int] = frozenset()
    inside: frozenset[int] = frozenset()
    buffers: list[Buffer] = field(default_factory=list)
    depends_on_constants: bool = False  # whether its kernels depend on the values of constants
    reports: GatherErrorReports | None = None  # of what lookups there are
    partials: dict[int, list[BufferLocation]] = field(default_factory=dict)  # of reductions that a group has begun

    def lowered_nests(self, buffers: list[Buffer]) -> Iterator[LoweredNest]:
        """Each kernel: its form and sizes, its operands, and the arguments that follow the sizes and strides."""
        self.buffers = buffers
        self._collect_evaluations()
        rows = math.prod(n for i, n in enumerate(self.group.domain) if i not in self.reduced)
        if begun := [place for n in self.reductions_of_level(0) for place in self.partials.get(n, ())]:
            part = len(self.group.domain)
            sizes = self._iteration_domain().sizes | {part: buffers[begun[0].buffer].nbytes // (rows * 4)}
            combine = replace(self._iteration_domain(), sizes=sizes, reduced=[part])
            yield LoopNestLowering(self, combine).lower_combination_of_partials(begun)
            return
        for number in self.group.sums:
            count, length = -(-rows // self.rows_of_block()), math.prod(self.group.domain) // rows
            strides = contiguous_strides((count, length), FLOAT32.itemsize)
            self.partials[number] = [BufferLocation(len(buffers), 0, strides, True)]
            buffers.append(Buffer(count * strides[0], "temp"))
        split = None if self.group.sums else self._reduction_part_count()
        if split is None:
            yield LoopNestLowering(self, self._iteration_domain()).lower_whole_group()
        else:
            yield from self._build_two_stage_reduction(split, buffers)

    def rows_of_block(self) -> int:
        """How many rows a block has in turn where it begins sums over them."""
        domain = self.group.domain
        length = math.prod(domain[i] for i in self.reduced)
        return rows_of_block(math.prod(domain) // length, length, self.target.model)

    def _iteration_domain(self) -> IterationDomain:
        reduced = list(self.group.reduced)
        rest = [i for i in range(len(self.group.domain)) if i not in reduced]
        return IterationDomain(dict(enumerate(self.group.domain)), rest, reduced)

    # what is evaluated where

    def _collect_evaluations(self) -> None:
        """need[n]: the maps at which the group evaluates node n; level[n]: loops that must be done before it."""
        nodes, domain = self.graph.nodes, self.group.domain
        self.reduced = frozenset(self.group.reduced)
        inside = self.inside = frozenset(self.group.computes)
        for number in self.group.stores:
            self.stored_at[number] = m = self._index_map_of_stored_node(number)
            self.need.setdefault(number, {})[m] = None
        for number in self.group.sums:
            self.need.setdefault(nodes[number].args[0], {})[identity_index_map(domain)] = None
        todo = [-n for n in self.need]  # the last node first: those that use a node come before it
        heapify(todo)

        def add_evaluation(number: int, m: Map) -> None:
            if number not in self.need:
                self.need[number] = {}
                heappush(todo, -number)
            self.need[number][m] = None

        while todo:
            number = -heappop(todo)
            node = nodes[number]
            if is_index_map_view(node):
                if is_node_view_of_memory(node, nodes[node.args[0]].type):
                    continue
            elif number not in inside:
                continue
            self.inline.add(number)
            if node.kind == "reduce":
                add_evaluation(node.args[0], identity_index_map(domain))
                continue
            for m in tuple(self.need[number]):
                for arg in pointwise_index_maps(node):
                    add_evaluation(arg, index_map_through_node(node, nodes[arg].type, m))
        for number in sorted(self.need):
            node = nodes[number]
            below = [self.level[a] for a in pointwise_index_maps(node)] if number in self.inline else []
            step = 1 if number in inside and node.kind == "reduce" else 0
            self.level[number] = max(below, default=0) + step

    def _index_map_of_stored_node(self, number: int) -> Map:
        """Where the domain computes a stored node: once per row, or at every iteration."""
        shape, domain = self.graph.nodes[number].shape, self.group.domain
        full = [i for i, n in enumerate(domain) if n != 1]
        rows = [i for i in full if i not in self.group.reduced]
        moving = [n for n in shape if n != 1]
        axes = iter(rows if [domain[i] for i in rows] == moving else full)
        return tuple((next(axes), 1, 0) if n != 1 else (-1, 0, 0) for n in shape)

    def reductions_of_level(self, level: int) -> list[int]:
        """Reduce nodes that loop `level` completes."""
        return [
            n for n in sorted(self.need) if n in self.inside and self.graph.nodes[n].kind == "reduce"
            and self.level[n] == level + 1
        ]  # fmt: skip

    def sums_of_level(self, level: int) -> list[int]:
        """Sums over rows of what is there in a loop of this level."""
        return [n for n in self.group.sums if self.level[self.graph.nodes[n].args[0]] == level]

    def stores_of_each_iteration(self) -> list[int]:
        """Stored nodes with an element at each iteration."""
        return [n for n in self.group.stores if index_map_depends_on(self.stored_at[n], self.reduced)]

    # two stages

    def _reduction_part_count(self) -> int | None:
        """The number of parts of a reduction that is too long for its few rows; None for one kernel."""
        model, domain = self.target.model, self.group.domain
        if not self.reduced or max(self.level.values()) > 1:
            return None
        if any(self.level[n] for n in self.stores_of_each_iteration()):
            return None
        rows = math.prod(n for i, n in enumerate(domain) if i not in self.reduced)
        length = math.prod(domain[i] for i in self.reduced)
        outer = domain[min(self.reduced)]
        columns = domain[-1] if len(domain) - 1 not in self.reduced else 1
        busy = rows // max(columns, 1) * -(-columns // 128)  # columns are taken in blocks
        # a block of columns waits for memory most of the time: several are to share a processor
        longest, least, blocks = (
            (model.split_length, model.split_length // 16, 2 * model.parallelism)
            if columns == 1
            else (model.column_length - 1, model.column_length // 8, 4 * model.parallelism)
        )
        if rows == 0 or length <= longest or busy >= blocks // 4:
            return None
        chained = self.target.join_tasks and columns == 1 and self._reads_what_tasks_make()
        small = length // longest if chained else 0  # a cache holds what one is made of
        parts = min(max(2, blocks // busy, small), length // least, outer)
        if parts < 2:
            return None
        return (
            _equal_parts_of_group_reduction(outer, parts, model.parallelism) if columns == 1 else parts
        )  # blocks of columns: every multiprocessor has as many

    def _reads_what_tasks_make(self) -> bool:
        """Whether it reads more than the call's own arrays and numbers."""
        nodes = self.graph.nodes
        return any(nodes[a].kind != "source" for n in self.inside for a in nodes[n].args if a not in self.inside)

    def _build_two_stage_reduction(self, parts: int, buffers: list[Buffer]) -> Iterator[LoweredNest]:
        """Partial results of `parts` equal pieces (and a last shorter one), then their reduction and the epilogue."""
        domain = self._iteration_domain()
        axis = domain.reduced[0]
        total = domain.sizes[axis]
        length = total // parts
        if length >= 64:
            length -= length % ALIGNED  # pieces start aligned where rows of the array do
        if self._reads_shifted_rows(axis):  # more parts, of all the rows that threads have
            least = -(-SWEPT_ELEMENTS // math.prod(domain.sizes[a] for a in domain.reduced[1:]))
            length = min(total, max(length // 2 // SWEPT_ROWS, -(-least // SWEPT_ROWS), 1) * SWEPT_ROWS)
            parts = total // length
        elif (
            total - parts * length > length
        ):  # one block would have more to do than all others: as many, or fewer, parts
            length = -(-total // parts)
            length += -length % ALIGNED if length >= 64 else 0
            parts = total // length
        rest = total - parts * length
        count = parts + (rest > 0)
        part = len(self.group.domain)
        rows = tuple(domain.sizes[a] for a in domain.parallel)
        partials: list[BufferLocation] = []
        for dtype in self._partial_dtypes():
            strides = contiguous_strides((count, *rows), dtype.itemsize)
            partials.append(BufferLocation(len(buffers), 0, strides, True))
            buffers.append(Buffer(count * math.prod(rows) * dtype.itemsize, "temp"))
        pieces = [(0, parts, length)] + ([(parts, 1, rest)] if rest else [])
        for first, many, size in pieces:
            sizes = domain.sizes | {axis: size, part: many}
            piece = IterationDomain(sizes, [part, *domain.parallel], domain.reduced)
            yield LoopNestLowering(self, piece, split=(axis, part, first, length)).lower_partial_reduction(partials)
        combine = IterationDomain(domain.sizes | {part: count}, domain.parallel, [part])
        yield LoopNestLowering(self, combine).lower_combination_of_partials(partials)

    def _reads_shifted_rows(self, axis: int) -> bool:
        """Whether arrays are read at several places by threads that have rows along the axis."""
        domain, read = self.group.domain, [maps for n, maps in self.need.items() if n not in self.inside]
        rows = [i for i, n in enumerate(domain) if n != 1][-2:-1] == [axis] and domain[axis] >= 2 * SWEPT_ROWS
        return self.target.windows > 0 and rows and any(len(maps) > 1 for maps in read)

    def _partial_dtypes(self) -> list[DType]:
        found: list[DType] = []
        for number in self.reductions_of_level(0):
            for dtype in running_operand_dtypes_of_reduction(self.graph, number):
                found.append(dtype)
        return found


def _equal_parts_of_group_reduction(total: int, parts: int, most: int) -> int:
    """A few parts less where they are then equal and leave no rest, which would be a launch of its own; or more, up to
    `most`, which fill the machine."""
    fewer, more = range(parts, max(1, 3 * parts // 4), -1), range(parts + 1, min(3 * parts // 2, most))
    equal = (n for n in chain(fewer, more) if not total % n and (total // n < 64 or total // n % ALIGNED == 0))
    return next(equal, parts)
