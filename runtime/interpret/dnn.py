"""What calls of a library for deep neural networks mean in NumPy; see `runtime/program/dnn.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .convolution import numpy_convolution, numpy_convolution_image, numpy_convolution_weights

View = np.ndarray[Any, Any]
Padding = Sequence[tuple[int, int]]


def numpy_dnn_call(
    *arrays: View,
    operation: str,
    orders: Sequence[Sequence[int]],
    dtypes: Sequence[str],
    workspace: int,
    flops: float,
    **options: Any,
) -> tuple[View, ...]:
    """The results as they lie in memory, and the workspace, if there is one."""
    given = [a.transpose(order) for a, order in zip(arrays, orders, strict=False)]
    found = _MEANINGS[operation](*given, **options)
    results = [
        r.transpose(np.argsort(order)).astype(dtype, copy=False)
        for r, order, dtype in zip(found, orders[len(arrays) :], dtypes, strict=True)
    ]
    return (*results, *([np.zeros(workspace, np.uint8)] if workspace else []))


def _padded(x: View, padding: Padding) -> View:
    return np.pad(x, ((0, 0), (0, 0), *padding))


def _convolution(x: View, weight: View, padding: Padding, **options: Any) -> tuple[View, ...]:
    return (numpy_convolution(_padded(x, padding), weight, **options),)


def _convolution_image(
    ct: View, weight: View, padding: Padding, shape: Sequence[int], **options: Any
) -> tuple[View, ...]:
    wide = (*shape[:2], *(n + before + after for n, (before, after) in zip(shape[2:], padding, strict=True)))
    kept = (slice(before, before + n) for n, (before, _) in zip(shape[2:], padding, strict=True))
    inside: tuple[Any, ...] = (..., *kept)
    return (numpy_convolution_image(ct, weight, shape=wide, **options)[inside],)


def _convolution_weights(x: View, ct: View, padding: Padding, **options: Any) -> tuple[View, ...]:
    return (numpy_convolution_weights(_padded(x, padding), ct, **options),)


def numpy_attention(q: View, k: View, v: View, scale: float, bound: int | None) -> View:
    """softmax(q @ k.T * scale) @ v in float32 at least. bound: how many places behind its own a query sees keys; None:
    it sees all. A head of keys is for as many of queries as there are more of these."""
    wide = np.result_type(q, k, v, np.float32)
    q, k, v = (a.astype(wide) for a in (q, k, v))
    if q.ndim > 2 and k.shape[-3] not in (1, q.shape[-3]):
        k, v = (np.repeat(a, q.shape[-3] // k.shape[-3], -3) for a in (k, v))
    scores = np.matmul(q, k.swapaxes(-1, -2)) * wide.type(scale)
    if bound is not None:
        scores = np.where(np.tri(scores.shape[-2], scores.shape[-1], bound, np.bool_), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(np.matmul(weights / weights.sum(-1, keepdims=True), v))


def _attention(q: View, k: View, v: View, **options: Any) -> tuple[View, ...]:
    return (numpy_attention(q, k, v, **options),)


_MEANINGS: dict[str, Callable[..., tuple[View, ...]]] = {
    "convolution": _convolution,
    "convolution_image": _convolution_image,
    "convolution_weights": _convolution_weights,
    "attention": _attention,
}
