"""What a piece of a traced function changes: names, the contents of containers and objects, and arrays.

A decision on a traced value runs both of its sides while tracing. A `Journal` knows what each name, container and
object in reach held before, and each array that was written to: it tells what has changed and puts it back, so that
the two sides can be joined.
"""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import BuiltinFunctionType, CellType, FunctionType, GeneratorType, MemberDescriptorType, ModuleType
from typing import Any

import numpy as np

from ...compiler.graph.graph import Value
from ...runtime.core.frozen import dataclass
from ..core.errors import Refusal, TraceError, UnsupportedError
from ..core.object_model import (
    PLAIN,
    are_same_objects,
    builtin_container_base_of_class,
    cell_contents,
    dict_of_object,
    held_by_object,
    is_namespace_class,
    is_user_class,
    members_of_class,
    named_parts_of_object,
    parts_of_object,
    put_parts,
    row_of_class,
    slot_value,
    walk_objects,
)
from ..core.object_model import UNSET as NOTHING
from ..trace.trace import Trace, TracedLoopSymbolBase, TraceRestart, current_trace
from ..trace.tracer import TracedNumber, Tracer

SMALL = 1 << 20  # bytes of an array of the function's own that are compared
MOST_WALKED = 1 << 21  # values that the decisions of one trace may walk, all together


FAILURE = "_kernelgraph_failure"  # what the slot is called that says which error comes first
_WITH_SLOTS: tuple[type, ...] = (list, dict, OrderedDict)  # whose items are assigned past no method of a class
_KNOWN = PLAIN | {Tracer, TracedNumber}


class UnsetVariable:
    """What a name stands for that is not bound."""

    def __repr__(self) -> str:
        return "nothing"


UNSET = UnsetVariable()


@dataclass(frozen=True, slots=True)
class ControlFlowSlot:
    """Where a value is: a name's cell, an item of a list or dict, an object's attribute or slot."""

    holder: Any
    key: Any
    name: str  # what the user calls it

    @property
    def identity(self) -> tuple[int, Any]:
        return id(self.holder), self.key

    @property
    def held(self) -> Any:
        """What it holds now; UNSET where that is nothing."""
        if isinstance(self.holder, CellType):
            found = cell_contents(self.holder)
        elif isinstance(self.key, MemberDescriptorType):
            found = slot_value(self.key, self.holder)
        else:
            return self.holder[self.key]
        return UNSET if found is NOTHING else found

    def put(self, value: Any) -> None:
        if isinstance(self.holder, CellType):
            if value is not UNSET:
                self.holder.cell_contents = value
            elif self.held is not UNSET:
                del self.holder.cell_contents
        elif isinstance(self.key, MemberDescriptorType):
            self.key.__delete__(self.holder) if value is UNSET else self.key.__set__(self.holder, value)
        else:
            self.holder[self.key] = value


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
    return is_user_class(kind) or any(map(is_namespace_class, kind.__mro__))


