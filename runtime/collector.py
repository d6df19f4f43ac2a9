"""Python's cyclic garbage collector put off, within a block."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_blocks = 0  # that are open, in all threads
_collects = True  # whether the collector was on before the first of them


@contextmanager
def uncollected() -> Iterator[None]:
    """For work that makes many objects and few cycles, of which looking for cycles would take a fifth."""
    global _blocks, _collects
    with _lock:
        if _blocks == 0:
            _collects = gc.isenabled()
            gc.disable()
        _blocks += 1
    try:
        yield
    finally:
        with _lock:
            _blocks -= 1
            if _blocks == 0 and _collects:
                gc.enable()
