"""What a store's values are pulled into: arrays that are looked at first, all of them, and written to then."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...runtime.core.readable_text import with_article
from ..array.array import Array, asarray
from ..array.devices import name_of
from ..array.mutation import check_array_not_a_view
from ..core.errors import ArgumentsError, ShapeError
from ..core.spec import Spec
from ..jit.write_back import call_array_overlaps_itself, write_back_to_callers_array
from .copies import copy_of_array
from .mesh import Sharded
from .stored_values import Key


def targets_of_pull(given: Any) -> list[Any]:
    """The arrays that are given for a key: one, a list of them, or those that lie on a mesh."""
    if isinstance(given, Sharded):
        return [*given.parts]
    return [target for one in given for target in targets_of_pull(one)] if isinstance(given, (list, tuple)) else [given]


def check_targets_of_pull(key: Key, spec: Spec, targets: Sequence[Any]) -> None:
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
        stored = copy_of_array(asarray(stored, device=name_of(target._device)))
    write_back_to_callers_array(target, stored)


def is_laid_out_as_stored(given: Any, spec: Spec) -> bool:
    """Whether this is a NumPy array that lies in memory as a key's value does."""
    return (
        type(given) is np.ndarray
        and given.shape == spec.shape
        and given.dtype == spec.dtype
        and given.flags.c_contiguous
    )
