"""Counting on a GPU: blocks count in shared memory and add up in global memory. Counts are integers: the order of work
decides nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ....core.types import SHORT_NAMES, DType
from ....layout.operands import StridedBufferArray
from .launches import GpuAlgorithmBuilder

THREADS = 512
MANY = 8192  # counters of a block, all copies together
EACH = 8  # elements a thread takes at a time
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
    text = cuda_bincount_text(source.dtype, copies)
    step = THREADS * EACH
    stretch = -(-length // (BLOCKS * calls.gpu.multiprocessors * step)) * step
    calls.add_fill(target, 0)
    blocks = -(-length // stretch)
    calls.add_launch(
        "bincount", text, [source, target], [target], [source, target], [length, stretch, bins], blocks, THREADS
    )
    calls.deliver_result(target, wanted)


def cuda_bincount_text(dtype: DType, copies: int) -> str:
    """a0: numbers, a1: int64 counts, 0 before. n0: how many numbers, n1: of a block's stretch, n2: bins. copies: of the
    counters in a block, 0 for none."""
    t = SHORT_NAMES[dtype]
    lines = ["x = tid_x()", "at = i64(bid_x()) * n1", "stop = least(at + n1, n0)"]
    if copies:
        lines += [
            f"counts = shared_u32_{MANY}()",
            f"mine = i64(urem(udiv(x, i32(32)), i32({copies}))) * n2",
            "j = i64(x)",
            f"while j < n2 * {copies}:",
            "    sstore_u32_1(counts, j, u32(0))",
            f"    j += {THREADS}",
            "barrier()",
        ]
    lines += [
        "j = at + i64(x)",
        "while j < stop:",
        f"    inside = below_1x{EACH}(j, i64({THREADS}), i32(0), stop)",
        f"    v = load_{t}_1x{EACH}_if(a0, j, i64({THREADS}), i32(0), inside)",
    ]
    for k in range(EACH):
        lines.append(f"    w{k} = " + (f"v[{k}]" if t == "i64" else f"i64_from_{t}(v[{k}])"))
        lines.append(f"    if w{k} >= 0 and w{k} < n2 and j + {k * THREADS} < stop:")
        lines.append(
            f"        sadd_u32(counts, mine + w{k}, u32(1))" if copies else f"        gadd_i64(a1, w{k}, i64(1))"
        )
    lines.append(f"    j += {EACH * THREADS}")
    if copies:
        lines += [
            "barrier()",
            "j = i64(x)",
            "while j < n2:",
            "    many = u32(0)",
            "    c = i64(0)",
            f"    while c < {copies}:",
            "        many = add(many, sload_u32_1(counts, c * n2 + j))",
            "        c += 1",
            "    if many > 0:",
            "        gadd_i64(a1, j, i64_from_u32(many))",
            f"    j += {THREADS}",
        ]
    return "\n".join([f"THREADS = {THREADS}", "def NAME(a0, a1, n0, n1, n2):", *("    " + line for line in lines), ""])
