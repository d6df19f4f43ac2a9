"""Graph -> groups: which nodes one kernel computes and which it stores. A cover of the graph, not a rewrite.

Consumers first: each node joins the groups of its users where that is legal and `storage` has not decided to store it;
then groups over one domain that read the same arrays are joined side by side. Every group stays acyclic with the rest:
a node whose users are all in one group can create no path around it, any other merge is checked by a search.
"""

from __future__ import annotations

import math
from itertools import combinations, islice

from ..core.cost import rereading_rows_costs_little
from ..core.types import FLOAT32
from ..graph.graph import Graph
from ..layout.operands import (
    Map,
    identity_index_map,
    index_map_depends_on,
    index_map_through_node,
    is_node_view_of_memory,
    renumber_index_map_axes,
    running_operand_dtypes_of_reduction,
)
from ..ops.table import OPS
from ..targets.target import Target
from .groups import LIMITS, MAX_NODES, MAX_STORES, MAX_SUMS, Fusion, FusionCover, OpenFusionGroup, Reason
from .inplace_hazards import inplace_overwrites_between_nodes, order_groups_before_inplace_updates
from .storage import StoragePlan
from .sweeps import ReductionsAbove, fits_reduction_loop, may_begin_with_rows

SLOW = 1000.0  # flop-equivalents that are never computed twice: a row that is read twice loads them


def fuse(graph: Graph, target: Target) -> Fusion:
    """The groups of a graph that `materialize` has prepared."""
    return GraphFuser(graph, target).run()


def has_reductions_of_several_axes(graph: Graph) -> bool:
    """Whether its reductions are not all over the same axes, as rows and then all of them are."""
    return len({node.attr("axes") for node in graph.nodes if node.kind == "reduce"}) > 1


