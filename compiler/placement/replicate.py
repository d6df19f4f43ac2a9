"""One mesh body for all devices in; a graph that holds each device's out. Collectives are written out.

Collectives become copies and ordinary operations, so they fuse with what surrounds them, and their results are the same
bits on every device and in every run: values are joined in the order of the mesh. Sums of large arrays over more than
two devices are joined in parts, one on each device, and the parts brought together (reduce-scatter and all-gather, as
in Thakur, Rabenseifner and Gropp, 2005); every device then sends and receives least. Small arrays may be joined by one
device for all: one launch is less of the host's time than one for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from ...runtime.core.frozen import frozen
from ..core.types import ArrayType, dtype_kind
from ..graph.builder import GraphBuilder
from ..graph.graph import Graph, GraphError, Node, Value, Values, bodies_of_node, graph_and_bodies, needed_nodes
from .places import nodes_computable_on_any_device

SMALL_BYTES = 64 << 10  # an array of no more is summed on every device, where it is copied to all
# What is done again by each device that reads arguments of another; more than two of them where it reads no more bytes.
FEW_OPERATIONS, FEW_ARGUMENTS = 4, 2
STEP_BYTES = 3 << 20  # what a device reads of others in the time that another step of all takes
# the levels of a broadcast of at least so many bytes: each costs a launch, and takes less of the whole
BROADCAST_LEVELS = ((1 << 25, 4), (0, 2))
PIECE_ELEMENTS = 1024  # pieces of an array that devices share begin where kernels read whole vectors
UNKNOWN_EXCHANGES = "exchange nothing within a branch, or a loop that values end: not all might"
JOINED_BY = {"sum": "add", "mean": "add", "prod": "multiply", "max": "maximum", "min": "minimum"}


@frozen
class Replicas:
    """graph: input i of the body on device r is its input i * count + r; so are outputs. slots: of the nodes."""

    graph: Graph
    slots: tuple[int | None, ...]


def graph_exchanges_between_devices(graph: Graph) -> bool:
    """Whether devices exchange anything in a graph, or in the body of a loop or branch in it."""
    return any(node.op in COLLECTIVES for part in graph_and_bodies(graph) for node in part.nodes)


def graph_computes_beside_exchanges(graph: Graph) -> bool:
    """Whether there are products, or other work of libraries or loops, that may run while devices exchange arrays."""
    return any(node.kind == "library" for node in graph.nodes)


def bodies_exchange_between_devices(node: Node) -> bool:
    """Whether devices exchange anything in the bodies of a loop or branch."""
    return any(map(graph_exchanges_between_devices, bodies_of_node(node)))


def replicate_graph_on_devices(body: Graph, count: int, reads_peers: bool = False, by_root: bool = False) -> Replicas:
    """reads_peers: kernels read other devices' memory, so arrays are cut where they are read. by_root: the first device
    of those that exchange does it for all.

    Raises GraphError, at the user's line, for a collective in the body of a loop or branch."""
    builder = GraphBuilder(body.name)
    made = _GraphReplicator(builder, range(count), {}, reads_peers, by_root)
    anywhere = nodes_computable_on_any_device(body)
    values: list[list[Value]] = []
    for number, node in enumerate(body.nodes):
        line = body.lines[number] if body.lines else ""
        builder.where = partial(str, line)
        if node.op == "place":
            raise GraphError("a function on a mesh runs on all of its devices; leave kg.place out", line=line)
        if bodies_exchange_between_devices(node):
            raise GraphError(f"devices {UNKNOWN_EXCHANGES}", line=line)
        args = [values[a] for a in node.args]
        if node.op == "input":
            values.append([builder.input(node.type) for _ in range(count)])
        elif node.op == "number":
            builder.numbers.append(len(builder.nodes))
            values.append([builder.copy(node, ())] * count)
        elif node.op in COLLECTIVES:
            values.append(made.replicated_collective(node, args[0]))
        elif anywhere[number]:
            values.append([builder.copy(node, [a[0] for a in args])] * count)
        else:
            values.append([made.repeat_node_on_device(r, node, [a[r] for a in args]) for r in range(count)])
    outputs = [v for o in body.outputs for v in values[o]]
    return Replicas(builder.finish(outputs), made.device_slots_of_outputs(outputs))


