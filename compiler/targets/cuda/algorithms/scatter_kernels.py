"""The kernels of scatters and counts whose order of work decides nothing."""

from __future__ import annotations

from collections.abc import Callable

from ....core.combiners import reduction_identity
from ....core.types import DType
from .kernel_language import (
    DtypeWords,
    Word,
    and_,
    ballot,
    barrier,
    bid_x,
    gadd_i64,
    gmax_i64,
    least,
    neg,
    not_,
    number_of_dtype,
    popcount,
    sadd_u32,
    select,
    shuffle_idx,
    sub,
    sync_warp,
    tid_x,
    udiv,
    urem,
)
from .radix_sort_kernels import I32, I64, U8, U32, lanes_before
from .scan_kernels import gpu_scan_accumulator_dtype

THREADS = 256
TOGETHER = 4  # times 32 values that a warp loads at a time
COUNTING = 512  # threads that count
MANY = 8192  # counters of a block, all copies together
EACH = 8  # elements a thread takes at a time


def last_places_kernel() -> Callable[..., None]:
    """Where each of `count` numbers below `end` comes last among the indices."""

    def keep_last(indices, places, count, end):
        j = I64(bid_x()) * THREADS + I64(tid_x())
        if j < count:
            k = I64.load(indices, j)
            if k >= 0 and k < end:
                gmax_i64(places, k, j)

    return keep_last


def atomic_scatter_kernel(indices: DType, values: DType, target: DType, op: str) -> Callable[..., None]:
    """Integers at `count` indices, which are the same in every order; those from `end` on have no place."""
    index, value, result = map(DtypeWords, (indices, values, target))
    atomic, turned = Word(f"g{'max' if op == 'maximum' else 'add'}_{result.name}"), op == "sub"

    def combine(indices, values, target, count, end):
        j = I64(bid_x()) * THREADS + I64(tid_x())
        if j < count:
            given = index.load(indices, j)
            k = index.convert(I64, given)
            v = value.load(values, j)
            if k >= 0 and k < end:
                x = value.convert(result, v)
                atomic(target, k, neg(x) if turned else x)

    return combine


def bincount_kernel(dtype: DType, copies: int) -> Callable[..., None]:
    """Counts of `bins` numbers, 0 before. copies: of the counters in a block, 0 for none."""
    words, shape = DtypeWords(dtype), f"1x{EACH}"
    below, load = Word(f"below_{shape}"), Word(f"load_{words.name}_{shape}_if")

    def count_numbers(numbers, totals, length, stretch, bins):
        x = tid_x()
        at = I64(bid_x()) * stretch
        stop = least(at + stretch, length)
        if copies:
            counts = U32.shared(MANY)
            mine = I64(urem(udiv(x, I32(32)), I32(copies))) * bins
            j = I64(x)
            while j < bins * copies:
                U32.store_shared(counts, j, U32(0))
                j += COUNTING
            barrier()
        j = at + I64(x)
        while j < stop:
            v = load(numbers, j, I64(COUNTING), I32(0), below(j, I64(COUNTING), I32(0), stop))
            for k in range(EACH):
                w = words.convert(I64, v[k])
                if w >= 0 and w < bins and j + k * COUNTING < stop:
                    if copies:
                        sadd_u32(counts, mine + w, U32(1))
                    else:
                        gadd_i64(totals, w, I64(1))
            j += EACH * COUNTING
        if copies:
            barrier()
            j = I64(x)
            while j < bins:
                many = add_up_copies(counts, copies, bins, j)
                if many > 0:
                    gadd_i64(totals, j, U32.convert(I64, many))
                j += COUNTING

    return count_numbers


def add_up_copies(counts, copies: int, bins, j):
    many = U32(0)
    c = I64(0)
    while c < copies:
        many = Word("add")(many, U32.load_shared(counts, c * bins + j))
        c += 1
    return many


def gpu_scatter_op_before_place(op: str) -> str:
    """How what is to be combined with a place is combined before."""
    return "add" if op == "sub" else op


