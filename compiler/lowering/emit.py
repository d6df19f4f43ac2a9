"""Emits one kernel of a group over one domain: phases through the body builder, operands, collapsed axes."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...runtime.core.frozen import replace
from ...runtime.program.program import Argument, Constant, Int, Region, Scalar
from ..core.combiners import COMBINERS
from ..core.types import FLOAT32, FLOAT64, INT64, DType
from ..kernel.body_builder import KernelBody, KernelValue, lift_kernel_constants
from ..kernel.loop_nest import LIMIT_32, LOOP, POINT, LoopNest, Operand, Phase, Reduction
from ..layout.index_maps import Map, depends_on_axes, identity_index_map, map_through_node, pointwise_index_maps
from ..layout.operands import (
    ALIGNMENT,
    BufferLocation,
    IterationDomain,
    OperandAccess,
    PlacedLoopNest,
    interleaved_outputs,
    reduction_dtypes,
    stays_aligned,
    stencil_windows,
)
from ..ops.table import OPS
from .gathers import lower_gather

if TYPE_CHECKING:
    from .kernels import KernelGroupLowering


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

    def lower_whole_group(self) -> tuple[PlacedLoopNest, list[OperandAccess], tuple[Argument, ...]]:
        """All of the group in one kernel."""
        b = self.b
        row_stores = b.stores_of_each_iteration()
        last = max([b.level[n] for n in b.need] + [0])
        for level in range(last + 1):
            self._emit_point_values(level)
            reductions = b.reductions_of_level(level)
            stores = [n for n in row_stores if b.level[n] == level]
            if reductions or stores:
                self._emit_reduction_loop(level, reductions, stores)
        return self._finish_nest("")

    def lower_partial_reduction(
        self, partials: Sequence[BufferLocation]
    ) -> tuple[PlacedLoopNest, list[OperandAccess], tuple[Argument, ...]]:
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

    def lower_combination_of_partials(
        self, partials: Sequence[BufferLocation]
    ) -> tuple[PlacedLoopNest, list[OperandAccess], tuple[Argument, ...]]:
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
            for dtype in reduction_dtypes(self.graph, number):
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
        at_level = [n for n in sorted(b.need) if b.level[n] == level]
        wanted = [(n, m) for n in at_level for m in b.need[n] if not depends_on_axes(m, b.reduced)]
        if not wanted:
            return
        self.body.begin_phase(POINT)
        for n, m in wanted:
            self.points[n, m] = self._emit_value(n, m, self.points)
        for n in b.group.stores:
            m = b.index_map_of_stored_node(n)
            if b.level[n] == level and not depends_on_axes(m, b.reduced):
                self._emit_store(n, m, self.points[n, m])
        self.body.end_phase()

    def _emit_reduction_loop(self, level: int, reductions: Sequence[int], stores: Sequence[int]) -> None:
        """One sweep over the reduced axes: what the reductions and the stores need, evaluated at each iteration."""
        b = self.b
        phase = self.body.begin_phase(LOOP)
        roots = [(self.graph.nodes[r].args[0], identity_index_map(b.group.domain)) for r in reductions]
        roots += [(n, b.index_map_of_stored_node(n)) for n in stores]
        values = dict(self.points)
        for n, m in self._axis_dependent_closure(roots):
            values[n, m] = self._emit_value(n, m, values)
        for n in stores:
            self._emit_store(n, b.index_map_of_stored_node(n), values[n, b.index_map_of_stored_node(n)])
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
            if not b.is_evaluated_inline(number, b.inside):
                continue
            node = self.graph.nodes[number]
            for arg in pointwise_index_maps(node):
                key = (arg, map_through_node(node, self.graph.nodes[arg].type, m))
                if key not in found and depends_on_axes(key[1], b.reduced):
                    found.add(key)
                    todo.append(key)
        return sorted(k for k in found if depends_on_axes(k[1], b.reduced) or k not in self.points)

    # values

    def _emit_value(self, number: int, m: Map, values: dict[tuple[int, Map], KernelValue]) -> KernelValue:
        node = self.graph.nodes[number]
        dtype = node.type.dtype
        if node.op == "const":
            return self.body.literal(np.frombuffer(node.attr("value"), dtype)[0], dtype)
        if node.op == "number":
            return self._emit_scalar(node.attr("index"), dtype)
        if node.op == "index":
            return self._emit_index_entry(m[node.attr("axis")])
        if not self.b.is_evaluated_inline(number, self.b.inside):
            return self._emit_load(number, m)
        kind = OPS[node.op].kind
        if kind == "reduce":
            return self._finished_reduction(number)
        args = [values[a, map_through_node(node, self.graph.nodes[a].type, m)] for a in pointwise_index_maps(node)]
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
            self.extra.append(Scalar(index, dtype.name))
        return self.body.scalar(number, dtype)

    def _emit_load(self, number: int, m: Map) -> KernelValue:
        dtype = self.graph.nodes[number].type.dtype
        key = (number, m)
        if key not in self.operand_of:
            place = self.b.places[number]
            offset = place.offset + sum(start * s for (_, _, start), s in zip(m, place.strides, strict=True))
            strides: dict[int, int] = {}
            for (axis, step, _), stride in zip(m, place.strides, strict=True):
                if axis >= 0:
                    strides[axis] = strides.get(axis, 0) + step * stride
            offset += self.divide_strides_of_split_axis(strides)
            self.operand_of[key] = self.operand(dtype, "in", place, offset, strides)
            self.accesses[-1].source = key
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
        new = self.accesses[operand]
        for earlier, access in enumerate(self.accesses[:operand]):
            if (access.place.buffer, access.offset, access.strides) == (place.buffer, new.offset, new.strides):
                access.role = "inout"  # in place: one parameter, never two equal pointers
                self.accesses.pop()
                operand = earlier
        self.body.store(operand, value)

    def operand(self, dtype: DType, role: str, place: BufferLocation, offset: int, strides: dict[int, int]) -> int:
        axes = [*self.domain.parallel, *self.domain.reduced]
        moving = [a for a in axes if strides.get(a, 0) != 0 and self.domain.sizes[a] != 1]
        shape = tuple(self.domain.sizes[a] for a in moving)
        region = Region(place.buffer, offset, shape, tuple(strides[a] for a in moving), dtype.itemsize, dtype.name)
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
        dtypes = reduction_dtypes(self.graph, number)
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

    def _add_reduction(self, number: int, values: list[KernelValue], phase: int, found: list[Reduction]) -> None:
        combine = self.graph.nodes[number].op
        if COMBINERS[combine].carries_index:
            numbers = tuple(v.numbers[0] for v in values)
            self.finished[number] = [(phase, len(found))]
            found.append(Reduction(combine, values[0].dtype, numbers))
            return
        self.finished[number] = []
        for value in values:
            self.finished[number].append((phase, len(found)))
            found.append(Reduction(combine, value.dtype, value.numbers))
        self.flops += 2.0 * math.prod(self.domain.sizes[a] for a in (*self.domain.parallel, *self.domain.reduced))

    def _loop_results(self, number: int) -> list[KernelValue]:
        """The running values at the end of the loop."""
        where = self.finished[number]
        if COMBINERS[self.graph.nodes[number].op].carries_index:
            return [self.body.result(*where[0], part) for part in (0, 1)]
        return [self.body.result(*w) for w in where]

    def _finished_reduction(self, number: int) -> KernelValue:
        results, dtype = self._loop_results(number), self.graph.nodes[number].type.dtype
        if COMBINERS[self.graph.nodes[number].op].carries_index:
            return results[1].cast(dtype)
        return (self.body.pair(*results) if len(results) == 2 else results[0]).cast(dtype)

    # the finished form

    def _finish_nest(self, suffix: str) -> tuple[PlacedLoopNest, list[OperandAccess], tuple[Argument, ...]]:
        phases, literals = lift_kernel_constants(self.body.finish(), self.body.asked, len(self.scalars))
        self.b.depends_on_constants |= bool(self.body.asked)
        self.scalars += [literal.dtype for literal in literals]
        self.extra += [Constant(literal.attr, literal.dtype.name) for literal in literals]
        parallel = self._collapse_axes(self.domain.parallel)
        reduced = self._collapse_axes(self.domain.reduced) if any(p.kind == LOOP for p in phases) else []
        parallel = parallel or [[]]
        if any(p.kind == LOOP for p in phases):
            reduced = reduced or [[]]
        axes = [*parallel, *reduced]
        number = {a: i for i, group in enumerate(axes) for a in group}
        sizes = tuple(math.prod(self.domain.sizes[a] for a in group) for group in axes)
        phases = tuple(_renumber_axes_of_lowered_phase(p, number) for p in phases)
        operands, ints, target = [], [Int(n) for n in sizes], self.b.target
        wide = any(n > LIMIT_32 for n in (math.prod(sizes[: len(parallel)]), math.prod(sizes[len(parallel) :])))
        for access in self.accesses:
            layout, reach, strides = "", 0, []
            for i, group in enumerate(axes):
                strides.append(access.strides[group[-1]] if group and group[-1] < len(access.strides) else 0)
                elements = strides[i] // access.dtype.itemsize
                alone = not group and access.role == "out" and i == len(parallel) - 1
                reach += abs(elements) * sizes[i] * (1 + (access.dtype.kind == "c"))
                layout += "0" if elements == 0 and not alone else "1" if elements == 1 or alone else "s"
                if layout[-1] == "s":
                    ints.append(Int(elements))
            aligned = access.place.aligned and access.offset % ALIGNMENT == 0
            aligned = aligned and stays_aligned(access.dtype.itemsize, zip(sizes, strides, strict=True))
            wide = wide or reach > LIMIT_32
            operands.append(Operand(access.dtype, access.role, layout, aligned or not target.aligns))
        points = math.prod(sizes) or 1
        windows, vector = (
            stencil_windows(self.accesses, parallel, self.domain.sizes) if target.windows and not reduced else ((), 1)
        )
        width = target.width(sizes[len(parallel) :], max(a.dtype.itemsize for a in self.accesses), self.flops / points)
        form = LoopNest(
            "",
            len(parallel),
            len(reduced),
            tuple(operands),
            tuple(self.scalars),
            phases,
            64 if wide else 32,
            width,
            self.b.fastmath,
            windows,
            vector,
            bool(windows) and points >= target.windows,
            interleaved_outputs(self.accesses, parallel[-1], phases) if target.zips else (),
        )
        digest = hashlib.sha256(str(form).encode()).hexdigest()[:16]
        form = replace(form, name=f"k_{digest}")
        return PlacedLoopNest(form, sizes, tuple(ints), self.flops, suffix), self.accesses, tuple(self.extra)

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
