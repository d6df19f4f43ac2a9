"""The user's function and the kinds of its arguments in, a Graph and what a call needs beside it out."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NoReturn

import numpy as np

from ...compiler.core.types import dtype_kind
from ...compiler.graph.graph import Graph, GraphError
from ...compiler.graph.precision import own_precision
from ...compiler.joining.iterations import join_loop_iterations
from ...compiler.passes.unused_results import drop_unused_loop_results
from ...runtime.core.errors import add_note_to_error_once
from ...runtime.core.frozen import frozen
from ...runtime.core.gc_pause import paused_garbage_collection
from ...runtime.core.readable_text import with_article
from ...runtime.core.settings import settings
from ..core.errors import (
    KNOWS_NO_TRACED_VALUES,
    ArgumentsError,
    EscapedValueError,
    OptionError,
    Refusal,
    TraceError,
    UnsupportedError,
    UserError,
    codes_of_traceback,
    has_loop_or_handler,
    is_raised_by_compiled_code,
    line_of_traceback,
    locate_graph_error,
    package_that_raised_error,
    user_frames,
    user_line_reader,
)
from ..core.pytree import LEAF, Tree, flatten, rebuild_container, renamed_pytree, unflatten
from ..core.spec import MOST_SCALARS, SCALAR_TYPES
from ..environment.argument_properties import NeedCachedProperty
from ..environment.environment import Environment, frozen_container_maker, may_have_loops_or_handlers
from ..environment.guards import GuardSet, contents_guard, keep_watched_object_alive
from ..environment.returned_objects import check_classes_of_returned_containers, returned_key
from ..environment.value_kinds import environment_of
from ..state.argument_writes import split_assigned_outputs
from ..state.changes import Place, StateChanges
from ..state.opened_arguments import OpenedArguments
from ..state.opening import OpenedTree
from ..state.results import ResultAndStateLocations
from ..trace.failures import Failures, check_error_is_of_python, outputs_of_failures
from ..trace.memory_layout import ArgumentTracerLayout
from ..trace.subgraph import Subgraph, extract_subgraph_of_trace
from ..trace.trace import (
    REPEATED,
    ROUTINE,
    KnownLoops,
    LoopNotRecordable,
    NeedValue,
    Trace,
    TraceAgain,
    TraceRestart,
    UndecidedValue,
    trace_in_progress,
)
from ..trace.tracer import SCALAR, TracedNumber, Tracer
from .graph_break import GraphBreak, GraphBreakValueReader, Segment, outputs_to_read_at_break
from .traced_function import TracedArgument, TracedFunction, Watched, no_host_numbers_of_call

LONG = 128  # nodes from which it is looked at whether they are turns of a loop,
TURNS = 8  # as they may be if they are so many times as many as lines of the source
TOO_LONG_TO_REPEAT = 4096  # nodes of a trace that ends in an error: a tenth of a second and more


class UnfinishedFunction(BaseException):
    """The function raises an error, its own or NumPy's, after it has assigned to arguments: `captured` does as much."""

    def __init__(self, error: Exception, captured: TracedFunction) -> None:
        super().__init__()
        self.error, self.captured = error, captured


def trace_function(
    function: Callable[..., Any],
    name: str,
    tree: Tree,
    arguments: Sequence[TracedArgument],
    reader: GraphBreakValueReader | None = None,
    target_name: Callable[[], str] = lambda: "cpu",
    reruns: bool = False,
    loops: KnownLoops | None = None,
    native: bool = True,
) -> TracedFunction | frozenset[int]:
    """Run `function` on stand-ins. Returns the leaves whose values (of arrays: layouts) it needs, where it needs any.

    reader: answers where array values decide; without one they do in rewritten functions.
    target_name: of the target that the graph is for, asked where it decides.
    reruns: whether a call that meets an error runs again in NumPy. loops: what earlier traces have found of them.
    native: whether all arrays are in native byte order.
    Raises UserError at the user's line, NeedCachedProperty, UnfinishedFunction; what the function raises goes through.
    """
    from ..functions import tables  # noqa: F401  # fills the tables of what can be traced

    request = TraceRequest(function, name, tree, arguments, reader, target_name, reruns, loops or KnownLoops(), native)
    found: Outcome = TraceAttempt(request, may_have_loops_or_handlers(function))
    while isinstance(found, TraceAttempt):  # outside of what has ended the one before: that is no error's context
        found = found.run()
    return found


