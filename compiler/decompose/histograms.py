"""Graph -> Graph for a GPU: sums of weights by number, and histograms and bins of values by their edges. Elsewhere
NumPy does them on the host.

What NumPy refuses by the values themselves is not seen: a number that has no place is not counted, nor is any value
where the range is not finite; edges that are out of order give some bin.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..core.types import FLOAT64, INT64, UINT64, ArrayType
from ..graph.binary_search import LONGEST, element, equal_bin, numbered, search
from ..graph.builder import Builder
from ..graph.graph import Node, Value


def bincount(builder: Builder, node: Node, args: Sequence[Value]) -> Value | None:
    """bincount(x, weights) -> zeros after add.at(zeros, x, weights)"""
    if len(args) != 2 or args[0].shape != args[1].shape or 0 in (*args[0].shape, *node.type.shape):
        return None
    numbers, weights = args
    if len(numbers.shape) != 1 or numbers.dtype.kind not in "iu" or weights.dtype.kind not in "biuf":
        return None
    return _sums(builder, numbers, weights, node.type) if numbers.type.size < 2**31 else None


def _sums(builder: Builder, numbers: Value, weights: Value, type: ArrayType) -> Value:
    """Sums of the weights of each number, in the dtype of `type`."""
    zeros = builder.broadcast(builder.const(type.dtype.type(0)), type.shape)
    weights = builder.cast(weights, FLOAT64) if weights.dtype.kind == "b" else weights
    return builder.host("combine_at", [zeros, numbers, weights], [type], ufunc="add")[0]


def digitize(builder: Builder, node: Node, args: Sequence[Value]) -> Value | None:
    """digitize(x, edges) -> searchsorted, from behind where the edges fall"""
    x, edges = args
    (n,) = edges.shape
    dtype = _common(x, edges)
    if dtype is None or not 0 < n <= LONGEST or 0 in x.shape:
        return None
    side = "left" if dict(node.attr("options"))["right"] else "right"
    wanted, known = builder.cast(x, dtype), builder.cast(edges, dtype)
    at = element(builder, known, x.shape)
    if n == 1:
        return search(builder, at, n, wanted, side)
    before, after = (builder.slice(edges, [start], [1], (n - 1,)) for start in (0, 1))
    falls = builder.reduce("any", builder.map("greater", before, after), (0,))

    def turned(place: Value) -> Value:
        return builder.map("where", falls, builder.map("subtract", np.int64(n - 1), place), place)

    found = search(builder, lambda place: at(turned(place)), n, wanted, side)
    return builder.map("where", falls, builder.map("subtract", np.int64(n), found), found)


def histogram(builder: Builder, node: Node, args: Sequence[Value]) -> Value | None:
    """histogram(x, edges) -> counts (or sums of weights) of bins that are searched for; of a number of bins, after the
    least and the greatest value"""
    options = dict(node.attr("options"))
    x, *others = args
    given = dict(zip(options.get("named", ()), others, strict=True))
    edges, weights, count = given.get("bins"), given.get("weights"), int(options.get("bins", 0))
    if 0 in x.shape or (weights is not None and weights.dtype.kind not in "iuf"):
        return None
    if edges is None:
        if options.get("range") is not None or x.dtype.kind not in "iuf" or x.dtype == np.float16 or count < 1:
            return None
        edges, numbers = _found_bins(builder, x, count)
    else:
        count = edges.shape[0] - 1
        dtype = _common(x, edges)
        differ = edges.dtype.kind == "b" and options.get("density")  # to NumPy differences of booleans
        if dtype is None or x.dtype.kind == "b" or differ or not 1 <= count < LONGEST:
            return None
        numbers = _bins(builder, builder.cast(x, dtype), builder.cast(edges, dtype))
    if node.attr("part"):
        return edges
    # NumPy adds integers up as integers where bins have edges, in float64 where they have a width.
    added = FLOAT64
    if weights is not None and weights.dtype.kind in "iu" and "bins" in given:
        added = UINT64 if weights.dtype.kind == "u" else INT64
    counts = _counted(builder, numbers, weights, count, added)
    return _dense(builder, counts, edges) if options.get("density") else counts


def _common(x: Value, edges: Value) -> np.dtype[np.generic] | None:
    """A dtype that a kernel compares both in, in which all of their common dtype keep their order."""
    dtype = np.result_type(x.dtype, edges.dtype)
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        return None
    return dtype if dtype.itemsize >= 4 else np.dtype("f4" if dtype.kind == "f" else "i4")


def _bins(builder: Builder, x: Value, edges: Value) -> Value:
    """The bin of each value, of which the last one has both of its edges."""
    n, last = edges.shape[0], np.int64(edges.shape[0] - 2)
    place = search(builder, element(builder, edges, x.shape), n, x, "right")
    place = builder.map("subtract", place, np.int64(1))
    at_end = builder.map("equal", x, builder.reshape(builder.slice(edges, [n - 1], [1], (1,)), ()))
    place = builder.map("where", at_end, last, place)
    low = builder.map("greater_equal", place, np.int64(0))
    return numbered(builder, place, builder.map("logical_and", low, builder.map("less_equal", place, last)), n - 1)


def _found_bins(builder: Builder, x: Value, count: int) -> tuple[Value, Value]:
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
    edge = element(builder, edges, x.shape)
    top = np.int64(count)
    number = equal_bin(builder, value, first, width, count, lambda at: edge(_within(builder, at, top)))
    number = _within(builder, number, np.int64(count - 1))
    finite = builder.map("logical_and", *(builder.map("isfinite", end) for end in (first, last)))
    return edges, numbered(builder, number, finite, count)


def _within(builder: Builder, place: Value, most: np.int64) -> Value:
    """What NaN has made of places is out of range."""
    return builder.map("minimum", builder.map("maximum", place, np.int64(0)), most)


def _counted(builder: Builder, numbers: Value, weights: Value | None, count: int, added: np.dtype[np.generic]) -> Value:
    """Counts, or sums of weights that are added up in a dtype."""
    kind = ArrayType((count + 1,), INT64 if weights is None else added)
    if weights is None:
        (every,) = builder.host("bincount", [numbers], [kind], minlength=count + 1)
    else:
        every = _sums(builder, numbers, weights, kind)
    inside = builder.slice(every, [0], [1], (count,))
    return inside if weights is None else builder.cast(inside, weights.dtype)


def _dense(builder: Builder, counts: Value, edges: Value) -> Value:
    """Counts over the widths of their bins and over all that was counted."""
    n = math.prod(counts.shape)
    before, after = (builder.slice(edges, [start], [1], (n,)) for start in (0, 1))
    widths = builder.cast(builder.map("subtract", after, before), FLOAT64)
    return builder.map("divide", builder.map("divide", counts, widths), builder.reduce("sum", counts, (0,)))
