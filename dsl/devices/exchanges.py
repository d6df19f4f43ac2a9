"""How the devices of a mesh exchange arrays: by a library's collectives, in their own memory, or by copies.

A graph and its mesh in, its partition for one way out. Between GPUs of this process the cheaper way counts, as it was
measured; between ranks a library is used wherever every rank has it, and a GPU of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...compiler.graph.graph import Graph
from ...compiler.placement.partition import Partition, partition_graph_by_device
from ...compiler.placement.ranks import (
    MPI_REDUCTIONS,
    NCCL_REDUCTIONS,
    RankCollective,
    RankPartition,
    partition_for_each_device,
    partition_for_rank,
)
from ...compiler.placement.replicate import COLLECTIVES, graph_exchanges_between_devices, replicate_graph_on_devices
from ...runtime.core.errors import LaunchError
from ...runtime.core.frozen import dataclass
from ...runtime.core.settings import settings
from ...runtime.engine.communicator import EngineCommunicator, rank_agreement_on_collective
from ...runtime.program.device import CommunicatorPeers, Device, DeviceCommunicator
from ...runtime.program.world import Host
from ...runtime.tune.links import measured_exchange_times
from ..array.devices import DeviceUnavailableError, name_of
from .mesh import Mesh

WORDS_BYTES = 128  # what each rank tells of its device, and why it could not join; NCCL's id has as many
INSTALL = "pip install '.[multi]' in kernelgraph's folder"


@dataclass(frozen=True, slots=True)
class ExchangePartition:
    """A graph's partition on a mesh. communicator: what does its collectives; None: the copies in it, or the ranks'
    world. why: in words, where there was a choice."""

    partition: Partition | RankPartition
    communicator: DeviceCommunicator | None = None
    why: str = ""


def partition_with_exchange(graph: Graph, mesh: Mesh) -> ExchangePartition:
    """Raises GraphError at the user's line, and DeviceUnavailableError where `settings.collectives` asks for NCCL that
    is not there."""
    count, ranks = len(mesh), mesh.communicator
    found: DeviceCommunicator | None = None
    why = ""
    if count > 1 and settings.collectives != "copies" and _all_devices_exchange(graph):
        first, *others = mesh.devices
        if first.communicates:
            found, why = _communicator_of_devices(first, others) if ranks is None else _join_once(ranks, first, graph)
            if found is None and settings.collectives == "nccl":
                raise DeviceUnavailableError(f"KERNELGRAPH_COLLECTIVES=nccl: {why}")
            instead = "copies between devices" if ranks is None else "copies through the host"
            why = f"collectives by {instead}: {why}" if found is None else f"collectives by {found.name}"
    if ranks is not None and count > 1:
        reductions = MPI_REDUCTIONS if found is None else NCCL_REDUCTIONS
        return ExchangePartition(partition_for_rank(graph, count, reductions), found, why)
    if found is not None:
        partition = partition_for_rank(graph, count, NCCL_REDUCTIONS)
        steps = [step for step in partition.steps if isinstance(step, RankCollective)]
        try:
            faster, why = _compared_with_copies(mesh, found, steps)
        except LaunchError as error:  # of a trial: what is not asked for is no reason to fail
            faster, why = False, f"collectives by copies between devices: {error}"
        if faster:
            return ExchangePartition(partition_for_each_device(partition, count), found, why)
    replicas = replicate_graph_on_devices(graph, count)
    targets = [r for _ in graph.outputs for r in range(count)]
    return ExchangePartition(partition_graph_by_device(replicas.graph, replicas.slots, targets), None, why)


def _all_devices_exchange(graph: Graph) -> bool:
    """Whether a graph has collectives, and each is of all devices: a library's are not of groups."""
    grouped = any("groups" in dict(node.attrs) for node in graph.nodes)
    return not grouped and graph_exchanges_between_devices(graph)


def _communicator_of_devices(first: Device, others: Sequence[Device]) -> tuple[DeviceCommunicator | None, str]:
    """A communicator of devices of this process; None, and why."""
    try:
        return first.communicator_with(others), f"NCCL is not installed; run {INSTALL}"
    except LaunchError as error:
        return None, str(error)


