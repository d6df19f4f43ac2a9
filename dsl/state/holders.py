"""What holds values that can be assigned: lists, dicts and objects in; their parts, and what puts them together, out.

Arguments are *opened* where a function assigns to what they hold: each holder and each array has one place in the
structure, whatever leads to it, so that a write by one way is seen by the others.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from enum import EnumMeta
from types import MemberDescriptorType, MethodType, SimpleNamespace
from typing import Any

import numpy as np

from ..array.array import Array
from ..core.object_state import is_user_class, is_whole_ordered_dict
from ..core.pytree import LEAF, Tree, is_plain_object

ABSENT = object()
Contents = Callable[[Any], tuple[tuple[Hashable, ...], list[Any]] | None]
_ARRAYS = frozenset({"__array__", "__dlpack__", "__array_interface__", "__cuda_array_interface__"})
_VARS = type.__dict__["__dict__"].__get__
_MRO = type.__dict__["__mro__"].__get__  # past what a stand-in says
_DICTS: tuple[type, ...] = (dict, OrderedDict)
_NAMESPACES = {("types", "SimpleNamespace"), ("argparse", "Namespace"), ("collections", "UserDict")}
_NAMESPACES |= {("collections", "UserList")}


class OpenedKind:
    """The kind of the structure of opened arguments."""


class SameHolder:
    """The kind of a place where the holder of a number is met again."""


class SameLeaf:
    """The kind of a place where the array of a number is met again."""


def slots_of(kind: type) -> dict[str, MemberDescriptorType]:
    """The slots of a class, by their names."""
    found: dict[str, MemberDescriptorType] = {}
    for base in reversed(_MRO(kind)):
        for name, member in _VARS(base).items():
            if type(member) is MemberDescriptorType and not name.startswith("__"):
                found[name] = member
    return found


def attributes_by_name(value: Any) -> dict[str, Any]:
    """The attributes of an object that are in no slot."""
    try:
        found: dict[str, Any] = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return found


def is_object_holder(kind: type) -> bool:
    """Whether objects of a class are no more than their attributes, in slots or not."""
    if kind is SimpleNamespace:
        return True
    if not is_user_class(kind) and (kind.__module__, kind.__name__) not in _NAMESPACES:
        return False
    if any(hasattr(kind, name) for name in _ARRAYS) or isinstance(kind, EnumMeta):
        return False
    return is_plain_object(kind) or _is_class_with_slots(kind)


def is_opened_object(value: Any) -> bool:
    """Whether an object is no more than its attributes, and does not say of itself that it is an array."""
    return is_object_holder(type(value)) and _ARRAYS.isdisjoint(attributes_by_name(value))


def _is_class_with_slots(kind: type) -> bool:
    """Whether all that instances hold is in slots, and in a `__dict__`."""
    if getattr(kind, "__new__", None) is not object.__new__ or issubclass(kind, type):
        return False
    if getattr(kind, "__getattribute__", None) is not object.__getattribute__:
        return False
    more = sum("__weakref__" in _VARS(b) for b in _MRO(kind)) + bool(kind.__dictoffset__)
    words = sum(type(m) is MemberDescriptorType for b in _MRO(kind) for m in _VARS(b).values())
    return kind.__basicsize__ <= object.__basicsize__ + 8 * (words + more) and (bool(words) or bool(more))


def names_and_items_of_container(value: Any) -> tuple[tuple[Hashable, ...], list[Any]] | None:
    """The keys and values of a dict, or the items of a list; None for what is neither."""
    kind = type(value)
    if kind is list:
        return (), [*value]
    if kind is dict or (kind is OrderedDict and is_whole_ordered_dict(value)):
        return tuple(value), [*value.values()]
    return None


def names_and_attributes_of_object(value: Any) -> tuple[tuple[Hashable, ...], list[Any]]:
    """The names and values of an object's attributes; slots come first."""
    found = {}
    for name, member in slots_of(type(value)).items():
        held = slot_value(member, value)
        if held is not ABSENT:
            found[name] = held
    found |= attributes_by_name(value)
    return tuple(found), [*found.values()]


def slot_value(member: MemberDescriptorType, value: Any) -> Any:
    """What a slot holds; ABSENT for nothing."""
    try:
        return member.__get__(value, type(value))
    except AttributeError:
        return ABSENT


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
        known[id(value)] = Tree(SameLeaf, (len(leaves),))
        leaves.append(value)
        return LEAF
    held = contents(value)
    if held is None:
        leaves.append(value)
        return LEAF
    known[id(value)] = Tree(SameHolder, (len(holders),))
    holders.append(value)
    names, values = held
    return Tree(kind, names, open_each(values))


def rebuild_holders_of_argument(
    tree: Tree,
    leaves: Iterator[Any],
    blank: Callable[[type], Any],
    lift: Callable[[Any], Any],
    keep: Callable[[Any], Any],
    given: list[Any],
    holders: list[Any],
) -> Any:
    """The structure with these leaves. blank: makes an empty holder of a kind. lift: what stands for a class, key or
    function. keep: told of tuples.

    given, holders: get the leaves and the holders, in the order of `open_holders_of_argument`."""
    kind = tree.kind
    if kind is None:
        given.append(next(leaves))
        return given[-1]
    if kind is SameHolder:
        return holders[tree.names[0]]  # type: ignore[call-overload]
    if kind is SameLeaf:
        return given[tree.names[0]]  # type: ignore[call-overload]

    def rebuild_each() -> list[Any]:
        return [rebuild_holders_of_argument(c, leaves, blank, lift, keep, given, holders) for c in tree.children]

    if issubclass(kind, tuple):
        parts = rebuild_each()
        return keep(tuple(parts) if kind is tuple else tuple.__new__(lift(kind), parts))
    if kind is MethodType:
        return MethodType(lift(tree.names[0]), *rebuild_each())
    found = blank(kind)
    holders.append(found)
    names = [*map(lift, tree.names)]  # keys may be objects of the user's
    fill_empty_state_holder(kind, found, names, rebuild_each())
    return found


def fill_empty_state_holder(kind: type, holder: Any, names: Sequence[Hashable], values: Sequence[Any]) -> None:
    """Puts names and values into an empty holder, past methods of its class."""
    if kind is list:
        holder.extend(values)
    elif kind in _DICTS:
        holder.update(zip(names, values, strict=True))
    else:
        slots = slots_of(kind)
        held = attributes_by_name(holder)
        for name, value in zip(names, values, strict=True):
            if name in slots:
                slots[str(name)].__set__(holder, value)
            else:
                held[str(name)] = value
