"""Objects that traced code sees as they are: their state is kept, and put back where the function has changed it."""

from __future__ import annotations

import array
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from contextvars import Context, ContextVar
from functools import partial
from types import FunctionType, MemberDescriptorType, ModuleType
from typing import Any

import numpy as np

from .object_state import (
    PLAIN,
    builtin_container_base_of_class,
    contents_of_container_object,
    is_slot_set,
    state_pairs_of_dict,
)

Undo = Callable[[], None]
_UNSET = object()
_NAMES = type.__dict__["__dict__"].__get__
_PYTHONS = ("__dict__", "__weakref__", "_abc_impl")


def restorer_of_objects(objects: Iterable[Any]) -> Undo:
    """What puts all of these objects back into the state that they are in now."""
    steps = [step for value in objects if type(value) not in PLAIN for step in _steps_to_restore_object(value)]

    def restore_state_of_objects() -> None:
        for step in steps:
            step()

    return restore_state_of_objects


def restorer_of_attributes(value: Any) -> Undo:
    """What puts this object back, and what it holds at any depth. Arrays and what belongs to classes are left out."""
    found, todo = {id(value): value}, [value]
    while todo:
        item = todo.pop()
        base = builtin_container_base_of_class(type(item))
        for x in (*_attributes_of_object(item).values(), *(contents_of_container_object(base, item) if base else ())):
            if type(x) not in PLAIN and not isinstance(x, (type, ModuleType, np.ndarray)) and id(x) not in found:
                found[id(x)] = x
                todo.append(x)
    return restorer_of_objects(found.values())


def _attributes_of_object(value: Any) -> dict[str, Any]:
    """The dict in which an object keeps its attributes, past ways of its class; an empty one where there is none."""
    try:
        held = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return held if type(held) is dict else {}


def _steps_to_restore_object(value: Any) -> Iterator[Undo]:
    kind = type(value)
    if isinstance(value, type):
        yield partial(_restore_members_of_class, value, dict(_NAMES(value)))
        return
    if issubclass(kind, np.ndarray):
        if value.flags.writeable:
            yield partial(_restore_array_of_object, value, value.view(np.ndarray).copy(), value.dtype, value.shape)
        return
    if kind is FunctionType:
        parts = value.__code__, value.__defaults__, value.__kwdefaults__
        yield partial(
            _restore_state_of_function,
            value,
            parts,
            [(c, *_state_contents_of_cell(c)) for c in value.__closure__ or ()],
        )
    elif kind is partial:
        yield partial(value.__setstate__, (value.func, value.args, value.keywords, vars(value)))
    elif (base := builtin_container_base_of_class(kind)) is not None and base not in (tuple, frozenset):
        yield partial(_restore_container_of_object, value, base, _state_items_of_container(value, base))
    elif issubclass(kind, BaseException):
        yield partial(setattr, value, "args", value.args)
    elif kind is Context:
        yield partial(_restore_variables_of_context, value, dict(value))
    elif kind is ContextVar:
        yield partial(_restore_state_of_context_variable, value, value.get(_UNSET))
    for slot in (m for b in kind.__mro__ for m in _NAMES(b).values() if type(m) is MemberDescriptorType):
        then = slot.__get__(value) if is_slot_set(value, slot) else _UNSET
        yield partial(_restore_slot_of_object, value, slot, then)
    with suppress(AttributeError):
        held = object.__getattribute__(value, "__dict__")
        if type(held) is dict:
            yield partial(_restore_attributes_of_object, value, held, dict(held))


def _restore_members_of_class(kind: type, then: dict[str, Any]) -> None:
    now = dict(_NAMES(kind))
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


def _state_contents_of_cell(cell: Any) -> tuple[Any, ...]:
    try:
        return (cell.cell_contents,)
    except ValueError:
        return ()


def _restore_state_of_function(function: Any, parts: tuple[Any, ...], cells: list[tuple[Any, ...]]) -> None:
    function.__code__, function.__defaults__, function.__kwdefaults__ = parts
    for cell, *content in cells:
        if content:
            cell.cell_contents = content[0]


def _restore_state_of_context_variable(variable: ContextVar[Any], then: Any) -> None:
    """One that held nothing gets its default: Python takes no value out without the token of what has put it there."""
    if variable.get(_UNSET) is not then:
        with suppress(LookupError):
            variable.set(Context().run(variable.get) if then is _UNSET else then)


def _restore_variables_of_context(context: Context, then: dict[ContextVar[Any], Any]) -> None:
    for variable, value in then.items():
        if context[variable] is not value:
            context.run(variable.set, value)


def _restore_slot_of_object(value: Any, slot: Any, then: Any) -> None:
    with suppress(AttributeError, TypeError):
        slot.__delete__(value) if then is _UNSET else slot.__set__(value, then)


def _restore_attributes_of_object(value: Any, held: dict[str, Any], then: dict[str, Any]) -> None:
    now = object.__getattribute__(value, "__dict__")
    if now is not held:
        object.__setattr__(value, "__dict__", held)
    if _state_identities_of_items(held) != _state_identities_of_items(then):
        held.clear()
        held.update(then)


def _state_items_of_container(value: Any, base: type) -> Any:
    if base is dict:
        return state_pairs_of_dict(value)
    return [*base.__iter__(value)]  # type: ignore[attr-defined]


def _state_identities_of_items(names: dict[Any, Any]) -> list[int]:
    return [*map(id, names), *map(id, names.values())]


def _restore_container_of_object(value: Any, base: Any, then: Any) -> None:
    now = _state_items_of_container(value, base)
    if base is dict:
        source: Any = OrderedDict if isinstance(value, OrderedDict) else dict
        if [(id(k), id(v)) for k, v in now] != [(id(k), id(v)) for k, v in then]:
            source.clear(value)
            for key, item in then:
                source.__setitem__(value, key, item)
    elif [*map(id, now)] != [*map(id, then)]:
        if base is set:
            set.clear(value)
            set.update(value, then)
        elif base is deque:
            deque.clear(value)
            deque.extend(value, then)
        elif base is bytearray:
            value[:] = bytes(then)
        elif isinstance(value, array.array):
            value[:] = array.array(value.typecode, then)
        else:
            list.__setitem__(value, slice(None), then)
