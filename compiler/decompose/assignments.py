"""Assignments at indices and `ufunc.at` as each element's last, or combined, value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...runtime.interpret.numpy_calls import ARRAY
from ..core.types import INT64, UINT32, ArrayType
from ..graph.builder import GraphBuilder
from ..graph.graph import Node, Value, Values

ATS = ("add", "subtract", "multiply", "maximum", "minimum")
PART = 64  # values that are combined one after another: at least 8
SPARSE = 2  # places to a value, from which on most get none
SCALED = ("multiply", "divide")  # what a table's elements may be combined with one number by, as they are read


def decompose_setitem(builder: GraphBuilder, node: Node, args: Values) -> Value | str:
    """a[key] = value -> where(some index is here, value[the last of them], a)"""
    a, *arrays, value = args
    if 0 in a.shape or any(i.dtype.kind not in "iu" for i in arrays):
        return "no elements, or booleans as indices"
    places, shape = flat_numbers_of_assigned_elements(builder, a.shape, node.options["key"], arrays)
    if 0 in shape:
        return a
    wide = _broadcast_to_assigned_shape(builder, value, shape)
    return _decompose_scatter_of_last_values(builder, a, places, builder.reshape(wide, (-1,)))


def decompose_put_along_axis(builder: GraphBuilder, node: Node, args: Values) -> Value | str:
    """put_along_axis(a, indices, values, axis), as `setitem`"""
    a, indices, value = args
    axis = node.options.get("axis")
    if axis is None or 0 in a.shape or 0 in indices.shape or indices.ndim != a.ndim:
        return "no axis, or no elements"
    shape = builder.broadcast_shapes("put_along_axis", [indices.shape, *([value.shape] if value.shape else [])])
    others = [n for i, n in enumerate(a.shape) if i != axis]
    if [n for i, n in enumerate(shape) if i != axis] != others:
        return "indices that are broadcast"
    along = {i: builder.index(shape, i) for i in range(len(shape)) if i != axis}
    along[axis] = builder.broadcast(indices, shape)
    places = _flat_element_numbers_of_axes(builder, a.shape, [along[i] for i in range(len(shape))], {axis}, shape)
    return _decompose_scatter_of_last_values(
        builder, a, places, builder.reshape(_broadcast_to_assigned_shape(builder, value, shape), (-1,))
    )


def _decompose_scatter_of_last_values(builder: GraphBuilder, a: Value, places: Value, values: Value) -> Value:
    """`a` with the last of the values that have a place there."""
    size = math.prod(a.shape)
    (last,) = builder.host("last_places", [places], [ArrayType((size,), INT64)], length=size)
    known = builder.map("maximum", last, np.int64(0))
    found = builder.gather(builder.cast(values, a.dtype), [known], [0], [], (size,), checked=False)
    chosen = builder.map("where", builder.map("greater_equal", last, np.int64(0)), found, builder.reshape(a, (size,)))
    return builder.reshape(chosen, a.shape)


def decompose_ufunc_at(builder: GraphBuilder, node: Node, args: Values) -> Value | str:
    """ufunc.at(a, key, values) -> the values combined with the elements, in order"""
    options = node.options
    a, *arrays = args
    taken = sum(entry == ARRAY for entry in options["key"] if isinstance(entry, str))
    if len(arrays) != taken + 1 or options["ufunc"] not in ATS or 0 in a.shape or a.dtype.kind in "cb":
        return f"np.{options['ufunc']} of {a.dtype} has no kernel"
    *indices, value = arrays
    if any(i.dtype.kind not in "iu" for i in indices):
        return "booleans as indices"
    if value.shape and not np.can_cast(value.dtype, a.dtype, "safe"):
        return f"values of {value.dtype}"
    places, shape = flat_numbers_of_assigned_elements(builder, a.shape, options["key"], indices)
    if 0 in shape or math.prod(shape) >= 2**31:
        return "no indices, or 2**31"
    values = builder.reshape(builder.cast(_broadcast_to_assigned_shape(builder, value, shape), a.dtype), (-1,))
    size = math.prod(a.shape)
    flat = builder.reshape(a, (size,))
    types = [ArrayType((size,), a.dtype)]
    (result,) = builder.host("combine_at", [flat, places, values], types, ufunc=options["ufunc"])
    return builder.reshape(result, a.shape)


def decompose_combine_at(builder: GraphBuilder, node: Node, args: Values) -> Value | str:
    """combine_at(a, places, values) -> values combined in the order of their places, which is found once for all calls
    with these places; of values that are themselves taken from a table, the table's elements in that order, and of a
    table that is another times a number, that one's"""
    a, places, values = args
    length, size, ufunc = places.shape[0], a.shape[0], node.options["ufunc"]
    if ufunc not in ATS or length >= 2**31 or size >= 2**32 - 1 or a.dtype.kind in "cb":
        return ""
    starts = size <= SPARSE * length
    types = [ArrayType((1 + 2 * length + (size + 1 if starts else 0),), UINT32)]
    places = _places_in_32_bits(builder, places, size)
    (order,) = builder.host("places_in_order", [places], types, length=size, part=PART, starts=starts)
    which = builder.slice(order, [1 + length], [1], [length])
    table, source = values, builder.nodes[values.number]
    if source.op == "gather" and len(source.args) == 2 and len(builder.at(source.args[0]).shape) == 1:
        table, index = map(builder.at, source.args)
        if source.attr("checked"):  # as the index is, for all turns of a loop at once
            index = builder.gather(builder.cast(builder.index(table.shape, 0), UINT32), [index], [0], [], (length,))
        which = builder.gather(builder.cast(index, UINT32), [which], [0], [], (length,), checked=False)
    scaled, table, factor = _table_and_factor(builder, table)
    arrays = [a, order, table, which, *factor]
    return builder.host("combine_in_order", arrays, [node.type], ufunc=ufunc, part=PART, scaled=scaled)[0]


