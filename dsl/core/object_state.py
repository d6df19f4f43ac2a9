"""An object's state as a value that can be compared: all that is in it, at every depth."""

from __future__ import annotations

import gc
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from enum import EnumMeta, Flag
from pickle import dumps
from types import CellType, CodeType, FunctionType, MappingProxyType, ModuleType, SimpleNamespace
from typing import Any
from weakref import CallableProxyType, ProxyType, ReferenceType

import numpy as np

from ...runtime.core.readable_text import with_article
from .errors import is_user_file
from .object_model import (
    KINDS,
    MADE_BY_PYTHON,
    MRO,
    ORIGINAL,
    PLAIN,
    VARS,
    attributes_of_object,
    builtin_container_base_of_class,
    cell_contents,
    contents_of_object,
    dict_of_object,
    has_hidden_state,
    held_by_object,
    is_user_class,
    is_user_module,
    row_of_class,
    slots_of_class,
)

_DICTS: tuple[dict[Any, Any], ...] = {}, OrderedDict()
VIEWS = {type(getattr(empty, name)()): name for empty in _DICTS for name in ("keys", "values", "items")}
Parts = Iterable[Any]


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
    if issubclass(kind, WEAK_REFERENCE_CLASSES):
        kept = referred = [] if referred is None else referred
    known = next((parts for applies, parts in _PARTS if applies(kind, value)), None)
    try:
        parts = (_state_parts_of_object if known is None else known)(value)
        found = tuple([comparable_object_state(part, kept, visited, referred) for part in parts])
    except Exception:
        if known is not None or len(visited) == 1:
            raise
        return (id(value),)  # what is in a part that cannot be seen is trusted
    return id(kind if known is None or known is held_by_object else value), found


def _state_parts_of_array(value: np.ndarray[Any, Any]) -> Parts:
    yield from (value.dtype.str, value.shape, value.strides)
    yield value.tolist() if value.dtype.hasobject else value.tobytes()
    own = is_user_class(type(value))  # masked arrays keep more, which may come while they are read
    held = (dict_of_object(value) or {}).items()
    yield from (x for name, part in held if own or name == "_mask" or name[:1] != "_" for x in (name, part))


def _state_parts_of_function(function: Any) -> Parts:
    """What a function does depends on; of a library's, the functions of a user that it decorates."""
    if not is_user_file(function.__code__.co_filename):
        return [v for k, v in function.__dict__.items() if k in ("__wrapped__", "registry")]
    names = [function.__globals__.get(name) for name in dict.fromkeys(names_in_code(function.__code__))]
    cells = map(cell_contents, function.__closure__ or ())
    return [function.__code__, function.__defaults__, function.__kwdefaults__, function.__dict__, *cells, *names]


def _state_parts_of_class(value: type) -> Parts:
    """What a user's class has, but for what Python itself keeps there."""
    for base in filter(is_user_class, MRO(value)):
        yield from (x for pair in vars(base).items() if pair[0] not in UNREAD_MEMBERS for x in pair)
    yield from filter(is_user_class, (type(value),))


# an enumeration of flags keeps what they are joined to beside its members
UNREAD_MEMBERS = MADE_BY_PYTHON | {"__doc__", "_value2member_map_"}


def _state_parts_of_module(module: ModuleType) -> Parts:
    return [x for pair in vars(module).items() if not pair[0].startswith("__") for x in pair]


def referents_of_object(value: Any) -> Parts:
    """All that an object holds by itself, in whatever way Python keeps it: not what modules hold, and libraries'
    classes, nor a function's globals."""
    return next(parts for kind, parts in _REFERENTS if isinstance(value, kind))(value)


_REFERENTS: tuple[tuple[Any, Callable[[Any], Parts]], ...] = (
    (ModuleType, lambda value: () if sys.modules.get(value.__name__) is value else [vars(value)]),
    (FunctionType, lambda value: [value.__defaults__, value.__kwdefaults__, vars(value), *(value.__closure__ or ())]),
    (type, lambda value: VARS(value).values() if is_user_class(value) and ORIGINAL not in VARS(value) else ()),
    (BaseException, lambda value: [value.args, value.__cause__, *attributes_of_object(value).values()]),
    ((ReferenceType, ProxyType, CallableProxyType), lambda value: [referent_of_weak_reference(value)]),
    (np.ndarray, lambda value: [value.ravel().tolist() if value.dtype.hasobject else (), *gc.get_referents(value)]),
    (object, gc.get_referents),
)


_OPAQUE: tuple[Any, ...] = (ModuleType, CodeType, type(threading.Lock()), type(threading.RLock()))