class GraphFuser(FusionCover):
    """Decides which node joins which group."""

    def __init__(self, graph: Graph, target: Target) -> None:
        super().__init__(graph)
        self.plan = StoragePlan(graph, target.model)
        self.model, self.windows = target.model, target.windows > 0
        self.above: ReductionsAbove | None = None  # while nodes are placed; made when it is first asked
        self.placing = True

    def run(self) -> Fusion:
        for output in self.graph.outputs:
            self.forced[output] = True
        updates = any(node.op == "update" for node in self.graph.nodes)
        for earlier, later in inplace_overwrites_between_nodes(self.graph) if updates else ():
            self.written_over.setdefault(earlier, []).append(later)
            self.writes_over.setdefault(later, []).append(earlier)
        for number in range(len(self.graph.nodes) - 1, -1, -1):
            node = self.graph.nodes[number]
            kind = node.kind
            if kind == "view":
                self._place_view(number)
            elif kind in ("library", "assembly"):
                if self.readers[number] or self.forced[number]:
                    self._place_opaque_call(number, kind)
            elif kind in ("map", "gather") and (self.readers[number] or self.forced[number]):
                self._place_elementwise_op(number)
            elif kind == "reduce" and (self.readers[number] or self.forced[number]):
                self._place_reduction(number)
        self.placing = False
        self._join_groups_with_common_loads()
        self._join_interleaved_stores()
        if updates:
            order_groups_before_inplace_updates(self)
        else:
            self._begin_sums_where_rows_are()
        return self.finished()

    # the three kinds of node

    def _place_view(self, number: int) -> None:
        """Views are free: every group that uses one looks through it."""
        node = self.graph.nodes[number]
        arg = node.args[0]
        if self.forced[number]:
            self.forced[arg] = True
        if is_node_view_of_memory(node, self.type_of(arg)):
            self.forced[arg] = True
            self.readers[arg] |= self.readers_of(number)
            for reader in self.readers_of(number):
                self.groups[reader].gathers.add(arg)
                self.reasons[arg, reader] = Reason("reshaped")
            return
        for group in self.readers_of(number):
            opened = self.groups[group]
            self.readers[arg].add(group)
            for m in opened.maps.get(number, ()):
                self.use(arg, opened, index_map_through_node(node, self.type_of(arg), m))
            if number in opened.gathers:
                self.look_up(arg, opened)

    def _place_opaque_call(self, number: int, kind: str) -> None:
        group = self.open(kind, self.type_of(number).shape, frozenset(), number)
        group.stores.add(number)
        self.store_in_group(number, group)
        for arg in dict.fromkeys(self.graph.nodes[number].args):
            self.forced[arg] = True
            self.readers[arg].add(group.number)

    def _joined_kernels_that_inline(self, number: int) -> list[OpenFusionGroup]:
        kernels = [self.groups[r] for r in self.readers_of(number) if self._can_inline(r, number)]
        return self.join(kernels) if len(kernels) > 1 else kernels

    def _place_elementwise_op(self, number: int) -> None:
        kernels = self._joined_kernels_that_inline(number)
        readers = self.readers_of(number)
        for group in kernels:
            self._expect_rows(number, group)
        every = len(kernels) == len(readers) and not self.forced[number]
        dear = self._recompute_refusal(number, kernels) if every else None
        if every and dear is None:
            for group in kernels:
                self.compute(number, group)
            return
        refusals: dict[int, Reason] = {}
        home: OpenFusionGroup | None = None
        for group in kernels:  # stored where it is computed once per iteration
            refusal = Reason("slow") if self._is_too_slow(number, group) else self._store_refusal(number, group)
            if refusal is None:
                home = group
                break
            if dear is None or refusal.rule in LIMITS:  # below the limit it would store it, dear or not
                refusals[group.number] = refusal
        for reader in readers:
            self._note_why_group_loads(number, self.groups[reader], home, refusals.get(reader) or dear)
        home = home or self.open("kernel", self.type_of(number).shape, frozenset(), number)
        self.compute(number, home)
        home.stores.add(number)
        self.store_in_group(number, home)

    def _recompute_refusal(self, number: int, groups: list[OpenFusionGroup]) -> Reason | None:
        """Why not to compute it in each of these groups, which are all that use it, wherever they need it."""
        if any(self._is_too_slow(number, group) for group in groups):
            return Reason("slow")
        if len(groups) == 1 and self._is_canonical_in_group(number, groups[0]):
            return None
        cost = self.plan.stored.get(number)
        if cost is None and len(groups) > self.plan.kernels_at(number):
            cost = self.plan.part(number, len(groups))
        if cost is None:
            return None
        # One kernel would compute it once: what kept them from being one is what decides.
        apart = (self.merge_refusal(a, b) for a, b in islice(combinations(groups, 2), 64))
        limit = next((reason for reason in apart if reason is not None and reason.rule in LIMITS), None)
        return limit or Reason("recompute", cost.again, cost.store)

    def _store_refusal(self, number: int, group: OpenFusionGroup) -> Reason | None:
        """Why a group that computes a node cannot store it; None where it can."""
        if not self._is_canonical_in_group(number, group):
            return Reason("partial")
        if len(group.stores) >= MAX_STORES:
            return Reason("stores", len(group.stores) + 1, MAX_STORES)
        return None if self.can_store_without_cycle(number, group) else Reason("cycle")

    def _note_why_group_loads(
        self, number: int, group: OpenFusionGroup, home: OpenFusionGroup | None, known: Reason | None
    ) -> None:
        """Why a group loads a node that is stored elsewhere, in `home` if that is one of the node's readers."""
        if group is home:
            return
        reason = self.reader_refusal(number, group) or known
        if reason is None and home is not None:
            reason = self.merge_refusal(home, group)
        self.reasons[number, group.number] = reason or Reason("stored anyway")

    def _place_reduction(self, number: int) -> None:
        node = self.graph.nodes[number]
        source = self.type_of(node.args[0])
        axes = frozenset(node.attr("axes"))
        kernels = self._joined_kernels_that_inline(number)
        readers = self.readers_of(number)
        home: OpenFusionGroup | None = None
        refusals: dict[int, Reason] = {}
        for group in kernels:
            refusal = self._reduction_refusal(number, group, source.shape, axes, len(readers) == 1)
            if refusal is None:
                home = group
                break
            refusals[group.number] = refusal
        for reader in readers:
            self._note_why_group_loads(number, self.groups[reader], home, refusals.get(reader))
        if home is not None:
            if len(readers) > 1 or self.forced[number]:
                home.stores.add(number)
                self.store_in_group(number, home)
            home.computes.add(number)
            self.use_all(node.args, home, identity_index_map(source.shape))
            return
        group = self.open("kernel", source.shape, axes, number)
        group.maps[number] = {self._shape_without_reduced_axes(source.shape, axes)}
        group.computes.add(number)
        group.stores.add(number)
        self.store_in_group(number, group)
        self.use_all(node.args, group, identity_index_map(source.shape))

    def _reduction_refusal(
        self, number: int, group: OpenFusionGroup, shape: tuple[int, ...], axes: frozenset[int], alone: bool
    ) -> Reason | None:
        """Why a group cannot compute the reduction; None where it can, and its domain is then what that needs."""
        if not (alone or self.can_store_without_cycle(number, group)):
            return Reason("cycle")
        refusal = self._take_reduction(number, group, shape, axes)
        if refusal is None and len(group.stores) >= MAX_STORES and (not alone or self.forced[number]):
            return Reason("stores", len(group.stores) + 1, MAX_STORES)
        return refusal

    # may it join?

    def can_share_sweep(self, a: OpenFusionGroup, b: OpenFusionGroup) -> bool:
        """Where one reduces and the other does not: as long as nodes are placed, only if that keeps out no reduction
        of other axes."""
        if a.reduced and b.reduced:
            return False
        stores, reduces = (b, a) if a.reduced else (a, b)
        if not fits_reduction_loop(self, stores, reduces, self.model, self.windows):
            return False
        if not self.placing:
            return True
        self.above = self.above or ReductionsAbove(self.graph)
        return not self.above.may_join(stores, reduces.reduced)

    def _can_inline(self, group: int, number: int) -> bool:
        opened = self.groups[group]
        inside = opened.kind == "kernel" and number in opened.maps and number not in opened.gathers
        return inside and len(opened.computes) < MAX_NODES

    def _is_too_slow(self, number: int, group: OpenFusionGroup) -> bool:
        """Whether a group would compute a slow node twice: it reduces rows, and then stores with what that gave."""
        if OPS[self.graph.nodes[number].op].cost < SLOW:
            return False
        reductions = [n for n in group.computes if self.graph.nodes[n].kind == "reduce"]
        per_element = any(index_map_depends_on(m, group.reduced) for m in group.maps[number])
        return per_element and any(self._feeds_loop(n, group) for n in reductions)

    def _expect_rows(self, number: int, group: OpenFusionGroup) -> None:
        """Turn an elementwise group into rows where what it takes once per row comes from a reduction of such rows:
        the reduction will join it, and the node is then computed once per row."""
        if group.reduced or len(group.maps[number]) != 1 or self.type_of(number).size == 1:
            return
        (m,) = group.maps[number]
        moving = {axis for axis, _, _ in m}
        free = frozenset(i for i, n in enumerate(group.domain) if n != 1 and i not in moving)
        if (
            free
            and self._comes_from_rows(number, group.domain, free)
            and rereading_rows_costs_little(group.domain, free, self.model)
        ):
            group.reduced = free

    def _comes_from_rows(self, number: int, shape: tuple[int, ...], axes: frozenset[int]) -> bool:
        """Whether a reduction of `shape` over `axes` is found above the node, through work on one value per row."""
        size, todo, seen = self.type_of(number).size, [number], {number}
        while todo and len(seen) < 64:
            for arg in self.graph.nodes[todo.pop()].args:
                node = self.graph.nodes[arg]
                if node.kind == "reduce" and self.type_of(node.args[0]).shape == shape:
                    if axes == frozenset(i for i in node.attr("axes") if shape[i] != 1):
                        return True
                elif arg not in seen and node.size == size and node.kind in ("map", "gather", "view"):
                    seen.add(arg)
                    todo.append(arg)
        return False

    def _is_canonical_in_group(self, number: int, group: OpenFusionGroup) -> bool:
        """Computed exactly once for each element, by an iteration that can store it."""
        if len(group.maps[number]) != 1:
            return False
        (m,) = group.maps[number]
        shape = self.type_of(number).shape
        moving = [entry[0] for entry in m if entry[0] >= 0]
        if [group.domain[axis] for axis in moving] != [n for n in shape if n != 1]:
            return False
        if any(step != 1 or start for axis, step, start in m if axis >= 0) or any(s for a, _, s in m if a < 0):
            return False
        full = [i for i, n in enumerate(group.domain) if n != 1]
        rows = [i for i in full if i not in group.reduced]
        return 0 not in shape and moving in (full, rows)

    def _take_reduction(
        self, number: int, group: OpenFusionGroup, shape: tuple[int, ...], axes: frozenset[int]
    ) -> Reason | None:
        """Why the group cannot compute the reduction of an array of `shape`; None where it can, and its domain is
        widened where it must be."""
        kept = self._shape_without_reduced_axes(shape, axes)
        maps = group.maps[number]
        if group.domain == shape and group.reduced in (frozenset(), axes):
            if maps != {kept}:
                return Reason("partial")
            feeds_rows = not group.reduced or self._feeds_loop(number, group)
            if feeds_rows and not rereading_rows_costs_little(shape, axes, self.model):
                return Reason("long rows", math.prod(shape[i] for i in axes), self.model.row_limit)
            group.reduced = axes
            return None
        if group.reduced:
            return Reason("axes" if group.domain == shape else "domain")
        own = [i for i, n in enumerate(group.domain) if n != 1]
        rows = [i for i, n in enumerate(shape) if i not in axes and n != 1]
        if [group.domain[i] for i in own] != [shape[i] for i in rows]:
            return Reason("domain")
        table = dict(zip(own, rows, strict=True))
        if {renumber_index_map_axes(m, table) for m in maps} != {kept}:
            return Reason("partial")
        group.domain, group.reduced = shape, axes
        for node, old in group.maps.items():
            group.maps[node] = {renumber_index_map_axes(m, table) for m in old}
        return None

    def _feeds_loop(self, number: int, group: OpenFusionGroup) -> bool:
        """Whether, inside the group, the reduction is used by work that runs for every reduced element."""
        todo, seen = [number], {number}
        while todo:
            for user in self.graph.users[todo.pop()]:
                if user in seen or user not in group.maps or (user not in group.computes and not self.is_view(user)):
                    continue
                if user in group.computes and any(index_map_depends_on(m, group.reduced) for m in group.maps[user]):
                    return True
                seen.add(user)
                if self.graph.nodes[user].kind != "reduce":
                    todo.append(user)
                elif user in group.computes:
                    return True
        return False

    def _join_groups_with_common_loads(self) -> None:
        """Groups over one domain that load the same array at the same place read it once together."""
        by_load: dict[tuple[int, Map], list[int]] = {}
        for group in self.groups:
            if group.number in self.merged or group.kind != "kernel":
                continue
            for number, maps in group.maps.items():
                if number not in group.computes and self.type_of(number).size > 1 and not self.is_view(number):
                    for m in sorted(maps):
                        by_load.setdefault((number, m), []).append(group.number)
        for numbers in by_load.values():
            if len(numbers) > 1:
                alive = {self.find(n): self.groups[self.find(n)] for n in numbers}
                self.join(list(alive.values()))

    def _join_interleaved_stores(self) -> None:
        """Groups that store the parts of one array, single elements of its last axis, store whole rows together."""
        for number, node in enumerate(self.graph.nodes):
            if node.op != "assemble" or number not in self.home:
                continue
            last = [self.type_of(a).shape[-1:] for a in node.args]
            if not 1 < node.shape[-1] == len(node.args) <= MAX_STORES or any(n != (1,) for n in last):
                continue
            parts = [a if a in self.home else self.graph.nodes[a].args[0] for a in node.args]
            self.join([self.groups[g] for g in dict.fromkeys(self.find(self.home[p]) for p in parts)])

    def _begin_sums_where_rows_are(self) -> None:
        """A kernel of rows that has what another one adds up over the other axes begins those sums."""
        for sums in [g for g in self.groups if g.reduced and self.model.summed_row]:
            if not self._is_plain_kernel(sums) or not (needs := self._needs_of_sums(sums)):
                continue
            size = math.prod(sums.domain)
            whole = [n for n in needs - sums.computes if self.type_of(n).size == size]
            near = {r for n in whole for r in self.readers_of(n)}
            near |= {self.find(self.home[n]) for n in whole if n in self.home}
            for rows in map(self.groups.__getitem__, sorted(near)):
                fit = rows.domain == sums.domain and self._is_plain_kernel(rows)
                fit = fit and may_begin_with_rows(rows.domain, rows.reduced, sums.reduced, self.model)
                if fit and self._can_begin_sums(rows, sums, needs):
                    self._begin_sums(rows, sums, needs)
                    break

    def _is_plain_kernel(self, group: OpenFusionGroup) -> bool:
        return group.number not in self.merged and group.kind == "kernel" and not group.gathers

    def _needs_of_sums(self, sums: OpenFusionGroup) -> set[int]:
        """What a group adds up in float32 and all that is made of: computed there, loaded, or seen through views. Empty
        where the group takes that for more than sums."""
        nodes = self.graph.nodes
        reductions = {n for n in sums.computes if nodes[n].kind == "reduce"}
        needs, todo = set[int](), [nodes[n].args[0] for n in reductions]
        while todo:
            if (number := todo.pop()) not in needs:
                needs.add(number)
                todo += nodes[number].args if number in sums.computes or self.is_view(number) else ()
        rest = sums.computes - needs - reductions
        used = {arg for n in rest for arg in nodes[n].args} | reductions | sums.stores
        more = any(index_map_depends_on(m, sums.reduced) for n in rest for m in sums.maps[n])
        more |= any(self.type_of(n).size > 1 for n in used & needs)
        dtypes = [running_operand_dtypes_of_reduction(self.graph, n) for n in reductions if nodes[n].op == "sum"]
        return needs if dtypes == [[FLOAT32]] * len(reductions) and not more else set()

    def _can_begin_sums(self, rows: OpenFusionGroup, sums: OpenFusionGroup, needs: set[int]) -> bool:
        """Whether a kernel of rows that loads or computes some of that has room, and all else is there before it."""
        homes = {self.find(self.home[n]) for n in needs - rows.computes if n in self.home}
        late = self.reaches(sums.number, rows.number) or any(self.reaches(rows.number, home) for home in homes)
        count = len(rows.sums) + sum(self.graph.nodes[n].kind == "reduce" for n in sums.computes)
        return not late and len(rows.computes | needs) <= MAX_NODES and count <= MAX_SUMS

    def _begin_sums(self, rows: OpenFusionGroup, sums: OpenFusionGroup, needs: set[int]) -> None:
        rows.sums |= {n for n in sums.computes if self.graph.nodes[n].kind == "reduce"}
        rows.computes |= needs & sums.computes
        sums.computes -= {n for n in needs if self.type_of(n).size > 1}
        for number in needs:
            rows.maps.setdefault(number, set()).update(sums.maps[number])
            if number in self.home and number not in rows.computes:
                self.order(self.find(self.home[number]), rows.number)
            self.readers[number] = self.readers_of(number) | {rows.number}
            if self.type_of(number).size > 1:
                self.readers[number].remove(sums.number)
            if number in rows.stores and not self.forced[number] and self.readers[number] == {rows.number}:
                rows.stores.remove(number)
                del self.home[number]
        self.order(rows.number, sums.number)

    def _shape_without_reduced_axes(self, shape: tuple[int, ...], axes: frozenset[int]) -> Map:
        rows = [i for i in range(len(shape)) if i not in axes]
        return identity_index_map([shape[i] for i in rows], rows)
