"""Which attributes of the arguments' objects are part of a call's structure: those that the function's code may read.

What no code names is neither looked at nor compared: a history that grows, a name, a random number generator. A trace
that reads more than that begins again with it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from functools import cached_property
from types import FunctionType
from typing import Any

from ..core.errors import is_user_file
from ..core.object_state import is_user_class, texts_in_code
from ..core.pytree import Tree
from ..environment.argument_properties import NeedOpenedArguments
from .holders import (
    OpenedKind,
    is_object_holder,
    is_opened_object,
    names_and_attributes_of_object,
    names_and_items_of_container,
    slots_of,
)

Names = frozenset[str]
# the functions that a member of a class is made of
_PARTS: dict[type, tuple[str, ...]] = {property: ("fget", "fset"), cached_property: ("func",)}
_PARTS |= dict.fromkeys((staticmethod, classmethod), ("__func__",))
# what Python calls by itself alone where it is named, or before the object is an argument
_NOT_CALLED = frozenset({"__init__", "__post_init__", "__new__", "__repr__", "__str__", "__eq__", "__hash__"})


class OpenedTree(Tree):
    """The structure of opened arguments. attributes: the names that those of objects may have, None for any.
    tells_apart: whether there are classes whose objects stay closed. Equal structures may differ in both."""

    __slots__ = ("attributes", "tells_apart")

    def __init__(self, children: tuple[Tree, ...], attributes: Names | None, tells_apart: bool) -> None:
        super().__init__(OpenedKind, (), children)
        self.attributes, self.tells_apart = attributes, tells_apart


def opened_attributes_of_class(kind: type, attributes: Names | None) -> Names | None:
    """Of a library's class, whose code is not looked at, all are opened."""
    return attributes if is_user_class(kind) else None


class Opening:
    """What is opened in the arguments of one function; it gets more as traces need more.

    attributes: the names of those that are opened, None for all. by_identity: the classes whose objects stay closed,
    since the function looks at which object one is."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = getattr(function, "__func__", function)
        self._classes: set[type] = set()
        self._extra_names: set[str] = set()  # names that traces needed
        self.by_identity: frozenset[type] = frozenset()
        self.attributes: Names | None = frozenset()

    def extend(self, need: NeedOpenedArguments) -> None:
        """From now on what a trace needed is opened, or stays closed."""
        if need.told_apart is not None:
            self.by_identity |= {need.told_apart}
        elif need.attributes is None:
            self.attributes = None
        else:
            self._extra_names |= need.attributes
            self._find_names()

    def contents(self, value: Any) -> tuple[tuple[Hashable, ...], list[Any]] | None:
        """The names and values that are opened in a list, dict or object; no names of a list. None for a leaf."""
        kind = type(value)
        if (held := names_and_items_of_container(value)) is not None:
            self.by_identity |= {type(key) for key in held[0] if type(key) is not str and is_object_holder(type(key))}
            return held
        if not is_opened_object(value) or kind in self.by_identity:
            return None
        if kind not in self._classes:
            self._classes.add(kind)
            self._find_names()
        names, values = names_and_attributes_of_object(value)
        if (attributes := opened_attributes_of_class(kind, self.attributes)) is None:
            return names, values
        slots, found = slots_of(kind), dict(zip(names, values, strict=True))
        opened = sorted(attributes.intersection(found), key=lambda name: (name not in slots, name))
        return tuple(opened), [found[name] for name in opened]

    def _find_names(self) -> None:
        if self.attributes is not None:
            self.attributes = frozenset(_names_in_reach(self._function, self._classes, self._extra_names))


def _names_in_reach(function: Any, classes: set[type], extra_names: set[str]) -> set[str]:
    """The names in a function's code and in code that it may call: its module's functions, and members of classes."""
    names, seen = {*extra_names}, set[Any]()
    todo = [function]
    while todo:
        scopes = [dict(vars(base)) for kind in classes for base in kind.__mro__ if base is not object]
        for code, scope in [(f.__code__, f.__globals__) for f in todo if type(f) is FunctionType]:
            if code not in seen and is_user_file(code.co_filename):
                names |= texts_in_code(code)
                scopes.append(scope)
            seen.add(code)
        found = [m for scope in scopes for n, m in scope.items() if n in names or _is_called_by_python(n)]
        todo = [f for m in found for f in _functions_of_member(m) if f.__code__ not in seen]
    return names


def _is_called_by_python(name: str) -> bool:
    return name.startswith("__") and name not in _NOT_CALLED


def _functions_of_member(member: Any) -> Iterator[FunctionType]:
    parts = _PARTS.get(type(member), ("__wrapped__",) if hasattr(type(member), "_call_in_trace") else ())
    found = [getattr(member, name) for name in parts] if parts else [member]
    return (f for f in found if type(f) is FunctionType)
