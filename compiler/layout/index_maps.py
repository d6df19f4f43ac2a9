"""Index maps: where in a node's array an iteration of a kernel looks. Plain tuples, composed through view nodes.

A map has one entry (axis, step, start) per axis of the node: the index is `start + step * domain_index[axis]`; axis is
-1 where it does not move. Axes of length 1 are always (-1, 0, 0), so that equal maps compare equal.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..core.types import ArrayType
from ..graph.graph import Node

Entry = tuple[int, int, int]
Map = tuple[Entry, ...]
FIXED: Entry = (-1, 0, 0)


def identity_index_map(shape: Sequence[int], axes: Sequence[int] | None = None) -> Map:
    """The map that reads element i at iteration i; `axes` names the domain axis of each of the node's axes."""
    where = range(len(shape)) if axes is None else axes
    return tuple((axis, 1, 0) if n != 1 else FIXED for axis, n in zip(where, shape, strict=True))


def renumber_index_map_axes(m: Map, axes: dict[int, int]) -> Map:
    """The same map over a domain whose axes have other numbers."""
    return tuple((axes[a], step, start) if a >= 0 else (a, step, start) for a, step, start in m)


def index_map_depends_on(m: Map, axes: frozenset[int]) -> bool:
    """Whether the element read depends on any of the domain's `axes`."""
    return any(entry[0] in axes for entry in m)


def is_index_map_view(node: Node) -> bool:
    return node.op in _THROUGH


def pointwise_index_maps(node: Node) -> tuple[int, ...]:
    """The arguments that are evaluated point by point, at the maps that `through` gives; of a gather all but the array
    that it looks up."""
    return node.args[1:] if node.op == "gather" else node.args


def index_map_through_node(node: Node, arg: ArrayType, m: Map) -> Map:
    """The map of an argument, of type `arg`, when `node` is evaluated at `m`. node: a view or an elementwise node."""
    rule = _THROUGH.get(node.op)
    return _index_map_through_broadcast(node, arg, m) if rule is None else rule(node, arg, m)


def _index_map_through_broadcast(node: Node, arg: ArrayType, m: Map) -> Map:
    if arg.shape == node.type.shape:
        return m
    missing = len(m) - len(arg.shape)
    return tuple(FIXED if n == 1 else entry for n, entry in zip(arg.shape, m[missing:], strict=True))


def _index_map_through_slice(node: Node, arg: ArrayType, m: Map) -> Map:
    pairs = zip(m, node.attr("starts"), node.attr("steps"), arg.shape, strict=True)
    return tuple(
        FIXED if n == 1 else ((a, s * step, b + s * start) if a >= 0 else (-1, 0, b + s * start))
        for (a, step, start), b, s, n in pairs
    )


def _index_map_through_permute(node: Node, arg: ArrayType, m: Map) -> Map:
    entries = [FIXED] * len(m)
    for i, axis in enumerate(node.attr("axes")):
        entries[axis] = m[i]
    return tuple(entries)


def _index_map_through_unit_axes(node: Node, arg: ArrayType, m: Map) -> Map:
    moving = iter(entry for entry, n in zip(m, node.type.shape, strict=True) if n != 1)
    return tuple(FIXED if n == 1 else next(moving) for n in arg.shape)


_THROUGH = {
    "slice": _index_map_through_slice,
    "permute": _index_map_through_permute,
    "broadcast": _index_map_through_broadcast,
    "reshape": _index_map_through_unit_axes,
}


def is_memory_view(node: Node, arg: ArrayType) -> bool:
    """Whether a view is one of memory: no map says where an element of it lies in its argument."""
    return node.op == "windows" or (
        node.op == "reshape" and not shapes_differ_in_unit_axes_only(node.type.shape, arg.shape)
    )


def memory_view_strides(node: Node, shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...] | None:
    """The strides of a view of memory of this shape and strides; None where only a copy has such elements in a row."""
    if node.op == "slice":
        return tuple(s * t for s, t in zip(strides, node.attr("steps"), strict=True))
    if node.op == "permute":
        return tuple(strides[a] for a in node.attr("axes"))
    if node.op == "broadcast":
        own = tuple(0 if n == 1 else s for n, s in zip(shape, strides, strict=True))
        return (0,) * (len(node.type.shape) - len(shape)) + own
    if node.op == "windows":
        return (*strides, strides[node.attr("axis")])
    return reshape_strides(shape, strides, node.type.shape)


def shapes_differ_in_unit_axes_only(a: Sequence[int], b: Sequence[int]) -> bool:
    """Whether two shapes differ in axes of length 1 alone."""
    return [n for n in a if n != 1] == [n for n in b if n != 1]


def contiguous_strides(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """C-order strides in bytes."""
    strides, step = [], itemsize
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


def reshape_strides(shape: Sequence[int], strides: Sequence[int], wanted: Sequence[int]) -> tuple[int, ...] | None:
    """The strides with which `wanted` sees the same memory in C order. None where only a copy can."""
    if 0 in shape:  # whole elements: a kernel masks what moves along its axis, and reads at once what does not
        return contiguous_strides(wanted, min((abs(s) for s in strides if s), default=0))
    old = [(n, s) for n, s in zip(shape, strides, strict=True) if n != 1]
    result: list[int] = []
    position = 0
    for n in wanted:
        if n == 1:
            result.append(0)
            continue
        # take old axes until they hold n elements, or split n off the one at hand
        if position >= len(old):
            return None
        have, stride = old[position]
        while have < n or have % n:  # merge: the next axis must continue this one
            if position + 1 >= len(old):
                return None
            next_n, next_stride = old[position + 1]
            if stride != next_n * next_stride:
                return None
            have, stride = have * next_n, next_stride
            position += 1
        rest = have // n
        result.append(stride * rest)
        if rest == 1:
            position += 1
        else:
            old[position] = (rest, stride)
    return tuple(result)
