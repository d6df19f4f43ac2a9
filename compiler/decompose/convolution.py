"""Convolutions with few weights as one sum of shifted products."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial, reduce

import numpy as np

from ..graph.builder import GraphBuilder
from ..graph.graph import Node, Value

FEW = 32  # weights


def decompose_convolve(builder: GraphBuilder, node: Node, args: Sequence[Value]) -> Value | str:
    """convolve(x, weights) -> sum over j of x[k - j] * weights[j]"""
    x, weights = args
    if weights.shape[0] > FEW:
        return f"more than {FEW} weights"
    return _decompose_full_convolution(builder, x, weights, dict(node.attr("options"))["mode"])


def decompose_correlate(builder: GraphBuilder, node: Node, args: Sequence[Value]) -> Value | str:
    """correlate(x, weights) -> convolve(x, conj(weights[::-1]))"""
    x, weights = args
    m = weights.shape[0]
    if m > min(FEW, x.shape[0]):
        return f"more than {FEW} weights, or more than values"
    turned = builder.slice(weights, [m - 1], [-1], (m,))
    turned = builder.map("conjugate", turned) if turned.dtype.kind == "c" else turned
    return _decompose_full_convolution(builder, x, turned, dict(node.attr("options"))["mode"])


def _decompose_full_convolution(builder: GraphBuilder, x: Value, weights: Value, mode: str) -> Value:
    n, m = x.shape[0], weights.shape[0]
    wanted = np.result_type(x.dtype, weights.dtype)
    x, weights = builder.cast(x, wanted), builder.cast(weights, wanted)
    add = "logical_or" if wanted == np.bool_ else "add"
    first, last = {"full": (0, n + m - 1), "same": ((m - 1) // 2, (m - 1) // 2 + n), "valid": (m - 1, n)}[mode]
    inner, end = max(first, m - 1), min(last, n)  # where all weights meet x
    parts = []
    if end > inner:
        shifted = (_slice_convolution_input(builder, x, inner - j, end - j) for j in range(m))
        terms = (
            builder.map("multiply", part, _single_weight_of_convolution(builder, weights, j))
            for j, part in enumerate(shifted)
        )
        parts.append(_sum_convolution_terms(builder, add, terms))
    if first < inner:
        parts.insert(0, _edge_terms_of_convolution(builder, x, weights, add, first, inner))
    if end < last:
        parts.append(_edge_terms_of_convolution(builder, x, weights, add, end, last))
    result = builder.concat(parts, 0)
    # a product of BLAS adds to 0.0: it never gives -0.0
    return builder.map("add", result, 0) if wanted.kind in "fc" and wanted.itemsize > 2 else result


def _edge_terms_of_convolution(
    builder: GraphBuilder, x: Value, weights: Value, add: str, first: int, last: int
) -> Value:
    """Elements first..last of the full convolution, where x does not reach all weights."""
    n, m, zero = x.shape[0], weights.shape[0], x.dtype.type(0)
    low, high = max(0, first - m + 1), min(n, last)  # of x, what reaches them
    counts = max(0, m - 1 - first), max(0, last - n)
    before, after = (builder.broadcast(builder.const(zero), (count,)) for count in counts)
    wide = builder.concat(
        [v for v in (before, _slice_convolution_input(builder, x, low, high), after) if v.shape[0]], 0
    )
    at = builder.index((last - first,), 0)
    terms = []
    for j in range(m):
        start = m - 1 - j  # of the window in `wide`; what lies outside of x counts for nothing
        reached = builder.map("greater_equal", at, j - first), builder.map("less", at, n + j - first)
        inside = builder.map("logical_and", *reached)
        term = builder.map(
            "multiply",
            _slice_convolution_input(builder, wide, start, start + last - first),
            _single_weight_of_convolution(builder, weights, j),
        )
        terms.append(builder.map("where", inside, term, zero))
    return _sum_convolution_terms(builder, add, terms)


def _slice_convolution_input(builder: GraphBuilder, x: Value, first: int, last: int) -> Value:
    return builder.slice(x, [first], [1], (last - first,))


def _single_weight_of_convolution(builder: GraphBuilder, x: Value, at: int) -> Value:
    return builder.reshape(_slice_convolution_input(builder, x, at, at + 1), ())


def _sum_convolution_terms(builder: GraphBuilder, add: str, terms: Iterable[Value]) -> Value:
    return reduce(partial(builder.map, add), terms)
