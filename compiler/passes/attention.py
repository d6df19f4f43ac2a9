"""Graph -> Graph: softmax(q @ k.T * scale) @ v in float32 or 16 bits as one call, however it is written.

Scores may be scaled, and hidden by what compares the places of queries and keys, as causal masks do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ...runtime.core.frozen import frozen, replace
from ..core.types import FLOAT32, HALVES, ArrayType
from ..graph.builder import GraphBuilder, nodes_to_copy
from ..graph.graph import Graph, Node, Value
from .simplify import constant_value_of_node, rebuild_node_by_rule

DTYPES = {FLOAT32, *HALVES}
HIDDEN = -1e9  # a score that hides a key


class _NoAttention(Exception):
    """A graph computes something else."""


@frozen
class _Attention:
    """end: the node that it ends in; scores: what they are made of."""

    end: int
    v: int
    scores: _AttentionScores


@frozen
class _AttentionScores:
    """where(mask, q @ k_transposed * scale + bias, hidden), where there is a bias and a mask."""

    q: int
    k_transposed: int
    scale: float = 1.0
    bias: _AttentionBias | None = None
    mask: _AttentionMask | None = None

    def scaled(self, factor: float) -> _AttentionScores:
        bias = self.bias and replace(self.bias, factor=self.bias.factor * factor)
        mask = self.mask and replace(self.mask, hidden=self.mask.hidden * factor)
        return replace(self, scale=self.scale * factor, bias=bias, mask=mask)

    @property
    def operands(self) -> tuple[int, ...]:
        return self.q, self.k_transposed


@frozen
class _AttentionBias:
    """What is added to scores: a node's elements times a factor."""

    node: int
    factor: float


@frozen
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
    exact = {n for n in narrow if not is_rounded_to_16_bits(graph, n)}  # a float32 result of 16-bit arrays stays exact
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
    scores, narrow = attention.scores, _is_narrow_attention(graph, attention)
    q, k_transposed, v = (
        _narrow(builder, graph, n, new) if narrow else new[n] for n in (*scores.operands, attention.v)
    )
    args, mask = [q, matrix_transpose(builder, k_transposed), v], scores.mask
    if scores.bias is not None:
        bias, factor = new[scores.bias.node], scores.bias.factor
        args.append(bias if factor == 1 else builder.map("multiply", bias, factor))
    if mask is not None:
        args.append(new[mask.condition] if mask.visible else builder.map("logical_not", new[mask.condition]))
    hidden = -np.inf if mask is None else mask.hidden
    options = {"scale": scores.scale, "hidden": hidden, "dtype": "float32", "stats": stats}
    type = graph.nodes[attention.end].type
    (result,) = builder.host("attention", args, [ArrayType(type.shape, FLOAT32)], **options)
    return builder.cast(result, type.dtype)


def _is_narrow_attention(graph: Graph, attention: _Attention) -> bool:
    return all(_is_narrow(graph, n) for n in (*attention.scores.operands, attention.v))


def matrix_transpose(builder: GraphBuilder, x: Value) -> Value:
    """x.swapaxes(-1, -2); of what is such a transpose, the array that it is of."""
    rank, node = x.ndim, builder.nodes[x.number]
    axes = (*range(rank - 2), rank - 1, rank - 2)
    return builder.at(node.args[0]) if node.op == "permute" and node.attr("axes") == axes else builder.permute(x, axes)


# 16-bit operands of products in float32


def is_rounded_to_16_bits(graph: Graph, number: int) -> bool:
    """Whether all that reads a value reads it in 16 bits."""
    if graph.nodes[number].dtype in HALVES:
        return True
    readers = [graph.nodes[n] for n in graph.users[number]]
    return (
        number not in graph.outputs
        and bool(readers)
        and all(
            node.dtype in HALVES
            if node.op == "cast"
            else node.op in (*_VIEWS, "concat") and is_rounded_to_16_bits(graph, n)
            for n, node in zip(graph.users[number], readers, strict=True)
        )
    )


def _is_narrow(graph: Graph, number: int) -> bool:
    """Whether a value is of 16-bit floats, though maybe cast before its views."""
    node = graph.nodes[number]
    while node.dtype == FLOAT32 and node.op in _VIEWS:
        node = graph.nodes[node.args[0]]
    return (graph.nodes[node.args[0]] if node.op == "cast" else node).dtype in HALVES


