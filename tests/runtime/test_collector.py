"""The collector is off within blocks, and afterwards as it was, however blocks of threads overlap."""

from __future__ import annotations

import gc
import os
import threading
from contextlib import ExitStack

import pytest

from kernelgraph.runtime.collector import uncollected


@pytest.mark.parametrize("before", [True, False])
def test_blocks_overlap(before: bool) -> None:
    collects = gc.isenabled()
    try:
        (gc.enable if before else gc.disable)()
        first, second = ExitStack(), ExitStack()
        first.enter_context(uncollected())
        second.enter_context(uncollected())
        first.close()
        assert not gc.isenabled()
        second.close()
        assert gc.isenabled() == before
        with pytest.raises(ZeroDivisionError), uncollected():
            1 / 0  # noqa: B018
        assert gc.isenabled() == before
    finally:
        (gc.enable if collects else gc.disable)()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_collects() -> None:
    """Even where another thread of its parent was in a block."""
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with uncollected():
            entered.set()
            leave.wait()

    thread = threading.Thread(target=other)
    thread.start()
    entered.wait()
    child = os.fork()
    if child == 0:
        os._exit(0 if gc.isenabled() else 1)
    leave.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0 and gc.isenabled()
