"""The two walks: tangents forward through a builder's nodes, cotangents backward. Both add nodes to it.

Forward mode: Wengert, A simple automatic derivative evaluation program, 1964; reverse mode: Linnainmaa, 1970; both as
in Griewank and Walther, Evaluating Derivatives, 2008, chapter 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...runtime.core.frozen import frozen, replace
from ..core.types import BOOL, ArrayType
from ..graph.builder import GraphBuilder, exact_node_attrs
from ..graph.graph import GraphError, Node, Value, Values, needed_nodes
from .core.call import ReverseOptions, RuleCall, rule_can_differentiate_value
from .core.cotangents import CotangentPart, total_cotangent, whole_cotangent
from .core.kinds import Cotangents, Lifted, Linear, Maybe, Refused, Rule, Tangent, Written, Zero
from .table import derivative_rule_from_table


class DifferentiatedPath:
    """The operations between inputs and outputs through which derivatives flow, in order.

    calls[n]: the operation whose first result, by number, is node n; rules[n]: its rule."""

    def __init__(
        self,
        builder: GraphBuilder,
        inputs: Values,
        outputs: Values,
        walks: DifferentiationWalks,
        replaced: dict[int, int],
        masks: dict[int, Value] | None = None,
    ) -> None:
        self.builder, self.walks, self.replaced = builder, walks, replaced
        self.flows = {v.number for v in inputs}  # nodes that follow the inputs
        self.inputs = frozenset(self.flows)
        self.masks: dict[int, Value] = {} if masks is None else masks
        self.calls: dict[int, RuleCall] = {}
        self.results: dict[Any, tuple[int, dict[int, Value]]] = {}  # of operations that have several
        self.rules: dict[int, Rule] = {}
        needed = self._nodes_needed_by_outputs([v.number for v in outputs])
        for number in needed:
            if number not in self.inputs:
                self._add_node_to_path(number)

    def _nodes_needed_by_outputs(self, outputs: Sequence[int]) -> list[int]:
        lowest = min(self.inputs, default=0)
        found, todo = set[int](), list(outputs)
        while todo:
            number = todo.pop()
            if number not in found and number >= lowest:
                found.add(number)
                todo += () if number in self.inputs else self.builder.nodes[number].args
        return sorted(found)

    def _add_node_to_path(self, number: int) -> None:
        node, value = self.builder.nodes[number], self.builder.at(number)
        if not any(a in self.flows for a in node.args) or not rule_can_differentiate_value(value):
            return
        key, part = _walk_key_of_node(node)
        first, results = self.results.setdefault(key, (number, {})) if key is not None else (number, {})
        results[part] = value
        if first == number:
            self.calls[first] = self._differentiated_call_at_node(first, node, results)
        if any(self.calls[first].active):
            self.flows.add(number)

    def _differentiated_call_at_node(self, first: int, node: Node, results: Mapping[int, Value]) -> RuleCall:
        """The operation as rules see it."""
        args = tuple(map(self.builder.at, node.args))
        flows = tuple([a.number in self.flows and rule_can_differentiate_value(a) for a in args])
        call = RuleCall(self.builder, node, args, results, flows, self.masks, self.replaced, self.walks)
        rule = self.rules[first] = derivative_rule_from_table(call)
        if isinstance(rule, Zero):
            return replace(call, active=(False,) * len(args))
        if isinstance(rule, Linear | Tangent) and rule.follows is not None:
            active = tuple([f and rule.follows(call, i) for i, f in enumerate(flows)])
            return call if active == flows else replace(call, active=active)
        return call


def _walk_key_of_node(node: Node) -> tuple[Any, int]:
    """What the results of one operation have in common, None where it has one; and which one a node is."""
    for at, (name, part) in enumerate(node.attrs):
        if name == "part":
            return (node.op, node.args, exact_node_attrs(node.op, (*node.attrs[:at], *node.attrs[at + 1 :]))), part
    return None, 0


def no_derivative_error_of_walk(call: RuleCall, line: str, why: str) -> GraphError:
    """What is raised for an operation that has no derivative."""
    return GraphError(f"{call.name} has no derivative: {why}", NotImplementedError, line)


@frozen
class DifferentiationWalks:
    """The two walks."""

    options: ReverseOptions

    def pull_back(
        self,
        builder: GraphBuilder,
        outputs: Values,
        cotangents: Sequence[Maybe],
        inputs: Values,
        replaced: dict[int, int],
        masks: dict[int, Value] | None = None,
    ) -> list[Maybe]:
        """The inputs' cotangents, given the outputs'; None for zero. Raises GraphError where there is no derivative.

        replaced: gets nodes that are to take the place of others when all is done. masks: as those of `RuleCall`."""
        path = DifferentiatedPath(builder, inputs, outputs, self, replaced, masks)
        parts: dict[int, list[CotangentPart]] = {}
        for output, ct in zip(outputs, cotangents, strict=True):
            if ct is not None:
                parts.setdefault(output.number, []).append(whole_cotangent(ct))
        for first in sorted(path.calls, reverse=True):
            if any(r.number in parts for r in path.calls[first].results.values()):
                _pull_cotangents_back(builder, path.calls[first], path.rules[first], builder.lines[first], parts)
        return [_summed_cotangent(builder, parts, v, path.masks) for v in inputs]

    def push_forward(
        self,
        builder: GraphBuilder,
        inputs: Values,
        tangents: Sequence[Maybe],
        outputs: Values,
        replaced: dict[int, int],
    ) -> list[Maybe]:
        """The outputs' tangents, given the inputs'; as `pull_back`."""
        known: dict[int, Maybe] = {v.number: t for v, t in zip(inputs, tangents, strict=True)}
        moving = [v for v, t in zip(inputs, tangents, strict=True) if t is not None]
        path = DifferentiatedPath(builder, moving, outputs, self, replaced)
        for first in sorted(path.calls):
            _push_tangents_forward(builder, path.calls[first], path.rules[first], builder.lines[first], known)
        return [known.get(v.number) for v in outputs]

    def following(self, builder: GraphBuilder, inputs: Values, outputs: Values) -> list[bool]:
        """For each output whether it follows the inputs."""
        path = DifferentiatedPath(builder, inputs, outputs, self, {})
        return [v.number in path.flows for v in outputs]


def _summed_cotangent(
    builder: GraphBuilder, parts: dict[int, list[CotangentPart]], value: Value, masks: dict[int, Value]
) -> Maybe:
    """The cotangent of a node, if any has come; it is under the masks of its parts."""
    found = parts.get(value.number)
    if not found:
        return None
    result = total_cotangent(builder, found, value)
    under = [masks.get(p.value.number) for p in found]
    if all(m is not None and m.shape == p.value.shape for m, p in zip(under, found, strict=True)):
        boxes = dict.fromkeys((m.number, p.starts, p.steps) for m, p in zip(under, found, strict=True) if m is not None)
        whole = [CotangentPart(builder.at(m), starts, steps) for m, starts, steps in boxes]
        masks[result.number] = total_cotangent(builder, whole, Value(value.number, ArrayType(value.shape, BOOL)))
    parts[value.number] = [whole_cotangent(result)]
    return result


def _pull_cotangents_back(
    builder: GraphBuilder, call: RuleCall, rule: Rule, line: str, parts: dict[int, list[CotangentPart]]
) -> None:
    if not any(call.active):
        return
    if isinstance(rule, Refused):
        raise no_derivative_error_of_walk(call, line, rule.why)
    before, builder.where = builder.where, lambda: line
    try:
        if isinstance(rule, Lifted):
            for part in _merge_cotangents_in_walk(builder, parts[call.result.number], call.result):
                parts.setdefault(call.args[0].number, []).append(rule.lift(call, part))
            return
        cts = {
            part: ct
            for part, value in call.results.items()
            if (ct := _summed_cotangent(builder, parts, value, call.masks)) is not None
        }
        for arg, found in zip(call.args, _pull_cotangents_through_rule(rule, call, cts), strict=True):
            if found is not None:
                parts.setdefault(arg.number, []).append(
                    found if isinstance(found, CotangentPart) else whole_cotangent(found)
                )
    finally:
        builder.where = before


def _merge_cotangents_in_walk(
    builder: GraphBuilder, parts: Sequence[CotangentPart], like: Value
) -> list[CotangentPart]:
    """The parts, those that are whole as their sum."""
    full = [p for p in parts if p.is_whole(like.shape)]
    if len(full) < 2:
        return list(parts)
    return [whole_cotangent(total_cotangent(builder, full, like)), *(p for p in parts if not p.is_whole(like.shape))]


def _pull_cotangents_through_rule(rule: Rule, call: RuleCall, cts: Cotangents) -> Sequence[Maybe | CotangentPart]:
    if isinstance(rule, Linear):
        return [ct if a else None for ct, a in zip(rule.cotangent(call, cts), call.active, strict=True)]
    places = [i for i, active in enumerate(call.active) if active]
    if isinstance(rule, Tangent):  # its nodes, linear in stand-ins for the tangents, are transposed
        stand_ins = {i: call.builder.placeholder(call.args[i].type) for i in places}
        tangents = rule.tangent(call, [stand_ins.get(i) for i in range(len(call.args))])
        made = {part: t for part, t in tangents.items() if t is not None and part in cts}
        seeds = [cts[p] for p in made]
        found = call.walks.pull_back(
            call.builder, [*made.values()], seeds, [*stand_ins.values()], call.replaced, call.masks
        )
        if rule.bent and _depends_on_walked_nodes(call.builder, found, {v.number for v in stand_ins.values()}):
            raise GraphError(rule.bent, ValueError, call.builder.where())
        return _walked_cotangents_by_argument(places, found, call)
    assert isinstance(rule, Written)
    call = _call_of_opaque_arguments(call)
    written = {part: v for part, v in rule.results(call).items() if part in cts}
    seeds, sources = [cts[p] for p in written], [call.args[i] for i in places]
    found = call.walks.pull_back(call.builder, [*written.values()], seeds, sources, call.replaced, call.masks)
    return _walked_cotangents_by_argument(places, found, call)


def _call_of_opaque_arguments(call: RuleCall) -> RuleCall:
    """Of stand-ins for arguments that are reshaped: a builder's `reshape` would pass them by, and so would a walk."""
    opaque: dict[int, Value] = {}
    for a in call.args:
        if call.builder.nodes[a.number].op == "reshape" and a.number not in opaque:
            opaque[a.number] = call.builder.placeholder(a.type)
            call.replaced[opaque[a.number].number] = a.number
    return replace(call, args=tuple(opaque.get(a.number, a) for a in call.args))


