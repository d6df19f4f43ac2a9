"""Calls that run in NumPy, as the function is written: what its values decide, such as shapes, no trace knows."""

from __future__ import annotations

import operator
import sys
from collections import deque
from collections.abc import Callable, Container
from functools import partial
from typing import Any

import numpy as np

from ...runtime.core.errors import add_note_to_error_once
from ...runtime.program.device import Device
from ..core.errors import DTypeRefusal, line_of_traceback
from ..core.object_model import attributes_of_object, builtin_container_base_of_class, put_attributes, walk_objects
from ..core.object_state import referents_of_object
from ..core.pytree import flatten, unflatten
from ..core.spec import SCALAR_TYPES, is_plain_array
from .array import Array, from_numpy
from .conversion import to_kg_arrays
from .mutation import array_before_change, change_values_of_array, write_differing_elements

OFTEN = 8  # calls that catch an error, after which those like them run in NumPy at once
_NUMBERS = frozenset({int, float, complex, bool, str, type(None)})
_LEAVES = (
    _NUMBERS | SCALAR_TYPES | {np.ndarray, Array}
)  # most arguments and results, told apart without a look into each
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

    Lists, dicts and dataclasses hold copies in the place of their `kg.Array`s until the function is done. Raises
    `error` for arguments that are no NumPy arrays and stand for no copies of them."""
    leaves = (
        [*args] if not options and _LEAVES.issuperset(map(type, args)) else _leaves_at_any_depth(args, options, error)
    )
    held = {id(x): array_before_change(x) for x in leaves if type(x) is Array}
    own = {key: x.numpy().copy() for key, x in held.items()}  # of one that comes twice one copy
    copies = {i: own[id(x)] for i, x in enumerate(leaves) if type(x) is Array}
    if not all([type(x) in _LEAVES or _has_host_values(x) for x in leaves]):
        raise error
    given, named = _with_parts_replaced((args, options), own, set()) if own else (args, options)
    back = {id(own[id(x)]): x for x in leaves if type(x) is Array}
    if own and any(type(x) is Array for x in _leaves_of((given, named))):
        _with_parts_replaced((given, named), back, set())
        raise error  # one is in a container that can hold none in its place
    try:
        with np.errstate(all="ignore"):
            result = function(*given, **named)
    except Exception as raised:
        _raise_better_error(raised, error)
        raise
    finally:
        if own:
            _with_parts_replaced((given, named), back, set())
        for i, values in copies.items():
            before = held[id(leaves[i])].numpy()
            if values.tobytes() != before.tobytes():
                change_values_of_array(leaves[i], partial(write_differing_elements, new=values, before=before))
    owners = {id(c): leaves[i] for i, c in copies.items()} | {id(x): x for x in leaves if type(x) is np.ndarray}
    return _as_result(result, (args, options), owners, device)


def _raise_better_error(raised: Exception, error: Exception) -> None:
    """Raises what the trace has said of the same line, where that says what to write instead; or adds the line."""
    line = line_of_traceback(raised.__traceback__)
    if isinstance(raised, TypeError) and isinstance(error, DTypeRefusal) and str(error).startswith(f"{line}:"):
        raise error from None
    add_note_to_error_once(raised, f"at {line}")


def _leaves_at_any_depth(args: Any, options: Any, error: Exception) -> list[Any]:
    """Raises the error for what is nested too deep to be looked through."""
    try:
        return _leaves_of((args, options))
    except RecursionError:
        raise error from None


def _as_result(result: Any, given: Any, owners: dict[int, Any], device: Device) -> Any:
    """What the call gives: lists, dicts and objects among those given are themselves."""
    parts: Any = result if type(result) in (tuple, list) else (result,)
    kinds = {*map(type, parts)}
    if kinds <= _NUMBERS:
        return result
    kept: dict[int, Any] = {}  # which a result may be, or hold
    if type(result) is list or not kinds <= _LEAVES:
        _note_containers(given, kept)
        if id(result) in kept and type(result) not in (np.ndarray, Array, tuple):
            return result
    found: list[Any] = [*parts] if kinds <= _LEAVES else []
    met: dict[int, int] = {}
    shape = None if found else flatten(result, found, results=True, stop=lambda x: id(x) in kept, met=met)
    if met and any(_refers_to_any(x, met) for x in found if type(x) not in _LEAVES and id(x) not in kept):
        return result  # an iterator of one of its lists, say: it has to stay that one
    _convert_numpy_results(found, owners, device, kept)
    if shape is not None:
        return unflatten(shape, found)
    return found[0] if parts is not result else type(parts)(found)


def _refers_to_any(value: Any, containers: Container[int]) -> bool:
    return any(id(part) in containers for part in walk_objects(value, referents_of_object))


def _convert_numpy_results(leaves: list[Any], owners: dict[int, Any], device: Device, kept: dict[int, Any]) -> None:
    """Puts arrays of ours in the place of NumPy's, and in that of a copy what it is of. kept: what stays as it is."""
    for i in range(len(leaves)):
        x = leaves[i]
        if id(x) in kept:
            continue
        if id(x) in owners:
            leaves[i] = owners[id(x)]
        elif isinstance(x, np.ndarray) and is_plain_array(type(x)) and x.dtype.type in SCALAR_TYPES:
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


def _with_parts_replaced(value: Any, new: dict[int, Any], done: set[int]) -> Any:
    """A value with others in the place of those of these identities: in its lists, dicts and dataclasses, of classes
    of their own too, and in new tuples."""
    if id(value) in new:
        return new[id(value)]
    kind, base = type(value), builtin_container_base_of_class(type(value))
    if base is tuple:
        parts = [_with_parts_replaced(x, new, done) for x in tuple.__iter__(value)]
        return value if all(map(operator.is_, parts, value)) else tuple.__new__(kind, parts)
    if id(value) in done:
        return value
    done.add(id(value))
    if base in (list, deque, dict):
        for key, x in list(dict.items(value) if base is dict else enumerate(base.__iter__(value))):
            part = _with_parts_replaced(x, new, done)
            if part is not x:
                base.__setitem__(value, key, part)
    elif hasattr(kind, "__dataclass_fields__"):
        held = attributes_of_object(value).items()
        replaced = [(name, x, _with_parts_replaced(x, new, done)) for name, x in held]
        put_attributes(value, [(name, part) for name, x, part in replaced if part is not x])
    return value


def _leaves_of(value: Any) -> list[Any]:
    leaves: list[Any] = []
    flatten(value, leaves)
    return leaves


def _has_host_values(x: Any) -> bool:
    return isinstance(x, (np.ndarray, np.generic, Array)) or not hasattr(type(x), "__dlpack__")
