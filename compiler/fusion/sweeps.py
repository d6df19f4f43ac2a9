"""One sweep that stores and reduces. Whether an elementwise kernel is to run inside the loop of a reduction.

Also sums of all elements that are taken from rows while a kernel has them, or with the inside of a stencil.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from ..core.combiners import COMBINERS
from ..core.cost import SMALL, SWEPT_ELEMENTS, WorkCostModel, rereading_rows_costs_little
from ..core.types import FLOAT32, dtype_kind
from ..graph.builder import GraphBuilder
from ..graph.graph import Graph, Node, Value, Values
from ..passes.materialize import boxes_to_copy_outside_update
from ..passes.simplify import rewrite_nodes
from .groups import FusionCover, OpenFusionGroup

STRETCH = 256  # elements along which vectors run, at least: a shorter row fills few of them
SPLIT_ELEMENTS = 1 << 24  # elements of a sum that is worth kernels for strips at its edges
BLOCK_COLUMNS = 128  # that a block of a reduction over other axes has
SUMMED_ROW, SUMMED_ELEMENTS = 512, 1 << 23  # elements of rows, and of all, whose sums over rows begin with them
COLUMNS = 512  # neighbouring columns that one core or block sweeps


class ReductionsAbove:
    """For each node the reductions that it is computed from, as bits: which of them a group could still take in."""

    def __init__(self, graph: Graph) -> None:
        self.kinds: dict[tuple[tuple[int, ...], frozenset[int]], int] = {}  # (shape, axes) of a reduction -> its bit
        self.bits: list[int] = []
        for node in graph.nodes:
            bits, kind = 0, node.kind
            if kind not in ("library", "assembly"):
                for arg in node.args:
                    bits |= self.bits[arg]
            if kind == "reduce":
                key = graph.nodes[node.args[0]].shape, frozenset(node.attr("axes"))
                bits |= 1 << self.kinds.setdefault(key, len(self.kinds))
            self.bits.append(bits)

    def rows_to_reduce_first(self, node: Node, graph: Graph, model: WorkCostModel) -> frozenset[int] | None:
        """Some of its axes, over which what it reduces was reduced before, in rows that a kernel keeps."""
        source, axes = node.args[0], frozenset(node.attr("axes"))
        shape, dtype = graph.nodes[source].shape, graph.nodes[source].dtype
        if COMBINERS[node.op].carries_index or dtype.itemsize < 4 or dtype != node.dtype:
            return None  # sums of float16 are rounded once
        found = [
            rows
            for (its, rows), bit in self.kinds.items()
            if its == shape
            and rows < axes
            and self.bits[source] >> bit & 1
            and rereading_rows_costs_little(shape, rows, model)
        ]
        return max(found, key=len, default=None)

    def may_join(self, group: OpenFusionGroup, axes: frozenset[int]) -> bool:
        """Whether the group may still take in a reduction over other axes than these, or of a larger array."""
        found = 0
        for number in group.maps:
            if number not in group.computes:
                found |= self.bits[number]
        size = math.prod(group.domain)
        return any(
            found >> bit & 1 and math.prod(shape) >= size and (shape, moved) != (group.domain, axes)
            for (shape, moved), bit in self.kinds.items()
        )


def split_row_reductions_for_fusion(graph: Graph, model: WorkCostModel) -> Graph:
    """sum(f(x, sum(x, 1)), (0, 1)) -> sum(sum(f(x, sum(x, 1)), 1), 0): what is computed from reductions of rows that a
    kernel keeps is reduced with them, and not read again. Rounding differs as between any two orders of a sum."""
    reduces = [n for n in graph.nodes if n.kind == "reduce"]
    above = ReductionsAbove(graph)
    rows_of_each = [above.rows_to_reduce_first(n, graph, model) for n in reduces]
    if not any(rows_of_each):
        return graph
    following = iter(rows_of_each)

    def split(builder: GraphBuilder, node: Node, args: Values) -> Value | None:
        rows = next(following) if node.kind == "reduce" else None
        if not rows:
            return None
        shape, dtype = args[0].shape, node.dtype
        kept = [i for i in range(len(shape)) if i not in rows]
        part = builder.reduce(node.op, args[0], sorted(rows), dtype)
        return builder.reduce(node.op, part, [at for at, i in enumerate(kept) if i in node.attr("axes")], dtype)

    return rewrite_nodes(graph, split)


def reduce_axis_by_axis(graph: Graph, model: WorkCostModel) -> Graph:
    """sum(x, (0, 1)) -> sum(sum(x, 1), 0), where parts of the first axis, of which each is reduced by itself, do not
    fill the machine. What is rounded to 16 bits is rounded once."""

    def staged(builder: GraphBuilder, op: str, x: Value, axes: Sequence[int], dtype: Any) -> Value:
        first = _axes_to_reduce_last(x.shape, axes, model)
        if not first:
            return builder.reduce(op, x, axes, dtype)
        part = staged(builder, op, x, axes[first:], dtype)
        return builder.reduce(op, part, axes[:first], dtype)

    reduces = [n for n in graph.nodes if n.kind == "reduce"]
    rows = {(graph.nodes[n.args[0]].shape, frozenset(n.attr("axes"))) for n in reduces}

    def rule(builder: GraphBuilder, node: Node, args: Values) -> Value | None:
        if node.kind != "reduce" or COMBINERS[node.op].carries_index:
            return None
        axes, dtype = node.attr("axes"), node.dtype
        if not _axes_to_reduce_last(args[0].shape, axes, model):
            return None
        if any(its == args[0].shape and may_begin_with_rows(its, row, frozenset(axes), model) for its, row in rows):
            return None
        half = dtype_kind(dtype) == "f" and dtype.itemsize == 2
        return builder.cast(staged(builder, node.op, args[0], axes, FLOAT32 if half else dtype), dtype)

    return rewrite_nodes(graph, rule)


def _axes_to_reduce_last(shape: Sequence[int], axes: Sequence[int], model: WorkCostModel) -> int:
    """How many of the axes are reduced once the others are; 0 where all are at once."""
    if len(axes) < 2:
        return 0
    rows, length = (math.prod(n for i, n in enumerate(shape) if (i in axes) is inside) for inside in (False, True))
    if len(shape) - 1 in axes:
        if length <= model.split_length or not 0 < rows * shape[axes[0]] < model.parallelism:
            return 0
        return max((n for n in range(1, len(axes)) if math.prod(shape[i] for i in axes[n:]) >= STRETCH), default=1)
    busy = rows // max(shape[-1], 1) * -(-shape[-1] // BLOCK_COLUMNS)
    return int(length >= model.column_length and 0 < busy * shape[axes[0]] < model.parallelism)


def split_sums_around_insides(graph: Graph) -> Graph:
    """sum(v) -> sum(v[1:-1]) + the sums of strips around it, where shifted views of that inside are read of what v is
    computed of: the inside of a large stencil and the sum that it is the gradient of can be one kernel."""
    insides = {n: inside for n in graph.nodes if n.op == "sum" and (inside := _inside_of_sum(graph, n)) is not None}
    if not insides:
        return graph

    def split(builder: GraphBuilder, node: Node, args: Values) -> Value | None:
        if node not in insides:
            return None
        (starts, shape), value = insides[node], args[0]
        ones = (1,) * len(shape)
        strips = boxes_to_copy_outside_update(value.shape, starts, ones, shape)
        boxes = [*strips, (starts, shape)]  # the kernel of the last one adds them up
        parts = [builder.slice(value, first, ones, lengths) for first, lengths in boxes]
        sums = [builder.reduce("sum", part, range(len(shape)), node.dtype) for part in parts]
        return functools.reduce(lambda a, b: builder.map("add", a, b), sums)

    return rewrite_nodes(graph, split)


Box = tuple[tuple[int, ...], tuple[int, ...]]


def _inside_of_sum(graph: Graph, node: Node) -> Box | None:
    """The start and shape of the inside of what a sum of all elements adds up."""
    shape = graph.nodes[node.args[0]].shape
    if len(node.attr("axes")) != len(shape) or math.prod(shape) < SPLIT_ELEMENTS or node.dtype.char not in "fd":
        return None
    above = _elementwise_nodes_above(graph, node.args[0])
    starts: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for view in graph.nodes:
        if view.op == "slice" and graph.nodes[view.args[0]].shape == shape != view.shape:
            same = all(step == 1 for step in view.attr("steps")) and 4 * view.type.size >= 3 * math.prod(shape)
            if same and not above.isdisjoint(_elementwise_nodes_above(graph, view.args[0])):
                starts.setdefault(view.shape, []).append(view.attr("starts"))
    inside, views = max(starts.items(), key=lambda item: len(item[1]), default=((), []))
    if len(views) < 2:
        return None
    return tuple([(min(s) + max(s)) // 2 for s in zip(*views, strict=True)]), inside


def _elementwise_nodes_above(graph: Graph, number: int) -> set[int]:
    """A node and those of its shape that it is computed from element by element, as far as kernels compute them."""
    shape, found, todo = graph.nodes[number].shape, set[int](), [number]
    while todo and len(found) < 64:
        node = graph.nodes[at := todo.pop()]
        if at not in found and node.shape == shape and node.kind == "map":
            found.add(at)
            todo += node.args
    return found


def fits_reduction_loop(
    cover: FusionCover, stores: OpenFusionGroup, reduces: OpenFusionGroup, model: WorkCostModel, windows: bool
) -> bool:
    """Whether what `stores` computes element by element costs no more in the loop of `reduces`, over the same domain.

    It does where it reads transposed, where memory that either touches is assigned to, or where the loop's rows are
    short or few. windows: the target reads shifted views of an array once; in reductions where rows of the array are
    reduced, and long."""
    if any(n in cover.written_over or n in cover.writes_over for n in (*stores.maps, *reduces.maps)):
        return False
    domain, reduced = stores.domain, reduces.reduced
    inner = max((i for i, n in enumerate(domain) if n != 1), default=-1)
    swept = inner in reduced and math.prod(domain[i] for i in reduced) >= SWEPT_ELEMENTS
    for number, maps in stores.maps.items():
        for m in maps:
            moving = [axis for axis, _, _ in m if axis >= 0]
            if moving != sorted(moving):
                return False
        if windows and not swept and len(maps) > max(1, len(reduces.maps.get(number, ()))):
            return False
    return _fused_loop_fills_machine(domain, reduced, model)


def _fused_loop_fills_machine(domain: tuple[int, ...], axes: frozenset[int], model: WorkCostModel) -> bool:
    """Whether a reduction's vectors are full and its rows, or the pieces they are cut into, occupy all cores."""
    if math.prod(domain) <= SMALL:
        return True
    long = [i for i, n in enumerate(domain) if n != 1]
    inner = long[-1] in axes
    stretch = 1
    for i in reversed(long):
        if (i in axes) != inner:
            break
        stretch *= domain[i]
    if stretch < STRETCH:
        return False
    length, rows = (math.prod(domain[i] for i in long if (i in axes) is reduced) for reduced in (True, False))
    units = rows if inner else rows // COLUMNS
    return units >= model.parallelism or length > model.split_length


def may_begin_with_rows(
    shape: tuple[int, ...], rows: frozenset[int], sums: frozenset[int], model: WorkCostModel
) -> bool:
    """Whether the axes `rows` are rows that a block keeps, and `sums` all other axes. The array is too large to be read
    again from a cache."""
    long, *others = [i for i in range(len(shape) - 1, -1, -1) if shape[i] != 1] or [0]
    apart = long in rows and rows.isdisjoint(others) and sums.issuperset(others) and long not in sums
    return apart and SUMMED_ROW <= shape[long] <= model.summed_row and math.prod(shape) >= SUMMED_ELEMENTS
