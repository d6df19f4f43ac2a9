"""What a traced function prints and logs: each call does, once its values are there.

A call of `print`, or of a logger, is kept with stand-ins for its values; what looks at results makes it again."""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...runtime.core.frozen import dataclass
from ..core.errors import user_line
from ..core.object_model import PLAIN
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
    options: tuple[tuple[str, Any], ...]

    def __call__(self, arrays: Sequence[Any]) -> None:
        values = iter(arrays)
        leaves = [x.make(next(values).numpy()) if type(x) is TracedValue else x for x in self.leaves]
        self.function(*unflatten(self.tree, leaves), **dict(self.options))


def call_with_values(
    trace: Trace, function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]
) -> bool:
    """From now on each call makes this one, with the values of what is traced in `args`.

    Gives whether all else in these is plain data."""
    leaves: list[Any] = []
    tree = flatten(args, leaves)
    arrays = []
    plain = True
    for i, x in enumerate(leaves):
        if type(x) is TracedNumber or isinstance(x, Tracer):
            arrays.append(to_traced_array(x)._value)
            is_array = x.__class__ is np.ndarray
            leaves[i] = TracedValue(np.asarray if is_array else _NUMBER if type(x) is TracedNumber else _SCALAR)
        else:
            plain &= type(x) in PLAIN or isinstance(x, (np.generic, np.dtype))
    trace.watched.append((tuple(arrays), CallWithValues(function, tree, tuple(leaves), tuple(options.items()))))
    return plain


_NUMBER, _SCALAR = np.ndarray.item, operator.itemgetter(())


def file_behind_proxy(file: Any) -> Any:
    return file._real if issubclass(type(file), OutsideProxy) else file


def _make_at_each_call(name: str, function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> None:
    """Has each call make this one. Raises TraceError where Python is needed to know when, or what."""
    trace = current_trace()
    if trace is None:
        function(*args, **options)
        return
    if trace.depth or trace.loops or trace.path or loop_recorder_of_trace() is not None:
        raise outside_call_error(f"{name}, in a loop or branch that values decide,")
    trace.printed_line = user_line()
    if not call_with_values(trace, function, args, options):
        raise outside_call_error(f"{name}, with such arguments,")


def print_in_traced_code(*values: Any, file: Any = None, **options: Any) -> None:
    """`print` for traced code: each call prints, in the order of the program."""
    if current_trace() is not None and file is not None and not issubclass(type(file), OutsideProxy):
        raise outside_call_error("print, to such a file,")
    _make_at_each_call("print", print, values, {**options, "file": file_behind_proxy(file)})


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
        if options:
            raise outside_call_error(f"{self._name}, with such arguments,")
        frame = sys._getframe(1)
        place = frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name
        _make_at_each_call(self._name, _log_from, (level, place, *args), {"logger": self._real})


def _log_from(level: int, place: tuple[str, int, str], message: Any, *args: Any, logger: Any) -> None:
    if logger.isEnabledFor(level):
        logger.handle(logger.makeRecord(logger.name, level, *place[:2], message, args, None, place[2]))
