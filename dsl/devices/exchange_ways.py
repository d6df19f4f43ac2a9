"""The ways in which devices of one process exchange arrays, and what each takes, timed by calls of a small program.

Calls are in flight one after another, as those of a program are, so what the host does for each counts as well.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...compiler.core.types import ArrayType
from ...compiler.graph.builder import GraphBuilder
from ...compiler.graph.graph import Graph
from ...compiler.placement.partition import Partition, partition_graph_by_device
from ...compiler.placement.ranks import NCCL_REDUCTIONS, RankPartition, partition_for_each_device, partition_for_rank
from ...compiler.placement.replicate import replicate_graph_on_devices
from ...runtime.core.frozen import dataclass
from ...runtime.program.device import Device, DeviceCommunicator
from ..array.array import asarray
from ..array.devices import name_of
from ..core.spec import spec_of
from ..jit.options import checked_kernel_graph_options
from .device_calls import make_multi_device_plan_ready, run_plan
from .device_plans import MultiDevicePlanMaker

ROUNDS = 4  # of which the least counts
WARM_CALLS = 6  # until a plan is replayed
CALLS = 16  # in flight in a round
CALL_BYTES = 64 << 20  # of which a round has no more than so many bytes, but for one call
F32 = np.dtype(np.float32)
# of a collective by the name that World has for it: the op, its attributes for so many devices, and how its result's
# length is to its argument's
ROWS: dict[str, Any] = {
    "all_reduce": lambda size: ("all_reduce", {"how": "sum"}, (1, 1)),
    "all_gather": lambda size: ("all_gather", {"axis": 0}, (size, 1)),
    "reduce_scatter": lambda size: ("reduce_scatter", {"axis": 0, "how": "sum"}, (1, size)),
    "broadcast": lambda size: ("from_root", {"root": 0}, (1, 1)),
    "all_to_all": lambda size: ("all_to_all", {"split": 0, "join": 0}, (1, 1)),
    "permute": lambda size: ("exchange", {"pairs": tuple((r, (r + 1) % size) for r in range(size))}, (1, 1)),
}


@dataclass(frozen=True, slots=True)
class ExchangePartition:
    """A graph's partition on a mesh. communicator: what does its collectives; None: the copies in it, or the ranks'
    world. reads_peers: see `MultiDevicePlan`. why: in words, where there was a choice."""

    partition: Partition | RankPartition
    communicator: DeviceCommunicator | None = None
    reads_peers: bool = False
    why: str = ""


def partition_by_way(
    graph: Graph, count: int, way: str, communicator: DeviceCommunicator | None = None
) -> ExchangePartition:
    """The partition for so many devices of this process, whose collectives go by one way. Raises GraphError."""
    if way == "nccl":
        partition = partition_for_rank(graph, count, NCCL_REDUCTIONS)
        return ExchangePartition(partition_for_each_device(partition, count), communicator)
    reads = way == "reads"
    replicas = replicate_graph_on_devices(graph, count, reads)
    targets = [r for _ in graph.outputs for r in range(count)]
    homes = [r for _ in graph.inputs for r in range(count)] if reads else None
    return ExchangePartition(
        partition_graph_by_device(replicas.graph, replicas.slots, targets, homes), reads_peers=reads
    )


def collective_of_half(op: str, nbytes: int, size: int) -> Graph:
    """A collective over so many devices of half of each one's array, which has about so many bytes."""
    builder = GraphBuilder(f"trial of {op}")
    count = max(1, nbytes // (4 * size)) * size
    given = builder.input(ArrayType((count,), F32))
    half = builder.map("multiply", given, builder.const(0.5, F32))
    name, attrs, (times, parts) = ROWS[op](size)
    fixed = tuple(sorted({**attrs, "size": size}.items()))
    made = builder.add(name, (half.number,), ArrayType((count * times // parts,), F32), fixed)
    return builder.finish([made])


def microseconds_of_trial(
    devices: Sequence[Device], op: str, nbytes: int, way: str, communicator: DeviceCommunicator | None
) -> float:
    """The least of a few rounds. Raises KernelGraphError."""
    graph, size = collective_of_half(op, nbytes, len(devices)), len(devices)
    found: ExchangePartition = partition_by_way(graph, size, way, communicator)
    places = [(device.kind, device.index) for device in devices]
    options = checked_kernel_graph_options(device=name_of(devices[0]))
    name = "" if found.communicator is None else found.communicator.name
    plan = MultiDevicePlanMaker(options).plan(found.partition, places, graph.name, 1, name, found.reads_peers)
    executable = make_multi_device_plan_ready(plan, None, found.communicator)
    (number,) = graph.inputs
    array = np.zeros(graph.nodes[number].type.shape, F32)
    given = [asarray(array, device=name_of(device)) for device in devices]
    specs = [spec_of(graph.nodes[o].type) for o in graph.outputs for _ in devices]

    def seconds(calls: int) -> float:
        start = time.perf_counter()
        for _ in range(calls):
            results = run_plan(executable, given, (), specs)
        for result in results:
            result.wait()
        return (time.perf_counter() - start) / calls

    calls = max(1, min(CALLS, CALL_BYTES // max(1, nbytes)))
    for _ in range(WARM_CALLS):
        seconds(1)
    return min((seconds(calls) for _ in range(ROUNDS)), default=math.inf) * 1e6
