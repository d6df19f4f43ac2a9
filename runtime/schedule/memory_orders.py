"""Orders added to save memory (`memory="small"`): an assignment in, more dependences out, never a cycle."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..core.frozen import frozen, replace
from ..program.dag import (
    depth_first_order_of_dag,
    followers_in_dag,
    members_of_bitmask,
    nearest_order_of_dag,
    transitive_predecessors_in_dag,
)
from ..program.program import Library, Program
from ..program.report import AddedDependence
from .antichain import HeaviestAntichains
from .assign_streams import StreamAssignment
from .cost_model import COPIES, MachineModel
from .memory_plan import Temporaries, buffer_lifetimes
from .waits import StreamOrder, minimal_stream_waits

Preds = Sequence[Collection[int]]


def add_memory_saving_orders(
    program: Program,
    temps: Temporaries,
    preds: Sequence[frozenset[int]],
    assignment: StreamAssignment,
    machine: MachineModel,
) -> tuple[tuple[frozenset[int], ...], StreamAssignment, tuple[AddedDependence, ...]]:
    """Lower the least arena: (dependences with the added ones, the assignment in an order that keeps them, the added).

    While some buffers of a heaviest antichain may be put one after the other, the pair that lengthens the critical
    path least for the bytes it saves is. Of all states passed the first of the fewest bytes is kept. On one stream,
    where no order can be added, the tasks are reordered instead.
    """
    if assignment.streams <= 1:
        return tuple(preds), _reorder_stream_for_least_memory(preds, assignment, temps), ()
    nodes = StreamOrder(len(preds), assignment.order, tuple(preds), assignment.stream, assignment.streams)
    before = list(minimal_stream_waits(nodes).before)
    full = _with_stream_predecessors(preds, assignment)
    costs = [task.cost + machine.gap for task in program.tasks]
    copies = sum(1 << v for v, task in enumerate(program.tasks) if _scheduled_on_copy_engine(task.kernel))
    antichains = HeaviestAntichains(temps.sizes)
    added: list[AddedDependence] = []
    fewest, kept = -1, 0
    for _ in range(4 * len(temps.sizes) + 1):
        heavy = antichains.heaviest_antichain(buffer_lifetimes(temps, before).earlier)
        weight = sum(temps.sizes[b] for b in heavy)
        if fewest < 0 or weight < fewest:
            fewest, kept = weight, len(added)
        paths = _longest_paths_through_tasks(full, before, costs)
        pair = _cheapest_memory_saving_order(heavy, temps, before, paths, copies)
        if pair is None:
            break
        added += _order_tasks_after(temps.users[pair[0]], temps.users[pair[1]], full, before, paths)
    needed = _drop_implied_memory_orders(preds, assignment, added[:kept])
    final = [set(p) for p in preds]
    for edge in needed:
        final[edge.after].add(edge.before)
    result = tuple(map(frozenset, final))
    return (
        result,
        replace(
            assignment,
            order=tuple(nearest_order_of_dag(_with_stream_predecessors(result, assignment), assignment.order)),
        ),
        needed,
    )


def _scheduled_on_copy_engine(kernel: object) -> bool:
    """Whether it runs on a copy engine: such tasks are never made to wait for kernels, nor kernels for them."""
    return isinstance(kernel, Library) and kernel.name in COPIES


@frozen
class _LongestTaskPaths:
    """top[v], rank[v]: the longest paths to the end of task `v` and from its start; longest: of all."""

    top: list[float]
    rank: list[float]
    longest: float

    def lengthened_path(self, u: int, v: int) -> float:
        """By how much the longest path grows if `v` must follow `u`."""
        return max(0.0, self.top[u] + self.rank[v] - self.longest)


def _longest_paths_through_tasks(preds: Preds, before: Sequence[int], costs: Sequence[float]) -> _LongestTaskPaths:
    order = sorted(range(len(before)), key=lambda v: before[v].bit_count())
    top, rank = [0.0] * len(before), list(costs)
    for v in order:
        top[v] = costs[v] + max((top[p] for p in preds[v]), default=0.0)
    for v in reversed(order):
        for p in preds[v]:
            rank[p] = max(rank[p], costs[p] + rank[v])
    return _LongestTaskPaths(top, rank, max(top, default=0.0))


def _cheapest_memory_saving_order(
    heavy: Sequence[int], temps: Temporaries, before: Sequence[int], paths: _LongestTaskPaths, copies: int
) -> tuple[int, int] | None:
    """The pair of buffers (first, second) to put in order that costs least time for the bytes saved, if any may be."""
    users, sizes = temps.users, temps.sizes
    done = {b: _union_of_task_predecessors(users[b], before) for b in heavy}
    ends = {b: max(_maximal_tasks(users[b], before), key=lambda v: paths.top[v]) for b in heavy}
    starts = {b: max(_minimal_tasks(users[b], before), key=lambda v: paths.rank[v]) for b in heavy}
    best: tuple[float, int, int, int] | None = None
    for a in heavy:
        for b in heavy:
            if a == b or done[a] & users[b] or bool(users[a] & copies) != bool(users[b] & copies):
                continue
            saved = min(sizes[a], sizes[b])
            key = (paths.lengthened_path(ends[a], starts[b]) / saved, -saved, a, b)
            if best is None or key < best:
                best = key
    return None if best is None else (best[2], best[3])


def _order_tasks_after(
    first: int, second: int, preds: Sequence[set[int]], before: list[int], paths: _LongestTaskPaths
) -> list[AddedDependence]:
    """Let a set of tasks wait for another one: new edges, with `preds` and `before` brought up to date."""
    ends, starts = _maximal_tasks(first, before), _minimal_tasks(second, before)
    done = _union_of_task_predecessors(first, before)
    edges = [AddedDependence(u, v, paths.lengthened_path(u, v)) for v in starts for u in ends]
    for edge in edges:
        preds[edge.after].add(edge.before)
    for v, mask in enumerate(before):
        if any(mask >> start & 1 for start in starts):
            before[v] = mask | done
    return edges


def _union_of_task_predecessors(mask: int, before: Sequence[int]) -> int:
    result = 0
    for v in members_of_bitmask(mask):
        result |= before[v]
    return result


def _maximal_tasks(mask: int, before: Sequence[int]) -> list[int]:
    """The members that precede no other member."""
    rest = mask
    for v in members_of_bitmask(mask):
        rest &= ~(before[v] & ~(1 << v))
    return members_of_bitmask(rest)


def _minimal_tasks(mask: int, before: Sequence[int]) -> list[int]:
    """The members that follow no other member."""
    return [v for v in members_of_bitmask(mask) if not before[v] & ~(1 << v) & mask]


def _with_stream_predecessors(preds: Preds, assignment: StreamAssignment) -> list[set[int]]:
    """The dependences and each task's predecessor on its stream."""
    result = [set(sources) for sources in preds]
    tail: dict[int, int] = {}
    for v in assignment.order:
        s = assignment.stream[v]
        if s in tail:
            result[v].add(tail[s])
        tail[s] = v
    return result


