"""The cost model: what a Program's tasks take on a machine. Each task's share of the machine and makespans out."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from ..core.frozen import frozen, replace
from ..core.settings import allowed_cores
from ..program.device import H200, GpuProperties
from ..program.program import Library, Task
from .surroundings import TaskSend, scheduled_end_of_sends


@frozen
class MachineModel:
    """What the scheduler assumes of a device. Times are microseconds.

    cores: CPU cores, or streaming multiprocessors. threads, blocks: how many of each are resident on one of them;
    0 threads means that a task's `units` in chunks of `grain` are spread over the cores.
    launch, event: host time of one launch, and of one event record or wait. gap: from the end of a task to the start
    of the next on the same stream. hop: from the end of a task to the start of one on another stream that waits for it.
    stream: what each stream beyond the first costs a call. counts: how many streams list scheduling tries.
    tiny: programs predicted to take less are left to the model.
    packs, batches: whether the device runs launches of several small tasks, and batches of matmuls, see `batching.py`.
    """

    name: str
    cores: int
    threads: int = 0
    blocks: int = 0
    launch: float = 0.0
    event: float = 0.0
    gap: float = 0.0
    hop: float = 0.0
    stream: float = 0.0
    tiny: float = 10.0
    counts: tuple[int, ...] = (1, 2, 4, 8)
    packs: bool = False
    batches: bool = False


# Measured: a hand-over between spinning native workers 0.06 us, a parked one some 5 us; H200: a kernel in a chain
# 1.2 us, an 8-wide graph of empty kernels 0.8 us a branch more than a chain.
MACHINES = {
    "cpu": MachineModel("cpu", allowed_cores(), launch=0.2, event=0.1, gap=0.1, hop=1.0, stream=5.0),
    "cuda": MachineModel("cuda", 0, 0, 0, 1.2, 0.4, gap=1.2, hop=2.0, stream=0.8, tiny=0.0, packs=True, batches=True),
    "fake": MachineModel("fake", 64, launch=0.1, event=0.05, gap=0.1, hop=0.2, stream=0.1),
}


def machine_of_gpu(gpu: GpuProperties) -> MachineModel:
    """A GPU's."""
    resident = gpu.threads_per_multiprocessor, gpu.blocks_per_multiprocessor
    return replace(MACHINES["cuda"], cores=gpu.multiprocessors, threads=resident[0], blocks=resident[1])


MACHINES["cuda"] = machine_of_gpu(H200)


def machine_model_of_device(kind: str, gpu: GpuProperties | None = None) -> MachineModel:
    """What the scheduler assumes of a device of a kind. gpu: what is known of it, if it is one."""
    return machine_of_gpu(gpu) if kind == "cuda" and gpu is not None else MACHINES[kind]


# A library call that states no launch shape is taken to use tiles of this many output elements, one a block.
LIBRARY_TILE = 16384

# Library calls that run on a copy engine, beside all kernels.
COPIES = ("upload", "download")


