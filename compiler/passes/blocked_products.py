"""Graph -> Graph: what is computed of a large product and then multiplied or summed away, in blocks of its rows.

Scores of attention have as many elements as there are pairs of a query and a key, what is made of them has few. A loop
computes a block of all of it after the other, so that no more than a block is ever in memory (Rabe and Staats,
Self-attention does not need O(n^2) memory, 2021); of a gradient, whose cotangents come once the results are there, a
second loop computes the scores again (Chen, Xu, Zhang and Guestrin, Training deep nets with sublinear memory cost,
2016). Found by what it is made of, however it is written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from ...runtime.core.frozen import dataclass
from ..core.types import ArrayType
from ..graph.builder import GraphBuilder
from ..graph.control_flow import ITERATION, Loop, Window, add_body_scalar, add_control_flow_node
from ..graph.graph import Graph, Node, Value

THIN = 8  # rows and columns of a product are so many times longer than its sums
LEAST_BLOCKS = 4
LEAST_ROWS = 64  # of a block of one product
WIDE_ROWS = 256  # of one that multiplies much: fewer would read what it is multiplied with more often than it pays
LITTLE = 16  # a product that multiplies much is at least so many times as large as all that is made of it


def compute_large_products_in_blocks(graph: Graph, block_bytes: int) -> Graph:
    """softmax(q @ k.T) @ v -> a loop over blocks of q's rows. block_bytes: about how large a block of one array is."""
    refused: set[Node] = set()
    while True:
        seed = next((n for n in graph.nodes if n not in refused and _is_large_product(n, block_bytes)), None)
        if seed is None:
            return graph
        thin = _is_thin_product(graph, seed)
        axes = [i for i, n in enumerate(seed.shape) if n > 1]
        regions = (_region_of_product(graph, seed, axis) for axis in dict.fromkeys((axes[0], *axes[-2:])))
        writers = (
            _BlockedRegionWriter(graph, region, block_bytes, LEAST_ROWS if thin else WIDE_ROWS)
            for region in regions
            if region is not None
        )
        writer = next((w for w in writers if (w.has_small_results() if thin else w.has_little_results())), None)
        if writer is None:
            refused.add(seed)
        else:
            graph = writer.written_graph()


def _is_large_product(node: Node, block_bytes: int) -> bool:
    """Whether it is a matrix product with more elements than fit into some blocks."""
    return node.op == "matmul" and not node.attrs and node.type.nbytes >= LEAST_BLOCKS * block_bytes


def _is_thin_product(graph: Graph, node: Node) -> bool:
    """Whether it has many more elements than what is multiplied."""
    rows, columns, long = *node.shape[-2:], graph.nodes[node.args[0]].shape[-1]
    return long > 0 and min(rows, columns) >= THIN * long


@dataclass(frozen=True)
class _BlockedRegion:
    """axes: node -> which of its axes is cut into blocks, for all that is computed block by block; sums: those that add
    up what blocks give; phase: node -> in which of the loops, one after another, it is computed; length: of the axis;
    size: elements of a large array."""

    graph: Graph
    seed: int
    axes: Mapping[int, int]
    sums: frozenset[int]
    phase: Mapping[int, int]
    length: int
    size: int

    def __contains__(self, number: int) -> bool:
        return number in self.axes or number in self.sums

    def is_large(self, number: int) -> bool:
        return self.graph.nodes[number].size >= self.size

    def nodes_used_outside(self) -> Iterator[int]:
        """The sums, and what the rest of the graph takes."""
        for number in sorted({*self.axes, *self.sums}):
            inner = sum(u in self for u in self.graph.users[number])
            if number in self.sums or inner < len(self.graph.users[number]) or number in self.graph.outputs:
                yield number


def _region_of_product(graph: Graph, seed: Node, axis: int) -> _BlockedRegion | None:
    """All that is made of a product along an axis up to where it is small again; None where that is needed as a
    whole."""
    start, shape = graph.nodes.index(seed), seed.shape
    walk = _RegionWalk(graph, start, axis)
    if not all(map(walk.visit_node, range(len(graph.nodes)))):
        return None
    kept = walk.nodes_worth_blocks()
    return _BlockedRegion(
        graph,
        start,
        {n: a for n, a in walk.axes.items() if n in kept},
        frozenset(walk.sums & kept),
        walk.phase,
        shape[axis],
        seed.size,
    )


