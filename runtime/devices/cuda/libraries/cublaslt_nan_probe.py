"""Whether an algorithm of cuBLASLt keeps NaN in its relu. Some do, some give 0, and no page of its manual says which.

A small product whose numbers are all NaN tells: it runs the kernel that the large one does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....core.frozen import replace
from ..driver.driver import CudaDriver
from ..modules.ptx_kernels import INFINITY
from .gemm import GemmCall

SMALL = 64  # of each length, and what is left over from its multiples, for the sake of alignments
Launch = Callable[[tuple[int, ...]], None]  # enqueues the product of arrays at addresses


def shrink_cublaslt_probe_call(call: GemmCall) -> GemmCall:
    """The call with shorter axes, at most two matrices, and its arrays without offsets."""
    n, m, k = (length if length <= SMALL else SMALL + length % SMALL for length in call.shape)
    made = replace(call, shape=(n, m, k), batch=min(call.batch, 2), offsets=(0,) * len(call.offsets))
    gaps = [(ld - rows) % SMALL for ld, (rows, _) in zip(call.leading, call.stored_shapes, strict=True)]
    b, a, c = (rows + gap for gap, (rows, _) in zip(gaps, made.stored_shapes, strict=True))
    made = replace(made, leading=(b, a, c))
    b, a, c = (n * bool(stride) for n, stride in zip(_gemm_matrix_lengths(made), call.strides, strict=True))
    return replace(made, strides=(b, a, c))


def _gemm_matrix_lengths(call: GemmCall) -> list[int]:
    """Elements of a matrix of B, of A and of C, with its gaps."""
    return [ld * columns for ld, (_, columns) in zip(call.leading, call.stored_shapes, strict=True)]


def gemm_relu_keeps_nan(
    driver: CudaDriver, allocate: Callable[[int], Any], stream: int, call: GemmCall, launch: Launch
) -> bool:
    """Whether a product of NaN is NaN everywhere. call: a small one. Waits for the stream."""
    n, m, _ = call.shape
    b, a, c = (
        size * call.batch * length for size, length in zip(call.itemsizes[:3], _gemm_matrix_lengths(call), strict=True)
    )
    host = [np.zeros(b, np.uint8), np.full(a, 0xFF, np.uint8), np.zeros(c, np.uint8)]
    itemsize = call.itemsizes[2]
    host += [np.zeros(itemsize * n, np.uint8)] * (len(call.offsets) - 3)  # a bias
    memories = [allocate(array.nbytes) for array in host]
    codes = []
    try:
        for array, memory in zip(host, memories, strict=True):
            codes.append(driver.to_device(memory.address, array.ctypes.data, array.nbytes, stream))
        launch(tuple(memory.address for memory in memories))
        found = host[2]
        codes.append(driver.to_host(found.ctypes.data, memories[2].address, found.nbytes, stream))
    finally:
        codes.append(driver.synchronize_stream(stream))
    words = found.view(np.uint32 if itemsize == 4 else np.uint16)
    steps = tuple(itemsize * step for step in (call.strides[2], call.leading[2], 1))
    results = np.lib.stride_tricks.as_strided(words, (call.batch, m, n), steps)
    magnitude = results & ((1 << 8 * itemsize - 1) - 1)
    return not any(codes) and bool((magnitude > INFINITY[call.result]).all())
