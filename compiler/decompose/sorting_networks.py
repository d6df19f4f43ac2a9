"""Graph -> Graph for the CPU. Sorts of many short rows become networks of comparisons, done in vectors and fused.

A comparator keeps both of its values, whatever they are: the result is a permutation, with NaN last as NumPy has it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from ..graph.builder import GraphBuilder
from ..graph.graph import Node, Value, Values

LONGEST = 9  # rows of which some places are wanted
LONGEST_SORTED = 8  # rows that are wanted whole: what stores longer ones takes half a second to compile
FEWEST = 4096  # fewer rows would have to be sorted thousands of times to win back what the kernel takes to compile


def decompose_sort_of_short_rows(builder: GraphBuilder, node: Node, args: Values) -> Value | str:
    """sort(a) -> its slices along the axis, through a network, put together again"""
    (a,) = args
    options = node.options
    axis = options.get("axis", -1) % max(1, a.ndim)
    if options.get("kind") not in (None, "quicksort") or options.get("stable"):
        return "a stable sort"
    if refusal := _why_no_network(a, [axis], LONGEST_SORTED):
        return refusal
    return builder.concat(_sorted_slices(builder, a, axis), axis)


def decompose_kth_of_short_rows(builder: GraphBuilder, node: Node, args: Values) -> Value | str:
    """kth(a) -> those slices of `sort(a)`; what only others need is never computed"""
    (a,) = args
    last = a.ndim - 1
    if refusal := _why_no_network(a, [last], LONGEST):
        return refusal
    found = _sorted_slices(builder, a, last)
    return builder.concat([found[k] for k in node.options["kth"]], last)


def decompose_call_of_short_rows(
    rule: Callable[[GraphBuilder, Node, Values], Value | str],
    builder: GraphBuilder,
    node: Node,
    args: Values,
) -> Value | str:
    """What `rule` makes of a call, where a network finds the places in it."""
    axes = node.options.get("axis")
    rank = args[0].ndim
    every = range(rank) if axes is None else [i % rank for i in axes]
    return _why_no_network(args[0], every, LONGEST) or rule(builder, node, args)


def _why_no_network(a: Value, axes: Sequence[int], longest: int) -> str:
    """Why these axes of an array, taken as one, are not sorted by a network; empty: they are."""
    length = math.prod(a.shape[i] for i in axes)
    if a.dtype.kind not in "iuf" or a.dtype.itemsize > 8:
        return f"{a.dtype}"
    if not 1 <= length <= longest or math.prod(a.shape) < FEWEST * length:
        return f"rows of more than {longest}, or fewer than {FEWEST} rows"
    return ""


def _sorted_slices(builder: GraphBuilder, a: Value, axis: int) -> list[Value]:
    """The slices of an array along an axis, each of length 1 there, in order."""
    shape = tuple(1 if i == axis else n for i, n in enumerate(a.shape))
    found = [
        builder.slice(a, [k if i == axis else 0 for i in range(len(shape))], [1] * len(shape), shape)
        for k in range(a.shape[axis])
    ]
    for i, j in comparators_of_sorting_network(len(found)):
        low, high = found[i], found[j]
        swaps = builder.map("less", high, low)
        if a.dtype.kind == "f":
            swaps = builder.map("logical_or", swaps, builder.map("isnan", low))
        found[i], found[j] = builder.map("where", swaps, high, low), builder.map("where", swaps, low, high)
    return found


def comparators_of_sorting_network(count: int) -> Iterator[tuple[int, int]]:
    """Pairs of places that bring any `count` values into order, one after the other.

    Batcher's merge exchange: Knuth, The Art of Computer Programming, 5.2.2, algorithm M."""
    top = 1 << (count - 1).bit_length() - 1 if count > 1 else 0
    p = top
    while p:
        q, r, d = top, 0, p
        while True:
            yield from ((i, i + d) for i in range(count - d) if i & p == r)
            if q == p:
                break
            d, q, r = q - p, q // 2, p
        p //= 2