class _RegionWalk:
    """Follows the axis of one product through the graph, in the order of the nodes.

    phase: node of the region -> the loop that computes it; ready: other node -> the first loop that may read it."""

    def __init__(self, graph: Graph, seed: int, axis: int) -> None:
        self.graph, self.seed, self.axis = graph, seed, axis
        self.size, self.length = graph.nodes[seed].size, graph.nodes[seed].shape[axis]
        self.axes: dict[int, int] = {}
        self.sums: set[int] = set()
        self.phase: dict[int, int] = {}
        self.ready: dict[int, int] = {}

    def is_large(self, number: int) -> bool:
        return self.graph.nodes[number].size >= self.size

    def visit_node(self, number: int) -> bool:
        """False where a large array is needed as a whole."""
        node = self.graph.nodes[number]
        cut = {a: self.axes[a] for a in node.args if a in self.axes}
        phase = max((self.phase[a] if a in cut else self.ready[a] for a in node.args), default=0)
        if number == self.seed:
            self.axes[number], self.phase[number] = self.axis, phase
            return True
        axis = self.axis_of_result(node, cut) if cut else None
        if axis is None:
            self.ready[number] = max((self.ready.get(a, self.phase.get(a, 0) + 1) for a in node.args), default=0)
            return not any(map(self.is_large, cut))
        self.phase[number] = phase
        if axis == SUMMED:
            self.sums.add(number)
            self.ready[number] = phase + 1
        else:
            self.axes[number] = axis
        return True

    def axis_of_result(self, node: Node, cut: Mapping[int, int]) -> int | None:
        """Which axis of a result is that of the rows; SUMMED where it is summed over; None where it is neither."""
        rule = _AXES.get(node.op, _AXES_OF_KINDS.get(node.kind))
        if rule is None:
            return None
        if node.op == "matmul" and not any(map(self.is_large, cut)) and node.size < self.size:
            return None  # the next layer
        axis = rule(node, [self.graph.nodes[a] for a in node.args], [cut.get(a) for a in node.args])
        if axis == SUMMED:
            return SUMMED if node.dtype.kind in "fc" and node.dtype.itemsize >= 4 else None
        return axis if axis is None or node.shape[axis] == self.length else None

    def nodes_worth_blocks(self) -> set[int]:
        """Large arrays, what is made of one at once, and what lies between."""
        kept: set[int] = set()
        for number in sorted({*self.axes, *self.sums}, reverse=True):
            args = [a for a in self.graph.nodes[number].args if a in self.axes]
            used = number in self.axes and any(u in kept for u in self.graph.users[number])
            if used or any(map(self.is_large, (number, *args))):
                kept.add(number)
        return kept


# what becomes of the axis that is cut: rules by op, of a node, its arguments, and for each the axis that is cut
SUMMED = -1
AxisRule = Callable[[Node, Sequence[Node], Sequence[int | None]], int | None]


def _axis_through_map(node: Node, args: Sequence[Node], cut: Sequence[int | None]) -> int | None:
    rank = node.ndim
    found = {a + rank - arg.ndim for arg, a in zip(args, cut, strict=True) if a is not None}
    return found.pop() if len(found) == 1 else None


def _axis_through_reduction(node: Node, args: Sequence[Node], cut: Sequence[int | None]) -> int | None:
    axes: tuple[int, ...] = node.attr("axes")
    (axis,) = cut
    if axis is None or axis in axes:
        return SUMMED if node.op == "sum" else None
    return axis - sum(a < axis for a in axes)


def _axis_through_matmul(node: Node, args: Sequence[Node], cut: Sequence[int | None]) -> int | None:
    rank = node.ndim
    ends = [None if a is None else a - arg.ndim for arg, a in zip(args, cut, strict=True)]
    match ends:
        case (-2, None):
            return rank - 2
        case (None, -1):
            return rank - 1
        case (-1, None | -2) | (None, -2):
            return SUMMED
    batch = {end for end in ends if end is not None}
    return rank + batch.pop() if len(batch) == 1 and max(e for e in ends if e is not None) < -2 else None


def _axis_through_permute(node: Node, args: Sequence[Node], cut: Sequence[int | None]) -> int | None:
    return None if cut[0] is None else tuple(node.attr("axes")).index(cut[0])


def _axis_through_slice(node: Node, args: Sequence[Node], cut: Sequence[int | None]) -> int | None:
    (axis,) = cut
    return axis if axis is not None and node.attr("steps")[axis] == 1 else None


def _axis_through_reshape(node: Node, args: Sequence[Node], cut: Sequence[int | None]) -> int | None:
    found = -1 if cut[0] is None else _axis_kept_by_reshape(args[0].shape, node.shape, cut[0])
    return found if found >= 0 else None


