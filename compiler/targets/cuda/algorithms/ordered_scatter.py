"""Values combined by index in the order of their indices on a GPU. The order is found once for all that have these
indices; the same bits come out in every run.

A place takes its values one after another, as NumPy does, unless the part of PART values in the order after that in
which it begins is all its own: then that of its first part, and each part is combined by a thread of its own, and these
parts in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ....core.types import INT64, SHORT_NAMES, DType
from ....layout.operands import StridedBufferArray
from .launches import GpuAlgorithmBuilder, cuda_conversion_text
from .privatized_scatter import gpu_scatter_op_before_place
from .scatter import COMBINE, THREADS
from .sort import gpu_radix_sort_long_rows, gpu_sort_rows, keys_of_thread_in_block_sort

AHEAD = 8  # values of a place whose loads are under way together
HELD = 2048  # parts that one block combines in its shared memory
Text = Callable[[str], str]


def lower_gpu_places_in_order(
    calls: GpuAlgorithmBuilder,
    reads: Sequence[StridedBufferArray],
    target: StridedBufferArray,
    options: Mapping[str, Any],
) -> None:
    """How many parts of the order have one place; the places in order; where each comes from; and, if there is room for
    it, where in the order each place begins, and the end."""
    indices, result = calls.contiguous(reads[0]), calls.result(target)
    length, places, part = indices.shape[0], options["length"], options["part"]
    numbers, own = (calls.temporary((length,), "u4") for _ in range(2))
    parts, keys, order = result.first(1), result.span(1, length), result.span(1 + length, length)
    text, written = scatter_index_to_u32_text(indices.dtype), [numbers, own, parts]
    pointers, blocks = [indices, *written], -(-length // THREADS)
    calls.add_launch("numbers", text, [indices], written, pointers, [length, places], blocks)
    passes = -(-places.bit_length() // 8)
    if keys_of_thread_in_block_sort(length, numbers.dtype):
        wide = calls.temporary((length,), "i8")
        gpu_sort_rows(calls, numbers, keys, wide, passes=passes)
        calls.add_conversion(wide, order)
    else:
        gpu_radix_sort_long_rows(calls, numbers, keys, order, length, 1, False, passes, own)
    starts = options["starts"]
    touched = [parts, *([result.span(1 + 2 * length, places + 1)] if starts else [])]
    blocks = -(-max(length, places + 1 if starts else 0) // THREADS)
    text = cuda_places_in_order_text(part, starts)
    calls.add_launch("starts", text, [keys, parts], touched, [keys, result], [length, places], blocks)
    calls.deliver_result(result, target)


def scatter_index_to_u32_text(dtype: DType) -> str:
    """a0: indices, a1: u32 the same; n1 for those that are out of range; a2: u32 their numbers; a3: a word that becomes
    0. n0: how many indices, n1: how many places."""
    t = SHORT_NAMES[dtype]
    return f"""THREADS = {THREADS}
def NAME(a0, a1, a2, a3, n0, n1):
    j = i64(bid_x()) * {THREADS} + i64(tid_x())
    if j < n0:
        given = load_{t}_1x1(a0, j, i32(0), i32(0))
        k = {cuda_conversion_text(dtype, INT64)("given")}
        k = k if k >= 0 and k < n1 else n1
        store_u32_1x1(a1, j, i32(0), i32(0), u32_from_i64(k))
        store_u32_1x1(a2, j, i32(0), i32(0), u32_from_i64(j))
        if j == 0:
            store_u32_1x1(a3, j, i32(0), i32(0), u32(0))
