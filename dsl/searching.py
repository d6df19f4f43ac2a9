"""Where values belong among sorted ones, and histograms of equal bins: loads at computed places inside kernels."""

from __future__ import annotations

import numpy as np

from .dispatch import METHODS
from .elementwise import apply
from .errors import ShapeError
from .gather import looked_up
from .host import host_one
from .operands import array_of, fresh
from .tracer import Tracer
from .views import cast

LONGEST = 1 << 20  # sorted values that a kernel searches: one step for each doubling


def search(a: Tracer, v: Tracer, side: str) -> Tracer | None:
    """np.searchsorted by halving, the steps of all values side by side; None for dtypes and lengths that NumPy does.

    A step of 2**k goes on where the value before it is still too small (Shar's uniform search; Knuth, volume 3, 1973).
    """
    n, dtype = a.shape[0], np.result_type(a.dtype, v.dtype)
    if dtype.kind not in "iuf" or dtype.itemsize < 4 or not 0 < n <= LONGEST or not v.size:
        return None
    ordered, wanted = cast(a, dtype, copy=False), cast(v, dtype, copy=False)
    builder = v._trace.builder
    at = fresh(builder.broadcast(builder.const(0, np.int64), wanted.shape), v)
    step = 1 << (n.bit_length() - 1)
    while step:
        spot = apply("add", at, step - 1)
        inside = apply("less", spot, n)
        value = looked_up(ordered, [apply("minimum", spot, n - 1)._value], [0], [], wanted.shape, False)
        before = _before(fresh(value, a), wanted, side)
        at = apply("where", apply("logical_and", inside, before), apply("add", at, step), at)
        step >>= 1
    return at


def _before(x: Tracer, v: Tracer, side: str) -> Tracer:
    """Whether x comes before v: x < v, or on the right side x <= v; NaN comes last."""
    if x.dtype.kind != "f":
        return apply("less" if side == "left" else "less_equal", x, v)
    if side == "left":
        nan = apply("logical_and", apply("isnan", v), apply("logical_not", apply("isnan", x)))
        return apply("logical_or", apply("less", x, v), nan)
    return apply("logical_or", apply("less_equal", x, v), apply("isnan", v))


def equal_bins(
    x: Tracer, low: float, high: float, count: int, weights: Tracer | None = None
) -> tuple[Tracer, Tracer] | None:
    """np.histogram of a flat array in equal bins of a known range: counts (or sums of weights, added up in float64) and
    edges; None for dtypes that NumPy does.

    Each value's bin is computed as NumPy does, and put right against the edges where rounding moved it."""
    if x.dtype.kind not in "iuf" or x.dtype == np.float16 or not x.size or count < 1:
        return None
    first, last = (low, high) if low != high else (low - 0.5, high + 0.5)
    dtype = np.result_type(first, last, x.dtype)
    dtype = np.result_type(dtype, float) if dtype.kind in "iu" else dtype
    edges = np.linspace(first, last, count + 1, endpoint=True, dtype=dtype)
    if (edges[:-1] >= edges[1:]).any():
        raise ShapeError(f"Too many bins for data range. Cannot create {count} finite-sized bins.")
    keep = apply("logical_and", apply("greater_equal", x, first), apply("less_equal", x, last))
    value = apply("where", keep, cast(x, dtype, copy=False), dtype.type(first))
    scaled = apply("divide", apply("subtract", value, dtype.type(first)), dtype.type(last - first))
    place = cast(apply("multiply", scaled, dtype.type(count)), np.int64, copy=False)
    place = apply("minimum", place, count - 1)
    table = array_of(edges)

    def edge(index: Tracer) -> Tracer:
        return fresh(looked_up(table, [index._value], [0], [], x.shape, False), x)

    place = apply("where", apply("less", value, edge(place)), apply("subtract", place, 1), place)
    over = apply("greater_equal", value, edge(apply("add", place, 1)))
    over = apply("logical_and", over, apply("not_equal", place, count - 1))
    place = apply("where", over, apply("add", place, 1), place)
    place = apply("where", keep, place, count)  # one more bin, for what lies outside
    narrow = cast(place, np.int32, copy=False) if count < 2**31 - 1 else place  # half the memory
    kind, given = (np.intp, [narrow]) if weights is None else (np.float64, [narrow, weights])
    counts = host_one("bincount", given, (count + 1,), dtypes=[kind], minlength=count + 1)
    part: Tracer = METHODS["__getitem__"](counts, slice(0, count))
    return part if weights is None else cast(part, weights.dtype, copy=False), table
