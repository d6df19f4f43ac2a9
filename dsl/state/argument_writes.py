"""A graph whose results become arguments in; one whose results are what is assigned, and where that goes, out.

A trace makes a new version of an argument at each assignment. Only the elements that were assigned are written: other
threads may write to the rest at the same time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from ...compiler.graph.builder import GraphBuilder
from ...compiler.graph.graph import Graph, Node
from ...runtime.core.frozen import frozen, replace

MOST_WRITES = 16  # to one argument; with more, what differs is written
View = tuple[str, tuple[Any, ...]]  # ("reshape", a shape) or ("key", (start, stop, step) for each axis)


@frozen
class ArgumentWrite:
    """One assignment to an argument. leaf: which one. output: the result with the values, which are broadcast.

    views: how the argument is looked at, one after the other. mask: the result that says which elements are assigned,
    where they are not all; those where it is `chosen`. key, indices, line: of `x[key] = values` with the results that
    are its index arrays, and what an error of theirs notes. differing: the result is all of the argument, of which what
    differs from the argument before the call is written."""

    leaf: int
    output: int
    views: tuple[View, ...] = ()
    mask: int | None = None
    chosen: bool = True
    key: tuple[Any, ...] | None = None
    indices: tuple[int, ...] = ()
    line: str = ""
    differing: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether it writes each element of the argument."""
        return not (self.views or self.differing) and self.mask is None and self.key is None

    @property
    def outputs(self) -> tuple[int, ...]:
        """The results that it takes."""
        return (self.output, *(() if self.mask is None else (self.mask,)), *self.indices)


AssignedArguments = tuple[tuple[int, tuple[ArgumentWrite, ...]], ...]  # leaves, and what is written to each in order


def split_assigned_outputs(
    graph: Graph, assigned: Mapping[int, int], feeds: Sequence[int], leaves: int, whole: Collection[int]
) -> tuple[Graph, AssignedArguments, int]:
    """The graph, what it writes to arguments, and how many results it has more than before.

    assigned: leaf -> its new version, a result; these follow each other. feeds: the leaves that the inputs are, those
    from number `leaves` on are values kept from an earlier part of the function. whole: the leaves whose new version is
    wanted as a whole."""
    if not assigned:
        return graph, (), 0
    builder = GraphBuilder(graph.name)
    builder.nodes, builder.lines = [*graph.nodes], [*(graph.lines or [""] * len(graph.nodes))]
    builder.inputs, builder.numbers = [*graph.inputs], [*graph.numbers]
    first = min(assigned.values())
    behind = first + len(assigned)
    outputs = [*graph.outputs[:first]]
    found = []
    kept = {number for number, feed in zip(graph.inputs, feeds, strict=False) if feed >= leaves}
    for leaf, output in assigned.items():
        base = graph.inputs[feeds.index(leaf)] if leaf in feeds else -1
        writes = _AssignedVersions(graph, leaf, base, kept).writes_of_version(graph.outputs[output])
        if writes is not None and len(writes) > 1:
            writes = _joined_writes(builder, writes, graph.nodes[graph.outputs[output]].shape)
        if writes is not None and len(writes) > MOST_WRITES:
            writes = None
        if writes is None or (leaf in whole and any(not w.is_whole for w in writes)):
            writes = [ArgumentWrite(leaf, graph.outputs[output], differing=True)]
        found.append((leaf, tuple(_with_places_among_outputs(write, outputs) for write in writes)))
    more = len(outputs) - behind
    return builder.finish([builder.at(n) for n in (*outputs, *graph.outputs[behind:])]), tuple(found), more


def _joined_writes(builder: GraphBuilder, writes: list[ArgumentWrite], shape: tuple[int, ...]) -> list[ArgumentWrite]:
    """The writes, or the one that they are where they lie side by side along an axis. shape: the argument's."""
    regions = [_dense_region_of_write(write) for write in writes]
    if None in regions:
        return writes
    found = sorted(zip(regions, writes, strict=True), key=lambda pair: pair[0])  # type: ignore[arg-type, return-value]
    low, high = found[0][0], found[-1][0]
    assert low is not None and high is not None
    differ = [axis for axis, (a, b) in enumerate(zip(low, high, strict=True)) if a != b]
    axis = differ[0] if differ else 0
    parts, end = [], low[axis][0]
    for region, write in found:
        assert region is not None
        if region[axis][0] != end or region[:axis] + region[axis + 1 :] != low[:axis] + low[axis + 1 :]:
            return writes
        end = region[axis][1]
        value = builder.at(write.output)
        value = builder.reshape(value, value.shape[max(len(value.shape) - len(region), 0) :])  # of leading axes of 1
        parts.append(builder.broadcast(value, tuple(stop - start for start, stop in region)))
    whole = (*low[:axis], (low[axis][0], end), *low[axis + 1 :])
    key = tuple((start, stop, 1) for start, stop in whole)
    views = () if whole == tuple((0, n) for n in shape) else (("key", key),)
    return [ArgumentWrite(writes[0].leaf, builder.concat(parts, axis).number, views)]


