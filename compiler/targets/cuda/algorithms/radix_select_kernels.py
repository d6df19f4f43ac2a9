"""The kernels of radix selects. Counting a digit, picking that of the k-th key, collecting what comes before it.

Of each k-th key that is looked for four words are known: the key's digits so far, its place's digits so far, which one
it is among the keys that share them, and whether these are all wanted: then the other digits are set, and what is not
greater is what was looked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .....runtime.core.frozen import frozen
from ....core.types import DType
from .kernel_language import (
    DtypeWords,
    Word,
    and_,
    barrier,
    bid_x,
    gadd_u64,
    least,
    or_,
    sadd_u32,
    shl,
    shr,
    sub,
    tid_x,
    udiv,
    urem,
)
from .radix_sort_kernels import I32, I64, U32, U64, RadixKeys, add, add_up_before_thread

THREADS = 512
EACH = 8  # elements a thread takes at a time
BITS = 11  # of a digit at most
BINS = 1 << BITS
PICKING = 256  # threads that look through the bins
KEY, PLACE, LEFT, DONE, WORDS = 0, 1, 2, 3, 4
ONES = 2**32 - 1


@frozen
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


@frozen
class KnownWords:
    """Where the words of what is known lie, from one on: in global memory or (shared) in a block's."""

    memory: Any
    first: Any
    shared: bool = False

    def load(self, number: int):
        place = self.first + number
        return U64.load_shared(self.memory, place) if self.shared else U64.load(self.memory, place)

    def store(self, number: int, value) -> None:
        if self.shared:
            U64.store_shared(self.memory, self.first + number, value)
        else:
            U64.store(self.memory, self.first + number, value)


def load_values(keys: RadixKeys, values, first, at, stop):
    """EACH values of a thread, those from `at` that are before `stop`."""
    inside = Word(f"below_1x{EACH}")(at, I64(THREADS), I32(0), stop)
    return Word(f"load_{keys.values.name}_1x{EACH}_if")(values, first + at, I64(THREADS), I32(0), inside)


def clear_counts(counts, x, count: int) -> None:
    b = x
    while b < count:
        U32.store_shared(counts, b, U32(0))
        b += THREADS


def count_digit_of_place(step: SelectDigit, counts, place, known) -> None:
    """The place has a digit, if it has those that are known."""
    if shr(place, U32(step.shift + step.width)) == known:
        digit = and_(shr(place, U32(step.shift)), U32((1 << step.width) - 1))
        sadd_u32(counts, U32.convert(I32, digit), U32(1))


def count_digit_of_key(keys: RadixKeys, step: SelectDigit, first: bool, counts, key, known) -> None:
    """The key has a digit, for each of what is known that it agrees with (first: nothing is known)."""
    words = keys.words
    if first:
        sadd_u32(counts, digit_of_key(words, step, key), U32(1))
    else:
        top = shr(key, words(step.shift + step.width))
        for which in range(len(known)):
            if top == known[which]:
                digit = digit_of_key(words, step, key)
                sadd_u32(counts, digit + which * BINS if which else digit, U32(1))


def digit_of_key(words: DtypeWords, step: SelectDigit, key):
    return words.convert(I32, and_(shr(key, words(step.shift)), words((1 << step.width) - 1)))


def known_digits(keys: RadixKeys, words, at, stop):
    """The digits of each key that is looked for, of its place, and where there is nothing left to count. words: what is
    known of each."""
    known = [U64.convert(keys.words, words[which].load(KEY)) for which in range(len(words))]
    if len(words) == 1:
        place = U64.convert(U32, words[0].load(PLACE))
        stop = at if words[0].load(DONE) > U64(0) else stop
        return known, place, stop
    return known, None, stop


def count_digits(keys, step, first, looked_for, counts, values, begin, x, at):
    """Count the digits of the keys of a row from `at` on that agree with what is known (first: all)."""
    known, place, stop = looked_for
    j = at + I64(x)
    while j < stop:
        v = keys.encode(load_values(keys, values, begin, j, stop))
        for i in range(EACH):
            if step.of_key:
                if j + i * THREADS < stop:
                    count_digit_of_key(keys, step, first, counts, v[i], known)
            elif j + i * THREADS < stop and v[i] == known[0]:
                count_digit_of_place(step, counts, I64.convert(U32, j + i * THREADS), place)
        j += THREADS * EACH