def machine_share_of_task(task: Task, machine: MachineModel) -> float:
    """The part of the machine, 0 to 1, that a task alone fills."""
    if isinstance(task.kernel, Library) and task.kernel.name in COPIES:
        return 0.0
    if machine.threads == 0:
        return min(1.0, -(-task.units // max(1, task.grain)) / machine.cores)
    grid, block = task.grid, task.block
    blocks, threads = grid[0] * grid[1] * grid[2], max(1, block[0] * block[1] * block[2])
    if isinstance(task.kernel, Library) and blocks * threads == 1:
        elements = 0
        for region in task.writes:
            count = 1
            for length in region.shape:
                count *= length
            elements += count
        return min(1.0, -(-elements // LIBRARY_TILE) / machine.cores)
    resident = machine.cores * max(1, min(machine.blocks, machine.threads // threads))
    return min(1.0, blocks / resident)


def predict_makespan(
    order: Sequence[int],
    stream: Sequence[int],
    waits: Sequence[Sequence[int]],
    costs: Sequence[float],
    shares: Sequence[float],
    machine: MachineModel,
    sends: Sequence[TaskSend] = (),
) -> float:
    """The predicted microseconds from the call to its end. That is of its last task, and of what it sends.

    order: tasks as issued. stream[v], waits[v]: where task `v` runs, and the tasks of other streams it waits for.
    Tasks that fit on the machine together run at full speed, others slow each other down evenly (processor sharing).
    """
    end = predict_task_times(order, stream, waits, costs, shares, machine)[2]
    last = max(end.values(), default=0.0)
    return max(last, scheduled_end_of_sends(sends, end)) if sends else last


Times = dict[int, float]


def predict_task_times(
    order: Sequence[int],
    stream: Sequence[int],
    waits: Sequence[Sequence[int]],
    costs: Sequence[float],
    shares: Sequence[float],
    machine: MachineModel,
) -> tuple[Times, Times, Times]:
    """When each task is issued, starts and ends, in microseconds from the call. `predict_makespan` takes the last
    end."""
    issued = _predict_host_issue_times(order, waits, machine, len(set(stream)))
    top = max(shares, default=0.0)
    if (max(stream, default=0) + 1) * top <= 1.0:
        return issued, *_simulate_uncontended(order, stream, waits, costs, issued, machine)
    return issued, *_simulate_contended(order, stream, waits, costs, shares, issued, machine)


def _predict_host_issue_times(
    order: Sequence[int], waits: Sequence[Sequence[int]], machine: MachineModel, streams: int
) -> Times:
    """When the host has launched each task; a task's event is recorded right after its launch."""
    recorded = {p for sources in waits for p in sources}
    clock, issued = machine.stream * max(0, streams - 1), Times()
    for v in order:
        clock += machine.launch + machine.event * len(waits[v])
        issued[v] = clock
        if v in recorded:
            clock += machine.event
    return issued


def _simulate_uncontended(
    order: Sequence[int],
    stream: Sequence[int],
    waits: Sequence[Sequence[int]],
    costs: Sequence[float],
    issued: Times,
    machine: MachineModel,
) -> tuple[Times, Times]:
    begin: Times = {}
    end: Times = {}
    free: Times = {}
    gap, hop = machine.gap, machine.hop
    for v in order:
        start = issued[v]
        s = stream[v]
        if s in free and free[s] + gap > start:
            start = free[s] + gap
        for p in waits[v]:
            if end[p] + hop > start:
                start = end[p] + hop
        begin[v] = start
        free[s] = end[v] = start + costs[v]
    return begin, end


def _simulate_contended(
    order: Sequence[int],
    stream: Sequence[int],
    waits: Sequence[Sequence[int]],
    costs: Sequence[float],
    shares: Sequence[float],
    issued: Times,
    machine: MachineModel,
) -> tuple[Times, Times]:
    """As `_simulate_uncontended`; tasks that run together progress at 1 / max(1, sum of shares): one virtual clock."""
    ready = dict(issued)
    begin: Times = {}
    end: Times = {}
    missing: dict[int, int] = {}
    followers: dict[int, list[tuple[int, float]]] = {v: [] for v in order}
    tail: dict[int, int] = {}
    for v in order:
        missing[v] = len(waits[v])
        for p in waits[v]:
            followers[p].append((v, machine.hop))
        before = tail.get(stream[v])
        if before is not None:
            followers[before].append((v, machine.gap))
            missing[v] += 1
        tail[stream[v]] = v
    starts: list[tuple[float, int]] = []
    for v in order:
        if not missing[v]:
            heappush(starts, (ready[v], v))
    running: list[tuple[float, int]] = []
    now = virtual = load = 0.0
    while starts or running:
        speed = 1.0 if load <= 1.0 else 1.0 / load
        if starts and (not running or starts[0][0] <= now + (running[0][0] - virtual) / speed):
            at, v = heappop(starts)
            if at > now:
                virtual += (at - now) * speed
                now = at
            begin[v] = now
            heappush(running, (virtual + costs[v], v))
            load += shares[v]
            continue
        until, v = heappop(running)
        now += max(0.0, until - virtual) / speed
        end[v] = now
        virtual = max(virtual, until)
        load = load - shares[v] if running else 0.0
        for w, delay in followers[v]:
            if now + delay > ready[w]:
                ready[w] = now + delay
            missing[w] -= 1
            if not missing[w]:
                heappush(starts, (ready[w], w))
    return begin, end