class _GraphReplicator:
    """slots[n]: the device that node n of the builder was first made for. devices: those that exchange, of a mesh; one
    that does it for all stands for each of them."""

    def __init__(
        self,
        builder: GraphBuilder,
        devices: Sequence[int],
        slots: dict[int, int],
        reads_peers: bool,
        by_root: bool,
    ) -> None:
        self.builder, self.devices, self.count = builder, devices, len(devices)
        self.slots, self.reads_peers, self.by_root = slots, reads_peers, by_root

    def replicated_collective(self, node: Node, parts: list[Value]) -> list[Value]:
        """A collective's result on each device: of all of them, or of each group apart."""
        found = [*parts]
        for group in dict(node.attrs).get("groups", (self.devices,)):
            workers = [group[0]] * len(group) if self.by_root else group
            within = _GraphReplicator(self.builder, workers, self.slots, self.reads_peers, self.by_root)
            for device, value in zip(group, COLLECTIVES[node.op](within, node, [parts[d] for d in group]), strict=True):
                found[device] = self.builder.placed(value, ("mesh", device)) if self.by_root else value
        return found

    def build_on_device(self, slot: int, make: Callable[[], Value]) -> Value:
        """What `make` gives; what it makes runs on a device. slot: its place among those that exchange."""
        before = len(self.builder.nodes)
        made = make()
        for number in range(before, len(self.builder.nodes)):
            self.slots[number] = self.devices[slot]
        return made

    def repeat_node_on_device(self, slot: int, node: Node, args: Values) -> Value:
        return self.build_on_device(slot, lambda: self.builder.copy(node, args))

    def values_on_device(self, slot: int, values: Values) -> list[Value]:
        """Values as a device sees them: what each device makes of the same ones is not the same node. Those that follow
        from few arguments element by element are computed there, where it reads the arguments of others."""
        return [
            self.build_on_device(slot, lambda v=v: self._computed_on_device(slot, v.number))  # type: ignore[misc]
            if self.reads_peers and self._follows_from_few_arguments(v)
            else self.builder.placed(v, ("mesh", self.devices[slot]))
            for v in values
        ]

    def _follows_from_few_arguments(self, value: Value) -> bool:
        """Whether it is small, or its arguments have no more bytes than it has."""
        todo, operations, arguments = [value.number], set[int](), set[int]()
        while todo and len(operations) <= FEW_OPERATIONS:
            n = todo.pop()
            node = self.builder.nodes[n]
            if node.op == "input":
                arguments.add(n)
            elif n in self.slots and n not in operations:
                if node.kind != "map" and node.op != "reshape":
                    return False
                operations.add(n)
                todo += node.args
            elif node.op == "place":
                return False
        small = value.type.nbytes <= SMALL_BYTES and len(arguments) <= FEW_ARGUMENTS
        nbytes = sum(self.builder.nodes[n].type.nbytes for n in arguments)
        return not todo and bool(arguments) and (small or nbytes <= value.type.nbytes)

    def _computed_on_device(self, slot: int, number: int) -> Value:
        node = self.builder.nodes[number]
        if node.op == "input":
            return self.builder.placed(self.builder.at(number), ("mesh", self.devices[slot]))
        if number not in self.slots:  # what each device makes itself
            return self.builder.at(number)
        return self.builder.copy(node, [self._computed_on_device(slot, a) for a in node.args])

    def joined_elementwise(self, slot: int, how: str, parts: Values) -> Value:
        """Arrays joined element by element, in their order, on a device."""
        parts = self.values_on_device(slot, parts)

        def reduce_parts() -> Value:
            found = parts[0]
            for part in parts[1:]:
                found = self.builder.map(JOINED_BY[how], found, part)
            if how == "mean":
                return self.builder.map("divide", found, self.builder.const(len(parts), found.dtype))
            return found

        return self.build_on_device(slot, reduce_parts)

    def split_on_each_device(self, parts: Values, axis: int) -> list[list[Value]]:
        """Each device's array in as many pieces along an axis as there are devices, made where it is, or read there."""

        return [
            self.pieces_read_on_each_device(v, axis)
            if self.reads_peers
            else [self.build_on_device(s, lambda v=v, r=r: self._slice_piece(v, axis, r)) for r in range(self.count)]  # type: ignore[misc]
            for s, v in enumerate(parts)
        ]

    def pieces_read_on_each_device(self, value: Value, axis: int) -> list[Value]:
        """One device's array in as many pieces along an axis as there are devices, each cut by the device that it is
        for."""
        seen = [self.values_on_device(r, [value])[0] for r in range(self.count)]
        return [self.build_on_device(r, partial(self._slice_piece, v, axis, r)) for r, v in enumerate(seen)]

    def goes_in_one_step(self, type: ArrayType, extra: int) -> bool:
        """Whether each device takes whole arrays: so it reads so many bytes more than if they shared the work."""
        small = extra <= STEP_BYTES if self.reads_peers else type.nbytes <= SMALL_BYTES
        return small or self.by_root or self.count < 3 or type.size % self.count != 0

    def _slice_piece(self, value: Value, axis: int, number: int) -> Value:
        length = value.shape[axis] // self.count
        starts = tuple(number * length if i == axis else 0 for i in range(value.ndim))
        shape = tuple(length if i == axis else n for i, n in enumerate(value.shape))
        return self.builder.slice(value, starts, (1,) * len(starts), shape)

    def concatenated_on_device(self, parts: Values, axis: int) -> list[Value]:
        seen = [self.values_on_device(r, parts) for r in range(self.count)]
        return [self.build_on_device(r, partial(self.builder.concat, its, axis)) for r, its in enumerate(seen)]

    def device_slots_of_outputs(self, outputs: Values) -> tuple[int | None, ...]:
        """Of the nodes of the graph that these are the outputs of: of what they need, of inputs and of numbers."""
        builder = self.builder
        kept = {*builder.inputs, *builder.numbers}
        needed = needed_nodes(builder.nodes, [o.number for o in outputs], kept)
        return tuple(self.slots.get(number) for number in sorted(kept.union(needed)))


