"""The turns of a loop in reverse where their number is not known while the graph is made, or where keeping the state of
each would take too many bytes: from snapshots.

A stretch of m turns is cut into K pieces of ceil(m / K) turns. Its turns are gone through once, the state at the
beginning of each piece is kept, and the pieces are gone through in reverse, each as a stretch of its own (Griewank and
Walther, Evaluating Derivatives, 2008, section 12.2). Stretches of no further level, and short ones of a number of turns
that nobody knows, go back turn by turn, each turn's state computed again from the beginning of the stretch. So the
states that are kept are K for each level. Binomial snapshots (Griewank and Walther's Revolve) would go through fewer
turns with as many states, and are no loops of loops: of 10^5 turns within 256 states 2.67 times each against 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from ....runtime.core.frozen import frozen, replace
from ...core.types import INT64, ArrayType
from ...graph.builder import GraphBuilder
from ...graph.control_flow import Branch, KeptStates, Loop, Window, add_body_scalar, add_control_flow_node
from ...graph.graph import Graph, Value, Values
from ..core.inline import inline_graph_into_builder

SHORT = 8  # turns of a stretch that is not cut any more, where their number is not known
MOST_LEVELS = 6


def snapshot_levels_within_budget(budget: int, turns: int, state: int) -> list[int]:
    """Into how many pieces so many turns are cut, and those again: the fewest passes with no more than so many bytes of
    states, but for two on each level."""
    each = [_snapshot_level_sizes(budget, turns, state, count) for count in range(1, MOST_LEVELS + 1)]
    return min(each, key=lambda levels: (snapshot_recomputation_factor(turns, levels), len(levels)))


def _snapshot_level_sizes(budget: int, turns: int, state: int, count: int) -> list[int]:
    enough = next(n for n in range(max(1, int(turns ** (1 / count)) - 1), turns + 2) if n**count >= turns)
    return [max(2, min(enough, budget // max(count * state, 1)))] * count


def snapshot_recomputation_factor(turns: int, levels: Sequence[int]) -> float:
    """How often a forward turn is run, on average: once on each level, and in the last pieces from their beginnings."""
    return len(levels) + (math.ceil(turns / math.prod(levels)) - 1) / 2


def kept_loop_snapshots(turns: int, state: int, saved: int, levels: Sequence[int]) -> KeptStates:
    """What is kept. state: the bytes of one. saved: of what a backward turn reads; levels: none where all of it is."""
    curve = [(turns * saved, 1.0)]
    for count in range(2, MOST_LEVELS + 1):
        sizes = _snapshot_level_sizes(turns * count * state, turns, state, count)
        if sum(sizes) * state < curve[-1][0]:
            curve.append((sum(sizes) * state, snapshot_recomputation_factor(turns, sizes)))
    here = (sum(levels) * state, snapshot_recomputation_factor(turns, levels)) if levels else curve[0]
    return KeptStates(turns, *here, tuple(curve))


@frozen
class Stretch:
    """Values in one builder: a stretch of turns. state: what its first turn begins with; cotangents: of what its last
    turn gives, and sums of the invariants'; first: the number of its first turn; count: how many turns; expected: about
    how many; total: of the whole loop, where it is known, and then the levels are made for it."""

    state: Values
    cotangents: Values
    invariants: Values
    first: Value
    count: Value
    expected: float
    total: int | None


@frozen
class ReversedIterations:
    """step: (state, invariants, turn) -> the next state; back: (state, cotangents, invariants, turn) -> the cotangents
    before the turn. Graphs whose last input is the number of the turn; their numbers are those of the call."""

    step: Graph
    back: Graph

    def reverse_stretch(
        self, builder: GraphBuilder, stretch: Stretch, numbers: Values, levels: Sequence[int]
    ) -> list[Value]:
        """The cotangents of what a stretch begins with. levels: into how many pieces it is cut, and its pieces are."""
        if not levels:
            return self._reverse_each_iteration(builder, stretch, numbers)
        if stretch.total is not None:
            return self._reverse_from_snapshots(builder, stretch, numbers, levels)
        shared = [*stretch.state, *stretch.cotangents, *stretch.invariants, stretch.first, stretch.count]
        long = builder.map("greater", stretch.count, np.int64(SHORT))

        def branch_body(turns: Callable[[GraphBuilder, Stretch, Values], list[Value]]) -> Graph:
            made = GraphBuilder("stretch")
            inputs = [made.input(v.type) for v in shared]
            own = [add_body_scalar(made, n.type) for n in numbers]
            return made.finish(turns(made, _snapshot_stretch_of_values(stretch, inputs), own))

        bodies = (
            branch_body(lambda b, s, n: self._reverse_from_snapshots(b, s, n, levels)),
            branch_body(lambda b, s, n: self._reverse_each_iteration(b, s, n)),
        )
        likely = 0 if stretch.expected > SHORT else 1
        return add_control_flow_node(builder, Branch(bodies, likely), [long, *shared, *numbers])

    def run_forward(
        self, builder: GraphBuilder, stretch: Stretch, count: Value, numbers: Values, expected: float
    ) -> list[Value]:
        """The state after so many turns of a stretch, about as many as expected."""
        kept = len(stretch.state)
        made = GraphBuilder("turn")
        inputs = [made.input(v.type) for v in (*stretch.state, *stretch.invariants, stretch.first)]
        index, *own = [add_body_scalar(made, t) for t in (_NUMBER, *(n.type for n in numbers))]
        turn = made.map("add", inputs[-1], index)
        body = made.finish(inline_graph_into_builder(made, self.step, [*inputs[:-1], turn], own))
        args = [*stretch.state, *stretch.invariants, stretch.first, count, *numbers]
        return add_control_flow_node(builder, Loop(body, kept, expected=expected), args)

    def _reverse_each_iteration(self, builder: GraphBuilder, stretch: Stretch, numbers: Values) -> list[Value]:
        shared = [*stretch.state, *stretch.invariants, stretch.first, stretch.count]
        made = GraphBuilder("backward")
        cotangents = [made.input(v.type) for v in stretch.cotangents]
        inputs = [made.input(v.type) for v in shared]
        index, *own = [add_body_scalar(made, t) for t in (_NUMBER, *(n.type for n in numbers))]
        split = len(stretch.state)
        here = replace(
            stretch,
            state=inputs[:split],
            cotangents=cotangents,
            invariants=inputs[split:-2],
            first=inputs[-2],
            count=inputs[-1],
        )
        place = made.map("subtract", made.map("subtract", here.count, np.int64(1)), index)
        state = self.run_forward(made, here, place, own, (stretch.expected - 1) / 2)
        turn = made.map("add", here.first, place)
        body = made.finish(
            inline_graph_into_builder(made, self.back, [*state, *cotangents, *here.invariants, turn], own)
        )
        args = [*stretch.cotangents, *shared, stretch.count, *numbers]
        return add_control_flow_node(builder, Loop(body, len(cotangents), expected=stretch.expected), args)

    def _reverse_from_snapshots(
        self, builder: GraphBuilder, stretch: Stretch, numbers: Values, levels: Sequence[int]
    ) -> list[Value]:
        kept = self.take_snapshots(builder, stretch, numbers, levels[0])[1]
        return self.reverse_pieces(builder, stretch, kept, numbers, levels)

    def reverse_pieces(
        self,
        builder: GraphBuilder,
        stretch: Stretch,
        kept: Values,
        numbers: Values,
        levels: Sequence[int],
        states: KeptStates | None = None,
    ) -> list[Value]:
        """`reverse_stretch`, given the states at the beginnings of the pieces, in rows. states: what is said of
        them."""
        pieces, *rest = levels
        length = _iterations_of_snapshot_piece(builder, stretch.count, pieces)
        shared = [*stretch.invariants, stretch.first, stretch.count, length]
        made = GraphBuilder("pieces")
        cotangents = [made.input(v.type) for v in stretch.cotangents]
        rows = [made.input(ArrayType((1, *v.shape[1:]), v.dtype)) for v in kept]
        inputs = [made.input(v.type) for v in shared]
        index, *own = [add_body_scalar(made, t) for t in (_NUMBER, *(n.type for n in numbers))]
        number = made.map("subtract", np.int64(pieces - 1), index)
        *invariants, first, count, size = inputs
        state = [made.reshape(row, row.shape[1:]) for row in rows]
        each = math.ceil(stretch.expected / pieces)
        piece = Stretch(
            state,
            cotangents,
            invariants,
            *_start_of_loop_snapshot_piece(made, first, count, size, number),
            each,
            stretch.total,
        )
        if _has_single_turn_snapshot_pieces(stretch, levels):
            turn = self._iteration_number_within_stretch(made, stretch, first, number)
            found = inline_graph_into_builder(made, self.back, [*state, *cotangents, *invariants, turn], own)
            there = made.map("less", number, count)
            results = [made.map("where", there, new, old) for new, old in zip(found, cotangents, strict=True)]
        else:
            results = self.reverse_stretch(made, piece, own, rest)
        body = made.finish(results)
        windows = tuple(
            Window((pieces - 1, *(0,) * (v.ndim - 1)), (1,) * v.ndim, (-1, *(0,) * (v.ndim - 1))) for v in kept
        )
        loop = Loop(body, len(cotangents), windows, pieces, kept=states)
        return add_control_flow_node(builder, loop, [*stretch.cotangents, *kept, *shared, *numbers])

    def take_snapshots(
        self, builder: GraphBuilder, stretch: Stretch, numbers: Values, pieces: int
    ) -> tuple[list[Value], list[Value]]:
        """The state after a stretch, and those at the beginnings of its pieces."""
        length = _iterations_of_snapshot_piece(builder, stretch.count, pieces)
        shared = [*stretch.invariants, stretch.first, stretch.count, length]
        made = GraphBuilder("snapshots")
        state = [made.input(v.type) for v in stretch.state]
        inputs = [made.input(v.type) for v in shared]
        index, *own = [add_body_scalar(made, t) for t in (_NUMBER, *(n.type for n in numbers))]
        *invariants, first, count, size = inputs
        start, many = _start_of_loop_snapshot_piece(made, first, count, size, index)
        each = math.ceil(stretch.expected / pieces)
        if _has_single_turn_snapshot_pieces(stretch, [pieces]):
            after = inline_graph_into_builder(
                made,
                self.step,
                [*state, *invariants, self._iteration_number_within_stretch(made, stretch, first, index)],
                own,
            )
        else:
            after = self.run_forward(
                made, Stretch(state, (), invariants, start, many, each, stretch.total), many, own, each
            )
        loop = Loop(made.finish([*after, *state]), len(state), (), pieces)
        results = add_control_flow_node(builder, loop, [*stretch.state, *shared, *numbers])
        return results[: len(state)], results[len(state) :]

    def _iteration_number_within_stretch(
        self, builder: GraphBuilder, stretch: Stretch, first: Value, number: Value
    ) -> Value:
        """The number of a turn, the last one's behind the end of the loop, where pieces are empty."""
        assert stretch.total is not None
        return builder.map("minimum", builder.map("add", first, number), np.int64(stretch.total - 1))


