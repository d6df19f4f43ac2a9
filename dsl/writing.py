"""Assignment to a `kg.Array` outside of a trace: in place where nothing else sees the memory, else in a new one."""

from __future__ import annotations

import sys
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
    """`array[key] = value` with NumPy's meaning, once the work that makes the array is over.

    What was read or exported before (NumPy arrays, DLPack, calls in flight, constants of a trace) keeps the old
    values: its memory stays as it is, and the array gets another one. Raises what NumPy raises."""
    key, value = plain(key), plain(value)
    array.wait()
    array._host = None
    own = _writable(array)
    if own is not None:
        own[key] = value
        return
    host = array.numpy().copy()
    host[key] = value
    new = from_numpy(host, array._device, own=True)
    array._memory, array._event, array._host = new._memory, new._event, None


def _writable(array: Array) -> np.ndarray[Any, Any] | None:
    """The array's memory, where it is the CPU's and nothing else holds it."""
    if array._device.kind != "cpu" or _references(_Holder(array._memory)) > _ALONE + 1:  # the holder's and the array's
        return None
    memory: Any = array._memory
    if type(memory) is not NumpyMemory:
        return array._view()
    own = memory.array
    alone = own.base is None and own.flags.writeable and _references(_Holder(own)) == _ALONE + 2  # and `own`
    return own if alone else None
