"""A function's body on a mesh of ranks in; this rank's parts and collectives out.

The same partition as over devices makes it: collectives are placed on a device of their own, `NETWORK`, and the moves
to and from there cost nothing, since what a collective reads and writes lies in this rank's memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from ...runtime.core.frozen import frozen, replace
from ...runtime.program.collective import Collective
from ..core.types import ArrayType, dtype_kind
from ..graph.builder import GraphBuilder
from ..graph.graph import Graph, GraphError, Node, Value
from .partition import Move, Part, PlacedValue, depths_of_placed_nodes, partition_graph_by_device
from .places import nodes_computable_on_any_device
from .replicate import COLLECTIVES, JOINED_BY, UNKNOWN_EXCHANGES, bodies_exchange_between_devices

NETWORK = 1  # the slot of collectives; this rank's device is 0
BUCKET_BYTES = 64 << 10  # reductions are joined up to this: to copy more into one message takes longer than another
UNSIGNED = {1: "uint8", 2: "uint16"}  # what stands for dtypes that only move
METHODS = {"from_root": "broadcast", "exchange": "permute"}  # other names of World's


@frozen
class ReductionDtypes:
    """What a library's reductions can do. wider: the dtype that stands for one that it lacks. apart: (kind of dtype,
    operation) that it does not do as NumPy does: then the arrays are gathered, and joined by this rank's kernels."""

    wider: tuple[tuple[str, str], ...]
    apart: tuple[tuple[str, str], ...] = ()


MPI_REDUCTIONS = ReductionDtypes((("float16", "float32"), ("bfloat16", "float32"), ("bool", "uint8")))
NCCL_REDUCTIONS = ReductionDtypes(  # whose maximum drops NaN; a complex sum is one of pairs
    (("bool", "uint8"), ("int16", "int32"), ("uint16", "uint32")), (("f", "max"), ("f", "min"), ("c", "prod"))
)


@frozen
class Meeting:
    """A collective between parts."""

    kernel: Collective
    reads: tuple[int, ...]
    writes: tuple[int, ...]


@frozen
class RankPartition:
    """Parts and collectives of one rank, in an order in which each comes after what it reads. outputs: values."""

    values: tuple[PlacedValue, ...]
    steps: tuple[Part | Meeting, ...]
    outputs: tuple[int, ...]


def partition_for_rank(body: Graph, size: int, reductions: ReductionDtypes = MPI_REDUCTIONS) -> RankPartition:
    """Raises GraphError, at the user's line, for a collective in the body of a loop or branch."""
    graph = graph_with_canonical_collectives(body, size, reductions)
    anywhere = nodes_computable_on_any_device(graph)
    slots: list[int | None] = []
    for number, node in enumerate(graph.nodes):
        slots.append(NETWORK if node.op in COLLECTIVES else None if node.op == "input" or anywhere[number] else 0)
    for node in graph.nodes:
        if node.op in COLLECTIVES and anywhere[node.args[0]]:
            slots[node.args[0]] = 0
    found = partition_graph_by_device(graph, slots, [0] * len(graph.outputs))
    return _RankPartitionJoiner(found.values).joined(found.steps, found.outputs)


def partition_for_each_device(partition: RankPartition, count: int) -> RankPartition:
    """A rank's partition on each of so many devices of this process, which are the ranks. Value v of rank r is value
    v * count + r; so are sources and outputs."""

    def on_device(values: Sequence[int], r: int) -> tuple[int, ...]:
        return tuple(v * count + r for v in values)

    values = tuple(
        replace(v, slot=r, source=v.source * count + r if v.source >= 0 else -1)
        for v in partition.values
        for r in range(count)
    )
    steps: list[Part | Meeting] = []
    for step in partition.steps:
        reads, writes = ([on_device(vs, r) for r in range(count)] for vs in (step.reads, step.writes))
        if isinstance(step, Part):
            steps += (replace(step, slot=r, reads=reads[r], writes=writes[r]) for r in range(count))
        else:
            joined = [tuple(v for each in of_devices for v in each) for of_devices in (reads, writes)]
            steps.append(Meeting(replace(step.kernel, devices=count), *joined))
    return RankPartition(values, tuple(steps), tuple(v * count + r for v in partition.outputs for r in range(count)))


