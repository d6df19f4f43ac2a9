"""What a function reads from the world outside, or does to it: a trace would do that once, for all calls.

Two tables say what that is. Where traced code names such a function, something stands for it that refuses to be called;
where code of a library calls one, a watch on the trace's calls does. So the function runs in NumPy, and is told why."""

from __future__ import annotations

import functools
import os
import sys
import warnings
from collections.abc import Callable
from types import BuiltinFunctionType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any, NoReturn

import numpy as np

from ..core.context import context
from ..core.errors import TraceError, UnsupportedError, is_own_file, is_user_file
from ..core.object_state import is_user_class, is_user_module
from ..trace.operands import is_traced
from ..trace.trace import current_trace

# modules in C, and of random numbers: all that is called there is of the world outside, but for these names
_ALL_BUT = {
    "time": "struct_time",
    "posix": "fspath fsencode fsdecode strerror _path_normpath _path_splitroot _path_splitroot_ex stat_result",
    "io": "StringIO BytesIO TextIOBase IOBase RawIOBase BufferedIOBase",
    "_io": "StringIO BytesIO _TextIOBase _IOBase _RawIOBase _BufferedIOBase",
}
_WHOLE = """
random numpy.random gc mmap socket sqlite3 resource select fcntl termios readline syslog winreg msvcrt faulthandler
_random _socket _ssl _posixsubprocess _signal _winapi _posixshmem _multiprocessing _sqlite3 _tracemalloc _asyncio _uuid
"""
_ALL_BUT |= {"nt": _ALL_BUT["posix"]} | dict.fromkeys(_WHOLE.split(), "")
# others, and classes: these names alone are
_ONLY = {
    "builtins": "print open input breakpoint",
    "sys": "getrefcount _getframe _current_frames getallocatedblocks getsizeof setrecursionlimit settrace setprofile "
    "setswitchinterval addaudithook audit displayhook excepthook",
    "inspect": "currentframe stack trace getouterframes getinnerframes",
    "_thread": "get_ident get_native_id start_new_thread _count",
    "threading": "active_count activeCount current_thread currentThread enumerate",
    "_warnings": "warn warn_explicit",
    "contextlib": "redirect_stdout redirect_stderr chdir",
    "ctypes": "CDLL PyDLL _FuncPtr",
    "datetime": "now today utcnow",
    "numpy": "load save savez savez_compressed savetxt loadtxt genfromtxt fromfile fromregex memmap info show_config "
    "show_runtime",
}
_NAMES = {module: frozenset(names.split()) for module, names in (_ALL_BUT | _ONLY).items()}
_OF_INTERPRETER = ("sys", "gc", "inspect")  # what libraries may ask, and nothing comes of it
_CLOCKS = ("datetime", "date")  # classes that have functions which read the clock
MODULES = (*_NAMES, "os", "logging", "threading", "importlib")  # from which such functions are had
# what only computes: no call of it need be watched
_COMPUTING_MODULES = """
builtins abc argparse array ast bisect cmath collections colorsys contextlib contextvars copy dataclasses decimal enum
fractions functools heapq importlib itertools kernelgraph keyword math numbers numpy operator re reprlib string struct
sys textwrap types typing weakref _abc _bisect _collections _collections_abc _contextvars _decimal _functools _heapq
_operator _struct _sre _thread _threading_local _weakref _weakrefset
"""
_COMPUTING = frozenset(_COMPUTING_MODULES.split())
_COMPUTING_LIBRARIES = frozenset(
    ("kernelgraph", "llvmlite", "ml_dtypes", "numba", "numpy", "scipy", "sklearn", "torch", "jax", "jaxlib", "cupy")
)


Setting = tuple[str, Callable[[], Any], Callable[[Any], object]]


