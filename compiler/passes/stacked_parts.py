"""Graph -> Graph: what is computed of stacked arrays element by element is computed of the parts, and then stacked.

The colours of a camera's pixels are stacks of four, one for each place in a square of two by two. The stacks are then
never stored. What is computed is the same for each element, and so are its bits.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from ..core.types import ArrayType
from ..graph.builder import GraphBuilder
from ..graph.graph import Graph, Node, Value, Values
from ..layout.operands import pointwise_index_maps
from .simplify import rewrite_nodes, simplify_graph

ELEMENTWISE = ("map", "gather")
PARTS = 8  # of a stack: more are more stores than a kernel has
MOST = 1 << 12  # parts of all values together: of stacks of stacks there are as many as products of lengths
LEAST = 1 << 12  # elements of a stack that is worth more kernels


def compute_stacks_in_parts(graph: Graph) -> Graph:
    """f(stack(a, b), stack(c, d)) -> stack(f(a, c), f(b, d)), and so for stacks of stacks in any shape, where nothing
    else reads the stacks, and no more is then stored than they take."""
    values = _values_of_stacks(graph)
    if not values:
        return graph
    in_parts = iter([number in values for number, node in enumerate(graph.nodes) if node.kind in ELEMENTWISE])

    def rule(builder: GraphBuilder, node: Node, args: Values) -> Value | None:
        return _computed_in_parts(builder, node, args) if node.kind in ELEMENTWISE and next(in_parts) else None

    return simplify_graph(rewrite_nodes(graph, rule))


def _values_of_stacks(graph: Graph) -> Set[int]:
    """What is computed of stacks whose other readers are such values as well."""
    nodes, users = graph.nodes, graph.users
    stacks = {n for n, node in enumerate(nodes) if _is_stack(nodes, node, LEAST)}
    while stacks:
        parts = _parts_of_values(graph, stacks)
        computed = {n for n in parts if nodes[n].kind in ELEMENTWISE}
        views = parts.keys() - computed
        read_by_others = {n for n in views if n in graph.outputs or not parts.keys() >= {*users[n]}}
        refused = {n for n in stacks if not read_by_others.isdisjoint({n, *users[n]} & views)}
        last = [n for n in computed if not computed >= {*users[n]}]  # results are stored anyway
        few = sum(parts[n] for n in computed) <= MOST
        if not refused and few and sum(nodes[n].type.nbytes for n in last) <= sum(nodes[n].type.nbytes for n in stacks):
            return computed
        stacks -= refused or stacks
    return set()


def _parts_of_values(graph: Graph, stacks: Set[int]) -> dict[int, int]:
    """The stacks, and what is seen or computed of stacks of one form: of how many parts each is."""
    forms: dict[int, tuple[object, ...]] = {}
    parts: dict[int, int] = {}
    for number, node in enumerate(graph.nodes):
        counts = [parts.get(a, 1) for a in node.args]
        if number in stacks:
            forms[number], parts[number] = (node.attr("axis"), len(node.args), node.shape), sum(counts)
        elif not forms.keys().isdisjoint(node.args):
            found = {forms.get(a) for a in _elements_read(graph, node)}
            if len(found) == 1 and (form := found.pop()) is not None:
                forms[number] = (*form, node.shape) if node.op == "reshape" else form
                parts[number] = max(counts)
    return parts


def _is_stack(nodes: Sequence[Node], node: Node, least: int = 0) -> bool:
    if node.op != "concat" or node.size < least or len({nodes[a].shape for a in node.args}) > 1:
        return False
    length: int = node.shape[node.attr("axis")]
    return len(node.args) == length <= PARTS


def _elements_read(graph: Graph, node: Node) -> Sequence[int]:
    """The arrays of which a node takes one element for each of its own, in the same order."""
    if node.op == "reshape":
        return node.args
    if node.kind not in ELEMENTWISE or (node.kind == "gather" and node.attr("rest")):
        return ()
    arrays = [a for a in pointwise_index_maps(node) if graph.nodes[a].size != 1]
    return arrays if all(graph.nodes[a].shape == node.shape for a in arrays) else ()


def _computed_in_parts(builder: GraphBuilder, node: Node, args: Values) -> Value:
    """The node on these arguments, as deep in the parts of stacks as all of them are alike."""
    first = node.op == "gather"  # what is looked up stays as it is
    own = [builder.reshape(a, ()) if a.size == 1 and n >= first else a for n, a in enumerate(args)]
    moving = [n for n, a in enumerate(own) if n >= first and a.shape]

    def computed(arrays: Sequence[Value]) -> Value:
        shape, inner = arrays[0].shape, [builder.nodes[a.number] for a in arrays]
        forms = {(n.op, n.attrs, *[builder.nodes[a].shape for a in n.args]) for n in inner}
        op = inner[0].op if len(forms) == 1 else ""
        below = [*zip(*[map(builder.at, n.args) for n in inner], strict=False)]
        if op and _is_stack(builder.nodes, inner[0]):
            axis, part = inner[0].attr("axis"), below[0][0].shape
            without = (*part[:axis], *part[axis + 1 :])
            parts = [computed([builder.reshape(a, without) for a in each]) for each in below]
            return builder.concat([builder.reshape(each, part) for each in parts], axis)
        if op == "reshape" and builder.nodes[inner[0].args[0]].op == "concat":
            return builder.reshape(computed(below[0]), shape)
        found = dict(zip(moving, arrays, strict=True))
        return builder.copy(node, [found.get(n, a) for n, a in enumerate(own)], ArrayType(shape, node.dtype))

    return computed([own[n] for n in moving])