def graph_with_canonical_collectives(body: Graph, size: int, reductions: ReductionDtypes = MPI_REDUCTIONS) -> Graph:
    """The graph with collectives along first axes, and reductions that a library has. What changes axes and dtypes is
    ordinary operations, which fuse."""
    builder = GraphBuilder(body.name)
    values: list[Value] = []
    collectives = itertools.count()
    for number, node in enumerate(body.nodes):
        line = body.lines[number] if body.lines else ""
        builder.where = partial(str, line)
        if node.op == "place":
            raise GraphError("a function on a mesh runs on all of its devices; leave kg.place out", line=line)
        if bodies_exchange_between_devices(node):
            raise GraphError(f"ranks {UNKNOWN_EXCHANGES}", line=line)
        if node.op in COLLECTIVES:
            value = values[node.args[0]]
            at = f" at {line}" if line and line != "<unknown>" else ""
            meaning = f"{_meaning_of_collective(node, value.type)}, collective {next(collectives)} of {body.name}{at}"
            meant = replace(node, attrs=(*node.attrs, ("meaning", meaning)))
            values.append(_canonical_collective(builder, meant, value, node.attr("size"), reductions))
            continue
        args = tuple(values[a].number for a in node.args)
        if node.op == "input":
            values.append(builder.input(node.type))
            continue
        if node.op == "number":
            builder.numbers.append(len(builder.nodes))
        values.append(builder.add(node.op, args, node.type, node.attrs))
    return builder.finish([values[o] for o in body.outputs])


def _meaning_of_collective(node: Node, type: ArrayType) -> str:
    """What all ranks must agree on, in words. type: of what each gives."""
    attrs = dict(node.attrs)
    named = [METHODS.get(node.op, node.op), attrs.get("how", ""), f"{type.dtype}{list(type.shape)}"]
    rest = [f", {name} {value}" for name, value in sorted(attrs.items()) if name not in ("how", "size")]
    return " ".join(filter(None, named)) + "".join(rest)


def _canonical_collective(
    builder: GraphBuilder, node: Node, value: Value, size: int, reductions: ReductionDtypes
) -> Value:
    if node.op == "all_reduce":
        return _canonical_reduction_node(builder, node, value, size, reductions)
    if node.op == "reduce_scatter":
        front = _move_axis_of_rank_collective(builder, value, node.attr("axis"), 0)
        return _move_axis_of_rank_collective(
            builder, _canonical_reduction_node(builder, node, front, size, reductions), 0, node.attr("axis")
        )
    if node.op == "all_gather":
        front = _move_axis_of_rank_collective(builder, value, node.attr("axis"), 0)
        return _move_axis_of_rank_collective(
            builder, _gathered_along_first_axis(builder, node, front, size), 0, node.attr("axis")
        )
    if node.op == "all_to_all":
        return _canonical_exchange_node(builder, node, value, size)
    return _add_rank_collective_node(builder, node, node.op, value, value.type, size)


def _gathered_along_first_axis(builder: GraphBuilder, node: Node, value: Value, size: int) -> Value:
    whole = ArrayType((value.shape[0] * size, *value.shape[1:]), value.dtype)
    return _add_rank_collective_node(builder, node, "all_gather", value, whole, size)


