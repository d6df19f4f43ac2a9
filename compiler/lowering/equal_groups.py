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

from ...runtime.core.frozen import dataclass
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


@dataclass(frozen=True, slots=True)
class LocalGroup:
    """A group in numbers of its own. key: all that its kernels depend on but for the constants.

    numbers: its nodes in the graph; inputs: those that it loads; corners: of inputs of which it sees slices alone, the
    lowest index along each axis. buffers: those that it touches, and for each in `starts` the byte that is its first.
    constants: those whose values kernels may be made without."""

    key: tuple[Any, ...]
    numbers: tuple[int, ...]
    inputs: frozenset[int]
    corners: dict[int, tuple[int, ...]]
    buffers: tuple[int, ...]
    starts: tuple[int, ...]
    constants: tuple[Constant, ...]


def describe_group_to_lower(graph: Graph, group: Group, places: dict[int, BufferLocation]) -> LocalGroup:
    """Of groups whose kernels are equal the keys are."""
    nodes, inside = graph.nodes, frozenset(group.computes)
    known, inputs, todo = set[int](), set[int](), [*group.stores, *group.computes]
    while todo:
        number = todo.pop()
        if number not in known:
            known.add(number)
            node = nodes[number]
            if number in inside or (
                is_index_map_view(node) and not is_node_view_of_memory(node, nodes[node.args[0]].type)
            ):
                todo += node.args
            elif node.op not in SOURCES:
                inputs.add(number)
    numbers = sorted(known)
    local = {number: i for i, number in enumerate(numbers)}
    corners = _slice_corners_of_group_inputs(graph, numbers, inputs)
    step = _alignment_step_of_group(group, places)
    buffers: dict[int, int] = {}
    starts: list[int] = []

    def describe_buffer_location(number: int) -> tuple[Any, ...]:
        place = _equal_group_corner_location(places[number], corners.get(number))
        if place.buffer not in buffers:
            buffers[place.buffer] = len(buffers)
            starts.append(place.offset - place.offset % step)
        own = buffers[place.buffer]
        return own, place.offset - starts[own], place.strides, place.aligned

    constants: dict[Constant, int] = {}
    described: list[Any] = []
    for number in numbers:
        node = nodes[number]
        shape, dtype = node.type.shape, node.type.dtype
        if number in corners:
            described.append(("slices of", tuple([n == 1 for n in shape]), dtype, describe_buffer_location(number)))
        elif number in inputs:
            described.append((shape, dtype, describe_buffer_location(number)))
        elif node.op == "const" and _is_constant_a_kernel_parameter(value := node.attr("value"), dtype):
            described.append((shape, dtype, constants.setdefault(Constant(value, dtype_name(dtype)), len(constants))))
        else:
            attrs: Any = ()
            if node.op == "slice":
                attrs = _group_slice_from_corner(node, corners)
            elif node.attrs and node.op != "cast":  # those of a cast are no part of its meaning
                attrs = exact_node_attrs(node.op, node.attrs)
            described.append((node.op, tuple([local[a] for a in node.args]), shape, dtype, attrs))
    stored = tuple([(local[number], describe_buffer_location(number)) for number in group.stores])
    computed = tuple([local[number] for number in group.computes])
    key = group.domain, group.reduced, computed, stored, tuple(described)
    return LocalGroup(key, tuple(numbers), frozenset(inputs), corners, tuple(buffers), tuple(starts), tuple(constants))


def _slice_corners_of_group_inputs(
    graph: Graph, numbers: Sequence[int], inputs: Set[int]
) -> dict[int, tuple[int, ...]]:
    """Inputs of which a group sees slices alone, and the lowest index along each axis at which one begins."""
    found: dict[int, tuple[int, ...]] = {}
    others = set[int]()
    for number in numbers:
        if number not in inputs:
            node = graph.nodes[number]
            if node.op == "slice" and node.args[0] in inputs:
                starts = node.attr("starts")
                found[node.args[0]] = tuple(map(min, starts, found.get(node.args[0], starts)))
            else:
                others.update(node.args)
    return {number: corner for number, corner in found.items() if number not in others}


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
            constant = Constant(node.attr("value"), dtype_name(node.type.dtype))
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
        self.known: dict[Any, tuple[list[Task], list[Buffer]]] = {}
        self.by_values: set[Any] = set()  # keys of groups whose kernels depend on their constants

    def tasks_of(self, group: Group, buffers: list[Buffer], line: str) -> list[Task]:
        """The group's tasks, of the user's `line`; their buffers are added."""
        local = describe_group_to_lower(self.graph, group, self.places)
        constants = local.constants
        if local.key not in self.by_values:
            constants = tuple([_numbered_constant_of_group(i, c.dtype) for i, c in enumerate(local.constants)])
        found = self.known.get((local.key, constants))
        if found is None:
            own = [Buffer(0, "temp")] * len(local.buffers)
            places = {
                new: _local_location_of_group(self.places[old], local, local.corners.get(old))
                for new, old in enumerate(local.numbers)
                if old in local.inputs or old in group.stores
            }
            tasks, asked = self.lower(*_local_graph_of_group(self.graph, group, local, constants), places, own)
            if asked and constants != local.constants:
                self.by_values.add(local.key)
                return self.tasks_of(group, buffers, line)
            found = self.known[local.key, constants] = tasks, own[len(local.buffers) :]
        tasks, new = found
        put = _EqualGroupPlacement(
            [*local.buffers, *range(len(buffers), len(buffers) + len(new))],
            [*local.starts, *[0] * len(new)],
            dict(zip(constants, local.constants, strict=True)),
        )
        buffers += new
        return [put.task(task, line, group.computes) for task in tasks]


def _local_location_of_group(
    place: BufferLocation, local: LocalGroup, corner: tuple[int, ...] | None
) -> BufferLocation:
    place, own = _equal_group_corner_location(place, corner), local.buffers.index(place.buffer)
    return BufferLocation(own, place.offset - local.starts[own], place.strides, place.aligned)


@dataclass(frozen=True, slots=True)
class _EqualGroupPlacement:
    """Tasks of a group's own numbers -> those of the program."""

    buffers: Sequence[int]
    starts: Sequence[int]
    constants: dict[Constant, Constant]

    def task(self, task: Task, line: str, nodes: tuple[int, ...]) -> Task:
        return Task(
            task.name,
            task.kernel,
            tuple([self.argument(a) for a in task.arguments]),
            tuple([self.region(r) for r in task.reads]),
            tuple([self.region(r) for r in task.writes]),
            frozenset([self.buffers[b] for b in task.same_element]),
            task.units,
            task.grain,
            task.grid,
            task.block,
            task.cost,
            line,
            task.flops,
            nodes,
        )

    def argument(self, argument: Argument) -> Argument:
        if type(argument) is Pointer:
            return Pointer(self.buffers[argument.buffer], argument.offset + self.starts[argument.buffer])
        return self.constants.get(argument, argument) if type(argument) is Constant else argument

    def region(self, r: Region) -> Region:
        offset = r.offset + self.starts[r.buffer]
        return Region(self.buffers[r.buffer], offset, r.shape, r.strides, r.itemsize, r.dtype)
