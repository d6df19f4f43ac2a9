"""A value in; a hashable that stands for all that code can see of it out: those of 1, 1.0 and True differ, and so do
those of 0.0 and -0.0, wherever they lie in it."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from .object_model import attributes_of_object, contents_of_object, row_of_class, slots_of_class

ATOMS = frozenset({bool, int, str, bytes, type(None)})  # equal values of these types are the same
_SETS = (set, frozenset)


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
    row, inside = row_of_class(kind), (*above, id(value))
    held = attributes_of_object(value) if kind is not row.base else {}
    attributes = tuple((name, exact_key_of_value(x, inside)) for name, x in held.items())
    if row.items is None and kind is not slice:
        return kind, _exact_key_of_atom(value), attributes
    if kind is slice:
        parts: Any = value.start, value.stop, value.step
    else:
        parts = contents_of_object(value, row) if row.family is not None else row.items(value)  # type: ignore[misc]
    keys = [exact_key_of_value(part, inside) for part in parts]
    return kind, frozenset(keys) if row.family in _SETS else tuple(keys), attributes


def _exact_key_of_atom(value: Any) -> Hashable:
    """What a value that is no container is beside its attributes."""
    try:
        hash(value)
    except TypeError:
        return id(value)
    # The value itself, for what an own __eq__ looks at; of types without attributes, such as Decimal, range and
    # datetime, the text says what equal ones do not share.
    return value, None if hasattr(value, "__dict__") or slots_of_class(type(value)) else repr(value)
