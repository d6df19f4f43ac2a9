"""The stand-ins of a call's opened arguments, which a traced function changes as it likes, and what it has changed."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

from ...runtime.core.frozen import dataclass
from ..core.errors import TraceError
from ..core.object_model import is_user_class, is_whole_dict, mutators_of_class, named_parts_of_object
from ..core.pytree import Tree
from ..environment.environment import Environment
from ..trace.aliasing import root_of_view, roots_of_array
from ..trace.tracer import Tracer
from .holders import rebuild_holders_of_argument

Held = tuple[tuple[Hashable, ...], list[Any]]


@dataclass(frozen=True, slots=True)
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

    def __init__(self, world: Environment, tree: Tree, leaves: Sequence[Any]) -> None:
        """leaves: what stands for those of the tree."""
        self._world = world
        self.holders: list[Any] = []
        rest = iter(leaves)
        given: list[Any] = []
        positional, named = (
            [
                rebuild_holders_of_argument(child, rest, self._make_empty_holder, world.proxy_of, given, self.holders)
                for child in part.children
            ]
            for part in tree.children
        )
        self.args, self.options = positional, dict(zip(map(str, tree.children[1].names), named, strict=True))
        self.kinds: tuple[type, ...] = tuple(world.original_value(type(x)) for x in self.holders)
        self._before = [named_parts_of_object(x) for x in self.holders]
        self._types = [type(x) for x in self.holders]
        self.numbers = {id(x): i for i, x in enumerate(self.holders)}

    def _make_empty_holder(self, kind: type) -> Any:
        """An empty holder of a kind; objects are of the class that stands for the user's."""
        if not is_user_class(kind) and kind.__module__ not in ("types", "argparse") and issubclass(kind, (list, dict)):
            return kind()
        made = self._world.proxy_of(kind)
        return SimpleNamespace.__new__(made) if kind is SimpleNamespace else object.__new__(made)

    def before(self, holder: int) -> dict[int, Hashable]:
        """The name (of a list: the place) of each value that a holder held, by its identity."""
        names, values = self._before[holder]
        names = tuple(map(self._world.original_value, names))
        return {id(value): name for name, value in zip(names or range(len(values)), values, strict=True)}

    def differences(self) -> Iterator[HolderDifference]:
        """What was changed, in the order of the arguments. Raises TraceError for an object of another class now."""
        self._require_whole_dicts()
        for number, (found, (names, values)) in enumerate(zip(self.holders, self._before, strict=True)):
            if type(found) is not self._types[number]:
                raise TraceError(
                    f"a traced function cannot change the class of an object of {self.kinds[number].__name__}; make "
                    "a new one",
                    self._world.line_of_assignment("__class__") or None,
                )
            now_names, now = named_parts_of_object(found)
            same = len(now) == len(values) and all(a is b for a, b in zip(now, values, strict=True))
            if not same or now_names != names:
                own = self._world.original_value
                before, after = (tuple(map(own, names)), values), (tuple(map(own, now_names)), now)
                yield _holder_difference(number, type(found) is list, before, after)

    def arrays(self) -> Iterator[int]:
        """The identities of the arrays that the arguments hold now."""
        self._require_whole_dicts()
        values = [*self.args, *self.options.values(), *(v for x in self.holders for v in named_parts_of_object(x)[1])]
        return (id(root_of_view(v)) for v in _holder_values_and_tuple_items(values) if isinstance(v, Tracer))

    def _require_whole_dicts(self) -> None:
        """Raises TraceError where an OrderedDict was changed past its class: it does not list what it holds."""
        for found in self.holders:
            if not is_whole_dict(found):
                raise TraceError(
                    "an OrderedDict was changed past its class, so that it does not list what it holds; write "
                    "o[key] = value, or del o[key]",
                    self._world.line_of_call("dict", mutators_of_class(dict)) or None,
                )

    def touched(self, changed: Sequence[int], assigned: dict[int, Any]) -> set[int]:
        """The holders that have changed, and those that hold one at any depth. Those that hold an array that was
        assigned to count too."""
        found = {*changed}
        inside = [[*_holder_values_and_tuple_items(named_parts_of_object(x)[1])] for x in self.holders]
        while True:
            more = {
                i
                for i, values in enumerate(inside)
                if i not in found
                and any(self.numbers.get(id(v)) in found or _is_part_of_assigned_argument(v, assigned) for v in values)
            }
            if not more:
                return found
            found |= more


def _holder_difference(number: int, is_list: bool, before: Held, now: Held) -> HolderDifference:
    if is_list:
        pairs = [*enumerate(now[1])]
        if len(now[1]) != len(before[1]):
            return HolderDifference(number, True, (), tuple(pairs))
        return HolderDifference(number, False, (), tuple((i, v) for i, v in pairs if v is not before[1][i]))
    then, held = dict(zip(*before, strict=True)), dict(zip(*now, strict=True))
    stay = [name for name in before[0] if name in held]
    if list(now[0][: len(stay)]) != stay:  # one was removed, and is there again
        return HolderDifference(number, True, (), tuple(held.items()))
    removed = tuple(name for name in before[0] if name not in held)
    put = tuple((name, v) for name, v in held.items() if name not in then or then[name] is not v)
    return HolderDifference(number, False, removed, put)


def _holder_values_and_tuple_items(values: Sequence[Any]) -> Iterator[Any]:
    """The values, and what is in tuples among them."""
    for value in values:
        if isinstance(value, tuple):
            yield from _holder_values_and_tuple_items(tuple(value))
        else:
            yield value


def _is_part_of_assigned_argument(value: Any, assigned: dict[int, Any]) -> bool:
    return isinstance(value, Tracer) and any(
        type(root._owner) is int and root._owner in assigned for root in roots_of_array(value)
    )
