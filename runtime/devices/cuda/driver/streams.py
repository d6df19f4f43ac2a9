"""Streams of callers on a GPU. A handle in (of this library or anybody else's), calls forked from it and joined to it.

A stream that somebody captures into a graph takes the call along: its steps become nodes of that graph, and the memory
that it uses lives as long as the graph and what was made of it.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from typing import Any

from ....program.plan import ENTRY
from .driver import NOT_READY, SUCCESS
from .events import CudaEvent

LEGACY, PER_THREAD = 1, 2  # handles of the two streams that go by "the default stream"


class CapturedStreamEvent(CudaEvent):
    """An event of a graph that is being captured: there is nothing to wait for on the host."""

    __slots__ = ("graph",)
    graph: int
    captured = True

    def query(self) -> bool:
        return True

    def wait(self) -> None:
        if self.error is not None:
            raise self.error


def record_event_on_captured_stream(device: Any, stream: int) -> CapturedStreamEvent:
    """An event that is recorded on a stream that somebody captures."""
    event: CapturedStreamEvent = device.events.take(stream, CapturedStreamEvent)
    event.line = None
    if code := device.context.driver.record(event.handle, stream):
        event.error = device.failure(code, "recording an event")
    return event


class CudaStream:
    """See `Stream` in `runtime/program/device.py`. A handle that the device gave goes back to it."""

    def __init__(self, device: Any, handle: int, priority: int = 0, own: bool = False, owner: Any = None) -> None:
        self._device, self.handle, self.priority, self._own, self.owner = device, handle, priority, own, owner
        self._driver = device.context.driver

    def __del__(self) -> None:
        if getattr(self, "_own", False):
            self._device.return_stream(self.handle, self.priority)

    @property
    def capturing(self) -> bool:
        """Whether what is put on it now becomes part of somebody's graph."""
        self._device.context.enter()
        return self._captured_graph() != 0

    def _captured_graph(self) -> int:
        if self.handle == LEGACY or not self._driver.is_capturing(self.handle):
            return 0
        return int(self._driver.captures(self.handle)[1])

    def fork(self, after: list[tuple[int, Any]], buffers: int) -> tuple[Any, ...]:
        graph = self._captured_graph()
        if not graph:
            after.append((ENTRY, self._device.events.record(self.handle)))
            return ()
        event = record_event_on_captured_stream(self._device, self.handle)
        event.graph = graph
        after.append((ENTRY, event))
        return (event,)

    def join(self, events: Sequence[Any], forked: tuple[Any, ...], kept: Sequence[Any]) -> None:
        for event in dict.fromkeys(events):
            self.wait(event)
        if forked:
            self._device.captures.keep(forked[0].graph, (*kept, *events, *forked))

    def record(self) -> CudaEvent:
        self._device.context.enter()
        return self._device.timed_events.record(self.handle)  # type: ignore[no-any-return]

    def wait(self, event: Any) -> None:
        self._device.context.enter()
        if not isinstance(event, CudaEvent):
            event.wait()  # of another kind of device
        elif event.stream != self.handle or event.stream in (LEGACY, PER_THREAD):
            self._raise_if_driver_failed(self._driver.wait(self.handle, event.handle, 0), "waiting for an event")

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Copy device memory, in its turn."""
        if nbytes:
            self._device.context.enter()
            self._raise_if_driver_failed(self._driver.on_device(target, source, nbytes, self.handle), "copying")

    def query(self) -> bool:
        self._device.context.enter()
        code = self._driver.query_stream(self.handle)
        if code not in (SUCCESS, NOT_READY):
            raise self._device.failure(code, "work on a stream")
        return bool(code == SUCCESS)

    def synchronize(self) -> None:
        self._device.context.enter()
        self._raise_if_driver_failed(self._driver.synchronize_stream(self.handle), "work on a stream")

    def _raise_if_driver_failed(self, code: int, what: str) -> None:
        if code != SUCCESS:
            raise self._device.failure(code, what)


class CapturedStreamResources:
    """What captured calls need, kept until the graphs are gone: memory, and streams of which each graph has its own,
    since libraries keep memory for each stream.

    A graph tells that it is gone by a semaphore of the C library, which the driver posts without any Python."""

    def __init__(self, device: Any) -> None:
        self._device, self._driver = device, device.context.driver
        self._held: dict[int, GraphResources] = {}  # by graph
        self._free: list[dict[tuple[bool, int], int]] = []

    def streams(self, graph: int, high: Sequence[bool]) -> list[int]:
        """Streams for a plan's, that nothing but calls captured into the graph uses."""
        streams = self._resources_of_graph(graph).streams
        for key in ((is_high, i) for i, is_high in enumerate(high)):
            if key not in streams:
                streams[key] = self._device.new_stream(key[0])
        return [streams[is_high, i] for i, is_high in enumerate(high)]

    def keep(self, graph: int, things: Sequence[Any]) -> None:
        """Keep things alive until the graph, and whatever executes it, is destroyed."""
        self._resources_of_graph(graph).things += things

    def __len__(self) -> int:
        """How many graphs there are."""
        self.let_go()
        return len(self._held)

    def _resources_of_graph(self, graph: int) -> GraphResources:
        self.let_go()
        found = self._held.get(graph)
        if found is None:
            found = self._held[graph] = GraphResources(self._free.pop() if self._free else {})
            if found.flag.setter:
                self._driver.on_graph_destroyed(graph, found.flag.address, found.flag.setter)
        return found

    def let_go(self) -> None:
        """Of what graphs needed that are gone."""
        for graph, held in list(self._held.items()):
            if held.flag.is_set():
                del self._held[graph]
                self._free.append(held.streams)


class GraphResources:
    """What one graph keeps."""

    def __init__(self, streams: dict[tuple[bool, int], int]) -> None:
        self.flag, self.streams, self.things = DriverSemaphoreFlag(), streams, list[Any]()


class DriverSemaphoreFlag:
    """A semaphore that C code sets. Where the C library has none, it is never set, and what waits for it stays."""

    def __init__(self) -> None:
        self._words = (ctypes.c_long * 8)()
        self.address = ctypes.addressof(self._words)
        self.setter = 0
        if sys.platform == "linux":
            library: Any = ctypes.CDLL(None)
            library.sem_init(ctypes.c_void_p(self.address), 0, 0)
            self._get = library.sem_getvalue
            self.setter = ctypes.cast(library.sem_post, ctypes.c_void_p).value or 0

    def is_set(self) -> bool:
        found = ctypes.c_int(0)
        if self.setter:
            self._get(ctypes.c_void_p(self.address), ctypes.byref(found))
        return found.value > 0
