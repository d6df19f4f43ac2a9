"""A loop or branch node in, its Task out. The body is planned once; there are buffers for what it carries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...runtime.core.frozen import replace
from ...runtime.program.plan import FRESH, Branch, Loop, Plan, pool_sizes_of_planned_loop
from ...runtime.program.program import Argument, Buffer, Int, Pointer, Region, Scalar, Task
from ..core.types import ArrayType
from ..graph.control_flow import Loop as LoopNode
from ..graph.control_flow import memory_argument_count_of_node
from ..graph.graph import Graph
from ..layout.operands import ALIGNMENT, BufferLocation, contiguous_strides
from ..passes.materialize import MemoryLayout

PlanBody = Callable[[Graph, Sequence[MemoryLayout], frozenset[int]], Plan]
ITERATION_US = 0.1  # what an iteration costs beside its kernels


def refuse_to_lower_loop_body(body: Graph, layouts: Sequence[MemoryLayout], loose: frozenset[int]) -> Plan:
    raise AssertionError("nothing here can plan the body of a loop")


def lower_control_flow(
    graph: Graph,
    parts: Sequence[int],
    places: dict[int, BufferLocation],
    buffers: list[Buffer],
    plan: PlanBody,
    line: str,
) -> Task:
    """parts: the nodes of the results that are wanted; more buffers are appended to `buffers`."""
    return _ControlFlowLowering(graph, parts, places, buffers, plan, line).task()


class _ControlFlowLowering:
    def __init__(
        self,
        graph: Graph,
        parts: Sequence[int],
        places: dict[int, BufferLocation],
        buffers: list[Buffer],
        plan: PlanBody,
        line: str,
    ) -> None:
        self.graph, self.places, self.buffers, self.plan, self.line = graph, places, buffers, plan, line
        self.node = graph.nodes[parts[0]]
        self.control = self.node.attr("control")
        self.result_places = {graph.nodes[n].attr("part"): places[n] for n in parts}
        self.memory = memory_argument_count_of_node(self.node)
        self.reads: list[Region] = []
        self.writes: list[Region] = []

    def task(self) -> Task:
        return self._lower_loop() if isinstance(self.control, LoopNode) else self._lower_branch()

    def _lower_loop(self) -> Task:
        node, k = self.control, self.control.carried
        body, follows = _drop_carried_outputs_before_lowering(node.body, k)
        args = self.node.args
        initial = [self._read_carried_value(a) for a in args[:k]]
        layouts = [MemoryLayout(contiguous_strides(t.shape, t.dtype.itemsize), aligned) for t, aligned, _ in initial]
        others, moves = [], []
        for place, number in enumerate(args[k : self.memory]):
            window = node.windows[place] if place < len(node.windows) else None
            layout, pointer, move = self._read_invariant_or_window(
                number, window, body.nodes[body.inputs[k + place]].type
            )
            layouts.append(layout)
            others.append(pointer)
            moves.append(move)
        fresh = follows.count(FRESH)
        parts = [body.nodes[o].type for o in body.outputs[fresh:]]
        odd = [t.nbytes % ALIGNMENT or not self._is_result_aligned(k + i) for i, t in enumerate(parts)]
        loose = frozenset(fresh + i for i, is_odd in enumerate(odd) if is_odd)
        planned = self.plan(body, layouts, loose)
        kernel = Loop(planned, follows, (*moves, *(t.nbytes for t in parts)), node.count, node.flag)
        results = [self._result_region(i) for i in range(k)]
        pool = [self._new_temporary(size) for size in pool_sizes_of_planned_loop(kernel)[0 if node.flag else k :]]
        stacked = [self._result_region(k + i) for i in range(len(parts))]
        arguments: list[Argument] = [p for _, _, p in initial]
        arguments += [*results, *pool] if node.flag else [*results, *results, *pool]
        arguments += [*others, *stacked, *self._new_workspace(planned.arena_bytes)]
        arguments += self._iteration_count(node) + self._number_arguments()
        iterations = node.expected if node.count is None else node.count
        return self._make_task(
            f"{kernel}", kernel, arguments, iterations * (_lowered_body_plan_time(planned) + ITERATION_US)
        )

    def _lower_branch(self) -> Task:
        args = self.node.args
        _, _, flag = self._read_carried_value(args[0])
        layouts, inputs = [], []
        for number in args[1 : self.memory]:
            layout, pointer, _ = self._read_invariant_or_window(number, None, self.graph.nodes[number].type)
            layouts.append(layout)
            inputs.append(pointer)
        first, second = (self.plan(body, layouts, frozenset()) for body in self.control.bodies)
        outputs = [self._result_region(i) for i in range(len(self.control.types))]
        workspace = self._new_workspace(max(first.arena_bytes, second.arena_bytes))
        arguments = [flag, *inputs, *outputs, *workspace, *self._number_arguments()]
        costs, expected = [_lowered_body_plan_time(first), _lowered_body_plan_time(second)], self.control.expected
        cost = max(costs) if expected is None else costs[expected]
        return self._make_task("branch", Branch((first, second)), arguments, cost + ITERATION_US)

    def _make_task(self, name: str, kernel: Any, arguments: Sequence[Argument], cost: float) -> Task:
        reads, writes = tuple(dict.fromkeys(self.reads)), tuple(dict.fromkeys(self.writes))
        return Task(name, kernel, tuple(arguments), reads, writes, cost=round(cost, 3), line=self.line)

    def _read_carried_value(self, number: int) -> tuple[ArrayType, bool, Pointer]:
        """What is carried: its type, whether its memory is aligned, and where it starts."""
        node, place = self.graph.nodes[number], self.places[number]
        region = place.region(node.type)
        self.reads.append(region)
        return node.type, _is_lowered_region_aligned(place, region), Pointer(region.buffer, region.span[0])

    def _read_invariant_or_window(self, number: int, window: Any, type: ArrayType) -> tuple[MemoryLayout, Pointer, int]:
        """An invariant, or what a window shows at the first iteration, and the bytes that it moves by at each."""
        place, region = self.places[number], self.places[number].region(self.graph.nodes[number].type)
        move = 0
        if window is not None:
            start = place.offset + sum(a * s for a, s in zip(window.starts, place.strides, strict=True))
            strides = tuple(s * t for s, t in zip(place.strides, window.steps, strict=True))
            move = sum(m * s for m, s in zip(window.moves, place.strides, strict=True))
            region = replace(region, offset=start, shape=type.shape, strides=strides)
            self.reads.append(replace(region, shape=(self.control.count, *type.shape), strides=(move, *strides)))
        else:
            self.reads.append(region)
        aligned = _is_lowered_region_aligned(place, region) and move % ALIGNMENT == 0
        return MemoryLayout(region.strides, aligned), Pointer(region.buffer, region.span[0]), move

    def _result_region(self, part: int) -> Pointer:
        """Where a result goes: its place, or a temporary where nobody wants it."""
        type = self.control.types[part]
        if part not in self.result_places:
            return self._new_temporary(type.nbytes)
        place = self.result_places[part]
        dense = contiguous_strides(type.shape, type.dtype.itemsize)
        assert all(s == d for s, d, n in zip(place.strides, dense, type.shape, strict=True) if n != 1)
        if type.size:
            size, name = type.dtype.itemsize, type.dtype.name
            self.writes.append(Region(place.buffer, place.offset, type.shape, place.strides, size, name))
        return Pointer(place.buffer, place.offset)

    def _is_result_aligned(self, part: int) -> bool:
        place = self.result_places.get(part)
        return place is None or (place.aligned and place.offset % ALIGNMENT == 0)

    def _new_temporary(self, nbytes: int) -> Pointer:
        size = max(1, nbytes)  # what holds nothing has an address, too
        self.buffers.append(Buffer(size, "temp"))
        buffer = len(self.buffers) - 1
        self.writes.append(Region(buffer, 0, (size,), (1,), 1, "uint8"))
        return Pointer(buffer)

    def _new_workspace(self, nbytes: int) -> list[Pointer]:
        return [self._new_temporary(nbytes)] if nbytes else []

    def _iteration_count(self, node: LoopNode) -> list[Argument]:
        if node.flag:
            return []
        if node.count is not None:
            return [Int(node.count)]
        number = self.node.args[self.memory]
        if self.graph.nodes[number].op == "number":
            return [self._scalar_argument(number)]
        return [self._read_carried_value(number)[2]]

    def _number_arguments(self) -> list[Argument]:
        counted = isinstance(self.control, LoopNode) and self.control.counted
        return [self._scalar_argument(n) for n in self.node.args[self.memory + counted :]]

    def _scalar_argument(self, number: int) -> Scalar:
        return Scalar(self.graph.numbers.index(number), self.graph.nodes[number].dtype.name)


def _is_lowered_region_aligned(place: BufferLocation, region: Region) -> bool:
    return place.aligned and region.offset % ALIGNMENT == 0


def _drop_carried_outputs_before_lowering(body: Graph, carried: int) -> tuple[Graph, tuple[int, ...]]:
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


def _lowered_body_plan_time(plan: Plan) -> float:
    return sum(task.cost for task in plan.tasks)
