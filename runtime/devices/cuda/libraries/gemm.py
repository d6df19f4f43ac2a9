"""A matmul task in; the calls of cuBLAS that do it out, as plain data."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from itertools import product
from typing import Any

from ....core.frozen import frozen, replace
from ....program.program import Library, Region, Task

# dtype: (cudaDataType, cublasComputeType_t, what alpha and beta are, bytes)
_TYPES: dict[str, tuple[int, int, Any, int]] = {
    "float32": (0, 68, ctypes.c_float, 4),
    "float64": (1, 70, ctypes.c_double, 8),
    "float16": (2, 68, ctypes.c_float, 2),
    "bfloat16": (14, 68, ctypes.c_float, 2),
    "complex64": (4, 68, ctypes.c_float, 8),
    "complex128": (5, 70, ctypes.c_double, 16),
}
TF32 = 77  # CUBLAS_COMPUTE_32F_FAST_TF32
HALVES = ("float16", "bfloat16")  # added in float32, which the result may be


@frozen
class GemmCall:
    """One call of cublasGemmStridedBatchedEx for a row-major C = A B, as the column-major C' = B' A'.

    Byte offsets are from the regions' buffers; leading dimensions and strides are in elements. With an epilogue it is a
    call of cublasLtMatmul, and `offsets` ends with that of the bias, if there is one. dtype: of A and B; result: of C
    and the bias.
    """

    dtype: str
    result: str
    shape: tuple[int, int, int]  # n, m, k of the column-major product
    operations: tuple[int, int]  # of B, A
    leading: tuple[int, int, int]  # of B, A, C
    strides: tuple[int, int, int]  # between batches of B, A, C
    batch: int
    offsets: tuple[int, ...]  # of B, A, C
    epilogue: tuple[str, ...] = ()
    tf32: bool = False

    @property
    def stored_shapes(self) -> tuple[tuple[int, int], ...]:
        """Rows and columns of B, A and C as they lie in memory, column after column."""
        (n, m, k), (turned_b, turned_a) = self.shape, self.operations
        return ((k, n) if turned_b else (n, k), (m, k) if turned_a else (k, m), (n, m))

    @property
    def itemsizes(self) -> tuple[int, ...]:
        """Bytes of an element of B, A, C and the bias."""
        given, result = _TYPES[self.dtype][3], _TYPES[self.result][3]
        return (given, given, *(result,) * (len(self.offsets) - 2))

    @property
    def spans(self) -> tuple[int, ...]:
        """Bytes from the first to the last element of B, A, C and the bias."""
        lengths = [
            (columns - 1) * leading + rows + (self.batch - 1) * stride
            for (rows, columns), leading, stride in zip(self.stored_shapes, self.leading, self.strides, strict=True)
        ]
        return tuple(size * n for size, n in zip(self.itemsizes, (*lengths, self.shape[0]), strict=False))

    def one_by_one(self) -> tuple[GemmCall, ...]:
        """The products of the batch."""
        steps = [stride * size for stride, size in zip(self.strides, self.itemsizes, strict=False)]
        return tuple(
            replace(
                self,
                batch=1,
                strides=(0, 0, 0),
                offsets=tuple(o + i * s for o, s in zip(self.offsets, steps, strict=True)),
            )
            for i in range(self.batch)
        )

    @property
    def types(self) -> tuple[tuple[int, int, int], int, Any]:
        """cudaDataType of B, A and C, cublasComputeType_t, what alpha and beta are."""
        kind, compute, scale, _ = _TYPES[self.dtype]
        return (kind, kind, _TYPES[self.result][0]), TF32 if self.tf32 else compute, scale


def cublas_calls_of_matmul_task(task: Task) -> tuple[GemmCall, ...] | None:
    """The calls that do a matmul task (none where there is nothing to do). None where cuBLAS cannot do it."""
    (a, b, *bias), (c,) = task.reads, task.writes
    if not _does_cublas_have_dtypes(a, b, c, bias):
        return None
    if 0 in c.shape:
        return ()
    attrs = dict(task.kernel.attrs) if isinstance(task.kernel, Library) else {}
    a, b, c = _merge_gemm_batch_into_rows(a, b, c)
    m, n, k = c.shape[-2], c.shape[-1], a.shape[-1]
    sides = [r.matrix_order for r in (b, a, c)]
    if sides[0] is None or sides[1] is None or sides[2] is None or sides[2][0]:
        return None
    found = []
    axes, inner = _gemm_batch_axes(a, b, c)
    for index in product(*(range(n) for n, _ in axes)):
        moved = [sum(i * strides[r] for i, (_, strides) in zip(index, axes, strict=True)) for r in range(3)]
        offsets = (*(r.offset + by for r, by in zip((b, a, c), moved, strict=True)), *(r.offset for r in bias))
        found.append(
            GemmCall(
                a.dtype,
                c.dtype,
                (n, m, k),
                (int(sides[0][0]), int(sides[1][0])),  # cublasOperation_t
                (sides[0][1], sides[1][1], sides[2][1]),
                tuple(s // r.itemsize for s, r in zip(inner[1], (b, a, c), strict=True)),  # type: ignore[arg-type]
                inner[0],
                offsets,
                attrs.get("epilogue", ()),
                attrs.get("precision") in ("tf32", "tf32x3"),
            )
        )
    return tuple(found)


def _does_cublas_have_dtypes(a: Region, b: Region, c: Region, bias: Sequence[Region]) -> bool:
    alike = a.dtype == b.dtype and all(row.dtype == c.dtype for row in bias)
    return alike and c.dtype in _TYPES and (a.dtype == c.dtype or (a.dtype in HALVES and c.dtype == "float32"))


def _merge_gemm_batch_into_rows(a: Region, b: Region, c: Region) -> tuple[Region, Region, Region]:
    """A and C with the batch axes along which B repeats as more rows, where these follow each other in memory."""
    while len(a.shape) == len(c.shape) > 2 and a.shape[-3] == c.shape[-3] and not _gemm_batch_stride(b, -3):
        taller = _join_last_gemm_batch_axis(a), _join_last_gemm_batch_axis(c)
        if taller[0] is None or taller[1] is None:
            break
        b = replace(b, shape=(*b.shape[:-3], *b.shape[-2:]), strides=(*b.strides[:-3], *b.strides[-2:]))
        a, c = taller[0], taller[1]
    return a, b, c


def _join_last_gemm_batch_axis(r: Region) -> Region | None:
    """The matrices of the last batch axis as one, if its rows are evenly spaced."""
    (n, m, columns), (outer, row, column) = r.shape[-3:], r.strides[-3:]
    if n != 1 and m != 1 and outer != row * m:
        return None
    strides = (*r.strides[:-3], row if n == 1 or m != 1 else outer, column)
    return replace(r, shape=(*r.shape[:-3], n * m, columns), strides=strides)


Batch = tuple[int, tuple[int, int, int]]  # length, strides in bytes of B, A, C


def _gemm_batch_axes(a: Region, b: Region, c: Region) -> tuple[list[Batch], Batch]:
    """The batch axes to loop over, and the one that cuBLAS steps along; axes that all walk as one are joined."""
    joined: list[Batch] = []
    for axis in range(len(c.shape) - 2):
        if c.shape[axis] == 1:
            continue
        strides = tuple(_gemm_batch_stride(r, axis - len(c.shape)) for r in (b, a, c))
        if joined and all(p == s * c.shape[axis] for p, s in zip(joined[-1][1], strides, strict=True)):
            joined[-1] = (joined[-1][0] * c.shape[axis], strides)  # type: ignore[assignment]
        else:
            joined.append((c.shape[axis], strides))  # type: ignore[arg-type]
    if not joined:
        return [], (1, (0, 0, 0))
    longest = max(range(len(joined)), key=lambda i: joined[i][0])
    return joined[:longest] + joined[longest + 1 :], joined[longest]


def _gemm_batch_stride(region: Region, axis: int) -> int:
    """Bytes along a batch axis counted from the end; 0 where the region repeats."""
    return 0 if -axis > len(region.shape) or region.shape[axis] == 1 else region.strides[axis]
