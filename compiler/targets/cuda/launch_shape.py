"""How a loop nest is spread over a GPU. Its strategy and lanes come from layouts, its launch shape from sizes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....runtime.core.frozen import frozen
from ....runtime.program.device import GpuProperties
from ...core.cost import CLUSTER
from ...kernel.loop_nest import (
    LIMIT_32,
    LOOP,
    LoopNest,
    Phase,
    Reduction,
    Window,
    loop_nest_calls_looping_function,
    user_functions_of_loop_nest,
)
from ...kernel.primitives import COSTLY

VECTOR_BYTES = 16
WARP = 32
MAX_THREADS = 512  # of a reduction's block: leaves 128 registers a thread
ELEMENTWISE_THREADS = 256
# (registers that a thread's loads fill at most, blocks that a multiprocessor should hold at once): the first line
# that fits. Measured: more blocks hide more latency until a thread's values no longer fit its registers.
_RESIDENT = ((16, 6), (24, 4))
TILE, TILE_ROWS = 32, 8
SHARED_BYTES = 40 << 10  # of a block: below the 48 KiB that every GPU grants

# (16-byte groups a thread, threads at most): a row takes the first line that holds it.
_ROW_WIDTHS = ((1, 32), (2, 32), (4, MAX_THREADS), (8, MAX_THREADS))
_MOST_GROUPS = 8  # of a thread
_FEW_WORDS = 2  # that are alive in a lane: two of the largest blocks have registers for as many at once
_MAX_LANES = 32
_ARITHMETIC_THREADS = (
    768  # largest blocks, which bound a thread's registers by 80, where arithmetic takes longer: measured
)
_LOOP_REGISTERS = 128  # for the values of a loop that reduces and stores: a compiler keeps fewer alive than their order

# Of stencils, measured: two columns a lane are best, and many rows, if the threads still fill the GPU.
_WIDEST_WINDOW, _WINDOW_LANES = 2, 8
_WINDOW_REGISTERS = 96  # for what a thread reads at a time
_DEEP_THREADS = 128  # of a block, where windows reach along a third axis: less is read once more, and more blocks fit


@frozen
class CudaShape:
    """The strategy (`elementwise`, `window`, `tile`, `row`, `swept window`, `column`), and the lanes of a value:
    `groups` of `length` elements.

    loop: a row too long for registers is read once a phase. across: the other axis of a tile, or that of a thread's
    rows in windows (-1: there is none). cluster: the blocks that have a row together. threads: the largest block of
    any launch, which bounds the registers of a thread, as does `blocks`: as many are resident at once.
    """

    strategy: str
    length: int
    groups: int
    loop: bool = False
    across: int = -1
    threads: int = 256
    blocks: int = 1
    cluster: int = 1

    @property
    def lanes(self) -> int:
        return self.length * self.groups


def cuda_operand_moves_along(nest: LoopNest, operand: int, axis: int) -> bool:
    return nest.operands[operand].layout[axis] != "0"


def is_cuda_vector_access(nest: LoopNest, operand: int, axis: int) -> bool:
    """Whether consecutive elements along the axis can be read 16 bytes at a time."""
    return bool(nest.operands[operand].aligned) and nest.operands[operand].layout[axis] == "1"


def cuda_operands_touched_in_phases(nest: LoopNest, kind: str | None = None) -> frozenset[int]:
    """The operands loaded or stored in phases of the kind (all phases if None)."""
    return frozenset(
        instr.attr[0]
        for phase in nest.phases
        if kind in (None, phase.kind)
        for instr in phase.instrs
        if instr.op in ("load", "store")
    )


def choose_cuda_launch_shape(nest: LoopNest) -> CudaShape:
    """The shape of a nest; a pure function of layouts, dtypes and size class."""
    if nest.run:
        return _cuda_row_reduction_shape(nest)
    if nest.reduced:
        if nest.windows and (window := _cuda_stencil_shape(nest)):
            return window
        return _cuda_column_reduction_shape(nest) if _cuda_reduces_by_columns(nest) else _cuda_row_reduction_shape(nest)
    across = _cuda_axis_to_transpose(nest)
    if across is not None and not nest.short:
        staged = sum(nest.operands[o].dtype.itemsize for o in operands_transposed_in_shared_memory(nest, across))
        for groups in (8, 4):
            if (TILE_ROWS * groups) * (TILE + 1) * staged <= SHARED_BYTES:
                return CudaShape("tile", 1, groups, across=across)
    if loop_nest_calls_looping_function(nest):
        return CudaShape("elementwise", 1, 1)  # threads wait for the longest loop of their warp: one element each
    if nest.windows and (window := _cuda_stencil_shape(nest)):
        return window
    width = max(1, nest.width)
    length, largest = _cuda_vector_length(nest, cuda_operands_touched_in_phases(nest), nest.parallel - 1, mixed=True)
    if length > 1:
        return CudaShape(
            "elementwise", length, width, blocks=_resident_blocks_of_elementwise_kernel(nest, length * width)
        )
    scattered = any(o.layout[nest.parallel - 1] == "1" for o in nest.operands)  # single elements: twice as many
    return CudaShape("elementwise", 1, width * max(1, VECTOR_BYTES // largest) * (1 + scattered))


def axes_of_stencil_lanes(nest: LoopNest) -> range:
    """The axes that the lanes of a warp lie along: of a reduction those that it reduces."""
    return range(nest.parallel if nest.reduced else 0, nest.axes)


def _cuda_stencil_shape(nest: LoopNest) -> CudaShape | None:
    """Columns and rows for a thread of a stencil: the more, the less is read twice, as far as its registers go."""
    if nest.looked_up or user_functions_of_loop_nest(nest):  # lanes without columns of their own compute too
        return None
    outer = axes_of_stencil_lanes(nest)[:-1]
    across = max([axis for axis in outer if _cuda_stencil_window_reach(nest, axis)] or outer, default=-1)
    deep = _stencil_reuses_rows(nest, across)
    most = _WINDOW_LANES * (2 if nest.many and not deep else 1)
    length = min(nest.vector, _WIDEST_WINDOW if across >= 0 else most)
    smallest: CudaShape | None = None  # reads a large window in turn, where single loads would fill more registers
    while length:
        for groups in (8, 4, 2, 1) if across >= 0 else (1,):
            threads = _DEEP_THREADS if deep else ELEMENTWISE_THREADS
            strategy = "swept window" if nest.reduced else "window"
            shape = CudaShape(strategy, length, groups, across=across, threads=threads)
            if shape.lanes <= most and count_idle_cuda_warp_lanes(nest, length) <= WARP // 4:
                if _stencil_fits_thread_registers(nest, shape):
                    return shape
                smallest = shape if across >= 0 and smallest is None and groups == 1 else smallest
        length //= 2
    return smallest


def _cuda_stencil_window_reach(nest: LoopNest, axis: int) -> int:
    """The largest shift along an axis."""
    return max(window.span(axis) for window in nest.windows)


def _stencil_reuses_rows(nest: LoopNest, across: int) -> bool:
    """Whether operands are shifted along an axis other than the innermost and that of a thread's rows."""
    return any(_cuda_stencil_window_reach(nest, axis) for axis in range(nest.axes - 1) if axis != across)


