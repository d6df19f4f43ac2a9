"""Ranks beside raw mpi4py in one run: sums over all ranks, and pushes to a server.

    python -m kernelgraph.run -n 2 benchmarks/machines.py [--rounds 200] [--calls 20] [--only-small | --only-pushes]
    python -m kernelgraph.run -n 2 benchmarks/machines.py --device cuda --steps 8 4096
    python -m kernelgraph.run -n 4 benchmarks/machines.py --overlap 16 512 512 [--rounds 20]
    python -m kernelgraph.run -n 4 benchmarks/machines.py --converge 20 [--seeds 5]

Each round times each sum once, in turns, after a barrier, sums of up to 64 KiB `--calls` times in a row; the figures
are the medians of the slowest rank's times for one call, and the least. Pushes are timed by rank 1, while the others
sleep. The raw server is a thread of rank 0 that adds what comes to an array and answers with it. `--alone`: while
pushes are timed nothing else gets the cores (Linux, by root).

`--overlap`: how much of the sums of a data-parallel step is hidden, 1 - (step - step without sums) / sums alone, all
three in turns. A sum of ranks on one machine is work of its cores, so only a network's can hide where all compute;
`--link`: as if sums went over one of so many Gbit/s that moves bytes by itself, they take that long, asleep.
`--converge`: losses after equal samples in step (dist_sync) and at each rank's own pace (dist_async).
"""

from __future__ import annotations

import argparse
import itertools
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
from kernelgraph.dsl.devices.distributed import current
from kernelgraph.dsl.stores.store_servers import pieces_of

SUM_BYTES = (4, 1 << 12, 1 << 16, 1 << 20, 1 << 22, 1 << 24)
PUSH_BYTES = (1 << 12, 1 << 20)
SYNC_BYTES = (1 << 12, 1 << 20, 1 << 26)
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

    def in_one(nbytes: int) -> None:
        if RANK == 1:
            store.pushpull(keys[nbytes], given[nbytes], out[nbytes])

    found = {
        n: {
            name: measure_on_rank_1(partial(call, n), rounds, alone)
            for name, call in (("kg.KVStore", ours), ("pushpull", in_one))
        }
        for n in PUSH_BYTES
    }
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
        "One rank pushes to another's server and pulls, us: median (least)",
        ("kg.KVStore", "pushpull", "mpi4py"),
        [*found.items()],
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


class TrainingSteps:
    """Data-parallel steps on a mesh, with so many rows on each device. Each is waited for."""

    def __init__(self, mesh: Any, device: str, layers: int, width: int, rows: int) -> None:
        rng, scale = np.random.default_rng(0), np.float32(np.sqrt(width))
        square = (width, width)
        p = [(rng.normal(size=square).astype(np.float32) / scale, np.zeros(width, np.float32)) for _ in range(layers)]
        self.train, self.device = kg.DataParallel(loss, mesh, update=sgd), device
        self.state = self.train.replicate(p)
        self.x = kg.shard(rng.normal(size=(rows * len(mesh), width)).astype(np.float32), mesh)

    def __call__(self) -> None:
        self.state, _ = self.train(self.state, self.x)
        kg.waitall()
        kg.synchronize(self.device)


def step_time(mesh: Any, device: str, layers: int, width: int, rows: int, rounds: int) -> float:
    """The least seconds of a data-parallel step."""
    step = TrainingSteps(mesh, device, layers, width, rows)
    least = float("inf")
    for turn in range(rounds + 3):
        kg.synchronize(device)
        start = time.perf_counter()
        step()
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


def slow_down_sums(world: Any, gbit: float) -> None:
    """A sum takes as long as its bytes over a link, there and back."""
    real = world.all_reduce

    def all_reduce(source: Any, target: Any, op: str) -> None:
        until = time.perf_counter() + 2 * (SIZE - 1) / SIZE * source.nbytes * 8 / (gbit * 1e9)
        real(source, target, op)
        time.sleep(max(0.0, until - time.perf_counter()))

    world.all_reduce = all_reduce


def overlap(device: str, layers: int, width: int, rows: int, rounds: int, gbit: float | None) -> None:
    """The share of a step's sums that is hidden under its backward pass."""
    together = TrainingSteps(kg.Mesh(SIZE), device, layers, width, rows)
    without = TrainingSteps(kg.Mesh((device,)), device, layers, width, rows)
    sums = together.train.plan(together.state, together.x).collectives
    world: Any = current().world
    if gbit is not None:
        slow_down_sums(world, gbit)
    arrays = [(np.ones(sum(s.counts), s.dtype), np.empty(sum(s.counts), s.dtype)) for s in sums]

    def only_sums() -> None:
        for step, (source, target) in zip(sums, arrays, strict=True):
            world.all_reduce(source, target, step.how)

    found = measure({"step": together, "without": without, "sums": only_sums}, rounds)
    if RANK:
        return
    megabytes = sum(source.nbytes for source, _ in arrays) / 1e6
    print(f"\n### {layers} x Linear({width}), {rows} rows a rank: {len(sums)} sums of {megabytes:.1f} MB, ms\n")
    print("| | step | without sums | sums alone | hidden |\n|--|--:|--:|--:|--:|")
    for number, name in enumerate(("median", "least")):
        step, alone, summed = (found[n][number] for n in ("step", "without", "sums"))
        times = " | ".join(f"{t / 1e3:.1f}" for t in (step, alone, summed))
        print(f"| {name} | {times} | {1 - (step - alone) / summed:.0%} |")


