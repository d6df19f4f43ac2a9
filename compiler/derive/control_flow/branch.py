"""The rule of a branch. It is a branch on the same flag, whose bodies are the derivatives of its bodies."""

from __future__ import annotations

from collections.abc import Sequence

from ...core.types import dtype_kind
from ...graph.control_flow import Branch, add_control_flow_node, memory_argument_count_of_node
from ...graph.graph import Value, Values
from ..core.call import RuleCall, rule_can_differentiate_value
from ..core.inline import graph_of_walk
from ..core.kinds import Cotangents, Linear, Maybe, Tangents


def _differentiated_branch_inputs(call: RuleCall) -> list[int]:
    """The inputs of the bodies that follow what is differentiated."""
    return [i for i in range(memory_argument_count_of_node(call.node) - 1) if call.active[1 + i]]


def _branch_of_walk(
    call: RuleCall, inputs: Sequence[int], outputs: Sequence[int], given: Values, reverse: bool
) -> list[Value]:
    """A branch on the same flag, of bodies that have extra inputs, here given, behind the others."""
    first, second = (graph_of_walk(call.walks, b, inputs, outputs, reverse) for b in call.attr("control").bodies)
    memory = memory_argument_count_of_node(call.node)
    args = [*call.args[:memory], *given, *call.args[memory:]]
    return add_control_flow_node(call.builder, Branch((first, second)), args)


def _branch_cotangents(call: RuleCall, cts: Cotangents) -> Sequence[Maybe]:
    """What the branch has computed of its inputs is computed again."""
    moving, seeded = _differentiated_branch_inputs(call), sorted(cts)
    pulled = _branch_of_walk(call, moving, seeded, [cts[i] for i in seeded], reverse=True)
    found = dict(zip(moving, pulled, strict=True))
    return [None, *(found.get(i) for i in range(len(call.args) - 1))]


def _branch_tangents(call: RuleCall, tangents: Sequence[Maybe]) -> Tangents:
    moving = [i for i in _differentiated_branch_inputs(call) if tangents[1 + i] is not None]
    types = call.attr("control").types
    wanted = [i for i, t in enumerate(types) if dtype_kind(t.dtype) in "fc"]
    given = [t for t in (tangents[1 + i] for i in moving) if t is not None]
    return dict(zip(wanted, _branch_of_walk(call, moving, wanted, given, reverse=False), strict=True))


def _is_branch_argument_differentiable(call: RuleCall, place: int) -> bool:
    """Whether an argument may carry a derivative: no flag, and no number of the call."""
    return 0 < place < memory_argument_count_of_node(call.node) and rule_can_differentiate_value(call.args[place])


BRANCH = Linear(_branch_tangents, _branch_cotangents, _is_branch_argument_differentiable)
