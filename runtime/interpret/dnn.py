"""What calls of a library for deep neural networks mean in NumPy; see `runtime/program/dnn.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import starmap
from typing import Any

import numpy as np

from ..program.dnn import DnnPart
from .convolution import numpy_convolution, numpy_convolution_image, numpy_convolution_weights

View = np.ndarray[Any, Any]
Padding = Sequence[tuple[int, int]]


def numpy_dnn_call(
    *arrays: View,
    operation: str,
    orders: Sequence[Sequence[int]],
    results: Sequence[tuple[Sequence[int], str]],
    workspace: int,
    flops: float,
    parts: Sequence[DnnPart | None] = (),
    **options: Any,
) -> tuple[View, ...]:
    """The results as they lie in memory, and the workspace, if there is one."""
    pairs = zip(arrays, [*parts, *[None] * (len(arrays) - len(parts))], strict=True)
    given = [a.transpose(order) for a, order in zip(starmap(_part_of_memory, pairs), orders, strict=False)]
    found = _MEANINGS[operation](*given, **options)
    kept = [
        r.transpose(np.argsort(order)).astype(dtype, copy=False)
        for r, order, (_, dtype) in zip(found, orders[len(arrays) :], results, strict=True)
    ]
    return (*kept, *([np.zeros(workspace, np.uint8)] if workspace else []))


def _part_of_memory(a: View, part: DnnPart | None) -> View:
    if part is None:
        return a
    shape, strides, offset = part
    flat = np.ascontiguousarray(a).reshape(-1)[offset:]
    return np.lib.stride_tricks.as_strided(flat, shape, [n * a.itemsize for n in strides])


def _padded(x: View, padding: Padding) -> View:
    return np.pad(x, ((0, 0), (0, 0), *padding))


def _convolution(
    x: View, weight: View, *biases: View, padding: Padding, bias: bool = False, relu: bool = False, **options: Any
) -> tuple[View, ...]:
    found = sum(biases, numpy_convolution(_padded(x, padding), weight, **options))
    return (np.maximum(found, 0) if relu else found,)


def _convolution_image(
    ct: View, weight: View, padding: Padding, shape: Sequence[int], **options: Any
) -> tuple[View, ...]:
    wide = (*shape[:2], *(n + before + after for n, (before, after) in zip(shape[2:], padding, strict=True)))
    kept = (slice(before, before + n) for n, (before, _) in zip(shape[2:], padding, strict=True))
    inside: tuple[Any, ...] = (..., *kept)
    return (numpy_convolution_image(ct, weight, shape=wide, **options)[inside],)


def _convolution_weights(x: View, ct: View, padding: Padding, **options: Any) -> tuple[View, ...]:
    return (numpy_convolution_weights(_padded(x, padding), ct, **options),)


def numpy_attention(
    q: View,
    k: View,
    v: View,
    *masks: View,
    scale: float,
    hidden: float = -np.inf,
    stats: bool = False,
    dtype: str = "float32",
) -> tuple[View, ...]:
    """softmax(q @ k.T * scale) @ v, in this dtype; with stats, the logarithms of the sums of exponentials of scores
    too. masks: what is added to scores, and what is seen; other scores are `hidden`. A head of keys is for as many of
    queries as there are more of these."""
    q, k, v = _attention_operands(dtype, q, k, v)
    powers, sums, largest = _attention_weights(q, k, masks, scale, hidden)
    result = np.matmul(powers / sums, v)
    return (result, (largest + np.log(sums)).astype(np.float32)) if stats else (result,)


def numpy_attention_gradient(
    q: View,
    k: View,
    v: View,
    o: View,
    ct: View,
    stats: View,
    *masks: View,
    scale: float,
    hidden: float = -np.inf,
    dtype: str = "float32",
) -> tuple[View, ...]:
    """What a cotangent of the result o gives for queries, keys, values and what is added to scores. Weights are
    computed again, here from the scores alone."""
    types, shape = (q.dtype, k.dtype, v.dtype), k.shape
    q, k, v = _attention_operands(dtype, q, k, v)
    o, ct = o.astype(dtype), ct.astype(dtype)
    powers, sums, _ = _attention_weights(q, k, masks, scale, hidden)
    weights = powers / sums
    slope = np.matmul(ct, v.swapaxes(-1, -2)) - (ct * o).sum(-1, keepdims=True)
    back = weights * slope
    for mask in masks:
        back = np.where(mask, back, 0).astype(dtype) if mask.dtype == np.bool_ else back
    biases = [_summed_to_shape(back, m.shape).astype(m.dtype) for m in masks if m.dtype != np.bool_]
    back = back * q.dtype.type(scale)
    found = [np.matmul(back, k), np.matmul(back.swapaxes(-1, -2), q), np.matmul(weights.swapaxes(-1, -2), ct)]
    if found[1].shape[:-1] != shape[:-1]:  # heads that share their keys
        found[1:] = [a.reshape(*shape[:-2], -1, *a.shape[-2:]).sum(-3) for a in found[1:]]
    return *(a.astype(t) for a, t in zip(found, types, strict=True)), *biases


def _summed_to_shape(a: View, shape: tuple[int, ...]) -> View:
    """Over the axes along which an array of this shape repeats."""
    own = (1,) * (a.ndim - len(shape)) + shape
    axes = tuple(i for i, (n, m) in enumerate(zip(a.shape, own, strict=True)) if n != m)
    total: View = a.sum(axes, keepdims=True)
    return total.reshape(shape)


def _attention_operands(dtype: str, q: View, k: View, v: View) -> tuple[View, View, View]:
    """In one dtype, with as many heads of keys as of queries."""
    times = q.shape[-3] // k.shape[-3] if q.ndim > 2 else 1
    k, v = (np.repeat(a, times, -3) if times > 1 else a for a in (k, v))
    return q.astype(dtype), k.astype(dtype), v.astype(dtype)


def _attention_weights(q: View, k: View, masks: Sequence[View], scale: float, hidden: float) -> tuple[View, View, View]:
    """Exponentials of scores below the largest of their row, the sums of these, and the largest scores."""
    scores = np.asarray(np.matmul(q, k.swapaxes(-1, -2)) * q.dtype.type(scale))
    for mask in masks:
        scores = np.where(mask, scores, hidden) if mask.dtype == np.bool_ else scores + mask.astype(q.dtype)
        scores = scores.astype(q.dtype)
    largest = scores.max(-1, keepdims=True)
    powers = np.exp(scores - largest)
    return powers, powers.sum(-1, keepdims=True), largest


def _masked_by_places(meaning: Callable[..., tuple[View, ...]]) -> Callable[..., tuple[View, ...]]:
    """Of a call whose `bound` says how many places after its own a query sees keys; None: it sees all. bias: whether
    the last array is one."""

    def call_with_mask(*arrays: View, bound: int | None, bias: bool, **options: Any) -> tuple[View, ...]:
        shape = arrays[0].shape[-2], arrays[1].shape[-2]
        found = meaning(*arrays, *([] if bound is None else [np.tri(*shape, bound, np.bool_)]), **options)
        return found[: len(found) - (bias and len(found) > 3)]

    return call_with_mask


_MEANINGS: dict[str, Callable[..., tuple[View, ...]]] = {
    "convolution": _convolution,
    "convolution_image": _convolution_image,
    "convolution_weights": _convolution_weights,
    "attention": _masked_by_places(numpy_attention),
    "attention_gradient": _masked_by_places(numpy_attention_gradient),
}
