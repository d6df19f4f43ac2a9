"""Arguments that the function assigns to: whether it may, and what it assigns given to the caller's array."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...runtime.core.errors import add_note_to_error_once
from ...runtime.engine.masked_copy import copy_where
from ...runtime.interpret.numpy_calls import index_key_of_numpy_host_call
from ..array.array import Array, from_numpy, on_device
from ..array.devices import open_device
from ..array.mutation import (
    array_before_change,
    change_values_of_array,
    check_array_not_a_view,
    replace_memory,
    replace_or_merge_memory,
    write_differing_elements,
)
from ..core.errors import ArgumentKindError, ReadOnlyError
from ..interop.device_sharing import SHARED, check_shared_memory_writable
from ..state.argument_writes import ArgumentWrite

Host = np.ndarray[Any, Any]
SMALL_BYTES = 1 << 16


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
        check_array_not_a_view(target)
        shared = any(other is target for other in others)
        if target._memory.__class__ in SHARED:
            check_shared_memory_writable(target, others)
    if shared:
        raise ArgumentKindError(
            "the function assigns to an argument whose memory another argument shares; pass x.copy()"
        )


def refuse_write_back_while_tracing() -> None:
    """Raises for a holder that the function changes, and reads by another name as well."""
    raise ArgumentKindError(
        "the function changes an object, a dict or a list of its arguments that it also reads by another name (a "
        "global, a closure, a class); reach it one way only"
    )


def is_assignable_at_a_look(target: Array, others: Sequence[Any]) -> bool:
    """Whether a look tells that the function may assign to an array; native code looks at NumPy's."""
    for other in others:
        if other is target:
            return False
    return not target._part and target._memory.__class__ not in SHARED


def call_array_overlaps_itself(array: Host) -> bool:
    """Whether two elements may share bytes: no order of the axes nests each within one step of the next."""
    reach = array.itemsize
    for stride, n in sorted((abs(s), n) for s, n in zip(array.strides, array.shape, strict=True) if n > 1):
        if stride < reach:
            return bool(array.size)
        reach += stride * (n - 1)
    return False


def call_arrays_share_memory(a: Host, b: Host) -> bool:
    """Whether two arrays have bytes in common; True too where that is hard to tell (`np.shares_memory`)."""
    if not np.may_share_memory(a, b):
        return False
    try:
        return np.shares_memory(a, b, max_work=1000)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def copied_array(argument: Any) -> Any:
    """A dense copy of a NumPy array; anything else itself."""
    if type(argument) is not np.ndarray:
        return argument
    if argument.nbytes < SMALL_BYTES:
        return argument.copy()
    return from_numpy(argument, open_device(("cpu", 0)))._host_view()  # in memory that was used before


def values_before_call(writes: Sequence[ArgumentWrite], leaves: Sequence[Any]) -> dict[int, Any]:
    """For the leaves where what differs will be written what the call reads: copies, of a `kg.Array` its memory."""
    targets = {write.leaf: leaves[write.leaf] for write in writes if write.differing}
    return {leaf: array_before_change(x) if type(x) is Array else copied_array(x) for leaf, x in targets.items()}


def write_back_to_arguments(
    writes: Sequence[ArgumentWrite], leaves: Sequence[Any], results: Any, before: Mapping[int, Any]
) -> None:
    """The caller's arrays become what the function made of them; a failure is raised before anything is written.

    results: `kg.Array`s, at the places that the writes name. before: `values_before_call`."""
    for write in writes:
        if type(leaves[write.leaf]) is np.ndarray:
            for number in write.outputs:
                results[number].numpy()
    for write in writes:
        if write.key is not None and len(writes) > 1:  # NumPy looks at all indices of one before it writes
            _check_indices_of_write(write, leaves[write.leaf], results)
    for write in writes:
        target, new = leaves[write.leaf], results[write.output]
        if type(target) is np.ndarray:
            write_to_numpy_array(write, target, [results[i].numpy() for i in write.outputs], before.get(write.leaf))
        elif write.is_whole:
            replace_memory(target, on_device(new, target._device))
        elif write.differing:
            old = before[write.leaf]
            replace_or_merge_memory(target, on_device(new, target._device), getattr(old, "_memory", old))
        else:
            values = [results[i].numpy() for i in write.outputs]
            change_values_of_array(target, lambda own: write_to_numpy_array(write, own, values))  # noqa: B023


def write_to_numpy_array(write: ArgumentWrite, target: Host, results: Sequence[Host], before: Any = None) -> None:
    """One write. results: those that it takes, in its order. before: what `target` was when the call read it."""
    new, *rest = results
    if write.differing:
        write_differing_elements(target, new, before)
        return
    part = _view_of_assigned_part(target, write, False)
    if part is None:
        _write_by_element_numbers(write, target, new, rest)
    elif write.key is not None:
        try:
            part[index_key_of_numpy_host_call(write.key, rest)] = new
        except IndexError as error:
            add_note_to_error_once(error, write.line)
            raise
    elif write.mask is not None:
        value, mask = (x.reshape(()) if x.size == 1 else x for x in (new, rest[0]))
        copy_where(part, value, mask if write.chosen else ~mask)
    else:
        part[...] = new


def _write_by_element_numbers(write: ArgumentWrite, target: Host, new: Host, rest: list[Host]) -> None:
    """One write to an array of which NumPy has no such view (`x.flat` of some layouts)."""
    numbers = _view_of_assigned_part(np.arange(target.size).reshape(target.shape), write, True)
    assert numbers is not None
    if write.key is not None:
        numbers = numbers[index_key_of_numpy_host_call(write.key, rest)]
    elif write.mask is not None:
        chosen = np.broadcast_to(rest[0] if write.chosen else ~rest[0], numbers.shape)
        numbers, new = numbers[chosen], np.broadcast_to(new, numbers.shape)[chosen]
    target[np.unravel_index(numbers, target.shape)] = new


def _view_of_assigned_part(target: Host, write: ArgumentWrite, copies: bool) -> Host | None:
    """The part of an array that a write is about. copies: where it may be a copy; else None where it would be one."""
    for kind, what in write.views:
        if kind == "key":
            target = target[tuple(slice(*each) for each in what)]
            continue
        try:
            target = np.reshape(target, what, copy=None if copies else False)
        except ValueError:
            return None
    return target


def _check_indices_of_write(write: ArgumentWrite, target: Any, results: Sequence[Any]) -> None:
    """Raises IndexError for indices that the argument has not."""
    assert write.key is not None
    shape = next((what for kind, what in write.views if kind == "reshape"), target.shape)
    stub = np.broadcast_to(np.zeros((), bool), shape)
    try:
        stub[index_key_of_numpy_host_call(write.key, [results[i].numpy() for i in write.indices])]
    except IndexError as error:
        add_note_to_error_once(error, write.line)
        raise