def _axis_through_gather(node: Node, args: Sequence[Node], cut: Sequence[int | None]) -> int | None:
    """Where nothing is looked up along it."""
    if cut[0] is None or cut[0] in node.attr("axes") or any(axis is not None for axis in cut[1:]):
        return None
    rest: int = node.attr("rest")[_axes_of_rest(node, args[0].ndim).index(cut[0])]
    return rest


def _axes_of_rest(node: Node, rank: int) -> list[int]:
    """The axes of an array along which a gather looks nothing up."""
    return [axis for axis in range(rank) if axis not in node.attr("axes")]


_AXES: dict[str, AxisRule] = {
    "gather": _axis_through_gather,
    "matmul": _axis_through_matmul,
    "permute": _axis_through_permute,
    "slice": _axis_through_slice,
    "broadcast": _axis_through_map,
    "reshape": _axis_through_reshape,
}
_AXES_OF_KINDS: dict[str, AxisRule] = {"map": _axis_through_map, "reduce": _axis_through_reduction}


def _axis_of_argument(nodes: Sequence[Node], node: Node, place: int, axis: int) -> int | None:
    """Which axis of an argument is cut where that one of a result is (SUMMED: the one that it sums over). None where
    all of the argument is needed."""
    shape, arg = node.shape, nodes[node.args[place]].shape
    if axis == SUMMED:
        return len(arg) - (1, 2)[place]
    if node.op == "matmul":
        found = -1 if axis - len(shape) == (-1, -2)[place] else axis + len(arg) - len(shape)
    elif node.op == "gather" and not place:
        found = dict(zip(node.attr("rest"), _axes_of_rest(node, len(arg)), strict=True)).get(axis, -1)
    elif node.op == "permute":
        found = node.attr("axes")[axis]
    elif node.op == "reshape":
        found = _axis_kept_by_reshape(shape, arg, axis)
    else:
        found = axis + len(arg) - len(shape)
    return found if found >= 0 and arg[found] == shape[axis] else None


def _axis_kept_by_reshape(shape: Sequence[int], other: Sequence[int], axis: int) -> int:
    """The axis of as many elements that has as many before it; -1 for none."""
    before, length = math.prod(shape[:axis]), shape[axis]
    return next((i for i, n in enumerate(other) if n == length and math.prod(other[:i]) == before), -1)


Use = tuple[int, "int | None"]  # a node, and which of its axes is cut


