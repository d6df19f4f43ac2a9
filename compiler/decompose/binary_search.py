"""Where values belong among sorted values or equal bins. Done as loads at computed places inside kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..core.types import INT64
from ..graph.builder import GraphBuilder
from ..graph.graph import Value

LONGEST = 1 << 20  # sorted values that a kernel searches: one step for each doubling

At = Callable[[Value], Value]


def element_loader_of_search(builder: GraphBuilder, a: Value, shape: Sequence[int]) -> At:
    """A function from places to the elements of a flat array there, all places in range."""
    return lambda place: builder.gather(a, [place], [0], [], tuple(shape), checked=False)


def decompose_binary_search(builder: GraphBuilder, at: At, n: int, sought: Value, side: str) -> Value:
    """np.searchsorted in n > 0 values `at` their places, of the dtype of what is sought: by halving, the steps of all
    side by side.

    A step of 2**k goes on where the value before it is still too small (Shar's uniform search; Knuth, volume 3, 1973).
    """
    found = builder.broadcast(builder.const(0, INT64), sought.shape)
    step = 1 << (n.bit_length() - 1)
    while step:
        spot = builder.map("add", found, np.int64(step - 1))
        inside = builder.map("less", spot, np.int64(n))
        value = at(builder.map("minimum", spot, np.int64(n - 1)))
        before = _sorts_before_in_search(builder, value, sought, side)
        further = builder.map("add", found, np.int64(step))
        found = builder.map("where", builder.map("logical_and", inside, before), further, found)
        step >>= 1
    return found


def _sorts_before_in_search(builder: GraphBuilder, x: Value, v: Value, side: str) -> Value:
    """Whether x comes before v: x < v, or on the right side x <= v; NaN comes last."""
    if x.dtype.kind != "f":
        return builder.map("less" if side == "left" else "less_equal", x, v)
    if side == "left":
        nan = builder.map("logical_and", builder.map("isnan", v), builder.map("logical_not", builder.map("isnan", x)))
        return builder.map("logical_or", builder.map("less", x, v), nan)
    return builder.map("logical_or", builder.map("less_equal", x, v), builder.map("isnan", v))


def equal_width_histogram_bin(
    builder: GraphBuilder, value: Value, first: Value | np.generic, width: Value | np.generic, count: int, edge: At
) -> Value:
    """Computes each value's bin as np.histogram does. The number is put right against the edges where rounding moved
    it. width: of all bins. edge: gives the edges."""
    scaled = builder.map("divide", builder.map("subtract", value, first), width)
    place = builder.cast(builder.map("multiply", scaled, value.dtype.type(count)), INT64)
    place = builder.map("minimum", place, np.int64(count - 1))
    under = builder.map("less", value, edge(place))
    place = builder.map("where", under, builder.map("subtract", place, np.int64(1)), place)
    over = builder.map("greater_equal", value, edge(builder.map("add", place, np.int64(1))))
    over = builder.map("logical_and", over, builder.map("not_equal", place, np.int64(count - 1)))
    return builder.map("where", over, builder.map("add", place, np.int64(1)), place)


def narrow_histogram_bin_numbers(builder: GraphBuilder, place: Value, keep: Value, count: int) -> Value:
    """Numbers of bins to be counted, in half the memory where that does: one more bin is for what lies outside."""
    place = builder.map("where", keep, place, np.int64(count))
    return builder.cast(place, np.int32) if count < 2**31 - 1 else place
