"""What work of a library's takes on a GPU, on arrays of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from ..driver.driver import CudaDriver
from ..driver.stopwatch import GpuStopwatch


class TrialClock:
    """allocate: device memory by size; most: bytes that a trial may take. For one thread at a time."""

    def __init__(
        self, driver: CudaDriver, allocate: Callable[[int], Any], new_stream: Callable[[], int], most: int
    ) -> None:
        self._driver, self._allocate, self._new_stream, self._most = driver, allocate, new_stream, most
        self._stream = 0
        self._stopwatch: GpuStopwatch | None = None

    def microseconds(self, sizes: Sequence[int], enqueue: Callable[[Sequence[int], int], object]) -> float | None:
        """Of one run. enqueue: the work, given addresses of arrays of these sizes in bytes, and a stream. None where it
        cannot be run, or not be captured."""
        if sum(sizes) > self._most:
            return None
        with suppress(Exception):  # out of memory, say: then the model decides
            memories = [self._allocate(max(1, nbytes)) for nbytes in sizes]
            stream = self._stream = self._stream or self._new_stream()
            stopwatch = self._stopwatch = self._stopwatch or GpuStopwatch(self._driver, stream)
            for memory in memories:
                self._driver.fill(memory.address, 0, memory.nbytes, stream)
            addresses = [memory.address for memory in memories]

            def run() -> None:
                enqueue(addresses, stream)

            return stopwatch.microseconds(run)
        return None
