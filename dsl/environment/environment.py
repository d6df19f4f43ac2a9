"""What lies outside of a traced function, as it sees it: a value in, what stands for it while tracing out.

Functions run as copies over a `TracedGlobals`, arrays are captured, objects and containers are read through stand-ins
that notice what is read and refuse what is written. Everything read becomes a guard.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum, EnumMeta
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any, NoReturn

from ...runtime.core.readable_text import with_article
from ..core.context import context
from ..core.errors import (
    Refusal,
    TraceError,
    UnsupportedError,
    code_names_compared_by_identity,
    code_of_user,
    globals_assigned_in_code,
    has_loop_or_handler,
    is_numpy_error,
    is_refusal,
    is_user_file,
    names_of_class_bodies,
    show_user_line,
    undecided_identity_error,
    user_line_of_name,
)
from ..core.exact import exact_key_of_value
from ..core.object_journal import ObjectJournal, Slot
from ..core.object_model import (
    ORIGINAL,
    PLAIN,
    UNSET,
    VARS,
    attributes_of_object,
    builtin_container_base_of_class,
    cell_contents,
    contents_of_object,
    is_same_object,
    is_user_class,
    is_user_module,
    mutators_of_class,
)
from ..core.object_state import has_state_of_its_own, names_in_code, texts_in_code
from ..core.pytree import Make, rebuild_container
from ..trace.trace import HOOKS, Trace, UndecidedValue
from ..trace.tracer import Tracer
from .argument_properties import NeedCachedProperty, NeedOpenedArguments
from .frozen_containers import frozen_container_class, refuse_frozen_container_change
from .guards import (
    READERS,
    Guard,
    frozen_state_predicate_of_guard,
    sameness_predicate_of_guard,
)
from .numpy_proxy import original_behind_numpy_proxy
from .outside_reads import (
    OutsideProxy,
    may_reach_outside,
    outside_call_error,
    put_back_random_numbers,
    state_of_random_numbers,
    watch_library_calls,
)
from .raised_errors import give_users_objects_to_error

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
        self._values: dict[str, Any] = {} if hooks is None else {HOOKS: hooks}
        self._assignable: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        try:
            return self._values[name]
        except KeyError:
            pass
        if name in self._assignable:
            if dict.get(self, name) is not UNSET:
                raise _error_of_global(name)
            return self._read(self._real, name, name)
        if name in self._real:  # else KeyError: CPython goes on with the builtins
            found = self._values[name] = self._read(self._real, name, name)
            return found
        if dict.__contains__(self, name):  # written by the traced function
            return dict.__getitem__(self, name)
        self._absent(self._real, name)
        raise KeyError(name)

    def bind(self, names: Iterable[str]) -> None:
        """The names that class bodies look up, which ask the dict's own contents."""
        for name in names:
            if name in self and name in self._real:
                self._before[name] = self._values[name]
                super().__setitem__(name, self._values[name])

    def expect_assignments(self, names: Iterable[str]) -> None:
        """Of names that code may assign to, nothing that it assigns is what their own contents are from now on."""
        for name in names:
            if name in self._real and name not in self._values and name not in self._assignable:
                self._assignable.add(name)
                self._before[name] = UNSET
                super().__setitem__(name, UNSET)

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

    def let_go(self) -> None:
        """The trace is over: what the module has may end, if the module lets it go."""
        inside = dict.__getitem__(self, "__builtins__")
        super().clear()
        super().__setitem__("__builtins__", inside)
        self._before, self._values = {}, {}

    def check(self, codes: list[Any]) -> None:
        """Raises TraceError, at the line, if the traced function assigned to a global name."""
        if len(self) == len(self._before) and all(dict.get(self, k) is v for k, v in self._before.items()):
            return
        for name in {*self, *self._before}:
            if name.startswith("__") and name.endswith("__"):  # Python's own, such as what warnings were shown
                continue
            if dict.get(self, name) is not self._before.get(name):
                raise _error_of_global(name, user_line_of_name(codes, ("STORE_GLOBAL", "DELETE_GLOBAL"), name))


def _error_of_global(name: str, line: str | None = None) -> TraceError:
    text = f"a traced function cannot assign to the global {name!r}, since later calls would not do it again; "
    return TraceError(text + "return the value instead", line)


