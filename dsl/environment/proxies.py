"""The user's classes, objects and modules as traced code sees them: read with care, never written.

A class is stood for by a subclass, an object by an empty object of that. Their `__getattribute__` finds attributes as
Python does, on the class and object behind them: what is there is lifted, and that it is there, or not, is guarded.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from _collections import _tuplegetter  # type: ignore[import-not-found]
from abc import ABCMeta
from collections.abc import Mapping, Sequence
from enum import Flag
from types import (
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    SimpleNamespace,
)
from typing import Any, Generic, NoReturn

from ...runtime.core.readable_text import with_article
from ..core.errors import TraceError, undecided_identity_error
from ..core.object_model import (
    MRO,
    ORIGINAL,
    PLAIN,
    UNSET,
    VARS,
    builtin_container_base_of_class,
    dict_of_object,
    is_user_class,
    mutators_of_class,
    named_parts_of_object,
    row_of_class,
    seen_attributes_of_object,
    settings_of_object,
    slots_of_class,
)
from ..trace.trace import current_trace, trace_in_progress
from .environment import Environment, TracedGlobals
from .frozen_containers import (
    fill_frozen_container,
    refuse_frozen_container_change,
)

WORLD = "_kernelgraph_world"
_SLOTS = (MemberDescriptorType, GetSetDescriptorType)


def refuse_kind(world: Environment, value: Any, label: str) -> NoReturn:
    """Raises TraceError for what no trace follows."""
    raise TraceError(
        f"{label} is {with_article(type(value).__name__)}, which no trace follows; use it outside of the traced "
        "function, and pass what it gives as an argument"
    )


class ReadOnlyProxy:
    """What stands for one thing outside: it looks like that, and refuses to be changed."""

    _world: Environment
    _real: Any
    _label: str

    def __init__(self, world: Environment, real: Any, label: str) -> None:
        object.__getattribute__(self, "__dict__").update(_world=world, _real=real, _label=label)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self._real)

    def _refuse_change(self, name: str, value: Any = None) -> None:
        refuse_frozen_container_change(f"{self._label}.{name}")

    __setattr__ = __delattr__ = _refuse_change

    def __dir__(self) -> list[str]:
        return dir(self._real)

    def __repr__(self) -> str:
        return repr(self._real)


class ModuleProxy(ReadOnlyProxy):
    """A module of the user's: what is read from it is traced, and guarded."""

    def __getattribute__(self, name: str) -> Any:
        held = object.__getattribute__(self, "__dict__")
        if name in held:
            return held[name]
        module, world = held["_real"], held["_world"]
        if name == "__class__":
            return type(module)
        names = vars(module)
        label = f"{module.__name__}.{name}"
        if name == "__dict__" or (module is sys and name == "modules"):
            refuse_kind(world, names, label)
        if name in names:
            found = world.read_guarded(names, name, label)
        else:
            world.guard_finding(names, name, label, "no item")
            hook = f"{module.__name__}.__getattr__"
            if "__getattr__" in names:
                refuse_kind(world, world.guard_read(names, "__getattr__", hook), hook)
            world.guard_finding(names, "__getattr__", hook, "no item")
            found = getattr(module, name)
        held[name] = found
        return found


class CachedFunctionProxy(ReadOnlyProxy):
    """A function with `functools.lru_cache`: with plain arguments and objects from outside its cache answers, with
    others it is traced."""

    def __init__(self, world: Environment, function: Any, label: str) -> None:
        super().__init__(world, function, label)
        vars(self)["_calls"] = dict[Any, Any]()

    def __get__(self, instance: Any, owner: type) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __getattr__(self, name: str) -> Any:
        return self._world.read_guarded(self._real, name, f"{self._label}.{name}", "attribute")

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: Any) -> Any:
        return self

    def __call__(self, *args: Any, **options: Any) -> Any:
        given = [*args, *options.values()]
        if any(self._world.users_object(x) is not None for x in given):
            refuse_kind(self._world, self._real, self._label)
        if not all(type(x) in PLAIN for x in given):
            return self._world.proxy_of(self._real.__wrapped__)(*args, **options)
        key = repr(given), (*options,)
        if key not in self._calls:
            self._world.check_unwritten()
            self._calls[key] = functools.partial(self._real, *args, **options)
            with trace_in_progress(None):
                self._world.guard_read(self._calls[key], "", self._label, "call")
        return self._world.proxy_of(self._calls[key](), self._label)

    def cache_clear(self) -> None:
        refuse_frozen_container_change(f"the cache of {self._label}")

    def cache_info(self) -> None:
        raise TraceError(f"what the cache of {self._label} holds changes from call to call; ask outside of the trace")


