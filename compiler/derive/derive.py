"""A graph in; out, the graph that computes derivatives as well. A Jacobian times tangents, or cotangents times it."""

from __future__ import annotations

from collections.abc import Sequence

from ..graph.graph import Graph
from ..passes.attention import call_attention
from ..passes.contractions import call_convolutions
from .core.call import ReverseOptions
from .core.inline import graph_of_walk
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
    return graph_of_walk(DifferentiationWalks(options), graph, inputs, outputs, reverse=True, keeps_results=True)


def derive_forward(graph: Graph, inputs: Sequence[int], outputs: Sequence[int]) -> Graph:
    """The graph with more inputs, tangents of these inputs, and more outputs, the tangents of these outputs.

    Raises GraphError where there is no derivative."""
    return graph_of_walk(DifferentiationWalks(DEFAULT), graph, inputs, outputs, reverse=False, keeps_results=True)