def radix_count_digit_kernel(keys: RadixKeys, step: SelectDigit, first: bool, many: int) -> Callable[..., None]:
    """Counts by (row, which, digit), 0 before, from what is known (not if first). Of a row: its length, a block's
    stretch of it, its stretches."""

    def count_digit(values, totals, known, length, stretch, stretches):
        x = tid_x()
        row = udiv(I64(bid_x()), stretches)
        at = urem(I64(bid_x()), stretches) * stretch
        stop = least(at + stretch, length)
        counts = U32.shared(many * BINS)
        clear_counts(counts, x, many * BINS)
        words = [KnownWords(known, row * (many * WORDS) + which * WORDS) for which in range(0 if first else many)]
        looked_for = known_digits(keys, words, at, stop)
        barrier()
        count_digits(keys, step, first, looked_for, counts, values, row * length, x, at)
        barrier()
        b = x
        while b < many * BINS:
            c = U32.load_shared(counts, b)
            if c > 0:
                gadd_u64(totals, row * (many * BINS) + I64(b), U32.convert(U64, c))
            b += THREADS

    return count_digit


def advance_to_digit(step, places, x, counts, start, before, after):
    """From key, place and how many are left: the thread one of whose bins has the one that is looked for stores what is
    known now. start: how many all bins before this thread's have. places: the search ends where all keys of the bin are
    wanted."""
    key, place, left = before
    for i in range(len(counts)):
        if left >= start and left < add(start, counts[i]):
            digit = Word("u64_from_i32")(I32(x * len(counts) + i))
            grown = or_(shl(key if step.of_key else place, U64(step.width)), digit)
            kept = place if step.of_key else key
            left_after = sub(left, start)
            done = U64(0)
            if places and add(left_after, U64(1)) == counts[i]:
                done = U64(1)
                grown = or_(shl(grown, U64(step.shift)), U64((1 << step.shift) - 1))
                if step.of_key:
                    kept = U64(ONES)
            after.store(KEY, grown if step.of_key else kept)
            after.store(PLACE, kept if step.of_key else grown)
            after.store(LEFT, left_after)
            after.store(DONE, done)
        start = add(start, counts[i])


def add_up(counts):
    total = counts[0]
    for i in range(1, len(counts)):
        total = add(total, counts[i])
    return total


