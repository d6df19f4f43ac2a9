"""The rule of a part of the graph whose derivative the user has given."""

from __future__ import annotations

from collections.abc import Sequence

from ...graph.control_flow import CustomDerivativeNode
from ...graph.graph import Graph, GraphError, Value, Values
from ..core.call import RuleCall, rule_can_differentiate_value, zero_cotangent
from ..core.inline import inline_graph_into_builder
from ..core.kinds import Choice, Cotangents, Linear, Maybe, Tangent, Tangents


def _custom_derivative_of_call(call: RuleCall) -> CustomDerivativeNode:
    found: CustomDerivativeNode = call.attr("control")
    return found


def _inlined_custom_derivative_rule(call: RuleCall, body: Graph, given: Values) -> list[Value]:
    """A body of the rule: what it is given, then the rest of the call's arguments."""
    control = _custom_derivative_of_call(call)
    rest = call.args[control.results + control.inputs :]
    split = len(rest) - len(body.numbers)
    return inline_graph_into_builder(call.builder, body, [*given, *rest[:split]], rest[split:])


def _cotangents_by_custom_derivative(call: RuleCall, cts: Cotangents) -> Sequence[Maybe]:
    control = _custom_derivative_of_call(call)
    assert control.reverse is not None
    results = [(i, v) for i, v in enumerate(call.args[: control.results]) if rule_can_differentiate_value(v)]
    given = [cts[i] if i in cts else zero_cotangent(call.builder, v) for i, v in results]
    found = _inlined_custom_derivative_rule(call, control.reverse, given)
    rest = len(call.args) - control.results - control.inputs
    return [*[None] * control.results, *found, *[None] * rest]


def _custom_tangents(call: RuleCall, tangents: Sequence[Maybe]) -> Tangents:
    control = _custom_derivative_of_call(call)
    assert control.forward is not None
    inputs = call.args[control.results : control.results + control.inputs]
    moving = tangents[control.results : control.results + control.inputs]
    given = [zero_cotangent(call.builder, v) if t is None else t for v, t in zip(inputs, moving, strict=True)]
    found = iter(_inlined_custom_derivative_rule(call, control.forward, given))
    return {i: next(found) for i, v in enumerate(call.args[: control.results]) if rule_can_differentiate_value(v)}


def _refuse_tangents_of_custom_vjp(call: RuleCall, tangents: Sequence[Maybe]) -> Tangents:
    raise GraphError(
        "a function with kg.custom_vjp or kg.checkpoint has a rule for cotangents alone, and tangents are wanted; "
        "write kg.custom_jvp, or leave kg.checkpoint out",
        NotImplementedError,
        call.builder.where(),
    )


def _is_custom_derivative_input(call: RuleCall, place: int) -> bool:
    control = _custom_derivative_of_call(call)
    return control.results <= place < control.results + control.inputs


_REVERSE = Linear(_refuse_tangents_of_custom_vjp, _cotangents_by_custom_derivative, _is_custom_derivative_input)
_FORWARD = Tangent(
    _custom_tangents,
    _is_custom_derivative_input,
    "the rule of a function with kg.custom_jvp is not linear in the tangents",
)


CUSTOM = Choice(lambda call: _REVERSE if _custom_derivative_of_call(call).forward is None else _FORWARD)