def _dense_region_of_write(write: ArgumentWrite) -> tuple[tuple[int, int], ...] | None:
    """From where to where along each axis a write goes; None where it leaves something out."""
    if write.mask is not None or write.key is not None or [kind for kind, _ in write.views] != ["key"]:
        return None
    key = write.views[0][1]
    return tuple((start, stop) for start, stop, _ in key) if all(step == 1 for *_, step in key) else None


def _with_places_among_outputs(write: ArgumentWrite, outputs: list[int]) -> ArgumentWrite:
    """The write with numbers of results in place of those of nodes; results that are missing are added."""
    first = len(outputs)
    outputs += write.outputs
    places = iter(range(first, len(outputs)))
    return replace(
        write,
        output=next(places),
        mask=None if write.mask is None else next(places),
        indices=tuple(next(places) for _ in write.indices),
    )


class _AssignedVersions:
    """The versions of one argument: what each has that the argument had not."""

    def __init__(self, graph: Graph, leaf: int, base: int, kept: Collection[int]) -> None:
        """base: the argument as a node. kept: nodes that may be older versions."""
        self.name, self.nodes, self.lines, self.leaf, self.base, self.kept = (
            graph.name,
            graph.nodes,
            graph.lines,
            leaf,
            base,
            kept,
        )
        self.shape = graph.nodes[base].shape if base >= 0 else ()
        self.known: dict[int, bool] = {}

    def writes_of_version(self, version: int) -> list[ArgumentWrite] | None:
        """What makes it of the argument, in order; None where that is not known."""
        found = self._writes_behind(version, self.base)
        if found is None:
            return None
        needed: list[ArgumentWrite] = []
        written: set[tuple[View, ...]] = set()  # as a whole, by what comes later
        for write in found:
            if written.isdisjoint(((), write.views)):
                needed.append(write)
            if write.mask is None and write.key is None:
                written.add(write.views)
        if any(self._may_hold_older_version(write.output) for write in needed):
            return None
        return needed[::-1]

    def _writes_behind(self, version: int, first: int) -> list[ArgumentWrite] | None:
        """What makes a version of an older one, the last first; None where that is not known."""
        found: list[ArgumentWrite] = []
        while version != first:
            versions = self._older_versions(version)
            if not versions:
                found.append(ArgumentWrite(self.leaf, version))
                break
            older = versions[0]
            if len(versions) > 1:
                decided = self._writes_of_decision(version)
                if decided is None:
                    return None
                older = decided[0]
                found += decided[1]
            elif self.nodes[version].op != "reshape":
                found.append(self._write_of_step(version, older))
            version = older
        return found

    def _writes_of_decision(self, number: int) -> tuple[int, list[ArgumentWrite]] | None:
        """Where one value decides which of two versions a node is: what both are made of, and what each writes."""
        condition, *sides = self.nodes[number].args
        while self.nodes[condition].kind == "view":
            condition = self.nodes[condition].args[0]
        chains = [[*self._chain_of_versions(side)] for side in sides]
        common = next((n for n in chains[0] if n in {*chains[1]}), None)
        if common is None or self.nodes[condition].type.size != 1:
            return None
        found = []
        for chosen, side in zip((True, False), sides, strict=True):
            writes = self._writes_behind(side, common)
            if writes is None or any(w.mask is not None or w.key is not None for w in writes):
                return None
            found += [replace(write, mask=condition, chosen=chosen) for write in writes]
        return common, found

    def _chain_of_versions(self, number: int) -> Iterator[int]:
        """A version, and the older ones behind it, as long as there is one of each."""
        while True:
            yield number
            older = [] if number == self.base else self._older_versions(number)
            if len(older) != 1:
                return
            (number,) = older

    def _older_versions(self, number: int) -> list[int]:
        """The versions of the argument that a node is made of, by one step: two where a value decides."""
        return [a for a in _possible_older_versions(self.nodes, self.nodes[number]) if self._is_version(a)]

    def _is_version(self, number: int) -> bool:
        """Whether a node is the argument, or a version of it."""
        todo = [number]
        while todo:
            at = todo[-1]
            below = [] if at == self.base else _possible_older_versions(self.nodes, self.nodes[at])
            missing = [a for a in below if a not in self.known]
            if missing and at not in self.known:
                todo += missing
                continue
            self.known[todo.pop()] = at == self.base or any(self.known[a] for a in below)
        return self.known[number]

    def _may_hold_older_version(self, number: int) -> bool:
        """Whether a node may have elements as they were in the argument without saying which."""
        todo, seen = [number], {number}
        while todo:
            number = todo.pop()
            node = self.nodes[number]
            kind, inner = node.kind, node.args
            if number in self.kept:
                return True
            if node.op == "complex":  # x.real = ...
                halves = [self.nodes[a] for a in node.args]
                inner = tuple(half.args[0] for half in halves if half.op in ("real", "imag"))
            holds = node.op == "complex" or (kind in ("library", "device") and node.op != "matmul")
            if holds and any(map(self._is_version, inner)):
                return True
            if holds or kind in ("view", "assembly") or node.op in ("where", "cast"):
                todo += [a for a in inner if a not in seen]
                seen.update(inner)
        return False

    def _write_of_step(self, number: int, older: int) -> ArgumentWrite:
        """What a node writes to the older version that it is made of."""
        node = self.nodes[number]
        whole = self._views_of_shape(node.shape)
        if node.op == "update":
            value, starts, steps = node.args[1], node.attr("starts"), node.attr("steps")
            lengths = self.nodes[value].shape
            key = tuple(map(_slice_of_region_axis, starts, steps, lengths))
            return self._write(value, (*whole, ("key", key)), (older, starts, steps))
        if node.op == "where":
            return self._masked_write(node, node.args.index(older, 1), whole)
        *indices, value = node.args[1:]
        line = f"in task setitem of {self.name}, {self.lines[number]}" if self.lines else ""
        options = node.options
        return ArgumentWrite(self.leaf, value, whole, key=options["key"], indices=tuple(indices), line=line)

    def _masked_write(self, node: Node, kept: int, views: tuple[View, ...]) -> ArgumentWrite:
        """kept: which argument of a `where` is what was there."""
        return self._write(node.args[3 - kept], views, mask=node.args[0], chosen=kept == 2)

    def _write(
        self,
        value: int,
        views: tuple[View, ...],
        region: tuple[int, Any, Any] | None = None,
        mask: int | None = None,
        chosen: bool = True,
    ) -> ArgumentWrite:
        """The write of a value. region: of which version, and where, it takes the place, if of a part."""
        nodes = self.nodes
        inner = value
        while nodes[inner].op == "reshape":
            inner = nodes[inner].args[0]
        if region is not None and nodes[inner].op == "where":
            node = nodes[inner]
            for kept in (1, 2):
                if self._is_region(node.args[kept], region) and nodes[node.args[kept]].type.size == node.type.size:
                    return self._masked_write(node, kept, (*views, ("reshape", node.shape)))
        scalar = value
        while nodes[scalar].op in ("reshape", "broadcast", "permute"):
            scalar = nodes[scalar].args[0]
        if nodes[scalar].type.size == 1:
            value = scalar
        elif nodes[value].op == "broadcast":
            value = nodes[value].args[0]
        return ArgumentWrite(self.leaf, value, views, mask, chosen)

    def _is_region(self, number: int, region: tuple[int, Any, Any]) -> bool:
        """Whether a node is a region of a version as it lies there, but for axes of length 1."""
        while self.nodes[number].op == "reshape":
            number = self.nodes[number].args[0]
        node = self.nodes[number]
        return node.op == "slice" and (node.args[0], node.attr("starts"), node.attr("steps")) == region

    def _views_of_shape(self, shape: tuple[int, ...]) -> tuple[View, ...]:
        return () if shape == self.shape else (("reshape", shape),)


def _possible_older_versions(nodes: Sequence[Node], node: Node) -> list[int]:
    """The arguments of a node that it may be a newer version of."""
    if node.op in ("update", "reshape"):
        return [node.args[0]]
    if node.op == "where":
        same = (node.dtype, node.type.size)  # but for axes of length 1
        return [a for a in node.args[2:0:-1] if (nodes[a].dtype, nodes[a].type.size) == same]
    if node.op == "host" and node.attr("function") == "setitem":
        return [node.args[0]]
    return []


def _slice_of_region_axis(start: int, step: int, length: int) -> tuple[int, int | None, int]:
    """Of a region's elements along an axis: start, stop and step of a slice."""
    stop = start + step * length
    return start, None if stop < 0 else stop, step
