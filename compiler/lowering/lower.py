"""Groups -> Program: buffers for stored nodes, tasks for groups. A kernel group becomes one or two tasks."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import TypeAlias

from ...runtime.core.frozen import dataclass, field, replace
from ...runtime.program.program import Buffer, Library, Program, Region, Task, union_bytes_of_regions
from ...runtime.program.user_function import UserFunction
from ..core.cost import HALF_SPEED, TF32_SPEED
from ..core.types import HALVES, ArrayType
from ..fusion.groups import Fusion, Group
from ..graph.builder import exact_node_attrs
from ..graph.graph import Graph, Node, joined_user_lines
from ..graph.precision import PRECISIONS, precision_of_attrs
from ..layout.operands import (
    ALIGNMENT,
    BufferLocation,
    StridedBufferArray,
    contiguous_strides,
    reshape_strides,
    strides_of_memory_view_node,
)
from ..ops.table import OPS
from ..passes.materialize import MemoryLayout, materialized_regions_of_assembly
from ..targets.target import Target
from .control_flow import PlanBody, lower_control_flow, refuse_to_lower_loop_body
from .custom_kernels import lower_custom_kernel_node
from .equal_groups import EqualGroupsLowering
from .kernels import KernelGroupLowering
from .sequential import lower_sequential_node, reads_before_routine_writes, source_of_routine_result

Replaced: TypeAlias = Sequence[tuple[int, int]]  # outputs that take an input's place in its memory: both their numbers

MAY_FAIL = frozenset({"host", "kernel", "gather", "loop", "branch"})  # with any, a call is done whole or not at all
MEMORY_LINE = 64  # bytes that memory moves for one element, at most
HOST_CALL = 5.0  # microseconds to hand a step to Python
_OWN_NODES = {"kernel": lower_custom_kernel_node, "sequential": lower_sequential_node}  # by op


def lower_to_program(
    graph: Graph,
    fusion: Fusion,
    layouts: Sequence[MemoryLayout],
    target: Target,
    fastmath: bool = False,
    plan_body: PlanBody = refuse_to_lower_loop_body,
    loose: frozenset[int] = frozenset(),
    replaced: Replaced = (),
) -> Program:
    """The program of a graph that `materialize` prepared and `fuse` covered. plan_body: makes plans of loops' bodies.
    loose: the outputs whose memory need not be aligned to 16 bytes. replaced: what outputs may be written over."""
    return _ProgramLowering(graph, fusion, layouts, target, fastmath, plan_body, loose, replaced).run()


@dataclass(slots=True)
class _ProgramLowering:
    graph: Graph
    fusion: Fusion
    layouts: Sequence[MemoryLayout]
    target: Target
    fastmath: bool
    plan_body: PlanBody
    loose: frozenset[int]
    replaced: Replaced
    equal: EqualGroupsLowering | None = None  # of several groups
    gathers: set[int] = field(default_factory=set)
    partials: dict[int, list[BufferLocation]] = field(default_factory=dict)  # of reductions that a group has begun
    called: set[int] = field(default_factory=set)  # calls with several results that are done: their first part

    def run(self) -> Program:
        home = _NodeBufferLocations(
            self.graph, self.layouts, {n for g in self.fusion.groups for n in g.stores}, self.loose, self.replaced
        )
        places, buffers = home.places, home.buffers
        if sum(group.kind == "kernel" for group in self.fusion.groups) > 1:
            self.equal = EqualGroupsLowering(self.graph, places, self._lower_group)
        self.gathers.update(number for number, node in enumerate(self.graph.nodes) if node.op == "gather")
        tasks: list[Task] = []
        for group in self.fusion.groups:
            if group.kind == "assembly":
                continue
            lower = self._lower_kernel_group if group.kind == "kernel" else self._lower_library_group
            nodes = group.computes or group.stores
            made = lower(group, places, buffers)
            tasks += [task if task.nodes == nodes else replace(task, nodes=nodes) for task in made]
        dtypes = tuple(self.graph.nodes[n].dtype.name for n in self.graph.numbers)
        return Program(
            tuple(buffers),
            tuple(t for t in tasks if not t.writes or any(0 not in w.shape for w in t.writes)),
            tuple(range(len(self.graph.inputs))),
            tuple(places[o].buffer for o in self.graph.outputs),
            dtypes,
            self.target.name,
            self.graph.name,
        )

    def _user_lines_of_nodes(self, nodes: Sequence[int]) -> str:
        """The user's lines that made the nodes, each once."""
        lines = [self.graph.lines[n] for n in nodes] if self.graph.lines else []
        return joined_user_lines(lines)

    def _lower_kernel_group(self, group: Group, places: dict[int, BufferLocation], buffers: list[Buffer]) -> list[Task]:
        line = self._user_lines_of_nodes(group.computes)
        begun = group.sums or not self.partials.keys().isdisjoint(group.computes)
        if self.equal is None or begun or not self.gathers.isdisjoint(group.computes):
            tasks, builder = self._kernel_tasks(self.graph, group, places, buffers, line)
            return (
                tasks
                if builder.reports is None
                else builder.reports.wrap_tasks_with_report_checks(tasks, self.target, line)
            )
        return self.equal.tasks_of(group, buffers, line)

    def _lower_group(
        self, graph: Graph, group: Group, places: dict[int, BufferLocation], buffers: list[Buffer]
    ) -> tuple[list[Task], bool]:
        tasks, builder = self._kernel_tasks(graph, group, places, buffers, "")
        return tasks, builder.depends_on_constants

    def _kernel_tasks(
        self, graph: Graph, group: Group, places: dict[int, BufferLocation], buffers: list[Buffer], line: str
    ) -> tuple[list[Task], KernelGroupLowering]:
        builder = KernelGroupLowering(graph, group, places, self.fastmath, self.target, partials=self.partials)
        model = self.target.model
        tasks = []
        for nest, accesses, extra in builder.lowered_nests(buffers):
            sizes = nest.sizes
            printed = self.target
            kernel = printed.kernel(nest.form)
            launch = printed.launch(nest.form, sizes)
            reads = _unique_regions_of_lowered_task(a.region for a in accesses if a.role in ("in", "inout"))
            writes = _unique_regions_of_lowered_task(a.region for a in accesses if a.role != "in")
            taken = MEMORY_LINE * len(reads) * math.prod(sizes)  # of a table that is larger, no more is read
            moved = min(union_bytes_of_regions(reads), taken) + union_bytes_of_regions(writes)
            arguments = (*(a.pointer for a in accesses), *nest.ints, *extra)
            name = "_".join(_task_name_of_group(graph, group)) + nest.suffix
            tasks.append(
                Task(
                    name,
                    kernel,
                    arguments,
                    reads,
                    writes,
                    frozenset(a.place.buffer for a in accesses if a.role == "inout"),
                    units=launch.units,
                    grain=launch.grain,
                    grid=launch.grid,
                    block=launch.block,
                    cost=round(model.time(moved, nest.flops), 3),
                    line=line,
                    flops=nest.flops,
                )
            )
        return tasks, builder

    def _lower_library_group(
        self, group: Group, places: dict[int, BufferLocation], buffers: list[Buffer]
    ) -> list[Task]:
        """One task; the wanted results of one call, loop or branch are written together."""
        (number,) = group.stores
        node = self.graph.nodes[number]
        parts = [number]
        if node.attrs and node.attrs[-1][0] == "part":
            parts = [n for n in sorted(places) if _are_lowered_as_one_call(self.graph.nodes[n], node)]
            if parts[0] in self.called:
                return []
            self.called.add(parts[0])
        line = self._user_lines_of_nodes(parts)
        if node.op in _OWN_NODES:
            return _OWN_NODES[node.op](self.graph, parts, places, buffers, self.target, line)
        if node.op in ("loop", "branch"):
            return [lower_control_flow(self.graph, parts, places, buffers, self.plan_body, line)]
        reads = tuple(places[a].region(self.graph.nodes[a].type) for a in node.args)
        write = places[number].region(node.type)
        if node.op == "host":
            if dict(node.attrs).get("by") == "kernels":
                return self._lower_call_of_own_kernels(node, parts, places, buffers, line)
            attrs = (*node.attrs[:2], ("parts", tuple(self.graph.nodes[n].attr("part") for n in parts)))
            writes = tuple(places[n].region(self.graph.nodes[n].type) for n in parts)
            moved = sum(_bytes_moved_by_lowered_region(r) for r in (*reads, *writes))
            cost = round(HOST_CALL + self.target.model.time(8 * moved, 0), 3)
            return [
                Task(
                    _task_name_of_node(node),
                    Library("host", attrs),
                    (),
                    reads,
                    writes,
                    cost=cost,
                    line=line,
                )
            ]
        if node.op == "matmul" and self.target.vector_products is not None:
            arrays = [self._array_location(a, places) for a in node.args]
            tasks = self.target.vector_products(arrays, [self._array_location(number, places)], line)
            if tasks is not None:
                return tasks
        first = self.graph.nodes[node.args[0]].type
        flops = OPS[node.op].cost * node.size * (first.shape or (1,))[-1]
        moved = sum(_bytes_moved_by_lowered_region(r) for r in (*reads, write))
        cost = self.target.model.time(moved, flops / self._speed_of_product(node, first))
        library = Library(node.op, node.attrs)
        return [
            Task(
                _task_name_of_library_node(node),
                library,
                (),
                reads,
                (write,),
                cost=round(cost, 3),
                line=line,
                flops=flops,
            )
        ]

    def _lower_call_of_own_kernels(
        self, node: Node, parts: Sequence[int], places: dict[int, BufferLocation], buffers: list[Buffer], line: str
    ) -> list[Task]:
        given = [self._array_location(n, places) for n in node.args]
        results = {self.graph.nodes[n].attr("part"): self._array_location(n, places) for n in parts}
        return self.target.calls(node.attr("function"), given, results, node.options, buffers, line)

    def _speed_of_product(self, node: Node, operand: ArrayType) -> float:
        """How many times as fast as float32 the target multiplies."""
        if not self.target.epilogues:
            return 1.0
        return (
            HALF_SPEED if operand.dtype in HALVES else TF32_SPEED if "tf32" in precision_of_attrs(node.attrs) else 1.0
        )

    def _array_location(self, number: int, places: dict[int, BufferLocation]) -> StridedBufferArray:
        region = places[number].region(self.graph.nodes[number].type)
        return StridedBufferArray(region, places[number].aligned and region.offset % ALIGNMENT == 0)


