"""The time that a GPU takes for work that the host can hardly enqueue as fast: a graph of many runs, between events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .driver import CAPTURE_RELAXED

RUNS = 10  # of the work in a graph
LONG_US = 500.0  # microseconds of a single run that are measured as they are: the host's are few of them
TURNS = 2  # of which the shorter counts


class GpuStopwatch:
    """Measures work on one stream, which nobody else uses meanwhile."""

    def __init__(self, driver: Any, stream: int) -> None:
        self._driver, self._stream = driver, stream
        self._start, self._end = (self._made(driver.create_event(0)) for _ in range(2))

    def microseconds(self, enqueue: Callable[[], None]) -> float:
        """Of one run. Raises what `enqueue` raises, and RuntimeError where the driver refuses."""
        enqueue()  # loads code
        once = self._microseconds_of_second(lambda: None, enqueue)
        if once > LONG_US:
            return once
        driver, graph = self._driver, self._captured_graph(enqueue)
        try:
            executable = self._made(driver.instantiate(graph))
        finally:
            driver.destroy_graph(graph)
        try:
            launch = self._checked_call(driver.launch_graph, executable, self._stream)
            return min(self._microseconds_of_second(launch, launch) for _ in range(TURNS)) / RUNS
        finally:
            driver.destroy_executable(executable)

    def _captured_graph(self, enqueue: Callable[[], None]) -> int:
        self._check(self._driver.begin_capture(self._stream, CAPTURE_RELAXED))
        try:
            for _ in range(RUNS):
                enqueue()
        finally:
            ended = self._driver.end_capture(self._stream)
        return self._made(ended)

    def _microseconds_of_second(self, first: Callable[[], None], second: Callable[[], None]) -> float:
        """While the first runs the host enqueues the second, so that no start of it is measured."""
        driver = self._driver
        first()
        self._check(driver.record(self._start, self._stream))
        second()
        self._check(driver.record(self._end, self._stream))
        self._check(driver.synchronize_stream(self._stream))
        code, found = driver.elapsed(self._start, self._end)
        self._check(code)
        return float(found)

    def _checked_call(self, call: Callable[..., int], *args: Any) -> Callable[[], None]:
        return lambda: self._check(call(*args))

    def _made(self, code_and_handle: tuple[int, int]) -> int:
        code, handle = code_and_handle
        self._check(code)
        return handle

    def _check(self, code: int) -> None:
        if code:
            raise RuntimeError(self._driver.describe(code))
