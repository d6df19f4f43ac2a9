"""The ways in which devices of one process exchange arrays, and what each takes, timed by calls of a small program.

Calls are in flight one after another, as those of a program are, so what the host does for each counts as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...compiler.core.types import ArrayType
from ...compiler.graph.builder import GraphBuilder
from ...compiler.graph.graph import Graph
from ...compiler.placement.partition import Partition, partition_graph_by_device
from ...compiler.placement.ranks import NCCL_REDUCTIONS, RankPartition, partition_for_each_device, partition_for_rank
from ...compiler.placement.replicate import replicate_graph_on_devices
from ...runtime.core.errors import LaunchError
from ...runtime.core.frozen import frozen
from ...runtime.program.device import Device, DeviceCommunicator
from ..array.array import Array, asarray
from ..array.devices import name_of
from ..core.spec import Host, spec_of
from ..jit.options import checked_kernel_graph_options
from .device_calls import make_multi_device_plan_ready, run_plan
from .device_plans import MultiDevicePlanMaker

ROUNDS = 4  # of which the least counts
WARM_CALLS = 6  # until a plan is replayed
CALLS = 16  # in flight in a round
CALL_BYTES = 256 << 20  # of which a round has no more than so many bytes, but for one call
F32 = np.dtype(np.float32)
CHECKED_BYTES = 1 << 20  # arrays of no more are looked at: memory that GPUs share may be broken by how it is set up


@frozen
class ExchangePartition:
    """A graph's partition on a mesh. communicator: what does its collectives; None: the copies in it, or the ranks'
    world. reads_peers: see `Plan`. why: in words, where there was a choice. way: the one that was taken;
    rivals: others that whole calls are to be timed by."""

    partition: Partition | RankPartition
    communicator: DeviceCommunicator | None = None
    reads_peers: bool = False
    why: str = ""
    way: str = ""
    rivals: tuple[str, ...] = ()


def partition_by_way(
    graph: Graph, count: int, way: str, communicator: DeviceCommunicator | None = None
) -> ExchangePartition:
    """The partition for so many devices of this process, whose collectives go by one way. Raises GraphError."""
    if way == "nccl":
        partition = partition_for_rank(graph, count, NCCL_REDUCTIONS)
        return ExchangePartition(partition_for_each_device(partition, count), communicator)
    reads = way in ("reads", "root")
    replicas = replicate_graph_on_devices(graph, count, reads, way == "root")
    targets = [r for _ in graph.outputs for r in range(count)]
    homes = [r for _ in graph.inputs for r in range(count)] if reads else None
    return ExchangePartition(
        partition_graph_by_device(replicas.graph, replicas.slots, targets, homes), reads_peers=reads
    )


@frozen
class Trial:
    """A collective to try. attrs: for so many devices; length: of its result, to its argument's as two numbers;
    meaning: what each device gets of all devices' arrays."""

    op: str
    attrs: Callable[[int], dict[str, Any]]
    length: Callable[[int], tuple[int, int]]
    meaning: Callable[[list[Host]], Sequence[Host]]


def _same_for_all(join: Callable[[list[Host]], Host]) -> Callable[[list[Host]], Sequence[Host]]:
    return lambda xs: [join(xs)] * len(xs)


def _sum_of_all(xs: list[Host]) -> Host:
    found: Host = np.sum(xs, axis=0)
    return found


TRIALS = {  # by the name that World has for them
    "all_reduce": Trial("all_reduce", lambda _: {"how": "sum"}, lambda _: (1, 1), _same_for_all(_sum_of_all)),
    "all_gather": Trial("all_gather", lambda _: {"axis": 0}, lambda n: (n, 1), _same_for_all(np.concatenate)),
    "reduce_scatter": Trial(
        "reduce_scatter",
        lambda _: {"axis": 0, "how": "sum"},
        lambda n: (1, n),
        lambda xs: np.split(_sum_of_all(xs), len(xs)),
    ),
    "broadcast": Trial("from_root", lambda _: {"root": 0}, lambda _: (1, 1), _same_for_all(lambda xs: xs[0])),
    "all_to_all": Trial(
        "all_to_all",
        lambda _: {"split": 0, "join": 0},
        lambda _: (1, 1),
        lambda xs: [np.concatenate([np.split(x, len(xs))[r] for x in xs]) for r in range(len(xs))],
    ),
    "permute": Trial(
        "exchange",
        lambda n: {"pairs": tuple((r, (r + 1) % n) for r in range(n))},
        lambda _: (1, 1),
        lambda xs: [xs[-1], *xs[:-1]],
    ),
}


def graph_of_trial(op: str, nbytes: int, size: int) -> Graph:
    """A small program: each device halves its array of about `nbytes`, and `size` devices exchange the results."""
    builder, row = GraphBuilder(f"trial of {op}"), TRIALS[op]
    count = max(1, nbytes // (4 * size)) * size
    given = builder.input(ArrayType((count,), F32))
    half = builder.map("multiply", given, builder.const(0.5, F32))
    times, parts = row.length(size)
    fixed = tuple(sorted({**row.attrs(size), "size": size}.items()))
    made = builder.add(row.op, (half.number,), ArrayType((count * times // parts,), F32), fixed)
    return builder.finish([made])


def microseconds_of_trial(
    devices: Sequence[Device], op: str, nbytes: int, way: str, communicator: DeviceCommunicator | None
) -> float:
    """The least of a few rounds. Raises KernelGraphError, also where a result is not what it should be."""
    graph, size = graph_of_trial(op, nbytes, len(devices)), len(devices)
    found: ExchangePartition = partition_by_way(graph, size, way, communicator)
    places = [(device.kind, device.index) for device in devices]
    options = checked_kernel_graph_options(device=name_of(devices[0]))
    name = "" if found.communicator is None else found.communicator.name
    plan = MultiDevicePlanMaker(options).plan(found.partition, places, graph.name, 1, name, found.reads_peers)
    executable = make_multi_device_plan_ready(plan, None, found.communicator)
    (number,) = graph.inputs
    numbers = np.arange(graph.nodes[number].type.size) % 7
    arrays = [(numbers + r).astype(F32) for r in range(size)]
    given = [asarray(array, device=name_of(device)) for array, device in zip(arrays, devices, strict=True)]
    specs = [spec_of(graph.nodes[o].type) for o in graph.outputs for _ in devices]

    def run(calls: int) -> tuple[float, Sequence[Array]]:
        start = time.perf_counter()
        for _ in range(calls):
            results = run_plan(executable, given, (), specs)
        for result in results:
            result.wait()
        return (time.perf_counter() - start) / calls, results

    for _ in range(WARM_CALLS):
        _, results = run(1)
    if nbytes <= CHECKED_BYTES:
        wanted = TRIALS[op].meaning([array / 2 for array in arrays])
        if not all(np.array_equal(a.numpy(), b) for a, b in zip(results, wanted, strict=True)):
            raise LaunchError(f"{op} between {', '.join(map(name_of, devices))} gave something else than it should")
    calls = max(1, min(CALLS, CALL_BYTES // max(1, nbytes)))
    return min(run(calls)[0] for _ in range(ROUNDS)) * 1e6
