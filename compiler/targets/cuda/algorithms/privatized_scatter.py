"""Many values combined into few places on a GPU. Each warp has all places for its own in shared memory.

A warp walks through its stretch 32 values at a time. Of lanes with one index the first combines their values in the
order of the lanes; then it alone touches the place. Warps, then blocks, are combined in the order of their numbers. So
positions alone decide the order, and the same bits come out in every run.
"""

from __future__ import annotations

from ....core.combiners import reduction_identity
from ....core.cost import warps_with_private_copies
from ....core.types import INT64, SHORT_NAMES, DType
from ....layout.operands import StridedBufferArray
from ..kernel_text import cuda_constant_text
from .launches import GpuAlgorithmBuilder, cuda_conversion_text
from .radix_sort_text import HEAD, indent_radix_kernel_text
from .scan import gpu_scan_accumulator_dtype

RESERVED = 1024  # bytes of a multiprocessor that are not for blocks
TOGETHER = 4  # times 32 values that a warp loads at a time


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
    text = cuda_privatized_scatter_text(indices.dtype, values.dtype, run, op, warps, size)
    pointers = [indices, values, partial]
    calls.add_launch(
        "combine_few", text, [indices, values], [partial], pointers, [length, places, stretch], blocks, 32 * warps
    )
    text = cuda_join_private_copies_text(target.dtype, op)
    pointers = [partial, target]
    calls.add_launch("combine_join", text, pointers, [target], pointers, [blocks, places], -(-places // 32), 1024)
    return True


def gpu_scatter_op_before_place(op: str) -> str:
    """How what is to be combined with a place is combined before."""
    return "add" if op == "sub" else op


def _cuda_scatter_identity_text(run: DType, op: str) -> str:
    """What changes nothing, not even the sign of a zero."""
    if gpu_scatter_op_before_place(op) == "add":
        return cuda_constant_text(run, -0.0 if run.kind == "f" else 0)
    return cuda_constant_text(run, reduction_identity(op, run))


def cuda_privatized_scatter_text(numbers: DType, values: DType, run: DType, op: str, warps: int, size: int) -> str:
    """a0: indices, a1: values, a2: (block, place) what each block has. n0: how many values, n1: how many places, n2: of
    a warp's stretch. size: places there is memory for, a power of two."""
    i, s, a, part = SHORT_NAMES[numbers], SHORT_NAMES[values], SHORT_NAMES[run], gpu_scatter_op_before_place(op)
    whole = cuda_conversion_text(numbers, INT64)
    lines = [
        *HEAD,
        f"table = shared_{a}_{warps * size}()",
        f"mine = warp * {size}",
        "p = i64(lane)",
        "while p < n1:",
        f"    sstore_{a}_1(table, i64(mine) + p, {_cuda_scatter_identity_text(run, op)})",
        "    p += 32",
        "sync_warp()",
        f"at = (i64(bid_x()) * {warps} + i64(warp)) * n2",
        "stop = least(at + n2, n0)",
        "while at < stop:",
    ]
    for u in range(TOGETHER):
        lines += [
            f"    j{u} = at + i64(lane) + {32 * u}",
            f"    k{u} = load_{i}_1x1_if(a0, j{u}, i32(0), i32(0), j{u} < stop)",
            f"    v{u} = load_{s}_1x1_if(a1, j{u}, i32(0), i32(0), j{u} < stop)",
        ]
    for u in range(TOGETHER):
        lines += indent_radix_kernel_text(
            [
                f"k = {whole(f'k{u}')}",
                f"good = j{u} < stop and k >= 0 and k < n1",
                f"key = u32_from_i64(k) if good else u32({size})",
                f"peers = match_{size.bit_length()}(key)",
                f"v = {cuda_conversion_text(values, run)(f'v{u}')}",
                "total = v",
                "rest = and_(peers, sub(peers, u32(1))) if good else u32(0)",
                "more = rest > 0",
                "while ballot(more) > 0:",
                "    which = least(i32_from_u8(popcount(and_(sub(rest, u32(1)), not_(rest)))), i32(31))",
                "    w = shuffle_idx(v, which)",
                f"    total = select(more, {part}(total, w), total)",
                "    rest = and_(rest, sub(rest, u32(1)))",
                "    more = rest > 0",
                "if good and and_(peers, before) == 0:",
                "    p = i64(mine) + k",
                f"    sstore_{a}_1(table, p, {part}(sload_{a}_1(table, p), total))",
                "sync_warp()",
            ]
        )
    lines += [
        f"    at += {32 * TOGETHER}",
        "barrier()",
        "p = i64(x)",
        "while p < n1:",
        f"    total = sload_{a}_1(table, p)",
        *(f"    total = {part}(total, sload_{a}_1(table, p + {w * size}))" for w in range(1, warps)),
        f"    store_{a}_1x1(a2, i64(bid_x()) * n1 + p, i32(0), i32(0), total)",
        f"    p += {32 * warps}",
    ]
    return "\n".join(
        [f"THREADS = {32 * warps}", "def NAME(a0, a1, a2, n0, n1, n2):", *indent_radix_kernel_text(lines), ""]
    )


def cuda_join_private_copies_text(dtype: DType, op: str) -> str:
    """Combine what blocks have, 32 places a block. a0: (block, place), a1: places. n0: how many of a0, n1: places."""
    run = gpu_scan_accumulator_dtype(dtype)
    t, a, part = SHORT_NAMES[dtype], SHORT_NAMES[run], gpu_scatter_op_before_place(op)
    lines = [
        *HEAD[:3],
        f"sums = shared_{a}_1024()",
        "p = i64(bid_x()) * 32 + i64(lane)",
        f"total = {_cuda_scatter_identity_text(run, op)}",
        "r = i64(warp)",
        "while r < n0:",
        f"    w = load_{a}_1x1_if(a0, r * n1 + p, i32(0), i32(0), p < n1)",
        f"    total = {part}(total, w)",
        "    r += 32",
        f"sstore_{a}_1(sums, x, total)",
        "barrier()",
        "if warp == 0 and p < n1:",
        *(f"    total = {part}(total, sload_{a}_1(sums, lane + {32 * w}))" for w in range(1, 32)),
        f"    r0 = load_{t}_1x1(a1, p, i32(0), i32(0))",
        f"    r1 = {op}({cuda_conversion_text(dtype, run)('r0')}, total)",
        f"    store_{t}_1x1(a1, p, i32(0), i32(0), {cuda_conversion_text(run, dtype)('r1')})",
    ]
    return "\n".join(["THREADS = 1024", "def NAME(a0, a1, n0, n1):", *indent_radix_kernel_text(lines), ""])
