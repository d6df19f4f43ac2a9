"""Servers of stores as processes: what they answer, whom they let in, and that they end when all ranks have left."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl.stores import server_processes
from kernelgraph.dsl.stores.server_processes import LEFT, ROOT, ServerConnection, start_server_process
from kernelgraph.runtime.core.errors import RankError
from tests.counts import examples
from tests.dsl.devices.test_mpi import ROOT as FOLDER
from tests.dsl.devices.test_mpi import on_mpi
from tests.interop import library

TOKEN = b"0123456789abcdef"
PATIENCE = 60.0  # on a busy machine

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are looked up in /proc")


def is_alive(process: int) -> bool:
    """Whether there is such a process, which has not ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_for_end(processes: list[int]) -> None:
    until = time.monotonic() + PATIENCE
    while any(map(is_alive, processes)):
        assert time.monotonic() < until, f"of {processes} {[p for p in processes if is_alive(p)]} go on"
        time.sleep(0.02)


@pytest.fixture
def started() -> Iterator[list[int]]:
    """Processes that a test has started, none of which outlives it."""
    processes: list[int] = []
    yield processes
    left = [process for process in processes if is_alive(process)]
    for process in left:
        os.kill(process, signal.SIGKILL)
    assert not left


def answer_twice(rank: int, text: bytes, data: Any) -> Any:
    if text == b"fail":
        raise OSError("what a handler must not raise")
    return data.view(np.int64) * 2 + rank if text == b"twice" else None


@pytest.mark.parametrize("one_machine", [True, False])
@pytest.mark.parametrize("count", [0, 1, 1000, 3_000_000])
def test_a_request_is_answered(one_machine: bool, count: int, started: list[int]) -> None:
    address, process = start_server_process(1, 2, one_machine, TOKEN, answer_twice)
    started.append(process)
    assert address.startswith("unix:" if one_machine else "tcp:") and is_alive(process)
    with_own, other = (ServerConnection(address, TOKEN, rank, 1, None) for rank in (1, 0))
    given = np.arange(count)
    for rank, connection in ((1, with_own), (0, other)):
        connection.request(b"nothing", given)
        connection.request(b"twice", given)
        np.testing.assert_array_equal(connection.receive_answer().view(np.int64), given * 2 + rank)
        connection.request(b"twice", given)
        connection.receive_into(found := np.empty(count, np.int64))
        np.testing.assert_array_equal(found, given * 2 + rank)
    other.close()
    with_own.close()
    wait_for_end([process])


def test_who_has_another_token_is_not_let_in(started: list[int]) -> None:
    address, process = start_server_process(0, 1, True, TOKEN, answer_twice)
    started.append(process)
    own = ServerConnection(address, TOKEN, 0, 0, None)
    stranger = ServerConnection(address, TOKEN[::-1], 0, 0, None)
    with pytest.raises(RankError, match="server of rank 0 has ended"):
        for _ in range(1000):
            stranger.request(b"twice", np.zeros(1000))
            stranger.receive_answer()
    silent = socket.socket(socket.AF_UNIX)
    silent.connect(f"\0{address.partition(':')[2]}")
    silent.send(b"no")
    silent.close()
    own.request(b"twice", np.ones(2, np.int64))
    assert own.receive_answer().view(np.int64).tolist() == [2, 2]
    own.close()
    wait_for_end([process])


def test_a_server_that_does_not_answer(started: list[int]) -> None:
    def sleep(rank: int, text: bytes, data: Any) -> Any:
        time.sleep(3)

    address, process = start_server_process(0, 1, True, TOKEN, sleep)
    started.append(process)
    with kg.override(collective_timeout=0.5):
        own = ServerConnection(address, TOKEN, 0, 0, None)
        own.request(b"", np.zeros(0))
        with pytest.raises(RankError, match=r"does not answer within 0\.5 s"):
            own.receive_answer()
    own.close()
    wait_for_end([process])


