"""What the pools of devices have in common: free blocks by size, bytes counted, a limit, and lenders in place of the
device's own memory."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from .allocators import Allocator, Lender
from .errors import OutOfMemory
from .readable_text import byte_count_in_words
from .settings import settings

TURNS = 16  # times that all bytes of a pool die, after which what nobody took meanwhile goes back to the system


class FreeBlocks(list[int]):
    """The addresses of free blocks of one size. recycle: takes one that has died. Of a lender's there are none, since
    they go back to it. idle: the fewest large ones that were free lately."""

    __slots__ = ("idle", "lender", "pool", "recycle", "size")

    def __init__(self, pool: RecyclingPool, size: int, lender: Lender | None) -> None:
        super().__init__()
        self.pool, self.size, self.lender, self.idle = pool, size, lender, 0
        self.recycle: Callable[[int], None] = self.append
        if lender is not None:
            self.recycle = self._give_back
        elif size >= pool.large:
            self.recycle = self._append_large

    def _give_back(self, address: int) -> None:
        assert self.lender is not None
        self.lender.returned.append((address, self.size))

    def _append_large(self, address: int) -> None:
        self.idle = min(self.idle, len(self))
        self.append(address)
        self.pool.note_free_bytes(self.size)


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
        more, held, limit = map(byte_count_in_words, (size, reserved, self.nbytes))
        return OutOfMemory(f"{more} more than {held} pass the limit of {limit}")


class RecyclingPool:
    """Its methods may be called from any thread. alignment: of what lenders give. large: bytes from which on a block is
    the system's own, and goes back to it when more than `bound` bytes of such blocks are free."""

    alignment = 64
    large = 256 << 10
    _lock: Any

    def __init__(self, most_free: int) -> None:
        """most_free: what `bound` is where the setting `pool_bytes` says nothing."""
        self.limit = MemoryLimit()
        self._most_free = most_free
        self._own_bytes = self._peak = 0
        self._free_bytes = 0  # of large blocks, at most
        self._died_bytes = 0  # of large blocks, since idle ones were released
        self._lender: Lender | None = None
        self._lenders: list[Lender] = []  # with those before it, for as long as they have lent something

    # what a pool has to write

    def _own_free_blocks(self) -> Iterable[FreeBlocks]:
        raise NotImplementedError

    def _allocate_own(self, size: int) -> int:
        """The address of a new block. Raises OutOfMemory."""
        raise NotImplementedError

    def _release_block(self, address: int) -> None:
        """Give a large block back to the system."""
        raise NotImplementedError

    def _forget_sizes(self) -> None:
        """Blocks come from another source from now on."""
        raise NotImplementedError

    def _room_makers(self) -> Sequence[Callable[[], Any]]:
        """What may make room where there is none, in this order."""
        return (self.trim,)

    # what follows from it

    @property
    def bound(self) -> int:
        """Bytes of large blocks that may be free."""
        return settings.pool_bytes or self._most_free

    @property
    def reserved(self) -> int:
        """Bytes that it has from the device, or from lenders."""
        return self._own_bytes + sum(lender.held for lender in self._lenders)

    def use_allocator(self, allocator: Allocator | None, stream: int = 0, settled: Callable[[], Any] = int) -> None:
        """Take memory from another allocator from now on; None: from the device. See `Lender`."""
        with self._lock:
            self.trim()
            self._lender = None if allocator is None else Lender(allocator, self.alignment, stream, settled)
            self._lenders = [one for one in self._lenders if one.held] + ([self._lender] if self._lender else [])
            self._forget_sizes()

    @property
    def borrows(self) -> bool:
        """Whether some of its memory is another allocator's."""
        return bool(self._lenders)

    def at_rest(self) -> AbstractContextManager[Any]:
        """Within it nothing is taken from the system, and nothing goes back."""
        return self._lock  # type: ignore[no-any-return]

    def trim(self) -> int:
        """Give the large free blocks back to the system; the bytes given back."""
        with self._lock:
            return self._release_down_to(0) + sum(lender.take_back() for lender in self._lenders)

    def note_free_bytes(self, size: int) -> None:
        """A large block has died: keep no more than the bound, and now and then nothing that is idle."""
        self._free_bytes += size
        self._died_bytes += size
        often = self._died_bytes > TURNS * self._own_bytes
        # modules go before the last objects
        if sys is None or sys.is_finalizing() or (self._free_bytes <= self.bound and not often):
            return
        if self._lock.acquire(blocking=False):  # who has it else is about to take blocks, or to give them back
            try:
                if often:
                    self._died_bytes = 0
                    self._release_down_to(0, idle=True)
                self._free_bytes = self._large_bytes_cached()
                if self._free_bytes > self.bound:
                    self._release_down_to(self.bound)
            finally:
                self._lock.release()

    def _large_bytes_cached(self) -> int:
        return sum(free.size * len(free) for free in self._own_free_blocks() if free.size >= self.large)

    def _release_down_to(self, bound: int, idle: bool = False) -> int:
        """Give free large blocks back to the system until so many bytes of them are left; the bytes given back. idle:
        only those that nobody took since the last time."""
        released, cached = 0, self._large_bytes_cached()
        for free in sorted(
            (free for free in self._own_free_blocks() if free.size >= self.large), key=lambda f: -f.size
        ):
            left = free.idle if idle else len(free)
            while left > 0 and cached - released > bound:
                try:
                    address = free.pop()  # another thread may take the last one
                except IndexError:
                    break
                self._release_block(address)
                released += free.size
                left -= 1
            free.idle = len(free)
        self._own_bytes -= released
        self._free_bytes = cached - released
        return released

    def statistics(self) -> dict[str, int]:
        """Bytes `in_use`, `cached` (free, kept) and `reserved` (both), and `peak`: the most ever reserved."""
        with self._lock:
            for lender in self._lenders:
                lender.take_back()
            cached, reserved = sum(free.size * len(free) for free in self._own_free_blocks()), self.reserved
            return {"in_use": reserved - cached, "cached": cached, "reserved": reserved, "peak": self._peak}

    def allocate_fresh(self, free: FreeBlocks) -> int:
        """The address of a block where none is free. Raises OutOfMemory."""
        with self._lock:
            if self.limit.is_exceeded_by(self.reserved, free.size):
                self.trim()
                if self.limit.is_exceeded_by(self.reserved, free.size):
                    raise self.limit.limit_error(self.reserved, free.size)
            if free.lender is None:
                address = self._allocate_own(free.size)
                self._own_bytes += free.size
            else:
                address = self.with_room(free.lender.allocate, free.size)
            self._peak = max(self._peak, self.reserved)
            return address

    def with_room(self, ask: Callable[[int], Any], size: int) -> Any:
        """What `ask` gives, as soon as there is room for it. Raises OutOfMemory."""
        for make_room in self._room_makers():
            try:
                return ask(size)
            except OutOfMemory:
                make_room()
        return ask(size)
