"""A graph with places in; a graph for each device's part, and moves between, out.

Node n has a level: how many moves lie before it on the longest way from the inputs. The nodes of one device and level
are a part. A move or a step within a device never leads to a lower level, so parts in the order of their levels can run
one after the other; each starts when what it reads has arrived.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ...runtime.core.frozen import frozen, replace
from ..core.types import ArrayType
from ..graph.graph import Graph, Node
from .places import is_node_copy_on_device


@frozen
class PlacedValue:
    """An array on a device. source: which input of the whole graph it is; -1 for what a part or a move makes. depth:
    the operations on the longest way to it, which tells what is there first."""

    type: ArrayType
    slot: int
    source: int = -1
    depth: int = 0


@frozen
class Part:
    """A graph that runs on one device. reads, writes: the values that its inputs and its outputs are; numbers: which of
    the whole graph's numbers it takes."""

    slot: int
    graph: Graph
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    numbers: tuple[int, ...]


@frozen
class Move:
    """Value `source` is copied to another device, as value `target`."""

    source: int
    target: int


@frozen
class Partition:
    """Parts and moves, in an order in which each comes after what it reads. outputs: values."""

    values: tuple[PlacedValue, ...]
    steps: tuple[Part | Move, ...]
    outputs: tuple[int, ...]


def depths_of_placed_nodes(graph: Graph, given: Mapping[int, int]) -> list[int]:
    """The operations on the longest way to each node; given: to some inputs."""
    depths: list[int] = []
    for n, node in enumerate(graph.nodes):
        below = max((depths[a] for a in node.args), default=0)
        own = node.op != "input" and node.kind != "view"
        depths.append(given.get(n, below + own))
    return depths


def partition_with_arguments_elsewhere(partition: Partition, slots: Mapping[int, int]) -> Partition:
    """The partition for calls that bring some arguments on other devices than where they are read: they are moved there
    first. slots: the device of each such value."""
    values, moves = [*partition.values], list[Part | Move]()
    for v, slot in slots.items():
        moves.append(Move(len(values), v))
        values.append(replace(values[v], slot=slot))
        values[v] = replace(values[v], source=-1)
    return replace(partition, values=tuple(values), steps=(*moves, *partition.steps))


def partition_graph_by_device(
    graph: Graph, slots: Sequence[int | None], targets: Sequence[int | None], homes: Sequence[int] | None = None
) -> Partition:
    """slots: of the nodes, see `Places`. targets: the device of each output; None for where it is computed, or the
    first. homes: the device that has each input, where devices read each other's memory: what another one has or
    computes is then read there, if kernels read each element once."""
    return _DevicePartitioner(graph, slots, targets, homes).partition()


