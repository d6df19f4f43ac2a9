"""The kernels of radix sorts. Values as keys that order like them, ranks of keys by one digit, and the passes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ....core.types import BOOL, DTYPES, DType, dtype_kind
from .kernel_language import (
    DtypeWords,
    Word,
    and_,
    barrier,
    bid_x,
    eq,
    gadd_i64,
    gadd_u64,
    ge,
    gt,
    least,
    match_8,
    not_,
    or_,
    peek_u64,
    popcount,
    post_u64,
    sadd_u32,
    select,
    shl,
    shr,
    shuffle_idx,
    shuffle_up,
    sub,
    tid_x,
    udiv,
    urem,
    xor,
)

I32, I64, U8, U32, U64 = (DtypeWords(DTYPES[name]) for name in ("i32", "i64", "u8", "u32", "u64"))
add = Word("add")
DIGITS = 256
THREADS = 256
WARPS = THREADS // 32
# Keys a thread has, by bytes of a key: what fits shared memory with places beside it.
EACH = {1: 16, 2: 16, 4: 16, 8: 8}
TOTAL, THROUGH = 1 << 60, 2 << 60  # what a word says above its lowest 60 bits; 0: nothing yet
LOW = 2**60 - 1
AHEAD = 8  # tiles that a tile asks at a time
INFINITIES = {"f16": 0x7C00, "bf16": 0x7F80, "f32": 0x7F800000, "f64": 0x7FF0000000000000}
NANS = {"f16": 0x7E00, "bf16": 0x7FC0, "f32": 0x7FC00000, "f64": 0x7FF8000000000000}


def radix_key_dtype(dtype: DType) -> DType:
    return np.dtype(f"u{dtype.itemsize}")


class RadixKeys:
    """Keys, unsigned integers, that order as values of a dtype do. places: -0 and 0 are one key. down: the greatest
    value is the least key."""

    def __init__(self, dtype: DType, places: bool = False, down: bool = False) -> None:
        self.values, self.words = DtypeWords(dtype), DtypeWords(radix_key_dtype(dtype))
        self.kind = "b" if dtype == BOOL else dtype_kind(dtype)
        self.places, self.down = places, down
        self.nbytes = dtype.itemsize
        self.top, self.last = 1 << (8 * dtype.itemsize - 1), 2 ** (8 * dtype.itemsize) - 1
        self.infinity, self.nan = INFINITIES.get(self.values.name, 0), NANS.get(self.values.name, 0)

    def encode(self, x):
        """The key of a value."""
        return not_(self.encode_up(x)) if self.down else self.encode_up(x)

    def encode_up(self, x):
        if self.kind == "u":
            return x
        if self.kind == "b":
            return self.values.convert(self.words, x)
        if self.kind == "i":
            return xor(self.values.bits(self.words, x), self.words(self.top))
        key = self.values.bits(self.words, x)
        size = and_(key, self.words(self.top - 1))
        if self.places:
            key = select(eq(size, self.words(0)), self.words(0), key)
        key = select(ge(key, self.words(self.top)), not_(key), or_(key, self.words(self.top)))
        return select(gt(size, self.words(self.infinity)), self.words(self.last), key)

    def decode(self, key):
        """The value of a key; every NaN is the same one."""
        if self.kind == "u":
            return key
        if self.kind == "b":
            return self.words.convert(self.values, key)
        if self.kind == "i":
            return self.words.bits(self.values, xor(key, self.words(self.top)))
        isnan = eq(key, self.words(self.last))
        value = select(ge(key, self.words(self.top)), and_(key, self.words(self.top - 1)), not_(key))
        value = select(isnan, self.words(self.nan), value)
        return self.words.bits(self.values, value)

    def load(self, first: bool, pointer, place, inside):
        """A value (first) or a key, as a key; the greatest where there is none."""
        if first:
            value = self.values.load_if(pointer, place, inside)
            key = self.encode(value)
        else:
            key = self.words.load_if(pointer, place, inside)
        return select(inside, key, self.words(self.last))

    def digit(self, key, shift):
        low = shr(key, shift) if self.nbytes > 1 else key
        return self.words.convert(U32, and_(low, self.words(255)))


def lanes_before(lane):
    """The lanes of a warp before this one, as bits."""
    return sub(shl(U32(1), U32(lane)), U32(1))


def rank_digits_in_warp(keys, shift, counts, warp, before, k, digits, ranks) -> None:
    """The digit of each key, and its rank among those of its warp with this digit. counts holds, in the end, how many
    each warp has; before, it must be 0."""
    for i in range(len(k)):
        digits[i] = keys.digit(k[i], shift)
        peers = match_8(digits[i])
        ranks[i] = U8.convert(I32, popcount(and_(peers, before)))
        leader = U8.convert(I32, popcount(sub(and_(peers, sub(U32(0), peers)), U32(1))))
        many = U32(0)
        if ranks[i] == 0:
            many = sadd_u32(counts, warp * DIGITS + U32.convert(I32, digits[i]), U8.convert(U32, popcount(peers)))
        many = shuffle_idx(many, leader)
        ranks[i] = ranks[i] + U32.convert(I32, many)


def add_up_counts_of_warps(counts, x):
    """Thread x has digit x: counts become the numbers of the warps before; the keys of the tile with this digit."""
    barrier()
    mine = U32(0)
    w = 0
    while w < WARPS:
        many = U32.load_shared(counts, w * DIGITS + x)
        U32.store_shared(counts, w * DIGITS + x, mine)
        mine = add(mine, many)
        w += 1
    return mine


def add_up_before_thread(words: DtypeWords, value, sums, lane, warp):
    """The sum of the values of the threads before this one. Ends with a barrier before sums is read."""
    run = value
    for offset in (1, 2, 4, 8, 16):
        o = shuffle_up(run, offset)
        run = select(lane >= offset, add(o, run), run)
    if lane == 31:
        words.store_shared(sums, warp, run)
    barrier()
    start = sub(run, value)
    w = 0
    while w < warp:
        start = add(start, words.load_shared(sums, w))
        w += 1
    return start


def radix_digit_histogram_kernel(keys: RadixKeys, passes: int) -> Callable[..., None]:
    """How often each digit comes. counts: by (row, pass, digit), 0 before. Of a row: its length, a block's stretch of
    it, its stretches."""

    def count_digits(values, totals, length, stretch, stretches):
        x = tid_x()
        counts = U32.shared(passes * DIGITS)
        for p in range(passes):
            U32.store_shared(counts, x + p * DIGITS, U32(0))
        barrier()
        row = udiv(I64(bid_x()), stretches)
        at = urem(I64(bid_x()), stretches) * stretch
        stop = least(at + stretch, length)
        j = at + I64(x)
        while j < stop:
            key = keys.encode(keys.values.load(values, row * length + j))
            for p in range(passes):
                digit = keys.digit(key, keys.words(8 * p))
                sadd_u32(counts, U32.convert(I32, digit) + p * DIGITS, U32(1))
            j += THREADS
        barrier()
        for p in range(passes):
            many = U32.load_shared(counts, x + p * DIGITS)
            if many > 0:
                gadd_u64(totals, (row * passes + p) * DIGITS + I64(x), U32.convert(U64, many))

    return count_digits


def radix_digit_starts_kernel() -> Callable[..., None]:
    """Of (row, pass, digit): counts become where the keys of each digit begin."""

    def begin_digits(counts):
        x = tid_x()
        lane = urem(x, I32(32))
        warp = udiv(x, I32(32))
        sums = U64.shared(WARPS)
        own = U64.load(counts, I64(bid_x()) * DIGITS + I64(x))
        start = add_up_before_thread(U64, own, sums, lane, warp)
        U64.store(counts, I64(bid_x()) * DIGITS + I64(x), start)

    return begin_digits


def keys_of_tiles_before(said, tile, word, mine):
    """How many keys with this thread's digit the tiles of the row before this one have: what they said, and what has
    been added up by one of them. This tile's are told both ways. AHEAD of the tiles are asked at a time, in turn."""
    post_u64(said, word, or_(U32.convert(U64, mine), U64(TOTAL)))
    through = U64(0)
    heard = [None] * AHEAD
    j = tile - 1
    while j >= 0:
        for k in range(AHEAD):
            heard[k] = peek_u64(said, word - (tile - j + least(I64(k), j)) * DIGITS)
        asked = j
        for k in range(AHEAD):
            if j >= 0 and j == asked - k and heard[k] >= U64(TOTAL):
                through = add(through, and_(heard[k], U64(LOW)))
                j = -1 if heard[k] >= U64(THROUGH) else j - 1
    post_u64(said, word, or_(add(through, U32.convert(U64, mine)), U64(THROUGH)))
    return through


