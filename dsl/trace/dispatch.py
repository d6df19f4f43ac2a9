"""The tables of what can be traced, and NumPy's protocols, which look there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any, TypeVar

import numpy as np

from ...compiler.ops.table import UFUNC_PARTS
from ..core.errors import ArgumentsError, TraceError, UnsupportedError, UserError, nearest_name_hint
from ..core.foreign_names import FOREIGN_KEYWORDS, instead_of
from .trace import TracedLoopSymbolBase, loop_recorder_of_trace

Implementation = Callable[..., Any]
F = TypeVar("F", bound=Implementation)

FUNCTIONS: dict[Any, Implementation] = {}  # NumPy's function -> ours; filled by `implements`
METHODS: dict[str, Implementation] = {}  # ndarray's methods -> ours
REFUSED: dict[Any, str] = {}  # NumPy's function -> why it cannot be traced, and what to write; filled by `unsupported`
# types of operands with ways of their own: (op and operands, NumPy function, ufunc, to an array); by `masked_values`
SPECIAL: dict[type, tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any], Callable[..., Any]]] = {}
GIVES: dict[str, Callable[..., Any]] = {}  # what gives copies -> what sees to that; filled by `view_rules`
UFUNCS: dict[str, Callable[..., Any]] = {}  # what a call, a reduction, ... of a ufunc does; filled by `elementwise`
TO_ARRAY: dict[type, Callable[..., Any]] = {}  # how lists that hold traced arrays become one; by `sequences`
ATTRIBUTES: dict[str, Callable[..., Any]] = {}  # how `x.flat` is read, `x.shape`, `x.real` assigned
# what NumPy itself gives, in a tuple, for a function that has no implementation, or None; by `numpy_fallback`
FALLBACKS: list[Callable[[Any, Any, Any], tuple[Any] | None]] = []
# the error of a call of a function, as the class that NumPy raises; by `reduction_calls`
ERRORS: list[Callable[[Exception, Any, Any, Any], Exception]] = []


def implements(*functions: Any, method: str | bool = False) -> Callable[[F], F]:
    """Registers an implementation of NumPy functions, and of the method of that name. The method may be given another
    name."""

    def register_numpy_implementation(implementation: F) -> F:
        for function in functions:
            FUNCTIONS[function] = implementation
        if method:
            METHODS[method if isinstance(method, str) else implementation.__name__] = implementation
        return implementation

    return register_numpy_implementation


class NumpyProtocols:
    """What arrays and numbers have in common: NumPy's protocols."""

    __slots__ = ()
    _settable: frozenset[str] = frozenset()

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        recorder = loop_recorder_of_trace()
        if recorder is not None:
            return recorder.call_ufunc(ufunc, method, inputs, options)
        for x in (*inputs, *options.get("out", ())):
            if type(x) in SPECIAL:
                return SPECIAL[type(x)][2](ufunc, method, inputs, options)
        symbols = any(isinstance(x, TracedLoopSymbolBase) for x in inputs)
        if symbols and not isinstance(self, TracedLoopSymbolBase) and loop_recorder_of_trace() is None:
            return NotImplemented  # which they know of
        handler = UFUNCS.get(method)
        if handler is None:
            raise UnsupportedError(
                f"np.{ufunc.__name__}.{method} cannot be traced; write it with whole-array operations"
            )
        if method == "__call__":
            return handler(ufunc, *inputs, **options)
        try:
            result = handler(ufunc, *inputs, **options)
        except UserError as error:
            raise ERRORS[0](error, getattr(ufunc, method), inputs, options) from None
        return apply_view_rule_of_numpy(method, result, inputs, options)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        return call_function(function, args, options)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("shape", "dtype", "strides", "real", "imag", "flat", "T") and name not in self._settable:
            raise TraceError(f"the {name} of a traced value cannot be assigned; write a new value, e.g. x.reshape(...)")
        object.__setattr__(self, name, value)


class LoopOperand(TracedLoopSymbolBase, NumpyProtocols):
    """A number or an array in the body of a recorded loop; it has the operators of other stand-ins."""

    __slots__ = ()
    _settable = frozenset({"dtype"})
    promotes_as: Any  # what NumPy's promotion takes it for: a dtype, or a Python type


def call_function(function: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Our implementation of a NumPy function. Raises UnsupportedError, naming the nearest supported one."""
    recorder = loop_recorder_of_trace()
    if recorder is not None:
        return recorder.call_function(function, args, options)
    implementation = FUNCTIONS.get(function)
    name = public_numpy_name(function)
    for fallback in FALLBACKS if implementation is None else ():
        if (found := fallback(function, args, options)) is not None:
            return found[0]
    if implementation is None and function in REFUSED:
        raise UnsupportedError(f"{name} cannot be traced: {REFUSED[function]}")
    if implementation is None:
        near = nearest_name_hint(name, numpy_names_in_dispatch_tables())
        raise UnsupportedError(f"{name} cannot be traced{near}; call it outside of the traced function, or in kg.host")
    check_options_of_numpy_call(implementation, name, options)
    for x in (*args, options.get("out")):
        if type(x) in SPECIAL:
            return SPECIAL[type(x)][1](function, args, options)
    try:
        result = implementation(*args, **options)
    except (UserError, LookupError, ArithmeticError) as error:
        raise ERRORS[0](error, function, args, options) from None
    return apply_view_rule_of_numpy(name[3:], result, args, options)


def apply_view_rule_of_numpy(name: str, result: Any, args: Sequence[Any], options: dict[str, Any]) -> Any:
    """What a function or method of NumPy's gives, as a copy where NumPy makes one."""
    check = GIVES.get(name)
    return result if check is None else check(name, result, args, options)


def check_options_of_numpy_call(implementation: Implementation, name: str, options: Iterable[str]) -> None:
    """Raises UnsupportedError for a keyword that the implementation does not have."""
    code = getattr(getattr(implementation, "__wrapped__", implementation), "__code__", None)
    if code is None or code.co_flags & 0x08:
        return
    known = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    for option in options:
        if option not in known:
            _check_option_is_numpys(name, option)
            raise UnsupportedError(
                f"the argument {option}= of {name} cannot be traced; supported are {', '.join(known)}"
            )


def _check_option_is_numpys(name: str, option: str) -> None:
    """Raises ArgumentsError for a keyword that NumPy's function has not either."""
    import inspect

    path = name.strip(".()").removeprefix("np.").split(".")
    try:
        of_methods = inspect.signature(getattr(np.ndarray, path[-1])).parameters if name.startswith(".") else {}
        known = {**of_methods, **inspect.signature(reduce(getattr, path, np)).parameters}  # type: ignore[arg-type]
    except (AttributeError, TypeError, ValueError):
        return  # NumPy says nothing of it
    if option not in known and not {"kw", "kwargs"} & ({*known} - {*of_methods}):
        instead = instead_of(option, FOREIGN_KEYWORDS, known) or f"; write one of {', '.join(known)}"
        raise ArgumentsError(f"{name} has no argument {option}={instead}")


def public_numpy_name(function: Any) -> str:
    module = getattr(function, "__module__", None) or "numpy"
    return f"{module.replace('numpy', 'np', 1)}.{getattr(function, '__name__', function)}"


def numpy_names_in_dispatch_tables() -> list[str]:
    """Of functions, ufuncs and methods, as they are called in NumPy."""
    named = {f"np.{name}" for name in (*METHODS, *(u.__name__ for u in UFUNC_PARTS)) if hasattr(np, name)}
    return sorted({public_numpy_name(f) for f in FUNCTIONS} | named)
