"""A journal of what objects held: slots (a holder, and a place in it) with their values, to compare and to put back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache, partial
from types import FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any

import numpy as np

from ...runtime.core.frozen import frozen
from .object_model import (
    PLAIN,
    UNSET,
    Lens,
    are_same_objects,
    dict_of_object,
    held_value,
    members_of_class,
    named_parts_of_object,
    parts_of_object,
    put_attribute,
    put_parts,
    row_of_class,
    slot_value,
    walk_objects,
)

Contents = tuple[tuple[Any, ...], list[Any]]  # names and parts


def _contents(value: Any) -> Contents:
    if type(value) is list:  # or a dict, as most are
        return (), [*value]
    if type(value) is dict:
        return (*value,), [*value.values()]
    return named_parts_of_object(value)


def _put_contents(value: Any, then: Contents) -> None:
    row = row_of_class(type(value))
    made, (names, parts) = len(row.settings), then
    put_parts(value, names[made:], parts[made:], row)


CONTENTS = Lens(_contents, _put_contents, lambda now, then: all(map(are_same_objects, now, then)))


def _put_class_and_dict(value: Any, then: tuple[type, Any]) -> None:
    if type(value) is not then[0]:
        object.__setattr__(value, "__class__", then[0])
    if dict_of_object(value) is not then[1]:
        object.__setattr__(value, "__dict__", then[1])


CLASS_AND_DICT = Lens(lambda value: (type(value), dict_of_object(value)), _put_class_and_dict, are_same_objects)


@cache
def attribute_lens(name: str) -> Lens:
    """An attribute, as it is asked for."""
    return Lens(partial(held_value, name=name), partial(put_attribute, name))


CELL = attribute_lens("cell_contents")


def _put_in_slot(member: MemberDescriptorType, value: Any, held: Any) -> None:
    member.__delete__(value) if held is UNSET else member.__set__(value, held)


def slot_lens(member: MemberDescriptorType) -> Lens:
    """A slot of objects, as the descriptor in their class has it: equal for the same one, which is not kept alive."""
    return Lens(MethodType(slot_value, member), MethodType(_put_in_slot, member))


@frozen
class Slot:
    """Where a value is. key: a lens, or the key of an item of a list or dict.

    name: what the user calls it."""

    holder: Any
    key: Any
    name: str = ""

    @property
    def identity(self) -> tuple[int, Any]:
        return id(self.holder), self.key

    @property
    def held(self) -> Any:
        """What it holds now; UNSET where that is nothing."""
        return self.key.get(self.holder) if type(self.key) is Lens else self.holder[self.key]

    def put(self, value: Any) -> None:
        if type(self.key) is Lens:
            assert self.key.put is not None
            self.key.put(self.holder, value)
        else:
            self.holder[self.key] = value


def whole_slots_of_object(value: Any, name: str = "") -> Iterator[Slot]:
    """Slots that hold several things of an object each: items, attributes, its state, at last its class and dict."""
    kind = type(value)
    row = row_of_class(kind)
    if (lens := row.state or (row.put and CONTENTS)) is not None:
        yield Slot(value, lens, name)
    for attribute in row.assigned:
        yield Slot(value, attribute_lens(attribute), name)
    if (held := dict_of_object(value)) is not None:
        yield Slot(held, CONTENTS, name)
    if held is not None or kind is not row.base:
        yield Slot(value, CLASS_AND_DICT, name)


class ObjectJournal:
    """Rows of a slot, whose key is a lens, and what it held when it was noted; the first row of a slot counts."""

    def __init__(self, rows: list[tuple[Slot, Any]] | None = None) -> None:
        self.rows = [] if rows is None else rows

    def note(self, slots: Iterable[Slot]) -> None:
        self.rows += [(slot, slot.held) for slot in slots]

    def note_objects(self, objects: Iterable[Any]) -> None:
        """All that these hold themselves."""
        for value in objects:
            if type(value) not in PLAIN:
                cells = (value.__closure__ if type(value) is FunctionType else None) or ()
                self.note(Slot(cell, CELL) for cell in cells)
                self.note(Slot(value, slot_lens(member)) for member in members_of_class(type(value)))
                self.note(whole_slots_of_object(value))

    def note_all_within(self, value: Any) -> list[tuple[Slot, Any]]:
        """The rows of all that an object holds, at any depth, but for arrays and what belongs to classes."""
        first = len(self.rows)
        self.note_objects(walk_objects(value, _parts_to_note))
        return self.rows[first:]

    def changed(self, reversible: bool = True) -> Iterator[tuple[Slot, Any, Any]]:
        """The slots that hold other things: then, and now. reversible: those where these can be put back."""
        for slot, then in self.rows:
            lens = slot.key
            if (lens.put is not None) is reversible and not lens.same(now := lens.get(slot.holder), then):
                yield slot, then, now

    def undo(self) -> None:
        """Puts all back as it was."""
        for slot, then in reversed(self.rows):
            lens = slot.key
            with suppress(AttributeError, TypeError, ValueError):  # a part that cannot be assigned, a closed file
                if lens.put is not None and not lens.same(lens.get(slot.holder), then):
                    lens.put(slot.holder, then)


def _parts_to_note(value: Any) -> Iterator[Any]:
    return (x for x in parts_of_object(value) if not isinstance(x, (type, ModuleType, np.ndarray)))
