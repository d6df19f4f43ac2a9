"""The kernel text of radix sorts. Values as keys that order like them, ranks of keys by one digit, and the passes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....core.types import BOOL, SHORT_NAMES, DType, dtype_kind

DIGITS = 256
THREADS = 256
WARPS = THREADS // 32
# Keys a thread has, by bytes of a key: what fits shared memory with places beside it.
EACH = {1: 16, 2: 16, 4: 16, 8: 8}
TOTAL, THROUGH = 1, 2  # what a word says above its lowest 60 bits; 0: nothing yet
LOW = 2**60 - 1


def radix_key_dtype(dtype: DType) -> DType:
    return np.dtype(f"u{dtype.itemsize}")


def encode_radix_key_text(name: str, dtype: DType, places: bool, down: bool = False) -> list[str]:
    """`name`, a value, becomes a key; down: the greatest value the least key."""
    if down:
        return [*encode_radix_key_text(name, dtype, places), f"{name} = not_({name})"]
    if dtype == BOOL:
        return [f"{name} = u8_from_b1({name})"]
    t, k = SHORT_NAMES[dtype], SHORT_NAMES[radix_key_dtype(dtype)]
    bits = dtype.itemsize * 8
    top = 1 << (bits - 1)
    if dtype_kind(dtype) == "u":
        return []
    lines = [f"{name} = {k}_bits_{t}({name})"]
    if dtype_kind(dtype) == "i":
        return [*lines, f"{name} = xor({name}, {k}({top}))"]
    infinity = {"f16": 0x7C00, "bf16": 0x7F80, "f32": 0x7F800000, "f64": 0x7FF0000000000000}[t]
    lines.append(f"size = and_({name}, {k}({top - 1}))")
    if places:  # -0 and 0 are equal
        lines.append(f"{name} = select(eq(size, {k}(0)), {k}(0), {name})")
    lines.append(f"{name} = select(ge({name}, {k}({top})), not_({name}), or_({name}, {k}({top})))")
    lines.append(f"{name} = select(gt(size, {k}({infinity})), {k}({2**bits - 1}), {name})")
    return lines


def decode_radix_key_text(name: str, dtype: DType) -> list[str]:
    """`name`, a key, becomes a value; every NaN the same one."""
    if dtype == BOOL:
        return [f"{name} = b1_from_u8({name})"]
    t, k = SHORT_NAMES[dtype], SHORT_NAMES[radix_key_dtype(dtype)]
    bits = dtype.itemsize * 8
    top = 1 << (bits - 1)
    if dtype_kind(dtype) == "u":
        return []
    if dtype_kind(dtype) == "i":
        return [f"{name} = {t}_bits_{k}(xor({name}, {k}({top})))"]
    nan = {"f16": 0x7E00, "bf16": 0x7FC0, "f32": 0x7FC00000, "f64": 0x7FF8000000000000}[t]
    return [
        f"isnan = eq({name}, {k}({2**bits - 1}))",
        f"{name} = select(ge({name}, {k}({top})), and_({name}, {k}({top - 1})), not_({name}))",
        f"{name} = select(isnan, {k}({nan}), {name})",
        f"{name} = {t}_bits_{k}({name})",
    ]


def indent_radix_kernel_text(lines: Sequence[str], depth: int = 1) -> list[str]:
    return ["    " * depth + line for line in lines]


def _load_radix_key_text(
    first: bool, dtype: DType, pointer: str, place: str, name: str, inside: str, places: bool, down: bool
) -> list[str]:
    """Load a value or a key, as a key; the greatest where there is none."""
    k = SHORT_NAMES[radix_key_dtype(dtype)]
    t = SHORT_NAMES[dtype] if first else k
    lines = [f"{name} = load_{t}_1x1_if({pointer}, {place}, i32(0), i32(0), {inside})"]
    lines += encode_radix_key_text(name, dtype, places, down) if first else []
    return [*lines, f"{name} = select({inside}, {name}, {k}({2 ** (8 * radix_key_dtype(dtype).itemsize) - 1}))"]


def _radix_digit_text(name: str, key: str, dtype: DType, shift: str) -> str:
    k = SHORT_NAMES[radix_key_dtype(dtype)]
    low = f"shr({key}, {shift})" if radix_key_dtype(dtype).itemsize > 1 else key
    whole = f"and_({low}, {k}(255))"
    return f"{name} = {whole}" if k == "u32" else f"{name} = u32_from_{k}({whole})"


HEAD = [
    "x = tid_x()",
    "lane = urem(x, i32(32))",
    "warp = udiv(x, i32(32))",
    "before = sub(shl(u32(1), u32(lane)), u32(1))",  # the lanes before this one, as bits
]


def _warp_digit_ranks_text(each: int, dtype: DType, shift: str) -> list[str]:
    """d0.. and r0..: each key's digit, and its rank among the keys of its warp with that digit. counts holds, in the
    end, how many each warp has; before, it must be 0."""
    lines = []
    for i in range(each):
        lines += [
            _radix_digit_text(f"d{i}", f"k{i}", dtype, shift),
            f"peers = match_8(d{i})",
            f"r{i} = i32_from_u8(popcount(and_(peers, before)))",
            "leader = i32_from_u8(popcount(sub(and_(peers, sub(u32(0), peers)), u32(1))))",
            "many = u32(0)",
            f"if r{i} == 0:",
            f"    many = sadd_u32(counts, warp * {DIGITS} + i32_from_u32(d{i}), u32_from_u8(popcount(peers)))",
            "many = shuffle_idx(many, leader)",
            f"r{i} = r{i} + i32_from_u32(many)",
        ]
    return lines


# Thread x has digit x: counts become the numbers of the warps before, mine the keys of the tile with this digit.
_TOTALS = [
    "barrier()",
    "mine = u32(0)",
    "w = 0",
    f"while w < {WARPS}:",
    f"    many = sload_u32_1(counts, w * {DIGITS} + x)",
    f"    sstore_u32_1(counts, w * {DIGITS} + x, mine)",
    "    mine = add(mine, many)",
    "    w += 1",
]


def cuda_block_prefix_sum_text(dtype: str, name: str, value: str, sums: str) -> list[str]:
    """name = the sum of the values of the threads before this one. Ends with a barrier before sums is read."""
    lines = [f"run = {value}"]
    for offset in (1, 2, 4, 8, 16):
        lines += [
            f"o = shuffle_up(run, {offset})",
            f"run = select(lane >= {offset}, add(o, run), run)",
        ]
    return [
        *lines,
        "if lane == 31:",
        f"    sstore_{dtype}_1({sums}, warp, run)",
        "barrier()",
        f"{name} = sub(run, {value})",
        "w = 0",
        "while w < warp:",
        f"    {name} = add({name}, sload_{dtype}_1({sums}, w))",
        "    w += 1",
    ]


def radix_digit_histogram_text(dtype: DType, places: bool, down: bool, passes: int) -> str:
    """How often each digit comes: a0: values, a1: (row, pass, digit) counts, 0 before. n0: length of a row, n1: of a
    block's stretch of it, n2: stretches of a row."""
    k = SHORT_NAMES[radix_key_dtype(dtype)]
    lines = [
        *HEAD[:1],
        f"counts = shared_u32_{passes * DIGITS}()",
        *(f"sstore_u32_1(counts, x + {p * DIGITS}, u32(0))" for p in range(passes)),
        "barrier()",
        "row = udiv(i64(bid_x()), n2)",
        "at = urem(i64(bid_x()), n2) * n1",
        "stop = least(at + n1, n0)",
        "j = at + i64(x)",
        "while j < stop:",
        f"    k0 = load_{SHORT_NAMES[dtype]}_1x1(a0, row * n0 + j, i32(0), i32(0))",
        *indent_radix_kernel_text(encode_radix_key_text("k0", dtype, places, down)),
    ]
    for p in range(passes):
        lines += indent_radix_kernel_text([_radix_digit_text("d0", "k0", dtype, f"{k}({8 * p})")])
        lines.append(f"    sadd_u32(counts, i32_from_u32(d0) + {p * DIGITS}, u32(1))")
    lines += [f"    j += {THREADS}", "barrier()"]
    for p in range(passes):
        lines += [
            f"many = sload_u32_1(counts, x + {p * DIGITS})",
            "if many > 0:",
            f"    gadd_u64(a1, (row * {passes} + {p}) * {DIGITS} + i64(x), u64_from_u32(many))",
        ]
    return "\n".join([f"THREADS = {THREADS}", "def NAME(a0, a1, n0, n1, n2):", *indent_radix_kernel_text(lines), ""])


