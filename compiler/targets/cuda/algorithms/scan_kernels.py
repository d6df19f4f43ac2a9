"""The kernels of scans. A thread for each column, or blocks that look back at what the tiles before them have."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ....core.combiners import reduction_identity
from ....core.types import FLOAT32, HALVES, DType
from .kernel_language import (
    DtypeWords,
    Word,
    and_,
    barrier,
    bid_x,
    least,
    number_of_dtype,
    or_,
    peek_u64,
    post_u64,
    select,
    shl,
    shr,
    shuffle_idx,
    shuffle_up,
    tid_x,
    udiv,
    urem,
)
from .radix_sort_kernels import I32, I64, U32, U64

LENGTH = 4  # neighbours of a thread; it has 4 times as many, or 2 times if they are large
RESIDENT = 1024  # threads that a multiprocessor should hold at once
FLAG = 1 << 32  # of a posted word
TOGETHER = 256  # tiles of a group
AHEAD = 8  # of its tiles a lane looks at
COLUMN = 8  # elements of a column that a thread takes at a time


def gpu_scan_accumulator_dtype(dtype: DType) -> DType:
    """What results of a dtype are accumulated in: 16-bit floats in float32, small integers in 32 bits."""
    if dtype in HALVES:
        return FLOAT32
    return np.dtype(f"{dtype.kind}4") if dtype.itemsize < 4 else dtype


def gpu_scan_runs_of_thread(run: DType) -> int:
    """How many runs of LENGTH neighbours a thread has."""
    return 4 if run.itemsize <= 4 else 2


class Scan:
    """What an operation accumulates, and in what. identity: what changes nothing."""

    def __init__(self, source: DType, target: DType, op: str) -> None:
        run = gpu_scan_accumulator_dtype(target)
        self.source, self.target, self.run = map(DtypeWords, (source, target, run))
        self.op, self.all_lanes = Word(op), Word(f"warp_{op}")
        self.identity = number_of_dtype(run, reduction_identity(op, run))
        self.words = max(1, run.itemsize // 4)  # that a posted value has

    def nothing(self):
        return self.run(self.identity)


def column_scan_kernel(scan: Scan) -> Callable[..., None]:
    """One thread for each of `columns` columns of (outer, length, inner)."""
    shape = f"{COLUMN}x1"
    load, store = Word(f"load_{scan.source.name}_{shape}"), Word(f"store_{scan.target.name}_{shape}")

    def scan_column(source, target, columns, length, inner):
        c = I64(bid_x()) * I64(256) + I64(tid_x())
        if c < columns:
            p = udiv(c, inner) * length * inner + urem(c, inner)
            total = scan.nothing()
            k = I64(0)
            while k + COLUMN <= length:
                w = scan.source.convert(scan.run, load(source, p + k * inner, I32(0), inner))
                r = [None] * COLUMN
                for j in range(COLUMN):
                    r[j] = scan.op(r[j - 1] if j else total, w[j])
                store(target, p + k * inner, I32(0), inner, scan.run.convert(scan.target, tuple(r)))
                total = r[COLUMN - 1]
                k += COLUMN
            while k < length:
                value = scan.source.convert(scan.run, scan.source.load(source, p + k * inner))
                total = scan.op(total, value)
                scan.target.store(target, p + k * inner, scan.run.convert(scan.target, total))
                k += 1

    return scan_column


def scan_warp(scan: Scan, lane, value):
    """The running total over the lanes of a warp."""
    for offset in (1, 2, 4, 8, 16):
        o = shuffle_up(value, offset)
        value = select(lane >= offset, scan.op(o, value), value)
    return value


def post_total(scan: Scan, said, place, value) -> None:
    """Post a value as words of 32 bits, each with a flag above."""
    if scan.words == 1:
        post_u64(said, place, or_(U32.convert(U64, scan.run.bits(U32, value)), U64(FLAG)))
    else:
        bits = scan.run.bits(U64, value)
        post_u64(said, place, or_(and_(bits, U64(2**32 - 1)), U64(FLAG)))
        post_u64(said, place + 1, or_(shr(bits, U64(32)), U64(FLAG)))


def posted_total(scan: Scan, low, high):
    """The value of posted words."""
    if scan.words == 1:
        return U32.bits(scan.run, U64.convert(U32, and_(low, U64(2**32 - 1))))
    return U64.bits(scan.run, or_(and_(low, U64(2**32 - 1)), shl(high, U64(32))))


def add_up_posted_totals(scan: Scan, said, first, near, below):
    """The posted values number `near`, near + 32, ... of each lane, of those that are `below`, all together."""
    start = first + near * I64(scan.words)
    ready = U64(0)
    low, high = [None] * AHEAD, [None] * AHEAD
    while ready == 0:
        for k in range(AHEAD):
            low[k] = peek_u64(said, start + 32 * k * scan.words)
            low[k] = select(near + 32 * k < below, low[k], U64(FLAG))
            if scan.words > 1:
                high[k] = peek_u64(said, start + (32 * k * scan.words + 1))
                high[k] = select(near + 32 * k < below, high[k], U64(FLAG))
        ready = low[0]
        for k in range(AHEAD):
            ready = and_(ready, low[k]) if k else ready
            ready = and_(ready, high[k]) if scan.words > 1 else ready
        ready = and_(ready, U64(FLAG))
    value = [None] * AHEAD
    for k in range(AHEAD):
        posted = posted_total(scan, low[k], high[k])
        value[k] = select(near + 32 * k < below, posted, scan.nothing())
    total = value[0]
    for k in range(1, AHEAD):
        total = scan.op(total, value[k])
    return scan.all_lanes(total, 32)


class LookbackScan(Scan):
    """How a block of so many threads scans a tile. vector: its elements are loaded and stored in vectors."""

    def __init__(self, source: DType, target: DType, op: str, threads: int, vector: bool) -> None:
        super().__init__(source, target, op)
        self.runs, self.warps = gpu_scan_runs_of_thread(self.run.dtype), threads // 32
        self.step, self.length, self.slots = threads * LENGTH, threads * LENGTH * self.runs, self.warps * self.runs
        self.of_lane = max(1, self.slots // 32)  # slots of a lane of the first warp
        self.end = min(31, self.slots // self.of_lane - 1)
        v, shape = "v" if vector else "", f"{LENGTH}x{self.runs}"
        self.ones = () if vector else (I32,)
        self.load, self.load_if = (Word(f"load{v}_{self.source.name}_{shape}{part}") for part in ("", "_if"))
        self.store, self.store_if = (Word(f"store{v}_{self.target.name}_{shape}{part}") for part in ("", "_if"))
        self.below = Word(f"below_{shape}")


def load_tile(scan, source, first, step, at, length, whole):
    """A thread's elements, which are in steps of all threads."""
    steps = (step, I32(1)) if scan.ones else (step,)
    if whole:
        values = scan.load(source, first, *steps)
    else:
        values = scan.load_if(source, first, *steps, scan.below(at, step, I32(1), length))
    return scan.source.convert(scan.run, values)


