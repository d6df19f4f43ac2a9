"""What the kernels of a group are made of: places of nodes, operands, iteration spaces, running values."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ...runtime.core.frozen import dataclass
from ...runtime.program.program import Int, Pointer, Region
from ..core.combiners import COMBINERS
from ..core.types import BOOL, FLOAT32, HALVES, INT64, DType, dtype_of
from ..graph.graph import Graph
from ..kernel.loop_nest import LoopNest
from .index_maps import Map, contiguous_strides

UINT8 = np.dtype(np.uint8)
ALIGNMENT = 16


@dataclass(frozen=True, slots=True)
class BufferLocation:
    """Where a node lies: byte offset and strides (bytes) in a buffer; aligned: is byte 0 of the buffer 16-aligned."""

    buffer: int
    offset: int
    strides: tuple[int, ...]
    aligned: bool


@dataclass(frozen=True, slots=True)
class Array:
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
        wanted = contiguous_strides(self.shape, self.region.itemsize)
        return all(n == 1 or s == w for n, s, w in zip(self.shape, self.region.strides, wanted, strict=True))

    def moved(self, axis: int) -> Array:
        """Seen with this axis last."""
        r, order = self.region, [i for i in range(len(self.shape)) if i != axis] + [axis]
        shape, strides = tuple(r.shape[i] for i in order), tuple(r.strides[i] for i in order)
        return Array(Region(r.buffer, r.offset, shape, strides, r.itemsize, r.dtype), self.aligned)

    def row(self, number: int) -> Array:
        """One element of the first axis."""
        r = self.region
        offset = r.offset + number * r.strides[0]
        aligned = self.aligned and offset % ALIGNMENT == 0
        return Array(Region(r.buffer, offset, r.shape[1:], r.strides[1:], r.itemsize, r.dtype), aligned)

    def parts(self) -> Array:
        """Complex numbers as real ones, along one more axis of 2."""
        r = self.region
        half, dtype = r.itemsize // 2, f"float{r.itemsize * 4}"
        return Array(Region(r.buffer, r.offset, (*r.shape, 2), (*r.strides, half), half, dtype), self.aligned)

    def first(self, count: int) -> Array:
        """The first so many along the last axis."""
        r = self.region
        shape = (*r.shape[:-1], count)
        return Array(Region(r.buffer, r.offset, shape, r.strides, r.itemsize, r.dtype), self.aligned)


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


@dataclass(frozen=True, slots=True)
class PlacedLoopNest:
    """A kernel's form with the numbers of one task."""

    form: LoopNest
    sizes: tuple[int, ...]
    ints: tuple[Int, ...]
    flops: float
    suffix: str = ""


@dataclass(slots=True)
class IterationDomain:
    """Iteration space of one kernel: lengths by axis number, and which axes are parallel and reduced, in loop order."""

    sizes: dict[int, int]
    parallel: list[int]
    reduced: list[int]


def stays_aligned(itemsize: int, axes: Iterable[tuple[int, int]]) -> bool:
    """Whether vectors of neighbours are aligned wherever the other axes, (length, stride), stand: an aligned first
    element given. In windows what is next along one axis starts within a vector along another."""
    steps = [(n, stride) for n, stride in axes if stride % ALIGNMENT]
    return all(stride == itemsize for _, stride in steps) and sum(n > 1 for n, _ in steps) < 2


def reduction_dtypes(graph: Graph, number: int) -> list[DType]:
    """The dtypes of a reduction's running values: a complex sum has two, argmin has the value and its index."""
    node = graph.nodes[number]
    dtype = graph.nodes[node.args[0]].type.dtype
    if dtype in HALVES:
        dtype = FLOAT32
    combiner = COMBINERS[node.op]
    if dtype == BOOL and combiner.primitive not in ("or", "and"):
        dtype = UINT8
    if dtype.kind == "c":
        return [np.dtype(f"f{dtype.itemsize // 2}")] * 2
    return [dtype, INT64] if combiner.carries_index else [dtype]
