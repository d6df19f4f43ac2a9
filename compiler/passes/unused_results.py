"""Loops without what nobody takes: results of theirs, and what only those are computed from."""

from __future__ import annotations

from ...runtime.core.frozen import replace
from ..graph.builder import GraphBuilder, nodes_to_copy
from ..graph.control_flow import Loop
from ..graph.graph import Graph, Node, Value, needed_nodes


def drop_unused_loop_results(graph: Graph) -> Graph:
    """The graph with loops that carry and stack no more than is needed, after them or in the next iteration."""
    taken = {n for node in graph.nodes for n in node.args} | {*graph.outputs}
    parts: dict[tuple[int, ...], set[int]] = {}
    loops: dict[tuple[int, ...], Node] = {}
    for number, node in enumerate(graph.nodes):
        if node.op == "loop":
            key = (id(node.attr("control")), *node.args)
            loops.setdefault(key, node)
            parts.setdefault(key, set()).update([node.attr("part")] if number in taken else [])
    kept = {key: _loop_without_unused_results(node, parts[key]) for key, node in loops.items()}
    kept = {key: found for key, found in kept.items() if found is not None}
    if not kept:
        return graph
    builder = GraphBuilder(graph.name)
    new: dict[int, Value] = {}
    for number, node in nodes_to_copy(graph, builder):
        found = kept.get((id(node.attr("control")), *node.args)) if node.op == "loop" else None
        args, attrs = node.args, node.attrs
        if found is not None:
            loop, numbers, places = found
            if node.attr("part") not in places:
                continue
            args = tuple(node.args[n] for n in numbers)
            attrs = (("control", loop), ("part", places[node.attr("part")]))
        new[number] = builder.add(node.op, tuple(new[a].number for a in args), node.type, attrs)
    return builder.finish_copy(graph, new)


def _loop_without_unused_results(node: Node, used: set[int]) -> tuple[Loop, list[int], dict[int, int]] | None:
    """The smaller loop, which of the arguments it takes, and for each result that is left its new place; None where
    all are needed."""
    loop: Loop = node.attr("control")
    body = loop.body
    needed = used | ({0} if loop.flag else set())
    while True:
        reached = {*needed_nodes(body.nodes, [body.outputs[part] for part in needed])}
        more = needed | {place for place in range(loop.carried) if body.inputs[place] in reached}
        if more == needed:
            break
        needed = more
    if not needed or len(needed) == len(body.outputs):
        return None
    inputs = [place for place in range(len(body.inputs)) if place in needed or place >= loop.carried]
    builder = GraphBuilder(body.name)
    new: dict[int, Value] = {body.inputs[place]: builder.input(body.nodes[body.inputs[place]].type) for place in inputs}
    for number, inner in nodes_to_copy(body, builder):
        if inner.op == "number":
            new[number] = builder.copy(inner, ())
            builder.numbers.append(new[number].number)
        elif number in reached and number not in new:
            new[number] = builder.copy(inner, [new[a] for a in inner.args])
    order = sorted(needed)
    made = builder.finish([new[body.outputs[part]] for part in order])
    smaller = replace(loop, body=made, carried=sum(part < loop.carried for part in order))
    rest = range(len(body.inputs), len(node.args))
    return smaller, [*inputs, *rest], {part: place for place, part in enumerate(order)}
