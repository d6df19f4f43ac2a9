"""Index maps, and what the kernels of a group are made of. Operands, iteration spaces, running values, stencils.

An index map says where in a node's array an iteration of a kernel looks: a plain tuple, composed through view nodes. It
has one entry (axis, step, start) per axis of the node: the index is `start + step * domain_index[axis]`; axis is -1
where it does not move. Axes of length 1 are always (-1, 0, 0), so that equal maps compare equal. A stencil's operands
are views of one array, shifted against each other.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ...runtime.core.frozen import dataclass, frozen
from ...runtime.program.program import Int, Pointer, Region
from ..core.combiners import COMBINERS
from ..core.types import BOOL, FLOAT32, HALVES, INT64, ArrayType, DType, dtype_name, dtype_of
from ..graph.graph import Graph, Node
from ..kernel.loop_nest import LoopNest, Phase, Window

Entry = tuple[int, int, int]
Map = tuple[Entry, ...]
FIXED: Entry = (-1, 0, 0)


def identity_index_map(shape: Sequence[int], axes: Sequence[int] | None = None) -> Map:
    """The map that reads element i at iteration i. `axes` names the domain axis of each of the node's axes."""
    where = range(len(shape)) if axes is None else axes
    return tuple([(axis, 1, 0) if n != 1 else FIXED for axis, n in zip(where, shape, strict=True)])


def renumber_index_map_axes(m: Map, axes: dict[int, int]) -> Map:
    """The same map over a domain whose axes have other numbers."""
    return tuple((axes[a], step, start) if a >= 0 else (a, step, start) for a, step, start in m)


def index_map_depends_on(m: Map, axes: frozenset[int]) -> bool:
    """Whether the element read depends on any of the domain's `axes`."""
    for axis, _, _ in m:  # noqa: SIM110  # a generator takes twice as long
        if axis in axes:
            return True
    return False


def is_index_map_view(node: Node) -> bool:
    return node.op in _THROUGH


def pointwise_index_maps(node: Node) -> tuple[int, ...]:
    """The arguments that are evaluated point by point, at the maps that `through` gives. Of a gather all but the array
    that it looks up."""
    return node.args[1:] if node.op == "gather" else node.args


def index_map_through_node(node: Node, arg: ArrayType, m: Map) -> Map:
    """The map of an argument, of type `arg`, when `node` is evaluated at `m`. node: a view or an elementwise node."""
    rule = _THROUGH.get(node.op)
    return _index_map_through_broadcast(node, arg, m) if rule is None else rule(node, arg, m)


def _index_map_through_broadcast(node: Node, arg: ArrayType, m: Map) -> Map:
    if arg.shape == node.shape:
        return m
    missing = len(m) - arg.ndim
    return tuple([FIXED if n == 1 else entry for n, entry in zip(arg.shape, m[missing:], strict=True)])


def _index_map_through_slice(node: Node, arg: ArrayType, m: Map) -> Map:
    pairs = zip(m, node.attr("starts"), node.attr("steps"), arg.shape, strict=True)
    return tuple(
        [
            FIXED if n == 1 else ((a, s * step, b + s * start) if a >= 0 else (-1, 0, b + s * start))
            for (a, step, start), b, s, n in pairs
        ]
    )


def _index_map_through_permute(node: Node, arg: ArrayType, m: Map) -> Map:
    entries = [FIXED] * len(m)
    for i, axis in enumerate(node.attr("axes")):
        entries[axis] = m[i]
    return tuple(entries)


def _index_map_through_unit_axes(node: Node, arg: ArrayType, m: Map) -> Map:
    moving = iter(entry for entry, n in zip(m, node.shape, strict=True) if n != 1)
    return tuple(FIXED if n == 1 else next(moving) for n in arg.shape)


_THROUGH = {
    "slice": _index_map_through_slice,
    "permute": _index_map_through_permute,
    "broadcast": _index_map_through_broadcast,
    "reshape": _index_map_through_unit_axes,
}


