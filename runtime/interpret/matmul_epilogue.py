"""A matrix product and what a library does to it before it is stored: NumPy arrays in, the array that it means out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def _gelu(x: Array) -> Array:
    """x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) (Hendrycks and Gimpel, 2016), rounded once."""
    wide = x.astype(np.float64)
    return np.asarray(0.5 * wide * (1 + np.tanh(math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)))).astype(x.dtype)


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": lambda x: np.maximum(x, x.dtype.type(0)),  # NaN stays NaN
    "gelu": _gelu,
}


def product(a: Array, b: Array, dtype: Any, epilogue: Sequence[str] = (), *bias: Array) -> Array:
    """a @ b, with `bias`, one row that is added to each of its rows, and the activations, in their order. With 16-bit
    floats all that is float32, rounded to the dtype once."""
    if epilogue and np.dtype(dtype).itemsize == 2:
        a, b, *bias = (array.astype(np.float32) for array in (a, b, *bias))  # type: ignore[assignment]
    result: Array = np.matmul(a, b)
    for part in epilogue:
        result = result + bias[0] if part == "bias" else ACTIVATIONS[part](result)
    return result.astype(dtype, copy=False)