def place_in_tile(starts, counts, warp, digit, rank):
    """Where in the order of its tile a key is."""
    place = rank + U32.convert(I32, U32.load_shared(starts, U32.convert(I32, digit)))
    return place + U32.convert(I32, U32.load_shared(counts, warp * DIGITS + U32.convert(I32, digit)))


def radix_sort_pass_kernel(
    keys: RadixKeys, first: bool, last: bool, with_places: bool, with_keys: bool
) -> Callable[..., None]:
    """Sort by one digit. given: values (first) or keys, places: of these before, sorted: values (last) or keys,
    order: places after, begins: where (row, pass, digit) begin, said: words, 0 before: a ticket, and of each tile and
    digit how many keys. Of a row: its length, its tiles; number: of the pass. with_keys: sorted is wanted."""
    each, words, out = EACH[keys.nbytes], keys.words, keys.values if last else keys.words
    tile_length, moved = THREADS * each, DtypeWords(DTYPES["i64" if last else "u32"])

    def sort_pass(given, places, sorted_, order, begins, said, length, tiles, number, passes):
        x = tid_x()
        lane = urem(x, I32(32))
        warp = udiv(x, I32(32))
        before = lanes_before(lane)
        drawn = I64.shared(1)
        counts = U32.shared(WARPS * DIGITS)
        starts = U32.shared(DIGITS)
        goals = I64.shared(DIGITS)
        sums = U32.shared(WARPS)
        held = words.shared(tile_length)
        for w in range(WARPS):
            U32.store_shared(counts, x + w * DIGITS, U32(0))
        if x == 0:
            I64.store_shared(drawn, I32(0), gadd_i64(said, I32(0), I64(1)))
        barrier()
        ticket = I64.load_shared(drawn, I32(0))
        row = udiv(ticket, tiles)
        tile = urem(ticket, tiles)
        at = tile * tile_length + I64(warp * (32 * each) + lane)
        base = row * length
        shift = I64.convert(words, number * 8)
        k = [keys.load(first, given, base + at + 32 * i, at + 32 * i < length) for i in range(each)]
        d, r = [None] * each, [None] * each
        rank_digits_in_warp(keys, shift, counts, warp, before, k, d, r)
        mine = add_up_counts_of_warps(counts, x)
        word = 1 + ticket * DIGITS + I64(x)
        start = add_up_before_thread(U32, mine, sums, lane, warp)
        U32.store_shared(starts, x, start)
        through = keys_of_tiles_before(said, tile, word, mine)
        goal = U64.load(begins, (row * passes + number) * DIGITS + I64(x))
        goal = U64.convert(I64, add(goal, through)) - U32.convert(I64, start)
        I64.store_shared(goals, x, goal)
        barrier()
        p = [None] * each
        for i in range(each):
            p[i] = place_in_tile(starts, counts, warp, d[i], r[i])
            words.store_shared(held, p[i], k[i])
        barrier()
        left = length - tile * tile_length
        g = [None] * each
        for i in range(each):
            own = words.load_shared(held, x + i * THREADS)
            digit = keys.digit(own, shift)
            g[i] = base + I64.load_shared(goals, U32.convert(I32, digit)) + I64(x + i * THREADS)
            if with_keys:
                value = keys.decode(own) if last else own
                out.store_if(sorted_, g[i], value, I64(x + i * THREADS) < left)
        if with_places:
            spots = U32.shared(tile_length)
            for i in range(each):
                if first:
                    spot = I64.convert(U32, at + 32 * i)
                else:
                    spot = U32.load_if(places, base + at + 32 * i, at + 32 * i < length)
                U32.store_shared(spots, p[i], spot)
            barrier()
            for i in range(each):
                spot = U32.convert(moved, U32.load_shared(spots, x + i * THREADS))
                moved.store_if(order, g[i], spot, I64(x + i * THREADS) < left)

    return sort_pass


