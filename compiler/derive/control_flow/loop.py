"""The rule of a loop: a loop in reverse, given what each turn began with.

The forward loop keeps, as stacked results, the carried values that the backward turns read (those of a body that is
linear read none), and what is dear to compute again. A backward turn computes the rest of its turn again, carries the
cotangents of what the loop carries, and adds up those of what all turns share. Both are loops like others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....runtime.core.frozen import frozen
from ...core.types import INT64, ArrayType
from ...graph.builder import GraphBuilder
from ...graph.control_flow import (
    ITERATION,
    UNKNOWN_ITERATIONS,
    Loop,
    Window,
    add_body_scalar,
    add_control_flow_node,
    memory_argument_count_of_node,
)
from ...graph.graph import Graph, Value, Values
from ..core.call import RuleCall, rule_can_differentiate_value, zero_cotangent, zeros_for_none
from ..core.inline import builder_with_inlined_graph, inline_nodes_into_builder
from ..core.kinds import Choice, Cotangents, Linear, Maybe, Rule, Tangents
from ..rules.assignment import add_cotangents_at_places
from .snapshots import ReversedIterations, Stretch, kept_loop_snapshots, snapshot_levels_within_budget


@frozen
class Parts:
    """A loop's arguments, by what they are."""

    loop: Loop
    initial: tuple[Value, ...]
    arrays: tuple[Value, ...]
    invariants: tuple[Value, ...]
    count: tuple[Value, ...]
    numbers: tuple[Value, ...]


def differentiated_loop_arguments_by_role(call: RuleCall) -> Parts:
    loop: Loop = call.attr("control")
    split, memory = loop.carried + len(loop.windows), memory_argument_count_of_node(call.node)
    behind, args = memory + loop.counted, call.args
    arrays, invariants = args[loop.carried : split], args[split:memory]
    return Parts(loop, args[: loop.carried], arrays, invariants, args[memory:behind], args[behind:])


def differentiated_loop_inputs(call: RuleCall) -> list[int]:
    """The inputs of the body that follow what is differentiated: those that are given so, and what is carried from
    turn to turn that follows them."""
    loop: Loop = call.attr("control")
    builder, new = builder_with_inlined_graph(loop.body)
    moving = {i for i in range(memory_argument_count_of_node(call.node)) if call.active[i]}
    while True:
        sources = [new[loop.body.inputs[i]] for i in sorted(moving)]
        outputs = [new[o] for o in loop.body.outputs[: loop.carried]]
        follows = call.walks.following(builder, sources, outputs)
        grown = moving | {i for i, f in enumerate(follows) if f and rule_can_differentiate_value(outputs[i])}
        if grown == moving:
            return sorted(moving)
        moving = grown


