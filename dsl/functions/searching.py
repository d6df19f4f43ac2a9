"""Where values belong among sorted ones, and histograms of equal bins: loads at computed places inside kernels."""

from __future__ import annotations

import numpy as np

from ...compiler.graph import binary_search
from ..core.errors import ShapeError
from ..trace.dispatch import METHODS
from ..trace.operands import array_of, fresh
from ..trace.tracer import Tracer
from .elementwise import apply
from .host_calls import host_one
from .views import cast


def search(a: Tracer, v: Tracer, side: str) -> Tracer | None:
    """np.searchsorted in a kernel; None for dtypes and lengths that NumPy does."""
    n, dtype = a.shape[0], np.result_type(a.dtype, v.dtype)
    if dtype.kind not in "iuf" or dtype.itemsize < 4 or not 0 < n <= binary_search.LONGEST or not v.size:
        return None
    ordered, wanted = cast(a, dtype, copy=False), cast(v, dtype, copy=False)
    builder = v._trace.builder
    at = binary_search.element(builder, ordered._value, wanted.shape)
    return fresh(binary_search.search(builder, at, n, wanted._value, side), v)


def equal_bins(
    x: Tracer, low: float, high: float, count: int, weights: Tracer | None = None
) -> tuple[Tracer, Tracer] | None:
    """np.histogram of a flat array in equal bins of a known range: counts (or sums of weights, added up in float64) and
    edges; None for dtypes that NumPy does."""
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
    builder, table = x._trace.builder, array_of(edges)
    edge = binary_search.element(builder, table._value, x.shape)
    place = binary_search.equal_bin(builder, value._value, dtype.type(first), dtype.type(last - first), count, edge)
    numbers = fresh(binary_search.numbered(builder, place, keep._value, count), x)
    kind, given = (np.intp, [numbers]) if weights is None else (np.float64, [numbers, weights])
    counts = host_one("bincount", given, (count + 1,), dtypes=[kind], minlength=count + 1)
    part: Tracer = METHODS["__getitem__"](counts, slice(0, count))
    return part if weights is None else cast(part, weights.dtype, copy=False), table
