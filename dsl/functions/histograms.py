"""Counting in bins, and interpolation: host calls, but for bins of one width, which `searching` finds in kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.checks import to_index
from ..core.errors import DTypeError, ShapeError, UnsupportedError
from ..trace.dispatch import METHODS, implements
from ..trace.operands import array_of
from ..trace.tracer import Tracer
from .elementwise import apply
from .host_calls import host, host_one, known
from .joining import stack
from .reductions import sum as sum_of
from .searching import equal_bins
from .views import cast, ravel, reshape


def _bins(bins: Any) -> int | Tracer:
    """How many bins, or their edges."""
    if isinstance(bins, str):
        raise UnsupportedError(f"bins={bins!r} gives a shape that depends on data; pass a number of bins, or edges")
    if isinstance(bins, (Tracer, np.ndarray, list, tuple)) and not (isinstance(bins, np.ndarray) and bins.ndim == 0):
        edges = array_of(bins)
        if edges.ndim == 1:
            return edges
        if edges.ndim:
            raise ShapeError("bins must be 1d, when an array")
    return to_index(bins, "bins")


def _range(limits: Any) -> Any:
    return None if limits is None else tuple(known(v) for v in limits)


@implements(np.histogram)
def histogram(
    a: Any, bins: Any = 10, range: Any = None, density: bool | None = None, weights: Any = None
) -> tuple[Tracer, Tracer]:
    """Counts and edges. The number of bins must be known."""
    wanted, x, limits = _bins(bins), ravel(a), _range(range)
    each = None if weights is None else ravel(weights)
    if each is not None and array_of(weights).shape != array_of(a).shape:
        raise ShapeError("weights should have the same shape as a.")
    if isinstance(wanted, int) and limits is not None and (each is None or each.dtype.kind in "iuf"):
        found = _equal_bins(x, wanted, limits, each)
        if found is not None:
            return _dense(*found) if density else found
    options: dict[str, Any] = {"range": limits, "density": density or None}
    sides: tuple[int, ...]
    arrays, names, tiny = [x], [], [(1,)]
    if isinstance(wanted, int):
        options["bins"], count, sides = wanted, wanted, (wanted + 1,)
    else:
        arrays, names, tiny = [x, wanted], ["bins"], [(1,), (2,)]
        count, sides = max(0, wanted.size - 1), wanted.shape
    if each is not None:
        arrays, names, tiny = [*arrays, each], [*names, "weights"], [*tiny, (1,)]
    counts, edges = host("histogram", arrays, [(count,), sides], tiny=tiny, named=tuple(names) or None, **options)
    return counts, edges


def _equal_bins(x: Tracer, count: int, limits: Any, weights: Tracer | None) -> tuple[Tracer, Tracer] | None:
    low, high = limits
    if low > high:
        raise ShapeError("max must be larger than min in range parameter.")
    return equal_bins(x, low, high, count, weights) if np.isfinite(low) and np.isfinite(high) else None


def _dense(counts: Tracer, edges: Tracer) -> tuple[Tracer, Tracer]:
    """Counts over the widths of their bins and over all that was counted."""
    cut = METHODS["__getitem__"]
    widths = cast(apply("subtract", cut(edges, slice(1, None)), cut(edges, slice(None, -1))), np.float64, copy=False)
    return apply("divide", apply("divide", counts, widths), sum_of(counts)), edges


@implements(np.histogram_bin_edges)
def histogram_bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Tracer:
    if weights is not None and array_of(weights).shape != array_of(a).shape:
        raise ShapeError("weights should have the same shape as a.")
    return histogram(a, bins, range)[1]


@implements(np.histogramdd)
def histogramdd(
    sample: Any, bins: Any = 10, range: Any = None, density: bool | None = None, weights: Any = None
) -> tuple[Tracer, tuple[Tracer, ...]]:
    """Counts and the edges along each axis. The numbers of bins must be known."""
    points = array_of(sample) if isinstance(sample, (Tracer, np.ndarray)) else stack(list(map(array_of, sample)), -1)
    if points.ndim == 1:
        points = reshape(points, (-1, 1))
    d = points.shape[1]
    each = [_bins(b) for b in bins] if isinstance(bins, (list, tuple)) else [_bins(bins)] * d
    if len(each) != d:
        raise ShapeError("The dimension of bins must be equal to the dimension of the sample x.")
    limits = None if range is None else tuple(_range(r) for r in range)
    options: dict[str, Any] = {"range": limits, "density": density or None}
    edges: list[Tracer] = []
    if all(isinstance(b, int) for b in each):
        options["bins"] = tuple(each)
    elif all(isinstance(b, Tracer) for b in each):
        edges = [b for b in each if isinstance(b, Tracer)]
    else:
        raise UnsupportedError("bins must be numbers or edges for all axes alike; pass np.linspace(low, high, n + 1)")
    lengths = tuple(b if isinstance(b, int) else b.size - 1 for b in each)
    arrays = [points, *edges, *([] if weights is None else [ravel(weights)])]
    tiny = [(1, d), *((2,) for _ in edges), *([] if weights is None else [(1,)])]
    shapes = [lengths, *((n + 1,) for n in lengths)]
    counts, *found = host("histogramdd", arrays, shapes, tiny=tiny, edges=len(edges), **options)
    return counts, tuple(found)


@implements(np.histogram2d)
def histogram2d(
    x: Any, y: Any, bins: Any = 10, range: Any = None, density: bool | None = None, weights: Any = None
) -> tuple[Tracer, Tracer, Tracer]:
    """Counts, edges along x, edges along y."""
    if not array_of(x).ndim or not array_of(y).ndim:
        raise DTypeError("histogram2d takes the coordinates in two arrays of one axis, not numbers")
    one = isinstance(bins, (Tracer, np.ndarray)) or (isinstance(bins, (list, tuple)) and len(bins) not in (1, 2))
    counts, (first, second) = histogramdd((x, y), [bins, bins] if one else bins, range, density, weights)
    return counts, first, second


@implements(np.bincount)
def bincount(x: Any, /, weights: Any = None, minlength: Any = 0) -> Tracer:
    """Counts of 0, 1, ..., minlength - 1. A larger value raises at the call, since NumPy's result would be longer."""
    length = to_index(minlength, "minlength")
    if length < 0:
        raise ShapeError(f"minlength={length}: the number of counts cannot be negative")
    if length == 0 and array_of(x).size:
        raise UnsupportedError("the shape of bincount depends on data; pass minlength=, above all values")
    numbers, extra = array_of(x), [] if weights is None else [array_of(weights)]
    if numbers.ndim != 1 or any(w.shape != numbers.shape for w in extra):
        shapes = " and ".join(str(a.shape) for a in (numbers, *extra))
        raise ShapeError(f"bincount needs one axis, and weights of that length, got {shapes}; use x.ravel()")
    for a, wanted in zip((numbers, *extra), (np.int64, np.float64), strict=False):
        if not np.can_cast(a.dtype, wanted, "safe"):
            raise DTypeError(f"bincount cannot take {a.dtype} as {np.dtype(wanted)}; convert it with x.astype(...)")
    return host_one(
        "bincount", [numbers, *extra], (length,), dtypes=[np.float64 if extra else np.intp], minlength=length
    )


# interpolation


def _real_scalar(x: Any) -> Any:
    """Of NumPy's complex scalars np.interp takes the real part; complex arrays and Python numbers it refuses."""
    return x.real if isinstance(x, np.complexfloating) else x


@implements(np.interp)
def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Tracer:
    x, left, right = map(_real_scalar, (x, left, right))
    at = array_of(x)
    sides = {k: v for k, v in (("left", left), ("right", right)) if v is not None}
    arrays = [at, array_of(xp), array_of(fp), *map(array_of, sides.values())]
    dtype = np.complex128 if arrays[2].dtype.kind == "c" else np.float64
    return host_one("interp", arrays, at.shape, dtypes=[dtype], named=tuple(sides) or None, period=known(period))
