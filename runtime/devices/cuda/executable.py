"""A plan made ready for a GPU. Each call walks its steps on streams, or replays them as one graph."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, Protocol

from ...core import profile
from ...core.errors import LaunchError
from ...core.settings import settings
from ...engine import unread_errors
from ...engine.direct_call import DirectArgument
from ...engine.run import EngineFailedEvent
from ...interpret.serial import (
    SerialPoisonTracker,
    numpy_call_of_library_task,
    poisoned_buffers_of_plan,
    serial_error_with_task_location,
)
from ...program.collective import Collective
from ...program.device import DoneEvent, Executable, Meetings
from ...program.plan import (
    ENTRY,
    Launch,
    Plan,
    Record,
    Wait,
    all_kernels_of_tasks,
    is_device_copy,
    plan_boundary,
)
from ...program.program import buffers_of_task, control_flow_bodies, packed_member_tasks
from .driver.driver import SUCCESS
from .driver.events import CudaEvent
from .driver.streams import CapturedStreamEvent, record_event_on_captured_stream
from .graphs.host_control_flow import HostControlFlowStep
from .graphs.native_launch import Start
from .graphs.one_launch import make_one_node_graph_call
from .libraries.steps import DeviceCopyStep
from .modules.launch import KernelStep, NumpyHostStep, are_kernel_scalars_of_plan
from .timing import CudaRunTiming

LAUNCH, RECORD, WAIT = range(3)
STREAMS = 8  # of a device that a plan over several works on


class TaskRunner(Protocol):
    """What a step is: called with the buffers' addresses, the scalars and a stream, it gives a result code."""

    empty: bool

    def __call__(self, addresses: Sequence[int], scalars: Sequence[Any], stream: int) -> int: ...


class CollectiveStep:
    """What this process and others do together, or its devices: started by the call that comes to it."""

    empty = False

    def __call__(self, addresses: Sequence[int], scalars: Sequence[Any], stream: int) -> int:
        raise LaunchError("a collective is started by a call")

    def meet(
        self, meetings: Meetings, device: Any, task: int, stream: int, error: BaseException | None
    ) -> BaseException | None:
        """Start it after what is on a stream of the device; that follows it. error: why what it reads is not there.
        What went wrong; what keeps the others from coming is raised."""
        before = device.events.record(stream) if error is None else DoneEvent(EngineFailedEvent(error))
        for end in meetings.start(task, before):
            if not isinstance(end, CudaEvent):
                try:
                    end.wait()
                except Exception as raised:
                    error = error or raised
            elif end.error is not None:
                error = error or end.error
            elif code := device.context.driver.wait(stream, end.handle, 0):
                error = error or device.failure(code, "waiting for an event")
        return error


def _record_event(device: Any, stream: int) -> Any:
    return device.events.record(stream)


def _first_users_of_buffers(plan: Plan) -> dict[int, list[int]]:
    """For each buffer the steps that touch it, the first of each stream."""
    users: dict[int, list[int]] = {}
    for i, step in enumerate(plan.steps):
        if isinstance(step, Launch):
            for buffer in buffers_of_task(plan.tasks[step.task]):
                found = users.setdefault(buffer, [])
                if all(plan.steps[j].stream != step.stream for j in found):
                    found.append(i)
    return users


