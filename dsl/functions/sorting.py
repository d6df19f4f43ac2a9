"""Sorting and searching, and what is made of it (medians, quantiles): calls that `compiler/decompose` hands out."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...compiler.core.types import dtype_kind
from ...runtime.interpret.numpy_calls import HOST
from ..core.errors import DTypeError, ShapeError, UnsupportedError
from ..trace.aliasing import assign_to_tracer
from ..trace.concrete_values import constant_value_of_traced_node
from ..trace.dispatch import implements
from ..trace.operands import Axes, shape_without_axes, to_axes_of_operand, to_axis_of_operand, to_traced_array
from ..trace.tracer import Tracer
from .elementwise import apply
from .host_calls import assign_to_out, host_call_of_one_result, require, require_known_numpy_option
from .reduction_calls import implements_reduction
from .reductions import all
from .statistics import nanmean
from .views import flip, ravel, reshape


def _refuse_sort_by_fields(order: Any) -> None:
    if order is not None:
        raise UnsupportedError("order= is for arrays with fields, which cannot be traced; sort by np.argsort(field)")


def _array_and_sort_axis(a: Any, axis: int | None, least: int = 0) -> tuple[Tracer, int]:
    """The array and the axis. The array is flat where axis is None, or where it has fewer than `least` axes."""
    x = to_traced_array(a)
    if axis is None:
        return ravel(x), 0
    x = ravel(x) if x.ndim < least else x
    return x, to_axis_of_operand(axis, x.ndim)


def _sorting_kind_checked(function: str, **options: Any) -> dict[str, Any]:
    """How a function is to do its work, where NumPy knows that way. Raises DTypeError, ShapeError."""
    try:
        HOST[function](np.empty(0), **options)
    except TypeError as error:
        raise DTypeError(f"np.{function}: {error}") from None
    except ValueError as error:
        raise ShapeError(f"np.{function}: {error}") from None
    return options


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
    _refuse_sort_by_fields(order)
    way = _sorting_kind_checked("sort", kind=kind, stable=None if stable is None else bool(stable))
    x, at = _array_and_sort_axis(a, axis)
    result = host_call_of_one_result("sort", [x], x.shape, dtypes=[x.dtype], axis=at, **way)
    return flip(result, at) if descending else result


@implements(method="sort")
def _sort_in_place(
    a: Tracer, axis: int = -1, kind: Any = None, order: Any = None, *, stable: bool | None = None
) -> None:
    assign_to_tracer(a, sort(a, axis, kind, order, stable=stable))


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
    _refuse_sort_by_fields(order)
    way = _sorting_kind_checked("argsort", kind=kind, stable=None if stable is None else bool(stable))
    x, at = _array_and_sort_axis(a, axis, 1)
    if not descending:
        return host_call_of_one_result("argsort", [x], x.shape, dtypes=[np.intp], axis=at, **way)
    places = argsort(flip(x, at), at, kind, stable=stable)  # turned twice, so that equal values keep their order
    return apply("subtract", x.shape[at] - 1, flip(places, at))


def unique_values(x: Any, /) -> Any:
    """The distinct values of an array, sorted; np.unique_values gives them in no order."""
    return np.unique(x, equal_nan=False)


unique_values.__module__ = "numpy"  # in messages it goes by NumPy's name


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


def argsort_of_values(
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
    x, at = (np.ravel(a), 0) if axis is None else (np.atleast_1d(a), axis)
    return x.shape[at] - 1 - np.flip(np.argsort(np.flip(x, at), at, kind, order, stable=stable), at)


def _np_partition_positions(kth: Any, x: Tracer, axis: int) -> tuple[int, ...]:
    """The places that are to be right; in an empty array any are. Raises DTypeError, ShapeError."""
    wanted = (
        kth._known_scalar("cannot be a kth", "pass it as a Python int")
        if isinstance(kth, Tracer)
        else require_known_numpy_option(kth)
    )
    places = np.asarray(wanted)
    if places.dtype == bool:
        raise ShapeError(f"kth must be ints, not {kth!r}")
    if places.dtype.kind not in "iu":
        raise DTypeError(f"kth must be ints, not {kth!r}")
    if places.ndim > 1:
        raise ShapeError(f"kth must be an int or a list of ints, not {kth!r}")
    found = tuple(places.ravel().tolist())
    for k in found if x.size else ():
        if not -x.shape[axis] <= k < x.shape[axis]:
            raise ShapeError(f"kth={k} is out of bounds for an axis of length {x.shape[axis]}")
    return found


@implements(np.partition)
def partition(a: Any, kth: Any, axis: int | None = -1, kind: Any = "introselect", order: Any = None) -> Tracer:
    _refuse_sort_by_fields(order)
    _sorting_kind_checked("partition", kth=(0,), kind=kind)
    x, at = _array_and_sort_axis(a, axis)
    return host_call_of_one_result(
        "partition", [x], x.shape, dtypes=[x.dtype], kth=_np_partition_positions(kth, x, at), axis=at
    )


@implements(method="partition")
def _partition_in_place(a: Tracer, kth: Any, axis: int = -1, kind: Any = "introselect", order: Any = None) -> None:
    assign_to_tracer(a, partition(a, kth, axis, kind, order))


@implements(np.argpartition, method=True)
def argpartition(a: Any, kth: Any, axis: int | None = -1, kind: Any = "introselect", order: Any = None) -> Tracer:
    _refuse_sort_by_fields(order)
    _sorting_kind_checked("argpartition", kth=(0,), kind=kind)
    x, at = _array_and_sort_axis(a, axis, 1)
    return host_call_of_one_result(
        "argpartition", [x], x.shape, dtypes=[np.intp], kth=_np_partition_positions(kth, x, at), axis=at
    )


@implements(np.lexsort)
def lexsort(keys: Any, axis: int = -1) -> Tracer:
    """The order by the last key, among equals by the one before it, ..."""
    every = [to_traced_array(k) for k in keys]
    if not every:
        raise ShapeError("lexsort needs at least one key")
    if any(k.shape != every[0].shape for k in every):
        shapes = ", ".join(str(k.shape) for k in every)
        raise ShapeError(f"lexsort needs keys of one shape, got {shapes}; broadcast them first")
    at = to_axis_of_operand(axis, max(every[0].ndim, 1))  # NumPy takes axis 0 of keys that have none
    return host_call_of_one_result("lexsort", every, every[0].shape, dtypes=[np.intp], axis=at)


@implements(np.searchsorted, method=True)
def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Tracer:
    if side not in ("left", "right"):
        raise ShapeError(f"side must be 'left' or 'right', got {side!r}")
    extra = [] if sorter is None else [sorter]
    named = ("sorter",) if extra else None
    return host_call_of_one_result(
        "searchsorted", [a, v, *extra], to_traced_array(v).shape, dtypes=[np.intp], side=side, named=named
    )


@implements(np.digitize)
def digitize(x: Any, bins: Any, right: bool = False) -> Tracer:
    if to_traced_array(x).dtype.kind == "c":
        raise DTypeError("np.digitize: x may not be complex; write x.real")
    return host_call_of_one_result("digitize", [x, bins], to_traced_array(x).shape, dtypes=[np.intp], right=bool(right))


@implements(np.isin)
def isin(
    element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *, kind: Any = None
) -> Tracer:
    """Whether each element is among the others."""
    x, tests = to_traced_array(element), to_traced_array(test_elements)
    return host_call_of_one_result("isin", [x, tests], x.shape, dtypes=[np.bool_], invert=bool(invert), kind=kind)


# medians and quantiles


def _reduced_shape_and_axes(x: Tracer, axis: Axes, keepdims: bool) -> tuple[tuple[int, ...], Any]:
    """The shape without the axes (or with 1 for each), and the axes as option."""
    axes = to_axes_of_operand(axis, x.ndim)
    return shape_without_axes(x.shape, axes, keepdims), None if axis is None else axes


def _median_function(name: str) -> Any:
    def median_along_axes(
        a: Any, axis: Axes = None, out: Any = None, overwrite_input: bool = False, keepdims: bool = False
    ) -> Tracer:
        x = to_traced_array(a)
        shape, axes = _reduced_shape_and_axes(x, axis, keepdims is True)
        return host_call_of_one_result(name, [x], shape, out, axis=axes, keepdims=keepdims is True)

    return median_along_axes


median = implements_reduction(np.median)(_median_function("median"))
nanmedian = implements_reduction(np.nanmedian)(_median_function("nanmedian"))


def _quantile_function(name: str) -> Any:
    def quantile_along_axes(
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
        x = to_traced_array(a)
        if name.startswith("nan") and not x.size:
            return assign_to_out(_nan_quantile_of_nothing(name, x, q, axis, keepdims is True), out)
        shape, axes = _reduced_shape_and_axes(x, axis, keepdims is True)
        options: dict[str, Any] = {"axis": axes, "method": method, "keepdims": keepdims is True}
        arrays, names = [x], []
        asked = _requested_quantiles(q)
        strict = not isinstance(asked, Tracer) and isinstance(asked, np.generic)  # an array's kind, no Python number's
        q_shape = (1,) if strict else np.shape(asked)
        if isinstance(asked, Tracer):
            arrays, names = [x, asked], ["q"]
        else:
            options["q"] = (asked.item(),) if strict else asked
        if weights is not None:
            arrays, names = [*arrays, to_traced_array(weights)], [*names, "weights"]
        try:
            result = host_call_of_one_result(name, arrays, q_shape + shape, named=tuple(names) or None, **options)
        except DTypeError as error:
            if not isinstance(asked, Tracer) or x.dtype.kind == "c":
                raise
            raise UnsupportedError(f"{error}; the values of q decide which error NumPy raises") from None
        one = not asked.ndim if isinstance(asked, Tracer) else strict or type(asked) is bool
        if one and out is None and (name.startswith("nan") or axes is None or len(axes) == x.ndim):
            _check_quantile_dtype(name, x.dtype, result.dtype)
        return assign_to_out(reshape(result, shape) if strict else result, out)

    return quantile_along_axes


def _nan_quantile_of_nothing(name: str, x: Tracer, q: Any, axis: Axes, keepdims: bool) -> Tracer:
    """Of an array without elements, where NumPy looks at no shape of `q`."""
    text, last = ("Percentiles", 100) if name == "nanpercentile" else ("Quantiles", 1)
    within = apply("logical_and", apply("greater_equal", q, 0), apply("less_equal", q, last))
    result = nanmean(x, axis, keepdims=keepdims)
    return require(result, all(within), ValueError, f"{text} must be in the range [0, {last}]")


def _check_quantile_dtype(name: str, given: np.dtype[Any], result: np.dtype[Any]) -> None:
    """Raises UnsupportedError where NaN decide whether NumPy's result is of the array's dtype."""
    if result != given and dtype_kind(given) == "f":
        text = f"np.{name} of {given} by a number with a dtype gives {result}, but {given} where it finds NaN"
        raise UnsupportedError(f"{text}; write float(q), or [q]")


def _requested_quantiles(q: Any) -> Any:
    """Quantiles as a Python number, a float64, or tuples of numbers, where they are known; else as an array."""
    if isinstance(q, (Tracer, np.ndarray)):
        wanted = to_traced_array(q)
        if wanted.dtype not in (np.float64, np.int64) or wanted.ndim == 0:
            return wanted
        found = constant_value_of_traced_node(wanted._trace, wanted._value)
        return wanted if found is None else _nested_lists_as_tuples(found.tolist())
    q = require_known_numpy_option(q)
    if isinstance(q, np.generic) and q.dtype != np.float64:
        return to_traced_array(q)
    return np.float64(q) if isinstance(q, np.generic) else _nested_lists_as_tuples(q)


def _nested_lists_as_tuples(q: Any) -> Any:
    return tuple(map(_nested_lists_as_tuples, q)) if isinstance(q, (list, tuple)) else q


quantile = implements_reduction(np.quantile, options=False)(_quantile_function("quantile"))
nanquantile = implements_reduction(np.nanquantile, options=False)(_quantile_function("nanquantile"))
percentile = implements_reduction(np.percentile, options=False)(_quantile_function("percentile"))
nanpercentile = implements_reduction(np.nanpercentile, options=False)(_quantile_function("nanpercentile"))
