"""A plan made ready for a GPU. Each call walks its steps on streams, or replays them as one graph."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

from ...core import profile
from ...core.errors import LaunchError
from ...core.settings import settings
from ...engine import unread_errors
from ...engine.direct_call import DirectArgument
from ...interpret.serial import (
    SerialPoisonTracker,
    numpy_call_of_library_task,
    poisoned_buffers_of_plan,
    serial_error_with_task_location,
)
from ...program.device import Executable
from ...program.plan import ENTRY, Launch, Plan, Record, Wait, all_kernels_of_plan, plan_boundary
from ...program.program import control_flow_bodies, packed_member_tasks
from .driver.driver import SUCCESS
from .driver.events import CudaEvent
from .driver.streams import CapturedStreamEvent, record_event_on_captured_stream
from .graphs.host_control_flow import HostControlFlowStep
from .graphs.native_launch import Start
from .graphs.one_launch import make_one_node_graph_call
from .modules.launch import KernelStep, NumpyHostStep, are_kernel_scalars_of_plan
from .profile import CudaProfileMarks
from .timing import CudaRunTiming

LAUNCH, RECORD, WAIT = range(3)


class TaskRunner(Protocol):
    """What a step is: called with the buffers' addresses, the scalars and a stream, it gives a result code."""

    empty: bool

    def __call__(self, addresses: Sequence[int], scalars: Sequence[Any], stream: int) -> int: ...