def is_node_view_of_memory(node: Node, arg: ArrayType) -> bool:
    """Whether a view is one of memory. No map says where its elements lie in its argument."""
    return node.op == "windows" or (node.op == "reshape" and not shapes_differ_in_unit_axes_only(node.shape, arg.shape))


def strides_of_memory_view_node(node: Node, shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...] | None:
    """The strides of a view of memory of this shape and strides. None where only a copy has such elements in a row."""
    if node.op == "slice":
        return tuple(map(operator.mul, strides, node.attr("steps")))
    if node.op == "permute":
        return tuple(strides[a] for a in node.attr("axes"))
    if node.op == "broadcast":
        own = tuple(0 if n == 1 else s for n, s in zip(shape, strides, strict=True))
        return (0,) * (node.ndim - len(shape)) + own
    if node.op == "windows":
        return (*strides, strides[node.attr("axis")])
    return reshape_strides(shape, strides, node.shape)


def shapes_differ_in_unit_axes_only(a: Sequence[int], b: Sequence[int]) -> bool:
    """Whether two shapes differ in axes of length 1 alone."""
    return [n for n in a if n != 1] == [n for n in b if n != 1]


def has_matrix_order(type: ArrayType, strides: tuple[int, ...]) -> bool:
    """Whether a library takes matrices that lie so in memory: rows or columns side by side."""
    return Region(0, 0, type.shape, strides, type.dtype.itemsize).matrix_order is not None