# classes


class ProxyBase:
    """Comes first among the bases of stand-ins: they are nobody's subclasses to the user's `__init_subclass__`."""

    __slots__ = ()

    def __init_subclass__(cls, **options: Any) -> None:
        if ORIGINAL not in VARS(cls):
            super_attribute(_environment_of_class(cls), ProxyBase, cls, "__init_subclass__")(**options)


class ProxyMetaclass(type):
    """The class of classes that stand for the user's. What is an instance of those is one of these, and they are equal,
    so that tables by type work."""

    def __getattribute__(cls, name: str) -> Any:
        return _attribute_of_class_proxy(cls, name)

    def __setattr__(cls, name: str, value: Any) -> None:
        if ORIGINAL in VARS(cls):
            refuse_frozen_container_change(f"{_NAME(cls)}.{name}")
        super().__setattr__(name, value)

    def __delattr__(cls, name: str) -> None:
        if ORIGINAL in VARS(cls):
            refuse_frozen_container_change(f"{_NAME(cls)}.{name}")
        super().__delattr__(name)

    def __instancecheck__(cls, instance: Any) -> bool:
        return _class_check_of_proxy(cls, super().__instancecheck__, isinstance, instance)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return _class_check_of_proxy(cls, super().__subclasscheck__, issubclass, subclass)

    def __eq__(cls, other: object) -> bool:
        return original_class(cls) is original_class(other)

    def __hash__(cls) -> int:
        return type.__hash__(original_class(cls))


_NAME = type.__dict__["__name__"].__get__
_asked: set[int] = set()  # classes that are being asked: an abstract class asks its subclasses, stand-ins among them


def _class_check_of_proxy(cls: type, own: Any, ask: Any, candidate: Any) -> bool:
    original = VARS(cls).get(ORIGINAL)
    if original is None:
        return bool(own(candidate))
    if id(cls) in _asked:
        return False
    _asked.add(id(cls))
    try:
        found = bool(ask(candidate, original))
    finally:
        _asked.discard(id(cls))
    if isinstance(original, ABCMeta):  # which may be told of more
        kind = original_class(candidate if ask is issubclass else candidate.__class__)
        asked = functools.partial(_is_subclass_of_proxy, kind, original)
        _environment_of_class(cls).guard_read(asked, "", f"what is {with_article(_NAME(original))}", "call")
    return found


def _is_subclass_of_proxy(kind: Any, base: type) -> bool | None:
    try:
        return issubclass(kind, base)
    except TypeError:  # a protocol with attributes that are no methods
        return None


def original_class(kind: Any) -> Any:
    """The class that this one stands for, or itself."""
    return VARS(kind).get(ORIGINAL, kind) if isinstance(kind, ProxyMetaclass) else kind


_metaclasses: dict[type, Any] = {type: ProxyMetaclass}


def _proxy_metaclass_of(kind: type) -> Any:
    if kind not in _metaclasses:
        _metaclasses[kind] = type(f"Traced{kind.__name__}", (ProxyMetaclass, kind), {})
    return _metaclasses[kind]


# what Python keeps in classes
_PYTHONS = """
__class__ __mro__ __bases__ __name__ __qualname__ __module__ __doc__ __slots__ __weakref__ __annotations__
__parameters__ __orig_bases__ __abstractmethods__ __static_attributes__ __firstlineno__
__dataclass_fields__ __dataclass_params__ _abc_impl __subclasses__ __mro_entries__ __flags__ __basicsize__
"""
_AS_IT_IS = frozenset(_PYTHONS.split())
_OWN_TEXTS = frozenset({"__annotations__", "__doc__", "__name__", "__qualname__"})  # and the user may assign to them
_OF_OUTSIDE_CLASS: dict[str, Any] = {  # what Python says of every class -> what traced code sees there
    **dict.fromkeys(
        _OWN_TEXTS,
        lambda world, kind, name: world.read_guarded(kind, name, f"{kind.__name__}.{name}", "attribute"),
    ),
    "__dict__": lambda world, kind, name: refuse_kind(world, VARS(kind), f"{kind.__name__}.__dict__"),
    "__subclasses__": lambda world, kind, name: functools.partial(_refuse_subclasses, kind),
    "__dataclass_fields__": lambda world, kind, name: _traced_dataclass_fields(world, kind),
}
_NOT_SPECIAL = _AS_IT_IS | {"__new__", "__setattr__", "__delattr__", "__del__", "__dict__"}
_NOT_SPECIAL |= {"__init_subclass__", "__set_name__", "__class_getitem__", "__match_args__"}


