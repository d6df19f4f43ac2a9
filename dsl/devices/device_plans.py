"""A traced function and its devices in, the plans over them that may run it out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from ...compiler.core.types import ArrayType
from ...compiler.graph.graph import Graph, GraphError
from ...compiler.pipeline import compile_graph_to_program
from ...compiler.placement.clusters import BETWEEN_RANKS, LINKS, DeviceLink, choose_device_slots
from ...compiler.placement.partition import (
    Move,
    Part,
    Partition,
    PlacedValue,
    partition_graph_by_device,
    partition_with_arguments_elsewhere,
)
from ...compiler.placement.places import Places, devices_of_placed_graph, place_nodes_by_arguments
from ...compiler.placement.ranks import Meeting, RankPartition
from ...compiler.targets.target import target_of
from ...runtime.core.errors import KernelGraphError
from ...runtime.core.frozen import frozen, replace
from ...runtime.core.settings import settings
from ...runtime.program.plan import Plan
from ...runtime.program.program import Buffer
from ...runtime.schedule.cost_model import machine_model_of_device
from ...runtime.schedule.join import PlanJoiner
from ...runtime.schedule.schedule import batch_matmul_tasks_where_faster, plan_by_cost_model
from ...runtime.schedule.surroundings import Send, Surroundings
from ...runtime.tune.links import measured_copy_times
from ..array.devices import gpu_properties_at, kernel_target_of_device_kind, open_device
from ..core.errors import locate_graph_error
from ..jit.options import Options

Place = tuple[str, int]
TYPICAL_BYTES = 1 << 20  # which of several links is slowest is asked of a copy of so many


def places_of_nodes_on_devices(graph: Graph, devices: Sequence[Place]) -> Places:
    """Where the nodes of a graph run: see `place_nodes_by_arguments`. Raises UserError at the user's line."""
    try:
        found = place_nodes_by_arguments(graph, devices_of_placed_graph(graph, devices))
        for number, node in enumerate(graph.nodes):
            if node.op == "place" and node.attr("device")[0] != devices[0][0]:
                kinds = f"{node.attr('device')[0]}:{node.attr('device')[1]} and {devices[0][0]}:{devices[0][1]}"
                line = graph.lines[number] if graph.lines else ""
                raise GraphError(f"devices of one program are of one kind; {kinds} are not", line=line)
    except GraphError as error:
        raise locate_graph_error(error) from None
    return found


