"""The kernels of values combined by index, in the order that `ordered_scatter.py` explains."""

from __future__ import annotations

from collections.abc import Callable

from ....core.types import DTYPES, HALVES, DType
from .kernel_language import (
    DtypeWords,
    Word,
    barrier,
    bid_x,
    gadd_u32,
    least,
    select,
    tid_x,
    udiv,
    urem,
)
from .radix_sort_kernels import I64, U32
from .scatter_kernels import THREADS, gpu_scatter_op_before_place

AHEAD = 8  # values of a thread whose loads are under way together
TILES = 4  # of AHEAD values of each thread, that a block brings into shared memory at most
F32 = DtypeWords(DTYPES["f32"])


def index_to_u32_kernel(dtype: DType) -> Callable[..., None]:
    """`count` indices as u32 (`end` for those that are out of range), their numbers, and a word that becomes 0."""
    words = DtypeWords(dtype)

    def number_indices(indices, places, numbers, parts, count, end):
        j = I64(bid_x()) * THREADS + I64(tid_x())
        if j < count:
            given = words.load(indices, j)
            k = words.convert(I64, given)
            k = k if k >= 0 and k < end else end
            U32.store(places, j, I64.convert(U32, k))
            U32.store(numbers, j, I64.convert(U32, j))
            if j == 0:
                U32.store(parts, j, U32(0))

    return number_indices


def place_of(order, number):
    return U32.convert(I64, U32.load(order, number))


def places_in_order_kernel(part: int, starts: bool) -> Callable[..., None]:
    """How many whole parts of `count` places in order are of one place; if `starts`, where each place starts too."""

    def begin_places(order, result, count, end):
        j = I64(bid_x()) * THREADS + I64(tid_x())
        if urem(j, I64(part)) == 0 and j + part <= count:
            k = U32.load(order, j)
            if k < end and U32.load(order, j + (part - 1)) == k:
                gadd_u32(result, I64(0), U32(1))
        if starts and j <= end:  # the first of the order that is no lower place
            low = I64(0)
            high = count
            while low < high:
                middle = udiv(low + high, I64(2))
                lower = place_of(order, middle) < j
                low = middle + 1 if lower else low
                high = high if lower else middle
            U32.store(result, 1 + 2 * count + j, I64.convert(U32, low))

    return begin_places


class CombinedKinds:
    """How values of one dtype are combined with those of another. part: how many one after another. scale: the word
    that values are combined with a factor by before, if there is one."""

    def __init__(self, dtype: DType, values: DType, op: str, part: int, scale: str = "") -> None:
        self.words, self.given, self.part, self.scale = DtypeWords(dtype), DtypeWords(values), part, scale
        self.halves = dtype in HALVES
        self.op, self.before = Word(op), Word(gpu_scatter_op_before_place(op))

    def combined(self, op: Word, into, value):
        return self.combined_in_f32(op, into, value) if self.halves else op(into, value)

    def combined_in_f32(self, op: Word, into, value):
        return F32.convert(self.words, op(self.words.convert(F32, into), self.words.convert(F32, value)))


def unscaled(value, factor):
    return value


class Table:
    """What values are taken from, and the factor that they are combined with first. Of them come values of the dtype
    that they are combined with."""

    def __init__(self, kinds: CombinedKinds, pointer, factor) -> None:
        self.kinds, self.pointer, self.factor = kinds, pointer, factor
        self.scale = Word(kinds.scale) if kinds.scale else unscaled

    def scaled(self, value):
        return self.kinds.given.convert(self.kinds.words, self.scale(value, self.factor))

    def load(self, place):
        return self.scaled(self.kinds.given.load(self.pointer, place))

    def load_if(self, place, inside):
        return self.scaled(self.kinds.given.load_if(self.pointer, place, inside))


class InOrder:
    """Values by place in the order that `places_in_order` gives, of which number j + k is asked. end: no place."""

    def __init__(self, kinds: CombinedKinds, order, table: Table, which, end) -> None:
        self.kinds, self.order, self.table, self.which, self.end = kinds, order, table, which, end

    def key(self, j, k=0):
        return place_of(self.order, 1 + j + k)

    def value(self, j, k=0):
        return self.table.load(place_of(self.which, j + k))

    def start(self, count, place):
        """Where in the order a place begins; the end of all, where there is none."""
        return place_of(self.order, 1 + 2 * count + least(place, self.end))


class OfParts:
    """Values by place that parts have."""

    def __init__(self, kinds: CombinedKinds, places, totals, end) -> None:
        self.kinds, self.places, self.totals, self.end = kinds, places, totals, end

    def key(self, j, k=0):
        return place_of(self.places, j + k)

    def value(self, j, k=0):
        return self.kinds.words.load(self.totals, j + k)