def _drop_implied_memory_orders(
    preds: Preds, assignment: StreamAssignment, added: Sequence[AddedDependence]
) -> tuple[AddedDependence, ...]:
    """Those of the added orders that the dependences, the streams and the other added orders do not imply."""
    full = _with_stream_predecessors(preds, assignment)
    for edge in added:
        full[edge.after].add(edge.before)
    above = [0] * len(full)
    for v in nearest_order_of_dag(full, assignment.order):
        for p in full[v]:
            above[v] |= above[p] | 1 << p
    return tuple(e for e in added if not any(above[w] >> e.before & 1 for w in full[e.after]))


def _reorder_stream_for_least_memory(
    preds: Sequence[frozenset[int]], assignment: StreamAssignment, temps: Temporaries
) -> StreamAssignment:
    """The tasks of one stream in the order, of three, that keeps the fewest bytes alive."""
    orders = [
        list(assignment.order),
        depth_first_order_of_dag(preds, transitive_predecessors_in_dag(preds)),
        _least_memory_growth_order(preds, temps),
    ]

    def most_bytes_alive(order: list[int]) -> int:
        before, done = [0] * len(order), 0
        for v in order:
            done |= 1 << v
            before[v] = done
        return buffer_lifetimes(temps, before).bound

    best = min(orders, key=most_bytes_alive)
    return replace(assignment, order=tuple(best))


def _least_memory_growth_order(preds: Preds, temps: Temporaries) -> list[int]:
    """Next is always the task after which the fewest bytes are alive."""
    n, users = len(preds), temps.users
    followers = followers_in_dag(preds)
    touched: list[list[int]] = [[] for _ in range(n)]
    for b, mask in enumerate(users):
        for v in members_of_bitmask(mask):
            touched[v].append(b)
    missing = [len(p) for p in preds]
    ready, done, order = {v for v in range(n) if not missing[v]}, 0, list[int]()

    def memory_growth_of_task(v: int) -> tuple[int, int, int]:
        fresh = sum(temps.sizes[b] for b in touched[v] if not users[b] & done)
        freed = sum(temps.sizes[b] for b in touched[v] if not users[b] & ~(done | 1 << v))
        return fresh - freed, fresh, v

    while ready:
        v = min(ready, key=memory_growth_of_task)
        ready.remove(v)
        order.append(v)
        done |= 1 << v
        for w in followers[v]:
            missing[w] -= 1
            if not missing[w]:
                ready.add(w)
    return order