def contiguous_strides(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """C-order strides in bytes."""
    strides, step = [], itemsize
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


def lies_without_gaps(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> bool:
    """Whether elements lie in C order, side by side; how far apart those of an axis of length 1 are says nothing."""
    return all(
        n == 1 or s == wanted for n, s, wanted in zip(shape, strides, contiguous_strides(shape, itemsize), strict=True)
    )


def reshape_strides(shape: Sequence[int], strides: Sequence[int], new_shape: Sequence[int]) -> tuple[int, ...] | None:
    """The strides with which `new_shape` sees the same memory in C order. None where only a copy can."""
    if 0 in shape:  # whole elements: a kernel masks what moves along its axis, and reads at once what does not
        return contiguous_strides(new_shape, min((abs(s) for s in strides if s), default=0))
    old = [(n, s) for n, s in zip(shape, strides, strict=True) if n != 1]
    result: list[int] = []
    position = 0
    for n in new_shape:
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


UINT8 = np.dtype(np.uint8)
ALIGNMENT = 16


@frozen
class BufferLocation:
    """Where a node lies: byte offset and strides (bytes) in a buffer. aligned: is byte 0 of the buffer 16-aligned."""

    buffer: int
    offset: int
    strides: tuple[int, ...]
    aligned: bool

    def region(self, kind: ArrayType) -> Region:
        """The memory of an array of a type that lies here."""
        return Region(self.buffer, self.offset, kind.shape, self.strides, kind.dtype.itemsize, dtype_name(kind.dtype))


@frozen
class StridedBufferArray:
    """Where an array lies. aligned: its first element is at a multiple of 16 bytes."""

    region: Region
    aligned: bool

    @property
    def shape(self) -> tuple[int, ...]:
        return self.region.shape

    @property
    def dtype(self) -> DType:
        return dtype_of(self.region.dtype)

    @property
    def pointer(self) -> Pointer:
        return Pointer(self.region.buffer, self.region.offset)

    @property
    def contiguous(self) -> bool:
        return lies_without_gaps(self.shape, self.region.strides, self.region.itemsize)

    def moved(self, axis: int) -> StridedBufferArray:
        """Seen with this axis last."""
        r, order = self.region, [i for i in range(len(self.shape)) if i != axis] + [axis]
        shape, strides = tuple(r.shape[i] for i in order), tuple(r.strides[i] for i in order)
        return StridedBufferArray(Region(r.buffer, r.offset, shape, strides, r.itemsize, r.dtype), self.aligned)

    def row(self, number: int) -> StridedBufferArray:
        """One element of the first axis."""
        r = self.region
        offset = r.offset + number * r.strides[0]
        aligned = self.aligned and offset % ALIGNMENT == 0
        return StridedBufferArray(Region(r.buffer, offset, r.shape[1:], r.strides[1:], r.itemsize, r.dtype), aligned)

    def parts(self) -> StridedBufferArray:
        """Complex numbers as real ones, along one more axis of 2."""
        r = self.region
        half, dtype = r.itemsize // 2, f"float{r.itemsize * 4}"
        return StridedBufferArray(
            Region(r.buffer, r.offset, (*r.shape, 2), (*r.strides, half), half, dtype), self.aligned
        )

    def span(self, start: int, count: int) -> StridedBufferArray:
        """So many elements of the only axis, from `start` on."""
        r = self.region
        offset = r.offset + start * r.strides[0]
        aligned = self.aligned and offset % ALIGNMENT == 0
        return StridedBufferArray(Region(r.buffer, offset, (count,), r.strides, r.itemsize, r.dtype), aligned)

    def first(self, count: int) -> StridedBufferArray:
        """The first so many along the last axis."""
        r = self.region
        shape = (*r.shape[:-1], count)
        return StridedBufferArray(Region(r.buffer, r.offset, shape, r.strides, r.itemsize, r.dtype), self.aligned)


@dataclass(slots=True)
class OperandAccess:
    """One operand: strides in bytes over all domain axes. source: the node that it loads, and its index map."""

    dtype: DType
    role: str
    place: BufferLocation
    offset: int
    strides: list[int]
    region: Region
    source: tuple[int, Map] | None = None

    @property
    def pointer(self) -> Pointer:
        return Pointer(self.place.buffer, self.offset)


@frozen
class PlacedLoopNest:
    """A kernel's form with the numbers of one task."""

    form: LoopNest
    sizes: tuple[int, ...]
    ints: tuple[Int, ...]
    flops: float
    suffix: str = ""


@dataclass(slots=True)
class IterationDomain:
    """Iteration space of one kernel: lengths by axis number. With the parallel and the reduced axes, in loop order."""

    sizes: dict[int, int]
    parallel: list[int]
    reduced: list[int]


def are_operand_elements_aligned(itemsize: int, axes: Iterable[tuple[int, int]]) -> bool:
    """Whether vectors of neighbours are aligned wherever the other axes, (length, stride), stand: an aligned first
    element given. In windows what is next along one axis starts within a vector along another."""
    steps = [(n, stride) for n, stride in axes if stride % ALIGNMENT]
    return all(stride == itemsize for _, stride in steps) and sum(n > 1 for n, _ in steps) < 2


def running_operand_dtypes_of_reduction(graph: Graph, number: int) -> list[DType]:
    """The dtypes of a reduction's running values. A complex sum has two, argmin has the value and its index."""
    node = graph.nodes[number]
    dtype = graph.nodes[node.args[0]].dtype
    if dtype in HALVES:
        dtype = FLOAT32
    combiner = COMBINERS[node.op]
    if dtype == BOOL and combiner.primitive not in ("or", "and"):
        dtype = UINT8
    if dtype.kind == "c":
        return [np.dtype(f"f{dtype.itemsize // 2}")] * 2
    return [dtype, INT64] if combiner.carries_index else [dtype]


SHORTEST = 32  # of the innermost axis: less does not fill a warp
WIDEST = 8  # shifts along it, in vectors
ZIPPED = 8  # arrays
WIDEST_ZIP = 8 * ZIPPED  # bytes from one element of such an array to its next


def shifted_operand_windows(
    accesses: Sequence[OperandAccess], axes: Sequence[Sequence[int]], lengths: Mapping[int, int]
) -> tuple[tuple[Window, ...], int]:
    """The windows of a kernel, and their `vector` (see `LoopNest`).

    axes: the domain axes of each of the kernel's axes, innermost last; lengths: of the domain axes.
    """
    if math.prod(lengths[axis] for axis in axes[-1]) < SHORTEST:
        return (), 1
    found: dict[tuple[int, Map], list[tuple[int, tuple[int, ...]]]] = {}
    for number, access in enumerate(accesses):
        if (
            access.source is not None
            and access.role == "in"
            and _operand_stride_along_kernel_axis(access, axes[-1]) == access.dtype.itemsize
        ):
            common, steps = _split_shift_from_index_map(access.source[1], {axis for group in axes for axis in group})
            place = tuple(_index_steps_along_kernel_axis(steps, group, lengths) for group in axes)
            found.setdefault((access.source[0], common), []).append((number, place))
    windows = tuple(_make_shifted_window(places) for places in found.values() if len(places) > 1)
    vector = _access_length_of_shifted_windows(windows, accesses, axes)
    windows = tuple(w for w in windows if w.span(len(axes) - 1) <= WIDEST * vector)
    return windows, vector if windows else 1


def operands_interleaved_in_memory(
    accesses: Sequence[OperandAccess], group: Sequence[int], phases: Sequence[Phase]
) -> tuple[tuple[int, ...], ...]:
    """The outputs that lie in turn in one array along a kernel's axis. The axis is made of these domain axes."""
    found: dict[object, dict[int, int]] = {}
    homes = {i.attr[0]: n for n, phase in enumerate(phases) for i in phase.instrs if i.op == "store"}
    for number, access in enumerate(accesses):
        size, step = access.dtype.itemsize, _operand_stride_along_kernel_axis(access, group)
        if access.role == "out" and access.dtype.kind != "c" and 2 * size <= step <= ZIPPED * size and not step % size:
            whole, turn = divmod(access.offset, step)
            key = access.place.buffer, access.dtype, tuple(access.strides), homes.get(number), whole, turn % size
            found.setdefault(key, {})[turn // size] = number
    steps = {
        key: _operand_stride_along_kernel_axis(accesses[min(turns.values())], group) for key, turns in found.items()
    }
    return tuple(
        tuple(turns[i] for i in range(len(turns)))
        for key, turns in found.items()
        if len(turns) * accesses[min(turns.values())].dtype.itemsize == steps[key]
    )


def _operand_stride_along_kernel_axis(access: OperandAccess, group: Sequence[int]) -> int:
    """The stride, in bytes, along one of the kernel's axes."""
    return access.strides[group[-1]] if group and group[-1] < len(access.strides) else 0


def _split_shift_from_index_map(source: Map, moving: set[int]) -> tuple[Map, dict[int, int]]:
    """A map as what shifted views of a node have in common, and how many steps it starts along each domain axis."""
    axes = [axis for axis, _, _ in source]
    steps = {axis: start // step for axis, step, start in source if axis in moving and axes.count(axis) == 1}
    return tuple((a, step, start % step if a in steps else start) for a, step, start in source), steps


def _index_steps_along_kernel_axis(steps: Mapping[int, int], group: Sequence[int], lengths: Mapping[int, int]) -> int:
    """Steps along one of the kernel's axes."""
    flat = 0
    for axis in group:
        flat = flat * lengths[axis] + steps.get(axis, 0)
    return flat


def _make_shifted_window(places: Sequence[tuple[int, tuple[int, ...]]]) -> Window:
    corner = [min(steps) for steps in zip(*(place for _, place in places), strict=True)]
    shifts = (tuple(n - c for n, c in zip(place, corner, strict=True)) for _, place in places)
    return Window(tuple(number for number, _ in places), tuple(shifts))


def _access_length_of_shifted_windows(
    windows: Sequence[Window], accesses: Sequence[OperandAccess], axes: Sequence[Sequence[int]]
) -> int:
    """How many elements can be one access wherever a window begins, and wherever something is written."""
    shifted = [(w.operands[0], w.shifts[0]) for w in windows]
    written = [(k, (0,) * len(axes)) for k, access in enumerate(accesses) if access.role != "in"]
    vector = ALIGNMENT
    for number, shift in shifted + written:
        access = accesses[number]
        strides = [_operand_stride_along_kernel_axis(access, group) for group in axes]
        corner = access.offset - sum(n * s for n, s in zip(shift, strides, strict=True))
        if strides[-1] == access.dtype.itemsize:  # else it is the result of a reduction, or no vector
            whole = math.gcd(ALIGNMENT, corner, *strides[:-1]) if access.place.aligned else 1
            vector = min(vector, max(1, whole // access.dtype.itemsize))
    return vector