def traced_import(world: Environment) -> Callable[..., Any]:
    """`__import__` for traced code."""

    def import_traced_module(name: str, *args: Any, **options: Any) -> Any:
        found = builtins.__import__(name, *args, **options)
        for known in dict.fromkeys((name.partition(".")[0], name)):
            module = sys.modules.get(known)
            if type(module) is ModuleType and is_user_module(module):
                world.guard_read(sys.modules, known, f"the module {known}")
        return world.proxy_of(found)

    return import_traced_module


# what functions say of themselves, by the names that ask for it
DESCRIPTIONS = {n: n for n in ("__name__", "__qualname__", "__module__", "__doc__", "__annotations__")}
DESCRIPTIONS |= dict.fromkeys(("get_type_hints", "get_annotations", "signature"), "__annotations__")
DESCRIPTIONS |= {"getdoc": "__doc__"}
_WITH_EQUALS = (str, bytes, range, slice)  # plain values of which there may be equal ones
_WHOLE_OBJECT = ("__dict__", "__getstate__")  # what gives all attributes
Rows = list[tuple[Slot, Any]]
Held = Sequence[tuple[Any, dict[str, Any]]]  # objects and what they held
StandIn = Callable[["Environment", Any, str], Any]  # what stands for a value, and what the user calls that


