"""What every rank of an MPI program runs: `python -m kernelgraph.run -n 4 -m tests.rank_suite`.

Each function is a part; `--fault NAME` ends one rank, or makes it differ, in the middle of a training loop;
`--survive`, in an elastic world, has one fail, and the others go on; `--blame` says whom their errors name.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import kernelgraph as kg
from kernelgraph.dsl.devices.distributed import current
from kernelgraph.runtime.program.world import CONTENT_BYTES
from tests import rank_cases, rank_reductions

CASES = 24


def collectives() -> None:
    for seed in range(CASES):
        rank_cases.check(rank_cases.draw(seed, kg.distributed.size()))


def reductions() -> None:
    for name, count in rank_reductions.table((8, 5000)):
        rank_reductions.check(kg.Mesh(kg.distributed.size()), name, count)


def own_collectives() -> None:
    rank, size = kg.distributed.rank(), kg.distributed.size()
    np.testing.assert_array_equal(kg.distributed.all_reduce(np.full((2, 3), rank)), np.full((2, 3), sum(range(size))))
    np.testing.assert_array_equal(kg.distributed.all_gather(rank), range(size))
    assert kg.distributed.broadcast(rank, size - 1) == size - 1
    for op, join in (("sum", np.add), ("max", np.maximum), ("min", np.minimum)):
        for count in (0, 1, 7, CONTENT_BYTES // 8, CONTENT_BYTES // 8 + 1):  # the last goes after the agreement
            given = [np.random.default_rng(r).normal(size=count) for r in range(size)]
            for r in range(size if op != "sum" and count > size else 0):
                given[r][r] = np.nan  # MPI's own maximum may drop it
            found = kg.distributed.all_reduce(given[rank], op)
            np.testing.assert_allclose(found, functools.reduce(join, given), rtol=1e-12, atol=1e-12)
            every = kg.distributed.all_gather(found)
            assert {each.tobytes() for each in every} == {found.tobytes()}
            np.testing.assert_array_equal(kg.distributed.broadcast(given[rank], size - 1), given[-1])
    mesh = kg.Mesh(size)
    whole = np.arange(size * 6).reshape(2, 3 * size)
    np.testing.assert_array_equal(kg.shard(whole, mesh, axis=1), whole)
    np.testing.assert_array_equal(kg.replicate(np.full(2, rank), mesh), np.zeros(2))


def loss(w: Any, x: Any, y: Any) -> Any:
    return ((np.maximum(x @ w[0], 0) @ w[1] - y) ** 2).mean()


def descend(w: Any, g: Any) -> Any:
    return [a - 0.05 * b for a, b in zip(w, g, strict=True)]


def training() -> None:
    rng, size = np.random.default_rng(0), kg.distributed.size()
    x, y = rng.random((4 * size, 5)), rng.random((4 * size, 2))
    weights = [rng.random((5, 7)), rng.random((7, 2))]
    train = kg.DataParallel(loss, kg.Mesh(size), update=descend)
    w, own = train.replicate(weights), weights

    @kg.kernel_graph(device="cpu")
    def alone(w: Any, x: Any, y: Any) -> Any:
        value, g = kg.value_and_grad(loss)(w, x, y)
        return descend(w, g), value

    for _ in range(5):
        w, value = train(w, x, y)
        own, want = alone(own, x, y)
    np.testing.assert_allclose(float(value), float(want), rtol=1e-12)
    for got, one in zip(w, own, strict=True):
        np.testing.assert_allclose(got, one, rtol=1e-12)
        every = kg.distributed.all_gather(got.numpy())
        np.testing.assert_array_equal(every, [every[0]] * len(every))


def disagreement() -> None:
    """Every rank raises, and all go on."""
    mesh = kg.Mesh(kg.distributed.size())
    add, most = (
        kg.kernel_graph(body, mesh=mesh, in_axes=None, out_axes=None, device=None)
        for body in (lambda x: kg.all_reduce(x), lambda x: kg.all_reduce(x, "max"))
    )
    for _ in range(2):
        try:
            (most if kg.distributed.rank() == 1 else add)(np.ones(3)).wait()
        except kg.PlanError as error:
            assert "rank_suite.py:" in str(error) and "all_reduce max float64[3]" in str(error)
        else:
            raise AssertionError("ranks that differ did not raise")
        np.testing.assert_array_equal(add(np.ones(3)), np.full(3, kg.distributed.size()))
        most(np.ones(3)).wait()
    for lonely in range(kg.distributed.size()):  # whichever rank has an array of its own
        count = 100 + (kg.distributed.rank() == lonely)
        try:
            kg.distributed.all_reduce(np.ones(count))
        except kg.PlanError as error:
            assert "float64[100]" in str(error) and "float64[101]" in str(error)
        else:
            raise AssertionError("ranks that differ did not raise")


def sync_store() -> None:
    rank, size = kg.distributed.rank(), kg.distributed.size()
    store = kg.KVStore("dist_sync")
    store.init(["a", 1], [np.full(3, rank + 5.0), np.zeros((200, 300), np.float32)])
    np.testing.assert_array_equal(store.pull("a"), np.full(3, 5.0))
    store.push(["a", 1], [np.full(3, rank + 1.0), np.full((200, 300), rank, np.float32)])
    np.testing.assert_array_equal(store.pull("a"), np.full(3, size * (size + 1) / 2))
    np.testing.assert_array_equal(store.pull(1), np.full((200, 300), size * (size - 1) / 2))


def take(key: Any, pushed: Any, stored: Any) -> None:
    stored -= pushed


def async_store() -> None:
    size = kg.distributed.size()
    store = kg.KVStore("dist_async")
    store.set_updater(take)
    shapes: list[Any] = [(3,), (100, 300), (1100, 1000)]
    store.init([0, 1, 2], [np.full(s, 100.0) for s in shapes])
    out = [np.empty(s) for s in shapes]
    for _ in range(4):
        store.push([0, 1, 2], [np.full(s, 0.5) for s in shapes])
        store.pull([0, 1, 2], out=out)
    assert max(float(x.max()) for x in out) <= 98
    store.barrier()
    store.pull([0, 1, 2], out=out)
    for x in out:
        np.testing.assert_array_equal(x, np.full(x.shape, 100 - 2.0 * size))


def waiting() -> None:
    """Who waits for a late rank with a large array takes none of the cores' time."""
    world, given, result = current().world, np.ones(1 << 18, np.float32), np.empty(1 << 18, np.float32)
    if world.rank == 0:
        time.sleep(1)
    before = time.process_time()
    world.all_reduce(given, result, "sum")
    assert (result == world.size).all()
    assert time.process_time() - before < 0.5


