"""What a call does to its opened arguments, as data."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from ...runtime.core.frozen import frozen, replace
from ..core.pytree import Tree

Place = tuple[str, Any]
Places = tuple[Place, ...]  # for each leaf of a structure where a call finds it
Alternatives = tuple[tuple[int, Place], ...]  # flags, outputs of which one is set, and what is taken then


@frozen
class HolderChange:
    """What a call does to a holder. whole: all that it holds is put anew. removed: the names that go.
    put: for each name (of a list: each place) what is put there."""

    holder: int
    whole: bool
    removed: tuple[Hashable, ...]
    put: tuple[tuple[Hashable, Place], ...]


@frozen
class StateChanges:
    """What a call does to its opened arguments, in order.

    leaves: how many there are, before the holders and the leaves as they are given. holders: their classes. made:
    containers that are put there, the innermost first. Leaves are those of results, or ("holder", number),
    ("made", place), ("chosen", number) for one of several arrays, or ("old", name) for what the holder held there.
    scalars: outputs that are NumPy scalars."""

    leaves: int
    holders: tuple[type, ...]
    made: tuple[tuple[Tree, Places], ...]
    changes: tuple[HolderChange, ...]
    chosen: tuple[Alternatives, ...]
    scalars: frozenset[int]

    def with_places(self, moved: Callable[[Places], Places]) -> StateChanges:
        """The same with its leaves found elsewhere."""
        made = tuple((tree, moved(places)) for tree, places in self.made)
        changes = tuple(
            replace(c, put=tuple((name, moved((place,))[0]) for name, place in c.put)) for c in self.changes
        )
        return replace(self, made=made, changes=changes)

    def places(self) -> list[tuple[str, Any]]:
        """Where all that is put somewhere is found."""
        rows = [row for alternatives in self.chosen for row in alternatives]
        flags = [("array", flag) for flag, _ in rows]
        put = [place for change in self.changes for _, place in change.put]
        return [*(place for _, places in self.made for place in places), *put, *flags, *(place for _, place in rows)]
