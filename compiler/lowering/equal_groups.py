"""Equal groups are lowered once, in numbers of their own. The tasks made of those are put where each group is.

Of two groups that differ in the numbers of their nodes and buffers, in where they begin in a buffer, and in the values
of their constants, the kernels are the same, and the tasks differ in arguments and regions alone.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence, Set
from functools import lru_cache
from typing import Any

import numpy as np

from ...runtime.core.frozen import frozen
from ...runtime.program.program import Argument, Buffer, Constant, Pointer, Region, Task
from ..core.types import FLOAT32, FLOAT64, DType, dtype_name
from ..fusion.groups import Group
from ..graph.builder import exact_node_attrs
from ..graph.graph import Attrs, Graph, Node
from ..kernel.body_builder import is_fixed_kernel_constant
from ..layout.operands import ALIGNMENT, WIDEST_ZIP, BufferLocation, is_index_map_view, is_node_view_of_memory

SOURCES = frozenset({"const", "number", "index"})  # what is neither computed nor in memory

# A group of a graph, where its nodes lie, and the buffers so far, which grow -> its tasks, and whether their kernels
# depend on the values of its constants.
LowerGroup = Callable[[Graph, Group, dict[int, BufferLocation], list[Buffer]], tuple[list[Task], bool]]


@frozen
class LocalGroup:
    """A group in numbers of its own. key: all that its kernels depend on but for the constants.

    numbers: its nodes in the graph; inputs: those that it loads; corners: of inputs of which it sees slices alone, the
    lowest index along each axis. buffers: those that it touches, and for each in `starts` the byte that is its first.
    constants: those whose values kernels may be made without."""

    key: tuple[Any, ...]
    numbers: Sequence[int]
    inputs: Set[int]
    corners: Mapping[int, tuple[int, ...]]
    buffers: tuple[int, ...]
    starts: Sequence[int]
    constants: Sequence[Constant]


@frozen
class _LoweredGroup:
    """tasks: in a group's own numbers, each with its arguments, where numbers stand for the group's constants. new:
    the buffers that it adds."""

    tasks: Sequence[tuple[Task, Sequence[Any]]]
    new: Sequence[Buffer]


def describe_group_to_lower(graph: Graph, group: Group, places: dict[int, BufferLocation]) -> LocalGroup:
    """Of groups whose kernels are equal the keys are."""
    nodes = graph.nodes
    numbers, inputs, corners = _nodes_of_group_to_lower(graph, group)
    local = {number: i for i, number in enumerate(numbers)}
    step = _alignment_step_of_group(group, places)
    buffers: dict[int, int] = {}
    starts_of_buffers: list[int] = []

    def describe_buffer_location(number: int) -> tuple[Any, ...]:
        place = _equal_group_corner_location(places[number], corners.get(number))
        own = buffers.get(place.buffer)
        if own is None:
            own = buffers[place.buffer] = len(buffers)
            starts_of_buffers.append(place.offset - place.offset % step)
        return own, place.offset - starts_of_buffers[own], place.strides, place.aligned

    constants: dict[tuple[bytes, DType], int] = {}
    described: list[Any] = []
    for number in numbers:
        node = nodes[number]
        op, shape, dtype = node.op, node.shape, node.dtype
        if number in corners:
            described.append(("slices of", tuple([n == 1 for n in shape]), dtype, describe_buffer_location(number)))
        elif number in inputs:
            described.append((shape, dtype, describe_buffer_location(number)))
        elif op == "const" and _is_constant_a_kernel_parameter(value := node.attr("value"), dtype):
            described.append((shape, dtype, constants.setdefault((value, dtype), len(constants))))
        else:
            attrs: Any = ()
            if op == "slice":
                attrs = _group_slice_from_corner(node, corners)
            elif node.attrs and op != "cast":  # those of a cast are no part of its meaning
                attrs = exact_node_attrs(op, node.attrs)
            described.append((op, tuple([local[a] for a in node.args]), shape, dtype, attrs))
    stored = tuple([(local[number], describe_buffer_location(number)) for number in group.stores])
    computed = tuple([local[number] for number in group.computes])
    return LocalGroup(
        (group.domain, group.reduced, computed, stored, tuple(described)),
        numbers,
        inputs,
        corners,
        tuple(buffers),
        starts_of_buffers,
        [Constant(value, dtype_name(dtype)) for value, dtype in constants],
    )


def _nodes_of_group_to_lower(graph: Graph, group: Group) -> tuple[list[int], set[int], dict[int, tuple[int, ...]]]:
    """A group's nodes in order, those that it loads, and the corners of those of which it sees slices alone."""
    nodes, inside = graph.nodes, frozenset(group.computes)
    known, inputs, todo = set[int](), set[int](), [*group.stores, *group.computes]
    lowest: dict[int, tuple[int, ...]] = {}  # the lowest index along each axis at which a slice of a node begins
    others = set[int]()  # nodes that are seen otherwise
    while todo:
        number = todo.pop()
        if number in known:
            continue
        known.add(number)
        node = nodes[number]
        if number in inside or (is_index_map_view(node) and not is_node_view_of_memory(node, nodes[node.args[0]].type)):
            todo += node.args
            if node.op == "slice":
                (arg,), starts = node.args, node.attr("starts")
                lowest[arg] = tuple(map(min, starts, lowest[arg])) if arg in lowest else starts
            else:
                others.update(node.args)
        elif node.op not in SOURCES:
            inputs.add(number)
    corners = {number: corner for number, corner in lowest.items() if number in inputs and number not in others}
    return sorted(known), inputs, corners