"""


def cuda_places_in_order_text(part: int, starts: bool) -> str:
    """a0: sorted u32 places, a1: how many whole parts are of one place; if `starts`, where each place starts too. n0:
    how many values, n1: places."""
    lines = [
        f"j = i64(bid_x()) * {THREADS} + i64(tid_x())",
        f"if urem(j, i64({part})) == 0 and j + {part} <= n0:",
        "    k = load_u32_1x1(a0, j, i32(0), i32(0))",
        f"    if k < n1 and load_u32_1x1(a0, j + {part - 1}, i32(0), i32(0)) == k:",
        "        gadd_u32(a1, i64(0), u32(1))",
    ]
    if starts:
        lines += [
            "if j <= n1:",  # the first of the order that is no lower place
            "    low = i64(0)",
            "    high = n0",
            "    while low < high:",
            "        middle = udiv(low + high, i64(2))",
            "        lower = i64_from_u32(load_u32_1x1(a0, middle, i32(0), i32(0))) < j",
            "        low = middle + 1 if lower else low",
            "        high = high if lower else middle",
            "    store_u32_1x1(a1, 1 + 2 * n0 + j, i32(0), i32(0), u32_from_i64(low))",
        ]
    return "\n".join([f"THREADS = {THREADS}", "def NAME(a0, a1, n0, n1):", *("    " + x for x in lines), ""])


def lower_gpu_combine_in_order(
    calls: GpuAlgorithmBuilder,
    reads: Sequence[StridedBufferArray],
    target: StridedBufferArray,
    options: Mapping[str, Any],
) -> None:
    """`a` after `ufunc.at(a, places, table[which])`, of what `places_in_order` says of the places; `which` in their
    order. The table may be of another kind than `a`."""
    base, order, table, which = reads[0], *map(calls.contiguous, reads[1:])
    op, part, result = COMBINE[options["ufunc"]], options["part"], calls.result(target)
    length, places = which.shape[0], result.shape[0]
    chunks = -(-length // part) if length > part else 0
    keys, totals = calls.temporary((max(chunks, 1),), "u4"), calls.temporary((max(chunks, 1),), result.dtype)
    kinds = _CombinedKinds(result.dtype, table.dtype, op, part)
    if order.shape[0] > 1 + 2 * length:
        base, blocks = calls.contiguous(base), -(-places // THREADS) + -(-chunks // THREADS)
        text = cuda_combine_by_place_text(kinds)
    else:
        calls.add_copy(base, result)
        base, blocks, text = result, -(-length // THREADS), cuda_combine_by_element_text(kinds)
    pointers = [order, table, which, base, result, keys, totals]
    numbers = [length, places, chunks]
    calls.add_launch("combine_at", text, [order, table, which, base], [result, keys, totals], pointers, numbers, blocks)
    kinds = _CombinedKinds(result.dtype, result.dtype, op, part)
    while chunks:
        length, chunks = chunks, -(-chunks // part) if chunks > HELD * part else 0
        after = calls.temporary((max(chunks, 1),), "u4"), calls.temporary((max(chunks, 1),), result.dtype)
        text = cuda_combine_parts_text(kinds, chunks > 0)
        blocks = -(-chunks // THREADS) if chunks else 1
        calls.add_launch(
            "combine_parts",
            text,
            [order.first(1), keys, totals, result],
            [result, *(after if chunks else ())],
            [order, keys, totals, result, *after],
            [length, places],
            blocks,
        )
        keys, totals = after
    calls.deliver_result(result, target)


class _CombinedKinds:
    """How values of one dtype are combined with those of another, as text. part: how many one after another."""

    def __init__(self, dtype: DType, values: DType, op: str, part: int) -> None:
        self.t, self.given, self.op, self.part = SHORT_NAMES[dtype], SHORT_NAMES[values], op, part
        self.before = gpu_scatter_op_before_place(op)
        self.own = cuda_conversion_text(values, dtype)

    def combined(self, op: str, into: str, value: str) -> str:
        if self.t in ("f16", "bf16"):
            return f"{self.t}_from_f32({op}(f32_from_{self.t}({into}), f32_from_{self.t}({value})))"
        return f"{op}({into}, {value})"

    def load(self, pointer: str, place: str, inside: str = "") -> str:
        """A value, as one of the dtype that it is combined with."""
        if inside:
            return self.own(f"load_{self.given}_1x1_if({pointer}, {place}, i32(0), i32(0), {inside})")
        return self.own(f"load_{self.given}_1x1({pointer}, {place}, i32(0), i32(0))")

    def first_part(self, key: Text, value: Text, length: str) -> list[str]:
        """r becomes, of r and of the values of place k from j on, what is combined one after another."""
        return [
            f"stop = (udiv(j, i64({self.part})) + 1) * {self.part}",
            f"long = {key(f'stop + {self.part - 1}')} == k if stop + {self.part} <= {length} else False",
            f"stop = stop if long else {length}",
            f"v = {value('j')}",
            "again = k",
            "while again == k:",
            "    w = v",
            "    j += 1",  # what the next turn needs is on its way while this one waits for its value
            f"    v = {value('j')} if j < {length} else w",
            f"    again = {key('j')} if j < stop else n1",
            f"    r = {self.combined(self.op, 'r', 'w')}",
        ]

    def next_part(self, key: Text, value: Text, length: str) -> list[str]:
        """own, total become the place k and what its values from j on have, to the end of the part, where it has more
        parts; else they stay. j is the part's first."""
        part = self.part
        return [
            f"next_ = least(j + {part}, {length})",
            f"whole = {key(f'j + {part - 1}')} == k if j + {part} <= {length} else False",
            f"long = whole or ({key(f'j - {part + 1}')} == k if j > {part} else False)",
            "if long:",
            "    own = k",
            "if whole:",
            f"    total = {value('j')}",
            *(f"    v{i} = {value(f'j + {i}')}" for i in range(1, 8)),
            *(f"    total = {self.combined(self.before, 'total', f'v{i}')}" for i in range(1, 8)),
            "    j += 8",
            "    while j < next_:",
            *(f"        v{i} = {value(f'j + {i}')}" for i in range(8)),
            *(f"        total = {self.combined(self.before, 'total', f'v{i}')}" for i in range(8)),
            "        j += 8",
            "elif long:",
            f"    total = {value('j')}",
            "    j += 1",
            f"    while ({key('j')} if j < next_ else n1) == k:",
            f"        v0 = {value('j')}",
            f"        total = {self.combined(self.before, 'total', 'v0')}",
            "        j += 1",
        ]

    def key_in_order(self, place: str) -> str:
        return f"i64_from_u32(load_u32_1x1(a0, 1 + {place}, i32(0), i32(0)))"

    def value_in_order(self, place: str) -> str:
        return self.load("a1", f"i64_from_u32(load_u32_1x1(a2, {place}, i32(0), i32(0)))")

    def stored_part(self, number: str) -> list[str]:
        """Part `number` of the order has what is in own and total."""
        return [
            f"store_u32_1x1(a5, {number}, i32(0), i32(0), u32_from_i64(own))",
            f"store_{self.t}_1x1(a6, {number}, i32(0), i32(0), total)",
        ]

    def part_in_order(self) -> list[str]:
        """Part c of the order, of the place that the part before ends with."""
        return [
            f"j = c * {self.part}",
            "own = n1",
            f"total = {self.load('a1', 'i64(0)')}",
            f"k = {self.key_in_order('j')}",
            f"if k < n1 and c > 0 and {self.key_in_order('j - 1')} == k:",
            *_indented(self.next_part(self.key_in_order, self.value_in_order, "n0")),
            *self.stored_part("c"),
        ]


