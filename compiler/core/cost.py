"""Rough figures of what work costs on a target, which rank choices: bytes, flops, microseconds."""

from __future__ import annotations

import math

from ...runtime.core.frozen import frozen
from ...runtime.program.device import GpuProperties
from .types import DType

SMALL = 1 << 12  # elements of a domain that one core or block sweeps anyway
SWEPT_ELEMENTS = (
    1 << 13
)  # elements of one result of a reduction from which on a block sweeps them with shared reads of stencils
SWEPT_ROWS = 8  # that a thread has there
NARROW = 8  # elements along an axis: fewer leave most of a tile empty in which axes are turned
PRIVATE_COPY_WARPS = 8  # of a block at most
PRIVATE_COPY_BYTES = 32 * 1024  # of a block
PRIVATE_COPY_VALUES = 4096  # at least
PRIVATE_COPY_DENSITY = 16  # values to a place from which on this is faster than to sort them


@frozen
class WorkCostModel:
    """bandwidth: bytes per us of all cores together; flops: flop-equivalents per us; launch: us per task;
    row_limit: longest row that one block keeps close (registers or cache); parallelism: parallel units that fill it;
    split_length: longest reduction that one stage does, however few rows there are; column_length: shortest one of few
    columns that is done in two stages; cluster: blocks that keep a row close together. written, read: flops of
    additions and products that take as long as writing a byte of a value and reading it again; load: as a load
    from a cache. summed_row: longest row whose kernel begins sums over the other axes."""

    bandwidth: float
    flops: float
    launch: float
    row_limit: int
    parallelism: int
    split_length: int
    column_length: int
    written: float
    read: float
    load: float
    cluster: int = 1
    summed_row: int = 0

    @property
    def flops_per_byte(self) -> float:
        """Flop-equivalents that cost as much as moving one byte."""
        return self.flops / self.bandwidth

    def time(self, nbytes: float, flops: float) -> float:
        """Microseconds of one task."""
        return self.launch + max(nbytes / self.bandwidth, flops / self.flops)


# Two cores with 256-bit vectors or wider; a line is read before it is written.
CPU = WorkCostModel(30e3, 60e3, 0.3, 1 << 16, 8, 1 << 16, 1 << 15, written=6.0, read=3.0, load=1.0)
HALF_SPEED, TF32_SPEED = 12.0, 6.0  # of products of 16-bit numbers and in TF32, beside float32 (measured, H100)
CLUSTER, CLUSTERS_FROM = 8, (9, 0)  # blocks of a cluster that every GPU with clusters can run, and which have them
LANE_FLOPS = 1776.0  # flop-equivalents per us of a GPU's lane (an H200's float32 rate, measured), derated


def work_cost_model_of_gpu(gpu: GpuProperties) -> WorkCostModel:
    """Two blocks on each multiprocessor fill a GPU."""
    flops = LANE_FLOPS * gpu.float_lanes * gpu.multiprocessors
    moved = flops / gpu.bandwidth
    blocks = 2 * gpu.multiprocessors
    cluster = CLUSTER if gpu.compute_capability >= CLUSTERS_FROM else 1
    return WorkCostModel(
        gpu.bandwidth,
        flops,
        2.0,
        1 << 14,
        blocks,
        1 << 14,
        1 << 9,
        written=moved,
        read=moved,
        load=0.5,
        cluster=cluster,
        summed_row=1 << 13,
    )


def rereading_rows_costs_little(shape: tuple[int, ...], axes: frozenset[int], model: WorkCostModel) -> bool:
    """Whether rows stay close to the cores that read them again. They should come from registers or a cache, and fill
    the machine."""
    length = math.prod(shape[i] for i in axes)
    rows = math.prod(n for i, n in enumerate(shape) if i not in axes)
    inner = axes == frozenset(range(len(shape) - len(axes), len(shape)))
    if length * rows <= SMALL:
        return True
    blocks = -(-length // model.row_limit)
    return inner and blocks <= model.cluster and (rows * blocks >= model.parallelism or length <= SMALL)


def rows_of_block(rows: int, length: int, model: WorkCostModel) -> int:
    """How many rows a block has in turn where it adds them up: blocks of short rows have few threads, and are more."""
    blocks = model.parallelism // 2 * min(16, max(4, model.row_limit // length))
    return max(8, -(-rows // blocks))


def warps_with_private_copies(length: int, places: int, itemsize: int) -> int:
    """How many warps of a GPU's block each have a copy of all places in shared memory, in which they combine values; 0
    where there are too many places, or too few values."""
    size = max(32, 1 << (places - 1).bit_length())
    warps = min(PRIVATE_COPY_WARPS, PRIVATE_COPY_BYTES // (size * itemsize))
    return 0 if length < max(PRIVATE_COPY_VALUES, PRIVATE_COPY_DENSITY * places) else warps


def combines_atomically(dtype: DType, ufunc: str) -> bool:
    """Whether a GPU combines values in any order with the same result, each in one step."""
    return dtype.kind in "iu" and dtype.itemsize >= 4 and ufunc in ("add", "subtract", "maximum")