def _narrow(builder: GraphBuilder, graph: Graph, number: int, new: list[Value]) -> Value:
    node = graph.nodes[number]
    if node.dtype in HALVES:
        return new[number]
    if node.op == "cast":
        return new[node.args[0]]
    base = _narrow(builder, graph, node.args[0], new)
    return builder.copy(node, [base], ArrayType(node.shape, base.dtype))


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
    """Reads a graph backwards from the node where an attention may end. inner: what it is made of alone; shape: of the
    scores, which neither a mask nor a bias makes larger."""

    def __init__(self, graph: Graph, end: int) -> None:
        self.graph, self.end = graph, end
        self.inner = {end}
        self.shape: tuple[int, ...] = ()

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
        self.shape = self.graph.nodes[exponent].shape
        scores = self.scores(self.unshifted(exponent))
        arrays = *scores.operands, v
        _required(all(self.graph.nodes[n].dtype in DTYPES for n in (*arrays, self.end)))
        _required(len({self.graph.nodes[n].ndim for n in arrays}) == 1)
        for n in self.inner - {self.end}:
            _required(set(self.graph.users[n]) <= self.inner and n not in self.graph.outputs)
        return _Attention(self.end, v, scores)

    def args_of(self, number: int, op: str) -> tuple[int, ...]:
        """The arguments of a node that has to be an operation, before casts among floats, and as constants of
        derivatives. It becomes part of the attention."""
        node = self.graph.nodes[number]
        _required(node.op == op)
        self.inner.add(number)
        return tuple(map(self.through_casts, node.args))

    def through_casts(self, number: int) -> int:
        node = self.graph.nodes[number]
        while (
            node.op in ("cast", "stop_gradient")
            and {
                node.dtype,
                self.graph.nodes[node.args[0]].dtype,
            }
            <= DTYPES
        ):
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
        shape = self.graph.nodes[source].shape
        _required(self.graph.nodes[reduced].attr("axes") == (len(shape) - 1,))
        _required(self.graph.nodes[number].shape == (*shape[:-1], 1))
        return source

    def unshifted(self, number: int) -> int:
        """s of s - max(s)"""
        if self.graph.nodes[number].op != "subtract":
            return number
        scores, largest = self.args_of(number, "subtract")
        _required(self.kept_row_reduction(largest, "max") == scores)
        return scores

    def scores(self, number: int) -> _AttentionScores:
        """What scores are made of, from the last operation back to the product."""
        op = self.graph.nodes[number].op
        if op == "matmul":
            return self.scaled_product(number)
        if op in _SCALED:
            factor, scaled = self.factor_and_scaled(number)
            return self.scores(scaled).scaled(factor)
        if op == "subtract":
            scores, bias = self.args_of(number, op)
            return self.biased(self.scores(scores), bias, -1.0)
        if op == "where":
            mask, scores = self.mask_of_scores(self.args_of(number, op))
            return self.masked(self.scores(scores), mask)
        return self.sum_of_scores(self.args_of(number, "add"))

    def scaled_product(self, number: int) -> _AttentionScores:
        args, type = self.operands_of(number), self.graph.nodes[number].type
        _required(type.dtype in DTYPES and type.shape == self.shape)
        sides = [self.factor_and_scaled(n) if self.graph.nodes[n].op in _SCALED else (1.0, n) for n in args]
        return _AttentionScores(sides[0][1], sides[1][1], sides[0][0] * sides[1][0])

    def sum_of_scores(self, args: tuple[int, ...]) -> _AttentionScores:
        """Scores and a mask of numbers, or a bias; whichever argument is made of a product is the scores."""
        for scores, added in (args, args[::-1]):
            before = set(self.inner)
            try:
                mask = self.mask_of_numbers(added)
                found = self.scores(scores)
                return self.biased(found, added, 1.0) if mask is None else self.masked(found, mask)
            except _NoAttention:
                self.inner = before
        raise _NoAttention

    def biased(self, scores: _AttentionScores, bias: int, factor: float) -> _AttentionScores:
        """One bias, beside which hidden scores stay hidden."""
        _required(scores.bias is None and (scores.mask is None or scores.mask.hidden == -np.inf))
        _required(self.graph.nodes[bias].dtype in DTYPES)
        return replace(scores, bias=_AttentionBias(bias, factor))

    def masked(self, scores: _AttentionScores, mask: _AttentionMask) -> _AttentionScores:
        _required(scores.mask is None)
        return replace(scores, mask=mask)

    def factor_and_scaled(self, number: int) -> tuple[float, int]:
        """c and x of x * c, c * x, and x / (1 / c)."""
        op = self.graph.nodes[number].op
        a, b = self.args_of(number, op)
        for factor, scaled in ((b, a), (a, b))[: 1 if op == "divide" else 2]:
            value = _number_of_node(self.graph, factor)
            if value is not None and np.isfinite(value) and value > 0:
                return value if op == "multiply" else 1 / value, scaled
        raise _NoAttention

    def mask_of_numbers(self, number: int) -> _AttentionMask | None:
        """That of where(condition, 0, hidden), added to scores, where every query is known to see something."""
        if self.graph.nodes[number].op != "where":
            return None
        condition, *sides = self.graph.nodes[number].args
        values = [_number_of_node(self.graph, n) for n in sides]
        visible = values[0] == 0
        hidden = values[visible]
        if values[not visible] != 0 or hidden is None or hidden > HIDDEN:
            return None
        if bound_of_mask(self.graph, condition, visible) is None:
            return None
        self.inner.add(number)
        return _AttentionMask(condition, visible, hidden)

    def mask_of_scores(self, args: tuple[int, ...]) -> tuple[_AttentionMask, int]:
        """The mask of where(condition, scores, hidden), and the scores."""
        condition, one, other = args
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


