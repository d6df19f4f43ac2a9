"""Replay: a plan's steps as CUDA graphs. They are captured once, given new pointers and launched at each call.

What is on several GPUs is one graph, or one for each where none waits for another; one native call launches them all.
What kernels are given is written into their nodes, those of libraries too (see `library_nodes`). Where a library's call
does not tell where its kernels have their pointers, these are fixed, as are those of a large copy to another GPU: an
input that stays where it was is captured as it is. Any other outer buffer of such a step has a slot, and one kernel
copies inputs in, another outputs out. Large inputs that move, as the weights of a training loop, move between few
places, since memory is recycled: there is a graph for each way in which they lie. These run one after another, so they
share their memory. A graph cannot overlap itself, so there is a second lane, with memory of its own, when a call comes
while the first still runs.
Whatever goes wrong, the plan is walked on streams, and `CUDAExecutable.notes` says why.

Where outputs of one GPU are done at different moments, each of these has a node that records an event, so that one
output can be waited for alone.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any

from ....core.errors import warn_at_user_line
from ....program.plan import Launch, Plan, Record, Wait, is_device_copy
from ....program.program import buffers_of_task
from ..driver.driver import SUCCESS
from ..driver.events import CudaEvent, pending_gpu_events
from ..driver.native_calls import native_driver_calls
from ..libraries.cublaslt import ALIGNED, gemm_alignment_of_address
from ..libraries.cudnn import CudnnStep
from ..libraries.steps import BatchedMatmulStep, CopyStep, DeviceCopyStep, MatmulSequenceStep, MatmulStep
from ..modules.launch import ALL_BITS, KernelStep, are_kernel_scalars_of_plan, words_of_kernel_scalars
from ..modules.ptx_kernels import make_ptx_copy_task
from .capture import GraphCapture
from .instances import GraphInstance, GraphReplayLane
from .library_nodes import Words, find_library_launches
from .native_launch import (
    NativelyLaunchedGraph,
    Start,
    make_native_graph_call,
    native_graph_launch,
    native_graph_record,
    native_graph_start,
)
from .nodes import MISTAKES

# Host time in microseconds (measured on an H200's host): of a launch, of launching a graph, of updating one node.
LAUNCH_US, GRAPH_US, UPDATE_US = 4.5, 7.0, 1.5
LIBRARY_US = 25.0  # of a call of a library, walked on streams
COPY_US, COPIED_BYTES = 3.0, 3e6  # of a copy on the GPU: at least, and bytes a microsecond
EARLY_US = 1000.0  # predicted work of a plan from which on each output has a moment of its own: that takes the host 60
SLOT_BYTES = 1 << 24  # of inputs of libraries that are copied at each call: a graph gains no more than that takes
KERNEL_COPY_BYTES = 256 << 10  # a copy of at most so many bytes is a kernel, which writes to the other GPU's memory
GRAPHS_OF_LANE = 16  # one for each way in which arrays lie; so many new ones need not have paid off
LAUNCHES_OF_CAPTURE = 16  # of a graph, after which its capture has paid off
INSTANCES = 2  # of one plan
WARM_CALLS = 1  # walked on streams first, so that libraries are loaded before a capture
FIXED = (MatmulStep, MatmulSequenceStep, CudnnStep)  # which of their kernels' arguments are pointers only captures tell


def is_replayable_as_graph(runners: Sequence[Any], plan: Plan) -> bool:
    """Whether a graph can do the plan. What only the host can do (None) it cannot."""
    known = None not in runners and all(
        isinstance(r, (KernelStep, BatchedMatmulStep, CopyStep, *FIXED)) for r in runners if not r.empty
    )
    written = {w.buffer for task in plan.tasks for w in task.writes}
    return known and written.isdisjoint(b for b in plan.program.inputs if b not in plan.program.outputs)


def is_graph_replay_worthwhile(plan: Plan, runners: Sequence[Any]) -> bool:
    """Whether a graph costs the host less than the launches, if all pointers to inputs and outputs are new."""
    busy = [r for r in runners if not r.empty]
    outer = replayed_input_and_output_buffers(plan)
    updates = sum(bool(r.buffers & outer or r.numbers) for r in busy)
    launches = sum(LIBRARY_US if isinstance(r, FIXED) else LAUNCH_US for r in busy)
    return launches > GRAPH_US + UPDATE_US * updates


def replayed_input_and_output_buffers(plan: Plan) -> frozenset[int]:
    """The buffers that a call brings: inputs and outputs."""
    return frozenset(b for b, offset in enumerate(plan.offsets) if offset is None)


def _are_copies_around_calls_worthwhile(plan: Plan, busy: Sequence[Any]) -> bool:
    """Whether a call of a library alone takes less in a graph with what is copied around it."""
    copied = sum(plan.program.buffers[b].nbytes for b in replayed_input_and_output_buffers(plan))
    work = sum(task.cost for task in plan.tasks)
    return len(busy) > 1 or max(GRAPH_US, work + COPY_US + 2 * copied / COPIED_BYTES) < max(LIBRARY_US, work)


class _NoGain(Exception):
    """What would have to be copied around a call of a library takes longer than a graph saves."""


def is_graph_of_devices_possible(plan: Plan, devices: Sequence[Any], runners: Sequence[Any]) -> bool:
    """Whether GPUs reach each other's memory as far as a plan asks for it, which they may not where that is another
    allocator's; and results of libraries are small enough to be copied."""
    copies = any(isinstance(runner, DeviceCopyStep) for runner in runners)
    if sum(isinstance(step, Launch) for step in plan.steps) < 2 or any(device.pool.borrows for device in devices):
        return False
    if (copies or plan.reads_peers) and not all(devices[0].open_peer_memory(other) for other in devices[1:]):
        return False
    fixed = {b for r in runners if isinstance(r, FIXED) for b in r.buffers} & {*plan.program.outputs}
    return sum(plan.program.buffers[b].nbytes for b in fixed) <= SLOT_BYTES


