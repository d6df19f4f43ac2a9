"""A value in; a hashable that stands for all that code can see of it out: those of 1, 1.0 and True differ, and so do
those of 0.0 and -0.0, wherever they lie in it."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from .object_state import state_pairs_of_dict

ATOMS = frozenset({bool, int, str, bytes, type(None)})  # equal values of these types are the same
_ITERATED: tuple[Any, ...] = (tuple, list, set, frozenset)
_NUMBERS = (int, float, complex, str, bytes)


def exact_key_of_value(value: Any, above: tuple[int, ...] = ()) -> Hashable:
    """Equal for values that no code tells apart; the value has to stay alive for as long as this is used.

    above: the identities of what holds the value."""
    kind: Any = type(value)
    if kind in ATOMS:
        return kind, value
    if kind is float or kind is complex:
        return kind, repr(value)
    if isinstance(value, np.generic):
        return kind, value.dtype, value.tobytes()
    if id(value) in above or kind.__eq__ is object.__eq__:  # equal to itself alone
        return kind, id(value)
    inside = (*above, id(value))
    return kind, _exact_key_of_contents(value, inside), _exact_key_of_attributes(value, inside)


def _exact_key_of_contents(value: Any, inside: tuple[int, ...]) -> Hashable:
    """What a value is beside its attributes."""
    for base in _ITERATED:  # past an `__iter__` of the value's own
        if isinstance(value, base):
            found = (exact_key_of_value(i, inside) for i in base.__iter__(value))
            return tuple(found) if base in (tuple, list) else frozenset(found)
    if isinstance(value, slice):
        return tuple(exact_key_of_value(part, inside) for part in (value.start, value.stop, value.step))
    if isinstance(value, dict):
        return tuple(
            (exact_key_of_value(k, inside), exact_key_of_value(v, inside)) for k, v in state_pairs_of_dict(value)
        )
    for number in _NUMBERS:
        if isinstance(value, number):
            return number.__repr__(value)
    try:
        hash(value)
    except TypeError:
        return id(value)
    # The value itself, for what an own __eq__ looks at; of types without attributes, such as Decimal, range and
    # datetime, the text says what equal ones do not share.
    return value, None if hasattr(value, "__dict__") or _exact_slot_names_of_class(type(value)) else repr(value)


def _exact_key_of_attributes(value: Any, inside: tuple[int, ...]) -> Hashable:
    named = dict(getattr(value, "__dict__", {}))
    named |= {name: getattr(value, name) for name in _exact_slot_names_of_class(type(value)) if hasattr(value, name)}
    return tuple((name, exact_key_of_value(x, inside)) for name, x in named.items())


def _exact_slot_names_of_class(kind: type) -> list[str]:
    found = []
    for base in kind.__mro__:
        slots = vars(base).get("__slots__", ())
        found += [slots] if isinstance(slots, str) else list(slots)
    return [name for name in found if name not in ("__dict__", "__weakref__")]
