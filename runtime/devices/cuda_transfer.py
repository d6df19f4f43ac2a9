"""Copies between host and device: small ones straight, large ones in chunks through page-locked memory."""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from .cuda_driver import SUCCESS
from .cuda_events import CudaEvent, EventPool

CHUNK = 8 << 20  # bytes; two of them take turns, so that the host's copy and the bus overlap
SMALL = 256 << 10


class Transfers:
    """Copies on one stream of their own. failure(code, what) gives the exception for a result code."""

    def __init__(
        self, context: Any, events: EventPool, stream: int, failure: Callable[[int, str], BaseException]
    ) -> None:
        self._driver = context.driver
        self._pinned = context.pinned
        self._events, self._stream, self._failure = events, stream, failure
        self._lock = threading.Lock()
        self._chunks: list[Any] = []
        self._coming: deque[tuple[CudaEvent, Any]] = deque()  # memory that is still being written

    def upload(self, host: np.ndarray[Any, Any], memory: Any) -> CudaEvent:
        """Copy a C-contiguous host array into the start of `memory`; the array has been read on return."""
        with self._lock:
            while self._coming and self._coming[0][0].query():
                self._coming.popleft()
            if host.nbytes > SMALL:
                self._upload_chunks(host.ctypes.data, memory.address, host.nbytes)
                return self._events.record(self._stream)
            if host.nbytes:  # from pageable memory the driver copies before it returns
                code = self._driver.to_device(memory.address, host.ctypes.data, host.nbytes, self._stream)
                self._do(code, "upload")
            event = self._events.record(self._stream)
            self._coming.append((event, memory))
            return event

    def download(self, address: int, host: np.ndarray[Any, Any]) -> None:
        """Copy device memory, already written, into a C-contiguous host array; done on return."""
        with self._lock:
            if host.nbytes <= SMALL:
                if host.nbytes:
                    self._do(self._driver.to_host(host.ctypes.data, address, host.nbytes, self._stream), "download")
                    self._do(self._driver.synchronize_stream(self._stream), "download")
            else:
                self._download_chunks(address, host.ctypes.data, host.nbytes)

    def _do(self, code: int, what: str) -> None:
        if code != SUCCESS:
            raise self._failure(code, what)

    def _staging(self) -> list[int]:
        if not self._chunks:
            self._chunks = [self._pinned(CHUNK) for _ in range(2)]
        return [int(chunk.handle) for chunk in self._chunks]

    def _upload_chunks(self, source: int, target: int, nbytes: int) -> None:
        places, sent = self._staging(), [None, None]
        for turn, start in enumerate(range(0, nbytes, CHUNK)):
            slot, size = turn % 2, min(CHUNK, nbytes - start)
            self._await(sent[slot])
            ctypes.memmove(places[slot], source + start, size)
            self._do(self._driver.to_device(target + start, places[slot], size, self._stream), "upload")
            sent[slot] = self._events.record(self._stream)  # type: ignore[call-overload]
        for event in sent:  # the chunks are free for the next copy
            self._await(event)

    def _download_chunks(self, source: int, target: int, nbytes: int) -> None:
        places = self._staging()
        starts = range(0, nbytes, CHUNK)
        coming: list[tuple[int, int, CudaEvent]] = []
        for turn, start in enumerate(starts):
            slot, size = turn % 2, min(CHUNK, nbytes - start)
            self._do(self._driver.to_host(places[slot], source + start, size, self._stream), "download")
            coming.append((start, size, self._events.record(self._stream)))
            if turn:
                self._land(places[1 - slot], target, coming[turn - 1])
        self._land(places[(len(starts) - 1) % 2], target, coming[-1])

    def _land(self, place: int, target: int, chunk: tuple[int, int, CudaEvent]) -> None:
        start, size, event = chunk
        event.wait()
        ctypes.memmove(target + start, place, size)

    def _await(self, event: Any) -> None:
        if event is not None:
            event.wait()