class Environment:
    """One trace's view of everything that is no argument."""

    def __init__(self, trace: Trace, stand_in: StandIn, classes: dict[str, Any]) -> None:
        """classes: builtins that are others in traced code; `super` is made for this environment."""
        self.trace, self._stand_in = trace, stand_in
        self.guards: dict[tuple[int, str, str], Guard] = {}
        self._scopes: dict[int, TracedGlobals] = {}
        self._lifted: dict[int, tuple[Any, Any]] = {}  # the value, kept alive, and what stands for it
        self._originals: dict[int, tuple[Any, Any]] = {}  # the way back
        self._outside: dict[int, Any] = {}  # what the user's classes have that were there before
        self._sealed: set[int] = set()  # what refuses assignments
        # what gives the parts of an object that may not change; as they were; what it is called, and whether by part;
        # of what has no stand-in to refuse changes the objects in it, with their attributes
        self._unchanged: list[tuple[Callable[[], dict[Any, Any]], dict[Any, Any], str, bool, Held]] = []
        self._bare_classes: set[type] = set()  # of objects in it
        self._before = ObjectJournal()  # what has no stand-in, as it was
        self.closing: list[Callable[[], None]] = []  # what is done when the trace is over
        self._watching = False  # whether calls of libraries are
        self._random_numbers = b""  # their state then
        self.defaults_of: Any = None  # the function whose defaults are arguments, and opened
        self.may_open = False  # whether the call may be made again with its arguments opened
        self.opened: dict[int, int] = {}  # what stands for an opened list, dict or object: its number
        self.opened_names: frozenset[str] | None = None  # of the attributes that are opened; None for all
        self.leaves_by_contents: dict[int, int] = {}  # values that are other ones in other calls: which leaf one is
        self.tells_apart = False  # whether classes of the arguments are not opened, since objects are told apart
        # whether what is opened has changed, but for these attributes of these holders
        self.opened_changes: Callable[[set[Any]], bool] = lambda kept: False
        self._kept: set[tuple[int | None, str]] = set()  # properties that were computed, and are kept
        self._placed: dict[int, Any] = {}  # containers of the arguments
        self._equals: dict[int, Any] = {}  # arguments that others which are equal may take the place of
        self._watched: set[int] = set()  # functions
        self._described: set[str] = set()  # what traced code may ask functions
        self._codes: list[Any] = []
        self._cells: list[tuple[CellType, Any, Any, str]] = []
        classes = {**classes, "id": self.identity}
        inside = {
            **classes,
            "__import__": traced_import(self),
            "super": functools.partial(classes["super"], self),
        }
        self._builtins = vars(builtins) | inside

    # reading

    def read_guarded(self, holder: Any, key: Any, label: str, how: str = "item") -> Any:
        """holder[key], or its attribute, or a cell's contents, as traced code sees it; the read is guarded."""
        return self.proxy_of(self.guard_read(holder, key, label, how), label)

    def guard_read(self, holder: Any, key: Any, label: str, how: str = "item") -> Any:
        """The same as it is."""
        value = READERS[how](holder, key)
        place = (id(holder), key, how)
        if place not in self.guards:
            self.guards[place] = Guard(label, how, holder, key, value)
        return value

    def guard_finding(self, holder: Any, key: Any, label: str, how: str, value: Any = None) -> None:
        """Guards a finding that is no read: that something is not there, or which method it is."""
        place = (id(holder), key, how)
        if place not in self.guards:
            self.guards[place] = Guard(label, how, holder, key, value)

    def guard_member(self, kind: type, name: str) -> None:
        """Guards what a class has under a name, or that it has nothing there."""
        held, label = self._outside.setdefault(id(kind), VARS(kind)), f"{kind.__name__}.{name}"
        if name in held:
            self.guard_read(held, name, label)
        else:
            self.guard_finding(held, name, label, "no item")

    def guard_value(self, value: Any, label: str = "") -> Any:
        """What stands for a value that the trace was given; that it stays as it is, is guarded."""
        place = (id(value), "", "itself")
        if type(value) not in PLAIN and type(value) is not Tracer and place not in self.guards:
            same = sameness_predicate_of_guard(value)
            if same is not None:
                self.guards[place] = Guard(label, "itself", value, "", value, same)
        return self.proxy_of(value, label)

    def guard_state(self, value: Any, label: str) -> None:
        """Guards all that is in an object. Raises TraceError where that cannot be seen."""
        inside: list[Any] = []
        referred: list[Any] = []
        if (id(value), "state", "itself") in self.guards:
            return
        try:
            same = frozen_state_predicate_of_guard(value, inside, referred)
            guard = Guard(label, "itself", value, "state", value, same)
        except Exception:
            raise TraceError(
                f"what is in {label}, {with_article(type(value).__name__)}, cannot be seen, nor that it changes; "
                "read it outside of the traced function, and pass what is needed as an argument"
            ) from None
        for x in inside:
            if has_state_of_its_own(type(x)):  # which the trace would use up, or set
                raise TraceError(f"{label} holds {with_article(type(x).__name__)}; pass what it gives as an argument")
        self._before.note_objects([*inside, *referred])
        self.guards[id(value), "state", "itself"] = guard
        objects = [x for x in (*inside, *referred) if isinstance(x, type) or is_user_class(type(x))]
        held = [(x, _guarded_attributes_and_class(x)) for x in objects]
        self._require_unchanged(lambda: {"": guard.is_unchanged()}, label, within=held)
        self._bare_classes |= {type(x) for x in objects if is_user_class(type(x))}

    def proxy_of(self, value: Any, label: str = "") -> Any:
        """What stands for a value. label: what the user calls it."""
        kind = type(value)
        if kind in PLAIN or kind is Tracer:
            return value
        if kind is FunctionType:
            self._guard_helper_function(value)
        known = self._lifted.get(id(value))
        if known is not None:
            return known[1]
        if id(value) in self._originals:  # a stand-in itself
            return value
        found = self._stand_in(self, value, label or getattr(value, "__name__", kind.__name__))
        if not self._watching and not isinstance(found, OutsideProxy) and may_reach_outside(kind, value):
            self._watching, self._random_numbers = True, state_of_random_numbers()
            self.closing.append(watch_library_calls(self.trace))
        self._remember_proxy(value, found)
        return found

    def _remember_proxy(self, value: Any, proxy: Any) -> None:
        self._lifted[id(value)] = (value, proxy)
        if proxy is not value:
            self._originals[id(proxy)] = (proxy, value)

    # what stands for what

    stand_for = _remember_proxy

    def register_proxy_class(self, kind: type, made: type, users: list[type]) -> None:
        """`made` stands for a class; users: those of its bases that are the user's."""
        self._remember_proxy(kind, made)
        self._outside.update((id(base), VARS(base)) for base in users)

    def registered_proxy_class(self, kind: type) -> type | None:
        """What stands for a class, if anything does yet."""
        known = self._lifted.get(id(kind))
        return None if known is None else known[1]

    def is_class_from_outside(self, kind: type) -> bool:
        """Whether it is a class of the user's that was there before the trace."""
        return id(kind) in self._outside

    def users_object(self, proxy: Any) -> Any:
        """The user's object that this one stands for, if any."""
        known = self._originals.get(id(proxy))
        return None if known is None else known[1]

    def original_value(self, proxy: Any) -> Any:
        """The value that this stands for, or itself."""
        known = self._originals.get(id(proxy))
        return original_behind_numpy_proxy(proxy) if known is None else known[1]

    def is_known_as_it_is(self, value: Any) -> bool:
        """Whether it was there before the trace, and has no stand-in."""
        known = self._lifted.get(id(value))
        return known is not None and known[1] is value

    def is_from_outside(self, value: Any) -> bool:
        """Whether a result is a list, dict or object that was there before the call, which gives that one itself.

        Raises NeedOpenedArguments for one among the arguments: opened ones are found by their place."""
        if type(value) in PLAIN or isinstance(value, (tuple, Tracer)):
            return False
        real = self.users_object(value)
        of_arguments = id(value) in self._placed or id(real) in self._placed
        if of_arguments and self.may_open:
            raise self.open_arguments()
        return real is not None and not of_arguments

    def users_object_told_apart(self, proxy: Any) -> Any:
        """The user's object that this stands for, if any; calls that find another in its place are traced again."""
        real = self.users_object(proxy)
        for guard in self.guards.values() if builtin_container_base_of_class(type(real)) else ():
            guard.tell_apart()
        return real

    def refuse_assignments(self, value: Any) -> Any:
        """From now on no attribute of this object can be assigned."""
        self._sealed.add(id(value))
        kind = type(value)
        if (base := builtin_container_base_of_class(kind)) is not None:
            self.require_unchanged_container(value, base)
        self._require_unchanged(
            functools.partial(_guarded_attributes_and_class, value), f"an object of {kind.__name__}"
        )
        return value

    def refuses_assignments(self, value: Any) -> bool:
        return id(value) in self._sealed

    def require_unchanged_container(self, container: Any, base: type, label: str = "") -> None:
        """A container must hold at the end of the trace what it holds now."""
        self._require_unchanged(
            lambda: dict(enumerate(contents_of_object(container))), f"the {base.__name__} {label}".rstrip()
        )

    def require_unchanged_attributes(self, function: Any) -> None:
        """So must a function keep its attributes."""
        name = getattr(function, "__name__", "a partial object")
        self._require_unchanged(lambda: {k: v for k, v in vars(function).items() if k[:1] != "_"}, name, by_part=True)

    def require_unchanged_function(self, function: Any, names: tuple[str, ...], label: str) -> None:
        """Nor may what it does."""
        self._require_unchanged(lambda: _attributes_of_function(function, names), label)

    def _require_unchanged(
        self, read: Callable[[], dict[Any, Any]], label: str, by_part: bool = False, within: Held = ()
    ) -> None:
        self._unchanged.append((read, read(), label, by_part, within))

    def cached_property_value(self, instance: Any, name: str, member: Any) -> Any:
        """A property that is computed once. Raises NeedCachedProperty for one of the user's object."""
        if (real := self.users_object(instance)) is not None:
            self.guard_finding(real, name, f"{type(real).__name__}.{name}", "not held")
            with contextlib.suppress(Refusal):  # an error of its own comes where the function may catch it
                self.proxy_of(member.func)(instance)
            raise NeedCachedProperty(real, member)
        if self.refuses_assignments(instance):
            refuse_frozen_container_change(f"the cached property {name!r} of an object of {type(instance).__name__}")
        holder = self.opened.get(id(instance))
        changed = self.trace.assigned or self.opened_changes(self._kept)
        try:
            found = vars(instance)[name] = self.proxy_of(member.func)(instance)
        except Refusal:
            if holder is None or changed:
                raise
            raise NeedCachedProperty(holder, member) from None  # it is left to Python
        self._kept.add((holder, name))
        return found

    def guard_argument(self, value: Any) -> Any:
        """What stands for an argument that is no array, of which equal ones share a trace."""
        if is_told_by_contents(value) or type(value) in _WITH_EQUALS:
            self._equals[id(value)] = value
        return self.guard_value(value, "an argument")

    def may_be_one(self, a: Any, b: Any) -> bool:
        """Whether two values, one of them of the arguments, are one object in some calls of this trace alone."""
        real, other = self.original_value(a), self.original_value(b)
        if real is other:
            return id(real) in self._equals
        if id(a) in self.opened and id(b) in self.opened:
            return False
        given = [self.is_given(x) for x in (a, b)]
        there = [id(x) in self._originals or id(x) in self._lifted for x in (a, b)]
        if not any(given) or not all(map(operator.or_, given, there)):
            return False
        if id(real) in self._equals and id(other) in self._equals:
            return exact_key_of_value(real) == exact_key_of_value(other)
        if _class_behind_proxy(real) is not _class_behind_proxy(other):
            return False
        self.require_known_identity(a)
        self.require_known_identity(b)
        return True

    def is_given(self, value: Any) -> bool:
        """Whether it is of the arguments, where others that are like it may take its place."""
        return id(value) in self._placed or id(self.original_value(value)) in self._equals

    def identity(self, value: Any) -> int:
        """`id`, in traced code. Raises TraceError where that is not known."""
        self.require_known_identity(value)
        if self.is_given(value) or (type(value) is Tracer and isinstance(value._owner, int)):
            raise undecided_identity_error("values")
        return id(self.original_value(value))

    def is_container_of_arguments(self, value: Any) -> bool:
        """Whether it has been made for a list, dict or object of the arguments."""
        return id(value) in self._placed and type(value) is not tuple

    def was_there(self, value: Any) -> bool:
        """Whether it is a list, dict or object that was there before the call."""
        return self.is_container_of_arguments(value) or self.users_object(value) is not None

    def keep_container_of_arguments(self, container: Any) -> Any:
        """A container of the arguments."""
        self._placed[id(container)] = container
        return container

    def require_known_identity(self, value: Any) -> None:
        """Raises NeedOpenedArguments for an opened object: then its class is not, and each object is itself."""
        if self._is_opened_object(value):
            raise NeedOpenedArguments(told_apart=_class_behind_proxy(value))

    def _is_opened_object(self, value: Any) -> bool:
        """Whether it is of the user's class, and opened; while the trace goes on."""
        if id(value) not in self.opened or context.trace is not self.trace:
            return False
        return is_user_class(_class_behind_proxy(value))

    def require_opened(self, value: Any, name: str) -> None:
        """Raises NeedOpenedArguments for an attribute of an opened object that is not opened."""
        whole = name in _WHOLE_OBJECT
        known = self.opened_names is None or (name in self.opened_names and not whole)
        if known or not self._is_opened_object(value):
            return
        names = () if (code := code_of_user()) is None else texts_in_code(code)
        if name in names or whole or not name.startswith("__"):  # Python asks for others, which are the class's
            raise NeedOpenedArguments(None if whole or name not in names else frozenset(names))

    # functions

    def traced_root_function(self, function: Any) -> Any:
        """The function that is traced. Only those see its attributes who know it by another name."""
        return self.traced_function(function) if type(function) is FunctionType else self.guard_value(function)

    def traced_function(self, function: Any) -> Any:
        """A user's function over a `TracedGlobals`; others as they are."""
        if type(function) is not FunctionType:
            return self.proxy_of(function)
        known = self._lifted.get(id(function))
        if known is not None:
            return known[1]
        code = function.__code__
        if isinstance(function.__globals__, TracedGlobals):
            return function
        users = is_user_file(code.co_filename)
        if not users and not any(map(_cell_holds_users_function, function.__closure__ or ())):
            return function
        if users:
            self._check_code_is_traceable(function)
        cells = tuple(CellType() for _ in code.co_freevars)
        scope: dict[str, Any] = function.__globals__
        if users:
            scope = traced = self._traced_globals_of(scope)
            traced.bind(names_of_class_bodies(code))
            traced.expect_assignments(globals_assigned_in_code(code))
        made = self._code_with_control_flow(code) if users and self.trace.rewriting else code
        named = dict(zip(code.co_freevars, cells, strict=True))
        copy = FunctionType(made, scope, function.__name__, None, tuple(named[n] for n in made.co_freevars) or None)
        self._remember_proxy(function, copy)  # before its cells: it may be in one of them
        self._fill_closure(function, cells, users)
        self._copy_attributes_of_function(function, copy)
        if users:
            self._described |= {DESCRIPTIONS[n] for n in texts_in_code(code) & DESCRIPTIONS.keys()}
        parts = ("__code__", "__defaults__", "__kwdefaults__", *DESCRIPTIONS.keys() & DESCRIPTIONS.values())
        self.require_unchanged_function(copy, parts, function.__name__)
        self._codes.append(code)
        self.guard_read(function, "__code__", function.__name__, "attribute")
        return copy

    def _check_code_is_traceable(self, function: Any) -> None:
        """Raises for a function of the user's whose code goes past proxies, or has to be rewritten."""
        if not _PAST_PROXIES.keys().isdisjoint(names_in_code(function.__code__)):
            _refuse_code_reading_past_proxies(function.__code__)
        texts = texts_in_code(function.__code__)
        if "datetime64" in texts and not texts.isdisjoint(("now", "today")):
            line = user_line_of_name([function.__code__], ("LOAD_ATTR", "LOAD_METHOD", "LOAD_GLOBAL"), "datetime64")
            raise outside_call_error("np.datetime64('now')", line)
        if self.trace.may_rewrite and _may_compare_arguments(function):
            raise UndecidedValue

    def _fill_closure(self, function: Any, cells: Sequence[CellType], users: bool) -> None:
        code = function.__code__
        for name, cell, new in zip(code.co_freevars, function.__closure__ or (), cells, strict=True):
            if users or _cell_holds_users_function(cell):
                self._fill_closure_cell(name, cell, new, code)
            elif (content := cell_contents(cell)) is not UNSET:
                new.cell_contents = content

    def _copy_attributes_of_function(self, function: Any, copy: Any) -> None:
        """A function's defaults, which are guarded, and what describes it."""
        code = function.__code__
        for kind, count in (("__defaults__", code.co_argcount), ("__kwdefaults__", code.co_kwonlyargcount)):
            if (count or getattr(function, kind)) and function is not self.defaults_of:
                self.guard_read(function, kind, f"{function.__name__}.{kind}", "attribute")
        copy.__defaults__ = self.proxy_of(function.__defaults__)
        copy.__kwdefaults__ = function.__kwdefaults__ and {
            k: self.proxy_of(v) for k, v in function.__kwdefaults__.items()
        }
        copy.__qualname__, copy.__module__, copy.__doc__ = function.__qualname__, function.__module__, function.__doc__
        copy.__annotations__ = self.proxy_of(function.__annotations__)

    def _guard_descriptions(self) -> None:
        """Guards what functions say of themselves, where traced code asks that."""
        for function, copy in [*self._lifted.values()] if self._described else ():
            if type(function) is FunctionType and copy is not function:
                for name in sorted(self._described):
                    self.guard_read(function, name, f"{function.__name__}.{name}", "attribute")

    def _code_with_control_flow(self, code: CodeType) -> CodeType:
        """The code with its control flow as calls, where that can be."""
        from ..control_flow.rewrite import code_with_control_flow_calls
        from ..control_flow.source import SourceUnavailable

        try:
            return code_with_control_flow_calls(code)
        except SourceUnavailable as error:
            self.trace.unwritten.setdefault(code.co_name, str(error))
            if "True" in code_names_compared_by_identity(code):
                raise UnsupportedError(
                    f"{code.co_name} compares with True or False by `is`, and runs as it is, since {error}; write =="
                ) from None
            return code

    def _guard_helper_function(self, function: Any) -> None:
        """Guards the code and the attributes of a helper."""
        if id(function) in self._watched or not is_user_file(function.__code__.co_filename):
            return
        self._watched.add(id(function))
        if isinstance(function.__globals__, TracedGlobals):
            return
        self.stand_for_attributes(function, self.traced_function(function), function.__name__)

    def stand_for_attributes(self, value: Any, proxy: Any, label: str) -> None:
        """Puts what stands for the attributes of a value into what stands for it. They must stay, and no more come."""
        held = vars(value)
        if held:
            self.guard_finding(held, "", label, "size", len(held))
        else:
            self.guard_finding(value, "", label, "bare")
        for key in held:
            vars(proxy)[key] = self.read_guarded(value, key, f"{label}.{key}", "held")
        self.require_unchanged_attributes(proxy)

    def _fill_closure_cell(self, name: str, cell: CellType, new: CellType, code: Any) -> None:
        if (content := cell_contents(cell)) is UNSET:
            self.guard_finding(cell, name, name, "unbound", _is_unbound_cell)
            return
        new.cell_contents = content if name == "__class__" else self.read_guarded(cell, name, name, "cell")
        self._cells.append((new, new.cell_contents, code, name))

    def _traced_globals_of(self, real: dict[str, Any]) -> TracedGlobals:
        scope = self._scopes.get(id(real))
        if scope is None:
            used = _control_flow_hooks() if self.trace.rewriting else None
            scope = self._scopes[id(real)] = TracedGlobals(
                real, self.read_guarded, self._builtins, self._guard_absent_name, used
            )
        return scope

    def _guard_absent_name(self, real: dict[str, Any], name: str) -> None:
        self.guard_finding(real, name, name, "no item")
        if name not in self._builtins:
            self.guard_finding(vars(builtins), name, name, "no item")

    def open_arguments(self) -> NeedOpenedArguments:
        """To be raised where something is changed that an argument may hold, while `may_open`."""
        return NeedOpenedArguments()

    def line_of_assignment(self, name: str) -> str:
        """`file.py:LINE` where traced code assigns to an attribute of this name, or deletes it; empty if nowhere."""
        return user_line_of_name(self._codes, ("STORE_ATTR", "DELETE_ATTR"), name)

    def line_of_dict_call(self, methods: Sequence[str]) -> str:
        """`file.py:LINE` where traced code names one of these methods of `dict`; empty if nowhere."""
        found = (user_line_of_name(self._codes, ("LOAD_ATTR", "LOAD_METHOD"), name, "dict") for name in methods)
        return next(filter(None, found), "")

    # the end

    def check(self) -> None:
        """Raises TraceError, at the line, where the traced function assigned to an outside name."""
        if self._random_numbers and self._random_numbers != state_of_random_numbers():
            code = self._codes[0]
            line = show_user_line(code.co_filename, code.co_firstlineno)
            raise outside_call_error("what draws random numbers in a library", line)
        self.check_unwritten()
        self._guard_descriptions()
        if any((self.registered_proxy_class(kind) or kind) is not kind for kind in self._bare_classes):
            written = [c for c in self._codes if c.co_filename != "<string>"]  # not what dataclasses write
            line = user_line_of_name(written, ("LOAD_ATTR",), "__class__")
            if line:
                raise TraceError(
                    "an enumeration of flags, or a metaclass, holds objects whose __class__ is read; write type(o)",
                    line,
                )

    def check_unwritten(self) -> None:
        """Raises TraceError, at the line, where the traced function has changed what lies outside: Python's own code
        that runs on the user's objects would not see it."""
        for scope in self._scopes.values():
            scope.check(self._codes)
        for cell, content, code, name in self._cells:
            if cell_contents(cell) is not content:
                raise TraceError(
                    f"a traced function cannot assign to the outer function's {name!r}, since later calls would not do "
                    "it again; return the value instead",
                    user_line_of_name([code], ("STORE_DEREF", "DELETE_DEREF"), name),
                )
        for read, then, label, by_part, within in self._unchanged:
            if (part := _changed_part(read(), then)) is not None:
                parts = [part, *(_changed_part(_guarded_attributes_and_class(x), held) for x, held in within)]
                line = next(filter(None, (self.line_of_assignment(str(name)) for name in parts)), None)
                refuse_frozen_container_change(f"the attribute {part!r} of {label}" if by_part else label, line)

    @contextlib.contextmanager
    def restore_outside_if_trace_fails(self) -> Iterator[None]:
        """Where the trace fails, what was changed past what refuses that is put back."""
        try:
            try:
                yield
            except Exception as error:
                if not is_refusal(error) or is_numpy_error(error):  # it has come so far by itself
                    self.trace.check_refusals()
                    self.check()
                    give_users_objects_to_error(error, self)
                raise
            except BaseException as error:
                if isinstance(error, SystemExit) or is_user_class(type(error)):
                    give_users_objects_to_error(error, self)
                raise
        except BaseException as error:
            if is_refusal(error):
                put_back_random_numbers(self._random_numbers)
                self._before.undo()
            raise

    def close(self) -> None:
        """The trace is over."""
        for act in self.closing:
            act()
        for scope in self._scopes.values():
            scope.let_go()
        known = self.guards, self._lifted, self._originals, self._placed, self._equals
        for held in (*known, self._before.rows, self._unchanged, self._cells):
            held.clear()  # what it holds may end: classes of stand-ins refer to it until they are collected


