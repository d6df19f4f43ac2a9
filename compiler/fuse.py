"""Graph -> groups: which nodes one kernel computes and which it stores. A cover of the graph, not a rewrite.

Consumers first: each node joins the group of its users where that saves traffic, is legal and recomputes little;
then groups over one domain that read the same arrays are joined side by side. Every group stays acyclic with the rest:
a node whose users are all in one group can create no path around it, any other merge is checked by a search.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from .cost import MODELS, CostModel
from .graph import Graph
from .hazards import order_updates
from .maps import Map, identity, is_view, of_memory, pointwise, renumber, through, touches
from .ops import OPS
from .types import ArrayType

MAX_STORES, MAX_LOADS, MAX_NODES = 8, 24, 512
CHEAP = 4.0  # flop-equivalents that are always recomputed rather than stored
SLOW = 1000.0  # flop-equivalents that are never computed twice: a row that is read twice loads them


@dataclass(frozen=True, slots=True)
class Group:
    """kind: `kernel`, `library` or `assembly` (whose parts are stored in place). domain: the iteration space; reduced:
    its reduced axes. computes: the nodes evaluated inside; stores: those written to memory."""

    kind: str
    domain: tuple[int, ...]
    reduced: tuple[int, ...]
    computes: tuple[int, ...]
    stores: tuple[int, ...]

    def __str__(self) -> str:
        axes = f" reduce {self.reduced}" if self.reduced else ""
        inner = ", ".join(f"%{n}" for n in self.computes[:12])
        if len(self.computes) > 12:
            inner += f" and {len(self.computes) - 12} more"
        return f"{self.kind} over {self.domain}{axes}: computes {inner}; stores " + ", ".join(
            f"%{n}" for n in self.stores
        )


@dataclass(frozen=True, slots=True)
class Fusion:
    """Groups in an order in which they can run. why: remarks on what was not fused, for `explain`."""

    groups: tuple[Group, ...]
    why: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join([*(f"g{i}: {g}" for i, g in enumerate(self.groups)), *(f"# {w}" for w in self.why)])


@dataclass(slots=True)
class OpenGroup:
    """A group that still grows. maps[n]: how the domain reads node n, computed here or loaded."""

    number: int
    kind: str
    domain: tuple[int, ...]
    reduced: frozenset[int]
    maps: dict[int, set[Map]]
    gathers: set[int] = field(default_factory=set)  # what is looked up at indices, and so in memory before
    computes: set[int] = field(default_factory=set)
    stores: set[int] = field(default_factory=set)
    carry: dict[int, float] = field(default_factory=dict)  # flops recomputed per element on the way to a node
    after: set[int] = field(default_factory=set)  # groups that read what this one stores

    @property
    def parallel(self) -> tuple[int, ...]:
        return tuple(i for i in range(len(self.domain)) if i not in self.reduced)


def fuse(graph: Graph, target: str = "cpu") -> Fusion:
    """The groups of a graph that `materialize` has prepared."""
    return Fuser(graph, MODELS[target]).run()


class Fuser:
    def __init__(self, graph: Graph, model: CostModel) -> None:
        self.graph, self.model = graph, model
        self.groups: list[OpenGroup] = []
        self.merged: dict[int, int] = {}  # group -> the group that took it in
        self.readers: list[set[int]] = [set() for _ in graph.nodes]  # groups that use the node, inline or loaded
        self.forced = [False] * len(graph.nodes)  # must be stored
        self.home: dict[int, int] = {}  # stored node -> its group
        self.why: list[str] = []

    def run(self) -> Fusion:
        for output in self.graph.outputs:
            self.forced[output] = True
        for number in range(len(self.graph.nodes) - 1, -1, -1):
            node = self.graph.nodes[number]
            kind = OPS[node.op].kind
            if kind == "view":
                self._view(number)
            elif kind in ("library", "assembly"):
                if self.readers[number] or self.forced[number]:
                    self._opaque(number, kind)
            elif kind in ("map", "gather") and (self.readers[number] or self.forced[number]):
                self._map(number)
            elif kind == "reduce" and (self.readers[number] or self.forced[number]):
                self._reduce(number)
        self._side_by_side()
        order_updates(self)
        return Fusion(tuple(self._ordered()), tuple(self.why))

    # the three kinds of node

    def _view(self, number: int) -> None:
        """Views are free: every group that uses one looks through it."""
        node = self.graph.nodes[number]
        arg = node.args[0]
        if self.forced[number]:
            self.forced[arg] = True
        if of_memory(node, self._type(arg)):
            self.forced[arg] = True
            self.readers[arg] |= self.readers_of(number)
            for reader in self.readers_of(number):
                self.groups[reader].gathers.add(arg)
            return
        for group in self.readers_of(number):
            opened = self.groups[group]
            self.readers[arg].add(group)
            for m in opened.maps.get(number, ()):
                self._use(arg, opened, through(node, self._type(arg), m))
            if number in opened.gathers:
                self._look_up(arg, opened)
            carry = opened.carry.get(number, 0.0)
            opened.carry[arg] = max(carry, opened.carry.get(arg, 0.0))

    def _opaque(self, number: int, kind: str) -> None:
        group = self._open(kind, self._type(number).shape, frozenset(), number)
        group.stores.add(number)
        self._settle(number, group)
        for arg in dict.fromkeys(self.graph.nodes[number].args):
            self.forced[arg] = True
            self.readers[arg].add(group.number)

    def _map(self, number: int) -> None:
        readers = self.readers_of(number)
        cost, shape = OPS[self.graph.nodes[number].op].cost, self._type(number).shape
        kernels = [self.groups[r] for r in readers if self._inlines(r, number)]
        if len(kernels) > 1:
            kernels = self._try_merge(kernels)
            readers = self.readers_of(number)
        for group in kernels:
            self._expect_rows(number, group)
        inline = [g for g in kernels if self._cheap_to_recompute(number, g, cost)]
        every = len(inline) == len(readers) and not self.forced[number]
        if every and (len(inline) == 1 or self._cheap_in_all(number, inline, cost)):
            for group in inline:
                self._compute(number, group, cost, cost * (len(inline) - 1) / len(inline))
            return
        for group in inline:  # stored where it is computed once per iteration
            if self._canonical(number, group) and len(group.stores) < MAX_STORES and self._acyclic(number, group):
                self._compute(number, group, cost)
                group.stores.add(number)
                self._settle(number, group)
                return
        group = self._open("kernel", shape, frozenset(), number)
        self._compute(number, group, cost)
        group.stores.add(number)
        self._settle(number, group)

    def _reduce(self, number: int) -> None:
        node = self.graph.nodes[number]
        source = self._type(node.args[0])
        axes = frozenset(node.attr("axes"))
        readers = self.readers_of(number)
        kernels = [self.groups[r] for r in readers if self._inlines(r, number)]
        if len(kernels) > 1:
            kernels = self._try_merge(kernels)
            readers = self.readers_of(number)
        for group in kernels:
            alone = len(readers) == 1
            if not (alone or self._acyclic(number, group)) or not self._take_reduction(
                number, group, source.shape, axes
            ):
                continue
            if not alone or self.forced[number]:
                if len(group.stores) >= MAX_STORES:
                    continue
                group.stores.add(number)
                self._settle(number, group)
            group.computes.add(number)
            self._use_all(node.args, group, {identity(source.shape)}, 0.0)
            return
        group = self._open("kernel", source.shape, axes, number)
        group.maps[number] = {self._kept(source.shape, axes)}
        group.computes.add(number)
        group.stores.add(number)
        self._settle(number, group)
        self._use_all(node.args, group, {identity(source.shape)}, 0.0)

    # may it join?

    def _inlines(self, group: int, number: int) -> bool:
        opened = self.groups[group]
        inside = opened.kind == "kernel" and number in opened.maps and number not in opened.gathers
        return inside and len(opened.computes) < MAX_NODES

    def _cheap_to_recompute(self, number: int, group: OpenGroup, cost: float) -> bool:
        """Evaluating it once per map and iteration must cost less than storing it and loading it back."""
        times = len(group.maps[number])
        if all(a < 0 for m in group.maps[number] for a, _, _ in m):
            return True  # the same for every iteration
        domain = ArrayType(group.domain, self._type(number).dtype).size
        own = self._type(number).size
        extra = cost * (times * domain - own) / max(own, 1)
        if group.reduced and not any(touches(m, group.reduced) for m in group.maps[number]):
            extra = cost * (times - 1)  # evaluated once per row
        elif cost >= SLOW and self._sweeps_twice(group):
            extra += cost
        saved = 2 * self._type(number).dtype.itemsize * self.model.flops_per_byte
        return max(extra, 0.0) + group.carry.get(number, 0.0) <= max(saved, CHEAP if times == 1 else 0.0)

    def _sweeps_twice(self, group: OpenGroup) -> bool:
        """Whether its rows are reduced, and then stored element by element."""
        reduces = any(OPS[self.graph.nodes[n].op].kind == "reduce" for n in group.computes)
        return reduces and any(touches(m, group.reduced) for n in group.stores for m in group.maps.get(n, ()))

    def _expect_rows(self, number: int, group: OpenGroup) -> None:
        """Turn an elementwise group into rows where what it takes once per row comes from a reduction of such rows:
        the reduction will join it, and the node is then computed once per row."""
        if group.reduced or len(group.maps[number]) != 1 or self._type(number).size == 1:
            return
        (m,) = group.maps[number]
        moving = {axis for axis, _, _ in m}
        free = frozenset(i for i, n in enumerate(group.domain) if n != 1 and i not in moving)
        if free and self._comes_from_rows(number, group.domain, free) and self._rows_stay_close(group.domain, free):
            group.reduced = free

    def _comes_from_rows(self, number: int, shape: tuple[int, ...], axes: frozenset[int]) -> bool:
        """Whether a reduction of `shape` over `axes` is found above the node, through work on one value per row."""
        size, todo, seen = self._type(number).size, [number], {number}
        while todo and len(seen) < 64:
            for arg in self.graph.nodes[todo.pop()].args:
                node = self.graph.nodes[arg]
                if OPS[node.op].kind == "reduce" and self._type(node.args[0]).shape == shape:
                    if axes == frozenset(i for i in node.attr("axes") if shape[i] != 1):
                        return True
                elif arg not in seen and node.type.size == size and OPS[node.op].kind in ("map", "gather", "view"):
                    seen.add(arg)
                    todo.append(arg)
        return False

    def _cheap_in_all(self, number: int, groups: list[OpenGroup], cost: float) -> bool:
        """Recompute in every group instead of storing: its arguments are then read by each."""
        node, own = self.graph.nodes[number], self._type(number)
        leaves = sum(self._type(a).nbytes for a in dict.fromkeys(node.args))
        stored = leaves + own.nbytes * (1 + len(groups))
        repeated = cost * (len(groups) - 1) + sum(g.carry.get(number, 0.0) for g in groups)
        again = leaves * len(groups) + repeated * own.size / self.model.flops_per_byte
        if again > stored:
            self.why.append(f"%{number} is stored: recomputing it in {len(groups)} kernels would cost more")
        return again <= stored

    def _canonical(self, number: int, group: OpenGroup) -> bool:
        """Computed exactly once for each element, by an iteration that can store it."""
        if len(group.maps[number]) != 1:
            return False
        (m,) = group.maps[number]
        shape = self._type(number).shape
        moving = [entry[0] for entry in m if entry[0] >= 0]
        if [group.domain[axis] for axis in moving] != [n for n in shape if n != 1]:
            return False
        if any(step != 1 or start for axis, step, start in m if axis >= 0) or any(s for a, _, s in m if a < 0):
            return False
        full = [i for i, n in enumerate(group.domain) if n != 1]
        rows = [i for i in full if i not in group.reduced]
        return 0 not in shape and moving in (full, rows)

    def _take_reduction(self, number: int, group: OpenGroup, shape: tuple[int, ...], axes: frozenset[int]) -> bool:
        """Whether the group can compute the reduction of an array of `shape`; widens its domain where it must."""
        kept = self._kept(shape, axes)
        maps = group.maps[number]
        if group.domain == shape and (not group.reduced or group.reduced == axes):
            if maps != {kept}:
                return False
            feeds_rows = not group.reduced or self._feeds_loop(number, group)
            if feeds_rows and not self._rows_stay_close(shape, axes):
                self.why.append(f"%{number} is stored: its rows are too long to be read twice in one kernel")
                return False
            group.reduced = axes
            return True
        if group.reduced:
            return False
        own = [i for i, n in enumerate(group.domain) if n != 1]
        rows = [i for i, n in enumerate(shape) if i not in axes and n != 1]
        if [group.domain[i] for i in own] != [shape[i] for i in rows]:
            return False
        table = dict(zip(own, rows, strict=True))
        if {renumber(m, table) for m in maps} != {kept}:
            return False
        group.domain, group.reduced = shape, axes
        for node, old in group.maps.items():
            group.maps[node] = {renumber(m, table) for m in old}
        return True

    def _feeds_loop(self, number: int, group: OpenGroup) -> bool:
        """Whether, inside the group, the reduction is used by work that runs for every reduced element."""
        todo, seen = [number], {number}
        while todo:
            for user in self.graph.users[todo.pop()]:
                if user in seen or user not in group.maps or (user not in group.computes and not self._is_view(user)):
                    continue
                if user in group.computes and any(touches(m, group.reduced) for m in group.maps[user]):
                    return True
                seen.add(user)
                if OPS[self.graph.nodes[user].op].kind != "reduce":
                    todo.append(user)
                elif user in group.computes:
                    return True
        return False

    def _rows_stay_close(self, shape: tuple[int, ...], axes: frozenset[int]) -> bool:
        """A row that is read again should come from registers or a cache, and rows should fill the machine."""
        length = ArrayType(tuple(shape[i] for i in axes), self._type(0).dtype).size
        rows = ArrayType(tuple(n for i, n in enumerate(shape) if i not in axes), self._type(0).dtype).size
        inner = axes == frozenset(range(len(shape) - len(axes), len(shape)))
        if length * rows <= 1 << 12:
            return True
        return inner and length <= self.model.row_limit and (rows >= self.model.parallelism or length <= 1 << 12)

    # bookkeeping

    def _open(self, kind: str, domain: tuple[int, ...], reduced: frozenset[int], number: int) -> OpenGroup:
        group = OpenGroup(len(self.groups), kind, domain, reduced, {number: {identity(domain)}})
        self.groups.append(group)
        return group

    def _compute(self, number: int, group: OpenGroup, cost: float, repeated: float = 0.0) -> None:
        """repeated: this group's share of what is computed again in other groups, per element."""
        group.computes.add(number)
        carry = group.carry.get(number, 0.0) + cost * (len(group.maps[number]) - 1) + repeated
        node = self.graph.nodes[number]
        if node.op == "gather":
            self._look_up(node.args[0], group)
        for arg in dict.fromkeys(pointwise(node)):
            for m in tuple(group.maps[number]):
                self._use(arg, group, through(node, self._type(arg), m))
            group.carry[arg] = max(carry, group.carry.get(arg, 0.0))

    def _use_all(self, args: tuple[int, ...], group: OpenGroup, maps: set[Map], carry: float) -> None:
        for arg in args:
            for m in maps:
                self._use(arg, group, m)
            group.carry[arg] = max(carry, group.carry.get(arg, 0.0))

    def _look_up(self, number: int, group: OpenGroup) -> None:
        """A gather of the group reads the node, anywhere."""
        group.gathers.add(number)
        self.forced[number] = True
        self.readers[number].add(group.number)

    def _use(self, number: int, group: OpenGroup, m: Map) -> None:
        group.maps.setdefault(number, set()).add(m)
        self.readers[number].add(group.number)

    def _settle(self, number: int, group: OpenGroup) -> None:
        """`number` is stored by `group`: whoever else reads it comes after."""
        self.home[number] = group.number
        group.after |= {r for r in self.readers_of(number) if r != group.number}

    def find(self, group: int) -> int:
        while group in self.merged:
            group = self.merged[group]
        return group

    def readers_of(self, number: int) -> set[int]:
        found = {self.find(r) for r in self.readers[number]}
        self.readers[number] = found
        return set(sorted(found))

    def _acyclic(self, number: int, group: OpenGroup) -> bool:
        """Whether `group` may store `number`: none of its other readers leads back to the group."""
        others = {r for r in self.readers_of(number) if r != group.number}
        return not any(self.reaches(r, group.number) for r in others)

    def reaches(self, start: int, goal: int) -> bool:
        todo, seen = [start], {start}
        while todo:
            here = todo.pop()
            if here == goal:
                return True
            for following in {self.find(g) for g in self.groups[here].after}:
                if following not in seen:
                    seen.add(following)
                    todo.append(following)
        return False

    def _try_merge(self, groups: list[OpenGroup]) -> list[OpenGroup]:
        """Join groups over one domain that all use a node, where no path runs between them."""
        kept: list[OpenGroup] = []
        for group in sorted(groups, key=lambda g: g.number):
            for other in kept:
                if self._mergeable(other, group):
                    self._merge(other, group)
                    break
            else:
                kept.append(group)
        return kept

    def _mergeable(self, a: OpenGroup, b: OpenGroup) -> bool:
        return (
            a.kind == b.kind == "kernel"
            and a.domain == b.domain
            and a.reduced == b.reduced
            and len(a.stores) + len(b.stores) <= MAX_STORES
            and len(a.computes | b.computes) <= MAX_NODES
            and len(a.maps.keys() | b.maps.keys()) - len(a.computes | b.computes) <= MAX_LOADS
            and not self.reaches(a.number, b.number)
            and not self.reaches(b.number, a.number)
        )

    def _merge(self, a: OpenGroup, b: OpenGroup) -> None:
        for node, maps in b.maps.items():
            a.maps.setdefault(node, set()).update(maps)
            a.carry[node] = max(a.carry.get(node, 0.0), b.carry.get(node, 0.0))
        a.gathers |= b.gathers
        a.computes |= b.computes
        a.stores |= b.stores
        a.after |= b.after
        self.merged[b.number] = a.number
        for node in b.stores:
            self.home[node] = a.number

    def _side_by_side(self) -> None:
        """Groups over one domain that load the same array at the same place read it once together."""
        by_load: dict[tuple[int, Map], list[int]] = {}
        for group in self.groups:
            if group.number in self.merged or group.kind != "kernel":
                continue
            for number, maps in group.maps.items():
                if number not in group.computes and self._type(number).size > 1 and not self._is_view(number):
                    for m in sorted(maps):
                        by_load.setdefault((number, m), []).append(group.number)
        for numbers in by_load.values():
            if len(numbers) > 1:
                alive = {self.find(n): self.groups[self.find(n)] for n in numbers}
                self._try_merge(list(alive.values()))

    def _kept(self, shape: tuple[int, ...], axes: frozenset[int]) -> Map:
        rows = [i for i in range(len(shape)) if i not in axes]
        return identity([shape[i] for i in rows], rows)

    def _type(self, number: int) -> ArrayType:
        return self.graph.nodes[number].type

    def _is_view(self, number: int) -> bool:
        return is_view(self.graph.nodes[number])

    def _ordered(self) -> Iterator[Group]:
        alive = {g.number: g for g in self.groups if g.number not in self.merged}
        waiting: dict[int, int] = dict.fromkeys(alive, 0)
        for group in alive.values():
            group.after = {self.find(g) for g in group.after} - {group.number}
            for following in group.after:
                waiting[following] += 1
        ready = sorted((min(alive[g].stores), g) for g, n in waiting.items() if n == 0)
        while ready:
            _, number = ready.pop(0)
            g = alive[number]
            yield Group(g.kind, g.domain, tuple(sorted(g.reduced)), tuple(sorted(g.computes)), tuple(sorted(g.stores)))
            for following in sorted(g.after):
                waiting[following] -= 1
                if waiting[following] == 0:
                    ready.append((min(alive[following].stores), following))
            ready.sort()
