"""The decorator: a NumPy function in; out, one that traces, compiles once for each kind of arguments, and runs."""

from __future__ import annotations

import functools
import itertools
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Protocol, Self, Unpack, overload

import numpy as np

from ...compiler.graph.graph import Graph
from ...compiler.graph.precision import given_precision
from ...runtime.core.errors import KernelGraphError, OutOfMemory, add_note_to_error_once
from ...runtime.core.settings import settings, unusual
from ...runtime.engine.native_call import call_instances_natively
from ...runtime.program.plan import Plan
from ...runtime.program.program import Program
from ..array.array import Array
from ..array.conversion import to_kg_arrays, to_numpy_arrays
from ..array.devices import gpu_properties_at, name_of, open_device
from ..array.mutation import write_differing_elements
from ..array.streams import caller_streams, within_capture_of_user_stream
from ..core.context import context
from ..core.errors import (
    ArgumentKindError,
    ArgumentsError,
    OptionError,
    Refusal,
    UserError,
    error_at_user_line,
    treat_package_as_user_code,
    user_line,
)
from ..core.host_scalars import Respecialise
from ..core.pytree import LEAF, Tree, flatten, unflatten
from ..core.spec import Spec, address
from ..environment.argument_properties import NeedCachedProperty, NeedOpenedArguments
from ..environment.guards import GuardSet
from ..interop.device_sharing import LEGACY, SHARED, copied_to, write_back_to_memory_owner
from ..interop.fast_import import import_arguments
from ..interop.labelled import labelled_kind
from ..interop.labelled_calls import LabelledArguments, LabelledCalls
from ..state.opening import OpenedTree, Opening
from ..state.reader import compile_reader_of_nested_arguments
from . import eager  # noqa: F401  # gives `Array` its operations
from .in_numpy import (
    NumPyCall,
    NumPyLauncher,
    call_in_numpy,
    call_without_warnings,
    copied_leaf,
    copied_leaf_for_numpy,
    fast_call_by_kinds,
    fresh_arguments,
    numpy_fast_call,
)
from .launcher import (
    NOT_TAKEN,
    FailedCall,
    Fast,
    InNumPy,
    Launcher,
    OnAnotherDevice,
    not_taken_by_fast_launcher,
    runner_behind_key_tests,
)
from .methods import BoundKernelGraph, Untyped, undecorated
from .options import KernelGraphKeywords, checked_kernel_graph_options, signature_with_options
from .pickling import PicklableDecoratedFunction
from .segments import SegmentedCall
from .signature import (
    LEAF_TYPES,
    MOST_NUMBERS,
    DecoratedFunctionParameters,
    add_nested_leaves_of_call,
    cache_key_of_leaf,
    check_function,
    flatten_arguments_of_call,
    is_copy_of_array,
    is_number,
    open_arguments,
    python_number_of_call_leaf,
    quick_key,
    require_few_numbers,
    require_no_objects,
    to_call_leaf,
    to_opened_call_leaf,
)
from .specializations import ON_MESH, SEVERAL, CompiledCall, CompiledProgram, Specializations, static_values_of_leaves
from .trace_function import UnfinishedFunction
from .traced_function import TracedArgument, TracedFunction

if TYPE_CHECKING:
    from typing_extensions import ParamSpec, TypeVar

    from ..array.methods import ArrayResult
    from ..report.report import Report

    Shape = TypeVar("Shape", bound=tuple[Any, ...])
    Scalar = TypeVar("Scalar", bound=np.generic)
    P = ParamSpec("P", default=...)
    R = TypeVar("R", default=Any)
    S = TypeVar("S")
    Rest = ParamSpec("Rest")
    Look = TypeVar("Look", bound=Callable[..., Any])
else:
    from typing import ParamSpec, TypeVar

    P, R = ParamSpec("P"), TypeVar("R")

VIEW = "..inspection.views"  # what draws stands above this folder, and is loaded when somebody looks


def _report_module_of_decorator() -> Any:
    return import_module(VIEW, __package__)


def _as_called_in_block(look: Look) -> Look:
    """A method that shows a call, as it would be made in the block of a device or a precision that runs."""

    @functools.wraps(look)
    def look_as_called_here(self: Any, *args: Any, **options: Any) -> Any:
        try:
            return look(self._as_called_here(), *args, **options)
        except Exception as error:
            raise error_at_user_line(error)  # noqa: B904  # the same one

    return look_as_called_here  # type: ignore[return-value]


def _show_decorator_stages_in_notebook() -> None:
    """A notebook, if one runs, is to show what stages give as pictures."""
    if "IPython" in sys.modules:
        _report_module_of_decorator().show_in_notebooks()


SHOWN = 8  # lines of a plan over several devices
RECENT = 4  # kinds of opened arguments whose calls go the fast way
SHAPES = 256  # of lists and tuples of arguments, kept for each function


