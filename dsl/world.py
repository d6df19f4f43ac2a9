"""What lies outside of a traced function, as it sees it: a value in, what stands for it while tracing out.

Functions run as copies over a `Scope`, arrays are captured, objects and containers are read through stand-ins that
notice what is read and refuse what is written. Everything read becomes a guard.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
from collections import OrderedDict
from types import BuiltinMethodType, CellType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from ..compiler.types import dtype_of
from .errors import TraceError, is_user_file, line_of_name
from .guards import PLAIN, READERS, Guard
from .kinds import Type
from .numpy_inside import Random, inside, is_numpys, outside
from .readable import native
from .scope import Scope, Super, imports
from .stand_ins import FrozenDict, FrozenList, UserModule, object_in, traced_class
from .trace import Trace
from .tracer import CAPTURED, Tracer
from .tree import Make, container

_RANDOM = ("numpy.random", "random")


class World:
    """One trace's view of everything that is no argument."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.guards: dict[tuple[int, str], Guard] = {}
        self._scopes: dict[int, Scope] = {}
        self._lifted: dict[int, tuple[Any, Any]] = {}  # the value, kept alive, and what stands for it
        self._originals: dict[int, tuple[Any, Any]] = {}  # the way back
        self._sealed: dict[int, Any] = {}
        self._codes: list[Any] = []
        self._cells: list[tuple[CellType, Any, Any, str]] = []
        super_ = functools.partial(Super, self.lift)
        self._builtins = {**vars(builtins), "__import__": imports(self.lift), "super": super_, "type": Type}

    # reading

    def read(self, holder: Any, key: str, label: str, how: str = "item") -> Any:
        """holder[key], or its attribute, or a cell's contents, as traced code sees it; the read is guarded."""
        value = READERS[how](holder, key)
        if not (key.startswith("__") and key.endswith("__")) or how == "cell":
            place = (id(holder), key)
            if place not in self.guards:
                self.guards[place] = Guard(label, how, holder, key, value)
        return self.lift(value, label)

    def lift(self, value: Any, label: str = "") -> Any:
        """What stands for a value. label: what the user calls it."""
        kind = type(value)
        if kind in PLAIN or kind is Tracer:
            return value
        known = self._lifted.get(id(value))
        if known is not None:
            return known[1]
        found = self._lift(value, kind, label or getattr(value, "__name__", kind.__name__))
        self._remember(value, found)
        return found

    def _remember(self, value: Any, found: Any) -> None:
        self._lifted[id(value)] = (value, found)
        if found is not value:
            self._originals[id(found)] = (found, value)

    def seal(self, found: Any) -> Any:
        """From now on no attribute of this object can be assigned."""
        self._sealed[id(found)] = found
        return found

    def is_sealed(self, found: Any) -> bool:
        return id(found) in self._sealed

    def original(self, found: Any) -> Any:
        """The value that this stands for, or itself."""
        known = self._originals.get(id(found))
        return outside(found) if known is None else known[1]

    def _lift(self, value: Any, kind: type, label: str) -> Any:
        if kind is np.ndarray:
            return self._array(value)
        if kind is FunctionType:
            return self.function(value) if not is_numpys(value) else inside(value)
        if isinstance(value, type):
            return traced_class(self, value)
        if kind is ModuleType:
            return self._module(value)
        if kind is MethodType:
            function, owner = self.lift(value.__func__), self.lift(value.__self__)
            same = function is value.__func__ and owner is value.__self__
            return Random(label) if _is_random(kind, value) else value if same else MethodType(function, owner)
        if kind is functools.partial:
            args, options = map(self.lift, value.args), {k: self.lift(v) for k, v in value.keywords.items()}
            return functools.partial(self.lift(value.func), *args, **options)
        if isinstance(value, (list, tuple, dict)):
            return self._container(value, kind, label)
        if kind in (staticmethod, classmethod):
            return kind(self.lift(value.__func__))
        if _is_random(kind, value):
            return Random(label)
        if is_numpys(value) or not hasattr(kind, "__dict__"):
            return inside(value)
        found = object_in(self, value, label)
        return self.seal(found) if found is not value else value

    def _array(self, array: np.ndarray[Any, Any]) -> Any:
        try:
            dtype_of(native(array.dtype))
        except TypeError:
            return array
        return Tracer(self.trace, self.trace.capture(array), CAPTURED)

    def _module(self, module: ModuleType) -> Any:
        if module.__name__ in _RANDOM:
            return Random("np.random" if module is np.random else module.__name__)
        if is_numpys(module):
            return inside(module)
        file = getattr(module, "__file__", None)
        return UserModule(self, module) if file is not None and is_user_file(file) else module

    def _container(self, value: Any, kind: type, label: str) -> Any:
        """A copy with what stands for its items; the user's lists and dicts cannot be changed while tracing."""
        if kind is tuple or hasattr(kind, "_fields"):
            items = [self.lift(i, label) for i in value]
            if all(a is b for a, b in zip(items, value, strict=True)):
                return value
            return tuple(items) if kind is tuple else kind._make(items)  # type: ignore[attr-defined]
        if kind is list:
            frozen = FrozenList()
            self._remember(value, frozen)  # before its items: it may contain itself
            list.extend(frozen, (self.lift(i, label) for i in value))
            frozen.label = label
            return frozen
        if kind in (dict, OrderedDict):
            table = FrozenDict()
            self._remember(value, table)
            dict.update(table, {k: self.lift(v, label) for k, v in value.items()})
            table.label = label
            return table
        return value

    # functions

    def function(self, function: Any) -> Any:
        """A user's function over a `Scope`; others as they are."""
        if type(function) is not FunctionType:
            return self.lift(function)
        known = self._lifted.get(id(function))
        if known is not None:
            return known[1]
        code = function.__code__
        if isinstance(function.__globals__, Scope) or not is_user_file(code.co_filename):
            return function
        cells = tuple(CellType() for _ in code.co_freevars)
        copy = FunctionType(code, self._scope(function.__globals__), function.__name__, None, cells or None)
        self._remember(function, copy)  # before its cells: it may be in one of them
        for name, cell, new in zip(code.co_freevars, function.__closure__ or (), cells, strict=True):
            self._fill(name, cell, new, code)
        for kind in ("__defaults__", "__kwdefaults__"):
            if getattr(function, kind):
                label = f"{function.__name__}.{kind}"
                self.guards[id(function), kind] = Guard(label, "attribute", function, kind, getattr(function, kind))
        copy.__defaults__ = self.lift(function.__defaults__)
        copy.__kwdefaults__ = function.__kwdefaults__ and {k: self.lift(v) for k, v in function.__kwdefaults__.items()}
        copy.__qualname__, copy.__module__, copy.__doc__ = function.__qualname__, function.__module__, function.__doc__
        copy.__dict__.update(function.__dict__)
        self._codes.append(code)
        return copy

    def _fill(self, name: str, cell: CellType, new: CellType, code: Any) -> None:
        try:
            content = cell.cell_contents
        except ValueError:  # not bound yet
            return
        new.cell_contents = content if name == "__class__" else self.read(cell, name, name, "cell")
        self._cells.append((new, new.cell_contents, code, name))

    def _scope(self, real: dict[str, Any]) -> Scope:
        scope = self._scopes.get(id(real))
        if scope is None:
            scope = self._scopes[id(real)] = Scope(real, self.read, self._builtins)
        return scope

    # the end

    def check(self) -> None:
        """Raises TraceError, at the line, where the traced function assigned to a name outside of it."""
        for scope in self._scopes.values():
            scope.check(self._codes)
        for cell, content, code, name in self._cells:
            try:
                same = cell.cell_contents is content
            except ValueError:
                same = False
            if not same:
                raise TraceError(
                    f"a traced function cannot assign to the outer function's {name!r}, since later calls would not do "
                    "it again; return the value instead",
                    line_of_name([code], ("STORE_DEREF", "DELETE_DEREF"), name),
                )