def devices_of_each_graph(plan: Plan, homes: Sequence[Any], devices: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Those of a plan: one by one where none waits for another, or writes there, else all together. homes: of its
    streams."""
    recorded = {step.event: homes[step.stream] for step in plan.steps if isinstance(step, Record)}
    waits = any(recorded[s.event] is not homes[s.stream] for s in plan.steps if isinstance(s, Wait))
    waits = waits or any(is_device_copy(plan.program, task) for task in plan.tasks)
    busy = {homes[step.stream] for step in plan.steps if isinstance(step, Launch)}
    return [tuple(devices)] if waits or len(busy) < 2 else [(device,) for device in devices if device in busy]


class PlanGraphs:
    """The graphs of a call whose captured pointers lie in one way. launch: all of them, by one native call, where that
    can do it."""

    def __init__(self, parts: Sequence[GraphInstance]) -> None:
        self.parts = parts
        self.launch: Callable[..., int] | None = None


class LaneGraphs:
    """Graphs of one plan that are launched on one lane. One runs after another, so they have their memory in common."""

    def __init__(self, lane: GraphReplayLane) -> None:
        self.lane = lane
        self.by_pointers: OrderedDict[tuple[int, ...], PlanGraphs] = OrderedDict()  # those captured as they are
        self.latest: PlanGraphs | None = None
        self.kept: list[tuple[Any, Any]] = []  # devices, and memory of theirs, in the order that a capture asks for it

    def idle(self) -> bool:
        """Whether the latest launch has given its results; the next one comes after it anyway."""
        return self.latest is None or all(graph.idle() for graph in self.latest.parts)


class GraphReplay:
    """The graphs of one executable."""

    def __init__(self, executable: Any) -> None:
        self._devices, self._plan, self._notes = executable.devices, executable.plan, executable.notes
        self._homes, self._labels, self._first = executable.homes, executable.launch_labels, executable.devices[0]
        program = self._plan.program
        self._buffers, outputs = program.buffers, frozenset(program.outputs)
        self._outer = frozenset(b for b, buffer in enumerate(self._buffers) if buffer.kind in ("input", "output"))
        self._runners = [
            _runner_in_graph(home, runner)
            for home, runner in zip(executable.home_of_task, executable.runners, strict=True)
        ]
        bound = {b for r in self._runners if isinstance(r, CopyStep) for b in r.buffers} & self._outer
        self._slots = sorted(bound & outputs)  # outer buffers whose place in the graph is a slot
        self._pointers = sorted(bound - outputs)  # those that are captured as they are
        self._words: dict[int, tuple[Words, ...]] = {}  # of libraries' calls, by task, where captures tell
        self._searched = False  # for the words
        self._aligned: list[tuple[int, int, int]] = []  # their buffers, bits of the addresses, what these have to be
        self._order = list(dict.fromkeys((*program.inputs, *program.outputs)))
        self._pick_given = _picker(self._order)
        self._parts = devices_of_each_graph(self._plan, self._homes, self._devices)
        part_of = {device: i for i, devices in enumerate(self._parts) for device in devices}
        self._pick_results = _picker([part_of[self._devices[self._buffers[b].device]] for b in program.outputs])
        self._takers = [devices[0].events.take for devices in self._parts]
        self._touched = [self._buffers_of_part(devices) for devices in self._parts]
        self._limit = INSTANCES if len(self._parts) == 1 else 1  # of lanes
        self.instances: list[LaneGraphs] = []
        self._scalars = program.scalars
        self._native = native_driver_calls() is not None and are_kernel_scalars_of_plan(self._plan.tasks, self._scalars)
        self._calls = self._walked = self._unsettled = self._turn = self._captures = 0
        self._crowded = False  # whether a call has come while all instances ran
        self._bound: tuple[int, ...] = ()  # where the captured pointers are
        self.broken = False

    def run(
        self, memories: Sequence[Any], scalars: Sequence[Any], events: Sequence[Any]
    ) -> tuple[Sequence[CudaEvent], Sequence[CudaEvent]] | None:
        """Launch the graphs; the completion events, and those at the ends. None where this call is to be walked on
        streams instead. events: to wait for; where there are several graphs, of each buffer."""
        self._calls += 1
        if self._pointers and (bound := tuple([memories[b] for b in self._pointers])) != self._bound:
            self._note_moved_pointers(bound)
        walks = self.broken or self._calls <= WARM_CALLS or self._is_askew(memories)
        if walks or (pending := pending_gpu_events(events)) is None:
            self._note_walk()
            return None
        try:
            known = self._limit == 1 and self.instances
            lane = self.instances[0] if known else self._idle_or_new_lane(pending)
            graphs = lane.by_pointers.get(self._bound)
            if graphs is None:
                if self._captures >= GRAPHS_OF_LANE + (self._calls - self._walked) // LAUNCHES_OF_CAPTURE:
                    self._note_walk()  # the places do not come back
                    return None
                graphs = self._capture(lane, memories, scalars)
            elif len(lane.by_pointers) > 1:
                lane.by_pointers.move_to_end(self._bound)
            lane.latest = graphs
            if pending:
                self._wait_for_arguments(graphs, events, pending)
            marked = self._new_completion_events(graphs.parts[0]) if graphs.parts[0].moments else None
            ends = self._launch(graphs, memories, scalars)
        except MISTAKES:
            raise
        except _NoGain:
            self.broken = True
            self._note_walk()
            return None
        except Exception as error:  # graphs are an optimisation: say so, and go on without
            self._give_up_replay(error)
            self._note_walk()
            return None
        if marked is None:
            return self._pick_results(ends), ends
        results = [marked.get(number, ends[0]) for number in self._plan.completion]
        graphs.parts[0].note(ends[0], results)
        return results, ends

    @property
    def settled(self) -> bool:
        """Whether the latest call was a replay of what was there before."""
        return self.broken or self._unsettled != self._calls

    def _is_askew(self, memories: Sequence[Any]) -> bool:
        """Whether what a library's kernels read or write is aligned otherwise than when they were captured."""
        return any(memories[b] & bits != were for b, bits, were in self._aligned)

    def _note_walk(self) -> None:
        """This call is to be walked."""
        self._walked += 1
        self._unsettled = self._calls

    def direct(self, order: Sequence[int]) -> Start | None:
        """`make_native_graph_call` of the plan. order: whose addresses it gets."""
        if list(order) != self._order or not self._native or len(self._parts) > 1:
            return None
        return make_native_graph_call(self._first, self._choose_instance)

    def _buffers_of_part(self, devices: Sequence[Any]) -> frozenset[int]:
        """What the tasks of some devices touch."""
        plan = self._plan
        tasks = [s.task for s in plan.steps if isinstance(s, Launch) and self._homes[s.stream] in devices]
        return frozenset(b for task in tasks for b in buffers_of_task(plan.tasks[task]))

    def _wait_for_arguments(self, graphs: PlanGraphs, events: Sequence[Any], pending: Sequence[CudaEvent]) -> None:
        """Each graph waits for what it reads, wherever that is computed."""
        for i, graph in enumerate(graphs.parts):
            if len(graphs.parts) > 1:
                read = {events[b] for b in self._touched[i] if b < len(events)}
                awaited: Sequence[CudaEvent] = [event for event in pending if event in read]
            else:
                awaited = pending
            device = self._parts[i][0]
            for event in {event.handle: event for event in awaited if event.stream != graph.stream}.values():
                device.context.enter()
                code = device.context.driver.wait(graph.stream, event.handle, 0)
                self._raise_if_driver_failed(code, "waiting for an event")

    def _launch(self, graphs: PlanGraphs, memories: Sequence[Any], scalars: Sequence[Any]) -> list[CudaEvent]:
        """The event after a launch of each graph."""
        if graphs.launch is None:
            ends = [self._launch_by_steps(i, graph, memories, scalars) for i, graph in enumerate(graphs.parts)]
        else:
            ends = [take(graph.stream) for take, graph in zip(self._takers, graphs.parts, strict=True)]
            numbers = words_of_kernel_scalars(scalars, self._scalars) if scalars else ()
            if code := graphs.launch(*map(_handle_of, ends), *self._pick_given(memories), *numbers):
                for devices, graph in zip(self._parts, graphs.parts, strict=True):  # some may have started
                    devices[0].context.driver.synchronize_stream(graph.stream)
                self._raise_if_driver_failed(code, "launching a graph")
        for graph, end in zip(graphs.parts, ends, strict=True):
            graph.ends.append(end)
        return ends

    def _launch_by_steps(
        self, part: int, graph: GraphInstance, memories: Sequence[Any], scalars: Sequence[Any]
    ) -> CudaEvent:
        device = self._parts[part][0]
        device.context.enter()
        self._update_changed_nodes(graph, memories, scalars)
        code = device.context.driver.launch_graph(graph.executable, graph.stream)
        self._raise_if_driver_failed(code, "launching a graph")
        return device.events.record(graph.stream)  # type: ignore[no-any-return]

    def _give_up_replay(self, error: BaseException) -> None:
        self.broken = True
        self.instances = []
        self._notes.append(f"no replay as a graph: {type(error).__name__}: {error}")
        warn_at_user_line(f"{self._plan.program.name}: {self._notes[-1]}; it runs on streams")

    def _note_moved_pointers(self, bound: tuple[int, ...]) -> None:
        """Captured pointers that are others now: those buffers get slots, unless they are large."""
        before, self._bound = self._bound, bound
        if not before:
            return
        changed = {b for b, old, new in zip(self._pointers, before, bound, strict=True) if old != new}
        if sum(self._buffers[b].nbytes for b in changed) <= SLOT_BYTES:
            self._slots = sorted({*self._slots, *changed})
            kept = [(b, address) for b, address in zip(self._pointers, bound, strict=True) if b not in changed]
            self._pointers = [b for b, _ in kept]
            self._bound = tuple([address for _, address in kept])
            self.instances, self._captures, self._walked = [], 0, self._calls

    def _idle_or_new_lane(self, pending: Sequence[CudaEvent]) -> LaneGraphs:
        """One that is idle, or that this call follows anyway; else another, up to the limit. pending: what this call
        comes after."""
        streams = {event.stream for event in pending}
        crowded, self._crowded = self._crowded, False  # by now the latest call may be over: the next ones crowd again
        more = len(self.instances) < self._limit
        for found in self.instances:
            if not streams.isdisjoint(found.lane.streams.values()) or (found.idle() and not (crowded and more)):
                return found
        if more:
            taken = [found.lane for found in self.instances]
            self.instances.append(LaneGraphs(self._first.graphs.lane(taken, self._devices)))
        else:
            self.instances.append(self.instances.pop(0))
        return self.instances[-1]

    def _capture(self, lane: LaneGraphs, memories: Sequence[Any], scalars: Sequence[Any]) -> PlanGraphs:
        """Capture graphs for pointers that lie so, in the place of those that were not used for longest."""
        self._unsettled = self._calls
        before = len(lane.kept)
        with self._first.graphs.lock:
            if not self._searched:
                self._searched = True
                self._find_words_of_libraries(lane, memories, scalars)
            early = self._early_output_events()
            capture = self._new_capture(lane, lane.kept, memories, scalars)
            made = PlanGraphs([capture.capture(devices, early) for devices in self._parts])
            for devices, graph in zip(self._parts, made.parts, strict=True):
                capture.instantiate(graph, devices[0], memories)
        self._captures += 1
        self._add_native_launch(made)
        lane.by_pointers[self._bound] = made
        if len(lane.by_pointers) > GRAPHS_OF_LANE:
            lane.by_pointers.popitem(last=False)
        for device in self._devices:
            nbytes = sum(memory.nbytes for at, memory in lane.kept[before:] if at is device)
            device.graphs.keep(self, nbytes)
        return made

    def _new_capture(
        self, lane: LaneGraphs, kept: list[tuple[Any, Any]], memories: Sequence[Any], scalars: Sequence[Any]
    ) -> GraphCapture:
        moved = self._outer - {*self._slots, *self._pointers}
        return GraphCapture(
            self._plan, self._homes, self._runners, self._words, lane.lane, kept, self._slots, moved, memories, scalars
        )

    def _find_words_of_libraries(self, lane: LaneGraphs, memories: Sequence[Any], scalars: Sequence[Any]) -> None:
        """Where each call of a library has pointers to what a call brings; what the others read and write has slots, or
        stays where it is."""
        calls = [
            (step, runner)
            for step in self._plan.steps
            if isinstance(step, Launch) and isinstance(runner := self._runners[step.task], FIXED) and not runner.empty
        ]
        if not calls:
            return
        kept, before = list[tuple[Any, Any]](), self._slots
        capture, fixed, moving = self._new_capture(lane, kept, memories, scalars), set[int](), set[int]()
        streams = capture.streams_of_plan(self._devices)
        for step, runner in calls:
            device, own = self._homes[step.stream], sorted(runner.buffers & self._outer)
            device.context.enter()
            words = find_library_launches(
                device.context.driver, runner, capture.addresses, scalars, streams[step.stream], own
            )
            if words is not None:
                self._words[step.task] = words
            (fixed if words is None else moving).update(own)
        outputs = {*self._plan.program.outputs}
        self._slots = sorted({*before, *(fixed & outputs)})
        if self._slots == before:
            lane.kept.extend(kept)  # what the graph asks for, too
        self._pointers = sorted({*self._pointers, *(fixed - outputs)} - {*self._slots})
        self._bound = tuple([memories[b] for b in self._pointers])
        if fixed and not _are_copies_around_calls_worthwhile(self._plan, [r for r in self._runners if not r.empty]):
            raise _NoGain
        for b in sorted(moving - fixed):  # a library's choice of kernels depends on that
            bits = min(2 * gemm_alignment_of_address(memories[b]), ALIGNED) - 1
            self._aligned.append((b, bits, memories[b] & bits))

    def _add_native_launch(self, made: PlanGraphs) -> None:
        """Where nothing but addresses and numbers changes from call to call."""
        for devices, graph in zip(self._parts, made.parts, strict=True):
            devices[0].graphs.launched[graph] = self._labels
        if not self._native or made.parts[0].moments:
            return
        bound = [*self._aligned, *((b, ALL_BITS, at) for b, at in zip(self._pointers, self._bound, strict=True))]
        records = []
        for devices, graph in zip(self._parts, made.parts, strict=True):
            device = devices[0]
            context = 0 if device.context.alone else device.context.handle
            records.append(
                native_graph_record(
                    device.context.driver, graph.executable, graph.stream, graph.nodes, self._order, bound, context
                )
            )
        made.launch = native_graph_launch(records, [graph.nodes for graph in made.parts])
        if len(made.parts) == 1:
            (graph,) = made.parts
            graph.start = native_graph_start(
                self._first.events, records[0], graph.stream, graph.ends.append, graph.nodes
            )

    def _choose_instance(
        self, after: Sequence[CudaEvent], caller: int, addresses: Sequence[int]
    ) -> NativelyLaunchedGraph | None:
        """One that is there, and that needs no more than a launch."""
        if caller or not self.instances:
            return None
        lanes = self.instances
        chosen = lanes[self._turn % len(lanes)]
        streams = [event.stream for event in after] if after else ()
        followed = [lane for lane in lanes if lane.lane.stream in streams] if streams else ()
        if followed:
            chosen = followed[0]
        elif not chosen.idle():
            if len(lanes) < self._limit:
                self._crowded = True
                return None
            self._turn += 1
            chosen = lanes[self._turn % len(lanes)]
        graphs = chosen.latest
        return None if graphs is None or graphs.launch is None else graphs.parts[0]

    def _early_output_events(self) -> frozenset[int]:
        """The completion events of outputs that may be done before others; copies out of slots come last."""
        completion, plan = self._plan.completion, self._plan
        if len(set(completion)) < 2 or len(self._devices) > 1 or sum(task.cost for task in plan.tasks) < EARLY_US:
            return frozenset()
        late = {e for e, b in zip(completion, plan.program.outputs, strict=True) if b in self._slots}
        return frozenset(completion) - late

    def _new_completion_events(self, graph: GraphInstance) -> Mapping[int, CudaEvent]:
        """New events for the moments of a graph, by completion event of the plan."""
        found = {}
        for number, node in graph.moments.items():
            found[number] = event = self._first.events.take(graph.stream)
            self._raise_if_driver_failed(
                self._first.context.driver.update_event(graph.executable, node, event.handle), "updating a graph"
            )
        return found

    def _update_changed_nodes(self, graph: GraphInstance, memories: Sequence[Any], scalars: Sequence[Any]) -> None:
        """Write the pointers and numbers that are not those of the last launch."""
        places, driver = [*memories, *graph.fixed], self._first.context.driver
        for node in graph.nodes:
            if node.fill_arguments(places, scalars):
                self._raise_if_driver_failed(
                    driver.update_kernel(graph.executable, node.handle, node.address), "updating a graph"
                )

    def _raise_if_driver_failed(self, code: int, what: str) -> None:
        if code != SUCCESS:
            raise self._first.failure(code, what)


_handle_of = attrgetter("handle")


def _picker(numbers: Sequence[int]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """A function from a sequence to its items with these numbers."""
    return itemgetter(*numbers) if len(numbers) > 1 else lambda items: [items[i] for i in numbers]


def _runner_in_graph(device: Any, runner: Any) -> Any:
    """What does a task of a device in a graph: small copies are kernels, whose pointers can be changed."""
    if runner.empty or not isinstance(runner, CopyStep):
        return runner
    if isinstance(runner, DeviceCopyStep) and runner.nbytes > KERNEL_COPY_BYTES:
        return runner.in_memory_of_both
    return device.kernel_step_of_task(make_ptx_copy_task([runner.row], device.properties))
