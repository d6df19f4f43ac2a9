"""What the kernels of a group are made of: places of nodes, operands, iteration spaces, running values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..runtime.program import Int, Pointer, Region
from .graph import Graph
from .kernel import LoopNest
from .types import BOOL, FLOAT32, HALVES, INT64, DType

UINT8 = np.dtype(np.uint8)
ALIGNMENT = 16


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node lies: byte offset and strides (bytes) in a buffer; aligned: is byte 0 of the buffer 16-aligned."""

    buffer: int
    offset: int
    strides: tuple[int, ...]
    aligned: bool


@dataclass(slots=True)
class Access:
    """One operand: strides in bytes over all domain axes."""

    dtype: DType
    role: str
    place: Place
    offset: int
    strides: list[int]
    region: Region

    @property
    def pointer(self) -> Pointer:
        return Pointer(self.place.buffer, self.offset)


@dataclass(frozen=True, slots=True)
class Nest:
    """A kernel's form with the numbers of one task."""

    form: LoopNest
    sizes: tuple[int, ...]
    ints: tuple[Int, ...]
    flops: float
    suffix: str = ""


@dataclass(slots=True)
class Domain:
    """Iteration space of one kernel: lengths by axis number, and which axes are parallel and reduced, in loop order."""

    sizes: dict[int, int]
    parallel: list[int]
    reduced: list[int]


def reduction_dtypes(graph: Graph, number: int) -> list[DType]:
    """The dtypes of a reduction's running values: a complex sum has two, argmin has the value and its index."""
    node = graph.nodes[number]
    dtype = graph.nodes[node.args[0]].type.dtype
    if dtype in HALVES:
        dtype = FLOAT32
    if dtype == BOOL and node.op not in ("any", "all"):
        dtype = UINT8
    if dtype.kind == "c":
        return [np.dtype(f"f{dtype.itemsize // 2}")] * 2
    return [dtype, INT64] if node.op in ("argmin", "argmax") else [dtype]