class ReverseLoopIteration:
    """A turn's derivative: what it reads of the turn, and the graph of its cotangents.

    moving: the body's inputs that have cotangents; seeded: the stacked results that have."""

    def __init__(self, call: RuleCall, moving: Sequence[int], seeded: Sequence[int]) -> None:
        loop: Loop = call.attr("control")
        self.body, self.carried, self.windows, self.sliding = loop.body, loop.carried, len(loop.windows), loop.windows
        self.builder, self.new = builder_with_inlined_graph(loop.body)
        self.inputs = [self.new[i] for i in loop.body.inputs]
        self.primal = {v.number: i for i, v in enumerate(self.new)}
        self.state = [i for i in moving if i < self.carried]
        outputs = [self.new[o] for o in loop.body.outputs]
        results = [*(outputs[i] for i in self.state), *(outputs[i] for i in seeded)]
        self.seeds = [self.builder.placeholder(v.type) for v in results]
        self.replaced: dict[int, int] = {}
        pulled = call.walks.pull_back(
            self.builder, results, self.seeds, [self.inputs[i] for i in moving], self.replaced
        )
        by_input = dict(zip(moving, pulled, strict=True))
        self.next = zeros_for_none(
            self.builder, [by_input[i] for i in self.state], [self.inputs[i] for i in self.state]
        )
        split = self.carried + self.windows
        rest = [(i, v) for i, v in by_input.items() if v is not None and i >= self.carried]
        self.of_windows = [(i, v) for i, v in rest if i < split]
        self.of_invariants = [(i, v) for i, v in rest if i >= split]
        self.saved, self.read = self._nodes_kept_for_reverse()

    @property
    def cotangent_results(self) -> list[Value]:
        return [*self.next, *(v for _, v in self.of_invariants), *(v for _, v in self.of_windows)]

    def _nodes_kept_for_reverse(self) -> tuple[list[Value], set[int]]:
        """The nodes of the forward turn that are kept for the backward one, and its other inputs that this reads."""
        nodes, kept = self.builder.nodes, set[int]()
        carried = {v.number for v in self.inputs[: self.carried]}
        todo = [self.replaced.get(v.number, v.number) for v in self.cotangent_results]
        seen = set[int]()
        while todo:
            number = todo.pop()
            if number in seen:
                continue
            seen.add(number)
            node = nodes[number]
            dear = node.kind == "library" and node.op in ("matmul", "host")
            if number in carried or (dear and number in self.primal):
                kept.add(number)
            else:
                todo += [self.replaced.get(a, a) for a in node.args]
        return [self.builder.at(n) for n in sorted(kept)], seen - kept

    def reverse_body_graph(self, count: int) -> tuple[Graph, list[int], list[int]]:
        """The backward turn, and the windows and invariants that it takes. Its inputs: cotangents of what is carried,
        sums for the invariants; what was kept, the windows, the cotangents of what was stacked, each as a window; the
        invariants. Its outputs: those cotangents, the sums, and the windows' cotangents."""
        made = GraphBuilder("backward")
        known: dict[int, Value] = {}
        count_state = len(self.state)
        for seed in self.seeds[:count_state]:
            known[seed.number] = made.input(seed.type)
        sums = [made.input(v.type) for _, v in self.of_invariants]
        for value in self.saved:
            known[value.number] = self._kept_row_input(made, value.type)
        split = self.carried + self.windows
        windows = [i for i in range(self.carried, split) if self.inputs[i].number in self.read]
        for i in windows:
            known[self.inputs[i].number] = made.input(self.inputs[i].type)
        for seed in self.seeds[count_state:]:
            known[seed.number] = self._kept_row_input(made, seed.type)
        invariants = [i for i in range(split, len(self.inputs)) if self.inputs[i].number in self.read]
        for i in invariants:
            known[self.inputs[i].number] = made.input(self.inputs[i].type)
        turn, *numbers = [self.new[n] for n in self.body.numbers]
        index = add_body_scalar(made, turn.type)
        known[turn.number] = made.map("subtract", made.const(count - 1, INT64), index)
        for number in numbers:
            known[number.number] = add_body_scalar(made, number.type)
        found = inline_nodes_into_builder(
            made,
            self.builder.nodes,
            self.builder.lines,
            [v.number for v in self.cotangent_results],
            known,
            self.replaced,
        )
        ends = found[:count_state]
        added = [made.map("add", s, v) for s, v in zip(sums, found[count_state:], strict=False)]
        return made.finish([*ends, *added, *found[count_state + len(sums) :]]), windows, invariants

    def iterations_for_snapshots(self, shared: Values) -> ReversedIterations:
        """The forward turn and the backward one as graphs of their own, whose windows are read where the number of the
        turn says. shared: the arrays that windows look at, the invariants, the stacked results' cotangents."""
        nodes, lines, count = self.builder.nodes, self.builder.lines, len(self.state)
        step, known = self._inputs_of_separate_iteration(GraphBuilder("step"), (), shared)
        outputs = [self.new[o].number for o in self.body.outputs[: self.carried]]
        forward = step.finish(inline_nodes_into_builder(step, nodes, lines, outputs, known))
        sums = [v.type for _, v in self.of_invariants]
        made, known = self._inputs_of_separate_iteration(GraphBuilder("back"), sums, shared)
        added = inline_nodes_into_builder(
            made, nodes, lines, [v.number for v in self.cotangent_results], known, self.replaced
        )
        first = self.carried + count
        totals = [made.at(made.inputs[first + i]) for i in range(len(sums))]
        ends = [made.map("add", total, v) for total, v in zip(totals, added[count:], strict=True)]
        return ReversedIterations(forward, made.finish([*added[:count], *ends]))

    def _inputs_of_separate_iteration(
        self, made: GraphBuilder, sums: Sequence[ArrayType] | tuple[()], shared: Values
    ) -> tuple[GraphBuilder, dict[int, Value]]:
        """The inputs of a turn on its own, and what they stand for: the state, for a backward turn the cotangents and
        sums, what is shared, the number of the turn."""
        known = {v.number: made.input(v.type) for v in self.inputs[: self.carried]}
        if made.name == "back":
            known |= {seed.number: made.input(seed.type) for seed in self.seeds[: len(self.state)]}
            for type in sums:
                made.input(type)
        given = [made.input(v.type) for v in shared]
        turn, *numbers = [self.new[n] for n in self.body.numbers]
        index = known[turn.number] = made.input(turn.type)
        known |= {n.number: add_body_scalar(made, n.type) for n in numbers}
        inner = self.inputs[self.carried :]
        for value, array, window in zip(inner, given, self.sliding, strict=False):
            known[value.number] = _loop_window_at_reversed_turn(made, array, window, index, value.shape)
        known |= {v.number: g for v, g in zip(inner[self.windows :], given[self.windows :], strict=False)}
        for seed, array in zip(self.seeds[len(self.state) :], given[len(inner) :], strict=True):
            row = Window((0,) * len(array.shape), (1,) * len(array.shape), (1, *(0,) * seed.ndim))
            known[seed.number] = made.reshape(
                _loop_window_at_reversed_turn(made, array, row, index, (1, *seed.shape)), seed.shape
            )
        return made, known

    def _kept_row_input(self, made: GraphBuilder, type: ArrayType) -> Value:
        row = made.input(ArrayType((1, *type.shape), type.dtype))
        return made.reshape(row, type.shape)

    def forward_body_that_keeps(self) -> Graph:
        """The forward turn that gives what is kept as well."""
        outputs = [self.new[o] for o in self.body.outputs]
        return self.builder.finish([*outputs, *self.saved])


