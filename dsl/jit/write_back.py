"""Arguments that the function assigns to: whether it may, and the new values given to the caller's array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..array.array import Array
from ..core.errors import ArgumentsError, ReadOnlyError
from ..interop.device_sharing import SHARED, check_shared_memory_writable


def check_write_back_allowed(target: Any, others: Sequence[Any], overlaps: bool = False) -> None:
    """Raises where the function may not assign to an argument: read-only memory, or memory of another argument too.

    overlaps: what `call_array_overlaps_itself` says of the target."""
    if type(target) is np.ndarray:
        if not target.flags.writeable:
            raise ReadOnlyError("the function assigns to an argument that is read-only; pass x.copy()")
        if overlaps:
            raise ReadOnlyError("the function assigns to an argument whose elements share memory; pass x.copy()")
        shared = any(type(other) is np.ndarray and call_arrays_share_memory(target, other) for other in others)
    else:
        if target._part:
            raise ReadOnlyError(
                "the function assigns to an array that may be another one, as a value decided in an earlier call; "
                "write x.copy() where it is stored"
            )
        shared = any(other is target for other in others)
        if target._memory.__class__ in SHARED:
            check_shared_memory_writable(target, others)
    if shared:
        raise ArgumentsError("the function assigns to an argument whose memory another argument shares; pass x.copy()")


def refuse_write_back_while_tracing() -> None:
    """Raises for a holder that the function changes, and reads by another name as well."""
    raise ArgumentsError(
        "the function changes an object, a dict or a list of its arguments that it also reads by another name (a "
        "global, a closure, a class); reach it one way only"
    )


def is_assignable_at_a_look(target: Array, others: Sequence[Any]) -> bool:
    """Whether a look tells that the function may assign to an array; native code looks at NumPy's."""
    return not (target._part or target._memory.__class__ in SHARED or any([other is target for other in others]))


def call_array_overlaps_itself(array: np.ndarray[Any, Any]) -> bool:
    """Whether two elements may share bytes: no order of the axes nests each within one step of the next."""
    reach = array.itemsize
    for stride, n in sorted((abs(s), n) for s, n in zip(array.strides, array.shape, strict=True) if n > 1):
        if stride < reach:
            return bool(array.size)
        reach += stride * (n - 1)
    return False


def call_arrays_share_memory(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    """Whether two arrays have bytes in common; True too where that is hard to tell (`np.shares_memory`)."""
    if not np.may_share_memory(a, b):
        return False
    try:
        return np.shares_memory(a, b, max_work=1000)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def write_back_to_callers_array(target: Any, new: Array) -> None:
    """The caller's array becomes what the function made of it; a failure is raised before anything is written."""
    if type(target) is np.ndarray:
        np.copyto(target, new.numpy())
    else:
        target._memory, target._event, target._host = new._memory, new._event, None
