"""Where temporaries live: offsets in one arena, and lower bounds. In: who uses them and what happens before what.

Two buffers may share bytes only if every user of one is done before any user of the other starts. `before[v]` is the
set of tasks done when task `v` is done, `v` included, by the dependences and the streams' orders: liveness on a line
is wrong once streams run side by side.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Sequence

from ..core.frozen import frozen
from ..program.dag import members_of_bitmask
from ..program.program import Program
from .antichain import HeaviestAntichains

ALIGNMENT = 256

# No further packing is tried once one is this near to a lower bound.
CLOSE = 1.01

# With more buffers than this only the first two orders are packed.
MANY = 256


@frozen
class Temporaries:
    """The buffers that need a place in the arena. Their numbers, sizes rounded up, and the sets of tasks using them."""

    buffers: tuple[int, ...]
    sizes: tuple[int, ...]
    users: tuple[int, ...]


@frozen
class Lifetimes:
    """earlier[b]: the set of buffers whose users are all done before any user of buffer `b` starts.

    start[b] puts buffers in an order in which none comes after one that it must precede. bound: the most bytes open
    at one task, a lower bound of the arena.
    """

    earlier: tuple[int, ...]
    start: tuple[int, ...]
    bound: int


@frozen
class Placement:
    """offsets[b]: the arena byte where buffer `b` starts, None for what does not live there. live: a lower bound."""

    offsets: tuple[int | None, ...]
    arena: int
    live: int


def tasks_touching_scheduled_buffers(program: Program) -> list[int]:
    """For each buffer the set of tasks that read or write it."""
    users = [0] * len(program.buffers)
    for number, task in enumerate(program.tasks):
        for region in task.reads:
            users[region.buffer] |= 1 << number
        for region in task.writes:
            users[region.buffer] |= 1 << number
    return users


def collect_temporary_buffers(program: Program) -> Temporaries:
    users = tasks_touching_scheduled_buffers(program)
    found = [b for b, buffer in enumerate(program.buffers) if buffer.kind == "temp" and buffer.nbytes and users[b]]
    sizes = tuple(-(-program.buffers[b].nbytes // ALIGNMENT) * ALIGNMENT for b in found)
    return Temporaries(tuple(found), sizes, tuple(users[b] for b in found))


def place_temporaries_in_arena(program: Program, temps: Temporaries, before: Sequence[int]) -> Placement:
    """Offsets for all temporaries: the lowest arena of several greedy packings."""
    lives = buffer_lifetimes(temps, before)
    offsets, arena = _pack_arena(temps, lives)
    result: list[int | None] = [0 if buffer.kind == "temp" else None for buffer in program.buffers]
    for b, offset in zip(temps.buffers, offsets, strict=True):
        result[b] = offset
    return Placement(tuple(result), arena, lives.bound)


def buffer_lifetimes(temps: Temporaries, before: Sequence[int]) -> Lifetimes:
    """Which buffers are over before which begin.

    Tasks are taken in an order that extends `before`. What a task finds is that of one task before it and what has
    happened since: buffers that are used by tasks that this one did not follow begin, or are over. Those begun and not
    over, with a user up to the task and one that is not before it, may all be alive at once.
    """
    users, sizes = temps.users, temps.sizes
    touched = [0] * len(before)
    for b, mask in enumerate(users):
        for v in members_of_bitmask(mask):
            touched[v] |= 1 << b
    over, begun, alive = [0] * len(before), [0] * len(before), [0] * len(before)
    order = [mask.bit_count() for mask in before]
    for v in sorted(range(len(before)), key=order.__getitem__):
        past, since = before[v] & ~(1 << v), 0
        known, seen, size = 0, 0, 0
        if past:
            p = past.bit_length() - 1
            known, seen, size, since = over[p], begun[p], alive[p], touched[p]
            for u in members_of_bitmask(past & ~before[p]):
                since |= touched[u]
        new = (since | touched[v]) & ~seen
        for b in members_of_bitmask(new):
            size += sizes[b]
        for b in members_of_bitmask(since & ~known):
            if not users[b] & ~past:
                known |= 1 << b
                size -= sizes[b]
        over[v], begun[v], alive[v] = known, seen | new, size
    bound = max(alive, default=0)
    earlier, start = [], []
    for mask in users:
        common, first = -1, -1
        for v in members_of_bitmask(mask):
            common &= over[v]
            if first < 0 or order[v] < first:
                first = order[v]
        earlier.append(common)
        start.append(first)
    return Lifetimes(tuple(earlier), tuple(start), bound)


def exact_arena_bound(program: Program, before: Sequence[int]) -> tuple[int, tuple[int, ...]]:
    """The least bytes that any arena of the program needs under the order `before`, exactly; and why: buffers of as
    many bytes of which none is over before another one begins."""
    temps = collect_temporary_buffers(program)
    heaviest = HeaviestAntichains(temps.sizes).heaviest_antichain(buffer_lifetimes(temps, before).earlier)
    return sum(temps.sizes[b] for b in heaviest), tuple(temps.buffers[b] for b in heaviest)


def _buffers_alive_together(lives: Lifetimes) -> list[int]:
    """The buffers that may be alive together with each buffer, from whichever is fewer: pairs in order, or others."""
    n = len(lives.start)
    if 4 * sum(mask.bit_count() for mask in lives.earlier) < n * n:
        ordered = [mask | 1 << b for b, mask in enumerate(lives.earlier)]
        for b, mask in enumerate(lives.earlier):
            for a in members_of_bitmask(mask):
                ordered[a] |= 1 << b
        return [(1 << n) - 1 & ~mask for mask in ordered]
    conflicts, begun = [0] * n, 0
    for b in sorted(range(n), key=lives.start.__getitem__):
        # None of those that have begun can be after `b` as a whole.
        together = begun & ~lives.earlier[b]
        conflicts[b] |= together
        for a in members_of_bitmask(together):
            conflicts[a] |= 1 << b
        begun |= 1 << b
    return conflicts


def _pack_arena(temps: Temporaries, lives: Lifetimes) -> tuple[list[int], int]:
    """The lowest of several greedy packings; the first that is close to a lower bound ends the search."""
    conflicts, bound = _buffers_alive_together(lives), lives.bound
    best: tuple[list[int], int] = ([], 0)
    for number, order in enumerate(_arena_packing_orders(temps, lives, conflicts)):
        for best_fit in (False, True):
            offsets = _greedy_arena_packing(order, temps.sizes, conflicts, best_fit)
            arena = max((offset + size for offset, size in zip(offsets, temps.sizes, strict=True)), default=0)
            if not best[0] or arena < best[1]:
                best = (offsets, arena)
                bound = max(
                    bound, _clique_lower_bound_of_arena(offsets, temps.sizes, conflicts) if arena > bound * CLOSE else 0
                )
            if best[1] <= bound * CLOSE:
                return best
        if number == 1 and len(order) > MANY:
            break
    return best


def _arena_packing_orders(temps: Temporaries, lives: Lifetimes, conflicts: Sequence[int]) -> Iterator[list[int]]:
    """The orders that packings place buffers in: by size, by size and lifetime, by crowding, by start."""
    everything, sizes, start = range(len(temps.sizes)), temps.sizes, lives.start
    yield sorted(everything, key=lambda b: (-sizes[b], start[b]))
    yield sorted(everything, key=lambda b: (-sizes[b] * conflicts[b].bit_count(), b))
    crowd = [sum(sizes[c] for c in members_of_bitmask(mask)) for mask in conflicts]
    yield sorted(everything, key=lambda b: (-crowd[b] - sizes[b], b))
    yield sorted(everything, key=lambda b: (start[b], -sizes[b]))


def _clique_lower_bound_of_arena(offsets: Sequence[int], sizes: Sequence[int], conflicts: Sequence[int]) -> int:
    """A lower bound: the bytes of some buffers all alive together, grown from the one that ends the arena."""
    top = max(range(len(sizes)), key=lambda b: offsets[b] + sizes[b], default=-1)
    if top < 0:
        return 0
    total, others = sizes[top], conflicts[top]
    while others:
        b = max(members_of_bitmask(others), key=lambda c: (sizes[c], (conflicts[c] & others).bit_count()))
        total += sizes[b]
        others &= conflicts[b]
    return total


def _greedy_arena_packing(
    order: Sequence[int], sizes: Sequence[int], conflicts: Sequence[int], best_fit: bool
) -> list[int]:
    """Place buffers one by one, in the smallest gap that fits or in the lowest, on top if there is none."""
    offsets, placed, end = [0] * len(sizes), 0, 0
    line: list[tuple[int, int, int]] = []  # (start, end, buffer) of all placed, lowest first
    for b in order:
        size, rivals = sizes[b], conflicts[b] & placed
        top, choice, room = 0, -1, 0
        near = line
        if rivals == placed:  # there is no gap between all of them: each was put on another one, or in between
            top, near = end, []
        elif rivals.bit_count() * 4 < len(line):
            near = sorted([(offsets[c], offsets[c] + sizes[c], c) for c in members_of_bitmask(rivals)])
        for low, high, c in near:
            if rivals >> c & 1:
                gap = low - top
                if gap >= size and (choice < 0 or gap < room):
                    choice, room = top, gap
                    if not best_fit:
                        break
                if high > top:
                    top = high
        offsets[b] = top if choice < 0 else choice
        placed |= 1 << b
        end = max(end, offsets[b] + size)
        insort(line, (offsets[b], offsets[b] + size, b))
    return offsets