def _compared_with_copies(
    mesh: Mesh, exchange: DeviceCommunicator, steps: Sequence[RankCollective]
) -> tuple[bool, str]:
    """Whether NCCL does the collectives of a call faster, as far as lines tell, and that in words."""
    if settings.collectives == "nccl" or not settings.tune:
        return True, f"collectives by {exchange.name}"
    devices, count = mesh.devices, len(mesh)
    latency, each_byte = measured_exchange_times(devices)
    replayed = settings.engine == "async" and devices[0].replays_plans_with(devices)
    if replayed:
        latency = min(latency, REPLAYED_COPY_MICROSECONDS * (count - 1))
    by_nccl = by_copies = issued_nccl = issued_copies = 0.0
    for step in steps:
        nbytes = sum(step.counts) * np.dtype(step.dtype).itemsize
        first, more = measured_exchange_times(devices, step.op, exchange)
        by_nccl += first + more * nbytes
        sent = nbytes if step.op in ("all_reduce", "all_gather", "broadcast", "permute") else nbytes // count
        by_copies += latency + each_byte * sent + _joining_time(devices[0], step, nbytes, count)
        issued_nccl += TASK_MICROSECONDS * count * 2  # itself, and the part that it cuts off, on each device
        issued_copies += TASK_MICROSECONDS * count * (count if step.op in _JOINED else count - 1)
    if replayed:
        by_nccl = max(by_nccl, issued_nccl)
    else:
        by_copies = max(by_copies, issued_copies)  # the devices are at work while the host issues what comes next
    faster = by_nccl <= by_copies
    names = (exchange.name, "copies between devices") if faster else ("copies between devices", exchange.name)
    times = sorted((by_nccl, by_copies))
    return faster, f"collectives by {names[0]}: {times[0]:.0f} us as measured, by {names[1]} {times[1]:.0f} us"


_JOINED = frozenset({"all_reduce", "reduce_scatter"})
TASK_MICROSECONDS = 20.0  # of the host for a copy or a kernel on several GPUs: 84 us for the four of two H100s
REPLAYED_COPY_MICROSECONDS = 10.0  # of a small copy in a graph, and of the wait for it


def _joining_time(device: Device, step: RankCollective, nbytes: int, count: int) -> float:
    """Microseconds of the kernel that joins the arrays of all devices, which copies leave to each."""
    if step.op not in _JOINED or device.properties is None:
        return 0.0
    joined = nbytes if step.op == "all_reduce" else nbytes // count
    return (count + 1) * joined / device.properties.bandwidth


class _RankPeers(CommunicatorPeers):
    """The other ranks of a world."""

    def __init__(self, communicator: EngineCommunicator) -> None:
        self._communicator = communicator

    def absence(self) -> str:
        lost = sorted(self._communicator.world.lost())
        return f"rank {', '.join(map(str, lost))} has ended or failed" if lost else ""

    def fail(self, text: str) -> None:
        self._communicator.world.fail(text)


def _join_once(communicator: EngineCommunicator, device: Device, graph: Graph) -> tuple[DeviceCommunicator | None, str]:
    """What the ranks' devices exchange arrays by, or why by nothing: the same on each rank, which all ask at once."""
    key = name_of(device)
    if key not in communicator.exchanges:
        number = next(n for n, node in enumerate(graph.nodes) if node.op in COLLECTIVES)
        line = f" at {graph.lines[number]}" if graph.lines and graph.lines[number] else ""
        without = "ranks without one: KERNELGRAPH_COLLECTIVES=copies"
        text = f"its first {graph.nodes[number].op} between GPUs{line} ({without})"

        def join() -> None:
            communicator.exchanges[key] = _join_ranks(communicator, device)

        communicator.run(rank_agreement_on_collective(text), join)
        if (made := communicator.exchanges[key][0]) is not None:
            communicator.before_close.append(made.close)
    return communicator.exchanges[key]


def _join_ranks(communicator: EngineCommunicator, device: Device) -> tuple[DeviceCommunicator | None, str]:
    """A communicator of all ranks' devices, or why there is none. A job of the ranks."""
    world = communicator.world
    addresses = _told_by_all(communicator, device.communicator_address)
    if not all(addresses):
        lacking = ", ".join(str(r) for r, address in enumerate(addresses) if not address)
        return None, f"NCCL is not installed on rank {lacking}; run {INSTALL}"
    if len({*addresses}) < len(addresses):
        return None, "two ranks have one GPU"
    if getattr(world, "elastic", False):
        return None, "ranks may leave this world, and NCCL would wait for them"
    id = device.new_communicator_id() if world.rank == 0 else b""
    shared: Host = np.frombuffer(id.ljust(WORDS_BYTES, b"\0"), np.uint8).copy()
    world.broadcast(shared, 0)
    made, why = None, ""
    try:
        made = device.join_communicator(shared.tobytes(), world.rank, world.size, _RankPeers(communicator))
    except LaunchError as error:
        why = str(error)
    reasons = _told_by_all(communicator, why.encode())
    failed = next((reason for reason in reasons if reason), b"")
    if failed and made is not None:
        made.close()
    return (None, failed.decode(errors="replace")) if failed else (made, "")


def _told_by_all(communicator: EngineCommunicator, words: bytes) -> list[bytes]:
    """What each rank says, cut to what a message holds."""
    world = communicator.world
    own = np.frombuffer(words[:WORDS_BYTES].ljust(WORDS_BYTES, b"\0"), np.uint8).copy()
    every = np.empty((world.size, WORDS_BYTES), np.uint8)
    world.all_gather(own, every)
    return [row.tobytes().rstrip(b"\0") for row in every]
