"""Assignment to a `kg.Array` outside of a trace: in place where nothing else sees the memory, else in a new one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from sys import getrefcount
from typing import Any

import numpy as np

from ...runtime.program.device import Device
from ..core.errors import ReadOnlyError
from ..core.spec import Host
from .array import Array, NumpyMemory, from_numpy, snapshot
from .conversion import to_kg_arrays, to_numpy_arrays


class _MemoryHolder:
    """Holds memory as a `kg.Array` does."""

    __slots__ = ("_memory",)

    def __init__(self, memory: Any) -> None:
        self._memory = memory


_HOLDER = _MemoryHolder(object())
_ALONE = getrefcount(_HOLDER._memory)  # of memory that one holds: interpreters count temporary references differently


BLOCK_BYTES = 1 << 17
_WORDS = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}
_LOCKS = tuple(threading.RLock() for _ in range(64))


def lock_of_array(array: Array) -> threading.RLock:
    """What is held while the array's elements, or its memory, are changed. Several arrays share one."""
    return _LOCKS[(id(array) >> 4) % len(_LOCKS)]


def set_item(array: Array, key: Any, value: Any) -> None:
    """`array[key] = value` with NumPy's meaning. Raises what NumPy raises."""
    key, value = to_numpy_arrays(key), to_numpy_arrays(value)
    change_values_of_array(array, lambda own: own.__setitem__(key, value))


def call_in_place_on_array(function: Any, args: tuple[Any, ...], options: dict[str, Any]) -> None:
    """A function of NumPy's that changes its first argument, here a `kg.Array`: `np.put`, `np.add.at`, ..."""
    rest, named = to_numpy_arrays(args[1:]), {name: to_numpy_arrays(value) for name, value in options.items()}
    change_values_of_array(args[0], lambda own: function(own, *rest, **named))


def change_values_of_array(array: Array, how: Callable[[Any], Any]) -> None:
    """Lets `how` change the array's values, once the work that makes them is over.

    What was read or exported before (NumPy arrays, DLPack, calls in flight, constants of a trace) keeps the old
    values: its memory stays as it is, and the array gets another one."""
    check_array_not_a_view(array)
    while True:
        array.wait()
        with lock_of_array(array):
            if array._event is not None:  # another thread has begun to change it as a whole
                continue
            own = own_memory_of_array(array)
            if own is not None:
                how(own)
                return
            host = array.numpy().copy()
            how(host)
            replace_memory(array, from_numpy(host, array._device, own=True))
            return


def array_before_change(array: Array) -> Array:
    """The array as it is, while nobody changes it: from now on, changes go to other memory."""
    with lock_of_array(array):
        return snapshot(array)  # type: ignore[no-any-return]


def values_before_change(array: Array) -> tuple[Any, Host]:
    """The values of `array_before_change`, and what has to be held for as long as they are to stay as they are."""
    with lock_of_array(array):
        if array._event is None and (host := array._host) is not None:
            return array._memory, host
        before = snapshot(array)
    host = before.numpy()
    if array._memory is before._memory:
        array._host = host
    return before, host


def memory_before_change(array: Array) -> Any:
    """The memory of `array_before_change`."""
    with lock_of_array(array):
        return array._memory


def replace_memory(array: Array, new: Array) -> None:
    """The array becomes what another one is, or will be. Who reads the memory first, and then the event, waits for what
    he has read."""
    with lock_of_array(array):
        if new._event is not None:
            array._event = new._event
        array._memory, array._event, array._host = new._memory, new._event, None
        array.__class__ = Array


def replace_or_merge_memory(array: Array, new: Array, before: Any) -> None:
    """The array becomes what was made of it. before: the memory that it had then; where other threads have assigned to
    the array since, what is new is put into what they have made of it."""
    with lock_of_array(array):
        if array._memory is before:
            replace_memory(array, new)
            return
    old = Array(before, array._spec, array._device).numpy()
    values = new.numpy()
    change_values_of_array(array, lambda own: write_differing_elements(own, values, old))