def _depends_on_walked_nodes(builder: GraphBuilder, values: Sequence[Maybe], nodes: set[int]) -> bool:
    """Whether any of the values is computed of these nodes."""
    return not nodes.isdisjoint(needed_nodes(builder.nodes, [v.number for v in values if v is not None]))


def _walked_cotangents_by_argument(places: Sequence[int], values: Sequence[Maybe], call: RuleCall) -> list[Maybe]:
    """By argument; what an argument gets that is given twice, it gets once."""
    by_place: dict[int, Maybe] = {}
    for place, value in zip(places, values, strict=True):
        if not any(call.args[p].number == call.args[place].number for p in by_place):
            by_place[place] = value
    return [by_place.get(i) for i in range(len(call.args))]


def _push_tangents_forward(
    builder: GraphBuilder, call: RuleCall, rule: Rule, line: str, known: dict[int, Maybe]
) -> None:
    tangents = [known.get(a.number) if active else None for a, active in zip(call.args, call.active, strict=True)]
    if all(t is None for t in tangents):
        return
    if isinstance(rule, Refused):
        raise no_derivative_error_of_walk(call, line, rule.why)
    before, builder.where = builder.where, lambda: line
    try:
        found = _tangents_by_rule(rule, call, tangents)
    finally:
        builder.where = before
    for part, value in call.results.items():
        known[value.number] = found.get(part)


def _tangents_by_rule(rule: Rule, call: RuleCall, tangents: Sequence[Maybe]) -> Mapping[int, Maybe]:
    if isinstance(rule, Linear | Tangent | Lifted):
        return rule.tangent(call, tangents)
    assert isinstance(rule, Written)
    places = [i for i, t in enumerate(tangents) if t is not None]
    call = _call_of_opaque_arguments(call)
    written = rule.results(call)
    args = [call.args[i] for i in places]
    moved, results = [tangents[i] for i in places], [*written.values()]
    found = call.walks.push_forward(call.builder, args, moved, results, call.replaced)
    return dict(zip(written, found, strict=True))
