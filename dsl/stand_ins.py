"""The user's classes, objects, modules, lists and dicts as traced code sees them: read with care, never written."""

from __future__ import annotations

import abc
import functools
import sys
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

from .errors import TraceError, is_user_file
from .tree import ORIGINAL, is_plain_object

if TYPE_CHECKING:
    from .world import World


def refused(label: str) -> NoReturn:
    raise TraceError(
        f"a traced function cannot change {label}, since later calls would not do it again; change a copy, "
        "or return the value instead"
    )


class FrozenList(list[Any]):
    """A list of the user's."""

    label = ""

    def __reduce__(self) -> Any:
        return list, (list(self),)


class FrozenDict(dict[Any, Any]):
    """A dict of the user's."""

    label = ""

    def __reduce__(self) -> Any:
        return dict, (dict(self),)


def _refusing(name: str) -> Any:
    def method(self: Any, *args: Any, **options: Any) -> NoReturn:
        refused(f"the {type(self).__mro__[1].__name__} {self.label}".rstrip())

    method.__name__ = name
    return method


_ALL = ("__setitem__", "__delitem__", "clear", "pop")
for _name in (*_ALL, "__iadd__", "__imul__", "append", "extend", "insert", "remove", "reverse", "sort"):
    setattr(FrozenList, _name, _refusing(_name))
setattr(FrozenList, ORIGINAL, list)
setattr(FrozenDict, ORIGINAL, dict)
for _name in (*_ALL, "__ior__", "popitem", "setdefault", "update"):
    setattr(FrozenDict, _name, _refusing(_name))


class UserModule:
    """A module of the user's: what is read from it is traced, and guarded."""

    def __init__(self, world: World, module: ModuleType) -> None:
        self.__dict__.update(_world=world, _module=module)

    def __getattr__(self, name: str) -> Any:
        module = self.__dict__["_module"]
        label = f"{module.__name__}.{name}"
        if name in vars(module):
            found = self.__dict__["_world"].read(vars(module), name, label)
        else:
            found = self.__dict__["_world"].lift(getattr(module, name), label)
        self.__dict__[name] = found
        return found

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        refused(f"{self.__dict__['_module'].__name__}.{name}")

    def __repr__(self) -> str:
        return repr(self.__dict__["_module"])


class ClassAttribute:
    """Data in a class: read with a guard, from the class or from an object of it."""

    def __init__(self, world: World, owner: type, name: str) -> None:
        self._world, self._owner, self._name = world, owner, name

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is not None:
            real = self._world.original(instance)
            if real is not instance and self._name in getattr(real, "__dict__", {}):
                return attribute(self._world, instance, real, self._name)
        return self._world.read(self._owner, self._name, f"{self._owner.__name__}.{self._name}", "attribute")


class TracedType(type):
    """The class of classes that stand for the user's: what is an instance of those is one of these."""

    def __instancecheck__(cls, instance: Any) -> bool:
        original = vars(cls).get(ORIGINAL)
        return super().__instancecheck__(instance) if original is None else isinstance(instance, original)

    def __subclasscheck__(cls, subclass: type) -> bool:
        original = vars(cls).get(ORIGINAL)
        return super().__subclasscheck__(subclass) if original is None else issubclass(subclass, original)


class TracedABC(TracedType, abc.ABCMeta):
    """The same for abstract classes."""


_METACLASSES = {type: TracedType, abc.ABCMeta: TracedABC}


def is_user_class(kind: type) -> bool:
    """Whether a class was defined in a file of the user's."""
    name = kind.__module__
    if name == "builtins" or name in sys.builtin_module_names:
        return False
    file = getattr(sys.modules.get(name), "__file__", None)
    return file is None or is_user_file(file)


