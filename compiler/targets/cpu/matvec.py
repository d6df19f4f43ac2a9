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
from .llvm_ir import (
    METADATA,
    LlvmFunction,
    LlvmModule,
    LlvmValue,
    emit_llvm_masked_load,
    emit_llvm_masked_store,
    llvm_mask_below,
)
from .primitives import llvm_register_type

ROWS, COPIES = 4, 2  # rows of a unit, and accumulators of each
TERMS = 4  # rows that are added in one pass
BLOCK, PARALLEL = 4096, 1 << 19  # results of a unit, at most; elements from which two threads pay
WORK = 16384  # elements worth a hand-over
BANDWIDTH, LAUNCH = 60e3, 0.2  # bytes per us that one core reads from its caches, and us


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
    signature = ("ptr", "ptr", "ptr", *("i64",) * 4)
    f, name, elem = (
        LlvmFunction(LlvmModule(flags=" contract")),
        f"k_matvec_rows_{dtype.name}",
        llvm_register_type(dtype),
    )
    lanes = vector_bytes // dtype.itemsize
    slots, begin, end = LlvmValue(f, "%slots", "ptr"), LlvmValue(f, "%begin", "i64"), LlvmValue(f, "%end", "i64")
    a, x, y = (slots.at(i, "i64").load("ptr") for i in range(3))
    count, length, row_step, result_step = (slots.at(i, "i64").load("i64") for i in range(3, 7))

    def write_rows(first: LlvmValue, rows: int) -> None:
        starts = [a.at((first + r) * row_step, "i8") for r in range(rows)]
        sums = [[f.slot(f"<{lanes} x {elem}>") for _ in range(COPIES)] for _ in range(rows)]
        for place in (p for each in sums for p in each):
            place.store(f.const(0.0, elem, lanes), 64)

        def add_products(i: LlvmValue, copy: int, mask: LlvmValue | None = None) -> None:
            def load_lanes(start: LlvmValue) -> LlvmValue:
                place = start.at(i, elem)
                return place.load(elem, lanes) if mask is None else emit_llvm_masked_load(place, elem, lanes, mask)

            shared = load_lanes(x)
            for start, each in zip(starts, sums, strict=True):
                each[copy].store(load_lanes(start) * shared + each[copy].load(elem, lanes, 64), 64)

        position = f.const(0, "i64")
        for copies in (COPIES, 1):
            whole = position + ((length - position) & -(lanes * copies))
            with f.loop(position, whole, lanes * copies) as i:
                for copy in range(copies):
                    add_products(i + lanes * copy, copy)
            position = whole
        with f.when(position < length):
            add_products(position, 0, llvm_mask_below(f, length - position, lanes))
        for r, each in enumerate(sums):
            total = each[0].load(elem, lanes, 64) + each[1].load(elem, lanes, 64)
            while total.lanes > 1:
                half = total.lanes // 2
                total = total.shuffle(list(range(half))) + total.shuffle(list(range(half, 2 * half)))
            y.at((first + r) * result_step, "i8").store(total)

    with f.loop(begin, end) as unit:
        first = unit * ROWS
        last = first + ROWS

        def write_last_rows() -> None:
            with f.loop(first, count) as row:
                write_rows(row, 1)

        f.fork(last <= count, lambda: write_rows(first, ROWS), write_last_rows)
    f.do("ret void")
    text = f.render(f"define void @{name}(ptr noundef %slots, i64 %begin, i64 %end)")
    return Kernel(name, "cpu", f"{f.module}\n{text}\n{METADATA}\n", signature)


@cache
def llvm_matvec_columns_kernel(dtype: DType, vector_bytes: int) -> Kernel:
    """Units are blocks of results, which are contiguous. Slots: matrix, vector, result, results, length, in bytes the
    steps from term to term of the matrix and of the vector, and the results of a block."""
    signature = ("ptr", "ptr", "ptr", *("i64",) * 5)
    f, name, elem = (
        LlvmFunction(LlvmModule(flags=" contract")),
        f"k_matvec_columns_{dtype.name}",
        llvm_register_type(dtype),
    )
    lanes = vector_bytes // dtype.itemsize
    slots, begin, end = LlvmValue(f, "%slots", "ptr"), LlvmValue(f, "%begin", "i64"), LlvmValue(f, "%end", "i64")
    a, x, y = (slots.at(i, "i64").load("ptr") for i in range(3))
    count, length, matrix_step, vector_step, block = (slots.at(i, "i64").load("i64") for i in range(3, 8))

    def add_terms(first: LlvmValue, terms: int, low: LlvmValue, high: LlvmValue) -> None:
        rows = [a.at((first + t) * matrix_step, "i8") for t in range(terms)]
        factors = [x.at((first + t) * vector_step, "i8").load(elem).splat(lanes) for t in range(terms)]
        whole = low + ((high - low) & -lanes)
        with f.loop(low, whole, lanes) as i:
            total = y.at(i, elem).load(elem, lanes)
            for row, factor in zip(rows, factors, strict=True):
                total = row.at(i, elem).load(elem, lanes) * factor + total
            y.at(i, elem).store(total)
        with f.when(whole < high):
            mask = llvm_mask_below(f, high - whole, lanes)
            total = emit_llvm_masked_load(y.at(whole, elem), elem, lanes, mask)
            for row, factor in zip(rows, factors, strict=True):
                total = emit_llvm_masked_load(row.at(whole, elem), elem, lanes, mask) * factor + total
            emit_llvm_masked_store(y.at(whole, elem), total, mask)

    with f.loop(begin, end) as unit:
        low = unit * block
        high = f.intrinsic("umin", "i64", low + block, count)
        with f.loop(low, high) as i:
            y.at(i, elem).store(f.const(0.0, elem))
        position = f.const(0, "i64")
        for terms in (TERMS, 1):
            whole = position + ((length - position) & -terms)
            with f.loop(position, whole, terms) as first:
                add_terms(first, terms, low, high)
            position = whole
    f.do("ret void")
    text = f.render(f"define void @{name}(ptr noundef %slots, i64 %begin, i64 %end)")
    return Kernel(name, "cpu", f"{f.module}\n{text}\n{METADATA}\n", signature)