def _replicate_all_reduce(made: _GraphReplicator, node: Node, parts: list[Value]) -> list[Value]:
    how, count, builder = node.attr("how"), made.count, made.builder
    size, type = parts[0].type.size, parts[0].type
    if made.goes_in_one_step(type, type.nbytes * (count - 1) * (count - 2) // count):
        return [made.joined_elementwise(r, how, parts) for r in range(count)]
    flat = [made.build_on_device(r, lambda v=v: builder.reshape(v, (size,))) for r, v in enumerate(parts)]  # type: ignore[misc]
    pieces = made.split_on_each_device(flat, 0)
    sums = [made.joined_elementwise(r, how, [pieces[s][r] for s in range(count)]) for r in range(count)]
    whole = made.concatenated_on_device(sums, 0)
    return [made.build_on_device(r, lambda v=v: builder.reshape(v, type.shape)) for r, v in enumerate(whole)]  # type: ignore[misc]


def _replicate_reduce_scatter(made: _GraphReplicator, node: Node, parts: list[Value]) -> list[Value]:
    pieces = made.split_on_each_device(parts, node.attr("axis"))
    how, count = node.attr("how"), made.count
    return [made.joined_elementwise(r, how, [pieces[s][r] for s in range(count)]) for r in range(count)]


def _replicate_all_to_all(made: _GraphReplicator, node: Node, parts: list[Value]) -> list[Value]:
    pieces, join = made.split_on_each_device(parts, node.attr("split")), node.attr("join")

    def join_on_device(r: int) -> Value:
        return made.builder.concat(made.values_on_device(r, [pieces[s][r] for s in range(made.count)]), join)

    return [made.build_on_device(r, lambda r=r: join_on_device(r)) for r in range(made.count)]  # type: ignore[misc]


def _replicate_broadcast_node(made: _GraphReplicator, node: Node, parts: list[Value]) -> list[Value]:
    root = node.attr("root")
    given, type, others = parts[root], parts[root].type, [r for r in range(made.count) if r != root]
    levels = next(levels for nbytes, levels in BROADCAST_LEVELS if type.nbytes >= nbytes)
    pieces = len(others) * (levels - 1) + 1
    length = type.size // pieces // PIECE_ELEMENTS * PIECE_ELEMENTS  # one launch reads several pieces that are alike
    small = length == 0 or type.nbytes * (len(others) - 1) <= STEP_BYTES
    if not made.reads_peers or made.by_root or len(others) < 2 or small:
        return [given if r == root else made.values_on_device(r, [given])[0] for r in range(made.count)]
    starts = [*(length * number for number in range(pieces + 1)), type.size]
    found = _Broadcast(made, given, others, starts).results(levels)
    return [
        given if r == root else made.build_on_device(r, partial(made.builder.reshape, found[r], type.shape))
        for r in range(made.count)
    ]


class _Broadcast:
    """A large array goes in pieces. At each level each of the others reads one from the root, and those of the level
    before from one another; at the last one all read the same piece from the root, whose links are never idle.

    starts: of the pieces, and the end. A stored piece is a part of a value in one row, from some element on."""

    def __init__(self, made: _GraphReplicator, given: Value, others: Sequence[int], starts: Sequence[int]) -> None:
        self.made, self.given, self.others, self.starts = made, given, others, starts
        self.far = {r: made.values_on_device(r, [given])[0] for r in others}

    def results(self, levels: int) -> dict[int, Value]:
        """On each of the others, in one row."""
        latest: dict[int, tuple[Value, int]] = {}  # the pieces of the level before, by their numbers
        kept: dict[int, dict[int, tuple[Value, int]]] = {r: {} for r in self.others}  # what each device has
        for level in range(levels - 1):
            stored = {}
            for own, r in enumerate(self.others, level * len(self.others)):
                numbers = [own, *(number for number in latest if number not in kept[r])]
                whole = self._joined(r, numbers, latest)
                kept[r].update({number: (whole, i * self.starts[1]) for i, number in enumerate(numbers)})
                stored[own] = whole, 0
            latest = stored
        return {r: self._joined(r, range(len(self.starts) - 1), {**latest, **kept[r]}) for r in self.others}

    def _joined(self, r: int, numbers: Iterable[int], stored: Mapping[int, tuple[Value, int]]) -> Value:
        """Pieces as a device reads them; those that nobody has stored from the root, at first of what it computes."""
        builder, starts = self.made.builder, self.starts

        def join() -> Value:
            found = []
            for number in numbers:
                whole, start = stored.get(number, (self.given, starts[number]))
                first = number < len(self.others) and whole is self.given
                whole = self.far[r] if first else builder.placed(whole, ("mesh", self.made.devices[r]))
                row, size = builder.reshape(whole, (whole.size,)), starts[number + 1] - starts[number]
                found += [builder.slice(row, (start,), (1,), (size,))] if size else []
            return found[0] if len(found) == 1 else builder.concat(found, 0)

        return self.made.build_on_device(r, join)


def _replicate_exchange_node(made: _GraphReplicator, node: Node, parts: list[Value]) -> list[Value]:
    sources = {target: source for source, target in node.attr("pairs")}
    builder, type = made.builder, node.type
    zeros = builder.broadcast(builder.const(False if dtype_kind(type.dtype) == "b" else 0, type.dtype), type.shape)
    return [made.values_on_device(r, [parts[sources[r]]])[0] if r in sources else zeros for r in range(made.count)]


COLLECTIVES: dict[str, Callable[[_GraphReplicator, Node, list[Value]], list[Value]]] = {
    "all_reduce": _replicate_all_reduce,
    "all_gather": lambda made, node, parts: made.concatenated_on_device(parts, node.attr("axis")),
    "reduce_scatter": _replicate_reduce_scatter,
    "all_to_all": _replicate_all_to_all,
    "from_root": _replicate_broadcast_node,
    "exchange": _replicate_exchange_node,
}
