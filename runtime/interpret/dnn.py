"""What calls of a library for deep neural networks mean in NumPy; see `runtime/program/dnn.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .convolution import numpy_convolution, numpy_convolution_image, numpy_convolution_weights

View = np.ndarray[Any, Any]
Padding = Sequence[tuple[int, int]]


def numpy_dnn_call(
    *arrays: View, operation: str, orders: Sequence[Sequence[int]], workspace: int, flops: float, **options: Any
) -> tuple[View, ...]:
    """The results as they lie in memory, and the workspace, if there is one."""
    given = [a.transpose(order) for a, order in zip(arrays, orders, strict=False)]
    found = _MEANINGS[operation](*given, **options)
    results = [r.transpose(np.argsort(order)) for r, order in zip(found, orders[len(arrays) :], strict=True)]
    return (*results, *([np.zeros(workspace, np.uint8)] if workspace else []))


def _padded(x: View, padding: Padding) -> View:
    return np.pad(x, ((0, 0), (0, 0), *padding))


def _convolution(x: View, weight: View, padding: Padding, **options: Any) -> tuple[View, ...]:
    return (numpy_convolution(_padded(x, padding), weight, **options),)


def _convolution_image(
    ct: View, weight: View, padding: Padding, shape: Sequence[int], **options: Any
) -> tuple[View, ...]:
    wide = (*shape[:2], *(n + before + after for n, (before, after) in zip(shape[2:], padding, strict=True)))
    inside = tuple(slice(before, before + n) for n, (before, _) in zip(shape[2:], padding, strict=True))
    return (numpy_convolution_image(ct, weight, shape=wide, **options)[(..., *inside)],)


def _convolution_weights(x: View, ct: View, padding: Padding, **options: Any) -> tuple[View, ...]:
    return (numpy_convolution_weights(_padded(x, padding), ct, **options),)


_MEANINGS: dict[str, Callable[..., tuple[View, ...]]] = {
    "convolution": _convolution,
    "convolution_image": _convolution_image,
    "convolution_weights": _convolution_weights,
}
