"""Graph -> Graph: softmax(q @ k.T * scale) @ v in float32 or 16 bits as one call, however it is written.

Scores may be scaled, and hidden by what compares the places of queries and keys, as causal masks do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ...runtime.core.frozen import dataclass, replace
from ..core.types import FLOAT32, HALVES, ArrayType
from ..graph.builder import GraphBuilder, nodes_to_copy
from ..graph.graph import Graph, Node, Value
from .simplify import constant_value_of_node, rebuild_node_by_rule

DTYPES = {FLOAT32, *HALVES}
HIDDEN = -1e9  # a score that hides a key


class _NoAttention(Exception):
    """A graph computes something else."""


@dataclass(frozen=True, slots=True)
class _Attention:
    """end: the node that it ends in; scale: the factor of the scores; mask: what hides keys, if anything does."""

    end: int
    q: int
    k_transposed: int
    v: int
    scale: float
    mask: _AttentionMask | None


@dataclass(frozen=True, slots=True)
class _AttentionMask:
    """condition: a node; visible: whether it says what is seen or what is hidden; hidden: the score of what is."""

    condition: int
    visible: bool
    hidden: float


def call_attention(graph: Graph, differentiated: bool = False) -> Graph:
    """softmax(q @ k.T * scale) @ v -> attention(q, k, v), where nothing else reads what lies between; of 16-bit arrays
    where the result is rounded to 16 bits. differentiated: of these alone, with the second result that its gradient
    takes."""
    found = {a.end: a for n, node in enumerate(graph.nodes) if node.op in _ENDS and (a := _attention_at(graph, n))}
    narrow = {n for n, a in found.items() if _is_narrow_attention(graph, a)}
    exact = {n for n in narrow if not _is_rounded(graph, n)}  # a float32 result of 16-bit arrays stays exact
    found = {n: a for n, a in found.items() if n not in exact and (n in narrow or not differentiated)}
    if not found:
        return graph
    builder, new = GraphBuilder(graph.name), list[Value]()
    for number, node in nodes_to_copy(graph, builder):

        def written(builder: GraphBuilder, node: Node, args: object, number: int = number) -> Value | None:
            return _write_attention(builder, graph, found[number], new, differentiated) if number in found else None

        new.append(rebuild_node_by_rule(builder, node, [new[a] for a in node.args], written))
    return builder.finish([new[o] for o in graph.outputs])


def _write_attention(
    builder: GraphBuilder, graph: Graph, attention: _Attention, new: list[Value], stats: bool
) -> Value:
    """The call. All arrays have as many axes; one head of keys may be for all of queries'."""
    numbers, narrow = (attention.q, attention.k_transposed, attention.v), _is_narrow_attention(graph, attention)
    q, k_transposed, v = (_narrow(builder, graph, n, new) if narrow else new[n] for n in numbers)
    args, mask = [q, matrix_transpose(builder, k_transposed), v], attention.mask
    if mask is not None:
        args.append(new[mask.condition] if mask.visible else builder.map("logical_not", new[mask.condition]))
    hidden = -np.inf if mask is None else mask.hidden
    options = {"scale": attention.scale, "hidden": hidden, "dtype": "float32", "stats": stats}
    type = graph.nodes[attention.end].type
    (result,) = builder.host("attention", args, [ArrayType(type.shape, FLOAT32)], **options)
    return builder.cast(result, type.dtype)


def _is_narrow_attention(graph: Graph, attention: _Attention) -> bool:
    return all(_is_narrow(graph, n) for n in (attention.q, attention.k_transposed, attention.v))


def matrix_transpose(builder: GraphBuilder, x: Value) -> Value:
    """x.swapaxes(-1, -2); of what is such a transpose, the array that it is of."""
    rank, node = len(x.shape), builder.nodes[x.number]
    axes = (*range(rank - 2), rank - 1, rank - 2)
    return builder.at(node.args[0]) if node.op == "permute" and node.attr("axes") == axes else builder.permute(x, axes)


# 16-bit operands of products in float32


def _is_rounded(graph: Graph, number: int) -> bool:
    """Whether all that reads a value reads it in 16 bits."""
    if graph.nodes[number].type.dtype in HALVES:
        return True
    readers = [graph.nodes[n] for n in graph.users[number]]
    return (
        number not in graph.outputs
        and bool(readers)
        and all(
            node.type.dtype in HALVES if node.op == "cast" else node.op in (*_VIEWS, "concat") and _is_rounded(graph, n)
            for n, node in zip(graph.users[number], readers, strict=True)
        )
    )


