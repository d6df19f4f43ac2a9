"""Traces that get long though their source is short: when to begin again with loops recorded, and when to give up."""

from __future__ import annotations

import ast
import sys
from types import CodeType, TracebackType

from ...compiler.graph.graph import Graph
from ...compiler.ops.table import OPS
from ...compiler.reroll.reroll import MANY_ITERATIONS, is_mostly_repetition, reroll_graph
from ..control_flow.comprehensions import listed
from ..control_flow.loops import for_, while_
from ..control_flow.source import SourceUnavailable, syntax_tree_of_function
from ..core.errors import UnsupportedError
from ..trace.trace import RecordedLoops, Trace, TraceTooLong

SURE = 512  # nodes from which loops one in another are recorded; and others, if it is certain that these are turns:
MANY = 2048  # and a loop of so many over elements, or of turns that are no loop by then
TURNS = 8  # so many times as many as lines of the source,
RAGGED = 6  # of so many operations one has a new shape at least; or
SINGLE = 0.75  # this part of them has one element, in loops one in another; or
ROLLED = 3  # they are not that much fewer once turns that repeat are a loop again, or
LOOPS = 6  # more loops than that
LONGEST = 16_384  # nodes of a trace that is not taken if its turns do not repeat
ENDLESS = 65_536  # and if they do; half as many of loops in one another, of which each turn is a loop again
RECORDINGS = 256  # times that one loop is recorded, of another one that is not
HOOKS = (for_.__code__, while_.__code__, listed.__code__)


