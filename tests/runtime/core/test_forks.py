"""A fork waits for steps of NumPy's that other threads are in, and for no others."""

from __future__ import annotations

import os
import threading

import pytest

from kernelgraph.runtime.core import deferred_fork
from tests import processes

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def forked(said: str) -> int:
    """The exit status of a child: whether the text is what it sees."""
    return processes.forked(lambda: 0 if repr(deferred_fork.inside) == said and not deferred_fork.forking else 1)


def test_a_fork_waits_for_the_steps_of_other_threads() -> None:
    inside, order = threading.Event(), []

    def step() -> None:
        deferred_fork.inside.append(threading.get_ident())
        inside.set()
        while not deferred_fork.forking:
            threading.Event().wait(0.001)
        order.append("the step is over")
        deferred_fork.inside.remove(threading.get_ident())

    thread = threading.Thread(target=step)
    thread.start()
    inside.wait()
    assert forked("[]") == 0
    order.append("forked")
    thread.join()
    assert order == ["the step is over", "forked"]
    assert (deferred_fork.inside, deferred_fork.forking) == ([], [])


def test_a_step_that_begins_during_a_fork_waits_for_it() -> None:
    begun, going_on, over = threading.Event(), threading.Event(), threading.Event()

    def step() -> None:
        me = threading.get_ident()
        deferred_fork.inside.append(me)
        begun.set()
        deferred_fork.wait_until_fork_is_over()
        going_on.set()
        over.wait()
        deferred_fork.inside.remove(me)

    deferred_fork._hold_fork_until_steps_end()
    thread = threading.Thread(target=step)
    thread.start()
    begun.wait()
    assert not going_on.wait(0.05)
    deferred_fork._let_steps_begin_after_fork()
    assert going_on.wait(60)
    over.set()
    thread.join()


def test_who_is_in_a_step_itself_forks_and_begins_steps() -> None:
    me = threading.get_ident()
    deferred_fork.inside.append(me)
    try:
        assert forked(f"[{me}]") == 0
        deferred_fork._hold_fork_until_steps_end()
        deferred_fork.inside.append(me)
        deferred_fork.wait_until_fork_is_over()
        deferred_fork.inside.remove(me)
        deferred_fork._let_steps_begin_after_fork()
    finally:
        deferred_fork.inside.remove(me)