class KernelGraph(PicklableDecoratedFunction, Generic[P, R]):
    """A decorated function. Call it like the function; `graph`, `program`, `plan`, `source` and `explain` take the same
    arguments, or `kg.spec(shape, dtype)` for arrays, and show what becomes of a call.

    Examples
    --------
    >>> f = kg.kernel_graph(lambda x: np.exp(x).sum())
    >>> len(f.graph(kg.spec((9,), "f4")).nodes), len(f.program(kg.spec((9,), "f4")).tasks)
    (3, 1)
    """

    __slots__ = ("_fast",)  # where native code finds it
    _fast: Fast

    def __init__(self, function: Callable[P, R], **options: Any) -> None:
        """The options are those of `kernel_graph`. Raises OptionError, ArgumentsError."""
        function = undecorated(function)
        check_function(function)
        self._given: Mapping[str, Any] = dict(options)
        self._options = checked_kernel_graph_options(**options)
        self._parameters = DecoratedFunctionParameters(function, self._options.static)
        functools.update_wrapper(self, function)
        self._function = function
        if (code := getattr(function, "__code__", None)) is not None:
            treat_package_as_user_code(code.co_filename)
        self._name = self._parameters.name
        self._least, self._most = self._parameters.places  # arguments of a call each of which has a place
        self._latest = Launcher(
            not_taken_by_fast_launcher, "", GuardSet(())
        )  # of the calls that took the fast path, and its `fast`
        self._fast = self._latest.fast
        self._labelled: LabelledCalls | None = None  # where arguments were of pandas and the like
        self._opening: Opening | None = None  # of arguments with objects, or with what it changes
        self._calls_by_kinds = itertools.count(1)
        self._recent: deque[Fast] = deque(maxlen=RECENT)  # the fast ways of the latest calls with opened arguments
        self._shapes: dict[tuple[Any, ...], Tree] = {}  # how lists and tuples among the arguments are taken apart
        self._elsewhere: dict[str, KernelGraph] = {}  # the same function, on other devices than the default, or rounded
        self._versions = Specializations(function, self._name, self._options)
        self._entries = self._versions.entries

    # calling

    if TYPE_CHECKING:  # a result that the function calls NumPy's has the methods of a `kg.Array` too

        @overload
        def __call__(self: KernelGraph[P, Untyped], *args: P.args, **options: P.kwargs) -> Any: ...

        @overload
        def __call__(
            self: KernelGraph[P, np.ndarray[Shape, np.dtype[Scalar]]], *args: P.args, **options: P.kwargs
        ) -> ArrayResult[Shape, Scalar]: ...

        @overload
        def __call__(self, *args: P.args, **options: P.kwargs) -> R: ...

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Three ways: the latest call's own function, if it takes the arguments; what their key finds; all else."""
        fast = None
        usual = not (options or (unusual and (settings.special or context.busy)))
        if not usual and context.trace is not None:
            return self._call_in_trace(args, options)
        try:
            if usual:
                fast = self._fast
                result = fast(args)
                if result is not NOT_TAKEN:
                    return result
            return self._call_anywhere(args, options, fast)
        except Exception as error:
            raise self._error_for_user(error)  # noqa: B904  # the same one

    def _call_untaken(self, args: tuple[Any, ...], fast: Fast) -> Any:
        """The rest of a call that has begun in native code. fast: what has not taken the arguments."""
        try:
            return self._call_anywhere(args, {}, fast)
        except Exception as error:
            raise self._error_for_user(error)  # noqa: B904  # the same one

    def _error_for_user(self, error: Exception) -> Exception:
        """An error without the entries of this package in its traceback, or with a note of where it comes from."""
        if isinstance(error, UserError) or not isinstance(error, KernelGraphError):
            return error_at_user_line(error)
        add_note_to_error_once(error, f"in a call of {self._name}, {user_line()}")
        return error_at_user_line(error) if isinstance(error, OutOfMemory) else error

    def _call_anywhere(self, args: tuple[Any, ...], options: dict[str, Any], fast: Fast | None) -> Any:
        """A call outside of a trace. fast: what has not taken the arguments, if anything."""
        try:
            return self._call(args, options, fast)
        except (OnAnotherDevice, InNumPy, LabelledArguments) as other:
            elsewhere = other.with_traceback(None)  # which has this call's frames: arguments would live on
        except ArgumentKindError as error:
            if not self._versions.may_run_in_numpy:
                raise
            self._versions.note_argument_in_numpy(error)
            elsewhere = InNumPy(error)
            if not options:
                self._run_kinds_in_numpy(args, error, self._looks_again)
        if isinstance(elsewhere, OnAnotherDevice):
            return self._call_on_another_device(elsewhere, args, options)
        if isinstance(elsewhere, LabelledArguments):
            self._labelled = self._labelled or LabelledCalls(self, self.traced, self._call_as_written)
            return self._labelled.call(args, options)
        return self._call_in_numpy(elsewhere, args, options)

    def _call_as_written(
        self, args: tuple[Any, ...], options: dict[str, Any], refusal: ArgumentKindError | None
    ) -> Any:
        """A call with labelled arguments that runs as the function is written. refusal: why, where that is told."""
        if refusal is not None:
            if not self._versions.may_run_in_numpy:
                raise refusal
            self._versions.note_argument_in_numpy(refusal)
        return self._call_in_numpy(InNumPy(refusal or ArgumentKindError("an argument has labels")), args, options)

    def _call_in_numpy(self, reason: InNumPy, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """A call that runs as the function is written."""
        result = call_in_numpy(self._function, args, options, self._versions.device, reason.error)
        if reason.caught is not None:
            self._versions.note_caught_error(reason.caught, reason.error)
        return result

    def _looks_again(self) -> bool:
        """Whether a call whose kinds of arguments ran in NumPy is looked at in full: ever fewer are."""
        count = next(self._calls_by_kinds)
        return not count & (count - 1)

    def _numpy_call(self, error: Exception) -> NumPyCall:
        return NumPyCall(self._function, self._versions.device, error, self._error_for_user)

    def _fast_call_in_numpy(
        self, entry: NumPyLauncher, tree: Tree, leaves: Sequence[Any], given: Sequence[Any]
    ) -> Fast:
        values = {i: python_number_of_call_leaf(leaves[i]) for i in entry.by_value}
        function = self._function if self._parameters.simple else None
        return numpy_fast_call(entry, tree, leaves, given, values, function, self._numpy_call(entry.error))

    def _run_in_numpy_from_now_on(
        self, entry: NumPyLauncher, tree: Tree, leaves: Sequence[Any], given: Sequence[Any]
    ) -> None:
        """The next calls like this one run in NumPy after a look at the arguments."""
        if entry.fast_call is not_taken_by_fast_launcher:
            entry.fast_call = self._fast_call_in_numpy(entry, tree, leaves, given)
            if type(tree) is OpenedTree:
                self._recent.appendleft(entry.fast_call)
        self._fast, self._latest = entry.fast_call, entry

    def _run_kinds_in_numpy(self, args: tuple[Any, ...], error: Exception, declines: Callable[[], bool]) -> None:
        """The next calls with arguments of these kinds run in NumPy, but for those that are declined."""
        self._fast = fast_call_by_kinds(args, self._parameters.least, self._numpy_call(error), declines)

    def _call_on_another_device(self, other: OnAnotherDevice, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """A call with an array on another device: it runs there, unless the function or other arrays are bound here."""
        if self._options.place is None:
            return self._specialized_for(device=f"{other.there.kind}:{other.there.index}")(*args, **options)
        there, here = name_of(other.there), name_of(other.here)
        raise ArgumentsError(f"{self._name} runs on {here}, and an argument is on {there}; write x.to_device({here!r})")

    def _specialized_for(self, **option: Any) -> KernelGraph:
        """The same function with an option that it leaves open."""
        (value,) = option.values()
        found = self._elsewhere.get(value)
        if found is None:
            found = self._elsewhere[value] = KernelGraph(self._function, **{**self._given, **option})
        return found

    def _for_other_byte_order(self) -> KernelGraph:
        """The same function, of which calls that ask for the arrays' byte order run in NumPy."""
        found = self._specialized_for(untraceable=self._options.untraceable)
        found._versions.native = False
        return found

    def _as_called_here(self) -> KernelGraph:
        """The same function with the device or precision of the block that runs, if it leaves that open."""
        if context.device is not None and self._options.place is None:
            return self._specialized_for(device=f"{context.device[0]}:{context.device[1]}")
        if context.precision and self._options.precision is None:
            return self._specialized_for(precision=context.precision)
        return self

    def _call_in_trace(self, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """A call that becomes a part of the trace in progress."""
        with given_precision(self._options.precision or ""):
            return context.trace.world.proxy_of(self._function)(*args, **options)

    def _call(self, args: tuple[Any, ...], options: dict[str, Any], fast: Any) -> Any:
        """fast: what has not taken the arguments, if anything."""
        if (context.device is not None or context.precision) and (here := self._as_called_here()) is not self:
            return here(*args, **options)
        if settings.disable:
            return self._call_uncompiled(args, options)
        if options or not self._least <= len(args) <= self._most:
            args, options = self._parameters.bind(args, options)
            fast = None if options or settings.special or context.busy else self._fast
            if fast is not None and (result := fast(args)) is not NOT_TAKEN:
                return result
        if settings.verify:
            self._call_with_properties(self._verify_trace_of_call, args, options)
        if self._opening is not None:
            return self._call_with_opened_arguments(args, options, fast)
        if self._parameters.by_name or (self._most >= 0 and not options):
            result = self._call_by_key((*args, *options.values()), tuple(options), fast)
            if result is not NOT_TAKEN:
                return result
        return self._call_with_properties(self._call_in_full, args, options)

    def _call_with_properties(self, ask: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """ask(args, options), again with each cached property of an argument that its trace needs."""
        try:
            return ask(args, options)
        except UnfinishedFunction as unfinished:
            raise unfinished.error from None
        except NeedOpenedArguments as need:
            self._opening = self._opening or Opening(self._function)
            self._opening.extend(need)
        except NeedCachedProperty as need:
            with need.computed(self._flatten_arguments(args, options)[3]):
                return self._call_with_properties(ask, args, options)
        return self._call_with_properties(ask, args, options)

    def _verify_trace_of_call(self, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        try:
            self._versions.verify(*self._leaves_of_arguments(args, options))
        except Refusal as error:
            if not error.needs_values:
                raise

    def _call_by_key(self, args: tuple[Any, ...], names: tuple[str, ...], fast: Any) -> Any:
        """A call of a key that is known; NOT_TAKEN, and nothing is done, for any other. args: those with a name alone
        too; names: of these."""
        places: list[int] = []
        key: Hashable = self._parameters.quick_key(args, places)
        leaves: Sequence[Any] = args
        producer: Any = None
        # whether arguments like these say so by themselves, or once taken apart
        repeats: Tree | bool = not self._parameters.by_name
        if key is None:
            found = self._key_of_opened_arguments(args, names, places)
            if found is None:
                return NOT_TAKEN
            key, leaves, producer, repeats = found
        entry = self._entries.get(key)
        if type(entry) is tuple:
            entry = self._entries.get((key, static_values_of_leaves(leaves, entry)))
            repeats = False  # values are part of the key
        if entry is None:
            return NOT_TAKEN
        result: Any = NOT_TAKEN
        caller: Sequence[Any] = ()
        if settings.special or context.busy:
            caller = caller_streams(self._versions.device, leaves)
        elif type(entry) is NumPyLauncher:
            result = self._call_entry_in_numpy(entry, args)
        elif entry.fast is not fast or leaves is not args:
            result = entry.fast(tuple(leaves), 0 if producer is None else producer.handle() or LEGACY)
            if result is not NOT_TAKEN:
                if repeats is True:
                    self._fast, self._latest = entry.fast, entry
                elif repeats and not entry.assigned:
                    self._install_fast_path(repeats, entry, leaves)
        if result is NOT_TAKEN:
            result = self._run_known_call(entry, leaves, places, caller, producer)
        if entry.assigned and leaves is not args and result is not NOT_TAKEN:
            return _write_back_to_arguments(self._leaves_as_given(args), leaves, entry, result, {}, {})
        return result

    def _call_entry_in_numpy(self, entry: NumPyLauncher, args: tuple[Any, ...]) -> Any:
        result = NOT_TAKEN if self._parameters.by_name else entry.fast_call(args)
        if result is not NOT_TAKEN:
            self._fast, self._latest = entry.fast_call, entry
        return result

    def _run_known_call(
        self, entry: Launcher, leaves: Sequence[Any], places: Sequence[int], caller: Sequence[Any], producer: Any
    ) -> Any:
        """What `run` of an entry gives; NOT_TAKEN where the call has to be looked at in full."""
        device = self._versions.device
        if producer is not None:
            caller = caller or producer.streams()
            elsewhere = any([type(leaf) is Array and leaf._device is not device for leaf in leaves])
            if entry.assigned or elsewhere or type(entry) is not Launcher:
                return NOT_TAKEN
        if caller and within_capture_of_user_stream(device, caller) is not None:
            return NOT_TAKEN
        if not entry.guards.hold():
            return NOT_TAKEN
        entry.used = True
        try:
            return entry.run(leaves, places, caller)
        except Respecialise:
            return NOT_TAKEN

    def _key_of_opened_arguments(
        self, args: tuple[Any, ...], names: tuple[str, ...], places: list[int]
    ) -> tuple[Hashable, Sequence[Any], Any, Tree | bool] | None:
        """The key of arguments among which are lists, tuples, dicts and arrays of other libraries; their leaves; who
        lends memory of a GPU, if anybody; their structure, True if each argument is a leaf, False if leaves stand for
        arrays of other libraries. None for others."""
        shape: list[Any] = []
        leaves: list[Any] = []
        if not add_nested_leaves_of_call(args, shape, leaves):
            return None
        self._require_few_numbers(leaves)
        found = import_arguments(leaves)
        if found is None:
            return None
        places.clear()
        flat = quick_key(found[0], places)
        if flat is None:
            return None
        parameters = self._parameters
        if len(shape) == len(args) and not parameters.gathers:
            return flat, *found, not parameters.by_name
        shaped = *shape, names
        tree = self._shapes.get(shaped)
        if tree is None:
            if len(self._shapes) >= SHAPES:
                self._shapes.clear()
            count = len(args) - len(names)
            options = dict(zip(names, args[count:], strict=True))
            tree = self._shapes[shaped] = flatten_arguments_of_call(parameters, args[:count], options)[0]
            require_no_objects(tree, ())
        return (tree, flat), *found, tree if found[0] is leaves and not parameters.by_name else False

    def _call_with_opened_arguments(self, args: tuple[Any, ...], options: dict[str, Any], fast: Any) -> Any:
        """A call of a function that changes what its arguments hold."""
        if not (options or settings.special or context.busy):
            for way in self._recent:
                if way is not fast and (result := way(args)) is not NOT_TAKEN:
                    self._fast = way
                    return result
        return self._call_with_properties(self._call_in_full, args, options)

    def _call_in_full(self, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Any call whose arguments are bound."""
        call = NewCall(self, args, options)
        if self._versions.native and not all(x.dtype.isnative for x in call.given if isinstance(x, np.ndarray)):
            return self._for_other_byte_order()(*args, **options)
        call.join_streams()
        self._latest.used = True
        with call.within or nullcontext():
            result = call.launch()
            if call.entry.fast is not not_taken_by_fast_launcher:
                begin_calls_natively()
            if type(result) is FailedCall:
                raise result.error
            return result

    def _install_fast_path(self, tree: Tree, entry: Launcher, leaves: Sequence[Any]) -> None:
        """The next calls like this one go the fast way."""
        if entry.opened is None or entry.opened[0] is not entry.fast:
            entry.opened = entry.fast, self._reader_before(tree, entry, leaves)
            if type(tree) is OpenedTree and entry.opened[1] is not None:
                self._recent.appendleft(entry.opened[1])
        if entry.opened[1] is not None:
            self._fast, self._latest = entry.opened[1], entry

    def _reader_before(self, tree: Tree, entry: Launcher, leaves: Sequence[Any]) -> Fast | None:
        """What reads the arguments' leaves for the entry's fast way or, where it has none, for what it runs."""
        values = {i: python_number_of_call_leaf(leaves[i]) for i in entry.by_value}
        function = self._function if self._parameters.simple else None
        arrays = [i for i, leaf in enumerate(leaves) if type(leaf) in (np.ndarray, Array)]
        if entry.fast is not not_taken_by_fast_launcher:
            return compile_reader_of_nested_arguments(tree, entry.fast, values, NOT_TAKEN, function, arrays)
        if type(tree) is not OpenedTree or type(entry) is not Launcher or not entry.repeatable:
            return None
        inner = runner_behind_key_tests(entry, leaves, self._versions.device)
        if inner is None:
            return None
        read = compile_reader_of_nested_arguments(tree, inner, values, NOT_TAKEN, function, arrays)
        if read is None:
            return None

        def run_behind_key_tests(args: tuple[Any, ...], caller: int = 0) -> Any:
            try:
                return read(args, caller)
            except InNumPy as other:
                reason = other.with_traceback(None)  # past this block: it is no context of what the function raises
            except KernelGraphError as error:
                raise self._error_for_user(error)  # noqa: B904  # the same one
            return self._call_in_numpy(reason, args, {})

        return run_behind_key_tests

    def _leaves_of_arguments(self, args: tuple[Any, ...], options: dict[str, Any]) -> tuple[Tree, list[Any]]:
        return self._flatten_arguments(args, options)[:2]

    def _flatten_arguments(
        self, args: tuple[Any, ...], options: dict[str, Any]
    ) -> tuple[Tree, list[Any], list[Any], list[Any]]:
        """The structure of the arguments, their leaves, those as given, and opened ones' holders."""
        if self._opening is not None:
            opened, given, holders = open_arguments(self._parameters, args, options, self._opening)
            return opened, [to_opened_call_leaf(leaf) for leaf in given], given, holders
        tree, given = flatten_arguments_of_call(self._parameters, args, options)
        require_no_objects(tree, given)
        return tree, [leaf if type(leaf) in LEAF_TYPES else to_call_leaf(leaf) for leaf in given], given, []

    def _require_few_numbers(self, leaves: Sequence[Any]) -> None:
        if len(leaves) > MOST_NUMBERS and self._versions.may_run_in_numpy:
            require_few_numbers(leaves)

    def _leaves_as_given(self, args: tuple[Any, ...]) -> list[Any]:
        return flatten_arguments_of_call(self._parameters, args, {})[1]

    def _cache_key_of_leaves(self, tree: Tree, leaves: Sequence[Any]) -> Hashable:
        flat = tuple(part for leaf in leaves for part in cache_key_of_leaf(leaf))
        return flat if tree.kind is tuple and self._is_quick_key_enough(tree, leaves) else (tree, flat)

    def _is_quick_key_enough(self, tree: Tree, leaves: Sequence[Any]) -> bool:
        """Whether `__call__` would make the same key without taking the arguments apart."""
        positional, named = tree.children
        known = self._parameters.named
        placed = named.names == known if known else self._least <= len(leaves) <= self._most and not named.names
        return (
            placed
            and not self._parameters.gathers
            and all(child == LEAF for child in (*positional.children, *named.children))
        )

    def _call_uncompiled(self, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """The function itself on NumPy arrays, its results in `kg.Array`s."""

        def argument_as_numpy(value: Any) -> Any:  # the user's own containers, which may be written to, where they do
            leaves: list[Any] = []
            tree = flatten(value, leaves)
            ours = any(isinstance(leaf, Array) for leaf in leaves)
            return unflatten(tree, [to_numpy_arrays(leaf) for leaf in leaves]) if ours else value

        result = self._function(
            *map(argument_as_numpy, args), **{name: argument_as_numpy(x) for name, x in options.items()}
        )
        out: list[Any] = []
        tree = flatten(result, out, results=True, met={})
        return unflatten(tree, [to_kg_arrays(leaf, open_device(("cpu", 0)), (leaf,)) for leaf in out])

    # looking

    def _trace_for_inspection(
        self, args: tuple[Any, ...], options: dict[str, Any]
    ) -> tuple[TracedFunction, list[TracedArgument], list[Any]]:
        """The trace of a call; its arguments as that saw them, and their leaves."""

        def trace_call_arguments(args: tuple[Any, ...], options: dict[str, Any]) -> Any:
            tree, leaves = self._leaves_of_arguments(args, options)
            with self._versions.lock:
                captured, arguments, _ = self._versions.trace(tree, leaves, frozenset())
            return captured, arguments, leaves

        try:
            found: tuple[TracedFunction, list[TracedArgument], list[Any]]
            found = self._call_with_properties(trace_call_arguments, *self._parameters.bind(args, options))
        except Exception as error:
            raise self._error_for_user(error)  # noqa: B904  # the same one
        return found

    def _compiled_for(self, args: tuple[Any, ...], options: dict[str, Any]) -> CompiledProgram:
        captured, _, leaves = self._trace_for_inspection(args, options)
        return self._versions.compiled(captured, leaves)

    @_as_called_in_block
    def graph(self, *args: Any, **options: Any) -> Graph:
        """What a call computes: one node for each array, with its type and the line that made it."""
        _show_decorator_stages_in_notebook()
        return self._trace_for_inspection(args, options)[0].graph

    @_as_called_in_block
    def program(self, *args: Any, **options: Any) -> Program:
        """The tasks of a call, after fusion: one for each launch. Of a function that is split, those of the first part;
        so do `graph`, `plan` and `source`."""
        _show_decorator_stages_in_notebook()
        return self._compiled_for(args, options).program

    @_as_called_in_block
    def plan(self, *args: Any, **options: Any) -> Plan:
        """The tasks of a call on streams, their waits, and where their buffers lie."""
        _show_decorator_stages_in_notebook()
        return self._compiled_for(args, options).plan

    @_as_called_in_block
    def device_plan(self, *args: Any, **options: Any) -> Plan:
        """The tasks of a call on streams of its devices, with the copies between them."""
        captured, _, leaves = self._trace_for_inspection(args, options)
        found: Plan = import_module(SEVERAL, __package__).device_plan(self._versions, captured, leaves)
        return found

    def source(self, *args: Any, **options: Any) -> str:
        """The text of every kernel of a call, below the user's lines that it computes."""
        text: str = _report_module_of_decorator().inspected_source_text(self.plan(*args, **options))
        return text

    @_as_called_in_block
    def explain(self, *args: Any, verbose: bool = False, **options: Any) -> str:
        """How a call was traced, fused and scheduled, and why: at most 15 lines, or, if `verbose`, everything."""
        try:
            text: str = _report_module_of_decorator().explanation_text(self, args, options, verbose)
        except Refusal as error:
            if (reason := self.reason_to_run_in_numpy(error)) is None:
                raise
            return f"{self._name} {reason}"
        if lines := self.lines_of_devices(args, options):
            text += "\nThat is on one device. " + "\n".join(lines[: None if verbose else SHOWN])
        if self._is_faster_in_numpy(args, options):
            text += "\nCalls like this run in NumPy, as it is written, which is faster."
        return text

    def _is_faster_in_numpy(self, args: tuple[Any, ...], options: dict[str, Any]) -> bool:
        """Whether calls could run as compiled, and do not."""
        tree, leaves = self._leaves_of_arguments(*self._parameters.bind(args, options))
        return type(self._versions.known(self._cache_key_of_leaves(tree, leaves), leaves, ())) is NumPyLauncher

    def reason_to_run_in_numpy(self, error: Refusal) -> str | None:
        """Why calls that are refused so run in NumPy, for people; None where they fail."""
        if not error.needs_values or not self._versions.may_run_in_numpy:
            return None
        return "\n".join([f"runs in NumPy, as it is written, since at {error}", *getattr(error, "__notes__", [])])

    def lines_of_devices(self, args: tuple[Any, ...], options: dict[str, Any]) -> list[str]:
        """The plan of a call over several devices, as text; nothing for one that runs on one."""
        several = self._versions.runs_on_several(self.traced(*args, **options))
        return str(self.device_plan(*args, **options)).splitlines() if several else []

    @_as_called_in_block
    def report(
        self,
        *args: Any,
        path: str | os.PathLike[str] | None = None,
        calls: int | None = None,
        source: bool = True,
        **options: Any,
    ) -> Report:
        """All that became of a call, and how long each part takes: data, and a page that needs nothing else.

        Parameters
        ----------
        path : str or os.PathLike[str], optional
            Where the page goes (its data, if that ends in `.json`); the last argument may say it too: `f.report(x,
            "page.html")`.
        calls : int, optional
            How many are made and measured, with these arguments: 3, but none where arguments are assigned to, or stand
            for arrays (`kg.spec`).
        source : bool, default True
            Whether the page shows the function's text.
        """
        made: Report = _report_module_of_decorator().report_of_call(self, args, options, path, calls, source)
        return made

    def show(self, *args: Any, **options: Any) -> Report | None:
        """`report`, and its page in a browser; a notebook displays the page, and nothing is returned to show again."""
        made = self.report(*args, **options)
        return None if made.show() is None else made

    @_as_called_in_block
    def traced(self, *args: Any, **options: Any) -> TracedFunction:
        """What a call computes; the same object for as long as nothing that it depends on changes."""
        return self._trace_for_inspection(args, options)[0]

    def changes_arguments(self, args: tuple[Any, ...], options: dict[str, Any]) -> bool:
        """Whether a call assigns to arguments, or to what they hold."""
        captured = self.traced(*args, **options)
        return bool(captured.assigned) or captured.uses_holders

    @_as_called_in_block
    def inspect(self, args: tuple[Any, ...], options: dict[str, Any]) -> CompiledCall:
        """All that becomes of a call."""
        captured, arguments, leaves = self._trace_for_inspection(args, options)
        tree, now = self._leaves_of_arguments(*self._parameters.bind(args, options))
        versions = self._versions
        layouts, gpu = versions.layouts(captured, leaves), gpu_properties_at(versions.place)
        segments: list[str] = []
        if captured.line:
            entry = versions.known(self._cache_key_of_leaves(tree, now), leaves, ())
            segments += (
                entry.lines() if isinstance(entry, SegmentedCall) else [f"split at {captured.line}; not run yet"]
            )
        return CompiledCall(
            self._name, str(self._parameters), self._parameters.every, self._options,
            versions.place, gpu, tree, arguments, captured, layouts, versions.stages(captured, leaves),
            versions.compiled(captured, leaves), tuple(versions.log), tuple(segments),
        )  # fmt: skip

    def why(self) -> str:
        """What was traced and compiled so far, and for whom. It says how long that took, and what was different."""
        text: str = _report_module_of_decorator().why_text(self._name, self._versions.log, self._parameters.every)
        return text

    @_as_called_in_block
    def compile(self, *args: Any, **options: Any) -> KernelGraph:
        """Trace and compile for these arguments without running them."""
        captured, _, leaves = self._trace_for_inspection(args, options)
        self._versions.ready(captured, leaves)
        return self

    # methods

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...

    @overload
    def __get__(
        self: KernelGraph[Concatenate[S, Rest], R], instance: S, owner: type | None = None
    ) -> BoundKernelGraph[Rest, R]: ...

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else BoundKernelGraph(self, instance)

    def __repr__(self) -> str:
        counts = [version.count() for version in (self._versions, *(f._versions for f in self._elsewhere.values()))]
        every, in_numpy = (sum(column) for column in zip(*counts, strict=True))
        text = f": {every} version{'s' if every > 1 else ''}" if every else ""
        return f"<kernel_graph {self._parameters}{text}{f', {in_numpy} in NumPy' if in_numpy else ''}>"

    def _pickled(self) -> tuple[Callable[..., Any], Mapping[str, Any]]:
        return self._function, self._given


class NewCall:
    """A call on the long way: its arguments are taken apart, put on streams, launched, and written back to.

    tree, leaves: the arguments' structure, and what is in it as the call takes it; given: as the caller has it.
    holders: of opened arguments. shared: memory of other libraries among the leaves. caller: the streams that the call
    is forked from and joined to. within: the capture of theirs that it becomes a part of. entry: what runs it."""

    __slots__ = ("args", "caller", "entry", "given", "holders", "leaves", "of", "shared", "tree", "within")
    entry: Launcher

    def __init__(self, of: KernelGraph, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        self.of, self.args = of, args
        self.tree, self.leaves, self.given, self.holders = of._flatten_arguments(args, options)
        of._require_few_numbers(self.given)
        if any(type(x) not in LEAF_TYPES and labelled_kind(type(x)) is not None for x in self.given):
            raise LabelledArguments
        if any(type(leaf) is Spec for leaf in self.leaves):
            raise ArgumentsError(f"a spec holds no values; write {of._name}.compile(...) to warm up")
        self.shared: dict[int, Any] = {}
        self.caller: Sequence[Any] = ()
        self.within: AbstractContextManager[None] | None = None

    def join_streams(self) -> None:
        """Memory of other libraries, and the stream that the user has chosen, decide where the call runs."""
        for i, leaf in enumerate(self.leaves):
            if type(leaf) is Array and leaf._memory.__class__ in SHARED:
                self.shared[i] = leaf._memory
        if context.stream is None and not self.shared:
            return
        device = self.of._versions.device
        for i in self.shared:
            if self.leaves[i]._device is not device:
                self.leaves[i] = copied_to(self.leaves[i], device)
        self.caller = caller_streams(device, self.leaves)
        self.within = within_capture_of_user_stream(device, self.caller)

    def launch(self) -> Any:
        """The result, which is written back to the arguments; numbers that do not fit the trace are taken by value."""
        try:
            return self._launch_with_values(())
        except Respecialise:
            return self._launch_with_values(tuple(i for i, leaf in enumerate(self.leaves) if is_number(leaf)))

    def _launch_with_values(self, known: tuple[int, ...]) -> Any:
        """Run what is compiled, or has to be; all is as before where that fails. known: numbers to take by value."""
        of, leaves = self.of, self.leaves
        places = [address(leaf) for leaf in leaves if type(leaf) is np.ndarray]
        behind = [*self.holders, self.given] if type(self.tree) is OpenedTree else []
        self.entry = entry = of._versions.entry(of._cache_key_of_leaves(self.tree, leaves), self.tree, leaves, known)
        if entry.contest is not None:
            self.entry = entry = of._versions.settle_contest(entry, self._rivals)
            begin_calls_natively()
        if type(entry) is NumPyLauncher and of._versions.runs_any_key_in_numpy(entry):
            of._run_kinds_in_numpy(self.args, entry.error, partial(of._versions.declines_new_key, entry))
        elif type(entry) is NumPyLauncher:
            of._run_in_numpy_from_now_on(entry, self.tree, leaves, self.given)
        else:
            of._fast = not_taken_by_fast_launcher  # it may run more than this in NumPy
            if behind or (not entry.assigned and quick_key(self.args, []) is None):
                of._install_fast_path(self.tree, entry, leaves)
        if self.within is not None and entry.uses_holders:
            raise ArgumentsError(
                f"{of._name} changes what its arguments hold, which a graph in the making does once and its "
                "replays would not; return the new values"
            )
        copies = {i: leaves[i].copy() for i in entry.assigned if is_copy_of_array(leaves[i], self.given[i])}
        result = entry.run([*leaves, *behind] if behind else leaves, places, self.caller)
        if not entry.assigned:
            return result
        return _write_back_to_arguments(self.given, leaves, entry, result, self.shared, copies)

    def _rivals(self, plain: NumPyLauncher) -> tuple[Callable[[], float], Callable[[], float], Callable[[], Any]]:
        """Timed runs of the call with copies of its arguments, as compiled and in NumPy, and of the function alone."""
        of, function, device = self.of, self.of._function, self.of._versions.device
        fast_call = of._fast_call_in_numpy(plain, self.tree, self.leaves, self.given)

        def run_compiled(args: tuple[Any, ...], options: dict[str, Any]) -> None:
            results: list[Any] = []
            flatten(of(*args, **options), results, results=True)
            for x in results:
                if type(x) is Array:
                    x.wait()

        def run_in_numpy(args: tuple[Any, ...], options: dict[str, Any]) -> None:
            if fast_call(args) is NOT_TAKEN or options:
                call_in_numpy(function, args, options, device, plain.error)

        def timed(run: Callable[[tuple[Any, ...], dict[str, Any]], None]) -> float:
            args, options = fresh_arguments(self.tree, self.leaves, copied_leaf)
            start = time.perf_counter()
            run(args, options)
            return time.perf_counter() - start

        def run_alone() -> None:
            call_without_warnings(function, *fresh_arguments(self.tree, self.leaves, copied_leaf_for_numpy))

        return partial(timed, run_compiled), partial(timed, run_in_numpy), run_alone


def _write_back_to_arguments(
    given: Sequence[Any],
    leaves: Sequence[Any],
    entry: Launcher,
    result: Any,
    shared: Mapping[int, Any],
    before: Mapping[int, Any],
) -> Any:
    """What was assigned to copies of arguments, or to their stand-ins, written to the arguments. Copies are made
    for byte order or alignment. given: the leaves as the caller has them. before: of copies what they were."""
    copied = {id(leaves[i]): given[i] for i in entry.assigned if given[i] is not leaves[i]}
    for i, old in before.items():
        write_differing_elements(given[i], leaves[i], old)
    for i in shared.keys() & entry.assigned:
        write_back_to_memory_owner(given[i], leaves[i], shared[i])
    if not copied:
        return result
    found: list[Any] = []
    tree = flatten(result, found, results=True, met={})
    return unflatten(tree, [copied.get(id(x), x) for x in found])


_begins_natively: bool | None = None


def begin_calls_natively() -> None:
    """From the first call on that needs the engine, calls do not begin in Python, where that can be. A profile, which
    has its own function for them while it lasts, asks for it before."""
    global _begins_natively
    if _begins_natively is None:
        untaken = KernelGraph._call_untaken
        _begins_natively = call_instances_natively(KernelGraph, "_fast", unusual, NOT_TAKEN, untaken)


class Decorator(Protocol):
    """What `kernel_graph` is with options alone."""

    def __call__(self, function: Callable[P, R], /) -> KernelGraph[P, R]: ...


@overload
def kernel_graph(function: Callable[P, R], /, **options: Unpack[KernelGraphKeywords]) -> KernelGraph[P, R]: ...


@overload
def kernel_graph(function: None = None, /, **options: Unpack[KernelGraphKeywords]) -> Decorator: ...


def kernel_graph(function: Callable[..., Any] | None = None, /, **options: Unpack[KernelGraphKeywords]) -> Any:
    """Compile a NumPy function: `@kg.kernel_graph`, or `@kg.kernel_graph(device="cuda")`.

    Parameters
    ----------
    function : callable, optional
        A NumPy function.
    device : str or sequence of str, optional
        `cpu`, `cuda`, `cuda:1`, `fake`; None is cuda where it can be used, else cpu.
    streams : {'auto', 'max'} or int, default 'auto'
        `auto`, `max`, or how many at most.
    memory : {'balanced', 'concurrency', 'small'}
        `balanced`, `concurrency` or `small`, see `Plan`.
    static_argnames : str or sequence of str, optional
        Parameters taken by value from the start; others are when the trace needs their value.
    fastmath : bool, default False
        Allow the compiler to reorder and contract floating-point operations.
    precision : {'float32', 'tf32', 'bf16', 'tf32x3'}, optional
        What a GPU's products of float32 may round their numbers to: `tf32` (11 bits), `bf16` (8 bits), `tf32x3` (some
        21 bits, in three products of TF32), or nothing (`float32`). Sums are in float32.
    untraceable : {'warn', 'numpy', 'split', 'refuse'}
        What becomes of programs that decide on array values as no trace can: `warn` (they run in NumPy, as they are
        written; a warning and `why` say since which line), `numpy` (the same, and no warning), `split` (what is traced
        so far runs, the value is read, and tracing goes on; `explain` lists the lines), or `refuse`.
    mesh : Mesh, optional
        Run one body on every device of a `kg.Mesh`, see `kg.shard`.
    in_axes : int, default 0
        Run one body on every device of a `kg.Mesh`, see `kg.shard`.
    out_axes : int, default 0
        Run one body on every device of a `kg.Mesh`, see `kg.shard`.

    Returns
    -------
    KernelGraph
        A `kg.KernelGraph`; without a function, a decorator that makes one.

    Raises
    ------
    OptionError
        Or ArgumentsError for options that make no sense.

    Examples
    --------
    >>> @kg.kernel_graph
    ... def length(x):
    ...     return np.sqrt((x * x).sum())
    >>> float(length(np.array([3.0, 4.0])))
    5.0
    """
    try:
        return _decorator_or_decorated(function, options)
    except UserError as error:
        raise error_at_user_line(error)  # noqa: B904  # the same one


def _decorator_or_decorated(function: Callable[..., Any] | None, options: Any) -> Any:
    if options.get("mesh") is not None:
        made = import_module(ON_MESH, __package__).MeshFunction
        return made(function, **options) if function is not None else lambda f: made(f, **options)
    if "mesh" not in options and not options.keys().isdisjoint(("in_axes", "out_axes")):
        raise OptionError("in_axes= and out_axes= are for functions with mesh=")
    if function is None:
        checked_kernel_graph_options(**options)  # at the line that gives them
        return lambda f: KernelGraph(f, **options)
    return KernelGraph(function, **options)


setattr(kernel_graph, "__signature__", signature_with_options())  # noqa: B010  # mypy knows no such attribute
