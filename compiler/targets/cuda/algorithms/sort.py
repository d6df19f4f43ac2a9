"""Sorting on a GPU. Stable radix sorts of 8 bits a pass, of whole rows in a block or of long rows in tiles.

Keys are unsigned integers that order as NumPy orders the values: NaN last, -0 and 0 alike where places are wanted. Long
rows take one counting pass, then one pass for each byte that reads and writes memory once: a tile ranks its keys in
shared memory by warps, learns from the tiles before it where its run of each digit goes, and writes the runs (Adinolfi
and Merrill, "Onesweep", 2022). Counts are integers, so the result does not depend on the order of work.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ....core.types import DType
from ....layout.operands import StridedBufferArray
from .kernel_language import kernel_text
from .launches import GpuAlgorithmBuilder
from .radix_sort_kernels import (
    DIGITS,
    EACH,
    THREADS,
    RadixKeys,
    radix_digit_histogram_kernel,
    radix_digit_starts_kernel,
    radix_key_dtype,
    radix_sort_block_kernel,
    radix_sort_pass_kernel,
)

BLOCKS = 8  # of a multiprocessor, that count digits


def lower_gpu_sort(
    calls: GpuAlgorithmBuilder,
    reads: Sequence[StridedBufferArray],
    target: StridedBufferArray,
    options: Mapping[str, Any],
) -> None:
    """np.sort along an axis; np.partition is one too."""
    _lower_gpu_sort_call(calls, reads[0], target, options, places=False)


def lower_gpu_argsort(
    calls: GpuAlgorithmBuilder,
    reads: Sequence[StridedBufferArray],
    target: StridedBufferArray,
    options: Mapping[str, Any],
) -> None:
    """np.argsort along an axis, always stable; np.argpartition is one too."""
    _lower_gpu_sort_call(calls, reads[0], target, options, places=True)


def _lower_gpu_sort_call(
    calls: GpuAlgorithmBuilder,
    source: StridedBufferArray,
    target: StridedBufferArray,
    options: Mapping[str, Any],
    places: bool,
) -> None:
    axis = options.get("axis", -1)
    axis += len(source.shape) if axis < 0 else 0
    given, wanted = calls.contiguous(source.moved(axis)), target.moved(axis)
    result = calls.result(wanted)
    gpu_sort_rows(calls, given, None if places else result, result if places else None)
    calls.deliver_result(result, wanted)


def keys_of_thread_in_block_sort(length: int, dtype: DType) -> int:
    """Keys of each thread of a block that sorts a row on its own. 0 if rows are too long for that."""
    most = EACH[radix_key_dtype(dtype).itemsize]
    return next((e for e in (1, 2, 4, 8, 16) if e * THREADS >= length and e <= most), 0)


def gpu_sort_rows(
    calls: GpuAlgorithmBuilder,
    source: StridedBufferArray,
    values: StridedBufferArray | None,
    places: StridedBufferArray | None,
    down: bool = False,
    passes: int = 0,
) -> None:
    """Sort each row of a contiguous array: its values to one array, where they come from (int64) to another.

    down: the places from the greatest value on; where `places` has shorter rows, the first of each. passes: bytes
    of a key that differ, where those above are known to be equal."""
    length, count = source.shape[-1], math.prod(source.shape[:-1])
    each, passes = keys_of_thread_in_block_sort(length, source.dtype), passes or radix_key_dtype(source.dtype).itemsize
    written = [a for a in (values, places) if a is not None]
    if each:
        keys = RadixKeys(source.dtype, places is not None, down)
        kernel = radix_sort_block_kernel(keys, each, values is not None, places is not None, passes)
        text = kernel_text(kernel, (THREADS, 3))
        pointers = [source, values or source, places or source]
        calls.add_launch("sort_rows", text, [source], written, pointers, [length, written[0].shape[-1]], count, THREADS)
        return
    gpu_radix_sort_long_rows(calls, source, values, places, length, count, down, passes)


def gpu_radix_sort_long_rows(
    calls: GpuAlgorithmBuilder, source: StridedBufferArray, values: StridedBufferArray | None,
    places: StridedBufferArray | None, length: int, count: int, down: bool, passes: int,
    own: StridedBufferArray | None = None,
) -> None:  # fmt: skip
    """As `gpu_sort_rows`. own: u32 numbers of elements in order, where places are asked for in u32: all passes
    are then one kernel, and whoever writes the keys writes these as well."""
    key, kinds = radix_key_dtype(source.dtype), RadixKeys(source.dtype, places is not None, down)
    tile = THREADS * EACH[key.itemsize]
    tiles = -(-length // tile)
    counts = calls.temporary((count, passes, DIGITS), np.uint64)
    calls.add_fill(counts, 0)
    stretch = max(tile, -(-length // (BLOCKS * calls.gpu.multiprocessors)))
    stretches = -(-length // stretch)
    text = kernel_text(radix_digit_histogram_kernel(kinds, passes), THREADS)
    numbers = [length, stretch, stretches]
    calls.add_launch("sort_count", text, [source, counts], [counts], [source, counts], numbers, count * stretches)
    text = kernel_text(radix_digit_starts_kernel(), THREADS)
    calls.add_launch("sort_starts", text, [counts], [counts], [counts], [], count * passes)
    keys, numbered = source, own is not None
    with_places = places is not None
    spare = [calls.temporary((count, length), key) for _ in range(min(2, passes - 1))]
    spare_places = [
        calls.temporary((count, length), np.uint32) for _ in range(min(2, passes - 1) if with_places else 0)
    ]
    for number in range(passes):
        state = calls.temporary((1 + count * tiles * DIGITS,), np.uint64)
        calls.add_fill(state, 0)
        last = number == passes - 1
        to = values if last else spare[number % 2]
        to_places = None if not with_places else places if last else spare_places[number % 2]
        ends = (False, False) if numbered else (number == 0, last)
        kernel = radix_sort_pass_kernel(kinds, *ends, with_places, to is not None)
        text = kernel_text(kernel, (THREADS, 3 if with_places else 4))
        reads = [keys, counts, state, *([own] if own is not None else [])]
        writes = [state, *(a for a in (to, to_places) if a is not None)]
        pointers = [keys, own or keys, to or keys, to_places or keys, counts, state]
        calls.add_launch("sort_pass", text, reads, writes, pointers, [length, tiles, number, passes], count * tiles)
        if to is not None:
            keys = to
        own = to_places