@frozen
class TraceRequest:
    """What is to be traced: see `trace_function`."""

    function: Callable[..., Any]
    name: str
    tree: Tree
    arguments: Sequence[TracedArgument]
    reader: GraphBreakValueReader | None
    target_name: Callable[[], str]
    reruns: bool
    loops: KnownLoops
    native: bool


class TraceAttempt:
    """One run of the user's function on stand-ins. It gives the trace, the values that it needs, or the next attempt.

    rewriting: functions run with their control flow rewritten."""

    def __init__(self, request: TraceRequest, rewriting: bool) -> None:
        self.request = request
        trace = self.trace = Trace(request.name, request.target_name)
        trace.split, trace.leaves, trace.reruns = request.reader, len(request.arguments), request.reruns
        trace.native = request.native
        self.world = environment_of(trace)
        trace.world = self.world
        trace.rewriting = rewriting and trace.may_rewrite
        self.opened: OpenedArguments | None = None

    def run(self) -> Outcome:
        """Trace. Raises as `trace_function` does."""
        trace, world = self.trace, self.world
        _watch_loops_of_call(trace, self.request.loops)
        try:
            with self._surroundings():
                result = self._result_of_function(*self._arguments_of_function())
                return _finish_trace(trace, result, self.opened)
        except TraceRestart as reason:
            outcome = next((found for kind, found in _OUTCOMES.items() if isinstance(reason, kind)), None)
            if outcome is None:
                raise
            return outcome(self, reason)
        except Refusal as error:
            if trace.may_rewrite and any(has_loop_or_handler(code) for code in codes_of_traceback(error.__traceback__)):
                return TraceAttempt(self.request, True)
            self._raise_refusal(next((e for e in trace.caught_refusals() if e.needs_values), error))
        except Exception as error:
            found = self._error_of_function(error)
            again = len(trace.builder.nodes) > TOO_LONG_TO_REPEAT or isinstance(
                error, RecursionError
            )  # NumPy calls less
            if again and self.request.reruns and not isinstance(found, UserError):
                self._raise_refusal(_error_after_long_trace(trace, error))
            if found is error:
                raise
            raise found from None
        finally:
            world.close()
            trace.refusals.clear()  # whose tracebacks hold the trace: arguments would live on until they are collected
            trace.restart = None

    @contextmanager
    def _surroundings(self) -> Iterator[None]:
        """What the function is traced in. A `kg.precision` around a call chooses among functions, as an option does."""
        restored = self.world.restore_outside_if_trace_fails()
        with trace_in_progress(self.trace), own_precision(), paused_garbage_collection(), restored:
            yield

    def _arguments_of_function(self) -> tuple[Any, Any]:
        """The function's arguments, made of stand-ins."""
        trace, world, tree, arguments = self.trace, self.world, self.request.tree, self.request.arguments
        leaves = [_tracer_for_argument(trace, i, a) for i, a in enumerate(arguments)]
        for i, a in enumerate(arguments):  # after the graph has its inputs: these may hold arrays
            if a.static:
                leaves[i] = world.guard_argument(a.value)
                if a.own:
                    world.leaves_by_contents[id(a.value)] = i
        if isinstance(tree, OpenedTree):
            opened = self.opened = OpenedArguments(world, tree, leaves)
            trace.holders = opened.holders
            world.defaults_of = getattr(self.request.function, "__func__", self.request.function)
            trace.leaves += len(opened.holders) + 1
            return opened.args, opened.options
        flat = _are_all_arguments_leaves(tree)
        args, options = unflatten(tree, leaves, rebuild_container if flat else frozen_container_maker(world))
        world.may_open = not flat or any(a.static for a in arguments)
        return args, options

    def _result_of_function(self, args: Any, options: Any) -> Any:
        """What the function returns, once it is sure that it has seen nothing but what the trace knows of."""
        trace, world, function = self.trace, self.world, self.request.function
        trace.builder.where = user_line_reader()
        try:
            result = world.traced_root_function(function)(*args, **options)
        except Exception as error:
            if trace.restart is not None:  # which NumPy or a `finally` has made an error of its own
                raise trace.restart from None
            trace.chosen.check_unchanged()
            _refuse_own_error_in_tracing(trace, world, error)
            raise
        if trace.restart is not None:
            raise trace.restart  # which was swallowed
        trace.check_refusals()
        trace.chosen.check_unchanged()
        world.check()
        trace.builder.limit = 1 << 62
        return result

    def segment(self, part: Segment) -> TracedFunction:
        """What is traced up to a split."""
        self.trace.check_refusals()
        return traced_function_of_segment(self.trace, part)

    def raise_guarded(self, reason: Refusal | NeedCachedProperty) -> NoReturn:
        """Raises what the next calls raise too, as long as what was read from outside so far is the same."""
        guards = [*self.world.guards.values()]
        kept = isinstance(reason, NeedCachedProperty) or not keep_watched_object_alive(guards)
        reason.guards = GuardSet(guards if kept else ())
        raise reason.with_traceback(user_frames(reason.__traceback__)) from None

    def _raise_refusal(self, error: Refusal) -> NoReturn:
        """Raises it with what is known of the loops around. error: the first, after which code may raise others."""
        if reasons := [*dict.fromkeys(self.request.loops.reasons.values())]:
            add_note_to_error_once(error, f"no loop around it is compiled as it stands: {'; '.join(reasons[:3])}")
        self.raise_guarded(error)

    def begin_again(self, error: LoopNotRecordable | TraceAgain) -> TraceAttempt:
        """The next attempt. Notes what loops are not captured in the next attempt."""
        capture, loops = self.trace.capture, self.request.loops
        loops.again += 1
        if isinstance(error, LoopNotRecordable):
            if not capture.captured and error.site is None:
                raise AssertionError(f"a loop was not recorded, and not followed: {error.reason}") from error
            for site in capture.captured if error.site is None else [error.site]:
                loops.refuse(site, ROUTINE, error.reason)
                loops.refuse(site, REPEATED, error.reason)
        return TraceAttempt(self.request, True)

    def _error_of_function(self, error: Exception) -> BaseException:
        """The function's own error or NumPy's, at the user's line; UnfinishedFunction where arguments were assigned to
        before. Raises UnsupportedError where a call may raise another error before this one."""
        trace, found = self.trace, locate_graph_error(error) if isinstance(error, GraphError) else error
        if isinstance(found, UserError):
            found = found.with_traceback(user_frames(error.__traceback__))
        _check_order_of_traced_errors(trace, error)
        if (package := package_that_raised_error(error.__traceback__)) is not None:
            text = f"{package} may know no traced values; it gets their values in kg.host(f, reads, writes)"
            add_note_to_error_once(error, text)
        changed = trace.assigned or trace.watched or (self.opened is not None and any(self.opened.differences()))
        refuses = isinstance(found, _OURS_ALONE) and not trace.watched
        if refuses or not changed or trace.path or trace.depth or trace.loops:
            return found
        with trace_in_progress(trace):
            return UnfinishedFunction(found, _finish_trace(trace, None, self.opened))


