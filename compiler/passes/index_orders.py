"""What a graph makes of its indices alone, cut off as a graph of its own: calls with the same indices share it.

The orders that sums over indices take their values in, and what is gathered in these, take longer than the sums."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ...runtime.core.frozen import frozen
from ..graph.builder import GraphBuilder, nodes_to_copy
from ..graph.graph import Graph, Node
from ..ops.table import OPS

VIEWS = ("slice", "reshape")
PURE = frozenset({"const", "index", "cast", "gather", "permute", "broadcast", *VIEWS, *OPS})


@frozen
class CutGraph:
    """orders: a graph of the inputs with these places. rest: all else, of the first inputs, the results of `orders`,
    and the other inputs."""

    places: tuple[int, ...]
    orders: Graph
    rest: Graph


def cut_off_index_orders(graph: Graph, indices: Collection[int], first: int) -> CutGraph | None:
    """The graph in two; None where it orders nothing. indices: the places of the inputs that calls may share. first:
    how many of the inputs come before the results of the orders."""
    sources = _inputs_that_nodes_are_made_of(graph, indices)
    ends = _ordered_nodes_that_others_need(graph, sources)
    if not ends:
        return None
    places = tuple(sorted({place for n in ends for place in sources[n] or ()}))
    orders, rest = GraphBuilder(f"{graph.name}: orders of indices"), GraphBuilder(graph.name)
    new = {graph.inputs[i]: orders.input(graph.nodes[graph.inputs[i]].type) for i in places}
    for number, node in nodes_to_copy(graph, orders):
        its = sources[number]
        if number not in new and its is not None and its <= {*places}:
            new[number] = orders.copy(node, [new[a] for a in node.args])
    types = [graph.nodes[n].type for n in graph.inputs]
    kept = dict(zip(graph.inputs[:first], map(rest.input, types[:first]), strict=True))
    kept |= {n: rest.input(graph.nodes[n].type) for n in ends}
    kept |= dict(zip(graph.inputs[first:], map(rest.input, types[first:]), strict=True))
    for number, node in nodes_to_copy(graph, rest):
        if number not in kept:
            kept[number] = rest.copy(node, [kept[a] for a in node.args])
    rest.numbers = [kept[n].number for n in graph.numbers]
    return CutGraph(places, orders.finish([new[n] for n in ends]), rest.finish([kept[n] for n in graph.outputs]))


def _inputs_that_nodes_are_made_of(graph: Graph, indices: Collection[int]) -> Sequence[frozenset[int] | None]:
    """Of each node the places of the indices that it is made of alone; None where it is made of more."""
    found: list[frozenset[int] | None] = []
    places = {number: place for place, number in enumerate(graph.inputs)}
    for number, node in enumerate(graph.nodes):
        its = [found[a] for a in node.args]
        if number in places:
            is_index = places[number] in indices and node.dtype.kind in "iu"
            found.append(frozenset({places[number]}) if is_index else None)
        elif None in its or not (node.op in PURE or _is_order(node)):
            found.append(None)
        else:
            found.append(frozenset[int]().union(*its))  # type: ignore[arg-type]
    return found


def _is_order(node: Node) -> bool:
    return node.op == "host" and node.attr("function") == "places_in_order"


def _ordered_nodes_that_others_need(graph: Graph, sources: Sequence[frozenset[int] | None]) -> list[int]:
    """The orders of indices, and what is made of them and indices alone, that something else takes. A view of an order
    is made anew."""
    ordered = set[int]()
    for number, node in enumerate(graph.nodes):
        if sources[number] and (_is_order(node) or not ordered.isdisjoint(node.args)):
            ordered.add(number)
    needed = set[int]()
    for number in sorted(ordered, reverse=True):
        views = {u for u in graph.users[number] if graph.nodes[u].op in VIEWS}
        others = {u for u in graph.users[number] if u not in ordered}
        if number in graph.outputs or others or not needed.isdisjoint(views):
            needed.add(number)
    return sorted(n for n in needed if graph.nodes[n].op not in VIEWS)
