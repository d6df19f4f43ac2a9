"""NumPy arrays in place of the `kg.Array`s among arguments, and `kg.Array`s in place of NumPy's among results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...runtime.program.device import Device
from ..core.errors import ArgumentsError
from ..core.spec import is_plain_array
from .array import Array, from_numpy
from .devices import name_of


def to_numpy_arrays(x: Any) -> Any:
    """x with NumPy arrays in place of `kg.Array`s."""
    if isinstance(x, Array):
        return x.numpy()
    if isinstance(x, list):
        return [to_numpy_arrays(i) for i in x]
    if type(x) is tuple:
        return tuple(to_numpy_arrays(i) for i in x)
    if type(x) is slice:
        return slice(*(to_numpy_arrays(i) for i in (x.start, x.stop, x.step)))
    return x


def to_kg_arrays(x: Any, device: Device, given: Sequence[Any] = (), args: tuple[Any, ...] = ()) -> Any:
    """x with `kg.Array`s in place of NumPy arrays and scalars. given: NumPy arrays that are not new. args: what x was
    made of. What no `kg.Array` can be stays NumPy's: text, dates, subclasses with a meaning of their own."""
    if isinstance(x, (np.ndarray, np.generic)) and x.dtype.type in _NUMPYS:
        return x
    if isinstance(x, np.generic):
        return from_numpy(x, device, own=True)
    if isinstance(x, np.ndarray):
        if not is_plain_array(type(x)):
            return x
        new = x.base is None and not any(x is g for g in given)
        result = from_numpy(x, device, own=new)
        if not new and any(np.may_share_memory(x, a.numpy()) for a in arrays_among_arguments(args, Array)):
            result._part = True
        return result
    if isinstance(x, tuple):
        parts = [to_kg_arrays(i, device, given, args) for i in x]
        return type(x)(*parts) if hasattr(x, "_fields") else tuple(parts)
    if isinstance(x, list):
        return [to_kg_arrays(i, device, given, args) for i in x]
    return x


# the types of elements that no `kg.Array` has
_NUMPYS = frozenset({np.object_, np.bytes_, np.str_, str, np.void, np.record, np.datetime64, np.timedelta64})
_NUMPYS |= {np.longdouble, np.clongdouble}


def arrays_among_arguments(x: Any, kind: type = np.ndarray) -> list[Any]:
    """The NumPy arrays, or `kg.Array`s, among arguments."""
    if isinstance(x, kind):
        return [x]
    return [a for i in x for a in arrays_among_arguments(i, kind)] if isinstance(x, (tuple, list)) else []


def device_of_arguments(*args: Any) -> Device | None:
    """The device of the first `kg.Array` among the arguments. Raises ArgumentsError for several devices of one kind."""
    first: Device | None = None
    for arg in args:
        found = (
            arg._device
            if isinstance(arg, Array)
            else device_of_arguments(*arg)
            if isinstance(arg, (tuple, list))
            else None
        )
        if first is None:
            first = found
        elif found is not None and found.index != first.index and found.kind == first.kind:
            names = name_of(first), name_of(found)
            raise ArgumentsError(
                f"the arrays are on {names[0]} and on {names[1]}; write x.to_device({names[0]!r}) for the others"
            )
    return first