def radix_pick_digit_kernel(step: SelectDigit, first: bool, places: bool) -> Callable[..., None]:
    """The next digit, by counts of (row, which, digit) (first: of all keys) and what is known (not if first). ranks:
    the places in the order (first). A block each."""
    each = BINS // PICKING

    def pick_digit(counts, known, advanced, *ranks):
        x = tid_x()
        lane = urem(x, I32(32))
        warp = udiv(x, I32(32))
        sums = U64.shared(PICKING // 32)
        own = I64(bid_x())
        words, after = KnownWords(known, own * WORDS), KnownWords(advanced, own * WORDS)
        if first:
            table = udiv(own, I64(len(ranks)))
            which = urem(own, I64(len(ranks)))
            k = ranks[0]
            for w in range(1, len(ranks)):
                k = ranks[w] if which == w else k
            key = U64(0)
            place = U64(0)
            left = I64.convert(U64, k)
        else:
            table = own
            key = words.load(KEY)
            place = words.load(PLACE)
            left = words.load(LEFT)
            done = words.load(DONE)
        c = [U64.load(counts, table * BINS + I64(x * each + i)) for i in range(each)]
        start = add_up_before_thread(U64, add_up(c), sums, lane, warp)
        advance_to_digit(step, places, x, c, start, (key, place, left), after)
        if places and not first and done > 0 and x == 0:  # nothing was counted
            after.store(KEY, key)
            after.store(PLACE, place)
            after.store(LEFT, left)
            after.store(DONE, done)

    return pick_digit


def radix_select_row_kernel(keys: RadixKeys, steps: Sequence[SelectDigit]) -> Callable[..., None]:
    """A block finds all digits of a row: what is known in the end. ranks: the places in the order."""
    each = BINS // THREADS

    def select_row(values, known, length, *ranks):
        x = tid_x()
        lane = urem(x, I32(32))
        warp = udiv(x, I32(32))
        row = I64(bid_x())
        at = I64(0)
        counts = U32.shared(len(ranks) * BINS)
        state = U64.shared(len(ranks) * WORDS)
        sums = U64.shared(THREADS // 32)
        words = [KnownWords(state, w * WORDS, True) for w in range(len(ranks))]
        if x == 0:
            for w in range(len(ranks)):
                words[w].store(KEY, U64(0))
                words[w].store(PLACE, U64(0))
                words[w].store(LEFT, I64.convert(U64, ranks[w]))
                words[w].store(DONE, U64(0))
        for number in range(len(steps)):
            clear_counts(counts, x, len(ranks) * BINS if number else BINS)
            barrier()
            looked_for = known_digits(keys, words if number else [], at, length)
            count_digits(keys, steps[number], number == 0, looked_for, counts, values, row * length, x, at)
            barrier()
            for w in range(len(ranks)):
                before = words[w].load(KEY), words[w].load(PLACE), words[w].load(LEFT)
                c = [
                    U32.convert(U64, U32.load_shared(counts, x * each + ((w if number else 0) * BINS + i)))
                    for i in range(each)
                ]
                start = add_up_before_thread(U64, add_up(c), sums, lane, warp)
                advance_to_digit(steps[number], keys.places, x, c, start, before, words[w])
                barrier()
        if x < len(ranks) * WORDS:
            U64.store(known, row * (len(ranks) * WORDS) + I64(x), U64.load_shared(state, x))

    return select_row


def radix_selected_values_kernel(keys: RadixKeys) -> Callable[..., None]:
    """The values of what is known of all digits of `count` keys."""

    def write_values(known, values, count):
        j = I64(bid_x()) * THREADS + I64(tid_x())
        if j < count:
            key = U64.convert(keys.words, U64.load(known, j * WORDS + KEY))
            keys.values.store(values, j, keys.decode(key))

    return write_values


def radix_select_places_kernel(keys: RadixKeys) -> Callable[..., None]:
    """The places of the first keys of each row, in any order. known: of the last of them, totals: how many of each row
    there are, 0 before. Of a row: its length, its tiles, and k, how many."""

    def collect(values, known, places, totals, length, tiles, k):
        x = tid_x()
        many = U32.shared(1)
        begin = U64.shared(1)
        row = udiv(I64(bid_x()), tiles)
        at = urem(I64(bid_x()), tiles) * (THREADS * EACH) + I64(x)
        v = load_values(keys, values, row * length, at, length)
        words = KnownWords(known, row * WORDS)
        key = U64.convert(keys.words, words.load(KEY))
        place = U64.convert(I64, words.load(PLACE))
        if x == 0:
            U32.store_shared(many, I32(0), U32(0))
        barrier()
        v = keys.encode(v)
        t, r = [None] * EACH, [None] * EACH
        for i in range(EACH):
            here = at + i * THREADS
            t[i] = here < length and (v[i] < key or (v[i] == key and here <= place))
            r[i] = U32(0)
            if t[i]:
                r[i] = sadd_u32(many, I32(0), U32(1))
        barrier()
        if x == 0:
            count = U32.load_shared(many, I32(0))
            base = gadd_u64(totals, row, U32.convert(U64, count)) if count > 0 else U64(0)
            U64.store_shared(begin, I32(0), base)
        barrier()
        to = row * k + U64.convert(I64, U64.load_shared(begin, I32(0)))
        for i in range(EACH):
            if t[i]:
                U32.store(places, to + U32.convert(I64, r[i]), I64.convert(U32, at + i * THREADS))

    return collect


def radix_selected_keys_kernel(keys: RadixKeys) -> Callable[..., None]:
    """The keys in `count` places, of which a row has `k`."""

    def write_keys(values, places, result, count, length, k):
        j = I64(bid_x()) * THREADS + I64(tid_x())
        if j < count:
            place = U32.convert(I64, U32.load(places, j))
            keys.words.store(result, j, keys.encode(keys.values.load(values, udiv(j, k) * length + place)))

    return write_keys


def order_selected_places_kernel() -> Callable[..., None]:
    """`count` places in an order of them, of which a row has `k`."""

    def put_in_order(places, order, ordered, count, k):
        j = I64(bid_x()) * THREADS + I64(tid_x())
        if j < count:
            number = I64.load(order, j)
            place = U32.load(places, udiv(j, k) * k + number)
            I64.store(ordered, j, U32.convert(I64, place))

    return put_in_order