def _loop_cotangents(call: RuleCall, cts: Cotangents) -> Sequence[Maybe]:
    parts, builder = differentiated_loop_arguments_by_role(call), call.builder
    loop, count = parts.loop, parts.loop.count
    assert count is not None
    if not count:
        return [cts.get(i) if i < loop.carried else None for i in range(len(call.args))]
    seeded = [i for i in sorted(cts) if i >= loop.carried]
    back = ReverseLoopIteration(call, differentiated_loop_inputs(call), seeded)
    if count * sum(v.type.nbytes for v in back.saved) > call.walks.options.budget and not back.of_windows:
        levels = snapshot_levels_within_budget(
            call.walks.options.budget, count, sum(v.type.nbytes for v in parts.initial)
        )
        return _loop_cotangents_from_snapshots(call, cts, back, seeded, builder.const(count, INT64), levels)
    return _loop_cotangents_from_kept(call, cts, back, seeded, count)


def _loop_cotangents_from_kept(
    call: RuleCall, cts: Cotangents, back: ReverseLoopIteration, seeded: Sequence[int], count: int
) -> Sequence[Maybe]:
    parts, builder = differentiated_loop_arguments_by_role(call), call.builder
    loop = parts.loop
    stacks = _values_kept_for_reverse_loop(call, parts, back)
    body, windows, invariants = back.reverse_body_graph(count)
    initial = [cts.get(i) or zero_cotangent(builder, parts.initial[i]) for i in back.state]
    initial += [zero_cotangent(builder, call.args[i]) for i, _ in back.of_invariants]
    arrays = [*stacks, *(call.args[i] for i in windows), *(cts[i] for i in seeded)]
    rows = [
        *(_derivative_loop_row_window(s, count) for s in stacks),
        *(_derivative_loop_window(loop.windows[i - loop.carried], count) for i in windows),
    ]
    rows += [_derivative_loop_row_window(cts[i], count) for i in seeded]
    state, saved = (sum(v.type.nbytes for v in values) for values in (parts.initial, back.saved))
    made = Loop(body, len(initial), tuple(rows), count, kept=kept_loop_snapshots(count, state, saved, ()))
    args = [*initial, *arrays, *(call.args[i] for i in invariants), *parts.numbers]
    results = add_control_flow_node(builder, made, args)
    found: dict[int, Value] = dict(zip(back.state, results, strict=False))
    at = len(back.state)
    for i, _ in back.of_invariants:
        found[i], at = results[at], at + 1
    for i, _ in back.of_windows:
        turned = _flip_stacked_loop_cotangents(builder, results[at])
        found[i], at = (
            _loop_cotangent_of_windowed_array(builder, loop.windows[i - loop.carried], turned, call.args[i]),
            at + 1,
        )
    return [found.get(i) for i in range(len(call.args))]


