"""What a piece of a traced function changes: names, the contents of containers and objects, and arrays.

A decision on a traced value runs both of its sides while tracing. `ReachableControlFlowState` sees what each has
changed and puts it back, so that the two can be joined; the `ControlFlowWriteJournal` tells which arrays were written.
"""

from __future__ import annotations

import operator
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import (
    BuiltinFunctionType,
    CellType,
    FunctionType,
    GeneratorType,
    MethodType,
    ModuleType,
)
from typing import Any

import numpy as np

from ...compiler.graph.graph import Value
from ...runtime.core.frozen import dataclass
from ..core.errors import TraceError, UnsupportedError
from ..core.object_model import (
    PLAIN,
    builtin_container_base_of_class,
    cell_contents,
    contents_of_object,
    dict_of_object,
    held_by_object,
    is_namespace_class,
    is_user_class,
    slots_of_object,
)
from ..core.object_model import UNSET as NOTHING
from ..trace.trace import Trace, TracedLoopSymbolBase, current_trace
from ..trace.tracer import TracedNumber, Tracer

SMALL = 1 << 20  # bytes of an array of the function's own that are compared
MOST_WALKED = 1 << 21  # values that the decisions of one trace may walk, all together


FAILURE = "_kernelgraph_failure"  # what the slot is called that says which error comes first
_DICTS: tuple[type, ...] = (dict, OrderedDict)


class UnsetVariable:
    """What a name stands for that is not bound."""

    def __repr__(self) -> str:
        return "nothing"


UNSET = UnsetVariable()


@dataclass(frozen=True, slots=True)
class ControlFlowSlot:
    """Where a value is: a name's cell, an item of a list or dict, an object's attribute."""

    holder: Any
    key: Any
    name: str  # what the user calls it

    @property
    def identity(self) -> tuple[int, Any]:
        return id(self.holder), self.key

    @property
    def held(self) -> Any:
        """What it holds now; UNSET where that is nothing."""
        return _contents_of_branch_cell(self.holder) if isinstance(self.holder, CellType) else self.holder[self.key]

    def put(self, value: Any) -> None:
        if isinstance(self.holder, CellType):
            if value is not UNSET:
                self.holder.cell_contents = value
            elif _contents_of_branch_cell(self.holder) is not UNSET:
                del self.holder.cell_contents
        else:
            self.holder[self.key] = value


@dataclass(frozen=True, slots=True)
class ControlFlowSnapshot:
    """The values in all slots, and the containers that have items: each with what it held."""

    values: dict[tuple[int, Any], tuple[ControlFlowSlot, Any]]
    containers: dict[int, tuple[Any, Any, str]]
    others: dict[int, tuple[Any, Any, str]]  # what can change and not be put back, and what tells that it has
    kept: set[int]  # what is held where nothing else can be put: by a tuple, a method


class ReachableControlFlowState:
    """All that some functions can reach and change through names, and what arguments hold."""

    def __init__(self, functions: Sequence[Callable[..., Any]]) -> None:
        self._functions = functions

    def take(self) -> ControlFlowSnapshot:
        found = ControlFlowSnapshot({}, {}, {}, set())
        seen: set[int] = set()
        for function in self._functions:
            _walk_closure_of_branch_function(function, found, seen)
        trace = current_trace()
        if trace is not None:
            slot = ControlFlowSlot(trace.failure, "first", FAILURE)
            found.values[slot.identity] = slot, slot.held
            for holder in trace.holders:  # whatever names them
                _walk_values_reachable_from_branches(holder, type(holder).__name__, found, seen)
            trace.walked_values += len(found.values)
            if trace.walked_values > MOST_WALKED:
                raise UnsupportedError(
                    "traced values decide very often where lists or objects of many values are in reach, all of which "
                    "each decision may change; keep the numbers in arrays",
                    needs_values=True,
                )
        return found


def containers_in_control_flow_value(value: Any) -> dict[int, tuple[Any, Any]]:
    """The tuples, lists, dicts and objects in a value, by their identities: each with what holds its parts."""
    found: dict[int, tuple[Any, Any]] = {}
    todo = [value]
    while todo:
        x = todo.pop()
        if id(x) not in found and (holder := _holder_of_control_flow_value(x)) is not None:
            found[id(x)] = x, holder
            todo += holder.values() if isinstance(holder, dict) else holder
    return found