class Journal:
    """What all held that some functions reach through names, and what arguments hold, when it was begun.

    slots: what each held. containers: what can grow, with its names and parts. others: what can change and not be put
    back, with what tells that it has. kept: what is held where nothing else can be put: by a tuple, a method.
    written: the arrays that were written to while it was open, as they were; made: those that were made."""

    def __init__(self, functions: Iterable[Callable[..., Any]]) -> None:
        self.slots: dict[tuple[int, Any], tuple[ControlFlowSlot, Any]] = {}
        self.containers: dict[int, tuple[Any, tuple[Any, ...], list[Any], str]] = {}
        self.dicts: list[tuple[Any, dict[str, Any], str]] = []  # of objects, which may get another one
        self.others: list[tuple[Any, Any, str]] = []
        self.kept: set[int] = set()
        self.written: dict[int, tuple[Tracer, Value]] = {}
        self.made: dict[int, Tracer] = {}
        self._walked: set[int] = set()
        for function in functions:
            self._walk_closure(function)
        trace = current_trace()
        if trace is None:
            return
        slot = ControlFlowSlot(trace.failure, "first", FAILURE)
        self.slots[slot.identity] = slot, slot.held
        for holder in trace.holders:  # whatever names them
            self._walk(holder, type(holder).__name__)
        trace.walked_values += len(self.slots)
        if trace.walked_values > MOST_WALKED:
            raise UnsupportedError(
                "traced values decide very often where lists or objects of many values are in reach, all of which "
                "each decision may change; keep the numbers in arrays",
                needs_values=True,
            )

    # what is in reach

    def _walk(self, value: Any, name: str) -> None:
        kind = type(value)
        if kind in _KNOWN or issubclass(kind, (TracedLoopSymbolBase, type)) or id(value) in self._walked:
            return
        self._walked.add(id(value))
        if kind is FunctionType:
            self._walk_closure(value)
            self._keep([*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()], name)
        elif kind is BuiltinFunctionType and type(value.__self__) is ModuleType:
            return
        elif isinstance(value, np.ndarray) or (hasattr(kind, "__next__") and not _class_keeps_user_attributes(kind)):
            self.others.append((value, _mark_of_object(value, name), name))
        else:
            self._walk_parts(value, name)

    def _walk_closure(self, function: Any) -> None:
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            self._note(ControlFlowSlot(cell, "", name))

    def _walk_parts(self, value: Any, name: str) -> None:
        kind = type(value)
        row = row_of_class(kind)
        self._keep(held_by_object(value), name)
        if row.items is not None:
            names, parts = named_parts_of_object(value, row)
            if row.put is not None:
                self.containers[id(value)] = value, names, parts, name
            if kind in _WITH_SLOTS:
                for key in names if row.family is dict else range(len(parts)):
                    self._note(ControlFlowSlot(value, key, f"{name}[{key!r}]"))
            else:
                self._keep(parts, name)
        elif not _class_keeps_user_attributes(kind):
            return
        for member in members_of_class(kind):
            self._note(ControlFlowSlot(value, member, f"{name}.{member.__name__}"))
        if (held := dict_of_object(value)) is not None:
            self.dicts.append((value, held, name))
            self.containers[id(held)] = held, tuple(held), [*held.values()], name
            for key in [*held]:
                self._note(ControlFlowSlot(held, key, f"{name}.{key}"))

    def _note(self, slot: ControlFlowSlot) -> None:
        if slot.identity not in self.slots:
            value = slot.held
            self.slots[slot.identity] = slot, value
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
        """Writes down which arrays are written to, and made."""
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

    def note(self, root: Tracer) -> None:
        if id(root) not in self.made:
            self.written.setdefault(id(root), (root, root._held))

    # what has changed

    def changes(self) -> dict[tuple[int, Any], tuple[ControlFlowSlot, Any, Any]]:
        """The slots that hold other values: then, and now. Raises TraceError where a container has grown or shrunk."""
        for holder, names, parts, name in self.containers.values():
            now_names, now = named_parts_of_object(holder)
            same = len(now) == len(parts) and now_names == names
            if not same or not (type(holder) in _WITH_SLOTS or are_same_objects(now, parts)):
                raise _changed_size(name)
        for value, held, name in self.dicts:
            if dict_of_object(value) is not held:
                raise _changed_size(name)
        self.check_others_unchanged()
        now_held = ((key, slot, value, slot.held) for key, (slot, value) in self.slots.items())
        found = {key: (slot, value, now) for key, slot, value, now in now_held if now is not value}
        for slot, value, now in found.values():
            if isinstance(slot.key, MemberDescriptorType) and (value is UNSET or now is UNSET):
                raise _changed_size(slot.name)
        return found

    def check_others_unchanged(self) -> None:
        """Raises TraceError where what cannot be put back, such as an iterator, has changed."""
        for value, mark, name in self.others:
            if _mark_of_object(value, name) != mark:
                raise TraceError(
                    f"{name} changes where a traced value decides, and cannot be put back; use lists and dicts that "
                    "keep their size, or arrays",
                    needs_values=True,
                )

    def undo(self) -> None:
        """Puts all back as it was."""
        self.undo_array_writes()
        for value, held, _ in self.dicts:
            if dict_of_object(value) is not held:
                object.__setattr__(value, "__dict__", held)
        for holder, names, parts, _ in self.containers.values():
            now_names, now = named_parts_of_object(holder)
            if now_names != names or not are_same_objects(now, parts):
                row = row_of_class(type(holder))
                made = len(row.settings)
                put_parts(holder, names[made:], parts[made:], row)
        for slot, value in self.slots.values():
            if slot.held is not value:
                slot.put(value)

    def undo_array_writes(self) -> None:
        """Gives the arrays back what they were."""
        for root, old in self.written.values():
            root._held = old


def _changed_size(name: str) -> TraceError:
    return TraceError(
        f"{name} changes its size, or which keys it has, where a traced value decides; assign to elements that are "
        "there already, or collect values in an array",
        needs_values=True,
    )


def _mark_of_object(value: Any, name: str) -> Any:
    """What differs once an array or iterator has changed."""
    if isinstance(value, np.ndarray):
        return value.tobytes() if value.flags.writeable and value.nbytes <= SMALL else None
    return _iterator_progress(value, name)


class _SameObject:
    """Equal for the same object, which it keeps alive."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _SameObject) and self.value is other.value

    __hash__ = None  # type: ignore[assignment]


def _iterator_progress(iterator: Any, name: str) -> tuple[Any, ...]:
    """How far an iterator has come. Raises TraceError where that cannot be seen."""
    if isinstance(iterator, GeneratorType):
        frame = iterator.gi_frame
        held = {} if frame is None else frame.f_locals
        inner = [
            _iterator_progress(x, name) for x in held.values() if hasattr(type(x), "__next__") and x is not iterator
        ]
        return (frame and frame.f_lasti, *inner, *map(_SameObject, held.values()))
    if hasattr(type(iterator), "__length_hint__"):
        return (operator.length_hint(iterator),)
    try:
        _, arguments, *state = iterator.__reduce__()
    except Exception:
        raise TraceError(
            f"the iterator {name} cannot be used where a traced value decides; make a list of it before",
            needs_values=True,
        ) from None
    parts = [*arguments, *(x for held in state for x in (held if type(held) is tuple else (held,)))]
    return tuple(
        _iterator_progress(x, name) if hasattr(type(x), "__next__") else x
        for x in parts
        if type(x) in PLAIN or hasattr(type(x), "__next__")
    )


def write_array_value_with_journal(trace: Trace, root: Tracer, value: Value) -> None:
    """Gives an array another value, with the knowledge of the journal around."""
    if trace.journal is not None:
        trace.journal.note(root)
    root._held = value
