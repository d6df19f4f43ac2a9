"""Cotangents as they come together at a node. They are parts of arrays, whose sum is made when all are there.

What comes back through a slice is the cotangent of the slice with zeros around it. Several slices of one array, the
neighbours of a stencil say, bring the same cotangent at several places: their sum is made of shifted reads of one
array with zeros around it, and so is a stencil too. Of a large array the inside, where no part has zeros, is a sum of
shifted reads of the cotangent itself, which need not be stored for it; zeros are put around strips at its edges.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from ....runtime.core.frozen import frozen
from ...core.types import INT64
from ...graph.builder import GraphBuilder
from ...graph.graph import Node, Value, Values
from .call import transpose_matrices_in_rule, zero_cotangent


@frozen
class CotangentPart:
    """Zeros, but for the elements `starts + i * steps`, which are the value's."""

    value: Value
    starts: tuple[int, ...]
    steps: tuple[int, ...]

    def is_whole(self, shape: Sequence[int]) -> bool:
        """Whether it is an array of this shape, with no zeros around it."""
        return (
            self.value.shape == tuple(shape)
            and not any(self.starts)
            and all(step == 1 or n == 1 for step, n in zip(self.steps, shape, strict=True))
        )


def whole_cotangent(value: Value) -> CotangentPart:
    """All of an array."""
    return CotangentPart(value, (0,) * value.ndim, (1,) * value.ndim)


def total_cotangent(builder: GraphBuilder, parts: Sequence[CotangentPart], like: Value) -> Value:
    """The sum of cotangents of an array of the type of `like`."""
    full = [p.value for p in parts if p.is_whole(like.shape)]
    others = [p for p in parts if not p.is_whole(like.shape) and p.value.size]
    result = _sum_of_cotangents(builder, full)
    if others:
        result = _sum_of_cotangents(
            builder, ([] if result is None else [result]) + _padded_cotangent_parts(builder, others, like)
        )
    return zero_cotangent(builder, like) if result is None else result


def _sum_of_cotangents(builder: GraphBuilder, values: Values) -> Value | None:
    found = None
    for value in _joined_cotangent_products(builder, values):
        found = value if found is None else builder.map("add", found, value)
    return found


TOGETHER = 64  # products that become one


def _joined_cotangent_products(builder: GraphBuilder, values: Values) -> list[Value]:
    """a @ b + c @ d -> [a c] @ [b; d], where both are small beside the products: the gradient of a matrix that each
    turn of a loop multiplies by is one product."""
    alike: dict[tuple[tuple[int, ...], np.dtype[Any]], list[tuple[Value, Value]]] = {}
    found: list[Value] = []
    for value in values:
        node = builder.nodes[value.number]
        args = [builder.at(n) for n in node.args]
        small = sum(a.size for a in args) <= value.size
        plain = node.op == "matmul" and not node.attrs and all(a.ndim == 2 for a in args)
        if small and plain and all(a.dtype == value.dtype for a in args):
            alike.setdefault((value.shape, value.dtype), []).append((args[0], args[1]))
        else:
            found.append(value)
    for pairs in alike.values():
        for first in range(0, len(pairs), TOGETHER):
            left, right = zip(*pairs[first : first + TOGETHER], strict=True)
            found.append(
                builder.matmul(
                    _join_cotangent_factors_side_by_side(builder, left, 1),
                    _join_cotangent_factors_side_by_side(builder, right, 0),
                )
            )
    return found


def _join_cotangent_factors_side_by_side(builder: GraphBuilder, values: Values, axis: int) -> Value:
    """Matrices joined, by their rows in memory where all are transposed."""
    nodes = [builder.nodes[v.number] for v in values]
    if len(values) == 1:
        return values[0]
    if all(node.op == "permute" for node in nodes):
        return transpose_matrices_in_rule(
            builder, builder.concat([builder.at(node.args[0]) for node in nodes], 1 - axis)
        )
    return builder.concat(values, axis)