def _holder_of_control_flow_value(value: Any) -> Any:
    """What holds the parts of a list, dict or object; None of anything else."""
    kind = type(value)
    known = PLAIN | {Tracer, TracedNumber}
    if kind in known or issubclass(kind, (TracedLoopSymbolBase, type)):
        return None
    if builtin_container_base_of_class(kind) in (list, dict, tuple):
        return value
    if not _class_keeps_user_attributes(kind):
        return None
    return dict_of_object(value)


def _class_keeps_user_attributes(kind: type) -> bool:
    """Whether objects of a class are the user's, or Python's own for the user's attributes."""
    return is_user_class(kind) or any(map(is_namespace_class, kind.__mro__))


def _class_holds_values_of_users(kind: type) -> bool:
    """Whether objects of a class hold, as containers or in slots, what users put there; a ufunc's slots are NumPy's."""
    return _class_keeps_user_attributes(kind) or builtin_container_base_of_class(kind) is not None


def _walk_closure_of_branch_function(function: Any, into: ControlFlowSnapshot, visited: set[int]) -> None:
    if id(function) in visited:
        return
    visited.add(id(function))
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        slot = ControlFlowSlot(cell, "", name)
        if slot.identity not in into.values:
            value = _contents_of_branch_cell(cell)
            into.values[slot.identity] = (slot, value)
            _walk_values_reachable_from_branches(value, name, into, visited)


def _contents_of_branch_cell(cell: CellType) -> Any:
    found = cell_contents(cell)
    return UNSET if found is NOTHING else found


def _walk_values_reachable_from_branches(value: Any, name: str, into: ControlFlowSnapshot, visited: set[int]) -> None:
    kind = type(value)
    if (
        kind in PLAIN
        or kind in (Tracer, TracedNumber)
        or issubclass(kind, TracedLoopSymbolBase)
        or id(value) in visited
    ):
        return
    if kind is BuiltinFunctionType and type(value.__self__) is not ModuleType:  # a list's `append`, say
        _walk_kept_parts([value.__self__], name, into, visited)
        return
    if kind is FunctionType:
        if id(value) not in visited:
            _walk_closure_of_branch_function(value, into, visited)
            _walk_kept_parts([*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()], name, into, visited)
        return
    if kind is MethodType:
        _walk_values_reachable_from_branches(value.__func__, name, into, visited)
        _walk_values_reachable_from_branches(value.__self__, name, into, visited)
        return
    held: Any = None
    if kind is list:
        held = {i: x for i, x in enumerate(value)}
    elif kind in _DICTS:
        held = value
    elif kind is tuple:
        visited.add(id(value))
        for i, x in enumerate(value):
            if type(x) not in PLAIN:
                into.kept.add(id(x))
                _walk_values_reachable_from_branches(x, f"{name}[{i}]", into, visited)
        return
    elif kind in (set, deque, bytearray):
        visited.add(id(value))
        into.containers[id(value)] = (value, kind(value), name)
        if kind is deque:
            _walk_kept_parts(value, name, into, visited)
        return
    else:
        visited.add(id(value))
        if not isinstance(value, type) and _class_holds_values_of_users(kind):
            _walk_kept_parts(_parts_of_object(value), name, into, visited)
        mark = _snapshot_mark_of_object(value, name)
        if mark is not None:
            into.others[id(value)] = (value, mark, name)
        if not _class_keeps_user_attributes(kind) or isinstance(value, type):
            return
        held = dict_of_object(value)
        if held is None:
            return
    visited.add(id(value))
    holder = value if kind is list or kind in _DICTS else held
    into.containers[id(holder)] = (holder, [*value] if kind is list else dict(held), name)
    for key, x in [*held.items()]:
        label = f"{name}[{key!r}]" if holder is value else f"{name}.{key}"
        slot = ControlFlowSlot(holder, key, label)
        into.values[slot.identity] = (slot, x)
        _walk_values_reachable_from_branches(x, label, into, visited)


