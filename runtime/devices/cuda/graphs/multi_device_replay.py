"""A plan over several GPUs as one CUDA graph. It is captured once, given new pointers and launched by one call.

The plan's steps are captured as they stand, on streams of the GPUs that they are on; a copy is a node among them.
Values that no caller sees are the graph's own. What a product or a large copy is given cannot be changed in a graph: an
array that stays where it was is captured as it is. Small ones that move have a slot. Large ones that move, as the
weights of a training loop, move between few places, since memory is recycled: there is a graph for each way in which
they lie. These graphs run one after another, so they share their memory. Whatever goes wrong, the steps are issued one
by one, and the user is told why.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

from ....core.errors import warn_at_user_line
from ....program.device import MultiDeviceReplay
from ....program.plan import Launch, Plan, Record, Wait, is_device_copy
from ....program.program import Pointer, Task, buffers_of_task, control_flow_bodies
from ..driver.driver import CAPTURE_RELAXED
from ..driver.events import CudaEvent, pending_gpu_events
from ..driver.native_calls import native_driver_calls
from ..libraries.steps import BatchedMatmulStep, CopyStep, MatmulSequenceStep, MatmulStep
from ..modules.launch import KernelStep
from ..modules.ptx_kernels import COPIES, WORDS, make_ptx_copy_task, make_ptx_pointer_table_task
from .instances import COPY_STREAM, GraphInstance, MultiDeviceLane
from .native_launch import native_graph_launch, native_graph_record
from .nodes import MISTAKES
from .parallel_launch import CudaParallelLaunch, are_launches_parallel
from .replay import FIXED, INSTANCES, WARM_CALLS, is_replayable_as_graph

ISSUE_US = 20.0  # of the host for a step that is issued by itself (measured on the host of two H100s)
CHEAP_SLOT_US = 5.0  # of copies to and from a slot: less than what another graph is worth
GRAPHS_OF_LANE = 16  # one for each way in which arrays lie; so many new ones need not have paid off
LAUNCHES_OF_CAPTURE = 16  # of a graph, after which its capture has paid off
SLOT_SHARE = 0.25  # what copies to and from slots may take of the time that a graph saves
STREAMS_OF_PLAN = 1 << 20  # no section has so many
PRODUCTS = (BatchedMatmulStep, MatmulStep, MatmulSequenceStep)
KERNEL_COPY_BYTES = 256 << 10  # a copy of at most so many bytes is a kernel, which writes to the other GPU's memory


def make_multi_device_replay(
    plan: Plan, devices: Sequence[Any], elsewhere: Mapping[int, Any]
) -> MultiDeviceReplay | None:
    """See `Device.make_multi_device_replay`. None where not all of the plan can be in a graph, or a GPU cannot reach
    another one's memory, which it may not where that is another allocator's."""
    launches = [step for step in plan.steps if isinstance(step, Launch)]
    several = len({plan.sections[step.stream] for step in launches}) > 1
    hosts = plan.collectives or any(map(control_flow_bodies, plan.tasks))
    if not several or hosts or any(device.pool.borrows for device in devices):
        return None
    if not all(a in devices and a.open_peer_memory(b) for a, b in _devices_that_reach_others(plan, devices, elsewhere)):
        return None
    runners = {
        step.task: _runner_in_graph(devices[plan.homes[step.stream]], plan.tasks[step.task])
        for step in launches
        if not is_device_copy(plan.program, plan.tasks[step.task])
    }
    if not is_replayable_as_graph([*runners.values()], plan):
        return None
    if not elsewhere and are_launches_parallel(plan, runners):
        return CudaParallelLaunch(plan, devices, runners)
    return CudaMultiDeviceReplay(plan, devices, runners, elsewhere)


def _devices_that_reach_others(
    plan: Plan, devices: Sequence[Any], elsewhere: Mapping[int, Any]
) -> Iterator[tuple[Any, Any]]:
    buffers = plan.program.buffers
    for task in plan.tasks:
        if is_device_copy(plan.program, task):
            yield devices[buffers[task.reads[0].buffer].device], devices[buffers[task.writes[0].buffer].device]
    yield from ((home, devices[buffers[v].device]) for v, home in elsewhere.items())
    if plan.reads_peers:
        yield from ((a, b) for a in devices for b in devices if a is not b)


def _runner_in_graph(device: Any, task: Task) -> Any:
    """What does a task; small copies by kernels, whose pointers can be changed."""
    runner = device.runner(task)
    if type(runner) is CopyStep and not runner.empty:
        return device.kernel_step_of_task(make_ptx_copy_task([runner.row], device.properties))
    return runner


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
        plan: Plan,
        devices: Sequence[Any],
        runners: Mapping[int, Any],
        elsewhere: Mapping[int, Any],
    ) -> None:
        """runners: of the tasks that are no copies between devices."""
        self.plan, self.devices, self.runners, self.elsewhere = plan, devices, runners, dict(elsewhere)
        self.name, self.buffers = plan.program.name, plan.program.buffers
        self._driver = devices[0].context.driver
        self._lock = threading.Lock()
        kinds = [(v, b.kind) for v, b in enumerate(self.buffers)]
        self.given = frozenset(v for v, kind in kinds if kind == "input")
        self.outputs = frozenset(v for v, kind in kinds if kind == "output")
        self.outer = self.given | self.outputs
        bound = {b for r in runners.values() if isinstance(r, FIXED) for b in r.buffers}
        for task in plan.tasks:
            if self.is_large_copy(task):
                bound |= {task.reads[0].buffer, task.writes[0].buffer}
        far = {v for v in self.elsewhere if self.buffers[v].nbytes > KERNEL_COPY_BYTES}
        self.slots = sorted(v for v in bound if v in self.outputs)  # values whose place in the graph is a slot
        here = {v for v in bound if v in self.given}
        self.pointers = sorted((here - self.elsewhere.keys()) | far)  # those that are captured as they are
        self.instances: list[GraphsOfLane] = []
        self._bound: tuple[int, ...] = ()  # where the captured pointers were at the last call
        self._moving = set[int]()  # those of them that have moved
        self._calls = self._captures = self._launches = 0
        self.broken = not self._are_slots_worthwhile(self.slots)

    def run(self, memories: Sequence[Any], scalars: Sequence[Any], events: Sequence[Any]) -> Sequence[CudaEvent] | None:
        with self._lock:
            self._calls += 1
            addresses = [0 if m is None else m.address for m in memories]
            bound = tuple([addresses[v] for v in self.pointers])
            if bound != self._bound:
                self._note_moved_pointers(bound)
                bound = self._bound
            if self.broken or self._calls <= WARM_CALLS:
                return None
            if (pending := pending_gpu_events(events)) is None:
                return None
            after = {event.handle: event for event in pending}
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
                stream = instance.lane.stream
                for event in after.values():
                    if event.stream != stream:
                        self._raise_if_driver_failed(driver.wait(stream, event.handle, 0), "waiting for an event")
                done = self._launch(instance, addresses, scalars)
            except MISTAKES:
                raise
            except Exception as error:  # graphs are an optimisation: say so, and go on without
                self.broken, self.instances = True, []
                text = f"no replay as a graph of several GPUs: {type(error).__name__}: {error}"
                warn_at_user_line(f"{self.name}: {text}; its steps are issued one by one")
                return None
            instance.note(done, [done])
            first.recent_launches.append((done, (f"{self.name} on several GPUs",)))
            return [done] * len(self.devices)

    def is_large_copy(self, task: Task) -> bool:
        """Whether it is a copy to another device that the driver makes, which keeps its addresses."""
        is_large = is_device_copy(self.plan.program, task)
        return is_large and self.buffers[task.reads[0].buffer].nbytes > KERNEL_COPY_BYTES

    def device_of(self, value: int) -> Any:
        return self.devices[self.buffers[value].device]

    def _slot_microseconds(self, value: int) -> float:
        """Microseconds of the copy to or from a value's slot."""
        return 2 * self.buffers[value].nbytes / float(self.device_of(value).properties.bandwidth)

    def _are_slots_worthwhile(self, values: Iterable[int]) -> bool:
        """Whether the copies to and from slots cost little of what is saved."""
        moved: dict[Any, float] = {}
        for v in values:
            device = self.device_of(v)
            moved[device] = moved.get(device, 0.0) + self._slot_microseconds(v)
        return max(moved.values(), default=0.0) <= SLOT_SHARE * ISSUE_US * len({*self.plan.sections})

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
        with self.devices[0].graphs.lock:
            made = _GraphCapture(self, graphs, addresses, scalars).capture_instance()
        self._captures += 1
        graphs.by_pointers[bound] = made
        if len(graphs.by_pointers) > GRAPHS_OF_LANE:
            graphs.by_pointers.popitem(last=False)
        return made

    def _launch(self, instance: GraphInstance, addresses: Sequence[int], scalars: Sequence[Any]) -> CudaEvent:
        """By one native call where nothing but addresses changes. The event at its end."""
        events, stream = self.devices[0].events, instance.lane.stream
        if instance.launch is not None:
            done: CudaEvent = events.take(stream)
            self._raise_if_driver_failed(instance.launch(done.handle, *addresses), "launching a graph")
            return done
        places = [*addresses, *instance.fixed]
        for node in instance.nodes:
            if node.fill_arguments(places, scalars):
                code = self._driver.update_kernel(instance.executable, node.handle, node.address)
                self._raise_if_driver_failed(code, "updating a graph")
        self._raise_if_driver_failed(self._driver.launch_graph(instance.executable, stream), "launching a graph")
        return events.record(stream)  # type: ignore[no-any-return]

    def _raise_if_driver_failed(self, code: int, what: str) -> None:
        if code:
            raise self.devices[0].failure(code, what)


