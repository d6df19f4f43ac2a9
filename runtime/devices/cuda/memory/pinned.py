"""Page-locked host memory. Chunks that large copies go through, and arrays that the GPU itself reads and writes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np

from ....core.errors import OutOfMemory
from ....core.host_pool import physical_memory_bytes
from .pool import GpuMemoryPool

LEAST = 1 << 20  # smaller results are copied by the driver, which costs less than to look after page-locked memory
MOST = 16 << 30  # bytes of page-locked memory for results, and not more than a quarter of the machine's memory


class PinnedChunk:
    """Page-locked memory. event: when what was put on a stream with it is done."""

    __slots__ = ("address", "event", "owner")

    def __init__(self, owner: Any) -> None:
        self.owner, self.address = owner, int(owner.handle)
        self.event: Any = None


class PinnedStagingChunks:
    """Chunks that take turns; `most` at once, made when they are needed."""

    def __init__(self, make: Callable[[int], Any], nbytes: int, most: int) -> None:
        self._make, self._nbytes, self._left, self.nbytes = make, nbytes, most, 0
        self._free: SimpleQueue[PinnedChunk] = SimpleQueue()

    @contextmanager
    def chunk(self) -> Iterator[PinnedChunk]:
        """One that is free. It is again when the block is left and its event has happened."""
        chunk = self._take_free_chunk()
        try:
            if chunk.event is not None:
                chunk.event.wait()
            yield chunk
        finally:
            self._free.put(chunk)

    def _take_free_chunk(self) -> PinnedChunk:
        try:
            return self._free.get_nowait()
        except Empty:
            pass
        if self._left > 0:  # threads may make a few more
            self._left -= 1
            self.nbytes += self._nbytes
            return PinnedChunk(self._make(self._nbytes))
        return self._free.get()


class PinnedHostPool:
    """Memory that NumPy arrays are made over, recycled."""

    def __init__(self, context: Any) -> None:
        self.pool = GpuMemoryPool(context.pinned, _free_pinned_memory, lambda: None)
        self._most = min(MOST, physical_memory_bytes() // 4)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """An uninitialised array in page-locked memory. Raises OutOfMemory."""
        nbytes = math.prod(shape) * dtype.itemsize
        block = self.pool.allocate(max(1, nbytes))
        return np.asarray(_ArrayInterfaceHolder(block, nbytes)).view(dtype).reshape(shape)

    def empty_for_result(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any] | None:
        """`empty`, where that pays and there is room."""
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes < LEAST or self.pool.statistics()["in_use"] + nbytes > self._most:
            return None
        try:
            return self.empty(shape, dtype)
        except OutOfMemory:
            return None


class _ArrayInterfaceHolder:
    """A block as NumPy sees it."""

    def __init__(self, block: Any, nbytes: int) -> None:
        self._block = block
        self.__array_interface__ = {"shape": (nbytes,), "typestr": "|u1", "data": (block.address, False), "version": 3}


def _free_pinned_memory(buffer: Any) -> None:
    close = getattr(buffer, "close", None)
    if close is not None:
        close()