def _is_random(kind: type, value: Any) -> bool:
    """Whether it draws random numbers."""
    if isinstance(value, (MethodType, BuiltinMethodType)) and _is_random(type(value.__self__), None):
        return True
    modules = kind.__module__, getattr(value, "__module__", None) or ""
    return any(m == "random" or m.startswith("numpy.random") for m in modules)


def maker(world: World | None) -> Make:
    """What makes the containers of the arguments for traced code: nothing can be assigned to them."""
    if world is None:
        return container

    def make(kind: type, names: tuple[Any, ...], values: list[Any]) -> Any:
        made = container(frozen[kind] if kind in frozen else world.lift(kind), names, values)
        return world.seal(made) if kind not in frozen else made

    frozen: dict[type, type] = {tuple: tuple, list: FrozenList, dict: FrozenDict}
    return make


def known_names(function: Any) -> list[Guard]:
    """Guards of the globals that a function names and of its closure: all there is where `Scope` does not work."""
    function = getattr(function, "__func__", function)
    if type(function) is not FunctionType:
        return []
    scope = function.__globals__
    found = [Guard(name, "item", scope, name, scope[name]) for name in function.__code__.co_names if name in scope]
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):
            found.append(Guard(name, "cell", cell, "", cell.cell_contents))
    return found
