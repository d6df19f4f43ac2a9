"""A loop or branch node in, its Task out: the body planned once, buffers for what it carries, and what it touches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...runtime.core.frozen import replace
from ...runtime.program.control_flow import FRESH, Branch, Loop, loop_pool_sizes
from ...runtime.program.plan import Plan
from ...runtime.program.program import Argument, Buffer, Int, Pointer, Region, Scalar, Task
from ..core.types import ArrayType
from ..graph.control_flow import Loop as LoopNode
from ..graph.control_flow import memory_argument_count
from ..graph.graph import Graph, Node
from ..layout.index_maps import contiguous_strides
from ..layout.operands import ALIGNMENT, Place
from ..passes.materialize import MemoryLayout

PlanBody = Callable[[Graph, Sequence[MemoryLayout], frozenset[int]], Plan]
UNKNOWN_ITERATIONS = 100  # the guess for what a call decides
ITERATION_US = 0.1  # what an iteration costs beside its kernels


def refuse_loop_bodies(body: Graph, layouts: Sequence[MemoryLayout], loose: frozenset[int]) -> Plan:
    raise AssertionError("nothing here can plan the body of a loop")


def node_region(node: Node, place: Place) -> Region:
    return Region(
        place.buffer, place.offset, node.type.shape, place.strides, node.type.dtype.itemsize, node.type.dtype.name
    )


def lower_control_flow(
    graph: Graph, parts: Sequence[int], places: dict[int, Place], buffers: list[Buffer], plan: PlanBody, line: str
) -> Task:
    """parts: the nodes of the results that are wanted; more buffers are appended to `buffers`."""
    return _Control(graph, parts, places, buffers, plan, line).task()


class _Control:
    def __init__(
        self,
        graph: Graph,
        parts: Sequence[int],
        places: dict[int, Place],
        buffers: list[Buffer],
        plan: PlanBody,
        line: str,
    ) -> None:
        self.graph, self.places, self.buffers, self.plan, self.line = graph, places, buffers, plan, line
        self.node = graph.nodes[parts[0]]
        self.control = self.node.attr("control")
        self.wanted = {graph.nodes[n].attr("part"): places[n] for n in parts}
        self.memory = memory_argument_count(self.node)
        self.reads: list[Region] = []
        self.writes: list[Region] = []

    def task(self) -> Task:
        return self._loop() if isinstance(self.control, LoopNode) else self._branch()

    def _loop(self) -> Task:
        node, k = self.control, self.control.carried
        body, follows = _followed(node.body, k)
        args = self.node.args
        initial = [self._read(a) for a in args[:k]]
        layouts = [MemoryLayout(contiguous_strides(t.shape, t.dtype.itemsize), aligned) for t, aligned, _ in initial]
        others, moves = [], []
        for place, number in enumerate(args[k : self.memory]):
            window = node.windows[place] if place < len(node.windows) else None
            layout, pointer, move = self._other(number, window, body.nodes[body.inputs[k + place]].type)
            layouts.append(layout)
            others.append(pointer)
            moves.append(move)
        fresh = follows.count(FRESH)
        parts = [body.nodes[o].type for o in body.outputs[fresh:]]
        odd = [t.nbytes % ALIGNMENT or not self._lies_aligned(k + i) for i, t in enumerate(parts)]
        loose = frozenset(fresh + i for i, is_odd in enumerate(odd) if is_odd)
        planned = self.plan(body, layouts, loose)
        kernel = Loop(planned, follows, (*moves, *(t.nbytes for t in parts)), node.count, node.flag)
        results = [self._write(i) for i in range(k)]
        pool = [self._temporary(size) for size in loop_pool_sizes(kernel)[0 if node.flag else k :]]
        stacked = [self._write(k + i) for i in range(len(parts))]
        arguments: list[Argument] = [p for _, _, p in initial]
        arguments += [*results, *pool] if node.flag else [*results, *results, *pool]
        arguments += [*others, *stacked, *self._workspace(planned.arena_bytes)]
        arguments += self._count(node) + self._numbers()
        iterations = UNKNOWN_ITERATIONS if node.count is None else node.count
        return self._made(f"{kernel}", kernel, arguments, iterations * (_predicted(planned) + ITERATION_US))

    def _branch(self) -> Task:
        args = self.node.args
        _, _, flag = self._read(args[0])
        layouts, inputs = [], []
        for number in args[1 : self.memory]:
            layout, pointer, _ = self._other(number, None, self.graph.nodes[number].type)
            layouts.append(layout)
            inputs.append(pointer)
        first, second = (self.plan(body, layouts, frozenset()) for body in self.control.bodies)
        outputs = [self._write(i) for i in range(len(self.control.types))]
        workspace = self._workspace(max(first.arena_bytes, second.arena_bytes))
        arguments = [flag, *inputs, *outputs, *workspace, *self._numbers()]
        cost = max(_predicted(first), _predicted(second)) + ITERATION_US
        return self._made("branch", Branch((first, second)), arguments, cost)

    def _made(self, name: str, kernel: Any, arguments: Sequence[Argument], cost: float) -> Task:
        reads, writes = tuple(dict.fromkeys(self.reads)), tuple(dict.fromkeys(self.writes))
        return Task(name, kernel, tuple(arguments), reads, writes, cost=round(cost, 3), line=self.line)

    def _read(self, number: int) -> tuple[ArrayType, bool, Pointer]:
        """What is carried: its type, whether its memory is aligned, and where it starts."""
        node, place = self.graph.nodes[number], self.places[number]
        region = node_region(node, place)
        self.reads.append(region)
        return node.type, _aligned(place, region), Pointer(region.buffer, region.span[0])

    def _other(self, number: int, window: Any, type: ArrayType) -> tuple[MemoryLayout, Pointer, int]:
        """An invariant, or what a window shows at the first iteration, and the bytes that it moves by at each."""
        place, region = self.places[number], node_region(self.graph.nodes[number], self.places[number])
        move = 0
        if window is not None:
            start = place.offset + sum(a * s for a, s in zip(window.starts, place.strides, strict=True))
            strides = tuple(s * t for s, t in zip(place.strides, window.steps, strict=True))
            move = sum(m * s for m, s in zip(window.moves, place.strides, strict=True))
            region = replace(region, offset=start, shape=type.shape, strides=strides)
            self.reads.append(replace(region, shape=(self.control.count, *type.shape), strides=(move, *strides)))
        else:
            self.reads.append(region)
        aligned = _aligned(place, region) and move % ALIGNMENT == 0
        return MemoryLayout(region.strides, aligned), Pointer(region.buffer, region.span[0]), move

    def _write(self, part: int) -> Pointer:
        """Where a result goes: its place, or a temporary where nobody wants it."""
        type = self.control.types[part]
        if part not in self.wanted:
            return self._temporary(type.nbytes)
        place = self.wanted[part]
        dense = contiguous_strides(type.shape, type.dtype.itemsize)
        assert all(s == d for s, d, n in zip(place.strides, dense, type.shape, strict=True) if n != 1)
        if type.size:
            size, name = type.dtype.itemsize, type.dtype.name
            self.writes.append(Region(place.buffer, place.offset, type.shape, place.strides, size, name))
        return Pointer(place.buffer, place.offset)

    def _lies_aligned(self, part: int) -> bool:
        place = self.wanted.get(part)
        return place is None or (place.aligned and place.offset % ALIGNMENT == 0)

    def _temporary(self, nbytes: int) -> Pointer:
        size = max(1, nbytes)  # what holds nothing has an address, too
        self.buffers.append(Buffer(size, "temp"))
        buffer = len(self.buffers) - 1
        self.writes.append(Region(buffer, 0, (size,), (1,), 1, "uint8"))
        return Pointer(buffer)

    def _workspace(self, nbytes: int) -> list[Pointer]:
        return [self._temporary(nbytes)] if nbytes else []

    def _count(self, node: LoopNode) -> list[Argument]:
        if node.flag:
            return []
        if node.count is not None:
            return [Int(node.count)]
        number = self.node.args[self.memory]
        if self.graph.nodes[number].op == "number":
            return [self._scalar(number)]
        return [self._read(number)[2]]

    def _numbers(self) -> list[Argument]:
        counted = isinstance(self.control, LoopNode) and self.control.counted
        return [self._scalar(n) for n in self.node.args[self.memory + counted :]]

    def _scalar(self, number: int) -> Scalar:
        return Scalar(self.graph.numbers.index(number), self.graph.nodes[number].type.dtype.name)


def _aligned(place: Place, region: Region) -> bool:
    return place.aligned and region.offset % ALIGNMENT == 0


def _followed(body: Graph, carried: int) -> tuple[Graph, tuple[int, ...]]:
    """The body without the outputs that only take over a carried value; for each carried value which, or FRESH."""
    taken: set[int] = set()
    follows = []
    for i, output in enumerate(body.outputs[:carried]):
        source = body.inputs.index(output) if output in body.inputs[:carried] else FRESH
        if source != FRESH and (source in taken or body.nodes[output].type != body.nodes[body.inputs[i]].type):
            source = FRESH
        taken.add(source)
        follows.append(source)
    fresh = [o for o, source in zip(body.outputs, follows, strict=False) if source == FRESH]
    outputs = (*fresh, *body.outputs[carried:])
    return replace(body, outputs=outputs), tuple(follows)


def _predicted(plan: Plan) -> float:
    return sum(task.cost for task in plan.tasks)