def _walk_kept_parts(parts: Iterable[Any], name: str, into: ControlFlowSnapshot, visited: set[int]) -> None:
    """Of what is held where nothing else can be put."""
    for x in parts:
        if type(x) not in PLAIN:
            into.kept.add(id(x))
            _walk_values_reachable_from_branches(x, name, into, visited)


def _parts_of_object(value: Any) -> list[Any]:
    """What an object holds as a container, in slots, and as a `functools.partial`."""
    held = held_by_object(value) if type(value) is partial else []
    return [*contents_of_object(value), *held, *(x for _, x in slots_of_object(value))]


def _snapshot_mark_of_object(value: Any, name: str) -> tuple[Any, ...] | None:
    """What differs once an object has changed, as far as it is not seen elsewhere; None if there is nothing."""
    kind = type(value)
    if isinstance(value, np.ndarray):
        return (value.tobytes(),) if value.flags.writeable and value.nbytes <= SMALL else None
    if hasattr(kind, "__next__"):
        return _iterator_progress(value, name)
    held = _parts_of_object(value)
    return tuple(map(_SameObject, held)) if held or builtin_container_base_of_class(kind) is not None else None


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


def restore_variables_of_snapshot(then: ControlFlowSnapshot) -> None:
    """Puts all back as it was."""
    for holder, held, _ in then.containers.values():
        if isinstance(holder, list):
            holder[:] = held
        elif isinstance(holder, (dict, set)):
            holder.clear()
            holder.update(held)
        elif isinstance(holder, deque):
            holder.clear()
            holder.extend(held)
        else:
            holder[:] = held
    for slot, value in then.values.values():
        if isinstance(slot.holder, CellType) or slot.name == FAILURE:
            slot.put(value)


def check_others_unchanged(then: ControlFlowSnapshot, now: ControlFlowSnapshot) -> None:
    """Raises TraceError where what cannot be put back, such as an iterator, has changed."""
    for number, (_, mark, name) in then.others.items():
        if number in now.others and now.others[number][1] != mark:
            raise TraceError(
                f"{name} changes where a traced value decides, and cannot be put back; use lists and dicts that keep "
                "their size, or arrays",
                needs_values=True,
            )


def changes_between_control_flow_snapshots(
    then: ControlFlowSnapshot, now: ControlFlowSnapshot
) -> dict[tuple[int, Any], tuple[ControlFlowSlot, Any, Any]]:
    """The slots that hold other values: then, and now. Raises TraceError where a container has grown or shrunk."""
    for number, (holder, held, name) in then.containers.items():
        after = now.containers.get(number)
        if after is None:  # nobody has it any more
            continue
        if isinstance(holder, (list, dict)):
            same = len(after[1]) == len(held) and (isinstance(holder, list) or [*after[1]] == [*held])
        else:
            same = after[1] == held
        if not same:
            raise TraceError(
                f"{name} changes its size, or which keys it has, where a traced value decides; assign to elements that "
                "are there already, or collect values in an array",
                needs_values=True,
            )
    check_others_unchanged(then, now)
    found = {}
    for identity, (slot, value) in then.values.items():
        after_value = now.values[identity][1] if identity in now.values else value
        if not isinstance(slot.holder, CellType) and identity not in now.values:
            after_value = slot.holder[slot.key]
        if after_value is not value:
            found[identity] = (slot, value, after_value)
    return found


class ControlFlowWriteJournal:
    """The arrays that were written to, as they were before, and those that were made."""

    def __init__(self) -> None:
        self.written: dict[int, tuple[Tracer, Value]] = {}
        self.made: dict[int, Tracer] = {}

    def note(self, root: Tracer) -> None:
        if id(root) not in self.made:
            self.written.setdefault(id(root), (root, root._held))


@contextmanager
def journal_writes_of_control_flow(trace: Trace) -> Iterator[ControlFlowWriteJournal]:
    """Writes down what is written to."""
    before, trace.journal = trace.journal, ControlFlowWriteJournal()
    found = trace.journal
    try:
        yield found
    finally:
        trace.journal = before
        if before is not None:
            before.made.update(found.made)


def write_array_value_with_journal(trace: Trace, root: Tracer, value: Value) -> None:
    """Gives an array another value, with the knowledge of the journal around."""
    if trace.journal is not None:
        trace.journal.note(root)
    root._held = value