def write_differing_elements(target: Host, new: Host, before: Host) -> None:
    """Writes the new values to where they differ, bit by bit, from what was there before."""
    if not target.size:
        return
    if target.nbytes > BLOCK_BYTES and len(target) > 1:  # what differs is found in the cache
        rows = max(1, len(target) * BLOCK_BYTES // target.nbytes)
        for i in range(0, len(target), rows):
            write_differing_elements(target[i : i + rows], new[i : i + rows], before[i : i + rows])
        return
    words = _WORDS[min(target.itemsize, 8)]
    if target.itemsize <= 8 and new.dtype == before.dtype == target.dtype:
        np.copyto(target, new, where=new.view(words) != before.view(words))
        return
    first, second = (np.ascontiguousarray(x, target.dtype.newbyteorder("=")) for x in (new, before))
    found = first.reshape(-1).view(words) != second.reshape(-1).view(words)
    if found.any():
        chosen = found.reshape(target.size, -1).any(axis=1) if target.itemsize > 8 else found
        np.copyto(target, new, where=chosen.reshape(target.shape))


def call_numpy_with_out_array(
    function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any], place: int | None, device: Device
) -> Any:
    """Calls a function of NumPy's that is given `out`. It is given by name, or as the arguments from number `place`
    on: NumPy arrays are written to, `kg.Array`s get the new values, and the result is what was given."""
    if options.get("out") is not None:
        given = options["out"] if isinstance(options["out"], tuple) else (options["out"],)
    else:
        given = args[place:] if isinstance(function, np.ufunc) else (args[place or 0],)
    written: dict[int, Any] = {}  # what NumPy writes to, and whose it is
    stand_ins: dict[int, Any] = {}
    before: dict[int, Any] = {}
    for out in given:
        if isinstance(out, Array):
            check_array_not_a_view(out)
            before[id(out)] = array_before_change(out)
            stand_ins[id(out)] = np.array(before[id(out)].numpy())
        written[id(stand_ins.get(id(out), out))] = out

    def out_argument_for_numpy(x: Any) -> Any:
        return tuple(map(out_argument_for_numpy, x)) if type(x) is tuple else stand_ins.get(id(x), to_numpy_arrays(x))

    first = len(args) if place is None else place
    values = (*to_numpy_arrays(args[:first]), *map(out_argument_for_numpy, args[first:]))
    named = {name: out_argument_for_numpy(x) if name == "out" else to_numpy_arrays(x) for name, x in options.items()}
    result = function(*values, **named)
    for out in given:
        if isinstance(out, Array):
            new = from_numpy(stand_ins[id(out)], out._device, own=True)
            replace_or_merge_memory(out, new, before[id(out)]._memory)

    def out_result_for_caller(x: Any) -> Any:
        return written[id(x)] if id(x) in written and x is not None else to_kg_arrays(x, device)

    return tuple(map(out_result_for_caller, result)) if type(result) is tuple else out_result_for_caller(result)


def check_array_not_a_view(array: Array) -> None:
    """Raises ReadOnlyError for a view in NumPy, whose base is written to too."""
    if array._part:
        raise ReadOnlyError(
            "this array is a copy of a part of another kg.Array, or that one in another shape, and NumPy would write "
            "to both; write to the other one, x[0, 1] = value in place of x[0][1] = value, or to y = x[0].copy()"
        )


def own_memory_of_array(array: Array) -> Host | None:
    """The array's memory, to be changed under its lock, where its values are there and nobody else holds it."""
    if array._event is not None:
        return None
    array._host = None  # which may hold it
    if getrefcount(array._memory) > _ALONE or not array._device.host_memory:
        return None
    memory: Any = array._memory
    if type(memory) is not NumpyMemory:
        return np.ndarray(array._spec.shape, array._spec.dtype, memory)
    if getrefcount(memory.array) > _ALONE:
        return None
    own = memory.array
    return own if own.base is None and own.flags.writeable else None
