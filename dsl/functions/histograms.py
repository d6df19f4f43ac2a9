"""Counting in bins, and interpolation: calls that `compiler/decompose` hands out."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.errors import DTypeError, ShapeError, UnsupportedError
from ..core.spec import to_index
from ..trace.dispatch import implements
from ..trace.operands import to_traced_array
from ..trace.tracer import Tracer
from .host_calls import host_call, host_call_of_one_result, require_known_numpy_option
from .joining import stack
from .reduction_calls import implements_reduction
from .views import ravel, reshape


def _bin_count_or_edges(bins: Any) -> int | Tracer:
    """How many bins, or their edges."""
    if isinstance(bins, str):
        raise UnsupportedError(f"bins={bins!r} gives a shape that depends on data; pass a number of bins, or edges")
    if isinstance(bins, (Tracer, np.ndarray, list, tuple)) and not (isinstance(bins, np.ndarray) and bins.ndim == 0):
        edges = to_traced_array(bins)
        if edges.ndim == 1:
            return edges
        if edges.ndim:
            raise ShapeError("bins must be 1d, when an array")
    return to_index(bins, "bins")


def _known_histogram_range(limits: Any) -> Any:
    return None if limits is None else tuple(require_known_numpy_option(v) for v in limits)


@implements(np.histogram)
def histogram(
    a: Any, bins: Any = 10, range: Any = None, density: bool | None = None, weights: Any = None
) -> tuple[Tracer, Tracer]:
    """Counts and edges. The number of bins must be known."""
    wanted, x, limits = _bin_count_or_edges(bins), ravel(a), _known_histogram_range(range)
    each = None if weights is None else ravel(weights)
    if each is not None and to_traced_array(weights).shape != to_traced_array(a).shape:
        raise ShapeError("weights should have the same shape as a.")
    options: dict[str, Any] = {"range": limits, "density": density or None}
    arrays, names, tiny = [x], [], [(1,)]
    edges = (
        wanted
        if isinstance(wanted, Tracer)
        else None
        if limits is None
        else _bin_edges_of_known_range(x, wanted, limits)
    )
    if isinstance(wanted, int):
        options["bins"], count = wanted, wanted
    else:
        count = max(0, wanted.size - 1)
    if edges is not None:
        name = "bins" if edges is wanted else "edges"
        arrays, names, tiny = [x, edges], [name], [(1,), (2,)]
    if each is not None:
        arrays, names, tiny = [*arrays, each], [*names, "weights"], [*tiny, (1,)]
    options["named"] = tuple(names) or None
    if edges is not None and edges is not wanted:
        return host_call("histogram", arrays, [(count,)], tiny=tiny, **options)[0], edges
    sides = edges.shape if edges is not None else (count + 1,)
    counts, edges = host_call("histogram", arrays, [(count,), sides], tiny=tiny, **options)
    return counts, edges


def _bin_edges_of_known_range(x: Tracer, count: int, limits: Any) -> Tracer:
    """The edges of bins in a known range, which no value decides."""
    try:
        sample = np.zeros(1, np.uint8 if x.dtype == np.bool_ else x.dtype)
        return to_traced_array(np.histogram_bin_edges(sample, count, limits))
    except ValueError as error:
        raise ShapeError(str(error)) from None


@implements(np.histogram_bin_edges)
def histogram_bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Tracer:
    if weights is not None and to_traced_array(weights).shape != to_traced_array(a).shape:
        raise ShapeError("weights should have the same shape as a.")
    return histogram(a, bins, range)[1]


def _points_of_sample(sample: Any) -> Tracer:
    """A point a row: an array has them so, a list has their coordinates."""
    known = isinstance(sample, (Tracer, np.ndarray))
    points = to_traced_array(sample) if known else stack(list(map(to_traced_array, sample)), -1)
    return reshape(points, (-1, 1)) if points.ndim < 2 else points


@implements(np.histogramdd)
def histogramdd(
    sample: Any, bins: Any = 10, range: Any = None, density: bool | None = None, weights: Any = None
) -> tuple[Tracer, list[Tracer]]:
    """Counts and the edges along each axis. The numbers of bins must be known."""
    points = _points_of_sample(sample)
    count, d = points.shape
    weights = weights if count else None  # which NumPy does not look at then
    if weights is not None and np.shape(weights) != (count,):
        raise ShapeError(f"histogramdd takes a weight for each of {count} points, got the shape {np.shape(weights)}")
    each = (
        [_bin_count_or_edges(b) for b in bins] if isinstance(bins, (list, tuple)) else [_bin_count_or_edges(bins)] * d
    )
    if len(each) != d:
        raise ShapeError("The dimension of bins must be equal to the dimension of the sample x.")
    limits = None if range is None else tuple(map(_known_histogram_range, range))
    options: dict[str, Any] = {"range": limits, "density": density or None}
    edges: list[Tracer] = []
    if all(isinstance(b, int) for b in each):
        options["bins"] = tuple(each)
    elif all(isinstance(b, Tracer) for b in each):
        edges = [b for b in each if isinstance(b, Tracer)]
    else:
        raise UnsupportedError("bins must be numbers or edges for all axes alike; pass np.linspace(low, high, n + 1)")
    lengths = tuple(b if isinstance(b, int) else b.size - 1 for b in each)
    arrays = [points, *edges, *([] if weights is None else [weights])]
    tiny = [(min(count, 1), d), *((2,) for _ in edges), *([] if weights is None else [(1,)])]
    shapes = [lengths, *((n + 1,) for n in lengths)]
    counts, *found = host_call("histogramdd", arrays, shapes, tiny=tiny, edges=len(edges), **options)
    return counts, found


@implements(np.histogram2d)
def histogram2d(
    x: Any, y: Any, bins: Any = 10, range: Any = None, density: bool | None = None, weights: Any = None
) -> tuple[Tracer, Tracer, Tracer]:
    """Counts, edges along x, edges along y."""
    if not to_traced_array(x).ndim or not to_traced_array(y).ndim:
        raise DTypeError("histogram2d takes the coordinates in two arrays of one axis, not numbers")
    one = isinstance(bins, (Tracer, np.ndarray)) or (isinstance(bins, (list, tuple)) and len(bins) not in (1, 2))
    counts, (first, second) = histogramdd((x, y), [bins, bins] if one else bins, range, density, weights)
    return counts, first, second


@implements_reduction(np.bincount)
def bincount(x: Any, /, weights: Any = None, minlength: Any = 0) -> Tracer:
    """Counts of 0, 1, ..., minlength - 1. A larger value raises at the call, since NumPy's result would be longer."""
    length = to_index(minlength, "minlength")
    if length < 0:
        raise ShapeError(f"minlength={length}: the number of counts cannot be negative")
    if length == 0 and to_traced_array(x).size:
        raise UnsupportedError("the shape of bincount depends on data; pass minlength=, above all values")
    numbers, extra = to_traced_array(x), [] if weights is None else [to_traced_array(weights)]
    if numbers.ndim != 1 or any(w.shape != numbers.shape for w in extra):
        shapes = " and ".join(str(a.shape) for a in (numbers, *extra))
        raise ShapeError(f"bincount needs one axis, and weights of that length, got {shapes}; use x.ravel()")
    try:
        counts = np.bincount(*(np.zeros(min(a.size, 1), a.dtype) for a in (numbers, *extra)))
    except TypeError as error:
        raise DTypeError(f"bincount: {error}; convert it with x.astype(...)") from None
    return host_call_of_one_result("bincount", [numbers, *extra], (length,), dtypes=[counts.dtype], minlength=length)


# interpolation


def _np_interp_number(x: Any, may_be_complex: bool = False) -> Any:
    """Of NumPy's complex scalars np.interp takes the real part, where Python's complex numbers would not do."""
    return x.real if isinstance(x, np.complexfloating) and not (may_be_complex and isinstance(x, complex)) else x


@implements(np.interp)
def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Tracer:
    at, places, values = to_traced_array(_np_interp_number(x)), to_traced_array(xp), to_traced_array(fp)
    is_complex = values.dtype.kind == "c"
    sides = {k: _np_interp_number(v, is_complex) for k, v in (("left", left), ("right", right)) if v is not None}
    dtype = np.complex128 if is_complex else np.float64
    return host_call_of_one_result(
        "interp",
        [at, places, values, *map(to_traced_array, sides.values())],
        at.shape,
        dtypes=[dtype],
        named=tuple(sides) or None,
        period=require_known_numpy_option(period),
    )