def _canonical_reduction_node(
    builder: GraphBuilder, node: Node, value: Value, size: int, reductions: ReductionDtypes
) -> Value:
    """An all_reduce, or a reduce_scatter along the first axis. A mean is a sum, divided."""
    how, dtype = node.attr("how"), value.dtype
    given = builder.cast(value, np.dtype(dict(reductions.wider).get(str(dtype), dtype)))
    if (dtype_kind(dtype), how) in reductions.apart:
        return _reduced_by_this_rank(builder, node, value, size)
    scattered = node.op == "reduce_scatter"
    shape = (value.shape[0] // size, *value.shape[1:]) if scattered else value.shape
    attrs = (*_kept_attributes(node), ("how", "sum" if how == "mean" else how), ("size", size))
    found = builder.add(node.op, (given.number,), ArrayType(shape, given.dtype), tuple(sorted(attrs)))
    if how == "mean":
        found = builder.map("divide", found, builder.const(size, given.dtype))
    return builder.cast(found, dtype)


def _reduced_by_this_rank(builder: GraphBuilder, node: Node, value: Value, size: int) -> Value:
    """All ranks' arrays, or their parts for this rank, joined in the order of the ranks."""
    if node.op == "reduce_scatter":
        cut = builder.reshape(value, (size, value.shape[0] // size, *value.shape[1:]))
        every = _add_rank_collective_node(builder, node, "all_to_all", cut, cut.type, size)
    else:
        every = _gathered_along_first_axis(builder, node, builder.reshape(value, (1, *value.shape)), size)
    shape = every.shape[1:]

    def of_rank(r: int) -> Value:
        starts, steps = (r, *(0 for _ in shape)), (1,) * every.ndim
        return builder.reshape(builder.slice(every, starts, steps, (1, *shape)), shape)

    found = of_rank(0)
    for r in range(1, size):
        found = builder.map(JOINED_BY[node.attr("how")], found, of_rank(r))
    return found


def _canonical_exchange_node(builder: GraphBuilder, node: Node, value: Value, size: int) -> Value:
    """Parts lie along a new first axis, which ends beside the axis along which they are joined."""
    split, join = node.attr("split"), node.attr("join")
    shape = value.shape
    cut = builder.reshape(value, (*shape[:split], size, shape[split] // size, *shape[split + 1 :]))
    front = _move_axis_of_rank_collective(builder, cut, split, 0)
    found = _move_axis_of_rank_collective(
        builder, _add_rank_collective_node(builder, node, node.op, front, front.type, size), 0, join
    )
    merged = found.shape
    return builder.reshape(found, (*merged[:join], merged[join] * merged[join + 1], *merged[join + 2 :]))


def _add_rank_collective_node(
    builder: GraphBuilder, node: Node, op: str, value: Value, type: ArrayType, size: int
) -> Value:
    """node: the user's collective."""
    return builder.add(op, (value.number,), type, tuple(sorted((*_kept_attributes(node), ("size", size)))))


def _kept_attributes(node: Node) -> list[tuple[str, Any]]:
    """Those of a user's collective that it has whichever operations it becomes."""
    return [attr for attr in node.attrs if attr[0] in ("groups", "meaning", "pairs", "root")]


def _move_axis_of_rank_collective(builder: GraphBuilder, value: Value, axis: int, to: int) -> Value:
    """NumPy's moveaxis."""
    axes = [i for i in range(value.ndim) if i != axis]
    return builder.permute(value, [*axes[:to], axis, *axes[to:]])


class _RankPartitionJoiner:
    """Makes the parts on the network into collectives, and of each value and its copies there one."""

    def __init__(self, values: Sequence[PlacedValue]) -> None:
        self.values = values
        self.alias: dict[int, int] = {}
        self.made: list[PlacedValue] = []
        self.numbers: dict[int, int] = {}
        self.inputs: dict[int, int] = {}  # by their source
        self.depth: dict[int, int] = {}  # of this rank's values: the operations on the longest way to them

    def number(self, value: int) -> int:
        """The value of this rank that a value of the partition is."""
        value = self.alias.get(value, value)
        if value not in self.numbers:
            given = self.values[value]
            if given.source >= 0 and given.source in self.inputs:
                self.numbers[value] = self.inputs[given.source]
            else:
                self.numbers[value] = self._new_rank_value(given.type, given.source)
                if given.source >= 0:
                    self.inputs[given.source] = self.numbers[value]
        return self.numbers[value]

    def _new_rank_value(self, type: ArrayType, source: int = -1) -> int:
        self.made.append(PlacedValue(type, 0, source))
        return len(self.made) - 1

    def joined(self, steps: Sequence[Part | Move], outputs: Sequence[int]) -> RankPartition:
        for step in steps:
            if isinstance(step, Move):
                self.alias[step.target] = self.alias.get(step.source, step.source)
        result: list[Part | Meeting] = []
        for step in steps:
            if isinstance(step, Move):
                continue
            if step.slot == NETWORK:
                result += _bucket_small_reductions(self._collectives_in_rank_order(step))
                continue
            reads, writes = (tuple(self.number(v) for v in given) for given in (step.reads, step.writes))
            result.append(Part(0, step.graph, reads, writes, step.numbers))
            depths = self._collective_depths(step.graph, reads)
            self.depth |= {v: depths[n] for n, v in zip(step.graph.outputs, writes, strict=True)}
        found = tuple(self.number(v) for v in outputs)
        values = (replace(value, depth=self.depth.get(v, 0)) for v, value in enumerate(self.made))
        return RankPartition(tuple(values), tuple(result), found)

    def _collective_depths(self, graph: Graph, reads: Sequence[int]) -> list[int]:
        """Of the nodes."""
        return depths_of_placed_nodes(
            graph, {n: self.depth.get(v, 0) for n, v in zip(graph.inputs, reads, strict=True)}
        )

    def _collectives_in_rank_order(self, part: Part) -> list[Meeting]:
        """First those that read what is there first, as far as the graph tells: the same order on all ranks."""
        graph = part.graph
        depths = self._collective_depths(graph, [self.number(v) for v in part.reads])
        known = {node: self.number(v) for node, v in zip(graph.inputs, part.reads, strict=True)}
        written = {node: self.number(v) for node, v in zip(graph.outputs, part.writes, strict=True)}
        found: list[Meeting] = []
        numbers = [n for n, node in enumerate(graph.nodes) if node.op in COLLECTIVES]
        for n in sorted(numbers, key=lambda n: (depths[graph.nodes[n].args[0]], n)):
            node = graph.nodes[n]
            read = graph.nodes[node.args[0]].type
            known[n] = written[n] if n in written else self._new_rank_value(node.type)
            self.depth[known[n]] = depths[n]
            attrs = dict(node.attrs)
            dtype = str(read.dtype)
            if "how" not in attrs:
                dtype = UNSIGNED.get(read.dtype.itemsize, dtype)
            line = graph.lines[n] if graph.lines else ""
            how, root, pairs = attrs.get("how", ""), attrs.get("root", 0), attrs.get("pairs", ())
            op = METHODS.get(node.op, node.op)
            counts, meanings, groups = (read.size,), (attrs["meaning"],), attrs.get("groups", ())
            kernel = Collective(op, counts, dtype, how, root, pairs, line, 1, meanings, groups)
            found.append(Meeting(kernel, (known[node.args[0]],), (known[n],)))
        return found


def _bucket_small_reductions(given: Sequence[Meeting]) -> list[Meeting]:
    """Small reductions of one kind as one message, which leaves with the last of them, whatever is between."""
    result: list[Meeting] = []
    for one in given:
        place = next((i for i in reversed(range(len(result))) if _fit_one_message(result[i], one)), len(result))
        needed = {v for between in (*result[place + 1 :], one) for v in between.reads}
        if place == len(result) or needed & {*result[place].writes}:
            result.append(one)
            continue
        first = result.pop(place)
        joined = {n: getattr(first.kernel, n) + getattr(one.kernel, n) for n in ("counts", "meanings")}
        result.append(Meeting(replace(first.kernel, **joined), first.reads + one.reads, first.writes + one.writes))
    return result


def _fit_one_message(first: Meeting, other: Meeting) -> bool:
    one, two = first.kernel, other.kernel
    alike = one.op == "all_reduce" and (one.op, one.dtype, one.how, one.groups) == (
        two.op,
        two.dtype,
        two.how,
        two.groups,
    )
    return alike and sum((*one.counts, *two.counts)) * np.dtype(one.dtype).itemsize <= BUCKET_BYTES
