"""The rule of an operation: by its op or its function's name."""

from __future__ import annotations

from ..ops.derivatives import ByGraph, Partials, Zero
from ..ops.table import OPS
from .control_flow.branch import BRANCH
from .control_flow.custom import CUSTOM
from .control_flow.loop import LOOP
from .control_flow.sequential import SEQUENTIAL
from .core.call import RuleCall
from .core.kinds import ZERO, Choice, Refused, Rule
from .rules.assignment import GATHER
from .rules.collectives import COLLECTIVES
from .rules.host import HOST_RULES, NOT_KNOWN
from .rules.map import USER_FUNCTIONS, derivative_rule_of_elementwise_op
from .rules.reduce import REDUCTIONS
from .rules.structure import STRUCTURE


def _elementwise_rule_for_table(derivative: Zero | Refused | Partials) -> Rule:
    return derivative_rule_of_elementwise_op(derivative) if isinstance(derivative, Partials) else derivative


_SOURCES = dict.fromkeys(("input", "number", "const", "index", "placeholder"), ZERO)
_MADE_LATER = Refused("this row is made when a plan is made")
RULES: dict[str, Rule] = {
    **{
        name: _elementwise_rule_for_table(row.derivative)
        for name, row in OPS.items()
        if not isinstance(row.derivative, ByGraph)
    },
    **REDUCTIONS,
    **STRUCTURE,
    **GATHER,
    **COLLECTIVES,
    **USER_FUNCTIONS,
    **_SOURCES,
    "assemble": _MADE_LATER,
    "kernel": Refused(NOT_KNOWN),
    "sequential": SEQUENTIAL,
    "custom": CUSTOM,
    "host": Choice(lambda call: HOST_RULES[call.attr("function")]),
    "loop": LOOP,
    "branch": BRANCH,
}


def derivative_rule_from_table(call: RuleCall) -> Rule:
    """The rule of an operation, of those that depend on the call the one that it has."""
    rule = RULES[call.node.op]
    while isinstance(rule, Choice):
        rule = rule.choose(call)
    return rule
