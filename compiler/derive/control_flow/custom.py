"""The rule of a part of the graph whose derivative the user has given."""

from __future__ import annotations

from collections.abc import Sequence

from ...graph.control_flow import CustomDerivative
from ...graph.graph import Graph, GraphError, Value
from ..core.call import Call, differentiable, zeros
from ..core.inline import inline
from ..core.kinds import Choice, Linear, Maybe, Rule, Tangent


def _control(call: Call) -> CustomDerivative:
    found: CustomDerivative = call.attr("control")
    return found


def _inlined(call: Call, body: Graph, given: Sequence[Value]) -> list[Value]:
    """A body of the rule: what it is given, then the rest of the call's arguments."""
    control = _control(call)
    rest = call.args[control.results + control.inputs :]
    split = len(rest) - len(body.numbers)
    return inline(call.builder, body, [*given, *rest[:split]], rest[split:])


def _cotangents(call: Call, cts: dict[int, Value]) -> Sequence[Maybe]:
    control = _control(call)
    assert control.reverse is not None
    results = [(i, v) for i, v in enumerate(call.args[: control.results]) if differentiable(v)]
    given = [cts[i] if i in cts else zeros(call.builder, v) for i, v in results]
    found = _inlined(call, control.reverse, given)
    rest = len(call.args) - control.results - control.inputs
    return [*[None] * control.results, *found, *[None] * rest]


def _tangents(call: Call, tangents: Sequence[Maybe]) -> dict[int, Maybe]:
    control = _control(call)
    assert control.forward is not None
    inputs = call.args[control.results : control.results + control.inputs]
    moving = tangents[control.results : control.results + control.inputs]
    given = [zeros(call.builder, v) if t is None else t for v, t in zip(inputs, moving, strict=True)]
    found = iter(_inlined(call, control.forward, given))
    return {i: next(found) for i, v in enumerate(call.args[: control.results]) if differentiable(v)}


def _no_tangents(call: Call, tangents: Sequence[Maybe]) -> dict[int, Maybe]:
    raise GraphError(
        "a function with kg.custom_vjp or kg.checkpoint has a rule for cotangents alone, and tangents are wanted; "
        "write kg.custom_jvp, or leave kg.checkpoint out",
        NotImplementedError,
        call.builder.where(),
    )


def _follows(call: Call, place: int) -> bool:
    control = _control(call)
    return control.results <= place < control.results + control.inputs


_REVERSE = Linear(_no_tangents, _cotangents, _follows)
_FORWARD = Tangent(_tangents, _follows, "the rule of a function with kg.custom_jvp is not linear in the tangents")


def _rule(call: Call) -> Rule:
    return _REVERSE if _control(call).forward is None else _FORWARD


CUSTOM = Choice(_rule)
