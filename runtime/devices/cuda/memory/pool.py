"""Sizes in, blocks of device memory out, recycled. A block goes back to its size class when its Python object dies.

By then no launched work needs it (see `Executable.run`), so any stream may take it at once, without an event.
Small blocks are cut from slabs; large ones are the driver's own, and go back to it when it runs out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ....core.errors import OutOfMemory
from ....core.host_pool import MemoryLimit, pool_size_class_bytes

ALIGNMENT = 256
SLAB, LARGEST_SLAB = 4 << 20, 64 << 20  # they grow with what is in use: the driver takes 0.3 ms for each
LARGE = 1 << 20


class DeviceBlock:
    """`nbytes` of device memory at `address`."""

    __slots__ = ("_free", "address", "nbytes")

    def __init__(self, address: int, nbytes: int, free: Callable[[int], None]) -> None:
        self.address = address
        self.nbytes = nbytes
        self._free = free

    def __del__(self) -> None:
        self._free(self.address)


class GpuMemoryPool:
    """source(nbytes) gives memory with a `handle` (its address) or raises OutOfMemory. Release(memory) takes it back;
    idle() returns when nothing is running any more. All methods may be called from any thread."""

    def __init__(self, source: Callable[[int], Any], release: Callable[[Any], None], idle: Callable[[], None]) -> None:
        self._source, self._release, self._idle = source, release, idle
        self._free: dict[int, list[int]] = {}  # by size class
        self._sizes: dict[int, int] = {}  # of what was asked for -> size class
        self._large: dict[int, Any] = {}  # address -> memory
        self._slabs: list[Any] = []
        self._slab = self._slab_end = 0
        self._reserved = self._peak = 0
        self.limit = MemoryLimit()
        self._lock = threading.RLock()

    def allocate(self, nbytes: int) -> DeviceBlock:
        """Uninitialised memory, aligned to 256 bytes. Raises OutOfMemory."""
        size = self._sizes.get(nbytes) or self._size_class_of(nbytes)
        free = self._free[size]
        try:
            address = free.pop()
        except IndexError:
            address = self._allocate_fresh_block(size)
        return DeviceBlock(address, nbytes, free.append)

    def trim(self) -> int:
        """Give the free large blocks back to the driver; the bytes given back."""
        released = 0
        with self._lock:
            for size, free in self._free.items():
                while size >= LARGE:
                    try:
                        address = free.pop()  # another thread may take the last one
                    except IndexError:
                        break
                    self._release(self._large.pop(address))
                    released += size
            self._reserved -= released
        return released

    def statistics(self) -> dict[str, int]:
        """Bytes `in_use`, `cached` (free, kept) and `reserved` (both), and `peak`: the most ever reserved."""
        with self._lock:
            cached = sum(size * len(free) for size, free in self._free.items())
            return {
                "in_use": self._reserved - cached,
                "cached": cached,
                "reserved": self._reserved,
                "peak": self._peak,
            }

    def _size_class_of(self, nbytes: int) -> int:
        if not 0 <= nbytes < 1 << 62:
            raise OutOfMemory(f"{nbytes} bytes are no size")
        size = pool_size_class_bytes(max(nbytes, ALIGNMENT))
        size += -size % ALIGNMENT
        with self._lock:
            self._free.setdefault(size, [])
            if len(self._sizes) > 4096:
                self._sizes.clear()
            self._sizes[nbytes] = size
        return size

    def _allocate_fresh_block(self, size: int) -> int:
        with self._lock:
            if self.limit.is_exceeded_by(self._reserved, size):
                self.trim()
                if self.limit.is_exceeded_by(self._reserved, size):
                    raise self.limit.limit_error(self._reserved, size)
            if size < LARGE:
                address = self._carve_from_slab(size)
            else:
                memory = self._allocate_from_driver(size)
                address = int(memory.handle)
                self._large[address] = memory
            self._reserved += size
            self._peak = max(self._peak, self._reserved)
            return address

    def _carve_from_slab(self, size: int) -> int:
        if self._slab + size > self._slab_end:
            nbytes = max(SLAB, min(LARGEST_SLAB, self._reserved // 4))
            try:
                memory = self._source(nbytes)
            except OutOfMemory:
                memory, nbytes = self._allocate_from_driver(SLAB), SLAB
            self._slabs.append(memory)
            self._slab = int(memory.handle)
            self._slab_end = self._slab + nbytes
        self._slab += size
        return self._slab - size

    def _allocate_from_driver(self, size: int) -> Any:
        """Memory of the driver; when it has none, after what is cached went back, and at last after running work."""
        try:
            return self._source(size)
        except OutOfMemory:
            pass
        self.trim()
        try:
            return self._source(size)
        except OutOfMemory:
            self._idle()
            self.trim()
            return self._source(size)
