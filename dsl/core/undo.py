"""Objects that traced code sees as they are: their state is kept, and put back where the function has changed it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from contextvars import Context, ContextVar
from functools import partial
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from .object_model import (
    PLAIN,
    UNSET,
    VARS,
    are_same_objects,
    contents_of_object,
    dict_of_object,
    held_value,
    members_of_class,
    row_of_class,
    slot_value,
    walk_objects,
)

Undo = Callable[[], None]
_PYTHONS = ("__dict__", "__weakref__", "_abc_impl")
_LEFT_OUT = (type, ModuleType, np.ndarray)


def restorer_of_objects(objects: Iterable[Any]) -> Undo:
    """What puts all of these objects back into the state that they are in now."""
    steps = [step for value in objects if type(value) not in PLAIN for step in _steps_to_restore_object(value)]

    def restore_state_of_objects() -> None:
        for step in steps:
            with suppress(AttributeError, TypeError):  # a part that cannot be assigned
                step()

    return restore_state_of_objects


def restorer_of_attributes(value: Any) -> Undo:
    """What puts this object back, and what it holds at any depth. Arrays and what belongs to classes are left out."""

    def parts(item: Any) -> Iterator[Any]:
        held = (*(dict_of_object(item) or {}).values(), *contents_of_object(item))
        return (x for x in held if not isinstance(x, _LEFT_OUT))

    return restorer_of_objects(walk_objects(value, parts))


def _steps_to_restore_object(value: Any) -> Iterator[Undo]:
    kind = type(value)
    row = row_of_class(kind)
    if isinstance(value, type):
        yield partial(_restore_members_of_class, value, dict(VARS(value)))
        return
    if isinstance(value, np.ndarray):
        if value.flags.writeable:
            yield partial(_restore_array_of_object, value, value.view(np.ndarray).copy(), value.dtype, value.shape)
    elif row.put is not None and row.items is not None:
        yield partial(_restore_container_of_object, value, row.put, contents_of_object(value), [*row.items(value)])
    if row.state is not None and row.put_state is not None:
        yield partial(row.put_state, value, row.state(value))
    for name in row.assigned:
        if (held := held_value(value, name)) is not UNSET:
            yield partial(setattr, value, name, held)
    if kind is FunctionType:
        for cell in value.__closure__ or ():
            yield from _steps_to_restore_object(cell)
    elif kind is partial:
        yield partial(value.__setstate__, (value.func, value.args, value.keywords, vars(value)))
    elif kind is Context:
        yield partial(_restore_variables_of_context, value, dict(value))
    elif kind is ContextVar:
        yield partial(_restore_state_of_context_variable, value, value.get(UNSET))
    for slot in members_of_class(kind):
        held = slot_value(slot, value)
        yield partial(slot.__delete__, value) if held is UNSET else partial(slot.__set__, value, held)
    if (attributes := dict_of_object(value)) is not None:
        yield partial(_restore_attributes_of_object, value, attributes, dict(attributes))


def _restore_members_of_class(kind: type, then: dict[str, Any]) -> None:
    now = dict(VARS(kind))
    names = [*then]
    same = 0
    for a, b in zip(now, names, strict=False):
        if a != b or now[a] is not then[b]:
            break
        same += 1
    if same == len(now) == len(then):
        return
    for name in [*now][same:]:  # all that follow: they keep their order
        if name not in _PYTHONS:
            with suppress(AttributeError, TypeError):
                type.__delattr__(kind, name)
    for name in names[same:]:
        if name not in _PYTHONS:
            with suppress(AttributeError, TypeError):
                type.__setattr__(kind, name, then[name])


def _restore_array_of_object(
    value: np.ndarray[Any, Any], then: np.ndarray[Any, Any], dtype: Any, shape: tuple[int, ...]
) -> None:
    if value.dtype != dtype:
        value.dtype = dtype  # type: ignore[misc]
    if value.shape != shape:
        value.shape = shape
    np.copyto(value, then)


def _restore_state_of_context_variable(variable: ContextVar[Any], then: Any) -> None:
    """One that held nothing gets its default: Python takes no value out without the token of what has put it there."""
    if variable.get(UNSET) is not then:
        with suppress(LookupError):
            variable.set(Context().run(variable.get) if then is UNSET else then)


def _restore_variables_of_context(context: Context, then: dict[ContextVar[Any], Any]) -> None:
    for variable, value in then.items():
        if context[variable] is not value:
            context.run(variable.set, value)


def _restore_attributes_of_object(value: Any, held: dict[str, Any], then: dict[str, Any]) -> None:
    if dict_of_object(value) is not held:
        object.__setattr__(value, "__dict__", held)
    if not are_same_objects(contents_of_object(held), contents_of_object(then)):
        held.clear()
        held.update(then)


def _restore_container_of_object(
    value: Any, put: Callable[[Any, Any], None], then: list[Any], items: list[Any]
) -> None:
    if not are_same_objects(contents_of_object(value), then):
        put(value, items)