def traced_class(world: Environment, kind: type) -> type:
    """A subclass whose attributes are traced and guarded, one for each class; the class itself where that cannot be."""
    if (known := world.registered_proxy_class(kind)) is not None:
        return known
    users = [base for base in kind.__mro__ if is_user_class(base)] or [kind]
    if not _can_be_stood_for(kind, users):
        return kind
    if is_user_class(type(kind)):  # which may decide on all that a class does
        refuse_kind(world, kind, kind.__name__)
    try:
        contents = _contents_of_proxy_class(world, kind, users)
        made: type = type.__new__(_proxy_metaclass_of(type(kind)), kind.__name__, (ProxyBase, kind), contents)
    except TypeError:  # a class that cannot have subclasses
        return kind
    if getattr(kind, "__abstractmethods__", None):
        type.__setattr__(made, "__abstractmethods__", kind.__abstractmethods__)  # type: ignore[attr-defined]
    world.register_proxy_class(kind, made, users)
    world.closing.append(functools.partial(_take_attributes_from_bases, made, kind))
    world.guard_finding(kind, "", f"{kind.__name__}.__bases__", "classes", MRO(kind))
    for base in filter(is_user_class, users):  # one that gets a `__len__` or the like is another
        world.guard_finding(vars(base), "", f"{base.__name__}'s attributes", "size", len(vars(base)))
    return made


def _can_be_stood_for(kind: type, users: list[type]) -> bool:
    """Whether objects of a class have a stand-in. It is no exception, flag or metaclass, was there before the trace,
    and leaves it to Python what an attribute is."""
    if isinstance(kind, ProxyMetaclass) or issubclass(kind, (BaseException, type, Flag)):
        return False
    if any(type(v) is FunctionType and isinstance(v.__globals__, TracedGlobals) for v in vars(kind).values()):
        return False
    return not any(type(vars(base).get("__getattribute__")) is FunctionType for base in users)


def _contents_of_proxy_class(world: Environment, kind: Any, users: list[type]) -> dict[str, Any]:
    """What a class that stands for one of the user's has of its own; it comes before what `kind` has."""
    contents: dict[str, Any] = {"__slots__": (), "__module__": kind.__module__, "__qualname__": kind.__qualname__}
    contents |= {ORIGINAL: kind, WORLD: world, "__doc__": kind.__doc__}
    for name in dict.fromkeys(name for base in filter(is_user_class, users) for name in vars(base)):
        if name.startswith("__") and name.endswith("__") and name not in _NOT_SPECIAL:
            found = next(VARS(base)[name] for base in kind.__mro__ if name in VARS(base))
            contents[name] = None if found is None else SpecialMethodProxy(name)  # __hash__ may be None
    contents |= {name: _refusing_method_of_container_proxy(kind, name) for name in mutators_of_class(kind)}
    contents |= {
        "__getattribute__": _proxy_getattribute,
        "__setattr__": _setattr_of_proxy_class(kind),
        "__delattr__": _delattr_of_proxy_class(kind),
    }
    if "__getstate__" not in contents and getattr(kind, "__getstate__", None) is getattr(object, "__getstate__", None):
        contents["__getstate__"] = _getstate_of_proxy
    if kind is SimpleNamespace:  # whose own methods look into the object
        contents |= {"__eq__": lambda self, other: vars(self) == vars(other), "__hash__": None}
        contents["__reduce__"] = lambda self: (SimpleNamespace, (), dict(vars(self)))
        contents["__repr__"] = lambda self: repr(SimpleNamespace(**vars(self)))
    if kind.__hash__ is object.__hash__:  # sets of stand-ins lie as the user's own
        contents["__hash__"] = lambda self: object.__hash__(_users_object_or_own(world, self))
    if kind.__eq__ is object.__eq__:  # which asks whether they are one
        contents = {"__hash__": kind.__hash__, **contents, "__eq__": _are_objects_one}
    if kind.__repr__ is object.__repr__:  # which has the address
        contents["__repr__"] = lambda self: object.__repr__(_users_object_or_own(world, self))
    if any("__del__" in vars(base) for base in users):
        contents["__del__"] = functools.partialmethod(_refuse_finalizer, world)
    own: Any = builtin_container_base_of_class(kind)
    if own in (set, frozenset) and getattr(kind, "__iter__", None) is own.__iter__:
        contents["__iter__"] = lambda self: iter(_set_proxy_items_in_order(world, self, own))
    return contents


