"""The CPU device: plans in, their steps run on this machine's cores, events out.

Linux on x86-64 is the tested system. Where the native engine cannot be built, plans run serially in the caller.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from struct import error
from typing import Any, cast

import numpy as np

from ...codegen import llvm_jit
from ...codegen.llvm_jit import jit_vector_register_bytes, widest_vector_libm_of_cpu
from ...core import profile
from ...core.errors import CompileError, PlanError
from ...core.frozen import replace
from ...core.host_pool import HostMemoryPool, numpy_view_of_pool_block, system_memory_bytes
from ...core.settings import settings
from ...engine.deferred_interrupt import raise_error_of_signal_handler
from ...engine.direct_call import ARENA, Direct, DirectArgument, direct_call_table_packers, make_engine_direct_call
from ...engine.encode_plan import PlanLayout, encode_nested_plan, is_native_plan, split_engine_launch_into_chunks
from ...engine.engine import NativeEngine, engine_of_process, native_engine_functions, native_engine_thread_count
from ...engine.host_steps import make_engine_control_flow_call
from ...engine.run import (
    EngineDoneTiming,
    EngineEndsTiming,
    EngineFailedEvent,
    EngineRunEvent,
    EngineRunTiming,
    NativeRun,
    RunRecord,
    wait_for_all_runs,
)
from ...interpret.serial import (
    Call,
    SerialPoisonTracker,
    run_plan_serially,
    serial_calls_of_tasks,
    serial_error_with_task_location,
)
from ...program.collective import Collective
from ...program.device import DONE, Device, DoneEvent, Executable, Meetings, Timing, error_of_event
from ...program.plan import Branch, Launch, Loop, Plan, Wait, all_kernels_of_plan
from ...program.plan import Record as RecordStep
from ...program.program import (
    Buffer,
    Kernel,
    Library,
    Program,
    Region,
    Task,
    control_flow_bodies,
    packed_member_tasks,
)
from .profile import cpu_profile_spans_of_run, profile_cpu_task_calls
from .streams import CPUStream, CPUStreamEvent, milliseconds_between_cpu_events

WAKE_US = 40.0  # what it costs to hand a plan to a worker, and to wait for it
CALLER_US = 2e4  # of a plan that a caller who waits runs itself: longer ones see to signals on the way
COPY_BYTES_PER_US = 1e4  # of one core
COPIES = 256  # sizes of copies between CPU devices whose plans are kept
LOADED = 1024  # kernels that stay loaded although no plan needs them

Events = tuple[Any, ...]


class CPUExecutable(Executable):
    """A plan with its kernels loaded. `run` starts it once: see the protocol in `runtime/program/device.py`."""

    def __init__(self, device: CPUDevice, plan: Plan) -> None:
        _require_plan_the_cpu_can_run(plan)
        self.plan = plan
        self._device = device
        tasks = plan.tasks
        kernels = all_kernels_of_plan(plan)
        self._code = dict(zip(kernels, device.load(kernels), strict=True))  # the device may let go of it
        self._calls = [
            self._make_native_control_flow_call(t, call)
            for t, call in zip(tasks, serial_calls_of_tasks(plan, self._kernel_address), strict=True)
        ]
        self.cost = sum(t.cost for t in tasks)
        self.needs_python = not is_native_plan(plan)
        launched = [s.task for s in plan.steps if isinstance(s, Launch)]
        self._collectives = [t for t in launched if isinstance(tasks[t].kernel, Collective)]
        self._engine: NativeEngine | None = None
        self._timed: tuple[PlanLayout, list[RunRecord], list[tuple[int, int]]] | None = None
        self._layout: PlanLayout | None = None
        self._free: list[RunRecord] = []
        self._inline: Any = None
        self._place = 0
        self._pick: Callable[[Sequence[Any]], Sequence[Any]] = itemgetter(0, 0)
        self._completion: list[tuple[int, int]] = []
        self._pack = self._convert = direct_call_table_packers(0, ())[1]
        self._done = (DONE,) * len(plan.completion)
        cores = native_engine_thread_count()
        # all cores together save less than that; who waits for others does so beside the caller
        self._is_small = self.cost * (1 - 1 / max(2, cores)) < WAKE_US and not self._collectives
        shared = [t.cost for t in tasks if plan.streams > 1 or split_engine_launch_into_chunks(t, cores)[1] > 1]
        light = sum(shared) * (1 - 1 / cores) < WAKE_US and self.cost < CALLER_US
        bodies = [body for t in tasks for body in control_flow_bodies(t)]
        # what a signal handler raises as native code calls Python back is lost in the main thread
        self._suits_waiting_caller = light and all(map(is_native_plan, bodies))
        self._runs_inline = native_engine_functions() is not None and self._is_small and not self.needs_python
        if self._runs_inline:  # one Python call less
            self.run_and_wait = self.run  # type: ignore[method-assign]
        self._attach_to_engine()

    def _make_native_control_flow_call(self, task: Task, call: Call) -> Call:
        """What does a task, loops and branches natively."""
        looped = isinstance(task.kernel, (Loop, Branch))
        return (
            make_engine_control_flow_call(task, self._kernel_address, self.plan.program.name, call) if looped else call
        )

    def direct(self, taken: Sequence[DirectArgument], watched: Sequence[tuple[int, int]] = ()) -> Direct | None:
        """A function of what is taken that runs the plan in the caller: see `direct_call`. None where it cannot."""
        if not self._runs_inline or self._layout is None:
            return None
        stack = self.plan.arena_bytes if all(t.buffer != ARENA for t in taken) else 0
        return make_engine_direct_call(
            self._layout, taken, (self, self._engine), watched, self.plan.program.scalars, stack
        )

    def _kernel_address(self, kernel: Kernel) -> int:
        return self._code[kernel].functions[kernel.name]

    def _attach_to_engine(self) -> NativeEngine | None:
        """The process' engine (another one after a fork), for which the plan is laid out; None where there is none."""
        found = engine_of_process()
        if found is not None and self._engine is not found:
            layout = encode_nested_plan(self.plan, self._kernel_address, found)
            self._engine, self._layout, self._free = found, layout, []
            self._inline, self._place = found.native.inline, layout.plan
            self._completion = self._output_events(layout)
            columns = (*layout.order, -1) if layout.uses_arena else layout.order  # the arena stands behind the buffers
            self._pick = itemgetter(*columns) if len(columns) > 1 else lambda given: [given[i] for i in columns]
            self._pack, self._convert = direct_call_table_packers(len(columns), self.plan.program.scalars)
            self._timed = None
        return found

    def _output_events(self, layout: PlanLayout) -> list[tuple[int, int]]:
        """For each output its event's place in a run, and what that needs."""
        places = [layout.events[e] for e in self.plan.completion]
        return [(place, layout.needs.get(place, 0)) for place in places]

    def run(
        self,
        memories: Sequence[Any],
        arena: Any,
        scalars: Sequence[Any],
        after: Sequence[tuple[int, Any]],
        meetings: Meetings | None = None,
    ) -> Events:
        """In the caller's thread, by one native call where that does it. Else by the engine's threads."""
        if self._runs_inline and not after and settings.engine == "async":
            self._inline(self._place, self._call_table(memories, arena, scalars))  # after a fork as before
            return self._done
        if (recorder := profile.active) is not None:
            with recorder.host_span("launch", self.plan.program.name):
                return self._run_profiled_or_plain(memories, arena, scalars, after, recorder, meetings)
        return self._run_profiled_or_plain(memories, arena, scalars, after, None, meetings)

    def run_and_wait(
        self, memories: Sequence[Any], arena: Any, scalars: Sequence[Any], after: Sequence[tuple[int, Any]]
    ) -> Events:
        """In the caller's thread also where a plan takes long but other threads could not help with it."""
        suits = self._suits_waiting_caller and not after and settings.engine == "async"
        if suits and self._attach_to_engine() is not None:
            return self._run_stretches(memories, arena, scalars)
        return self.run(memories, arena, scalars, after)

    def _run_stretches(self, memories: Sequence[Any], arena: Any, scalars: Sequence[Any]) -> Events:
        """In the caller's thread, without the interpreter lock where steps are native."""
        assert self._engine is not None and self._layout is not None
        run, table = self._engine.native.inline_unlocked, self._call_table(memories, arena, scalars)
        addresses = self._buffer_addresses(memories, arena) if self.needs_python else ()
        poison = None
        for record, tasks in self._layout.stretches:
            if record and poison is None:
                if run(record, table):
                    raise_error_of_signal_handler()
                continue
            for task in tasks:
                if poison is not None and poison.is_poisoned(task):
                    continue
                try:
                    self._calls[task](addresses, scalars)
                except Exception as error:
                    poison = poison or SerialPoisonTracker(self.plan)
                    poison.fail(
                        task, serial_error_with_task_location(error, self.plan.tasks[task], self.plan.program.name)
                    )
        return self._done if poison is None else _events_of_errors(poison.output_errors())

    def _run_profiled_or_plain(
        self,
        memories: Sequence[Any],
        arena: Any,
        scalars: Sequence[Any],
        after: Sequence[tuple[int, Any]],
        recorder: profile.ProfileRecorder | None,
        meetings: Meetings | None,
    ) -> Events:
        mode = settings.engine
        native_engine = None if mode == "sync" else self._attach_to_engine()
        if mode != "chaos" and self._is_small and all([event.query() for _, event in after]):
            if mode == "async" and recorder is None and all([event is DONE for _, event in after]):
                if self._runs_inline:
                    return self.run(memories, arena, scalars, ())
                if native_engine is not None and self._suits_waiting_caller:
                    return self._run_stretches(memories, arena, scalars)
            native_engine = None
        if native_engine is None or not self.plan.steps or not native_engine.start():
            return self._run_serially(memories, arena, scalars, after, recorder, meetings)
        native_engine.set_chaos_mode(mode == "chaos")
        return self._submit_to_engine(native_engine, memories, arena, scalars, after, recorder, meetings)

    def _run_serially(
        self,
        memories: Sequence[Any],
        arena: Any,
        scalars: Sequence[Any],
        after: Sequence[tuple[int, Any]],
        recorder: profile.ProfileRecorder | None,
        meetings: Meetings | None,
    ) -> Events:
        """In the caller's thread, step by step: where a step needs Python, or somebody looks on."""
        calls = self._calls if recorder is None else profile_cpu_task_calls(recorder, self.plan, self._calls)
        poisoned = {buffer: error for buffer, event in after if (error := error_of_event(event)) is not None}

        def meet(task: int, error: BaseException | None) -> None:
            assert meetings is not None
            for event in meetings.start(task, None if error is None else DoneEvent(EngineFailedEvent(error))):
                event.wait()

        addresses = self._buffer_addresses(memories, arena)
        return _events_of_errors(run_plan_serially(self.plan, calls, addresses, scalars, poisoned, meet))

    def run_timed(
        self,
        memories: Sequence[Any],
        arena: Any,
        scalars: Sequence[Any],
        after: Sequence[tuple[int, Any]],
        waits: bool = False,
    ) -> tuple[Events, Timing]:
        """As `run`, and how long it takes. From now, or from the end of what it waits for, to its end."""
        found = self._engine
        active, begun = found.begun_and_ended_runs if found is not None else (0, 0)
        delayed = not all(event.query() for _, event in after)
        start = time.monotonic_ns()
        events = (self.run_and_wait if waits else self.run)(memories, arena, scalars, after)
        if events and isinstance(events[0], EngineRunEvent):
            return events, EngineRunTiming(events[0].run, 0 if delayed else start)
        took = (time.monotonic_ns() - start) / 1e3
        alone = found is None or (active == 0 and found.begun_and_ended_runs[1] == begun)
        failed = any(event.failure is not None for event in events)
        return events, EngineDoneTiming(took if alone and not delayed and not failed else math.nan)

    def run_marked(
        self, memories: Sequence[Any], arena: Any, scalars: Sequence[Any], after: Sequence[tuple[int, Any]]
    ) -> tuple[Events, NativeRun | None]:
        """As `run`, and what the engine has started, if it has."""
        events = self.run(memories, arena, scalars, after)
        return events, events[0].run if events and isinstance(events[0], EngineRunEvent) else None

    def time_between_marks(self, first: NativeRun | None, last: NativeRun | None) -> Timing:
        return EngineDoneTiming(math.nan) if first is None or last is None else EngineEndsTiming(first, last)

    def _submit_to_engine(
        self,
        native_engine: NativeEngine,
        memories: Sequence[Any],
        arena: Any,
        scalars: Sequence[Any],
        after: Sequence[tuple[int, Any]],
        recorder: profile.ProfileRecorder | None,
        meetings: Meetings | None,
    ) -> Events:
        """By the engine's threads; under a profile each step notes its times."""
        assert self._layout is not None
        layout, free, ends = self._layout, self._free, self._completion
        if recorder is not None:
            if self._timed is None:
                timed = encode_nested_plan(self.plan, self._kernel_address, native_engine, timed=True)
                self._timed = timed, [], self._output_events(timed)
            layout, free, ends = self._timed
        try:
            record = free.pop()
        except IndexError:
            record = RunRecord(layout)
        run = NativeRun(native_engine, record, free, self)
        if self.needs_python:
            native_engine.start_python_threads()
            run.addresses, run.scalars = self._buffer_addresses(memories, arena), scalars
        table = self._call_table(memories, arena, scalars)
        if meetings is None:
            run.start(layout, table, after)
        else:
            self._start_with_collectives(run, layout, table, after, meetings)
        if recorder is not None:
            recorder.read_device_times_at_end(
                partial(cpu_profile_spans_of_run, recorder, self.plan, layout, run, recorder.next_run())
            )
        return tuple(EngineRunEvent(run, place, needs) for place, needs in ends)

    def _start_with_collectives(
        self,
        run: NativeRun,
        layout: PlanLayout,
        table: bytes,
        after: Sequence[tuple[int, Any]],
        meetings: Meetings,
    ) -> None:
        """Each is to be done once the run has come to it; what follows it there waits for the promise of its end."""
        first = len(self.plan.program.buffers)
        promises = [(task, meetings.promise()) for task in self._collectives]
        run.start(layout, table, [*after, *((first + task, promise.event) for task, promise in promises)])
        for task, promise in promises:
            place = layout.meetings[first + task]
            meetings.start(task, EngineRunEvent(run, place, layout.needs[place]), promise)

    def host_step(self, task: int, addresses: Sequence[int], scalars: Sequence[Any]) -> None:
        """Do a task that needs Python: the engine's Python thread calls this."""
        try:
            self._calls[task](addresses, scalars)
        except BaseException as raised:
            raise serial_error_with_task_location(raised, self.plan.tasks[task], self.plan.program.name) from None

    def _buffer_addresses(self, memories: Sequence[Any], arena: Any) -> list[int]:
        return [(m if o is None else (arena or 0) + o) or 0 for m, o in zip(memories, self.plan.offsets, strict=True)]

    def _call_table(self, memories: Sequence[Any], arena: Any, scalars: Sequence[Any]) -> bytes:
        """The call's table: see `encode_plan`."""
        try:
            return self._pack(*self._pick((*memories, arena)), *scalars)
        except (error, OverflowError, TypeError):
            return self._convert(*self._pick((*memories, arena)), *scalars)


