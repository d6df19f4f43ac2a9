"""What a function reads from the world outside, or does to it: a trace would do that once, for all calls.

A table says what that is. Where traced code names such a function, something stands for it that refuses to be called;
where code of a library calls one, a watch on the trace's calls does. So the function runs in NumPy, and is told why."""

from __future__ import annotations

import functools
import pickle
import sys
from collections.abc import Callable
from types import BuiltinFunctionType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any, NoReturn

from ..core.context import context
from ..core.errors import TraceError, UnsupportedError, is_own_file
from ..core.object_model import is_user_module
from ..trace.operands import is_traced

# modules -> their functions and classes, methods of these and objects() that are of the world outside; behind "-" all
# but these
_TABLE = {
    "builtins": "print open input breakpoint",
    "sys": """getrefcount _getframe _current_frames getallocatedblocks getsizeof setrecursionlimit settrace setprofile
        setswitchinterval addaudithook audit displayhook excepthook""",
    "inspect": "currentframe stack trace getouterframes getinnerframes",
    "contextlib": "redirect_stdout redirect_stderr chdir",
    "ctypes": "CDLL CDLL() PyDLL PyDLL() _FuncPtr()",
    "datetime": "now today utcnow",
    "threading": "active_count activeCount current_thread currentThread enumerate",
    "warnings": "warn warn_explicit",
    "_warnings": "warn warn_explicit",
    "pickle": "dump dumps _Pickler _dump _dumps",
    "_pickle": "dump dumps Pickler Pickler()",
    "_thread": "get_ident get_native_id start_new_thread _count",
    "numpy": """load save savez savez_compressed savetxt loadtxt genfromtxt fromfile fromregex memmap info show_config
        show_runtime set_printoptions seterr seterrcall""",
    "io": "- StringIO BytesIO",
    "_io": "- StringIO BytesIO _TextIOBase _BufferedIOBase _RawIOBase _IOBase",
    "time": "- struct_time",
    "posix": "- fspath strerror _path_normpath _path_splitroot _path_splitroot_ex stat_result",
    "nt": "- fspath strerror _path_normpath _path_splitroot _path_splitroot_ex stat_result",
}
_WHOLE = """
random gc mmap socket resource select fcntl termios readline syslog winreg msvcrt faulthandler _random _socket
_ssl _posixsubprocess _signal _winapi _posixshmem _multiprocessing _sqlite3 _tracemalloc _asyncio _uuid numpy.random
numpy.random._generator numpy.random.mtrand numpy.random.bit_generator numpy.random._mt19937 numpy.random._pcg64
numpy.random._philox numpy.random._sfc64 numpy.random._pickle
"""
_NAMES = {module: frozenset(names.split()) for module, names in _TABLE.items()}
_NAMES |= dict.fromkeys(_WHOLE.split(), frozenset("-"))
MODULES = (*_NAMES, "os", "logging", "importlib")  # from which such functions are had
# what only computes: its calls need no watch
_COMPUTING = """
builtins abc argparse array ast bisect cmath collections colorsys contextlib contextvars copy dataclasses decimal enum
fractions functools heapq importlib itertools kernelgraph keyword math numbers numpy operator re reprlib string struct
sys textwrap types typing weakref _abc _bisect _collections _collections_abc _contextvars _decimal _functools _heapq
_operator _struct _sre _thread _threading_local _weakref _weakrefset
"""
_COMPUTING_MODULES = frozenset(_COMPUTING.split())
_COMPUTING_LIBRARIES = (
    "kernelgraph",
    "llvmlite",
    "ml_dtypes",
    "numba",
    "numpy",
    "scipy",
    "sklearn",
    "torch",
    "jax",
    "cupy",
)


class OutsideProxy:
    """Something of the world outside, or partly so: while tracing it may be passed on, and what is not so be called.

    A function that was compiled from another language says itself whether it knows traced values."""

    __slots__ = ("_name", "_real")

    def __new__(cls, name: str, real: Any) -> OutsideProxy:
        kinds: tuple[Any, Any] = cls, type(real)
        found: OutsideProxy = object.__new__(_outside_class(*kinds))
        return found

    def __init__(self, name: str, real: Any) -> None:
        object.__setattr__(self, "_name", name)
        object.__setattr__(self, "_real", real)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self._real)

    def __instancecheck__(self, instance: Any) -> bool:
        return isinstance(instance, self._real)

    def __subclasscheck__(self, subclass: Any) -> bool:
        return issubclass(getattr(subclass, "_real", subclass), self._real)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._real, name)
        proxy = OutsideProxy(f"{self._name}.{name}", found)
        if name.startswith("__") or (isinstance(self._real, type) and not is_outside(type(found), found)):
            return found
        return proxy if callable(found) or type(found) is ModuleType else proxy._call()

    def __repr__(self) -> str:
        return repr(self._real)

    def _call(self, *args: Any, **options: Any) -> Any:
        computes = isinstance(self._real, type) or any(map(is_traced, (*args, *options.values())))
        if computes and is_partly_outside(type(self._real), self._real):
            return self._real(*args, **options)
        of = type(self._real), self._real, type(getattr(self._real, "__self__", None))
        if "random" in " ".join([self._name, *(str(getattr(x, "__module__", "")) for x in of)]):
            raise UnsupportedError(
                f"{self._name} would draw while tracing, once for all calls; pass the random numbers as an argument, "
                "or draw with kg.random, e.g. kg.random.normal(kg.random.key(seed), shape)"
            )
        self._refuse()

    def _refuse(self, *args: Any) -> NoReturn:
        raise outside_call_error(self._name)

    __copy__ = __deepcopy__ = _call
    __setattr__ = __delattr__ = _refuse


