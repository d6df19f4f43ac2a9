"""Loop rerolling: a Python loop that was traced iteration by iteration becomes a node. It does where it repeats
exactly.

What comes out computes the same with the same operations in the same order; it is planned and compiled as one period.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ...runtime.core.frozen import replace
from ...runtime.core.settings import settings
from ..graph.builder import GraphBuilder, nodes_to_copy
from ..graph.graph import Graph, Node, Value
from ..ops.table import OPS
from ..passes.unused_results import drop_unused_loop_results
from .induction import NotALoop, NumbersDiffer
from .joining import MIN_ITERATIONS, join_loop_iterations
from .periods import (
    RepeatingStretch,
    TokenSequence,
    has_parts_moving_by_period,
    least_traffic_start_of_period,
    repeating_stretches,
    tokens_of_repeated_nodes,
)
from .prediction import predict_rerolled_microseconds
from .rewrite import Rerolled, reroll_region_as_loop

LEAST_NODES = 64  # fewer of all iterations together stay as they are,
FEW_ITERATIONS = 3  # though so many iterations look as if there might be more;
MANY_ITERATIONS = 32  # fewer, or iterations that take longer in a loop, if they are no more than
WHOLE_NODES = 512  # these: so much is soon compiled; for a GPU,
WHOLE_GPU_NODES = 1024  # these: a turn there costs launches, and so much more than one on a CPU
LOSS = 1.25  # longer: so many times
TRIES = (-2, -1, 0, 1)  # periods from the first that repeats in full


def roll_loops(graph: Graph, target_name: Callable[[], str], has_loops: bool = False) -> Rerolled:
    """`reroll_graph`, with as many iterations in one iteration of each loop as pay. has_loops: the graph has some."""
    found = reroll_graph(graph, target_name)
    if found.graph is graph and (found.needed_numbers or not has_loops):
        return found
    joined, why = join_loop_iterations(drop_unused_loop_results(found.graph), target_name)
    return replace(found, graph=joined, why=(*why, *found.why))


def reroll_graph(graph: Graph, target_name: Callable[[], str] = lambda: "cpu", most: int | None = None) -> Rerolled:
    """The graph with loops in place of stretches that repeat, unless it runs on several devices. Arrays for new inputs
    stand behind the others. target_name: of the target whose times decide whether few turns are a loop; asked where
    they do. most: loops after which no other one is looked for."""
    if not settings.roll or len(graph.nodes) < LEAST_NODES or any(OPS[n.op].kind == "device" for n in graph.nodes):
        return Rerolled(graph, [])
    found, loops = Rerolled(graph, []), 0
    while (
        loops != most
        and (
            more := _reroll_longest_loop(found.graph, target_name)
            or _reroll_longest_loop(_forward_values_of_unrolled_updates(found.graph), target_name)
        )
        is not None
    ):
        if more.needed_numbers:
            return Rerolled(graph, [], more.needed_numbers)
        if more.why:
            return replace(found, why=more.why)
        found, loops = Rerolled(more.graph, [*found.arrays, *more.arrays]), loops + 1
    return found


def is_mostly_repetition(graph: Graph) -> bool:
    """Whether half of the graph or more is a few turns of something: with more turns it may become a loop."""
    for moving in (False, True) if has_parts_moving_by_period(graph) else (False,):
        row = tokens_of_repeated_nodes(graph, moving)
        if any(2 * (s.end - s.begin) >= len(row.order) for s in repeating_stretches(row, FEW_ITERATIONS)):
            return True
    return False


def _reroll_longest_loop(graph: Graph, target_name: Callable[[], str]) -> Rerolled | None:
    """The graph with its longest loop rolled."""
    for moving in (False, True) if has_parts_moving_by_period(graph) else (False,):
        row = tokens_of_repeated_nodes(graph, moving)
        for stretch in repeating_stretches(row, MIN_ITERATIONS):
            found = _try_stretch_as_loop(graph, row, stretch, target_name)
            if found is not None:
                return found
    return None


def _try_stretch_as_loop(
    graph: Graph, row: TokenSequence, stretch: RepeatingStretch, target_name: Callable[[], str]
) -> Rerolled | None:
    """The stretch as a loop that begins where little passes from iteration to iteration, as early as it can."""
    p, roll = stretch.period, partial(roll_loops, target_name=target_name)
    first = stretch.begin + least_traffic_start_of_period(graph, row, stretch)
    for start in (first + p * n for n in TRIES):
        iterations = (stretch.end - start) // p
        if start < 0 or iterations < MIN_ITERATIONS or iterations * p < LEAST_NODES:
            continue
        end = start + iterations * p
        if (row.tokens[start : end - p] != row.tokens[start + p : end]).any():
            continue
        try:
            found = reroll_region_as_loop(graph, row, start, p, iterations, roll)
        except NumbersDiffer as differ:
            if len(graph.nodes) > WHOLE_NODES:
                return Rerolled(graph, [], differ.numbers)
            continue
        except NotALoop:
            continue
        if _is_rerolled_graph_shorter(found, graph, iterations * p):
            few = len(graph.nodes) <= (WHOLE_NODES if target_name() == "cpu" else WHOLE_GPU_NODES)
            if few and (iterations < MANY_ITERATIONS or _is_loop_slower(graph, found.graph, target_name)):
                line = graph.lines[int(row.order[start])] if graph.lines else ""
                text = f"{iterations} turns of {p} operations{f' at {line}' if line else ''} stay as they were traced"
                return Rerolled(graph, [], why=(text,))
            return found
    return None


def _is_rerolled_graph_shorter(rerolled: Rerolled, graph: Graph, replaced: int) -> bool:
    """Or what the loop stacks is taken apart again."""
    return len(rerolled.graph.nodes) < len(graph.nodes) - replaced // 2


def _is_loop_slower(whole: Graph, looped: Graph, target_name: Callable[[], str]) -> bool:
    """Whether the loop is predicted to take longer than the iterations one after another, fused as far as they fuse."""
    graphs = (join_loop_iterations(graph, target_name)[0] for graph in (looped, whole))
    looped_us, whole_us = (predict_rerolled_microseconds(graph, target_name()) for graph in graphs)
    return looped_us > LOSS * whole_us


def _forward_values_of_unrolled_updates(graph: Graph) -> Graph:
    """The graph with what was just assigned read from where it came: x[i] after x[i] = v is v."""
    replaced: dict[int, int] = {}
    for number, node in enumerate(graph.nodes):
        if node.op == "slice":
            source = _value_assigned_to_unrolled_slice(graph, node)
            if source is not None:
                replaced[number] = source
    if not replaced:
        return graph
    builder, new = GraphBuilder(graph.name), list[Value]()
    for number, node in nodes_to_copy(graph, builder):
        same = replaced.get(number)
        new.append(builder.copy(node, [new[a] for a in node.args]) if same is None else new[same])
    return builder.finish_copy(graph, new)


def _value_assigned_to_unrolled_slice(graph: Graph, node: Node) -> int | None:
    """The value that an earlier update put where a slice looks, if nothing was written there since."""
    base = graph.nodes[node.args[0]]
    for _ in range(4):
        if base.op != "update":
            return None
        value = graph.nodes[base.args[1]]
        same = base.attr("starts") == node.attr("starts") and value.type == node.type
        if same and base.attr("steps") == node.attr("steps"):
            return base.args[1]
        if not _do_slice_and_update_differ(node, base, value):
            return None
        base = graph.nodes[base.args[0]]
    return None


def _do_slice_and_update_differ(node: Node, update: Node, value: Node) -> bool:
    """Whether a slice and an update of one array have no element in common along some axis."""
    for a, n in enumerate(node.type.shape):
        ends = []
        for at, length in ((node, n), (update, value.type.shape[a])):
            start, reach = at.attr("starts")[a], at.attr("steps")[a] * (length - 1)
            ends.append((start + min(0, reach), start + max(0, reach)))
        (low, high), (first, last) = ends
        if high < first or last < low:
            return True
    return False
