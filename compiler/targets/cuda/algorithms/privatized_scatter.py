"""Many values combined into few places on a GPU. Each warp has all places for its own in shared memory.

A warp walks through its stretch 32 values at a time. Of lanes with one index the first combines their values in the
order of the lanes; then it alone touches the place. Warps, then blocks, are combined in the order of their numbers. So
positions alone decide the order, and the same bits come out in every run.
"""

from __future__ import annotations

from ....core.cost import warps_with_private_copies
from ....layout.operands import StridedBufferArray
from .kernel_language import kernel_text
from .launches import GpuAlgorithmBuilder
from .scan_kernels import gpu_scan_accumulator_dtype
from .scatter_kernels import TOGETHER, join_private_copies_kernel, privatized_scatter_kernel

RESERVED = 1024  # bytes of a multiprocessor that are not for blocks


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
