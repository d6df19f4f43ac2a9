"""Python's cyclic garbage collector put off, within a block."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

NEVER = 2_000_000_011  # a threshold that is not reached, and that nobody else would set

_lock = threading.Lock()
_inside: list[int] = []  # the threads of the blocks that are open
_threshold: tuple[int, ...] = ()  # the collector's before the first of them


@contextmanager
def paused_garbage_collection() -> Iterator[None]:
    """Pauses the collector for work that makes many objects and few cycles. Looking for cycles would take a fifth of
    it.

    By the collector's threshold: what a traced function says, `gc.disable()` too, holds afterwards."""
    global _threshold
    with _lock:
        if not _inside:
            _threshold = gc.get_threshold()
            gc.set_threshold(NEVER, *_threshold[1:])
        _inside.append(threading.get_ident())
    try:
        yield
    finally:
        with _lock:
            _resume_garbage_collection(threading.get_ident())


def _resume_garbage_collection(thread: int) -> None:
    _inside.remove(thread)
    if not _inside and gc.get_threshold()[0] == NEVER:
        gc.set_threshold(*_threshold)


def _forget_gc_pauses_in_forked_child() -> None:
    """The other threads' blocks never end here."""
    global _lock
    _lock = threading.Lock()
    for thread in [t for t in _inside if t != threading.get_ident()]:
        _resume_garbage_collection(thread)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_gc_pauses_in_forked_child)
