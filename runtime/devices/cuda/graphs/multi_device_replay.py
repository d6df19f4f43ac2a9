"""A plan over several GPUs as one CUDA graph. It is captured once, given new pointers and launched by one call.

Each part is captured on streams of its GPU, and waits for the values that it reads as it does when it is issued; a
copy is a node beside them. Values that no caller sees are the graph's own. What a product or a large copy is given
cannot be changed in a graph: an array that stays where it was is captured as it is. Small ones that move have a slot.
Large ones that move, as the weights of a training loop, move between few places, since memory is recycled: there is a
graph for each way in which they lie. These graphs run one after another, so they share their memory. Whatever goes
wrong, the steps are issued one by one, and the user is told why.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import ExitStack
from typing import Any

from ....core.errors import warn_at_user_line
from ....program.device import MultiDeviceReplay, PreparedDevicePart
from ....program.multi_device import CopyValue, MultiDevicePlan, RunPart
from ....program.plan import Launch, Record, Wait
from ....program.program import Pointer
from ..driver.driver import CAPTURE_RELAXED
from ..driver.events import CudaEvent
from ..libraries.steps import BatchedMatmulStep, CopyStep, MatmulSequenceStep, MatmulStep
from ..modules.launch import KernelStep
from ..modules.ptx_kernels import COPIES, WORDS, make_ptx_copy_task, make_ptx_pointer_table_task
from .instances import COPY_STREAM, GraphInstance, MultiDeviceLane
from .nodes import MISTAKES
from .replay import FIXED, INSTANCES, WARM_CALLS, is_replayable_as_graph

# a part of the plan: the addresses of its buffers and its table, which of them move, what writes the table
CapturedPart = tuple[list[int], dict[int, int], list[KernelStep]]
ISSUE_US = 20.0  # of the host for a step that is issued by itself (measured on the host of two H100s)
CHEAP_SLOT_US = 5.0  # of copies to and from a slot: less than what another graph is worth
GRAPHS_OF_LANE = 16  # one for each way in which arrays lie; so many new ones need not have paid off
LAUNCHES_OF_CAPTURE = 16  # of a graph, after which its capture has paid off
SLOT_SHARE = 0.25  # what copies to and from slots may take of the time that a graph saves
STREAMS_OF_PART = 1 << 20  # no plan has so many
KERNEL_COPY_BYTES = 256 << 10  # a copy of at most so many bytes is a kernel, which writes to the other GPU's memory


def make_multi_device_replay(
    plan: MultiDevicePlan, devices: Sequence[Any], parts: Sequence[PreparedDevicePart], elsewhere: Mapping[int, Any]
) -> CudaMultiDeviceReplay | None:
    """See `Device.make_multi_device_replay`. None where not all of the plan can be in a graph, or a GPU cannot reach
    another one's memory, which it may not where that is another allocator's."""
    known = all(isinstance(step, RunPart | CopyValue) for step in plan.steps)
    graphs = (is_replayable_as_graph(p.executable.runners, p.executable.plan) for p in parts)
    if not known or len(plan.steps) < 2 or not all(graphs) or any(device.pool.borrows for device in devices):
        return None
    ends = [(devices[plan.values[s.source].device], devices[plan.values[s.target].device])
            for s in plan.steps if isinstance(s, CopyValue)]  # fmt: skip
    ends += [(home, devices[plan.values[v].device]) for v, home in elsewhere.items()]
    ends += [(a, b) for a in devices for b in devices if plan.reads_peers and a is not b]
    if not all(a in devices and a.open_peer_memory(b) for a, b in ends):
        return None
    return CudaMultiDeviceReplay(plan, devices, parts, elsewhere)


class GraphsOfLane:
    """Graphs of one plan that are launched on one lane. One runs after another, so they have their memory in common."""

    def __init__(self, lane: MultiDeviceLane) -> None:
        self.lane = lane
        self.by_pointers: OrderedDict[tuple[int, ...], GraphInstance] = OrderedDict()  # those captured as they are
        self.latest: GraphInstance | None = None
        self.kept: list[tuple[Any, Any]] = []  # devices, and memory of theirs, in the order that a capture asks for it


class CudaMultiDeviceReplay(MultiDeviceReplay):
    """The graphs of one plan, for calls that bring their arrays on the same devices."""

    def __init__(
        self,
        plan: MultiDevicePlan,
        devices: Sequence[Any],
        parts: Sequence[PreparedDevicePart],
        elsewhere: Mapping[int, Any],
    ) -> None:
        self.plan, self.devices, self.parts, self.elsewhere = plan, devices, parts, dict(elsewhere)
        self._driver = devices[0].context.driver
        self._lock = threading.Lock()
        values = range(len(plan.values))
        self.given = frozenset(v for v in values if plan.values[v].source >= 0)
        self.outputs = frozenset(plan.outputs) - self.given
        self.outer = self.given | self.outputs
        self.runners = [
            [
                p.device.kernel_step_of_task(make_ptx_copy_task([r.row], p.device.properties))
                if type(r) is CopyStep and not r.empty
                else r
                for r in p.executable.runners
            ]
            for p in parts
        ]
        bound = {p.values[b] for p in parts for r in p.executable.runners if isinstance(r, FIXED) for b in r.buffers}
        for step in plan.steps:
            if isinstance(step, CopyValue) and plan.values[step.source].nbytes > KERNEL_COPY_BYTES:
                bound |= {step.source, step.target}
        far = {v for v in self.elsewhere if plan.values[v].nbytes > KERNEL_COPY_BYTES}
        self.slots = sorted(v for v in bound if v in self.outputs)  # values whose place in the graph is a slot
        here = {v for v in bound if v in self.given}
        self.pointers = sorted((here - self.elsewhere.keys()) | far)  # those that are captured as they are
        self.instances: list[GraphsOfLane] = []
        self._bound: tuple[int, ...] = ()  # where the captured pointers were at the last call
        self._moving = set[int]()  # those of them that have moved
        self._calls = self._captures = self._launches = 0
        self.broken = not self._are_slots_worthwhile(self.slots)

    def run(self, memories: Sequence[Any], scalars: Sequence[Any], events: Sequence[Any]) -> CudaEvent | None:
        with self._lock:
            self._calls += 1
            addresses = [0 if m is None else m.address for m in memories]
            bound = tuple([addresses[v] for v in self.pointers])
            if bound != self._bound:
                self._note_moved_pointers(bound)
                bound = self._bound
            if self.broken or self._calls <= WARM_CALLS:
                return None
            after = {}
            for event in events:
                if event is not None:
                    if type(event) is not CudaEvent or event.error is not None:
                        return None
                    after[event.handle] = event
            first, driver = self.devices[0], self._driver
            try:
                first.context.enter()
                graphs = self._idle_or_new_graphs(after.values())
                instance = graphs.by_pointers.get(bound)
                if instance is None:
                    if self._moving and self._captures >= GRAPHS_OF_LANE + self._launches // LAUNCHES_OF_CAPTURE:
                        self._give_slots(self._moving)  # they do not come back
                        return None
                    instance = self._capture_instance(graphs, bound, addresses, scalars)
                elif self._moving:
                    graphs.by_pointers.move_to_end(bound)
                self._launches += 1
                graphs.latest = instance
                self._update_changed_nodes(instance, addresses, scalars)
                stream = instance.lane.stream
                for event in after.values():
                    if event.stream != stream:
                        self._raise_if_driver_failed(driver.wait(stream, event.handle, 0), "waiting for an event")
                self._raise_if_driver_failed(driver.launch_graph(instance.executable, stream), "launching a graph")
            except MISTAKES:
                raise
            except Exception as error:  # graphs are an optimisation: say so, and go on without
                self.broken, self.instances = True, []
                text = f"no replay as a graph of several GPUs: {type(error).__name__}: {error}"
                warn_at_user_line(f"{self.plan.name}: {text}; its steps are issued one by one")
                return None
            done: CudaEvent = first.events.record(stream)
            instance.note(done, [done])
            first.recent_launches.append((done, (f"{self.plan.name} on several GPUs",)))
            return done

    def device_of(self, value: int) -> Any:
        return self.devices[self.plan.values[value].device]

    def _slot_microseconds(self, value: int) -> float:
        """Microseconds of the copy to or from a value's slot."""
        return 2 * self.plan.values[value].nbytes / float(self.device_of(value).properties.bandwidth)

    def _are_slots_worthwhile(self, values: Iterable[int]) -> bool:
        """Whether the copies to and from slots cost little of what is saved."""
        moved: dict[Any, float] = {}
        for v in values:
            device = self.device_of(v)
            moved[device] = moved.get(device, 0.0) + self._slot_microseconds(v)
        return max(moved.values(), default=0.0) <= SLOT_SHARE * ISSUE_US * len(self.plan.steps)

    def _note_moved_pointers(self, bound: tuple[int, ...]) -> None:
        """Note which captured pointers are others now. Small values get slots, or are brought by a kernel."""
        before, self._bound = self._bound, bound
        if not before:
            return
        changed = {v for v, old, new in zip(self.pointers, before, bound, strict=True) if old != new}
        brought = changed & self.elsewhere.keys()
        small = {v for v in changed - brought if self._slot_microseconds(v) <= CHEAP_SLOT_US}
        if not self._are_slots_worthwhile([*self.slots, *small]):
            small = set()
        self._moving |= changed - brought - small
        if brought or small:
            self._give_slots(brought | small)

    def _give_slots(self, values: Set[int]) -> None:
        """Give slots to values that were captured as they are; those that are elsewhere are brought by kernels."""
        self.slots = sorted({*self.slots, *(values - self.elsewhere.keys())})
        kept = [(v, address) for v, address in zip(self.pointers, self._bound, strict=True) if v not in values]
        self.pointers = [v for v, _ in kept]
        self._bound = tuple([address for _, address in kept])
        self._moving = self._moving - values
        self.instances, self._captures, self._launches = [], 0, 0
        self.broken = self.broken or not self._are_slots_worthwhile(self.slots)

    def _idle_or_new_graphs(self, after: Any) -> GraphsOfLane:
        """The graphs of a lane that is idle, or that this call follows anyway; else of another, up to INSTANCES."""
        streams = {event.stream for event in after}
        for graphs in self.instances:
            if graphs.lane.stream in streams or graphs.latest is None or graphs.latest.idle():
                return graphs
        if len(self.instances) < INSTANCES:
            graphs = GraphsOfLane(self.devices[0].graphs.multi_device_lane(self.devices))
        else:
            graphs = self.instances.pop(0)
        self.instances.append(graphs)
        return graphs

    def _capture_instance(
        self, graphs: GraphsOfLane, bound: tuple[int, ...], addresses: Sequence[int], scalars: Sequence[Any]
    ) -> GraphInstance:
        """Capture a graph for pointers that lie so, in the place of the one that was not used for longest."""
        with ExitStack() as stack:
            stack.enter_context(self.devices[0].graphs.lock)
            for executable in {id(p.executable): p.executable for p in self.parts}.values():
                stack.enter_context(executable.lock)  # whose launches' blocks are written
            made = _GraphCapture(self, graphs, addresses, scalars).capture_instance()
        self._captures += 1
        graphs.by_pointers[bound] = made
        if len(graphs.by_pointers) > GRAPHS_OF_LANE:
            graphs.by_pointers.popitem(last=False)
        return made

    def _update_changed_nodes(self, instance: GraphInstance, addresses: Sequence[int], scalars: Sequence[Any]) -> None:
        places = [*addresses, *instance.fixed]
        for node in instance.nodes:
            if node.fill_arguments(places, scalars):
                code = self._driver.update_kernel(instance.executable, node.handle, node.address)
                self._raise_if_driver_failed(code, "updating a graph")

    def _raise_if_driver_failed(self, code: int, what: str) -> None:
        if code:
            raise self.devices[0].failure(code, what)


