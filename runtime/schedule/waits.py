"""Which waits between streams are needed. Dependences, an order and streams in; the exact waits and the steps out.

A node is a task (its number) or a join point (a number past the last task): an event recorded after waits alone.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import reduce
from operator import and_, or_

from ..core.frozen import frozen, replace
from ..program.dag import bitmask_of_members, members_of_bitmask
from ..program.plan import Launch, Record, Step, Wait

MOST_SOURCES = 64  # sets of sources that are tried for a join point


@frozen
class StreamOrder:
    """Nodes on streams. order: nodes as issued. preds[v], stream[v]: what node `v` must follow, and where it is."""

    tasks: int
    order: tuple[int, ...]
    preds: tuple[Collection[int], ...]
    stream: tuple[int, ...]
    streams: int


@frozen
class StreamWaits:
    """needed[v]: the nodes of other streams that `v` waits for. before[v]: the set of nodes done when `v` is done."""

    needed: tuple[tuple[int, ...], ...]
    before: tuple[int, ...]

    @property
    def waits(self) -> int:
        return sum(map(len, self.needed))

    @property
    def recorded_nodes(self) -> frozenset[int]:
        """The nodes whose event some node waits for."""
        return frozenset(p for sources in self.needed for p in sources)


def minimal_stream_waits(nodes: StreamOrder) -> StreamWaits:
    """The fewest direct waits that order what must be ordered. The streams and the issue order are given.

    They are the edges between streams in the transitive reduction of the dependences and the streams' own orders.
    What a stream knows to be done is one bit set; predecessors are asked for latest issued first, so that none asked
    for earlier implies it.
    """
    place = {v: i for i, v in enumerate(nodes.order)}
    known = [0] * nodes.streams
    before = [0] * len(nodes.preds)
    needed: list[tuple[int, ...]] = [()] * len(nodes.preds)
    for v in nodes.order:
        s = nodes.stream[v]
        know = known[s]
        missing = [p for p in nodes.preds[v] if not know >> p & 1]
        if missing:
            if len(missing) > 1:
                missing.sort(key=place.__getitem__, reverse=True)
            asked = []
            for p in missing:
                if not know >> p & 1:
                    asked.append(p)
                    know |= before[p]
            needed[v] = tuple(asked)
        known[s] = before[v] = know | 1 << v
    return StreamWaits(tuple(needed), tuple(before))


def replace_waits_by_join_points(nodes: StreamOrder, waits: StreamWaits) -> tuple[StreamOrder, StreamWaits]:
    """Replaces complete bipartite sets of waits by join points while that saves waits.

    Sources A that all precede the sinks B need |A| + |B| - 2 waits through a join point that sits between one of A and
    one of B on their stream, |A| |B| - min(|A|, |B|) without. Best gain first; a join adds no order between tasks.
    """
    while True:
        for sources, sinks in _wait_bicliques(nodes, waits):
            joined = insert_stream_join_point(nodes, waits, sources, sinks)
            fewer = minimal_stream_waits(joined)
            if fewer.waits < waits.waits:
                nodes, waits = joined, fewer
                break
        else:
            return nodes, waits


def _wait_bicliques(nodes: StreamOrder, waits: StreamWaits) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Sources and sinks that a join point might serve, most waits saved first (of not many more sets
    than `MOST_SOURCES`)."""
    waiting = [v for v in nodes.order if len(waits.needed[v]) >= 2]
    if not waiting:
        return []
    last: dict[int, int] = {}
    sources: dict[int, int] = {}
    for v in nodes.order:
        mask = 0
        for p in waits.needed[v]:
            mask |= 1 << p
        s = nodes.stream[v]
        if s in last:
            mask |= 1 << last[s]
        last[s] = v
        if mask & mask - 1:
            sources[v] = mask
    masks: dict[int, None] = {}
    distinct = list(dict.fromkeys(sources[v] for v in waiting))
    for i, a in enumerate(distinct):
        for b in distinct[: i + 1]:
            if (common := a & b) & (common - 1):
                masks[common] = None
        if len(masks) >= MOST_SOURCES:
            break
    found = []
    for mask in masks:
        sinks = tuple(v for v, from_v in sources.items() if from_v & mask == mask)
        if len(sinks) < 2:
            continue
        served = sum(mask >> p & 1 for v in sinks for p in waits.needed[v])
        gain = served - mask.bit_count() - len(sinks) + 2
        if gain > 0:
            found.append((gain, tuple(members_of_bitmask(mask)), sinks))
    found.sort(key=lambda item: -item[0])
    return [(a, b) for _, a, b in found]


