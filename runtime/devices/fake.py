"""A device that computes nothing, for tests without hardware. It writes down what it is asked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any

import numpy as np

from ..core.allocators import Allocator, Lender
from ..core.errors import CompileError, DeviceLost, KernelGraphError, LaunchError, OutOfMemory
from ..core.frozen import dataclass, field
from ..core.readable_text import byte_count_in_words
from ..interpret.control_flow import RunIteration, run_control_flow
from ..interpret.serial import SerialPoisonTracker, poisoned_buffers_of_plan, serial_error_with_task_location
from ..program.device import Device, Event, Executable, Meetings
from ..program.plan import (
    ENTRY,
    Launch,
    Plan,
    Record,
    Wait,
    all_kernels_of_tasks,
    is_device_copy,
    plan_boundary,
)
from ..program.program import Constant, Int, Kernel, Pointer, Scalar, Task, control_flow_bodies

ALIGNMENT = 256
FIRST_ADDRESS = 1 << 20
ERRORS: dict[str, type[KernelGraphError]] = {
    "allocate": OutOfMemory,
    "upload": LaunchError,
    "download": LaunchError,
    "copy": LaunchError,
    "load": CompileError,
    "prepare": CompileError,
    "launch": LaunchError,
    "work": LaunchError,
}


class FakeMemory:
    """A range of addresses, never given out twice. Its death is logged as `("free", address)`."""

    def __init__(self, device: FakeDevice, address: int, nbytes: int) -> None:
        self._device, self._lender = device, device.lender
        self._address = address
        self._nbytes = nbytes

    @property
    def address(self) -> int:
        return self._address

    @property
    def nbytes(self) -> int:
        return self._nbytes

    def __del__(self) -> None:
        if self._lender is not None:
            self._lender.returned.append((self._address, self._nbytes))
            self._lender.take_back()
        self._device._release(self._address, self._nbytes)


class FakeEvent:
    """Happens at once, or, on a device that is not eager, when asked for (`happen`, `wait`, `synchronize`)."""

    def __init__(self, number: int, done: bool, error: BaseException | None) -> None:
        self.number = number
        self.error = error
        self._done = done

    def query(self) -> bool:
        return self._done

    def happen(self) -> None:
        self._done = True

    def wait(self) -> None:
        self._done = True
        if self.error is not None:
            raise self.error.with_traceback(None)


class FakeTiming:
    """Known once the run's events have happened; nan if one of them failed."""

    def __init__(self, events: tuple[Any, ...], microseconds: float) -> None:
        self._events = events
        self._microseconds = microseconds

    def query(self) -> float | None:
        if not all(event.query() for event in self._events):
            return None
        return math.nan if any(event.error is not None for event in self._events) else self._microseconds


class FakeLoopDevice:
    """Memory of which nothing is known: all zero."""

    def integer(self, address: int) -> int:
        return 0

    def boolean(self, address: int) -> bool:
        return False

    def repeat(self, rows: Sequence[Sequence[int]], numbers: Sequence[Any], times: int) -> int:
        return 0

    def copy(self, target: int, source: int, nbytes: int) -> None:
        pass