def _equal_group_corner_location(place: BufferLocation, corner: tuple[int, ...] | None) -> BufferLocation:
    if corner is None:
        return place
    offset = place.offset + sum(map(operator.mul, corner, place.strides))
    return BufferLocation(place.buffer, offset, place.strides, place.aligned)


def _group_slice_from_corner(node: Node, corners: Mapping[int, tuple[int, ...]]) -> Attrs:
    """The attributes of a slice, counted from the corner of what it is a slice of."""
    corner = corners.get(node.args[0])
    if corner is None:
        return node.attrs
    return ("starts", tuple(map(operator.sub, node.attr("starts"), corner))), ("steps", node.attr("steps"))


def _alignment_step_of_group(group: Group, places: dict[int, BufferLocation]) -> int:
    """What moves a group in a buffer without a change of its kernels: they depend on what is aligned, and on which
    outputs lie in turn (see `operands_interleaved_in_memory`)."""
    steps = {s for number in group.stores for s in places[number].strides if 0 < s <= WIDEST_ZIP}
    return math.lcm(ALIGNMENT, *steps)


@lru_cache(4096)
def _is_constant_a_kernel_parameter(value: bytes, dtype: DType) -> bool:
    """Whether a constant is a parameter of kernels, unless a formula looks at it."""
    return dtype in (FLOAT32, FLOAT64) and not is_fixed_kernel_constant(np.frombuffer(value, dtype)[0], dtype)


@lru_cache(4096)
def _numbered_constant_of_group(number: int, dtype: str) -> Constant:
    """A value that stands for constant `number`, whatever it is."""
    bits = np.uint32(0x4B5A5A00 + number) if dtype == FLOAT32.name else np.uint64(0x435A5A5A00000000 + number)
    return Constant(bits.tobytes(), dtype)


def _local_graph_of_group(
    graph: Graph, group: Group, local: LocalGroup, constants: Sequence[Constant]
) -> tuple[Graph, Group]:
    """The group as one of a small graph, with these constants."""
    number = {old: new for new, old in enumerate(local.numbers)}
    values = dict(zip(local.constants, constants, strict=True))
    made = []
    for old in local.numbers:
        node = graph.nodes[old]
        if old in local.inputs:
            made.append(Node("input", (), node.type, (("index", number[old]),)))
        elif node.op == "const":
            constant = Constant(node.attr("value"), dtype_name(node.dtype))
            made.append(Node("const", (), node.type, (("value", values.get(constant, constant).value),)))
        else:
            attrs = _group_slice_from_corner(node, local.corners) if node.op == "slice" else node.attrs
            made.append(Node(node.op, tuple([number[a] for a in node.args]), node.type, attrs))
    computes, stores = (tuple([number[n] for n in of]) for of in (group.computes, group.stores))
    return Graph(tuple(made), (), (), stores), Group("kernel", group.domain, group.reduced, computes, stores)