# (row, pass, digit): counts become where the keys of each digit begin.
START_TEXT = "\n".join(
    [
        f"THREADS = {THREADS}",
        "def NAME(a0):",
        *indent_radix_kernel_text(
            [
                *HEAD[:3],
                f"sums = shared_u64_{WARPS}()",
                f"own = load_u64_1x1(a0, i64(bid_x()) * {DIGITS} + i64(x), i32(0), i32(0))",
                *cuda_block_prefix_sum_text("u64", "start", "own", "sums"),
                f"store_u64_1x1(a0, i64(bid_x()) * {DIGITS} + i64(x), i32(0), i32(0), start)",
            ]
        ),
        "",
    ]
)


def radix_sort_pass_text(dtype: DType, first: bool, last: bool, places: bool, keys: bool, down: bool) -> str:
    """Sort by one digit. a0: values (first) or keys, a1: places before, a2: values (last) or keys, a3: places after,
    a4: (row, pass, digit) where digits begin, a5: words, 0 before: a ticket, and of each tile and digit how many keys.
    n0: length of a row, n1: tiles of a row, n2: number of the pass, n3: passes. keys: a2 is wanted."""
    each = EACH[radix_key_dtype(dtype).itemsize]
    k = SHORT_NAMES[radix_key_dtype(dtype)]
    tile = THREADS * each
    out = SHORT_NAMES[dtype] if last else k
    lines = [
        *HEAD,
        "ticket_ = shared_i64_1()",
        f"counts = shared_u32_{WARPS * DIGITS}()",
        f"starts = shared_u32_{DIGITS}()",
        f"goals = shared_i64_{DIGITS}()",
        f"sums = shared_u32_{WARPS}()",
        f"held = shared_{k}_{tile}()",
        *(f"sstore_u32_1(counts, x + {w * DIGITS}, u32(0))" for w in range(WARPS)),
        "if x == 0:",
        "    sstore_i64_1(ticket_, i32(0), gadd_i64(a5, i32(0), i64(1)))",
        "barrier()",
        "ticket = sload_i64_1(ticket_, i32(0))",
        "row = udiv(ticket, n1)",
        "tile = urem(ticket, n1)",
        f"at = tile * {tile} + i64(warp * {32 * each} + lane)",
        "base = row * n0",
        f"shift = {k}_from_i64(n2 * 8)",
    ]
    for i in range(each):
        lines += _load_radix_key_text(
            first, dtype, "a0", f"base + at + {32 * i}", f"k{i}", f"at + {32 * i} < n0", places, down
        )
    lines += [*_warp_digit_ranks_text(each, dtype, "shift"), *_TOTALS]
    lines += [
        f"word = 1 + ticket * {DIGITS} + i64(x)",
        f"post_u64(a5, word, or_(u64_from_u32(mine), u64({TOTAL << 60})))",
        *cuda_block_prefix_sum_text("u32", "start", "mine", "sums"),
        "sstore_u32_1(starts, x, start)",
        "through = u64(0)",
        "j = tile - 1",
        f"back = word - {DIGITS}",
        "while j >= 0:",
        "    said = peek_u64(a5, back)",
        f"    if said >= u64({TOTAL << 60}):",
        f"        through = add(through, and_(said, u64({LOW})))",
        f"        back = back - {DIGITS}",
        f"        j = -1 if said >= u64({THROUGH << 60}) else j - 1",
        f"post_u64(a5, word, or_(add(through, u64_from_u32(mine)), u64({THROUGH << 60})))",
        f"goal = load_u64_1x1(a4, (row * n3 + n2) * {DIGITS} + i64(x), i32(0), i32(0))",
        "goal = i64_from_u64(add(goal, through)) - i64_from_u32(start)",
        "sstore_i64_1(goals, x, goal)",
        "barrier()",
    ]
    for i in range(each):
        lines += [
            f"p{i} = r{i} + i32_from_u32(sload_u32_1(starts, i32_from_u32(d{i})))",
            f"p{i} = p{i} + i32_from_u32(sload_u32_1(counts, warp * {DIGITS} + i32_from_u32(d{i})))",
            f"sstore_{k}_1(held, p{i}, k{i})",
        ]
    lines += ["barrier()", f"left = n0 - tile * {tile}"]
    for i in range(each):
        lines += [
            f"q{i} = sload_{k}_1(held, x + {i * THREADS})",
            _radix_digit_text("d", f"q{i}", dtype, "shift"),
            f"g{i} = base + sload_i64_1(goals, i32_from_u32(d)) + i64(x + {i * THREADS})",
        ]
        if keys:
            lines += decode_radix_key_text(f"q{i}", dtype) if last else []
            lines.append(f"store_{out}_1x1_if(a2, g{i}, i32(0), i32(0), q{i}, i64(x + {i * THREADS}) < left)")
    if places:
        lines.append(f"spots = shared_u32_{tile}()")
        for i in range(each):
            own = f"at + {32 * i}"
            if first:
                lines.append(f"s{i} = u32_from_i64({own})")
            else:
                lines.append(f"s{i} = load_u32_1x1_if(a1, base + {own}, i32(0), i32(0), {own} < n0)")
            lines.append(f"sstore_u32_1(spots, p{i}, s{i})")
        lines.append("barrier()")
        for i in range(each):
            lines.append(f"t = sload_u32_1(spots, x + {i * THREADS})")
            lines += ["t = i64_from_u32(t)"] if last else []
            kind = "i64" if last else "u32"
            lines.append(f"store_{kind}_1x1_if(a3, g{i}, i32(0), i32(0), t, i64(x + {i * THREADS}) < left)")
    head = "def NAME(a0, a1, a2, a3, a4, a5, n0, n1, n2, n3):"
    return "\n".join([f"THREADS = ({THREADS}, {3 if places else 4})", head, *indent_radix_kernel_text(lines), ""])