def _values_kept_for_reverse_loop(call: RuleCall, parts: Parts, back: ReverseLoopIteration) -> list[Value]:
    """What the backward turns read, of all turns: the loop becomes one that stacks it."""
    if not back.saved:
        return []
    made = Loop(back.forward_body_that_keeps(), parts.loop.carried, parts.loop.windows, parts.loop.count)
    results = add_control_flow_node(call.builder, made, call.args)
    call.replaced.update((value.number, results[part].number) for part, value in call.results.items())
    return results[len(parts.loop.types) :]


def _derivative_loop_row_window(array: Value, count: int) -> Window:
    """The rows of an array, from the last to the first."""
    rank = len(array.shape)
    return Window((count - 1, *(0,) * (rank - 1)), (1,) * rank, (-1, *(0,) * (rank - 1)))


def _derivative_loop_window(window: Window, count: int) -> Window:
    """What a window shows, from the last turn to the first."""
    last = tuple(s + (count - 1) * m for s, m in zip(window.starts, window.moves, strict=True))
    return Window(last, window.steps, tuple(-m for m in window.moves))


def _flip_stacked_loop_cotangents(builder: GraphBuilder, stacked: Value) -> Value:
    """From the first turn to the last."""
    rank = stacked.ndim
    starts, steps = (stacked.shape[0] - 1, *(0,) * (rank - 1)), (-1, *(1,) * (rank - 1))
    return builder.slice(stacked, starts, steps, stacked.shape)


def _loop_cotangent_of_windowed_array(builder: GraphBuilder, window: Window, stacked: Value, like: Value) -> Value:
    """The cotangent of an array, of those of what a window shows of it at each turn."""
    count, *shape = stacked.shape
    axes = [i for i, m in enumerate(window.moves) if m]
    if not axes:
        summed = builder.reduce("sum", stacked, [0], stacked.dtype)
        return builder.update(zero_cotangent(builder, like), summed, window.starts, window.steps)
    if len(axes) == 1 and window.moves[axes[0]] > 0:
        (axis,) = axes
        move, step, n = window.moves[axis], window.steps[axis], shape[axis]
        if n == 1 or (step == 1 and n == move):  # one behind the other, or apart
            order = [*range(1, axis + 1), 0, *range(axis + 1, len(shape) + 1)]
            joined = [count * n if i == axis else m for i, m in enumerate(shape)]
            value = builder.reshape(builder.permute(stacked, order), joined)
            steps = tuple((move if n == 1 else 1) if i == axis else s for i, s in enumerate(window.steps))
            return builder.update(zero_cotangent(builder, like), value, window.starts, steps)
    return add_cotangents_at_places(
        builder,
        zero_cotangent(builder, like),
        _element_numbers_of_loop_windows(builder, window, stacked, like),
        _flattened_loop_cotangent(builder, stacked),
    )


def _loop_window_at_reversed_turn(
    builder: GraphBuilder, array: Value, window: Window, turn: Value, shape: Sequence[int]
) -> Value:
    """What a window shows at a turn whose number is computed."""
    indices = []
    for axis, n in enumerate(shape):
        length = [n if i == axis else 1 for i in range(len(shape))]
        steps = builder.map("multiply", builder.index(length, axis), builder.const(window.steps[axis], INT64))
        first = builder.map("multiply", turn, builder.const(window.moves[axis], INT64))
        first = builder.map("add", first, builder.const(window.starts[axis], INT64))
        indices.append(builder.map("add", steps, first))
    return builder.gather(array, indices, range(len(shape)), [], tuple(shape), checked=False)