class CUDAExecutable(Executable):
    """See `Executable` in `runtime/program/device.py`. One call is issued at a time; calls overlap on the device.

    devices: of the plan. homes: that of each of its streams."""

    def __init__(self, device: Any, plan: Plan, way: str = "", devices: Sequence[Any] = ()) -> None:
        self.plan = plan
        self.notes: list[str] = []
        self._device = device
        self.devices = tuple(devices) or (device,)
        self.homes = [self.devices[home] for home in plan.homes] or [device] * plan.streams
        self._clocks = [each.clock for each in self.devices]
        self.lock = threading.Lock()
        home_of_task = {s.task: self.homes[s.stream] for s in plan.steps if isinstance(s, Launch)}
        self.home_of_task = [home_of_task.get(t, device) for t in range(len(plan.tasks))]
        rows = list(zip(self.home_of_task, plan.tasks, strict=True))
        # at once; the runners hold them then
        loaded = [d.load(all_kernels_of_tasks([task for home, task in rows if home is d])) for d in self.devices]
        self.runners: list[TaskRunner] = [self._make_step_of_task(task, home) for home, task in rows]
        del loaded
        self._offsets = tuple(plan.offsets)
        self._uses_arena = any(o is not None for o in plan.offsets)
        kinds = {Launch: LAUNCH, Record: RECORD, Wait: WAIT}
        self.steps: list[tuple[int, int, Any, int]] = [
            (kinds[type(s)], s.stream, self.runners[s.task] if isinstance(s, Launch) else s.event, i)
            for i, s in enumerate(plan.steps)
        ]
        self._first_users = _first_users_of_buffers(plan)
        self._streams = [(d, [s for s in range(plan.streams) if self.homes[s] is d]) for d in self.devices]
        self._high = self.high(range(plan.streams))
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

    def _make_step_of_task(self, task: Any, device: Any) -> TaskRunner:
        if control_flow_bodies(task):
            return HostControlFlowStep(device, task, lambda inner: self._make_step_of_task(inner, device), self.notes)
        if isinstance(task.kernel, Collective):
            return CollectiveStep()
        if is_device_copy(self.plan.program, task):
            target = self.devices[self.plan.program.buffers[task.writes[0].buffer].device]
            return DeviceCopyStep(device, target, task)
        found: TaskRunner | None = device.runner(task)
        if found is None:
            self.notes.append(f"{task.name}: {task.kernel.name} of these arrays runs on the host")
            return NumpyHostStep(
                device.context.driver,
                task,
                [numpy_call_of_library_task(part) for part in packed_member_tasks(task)],
            )
        self.notes += getattr(found, "notes", ())
        return found

    def addresses(self, memories: Sequence[Any], arena: Any) -> Sequence[int]:
        """The address of every buffer."""
        if not self._uses_arena or self.plan.devices:  # whose temporaries have their addresses
            return memories
        return [m if o is None else (arena or 0) + o for m, o in zip(memories, self._offsets, strict=True)]

    def run(
        self,
        memories: Sequence[Any],
        arena: Any,
        scalars: Sequence[Any],
        after: Sequence[tuple[int, Any]],
        meetings: Meetings | None = None,
    ) -> tuple[Any, ...]:
        after = self._begin_run(after)
        self._device.context.enter()
        if after and any([type(event) is CapturedStreamEvent for _, event in after]):
            with self.lock:
                return self._run_into_captured_graph(memories, arena, scalars, after)
        with self.lock:
            addresses = self.addresses(memories, arena)
            if (recorder := profile.active) is not None:
                with recorder.host_span("launch", self.plan.program.name):
                    walked = self._issue_steps(addresses, scalars, after, meetings, profiled=True)
                return self._remember_launch(walked)
            if self._replay is not None and not self.plan.devices and settings.engine == "async":
                replayed = self._replay.run(memories, scalars, [event for _, event in after])
                if replayed is not None:
                    return tuple(replayed[0])
            walked = self._remember_launch(self._issue_steps(addresses, scalars, after, meetings))
            if self._has_library_steps:
                self._ends.update((event.stream, event) for event in walked)
            return walked

    def _begin_run(self, after: Sequence[tuple[int, Any]]) -> Sequence[tuple[int, Any]]:
        """What a run comes after, which may be a timed one on one of the devices."""
        for device in self.devices:
            device.clock.runs += 1
            if device.clock.end is not None:
                device.context.enter()
                after = self._make_streams_follow(after, device.clock.pending())
        return after

    def replay(
        self, memories: Sequence[Any], scalars: Sequence[Any], events: Sequence[Any]
    ) -> tuple[Sequence[Any], Sequence[Any]] | None:
        if self._replay is None:
            return None
        for clock in self._clocks:
            clock.runs += 1
            if clock.end is not None:  # of a timed run, which all else follows
                return None
        with self.lock:
            return self._replay.run(memories, scalars, events)  # type: ignore[no-any-return]

    def _remember_launch(self, events: tuple[Any, ...]) -> tuple[Any, ...]:
        """The device can name these steps, should it be lost before they end; what has failed is told if nobody reads
        it."""
        for event in events:
            if event.error is not None:
                unread_errors.carry_unread_error(event.error)
        for device in self.devices if events else ():
            device.recent_launches.append((events[-1], self.launch_labels))
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
        done = self._issue_steps(self.addresses(memories, arena), scalars, inside, capturing=streams)
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
        if not isinstance(step, KernelStep) or plan.high_priority or len(set(order)) < len(order):
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
        meetings: Meetings | None = None,
        capturing: Sequence[int] | None = None,
        profiled: bool = False,
    ) -> tuple[Any, ...]:
        """Issue every step that is not poisoned (`SerialPoisonTracker`). A stream that cannot wait stops."""
        plan = self.plan
        poison = SerialPoisonTracker(plan, poisoned_buffers_of_plan(plan, after) if after else None)
        entry = self.events_to_wait_for(after)
        checked = settings.engine in ("sync", "chaos") and capturing is None
        steps = self._profiled_steps() if profiled else self.steps
        wait = self._profiled_wait if profiled else self._issue_event_wait
        streams = self._streams_for_run(after) if capturing is None else capturing
        record = _record_event if capturing is None else record_event_on_captured_stream
        events: list[Any] = [None] * plan.events
        stopped: dict[int, BaseException] = {}  # by stream of the plan
        current = self._device
        for kind, s, what, number in steps:
            stream, device = streams[s], self.homes[s]
            if device is not current:
                device.context.enter()
                current = device
            if kind == LAUNCH:
                for event in entry.get(number, ()):
                    wait(stopped, s, stream, event)
                error, task = stopped.get(s), self.plan.steps[number].task  # type: ignore[union-attr]
                if type(what) is CollectiveStep:
                    error = self._meet(what, meetings, stream, number, error, poison)
                elif error is None and not (poison and poison.is_poisoned(task)):
                    error = self._launch_error(what, addresses, scalars, stream, checked, number)
                if error is not None:
                    poison.fail(task, error)
            elif kind == RECORD:
                event = events[what] = record(device, stream)
                if s in stopped:
                    event.error = stopped[s]
            else:
                wait(stopped, s, stream, events[what])
        return self._results(events, poison)

    def _results(self, events: Sequence[Any], poison: SerialPoisonTracker) -> tuple[Any, ...]:
        """The completion events, with what has failed."""
        results = tuple([events[e] for e in self.plan.completion])
        if poison:
            for event, error in zip(results, poison.output_errors(), strict=True):
                event.error = event.error or error
        return results

    def _meet(
        self,
        step: CollectiveStep,
        meetings: Meetings | None,
        stream: int,
        number: int,
        error: BaseException | None,
        poison: SerialPoisonTracker,
    ) -> BaseException | None:
        """Come to a collective, as the others do, whatever has failed here. What went wrong."""
        step_of_plan = self.plan.steps[number]
        assert meetings is not None and isinstance(step_of_plan, Launch)
        task, device = step_of_plan.task, self.homes[step_of_plan.stream]
        if poison and poison.is_poisoned(task):
            error = error or poison.error_of_task(task)
        found = step.meet(meetings, device, task, stream, error)
        device.context.enter()
        return found

    def high(self, streams: Sequence[int]) -> tuple[bool, ...]:
        """Whether each of these streams of the plan has a high priority."""
        return tuple(s in self.plan.high_priority for s in streams)

    def _streams_for_run(self, after: Sequence[tuple[int, Any]]) -> Sequence[int]:
        """A physical stream for each of the plan's. Those of a device that has more than enough of them share: in the
        order of the steps, each of which comes after what it waits for, none can wait for itself."""
        if len(self.devices) == 1:
            found: list[int] = self._device.streams_for_plan(self._high, after)
            return found
        streams = [0] * self.plan.streams
        for device, own in self._streams:
            found = device.streams_for_plan(self.high(own[:STREAMS]), after) if own else []
            for i, s in enumerate(own):
                streams[s] = found[i % STREAMS]
        return streams

    def _profiled_steps(self) -> list[tuple[int, int, Any, int]]:
        """The steps, whose launches note their times."""
        run = profile.active.next_run() if profile.active is not None else 0
        return [
            (k, s, self.homes[s].marks.timed_step(self.plan, what, number, run) if k == LAUNCH else what, number)
            for k, s, what, number in self.steps
        ]

    def _profiled_wait(self, stopped: dict[int, BaseException], s: int, stream: int, event: Any) -> None:
        self.homes[s].marks.add_span_of_stream_wait(self._issue_event_wait, stopped, s, stream, event)

    def _launch_error(
        self, run: Any, addresses: Sequence[int], scalars: Sequence[Any], stream: int, checked: bool, number: int
    ) -> BaseException | None:
        """Launches a step. What went wrong."""
        try:
            device = self.homes[self.plan.steps[number].stream]
            code, doing = run(addresses, scalars, stream), "launching"
            if checked and code == SUCCESS:
                code, doing = self._synchronize_or_delay_after_step(device.context.driver, stream), "running"
            error = None if code == SUCCESS else device.failure(code, doing)
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

    def _issue_event_wait(self, stopped: dict[int, BaseException], s: int, stream: int, event: Any) -> None:
        if not isinstance(event, CudaEvent):  # of another kind of device
            try:
                event.wait()
            except Exception as error:
                stopped.setdefault(s, error)
        elif event.error is not None:
            stopped.setdefault(s, event.error)
        elif event.stream != stream:
            device = self.homes[s]
            code = device.context.driver.wait(stream, event.handle, 0)
            if code != SUCCESS:
                stopped.setdefault(s, device.failure(code, "waiting for an event"))

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
