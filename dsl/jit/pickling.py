"""How decorated functions are pickled: by name where a name finds them, as pickle does with functions; by value where
cloudpickle does that with functions."""

from __future__ import annotations

import pickle
import sys
import weakref
from collections.abc import Callable, Mapping
from types import FrameType, FunctionType
from typing import Any

from ..core.errors import user_line

_owners: weakref.WeakKeyDictionary[FunctionType, weakref.ref[Any]] = weakref.WeakKeyDictionary()  # by its mark


class PicklableDecoratedFunction:
    """A decorated function.

    pickle and cloudpickle both ask a function for its name, and look whether that leads back to the very function. So
    what is pickled are two functions that are found below the decorated one: a mark, which does nothing, and which
    says at the other end whether it was found by its name; and a copy of the function, as what is filled in
    afterwards, since it may name what it is decorated as."""

    _mark: Any
    _copy: Any

    def _pickled(self) -> tuple[Callable[..., Any], Mapping[str, Any]]:
        """The function, and the options of `__init__`."""
        raise NotImplementedError

    def __reduce_ex__(self, protocol: Any) -> Any:
        function, options = self._pickled()
        if type(function) is not FunctionType or protocol < 4:  # names with dots came with protocol 4
            return str(getattr(function, "__qualname__", self))
        if "_mark" not in vars(self):
            self._mark = _pickled_function_by_name(_code_of_pickled_function_marks.__code__, function, "_mark", {})
            self._copy = _pickled_function_by_name(function.__code__, function, "_copy", function.__globals__)
            self._copy.__defaults__, self._copy.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
            self._copy.__doc__, self._copy.__annotations__ = function.__doc__, function.__annotations__
            self._copy.__dict__.update(function.__dict__)
            _owners[self._mark] = weakref.ref(self)
        if not _is_named(self._mark) and not _is_pickled_by_value():
            name = f"{function.__module__}.{function.__qualname__}"
            raise pickle.PicklingError(
                f"{user_line()}: pickle finds a decorated function by its name, and {name} is not it; "
                "define it with def at the top of a module, or pickle it with cloudpickle"
            )
        return _decorated_function_pickled_by_name, (type(self), self._mark), (self._copy, dict(options))

    def __setstate__(self, state: tuple[FunctionType, dict[str, Any]]) -> None:
        if not vars(self):
            function, options = state
            function.__qualname__ = function.__qualname__.removesuffix("._copy")
            self.__init__(function, **options)  # type: ignore[misc]


def _is_named(mark: FunctionType) -> bool:
    """Whether a mark's name leads to it."""
    found: Any = sys.modules.get(mark.__module__)
    for part in mark.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is mark


def _is_pickled_by_value() -> bool:
    """Whether a pickler is at work that pickles functions by what they are, such as cloudpickle's and dill's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        if name not in ("pickle", __name__) and ("pickle" in name or "dill" in name):
            return True
        frame = frame.f_back
    return False


def _code_of_pickled_function_marks() -> None:
    """The code of marks."""


def _pickled_function_by_name(code: Any, function: FunctionType, name: str, scope: dict[str, Any]) -> FunctionType:
    made = FunctionType(code, scope, function.__name__, None, function.__closure__ if code.co_freevars else None)
    made.__module__, made.__qualname__ = function.__module__, f"{function.__qualname__}.{name}"
    return made


def _decorated_function_pickled_by_name(kind: Any, mark: FunctionType) -> Any:
    """What was pickled, where its mark was found by its name; else a new one that is still to be filled in."""
    owner = next((found() for found in [_owners.get(mark)] if found), None)
    return kind.__new__(kind) if owner is None else owner
