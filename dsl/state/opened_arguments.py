"""The stand-ins of a call's opened arguments, which a traced function changes as it likes, and what it has changed."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

from ...runtime.core.frozen import frozen
from ..core.errors import TraceError
from ..core.object_journal import CLASS_AND_DICT, CONTENTS, ObjectJournal, Slot
from ..core.object_model import (
    is_user_class,
    is_whole_dict,
    mutators_of_class,
    slots_of_class,
)
from ..environment.environment import Environment
from ..environment.returned_objects import returned_key
from .holders import rebuild_opened_arguments
from .opening import OpenedTree

Held = tuple[tuple[Hashable, ...], list[Any]]


@frozen
class HolderDifference:
    """What a holder holds now that it did not hold before. whole: all is put anew, in this order.

    removed: the names that are gone. put: names (of a list: places) and values."""

    holder: int
    whole: bool
    removed: tuple[Hashable, ...]
    put: tuple[tuple[Hashable, Any], ...]


class OpenedArguments:
    """holders: what stands for each list, dict and object among the arguments, in the order of
    `open_holders_of_argument`."""

    def __init__(self, world: Environment, tree: OpenedTree, leaves: Sequence[Any]) -> None:
        """leaves: what stands for those of the tree."""
        self._world = world
        self.holders: list[Any] = []
        keep = world.keep_container_of_arguments
        self.args, self.options = rebuild_opened_arguments(
            tree, iter(leaves), self._make_empty_holder, world.proxy_of, keep, self.holders
        )
        self.kinds: tuple[type, ...] = tuple(world.original_value(type(x)) for x in self.holders)
        self._before = ObjectJournal()
        self._before.note(Slot(x, CONTENTS) for x in self.holders)
        self._before.note(Slot(x, CLASS_AND_DICT) for x in self.holders)
        self.numbers = {id(x): i for i, x in enumerate(self.holders)}
        world.opened, world.opened_names = self.numbers, tree.attributes
        world.tells_apart = tree.tells_apart
        world.opened_changes = self._has_changed_beside
        for holder in self.holders:
            keep(holder)

    def _make_empty_holder(self, kind: type) -> Any:
        """An empty holder of a kind; objects are of the class that stands for the user's."""
        if not is_user_class(kind) and kind.__module__ not in ("types", "argparse") and issubclass(kind, (list, dict)):
            return kind()
        made = self._world.proxy_of(kind)
        return SimpleNamespace.__new__(made) if kind is SimpleNamespace else object.__new__(made)

    def before(self, holder: int) -> dict[int, Hashable]:
        """The name (of a list: the place) of each value that a holder held, by its identity."""
        names, values = self._before.rows[holder][1]
        names = tuple(map(self._world.original_value, names))
        return {id(value): name for name, value in zip(names or range(len(values)), values, strict=True)}

    def differences(self) -> Iterator[HolderDifference]:
        """What was changed, in the order of the arguments. Raises TraceError for an object of another class now."""
        self._require_whole_dicts()
        own = self._world.original_value
        for slot, *contents in self._before.changed():
            if slot.key is CLASS_AND_DICT:
                if contents[0][0] is not contents[1][0]:
                    raise TraceError(
                        f"a traced function cannot change the class of an object of {own(contents[0][0]).__name__}; "
                        "make a new one",
                        self._world.line_of_assignment("__class__") or None,
                    )
                continue
            number = self.numbers[id(slot.holder)]
            kind = self.kinds[number]
            key = partial(returned_key, self._world.trace)
            before, after = ((tuple(map(key, names)), values) for names, values in contents)
            slots = frozenset() if issubclass(kind, (list, dict)) else frozenset(slots_of_class(kind))
            yield _holder_difference(number, kind is list, slots, before, after)

    def _has_changed_beside(self, kept: set[tuple[int | None, str]]) -> bool:
        """Whether more was changed than that these attributes of these holders were put."""
        return any(
            d.whole or d.removed or any((d.holder, name) not in kept for name, _ in d.put) for d in self.differences()
        )

    def _require_whole_dicts(self) -> None:
        """Raises TraceError where an OrderedDict was changed past its class: it does not list what it holds."""
        for found in self.holders:
            if not is_whole_dict(found):
                raise TraceError(
                    "an OrderedDict was changed past its class, so that it does not list what it holds; write "
                    "o[key] = value, or del o[key]",
                    self._world.line_of_dict_call(mutators_of_class(dict)) or None,
                )


def _holder_difference(number: int, is_list: bool, slots: frozenset[str], before: Held, now: Held) -> HolderDifference:
    """slots: the names that are in no order."""
    if is_list:
        pairs = [*enumerate(now[1])]
        if len(now[1]) != len(before[1]):
            return HolderDifference(number, True, (), tuple(pairs))
        return HolderDifference(number, False, (), tuple((i, v) for i, v in pairs if v is not before[1][i]))
    then, held = dict(zip(*before, strict=True)), dict(zip(*now, strict=True))
    removed = tuple(name for name in before[0] if name not in held)
    stay = [name for name in before[0] if name in held and name not in slots]
    if [name for name in now[0] if name not in slots][: len(stay)] != stay:  # one was removed, and is there again
        return HolderDifference(number, True, tuple(slots.intersection(removed)), tuple(held.items()))
    put = tuple((name, v) for name, v in held.items() if name not in then or then[name] is not v)
    return HolderDifference(number, False, removed, put)
