"""Python's cyclic garbage collector put off, within a block."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """For work that makes many objects and few cycles, of which looking for cycles would take a fifth. Blocks of several
    threads may overlap: the collector is on again after the first that found it on."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
