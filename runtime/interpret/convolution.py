"""Convolutions of several axes in NumPy: what `kg.nn`'s mean, and the sums of shifted rows that they are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

View = np.ndarray[Any, Any]


def numpy_convolution(
    x: View, weight: View, stride: Sequence[int], dilation: Sequence[int], groups: int, precision: str = ""
) -> View:
    """The sum over c, i, j, ... of weight[o, c, i, j, ...] * x[b, c, y * stride + i * dilation, ...], for each group of
    channels. x: (batch, channels, ...); weight: (out, channels / groups, ...). precision: what a GPU may round to."""
    each, axes = weight.shape[1], tuple(range(2, x.ndim))
    spans = [d * (k - 1) + 1 for k, d in zip(weight.shape[2:], dilation, strict=True)]
    windows = np.lib.stride_tricks.sliding_window_view(x, spans, axes)
    steps: tuple[Any, ...] = (..., *(slice(None, None, step) for step in (*stride, *dilation)))
    windows = windows[steps]
    summed = (1, *range(x.ndim, windows.ndim))
    parts = []
    for group, rows in enumerate(np.split(weight, groups)):
        part = windows[:, group * each : (group + 1) * each]
        parts.append(np.moveaxis(np.tensordot(part, rows, (summed, range(1, x.ndim))), -1, 1))
    return np.concatenate(parts, 1).astype(np.result_type(x, weight), copy=False)


def numpy_convolution_image(
    ct: View,
    weight: View,
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    shape: Sequence[int],
    precision: str = "",
) -> View:
    """What a cotangent of a convolution's result gives for its image, of this shape. precision: of that one."""
    result = np.zeros(shape, np.result_type(ct, weight, np.float32))
    parts = zip(np.split(ct, groups, 1), np.split(weight, groups), np.split(result, groups, 1), strict=True)
    for cotangents, rows, into in parts:
        for place in np.ndindex(*weight.shape[2:]):
            reached = into[_reached_by_place(place, ct.shape, stride, dilation)]
            reached += np.moveaxis(np.tensordot(cotangents, rows[(..., *place)], (1, 0)), -1, 1)
    return result.astype(np.result_type(ct, weight))


def numpy_convolution_weights(
    x: View,
    ct: View,
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    shape: Sequence[int],
    precision: str = "",
) -> View:
    """What a cotangent of a convolution's result gives for its weights, of this shape."""
    result = np.zeros(shape, np.result_type(x, ct, np.float32))
    summed = (0, *range(2, x.ndim))
    parts = zip(np.split(x, groups, 1), np.split(ct, groups, 1), np.split(result, groups), strict=True)
    for images, cotangents, into in parts:
        for place in np.ndindex(*shape[2:]):
            reached = images[_reached_by_place(place, ct.shape, stride, dilation)]
            into[(..., *place)] = np.tensordot(cotangents, reached, (summed, summed))
    return result.astype(np.result_type(x, ct))


def _reached_by_place(
    place: Sequence[int], shape: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> tuple[Any, ...]:
    """The elements of an image that one place of the window meets, of a result of this shape."""
    starts = [i * d for i, d in zip(place, dilation, strict=True)]
    return (..., *(slice(a, a + s * (n - 1) + 1, s) for a, s, n in zip(starts, stride, shape[2:], strict=True)))


def numpy_shifted_products(weight: View, x: View, taps: Sequence[int], length: int, width: int, line: int) -> View:
    """result[b, g, o, p] = the sum over c and t of weight[g, o, c * len(taps) + t] * x[b, g, c, p + taps[t]], for the
    first `length` places of rows of `width`; the others hold anything. line: how far taps lie apart, for kernels."""
    result = np.zeros((*x.shape[:2], weight.shape[1], width), x.dtype)
    for t, tap in enumerate(taps):
        result[..., :length] += np.matmul(weight[..., t :: len(taps)], x[..., tap : tap + length])
    return result


def numpy_shifted_dots(a: View, x: View, taps: Sequence[int], length: int) -> View:
    """result[g, o, c * len(taps) + t] = the sum over b and the first `length` places p of a[b, g, o, p] * x[b, g, c,
    p + taps[t]]"""
    parts = [np.einsum("bgop,bgcp->goc", a[..., :length], x[..., tap : tap + length]) for tap in taps]
    return np.stack(parts, -1).reshape(*a.shape[1:3], -1)