class OutsideProxy:
    """Something of the world outside, or what is read from it: while tracing it may be passed on, not called."""

    __slots__ = ("_name", "_real")

    def __init__(self, name: str, real: Any) -> None:
        self._name, self._real = name, real

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self._real)

    def __instancecheck__(self, instance: Any) -> bool:
        return isinstance(instance, self._real)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._real, name)
        if name.startswith("__"):
            return found
        proxy = OutsideProxy(f"{self._name}.{name}", found)
        return proxy if callable(found) or isinstance(found, ModuleType) else proxy()

    def __repr__(self) -> str:
        return repr(self._real)

    def __call__(self, *args: Any, **options: Any) -> NoReturn:
        if is_random_source(type(self._real), self._real):
            raise UnsupportedError(
                f"{self._name} would draw while tracing, once for all calls; pass the random numbers as an argument, "
                "or draw with kg.random, e.g. kg.random.normal(kg.random.key(seed), shape)",
                needs_values=True,
            )
        raise outside_call_error(self._name)

    __getitem__ = __iter__ = __len__ = __float__ = __index__ = __enter__ = __next__ = __call__

    def __exit__(self, *error: Any) -> None:
        pass


class UnknownFunctionProxy(OutsideProxy):
    """A function that was compiled from another language: what it does besides computing cannot be seen.

    Where it is given traced values it says itself whether it knows them."""

    __slots__ = ()

    def __call__(self, *args: Any, **options: Any) -> Any:
        if current_trace() is None or any(map(is_traced, (*args, *options.values()))):
            return self._real(*args, **options)
        raise outside_call_error(f"{self._name}, a compiled function,")


class ClockClassProxy(OutsideProxy):
    """`datetime` or `date`, some of whose functions read the clock; the others are its own."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._real, name)
        return OutsideProxy(f"{self._name}.{name}", found) if name in _NAMES["datetime"] else found

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self._real(*args, **options)

    def __subclasscheck__(self, subclass: type) -> bool:
        return issubclass(subclass, self._real)

    def __mro_entries__(self, bases: Any) -> tuple[type, ...]:
        return (self._real,)

    def __eq__(self, other: object) -> bool:
        return self._real is (other._real if type(other) is ClockClassProxy else other)

    def __hash__(self) -> int:
        return hash(self._real)


def outside_call_error(name: str, line: str | None = None) -> TraceError:
    """What to raise for a call of something of the world outside."""
    return TraceError(
        f"{name} would be called while tracing, once for all calls; call it outside of the traced function, and pass "
        "what is needed as an argument",
        line,
        needs_values=True,
    )


def is_random_source(kind: type, value: Any) -> bool:
    """Whether it draws random numbers."""
    if isinstance(value, (MethodType, BuiltinFunctionType)) and is_random_source(type(value.__self__), None):
        return True
    modules = *(base.__module__ for base in kind.__mro__), getattr(value, "__module__", None) or ""
    return any(isinstance(m, str) and (m == "random" or m.startswith("numpy.random")) for m in modules)


def is_outside(kind: type, value: Any) -> bool:
    """Whether it is a function, class or object of the world outside, as the tables say."""
    if kind is BuiltinFunctionType:
        return _is_outside_function(value)
    if kind is FunctionType or isinstance(value, type):
        return _is_told(value.__module__, value.__name__) and not (kind is type and issubclass(value, BaseException))
    told = kind.__module__ in _ALL_BUT or _is_told(kind.__module__, kind.__name__)
    return told and not issubclass(kind, (tuple, int))


def is_unknown_function(kind: type, value: Any) -> bool:
    """Whether it is a compiled function of neither Python's, NumPy's nor a library that is known to compute."""
    if kind is not BuiltinFunctionType and kind.__name__ != "cython_function_or_method":
        return False
    package = (getattr(value, "__module__", None) or "builtins").partition(".")[0]
    return package not in sys.stdlib_module_names and package not in _COMPUTING_LIBRARIES


def is_clock_class(kind: type, value: Any) -> bool:
    """Whether it is `datetime` or `date`."""
    return kind is type and value.__module__ == "datetime" and value.__name__ in _CLOCKS


def _is_outside_function(function: Any) -> bool:
    owner = function.__self__
    if function.__module__ is not None or owner is None:
        return _is_told(function.__module__, function.__name__)
    owner = owner if isinstance(owner, type) else type(owner)
    return _is_told(owner.__module__, function.__name__) and (
        owner.__module__ in _ONLY or _is_told(owner.__module__, owner.__name__)
    )


def _is_told(module: Any, name: str) -> bool:
    names = _NAMES.get(module) if isinstance(module, str) else None
    return names is not None and (name in names) is (module in _ONLY)


# calls of libraries

# of this package, what calls what the user gives, such as the iterator of a loop
_DSL = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_FOLLOWING = tuple(
    _DSL + name.replace("/", os.sep)
    for name in (
        "control_flow/hooks",
        "control_flow/loops",
        "control_flow/comprehensions",
        "control_flow/repeated_loops",
        "environment/proxies",
        "recorded_loops",
    )
)


def may_reach_outside(kind: type, value: Any) -> bool:
    """Whether what it does, or its methods, may be of a library's that does more than compute."""
    if kind is ModuleType:
        return value.__name__.partition(".")[0] not in _COMPUTING and not is_user_module(value)
    if kind is FunctionType:
        return _is_of_such_library(value.__module__) and not is_user_file(value.__code__.co_filename)
    bases = (value if isinstance(value, type) else kind).__mro__
    return any(_is_of_such_library(base.__module__) and not is_user_class(base) for base in bases)


