"""Python's objects, one row for each kind: what they hold, past methods of their class, and how that is put there.

What walks over objects (to flatten, compare, undo, copy, freeze or guard them) is written over these rows. A new kind
is a row here; a class without one is what its bases are, an object of slots and attributes in the end.
"""

from __future__ import annotations

import sys
import types
from _thread import _local
from array import array
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import _lru_cache_wrapper, partial
from io import BytesIO, StringIO
from itertools import takewhile
from operator import attrgetter, eq, is_
from pickle import dumps
from random import Random
from types import (
    BuiltinMethodType,
    CellType,
    FunctionType,
    MemberDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any

import numpy as np

from ...runtime.core.frozen import frozen, replace
from .errors import is_user_file

PLAIN = frozenset({bool, int, float, complex, str, bytes, type(None), range, slice, type(Ellipsis)})
ORIGINAL = "_kernelgraph_original"  # where a class that stands for another one says for which
MRO: Callable[[Any], tuple[Any, ...]] = type.__dict__["__mro__"].__get__  # past a metaclass's own ways
VARS: Callable[[Any], Any] = type.__dict__["__dict__"].__get__
_NAME, _MODULE = (type.__dict__[name].__get__ for name in ("__name__", "__module__"))


class UnsetVariable:
    """Stands for the value of a name, slot, cell or variable that holds none."""

    def __repr__(self) -> str:
        return "nothing"


UNSET = UnsetVariable()

# the rows


@frozen
class Lens:
    """How to read and write one place in objects. get: what an object holds there. put: puts that there; None where
    nothing can be put.

    same: whether what was there at two times is the same."""

    get: Callable[[Any], Any]
    put: Callable[[Any, Any], None] | None = None
    same: Callable[[Any, Any], bool] = is_


@frozen
class Kind:
    """One kind of Python object.

    base: the class, whose subclasses are of this kind too. family: the simplest container that it is a kind of.
    items: what a container holds, of a mapping pairs, of a buffer all its bytes, of a number or text its plain value.
    put: (container, items) puts them in place of what is there; None where nothing can be. blank: makes an empty object
    of a class with settings, or where nothing can be put one with items. settings: the attributes that it is made with.
    mutators: methods that change it.
    held: attributes that are in no slot and no `__dict__`. assigned: those of them that can be assigned.
    state: all that can change in it, where neither items nor attributes say that."""

    base: Any
    family: Any = None
    items: Callable[[Any], Iterable[Any]] | None = None
    put: Callable[[Any, Any], None] | None = None
    blank: Callable[..., Any] = object.__new__
    settings: tuple[str, ...] = ()
    mutators: str = ""
    held: tuple[str, ...] = ()
    assigned: tuple[str, ...] = ()
    state: Lens | None = None

    @property
    def is_made_whole(self) -> bool:
        """Whether its objects are made with what they hold, and never hold anything else."""
        return self.items is not None and self.put is None


def _pairs_of_ordered_dict(value: OrderedDict[Any, Any]) -> Iterable[tuple[Any, Any]]:
    return OrderedDict.items(value) if is_whole_dict(value) else dict.items(value)


def _put_items(clear: Callable[[Any], None], add: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    def put_items(container: Any, items: Any) -> None:
        clear(container)
        add(container, items)

    return put_items


def _add_ordered_pairs(container: OrderedDict[Any, Any], pairs: Iterable[tuple[Any, Any]]) -> None:
    for key, value in pairs:
        OrderedDict.__setitem__(container, key, value)


def _put_items_of_list(container: Any, items: Any) -> None:
    list.__setitem__(container, slice(None), items)


def _put_bytes(container: Any, data: Any) -> None:
    bytearray.__setitem__(container, slice(None), b"".join(data))


def _put_bytes_of_array(container: Any, data: Any) -> None:
    array.__setitem__(container, slice(None), array(container.typecode, b"".join(data)))


def _blank_deque(kind: type, length: int | None) -> Any:
    found: Any = deque.__new__(kind)
    deque.__init__(found, (), length)
    return found


def _blank_defaultdict(kind: type, factory: Any) -> Any:
    found: Any = defaultdict.__new__(kind)
    defaultdict.__init__(found, factory)
    return found


def _value_row(base: Any, exact: Callable[[Any], Any]) -> Kind:
    """exact: the plain value that an object of a class which extends it is, past methods of that."""
    return Kind(base, items=lambda value: (exact(value),), blank=lambda kind, items: base.__new__(kind, *items))


# what can change in a class, a function, an array or a context


def is_same_object(now: Any, then: Any) -> bool:
    """Whether two parts are one object, or whole numbers or bytes, which are made anew when they are looked at."""
    return now is then or (type(now) is type(then) and type(now) in (bytes, int) and bool(now == then))


def are_same_objects(now: Sequence[Any], then: Sequence[Any]) -> bool:
    """Whether two lists hold the same objects."""
    return len(now) == len(then) and (all(map(is_, now, then)) or all(map(is_same_object, now, then)))


MADE_BY_PYTHON = frozenset({"__dict__", "__weakref__", "_abc_impl"})  # in classes, and not assigned


def _put_members_of_class(kind: type, then: dict[str, Any]) -> None:
    """Those behind the first of another name are put anew: they keep their order."""
    now = [*VARS(kind)]
    same = len([*takewhile(lambda pair: pair[0] == pair[1], zip(now, then, strict=False))])
    for name in set(now[same:]).difference(MADE_BY_PYTHON):
        with suppress(AttributeError, TypeError):  # such as its `__doc__`
            type.__delattr__(kind, name)
    for name, value in then.items():
        if VARS(kind).get(name, UNSET) is not value:
            type.__setattr__(kind, name, value)


def _state_of_array(array: np.ndarray[Any, Any]) -> Any:
    return (array.view(np.ndarray).copy(), array.dtype, array.shape) if array.flags.writeable else None


def _put_state_of_array(array: np.ndarray[Any, Any], then: Any) -> None:
    values, dtype, shape = then
    if array.dtype != dtype:
        array.dtype = dtype  # type: ignore[misc]
    if array.shape != shape:
        array.shape = shape
    np.copyto(array, values)


def _put_parts_of_function(function: FunctionType, then: Any) -> None:
    function.__code__, function.__defaults__, function.__kwdefaults__ = then


def _are_same_pairs(now: dict[Any, Any], then: dict[Any, Any]) -> bool:
    return are_same_objects([*now], [*then]) and are_same_objects([*now.values()], [*then.values()])


_CLASS = Lens(lambda value: dict(VARS(value)), _put_members_of_class, _are_same_pairs)
_FUNCTION = Lens(attrgetter("__code__", "__defaults__", "__kwdefaults__"), _put_parts_of_function, are_same_objects)
_PARTIAL = Lens(
    attrgetter("func", "args", "keywords", "__dict__"), lambda value, then: value.__setstate__(then), are_same_objects
)


def _pickle_alike(now: Any, then: Any) -> bool:
    return dumps(now) == dumps(then)


def _pickled_row(base: Any) -> Kind:
    """Of a class whose objects keep what Python does not see, and tell it, and take it back."""
    return Kind(base, state=Lens(base.__getstate__, base.__setstate__, _pickle_alike))


_CACHE = Lens(lambda value: value.cache_info(), same=eq)  # what is in it is not seen
_SEQUENCE = "__setitem__ __delitem__ __iadd__ __imul__ append clear extend insert pop remove reverse"
_SET = """add clear discard pop remove update difference_update intersection_update symmetric_difference_update
__iand__ __ior__ __isub__ __ixor__"""
_DICT = "__setitem__ __delitem__ __ior__ clear pop popitem setdefault update"
_OF_DICT = Kind(dict, dict, dict.items, _put_items(dict.clear, dict.update), dict.__new__, mutators=_DICT)

_ROWS = (
    Kind(list, list, list.__iter__, _put_items_of_list, list.__new__, mutators=_SEQUENCE + " sort"),
    Kind(tuple, tuple, tuple.__iter__, blank=tuple.__new__),
    _OF_DICT,
    replace(_OF_DICT, base=OrderedDict, items=_pairs_of_ordered_dict, blank=OrderedDict.__new__,
            put=_put_items(OrderedDict.clear, _add_ordered_pairs), mutators=_DICT + " move_to_end"),
    replace(_OF_DICT, base=defaultdict, blank=_blank_defaultdict, mutators=_DICT + " __missing__",
            settings=("default_factory",), assigned=("default_factory",)),
    replace(_OF_DICT, base=Counter, mutators=_DICT + " subtract __iadd__ __isub__ __iand__"),
    Kind(set, set, set.__iter__, _put_items(set.clear, set.update), set.__new__, mutators=_SET),
    Kind(frozenset, frozenset, frozenset.__iter__, blank=frozenset.__new__),
    Kind(deque, deque, deque.__iter__, _put_items(deque.clear, deque.extend), _blank_deque, ("maxlen",),
         _SEQUENCE + " appendleft extendleft popleft rotate"),
    Kind(bytearray, bytearray, lambda value: (bytes(value),), _put_bytes, bytearray.__new__, mutators=_SEQUENCE),
    Kind(array, array, lambda value: (array.tobytes(value),), _put_bytes_of_array, array.__new__, ("typecode",),
         _SEQUENCE + " byteswap frombytes fromfile fromlist fromunicode"),
    Kind(type, state=_CLASS),
    Kind(np.ndarray, state=Lens(_state_of_array, _put_state_of_array)),
    Kind(FunctionType, held=("__defaults__", "__kwdefaults__"), state=_FUNCTION),
    Kind(MethodType, held=("__func__", "__self__")),
    Kind(BuiltinMethodType, held=("__name__", "__self__")),
    Kind(MethodWrapperType, held=("__name__", "__self__")),
    Kind(property, held=("fget", "fset", "fdel")),
    Kind(staticmethod, held=("__func__", "__dict__")),
    Kind(classmethod, held=("__func__", "__dict__")),
    Kind(_lru_cache_wrapper, held=("__wrapped__", "__dict__"), state=_CACHE),
    Kind(super, held=("__thisclass__", "__self__")),
    Kind(memoryview, held=("obj", "shape", "strides")),
    Kind(CellType, held=("cell_contents",), assigned=("cell_contents",)),
    Kind(partial, held=("func", "args", "keywords", "__dict__"), state=_PARTIAL),
    Kind(BaseException, held=("args", "__cause__", "__context__"), assigned=("args", "__cause__")),
    Kind(SimpleNamespace, blank=SimpleNamespace.__new__),
    Kind(_local, blank=_local.__new__),
    Kind(Random, state=Lens(Random.getstate, Random.setstate, _pickle_alike)),
    _pickled_row(StringIO),
    _pickled_row(BytesIO),
    _value_row(int, int.__int__),
    _value_row(float, float.__float__),
    _value_row(complex, complex.__complex__),
    _value_row(str, str.__str__),
    _value_row(bytes, bytes.__bytes__),
    Kind(object),
)  # fmt: skip
KINDS: dict[Any, Kind] = {row.base: row for row in _ROWS}


def row_of_class(kind: Any) -> Kind:
    """The row of a class: its own, or that of the first of its bases that has one."""
    for base in MRO(kind):
        if (row := KINDS.get(base)) is not None:
            return row
        if _NAME(base) == "BitGenerator" and _MODULE(base) == "numpy.random.bit_generator":  # which loads slowly
            return KINDS.setdefault(base, _pickled_row(base))
    raise TypeError(kind)


def has_hidden_state(kind: type) -> bool:
    """Whether the objects of a class keep what Python does not see, and tell it, and take it back."""
    state = row_of_class(kind).state
    return state is not None and state.same is _pickle_alike


def builtin_container_base_of_class(kind: type) -> Any:
    """The built-in container that a class is, or extends; None for others."""
    return row_of_class(kind).family


def mutators_of_class(kind: type) -> list[str]:
    """The methods that change a container of this class."""
    return [name for name in row_of_class(kind).mutators.split() if hasattr(kind, name)]


# classes


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


# classes of Python's own library that are no more than their attributes
_NAMESPACES = {("types", "SimpleNamespace"), ("argparse", "Namespace"), ("_thread", "_local")}
_NAMESPACES |= {("collections", name) for name in ("UserDict", "UserList", "UserString", "ChainMap")}


def is_namespace_class(kind: type) -> bool:
    """Whether it is one of Python's own classes whose objects are no more than their attributes."""
    return (kind.__module__, kind.__name__) in _NAMESPACES


def is_proxy_class(kind: type) -> bool:
    """Whether a class stands for one of the user's, or extends one that does."""
    return any(ORIGINAL in VARS(base) for base in MRO(kind))


def is_object_of_attributes(kind: type) -> bool:
    """Whether instances are made by `object.__new__`, and do not decide themselves what their attributes are."""
    if getattr(kind, "__new__", None) is not object.__new__ or issubclass(kind, type):
        return False
    return has_default_access(kind) and kind.__module__ != "builtins"


def has_own_slots(kind: type) -> bool:
    """Whether an object has more than a `__dict__` and weak references; Python may keep both before it (negative)."""
    return kind.__basicsize__ > object.__basicsize__ + 8 * ((kind.__dictoffset__ > 0) + (kind.__weakrefoffset__ > 0))


def has_default_access(kind: type) -> bool:
    """Whether its objects do not decide themselves what their attributes are."""
    return getattr(kind, "__getattribute__", None) is object.__getattribute__


WITH_ITEMS: tuple[type, ...] = (list, dict, OrderedDict)  # whose items are assigned past no method of a class

# slots and attributes


def members_of_class(kind: Any) -> Iterator[MemberDescriptorType]:
    """All slots of objects of a class, those of its bases first. What is in a row's own class is in the row."""
    for base in reversed(MRO(kind)):
        if base not in KINDS:
            for member in VARS(base).values():
                if type(member) is MemberDescriptorType and member.__objclass__ is base:
                    yield member


def slots_of_class(kind: Any) -> dict[str, MemberDescriptorType]:
    """The slots of a class by their names; those of bases come first, and give way."""
    return {member.__name__: member for member in members_of_class(kind)}


def slot_of_class(kind: Any, name: str) -> MemberDescriptorType | None:
    """The slot of a name, past other members of the name; None where there is none."""
    for base in MRO(kind):
        if type(member := VARS(base).get(name)) is MemberDescriptorType:
            return member
    return None


def slot_value(member: MemberDescriptorType, value: Any) -> Any:
    """What a slot of an object holds; UNSET for nothing."""
    try:
        return member.__get__(value)
    except AttributeError:
        return UNSET


def slots_of_object(value: Any) -> list[tuple[MemberDescriptorType, Any]]:
    """The slots of an object that are set, and what is in them."""
    found = ((member, slot_value(member, value)) for member in members_of_class(type(value)))
    return [(member, held) for member, held in found if held is not UNSET]


def dict_of_object(value: Any) -> dict[str, Any] | None:
    """The dict in which an object keeps its attributes, past ways of its class; None where there is none."""
    base: Any = _local if issubclass(type(value), _local) else object
    try:
        found = base.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return found if isinstance(found, dict) else None


def attributes_of_object(value: Any) -> dict[str, Any]:
    """What is in the slots and the `__dict__` of an object, by names."""
    found = {member.__name__: held for member, held in slots_of_object(value)}
    return found | (dict_of_object(value) or {})


def seen_attributes_of_object(value: Any) -> dict[str, Any]:
    """The same as code sees them: of an object that stands for one of the user's what that holds."""
    kind = type(value)
    if not is_proxy_class(kind):
        return attributes_of_object(value)
    found = {name: getattr(value, name, UNSET) for name in slots_of_class(kind)}
    return {name: held for name, held in found.items() if held is not UNSET} | dict(getattr(value, "__dict__", {}))


def put_attributes(value: Any, attributes: Iterable[tuple[Any, Any]]) -> Any:
    """The object, after its slots and its `__dict__` got these, past methods of its class."""
    kind = type(value)
    if not has_own_slots(kind):
        if (held := dict_of_object(value)) is not None:
            held.update(attributes)
        return value
    for name, part in attributes:
        if (slot := slot_of_class(kind, name)) is not None:
            slot.__set__(value, part)
        else:
            dict_of_object(value)[name] = part  # type: ignore[index]
    return value


# what an object holds


BUFFERS = (bytearray, array)


def named_parts_of_object(value: Any, row: Kind | None = None) -> tuple[tuple[Any, ...], list[Any]]:
    """What a container was made with and holds, with the keys of a mapping; of others the attributes with their names.

    It is read past methods of the class."""
    row = row_of_class(type(value)) if row is None else row
    if row.items is None:
        held = attributes_of_object(value)
        return tuple(held), [*held.values()]
    settings = settings_of_object(value, row)
    if row.family is not dict:
        return (), [*settings, *row.items(value)]
    pairs = [*row.items(value)]
    return (*row.settings, *[key for key, _ in pairs]), [*settings, *[item for _, item in pairs]]


def settings_of_object(value: Any, row: Kind) -> list[Any]:
    """What a container was made with, past methods of its class."""
    return [VARS(row.base)[name].__get__(value) for name in row.settings]


def put_parts(value: Any, names: Iterable[Any], parts: Sequence[Any], row: Kind | None = None) -> Any:
    """The object, after it got these as what it holds, with names in their order."""
    row = row_of_class(type(value)) if row is None else row
    if row.put is None:
        return put_attributes(value, zip(names, parts, strict=True))
    row.put(value, [*zip(names, parts, strict=True)] if row.family is dict else parts)
    return value


def make_object(kind: Any, names: Sequence[Any], parts: Sequence[Any]) -> Any:
    """An object of a class that holds these, past methods of the class: the inverse of `named_parts_of_object`."""
    row = row_of_class(kind)
    if row.is_made_whole:
        return row.blank(kind, parts)
    if not (count := len(row.settings)):
        return put_parts(row.blank(kind), names, parts, row)
    return put_parts(row.blank(kind, *parts[:count]), names[count:], parts[count:], row)


def contents_of_object(value: Any, row: Kind | None = None) -> list[Any]:
    """What an object holds as a container: keys, what it was made with, and items."""
    kind = type(value)
    if kind is dict:
        return [*value, *value.values()]
    row = row_of_class(kind) if row is None else row
    if row.family is None:
        return []
    names, parts = named_parts_of_object(value, row)
    return [*names, *parts, *(() if is_whole_dict(value) else (UNSET,))]


def held_value(value: Any, name: str) -> Any:
    """An attribute; UNSET where there is none, or a cell is empty."""
    try:
        return getattr(value, name)
    except (AttributeError, ValueError):
        return UNSET


def put_attribute(name: str, value: Any, held: Any) -> None:
    """The inverse of `held_value`."""
    if held is not UNSET:
        setattr(value, name, held)
    elif held_value(value, name) is not UNSET:
        delattr(value, name)


def cell_contents(cell: CellType) -> Any:
    """What a cell holds; UNSET for nothing."""
    return held_value(cell, "cell_contents")


def held_by_object(value: Any) -> list[Any]:
    """What a method, a cell, an exception and the like hold beside slots and attributes."""
    held = (held_value(value, name) for name in row_of_class(type(value)).held)
    return [x for x in held if x is not UNSET]


def parts_of_object(value: Any) -> list[Any]:
    """All that an object holds: as a container, in slots, in its `__dict__`."""
    held = (dict_of_object(value) or {}).values()
    return [*contents_of_object(value), *held_by_object(value), *(x for _, x in slots_of_object(value)), *held]


def walk_objects(value: Any, parts: Callable[[Any], Iterable[Any]]) -> Iterator[Any]:
    """The value and what is in it at any depth, each object once; plain values are left out."""
    todo, seen = [value], dict[int, Any]()
    while todo:
        found = todo.pop()
        if type(found) not in PLAIN and id(found) not in seen:
            seen[id(found)] = found
            yield found
            todo += parts(found)


def is_whole_dict(value: Any) -> bool:
    """Whether a dict lists what it holds: nothing was put into an OrderedDict, or taken out, past its class."""
    try:
        return not isinstance(value, OrderedDict) or len([*OrderedDict.items(value)]) == dict.__len__(value)
    except KeyError:
        return False
