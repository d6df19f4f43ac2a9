"""Processes that a rank starts in every way, and what each is told that joins: `python -m kernelgraph.run -n 2 -m
tests.rank_children`.

`--early`: they start before the rank itself joins, and one of the two is told so.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Callable

import numpy as np

import kernelgraph as kg

COMMAND = [sys.executable, "-m", "tests.rank_children", "--child"]


def join() -> int:
    """Whether this process, which is no rank, is told so whatever it asks for: then 7."""
    asked: list[Callable[[], object]] = [
        kg.distributed.init,
        kg.distributed.rank,
        lambda: kg.distributed.all_reduce(1.0),
        lambda: kg.Mesh(2),
    ]
    for ask in asked:
        try:
            ask()
        except (kg.RankError, kg.ArgumentsError) as error:
            if "is no rank" in str(error) or "call kg.distributed.init() first" in str(error):
                continue
        return 1
    kg.distributed.init("alone")
    return 7 if kg.distributed.all_reduce(3.0) == 3 else 2


def joined_in_fork() -> int:
    """What a rank has made is of no use to a fork of it."""
    if (child := os.fork()) == 0:
        try:
            program(np.ones(3)).wait()
        except kg.RankError:
            os._exit(join())
        os._exit(3)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def joined_in_fork_that_runs_on() -> int:
    """Its end is Python's, not that of `os._exit`."""
    if (child := os.fork()) == 0:
        sys.exit(join())
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def joined_in_fork_of_thread() -> int:
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(joined_in_fork()))
    thread.start()
    thread.join()
    return codes[0]


def joined_in_exec() -> int:
    if (child := os.fork()) == 0:
        os.execv(COMMAND[0], COMMAND)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def exit_with_join() -> None:
    sys.exit(join())


def joined_by_multiprocessing(method: str) -> int:
    process = multiprocessing.get_context(method).Process(target=exit_with_join)
    process.start()
    process.join()
    return -1 if process.exitcode is None else process.exitcode


WAYS: dict[str, Callable[[], int]] = {
    "os.fork": joined_in_fork,
    "fork that runs on": joined_in_fork_that_runs_on,
    "fork of a thread": joined_in_fork_of_thread,
    "exec": joined_in_exec,
    "subprocess": lambda: subprocess.run(COMMAND, check=False).returncode,
    **{f"multiprocessing {m}": lambda m=m: joined_by_multiprocessing(m) for m in ("fork", "spawn", "forkserver")},  # type: ignore[misc]
}


def early() -> None:
    """Of a rank and its child, which begin at once, one joins."""
    child = subprocess.Popen(
        [sys.executable, "-c", "import kernelgraph as kg; kg.distributed.init(); kg.distributed.barrier()"],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        kg.distributed.init()
        kg.distributed.barrier()
    except kg.RankError as error:
        text = str(error)
    else:
        text = child.communicate()[1]
    child.wait()
    print("TOLD" if "is no rank: another process" in text or "started it" in text else f"WRONG {text}", flush=True)


if __name__ == "__main__":
    if "--child" in sys.argv:
        sys.exit(join())
    if "--early" in sys.argv:
        early()
        sys.exit()
    kg.distributed.init()
    program = kg.kernel_graph(lambda x: kg.all_reduce(x), mesh=kg.Mesh(2), in_axes=None, out_axes=None, device=None)
    for name, way in WAYS.items():
        program(np.ones(3)).wait()
        code = way()
        total = kg.distributed.all_reduce(1.0)
        print(
            f"rank {kg.distributed.rank()} {name}: {'TOLD' if (code, total) == (7, 2) else f'WRONG {code}'}", flush=True
        )
