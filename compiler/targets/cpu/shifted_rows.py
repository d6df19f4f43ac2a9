"""CPU kernels of convolutions, whose windows are nowhere laid out: an element of a window lies at one distance, the
tap, from the window's first one, so that all of them are one row that is shifted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, partial
from itertools import groupby
from typing import Any

from ....runtime.program.program import Kernel, Task
from ...core.types import DType
from ...layout.operands import StridedBufferArray
from .llvm_ir import LlvmValue, emit_llvm_masked_store, llvm_mask_below
from .matmul import SUMS, cpu_row_products_kernel, even_cpu_product_block
from .unit_kernel import UnitKernelWriter, sum_of_llvm_lanes, unit_kernel_task

DOT_ROWS = 4
FEW_ROWS, LINE_VECTORS = 2, 4  # rows of weights that lines of results are made for, and lines and vectors of a tile
CACHED = 1 << 18  # bytes of the rows that are multiplied with all taps one after another
FIRST_TAP, FIRST_CHAIN = 11, 12  # the slots of them


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
    if m <= FEW_ROWS and options["line"] < n:
        return _cpu_line_products_task(vector_bytes, reads, result, options, line)
    kernel, rows, columns, blocks = cpu_row_products_kernel(dtype, vector_bytes, m, n, taps=len(taps))
    panels, chunks = -(-n // columns), -(-m // (blocks * rows))
    steps = (m * k, k, 1, channels * length, length, 1, m * options["width"], options["width"], 1)
    numbers = (m, n, channels, panels, chunks, *(s * item for s in steps), groups, *(t * item for t in taps))
    return unit_kernel_task(
        "convolution",
        kernel,
        (*reads, result),
        numbers,
        batch * groups * panels * chunks,
        batch * groups * m * n * k,
        line,
    )


def _cpu_line_products_task(
    vector_bytes: int,
    reads: Sequence[StridedBufferArray],
    result: StridedBufferArray,
    options: Mapping[str, Any],
    text_line: str,
) -> Task:
    """The same of few rows of weights: what is loaded serves several lines of results."""
    weights, x = reads
    dtype, taps, n, line = result.dtype, options["taps"], options["length"], options["line"]
    item = dtype.itemsize
    (groups, m, k), (batch, _, channels, length) = weights.shape, x.shape
    lanes, lines = vector_bytes // item, -(-n // line)
    wide = even_cpu_product_block(-(-line // lanes), LINE_VECTORS if vector_bytes == 64 else LINE_VECTORS // 2)
    rows = even_cpu_product_block(lines, LINE_VECTORS)
    whole, left = divmod(line, wide * lanes)
    chains = _chains_of_taps(taps, line)
    runs = tuple((len(list(same)), count) for count, same in groupby(map(len, chains)))
    places = {tap: i for i, tap in enumerate(taps)}
    table = [t * item for chain in chains for t in (chain[0], *(places[tap] for tap in chain))]
    edges = whole > 0, -(-left // lanes)
    kernel = llvm_line_products_kernel(dtype, vector_bytes, (rows, wide), lines % rows, edges, runs)
    blocks = -(-lines // rows)
    numbers = (n, line, channels, groups, m, blocks, k * item, length * item, options["width"] * item, *table)
    multiplications = batch * groups * m * n * k
    return unit_kernel_task(
        "convolution", kernel, (*reads, result), numbers, batch * groups * m * blocks, multiplications, text_line
    )


def _chains_of_taps(taps: Sequence[int], line: int) -> list[list[int]]:
    """Taps that are a line apart, one behind the other; those of equal lengths side by side."""
    own, chains = set(taps), []
    for tap in taps:
        if tap - line not in own:
            chains.append([tap])
            while chains[-1][-1] + line in own:
                chains[-1].append(chains[-1][-1] + line)
    return sorted(chains, key=len)


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
    return unit_kernel_task(
        "convolution", kernel, (a, x, result), numbers, groups * blocks * channels, multiplications, line
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
    (rows, wide), (last_rows, last_taps) = tile, rest
    name = f"shifted_dots_{dtype.name}_{rows}x{wide}_{last_rows}_{last_taps}_taps{taps}"
    made = UnitKernelWriter(name, dtype, vector_bytes, 3, 8)
    f, elem, zero, (a, x, result) = made.f, made.elem, made.zero, made.arrays
    batch, groups, m, channels, length, images, a_row, x_row = made.numbers
    blocks = (m + (rows - 1)).binary("udiv", rows)

    def write_tile(
        group: LlvmValue, row: LlvmValue, channel: LlvmValue, low: LlvmValue, tap: LlvmValue, m_: int, n: int
    ) -> None:
        """The sums of m_ rows and n taps over a block of images, which begins at `low`."""
        sums = made.zeros(m_, n)
        shifts = [made.number(tap + (FIRST_TAP + j)) for j in range(n)]
        with f.loop(low, (low + images).apply("umin", batch)) as image:
            own = image * groups + group
            lefts = [a.at((own * m + row + i) * a_row, "i8") for i in range(m_)]
            line = x.at((own * channels + channel) * x_row, "i8")
            rights = [line.at(shift, "i8") for shift in shifts]

            def add_terms(p: LlvmValue, mask: LlvmValue | None, copy: int) -> None:
                vectors = [made.vector(left.at(p, elem), mask) for left in lefts]
                for j, right in enumerate(rights):
                    other = made.vector(right.at(p, elem), mask)
                    for each, one in zip(sums, vectors, strict=True):
                        made.add_to(each[j], one, other)

            f.vectors(zero, length, made.lanes, add_terms)
        for i, each in enumerate(sums):
            line = result.at(((group * m + row + i) * channels + channel) * taps + tap, elem)
            for j, place in enumerate(each):
                target = line.at(j, elem)
                before = (zero < low).pick(target.load(elem), f.const(0.0, elem))
                target.store(sum_of_llvm_lanes(made.total(place)) + before)

    def write_rows(group: LlvmValue, row: LlvmValue, channel: LlvmValue, count: int) -> None:
        with f.loop(zero, batch, images) as low:
            write = partial(write_tile, group, row, channel, low)
            made.blocks_between(zero, f.const(taps, "i64"), wide, last_taps, lambda tap, n: write(tap, count, n))

    with made.units() as unit:
        pair = unit.binary("udiv", channels)
        group = pair.binary("udiv", blocks)
        row, channel = (pair - group * blocks) * rows, unit - pair * channels
        made.block_or_rest(row + rows <= m, rows, last_rows, partial(write_rows, group, row, channel))
    return made.kernel(taps)


class _LineProductsKernel(UnitKernelWriter):
    """What is in the slots of `llvm_line_products_kernel`, and the parts of a unit."""

    def __init__(
        self, name: str, dtype: DType, vector_bytes: int, edges: tuple[bool, int], runs: Sequence[tuple[int, int]]
    ) -> None:
        super().__init__(name, dtype, vector_bytes, 3, FIRST_CHAIN - 3)
        (self.whole, self.edge), self.runs, self.item = edges, runs, dtype.itemsize
        self.n, self.line, self.channels, self.groups, self.m, self.blocks, *self.steps = self.numbers

    def below(self, count: LlvmValue) -> LlvmValue:
        return llvm_mask_below(self.f, count.apply("smax", 0), self.lanes)

    def write_tile(
        self, arrays: Sequence[LlvmValue], start: LlvmValue, column: LlvmValue, count: int, vectors: int
    ) -> None:
        """The results of so many lines from `start` on, and so many vectors of columns."""
        f, elem, lanes, (weights, images, out) = self.f, self.elem, self.lanes, arrays
        left = self.line.apply("umin", self.n - (start + self.line * (count - 1))) - column
        masks: list[LlvmValue | None] = [None] * vectors
        if self.edge == vectors:
            masks[-1] = self.below(self.line - column - (vectors - 1) * lanes)
        last: list[LlvmValue | None] = [self.below(left - v * lanes) for v in range(vectors)]
        sums = self.zeros(count, vectors)
        with f.loop(0, self.channels) as c:
            image = images.at(c * self.steps[1], "i8").at(start + column, elem)
            taps = sum(chains * length for chains, length in self.runs)
            own, at = weights.at(c * (taps * self.item), "i8"), FIRST_CHAIN
            for chains, length in self.runs:
                with f.loop(0, chains) as number:
                    self.add_chain(
                        sums, image, own, self.slots.at(number * (1 + length) + at, "i64"), length, masks, last
                    )
                at += chains * (1 + length)
        for r, each in enumerate(sums):
            target = out.at(start + self.line * r + column, elem)
            for v, (place, mask) in enumerate(zip(each, last if r == count - 1 else masks, strict=True)):
                emit_llvm_masked_store(target.at(v * lanes, elem), self.total(place), mask)

    def add_chain(
        self,
        sums: Sequence[Sequence[LlvmValue]],
        image: LlvmValue,
        own: LlvmValue,
        chain: LlvmValue,
        length: int,
        masks: Sequence[LlvmValue | None],
        last: Sequence[LlvmValue | None],
    ) -> None:
        """The products with the weights of a chain. masks: of a line that is loaded, and of the last one."""
        elem, lanes, count = self.elem, self.lanes, len(sums)
        offsets = [chain.at(1 + q, "i64").load("i64") for q in range(length)]
        numbers = [own.at(offset, "i8").load(elem).splat(lanes) for offset in offsets]
        first = image.at(chain.load("i64"), "i8")
        for s in range(count + length - 1):
            line = first.at(self.line * s, elem)
            for v, mask in enumerate(last if s == count + length - 2 else masks):
                vector = self.vector(line.at(v * lanes, elem), mask)
                for q in range(max(0, s - count + 1), min(length, s + 1)):
                    self.add_to(sums[s - q][v], numbers[q], vector)

    def write_block(self, arrays: Sequence[LlvmValue], start: LlvmValue, wide: int, count: int) -> None:
        length = wide * self.lanes
        end = self.line - self.line.binary("urem", length)
        if self.whole:
            with self.f.loop(0, end, length) as column:
                self.write_tile(arrays, start, column, count, wide)
        if self.edge:
            self.write_tile(arrays, start, end, count, self.edge)


@cache
def llvm_line_products_kernel(
    dtype: DType,
    vector_bytes: int,
    tile: tuple[int, int],
    rest: int,
    edges: tuple[bool, int],
    runs: tuple[tuple[int, int], ...],
) -> Kernel:
    """result[b, g, i, p] = the sum over c and t of weights[g, i, c, t] * x[b, g, c, p + tap[t]]

    tile: lines of a block and vectors of a panel whose sums are in registers; rest: lines of the last block, 0 where it
    is like the others; edges: as of `llvm_row_products_kernel`. runs: of chains of taps that are a line apart, how many
    are of one length, and that length: what is loaded for one line is multiplied for each line that it is a tap of. A
    unit is a block of lines. Slots: the arrays; the length of rows and of lines, channels, groups, rows of a group,
    blocks, bytes of rows of each array; of each chain its first tap and its weights, in bytes."""
    rows, wide = tile
    shape = f"{rows}x{wide}_{rest}{'_whole' * edges[0]}_edge{edges[1]}"
    name = f"line_products_{dtype.name}_{shape}_{'_'.join(f'{count}x{length}' for count, length in runs)}"
    made = _LineProductsKernel(name, dtype, vector_bytes, edges, runs)
    with made.units() as unit:
        plane = unit.binary("udiv", made.blocks)
        pair, block = plane.binary("udiv", made.m), unit - plane * made.blocks
        group_row = pair.binary("urem", made.groups) * made.m + (plane - pair * made.m)
        starts = (group_row, pair * made.channels, plane)
        arrays = [a.at(i * step, "i8") for a, i, step in zip(made.arrays, starts, made.steps, strict=True)]
        write = partial(made.write_block, arrays, block * made.line * rows, wide)
        made.block_or_rest(block + 1 < made.blocks, rows, rest, write)
    return made.kernel(sum(chains * (1 + length) for chains, length in runs))
