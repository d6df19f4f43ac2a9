"""Graph -> Graph for a GPU: bias and activation after a matmul become its epilogue. The library's call finishes each
tile before it is stored: an intermediate is neither stored nor loaded, nor rounded to 16 bits. Activations are relu and
gelu. A product of 16-bit numbers whose float32 sums are only wanted in 16 bits writes these.

Only what cuBLASLt does as NumPy means it, and no slower. Measured (H200, cuBLASLt 13.1): its gelu is the approximation
by tanh, as exact as 16 bits can tell, but 30 ulp off in float32; float64 takes twice the time. Some of its kernels lose
NaN in a relu: the device tries them (`cublaslt_nan_probe.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from ...runtime.core.frozen import frozen
from ..core.types import FLOAT32, HALVES, ArrayType, DType
from ..graph.builder import GraphBuilder
from ..graph.graph import Graph, Node, Value, Values, joined_user_lines
from .simplify import rewrite_nodes

DTYPES = (*HALVES, FLOAT32)


def absorb_matmul_epilogues(graph: Graph) -> Graph:
    """relu(a @ b + bias) -> matmul(a, b, bias) with the epilogue (bias, relu). Nothing else may read the parts."""
    stored = _nodes_stored_before_epilogues(graph)
    found = {
        n: chain
        for n in range(len(graph.nodes))
        if (chain := _epilogue_chain_to_absorb(graph, n, n in stored)) is not None
    }
    inside = {n for chain in found.values() for n in chain.inner}
    ends = {graph.nodes[n] for n in found if n not in inside}
    if not ends:
        return graph

    def absorb_epilogue(builder: GraphBuilder, node: Node, args: Values) -> Value | None:
        return _matmul_call_with_epilogue(builder, node, args) if node in ends else None

    return rewrite_nodes(graph, absorb_epilogue)


@frozen
class Chain:
    """parts: of the epilogue, in order; args: of the call, a bias last; inner: what vanishes, the product last; narrow:
    whether it is wanted in fewer bits than it has."""

    parts: tuple[str, ...]
    args: tuple[int, ...]
    inner: tuple[int, ...]
    narrow: bool


def _nodes_stored_before_epilogues(graph: Graph) -> set[int]:
    """What is in memory whatever `fuse` does. Anything else is work inside a kernel, which a bias joins for free."""
    stored = set(graph.outputs)
    for number in range(len(graph.nodes) - 1, -1, -1):
        node = graph.nodes[number]
        kind = node.kind
        if kind in ("library", "assembly") or (kind == "view" and number in stored):
            stored.update(node.args)
        elif kind == "gather":
            stored.add(node.args[0])
    return stored


def _epilogue_chain_to_absorb(graph: Graph, end: int, stored: bool) -> Chain | None:
    """The chain that ends in a node, where it is right to call the library for all of it."""
    node = graph.nodes[end]
    chain = _match_epilogue_chain(graph.nodes, node)
    if chain is None or not (stored or chain.narrow):
        return None
    private = all(n not in graph.outputs and len(graph.users[n]) == 1 for n in chain.inner)
    summed = graph.nodes[chain.args[0]].shape[-1]
    return chain if private and node.dtype in DTYPES and node.size and summed else None


def _matmul_call_with_epilogue(builder: GraphBuilder, node: Node, args: Values) -> Value:
    chain = _match_epilogue_chain(builder.nodes, Node(node.op, tuple(a.number for a in args), node.type, node.attrs))
    assert chain is not None
    epilogue = (("epilogue", chain.parts),) if chain.parts else ()
    product = builder.nodes[chain.inner[-1]]
    type = ArrayType(product.shape, node.dtype)
    value = builder.add("matmul", chain.args, type, (*product.attrs, *epilogue))
    lines = [*(builder.lines[n] for n in reversed(chain.inner)), builder.lines[value.number]]
    builder.lines[value.number] = joined_user_lines(lines)
    return builder.reshape(value, node.shape)


def _match_epilogue_chain(nodes: Sequence[Node], end: Node) -> Chain | None:
    """matmul, bias, activation, with a cast to 16 bits anywhere, and at least one of these; a product alone may have
    another shape before its activation."""
    dtype = end.dtype
    parts: list[str] = []
    inner: list[int] = []
    bias: tuple[int, ...] = ()

    def absorb_node(number: int) -> Node:
        inner.append(number)
        return nodes[number]

    def without_narrowing_cast(node: Node) -> Node:
        narrows = node.op == "cast" and node.dtype in HALVES and nodes[node.args[0]].dtype == FLOAT32
        return absorb_node(node.args[0]) if narrows and node.dtype == dtype else node

    node = without_narrowing_cast(end)
    activated = match_epilogue_activation(nodes, node, dtype)
    if activated is not None:
        parts.append(activated[0])
        node = without_narrowing_cast(absorb_node(activated[1]))
        if node.op == "reshape" and nodes[node.args[0]].op == "matmul":
            node = absorb_node(node.args[0])
    biased = match_epilogue_bias(nodes, node, ("matmul", "cast"))
    if biased is not None:
        parts.append("bias")
        node, bias = without_narrowing_cast(absorb_node(biased[0])), biased[1:]
    if not inner or node.op != "matmul" or len(node.args) > 2 or "epilogue" in dict(node.attrs):
        return None
    given = nodes[node.args[0]].dtype
    row = [_epilogue_argument_in_dtype(nodes, n, dtype) for n in bias]
    if None in row or not (given == dtype or (given in HALVES and dtype == FLOAT32)):
        return None
    return Chain(tuple(reversed(parts)), (*node.args, *row), tuple(inner), node.dtype != dtype)  # type: ignore[arg-type]


def _epilogue_argument_in_dtype(nodes: Sequence[Node], number: int, dtype: DType) -> int | None:
    """The node in a dtype: itself, or what it is a cast of."""
    node = nodes[number]
    if node.dtype != dtype and node.op == "cast":
        number = node.args[0]
    return number if nodes[number].dtype == dtype else None


def match_epilogue_activation(nodes: Sequence[Node], node: Node, dtype: DType) -> tuple[str, int] | None:
    """(name, argument) of an activation that the library has, for a result in the dtype."""
    if node.op == "gelu" and dict(node.attrs).get("approximate") and dtype in HALVES:
        return "gelu", node.args[0]
    if node.op == "relu":
        return "relu", node.args[0]
    if node.op == "maximum":
        for zero, other in (node.args, node.args[::-1]):
            if _is_epilogue_zero_constant(nodes, zero) and nodes[other].type == node.type:
                return "relu", other
    return None


def _is_epilogue_zero_constant(nodes: Sequence[Node], number: int) -> bool:
    """Whether it is the number 0.0 (maximum(x, -0.0) is another function)."""
    node = nodes[number]
    while node.op in ("broadcast", "reshape"):
        node = nodes[node.args[0]]
    return node.op == "const" and not any(node.attr("value"))


def match_epilogue_bias(nodes: Sequence[Node], node: Node, products: Sequence[str]) -> tuple[int, int] | None:
    """(product, bias) of what may be a product, by these ops, and one row that is added to each of its rows."""
    if node.op != "add":
        return None
    for product, bias in (node.args, node.args[::-1]):
        if product != bias and nodes[product].op in products and nodes[product].type == node.type:
            row = _match_epilogue_bias_row(nodes, bias, node.type)
            if row is not None:
                return product, row
    return None


def _match_epilogue_bias_row(nodes: Sequence[Node], number: int, type: ArrayType) -> int | None:
    """The node, or what it is a broadcast of, where that is one row of arrays of the type."""
    while nodes[number].op == "broadcast":
        number = nodes[number].args[0]
    found = nodes[number].type
    row = type.shape[-1:]
    return number if found.dtype == type.dtype and row and found.shape[-1:] == row == (found.size,) else None