def store_tile(scan, target, first, step, at, length, whole, totals):
    values = scan.run.convert(scan.target, tuple(totals))
    steps = (step, I32(1)) if scan.ones else (step,)
    if whole:
        scan.store(target, first, *steps, values)
    else:
        scan.store_if(target, first, *steps, values, scan.below(at, step, I32(1), length))


def scan_runs(scan, w, s, p, sums, lane, warp):
    """s becomes the running totals in each run of a thread, p those of the lanes before, sums the warps' by run."""
    for g in range(scan.runs):
        s[LENGTH * g] = w[LENGTH * g]
        for j in range(LENGTH * g + 1, LENGTH * g + LENGTH):
            s[j] = scan.op(s[j - 1], w[j])
        c = scan_warp(scan, lane, s[LENGTH * g + LENGTH - 1])
        p[g] = shuffle_up(c, 1)
        p[g] = select(lane > 0, p[g], scan.nothing())
        if lane == 31:
            scan.run.store_shared(sums, I32(g * scan.warps) + warp, c)


def totals_of_group(scan, said, place, lane, total, groups_begin):
    """What the tiles of its group before this one have; its own total posted, the group's by its last."""
    number, within, group = place
    mine = number * I64(scan.words)
    if lane == 0:
        post_total(scan, said, mine, total)
    before = add_up_posted_totals(scan, said, mine - within * I64(scan.words), I64(lane), within)
    if within == TOGETHER - 1 and lane == 0:
        through = scan.op(before, total)
        post_total(scan, said, groups_begin + group * I64(scan.words), through)
    return before


