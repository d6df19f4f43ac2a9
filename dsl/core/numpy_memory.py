"""A NumPy array's memory: the address of its first element, and whether kernels can read it where it lies.

They read arrays in native byte order, aligned, in steps of whole elements. The address is read from the object itself
where a self-test says that this works.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np


def _address_by_ctypes(array: np.ndarray[Any, Any]) -> int:
    return array.ctypes.data


def _make_address_reader() -> Callable[[np.ndarray[Any, Any]], int]:
    """`array.ctypes.data` takes 0.9 us. In every NumPy so far the field `data` is the first after the object's head."""
    offset = object.__basicsize__
    read = ctypes.c_void_p.from_address

    def fast(array: np.ndarray[Any, Any]) -> int:
        return read(id(array) + offset).value or 0

    samples: list[np.ndarray[Any, Any]] = [
        np.arange(12, dtype=np.int16).reshape(3, 4)[1:, ::-2],
        np.zeros(0),
        np.float64(2) * np.ones(()),
        np.eye(5),
    ]
    return fast if _addresses_agree(fast, samples) else _address_by_ctypes


def _addresses_agree(fast: Callable[[np.ndarray[Any, Any]], int], samples: list[np.ndarray[Any, Any]]) -> bool:
    import platform

    if platform.python_implementation() != "CPython":
        return False
    return all(fast(np.asarray(s)) == np.asarray(s).ctypes.data for s in samples)


address: Callable[[np.ndarray[Any, Any]], int] = _make_address_reader()


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
