"""A value in; a hashable that stands for all that code can see of it out: those of 1, 1.0 and True differ, and so do
those of 0.0 and -0.0, wherever they lie in it."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from .object_model import attributes_of_object, named_parts_of_object, row_of_class

ATOMS = frozenset({bool, int, str, bytes, type(None)})  # equal values of these types are the same
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
    attributes = attributes_of_object(value)
    held = tuple((name, exact_key_of_value(x, inside)) for name, x in attributes.items())
    return kind, _exact_key_of_contents(value, inside, attributes), held


def _exact_key_of_contents(value: Any, inside: tuple[int, ...], attributes: dict[str, Any]) -> Hashable:
    """What a value is beside its attributes."""
    row = row_of_class(type(value))
    parts: Any = None
    if isinstance(value, slice):
        parts = value.start, value.stop, value.step
    elif row.family is not None:  # past an `__iter__` of the value's own
        names, parts = named_parts_of_object(value, row)
        parts = [*names, *parts]
    if parts is not None:
        keys = (exact_key_of_value(part, inside) for part in parts)
        return frozenset(keys) if row.family in (set, frozenset) else tuple(keys)
    for number in _NUMBERS:
        if isinstance(value, number):
            return number.__repr__(value)
    try:
        hash(value)
    except TypeError:
        return id(value)
    # The value itself, for what an own __eq__ looks at; of types without attributes, such as Decimal, range and
    # datetime, the text says what equal ones do not share.
    return value, None if attributes or hasattr(value, "__dict__") else repr(value)
