"""The table of host calls. A name in, the function of NumPy arrays and options that does it out.

A function takes arrays by position and options by name, and gives an array or a tuple of arrays.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from ..program.custom_calls import invoke_custom_call_callback
from .convolution import (
    numpy_convolution,
    numpy_convolution_image,
    numpy_convolution_weights,
    numpy_shifted_dots,
    numpy_shifted_products,
)
from .dnn import numpy_attention, numpy_attention_gradient, numpy_dnn_call
from .topk import numpy_topk

View = np.ndarray[Any, Any]
Host = Callable[..., Any]

# NumPy's own functions, by their name after `np.`; the last arrays go to the keywords that the option `named` lists.
_NUMPY = """
    sort argsort searchsorted digitize
    cumsum cumprod cumulative_sum cumulative_prod
    i0 nanargmin nanargmax unravel_index
    median nanmedian percentile nanpercentile quantile nanquantile
    interp convolve correlate isin
    linalg.solve linalg.inv linalg.pinv linalg.det linalg.slogdet linalg.cholesky linalg.qr linalg.svd linalg.svdvals
    linalg.eig linalg.eigvals linalg.eigh linalg.eigvalsh linalg.cond linalg.matrix_rank
    linalg.tensorsolve linalg.tensorinv linalg.lstsq polyfit
    fft.fft fft.ifft fft.rfft fft.irfft fft.hfft fft.ihfft fft.fft2 fft.ifft2 fft.rfft2 fft.irfft2
    fft.fftn fft.ifftn fft.rfftn fft.irfftn
