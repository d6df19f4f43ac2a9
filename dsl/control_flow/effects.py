"""What a piece of a traced function changes: names, the contents of containers and objects, and arrays.

A decision on a traced value runs both of its sides while tracing. A `Journal` knows what each name, container and
object in reach held before, and each array that was written to: it tells what has changed and puts it back, so that
the two sides can be joined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from operator import length_hint
from sys import modules
from types import CellType, FunctionType, GeneratorType, ModuleType
from typing import Any

import numpy as np

from ...compiler.graph.graph import Value
from ...runtime.core.readable_text import with_article
from ..core.errors import Refusal, TraceError, UnsupportedError
from ..core.object_journal import (
    CELL,
    CONTENTS,
    Contents,
    ObjectJournal,
    Slot,
    slot_lens,
    whole_slots_of_object,
)
from ..core.object_model import (
    MRO,
    ORIGINAL,
    PLAIN,
    UNSET,
    VARS,
    WITH_ITEMS,
    Lens,
    are_same_objects,
    builtin_container_base_of_class,
    held_by_object,
    is_namespace_class,
    is_user_class,
    members_of_class,
    named_parts_of_object,
    parts_of_object,
    row_of_class,
    walk_objects,
)
from ..core.object_state import UNREAD_MEMBERS, is_weak_reference_class
from ..trace.trace import Trace, TracedLoopSymbolBase, TraceRestart, current_trace
from ..trace.tracer import TracedNumber, Tracer

SMALL = 1 << 20  # bytes of an array of the function's own that are compared
MOST_WALKED = 1 << 21  # values that the decisions of one trace may walk, all together


FAILURE = "_kernelgraph_failure"  # what the slot is called that says which error comes first
_KNOWN = PLAIN | {Tracer, TracedNumber}
Changes = dict[tuple[int, Any], tuple[Slot, Any, Any]]


def containers_in_control_flow_value(value: Any) -> Iterator[Any]:
    """The tuples, lists, dicts and objects in a value."""
    found = walk_objects(value, lambda x: parts_of_object(x) if _is_container(x) else ())
    return filter(_is_container, found)


def _is_container(value: Any) -> bool:
    kind = type(value)
    if kind in _KNOWN or issubclass(kind, (TracedLoopSymbolBase, type)):
        return False
    return builtin_container_base_of_class(kind) in (list, dict, tuple) or _class_keeps_user_attributes(kind)


def _class_keeps_user_attributes(kind: type) -> bool:
    """Whether objects of a class are the user's, or Python's own for the user's attributes."""
    return is_user_class(kind) or any(map(is_namespace_class, MRO(kind))) or is_weak_reference_class(kind)


