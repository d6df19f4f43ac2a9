"""Graph -> Graph for a GPU. Sorts of complex numbers, lexsort, medians and quantiles become sorts of real numbers (or
k-th values of them), lookups and arithmetic. Elsewhere NumPy does them on the host."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.types import INT64, ArrayType
from ..graph.builder import GraphBuilder
from ..graph.graph import Node, Value, Values

NO_ROWS = "no elements, a dtype without kernels, or rows of 2**31 elements"
FEW = 5  # places of an order that are looked for one by one; for more, all is sorted
MOST = 256  # quantiles at a time
# alpha and beta of Hyndman and Fan, "Sample quantiles in statistical packages", 1996
CONTINUOUS = {
    "interpolated_inverted_cdf": (0, 1),
    "hazen": (0.5, 0.5),
    "weibull": (0, 0),
    "median_unbiased": (1 / 3.0, 1 / 3.0),
    "normal_unbiased": (3 / 8.0, 3 / 8.0),
}
ROUNDED: dict[str, Any] = {"lower": np.floor, "higher": np.ceil, "nearest": np.around}
STEPS = {"inverted_cdf": 1, "closest_observation": 1.5}  # what their place is before, of n values


def decompose_complex_sort(builder: GraphBuilder, node: Node, args: Values) -> Value | str:
    """sort(z) -> z at argsort(z)"""
    (a,) = args
    axis = node.options.get("axis", -1)
    if a.dtype.kind != "c" or 0 in a.shape or not a.shape:
        return ""
    x, order = _move_quantile_axis_last(builder, a, axis)
    return builder.permute(
        _decompose_take_along_last_axis(builder, x, decompose_stable_argsort(builder, x)), np.argsort(order).tolist()
    )


def decompose_complex_argsort(builder: GraphBuilder, node: Node, args: Values) -> Value | str:
    """argsort(z) -> stable argsorts by imaginary part, by real part, and by which are NaN"""
    (a,) = args
    axis = node.options.get("axis", -1)
    if a.dtype.kind != "c" or 0 in a.shape or not a.shape:
        return ""
    x, order = _move_quantile_axis_last(builder, a, axis)
    return builder.permute(decompose_stable_argsort(builder, x), np.argsort(order).tolist())


def decompose_lexsort(builder: GraphBuilder, node: Node, args: Values) -> Value | str:
    """lexsort(keys) -> stable argsorts, the least key first"""
    axis = node.options["axis"]
    if 0 in args[0].shape or not args[0].shape:
        return "keys without elements or axes"
    order: list[int] = []
    places: Value | None = None
    for key in args:
        x, order = _move_quantile_axis_last(builder, key, axis)
        places = decompose_stable_argsort(builder, x, places)
    assert places is not None
    return builder.permute(places, np.argsort(order).tolist())


def decompose_stable_argsort(builder: GraphBuilder, x: Value, places: Value | None = None) -> Value:
    """Stable argsort along the last axis, of `x` in an order that it has already."""
    if x.dtype.kind != "c":
        given = x if places is None else _decompose_take_along_last_axis(builder, x, places)
        (found,) = builder.host("argsort", [given], [ArrayType(x.shape, INT64)], axis=-1, kind="stable")
        return found if places is None else _decompose_take_along_last_axis(builder, places, found)
    re, im = builder.map("real", x), builder.map("imag", x)
    nans = builder.map("multiply", builder.cast(builder.map("isnan", re), "u1"), np.uint8(2))
    nans = builder.map("add", nans, builder.cast(builder.map("isnan", im), "u1"))
    for part in (im, re, nans):  # NumPy's order: R + Rj, R + nanj, nan + Rj, nan + nanj
        places = decompose_stable_argsort(builder, part, places)
    assert places is not None
    return places


def decompose_median(builder: GraphBuilder, node: Node, args: Values) -> Value | str:
    """median(a) -> the mean of the one or two middle values of the order"""
    x = _merge_median_axes_into_rows(builder, node, args[0])
    if x is None:
        return NO_ROWS
    n = x.shape[-1]
    ordered, at = _partition_rows_for_quantile(builder, x, [(n - 1) // 2, n // 2, n - 1])
    first, second, last = (
        _take_quantiles_along_new_first_axis(builder, ordered, [at[i]]) for i in ((n - 1) // 2, n // 2, n - 1)
    )
    result = _median_of_middle_values(builder, first, first if n % 2 else second, n % 2)
    if x.dtype.kind in "fc":
        result = builder.map("where", builder.map("isnan", last), builder.cast(last, result.dtype), result)
    return builder.reshape(builder.cast(result, node.dtype), node.shape)


def decompose_nanmedian(builder: GraphBuilder, node: Node, args: Values) -> Value | str:
    """nanmedian(a) -> the mean of the middle values that are not NaN"""
    if args[0].dtype.kind != "f":
        return decompose_median(builder, node, args) if args[0].dtype.kind in "iu" else NO_ROWS
    x = _merge_median_axes_into_rows(builder, node, args[0])
    if x is None:
        return NO_ROWS
    ordered, count = _sort_rows_for_quantile(builder, x), _count_not_nan_for_quantile(builder, x)
    below = builder.map("maximum", builder.map("subtract", count, np.int64(1)), np.int64(0))
    middle = builder.map("minimum", count, np.int64(x.shape[-1] - 1))
    middle = builder.map("minimum", builder.map("right_shift", count, np.int64(1)), middle)
    first = _decompose_take_one_of_each_row(
        builder, ordered, builder.map("right_shift", below, np.int64(1)), x.shape[:-1]
    )
    second = _decompose_take_one_of_each_row(builder, ordered, middle, x.shape[:-1])
    odd = builder.map("equal", builder.map("bitwise_and", count, np.int64(1)), np.int64(1))
    result = builder.map("where", odd, first, _median_of_middle_values(builder, first, second, 0))
    return builder.reshape(builder.cast(result, node.dtype), node.shape)


def decompose_quantile(builder: GraphBuilder, node: Node, args: Values, scale: int = 1) -> Value | str:
    """quantile(a, q) -> values at known places of the order, interpolated as NumPy does"""
    options = node.options
    x = _merge_median_axes_into_rows(builder, node, args[0])
    if x is None or len(args) != 1 or "q" not in options:
        return "weights, or quantiles that come with the call"
    q = _quantiles_of_call(options["q"], scale)
    found = _virtual_quantile_index(x.shape[-1], q.reshape(-1), options["method"]) if 0 < q.size <= MOST else None
    if found is None or (x.dtype.kind == "b" and found.dtype.kind == "f"):
        return f"the method {options['method']}, or more than {MOST} quantiles"
    n = x.shape[-1]
    if found.dtype.kind in "iu":
        ordered, at = _partition_rows_for_quantile(builder, x, [*found.tolist(), n - 1])
        result = _take_quantiles_along_new_first_axis(builder, ordered, [at[i] for i in found.tolist()])
    else:
        before, after, t = _neighbouring_quantile_places(found, n, options["method"])
        ordered, at = _partition_rows_for_quantile(builder, x, [*before, *after, n - 1])
        low, high = (
            _take_quantiles_along_new_first_axis(builder, ordered, [at[i] for i in places])
            for places in (before, after)
        )
        known = [
            _quantile_constants_along_first_axis(builder, part, x.ndim)
            for part in (*_quantile_interpolation_weights(x, t, options["q"]), t >= 0.5)
        ]
        result = _interpolate_quantile_linearly(builder, low, high, known)
    if x.dtype.kind == "f":
        last = _take_quantiles_along_new_first_axis(builder, ordered, [at[n - 1]])
        result = builder.map("where", builder.map("isnan", last), builder.cast(last, result.dtype), result)
    return builder.reshape(builder.cast(result, node.dtype), node.shape)


def decompose_nanquantile(builder: GraphBuilder, node: Node, args: Values, scale: int = 1) -> Value | str:
    """nanquantile(a, q) -> as `quantile`, at places that follow from the count without NaN"""
    if args[0].dtype.kind != "f":
        return decompose_quantile(builder, node, args, scale)
    options = node.options
    x = _merge_median_axes_into_rows(builder, node, args[0])
    method = options["method"]
    if x is None or len(args) != 1 or "q" not in options or method not in ("linear", *ROUNDED, *STEPS):
        return f"weights, quantiles that come with the call, or the method {method}"
    q = _quantiles_of_call(options["q"], scale)
    if not 0 < q.size <= MOST or q.dtype.kind != "f":
        return f"integers as quantiles, or more than {MOST}"
    ordered, count = _sort_rows_for_quantile(builder, x), _count_not_nan_for_quantile(builder, x)
    end = builder.map("maximum", builder.map("subtract", count, np.int64(1)), np.int64(0))
    shape = (q.size, *x.shape[:-1])
    of, known = (
        count if method in STEPS else end,
        _quantile_constants_along_first_axis(builder, q.reshape(-1), len(shape)),
    )
    virtual = builder.map("multiply", builder.broadcast(of, shape), known)
    if method != "linear":
        found = _decompose_take_one_of_each_row(
            builder, ordered, _computed_virtual_quantile_index(builder, virtual, end, method), shape
        )
        return builder.reshape(builder.cast(found, node.dtype), node.shape)
    over = builder.map("greater_equal", virtual, builder.cast(end, virtual.dtype))
    floor = builder.cast(builder.map("floor", virtual), INT64)
    before = builder.map("where", over, end, floor)
    after = builder.map("where", over, end, builder.map("add", floor, np.int64(1)))
    low, high = (_decompose_take_one_of_each_row(builder, ordered, places, shape) for places in (before, after))
    t = builder.map("subtract", virtual, builder.map("where", over, np.float64(-1), builder.cast(floor, virtual.dtype)))
    kind = x.dtype if type(options["q"]) in (int, float) else t.dtype
    weights = [builder.cast(part, kind) for part in (t, builder.map("subtract", np.float64(1), t))]
    result = _interpolate_quantile_linearly(
        builder, low, high, [*weights, builder.map("greater_equal", t, np.float64(0.5))]
    )
    return builder.reshape(builder.cast(result, node.dtype), node.shape)


def _computed_virtual_quantile_index(builder: GraphBuilder, virtual: Value, end: Value, method: str) -> Value:
    """As `_virtual_quantile_index`, of numbers that are computed."""
    kind = virtual.dtype.type
    if method in STEPS:
        index = builder.map("subtract", virtual, kind(STEPS[method]))
        found = builder.map("ceil", index)
        if method == "closest_observation":
            half = builder.map("multiply", found, kind(0.5))
            even = builder.map("equal", builder.map("floor", half), half)
            moves = builder.map("logical_and", builder.map("equal", index, found), even)
            found = builder.map("where", moves, builder.map("add", found, kind(1)), found)
    else:
        found = builder.map({"lower": "floor", "higher": "ceil", "nearest": "rint"}[method], virtual)
    place = builder.map("maximum", builder.cast(found, INT64), np.int64(0))
    return builder.map("minimum", place, end)


# what they are made of


def _move_quantile_axis_last(builder: GraphBuilder, a: Value, axis: int) -> tuple[Value, list[int]]:
    """The array with this axis last, and the order of axes that makes it so."""
    rank = a.ndim
    order = [*(i for i in range(rank) if i != axis % rank), axis % rank]
    return builder.permute(a, order), order


def _decompose_take_along_last_axis(builder: GraphBuilder, x: Value, places: Value) -> Value:
    """take_along_axis along the last axis."""
    last = x.ndim - 1
    return builder.gather(x, [places], [last], list(range(last)), places.shape, checked=False)


def _decompose_take_one_of_each_row(builder: GraphBuilder, x: Value, places: Value, shape: tuple[int, ...]) -> Value:
    """x[..., places], one of each row; the places' axes are those of the rows, or these after one more."""
    last = x.ndim - 1
    return builder.gather(x, [places], [last], [i + len(shape) - last for i in range(last)], shape, checked=False)


