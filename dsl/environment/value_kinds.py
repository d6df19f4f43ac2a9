"""What a traced function may find outside, one row for each kind: what stands for it while tracing.

Each row says which values it is for and how they are read; that they stay as they are is guarded by `guards.sameness`
(plain data, containers and arrays, wherever they are held), or by what the row's function watches. What stands for
something that can change refuses to be changed; what has no stand-in is compared with its state in full.
"""

from __future__ import annotations

import functools
import gc
import os
from _thread import _local
from collections.abc import Callable, Sequence
from types import (
    BuiltinFunctionType,
    FunctionType,
    GenericAlias,
    MappingProxyType,
    MethodType,
    MethodWrapperType,
    ModuleType,
)
from typing import Any

import numpy as np

from ...compiler.core.types import dtype_of
from ...runtime.core.readable_text import with_article
from ..core.errors import TraceError
from ..core.object_model import (
    are_same_objects,
    attributes_of_object,
    builtin_container_base_of_class,
    held_by_object,
    is_namespace_class,
    is_proxy_class,
    is_user_class,
    is_user_module,
    make_object,
    named_parts_of_object,
    row_of_class,
    settings_of_object,
)
from ..core.object_state import VIEWS, is_class_of_immutable_objects, is_iterator_class, is_weak_reference_class
from ..core.spec import native_byte_order
from ..interop.host_import import is_foreign_array
from ..trace.trace import Trace
from ..trace.tracer import CAPTURED, Tracer
from .environment import (
    Environment,
    StandIn,
    refuse_read_past_proxy,
)
from .frozen_containers import fill_frozen_container, frozen_container_class
from .numpy_proxy import is_numpys, numpy_proxy_of
from .outside_reads import MODULES, OutsideProxy, is_outside, is_partly_outside
from .printing import LoggerProxy, is_logger, print_in_traced_code
from .proxies import (
    CachedFunctionProxy,
    ModuleProxy,
    ProxyMetaclass,
    SuperProxy,
    proxy_of_object,
    refuse_kind,
    traced_class,
)
from .type_proxy import TypeProxy, ask_in_traced_code

Applies = Callable[[type, Any], bool]


def _captured_array_proxy(world: Environment, value: Any, label: str) -> Any:
    """Numbers are an input of the graph, read at each call; text and dates are known, and cannot be written."""
    try:
        dtype_of(native_byte_order(value.dtype))
    except TypeError:
        found = value.view()
        if value.dtype == object:
            found = np.empty(value.shape, object)
            for i, x in enumerate(value.ravel()):  # one by one: NumPy would ask them all whether they are arrays
                found.reshape(-1)[i] = world.proxy_of(x, label)
        found.flags.writeable = False
        return found
    return Tracer(world.trace, world.trace.capture_array(value), CAPTURED)


def _class_proxy(world: Environment, value: Any, label: str) -> Any:
    if not is_user_class(value):
        return value
    made = traced_class(world, value)
    if made is value and not isinstance(value, ProxyMetaclass):
        bases = [base for base in value.__mro__ if is_user_class(base)]
        if any(vars(base).keys() - _BARE_CLASS_ATTRIBUTES for base in bases):
            world.guard_state(value, label)
        else:
            for base in bases:
                world.guard_finding(vars(base), "", f"{base.__name__}'s attributes", "size", len(vars(base)))
    return made


_BARE_CLASS_ATTRIBUTES = {
    "__module__",
    "__doc__",
    "__weakref__",
    "__dict__",
    "__firstlineno__",
    "__static_attributes__",
}


def _module_proxy(world: Environment, value: Any, label: str) -> Any:
    if value.__name__ in ("numpy.random", "random"):
        return OutsideProxy("np.random" if value is np.random else value.__name__, value)
    if is_numpys(value):
        return numpy_proxy_of(value)
    if is_user_module(value) or value.__name__ in MODULES:
        return ModuleProxy(world, value, value.__name__)
    return value


def _remade(parts: Callable[[Any], Sequence[Any]], make: Callable[..., Any]) -> StandIn:
    """For what never changes: itself, or one made of itself and what stands for its parts."""

    def proxy_of_parts(world: Environment, value: Any, label: str) -> Any:
        held = parts(value)
        proxies = [world.guard_value(part, label) for part in held]
        return value if are_same_objects(proxies, held) else make(value, *proxies)

    return proxy_of_parts


def _is_method_in_c(kind: type, value: Any) -> bool:
    """Whether it is bound to an object: functions in C have a module there, and class methods a class."""
    if kind is BuiltinFunctionType or kind is MethodWrapperType:
        owner = value.__self__
        return not isinstance(owner, (ModuleType, type(None))) and not (
            isinstance(owner, type) and not is_user_class(owner)
        )
    return False


