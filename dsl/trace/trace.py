"""A trace in progress: the graph being built, the caller's numbers, and arrays that the function brought along."""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from ...compiler.core.types import ArrayType
from ...compiler.graph.builder import GraphBuilder
from ...compiler.graph.graph import Value
from ..core.context import context
from ..core.errors import Refusal, TraceError, UnsupportedError, raised_outside_package, refusal_at_user_line
from ..core.host_scalars import HostScalarCode
from ..core.spec import Host, native_byte_order
from .chosen_containers import ChosenContainers


class TraceEnvironmentProtocol(Protocol):
    """What lies outside of the function, as it sees it: see `environment`. guards: what was read of that."""

    guards: dict[Any, Any]
    may_open: bool

    def require_opened(self, value: Any, name: str, /) -> None: ...

    def open_arguments(self) -> BaseException: ...

    def read_guarded(self, holder: Any, key: str, label: str, how: str = "item") -> Any: ...

    def proxy_of(self, value: Any, label: str = "") -> Any: ...

    def original_value(self, value: Any, /) -> Any: ...
    def may_be_one(self, a: Any, b: Any, /) -> bool: ...

    def is_given(self, value: Any, /) -> bool: ...

    @property
    def leaves_by_contents(self) -> dict[int, int]: ...

    def users_object(self, value: Any, /) -> Any: ...

    def users_object_told_apart(self, value: Any, /) -> Any: ...

    def is_known_as_it_is(self, value: Any, /) -> bool: ...

    def is_from_outside(self, value: Any, /) -> bool: ...

    def line_of_assignment(self, name: str) -> str: ...

    def check_unwritten(self) -> None: ...


class TraceReaderProtocol(Protocol):
    """What answers where array values decide: see `graph_break`. known: nodes that earlier parts have, and where."""

    known: dict[int, int]

    def read(self, trace: Trace, value: Value) -> Host: ...

    def call(self, trace: Trace, values: Sequence[Value], function: Callable[[Sequence[Any]], Any]) -> Any: ...


NO_FAILURE = np.int64(0)
HOOKS = "__kernelgraph__"  # what functions whose control flow is rewritten call the hooks


class TraceRestart(BaseException):
    """The trace is to be run again, or left. It is noted there, since a `finally` may put another error in its place.

    Not an Exception, so that a user's `except Exception` does not swallow it."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        if context.trace is not None and context.trace.restart is None:
            context.trace.restart = self


class NeedValue(TraceRestart):
    """The trace needs to know these numbers of the call; it is run again with them known."""

    def __init__(self, leaves: Iterable[int]) -> None:
        super().__init__()
        self.leaves = frozenset(leaves)


class LoopNotRecordable(TraceRestart):
    """A loop cannot be recorded: the trace is run again with that one turn by turn.

    site: the code of its body, where that is known. period: so many turns together may repeat; apart: the turns from
    this one on may. way: how it had better be captured, if it can."""

    def __init__(self, reason: str, site: Any = None, period: int = 0, apart: int = 0, way: str = "") -> None:
        super().__init__(reason)
        self.reason, self.site, self.period, self.apart, self.way = reason, site, period, apart, way


class TraceAgain(TraceRestart):
    """A loop cannot go back to where it began: the trace is run again, with what is known of it by then."""


ROUTINE, REPEATED = "routine", "repeated"  # the ways to capture a loop: one kernel, or a body for all turns
MOST_AGAIN = 4  # times that a trace is run again for the sake of loops, before none is captured


class KnownLoops:
    """What is known of the loops of one specialisation, by the code of each one's body, from one trace to the next.

    refused: why they cannot be captured in a way. at_once: the ways in which they are, before any turn."""

    def __init__(self) -> None:
        self.refused: dict[tuple[Any, str], str] = {}
        self.at_once: dict[Any, str] = {}
        self.again = 0

    def may_capture(self, site: Any, way: str) -> bool:
        return self.again <= MOST_AGAIN and (site, way) not in self.refused

    def refuse(self, site: Any, way: str, reason: str) -> None:
        self.refused.setdefault((site, way), reason)

    @property
    def reasons(self) -> dict[Any, str]:
        """Why loops are no routines."""
        return {site: reason for (site, way), reason in self.refused.items() if way == ROUTINE}


class TracedLoopSymbolBase:
    """What the body of a loop that is traced once computes with: see `values` in `recorded_loops`."""

    __slots__ = ()

    def refuse(self, *args: Any, **options: Any) -> Any:
        """Nobody may have it outside of its loop."""
        raise LoopNotRecordable("a value of a turn is used outside of its loop")

    def traced(self, beside: Any = None) -> Any:
        """What stands for it as an operand. beside: what it is computed with."""
        return self.refuse()

    def check_is_not(self, other: Any) -> None:
        """To be called where it is asked for by identity: no number is None."""
        if other is not None:
            self.refuse()


_ASKED = """
    getattr delattr setitem delitem iter reversed len bool hash str repr format int float complex round trunc floor ceil
    array array_ufunc array_function reduce reduce_ex