_CALLS = frozenset({"__call__", "__getitem__", "__iter__", "__len__", "__float__", "__index__"})
_REFUSED = frozenset({"__enter__", "__exit__", "__next__"})


@functools.cache
def _outside_class(base: Any, kind: Any) -> Any:
    """What stands for objects of a class, with those special methods that they have."""
    ways = {name: base._call for name in _CALLS if hasattr(kind, name)}
    ways |= {name: base._refuse for name in _REFUSED if hasattr(kind, name)}
    return type(base.__name__, (base,), {"__slots__": (), **ways})


def outside_call_error(name: str, line: str | None = None) -> TraceError:
    """What to raise for a call of something of the world outside."""
    return TraceError(
        f"{name} would be called while tracing, once for all calls; call it outside of the traced function, and pass "
        "what is needed as an argument",
        line,
    )


def is_outside(kind: type, value: Any) -> bool:
    """Whether it is a function, class or object of the world outside, as the table says."""
    if kind is MethodType or (kind is BuiltinFunctionType and value.__module__ is None):
        owner = value.__self__ if isinstance(value.__self__, type) else type(value.__self__)
        return any(_is_told(b.__module__, b.__name__, getattr(value, "__name__", "")) for b in owner.__mro__)
    if kind is BuiltinFunctionType or isinstance(value, type) or hasattr(kind, "__get__"):
        return _is_told(getattr(value, "__module__", None), getattr(value, "__name__", ""))
    return not issubclass(kind, (tuple, int)) and any(_is_told(b.__module__, f"{b.__name__}()") for b in kind.__mro__)


def _is_told(module: Any, *names: str) -> bool:
    known = _NAMES.get(module) if isinstance(module, str) else None
    return known is not None and known.isdisjoint(names) is ("-" in known)


def is_partly_outside(kind: type, value: Any) -> bool:
    """Whether it is a class of dates, or a compiled function of no library that is known to compute."""
    if kind is type:
        return value.__module__ == "datetime" and hasattr(value, "today")
    if kind is not BuiltinFunctionType and kind.__name__ != "cython_function_or_method":
        return False
    package = str(value.__module__ or "builtins").partition(".")[0]
    return package not in sys.stdlib_module_names and package not in _COMPUTING_LIBRARIES


# calls of libraries


def may_reach_outside(kind: type, value: Any) -> bool:
    """Whether what it does, or its methods, may be of a library's that does more than compute."""
    names = [base.__module__ for base in (value if isinstance(value, type) else kind).__mro__]
    names += [value.__name__] if kind is ModuleType else [value.__module__] if kind is FunctionType else []
    others = (n for n in names if isinstance(n, str) and n.partition(".")[0] not in _COMPUTING_MODULES)
    return any(n in sys.modules and not is_user_module(sys.modules[n]) for n in others)


def watch_library_calls(trace: Any) -> Callable[[], None]:
    """From now on a call of the world outside by a library ends the trace. Gives what ends the watch."""
    before = sys.getprofile()
    if before is not None and not isinstance(before, functools.partial):
        return lambda: None  # the user's profiler goes on
    sys.setprofile(functools.partial(_refuse_outside_call, trace))
    return functools.partial(sys.setprofile, before)


_FOLLOWING = ("loops.py", "comprehensions.py", "proxies.py")  # of this package: they call what the user gives


def _refuse_outside_call(trace: Any, frame: FrameType, event: str, function: Any) -> None:
    if event != "c_call" or context.trace is not trace or not is_outside(BuiltinFunctionType, function):
        return
    name, caller = function.__qualname__, frame
    while type(caller.f_globals) is dict:  # else it is traced code
        file = caller.f_code.co_filename
        own = is_own_file(file)
        if caller.f_back is None or file.startswith("<frozen importlib") or (own and not file.endswith(_FOLLOWING)):
            return
        name, caller = name if own else caller.f_code.co_qualname, caller.f_back
    if caller is frame or function.__module__ not in ("sys", "gc"):  # which libraries may ask, and nothing comes of it
        raise outside_call_error(name)


def state_of_random_numbers() -> bytes:
    """That of `np.random`, which libraries draw from."""
    return pickle.dumps(sys.modules["numpy.random"].get_state()) if "numpy.random" in sys.modules else b""


def put_back_random_numbers(state: bytes) -> None:
    """They are drawn again."""
    if state and state != state_of_random_numbers():
        sys.modules["numpy.random"].set_state(pickle.loads(state))