def _padded_cotangent_parts(builder: GraphBuilder, parts: Sequence[CotangentPart], like: Value) -> list[Value]:
    """What the parts add up to, as few arrays."""
    if _are_cotangent_parts_disjoint(parts):
        base = zero_cotangent(builder, like)
        for p in parts:
            base = builder.update(base, p.value, p.starts, p.steps)
        return [base]
    shifted: dict[tuple[int, tuple[int, ...]], list[CotangentPart]] = {}  # the same values at several places
    single: list[CotangentPart] = []
    for part in parts:
        root, factors = _strip_cotangent_constant_factors(builder, part.value)
        if all(step == 1 for step in part.steps):
            shifted.setdefault((root.number, factors), []).append(CotangentPart(root, part.starts, part.steps))
        else:
            single.append(part)
    found = [builder.update(zero_cotangent(builder, like), p.value, p.starts, p.steps) for p in single]
    if shifted:
        found.append(_sum_of_shifted_parts(builder, shifted, like.shape))
    return found


Shifted: TypeAlias = Mapping[tuple[int, tuple[int, ...]], Sequence[CotangentPart]]
"""Parts without gaps by what they share: a value, by its node, and the constants that it is multiplied by."""
INSIDE = 1 << 20  # elements: strips around fewer take longer than zeros around all


def _sum_of_shifted_parts(builder: GraphBuilder, shifted: Shifted, shape: tuple[int, ...]) -> Value:
    """The sum of parts of an array of `shape`; if none has zeros in most of it, that inside and strips around it."""
    parts, axes = [part for group in shifted.values() for part in group], range(len(shape))
    first = [max(0, *(p.starts[axis] for p in parts)) for axis in axes]
    end = [min(shape[axis], *(p.starts[axis] + p.value.shape[axis] for p in parts)) for axis in axes]
    inside = math.prod(max(0, b - a) for a, b in zip(first, end, strict=True))
    if inside < max(INSIDE, math.prod(shape) * 3 // 4) or all(
        _is_broadcast_cotangent_number(builder, p.value) for p in parts
    ):
        return _sum_in_zero_frames(builder, shifted, shape)
    value = _sum_in_box(builder, shifted, first, end)
    for axis in reversed(axes):
        cuts, pieces = (0, first[axis], end[axis], shape[axis]), [value]
        for place, (a, b) in ((0, cuts[:2]), (2, cuts[2:])):
            first[axis], end[axis] = a, b
            if a < b:
                pieces.insert(place, _sum_in_box(builder, shifted, first, end))
        value = builder.concat(pieces, axis) if len(pieces) > 1 else value
        first[axis], end[axis] = 0, shape[axis]
    return value


def _sum_in_box(builder: GraphBuilder, shifted: Shifted, first: Sequence[int], end: Sequence[int]) -> Value:
    """The elements of the sum from `first` on. Of each value as much as is read is looked up, zeros beyond it."""
    shape, ones = tuple(b - a for a, b in zip(first, end, strict=True)), (1,) * len(first)
    boxes: dict[int, list[Any]] = {}  # value -> the least box that holds what is read of it
    inside: dict[tuple[int, tuple[int, ...]], list[CotangentPart]] = {}
    for key, group in shifted.items():
        for p in group:
            begins = [max(0, a - s) for a, s in zip(first, p.starts, strict=True)]
            ends = [min(n, b - s) for n, b, s in zip(p.value.shape, end, p.starts, strict=True)]
            if all(a < b for a, b in zip(begins, ends, strict=True)):
                low, high = boxes.get(p.value.number, (begins, ends))
                boxes[p.value.number] = [[*map(min, low, begins)], [*map(max, high, ends)]]
                inside.setdefault(key, []).append(p)

    def read_part(part: CotangentPart) -> Value:
        low, high = boxes[part.value.number]
        value = builder.slice(part.value, low, ones, [b - a for a, b in zip(low, high, strict=True)])
        starts = tuple(s + a - f for s, a, f in zip(part.starts, low, first, strict=True))
        return _looked_up_part(builder, CotangentPart(value, starts, ones), shape)

    if not inside:
        dtype = next(iter(shifted.values()))[0].value.dtype
        return builder.broadcast(builder.const(0, dtype), shape)
    return _scaled_sum(builder, inside, read_part)


