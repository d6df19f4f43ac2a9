"""A part of a trace as a graph of its own: nodes that are there already become its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ...compiler.graph.graph import Graph, Node, Value, needed_nodes
from ...runtime.core.frozen import frozen
from ..core.spec import Host

if TYPE_CHECKING:
    from .trace import Trace


@frozen
class Subgraph:
    """feeds: the leaves of the call that fill the graph's inputs; what earlier parts have kept comes behind the leaves.
    arrays: captured ones, which fill the last inputs. scalars: host names and types of the graph's numbers."""

    graph: Graph
    feeds: tuple[int, ...]
    arrays: tuple[Host, ...]
    scalars: tuple[tuple[str, type], ...]


def extract_subgraph_of_trace(
    trace: Trace, outputs: Sequence[Value], known: Mapping[int, int], always: Sequence[int] = ()
) -> Subgraph:
    """The graph of `outputs`. known: nodes that are there, and their places among what was kept. always: inputs that it
    has even if nothing needs them."""
    nodes = trace.builder.nodes
    needed = sorted({*always}.union(needed_nodes(nodes, [o.number for o in outputs], {*always, *known})))
    fed, captured, numbers = _sources_of_subgraph(trace, needed, known)
    place, count = ({n: i for i, n in enumerate(sources)} for sources in ([*fed, *captured], numbers))
    order = dict.fromkeys([*place, *needed])  # inputs in order
    new = {old: i for i, old in enumerate(order)}

    def node_of_trace_subgraph(old: int) -> Node:
        node = nodes[old]
        if old in place:
            return Node("input", (), node.type, (("index", place[old]),))
        if old in count:
            return Node("number", (), node.type, (("index", count[old]),))
        return Node(node.op, tuple(new[a] for a in node.args), node.type, node.attrs)

    graph = Graph(
        tuple(map(node_of_trace_subgraph, order)),
        tuple(new[n] for n in place),
        tuple(new[n] for n in numbers),
        tuple(new[o.number] for o in outputs),
        tuple(trace.builder.lines[n] for n in order),
        trace.builder.name,
    )
    feeds = tuple(trace.leaves + known[n] if n in known else trace.arguments_at[n] for n in fed)
    names = dict(zip(trace.builder.numbers, trace.scalars, strict=True))
    arrays = tuple(trace.captured[trace.captured_at[n]] for n in captured)
    return Subgraph(graph, feeds, arrays, tuple(names[n] for n in numbers))


def _sources_of_subgraph(
    trace: Trace, needed: Sequence[int], known: Mapping[int, int]
) -> tuple[list[int], list[int], list[int]]:
    """Which of the nodes a call's leaves and kept values fill, which are captured arrays, and which are numbers."""
    found: tuple[list[int], list[int], list[int]] = [], [], []
    for n in needed:
        op = "input" if n in known else trace.builder.nodes[n].op
        if op == "number":
            found[2].append(n)
        elif op == "input":
            found[n not in known and n in trace.captured_at].append(n)
    return found