class HeldParts:
    """The same in the shared memory of a block, from `first` on."""

    def __init__(self, kinds: CombinedKinds, places, totals, first, end) -> None:
        self.kinds, self.places, self.totals, self.first, self.end = kinds, places, totals, first, end

    def key(self, j, k=0):
        return U32.convert(I64, U32.load_shared(self.places, self.first + j + k))

    def value(self, j, k=0):
        return self.kinds.words.load_shared(self.totals, self.first + j + k)


def combine_first_part(values, length, k, j, r):
    """r, and the values of place k from j on, combined one after another; and where that ends."""
    kinds = values.kinds
    stop = (udiv(j, I64(kinds.part)) + 1) * kinds.part
    long = values.key(stop, kinds.part - 1) == k if stop + kinds.part <= length else False
    stop = stop if long else length
    v = values.value(j)
    again = k
    while again == k:
        w = v
        j += 1  # what the next turn needs is on its way while this one waits for its value
        v = values.value(j) if j < length else w
        again = values.key(j) if j < stop else values.end
        r = kinds.combined(kinds.op, r, w)
    return r, j, long


def combine_next_part(values, length, k, j, own, total):
    """The place k and what its values from j on have, to the end of the part, where it has more parts; else own and
    total stay. j is the part's first."""
    kinds = values.kinds
    end = least(j + kinds.part, length)
    whole = values.key(j, kinds.part - 1) == k if j + kinds.part <= length else False
    long = whole or (values.key(j, -kinds.part - 1) == k if j > kinds.part else False)
    if long:
        own = k
    if whole:
        total = values.value(j)
        v = [None] * 8
        for i in range(1, 8):
            v[i] = values.value(j, i)
        for i in range(1, 8):
            total = kinds.combined(kinds.before, total, v[i])
        j += 8
        while j < end:
            for i in range(8):
                v[i] = values.value(j, i)
            for i in range(8):
                total = kinds.combined(kinds.before, total, v[i])
            j += 8
    elif long:
        total = values.value(j)
        j += 1
        while (values.key(j) if j < end else values.end) == k:
            value = values.value(j)
            total = kinds.combined(kinds.before, total, value)
            j += 1
    return own, total, j, long


def combine_part_in_order(values: InOrder, length, c, places, totals) -> None:
    """Part c of the order: the place that the part before ends with, and what it has for that."""
    kinds = values.kinds
    j = c * kinds.part
    own = values.end
    total = values.table.load(I64(0))
    k = values.key(j)
    if k < values.end and c > 0 and values.key(j, -1) == k:
        own, total, _, _ = combine_next_part(values, length, k, j, own, total)
    U32.store(places, c, I64.convert(U32, own))
    kinds.words.store(totals, c, total)


def combine_places_of_block(values: InOrder, count, b, given, result) -> None:
    """THREADS places, each by a thread. Their values, which are neighbours, are first brought into shared memory by all
    threads together; not those of a block that has most of them to skip."""
    kinds, end = values.kinds, values.end
    t = I64(tid_x())
    p = b * THREADS + t
    first = values.start(count, b * THREADS)
    last = values.start(count, b * THREADS + THREADS)
    j = values.start(count, p)
    to = values.start(count, p + 1)
    stop = (udiv(j, I64(kinds.part)) + 1) * kinds.part
    to = stop if to >= stop + kinds.part else to
    r = kinds.words.load_if(given, p, p < end)
    w, v = [None] * AHEAD, [None] * AHEAD
    if last - first <= TILES * AHEAD * THREADS:
        held = kinds.words.shared(AHEAD * THREADS)
        while first < last:
            for i in range(AHEAD):
                w[i] = place_of(values.which, least(first + (i * THREADS) + t, last - 1))
            for i in range(AHEAD):
                v[i] = values.table.load(w[i])
            for i in range(AHEAD):
                kinds.words.store_shared(held, t + (i * THREADS), v[i])
            barrier()
            till = least(to, first + AHEAD * THREADS)
            while j < till:
                value = kinds.words.load_shared(held, j - first)
                r = kinds.combined(kinds.op, r, value)
                j += 1
            barrier()
            first += AHEAD * THREADS
    else:
        while j < to:
            for i in range(AHEAD):
                w[i] = U32.load_if(values.which, j + i, j + i < to)
            for i in range(AHEAD):
                v[i] = values.table.load_if(U32.convert(I64, w[i]), j + i < to)
            for i in range(AHEAD):
                r = select(j + i < to, kinds.combined(kinds.op, r, v[i]), r)
            j += AHEAD
    kinds.words.store_if(result, p, r, p < end)