def _has_single_turn_snapshot_pieces(stretch: Stretch, levels: Sequence[int]) -> bool:
    """Whether the pieces of a stretch are known to be a turn each, or none: then there is no loop in them."""
    return stretch.total is not None and len(levels) == 1 and stretch.expected <= levels[0]


_NUMBER = ArrayType((), INT64)


def _iterations_of_snapshot_piece(builder: GraphBuilder, count: Value, pieces: int) -> Value:
    """How many turns a piece has, but for the last ones."""
    return builder.map("floor_divide", builder.map("add", count, np.int64(pieces - 1)), np.int64(pieces))


def _start_of_loop_snapshot_piece(
    builder: GraphBuilder, first: Value, count: Value, length: Value, number: Value
) -> tuple[Value, Value]:
    """The first turn of a piece, and how many it has: fewer at the end, and none behind it."""
    before = builder.map("multiply", number, length)
    left = builder.map("maximum", builder.map("subtract", count, before), np.int64(0))
    return builder.map("add", first, before), builder.map("minimum", left, length)


def _snapshot_stretch_of_values(stretch: Stretch, values: Values) -> Stretch:
    """The same stretch, of values in another builder."""
    a = len(stretch.state)
    b = a + len(stretch.cotangents)
    return Stretch(values[:a], values[a:b], values[b:-2], values[-2], values[-1], stretch.expected, stretch.total)
