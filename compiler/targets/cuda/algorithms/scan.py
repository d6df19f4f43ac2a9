"""Running sums and products on a GPU. Tiles that look back at the tiles before them, or one thread for each column.

A block scans a tile of 16 elements a thread in registers and through warps, posts its total, and adds what came before:
the totals of the tiles before it in its group of 256, and of the groups before, each posted by the group's last tile.
All is added in an order that the positions alone decide, so the same bits come out in every run (the look-back of
Merrill and Garland, 2016, with a fixed order). Memory is read once and written once. As in CUB, a block waits for
blocks of lower number alone, which a GPU starts first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ....layout.operands import StridedBufferArray
from .kernel_language import kernel_text
from .launches import GpuAlgorithmBuilder
from .scan_kernels import (
    AHEAD,
    LENGTH,
    RESIDENT,
    TOGETHER,
    LookbackScan,
    Scan,
    column_scan_kernel,
    gpu_scan_accumulator_dtype,
    gpu_scan_runs_of_thread,
    lookback_scan_kernel,
)

TILES = (32, 64, 128, 256)  # threads of a block: the first whose tile holds a row, or the last
SHORT = 64  # rows up to this length are the work of one thread each
COLUMNS = 1 << 13  # columns that fill the device with one thread each


def lower_gpu_ufunc_accumulate(
    calls: GpuAlgorithmBuilder,
    reads: Sequence[StridedBufferArray],
    target: StridedBufferArray,
    options: Mapping[str, Any],
) -> None:
    """`ufunc.lower_ufunc_accumulate` of the ufuncs below."""
    op = {"add": "add", "multiply": "mul", "maximum": "maximum", "minimum": "minimum"}[options["ufunc"]]
    lower_gpu_cumulative_scan(calls, reads, target, options, op)


def lower_gpu_cumulative_scan(
    calls: GpuAlgorithmBuilder,
    reads: Sequence[StridedBufferArray],
    target: StridedBufferArray,
    options: Mapping[str, Any],
    op: str,
) -> None:
    """np.cumsum, np.cumprod and their like along an axis. Of complex numbers sums alone, of each part."""
    (source,) = reads
    axis = (options.get("axis") or 0) % len(source.shape)
    if source.dtype.kind == "c":
        source, target = source.parts(), target.parts()
    length = source.shape[axis]
    outer, inner = math.prod(source.shape[:axis]), math.prod(source.shape[axis + 1 :])
    by_columns = length <= SHORT or (inner > 1 and outer * inner >= COLUMNS)
    if by_columns and source.contiguous and target.contiguous:
        gpu_scan_columns(calls, source, target, op, outer, length, inner)
        return
    given, wanted = calls.contiguous(source.moved(axis)), target.moved(axis)
    result = calls.result(wanted)
    gpu_scan_rows(calls, given, result, op)
    calls.deliver_result(result, wanted)


def gpu_scan_columns(
    calls: GpuAlgorithmBuilder,
    source: StridedBufferArray,
    target: StridedBufferArray,
    op: str,
    outer: int,
    length: int,
    inner: int,
) -> None:
    """One thread for each column of (outer, length, inner)."""
    text = kernel_text(column_scan_kernel(Scan(source.dtype, target.dtype, op)), 256)
    total = outer * inner
    calls.add_launch(
        f"scan_{op}", text, [source], [target], [source, target], [total, length, inner], -(-total // 256), 256
    )  # fmt: skip


def gpu_scan_rows(calls: GpuAlgorithmBuilder, source: StridedBufferArray, target: StridedBufferArray, op: str) -> None:
    """Along the last axis of contiguous arrays."""
    length = source.shape[-1]
    each = LENGTH * gpu_scan_runs_of_thread(gpu_scan_accumulator_dtype(target.dtype))
    count = math.prod(source.shape[:-1])
    threads = next((t for t in TILES if t * each >= length), TILES[-1])
    tile = threads * each
    tiles = -(-length // tile)
    run = gpu_scan_accumulator_dtype(target.dtype)
    words = max(1, run.itemsize // 4)
    groups = -(-tiles // TOGETHER)
    used = (count * (tiles + groups) + 32 * AHEAD) * words  # what is looked at may lie beyond
    state = calls.temporary((used,), np.uint64)
    if tiles > 1:
        calls.add_fill(state, 0)
    vector = (count == 1 or all(length * a.region.itemsize % 16 == 0 for a in (source, target))) and (
        source.aligned and target.aligned
    )
    kernel = lookback_scan_kernel(LookbackScan(source.dtype, target.dtype, op, threads, vector))
    text = kernel_text(kernel, (threads, RESIDENT // threads))
    numbers = [length, tiles, groups, count * tiles * words]
    calls.add_launch(
        f"scan_{op}", text, [source, state], [target, state], [source, target, state], numbers, count * tiles, threads
    )  # fmt: skip