def combine_by_place_kernel(kinds: CombinedKinds) -> Callable[..., None]:
    """A thread for each place, then one for each part. order: what `places_in_order` gives, which: of a table in order,
    factor: what its elements are combined with first, if kinds say so, given: what these are combined with,
    part_places, totals: of each part the place that it goes on with and what it has for it. count: of values, end: of
    places."""

    def combine(order, table, which, factor, given, result, part_places, totals, count, end, parts):
        scale = kinds.given.load(factor, I64(0)) if kinds.scale else None
        values = InOrder(kinds, order, Table(kinds, table, scale), which, end)
        b = I64(bid_x())
        blocks = udiv(end + (THREADS - 1), I64(THREADS))
        if b < blocks:
            combine_places_of_block(values, count, b, given, result)
        if b >= blocks and U32.load(order, I64(0)) > 0:
            c = (b - blocks) * THREADS + I64(tid_x())
            if c < parts:
                combine_part_in_order(values, count, c, part_places, totals)

    return combine


def combine_by_element_kernel(kinds: CombinedKinds) -> Callable[..., None]:
    """A thread for each value, of which those work that are the first of a place or of a part. As
    `combine_by_place_kernel`, where given and result are one array."""

    def combine(order, table, which, factor, given, result, part_places, totals, count, end, parts):
        scale = kinds.given.load(factor, I64(0)) if kinds.scale else None
        values = InOrder(kinds, order, Table(kinds, table, scale), which, end)
        j = I64(bid_x()) * THREADS + I64(tid_x())
        if j < count:
            c = udiv(j, I64(kinds.part))
            first = c * kinds.part == j
            k = values.key(j)
            before = values.key(j, -1) if j > 0 else end
            if k < end and before != k:
                r, _, _ = combine_first_part(values, count, k, j, kinds.words.load(result, k))
                kinds.words.store(result, k, r)
            if first and parts > 0 and U32.load(order, I64(0)) > 0:
                combine_part_in_order(values, count, c, part_places, totals)

    return combine


def combine_part(values, length, c, result):
    """Part c of what parts have: a place that goes on in the next one, and what it has for that."""
    kinds = values.kinds
    j = c * kinds.part
    to = least(j + kinds.part, length)
    before = values.key(j, -1) if j > 0 else values.end
    own = values.end
    total = values.value(I64(0))
    while j < to:
        k = values.key(j)
        long = True
        if k < values.end and before != k:
            r, j, long = combine_first_part(values, length, k, j, kinds.words.load(result, k))
            kinds.words.store(result, k, r)
        elif k < values.end and urem(j, I64(kinds.part)) == 0:
            own, total, j, long = combine_next_part(values, length, k, j, own, total)
            j = j if long else j + 1
        else:
            j += 1
        before = k
    return own, total


def combine_parts_kernel(kinds: CombinedKinds) -> Callable[..., None]:
    """What parts have is combined with their places, if there are any. order: what `places_in_order` gives, places: of
    each part its place, `end` for none, totals: what it has, next_places, next_totals: the same of parts of these."""

    def combine(order, places, totals, result, next_places, next_totals, count, end):
        if U32.load(order, I64(0)) > 0:
            c = I64(bid_x()) * THREADS + I64(tid_x())
            if c * kinds.part < count:
                own, total = combine_part(OfParts(kinds, places, totals, end), count, c, result)
                U32.store(next_places, c, I64.convert(U32, own))
                kinds.words.store(next_totals, c, total)

    return combine


def combine_last_parts_kernel(kinds: CombinedKinds, held: int) -> Callable[..., None]:
    """The same, where a block does the parts of parts in its shared memory, `held` of them, and theirs."""

    def combine(order, places, totals, result, count, end):
        if U32.load(order, I64(0)) > 0:
            keys = U32.shared(2 * held)
            sums = kinds.words.shared(2 * held)
            c = I64(tid_x())
            while c * kinds.part < count:
                own, total = combine_part(OfParts(kinds, places, totals, end), count, c, result)
                U32.store_shared(keys, 0 + c, I64.convert(U32, own))
                kinds.words.store_shared(sums, 0 + c, total)
                c += THREADS
            barrier()
            first = I64(0)
            many = udiv(count + (kinds.part - 1), I64(kinds.part)) if count > kinds.part else I64(0)
            while many > 0:
                after = first + many
                c = I64(tid_x())
                while c * kinds.part < many:
                    own, total = combine_part(HeldParts(kinds, keys, sums, first, end), many, c, result)
                    U32.store_shared(keys, after + c, I64.convert(U32, own))
                    kinds.words.store_shared(sums, after + c, total)
                    c += THREADS
                barrier()
                first = after
                many = udiv(many + (kinds.part - 1), I64(kinds.part)) if many > kinds.part else I64(0)

    return combine