"""


def _numpy_host_call_of_name(name: str) -> Host:
    function: Any = reduce(getattr, name.split("."), np)

    def call_numpy_function(*arrays: View, named: tuple[str, ...] = (), **options: Any) -> Any:
        first = len(arrays) - len(named)
        values = (a if a.ndim else a.item() for a in arrays[first:])  # np.interp takes no complex array for a number
        return function(*arrays[:first], **dict(zip(named, values, strict=True)), **options)

    call_numpy_function.__name__ = name
    return call_numpy_function


def _numpy_host_reduction(a: View, op: str, axes: tuple[int, ...]) -> View:
    """A reduction that has no kernel: of complex numbers by `prod min max argmin argmax`."""
    kept = [i for i in range(a.ndim) if i not in axes]
    length = math.prod(a.shape[i] for i in axes)
    flat = a.transpose(*kept, *axes).reshape(*(a.shape[i] for i in kept), length)
    return np.asarray(getattr(np, op)(flat, axis=-1))


def _numpy_ufunc_reduce(a: View, *where: View, ufunc: str, **options: Any) -> Any:
    masked = {"where": where[0]} if where else {}
    return getattr(np, ufunc).reduce(a, **masked, **options)


def _numpy_ufunc_at(a: View, *operands: View, ufunc: str, key: tuple[Any, ...]) -> View:
    """`a` after `ufunc.at(a, key, ...)`."""
    result = a.copy()
    rest = list(operands)
    getattr(np, ufunc).at(result, index_key_of_numpy_host_call(key, rest), *rest)
    return result


def _numpy_combine_at(a: View, indices: View, values: View, ufunc: str) -> View:
    """`a` after `ufunc.at(a, indices, values)`, all of one axis; indices count from the start."""
    result = a.copy()
    getattr(np, ufunc).at(result, indices, values)
    return result


def _numpy_places_in_order(indices: View, length: int, part: int, starts: bool) -> View:
    """How many aligned parts of the sorted indices have one place; those, `length` for what is none; where each comes
    from; with `starts` where in the order each place begins, and the end."""
    kept = np.where((indices >= 0) & (indices < length), indices, length)
    order = np.argsort(kept, kind="stable")
    whole = kept[order][: len(kept) // part * part].reshape(-1, part)
    parts = np.sum((whole[:, 0] == whole[:, -1]) & (whole[:, 0] < length))
    begins = np.searchsorted(kept[order], np.arange(length + 1 if starts else 0))
    return np.concatenate([[parts], kept[order], order, begins]).astype(np.uint32)


def _numpy_combine_in_order(
    a: View, order: View, table: View, which: View, *factor: View, ufunc: str, part: int, scaled: str
) -> View:
    """`a` after `ufunc.at(a, places, table[which])`; order: what `places_in_order` says of the places; scaled: what the
    table is to be combined with the factor by, if there is one."""
    table = getattr(np, scaled)(table, *factor) if scaled else table
    result, places = a.copy(), order[1 : 1 + len(which)]
    there = places < len(a)
    getattr(np, ufunc).at(result, places[there], table[which[there]])
    return result


def _numpy_host_last_occurrences(indices: View, length: int) -> View:
    """For each number below `length` where it comes last among the indices, -1 where it does not."""
    found = np.full(length, -1)
    found[indices] = np.arange(len(indices))
    return found


def index_key_of_numpy_host_call(key: tuple[Any, ...], arrays: list[View]) -> tuple[Any, ...]:
    """A key of `x[...]` whose arrays stand where the key says ARRAY; they are taken off the front of the list."""
    return tuple(arrays.pop(0) if entry == ARRAY else slice(*entry) if type(entry) is tuple else entry for entry in key)


ARRAY = "array"


def numpy_function_of_call(path: str) -> Callable[..., Any]:
    """`np.linalg.norm` of "linalg.norm", `np.add.reduce` of "add.reduce", a method of its first argument of
    "ndarray.sum"."""
    home, _, name = path.rpartition(".")
    if home == "ndarray":
        return lambda x, *args, **options: getattr(x, name)(*args, **options)
    return reduce(getattr, path.split("."), np)  # type: ignore[return-value]


def _numpy_call(*arrays: View, path: str, places: tuple[Any, ...], named: tuple[tuple[str, Any], ...]) -> Any:
    """A call with the arrays where it says ARRAY, copies since it may write to them."""
    rest = [a.copy() for a in arrays]

    def argument(x: Any) -> Any:
        return rest.pop(0) if type(x) is str and x == ARRAY else tuple(map(argument, x)) if type(x) is tuple else x

    every = [argument(a) for a in places]
    return numpy_function_of_call(path)(*every, **{k: argument(v) for k, v in named})


def _numpy_setitem_copy(a: View, *arrays: View, key: tuple[Any, ...]) -> View:
    """`a` after `a[key] = value`; the value is the last of the arrays."""
    result = a.copy()
    *rest, value = arrays
    result[index_key_of_numpy_host_call(key, rest)] = value
    return result


def _numpy_ravel_multi_index(*indices: View, dims: tuple[int, ...], mode: Any, order: Any) -> Any:
    return np.ravel_multi_index(indices, dims, mode=mode, order=order)


def _numpy_bincount(x: View, *weights: View, minlength: int) -> View:
    counts = np.bincount(x, weights[0] if weights else None, minlength)
    if len(counts) > minlength:
        raise ValueError(f"bincount needs minlength={len(counts)} for these values, got minlength={minlength}")
    return counts


def _numpy_kth_values(a: View, kth: tuple[int, ...]) -> View:
    """The values in these places of the order of each row."""
    return np.partition(a, kth, -1)[..., list(kth)]


def _numpy_lu(a: View, pivots: str) -> tuple[View, View]:
    """LU factors in one array, rows exchanged; and which row, from 1, each one was exchanged with. (Of the matrices, or
    of their transposes.)"""
    factors, n = a.copy(), a.shape[-1]
    flat = factors.reshape(-1, n, n)
    rows, every = np.empty((len(flat), n), pivots), np.arange(len(flat))
    for j in range(n):
        best = j + np.argmax(np.abs(flat[:, j:, j]), 1)
        flat[every, j], flat[every, best] = flat[every, best], flat[every, j]
        rows[:, j] = best + 1
        below = flat[:, j + 1 :]
        with np.errstate(all="ignore"):
            below[:, :, j] = np.where(flat[:, j, j, None] == 0, 0, below[:, :, j] / flat[:, j, j, None])
        below[:, :, j + 1 :] -= below[:, :, j, None] * flat[:, None, j, j + 1 :]
    return factors, rows.reshape(a.shape[:-1])


def _numpy_eigh_rows(a: View, UPLO: str) -> tuple[View, View]:
    """Eigenvalues, and the eigenvectors as rows, conjugated."""
    eigh: Any = np.linalg.eigh
    w, v = eigh(a, UPLO)
    return w, v.swapaxes(-1, -2).conj()


def _numpy_svd_whole(a: View) -> tuple[View, View, View]:
    """(The left singular vectors as rows, conjugated; singular values; the right singular vectors), all of them."""
    u, s, vh = np.linalg.svd(a)
    return u.swapaxes(-1, -2).conj(), s, vh


def _numpy_histogram(a: View, *arrays: View, named: tuple[str, ...] = (), **options: Any) -> Any:
    """Counts and edges; counts alone where the edges, which then follow from the options, are among the arrays."""
    options |= dict(zip(named, arrays, strict=True))
    if options.pop("edges", None) is not None:
        return np.histogram(a, **options)[0]
    return np.histogram(a, **options)


def _numpy_histogramdd(sample: View, *arrays: View, edges: int, **options: Any) -> tuple[View, ...]:
    """Counts and edges; the first `edges` arrays are bins, what follows them the weights."""
    if edges:
        options["bins"] = list(arrays[:edges])
    if len(arrays) > edges:
        options["weights"] = arrays[edges]
    counts, found = np.histogramdd(sample, **options)
    return (counts, *found)


def _numpy_put_along_axis(a: View, indices: View, values: View, axis: int | None = None) -> View:
    result = a.copy()
    np.put_along_axis(result, indices, values, axis)
    return result


def _numpy_require(a: View, condition: View, error: str, text: str) -> View:
    """`a`. Raises the error of Python's where the condition does not hold."""
    if not condition:
        raise getattr(builtins, error)(text)
    return a


