"""A class whose instances are called by native code, or made by it: no Python function stands between a call and what
it runs.

A call is a slot wrapper of our own as the class's `__call__`, which CPython takes for the class's `tp_call` itself.
Where it would not, the wrapper is called as any other object, and does the same.
"""

from __future__ import annotations

import ctypes
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import FunctionType, MemberDescriptorType, WrapperDescriptorType
from typing import Any

from ..codegen.word_language import (
    HEAD,
    TUPLE_AT,
    machine_code_can_read_bytes_objects,
    make_builtin_from_machine_code,
    read_memory_word,
)
from .direct_call import containers_lie_as_expected, watched_words_of_object_aspect
from .engine import native_engine_functions

_NEW = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p)
_BASE_AT, _WRAPPED_AT = HEAD + 24, HEAD + 32  # in a slot wrapper: which slot it is for, and the function in it


def call_instances_natively(
    kind: type, name: str, unusual: dict[Any, Any], not_taken: object, untaken: Callable[..., Any]
) -> bool:
    """Whether calls of a class's instances are native from now on: `x(*args)` is `x.name(args)`, and where that gives
    `not_taken`, `untaken(x, args, x.name)`. With keyword arguments, while `unusual` holds anything and where x has no
    such attribute it is what it was before.

    name: a slot of the class."""
    native = native_engine_functions()
    words = watched_words_of_object_aspect("size", unusual, len(unusual))
    before = vars(kind).get("__call__")
    slot = _slot_wrapper_base()
    at = _offset_of_slot(kind, name)
    if native is None or not words or type(before) is not FunctionType or slot is None or at is None:
        return False
    held = (native, unusual, not_taken, untaken, before)
    for thing in held:  # for as long as the process: other threads may be in a call at its end
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
    given = (ctypes.c_uint64 * 5)(at, words[0][0], id(not_taken), id(untaken), id(before))
    native.set_call_settings(ctypes.addressof(given))
    kind.__call__ = _NEW(("PyDescr_NewWrapper", ctypes.pythonapi))(kind, slot, native.call_decorated)  # type: ignore[method-assign]
    return True


def native_maker_of_objects(kind: type, slots: Sequence[str], others: Mapping[str, Any]) -> Callable[..., Any] | None:
    """make(*values) gives an object of a class of slots that has the values in some and these in others, past
    `__init__`; None where objects do not lie in memory as expected."""
    native = native_engine_functions()
    if native is None or not machine_code_can_read_bytes_objects() or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return None
    places = [_offset_of_slot(kind, name) for name in (*slots, *others)]
    if None in places:
        return None
    allocator = ctypes.cast(ctypes.pythonapi.PyType_GenericAlloc, ctypes.c_void_p).value or 0
    words: list[Any] = [allocator, id(kind), len(slots), len(others), *places[: len(slots)]]
    words += [word for at, value in zip(places[len(slots) :], others.values(), strict=True) for word in (at, id(value))]
    return make_builtin_from_machine_code(native.make_object, words, (kind, others))


def native_test_of_item_types(kinds: Sequence[type]) -> Callable[[Any], bool] | None:
    """test(x) says whether x is a list whose items are all of these classes themselves; None where lists do not lie in
    memory as expected."""
    native = native_engine_functions()
    if native is None or not containers_lie_as_expected():
        return None
    words = [id(list), id(True), id(False), len(kinds), *map(id, kinds)]
    return make_builtin_from_machine_code(native.test_item_types, words, kinds)


def _slot_wrapper_base() -> int | None:
    """What slot wrappers for `__call__` have in common, where objects lie in memory as expected."""
    if not machine_code_can_read_bytes_objects() or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return None  # without the lock another thread may exchange a slot's object while it is read
    first, second = vars(type)["__call__"], vars(FunctionType)["__call__"]
    if not type(first) is type(second) is WrapperDescriptorType or WrapperDescriptorType.__basicsize__ != HEAD + 40:
        return None
    wrapped = ctypes.cast(ctypes.pythonapi.PyVectorcall_Call, ctypes.c_void_p).value
    base = read_memory_word(id(first) + _BASE_AT)
    same = base == read_memory_word(id(second) + _BASE_AT) != read_memory_word(id(vars(type)["__repr__"]) + _BASE_AT)
    items = (first, second)
    same = same and [read_memory_word(id(items) + TUPLE_AT + 8 * i) for i in (0, 1)] == [id(first), id(second)]
    return base if same and read_memory_word(id(second) + _WRAPPED_AT) == wrapped else None


@cache
def _offset_of_slot(kind: type, name: str) -> int | None:
    """The only place, after its head, where an instance has a reference to what it has in a slot."""
    if type(vars(kind).get(name)) is not MemberDescriptorType:
        return None
    unmade = type("Sample", (kind,), {"__slots__": (), "__del__": lambda _: None})  # nothing is in its other slots
    sample: Any = object.__new__(unmade)
    value = object()
    setattr(sample, name, value)
    places = [i for i in range(HEAD, kind.__basicsize__, 8) if read_memory_word(id(sample) + i) == id(value)]
    return places[0] if len(places) == 1 else None
