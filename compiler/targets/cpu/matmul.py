"""CPU kernels for products of small matrices. A library packs them first, and Python would have to call it.

Where rows of the second matrix are contiguous, a tile of the result is kept in registers, and a row of the second
matrix, which of large ones is copied first, times numbers of the first is added to it (Goto and van de Geijn, Anatomy
of high-performance matrix multiplication, 2008). Where columns of the second and rows of the first are, a tile of dot
products is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache

from ....runtime.core.frozen import frozen
from ....runtime.program.program import Kernel, Task
from ...core.types import FLOAT32, FLOAT64, DType
from ...layout.operands import StridedBufferArray
from .llvm_ir import LINE, LlvmValue, emit_llvm_masked_store, llvm_mask_below
from .unit_kernel import UnitKernelWriter, sum_of_llvm_lanes, unit_kernel_task

TILE_ROWS, SUMS = 6, 12  # of a tile of results: rows, and vectors in registers, twice as many of AVX-512
MOST_ROWS, MOST_VECTORS = 12, 8  # of tiles of few vectors, and of few rows
FULL = 0.8  # of the lanes of vectors, in a large product whose second matrix has contiguous rows
LEAST_THIN_ROWS, LARGEST_THIN_ROW = 64, 1 << 12  # with one vector: rows, and bytes of one; longer are fetched late
LEAST_THIN = 0.25  # of the lanes of that vector
DEPTH, PACKED_BLOCKS = 128, 48  # rows of a panel that are copied; and blocks of rows in a unit, which share them
LEAST_PACKED = 1 << 20  # bytes of a second matrix that is copied
AHEAD = 16  # rows that are fetched before they are
DOT_ROWS, DOT_COLUMNS = 4, 3
BLOCKS = 8  # of rows in a unit; of columns, for dot products
LARGEST = 1 << 18  # bytes of a matrix that stays in the second-level cache
MOST = 1 << 20  # multiplications of one product of dot products, or that is not full; a library does more faster
VECTORS = 4  # of a dot product, whose lanes are added up at the end
TAPS = 18  # the slot of the first tap


@frozen
class MatrixProducts:
    """Products of equal shapes, (m, k) by (k, n). Steps in bytes between products, rows and columns of each array."""

    count: int
    m: int
    n: int
    k: int
    left: tuple[int, int, int]
    right: tuple[int, int, int]
    result: tuple[int, int, int]


def cpu_matmul_kernel_task(
    vector_bytes: int, reads: Sequence[StridedBufferArray], writes: Sequence[StridedBufferArray], line: str
) -> list[Task] | None:
    """The task of a small product, or of several side by side. None for all else."""
    products = _cpu_matrix_products(reads, writes[0])
    if products is None:
        return None
    p, dtype = products, writes[0].dtype
    item, multiplications = dtype.itemsize, p.m * p.n * p.k
    small = multiplications <= MOST and p.k * max(p.m, p.n) * item <= LARGEST
    by_rows = (
        _row_products_kernel_of_shape(p, dtype, vector_bytes, small) if p.right[2] == item == p.result[2] else None
    )
    if by_rows is not None:
        kernel, rows, columns, blocks = by_rows
    elif small and p.left[2] == item == p.right[1] and p.k * item >= VECTORS * vector_bytes:
        rows, columns, blocks = even_cpu_product_block(p.m, DOT_ROWS), BLOCKS * DOT_COLUMNS, BLOCKS
        kernel = llvm_dot_products_kernel(dtype, vector_bytes, rows, p.m % rows, p.n % DOT_COLUMNS)
    else:
        return None
    panels, chunks = -(-p.n // columns), -(-p.m // (blocks * rows))
    steps = (*p.left, *p.right, *p.result)
    numbers, units = (p.m, p.n, p.k, panels, chunks, *steps), p.count * panels * chunks
    arrays = (*reads, writes[0])
    return [unit_kernel_task("matmul", kernel, arrays, numbers, units, p.count * multiplications, line)]


def _row_products_kernel_of_shape(
    p: MatrixProducts, dtype: DType, vector_bytes: int, small: bool
) -> tuple[Kernel, int, int, int] | None:
    """Where rows of the second matrix are contiguous: the kernel, the rows of its blocks, the columns of its panels and
    the blocks of its units. None where a library is faster."""
    item = dtype.itemsize
    lanes = vector_bytes // item
    vectors = -(-p.n // lanes)
    if vectors == 1:
        full = p.m >= LEAST_THIN_ROWS and p.n >= LEAST_THIN * lanes and p.k * item <= LARGEST_THIN_ROW
    else:
        full = p.m >= TILE_ROWS and p.n >= FULL * lanes * vectors
    if not small and not full:
        return None
    fits = p.k * p.n * item < LEAST_PACKED
    return cpu_row_products_kernel(dtype, vector_bytes, p.m, p.n, depth=0 if fits else DEPTH)


def cpu_row_products_kernel(
    dtype: DType, vector_bytes: int, m: int, n: int, *, taps: int = 0, depth: int = 0
) -> tuple[Kernel, int, int, int]:
    """`llvm_row_products_kernel` of m rows and n columns; rows of its blocks, columns of its panels, blocks of its
    units."""
    lanes, sums = vector_bytes // dtype.itemsize, SUMS * (1 + (vector_bytes == 64))
    wide = even_cpu_product_block(-(-n // lanes), min(MOST_VECTORS, sums // min(m, TILE_ROWS)))
    rows = even_cpu_product_block(m, min(MOST_ROWS, sums // wide))
    whole, left = divmod(n, wide * lanes)
    edges = whole > 0, -(-left // lanes)
    kernel = llvm_row_products_kernel(dtype, vector_bytes, (rows, wide), m % rows, edges, taps, depth)
    return kernel, rows, wide * lanes, PACKED_BLOCKS if depth else BLOCKS


def even_cpu_product_block(length: int, most: int) -> int:
    """The length of blocks that are as equal as can be."""
    return -(-length // -(-length // most))


def _cpu_matrix_products(reads: Sequence[StridedBufferArray], result: StridedBufferArray) -> MatrixProducts | None:
    """What a matmul computes, where it is of real floats and has at most one axis of several products."""
    if len(reads) != 2 or result.dtype not in (FLOAT32, FLOAT64) or any(a.dtype != result.dtype for a in reads):
        return None
    batch = result.shape[:-2]
    long = [i for i, n in enumerate(batch) if n != 1]
    if len(long) > 1 or 0 in result.shape or 0 in reads[0].shape:
        return None

    def steps(array: StridedBufferArray) -> tuple[int, int, int]:
        strides = array.region.strides
        axis = long[0] - len(result.shape) if long else 0
        between = strides[axis] if long and -axis <= len(array.shape) and array.shape[axis] != 1 else 0
        return between, strides[-2], strides[-1]

    (m, k), n = reads[0].shape[-2:], reads[1].shape[-1]
    return MatrixProducts(math.prod(batch), m, n, k, steps(reads[0]), steps(reads[1]), steps(result))


class _CpuProductsKernel(UnitKernelWriter):
    """The frame of the kernels: what the slots hold, and a loop over units. rows: of a block; rest: of the last one;
    taps: how often each row of the second matrix is taken, shifted, 0 for once as it is.

    Slots: the matrices and the result, m, n, k, panels of columns and chunks of rows of a product, and for each array
    the steps between products, rows and columns in bytes. With taps also how many first matrices there are, and by how
    many bytes each tap is shifted."""

    blocks = BLOCKS

    def __init__(self, name: str, dtype: DType, vector_bytes: int, rows: int, rest: int, taps: int = 0) -> None:
        super().__init__(f"{name}_{dtype.name}_{rows}_{rest}", dtype, vector_bytes, 3, 14)
        self.rows, self.rest, self.taps = rows, rest, taps
        self.m, self.n, self.k, self.panels, self.chunks = self.numbers[:5]
        self.left, self.right, self.result = self.numbers[5:8], self.numbers[8:11], self.numbers[11:]

    def written(self, write: Callable[[Sequence[LlvmValue], LlvmValue, LlvmValue, LlvmValue], None]) -> Kernel:
        """write: what a unit does, given the addresses of its matrices, its first row and the one after the last, and
        its panel."""
        length = self.blocks * self.rows
        with self.units() as unit:
            pair = unit.binary("udiv", self.panels)
            product = pair.binary("udiv", self.chunks)
            first = (pair - product * self.chunks) * length
            steps = (self.left[0], self.right[0], self.result[0])
            which = [product, product, product]
            if self.taps:
                which[0] = product.binary("urem", self.number(TAPS - 1))
            found = [a.at(i * step, "i8") for a, i, step in zip(self.arrays, which, steps, strict=True)]
            write(found, first, (first + length).apply("umin", self.m), unit - pair * self.panels)
        return self.kernel(self.taps and self.taps + 1)

    def each_tap(self, line: LlvmValue, i: LlvmValue, write: Callable[[LlvmValue, LlvmValue], None]) -> None:
        """write: what is done with each shift of row i of the second matrix, and its number."""
        if not self.taps:
            write(line, i)
            return
        with self.f.loop(0, self.taps) as tap:
            write(line.at(self.number(tap + TAPS), "i8"), i * self.taps + tap)

    def blocks_of_rows(self, first: LlvmValue, last: LlvmValue, write: Callable[[LlvmValue, int], None]) -> None:
        self.blocks_between(first, last, self.rows, self.rest, write)


Masks = Sequence[LlvmValue | None]


class _RowProductsKernel(_CpuProductsKernel):
    """Rows of the second matrix and of the result are contiguous. wide: vectors of a panel; depth: so many rows of a
    panel at a time are copied to the stack, where they lie one behind the other, before the rows of a unit are
    multiplied by them; 0 where they stay where they are."""

    def __init__(
        self, name: str, dtype: DType, vector_bytes: int, rows: int, rest: int, taps: int, wide: int, depth: int
    ) -> None:
        super().__init__(name, dtype, vector_bytes, rows, rest, taps)
        self.length, self.depth, self.blocks = wide * self.lanes, depth, PACKED_BLOCKS if depth else BLOCKS
        self.packed = self.f.slot(self.elem, depth * self.length) if depth else None
        self.line_length = LINE // dtype.itemsize

    def fetch(self, line: LlvmValue, count: int) -> None:
        """What lies at a place, before it is read: a core foresees nothing that is read in so short pieces."""
        for v in range(count):
            line.at(v * self.lanes, self.elem, inside=False).prefetch()

    def write_panel(self, arrays: Sequence[LlvmValue], first: LlvmValue, last: LlvmValue, masks: Masks) -> None:
        """The results of rows first to last. arrays: the first matrix, the panel, its results."""
        if self.packed is None:
            self.blocks_of_rows(first, last, lambda row, n: self.write_tile(arrays, row, n, masks, self.zero, self.k))
            return
        with self.f.loop(self.zero, self.k, self.depth) as low:
            high = (low + self.depth).apply("umin", self.k)
            with self.f.loop(low, high) as i:
                line, own = arrays[1].at(i * self.right[1], "i8"), self.packed.at((i - low) * self.length, self.elem)
                self.fetch(line.at(self.right[1] * AHEAD, "i8", inside=False), len(masks))
                for v, mask in enumerate(masks):
                    at = v * self.lanes
                    own.at(at, self.elem).store(self.vector(line.at(at, self.elem), mask))
            self.blocks_of_rows(first, last, lambda row, n: self.write_tile(arrays, row, n, masks, low, high))

    def write_tile(
        self, arrays: Sequence[LlvmValue], row: LlvmValue, rows: int, masks: Masks, low: LlvmValue, high: LlvmValue
    ) -> None:
        """The terms low to high of the results of so many rows from a row on."""
        f, elem, lanes, packed = self.f, self.elem, self.lanes, self.packed
        sums = self.zeros(rows, len(masks))
        outs = [arrays[2].at((row + r) * self.result[1], "i8") for r in range(rows)]
        places = [
            (place, out.at(v * lanes, elem), mask)
            for out, each in zip(outs, sums, strict=True)
            for v, (place, mask) in enumerate(zip(each, masks, strict=True))
        ]
        lefts = [arrays[0].at((row + r) * self.left[1], "i8") for r in range(rows)]
        if packed:
            with f.when(self.zero < low):
                for place, target, mask in places:
                    place.store(self.vector(target, mask), 64)
            with f.loop(low, high, self.line_length) as i:
                for left in lefts:  # of the next block of rows
                    left.at(self.left[1] * rows + i * self.left[2], "i8", inside=False).prefetch()

        def add_terms(line: LlvmValue, i: LlvmValue) -> None:
            vectors = [self.vector(line.at(v * lanes, elem), None if packed else m) for v, m in enumerate(masks)]
            if self.taps and rows > 1:  # of the next panel but one
                self.fetch(line.at(2 * self.length, elem, inside=False), len(masks))
            for left, each in zip(lefts, sums, strict=True):
                number = left.at(i * self.left[2], "i8").load(elem).splat(lanes)
                for vector, place in zip(vectors, each, strict=True):
                    self.add_to(place, number, vector)

        with f.loop(low, high) as i:
            line = packed.at((i - low) * self.length, elem) if packed else arrays[1].at(i * self.right[1], "i8")
            self.each_tap(line, i, add_terms)
        for place, target, mask in places:
            emit_llvm_masked_store(target, self.total(place), mask)


@cache
def llvm_row_products_kernel(
    dtype: DType, vector_bytes: int, tile: tuple[int, int], rest: int, edges: tuple[bool, int], taps: int, depth: int
) -> Kernel:
    """tile: rows of blocks, vectors of panels; rest: rows of the last block, 0 where it is like the others. edges:
    whether there are whole panels; vectors of the last panel, 0 where it is whole. taps: of each row of the second
    matrix, 0 where it is taken once as it is. depth: of `_RowProductsKernel`."""
    (rows, wide), (whole, edge) = tile, edges
    name = f"{'packed' if depth else 'row'}_products{wide}{'_whole' * whole}{f'_edge{edge}' if edge else ''}"
    name += f"_taps{taps}" if taps else ""
    made = _RowProductsKernel(name, dtype, vector_bytes, rows, rest, taps, wide, depth)
    f, lanes = made.f, made.lanes

    def write_unit(arrays: Sequence[LlvmValue], first: LlvmValue, last: LlvmValue, panel: LlvmValue) -> None:
        a, b, c = arrays
        column = panel * made.length
        own, left = (a, b.at(column, made.elem), c.at(column, made.elem)), made.n - column

        def write_edge() -> None:
            last_mask = llvm_mask_below(f, left - (edge - 1) * lanes, lanes)
            made.write_panel(own, first, last, [*[None] * (edge - 1), last_mask])

        def write_whole() -> None:
            made.write_panel(own, first, last, [None] * wide)

        if whole and edge:
            f.fork(f.const(made.length, "i64") <= left, write_whole, write_edge)
        else:
            (write_whole if whole else write_edge)()

    return made.written(write_unit)


@cache
def llvm_dot_products_kernel(dtype: DType, vector_bytes: int, rows: int, rest: int, columns: int) -> Kernel:
    """Rows of the first matrix and columns of the second are contiguous. Panels are of BLOCKS blocks of DOT_COLUMNS.

    rows, rest: of blocks, and of the last one, 0 where it is like the others; columns: of the last block."""
    made = _CpuProductsKernel(f"dot_products_{columns}", dtype, vector_bytes, rows, rest)
    elem = made.elem

    def write_unit(arrays: Sequence[LlvmValue], first: LlvmValue, last: LlvmValue, panel: LlvmValue) -> None:
        a, b, c = arrays
        low = panel * (BLOCKS * DOT_COLUMNS)
        high = (low + BLOCKS * DOT_COLUMNS).apply("umin", made.n)

        def write_tile(row: LlvmValue, rows: int, column: LlvmValue, columns: int) -> None:
            sums = made.zeros(rows, columns)
            lefts = [a.at((row + r) * made.left[1], "i8") for r in range(rows)]
            rights = [b.at((column + j) * made.right[2], "i8") for j in range(columns)]

            def add_terms(i: LlvmValue, mask: LlvmValue | None, copy: int) -> None:
                vectors = [made.vector(start.at(i, elem), mask) for start in rights]
                for left, each in zip(lefts, sums, strict=True):
                    vector = made.vector(left.at(i, elem), mask)
                    for other, place in zip(vectors, each, strict=True):
                        made.add_to(place, vector, other)

            made.f.vectors(made.zero, made.k, made.lanes, add_terms)
            for r, each in enumerate(sums):
                for j, place in enumerate(each):
                    out = c.at((row + r) * made.result[1], "i8")
                    out.at((column + j) * made.result[2], "i8").store(sum_of_llvm_lanes(made.total(place)))

        def write_columns(column: LlvmValue, columns: int) -> None:
            made.blocks_of_rows(first, last, lambda row, rows: write_tile(row, rows, column, columns))

        made.blocks_between(low, high, DOT_COLUMNS, columns, write_columns)

    return made.written(write_unit)
