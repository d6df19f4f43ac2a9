"""What a traced function prints and logs: it is said at each call, once the values that it is of are there.

A call of `print`, or of a logger, is kept with stand-ins for its values; what looks at results makes it again."""

from __future__ import annotations

import builtins
import functools
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...runtime.core.frozen import dataclass
from ..core.errors import user_line
from ..core.object_state import PLAIN
from ..core.pytree import Tree, flatten, unflatten
from ..trace.operands import to_traced_array
from ..trace.trace import Trace, current_trace, loop_recorder_of_trace
from ..trace.tracer import TracedNumber, Tracer
from .outside_reads import OutsideProxy, outside_call_error

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "warn": 30, "error": 40, "critical": 50, "fatal": 50}


@dataclass(frozen=True)
class TracedValue:
    """Where a call gets a value. make: what it is in Python, from an array."""

    make: Callable[[Any], Any]


@dataclass(frozen=True)
class CallWithValues:
    """A call that is made with the values of arrays, where its arguments have `TracedValue`."""

    function: Callable[..., Any]
    tree: Tree
    leaves: tuple[Any, ...]

    def __call__(self, arrays: Sequence[Any]) -> None:
        values = iter(arrays)
        leaves = [x.make(next(values).numpy()) if type(x) is TracedValue else x for x in self.leaves]
        self.function(*unflatten(self.tree, leaves))


def call_with_values(trace: Trace, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """From now on each call makes this one, with the values of what is traced in its arguments."""
    leaves: list[Any] = []
    tree = flatten(args, leaves)
    arrays = []
    for i, x in enumerate(leaves):
        if type(x) is TracedNumber or isinstance(x, Tracer):
            arrays.append(to_traced_array(x)._value)
            is_array = x.__class__ is np.ndarray
            make = np.asarray if is_array else np.ndarray.item if type(x) is TracedNumber else operator.itemgetter(())
            leaves[i] = TracedValue(make)
    trace.watched.append((tuple(arrays), CallWithValues(function, tree, tuple(leaves))))


def print_to(file: Any, **options: Any) -> Callable[..., None]:
    """`print` with these options. file: what it prints to, or what stands for that."""
    return functools.partial(builtins.print, file=file._real if type(file) is OutsideProxy else file, **options)


def _say(name: str, function: Callable[..., Any], args: tuple[Any, ...], sayable: bool = True) -> None:
    """Says it at each call. Raises TraceError where Python is needed to know when, or what."""
    trace = current_trace()
    if trace is None:
        function(*args)
    elif not (sayable and all(map(_is_sayable, args))):
        raise outside_call_error(f"{name}, with such arguments,")
    elif trace.depth or trace.loops or trace.path or loop_recorder_of_trace() is not None:
        raise outside_call_error(f"{name}, in a loop or branch that values decide,")
    else:
        trace.said = user_line()
        call_with_values(trace, function, args)


def _is_sayable(x: Any) -> bool:
    if type(x) in (tuple, list, dict):
        return all(map(_is_sayable, x.values() if type(x) is dict else x))
    return type(x) in PLAIN or isinstance(x, (TracedNumber, Tracer, np.generic, np.dtype))


def print_in_traced_code(*values: Any, file: Any = None, **options: Any) -> None:
    """`print` for traced code: each call prints, in the order of the program."""
    _say("print", print_to(file, **options), values, file is None or type(file) is OutsideProxy)


def is_logger(kind: type, value: Any) -> bool:
    """Whether it is a logger of `logging`."""
    return kind.__module__ == "logging" and kind.__name__ in ("Logger", "RootLogger")


class LoggerProxy(OutsideProxy):
    """A logger: what traced code logs, each call does."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if name in _LEVELS:
            return functools.partial(self._log, _LEVELS[name])
        return super().__getattr__(name)

    def _log(self, level: int, *args: Any, **options: Any) -> None:
        frame = sys._getframe(1)
        place = frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name
        _say(self._name, functools.partial(_log_from, self._real, level, place), args, not options)


def _log_from(logger: Any, level: int, place: tuple[str, int, str], message: Any, *args: Any) -> None:
    if logger.isEnabledFor(level):
        logger.handle(logger.makeRecord(logger.name, level, *place[:2], message, args, None, place[2]))
