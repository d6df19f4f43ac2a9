"""What a trace took from outside of its arguments: globals and closure cells that hold data, checked at every call."""

from __future__ import annotations

import dis
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .array import Array
from .errors import is_user_file

Guard = tuple[Callable[[], Any], Any, str]
_MISSING = object()
_PLAIN = (bool, int, float, complex, str, bytes, type(None))


def guards_of(function: Callable[..., Any]) -> tuple[Guard, ...]:
    """(how to read it, the value found, its name) for each name that holds data and that the function, or a function
    of the user's that it calls, reads. Arrays and other objects are compared by identity, plain data by value."""
    return tuple(_walk(function, set()))


def failed(guards: tuple[Guard, ...]) -> str | None:
    """The name whose value has changed, if any."""
    for read, value, name in guards:
        now = read()
        if now is not value and not _equal(now, value):
            return name
    return None


def _equal(a: Any, b: Any) -> bool:
    """Whether two objects are equal plain data, or tuples of it."""
    if type(a) is not type(b):
        return False
    if isinstance(a, tuple):
        return len(a) == len(b) and all(x is y or _equal(x, y) for x, y in zip(a, b, strict=True))
    return isinstance(a, _PLAIN) and repr(a) == repr(b)  # tells 0.0 from -0.0, and NaN equals itself


def _walk(function: Any, seen: set[int]) -> Iterator[Guard]:
    function = getattr(function, "__func__", function)
    if not isinstance(function, types.FunctionType) or id(function) in seen:
        return
    seen.add(id(function))
    if not is_user_file(function.__code__.co_filename):
        return
    for name, read in _names(function):
        try:
            value = read()
        except (NameError, ValueError):
            continue
        inner = getattr(value, "__wrapped__", value)
        if isinstance(inner, types.FunctionType):
            yield from _walk(inner, seen)
        elif _is_data(value):
            yield read, value, name


def _is_data(value: Any) -> bool:
    return isinstance(value, (*_PLAIN, tuple, list, dict, np.ndarray, np.generic, Array))


def _names(function: types.FunctionType) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Every global that the code (or code within it) loads, and every closure cell, each with its reader."""
    scope = function.__globals__
    for name in dict.fromkeys(_globals_of(function.__code__)):
        if name in scope:
            yield name, lambda name=name: scope.get(name, _MISSING)  # type: ignore[misc]
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        yield name, lambda cell=cell: _contents(cell)  # type: ignore[misc]


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _MISSING


def _globals_of(code: types.CodeType) -> Iterator[str]:
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _globals_of(constant)
