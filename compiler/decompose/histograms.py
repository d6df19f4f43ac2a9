"""Histograms as bins that kernels find and counts of these; sums of weights by number.

What NumPy refuses by the values themselves is not seen: a number that has no place is not counted, nor is any value
where the range is not finite; edges that are out of order give some bin. Only bins of a known range need no such look.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..core.types import FLOAT64, INT64, UINT64, ArrayType
from ..graph.builder import GraphBuilder
from ..graph.graph import Node, Value, Values
from .binary_search import (
    LONGEST,
    decompose_binary_search,
    element_loader_of_search,
    equal_width_histogram_bin,
    narrow_histogram_bin_numbers,
)
from .searching import comparison_dtype_of_decomposed_search


def decompose_bincount(builder: GraphBuilder, node: Node, args: Values) -> Value | str:
    """bincount(x, weights) -> zeros after add.at(zeros, x, weights)"""
    if len(args) != 2 or args[0].shape != args[1].shape or 0 in (*args[0].shape, *node.shape):
        return ""
    numbers, weights = args
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or weights.dtype.kind not in "biuf":
        return "numbers that are not integers, or complex weights"
    return _histogram_weight_sums(builder, numbers, weights, node.type) if numbers.size < 2**31 else "2**31 numbers"


def _histogram_weight_sums(builder: GraphBuilder, numbers: Value, weights: Value, type: ArrayType) -> Value:
    """Sums of the weights of each number, in the dtype of `type`."""
    zeros = builder.broadcast(builder.const(type.dtype.type(0)), type.shape)
    weights = builder.cast(weights, FLOAT64) if weights.dtype.kind == "b" else weights
    return builder.host("combine_at", [zeros, numbers, weights], [type], ufunc="add")[0]


def decompose_histogram_in_range(builder: GraphBuilder, node: Node, args: Values) -> Value | str:
    """histogram(x, count, (first, last)), of edges that are known -> counts of computed bins"""
    options = node.options
    x, *others = args
    given = dict(zip(options.get("named", ()), others, strict=True))
    edges, weights, limits = given.get("edges"), given.get("weights"), options.get("range", ())
    if edges is None or not x.size:
        return ""
    if x.dtype.kind not in "iuf" or x.dtype == np.float16 or (weights is not None and weights.dtype.kind not in "iuf"):
        return f"bins of {x.dtype}, or weights that are not real numbers"
    dtype, count = edges.dtype, edges.shape[0] - 1
    first, last = limits if limits[0] != limits[1] else (limits[0] - 0.5, limits[1] + 0.5)
    keep = builder.map(
        "logical_and",
        _compare_with_histogram_limit(builder, "greater_equal", x, first),
        _compare_with_histogram_limit(builder, "less_equal", x, last),
    )
    value = builder.map("where", keep, builder.cast(x, dtype), dtype.type(first))
    edge = element_loader_of_search(builder, edges, x.shape)
    place = equal_width_histogram_bin(builder, value, dtype.type(first), dtype.type(last - first), count, edge)
    arrays = [narrow_histogram_bin_numbers(builder, place, keep, count), *([] if weights is None else [weights])]
    kind = ArrayType((count + 1,), INT64 if weights is None else FLOAT64)
    (every,) = builder.host("bincount", arrays, [kind], minlength=count + 1)
    counts = builder.slice(every, [0], [1], (count,))
    counts = counts if weights is None else builder.cast(counts, weights.dtype)
    return _histogram_density(builder, counts, edges) if options.get("density") else counts


def _compare_with_histogram_limit(builder: GraphBuilder, op: str, x: Value, limit: Any) -> Value:
    """x >= limit or x <= limit; of a Python integer that x cannot hold all are on one side."""
    if type(limit) is int and x.dtype.kind in "iu" and not np.iinfo(x.dtype).min <= limit <= np.iinfo(x.dtype).max:
        return builder.broadcast(builder.const((limit < 0) == (op == "greater_equal")), x.shape)
    return builder.map(op, x, limit)


def decompose_histogram(builder: GraphBuilder, node: Node, args: Values) -> Value | str:
    """histogram(x, edges) -> counts (or sums of weights) of bins that are searched for; of a number of bins, after the
    least and the greatest value"""
    options = node.options
    x, *others = args
    given = dict(zip(options.get("named", ()), others, strict=True))
    edges, weights, count = given.get("bins"), given.get("weights"), int(options.get("bins", 0))
    if 0 in x.shape or (weights is not None and weights.dtype.kind not in "iuf"):
        return "no values, or weights that are not real numbers"
    if edges is None:
        if options.get("range") is not None or x.dtype.kind not in "iuf" or x.dtype == np.float16 or count < 1:
            return f"a range that is given, or bins of {x.dtype}"
        edges, numbers = _histogram_bins_between_extremes(builder, x, count)
    else:
        count = edges.shape[0] - 1
        dtype = comparison_dtype_of_decomposed_search(x, edges)
        differ = edges.dtype.kind == "b" and options.get("density")  # to NumPy differences of booleans
        if dtype is None or x.dtype.kind == "b" or differ or not 1 <= count < LONGEST:
            return f"more than {LONGEST} edges, or a dtype without kernels"
        numbers = _histogram_bin_of_each_value(builder, builder.cast(x, dtype), builder.cast(edges, dtype))
    if node.attr("part"):
        return edges
    # NumPy adds integers up as integers where bins have edges, in float64 where they have a width.
    added = FLOAT64
    if weights is not None and weights.dtype.kind in "iu" and "bins" in given:
        added = UINT64 if weights.dtype.kind == "u" else INT64
    counts = _count_or_sum_histogram_weights(builder, numbers, weights, count, added)
    return _histogram_density(builder, counts, edges) if options.get("density") else counts


def _histogram_bin_of_each_value(builder: GraphBuilder, x: Value, edges: Value) -> Value:
    """The bin of each value, of which the last one has both of its edges."""
    n, last = edges.shape[0], np.int64(edges.shape[0] - 2)
    place = decompose_binary_search(builder, element_loader_of_search(builder, edges, x.shape), n, x, "right")
    place = builder.map("subtract", place, np.int64(1))
    at_end = builder.map("equal", x, builder.reshape(builder.slice(edges, [n - 1], [1], (1,)), ()))
    place = builder.map("where", at_end, last, place)
    low = builder.map("greater_equal", place, np.int64(0))
    return narrow_histogram_bin_numbers(
        builder, place, builder.map("logical_and", low, builder.map("less_equal", place, last)), n - 1
    )


def _histogram_bins_between_extremes(builder: GraphBuilder, x: Value, count: int) -> tuple[Value, Value]:
    """Edges from the least to the greatest value, as np.linspace has them, and the bin of each value."""
    dtype = x.dtype if x.dtype.kind == "f" else FLOAT64
    low, high = (builder.reduce(op, x, (0,)) for op in ("min", "max"))
    alone = builder.map("equal", low, high)
    half = dtype.type(0.5)
    first = builder.map(
        "where", alone, builder.map("subtract", builder.cast(low, dtype), half), builder.cast(low, dtype)
    )
    last = builder.map("where", alone, builder.map("add", builder.cast(high, dtype), half), builder.cast(high, dtype))
    delta = builder.map("subtract", last, first)
    width = delta
    if dtype != x.dtype:  # as unsigned integers: the difference of two of them is rounded once
        whole = builder.map("subtract", builder.cast(high, np.uint64), builder.cast(low, np.uint64))
        width = builder.map("where", alone, delta, builder.cast(whole, FLOAT64))
    place = builder.index((count + 1,), 0)
    steps = builder.map("multiply", builder.cast(place, dtype), builder.map("divide", delta, dtype.type(count)))
    edges = builder.map("where", builder.map("equal", place, np.int64(count)), last, builder.map("add", steps, first))
    value = builder.cast(x, dtype)
    edge = element_loader_of_search(builder, edges, x.shape)
    top = np.int64(count)
    number = equal_width_histogram_bin(
        builder, value, first, width, count, lambda at: edge(_clamp_histogram_bin_numbers(builder, at, top))
    )
    number = _clamp_histogram_bin_numbers(builder, number, np.int64(count - 1))
    finite = builder.map("logical_and", *(builder.map("isfinite", end) for end in (first, last)))
    return edges, narrow_histogram_bin_numbers(builder, number, finite, count)


def _clamp_histogram_bin_numbers(builder: GraphBuilder, place: Value, most: np.int64) -> Value:
    """What NaN has made of places is out of range."""
    return builder.map("minimum", builder.map("maximum", place, np.int64(0)), most)


def _count_or_sum_histogram_weights(
    builder: GraphBuilder, numbers: Value, weights: Value | None, count: int, added: np.dtype[np.generic]
) -> Value:
    """Counts, or sums of weights that are added up in a dtype."""
    kind = ArrayType((count + 1,), INT64 if weights is None else added)
    if weights is None:
        (every,) = builder.host("bincount", [numbers], [kind], minlength=count + 1)
    else:
        every = _histogram_weight_sums(builder, numbers, weights, kind)
    inside = builder.slice(every, [0], [1], (count,))
    return inside if weights is None else builder.cast(inside, weights.dtype)


def _histogram_density(builder: GraphBuilder, counts: Value, edges: Value) -> Value:
    """Counts over the widths of their bins and over all that was counted."""
    n = math.prod(counts.shape)
    before, after = (builder.slice(edges, [start], [1], (n,)) for start in (0, 1))
    widths = builder.cast(builder.map("subtract", after, before), FLOAT64)
    return builder.map("divide", builder.map("divide", counts, widths), builder.reduce("sum", counts, (0,)))
