"""Running sums and products on a GPU. Tiles that look back at the tiles before them, or one thread for each column.

A block scans a tile of 16 elements a thread in registers and through warps, posts its total, and adds what came before:
the totals of the tiles before it in its group of 256, and of the groups before, each posted by the group's last tile.
All is added in an order that the positions alone decide, so the same bits come out in every run (the look-back of
Merrill and Garland, 2016, with a fixed order). Memory is read once and written once. As in CUB, a block waits for
blocks of lower number alone, which a GPU starts first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ....core.combiners import reduction_identity
from ....core.types import FLOAT32, HALVES, SHORT_NAMES, DType
from ....layout.operands import StridedBufferArray
from ..kernel_text import cuda_constant_text
from .launches import GpuAlgorithmBuilder, cuda_conversion_text

LENGTH = 4  # neighbours of a thread; it has 4 times as many, or 2 times if they are large
RESIDENT = 1024  # threads that a multiprocessor should hold at once
FLAG = 1 << 32  # of a posted word
TOGETHER = 256  # tiles of a group
AHEAD = 8  # of its tiles a lane looks at
TILES = (32, 64, 128, 256)  # threads of a block: the first whose tile holds a row, or the last
SHORT = 64  # rows up to this length are the work of one thread each
COLUMNS = 1 << 13  # columns that fill the device with one thread each


def lower_gpu_ufunc_accumulate(
    calls: GpuAlgorithmBuilder,
    reads: Sequence[StridedBufferArray],
    target: StridedBufferArray,
    options: Mapping[str, Any],
) -> None:
    """`ufunc.lower_ufunc_accumulate` of the ufuncs below."""
    op = {"add": "add", "multiply": "mul", "maximum": "maximum", "minimum": "minimum"}[options["ufunc"]]
    lower_gpu_cumulative_scan(calls, reads, target, options, op)


def lower_gpu_cumulative_scan(
    calls: GpuAlgorithmBuilder,
    reads: Sequence[StridedBufferArray],
    target: StridedBufferArray,
    options: Mapping[str, Any],
    op: str,
) -> None:
    """np.cumsum, np.cumprod and their like along an axis. Of complex numbers sums alone, of each part."""
    (source,) = reads
    axis = (options.get("axis") or 0) % len(source.shape)
    if source.dtype.kind == "c":
        source, target = source.parts(), target.parts()
    length = source.shape[axis]
    outer, inner = math.prod(source.shape[:axis]), math.prod(source.shape[axis + 1 :])
    by_columns = length <= SHORT or (inner > 1 and outer * inner >= COLUMNS)
    if by_columns and source.contiguous and target.contiguous:
        gpu_scan_columns(calls, source, target, op, outer, length, inner)
        return
    given, wanted = calls.contiguous(source.moved(axis)), target.moved(axis)
    result = calls.result(wanted)
    gpu_scan_rows(calls, given, result, op)
    calls.deliver_result(result, wanted)


def gpu_scan_accumulator_dtype(dtype: DType) -> DType:
    """What results of a dtype are accumulated in: 16-bit floats in float32, small integers in 32 bits."""
    if dtype in HALVES:
        return FLOAT32
    return np.dtype(f"{dtype.kind}4") if dtype.itemsize < 4 else dtype


def gpu_scan_columns(
    calls: GpuAlgorithmBuilder,
    source: StridedBufferArray,
    target: StridedBufferArray,
    op: str,
    outer: int,
    length: int,
    inner: int,
) -> None:
    """One thread for each column of (outer, length, inner)."""
    text = cuda_column_scan_text(source.dtype, target.dtype, op)
    total = outer * inner
    calls.add_launch(
        f"scan_{op}", text, [source], [target], [source, target], [total, length, inner], -(-total // 256), 256
    )  # fmt: skip


def cuda_column_scan_text(source: DType, target: DType, op: str) -> str:
    run = gpu_scan_accumulator_dtype(target)
    first, last = cuda_conversion_text(source, run), cuda_conversion_text(run, target)
    t, o = SHORT_NAMES[source], SHORT_NAMES[target]
    head = [
        "THREADS = 256",
        "def NAME(a0, a1, n0, n1, n2):",
        "    c = i64(bid_x()) * i64(256) + i64(tid_x())",
        "    if c < n0:",
        "        p = udiv(c, n2) * n1 * n2 + urem(c, n2)",
        f"        r = {_cuda_scan_identity(run, op)}",
        "        k = i64(0)",
        "        while k + 8 <= n1:",
        f"            v = load_{t}_8x1(a0, p + k * n2, i32(0), n2)",
        f"            w = {first('v')}",
    ]
    for j in range(8):
        head.append(f"            r{j} = {op}({f'r{j - 1}' if j else 'r'}, w[{j}])")
    head += [
        f"            y = {last('(' + ', '.join(f'r{j}' for j in range(8)) + ')')}",
        f"            store_{o}_8x1(a1, p + k * n2, i32(0), n2, y)",
        "            r = r7",
        "            k += 8",
        "        while k < n1:",
        f"            u = load_{t}_1x1(a0, p + k * n2, i32(0), i32(0))",
        f"            s = {first('u')}",
        f"            r = {op}(r, s)",
        f"            z = {last('r')}",
        f"            store_{o}_1x1(a1, p + k * n2, i32(0), i32(0), z)",
        "            k += 1",
        "",
    ]
    return "\n".join(head)


def gpu_scan_rows(calls: GpuAlgorithmBuilder, source: StridedBufferArray, target: StridedBufferArray, op: str) -> None:
    """Along the last axis of contiguous arrays."""
    length = source.shape[-1]
    each = LENGTH * gpu_scan_runs_of_thread(gpu_scan_accumulator_dtype(target.dtype))
    count = math.prod(source.shape[:-1])
    threads = next((t for t in TILES if t * each >= length), TILES[-1])
    tile = threads * each
    tiles = -(-length // tile)
    run = gpu_scan_accumulator_dtype(target.dtype)
    words = max(1, run.itemsize // 4)
    groups = -(-tiles // TOGETHER)
    used = (count * (tiles + groups) + 32 * AHEAD) * words  # what is looked at may lie beyond
    state = calls.temporary((used,), np.uint64)
    if tiles > 1:
        calls.add_fill(state, 0)
    vector = (count == 1 or all(length * a.region.itemsize % 16 == 0 for a in (source, target))) and (
        source.aligned and target.aligned
    )
    text = cuda_lookback_scan_text(source.dtype, target.dtype, op, threads, vector)
    numbers = [length, tiles, groups, count * tiles * words]
    calls.add_launch(
        f"scan_{op}", text, [source, state], [target, state], [source, target, state], numbers, count * tiles, threads
    )  # fmt: skip


def gpu_scan_runs_of_thread(run: DType) -> int:
    """How many runs of LENGTH neighbours a thread has."""
    return 4 if run.itemsize <= 4 else 2


def _cuda_scan_identity(dtype: DType, op: str) -> str:
    return cuda_constant_text(dtype, reduction_identity(op, dtype))


def cuda_lookback_scan_text(source: DType, target: DType, op: str, threads: int, vector: bool) -> str:
    """a0: source, a1: target, a2: words, all 0: the tiles' totals, the groups'. n0: length of
    a row, n1: tiles of a row, n2: groups of a row, n3: where the groups' words begin."""
    run = gpu_scan_accumulator_dtype(target)
    t, o, a = SHORT_NAMES[source], SHORT_NAMES[target], SHORT_NAMES[run]
    first, last = cuda_conversion_text(source, run), cuda_conversion_text(run, target)
    groups = gpu_scan_runs_of_thread(run)
    tile, warps = threads * LENGTH * groups, threads // 32
    slots = groups * warps
    per = max(1, slots // 32)  # of a lane of the first warp
    end = min(31, slots // per - 1)
    nothing = _cuda_scan_identity(run, op)
    v, ones = ("v", "") if vector else ("", ", i32(1)")
    shape = f"{LENGTH}x{groups}"
    out = [
        f"THREADS = ({threads}, {RESIDENT // threads})",
        "def NAME(a0, a1, a2, n0, n1, n2, n3):",
        "    x = tid_x()",
        "    lane = urem(x, i32(32))",
        "    warp = udiv(x, i32(32))",
        f"    sums = shared_{a}_{slots}()",
        f"    before = shared_{a}_{slots}()",
        *([f"    earlier = shared_{a}_1()"] if warps > 1 else []),
        "    number = i64(bid_x())",
        "    row = udiv(number, n1)",
        "    tile = urem(number, n1)",
        f"    within = urem(tile, i64({TOGETHER}))",
        f"    group = udiv(tile, i64({TOGETHER}))",
        f"    at = tile * i64({tile}) + i64(x) * i64({LENGTH})",
        "    first = row * n0 + at",
        f"    step = i64({threads * LENGTH})",
        f"    whole = tile * i64({tile}) + i64({tile}) <= n0",
        "    if whole:",
        f"        v = load{v}_{t}_{shape}(a0, first, step{ones})",
        "    else:",
        f"        v = load{v}_{t}_{shape}_if(a0, first, step{ones}, below_{shape}(at, step, i32(1), n0))",
        f"    w = {first('v')}",
    ]
    for g in range(groups):
        out.append(f"    s{g}_0 = w[{LENGTH * g}]")
        out += [f"    s{g}_{j} = {op}(s{g}_{j - 1}, w[{LENGTH * g + j}])" for j in range(1, LENGTH)]
        out.append(f"    c{g} = s{g}_{LENGTH - 1}")
        out += _cuda_warp_scan_text(f"c{g}", op, "    ")
        out += [
            f"    p{g} = shuffle_up(c{g}, 1)",
            f"    p{g} = select(lane > 0, p{g}, {nothing})",
            "    if lane == 31:",
            f"        sstore_{a}_1(sums, i32({g * warps}) + warp, c{g})",
        ]
    out += ["    barrier()", "    if warp == 0:", f"        slot = least(lane, i32({end})) * i32({per})"]
    out.append(f"        q0 = sload_{a}_1(sums, slot)")
    for k in range(1, per):
        out.append(f"        q{k} = {op}(q{k - 1}, sload_{a}_1(sums, slot + {k}))")
    out.append(f"        c = q{per - 1}")
    out += _cuda_warp_scan_text("c", op, "        ")
    out += [
        "        e = shuffle_up(c, 1)",
        f"        last = i32({end})",
        "        total = shuffle_idx(c, last)",
        f"        e = select(lane > 0, e, {nothing})",
        f"        pre = {nothing}",
        *(["        if n1 > 1:"] if warps > 1 else []),
        *("            " + line for line in (_scan_look_back_text(run, op, nothing) if warps > 1 else [])),
        f"        if lane <= {end}:",
        f"            e = {op}(pre, e)",
        f"            sstore_{a}_1(before, slot, e)",
    ]
    out += [f"            sstore_{a}_1(before, slot + {k}, {op}(e, q{k - 1}))" for k in range(1, per)]
    if warps > 1:  # else a row is one tile
        out += ["    if warp == 1:", *("        " + line for line in _scan_previous_groups_text(run, op, nothing))]
    out.append("    barrier()")
    if warps > 1:
        out.append(f"    groups = sload_{a}_1(earlier, i32(0))")
    for g in range(groups):
        out.append(f"    b{g} = {op}(sload_{a}_1(before, i32({g * warps}) + warp), p{g})")
        out += [f"    b{g} = {op}(groups, b{g})"] if warps > 1 else []
        out += [f"    r{g}_{j} = {op}(b{g}, s{g}_{j})" for j in range(LENGTH)]
    every = ", ".join(f"r{g}_{j}" for g in range(groups) for j in range(LENGTH))
    out += [
        f"    y = {last(f'({every})')}",
        "    if whole:",
        f"        store{v}_{o}_{shape}(a1, first, step{ones}, y)",
        "    else:",
        f"        store{v}_{o}_{shape}_if(a1, first, step{ones}, y, below_{shape}(at, step, i32(1), n0))",
        "",
    ]
    return "\n".join(out)


def _cuda_warp_scan_text(name: str, op: str, indent: str) -> list[str]:
    """name = the running total over the lanes of a warp."""
    lines = []
    for offset in (1, 2, 4, 8, 16):
        lines.append(f"{indent}o = shuffle_up({name}, {offset})")
        lines.append(f"{indent}{name} = select(lane >= {offset}, {op}(o, {name}), {name})")
    return lines


def _scan_look_back_text(run: DType, op: str, nothing: str) -> list[str]:
    """pre = the tiles before this one in its group, posted words in; its own total posted, the group's by its last."""
    words = max(1, run.itemsize // 4)
    return [
        f"mine = number * i64({words})",
        "if lane == 0:",
        *("    " + line for line in _scan_post_total_text("mine", "total", run)),
        f"first_ = mine - within * i64({words})",
        "near = i64(lane)",
        *_scan_sum_posted_totals_text(run, op, nothing, "within"),
        "pre = sum",
        f"if within == {TOGETHER - 1} and lane == 0:",
        f"    through = {op}(pre, total)",
        *("    " + line for line in _scan_post_total_text(f"n3 + (row * n2 + group) * i64({words})", "through", run)),
    ]


def _scan_previous_groups_text(run: DType, op: str, nothing: str) -> list[str]:
    """groups = all before this tile's group, left in shared memory. The second warp does it."""
    words = max(1, run.itemsize // 4)
    a = SHORT_NAMES[run]
    return [
        f"groups = {nothing}",
        "done = i64(0)",
        "while done < group:",
        f"    first_ = n3 + row * n2 * i64({words})",
        "    near = done + i64(lane)",
        *("    " + line for line in _scan_sum_posted_totals_text(run, op, nothing, "group")),
        f"    groups = {op}(groups, sum)",
        f"    done += {32 * AHEAD}",
        "if lane == 0:",
        f"    sstore_{a}_1(earlier, i32(0), groups)",
    ]


def _scan_sum_posted_totals_text(run: DType, op: str, nothing: str, below: str) -> list[str]:
    """sum = the posted values number `near`, near + 32, ... of each lane, of those that are `below`."""
    words = max(1, run.itemsize // 4)
    known = f"u64({FLAG})"
    lines = [f"from_ = first_ + near * i64({words})", "ready = u64(0)", "while ready == 0:"]
    for k in range(AHEAD):
        for w in range(words):
            lines.append(f"    z{k}_{w} = peek_u64(a2, from_ + {32 * k * words + w})")
            lines.append(f"    z{k}_{w} = select(near + {32 * k} < {below}, z{k}_{w}, {known})")
    flags = "z0_0"
    for name in [f"z{k}_{w}" for k in range(AHEAD) for w in range(words)][1:]:
        flags = f"and_({flags}, {name})"
    lines.append(f"    ready = and_({flags}, {known})")
    for k in range(AHEAD):
        lines.append(
            f"f{k} = select(near + {32 * k} < {below}, {_scan_read_posted_total_text(f'z{k}', run)}, {nothing})"
        )
        lines.append(f"sum{k} = {op}(sum{k - 1}, f{k})" if k else "sum0 = f0")
    return [*lines, f"sum = sum{AHEAD - 1}", f"sum = warp_{op}(sum, 32)"]


def _scan_post_total_text(place: str, name: str, run: DType) -> list[str]:
    """Post a value as words of 32 bits, each with a flag above."""
    a = SHORT_NAMES[run]
    if run.itemsize == 4:
        bits = name if a == "u32" else f"u32_bits_{a}({name})"
        return [f"post_u64(a2, {place}, or_(u64_from_u32({bits}), u64({FLAG})))"]
    bits = name if a == "u64" else f"u64_bits_{a}({name})"
    return [
        f"bits = {bits}",
        f"post_u64(a2, {place}, or_(and_(bits, u64({2**32 - 1})), u64({FLAG})))",
        f"post_u64(a2, {place} + 1, or_(shr(bits, u64(32)), u64({FLAG})))",
    ]


def _scan_read_posted_total_text(place: str, run: DType) -> str:
    a = SHORT_NAMES[run]
    low = f"and_({place}_0, u64({2**32 - 1}))"
    if run.itemsize == 4:
        bits = f"u32_from_u64({low})"
        return bits if a == "u32" else f"{a}_bits_u32({bits})"
    bits = f"or_({low}, shl({place}_1, u64(32)))"
    return bits if a == "u64" else f"{a}_bits_u64({bits})"
