"""Nodes copied from one builder or graph to another. Some are replaced by values that are there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...graph.builder import GraphBuilder, nodes_to_copy
from ...graph.graph import Graph, Node, Value, Values
from .call import RuleWalks, zeros_for_none


def inline_graph_into_builder(builder: GraphBuilder, graph: Graph, inputs: Values, numbers: Values = ()) -> list[Value]:
    """The graph's outputs, for these inputs and numbers. Nodes that the builder has are not made again."""
    known = dict(zip(graph.inputs, inputs, strict=True)) | dict(zip(graph.numbers, numbers, strict=True))
    return inline_nodes_into_builder(builder, graph.nodes, graph.lines, graph.outputs, known)


def inline_nodes_into_builder(
    builder: GraphBuilder,
    nodes: Sequence[Node],
    lines: Sequence[str],
    outputs: Sequence[int],
    known: Mapping[int, Value],
    replaced: Mapping[int, int] | None = None,
) -> list[Value]:
    """The outputs in another builder. known: nodes that have a value there. replaced: nodes in whose place others
    stand, which may come later than those that use them."""
    places = replaced or {}
    made = dict(known)
    before, line = builder.where, ""
    builder.where = lambda: line
    try:
        todo = [places.get(o, o) for o in reversed(outputs)]
        while todo:
            number = todo[-1]
            if number in made:
                todo.pop()
                continue
            node = nodes[number]
            args = [places.get(a, a) for a in node.args]
            missing = [a for a in reversed(args) if a not in made]
            if missing:
                todo += missing
                continue
            line = lines[number] if lines else ""
            made[number] = builder.copy(node, [made[a] for a in args])
            todo.pop()
    finally:
        builder.where = before
    return [made[places.get(o, o)] for o in outputs]


def builder_with_inlined_graph(graph: Graph) -> tuple[GraphBuilder, list[Value]]:
    """A builder with all of the graph, and the value of each node."""
    builder, new = GraphBuilder(graph.name), list[Value]()
    for _, node in nodes_to_copy(graph, builder):
        new.append(builder.copy(node, [new[a] for a in node.args]))
    builder.inputs = [new[i].number for i in graph.inputs]
    builder.numbers = [new[i].number for i in graph.numbers]
    return builder, new


def graph_of_walk(
    walks: RuleWalks,
    graph: Graph,
    inputs: Sequence[int],
    outputs: Sequence[int],
    reverse: bool,
    keeps_results: bool = False,
) -> Graph:
    """The cotangents of these inputs, given those of these outputs behind the graph's own inputs; or tangents forward.

    keeps_results: the graph's own results come first."""
    builder, new = builder_with_inlined_graph(graph)
    results, sources = [new[o] for o in graph.outputs], [new[graph.inputs[i]] for i in inputs]
    targets = [results[i] for i in outputs]
    given, wanted = (targets, sources) if reverse else (sources, targets)
    walk = walks.pull_back if reverse else walks.push_forward
    replaced: dict[int, int] = {}
    found = walk(builder, given, [builder.input(v.type) for v in given], wanted, replaced)
    own = results if keeps_results else []
    return graph_with_replaced_builder_nodes(builder, [*own, *zeros_for_none(builder, found, wanted)], replaced)


def graph_with_replaced_builder_nodes(builder: GraphBuilder, outputs: Values, replaced: Mapping[int, int]) -> Graph:
    """The graph of the outputs, with nodes in the place of others."""
    if not replaced:
        return builder.finish(outputs)
    made = GraphBuilder(builder.name)
    known: dict[int, Value] = {}
    for number in sorted((*builder.inputs, *builder.numbers)):
        node = builder.nodes[number]
        known[number] = made.add(node.op, (), node.type, node.attrs)
    made.inputs = [known[n].number for n in builder.inputs]
    made.numbers = [known[n].number for n in builder.numbers]
    numbers = [o.number for o in outputs]
    return made.finish(inline_nodes_into_builder(made, builder.nodes, builder.lines, numbers, known, replaced))