def _users_object_or_own(world: Environment, self: Any) -> Any:
    """The user's object behind a stand-in, else an object that the trace has made."""
    world.require_known_identity(self)
    return self if (real := world.users_object(self)) is None else real


def _are_objects_one(self: Any, other: Any) -> Any:
    """In place of `object.__eq__`."""
    world = _environment_of_class(type(self))
    if world.may_be_one(self, other):
        raise undecided_identity_error("objects")
    return True if self is other or world.users_object(self) is other else NotImplemented


def _refuse_finalizer(value: Any, world: Environment) -> None:
    """In place of the user's `__del__`: nothing, but that an object which the function makes must not end in it."""
    if current_trace() is world.trace and world.users_object(value) is None:
        TraceError(  # noted by the trace: nobody would catch it here
            f"an object of {type(value).__name__} is made and ends in a traced function; its __del__ would not run in "
            "later calls, make it outside"
        )


def _take_attributes_from_bases(made: type, kind: type) -> None:
    """A stand-in is none of the user's subclasses any more; where Python does not let it go, until it is collected."""
    native = _first_native_class(kind)
    for base_of in (lambda kind: kind, _proxy_subclass_with_attributes):
        with contextlib.suppress(TypeError, AttributeError):
            type.__setattr__(made, "__bases__", (ProxyBase, base_of(native)))
            return


@functools.cache
def _proxy_subclass_with_attributes(native: type) -> type:
    return type("", (native,), {})


_HEAP = 1 << 9  # the flag of classes that are written in Python


def _set_proxy_items_in_order(world: Environment, self: Any, base: Any) -> list[Any]:
    """The items of a set in the order of the user's own. That depends on all that was ever in it."""
    real = world.users_object(self)
    return [*base.__iter__(self)] if real is None else [world.proxy_of(i) for i in base.__iter__(real)]


class SpecialMethodProxy:
    """A method such as `__add__`, which Python looks for on the class alone.

    Where looking for it raises, its call does: Python takes an error of looking for `__eq__`, `__hash__`, `__iter__`
    and others to say that there is none."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return _attribute_of_class_proxy(owner, self._name)
        try:
            found = _proxy_getattribute(instance, self._name, special=True)
        except AttributeError:
            raise
        except BaseException as error:
            return functools.partial(_raise_error_of_lookup, error)
        if self._name in _COMPARISONS and found is not None:
            return functools.partial(_compare_with_stand_in, _environment_of_class(type(instance)), found)
        return found


_COMPARISONS = frozenset(("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"))


def _compare_with_stand_in(world: Environment, compare: Any, other: Any) -> Any:
    """compare(other), where `other` may be an object as it is, which a metaclass or an enumeration of flags holds."""
    known = world.registered_proxy_class(type(other))
    return compare(other if known is None or known is type(other) else world.proxy_of(other))


def _raise_error_of_lookup(error: BaseException, *args: Any) -> NoReturn:
    raise error


def _own_members(kind: type) -> Mapping[str, Any]:
    """What a class has itself; stand-ins have nothing of their own."""
    held: Mapping[str, Any] = VARS(kind)
    return {} if ORIGINAL in held or kind is ProxyBase else held


def _look_up(world: Environment, mro: Sequence[type], name: str) -> tuple[type | None, Any]:
    """Which class has it, and what, as Python looks. In the user's classes that, and where it is not, is guarded."""
    for base in mro:
        held = _own_members(base)
        if world.is_class_from_outside(base):
            world.guard_member(base, name)
        if name in held:
            return base, held[name]
    return None, None


def _classes_behind(kind: type, cls: type) -> tuple[type, ...]:
    """Where `super` of a class looks: behind the class itself, not its stand-in, which is equal to it."""
    mro = MRO(cls)
    return mro[next(i for i, base in enumerate(mro) if base is kind) + 1 :]


def _environment_of_class(cls: type) -> Environment:
    found: Environment = next(VARS(base)[WORLD] for base in MRO(cls) if WORLD in VARS(base))
    return found


