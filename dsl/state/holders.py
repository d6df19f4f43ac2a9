"""What holds values that can be assigned: lists, dicts and objects in; their parts, and what puts them together, out.

Arguments are *opened* where a function assigns to what they hold: each holder and each array has one place in the
structure, whatever leads to it, so that a write by one way is seen by the others.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from enum import EnumMeta
from types import MethodType, SimpleNamespace
from typing import Any

import numpy as np

from ..array.array import Array
from ..core.object_model import (
    MRO,
    VARS,
    WITH_ITEMS,
    dict_of_object,
    is_namespace_class,
    is_object_of_attributes,
    is_user_class,
    is_whole_dict,
    members_of_class,
    put_parts,
)
from ..core.pytree import LEAF, MetAgain, Tree

Contents = Callable[[Any], tuple[tuple[Hashable, ...], list[Any]] | None]
_ARRAYS = frozenset({"__array__", "__dlpack__", "__array_interface__", "__cuda_array_interface__"})


class OpenedKind:
    """The kind of the structure of opened arguments."""


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


def is_opened_object(value: Any) -> bool:
    """Whether an object is no more than its attributes, and does not say of itself that it is an array."""
    return is_object_holder(type(value)) and _ARRAYS.isdisjoint(dict_of_object(value) or ())


def is_opened_container(value: Any) -> bool:
    """Whether it is one of the dicts and lists that are opened."""
    return type(value) in WITH_ITEMS and is_whole_dict(value)


def open_holders_of_argument(
    value: Any, leaves: list[Any], holders: list[Any], known: dict[int, Tree], contents: Contents
) -> Tree:
    """The structure of `value`; its leaves and holders are appended, each once.

    known: for the identity of each holder and array what stands where it is met again. contents: the names and values
    that are opened in a holder; None for a leaf."""
    kind = type(value)

    def open_each(values: Iterable[Any]) -> tuple[Tree, ...]:
        return tuple([open_holders_of_argument(v, leaves, holders, known, contents) for v in values])

    if (place := known.get(id(value))) is not None:
        return place
    if kind is tuple or (isinstance(value, tuple) and hasattr(kind, "_fields")):
        return Tree(kind, (), open_each(tuple.__iter__(value)))
    if kind is MethodType and contents(value.__self__) is not None:
        return Tree(kind, (value.__func__,), open_each([value.__self__]))
    if kind is np.ndarray or kind is Array:
        known[id(value)] = Tree(MetAgain, (len(leaves) + len(holders),))
        leaves.append(value)
        return LEAF
    held = contents(value)
    if held is None:
        leaves.append(value)
        return LEAF
    known[id(value)] = Tree(MetAgain, (len(leaves) + len(holders),))
    holders.append(value)
    names, values = held
    return Tree(kind, names, open_each(values))


def rebuild_opened_arguments(
    tree: Tree,
    leaves: Iterator[Any],
    blank: Callable[[type], Any],
    lift: Callable[[Any], Any],
    keep: Callable[[Any], Any],
    holders: list[Any],
) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a structure with these leaves: see `_rebuild_holders`. Those with a name alone are a dict."""
    made: list[Any] = []
    positional, named = (
        [_rebuild_holders(child, leaves, blank, lift, keep, made, holders) for child in part.children]
        for part in tree.children
    )
    return positional, dict(zip(map(str, tree.children[1].names), named, strict=True))


def _rebuild_holders(
    tree: Tree,
    leaves: Iterator[Any],
    blank: Callable[[type], Any],
    lift: Callable[[Any], Any],
    keep: Callable[[Any], Any],
    made: list[Any],
    holders: list[Any],
) -> Any:
    """The structure with these leaves. blank: makes an empty holder of a kind. lift: what stands for a class, key or
    function. keep: told of tuples.

    made: gets the leaves and the holders, in the order of `open_holders_of_argument`; holders: these alone."""
    kind = tree.kind
    if kind is None:
        made.append(next(leaves))
        return made[-1]
    if kind is MetAgain:
        return made[tree.names[0]]  # type: ignore[call-overload]

    def rebuild_each() -> list[Any]:
        return [_rebuild_holders(c, leaves, blank, lift, keep, made, holders) for c in tree.children]

    if issubclass(kind, tuple):
        parts = rebuild_each()
        return keep(tuple(parts) if kind is tuple else tuple.__new__(lift(kind), parts))
    if kind is MethodType:
        return MethodType(lift(tree.names[0]), *rebuild_each())
    found = blank(kind)
    made.append(found)
    holders.append(found)
    names = [*map(lift, tree.names)]  # keys may be objects of the user's
    return put_parts(found, names, rebuild_each())
