"""Cached properties of arguments: Python computes one before the call goes on, and keeps it in the user's own object.

A trace has but stand-ins for what is in its arguments. Where it reads a `functools.cached_property` that an argument
does not hold yet, it ends; the property is read from the argument itself, and the call starts again with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..core.errors import is_refusal
from ..core.pytree import Tree
from ..core.undo import restorer_of_attributes
from ..trace.trace import TraceRestart
from .guards import GuardSet


class NeedCachedProperty(TraceRestart):
    """The trace needs a property of an argument, computed and kept in it; the call is then made again."""

    guards = GuardSet(())  # that it is needed
    known: frozenset[int] = frozenset()  # the leaves whose values decided that

    def __init__(self, path: tuple[int, ...], name: str) -> None:
        """path: from the arguments' tree down to the object, which child it is at each step."""
        super().__init__()
        self.path, self.name = path, name

    def raise_again(self, *_: Any) -> Any:
        """For the next call of this kind."""
        raise NeedCachedProperty(self.path, self.name)

    @contextmanager
    def computed(self, arguments: Any, tree: Tree) -> Iterator[None]:
        """The property is in the object; it is taken out again where the call is refused."""
        holder = arguments
        for number in self.path:
            holder, tree = _child_with_cached_property(holder, tree, number), tree.children[number]
        put_back = restorer_of_attributes(holder)
        getattr(holder, self.name)
        try:
            yield
        except BaseException as error:
            if is_refusal(error):
                put_back()
            raise


def _child_with_cached_property(value: Any, tree: Tree, number: int) -> Any:
    """What `flatten` has found there."""
    assert tree.kind is not None
    if not tree.names:
        base: Any = list if issubclass(tree.kind, list) else tuple
        return base.__getitem__(value, number)
    name: Any = tree.names[number]
    if issubclass(tree.kind, dict):
        return dict.__getitem__(value, name)
    held = getattr(value, "__dict__", {})
    return held[name] if name in held else getattr(value, name)


class NeedOpenedArguments(TraceRestart):
    """The function changes what an argument holds: the call is made again with its arguments opened."""