class CUDAExecutable(Executable):
    """See `Executable` in `runtime/program/device.py`. One call is issued at a time; calls overlap on the device."""

    def __init__(self, device: Any, plan: Plan, way: str = "") -> None:
        self.plan = plan
        self.notes: list[str] = []
        self._device = device
        self.lock = threading.Lock()
        loaded = device.load(all_kernels_of_plan(plan))  # at once; the runners hold them then
        self.runners: list[TaskRunner] = [self._make_step_of_task(task) for task in plan.tasks]
        del loaded
        self._offsets = tuple(plan.offsets)
        self._uses_arena = any(o is not None for o in plan.offsets)
        kinds = {Launch: LAUNCH, Record: RECORD, Wait: WAIT}
        self.steps: list[tuple[int, int, Any, int]] = [
            (kinds[type(s)], s.stream, self.runners[s.task] if isinstance(s, Launch) else s.event, i)
            for i, s in enumerate(plan.steps)
        ]
        self._tasks = [s.task if isinstance(s, Launch) else -1 for s in plan.steps]
        self._first_users: dict[int, list[int]] = {}  # buffer -> steps that touch it, the first of each stream
        for i, step in enumerate(plan.steps):
            if isinstance(step, Launch):
                task = plan.tasks[step.task]
                for buffer in {r.buffer for r in (*task.reads, *task.writes)}:
                    found = self._first_users.setdefault(buffer, [])
                    if all(plan.steps[j].stream != step.stream for j in found):
                        found.append(i)
        self._high = tuple(s in plan.high_priority for s in range(plan.streams))
        tasks = [plan.tasks[s.task] for s in plan.steps if isinstance(s, Launch)]
        name = plan.program.name
        self.launch_labels = tuple(f"{t.name} of {name}" + (f", {t.line}" if t.line else "") for t in tasks)
        self._replay = device.graph_replay_of_executable(self, way)
        self._roots = plan_boundary(plan).roots
        # of the latest walk on each stream: steps of libraries have memory, which goes back when they die
        self._has_library_steps = not all(isinstance(runner, KernelStep) for runner in self.runners)
        self._ends: dict[int, CudaEvent] = {}

    def __del__(self) -> None:
        for event in getattr(self, "_ends", {}).values():
            if sys is not None and not sys.is_finalizing() and event.error is None and not event.query():
                self._device.context.driver.synchronize_event(event.handle)

    def _make_step_of_task(self, task: Any) -> TaskRunner:
        if control_flow_bodies(task):
            return HostControlFlowStep(self._device, task, self._make_step_of_task, self.notes)
        found: TaskRunner | None = self._device.runner(task)
        if found is None:
            self.notes.append(f"{task.name}: {task.kernel.name} of these arrays runs on the host")
            return NumpyHostStep(
                self._device.context.driver,
                task,
                [numpy_call_of_library_task(part) for part in packed_member_tasks(task)],
            )
        self.notes += getattr(found, "notes", ())
        return found

    def addresses(self, memories: Sequence[Any], arena: Any) -> Sequence[int]:
        """The address of every buffer."""
        if not self._uses_arena:
            return memories
        return [m if o is None else (arena or 0) + o for m, o in zip(memories, self._offsets, strict=True)]

    def run(
        self, memories: Sequence[Any], arena: Any, scalars: Sequence[Any], after: Sequence[tuple[int, Any]]
    ) -> tuple[Any, ...]:
        device = self._device
        device.context.enter()
        device.clock.runs += 1
        if after and any([type(event) is CapturedStreamEvent for _, event in after]):
            with self.lock:
                return self._run_into_captured_graph(memories, arena, scalars, after)
        if device.clock.end is not None:
            after = self._make_streams_follow(after, device.clock.pending())
        with self.lock:
            if (recorder := profile.active) is not None:
                with recorder.host_span("launch", self.plan.program.name):
                    walked = self._issue_steps(self.addresses(memories, arena), scalars, after, marks=device.marks)
                return self._remember_launch(walked)
            if self._replay is not None and settings.engine == "async":
                replayed = self._replay.run(memories, scalars, after)
                if replayed is not None:
                    return self._remember_launch(tuple(replayed))
            walked = self._remember_launch(self._issue_steps(self.addresses(memories, arena), scalars, after))
            if self._has_library_steps:
                self._ends.update((event.stream, event) for event in walked)
            return walked

    def _remember_launch(self, events: tuple[Any, ...]) -> tuple[Any, ...]:
        """The device can name these steps, should it be lost before they end; what has failed is told if nobody reads
        it."""
        for event in events:
            if event.error is not None:
                unread_errors.carry_unread_error(event.error)
        if events:
            self._device.recent_launches.append((events[-1], self.launch_labels))
        return events

    def _run_into_captured_graph(
        self, memories: Sequence[Any], arena: Any, scalars: Sequence[Any], after: Sequence[tuple[int, Any]]
    ) -> tuple[Any, ...]:
        """The steps as nodes of somebody's graph. What they need from outside of it is waited for on the host."""
        inside = [(buffer, event) for buffer, event in after if type(event) is CapturedStreamEvent]
        for _, event in after:
            event.wait()
        tasks = zip(self.plan.tasks, self.runners, strict=True)
        hosts = [t.name for t, r in tasks if isinstance(r, NumpyHostStep) or getattr(r, "waits", False)]
        if hosts:
            raise LaunchError(f"a graph cannot hold what runs on the host: {', '.join(hosts)}; call it outside")
        streams = self._device.captures.streams(inside[0][1].graph, self._high)
        done = self._issue_steps(self.addresses(memories, arena), scalars, inside, streams)
        self._device.captures.keep(inside[0][1].graph, [self, *self._device.blas.workspaces(streams)])
        return done

    def direct(self, taken: Sequence[DirectArgument], watched: Sequence[tuple[int, int]] = ()) -> Start | None:
        """See `native_launch.make_native_graph_call`: for plans that are replayed, and those of one launch that needs
        no memory but what is taken."""
        plan, order = self.plan, [t.buffer for t in taken]
        if self._replay is not None:
            started: Start | None = self._replay.direct(order)
            return started
        launches = sum(isinstance(s, Launch) for s in plan.steps)
        step = self.runners[0] if launches == len(self.runners) == 1 else None
        if not isinstance(step, KernelStep) or True in self._high or len(set(order)) < len(order):
            return None
        scalars, cost = plan.program.scalars, plan.tasks[0].cost
        if not step.buffers <= set(order) or not are_kernel_scalars_of_plan(plan.tasks, scalars):
            return None
        return make_one_node_graph_call(self._device, step, order, len(scalars), cost, self.lock, self.launch_labels)

    def run_timed(
        self,
        memories: Sequence[Any],
        arena: Any,
        scalars: Sequence[Any],
        after: Sequence[tuple[int, Any]],
        waits: bool = False,
    ) -> tuple[tuple[Any, ...], CudaRunTiming]:
        """As `run`; nothing else runs on the device at that time."""
        device = self._device
        device.context.enter()
        with device.clock.lock:
            start, idle = device.clock.start(self._make_streams_follow(after, device.clock.pending()))
            device.clock.end = None
            runs = device.clock.runs
            events = self.run(memories, arena, scalars, after if idle else self._make_streams_follow(after, start))
            counts = device.clock.runs == runs + 1 and (self._replay is None or self._replay.settled)
            return events, device.clock.stop(start, events, counts)

    def _make_streams_follow(self, after: Sequence[tuple[int, Any]], event: Any) -> Sequence[tuple[int, Any]]:
        """Everything also waits for an event."""
        return after if event is None else [*after, *((buffer, event) for buffer in self._first_users)]

    def _issue_steps(
        self,
        addresses: Sequence[int],
        scalars: Sequence[Any],
        after: Sequence[tuple[int, Any]],
        capturing: list[int] | None = None,
        marks: CudaProfileMarks | None = None,
    ) -> tuple[Any, ...]:
        """Issue every step that is not poisoned (`SerialPoisonTracker`). A stream that cannot wait stops."""
        device, plan = self._device, self.plan
        driver, record = device.context.driver, device.events.record
        poison = SerialPoisonTracker(plan, poisoned_buffers_of_plan(plan, after) if after else None)
        entry = self.events_to_wait_for(after)
        checked = settings.engine in ("sync", "chaos") and capturing is None
        steps = self.steps if marks is None else marks.steps(self)
        wait = (
            self._issue_event_wait if marks is None else partial(marks.add_span_of_stream_wait, self._issue_event_wait)
        )
        if capturing is None:
            streams = device.streams_for_plan(self._high, after)
        else:
            streams, record = capturing, partial(record_event_on_captured_stream, device)
        events: list[Any] = [None] * plan.events
        stopped: dict[int, BaseException] = {}  # by stream of the plan
        for kind, s, what, number in steps:
            stream = streams[s]
            if kind == LAUNCH:
                for event in entry.get(number, ()):
                    wait(driver, stopped, s, stream, event)
                error = stopped.get(s)
                if error is None and not (poison and poison.is_poisoned(self._tasks[number])):
                    error = self._launch_error(what, addresses, scalars, stream, checked, number)
                if error is not None:
                    poison.fail(self._tasks[number], error)
            elif kind == RECORD:
                event = events[what] = record(stream)
                if s in stopped:
                    event.error = stopped[s]
            else:
                wait(driver, stopped, s, stream, events[what])
        results = tuple([events[e] for e in plan.completion])
        if poison:
            for event, error in zip(results, poison.output_errors(), strict=True):
                event.error = event.error or error
        return results

    def _launch_error(
        self, run: Any, addresses: Sequence[int], scalars: Sequence[Any], stream: int, checked: bool, number: int
    ) -> BaseException | None:
        """Launches a step. What went wrong."""
        try:
            code, doing = run(addresses, scalars, stream), "launching"
            if checked and code == SUCCESS:
                code, doing = self._synchronize_or_delay_after_step(self._device.context.driver, stream), "running"
            error = None if code == SUCCESS else self._device.failure(code, doing)
        except Exception as raised:  # of a library
            error = raised
        return None if error is None else self._error_with_step_location(error, number)

    def events_to_wait_for(self, after: Sequence[tuple[int, Any]]) -> dict[int, list[Any]]:
        """The events to wait for before a step."""
        found: dict[int, list[Any]] = {}
        for buffer, event in after:
            if getattr(event, "error", None) is not None:
                continue
            for step in self._roots if buffer == ENTRY else self._first_users.get(buffer, ()):
                waiting = found.setdefault(step, [])
                if event not in waiting:
                    waiting.append(event)
        return found

    def _issue_event_wait(
        self, driver: Any, stopped: dict[int, BaseException], s: int, stream: int, event: Any
    ) -> None:
        if not isinstance(event, CudaEvent):  # of another kind of device
            try:
                event.wait()
            except Exception as error:
                stopped.setdefault(s, error)
        elif event.error is not None:
            stopped.setdefault(s, event.error)
        elif event.stream != stream:
            code = driver.wait(stream, event.handle, 0)
            if code != SUCCESS:
                stopped.setdefault(s, self._device.failure(code, "waiting for an event"))

    def _synchronize_or_delay_after_step(self, driver: Any, stream: int) -> int:
        """One step at a time (`sync`), or with random delays (`chaos`)."""
        if settings.engine == "chaos":
            time.sleep(random.random() * 1e-3)
            return SUCCESS
        return int(driver.synchronize_stream(stream))

    def _error_with_step_location(self, error: BaseException, number: int) -> BaseException:
        """The error with the step and the user's line."""
        step = self.plan.steps[number]
        assert isinstance(step, Launch)
        return serial_error_with_task_location(error, self.plan.tasks[step.task], self.plan.program.name)
