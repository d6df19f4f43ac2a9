"""The first k of an order, without sorting the rest: an array in, places out."""

from __future__ import annotations

from typing import Any

import numpy as np

View = np.ndarray[Any, Any]

SELECT = 1 / 4  # the part of a row up to which selecting it is faster than sorting all


def numpy_topk(a: View, k: int, axis: int, largest: bool) -> View:
    """Where the k greatest (or least) along an axis are, in order: of equals the first first, NaN the greatest."""
    x = np.moveaxis(a, axis, -1)
    if k > x.shape[-1] * SELECT or x.dtype.kind not in "biuf":
        places = _numpy_topk_order(x, largest)[..., :k]
    else:
        places = _numpy_host_topk_places(x, k, largest) if k and x.size else np.empty((*x.shape[:-1], k), np.intp)
        order = _numpy_topk_order(np.take_along_axis(x, places, -1), largest)
        places = np.take_along_axis(places, order, -1)
    return np.moveaxis(places, -1, axis)


def _numpy_topk_order(x: View, largest: bool) -> View:
    if not largest:
        return np.argsort(x, -1, kind="stable")
    turned: View = x.shape[-1] - 1 - np.argsort(x[..., ::-1], -1, kind="stable")[..., ::-1]
    return turned  # twice, so that equal values keep their order


def _numpy_host_topk_places(x: View, k: int, largest: bool) -> View:
    """The places of the first k, from the lowest on: what lies beyond the k-th value, then the first of its equals."""
    last = x.shape[-1] - k if largest else k - 1
    limit = np.partition(x, last, -1)[..., last, None]
    equal = x == limit
    before = x > limit if largest else x < limit
    if x.dtype.kind == "f":
        nan, ends = np.isnan(x), np.isnan(limit)
        equal |= nan & ends
        before |= (nan & ~ends) if largest else (~nan & ends)
    chosen = before | equal
    if np.count_nonzero(chosen) > k * (x.size // x.shape[-1]):
        left = k - np.count_nonzero(before, -1)[..., None]
        chosen = before | (equal & (np.cumsum(equal, -1) <= left))
    return np.nonzero(chosen)[-1].reshape(*x.shape[:-1], k)