# which objects, and what there is to compare in them; the first that applies
_PARTS: tuple[tuple[Callable[[type, Any], bool], Callable[[Any], Parts]], ...] = (
    (lambda kind, value: issubclass(kind, WEAK_REFERENCE_CLASSES), lambda value: [referent_of_weak_reference(value)]),
    (lambda kind, value: has_hidden_state(kind), lambda value: _hidden_state_parts_of_object(value)),
    (lambda kind, value: is_iterator_class(kind), lambda value: _state_parts_of_iterator(value)),
    (lambda kind, value: issubclass(kind, np.ndarray), _state_parts_of_array),
    (lambda kind, value: kind is FunctionType, _state_parts_of_function),
    (lambda kind, value: isinstance(value, type), _state_parts_of_class),
    (lambda kind, value: kind is MappingProxyType or kind in VIEWS, gc.get_referents),
    (lambda kind, value: isinstance(value, ModuleType) and is_user_module(value), _state_parts_of_module),
    (lambda kind, value: kind in KINDS and bool(KINDS[kind].held), held_by_object),
    (lambda kind, value: issubclass(kind, _OPAQUE) or is_class_of_immutable_objects(kind), lambda value: ()),
)  # fmt: skip


def _hidden_state_parts_of_object(value: Any) -> Parts:
    """What a library's object keeps where Python does not see it, and its attributes."""
    row = row_of_class(type(value))
    assert row.state is not None
    return [dict_of_object(value), dumps(row.state.get(value))]


def _state_parts_of_object(value: Any) -> Parts:
    """What an object holds, or what it says that it is made of; and its class."""
    kind = type(value)
    row = row_of_class(kind)
    yield from contents_of_object(value, row) if row.family is not None or row.items is None else row.items(value)
    ways = [] if row.items is not None or isinstance(kind, EnumMeta) or is_weak_reference_class(kind) else _REDUCTIONS
    if any(getattr(kind, name) is not getattr(object, name) for name in ways):
        getattr(value, "__dict__", None)  # some have one, and tell of it, once they were asked
        if isinstance(value, BaseException):
            yield value.__cause__
        yield value.__reduce_ex__(4)
    else:
        held = attributes_of_object(value)
        if isinstance(value, Flag):  # which keeps its inverse once that was asked for
            held.pop("_inverted_", None)
        bare = row.items is None and dict_of_object(value) is None and not slots_of_class(kind)
        if bare and kind.__basicsize__ > object.__basicsize__:
            raise TypeError(f"what is in {with_article(kind.__name__)} cannot be seen")
        yield from (x for pair in held.items() for x in pair)
    yield from filter(is_user_class, (kind,))


_REDUCTIONS = ("__reduce_ex__", "__reduce__")


def is_weak_reference_class(kind: type) -> bool:
    """Whether its objects refer to others weakly: references, and containers of them."""
    return any(base.__module__ in ("weakref", "_weakrefset") for base in kind.__mro__)


WEAK_REFERENCE_CLASSES: tuple[Any, ...] = ReferenceType, ProxyType, CallableProxyType


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


def has_state_of_its_own(kind: type) -> bool:
    """Whether what its objects give cannot be seen without asking them: iterators, and variables of contexts."""
    return kind.__module__ == "_contextvars" or (is_iterator_class(kind) and kind not in WEAK_REFERENCE_CLASSES)


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


def is_class_of_immutable_objects(kind: type) -> bool:
    """Whether nothing that a traced function relies on can change in a library's object."""
    if kind in _CHANGING or builtin_container_base_of_class(kind) is not None or is_user_class(kind):
        return False
    if issubclass(kind, BaseException) or any(base.__module__ == "_ctypes" for base in MRO(kind)):
        return False  # the module of a class of ctypes is where it was made first
    package = kind.__module__.partition(".")[0]
    if package == "numpy":  # masked arrays, polynomials, records and what `np.vectorize` gives can change
        return issubclass(kind, _NUMPY_CONSTANTS) and not issubclass(kind, np.void)
    return package in _CONSTANT


_CHANGING = (SimpleNamespace, memoryview, CellType)
_NUMPY_CONSTANTS = np.generic, np.dtype, np.ufunc, np.finfo, np.iinfo, type(np.sum)
# other modules whose objects never change; those of "builtins" are functions, descriptors and the like
_CONSTANTS = """
builtins ml_dtypes kernelgraph datetime zoneinfo decimal fractions uuid pathlib re typing types operator
ipaddress enum _io io logging _struct
"""
_CONSTANT = frozenset(_CONSTANTS.split())
