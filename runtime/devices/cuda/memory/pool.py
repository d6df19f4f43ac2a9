"""Sizes in, blocks of device memory out, recycled. A block goes back to its size class when its Python object dies.

By then no launched work needs it (see `Executable.run`), so any stream may take it at once, without an event.
Small blocks are cut from slabs; large ones are the driver's own. They go back to it when it runs out, and when a block
of a new size is made while others are free: however many sizes come and go, what is held follows what is in use. What
takes turns is kept.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ....core.allocators import trim_gpu_caches_of_other_libraries
from ....core.errors import OutOfMemory
from ....core.host_pool import pool_size_class_bytes
from ....core.readable_text import byte_count_in_words
from ....core.recycling import FreeBlocks, RecyclingPool
from ....engine.native_call import native_maker_of_objects

ALIGNMENT = 256
SLAB, LARGEST_SLAB = 4 << 20, 64 << 20  # they grow with what is in use: the driver takes 0.3 ms for each
LARGE = 1 << 20
SPARE, LEAST_SPARE = 4, 16  # parts: free beside a new block may be a fourth of the most in use, a 16th of `most_free`
REMEMBERED = 16  # blocks that were let go: one that is made anew so soon had better been kept


class DeviceBlock:
    """`nbytes` of device memory at `address`."""

    __slots__ = ("__weakref__", "_free", "address", "nbytes")

    def __init__(self, address: int, nbytes: int, free: Callable[[int], None]) -> None:
        self.address = address
        self.nbytes = nbytes
        self._free = free

    def __del__(self) -> None:
        self._free(self.address)


class GpuMemoryPool(RecyclingPool):
    """source(nbytes) gives memory with a `handle` (its address) or raises OutOfMemory. Release(memory) takes it back;
    idle() returns when nothing is running any more; shrink() makes what was released the system's. most_free:
    see `RecyclingPool`. Within `unforbidden` memory may go back though somebody captures a stream. All
    methods may be called from any thread."""

    alignment = ALIGNMENT
    large = LARGE

    def __init__(
        self,
        source: Callable[[int], Any],
        release: Callable[[Any], None],
        idle: Callable[[], None],
        shrink: Callable[[], Any] = int,
        most_free: int = sys.maxsize,
        unforbidden: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        super().__init__(most_free)
        self._unforbidden = unforbidden
        self._source, self._release, self._idle, self._shrink = source, release, idle, shrink
        self._free: dict[int, FreeBlocks] = {}  # by size class
        self._own = self._free  # those of its own, while a lender gives the memory
        self._sizes: dict[int, tuple[FreeBlocks, Callable[[int], DeviceBlock]]] = {}  # those of what was asked for
        self._large: dict[int, tuple[Any, int]] = {}  # address -> memory and its size
        self._slabs: list[Any] = []
        self._slab = self._slab_end = 0
        self._most_in_use = 0  # since all was given back
        self._let_go: deque[int] = deque(maxlen=REMEMBERED)  # sizes
        self._missed = 0  # bytes of what was made anew, less those of what was new
        self._lock = threading.RLock()

    def allocate(self, nbytes: int) -> DeviceBlock:
        """Uninitialised memory, aligned to 256 bytes. Raises OutOfMemory."""
        try:
            free, make = self._sizes[nbytes]
        except KeyError:
            free, make = self._blocks_of_size(nbytes)
        try:
            return make(free.pop())
        except IndexError:
            return make(self.allocate_fresh(free))

    def owns(self, memory: Any) -> bool:
        """Whether it is a block of this pool's."""
        free = getattr(getattr(memory, "_free", None), "__self__", None)
        return isinstance(free, FreeBlocks) and free.pool is self

    def _own_free_blocks(self) -> list[FreeBlocks]:
        return list(self._own.values())

    def _release_block(self, address: int) -> None:
        memory, size = self._large.pop(address)
        self._let_go.append(size)
        self._release(memory)

    def _release_down_to(self, bound: int, idle: bool = False) -> int:
        with self._unforbidden():
            released = super()._release_down_to(bound, idle)
            if released or not idle:
                self._shrink()
            if idle:
                self._most_in_use, self._missed = 3 * self._most_in_use // 4, self._missed // 2
        return released

    def _forget_sizes(self) -> None:
        self._sizes.clear()
        self._free = self._own if self._lender is None else {}

    def _room_makers(self) -> tuple[Callable[[], Any], ...]:
        return self.trim, self._trim_when_idle, trim_gpu_caches_of_other_libraries

    def _trim_when_idle(self) -> None:
        self._idle()
        self.trim()

    def _blocks_of_size(self, nbytes: int) -> tuple[FreeBlocks, Callable[[int], DeviceBlock]]:
        """Where blocks for so many bytes are free, and what makes one of its address."""
        if not 0 <= nbytes < 1 << 62:
            raise OutOfMemory(f"{byte_count_in_words(nbytes)} are no size")
        size = pool_size_class_bytes(max(nbytes, ALIGNMENT))
        size += -size % ALIGNMENT
        with self._lock:
            if size not in self._free:
                self._free[size] = FreeBlocks(self, size, self._lender)
            if len(self._sizes) > 4096:
                self._sizes.clear()
            free = self._free[size]
            make = native_maker_of_objects(DeviceBlock, ("address",), {"nbytes": nbytes, "_free": free.recycle})
            found = self._sizes[nbytes] = free, make or (lambda address: DeviceBlock(address, nbytes, free.recycle))
        return found

    def trim(self) -> int:
        with self._lock:
            released = super().trim()
            self._most_in_use = self._missed = 0
            self._let_go.clear()
            return released

    def _let_other_sizes_go(self, size: int) -> None:
        """Before a large block is made. What goes becomes the system's first: the driver's pool would make the new
        block of a part of an old one, and could not give back the rest."""
        cached = self._large_bytes_cached()
        self._most_in_use = max(self._most_in_use, self._own_bytes - cached + size)
        if size in self._let_go:
            self._let_go.remove(size)
            self._missed += size
        else:
            self._missed = max(0, self._missed - size)
        spare = max(self._most_in_use // SPARE, self.bound // LEAST_SPARE, self._missed)
        if cached > spare:
            self._release_down_to(spare)

    def _allocate_own(self, size: int) -> int:
        if size < LARGE:
            return self._carve_from_slab(size)
        self._let_other_sizes_go(size)
        memory = self.with_room(self._source, size)
        address = int(memory.handle)
        self._large[address] = memory, size
        return address

    def _carve_from_slab(self, size: int) -> int:
        if self._slab + size > self._slab_end:
            nbytes = max(SLAB, min(LARGEST_SLAB, self._own_bytes // 4))
            try:
                memory = self._source(nbytes)
            except OutOfMemory:
                memory, nbytes = self.with_room(self._source, SLAB), SLAB
            self._slabs.append(memory)
            self._slab = int(memory.handle)
            self._slab_end = self._slab + nbytes
        self._slab += size
        return self._slab - size
