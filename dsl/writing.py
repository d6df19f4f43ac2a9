"""Assignment to a `kg.Array` outside of a trace: in place where nothing else sees the memory, else in a new one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from .array import Array, NumpyMemory, from_numpy
from .eager import plain


class _Holder:
    """Holds one thing as a `kg.Array` holds its memory."""

    __slots__ = ("thing",)

    def __init__(self, thing: Any) -> None:
        self.thing = thing


def _references(holder: _Holder) -> int:
    return sys.getrefcount(holder.thing)


_ALONE = _references(_Holder(object()))  # counted, for interpreters count their own temporary references differently


def set_item(array: Array, key: Any, value: Any) -> None:
    """`array[key] = value` with NumPy's meaning. Raises what NumPy raises."""
    key, value = plain(key), plain(value)
    change(array, lambda own: own.__setitem__(key, value))


def call(function: Any, args: tuple[Any, ...], options: dict[str, Any]) -> None:
    """A function of NumPy's that changes its first argument, here a `kg.Array`: `np.put`, `np.add.at`, ..."""
    rest, named = plain(args[1:]), {name: plain(value) for name, value in options.items()}
    change(args[0], lambda own: function(own, *rest, **named))


def change(array: Array, how: Callable[[Any], Any]) -> None:
    """Lets `how` change the array's values, once the work that makes them is over.

    What was read or exported before (NumPy arrays, DLPack, calls in flight, constants of a trace) keeps the old
    values: its memory stays as it is, and the array gets another one."""
    array.wait()
    array._host = None
    own = _writable(array)
    if own is not None:
        how(own)
        return
    host = array.numpy().copy()
    how(host)
    new = from_numpy(host, array._device, own=True)
    array._memory, array._event, array._host = new._memory, new._event, None
    array.__class__ = Array  # nobody else has the new memory


def _writable(array: Array) -> np.ndarray[Any, Any] | None:
    """The array's memory, where it is the CPU's and nothing else holds it."""
    held = _ALONE + 1  # the holder's and the array's
    if not array._device.host_memory or _references(_Holder(array._memory)) > held:
        return None
    memory: Any = array._memory
    if type(memory) is not NumpyMemory:
        return array._view()
    own = memory.array
    alone = own.base is None and own.flags.writeable and _references(_Holder(own)) == _ALONE + 2  # and `own`
    return own if alone else None
