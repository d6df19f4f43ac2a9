"""The table of library calls on the CPU: a name in, the Python function that does it on NumPy views out.

A function takes the task's read views, its write views (both in the order of the task's regions) and its attributes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .program import Region

View = np.ndarray[Any, Any]
HostFunction = Callable[[Sequence[View], Sequence[View], Mapping[str, Any]], None]


def _matmul(reads: Sequence[View], writes: Sequence[View], attrs: Mapping[str, Any]) -> None:
    np.matmul(reads[0], reads[1], out=writes[0])


def _copy(reads: Sequence[View], writes: Sequence[View], attrs: Mapping[str, Any]) -> None:
    writes[0][...] = reads[0]


def _host_reduce(reads: Sequence[View], writes: Sequence[View], attrs: Mapping[str, Any]) -> None:
    """A reduction that has no kernel: of complex numbers by `prod min max argmin argmax`."""
    (a,), (out,), axes = reads, writes, attrs["axes"]
    kept = [i for i in range(a.ndim) if i not in axes]
    flat = a.transpose(*kept, *axes).reshape(*(a.shape[i] for i in kept), -1)
    out[...] = getattr(np, attrs["op"])(flat, axis=-1)


LIBRARY: dict[str, HostFunction] = {
    "matmul": _matmul,
    "copy": _copy,
    "host_reduce": _host_reduce,
}


def viewer(region: Region) -> Callable[[int], View]:
    """A function from the address of the region's buffer to the NumPy view of the region. It owns no memory."""
    low, high = region.span
    kind = ctypes.c_char * max(1, high - low)
    dtype, shape, strides, offset = np.dtype(region.dtype), region.shape, region.strides, region.offset - low
    if 0 in shape:
        return lambda address: np.empty(shape, dtype)
    return lambda address: np.ndarray(shape, dtype, kind.from_address(address + low), offset, strides)
