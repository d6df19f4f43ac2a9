"""Several iterations of a loop as one. What follows each other in one is fused, and its values stay in registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...runtime.core.frozen import replace
from ..graph.builder import GraphBuilder, nodes_to_copy
from ..graph.control_flow import ITERATION, Loop, Window, add_body_scalar, add_control_flow_node
from ..graph.graph import Graph, Node, Value, Values
from ..lowering.control_flow import ITERATION_US
from .prediction import predict_graph_microseconds

MIN_ITERATIONS = 9  # of a loop, after joining too
MOST_NODES = 256  # of several iterations that are one
GAIN = 0.9  # a longer iteration has to take at most this of the time


def join_loop_iterations(graph: Graph, target_name: Callable[[], str]) -> tuple[Graph, tuple[str, ...]]:
    """The graph with as many iterations in one as pay, in each loop whose count is known; and a remark for each."""
    joined: dict[int, int] = {}
    remarks = []
    for number, node in enumerate(graph.nodes):
        loop: Loop | None = node.attr("control") if node.op == "loop" else None
        if loop is not None and loop.count and id(loop) not in joined:
            joined[id(loop)], why = _joined_iteration_count(loop, target_name)
            what = f"{loop.count} turns of {_operation_count(loop.body)} operations"
            remarks.append(f"{what}{f' at {graph.lines[number]}' if graph.lines else ''} are a loop{why}")
    if {*joined.values()} <= {1}:
        return graph, tuple(remarks)
    builder = GraphBuilder(graph.name)
    new: dict[int, Value] = {}
    made: dict[tuple[int, ...], tuple[list[Value], dict[int, list[Value]]]] = {}
    pieces: dict[int, list[Value]] = {}  # of a stacked result, or of a view of one
    for number, node in nodes_to_copy(graph, builder):
        many = joined.get(id(node.attr("control")), 1) if node.op == "loop" else 1
        args = [new[a] for a in node.args]
        if many > 1:
            key = (id(node.attr("control")), *node.args)
            if key not in made:
                made[key] = _add_loop_of_joined_iterations(builder, node.attr("control"), args, many)
            results, rows = made[key]
            new[number] = results[node.attr("part")]
            if node.attr("part") in rows:
                pieces[number] = rows[node.attr("part")]
            continue
        new[number] = _copy_node_of_pieces(builder, node, args, [pieces.get(a) for a in node.args])
        if node.args and pieces.get(node.args[0]):
            pieces[number] = _views_of_joined_pieces(builder, node, pieces[node.args[0]])
    return builder.finish_copy(graph, new), tuple(remarks)


def _copy_node_of_pieces(
    builder: GraphBuilder, node: Node, args: Values, pieces: Sequence[list[Value] | None]
) -> Value:
    """A copy of a node, which takes the pieces of its arguments where they need not be put together before."""
    if node.op == "update" and pieces[1]:
        return _assign_pieces_of_joined_loop(builder, args[0], pieces[1], node)
    if node.op == "concat" and node.attr("axis") == 0 and any(pieces):
        return builder.concat([p for a, own in zip(args, pieces, strict=True) for p in _pieces_in_order(own, a)], 0)
    return builder.copy(node, args)


def _pieces_in_order(pieces: list[Value] | None, whole: Value) -> list[Value]:
    """The pieces of a result, where they lie one after another along the first axis; else it."""
    return pieces if pieces and sum(p.shape[0] for p in pieces) == whole.shape[0] else [whole]


def _operation_count(body: Graph) -> int:
    return sum(bool(n.args) for n in body.nodes)


def _joined_iteration_count(loop: Loop, target_name: Callable[[], str]) -> tuple[int, str]:
    """How many iterations are one, and what is said of that."""
    size, best, number = _operation_count(loop.body), 1, 2
    cost = first = 0.0
    while number * size <= MOST_NODES and loop.count is not None and loop.count // number >= MIN_ITERATIONS:
        if not cost:
            cost = first = predict_graph_microseconds(loop.body, target_name()) + ITERATION_US
        count = loop.count
        even = min(range(number, number // 2, -1), key=lambda n: count % n)  # as few left over as can be
        took = (predict_graph_microseconds(_joined_loop(loop, even).body, target_name()) + ITERATION_US) / even
        if took > GAIN * cost:
            break
        best, cost, number = even, took, 2 * number
    said = f", {best} of them in one turn: {cost:.2f} us each as predicted, {first:.2f} one by one"
    return best, said if best > 1 else ""


def _joined_loop(loop: Loop, many: int) -> Loop:
    """So many iterations of a loop as one: the windows of the first, then those of the second, and so on."""
    body, count = loop.body, loop.count
    assert count is not None
    builder = GraphBuilder(body.name)
    line = ""
    builder.where = lambda: line
    types = [body.nodes[n].type for n in body.inputs]
    first, last = loop.carried, loop.carried + len(loop.windows)
    values = [builder.input(t) for t in types[:first]]
    windows = [[builder.input(t) for t in types[first:last]] for _ in range(many)]
    invariants = [builder.input(t) for t in types[last:]]
    index = add_body_scalar(builder, ITERATION)
    numbers = [add_body_scalar(builder, body.nodes[n].type) for n in body.numbers[1:]]
    rows: list[list[Value]] = []
    for turn in range(many):
        number = builder.map("multiply", index, many, dtype=ITERATION.dtype)
        number = builder.map("add", number, turn, dtype=ITERATION.dtype) if turn else number
        given = [*values, *windows[turn], *invariants]
        results = _copy_body_into_joined_loop(builder, body, given, [number, *numbers])
        values = results[: loop.carried]
        rows.append([builder.reshape(r, (1, *r.shape)) for r in results[loop.carried :]])
    stacked = [builder.concat(parts, 0) for parts in zip(*rows, strict=True)]
    moved = tuple(_window_of_joined_iterations(w, turn, many) for turn in range(many) for w in loop.windows)
    return replace(loop, body=builder.finish([*values, *stacked]), windows=moved, count=count // many)


def _window_of_joined_iterations(window: Window, turn: int, many: int) -> Window:
    starts = tuple(s + turn * m for s, m in zip(window.starts, window.moves, strict=True))
    return Window(starts, window.steps, tuple(many * m for m in window.moves))


def _copy_body_into_joined_loop(builder: GraphBuilder, body: Graph, inputs: Values, numbers: Values) -> list[Value]:
    """A body's results where its inputs and numbers are these."""
    new = dict(zip((*body.inputs, *body.numbers), (*inputs, *numbers), strict=True))
    for place, node in enumerate(body.nodes):
        if place not in new:
            new[place] = builder.copy(node, [new[a] for a in node.args])
    return [new[n] for n in body.outputs]