def _is_narrow(graph: Graph, number: int) -> bool:
    """Whether a value is of 16-bit floats, though maybe cast before its views."""
    node = graph.nodes[number]
    while node.type.dtype == FLOAT32 and node.op in _VIEWS:
        node = graph.nodes[node.args[0]]
    return (graph.nodes[node.args[0]] if node.op == "cast" else node).type.dtype in HALVES


def _narrow(builder: GraphBuilder, graph: Graph, number: int, new: list[Value]) -> Value:
    node = graph.nodes[number]
    if node.type.dtype in HALVES:
        return new[number]
    if node.op == "cast":
        return new[node.args[0]]
    base = _narrow(builder, graph, node.args[0], new)
    return builder.add(node.op, (base.number,), ArrayType(node.type.shape, base.dtype), node.attrs)


_VIEWS = ("permute", "reshape", "broadcast", "slice")
_SCALED = ("multiply", "divide")

# reading


_ENDS = ("matmul", "divide")


def _attention_at(graph: Graph, number: int) -> _Attention | None:
    reader = _AttentionReader(graph, number)
    try:
        return reader.attention()
    except _NoAttention:
        return None


def _number_of_node(graph: Graph | GraphBuilder, number: int) -> float | None:
    """What all elements are, if it is one real number."""
    value = constant_value_of_node(graph, number)
    return None if value is None or value.dtype.kind == "c" else float(value)


def _required(condition: object) -> None:
    if not condition:
        raise _NoAttention


