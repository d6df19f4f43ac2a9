"""The globals of a traced function: a dict that CPython asks for every name, and that answers with what is traced."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any

from ..core.errors import TraceError, line_of_name
from ..trace.trace import HOOKS

Read = Callable[[dict[str, Any], str, str], Any]
Absent = Callable[[dict[str, Any], str], None]


class TracedGlobals(dict[str, Any]):
    """The names of one module while a function of it is traced.

    CPython looks global names up through `__getitem__` where the globals are no exact dict (ceval.c, LOAD_GLOBAL); the
    names of a class body, relative imports and assignments use the dict's own contents, a copy of the module's."""

    def __init__(
        self, real: dict[str, Any], read: Read, inside: dict[str, Any], absent: Absent, hooks: Any = None
    ) -> None:
        """read: (the module's names, a name, what to call it) -> what traced code gets. inside: its builtins.
        absent: what to do about a name that the module does not have. hooks: what rewritten functions call."""
        super().__init__(real)
        super().__setitem__("__builtins__", inside)
        self._before = dict(self)
        self._real = real
        self._read = read
        self._absent = absent
        self._found: dict[str, Any] = {} if hooks is None else {HOOKS: hooks}

    def __getitem__(self, name: str) -> Any:
        try:
            return self._found[name]
        except KeyError:
            pass
        if name in self._real:  # else KeyError: CPython goes on with the builtins
            found = self._found[name] = self._read(self._real, name, name)
            return found
        if dict.__contains__(self, name):  # written by the traced function
            return dict.__getitem__(self, name)
        self._absent(self._real, name)
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        try:
            self[name]  # type: ignore[index]
        except KeyError:
            return False
        return True

    def get(self, name: str, default: Any = None) -> Any:
        try:
            return self[name]
        except KeyError:
            return default

    def check(self, codes: list[Any]) -> None:
        """Raises TraceError, at the line, if the traced function assigned to a global name."""
        if len(self) == len(self._before) and all(dict.get(self, k) is v for k, v in self._before.items()):
            return
        for name in {*self, *self._before}:
            if name.startswith("__") and name.endswith("__"):  # Python's own, such as what warnings were shown
                continue
            if dict.get(self, name) is not self._before.get(name):
                raise TraceError(
                    f"a traced function cannot assign to the global {name!r}, since later calls would not do it again; "
                    "return the value instead",
                    line_of_name(codes, ("STORE_GLOBAL", "DELETE_GLOBAL"), name),
                )


@cache
def global_lookups_are_traceable() -> bool:
    """Whether this Python looks names up as `TracedGlobals` needs it.

    In functions, comprehensions, generators and closures."""

    class Doubled(dict[str, Any]):
        def __getitem__(self, name: str) -> Any:
            return 2 * super().__getitem__(name)

    def sample(n: int) -> Any:
        return [_PROBE for _ in range(n)], sum(_PROBE for _ in range(n)), (lambda: _PROBE + n)()  # type: ignore[name-defined] # noqa: F821

    scope = Doubled({"_PROBE": 1, "__builtins__": vars(builtins)})
    try:
        return all(FunctionType(sample.__code__, scope)(2) == ([2, 2], 4, 4) for _ in range(3))
    except Exception:
        return False


def traced_import(lift: Callable[[Any], Any]) -> Callable[..., Any]:
    """`__import__` for traced code."""

    def import_(name: str, *args: Any, **options: Any) -> Any:
        return lift(builtins.__import__(name, *args, **options))

    return import_


class TracedLocals(dict[str, Any]):
    """The names of a function where a text is evaluated: those that it lacks are the module's."""

    def __init__(self, names: Any, scope: TracedGlobals) -> None:
        super().__init__(names)
        self._scope = scope

    def __missing__(self, name: str) -> Any:
        return self._scope[name]


def run_source_text(run: Callable[..., Any], source: Any, *names: Any, **options: Any) -> Any:
    """`eval` or `exec` for traced code, which ask an exact dict of names past `TracedGlobals`."""
    frame = sys._getframe(1)
    if (names and names[0] is not None) or not isinstance(frame.f_globals, TracedGlobals):
        return run(source, *names, **options)
    given = names[1] if names[1:] else None
    local = TracedLocals(frame.f_locals if given is None else given, frame.f_globals)
    found = run(source, frame.f_globals, local, **options)
    if given is not None:
        for name, x in local.items():
            if name not in given or given[name] is not x:
                given[name] = x
    return found


def print_values(*values: Any, **options: Any) -> None:
    """`print` for traced code: users look at stand-ins with it, which are no texts to the function itself."""
    print(*values, **options)
