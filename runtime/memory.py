"""Where temporaries live: who uses them and what happens before what in, offsets in one arena and lower bounds out.

Two buffers may share bytes only if every user of one is done before any user of the other starts. `before[v]` is the
set of tasks done when task `v` is done, `v` included, by the dependences and the streams' orders: liveness on a line
is wrong once streams run side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .dag import bits
from .program import Program

ALIGNMENT = 256


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
        for region in (*task.reads, *task.writes):
            users[region.buffer] |= 1 << number
    return users


def temporaries(program: Program, users: Sequence[int]) -> list[int]:
    """The buffers that need a place in the arena."""
    return [b for b, buffer in enumerate(program.buffers) if buffer.kind == "temp" and buffer.nbytes and users[b]]


def aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def place(program: Program, before: Sequence[int], users: Sequence[int] | None = None) -> Placement:
    """Offsets for all temporaries, the lowest arena of several greedy orders, each by best fit and by first fit."""
    users = touching(program) if users is None else users
    temps = temporaries(program, users)
    sizes = [aligned(program.buffers[b].nbytes) for b in temps]
    masks = [users[b] for b in temps]
    earlier = precedence(masks, before)
    live = live_bound(sizes, masks, before)
    offsets, arena = _pack(sizes, _conflicts(earlier), masks, live)
    result: list[int | None] = [0 if b.kind == "temp" else None for b in program.buffers]
    for b, offset in zip(temps, offsets, strict=True):
        result[b] = offset
    return Placement(tuple(result), arena, live)


def precedence(masks: Sequence[int], before: Sequence[int]) -> list[int]:
    """earlier[b]: the set of buffers whose users are all done before any user of buffer `b` starts."""
    common = []
    for mask in masks:
        shared = -1
        for v in bits(mask):
            shared &= before[v] & ~(1 << v)
        common.append(shared)
    return [sum(1 << a for a, mask in enumerate(masks) if not mask & ~shared) for shared in common]


def live_bound(sizes: Sequence[int], masks: Sequence[int], before: Sequence[int]) -> int:
    """The most bytes alive around one task: a buffer is alive at its users and at all between two of them."""
    total: dict[int, int] = {}
    for size, mask in zip(sizes, masks, strict=True):
        above = 0
        for v in bits(mask):
            above |= before[v]
        for v in bits(above):
            if before[v] & mask:
                total[v] = total.get(v, 0) + size
    return max(total.values(), default=0)


def lower_bound(sizes: Sequence[int], earlier: Sequence[int]) -> int:
    """The most bytes of buffers that may all be alive at once; no arena can be smaller."""
    return sum(sizes[b] for b in heaviest_antichain(sizes, earlier))


def arena_bound(program: Program, before: Sequence[int]) -> int:
    """The least bytes that any arena of the program needs under the order `before`."""
    users = touching(program)
    temps = temporaries(program, users)
    sizes = [aligned(program.buffers[b].nbytes) for b in temps]
    return lower_bound(sizes, precedence([users[b] for b in temps], before))


def heaviest_antichain(weights: Sequence[int], earlier: Sequence[int]) -> list[int]:
    """Elements of a partial order of which none is before another, of maximum total weight, exactly.

    By the weighted form of Dilworth's theorem: a minimum flow that covers every element by its weight. As the order is
    transitive it is a bipartite transport, here a maximum flow with breadth-first augmenting paths (Edmonds, Karp,
    1972) and bit sets; the antichain is read off the minimum cut.
    """
    n = len(weights)
    later = [0] * n
    for b, mask in enumerate(earlier):
        for a in bits(mask):
            later[a] |= 1 << b
    supply, demand = list(weights), list(weights)
    unmet = (1 << n) - 1
    flow: list[dict[int, int]] = [{} for _ in range(n)]  # flow[right][left]
    reached_left, reached_right = 0, 0
    while True:
        roots = [u for u in range(n) if supply[u]]
        from_left: dict[int, int] = {}
        into_left: dict[int, int] = dict.fromkeys(roots, -1)
        queue, end, reached_right = roots, -1, 0
        for left in queue:
            hit = later[left] & unmet
            if hit:
                end = (hit & -hit).bit_length() - 1
                from_left[end] = left
                break
            fresh = later[left] & ~reached_right
            reached_right |= fresh
            for right in bits(fresh):
                from_left[right] = left
                for giver, amount in flow[right].items():
                    if amount and giver not in into_left:
                        into_left[giver] = right
                        queue.append(giver)
        if end < 0:
            reached_left = sum(1 << u for u in into_left)
            break
        path, amount, right = [], demand[end], end
        while right >= 0:
            left = from_left[right]
            path.append((left, right))
            right = into_left[left]
            amount = min(amount, flow[right][left] if right >= 0 else supply[left])
        for i, (left, right) in enumerate(path):
            flow[right][left] = flow[right].get(left, 0) + amount
            if i + 1 < len(path):
                flow[path[i + 1][1]][left] -= amount
        supply[path[-1][0]] -= amount
        demand[end] -= amount
        if not demand[end]:
            unmet &= ~(1 << end)
    return list(bits(reached_left & ~reached_right))


def _conflicts(earlier: Sequence[int]) -> list[int]:
    """The buffers that may be alive together with each buffer."""
    n = len(earlier)
    apart = [mask | 1 << b for b, mask in enumerate(earlier)]
    for b, mask in enumerate(earlier):
        for a in bits(mask):
            apart[a] |= 1 << b
    return [(1 << n) - 1 & ~mask for mask in apart]


def _pack(sizes: Sequence[int], conflicts: Sequence[int], masks: Sequence[int], enough: int) -> tuple[list[int], int]:
    """The lowest of several greedy packings; stops at one that needs no more than `enough`."""
    n = len(sizes)
    crowd = [sum(sizes[c] for c in bits(mask)) for mask in conflicts]
    start = [(mask & -mask).bit_length() for mask in masks]
    orders = (
        sorted(range(n), key=lambda b: (-sizes[b], start[b])),
        sorted(range(n), key=lambda b: (-crowd[b] - sizes[b], b)),
        sorted(range(n), key=lambda b: (start[b], -sizes[b])),
        sorted(range(n), key=lambda b: (-sizes[b] * (masks[b].bit_length() - start[b] + 1), b)),
    )
    best: tuple[list[int], int] = ([], -1)
    for order in orders:
        for best_fit in (True, False):
            offsets = _greedy(order, sizes, conflicts, best_fit)
            arena = max((offset + size for offset, size in zip(offsets, sizes, strict=True)), default=0)
            if best[1] < 0 or arena < best[1]:
                best = (offsets, arena)
            if best[1] <= enough:
                return best
    return best


def _greedy(order: Sequence[int], sizes: Sequence[int], conflicts: Sequence[int], best_fit: bool) -> list[int]:
    """Place buffers one by one, in the smallest gap that fits or in the lowest, on top if there is none."""
    offsets = [0] * len(sizes)
    placed = 0
    for b in order:
        size, top, choice, room = sizes[b], 0, -1, -1
        for low, high in sorted((offsets[c], offsets[c] + sizes[c]) for c in bits(conflicts[b] & placed)):
            gap = low - top
            if gap >= size and (choice < 0 or gap < room):
                choice, room = top, gap
                if not best_fit:
                    break
            if high > top:
                top = high
        offsets[b] = top if choice < 0 else choice
        placed |= 1 << b
    return offsets
