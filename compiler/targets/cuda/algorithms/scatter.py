"""Which index comes last, and sums by index, on a GPU. What `x[i] = y` and `np.add.at(x, i, y)` need. The order of work
decides nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ....core.types import INT64, SHORT_NAMES
from ....layout.operands import StridedBufferArray
from .launches import GpuAlgorithmBuilder, cuda_conversion_text
from .privatized_scatter import gpu_scatter_into_few_places

THREADS = 256
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
    numbers = [length, result.shape[0]]
    calls.add_launch("last_places", LAST_TEXT, both, [result], both, numbers, -(-length // THREADS))
    calls.deliver_result(result, target)


# a0: int64 indices, a1: int64 places. n0: how many indices, n1: how many places.
LAST_TEXT = f"""THREADS = {THREADS}
def NAME(a0, a1, n0, n1):
    j = i64(bid_x()) * {THREADS} + i64(tid_x())
    if j < n0:
        k = load_i64_1x1(a0, j, i32(0), i32(0))
        if k >= 0 and k < n1:
            gmax_i64(a1, k, j)
"""


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
    t = SHORT_NAMES[target.dtype]
    length, places = indices.shape[0], target.shape[0]
    value = cuda_conversion_text(values.dtype, target.dtype)("v")
    atomic, given = "max" if op == "maximum" else "add", f"neg({value})" if op == "sub" else value
    lines = [
        f"j = i64(bid_x()) * {THREADS} + i64(tid_x())",
        "if j < n0:",
        f"    given = load_{SHORT_NAMES[indices.dtype]}_1x1(a0, j, i32(0), i32(0))",
        f"    k = {cuda_conversion_text(indices.dtype, INT64)('given')}",
        f"    v = load_{SHORT_NAMES[values.dtype]}_1x1(a1, j, i32(0), i32(0))",
        "    if k >= 0 and k < n1:",
        f"        g{atomic}_{t}(a2, k, {given})",
    ]
    text = "\n".join([f"THREADS = {THREADS}", "def NAME(a0, a1, a2, n0, n1):", *("    " + x for x in lines), ""])
    pointers = [indices, values, target]
    calls.add_launch("combine_at", text, pointers, [target], pointers, [length, places], -(-length // THREADS), THREADS)
