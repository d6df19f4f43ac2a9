"""Nested tuples, lists, dicts, named tuples and dataclasses, taken apart into leaves and put together again."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Tree:
    """A structure without its leaves. kind: the container's type, or None for a leaf; names: a dict's keys, or the
    attributes of a dataclass or object."""

    kind: type | None
    names: tuple[Hashable, ...] = ()
    children: tuple[Tree, ...] = ()


LEAF = Tree(None)


def flatten(value: Any, leaves: list[Any], objects: bool = False) -> Tree:
    """The structure of `value`, whose leaves are appended to `leaves`. objects: any object with a `__dict__` is a
    container of its attributes too (at this level; used for `self`)."""
    kind = type(value)
    if kind is dict or (isinstance(value, dict) and _copies(kind)):
        names = tuple(value)
        return Tree(kind, names, tuple(flatten(value[n], leaves) for n in names))
    if kind in (tuple, list) or (isinstance(value, tuple) and hasattr(kind, "_fields")):
        return Tree(kind, (), tuple(flatten(v, leaves) for v in value))
    if dataclasses.is_dataclass(kind):
        fields = tuple(f.name for f in dataclasses.fields(kind))
        return Tree(kind, fields, tuple(flatten(getattr(value, n), leaves) for n in fields))
    if objects and hasattr(value, "__dict__"):
        names = tuple(vars(value))
        return Tree(kind, names, tuple(flatten(vars(value)[n], leaves) for n in names))
    leaves.append(value)
    return LEAF


def _copies(kind: type) -> bool:
    return kind.__name__ == "OrderedDict"


def rebuild(tree: Tree, leaves: Iterator[Any]) -> Any:
    """The structure with these leaves."""
    if tree.kind is None:
        return next(leaves)
    values = [rebuild(c, leaves) for c in tree.children]
    if issubclass(tree.kind, dict):
        return tree.kind(zip(tree.names, values, strict=True))
    if hasattr(tree.kind, "_fields"):
        return tree.kind(*values)
    if tree.kind in (tuple, list):
        return tree.kind(values)
    result = object.__new__(tree.kind)  # a dataclass or an object: its attributes, without running its __init__
    for name, value in zip(tree.names, values, strict=True):
        object.__setattr__(result, str(name), value)
    return result


def unflatten(tree: Tree, leaves: Sequence[Any]) -> Any:
    """The structure with these leaves."""
    return rebuild(tree, iter(leaves))
