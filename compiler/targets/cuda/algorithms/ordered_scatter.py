"""Values combined by index in the order of their indices on a GPU. The order is found once for all that have these
indices; the same bits come out in every run.

A place takes its values one after another, as NumPy does, unless the part of PART values in the order after that in
which it begins is all its own: then that of its first part, and each part is combined by a thread of its own, and these
parts in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ....layout.operands import StridedBufferArray
from .kernel_language import kernel_text
from .launches import GpuAlgorithmBuilder
from .ordered_scatter_kernels import (
    CombinedKinds,
    combine_by_element_kernel,
    combine_by_place_kernel,
    combine_last_parts_kernel,
    combine_parts_kernel,
    index_to_u32_kernel,
    places_in_order_kernel,
)
from .scatter import COMBINE
from .scatter_kernels import THREADS
from .sort import gpu_radix_sort_long_rows, gpu_sort_rows, keys_of_thread_in_block_sort

SCALE = {"": "", "multiply": "mul", "divide": "div"}
HELD = 2048  # parts that one block combines in its shared memory


def lower_gpu_places_in_order(
    calls: GpuAlgorithmBuilder,
    reads: Sequence[StridedBufferArray],
    target: StridedBufferArray,
    options: Mapping[str, Any],
) -> None:
    """How many parts of the order have one place; the places in order; where each comes from; and, if there is room for
    it, where in the order each place begins, and the end."""
    indices, result = calls.contiguous(reads[0]), calls.result(target)
    length, places, part = indices.shape[0], options["length"], options["part"]
    numbers, own = (calls.temporary((length,), "u4") for _ in range(2))
    parts, keys, order = result.first(1), result.span(1, length), result.span(1 + length, length)
    text, written = kernel_text(index_to_u32_kernel(indices.dtype), THREADS), [numbers, own, parts]
    pointers, blocks = [indices, *written], -(-length // THREADS)
    calls.add_launch("numbers", text, [indices], written, pointers, [length, places], blocks)
    passes = -(-places.bit_length() // 8)
    if keys_of_thread_in_block_sort(length, numbers.dtype):
        wide = calls.temporary((length,), "i8")
        gpu_sort_rows(calls, numbers, keys, wide, passes=passes)
        calls.add_copy(wide, order)
    else:
        gpu_radix_sort_long_rows(calls, numbers, keys, order, length, 1, False, passes, own)
    starts = options["starts"]
    touched = [parts, *([result.span(1 + 2 * length, places + 1)] if starts else [])]
    blocks = -(-max(length, places + 1 if starts else 0) // THREADS)
    text = kernel_text(places_in_order_kernel(part, starts), THREADS)
    calls.add_launch("starts", text, [keys, parts], touched, [keys, result], [length, places], blocks)
    calls.deliver_result(result, target)


def lower_gpu_combine_in_order(
    calls: GpuAlgorithmBuilder,
    reads: Sequence[StridedBufferArray],
    target: StridedBufferArray,
    options: Mapping[str, Any],
) -> None:
    """`a` after `ufunc.at(a, places, table[which])`, of what `places_in_order` says of the places; `which` in their
    order. The table may be of another kind than `a`; what `scaled` names combines its elements with a factor first."""
    base, order, table, which, *factor = reads[0], *map(calls.contiguous, reads[1:])
    op, part, result = COMBINE[options["ufunc"]], options["part"], calls.result(target)
    length, places = which.shape[0], result.shape[0]
    chunks = -(-length // part) if length > part else 0
    keys, totals = calls.temporary((max(chunks, 1),), "u4"), calls.temporary((max(chunks, 1),), result.dtype)
    kinds = CombinedKinds(result.dtype, table.dtype, op, part, SCALE[options["scaled"]])
    if order.shape[0] > 1 + 2 * length:
        base, blocks = calls.contiguous(base), -(-places // THREADS) + -(-chunks // THREADS)
        kernel = combine_by_place_kernel(kinds)
    else:
        calls.add_copy(base, result)
        base, blocks, kernel = result, -(-length // THREADS), combine_by_element_kernel(kinds)
    given = [order, table, which, *(factor or [table]), base]
    written = [result, keys, totals]
    numbers = [length, places, chunks]
    text = kernel_text(kernel, THREADS)
    calls.add_launch("combine_at", text, given, written, [*given, *written], numbers, blocks)
    kinds = CombinedKinds(result.dtype, result.dtype, op, part)
    while chunks:
        length, chunks = chunks, -(-chunks // part) if chunks > HELD * part else 0
        after = [calls.temporary((chunks,), d) for d in ("u4", result.dtype)] if chunks else []
        kernel = combine_parts_kernel(kinds) if chunks else combine_last_parts_kernel(kinds, HELD)
        blocks = -(-chunks // THREADS) if chunks else 1
        calls.add_launch(
            "combine_parts",
            kernel_text(kernel, THREADS),
            [order.first(1), keys, totals, result],
            [result, *after],
            [order, keys, totals, result, *after],
            [length, places],
            blocks,
        )
        keys, totals = after or (keys, totals)
    calls.deliver_result(result, target)
