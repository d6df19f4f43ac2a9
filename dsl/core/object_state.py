"""An object's state as a value that can be compared: all that is in it, at every depth."""

from __future__ import annotations

import gc
import sys
import threading
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import Context
from enum import Flag
from functools import _lru_cache_wrapper
from types import (
    BuiltinMethodType,
    CellType,
    CodeType,
    FunctionType,
    MappingProxyType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any
from weakref import CallableProxyType, ProxyType, ReferenceType

import numpy as np

from ...runtime.core.readable_text import with_article
from .errors import is_user_file

PLAIN = frozenset({bool, int, float, complex, str, bytes, type(None), range, slice, type(Ellipsis)})


def is_user_module(module: ModuleType) -> bool:
    """Whether a module is the user's."""
    file = vars(module).get("__file__")
    if isinstance(file, str):
        return is_user_file(file)
    return module.__name__.partition(".")[0] not in sys.stdlib_module_names


def is_user_class(kind: type) -> bool:
    """Whether a class was defined in a file of the user's."""
    name = kind.__module__
    if name == "builtins" or name in sys.builtin_module_names:
        return False
    if name == "types":  # which makes the classes of `make_dataclass` and `new_class`, and has its own
        return kind.__name__ not in vars(types)
    file = getattr(sys.modules.get(name), "__file__", None)
    return file is None or is_user_file(file)


_LOCKS: tuple[Any, ...] = type(threading.Lock()), type(threading.RLock())
_DICTS: tuple[dict[Any, Any], ...] = {}, OrderedDict()
VIEWS = {type(getattr(empty, name)()): name for empty in _DICTS for name in ("keys", "values", "items")}

# containers


def state_pairs_of_dict(value: Any) -> list[tuple[Any, Any]]:
    """A dict's keys and values, past methods of its class. A key may have another hash by now."""
    listed = listed_pairs_of_ordered_dict(value) if isinstance(value, OrderedDict) else None
    return [*dict.items(value)] if listed is None else [*listed, *hidden_state_pairs_of_dict(value)]


def listed_pairs_of_ordered_dict(value: OrderedDict[Any, Any]) -> list[tuple[Any, Any]] | None:
    """What is found where an OrderedDict is iterated over; None where keys were taken out past its class."""
    try:
        return [*OrderedDict.items(value)]
    except KeyError:
        return None


def is_whole_ordered_dict(value: OrderedDict[Any, Any]) -> bool:
    """Whether an OrderedDict lists what it holds: nothing was put in, or taken out, past its class."""
    listed = listed_pairs_of_ordered_dict(value)
    return listed is not None and len(listed) == dict.__len__(value)


def hidden_state_pairs_of_dict(value: OrderedDict[Any, Any]) -> list[tuple[Any, Any]]:
    """What was put into an OrderedDict past its class: found by key, but not where it is iterated over."""
    listed = listed_pairs_of_ordered_dict(value)
    if listed is None or len(listed) == dict.__len__(value):
        return []
    keys = [key for key, _ in listed]
    return [(k, v) for k, v in dict.items(value) if k not in keys]


def default_factory_of_object(value: Any) -> Any:
    """A defaultdict's, past a `__getattr__` of its class; None for others."""
    return value.default_factory if isinstance(value, defaultdict) else None


def _state_contents_of_dict(value: Any) -> list[Any]:
    found = state_pairs_of_dict(value)
    factory = default_factory_of_object(value)
    hidden = [k for k, _ in hidden_state_pairs_of_dict(value)] if isinstance(value, OrderedDict) else ()
    return [*(k for k, _ in found), *(v for _, v in found), *((factory,) if factory is not None else ()), *hidden]


_CONTENTS: dict[type, Callable[[Any], list[Any]]] = {
    list: lambda value: [*list.__iter__(value)],
    tuple: lambda value: [*tuple.__iter__(value)],
    dict: _state_contents_of_dict,
    set: lambda value: [*set.__iter__(value)],
    frozenset: lambda value: [*frozenset.__iter__(value)],
    deque: lambda value: [*deque.__iter__(value), value.maxlen],
    bytearray: lambda value: [bytes(value)],
}


def builtin_container_base_of_class(kind: type) -> type | None:
    """The built-in container that a class is, or extends."""
    found = _BASES.get(kind)
    if found is not None:
        return found
    for base in kind.__mro__:
        if base in _CONTENTS:
            return base
        if base.__module__ == "array" and base.__name__ == "array":
            _CONTENTS[base] = lambda value: [value.typecode, value.tobytes()]
            return base
    return None


_BASES: dict[type, type] = {kind: kind for kind in _CONTENTS}


def contents_of_container_object(base: type, value: Any) -> list[Any]:
    """What a container holds: items, or keys and values."""
    if type(value) is dict:
        return [*value, *value.values()]
    return _CONTENTS[base](value)


# anything


def comparable_object_state(
    value: Any,
    kept: list[Any] | None = None,
    visited: dict[int, int] | None = None,
    referred: list[Any] | None = None,
) -> Any:
    """All that is in it, as something that can be compared. Raises where nothing of that can be known.

    kept: where objects that are told by their identity go, so that they live on; what is made to be looked at would
    else lend its identity to what is made next. visited: the objects that hold it. referred: where those go that are
    reached by a weak reference alone, and need not live on."""
    kind = type(value)
    if kind in PLAIN:
        return kind, repr(value)
    if issubclass(kind, (np.generic, np.dtype)):
        return kind, value.dtype.str if isinstance(value, np.generic) else value.str, repr(value)
    kept, visited = [] if kept is None else kept, {} if visited is None else visited
    kept.append(value)
    if id(value) in visited:
        return "seen", visited[id(value)]
    visited[id(value)] = len(visited)

    def comparable_object_states(values: Any) -> tuple[Any, ...]:
        return tuple(comparable_object_state(v, kept, visited, referred) for v in values)

    own: tuple[Any, ...] = (id(value),)
    if issubclass(kind, WEAK_REFERENCE_CLASSES):
        referred = [] if referred is None else referred
        own = id(value), comparable_object_state(referent_of_weak_reference(value), referred, visited, referred)
    elif is_iterator_class(kind):
        own = id(value), comparable_object_states(_state_parts_of_iterator(value))
    elif issubclass(kind, np.ndarray):
        data = comparable_object_states(value.tolist()) if value.dtype.hasobject else value.tobytes()
        held = [vars(value)] if is_user_class(kind) and kind.__dictoffset__ else _state_mask_of_masked_array(value)
        own = value.dtype.str, value.shape, value.strides, data, *comparable_object_states(held)
    elif kind is FunctionType:
        users = is_user_file(value.__code__.co_filename)
        own = (
            id(value),
            *comparable_object_states((_state_dependencies_of_function if users else _functions_of_decorator)(value)),
        )
    elif isinstance(value, type):
        bases = [b for b in value.__mro__ if is_user_class(b)]
        own = (
            id(value),
            *(comparable_object_states(x for b in bases for pair in _state_members_of_class(b) for x in pair)),
            *comparable_object_states(_class_state_if_users(kind)),
        )
    elif kind is MappingProxyType or kind in VIEWS:
        own = kind, comparable_object_states(gc.get_referents(value))
    elif isinstance(value, ModuleType) and is_user_module(value):
        own = id(value), *(comparable_object_states((k, v)) for k, v in vars(value).items() if not k.startswith("__"))
    elif kind in _HOLDERS:
        own = kind, comparable_object_states(getattr(value, name) for name in _HOLDERS[kind])
    elif isinstance(value, (ModuleType, CodeType, *_LOCKS)) or is_class_of_immutable_objects(kind):
        pass
    else:
        base = builtin_container_base_of_class(kind)
        parts = comparable_object_states(contents_of_container_object(base, value)) if base is not None else ()
        try:
            own = (id(kind), parts, comparable_object_states(_state_attributes_of_object(value, kind)))
        except Exception:
            if len(visited) == 1:
                raise
            own = (id(value),)  # what is in a part that cannot be seen is trusted
        own += comparable_object_states(_class_state_if_users(kind))
    return own


def is_weak_reference_class(kind: type) -> bool:
    """Whether its objects refer to others weakly: references, and containers of them."""
    return any(base.__module__ in ("weakref", "_weakrefset") for base in kind.__mro__)


WEAK_REFERENCE_CLASSES = ReferenceType, ProxyType, CallableProxyType


def referent_of_weak_reference(value: Any) -> Any:
    """What a weak reference, or a proxy, refers to; None where that has ended."""
    if isinstance(value, ReferenceType):
        return ReferenceType.__call__(value)
    with suppress(ReferenceError, AttributeError):
        return value.__dir__.__self__
    return None


def is_iterator_class(kind: type) -> bool:
    """Whether what its objects give next is all that changes in them; files do more."""
    return hasattr(kind, "__next__") and not is_user_class(kind) and kind.__module__ not in ("io", "_io")


def _state_parts_of_iterator(value: Any) -> Iterator[Any]:
    """What an iterator gives next depends on, as far as that can be seen without a step of it."""
    for name in ("base", "iter", "operands"):  # of NumPy's
        with suppress(Exception):
            yield getattr(value, name)
    for name in ("index", "iterindex"):
        with suppress(Exception):
            yield getattr(value, name)
    if (frame := getattr(value, "gi_frame", None)) is not None:
        yield from (frame.f_lasti, dict(frame.f_locals), value.gi_yieldfrom)
    elif "__reduce__" in vars(type(value)):
        with suppress(Exception):
            yield value.__reduce__()


def _state_mask_of_masked_array(value: np.ndarray[Any, Any]) -> list[Any]:
    """The mask of a masked array."""
    return [mask] if (mask := getattr(value, "_mask", None)) is not None else []


# what holds others, in attributes that are found nowhere else
_HOLDERS: dict[type, tuple[str, ...]] = {
    MethodType: ("__func__", "__self__"),
    property: ("fget", "fset", "fdel"),
    staticmethod: ("__func__", "__dict__"),
    classmethod: ("__func__", "__dict__"),
    _lru_cache_wrapper: ("__wrapped__", "__dict__"),
    memoryview: ("obj", "shape", "strides"),
    super: ("__thisclass__", "__self__"),
    BuiltinMethodType: ("__name__", "__self__"),
    MethodWrapperType: ("__name__", "__self__"),
    CellType: ("cell_contents",),
}


def _class_state_if_users(kind: type) -> list[type]:
    return [kind] if is_user_class(kind) else []


def _state_members_of_class(kind: type) -> Iterator[tuple[str, Any]]:
    """What a class has, but for what Python itself keeps there."""
    return ((k, v) for k, v in vars(kind).items() if k not in _PYTHONS_OWN)


# an enumeration of flags keeps what they are joined to beside its members
_PYTHONS_OWN = frozenset({"__dict__", "__weakref__", "_abc_impl", "__doc__", "_value2member_map_"})


def _state_dependencies_of_function(function: Any) -> Iterator[Any]:
    """What a function does depends on."""
    yield from (function.__code__, function.__defaults__, function.__kwdefaults__, function.__dict__)
    for cell in function.__closure__ or ():
        yield cell.cell_contents
    for name in dict.fromkeys(names_in_code(function.__code__)):
        yield function.__globals__.get(name)


def _functions_of_decorator(function: Any) -> Iterator[Any]:
    """The functions of a user that one made by a decorator of `functools` calls: its attributes."""
    yield from (v for k, v in function.__dict__.items() if k in ("__wrapped__", "registry"))


def names_in_code(code: CodeType) -> Iterator[str]:
    """The globals and attributes that a function's code names, and code within it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names_in_code(constant)


def texts_in_code(code: CodeType) -> set[str]:
    """The same and the texts that are written in it, by which `getattr` may ask."""
    inside = [c for c in code.co_consts if isinstance(c, CodeType)]
    return {*code.co_names, *(c for c in code.co_consts if type(c) is str)}.union(*map(texts_in_code, inside))


def _state_attributes_of_object(value: Any, kind: type) -> Iterator[Any]:
    """An object's attributes, or what it says that it is made of."""
    told = not any(base.__module__ == "enum" for base in kind.__mro__) and any(
        getattr(kind, name) is not getattr(object, name) for name in ("__reduce_ex__", "__reduce__")
    )
    if told and builtin_container_base_of_class(kind) is None and not is_weak_reference_class(kind):
        getattr(value, "__dict__", None)  # some have one, and tell of it, once they were asked
        if isinstance(value, BaseException):
            yield value.__cause__
        yield value.__reduce_ex__(4)
        return
    if kind is Context:
        yield from (x for pair in value.items() for x in pair)
        return
    if kind.__name__ == "ContextVar" and kind.__module__ == "_contextvars":
        yield value.get(_UNSET)
        with suppress(LookupError):
            yield value.get()
        return
    known = [getattr(value, "__dict__", None)]
    if isinstance(value, Flag):  # which keeps its inverse once that was asked for
        known = [{name: x for name, x in vars(value).items() if name != "_inverted_"}]
    slots = [s for b in kind.__mro__ for s in vars(b).values() if type(s).__name__ == "member_descriptor"]
    if (
        known == [None]
        and not slots
        and kind.__basicsize__ > object.__basicsize__
        and builtin_container_base_of_class(kind) is None
    ):
        raise TypeError(f"what is in {with_article(kind.__name__)} cannot be seen")
    yield from known
    for slot in slots:
        yield getattr(value, slot.__name__, _UNSET) if is_slot_set(value, slot) else _UNSET


def is_slot_set(value: Any, slot: Any) -> bool:
    """Whether a slot of the object holds something."""
    try:
        slot.__get__(value, type(value))
    except AttributeError:
        return False
    return True


_UNSET = "<unset>"


def is_class_of_immutable_objects(kind: type) -> bool:
    """Whether nothing that a traced function relies on can change in a library's object."""
    if (
        kind in (SimpleNamespace, memoryview)
        or builtin_container_base_of_class(kind) is not None
        or is_user_class(kind)
    ):
        return False
    if kind in (CellType, Context) or issubclass(kind, BaseException):
        return False
    if any(base.__module__ == "_ctypes" for base in kind.__mro__):  # whose own module is where it was made first
        return False
    package = kind.__module__.partition(".")[0]
    if package == "numpy":  # masked arrays, polynomials, records and what `np.vectorize` gives can change
        return issubclass(kind, _NUMPY_CONSTANTS) and not issubclass(kind, np.void)
    return package in _CONSTANT


_NUMPY_CONSTANTS = np.generic, np.dtype, np.ufunc, np.finfo, np.iinfo, type(np.sum)
# other modules whose objects never change; those of "builtins" are functions, descriptors and the like
_CONSTANTS = """
builtins ml_dtypes kernelgraph datetime zoneinfo decimal fractions uuid pathlib re typing types operator
ipaddress enum _io io logging _struct
"""
_CONSTANT = frozenset(_CONSTANTS.split())
