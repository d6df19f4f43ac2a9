"""Rules of running sums and products, and of ufuncs' methods."""

from __future__ import annotations

from collections.abc import Sequence

from ...graph.builder import GraphBuilder
from ...graph.graph import Value
from ..core.call import Call
from ..core.kinds import Choice, Linear, Maybe, Refused, Rule, Written


def flipped(builder: GraphBuilder, value: Value, axis: int) -> Value:
    """Reversed along an axis."""
    shape = value.shape
    starts = [n - 1 if i == axis else 0 for i, n in enumerate(shape)]
    steps = [-1 if i == axis else 1 for i in range(len(shape))]
    return builder.slice(value, starts, steps, shape) if value.type.size else value


def _sum(call: Call, tangents: Sequence[Maybe]) -> dict[int, Maybe]:
    (t,) = tangents
    return {0: None if t is None else call.builder.add("host", (t.number,), call.node.type, call.node.attrs)}


def _unsum(call: Call, cts: dict[int, Value]) -> Sequence[Maybe]:
    """The running sum from the other end."""
    builder, axis, ct = call.builder, call.options.get("axis", 0), cts[0]
    if ct.shape != call.args[0].shape:  # with the initial zero
        starts = tuple(1 if i == axis else 0 for i in range(len(ct.shape)))
        ct = builder.slice(ct, starts, (1,) * len(starts), call.args[0].shape)
    turned = flipped(builder, ct, axis)
    (summed,) = builder.host("cumsum", [turned], [turned.type], axis=axis)
    return [builder.cast(flipped(builder, summed, axis), call.args[0].dtype)]


def _products(call: Call) -> dict[int, Value]:
    """Running products in log2(n) steps, each of twice as many factors (Hillis and Steele, 1986): their derivatives,
    to any order, divide by nothing."""
    builder, (x,), axis = call.builder, call.args, call.options.get("axis", 0)
    value, n, step, ones = x, x.shape[axis], 1, (1,) * len(x.shape)

    def part(source: Value, start: int, length: int) -> Value:
        starts = [start if i == axis else 0 for i in range(len(ones))]
        return builder.slice(source, starts, ones, [length if i == axis else m for i, m in enumerate(source.shape)])

    while step < n:
        both = builder.map("multiply", part(value, step, n - step), part(value, 0, n - step))
        value = builder.concat([part(value, 0, step), both], axis)
        step *= 2
    value = builder.cast(value, call.node.type.dtype)
    if value.shape != call.node.type.shape:  # with the initial one
        first = builder.broadcast(builder.const(1, value.dtype), [1 if i == axis else m for i, m in enumerate(x.shape)])
        value = builder.concat([first, value], axis)
    return {0: value}


def _by_ufunc(rules: dict[str, Rule], what: str) -> Choice:
    def chosen(call: Call) -> Rule:
        ufunc = call.options["ufunc"]
        return rules.get(ufunc, Refused(f"np.{ufunc}.{what} has no derivative; give it one with kg.custom_vjp"))

    return Choice(chosen)


_SUM, _PRODUCT = Linear(_sum, _unsum), Written(_products)
CUMULATIVE: dict[str, Rule] = {
    "cumsum": _SUM,
    "cumulative_sum": _SUM,
    "cumprod": _PRODUCT,
    "cumulative_prod": _PRODUCT,
    "accumulate": _by_ufunc({"add": _SUM, "multiply": _PRODUCT}, "accumulate"),
    "reduceat": _by_ufunc({}, "reduceat"),
    "ufunc_reduce": _by_ufunc({}, "reduce"),
    "nonempty": Linear(lambda call, t: {0: t[0]}, lambda call, cts: [cts[0], None], lambda call, place: place == 0),
    "view": Refused("a view of other bits has no derivative; write x.astype(dtype), or kg.custom_vjp"),
}