def combined_affine_forms(a: AffineForm, b: AffineForm, x: int, y: int, constant: int = 0) -> AffineForm:
    axes = {*a[0], *b[0]}
    factors = {axis: x * a[0].get(axis, 0) + y * b[0].get(axis, 0) for axis in axes}
    return {axis: f for axis, f in factors.items() if f}, x * a[1] + y * b[1] + constant


def _negated(condition: AffineForm) -> AffineForm:
    return combined_affine_forms(condition, ({}, 0), -1, 0, 1)


def affine_form_of_node(graph: Graph | GraphBuilder, number: int) -> AffineForm | None:
    """Integers as an affine form of each element's places, or the form of booleans; None for anything else."""
    node = graph.nodes[number]
    rank = node.ndim
    value = _number_of_node(graph, number)
    if value is not None:
        return ({}, int(value)) if node.dtype.kind != "b" and value.is_integer() else None
    if node.op == "index":
        axis: int = node.attr("axis")
        return {axis - rank: 1} if node.shape[axis] > 1 else {}, 0
    rule = _AFFINE_FORMS.get(node.op)
    fits = node.op in _OF_CONDITIONS or all(_counts_places(graph.nodes[a]) for a in node.args)
    if rule is None or not fits or not (_counts_places(node) or node.dtype.kind == "b"):
        return None
    found = [affine_form_of_node(graph, a) for a in node.args]
    return None if None in found and node.op != "where" else rule(graph, node, found)


def _counts_places(node: Node) -> bool:
    """Whether it is of numbers in which places of elements, and sums of some, are exact."""
    return node.dtype.kind in "if" and node.dtype.itemsize >= 4


def _affine_form_of_reshape(graph: Graph | GraphBuilder, node: Node, args: list[AffineForm]) -> AffineForm | None:
    """Axes of one element come and go."""
    source, (factors, constant) = graph.nodes[node.args[0]].shape, args[0]
    old, new = ([i - len(s) for i, n in enumerate(s) if n != 1] for s in (source, node.shape))
    same = [source[i] for i in old] == [node.shape[i] for i in new]
    return ({new[old.index(a)]: f for a, f in factors.items() if a in old}, constant) if same else None


def _affine_form_of_permute(graph: Graph | GraphBuilder, node: Node, args: list[AffineForm]) -> AffineForm:
    axes, rank = node.attr("axes"), node.ndim
    return {axes.index(a + rank) - rank: f for a, f in args[0][0].items()}, args[0][1]


def _affine_form_of_where(graph: Graph | GraphBuilder, node: Node, args: list[AffineForm | None]) -> AffineForm | None:
    """where(c, True, False), and where(c, False, True)"""
    values = [_number_of_node(graph, a) for a in node.args[1:]]
    if args[0] is None or node.dtype.kind != "b" or None in values or values[0] == values[1]:
        return None
    return args[0] if values[0] else _negated(args[0])


def _affine_form_of_multiply(graph: Graph | GraphBuilder, node: Node, args: list[AffineForm]) -> AffineForm | None:
    a, b = sorted(args, key=lambda form: len(form[0]))
    return None if a[0] else combined_affine_forms(b, b, a[1], 0)


_AFFINE_FORMS: dict[str, Callable[..., AffineForm | None]] = {
    **{
        op: lambda graph, node, args, rule=rule: combined_affine_forms(args[0], args[1], *rule)
        for op, rule in {**_COMPARISONS, "add": (1, 1), "subtract": (1, -1)}.items()
    },
    "negative": lambda graph, node, args: combined_affine_forms(args[0], args[0], -1, 0),
    "invert": lambda graph, node, args: _negated(args[0]) if node.dtype.kind == "b" else None,
    "logical_not": lambda graph, node, args: _negated(args[0]) if graph.nodes[node.args[0]].dtype.kind == "b" else None,
    "cast": lambda graph, node, args: args[0] if _counts_places(node) else None,
    "broadcast": lambda graph, node, args: args[0],
    "multiply": _affine_form_of_multiply,
    "permute": _affine_form_of_permute,
    "reshape": _affine_form_of_reshape,
    "where": _affine_form_of_where,
}
_OF_CONDITIONS = ("invert", "logical_not", "where", "broadcast", "permute", "reshape")