def _flattened_loop_cotangent(builder: GraphBuilder, value: Value) -> Value:
    return builder.reshape(value, (value.size,))


def _element_numbers_of_loop_windows(builder: GraphBuilder, window: Window, stacked: Value, like: Value) -> Value:
    """The numbers of the elements of an array that a window shows, turn after turn."""
    total = builder.const(0, INT64)
    stride = like.size
    turn = builder.index(stacked.shape, 0)
    for axis, (start, step, move) in enumerate(zip(window.starts, window.steps, window.moves, strict=True)):
        stride //= like.shape[axis]
        along = builder.map("multiply", builder.index(stacked.shape, axis + 1), builder.const(step * stride, INT64))
        moved = builder.map("multiply", turn, builder.const(move * stride, INT64))
        both = builder.map("add", along, moved)
        total = builder.map("add", total, builder.map("add", both, builder.const(start * stride, INT64)))
    return _flattened_loop_cotangent(builder, total)


def _loop_tangents(call: RuleCall, tangents: Sequence[Maybe]) -> Tangents:
    """A loop that carries the tangents beside the values."""
    parts = differentiated_loop_arguments_by_role(call)
    loop, body = parts.loop, parts.loop.body
    moving = differentiated_loop_inputs(call)
    builder, new = builder_with_inlined_graph(body)
    sources, outputs = [new[body.inputs[i]] for i in moving], [new[o] for o in body.outputs]
    given = {i: builder.placeholder(v.type) for i, v in zip(moving, sources, strict=True)}
    wanted = [i for i in moving if i < loop.carried]
    stacked = [i for i in range(loop.carried, len(outputs)) if rule_can_differentiate_value(outputs[i])]
    targets = [outputs[i] for i in (*wanted, *stacked)]
    replaced: dict[int, int] = {}
    found = call.walks.push_forward(builder, sources, [*given.values()], targets, replaced)
    pushed = zeros_for_none(builder, found, targets)
    split = loop.carried + len(loop.windows)
    made = GraphBuilder(body.name)
    known: dict[int, Value] = {}
    groups = [range(loop.carried), range(loop.carried, split), range(split, len(body.inputs))]
    args: list[Value] = []
    for group in groups:
        for i in group:
            known[new[body.inputs[i]].number] = made.input(new[body.inputs[i]].type)
            args.append(call.args[i])
        for i in group:
            if i in given:
                known[given[i].number] = made.input(given[i].type)
                args.append(tangents[i] or zero_cotangent(call.builder, call.args[i]))
    for number in body.numbers:
        known[new[number].number] = add_body_scalar(made, new[number].type)
    values = [*outputs[: loop.carried], *pushed[: len(wanted)], *outputs[loop.carried :], *pushed[len(wanted) :]]
    both_outputs = inline_nodes_into_builder(
        made, builder.nodes, builder.lines, [v.number for v in values], known, replaced
    )
    windows = [*loop.windows, *(loop.windows[i - loop.carried] for i in groups[1] if i in given)]
    both = Loop(made.finish(both_outputs), loop.carried + len(wanted), tuple(windows), loop.count, loop.flag)
    results = add_control_flow_node(call.builder, both, [*args, *parts.count, *parts.numbers])
    first = loop.carried + len(wanted)
    behind = len(body.outputs) - loop.carried
    for part, value in call.results.items():
        call.replaced[value.number] = results[part if part < loop.carried else part + len(wanted)].number
    moved: dict[int, Maybe] = dict(zip(wanted, results[loop.carried : first], strict=True))
    moved.update(zip(stacked, results[first + behind :], strict=True))
    return moved


def _loop_derivative_rule(call: RuleCall) -> Rule:
    loop: Loop = call.attr("control")
    return Linear(
        _loop_tangents,
        _loop_cotangents if loop.count is not None else _cotangents_of_loop_of_unknown_length,
        _is_loop_argument_differentiable,
    )


