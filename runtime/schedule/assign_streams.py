"""Which branches run where: dependences and costs in, an Assignment of tasks to streams out."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..core.frozen import dataclass
from ..program.dag import (
    bitmask_of,
    critical_path_ranks,
    maximum_matching,
    set_bits,
    transitive_predecessors,
    transitive_reduction,
)

Preds = Sequence[Collection[int]]


@dataclass(frozen=True, slots=True)
class StreamAssignment:
    """order: the tasks as issued, a linear extension of the dependences. stream[v]: where task `v` runs."""

    name: str
    order: tuple[int, ...]
    stream: tuple[int, ...]

    @property
    def streams(self) -> int:
        return max(self.stream, default=-1) + 1


def assign_to_one_stream(preds: Preds) -> StreamAssignment:
    """All tasks on one stream, in program order."""
    return StreamAssignment("1 stream", tuple(range(len(preds))), (0,) * len(preds))


def assign_max_parallel(
    preds: Preds,
    costs: Sequence[float] | None = None,
    *,
    above: Sequence[int] | None = None,
    reduced: Preds | None = None,
) -> StreamAssignment:
    """Puts every two tasks that may run side by side on two streams. It takes the fewest waits and event records.

    A maximum matching of the transitive reduction chains tasks together (Kwon et al., Nimble, 2020), producers of one
    consumer first; a second one puts chains behind each other wherever that costs no concurrency and no wait.
    preds[v]: the tasks that `v` follows, all smaller than `v`. costs order the issue; above, reduced: if known already.
    """
    n = len(preds)
    above = transitive_predecessors(preds) if above is None else above
    reduced = transitive_reduction(preds, above) if reduced is None else reduced
    users = [0] * n
    for v, sources in enumerate(reduced):
        for p in sources:
            users[p] |= 1 << v
    order = sorted((u for u in range(n) if users[u]), key=lambda u: users[u].bit_count() > 1)
    following = maximum_matching(users, order)
    heads = sorted(set(range(n)) - set(following))
    chains = []
    for head in heads:
        chain = [head]
        while following[chain[-1]] >= 0:
            chain.append(following[chain[-1]])
        chains.append(chain)
    after = [0] * len(chains)
    chain_of = {chain[-1]: i for i, chain in enumerate(chains)}
    tails = bitmask_of(chain_of)
    for j, head in enumerate(heads):
        for tail in set_bits(above[head] & tails):
            after[chain_of[tail]] |= 1 << j
    behind = maximum_matching(after, range(len(chains)))
    stream = [0] * n
    for number, first in enumerate(sorted(set(range(len(chains))) - set(behind))):
        i = first
        while i >= 0:
            for v in chains[i]:
                stream[v] = number
            i = behind[i]
    rank = critical_path_ranks(preds, costs or [1.0] * n)
    return StreamAssignment("max", tuple(sorted(range(n), key=lambda v: (-rank[v], v))), tuple(stream))


def list_schedule(
    preds: Preds,
    costs: Sequence[float],
    k: int,
    *,
    gap: float = 0.0,
    hop: float = 0.0,
    rank: Sequence[float] | None = None,
    order: Sequence[int] | None = None,
) -> StreamAssignment:
    """List scheduling on at most `k` streams by distance to exit (HEFT: Topcuoglu, Hariri, Wu, 2002).

    The task with the largest rank goes to the stream where it can start first, ties to the stream whose last task is
    the predecessor that ends last. gap, hop: microseconds between tasks on one stream, and across streams.
    order: take the tasks in this order instead, which keeps the dependences.
    """
    n, name = len(preds), f"{k} streams" if order is None else f"{k} streams, depth first"
    if order is None:
        rank = critical_path_ranks(preds, costs) if rank is None else rank
        by_rank = [-r for r in rank]
        order = sorted(range(n), key=by_rank.__getitem__)
    end, stream = [0.0] * n, [0] * n
    free: list[float] = []  # by stream: when its last task ends
    tail: list[int] = []
    for v in order:
        # The latest end of a predecessor on each stream; the last one of all, and the latest on other streams than it.
        latest: dict[int, float] = {}
        last, across = -1, -1.0
        for p in preds[v]:
            s, e = stream[p], end[p]
            if e > latest.get(s, -1.0):
                latest[s] = e
            if last < 0 or e > end[last]:
                last = p
        if len(latest) > 1:
            across = max((e for s, e in latest.items() if s != stream[last]), default=-1.0)
        best, choice = (float("inf"), True, 0), -1
        others = [len(free)] if len(free) < k else []
        if free:
            others.append(free.index(min(free)))
        for s in (*latest, *others):
            start = free[s] + gap if s < len(free) else 0.0
            if last >= 0:
                arrival = across if s == stream[last] else end[last]
                start = max(start, arrival + hop if arrival >= 0 else 0.0)
            key = (start, s >= len(free) or tail[s] != last, s)
            if key < best:
                best, choice = key, s
        stream[v] = choice
        if choice == len(free):
            free.append(0.0)
            tail.append(v)
        end[v] = free[choice] = best[0] + costs[v]
        tail[choice] = v
    return StreamAssignment(name, tuple(order), tuple(stream))
