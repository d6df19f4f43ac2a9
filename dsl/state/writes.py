"""What a call does to a holder of its arguments, as lines of the function that runs it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any

from ..core.object_model import contents_of_object, slots_of_class, walk_objects
from ..environment.guards import GuardSet
from .changes import HolderChange

Constant = Callable[[Any], str]  # a name for a value that the lines use


def source_lines_of_state_change(change: HolderChange, kind: type, holder: str, constant: Constant) -> Iterator[str]:
    """Lines that carry out a change. holder: its name; value number i is in `{holder}_{i}`."""
    values = [f"{holder}_{i}" for i in range(len(change.put))]
    if kind is list:
        if change.whole:
            yield f"{holder}[:] = [{', '.join(values)}]"
        else:
            yield from (f"{holder}[{i}] = {v}" for (i, *_), v in zip(change.put, values, strict=True))
        return
    names = [*change.removed, *(name for name, *_ in change.put)]
    items = holder
    if not issubclass(kind, dict) and not all(name in slots_of_class(kind) for name in names):
        items = f"d{holder}"
        yield f"{items} = {holder}.__dict__"
    if change.whole:
        yield f"{items}.clear()"
    for name in change.removed:
        slot = _slot_of_holder(kind, name)
        key = _holder_key_expression(name, constant)
        yield f"del {items}[{key}]" if slot is None else f"{constant(slot.__delete__)}({holder})"
    for (name, *_), value in zip(change.put, values, strict=True):
        slot = _slot_of_holder(kind, name)
        key = _holder_key_expression(name, constant)
        yield f"{items}[{key}] = {value}" if slot is None else f"{constant(slot.__set__)}({holder}, {value})"


def old_value_expression(kind: type, holder: str, name: Hashable, constant: Constant) -> str:
    """An expression for what a holder holds."""
    if (slot := _slot_of_holder(kind, name)) is not None:
        return f"{constant(slot.__get__)}({holder})"
    items = holder if kind is list or issubclass(kind, dict) else f"{holder}.__dict__"
    return f"{items}[{_holder_key_expression(name, constant)}]"


def _slot_of_holder(kind: type, name: Hashable) -> Any:
    return None if issubclass(kind, (list, dict)) else slots_of_class(kind).get(str(name))


def _holder_key_expression(name: Hashable, constant: Constant) -> str:
    return repr(name) if type(name) in (str, int) else constant(name)


def objects_watched_by_guards(guards: GuardSet) -> frozenset[int]:
    """The identities of what the trace has read by other ways than its arguments."""
    found = {id(x) for row in guards.rows for x in walk_objects(row.value, contents_of_object)}
    return frozenset(found | {id(row.holder) for row in guards.rows})
