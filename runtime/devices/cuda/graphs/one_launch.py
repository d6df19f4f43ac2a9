"""A plan of one launch as graphs of one node. There is one for each of a few streams: addresses in, an event out.

A call that works for somebody's stream (another library's, whose memory it reads) is launched on that stream itself: it
lies there between what came before and what comes after, so that no stream has to wait for another.

To launch such a graph costs the host less than to launch its kernel (measured on an H200's host: 1.2 us, and 0.1 to
0.9 us for new addresses; the kernel 3.0 us), and one native call does all of it, with the event after it.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle, repeat
from typing import Any

from ..driver.driver import CAPTURE_RELAXED
from ..driver.events import CudaEvent
from ..driver.native_calls import native_driver_calls
from ..driver.streams import LEGACY
from ..modules.launch import KernelStep
from .instances import THREADS
from .native_launch import Start, make_native_graph_call, native_graph_record, native_graph_start
from .nodes import MISTAKES

PLAIN = 16  # calls before: graphs take some 0.1 ms each to make, and memory
CALL_US = 4.0  # of the host, in which a kernel this short is done: more streams would not overlap more
CALLERS = 8  # somebody's streams that a plan has graphs for
UNKNOWN = 0  # in place of a stream's handle: nothing may rely on being on the same one


class OneNodeGraph:
    """The graph of a launch on one stream. Raises the device's error where it cannot be made.

    known: the stream as events tell it. Somebody's may end, and another one get its handle. ends: of the latest
    launches, among which is the last one, however many threads (up to `THREADS`) launch at the same time."""

    def __init__(
        self,
        device: Any,
        step: KernelStep,
        places: Mapping[int, int],
        count: int,
        numbers: int,
        addresses: Sequence[int],
        stream: int,
    ) -> None:
        """places: which of the `count` addresses that a call gives is that of each buffer. numbers: how many the plan
        has. addresses: of every buffer, for the capture."""
        self._driver, self._step, self.stream = device.context.driver, step, stream  # whose kernel it has
        self.known = stream if stream == LEGACY or device.is_common_stream(stream) else UNKNOWN
        self.ends: deque[CudaEvent] = deque(maxlen=THREADS)
        self.note_end = self.ends.append
        self._graph, self._executable = 0, 0
        driver, graphs = self._driver, device.graphs
        with graphs.lock:
            capture = graphs.stream_for_capture()
            self._raise_if_driver_failed(device, driver.begin_capture(capture, CAPTURE_RELAXED))
            launched = step(addresses, [0] * numbers, capture)
            found, handle = driver.captured_node(capture)
            ended, self._graph = driver.end_capture(capture)
        code, self._executable = driver.instantiate(self._graph) if not ended else (ended, 0)
        for each in (launched, found, code):
            self._raise_if_driver_failed(device, each)
        self.node = step.node(handle, addresses, dict(places))
        context = 0 if device.context.alone else device.context.handle
        self.record = native_graph_record(driver, self._executable, stream, [self.node], range(count), context=context)
        self.start = native_graph_start(device.events, self.record, self.known, self.note_end, self.node)

    def _raise_if_driver_failed(self, device: Any, code: int) -> None:
        if code:
            raise device.failure(code, "making a graph of a launch")

    def __del__(self) -> None:
        if sys is None or sys.is_finalizing():
            return
        if self._executable:
            for event in self.ends:  # of somebody's stream nothing but these can be waited for
                self._driver.synchronize_event(event.handle)
            self._driver.destroy_executable(self._executable)
        if self._graph:
            self._driver.destroy_graph(self._graph)


class _OneNodeGraphs:
    """The graphs of a launch, on each of a few streams; they are made once it has been done a few times."""

    def __init__(
        self,
        device: Any,
        step: KernelStep,
        order: Sequence[int],
        numbers: int,
        streams: Sequence[int],
        lock: Any,
        labels: tuple[str, ...],
    ) -> None:
        self._device, self._step, self._order, self._numbers = device, step, order, numbers
        self._streams, self._lock, self._labels = streams, lock, labels
        self.nodes: dict[int, OneNodeGraph] = {}  # by stream
        self.callers: dict[int, OneNodeGraph] = {}  # by somebody's stream
        self.turns: Iterator[OneNodeGraph | None] = repeat(None)
        self._plain = PLAIN

    @property
    def instances(self) -> list[OneNodeGraph]:
        return [*self.nodes.values(), *self.callers.values()]

    @instances.setter
    def instances(self, none: list[OneNodeGraph]) -> None:
        """They are let go, and made anew when it is their time again."""
        self.nodes, self.callers, self.turns, self._plain = {}, {}, repeat(None), PLAIN

    def choose(self, after: Sequence[CudaEvent], caller: int, addresses: Sequence[int]) -> OneNodeGraph | None:
        """That of a call, if it is made."""
        if caller:
            node = self.callers.get(caller)
        else:
            node = (self.nodes.get(after[-1].stream) or self.of_followed_stream(after)) if after else next(self.turns)
        if node is None:
            self.make_when_due(after, caller, addresses)
            return None
        return node

    def of_followed_stream(self, after: Sequence[CudaEvent]) -> OneNodeGraph | None:
        """That of a stream of the device's that is to be followed: the events of it cost nothing."""
        common = self._common_streams(after)
        return self.nodes.get(common[-1]) if common else next(self.turns)

    def _common_streams(self, after: Sequence[CudaEvent]) -> list[int]:
        return [event.stream for event in after if self._device.is_common_stream(event.stream)]

    def make_when_due(self, after: Sequence[CudaEvent], caller: int, addresses: Sequence[int]) -> None:
        """Makes the graphs, once it is their time; that of another stream where a call has to follow that."""
        self._plain -= 1
        if self._plain >= 0:
            return
        made = self.callers if caller else self.nodes
        if caller:
            wanted: Sequence[int] = [caller] if len(made) < CALLERS else []
        else:
            wanted = self._common_streams(after)[-1:] if made else self._streams
        if all(stream in made for stream in wanted):
            return
        places = [0] * (1 + max(self._order))
        for buffer, address in zip(self._order, addresses, strict=False):
            places[buffer] = address
        order = {buffer: i for i, buffer in enumerate(self._order)}
        with self._lock:
            try:
                for stream in wanted:
                    graph = OneNodeGraph(self._device, self._step, order, len(order), self._numbers, places, stream)
                    self._device.graphs.launched[graph] = self._labels
                    made[stream] = graph
                self._device.graphs.keep(self, 0)
            except MISTAKES:
                raise
            except Exception:  # they are an optimisation: launches do as well
                self._plain = sys.maxsize
        if self.nodes and not isinstance(self.turns, cycle):
            self.turns = cycle(list(self.nodes.values()))


def make_one_node_graph_call(
    device: Any,
    step: KernelStep,
    order: Sequence[int],
    numbers: int,
    cost: float,
    lock: Any,
    labels: tuple[str, ...],
) -> Start | None:
    """`make_native_graph_call` of a plan of one launch. order: whose addresses, all that the plan has. numbers: how
    many the plan has. cost: of the launch, in us. lock: of `step`. labels: the names of the plan's steps, for
    errors."""
    if native_driver_calls() is None or step.empty:
        return None
    streams = device.take_common_streams(2 + int(cost / CALL_US))
    graphs = _OneNodeGraphs(device, step, order, numbers, streams, lock, labels)
    return make_native_graph_call(device, graphs.choose)
