"""The pipeline: a Graph and the layouts of its inputs in, a Program out, with a check between the passes."""

from __future__ import annotations

from collections.abc import Sequence

from ..runtime.contest import model_plan, with_batches
from ..runtime.machine import MACHINES
from ..runtime.plan import Plan
from ..runtime.program import Program
from .expand import expand
from .fuse import fuse
from .graph import Graph
from .groups import Fusion
from .hazards import Conflict
from .lower import lower
from .materialize import Layout, materialize
from .simplify import simplify


def prepare(graph: Graph, layouts: Sequence[Layout], target: str = "cpu") -> tuple[Graph, Fusion]:
    """The graph simplified, with copies where memory must be of its own, and its groups. Updates are first tried in
    place; those that conflict get a second buffer."""
    types = [graph.nodes[o].type for o in graph.outputs]
    simple = simplify(expand(graph, target))
    check(simple, types, "simplify")
    second: frozenset[int] = frozenset()
    while True:
        prepared = materialize(simple, layouts, second)
        check(prepared, types, "materialize")
        try:
            return prepared, fuse(prepared, target)
        except Conflict as conflict:
            if not conflict.updates - second:
                raise AssertionError("an update conflicts with a second buffer too") from conflict
            second |= conflict.updates


def check(graph: Graph, types: Sequence[object], step: str) -> None:
    """A broken pass is caught at its own door: arguments point backwards, outputs keep their types."""
    for number, node in enumerate(graph.nodes):
        if any(a >= number for a in node.args):
            raise AssertionError(f"{step}: node %{number} uses a later node")
    if [graph.nodes[o].type for o in graph.outputs] != list(types):
        raise AssertionError(f"{step}: changed the outputs' types")


def build(
    graph: Graph, target: str = "cpu", layouts: Sequence[Layout] | None = None, *, fastmath: bool = False
) -> Program:
    """The program of `graph` for a target (`cpu` or `cuda`). layouts: of its inputs, contiguous by default."""
    return stages(graph, target, layouts, fastmath=fastmath)[2]


def stages(
    graph: Graph, target: str = "cpu", layouts: Sequence[Layout] | None = None, *, fastmath: bool = False
) -> tuple[Graph, Fusion, Program]:
    """The prepared graph, its groups and its program."""
    known = layouts or [Layout.contiguous(graph.nodes[n].type) for n in graph.inputs]

    def plan_body(body: Graph, layouts: Sequence[Layout], loose: frozenset[int]) -> Plan:
        """The one plan of a loop's body. It runs on one stream: its kernels use all cores, turns follow each other."""
        machine = MACHINES[target]
        prepared, fusion = prepare(body, layouts, target)
        program = lower(prepared, fusion, layouts, target, fastmath, plan_body, loose)
        return model_plan(with_batches(program, 1, machine), 1, "balanced", machine)

    prepared, fusion = prepare(graph, known, target)
    return prepared, fusion, lower(prepared, fusion, known, target, fastmath, plan_body)
