"""Rules of attention: back by one call, which computes the weights again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core.types import FLOAT32, ArrayType
from ...decompose.dnn import decompose_attention, decompose_attention_gradient
from ...graph.graph import Value
from ..core.call import RuleCall
from ..core.kinds import Cotangents, Linear, Maybe, Rule, Tangents, Written


def _attention_tangents(call: RuleCall, tangents: Sequence[Maybe]) -> Tangents:
    """Of the operations that it is made of."""
    written = _rewrite_attention_for_derivative(call)
    places = [i for i, t in enumerate(tangents) if t is not None]
    args, moved = [call.args[i] for i in places], [tangents[i] for i in places]
    found = call.walks.push_forward(call.builder, args, moved, [*written.values()], call.replaced)
    return dict(zip(written, found, strict=True))


def _attention_cotangents(call: RuleCall, cts: Cotangents) -> Sequence[Maybe]:
    """Nothing but its gradient reads the second result. What is added to the scores has a cotangent too."""
    result, stats = _both_results_of_attention(call)
    args = [*call.args[:3], result, cts[0], stats, *call.args[3:]]
    options: dict[str, Any] = {name: value for name, value in call.options.items() if name != "stats"}
    types = [a.type for a in (*call.args[:3], *(a for a in call.args[3:] if a.dtype != np.bool_))]
    found = call.builder.host("attention_gradient", args, types, **options)
    return [*found, *(None for _ in call.args[len(found) :])]


def _both_results_of_attention(call: RuleCall) -> list[Value]:
    types = [call.result.type, ArrayType((*call.result.shape[:-1], 1), FLOAT32)]
    return call.builder.host("attention", call.args, types, **call.options)


def _rewrite_attention_for_derivative(call: RuleCall) -> dict[int, Value]:
    write = {"attention": decompose_attention, "attention_gradient": decompose_attention_gradient}[call.name]
    written = {}
    for part, value in call.results.items():
        node = call.builder.nodes[value.number]
        made = write(call.builder, node, call.args)
        assert isinstance(made, Value)
        written[part] = made
    return written


ATTENTION: dict[str, Rule] = {
    "attention": Linear(_attention_tangents, _attention_cotangents),
    "attention_gradient": Written(_rewrite_attention_for_derivative),
}
