"""Which branches run where: assignments of tasks to streams, and the best of them. Dependences and
costs come in."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import partial

from ..core.frozen import frozen, replace
from ..program.dag import (
    critical_path_ranks_of_dag,
    depth_first_order_of_dag,
    max_parallelism_of_dag,
    maximum_matching_of_bitmasks,
    transitive_predecessors_in_dag,
    transitive_reduction_of_dag,
    transposed_bitmasks,
)
from ..program.report import Candidate, SyncCount
from .cost_model import MachineModel, predict_makespan
from .surroundings import TaskSend
from .waits import StreamOrder, StreamWaits, minimal_stream_waits

Preds = Sequence[Collection[int]]
NO_CHOICE = "one stream is as fast as the longest chain of tasks"


@frozen
class StreamAssignment:
    """order: the tasks as issued, a linear extension of the dependences. stream[v]: where task `v` runs."""

    name: str
    order: tuple[int, ...]
    stream: tuple[int, ...]

    @property
    def streams(self) -> int:
        return max(self.stream, default=-1) + 1


def assign_tasks_to_one_stream(preds: Preds, order: Sequence[int] = ()) -> StreamAssignment:
    """All tasks on one stream, in program order. Or in the order given, which keeps the dependences."""
    return StreamAssignment("1 stream", tuple(order) or tuple(range(len(preds))), (0,) * len(preds))


def assign_streams_for_max_parallelism(
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
    above = transitive_predecessors_in_dag(preds) if above is None else above
    reduced = transitive_reduction_of_dag(preds, above) if reduced is None else reduced
    users = [0] * n
    for v, sources in enumerate(reduced):
        for p in sources:
            users[p] |= 1 << v
    order = sorted((u for u in range(n) if users[u]), key=lambda u: users[u].bit_count() > 1)
    following = maximum_matching_of_bitmasks(users, order)
    heads = sorted(set(range(n)) - set(following))
    chains = []
    for head in heads:
        chain = [head]
        while following[chain[-1]] >= 0:
            chain.append(following[chain[-1]])
        chains.append(chain)
    after = transposed_bitmasks([above[head] for head in heads], [chain[-1] for chain in chains])
    behind = maximum_matching_of_bitmasks(after, range(len(chains)))
    stream = [0] * n
    for number, first in enumerate(sorted(set(range(len(chains))) - set(behind))):
        i = first
        while i >= 0:
            for v in chains[i]:
                stream[v] = number
            i = behind[i]
    rank = critical_path_ranks_of_dag(preds, costs or [1.0] * n)
    return StreamAssignment("max", tuple(sorted(range(n), key=lambda v: (-rank[v], v))), tuple(stream))


def list_schedule_on_streams(
    preds: Preds,
    costs: Sequence[float],
    k: int,
    *,
    gap: float = 0.0,
    hop: float = 0.0,
    rank: Sequence[float] | None = None,
    order: Sequence[int] | None = None,
    name: str = "",
) -> StreamAssignment:
    """List scheduling on at most `k` streams by distance to exit (HEFT: Topcuoglu, Hariri, Wu, 2002).

    The task with the largest rank goes to the stream where it can start first, ties to the stream whose last task is
    the predecessor that ends last. gap, hop: microseconds between tasks on one stream, and across streams.
    order: take the tasks in this order instead, which keeps the dependences; name: of that order.
    """
    n, name = len(preds), f"{k} streams{name}"
    if order is None:
        rank = critical_path_ranks_of_dag(preds, costs) if rank is None else rank
        by_rank = [-r for r in rank]
        order = sorted(range(n), key=by_rank.__getitem__)
    end, stream = [0.0] * n, [0] * n
    free: list[float] = []  # by stream: when its last task ends
    tail: list[int] = []
    for v in order:
        latest, last, across = _latest_ends_of_tasks(preds[v], stream, end)
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


def _latest_ends_of_tasks(
    tasks: Iterable[int], stream: Sequence[int], end: Sequence[float]
) -> tuple[dict[int, float], int, float]:
    """The latest end on each stream, the task that ends last, and the latest end on other streams than its own."""
    latest: dict[int, float] = {}
    last, across = -1, -1.0
    for p in tasks:
        s, e = stream[p], end[p]
        if e > latest.get(s, -1.0):
            latest[s] = e
        if last < 0 or e > end[last]:
            last = p
    if len(latest) > 1:
        across = max((e for s, e in latest.items() if s != stream[last]), default=-1.0)
    return latest, last, across


# A plan on several streams must be predicted to be this much better than one stream, else one stream it is.
MARGIN = 0.05

# Above this many tasks the width is not computed: its cost grows faster than that of all else.
WIDTH_LIMIT = 2000


@frozen
class SchedulingProblem:
    """What is to be scheduled. preds[v]: what task `v` follows. Costs in us; shares of the machine, 0 to 1.

    sends: what leaves while the rest is computed. order: in which tasks are taken if it is not by the longest way to
    the exit, nor program order on one stream; empty: it is."""

    preds: tuple[frozenset[int], ...]
    costs: tuple[float, ...]
    shares: tuple[float, ...]
    machine: MachineModel
    sends: tuple[TaskSend, ...] = ()
    order: tuple[int, ...] = ()


@frozen
class AssignmentOption:
    """An assignment, the waits that it needs, and the summary of both."""

    assignment: StreamAssignment
    waits: StreamWaits
    summary: Candidate


@frozen
class AssignmentOptions:
    """All options found, the one to take, and why. width: of the program, if it was computed."""

    all: tuple[AssignmentOption, ...]
    best: AssignmentOption
    reason: str
    width: int | None


def stream_order_of_assignment(preds: Sequence[frozenset[int]], assignment: StreamAssignment) -> StreamOrder:
    return StreamOrder(len(preds), assignment.order, tuple(preds), assignment.stream, assignment.streams)


def evaluate_stream_assignment(
    work: SchedulingProblem, assignment: StreamAssignment, preds: tuple[frozenset[int], ...] | None = None
) -> AssignmentOption:
    """The exact waits of an assignment and its predicted time. preds: if there are more than the work's own."""
    waits = minimal_stream_waits(stream_order_of_assignment(work.preds if preds is None else preds, assignment))
    predicted = predict_makespan(
        assignment.order, assignment.stream, waits.needed, work.costs, work.shares, work.machine, work.sends
    )
    count = SyncCount(len(waits.recorded_nodes), waits.waits)
    return AssignmentOption(assignment, waits, Candidate(assignment.name, assignment.streams, count, predicted))