class _AttentionReader:
    """Reads a graph backwards from the node where an attention may end. inner: what it is made of alone."""

    def __init__(self, graph: Graph, end: int) -> None:
        self.graph, self.end = graph, end
        self.inner = {end}

    def attention(self) -> _Attention:
        product, exponential = self.end, None
        if self.graph.nodes[self.end].op == "divide":  # by the sums at last
            product, sums = self.args_of(self.end, "divide")
            exponential = self.summed(sums)
        weights, v = self.operands_of(product)
        weights = self.through_casts(weights)
        if exponential is None:
            exponent = self.exponent_of_weights(weights)
        else:
            _required(weights == exponential)
            (exponent,) = self.args_of(exponential, "exp")
        scale, mask, (q, k_transposed) = self.scores(self.unshifted(exponent))
        _required(all(self.graph.nodes[n].type.dtype in DTYPES for n in (q, k_transposed, v, self.end)))
        ranks = {len(self.graph.nodes[n].type.shape) for n in (q, k_transposed, v)}
        _required(len(ranks) == 1)
        for n in self.inner - {self.end}:
            _required(set(self.graph.users[n]) <= self.inner and n not in self.graph.outputs)
        return _Attention(self.end, q, k_transposed, v, scale, mask)

    def args_of(self, number: int, op: str) -> tuple[int, ...]:
        """The arguments of a node that has to be an operation, before casts among floats. It becomes part of the
        attention."""
        node = self.graph.nodes[number]
        _required(node.op == op)
        self.inner.add(number)
        return tuple(map(self.through_casts, node.args))

    def through_casts(self, number: int) -> int:
        node = self.graph.nodes[number]
        while node.op == "cast" and {node.type.dtype, self.graph.nodes[node.args[0]].type.dtype} <= DTYPES:
            self.inner.add(number)
            (number,) = node.args
            node = self.graph.nodes[number]
        return number

    def operands_of(self, number: int) -> tuple[int, ...]:
        """Of a matrix product as it stands."""
        node = self.graph.nodes[number]
        _required(node.op == "matmul" and not node.attrs)
        self.inner.add(number)
        return node.args

    def exponent_of_weights(self, number: int) -> int:
        """z of exp(z) / sum(exp(z)), or of exp(z - log(sum(exp(z))))."""
        if self.graph.nodes[number].op == "divide":
            exponential, sums = self.args_of(number, "divide")
            _required(self.summed(sums) == exponential)
            (exponent,) = self.args_of(exponential, "exp")
            return exponent
        (difference,) = self.args_of(number, "exp")
        exponent, logarithm = self.args_of(difference, "subtract")
        (sums,) = self.args_of(logarithm, "log")
        (summed,) = self.args_of(self.summed(sums), "exp")
        _required(summed == exponent)
        return exponent

    def summed(self, number: int) -> int:
        return self.kept_row_reduction(number, "sum")

    def kept_row_reduction(self, number: int, op: str) -> int:
        """What is reduced over its last axis, which is kept with one element."""
        (reduced,) = self.args_of(number, "reshape")
        (source,) = self.args_of(reduced, op)
        shape = self.graph.nodes[source].type.shape
        _required(self.graph.nodes[reduced].attr("axes") == (len(shape) - 1,))
        _required(self.graph.nodes[number].type.shape == (*shape[:-1], 1))
        return source

    def unshifted(self, number: int) -> int:
        """s of s - max(s)"""
        if self.graph.nodes[number].op != "subtract":
            return number
        scores, largest = self.args_of(number, "subtract")
        _required(self.kept_row_reduction(largest, "max") == scores)
        return scores

    def scores(self, number: int) -> tuple[float, _AttentionMask | None, tuple[int, int]]:
        """The factor and the mask of scores, and what they are the product of."""
        scale, rank = 1.0, len(self.graph.nodes[number].type.shape)
        mask: _AttentionMask | None = None
        while (op := self.graph.nodes[number].op) != "matmul":
            first, *rest = self.args_of(number, op)
            if op in _SCALED:
                factor, first = self.factor_and_scaled(number)
                scale *= factor
            else:
                _required(op in ("where", "add") and mask is None)
                mask, first = self.mask_of_scores(op, (first, *rest))
                mask = replace(mask, hidden=mask.hidden * scale)
            number = first
        q, k_transposed = self.operands_of(number)
        _required(scale > 0 and self.graph.nodes[number].type.dtype in DTYPES)
        _required(len(self.graph.nodes[number].type.shape) == rank)
        args = q, k_transposed
        sides = [self.factor_and_scaled(n) if self.graph.nodes[n].op in _SCALED else (1.0, n) for n in args]
        return scale * sides[0][0] * sides[1][0], mask, (sides[0][1], sides[1][1])

    def factor_and_scaled(self, number: int) -> tuple[float, int]:
        """c and x of x * c, c * x, and x / (1 / c)."""
        op = self.graph.nodes[number].op
        a, b = self.args_of(number, op)
        for factor, scaled in ((b, a), (a, b))[: 1 if op == "divide" else 2]:
            value = _number_of_node(self.graph, factor)
            if value is not None and np.isfinite(value) and value > 0:
                return value if op == "multiply" else 1 / value, scaled
        raise _NoAttention

    def mask_of_scores(self, op: str, args: tuple[int, ...]) -> tuple[_AttentionMask, int]:
        """The mask of where(condition, scores, hidden), or of scores + where(condition, 0, hidden) where every query is
        known to see something; and the scores."""
        if op == "where":
            condition, one, other = args
        else:
            added = [n for n in args if self.graph.nodes[n].op == "where"]
            _required(len(added) == 1)
            condition, one, other = self.args_of(added[0], "where")
            scores = args[0] if args[1] == added[0] else args[1]
            values = [_number_of_node(self.graph, n) for n in (one, other)]
            _required(0 in values and bound_of_mask(self.graph, condition, values[0] == 0) is not None)
            one, other = (scores if value == 0 else n for value, n in zip(values, (one, other), strict=True))
        for visible, scores, hides in ((True, one, other), (False, other, one)):
            value = _number_of_node(self.graph, hides)
            if value is not None and value <= HIDDEN:
                return _AttentionMask(condition, visible, value), scores
        raise _NoAttention


def bound_of_mask(graph: Graph | GraphBuilder, number: int, visible: bool = True) -> int | None:
    """b where a condition says j - i <= b of queries i and keys j, and each query sees a key; None for any other.

    visible: whether it says what is seen or what is hidden."""
    form = affine_form_of_node(graph, number)
    if form is None:
        return None
    factors, constant = form if visible else _negated(form)
    return -constant if factors == {-2: -1, -1: 1} and constant <= 0 else None


# affine forms of an element's places: (axis from the end -> factor, constant). A condition holds where its form is at
# most 0

AffineForm = tuple[Mapping[int, int], int]
_COMPARISONS: dict[str, tuple[int, int, int]] = {  # factors of both sides, and what is added
    "less_equal": (1, -1, 0),
    "less": (1, -1, 1),
    "greater_equal": (-1, 1, 0),
    "greater": (-1, 1, 1),
}


