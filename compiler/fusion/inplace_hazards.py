"""Updates in place: groups in, the orders that keep readers of overwritten memory before its writer out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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


def overwritten_nodes(graph: Graph) -> Iterator[tuple[int, int]]:
    """(stored node, one that is stored later where it was): what follows from the graph, before there are groups."""
    for node in graph.nodes:
        if node.op == "update":
            region = _region_extent(graph.nodes[node.args[1]].type.shape, node.attr("starts"), node.attr("steps"))
            later, version = _root_of_part(graph, node.args[1]), node.args[0]
            while True:
                yield from ((_root_of_part(graph, part), later) for part in _earlier_parts(graph, version, region))
                if graph.nodes[version].op != "update":
                    break
                version = graph.nodes[version].args[0]


def order_updates(cover: FusionCover) -> None:
    """Whoever reads memory that an update will overwrite comes before it. Raises Conflict where that cannot be."""
    bad: set[int] = set()
    nodes = cover.graph.nodes
    for number, node in enumerate(nodes):
        if node.op != "update" or number not in cover.home:
            continue
        writer = _group_storing_part(cover, node.args[1])
        region = _region_extent(nodes[node.args[1]].type.shape, node.attr("starts"), node.attr("steps"))
        version = node.args[0]
        while True:  # this version and all older ones in the same memory
            for held, reader, maps in _readers_of_version(cover, version, region):
                if _reads_nothing_updated(cover, cover.groups[reader], held, maps, node, region, writer):
                    continue
                if reader == writer or cover.reaches(writer, reader):
                    bad.add(node.attr("origin"))
                else:
                    cover.order(reader, writer)
            older = nodes[version]
            for before in _earlier_writers(cover, version, region):
                if before == writer or cover.reaches(writer, before):
                    bad.add(node.attr("origin"))
                else:
                    cover.order(before, writer)
            if older.op != "update":
                break
            version = older.args[0]
    if bad:
        raise InplaceConflict(frozenset(bad))


def _earlier_writers(cover: FusionCover, version: int, region: Extent) -> list[int]:
    """The groups that wrote, for this version, elements that an update will write again."""
    return [_group_storing_part(cover, p) for p in _earlier_parts(cover.graph, version, region)]


def _earlier_parts(graph: Graph, version: int, region: Extent) -> list[int]:
    """What was stored for this version where the region is."""
    node = graph.nodes[version]
    if OPS[node.op].kind != "assembly":
        return [version]
    parts = list(zip(node.args, assembly_regions(node), strict=True))
    extents = [
        (p, _region_extent(graph.nodes[p].type.shape, *at)) for p, at in parts[1 if node.op == "update" else 0 :]
    ]
    return [p for p, extent in extents if _regions_may_meet(extent, region)]


def _group_storing_part(cover: FusionCover, part: int) -> int:
    """The group that stores a part of an assembly."""
    return cover.find(cover.home[_stored_node_of_part(cover, part)])


Read = tuple[int, int, set[Map] | None]  # (version, group, how the group's domain reads the version; None: anywhere)


def _readers_of_version(cover: FusionCover, version: int, region: Extent) -> Iterator[Read]:
    """Who reads this version, by itself or as a value that was stored as a part of it, where the region is."""
    for reader in sorted(cover.readers_of(version)):
        group = cover.groups[reader]
        if group.kind != "assembly":
            yield version, reader, None if version in group.gathers else group.maps.get(version)
    for part, root, place in _stored_parts_of_version(cover, version, region):
        for reader in sorted(cover.readers_of(root)):
            group = cover.groups[reader]
            if group.kind != "assembly" and root not in group.computes:
                maps = None if root in group.gathers else group.maps.get(root)
                yield version, reader, _maps_of_part_as_whole(cover, maps, part, root, place)


def _stored_parts_of_version(
    cover: FusionCover, version: int, region: Extent
) -> Iterator[tuple[int, int, Region | None]]:
    """(part, the node that is stored for it, its place; None: anywhere in the region) of an assembly."""
    node, nodes = cover.graph.nodes[version], cover.graph.nodes
    if OPS[node.op].kind != "assembly":
        return
    for part, place in list(zip(node.args, assembly_regions(node), strict=True))[node.op == "update" :]:
        if _regions_may_meet(_region_extent(nodes[part].type.shape, *place), region):
            root = _stored_node_of_part(cover, part)
            yield part, root, place
            yield from ((inner, inner, None) for inner in _nodes_stored_in_assembly(cover, root))


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
        read = [
            (start + min(0, step * (group.domain[a] - 1)), start + max(0, step * (group.domain[a] - 1)))
            if a >= 0
            else (start, start)
            for a, step, start in m
        ]
        if not _regions_may_meet(read, region):
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