Outcome = TracedFunction | frozenset[int] | TraceAttempt


# why an attempt ends without a trace -> what comes of it; other reasons are the caller's
_OUTCOMES: dict[type[TraceRestart], Callable[[TraceAttempt, Any], Outcome]] = {
    NeedValue: lambda attempt, _: frozenset(attempt.trace.needed),
    UndecidedValue: lambda attempt, _: TraceAttempt(attempt.request, True),
    LoopNotRecordable: lambda attempt, error: attempt.begin_again(error),
    TraceAgain: lambda attempt, error: attempt.begin_again(error),
    GraphBreak: lambda attempt, suspended: attempt.segment(suspended.part),
    NeedCachedProperty: lambda attempt, need: attempt.raise_guarded(need),
}


_OF_STAND_INS = re.compile(
    r"'(Tracer|TracedNumber|\w*Proxy)' object|read-only|^setting an array element with a sequence|^__class__ assignment"
    r"|^object supporting the buffer API required"
)


def _error_after_long_trace(trace: Trace, error: Exception) -> TraceError:
    """Why calls run in NumPy that end in an error, and whose trace each of them would wait for."""
    kind, count = with_article(type(error).__name__), len(trace.builder.nodes)
    line = line_of_traceback(error.__traceback__)
    return TraceError(f"{kind} ends a trace of {count} operations", line)