def _attribute_of_class_proxy(cls: Any, name: str) -> Any:
    """cls.name, for a class that stands for a user's or extends one that does."""
    original = VARS(cls).get(ORIGINAL)
    world = _environment_of_class(cls)
    if name in ("__mro__", "__bases__", "__base__"):
        found = type.__getattribute__(cls if original is None else original, name)
        seen = _classes_with_their_proxies(world, (found,) if name == "__base__" else found)
        return seen[0] if name == "__base__" else seen
    if original is not None and name in _OF_OUTSIDE_CLASS:
        return _OF_OUTSIDE_CLASS[name](world, original, name)
    if name == "__dict__":
        return VARS(cls)
    if name in _AS_IT_IS:
        return type.__getattribute__(cls, name)
    owner, found = _look_up(world, MRO(cls), name)
    if original is not None:
        if name == "__class_getitem__" and (owner is Generic or hasattr(original, name)):
            refuse_kind(world, original, f"{original.__name__}[...]")
        if owner is None and not hasattr(type, name):
            world.guard_finding(original, name, f"{original.__name__}.{name}", "no attribute")
    if owner is not None and world.is_class_from_outside(owner):
        return _bound_member(world, found, None, cls, name)
    return type.__getattribute__(cls, name)


def _traced_dataclass_fields(world: Environment, kind: Any) -> dict[str, Any]:
    """Copies of a dataclass's fields, whose defaults are traced and guarded."""
    import copy
    import dataclasses  # a start needs neither

    found = {}
    for name, field in kind.__dataclass_fields__.items():
        found[name] = made = copy.copy(field)
        for key in ("default", "default_factory", "metadata"):
            if getattr(field, key) is not dataclasses.MISSING:
                setattr(made, key, world.read_guarded(field, key, f"{kind.__name__}.{name}.{key}", "attribute"))
        made.__class__ = _traced_field_class()
    return found


@functools.cache
def _traced_field_class() -> Any:
    """Fields of an outside dataclass, which the function that is traced may not change."""
    import dataclasses  # a start needs none

    class TracedField(dataclasses.Field):  # type: ignore[type-arg]
        __slots__ = ()

        def __setattr__(self, name: str, value: Any) -> None:
            refuse_frozen_container_change(f"the field {self.name} of a dataclass")

    return TracedField


def _classes_with_their_proxies(world: Environment, classes: tuple[type, ...]) -> tuple[type, ...]:
    """Classes as traced code sees them: a stand-in and what it stands for are one."""
    lifted = (
        world.proxy_of(kind) if world.is_class_from_outside(kind) else kind for kind in classes if kind is not ProxyBase
    )
    return tuple(dict.fromkeys(lifted))


def _refuse_subclasses(kind: type) -> NoReturn:
    raise TraceError(f"{kind.__name__}.__subclasses__() is asked while tracing, once for all calls; pass what it gives")


def _bound_member(world: Environment, member: Any, instance: Any, cls: type, name: str) -> Any:
    """What a guarded member of a class of the user's is for an object, or for its class (instance is None)."""
    kind, label = type(member), f"{cls.__name__}.{name}"
    if kind in _SLOTS:
        return member if instance is None else member.__get__(instance, cls)
    if kind is FunctionType or kind is functools._lru_cache_wrapper:
        return world.proxy_of(member) if instance is None else MethodType(world.proxy_of(member), instance)
    if kind is classmethod:
        return MethodType(world.proxy_of(member.__func__), cls)
    if kind is staticmethod:
        return world.proxy_of(member.__func__)
    if kind is property and instance is not None:
        return _value_of_property(world, member, instance, name)
    if kind is functools.cached_property:
        return _bound_cached_property(world, member, instance, name, label)
    if kind is functools.partialmethod and instance is not None:
        bound = _bound_member(world, member.func, instance, cls, name)
        args, keywords = map(world.proxy_of, member.args), member.keywords.items()
        return functools.partial(bound, *args, **{key: world.proxy_of(value) for key, value in keywords})
    if kind is functools.singledispatchmethod:
        refuse_kind(world, member, label)
    if kind is property or not _class_of_value_has(world, member, "__get__"):
        return world.proxy_of(member, label)
    if kind is _tuplegetter and instance is not None:  # its items stand for the user's already
        return member.__get__(instance, cls)
    if is_user_class(kind):
        return world.proxy_of(member).__get__(instance, cls)
    return world.proxy_of(member.__get__(instance, cls), label)


