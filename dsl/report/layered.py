"""A layered drawing of a graph in program order: the arguments of each node in, a place for each node out. Pure.

The layers are longest paths; within a layer nodes stand near the middle of their neighbours, never nearer to each other
than one step: the least-squares answer, by pooling adjacent violators (Ayer et al., 1955). Sugiyama, Tagawa and Toda's
scheme (1981) without dummy nodes, since programs come in an order of their own: linear but for the sorts.
"""

from __future__ import annotations

from collections.abc import Sequence

SWEEPS = 4


def layered_node_positions(above: Sequence[Sequence[int]]) -> list[tuple[float, int]]:
    """x and layer of each node. above[i]: the nodes that node i takes, all of smaller numbers.

    >>> layered([[], [], [0, 1]])
    [(0.0, 0), (1.0, 0), (0.5, 1)]
    """
    layer: list[int] = []
    for taken in above:
        layer.append(1 + max((layer[a] for a in taken), default=-1))
    below: list[list[int]] = [[] for _ in above]
    for node, taken in enumerate(above):
        for a in taken:
            below[a].append(node)
    for node in range(len(above) - 1, -1, -1):  # a source stands right above what first takes it
        if not above[node] and below[node]:
            layer[node] = min(layer[b] for b in below[node]) - 1
    rows: list[list[int]] = [[] for _ in range(1 + max(layer, default=-1))]
    for node, at in enumerate(layer):
        rows[at].append(node)
    x = [0.0] * len(above)
    for row in rows:
        for place, node in enumerate(row):
            x[node] = float(place)
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        for row in rows if down else reversed(rows):
            _settle_row_of_drawing(row, x, above if down else below)
    left = min(x, default=0.0)
    return [(round(at - left, 2), row) for at, row in zip(x, layer, strict=True)]


def _settle_row_of_drawing(row: Sequence[int], x: list[float], neighbours: Sequence[Sequence[int]]) -> None:
    """Move the nodes of a row towards the middle of their neighbours. Their order is that of where they would like to
    be."""
    wished = {n: sum(x[m] for m in neighbours[n]) / len(neighbours[n]) if neighbours[n] else x[n] for n in row}
    order = sorted(row, key=lambda n: (wished[n], n))
    pools: list[tuple[float, int]] = []  # the sum of the wishes and how many: those that would stand too near
    for place, node in enumerate(order):
        total, count = wished[node] - place, 1
        while pools and pools[-1][0] * count > total * pools[-1][1]:
            more, others = pools.pop()
            total, count = total + more, count + others
        pools.append((total, count))
    place = 0
    for total, count in pools:
        for _ in range(count):
            x[order[place]] = total / count + place
            place += 1
