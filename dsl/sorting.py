"""Sorting and searching, and what is made of it (medians, quantiles, histograms): host calls, but for what `searching`
does in kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from .aliasing import assign
from .axes import Axes, to_axes, to_axis
from .dispatch import METHODS, implements
from .elementwise import apply
from .errors import DTypeError, ShapeError, UnsupportedError
from .host import host, host_one, known, written
from .joins import stack
from .known import settled_value
from .operands import array_of, to_index
from .reductions import any as any_of
from .reductions import sum as sum_of
from .searching import equal_bins, search
from .tracer import Tracer
from .views import cast, expand_dims, flip, ravel, reshape

SMALL = 32  # up to so many elements are looked for one by one, in a kernel


def _plain_order(order: Any) -> None:
    if order is not None:
        raise UnsupportedError("order= is for arrays with fields, which cannot be traced; sort by np.argsort(field)")


def _along(a: Any, axis: int | None) -> tuple[Tracer, int]:
    """The array (flat where axis is None) and the axis."""
    x = array_of(a)
    if axis is None:
        return ravel(x), 0
    return x, to_axis(axis, x.ndim)


@implements(np.sort)
def sort(
    a: Any,
    axis: int | None = -1,
    kind: Any = None,
    order: Any = None,
    *,
    stable: bool | None = None,
    descending: bool = False,
) -> Tracer:
    """The values in order; descending (which NumPy has not) is the Array API's."""
    _plain_order(order)
    x, at = _along(a, axis)
    result = host_one("sort", [x], x.shape, dtypes=[x.dtype], axis=at, kind=kind, stable=stable)
    return flip(result, at) if descending else result


@implements(method="sort")
def _sort_in_place(
    a: Tracer, axis: int = -1, kind: Any = None, order: Any = None, *, stable: bool | None = None
) -> None:
    assign(a, sort(a, axis, kind, order, stable=stable))


@implements(np.argsort, method=True)
def argsort(
    a: Any,
    axis: int | None = -1,
    kind: Any = None,
    order: Any = None,
    *,
    stable: bool | None = None,
    descending: bool = False,
) -> Tracer:
    """Where the values in order come from; descending (which NumPy has not) is the Array API's."""
    _plain_order(order)
    x, at = _along(a, axis)
    if not descending:
        return host_one("argsort", [x], x.shape, dtypes=[np.intp], axis=at, kind=kind, stable=stable)
    places = argsort(flip(x, at), at, kind, stable=stable)  # turned twice, so that equal values keep their order
    return apply("subtract", x.shape[at] - 1, flip(places, at))


def sorted_values(
    a: Any,
    axis: int | None = -1,
    kind: Any = None,
    order: Any = None,
    *,
    stable: bool | None = None,
    descending: bool = False,
) -> Any:
    """`kg.sort` of arrays: np.sort, and the Array API's `descending`."""
    result = np.sort(a, axis, kind, order, stable=stable)
    return np.flip(result, 0 if axis is None else axis) if descending else result


def sorted_places(
    a: Any,
    axis: int | None = -1,
    kind: Any = None,
    order: Any = None,
    *,
    stable: bool | None = None,
    descending: bool = False,
) -> Any:
    """`kg.argsort`, traced or not: np.argsort, and the Array API's `descending`; stable unless `kind` is given."""
    if stable is None and kind is None:
        stable = True
    if isinstance(a, Tracer):
        return argsort(a, axis, kind, order, stable=stable, descending=descending)
    if not descending:
        return np.argsort(a, axis, kind, order, stable=stable)
    x, at = (np.ravel(a), 0) if axis is None else (np.asarray(a), axis)
    return x.shape[at] - 1 - np.flip(np.argsort(np.flip(x, at), at, kind, order, stable=stable), at)