@dataclass
class FakeDevice(Device):
    """kind `fake`. log: what was asked, in order, as plain tuples.

    capacity: bytes that can be allocated at once; more raises OutOfMemory. eager: work is done as soon as it is asked
    for; otherwise events happen when they are waited for, or when the test says so. ways: how a plan can be run, the
    default first. time_of: the microseconds of a timed run of a plan in a way, nan for one that does not count; by
    default what the cost model predicted. queued_time_of: how much later than the run before it a run ends.
    """

    computes = False
    measures = True

    index: int = 0
    capacity: int | None = None
    eager: bool = True
    time_of: Callable[[Plan, str], float] | None = None
    overlaps: bool = False
    queued_time_of: Callable[[Plan, str], float] | None = None
    queued_microseconds: float = 0.0
    runs: int = 0
    ways: Callable[[Plan], tuple[str, ...]] = lambda plan: ("",)  # type: ignore[assignment]
    kind: str = "fake"
    log: list[tuple[Any, ...]] = field(default_factory=list)
    in_use: int = 0
    peak: int = 0
    lost: DeviceLost | None = None
    lender: Lender | None = None
    loaded: set[Kernel] = field(default_factory=set)
    events: list[FakeEvent] = field(default_factory=list)
    _faults: dict[str, dict[int, BaseException]] = field(default_factory=dict)
    _call_counts: dict[str, int] = field(default_factory=dict)
    _next: int = FIRST_ADDRESS
    _numbers: Iterator[int] = field(default_factory=count)

    def fail(self, what: str, number: int = 0, error: BaseException | None = None) -> None:
        """Let the call `number` calls from now fail: 0 is the next one.

        what: allocate, upload, download, copy, load, prepare, launch (refused), or work (accepted, fails later); events
        that follow either raise when they are waited for. error: by default the one of `ERRORS`; after a DeviceLost
        everything fails with it.
        """
        if what not in ERRORS:
            raise ValueError(f"fail({what!r}): write one of {', '.join(ERRORS)}")
        fault = error if error is not None else ERRORS[what](f"fake {what} failed, as it was told to")
        self._faults.setdefault(what, {})[self._call_counts.get(what, 0) + number] = fault

    def count_call(self, what: str) -> BaseException | None:
        """Count one call of `what`. The error that it was told to fail with, if any."""
        number = self._call_counts.get(what, 0)
        self._call_counts[what] = number + 1
        found = self._faults.get(what, {}).pop(number, None)
        if isinstance(found, DeviceLost):
            self.lost = found
        return self.lost or found

    def _log_call(self, what: str, *details: Any) -> None:
        self.log.append((what, *details))
        if (error := self.count_call(what)) is not None:
            if what == "load" and isinstance(error, CompileError):
                error.kernel = details[0]
            raise error

    def event(self, error: BaseException | None = None) -> FakeEvent:
        made = FakeEvent(next(self._numbers), self.eager, error)
        if not self.eager:
            self.events.append(made)
        return made

    def allocate(self, nbytes: int) -> FakeMemory:
        self._log_call("allocate", nbytes)
        if self.capacity is not None and self.in_use + nbytes > self.capacity:
            wanted, free = byte_count_in_words(nbytes), byte_count_in_words(self.capacity - self.in_use)
            raise OutOfMemory(f"fake device: {wanted} asked for, {free} free")
        if self.lender is not None:
            address = self.lender.allocate(nbytes)
        else:
            address = self._next
            self._next += -(-max(nbytes, 1) // ALIGNMENT) * ALIGNMENT
        self.in_use += nbytes
        self.peak = max(self.peak, self.in_use)
        return FakeMemory(self, address, nbytes)

    def statistics(self) -> dict[str, int]:
        """Bytes `in_use` and so on; nothing is ever cached."""
        return {"in_use": self.in_use, "cached": 0, "reserved": self.in_use, "peak": self.peak}

    @property
    def kernels(self) -> int:
        return len(self.loaded)

    def trim(self) -> int:
        return 0

    def owns(self, memory: Any) -> bool:
        return isinstance(memory, FakeMemory) and memory._device is self

    def use_allocator(self, allocator: Allocator | None) -> None:
        self.lender = None if allocator is None else Lender(allocator, ALIGNMENT)

    @property
    def limit(self) -> int:
        """`capacity`, 0 for none."""
        return self.capacity or 0

    @limit.setter
    def limit(self, nbytes: int) -> None:
        self.capacity = nbytes or None

    def _release(self, address: int, nbytes: int) -> None:
        self.in_use -= nbytes
        self.log.append(("free", address))

    def upload(self, host: np.ndarray[Any, Any], memory: Any) -> FakeEvent:
        self._log_call("upload", memory.address, host.nbytes)
        return self.event()

    def download(self, memory: Any, host: np.ndarray[Any, Any]) -> None:
        """Leaves `host` full of zero bytes: nothing has been computed."""
        self._log_call("download", memory.address, host.nbytes)
        host.reshape(-1).view(np.uint8)[...] = 0

    def copy_from(self, source: Device, memory: Any, target: Any, nbytes: int, after: Any) -> FakeEvent:
        """Logs ("copy", number of the source, address there, address here, bytes, number of the event it follows)."""
        number = getattr(after, "number", None)
        self._log_call("copy", source.index, memory.address, target.address, nbytes, number)
        return self.event(getattr(after, "error", None))

    def load(self, kernels: Sequence[Kernel]) -> None:
        """Only kernels that are new are logged."""
        for kernel in kernels:
            if kernel not in self.loaded:
                self._log_call("load", kernel.name)
                self.loaded.add(kernel)

    def prepare(self, plan: Plan, way: str = "", devices: Sequence[Any] = ()) -> FakeExecutable:
        homes = [devices[home] for home in plan.homes] or [self] * plan.streams
        for device in devices or (self,):
            device._log_call("prepare", plan.program.name)
            steps = [s for s in plan.steps if isinstance(s, Launch) and homes[s.stream] is device]
            device.load(all_kernels_of_tasks([plan.tasks[s.task] for s in steps]))
        return FakeExecutable(self, plan, way, homes)

    def stream(self, priority: int = 0) -> FakeStream:
        return FakeStream(self, priority)

    def elapsed(self, start: FakeEvent, end: FakeEvent) -> float:
        """How many events were made in between."""
        return float(end.number - start.number)

    def synchronize(self) -> None:
        self.log.append(("synchronize",))
        for event in self.events:
            event.happen()
        self.events.clear()


class FakeStream:
    """A caller's stream: logs ("fork", handle, event), ("join", handle, event), ("record", ...) and ("wait", ...)."""

    capturing = False

    def __init__(self, device: FakeDevice, priority: int) -> None:
        self._device, self.priority = device, priority
        self.handle = next(device._numbers)
        self._tail: FakeEvent | None = None

    def _log_stream_call(self, what: str, event: FakeEvent) -> None:
        self._device.log.append((what, f"stream {self.handle}", event.number))

    def record(self) -> FakeEvent:
        made = self._device.event()
        self._log_stream_call("record", made)
        self._tail = made
        return made

    def wait(self, event: Any) -> None:
        self._log_stream_call("wait", event)
        self._tail = event

    def fork(self, after: list[tuple[int, Any]], buffers: int) -> tuple[Any, ...]:
        made = self._device.event()
        self._log_stream_call("fork", made)
        after.append((ENTRY, made))
        return ()

    def join(self, events: Sequence[Any], forked: tuple[Any, ...], kept: Sequence[Any]) -> None:
        for event in dict.fromkeys(events):
            self._log_stream_call("join", event)
            self._tail = event

    def query(self) -> bool:
        return self._tail is None or self._tail.query()

    def synchronize(self) -> None:
        self._device.log.append(("synchronize", f"stream {self.handle}"))
        if self._tail is not None:
            self._tail.happen()


class FakeExecutable(Executable):
    """Walks the plan's steps and logs each: launch with its task's name and argument values, record, wait.

    A launch is preceded by `("after", stream, event number)` for each event in `after` of a buffer that it touches.
    The launch of a loop is followed by those of its iterations, on the same stream; a flag in memory is never true.
    """

    def __init__(self, device: FakeDevice, plan: Plan, way: str = "", homes: Sequence[FakeDevice] = ()) -> None:
        """homes: the device of each stream."""
        self.device = device
        self.homes = homes or [device] * plan.streams
        self.plan = plan
        self.way = way
        self._roots = plan_boundary(plan).roots
        self._buffers_of_task = [{region.buffer for region in (*task.reads, *task.writes)} for task in plan.tasks]
        self._tasks = [(task, control_flow_bodies(task)) for task in plan.tasks]

    def run(
        self,
        memories: Sequence[Any],
        arena: Any,
        scalars: Sequence[Any],
        after: Sequence[tuple[int, Event]],
        meetings: Meetings | None = None,
    ) -> tuple[Event, ...]:
        device, plan = self.device, self.plan
        device.runs += 1
        if device.queued_time_of is not None:
            device.queued_microseconds += device.queued_time_of(plan, self.way)
        poison = SerialPoisonTracker(plan, poisoned_buffers_of_plan(plan, after))
        for place, step in enumerate(plan.steps):
            match step:
                case Launch(stream, number):
                    for buffer, event in after:
                        if buffer in self._buffers_of_task[number] or (buffer == ENTRY and place in self._roots):
                            self.homes[stream].log.append(("after", stream, getattr(event, "number", None)))
                    if poison and poison.is_poisoned(number):
                        continue
                    task, bodies = self._tasks[number]
                    addresses = memories
                    if arena is not None:
                        addresses = [m if o is None else arena + o for m, o in zip(memories, plan.offsets, strict=True)]
                    try:
                        self._log_launch(stream, task, bodies, addresses, scalars)
                    except BaseException as error:
                        poison.fail(number, serial_error_with_task_location(error, task, plan.program.name))
                case Record(stream, number):
                    self.homes[stream].log.append(("record", stream, number))
                case Wait(stream, number):
                    self.homes[stream].log.append(("wait", stream, number))
        return tuple(map(device.event, poison.output_errors()))

    def run_timed(
        self,
        memories: Sequence[Any],
        arena: Any,
        scalars: Sequence[Any],
        after: Sequence[tuple[int, Event]],
        waits: bool = False,
    ) -> tuple[tuple[Event, ...], FakeTiming]:
        events = self.run(memories, arena, scalars, after)
        if self.device.time_of is not None:
            return events, FakeTiming(events, self.device.time_of(self.plan, self.way))
        report = self.plan.report
        predicted = [c.predicted for c in report.candidates if c.name == report.chosen] if report else []
        return events, FakeTiming(events, predicted[0] if predicted else math.nan)

    def run_marked(
        self, memories: Sequence[Any], arena: Any, scalars: Sequence[Any], after: Sequence[tuple[int, Event]]
    ) -> tuple[tuple[Event, ...], tuple[tuple[Any, ...], float]]:
        events = self.run(memories, arena, scalars, after)
        return events, (events, self.device.queued_microseconds)

    def time_between_marks(self, first: tuple[Any, float], last: tuple[Any, float]) -> FakeTiming:
        return FakeTiming(last[0], last[1] - first[1])

    def _log_launch(
        self, stream: int, task: Task, bodies: Sequence[Plan], addresses: Sequence[Any], scalars: Sequence[Any]
    ) -> None:
        device = self.homes[stream]
        device.log.append(("launch", stream, task.name, self._argument_values(task, addresses, scalars)))
        copied = is_device_copy(self.plan.program, task) and device.count_call("copy")
        error = copied or device.count_call("launch") or device.count_call("work")
        if error is not None:
            raise error
        if bodies:
            run_control_flow(
                task,
                [self._log_iteration(stream, body) for body in bodies],
                FakeLoopDevice(),
                addresses,
                scalars,
            )

    def _log_iteration(self, stream: int, body: Plan) -> RunIteration:
        def log_body_launches(addresses: Sequence[Any], numbers: Sequence[Any]) -> None:
            for step in body.steps:
                if isinstance(step, Launch):
                    task = body.tasks[step.task]
                    self._log_launch(stream, task, control_flow_bodies(task), addresses, numbers)

        return log_body_launches

    def _argument_values(self, task: Task, addresses: Sequence[Any], scalars: Sequence[Any]) -> tuple[Any, ...]:
        """Addresses and numbers as a kernel would get them; an argument that refers to nothing raises IndexError."""
        values: list[Any] = []
        for argument in task.arguments:
            match argument:
                case Pointer(buffer, offset):
                    values.append(addresses[buffer] + offset)
                case Int(value):
                    values.append(value)
                case Scalar(index, _):
                    values.append(scalars[index])
                case Constant():
                    values.append(argument.number)
        return tuple(values)
