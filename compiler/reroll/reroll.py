"""Loop rerolling: a Python loop that was traced iteration by iteration becomes a node. It does where it repeats
exactly.

What comes out computes the same with the same operations in the same order; it is planned and compiled as one period.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ...runtime.core.frozen import replace
from ...runtime.core.settings import settings
from ..fusion.groups import Group
from ..graph.builder import GraphBuilder, nodes_to_copy
from ..graph.graph import Graph, Node, Value
from ..lowering.control_flow import ITERATION_US
from ..ops.table import OPS
from ..passes.materialize import MemoryLayout
from ..pipeline import run_fusion_stage, run_graph_pass_stages
from ..targets.target import target_of
from .induction import NotALoop, NumbersDiffer
from .periods import (
    RepeatingStretch,
    TokenSequence,
    has_parts_moving_by_period,
    least_traffic_start_of_period,
    repeating_stretches,
    tokens_of_repeated_nodes,
)
from .rewrite import Rerolled, reroll_region_as_loop

MIN_ITERATIONS = 9  # fewer stay as they are,
FEW_ITERATIONS = 3  # though so many look as if there might be more,
LEAST_NODES = 64  # and fewer of all iterations together;
MANY_ITERATIONS = 32  # fewer, or iterations that take longer in a loop, if they are no more than
WHOLE_NODES = 512  # these: so much is soon compiled; for a GPU,
WHOLE_GPU_NODES = 1024  # these: a turn there costs launches, and so much more than one on a CPU
LOSS = 1.25  # longer: so many times
MOST_NODES = 256  # of several iterations that are one iteration of the loop
GAIN = 0.9  # a longer iteration has to take at most this of the time
TRIES = (-2, -1, 0, 1)  # periods from the first that repeats in full


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
        if more.body is None:
            return replace(found, why=(*found.why, *more.why))
        found, loops = Rerolled(more.graph, [*found.arrays, *more.arrays], why=(*found.why, *more.why)), loops + 1
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
    p, roll = stretch.period, partial(reroll_graph, target_name=target_name)
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
            best = _join_rerolled_iterations(graph, row, start, p, iterations, found, target_name())
            lines = graph.lines[int(row.order[start])] if graph.lines else ""
            what = f"{iterations} turns of {p} operations" + (f" at {lines}" if lines else "")
            few = len(graph.nodes) <= (WHOLE_NODES if target_name() == "cpu" else WHOLE_GPU_NODES)
            if few and (iterations < MANY_ITERATIONS or _is_loop_slower(graph, best.graph, target_name())):
                return Rerolled(graph, [], why=(f"{what} stay as they were traced",))
            return replace(best, why=(f"{what} are a loop{''.join(best.why)}",))
    return None


def _is_rerolled_graph_shorter(rerolled: Rerolled, graph: Graph, replaced: int) -> bool:
    """Or what the loop stacks is taken apart again."""
    return len(rerolled.graph.nodes) < len(graph.nodes) - replaced // 2


def _is_loop_slower(whole: Graph, looped: Graph, target: str) -> bool:
    """Whether the loop is predicted to take longer than the iterations one after another, fused as far as they fuse."""
    return predict_rerolled_microseconds(looped, target) > LOSS * predict_rerolled_microseconds(whole, target)


def _join_rerolled_iterations(
    graph: Graph, row: TokenSequence, start: int, period: int, iterations: int, one: Rerolled, target: str
) -> Rerolled:
    """The loop with as many iterations in one as pay: what follows each other in one iteration is fused, and its values
    stay in registers where they do not have to go through memory. The iterations left over stay behind the loop."""
    roll = partial(reroll_graph, target_name=lambda: target)
    best, cost, count = one, _predicted_rerolled_iteration_cost(one, 1, target), 2
    first = cost
    while count * period <= MOST_NODES and iterations // count >= MIN_ITERATIONS:
        even = min(range(count, count // 2, -1), key=lambda n: iterations % n)  # as few left over as can be
        try:
            found = reroll_region_as_loop(graph, row, start, period, iterations, roll, even)
        except NotALoop:
            break
        took = _predicted_rerolled_iteration_cost(found, even, target)
        if took > GAIN * cost or not _is_rerolled_graph_shorter(found, graph, iterations * period):
            break
        why = f", {even} of them in one turn: {took:.2f} us each as predicted, {first:.2f} one by one"
        best, cost, count = replace(found, why=(why,)), took, 2 * count
    return best


def _predicted_rerolled_iteration_cost(rerolled: Rerolled, count: int, target: str) -> float:
    """Microseconds of an iteration, as predicted, of a body that does so many."""
    assert rerolled.body is not None
    return (predict_rerolled_microseconds(rerolled.body, target) + ITERATION_US) / count


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


# how long a run takes, from the traffic and work of its groups


def predict_rerolled_microseconds(graph: Graph, target: str) -> float:
    """Microseconds. The graph is fused for it, not lowered."""
    layouts = [MemoryLayout.contiguous(graph.nodes[n].type) for n in graph.inputs]
    made_for = target_of(target)
    prepared, fusion = run_fusion_stage(run_graph_pass_stages(graph, made_for)[0], layouts, made_for)
    return sum(
        _predict_rerolled_group_microseconds(prepared, group, target)
        for group in fusion.groups
        if group.kind != "assembly"
    )


def _predict_rerolled_group_microseconds(graph: Graph, group: Group, target: str) -> float:
    node = graph.nodes[group.stores[0]]
    if node.op in ("loop", "branch"):
        control = node.attr("control")
        iterations = getattr(control, "count", None) or 1
        return float(
            iterations * (ITERATION_US + max(predict_rerolled_microseconds(body, target) for body in control.bodies))
        )
    moved = sum(graph.nodes[n].type.nbytes for n in group.stores) + sum(
        _arrays_loaded_by_rerolled_group(graph, group).values()
    )
    rate = sum(OPS[graph.nodes[n].op].cost for n in group.computes)
    size = 1
    for n in group.domain:
        size *= n
    return target_of(target).model.time(moved, rate * size)


def _arrays_loaded_by_rerolled_group(graph: Graph, group: Group) -> dict[int, int]:
    """The arrays in memory that a group reads: bytes of each, the most that one look at it sees."""
    inside, found = set(group.computes), dict[int, int]()
    for number in group.computes or group.stores:
        for arg in graph.nodes[number].args:
            seen, at = graph.nodes[arg].type.nbytes, arg
            while OPS[graph.nodes[at].op].kind == "view" and at not in inside:
                at = graph.nodes[at].args[0]
                seen = min(seen, graph.nodes[at].type.nbytes)
            stored = OPS[graph.nodes[at].op].kind != "source" or graph.nodes[at].op == "input"
            if stored and at not in inside:
                found[at] = max(found.get(at, 0), seen)
    return found
