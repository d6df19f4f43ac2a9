"""Ranks beside raw mpi4py in one run: sums over all ranks, and pushes to a server.

    python -m kernelgraph.run -n 2 benchmarks/machines.py [--rounds 200] [--calls 20] [--only-small | --only-pushes]
    python -m kernelgraph.run -n 2 benchmarks/machines.py --device cuda --steps 8 4096

Each round times each sum once, in turns, after a barrier, sums of up to 64 KiB `--calls` times in a row; the figures
are the medians of the slowest rank's times for one call, and the least. Pushes are timed by rank 1, while the others
sleep. The raw server is a thread of rank 0 that adds what comes to an array and answers with it. `--alone`: while
pushes are timed nothing else gets the cores (Linux, by root).
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from common import machine
from mpi4py import MPI

import kernelgraph as kg
from kernelgraph.dsl.devices.store_servers import pieces_of

SUM_BYTES = (4, 1 << 12, 1 << 16, 1 << 20, 1 << 22, 1 << 24)
PUSH_BYTES = (1 << 12, 1 << 20)
SYNC_BYTES = (1 << 12, 1 << 22, 1 << 26)
SMALL = 1 << 16
WORLD, SERVER = MPI.COMM_WORLD.Dup(), MPI.COMM_WORLD.Dup()
RANK, SIZE = WORLD.Get_rank(), WORLD.Get_size()
give_core_to_others = getattr(os, "sched_yield", lambda: time.sleep(0))  # to sleep for no time takes 60 us on Linux
PUSH, PULL, ANSWER, STOP = 1, 2, 3, 4


def measure(candidates: Mapping[str, Callable[[], Any]], rounds: int, calls: int = 1) -> dict[str, tuple[float, float]]:
    """Median and least microseconds of each, as rank 0 has them: those of the rank that took longest. calls: in a row,
    of which the mean counts."""
    took: dict[str, list[float]] = {name: [] for name in candidates}
    for turn in range(rounds + 5):
        for name, call in candidates.items():
            WORLD.Barrier()
            start = time.perf_counter()
            for _ in range(calls):
                call()
            seconds = WORLD.allreduce((time.perf_counter() - start) / calls, MPI.MAX)
            if turn >= 5:
                took[name].append(seconds * 1e6)
    return {name: (statistics.median(each), min(each)) for name, each in took.items()}


def sleep_until_all_are_here() -> None:
    request = WORLD.Ibarrier()
    while not request.Test():
        time.sleep(0.002)


def measure_on_rank_1(call: Callable[[], Any], rounds: int, alone: bool) -> tuple[float, float]:
    """Median and least microseconds of a call of rank 1."""
    sleep_until_all_are_here()
    if alone:
        set_priority(os.SCHED_FIFO, 1)
    took = []
    for _ in range((rounds + 5) * (RANK == 1)):
        start = time.perf_counter()
        call()
        took.append((time.perf_counter() - start) * 1e6)
    sleep_until_all_are_here()
    if alone:
        set_priority(os.SCHED_OTHER, 0)
    took = WORLD.bcast(took[5:], 1)
    return statistics.median(took), min(took)


def set_priority(kind: int, level: int) -> None:
    """Of all threads of this process."""
    for thread in os.listdir("/proc/self/task"):
        os.sched_setscheduler(int(thread), kind, os.sched_param(level))


def show(title: str, names: tuple[str, ...], rows: list[tuple[int, dict[str, tuple[float, float]]]]) -> None:
    if RANK:
        return
    print(f"\n### {title}\n\n| bytes | {' | '.join(names)} | ours / raw | ours - raw |")
    print("|--:|" + "--:|" * (len(names) + 2))
    for nbytes, found in rows:
        ours, raw = found[names[0]], found[names[-1]]
        each = " | ".join(f"{m:.1f} ({low:.1f})" for m, low in (found[n] for n in names))
        print(f"| {nbytes} | {each} | {ours[0] / raw[0]:.2f} ({ours[1] / raw[1]:.2f}) | {ours[0] - raw[0]:.1f} us |")


def sums(rounds: int, calls: int, sizes: tuple[int, ...]) -> None:
    program = kg.kernel_graph(lambda x: kg.all_reduce(x), mesh=kg.Mesh(SIZE), in_axes=None, out_axes=None, device=None)
    rows = []
    for nbytes in sizes:
        given, result = np.ones(nbytes // 4, np.float32), np.empty(nbytes // 4, np.float32)
        x = kg.replicate(given, kg.Mesh(SIZE))
        candidates: dict[str, Callable[[], Any]] = {
            "a program": lambda x=x: program(x).wait(),
            "kg.distributed": lambda given=given: kg.distributed.all_reduce(given),
            "mpi4py": lambda given=given, result=result: WORLD.Allreduce(given, result),
        }
        in_a_row = calls if nbytes <= SMALL else 1
        rows.append((nbytes, measure(candidates, max(10, rounds // (1 + nbytes // (1 << 20))), in_a_row)))
    show("Sum over all ranks, us: median (least)", ("a program", "kg.distributed", "mpi4py"), rows)


def serve(arrays: dict[int, np.ndarray]) -> None:
    """The raw server."""
    status, message = MPI.Status(), np.empty(max(PUSH_BYTES) // 4, np.float32)
    while True:
        while not SERVER.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG, status):
            give_core_to_others()
        kind, count = status.Get_tag(), status.Get_count(MPI.FLOAT)
        SERVER.Recv([message, MPI.FLOAT], status.Get_source(), kind)
        if kind == STOP:
            return
        if kind == PUSH:
            arrays[count] += message[:count]
        else:
            SERVER.Send(arrays[int(message[0])], status.Get_source(), ANSWER)


def add(key: int, pushed: Any, stored: Any) -> None:
    stored += pushed


def pushes(rounds: int, alone: bool) -> None:
    """Rank 1 pushes to rank 0 and pulls; others wait."""
    store = kg.KVStore("dist_async")
    store.set_updater(add)
    keys = dict(zip(PUSH_BYTES, (k for k in range(100) if pieces_of(k, 1, SIZE)[0].server == 0), strict=False))
    store.init(list(keys.values()), [np.zeros(n // 4, np.float32) for n in keys])
    store.barrier()
    arrays = {n // 4: np.zeros(n // 4, np.float32) for n in PUSH_BYTES}
    given, out = ({n: np.ones(n // 4, np.float32) for n in PUSH_BYTES} for _ in range(2))

    def ours(nbytes: int) -> None:
        if RANK == 1:
            store.push(keys[nbytes], given[nbytes])
            store.pull(keys[nbytes], out=out[nbytes])

    def raw(nbytes: int) -> None:
        if RANK == 1:
            SERVER.Send(given[nbytes], 0, PUSH)
            SERVER.Send(np.array([nbytes // 4], np.float32), 0, PULL)
            SERVER.Recv(out[nbytes], 0, ANSWER)

    found = {n: {"kg.KVStore": measure_on_rank_1(partial(ours, n), rounds, alone)} for n in PUSH_BYTES}
    server = threading.Thread(target=serve, args=(arrays,))  # it spins, so it does not run beside ours
    if RANK == 0:
        server.start()
    for n in PUSH_BYTES:
        found[n]["mpi4py"] = measure_on_rank_1(partial(raw, n), rounds, alone)
    if RANK == 1:
        SERVER.Send(np.zeros(1, np.float32), 0, STOP)
    if RANK == 0:
        server.join()
    store.barrier()
    show(
        "One rank pushes to another's server and pulls, us: median (least)", ("kg.KVStore", "mpi4py"), [*found.items()]
    )


def sync_pushes(device: str, rounds: int) -> None:
    """All ranks push a gradient from their device to "dist_sync", which adds the sum to what it holds, and pull."""
    program = kg.kernel_graph(lambda x: kg.all_reduce(x), mesh=kg.Mesh(SIZE), in_axes=None, out_axes=None)
    rows = []
    for nbytes in SYNC_BYTES:
        store = kg.KVStore("dist_sync")
        store.set_updater(add)
        store.init("w", kg.asarray(np.zeros(nbytes // 4, np.float32), device=device))
        pushed = kg.asarray(np.ones(nbytes // 4, np.float32), device=device)

        def turn(store: Any = store, pushed: Any = pushed) -> None:
            store.push("w", pushed)
            store.pull("w").wait()

        x = kg.replicate(np.ones(nbytes // 4, np.float32), kg.Mesh(SIZE))
        candidates: dict[str, Callable[[], Any]] = {"kg.KVStore": turn, "a sum": lambda x=x: program(x).wait()}
        rows.append((nbytes, measure(candidates, rounds)))
        total = SIZE * (rounds + 5)
        if not (np.asarray(store.pull("w")) == total).all():
            raise AssertionError(f"the store holds {np.asarray(store.pull('w'))[:3]} ..., not {total}")
    show(
        'All ranks push to "dist_sync" and pull, beside a sum alone, us: median (least)', ("kg.KVStore", "a sum"), rows
    )


def loss(p: Any, x: Any) -> Any:
    for w, b in p:
        x = np.maximum(x @ w + b, np.float32(0))
    return (x * x).mean()


def sgd(p: Any, g: Any) -> Any:
    rate = np.float32(1e-6)
    return [(w - rate * gw, b - rate * gb) for (w, b), (gw, gb) in zip(p, g, strict=True)]


def step_time(mesh: Any, device: str, layers: int, width: int, rows: int, rounds: int) -> float:
    """The least seconds of a data-parallel step on a mesh, with so many rows on each device."""
    rng = np.random.default_rng(0)
    p = [
        (rng.normal(size=(width, width)).astype(np.float32) / np.float32(np.sqrt(width)), np.zeros(width, np.float32))
        for _ in range(layers)
    ]
    train = kg.DataParallel(loss, mesh, update=sgd)
    state = train.replicate(p)
    x = kg.shard(rng.normal(size=(rows * len(mesh), width)).astype(np.float32), mesh)
    least = float("inf")
    for turn in range(rounds + 3):
        kg.synchronize(device)
        start = time.perf_counter()
        state, _ = train(state, x)
        kg.waitall()
        kg.synchronize(device)
        least = min(least, time.perf_counter() - start) if turn >= 3 else least
    return least


def steps(device: str, layers: int, width: int, rounds: int) -> None:
    """One rank's time over that of all, each with as many rows."""
    if RANK == 0:
        print(f"\n### A step of {layers} x Linear({width}), the same rows on each rank, ms\n")
        print(f"| rows a rank | one rank | {SIZE} ranks | one / all |\n|--:|--:|--:|--:|")
    for rows in (width, max(1, width // 16)):
        alone = step_time(kg.Mesh((device,)), device, layers, width, rows, rounds)
        together = WORLD.allreduce(step_time(kg.Mesh(SIZE), device, layers, width, rows, rounds), MPI.MAX)
        if RANK == 0:
            print(f"| {rows} | {alone * 1e3:.2f} | {together * 1e3:.2f} | {alone / together:.3f} |", flush=True)


def main(options: argparse.Namespace) -> None:
    rounds = options.rounds
    WORLD.Ibarrier().Wait()  # Open MPI: whoever waits in a communicator's first collective stops others' messages
    kg.distributed.init()
    if RANK == 0:
        print(f"{SIZE} ranks; {machine(None, ('numpy', 'mpi4py', 'openmpi'))}")
    if options.steps:
        steps(options.device, *options.steps, min(rounds, 10))
        sync_pushes(options.device, min(rounds, 30))
        return
    if not options.only_pushes:
        sums(rounds, options.calls, tuple(n for n in SUM_BYTES if n <= SMALL or not options.only_small))
    if SIZE > 1 and not options.only_small:
        pushes(rounds, options.alone)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--calls", type=int, default=1, help="of small sums in a row")
    parser.add_argument("--only-small", action="store_true", help="only sums of up to 64 KiB")
    parser.add_argument("--only-pushes", action="store_true", help="no sums")
    parser.add_argument("--alone", action="store_true", help="pushes keep all else from the cores")
    parser.add_argument("--device", default="cpu", help="where each rank computes: cpu, or cuda")
    parser.add_argument("--steps", nargs=2, type=int, metavar=("LAYERS", "WIDTH"), help="steps and a store, no more")
    given = parser.parse_args()
    with kg.device(given.device):
        main(given)
