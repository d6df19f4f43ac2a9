"""Which attributes of the arguments' objects are part of a call's structure: those that code names which was traced.

What no such code names is neither looked at nor compared: a history that grows, a name, a random number generator. A
trace that comes to code which reads more begins again with all that this names.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from ..core.object_model import is_user_class, named_parts_of_object, slots_of_class
from ..core.object_state import texts_in_code
from ..core.pytree import Tree
from ..environment.argument_properties import NeedOpenedArguments
from .holders import OpenedKind, is_object_holder, is_opened_container, is_opened_object

Names = frozenset[str]


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
        code = getattr(function, "__code__", None)
        self.attributes: Names | None = frozenset(() if code is None else texts_in_code(code))
        self.by_identity: frozenset[type] = frozenset()

    def extend(self, need: NeedOpenedArguments) -> None:
        """From now on what a trace needed is opened, or stays closed."""
        if need.told_apart is not None:
            self.by_identity |= {need.told_apart}
        elif self.attributes is not None:
            self.attributes = None if need.attributes is None else self.attributes | need.attributes

    def contents(self, value: Any) -> tuple[tuple[Hashable, ...], list[Any]] | None:
        """The names and values that are opened in a list, dict or object; no names of a list. None for a leaf."""
        kind = type(value)
        if is_opened_container(value):
            held = named_parts_of_object(value)
            self.by_identity |= {type(key) for key in held[0] if type(key) is not str and is_object_holder(type(key))}
            return held
        if not is_opened_object(value) or kind in self.by_identity:
            return None
        names, values = named_parts_of_object(value)
        if (attributes := opened_attributes_of_class(kind, self.attributes)) is None:
            return names, values
        slots, found = slots_of_class(kind), dict(zip(names, values, strict=True))
        opened = sorted(attributes.intersection(found), key=lambda name: (name not in slots, name))
        return tuple(opened), [found[name] for name in opened]
