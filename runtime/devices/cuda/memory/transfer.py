"""Copies between host and device, and to other GPUs, on a stream for each direction.

Page-locked memory is copied as it is, small arrays by the driver, and large ones in chunks through page-locked memory:
threads copy between the array and the chunks while the bus is at work.
"""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from ..driver.driver import SUCCESS
from ..driver.events import CudaEvent, EventPool
from .pinned import PinnedStagingChunks

CHUNK = 4 << 20  # bytes
CHUNKS = 16  # at most, for each direction
SMALL = 256 << 10


class GpuTransferLane:
    """One direction: a stream, chunks, and what may still be under way on it."""

    def __init__(self, stream: int, make: Callable[[int], Any]) -> None:
        self.stream = stream
        self.staging = PinnedStagingChunks(make, CHUNK, CHUNKS)
        self.lock = threading.Lock()
        self.coming: deque[tuple[CudaEvent, Any]] = deque()  # memory that is still being copied to or from

    def keep(self, event: CudaEvent, things: Any) -> None:
        self.let_go()
        self.coming.append((event, things))

    def let_go(self) -> None:
        while self.coming and self.coming[0][0].query():
            self.coming.popleft()


class GpuCopyEngine:
    """failure(code, what) gives the exception for a result code. streams: one for each direction."""

    def __init__(
        self,
        context: Any,
        events: EventPool,
        streams: tuple[int, int, int],
        failure: Callable[[int, str], BaseException],
    ) -> None:
        self._context, self._driver, self._events, self._failure = context, context.driver, events, failure
        self._up, self._down, self._across = (GpuTransferLane(stream, context.pinned) for stream in streams)
        self._threads = getattr(context, "copy_thread_count", 0)
        self._workers: ThreadPoolExecutor | None = None

    def upload(self, host: np.ndarray[Any, Any], memory: Any, later: bool = False) -> CudaEvent:
        """Copy a C-contiguous host array into the start of `memory`. The array has been read on return or, if it is in
        page-locked memory and may be read `later`, once the event has happened."""
        lane, nbytes = self._up, host.nbytes
        with lane.lock:
            if nbytes <= SMALL:
                if nbytes:  # from pageable memory the driver copies before it returns
                    self._raise_if_driver_failed(
                        self._driver.to_device(memory.address, host.ctypes.data, nbytes, lane.stream), "upload"
                    )
                pinned = bool(nbytes) and self._driver.is_pinned(host.ctypes.data)
            elif pinned := self._driver.is_pinned(host.ctypes.data):
                self._raise_if_driver_failed(
                    self._driver.to_device(memory.address, host.ctypes.data, nbytes, lane.stream), "upload"
                )
            else:
                self._copy_in_chunks(self._upload_chunk, host.ctypes.data, memory.address, nbytes)
            event = self._events.record(lane.stream)
            if not pinned or later:
                lane.keep(event, (memory, host) if pinned else memory)
        if pinned and not later:
            event.wait()
        return event

    @property
    def staging_bytes(self) -> int:
        """Page-locked memory that large copies go through."""
        return sum(lane.staging.nbytes for lane in (self._up, self._down, self._across))

    def let_go(self) -> None:
        """What is over holds no memory any more."""
        for lane in (self._up, self._down, self._across):
            with lane.lock:
                lane.let_go()

    def download(self, address: int, host: np.ndarray[Any, Any], pinned: bool = False) -> None:
        """Copy device memory, already written, into a C-contiguous host array. Done on return. pinned: whether the
        array is known to be page-locked."""
        lane, nbytes = self._down, host.nbytes
        if nbytes <= SMALL or pinned or self._driver.is_pinned(host.ctypes.data):
            with lane.lock:
                if nbytes:
                    self._raise_if_driver_failed(
                        self._driver.to_host(host.ctypes.data, address, nbytes, lane.stream), "download"
                    )
                done = self._events.record(lane.stream)
            done.wait()
        else:
            with lane.lock:
                self._copy_in_chunks(self._download_chunk, address, host.ctypes.data, nbytes)

    def download_later(self, memory: Any, host: np.ndarray[Any, Any], after: Any) -> CudaEvent:
        """Copy device memory, once the event `after` has happened, into page-locked memory. Done with the event."""
        lane = self._down
        with lane.lock:
            if isinstance(after, CudaEvent):
                self._raise_if_driver_failed(self._driver.wait(lane.stream, after.handle, 0), "download")
            elif after is not None:
                after.wait()
            if host.nbytes:
                self._raise_if_driver_failed(
                    self._driver.to_host(host.ctypes.data, memory.address, host.nbytes, lane.stream), "download"
                )
            event = self._events.record(lane.stream)
            event.error = getattr(after, "error", None)
            lane.keep(event, (memory, host))
        return event

    def to_peer(self, memory: Any, target: Any, peer: int, nbytes: int, after: Any) -> CudaEvent:
        """Copy device memory, once the event `after` has happened, to another GPU, whose context is `peer`; done with
        the event."""
        lane = self._across
        with lane.lock:
            if isinstance(after, CudaEvent):
                self._raise_if_driver_failed(self._driver.wait(lane.stream, after.handle, 0), "copy to another GPU")
            elif after is not None:
                after.wait()
            if nbytes:
                here = self._context.handle
                code = self._driver.to_peer(target.address, peer, memory.address, here, nbytes, lane.stream)
                self._raise_if_driver_failed(code, "copy to another GPU")
            event = self._events.record(lane.stream)
            event.error = event.error or getattr(after, "error", None)
            lane.keep(event, (memory, target))
        return event

    def _copy_in_chunks(self, copy: Callable[[int, int, int], None], source: int, target: int, nbytes: int) -> None:
        """copy(source, target, bytes) for every chunk, by several threads."""
        starts = range(0, nbytes, CHUNK)
        jobs = [(source + start, target + start, min(CHUNK, nbytes - start)) for start in starts]
        if self._threads < 2 or len(jobs) < 2:
            for job in jobs:
                copy(*job)
            return
        if self._workers is None:
            self._workers = ThreadPoolExecutor(self._threads, "kernelgraph copies", self._context.enter)
        futures: list[Future[None]] = [self._workers.submit(copy, *job) for job in jobs]
        errors = [error for future in futures if (error := future.exception()) is not None]
        if errors:
            raise errors[0]

    def _upload_chunk(self, source: int, target: int, nbytes: int) -> None:
        with self._up.staging.chunk() as chunk:
            ctypes.memmove(chunk.address, source, nbytes)
            self._raise_if_driver_failed(
                self._driver.to_device(target, chunk.address, nbytes, self._up.stream), "upload"
            )
            chunk.event = self._events.record(self._up.stream)

    def _download_chunk(self, source: int, target: int, nbytes: int) -> None:
        with self._down.staging.chunk() as chunk:
            self._raise_if_driver_failed(
                self._driver.to_host(chunk.address, source, nbytes, self._down.stream), "download"
            )
            self._events.record(self._down.stream).wait()
            ctypes.memmove(target, chunk.address, nbytes)

    def _raise_if_driver_failed(self, code: int, what: str) -> None:
        if code != SUCCESS:
            raise self._failure(code, what)
