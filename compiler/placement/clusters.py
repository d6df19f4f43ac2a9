"""Which device computes what, where the user leaves it open. Nodes in clusters, clusters on devices.

A cluster is a node and the chain of those that follow it alone: nothing is gained by moving what passes along a chain.
Clusters are placed by HEFT (Topcuoglu, Hariri and Wu, 2002): by the longest way to the exit first, each where it ends
earliest, the arrival of what it reads included.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import Any

from ...runtime.core.frozen import frozen
from ..core.cost import WorkCostModel
from ..graph.graph import Graph
from ..ops.table import OPS
from .places import Places


@frozen
class DeviceLink:
    """What a copy from one device to another takes: microseconds before its first byte, bytes per microsecond."""

    latency: float
    bandwidth: float

    def transfer_time(self, nbytes: int) -> float:
        return self.latency + nbytes / self.bandwidth


# Where none was measured: a peer copy between two H200s over NVLink, as PyTorch makes it; a guess for CPU devices.
LINKS = {"cuda": DeviceLink(12.0, 3.5e5), "fake": DeviceLink(12.0, 3.5e5), "cpu": DeviceLink(30.0, 1e4)}
BETWEEN_RANKS = DeviceLink(100.0, 2e3)  # processes of one machine, by MPI, which copies to and fro


@frozen
class Cluster:
    """Open nodes that stay together. after: the clusters that it reads from, with the bytes that it reads of each."""

    nodes: tuple[int, ...]
    cost: float
    after: tuple[tuple[int, int], ...]
    fixed: int | None = None  # its device, where the user says so
    inputs: int = 0  # bytes of the call's arrays that it reads
    results: int = 0  # bytes of the call's results that it makes, which go to the first device


def clusters_of_placed_nodes(graph: Graph, places: Places, costs: WorkCostModel) -> tuple[Cluster, ...]:
    """In an order in which each comes after those that it reads from."""
    home, members = _homes_of_placed_nodes(graph, places)
    found = []
    for nodes in members:
        reads: dict[int, int] = {}
        for a in dict.fromkeys(a for n in nodes for a in graph.nodes[n].args):
            if a in home and home[a] != home[nodes[0]]:
                reads[home[a]] = reads.get(home[a], 0) + graph.nodes[a].type.nbytes
        given = {a for n in nodes for a in graph.nodes[n].args if graph.nodes[a].op == "input"}
        fixed = None if nodes[0] in places.open else places.slots[nodes[0]]
        cost = sum(node_cost_on_device(graph, n, costs) for n in nodes)
        size = sum(graph.nodes[a].type.nbytes for a in given)
        made = sum(graph.nodes[n].type.nbytes for n in nodes if n in places.open and n in graph.outputs)
        found.append(Cluster(tuple(nodes), cost, tuple(reads.items()), fixed, size, made))
    return tuple(found)


def _homes_of_placed_nodes(graph: Graph, places: Places) -> tuple[dict[int, int], list[list[int]]]:
    """The cluster of each node, and the nodes of each cluster."""
    home: dict[int, int] = {}
    members: list[list[int]] = []
    calls: dict[Any, int] = {}
    for number, node in enumerate(graph.nodes):
        if places.slots[number] is None:
            continue
        call = node.op, node.args, tuple(a for a in node.attrs if a[0] != "part")
        first = calls.setdefault(call, number)
        before = list(dict.fromkeys(a for a in node.args if a in home))
        alone = len(before) == 1 and len(graph.users[before[0]]) == 1 and before[0] not in graph.outputs
        if node.kind == "library" and first != number:  # another result of the same call
            home[number] = home[first]
        elif alone and number in places.open and before[0] in places.open:
            home[number] = home[before[0]]
        else:
            home[number] = len(members)
            members.append([])
        members[home[number]].append(number)
    return home, members


def node_cost_on_device(graph: Graph, number: int, costs: WorkCostModel) -> float:
    """Microseconds that a node takes on a whole device, roughly. What is fused into others counts little more than its
    arithmetic."""
    node = graph.nodes[number]
    row = OPS[node.op]
    read = sum(graph.nodes[a].type.nbytes for a in node.args)
    if row.kind in ("view", "source", "device"):
        return 0.0
    if node.op == "matmul":
        inner = graph.nodes[node.args[0]].shape[-1]
        return costs.time(read + node.type.nbytes, 2.0 * node.size * inner)
    if row.kind == "library":
        longest = max((n for a in node.args for n in graph.nodes[a].shape), default=1)
        return costs.time(read + node.type.nbytes, float(node.size) * longest * max(1.0, row.cost))
    return max(node.type.nbytes / costs.bandwidth, row.cost * node.size / costs.flops)


def place_clusters(clusters: Sequence[Cluster], count: int, link: DeviceLink) -> list[int]:
    """The device of each cluster, of `count` devices. The call's arrays are on the first."""
    users: list[list[tuple[int, int]]] = [[] for _ in clusters]
    for number, cluster in enumerate(clusters):
        for before, nbytes in cluster.after:
            users[before].append((number, nbytes))
    rank = [0.0] * len(clusters)
    for number in reversed(range(len(clusters))):
        rank[number] = clusters[number].cost + max(
            (link.transfer_time(nbytes) + rank[user] for user, nbytes in users[number]), default=0.0
        )
    ready = [0.0] * count
    ends = [0.0] * len(clusters)
    slots = [0] * len(clusters)
    left = [len(cluster.after) for cluster in clusters]
    open_ = [(-rank[number], number) for number, n in enumerate(left) if not n]
    heapify(open_)
    while open_:
        number = heappop(open_)[1]
        cluster = clusters[number]
        allowed = range(count) if cluster.fixed is None else (cluster.fixed,)
        possible = {slot: _end_of_cluster_on_device(cluster, slot, ready, ends, slots, link) for slot in allowed}
        back = link.transfer_time(cluster.results) if cluster.results else 0.0
        slots[number] = min(allowed, key=lambda slot: (possible[slot] + (back if slot else 0.0), slot))
        ends[number] = possible[slots[number]]
        ready[slots[number]] = ends[number]
        for user, _ in users[number]:
            left[user] -= 1
            if not left[user]:
                heappush(open_, (-rank[user], user))
    return slots


def _end_of_cluster_on_device(
    cluster: Cluster, slot: int, ready: Sequence[float], ends: Sequence[float], slots: Sequence[int], link: DeviceLink
) -> float:
    """When a cluster would end on a device."""
    arrivals = [ends[b] + (link.transfer_time(nbytes) if slots[b] != slot else 0.0) for b, nbytes in cluster.after]
    given = link.transfer_time(cluster.inputs) if slot and cluster.inputs else 0.0
    return max([ready[slot], given, *arrivals]) + cluster.cost


def choose_device_slots(graph: Graph, places: Places, costs: WorkCostModel, link: DeviceLink) -> list[int | None]:
    """`places.slots` with a device chosen for each open node."""
    clusters = clusters_of_placed_nodes(graph, places, costs)
    slots = list(places.slots)
    for cluster, slot in zip(clusters, place_clusters(clusters, len(places.devices), link), strict=True):
        for number in cluster.nodes:
            slots[number] = slot
    return slots