def _sum_in_zero_frames(builder: GraphBuilder, shifted: Shifted, shape: tuple[int, ...]) -> Value:
    """The sum of parts of an array of `shape`, of each value with zeros around it."""
    roots: dict[int, list[CotangentPart]] = {}
    for (root_number, _), group in shifted.items():
        roots.setdefault(root_number, []).extend(group)
    frames = {number: _CotangentZeroFrame(builder, group, shape) for number, group in roots.items()}
    return _scaled_sum(builder, shifted, lambda part: frames[part.value.number].at(part))


def _scaled_sum(builder: GraphBuilder, shifted: Shifted, read: Callable[[CotangentPart], Value]) -> Value:
    """The sum of what is read of the parts, those with the same factors multiplied together: before they are added
    where the factors are small, since the sum may be too large for its type by itself."""
    found = []
    for (_, factors), group in shifted.items():
        values = [read(p) for p in group]
        if small := _cotangent_factors_are_small(builder, factors):
            values = [_scaled_cotangent(builder, value, factors) for value in values]
        value = _sum_of_cotangents(builder, values)
        assert value is not None
        found.append(value if small else _scaled_cotangent(builder, value, factors))
    total = _sum_of_cotangents(builder, found)
    assert total is not None
    return total


class _CotangentZeroFrame:
    """One array with zeros around it, of which all parts are slices."""

    def __init__(self, builder: GraphBuilder, parts: Sequence[CotangentPart], shape: tuple[int, ...]) -> None:
        value = parts[0].value
        self.builder, self.shape = builder, shape
        firsts = list(zip(*(p.starts for p in parts), strict=True))
        self.before = tuple(max(s) for s in firsts)  # zeros in front, as many as the part furthest behind has
        after = [n - m - min(s) for n, m, s in zip(shape, value.shape, firsts, strict=True)]
        frame = tuple(b + n + a for b, n, a in zip(self.before, value.shape, after, strict=True))
        self.constant = _is_broadcast_cotangent_number(builder, value)
        self.value = value
        if not self.constant:
            base = builder.broadcast(builder.const(0, value.dtype), frame)
            self.value = builder.update(base, value, self.before, (1,) * len(frame))

    def at(self, part: CotangentPart) -> Value:
        """The part, with the zeros that belong to it."""
        if self.constant:
            return _masked_cotangent_in_box(self.builder, part, self.shape)
        starts = [b - s for b, s in zip(self.before, part.starts, strict=True)]
        return self.builder.slice(self.value, starts, (1,) * len(starts), self.shape)


def _is_broadcast_cotangent_number(builder: GraphBuilder, value: Value) -> bool:
    """Whether it is one number, broadcast."""
    node = builder.nodes[value.number]
    while node.op in ("broadcast", "reshape"):
        if node.size == 1:
            return True
        node = builder.nodes[node.args[0]]
    return node.size == 1


def _masked_cotangent_in_box(builder: GraphBuilder, part: CotangentPart, shape: tuple[int, ...]) -> Value:
    """One number in a box, zeros around it: no array is read for it."""
    node = builder.nodes[part.value.number]
    number = part.value
    while node.op in ("broadcast", "reshape") and number.type.size != 1:
        number = builder.at(node.args[0])
        node = builder.nodes[number.number]
    return _zero_outside_of_box(builder, builder.reshape(number, ()), part, shape)


def _zero_outside_of_box(builder: GraphBuilder, value: Value, part: CotangentPart, shape: tuple[int, ...]) -> Value:
    """`value` where the part has elements of its own, else zeros."""
    inside = None
    for axis, (start, n, length) in enumerate(zip(part.starts, part.value.shape, shape, strict=True)):
        index = builder.index(shape, axis)
        low = builder.map("greater_equal", index, builder.const(start, INT64)) if start > 0 else None
        high = builder.map("less", index, builder.const(start + n, INT64)) if start + n < length else None
        for test in (low, high):
            if test is not None:
                inside = test if inside is None else builder.map("logical_and", inside, test)
    if inside is None:
        return builder.broadcast(value, shape)
    return builder.map("where", inside, value, builder.const(0, value.dtype))