def pieces() -> None:
    """Again, where MPI takes few bytes at once, as of arrays of 2 GiB."""
    from kernelgraph.runtime.worlds import mpi

    for most, parts in ((3000, (collectives, own_collectives, sync_store, async_store)), (mpi.MOST_BYTES, ())):
        kg.distributed.barrier()
        mpi.MOST_BYTES = most
        kg.distributed.barrier()
        for part in parts:
            part()


PARTS: list[Callable[[], None]] = [
    collectives, reductions, own_collectives, training, disagreement, sync_store, async_store, pieces, waiting
]  # fmt: skip


def fault(kind: str, turn: int, victim: int) -> None:
    """Training in which one rank does something else at a turn. What each rank sees goes to the standard output."""
    rank, size = kg.distributed.rank(), kg.distributed.size()
    mesh = kg.Mesh(size)
    add, most = (
        kg.kernel_graph(body, mesh=mesh, in_axes=None, out_axes=None, device=None)
        for body in (lambda x: kg.all_reduce(x * 2), lambda x: kg.all_reduce(x * 2, "max"))
    )
    add(np.ones(3)).wait(), most(np.ones(3)).wait(), kg.distributed.barrier()
    if kind == "stop":
        kg.settings.collective_timeout = 3.0  # from here on: what came before is as slow as the machine
    for i in range(turn + 3):
        if i == turn and rank == victim:
            print(f"FAULT {time.time()}", flush=True)
            if kind == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            elif kind == "raise":
                raise ValueError("the disk is full")
            elif kind == "status":
                sys.exit(3)
            elif kind == "end":
                return
            elif kind == "stop":
                time.sleep(1000)
            elif kind == "order":
                most(np.ones(3)).wait()
            elif kind == "size":
                add(np.ones(4)).wait()
        add(np.ones(3)).wait()


