"""What a traced function returns beside arrays and numbers: the user's own object, or one that each call gets anew."""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import ContextVar
from enum import EnumMeta
from types import AsyncGeneratorType, CoroutineType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from ...runtime.core.readable_text import with_article
from ..core.errors import TraceError
from ..core.object_state import PLAIN, builtin_container_base_of_class, contents_of_container_object, is_user_class
from ..core.pytree import ORIGINAL, Tree, is_proxy_class
from ..trace.trace import Trace
from ..trace.tracer import TracedNumber, Tracer
from .environment import TracedGlobals

# where partial objects, properties and methods of Python's own classes keep what they need
_PARTS = ("func", "args", "keywords", "fget", "fset", "fdel", "__self__")
_VARS = type.__dict__["__dict__"].__get__  # past a metaclass's own way


def returned_user_object(
    trace: Trace, leaf: Any, subject: str = "the function returns", line: str | None = None
) -> tuple[str, Any]:
    """A returned leaf that is no array: ("static", value), or ("fresh", value), of which each call gets a copy.

    subject, line: how an error begins, and where the mistake is; by default where the call is.
    Raises TraceError for what would run, or hold traced values, after the trace is over."""
    kind = type(leaf)
    if isinstance(leaf, (CoroutineType, AsyncGeneratorType)) or hasattr(kind, "__next__"):
        getattr(leaf, "close", int)()  # or Python warns that nobody awaits it
        raise TraceError(
            f"{subject} {with_article(kind.__name__)}, which runs after the trace is over; return arrays, "
            "or a list of them",
            line,
        )
    if kind is slice and any(isinstance(x, (Tracer, TracedNumber)) for x in (leaf.start, leaf.stop, leaf.step)):
        raise TraceError(f"{subject} a slice that traced values decide; return its numbers", line)
    real = _users_returned_object(trace, leaf)
    if real is not leaf or kind in PLAIN:
        return "static", real
    if ORIGINAL in _VARS(kind):
        raise TraceError(
            f"{subject} an object of the class {kind.__name__} that it has made, which is more than its "
            "attributes; return these and its value, and make the object of what the call gives",
            line,
        )
    for part in _objects_reachable_from_returned(leaf):
        if isinstance(part, (Tracer, TracedNumber)):
            raise TraceError(
                f"{subject} an object of the class {kind.__name__}, which holds traced values; return them "
                "in a tuple, list, dict or dataclass, and make the object of what the call gives",
                line,
            )
        if _is_class_made_in_trace(part):
            what = "class" if isinstance(part, type) else "function"
            raise TraceError(
                f"{subject} {_name_returned_object(leaf)}, which needs the {what} {part.__name__} that is made in it, "
                "for one trace and all its calls; define it outside of the traced function",
                line,
            )
    if isinstance(leaf, EnumMeta) and is_user_class(leaf):
        raise TraceError(f"{subject} the class {leaf.__name__}, which is made in it; define it outside", line)
    if callable(leaf):
        return "static", leaf
    import copy

    try:
        again = copy.deepcopy(leaf)
    except Exception:
        return "static", leaf
    return ("static" if again is leaf else "fresh"), leaf


def check_classes_of_returned_containers(tree: Tree) -> None:
    """Raises TraceError where the class of a result's container is made in the traced function."""
    todo = [tree]
    while todo:
        found = todo.pop()
        todo += found.children
        if found.kind is not None and any(
            _is_class_made_in_trace(part) for part in _objects_reachable_from_returned(found.kind)
        ):
            raise TraceError(
                f"the function returns an object of the class {found.kind.__name__}, which is made in it, for one "
                "trace and all its calls; define the class outside of the traced function"
            )


def _users_returned_object(trace: Trace, leaf: Any) -> Any:
    """The user's own object that a leaf stands for, or the leaf."""
    if trace.world is None:
        return leaf
    if type(leaf) is not MethodType:
        trace.world.users_object_told_apart(leaf)
        return trace.world.original_value(leaf)
    function, owner = trace.world.original_value(leaf.__func__), trace.world.original_value(leaf.__self__)
    return leaf if function is leaf.__func__ or owner is leaf.__self__ else MethodType(function, owner)


def _name_returned_object(leaf: Any) -> str:
    name = getattr(leaf, "__name__", None)
    return f"an object of the class {type(leaf).__name__}" if name is None else f"{name!r}"


def _is_class_made_in_trace(part: Any) -> bool:
    """Whether it is a function over traced globals, or a class made in the trace. Such a class stands for one of the
    user's or extends it."""
    if type(part) is FunctionType:
        return isinstance(part.__globals__, TracedGlobals)
    return isinstance(part, type) and is_proxy_class(part)


def _objects_reachable_from_returned(leaf: Any) -> Iterator[Any]:
    """All that is in it, at any depth that can be seen, and their classes."""
    todo, seen = [leaf], set[int]()
    while todo:
        value = todo.pop()
        kind = type(value)
        if id(value) in seen or kind in PLAIN or isinstance(value, ModuleType):
            continue
        seen.add(id(value))
        yield value
        if isinstance(value, (Tracer, TracedNumber, np.ndarray, FunctionType)):
            continue
        if isinstance(value, type):
            held = _VARS(value)
            todo += () if ORIGINAL in held else [f for f in held.values() if type(f) is FunctionType]
            continue
        todo.append(kind)
        if kind is MethodType:
            todo += [value.__func__, value.__self__]
        todo += (
            [] if (base := builtin_container_base_of_class(kind)) is None else contents_of_container_object(base, value)
        )
        todo += getattr(value, "__dict__", {}).values()
        slots = [n for b in kind.__mro__ for n in np.atleast_1d(b.__dict__.get("__slots__", ())).tolist()]
        todo += [getattr(value, n) for n in slots if hasattr(value, n)]
        todo += [getattr(value, n) for n in _PARTS if hasattr(value, n)]
        todo += [value.get(None)] if kind is ContextVar else []