def totals_of_groups(scan, said, group, lane, groups_begin):
    """What all groups of its row before this tile's have."""
    before = scan.nothing()
    done = I64(0)
    while done < group:
        before = scan.op(before, add_up_posted_totals(scan, said, groups_begin, done + I64(lane), group))
        done += 32 * AHEAD
    return before


def scan_sums(scan, sums, before, said, place, lane, tiles, groups_begin):
    """The first warp: before becomes what is before each warp's run in the tile and in the tiles of its group."""
    slot = least(lane, I32(scan.end)) * I32(scan.of_lane)
    q = [None] * scan.of_lane
    for k in range(scan.of_lane):
        value = scan.run.load_shared(sums, slot + k)
        q[k] = scan.op(q[k - 1], value) if k else value
    c = scan_warp(scan, lane, q[scan.of_lane - 1])
    e = shuffle_up(c, 1)
    last = I32(scan.end)
    total = shuffle_idx(c, last)
    e = select(lane > 0, e, scan.nothing())
    pre = scan.nothing()
    if scan.warps > 1 and tiles > 1:
        pre = totals_of_group(scan, said, place, lane, total, groups_begin)
    if lane <= scan.end:
        e = scan.op(pre, e)
        scan.run.store_shared(before, slot, e)
        for k in range(1, scan.of_lane):
            scan.run.store_shared(before, slot + k, scan.op(e, q[k - 1]))


def lookback_scan_kernel(scan: LookbackScan) -> Callable[..., None]:
    """said: words, all 0: the tiles' totals, the groups'. Of a row: its length, tiles, groups; where the groups' words
    begin."""

    def scan_tile(source, target, said, length, tiles, groups, groups_begin):
        x = tid_x()
        lane = urem(x, I32(32))
        warp = udiv(x, I32(32))
        sums = scan.run.shared(scan.slots)
        before = scan.run.shared(scan.slots)
        if scan.warps > 1:
            earlier = scan.run.shared(1)
        number = I64(bid_x())
        row = udiv(number, tiles)
        tile = urem(number, tiles)
        within = urem(tile, I64(TOGETHER))
        group = udiv(tile, I64(TOGETHER))
        at = tile * I64(scan.length) + I64(x) * I64(LENGTH)
        first = row * length + at
        step = I64(scan.step)
        whole = tile * I64(scan.length) + I64(scan.length) <= length
        w = load_tile(scan, source, first, step, at, length, whole)
        s, p = [None] * (LENGTH * scan.runs), [None] * scan.runs
        scan_runs(scan, w, s, p, sums, lane, warp)
        barrier()
        if warp == 0:
            scan_sums(scan, sums, before, said, (number, within, row * groups + group), lane, tiles, groups_begin)
        if scan.warps > 1 and warp == 1:  # else a row is one tile
            of_groups = totals_of_groups(scan, said, group, lane, groups_begin + row * groups * I64(scan.words))
            if lane == 0:
                scan.run.store_shared(earlier, I32(0), of_groups)
        barrier()
        if scan.warps > 1:
            all_before = scan.run.load_shared(earlier, I32(0))
        r = [None] * (LENGTH * scan.runs)
        for g in range(scan.runs):
            b = scan.op(scan.run.load_shared(before, I32(g * scan.warps) + warp), p[g])
            b = scan.op(all_before, b) if scan.warps > 1 else b
            for j in range(LENGTH * g, LENGTH * g + LENGTH):
                r[j] = scan.op(b, s[j])
        store_tile(scan, target, first, step, at, length, whole, r)

    return scan_tile
