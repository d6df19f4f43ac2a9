"""Collectives come one after another, done by a thread or by whoever waits; small arrays go with the digest."""

from __future__ import annotations

import ast
import threading
from pathlib import Path

import numpy as np
import pytest

from kernelgraph.runtime.core.errors import PlanError
from kernelgraph.runtime.engine.communicator import EngineCommunicator, rank_agreement_on_collective
from kernelgraph.runtime.program.world import CONTENT_BYTES, World
from kernelgraph.runtime.worlds.alone import SingleRankWorld
from kernelgraph.runtime.worlds.threads import run_ranks_as_threads

ROOT = Path(__file__).parents[3]
FIRST, SECOND = rank_agreement_on_collective("first"), rank_agreement_on_collective("second")


def without_thread(world: World) -> EngineCommunicator:
    """One whose thread does not come to its jobs."""
    made = EngineCommunicator(world)
    made._start_thread_of_jobs = lambda: None  # type: ignore[method-assign]
    return made


def test_who_waits_does_what_nobody_has_begun() -> None:
    communicator, done = without_thread(SingleRankWorld()), list[tuple[int, threading.Thread]]()
    events = [communicator.submit(lambda i=i: done.append((i, threading.current_thread())), "job") for i in range(4)]
    events[2].wait()
    assert done == [(i, threading.current_thread()) for i in range(3)] and not events[3].query()
    communicator.run(FIRST, lambda: done.append((9, threading.current_thread())))
    assert [i for i, _ in done] == [0, 1, 2, 3, 9] and events[3].query()


def test_who_waits_leaves_to_the_thread_what_it_has_begun() -> None:
    communicator, begun, release = EngineCommunicator(SingleRankWorld()), threading.Event(), threading.Event()
    done: list[int] = []

    def slow() -> None:
        begun.set()
        release.wait()
        done.append(0)

    event = communicator.submit(slow, "slow")
    begun.wait()
    after = communicator.submit(lambda: done.append(1), "after")
    waiting = threading.Thread(target=after.wait)
    waiting.start()
    assert not done and not event.query()
    release.set()
    waiting.join()
    assert done == [0, 1]
    communicator.close(10)


@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (CONTENT_BYTES // 8,)])
def test_arrays_are_joined_with_the_agreement(shape: tuple[int, ...]) -> None:
    def live(world: World) -> np.ndarray:
        result = np.empty(shape)
        EngineCommunicator(world).run(FIRST, None, np.full(shape, world.rank + 1.0), result, np.multiply)
        return result

    for found in run_ranks_as_threads(3, live):
        np.testing.assert_array_equal(found, np.full(shape, 6.0))


def test_what_follows_an_agreement_that_fails_does_not_run() -> None:
    """The ranks tell each other their lines, and go on."""

    def live(world: World) -> tuple[str, list[int]]:
        communicator, done = without_thread(world), list[int]()
        other = FIRST if world.rank else SECOND

        def job() -> None:
            communicator.exchange(other)
            done.append(1)

        event = communicator.submit(job, "job")
        with pytest.raises(PlanError) as caught:
            event.wait()
        communicator.run(FIRST, lambda: done.append(2))
        return str(caught.value), done

    for rank, (text, done) in enumerate(run_ranks_as_threads(2, live)):
        lines = ["second", "first"]
        assert f"rank {rank} comes to {lines[rank]}, rank {1 - rank} to {lines[1 - rank]}" in text and done == [2]


def test_who_need_not_come_soon_comes_by_itself() -> None:
    """The thread wakes from naps, and is woken from sleep."""
    communicator, done = EngineCommunicator(SingleRankWorld()), threading.Event()
    for turn in range(3):
        done.clear()
        event = communicator.submit(done.set, "job", soon=turn == 0)
        assert done.wait(60) and (event.wait() or event.query())
    communicator._naps = False  # it sleeps, or is about to
    done.clear()
    communicator.submit(done.set, "job", soon=False)
    assert done.wait(60)
    communicator.close(60)


def test_a_nap_ends_though_it_is_over_as_somebody_wakes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """`SimpleQueue.get` of Python 3.11 never returned then: a rank came to no collective any more."""
    monkeypatch.setattr("kernelgraph.runtime.engine.communicator.NAP_SECONDS", 1e-7)
    monkeypatch.setattr("kernelgraph.runtime.engine.communicator.NAPS", 10**9)
    communicator, done = EngineCommunicator(SingleRankWorld()), threading.Event()
    for _ in range(2000):
        communicator.submit(lambda: None, "job")
        done.clear()
        communicator.submit(done.set, "job", soon=False)
        assert done.wait(20)
    communicator.close(60)


def test_no_queue_is_read_with_a_timeout() -> None:
    """Those of Python 3.11 may sleep for ever: see above."""
    for folder in ("dsl", "runtime", "compiler"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
                    assert all(k.arg != "timeout" for k in node.keywords), f"{path}:{node.lineno}"


@pytest.mark.parametrize("count", [1, 400])
def test_a_digest_is_of_what_is_done_with_which_array(count: int) -> None:
    one = rank_agreement_on_collective("sum", np.dtype("f4"), (count,))
    assert one.doing == f"sum of float32[{count}]"
    others = [
        rank_agreement_on_collective("sum", np.dtype("f8"), (count,)),
        rank_agreement_on_collective("max", np.dtype("f4"), (count,)),
    ]
    assert one.digest not in [other.digest for other in others]