def _stencil_fits_thread_registers(nest: LoopNest, shape: CudaShape) -> bool:
    """Whether the registers of a thread hold what it reads of a plane, or of two windows' planes."""
    words = 0
    for window in nest.windows:
        planes: Counter[tuple[int, ...]] = Counter()
        for row, columns in stencil_rows_of_window(window, shape).items():
            planes[stencil_plane_of_row(row, shape)] += shape.length + columns
        words += max(planes.values()) * max(1, nest.operands[window.operands[0]].dtype.itemsize // 4)
    return words <= _WINDOW_REGISTERS


def count_idle_cuda_warp_lanes(nest: LoopNest, length: int) -> int:
    """The last lanes of a warp, whose columns are in windows of the others only."""
    return -(-_cuda_stencil_window_reach(nest, nest.axes - 1) // length)


def stencil_row_of_thread(shift: tuple[int, ...], shape: CudaShape, group: int) -> tuple[int, ...]:
    """Where, along the outer axes, a thread's row lies for an operand with this shift."""
    return tuple(n + group * (axis == shape.across) for axis, n in enumerate(shift[:-1]))


def stencil_plane_of_row(row: tuple[int, ...], shape: CudaShape) -> tuple[int, ...]:
    """A place along the outer axes but that of a thread's rows."""
    return tuple(n for axis, n in enumerate(row) if axis != shape.across)


def stencil_rows_of_window(window: Window, shape: CudaShape) -> dict[tuple[int, ...], int]:
    """The rows of a window that a thread needs, and the columns beyond its own."""
    rows: dict[tuple[int, ...], int] = {}
    for shift in window.shifts:
        for group in range(shape.groups):
            row = stencil_row_of_thread(shift, shape, group)
            rows[row] = max(rows.get(row, 0), shift[-1])
    return dict(sorted(rows.items()))


def _resident_blocks_of_elementwise_kernel(nest: LoopNest, lanes: int) -> int:
    """Blocks of an elementwise kernel that should be resident at once; 1 leaves the registers to the compiler."""
    operands = [nest.operands[o] for o in cuda_operands_touched_in_phases(nest)]
    if any(instr.dtype.kind in "fc" and instr.dtype.itemsize > 4 for phase in nest.phases for instr in phase.instrs):
        return 1  # a float64 function takes as many registers as the values of other kernels
    held = lanes * sum(o.role != "out" for o in operands)
    return next((blocks for most, blocks in _RESIDENT if held <= most), 1)


def _cuda_vector_length(nest: LoopNest, operands: frozenset[int], axis: int, mixed: bool) -> tuple[int, int]:
    """Elements of a vector along the axis (1 if no operand can use more), and the largest item.

    mixed: where item sizes differ, up to 4 elements, so that the smaller items come in wider accesses too.
    Where unaligned operands would be read or written with gaps between the threads of a warp, single elements are best.
    """
    moving = [o for o in operands if cuda_operand_moves_along(nest, o, axis)]
    sizes = [nest.operands[o].dtype.itemsize for o in moving if is_cuda_vector_access(nest, o, axis)]
    largest = max([nest.operands[o].dtype.itemsize for o in moving] or [VECTOR_BYTES])
    gaps = [
        nest.operands[o]
        for o in moving
        if nest.operands[o].layout[axis] == "1" and not is_cuda_vector_access(nest, o, axis)
    ]
    if len(gaps) >= len(sizes) or any(o.role != "in" for o in gaps):
        return 1, largest
    length = VECTOR_BYTES // max(sizes)
    return (max(length, min(4, VECTOR_BYTES // min(sizes))) if mixed else length), largest


def _cuda_reduces_by_columns(nest: LoopNest) -> bool:
    """Whether the data of the loops is contiguous along the innermost parallel axis rather than the reduced one, or
    along both, as in windows that overlap. Arrays that are broadcast are small beside the others."""
    loads = [
        instr.attr[0] for phase in nest.phases if phase.kind == LOOP for instr in phase.instrs if instr.op == "load"
    ]
    moved = {o: sum(cuda_operand_moves_along(nest, o, axis) for axis in range(nest.axes)) for o in loads}
    loads = [o for o in loads if moved[o] == max(moved.values())]
    rows = sum(nest.operands[o].layout[-1] == "1" for o in loads)
    columns = sum(
        nest.operands[o].layout[nest.parallel - 1] == "1" and cuda_operand_moves_along_reduced_axis(nest, o)
        for o in loads
    )
    overlap = any(nest.operands[o].layout[-1] == nest.operands[o].layout[nest.parallel - 1] == "1" for o in loads)
    return bool(columns > rows or (overlap and columns == rows))


def cuda_operand_moves_along_reduced_axis(nest: LoopNest, operand: int) -> bool:
    return any(cuda_operand_moves_along(nest, operand, axis) for axis in range(nest.parallel, nest.axes))


def _cuda_row_reduction_shape(nest: LoopNest) -> CudaShape:
    length, largest = _cuda_vector_length(nest, cuda_operands_touched_in_phases(nest, LOOP), nest.axes - 1, mixed=False)
    loop = nest.width == 0 or nest.reduced > 1
    cluster = 1 if loop else max(1, min(CLUSTER, nest.width // _MOST_GROUPS))
    width = 4 if loop else nest.width // cluster
    groups = width if length > 1 else width * max(1, VECTOR_BYTES // largest)
    while length * groups > _MAX_LANES:
        groups //= 2
    fewer = _cuda_groups_that_fit_registers(nest, length, groups)
    loop, fewer = (False, groups) if nest.run else (loop or fewer < groups, fewer)
    busy = not nest.run and _is_cuda_nest_bound_by_arithmetic(nest)
    threads = _ARITHMETIC_THREADS if busy else MAX_THREADS
    full = not loop and not busy and width == _MOST_GROUPS
    alive = max(_most_cuda_register_words_alive(phase) for phase in nest.phases if phase.kind == LOOP)
    blocks = 2 if full and alive <= _FEW_WORDS else 1  # one loads while the other stores
    return CudaShape("row", length, fewer, loop, threads=threads, blocks=blocks, cluster=1 if loop else cluster)


def _is_cuda_nest_bound_by_arithmetic(nest: LoopNest) -> bool:
    """Of a nest that stores what it computes of rows: whether it has more than one slow float32 function for each 4
    bytes that it moves."""
    loops = [phase for phase in nest.phases if phase.kind == LOOP]
    if not any(instr.op == "store" for phase in loops for instr in phase.instrs):
        return False
    outer, inner = range(nest.parallel), nest.axes - 1
    moved = [
        nest.operands[o].dtype.itemsize
        for o in cuda_operands_touched_in_phases(nest, LOOP)
        if cuda_operand_moves_along(nest, o, inner) and any(cuda_operand_moves_along(nest, o, axis) for axis in outer)
    ]
    slow = [sum(i.op in COSTLY and i.dtype == np.float32 for i in phase.instrs) for phase in loops]
    return 4 * max(slow) > sum(moved)  # what one phase has computed, the next ones keep


def _cuda_groups_that_fit_registers(nest: LoopNest, length: int, groups: int) -> int:
    """Of a loop that reduces and stores what it computes: as many groups as a thread's registers hold the values of."""
    if not any(p.reductions and any(i.op == "store" for i in p.instrs) for p in nest.phases):
        return groups
    words = max(_most_cuda_register_words_alive(phase) for phase in nest.phases)
    while groups > 1 and length * groups * words > _LOOP_REGISTERS:
        groups //= 2
    return groups


def _most_cuda_register_words_alive(phase: Phase) -> int:
    """The most 4-byte words of values that are still needed at one time, for each lane."""
    last = {a: at for at, instr in enumerate(phase.instrs, phase.first) for a in instr.args}
    ends: dict[int, int] = {}  # instruction -> words that it is the last to use
    alive = most = 0
    for at, instr in enumerate(phase.instrs, phase.first):
        if at in last and instr.op not in ("const", "scalar", "size"):
            words = -(-instr.dtype.itemsize // 4)
            ends[last[at]] = ends.get(last[at], 0) + words
            alive += words
            most = max(most, alive)
        alive -= ends.get(at, 0)
    return most


def _cuda_column_reduction_shape(nest: LoopNest) -> CudaShape:
    length, _ = _cuda_vector_length(nest, cuda_operands_touched_in_phases(nest, LOOP), nest.parallel - 1, mixed=False)
    groups = 4 if nest.reduced == 1 else 1
    while length * groups > _MAX_LANES:
        groups //= 2
    groups = _cuda_groups_that_fit_registers(nest, length, groups)
    each = length * sum(d.itemsize for p in nest.phases for r in p.reductions for d in cuda_reduction_part_dtypes(r))
    threads = MAX_THREADS  # each leaves its columns' results in shared memory
    while threads > WARP and threads * each > SHARED_BYTES:
        threads //= 2
    return CudaShape("column", length, groups, loop=True, threads=threads)


def cuda_reduction_part_dtypes(reduction: Reduction) -> list[np.dtype[Any]]:
    """What a reduction carries: its value, and an index for argmin and argmax."""
    return [reduction.dtype] + ([np.dtype(np.int64)] if reduction.combiner.carries_index else [])


def _cuda_axis_to_transpose(nest: LoopNest) -> int | None:
    """The axis along which an input is contiguous while others are along the innermost one."""
    inner = nest.parallel - 1
    found = [axis for axis in range(inner) if operands_transposed_in_shared_memory(nest, axis)]
    contiguous = any(o.layout[inner] == "1" for o in nest.operands)
    return (
        max(found, key=lambda axis: len(operands_transposed_in_shared_memory(nest, axis)))
        if found and contiguous
        else None
    )


def operands_transposed_in_shared_memory(nest: LoopNest, across: int) -> list[int]:
    """The inputs that are contiguous along `across` and not along the innermost axis."""
    inner = nest.parallel - 1
    return [
        k
        for k, o in enumerate(nest.operands)
        if o.role == "in" and o.layout[across] == "1" and o.layout[inner] == "s" and k not in nest.looked_up
    ]


def cuda_threads_of_resident_row(length: int, itemsize: int, cluster: int = 1) -> tuple[int, int]:
    """(16-byte groups that a thread holds, threads) for a row kept in registers. (0, threads) for a row too long.

    length: elements of the row; itemsize: bytes of the largest item that moves along it. The first number is the
    `width` of a row reduction's nest, times the blocks that have a row together, of which there are up to `cluster`.
    """
    per_group = max(1, VECTOR_BYTES // itemsize)
    for width, most in _ROW_WIDTHS:
        if width * per_group > _MAX_LANES:
            break
        threads = _cuda_round_up_to_warp(-(-length // (width * per_group)))
        if threads <= most:
            return width, threads
    blocks = 2
    while blocks <= cluster:
        threads = _cuda_round_up_to_warp(-(-length // (_MOST_GROUPS * per_group * blocks)))
        if threads <= MAX_THREADS and _MOST_GROUPS * per_group <= _MAX_LANES:
            return _MOST_GROUPS * blocks, threads
        blocks *= 2
    return 0, ELEMENTWISE_THREADS


def _cuda_round_up_to_warp(threads: int) -> int:
    """The threads of a row: a part of a warp that is a power of two, or whole warps."""
    return _next_power_of_two_threads(threads) if threads <= WARP else -(-threads // WARP) * WARP


def _next_power_of_two_threads(n: int) -> int:
    """The least power of two that is n or more."""
    return 1 << max(0, n - 1).bit_length()


def cuda_grid_and_block(
    nest: LoopNest, sizes: Sequence[int], properties: GpuProperties
) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """(grid, block) for the axis lengths `sizes`. A grid of 0 blocks where there is nothing to do.

    Raises ValueError where the sizes need 64-bit indices and the nest has 32.
    """
    if nest.index_bits == 32 and any(n > LIMIT_32 for n in sizes):
        raise ValueError(f"{nest.name}: an axis longer than {LIMIT_32} needs index_bits=64, got sizes {tuple(sizes)}")
    shape = choose_cuda_launch_shape(nest)
    return _LAUNCH[shape.strategy](nest, shape, sizes, properties)


Launch = tuple[tuple[int, int, int], tuple[int, int, int]]


def _elementwise_grid_and_block(
    nest: LoopNest, shape: CudaShape, sizes: Sequence[int], properties: GpuProperties
) -> Launch:
    inner = sizes[-1]
    rows = math.prod(sizes[:-1])
    threads = -(-inner // shape.lanes)
    widest = ELEMENTWISE_THREADS if shape.length > 1 else WARP  # shifted operands: rows share what they read
    x = min(widest, _next_power_of_two_threads(threads)) if rows > 1 else ELEMENTWISE_THREADS
    y = max(1, ELEMENTWISE_THREADS // x) if rows > 1 else 1
    return (-(-threads // x) * -(-rows // y), 1, 1), (x, y, 1)


def _stencil_grid_and_block(
    nest: LoopNest, shape: CudaShape, sizes: Sequence[int], properties: GpuProperties
) -> Launch:
    """Warps side by side; where windows reach along a third axis, along that axis. Smaller blocks if they are few."""
    inner, across = nest.parallel - 1, shape.across
    columns = (WARP - count_idle_cuda_warp_lanes(nest, shape.length)) * shape.length
    rows = -(-sizes[across] // shape.groups) if across >= 0 else 1
    rest = math.prod(n for axis, n in enumerate(sizes[:inner]) if axis != across)
    down, stacked = (rest, rows) if inner > 1 else (rows, 1)  # what warps of a block differ in, and others

    def count_blocks(x: int, y: int) -> int:
        return -(-sizes[inner] // (columns * x)) * -(-down // y) * stacked

    warps = shape.threads // WARP
    x = 1 if _stencil_reuses_rows(nest, across) else min(warps, _next_power_of_two_threads(-(-sizes[inner] // columns)))
    y = min(warps // x, _next_power_of_two_threads(down))
    while x * y > 1 and count_blocks(x, y) < 2 * properties.multiprocessors:
        x, y = (x, y // 2) if y > 1 else (x // 2, y)
    return (count_blocks(x, y), 1, 1), (WARP * x, y, 1)


def _transpose_grid_and_block(
    nest: LoopNest, shape: CudaShape, sizes: Sequence[int], properties: GpuProperties
) -> Launch:
    tiles = -(-sizes[-1] // TILE) * -(-sizes[shape.across] // (TILE_ROWS * shape.groups))
    rest = math.prod(n for axis, n in enumerate(sizes[:-1]) if axis != shape.across)
    return (tiles * rest, 1, 1), (TILE, TILE_ROWS, 1)


def _row_reduction_grid_and_block(
    nest: LoopNest, shape: CudaShape, sizes: Sequence[int], properties: GpuProperties
) -> Launch:
    rows, length = math.prod(sizes[: nest.parallel]), sizes[-1]
    threads = _cuda_round_up_to_warp(-(-length // (shape.lanes * shape.cluster)))
    if shape.cluster > 1:
        threads = max(WARP, threads)  # each of a few gives a number to another block
    if shape.loop:
        threads = min(ELEMENTWISE_THREADS, threads)
    elif threads > MAX_THREADS:
        raise ValueError(f"{nest.name}: a row of {length} elements does not fit width={nest.width}; see row_width")
    if nest.run:
        return (-(-rows // nest.run), 1, 1), (threads, 1, 1)
    together = max(1, 128 // threads) if threads <= WARP and shape.cluster == 1 else 1
    return (-(-rows // together) * shape.cluster, 1, 1), (threads, together, 1)


def _swept_stencil_grid_and_block(
    nest: LoopNest, shape: CudaShape, sizes: Sequence[int], properties: GpuProperties
) -> Launch:
    return (math.prod(sizes[: nest.parallel]), 1, 1), (shape.threads, 1, 1)


def _column_reduction_grid_and_block(
    nest: LoopNest, shape: CudaShape, sizes: Sequence[int], properties: GpuProperties
) -> Launch:
    columns, rest = sizes[nest.parallel - 1], math.prod(sizes[: nest.parallel - 1])
    reduced = math.prod(sizes[nest.parallel :])
    x = min(WARP, _next_power_of_two_threads(-(-columns // shape.length)))
    while x * shape.length > WARP and -(-columns // (x * shape.length)) * rest < properties.multiprocessors:
        x //= 2  # blocks of as many columns as a line of memory has
    blocks = -(-columns // (x * shape.length)) * rest
    threads = MAX_THREADS if blocks < 4 * properties.multiprocessors else ELEMENTWISE_THREADS
    return (blocks, 1, 1), (x, min(min(threads, shape.threads) // x, _next_power_of_two_threads(reduced)), 1)


_LAUNCH = {
    "elementwise": _elementwise_grid_and_block,
    "window": _stencil_grid_and_block,
    "swept window": _swept_stencil_grid_and_block,
    "tile": _transpose_grid_and_block,
    "row": _row_reduction_grid_and_block,
    "column": _column_reduction_grid_and_block,
}
