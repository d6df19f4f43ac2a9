"""A `kg.Array` in; out, one with the same values and memory of its own, on the same device."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ..array.array import Array, from_numpy
from ..array.devices import name_of
from ..jit.kernel_graph import KernelGraph


def copy_of_array(x: Array) -> Array:
    """By a compiled kernel; it may be on its way."""
    return _copy_on_device(name_of(x._device))(x)  # type: ignore[no-any-return]


def first_copy_of_array(x: Array) -> Array:
    """Where nothing need be compiled for it, of which there may be no more."""
    return from_numpy(x.numpy(), x._device) if x._device.host_memory and x.is_ready() else copy_of_array(x)


@functools.cache
def _copy_on_device(device: str) -> KernelGraph:
    def copied(x: Any) -> Any:
        return np.copy(x)

    return KernelGraph(copied, device=device)