def _is_of_such_library(module: Any) -> bool:
    return isinstance(module, str) and module.partition(".")[0] not in _COMPUTING


def _random_state() -> Any:
    random = sys.modules.get("numpy.random")
    state = None if random is None else random.get_state()
    return (state[0], state[1].tobytes(), *state[2:]) if isinstance(state, tuple) else None


def _set_random_state(state: Any) -> None:
    sys.modules["numpy.random"].set_state((state[0], np.frombuffer(state[1], np.uint32), *state[2:]))


def _set_warning_filters(filters: list[Any]) -> None:
    warnings.filters[:] = filters
    warnings._filters_mutated()  # type: ignore[attr-defined]


# what libraries keep: what tells of it and what sets it
_NUMPY_SETTINGS: tuple[Setting, ...] = (
    ("np.geterr()", np.geterr, lambda found: np.seterr(**found)),
    ("np.get_printoptions()", np.get_printoptions, lambda found: np.set_printoptions(**found)),
)
_LIBRARY_SETTINGS: tuple[Setting, ...] = (
    ("np.random", _random_state, _set_random_state),
    ("warnings.filters", lambda: [*warnings.filters], _set_warning_filters),
)


class KeptSettings:
    """What libraries keep, as it was when a trace began: that may not change it, once for all calls."""

    def __init__(self) -> None:
        self._found: list[tuple[Setting, Any]] = []
        self.keep(_NUMPY_SETTINGS)

    def keep(self, settings: tuple[Setting, ...] = _LIBRARY_SETTINGS) -> None:
        self._found += [(setting, setting[1]()) for setting in settings]

    def _changed(self) -> list[tuple[Setting, Any]]:
        return [(setting, value) for setting, value in self._found if setting[1]() != value]

    def check(self, line: str) -> None:
        """Raises TraceError, at the line, where something has changed."""
        for (name, *_), _ in self._changed():
            raise outside_call_error(f"what changes {name}", line)

    def restore(self) -> None:
        for (_, _, put_back), value in self._changed():
            put_back(value)


def watch_library_calls(trace: Any) -> Callable[[], None]:
    """From now on a call of the world outside by a library ends the trace. Gives what ends the watch."""
    before = sys.getprofile()
    if before is not None and getattr(before, "func", None) is not _refuse_outside_call:
        return lambda: None  # the user's profiler goes on
    sys.setprofile(functools.partial(_refuse_outside_call, trace))
    return functools.partial(sys.setprofile, before)


def _refuse_outside_call(trace: Any, frame: FrameType, event: str, function: Any) -> None:
    if event != "c_call" or context.trace is not trace or not _is_outside_function(function):
        return
    if function.__module__ in _OF_INTERPRETER:
        return
    name = f"{function.__module__}.{function.__name__}" if function.__module__ else function.__qualname__
    shown, caller = name, frame
    while type(caller.f_globals) is dict:  # else it is traced code
        file = caller.f_code.co_filename
        if is_own_file(file) and not file.startswith(_FOLLOWING):
            return
        if caller.f_back is None or file.startswith("<frozen importlib"):
            return
        if not is_own_file(file):
            shown = f"{caller.f_code.co_qualname}, which calls {name},"
        caller = caller.f_back
    raise outside_call_error(shown)