def enumerate_stream_assignments(
    work: SchedulingProblem, streams: str | int, *, frugal: bool = False, thorough: bool = False
) -> AssignmentOptions:
    """The assignments for `streams` (`auto`, `max` or a number), and the cheapest predicted.

    One stream is always among those of `auto`, and wins unless another is clearly faster. What cannot be faster is not
    tried: others than one stream where that is as fast as the longest path or the machine's full load allow, and
    `k` streams where a `k`-th of all work takes longer than another. frugal: also assignments that keep few buffers
    alive. thorough: several streams are tried wherever there are independent tasks, for the clock to judge.
    """
    n, machine, preds = len(work.preds), work.machine, work.preds
    if n < 2 and streams != "max":
        alone = evaluate_stream_assignment(work, assign_tasks_to_one_stream(preds))
        return AssignmentOptions((alone,), alone, "asked for" if isinstance(streams, int) else NO_CHOICE, n)
    above = transitive_predecessors_in_dag(preds)
    known = max_parallelism_of_dag(above) if n <= WIDTH_LIMIT else None
    most = n if known is None else known
    rank = critical_path_ranks_of_dag(preds, [cost + machine.gap for cost in work.costs])

    list_scheduled = partial(_list_scheduled_assignment, work, rank)
    widest = partial(assign_streams_for_max_parallelism, preds, work.costs, above=above)
    if streams == "max":
        asked = evaluate_stream_assignment(work, widest())
        return AssignmentOptions((asked,), asked, "asked for", known)
    one = evaluate_stream_assignment(work, assign_tasks_to_one_stream(preds, work.order))
    if isinstance(streams, int):
        asked = list_scheduled(min(streams, most)) if min(streams, most) > 1 else one
        return AssignmentOptions((asked,), asked, "asked for", known)
    reason = _why_one_stream_is_best(work, one, most, rank)
    if reason and (most <= 1 or not thorough):
        return AssignmentOptions((one,), one, reason, known)
    found, total = [one, evaluate_stream_assignment(work, widest())], sum(work.costs)
    counts = sorted({min(k, most) for k in machine.counts if k > 1}, reverse=True)
    wider: AssignmentOption | None = None
    for k in counts:
        if total / k < min(each.summary.predicted for each in found):
            wider = list_scheduled(k, wider=wider)
            found.append(wider)
    if frugal:
        order, wider = depth_first_order_of_dag(preds, above), None
        for k in counts:
            wider = list_scheduled(k, order, ", depth first", wider)
            found.append(wider)
    chosen = _cheapest_stream_assignment(found, known)
    return replace(chosen, best=one, reason=reason) if reason else chosen


def _list_scheduled_assignment(
    work: SchedulingProblem,
    rank: Sequence[float],
    k: int,
    order: Sequence[int] | None = None,
    name: str = "",
    wider: AssignmentOption | None = None,
) -> AssignmentOption:
    """wider: the one of more streams; where it took `k` of them at most, it is this one too."""
    if wider is not None and wider.assignment.streams <= k:
        own = f"{k} streams{name}"
        return replace(wider, assignment=replace(wider.assignment, name=own), summary=replace(wider.summary, name=own))
    order, machine = order or work.order or None, work.machine
    found = list_schedule_on_streams(
        work.preds, work.costs, k, gap=machine.gap, hop=machine.hop, rank=rank, order=order, name=name
    )
    return evaluate_stream_assignment(work, found)


def _why_one_stream_is_best(work: SchedulingProblem, one: AssignmentOption, most: int, rank: Sequence[float]) -> str:
    """Why no other assignment can be clearly faster than one stream; empty if one may be."""
    alone = one.summary.predicted * (1 - MARGIN)
    if most <= 1 or alone <= max(rank, default=0.0):
        return NO_CHOICE
    if alone <= sum(cost * share for cost, share in zip(work.costs, work.shares, strict=True)):
        return "one stream keeps the machine full"
    return ""


def _cheapest_stream_assignment(options: Sequence[AssignmentOption], width: int | None) -> AssignmentOptions:
    one, best = options[0], min(options, key=lambda o: (o.summary.predicted, o.summary.streams))
    if best.summary.predicted > one.summary.predicted * (1 - MARGIN):
        best = one
    if best is one:
        reason = f"no other candidate is predicted to be {MARGIN:.0%} faster"
    else:
        reason = f"predicted {one.summary.predicted / best.summary.predicted:.2f} times as fast as one stream"
    return AssignmentOptions(tuple(options), best, reason, width)
