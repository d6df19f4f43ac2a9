"""Which index comes last, sums by index, and counts, on a GPU. What `x[i] = y` and `np.add.at(x, i, y)` need. The order
of work decides nothing.

Of few places each warp has a copy of its own in shared memory: it walks through its stretch 32 values at a time. Then
warps, then blocks, are combined in the order of their numbers. Counts are integers, so blocks may add them up at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ....core.cost import warps_with_private_copies
from ....layout.operands import StridedBufferArray
from .kernel_language import kernel_text
from .launches import GpuAlgorithmBuilder
from .scan_kernels import gpu_scan_accumulator_dtype
from .scatter_kernels import (
    COUNTING,
    EACH,
    MANY,
    THREADS,
    TOGETHER,
    atomic_scatter_kernel,
    bincount_kernel,
    join_private_copies_kernel,
    last_places_kernel,
    privatized_scatter_kernel,
)

BLOCKS = 4  # of a multiprocessor, that count
RESERVED = 1024  # bytes of a multiprocessor that are not for blocks
COMBINE = {"add": "add", "subtract": "sub", "multiply": "mul", "maximum": "maximum", "minimum": "minimum"}


def lower_gpu_last_occurrences(
    calls: GpuAlgorithmBuilder,
    reads: Sequence[StridedBufferArray],
    target: StridedBufferArray,
    options: Mapping[str, Any],
) -> None:
    """Where each number comes last among the indices, -1 where it does not. The numbers are those below the length of
    the result."""
    indices, result = calls.contiguous(reads[0]), calls.result(target)
    calls.add_fill(result, -1)
    length, both = math.prod(indices.shape), [indices, result]
    text, numbers = kernel_text(last_places_kernel(), THREADS), [length, result.shape[0]]
    calls.add_launch("last_places", text, both, [result], both, numbers, -(-length // THREADS))
    calls.deliver_result(result, target)


def lower_gpu_ufunc_at(
    calls: GpuAlgorithmBuilder,
    reads: Sequence[StridedBufferArray],
    target: StridedBufferArray,
    options: Mapping[str, Any],
) -> None:
    """`a` after `ufunc.at(a, indices, values)`, all flat, where the values need no order: few places are combined in
    shared memory, integers in any order. Values may be of another kind than `a`."""
    base, indices, values = reads[0], *map(calls.contiguous, reads[1:])
    op, result = COMBINE[options["ufunc"]], calls.result(target)
    calls.add_copy(base, result)
    if not gpu_scatter_into_few_places(calls, indices, values, result, op):
        gpu_scatter_integers_atomically(calls, indices, values, result, op)
    calls.deliver_result(result, target)


def gpu_scatter_integers_atomically(
    calls: GpuAlgorithmBuilder,
    indices: StridedBufferArray,
    values: StridedBufferArray,
    target: StridedBufferArray,
    op: str,
) -> None:
    """Integers, which are the same in every order."""
    length, places = indices.shape[0], target.shape[0]
    text = kernel_text(atomic_scatter_kernel(indices.dtype, values.dtype, target.dtype, op), THREADS)
    pointers = [indices, values, target]
    calls.add_launch("combine_at", text, pointers, [target], pointers, [length, places], -(-length // THREADS), THREADS)


def gpu_scatter_into_few_places(
    calls: GpuAlgorithmBuilder,
    indices: StridedBufferArray,
    values: StridedBufferArray,
    target: StridedBufferArray,
    op: str,
) -> bool:
    """target[indices[i]] = op(target[indices[i]], values[i]) for all i; False where there are too many places."""
    length, places = indices.shape[0], target.shape[0]
    run = gpu_scan_accumulator_dtype(target.dtype)
    size, warps = max(32, 1 << (places - 1).bit_length()), warps_with_private_copies(length, places, run.itemsize)
    if not warps:
        return False
    held, gpu = calls.gpu.shared_per_multiprocessor - RESERVED, calls.gpu
    resident = min(held // (warps * size * run.itemsize), gpu.threads_per_multiprocessor // (32 * warps), 16)
    step = 32 * TOGETHER
    blocks = min(gpu.multiprocessors * resident, -(-length // (warps * 8 * step)))
    stretch = -(-length // (blocks * warps * step)) * step
    partial = calls.temporary((blocks, places), run)
    kernel = privatized_scatter_kernel(indices.dtype, values.dtype, run, op, warps, size)
    text = kernel_text(kernel, 32 * warps)
    pointers = [indices, values, partial]
    calls.add_launch(
        "combine_few", text, [indices, values], [partial], pointers, [length, places, stretch], blocks, 32 * warps
    )
    text = kernel_text(join_private_copies_kernel(target.dtype, op), 1024)
    pointers = [partial, target]
    calls.add_launch("combine_join", text, pointers, [target], pointers, [blocks, places], -(-places // 32), 1024)
    return True


def lower_gpu_bincount(
    calls: GpuAlgorithmBuilder,
    reads: Sequence[StridedBufferArray],
    target: StridedBufferArray,
    options: Mapping[str, Any],
) -> None:
    """np.bincount without weights. A number that has no bin is not counted."""
    source, bins, wanted = calls.contiguous(reads[0]), target.shape[0], target
    target = calls.result(wanted)
    length = math.prod(source.shape)
    copies = min(COUNTING // 32, MANY // bins) if bins <= MANY else 0
    text = kernel_text(bincount_kernel(source.dtype, copies), COUNTING)
    step = COUNTING * EACH
    stretch = -(-length // (BLOCKS * calls.gpu.multiprocessors * step)) * step
    calls.add_fill(target, 0)
    blocks = -(-length // stretch)
    calls.add_launch(
        "bincount", text, [source, target], [target], [source, target], [length, stretch, bins], blocks, COUNTING
    )
    calls.deliver_result(target, wanted)
