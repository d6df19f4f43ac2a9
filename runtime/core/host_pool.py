"""Sizes in, blocks of host memory out, recycled. A block goes back to its size class when its Python object dies.

A block is a ctypes array, so NumPy arrays made over it (`numpy_view_of_pool_block`) keep it alive. The hot path is a
dictionary look-up and a `list.pop`, both atomic under the interpreter lock. Small blocks (64-byte aligned) are cut from
slabs that live as long as the pool; large ones are mappings of their own (2 MiB aligned, huge pages asked for), kept up
to a bound.
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
from .readable_text import byte_count_in_words
from .recycling import FreeBlocks, RecyclingPool

ALIGNMENT = 64
HUGE = 2 << 20
LARGE = RecyclingPool.large
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
    pool: RecyclingPool


class _HostSizeClass:
    """Blocks of one size: how to make the object over an address, and the free addresses."""

    __slots__ = ("free", "make", "pop")

    def __init__(self, free: FreeBlocks) -> None:
        self.free = free
        self.pop = free.pop
        self.make: Any = _make_host_pool_block_type(free).from_address


def _make_host_pool_block_type(free: FreeBlocks) -> Any:
    recycle = free.recycle

    def recycle_block(block: Any) -> None:
        recycle(block.address)

    body = {"__slots__": ("address", "nbytes"), "pool": free.pool, "__del__": recycle_block}
    return type("Block", (ctypes.c_char * free.size, RecycledBlock), body)


class HostMemoryPool(RecyclingPool):
    """Recycled host memory. All methods may be called from any thread."""

    alignment = ALIGNMENT

    def __init__(self) -> None:
        super().__init__(physical_memory_bytes() // 4)
        self._by_size: dict[int, _HostSizeClass] = {}
        self._classes: dict[int, _HostSizeClass] = {}
        self._lent_classes: dict[int, _HostSizeClass] = {}
        self._mappings: dict[int, mmap.mmap] = {}
        self._slab, self._slab_end = 0, 0
        self._slabs: list[mmap.mmap] = []
        self._lock = threading.RLock()  # a block may die, and call in here, inside any allocation
        _pools.add(self)

    def allocate(self, nbytes: int) -> Any:
        """A block with `address` and `nbytes`; its content is whatever was there. Raises OutOfMemory."""
        found = self._by_size.get(nbytes) or self._size_class_of(nbytes)
        try:
            address = found.pop()
        except IndexError:
            address = self.allocate_fresh(found.free)
        block = found.make(address)
        block.address = address
        block.nbytes = nbytes
        return block

    def owns(self, memory: Any) -> bool:
        """Whether it is a block of this pool's."""
        return isinstance(memory, RecycledBlock) and memory.pool is self

    def _own_free_blocks(self) -> list[FreeBlocks]:
        return [found.free for found in list(self._classes.values())]

    def _release_block(self, address: int) -> None:
        del self._mappings[address]

    def _forget_sizes(self) -> None:
        self._by_size.clear()
        self._lent_classes.clear()

    def _size_class_of(self, nbytes: int) -> _HostSizeClass:
        if nbytes < 0:
            raise ValueError(f"{nbytes} bytes")
        if nbytes >= 1 << 62:
            raise OutOfMemory(f"{byte_count_in_words(nbytes)} are more than there can be")
        size = pool_size_class_bytes(nbytes)
        with self._lock:
            classes = self._classes if self._lender is None else self._lent_classes
            found = classes.get(size)
            if found is None:
                found = classes[size] = _HostSizeClass(FreeBlocks(self, size, self._lender))
            if len(self._by_size) >= _KNOWN_SIZES:
                self._by_size.clear()
            self._by_size[nbytes] = found
        return found

    def _allocate_own(self, size: int) -> int:
        return int(self.with_room(self._map_large_block if size >= self.large else self._carve_from_slab, size))

    def _carve_from_slab(self, size: int) -> int:
        if self._slab + size > self._slab_end:
            mapping, self._slab = self._map_pages(2 * HUGE)
            self._slabs.append(mapping)
            self._slab_end = self._slab + 2 * HUGE
        self._slab += size
        return self._slab - size

    def _map_large_block(self, size: int) -> int:
        mapping, address = self._map_pages(size)
        self._mappings[address] = mapping
        return address

    def _map_pages(self, size: int) -> tuple[mmap.mmap, int]:
        try:
            return _map_aligned_pages(size, HUGE)
        except (OSError, ValueError, MemoryError, OverflowError) as error:
            wanted, held = byte_count_in_words(size), byte_count_in_words(self.reserved)
            raise OutOfMemory(f"there are no {wanted} of memory: {error}; {held} are held") from None


_pools: weakref.WeakSet[HostMemoryPool] = weakref.WeakSet()


def _renew_host_pool_locks_in_forked_child() -> None:
    """Another thread may have held a lock, and is not here to release it."""
    for pool in _pools:
        pool._lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_host_pool_locks_in_forked_child)


def system_memory_bytes() -> tuple[int, int] | None:
    """Bytes that are free, and all that the machine has; None where the system does not say."""
    with contextlib.suppress(AttributeError, ValueError, OSError):
        page = os.sysconf("SC_PAGE_SIZE")
        return page * os.sysconf("SC_AVPHYS_PAGES"), page * os.sysconf("SC_PHYS_PAGES")
    return None


def physical_memory_bytes() -> int:
    """Bytes that the machine has."""
    found = system_memory_bytes()
    return 16 << 30 if found is None else found[1]


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
