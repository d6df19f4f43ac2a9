"""A step of the user's own as plain data. A Python callback on arrays, or a GPU kernel with its launch shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from ..core.frozen import frozen
from .user_function import UserFunctionSource

View = np.ndarray[Any, Any]
Sizes = tuple[int, int, int]
EMPTY: Mapping[int, View] = MappingProxyType({})


@frozen
class Callback:
    """A Python function that gets the arrays to read, then those to fill. It cannot write those that it reads. Equal if
    the same."""

    function: Callable[..., Any]

    def __repr__(self) -> str:
        return getattr(self.function, "__qualname__", "function").replace("<locals>.", "")


@frozen
class NewArray:
    """What a step is to write: an array of its own. starts: the number, among the step's arrays, of the one whose
    values it has at first; None: none in particular."""

    shape: tuple[int, ...]
    dtype: str
    starts: int | None = None


@frozen
class CustomKernel:
    """A GPU kernel of the user's: a numba.cuda function, or CUDA C++ text in which `name` is `extern "C"`.

    Its parameters are the arrays that it reads, those that it writes, then the numbers (bytes, dtype). cpu: what does
    the same on the CPU.
    """

    name: str
    code: UserFunctionSource | str
    grid: Sizes
    block: Sizes
    numbers: tuple[tuple[bytes, str], ...] = ()
    cpu: Callback | None = None

    def __repr__(self) -> str:
        return f"{self.name}{list(self.grid)}{list(self.block)}"


def invoke_custom_call_callback(
    *arrays: View, callback: Callback, reads: int, writes: Sequence[NewArray], into: Mapping[int, View] = EMPTY
) -> tuple[View, ...]:
    """What the callback has written. The first `reads` arrays are for it to read; the others are initial values.

    into: the memory of some of the results."""
    given = [a.view() for a in arrays[:reads]]
    for a in given:
        a.flags.writeable = False
    results = tuple(into[i] if i in into else np.empty(w.shape, w.dtype) for i, w in enumerate(writes))
    for w, result in zip(writes, results, strict=True):
        if w.starts is not None:
            result[...] = arrays[w.starts]
    if callback.function(*given, *results) is not None:
        raise TypeError(f"{callback!r} returned a value; a callback fills its last arguments, and returns nothing")
    return results