def _refuse_own_error_in_tracing(trace: Trace, world: Environment, error: Exception) -> None:
    """Raises TraceError for a Python error about stand-ins for the user's objects and names alone."""
    line = line_of_traceback(error.__traceback__)
    if isinstance(error, UserError):  # which says it already
        return
    if is_raised_by_compiled_code(error):
        kind = with_article(type(error).__name__)
        text = f"compiled code knows no traced values, and raises {kind}: {error}; it gets values in kg.host"
        raise TraceError(text, line) from None
    if isinstance(error, TypeError) and "Tracer" in str(error):  # another library's, which NumPy's array may suit
        text = str(error).replace("Tracer", "a traced array")
        raise TraceError(f"{KNOWS_NO_TRACED_VALUES.format('what is called')}: {text}", line) from None
    missed = isinstance(error, AttributeError) and world.users_object(error.obj) is not None
    if missed or _OF_STAND_INS.search(str(error)):
        raise TraceError(f"what stands for an array, an object or its class raises {error!r}", line) from None
    check_error_is_of_python(trace, error)


_OURS_ALONE = (ArgumentsError, OptionError)  # of calls of this package, which NumPy has not


def _are_all_arguments_leaves(tree: Tree) -> bool:
    """Whether all arguments are leaves."""
    return all(child == LEAF for part in tree.children for child in part.children)


def _check_order_of_traced_errors(trace: Trace, error: Exception) -> None:
    """Raises UnsupportedError where a call may raise another error before this one."""
    before = [*trace.errors, *(e for _, e in trace.loop_failures)]
    if before or trace.index_checks or trace.host_calls:
        other = with_article(type(before[-1]).__name__) if before else "an error of NumPy's"
        raise UnsupportedError(
            f"{with_article(type(error).__name__)} is raised, or {other} before it, as a traced value decides; return "
            "for one of the two",
            line_of_traceback(error.__traceback__),
        ) from error


def _watch_loops_of_call(trace: Trace, known: KnownLoops) -> None:
    """Sees to it that loops are captured, and that a trace that gets long is looked at."""

    def capture_of(trace: Trace) -> Any:
        from ..recorded_loops.capture import LoopCapture

        return LoopCapture(trace, known)

    def rewrite_if_of_loops() -> None:
        trace.builder.limit *= 2
        if len(trace.builder.nodes) >= TURNS * len({*trace.builder.lines}):
            raise UndecidedValue

    if trace.rewriting:
        trace.capture_of = capture_of
    if settings.roll and (trace.rewriting or trace.may_rewrite):
        trace.builder.limit = LONG
        trace.builder.at_limit = (lambda: trace.capture.note_length()) if trace.rewriting else rewrite_if_of_loops


def traced_function_of_segment(trace: Trace, part: Segment) -> TracedFunction:
    """What runs up to a split: its results are the value that is read, and what lives on."""
    assert part.cut is not None
    count = len(part.cut.graph.outputs) - sum(len(which) for which, _ in part.watched)
    tree = Tree(tuple, (), (LEAF,) * count)
    results = [("array", i) for i in range(count)]
    return _traced_function_of_call(trace, part.cut, tree, results, [], {}, part.line, part.watched)


def _tracer_for_argument(trace: Trace, leaf: int, argument: TracedArgument) -> Any:
    if argument.static:
        return argument.value
    if argument.spec is not None:
        value = trace.builder.input(argument.spec.type)
        if argument.whole:
            trace.kept_whole.add(leaf)
        trace.arguments_at[value.number] = leaf
        if argument.strides == ():
            trace.values[value.number] = argument.value
        elif argument.value is not None and argument.spec.shape == ():
            trace.number_inputs[value.number] = leaf
        if isinstance(argument.value, np.generic) or argument.spec.scalar:
            return Tracer(trace, value, SCALAR)
        if argument.strides:
            trace.strides[leaf] = argument.strides
        return Tracer(trace, value, leaf, layout=ArgumentTracerLayout(trace, leaf))
    trace.numbers.add(leaf)
    return TracedNumber(trace, trace.host_code.argument(leaf), argument.value, frozenset([leaf]))


