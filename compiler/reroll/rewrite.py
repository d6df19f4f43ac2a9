"""Replaces a repeated region of a graph with a loop node, if every detail agrees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...runtime.core.frozen import dataclass
from ..core.types import ArrayType
from ..graph.builder import GraphBuilder
from ..graph.control_flow import (
    ITERATION,
    Loop,
    Window,
    add_body_scalar,
    add_control_flow_node,
    should_body_graph_repeat_node,
)
from ..graph.graph import Graph, Node, Value
from ..ops.table import OPS
from .induction import Array, Carried, NotALoop, RepeatedRegion
from .periods import TokenSequence

Roll = Callable[[Graph], "Rerolled"]


@dataclass(slots=True)
class Rerolled:
    """The new graph, and arrays that fill inputs behind those that were there."""

    graph: Graph
    arrays: list[Array]
    needed_numbers: frozenset[int] = (
        frozenset()
    )  # numbers of the call (by their place) that keep a long loop from being one
    body: Graph | None = None  # of the loop; None where none was made
    why: tuple[str, ...] = ()  # remarks for `explain`


def reroll_region_as_loop(
    graph: Graph, row: TokenSequence, start: int, period: int, iterations: int, roll: Roll, joined: int = 1
) -> Rerolled:
    """The graph with a stretch of its row as a loop: places [start, start + period * iterations). roll: what rerolls
    loops within the body. joined: so many iterations are one iteration of the loop; those left over stay behind it.
    Raises NotALoop."""
    return _Reroller(graph, row, start, period * joined, iterations // joined, joined).run(roll)


class _Reroller(RepeatedRegion):
    def run(self, roll: Roll) -> Rerolled:
        args = [self._classified_args_of_slot(j) for j in range(self.period)]
        for j in range(self.period):
            self._check_slice_starts_move(j, args[j])
        outside = self._used_outside()
        finals: dict[tuple[int, int], Carried] = {}
        for slot, seen in outside.items():
            self._deliver_used_outside(slot, seen, args, finals)
        self._group_stacked_values()
        self._settle_loop_arguments(args, outside)
        return self._build_rerolled_graph(args, outside, finals, roll)

    # the loop

    def _settle_loop_arguments(self, args: list[list[Any]], outside: dict[int, dict[int, None]]) -> None:
        """Numbers what is carried, makes windows of constants, and finds what is invariant."""
        for slot in self.moving:
            if self._slots_alike_in_joined_iterations(slot)[-1] not in outside:
                raise NotALoop
            if not isinstance(args[slot][0], int):
                self.carried.pop(args[slot][0], None)
        self.carried = {c: i for i, c in enumerate(self.carried)}
        self._constant_windows(args)
        self.invariants = dict.fromkeys(
            n
            for row in args
            for a in row
            if isinstance(a, tuple) and a[0] == "outer"
            for n in self._leaves_of_invariant(a[1])
        )

    def _build_rerolled_graph(
        self,
        args: list[list[Any]],
        outside: dict[int, dict[int, None]],
        finals: dict[tuple[int, int], Carried],
        roll: Roll,
    ) -> Rerolled:
        inner = roll(self._build_loop_body(args))
        body = inner.graph
        windows = tuple(w for _, w in self.windows.values())
        loop = Loop(body, len(self.carried), windows, self.iterations)
        builder = GraphBuilder(self.graph.name)
        lines = self.graph.lines or ("",) * len(self.graph.nodes)
        line = ""
        builder.where = lambda: line
        new: dict[int, Value] = {}
        first, last = self.node(0, 0), self.node(self.iterations - 1, self.period - 1)

        def copy_node(number: int) -> None:
            nonlocal line
            node, line = self.graph.nodes[number], lines[number]
            new[number] = builder.copy(node, [new[a] for a in node.args])
            if node.op == "input":
                builder.inputs.append(new[number].number)
            elif node.op == "number":
                builder.numbers.append(new[number].number)

        needed = self._nodes_needed_after_loop(last)
        for number, node in enumerate(self.graph.nodes):
            if number < first or node.op in ("input", "number") or (number <= last and OPS[node.op].kind == "source"):
                copy_node(number)
        arrays = [*self.constants.values(), *inner.arrays]
        added = [builder.input(ArrayType(a.shape, a.dtype)) for a in arrays]
        inputs = dict(zip(self.constants, added, strict=False))
        line = lines[first]
        values = [self._initial_carried_value(builder, new, c) for c in self.carried]
        values += [inputs[key[2]] if key[0] == "const" else new[key[2]] for key in self.windows]
        values += [*(new[n] for n in self.invariants if self._is_memory_node(n)), *added[len(inputs) :]]
        values += [new[n] for n in self.invariants if self.graph.nodes[n].op == "number"]
        results = add_control_flow_node(builder, loop, values)
        self._values_used_after_loop(builder, new, results, args, outside, finals)
        for number in sorted(needed):
            if number not in new:
                self._copy_node_after_loop(builder, new, number, copy_node, results)
        builder.numbers.sort(key=lambda n: builder.nodes[n].attr("index"))
        builder.inputs.sort(key=lambda n: builder.nodes[n].attr("index"))
        return Rerolled(builder.finish([new[o] for o in self.graph.outputs]), arrays, body=body)

    def _leaves_of_invariant(self, number: int) -> list[int]:
        """What an invariant takes to be there in the body: itself, or the numbers that it is cheaply made of."""
        if not should_body_graph_repeat_node(self.graph.nodes, number):
            return [number]
        found, todo = [], [number]
        while todo:
            n = todo.pop()
            found += [n] if self.graph.nodes[n].op == "number" else []
            todo += self.graph.nodes[n].args
        return found

    def _is_memory_node(self, number: int) -> bool:
        return self.graph.nodes[number].op not in ("number", "const")

    def _nodes_needed_after_loop(self, last: int) -> set[int]:
        """The nodes behind the loop that are still needed: the parts of a list that was stacked are not."""
        needed: set[int] = set()
        todo = [o for o in self.graph.outputs if o > last and self._position_in_region(o) is None]
        while todo:
            number = todo.pop()
            if number in needed:
                continue
            needed.add(number)
            node = self.graph.nodes[number]
            parts = self._pieces_of_concat(node) if node.op == "concat" else [(a,) for a in node.args]
            todo += [p[0] for p in parts if len(p) == 1 and p[0] > last and self._position_in_region(p[0]) is None]
        return needed

    def _pieces_of_concat(self, node: Node) -> list[tuple[int, ...]]:
        """The arguments of a concat; those that are rows one after another of a stacked result (or one view of each)
        are together: (result, first row, rows, argument)."""
        pieces: list[tuple[int, ...]] = []
        for number in node.args:
            inner = self.graph.nodes[number]
            at = self._position_in_region(number)
            if at is None and inner.op == "reshape" and len(inner.args) == 1:
                at = self._position_in_region(inner.args[0])
            if at is None or at[1] not in self.stacked:
                pieces.append((number,))
                continue
            which, row = self._stacked_row_of_slot(*at)
            last = pieces[-1] if pieces else ()
            if (
                len(last) == 4
                and last[0] == which
                and last[1] + last[2] == row
                and self._is_same_value(last[3], number)
            ):
                pieces[-1] = (which, last[1], last[2] + 1, last[3])
            else:
                pieces.append((which, row, 1, number))
        return pieces

    def _is_same_value(self, a: int, b: int) -> bool:
        one, other = self.graph.nodes[a], self.graph.nodes[b]
        return one.type == other.type and (self._position_in_region(a) is None) == (self._position_in_region(b) is None)

    def _copy_node_after_loop(
        self, builder: GraphBuilder, new: dict[int, Value], number: int, copy: Any, results: Sequence[Value]
    ) -> None:
        node = self.graph.nodes[number]
        if node.op != "concat":
            copy(number)
            return
        axis, parts = node.attr("axis"), []
        for piece in self._pieces_of_concat(node):
            if len(piece) == 1:
                parts.append(new[piece[0]])
                continue
            which, first, count, sample = piece
            shape = self.graph.nodes[sample].type.shape
            whole = self._stacked_result(builder, results, which)
            rest = (0,) * (len(whole.shape) - 1)
            some = builder.slice(whole, (first, *rest), (1,) * len(whole.shape), (count, *whole.shape[1:]))
            some = builder.reshape(some, (count, *shape))
            order = [*range(1, axis + 1), 0, *range(axis + 1, len(shape) + 1)]
            joined = builder.permute(some, order)
            parts.append(builder.reshape(joined, (*shape[:axis], count * shape[axis], *shape[axis + 1 :])))
        new[number] = builder.concat(parts, axis)

    def _stacked_row_of_slot(self, iteration: int, slot: int) -> tuple[int, int]:
        """Which stacked result holds a slot's value of an iteration, and in which row."""
        group = self.groups[self.stacked[slot]]
        return self.stacked[slot], iteration * len(group) + group.index(slot)

    def _stacked_result(self, builder: GraphBuilder, results: Sequence[Value], which: int) -> Value:
        """A stacked result, its rows along the first axis."""
        shape = self.graph.nodes[self.node(0, self.groups[which][0])].type.shape
        return builder.reshape(results[len(self.carried) + which], (self.iterations * len(self.groups[which]), *shape))

    def _values_used_after_loop(
        self,
        builder: GraphBuilder,
        new: dict[int, Value],
        results: Sequence[Value],
        args: list[list[Any]],
        outside: dict[int, dict[int, None]],
        finals: dict[tuple[int, int], Carried],
    ) -> None:
        """What stands for the values that are used after the loop."""
        for slot, seen in outside.items():
            if slot in self.moving:
                new[self.node(self.iterations - 1, slot)] = self._array_after_moving_update(
                    builder, new, results, slot, args
                )
                continue
            for iteration in seen:
                number = self.node(iteration, slot)
                if slot in self.stacked:
                    which, row = self._stacked_row_of_slot(iteration, slot)
                    whole = self._stacked_result(builder, results, which)
                    rest = (0,) * (len(whole.shape) - 1)
                    part = builder.slice(whole, (row, *rest), (1,) * len(whole.shape), (1, *whole.shape[1:]))
                    new[number] = builder.reshape(part, whole.shape[1:])
                else:
                    new[number] = results[self.carried[finals[iteration, slot]]]

    def _array_after_moving_update(
        self, builder: GraphBuilder, new: dict[int, Value], results: Sequence[Value], slot: int, args: list[list[Any]]
    ) -> Value:
        """A moving update's array after the loop: what all iterations wrote, in one update."""
        first = self._slots_alike_in_joined_iterations(slot)[0]
        starts, moves = self.moving[first]
        (axis,) = (a for a, m in enumerate(moves) if m)
        whole = self._stacked_result(builder, results, self.stacked[args[slot][1]])
        count, *shape = whole.shape
        flat = builder.reshape(whole, (count, *shape[:axis], *shape[axis + 1 :]))
        value = builder.permute(flat, [*range(1, axis + 1), 0, *range(axis + 1, len(shape))])
        steps = list(self.graph.nodes[self.node(0, slot)].attr("steps"))
        steps[axis] = moves[axis] // self.joined
        (initial,) = args[first][0].initial
        return builder.update(new[initial], value, starts, steps)

    def _initial_carried_value(self, builder: GraphBuilder, new: dict[int, Value], value: Carried) -> Value:
        number = value.initial[0]
        if number >= 0:
            return new[number]
        type = self.graph.nodes[self.node(0, value.slot)].type
        return builder.broadcast(builder.const(0, type.dtype), type.shape)

    def _constant_windows(self, args: list[list[Any]]) -> None:
        """Constants that differ from iteration to iteration come from an array of them."""
        for row in args:
            for i, arg in enumerate(row):
                if isinstance(arg, tuple) and arg[0] == "const" and len(set(arg[1])) > 1:
                    numbers = arg[1]
                    dtype = self.graph.nodes[numbers[0]].type.dtype
                    data = b"".join(self.graph.nodes[n].attr("value") for n in numbers)
                    self.constants[numbers] = np.frombuffer(data, dtype).copy()
                    key = ("const", 0, numbers)
                    self.windows[key] = ArrayType((1,), dtype), Window((0,), (1,), (1,))
                    row[i] = ("window", key)

    def _build_loop_body(self, args: list[list[Any]]) -> Graph:
        made, nodes = GraphBuilder("body"), self.graph.nodes
        lines = self.graph.lines or ("",) * len(nodes)
        line = ""
        made.where = lambda: line
        carried = {c: made.input(nodes[self.node(0, c.slot)].type) for c in self.carried}
        windows = {key: made.input(type) for key, (type, _) in self.windows.items()}
        outer = {n: made.input(nodes[n].type) for n in self.invariants if self._is_memory_node(n)}
        add_body_scalar(made, ITERATION)
        outer |= {n: add_body_scalar(made, nodes[n].type) for n in self.invariants if nodes[n].op == "number"}
        values: list[Value] = []

        def outer_value(number: int) -> Value:
            if number in outer:
                return outer[number]
            return made.copy(nodes[number], map(outer_value, nodes[number].args))

        def view_of_carried(what: Any) -> Value:
            slot, source = what
            return made.copy(nodes[self.node(0, slot)], (carried[source],))

        def window_in_body(key: Any) -> Value:
            return made.reshape(windows[key], ()) if key[0] == "const" else windows[key]

        kinds: dict[str, Callable[[Any], Value]] = {
            "outer": outer_value,
            "view": view_of_carried,
            "window": window_in_body,
            "const": lambda numbers: made.copy(nodes[numbers[0]], ()),
        }

        def value_in_body(arg: Any) -> Value:
            if isinstance(arg, int):
                return values[arg]
            return carried[arg] if isinstance(arg, Carried) else kinds[arg[0]](arg[1])

        for slot, row in enumerate(args):
            number = self.node(0, slot)
            node, line = nodes[number], lines[number]
            if slot in self.moving:
                values.append(Value(-1, node.type))  # nobody takes it
                continue
            if node.op == "slice" and isinstance(row[0], tuple) and row[0][0] == "window":
                values.append(windows[row[0][1]])
                continue
            values.append(made.copy(node, map(value_in_body, row)))
        outputs = [values[c.slot] if c.depth == 1 else carried[Carried(c.slot, c.initial[1:])] for c in self.carried]
        for group in self.groups:
            rows = [made.reshape(values[slot], (1, *values[slot].shape)) for slot in group]
            outputs.append(made.concat(rows, 0) if len(rows) > 1 else values[group[0]])
        return made.finish(outputs)
