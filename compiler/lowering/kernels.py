"""One group -> its kernels: what is evaluated at which loop, and long reductions cut into two stages."""

from __future__ import annotations

import math
from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from ...runtime.core.frozen import dataclass, field
from ...runtime.program.program import Argument, Buffer
from ..core.types import DType
from ..fusion.groups import Group
from ..graph.graph import Graph
from ..layout.index_maps import (
    Map,
    contiguous_strides,
    depends_on_axes,
    identity_index_map,
    is_memory_view,
    is_view_node,
    map_through_node,
    pointwise_index_maps,
)
from ..layout.operands import BufferLocation, IterationDomain, OperandAccess, PlacedLoopNest, reduction_dtypes
from ..ops.table import OPS
from ..targets.target import Target
from .emit import LoopNestLowering
from .gathers import IndexErrorReports

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
    level: dict[int, int] = field(default_factory=dict)
    reduced: frozenset[int] = frozenset()
    inside: frozenset[int] = frozenset()
    buffers: list[Buffer] = field(default_factory=list)
    depends_on_constants: bool = False  # whether its kernels depend on the values of constants
    reports: IndexErrorReports = field(init=False)

    def __post_init__(self) -> None:
        self.reports = IndexErrorReports(self.target)

    def lowered_nests(
        self, buffers: list[Buffer]
    ) -> Iterator[tuple[PlacedLoopNest, list[OperandAccess], tuple[Argument, ...]]]:
        """Each kernel: its form and sizes, its operands, and the arguments that follow the sizes and strides."""
        self.buffers = buffers
        self._collect_evaluations()
        split = self._reduction_part_count()
        if split is None:
            yield LoopNestLowering(self, self._iteration_domain()).lower_whole_group()
        else:
            yield from self._build_two_stage_reduction(split, buffers)

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
            self.need.setdefault(number, {})[self.index_map_of_stored_node(number)] = None
        todo = [-n for n in self.need]  # the last node first: those that use a node come before it
        heapify(todo)

        def add_evaluation(number: int, m: Map) -> None:
            if number not in self.need:
                self.need[number] = {}
                heappush(todo, -number)
            self.need[number][m] = None

        while todo:
            number = -heappop(todo)
            if not self.is_evaluated_inline(number, inside):
                continue
            node = nodes[number]
            for m in tuple(self.need[number]):
                if OPS[node.op].kind == "reduce":
                    add_evaluation(node.args[0], identity_index_map(domain))
                else:
                    for arg in pointwise_index_maps(node):
                        add_evaluation(arg, map_through_node(node, nodes[arg].type, m))
        for number in sorted(self.need):
            node = nodes[number]
            below = (
                [self.level[a] for a in pointwise_index_maps(node)] if self.is_evaluated_inline(number, inside) else []
            )
            step = 1 if number in inside and OPS[node.op].kind == "reduce" else 0
            self.level[number] = max(below, default=0) + step

    def is_evaluated_inline(self, number: int, inside: frozenset[int]) -> bool:
        """Whether the node is computed here from its arguments (else it is loaded or a source)."""
        node = self.graph.nodes[number]
        if not is_view_node(node):
            return number in inside
        return not is_memory_view(node, self.graph.nodes[node.args[0]].type)

    def index_map_of_stored_node(self, number: int) -> Map:
        """Where the domain computes a stored node: once per row, or at every iteration."""
        shape, domain = self.graph.nodes[number].type.shape, self.group.domain
        full = [i for i, n in enumerate(domain) if n != 1]
        rows = [i for i in full if i not in self.group.reduced]
        moving = [n for n in shape if n != 1]
        axes = iter(rows if [domain[i] for i in rows] == moving else full)
        return tuple((next(axes), 1, 0) if n != 1 else (-1, 0, 0) for n in shape)

    def reductions_of_level(self, level: int) -> list[int]:
        """Reduce nodes that loop `level` completes."""
        return [
            n for n in sorted(self.need) if n in self.inside and OPS[self.graph.nodes[n].op].kind == "reduce"
            and self.level[n] == level + 1
        ]  # fmt: skip

    def stores_of_each_iteration(self) -> list[int]:
        """Stored nodes with an element at each iteration."""
        return [n for n in self.group.stores if depends_on_axes(self.index_map_of_stored_node(n), self.reduced)]

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
        longest = model.split_length if columns == 1 else model.split_length // 2 - 1
        if rows == 0 or length <= longest or busy >= model.parallelism // 2:
            return None
        parts = min(max(2, 2 * model.parallelism // busy), length // (model.split_length // 16), outer)
        if parts < 2:
            return None
        return (
            _equal_reduction_parts(outer, parts) if columns == 1 else parts
        )  # blocks of columns: every multiprocessor has as many

    def _build_two_stage_reduction(
        self, parts: int, buffers: list[Buffer]
    ) -> Iterator[tuple[PlacedLoopNest, list[OperandAccess], tuple[Argument, ...]]]:
        """Partial results of `parts` equal pieces (and a last shorter one), then their reduction and the epilogue."""
        domain = self._iteration_domain()
        axis = domain.reduced[0]
        total = domain.sizes[axis]
        length = total // parts
        if length >= 64:
            length -= length % ALIGNED  # pieces start aligned where rows of the array do
        if total - parts * length > length:  # one block would have more to do than all others: as many, or fewer, parts
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

    def _partial_dtypes(self) -> list[DType]:
        found: list[DType] = []
        for number in self.reductions_of_level(0):
            for dtype in reduction_dtypes(self.graph, number):
                found.append(dtype)
        return found


def _equal_reduction_parts(total: int, parts: int) -> int:
    """A few parts less where they are then equal and leave no rest, which would be a launch of its own."""
    for fewer in range(parts, max(1, 3 * parts // 4), -1):
        length, rest = divmod(total, fewer)
        if not rest and (length < 64 or length % ALIGNED == 0):
            return fewer
    return parts
