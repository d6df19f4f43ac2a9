"""The capture of a plan into a CUDA graph: its steps as they stand, on streams of the GPUs that they are on.

What kernels are given, those of libraries too, is written into their nodes where it changes from call to call, and
found again by its node. A copy to another GPU is a node among them. Slots, for outer buffers whose places cannot change
in a graph, are copied to and from by kernels before and behind the steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ....program.plan import Launch, Plan, Record, Wait
from ....program.program import Pointer
from ..driver.driver import CAPTURE_RELAXED, SUCCESS
from ..driver.events import CudaEvent
from ..libraries.cudnn import CudnnStep
from ..libraries.steps import BatchedMatmulStep, MatmulSequenceStep, MatmulStep
from ..modules.launch import KernelStep
from ..modules.ptx_kernels import COPIES, WORDS, make_ptx_copy_task, make_ptx_pointer_table_task
from .instances import GraphInstance, GraphReplayLane
from .library_nodes import LibraryLaunch, Words, library_launches_of_nodes

LIBRARIES = (BatchedMatmulStep, CudnnStep, MatmulSequenceStep, MatmulStep)  # that have memory for each stream
LIBRARY_STREAMS = 4  # of a device, which more streams with such steps share
PLAIN = 1 << 20  # numbers of other streams come behind those


class GraphCapture:
    """The making of the graphs of a plan for one lane, in memory of the lane.

    Places are those of the plan's buffers, then of what slots stand for, then of tables of pointers."""

    def __init__(
        self,
        plan: Plan,
        homes: Sequence[Any],
        runners: Sequence[Any],
        words: Mapping[int, tuple[Words, ...]],
        lane: GraphReplayLane,
        kept: list[tuple[Any, Any]],
        slots: Sequence[int],
        moved: frozenset[int],
        given: Sequence[int],
        scalars: Sequence[Any],
    ) -> None:
        """homes: the device of each stream. words: by task, where a library's kernels have pointers. kept: devices, and
        memory of theirs that graphs of the lane have in common, in the order that a capture asks for it. slots: outer
        buffers with a slot. moved: those whose pointers are written at each call. given: the addresses of outer
        buffers."""
        self._plan, self._homes, self._runners, self._lane, self._kept = plan, homes, runners, lane, kept
        self._words, self._slots, self._scalars = words, slots, scalars
        self._block_count = 0  # blocks of memory
        self._workspaces: list[Any] = []
        self._events: list[CudaEvent] = []  # until the capture is over
        self._steps: list[KernelStep] = []  # beside those of the tasks
        buffers = plan.program.buffers
        count = len(buffers)
        self._behind = {v: count + i for i, v in enumerate(slots)}
        self.addresses = [*given, *[0] * (count - len(given)), *(given[v] for v in slots)]
        for v, buffer in enumerate(buffers):
            if v in self._behind or buffer.kind == "value":
                self.addresses[v] = self._allocate(lane.devices[buffer.device], buffer.nbytes)
        self._place_temporaries()
        self._moved = {v: v for v in moved} | {place: v for v, place in self._behind.items()}
        self.outer = len(given)

    def capture(self, devices: Sequence[Any], early: frozenset[int]) -> GraphInstance:
        """A graph of what is on some devices, which wait for no others. early: events that are to be known by
        themselves. Raises LaunchError, OutOfMemory, and what libraries raise."""
        first, driver = devices[0], devices[0].context.driver
        streams = self.streams_of_plan(devices)
        tables = {device: self._table_steps(device) for device in devices}
        copies = {
            (device, out): self._slot_copies(device, out) for device in devices for out in (False, True) if self._slots
        }
        first.context.enter()
        origin = self._lane.stream_for_capture(first, False, 0)
        self._raise_if_driver_failed(driver.begin_capture(origin, CAPTURE_RELAXED), "beginning a capture")
        walk = _CapturedWalk(self, first, origin, streams)
        try:
            walk.capture(devices, tables, copies, early)
        finally:
            first.context.enter()
            code, graph = driver.end_capture(origin)
        self._raise_if_driver_failed(code, "ending a capture")
        stream = self._lane.streams[first]
        own = [*self._runners, *self._steps, *self._workspaces]
        made = GraphInstance(driver, stream, graph, own)
        made.kept = [memory for _, memory in self._kept]
        for number, follows in walk.moments.items():  # each launch gives them an event of its own
            code, made.moments[number] = driver.add_event(graph, follows, first.events.take(0).handle)
            self._raise_if_driver_failed(code, "adding an event to a graph")
        for step, handle in walk.nodes:
            made.nodes.append(step.node(handle, self.addresses, self._moved))
            made.nodes[-1].places(self.outer, made.fixed)
        return made

    def instantiate(self, made: GraphInstance, device: Any, given: Sequence[int]) -> None:
        """Make a graph executable, on behalf of the device that it is launched on."""
        device.context.enter()
        for node in made.nodes:
            node.fill_arguments([*given, *made.fixed], self._scalars)
        code, made.executable = device.context.driver.instantiate(made.graph)
        self._raise_if_driver_failed(code, "instantiating a graph")

    def step(self, device: Any, task: Any) -> KernelStep:
        """The launch of a kernel that is none of the plan's."""
        made: KernelStep = device.kernel_step_of_task(task)
        self._steps.append(made)
        return made

    def _place_temporaries(self) -> None:
        """In an arena of each device."""
        buffers, ends = self._plan.program.buffers, dict[int, int]()
        placed = [(v, at) for v, at in enumerate(self._plan.offsets) if at is not None]
        for v, at in placed:
            ends[buffers[v].device] = max(ends.get(buffers[v].device, 0), at + buffers[v].nbytes)
        arenas = {d: self._allocate(self._lane.devices[d], nbytes) for d, nbytes in ends.items()}
        for v, at in placed:
            self.addresses[v] = arenas[buffers[v].device] + at

    def streams_of_plan(self, devices: Sequence[Any]) -> list[int]:
        """For each of the plan's streams one to capture on, so that it waits for nothing but what it reads; some of
        those with steps of libraries share, which have memory for each stream."""
        plan = self._plan
        users = {s.stream for s in plan.steps if isinstance(s, Launch) and isinstance(self._runners[s.task], LIBRARIES)}
        made, counts = [], dict[Any, int]()
        for s, device in enumerate(self._homes):
            number = PLAIN + s
            if s in users:
                counts[device] = counts.get(device, 0) + 1
                number = 1 + counts[device] % LIBRARY_STREAMS
            made.append(self._lane.stream_for_capture(device, s in plan.high_priority, number))
            if s in users and device in devices:
                device.context.enter()
                self._workspaces += device.blas.prepare(made[-1:])
        return made

    def _table_steps(self, device: Any) -> tuple[dict[int, int], list[KernelStep]]:
        """Where the pointers lie that batched products of a device read from memory, by task; and what writes them."""
        plan = self._plan
        own = [s.task for s in plan.steps if isinstance(s, Launch) and self._homes[s.stream] is device]
        batches = [(t, r) for t in own if isinstance(r := self._runners[t], BatchedMatmulStep) and not r.empty]
        words = [pointer for _, r in batches for pointer in r.pointers]
        if not words:
            return {}, []
        at = table = self._allocate(device, 8 * len(words))
        places: dict[int, int] = {}
        for t, r in batches:
            places[t] = at
            at += 8 * len(r.pointers)
        steps = []
        for start in range(0, len(words), WORDS):
            self.addresses.append(table + 8 * start)
            task = make_ptx_pointer_table_task(Pointer(len(self.addresses) - 1), words[start : start + WORDS])
            steps.append(self.step(device, task))
        return places, steps

    def _slot_copies(self, device: Any, out: bool) -> list[KernelStep]:
        """Copies of inputs into their slots, or of outputs out of them."""
        rows, buffers = [], self._plan.program.buffers
        outputs = {*self._plan.program.outputs}
        for v, place in self._behind.items():
            buffer = buffers[v]
            if buffer.nbytes and (v in outputs) == out and self._lane.devices[buffer.device] is device:
                ends = (Pointer(place), Pointer(v)) if out else (Pointer(v), Pointer(place))
                rows.append((*ends, buffer.nbytes))
        chunks = [rows[i : i + COPIES] for i in range(0, len(rows), COPIES)]
        return [self.step(device, make_ptx_copy_task(chunk, device.properties)) for chunk in chunks]

    def _allocate(self, device: Any, nbytes: int) -> int:
        self._block_count += 1
        if self._block_count > len(self._kept):
            self._kept.append((device, device.pool.allocate(max(1, nbytes))))
        owner, memory = self._kept[self._block_count - 1]
        assert owner is device and memory.nbytes >= nbytes, "two captures of one plan ask for different memory"
        return int(memory.address)

    def _raise_if_driver_failed(self, code: int, what: str) -> None:
        if code != SUCCESS:
            raise self._lane.devices[0].failure(code, what)


