"""How long a graph takes to run, as predicted from the traffic and work of its groups."""

from __future__ import annotations

from ..fusion.groups import Group
from ..graph.graph import Graph
from ..lowering.control_flow import ITERATION_US
from ..ops.table import OPS
from ..passes.materialize import MemoryLayout
from ..pipeline import run_fusion_stage, run_graph_pass_stages
from ..targets.target import target_of


def predict_graph_microseconds(graph: Graph, target: str) -> float:
    """Microseconds. The graph is fused for it, not lowered."""
    layouts = [MemoryLayout.contiguous(graph.nodes[n].type) for n in graph.inputs]
    made_for = target_of(target)
    prepared, fusion = run_fusion_stage(run_graph_pass_stages(graph, made_for)[0], layouts, made_for)
    return sum(
        _predict_group_microseconds(prepared, group, target) for group in fusion.groups if group.kind != "assembly"
    )


def _predict_group_microseconds(graph: Graph, group: Group, target: str) -> float:
    node = graph.nodes[group.stores[0]]
    if node.op in ("loop", "branch"):
        control = node.attr("control")
        iterations = getattr(control, "count", None) or 1
        return float(
            iterations * (ITERATION_US + max(predict_graph_microseconds(body, target) for body in control.bodies))
        )
    moved = sum(graph.nodes[n].type.nbytes for n in group.stores) + sum(_arrays_loaded_by_group(graph, group).values())
    rate = sum(OPS[graph.nodes[n].op].cost for n in group.computes)
    size = 1
    for n in group.domain:
        size *= n
    return target_of(target).model.time(moved, rate * size)


def _arrays_loaded_by_group(graph: Graph, group: Group) -> dict[int, int]:
    """The arrays in memory that a group reads: bytes of each, the most that one look at it sees."""
    inside, found = set(group.computes), dict[int, int]()
    for number in group.computes or group.stores:
        for arg in graph.nodes[number].args:
            seen, at = graph.nodes[arg].type.nbytes, arg
            while graph.nodes[at].kind == "view" and at not in inside:
                at = graph.nodes[at].args[0]
                seen = min(seen, graph.nodes[at].type.nbytes)
            stored = graph.nodes[at].kind != "source" or graph.nodes[at].op == "input"
            if stored and at not in inside:
                found[at] = max(found.get(at, 0), seen)
    return found