class Journal(ObjectJournal):
    """What all held that some functions reach through names, and what arguments hold, when it was begun.

    slots: what names, items and attributes held. rows: what can grow; and what cannot be put back, such as iterators.
    kept: what is held where nothing else can be put: by a tuple, a method.
    written: the arrays that were written to while it was open, as they were; made: those that were made."""

    def __init__(self, functions: Iterable[Callable[..., Any]]) -> None:
        super().__init__()
        self.slots: dict[tuple[int, Any], tuple[Slot, Any]] = {}
        self.kept: set[int] = set()
        self.written: dict[int, tuple[Tracer, Value]] = {}
        self.made: dict[int, Tracer] = {}
        self._walked: set[int] = set()
        for function in functions:
            self._walk_closure(function)
        trace = current_trace()
        if trace is None:
            return
        slot = Slot(trace.failure, "first", FAILURE)
        self.slots[slot.identity] = slot, slot.held
        for holder in trace.holders:  # whatever names them
            self._walk(holder, type(holder).__name__)
        trace.walked_values += len(self.slots)
        if trace.walked_values > MOST_WALKED:
            raise UnsupportedError(
                "traced values decide very often where lists or objects of many values are in reach, all of which "
                "each decision may change; keep the numbers in arrays"
            )

    # what is in reach

    def _walk(self, value: Any, name: str) -> None:
        kind = type(value)
        if id(value) in self._walked or issubclass(kind, TracedLoopSymbolBase) or kind in _KNOWN:
            return
        self._walked.add(id(value))
        if kind is CellType:
            self._note(Slot(value, CELL, name))
        elif issubclass(kind, type):
            if is_user_class(value) and ORIGINAL not in VARS(value):  # else it cannot change
                own = [x for key, x in VARS(value).items() if key not in UNREAD_MEMBERS]
                self._keep((*MRO(value)[1:], *own), name)
                self.note(whole_slots_of_object(value, name))
        elif isinstance(value, np.ndarray) or (hasattr(kind, "__next__") and not _class_keeps_user_attributes(kind)):
            self.note([Slot(value, Lens(partial(_mark_of_object, name=name), same=are_same_objects), name)])
        else:
            self._walk_parts(value, name)

    def _walk_closure(self, function: Any) -> None:
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            self._note(Slot(cell, CELL, name))

    def _walk_parts(self, value: Any, name: str) -> None:
        kind = type(value)
        row = row_of_class(kind)
        made = kind is ModuleType and value.__name__ not in modules
        if row.base is object and not (made or _class_keeps_user_attributes(kind)):
            return
        if row.held:
            self._keep(held_by_object(value), name)
        if kind is FunctionType:
            self._walk_closure(value)
        elif kind is not row.base:
            self._walk(kind, kind.__name__)
        if row.is_made_whole:
            self._keep(named_parts_of_object(value, row)[1], name)
        first = len(self.rows)
        self.note(whole_slots_of_object(value, name))
        for slot, then in self.rows[first:]:
            if slot.key is CONTENTS:
                self._note_items(slot, then, slot.holder is value)
        for member in members_of_class(kind):
            self._note(Slot(value, slot_lens(member), f"{name}.{member.__name__}"))

    def _note_items(self, whole: Slot, then: Contents, own: bool) -> None:
        """own: whether they are the user's own, and no attributes."""
        (names, parts), name = then, whole.name
        if type(whole.holder) not in WITH_ITEMS:
            self._keep(parts, name)
            return
        for key in names or range(len(parts)):
            self._note(Slot(whole.holder, key, f"{name}[{key!r}]" if own else f"{name}.{key}"))

    def _note(self, slot: Slot) -> None:
        if (place := slot.identity) not in self.slots:
            value = slot.held
            self.slots[place] = slot, value
            if type(value) not in _KNOWN:
                self._walk(value, slot.name)

    def _keep(self, parts: Iterable[Any], name: str) -> None:
        """What is held where nothing else can be put."""
        for x in parts:
            if type(x) not in PLAIN:
                self.kept.add(id(x))
                self._walk(x, name)

    # arrays

    @contextmanager
    def opened(self, trace: Trace) -> Iterator[None]:
        """Writes down which arrays are written to, and made, from now on."""
        self.written, self.made = {}, {}
        before, trace.journal = trace.journal, self
        try:
            yield
        except (TraceRestart, Refusal):  # after which a loop around may go back
            self.undo_array_writes()
            raise
        finally:
            trace.journal = before
            if before is not None:
                before.made.update(self.made)

    def may_detach(self, root: Tracer) -> bool:
        """Whether a view of an array may get memory of its own, which is not put back."""
        return id(root) in self.made

    def note_array_write(self, root: Tracer) -> None:
        if id(root) not in self.made:
            self.written.setdefault(id(root), (root, root._held))

    # what has changed

    def changes(self) -> Changes:
        """The slots that hold other values: then, and now. Raises TraceError where a container has grown or shrunk."""
        for slot, then, now in self.changed():
            with_slots = slot.key is CONTENTS and type(slot.holder) in WITH_ITEMS
            if not with_slots or now[0] != then[0] or len(now[1]) != len(then[1]):
                raise _changed_size(slot.name) if slot.key is CONTENTS else _changed_state(slot)
        self.check_others_unchanged()
        now_held = ((key, slot, value, slot.held) for key, (slot, value) in self.slots.items())
        found = {key: (slot, value, now) for key, slot, value, now in now_held if now is not value}
        for slot, value, now in found.values():
            if (value is UNSET or now is UNSET) and type(slot.key) is Lens and slot.key is not CELL:
                raise _changed_size(slot.name)
        return found

    def check_others_unchanged(self) -> None:
        """Raises TraceError where what cannot be put back, such as an iterator, or what lies outside, has changed."""
        if (trace := current_trace()) is not None:
            trace.world.check_unwritten()  # the other side may write what was there before
        for slot, *_ in self.changed(reversible=False):
            raise TraceError(
                f"{slot.name} changes where a traced value decides, and cannot be put back; use lists and dicts that "
                "keep their size, or arrays"
            )

    def undo(self) -> None:
        """Puts all back as it was."""
        self.undo_array_writes()
        super().undo()
        for slot, value in self.slots.values():
            if slot.held is not value:
                slot.put(value)

    def undo_array_writes(self) -> None:
        """Gives the arrays back what they were."""
        for root, old in self.written.values():
            root._held = old


def _changed_state(slot: Slot) -> TraceError:
    return TraceError(
        f"{slot.name}, {with_article(type(slot.holder).__name__)}, changes otherwise than in its attributes where a "
        "traced value decides; make one on each side"
    )


def _changed_size(name: str) -> TraceError:
    return TraceError(
        f"{name} changes its size, or which keys it has, where a traced value decides; assign to elements that are "
        "there already, or collect values in an array"
    )


def _mark_of_object(value: Any, name: str) -> list[Any]:
    """What differs once an array or iterator has changed."""
    if isinstance(value, np.ndarray):
        return [value.tobytes()] if value.flags.writeable and value.nbytes <= SMALL else []
    return _iterator_progress(value, name)


def _iterator_progress(iterator: Any, name: str) -> list[Any]:
    """How far an iterator has come. Raises TraceError where that cannot be seen."""

    def inner(parts: Iterable[Any]) -> Iterator[Any]:
        for x in parts:
            if hasattr(type(x), "__next__") and x is not iterator:
                yield from _iterator_progress(x, name)

    if isinstance(iterator, GeneratorType):
        frame = iterator.gi_frame
        held = [] if frame is None else [*frame.f_locals.values()]
        return [frame and frame.f_lasti, *held, *inner(held)]
    if hasattr(type(iterator), "__length_hint__"):
        return [length_hint(iterator)]
    try:
        _, arguments, *state = iterator.__reduce__()
    except Exception:
        raise TraceError(
            f"the iterator {name} cannot be used where a traced value decides; make a list of it before"
        ) from None
    parts = [*arguments, *(x for held in state for x in (held if type(held) is tuple else (held,)))]
    return [*(x for x in parts if type(x) in PLAIN), *inner(parts)]


def write_array_value_with_journal(trace: Trace, root: Tracer, value: Value) -> None:
    """Gives an array another value, with the knowledge of the journal around."""
    if trace.journal is not None:
        trace.journal.note_array_write(root)
    root._held = value
