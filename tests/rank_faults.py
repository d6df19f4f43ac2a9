"""Faults of ranks, drawn at random: a rank fails in the middle of a loop of sums, and every rank must learn of it.

python -m tests.rank_faults COUNT [threads|mpi] [SEED]: counts what hangs, who is told nothing, and how long it takes.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import kernelgraph as kg

ROOT = Path(__file__).parent.parent
BOTH = ("raise", "end", "stop", "order", "size", "stores")
KINDS = {"threads": BOTH, "mpi": (*BOTH[:-1], "kill", "status")}
TIMEOUTS = {"threads": 0.5, "mpi": 3.0}  # seconds that ranks wait for one that stops calling
HANG = 60.0
START = 600.0  # seconds in which ranks come to their fault, on a machine with much else to do


@dataclass(frozen=True)
class Fault:
    """Rank `victim` of `ranks` does something else at a turn."""

    kind: str
    ranks: int
    turn: int
    victim: int


@dataclass(frozen=True)
class Outcome:
    """Seconds from the fault until all were told; who was told nothing (-1: somebody); whether they ran on for long."""

    fault: Fault
    seconds: float
    silent: tuple[int, ...] = ()
    hangs: bool = False
    misnamed: tuple[str, ...] = ()


def draw(rng: random.Random, world: str) -> Fault:
    ranks = rng.randint(2, 4)
    return Fault(rng.choice(KINDS[world]), ranks, rng.randrange(5), rng.randrange(ranks))


def on_threads(fault: Fault) -> Outcome:
    """Errors are noted where each rank gets them."""
    told: dict[int, float] = {}
    misnamed: list[str] = []
    began, release = [0.0], threading.Event()

    def shorten_timeout() -> None:
        if fault.kind in ("stop", "stores"):
            kg.settings.collective_timeout = TIMEOUTS["threads"]

    ready = threading.Barrier(fault.ranks, shorten_timeout)  # once all have compiled what they call

    def run() -> None:
        rank, mesh = kg.distributed.rank(), kg.Mesh(fault.ranks)
        add, most = (
            kg.kernel_graph(body, mesh=mesh, in_axes=None, out_axes=None)
            for body in (lambda x: kg.all_reduce(x * 2), lambda x: kg.all_reduce(x * 2, "max"))
        )
        store = kg.KVStore("dist_async") if fault.kind == "stores" else None
        try:
            add(np.ones(3)).wait(), most(np.ones(3)).wait(), ready.wait()
            for i in range(fault.turn + 3):
                if i == fault.turn and rank == fault.victim:
                    began[0] = time.perf_counter()
                    if fault.kind == "raise":
                        raise ValueError("the disk is full")
                    if fault.kind == "end":
                        told[rank] = began[0]
                        return
                    if fault.kind in ("stop", "stores"):
                        release.wait(HANG)
                        raise ValueError("woken")
                    (most(np.ones(3)) if fault.kind == "order" else add(np.ones(4))).wait()
                if store is not None:
                    store.barrier()
                else:
                    add(np.ones(3)).wait()
        except Exception as error:
            if isinstance(error, kg.RankError) and fault.kind not in ("order", "size") and rank != fault.victim:
                misnamed.extend([str(error)] if error.ranks != (fault.victim,) else [])
            told[rank] = time.perf_counter()
            if len(told) >= fault.ranks - 1:
                release.set()
            raise

    def all_ranks() -> None:
        with contextlib.suppress(Exception):
            kg.distributed.run_threads(fault.ranks, run)

    with kg.override(collective_timeout=HANG):
        thread = threading.Thread(target=all_ranks, daemon=True)
        thread.start()
        thread.join(HANG)
    silent = tuple(r for r in range(fault.ranks) if r not in told)
    others = [at for r, at in told.items() if r != fault.victim]
    return Outcome(fault, max(others, default=0.0) - began[0], silent, thread.is_alive(), (*misnamed,))


def on_mpi(fault: Fault) -> Outcome:
    """Ranks that MPI joins end together: the time is that of the launcher."""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    given = {**os.environ, "PYTHONPATH": paths}
    command = [sys.executable, "-m", "kernelgraph.run", "-n", str(fault.ranks), "-m", "tests.rank_suite"]
    command += ["--fault", fault.kind, str(fault.turn), str(fault.victim)]
    process = subprocess.Popen(
        command, cwd=ROOT, env=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip
    began, told = 0.0, 0.0
    killer = end_later(process, START)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("FAULT"):
            began = float(line.split()[1])
            killer.cancel()
            killer = end_later(process, HANG)
        elif began and not told and any(word in line for word in ("rank", "Error", "signal")):
            told = time.time()
    code = process.wait()
    late = not killer.is_alive()
    killer.cancel()
    if not began:
        return Outcome(fault, 0.0, (-1,))
    return Outcome(fault, told - began, () if code and told else (-1,), late)


def end_later(process: subprocess.Popen[str], seconds: float) -> threading.Timer:
    """The timer after which a launcher and its ranks are killed, if it is not cancelled."""
    timer = threading.Timer(seconds, os.killpg, (process.pid, signal.SIGKILL))
    timer.start()
    return timer


def inject(count: int, world: str, seed: int = 0) -> list[Outcome]:
    rng, run = random.Random(seed), on_mpi if world == "mpi" else on_threads
    return [run(draw(rng, world)) for _ in range(count)]


def seconds_beyond(outcome: Outcome, world: str) -> float:
    """The time to be told, without what ranks are asked to wait."""
    return outcome.seconds - (TIMEOUTS[world] if outcome.fault.kind in ("stop", "stores") else 0.0)


def main(count: int, world: str = "threads", seed: int = 0) -> None:
    outcomes = inject(count, world, seed)
    hang, silent, misnamed = (sum(bool(getattr(o, name)) for o in outcomes) for name in ("hangs", "silent", "misnamed"))
    print(f"{count} faults over {world}: {hang} hang, {silent} silent, {misnamed} name another rank")
    for kind in KINDS[world]:
        each = sorted(seconds_beyond(o, world) for o in outcomes if o.fault.kind == kind)
        if each:
            print(f"  {kind}: {len(each)}, told after {each[len(each) // 2]:.3f} s, at most {each[-1]:.3f} s")
    for outcome in outcomes:
        if outcome.hangs or outcome.silent or outcome.misnamed:
            print(f"  {outcome}")


if __name__ == "__main__":
    with kg.device("cpu"):
        main(int(sys.argv[1]), *sys.argv[2:3], *map(int, sys.argv[3:]))