def _value_of_property(world: Environment, member: property, instance: Any, name: str) -> Any:
    if member.fget is None:
        raise AttributeError(f"property {name!r} of {type(instance).__name__!r} object has no getter")
    return world.traced_function(member.fget)(instance)


def _bound_cached_property(world: Environment, member: Any, instance: Any, name: str, label: str) -> Any:
    if instance is None:
        refuse_kind(world, member, label)
    real = world.users_object(instance)
    holder = instance if real is None else real
    if name in vars(holder):
        return world.read_guarded(holder, name, label, "held")
    return world.cached_property_value(instance, name, member)


# objects


def _proxy_getattribute(self: Any, name: str, special: bool = False) -> Any:
    """self.name, for an object of a class that stands for a user's or extends one, as Python finds it. special: as it
    looks for methods, on the class alone."""
    cls = type(self)
    world = _environment_of_class(cls)
    real = None if special else world.users_object(self)
    if name == "__class__":
        return cls if is_user_class(cls) else original_class(cls)
    if name == "__dataclass_fields__" and name in VARS(original_class(cls)):
        return getattr(cls, name)
    world.require_opened(self, name)
    if name in _AS_IT_IS or (name in ("__reduce__", "__getstate__") and not special):
        return object.__getattribute__(self, name)
    owner, member = _look_up(world, MRO(cls), name)
    label = f"{cls.__name__}.{name}"
    if real is not None and type(member) in _SLOTS:
        return _slot_read_by_proxy(world, real, name, label)
    if not (special or _is_data_descriptor(world, member)):
        found = _held_by_instance(world, self, real, name, label)
        if found is not UNSET:
            return found
    if owner is None or not world.is_class_from_outside(owner):
        return object.__getattribute__(self, name)
    return _bound_member(world, member, self, cls, name)


def _held_by_instance(world: Environment, self: Any, real: Any, name: str, label: str) -> Any:
    """What an object holds in its `__dict__`, or the user's object behind it; UNSET for nothing. Both are guarded."""
    held = dict_of_object(self if real is None else real)
    if held is None or real is None:
        return (held or {}).get(name, UNSET)
    if name in held:
        return world.read_guarded(real, name, label, "held")
    world.guard_finding(real, name, label, "not held")
    return UNSET


def _class_of_value_has(world: Environment, value: Any, name: str) -> bool:
    """Whether the class of what a class holds has this, which makes it a descriptor; of a user's that is guarded."""
    kind = type(value)
    has = hasattr(kind, name)
    if has and is_user_class(kind):
        world.guard_read(kind, name, f"{kind.__name__}.{name}", "attribute")
    elif is_user_class(kind):
        world.guard_finding(kind, name, f"{kind.__name__}.{name}", "no attribute")
    return has


def _is_data_descriptor(world: Environment, member: Any) -> bool:
    """Whether a descriptor comes before what the object itself holds."""
    ways = [_class_of_value_has(world, member, name) for name in ("__set__", "__delete__")]
    return any(ways) and _class_of_value_has(world, member, "__get__")


def _slot_read_by_proxy(world: Environment, real: Any, name: str, label: str) -> Any:
    """What a slot of the user's object holds, if anything."""
    if hasattr(real, name):
        return world.read_guarded(real, name, label, "attribute")
    world.guard_finding(real, name, label, "no attribute")
    raise AttributeError(f"{type(real).__name__!r} object has no attribute {name!r}")


class SuperProxy:
    """`super()` in a traced method: the methods that it finds are traced too."""

    def __init__(self, world: Environment, *args: Any) -> None:
        if not args:
            frame = sys._getframe(1)
            args = (frame.f_locals["__class__"], frame.f_locals[frame.f_code.co_varnames[0]])
        object.__setattr__(self, "_world", world)
        object.__setattr__(self, "_args", args)

    def __getattribute__(self, name: str) -> Any:
        world, args = object.__getattribute__(self, "_world"), object.__getattribute__(self, "_args")
        kind = args[0]
        if isinstance(kind, type) and ORIGINAL in VARS(kind):
            kind = world.original_value(kind)  # super(Name, self)
        return super_attribute(world, kind, args[1], name)


