"""Which index comes last, and sums by index, on a GPU. What `x[i] = y` and `np.add.at(x, i, y)` need. The order of work
decides nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ....layout.operands import StridedBufferArray
from .kernel_language import kernel_text
from .launches import GpuAlgorithmBuilder
from .privatized_scatter import gpu_scatter_into_few_places
from .scatter_kernels import THREADS, atomic_scatter_kernel, last_places_kernel

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
