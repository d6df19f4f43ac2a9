"""Arrays of PyTorch and JAX in; leaves over the same memory, in 1 to 5 us where the long way takes 10 to 50, out."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from .array import Array
from .foreign import bfloat16_of

Leaf = np.ndarray[Any, Any] | Array

# How to see arrays of a type, of the types that have been met.
QUICK: dict[type, Callable[[Any], Leaf | None]] = {}


def quick(value: Any) -> Leaf | None:
    """What `foreign` or `borrow` gives; None where they have to look, which say what is wrong."""
    view = QUICK.get(type(value))
    try:
        return None if view is None else view(value)
    except Exception:
        return None


def remember(kind: type) -> None:
    """A type has been met."""
    torch = sys.modules.get("torch")
    if torch is not None and kind is torch.Tensor:
        QUICK[kind] = _torch_view
    elif kind.__module__.startswith("jaxlib.") and kind.__name__ == "ArrayImpl":
        QUICK[kind] = _jax_view


def _torch_view(tensor: Any) -> Leaf | None:
    """Not by `tensor.numpy()`, after which the tensor's memory could not be resized any more."""
    if not tensor.is_cpu or tensor.is_neg() or not tensor.data_ptr():  # 0: without memory
        return None
    return bfloat16_of(tensor) if tensor.dtype is sys.modules["torch"].bfloat16 else np.from_dlpack(tensor)


def _jax_view(array: Any) -> Leaf | None:
    """Read-only, and on the CPU without a copy."""
    # Asking a deleted array for its platform ends the process, in jaxlib 0.10.
    return None if array.is_deleted() or array.platform() != "cpu" else np.asarray(array)
