"""What leaves a trace with an error that the user's function raises: the user's own objects in place of what stands for
them. An error that holds more of the trace is raised in NumPy, by the function as it is written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import FunctionType
from typing import Any

from ...runtime.core.readable_text import with_article
from ..core.errors import TraceError, UserError, is_own_mistake, line_of_traceback
from ..core.object_model import ORIGINAL, VARS, attributes_of_object, held_by_object, put_attributes, walk_objects
from ..core.object_state import referents_of_object
from ..trace.tracer import TracedNumber, Tracer

TRACED = (Tracer, TracedNumber)
_OURS = __name__.partition(".")[0] + "."


def give_users_objects_to_error(error: BaseException, world: Any) -> None:
    """The user's objects in place of what stands for them. Raises TraceError for an error that holds anything else that
    only the trace has: a traced value, an object that it has made, a container of the arguments.

    Functions are not looked into: who uses what they hold is told so."""
    if isinstance(error, UserError) or is_own_mistake(error):  # which stay this package's
        return
    own = world.original_value
    for each in walk_objects(error, _errors_behind):
        args = tuple(map(own, each.args))
        if any(a is not b for a, b in zip(args, each.args, strict=True)):
            each.args = args
        held = [(name, x, own(x)) for name, x in attributes_of_object(each).items()]
        put_attributes(each, [(name, real) for name, x, real in held if real is not x])
    if any(_is_of_trace(part, world) for part in walk_objects(error, _parts_of_error)):
        raise TraceError(
            f"{with_article(type(error).__name__)} holds a traced value, which has no value yet, or an object that "
            "is made or given in the call",
            line_of_traceback(error.__traceback__),
        ) from None


def _errors_behind(error: BaseException) -> Iterator[BaseException]:
    return (x for x in (error.__cause__, error.__context__) if x is not None and not isinstance(x, UserError))


def _parts_of_error(value: Any) -> Iterable[Any]:
    if isinstance(value, (*TRACED, FunctionType, UserError)):
        return ()
    if isinstance(value, BaseException):
        return [*held_by_object(value), *attributes_of_object(value).values()]
    kind = type(value)
    if str(kind.__module__).startswith(_OURS) and ORIGINAL not in VARS(kind):  # as an error of our own code has it
        return ()
    return referents_of_object(value)


def _is_of_trace(value: Any, world: Any) -> bool:
    made = isinstance(value, TRACED) or ORIGINAL in VARS(type(value)) or world.original_value(value) is not value
    return made or world.is_container_of_arguments(value)
