"""What a traced function returns beside arrays and numbers: the user's own object, or one that each call gets anew."""

from __future__ import annotations

from collections.abc import Iterable
from enum import EnumMeta
from types import AsyncGeneratorType, CoroutineType, FunctionType, MethodType
from typing import Any

from ...runtime.core.readable_text import with_article
from ..core.errors import TraceError
from ..core.object_model import ORIGINAL, PLAIN, VARS, is_proxy_class, is_user_class, walk_objects
from ..core.object_state import referents_of_object
from ..core.pytree import Tree
from ..trace.trace import Trace
from .environment import TracedGlobals
from .raised_errors import TRACED


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
    if kind is slice and any(isinstance(x, TRACED) for x in (leaf.start, leaf.stop, leaf.step)):
        raise TraceError(f"{subject} a slice that traced values decide; return its numbers", line)
    real = _users_returned_object(trace, leaf)
    if real is not leaf or kind in PLAIN or trace.world.is_known_as_it_is(leaf):
        return "static", real
    if ORIGINAL in VARS(kind):
        raise TraceError(
            f"{subject} an object of the class {kind.__name__} that it has made, which is more than its "
            "attributes; return these and its value, and make the object of what the call gives",
            line,
        )
    parts = [*walk_objects(leaf, _parts_of_returned_object)]
    if any(isinstance(part, TRACED) for part in parts):
        raise TraceError(
            f"{subject} an object of the class {kind.__name__}, which holds traced values; return them "
            "in a tuple, list, dict or dataclass, and make the object of what the call gives",
            line,
        )
    for part in parts:
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


def returned_key(trace: Trace, key: Any) -> Any:
    """The user's own key of a dict that a call returns, or keeps. Raises TraceError for one that the trace has made."""
    if type(key) in PLAIN:
        return key
    found = returned_user_object(trace, key, "a dict gets as its key")[1]
    if any(map(trace.world.is_given, walk_objects(found, _parts_of_returned_object))):
        raise TraceError("a dict gets as its key an object that is another, equal one in other calls; return its items")
    return found


def check_classes_of_returned_containers(tree: Tree) -> None:
    """Raises TraceError where the class of a result's container is made in the traced function."""
    for found in tree.nodes():
        if found.kind is not None and any(
            _is_class_made_in_trace(part) for part in walk_objects(found.kind, _parts_of_returned_object)
        ):
            raise TraceError(
                f"the function returns an object of the class {found.kind.__name__}, which is made in it, for one "
                "trace and all its calls; define the class outside of the traced function"
            )


def _users_returned_object(trace: Trace, leaf: Any) -> Any:
    """The user's own object that a leaf stands for, or the leaf."""
    real = trace.world.users_object_told_apart(leaf)
    if real is not None or type(leaf) is not MethodType:
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


def _parts_of_returned_object(value: Any) -> Iterable[Any]:
    return () if isinstance(value, TRACED) else referents_of_object(value)
