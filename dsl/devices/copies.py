"""Copies of arrays: into memory of their own, or into arrays of a caller, all of which are looked at before.

A `kg.Array` in; out, one with the same values on the same device; or a target that holds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...runtime.core.readable_text import with_article
from ...runtime.program.device import Device
from ..array.array import Array, from_numpy, on_device, snapshot
from ..array.devices import name_of
from ..array.made_of import lend_memory
from ..array.mutation import check_array_not_a_view, replace_memory
from ..core.errors import ArgumentsError, ShapeError
from ..core.spec import Spec
from ..jit.kernel_graph import KernelGraph
from ..jit.write_back import call_array_overlaps_itself

_copies: dict[Device, KernelGraph] = {}


def copy_of_array(x: Array) -> Array:
    """By a compiled kernel; it may be on its way."""
    device = x._device
    made = _copies.get(device)
    if made is None:

        def copied(x: Any) -> Any:
            return np.copy(x)

        made = _copies[device] = KernelGraph(copied, device=name_of(device))
    return made(x)  # type: ignore[no-any-return]


def snapshot_or_copy(x: Array) -> Array:
    """The values as they are now, in the same memory if nobody can write to it.

    Assignment leaves that memory alone, and another library that takes it from a GPU gets a copy."""
    if not (x._device.host_memory or lend_memory(x._memory)):
        return copy_of_array(x)
    return snapshot(x)  # type: ignore[no-any-return]


def first_copy_of_array(x: Array) -> Array:
    """Where nothing need be compiled for it, of which there may be no more."""
    return from_numpy(x.numpy(), x._device) if x._device.host_memory and x.is_ready() else copy_of_array(x)


def check_targets_of_pull(key: int | str, spec: Spec, targets: Sequence[Any]) -> None:
    """Raises ArgumentsError, ShapeError, ReadOnlyError where a key's value cannot be written to an array."""
    if not targets:
        raise ArgumentsError(f"key {key!r} is pulled into no array; leave out= out, or write one")
    for target in targets:
        if not isinstance(target, (Array, np.ndarray)) or isinstance(target, np.ma.MaskedArray):
            raise ArgumentsError(f"values are pulled into arrays, not {type(target).__name__}")
        if target.shape != spec.shape or target.dtype != spec.dtype:
            raise ShapeError(
                f"{with_article(spec.dtype)} value of shape {spec.shape} does not fit into {target.dtype} "
                f"{target.shape}"
            )
        if isinstance(target, Array):
            check_array_not_a_view(target)
        elif not target.flags.writeable:
            raise ArgumentsError(f"key {key!r} is pulled into an array that is read-only")
        elif not target.flags.c_contiguous and call_array_overlaps_itself(target):
            raise ArgumentsError(f"key {key!r} is pulled into an array whose elements share memory; pass x.copy()")


def fill_target_of_pull(target: Any, stored: Array) -> None:
    """Write a value to a target that was checked."""
    if isinstance(target, Array):
        near = on_device(stored, target._device)
        replace_memory(target, snapshot_or_copy(near) if near is stored else near)
    else:
        np.copyto(target, stored.numpy())


def is_laid_out_as_stored(given: Any, spec: Spec) -> bool:
    """Whether this is a NumPy array that lies in memory as a key's value does."""
    return (
        type(given) is np.ndarray
        and given.shape == spec.shape
        and given.dtype == spec.dtype
        and given.flags.c_contiguous
    )
