"""A graph in; out, the graph that does the same for each row. Every batched value gets a first axis.

What is not batched is computed once. Elementwise rows, reductions, views, joins, gathers, matrix products and the
bodies of counted loops and of branches take the axis along; anything else is a loop over the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from ...runtime.core.frozen import dataclass, replace
from ..core.types import ArrayType
from ..graph.builder import GraphBuilder, nodes_to_copy
from ..graph.control_flow import (
    ITERATION,
    Branch,
    CustomDerivativeNode,
    Loop,
    Window,
    add_body_scalar,
    add_control_flow_node,
    memory_argument_count_of_node,
)
from ..graph.graph import Graph, Node, Value, Values
from ..graph.precision import precision_of_attrs


def batch_graph_over_rows(graph: Graph, batched: Sequence[bool], size: int) -> Graph:
    """batched: for each input whether it has a first axis, of `size` rows. All outputs have one."""
    batcher = GraphBatcher(GraphBuilder(graph.name), size)
    for node in graph.nodes:
        batcher.results.setdefault(_call_of_result(node), []).append(node)
    inputs = iter(batched)
    new: list[Value] = []
    for _, node in nodes_to_copy(graph, batcher.builder):
        if node.op == "input":
            is_batched = next(inputs)
            shape = (size, *node.shape) if is_batched else node.shape
            value = batcher.builder.input(ArrayType(shape, node.dtype))
            batcher.rows |= {value.number} if is_batched else set()
        elif node.op == "number":
            value = batcher.builder.add("number", (), node.type, node.attrs)
            batcher.builder.numbers.append(value.number)
        else:
            value = batcher.batched_node(node, [new[a] for a in node.args])
        new.append(value)
    return batcher.builder.finish([batcher.spread_to_rows(new[o], graph.nodes[o].shape) for o in graph.outputs])


@dataclass(slots=True)
class GraphBatcher:
    """builder: of the batched graph; size: how many rows; rows: the nodes that have a first axis of them; results: the
    nodes that are results of one call, by what calls have in common."""

    builder: GraphBuilder
    size: int
    rows: set[int]
    results: dict[Hashable, list[Node]]

    def __init__(self, builder: GraphBuilder, size: int) -> None:
        self.builder, self.size, self.rows, self.results = builder, size, set(), {}

    def batched_node(self, node: Node, args: Values) -> Value:
        """A node on values of which some are batched."""
        if not any(a.number in self.rows for a in args):
            return self.builder.copy(node, args)
        rule = _RULES.get(node.op) or _KINDS.get(node.kind, _batch_by_loop_over_rows)
        value = rule(self, node, args)
        self.rows.add(value.number)
        return value

    def is_batched(self, value: Value) -> bool:
        return value.number in self.rows

    def shape_without_rows(self, value: Value) -> tuple[int, ...]:
        """Without the rows."""
        return value.shape[1:] if self.is_batched(value) else value.shape

    def spread_to_rows(self, value: Value, shape: Sequence[int]) -> Value:
        """The value with rows, all of which are equal where it has none."""
        return value if self.is_batched(value) else self.builder.broadcast(value, (self.size, *shape))

    def widened_to_rank(self, value: Value, rank: int) -> Value:
        """A batched value with axes of length 1 behind the rows, so that it broadcasts to this rank."""
        shape = self.shape_without_rows(value)
        if not self.is_batched(value) or len(shape) >= rank:
            return value
        return self.builder.reshape(value, (self.size, *(1,) * (rank - len(shape)), *shape))

    def add_batched_node(self, node: Node, args: Values, **attrs: object) -> Value:
        """The node with rows, some attributes changed."""
        given = tuple((k, attrs.get(k, v)) for k, v in node.attrs)
        type = ArrayType((self.size, *node.shape), node.dtype)
        return self.builder.add(node.op, tuple(a.number for a in args), type, given)


def _batch_elementwise(b: GraphBatcher, node: Node, args: Values) -> Value:
    return b.add_batched_node(node, [b.widened_to_rank(a, node.ndim) for a in args])


def _batch_reduction(b: GraphBatcher, node: Node, args: Values) -> Value:
    return b.add_batched_node(node, args, axes=tuple(a + 1 for a in node.attr("axes")))


def _batch_slice_node(b: GraphBatcher, node: Node, args: Values) -> Value:
    return b.add_batched_node(node, args, starts=(0, *node.attr("starts")), steps=(1, *node.attr("steps")))


def _batch_permute(b: GraphBatcher, node: Node, args: Values) -> Value:
    return b.add_batched_node(node, args, axes=(0, *(a + 1 for a in node.attr("axes"))))


def _batch_broadcast(b: GraphBatcher, node: Node, args: Values) -> Value:
    return b.builder.broadcast(b.widened_to_rank(args[0], node.ndim), (b.size, *node.shape))


def _batch_windows_or_concat(b: GraphBatcher, node: Node, args: Values) -> Value:
    """Of windows and joins."""
    return b.add_batched_node(node, [b.spread_to_rows(a, a.shape) for a in args], axis=node.attr("axis") + 1)


def _batch_update(b: GraphBatcher, node: Node, args: Values) -> Value:
    base, value = (b.spread_to_rows(a, a.shape) for a in args)
    return b.builder.update(base, value, (0, *node.attr("starts")), (1, *node.attr("steps")))


def _batch_gather(b: GraphBatcher, node: Node, args: Values) -> Value:
    a, *indices = args
    rank = node.ndim
    axes, rest = node.attr("axes"), tuple(r + 1 for r in node.attr("rest"))
    if b.is_batched(a):
        axes, rest = tuple(i + 1 for i in axes), (0, *rest)
    return b.add_batched_node(node, [a, *(b.widened_to_rank(i, rank) for i in indices)], axes=axes, rest=rest)


def _batch_matmul(b: GraphBatcher, node: Node, args: Values) -> Value:
    (left, right), own = args, precision_of_attrs(node.attrs)
    if not b.is_batched(right) and len(b.shape_without_rows(left)) == 2 and right.ndim == 2:
        rows, inner = b.size * left.shape[1], left.shape[2]
        return b.builder.reshape(
            b.builder.matmul(b.builder.reshape(left, (rows, inner)), right, precision=own), (b.size, *node.shape)
        )
    rank = node.ndim
    return b.builder.matmul(b.widened_to_rank(left, rank), b.widened_to_rank(right, rank), precision=own)


def _batch_loop_node(b: GraphBatcher, node: Node, args: Values) -> Value:
    """All that is carried has rows; so have those of the windows and invariants that had them."""
    loop: Loop = node.attr("control")
    memory = memory_argument_count_of_node(node)
    if loop.flag or any(b.is_batched(a) for a in args[memory:]):
        return _batch_by_loop_over_rows(b, node, args)
    split = loop.carried + len(loop.windows)
    initial = [b.spread_to_rows(a, a.shape) for a in args[: loop.carried]]
    flags = [True] * loop.carried + [b.is_batched(a) for a in args[loop.carried : memory]]
    windows = tuple(
        Window((0, *w.starts), (1, *w.steps), (0, *w.moves)) if b.is_batched(a) else w
        for w, a in zip(loop.windows, args[loop.carried : split], strict=True)
    )
    made = replace(loop, body=batch_graph_over_rows(loop.body, flags, b.size), windows=windows)
    part = node.attr("part")
    value = add_control_flow_node(b.builder, made, [*initial, *args[loop.carried :]])[part]
    return value if part < loop.carried else b.builder.permute(value, (1, 0, *range(2, value.ndim)))


def _batch_branch(b: GraphBatcher, node: Node, args: Values) -> Value:
    memory = memory_argument_count_of_node(node)
    if any(b.is_batched(a) for a in (args[0], *args[memory:])):
        return _batch_by_loop_over_rows(b, node, args)
    flags = [b.is_batched(a) for a in args[1:memory]]
    first, second = (batch_graph_over_rows(body, flags, b.size) for body in node.attr("control").bodies)
    results = add_control_flow_node(b.builder, Branch((first, second)), args)
    part: int = node.attr("part")
    return results[part]


def _batch_custom_derivative_node(b: GraphBatcher, node: Node, args: Values) -> Value:
    """Its rule has rows too."""
    control: CustomDerivativeNode = node.attr("control")
    numbers = len(control.bodies[0].numbers)
    split = len(args) - numbers
    given = [*(b.spread_to_rows(a, a.shape) for a in args[:split]), *args[split:]]
    reverse, forward = (
        None if body is None else batch_graph_over_rows(body, [True] * len(body.inputs), b.size)
        for body in (control.reverse, control.forward)
    )
    return b.add_batched_node(
        node, given, control=CustomDerivativeNode(control.results, control.inputs, reverse, forward)
    )


def _batch_host_call(b: GraphBatcher, node: Node, args: Values) -> Value:
    """A convolution with the same weights for each row has so many more images, its image's cotangent too; attention
    has an axis more; of other calls each row is one."""
    arrays = {"attention": 3, "attention_gradient": 6}.get(node.attr("function"), 0)
    if arrays and all(b.is_batched(a) for a in args[:arrays]):
        rank = args[0].ndim
        masks = (
            b.builder.reshape(a, (b.size, *(1,) * (rank - a.ndim), *a.shape[1:])) if b.is_batched(a) else a
            for a in args[arrays:]
        )
        numbers = tuple(a.number for a in (*args[:arrays], *masks))
        return b.builder.add("host", numbers, ArrayType((b.size, *node.shape), node.dtype), node.attrs)
    if node.attr("function") not in ("convolution", "convolution_image") or b.is_batched(args[1]):
        return _batch_by_loop_over_rows(b, node, args)
    x, weights = args
    images = b.builder.reshape(x, (b.size * x.shape[1], *x.shape[2:]))
    n, *rest = node.shape
    numbers = (images.number, weights.number)
    (function, (_, options), part), shape = node.attrs, (b.size * n, *rest)
    options = tuple((name, shape if name == "shape" else value) for name, value in options)
    attrs = (function, ("options", options), part)
    result = b.builder.add("host", numbers, ArrayType(shape, node.dtype), attrs)
    return b.builder.reshape(result, (b.size, *node.shape))


def _batch_by_loop_over_rows(b: GraphBatcher, node: Node, args: Values) -> Value:
    """A loop over the rows. All results of a call are made in the same one."""
    nodes = b.builder.nodes
    results = b.results[_call_of_result(node)]
    numbers = [a for a in dict.fromkeys(args) if nodes[a.number].op == "number"]
    rows = [a for a in dict.fromkeys(args) if b.is_batched(a)]
    others = [a for a in dict.fromkeys(args) if not b.is_batched(a) and a not in numbers]
    made = GraphBuilder("row")
    known: dict[int, Value] = {}
    for a in rows:
        row = made.input(ArrayType((1, *a.shape[1:]), a.dtype))
        known[a.number] = made.reshape(row, a.shape[1:])
    for a in others:
        known[a.number] = made.input(a.type)
    add_body_scalar(made, ITERATION)
    for a in numbers:
        known[a.number] = add_body_scalar(made, a.type)
    places = tuple(known[a.number].number for a in args)
    values = [made.add(result.op, places, result.type, result.attrs) for result in results]
    windows = tuple(_batch_window_of_rows(a.ndim) for a in rows)
    loop = Loop(made.finish(values), 0, windows, b.size)
    return add_control_flow_node(b.builder, loop, [*rows, *others, *numbers])[results.index(node)]


def _call_of_result(node: Node) -> Hashable:
    """Equal for nodes that are results of the same call."""
    return node.op, node.args, tuple(attr for attr in node.attrs if attr[0] != "part")


def _batch_window_of_rows(rank: int) -> Window:
    return Window((0,) * rank, (1,) * rank, (1, *(0,) * (rank - 1)))


Rule = Callable[[GraphBatcher, Node, Values], Value]
_KINDS: dict[str, Rule] = {"map": _batch_elementwise, "reduce": _batch_reduction}
_RULES: dict[str, Rule] = {
    "slice": _batch_slice_node,
    "permute": _batch_permute,
    "broadcast": _batch_broadcast,
    "reshape": lambda b, node, args: b.builder.reshape(args[0], (b.size, *node.shape)),
    "windows": _batch_windows_or_concat,
    "concat": _batch_windows_or_concat,
    "update": _batch_update,
    "gather": _batch_gather,
    "matmul": _batch_matmul,
    "loop": _batch_loop_node,
    "branch": _batch_branch,
    "host": _batch_host_call,
    "custom": _batch_custom_derivative_node,
}
