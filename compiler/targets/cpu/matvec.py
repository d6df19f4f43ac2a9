"""CPU kernels for products of a matrix and a vector, which read the matrix once.

Along rows that are contiguous: ROWS of them side by side, which share what they load of the vector. Along columns that
are: a block of results stays in the first-level cache while TERMS rows at a time are added to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from ....runtime.program.program import Int, Kernel, Task
from ...core.types import FLOAT32, FLOAT64, DType
from ...layout.operands import StridedBufferArray
from .llvm_ir import LlvmValue, emit_llvm_masked_store
from .unit_kernel import LAUNCH, UnitKernelWriter, sum_of_llvm_lanes

ROWS, COPIES = 4, 2  # rows of a unit, and accumulators of each
TERMS = 4  # rows that are added in one pass
BLOCK, PARALLEL = 4096, 1 << 19  # results of a unit, at most; elements from which two threads pay
WORK = 16384  # elements worth a hand-over
BANDWIDTH = 60e3  # bytes per us that one core reads from its caches


def cpu_matvec_task(
    vector_bytes: int, reads: Sequence[StridedBufferArray], writes: Sequence[StridedBufferArray | None], line: str
) -> list[Task] | None:
    """The task of a product of a matrix and a column, or of a row and a matrix; None for all else."""
    left, right = reads[0], reads[1]
    result = writes[0]
    if result is None or len(reads) != 2 or len(left.shape) != 2 or len(right.shape) != 2 or 0 in left.shape:
        return None
    if left.dtype not in (FLOAT32, FLOAT64) or not left.dtype == right.dtype == result.dtype or 0 in right.shape:
        return None
    if right.shape[1] == 1:
        matrix, vector, steps = left, right.region.strides[0], left.region.strides
        count, length = left.shape
        step = result.region.strides[0]
    elif left.shape[0] == 1:
        matrix, vector, steps = right, left.region.strides[1], right.region.strides[::-1]
        length, count = right.shape
        step = result.region.strides[1]
    else:
        return None
    item = left.dtype.itemsize
    if steps[1] == item and (vector == item or length == 1):
        kernel, units = llvm_matvec_rows_kernel(left.dtype, vector_bytes), -(-count // ROWS)
        numbers, grain = [steps[0], step], max(1, WORK // (ROWS * length))
    elif steps[0] == item and step == item:
        block = min(BLOCK, -(-count // 2) if count * length >= PARALLEL else count)
        kernel, units = llvm_matvec_columns_kernel(left.dtype, vector_bytes), -(-count // block)
        numbers, grain = [steps[1], vector, block], 1
    else:
        return None
    pointers = (matrix.pointer, (right if matrix is left else left).pointer, result.pointer)
    return [
        Task(
            "matmul",
            kernel,
            (*pointers, *(Int(n) for n in (count, length, *numbers))),
            (left.region, right.region),
            (result.region,),
            units=units,
            grain=grain,
            cost=round(LAUNCH + count * length * item / BANDWIDTH, 3),
            line=line,
        )
    ]


@cache
def llvm_matvec_rows_kernel(dtype: DType, vector_bytes: int) -> Kernel:
    """Units are ROWS rows. Slots: matrix, vector, result, rows, length, and in bytes the steps from row to row and from
    result to result."""
    made = UnitKernelWriter(f"matvec_rows_{dtype.name}", dtype, vector_bytes, 3, 4)
    f, elem, (a, x, y), (count, length, row_step, result_step) = made.f, made.elem, made.arrays, made.numbers

    def write_rows(first: LlvmValue, rows: int) -> None:
        starts = [a.at((first + r) * row_step, "i8") for r in range(rows)]
        sums = made.zeros(rows, COPIES)

        def add_products(i: LlvmValue, mask: LlvmValue | None, copy: int) -> None:
            shared = made.vector(x.at(i, elem), mask)
            for start, each in zip(starts, sums, strict=True):
                made.add_to(each[copy], made.vector(start.at(i, elem), mask), shared)

        f.vectors(made.zero, length, made.lanes, add_products, COPIES)
        for r, each in enumerate(sums):
            total = sum_of_llvm_lanes(made.total(each[0]) + made.total(each[1]))
            y.at((first + r) * result_step, "i8").store(total)

    with made.units() as unit:
        made.blocks_between(unit * ROWS, ((unit + 1) * ROWS).apply("umin", count), ROWS, 1, write_rows)
    return made.kernel()


@cache
def llvm_matvec_columns_kernel(dtype: DType, vector_bytes: int) -> Kernel:
    """Units are blocks of results, which are contiguous. Slots: matrix, vector, result, results, length, in bytes the
    steps from term to term of the matrix and of the vector, and the results of a block."""
    made = UnitKernelWriter(f"matvec_columns_{dtype.name}", dtype, vector_bytes, 3, 5)
    f, elem, (a, x, y), (count, length, matrix_step, vector_step, block) = made.f, made.elem, made.arrays, made.numbers

    def add_terms(first: LlvmValue, terms: int, low: LlvmValue, high: LlvmValue) -> None:
        rows = [a.at((first + t) * matrix_step, "i8") for t in range(terms)]
        factors = [x.at((first + t) * vector_step, "i8").load(elem).splat(made.lanes) for t in range(terms)]

        def add_rows(i: LlvmValue, mask: LlvmValue | None, copy: int) -> None:
            total = made.vector(y.at(i, elem), mask)
            for row, factor in zip(rows, factors, strict=True):
                total = made.vector(row.at(i, elem), mask) * factor + total
            emit_llvm_masked_store(y.at(i, elem), total, mask)

        f.vectors(low, high, made.lanes, add_rows)

    with made.units() as unit:
        low = unit * block
        high = (low + block).apply("umin", count)
        with f.loop(low, high) as i:
            y.at(i, elem).store(f.const(0.0, elem))
        made.blocks_between(made.zero, length, TERMS, 1, lambda first, terms: add_terms(first, terms, low, high))
    return made.kernel()
