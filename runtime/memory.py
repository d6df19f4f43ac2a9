"""Where temporaries live: who uses them and what happens before what in, offsets in one arena and lower bounds out.

Two buffers may share bytes only if every user of one is done before any user of the other starts. `before[v]` is the
set of tasks done when task `v` is done, `v` included, by the dependences and the streams' orders: liveness on a line
is wrong once streams run side by side.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .antichain import Antichains
from .dag import bits
from .program import Program

ALIGNMENT = 256

# No further packing is tried once one is this near to a lower bound.
CLOSE = 1.01


@dataclass(frozen=True, slots=True)
class Temporaries:
    """The buffers that need a place in the arena: their numbers, sizes rounded up, and the sets of tasks using them."""

    buffers: tuple[int, ...]
    sizes: tuple[int, ...]
    users: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Placement:
    """offsets[b]: the arena byte where buffer `b` starts, None for what does not live there. live: a lower bound."""

    offsets: tuple[int | None, ...]
    arena: int
    live: int


def touching(program: Program) -> list[int]:
    """For each buffer the set of tasks that read or write it."""
    users = [0] * len(program.buffers)
    for number, task in enumerate(program.tasks):
        for region in task.reads:
            users[region.buffer] |= 1 << number
        for region in task.writes:
            users[region.buffer] |= 1 << number
    return users


def temporaries(program: Program) -> Temporaries:
    users = touching(program)
    found = [b for b, buffer in enumerate(program.buffers) if buffer.kind == "temp" and buffer.nbytes and users[b]]
    sizes = tuple(-(-program.buffers[b].nbytes // ALIGNMENT) * ALIGNMENT for b in found)
    return Temporaries(tuple(found), sizes, tuple(users[b] for b in found))


def place(program: Program, temps: Temporaries, before: Sequence[int]) -> Placement:
    """Offsets for all temporaries: the lowest arena of several greedy packings."""
    earlier = precedence(temps.users, before)
    live = live_bound(temps, before)
    offsets, arena = _pack(temps, _conflicts(earlier), live)
    result: list[int | None] = [0 if buffer.kind == "temp" else None for buffer in program.buffers]
    for b, offset in zip(temps.buffers, offsets, strict=True):
        result[b] = offset
    return Placement(tuple(result), arena, live)


def precedence(users: Sequence[int], before: Sequence[int]) -> list[int]:
    """earlier[b]: the set of buffers whose users are all done before any user of buffer `b` starts."""
    after: dict[int, int] = {}  # the buffers that are over before a set of tasks starts, by what precedes them all
    result = []
    for mask in users:
        shared = -1
        for v in bits(mask):
            shared &= before[v] & ~(1 << v)
        if shared not in after:
            busy, over = ~shared, 0
            for a, other in enumerate(users):
                if not other & busy:
                    over |= 1 << a
            after[shared] = over
        result.append(after[shared])
    return result


def live_bound(temps: Temporaries, before: Sequence[int]) -> int:
    """The most bytes alive around one task: a buffer is alive at its users and at all between two of them."""
    total = [0] * len(before)
    for size, mask in zip(temps.sizes, temps.users, strict=True):
        until, common = 0, -1
        for v in bits(mask):
            until |= before[v]
            common &= before[v] & ~(1 << v)
        for v in bits(until & ~common):
            if before[v] & mask:
                total[v] += size
    return max(total, default=0)


def arena_bound(program: Program, before: Sequence[int]) -> int:
    """The least bytes that any arena of the program needs under the order `before`, exactly."""
    temps = temporaries(program)
    heaviest = Antichains(temps.sizes).heaviest(precedence(temps.users, before))
    return sum(temps.sizes[b] for b in heaviest)


def _conflicts(earlier: Sequence[int]) -> list[int]:
    """The buffers that may be alive together with each buffer."""
    apart = [mask | 1 << b for b, mask in enumerate(earlier)]
    for b, mask in enumerate(earlier):
        bit = 1 << b
        for a in bits(mask):
            apart[a] |= bit
    everything = (1 << len(earlier)) - 1
    return [everything & ~mask for mask in apart]


def _pack(temps: Temporaries, conflicts: Sequence[int], live: int) -> tuple[list[int], int]:
    """The lowest of several greedy packings; the first that is close to a lower bound ends the search."""
    best: tuple[list[int], int] = ([], 0)
    for number, order in enumerate(_orders(temps, conflicts)):
        for best_fit in (True, False):
            offsets = _greedy(order, temps.sizes, conflicts, best_fit)
            arena = max((offset + size for offset, size in zip(offsets, temps.sizes, strict=True)), default=0)
            if not best[0] or arena < best[1]:
                best = (offsets, arena)
                live = max(live, _crowd(offsets, temps.sizes, conflicts))
            if best[1] <= live * CLOSE:
                return best
        if number == 1 and len(order) > 256:
            break
    return best


def _orders(temps: Temporaries, conflicts: Sequence[int]) -> Iterator[list[int]]:
    """The orders that packings place buffers in: by size, by size and lifetime, by crowding, by start."""
    everything, sizes, users = range(len(temps.sizes)), temps.sizes, temps.users
    start = [(mask & -mask).bit_length() for mask in users]
    yield sorted(everything, key=lambda b: (-sizes[b], start[b]))
    yield sorted(everything, key=lambda b: (-sizes[b] * conflicts[b].bit_count(), b))
    crowd = [sum(sizes[c] for c in bits(mask)) for mask in conflicts]
    yield sorted(everything, key=lambda b: (-crowd[b] - sizes[b], b))
    yield sorted(everything, key=lambda b: (start[b], -sizes[b]))


def _crowd(offsets: Sequence[int], sizes: Sequence[int], conflicts: Sequence[int]) -> int:
    """A lower bound: the bytes of some buffers all alive together, grown from the one that ends the arena."""
    top = max(range(len(sizes)), key=lambda b: offsets[b] + sizes[b], default=-1)
    if top < 0:
        return 0
    total, others = sizes[top], conflicts[top]
    while others:
        b = max(bits(others), key=lambda c: (sizes[c], (conflicts[c] & others).bit_count()))
        total += sizes[b]
        others &= conflicts[b]
    return total


def _greedy(order: Sequence[int], sizes: Sequence[int], conflicts: Sequence[int], best_fit: bool) -> list[int]:
    """Place buffers one by one, in the smallest gap that fits or in the lowest, on top if there is none."""
    offsets = [0] * len(sizes)
    line: list[tuple[int, int, int]] = []  # (start, end, buffer) of all placed, lowest first
    for b in order:
        size, rivals = sizes[b], conflicts[b]
        top, choice, room = 0, -1, 0
        for low, high, c in line:
            if rivals >> c & 1:
                gap = low - top
                if gap >= size and (choice < 0 or gap < room):
                    choice, room = top, gap
                    if not best_fit:
                        break
                if high > top:
                    top = high
        offsets[b] = top if choice < 0 else choice
        insort(line, (offsets[b], offsets[b] + size, b))
    return offsets
