"""Directed acyclic graphs of tasks as bit sets. In go each task's predecessors, out come orders, closures, matchings.

Tasks are numbered 0, 1, ... and predecessors have smaller numbers. A set of tasks is an int whose bit `v` is task `v`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from heapq import heapify, heappop, heappush

import numpy as np

BLOCK = 512  # masks, a multiple of 8, whose bits are taken apart at once


def members_of_bitmask(mask: int) -> list[int]:
    """The members of a set, smallest first."""
    if mask.bit_count() * 4 > mask.bit_length():
        return [i for i, digit in enumerate(bin(mask)[:1:-1]) if digit == "1"]
    members, below = [], 0
    while mask:  # which is cut behind each member: those of a set are often near each other
        place = (mask & -mask).bit_length()
        below += place
        members.append(below - 1)
        mask >>= place
    return members


def bitmask_of_members(members: Collection[int]) -> int:
    mask = 0
    for member in members:
        mask |= 1 << member
    return mask


def transposed_bitmasks(masks: Sequence[int], columns: Sequence[int]) -> list[int]:
    """For each of some members the set of the masks that have it."""
    length, parts = (max(columns, default=0) >> 3) + 1, []
    below = (1 << 8 * length) - 1
    for first in range(0, len(masks), BLOCK):
        rows = b"".join([(mask & below).to_bytes(length, "little") for mask in masks[first : first + BLOCK]])
        bits = np.unpackbits(np.frombuffer(rows, np.uint8).reshape(-1, length), axis=1, bitorder="little")
        parts.append(np.packbits(bits[:, columns], axis=0, bitorder="little"))
    return [int.from_bytes(column.tobytes(), "little") for column in np.concatenate(parts).T] if parts else []


def followers_in_dag(preds: Sequence[Collection[int]]) -> list[list[int]]:
    """For each task those that it precedes, smallest first."""
    followers: list[list[int]] = [[] for _ in preds]
    for v, sources in enumerate(preds):
        for p in sources:
            followers[p].append(v)
    return followers


def nearest_order_of_dag(preds: Sequence[Collection[int]], preferred: Sequence[int]) -> list[int]:
    """An order that keeps `preds`, as near to the preferred one as that allows. Predecessors may have any number."""
    place = {v: i for i, v in enumerate(preferred)}
    followers, missing = followers_in_dag(preds), [len(sources) for sources in preds]
    ready = [(place[v], v) for v, count in enumerate(missing) if not count]
    heapify(ready)
    order = []
    while ready:
        _, v = heappop(ready)
        order.append(v)
        for w in followers[v]:
            missing[w] -= 1
            if not missing[w]:
                heappush(ready, (place[w], w))
    return order


def transitive_predecessors_in_dag(preds: Sequence[Collection[int]]) -> list[int]:
    """For each task all that must come before it."""
    above: list[int] = []
    for sources in preds:
        mask = 0
        for p in sources:
            mask |= above[p] | 1 << p
        above.append(mask)
    return above


def transitive_reduction_of_dag(preds: Sequence[Collection[int]], above: Sequence[int]) -> list[list[int]]:
    """The transitive reduction: each task's predecessors that no other predecessor implies. `above`: its ancestors."""
    reduced: list[list[int]] = []
    for sources in preds:
        covered, kept = 0, []
        for p in sorted(sources, reverse=True):
            if not covered >> p & 1:
                kept.append(p)
                covered |= above[p]
        reduced.append(kept)
    return reduced


def critical_path_ranks_of_dag(preds: Sequence[Collection[int]], costs: Sequence[float]) -> list[float]:
    """For each task the cost of the longest path from its start to an exit."""
    rank = [0.0] * len(preds)
    for v in range(len(preds) - 1, -1, -1):
        rank[v] += costs[v]
        for p in preds[v]:
            if rank[p] < rank[v]:
                rank[p] = rank[v]
    return rank


def depth_first_order_of_dag(preds: Sequence[Collection[int]], above: Sequence[int]) -> list[int]:
    """An order that finishes what it has begun: before each task what it needs, the largest part first."""
    order: list[int] = []
    begun, done = [False] * len(preds), [False] * len(preds)
    used = bitmask_of_members({p for sources in preds for p in sources})
    for exit_task in (v for v in range(len(preds)) if not used >> v & 1):
        stack = [exit_task]
        while stack:
            v = stack[-1]
            if begun[v]:
                stack.pop()
                if not done[v]:
                    done[v] = True
                    order.append(v)
                continue
            begun[v] = True
            stack += sorted((p for p in preds[v] if not begun[p]), key=lambda p: (above[p].bit_count(), -p))
    return order


def maximum_matching_of_bitmasks(adjacent: Sequence[int], order: Sequence[int], begun: Sequence[int] = ()) -> list[int]:
    """A maximum matching of a bipartite graph; -1 for left vertices without a partner.

    adjacent[u]: the set of right vertices beside left vertex `u`. Left vertices are augmented in `order`, and one that
    is matched stays matched, so that a prefix of the order gets as many partners as it can have (matching matroid).
    begun: a matching that is extended, the partners as they are returned.
    Augmenting paths by breadth-first search (Kuhn, 1955; the tree of a failed search is never searched again).
    """
    partner = list(begun) or [-1] * len(adjacent)
    owner = {right: left for left, right in enumerate(partner) if right >= 0}
    free, usable = ~bitmask_of_members(owner), -1
    for root in order:
        if partner[root] >= 0:
            continue
        reached, queue, tree, end = 0, [root], dict[int, int](), -1
        for left in queue:
            hit = adjacent[left] & free & usable
            if hit:
                end = (hit & -hit).bit_length() - 1
                tree[end] = left
                break
            fresh = adjacent[left] & usable & ~reached
            reached |= fresh
            for right in members_of_bitmask(fresh):
                tree[right] = left
                queue.append(owner[right])
        if end < 0:
            usable &= ~reached
            continue
        free &= ~(1 << end)
        while end >= 0:
            left = tree[end]
            owner[end] = left
            partner[left], end = end, partner[left]
    return partner


def max_parallelism_of_dag(above: Sequence[int]) -> int:
    """The most tasks that no order connects. A path cover of the closure finds them (Dilworth, 1950)."""
    begun, free = [-1] * len(above), -1
    for v, mask in enumerate(above):  # nearly all find a partner in the last task that has none: few are searched for
        if last := (mask & free).bit_length():
            begun[v] = last - 1
            free ^= 1 << last - 1
    partner = maximum_matching_of_bitmasks(above, range(len(above)), begun)
    return sum(p < 0 for p in partner)