def _merge_median_axes_into_rows(builder: GraphBuilder, node: Node, a: Value) -> Value | None:
    """The array with all axes of the call as one, the last; None for what NumPy has to do."""
    axes = node.options.get("axis")
    rank = a.ndim
    axes = tuple(range(rank)) if axes is None else tuple(i % rank for i in axes)
    if 0 in a.shape or a.dtype.kind not in "biufc" or a.dtype.name == "float128":
        return None
    kept = [i for i in range(rank) if i not in axes]
    n = math.prod(a.shape[i] for i in axes)
    return builder.reshape(builder.permute(a, [*kept, *axes]), (*(a.shape[i] for i in kept), n)) if n < 2**31 else None


def _sort_rows_for_quantile(builder: GraphBuilder, x: Value) -> Value:
    if x.dtype.kind == "c":
        return _decompose_take_along_last_axis(builder, x, decompose_stable_argsort(builder, x))
    return builder.host("sort", [x], [x.type], axis=-1)[0]


def _partition_rows_for_quantile(
    builder: GraphBuilder, x: Value, places: Sequence[int]
) -> tuple[Value, dict[int, int]]:
    """An array whose rows have the values in these places of their order, and where it has them."""
    distinct = sorted(set(places))
    if len(distinct) > FEW or x.dtype.kind == "c":
        return _sort_rows_for_quantile(builder, x), {i: i for i in distinct}
    type = ArrayType((*x.shape[:-1], len(distinct)), x.dtype)
    return builder.host("kth", [x], [type], kth=tuple(distinct))[0], {i: at for at, i in enumerate(distinct)}