def _events_of_errors(errors: Sequence[BaseException | None]) -> Events:
    """What has happened, for each output."""
    return tuple(DONE if error is None else DoneEvent(EngineFailedEvent(error)) for error in errors)


def plan_of_one_cpu_copy(nbytes: int) -> Plan:
    """One step that copies so many bytes from its input to its output."""
    one = [Region(b, 0, (nbytes,), (1,), 1, "uint8") for b in (0, 1)]
    task = Task("copy", Library("copy"), (), (one[0],), (one[1],), cost=nbytes / COPY_BYTES_PER_US)
    program = Program((Buffer(nbytes, "input"), Buffer(nbytes, "output")), (task,), (0,), (1,), name="copy")
    return Plan(program, (Launch(0, 0), RecordStep(0, 0)), 1, 1, (None, None), 0, (0,))


def _require_plan_the_cpu_can_run(plan: Plan) -> None:
    """Every wait must follow its record, or it would never end; kernels here do one task each. Raises PlanError."""
    recorded = set()
    for step in plan.steps:
        if isinstance(step, RecordStep):
            recorded.add(step.event)
        elif isinstance(step, Wait) and step.event not in recorded:
            raise PlanError(f"{step}: no step before it records the event")
        elif isinstance(step, Launch) and plan.tasks[step.task].units < 0:
            raise PlanError(f"{step}: {plan.tasks[step.task].units} units")
        elif isinstance(step, Launch) and len(packed_member_tasks(plan.tasks[step.task])) > 1:
            raise PlanError(f"{step}: several tasks in one launch, on a CPU")


