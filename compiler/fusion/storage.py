"""Which values are stored and which are computed again, decided before there are groups. Graph -> StoragePlan.

A value that is needed at several places (by shifts of a stencil, by kernels over several domains) is stored once, or
computed at each place from what it is made of. What costs least depends on all values between those that are in memory
anyway: a minimum cut through them, in flops; bytes that are moved weigh as the target's cost model says. A value has
two vertices: `demand`, on the source's side where something that is computed again uses it, and `again`, there where it
is computed again itself.

A cut takes each value at as many places as there are if all that uses it is computed again. Above a value that is
stored there are fewer: what a cut says is kept where it took the places right, the rest is cut anew.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from ...runtime.core.frozen import frozen
from ..core.cost import WorkCostModel
from ..core.minimum_cut import NEVER, SINK, SOURCE, FlowNetwork
from ..graph.graph import Graph
from ..layout.operands import Map, identity_index_map, index_map_through_node
from ..ops.table import OPS
from .expected_kernels import ExpectedKernel, Use, expected_kernels_of_nodes, uses_of_values

MOST_PLACES = 32  # at which one value is computed again: the text of its kernel grows with them
REGION = 64  # values that are decided together
UNIT = 16  # capacities are whole numbers, sixteenths of a flop

Place = int  # a number of `_Places`


@frozen
class StorageCost:
    """Flops an element: of storing a value, and of computing it again with all that it is made of."""

    store: float
    again: float


@frozen
class _CutValue:
    """own: the places of a value if what uses it and is not decided yet is computed once; everywhere: if that is
    computed again. demand, again: its vertices; cost: in flops, of computing it again, or of loading what is in
    memory."""

    own: set[Place]
    everywhere: set[Place]
    demand: int
    again: int
    cost: float


class _Places:
    """Where values are computed, by numbers: a kernel, by its own number, and a map of its domain.

    points: how often the kernel computes what it reads there. whole: the lengths, but for those of 1, of a value of
    which it reads each element once there."""

    def __init__(self, kernels: Sequence[ExpectedKernel]) -> None:
        self.kernels = kernels
        self.reduces = any(kernel.rows for kernel in kernels)
        self.numbers: dict[tuple[int, Map], Place] = {}
        self.kernel: list[int] = []
        self.map: list[Map] = []
        self.points: list[int] = []
        self.whole: list[tuple[int, ...] | None] = []

    def number(self, number: int, m: Map) -> Place:
        found = self.numbers.get((number, m))
        if found is None:
            found = self.numbers[number, m] = len(self.map)
            self._add(number, m)
        return found

    def _add(self, number: int, m: Map) -> None:
        kernel, axes = self.kernels[number], [axis for axis, _, _ in m if axis >= 0]
        once = kernel.rows if kernel.rows.isdisjoint(axes) else ()
        points = math.prod([n for axis, n in enumerate(kernel.domain) if axis not in once] if axes else ())
        lengths = tuple([kernel.domain[axis] for axis in axes])
        moved = any([start or (axis >= 0 and step != 1) for axis, step, start in m])
        self.kernel.append(number)
        self.map.append(m)
        self.points.append(points)
        self.whole.append(None if moved or axes != sorted(axes) or math.prod(lengths) != points else lengths)


class _Through(dict[Place, Place]):
    """Where a value is needed, by where what uses it through these views is computed."""

    def __init__(self, plan: StoragePlan, number: int, user: int, views: tuple[int, ...]) -> None:
        super().__init__()
        self.plan, self.value, self.user, self.views = plan, number, user, views

    def __missing__(self, place: Place) -> Place:
        nodes, at = self.plan.graph.nodes, self.plan.at
        m = at.map[place]
        if nodes[self.user].kind != "reduce":
            arg = self.views[0] if self.views else self.value
            m = index_map_through_node(nodes[self.user], nodes[arg].type, m)
        for view in self.views:
            m = index_map_through_node(nodes[view], nodes[nodes[view].args[0]].type, m)
        found = self[place] = at.number(at.kernel[place], m)
        return found


class StoragePlan:
    """stored: what is stored because that costs less than computing it wherever it is used."""

    def __init__(self, graph: Graph, model: WorkCostModel) -> None:
        self.graph, self.model = graph, model
        self.stored: dict[int, StorageCost] = {}
        self.sizes = [node.size for node in graph.nodes]
        self.args, self.users, self.open = uses_of_values(graph)
        self.places: dict[int, set[Place]] = {}  # of all that is decided: where it is computed
        self.carried: dict[int, float] = {}  # flops that several kernels do again on the way to a value
        self.maps: dict[tuple[Any, ...], _Through] = {}  # by value, user and views, or what these do alike
        kernels = expected_kernels_of_nodes(graph, model)
        numbers = {kernel: number for number, kernel in enumerate(dict.fromkeys(kernels))}
        self.at = _Places([*numbers])
        self.home = [numbers[kernel] for kernel in kernels]
        for number, args in enumerate(self.args):
            if (args or self.users[number]) and not self.open[number]:
                self.places[number] = {self._own_place(number)}
        self._decide(range(len(graph.nodes) - 1, -1, -1))

    def kernels_at(self, number: int) -> int:
        """How many kernels are expected to compute a value that is decided."""
        return len({self.at.kernel[place] for place in self.places[number]})

    def part(self, number: int, kernels: int) -> StorageCost | None:
        """Whether to store a value that several kernels use, which were expected to be fewer: limits keep them apart.
        Its arguments are then used by as many. None, and it is computed by each, where that costs no more."""
        node = self.graph.nodes[number]
        more = kernels - self.kernels_at(number)
        args = sum(self.graph.nodes[arg].type.nbytes for arg in dict.fromkeys(node.args))
        again = OPS[node.op].cost * more * node.size + self.carried.get(number, 0.0)
        store = (self.model.written + self.model.read * kernels) * node.type.nbytes
        all_again = again + self.model.read * more * args
        if all_again > store:
            return StorageCost(store / max(1, node.size), all_again / max(1, node.size))
        for arg, _ in self.args[number]:
            self.carried[arg] = max(again, self.carried.get(arg, 0.0))
        return None

    def _decide(self, numbers: Iterable[int]) -> None:
        """Decide on values in this order: what uses a value comes before it."""
        for number in numbers:
            if not self.open[number] or number in self.places:
                continue
            if self.sizes[number] <= 1:  # is computed wherever it is used
                self.places[number] = {self._own_place(number)}
                continue
            places = self._places(number)
            if self._is_computed_once(number, places):
                continue
            cost = self._cost_of_computing(number, places)
            if len(places) > MOST_PLACES or cost >= self._cost_of_storing(number, places):  # whatever it is made of
                self._store(number, places, cost)
            else:
                self._cut(self._region(number))

    def _store(self, number: int, places: set[Place], again: float) -> None:
        size = self.sizes[number]
        self.stored[number] = StorageCost(self._cost_of_storing(number, places) / size, again / size)
        self.places[number] = {self._own_place(number)}

    def _is_computed_once(self, number: int, places: set[Place]) -> bool:
        """Whether one kernel computes each of its elements once, and could store it. It is then decided."""
        once = len(places) == 1 and self._is_whole(number, *places)
        if once:
            self.places[number] = places
        return once

    def _region(self, start: int) -> list[int]:
        """Values that are not decided, next to each other, the last first; as far as the cut may compute them again."""
        found, todo = {start: 1}, deque([start])  # with at most so many places
        while todo and len(found) < REGION:
            number = todo.popleft()
            near = [(arg, found[number] * self._spread(arg)) for arg, _ in self.args[number]]
            for other, places in (*near, *((user, 1) for user, _ in self.users[number])):
                if other not in found and places <= MOST_PLACES and self._may_be_cut(other):
                    found[other] = places
                    todo.append(other)
        return sorted(found, reverse=True)

    def _may_be_cut(self, number: int) -> bool:
        few = len(self.users[number]) < REGION  # what very many use is stored for all but those
        return self.open[number] and number not in self.places and self.sizes[number] > 1 and few

    def _spread(self, number: int) -> int:
        """How many views of a value are used."""
        return len({views for _, views in self.users[number]})

    def _cut(self, region: Sequence[int]) -> None:
        """Decide on the first values of a region, and on what is above them and computed again."""
        network, values = FlowNetwork(), dict[int, _CutValue]()
        for number in region:
            values[number] = self._cut_value(number, self.users[number], values, network)
        memory: dict[int, list[Use]] = {}
        for number in region:
            for arg, views in self.args[number]:
                if arg not in values and self.sizes[arg] > 1:
                    memory.setdefault(arg, []).append((number, views))
        for number, users in memory.items():
            values[number] = self._cut_value(number, users, values, network)
        for number, value in values.items():
            self._add_edges(number, value, network, number in memory)
            for user in dict.fromkeys([user for user, _ in memory.get(number) or self.users[number]]):
                if user in values:
                    network.edge(values[user].again, value.demand, NEVER)
        side = network.source_side()
        for number in region:
            value = values[number]
            if any(user not in self.places for user, _ in self.users[number]):
                continue
            places = self._places(number)
            if self._is_computed_once(number, places) or places != value.everywhere:
                continue
            if side[value.again]:
                self.places[number] = places
            else:
                self._store(number, places, self._cost_above(number, values))

    def _cut_value(
        self, number: int, users: Iterable[Use], values: dict[int, _CutValue], network: FlowNetwork
    ) -> _CutValue:
        own, everywhere = set[Place](), set[Place]()
        for user, views in users:
            known = self.places.get(user)
            if known is None and user in values and len(values[user].everywhere) <= MOST_PLACES:
                known = values[user].everywhere
            alone = self.places.get(user) or {self._own_place(user)}
            found = [*self._places_through_views(number, user, views, alone)]
            own.update(found)
            again = known is not None and known is not alone
            everywhere.update(self._places_through_views(number, user, views, known) if again and known else found)
        same = own == everywhere
        own = self._joined(own)
        everywhere = own if same else self._joined(everywhere)
        if users is self.users[number]:
            cost = self._cost_of_computing(number, everywhere)
        else:
            cost = max(0.0, self._cost_of_loading(number, everywhere) - self._cost_of_loading(number, own))
        return _CutValue(own, everywhere, network.vertex(), network.vertex(), cost)

    def _add_edges(self, number: int, value: _CutValue, network: FlowNetwork, in_memory: bool) -> None:
        """What it costs to compute a value again, or to store it where it is wanted again."""
        if in_memory:
            left = self.open[number] and number not in self.places  # what is beyond the region counts as stored
            cost = value.cost + (self._cost_of_storing(number, value.own) if left else 0.0)
            network.edge(value.demand, SINK, round(UNIT * cost))
            return
        once = len(value.own) == 1 and self._is_whole(number, *value.own)
        store = more = round(UNIT * self._cost_of_storing(number, value.own))
        if value.own is not value.everywhere:
            more = round(UNIT * self._cost_of_storing(number, value.everywhere))
        network.edge(value.demand if once else SOURCE, value.again, store)
        if more > store:
            network.edge(value.demand, value.again, more - store)
        limit = NEVER if len(value.everywhere) > MOST_PLACES else round(UNIT * value.cost)
        if limit > 0:
            network.edge(value.again, SINK, limit)
        else:
            network.edge(SOURCE, value.again, -limit)

    def _cost_above(self, number: int, values: dict[int, _CutValue]) -> float:
        """Flops of computing a value again, with all that it is made of."""
        found, todo = {number}, [number]
        for each in todo:
            new = [arg for arg, _ in self.args[each] if arg in values and arg not in found] if self.open[each] else []
            found.update(new)
            todo += dict.fromkeys(new)
        return sum(values[each].cost for each in found)

    # what things cost, in flops

    def _cost_of_computing(self, number: int, places: Iterable[Place]) -> float:
        """Of computing a value at these places, beyond what it costs once."""
        points = self.at.points
        return OPS[self.graph.nodes[number].op].cost * (sum([points[place] for place in places]) - self.sizes[number])

    def _cost_of_storing(self, number: int, places: set[Place]) -> float:
        """Of writing a value and of loading it at these places: not where it is computed once and so is at hand."""
        at, lengths = self.at, self._lengths(number)
        kernels = [at.kernel[place] for place in places]
        once = [p for p in places if at.whole[p] == lengths and kernels.count(at.kernel[p]) == 1]
        written = self.model.written * self.graph.nodes[number].type.nbytes
        return written + self._cost_of_loading(number, places.difference(once[:1]))

    def _cost_of_loading(self, number: int, places: Iterable[Place]) -> float:
        """Each kernel takes an element from memory once, from a cache wherever it reads it."""
        points, kernels, loads, most = self.at.points, self.at.kernel, 0, dict[int, int]()
        for place in places:
            count, kernel = points[place], kernels[place]
            loads += count
            if count > most.get(kernel, 0):
                most[kernel] = count
        size, width = self.sizes[number], self.graph.nodes[number].dtype.itemsize
        return self.model.load * loads + self.model.read * width * sum([min(count, size) for count in most.values()])

    # places

    def _places(self, number: int) -> set[Place]:
        """Where a value is needed; all that uses it is decided."""
        found: set[Place] = set()
        for user, views in self.users[number]:
            found.update(self._places_through_views(number, user, views, self.places[user]))
        return self._joined(found)

    def _own_place(self, number: int) -> Place:
        kernel = self.home[number]
        return self.at.number(kernel, identity_index_map(self.at.kernels[kernel].domain))

    def _places_through_views(
        self, number: int, user: int, views: tuple[int, ...], places: Iterable[Place]
    ) -> Iterable[Place]:
        """Where a value is needed if what uses it, through these views, is computed at such places."""
        nodes = self.graph.nodes
        if not views and nodes[number].shape == nodes[user].shape:
            return places
        through = self.maps.get((number, user, views))
        if through is None:
            shifts = self._shifts(number, user, views)
            key = (number, user, views) if shifts is None else shifts
            through = self.maps.setdefault(key, _Through(self, number, user, views))
            self.maps[number, user, views] = through
        return map(through.__getitem__, places)

    def _shifts(self, number: int, user: int, views: tuple[int, ...]) -> tuple[Any, ...] | None:
        """What tells where a value is needed, if all that reads it so are slices: many values have the same."""
        nodes = self.graph.nodes
        read, *behind = [nodes[n].shape for n in (*views, number)]
        if nodes[user].kind != "reduce" and read != nodes[user].shape:
            return None
        if any(nodes[view].op != "slice" for view in views) or any(1 in shape for shape in behind):
            return None
        return tuple((nodes[view].attr("starts"), nodes[view].attr("steps")) for view in views)

    def _joined(self, places: set[Place]) -> set[Place]:
        """With kernels that reduce and those that do not as one, where one kernel can be both."""
        at = self.at
        if not at.reduces:
            return places
        used = {at.kernel[place] for place in places}
        reducing = {(k.domain, k.level): n for n in sorted(used, reverse=True) if (k := at.kernels[n]).rows}
        if len(used) == 1 or not reducing:
            return places
        taken = {n: reducing.get((k.domain, k.level), n) for n in used if not (k := at.kernels[n]).rows}
        return {at.number(taken.get(n := at.kernel[place], n), at.map[place]) for place in places}

    def _is_whole(self, number: int, place: Place) -> bool:
        """Whether a kernel computes each element of a value, once, where it reads it."""
        return self.at.whole[place] == self._lengths(number)

    def _lengths(self, number: int) -> tuple[int, ...]:
        return tuple([n for n in self.graph.nodes[number].shape if n != 1])