def _cotangents_of_loop_of_unknown_length(call: RuleCall, cts: Cotangents) -> Sequence[Maybe]:
    """Of a loop whose number of turns the call decides; one with a flag counts its own."""
    parts, builder = differentiated_loop_arguments_by_role(call), call.builder
    back = ReverseLoopIteration(call, differentiated_loop_inputs(call), [])
    count = parts.count[0] if parts.loop.counted else _count_turns_of_differentiated_loop(call)
    count = builder.map("maximum", builder.cast(count, INT64), np.int64(0))
    state = sum(v.type.nbytes for v in parts.initial)
    pieces = min(MOST_PIECES, max(LEAST_PIECES, call.walks.options.budget // max(2 * state, 1)))
    return _loop_cotangents_from_snapshots(call, cts, back, [], count, [pieces, pieces])


LEAST_PIECES, MOST_PIECES = 8, 128


def _loop_cotangents_from_snapshots(
    call: RuleCall,
    cts: Cotangents,
    back: ReverseLoopIteration,
    seeded: Sequence[int],
    count: Value,
    levels: Sequence[int],
) -> Sequence[Maybe]:
    parts, builder = differentiated_loop_arguments_by_role(call), call.builder
    initial = [cts.get(i) or zero_cotangent(builder, parts.initial[i]) for i in back.state]
    initial += [zero_cotangent(builder, call.args[i]) for i, _ in back.of_invariants]
    shared = [*parts.arrays, *parts.invariants, *(cts[i] for i in seeded)]
    known = parts.loop.count
    expected, first = UNKNOWN_ITERATIONS if known is None else known, builder.const(0, INT64)
    stretch = Stretch(parts.initial, initial, shared, first, count, expected, known)
    turns = back.iterations_for_snapshots(shared)
    if known is not None and len(parts.loop.types) == parts.loop.carried:
        state, saved = (sum(v.type.nbytes for v in values) for values in (parts.initial, back.saved))
        ends, kept = turns.take_snapshots(
            builder, stretch, parts.numbers, levels[0]
        )  # which is the forward loop as well
        call.replaced.update((value.number, ends[part].number) for part, value in call.results.items())
        states = kept_loop_snapshots(known, state, saved, levels)
        results = turns.reverse_pieces(builder, stretch, kept, parts.numbers, levels, states)
    else:
        results = turns.reverse_stretch(builder, stretch, parts.numbers, levels)
    places = [*back.state, *(i for i, _ in back.of_invariants)]
    found = dict(zip(places, results, strict=True))
    return [found.get(i) for i in range(len(call.args))]


def _count_turns_of_differentiated_loop(call: RuleCall) -> Value:
    """How many turns a loop with a flag makes: it becomes one that counts them."""
    loop: Loop = call.attr("control")
    builder, new = builder_with_inlined_graph(loop.body)
    made = GraphBuilder(loop.body.name)
    known: dict[int, Value] = {}
    for i, number in enumerate(loop.body.inputs):
        if i == loop.carried:
            counter = made.input(ITERATION)
        known[new[number].number] = made.input(new[number].type)
    if len(loop.body.inputs) == loop.carried:
        counter = made.input(ITERATION)
    for number in loop.body.numbers:
        known[new[number].number] = add_body_scalar(made, new[number].type)
    outputs = inline_nodes_into_builder(
        made, builder.nodes, builder.lines, [new[o].number for o in loop.body.outputs], known
    )
    body = made.finish([*outputs, made.map("add", counter, np.int64(1))])
    args = [*call.args[: loop.carried], call.builder.const(0, INT64), *call.args[loop.carried :]]
    results = add_control_flow_node(call.builder, Loop(body, loop.carried + 1, (), None, True), args)
    call.replaced.update((value.number, results[part].number) for part, value in call.results.items())
    return results[-1]


def _is_loop_argument_differentiable(call: RuleCall, place: int) -> bool:
    """Whether an argument may carry a derivative: no count, and no number of the call."""
    return place < memory_argument_count_of_node(call.node) and rule_can_differentiate_value(call.args[place])


LOOP = Choice(_loop_derivative_rule)
