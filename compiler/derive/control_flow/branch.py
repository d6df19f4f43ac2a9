"""The rule of a branch. It is a branch on the same flag, whose bodies are the derivatives of its bodies."""

from __future__ import annotations

from collections.abc import Sequence

from ...core.types import dtype_kind
from ...graph.builder import GraphBuilder
from ...graph.control_flow import Branch, add_control_flow_node, memory_argument_count_of_node
from ...graph.graph import Graph, Value, Values
from ..core.call import RuleCall, rule_can_differentiate_value, zero_cotangent
from ..core.inline import builder_with_inlined_graph, graph_with_replaced_builder_nodes
from ..core.kinds import Cotangents, Linear, Maybe, Tangents


def _differentiated_branch_inputs(call: RuleCall) -> list[int]:
    """The inputs of the bodies that follow what is differentiated."""
    return [i for i in range(memory_argument_count_of_node(call.node) - 1) if call.active[1 + i]]


def _branch_with_derivative_bodies(call: RuleCall, bodies: tuple[Graph, Graph], extra: Values) -> list[Value]:
    """A branch on the same flag, of bodies that have extra inputs behind the others."""
    memory = memory_argument_count_of_node(call.node)
    return add_control_flow_node(call.builder, Branch(bodies), [*call.args[:memory], *extra, *call.args[memory:]])


def _branch_cotangents(call: RuleCall, cts: Cotangents) -> Sequence[Maybe]:
    """What the branch has computed of its inputs is computed again."""
    moving, seeded = _differentiated_branch_inputs(call), sorted(cts)

    def cotangent_body(body: Graph) -> Graph:
        builder, new = builder_with_inlined_graph(body)
        sources, results = [new[body.inputs[i]] for i in moving], [new[o] for o in body.outputs]
        seeds = [builder.input(results[i].type) for i in seeded]
        replaced: dict[int, int] = {}
        pulled = call.walks.pull_back(builder, [results[i] for i in seeded], seeds, sources, replaced)
        return graph_with_replaced_builder_nodes(
            builder, zeros_for_missing_body_derivatives(builder, pulled, sources), replaced
        )

    first, second = call.attr("control").bodies
    found = dict(
        zip(
            moving,
            _branch_with_derivative_bodies(
                call, (cotangent_body(first), cotangent_body(second)), [cts[i] for i in seeded]
            ),
            strict=True,
        )
    )
    return [None, *(found.get(i) for i in range(len(call.args) - 1))]


def _branch_tangents(call: RuleCall, tangents: Sequence[Maybe]) -> Tangents:
    moving = [i for i in _differentiated_branch_inputs(call) if tangents[1 + i] is not None]
    types = call.attr("control").types
    wanted = [i for i, t in enumerate(types) if dtype_kind(t.dtype) in "fc"]

    def tangent_body(body: Graph) -> Graph:
        builder, new = builder_with_inlined_graph(body)
        sources, results = [new[body.inputs[i]] for i in moving], [new[o] for o in body.outputs]
        given = [builder.input(v.type) for v in sources]
        targets = [results[i] for i in wanted]
        replaced: dict[int, int] = {}
        pushed = call.walks.push_forward(builder, sources, given, targets, replaced)
        return graph_with_replaced_builder_nodes(
            builder, zeros_for_missing_body_derivatives(builder, pushed, targets), replaced
        )

    first, second = call.attr("control").bodies
    given = [t for t in (tangents[1 + i] for i in moving) if t is not None]
    return dict(
        zip(
            wanted,
            _branch_with_derivative_bodies(call, (tangent_body(first), tangent_body(second)), given),
            strict=True,
        )
    )


def zeros_for_missing_body_derivatives(builder: GraphBuilder, values: Sequence[Maybe], like: Values) -> list[Value]:
    """Zeros in the place of None."""
    return [zero_cotangent(builder, v) if t is None else t for t, v in zip(values, like, strict=True)]


def _is_branch_argument_differentiable(call: RuleCall, place: int) -> bool:
    """Whether an argument may carry a derivative: no flag, and no number of the call."""
    return 0 < place < memory_argument_count_of_node(call.node) and rule_can_differentiate_value(call.args[place])


BRANCH = Linear(_branch_tangents, _branch_cotangents, _is_branch_argument_differentiable)
