"""Layout changes: elementwise kernels with operands whose unit stride (or only small one) is not along the vectors.

A unit is `rows` indices of one outer axis (the tile axis) times `columns` of the innermost one. First each such operand
is copied into a tile on the stack, whole cache lines at a time, transposed in registers where its stride along the
tile axis is 1; then the kernel runs row by row, and reads the tile as if it were contiguous.
"""

from __future__ import annotations

from ....runtime.core.frozen import dataclass
from ...core.types import real_dtype
from ...kernel.loop_nest import POINT, LoopNest
from .access import CpuKernelFrame, Lanes, emit_llvm_flat_loop, gather_strided_elements, llvm_element_type
from .body import VectorLoopBody
from .llvm_ir import LINE, LlvmValue

TILE_BYTES = 16384  # of an operand's tile; it stays in the first-level cache
AHEAD = 32  # columns that the prefetch into the second-level cache runs ahead


@dataclass(frozen=True)
class TransposeTiling:
    """axis: the tile axis; rows, columns: a tile's size; operands: those that are copied."""

    axis: int
    rows: int
    columns: int
    operands: tuple[int, ...]


def cpu_transpose_tiling(nest: LoopNest) -> TransposeTiling | None:
    """The tiling of an elementwise kernel that reads across an outer axis. None where there is no such operand."""
    inner = nest.parallel - 1
    if inner < 1 or any(p.kind != POINT for p in nest.phases) or len(nest.phases) > 1:
        return None
    across = [i for i, o in enumerate(nest.operands) if o.role == "in" and o.layout[inner] == "s"]
    across = sorted(set(across) - nest.looked_up)
    marked = [a for i in across for a in range(inner) if nest.operands[i].layout[a] == "1"]
    axis = marked[0] if marked else inner - 1
    chosen = tuple(i for i in across if nest.operands[i].layout[axis] != "0")
    if not chosen:
        return None
    sizes = [nest.operands[i].dtype.itemsize for i in chosen]
    rows = max(4, 2 * LINE // min(sizes))
    return TransposeTiling(axis, rows, max(16, TILE_BYTES // (rows * max(sizes))), chosen)


def write_llvm_transpose_tiles(
    frame: CpuKernelFrame,
    body: VectorLoopBody,
    tiling: TransposeTiling,
    begin: LlvmValue,
    end: LlvmValue,
    vector_bytes: int,
) -> None:
    f, nest = frame.f, frame.nest
    inner, axis = nest.parallel - 1, tiling.axis
    counts = {
        inner: split_into_llvm_transpose_blocks(frame.lengths[inner], tiling.columns),
        axis: split_into_llvm_transpose_blocks(frame.lengths[axis], tiling.rows),
    }
    tiles = {o: f.slot(llvm_element_type(nest.operands[o]), tiling.rows * tiling.columns) for o in tiling.operands}
    dims = [(a, counts.get(a, frame.lengths[a])) for a in range(nest.parallel)]
    body.access.step_axis = axis
    with emit_llvm_flat_loop(frame, dims, begin, end):
        top, low = frame.index.pop(axis) * tiling.rows, frame.index.pop(inner) * tiling.columns
        bottom = f.intrinsic("umin", "i64", top + tiling.rows, frame.lengths[axis])
        high = f.intrinsic("umin", "i64", low + tiling.columns, frame.lengths[inner])
        for operand, tile in tiles.items():
            fill_cpu_transpose_tile(frame, operand, tiling, tile, (top, bottom), (low, high), vector_bytes)
        with f.loop(top, bottom) as row:
            frame.index[axis] = row
            for operand, tile in tiles.items():
                line = tile.at((row - top) * tiling.columns, llvm_element_type(nest.operands[operand]))
                body.access.packed[operand] = (line, low)
            (phase,) = nest.phases
            body.run(phase, low, high, write_nothing_after_lanes)
            body.access.packed.clear()


def write_nothing_after_lanes(lanes: Lanes) -> None:
    """Elementwise kernels have nothing to do after their instructions."""


def split_into_llvm_transpose_blocks(length: LlvmValue, block: int) -> LlvmValue:
    return (length + (block - 1)).binary("udiv", block)


def fill_cpu_transpose_tile(
    frame: CpuKernelFrame,
    operand: int,
    tiling: TransposeTiling,
    tile: LlvmValue,
    rows: tuple[LlvmValue, LlvmValue],
    columns: tuple[LlvmValue, LlvmValue],
    vector_bytes: int,
) -> None:
    """Copy the operand's elements of these rows and columns into its tile."""
    f, known, axis = frame.f, frame.nest.operands[operand], tiling.axis
    inner = frame.nest.parallel - 1
    size = known.dtype.itemsize
    frame.index[axis], frame.index[inner] = rows[0], columns[0]
    corner = frame.address_of_operand(operand, sorted(frame.index))
    del frame.index[axis], frame.index[inner]
    down = frame.strides.get((operand, axis), f.const(1, "i64"))
    right = frame.strides[operand, inner]
    lanes = min(16, vector_bytes // size) if size <= 4 else 64 // size  # squares that fit in the registers
    transposed = known.layout[axis] == "1"  # else vectors along the axis would not be of neighbours
    height, width = rows[1] - rows[0], columns[1] - columns[0]
    start = f.const(0, "i64")
    if lanes >= 8 and transposed:
        done, whole = f.slot("i64"), width & -lanes
        done.store(start)
        with f.when(height.eq(tiling.rows)):
            with f.loop(start, whole, lanes) as column:
                _transpose_vector_block(frame, operand, tiling, (corner, right), tile, column, lanes)
            done.store(whole)
        start = done.load("i64")
    with f.loop(0, height) as row:
        far = corner.at(row.binary("mul nsw", down) + start.binary("mul nsw", right), llvm_element_type(known))
        near = tile.at(row * tiling.columns + start, llvm_element_type(known))
        gather_strided_elements(known, far, right, near, width - start)


def _transpose_vector_block(
    frame: CpuKernelFrame,
    operand: int,
    tiling: TransposeTiling,
    source: tuple[LlvmValue, LlvmValue],
    tile: LlvmValue,
    column: LlvmValue,
    lanes: int,
) -> None:
    """All rows of `lanes` columns: vectors along the tile axis in, vectors along the inner one out."""
    f, known = frame.f, frame.nest.operands[operand]
    elem, (corner, right) = f"i{8 * known.dtype.itemsize}", source
    align = real_dtype(known.dtype).itemsize
    starts = [corner.at((column + i).binary("mul nsw", right), elem) for i in range(lanes)]
    with f.loop(0, tiling.rows, lanes) as row:
        places = [start.at(row, elem) for start in starts]
        for place in places:
            place.at(right * AHEAD, elem).prefetch(locality=2)
        vectors = [place.load(elem, lanes, align) for place in places]
        for i, vector in enumerate(transpose_square_of_vectors(vectors)):
            tile.at(column + (row + i) * tiling.columns, elem).store(vector, 16)


def transpose_square_of_vectors(rows: list[LlvmValue]) -> list[LlvmValue]:
    """The square of vectors, transposed by shuffles. These stay in 128-bit lanes, and then whole lanes move.

    The vectors have 2 or 4 groups of `part` elements (8 and 16 of 32 bits, 8 of 64 bits); both steps are one
    instruction a vector on x86.
    """
    count = len(rows)
    groups = 2 if count == 8 and rows[0].elem == "i32" else 4
    part = count // groups
    zipped = [
        v for start in range(0, count, part) for v in _transpose_within_vector_lanes(rows[start : start + part], part)
    ]
    result: list[LlvmValue] = [rows[0]] * count
    for c in range(part):
        columns = [zipped[q * part + c] for q in range(groups)]
        for m, vector in enumerate(_transpose_vector_lane_groups(columns, part)):
            result[m * part + c] = vector
    return result


def _zip_vector_lane_groups(a: LlvmValue, b: LlvmValue, part: int, width: int, high: int) -> LlvmValue:
    """In every group of `part` elements: its low (or high) halves of a and b, `width` elements in turn."""
    order = []
    for group in range(0, a.lanes, part):
        for start in range(group + high * part // 2, group + high * part // 2 + part // 2, width):
            order += [*range(start, start + width), *range(a.lanes + start, a.lanes + start + width)]
    return a.shuffle(order, b)


def _transpose_within_vector_lanes(rows: list[LlvmValue], part: int) -> list[LlvmValue]:
    """Every `part` x `part` square of `part` rows, transposed."""
    if part == 2:
        return [_zip_vector_lane_groups(rows[0], rows[1], part, 1, high) for high in (0, 1)]
    first = [_zip_vector_lane_groups(rows[i], rows[i + 1], part, 1, high) for i in (0, 2) for high in (0, 1)]
    return [_zip_vector_lane_groups(first[i], first[i + 2], part, 2, high) for i in (0, 1) for high in (0, 1)]


def _transpose_vector_lane_groups(rows: list[LlvmValue], part: int) -> list[LlvmValue]:
    """The square of groups of `part` elements, transposed."""
    if len(rows) == 2:
        low, high = range(part), range(part, 2 * part)
        return [rows[0].shuffle([*half, *(2 * part + o for o in half)], rows[1]) for half in (low, high)]

    def pick_lane_groups(a: LlvmValue, b: LlvmValue, first: int) -> LlvmValue:
        groups = [first, first + 2]
        order = [g * part + w for g in groups for w in range(part)]
        return a.shuffle(order + [4 * part + o for o in order], b)

    (a, b), (c, d) = [[pick_lane_groups(rows[i], rows[i + 1], first) for i in (0, 2)] for first in (0, 1)]
    return [pick_lane_groups(a, b, 0), pick_lane_groups(c, d, 0), pick_lane_groups(a, b, 1), pick_lane_groups(c, d, 1)]