def _partial_proxy(world: Environment, value: Any, label: str) -> Any:
    func, args, options = (world.read_guarded(value, key, label, "attribute") for key in ("func", "args", "keywords"))
    found = functools.partial(func, *args, **options)
    world.stand_for_attributes(value, found, label)
    world.require_unchanged_function(found, ("func", "args", "keywords"), label)
    return found


def _is_giver(kind: type, value: Any) -> bool:
    """Whether it gives what others give by name: a module, or a logger."""
    return kind is FunctionType and (value.__module__, value.__name__) in _GIVERS


_GIVERS = ("importlib", "import_module"), ("logging", "getLogger")


def _proxy_of_giver(world: Environment, value: Any, label: str) -> Any:
    return lambda *args, **options: world.proxy_of(value(*args, **options), label)


def _proxy_of_container(world: Environment, value: Any, label: str) -> Any:
    """A copy with what stands for its items."""
    kind = type(value)
    row = row_of_class(kind)
    if is_proxy_class(kind):  # a container of the arguments, read through what holds it
        return value
    if row.is_made_whole:
        parts = named_parts_of_object(value, row)[1]
        items = [world.proxy_of(i, label) for i in parts]
        if are_same_objects(items, parts):
            return value
        if kind is frozenset:
            found = frozen_container_class(kind)(dict.fromkeys(items))
            found._order = items
            return found
        return make_object(kind, (), items)
    found = row.blank(frozen_container_class(kind), *settings_of_object(value, row))
    world.stand_for(value, found)  # before its items: it may contain itself
    fill_frozen_container(world.proxy_of, found, value, label)
    found.label = label
    world.require_unchanged_container(found, row.family, label)
    return found


def _decorated_function_proxy(world: Environment, value: Any, label: str) -> Any:
    """It is traced when it is called; what the user has put on it must stay."""
    own = {k: v for k, v in vars(value).items() if not k.startswith("_")}
    world.guard_finding(vars(value), "", label, "size", len(vars(value)))
    for key in own:
        world.guard_value(own[key], f"{label}.{key}")
        world.guard_read(value, key, f"{label}.{key}", "attribute")
    world.require_unchanged_attributes(value)
    return value


def _object_proxy(world: Environment, value: Any, label: str) -> Any:
    found = proxy_of_object(world, value, label)
    if found is value:
        return _guarded_library_object(world, value, label)
    world.guard_finding(value, "", label, "type", type(value))
    return world.refuse_assignments(found)


def _iterator_proxy(world: Environment, value: Any, label: str) -> Any:
    raise TraceError(
        f"{label} is {with_article(type(value).__name__)}, which would give its next items once, for all calls; "
        "make a list of it, and pass that"
    )


def _weak_reference_proxy(world: Environment, value: Any, label: str) -> Any:
    raise TraceError(f"{label} refers to an object weakly, and a trace would keep that alive; pass the object itself")


def _is_alias(kind: type, value: Any) -> bool:
    """Whether it is what `Name[...]` gives for a generic class of the user's."""
    if kind is not GenericAlias and kind.__module__ != "typing":
        return False
    origin = getattr(value, "__origin__", None)
    return isinstance(origin, type) and is_user_class(origin) and (kind is GenericAlias or hasattr(kind, "copy_with"))


def _exception_proxy(world: Environment, value: Any, label: str) -> Any:
    """Itself, in the state it is in. Raises TraceError for one that holds what has a stand-in."""
    held = [*held_by_object(value), *attributes_of_object(value).values()]
    if not are_same_objects([world.proxy_of(part, label) for part in [*value.args, *held]], [*value.args, *held]):
        refuse_kind(world, value, label)
    return _guarded_library_object(world, value, label)


def _guarded_library_object(world: Environment, value: Any, label: str) -> Any:
    """An object of a library's: it must stay in the state that it is in."""
    if not is_class_of_immutable_objects(type(value)):
        world.guard_state(value, label)
    return value


def _is_not_followed(kind: type, value: Any) -> bool:
    """Whether it is so rare that functions which meet it run in NumPy: numbers and contexts of `decimal`, variables of
    contexts and of threads, aliases of generic classes, views of dicts, `os.environ`, what `functools` makes of a
    comparison or for a class of arguments; super objects and properties that are no members of classes."""
    of = value if isinstance(value, (type, FunctionType, BuiltinFunctionType)) else kind
    module = value.__name__ if kind is ModuleType else of.__module__
    if value is os.environ or value is os.getenv or module in _MODULES_NOT_FOLLOWED:
        return True
    dispatches = kind is FunctionType and value.__code__ is _DISPATCHING
    return dispatches or issubclass(kind, _NOT_FOLLOWED) or kind in VIEWS or _is_alias(kind, value)