def _finish_trace(trace: Trace, result: Any, opened: OpenedArguments | None = None) -> TracedFunction:
    locations = ResultAndStateLocations(trace)
    state = None if opened is None else locations.state(opened)
    stops = {} if opened is None else locations.stops(opened)
    leaves: list[Any] = []

    def stop_at(value: Any) -> Place | None:
        trace.chosen.check_kept(value, trace.world)
        found = stops.get(id(value))
        return found or stops.get(id(trace.world.users_object(value)))

    def is_returned_itself(value: Any) -> bool:
        return bool(stop_at(value)) or trace.world.is_from_outside(value)

    tree = _tree_of_result(trace, result, leaves, is_returned_itself)
    items = _places_of_many_scalars(locations, leaves)
    results = [stop_at(leaf) or items.get(id(leaf)) or locations.place(leaf) for leaf in leaves]
    locations.fail_where_results_are_one()
    outputs = locations.outputs
    assigned = {leaf: len(outputs) + i for i, leaf in enumerate(sorted(trace.assigned))}
    outputs += [trace.assigned[leaf]._value for leaf in assigned]
    effects = assigned or trace.watched or (state is not None and state.changes)
    failures = outputs_of_failures(trace, outputs, bool(effects))
    if failures and trace.printed_line and not trace.reruns:
        raise TraceError(
            "what is printed before an error that values decide is not printed by a compiled call", trace.printed_line
        )
    watched = outputs_to_read_at_break(trace, outputs) if trace.watched else ()
    if trace.split is not None:
        whole = extract_subgraph_of_trace(trace, outputs, trace.split.known, [*trace.arguments_at])
    else:
        graph = trace.builder.finish(outputs)
        feeds = tuple(trace.arguments_at.values())
        whole = Subgraph(graph, feeds, tuple(trace.captured), tuple(trace.scalars))
    return _traced_function_of_call(
        trace, whole, tree, results, locations.numbers, assigned, "", watched, state, failures
    )


def _places_of_many_scalars(locations: ResultAndStateLocations, leaves: Sequence[Any]) -> dict[int, Place]:
    """Where a call finds many numbers, by identity, which stay NumPy's or Python's: in one array of each kind."""
    scalars = [x for x in leaves if type(x) in SCALAR_TYPES or (type(x) is Tracer and x._owner == SCALAR)]
    places: dict[int, Place] = {}
    kinds: dict[Any, list[Any]] = {}
    for x in scalars if len(scalars) > MOST_SCALARS else ():
        kinds.setdefault((x.dtype, type(x) is Tracer and x._held.weak is not None), []).append(x)
    for (_, is_pythons), parts in kinds.items():
        output = locations.output_of_elements(parts)
        places |= {id(x): ("item", (output, i, is_pythons)) for i, x in enumerate(parts)}
    return places


def _tree_of_result(trace: Trace, result: Any, leaves: list[Any], is_leaf: Callable[[Any], bool]) -> Tree:
    """The structure of what a function returns, of the user's own classes and names; its leaves are appended."""
    if is_leaf(result):
        leaves.append(result)
        return LEAF
    tree = flatten(result, leaves, results=True, stop=is_leaf, met={})
    if tree == LEAF:
        return tree
    check_classes_of_returned_containers(tree)
    return renamed_pytree(tree, partial(returned_key, trace))