FAULTS = ("kill", "raise", "status", "end", "stop", "order", "size")


def survive(kind: str, turn: int, *victims: int) -> None:
    """Sums in an elastic world, of which one rank after the other fails, as those that are left number themselves."""
    for victim in victims:
        survive_one(kind, turn, victim)


def survive_one(kind: str, turn: int, victim: int) -> None:
    """Sums of which one rank is killed, raises or ends at a turn. Those that are left say so."""

    def program() -> Any:
        mesh = kg.Mesh(kg.distributed.size())
        return kg.kernel_graph(lambda x: kg.all_reduce(x * 2), mesh=mesh, in_axes=None, out_axes=None, device=None)

    add = program()
    for i in range(turn + 3):
        try:
            if i == turn and kg.distributed.rank() == victim:
                print(f"FAULT {time.time()}", flush=True)
                if kind == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                raise ValueError("the disk is full") if kind == "raise" else SystemExit(3)
            np.asarray(add(np.ones(3)))
        except kg.RankError:
            told = time.time()
            kg.distributed.shrink()
            left = kg.distributed.size()
            np.testing.assert_array_equal(program()(np.ones(3)), np.full(3, 2.0 * left))
            print(f"SURVIVED {told} {kg.distributed.rank()} of {left}", flush=True)
            kg.distributed.barrier()
            return


def blame(kind: str, waits: str, victim: int) -> None:
    """In an elastic world one rank is killed, raises or is late, and the others wait for it in some way."""
    rank, size = kg.distributed.rank(), kg.distributed.size()
    store = kg.KVStore("dist_async")
    store.set_updater(take)
    store.init([*range(6)], [np.zeros(4)] * 6)
    add = kg.kernel_graph(kg.all_reduce, mesh=kg.Mesh(size), in_axes=None, out_axes=None, device=None)
    add(np.ones(3)).wait(), kg.distributed.barrier()
    if kind == "stop":
        kg.settings.collective_timeout = 3.0
    ways: dict[str, Callable[[], object]] = {
        "collective": lambda: kg.distributed.all_reduce(1.0),
        "program": lambda: add(np.ones(3)).wait(),
        "barrier": store.barrier,
        "pull": lambda: [store.pull(key) for key in range(6)] + [kg.distributed.barrier()],
        "nothing": lambda: None,  # the others are at their end when it fails
    }
    try:
        for step in range(5):
            if step == 3 and rank == victim:
                if kind == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                elif kind == "raise":
                    raise ValueError("the disk is full")
                time.sleep(7)
            ways[waits]()
    except kg.RankError as error:
        print(f"rank {rank} BLAMES {error.ranks}: {error}", flush=True)
        if kind == "raise" and rank == 0:
            os._exit(0)  # as one that is killed after it has heard: nobody may wait for it at the end


def main() -> None:
    kg.distributed.init(elastic="--survive" in sys.argv or "--blame" in sys.argv)
    if "--blame" in sys.argv:
        blame(*sys.argv[-3:-1], int(sys.argv[-1]))
        return
    if "--fault" in sys.argv:
        kind, turn, victim = sys.argv[-3:]
        fault(kind, int(turn), int(victim))
        return
    if "--survive" in sys.argv:
        kind, *numbers = sys.argv[sys.argv.index("--survive") + 1 :]
        survive(kind, *map(int, numbers))
        return
    for part in PARTS:
        start = time.time()
        part()
        if kg.distributed.rank() == 0:
            print(f"{part.__name__} passed in {time.time() - start:.2f} s", flush=True)


if __name__ == "__main__":
    with kg.device("cpu"):
        main()