def check_loops_of_long_trace(trace: Trace) -> None:
    """To be called where a trace has become long. Raises TooMany where it may be shorter with its loops recorded, and
    UnsupportedError, at the loop's line, where it would compile for hours."""
    builder = trace.builder
    builder.limit *= 4
    if trace.turn is not None:
        trace.turn.check_length()
        return
    length = len(builder.nodes)
    if length < TURNS * len({*builder.lines}):
        return
    if length * min(count_user_loops_around(), 2) >= ENDLESS:
        raise UnsupportedError(_text_of_too_long_loop(trace), needs_values=True)
    builder.limit = min(builder.limit, ENDLESS // 2 if length < ENDLESS // 2 else ENDLESS)
    repeated = trace.loops_of is not None and trace.loops_of.repeated
    if trace.loops_of is not None and not (repeated and not trace.loops_of.whole):
        _check_trace_with_recorded_loops(trace, trace.loops_of)
        return
    if trace.depth > trace.deriving or trace.loops:
        return
    _check_trace_of_traced_loops(trace, repeated)


def _check_trace_of_traced_loops(trace: Trace, repeated: bool) -> None:
    """Raises TraceTooLong where loops that are traced turn by turn had better be recorded."""
    length, loops = len(trace.builder.nodes), count_user_loops_around()
    if loops and (_do_shapes_change_in_long_trace(trace) or _is_long_trace_of_elements(trace)):
        raise TraceTooLong(False)
    if length >= MANY and (
        _is_long_trace_of_elements(trace) or not _count_rerolled_loops_of_trace(trace, _graph_of_trace(trace))[0]
    ):
        raise TraceTooLong(True)
    if length >= SURE:
        rolls = _can_long_trace_be_rerolled(trace)
        if not rolls or loops > 1:
            raise TraceTooLong(rolls)
        enough = length >= (SURE if trace.target_name() == "cpu" else MANY)
        if enough and not repeated and not trace.deriving and not _is_long_trace_of_elements(trace):
            raise TraceTooLong(rolls, MANY_ITERATIONS, True)


def _check_trace_with_recorded_loops(trace: Trace, loops: RecordedLoops) -> None:
    if _can_long_trace_be_rerolled(trace):
        return
    if loops.short and not loops.recorded:  # those in one another have many turns together
        raise TraceTooLong(False, 1)
    if len(trace.builder.nodes) >= LONGEST:
        raise UnsupportedError(_text_of_too_long_loop(trace), needs_values=True)
    trace.builder.limit = LONGEST


def check_recordings_of_loop(trace: Trace, site: CodeType) -> None:
    """Raises UnsupportedError where each turn of a long loop records the same loop again."""
    if trace.loops_of is not None and trace.loops_of.recorded.count(site) >= RECORDINGS:
        raise UnsupportedError(_text_of_too_long_loop(trace), needs_values=True)


def _do_shapes_change_in_long_trace(trace: Trace) -> bool:
    """Whether many operations are none that there was before, whatever they are done to: their shapes change."""
    known: dict[tuple[str, tuple[int, ...]], int] = {}
    for number, node in enumerate(trace.builder.nodes):
        known.setdefault((node.op, node.type.shape), number)
    half = len(trace.builder.nodes) // 2
    return sum(number >= half for number in known.values()) * RAGGED >= half


def _is_long_trace_of_elements(trace: Trace) -> bool:
    """Whether most is done to single elements."""
    nodes = [node for node in trace.builder.nodes if OPS[node.op].kind in ("map", "view", "reduce")]
    return sum(node.type.size == 1 for node in nodes) >= SINGLE * len(nodes)


def _can_long_trace_be_rerolled(trace: Trace) -> bool:
    """Whether the traced turns are a few loops again, or may be with more."""
    graph = _graph_of_trace(trace)
    if len(graph.nodes) < MANY and is_mostly_repetition(graph):  # which takes a fraction of the time
        return True
    loops, rolled = _count_rerolled_loops_of_trace(trace, graph)
    return loops <= LOOPS and (rolled * ROLLED <= len(graph.nodes) or is_mostly_repetition(graph))


def _graph_of_trace(trace: Trace) -> Graph:
    """What was traced so far."""
    builder = trace.builder
    ends = {*range(len(builder.nodes))}.difference(*(n.args for n in builder.nodes))
    return builder.finish([builder.at(n) for n in sorted(ends)])


def _count_rerolled_loops_of_trace(trace: Trace, graph: Graph) -> tuple[int, int]:
    """How many loops a graph is again, or more than LOOPS, and how many nodes it has then."""
    rolled = reroll_graph(graph, trace.target_name, LOOPS + 1).graph.nodes
    return sum(node.op == "loop" and node.attr("part") == 0 for node in rolled), len(rolled)


def _text_of_too_long_loop(trace: Trace) -> str:
    found = [*dict.fromkeys(trace.loops_of.unrolled.values())] if trace.loops_of is not None else []
    why = f", since {'; '.join(found[:3])}" if found else ""
    return (
        f"a loop is traced turn by turn{why}, and has made {len(trace.builder.nodes)} operations; decorate a function "
        "of its body, called from a loop in Python, or write kg.fori_loop, kg.scan or whole-array operations"
    )


def count_user_loops_around() -> int:
    """How many `for` and `while` of the user's run now, one in another. All functions that have been called count."""
    count, frame = 0, sys._getframe(1)
    while frame is not None:
        if frame.f_code in HOOKS:  # of a function whose control flow is rewritten
            count += 1
        elif type(frame.f_globals) is not dict:  # a function that is traced: see `environment.Scope`
            count += _count_loops_around_line(frame.f_code, frame.f_lineno)
        frame = frame.f_back  # type: ignore[assignment]
    return count


def is_error_from_user_loop(trace: TracebackType | None) -> bool:
    """Whether an error comes from within a `for` or `while` of the user's."""
    while trace is not None:
        frame = trace.tb_frame
        if frame.f_code in HOOKS or (
            type(frame.f_globals) is not dict and _count_loops_around_line(frame.f_code, trace.tb_lineno)
        ):
            return True
        trace = trace.tb_next
    return False


def _count_loops_around_line(code: CodeType, line: int) -> int:
    """How many loops of a function are around a line of it; 0 where its source is not there."""
    try:
        node = syntax_tree_of_function(code).node
    except SourceUnavailable:
        return 0
    count = 0
    for n in ast.walk(node):
        if isinstance(n, (ast.For, ast.While)):
            count += n.body[0].lineno <= line <= (n.body[-1].end_lineno or 0)
        elif isinstance(n, (ast.ListComp, ast.GeneratorExp)):
            count += len(n.generators) * (n.lineno <= line <= (n.end_lineno or 0))
    return count