def _are_lowered_as_one_call(a: Node, b: Node) -> bool:
    """Whether two nodes are results of one call."""
    if a.op != b.op or a.args != b.args:
        return False
    one, other = (exact_node_attrs(n.op, n.attrs[:-1]) for n in (a, b))
    return bool(one == other)


def _task_name_of_group(graph: Graph, group: Group) -> list[str]:
    """The first few op names, for people."""
    names = [
        _task_name_of_node(graph.nodes[n]) for n in group.computes if graph.nodes[n].kind in ("map", "gather", "reduce")
    ]
    return [*names[:4], *([f"{len(names) - 4}_more"] if len(names) > 4 else [])]


def _task_name_of_node(node: Node) -> str:
    """A node's op, or the function that it calls."""
    attrs = dict(node.attrs)
    function = attrs.get("function", node.op)
    if isinstance(function, UserFunction):
        return function.source.name
    return str(dict(attrs.get("options", ())).get("callback", function))


def _task_name_of_library_node(node: Node) -> str:
    """A library call with what is particular about it, e.g. `matmul(tf32)+bias+relu`."""
    precision = precision_of_attrs(node.attrs)
    rounded = f"({precision})" if precision in PRECISIONS[1:] else ""
    return "+".join((node.op + rounded, *dict(node.attrs).get("epilogue", ())))


