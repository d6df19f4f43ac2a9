"""CPU kernels of convolutions, whose windows are nowhere laid out: an element of a window lies at one distance, the
tap, from the window's first one, so that all of them are one row that is shifted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from ....runtime.program.program import Int, Kernel, Task
from ...core.types import DType
from ...layout.operands import StridedBufferArray
from .llvm_ir import METADATA, LlvmFunction, LlvmModule, LlvmValue, emit_llvm_masked_load, llvm_mask_below
from .matmul import LAUNCH, RATE, SUMS, cpu_row_products_kernel, even_cpu_product_block
from .primitives import llvm_register_type

DOT_ROWS = 4
CACHED = 1 << 18  # bytes of the rows that are multiplied with all taps one after another
FIRST_TAP = 11  # the slot of it


def cpu_shifted_products_task(
    vector_bytes: int,
    reads: Sequence[StridedBufferArray],
    result: StridedBufferArray,
    options: Mapping[str, Any],
    line: str,
) -> Task:
    """The task of sums of shifted rows: products whose second matrix has a row for each shift of each row that there
    is, and is never laid out. All arrays are without gaps."""
    weights, x = reads
    dtype, taps, n = result.dtype, options["taps"], options["length"]
    item = dtype.itemsize
    (groups, m, k), (batch, _, channels, length) = weights.shape, x.shape
    kernel, rows, columns, blocks = cpu_row_products_kernel(dtype, vector_bytes, m, n, taps=len(taps))
    panels, chunks = -(-n // columns), -(-m // (blocks * rows))
    steps = (m * k, k, 1, channels * length, length, 1, m * options["width"], options["width"], 1)
    numbers = (m, n, channels, panels, chunks, *(s * item for s in steps), groups, *(t * item for t in taps))
    return _convolution_task(
        kernel, (*reads, result), numbers, batch * groups * panels * chunks, batch * groups * m * n * k, line
    )


def cpu_shifted_dots_task(
    vector_bytes: int,
    reads: Sequence[StridedBufferArray],
    result: StridedBufferArray,
    options: Mapping[str, Any],
    line: str,
) -> Task:
    """The task of products of rows with shifted rows, added up over all images. All arrays are without gaps."""
    a, x = reads
    dtype, taps, length = result.dtype, options["taps"], options["length"]
    item = dtype.itemsize
    (batch, groups, m, a_row), (*_, channels, x_row) = a.shape, x.shape
    rows = even_cpu_product_block(m, DOT_ROWS)
    wide = even_cpu_product_block(len(taps), SUMS * (1 + (vector_bytes == 64)) // rows)
    kernel = llvm_shifted_dots_kernel(dtype, vector_bytes, (rows, wide), (m % rows, len(taps) % wide), len(taps))
    images = max(1, CACHED // ((rows * a_row + x_row) * item))
    blocks = -(-m // rows)
    numbers = (batch, groups, m, channels, length, images, a_row * item, x_row * item, *(t * item for t in taps))
    multiplications = batch * groups * m * channels * length * len(taps)
    return _convolution_task(kernel, (a, x, result), numbers, groups * blocks * channels, multiplications, line)


def _convolution_task(
    kernel: Kernel,
    arrays: Sequence[StridedBufferArray],
    numbers: Sequence[int],
    units: int,
    multiplications: int,
    line: str,
) -> Task:
    result = arrays[-1]
    return Task(
        "convolution",
        kernel,
        (*(array.pointer for array in arrays), *map(Int, numbers)),
        tuple(array.region for array in arrays[:-1]),
        (result.region,),
        units=units,
        cost=round(LAUNCH + multiplications * result.dtype.itemsize / 4 / RATE, 3),
        line=line,
        flops=2 * multiplications,
    )


@cache
def llvm_shifted_dots_kernel(
    dtype: DType, vector_bytes: int, tile: tuple[int, int], rest: tuple[int, int], taps: int
) -> Kernel:
    """result[g, i, c, t] = the sum over b and p of a[b, g, i, p] * x[b, g, c, p + tap[t]]

    tile: rows of a and taps whose sums are in registers; rest: of the last tiles, 0 where they are like the others.
    A unit is a block of rows of a and a channel of x; a block of images stays in a cache for all of its taps.
    Slots: the arrays; images, groups, rows and channels in a group, the length of rows, images of a block; the bytes of
    rows of a and of x; the taps in bytes."""
    f = LlvmFunction(LlvmModule(flags=" contract"))
    (rows, wide), (last_rows, last_taps) = tile, rest
    elem, lanes = llvm_register_type(dtype), vector_bytes // dtype.itemsize
    name = f"k_shifted_dots_{dtype.name}_{rows}x{wide}_{last_rows}_{last_taps}_taps{taps}"
    slots, zero = LlvmValue(f, "%slots", "ptr"), f.const(0, "i64")
    a, x, result = (slots.at(i, "i64").load("ptr") for i in range(3))
    batch, groups, m, channels, length, images, a_row, x_row = (slots.at(i, "i64").load("i64") for i in range(3, 11))
    whole = length & -lanes
    blocks = (m + (rows - 1)).binary("udiv", rows)

    def write_tile(
        group: LlvmValue, row: LlvmValue, channel: LlvmValue, low: LlvmValue, tap: LlvmValue, m_: int, n: int
    ) -> None:
        """The sums of m_ rows and n taps over a block of images, which begins at `low`."""
        high = f.intrinsic("umin", "i64", low + images, batch)
        sums = [[f.slot(f"<{lanes} x {elem}>") for _ in range(n)] for _ in range(m_)]
        for place in (place for each in sums for place in each):
            place.store(f.const(0.0, elem, lanes), 64)
        shifts = [slots.at(tap + (FIRST_TAP + j), "i64").load("i64") for j in range(n)]
        with f.loop(low, high) as image:
            own = image * groups + group
            lefts = [a.at((own * m + row + i) * a_row, "i8") for i in range(m_)]
            line = x.at((own * channels + channel) * x_row, "i8")
            rights = [line.at(shift, "i8") for shift in shifts]

            def add_terms(p: LlvmValue, mask: LlvmValue | None = None) -> None:
                def vector(start: LlvmValue) -> LlvmValue:
                    place = start.at(p, elem)
                    if mask is None:
                        return place.load(elem, lanes)
                    return emit_llvm_masked_load(place, elem, lanes, mask)

                vectors = [vector(left) for left in lefts]
                for j, right in enumerate(rights):
                    other = vector(right)
                    for each, one in zip(sums, vectors, strict=True):
                        each[j].store(one * other + each[j].load(elem, lanes, 64), 64)

            with f.loop(zero, whole, lanes) as p:
                add_terms(p)
            with f.when(whole < length):
                add_terms(whole, llvm_mask_below(f, length - whole, lanes))
        for i, each in enumerate(sums):
            line = result.at(((group * m + row + i) * channels + channel) * taps + tap, elem)
            for j, place in enumerate(each):
                total, target = place.load(elem, lanes, 64), line.at(j, elem)
                while total.lanes > 1:
                    half = total.lanes // 2
                    total = total.shuffle(list(range(half))) + total.shuffle(list(range(half, 2 * half)))
                before = (zero < low).pick(target.load(elem), f.const(0.0, elem))
                target.store(total + before)

    def write_rows(group: LlvmValue, row: LlvmValue, channel: LlvmValue, count: int) -> None:
        with f.loop(zero, batch, images) as low:
            with f.loop(zero, f.const(taps - last_taps, "i64"), wide) as tap:
                write_tile(group, row, channel, low, tap, count, wide)
            if last_taps:
                write_tile(group, row, channel, low, f.const(taps - last_taps, "i64"), count, last_taps)

    with f.loop(LlvmValue(f, "%begin", "i64"), LlvmValue(f, "%end", "i64")) as unit:
        pair = unit.binary("udiv", channels)
        group = pair.binary("udiv", blocks)
        row, channel = (pair - group * blocks) * rows, unit - pair * channels
        if last_rows:
            f.fork(
                row + rows <= m,
                lambda: write_rows(group, row, channel, rows),
                lambda: write_rows(group, row, channel, last_rows),
            )
        else:
            write_rows(group, row, channel, rows)
    f.do("ret void")
    text = f.render(f"define void @{name}(ptr noundef %slots, i64 %begin, i64 %end)")
    signature = ("ptr", "ptr", "ptr", *("i64",) * (8 + taps))
    return Kernel(name, "cpu", f"{f.module}\n{text}\n{METADATA}\n", signature)
