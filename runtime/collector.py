"""Python's cyclic garbage collector put off, within a block."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_inside: list[int] = []  # the threads of the blocks that are open
_collects = True  # whether the collector was on before the first of them


@contextmanager
def uncollected() -> Iterator[None]:
    """For work that makes many objects and few cycles, of which looking for cycles would take a fifth."""
    global _collects
    with _lock:
        if not _inside:
            _collects = gc.isenabled()
            gc.disable()
        _inside.append(threading.get_ident())
    try:
        yield
    finally:
        with _lock:
            _leave(threading.get_ident())


def _leave(thread: int) -> None:
    _inside.remove(thread)
    if not _inside and _collects:
        gc.enable()


def _after_fork_in_child() -> None:
    """The other threads' blocks never end here."""
    global _lock
    _lock = threading.Lock()
    for thread in [t for t in _inside if t != threading.get_ident()]:
        _leave(thread)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
