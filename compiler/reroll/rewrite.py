"""Replaces a repeated region of a graph with a loop node, if every detail agrees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...runtime.core.frozen import dataclass
from ..core.types import ArrayType
from ..graph.builder import GraphBuilder
from ..graph.control_flow import ITERATION, Cut, Loop, Window, add_control_flow_node, cut_body_graphs_from_builder
from ..graph.graph import Graph, Node, Value
from ..ops.table import OPS
from .induction import Array, Carried, NotALoop, RepeatedRegion
from .periods import TokenSequence

Roll = Callable[[Graph], "Rerolled"]


@dataclass(slots=True)
class Rerolled:
    """The new graph, and arrays that fill inputs behind those that were there. needed_numbers: numbers of the call (by
    their place) that keep a long loop from being one. why: a remark for `explain` on turns that stay."""

    graph: Graph
    arrays: list[Array]
    needed_numbers: frozenset[int] = frozenset()
    why: tuple[str, ...] = ()


def reroll_region_as_loop(
    graph: Graph, row: TokenSequence, start: int, period: int, iterations: int, roll: Roll
) -> Rerolled:
    """The graph with a stretch of its row as a loop: places [start, start + period * iterations). roll: what rerolls
    loops within the body. Raises NotALoop."""
    return _Reroller(graph, row, start, period, iterations).run(roll)


class _Reroller(RepeatedRegion):
    def run(self, roll: Roll) -> Rerolled:
        args = [self._classified_args_of_slot(j) for j in range(self.period)]
        for j in range(self.period):
            self._check_slice_starts_move(j, args[j])
        outside = self._used_outside()
        for slot, seen in outside.items():
            self._deliver_used_outside(slot, seen, args)
        for slot in self.moving:
            if slot not in outside:
                raise NotALoop
            self.carried.pop(args[slot][0], None)
        self.carried = {c: i for i, c in enumerate(self.carried)}
        self._constant_windows(args)
        return self._build_rerolled_graph(args, outside, roll)

    # the loop

    def _build_rerolled_graph(self, args: list[list[Any]], outside: dict[int, dict[int, None]], roll: Roll) -> Rerolled:
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
        added = {key: builder.input(ArrayType(a.shape, a.dtype)) for key, a in self.constants.items()}

        def set_line(slot: int) -> None:
            nonlocal line
            line = lines[self.node(0, slot)]

        cut = self._cut_body(builder, new, args, set_line)
        inner = roll(cut.body)
        line = lines[first]
        values = [self._initial_carried_value(builder, new, c) for c in self.carried]
        values += [added[key[2]] if key[0] == "const" else new[key[2]] for key in self.windows]
        values += [*map(builder.at, cut.inputs), *(builder.input(ArrayType(a.shape, a.dtype)) for a in inner.arrays)]
        windows = tuple(w for _, w in self.windows.values())
        loop = Loop(inner.graph, len(self.carried), windows, self.iterations)
        results = add_control_flow_node(builder, loop, [*values, *map(builder.at, cut.numbers)])
        self._values_used_after_loop(builder, new, results, args, outside)
        for number in sorted(needed):
            if number not in new:
                self._copy_node_after_loop(builder, new, number, copy_node, results)
        builder.numbers.sort(key=lambda n: builder.nodes[n].attr("index"))
        builder.inputs.sort(key=lambda n: builder.nodes[n].attr("index"))
        graph = builder.finish([new[o] for o in self.graph.outputs])
        return Rerolled(graph, [*self.constants.values(), *inner.arrays])

    def _cut_body(
        self, builder: GraphBuilder, new: dict[int, Value], args: list[list[Any]], set_line: Callable[[int], None]
    ) -> Cut:
        """The body, of the first iteration's nodes on what stands for that which is carried and slides."""
        nodes, began = self.graph.nodes, len(builder.nodes)

        def placeholder(type: ArrayType) -> Value:
            return builder.add("placeholder", (), type, (("id", len(builder.nodes)),))

        carried = {c: placeholder(nodes[self.node(0, c.slot)].type) for c in self.carried}
        windows = {key: placeholder(type) for key, (type, _) in self.windows.items()}
        index = placeholder(ITERATION)
        values: list[Value] = []

        def view_of_carried(what: Any) -> Value:
            slot, source = what
            return builder.copy(nodes[self.node(0, slot)], (carried[source],))

        def window_in_body(key: Any) -> Value:
            return builder.reshape(windows[key], ()) if key[0] == "const" else windows[key]

        kinds: dict[str, Callable[[Any], Value]] = {
            "outer": lambda number: new[number],
            "view": view_of_carried,
            "window": window_in_body,
            "const": lambda numbers: new[numbers[0]],
        }

        def value_in_body(arg: Any) -> Value:
            if isinstance(arg, int):
                return values[arg]
            return carried[arg] if isinstance(arg, Carried) else kinds[arg[0]](arg[1])

        for slot, row in enumerate(args):
            node = nodes[self.node(0, slot)]
            set_line(slot)
            if slot in self.moving:
                values.append(Value(-1, node.type))  # nobody takes it
            elif node.op == "slice" and isinstance(row[0], tuple) and row[0][0] == "window":
                values.append(windows[row[0][1]])
            else:
                values.append(builder.copy(node, map(value_in_body, row)))
        outputs = [values[c.slot] if c.depth == 1 else carried[Carried(c.slot, c.initial[1:])] for c in self.carried]
        outputs += [values[slot] for slot in self.stacked]
        places = [*carried.values(), *windows.values()]
        (cut,) = cut_body_graphs_from_builder(builder, [places], [outputs], began, index)
        return cut

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
        are together: (slot, first row, rows, argument)."""
        pieces: list[tuple[int, ...]] = []
        for number in node.args:
            inner = self.graph.nodes[number]
            at = self._position_in_region(number)
            if at is None and inner.op == "reshape" and len(inner.args) == 1:
                at = self._position_in_region(inner.args[0])
            if at is None or at[1] not in self.stacked:
                pieces.append((number,))
                continue
            row, slot = at
            last = pieces[-1] if pieces else ()
            if len(last) == 4 and last[0] == slot and sum(last[1:3]) == row and self._is_same_value(last[3], number):
                pieces[-1] = (slot, last[1], last[2] + 1, last[3])
            else:
                pieces.append((slot, row, 1, number))
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
            slot, first, count, sample = piece
            shape = self.graph.nodes[sample].type.shape
            some = builder.reshape(self._rows_of_stacked(builder, results, slot, first, count), (count, *shape))
            order = [*range(1, axis + 1), 0, *range(axis + 1, len(shape) + 1)]
            joined = builder.permute(some, order)
            parts.append(builder.reshape(joined, (*shape[:axis], count * shape[axis], *shape[axis + 1 :])))
        new[number] = builder.concat(parts, axis)

    def _stacked_result(self, results: Sequence[Value], slot: int) -> Value:
        """A stacked result, its rows along the first axis."""
        return results[len(self.carried) + self.stacked[slot]]

    def _rows_of_stacked(
        self, builder: GraphBuilder, results: Sequence[Value], slot: int, first: int, count: int
    ) -> Value:
        whole = self._stacked_result(results, slot)
        if count == self.iterations:
            return whole
        rest = (0,) * (len(whole.shape) - 1)
        return builder.slice(whole, (first, *rest), (1,) * len(whole.shape), (count, *whole.shape[1:]))

    def _values_used_after_loop(
        self,
        builder: GraphBuilder,
        new: dict[int, Value],
        results: Sequence[Value],
        args: list[list[Any]],
        outside: dict[int, dict[int, None]],
    ) -> None:
        """What stands for the values that are used after the loop."""
        finals = {(c.slot, self.iterations - c.depth): results[place] for c, place in self.carried.items()}
        for slot, iteration in [(slot, iteration) for slot, seen in outside.items() for iteration in seen]:
            if slot in self.moving:
                found = self._array_after_moving_update(builder, new, results, slot, args)
            elif (slot, iteration) in finals:
                found = finals[slot, iteration]
            else:
                row = self._rows_of_stacked(builder, results, slot, iteration, 1)
                found = builder.reshape(row, row.shape[1:])
            new[self.node(iteration, slot)] = found

    def _array_after_moving_update(
        self, builder: GraphBuilder, new: dict[int, Value], results: Sequence[Value], slot: int, args: list[list[Any]]
    ) -> Value:
        """A moving update's array after the loop: what all iterations wrote, in one update."""
        own, value = args[slot]
        starts, moves = self.moving[slot]
        (axis,) = (a for a, m in enumerate(moves) if m)
        whole = self._stacked_result(results, value)
        count, *shape = whole.shape
        flat = builder.reshape(whole, (count, *shape[:axis], *shape[axis + 1 :]))
        value = builder.permute(flat, [*range(1, axis + 1), 0, *range(axis + 1, len(shape))])
        steps = list(self.graph.nodes[self.node(0, slot)].attr("steps"))
        steps[axis] = moves[axis]
        (initial,) = own.initial
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
