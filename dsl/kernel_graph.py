"""The decorator: a NumPy function in; out, one that traces, compiles once for each kind of arguments, and runs."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any, overload

import numpy as np

from ..compiler.graph import Graph
from ..compiler.materialize import Layout
from ..compiler.pipeline import build, stages
from ..runtime.contest import model_plan, with_batches
from ..runtime.device import Device
from ..runtime.machine import MACHINES
from ..runtime.plan import Plan
from ..runtime.program import Kernel, Program
from ..runtime.schedule import MODES, checked_streams
from ..runtime.schedule import explain as explain_plan
from ..runtime.settings import settings
from .capture import Argument, Captured, capture, finished_part
from .devices import default, open_device, parse, target
from .eager import plain, wrapped
from .entry import MISSED, Entry, layout_of
from .errors import ArgumentsError, OptionError, UserError, is_users, user_frames, warn
from .numbers import Respecialise
from .parts import SplitEntry
from .pointer import address
from .signature import (
    LEAF_TYPES,
    Parameters,
    Static,
    argument_of,
    check_function,
    key_of,
    number_of,
    quick_key,
    take_apart,
    to_leaf,
)
from .spec import Spec
from .split import Reader
from .trace import _local
from .tree import LEAF, Tree, flatten, unflatten
from .tuned import Compiled

BOUND = 512  # what a function keeps of traces, plans and entries; what was not used lately goes first
MANY_VALUES = 8
UNTRACEABLE = ("refuse", "split")


class KernelGraph:
    """A decorated function. Call it like the function; `graph`, `program`, `plan`, `source` and `explain` take the
    same arguments, or `kg.spec(shape, dtype)` for arrays, and show what becomes of a call."""

    def __init__(
        self,
        function: Callable[..., Any],
        device: str | None = None,
        streams: str | int = "auto",
        memory: str = "balanced",
        static_argnames: str | Sequence[str] = (),
        fastmath: bool = False,
        untraceable: str = "refuse",
    ) -> None:
        """The options are those of `kernel_graph`. Raises OptionError, ArgumentsError."""
        check_function(function)
        self._place = parse(device)
        try:
            self._streams = checked_streams(streams)
        except ValueError as error:
            raise OptionError(str(error)) from None
        if memory not in MODES:
            raise OptionError(f"memory={memory!r} is no memory mode; write one of {', '.join(map(repr, MODES))}")
        if untraceable not in UNTRACEABLE:
            raise OptionError(f"untraceable={untraceable!r} is no option; write 'refuse' or 'split'")
        self._memory = memory
        self._splits = untraceable == "split"
        self._fastmath = bool(fastmath)
        static = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)
        self._parameters = Parameters(function, static)
        functools.update_wrapper(self, function)
        self._function = function
        if (code := getattr(function, "__code__", None)) is not None:
            is_users(code.co_filename)
        self._name = self._parameters.name
        self._is_method = False
        self._arity = len(self._parameters.names) if self._parameters.positional else -1  # every argument has a place
        self._variadic = self._parameters.positional and self._parameters.variadic
        self._device: Device | None = None
        # an entry whose `direct` is tried before the key is made, and the number of arguments that it takes
        self._last: tuple[Any, int] = (None, -1)
        self._entries: dict[Hashable, Any] = {}  # key -> Entry, or the leaves whose values are part of the key
        self._traces: dict[Hashable, Captured | frozenset[int]] = {}
        self._plans: dict[Hashable, Compiled] = {}
        self._values: dict[int, set[str]] = {}  # the values seen of each number whose value was needed
        self._log: list[str] = []
        self._lock = threading.RLock()

    # calling

    def __call__(self, *args: Any, **options: Any) -> Any:
        if _local.trace is not None:  # part of the function that is being traced
            world = _local.trace.world
            return (self._function if world is None else world.lift(self._function))(*args, **options)
        if settings.disable:
            return self._plain(args, options)
        try:
            if options or (len(args) != self._arity and (len(args) < self._arity or not self._variadic)):
                args, options = self._parameters.bind(args, options)
            if self._arity >= 0:
                last, count = self._last
                if len(args) == count and (last.holds is None or last.holds()):
                    result = last.direct(args)
                    if result is not MISSED:
                        last.used = True
                        return result
                places: list[int] = []
                key = quick_key(args, places)
                if key is not None:
                    entry = self._entries.get(key)
                    if type(entry) is tuple:
                        entry = self._entries.get((key, _values(args, entry)))
                    elif entry is not None and entry.direct is not None:
                        self._last = entry, len(args)
                    if entry is not None and (entry.holds is None or entry.holds()):
                        entry.used = True
                        try:
                            return entry.run(args, places)
                        except Respecialise:
                            pass
            return self._slow(args, options)
        except UserError as error:
            raise error.with_traceback(user_frames(error.__traceback__)) from None

    def _slow(self, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Any call whose arguments are bound: taken apart, looked up, and compiled if need be."""
        tree, leaves = self._leaves(args, options)
        if any(type(leaf) is Spec for leaf in leaves):
            raise ArgumentsError(f"a spec holds no values; write {self._name}.compile(...) to warm up")
        places = [address(leaf) for leaf in leaves if type(leaf) is np.ndarray]
        try:
            entry = self._entry(tree, leaves, ())
            result = entry.run(leaves, places)
        except Respecialise:
            numbers = tuple(i for i, leaf in enumerate(leaves) if type(leaf) in (int, float, complex))
            entry = self._entry(tree, leaves, numbers)
            result = entry.run(leaves, places)
        return self._given_back(args, options, leaves, entry, result) if entry.assigned else result

    def _given_back(
        self, args: tuple[Any, ...], options: dict[str, Any], leaves: Sequence[Any], entry: Entry, result: Any
    ) -> Any:
        """What was assigned to copies of arguments (made for byte order or alignment) written to the arguments."""
        given = take_apart(self._parameters, args, options, self._is_method)[1]
        copied = {id(leaves[i]): given[i] for i in entry.assigned if given[i] is not leaves[i]}
        for i in entry.assigned:
            if isinstance(given[i], np.ndarray) and not np.may_share_memory(given[i], leaves[i]):
                np.copyto(given[i], leaves[i])
        found: list[Any] = []
        tree = flatten(result, found)
        return unflatten(tree, [copied.get(id(x), x) for x in found])

    def _leaves(self, args: tuple[Any, ...], options: dict[str, Any]) -> tuple[Tree, list[Any]]:
        tree, leaves = take_apart(self._parameters, args, options, self._is_method)
        return tree, [leaf if type(leaf) in LEAF_TYPES else to_leaf(leaf) for leaf in leaves]

    def _plain(self, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """The function itself on NumPy arrays, its results in `kg.Array`s."""
        leaves: list[Any] = []
        tree = flatten((args, options), leaves)
        args, options = unflatten(tree, [plain(leaf) for leaf in leaves])
        out: list[Any] = []
        tree = flatten(self._function(*args, **options), out)
        return unflatten(tree, [wrapped(leaf, open_device(("cpu", 0)), (leaf,)) for leaf in out])

    # from arguments to what runs

    def _entry(self, tree: Tree, leaves: Sequence[Any], known: tuple[int, ...]) -> Entry:
        """What runs a call. known: numbers to take by value although the trace does not ask for it."""
        key = self._key(tree, leaves)
        found = self._known(key, leaves, known)
        if found is None:
            with self._lock:
                found = self._known(key, leaves, known) or self._new_entry(key, tree, leaves, known)
        return found

    def _key(self, tree: Tree, leaves: Sequence[Any]) -> Hashable:
        flat = tuple(part for leaf in leaves for part in key_of(leaf))
        return flat if self._is_plain(tree, leaves) else (tree, flat)

    def _known(self, key: Hashable, leaves: Sequence[Any], known: tuple[int, ...]) -> Entry | None:
        found: Any = self._entries.get(key)
        if known or type(found) is tuple:
            found = self._entries.get((key, _values(leaves, known or found)))
        return found if isinstance(found, Entry) and found.guards.hold() else None

    def _new_entry(self, key: Hashable, tree: Tree, leaves: Sequence[Any], known: tuple[int, ...]) -> Entry:
        captured, arguments, by_value = self._trace(tree, leaves, frozenset(known))
        entry = self._in_parts(tree, arguments, captured) if captured.line else self._made(captured, leaves)
        marker: Any = self._entries.get(key)
        if by_value and not known:
            marker = tuple(sorted({*by_value, *(marker if type(marker) is tuple else ())}))
            self._entries[key] = marker
        if known or type(marker) is tuple:
            remember(self._entries, (key, _values(leaves, known or marker)), entry)
        else:
            remember(self._entries, key, entry)
        return entry

    def _made(self, captured: Captured, leaves: Sequence[Any]) -> Entry:
        """What runs a trace, or a part of one, for leaves like these."""
        compiled = self._compiled(captured, leaves)
        device = self._open()
        compiled.make_ready(device, self._streams, self._memory)
        return compiled.entry(captured, device, leaves, captured.feeds)

    def _in_parts(self, tree: Tree, arguments: Sequence[Argument], first: Captured) -> Entry:
        """What runs calls of these arguments in parts."""
        self._log.append(f"split at {first.line}, and wherever else array values decide")
        trace = functools.partial(capture, self._function, self._name, tree, arguments)
        finish = functools.partial(finished_part, self._function)
        return SplitEntry(self._name, self._made, trace, finish, self._lock, first.guards)

    def _is_plain(self, tree: Tree, leaves: Sequence[Any]) -> bool:
        """Whether `__call__` would make the same key without taking the arguments apart."""
        positional, named = tree.children
        fits = len(leaves) >= self._arity if self._variadic else len(leaves) == self._arity
        return self._arity >= 0 and fits and not named.names and all(c == LEAF for c in positional.children)

    def _trace(
        self, tree: Tree, leaves: Sequence[Any], known: frozenset[int]
    ) -> tuple[Captured, list[Argument], frozenset[int]]:
        """The trace for these leaves (cached while its guards hold), what it saw of them, and which by value."""
        while True:
            arguments = [argument_of(leaf, i in known) for i, leaf in enumerate(leaves)]
            key = (tree, tuple(a.key for a in arguments))
            found = self._traces.get(key)
            if isinstance(found, Captured) and (changed := found.guards.failed()) is not None:
                self._log.append(f"traced again: {changed} has changed")
                found = None
            if found is None:
                found = capture(self._function, self._name, tree, arguments, Reader() if self._splits else None)
                remember(self._traces, key, found)
                if isinstance(found, Captured):
                    self._log.append(f"traced for ({', '.join(map(_show, arguments))})")
                    self._count_values(known, leaves)
            if isinstance(found, Captured):
                return found, arguments, known
            known |= found

    def _count_values(self, known: frozenset[int], leaves: Sequence[Any]) -> None:
        for leaf in known:
            values = self._values.setdefault(leaf, set())
            values.add(repr(leaves[leaf]))
            if len(values) == MANY_VALUES + 1:
                warn(
                    f"{self._name} was traced for more than {MANY_VALUES} values of one number, since its value "
                    "decides the trace; write np.where in place of if, or pass the number as an array"
                )

    def _layouts(self, captured: Captured, leaves: Sequence[Any]) -> tuple[Layout, ...]:
        kind = self._kind()
        return tuple(layout_of(array, kind) for array in (*(leaves[i] for i in captured.feeds), *captured.arrays))

    def _compiled(self, captured: Captured, leaves: Sequence[Any]) -> Compiled:
        kind, layouts = self._kind(), self._layouts(captured, leaves)
        key = (captured.graph, layouts)
        found = self._plans.get(key)
        if found is None:
            machine = MACHINES[kind]
            program = build(captured.graph, target(kind), layouts, fastmath=self._fastmath)
            program = with_batches(program, self._streams, machine)
            found = Compiled(program, model_plan(program, self._streams, self._memory, machine))
            remember(self._plans, key, found)
            shown = ", ".join(str(captured.graph.nodes[i].type) for i in captured.graph.inputs)
            self._log.append(f"compiled {len(program.tasks)} tasks for ({shown})")
        return found

    def _kind(self) -> str:
        if self._place is None:
            self._place = default()
        return self._place[0]

    def _open(self) -> Device:
        if self._device is None:
            self._kind()
            assert self._place is not None
            self._device = open_device(self._place)
        return self._device

    # looking

    def _looked_at(self, args: tuple[Any, ...], options: dict[str, Any]) -> tuple[Captured, list[Argument], list[Any]]:
        try:
            tree, leaves = self._leaves(*self._parameters.bind(args, options))
            with self._lock:
                captured, arguments, _ = self._trace(tree, leaves, frozenset())
        except UserError as error:
            raise error.with_traceback(user_frames(error.__traceback__)) from None
        return captured, arguments, leaves

    def _compiled_for(self, args: tuple[Any, ...], options: dict[str, Any]) -> Compiled:
        captured, _, leaves = self._looked_at(args, options)
        return self._compiled(captured, leaves)

    def graph(self, *args: Any, **options: Any) -> Graph:
        """What a call computes: one node for each array, with its type and the line that made it."""
        return self._looked_at(args, options)[0].graph

    def program(self, *args: Any, **options: Any) -> Program:
        """The tasks of a call, after fusion: one for each launch. Of a function that is split, those of the first part;
        so do `graph`, `plan` and `source`."""
        return self._compiled_for(args, options).program

    def plan(self, *args: Any, **options: Any) -> Plan:
        """The tasks of a call on streams, the waits between them, and where their buffers lie."""
        return self._compiled_for(args, options).plan

    def source(self, *args: Any, **options: Any) -> str:
        """The text of every kernel of a call."""
        kernels = dict.fromkeys(t.kernel for t in self.program(*args, **options).tasks if isinstance(t.kernel, Kernel))
        return "\n\n".join(k.source for k in kernels)

    def explain(self, *args: Any, **options: Any) -> str:
        """How a call was traced, fused and scheduled, and why."""
        captured, arguments, leaves = self._looked_at(args, options)
        compiled = self._compiled(captured, leaves)
        kind, layouts = self._kind(), self._layouts(captured, leaves)
        fusion = stages(captured.graph, target(kind), layouts, fastmath=self._fastmath)[1]
        arrays = ", ".join(_show(a) for a in arguments)
        lines = [
            f"{self._name}({arrays}) on {kind}: {len(captured.graph.nodes)} nodes, {len(compiled.program.tasks)} tasks"
        ]
        known = [_show(a) for a in arguments if a.static]
        if known:
            lines.append(f"part of the key, since the trace needs the value: {', '.join(known)}")
        if captured.graph.numbers:
            lines.append(
                f"{len(captured.graph.numbers)} numbers are passed at each call; another value compiles nothing"
            )
        if captured.line:
            entry = self._known(self._key(*self._leaves(*self._parameters.bind(args, options))), leaves, ())
            lines += entry.lines() if isinstance(entry, SplitEntry) else [f"split at {captured.line}; not run yet"]
            lines.append("the first part:")
        return "\n".join([*lines, str(fusion), explain_plan(compiled.plan), *compiled.lines()])

    def why(self) -> str:
        """What was traced and compiled so far, and which guards failed."""
        return "\n".join(self._log) or f"{self._name} has not been traced yet"

    def compile(self, *args: Any, **options: Any) -> KernelGraph:
        """Trace and compile for these arguments without running them."""
        captured, _, leaves = self._looked_at(args, options)
        with self._lock:
            compiled = self._compiled(captured, leaves)
            compiled.make_ready(self._open(), self._streams, self._memory)
        return self

    # methods

    def __set_name__(self, owner: type, name: str) -> None:
        self._is_method = True
        self._arity = -1
        self._variadic = False

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else BoundKernelGraph(self, instance)

    def __repr__(self) -> str:
        return f"<kernel_graph {self._parameters}>"

    def __reduce__(self) -> str:
        return str(self._function.__qualname__)


class BoundKernelGraph:
    """A decorated method of one object."""

    __slots__ = ("__func__", "__self__")

    def __init__(self, function: KernelGraph, instance: Any) -> None:
        self.__func__ = function
        self.__self__ = instance

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self.__func__(self.__self__, *args, **options)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.__func__, name)
        if name in ("graph", "program", "plan", "source", "explain", "compile"):
            return functools.partial(value, self.__self__)
        return value


