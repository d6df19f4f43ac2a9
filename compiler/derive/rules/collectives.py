"""Rules of what the devices of a mesh exchange: all linear, and each the transpose of another."""

from __future__ import annotations

from typing import Any

from ...graph.graph import Value
from ..core.call import RuleCall
from ..core.kinds import Choice, Refused, Rule
from .structure import linear_view_derivative_rule


def _attributes(call: RuleCall, **own: Any) -> tuple[tuple[str, Any], ...]:
    """Those of another collective among the same devices."""
    among = {name: value for name, value in call.node.attrs if name in ("groups", "size")}
    return tuple(sorted({**among, **own}.items()))


def _collective_tangent(call: RuleCall, t: Value) -> Value:
    return call.copy(t)


def _all_gather_cotangent(call: RuleCall, ct: Value) -> Value:
    attrs = _attributes(call, axis=call.attr("axis"), how="sum")
    return call.builder.add("reduce_scatter", (ct.number,), call.args[0].type, attrs)


def _reduce_scatter_cotangent(call: RuleCall, ct: Value) -> Value:
    attrs = _attributes(call, axis=call.attr("axis"))
    found = call.builder.add("all_gather", (ct.number,), call.args[0].type, attrs)
    if call.attr("how") == "mean":
        return call.builder.map("divide", found, call.builder.const(call.attr("size"), found.dtype))
    return found


def _all_to_all_cotangent(call: RuleCall, ct: Value) -> Value:
    attrs = _attributes(call, split=call.attr("join"), join=call.attr("split"))
    return call.builder.add("all_to_all", (ct.number,), call.args[0].type, attrs)


def _exchange_cotangent(call: RuleCall, ct: Value) -> Value:
    pairs = tuple((target, source) for source, target in call.attr("pairs"))
    attrs = _attributes(call, pairs=pairs)
    return call.builder.add("exchange", (ct.number,), call.args[0].type, attrs)


def _all_reduce_rule_if_linear(rule: Rule) -> Rule:
    refused = Refused("only sums and means over devices have a derivative")
    return Choice(lambda call: rule if call.attr("how") in ("sum", "mean") else refused)


COLLECTIVES: dict[str, Rule] = {
    "all_reduce": _all_reduce_rule_if_linear(
        linear_view_derivative_rule(
            _collective_tangent, lambda call, ct: call.builder.add("all_reduce", (ct.number,), ct.type, call.node.attrs)
        )
    ),
    "all_gather": linear_view_derivative_rule(_collective_tangent, _all_gather_cotangent),
    "reduce_scatter": _all_reduce_rule_if_linear(
        linear_view_derivative_rule(_collective_tangent, _reduce_scatter_cotangent)
    ),
    "all_to_all": linear_view_derivative_rule(_collective_tangent, _all_to_all_cotangent),
    "exchange": linear_view_derivative_rule(_collective_tangent, _exchange_cotangent),
    "from_root": Refused("what one device tells the others has no derivative yet; write kg.all_reduce"),
}
