"""NumPy arrays as kernels can read them: in native byte order, aligned, in steps of whole elements."""

from __future__ import annotations

from typing import Any

import numpy as np

Host = np.ndarray[Any, Any]


def is_kernel_readable(array: Host) -> bool:
    """Whether kernels can read the array where it lies."""
    flags, dtype = array.flags, array.dtype
    return dtype.isnative and flags.aligned and not any(s % dtype.itemsize for s in array.strides)


def kernel_readable_copy(array: Host) -> Host:
    """The array, or a copy of it that kernels can read."""
    return array if is_kernel_readable(array) else np.array(array, native_byte_order(array.dtype), order="C")


def native_byte_order(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype in native byte order."""
    return dtype if dtype.isnative else dtype.newbyteorder("=")
