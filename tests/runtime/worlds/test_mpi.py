"""Messages of MPI ranks: what no run of several processes shows each time."""

from __future__ import annotations

import threading
from typing import Any

import pytest


def test_no_two_threads_test_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mpi4py")
    mpi = pytest.importorskip("kernelgraph.runtime.worlds.mpi", exc_type=ImportError)
    monkeypatch.setattr(mpi, "UNFINISHED", 0)
    world: Any = object.__new__(mpi.MPIWorld)
    world._sending, world._unfinished, world.failure, world.ended = threading.Lock(), [], None, {}

    class Request:
        """It comes to its end once another thread has had the time to send."""

        tests = 0

        def Test(self) -> bool:
            assert world._sending.locked()
            self.tests += 1
            return self.tests > 3

    request = Request()
    world._finish_later(request, 1)
    assert request.tests == 4 and not world._unfinished