def super_attribute(world: Environment, kind: type, self: Any, name: str) -> Any:
    """super(kind, self).name, where the class of `self` stands for a user's or extends one."""
    cls = self if isinstance(self, type) else type(self)
    if not any(base is kind for base in MRO(cls)):
        raise TypeError("super(type, obj): obj must be an instance or subtype of type")
    owner, found = _look_up(world, _classes_behind(kind, cls), name)
    if owner is object and name in ("__hash__", "__repr__") and self is not cls:  # which tell objects apart
        return found.__get__(_users_object_or_own(world, self))
    if owner is None or not world.is_class_from_outside(owner) or type(found) in _SLOTS:
        return getattr(super(kind, self), name)
    return _bound_member(world, found, None if self is cls else self, cls, name)


def _getstate_of_proxy(self: Any) -> Any:
    """For copies: the attributes as traced code sees them."""
    cls = type(self)
    held = seen_attributes_of_object(self)
    known = {name: held.pop(name) for name in slots_of_class(cls) if name in held}
    return (held or None, known) if known else held or None


def _environment_of_changeable_object(self: Any, kind: type, what: str = "") -> Environment:
    """The environment of an object that may be changed. Raises TraceError for another. what: is changed of it."""
    world = _environment_of_class(type(self))
    if world.refuses_assignments(self):
        refuse_frozen_container_change(f"{what}an object of {kind.__name__}")
    return world


def _refusing_method_of_container_proxy(kind: type, name: str) -> Any:
    """A method that changes a container."""

    def refuse_method_of_container_proxy(self: Any, *args: Any, **options: Any) -> Any:
        world = _environment_of_changeable_object(self, kind)
        return _attribute_through_class(world, self, kind, name)(*args, **options)

    refuse_method_of_container_proxy.__name__ = name
    return refuse_method_of_container_proxy


def _setattr_of_proxy_class(kind: Any) -> Any:
    def __setattr__(self: Any, name: str, value: Any) -> None:
        world = _environment_of_changeable_object(self, kind, f"the attribute {name!r} of ")
        world.require_opened(self, name)
        owner, found = _look_up(world, MRO(kind), name)
        users = owner is not None and world.is_class_from_outside(owner)
        if users and getattr(kind, "__setattr__", None) is object.__setattr__:
            if type(found) is property and found.fset is not None:
                world.traced_function(found.fset)(self, value)
                return
            if is_user_class(type(found)) and _class_of_value_has(world, found, "__set__"):
                world.proxy_of(found).__set__(self, value)
                return
        _attribute_through_class(world, self, kind, "__setattr__")(name, value)

    return __setattr__


def _delattr_of_proxy_class(kind: Any) -> Any:
    def __delattr__(self: Any, name: str) -> None:
        world = _environment_of_changeable_object(self, kind, f"the attribute {name!r} of ")
        world.require_opened(self, "__dict__")  # it may come again, behind all others
        _attribute_through_class(world, self, kind, "__delattr__")(name)

    return __delattr__


def _attribute_through_class(world: Environment, self: Any, kind: Any, name: str) -> Any:
    """A method of the user's class, traced, or of Python's, of an object of its stand-in."""
    found = getattr(kind, name)
    return MethodType(world.traced_function(found), self) if type(found) is FunctionType else found.__get__(self)


def refuse_custom_getattribute(kind: type) -> None:
    """What an object gives that decides on every attribute itself cannot be watched."""
    raise TraceError(
        f"an object of the class {kind.__name__}, which has a __getattribute__ of its own, cannot be watched; read "
        "what is needed outside of the traced function, and pass it as an argument"
    )


def proxy_of_object(world: Environment, value: Any, label: str) -> Any:
    """A stand-in for an object of the user's; the object itself where its class has none."""
    kind = type(value)
    if any(type(vars(b).get("__getattribute__")) is FunctionType and is_user_class(b) for b in kind.__mro__):
        refuse_custom_getattribute(kind)
    made = traced_class(world, kind)
    if made is kind:
        return value
    row = row_of_class(kind)
    items = [world.proxy_of(i, label) for i in named_parts_of_object(value, row)[1]] if row.is_made_whole else []
    try:  # a refusal is a TypeError, too: what is in it comes before
        found = row.blank(made, items) if row.is_made_whole else row.blank(made, *settings_of_object(value, row))
    except TypeError:
        return value
    world.stand_for(value, found)
    return found if row.put is None else fill_frozen_container(world.proxy_of, found, value, label)


def _first_native_class(kind: type) -> Any:
    return next(base for base in MRO(kind) if not base.__flags__ & _HEAP)