def _kth(kth: Any, n: int) -> tuple[int, ...]:
    wanted = known(kth)
    numbers = [to_index(k, "kth") for k in (wanted if isinstance(wanted, (list, tuple)) else (wanted,))]
    for k in numbers:
        if not -n <= k < n:
            raise ShapeError(f"kth={k} is out of bounds for an axis of length {n}")
    return tuple(numbers)


@implements(np.partition)
def partition(a: Any, kth: Any, axis: int | None = -1, kind: Any = "introselect", order: Any = None) -> Tracer:
    _plain_order(order)
    x, at = _along(a, axis)
    return host_one("partition", [x], x.shape, dtypes=[x.dtype], kth=_kth(kth, x.shape[at]), axis=at, kind=kind)


@implements(method="partition")
def _partition_in_place(a: Tracer, kth: Any, axis: int = -1, kind: Any = "introselect", order: Any = None) -> None:
    assign(a, partition(a, kth, axis, kind, order))


@implements(np.argpartition, method=True)
def argpartition(a: Any, kth: Any, axis: int | None = -1, kind: Any = "introselect", order: Any = None) -> Tracer:
    _plain_order(order)
    x, at = _along(a, axis)
    return host_one("argpartition", [x], x.shape, dtypes=[np.intp], kth=_kth(kth, x.shape[at]), axis=at, kind=kind)


@implements(np.lexsort)
def lexsort(keys: Any, axis: int = -1) -> Tracer:
    """The order by the last key, among equals by the one before it, ..."""
    every = [array_of(k) for k in keys]
    if not every:
        raise ShapeError("lexsort needs at least one key")
    if any(k.shape != every[0].shape for k in every):
        shapes = ", ".join(str(k.shape) for k in every)
        raise ShapeError(f"lexsort needs keys of one shape, got {shapes}; broadcast them first")
    at = to_axis(axis, every[0].ndim) if every[0].ndim else -1
    return host_one("lexsort", every, every[0].shape, dtypes=[np.intp], axis=at)


@implements(np.searchsorted, method=True)
def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Tracer:
    if side not in ("left", "right"):
        raise ShapeError(f"side must be 'left' or 'right', got {side!r}")
    found = search(array_of(a), array_of(v), side) if sorter is None and array_of(a).ndim == 1 else None
    if found is not None:
        return found
    extra = [] if sorter is None else [sorter]
    named = ("sorter",) if extra else None
    return host_one("searchsorted", [a, v, *extra], array_of(v).shape, dtypes=[np.intp], side=side, named=named)


@implements(np.digitize)
def digitize(x: Any, bins: Any, right: bool = False) -> Tracer:
    return host_one("digitize", [x, bins], array_of(x).shape, dtypes=[np.intp], right=bool(right))


@implements(np.isin)
def isin(
    element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *, kind: Any = None
) -> Tracer:
    """Whether each element is among the others: in a kernel if those are few."""
    x, tests = array_of(element), array_of(test_elements)
    if 0 < tests.size <= SMALL:
        found = any_of(apply("equal", expand_dims(x, -1), reshape(tests, (tests.size,))), -1)
        return apply("logical_not", found) if invert else found
    return host_one("isin", [x, tests], x.shape, dtypes=[np.bool_], invert=bool(invert), kind=kind)


# medians and quantiles


def _reduced(x: Tracer, axis: Axes, keepdims: bool) -> tuple[tuple[int, ...], Any]:
    """The shape without the axes (or with 1 for each), and the axes as an option."""
    axes = to_axes(axis, x.ndim)
    kept = [(i, n) for i, n in enumerate(x.shape) if keepdims or i not in axes]
    return tuple(1 if i in axes else n for i, n in kept), None if axis is None else axes


def _median(name: str) -> Any:
    def function(
        a: Any, axis: Axes = None, out: Any = None, overwrite_input: bool = False, keepdims: bool = False
    ) -> Tracer:
        x = array_of(a)
        shape, axes = _reduced(x, axis, keepdims is True)
        return host_one(name, [x], shape, out, axis=axes, keepdims=keepdims is True)

    return function


