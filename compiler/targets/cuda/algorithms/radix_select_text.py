"""The kernel text of radix selects. Counting a digit, picking that of the k-th key, collecting what comes before it.

Of each k-th key that is looked for four words are known: the key's digits so far, its place's digits so far, which one
it is among the keys that share them, and whether these are all wanted: then the other digits are set, and what is not
greater is what was looked for.
"""

from __future__ import annotations

from collections.abc import Sequence

from .....runtime.core.frozen import dataclass
from ....core.types import SHORT_NAMES, DType
from .radix_sort_text import (
    HEAD,
    cuda_block_prefix_sum_text,
    decode_radix_key_text,
    encode_radix_key_text,
    indent_radix_kernel_text,
    radix_key_dtype,
)

THREADS = 512
EACH = 8  # elements a thread takes at a time
BITS = 11  # of a digit at most
BINS = 1 << BITS
PICKING = 256  # threads that look through the bins
KEY, PLACE, LEFT, DONE, WORDS = 0, 1, 2, 3, 4
ONES = 2**32 - 1


@dataclass(frozen=True, slots=True)
class SelectDigit:
    """A digit of the key, or of the place."""

    of_key: bool
    shift: int
    width: int


def radix_select_digits(dtype: DType, length: int) -> list[SelectDigit]:
    """All digits of a key, the highest first; then those of places below `length`."""
    bits = 8 * dtype.itemsize
    width = 8 if bits <= 16 else BITS
    ends = range(bits, 0, -width)
    steps = [SelectDigit(True, max(end - width, 0), min(end, width)) for end in ends]
    count = -(-max(length - 1, 0).bit_length() // BITS)
    return steps + [SelectDigit(False, BITS * i, BITS) for i in reversed(range(count))]


def _radix_select_function_text(parameters: str, lines: Sequence[str], threads: int = THREADS) -> str:
    return "\n".join([f"THREADS = {threads}", f"def NAME({parameters}):", *indent_radix_kernel_text(lines), ""])


def _zero_digit_counters_text(count: int) -> list[str]:
    return ["b = x", f"while b < {count}:", "    sstore_u32_1(counts, b, u32(0))", f"    b += {THREADS}"]


def _tally_radix_digits_text(dtype: DType, step: SelectDigit, first: bool, many: int, down: bool | None) -> list[str]:
    """Count the digits of the keys from `at` to `stop` that agree with key0, ... and place0 (first: all)."""
    t, k = SHORT_NAMES[dtype], SHORT_NAMES[radix_key_dtype(dtype)]
    lines = [
        "j = at + i64(x)",
        "while j < stop:",
        f"    inside = below_1x{EACH}(j, i64({THREADS}), i32(0), stop)",
        f"    v = load_{t}_1x{EACH}_if(a0, row * n0 + j, i64({THREADS}), i32(0), inside)",
        *indent_radix_kernel_text(encode_radix_key_text("v", dtype, down is not None, bool(down))),
    ]
    for i in range(EACH):
        here, q = f"j + {i * THREADS}", f"v[{i}]"
        if not step.of_key:
            lines += [
                f"    if {here} < stop and {q} == key0:",
                f"        p = u32_from_i64({here})",
                f"        if shr(p, u32({step.shift + step.width})) == place0:",
                f"            d = and_(shr(p, u32({step.shift})), u32({(1 << step.width) - 1}))",
                "            sadd_u32(counts, i32_from_u32(d), u32(1))",
            ]
            continue
        digit = f"and_(shr({q}, {k}({step.shift})), {k}({(1 << step.width) - 1}))"
        if first:
            found = [f"if {here} < stop:", f"    sadd_u32(counts, i32_from_{k}({digit}), u32(1))"]
        else:
            found = [f"if {here} < stop:", f"    top = shr({q}, {k}({step.shift + step.width}))"]
            for which in range(many):
                place = f"i32_from_{k}({digit}) + {which * BINS}" if which else f"i32_from_{k}({digit})"
                found += [f"    if top == key{which}:", f"        sadd_u32(counts, {place}, u32(1))"]
        lines += indent_radix_kernel_text(found)
    return [*lines, f"    j += {THREADS * EACH}"]


def _known_radix_digits_text(load: str, dtype: DType, many: int) -> list[str]:
    """key0, ..., place0; nothing is left to count where all is done. load: of a word, by its number."""
    k = SHORT_NAMES[radix_key_dtype(dtype)]
    words = [load.format(w * WORDS + KEY) for w in range(many)]
    lines = [f"key{w} = " + (word if k == "u64" else f"{k}_from_u64({word})") for w, word in enumerate(words)]
    if many == 1:
        lines.append(f"place0 = u32_from_u64({load.format(PLACE)})")
        lines.append(f"stop = at if {load.format(DONE)} > u64(0) else stop")
    return lines


def count_radix_digit_text(dtype: DType, step: SelectDigit, first: bool, many: int, down: bool | None) -> str:
    """a0: values, a1: (row, which, digit) counts, 0 before, a2: what is known (not if first). n0: length of a row,
    n1: of a block's stretch of it, n2: stretches of a row."""
    lines = [
        "x = tid_x()",
        "row = udiv(i64(bid_x()), n2)",
        "at = urem(i64(bid_x()), n2) * n1",
        "stop = least(at + n1, n0)",
        f"counts = shared_u32_{many * BINS}()",
        *_zero_digit_counters_text(many * BINS),
        *(
            []
            if first
            else _known_radix_digits_text(f"load_u64_1x1(a2, row * {many * WORDS} + {{}}, i32(0), i32(0))", dtype, many)
        ),
        "barrier()",
        *_tally_radix_digits_text(dtype, step, first, many, down),
        "barrier()",
        "b = x",
        f"while b < {many * BINS}:",
        "    c = sload_u32_1(counts, b)",
        "    if c > 0:",
        f"        gadd_u64(a1, row * {many * BINS} + i64(b), u64_from_u32(c))",
        f"    b += {THREADS}",
    ]
    return _radix_select_function_text("a0, a1, a2, n0, n1, n2", lines)


def _digit_bin_prefix_text(threads: int, load: str) -> list[str]:
    """c0, ...: this thread's bins, and `start`: all before them."""
    each = BINS // threads
    lines = [f"c{i} = {load.format(i)}" for i in range(each)]
    total = "c0"
    for i in range(1, each):
        total = f"add({total}, c{i})"
    return [*lines, f"mine = {total}", *cuda_block_prefix_sum_text("u64", "start", "mine", "sums")]


def _advance_to_digit_bin_text(step: SelectDigit, threads: int, places: bool, store: str) -> list[str]:
    """From key, place and left: the thread whose bin has the one that is looked for stores what is known now. store:
    of a word, by its number and value. places: the search ends where all keys of the bin are wanted."""
    each, rest = BINS // threads, (1 << step.shift) - 1
    grown, kept = ("key", "place") if step.of_key else ("place", "key")
    lines = []
    for i in range(each):
        inside = [
            f"{grown}_ = or_(shl({grown}, u64({step.width})), u64_from_i32(i32(x * {each} + {i})))",
            f"{kept}_ = {kept}",
            "left_ = sub(left, start)",
            "done_ = u64(0)",
        ]
        if places:
            inside += [f"if add(left_, u64(1)) == c{i}:", "    done_ = u64(1)"]
            inside.append(f"    {grown}_ = or_(shl({grown}_, u64({step.shift})), u64({rest}))")
            inside += [f"    {kept}_ = u64({ONES})"] if step.of_key else []
        words = ((KEY, "key_"), (PLACE, "place_"), (LEFT, "left_"), (DONE, "done_"))
        inside += [store.format(word, value) for word, value in words]
        lines += [
            f"if left >= start and left < add(start, c{i}):",
            *indent_radix_kernel_text(inside),
            f"start = add(start, c{i})",
        ]
    return lines


def pick_radix_digit_text(step: SelectDigit, first: bool, many: int, places: bool) -> str:
    """The next digit. a0: (row, which, digit) counts (first: of all keys), a1: what is known (not if first), a2: what
    is known then. n0, ...: the places in the order (first). A block each."""
    load = "load_u64_1x1(a1, own * 4 + {}, i32(0), i32(0))"
    store = "store_u64_1x1(a2, own * 4 + {}, i32(0), i32(0), {})"
    numbers = [f"n{i}" for i in range(many)]
    lines = [*HEAD[:3], f"sums = shared_u64_{PICKING // 32}()", "own = i64(bid_x())"]
    if first:
        lines += [f"table = udiv(own, i64({many}))", f"which = urem(own, i64({many}))", "k = n0"]
        lines += [f"k = n{w} if which == {w} else k" for w in range(1, many)]
        lines += ["key = u64(0)", "place = u64(0)", "left = u64_from_i64(k)"]
    else:
        lines += ["table = own", f"key = {load.format(KEY)}", f"place = {load.format(PLACE)}"]
        lines += [f"left = {load.format(LEFT)}", f"done = {load.format(DONE)}"]
    each = BINS // PICKING
    bins = _digit_bin_prefix_text(PICKING, f"load_u64_1x1(a0, table * {BINS} + i64(x * {each} + {{}}), i32(0), i32(0))")
    lines += [*bins, *_advance_to_digit_bin_text(step, PICKING, places, store)]
    if not first and places:  # nothing was counted
        kept = [store.format(w, v) for w, v in ((KEY, "key"), (PLACE, "place"), (LEFT, "left"), (DONE, "done"))]
        lines += ["if done > 0 and x == 0:", *indent_radix_kernel_text(kept)]
    return _radix_select_function_text(", ".join(["a0", "a1", "a2", *(numbers if first else [])]), lines, PICKING)


def radix_select_row_text(dtype: DType, steps: Sequence[SelectDigit], many: int, down: bool | None) -> str:
    """A block finds all digits of a row. a0: values, a1: what is known in the end. n0: length of a row, n1, ...: the
    places in the order."""
    places = down is not None
    sload, sstore = "sload_u64_1(state, {})", "sstore_u64_1(state, {}, {})"
    each = BINS // THREADS
    lines = [
        *HEAD[:3],
        "row = i64(bid_x())",
        "at = i64(0)",
        f"counts = shared_u32_{many * BINS}()",
        f"state = shared_u64_{many * WORDS}()",
        f"sums = shared_u64_{THREADS // 32}()",
        "if x == 0:",
    ]
    for w in range(many):
        values = ((KEY, "u64(0)"), (PLACE, "u64(0)"), (LEFT, f"u64_from_i64(n{1 + w})"), (DONE, "u64(0)"))
        lines += indent_radix_kernel_text([sstore.format(w * WORDS + word, value) for word, value in values])
    for number, step in enumerate(steps):
        first = number == 0
        lines += [*_zero_digit_counters_text(BINS if first else many * BINS), "barrier()", "stop = n0"]
        lines += [] if first else _known_radix_digits_text(sload, dtype, many)
        lines += [*_tally_radix_digits_text(dtype, step, first, many, down), "barrier()"]
        for w in range(many):
            base = 0 if first else w * BINS
            for name, word in (("key", KEY), ("place", PLACE), ("left", LEFT)):
                lines.append(f"{name} = {sload.format(w * WORDS + word)}")
            lines += _digit_bin_prefix_text(THREADS, f"u64_from_u32(sload_u32_1(counts, x * {each} + {base} + {{}}))")
            lines += _advance_to_digit_bin_text(step, THREADS, places, sstore.replace("{}", f"{w * WORDS} + {{}}", 1))
            lines.append("barrier()")
    lines += [
        f"if x < {many * WORDS}:",
        f"    store_u64_1x1(a1, row * {many * WORDS} + i64(x), i32(0), i32(0), sload_u64_1(state, x))",
    ]
    return _radix_select_function_text(", ".join(["a0", "a1", "n0", *(f"n{1 + w}" for w in range(many))]), lines)


def radix_selected_values_text(dtype: DType) -> str:
    """a0: what is known of all digits, a1: the values. n0: how many."""
    k = SHORT_NAMES[radix_key_dtype(dtype)]
    word = f"load_u64_1x1(a0, j * {WORDS} + {KEY}, i32(0), i32(0))"
    lines = [
        f"j = i64(bid_x()) * {THREADS} + i64(tid_x())",
        "if j < n0:",
        f"    q = {word if k == 'u64' else f'{k}_from_u64({word})'}",
        *indent_radix_kernel_text(decode_radix_key_text("q", dtype)),
        f"    store_{SHORT_NAMES[dtype]}_1x1(a1, j, i32(0), i32(0), q)",
    ]
    return _radix_select_function_text("a0, a1, n0", lines)


def radix_select_places_text(dtype: DType, down: bool) -> str:
    """The places of the first k of each row, in any order. a0: values, a1: what is known of the last of them, a2: u32
    places, a3: how many of each row there are, 0 before. n0: length of a row, n1: tiles of a row, n2: k."""
    t, k = SHORT_NAMES[dtype], SHORT_NAMES[radix_key_dtype(dtype)]
    word = f"load_u64_1x1(a1, row * {WORDS} + {{}}, i32(0), i32(0))"
    key = word.format(KEY)
    lines = [
        "x = tid_x()",
        "many = shared_u32_1()",
        "base_ = shared_u64_1()",
        "row = udiv(i64(bid_x()), n1)",
        f"at = urem(i64(bid_x()), n1) * {THREADS * EACH} + i64(x)",
        f"v = load_{t}_1x{EACH}_if(a0, row * n0 + at, i64({THREADS}), i32(0), "
        f"below_1x{EACH}(at, i64({THREADS}), i32(0), n0))",
        f"key = {key if k == 'u64' else f'{k}_from_u64({key})'}",
        f"place = i64_from_u64({word.format(PLACE)})",
        "if x == 0:",
        "    sstore_u32_1(many, i32(0), u32(0))",
        "barrier()",
        *encode_radix_key_text("v", dtype, True, down),
    ]
    for i in range(EACH):
        here = f"at + {i * THREADS}"
        lines += [
            f"t{i} = {here} < n0 and (v[{i}] < key or (v[{i}] == key and {here} <= place))",
            f"r{i} = u32(0)",
            f"if t{i}:",
            f"    r{i} = sadd_u32(many, i32(0), u32(1))",
        ]
    lines += [
        "barrier()",
        "if x == 0:",
        "    found = sload_u32_1(many, i32(0))",
        "    base = gadd_u64(a3, row, u64_from_u32(found)) if found > 0 else u64(0)",
        "    sstore_u64_1(base_, i32(0), base)",
        "barrier()",
        "to = row * n2 + i64_from_u64(sload_u64_1(base_, i32(0)))",
    ]
    for i in range(EACH):
        place = f"to + i64_from_u32(r{i})"
        lines += [f"if t{i}:", f"    store_u32_1x1(a2, {place}, i32(0), i32(0), u32_from_i64(at + {i * THREADS}))"]
    return _radix_select_function_text("a0, a1, a2, a3, n0, n1, n2", lines)


def radix_selected_keys_text(dtype: DType, down: bool) -> str:
    """a0: values, a1: u32 places, a2: their keys. n0: how many, n1: length of a row, n2: places of a row."""
    t, k = SHORT_NAMES[dtype], SHORT_NAMES[radix_key_dtype(dtype)]
    lines = [
        f"j = i64(bid_x()) * {THREADS} + i64(tid_x())",
        "if j < n0:",
        "    p = i64_from_u32(load_u32_1x1(a1, j, i32(0), i32(0)))",
        f"    q = load_{t}_1x1(a0, udiv(j, n2) * n1 + p, i32(0), i32(0))",
        *indent_radix_kernel_text(encode_radix_key_text("q", dtype, True, down)),
        f"    store_{k}_1x1(a2, j, i32(0), i32(0), q)",
    ]
    return _radix_select_function_text("a0, a1, a2, n0, n1, n2", lines)


def order_selected_places_text() -> str:
    """a0: u32 places, a1: int64 order of them, a2: the places in that order. n0: how many, n1: of a row."""
    lines = [
        f"j = i64(bid_x()) * {THREADS} + i64(tid_x())",
        "if j < n0:",
        "    o = load_i64_1x1(a1, j, i32(0), i32(0))",
        "    p = load_u32_1x1(a0, udiv(j, n1) * n1 + o, i32(0), i32(0))",
        "    store_i64_1x1(a2, j, i32(0), i32(0), i64_from_u32(p))",
    ]
    return _radix_select_function_text("a0, a1, a2, n0, n1", lines)