class _GraphCapture:
    """The making of one instance, with memory of its own: values, temporaries, slots and tables.

    Places are those of the plan's values, then of what slots, and what is brought from elsewhere, stand for."""

    def __init__(
        self, replay: CudaMultiDeviceReplay, graphs: GraphsOfLane, given: Sequence[int], scalars: Sequence[Any]
    ) -> None:
        """given: addresses of the values that the call brings or gets."""
        self._replay, self._driver = replay, replay.devices[0].context.driver
        self._given, self._scalars = given, scalars
        self._lane, self._kept = graphs.lane, graphs.kept
        self._workspaces = list[Any]()
        self._before, self._count = len(graphs.kept), 0  # blocks that were there, and that were asked for
        self._products = [
            part
            for part, runners in zip(replay.parts, replay.runners, strict=True)
            if any(isinstance(r, BatchedMatmulStep | MatmulStep | MatmulSequenceStep) for r in runners)
        ]
        self._events: list[CudaEvent] = []  # until the capture is over
        self._steps: list[KernelStep] = []  # beside those of the parts
        self._nodes: list[tuple[KernelStep, int, Sequence[int], dict[int, int], Sequence[int]]] = []
        self._streams: dict[int, Any] = {}  # that take part, with their devices
        self._ready: dict[Any, CudaEvent] = {}  # when what a device does before all else is done
        self._arrivals: dict[int, CudaEvent] = {}  # of values
        count, elsewhere = len(given), sorted(replay.elsewhere)
        self._behind = {v: count + i for i, v in enumerate((*replay.slots, *elsewhere))}
        self._addresses = [*given, *(given[v] for v in self._behind)]
        for v in (v for v in range(count) if v in self._behind or v not in replay.outer):
            self._addresses[v] = self._allocate(replay.device_of(v), replay.plan.values[v].nbytes)
        fixed = {*self._behind, *replay.pointers}
        self._moved = {v: v for v in replay.outer if v not in fixed}
        self._moved |= {place: v for v, place in self._behind.items() if v not in replay.pointers}

    def capture_instance(self) -> GraphInstance:
        """Capture the plan as a graph. Raises LaunchError, OutOfMemory, and what libraries raise."""
        replay, driver = self._replay, self._driver
        first = replay.devices[0]
        pairs = zip(replay.parts, replay.runners, strict=True)
        prepared = [self._prepare_part(part, runners) for part, runners in pairs]
        first.context.enter()
        origin = self._lane.stream_for_capture(first, False, 0)
        self._raise_if_driver_failed(driver.begin_capture(origin, CAPTURE_RELAXED), "beginning a capture")
        try:
            self._capture_plan(origin, prepared)
        finally:
            first.context.enter()
            code, graph = driver.end_capture(origin)
        self._raise_if_driver_failed(code, "ending a capture")
        runners = [runner for each in replay.runners for runner in each]
        made = GraphInstance(driver, self._lane, graph, [*runners, *self._steps])
        made.kept = [*(memory for _, memory in self._kept), *self._workspaces]
        for step, handle, addresses, moved, numbers in self._nodes:
            node = step.node(handle, addresses, moved, numbers)
            node.places(len(self._given), made.fixed)
            made.nodes.append(node)
        for node in made.nodes:
            node.fill_arguments([*self._given, *made.fixed], self._scalars)
        code, made.executable = driver.instantiate(graph)
        self._raise_if_driver_failed(code, "instantiating a graph")
        new = self._kept[self._before :]
        for device in replay.devices if new else ():
            device.graphs.keep(replay, sum(memory.nbytes for at, memory in new if at is device))
        return made

    def _prepare_part(self, part: PreparedDevicePart, runners: Sequence[Any]) -> CapturedPart:
        """The addresses of a part's buffers and of its table, which of them move, and what writes the table."""
        device, plan = part.device, part.executable.plan
        arena = self._allocate(device, plan.arena_bytes) if plan.arena_bytes else 0
        addresses = [
            (arena + offset if offset is not None else 0) if value is None else self._addresses[value]
            for value, offset in zip(part.values, plan.offsets, strict=True)
        ]
        moved = {b: self._moved[v] for b, v in enumerate(part.values) if v in self._moved}
        words = [pointer for r in runners if isinstance(r, BatchedMatmulStep) for pointer in r.pointers]
        count, starts = len(addresses), range(0, len(words), WORDS)
        if words:
            table = self._allocate(device, 8 * len(words))
            addresses += [table + 8 * start for start in starts]
        tasks = [
            make_ptx_pointer_table_task(Pointer(count + i), words[start : start + WORDS])
            for i, start in enumerate(starts)
        ]
        if part in self._products:
            device.context.enter()
            self._workspaces += device.blas.prepare(self._streams_of_part(part))
        return addresses, moved, [self._kernel_step(device, task) for task in tasks]

    def _capture_plan(self, origin: int, prepared: Sequence[CapturedPart]) -> None:
        """All steps of the plan, and what comes before and behind them."""
        replay = self._replay
        values, parts = replay.plan.values, iter(zip(replay.parts, replay.runners, prepared, strict=True))
        self._streams[origin] = replay.devices[0]
        begun = self._capture_record(origin)
        for device in replay.devices:
            main = self._lane.stream_for_capture(device, False, 0)
            if main != origin:
                self._streams[main] = device
                self._capture_wait(main, begun)
            slots_in = [v for v in replay.slots if v in replay.given and replay.device_of(v) is device]
            self._copy_rows(device, [(v, self._behind[v], values[v].nbytes) for v in slots_in])
            for part, (addresses, moved, tables) in zip(replay.parts, prepared, strict=True):
                if part.device is device:
                    for table in tables:
                        self._capture_step(device, table, main, addresses, moved)
            self._ready[device] = self._capture_record(main)
        for v in sorted(replay.elsewhere):
            self._copy_to_peer(replay.elsewhere[v], self._behind[v], v, v in replay.pointers)
        for step in replay.plan.steps:
            if isinstance(step, RunPart):
                self._capture_part(step, *next(parts))
            else:
                assert isinstance(step, CopyValue)
                device = replay.device_of(step.source)
                large = values[step.source].nbytes > KERNEL_COPY_BYTES
                self._copy_to_peer(device, step.source, step.target, large)
        slots_out = [v for v in replay.slots if v not in replay.given]
        for device in replay.devices:
            rows = [v for v in slots_out if replay.device_of(v) is device]
            for v in rows:
                self._capture_wait(self._lane.stream_for_capture(device, False, 0), self._arrivals[v])
            self._copy_rows(device, [(self._behind[v], v, values[v].nbytes) for v in rows])
        for stream in self._streams:
            if stream != origin:
                self._capture_wait(origin, self._capture_record(stream))

    def _capture_part(
        self,
        step: RunPart,
        part: PreparedDevicePart,
        runners: Sequence[Any],
        prepared: CapturedPart,
    ) -> None:
        addresses, moved, _ = prepared
        plan, streams = part.executable.plan, self._streams_of_part(part)
        reads = zip(plan.program.inputs, step.reads, strict=True)
        waits = part.executable.events_to_wait_for([(b, self._arrivals[v]) for b, v in reads if v in self._arrivals])
        for stream in streams:
            self._add_stream(part.device, stream)
        batches = [r for r in runners if isinstance(r, BatchedMatmulStep)]
        at, tables = addresses[len(part.values)] if batches else 0, dict[int, int]()
        for batch in batches:
            tables[id(batch)] = at
            at += 8 * len(batch.pointers)
        numbers = [self._scalars[i] for i in part.scalars]
        marks: dict[int, CudaEvent] = {}
        for number, each in enumerate(plan.steps):
            stream = streams[each.stream]
            if isinstance(each, Wait):
                self._capture_wait(stream, marks[each.event])
            elif isinstance(each, Record):
                marks[each.event] = self._capture_record(stream)
            elif isinstance(each, Launch):
                for event in waits.get(number, ()):
                    self._capture_wait(stream, event)
                runner = runners[each.task]
                if runner.empty:
                    continue
                if isinstance(runner, BatchedMatmulStep):
                    part.device.context.enter()
                    runner.enqueue(tables[id(runner)], stream)
                else:
                    self._capture_step(part.device, runner, stream, addresses, moved, numbers, part.scalars)
        for value, event in zip(step.writes, plan.completion, strict=True):
            self._arrivals[value] = marks[event]

    def _copy_to_peer(self, device: Any, source: int, target: int, large: bool) -> None:
        """Capture a copy between places, on the copy stream of the device that has the source."""
        stream = self._lane.stream_for_capture(device, False, COPY_STREAM)
        self._add_stream(device, stream)
        if source in self._arrivals:
            self._capture_wait(stream, self._arrivals[source])
        nbytes = self._replay.plan.values[target].nbytes
        if large:
            device.context.enter()
            code = self._driver.on_device(self._addresses[target], self._addresses[source], nbytes, stream)
            self._raise_if_driver_failed(code, "capturing a copy")
        else:
            self._copy_rows(device, [(target, source, nbytes)], stream)
        self._arrivals[target] = self._capture_record(stream)

    def _copy_rows(self, device: Any, rows: Sequence[tuple[int, int, int]], stream: int | None = None) -> None:
        """Capture copies of (target, source, bytes) between places, by kernels of a device."""
        stream = self._lane.stream_for_capture(device, False, 0) if stream is None else stream
        for start in range(0, len(rows), COPIES):
            pointers = [(Pointer(a), Pointer(b), n) for a, b, n in rows[start : start + COPIES]]
            step = self._kernel_step(device, make_ptx_copy_task(pointers, device.properties))
            self._capture_step(device, step, stream, self._addresses, self._moved)

    def _capture_step(
        self,
        device: Any,
        step: Any,
        stream: int,
        addresses: Sequence[int],
        moved: dict[int, int],
        numbers: Sequence[Any] = (),
        scalars: Sequence[int] = (),
    ) -> None:
        """Capture a step; what changes from call to call is found again by its node. scalars: which of the call's
        numbers `numbers` are."""
        device.context.enter()
        self._raise_if_driver_failed(step(addresses, numbers, stream), "capturing")
        if isinstance(step, KernelStep) and (step.numbers or not step.buffers.isdisjoint(moved)):
            code, handle = self._driver.captured_node(stream)
            self._raise_if_driver_failed(code, "finding a captured kernel")
            self._nodes.append((step, handle, addresses, moved, scalars))

    def _kernel_step(self, device: Any, task: Any) -> KernelStep:
        made: KernelStep = device.kernel_step_of_task(task)
        self._steps.append(made)
        return made

    def _streams_of_part(self, part: PreparedDevicePart) -> list[int]:
        """Its own, so that it waits for nothing but what it reads; those with products share, since libraries have
        memory for each stream."""
        plan, lane = part.executable.plan, self._lane
        first = 0 if part in self._products else STREAMS_OF_PART * (1 + self._replay.parts.index(part))
        return [lane.stream_for_capture(part.device, s in plan.high_priority, first + s) for s in range(plan.streams)]

    def _add_stream(self, device: Any, stream: int) -> None:
        """Add a stream to the capture, after what its device does before all else."""
        if stream not in self._streams:
            self._streams[stream] = device
            self._capture_wait(stream, self._ready[device])

    def _capture_record(self, stream: int) -> CudaEvent:
        event: CudaEvent = self._streams[stream].events.take(stream)
        self._events.append(event)
        self._raise_if_driver_failed(self._driver.record(event.handle, stream), "capturing an event")
        return event

    def _capture_wait(self, stream: int, event: CudaEvent) -> None:
        if event.stream != stream:
            self._raise_if_driver_failed(self._driver.wait(stream, event.handle, 0), "capturing a wait")

    def _allocate(self, device: Any, nbytes: int) -> int:
        self._count += 1
        if self._count > len(self._kept):
            self._kept.append((device, device.pool.allocate(max(1, nbytes))))
        owner, memory = self._kept[self._count - 1]
        assert owner is device and memory.nbytes >= nbytes, "two captures of one plan ask for different memory"
        return int(memory.address)

    def _raise_if_driver_failed(self, code: int, what: str) -> None:
        if code:
            raise self._replay.devices[0].failure(code, what)