median = implements(np.median)(_median("median"))
nanmedian = implements(np.nanmedian)(_median("nanmedian"))


def _quantile(name: str) -> Any:
    def function(
        a: Any,
        q: Any,
        axis: Axes = None,
        out: Any = None,
        overwrite_input: bool = False,
        method: str = "linear",
        keepdims: bool = False,
        *,
        weights: Any = None,
    ) -> Tracer:
        x = array_of(a)
        shape, axes = _reduced(x, axis, keepdims is True)
        options: dict[str, Any] = {"axis": axes, "method": method, "keepdims": keepdims is True}
        arrays, names = [x], []
        asked = _asked(q)
        strict = not isinstance(asked, Tracer) and isinstance(asked, np.generic)  # an array's kind, no Python number's
        q_shape = (1,) if strict else np.shape(asked)
        if isinstance(asked, Tracer):
            arrays, names = [x, asked], ["q"]
        else:
            options["q"] = (asked.item(),) if strict else asked
        if weights is not None:
            arrays, names = [*arrays, array_of(weights)], [*names, "weights"]
        result = host_one(name, arrays, q_shape + shape, named=tuple(names) or None, **options)
        return written(reshape(result, shape) if strict else result, out)

    return function


def _asked(q: Any) -> Any:
    """Quantiles as a Python number, a float64, or tuples of numbers, where they are known; else as an array."""
    if isinstance(q, (Tracer, np.ndarray)):
        wanted = array_of(q)
        if wanted.dtype not in (np.float64, np.int64) or wanted.ndim == 0:
            return wanted
        found = settled_value(wanted._trace, wanted._value)
        return wanted if found is None else _tuples(found.tolist())
    q = known(q)
    if isinstance(q, np.generic) and q.dtype != np.float64:
        return array_of(q)
    return np.float64(q) if isinstance(q, np.generic) else _tuples(q)


def _tuples(q: Any) -> Any:
    return tuple(map(_tuples, q)) if isinstance(q, (list, tuple)) else q


quantile = implements(np.quantile)(_quantile("quantile"))
nanquantile = implements(np.nanquantile)(_quantile("nanquantile"))
percentile = implements(np.percentile)(_quantile("percentile"))
nanpercentile = implements(np.nanpercentile)(_quantile("nanpercentile"))


# counting


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
    arrays, names, tiny = [x], [], [(1,)]
    if isinstance(wanted, int):
        options["bins"], count = wanted, wanted
    else:
        arrays, names, tiny, count = [x, wanted], ["bins"], [(1,), (2,)], wanted.size - 1
    if each is not None:
        arrays, names, tiny = [*arrays, each], [*names, "weights"], [*tiny, (1,)]
    counts, edges = host(
        "histogram", arrays, [(count,), (count + 1,)], tiny=tiny, named=tuple(names) or None, **options
    )
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
    one = isinstance(bins, (Tracer, np.ndarray)) or (isinstance(bins, (list, tuple)) and len(bins) not in (1, 2))
    counts, (first, second) = histogramdd((x, y), [bins, bins] if one else bins, range, density, weights)
    return counts, first, second


@implements(np.bincount)
def bincount(x: Any, /, weights: Any = None, minlength: Any = 0) -> Tracer:
    """Counts of 0, 1, ..., minlength - 1. A larger value raises at the call, since NumPy's result would be longer."""
    length = to_index(minlength, "minlength")
    if length <= 0 and array_of(x).size:
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


@implements(np.interp)
def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Tracer:
    at = array_of(x)
    sides = {k: v for k, v in (("left", left), ("right", right)) if v is not None}
    arrays = [at, array_of(xp), array_of(fp), *map(array_of, sides.values())]
    dtype = np.complex128 if arrays[2].dtype.kind == "c" else np.float64
    return host_one("interp", arrays, at.shape, dtypes=[dtype], named=tuple(sides) or None, period=known(period))