def _control_flow_hooks() -> Any:
    from ..control_flow import hooks

    return hooks


def _refuse_code_reading_past_proxies(code: CodeType) -> None:
    """Raises TraceError where code names what no stand-in notices: `object.__getattribute__`, `object.__delattr__`."""
    for name, (holders, instead) in _PAST_PROXIES.items():
        for holder in holders:
            own = name == code.co_name and name in _OWN_WAYS  # a class's way of doing it
            if not own and (line := user_line_of_name([code], ("LOAD_ATTR", "LOAD_METHOD"), name, holder)):
                refuse_read_past_proxy(name, instead, line)


def refuse_read_past_proxy(name: str, instead: str, line: str | None = None) -> NoReturn:
    """Raises TraceError for `object.__getattribute__` and the like."""
    raise TraceError(f"object.{name} goes past what stands for an object; write {instead}", line)


_OWN_WAYS = ("__getattribute__", "__delattr__")
_PAST_PROXIES = {
    "__hash__": (("object",), "hash(o), or super().__hash__() in a method"),
    "__repr__": (("object",), "repr(o), or super().__repr__() in a method"),
    "__getattribute__": (("object", "type"), "getattr(o, name)"),
    "__delattr__": (("object",), "delattr(o, name)"),
}


def _attributes_of_function(function: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """These attributes, and what is in those that are dicts."""
    found = {name: getattr(function, name) for name in names}
    inside = {f"{n}.{k}": x for n, held in found.items() if isinstance(held, dict) for k, x in held.items()}
    return found | inside


def _changed_part(now: dict[Any, Any], then: dict[Any, Any]) -> Any:
    """The first name under which another object is, or none, if any."""
    names = (k for k in {**now, **then} if not is_same_object(now.get(k, UNSET), then.get(k, UNSET)))
    return next(names, None)


def _guarded_attributes_and_class(value: Any) -> dict[str, Any]:
    """The attributes in an object itself, those in slots too, and its class."""
    return {"__class__": type(value), **attributes_of_object(value)}


def may_have_loops_or_handlers(function: Any) -> bool:
    """Whether `for`, `while` or `except` stands in a function; of one without source, whether its code has them."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    if code is None or not has_loop_or_handler(code):
        return False
    import ast

    from ..control_flow.source import SourceUnavailable, syntax_tree_of_function

    try:
        node = syntax_tree_of_function(code).node
    except SourceUnavailable:
        return True
    return any(isinstance(n, (ast.For, ast.While, ast.ExceptHandler)) for n in ast.walk(node))


def _may_compare_arguments(function: Any) -> bool:
    """Whether an `is` in it may have arrays or containers of the caller's on both sides."""
    scope = function.__globals__

    def may_be_argument(name: str) -> bool:
        first, dot, _ = name.partition(".")
        value = scope.get(first)
        if dot:
            return value is not None and not isinstance(value, (ModuleType, EnumMeta))
        of_user = is_user_class(type(value)) and not isinstance(value, (type, Enum))
        return of_user or is_told_by_contents(value) or type(value) in (int, float, str)

    names = code_names_compared_by_identity(function.__code__)
    return any(name in ("", "True") or may_be_argument(name) for name in names)


def is_told_by_contents(value: Any) -> bool:
    """Whether another object with the same contents is as good to a call."""
    kind = type(value)
    return kind not in PLAIN and not isinstance(value, type) and getattr(kind, "__eq__", None) is not object.__eq__


def _class_behind_proxy(value: Any) -> Any:
    """The class that a value is of to the user."""
    return VARS(type(value)).get(ORIGINAL, type(value))


def _is_unbound_cell(cell: CellType) -> bool:
    return cell_contents(cell) is UNSET


def _cell_holds_users_function(cell: CellType) -> bool:
    """Whether a function of a library's has one of the user's in this cell."""
    content = cell_contents(cell)
    return type(content) is FunctionType and is_user_file(content.__code__.co_filename)


def frozen_container_maker(world: Environment) -> Make:
    """What makes the containers of the arguments for traced code: nothing can be assigned to them."""

    def make_frozen_container(kind: type, names: tuple[Any, ...], values: list[Any]) -> Any:
        if kind is tuple:
            return world.keep_container_of_arguments(tuple(values))
        of_python = bool(mutators_of_class(kind)) and not is_user_class(kind)
        names = tuple(map(world.proxy_of, names))  # keys may be objects of the user's
        found = rebuild_container(frozen_container_class(kind) if of_python else world.proxy_of(kind), names, values)
        return world.keep_container_of_arguments(world.refuse_assignments(found))

    return make_frozen_container
