"""Nested tuples, lists, dicts, dataclasses and objects, taken apart into leaves and put together again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from enum import EnumMeta
from types import BuiltinFunctionType, MethodType, SimpleNamespace
from typing import Any

import numpy as np

from .exact import exact_key_of_value
from .object_model import (
    BUFFERS,
    MRO,
    ORIGINAL,
    PLAIN,
    VARS,
    Kind,
    has_default_access,
    is_user_class,
    is_whole_dict,
    make_object,
    named_parts_of_object,
    put_attributes,
    row_of_class,
    seen_attributes_of_object,
)
from .spec import SCALAR_TYPES

Make = Callable[[type, tuple[Hashable, ...], list[Any]], Any]  # a container of this kind, names and values


class Tree:
    """A structure without its leaves. kind: the container's type, or None for a leaf; names: a dict's keys, or the
    attributes of a dataclass or object. Immutable; hashed once."""

    __slots__ = ("_exact_names", "_hash", "children", "kind", "names")

    def __init__(self, kind: type | None, names: tuple[Hashable, ...] = (), children: tuple[Tree, ...] = ()) -> None:
        self.kind = kind
        self.names = names
        self.children = children
        self._exact_names = tuple([n if type(n) is str else exact_key_of_value(n) for n in names]) if names else ()
        self._hash = hash((kind, self._exact_names, children))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Tree) or self._hash != other._hash:
            return False
        return (self.kind, self._exact_names, self.children) == (other.kind, other._exact_names, other.children)

    def nodes(self) -> Iterator[Tree]:
        """All structures in it, itself first."""
        yield self
        for child in self.children:
            yield from child.nodes()

    def __repr__(self) -> str:
        if self.kind is None:
            return "*"
        named = zip(self.names, self.children, strict=True) if self.names else ()
        parts = [f"{n}: {c}" for n, c in named] or map(str, self.children)
        return f"{self.kind.__name__}({', '.join(parts)})"


LEAF = Tree(None)


class MetAgain:
    """The kind of a place where something counted is met again.

    Containers are counted when they are whole, an opened argument's leaves and holders when they are met."""


def flatten(
    value: Any,
    leaves: list[Any],
    above: tuple[int, ...] = (),
    results: bool = False,
    stop: Callable[[Any], bool] | None = None,
    met: dict[int, int] | None = None,
) -> Tree:
    """The structure of `value`, whose leaves are appended to `leaves`.

    above: the identities of the containers that hold the value; what contains itself is a leaf.
    results: so are Python's other containers, and objects that a traced function has made of the user's classes.
    stop: whether a value within is a leaf, whatever it is.
    met: empty, where what comes twice is to be one container afterwards."""
    if type(value) in _NEVER_OPENED or id(value) in above or (opened := _opened(value, results, stop)) is None:
        leaves.append(value)
        return LEAF
    if met is not None and id(value) in met:
        return Tree(MetAgain, (met[id(value)],))
    inside = (*above, id(value))

    def flatten_parts(parts: Collection[Any]) -> list[Tree]:
        if _NUMBERS.issuperset(map(type, parts)):
            leaves.extend(parts)
            return [LEAF] * len(parts)
        found = []
        for part in parts:
            if stop is not None and stop(part):
                leaves.append(part)
                found.append(LEAF)
            else:
                found.append(flatten(part, leaves, inside, results, stop, met))
        return found

    kind, names, parts, own = opened
    tree = Tree(kind, names, tuple(flatten_parts(parts)))
    if met is not None and is_counted_container(kind):
        met[id(value)] = len(met)
    return Tree(AttributedContainer, tuple(own), (tree, *flatten_parts(own.values()))) if own else tree


_NUMBERS = PLAIN | SCALAR_TYPES
_NEVER_OPENED = _NUMBERS | {np.ndarray}
_NOT_OPENED = (None, *BUFFERS)
_NONE: dict[str, Any] = {}
Opened = tuple[type, tuple[Hashable, ...], Collection[Any], dict[str, Any]]