"""


def refuse_special_methods(kind: Any) -> None:
    """Gives a class its `refuse` for all that Python and NumPy may ask of a value, and for operators."""
    operators = {name.strip("_") for name in dir(operator) if name.strip("_") in operator.__all__} | {
        "and",
        "or",
        "divmod",
    }
    operators -= {name for name in operators if name[0] == "i" and name[1:] in operators}  # which are these of new ones
    for name in (*_ASKED.split(), *operators, *(f"r{name}" for name in operators)):
        setattr(kind, f"__{name}__", kind.refuse)


class Trace:
    """What one run of the user's function leaves behind."""

    def __init__(self, name: str, target_name: Callable[[], str] = lambda: "cpu") -> None:
        self.builder = GraphBuilder(name, error=refusal_at_user_line)
        self.target_name = target_name  # of what will run it, asked where that decides
        self.host: HostScalarCode | None = None  # arithmetic on the call's numbers, if there is any
        self.alive = True
        self.depth = 0  # how many bodies of loops and branches are being traced, one in another
        self.deriving = 0  # how many functions that are differentiated are being traced, one in another
        self.mapping = 0  # how many of them are batched over rows
        self.needed: set[int] = set()  # the leaves of all NeedValue
        self.numbers: set[int] = set()  # the leaves that a `TracedNumber` stands for
        self.world: TraceEnvironmentProtocol  # put there by who makes the trace
        self.captured: list[Host] = []
        self.captured_at: dict[int, int] = {}  # the node -> which of the captured
        self.constants: set[int] = set()  # those of the captured that nobody else has
        self.looked_at: dict[int, Host] = {}  # those of the captured whose values decided something
        self.number_inputs: dict[int, int] = {}  # the node of a 0-d array of the call -> leaf
        self.number_sources: dict[int, tuple[frozenset[int], Any]] = {}  # the node of a number -> leaves, value
        self.values: dict[int, Host] = {}  # the nodes whose values are known
        self.differing: dict[int, Any] = {}  # the node of a number -> whether that is not what it is held as
        self.magnitudes: dict[int, int] = {}  # the node of an int -> what its magnitude does not exceed
        self.scalars: list[tuple[str, type]] = []  # host names of the graph's numbers, and their types
        self.checks: list[str] = []  # what must hold of a call's numbers for the trace to serve it
        self.assigned: dict[int, Any] = {}  # the arguments that were assigned to: leaf -> Tracer
        self.kept_whole: set[int] = set()  # those of the arguments whose new versions are wanted as a whole
        self.holders: list[Any] = []  # the lists, dicts and objects among opened arguments
        self.leaves = 0  # how many the call has
        self.strides: dict[int, tuple[int, ...]] = {}  # of those arguments whose layout is part of the key
        self.arguments_at: dict[int, int] = {}  # the node of an argument -> leaf
        # values to look at when they are there, and what is to be done with them
        self.watched: list[tuple[tuple[Value, ...], Callable[[Sequence[Any]], None]]] = []
        self.printed_line = ""  # the line of what is printed or logged at each call, if any is
        self.refusals: list[Refusal] = []
        self.split: TraceReaderProtocol | None = None
        self.rewriting = False  # whether functions run with their control flow rewritten
        self.loops_that_values_end = 0
        self.walked_values = 0  # how many values decisions have walked to see which may change
        self.journal: Any = None  # what notes which arrays are written to, while a side of a decision is traced
        self.path: list[Value] = []  # the flags of the sides that are being traced
        self.loops = 0  # how many loops that traced values end are being traced, one in another
        self.handlers = 0  # how many `try` of the function's are around
        self.shared: dict[tuple[int, int], tuple[weakref.ref[Any], weakref.ref[Any]]] = {}  # which may be which
        self.reruns = False  # whether a call that fails runs again in NumPy
        self.native = True  # whether all arrays that it reads are in native byte order
        self.errors: list[Exception] = []  # what a call raises where values decide so
        self.failure: dict[str, Any] = {"first": NO_FAILURE}  # which of them it meets first: see `failures`
        self.index_checks: list[Any] = []  # of the indices that kernels check
        # what may raise there: results, where the call comes to them, and whether an error is awaited
        self.host_calls: list[tuple[tuple[Value, ...], bool]] = []
        self.may_raise: set[int] = set()  # the nodes of host calls that may, and need not be reached
        self.loop_failures: list[tuple[Value, Exception]] = []  # error words that the number does not tell of yet
        self.restart: BaseException | None = None  # for which reason the trace is to be run again, or to be left
        self.choices: list[weakref.ref[Any]] = []  # the arrays that stand for one of several, as values decide
        self.unwritten: dict[str, str] = {}  # functions that run as they are, and why
        self.chosen = ChosenContainers()
        self.half_bound: set[str] = set()  # names that one side of a decision has bound
        self.recorder: Any = None  # what writes down the loop that is traced once, while its body runs
        self.turn: Any = None  # the loop whose body is traced once, as a graph, while its body runs
        self.capture_of: Callable[[Trace], Any] | None = None  # makes `capture`
        self._capture: Any = None
        self.has_repeated_bodies = False  # whether it has loops that were captured so
        self._living: list[weakref.ref[Any]] = []  # the arrays of a trace that may be split
        self._needs: dict[int, bool] = {}
        self._captured_values: dict[int, Value] = {}
        self._scalar_values: dict[str, Value] = {}

    @property
    def capture(self) -> Any:
        """What captures loops, if anything does."""
        if self._capture is None and self.capture_of is not None:
            self._capture = self.capture_of(self)
        return self._capture

    @property
    def has_failure(self) -> bool:
        """Whether something may have failed so far."""
        return self.failure["first"] is not NO_FAILURE

    @property
    def may_rewrite(self) -> bool:
        """Whether the function may be traced again with its control flow rewritten."""
        return not self.rewriting and self.split is None

    def require_native_byte_order(self) -> None:
        """To be called for what depends on byte order. Raises UnsupportedError where some array has another one."""
        if not self.native:
            raise UnsupportedError(
                "this depends on byte order, and an array is not in native byte order; pass or keep "
                "x.astype(x.dtype.newbyteorder('='))"
            )

    def capture_array(self, array: Host) -> Value:
        """An array that is no argument: it is read, as it then is, at every call."""
        value = self._captured_values.get(id(array))
        if value is None and self.recorder is not None:
            with self.recorder.outside():
                recorder, self.recorder = self.recorder, None
                try:
                    value = self.capture_array(array)
                finally:
                    self.recorder = recorder
        if value is None:
            value = self._captured_values[id(array)] = self.builder.input(
                ArrayType(array.shape, native_byte_order(array.dtype))
            )
            self.captured_at[value.number] = len(self.captured)
            self.captured.append(array)
            self.native &= array.dtype.isnative
        return value

    def capture_constant(self, array: Host) -> Value:
        """`capture_array` of an array that nobody else has."""
        value = self.capture_array(array)
        self.constants.add(self.captured_at[value.number])
        return value

    def note_possible_aliases(self, pairs: Sequence[tuple[Any, Any]]) -> None:
        """Each first array may be the second one, as a traced value decides. It thus may be whatever that one may
        be."""
        reached = [(x, other) for x, root in pairs for other in (root, *self.possible_aliases(root)) if other is not x]
        self.shared |= {(id(x), id(other)): (weakref.ref(x), weakref.ref(other)) for x, other in reached}

    def possible_aliases(self, root: Any) -> list[Any]:
        """The arrays that may be this one."""
        roots = [root] if root._step is None or root._parent is not None else [root, *root._step.roots()]
        found = [*self.noted_aliases(root), *roots, *(choice for x in roots for choice in self.choices_of(x))]
        return [*{id(x): x for x in found if x is not root}.values()]

    def noted_aliases(self, root: Any) -> list[Any]:
        """Those of which no flag says when they are."""
        pairs = [(x(), other()) for x, other in self.shared.values()]
        found = [other if x is root else x for x, other in pairs if x is root or other is root]
        return [*{id(x): x for x in found if x is not None}.values()]

    def choices_of(self, root: Any) -> list[Any]:
        """The arrays that are this one or another, as a value has decided."""
        living = [(ref, x) for ref in self.choices if (x := ref()) is not None]
        self.choices = [ref for ref, _ in living]
        return [x for _, x in living if any(root is other for other in x._step.roots())]

    def note_array_write(self, root: Any) -> None:
        """To be called before the array `root` is written to. Raises TraceError where another may share its memory."""
        if self.noted_aliases(root):
            raise TraceError(
                "the array may share its memory with another one, since a traced value has decided which array a "
                "name is given to; write x.copy() there"
            )
        if self.journal is not None:
            self.journal.note_array_write(root)

    def read_captured_values(self, captured: int) -> Host:
        """The values of a captured array, on which the trace then depends."""
        if captured in self.constants:
            return self.captured[captured]
        array = self.captured[captured]
        found = self.looked_at[captured] = array.astype(native_byte_order(array.dtype))
        return found

    @property
    def host_code(self) -> HostScalarCode:
        """Where arithmetic on the call's numbers is written down."""
        if self.host is None:
            self.host = HostScalarCode()
        return self.host

    def host_scalar_node(self, name: str, number: Any, sources: frozenset[int]) -> Value:
        """The number that the host calls `name`, as a node. sources: the leaves that decide it."""
        value = self._scalar_values.get(name)
        if value is None:
            kind = type(number)
            value = self._scalar_values[name] = self.builder.scalar(kind)
            self.number_sources[value.number] = (sources, number)
            self.scalars.append((name, kind))
        return value

    def host_scalar_name(self, node: int) -> str | None:
        """What the host calls the call's number or NumPy scalar behind a node; None for other nodes."""
        if node in self.number_inputs:
            return f"{self.host_code.argument(self.number_inputs[node])}.item()"
        return next((name for name, value in self._scalar_values.items() if value.number == node), None)

    def register_array_owner(self, array: Any) -> None:
        """To be called for each new Tracer that owns its memory."""
        if self.split is not None:
            self._living.append(weakref.ref(array))

    def living_nodes(self) -> Iterator[int]:
        """The nodes that arrays of the traced function stand for now."""
        self._living = [ref for ref in self._living if ref() is not None]
        for ref in self._living:
            array = ref()
            if array is not None:
                yield array._held.number

    def depends_on_arrays(self, number: int) -> bool:
        """Whether a node is made of outside arrays, not of numbers and constants alone."""
        todo = [number]
        while todo:
            at = todo[-1]
            node = self.builder.nodes[at]
            open_ = [a for a in node.args if a not in self._needs]
            if open_:
                todo.extend(open_)
            else:
                self._needs[at] = node.op == "input" or any(self._needs[a] for a in node.args)
                todo.pop()
        return self._needs[number]

    def check_refusals(self) -> None:
        """Raises the first refusal that the function has caught: what it did then is not what it does in NumPy."""
        for error in self.caught_refusals():
            raise error

    def caught_refusals(self, first: int = 0) -> list[Refusal]:
        """The refusals that came to code of the user's or of a library's."""
        return [error for error in self.refusals[first:] if raised_outside_package(error.__traceback__)]

    def need_values(self, leaves: Iterable[int]) -> NeedValue:
        """To be raised where a number's value decides how the trace goes on."""
        self.needed.update(leaves)
        return NeedValue(leaves)


def current_trace() -> Trace | None:
    """This thread's trace in progress, if any."""
    found: Trace | None = context.trace
    return found


def loop_recorder_of_trace() -> Any:
    """What writes down the loop whose body runs in this thread, if one does."""
    found: Trace | None = context.trace
    return None if found is None else found.recorder


class UndecidedValue(TraceRestart):
    """A value decides that no call knows yet: the trace is run again with the function's control flow rewritten."""


@contextmanager
def trace_in_progress(trace: Trace | None) -> Iterator[None]:
    """Makes `trace` the current one; None suspends tracing."""
    before = context.trace
    try:  # a signal's handler may raise in any call: nothing is set outside
        context.trace = trace
        context.put(context.stream, context.device)
        yield
    finally:
        context.trace = before
        if trace is not None:
            trace.alive = False
        context.put(context.stream, context.device)
