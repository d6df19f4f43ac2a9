"""The collector does not come within blocks, and is afterwards as it was, however blocks of threads overlap."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from kernelgraph.runtime.core.gc_pause import paused_garbage_collection
from tests.processes import forked


@pytest.fixture(autouse=True)
def settings() -> Iterator[None]:
    collects, threshold = gc.isenabled(), gc.get_threshold()
    yield
    (gc.enable if collects else gc.disable)()
    gc.set_threshold(*threshold)


def collections() -> int:
    """How often the collector comes while many objects are made."""
    count = sum(g["collections"] for g in gc.get_stats())
    made: list[Any] = [[] for _ in range(1_000_000)]
    return sum(g["collections"] for g in gc.get_stats()) - count if made else 0


@pytest.mark.parametrize("before", [True, False])
def test_blocks_overlap(before: bool) -> None:
    (gc.enable if before else gc.disable)()
    first, second = ExitStack(), ExitStack()
    first.enter_context(paused_garbage_collection())
    second.enter_context(paused_garbage_collection())
    first.close()
    assert collections() == 0
    second.close()
    assert gc.isenabled() == before and (collections() > 0) == before
    with pytest.raises(ZeroDivisionError), paused_garbage_collection():
        1 / 0  # noqa: B018
    assert gc.isenabled() == before and (collections() > 0) == before


@pytest.mark.parametrize("before", [True, False])
def test_what_is_asked_of_the_collector_within_a_block_holds(before: bool) -> None:
    (gc.enable if before else gc.disable)()
    with paused_garbage_collection():
        assert gc.isenabled() == before
        (gc.disable if before else gc.enable)()
        assert collections() == 0
    assert gc.isenabled() != before and (collections() > 0) != before
    with paused_garbage_collection():
        gc.set_threshold(123, 4, 5)
    assert gc.get_threshold()[:2] == (123, 4)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_collects() -> None:
    """Even where another thread of its parent was in a block."""
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with paused_garbage_collection():
            entered.set()
            leave.wait()

    thread = threading.Thread(target=other)
    thread.start()
    entered.wait()
    status = forked(lambda: 0 if gc.isenabled() and collections() else 1)
    leave.set()
    thread.join()
    assert status == 0 and gc.isenabled() and collections()