def _opened(value: Any, results: bool, stop: Callable[[Any], bool] | None) -> Opened | None:
    """The kind of a container, the names and values of its parts, and attributes of its own; None for a leaf."""
    kind = type(value)
    if kind is tuple or kind is list:
        return kind, (), value, _NONE
    original = VARS(kind).get(ORIGINAL, kind)
    if original is dict or (original is OrderedDict and is_whole_dict(value)):
        return original, tuple(value), value.values(), _NONE
    of_fields = type(getattr(kind, "__dataclass_fields__", None)) is dict and not isinstance(original, EnumMeta)
    if of_fields and has_default_access(original):
        held = seen_attributes_of_object(value)  # a cached property too; not a field that was deleted
        return original, tuple(held), held.values(), _NONE
    row = row_of_class(kind)
    if original is list or (row.family is tuple and hasattr(kind, "_fields")):
        return original, *named_parts_of_object(value, row), _NONE
    if kind is MethodType and stop is not None and stop(value.__self__):
        return kind, (value.__func__,), (value.__self__,), _NONE
    return _opened_result(value, original, row) if results else None


def _opened_result(value: Any, original: type, row: Kind) -> Opened | None:
    """The same for a container of another kind, and for an object that a traced function has made."""
    kind = type(value)
    if row.family not in _NOT_OPENED and is_whole_dict(value) and (kind is original or is_user_class(original)):
        return original, *named_parts_of_object(value, row), seen_attributes_of_object(value)
    if kind is SimpleNamespace or (kind is not original and _is_class_of_attributes(original)):
        held = seen_attributes_of_object(value)
        return original, tuple(held), held.values(), _NONE
    return None


def _is_class_of_attributes(kind: type) -> bool:
    """Whether its objects hold nothing but attributes, and others with the same are as good."""
    native = next(b for b in MRO(kind) if type(VARS(b).get("__new__")) is BuiltinFunctionType)
    return native in (object, SimpleNamespace) and not isinstance(kind, EnumMeta)


def renamed_pytree(tree: Tree, rename: Callable[[Any], Any]) -> Tree:
    """The structure with other names, such as the user's own keys of dicts."""
    if not tree.children:
        return tree
    children = tuple([renamed_pytree(child, rename) for child in tree.children])
    return Tree(tree.kind, tuple(map(rename, tree.names)), children)


class AttributedContainer:
    """What a tree has in place of a container with attributes of its own: the container, and they."""


def is_counted_container(kind: type | None) -> bool:
    """Whether a container of this kind in a tree may be met again: tuples are as good as equal ones."""
    return kind is not tuple and kind is not AttributedContainer


def rebuild_container(kind: type, names: tuple[Hashable, ...], values: list[Any]) -> Any:
    """A container of this kind. A dataclass or an object gets its attributes without running its __init__."""
    if kind is list or kind is tuple:
        return kind(values)
    if kind is dict:
        return dict(zip(names, values, strict=True))
    if kind is MethodType:
        function: Any = names[0]
        return MethodType(function, *values)
    if kind is AttributedContainer:
        return put_attributes(values[0], zip(names, values[1:], strict=True))
    return make_object(kind, names, values)


def unflatten(tree: Tree, leaves: Sequence[Any], make: Make = rebuild_container) -> Any:
    """The structure with these leaves, in containers that `make` makes."""
    return _rebuild_pytree(tree, iter(leaves), [], make)


def _rebuild_pytree(tree: Tree, rest: Iterator[Any], made: list[Any], make: Make) -> Any:
    """rest: the leaves that are left. made: the containers that may be met again. No closure does this: one that calls
    itself is a cycle, which holds the leaves' memory until Python looks for such."""
    kind = tree.kind
    if kind is None:
        return next(rest)
    if kind is MetAgain:
        return made[tree.names[0]]  # type: ignore[call-overload]
    found = make(kind, tree.names, [_rebuild_pytree(child, rest, made, make) for child in tree.children])
    if is_counted_container(kind):
        made.append(found)
    return found