def traced_class(world: World, kind: type) -> type:
    """A subclass whose methods are traced; the class itself where that cannot be."""
    if type(kind) not in _METACLASSES or not is_user_class(kind) or issubclass(kind, BaseException):
        return kind
    own = [base for base in kind.__mro__ if is_user_class(base)]
    if any(name in vars(base) for base in own for name in ("__init_subclass__", "__getattribute__")):
        return kind
    contents: dict[str, Any] = {"__slots__": (), "__module__": kind.__module__, "__qualname__": kind.__qualname__}
    contents[ORIGINAL] = kind
    try:
        made: type = _METACLASSES[type(kind)](kind.__name__, (kind,), contents)
    except TypeError:  # a class that cannot have subclasses
        return kind
    world._remember(kind, made)  # before its methods, which may name it
    seen = set(contents)
    for base in kind.__mro__:
        for name, value in vars(base).items():
            if name not in seen and base in own:
                replaced = _member(world, kind, name, value)
                if replaced is not value:
                    type.__setattr__(made, name, replaced)
            seen.add(name)
    type.__setattr__(made, "__getattr__", _getattr(world, made))
    type.__setattr__(made, "__setattr__", _setattr(world, kind))
    type.__setattr__(made, "__delattr__", _delattr(world, kind))
    return made


_OWN_WAYS = frozenset({"__getattr__", "__setattr__", "__delattr__", "__getattribute__", "__new__"})


def _member(world: World, owner: type, name: str, value: Any) -> Any:
    """What takes the place of something that a class has."""
    kind = type(value)
    if kind is FunctionType:
        return value if name in _OWN_WAYS else world.function(value)
    if kind in (staticmethod, classmethod):
        return kind(world.lift(value.__func__))
    if kind is property:
        get, set_, delete = (f and world.lift(f) for f in (value.fget, value.fset, value.fdel))
        return property(get, set_, delete, value.__doc__)
    if kind is functools.cached_property:
        made = functools.cached_property(world.lift(value.func))
        made.__set_name__(owner, name)
        return made
    if name.startswith("__") or hasattr(kind, "__get__") or hasattr(kind, "__set_name__"):
        return value
    return ClassAttribute(world, owner, name)


def _getattr(world: World, made: type) -> Any:
    def __getattr__(self: Any, name: str) -> Any:
        real = world.original(self)
        if real is self:
            above = getattr(super(made, self), "__getattr__", None)
            if above is None:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            return above(name)
        return attribute(world, self, real, name)

    return __getattr__


def attribute(world: World, stand_in: Any, real: Any, name: str) -> Any:
    """An attribute of the user's object, for its stand-in."""
    label = f"{type(real).__name__}.{name}"
    held = getattr(real, "__dict__", {})
    if name in held:
        found = world.read(held, name, label)
    elif name.startswith("__"):
        raise AttributeError(f"{type(real).__name__!r} object has no attribute {name!r}")
    else:
        found = world.read(real, name, label, "attribute")
    if name in held and not hasattr(type(real), name):
        object.__setattr__(stand_in, name, found)  # found at once the next time
    return found


def _setattr(world: World, kind: Any) -> Any:
    above = kind.__setattr__

    def __setattr__(self: Any, name: str, value: Any) -> None:
        if world.is_sealed(self):
            refused(f"the attribute {name!r} of an object of {kind.__name__}")
        above(self, name, value)

    return __setattr__


def _delattr(world: World, kind: Any) -> Any:
    above = kind.__delattr__

    def __delattr__(self: Any, name: str) -> None:
        if world.is_sealed(self):
            refused(f"the attribute {name!r} of an object of {kind.__name__}")
        above(self, name)

    return __delattr__


def object_in(world: World, value: Any, label: str) -> Any:
    """A stand-in for an object of the user's that is no more than its attributes; others as they are."""
    kind = type(value)
    if not is_user_class(kind) or not (hasattr(kind, "__dataclass_fields__") or is_plain_object(kind)):
        return value
    made = traced_class(world, kind)
    if made is kind or ORIGINAL in vars(kind):
        return value
    return object.__new__(made)