def _unique_regions_of_lowered_task(regions: object) -> tuple[Region, ...]:
    return tuple(dict.fromkeys(regions))  # type: ignore[call-overload]


def _bytes_moved_by_lowered_region(region: Region) -> int:
    """Bytes that a sweep over the region moves."""
    total = region.itemsize
    for n, stride in zip(region.shape, region.strides, strict=True):
        total *= n if stride else 1
    return total


class _NodeBufferLocations:
    """Where each stored node, and each view of one, lies."""

    def __init__(
        self,
        graph: Graph,
        layouts: Sequence[MemoryLayout],
        stored: set[int],
        loose: frozenset[int],
        replaced: Replaced,
    ) -> None:
        self.graph = graph
        self.loose = {graph.outputs[i] for i in loose}
        self.buffers: list[Buffer] = []
        self.places: dict[int, BufferLocation] = {}
        outputs = set(graph.outputs)
        for number, layout in zip(graph.inputs, layouts, strict=True):
            node = graph.nodes[number]
            place = BufferLocation(len(self.buffers), 0, layout.strides, layout.aligned)
            low, high = place.region(node.type).span
            self.buffers.append(Buffer(high - low, "input"))
            self.places[number] = replace(place, offset=-low, aligned=layout.aligned)
        for output, given in replaced:
            self._place_over_input(graph.outputs[output], graph.inputs[given], stored)
        aliased = {graph.nodes[o].args[0] for o in outputs if graph.nodes[o].op == "reshape" and o not in stored}
        for number in range(len(graph.nodes) - 1, -1, -1):
            node = graph.nodes[number]
            if number in stored and number not in self.places:
                self._new_buffer(number, "output" if number in outputs or number in aliased else "temp")
            if node.kind == "assembly":
                self._place_assembly_parts(number)
            if node.op == "sequential" and number in self.places:
                self._place_routine_source(number, stored)
        for number in range(len(graph.nodes)):
            if number not in self.places:
                view = self._place_view(graph.nodes[number])
                if view is not None:
                    self.places[number] = view

    def _new_buffer(self, number: int, kind: str) -> None:
        type = self.graph.nodes[number].type
        strides = contiguous_strides(type.shape, type.dtype.itemsize)
        self.places[number] = BufferLocation(len(self.buffers), 0, strides, number not in self.loose)
        self.buffers.append(Buffer(type.nbytes, kind))

    def _place_assembly_parts(self, number: int) -> None:
        """The parts of an assembly live inside it; the base of an update is the whole of it."""
        node, place = self.graph.nodes[number], self.places[number]
        for arg, (starts, steps) in zip(node.args, materialized_regions_of_assembly(node), strict=True):
            part = self.graph.nodes[arg]
            offset = place.offset + sum(map(operator.mul, starts, place.strides))
            strides = tuple([s * t for s, t in zip(place.strides, steps, strict=True)])
            self.places[arg] = BufferLocation(place.buffer, offset, strides, place.aligned)
            if part.op == "reshape":  # of unit axes, or of no gaps: the node behind it is what is stored
                root = self.graph.nodes[part.args[0]]
                own = reshape_strides(part.shape, strides, root.shape)
                assert own is not None
                self.places[part.args[0]] = BufferLocation(place.buffer, offset, own, place.aligned)

    def _place_routine_source(self, number: int, stored: set[int]) -> None:
        """What a routine starts from lies where its result does, if nothing else reads that, or a part of it."""
        node, graph = self.graph.nodes[number], self.graph
        source = source_of_routine_result(node)
        if source is None or source not in stored or source in self.places or node.args.count(source) > 1:
            return
        within = {source}
        for inner in range(source, -1, -1):
            if inner in within and graph.nodes[inner].kind in ("assembly", "view"):
                within.update(graph.nodes[inner].args)
        readers = {reader for inner in within for reader in graph.users[inner]} - within
        alone = all(_are_lowered_as_one_call(graph.nodes[r], node) for r in readers) and within.isdisjoint(
            graph.outputs
        )
        if alone and graph.nodes[source].type == node.type and within.isdisjoint({*node.args} - {source}):
            self.places[source] = self.places[number]

    def _place_over_input(self, number: int, given: int, stored: set[int]) -> None:
        """A routine's result lies in the memory of the input that it starts from, if nothing reads that after it is
        written to, and nothing can fail."""
        graph, node, place = self.graph, self.graph.nodes[number], self.places[given]
        if node.op != "sequential" or graph.outputs.count(number) > 1 or source_of_routine_result(node) != given:
            return
        if place.strides != contiguous_strides(node.shape, node.dtype.itemsize):
            return
        if not MAY_FAIL.isdisjoint(n.op for n in graph.nodes):
            return
        within = [given]  # and what looks at its memory
        for inner in within:
            within += [n for n in graph.users[inner] if graph.nodes[n].kind == "view" and n not in stored]
        readers = {reader for inner in within for reader in graph.users[inner]}.difference(within)
        if all(_are_lowered_as_one_call(graph.nodes[r], node) for r in readers) and (
            {*within}.isdisjoint(graph.outputs) and reads_before_routine_writes(node, within)
        ):
            self.places[number] = place

    def _place_view(self, node: Node) -> BufferLocation | None:
        if node.kind != "view" or node.args[0] not in self.places:
            return None
        place, shape = self.places[node.args[0]], self.graph.nodes[node.args[0]].shape
        strides, offset = strides_of_memory_view_node(node, shape, place.strides), place.offset
        if node.op == "slice":
            offset += sum(map(operator.mul, node.attr("starts"), place.strides))
        return None if strides is None else BufferLocation(place.buffer, offset, strides, place.aligned)
