"""The turns of a loop in reverse where their number is not known while the graph is made, or where keeping the state of
each would take too many bytes: from snapshots.

A stretch of m turns is cut into K pieces of ceil(m / K) turns. Its turns are gone through once, the state at the
beginning of each piece is kept, and the pieces are gone through in reverse, each as a stretch of its own (Griewank and
Walther, Evaluating Derivatives, 2008, section 12.2). Short stretches go back turn by turn, each turn's state computed
again from the beginning of the stretch. So the states that are kept are K for each level, whatever the number of turns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ....runtime.core.frozen import dataclass
from ...core.types import INT64, ArrayType
from ...graph.builder import GraphBuilder
from ...graph.control_flow import Branch, Loop, Window, add_body_scalar, add_control_flow_node
from ...graph.graph import Graph, Value
from ..core.inline import inline

SHORT = 8  # turns of a stretch that is not cut any more


@dataclass(frozen=True, slots=True)
class Stretch:
    """Values in one builder: a stretch of turns. state: what its first turn begins with; cotangents: of what its last
    turn gives, and sums of the invariants'; first: the number of its first turn; count: how many turns."""

    state: Sequence[Value]
    cotangents: Sequence[Value]
    invariants: Sequence[Value]
    first: Value
    count: Value


@dataclass(frozen=True, slots=True)
class Turns:
    """step: (state, invariants, turn) -> the next state; back: (state, cotangents, invariants, turn) -> the cotangents
    before the turn. Graphs whose last input is the number of the turn; their numbers are those of the call."""

    step: Graph
    back: Graph

    def reverse(
        self, builder: GraphBuilder, stretch: Stretch, numbers: Sequence[Value], levels: Sequence[int]
    ) -> list[Value]:
        """The cotangents of what a stretch begins with. levels: into how many pieces it is cut, and its pieces are."""
        if not levels:
            return self._turn_by_turn(builder, stretch, numbers)
        shared = [*stretch.state, *stretch.cotangents, *stretch.invariants, stretch.first, stretch.count]
        long = builder.map("greater", stretch.count, np.int64(SHORT))

        def body(turns: Callable[[GraphBuilder, Stretch, Sequence[Value]], list[Value]]) -> Graph:
            made = GraphBuilder("stretch")
            inputs = [made.input(v.type) for v in shared]
            own = [add_body_scalar(made, n.type) for n in numbers]
            return made.finish(turns(made, _like(stretch, inputs), own))

        bodies = (
            body(lambda b, s, n: self._in_pieces(b, s, n, levels)),
            body(lambda b, s, n: self._turn_by_turn(b, s, n)),
        )
        return add_control_flow_node(builder, Branch(bodies), [long, *shared, *numbers])

    def run(self, builder: GraphBuilder, stretch: Stretch, count: Value, numbers: Sequence[Value]) -> list[Value]:
        """The state after so many turns of a stretch."""
        kept = len(stretch.state)
        made = GraphBuilder("turn")
        inputs = [made.input(v.type) for v in (*stretch.state, *stretch.invariants, stretch.first)]
        index, *own = [add_body_scalar(made, t) for t in (_NUMBER, *(n.type for n in numbers))]
        turn = made.map("add", inputs[-1], index)
        body = made.finish(inline(made, self.step, [*inputs[:-1], turn], own))
        args = [*stretch.state, *stretch.invariants, stretch.first, count, *numbers]
        return add_control_flow_node(builder, Loop(body, kept), args)

    def _turn_by_turn(self, builder: GraphBuilder, stretch: Stretch, numbers: Sequence[Value]) -> list[Value]:
        shared = [*stretch.state, *stretch.invariants, stretch.first, stretch.count]
        made = GraphBuilder("backward")
        cotangents = [made.input(v.type) for v in stretch.cotangents]
        inputs = [made.input(v.type) for v in shared]
        index, *own = [add_body_scalar(made, t) for t in (_NUMBER, *(n.type for n in numbers))]
        split = len(stretch.state)
        here = Stretch(inputs[:split], cotangents, inputs[split:-2], inputs[-2], inputs[-1])
        place = made.map("subtract", made.map("subtract", here.count, np.int64(1)), index)
        state = self.run(made, here, place, own)
        turn = made.map("add", here.first, place)
        body = made.finish(inline(made, self.back, [*state, *cotangents, *here.invariants, turn], own))
        args = [*stretch.cotangents, *shared, stretch.count, *numbers]
        return add_control_flow_node(builder, Loop(body, len(cotangents)), args)

    def _in_pieces(
        self, builder: GraphBuilder, stretch: Stretch, numbers: Sequence[Value], levels: Sequence[int]
    ) -> list[Value]:
        kept = self.snapshots(builder, stretch, numbers, levels[0])[1]
        return self.reverse_pieces(builder, stretch, kept, numbers, levels)

    def reverse_pieces(
        self,
        builder: GraphBuilder,
        stretch: Stretch,
        kept: Sequence[Value],
        numbers: Sequence[Value],
        levels: Sequence[int],
    ) -> list[Value]:
        """`reverse`, given the states at the beginnings of the pieces, in rows."""
        pieces, *rest = levels
        length = _length(builder, stretch.count, pieces)
        shared = [*stretch.invariants, stretch.first, stretch.count, length]
        made = GraphBuilder("pieces")
        cotangents = [made.input(v.type) for v in stretch.cotangents]
        rows = [made.input(ArrayType((1, *v.shape[1:]), v.dtype)) for v in kept]
        inputs = [made.input(v.type) for v in shared]
        index, *own = [add_body_scalar(made, t) for t in (_NUMBER, *(n.type for n in numbers))]
        number = made.map("subtract", np.int64(pieces - 1), index)
        *invariants, first, count, size = inputs
        state = [made.reshape(row, row.shape[1:]) for row in rows]
        piece = Stretch(state, cotangents, invariants, *_piece(made, first, count, size, number))
        body = made.finish(self.reverse(made, piece, own, rest))
        windows = tuple(
            Window((pieces - 1, *(0,) * (len(v.shape) - 1)), (1,) * len(v.shape), (-1, *(0,) * (len(v.shape) - 1)))
            for v in kept
        )
        loop = Loop(body, len(cotangents), windows, pieces)
        return add_control_flow_node(builder, loop, [*stretch.cotangents, *kept, *shared, *numbers])

    def snapshots(
        self, builder: GraphBuilder, stretch: Stretch, numbers: Sequence[Value], pieces: int
    ) -> tuple[list[Value], list[Value]]:
        """The state after a stretch, and those at the beginnings of its pieces."""
        length = _length(builder, stretch.count, pieces)
        shared = [*stretch.invariants, stretch.first, stretch.count, length]
        made = GraphBuilder("snapshots")
        state = [made.input(v.type) for v in stretch.state]
        inputs = [made.input(v.type) for v in shared]
        index, *own = [add_body_scalar(made, t) for t in (_NUMBER, *(n.type for n in numbers))]
        *invariants, first, count, size = inputs
        start, many = _piece(made, first, count, size, index)
        after = self.run(made, Stretch(state, (), invariants, start, many), many, own)
        loop = Loop(made.finish([*after, *state]), len(state), (), pieces)
        results = add_control_flow_node(builder, loop, [*stretch.state, *shared, *numbers])
        return results[: len(state)], results[len(state) :]


_NUMBER = ArrayType((), INT64)


def _length(builder: GraphBuilder, count: Value, pieces: int) -> Value:
    """How many turns a piece has, but for the last ones."""
    return builder.map("floor_divide", builder.map("add", count, np.int64(pieces - 1)), np.int64(pieces))


def _piece(builder: GraphBuilder, first: Value, count: Value, length: Value, number: Value) -> tuple[Value, Value]:
    """The first turn of a piece, and how many it has: fewer at the end, and none behind it."""
    before = builder.map("multiply", number, length)
    left = builder.map("maximum", builder.map("subtract", count, before), np.int64(0))
    return builder.map("add", first, before), builder.map("minimum", left, length)


def _like(stretch: Stretch, values: Sequence[Value]) -> Stretch:
    """The same stretch, of values in another builder."""
    a = len(stretch.state)
    b = a + len(stretch.cotangents)
    return Stretch(values[:a], values[a:b], values[b:-2], values[-2], values[-1])