def _take_quantiles_along_new_first_axis(builder: GraphBuilder, x: Value, places: Sequence[int]) -> Value:
    """x[..., places] with the axis of the places first."""
    rows, rank = x.shape[:-1], x.ndim
    if len(places) == 1:
        one = builder.slice(x, (*[0] * (rank - 1), places[0]), [1] * rank, (*rows, 1))
        return builder.reshape(one, (1, *rows))
    return _decompose_take_one_of_each_row(
        builder, x, _quantile_constants_along_first_axis(builder, np.array(places), rank), (len(places), *rows)
    )


def _quantile_constants_along_first_axis(builder: GraphBuilder, values: np.ndarray[Any, Any], rank: int) -> Value:
    """Known numbers along the first of so many axes: chosen by its index inside the kernel that needs them."""
    result = builder.const(values[0])
    index = builder.index((len(values), *[1] * (rank - 1)), 0)
    for i in range(1, len(values)):
        result = builder.map("where", builder.map("equal", index, np.int64(i)), builder.const(values[i]), result)
    return result


def _count_not_nan_for_quantile(builder: GraphBuilder, x: Value) -> Value:
    """How many of each row are not NaN."""
    real = builder.map("logical_not", builder.map("isnan", x))
    return builder.reduce("sum", builder.cast(real, INT64), (x.ndim - 1,))


