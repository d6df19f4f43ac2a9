"""Updates in place: groups in, the orders that keep readers of overwritten memory before its writer out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..graph.graph import Graph, Node
from ..layout.index_maps import FIXED, Map, differ_in_unit_axes_only
from ..ops.table import OPS
from ..passes.materialize import Region, assembly_regions, can_be_stored
from .groups import FusionCover, OpenFusionGroup


class InplaceConflict(Exception):
    """Updates (by their number before `materialize`) that cannot be done in place: what they overwrite is read later,
    or by the very kernel that writes it, at other elements."""

    def __init__(self, updates: frozenset[int]) -> None:
        super().__init__(f"updates {sorted(updates)} need a second buffer")
        self.updates = updates


Extent = tuple[tuple[int, int], ...]  # lowest and highest index along each axis


def _region_extent(shape: Sequence[int], starts: Sequence[int], steps: Sequence[int]) -> Extent:
    return tuple(
        (start + min(0, step * (n - 1)), start + max(0, step * (n - 1)))
        for n, start, step in zip(shape, starts, steps, strict=True)
    )


def _regions_may_meet(a: Sequence[tuple[int, int]], b: Sequence[tuple[int, int]]) -> bool:
    return all(low <= high2 and low2 <= high for (low, high), (low2, high2) in zip(a, b, strict=True))


ANYWHERE = (-(1 << 62), 1 << 62)  # the lowest and highest index of what may be at any
Event = tuple[Extent | None, Any]  # where in an array something is read or written (None: anywhere), and what


class _History:
    """What happened to an array up to each of its versions, found by place: newest first."""

    def __init__(self, graph: Graph, events: Callable[[int], Sequence[Event]]) -> None:
        """events: those of one version, the first one last."""
        self.graph, self.events = graph, events
        self.known: dict[int, tuple[_Events, int]] = {}

    def before(self, version: int, region: Extent) -> Iterator[Any]:
        """The events of a version and of all older ones in the same memory, where the region is."""
        new, nodes = [], self.graph.nodes
        while version not in self.known:
            new.append(version)
            if nodes[version].op != "update":
                break
            version = nodes[version].args[0]
        found, count = self.known.get(version) or (_Events(len(region)), 0)
        if new and len(found.what) != count:  # another array began as this version
            found = found.first(count)
        for each in reversed(new):
            for extent, what in self.events(each):
                found.add(extent, what)
            self.known[each] = found, len(found.what)
        if new:
            count = len(found.what)
        return found.newest_at(region, count)


class _Events:
    """Events in their order, and a table of their extents."""

    def __init__(self, rank: int) -> None:
        self.what: list[Any] = []
        self.lows, self.highs = np.empty((2, 16, rank), np.int64)

    def first(self, count: int) -> _Events:
        found = _Events(self.lows.shape[1])
        found.what, found.lows, found.highs = self.what[:count], self.lows.copy(), self.highs.copy()
        return found

    def add(self, extent: Extent | None, what: Any) -> None:
        count = len(self.what)
        if count == len(self.lows):
            self.lows, self.highs = (np.concatenate([x, np.empty_like(x)]) for x in (self.lows, self.highs))
        for axis, (low, high) in enumerate([ANYWHERE] * self.lows.shape[1] if extent is None else extent):
            self.lows[count, axis], self.highs[count, axis] = low, high
        self.what.append(what)

    def newest_at(self, region: Extent, count: int) -> Iterator[Any]:
        meets = np.ones(count, bool)
        for axis, (low, high) in enumerate(region):
            meets &= (self.lows[:count, axis] <= high) & (self.highs[:count, axis] >= low)
        return (self.what[i] for i in meets.nonzero()[0][::-1].tolist())


def overwritten_nodes(graph: Graph) -> Iterator[tuple[int, int]]:
    """(stored node, one that is stored later where it was): what follows from the graph, before there are groups."""
    history = _History(graph, lambda version: _parts_of_version(graph, version)[::-1])
    for node in graph.nodes:
        if node.op == "update":
            later = _root_of_part(graph, node.args[1])
            for part in history.before(node.args[0], _region_of_update(graph, node)):
                yield _root_of_part(graph, part), later


def _region_of_update(graph: Graph, node: Node) -> Extent:
    return _region_extent(graph.nodes[node.args[1]].type.shape, node.attr("starts"), node.attr("steps"))


def order_updates(cover: FusionCover) -> None:
    """Whoever reads memory that an update will overwrite comes before it. Raises Conflict where that cannot be."""
    bad: set[int] = set()
    graph = cover.graph
    history = _History(graph, lambda version: _uses_of_version(cover, version))
    for number, node in enumerate(graph.nodes):
        if node.op != "update" or number not in cover.home:
            continue
        writer = _group_storing_part(cover, node.args[1])
        region = _region_of_update(graph, node)
        for version, group, maps in history.before(node.args[0], region):
            if group != writer and cover.reaches(group, writer):
                continue
            if maps is not WRITES and _reads_nothing_updated(
                cover, cover.groups[group], version, maps, node, region, writer
            ):
                continue
            if group == writer or cover.reaches(writer, group):
                bad.add(node.attr("origin"))
            else:
                cover.order(group, writer)
    if bad:
        raise InplaceConflict(frozenset(bad))


WRITES: Any = "writes"  # in place of the maps of a group that reads
Use = tuple[int, int, Any]  # a version, a group, how its domain reads the version (None: anywhere) or WRITES


def _uses_of_version(cover: FusionCover, version: int) -> list[Event]:
    """Who reads and who wrote a version: those who wrote first."""
    parts = reversed(_parts_of_version(cover.graph, version))
    writers: list[Event] = [(at, (version, _group_storing_part(cover, part), WRITES)) for at, part in parts]
    return [*writers, *reversed([*_readers_of_version(cover, version)])]


def _parts_of_version(graph: Graph, version: int) -> Sequence[tuple[Extent | None, int]]:
    """What was stored for a version, and where."""
    node = graph.nodes[version]
    if OPS[node.op].kind != "assembly":
        return [(None, version)]
    parts = zip(node.args, assembly_regions(node), strict=True)
    return [(_region_extent(graph.nodes[p].type.shape, *at), p) for p, at in parts][node.op == "update" :]


def _group_storing_part(cover: FusionCover, part: int) -> int:
    """The group that stores a part of an assembly."""
    return cover.find(cover.home[_stored_node_of_part(cover, part)])


def _readers_of_version(cover: FusionCover, version: int) -> Iterator[tuple[Extent | None, Use]]:
    """Who reads a version, by itself or as a value that was stored as a part of it, and where."""
    for reader in sorted(cover.readers_of(version)):
        group = cover.groups[reader]
        if group.kind != "assembly":
            maps = None if version in group.gathers else group.maps.get(version)
            yield _extent_of_maps(group, maps), (version, reader, maps)
    node, nodes = cover.graph.nodes[version], cover.graph.nodes
    if OPS[node.op].kind != "assembly":
        return
    for part, place in list(zip(node.args, assembly_regions(node), strict=True))[node.op == "update" :]:
        root, extent = _stored_node_of_part(cover, part), _region_extent(nodes[part].type.shape, *place)
        inner = ((n, n, None) for n in _nodes_stored_in_assembly(cover, root))
        for stored, own, at in ((part, root, place), *inner):
            for reader in sorted(cover.readers_of(own)):
                group = cover.groups[reader]
                if group.kind != "assembly" and own not in group.computes:
                    maps = None if own in group.gathers else group.maps.get(own)
                    yield extent, (version, reader, _maps_of_part_as_whole(cover, maps, stored, own, at))


def _extent_of_maps(group: OpenFusionGroup, maps: set[Map] | None) -> Extent | None:
    """The elements that a group reads through maps; None: any."""
    if not maps:
        return None
    found = [_extent_of_map(group, m) for m in maps]
    return tuple((min(e[i][0] for e in found), max(e[i][1] for e in found)) for i in range(len(found[0])))


def _extent_of_map(group: OpenFusionGroup, m: Map) -> Extent:
    return tuple(
        (start + min(0, step * (group.domain[a] - 1)), start + max(0, step * (group.domain[a] - 1)))
        if a >= 0
        else (start, start)
        for a, step, start in m
    )


def _nodes_stored_in_assembly(cover: FusionCover, version: int) -> Iterator[int]:
    """All that is stored in the memory of an assembly."""
    node = cover.graph.nodes[version]
    if OPS[node.op].kind == "assembly":
        for root in (_stored_node_of_part(cover, part) for part in node.args):
            yield root
            yield from _nodes_stored_in_assembly(cover, root)


def _stored_node_of_part(cover: FusionCover, part: int) -> int:
    return part if part in cover.home else cover.graph.nodes[part].args[0]


def _root_of_part(graph: Graph, part: int) -> int:
    """The node that is stored for a part: itself, or what it is a reshape of."""
    return part if can_be_stored(graph.nodes[part].op) else graph.nodes[part].args[0]


def _maps_of_part_as_whole(
    cover: FusionCover, maps: set[Map] | None, part: int, root: int, place: Region | None
) -> set[Map] | None:
    """The maps of what is stored for a part, as maps of the array that it is a part of."""
    shape, stored = cover.type_of(part).shape, cover.type_of(root).shape
    if maps is None or place is None or not differ_in_unit_axes_only(shape, stored):
        return None
    found = set()
    for m in maps:
        moving = iter(entry for entry, n in zip(m, stored, strict=True) if n != 1)
        own = [FIXED if n == 1 else next(moving) for n in shape]
        found.add(tuple((a, s * step, at + b * step) for (a, s, b), at, step in zip(own, *place, strict=True)))
    return found


def _reads_nothing_updated(
    cover: FusionCover,
    group: OpenFusionGroup,
    version: int,
    maps: set[Map] | None,
    update: Node,
    region: Extent,
    writer: int,
) -> bool:
    """Whether the group reads no element that the update writes, or just the one that it writes itself."""
    if maps is None:
        return False
    value = update.args[1]
    root = (
        value if value in group.maps else cover.graph.nodes[value].args[0] if cover.graph.nodes[value].args else value
    )
    for m in maps:
        if not _regions_may_meet(_extent_of_map(group, m), region):
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
