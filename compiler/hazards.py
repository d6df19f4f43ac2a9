"""Updates in place: groups in, the orders that keep readers of overwritten memory before its writer out."""

from __future__ import annotations

from collections.abc import Sequence

from .graph import Node
from .groups import Cover, OpenGroup
from .materialize import part_regions
from .ops import OPS


class Conflict(Exception):
    """Updates (by their number before `materialize`) that cannot be done in place: what they overwrite is read later,
    or by the very kernel that writes it, at other elements."""

    def __init__(self, updates: frozenset[int]) -> None:
        super().__init__(f"updates {sorted(updates)} need a second buffer")
        self.updates = updates


Extent = tuple[tuple[int, int], ...]  # lowest and highest index along each axis


def _extent(shape: Sequence[int], starts: Sequence[int], steps: Sequence[int]) -> Extent:
    return tuple(
        (start + min(0, step * (n - 1)), start + max(0, step * (n - 1)))
        for n, start, step in zip(shape, starts, steps, strict=True)
    )


def _meet(a: Sequence[tuple[int, int]], b: Sequence[tuple[int, int]]) -> bool:
    return all(low <= high2 and low2 <= high for (low, high), (low2, high2) in zip(a, b, strict=True))


def order_updates(cover: Cover) -> None:
    """Whoever reads memory that an update will overwrite comes before it. Raises Conflict where that cannot be."""
    bad: set[int] = set()
    nodes = cover.graph.nodes
    for number, node in enumerate(nodes):
        if node.op != "update" or number not in cover.home:
            continue
        writer = _writer(cover, node.args[1])
        region = _extent(nodes[node.args[1]].type.shape, node.attr("starts"), node.attr("steps"))
        version = node.args[0]
        while True:  # this version and all older ones in the same memory
            for reader in sorted(cover.readers_of(version)):
                if cover.groups[reader].kind == "assembly":
                    continue
                if _safe(cover, cover.groups[reader], version, node, region, writer):
                    continue
                if reader == writer or cover.reaches(writer, reader):
                    bad.add(node.attr("origin"))
                else:
                    cover.groups[reader].after.add(writer)
            older = nodes[version]
            for before in _earlier_writers(cover, version, region):
                if before == writer or cover.reaches(writer, before):
                    bad.add(node.attr("origin"))
                else:
                    cover.groups[before].after.add(writer)
            if older.op != "update":
                break
            version = older.args[0]
    if bad:
        raise Conflict(frozenset(bad))


def _earlier_writers(cover: Cover, version: int, region: Extent) -> list[int]:
    """The groups that wrote, for this version, elements that an update will write again."""
    node = cover.graph.nodes[version]
    if OPS[node.op].kind != "assembly":
        return [cover.find(cover.home[version])]
    parts = list(zip(node.args, part_regions(node), strict=True))
    extents = [(p, _extent(cover.graph.nodes[p].type.shape, *at)) for p, at in parts[1 if node.op == "update" else 0 :]]
    return [_writer(cover, p) for p, extent in extents if _meet(extent, region)]


def _writer(cover: Cover, part: int) -> int:
    """The group that stores a part of an assembly."""
    node = cover.graph.nodes[part]
    return cover.find(cover.home[part if part in cover.home else node.args[0]])


def _safe(cover: Cover, group: OpenGroup, version: int, update: Node, region: Extent, writer: int) -> bool:
    """Whether the group reads no element that the update writes, or just the one that it writes itself."""
    maps = group.maps.get(version)
    if maps is None or version in group.gathers:
        return False
    value = update.args[1]
    root = (
        value if value in group.maps else cover.graph.nodes[value].args[0] if cover.graph.nodes[value].args else value
    )
    for m in maps:
        read = [
            (start + min(0, step * (group.domain[a] - 1)), start + max(0, step * (group.domain[a] - 1)))
            if a >= 0
            else (start, start)
            for a, step, start in m
        ]
        if not _meet(read, region):
            continue
        if group.number != writer or root != value:
            return False
        (own,) = group.maps[value] if len(group.maps[value]) == 1 else (None,)
        at = zip(own or (), update.attr("starts"), update.attr("steps"), strict=False)
        lengths = cover.graph.nodes[version].type.shape
        wanted = tuple(
            (-1, 0, 0) if n == 1 else (a, s * t if a >= 0 else 0, first + start * t)
            for ((a, s, start), first, t), n in zip(at, lengths, strict=False)
        )
        if m != wanted:
            return False
    return True
