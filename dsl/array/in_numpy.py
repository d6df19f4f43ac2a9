"""Calls that run in NumPy, as the function is written: what its values decide, such as shapes, no trace knows."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ...runtime.core.errors import add_note_to_error_once
from ...runtime.program.device import Device
from ..core.errors import line_of_traceback
from ..core.pytree import flatten, unflatten
from ..core.spec import is_plain_array
from .array import Array, from_numpy
from .conversion import to_kg_arrays
from .mutation import array_before_change, change_values_of_array, write_differing_elements

OFTEN = 8  # calls that catch an error, after which those like them run in NumPy at once
OWNERS = 4  # of a new result: the function's result, the list of leaves, and who asks


class InNumPy(BaseException):
    """A call runs in NumPy. Not an Exception, so that nobody swallows it.

    error: what it raises where that cannot be. caught: of a call that has met an error, those of earlier ones that the
    function has caught."""

    def __init__(self, error: Exception, caught: list[Exception] | None = None) -> None:
        super().__init__()
        self.error, self.caught = error, caught

    def raise_again(self, *_: Any) -> Any:
        """For the next call of this kind."""
        raise InNumPy(self.error)


def call_in_numpy(
    function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any], device: Device, error: Exception
) -> Any:
    """function(*args, **options) on NumPy arrays; of the results arrays are `kg.Array`s, and arguments themselves.

    Raises `error` for arguments that are no NumPy arrays and stand for no copies of them."""
    leaves: list[Any] = []
    tree = flatten((args, options), leaves)
    held = {id(x): array_before_change(x) for x in leaves if type(x) is Array}
    own = {key: x.numpy().copy() for key, x in held.items()}  # of one that comes twice one copy
    copies = {i: own[id(x)] for i, x in enumerate(leaves) if type(x) is Array}
    if any(not _has_host_values(x) for x in leaves) or (
        copies and any(c.children for part in tree.children for c in part.children)
    ):
        raise error
    given, named = (args, options) if not copies else unflatten(tree, [copies.get(i, x) for i, x in enumerate(leaves)])
    try:
        with np.errstate(all="ignore"):
            result = function(*given, **named)
    except Exception as raised:
        add_note_to_error_once(raised, f"at {line_of_traceback(raised.__traceback__)}")
        raise
    finally:
        for i, values in copies.items():
            before = held[id(leaves[i])].numpy()
            if values.tobytes() != before.tobytes():
                change_values_of_array(leaves[i], partial(write_differing_elements, new=values, before=before))
    found: list[Any] = []
    kept: dict[int, Any] = {}  # which a result may be, or hold
    _note_containers((args, options), kept)
    if id(result) in kept and type(result) not in (np.ndarray, Array, tuple):
        return result
    shape = flatten(result, found, results=True, stop=lambda x: id(x) in kept)
    owners = {id(c): leaves[i] for i, c in copies.items()} | {id(x): x for x in leaves if type(x) is np.ndarray}
    _convert_numpy_results(found, owners, device, kept)
    return unflatten(shape, found)


def _convert_numpy_results(leaves: list[Any], owners: dict[int, Any], device: Device, kept: dict[int, Any]) -> None:
    """Puts arrays of ours in the place of NumPy's, and in that of a copy what it is of. kept: what stays as it is."""
    for i in range(len(leaves)):
        x = leaves[i]
        if id(x) in kept:
            continue
        if id(x) in owners:
            leaves[i] = owners[id(x)]
        elif isinstance(x, np.ndarray) and is_plain_array(type(x)) and x.dtype.kind in "biufc":
            new = x.base is None and x.flags.writeable and sys.getrefcount(x) <= OWNERS
            leaves[i] = from_numpy(x, device, own=new)
        else:
            leaves[i] = to_kg_arrays(x, device)


def _note_containers(value: Any, kept: dict[int, Any]) -> None:
    """Notes the lists, dicts and objects among arguments, at any depth, by their identities."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    for x in inside:
        if id(x) not in kept and type(x) is not np.ndarray and type(x) is not Array:
            kept[id(x)] = x
            _note_containers(x, kept)


def _has_host_values(x: Any) -> bool:
    return isinstance(x, (np.ndarray, np.generic, Array)) or not hasattr(type(x), "__dlpack__")
