"""The kinds of rules, and how those of one mode alone do the other.

| kind | says | the other mode |
|---|---|---|
| `Linear` | both: a tangent, and its transpose | - |
| `Tangent` | the results' tangents, linear in the arguments' | the nodes that it makes are transposed |
| `Written` | the results as other operations | theirs |
| `Lifted` | a view's tangent, and where parts of its cotangent lie in its argument | - |
| `Choice` | which of the others a call has | - |
| `Zero`, `Refused` | nothing | - |

Tangents and cotangents of None are zero: no zeros are made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from ....runtime.core.frozen import frozen
from ...graph.graph import Value
from ...ops.derivatives import ZERO, Refused, Zero
from .call import RuleCall
from .cotangents import CotangentPart

Maybe: TypeAlias = Value | None
Tangents = dict[int, Maybe]  # of the results that a call has, by part
Cotangents = dict[int, Value]  # of results, by part
# (call, the arguments' tangents) -> the results'
TangentFunction = Callable[[RuleCall, Sequence[Maybe]], Tangents]
# (call, the results' cotangents) -> the arguments', of their types; None also for those that are not active
CotangentFunction = Callable[[RuleCall, Cotangents], Sequence["Maybe | CotangentPart"]]


@frozen
class Linear:
    """Linear in all active arguments, or in each alone; both modes are written out.

    follows: for each argument whether the results follow it; None for all."""

    tangent: TangentFunction
    cotangent: CotangentFunction
    follows: Callable[[RuleCall, int], bool] | None = None


@frozen
class Tangent:
    """A tangent in operations of the graph, linear in the arguments' tangents. follows: as of `Linear`. bent: what is
    said where it is not linear, of a rule that somebody else has written."""

    tangent: TangentFunction
    follows: Callable[[RuleCall, int], bool] | None = None
    bent: str = ""


@frozen
class Written:
    """The same results, by operations that have rules."""

    results: Callable[[RuleCall], dict[int, Value]]


@frozen
class Lifted:
    """A view whose cotangents are parts of its argument's."""

    lift: Callable[[RuleCall, CotangentPart], CotangentPart]
    tangent: TangentFunction


@frozen
class Choice:
    """A rule that depends on the options, shapes or dtypes of the call."""

    choose: Callable[[RuleCall], Rule]


Rule: TypeAlias = Linear | Tangent | Written | Lifted | Choice | Zero | Refused
__all__ = ["ZERO", "Choice", "Lifted", "Linear", "Maybe", "Refused", "Rule", "Tangent", "Written", "Zero"]
