"""Rules of elements at computed places: gathers, and assignments at indices, which is what they are transposed to."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...core.types import INT64, ArrayType
from ...decompose.assignments import flat_places
from ...graph.builder import GraphBuilder
from ...graph.graph import Value
from ..core.call import Call, fitted, zeros
from ..core.kinds import Choice, Linear, Maybe, Refused, Rule
from .structure import filled


def gathered_places(call: Call) -> Value:
    """The numbers of the elements that a gather reads, in the order of its result, as one axis."""
    builder, a, indices = call.builder, call.args[0], call.args[1:]
    shape = call.node.type.shape
    along = dict(zip(call.attr("axes"), indices, strict=True))
    rest = iter(call.attr("rest"))
    found: Value | None = None
    for axis, n in enumerate(a.shape):
        if axis in along:
            index = along[axis]
            if call.attr("checked"):
                negative = builder.map("less", index, np.int64(0))
                index = builder.map("where", negative, builder.map("add", index, np.int64(n)), index)
        else:
            index = builder.index(shape, next(rest))
        step = math.prod(a.shape[axis + 1 :])
        index = builder.map("multiply", index, np.int64(step)) if step != 1 else index
        found = index if found is None else builder.map("add", found, index)
    if found is None:
        found = builder.const(np.int64(0), INT64)
    return builder.reshape(builder.broadcast(found, shape), (-1,) if math.prod(shape) else (0,))


def add_at(builder: GraphBuilder, base: Value, places: Value, values: Value) -> Value:
    """`np.add.at(base.flat, places, values)`: both of one axis."""
    if not values.type.size:
        return base
    flat = builder.reshape(base, (base.type.size,))
    (result,) = builder.host("combine_at", [flat, places, values], [flat.type], ufunc="add")
    return builder.reshape(result, base.shape)


def take(builder: GraphBuilder, a: Value, places: Value) -> Value:
    """The elements of `a` at flat places."""
    flat = builder.reshape(a, (a.type.size,))
    return builder.gather(flat, [places], [0], [], places.shape, checked=False)


def _gather(call: Call, tangents: Sequence[Maybe]) -> dict[int, Maybe]:
    t = tangents[0]
    args = (0 if t is None else t.number, *(a.number for a in call.args[1:]))
    return {0: None if t is None else call.builder.add("gather", args, call.node.type, call.node.attrs)}


def _ungather(call: Call, cts: dict[int, Value]) -> Sequence[Maybe]:
    builder, a, ct = call.builder, call.args[0], cts[0]
    values = builder.reshape(ct, (ct.type.size,))
    found = add_at(builder, zeros(builder, a), gathered_places(call), values)
    return [found, *[None] * (len(call.args) - 1)]


def _combine(call: Call, tangents: Sequence[Maybe]) -> dict[int, Maybe]:
    base, _, values = filled(call, tangents)
    return {0: _again(call, [base, call.args[1], values])}


def _again(call: Call, args: Sequence[Value]) -> Value:
    return call.builder.add("host", tuple(a.number for a in args), call.node.type, call.node.attrs)


def _uncombine(call: Call, cts: dict[int, Value]) -> Sequence[Maybe]:
    return [cts[0], None, take(call.builder, cts[0], call.args[1]) if call.active[2] else None]


def _assign(call: Call, tangents: Sequence[Maybe]) -> dict[int, Maybe]:
    given = filled(call, tangents)
    return {0: _again(call, [given[0], *call.args[1:-1], given[-1]])}


def last_ones(builder: GraphBuilder, places: Value, size: int) -> Value:
    """Of values that are assigned one after the other: those that stay."""
    (last,) = builder.host("last_places", [places], [ArrayType((size,), INT64)], length=size)
    return builder.map("equal", take(builder, last, places), builder.index(places.shape, 0))


def _unassign(call: Call, cts: dict[int, Value], places: Value, shape: tuple[int, ...]) -> Sequence[Maybe]:
    """The base keeps the cotangent where nothing was assigned; the value gets it at its places."""
    builder, ct, value = call.builder, cts[0], call.args[-1]
    keys = call.args[1:-1]
    base = _again(call, [ct, *keys, builder.const(0, value.dtype) if not value.shape else zeros(builder, value)])
    found: Maybe = None
    if call.active[-1]:
        seen = take(builder, ct, places)
        stays = last_ones(builder, places, ct.type.size)
        seen = builder.map("where", stays, seen, builder.const(0, ct.dtype))
        excess = max(len(value.shape) - len(shape), 0)
        reached = builder.reshape(seen, shape)
        shaped = builder.reshape(value, value.shape[excess:])
        found = builder.reshape(fitted(builder, reached, shaped), value.shape)
    return [base if call.active[0] else None, *[None] * len(keys), found]


def _unset(call: Call, cts: dict[int, Value]) -> Sequence[Maybe]:
    places, shape = flat_places(call.builder, call.node.type.shape, call.options["key"], call.args[1:-1])
    return _unassign(call, cts, places, shape)


def _unput_along_axis(call: Call, cts: dict[int, Value]) -> Sequence[Maybe]:
    builder, ct, indices, axis = call.builder, cts[0], call.args[1], call.options.get("axis")
    if axis is None:
        size = ct.type.size
        flat = builder.cast(builder.reshape(indices, (-1,)), INT64)
        places = builder.map(
            "where", builder.map("less", flat, np.int64(0)), builder.map("add", flat, np.int64(size)), flat
        )
        return _unassign(call, cts, places, places.shape)
    shape = tuple(indices.shape[axis] if i == axis else n for i, n in enumerate(ct.shape))
    found: Value | None = None
    for i, n in enumerate(ct.shape):
        index = builder.index(shape, i)
        if i == axis:
            index = builder.cast(builder.broadcast(indices, shape), INT64)
            negative = builder.map("less", index, np.int64(0))
            index = builder.map("where", negative, builder.map("add", index, np.int64(n)), index)
        step = math.prod(ct.shape[i + 1 :])
        index = builder.map("multiply", index, np.int64(step)) if step != 1 else index
        found = index if found is None else builder.map("add", found, index)
    assert found is not None
    return _unassign(call, cts, builder.reshape(found, (-1,)), shape)


def _unat(call: Call, cts: dict[int, Value]) -> Sequence[Maybe]:
    builder, ct, value, options = call.builder, cts[0], call.args[-1], call.options
    keys = call.args[1:-1]
    found: Maybe = None
    if call.active[-1]:
        places, shape = flat_places(builder, ct.shape, options["key"], keys)
        seen = builder.reshape(take(builder, ct, places), shape)
        seen = builder.map("negative", seen) if options["ufunc"] == "subtract" else seen
        found = fitted(builder, seen, value)
    return [ct if call.active[0] else None, *[None] * len(keys), found]


_AT = Linear(_assign, _unat)


def _at_of(call: Call) -> Rule:
    ufunc = call.options["ufunc"]
    if ufunc in ("add", "subtract"):
        return _AT
    return Refused(f"np.{ufunc}.at has no derivative; np.add.at has one, and kg.custom_vjp gives one")


GATHER: dict[str, Rule] = {"gather": Linear(_gather, _ungather, lambda call, place: place == 0)}
ASSIGNMENTS: dict[str, Rule] = {
    "combine_at": Linear(_combine, _uncombine),
    "setitem": Linear(_assign, _unset),
    "put_along_axis": Linear(_assign, _unput_along_axis),
    "at": Choice(_at_of),
    "put": Refused("np.put has no derivative; write x[indices] = values"),
    "place": Refused("np.place has no derivative; write np.where(mask, values, x)"),
}