class _CapturedWalk:
    """One walk over the steps of some devices, while the first of them captures.

    nodes: launches whose arguments change from call to call. moments: for events that are to be known by themselves,
    the node that each follows."""

    def __init__(self, capture: Any, first: Any, origin: int, streams: Sequence[int]) -> None:
        self.nodes: list[tuple[KernelStep | LibraryLaunch, int]] = []
        self.moments: dict[int, int] = {}
        self._capture, self._first, self._origin, self._streams = capture, first, origin, streams
        self._driver = first.context.driver
        self._devices: dict[int, Any] = {origin: first}  # of the streams that take part
        self._ready: dict[Any, CudaEvent] = {}  # when what a device does before all else is done

    def capture(
        self,
        devices: Sequence[Any],
        tables: Mapping[Any, tuple[dict[int, int], list[KernelStep]]],
        copies: Mapping[tuple[Any, bool], list[KernelStep]],
        early: frozenset[int],
    ) -> None:
        """All steps, and what comes before and behind them."""
        plan, homes, lane = self._capture._plan, self._capture._homes, self._capture._lane
        begun = self._record(self._origin)
        mains = {device: lane.stream_for_capture(device, False, 0) for device in devices}
        for device, main in mains.items():
            if main != self._origin:
                self._devices[main] = device
                self._wait(main, begun)
            for step in (*copies.get((device, False), ()), *tables[device][1]):
                self._launch(device, step, main)
            self._ready[device] = self._record(main)
        marks: dict[int, CudaEvent] = {}
        for step in plan.steps:
            device, stream = homes[step.stream], self._streams[step.stream]
            if device not in mains:
                continue
            self._add_stream(device, stream)
            if isinstance(step, Wait):
                self._wait(stream, marks[step.event])
            elif isinstance(step, Record):
                marks[step.event] = self._record(stream)
                if step.event in early:
                    code, node = self._driver.captured_node(stream)
                    if code == SUCCESS:
                        self.moments[step.event] = node
            else:
                self._capture_task(device, stream, step.task, tables[device][0])
        ends = dict(zip(plan.program.outputs, plan.completion, strict=True))
        buffers = plan.program.buffers
        for device, main in mains.items():
            if copied := copies.get((device, True)):
                for v in self._capture._slots:
                    if v in ends and lane.devices[buffers[v].device] is device:
                        self._wait(main, marks[ends[v]])
                for step in copied:
                    self._launch(device, step, main)
        for stream in self._devices:
            if stream != self._origin:
                self._wait(self._origin, self._record(stream))

    def _capture_task(self, device: Any, stream: int, task: int, tables: Mapping[int, int]) -> None:
        runner = self._capture._runners[task]
        if runner.empty:
            return
        if isinstance(runner, BatchedMatmulStep):
            device.context.enter()
            runner.enqueue(tables[task], stream)
        elif (words := self._capture._words.get(task)) is not None:
            before = {*self._driver.captured_nodes(stream)}
            self._launch(device, runner, stream)
            handles = [node for node in self._driver.captured_nodes(stream) if node not in before]
            self.nodes += library_launches_of_nodes(self._driver, handles, words, self._capture.addresses)
        else:
            self._launch(device, runner, stream)

    def _launch(self, device: Any, step: Any, stream: int) -> None:
        """Capture a step; what changes from call to call is found again by its node."""
        device.context.enter()
        capture = self._capture
        code = step(capture.addresses, capture._scalars, stream)
        capture._raise_if_driver_failed(code, "capturing")
        if isinstance(step, KernelStep) and (step.numbers or not step.buffers.isdisjoint(capture._moved)):
            code, handle = self._driver.captured_node(stream)
            capture._raise_if_driver_failed(code, "finding a captured kernel")
            self.nodes.append((step, handle))

    def _add_stream(self, device: Any, stream: int) -> None:
        """Add a stream to the capture, after what its device does before all else."""
        if stream not in self._devices:
            self._devices[stream] = device
            self._wait(stream, self._ready[device])

    def _record(self, stream: int) -> CudaEvent:
        event: CudaEvent = self._devices[stream].events.take(stream)
        self._capture._events.append(event)
        self._capture._raise_if_driver_failed(self._driver.record(event.handle, stream), "capturing an event")
        return event

    def _wait(self, stream: int, event: CudaEvent) -> None:
        if event.stream != stream:
            self._capture._raise_if_driver_failed(self._driver.wait(stream, event.handle, 0), "capturing a wait")
