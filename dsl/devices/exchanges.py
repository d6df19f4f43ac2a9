"""How the devices of a mesh exchange arrays: by a library, by kernels that read each other's memory, or by copies.

A graph and its mesh in, its partition for one way out. Between GPUs of this process the fastest way counts, as it was
measured on them; between ranks a library is used wherever every rank has it, and a GPU of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from ...compiler.graph.graph import Graph
from ...compiler.placement.ranks import MPI_REDUCTIONS, NCCL_REDUCTIONS, Meeting, partition_for_rank
from ...compiler.placement.replicate import (
    COLLECTIVES,
    graph_computes_beside_exchanges,
    graph_exchanges_between_devices,
)
from ...runtime.core.errors import KernelGraphError, LaunchError
from ...runtime.core.frozen import replace
from ...runtime.core.settings import settings
from ...runtime.engine.communicator import EngineCommunicator, rank_agreement_on_collective
from ...runtime.program.collective import Collective
from ...runtime.program.device import CommunicatorPeers, Device, DeviceCommunicator
from ...runtime.program.world import Host
from ...runtime.tune.links import measured_times
from ..array.devices import DeviceUnavailableError, name_of
from .exchange_ways import ExchangePartition, microseconds_of_trial, partition_by_way
from .mesh import Mesh

WORDS_BYTES = 128  # what each rank tells of its device, and why it could not join; NCCL's id has as many
TRIAL_BYTES = (4, 1 << 15, 1 << 18, 1 << 20, 1 << 23, 1 << 26)  # of the arrays that collectives are timed with
TRIED_US = 300.0  # of collectives from which on whole calls are timed by other ways too,
RIVAL = 2.0  # by those whose collectives alone take no more than so many times the time
INSTALL = "pip install '.[multi]' in kernelgraph's folder"


def partition_with_exchange(graph: Graph, mesh: Mesh, same_bits: bool = False) -> ExchangePartition:
    """same_bits: devices of this process do it in the order of the mesh. Raises GraphError at the user's line, and
    DeviceUnavailableError where `settings.collectives` asks for NCCL that is not there."""
    if mesh.communicator is not None and len(mesh) > 1:
        return _partition_with_exchange_of_ranks(graph, mesh, mesh.communicator)
    asked = settings.collectives
    if len(mesh) < 2 or not graph_exchanges_between_devices(graph):
        return partition_by_way(graph, len(mesh), "copies")
    first, *others = mesh.devices
    found, lacking = None, ""
    if first.communicates and asked in ("auto", "nccl") and not same_bits and _all_devices_exchange(graph):
        found, lacking = _communicator_of_devices(first, others)
        if found is None and asked == "nccl":
            raise DeviceUnavailableError(f"KERNELGRAPH_COLLECTIVES=nccl: {lacking}")
    way, why, rivals = _choose_way(graph, mesh, found)
    name = _name_of_way(way, found)
    reason = "; ".join(filter(None, (why, lacking if found is None else "")))
    made = partition_by_way(graph, len(mesh), way, found)
    text = f"collectives by {name}{reason and f': {reason}'}" if first.communicates else ""
    return replace(made, why=text, way=way, rivals=rivals)


def _choose_way(graph: Graph, mesh: Mesh, communicator: DeviceCommunicator | None) -> tuple[str, str, tuple[str, ...]]:
    """A way, why, in words, where the clock told, and its rivals."""
    asked, near = settings.collectives, _can_read_each_other(mesh)
    rows = (("nccl", communicator is not None), ("reads", near), ("root", near), ("copies", True))
    ways = [way for way, there in rows if there]
    if asked in ways:
        return asked, "", ()
    if asked == "auto" and mesh.devices[0].communicates and settings.tune and settings.engine == "async":
        times, failed = _times_of_ways(graph, mesh, ways, communicator)
        way, why = _fastest_way(times, failed, communicator)
        return way, why, _rivals_of_way(graph, way, times)
    return "nccl" if communicator is not None else "copies", "", ()


def _partition_with_exchange_of_ranks(graph: Graph, mesh: Mesh, ranks: EngineCommunicator) -> ExchangePartition:
    """By NCCL where every rank has it, and a GPU of its own."""
    found: DeviceCommunicator | None = None
    why = ""
    (first,) = mesh.devices
    if settings.collectives in ("auto", "nccl") and _all_devices_exchange(graph) and first.communicates:
        found, why = _join_once(ranks, first, graph)
        if found is None and settings.collectives == "nccl":
            raise DeviceUnavailableError(f"KERNELGRAPH_COLLECTIVES=nccl: {why}")
        why = f"collectives by copies through the host: {why}" if found is None else f"collectives by {found.name}"
    reductions = MPI_REDUCTIONS if found is None else NCCL_REDUCTIONS
    return ExchangePartition(partition_for_rank(graph, len(mesh), reductions), found, why=why)


def _all_devices_exchange(graph: Graph) -> bool:
    """Whether a graph has collectives, and each is of all devices: a library's are not of groups."""
    grouped = any("groups" in dict(node.attrs) for node in graph.nodes)
    return not grouped and graph_exchanges_between_devices(graph)


