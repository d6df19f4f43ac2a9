"""The k-th values of rows, and the first k of each, on a GPU. Radix select, by digits from the top.

A pass counts how often each digit comes among the keys that agree with what is known of the k-th one, and so finds its
next digit (Alabi, Blanchard, Gordon and Steinbach, "Fast k-selection algorithms for graphics processing units", 2012).
It reads memory once and writes next to nothing: three passes for 4 bytes, where a sort reads and writes all four times.
For the first k, a key goes on with its place, so that no two are equal; a search that has found enough reads no more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ....layout.operands import StridedBufferArray
from .kernel_language import kernel_text
from .launches import GpuAlgorithmBuilder
from .radix_select_kernels import (
    BINS,
    EACH,
    PICKING,
    THREADS,
    WORDS,
    order_selected_places_kernel,
    radix_count_digit_kernel,
    radix_pick_digit_kernel,
    radix_select_digits,
    radix_select_places_kernel,
    radix_select_row_kernel,
    radix_selected_keys_kernel,
    radix_selected_values_kernel,
)
from .radix_sort_kernels import THREADS as SORTING
from .radix_sort_kernels import RadixKeys, radix_key_dtype, radix_pick_block_kernel
from .sort import gpu_sort_rows, keys_of_thread_in_block_sort

BLOCKS = 8  # of a multiprocessor
ROWS = 1  # for each multiprocessor: from so many on a block does one alone
SORTED = 2048  # elements of rows that a block sorts as fast as it selects from them
SELECT = 1 / 8  # the part of a row up to which selecting it moves fewer bytes than sorting all


def lower_gpu_kth_values(
    calls: GpuAlgorithmBuilder,
    reads: Sequence[StridedBufferArray],
    target: StridedBufferArray,
    options: Mapping[str, Any],
) -> None:
    """The values in places `lower_gpu_kth_values` of the order of each row."""
    source, places, wanted = calls.contiguous(reads[0]), options["kth"], target
    length, count, target = source.shape[-1], math.prod(source.shape[:-1]), calls.result(wanted)
    if each := _is_block_sort_faster_than_select(calls, source):
        kernel = radix_pick_block_kernel(RadixKeys(source.dtype), each, source.dtype.itemsize)
        text, pointers = kernel_text(kernel, (SORTING, 3), len(places)), [source, target]
        calls.add_launch("kth", text, [source], [target], pointers, [length, *places], count, SORTING)
    else:
        found, many = _run_gpu_radix_select(calls, source, places, None), count * len(places)
        text = kernel_text(radix_selected_values_kernel(RadixKeys(source.dtype)), THREADS)
        calls.add_launch("kth", text, [found], [target], [found, target], [many], -(-many // THREADS), THREADS)
    calls.deliver_result(target, wanted)


def lower_gpu_topk(
    calls: GpuAlgorithmBuilder,
    reads: Sequence[StridedBufferArray],
    target: StridedBufferArray,
    options: Mapping[str, Any],
) -> None:
    """Where the first k of the order along an axis are, in order. Of equal values the first first."""
    axis, down = options["axis"], options["largest"]
    given, wanted = calls.contiguous(reads[0].moved(axis)), target.moved(axis)
    k, length, result = wanted.shape[-1], given.shape[-1], calls.result(wanted)
    if _is_block_sort_faster_than_select(calls, given):
        gpu_sort_rows(calls, given, None, result, down)
    elif k > length * SELECT:
        every = calls.temporary(given.shape, "i8")
        gpu_sort_rows(calls, given, None, every, down)
        calls.add_copy(every.first(k), result)
    else:
        _gpu_topk_by_radix_select(calls, given, result, k, down)
    calls.deliver_result(result, wanted)


def _is_block_sort_faster_than_select(calls: GpuAlgorithmBuilder, source: StridedBufferArray) -> int:
    """Whether sorting each row in a block is faster than a select: how many keys each thread has then, else 0."""
    length, count = source.shape[-1], math.prod(source.shape[:-1])
    return (
        keys_of_thread_in_block_sort(length, source.dtype)
        if length <= SORTED or count < ROWS * calls.gpu.multiprocessors
        else 0
    )


def _gpu_topk_by_radix_select(
    calls: GpuAlgorithmBuilder, source: StridedBufferArray, target: StridedBufferArray, k: int, down: bool
) -> None:
    """Select, put the places in order, then sort the values there."""
    count, length = math.prod(source.shape[:-1]), source.shape[-1]
    found, kinds = _run_gpu_radix_select(calls, source, [k - 1], down), RadixKeys(source.dtype, True, down)
    places, ordered, order = (calls.temporary((count, k), d) for d in ("u4", "u4", "i8"))
    keys, totals = calls.temporary((count, k), radix_key_dtype(source.dtype)), calls.temporary((count,), "u8")
    calls.add_fill(totals, 0)
    tiles = -(-length // (THREADS * EACH))
    text = kernel_text(radix_select_places_kernel(kinds), THREADS)
    calls.add_launch(
        "collect", text, [source, found, totals], [places, totals], [source, found, places, totals],
        [length, tiles, k], count * tiles, THREADS,
    )  # fmt: skip
    gpu_sort_rows(calls, places, ordered, None, passes=-(-(length - 1).bit_length() // 8))
    blocks = -(-count * k // THREADS)
    text, pointers = kernel_text(radix_selected_keys_kernel(kinds), THREADS), [source, ordered, keys]
    calls.add_launch("keys", text, [source, ordered], [keys], pointers, [count * k, length, k], blocks, THREADS)
    gpu_sort_rows(calls, keys, None, order)
    text, pointers = kernel_text(order_selected_places_kernel(), THREADS), [ordered, order, target]
    calls.add_launch("places", text, [ordered, order], [target], pointers, [count * k, k], blocks, THREADS)


def _run_gpu_radix_select(
    calls: GpuAlgorithmBuilder, source: StridedBufferArray, places: Sequence[int], down: bool | None
) -> StridedBufferArray:
    """(row, which, WORDS) of what is known in the end of the keys in these places of the order. down: None: of values
    alone; else of values and places."""
    count, length, many = math.prod(source.shape[:-1]), source.shape[-1], len(places)
    steps = radix_select_digits(source.dtype, length if down is not None else 0)
    keys = RadixKeys(source.dtype, down is not None, bool(down))
    found = calls.temporary((count, many, WORDS), "u8")
    if count >= ROWS * calls.gpu.multiprocessors:
        text = kernel_text(radix_select_row_kernel(keys, steps), THREADS, many)
        calls.add_launch(
            "select", text, [source], [found], [source, found], [length, *places], count, THREADS, len(steps)
        )
        return found
    step = THREADS * EACH
    stretch = -(-length * count // (BLOCKS * calls.gpu.multiprocessors * step)) * step
    stretches = -(-length // stretch)
    tables = calls.temporary((len(steps), count, many, BINS), "u8")
    calls.add_fill(tables, 0)
    known = found
    for number, at in enumerate(steps):
        first, table = number == 0, tables.row(number)
        text = kernel_text(radix_count_digit_kernel(keys, at, first, 1 if first else many), THREADS)
        calls.add_launch(
            "select_count", text, [source, table, *([] if first else [known])], [table], [source, table, known],
            [length, stretch, stretches], count * stretches, THREADS,
        )  # fmt: skip
        last = number == len(steps) - 1
        after = found if last else calls.temporary((count, many, WORDS), "u8")
        ranks = places if first else []
        text = kernel_text(radix_pick_digit_kernel(at, first, keys.places), PICKING, len(ranks))
        calls.add_launch(
            "select_pick", text, [table, *([] if first else [known])], [after], [table, known, after], ranks,
            count * many, PICKING,
        )  # fmt: skip
        known = after
    return found