def radix_sort_block_text(
    dtype: DType, each: int, values: bool, places: bool, down: bool = False, passes: int = 0, picks: int = 0
) -> str:
    """A block sorts a row, all passes in shared memory. a0: values, a1: values in order, a2: where they come from.
    n0: length of a row, n1: how many of each row are written; picks: or so many, in places n2, n3, ... of the order."""
    key = radix_key_dtype(dtype)
    k = SHORT_NAMES[key]
    tile = THREADS * each
    lines = [
        *HEAD,
        f"counts = shared_u32_{WARPS * DIGITS}()",
        f"starts = shared_u32_{DIGITS}()",
        f"sums = shared_u32_{WARPS}()",
        f"held = shared_{k}_{tile}()",
        *([f"spots = shared_u32_{tile}()"] if places else []),
        f"at = i64(warp * {32 * each} + lane)",
        "base = i64(bid_x()) * n0",
    ]
    for i in range(each):
        lines += _load_radix_key_text(
            True, dtype, "a0", f"base + at + {32 * i}", f"k{i}", f"at + {32 * i} < n0", places, down
        )
        lines += [f"s{i} = u32_from_i64(at + {32 * i})"] if places else []
    step = [
        *(f"sstore_u32_1(counts, x + {w * DIGITS}, u32(0))" for w in range(WARPS)),
        "barrier()",
        f"shift = {k}_from_i64(i64(turn) * 8)",
        *_warp_digit_ranks_text(each, dtype, "shift"),
        *_TOTALS,
        *cuda_block_prefix_sum_text("u32", "start", "mine", "sums"),
        "sstore_u32_1(starts, x, start)",
        "barrier()",
    ]
    for i in range(each):
        step += [
            f"p{i} = r{i} + i32_from_u32(sload_u32_1(starts, i32_from_u32(d{i})))",
            f"p{i} = p{i} + i32_from_u32(sload_u32_1(counts, warp * {DIGITS} + i32_from_u32(d{i})))",
            f"sstore_{k}_1(held, p{i}, k{i})",
            *([f"sstore_u32_1(spots, p{i}, s{i})"] if places else []),
        ]
    step.append("barrier()")
    for i in range(each):
        own = f"warp * {32 * each} + lane + {32 * i}"
        step.append(f"k{i} = sload_{k}_1(held, {own})")
        step += [f"s{i} = sload_u32_1(spots, {own})"] if places else []
    step.append("turn += 1")
    lines += ["turn = 0", f"while turn < {passes or key.itemsize}:", *indent_radix_kernel_text(step)]
    for j in range(picks):
        lines += [
            f"if x == {j}:",
            f"    q = sload_{k}_1(held, n{2 + j})",
            *indent_radix_kernel_text(decode_radix_key_text("q", dtype)),
            f"    store_{SHORT_NAMES[dtype]}_1x1(a1, i64(bid_x()) * {picks} + {j}, i32(0), i32(0), q)",
        ]
    for i in range(0 if picks else each):
        where = f"i64(bid_x()) * n1 + at + {32 * i}, i32(0), i32(0)"
        if values:
            lines += decode_radix_key_text(f"k{i}", dtype)
            lines.append(f"store_{SHORT_NAMES[dtype]}_1x1_if(a1, {where}, k{i}, at + {32 * i} < n1)")
        if places:
            lines.append(f"t{i} = i64_from_u32(s{i})")
            lines.append(f"store_i64_1x1_if(a2, {where}, t{i}, at + {32 * i} < n1)")
    numbers = ", ".join(f"n{i}" for i in range(2 + picks))
    return "\n".join(
        [f"THREADS = ({THREADS}, 3)", f"def NAME(a0, a1, a2, {numbers}):", *indent_radix_kernel_text(lines), ""]
    )