def insert_stream_join_point(
    nodes: StreamOrder, waits: StreamWaits, sources: Sequence[int], sinks: Sequence[int]
) -> StreamOrder:
    """Add a join point after `sources` and before `sinks` (none: the end of `sources` is what is asked for).

    It goes on a stream where all that precedes it precedes the sinks anyway (without sinks: precedes a source), and
    all that follows it follows the sources anyway; on a new stream where there is none. So it delays no task.
    """
    wanted, harmless = bitmask_of_members(sources), _nodes_done_before_join(waits, sources, sinks)
    source_streams = {nodes.stream[a] for a in sources}
    sink_streams = {nodes.stream[b] for b in sinks}
    lanes: dict[int, list[int]] = {s: [] for s in sorted(source_streams | sink_streams)}
    for v in nodes.order:
        if nodes.stream[v] in lanes:
            lanes[nodes.stream[v]].append(v)
    best, stream, previous = 0, nodes.streams, -1
    for s, lane in lanes.items():
        cut = 0
        while cut < len(lane) and harmless >> lane[cut] & 1:
            cut += 1
        fits = all(waits.before[v] & wanted == wanted for v in lane[cut:])
        saved = (s in source_streams) + (s in sink_streams)
        if fits and saved > best:
            best, stream, previous = saved, s, lane[cut - 1] if cut else -1
    if not sources:
        stream = 0
    join = len(nodes.preds)
    place = {v: i for i, v in enumerate(nodes.order)}
    at = 1 + max((place[v] for v in (*sources, previous) if v >= 0), default=-1)
    preds = list(nodes.preds)
    for b in sinks:
        preds[b] = frozenset(preds[b]) | {join}
    return replace(
        nodes,
        order=(*nodes.order[:at], join, *nodes.order[at:]),
        preds=(*preds, frozenset(sources)),
        stream=(*nodes.stream, stream),
        streams=max(nodes.streams, stream + 1),
    )


def _nodes_done_before_join(waits: StreamWaits, sources: Sequence[int], sinks: Sequence[int]) -> int:
    """The set of nodes that precede all sinks; without sinks, some source."""
    if not sinks:
        return reduce(or_, (waits.before[a] for a in sources), 0)
    return reduce(and_, (waits.before[v] & ~(1 << v) for v in sinks))


def add_output_completion_waits(
    nodes: StreamOrder, waits: StreamWaits, writers: Sequence[int]
) -> tuple[StreamOrder, StreamWaits, tuple[int, ...]]:
    """Give every output a node that is done when the output is: its last writer, or a join point of its last writers.

    writers[i]: the set of tasks that write output `i`. A task that no output would be waiting for is waited for by the
    last output, so that a call whose outputs are complete is over.
    """
    targets = [_maximal_stream_nodes(mask, waits.before) for mask in writers]
    if targets:
        rest = (1 << nodes.tasks) - 1
        for mask in targets:
            rest &= ~mask
        if rest:
            for mask in targets:
                for v in members_of_bitmask(mask):
                    rest &= ~waits.before[v]
        if rest:
            targets[-1] = _maximal_stream_nodes(targets[-1] | rest, waits.before)
    made: dict[int, int] = {}
    for mask in targets:
        if mask not in made:
            if mask and mask & mask - 1 == 0:
                made[mask] = mask.bit_length() - 1
            else:
                made[mask] = len(nodes.preds)
                nodes = insert_stream_join_point(nodes, waits, tuple(members_of_bitmask(mask)), ())
                waits = minimal_stream_waits(nodes)
    return nodes, waits, tuple(made[mask] for mask in targets)


def _maximal_stream_nodes(mask: int, before: Sequence[int]) -> int:
    """The members of a set that precede no other member."""
    if mask & (mask - 1) == 0:
        return mask
    result = mask
    for v in members_of_bitmask(mask):
        result &= ~(before[v] & ~(1 << v))
    return result


def emit_plan_steps(
    nodes: StreamOrder, waits: StreamWaits, completion: Sequence[int]
) -> tuple[tuple[Step, ...], int, tuple[int, ...]]:
    """The steps, the number of events, and the event of each output. An event is recorded right after its node."""
    recorded = waits.recorded_nodes | {v for v in completion if v >= 0}
    event: dict[int, int] = {}
    steps: list[Step] = []
    for v in nodes.order:
        s = nodes.stream[v]
        for p in waits.needed[v]:
            steps.append(Wait(s, event[p]))
        if v < nodes.tasks:
            steps.append(Launch(s, v))
        if v in recorded:
            event[v] = len(event)
            steps.append(Record(s, event[v]))
    return tuple(steps), len(event), tuple(event[v] for v in completion)
