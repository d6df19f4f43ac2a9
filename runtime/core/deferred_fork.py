"""A fork put off until no other thread is in a step of NumPy's. None begins one until it is over.

The library behind NumPy's linear algebra has a fork end its threads: a fork in the middle of its work never returns.
A step is between `inside.append(thread)` and `inside.remove(thread)`, and if it sees `forking` begins with
`wait_until_fork_is_over`.
"""

from __future__ import annotations

import os
import threading
import time

PATIENCE = 60.0  # seconds: a step may be a function of the user's that waits for the thread that forks
LOOK = 0.0005

inside: list[int] = []  # the threads that are in a step, once for each
forking: list[int] = []  # the thread that forks
_over = threading.Lock()  # who forks holds it


def wait_until_fork_is_over() -> None:
    """Before a step, until the fork is over. Within another step, and for who forks, there is none to wait for."""
    me = threading.get_ident()
    while forking and me not in forking and inside.count(me) == 1:
        inside.remove(me)
        with _over:
            inside.append(me)


def _hold_fork_until_steps_end() -> None:
    _over.acquire()
    me = threading.get_ident()
    forking.append(me)  # written first, and the others' list read second; so do they
    until = time.monotonic() + PATIENCE
    while any([thread != me for thread in inside]) and time.monotonic() < until:
        time.sleep(LOOK)


def _let_steps_begin_after_fork() -> None:
    forking.clear()
    _over.release()


def _forget_running_steps_in_forked_child() -> None:
    """The other threads' steps never end here."""
    global _over
    _over = threading.Lock()
    forking.clear()
    me = threading.get_ident()
    inside[:] = [thread for thread in inside if thread == me]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_hold_fork_until_steps_end,
        after_in_parent=_let_steps_begin_after_fork,
        after_in_child=_forget_running_steps_in_forked_child,
    )