def _looked_up_part(builder: GraphBuilder, part: CotangentPart, shape: tuple[int, ...]) -> Value:
    """A part whose value may begin before an array of `shape` or end after it."""
    if all(s <= 0 and s + n >= m for s, n, m in zip(part.starts, part.value.shape, shape, strict=True)):
        return builder.slice(part.value, [-s for s in part.starts], part.steps, shape)
    indices = []
    for axis, (start, n) in enumerate(zip(part.starts, part.value.shape, strict=True)):
        index = builder.map("subtract", builder.index(shape, axis), np.int64(start))
        indices.append(builder.map("minimum", builder.map("maximum", index, np.int64(0)), np.int64(n - 1)))
    found = builder.gather(part.value, indices, range(len(shape)), [], shape, checked=False)
    return _zero_outside_of_box(builder, found, part, shape)


def _strip_cotangent_constant_factors(builder: GraphBuilder, value: Value) -> tuple[Value, tuple[int, ...]]:
    """(x, factors) where the value is x times these constants, by their nodes; -1 stands for a change of sign."""
    factors: list[int] = []
    while True:
        node = builder.nodes[value.number]
        if node.op == "negative":
            value = builder.at(node.args[0])
            factors.remove(-1) if -1 in factors else factors.append(-1)
            continue
        constant = _constant_factor_of_cotangent(builder, node) if node.op == "multiply" else None
        if constant is None:
            return value, tuple(factors)
        x, factor = constant
        value = x
        factors.append(factor)


def _constant_factor_of_cotangent(builder: GraphBuilder, node: Node) -> tuple[Value, int] | None:
    for one, other in ((0, 1), (1, 0)):
        factor, x = builder.nodes[node.args[one]], builder.at(node.args[other])
        if factor.op == "const" and _is_finite_cotangent_factor(factor) and x.shape == node.shape:
            return x, node.args[one]
    return None


def _is_finite_cotangent_factor(node: Node) -> bool:
    return bool(np.isfinite(np.frombuffer(node.attr("value"), node.dtype)[0]))


def _cotangent_factors_are_small(builder: GraphBuilder, factors: Sequence[int]) -> bool:
    """Whether their product is below 1."""
    nodes = [builder.nodes[factor] for factor in factors if factor != -1]
    return math.prod(abs(complex(np.frombuffer(n.attr("value"), n.dtype)[0])) for n in nodes) < 1


def _scaled_cotangent(builder: GraphBuilder, value: Value, factors: Sequence[int]) -> Value:
    for factor in reversed(factors):
        negative = factor == -1
        value = builder.map("negative", value) if negative else builder.map("multiply", value, builder.at(factor))
    return value


def _are_cotangent_parts_disjoint(parts: Sequence[CotangentPart]) -> bool:
    """Whether no two parts have an element in common along some axis, so that they can be put side by side."""
    if len(parts) > 64:
        return False
    boxes = [_bounding_box_of_cotangent_part(p) for p in parts]
    return all(
        any(b < c or d < a for (a, b), (c, d) in zip(one, two, strict=True))
        or _do_cotangent_parts_interleave(parts[i], parts[j])
        for i, one in enumerate(boxes)
        for j, two in enumerate(boxes[:i])
    )


def _do_cotangent_parts_interleave(one: CotangentPart, two: CotangentPart) -> bool:
    """Whether they go in the same steps along some axis, from starts that never meet."""
    return any(
        s == t and abs(s) > 1 and (a - b) % s != 0
        for s, t, a, b in zip(one.steps, two.steps, one.starts, two.starts, strict=True)
    )


def _bounding_box_of_cotangent_part(part: CotangentPart) -> list[tuple[int, int]]:
    """The first and the last element along each axis."""
    found = []
    for start, step, n in zip(part.starts, part.steps, part.value.shape, strict=True):
        end = start + step * (n - 1)
        found.append((min(start, end), max(start, end)))
    return found
