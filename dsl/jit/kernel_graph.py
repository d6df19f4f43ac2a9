"""The decorator: a NumPy function in; out, one that traces, compiles once for each kind of arguments, and runs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Unpack, overload

import numpy as np

from ...compiler.graph.graph import Graph
from ...compiler.pipeline import stages
from ...runtime.core.errors import KernelGraphError, note
from ...runtime.core.settings import settings
from ...runtime.program.control_flow import kernels_of
from ...runtime.program.plan import Plan
from ...runtime.program.program import Program
from ...runtime.schedule.schedule import explain as explain_plan
from ..api.eager import plain, wrapped
from ..array.array import Array
from ..array.devices import gpu_at, open_device, target
from ..array.spec import Spec
from ..array.streams import callers, captured
from ..core.context import context
from ..core.errors import ArgumentsError, UserError, is_users, user_frames, user_line
from ..core.host_scalars import Respecialise
from ..core.numpy_address import address
from ..core.pytree import LEAF, Tree, flatten, unflatten
from ..interop.device_sharing import SHARED, give_back, moved
from ..interop.fast_import import MISSED, seen
from .compiled import Compiled
from .launcher import Entry
from .methods import BoundKernelGraph, undecorated
from .options import Given, checked
from .pickling import Portable
from .segments import SplitEntry
from .signature import LEAF_TYPES, Parameters, check_function, key_of, quick_key, take_apart, to_leaf
from .specializations import Versions, show, values_of
from .trace_function import Argument, Captured

SHAPES = 256  # of lists and tuples of arguments, kept for each function


class KernelGraph(Portable):
    """A decorated function. Call it like the function; `graph`, `program`, `plan`, `source` and `explain` take the
    same arguments, or `kg.spec(shape, dtype)` for arrays, and show what becomes of a call."""

    def __init__(self, function: Callable[..., Any], **options: Unpack[Given]) -> None:
        """The options are those of `kernel_graph`. Raises OptionError, ArgumentsError."""
        function = undecorated(function)
        check_function(function)
        self._given: Mapping[str, Any] = dict(options)
        self._options = checked(**options)
        self._parameters = Parameters(function, self._options.static)
        functools.update_wrapper(self, function)
        self._function = function
        if (code := getattr(function, "__code__", None)) is not None:
            is_users(code.co_filename)
        self._name = self._parameters.name
        self._is_method = False
        self._arity = len(self._parameters.names) if self._parameters.positional else -1  # every argument has a place
        self._variadic = self._parameters.positional and self._parameters.variadic
        # an entry whose `direct` is tried before the key is made, and the number of arguments that it takes
        self._last: tuple[Any, int] = (None, -1)
        self._shapes: dict[tuple[Any, ...], Tree] = {}  # how lists and tuples among the arguments are taken apart
        self._versions = Versions(function, self._name, self._options)
        self._entries = self._versions.entries

    # calling

    def __call__(self, *args: Any, **options: Any) -> Any:
        if context.busy:
            return self._within(args, options)
        if settings.disable:
            return self._plain(args, options)
        try:
            if options or (len(args) != self._arity and (len(args) < self._arity or not self._variadic)):
                args, options = self._parameters.bind(args, options)
            if settings.verify:
                self._versions.verify(*self._leaves(args, options))
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
                        entry = self._entries.get((key, values_of(args, entry)))
                    elif entry is not None and entry.direct is not None:
                        self._last = entry, len(args)
                    if entry is not None and (entry.holds is None or entry.holds()):
                        entry.used = True
                        try:
                            return entry.run(args, places)
                        except Respecialise:
                            pass
                else:
                    result = self._nested(args)
                    if result is not MISSED:
                        return result
            return self._slow(args, options)
        except UserError as error:
            raise error.with_traceback(user_frames(error.__traceback__)) from None
        except KernelGraphError as error:
            note(error, f"in a call of {self._name}, {user_line()}")
            raise

    def _nested(self, args: tuple[Any, ...]) -> Any:
        """`__call__` with lists and tuples of arrays and numbers; `_lent` without."""
        shape: list[Any] = []
        leaves: list[Any] = []
        for value in args:
            kind = type(value)
            if kind is list or kind is tuple:
                shape += kind, len(value)
                leaves += value
            else:
                shape.append(None)
                leaves.append(value)
        if len(shape) == len(args):
            return self._lent(args)
        places: list[int] = []
        flat = quick_key(leaves, places)
        if flat is None:
            return MISSED
        shaped = tuple(shape)
        tree = self._shapes.get(shaped)
        if tree is None:
            if len(self._shapes) >= SHAPES:
                self._shapes.clear()
            tree = self._shapes[shaped] = take_apart(self._parameters, args, {}, self._is_method)[0]
        key: Hashable = (tree, flat)
        entry = self._entries.get(key)
        if type(entry) is tuple:
            entry = self._entries.get((key, values_of(leaves, entry)))
        if entry is None or not (entry.holds is None or entry.holds()):
            return MISSED
        entry.used = True
        try:
            return entry.run(leaves, places)
        except Respecialise:
            return MISSED

    def _lent(self, args: tuple[Any, ...]) -> Any:
        """`__call__` with arrays of other libraries that are cheap to see as ours; MISSED for anything else."""
        found = seen(args)
        if found is None:
            return MISSED
        leaves, lender = found
        last, count = self._last
        if lender is None and len(args) == count and (last.holds is None or last.holds()):
            result = last.direct(leaves)
            if result is not MISSED:
                last.used = True
                return result
        places: list[int] = []
        key = quick_key(leaves, places)
        entry = None if key is None else self._entries.get(key)
        if type(entry) is not Entry or not (entry.holds is None or entry.holds()):
            return MISSED
        caller: Sequence[Any] = ()
        if lender is not None:
            device = self._versions.device
            caller = lender.streams()
            elsewhere = any([type(leaf) is Array and leaf._device is not device for leaf in leaves])
            if entry.assigned or elsewhere or captured(device, caller) is not None:
                return MISSED
        if entry.direct is not None:
            self._last = entry, len(args)
        entry.used = True
        try:
            result = entry.run(leaves, places, caller)
        except Respecialise:
            return MISSED
        return self._given_back(args, {}, leaves, entry, result, {}) if entry.assigned else result

    def _within(self, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """A call within a trace, whose part it becomes, or under a stream."""
        if context.trace is not None:
            world = context.trace.world
            return (self._function if world is None else world.lift(self._function))(*args, **options)
        if settings.disable:
            return self._plain(args, options)
        try:
            args, options = self._parameters.bind(args, options)
            if settings.verify:
                self._versions.verify(*self._leaves(args, options))
            places: list[int] = []
            key = quick_key(args, places) if self._arity >= 0 else None
            entry = None if key is None else self._entries.get(key)
            if isinstance(entry, Entry) and (entry.holds is None or entry.holds()):
                entry.used = True
                caller = callers(self._versions.device, ())
                if captured(self._versions.device, caller) is None:
                    with suppress(Respecialise):
                        return entry.run(args, places, caller)
            return self._slow(args, options)
        except UserError as error:
            raise error.with_traceback(user_frames(error.__traceback__)) from None
        except KernelGraphError as error:
            note(error, f"in a call of {self._name}, {user_line()}")
            raise

    def _slow(self, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Any call whose arguments are bound: taken apart, looked up, and compiled if need be."""
        tree, leaves = self._leaves(args, options)
        if any(type(leaf) is Spec for leaf in leaves):
            raise ArgumentsError(f"a spec holds no values; write {self._name}.compile(...) to warm up")
        shared = {
            i: leaf._memory for i, leaf in enumerate(leaves) if type(leaf) is Array and leaf._memory.__class__ in SHARED
        }
        if context.stream is None and not shared:
            return self._run(args, options, tree, leaves, ())
        device = self._versions.device
        leaves = [moved(leaf, device) if i in shared and leaf._device is not device else leaf
                  for i, leaf in enumerate(leaves)]  # fmt: skip
        caller = callers(device, leaves)
        within = captured(device, caller)
        if within is None:
            return self._run(args, options, tree, leaves, caller, shared)
        with within:
            return self._run(args, options, tree, leaves, caller, shared)

    def _run(
        self,
        args: tuple[Any, ...],
        options: dict[str, Any],
        tree: Tree,
        leaves: Sequence[Any],
        caller: Sequence[Any],
        shared: dict[int, Any] = {},  # noqa: B006
    ) -> Any:
        """The call. caller: the streams that it is forked from and joined to. shared: memory that others share, of the
        leaves of these numbers."""
        places = [address(leaf) for leaf in leaves if type(leaf) is np.ndarray]
        key = self._key(tree, leaves)
        try:
            entry = self._versions.entry(key, tree, leaves, ())
            result = entry.run(leaves, places, caller)
        except Respecialise:
            numbers = tuple(i for i, leaf in enumerate(leaves) if type(leaf) in (int, float, complex))
            entry = self._versions.entry(key, tree, leaves, numbers)
            result = entry.run(leaves, places, caller)
        return self._given_back(args, options, leaves, entry, result, shared) if entry.assigned else result

    def _given_back(
        self,
        args: tuple[Any, ...],
        options: dict[str, Any],
        leaves: Sequence[Any],
        entry: Entry,
        result: Any,
        shared: dict[int, Any],
    ) -> Any:
        """What was assigned to copies of arguments (made for byte order or alignment), or to what stands for them,
        written to the arguments."""
        given = take_apart(self._parameters, args, options, self._is_method)[1]
        copied = {id(leaves[i]): given[i] for i in entry.assigned if given[i] is not leaves[i]}
        for i in entry.assigned:
            if isinstance(given[i], np.ndarray) and not np.may_share_memory(given[i], leaves[i]):
                np.copyto(given[i], leaves[i])
            elif i in shared:
                give_back(given[i], leaves[i], shared[i])
        found: list[Any] = []
        tree = flatten(result, found, results=True)
        return unflatten(tree, [copied.get(id(x), x) for x in found])

    def _leaves(self, args: tuple[Any, ...], options: dict[str, Any]) -> tuple[Tree, list[Any]]:
        tree, leaves = take_apart(self._parameters, args, options, self._is_method)
        return tree, [leaf if type(leaf) in LEAF_TYPES else to_leaf(leaf) for leaf in leaves]

    def _key(self, tree: Tree, leaves: Sequence[Any]) -> Hashable:
        flat = tuple(part for leaf in leaves for part in key_of(leaf))
        return flat if self._is_plain(tree, leaves) else (tree, flat)

    def _is_plain(self, tree: Tree, leaves: Sequence[Any]) -> bool:
        """Whether `__call__` would make the same key without taking the arguments apart."""
        positional, named = tree.children
        fits = len(leaves) >= self._arity if self._variadic else len(leaves) == self._arity
        return self._arity >= 0 and fits and not named.names and all(c == LEAF for c in positional.children)

    def _plain(self, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """The function itself on NumPy arrays, its results in `kg.Array`s."""
        leaves: list[Any] = []
        tree = flatten((args, options), leaves)
        args, options = unflatten(tree, [plain(leaf) for leaf in leaves])
        out: list[Any] = []
        tree = flatten(self._function(*args, **options), out, results=True)
        return unflatten(tree, [wrapped(leaf, open_device(("cpu", 0)), (leaf,)) for leaf in out])

    # looking

    def _looked_at(self, args: tuple[Any, ...], options: dict[str, Any]) -> tuple[Captured, list[Argument], list[Any]]:
        try:
            tree, leaves = self._leaves(*self._parameters.bind(args, options))
            with self._versions.lock:
                captured, arguments, _ = self._versions.trace(tree, leaves, frozenset())
        except UserError as error:
            raise error.with_traceback(user_frames(error.__traceback__)) from None
        return captured, arguments, leaves

    def _compiled_for(self, args: tuple[Any, ...], options: dict[str, Any]) -> Compiled:
        captured, _, leaves = self._looked_at(args, options)
        return self._versions.compiled(captured, leaves)

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
        return "\n\n".join(k.source for k in kernels_of(self.plan(*args, **options)))

    def explain(self, *args: Any, **options: Any) -> str:
        """How a call was traced, fused and scheduled, and why."""
        captured, arguments, leaves = self._looked_at(args, options)
        versions = self._versions
        compiled, kind = versions.compiled(captured, leaves), versions.kind
        layouts = versions.layouts(captured, leaves)
        gpu = gpu_at(versions.place)
        fusion = stages(captured.graph, target(kind), layouts, **self._options.compiling, gpu=gpu)[1]
        arrays = ", ".join(map(show, arguments))
        lines = [
            f"{self._name}({arrays}) on {kind}: {len(captured.graph.nodes)} nodes, {len(compiled.program.tasks)} tasks"
        ]
        known = [show(a) for a in arguments if a.static]
        if known:
            lines.append(f"part of the key, since the trace needs the value: {', '.join(known)}")
        if captured.graph.numbers:
            lines.append(
                f"{len(captured.graph.numbers)} numbers are passed at each call; another value compiles nothing"
            )
        lines += captured.rolled
        if captured.line:
            key = self._key(*self._leaves(*self._parameters.bind(args, options)))
            entry = versions.known(key, leaves, ())
            lines += entry.lines() if isinstance(entry, SplitEntry) else [f"split at {captured.line}; not run yet"]
            lines.append("the first part:")
        return "\n".join([*lines, str(fusion), explain_plan(compiled.plan), *compiled.lines()])

    def why(self) -> str:
        """What was traced and compiled so far, and which guards failed."""
        return "\n".join(self._versions.log) or f"{self._name} has not been traced yet"

    def compile(self, *args: Any, **options: Any) -> KernelGraph:
        """Trace and compile for these arguments without running them."""
        captured, _, leaves = self._looked_at(args, options)
        self._versions.ready(captured, leaves)
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

    def _pickled(self) -> tuple[Callable[..., Any], Mapping[str, Any]]:
        return self._function, self._given


@overload
def kernel_graph(function: Callable[..., Any], /) -> KernelGraph: ...


@overload
def kernel_graph(function: None = None, /, **options: Unpack[Given]) -> Callable[[Callable[..., Any]], KernelGraph]: ...


def kernel_graph(function: Callable[..., Any] | None = None, /, **options: Unpack[Given]) -> Any:
    """Compile a NumPy function: `@kg.kernel_graph`, or `@kg.kernel_graph(device="cuda")`.

    device: `cpu`, `cuda`, `cuda:1`, `fake`; None is cuda where it can be used, else cpu.
    streams: `auto`, `max`, or how many at most. memory: `balanced`, `concurrency` or `small`, see `Plan`.
    static_argnames: parameters taken by value from the start; others are when the trace needs their value.
    fastmath: allow the compiler to reorder and contract floating-point operations.
    tf32: let a GPU's matmuls of float32 and complex64 round what they multiply to 11 bits (TensorFloat-32).
    untraceable: `refuse`, or `split` for programs that decide on array values: what is traced so far runs, the value is
    read, and tracing goes on; `explain` lists the lines.
    Raises OptionError or ArgumentsError for options that make no sense.
    """
    if function is None:
        checked(**options)  # at the line that gives them
        return lambda f: KernelGraph(f, **options)
    return KernelGraph(function, **options)