def _can_read_each_other(mesh: Mesh) -> bool:
    """Whether kernels of each device can read the others' memory."""
    devices = mesh.devices
    return devices[0].host_memory or all(device.replays_plans_with(devices) for device in devices)


def _communicator_of_devices(first: Device, others: Sequence[Device]) -> tuple[DeviceCommunicator | None, str]:
    """A communicator of devices of this process; None, and why."""
    try:
        return first.communicator_with(others), f"NCCL is not installed; run {INSTALL}"
    except LaunchError as error:
        return None, str(error)


def _name_of_way(way: str, communicator: DeviceCommunicator | None) -> str:
    names = {
        "copies": "copies between devices",
        "reads": "kernels that read the others' memory",
        "root": "one device that reads and writes for all",
    }
    return names.get(way) or (communicator.name if communicator is not None else way)


def _times_of_ways(
    graph: Graph, mesh: Mesh, ways: Sequence[str], communicator: DeviceCommunicator | None
) -> tuple[dict[str, float], list[str]]:
    """Microseconds of the collectives of a call by each way, as measured on these devices; what failed, in words."""
    found = partition_for_rank(graph, len(mesh), NCCL_REDUCTIONS).steps
    steps = [s.kernel for s in found if isinstance(s, Meeting)]
    times: dict[str, float] = {}
    failed: list[str] = []
    for way in ways:
        try:
            times[way] = sum(_time_of_collective(mesh, step, way, communicator) for step in steps)
        except KernelGraphError as error:  # of a trial: what is not asked for is no reason to fail
            failed.append(f"by {_name_of_way(way, communicator)}: {error}")
    return times, failed


def _fastest_way(
    times: Mapping[str, float], failed: Sequence[str], communicator: DeviceCommunicator | None
) -> tuple[str, str]:
    """The way by which the collectives of a call take least, and that in words."""
    if not times:
        return "copies", "; ".join(failed)
    way, *others = sorted(times, key=lambda w: times[w])
    text = "".join(f", by {_name_of_way(w, communicator)} {times[w]:.0f} us" for w in others)
    return way, "; ".join([f"{times[way]:.0f} us as measured{text}", *failed])


def _rivals_of_way(graph: Graph, way: str, times: Mapping[str, float]) -> tuple[str, ...]:
    """Other ways that may be faster beside what a call computes meanwhile, of those that give the same bits."""
    if times.get(way, 0.0) < TRIED_US or not graph_computes_beside_exchanges(graph):
        return ()
    return tuple(w for w in ("reads", "copies") if w != way and w in times and times[w] <= RIVAL * times[way])


def _time_of_collective(mesh: Mesh, step: Collective, way: str, communicator: DeviceCommunicator | None) -> float:
    """Microseconds of a collective of a call, on the line through the two sizes nearest to its own."""
    nbytes = sum(step.counts) * np.dtype(step.dtype).itemsize
    devices = [mesh.devices[r] for r in step.groups[0]] if step.groups else mesh.devices
    small, large = next((pair for pair in itertools.pairwise(TRIAL_BYTES) if nbytes <= pair[1]), TRIAL_BYTES[-2:])
    name = "" if way != "nccl" or communicator is None else communicator.name

    def measure(size: int) -> float:
        return microseconds_of_trial(devices, step.op, size, way, communicator)

    what = ["exchange", step.op, way, name, str(small), str(large)]
    first, each_byte = measured_times(what, devices, (small, large), lambda: (measure(small), measure(large)))
    return first + each_byte * max(0, nbytes - small)


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
