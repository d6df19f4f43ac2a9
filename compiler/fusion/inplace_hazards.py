"""Updates in place: groups in, orders out. They keep readers of overwritten memory before its writer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any

from ...runtime.core.box_index import Box, BoxIndex, boxes_meet
from ..graph.graph import Graph, Node
from ..layout.operands import FIXED, Map, shapes_differ_in_unit_axes_only
from ..passes.materialize import Region, can_node_be_materialized, extent_of_region, materialized_regions_of_assembly
from .groups import FusionCover, OpenFusionGroup


class InplaceConflict(Exception):
    """Updates (by their number before `materialize`) that cannot be done in place: what they overwrite is read later,
    or by the very kernel that writes it, at other elements."""

    def __init__(self, updates: frozenset[int]) -> None:
        super().__init__(f"updates {sorted(updates)} need a second buffer")
        self.updates = updates


Event = tuple[Box | None, Any]  # where in an array something is read or written (None: anywhere), and what


class _InplaceUpdateHistory:
    """What happened to an array up to each of its versions, found by place: newest first.

    Left out is what follows from the rest: an event whose place lies within that of a newer one is forgotten where an
    update came between them, since who comes before that update comes before the newer event too."""

    def __init__(
        self,
        graph: Graph,
        events: Callable[[int], Iterable[Event]],
        implies: Callable[[Any, Any], bool] = lambda newer, older: True,
    ) -> None:
        """events: those of one version, the first one first. implies: whether a newer one stands for an older one too,
        which an update between them has met."""
        self.graph, self.events, self.implies = graph, events, implies
        self.known: dict[int, _InplaceUpdateEvents] = {}  # by the newest version of a memory

    def before(self, version: int, region: Box) -> list[Any]:
        """The events of a version and of all older ones in the same memory, where the region is, which an update of
        that version will write: whoever is given comes before it."""
        new, nodes, last = [], self.graph.nodes, version
        while version not in self.known:
            new.append(version)
            if nodes[version].op != "update":
                break
            version = nodes[version].args[0]
        found = self.known.pop(version, None) or _InplaceUpdateEvents()
        whole = tuple((0, n - 1) for n in nodes[last].shape)
        for each in reversed(new):
            for extent, what in self.events(each):
                found.add(whole if extent is None else extent, what, self.implies)
        self.known[last] = found
        return found.met_by_update(region)


class _InplaceUpdateEvents:
    """Events in their order, found by their extents. For each extent those that an update came after, and the rest."""

    def __init__(self) -> None:
        self.count = 0
        self.places: BoxIndex[tuple[list[tuple[int, Any]], list[tuple[int, Any]]]] = BoxIndex()

    def add(self, extent: Box, what: Any, implies: Callable[[Any, Any], bool]) -> None:
        for place, (met, others) in self.places.within(extent):
            met[:] = [each for each in met if not implies(what, each[1])]
            if not met and not others:
                self.places.remove(place)
        self.places.put(extent, ([], []))[1].append((self.count, what))
        self.count += 1

    def met_by_update(self, region: Box) -> list[Any]:
        """What happened in the region, the newest first."""
        found = []
        for met, others in self.places.meeting(region):
            met += others
            others.clear()
            found += met
        return [what for _, what in sorted(found, key=itemgetter(0), reverse=True)]


def inplace_overwrites_between_nodes(graph: Graph) -> Iterator[tuple[int, int]]:
    """(stored node, one that is stored later where it was): what follows from the graph, before there are groups."""

    def parts(version: int) -> Iterator[Event]:
        return (
            (at, _inplace_root_of_assembly_part(graph, part))
            for at, part in reversed(_inplace_parts_of_version(graph, version))
        )

    # Groups are made from the last node to the first: a node between two others orders them once it has a group.
    history = _InplaceUpdateHistory(graph, parts, lambda newer, older: bool(newer > older))
    for node in graph.nodes:
        if node.op == "update":
            later = _inplace_root_of_assembly_part(graph, node.args[1])
            for root in history.before(node.args[0], _region_overwritten_by_update(graph, node)):
                yield root, later


def _region_overwritten_by_update(graph: Graph, node: Node) -> Box:
    return extent_of_region(graph.nodes[node.args[1]].shape, node.attr("starts"), node.attr("steps"))


def order_groups_before_inplace_updates(cover: FusionCover) -> None:
    """Whoever reads memory that an update will overwrite comes before it. Raises Conflict where that cannot be."""
    bad: set[int] = set()
    graph = cover.graph
    history = _InplaceUpdateHistory(graph, lambda version: _group_uses_of_version(cover, version))
    for number, node in enumerate(graph.nodes):
        if node.op != "update" or number not in cover.home:
            continue
        writer = _group_storing_assembly_part(cover, node.args[1])
        region = _region_overwritten_by_update(graph, node)
        for version, group, maps in history.before(node.args[0], region):
            if group != writer and cover.reaches(group, writer):
                continue
            if maps is not WRITES and _group_reads_nothing_overwritten(
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


def _group_uses_of_version(cover: FusionCover, version: int) -> list[Event]:
    """Who reads and who wrote a version: those who wrote first."""
    parts = reversed(_inplace_parts_of_version(cover.graph, version))
    writers: list[Event] = [(at, (version, _group_storing_assembly_part(cover, part), WRITES)) for at, part in parts]
    return [*writers, *reversed([*_groups_reading_version(cover, version)])]


def _inplace_parts_of_version(graph: Graph, version: int) -> Sequence[tuple[Box | None, int]]:
    """What was stored for a version, and where."""
    node = graph.nodes[version]
    if node.kind != "assembly":
        return [(None, version)]
    parts = zip(node.args, materialized_regions_of_assembly(node), strict=True)
    return [(extent_of_region(graph.nodes[p].shape, *at), p) for p, at in parts][node.op == "update" :]


def _group_storing_assembly_part(cover: FusionCover, part: int) -> int:
    """The group that stores a part of an assembly."""
    return cover.find(cover.home[_grouped_node_of_assembly_part(cover, part)])


def _groups_reading_version(cover: FusionCover, version: int) -> Iterator[tuple[Box | None, Use]]:
    """Who reads a version, by itself or as a value that was stored as a part of it, and where."""
    for reader in sorted(cover.readers_of(version)):
        group = cover.groups[reader]
        if group.kind != "assembly":
            maps = None if version in group.gathers else group.maps.get(version)
            if not maps:
                yield None, (version, reader, None)
            for m in maps or ():
                yield _extent_read_by_group(group, m), (version, reader, {m})
    node, nodes = cover.graph.nodes[version], cover.graph.nodes
    if node.kind != "assembly":
        return
    for part, place in list(zip(node.args, materialized_regions_of_assembly(node), strict=True))[node.op == "update" :]:
        root, extent = (
            _grouped_node_of_assembly_part(cover, part),
            extent_of_region(nodes[part].shape, *place),
        )
        inner = ((n, n, None) for n in _grouped_nodes_stored_in_assembly(cover, root))
        for stored, own, at in ((part, root, place), *inner):
            for reader in sorted(cover.readers_of(own)):
                group = cover.groups[reader]
                if group.kind != "assembly" and own not in group.computes:
                    maps = None if own in group.gathers else group.maps.get(own)
                    yield extent, (version, reader, _group_maps_of_part_as_whole(cover, maps, stored, own, at))


def _extent_read_by_group(group: OpenFusionGroup, m: Map) -> Box:
    lengths = [group.domain[a] if a >= 0 else 1 for a, _, _ in m]
    return extent_of_region(lengths, [start for _, _, start in m], [step for _, step, _ in m])


def _grouped_nodes_stored_in_assembly(cover: FusionCover, version: int) -> Iterator[int]:
    """All that is stored in the memory of an assembly."""
    node = cover.graph.nodes[version]
    if node.kind == "assembly":
        for root in (_grouped_node_of_assembly_part(cover, part) for part in node.args):
            yield root
            yield from _grouped_nodes_stored_in_assembly(cover, root)


def _grouped_node_of_assembly_part(cover: FusionCover, part: int) -> int:
    return part if part in cover.home else cover.graph.nodes[part].args[0]


def _inplace_root_of_assembly_part(graph: Graph, part: int) -> int:
    """The node that is stored for a part: itself, or what it is a reshape of."""
    return part if can_node_be_materialized(graph.nodes[part].op) else graph.nodes[part].args[0]


def _group_maps_of_part_as_whole(
    cover: FusionCover, maps: set[Map] | None, part: int, root: int, place: Region | None
) -> set[Map] | None:
    """The maps of what is stored for a part, as maps of the array that it is a part of."""
    shape, stored = cover.type_of(part).shape, cover.type_of(root).shape
    if maps is None or place is None or not shapes_differ_in_unit_axes_only(shape, stored):
        return None
    found = set()
    for m in maps:
        moving = iter(entry for entry, n in zip(m, stored, strict=True) if n != 1)
        own = [FIXED if n == 1 else next(moving) for n in shape]
        found.add(tuple((a, s * step, at + b * step) for (a, s, b), at, step in zip(own, *place, strict=True)))
    return found


def _group_reads_nothing_overwritten(
    cover: FusionCover,
    group: OpenFusionGroup,
    version: int,
    maps: set[Map] | None,
    update: Node,
    region: Box,
    writer: int,
) -> bool:
    """Whether the group reads no element that the update writes, or just the one that it writes itself."""
    if maps is None:
        return False
    value = update.args[1]
    root = value if value in group.maps else (cover.graph.nodes[value].args or (value,))[0]
    whole = ((0,) * len(region), (1,) * len(region))
    for m in maps:
        if not boxes_meet(_extent_read_by_group(group, m), region):
            continue
        if group.number != writer:
            return False
        stored = _group_maps_of_part_as_whole(cover, group.maps[root], value, root, whole)
        if stored is None or len(stored) != 1:
            return False
        (own,) = stored
        at = zip(own, update.attr("starts"), update.attr("steps"), strict=True)
        lengths = cover.graph.nodes[version].shape
        wanted = tuple(
            (-1, 0, 0) if n == 1 else (a, s * t if a >= 0 else 0, first + start * t)
            for ((a, s, start), first, t), n in zip(at, lengths, strict=True)
        )
        if m != wanted:
            return False
    return True
