"""Messages of MPI ranks: what no run of several processes shows each time."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest


@pytest.mark.parametrize("size", range(1, 20))
def test_messages_of_an_agreement_bring_all_of_all_ranks_to_each(size: int) -> None:
    pytest.importorskip("mpi4py")
    mpi = pytest.importorskip("kernelgraph.runtime.worlds.mpi", exc_type=ImportError)
    left = [mpi.agreement_steps(rank, size) for rank in range(size)]
    known: list[list[int]] = [[rank] for rank in range(size)]
    mail: dict[tuple[int, int], list[list[int]]] = {}
    sent = [0] * size
    longest = max(map(len, left))
    while any(left):
        progress = False
        for rank, steps in enumerate(left):
            if not steps:
                continue
            to, sender, joined = steps[0]
            if sent[rank] != len(steps):  # each is sent once
                sent[rank] = len(steps)
                if to >= 0:
                    mail.setdefault((rank, to), []).append(sorted(known[rank]))
            if sender < 0 or mail.get((sender, rank)):
                came = mail[sender, rank].pop(0) if sender >= 0 else []
                known[rank] = known[rank] + came if joined else came
                del steps[0]
                progress = True
        assert progress
    assert all(sorted(each) == list(range(size)) for each in known)  # nobody's twice
    assert not any(mail.values()) and longest <= size.bit_length() + 1


def test_no_two_threads_test_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mpi4py")
    mpi = pytest.importorskip("kernelgraph.runtime.worlds.mpi", exc_type=ImportError)
    monkeypatch.setattr(mpi, "UNFINISHED", 0)
    world: Any = object.__new__(mpi.MPIWorld)
    world._sending, world._unfinished, world.failure, world.ended = threading.Lock(), [], None, {}
    world.awaited = {}

    class Request:
        """It comes to its end once another thread has had the time to send."""

        tests = 0

        def Test(self) -> bool:
            assert world._sending.locked()
            self.tests += 1
            return self.tests > 3

    request = Request()
    world._finish_later(request, 1, 0)
    assert request.tests == 4 and not world._unfinished


def test_what_few_bits_hold_is_joined_as_numpy_does() -> None:
    pytest.importorskip("mpi4py")
    mpi = pytest.importorskip("kernelgraph.runtime.worlds.mpi", exc_type=ImportError)
    for kind in "biufc":
        for size in (1, 2, 4, 8, 16):
            try:
                dtype = np.dtype(f"{kind}{size}")
            except TypeError:
                continue
            for op in ("sum", "prod", "max", "min"):
                own = mpi._mpi_operation(op, dtype) in [mpi._numpy_operation(op)]
                assert own == (size < 4 or (kind == "f" and op in ("max", "min")))


@pytest.mark.parametrize("late", [False, True])
def test_mpi_leaves_memory_alone_that_nobody_waits_for(late: bool) -> None:
    """late: the message has come after all, when the request was to be cancelled."""
    pytest.importorskip("mpi4py")
    mpi = pytest.importorskip("kernelgraph.runtime.worlds.mpi", exc_type=ImportError)
    did: list[str] = []

    class Request:
        def Test(self, status: Any) -> bool:
            return False

        def Cancel(self) -> None:
            did.append("cancel")

        def Wait(self, status: Any) -> None:
            did.append("wait")
            status.Set_cancelled(not late)

    class Mail:
        def Irecv(self, *given: Any) -> Request:
            return Request()

    world: Any = object.__new__(mpi.MPIWorld)
    world._mail, world.failure, world.ended, world.awaited = Mail(), None, {}, {}
    assert world._receive_into_buffer(np.empty(1), None, 0, stop=lambda: True) == late
    world.failure = "rank 1 died", (1,)
    with pytest.raises(mpi.RankError, match="rank 1 died"):
        world._receive_into_buffer(np.empty(1), 1, 0)
    assert did == ["cancel", "wait"] * 2
