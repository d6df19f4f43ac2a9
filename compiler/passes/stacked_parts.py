"""Graph -> Graph: what is computed of stacked arrays element by element is computed of the parts, and then stacked.

The colours of a camera's pixels are stacks of four, one for each place in a square of two by two. The stacks are then
never stored. What is computed is the same for each element, and so are its bits.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from ..core.types import ArrayType
from ..graph.builder import GraphBuilder
from ..graph.graph import Graph, Node, Value, Values
from .simplify import rewrite_nodes, simplify_graph

ELEMENTWISE = ("map", "gather")
PARTS = 8  # of a stack: more are more stores than a kernel has
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
    stacks = {n for n, node in enumerate(nodes) if _is_stack(graph, node)}
    while stacks:
        forms: dict[int, tuple[object, ...]] = {}
        for number, node in enumerate(nodes):
            if number in stacks:
                forms[number] = (node.attr("axis"), len(node.args), node.shape)
            elif not forms.keys().isdisjoint(node.args):
                found = {forms.get(a) for a in _elements_read(graph, node)}
                if len(found) == 1 and (form := found.pop()) is not None:
                    forms[number] = (*form, node.shape) if node.op == "reshape" else form
        computed = {n for n in forms if nodes[n].kind in ELEMENTWISE}
        views = forms.keys() - computed
        read_by_others = {n for n in views if n in graph.outputs or not forms.keys() >= {*users[n]}}
        refused = {n for n in stacks if not read_by_others.isdisjoint({n, *users[n]} & views)}
        last = [n for n in computed if not computed >= {*users[n]}]  # results are stored anyway
        if not refused and sum(nodes[n].type.nbytes for n in last) <= sum(nodes[n].type.nbytes for n in stacks):
            return computed
        stacks -= refused or stacks
    return set()


def _is_stack(graph: Graph, node: Node) -> bool:
    shapes = {graph.nodes[a].shape for a in node.args}
    return (
        node.op == "concat"
        and len(shapes) == 1
        and node.size >= LEAST
        and (len(node.args) == node.shape[node.attr("axis")] <= PARTS)
    )


def _elements_read(graph: Graph, node: Node) -> Sequence[int]:
    """The arrays of which a node takes one element for each of its own, in the same order."""
    if node.op == "reshape":
        return node.args
    if node.kind not in ELEMENTWISE or (node.kind == "gather" and node.attr("rest")):
        return ()
    arrays = [a for a in _positions(node, node.args) if graph.nodes[a].size != 1]
    return arrays if all(graph.nodes[a].shape == node.shape for a in arrays) else ()


def _positions(node: Node, args: Sequence[object]) -> Sequence[object]:
    return args[node.op == "gather" :]


def _computed_in_parts(builder: GraphBuilder, node: Node, args: Values) -> Value:
    """The node on these arguments, as deep in the parts of stacks as all of them are alike."""
    arrays = [a for a in _positions(node, args) if a.size != 1]
    shape, inner = arrays[0].shape, [builder.nodes[a.number] for a in arrays]
    below = [[builder.at(b) for b in n.args] for n in inner]
    forms = {(n.op, n.attrs, tuple(b.shape for b in values)) for n, values in zip(inner, below, strict=True)}

    def with_arrays(values: Sequence[Value]) -> list[Value]:
        following = iter(values)
        own = [next(following) if a.size != 1 else builder.reshape(a, ()) for a in _positions(node, args)]
        return [*args[: len(args) - len(own)], *own]

    if len(forms) == 1 and inner[0].op == "concat":
        axis, (first, *_) = inner[0].attr("axis"), below[0]
        without = (*first.shape[:axis], *first.shape[axis + 1 :])
        apart = ([builder.reshape(v, without) for v in part] for part in zip(*below, strict=True))
        parts = [_computed_in_parts(builder, node, with_arrays(part)) for part in apart]
        return builder.concat([builder.reshape(part, first.shape) for part in parts], axis)
    if len(forms) == 1 and inner[0].op == "reshape" and builder.nodes[inner[0].args[0]].op == "concat":
        made = _computed_in_parts(builder, node, with_arrays([value for (value,) in below]))
        return builder.reshape(made, shape)
    return builder.copy(node, with_arrays(arrays), ArrayType(shape, node.dtype))
