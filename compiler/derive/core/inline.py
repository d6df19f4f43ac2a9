"""A graph's nodes copied into a builder, its inputs and numbers replaced by values that are there."""

from __future__ import annotations

from collections.abc import Sequence

from ...graph.builder import GraphBuilder
from ...graph.graph import Graph, Value


def inline(builder: GraphBuilder, graph: Graph, inputs: Sequence[Value], numbers: Sequence[Value] = ()) -> list[Value]:
    """The graph's outputs, for these inputs and numbers. Nodes that the builder has are not made again."""
    known = dict(zip(graph.inputs, inputs, strict=True)) | dict(zip(graph.numbers, numbers, strict=True))
    before, line = builder.where, ""
    builder.where = lambda: line
    try:
        for number, node in enumerate(graph.nodes):
            if number not in known:
                line = graph.lines[number] if graph.lines else ""
                args = tuple(known[a].number for a in node.args)
                known[number] = builder.add(node.op, args, node.type, node.attrs)
    finally:
        builder.where = before
    return [known[o] for o in graph.outputs]


def copied(graph: Graph) -> tuple[GraphBuilder, list[Value]]:
    """A builder with all of the graph, and the value of each node."""
    builder = GraphBuilder(graph.name)
    line = ""
    builder.where = lambda: line
    new: list[Value] = []
    for number, node in enumerate(graph.nodes):
        line = graph.lines[number] if graph.lines else ""
        new.append(builder.add(node.op, tuple(new[a].number for a in node.args), node.type, node.attrs))
    builder.inputs = [new[i].number for i in graph.inputs]
    builder.numbers = [new[i].number for i in graph.numbers]
    return builder, new
