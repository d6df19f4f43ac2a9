"""Loops whose bodies exchange arrays between devices in; each iteration written out, out.

Devices agree on what they exchange before they run, so what repeats an exchange is known beforehand: a number of
iterations that the trace knows.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ..core.types import dtype_kind
from ..graph.builder import GraphBuilder
from ..graph.control_flow import memory_argument_count_of_node
from ..graph.graph import Graph, GraphError, Node, Value, Values
from .replicate import bodies_exchange_between_devices

MOST_NODES = 1 << 12  # of a graph whose loops are written out


def graph_with_exchanging_loops_unrolled(graph: Graph) -> Graph:
    """The same graph where no loop exchanges anything. Raises GraphError, at the user's line, for one whose iterations
    are not known, or are too many."""
    while any(map(_is_exchanging_loop, graph.nodes)):  # there may be others in their bodies
        graph = _unrolled_once(graph)
    return graph


def _is_exchanging_loop(node: Node) -> bool:
    """Whether it is a loop of which the trace knows how often it runs, and what it exchanges."""
    return node.op == "loop" and node.attr("control").count is not None and bodies_exchange_between_devices(node)


def _unrolled_once(graph: Graph) -> Graph:
    builder, new, written = GraphBuilder(graph.name), list[Value](), dict[Any, list[Value]]()
    for number, node in enumerate(graph.nodes):
        line = graph.lines[number] if graph.lines else ""
        builder.where = partial(str, line)
        args = [new[a] for a in node.args]
        if _is_exchanging_loop(node):
            key = node.args, node.attr("control")
            if key not in written:
                written[key] = _iterations_in_builder(builder, node, args, line)
            new.append(written[key][node.attr("part")])
            continue
        if node.op == "input":
            builder.inputs.append(len(builder.nodes))
        elif node.op == "number":
            builder.numbers.append(len(builder.nodes))
        new.append(builder.copy(node, args))
    return builder.finish([new[o] for o in graph.outputs])


def _iterations_in_builder(builder: GraphBuilder, node: Node, args: Values, line: str) -> list[Value]:
    """The results of a loop: what it carries, then what its iterations add to stacked results."""
    loop, memory = node.attr("control"), memory_argument_count_of_node(node)
    body, split = loop.body, loop.carried + len(loop.windows)
    if loop.count * len(body.nodes) > MOST_NODES:
        raise GraphError(
            f"a loop of {loop.count} iterations in which devices exchange arrays is written out, which makes more than "
            f"{MOST_NODES} operations; run fewer in one call, and call the function from a loop in Python",
            line=line,
        )
    carried, stacked = [*args[: loop.carried]], [list[Value]() for _ in loop.types[loop.carried :]]
    for iteration in range(loop.count):
        slices = [
            builder.slice(
                array,
                tuple(s + iteration * m for s, m in zip(window.starts, window.moves, strict=True)),
                window.steps,
                body.nodes[given].shape,
            )
            for array, window, given in zip(
                args[loop.carried : split], loop.windows, body.inputs[loop.carried : split], strict=True
            )
        ]
        first = builder.const(iteration, body.nodes[body.numbers[0]].dtype)
        known = dict(zip(body.inputs, [*carried, *slices, *args[split:memory]], strict=True))
        known |= dict(zip(body.numbers, [first, *args[memory:]], strict=True))
        results = _inlined_body(builder, body, known)
        carried = results[: loop.carried]
        for rows, row in zip(stacked, results[loop.carried :], strict=True):
            rows.append(builder.reshape(row, (1, *row.shape)))
    whole = [
        builder.concat(rows, 0) if rows else _array_of_no_elements(builder, type)
        for rows, type in zip(stacked, loop.types[loop.carried :], strict=True)
    ]
    return [*carried, *whole]


def _array_of_no_elements(builder: GraphBuilder, type: Any) -> Value:
    return builder.broadcast(builder.const(False if dtype_kind(type.dtype) == "b" else 0, type.dtype), type.shape)


def _inlined_body(builder: GraphBuilder, body: Graph, known: dict[int, Value]) -> list[Value]:
    """The outputs of a body. known: what its inputs and numbers are."""
    made = dict(known)
    for number, node in enumerate(body.nodes):
        if number not in made:
            builder.where = partial(str, body.lines[number] if body.lines else "")
            made[number] = builder.copy(node, [made[a] for a in node.args])
    return [made[o] for o in body.outputs]
