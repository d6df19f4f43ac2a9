"""Sizes in, blocks of host memory out, recycled. A block goes back to its size class when its Python object dies.

A block is a ctypes array, so NumPy arrays made over it (`numpy_view_of_pool_block`) keep it alive. The hot path is a
dictionary look-up and a `list.pop`, both atomic under the interpreter lock. Small blocks (64-byte aligned) are cut from
slabs that live as long as the pool; large ones are mappings of their own (2 MiB aligned, huge pages asked for), kept up
to a bound. A limit says what the memory of a device, this one or another, may hold.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import threading
import weakref
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from .errors import OutOfMemory
from .settings import settings

ALIGNMENT = 64
HUGE = 2 << 20
LARGE = 256 << 10
INLINE = 16  # bytes that an object of ctypes has room for
_KNOWN_SIZES = 4096


def pool_size_class_bytes(nbytes: int) -> int:
    """The size of the block that holds `nbytes`: a multiple of 64 bytes, above 512 one of eight steps an octave."""
    if nbytes <= 512:
        return max(ALIGNMENT, nbytes + -nbytes % ALIGNMENT)
    step = 1 << ((nbytes - 1).bit_length() - 4)
    return nbytes + -nbytes % step


@cache
def inline_block_class(nbytes: int) -> Callable[[], Any] | None:
    """Makes blocks of so few bytes that they lie in the block's object itself; None where that cannot be.

    No pool keeps them: they are made in a quarter of the time."""
    made: Any = type("Block", (ctypes.c_char * nbytes,), {"__slots__": (), "nbytes": nbytes})
    made.address = property(ctypes.addressof)
    block = made()
    inside = 0 < block.address - id(block) <= made.__basicsize__ - nbytes and block.address % INLINE == 0
    return made if inside and nbytes <= INLINE else None


class RecycledBlock:
    """A block of a pool."""

    __slots__ = ()


class _HostSizeClass:
    """Blocks of one size: how to make the object over an address, and the free addresses."""

    __slots__ = ("free", "make", "pop", "size")

    def __init__(self, size: int, freed: Callable[[], None] | None) -> None:
        self.size = size
        self.free: list[int] = []
        self.pop = self.free.pop
        self.make: Any = _make_host_pool_block_type(size, self.free.append, freed).from_address


def _make_host_pool_block_type(size: int, push: Callable[[int], None], freed: Callable[[], None] | None) -> Any:
    def recycle_small_block(block: Any) -> None:
        push(block.address)

    def recycle_large_block(block: Any) -> None:
        push(block.address)
        if freed is not None:
            freed()

    body = {
        "__slots__": ("address", "nbytes"),
        "__del__": recycle_small_block if freed is None else recycle_large_block,
    }
    return type("Block", (ctypes.c_char * size, RecycledBlock), body)


class HostMemoryPool:
    """Recycled host memory. All methods may be called from any thread."""

    def __init__(self) -> None:
        self._by_size: dict[int, _HostSizeClass] = {}
        self._classes: dict[int, _HostSizeClass] = {}
        self._mappings: dict[int, mmap.mmap] = {}
        self._slab, self._slab_end = 0, 0
        self._slabs: list[mmap.mmap] = []
        self._reserved = self._peak = 0
        self.limit = MemoryLimit()
        self._lock = threading.RLock()  # a block may die, and call in here, inside any allocation
        self._bound = 0
        _pools.add(self)

    def allocate(self, nbytes: int) -> Any:
        """A block with `address` and `nbytes`; its content is whatever was there. Raises OutOfMemory."""
        found = self._by_size.get(nbytes) or self._size_class_of(nbytes)
        try:
            address = found.pop()
        except IndexError:
            address = self._allocate_fresh_block(found.size)
        block = found.make(address)
        block.address = address
        block.nbytes = nbytes
        return block

    def trim(self) -> int:
        """Give the large free blocks back to the system; the bytes given back."""
        return self._release_cached_down_to(0)

    def statistics(self) -> dict[str, int]:
        """Bytes `in_use`, `cached` (free, kept) and `reserved` (both), and `peak`: the most ever reserved."""
        with self._lock:
            cached = sum(c.size * len(c.free) for c in self._classes.values())
            return {
                "in_use": self._reserved - cached,
                "cached": cached,
                "reserved": self._reserved,
                "peak": self._peak,
            }

    def _size_class_of(self, nbytes: int) -> _HostSizeClass:
        if nbytes < 0:
            raise ValueError(f"{nbytes} bytes")
        if nbytes >= 1 << 62:
            raise OutOfMemory(f"{nbytes} bytes are more than there can be")
        size = pool_size_class_bytes(nbytes)
        with self._lock:
            found = self._classes.get(size)
            if found is None:
                found = self._classes[size] = _HostSizeClass(size, self._trim_cached_blocks if size >= LARGE else None)
            if len(self._by_size) >= _KNOWN_SIZES:
                self._by_size.clear()
            self._by_size[nbytes] = found
        return found

    def _allocate_fresh_block(self, size: int) -> int:
        with self._lock:
            if self.limit.is_exceeded_by(self._reserved, size):
                self.trim()
                if self.limit.is_exceeded_by(self._reserved, size):
                    raise self.limit.limit_error(self._reserved, size)
            try:
                address = self._map_large_block(size) if size >= LARGE else self._carve_from_slab(size)
            except (OSError, ValueError, MemoryError, OverflowError):
                self.trim()
                try:
                    address = self._map_large_block(size) if size >= LARGE else self._carve_from_slab(size)
                except (OSError, ValueError, MemoryError, OverflowError) as error:
                    raise OutOfMemory(f"no {size} bytes of memory: {error}; {self._reserved} are held") from None
            self._reserved += size
            self._peak = max(self._peak, self._reserved)
            return address

    def _carve_from_slab(self, size: int) -> int:
        if self._slab + size > self._slab_end:
            mapping, self._slab = _map_aligned_pages(2 * HUGE, HUGE)
            self._slabs.append(mapping)
            self._slab_end = self._slab + 2 * HUGE
        self._slab += size
        return self._slab - size

    def _map_large_block(self, size: int) -> int:
        mapping, address = _map_aligned_pages(size, HUGE)
        self._mappings[address] = mapping
        return address

    def _trim_cached_blocks(self) -> None:
        """A large block has died: keep no more than the bound."""
        if LARGE is None:  # modules go before the last objects at exit
            return
        if not self._bound:
            self._bound = settings.pool_bytes or physical_memory_bytes() // 4
        if sum(c.size * len(c.free) for c in list(self._classes.values()) if c.size >= LARGE) > self._bound:
            self._release_cached_down_to(self._bound)

    def _release_cached_down_to(self, bound: int) -> int:
        released = 0
        with self._lock:
            large = sorted((c for c in self._classes.values() if c.size >= LARGE), key=lambda c: -c.size)
            cached = sum(c.size * len(c.free) for c in large)
            for found in large:
                while cached - released > bound:
                    try:
                        address = found.pop()
                    except IndexError:
                        break
                    del self._mappings[address]
                    released += found.size
            self._reserved -= released
        return released


_pools: weakref.WeakSet[HostMemoryPool] = weakref.WeakSet()


def _renew_host_pool_locks_in_forked_child() -> None:
    """Another thread may have held a lock, and is not here to release it."""
    for pool in _pools:
        pool._lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_host_pool_locks_in_forked_child)


def physical_memory_bytes() -> int:
    with contextlib.suppress(AttributeError, ValueError, OSError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return 4 << 30


def _map_aligned_pages(size: int, align: int) -> tuple[mmap.mmap, int]:
    """A private mapping and an aligned address with `size` bytes after it; the slack before is never touched."""
    if hasattr(mmap, "MAP_PRIVATE"):
        mapping = mmap.mmap(-1, size + align, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    else:
        mapping = mmap.mmap(-1, size + align)
    start = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
    offset = -start % align
    if hasattr(mmap, "MADV_HUGEPAGE") and size >= HUGE:
        with contextlib.suppress(OSError):
            # The advice wants whole pages of the mapping.
            mapping.madvise(mmap.MADV_HUGEPAGE, offset, size + -size % mmap.PAGESIZE)
    return mapping, start + offset


def numpy_view_of_pool_block(memory: Any, dtype: Any, shape: tuple[int, ...], offset: int = 0) -> np.ndarray[Any, Any]:
    """A C-contiguous array over the bytes of a block from `offset` on. The array keeps the block alive."""
    return np.ndarray(shape, dtype, memory, offset)


class MemoryLimit:
    """own: the device's own limit in bytes (0: none), or None for the setting `memory_limit`."""

    __slots__ = ("own",)

    def __init__(self) -> None:
        self.own: int | None = None

    @property
    def nbytes(self) -> int:
        return settings.memory_limit if self.own is None else self.own

    def is_exceeded_by(self, reserved: int, size: int) -> bool:
        """Whether `size` bytes more than those reserved are too many."""
        limit = self.nbytes
        return bool(limit) and reserved + size > limit

    def limit_error(self, reserved: int, size: int) -> OutOfMemory:
        return OutOfMemory(f"{size} bytes more than {reserved} pass the limit of {self.nbytes} bytes")