class _GraphCapture:
    """The making of one instance, with memory of its own: values, temporaries, slots and tables.

    Places are those of the plan's buffers, then of what slots, and what is brought from elsewhere, stand for."""

    def __init__(
        self, replay: CudaMultiDeviceReplay, graphs: GraphsOfLane, given: Sequence[int], scalars: Sequence[Any]
    ) -> None:
        """given: addresses of the values that the call brings or gets."""
        self._replay, self._driver = replay, replay.devices[0].context.driver
        self._given, self._scalars = given, scalars
        self._lane, self._kept = graphs.lane, graphs.kept
        self._workspaces = list[Any]()
        self._before, self._count = len(graphs.kept), 0  # blocks that were there, and that were asked for
        self._events: list[CudaEvent] = []  # until the capture is over
        self._steps: list[KernelStep] = []  # beside those of the tasks
        self._nodes: list[tuple[KernelStep, int]] = []
        self._streams: dict[int, Any] = {}  # that take part, with their devices
        self._ready: dict[Any, CudaEvent] = {}  # when what a device does before all else is done
        self._arrivals: dict[int, CudaEvent] = {}  # of what is brought from elsewhere
        self._tables: dict[Any, list[KernelStep]] = {}  # of each device, what writes its pointers to memory
        self._table_of: dict[int, int] = {}  # the address of the pointers of each task that needs such
        buffers, elsewhere = replay.buffers, sorted(replay.elsewhere)
        count = len(buffers)
        self._behind = {v: count + i for i, v in enumerate((*replay.slots, *elsewhere))}
        self._addresses = [*given, *[0] * (count - len(given)), *(given[v] for v in self._behind)]
        for v in range(count):
            if v in self._behind or buffers[v].kind == "value":
                self._addresses[v] = self._allocate(replay.device_of(v), buffers[v].nbytes)
        self._place_temporaries()
        fixed = {*self._behind, *replay.pointers}
        self._moved = {v: v for v in replay.outer if v not in fixed}
        self._moved |= {place: v for v, place in self._behind.items() if v not in replay.pointers}

    def _place_temporaries(self) -> None:
        """In an arena of each device."""
        replay = self._replay
        ends: dict[Any, int] = {}
        placed = [(v, at) for v, at in enumerate(replay.plan.offsets) if at is not None]
        for v, at in placed:
            device = replay.device_of(v)
            ends[device] = max(ends.get(device, 0), at + replay.buffers[v].nbytes)
        arenas = {device: self._allocate(device, nbytes) for device, nbytes in ends.items()}
        for v, at in placed:
            self._addresses[v] = arenas[replay.device_of(v)] + at

    def capture_instance(self) -> GraphInstance:
        """Capture the plan as a graph. Raises LaunchError, OutOfMemory, and what libraries raise."""
        replay, driver = self._replay, self._driver
        first = replay.devices[0]
        streams = self._streams_of_plan()
        for device in replay.devices:
            self._prepare_tables(device)
        first.context.enter()
        origin = self._lane.stream_for_capture(first, False, 0)
        self._raise_if_driver_failed(driver.begin_capture(origin, CAPTURE_RELAXED), "beginning a capture")
        try:
            self._capture_plan(origin, streams)
        finally:
            first.context.enter()
            code, graph = driver.end_capture(origin)
        self._raise_if_driver_failed(code, "ending a capture")
        made = GraphInstance(driver, self._lane, graph, [*replay.runners.values(), *self._steps])
        made.kept = [*(memory for _, memory in self._kept), *self._workspaces]
        for step, handle in self._nodes:
            node = step.node(handle, self._addresses, self._moved)
            node.places(len(self._given), made.fixed)
            made.nodes.append(node)
        for node in made.nodes:
            node.fill_arguments([*self._given, *made.fixed], self._scalars)
        code, made.executable = driver.instantiate(graph)
        self._raise_if_driver_failed(code, "instantiating a graph")
        if not self._scalars and native_driver_calls() is not None:
            made.launch = self._native_launch(made)
        new = self._kept[self._before :]
        for device in replay.devices if new else ():
            device.graphs.keep(replay, sum(memory.nbytes for at, memory in new if at is device))
        return made

    def _native_launch(self, made: GraphInstance) -> Callable[..., int]:
        """Of a graph for calls without numbers: the places of values that move are those of a call's addresses."""
        context, count = self._replay.devices[0].context, len(self._given)
        record = native_graph_record(
            self._driver, made.executable, made.stream, made.nodes, range(count), context=context.handle
        )
        return native_graph_launch([record], made.nodes)

    def _prepare_tables(self, device: Any) -> None:
        """What writes the pointers that batched products of a device read from memory."""
        replay, plan = self._replay, self._replay.plan
        own = {s.task for s in plan.steps if isinstance(s, Launch) and replay.devices[plan.homes[s.stream]] is device}
        batches = [(t, r) for t, r in replay.runners.items() if t in own and isinstance(r, BatchedMatmulStep)]
        words = [pointer for _, r in batches for pointer in r.pointers]
        if not words:
            return
        at = table = self._allocate(device, 8 * len(words))
        for t, r in batches:
            self._table_of[t] = at
            at += 8 * len(r.pointers)
        for start in range(0, len(words), WORDS):
            self._addresses.append(table + 8 * start)
            task = make_ptx_pointer_table_task(Pointer(len(self._addresses) - 1), words[start : start + WORDS])
            self._tables.setdefault(device, []).append(self._kernel_step(device, task))

    def _streams_of_plan(self) -> list[int]:
        """For each of the plan's streams one to capture on. Those of a section are its own, so that it waits for
        nothing but what it reads; sections with products share, since libraries have memory for each stream."""
        replay, plan = self._replay, self._replay.plan
        launches = [step for step in plan.steps if isinstance(step, Launch)]
        products = {plan.sections[s.stream] for s in launches if isinstance(replay.runners.get(s.task), PRODUCTS)}
        copying = {s.stream for s in launches if s.task not in replay.runners}
        made = []
        for s, (home, section) in enumerate(zip(plan.homes, plan.sections, strict=True)):
            device = replay.devices[home]
            own = s - section if section in products else STREAMS_OF_PLAN + s
            number = COPY_STREAM - s if s in copying else own  # none waits for another's copies
            made.append(self._lane.stream_for_capture(device, s in plan.high_priority, number))
            if section in products:
                device.context.enter()
                self._workspaces += device.blas.prepare(made[-1:])
        return made

    def _capture_plan(self, origin: int, streams: Sequence[int]) -> None:
        """All steps of the plan, and what comes before and behind them."""
        replay = self._replay
        buffers = replay.buffers
        self._streams[origin] = replay.devices[0]
        begun = self._capture_record(origin)
        for device in replay.devices:
            main = self._lane.stream_for_capture(device, False, 0)
            if main != origin:
                self._streams[main] = device
                self._capture_wait(main, begun)
            slots_in = [v for v in replay.slots if v in replay.given and replay.device_of(v) is device]
            self._copy_rows(device, [(v, self._behind[v], buffers[v].nbytes) for v in slots_in])
            for table in self._tables.get(device, ()):
                self._capture_step(device, table, main)
            self._ready[device] = self._capture_record(main)
        for v in sorted(replay.elsewhere):
            home = replay.elsewhere[v]
            stream = self._lane.stream_for_capture(home, False, COPY_STREAM)
            self._add_stream(home, stream)
            self._copy_to_peer(home, stream, self._behind[v], v, v in replay.pointers)
            self._arrivals[v] = self._capture_record(stream)
        marks: dict[int, CudaEvent] = {}
        for step in replay.plan.steps:
            device, stream = replay.devices[replay.plan.homes[step.stream]], streams[step.stream]
            self._add_stream(device, stream)
            if isinstance(step, Wait):
                self._capture_wait(stream, marks[step.event])
            elif isinstance(step, Record):
                marks[step.event] = self._capture_record(stream)
            else:
                self._capture_task(device, stream, step.task)
        ready = dict(replay.plan.ready)
        slots_out = [v for v in replay.slots if v not in replay.given]
        for device in replay.devices:
            rows = [v for v in slots_out if replay.device_of(v) is device]
            for v in rows:
                self._capture_wait(self._lane.stream_for_capture(device, False, 0), marks[ready[v]])
            self._copy_rows(device, [(self._behind[v], v, buffers[v].nbytes) for v in rows])
        for stream in self._streams:
            if stream != origin:
                self._capture_wait(origin, self._capture_record(stream))

    def _capture_task(self, device: Any, stream: int, number: int) -> None:
        replay, task = self._replay, self._replay.plan.tasks[number]
        for b in buffers_of_task(task):
            if b in self._arrivals:
                self._capture_wait(stream, self._arrivals[b])
        runner = replay.runners.get(number)
        if runner is None:
            source, target = task.reads[0].buffer, task.writes[0].buffer
            self._copy_to_peer(device, stream, source, target, replay.is_large_copy(task))
        elif isinstance(runner, BatchedMatmulStep) and not runner.empty:
            device.context.enter()
            runner.enqueue(self._table_of[number], stream)
        elif not runner.empty:
            self._capture_step(device, runner, stream)

    def _copy_to_peer(self, device: Any, stream: int, source: int, target: int, large: bool) -> None:
        """Capture a copy between places, on a stream of the device that has the source."""
        nbytes = max(1, self._replay.buffers[target].nbytes)
        if large:
            device.context.enter()
            code = self._driver.on_device(self._addresses[target], self._addresses[source], nbytes, stream)
            self._raise_if_driver_failed(code, "capturing a copy")
        else:
            self._copy_rows(device, [(target, source, nbytes)], stream)

    def _copy_rows(self, device: Any, rows: Sequence[tuple[int, int, int]], stream: int | None = None) -> None:
        """Capture copies of (target, source, bytes) between places, by kernels of a device."""
        stream = self._lane.stream_for_capture(device, False, 0) if stream is None else stream
        for start in range(0, len(rows), COPIES):
            pointers = [(Pointer(a), Pointer(b), n) for a, b, n in rows[start : start + COPIES]]
            step = self._kernel_step(device, make_ptx_copy_task(pointers, device.properties))
            self._capture_step(device, step, stream)

    def _capture_step(self, device: Any, step: Any, stream: int) -> None:
        """Capture a step; what changes from call to call is found again by its node."""
        device.context.enter()
        self._raise_if_driver_failed(step(self._addresses, self._scalars, stream), "capturing")
        if isinstance(step, KernelStep) and (step.numbers or not step.buffers.isdisjoint(self._moved)):
            code, handle = self._driver.captured_node(stream)
            self._raise_if_driver_failed(code, "finding a captured kernel")
            self._nodes.append((step, handle))

    def _kernel_step(self, device: Any, task: Any) -> KernelStep:
        made: KernelStep = device.kernel_step_of_task(task)
        self._steps.append(made)
        return made

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
