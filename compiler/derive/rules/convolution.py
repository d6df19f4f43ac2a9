"""Rules of convolutions: linear in each of two arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...core.types import ArrayType
from ...graph.builder import GraphBuilder
from ...graph.graph import Value
from ..core.call import RuleCall, conjugated_cotangent, cotangent_fitted_to
from ..core.kinds import Cotangents, Linear, Maybe, Rule, Tangents, Written
from .cumulative import flip_axis_in_rule
from .structure import add_tangents_in_rule


def _convolve_tangents(call: RuleCall, tangents: Sequence[Maybe]) -> Tangents:
    total: Maybe = None
    for place, t in enumerate(tangents):
        if t is not None:
            args = [t if i == place else a for i, a in enumerate(call.args)]
            (found,) = call.builder.host(
                "convolve", args, [_convolution_type_in_rule(args, call.node.shape)], **call.options
            )
            total = add_tangents_in_rule(call.builder, total, call.builder.cast(found, call.node.dtype))
    return {0: total}


def _convolution_type_in_rule(args: Sequence[Value], shape: tuple[int, ...]) -> ArrayType:
    return ArrayType(shape, np.result_type(*(a.dtype for a in args)))


def _start_of_convolution_in_rule(mode: str, n: int, m: int) -> int:
    """Where the result begins in the full convolution of arrays of these lengths."""
    least = min(n, m)
    return {"full": 0, "same": (least - 1) // 2, "valid": least - 1}[mode]


def _convolve_cotangents(call: RuleCall, cts: Cotangents) -> Sequence[Maybe]:
    """With zeros around it, the full convolution's cotangent: correlated with one array it is the other's."""
    builder, (x, w), ct = call.builder, call.args, cts[0]
    (n,), (m,) = x.shape, w.shape
    base = builder.broadcast(builder.const(0, ct.dtype), (n + m - 1,))
    whole = builder.update(base, ct, (_start_of_convolution_in_rule(call.options["mode"], n, m),), (1,))
    found: list[Maybe] = [None, None]
    for place, (arg, other) in enumerate(((x, w), (w, x))):
        if call.active[place]:
            both = [whole, other]
            (part,) = builder.host("correlate", both, [_convolution_type_in_rule(both, arg.shape)], mode="valid")
            found[place] = cotangent_fitted_to(builder, part, arg)
    return found


def _rewrite_correlate_for_derivative(call: RuleCall) -> dict[int, Value]:
    """correlate(x, w) -> a part of convolve(x, conj(w[::-1])); of an even number of values it begins later in `same`
    where the second array is longer, as NumPy exchanges them"""
    builder, (x, w), mode = call.builder, call.args, call.options["mode"]
    (n,), (m,) = x.shape, w.shape
    turned = conjugated_cotangent(builder, flip_axis_in_rule(builder, w, 0))
    start = n // 2 if mode == "same" and m > n else _start_of_convolution_in_rule(mode, n, m)
    whole = _full_convolution_in_rule(builder, x, turned)
    found = builder.slice(whole, (start,), (1,), call.node.shape)
    return {0: builder.cast(found, call.node.dtype)}


def _full_convolution_in_rule(builder: GraphBuilder, x: Value, w: Value) -> Value:
    both = [x, w] if x.size >= w.size else [w, x]
    return builder.host("convolve", both, [_convolution_type_in_rule(both, (x.size + w.size - 1,))], mode="full")[0]


# convolutions of several axes: three calls, each the derivative of another

# of a call and of which of its arrays: the call that pulls a cotangent back to it, and the arrays that this takes, the
# cotangent as None; options that say a shape are those of the array itself
_CONVOLUTION_COTANGENTS: dict[str, tuple[tuple[str, int | None, int | None], ...]] = {
    "convolution": (("convolution_image", None, 1), ("convolution_weights", 0, None)),
    "convolution_image": (("convolution", None, 1), ("convolution_weights", None, 0)),
    "convolution_weights": (("convolution_image", 1, None), ("convolution", 0, None)),
}


def _convolution_tangents(call: RuleCall, tangents: Sequence[Maybe]) -> Tangents:
    total: Maybe = None
    for place, t in enumerate(tangents):
        if t is not None:
            args = [t if i == place else a for i, a in enumerate(call.args)]
            (found,) = call.builder.host(call.name, args, [call.node.type], **call.options)
            total = add_tangents_in_rule(call.builder, total, found)
    return {0: total}


def _convolution_cotangents(call: RuleCall, cts: Cotangents) -> Sequence[Maybe]:
    builder, found = call.builder, list[Maybe]()
    fixed = {name: value for name, value in call.options.items() if name != "shape"}
    for (name, *places), arg, active in zip(_CONVOLUTION_COTANGENTS[call.name], call.args, call.active, strict=True):
        if not active:
            found.append(None)
            continue
        others = [cts[0] if p is None else conjugated_cotangent(builder, call.args[p]) for p in places]
        shaped = fixed if name == "convolution" else {**fixed, "shape": arg.shape}
        (part,) = builder.host(name, others, [_convolution_type_in_rule(others, arg.shape)], **shaped)
        found.append(cotangent_fitted_to(builder, part, arg))
    return found


CONVOLUTIONS: dict[str, Rule] = {
    "convolve": Linear(_convolve_tangents, _convolve_cotangents),
    **dict.fromkeys(_CONVOLUTION_COTANGENTS, Linear(_convolution_tangents, _convolution_cotangents)),
    "correlate": Written(_rewrite_correlate_for_derivative),
}
