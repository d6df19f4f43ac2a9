"""Counting on a GPU: blocks count in shared memory and add up in global memory. Counts are integers: the order of work
decides nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ....layout.operands import StridedBufferArray
from .kernel_language import kernel_text
from .launches import GpuAlgorithmBuilder
from .scatter_kernels import COUNTING as THREADS
from .scatter_kernels import EACH, MANY, bincount_kernel

BLOCKS = 4  # of a multiprocessor


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
    copies = min(THREADS // 32, MANY // bins) if bins <= MANY else 0
    text = kernel_text(bincount_kernel(source.dtype, copies), THREADS)
    step = THREADS * EACH
    stretch = -(-length // (BLOCKS * calls.gpu.multiprocessors * step)) * step
    calls.add_fill(target, 0)
    blocks = -(-length // stretch)
    calls.add_launch(
        "bincount", text, [source, target], [target], [source, target], [length, stretch, bins], blocks, THREADS
    )
    calls.deliver_result(target, wanted)
