"""Orders added to save memory (`memory="small"`): an assignment in, more dependences out, never a cycle."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush

from .antichain import Antichains
from .assign import Assignment
from .dag import bits
from .machine import Machine
from .memory import Temporaries, live_bound, precedence
from .program import Library, Program
from .report import Edge
from .waits import Order, exact_waits

Preds = Sequence[Collection[int]]


def shrink(
    program: Program, temps: Temporaries, preds: Preds, assignment: Assignment, machine: Machine
) -> tuple[tuple[frozenset[int], ...], Assignment, tuple[Edge, ...]]:
    """Lower the least arena: (dependences with the added ones, the assignment in an order that keeps them, the added).

    While some buffers of a heaviest antichain may be put one after the other, the pair that lengthens the critical
    path least for the bytes it saves is. Of all states passed the one of least bytes is kept. On one stream, where
    no order can be added, the tasks are reordered instead.
    """
    sizes, masks = temps.sizes, temps.users
    if assignment.streams <= 1:
        return tuple(map(frozenset, preds)), _reorder(preds, assignment, temps), ()
    nodes = Order(len(preds), assignment.order, tuple(preds), assignment.stream, assignment.streams)
    before = list(exact_waits(nodes).before)
    extra: list[set[int]] = [set(p) for p in preds]
    _follow_streams(extra, assignment)
    costs = [task.cost + machine.gap for task in program.tasks]
    copies = sum(1 << v for v, task in enumerate(program.tasks) if is_copy(program, v))
    added: list[Edge] = []
    least, kept = -1, 0
    antichains = Antichains(sizes)
    for _ in range(4 * len(sizes) + 1):
        heavy = antichains.heaviest(precedence(masks, before))
        weight = sum(sizes[b] for b in heavy)
        if least < 0 or weight < least:
            least, kept = weight, len(added)
        pair = _cheapest(heavy, sizes, masks, before, extra, costs, copies)
        if pair is None:
            break
        cost, a, b = pair
        ends = _last(masks[a], before)
        done = 0
        for u in ends:
            done |= before[u]
        for f in _first(masks[b], before):
            added += [Edge(u, f, cost) for u in ends]
            extra[f].update(ends)
            for v, mask in enumerate(before):
                if mask >> f & 1:
                    before[v] = mask | done
    result = [set(p) for p in preds]
    for edge in added[:kept]:
        result[edge.after].add(edge.before)
    final = tuple(map(frozenset, result))
    return final, _reissue(final, assignment), tuple(added[:kept])


def is_copy(program: Program, task: int) -> bool:
    """Whether a task runs on a copy engine: such tasks are never made to wait for kernels, nor kernels for them."""
    kernel = program.tasks[task].kernel
    return isinstance(kernel, Library) and kernel.name in ("upload", "download")


def _cheapest(
    heavy: Sequence[int],
    sizes: Sequence[int],
    masks: Sequence[int],
    before: Sequence[int],
    extra: Sequence[Collection[int]],
    costs: Sequence[float],
    copies: int,
) -> tuple[float, int, int] | None:
    """(added microseconds, first, second) of the best pair of buffers to put in order, if any may be."""
    order = sorted(range(len(before)), key=lambda v: before[v].bit_count())
    top, rank = [0.0] * len(before), list(costs)
    for v in order:
        top[v] = costs[v] + max((top[p] for p in extra[v]), default=0.0)
    for v in reversed(order):
        for p in extra[v]:
            rank[p] = max(rank[p], costs[p] + rank[v])
    path = max(top, default=0.0)
    best: tuple[float, int, int, int, float] | None = None
    done = {b: _union(masks[b], before) for b in heavy}
    ends = {b: max(top[v] for v in _last(masks[b], before)) for b in heavy}
    starts = {b: max(rank[v] for v in _first(masks[b], before)) for b in heavy}
    for a in heavy:
        for b in heavy:
            if a == b or done[a] & masks[b] or bool(masks[a] & copies) != bool(masks[b] & copies):
                continue
            cost, saved = max(0.0, ends[a] + starts[b] - path), min(sizes[a], sizes[b])
            key = (cost / saved, -saved, a, b, cost)
            if best is None or key < best:
                best = key
    return None if best is None else (best[4], best[2], best[3])


def _union(mask: int, before: Sequence[int]) -> int:
    result = 0
    for v in bits(mask):
        result |= before[v]
    return result


def _last(mask: int, before: Sequence[int]) -> list[int]:
    """The members that precede no other member."""
    rest = mask
    for v in bits(mask):
        rest &= ~(before[v] & ~(1 << v))
    return list(bits(rest))


def _first(mask: int, before: Sequence[int]) -> list[int]:
    """The members that follow no other member."""
    return [v for v in bits(mask) if not before[v] & ~(1 << v) & mask]


def _follow_streams(preds: Sequence[set[int]], assignment: Assignment) -> None:
    tail: dict[int, int] = {}
    for v in assignment.order:
        s = assignment.stream[v]
        if s in tail:
            preds[v].add(tail[s])
        tail[s] = v


def _reissue(preds: Preds, assignment: Assignment) -> Assignment:
    """The tasks in an order that keeps `preds` and the streams' orders, as near to the old one as that allows."""
    full = [set(p) for p in preds]
    _follow_streams(full, assignment)
    place = {v: i for i, v in enumerate(assignment.order)}
    followers: list[list[int]] = [[] for _ in full]
    for v, sources in enumerate(full):
        for p in sources:
            followers[p].append(v)
    missing = [len(sources) for sources in full]
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
    return replace(assignment, order=tuple(order))


def _reorder(preds: Preds, assignment: Assignment, temps: Temporaries) -> Assignment:
    """The old order or a greedy one (next the task that leaves the fewest bytes alive), whichever needs less."""
    n, sizes, masks = len(preds), temps.sizes, temps.users
    followers: list[list[int]] = [[] for _ in range(n)]
    for v, sources in enumerate(preds):
        for p in sources:
            followers[p].append(v)
    missing = [len(p) for p in preds]
    touched: list[list[int]] = [[] for _ in range(n)]
    for b, mask in enumerate(masks):
        for v in bits(mask):
            touched[v].append(b)
    ready, done, order = {v for v in range(n) if not missing[v]}, 0, list[int]()
    while ready:
        grown = {}
        for v in ready:
            fresh = sum(sizes[b] for b in touched[v] if not masks[b] & done)
            freed = sum(sizes[b] for b in touched[v] if not masks[b] & ~(done | 1 << v))
            grown[v] = (fresh - freed, fresh, v)
        v = min(ready, key=lambda w: grown[w])
        ready.remove(v)
        order.append(v)
        done |= 1 << v
        for w in followers[v]:
            missing[w] -= 1
            if not missing[w]:
                ready.add(w)
    candidates = [assignment, replace(assignment, order=tuple(order))]
    return min(candidates, key=lambda a: live_bound(temps, _line(a.order)))


def _line(order: Sequence[int]) -> list[int]:
    """What is done when each task is done, if they run one after the other."""
    before, done = [0] * len(order), 0
    for v in order:
        done |= 1 << v
        before[v] = done
    return before