def _combined(a: AffineForm, b: AffineForm, x: int, y: int, constant: int = 0) -> AffineForm:
    axes = {*a[0], *b[0]}
    factors = {axis: x * a[0].get(axis, 0) + y * b[0].get(axis, 0) for axis in axes}
    return {axis: f for axis, f in factors.items() if f}, x * a[1] + y * b[1] + constant


def _negated(condition: AffineForm) -> AffineForm:
    return _combined(condition, ({}, 0), -1, 0, 1)


def affine_form_of_node(graph: Graph | GraphBuilder, number: int) -> AffineForm | None:
    """Integers as an affine form of each element's places, or the form of booleans; None for anything else."""
    node = graph.nodes[number]
    rank = len(node.type.shape)
    value = _number_of_node(graph, number)
    if value is not None:
        return ({}, int(value)) if node.type.dtype.kind != "b" and value.is_integer() else None
    if node.op == "index":
        axis: int = node.attr("axis")
        return {axis - rank: 1} if node.type.shape[axis] > 1 else {}, 0
    rule = _AFFINE_FORMS.get(node.op)
    fits = node.op in _OF_CONDITIONS or all(_counts_places(graph.nodes[a]) for a in node.args)
    if rule is None or not fits or not (_counts_places(node) or node.type.dtype.kind == "b"):
        return None
    found = [affine_form_of_node(graph, a) for a in node.args]
    return None if None in found and node.op != "where" else rule(graph, node, found)


def _counts_places(node: Node) -> bool:
    """Whether it is of numbers in which places of elements, and sums of some, are exact."""
    return node.type.dtype.kind in "if" and node.type.dtype.itemsize >= 4


def _affine_form_of_reshape(graph: Graph | GraphBuilder, node: Node, args: list[AffineForm]) -> AffineForm | None:
    """Axes of one element come and go."""
    source, (factors, constant) = graph.nodes[node.args[0]].type.shape, args[0]
    old, new = ([i - len(s) for i, n in enumerate(s) if n != 1] for s in (source, node.type.shape))
    same = [source[i] for i in old] == [node.type.shape[i] for i in new]
    return ({new[old.index(a)]: f for a, f in factors.items() if a in old}, constant) if same else None


def _affine_form_of_permute(graph: Graph | GraphBuilder, node: Node, args: list[AffineForm]) -> AffineForm:
    axes, rank = node.attr("axes"), len(node.type.shape)
    return {axes.index(a + rank) - rank: f for a, f in args[0][0].items()}, args[0][1]


def _affine_form_of_where(graph: Graph | GraphBuilder, node: Node, args: list[AffineForm | None]) -> AffineForm | None:
    """where(c, True, False), and where(c, False, True)"""
    values = [_number_of_node(graph, a) for a in node.args[1:]]
    if args[0] is None or node.type.dtype.kind != "b" or None in values or values[0] == values[1]:
        return None
    return args[0] if values[0] else _negated(args[0])


def _affine_form_of_multiply(graph: Graph | GraphBuilder, node: Node, args: list[AffineForm]) -> AffineForm | None:
    a, b = sorted(args, key=lambda form: len(form[0]))
    return None if a[0] else _combined(b, b, a[1], 0)


_AFFINE_FORMS: dict[str, Callable[..., AffineForm | None]] = {
    **{
        op: lambda graph, node, args, rule=rule: _combined(args[0], args[1], *rule)
        for op, rule in {**_COMPARISONS, "add": (1, 1), "subtract": (1, -1)}.items()
    },
    "negative": lambda graph, node, args: _combined(args[0], args[0], -1, 0),
    "invert": lambda graph, node, args: _negated(args[0]) if node.type.dtype.kind == "b" else None,
    "logical_not": lambda graph, node, args: (
        _negated(args[0]) if graph.nodes[node.args[0]].type.dtype.kind == "b" else None
    ),
    "cast": lambda graph, node, args: args[0] if _counts_places(node) else None,
    "broadcast": lambda graph, node, args: args[0],
    "multiply": _affine_form_of_multiply,
    "permute": _affine_form_of_permute,
    "reshape": _affine_form_of_reshape,
    "where": _affine_form_of_where,
}
_OF_CONDITIONS = ("invert", "logical_not", "where", "broadcast", "permute", "reshape")