def end_in_any_order(rng: random.Random, started: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks leave one after another, some without having talked to anybody; some servers are killed. As long as a rank
    has not left, and nobody kills its server, that is there for all."""
    monkeypatch.setattr(server_processes, "LINGER_SECONDS", 30.0)
    size = rng.randint(1, 4)
    made = [start_server_process(rank, size, True, TOKEN, answer_twice) for rank in range(size)]
    addresses, processes = [address for address, _ in made], [process for _, process in made]
    started += processes
    held: dict[int, list[ServerConnection]] = {rank: [] for rank in range(size)}
    for rank in range(size):
        own = ServerConnection(addresses[rank], TOKEN, rank, rank, None)
        own.request(ROOT, np.frombuffer(addresses[0].encode(), np.uint8))
        own.request(b"twice", np.zeros(1, np.int64))
        own.receive_answer()
        held[rank].append(own)
        for server in rng.sample(range(size), rng.randint(0, size)):
            if server != rank:
                held[rank].append(ServerConnection(addresses[server], TOKEN, rank, server, None))
    order = rng.sample(range(size), size)
    killed = set[int]()
    for place, rank in enumerate(order):
        for connection in rng.sample(held[rank], len(held[rank])):
            connection.close()
        victim = order[place] if rng.randrange(4) == 0 else None
        if victim is not None:
            os.kill(processes[victim], signal.SIGKILL)
            killed.add(victim)
        if place + 1 < size and 0 not in killed:
            for server in set(range(size)) - killed:  # also those whose ranks have left
                asking = ServerConnection(addresses[server], TOKEN, order[-1], server, None)
                asking.request(b"twice", np.ones(1, np.int64))
                assert asking.receive_answer().view(np.int64)[0] == 2 + order[-1]
                asking.close()
    wait_for_end(processes)


def test_servers_end_when_all_ranks_have_left(started: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(examples(6)):
        end_in_any_order(random.Random(seed), started, monkeypatch)


def test_a_fork_of_the_rank_does_not_keep_its_server(started: list[int]) -> None:
    address, process = start_server_process(0, 1, True, TOKEN, answer_twice)
    started.append(process)
    own = ServerConnection(address, TOKEN, 0, 0, None)
    own.request(LEFT[:1], np.zeros(0))
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writing)
        os.read(reading, 1)  # until the test is over
        os._exit(0)
    try:
        own.close()
        wait_for_end([process])
    finally:
        os.close(writing)
        os.close(reading)
        os.waitpid(child, 0)


PROGRAM = """
import gc, os, signal, sys, time
import numpy as np
import kernelgraph as kg
from tests.dsl.stores.test_server_processes import wait_for_end, is_alive

RATE = 0.5
def descend(key, pushed, stored):
    stored -= RATE * pushed

def made():
    store = kg.KVStore("dist_async")
    store.set_updater(descend)
    store.init([0, 1, 2, "w"], [np.full(5, 8.0)] * 4)
    return store

with kg.device("cpu"):
    kg.distributed.init()
    rank, size = kg.distributed.rank(), kg.distributed.size()
    first = made()
    first.push([0, 1, 2], [np.ones(5)] * 3)
    first.barrier()
    assert [x.tolist() for x in first.pull([0, 1, 2, "w"])] == [[8.0 - 0.5 * size] * 5] * 3 + [[8.0] * 5]
    first.barrier()
    print("SERVER", first._servers.process, flush=True)
    if sys.argv[1] == "drop":
        before = first._servers.process
        first.set_optimizer(kg.optimizer.SGD(0.25, momentum=0.5))
        after = first._servers.process
        print("SERVER", after, flush=True)
        kg.distributed.barrier()
        wait_for_end([before])  # the values are in another
        assert is_alive(after)
        for _ in range(2):
            first.push("w", np.ones(5))
        first.barrier()
        path = sys.argv[2] + str(rank)
        first.save_optimizer_states(path)
        second = made()
        print("SERVER", second._servers.process, flush=True)
        second.set_optimizer(kg.optimizer.SGD(0.25, momentum=0.5))
        second.load_optimizer_states([sys.argv[2] + str(r) for r in range(size)])
        print("SERVER", second._servers.process, flush=True)
        both = [store.row_sparse_pull("w", row_ids=[1]).data.tolist() for store in (first, second)]
        assert len({*np.ravel(both[1])}) == 1 and both[0] != both[1]
        del first
        gc.collect()
        kg.distributed.barrier()
        wait_for_end([after])
        second.barrier()
        def refuse(key, pushed, stored):
            raise ValueError("no such step")
        second.set_updater(refuse)
        print("SERVER", second._servers.process, flush=True)
        second.push("w", np.ones(5))
        try:
            second.barrier()
        except kg.RankError as error:
            assert str(error).count("no such step") == size, error
        else:
            raise AssertionError("nobody is told")
        second.barrier()
        print("PASSED", flush=True)
    elif sys.argv[1] == "sleep":
        time.sleep(200)
    elif sys.argv[1] == "kill" and rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    elif sys.argv[1] == "kill":
        time.sleep(200)
    elif sys.argv[1] == "server" and rank == 1:
        os.kill(first._servers.process, signal.SIGKILL)
        time.sleep(200)
    elif sys.argv[1] == "server":
        wait_for_end([first._servers.process]) if rank == 1 else None
        while True:
            first.pull([0, 1, 2, "w"])
    elif rank == 0:
        print("ENDS", flush=True)  # the others still ask its server
    else:
        time.sleep(1)
        for _ in range(20):
            first.pull([0, 1, 2, "w"])
        print("PASSED", flush=True)
"""


def servers_of(output: str) -> list[int]:
    return [int(line.split()[1]) for line in output.splitlines() if line.startswith("SERVER ")]


@pytest.mark.parametrize("way", ["drop", "end"])
def test_no_server_outlives_its_store_or_its_ranks(way: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(PROGRAM)
    done = on_mpi(str(script), way, str(tmp_path / "states"), ranks=3)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("PASSED") == (3 if way == "drop" else 2), done.stdout + done.stderr
    assert servers_of(done.stdout)
    wait_for_end(servers_of(done.stdout))


@pytest.mark.parametrize("way", ["kill", "server"])
def test_no_server_outlives_a_fault(way: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(PROGRAM)
    done = on_mpi(str(script), way, ranks=2)
    assert done.returncode != 0
    if way == "server":
        assert "the store's server of rank 1 has ended" in done.stderr, done.stdout + done.stderr
    assert len(servers_of(done.stdout)) == 2
    wait_for_end(servers_of(done.stdout))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_no_server_outlives_a_launcher_that_is_ended(number: int, tmp_path: Path) -> None:
    library("mpi4py")
    script = tmp_path / "script.py"
    script.write_text(PROGRAM)
    paths = os.pathsep.join([str(FOLDER), str(FOLDER / "src"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "kernelgraph.run", "-n", "2", str(script), "sleep"]
    given = {**os.environ, "PYTHONPATH": paths}
    launcher = subprocess.Popen(command, env=given, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert launcher.stdout is not None
    servers = [int(launcher.stdout.readline().split()[1]) for _ in range(2)]
    assert all(map(is_alive, servers))
    launcher.send_signal(number)
    assert launcher.wait(100) != 0
    wait_for_end(servers)
    launcher.stdout.close()