def _median_of_middle_values(builder: GraphBuilder, a: Value, b: Value, alone: int) -> Value:
    """np.mean of two values (alone: of the first)."""
    wide = {"b": "f8", "i": "f8", "u": "f8"}.get(a.dtype.kind, "f4" if a.dtype == np.float16 else a.dtype)
    first, second = builder.cast(a, wide), builder.cast(b, wide)
    total = first if alone else builder.map("add", first, second)
    half = builder.map("divide", total, first.dtype.type(1 if alone else 2))
    return builder.cast(half, a.dtype) if a.dtype == np.float16 else half


def _quantiles_of_call(q: Any, scale: int) -> np.ndarray[Any, Any]:
    return np.asarray(q) if scale == 1 else np.asarray(np.true_divide(q, scale))


def _virtual_quantile_index(n: int, q: np.ndarray[Any, Any], method: str) -> np.ndarray[Any, Any] | None:
    """Where quantiles lie among n values in order: between two of them if it is no integer."""
    if method == "linear":
        return np.asarray((n - 1) * q)
    if method in ROUNDED:
        return np.asarray(ROUNDED[method]((n - 1) * q).astype(np.intp))
    if method in STEPS:
        return _rounded_quantile_index(n * q - STEPS[method], method)
    if method == "averaged_inverted_cdf":
        return n * q - 1 if q.dtype.kind == "f" else None
    if method == "midpoint":
        return np.asarray(0.5 * (np.floor((n - 1) * q) + np.ceil((n - 1) * q)))
    if method not in CONTINUOUS:
        return None
    alpha, beta = CONTINUOUS[method]
    virtual = np.asarray(n * q + (alpha + q * (1 - alpha - beta)) - 1)
    return virtual if virtual.dtype.kind == "f" else None


def _rounded_quantile_index(index: np.ndarray[Any, Any], method: str) -> np.ndarray[Any, Any]:
    """The place before if it is no further than that, else the next one."""
    before = np.floor(index)
    stays = index == before
    if method == "closest_observation":
        stays &= before % 2 == 1
    return np.asarray(np.maximum(np.where(stays, before, before + 1), 0).astype(np.intp))


def _neighbouring_quantile_places(
    virtual: np.ndarray[Any, Any], n: int, method: str
) -> tuple[list[int], list[int], Any]:
    """The places before and after, and how far it is from the first to the second."""
    before = np.floor(virtual)
    after = before + 1
    over, under = virtual >= n - 1, virtual < 0
    before[over] = after[over] = -1
    before[under] = after[under] = 0
    t = virtual - before
    if method == "midpoint":
        t = np.where(virtual % 1 == 0, 0.0, 0.5)
    elif method == "averaged_inverted_cdf":
        t = np.where(t == 0, 0.5, 1.0)
    places = [[int(i) % n for i in which] for which in (before, after)]
    return places[0], places[1], t.astype(virtual.dtype)


def _quantile_interpolation_weights(x: Value, t: np.ndarray[Any, Any], q: Any) -> tuple[Any, Any]:
    """t and 1 - t; a quantile that is a Python number takes the kind of floats that the values have."""
    if type(q) not in (int, float):
        return t, 1 - t
    kind = x.dtype if x.dtype.kind == "f" else np.dtype("f8")
    return t.astype(kind), (1 - t).astype(kind)


def _interpolate_quantile_linearly(builder: GraphBuilder, a: Value, b: Value, known: Values) -> Value:
    """NumPy's a + (b - a) * t, from b where t is at least a half. known: t, 1 - t, and whether it is."""
    t, rest, far = known
    step = builder.map("subtract", b, a)
    near = builder.map("add", a, builder.map("multiply", step, t))
    return builder.map("where", far, builder.map("subtract", b, builder.map("multiply", step, rest)), near)