def scatter_identity(run: DType, op: str):
    """What changes nothing, not even the sign of a zero."""
    if gpu_scatter_op_before_place(op) == "add":
        return number_of_dtype(run, -0.0 if run.kind == "f" else 0)
    return number_of_dtype(run, reduction_identity(op, run))


def privatized_scatter_kernel(
    indices: DType, values: DType, run: DType, op: str, warps: int, size: int
) -> Callable[..., None]:
    """What each block has, by (block, place). count: of values, end: of places, stretch: of a warp. size: places there
    is memory for, a power of two."""
    index, value, kept, join = *map(DtypeWords, (indices, values, run)), Word(gpu_scatter_op_before_place(op))
    match, identity = Word(f"match_{size.bit_length()}"), scatter_identity(run, op)

    def combine_lanes(lanes_before_this, table, mine, k, good, v):
        """Of lanes with one index the first combines their values in the order of the lanes, then with the place."""
        peers = match(I64.convert(U32, k) if good else U32(size))
        total = v
        rest = and_(peers, sub(peers, U32(1))) if good else U32(0)
        more = rest > 0
        while ballot(more) > 0:
            which = least(U8.convert(I32, popcount(and_(sub(rest, U32(1)), not_(rest)))), I32(31))
            w = shuffle_idx(v, which)
            total = select(more, join(total, w), total)
            rest = and_(rest, sub(rest, U32(1)))
            more = rest > 0
        if good and and_(peers, lanes_before_this) == 0:
            p = I64(mine) + k
            kept.store_shared(table, p, join(kept.load_shared(table, p), total))
        sync_warp()

    def combine(indices, values, partial, count, end, stretch):
        x = tid_x()
        lane = urem(x, I32(32))
        warp = udiv(x, I32(32))
        before = lanes_before(lane)
        table = kept.shared(warps * size)
        mine = warp * size
        p = I64(lane)
        while p < end:
            kept.store_shared(table, I64(mine) + p, kept(identity))
            p += 32
        sync_warp()
        at = (I64(bid_x()) * warps + I64(warp)) * stretch
        stop = least(at + stretch, count)
        j, k, v = [None] * TOGETHER, [None] * TOGETHER, [None] * TOGETHER
        while at < stop:
            for u in range(TOGETHER):
                j[u] = at + I64(lane) + 32 * u
                k[u] = index.load_if(indices, j[u], j[u] < stop)
                v[u] = value.load_if(values, j[u], j[u] < stop)
            for u in range(TOGETHER):
                place = index.convert(I64, k[u])
                good = j[u] < stop and place >= 0 and place < end
                combine_lanes(before, table, mine, place, good, value.convert(kept, v[u]))
            at += 32 * TOGETHER
        barrier()
        p = I64(x)
        while p < end:
            total = kept.load_shared(table, p)
            for w in range(1, warps):
                total = join(total, kept.load_shared(table, p + w * size))
            kept.store(partial, I64(bid_x()) * end + p, total)
            p += 32 * warps

    return combine


def join_private_copies_kernel(dtype: DType, op: str) -> Callable[..., None]:
    """What `blocks` blocks have, by (block, place), combined with places, 32 of them a block."""
    words, kept = DtypeWords(dtype), DtypeWords(gpu_scan_accumulator_dtype(dtype))
    join, into, identity = Word(gpu_scatter_op_before_place(op)), Word(op), scatter_identity(kept.dtype, op)

    def join_blocks(partial, places, blocks, end):
        x = tid_x()
        lane = urem(x, I32(32))
        warp = udiv(x, I32(32))
        sums = kept.shared(1024)
        p = I64(bid_x()) * 32 + I64(lane)
        total = kept(identity)
        r = I64(warp)
        while r < blocks:
            w = kept.load_if(partial, r * end + p, p < end)
            total = join(total, w)
            r += 32
        kept.store_shared(sums, x, total)
        barrier()
        if warp == 0 and p < end:
            for k in range(1, 32):
                total = join(total, kept.load_shared(sums, lane + 32 * k))
            before = words.load(places, p)
            after = into(words.convert(kept, before), total)
            words.store(places, p, kept.convert(words, after))

    return join_blocks