class _DevicePartitioner:
    """root[n]: the node that n is, seen through places. level[n], of what is computed."""

    def __init__(
        self,
        graph: Graph,
        slots: Sequence[int | None],
        targets: Sequence[int | None],
        homes: Sequence[int] | None,
    ) -> None:
        self.graph = graph
        self.homes = None if homes is None else dict(zip(graph.inputs, homes, strict=True))  # of inputs
        self.root = list(range(len(graph.nodes)))
        self.slots = list(slots)
        self.level: dict[int, int] = {}
        self.depths = depths_of_placed_nodes(graph, {})
        for number, node in enumerate(graph.nodes):
            if is_node_copy_on_device(node):
                self.root[number] = self.root[node.args[0]]
            elif slots[number] is not None:
                self.level[number] = self._transfer_level_of_node(number)
        # each output: the node, where it goes, and, of what no device computes, the device that writes it
        self.outputs: list[tuple[int, int]] = []
        self.written: dict[tuple[int, int], set[int]] = {}  # by level and slot: inputs and constants that are outputs
        for output, slot in zip(graph.outputs, targets, strict=True):
            root, at = self.root[output], slot if slot is not None else self.slots[output]
            if root not in self.level:
                self.written.setdefault((0, at or 0), set()).add(root)
            self.outputs.append((root, at if at is not None else (self.slots[root] or 0)))
        self.copied: set[tuple[int, int]] | None = None  # nodes, with the slots that have copies; None: all
        self.retaken = set[int]()  # views that each part of their device takes itself
        if homes is not None:
            self.copied = self._nodes_to_copy()
            self._delay_views()
        self.values: list[PlacedValue] = []
        self.numbers: dict[tuple[str, int, int], int] = {}  # what a value is, its node and its slot -> its number

    def _transfer_level_of_node(self, number: int) -> int:
        slot = self.slots[number]
        below = [self.level[a] + (self.slots[a] != slot) for a in self._computed_arguments(self.graph.nodes[number])]
        return max(below, default=0)

    def _computed_arguments(self, node: Node) -> Iterable[int]:
        return (self.root[a] for a in node.args if self.root[a] in self.level)

    def _nodes_to_copy(self) -> set[tuple[int, int]]:
        """What devices need in their own memory, with these: results, and what is read, as it is or through views,
        other than element by element."""
        copied = set(self.outputs)
        for number in reversed(range(len(self.graph.nodes))):
            node, slot = self.graph.nodes[number], self.slots[number]
            if slot is None or self.root[number] != number:
                continue
            kind = node.kind
            once = kind == "map" or node.op == "concat" or (kind == "view" and (number, slot) not in copied)
            if not once:
                copied |= {(self.root[a], slot) for a in node.args}
        return copied

    def _delay_views(self) -> None:
        """Views are taken by the parts that read them, as those on other devices do, so alike parts stay alike."""
        readers: dict[int, list[int]] = {}
        kept = {o for o, _ in self.outputs}
        for number in reversed(range(len(self.graph.nodes))):
            node, slot = self.graph.nodes[number], self.slots[number]
            if number not in self.level:
                continue
            its = readers.get(number, [])
            if node.kind == "view" and number not in kept and all(self.slots[r] == slot for r in its):
                self.level[number] = min((self.level[r] for r in its), default=self.level[number])
                self.retaken.add(number)
            for a in self._computed_arguments(node):
                readers.setdefault(a, []).append(number)

    def value_read(self, what: str, node: int, slot: int) -> int:
        """The value in which a part on a device reads one of the node's: a copy of its own, or where it is."""
        if self.homes is not None and self.copied is not None and (node, slot) not in self.copied:
            home = self.homes[node] if what == "input" else self.slots[node]
            assert home is not None
            return self.value(what, node, home)
        return self.value(what, node, slot)

    def value(self, what: str, node: int, slot: int) -> int:
        """what: `input`, or `node` for what is computed."""
        key = what, node, slot
        if key not in self.numbers:
            self.numbers[key] = len(self.values)
            given = self.graph.nodes[node]
            source = self.graph.inputs.index(node) if what == "input" else -1
            self.values.append(PlacedValue(given.type, slot, source, self.depths[node]))
        return self.numbers[key]

    def partition(self) -> Partition:
        members: dict[tuple[int, int], list[int]] = {}
        for number, level in self.level.items():
            slot = self.slots[number]
            assert slot is not None
            members.setdefault((level, slot), []).append(number)
        for key in self.written:
            members.setdefault(key, [])
        needs = {key: self._values_needed_by_part(key, nodes) for key, nodes in members.items()}
        # which nodes leave their part, and the devices that other parts want them on
        leaving: dict[tuple[int, int], set[int]] = {key: set() for key in members}
        moves: dict[int, set[int]] = {}
        homes = {n: (level, self.slots[n]) for n, level in self.level.items()}
        asked = [(n, key[1]) for key, (_, found, _) in needs.items() for n in found]
        asked += [(n, slot) for n, slot in self.outputs if n in self.level]
        for n, slot in asked:
            level, home = homes[n]
            assert home is not None
            leaving[level, home].add(n)
            if slot != home and (self.copied is None or (n, slot) in self.copied):
                moves.setdefault(n, set()).add(slot)
        steps: list[Part | Move] = []
        for key in sorted(members):
            slot = key[1]
            inputs, arriving, free = needs[key]
            out = sorted(leaving[key]) + sorted(self.written.get(key, ()))
            steps.append(self._build_device_part(slot, members[key], inputs, arriving, free, out))
            for n in sorted(leaving[key], key=lambda n: (self.depths[n], n)):
                for target in sorted(moves.get(n, ())):
                    steps.append(Move(self.value("node", n, slot), self.value("node", n, target)))
        outputs = [self.value("node", n, slot) for n, slot in self.outputs]
        return Partition(tuple(self.values), tuple(steps), tuple(outputs))

    def _values_needed_by_part(
        self, key: tuple[int, int], nodes: Sequence[int]
    ) -> tuple[list[int], list[int], list[int]]:
        """What a part takes: inputs of the graph, what other parts compute, and what it makes itself: of constants, and
        views that others of the device, where it reads peers, have taken too."""
        own = set(nodes)
        found: dict[str, set[int]] = {"input": set(), "node": set(), "free": set()}
        todo = [self.root[a] for n in nodes for a in self.graph.nodes[n].args] + [*self.written.get(key, ())]
        while todo:
            n = todo.pop()
            if n in own or any(n in kind for kind in found.values()):
                continue
            if self.graph.nodes[n].op == "input":
                found["input"].add(n)
            elif n in self.level and n not in self.retaken:
                found["node"].add(n)
            else:
                found["free"].add(n)
                todo += [self.root[a] for a in self.graph.nodes[n].args]
        return sorted(found["input"]), sorted(found["node"]), sorted(found["free"])

    def _build_device_part(
        self,
        slot: int,
        nodes: Sequence[int],
        inputs: Sequence[int],
        arriving: Sequence[int],
        free: Sequence[int],
        out: Sequence[int],
    ) -> Part:
        whole = self.graph
        reads = [self.value_read("input", n, slot) for n in inputs]
        reads += [self.value_read("node", n, slot) for n in arriving]
        given = [*inputs, *arriving]
        order = [*given, *sorted((*free, *nodes))]
        new = {old: i for i, old in enumerate(order)}
        numbers = [n for n in free if whole.nodes[n].op == "number"]
        made: list[Node] = []
        for i, old in enumerate(order):
            node = whole.nodes[old]
            if i < len(given):
                made.append(Node("input", (), node.type, (("index", i),)))
            elif node.op == "number":
                made.append(Node("number", (), node.type, (("index", numbers.index(old)),)))
            else:
                made.append(Node(node.op, tuple(new[self.root[a]] for a in node.args), node.type, node.attrs))
        graph = Graph(
            tuple(made),
            tuple(range(len(given))),
            tuple(new[n] for n in numbers),
            tuple(new[n] for n in out),
            tuple(whole.lines[n] for n in order) if whole.lines else (),
            whole.name,
        )
        writes = tuple(self.value("node", n, slot) for n in out)
        return Part(slot, graph, tuple(reads), writes, tuple(whole.numbers.index(n) for n in numbers))