class MultiDevicePlanMaker:
    """Plans of partitions of one function, with its options; equal parts are compiled once."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._plans: dict[tuple[Graph, Place, Surroundings], Plan] = {}

    def plan(
        self,
        partition: Partition | RankPartition,
        devices: Sequence[Place],
        name: str,
        ranks: int = 1,
        exchanged_by: str = "",
        reads_peers: bool = False,
    ) -> Plan:
        """ranks, exchanged_by, reads_peers: see `Plan`."""
        outputs = {*partition.outputs}
        values = [
            Buffer(
                value.type.nbytes,
                "input" if value.source >= 0 else "output" if v in outputs else "value",
                device=value.slot,
                source=value.source,
            )
            for v, value in enumerate(partition.values)
        ]
        joiner = PlanJoiner(devices, values)
        for step in partition.steps:
            if isinstance(step, Move):
                joiner.add_copy(step.source, step.target)
            elif isinstance(step, Meeting):
                joiner.add_collective(step.kernel, step.reads, step.writes)
            else:
                surroundings = surroundings_of_device_part(partition, step, devices)
                part = self._plan_of_one_device(step.graph, devices[step.slot], surroundings)
                joiner.add_part(part, step.slot, step.reads, step.writes, step.numbers)
        plan = joiner.finish(partition.outputs, name, kernel_target_of_device_kind(devices[0][0]))
        return replace(plan, ranks=ranks, exchanged_by=exchanged_by, reads_peers=reads_peers)

    def _plan_of_one_device(self, graph: Graph, device: Place, surroundings: Surroundings) -> Plan:
        kind = device[0]
        gpu = gpu_properties_at(device)
        found = self._plans.get((graph, device, surroundings))
        if found is None:  # the devices of a kind are alike, as far as kernels know
            same = graph, surroundings
            alike = (p for (g, at, s), p in self._plans.items() if (g, s) == same and gpu_properties_at(at) == gpu)
            found = next(alike, None)
        if found is None:
            machine, streams = machine_model_of_device(kind, gpu), self._options.streams
            program = compile_graph_to_program(
                graph,
                kernel_target_of_device_kind(kind),
                None,
                fastmath=self._options.fastmath,
                precision=self._options.precision or "float32",
                gpu=gpu,
            )
            program = batch_matmul_tasks_where_faster(program, machine, surroundings=surroundings)
            found = plan_by_cost_model(program, streams, self._options.memory, machine, surroundings)
        self._plans[graph, device, surroundings] = found
        return found


def surroundings_of_device_part(
    partition: Partition | RankPartition, part: Part, devices: Sequence[Place]
) -> Surroundings:
    """In which turn what a part reads comes, and what is sent of its results: by sums over ranks, or by copies.

    What another part of this device joins with copies counts as sent too, so that devices that do the same have one
    plan."""
    values, places = partition.values, {value: place for place, value in enumerate(part.writes)}
    depths = [values[v].depth if values[v].source < 0 else 0 for v in part.reads]
    turns = {depth: turn for turn, depth in enumerate(sorted({0, *depths}))}
    sums = [s for s in partition.steps if isinstance(s, Meeting)]
    if sums:
        sends = _sends_by_sums(sums, places, values)
    else:
        # a guess of the link will do, and alike parts stay one
        sends = _sends_to_devices(partition, places, LINKS[devices[part.slot][0]])
    reads_peers = any(values[v].slot != part.slot for v in part.reads)
    return Surroundings(tuple(turns[depth] for depth in depths), tuple(sends), reads_peers)


def _sends_by_sums(sums: Sequence[Meeting], places: Mapping[int, int], values: Sequence[PlacedValue]) -> list[Send]:
    """places: of the values that a part writes."""
    return [
        Send(
            tuple(places[v] for v in s.reads if v in places),
            BETWEEN_RANKS.transfer_time(sum(bytes_of_device_value(values[v].type) for v in s.reads)),
        )
        for s in sums
        if not places.keys().isdisjoint(s.reads)
    ]


def _sends_to_devices(partition: Partition | RankPartition, places: Mapping[int, int], link: DeviceLink) -> list[Send]:
    """By copies, or because other devices read what is written."""
    values = partition.values
    parts = [s for s in partition.steps if isinstance(s, Part)]
    moves = [s.source for s in partition.steps if isinstance(s, Move)]
    moves += [v for s in parts for v in s.reads if values[v].slot != s.slot]
    onward = {v for s in parts for v in s.reads}
    sent = [v for v in places if v in moves or v in onward] if any(v in places for v in moves) else []
    return [
        Send((places[v],), link.transfer_time(bytes_of_device_value(values[v].type)) * max(1, moves.count(v)))
        for v in sorted(sent, key=lambda v: (values[v].depth, places[v]))
    ]


def bytes_of_device_value(type: ArrayType) -> int:
    """Of the memory of a value, which is never empty."""
    return max(1, type.nbytes)


def slowest_link_of_first_device(devices: Sequence[Place]) -> DeviceLink:
    """To the others, as the clock has it; a guess where they are not there, or without `settings.tune`."""
    guess = LINKS[devices[0][0]]
    if not settings.tune:
        return guess
    try:
        first, *others = (open_device(place) for place in devices)
        times = [measured_copy_times(first, other) for other in others]
    except KernelGraphError:
        return guess
    latency, each_byte = max(times, key=lambda pair: pair[0] + pair[1] * TYPICAL_BYTES)
    return DeviceLink(latency, 1 / each_byte if each_byte else math.inf)


@frozen
class PlanOverPlaces:
    """A plan over several devices. chosen: whether some of it is on another device than the first by choice alone.
    elsewhere: the plan for calls that bring some arguments on other devices, by their buffers."""

    plan: Plan
    chosen: bool
    elsewhere: Callable[[Mapping[int, int]], Plan]


def plan_over_places(graph: Graph, devices: Sequence[Place], maker: MultiDevicePlanMaker) -> PlanOverPlaces:
    """The plan that does what the graph's places say; what they leave open is placed where it ends earliest.

    Results that are placed by choice go to the first device; others stay where they are computed."""
    places = places_of_nodes_on_devices(graph, devices)
    slots: Sequence[int | None] = places.slots
    if len(devices) > 1:
        kind = devices[0][0]
        costs = target_of(kernel_target_of_device_kind(kind), gpu_properties_at(devices[0])).model
        slots = choose_device_slots(graph, places, costs, slowest_link_of_first_device(devices))
    free = [o in places.open or places.slots[o] is None for o in graph.outputs]
    try:
        partition = partition_graph_by_device(graph, slots, [0 if is_free else None for is_free in free])
        plan = maker.plan(partition, places.devices, graph.name)
    except GraphError as error:
        raise locate_graph_error(error) from None

    def plan_elsewhere(devices: Mapping[int, int]) -> Plan:
        return maker.plan(partition_with_arguments_elsewhere(partition, devices), places.devices, graph.name)

    return PlanOverPlaces(plan, any(slots[n] for n in places.open), plan_elsewhere)


__all__ = [
    "MultiDevicePlanMaker",
    "PlanOverPlaces",
    "bytes_of_device_value",
    "places_of_nodes_on_devices",
    "plan_over_places",
]