class EqualGroupsLowering:
    """The groups of a graph, lowered: each kind of them once."""

    def __init__(self, graph: Graph, places: dict[int, BufferLocation], lower: LowerGroup) -> None:
        self.graph, self.places, self.lower = graph, places, lower
        self.known: dict[Any, _LoweredGroup] = {}
        self.by_values: set[Any] = set()  # keys of groups whose kernels depend on their constants

    def tasks_of(self, group: Group, buffers: list[Buffer], line: str) -> list[Task]:
        """The group's tasks, of the user's `line`; their buffers are added."""
        local = describe_group_to_lower(self.graph, group, self.places)
        found = self.known.get(local.key)
        if found is None and local.key not in self.by_values:
            numbered = [_numbered_constant_of_group(i, c.dtype) for i, c in enumerate(local.constants)]
            found, asked = self._lower_local_group(group, local, numbered)
            if asked and numbered != local.constants:
                self.by_values.add(local.key)
                found = None
            else:
                self.known[local.key] = found
        if found is None:
            exact = local.key, tuple(local.constants)
            found = self.known.get(exact)
            if found is None:
                found = self.known[exact] = self._lower_local_group(group, local, local.constants)[0]
        own = [*local.buffers, *range(len(buffers), len(buffers) + len(found.new))]
        starts = [*local.starts, *[0] * len(found.new)]
        buffers += found.new
        return [_relocate_task(*each, own, starts, local.constants, line, group.computes) for each in found.tasks]

    def _lower_local_group(
        self, group: Group, local: LocalGroup, constants: Sequence[Constant]
    ) -> tuple[_LoweredGroup, bool]:
        """The group with these constants in the place of its own; whether its kernels depend on their values."""
        own = [Buffer(0, "temp")] * len(local.buffers)
        places = {
            new: _local_location_of_group(self.places[old], local, local.corners.get(old))
            for new, old in enumerate(local.numbers)
            if old in local.inputs or old in group.stores
        }
        tasks, asked = self.lower(*_local_graph_of_group(self.graph, group, local, constants), places, own)
        number = {constant: i for i, constant in enumerate(constants)}
        parameters = [[number.get(a, a) if type(a) is Constant else a for a in task.arguments] for task in tasks]
        return _LoweredGroup([*zip(tasks, parameters, strict=True)], own[len(local.buffers) :]), asked


def _local_location_of_group(
    place: BufferLocation, local: LocalGroup, corner: tuple[int, ...] | None
) -> BufferLocation:
    place, own = _equal_group_corner_location(place, corner), local.buffers.index(place.buffer)
    return BufferLocation(own, place.offset - local.starts[own], place.strides, place.aligned)


def _relocate_task(
    task: Task,
    parameters: Sequence[Argument | int],
    buffers: Sequence[int],
    starts: Sequence[int],
    constants: Sequence[Constant],
    line: str,
    nodes: tuple[int, ...],
) -> Task:
    """A task with the numbers of a group -> the same with those of the program."""
    arguments: list[Argument] = []
    for a in parameters:
        if isinstance(a, Pointer):
            arguments.append(Pointer(buffers[a.buffer], a.offset + starts[a.buffer]))
        else:
            arguments.append(constants[a] if isinstance(a, int) else a)
    reads, writes = (
        tuple([
            Region(buffers[r.buffer], r.offset + starts[r.buffer], r.shape, r.strides, r.itemsize, r.dtype)
            for r in regions
        ])
        for regions in (task.reads, task.writes)
    )  # fmt: skip
    return Task(
        task.name,
        task.kernel,
        tuple(arguments),
        reads,
        writes,
        frozenset([buffers[b] for b in task.same_element]) if task.same_element else task.same_element,
        task.units,
        task.grain,
        task.grid,
        task.block,
        task.cost,
        line,
        task.flops,
        nodes,
    )