def _numpy_put(a: View, indices: View, values: View, mode: Any = None) -> View:
    result = a.copy()
    np.put(result, indices, values, mode=mode)
    return result


def _numpy_host_place(a: View, mask: View, values: View) -> View:
    result = a.copy()
    np.place(result, mask, values)
    return result


def _numpy_cumulative_host_call(name: str) -> Host:
    """np.cumsum or np.cumprod; written into memory that is there, which saves an array and its page faults."""
    function: Any = getattr(np, name)

    def call_numpy_cumulative(a: View, axis: int = 0, dtype: Any = None, into: dict[int, View] | None = None) -> View:
        out = into[0] if into else None
        return np.asarray(function(a, axis, dtype if out is None else out.dtype, out))

    return call_numpy_cumulative


def _numpy_sort_into(a: View, into: dict[int, View] | None = None, **options: Any) -> View:
    if not into:
        return np.asarray(np.sort(a, **options))
    into[0][...] = a
    into[0].sort(**options)
    return into[0]


HOST: dict[str, Host] = {name: _numpy_host_call_of_name(name) for name in _NUMPY.split()} | {
    "cumsum": _numpy_cumulative_host_call("cumsum"),
    "cumprod": _numpy_cumulative_host_call("cumprod"),
    "sort": _numpy_sort_into,
    "call": _numpy_call,
    "reduce": _numpy_host_reduction,
    "ufunc_reduce": _numpy_ufunc_reduce,
    "accumulate": lambda a, ufunc, **options: getattr(np, ufunc).accumulate(a, **options),
    "reduceat": lambda a, indices, ufunc, **options: getattr(np, ufunc).reduceat(a, indices, **options),
    "at": _numpy_ufunc_at,
    "combine_at": _numpy_combine_at,
    "combine_in_order": _numpy_combine_in_order,
    "places_in_order": _numpy_places_in_order,
    "last_places": _numpy_host_last_occurrences,
    "setitem": _numpy_setitem_copy,
    "choose": lambda a, *choices, mode=None: np.choose(a, list(choices), mode=mode),
    "kth": _numpy_kth_values,
    "linalg.lu": _numpy_lu,
    "linalg.eigh_rows": _numpy_eigh_rows,
    "linalg.svd_whole": _numpy_svd_whole,
    "linalg.qr_factors": _numpy_host_call_of_name("linalg.qr"),
    "linalg.qr_upper": lambda a: np.asarray(np.linalg.qr(a, "r")),
    "linalg.cholesky_factor": _numpy_host_call_of_name("linalg.cholesky"),
    # a list of none would be one of floats
    "partition": lambda a, kth, **options: np.partition(a, np.array(kth, np.intp), **options),
    "argpartition": lambda a, kth, **options: np.argpartition(a, np.array(kth, np.intp), **options),
    "lexsort": lambda *keys, axis: np.lexsort(keys, axis=axis),
    "ravel_multi_index": _numpy_ravel_multi_index,
    "bincount": _numpy_bincount,
    "histogram": _numpy_histogram,
    "histogramdd": _numpy_histogramdd,
    "put_along_axis": _numpy_put_along_axis,
    "put": _numpy_put,
    "place": _numpy_host_place,
    "require": _numpy_require,
    "callback": invoke_custom_call_callback,
    "topk": numpy_topk,
    "view": lambda a, dtype: np.ascontiguousarray(a).reshape(a.shape).view(dtype),
    "convolution": numpy_convolution,
    "convolution_image": numpy_convolution_image,
    "convolution_weights": numpy_convolution_weights,
    "shifted_products": numpy_shifted_products,
    "shifted_dots": numpy_shifted_dots,
    "attention": numpy_attention,
    "attention_gradient": numpy_attention_gradient,
    "dnn": numpy_dnn_call,
}
WRITES_INTO = frozenset(
    {"callback", "cumsum", "cumprod", "sort"}
)  # those with an option `into`: number of a result -> its memory