def remember(cache: dict[Hashable, Any], key: Hashable, value: Any) -> None:
    """Add to a bounded cache; what was not used since the last clearing makes room."""
    if len(cache) >= BOUND:
        for old, held in list(cache.items()):
            if getattr(held, "used", False):
                held.used = False
            else:
                del cache[old]
        if len(cache) >= BOUND:
            cache.clear()
    cache[key] = value


def _values(leaves: Sequence[Any], which: Sequence[int]) -> tuple[Static, ...]:
    return tuple(Static(number_of(leaves[i])) for i in which)


def _show(argument: Argument) -> str:
    if argument.spec is not None:
        return str(argument.spec.type)
    return repr(argument.value) if argument.static else type(argument.value).__name__


@overload
def kernel_graph(function: Callable[..., Any], /) -> KernelGraph: ...


@overload
def kernel_graph(
    function: None = None,
    /,
    *,
    device: str | None = None,
    streams: str | int = "auto",
    memory: str = "balanced",
    static_argnames: str | Sequence[str] = (),
    fastmath: bool = False,
    untraceable: str = "refuse",
) -> Callable[[Callable[..., Any]], KernelGraph]: ...


def kernel_graph(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Compile a NumPy function: `@kg.kernel_graph`, or `@kg.kernel_graph(device="cuda")`.

    device: `cpu`, `cuda`, `cuda:1`, `fake`; None is cuda where it can be used, else cpu.
    streams: `auto`, `max`, or how many at most. memory: `balanced`, `concurrency` or `small`, see `Plan`.
    static_argnames: parameters taken by value from the start; others are when the trace needs their value.
    fastmath: allow the compiler to reorder and contract floating-point operations.
    untraceable: `refuse`, or `split` for programs that decide on array values: what is traced so far runs, the value is
    read, and tracing goes on; `explain` lists the lines.
    Raises OptionError or ArgumentsError for options that make no sense.
    """
    known = [*inspect.signature(KernelGraph.__init__).parameters][2:]
    for name in options:
        if name not in known:
            raise OptionError(f"kernel_graph has no option {name!r}; there are {', '.join(known)}")
    if function is None:
        return lambda f: KernelGraph(f, **options)
    return KernelGraph(function, **options)
