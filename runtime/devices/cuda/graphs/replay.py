"""Replay: a plan's steps as one CUDA graph. It is captured once, given new pointers and launched at each call.

The plan's walk is captured on streams of its own; what kernels are given is written into their nodes where it changed,
those of libraries too (see `library_nodes`). Where a library's call does not tell where its kernels have their
pointers, these are fixed: an input that stays where it was is captured as it is, or if it is large; any other outer
buffer of such a call has a slot, and one kernel copies inputs in, another outputs out. A graph cannot overlap itself,
so a second instance, with memory of its own, is made when a call comes while the first still runs. Whatever goes wrong,
the plan is walked on streams, and `CUDAExecutable.notes` says why.

Where outputs are done at different moments, each of these has a node that records an event, so that one output can be
waited for alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....core.errors import warn_at_user_line
from ....program.plan import Launch, Plan, Record, Wait
from ....program.program import Pointer
from ..driver.driver import CAPTURE_RELAXED, SUCCESS
from ..driver.events import CudaEvent
from ..driver.native_calls import native_driver_calls
from ..libraries.cublaslt import ALIGNED, gemm_alignment_of_address
from ..libraries.cudnn import CudnnStep
from ..libraries.steps import BatchedMatmulStep, CopyStep, MatmulSequenceStep, MatmulStep
from ..modules.launch import ALL_BITS, KernelStep, are_kernel_scalars_of_plan, words_of_kernel_scalars
from ..modules.ptx_kernels import COPIES, WORDS, make_ptx_copy_task, make_ptx_pointer_table_task
from .instances import GraphInstance
from .library_nodes import LibraryLaunch, Words, find_library_launches, library_launches_of_nodes
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
INSTANCES = 2  # of one plan
WARM_CALLS = 1  # walked on streams first, so that libraries are loaded before a capture
PRODUCTS = (MatmulStep, MatmulSequenceStep)
FIXED = (*PRODUCTS, CudnnStep)  # which of their kernels' arguments are pointers only captures tell


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


class PlanReplay:
    """The graphs of one executable."""

    def __init__(self, device: Any, executable: Any) -> None:
        self._device, self._plan, self._notes = device, executable.plan, executable.notes
        self._labels = executable.launch_labels
        self._driver = device.context.driver
        self._high = tuple(s in self._plan.high_priority for s in range(self._plan.streams))
        outer = replayed_input_and_output_buffers(self._plan)
        outputs = frozenset(self._plan.program.outputs)
        self._slots: list[int] = []  # outer buffers whose place in the graph is a slot
        self._pointers: list[int] = []  # those that are captured as they are
        self._words: dict[int, tuple[Words, ...]] = {}  # of libraries' calls, by task, where captures tell
        self._searched = False  # for the words
        self._aligned: list[tuple[int, int, int]] = []  # their buffers, bits of the addresses, what these have to be
        self._outer = sorted(outer)
        self._inputs, self._outputs = frozenset(self._plan.program.inputs), outputs
        self._order = list(dict.fromkeys((*self._plan.program.inputs, *self._plan.program.outputs)))
        self._runners = [
            self._make_copy_step([r.row]) if type(r) is CopyStep and not r.empty else r for r in executable.runners
        ]
        self._batches = [r for r in self._runners if isinstance(r, BatchedMatmulStep)]
        self.instances: list[GraphInstance] = []
        self._scalars = self._plan.program.scalars
        self._native = native_driver_calls() is not None and are_kernel_scalars_of_plan(self._plan.tasks, self._scalars)
        self._calls = self._turn = 0
        self._crowded = False  # whether a call has come while all instances ran
        self._bound: tuple[int, ...] = ()  # where the captured pointers are
        self._elsewhere, self._patience = 0, 2  # calls in a row that had others, and so many until these are captured
        self.broken = False
        self.settled = False  # whether the latest call was a replay of what was there before

    def run(
        self, memories: Sequence[Any], scalars: Sequence[Any], after: Sequence[tuple[int, Any]]
    ) -> list[CudaEvent] | None:
        """Launch a graph; the completion events. None where this call is to be walked on streams instead."""
        self._calls += 1
        self.settled = self.broken
        bound = tuple([memories[b] for b in self._pointers])
        elsewhere = bound != self._bound and not self._note_moved_pointers(bound)
        askew = any(memories[b] & bits != were for b, bits, were in self._aligned)
        if elsewhere or askew or self.broken or self._calls <= WARM_CALLS:
            return None
        self._elsewhere = 0
        for _, event in after:
            if not isinstance(event, CudaEvent) or event.error is not None:
                return None
        try:
            known = len(self.instances)
            instance = self._idle_or_new_instance(memories, scalars, after)
            self.settled = known == len(self.instances)
            stream, driver = instance.lane.stream, self._driver
            for event in {event.handle: event for _, event in after}.values():
                if event.stream != stream and driver.wait(stream, event.handle, 0):
                    return None
            marked = self._new_completion_events(instance)
            done = self._launch_instance(instance, memories, scalars)
        except MISTAKES:
            raise
        except _NoGain:
            self.broken = True
            return None
        except Exception as error:  # graphs are an optimisation: say so, and go on without
            self._give_up_replay(error)
            return None
        results = [marked.get(number, done) for number in self._plan.completion]
        instance.note(done, results)
        return results

    def _launch_instance(self, instance: GraphInstance, memories: Sequence[Any], scalars: Sequence[Any]) -> CudaEvent:
        """The event after a launch of what is given."""
        events, doing = self._device.events, "launching a graph"
        if instance.launch is not None:
            done: CudaEvent = events.take(instance.stream)
            given = [memories[b] for b in self._order] + words_of_kernel_scalars(scalars, self._scalars)
            self._raise_if_driver_failed(instance.launch(done.handle, *given), doing)
            return done
        self._update_changed_nodes(instance, memories, scalars)
        self._raise_if_driver_failed(self._driver.launch_graph(instance.executable, instance.stream), doing)
        return events.record(instance.stream)  # type: ignore[no-any-return]

    def _give_up_replay(self, error: BaseException) -> None:
        self.broken = True
        self.instances = []
        self._notes.append(f"no replay as a graph: {type(error).__name__}: {error}")
        warn_at_user_line(f"{self._plan.program.name}: {self._notes[-1]}; it runs on streams")

    def _note_moved_pointers(self, bound: tuple[int, ...]) -> bool:
        """Captured pointers that are others now: those buffers get slots, unless they are large. Then this call is
        walked, and others are captured once so many calls in a row had others, twice as many each time. Whether a
        graph may do this call."""
        if self._bound:
            changed = {b for b, old, new in zip(self._pointers, self._bound, bound, strict=True) if old != new}
            if sum(self._plan.program.buffers[b].nbytes for b in changed) > SLOT_BYTES:
                self._elsewhere += 1
                if self._elsewhere < self._patience:
                    return False
                self._patience *= 2
            else:
                self._slots = sorted({*self._slots, *changed})
                bound = tuple(p for b, p in zip(self._pointers, bound, strict=True) if b not in changed)
                self._pointers = [b for b in self._pointers if b not in changed]
            self.instances = []
        self._bound = bound
        return True

    def _idle_or_new_instance(
        self, memories: Sequence[Any], scalars: Sequence[Any], after: Sequence[tuple[int, Any]]
    ) -> GraphInstance:
        """One that is idle, or that this call follows anyway; else another, up to INSTANCES."""
        streams = {event.stream for _, event in after}
        crowded, self._crowded = self._crowded, False  # by now the latest call may be over: the next ones crowd again
        for instance in self.instances:
            if instance.lane.stream in streams or (
                instance.idle() and not (crowded and len(self.instances) < INSTANCES)
            ):
                return instance
        if len(self.instances) < INSTANCES:
            with self._device.graphs.lock:
                made = self._capture_instance(memories, scalars)
            self.instances.append(made)
            self._device.graphs.keep(self, sum(memory.nbytes for memory in made.kept))
        else:
            self.instances.append(self.instances.pop(0))
        return self.instances[-1]

    def _capture_instance(self, memories: Sequence[Any], scalars: Sequence[Any]) -> GraphInstance:
        """Capture the plan with memory of its own: temporaries, slots and tables."""
        plan, driver, pool = self._plan, self._driver, self._device.pool
        lane = self._device.graphs.lane([instance.lane for instance in self.instances])
        count = len(plan.program.buffers)
        arena = pool.allocate(max(1, plan.arena_bytes))
        base = [0 if o is None else arena.address + o for o in plan.offsets]
        streams = lane.streams_for_capture(self._high)
        products = any(isinstance(r, (BatchedMatmulStep, *PRODUCTS)) for r in self._runners)
        workspaces = self._device.blas.prepare(streams) if products else []
        if not self._searched:
            self._searched = True
            self._find_words_of_libraries(self._graph_buffer_addresses(base, memories), scalars, streams)
        slots = [pool.allocate(max(1, plan.program.buffers[b].nbytes)) for b in self._slots]
        words = [p for batch in self._batches for p in batch.pointers]
        table = pool.allocate(max(1, 8 * len(words)))
        base += [0] * len(slots) + [table.address + 8 * start for start in range(0, len(words), WORDS)]
        for b, slot in zip(self._slots, slots, strict=True):
            base[b] = slot.address
        tables = self._pointer_table_steps(words, count + len(slots))
        addresses = self._graph_buffer_addresses(base, memories)
        before, behind = [*self._slot_copies(False), *tables], self._slot_copies(True)
        self._raise_if_driver_failed(driver.begin_capture(streams[0], CAPTURE_RELAXED), "beginning a capture")
        try:
            nodes, moments = self._capture_plan(streams, before, behind, table.address, addresses, scalars)
        finally:
            code, graph = driver.end_capture(streams[0])
        self._raise_if_driver_failed(code, "ending a capture")
        made = GraphInstance(driver, lane, graph, [*self._runners, *before, *behind, *workspaces])
        made.kept = [arena, *slots, table]
        moved = {b: b for b in self._outer if b not in self._slots and b not in self._pointers}
        moved |= {count + i: b for i, b in enumerate(self._slots)}
        for number, follows in moments.items():  # each launch gives them an event of its own
            code, made.moments[number] = driver.add_event(graph, follows, self._device.events.take(0).handle)
            self._raise_if_driver_failed(code, "adding an event to a graph")
        for step, handle in nodes:
            made.nodes.append(step.node(handle, addresses, moved))
            made.nodes[-1].places(count, made.fixed)
        for node in made.nodes:
            node.fill_arguments([*memories, *made.fixed], scalars)
        code, made.executable = driver.instantiate(graph)
        self._raise_if_driver_failed(code, "instantiating a graph")
        self._add_native_launch(made)
        return made

    def _find_words_of_libraries(
        self, addresses: Sequence[int], scalars: Sequence[Any], streams: Sequence[int]
    ) -> None:
        """Where each call of a library has pointers to what a call brings; what the others read and write has slots, or
        stays where it is."""
        fixed, moving, outer = set[int](), set[int](), {*self._outer}
        for step in self._plan.steps:
            runner = self._runners[step.task] if isinstance(step, Launch) else None
            if isinstance(step, Launch) and isinstance(runner, FIXED) and not runner.empty:
                own = sorted(runner.buffers & outer)
                words = find_library_launches(self._driver, runner, addresses, scalars, streams[step.stream], own)
                if words is not None:
                    self._words[step.task] = words
                (fixed if words is None else moving).update(own)
        self._slots, self._pointers = sorted(fixed & self._outputs), sorted(fixed - self._outputs)
        self._bound = tuple(addresses[b] for b in self._pointers)
        if fixed and not _are_copies_around_calls_worthwhile(self._plan, [r for r in self._runners if not r.empty]):
            raise _NoGain
        for b in sorted(moving - fixed):  # a library's choice of kernels depends on that
            bits = min(2 * gemm_alignment_of_address(addresses[b]), ALIGNED) - 1
            self._aligned.append((b, bits, addresses[b] & bits))

    def _add_native_launch(self, made: GraphInstance) -> None:
        """Where nothing but addresses and numbers changes from call to call."""
        if self._native and not made.moments:
            bound, nodes = [*self._aligned], made.nodes
            bound += [(b, ALL_BITS, address) for b, address in zip(self._pointers, self._bound, strict=True)]
            record = native_graph_record(self._driver, made.executable, made.stream, nodes, self._order, bound)
            made.launch = native_graph_launch([record], nodes)
            made.start = native_graph_start(self._device.events, record, made.stream, made.ends.append, nodes)
            self._device.graphs.launched[made] = self._labels

    def direct(self, order: Sequence[int]) -> Start | None:
        """`make_native_graph_call` of the plan. order: whose addresses it gets."""
        if list(order) != self._order or not self._native:
            return None
        return make_native_graph_call(self._device, self._choose_instance)

    def _choose_instance(
        self, after: Sequence[CudaEvent], caller: int, addresses: Sequence[int]
    ) -> NativelyLaunchedGraph | None:
        """One that is there, and that needs no more than a launch."""
        if caller or not self.instances:
            return None
        instances = self.instances
        chosen = instances[self._turn % len(instances)]
        streams = [event.stream for event in after] if after else ()
        followed = [instance for instance in instances if instance.stream in streams] if streams else ()
        if followed:
            chosen = followed[0]
        elif not chosen.idle():
            if len(instances) < INSTANCES:
                self._crowded = True
                return None
            self._turn += 1
            chosen = instances[self._turn % len(instances)]
        return chosen if chosen.launch is not None else None

    def _pointer_table_steps(self, words: Sequence[Pointer], first: int) -> list[KernelStep]:
        """What writes these pointers to tables, which are buffers from `first` on."""
        tasks = [
            make_ptx_pointer_table_task(Pointer(first + i), words[start : start + WORDS])
            for i, start in enumerate(range(0, len(words), WORDS))
        ]
        return [self._device.kernel_step_of_task(task) for task in tasks]

    def _graph_buffer_addresses(self, base: list[int], memories: Sequence[Any]) -> list[int]:
        """The address of every buffer in the graph, then of what slots stand for, then of tables."""
        found = list(base)
        count = len(memories)
        for b in self._outer:
            if not found[b]:
                found[b] = memories[b]
        for i, b in enumerate(self._slots):
            found[count + i] = memories[b]
        return found

    def _capture_plan(
        self,
        streams: list[int],
        before: Sequence[KernelStep],
        behind: Sequence[KernelStep],
        table: int,
        addresses: Sequence[int],
        scalars: Any,
    ) -> tuple[list[tuple[KernelStep | LibraryLaunch, int]], dict[int, int]]:
        """One walk over the plan, with launches before and behind it: what changes is found again by its node. Then,
        for each completion event that comes before the end, the node that it follows."""
        driver, events = self._driver, self._device.events
        outer = {b for b in self._outer if b not in self._slots and b not in self._pointers}
        outer.update(range(len(self._plan.program.buffers), len(addresses)))
        nodes: list[tuple[KernelStep | LibraryLaunch, int]] = []
        first, others = streams[0], streams[1:]
        early, moments = self._early_output_events(), dict[int, int]()
        recorded: list[CudaEvent] = []

        def capture_launch(step: Any, stream: int) -> None:
            self._raise_if_driver_failed(step(addresses, scalars, stream), "capturing")
            if isinstance(step, KernelStep) and (step.buffers & outer or step.numbers):
                code, node = driver.captured_node(stream)
                self._raise_if_driver_failed(code, "finding a captured kernel")
                nodes.append((step, node))

        def capture_event_record(stream: int) -> CudaEvent:
            event = events.take(stream)
            recorded.append(event)  # until the capture is over
            self._raise_if_driver_failed(driver.record(event.handle, stream), "capturing an event")
            return event  # type: ignore[no-any-return]

        for step in before:
            capture_launch(step, first)
        begun = capture_event_record(first)
        for stream in others:
            self._raise_if_driver_failed(driver.wait(stream, begun.handle, 0), "forking a capture")
        starts = {}
        for batch in self._batches:
            starts[id(batch)] = table
            table += 8 * len(batch.pointers)
        marks: dict[int, CudaEvent] = {}
        for step in self._plan.steps:
            stream = streams[step.stream]
            if isinstance(step, Wait):
                self._raise_if_driver_failed(driver.wait(stream, marks[step.event].handle, 0), "capturing a wait")
            elif isinstance(step, Record):
                marks[step.event] = capture_event_record(stream)
                if step.event in early:
                    code, node = driver.captured_node(stream)
                    if code == SUCCESS:
                        moments[step.event] = node
            elif isinstance(step, Launch) and not self._runners[step.task].empty:
                runner = self._runners[step.task]
                if isinstance(runner, BatchedMatmulStep):
                    runner.enqueue(starts[id(runner)], stream)
                elif step.task in self._words:
                    nodes += self._capture_library_call(runner, self._words[step.task], addresses, scalars, stream)
                else:
                    capture_launch(runner, stream)
        for stream in others:
            self._raise_if_driver_failed(
                driver.wait(first, capture_event_record(stream).handle, 0), "joining a capture"
            )
        for step in behind:
            capture_launch(step, first)
        return nodes, moments

    def _capture_library_call(
        self, step: Any, words: Sequence[Words], addresses: Sequence[int], scalars: Any, stream: int
    ) -> list[tuple[LibraryLaunch, int]]:
        before = {*self._driver.captured_nodes(stream)}
        self._raise_if_driver_failed(step(addresses, scalars, stream), "capturing")
        handles = [node for node in self._driver.captured_nodes(stream) if node not in before]
        return library_launches_of_nodes(self._driver, handles, words, addresses)

    def _early_output_events(self) -> set[int]:
        """The completion events of outputs that may be done before others; copies out of slots come last."""
        completion = self._plan.completion
        if len(set(completion)) < 2 or sum(task.cost for task in self._plan.tasks) < EARLY_US:
            return set()
        late = {e for e, b in zip(completion, self._plan.program.outputs, strict=True) if b in self._slots}
        return set(completion) - late

    def _slot_copies(self, out: bool) -> list[KernelStep]:
        """Copies of inputs into their slots, or of outputs out of them."""
        rows, buffers = [], self._plan.program.buffers
        for i, b in enumerate(self._slots):
            nbytes, place, slot = buffers[b].nbytes, Pointer(len(buffers) + i), Pointer(b)
            if nbytes and b in (self._outputs if out else self._inputs):
                rows.append((place, slot, nbytes) if out else (slot, place, nbytes))
        return [self._make_copy_step(rows[i : i + COPIES]) for i in range(0, len(rows), COPIES)]

    def _make_copy_step(self, rows: Sequence[tuple[Pointer, Pointer, int]]) -> KernelStep:
        return self._device.kernel_step_of_task(make_ptx_copy_task(rows, self._device.properties))  # type: ignore[no-any-return]

    def _new_completion_events(self, instance: GraphInstance) -> dict[int, CudaEvent]:
        """New events for the instance's moments, by completion event of the plan."""
        found = {}
        for number, node in instance.moments.items():
            found[number] = event = self._device.events.take(instance.lane.stream)
            self._raise_if_driver_failed(
                self._driver.update_event(instance.executable, node, event.handle), "updating a graph"
            )
        return found

    def _update_changed_nodes(self, instance: GraphInstance, memories: Sequence[Any], scalars: Sequence[Any]) -> None:
        """Write the pointers and numbers that are not those of the last launch."""
        places = [*memories, *instance.fixed]
        for node in instance.nodes:
            if node.fill_arguments(places, scalars):
                self._raise_if_driver_failed(
                    self._driver.update_kernel(instance.executable, node.handle, node.address), "updating a graph"
                )

    def _raise_if_driver_failed(self, code: int, what: str) -> None:
        if code != SUCCESS:
            raise self._device.failure(code, what)