def digits() -> tuple[np.ndarray, np.ndarray]:
    """1,536 pictures of 64 pixels, and what they show: scikit-learn's, or where that is missing clouds around ten."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        rng = np.random.default_rng(0)
        shown = rng.integers(0, 10, 1536)
        return (rng.random((10, 64))[shown] + rng.normal(0, 0.5, (1536, 64))).astype(np.float32), shown
    pictures: Any = load_digits()
    return pictures.images.reshape(-1, 64)[:1536].astype(np.float32) / 16, pictures.target[:1536]


def logits(p: Any, x: Any) -> Any:
    """Of linear layers, with a ReLU between each two."""
    for number, (w, b) in enumerate(zip(p[::2], p[1::2], strict=True)):
        x = (x if number == 0 else np.maximum(x, np.float32(0))) @ w + b
    return x


def cross_entropy(p: Any, x: Any, shown: Any) -> Any:
    return kg.nn.cross_entropy(logits(p, x), shown)


def trained_loss(kind: str, widths: tuple[int, ...], seed: int, epochs: int, rate: float) -> float:
    """The loss over all pictures, once each rank has pushed gradients of batches of 32 of its own."""
    x, shown = digits()
    rng = np.random.default_rng(seed)
    p = []
    for m, n in itertools.pairwise(widths):
        p += [(rng.normal(size=(m, n)) / np.sqrt(m)).astype(np.float32), np.zeros(n, np.float32)]
    keys = [f"{kind} {len(widths)} {seed} {i}" for i in range(len(p))]
    each = np.float32(rate / SIZE)

    def descend(key: Any, pushed: Any, stored: Any) -> None:
        stored -= each * pushed

    store = kg.KVStore(kind)
    store.set_updater(descend)
    store.init(keys, p)
    gradients = kg.grad(cross_entropy)
    for _ in range(epochs):
        mine = rng.permutation(len(x))[RANK::SIZE]
        for start in range(0, len(mine) - 31, 32):
            batch = mine[start : start + 32]
            store.push(keys, [*map(np.asarray, gradients(p, x[batch], shown[batch]))])
            store.pull(keys, out=p)
    store.barrier()
    store.pull(keys, out=p)
    return float(kg.kernel_graph(cross_entropy)(p, x, shown))


def converge(seeds: int, epochs: int, rate: float) -> None:
    """Losses of the same program in step and at each rank's own pace. The same updates, of the same samples."""
    if RANK == 0:
        print(f"\n### Loss after {epochs} epochs of digits at rate {rate} on {SIZE} ranks\n")
        print("| model | seed | dist_sync | dist_async | more |\n|---|--:|--:|--:|--:|")
    for model, widths in (("logistic regression", (64, 10)), ("MLP", (64, 64, 10))):
        for seed in range(seeds):
            sync, own_pace = (trained_loss(kind, widths, seed, epochs, rate) for kind in ("dist_sync", "dist_async"))
            if RANK == 0:
                print(f"| {model} | {seed} | {sync:.5f} | {own_pace:.5f} | {own_pace / sync - 1:+.2%} |", flush=True)


def main(options: argparse.Namespace) -> None:
    rounds = options.rounds
    WORLD.Ibarrier().Wait()  # Open MPI: whoever waits in a communicator's first collective stops others' messages
    kg.distributed.init()
    if RANK == 0:
        print(f"{SIZE} ranks; {machine(None, ('numpy', 'mpi4py', 'openmpi'))}")
    if options.converge:
        converge(options.seeds, options.converge, options.rate)
        return
    if options.overlap:
        overlap(options.device, *options.overlap, min(rounds, 20), options.link)
        return
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
    parser.add_argument("--overlap", nargs=3, type=int, metavar=("LAYERS", "WIDTH", "ROWS"), help="of a step, no more")
    parser.add_argument("--link", type=float, metavar="GBIT", help="of --overlap: how fast")
    parser.add_argument("--converge", type=int, metavar="EPOCHS", help="losses of stores' two kinds, no more")
    parser.add_argument("--seeds", type=int, default=5, help="of --converge")
    parser.add_argument("--rate", type=float, default=0.5, help="of --converge, for a batch of all ranks")
    given = parser.parse_args()
    with kg.device(given.device):
        main(given)
