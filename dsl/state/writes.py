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
    slots = {} if issubclass(kind, dict) else slots_of_class(kind)
    items = holder
    if not issubclass(kind, dict) and not all(
        name in slots for name in [*change.removed, *(n for n, *_ in change.put)]
    ):
        items = f"d{holder}"
        yield f"{items} = {holder}.__dict__"
    if change.whole:
        yield f"{items}.clear()"
    for name in change.removed:
        if name in slots:
            yield f"{constant(slots[str(name)].__delete__)}({holder})"
        else:
            yield f"del {items}[{_holder_key_expression(name, constant)}]"
    for (name, *_), value in zip(change.put, values, strict=True):
        if name in slots:
            yield f"{constant(slots[str(name)].__set__)}({holder}, {value})"
        else:
            yield f"{items}[{_holder_key_expression(name, constant)}] = {value}"


def old_value_expression(kind: type, holder: str, name: Hashable, constant: Constant) -> str:
    """An expression for what a holder holds."""
    if kind is list or issubclass(kind, dict):
        return f"{holder}[{_holder_key_expression(name, constant)}]"
    slots = slots_of_class(kind)
    if name in slots:
        return f"{constant(slots[str(name)].__get__)}({holder})"
    return f"{holder}.__dict__[{_holder_key_expression(name, constant)}]"


def _holder_key_expression(name: Hashable, constant: Constant) -> str:
    return repr(name) if type(name) in (str, int) else constant(name)


def objects_watched_by_guards(guards: GuardSet) -> frozenset[int]:
    """The identities of what the trace has read by other ways than its arguments."""
    found = {id(x) for row in guards.rows for x in walk_objects(row.value, contents_of_object)}
    return frozenset(found | {id(row.holder) for row in guards.rows})
