"""What holds values that can be assigned: lists, dicts and objects in; their parts, and what puts them together, out.

Arguments are *opened* where a function assigns to what they hold: each holder and each array has one place in the
structure, whatever leads to it, so that a write by one way is seen by the others.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from enum import EnumMeta
from types import SimpleNamespace
from typing import Any

import numpy as np

from ..array.array import Array
from ..core.object_model import (
    MRO,
    VARS,
    is_namespace_class,
    is_object_of_attributes,
    is_user_class,
    is_whole_dict,
    members_of_class,
    named_parts_of_object,
    put_parts,
)
from ..core.pytree import LEAF, Tree

_ARRAYS = ("__array__", "__dlpack__", "__array_interface__", "__cuda_array_interface__")
_CONTAINERS: tuple[type, ...] = (list, dict, OrderedDict)


class OpenedKind:
    """The kind of the structure of opened arguments."""


class SameHolder:
    """The kind of a place where the holder of a number is met again."""


class SameLeaf:
    """The kind of a place where the array of a number is met again."""


def is_object_holder(kind: type) -> bool:
    """Whether objects of a class are no more than their attributes, in slots or not."""
    if kind is SimpleNamespace:
        return True
    if not (is_user_class(kind) or is_namespace_class(kind)) or not is_object_of_attributes(kind):
        return False
    if any(hasattr(kind, name) for name in _ARRAYS) or isinstance(kind, EnumMeta):
        return False
    words = len([*members_of_class(kind)]) + bool(kind.__dictoffset__)
    words += sum("__weakref__" in VARS(base) for base in MRO(kind))
    return words > 0 and kind.__basicsize__ <= object.__basicsize__ + 8 * words


def is_holder(value: Any) -> bool:
    """Whether what a value holds can be assigned."""
    kind = type(value)
    return is_whole_dict(value) if kind in _CONTAINERS else is_object_holder(kind)


def open_holders_of_argument(value: Any, leaves: list[Any], holders: list[Any], known: dict[int, Tree]) -> Tree:
    """The structure of `value`; its leaves and holders are appended, each once.

    known: for the identity of each holder and array what stands where it is met again."""
    kind = type(value)
    if (place := known.get(id(value))) is not None:
        return place
    if kind is tuple or (isinstance(value, tuple) and hasattr(kind, "_fields")):
        return Tree(
            kind, (), tuple([open_holders_of_argument(v, leaves, holders, known) for v in tuple.__iter__(value)])
        )
    if kind is np.ndarray or kind is Array:
        known[id(value)] = Tree(SameLeaf, (len(leaves),))
        leaves.append(value)
        return LEAF
    if not is_holder(value):
        leaves.append(value)
        return LEAF
    known[id(value)] = Tree(SameHolder, (len(holders),))
    holders.append(value)
    names, values = named_parts_of_object(value)
    return Tree(kind, names, tuple([open_holders_of_argument(v, leaves, holders, known) for v in values]))


def rebuild_holders_of_argument(
    tree: Tree,
    leaves: Iterator[Any],
    blank: Callable[[type], Any],
    lift: Callable[[Any], Any],
    given: list[Any],
    holders: list[Any],
) -> Any:
    """The structure with these leaves. blank: makes an empty holder of a kind. lift: what stands for a class or key.

    given, holders: get the leaves and the holders, in the order of `open_holders_of_argument`."""
    kind = tree.kind
    if kind is None:
        given.append(next(leaves))
        return given[-1]
    if kind is SameHolder:
        return holders[tree.names[0]]  # type: ignore[call-overload]
    if kind is SameLeaf:
        return given[tree.names[0]]  # type: ignore[call-overload]
    if issubclass(kind, tuple):
        parts = [rebuild_holders_of_argument(child, leaves, blank, lift, given, holders) for child in tree.children]
        return tuple(parts) if kind is tuple else tuple.__new__(lift(kind), parts)
    found = blank(kind)
    holders.append(found)
    names = [*map(lift, tree.names)]  # keys may be objects of the user's
    values = [rebuild_holders_of_argument(child, leaves, blank, lift, given, holders) for child in tree.children]
    return put_parts(found, names, values)
