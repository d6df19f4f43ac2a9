"""Finds the stretches of a graph that repeat with a period, the candidates for loops.

The computing nodes in their order are a row of tokens (op, type, attributes). The distances between equal tokens are
the candidate periods; each is tried on whole arrays at once: where do tokens, and the distances to their arguments,
repeat? So the search takes time linear in the nodes for each of a bounded number of candidates.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...runtime.core.frozen import dataclass
from ..graph.builder import exact_node_attrs
from ..graph.graph import Graph, Node
from ..ops.table import OPS

Ints = np.ndarray[Any, np.dtype[np.int64]]

MOST_ARGS = 8  # nodes with more are never part of a period
CANDIDATES = 6  # periods that are tried for each length of window
WIDEST = 256
MOVING = ("slice", "update")  # their starts may move from iteration to iteration


_NONE = (-1,) * MOST_ARGS


@dataclass(frozen=True, slots=True)
class TokenSequence:
    """The computing nodes of a graph. order[x]: the node at place x. place: of each node, -1 for sources. args: the
    nodes that the node at x takes (-1: none), places: theirs; const: whether they are constants, or numbers of the
    call."""

    order: Ints
    place: Ints
    tokens: Ints
    args: Ints
    places: Ints
    const: np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True)
class RepeatingStretch:
    """Places [begin, end) of a row repeat with a period."""

    begin: int
    end: int
    period: int


def has_parts_moving_by_period(graph: Graph) -> bool:
    """Whether `moving` makes a difference to the graph's tokens."""
    return any(node.op in MOVING for node in graph.nodes)


def tokens_of_repeated_nodes(graph: Graph, moving: bool) -> TokenSequence:
    """moving: slices and updates are alike wherever they start."""
    nodes = graph.nodes
    order = [n for n, node in enumerate(nodes) if OPS[node.op].kind != "source"]
    place = np.full(len(nodes) + 1, -1, np.int64)  # the last: of no argument
    place[order] = np.arange(len(order))
    known: dict[Any, int] = {}
    tokens = []
    taken = []
    for x, number in enumerate(order):
        node = nodes[number]
        few = len(node.args) <= MOST_ARGS
        tokens.append(known.setdefault(_repeat_token_of_node(node, moving), len(known)) if few else -1 - x)
        taken.append(node.args + _NONE[len(node.args) :] if few else _NONE)
    args = np.array(taken, np.int64).reshape(len(order), MOST_ARGS)
    const = np.array([node.op in ("const", "number") for node in nodes] + [True])
    return TokenSequence(np.array(order, np.int64), place, np.array(tokens, np.int64), args, place[args], const[args])


def _repeat_token_of_node(node: Node, moving: bool) -> tuple[Any, ...]:
    attrs = node.attrs
    if moving and node.op in MOVING:
        attrs = tuple(item for item in attrs if item[0] != "starts")
    return node.op, len(node.args), node.type.shape, node.type.dtype, exact_node_attrs(node.op, attrs)


def repeating_stretches(row: TokenSequence, least: int) -> Iterator[RepeatingStretch]:
    """The longest stretch of each candidate period, the best first. Each repeats at least `least` times."""
    found = []
    for period in _candidate_periods(row.tokens):
        same = row.tokens[period:] == row.tokens[:-period]
        relative = (row.places[period:] - row.places[:-period] == period) & (row.places[:-period] >= 0)
        absolute = row.args[period:] == row.args[:-period]
        alike = relative | absolute | (row.const[period:] & row.const[:-period])
        begin, end = _longest_repeating_run(same & alike.all(axis=1))
        if end - begin >= (least - 2) * period:
            found.append(RepeatingStretch(begin, end + period, period))
    found.sort(key=lambda s: s.period)
    best: list[RepeatingStretch] = []
    for s in found:  # twice a period is one too, and hardly longer
        if not best or s.end - s.begin > 1.1 * max(b.end - b.begin for b in best):
            best.append(s)
    yield from sorted(best, key=lambda s: s.begin - s.end)


def _candidate_periods(tokens: Ints) -> list[int]:
    """The most frequent distances between neighbours that look alike, for windows of several lengths: a window that
    occurs once in each period gives it away."""
    window, hashes = 1, tokens.astype(np.uint64)
    found: dict[int, None] = {}
    while window <= WIDEST and len(hashes) > window:
        order = np.argsort(hashes, kind="stable")
        alike = hashes[order[1:]] == hashes[order[:-1]]
        gaps, counts = np.unique(np.diff(order)[alike], return_counts=True)
        best = np.argsort(-counts, kind="stable")[:CANDIDATES]
        found.update(dict.fromkeys(int(gaps[b]) for b in best if counts[b] >= 3))
        with np.errstate(over="ignore"):
            hashes = hashes[:-window] * np.uint64(pow(_BASE, window, 1 << 64)) + hashes[window:]
        window *= 2
    return list(found)


_BASE = 0x9E3779B97F4A7C15


def _longest_repeating_run(flags: np.ndarray[Any, np.dtype[np.bool_]]) -> tuple[int, int]:
    """The longest run of True: [begin, end)."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], flags.view(np.int8), [0]))))
    if not len(edges):
        return 0, 0
    begins, ends = edges[::2], edges[1::2]
    best = int(np.argmax(ends - begins))
    return int(begins[best]), int(ends[best])


def least_traffic_start_of_period(graph: Graph, row: TokenSequence, s: RepeatingStretch) -> int:
    """The offset in the period at which the fewest bytes pass from one iteration to the next; of equals, the one that
    leaves the least over at the end."""
    p = s.period
    middle = s.begin + p * max(1, (s.end - s.begin) // p // 2 - 1)
    weight = np.zeros(p, np.int64)
    for x in range(middle, middle + p):
        number = int(row.order[x])
        users = [int(row.place[u]) for u in graph.users[number]]
        last = max((u for u in users if u < s.end), default=x)
        whole, rest = divmod(last - x, p)
        size = _bytes_carried_between_periods(graph, number)
        weight += whole * size
        for b in range(rest):  # boundaries before places x + 1, ..., last
            weight[(x + 1 + b - s.begin) % p] += size
    phases = np.flatnonzero(weight == weight.min())
    return int(phases[np.argmin((s.end - s.begin - phases) % p)])


def _bytes_carried_between_periods(graph: Graph, number: int) -> int:
    """What carrying a node costs; a view costs what it looks at, so that the view itself is not carried."""
    seen = 0
    while OPS[graph.nodes[number].op].kind == "view":
        number, seen = graph.nodes[number].args[0], 1
    return graph.nodes[number].type.nbytes + seen
