"""What a traced function prints and logs: it is said at each call, once the values that it is of are there.

A call of `print`, or of a logger, is kept with stand-ins for its values; what looks at results makes it again."""

from __future__ import annotations

import builtins
import functools
import io
import sys
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any, NoReturn

import numpy as np

from ...runtime.core.frozen import dataclass
from ..core.object_state import PLAIN
from ..core.pytree import Tree, flatten, unflatten
from ..trace.operands import to_traced_array
from ..trace.trace import Trace, current_trace, loop_recorder_of_trace
from ..trace.tracer import TracedNumber, Tracer
from .outside_reads import OutsideProxy, outside_call_error

TRACED: Any = type("Traced", (), {})
_LEVELS = {"debug": 10, "info": 20, "warning": 30, "warn": 30, "error": 40, "critical": 50, "fatal": 50}


@dataclass(frozen=True)
class CallWithValues:
    """A call that is made with the values of arrays: they fill the leaves of its arguments for which `others` has
    TRACED. makes: what makes of each what it is in Python."""

    function: Callable[..., Any]
    tree: Tree
    others: tuple[Any, ...]
    makes: tuple[Callable[[Any], Any], ...]

    def __call__(self, arrays: Sequence[Any]) -> None:
        values = iter([make(array.numpy()) for make, array in zip(self.makes, arrays, strict=True)])
        self.function(*unflatten(self.tree, [next(values) if other is TRACED else other for other in self.others]))


def call_with_values(
    trace: Trace, function: Callable[..., Any], values: tuple[Any, ...], constant: Callable[[Any], Any]
) -> None:
    """From now on each call makes this one, with the values of what is traced. constant: what it gets of all others."""
    leaves: list[Any] = []
    tree = flatten(values, leaves, stop=lambda x: type(x) not in (tuple, list, dict))
    traced = [type(leaf) is TracedNumber or isinstance(leaf, Tracer) for leaf in leaves]
    others = tuple(TRACED if known else constant(leaf) for leaf, known in zip(leaves, traced, strict=True))
    given = [leaf for leaf, known in zip(leaves, traced, strict=True) if known]
    arrays = tuple(to_traced_array(leaf)._value for leaf in given)
    trace.watched.append((arrays, CallWithValues(function, tree, others, tuple(map(_maker_of_value, given)))))


def _maker_of_value(x: Tracer | TracedNumber) -> Callable[[Any], Any]:
    if type(x) is TracedNumber:
        return np.ndarray.item
    return np.asarray if x.__class__ is np.ndarray else _scalar_of_array


def _scalar_of_array(array: Any) -> Any:
    return array[()]


class _Scope(dict[str, Any]):
    """No exact dict: what is called over it asks for texts as traced code does."""


# its text as traced code gets it, which is refused where it is of traced values
_text: Callable[[Any], str] = FunctionType((lambda x: str(x)).__code__, _Scope(str=str))


def _is_plain(x: Any) -> bool:
    return type(x) in PLAIN or isinstance(x, (np.generic, np.dtype))


def _constant_of_print(x: Any) -> Any:
    return x if _is_plain(x) else _text(x)


def _constant_of_log(x: Any) -> Any:
    return x if _is_plain(x) else _refuse_to_say("a logger's method, of such a value,")


def _refuse_to_say(name: str) -> NoReturn:
    raise outside_call_error(name)


def _trace_that_may_say(name: str) -> Trace | None:
    """The trace in progress. Raises TraceError in the body of a loop or branch, which runs without Python."""
    trace = current_trace()
    if trace is not None and (trace.depth or trace.loops or trace.path or loop_recorder_of_trace() is not None):
        _refuse_to_say(f"{name}, in a loop or branch that values decide,")
    return trace


def print_in_traced_code(*values: Any, file: Any = None, **options: Any) -> None:
    """`print` for traced code: each call prints, in the order of the program."""
    trace = _trace_that_may_say("print")
    if trace is None:
        return builtins.print(*values, file=file, **options)
    if type(file) is io.StringIO:  # which the function has made
        return builtins.print(*map(_constant_of_print, values), file=file, **options)
    if file is not None and type(file) is not OutsideProxy:
        _refuse_to_say("print, to a file,")
    call_with_values(trace, print_to(file, **options), values, _constant_of_print)


def print_to(file: Any, **options: Any) -> Callable[..., None]:
    """`print` with these options. file: what it prints to, or what stands for that."""
    return functools.partial(builtins.print, file=file._real if type(file) is OutsideProxy else file, **options)


def is_logger(kind: type, value: Any) -> bool:
    """Whether it is a logger of `logging`, or a function of it that logs."""
    logging = sys.modules.get("logging")
    if logging is None:
        return False
    return kind in (logging.Logger, logging.RootLogger) or (
        kind is FunctionType and value.__module__ == "logging" and vars(logging).get(value.__name__) is value
        and (value.__name__ in _LEVELS or value.__name__ == "log")
    )  # fmt: skip


def proxy_of_logger(world: Any, value: Any, label: str) -> Any:
    """What stands for it: each call logs."""
    if type(value) is FunctionType:
        return getattr(LoggerProxy("logging", sys.modules["logging"]), value.__name__)
    return LoggerProxy(label, value)


class LoggerProxy(OutsideProxy):
    """A logger, or the module `logging` for its root: what traced code logs, each call does."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if name in _LEVELS:
            return functools.partial(_log_in_traced_code, self, f"{self._name}.{name}", _LEVELS[name])
        if name == "log":
            return functools.partial(_log_in_traced_code, self, f"{self._name}.log")
        return super().__getattr__(name)


def _log_in_traced_code(logger: LoggerProxy, name: str, level: Any, message: Any, *args: Any, **options: Any) -> None:
    trace = _trace_that_may_say(name)
    if trace is None:
        return logger._real.log(level, message, *args, **options)
    if options or type(level) is not int:
        _refuse_to_say(f"{name}, with such arguments,")
    frame: Any = sys._getframe(1)
    while type(frame.f_globals) is dict:
        frame = frame.f_back
    place = frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name
    call_with_values(trace, functools.partial(_log, logger._real, level, place), (message, *args), _constant_of_log)


def _log(logger: Any, level: int, place: tuple[str, int, str], message: Any, *args: Any) -> None:
    if not hasattr(logger, "makeRecord"):  # as the functions of `logging` do
        logging, logger = logger, logger.root
        if not logger.handlers:
            logging.basicConfig()
    if logger.isEnabledFor(level):
        logger.handle(logger.makeRecord(logger.name, level, *place[:2], message, args, None, place[2]))