def _indented(lines: Sequence[str], depth: int = 1) -> list[str]:
    return ["    " * depth + line for line in lines]


_COMBINE_HEAD = "def NAME(a0, a1, a2, a3, a4, a5, a6, n0, n1, n2):"


def cuda_combine_by_place_text(kinds: _CombinedKinds) -> str:
    """A thread for each place, then one for each part. a0: what `places_in_order` gives, a1: a table, a2: which
    of it in order, a3: what it is combined with, a4: the result, a5, a6: of each part the place that it goes on with
    and what it has for it. n0: how many values, n1: how many places, n2: parts."""
    lines = [
        "b = i64(bid_x())",
        f"blocks = udiv(n1 + {THREADS - 1}, i64({THREADS}))",
        f"p = b * {THREADS} + i64(tid_x())",
        "if p < n1:",
        "    j = i64_from_u32(load_u32_1x1(a0, 1 + 2 * n0 + p, i32(0), i32(0)))",
        "    end = i64_from_u32(load_u32_1x1(a0, 2 + 2 * n0 + p, i32(0), i32(0)))",
        f"    stop = (udiv(j, i64({kinds.part})) + 1) * {kinds.part}",
        f"    end = stop if end >= stop + {kinds.part} else end",
        f"    r = load_{kinds.t}_1x1(a3, p, i32(0), i32(0))",
        "    while j < end:",
    ]
    for i in range(AHEAD):
        lines.append(f"        w{i} = load_u32_1x1_if(a2, j + {i}, i32(0), i32(0), j + {i} < end)")
    for i in range(AHEAD):
        lines.append(f"        v{i} = {kinds.load('a1', f'i64_from_u32(w{i})', f'j + {i} < end')}")
    for i in range(AHEAD):
        lines.append(f"        r = select(j + {i} < end, {kinds.combined(kinds.op, 'r', f'v{i}')}, r)")
    lines += [
        f"        j += {AHEAD}",
        f"    store_{kinds.t}_1x1(a4, p, i32(0), i32(0), r)",
        "if b >= blocks and load_u32_1x1(a0, i64(0), i32(0), i32(0)) > 0:",
        f"    c = (b - blocks) * {THREADS} + i64(tid_x())",
        "    if c < n2:",
        *_indented(kinds.part_in_order(), 2),
    ]
    return "\n".join([f"THREADS = {THREADS}", _COMBINE_HEAD, *_indented(lines), ""])


