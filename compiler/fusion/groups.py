"""What fusion decides on: groups, who reads and stores what, and refusals. A group is finished or still grows.

Why two kernels are not one is said for each array that passes between them through memory: the rule that parted them.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from ...runtime.core.frozen import dataclass, field, frozen
from ..core.types import ArrayType
from ..graph.graph import Graph
from ..layout.operands import Map, identity_index_map, index_map_through_node, is_index_map_view, pointwise_index_maps

# Why a kernel loads what another one has stored. `amount` and `limit` are what was compared, where numbers decide.
RULES = {
    "library result": "a library call makes it",
    "library argument": "a library call reads it",
    "control flow": "it crosses the border of a loop or branch",
    "assembled": "it is made of parts that are written to its memory",
    "computed index": "it is read at computed indices",
    "reshaped": "it is read in another order than it is computed in",
    "nodes": "the kernel would compute more than {limit:.0f} nodes",
    "stores": "the kernel would store more than {limit:.0f} arrays",
    "loads": "the kernel would load more than {limit:.0f} arrays",
    "domain": "the kernels run over different shapes",
    "axes": "the kernels reduce different axes",
    "cycle": "a step that needs the one and feeds the other lies between them",
    "recompute": "computing it again there costs {amount:.0f} flops an element, loading it as much as {limit:.0f}",
    "slow": "it is too slow to be computed in each of two sweeps over the rows",
    "long rows": "its rows of {amount:.0f} elements are too long, few or far apart to be read twice in one kernel",
    "partial": "the kernel that reads it does not compute each of its elements exactly once",
    "stored anyway": "another kernel stores it anyway",
}
LIMITS = ("nodes", "stores", "loads")  # of one kernel


@frozen
class Reason:
    """A rule of `RULES`, and the numbers that it compared."""

    rule: str
    amount: float = 0.0
    limit: float = 0.0

    def __str__(self) -> str:
        return RULES[self.rule].format(amount=self.amount, limit=self.limit)


LIBRARY_RESULT, ASSEMBLED = Reason("library result"), Reason("assembled")


@frozen
class Cut:
    """A node that group `writer` stores and group `reader` loads, and why they are not one kernel."""

    node: int
    writer: int
    reader: int
    reason: Reason

    def __str__(self) -> str:
        return f"%{self.node} from g{self.writer} to g{self.reader}: {self.reason}"


MAX_STORES, MAX_LOADS, MAX_NODES = 8, 24, 512
MAX_SUMS = 3  # that a kernel of rows begins


@frozen
class Group:
    """kind: `kernel`, `library` or `assembly` (whose parts are stored in place). domain: the iteration space; reduced:
    its reduced axes. computes: the nodes evaluated inside; stores: those written to memory; sums: reductions over the
    other axes that it begins, and another group ends."""

    kind: str
    domain: tuple[int, ...]
    reduced: tuple[int, ...]
    computes: tuple[int, ...]
    stores: tuple[int, ...]
    sums: tuple[int, ...] = ()

    def __str__(self) -> str:
        axes = f" reduce {self.reduced}" if self.reduced else ""
        sums = "; begins " + ", ".join(f"%{n}" for n in self.sums) if self.sums else ""
        inner = ", ".join(f"%{n}" for n in self.computes[:12])
        if len(self.computes) > 12:
            inner += f" and {len(self.computes) - 12} more"
        return (
            f"{self.kind} over {self.domain}{axes}: computes {inner}; stores "
            + ", ".join(f"%{n}" for n in self.stores)
            + sums
        )


@frozen
class Fusion:
    """Groups in an order in which they can run. cuts: what passes from one to another through memory."""

    groups: tuple[Group, ...]
    cuts: tuple[Cut, ...] = ()

    def __str__(self) -> str:
        return "\n".join([*(f"g{i}: {g}" for i, g in enumerate(self.groups)), *(f"# {c}" for c in self.cuts)])


@dataclass(slots=True)
class OpenFusionGroup:
    """A group that still grows. maps[n]: how the domain reads node n, computed here or loaded."""

    number: int
    kind: str
    domain: tuple[int, ...]
    reduced: frozenset[int]
    maps: dict[int, set[Map]]
    gathers: set[int] = field(default_factory=set)  # what is looked up at indices, and so in memory before
    computes: set[int] = field(default_factory=set)
    stores: set[int] = field(default_factory=set)
    sums: set[int] = field(default_factory=set)  # reductions over the other axes that it begins
    after: set[int] = field(default_factory=set)  # groups that read what this one stores

    @property
    def parallel(self) -> tuple[int, ...]:
        return tuple(i for i in range(len(self.domain)) if i not in self.reduced)

    @property
    def first(self) -> int:
        """The first node that it leaves in memory, or begins."""
        return min(self.stores | self.sums)


class FusionCover:
    """Groups that grow over a graph: which nodes each reads and stores, and which come after which."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.groups: list[OpenFusionGroup] = []
        self.merged: dict[int, int] = {}  # group -> the group that took it in
        self.readers: list[set[int]] = [set() for _ in graph.nodes]  # groups that use the node, inline or loaded
        self.forced = [False] * len(graph.nodes)  # must be stored
        self.home: dict[int, int] = {}  # stored node -> its group
        self.written_over: dict[int, list[int]] = {}  # stored node -> those that are stored where it was
        self.writes_over: dict[int, list[int]] = {}  # and the other way round
        self.below: list[int] = []  # for each group, as bits: itself, and all that come after it
        self.before: list[list[int]] = []  # for each group those that were ordered before it
        self.reasons: dict[tuple[int, int], Reason] = {}  # (stored node, group): why that group loads it

    def open(self, kind: str, domain: tuple[int, ...], reduced: frozenset[int], number: int) -> OpenFusionGroup:
        group = OpenFusionGroup(len(self.groups), kind, domain, reduced, {number: {identity_index_map(domain)}})
        self.groups.append(group)
        self.below.append(1 << group.number)
        self.before.append([])
        return group

    def compute(self, number: int, group: OpenFusionGroup) -> None:
        group.computes.add(number)
        maps = group.maps[number]
        node = self.graph.nodes[number]
        if node.op == "gather":
            self.look_up(node.args[0], group)
        for arg in dict.fromkeys(pointwise_index_maps(node)):
            type, read = self.type_of(arg), group.maps.setdefault(arg, set())
            for m in maps:
                read.add(index_map_through_node(node, type, m))
            self.readers[arg].add(group.number)

    def use_all(self, args: tuple[int, ...], group: OpenFusionGroup, m: Map) -> None:
        for arg in args:
            self.use(arg, group, m)

    def look_up(self, number: int, group: OpenFusionGroup) -> None:
        """A gather of the group reads the node, anywhere."""
        group.gathers.add(number)
        self.forced[number] = True
        self.readers[number].add(group.number)

    def use(self, number: int, group: OpenFusionGroup, m: Map) -> None:
        group.maps.setdefault(number, set()).add(m)
        self.readers[number].add(group.number)

    def store_in_group(self, number: int, group: OpenFusionGroup) -> None:
        """`number` is stored by `group`: whoever else reads it comes after."""
        self.home[number] = group.number
        for reader in self.readers_of(number):
            if reader != group.number:
                self.order(group.number, reader)
        for later in self.written_over.get(number, ()):
            self._prefer_store_order(number, later)
        for earlier in self.writes_over.get(number, ()):
            self._prefer_store_order(earlier, number)

    def _prefer_store_order(self, earlier: int, later: int) -> None:
        """Store the one before the other; `order_groups_before_inplace_updates` refuses what stands against it."""
        if earlier in self.home and later in self.home:
            before, after = self.find(self.home[earlier]), self.find(self.home[later])
            if not self.reaches(after, before) and not self.reaches(before, after):
                self.order(before, after)

    def order(self, group: int, after: int) -> None:
        """The group `after` comes after `group`, and so after all that this one comes after."""
        if after not in self.groups[group].after:
            self.groups[group].after.add(after)
            self.before[after].append(group)
        self._extend_order([group], self.below[after])

    def _extend_order(self, groups: list[int], later: int) -> None:
        """`later`, bits, comes after these groups and after all that they come after."""
        while groups:
            number = self.find(groups.pop())
            if later & ~self.below[number]:  # else all that comes before the group knows it too
                self.below[number] |= later
                groups += self.before[number]

    def find(self, group: int) -> int:
        while group in self.merged:
            group = self.merged[group]
        return group

    def readers_of(self, number: int) -> set[int]:
        readers = self.readers[number]
        if not self.merged.keys().isdisjoint(readers):
            readers = self.readers[number] = {self.find(r) for r in readers}
        return readers if len(readers) < 2 else set(sorted(readers))

    def can_store_without_cycle(self, number: int, group: OpenFusionGroup) -> bool:
        """Whether `group` may store `number`: none of its other readers leads back to the group."""
        others = {r for r in self.readers_of(number) if r != group.number}
        return not any(self.reaches(r, group.number) for r in others)

    def reaches(self, start: int, goal: int) -> bool:
        """Whether `goal` is `start`, or comes after it."""
        return bool(self.below[start] >> goal & 1)

    def join(self, groups: list[OpenFusionGroup]) -> list[OpenFusionGroup]:
        """Joins groups over one domain that use one node, where no path runs between them."""
        kept: list[OpenFusionGroup] = []
        alike: dict[tuple[int, ...], list[OpenFusionGroup]] = {}  # those kept that may take another in, by domain
        for group in sorted(groups, key=lambda g: g.number):
            others = alike.setdefault(group.domain, [])
            for other in others:
                if self._can_merge_groups(other, group):
                    self._merge_groups(other, group)
                    if len(other.stores) >= MAX_STORES:
                        others.remove(other)
                    break
            else:
                kept.append(group)
                if len(group.stores) < MAX_STORES:
                    others.append(group)
        return kept

    def _can_merge_groups(self, a: OpenFusionGroup, b: OpenFusionGroup) -> bool:
        return a.kind == b.kind == "kernel" and self.merge_refusal(a, b) is None

    def merge_refusal(self, a: OpenFusionGroup, b: OpenFusionGroup) -> Reason | None:
        """Why two kernels cannot be one; None where they can."""
        if a.domain != b.domain:
            return Reason("domain")
        if a.reduced != b.reduced and not self.can_share_sweep(a, b):
            return Reason("axes")
        if len(a.stores) + len(b.stores) > MAX_STORES:
            return Reason("stores", len(a.stores) + len(b.stores), MAX_STORES)
        computes = len(a.computes | b.computes)
        if computes > MAX_NODES:
            return Reason("nodes", computes, MAX_NODES)
        loads = len(a.maps.keys() | b.maps.keys()) - computes
        if loads > MAX_LOADS:
            return Reason("loads", loads, MAX_LOADS)
        if self.reaches(a.number, b.number) or self.reaches(b.number, a.number):
            return Reason("cycle")
        return None

    def can_share_sweep(self, a: OpenFusionGroup, b: OpenFusionGroup) -> bool:
        """Whether kernels over one domain, of which one reduces, are to be one that stores and reduces."""
        return False

    def _merge_groups(self, a: OpenFusionGroup, b: OpenFusionGroup) -> None:
        a.reduced |= b.reduced
        for node, maps in b.maps.items():
            a.maps.setdefault(node, set()).update(maps)
        a.gathers |= b.gathers
        a.computes |= b.computes
        a.stores |= b.stores
        a.after |= b.after
        after = self.below[a.number] | self.below[b.number]
        self._extend_order([a.number, b.number], after)
        self.before[a.number] += self.before[b.number]
        self.merged[b.number] = a.number
        for node in b.stores:
            self.home[node] = a.number

    def type_of(self, number: int) -> ArrayType:
        return self.graph.nodes[number].type

    def is_view(self, number: int) -> bool:
        return is_index_map_view(self.graph.nodes[number])

    def finished(self) -> Fusion:
        """The groups in an order in which they can run, and what passes between them."""
        numbered = list(self._groups_in_run_order())
        place = {number: i for i, (number, _) in enumerate(numbered)}
        reasons = {(node, self.find(reader)): reason for (node, reader), reason in self.reasons.items()}
        cuts = []
        for node in sorted(self.home):
            writer = self.find(self.home[node])
            for reader in sorted(self.readers_of(node), key=place.__getitem__):
                if reader != writer and self.groups[reader].kind != "assembly":
                    reason = reasons.get((node, reader)) or self.reader_refusal(node, self.groups[reader])
                    cuts.append(Cut(node, place[writer], place[reader], reason or Reason("stored anyway")))
        return Fusion(tuple(group for _, group in numbered), tuple(cuts))

    def reader_refusal(self, number: int, group: OpenFusionGroup) -> Reason | None:
        """Why a group that reads a node must find it in memory, whatever that costs. None where it need not."""
        node = self.graph.nodes[number]
        kind = node.kind
        if node.op in ("loop", "branch"):
            return Reason("control flow")
        if kind in ("library", "assembly"):
            return LIBRARY_RESULT if kind == "library" else ASSEMBLED
        if group.kind != "kernel":
            (made,) = group.stores
            return Reason("control flow" if self.graph.nodes[made].op in ("loop", "branch") else "library argument")
        if number in group.gathers:
            return self.reasons.get((number, group.number)) or Reason("computed index")
        if number not in group.maps:
            return Reason("reshaped")
        if len(group.computes) >= MAX_NODES:
            return Reason("nodes", len(group.computes) + 1, MAX_NODES)
        return None

    def _groups_in_run_order(self) -> Iterator[tuple[int, Group]]:
        alive = {g.number: g for g in self.groups if g.number not in self.merged}
        waiting: dict[int, int] = dict.fromkeys(alive, 0)
        for group in alive.values():
            group.after = {self.find(g) if g in self.merged else g for g in group.after} - {group.number}
            for following in group.after:
                waiting[following] += 1
        ready = [(alive[g].first, g) for g, n in waiting.items() if n == 0]
        heapify(ready)
        while ready:
            _, number = heappop(ready)
            g = alive[number]
            computes, stores, sums = (tuple(sorted(each)) for each in (g.computes, g.stores, g.sums))
            yield number, Group(g.kind, g.domain, tuple(sorted(g.reduced)), computes, stores, sums)
            for following in g.after:
                waiting[following] -= 1
                if waiting[following] == 0:
                    heappush(ready, (alive[following].first, following))
