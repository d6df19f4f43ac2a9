"""What replays share and keep. The lanes that graphs are launched on, executable graphs with their memory, and a bound
on the bytes of these."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol
from weakref import WeakKeyDictionary, ref

from ..driver.events import CudaEvent
from ..modules.launch import KernelArgumentBlock

IN_FLIGHT = 16  # launches of an instance before the events of those that are over are let go
THREADS = 8
LANES = 4  # streams that graphs are launched on
BYTES = 16  # one part in so many of the device's memory is for what graphs keep


class InstanceHolder(Protocol):
    """What has instances, and can be asked to let them go: a Replay."""

    instances: list[Any]


class GraphReplayLane:
    """A stream of each GPU that graphs are launched on, and those that they are captured on: what one holds, only one
    runs."""

    def __init__(self, devices: Sequence[Any]) -> None:
        self.devices = devices
        self.streams: dict[Any, int] = {device: device.new_stream(False) for device in devices}
        self.stream = self.streams[devices[0]]
        self._captures: dict[tuple[Any, bool, int], int] = {}

    def stream_for_capture(self, device: Any, high: bool, number: int) -> int:
        """A stream of a device, made when first asked for. number: 0 for what comes before and behind a plan."""
        key = device, high, number
        if key not in self._captures:
            self._captures[key] = device.new_stream(high)
        return self._captures[key]

    def streams_for_capture(self, high: Sequence[bool]) -> list[int]:
        """So many of the first device."""
        return [self.stream_for_capture(self.devices[0], is_high, i) for i, is_high in enumerate(high)]


class GraphReplays:
    """The replays of a device: they share lanes and a bound on the bytes that instances keep."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._lanes: dict[tuple[Any, ...], list[GraphReplayLane]] = {}  # by the devices
        self._turn = self._capture = 0
        self._bodies: GraphReplayLane | None = None
        self.lock = threading.RLock()  # of captures, and of what is kept
        self._kept: OrderedDict[int, tuple[Any, int]] = OrderedDict()  # weak references and bytes
        self.limit = device.properties.memory_bytes // BYTES
        self.launched: WeakKeyDictionary[Any, tuple[str, ...]] = WeakKeyDictionary()  # natively; the labels of steps

    def recent_launches(self) -> list[tuple[CudaEvent, tuple[str, ...]]]:
        """Of the last native launches of each graph the event at the end, and the labels of its steps."""
        return [(end, labels) for graph, labels in [*self.launched.items()] for end in [*graph.ends]]

    def streams(self) -> list[int]:
        """Those that graphs are launched on."""
        return [lane.streams[self._device] for lanes in self._lanes.values() for lane in lanes]

    def stream_for_capture(self) -> int:
        """A stream for the captures of single launches."""
        if not self._capture:
            self._capture = self._device.new_stream(False)
        return self._capture

    @property
    def bodies(self) -> GraphReplayLane:
        """For captures of what needs no library's memory: it may be launched on any stream."""
        if self._bodies is None:
            self._bodies = GraphReplayLane((self._device,))
        return self._bodies

    def lane(self, taken: Sequence[GraphReplayLane] = (), devices: Sequence[Any] = ()) -> GraphReplayLane:
        """They take turns, but for those that are taken: fewer than `LANES`, of the plan's other instances, which are
        to run at the same time. devices: this one and others, where graphs are over several."""
        lanes = self._lanes.setdefault(key := tuple(devices) or (self._device,), [])
        if len(lanes) < LANES:
            lanes.append(GraphReplayLane(key))
        self._turn += 1
        found = lanes[(self._turn - 1) % len(lanes)]
        return self.lane(taken, devices) if found in taken else found

    def bytes_kept_by_graphs(self) -> int:
        """What instances keep."""
        with self.lock:
            return sum(n for found, n in self._kept.values() if (replay := found()) is not None and replay.instances)

    def trim(self) -> None:
        """Let all instances go. Calls make theirs anew."""
        with self.lock:
            kept, self._kept = self._kept, OrderedDict()
            for found, _ in kept.values():
                if (replay := found()) is not None:
                    replay.instances = []

    def keep(self, replay: InstanceHolder, nbytes: int) -> None:
        """A replay has made an instance of so many bytes. Those that made theirs longest ago give them back."""
        with self.lock:
            self._register_instance(replay, nbytes)

    def _register_instance(self, replay: InstanceHolder, nbytes: int) -> None:
        alive = [(key, entry) for key, entry in self._kept.items() if entry[0]() is not None and entry[0]().instances]
        self._kept = OrderedDict(alive)
        _, before = self._kept.pop(id(replay), (None, 0))
        self._kept[id(replay)] = (ref(replay), before + nbytes)
        while len(self._kept) > 1 and sum(n for _, n in self._kept.values()) > self.limit:
            _, (oldest, _) = self._kept.popitem(last=False)
            if found := oldest():
                found.instances = []


class GraphInstance:
    """An executable graph with its memory; the nodes that change."""

    def __init__(self, driver: Any, stream: int, graph: int, steps: Sequence[Any]) -> None:
        """stream: that it is launched on. steps: whose kernels it has; and workspaces of libraries."""
        self._driver, self.stream, self.graph, self._steps = driver, stream, graph, steps
        self.executable = 0
        self.nodes: list[KernelArgumentBlock] = []
        self.fixed: list[int] = []  # addresses that nodes pick from, beside those that a call brings
        self.kept: list[Any] = []
        self.ends: deque[CudaEvent] = deque(maxlen=THREADS)  # of the latest launches, by so many threads at a time
        self.results: set[CudaEvent] = set()
        self.moments: dict[int, int] = {}  # completion event of the plan -> the node that records it
        self.launched: deque[tuple[CudaEvent, Sequence[CudaEvent]]] = deque()  # no event of theirs is used again before
        self.start: Callable[..., CudaEvent | None]  # the graph, by one native call, to the event after it

    def idle(self) -> bool:
        """Whether the latest launch has given its results; the next one comes after it anyway."""
        return all([event.query() for event in (self.results if self.moments else [*self.ends][-1:])])

    def note(self, last: CudaEvent, results: Sequence[CudaEvent]) -> None:
        """A launch whose results have moments of their own, with the event after it and those of its results."""
        self.results = set(results)
        self.launched.append((last, results))
        while len(self.launched) > IN_FLIGHT and self.launched[0][0].query():
            self.launched.popleft()

    def __del__(self) -> None:
        if sys is None or sys.is_finalizing():
            return
        for event in self.ends:  # its memory goes back
            if event.error is None and not event.query():
                self._driver.synchronize_event(event.handle)
        if self.executable:
            self._driver.destroy_executable(self.executable)
        self._driver.destroy_graph(self.graph)