def cuda_combine_by_element_text(kinds: _CombinedKinds) -> str:
    """A thread for each value, of which those work that are the first of a place or of a part. As
    `cuda_combine_by_place_text`, where a3 and a4 are one array."""
    lines = [
        f"j = i64(bid_x()) * {THREADS} + i64(tid_x())",
        "if j < n0:",
        f"    c = udiv(j, i64({kinds.part}))",
        f"    first = c * {kinds.part} == j",
        f"    k = {kinds.key_in_order('j')}",
        f"    before = {kinds.key_in_order('j - 1')} if j > 0 else n1",
        "    if k < n1 and before != k:",
        f"        r = load_{kinds.t}_1x1(a4, k, i32(0), i32(0))",
        *_indented(kinds.first_part(kinds.key_in_order, kinds.value_in_order, "n0"), 2),
        f"        store_{kinds.t}_1x1(a4, k, i32(0), i32(0), r)",
        "    if first and n2 > 0 and load_u32_1x1(a0, i64(0), i32(0), i32(0)) > 0:",
        *_indented(kinds.part_in_order(), 2),
    ]
    return "\n".join([f"THREADS = {THREADS}", _COMBINE_HEAD, *_indented(lines), ""])


def cuda_combine_parts_text(kinds: _CombinedKinds, on: bool) -> str:
    """What parts have is combined with their places, if there are any. a0: what `places_in_order` gives, a1: of each
    part its place, n1 for none, a2: what it has, a3: the result, a4, a5: the same of each PART of these parts (on; else
    a block does those in shared memory, and theirs). n0: parts, n1: places."""
    t, part = kinds.t, kinds.part

    def key(place: str) -> str:
        return f"i64_from_u32(load_u32_1x1(a1, {place}, i32(0), i32(0)))"

    def value(place: str) -> str:
        return kinds.load("a2", place)

    def held_key(place: str) -> str:
        return f"i64_from_u32(sload_u32_1(keys, first + {place}))"

    def held_value(place: str) -> str:
        return f"sload_{t}_1(totals, first + {place})"

    def combine_part(key: Text, value: Text, length: str) -> list[str]:
        """Part c of these parts."""
        return [
            f"j = c * {part}",
            f"end = least(j + {part}, {length})",
            f"before = {key('j - 1')} if j > 0 else n1",
            "own = n1",
            f"total = {value('i64(0)')}",
            "while j < end:",
            f"    k = {key('j')}",
            "    long = True",
            "    if k < n1 and before != k:",
            f"        r = load_{t}_1x1(a3, k, i32(0), i32(0))",
            *_indented(kinds.first_part(key, value, length), 2),
            f"        store_{t}_1x1(a3, k, i32(0), i32(0), r)",
            f"    elif k < n1 and urem(j, i64({part})) == 0:",
            *_indented(kinds.next_part(key, value, length), 2),
            "        j = j if long else j + 1",
            "    else:",
            "        j += 1",
            "    before = k",
        ]

    held = ["sstore_u32_1(keys, {0} + c, u32_from_i64(own))", f"sstore_{t}_1(totals, {{0}} + c, total)"]
    if on:
        lines = [
            f"c = i64(bid_x()) * {THREADS} + i64(tid_x())",
            f"if c * {part} < n0:",
            *_indented(combine_part(key, value, "n0")),
            "    store_u32_1x1(a4, c, i32(0), i32(0), u32_from_i64(own))",
            f"    store_{t}_1x1(a5, c, i32(0), i32(0), total)",
        ]
    else:
        lines = [
            f"keys = shared_u32_{2 * HELD}()",
            f"totals = shared_{t}_{2 * HELD}()",
            "c = i64(tid_x())",
            f"while c * {part} < n0:",
            *_indented(combine_part(key, value, "n0")),
            *(f"    {line.format('0')}" for line in held),
            f"    c += {THREADS}",
            "barrier()",
            "first = i64(0)",
            f"many = udiv(n0 + {part - 1}, i64({part})) if n0 > {part} else i64(0)",
            "while many > 0:",
            "    next_first = first + many",
            "    c = i64(tid_x())",
            f"    while c * {part} < many:",
            *_indented(combine_part(held_key, held_value, "many"), 2),
            *(f"        {line.format('next_first')}" for line in held),
            f"        c += {THREADS}",
            "    barrier()",
            "    first = next_first",
            f"    many = udiv(many + {part - 1}, i64({part})) if many > {part} else i64(0)",
        ]
    lines = ["if load_u32_1x1(a0, i64(0), i32(0), i32(0)) > 0:", *_indented(lines)]
    head = "def NAME(a0, a1, a2, a3, a4, a5, n0, n1):"
    return "\n".join([f"THREADS = {THREADS}", head, *_indented(lines), ""])
