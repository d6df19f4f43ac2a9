"""A graph in; out, the graph that computes derivatives as well. A Jacobian times tangents, or cotangents times it."""

from __future__ import annotations

from collections.abc import Sequence

from ..graph.builder import GraphBuilder
from ..graph.graph import Graph, Value, Values
from ..passes.attention import call_attention
from ..passes.contractions import call_convolutions
from .core.call import ReverseOptions, zero_cotangent
from .core.inline import builder_with_inlined_graph, graph_with_replaced_builder_nodes
from .core.kinds import Maybe
from .walk import DifferentiationWalks

DEFAULT = ReverseOptions()


def derive_reverse(
    graph: Graph, inputs: Sequence[int], outputs: Sequence[int], options: ReverseOptions = DEFAULT
) -> Graph:
    """The graph with more inputs, cotangents of these outputs, and more outputs, the cotangents of these inputs.

    A gradient of a real function of complex numbers points where it grows fastest, as PyTorch's does: the cotangent of
    w with w = f(z) holomorphic is multiplied by the conjugate of f'(z). Raises GraphError where there is no derivative.
    """
    graph = call_convolutions(call_attention(graph, differentiated=True))
    builder, new = builder_with_inlined_graph(graph)
    results, sources = [new[o] for o in graph.outputs], [new[graph.inputs[i]] for i in inputs]
    cotangents = [builder.input(results[i].type) for i in outputs]
    replaced: dict[int, int] = {}
    pulled = DifferentiationWalks(options).pull_back(
        builder, [results[i] for i in outputs], cotangents, sources, replaced
    )
    return graph_with_replaced_builder_nodes(
        builder, [*results, *_zeros_where_walk_found_none(builder, pulled, sources)], replaced
    )


def derive_forward(graph: Graph, inputs: Sequence[int], outputs: Sequence[int]) -> Graph:
    """The graph with more inputs, tangents of these inputs, and more outputs, the tangents of these outputs.

    Raises GraphError where there is no derivative."""
    builder, new = builder_with_inlined_graph(graph)
    results, sources = [new[o] for o in graph.outputs], [new[graph.inputs[i]] for i in inputs]
    tangents = [builder.input(v.type) for v in sources]
    targets = [results[i] for i in outputs]
    replaced: dict[int, int] = {}
    pushed = DifferentiationWalks(DEFAULT).push_forward(builder, sources, tangents, targets, replaced)
    return graph_with_replaced_builder_nodes(
        builder, [*results, *_zeros_where_walk_found_none(builder, pushed, targets)], replaced
    )


def _zeros_where_walk_found_none(builder: GraphBuilder, values: Sequence[Maybe], like: Values) -> list[Value]:
    return [zero_cotangent(builder, v) if t is None else t for t, v in zip(values, like, strict=True)]