def _places_in_32_bits(builder: GraphBuilder, places: Value, size: int) -> Value:
    """Those of 64 bits in half of them; what is out of range stays so."""
    if places.dtype.itemsize < 8:
        return places
    places = builder.map("minimum", places, builder.const(size, places.dtype))
    signed = places.dtype.kind == "i"
    return builder.cast(builder.map("maximum", places, np.int64(-1)) if signed else places, UINT32)


def _table_and_factor(builder: GraphBuilder, table: Value) -> tuple[str, Value, list[Value]]:
    """How an array is another's elements and one number, and those; `""` and itself where it is not. What reads it need
    not wait for it to be stored."""
    node = builder.nodes[table.number]
    if node.op in SCALED and table.dtype.name in ("float32", "float64"):
        elements, factor = map(builder.at, node.args)
        if node.op == "multiply" and not elements.shape:
            elements, factor = factor, elements
        if elements.type == table.type and factor.type == ArrayType((), table.dtype):
            return node.op, elements, [factor]
    return "", table, []


def _broadcast_to_assigned_shape(builder: GraphBuilder, value: Value, shape: tuple[int, ...]) -> Value:
    """The value broadcast to what it is assigned to, without leading axes of length 1 that this has not."""
    excess = max(value.ndim - len(shape), 0)
    return builder.broadcast(builder.reshape(value, value.shape[excess:]), shape)


def flat_numbers_of_assigned_elements(
    builder: GraphBuilder, shape: Sequence[int], key: Sequence[Any], arrays: Values
) -> tuple[Value, tuple[int, ...]]:
    """The flat numbers of the elements of a[key], -1 where an index is out of range; and the shape of a[key]."""
    together = builder.broadcast_shapes("indexing", [a.shape for a in arrays])
    lengths: list[int] = []  # of what is no index
    entries: list[Any] = []  # for each axis: a slice's range and its place in `lengths`, an int, or an array
    places: list[int] = []
    first, left = -1, list(arrays)
    for place, entry in enumerate(key):
        if entry is None or entry is Ellipsis:
            lengths += [1] if entry is None else []
            continue
        n = shape[len(entries)]
        if isinstance(entry, tuple):
            entries.append((range(*slice(*entry).indices(n)), len(lengths)))
            lengths.append(len(entries[-1][0]))
            continue
        first = len(lengths) if first < 0 else first
        places.append(place)
        entries.append(left.pop(0) if entry == ARRAY else int(entry))
    for n in shape[len(entries) :]:
        entries.append((range(n), len(lengths)))
        lengths.append(n)
    adjacent = places[-1] - places[0] + 1 == len(places)
    at = first if adjacent else 0
    result = (*lengths[:at], *together, *lengths[at:])
    along, computed = [], set[int]()
    for axis, entry in enumerate(entries):
        if isinstance(entry, tuple):
            steps, own = entry
            index = builder.index(result, own if own < at else own + len(together))
            index = builder.map("multiply", index, np.int64(steps.step)) if steps.step != 1 else index
            along.append(builder.map("add", index, np.int64(steps.start)) if steps.start else index)
        elif isinstance(entry, int):
            along.append(builder.const(np.int64(entry % shape[axis]), INT64))
        else:
            computed.add(axis)
            along.append(builder.reshape(entry, (*entry.shape, *(1,) * (len(lengths) - at))))
    return _flat_element_numbers_of_axes(builder, shape, along, computed, result), result


def _flat_element_numbers_of_axes(
    builder: GraphBuilder, shape: Sequence[int], along: Values, computed: set[int], result: tuple[int, ...]
) -> Value:
    """Element numbers from the index along each axis; those of `computed` axes count from the end where negative."""
    wides: list[Value] = []
    good: Value | None = None
    for axis, index in enumerate(along):
        n = shape[axis]
        wide = builder.cast(index, INT64)
        if axis in computed:
            wide = builder.from_front(wide, n)
            low = builder.map("greater_equal", wide, np.int64(0))
            inside = builder.map("logical_and", low, builder.map("less", wide, np.int64(n)))
            good = inside if good is None else builder.map("logical_and", good, inside)
        wides.append(wide)
    total = builder.element_numbers(shape, wides)
    if good is not None:
        total = builder.map("where", good, total, np.int64(-1))
    return builder.reshape(builder.broadcast(total, result), (-1,))