def sort_row_in_block(keys: RadixKeys, each: int, with_places: bool, passes: int, values, length):
    """The keys of a row in order and, if wanted, where they come from, each thread's; where its first one is; and the
    shared memory that has them all."""
    words = keys.words
    x = tid_x()
    lane = urem(x, I32(32))
    warp = udiv(x, I32(32))
    before = lanes_before(lane)
    counts = U32.shared(WARPS * DIGITS)
    starts = U32.shared(DIGITS)
    sums = U32.shared(WARPS)
    held = words.shared(THREADS * each)
    if with_places:
        spots = U32.shared(THREADS * each)
    own = warp * (32 * each) + lane
    at = I64(own)
    base = I64(bid_x()) * length
    k = [keys.load(True, values, base + at + 32 * i, at + 32 * i < length) for i in range(each)]
    s = [I64.convert(U32, at + 32 * i) for i in range(each if with_places else 0)]
    d, r, p = [None] * each, [None] * each, [None] * each
    turn = 0
    while turn < passes:
        for w in range(WARPS):
            U32.store_shared(counts, x + w * DIGITS, U32(0))
        barrier()
        shift = I64.convert(words, I64(turn) * 8)
        rank_digits_in_warp(keys, shift, counts, warp, before, k, d, r)
        mine = add_up_counts_of_warps(counts, x)
        start = add_up_before_thread(U32, mine, sums, lane, warp)
        U32.store_shared(starts, x, start)
        barrier()
        for i in range(each):
            p[i] = place_in_tile(starts, counts, warp, d[i], r[i])
            words.store_shared(held, p[i], k[i])
            if with_places:
                U32.store_shared(spots, p[i], s[i])
        barrier()
        for i in range(each):
            k[i] = words.load_shared(held, own + 32 * i)
            if with_places:
                s[i] = U32.load_shared(spots, own + 32 * i)
        turn += 1
    return k, s, at, held


def radix_sort_block_kernel(
    keys: RadixKeys, each: int, with_values: bool, with_places: bool, passes: int
) -> Callable[..., None]:
    """A block sorts a row, all passes in shared memory. order: where the sorted values come from. Of each row: its
    length, and how many are written."""

    def sort_row(values, sorted_, order, length, written):
        k, s, at, _ = sort_row_in_block(keys, each, with_places, passes, values, length)
        for i in range(each):
            goal = I64(bid_x()) * written + at + 32 * i
            if with_values:
                keys.values.store_if(sorted_, goal, keys.decode(k[i]), at + 32 * i < written)
            if with_places:
                I64.store_if(order, goal, U32.convert(I64, s[i]), at + 32 * i < written)

    return sort_row


def radix_pick_block_kernel(keys: RadixKeys, each: int, passes: int) -> Callable[..., None]:
    """A block sorts a row, and writes what is in these places of the order."""

    def pick(values, picked, length, *places):
        _, _, _, held = sort_row_in_block(keys, each, False, passes, values, length)
        for j in range(len(places)):
            if tid_x() == j:
                value = keys.decode(keys.words.load_shared(held, places[j]))
                keys.values.store(picked, I64(bid_x()) * len(places) + j, value)

    return pick