def _traced_function_of_call(
    trace: Trace,
    whole: Subgraph,
    tree: Tree,
    results: Sequence[tuple[str, Any]],
    numbers: Sequence[str],
    assigned: Mapping[int, int],
    line: str = "",
    watched: Watched = (),
    state: StateChanges | None = None,
    failures: Failures = (),
) -> TracedFunction:
    _check_traced_function_loop_values(whole.graph)
    graph, why = whole.graph, tuple[str, ...]()
    if trace.has_repeated_bodies:
        graph, why = join_loop_iterations(drop_unused_loop_results(graph), trace.target_name)
    graph, writes, more = split_assigned_outputs(graph, assigned, whole.feeds, trace.leaves, trace.kept_whole)
    behind = max(assigned.values(), default=0)

    def moved(which: Sequence[int]) -> tuple[int, ...]:
        return tuple(i + more if i > behind else i for i in which)

    watched = tuple((moved(which), watcher) for which, watcher in watched)
    failures = tuple((moved(which), check) for which, check in failures)
    names = [name for name, _ in whole.scalars]
    checks = [*dict.fromkeys(trace.checks), *_type_and_size_checks_of_scalars(whole)]
    found = _places_behind_traced_graph_inputs(len(names), results)
    if state is not None:
        state = state.with_places(partial(_places_behind_traced_graph_inputs, len(names)))
    text = "" if trace.host is None else trace.host.text([*names, *numbers], checks)
    host = no_host_numbers_of_call if trace.host is None else trace.host.function(text)
    guards = [*trace.world.guards.values()]
    guards += [contents_guard(trace.captured[i], values) for i, values in trace.looked_at.items()]
    return TracedFunction(
        graph,
        whole.arrays,
        host,
        tuple(checks),
        tree,
        found,
        writes,
        GuardSet(guards),
        whole.feeds,
        text,
        line,
        watched,
        failures,
        trace.reruns,
        (*why, *_unrecorded_loops_of_call(trace)),
        state,
    )


def _unrecorded_loops_of_call(trace: Trace) -> tuple[str, ...]:
    """The loops that a long trace has turn by turn, and why."""
    found = {} if trace.capture is None or len(trace.builder.nodes) < LONG else trace.capture.known.reasons
    return tuple(
        f"{os.path.basename(code.co_filename)}:{code.co_firstlineno}: this loop is traced turn by turn, since {why}"
        for code, why in found.items()
        if code not in trace.capture.captured
    )


def _places_behind_traced_graph_inputs(count: int, places: Sequence[Place]) -> tuple[Place, ...]:
    """Where numbers are found that come behind those of the graph."""
    return tuple((kind, x + count if kind == "number" else x) for kind, x in places)


def _check_traced_function_loop_values(graph: Graph) -> None:
    """Raises where a value of a loop's body is used outside of the body."""
    for number, node in enumerate(graph.nodes):
        if node.op == "placeholder":
            line = graph.lines[graph.users[number][0]] if graph.users[number] else graph.lines[number]
            raise EscapedValueError(
                "a value inside the body of a loop or branch is used outside of it; return it from the body", line
            )


def _type_and_size_checks_of_scalars(whole: Subgraph) -> list[str]:
    """What a call's numbers must fulfil: the type that was traced, and a size that fits all their uses."""
    found = []
    graph = whole.graph
    for (name, kind), number in zip(whole.scalars, graph.numbers, strict=True):
        if not name.startswith("leaves["):
            found.append(f"type({name}) is {kind.__name__}")
        if kind is int:
            low, high = _limits_of_call_number(graph, number)
            found.append(f"{low} <= {name} <= {high}")
    return found


def _limits_of_call_number(graph: Graph, number: int) -> tuple[int, int]:
    """The Python ints that fit all uses of a number. Bodies of loops and branches count too."""
    low, high = _argument_integers_of_dtype(graph.nodes[number].dtype)
    for user in graph.users[number]:
        node = graph.nodes[user]
        found = [_argument_integers_of_dtype(node.dtype)] if node.op == "cast" else []
        if node.op in ("loop", "branch"):
            for body in node.attr("control").bodies:
                own = body.numbers[node.op == "loop" :]  # a loop's first is the turn's
                given = node.args[len(node.args) - len(own) :]
                found += [_limits_of_call_number(body, n) for n, arg in zip(own, given, strict=True) if arg == number]
        for bounds in found:
            low, high = max(low, bounds[0]), min(high, bounds[1])
    return low, high


def _argument_integers_of_dtype(dtype: np.dtype[Any]) -> tuple[int, int]:
    """The Python ints that convert to `dtype` as NumPy converts them by way of int64."""
    kind = dtype_kind(dtype)
    if kind in "iu":
        info = np.iinfo(dtype)
        return int(info.min), int(info.max)
    return (-(1 << 53), 1 << 53) if kind in "fc" else (-(1 << 63), (1 << 63) - 1)