def _views_of_joined_pieces(builder: GraphBuilder, node: Node, pieces: Values) -> list[Value]:
    """The same view of each piece of a stacked result, where the rows stay apart; else none."""
    first = pieces[0].shape
    if node.op == "reshape" and node.shape[:1] == (sum(p.shape[0] for p in pieces),) and first[0] > 1:
        return [builder.reshape(p, (p.shape[0], *node.shape[1:])) for p in pieces]
    return [builder.permute(p, node.attr("axes")) for p in pieces] if node.op == "permute" else []


def _assign_pieces_of_joined_loop(builder: GraphBuilder, base: Value, pieces: Values, node: Node) -> Value:
    """What an update assigns, one piece after another: they need not be put together before."""
    (axis, *_) = [a for a, n in enumerate(pieces[0].shape) if n != pieces[-1].shape[a]] or [0]
    starts, steps = [*node.attr("starts")], node.attr("steps")
    for piece in pieces:
        base = builder.update(base, piece, tuple(starts), steps)
        starts[axis] += piece.shape[axis] * steps[axis]
    return base


def _add_loop_of_joined_iterations(
    builder: GraphBuilder, loop: Loop, args: Values, many: int
) -> tuple[list[Value], dict[int, list[Value]]]:
    """The results of a loop, of which so many iterations are one, and the pieces that stacked ones are put together
    from; the iterations left over come after it, one by one."""
    assert loop.count is not None
    first, last = loop.carried, loop.carried + len(loop.windows)
    memory = len(loop.body.inputs)
    bases, rest, numbers = args[first:last], args[last:memory], args[memory:]
    joined = _joined_loop(loop, many)
    repeated = [base for _ in range(many) for base in bases]
    results = add_control_flow_node(builder, joined, [*args[:first], *repeated, *rest, *numbers])
    values = results[: loop.carried]
    done = loop.count // many * many
    rows = [[builder.reshape(r, (done, *r.shape[2:]))] for r in results[loop.carried :]]
    for turn in range(done, loop.count):
        parts = []
        for base, window, number in zip(bases, loop.windows, loop.body.inputs[first:last], strict=True):
            starts = [s + turn * m for s, m in zip(window.starts, window.moves, strict=True)]
            parts.append(builder.slice(base, starts, window.steps, loop.body.nodes[number].shape))
        index = builder.const(turn, ITERATION.dtype)
        given = _copy_body_into_joined_loop(builder, loop.body, [*values, *parts, *rest], [index, *numbers])
        values = given[: loop.carried]
        for row, value in zip(rows, given[loop.carried :], strict=True):
            row.append(builder.reshape(value, (1, *value.shape)))
    whole = [builder.concat(row, 0) if len(row) > 1 else row[0] for row in rows]
    return [*values, *whole], {loop.carried + i: row for i, row in enumerate(rows) if len(row) > 1}