def _cpu_device_kernel_writer(kernel: Kernel) -> tuple[str, Callable[[], str], str]:
    """What decides a kernel's machine code, what writes its LLVM IR, and its name."""
    if not kernel.functions:
        return kernel.source, partial(str, kernel.source), kernel.name
    from ...codegen.numba_functions import link_numba_user_functions, machine_code_identity_of_functions

    given = kernel.source, kernel.functions
    return machine_code_identity_of_functions(*given), partial(link_numba_user_functions, *given), kernel.name


class CPUDevice(Device):
    """This machine's cores and memory. All methods may be called from any thread."""

    kind = "cpu"
    host_memory = True
    measures = overlaps = True
    exchange = 1

    @property
    def runs(self) -> int:  # type: ignore[override]
        """How many the engine was given."""
        found = engine_of_process()
        return 0 if found is None else found.latest

    def __init__(self, index: int = 0) -> None:
        self.index = index
        self.pool = HostMemoryPool()
        # the pool's own methods, one Python call less each
        self.allocate = self.pool.allocate  # type: ignore[method-assign]
        self.trim = self.pool.trim  # type: ignore[method-assign]
        self.statistics = self.pool.statistics  # type: ignore[method-assign]
        self.owns = self.pool.owns  # type: ignore[method-assign]
        self.use_allocator = self.pool.use_allocator  # type: ignore[method-assign]
        self._loaded: dict[Kernel, llvm_jit.MachineCode] = {}  # used longest ago first
        self._lock = threading.Lock()
        self._copies: dict[int, CPUExecutable] = {}  # by bytes

    @property
    def limit(self) -> int:
        """Bytes that the device may hold; 0: no limit."""
        return self.pool.limit.nbytes

    @limit.setter
    def limit(self, nbytes: int) -> None:
        self.pool.limit.own = nbytes

    def system_memory(self) -> tuple[int, int] | None:
        return system_memory_bytes()

    @property
    def kernels(self) -> int:
        """How many are loaded, beside those that plans hold."""
        return len(self._loaded)

    @property
    def identity(self) -> str:
        """What tells this machine, its libraries and the settings from others."""
        return f"cpu {llvm_jit.llvm_cache_key('')} {native_engine_thread_count()} threads"

    def upload(self, host: np.ndarray[Any, Any], memory: Any) -> DoneEvent:
        """Copy a C-contiguous host array into the start of `memory`."""
        numpy_view_of_pool_block(memory, host.dtype, host.shape)[...] = host
        return DONE

    def download(self, memory: Any, host: np.ndarray[Any, Any]) -> None:
        """Copy the start of `memory` into a C-contiguous host array."""
        host[...] = numpy_view_of_pool_block(memory, host.dtype, host.shape)

    def copy_from(self, source: Device, memory: Any, target: Any, nbytes: int, after: Any) -> Any:
        """Copy memory of another CPU device, as a plan of one step."""
        if (copy := self._copies.get(nbytes)) is None:
            if len(self._copies) >= COPIES:
                self._copies.clear()
            copy = self._copies[nbytes] = CPUExecutable(self, plan_of_one_cpu_copy(nbytes))
        return copy.run((memory.address, target.address), None, (), () if after is None else ((0, after),))[0]

    def load(self, kernels: Sequence[Kernel]) -> list[llvm_jit.MachineCode]:
        """The code of each kernel. It is compiled or fetched from the disk cache where it is not loaded yet. Code that
        was not asked for lately is let go of: it lives as long as an executable holds it. Raises CompileError."""
        found = {kernel: self._loaded.get(kernel) for kernel in kernels}
        missing = [kernel for kernel, code in found.items() if code is None]
        codes = llvm_jit.compile_llvm_ir_in_parallel([_cpu_device_kernel_writer(kernel) for kernel in missing])
        for kernel, code in zip(missing, codes, strict=True):
            if kernel.name not in code.functions:
                raise CompileError(f"the text of kernel {kernel.name} does not define @{kernel.name}", kernel.name)
        found.update(zip(missing, codes, strict=True))
        with self._lock:
            for kernel, one in found.items():
                self._loaded.pop(kernel, None)
                self._loaded[replace(kernel, form=None)] = cast(llvm_jit.MachineCode, one)
            while len(self._loaded) > LOADED:
                del self._loaded[next(iter(self._loaded))]
        return [cast(llvm_jit.MachineCode, found[kernel]) for kernel in kernels]

    def prepare(self, plan: Plan, way: str = "", devices: Sequence[Device] = ()) -> CPUExecutable:
        if plan.devices:  # a run is told where temporaries are
            plan = replace(plan, offsets=(None,) * len(plan.offsets), arena_bytes=0)
        return CPUExecutable(self, plan)

    def synchronize(self) -> None:
        """Wait until all work that has started is over. What failed raises where its arrays are read."""
        found = engine_of_process()
        if found is not None:
            wait_for_all_runs(found)

    def stream(self, priority: int = 0) -> CPUStream:
        """A stream for a caller. The priority changes nothing, since every core takes what comes first."""
        return CPUStream(priority)

    def elapsed(self, start: CPUStreamEvent, end: CPUStreamEvent) -> float:
        return milliseconds_between_cpu_events(start, end)

    @property
    def vector_bytes(self) -> int:
        """The width of a vector register that kernels may use here."""
        return jit_vector_register_bytes()

    @property
    def vector_library(self) -> str | None:
        """The widest vector mathematics that kernels may call here: `libmvec-avx512`, `libmvec-avx2` or None."""
        return widest_vector_libm_of_cpu()


__all__ = ["DONE", "CPUDevice", "CPUExecutable", "numpy_view_of_pool_block"]