class _BlockedRegionWriter:
    """Writes a graph anew, with loops in the place of a region."""

    def __init__(self, graph: Graph, region: _BlockedRegion, block_bytes: int, least: int) -> None:
        """least: rows of a block."""
        self.graph, self.region = graph, region
        row = graph.nodes[region.seed].type.nbytes // region.length
        batch = region.axes[region.seed] < graph.nodes[region.seed].ndim - 2
        self.rows = min(region.length, max(1 if batch else least, block_bytes // row))
        self.free = _nodes_made_of_nothing(graph)
        self.inlined = self._nodes_that_only_blocks_need(block_bytes)
        self.results: dict[int, list[int]] = {}
        self.uses: dict[int, list[Use]] = {}
        for number in region.nodes_used_outside():
            self.results.setdefault(region.phase[number], []).append(number)
        for phase in range(max(self.results, default=-1), -1, -1):
            self._plan_loop(phase)
        self.builder, self.new = GraphBuilder(graph.name), dict[int, Value]()
        self.line = ""
        self.builder.where = lambda: self.line

    def _plan_loop(self, phase: int) -> None:
        """What a loop computes and takes. What it takes of an earlier one is a result of that."""
        self.uses[phase] = self._uses_of_loop(phase)
        for number, _ in self._outer_uses(phase):
            if number in self.region:
                before = self.results.setdefault(self.region.phase[number], [])
                before += [] if number in before else [number]

    def has_small_results(self) -> bool:
        """Whether there are results, and no large one among them."""
        taken = [n for numbers in self.results.values() for n in numbers]
        return bool(taken) and not any(map(self.region.is_large, taken))

    def has_little_results(self) -> bool:
        """Whether the blocks of one loop give next to nothing, sums counted as often as blocks are added to them."""
        region = self.region
        blocks = region.length // self.rows
        sizes = {n: self.graph.nodes[n].size for numbers in self.results.values() for n in numbers}
        written = sum(size * (blocks if n in region.sums else 1) for n, size in sizes.items())
        return 0 < written * LITTLE <= region.size and [*self.results] == [0] and blocks >= LEAST_BLOCKS

    def written_graph(self) -> Graph:
        graph, builder = self.graph, self.builder
        for number in sorted((*graph.inputs, *graph.numbers)):
            node = graph.nodes[number]
            if node.op == "input":
                self.new[number] = builder.input(node.type)
            else:
                self.new[number] = add_body_scalar(builder, node.type)
        todo = list(reversed(graph.outputs))
        while todo:
            number = todo[-1]
            phase = self.region.phase[number] if number in self.region else None
            before = graph.nodes[number].args if phase is None else [n for n, _ in self._outer_uses(phase)]
            missing = [n for n in before if n not in self.new]
            if number in self.new or not missing:
                todo.pop()
                if number not in self.new:
                    self._write_node(number, phase)
            todo += missing if number not in self.new else ()
        return builder.finish([self.new[o] for o in graph.outputs])

    def _write_node(self, number: int, phase: int | None) -> None:
        self.line = self.graph.lines[number] if self.graph.lines else ""
        if phase is None:
            node = self.graph.nodes[number]
            self.new[number] = self.builder.copy(node, [self.new[a] for a in node.args])
        else:
            self._write_loop(phase)

    # what a loop needs

    def _nodes_that_only_blocks_need(self, block_bytes: int) -> dict[int, int]:
        """Large arrays that are made outside of a region for it alone, each with the axis that is cut."""
        found: dict[int, int] = {}
        for number in range(len(self.graph.nodes) - 1, -1, -1):
            node, users = self.graph.nodes[number], self.graph.users[number]
            if number in self.region or node.type.nbytes < block_bytes or number in self.graph.outputs:
                continue
            if not (node.op == "matmul" or node.kind == "map" or node.op in ("broadcast", "permute")):
                continue
            if not users or not all(u in self.region or u in found for u in users):
                continue
            axes = {axis for u in users for n, axis in self._uses_of_node(u, self._axis_of(u, found)) if n == number}
            axis = axes.pop() if len(axes) == 1 else None
            if axis is not None:
                found[number] = axis
        return found

    def _axis_of(self, number: int, inlined: Mapping[int, int]) -> int:
        return SUMMED if number in self.region.sums else self.region.axes.get(number, inlined.get(number, SUMMED))

    def _uses_of_node(self, number: int, axis: int | None) -> Iterator[Use]:
        """The arguments of a node whose axis is cut, or of all of it, each with the axis that is cut there."""
        node = self.graph.nodes[number]
        for place, arg in enumerate(node.args):
            if axis is None:
                yield arg, None
            elif arg in self.region.axes and number in self.region:
                yield arg, self.region.axes[arg]
            else:
                yield arg, _axis_of_argument(self.graph.nodes, node, place, axis)

    def _is_written_in_loop(self, use: Use, phase: int) -> bool:
        """Whether a loop computes it, rather than takes it from outside."""
        number, axis = use
        region, node = self.region, self.graph.nodes[number]
        if number in region.sums:
            return region.phase[number] == phase and axis == SUMMED
        if number in region.axes:
            return axis == region.axes[number] and (region.phase[number] == phase or region.is_large(number))
        if number in self.free:
            kept = (
                node.op != "reshape" or axis is None or _axis_of_argument(self.graph.nodes, node, 0, axis) is not None
            )
            return kept and (node.op != "slice" or axis is None)
        return axis is not None and self.inlined.get(number) == axis

    def _uses_of_loop(self, phase: int) -> list[Use]:
        """All that a loop computes or takes, in the order of the nodes."""
        todo: list[Use] = [(n, self._axis_of(n, {})) for n in self.results.get(phase, ())]
        found = set[Use]()
        while todo:
            use = todo.pop()
            if use not in found:
                found.add(use)
                todo += self._uses_of_node(*use) if self._is_written_in_loop(use, phase) else ()
        return sorted(found, key=lambda use: (use[0], -2 if use[1] is None else use[1]))

    def _outer_uses(self, phase: int) -> list[Use]:
        """What a loop takes from outside."""
        return [use for use in self.uses[phase] if not self._is_written_in_loop(use, phase)]

    # writing

    def _write_loop(self, phase: int) -> None:
        """The whole blocks in a loop, and the rows that are left behind it."""
        region, builder = self.region, self.builder
        count, rest = divmod(region.length, self.rows)
        results = self._write_whole_blocks(phase, count) if count else {}
        if rest:
            start = count * self.rows

            def sliced(use: Use) -> Value:
                number, axis = use
                value = self.new[number]
                if axis is None:
                    return value
                starts = [start if i == axis else 0 for i in range(value.ndim)]
                return builder.slice(value, starts, (1,) * len(starts), _cut_shape(value.type, axis, rest).shape)

            last = self._write_block(builder, phase, rest, builder.const(start), sliced)
            for number, value in last.items():
                if number not in results:
                    results[number] = value
                elif number in region.sums:
                    results[number] = builder.map("add", results[number], value)
                else:
                    results[number] = builder.concat([results[number], value], region.axes[number])
        self.new |= results

    def _write_whole_blocks(self, phase: int, count: int) -> dict[int, Value]:
        region, graph, outer = self.region, self.graph, self._outer_uses(phase)
        numbers = [use for use in outer if graph.nodes[use[0]].op == "number"]
        windows = [use for use in outer if use[1] is not None]
        others = [use for use in outer if use[1] is None and use not in numbers]
        sums = [n for n in self.results[phase] if n in region.sums]
        stacked = [n for n in self.results[phase] if n not in region.sums]
        body = GraphBuilder("body")
        body.where = lambda: self.line
        totals = [body.input(graph.nodes[n].type) for n in sums]
        given = {use: body.input(_cut_shape(self.new[use[0]].type, use[1], self.rows)) for use in (*windows, *others)}
        turn = add_body_scalar(body, ITERATION)
        given |= {use: add_body_scalar(body, graph.nodes[use[0]].type) for use in numbers}
        start = body.map("multiply", turn, self.rows)
        made = self._write_block(body, phase, self.rows, start, given.__getitem__)
        ends = [body.map("add", total, made[n]) for total, n in zip(totals, sums, strict=True)]
        moves = tuple(
            Window((0,) * rank, (1,) * rank, tuple(self.rows if i == axis else 0 for i in range(rank)))
            for number, axis in windows
            for rank in [graph.nodes[number].ndim]
        )
        loop = Loop(body.finish([*ends, *(made[n] for n in stacked)]), len(sums), moves, count)
        builder = self.builder
        zeros = [builder.broadcast(builder.const(0, v.dtype), v.shape) for v in totals]
        found = add_control_flow_node(builder, loop, [*zeros, *(self.new[n] for n, _ in (*windows, *others, *numbers))])
        joined = [
            self._join_stacked_blocks(v, region.axes[n]) for v, n in zip(found[len(sums) :], stacked, strict=True)
        ]
        return dict(zip((*sums, *stacked), (*found[: len(sums)], *joined), strict=True))

    def _join_stacked_blocks(self, value: Value, axis: int) -> Value:
        """(blocks, ..., rows, ...) -> (..., blocks * rows, ...)"""
        count, *shape = value.shape
        order = (*range(1, axis + 1), 0, *range(axis + 1, value.ndim))
        turned = value if math.prod(shape[:axis]) == 1 else self.builder.permute(value, order)
        return self.builder.reshape(turned, (*shape[:axis], count * shape[axis], *shape[axis + 1 :]))

    def _write_block(
        self, builder: GraphBuilder, phase: int, rows: int, start: Value, given: Callable[[Use], Value]
    ) -> dict[int, Value]:
        """The results of some rows, from the row `start` on, in a builder. given: what comes from outside, cut."""
        made: dict[Use, Value] = {}
        for use in self.uses[phase]:
            number, axis = use
            node = self.graph.nodes[number]
            if not self._is_written_in_loop(use, phase):
                made[use] = given(use)
                continue
            args = [made[each] for each in self._uses_of_node(number, axis)]
            type = node.type if axis in (None, SUMMED) else _cut_shape(node.type, axis, rows)
            made[use] = builder.copy(node, args, type)
            if node.op == "index" and node.attr("axis") == axis:
                made[use] = builder.map("add", made[use], start)
        return {n: made[n, self._axis_of(n, {})] for n in self.results.get(phase, ())}


def _cut_shape(type: ArrayType, axis: int | None, rows: int) -> ArrayType:
    return ArrayType(tuple(rows if i == axis else n for i, n in enumerate(type.shape)), type.dtype)


def _nodes_made_of_nothing(graph: Graph) -> set[int]:
    """Constants, indices, and what is made of them alone."""
    found = set[int]()
    for number, node in enumerate(graph.nodes):
        made = node.kind == "map" or node.op in ("broadcast", "permute", "reshape", "slice")
        if node.op in ("const", "index") or (made and all(a in found for a in node.args)):
            found.add(number)
    return found