_NOT_FOLLOWED = _local, property, super, type(functools.cmp_to_key(max))
_MODULES_NOT_FOLLOWED = frozenset({"decimal", "_decimal", "contextvars", "_contextvars"})
_DISPATCHING = functools.singledispatch(id).__code__  # type: ignore[attr-defined]


def _is_numpy_or_python_class(kind: type) -> bool:
    """Whether it is NumPy's or Python's, as masked arrays and memoryviews are: what they hold is read while tracing."""
    return kind.__module__.partition(".")[0] in ("numpy", "builtins")


# (what, which classes or values, what stands for them); the first that applies
KINDS: tuple[tuple[str, tuple[type, ...] | Applies, StandIn], ...] = (
    ("array", (np.ndarray,), _captured_array_proxy),
    ("weak reference", lambda kind, value: is_weak_reference_class(kind), _weak_reference_proxy),
    ("print", lambda kind, value: value is print, lambda world, value, label: print_in_traced_code),
    ("logger", is_logger, lambda world, value, label: LoggerProxy(label, value)),
    ("world outside", lambda kind, value: is_outside(kind, value) or is_partly_outside(kind, value),
     lambda world, value, label: OutsideProxy(label, value)),
    ("NumPy's", lambda kind, value: is_numpys(value) and kind is not ModuleType,
     lambda world, value, label: numpy_proxy_of(value)),
    ("giver", _is_giver, _proxy_of_giver),
    ("what no trace follows", _is_not_followed, refuse_kind),
    ("native read", lambda kind, value: value is object.__getattribute__ or value is type.__getattribute__,
     lambda world, value, label: refuse_read_past_proxy("__getattribute__", "getattr(o, name)")),
    ("function", (FunctionType,), lambda world, value, label: world.traced_function(value)),
    ("class", lambda kind, value: isinstance(value, type), _class_proxy),
    ("module", (ModuleType,), _module_proxy),
    ("method", (MethodType,),
     _remade(held_by_object, lambda value, *parts: MethodType(*parts))),
    ("method in C", _is_method_in_c,
     _remade(lambda value: [value.__self__], lambda value, owner: getattr(owner, value.__name__))),
    ("partial", (functools.partial,), _partial_proxy),
    ("cached function", (functools._lru_cache_wrapper,), CachedFunctionProxy),
    ("static method", (staticmethod, classmethod),
     _remade(lambda value: [value.__func__], lambda value, function: type(value)(function))),
    ("decorated function", lambda kind, value: kind.__name__ == "KernelGraph" and hasattr(kind, "_call_in_trace"),
     _decorated_function_proxy),
    ("exception", lambda kind, value: isinstance(value, BaseException), _exception_proxy),
    ("object", lambda kind, value: is_user_class(kind) or is_namespace_class(kind),
     _object_proxy),
    ("mapping that cannot be written", (MappingProxyType,),
     _remade(gc.get_referents, lambda value, owner: MappingProxyType(owner))),
    ("container", lambda kind, value: builtin_container_base_of_class(kind) is not None, _proxy_of_container),
    ("iterator", lambda kind, value: is_iterator_class(kind), _iterator_proxy),
    ("array of another library", lambda kind, value: is_foreign_array(value) and not _is_numpy_or_python_class(kind),
     lambda world, value, label: value),
    ("anything else", lambda kind, value: True,
     lambda world, value, label: _guarded_library_object(world, numpy_proxy_of(value), label)),
)  # fmt: skip


def proxy_of_value(world: Environment, value: Any, label: str) -> Any:
    """What stands for a value, by the first row that applies."""
    kind = type(value)
    rows = (make for _, of, make in KINDS if (kind in of if isinstance(of, tuple) else of(kind, value)))
    return next(rows)(world, value, label)


def environment_of(trace: Trace) -> Environment:
    """What a trace sees of what lies outside of its function."""
    names = {"super": SuperProxy, "type": TypeProxy, "print": print_in_traced_code}
    names |= {run.__name__: OutsideProxy(run.__name__, run) for run in (open, input, breakpoint, eval, exec)}
    names |= {ask.__name__: functools.partial(ask_in_traced_code, ask) for ask in (isinstance, hasattr)}
    return Environment(trace, proxy_of_value, names)
