"""The CUDA device: plans in, their steps run on an NVIDIA GPU's streams, events out."""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np

from ...core.allocators import Allocator
from ...core.errors import CompileError, DeviceLost, KernelGraphError, LaunchError, OutOfMemory
from ...core.frozen import replace
from ...core.profile import ProfileRecorder
from ...program.device import CommunicatorPeers, Device, DeviceCommunicator, GpuProperties
from ...program.plan import Plan, all_kernels_of_plan
from ...program.program import Kernel, Task, control_flow_bodies
from .compile.compile import compile_cubins, versions_of_numba_cuda_packages
from .driver.context import DeviceNotFound, GpuDriverContext
from .driver.driver import CAPTURE_RELAXED, LOST, SUCCESS
from .driver.events import CudaEvent, EventPool, is_cuda_context_lost
from .driver.streams import LEGACY, CapturedStreamResources, CudaStream
from .executable import CUDAExecutable
from .graphs.instances import GraphReplays
from .graphs.replay import (
    FIXED,
    GraphReplay,
    is_graph_of_devices_possible,
    is_graph_replay_worthwhile,
    is_replayable_as_graph,
)
from .libraries.cudnn import cudnn_of_gpu
from .libraries.handles import CublasHandles
from .libraries.steps import make_gpu_library_step
from .libraries.trial_clock import TrialClock
from .memory.pinned import PinnedHostPool
from .memory.pool import GpuMemoryPool
from .memory.transfer import GpuCopyEngine
from .modules.launch import KernelStep, pack_member_kernel_arguments
from .modules.modules import LoadedGpuModules, LoadedKernel
from .profile import CudaProfileMarks
from .timing import CudaTimedRunClock

STREAMS_WAY, REPLAY_WAY = "streams", "replay"
RECENT, SHOWN = 16, 8  # calls that a lost device can name, and steps that it does
TRIAL_PARTS = 16  # of the memory, one of which a library's trial may take
STREAMS = 8  # that calls rotate over; a wider plan adds more


class CUDADevice(Device):
    """GPU number `index`. All methods may be called from any thread. Raises DeviceNotFound.

    context: what stands between the device and the hardware; tests bring their own.
    """

    kind = "cuda"
    exchange = 2
    measures = True
    copies_later = True
    foreign_streams = True
    communicates = True

    def __init__(self, index: int = 0, context: Any = None) -> None:
        self.index = index
        self.context = context or GpuDriverContext(index)
        memory_info = self.context.driver.memory_info
        dnn = cudnn_of_gpu(self.context.properties.name, self.context.enter, memory_info)
        self.properties: GpuProperties = replace(self.context.properties, dnn=dnn)
        self.events = EventPool(self.context, self.failure)
        # of each of the last calls the event at its end, and the labels of its steps
        self.recent_launches: deque[tuple[CudaEvent, tuple[str, ...]]] = deque(maxlen=RECENT)
        self.pool = GpuMemoryPool(
            self._allocate_from_driver,
            self.context.release,
            self.context.synchronize,
            self.context.shrink_pool,
            self.properties.memory_bytes // 4,
            self.relaxed,
        )
        self.allocate = self.pool.allocate  # type: ignore[method-assign]
        self.statistics = self.pool.statistics  # type: ignore[method-assign]
        self.owns = self.pool.owns  # type: ignore[method-assign]
        self.blas = CublasHandles(
            self.pool.allocate,
            self.properties.memory_bytes,
            self.context.driver,
            lambda: self.new_stream(False),
            lambda: self.identity,
            dnn,
        )
        if dnn is not None:
            most = self.properties.memory_bytes // TRIAL_PARTS
            dnn.clock = TrialClock(self.context.driver, self.pool.allocate, lambda: self.new_stream(False), most)
        self.make_current = self.context.enter  # type: ignore[method-assign]
        self.is_capturing = self.context.driver.is_capturing  # type: ignore[method-assign, assignment]
        self.graphs = GraphReplays(self)
        self.captures = CapturedStreamResources(self)
        self.timed_events = EventPool(self.context, self.failure, timed=True)
        self.lost: DeviceLost | None = None
        self.marks: CudaProfileMarks | None = None  # while a profile is on
        self.modules = LoadedGpuModules(self.context, self._compile_kernels, self._events_after_all_launches)
        self._lock = threading.RLock()
        self._streams: dict[bool, list[int]] = {False: [], True: []}  # by priority
        self._urgent: set[int] = set()  # streams of callers of a high priority: what is under them has it too
        self._numbers: dict[int, int] = {}  # of streams of low priority
        self._objects: list[Any] = []
        self._spare: dict[bool, list[int]] = {False: [], True: []}  # streams that callers had
        self._handshake: CudaStream | None = None
        self._turn = 0
        self._peers: dict[Any, bool] = {}  # GPUs, and whether they reach the memory of this one
        self._communication = 0
        self._communicators: dict[tuple[Any, ...], DeviceCommunicator | None] = {}  # with other GPUs
        _devices.add(self)
        self._create_streams_for_calls(STREAMS)
        self.clock = CudaTimedRunClock(self.context, self.failure, self.new_stream(False), self._streams_with_launches)
        lanes = (self.new_stream(False), self.new_stream(False), self.new_stream(False))
        self._transfers = GpuCopyEngine(self.context, self.events, lanes, self.failure)
        self.pinned = PinnedHostPool(self.context)

    @property
    def identity(self) -> str:
        """What tells this GPU, its driver, what compiles for it and its libraries from others."""
        driver = ".".join(map(str, self.context.driver.version()))
        libraries = versions_of_numba_cuda_packages("cuda-bindings", "nvmath-python", "nvidia-cublas")
        return f"{self.properties}, driver {driver}, {libraries}"

    # memory

    @property
    def limit(self) -> int:
        """Bytes that the device may hold; 0: no limit."""
        return self.pool.limit.nbytes

    @limit.setter
    def limit(self, nbytes: int) -> None:
        self.pool.limit.own = nbytes

    def upload(self, host: np.ndarray[Any, Any], memory: Any) -> CudaEvent:
        self.context.enter()
        return self._transfers.upload(host, memory, False)

    def upload_later(self, host: np.ndarray[Any, Any], memory: Any) -> CudaEvent:
        self.context.enter()
        return self._transfers.upload(host, memory, True)

    def download(self, memory: Any, host: np.ndarray[Any, Any]) -> None:
        self.context.enter()
        self._transfers.download(memory.address, host)

    def read(self, memory: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """Device memory, already written, as a new host array."""
        self.context.enter()
        pinned = self.pinned.empty_for_result(shape, dtype)
        host = np.empty(shape, dtype) if pinned is None else pinned
        self._transfers.download(memory.address, host, pinned is not None)
        return host

    def read_later(
        self, memory: Any, shape: tuple[int, ...], dtype: np.dtype[Any], after: Any
    ) -> tuple[np.ndarray[Any, Any], CudaEvent]:
        self.context.enter()
        host = self.pinned.empty(shape, dtype)
        return host, self._transfers.download_later(memory, host, after)

    def pinned_empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        return self.pinned.empty(shape, dtype)

    def copy_from(self, source: Any, memory: Any, target: Any, nbytes: int, after: Any) -> CudaEvent:
        """On a stream of the source's, from GPU to GPU."""
        self.open_peer_memory(source)
        source.context.enter()
        copied: CudaEvent = source._transfers.to_peer(memory, target, self.context.handle, nbytes, after)
        return copied

    def open_peer_memory(self, other: Any) -> bool:
        """Let this GPU and another one reach each other's memory directly; whether they do. It is tried once."""
        pairs = [(one, another) for one, another in ((self, other), (other, self)) if one is not another]
        for one, another in pairs:
            if another not in one._peers:
                one._peers[another] = one.context.open_memory_to_peer(another.context)
        return all(one._peers[another] for one, another in pairs)

    def replays_plans_with(self, devices: Sequence[Any]) -> bool:
        alike = all(type(other) is type(self) and not other.pool.borrows for other in devices)
        return alike and all(self.open_peer_memory(other) for other in devices)

    # collectives

    @property
    def communication_stream(self) -> int:
        """The stream that all collectives of this device are on."""
        if not self._communication:
            self._communication = self.new_stream(True)
        return self._communication

    def communicator_with(self, others: Sequence[Any]) -> DeviceCommunicator | None:
        from .libraries.nccl import communicator_of_gpus

        key = tuple(others)
        if key not in self._communicators:
            self._communicators[key] = communicator_of_gpus((self, *others))
        return self._communicators[key]

    @property
    def communicator_address(self) -> bytes:
        from .libraries.nccl import nccl_library

        return b"" if nccl_library() is None else self.context.uuid

    def new_communicator_id(self) -> bytes:
        from .libraries.nccl import new_nccl_id

        return new_nccl_id()

    def join_communicator(self, id: bytes, rank: int, size: int, peers: CommunicatorPeers) -> DeviceCommunicator:
        from .libraries.nccl import communicator_of_rank

        return communicator_of_rank(self, id, rank, size, peers)

    @property
    def graph_bytes(self) -> int:
        return self.graphs.bytes_kept_by_graphs()

    def use_allocator(self, allocator: Allocator | None) -> None:
        if allocator is not None and any(self._peers.values()):
            raise KernelGraphError(
                f"kernels of other GPUs reach the memory of {self.kind}:{self.index}, and may not reach another "
                "allocator's; call use_allocator before the first call or copy on several GPUs"
            )
        stream = self.new_stream(False)
        self.pool.use_allocator(allocator, stream, lambda: self.context.driver.synchronize_stream(stream))

    def memory_by_owner(self) -> dict[str, int]:
        return {"graphs": self.graph_bytes, "workspaces": self.blas.nbytes}

    def memory_beside(self) -> dict[str, int]:
        pinned = self.pinned.pool.statistics()["reserved"]
        context = self.context
        on_gpu = {"code": self.modules.nbytes, "stacks": context.stack_bytes(), "libraries": self.blas.handle_bytes}
        on_gpu |= {"graph executables": context.driver.executable_bytes, "driver's pool": context.free_bytes_of_pool()}
        return {**on_gpu, "staging (host)": self._transfers.staging_bytes, "pinned (host)": pinned}

    def memory_at_rest(self) -> AbstractContextManager[Any]:
        return self.pool.at_rest()

    def system_memory(self) -> tuple[int, int] | None:
        self.context.enter()
        found: tuple[int, int] | None = self.context.driver.memory_info()
        return found

    def trim(self) -> int:
        """Give free memory back to the driver, and unload the kernels that nothing needs. The bytes given back."""
        self._transfers.let_go()
        self.captures.let_go()
        with self.relaxed(), self.graphs.lock:  # nobody captures a lane
            self.graphs.trim()
            self.modules.trim()
            self.blas.trim()
        self.pinned.pool.trim()
        return self.pool.trim()

    def _allocate_from_driver(self, nbytes: int) -> Any:
        """Memory of the driver's. Raises OutOfMemory, DeviceLost."""
        self.context.enter()
        try:
            return self.context.allocate(nbytes)
        except OutOfMemory:
            self._raise_if_lost("allocating")
            raise

    # kernels and plans

    @property
    def kernels(self) -> int:
        """How many are loaded."""
        return self.modules.count

    def load(self, kernels: Sequence[Kernel]) -> list[LoadedKernel]:
        """Compile or fetch from a cache what is not loaded. A kernel is as long as somebody holds it. Raises
        CompileError."""
        self.context.enter()
        try:
            return self.modules.load(kernels)
        except CompileError:
            self._raise_if_lost("loading a kernel")
            raise

    def _compile_kernels(self, kernels: Sequence[Kernel]) -> list[bytes]:
        return compile_cubins(kernels, self.properties.compute_capability)

    def _events_after_all_launches(self) -> tuple[CudaEvent, ...]:
        """Events after all that was launched so far."""
        return tuple(self.events.record(stream) for stream in self._streams_with_launches())

    def kernel_step_of_task(self, task: Task) -> KernelStep:
        """The launch of a task whose kernel may not be loaded yet."""
        assert isinstance(task.kernel, Kernel)
        return KernelStep(self.context.driver, task, *self.load([task.kernel]))

    def prepare(self, plan: Plan, way: str = "", devices: Sequence[Any] = ()) -> CUDAExecutable:
        """way: one of `ways`; empty: what the model finds better."""
        return CUDAExecutable(self, plan, way, devices)

    def ways(self, plan: Plan) -> tuple[str, ...]:
        """How a plan can be run, what the model finds better first. Raises CompileError."""
        loaded = self.load(all_kernels_of_plan(plan))  # at once; the runners hold them then
        if any(control_flow_bodies(task) for task in plan.tasks):  # the host counts the turns
            return (STREAMS_WAY,)
        runners = [self.runner(task) for task in plan.tasks]
        del loaded
        if not is_replayable_as_graph(runners, plan):
            return (STREAMS_WAY,)
        busy = [r for r in runners if not r.empty]
        if len(busy) < 2:  # one launch is a graph of its own, see `one_launch`
            return (REPLAY_WAY,) if busy and isinstance(busy[0], FIXED) else (STREAMS_WAY,)
        return (REPLAY_WAY, STREAMS_WAY) if is_graph_replay_worthwhile(plan, runners) else (STREAMS_WAY, REPLAY_WAY)

    def runner(self, task: Task) -> Any:
        """What does a task; None where only the host can."""
        if isinstance(task.kernel, Kernel):
            return self.kernel_step_of_task(pack_member_kernel_arguments(task))
        return make_gpu_library_step(self.context.driver, self.blas, task, self.kernel_step_of_task)

    def graph_replay_of_executable(self, executable: CUDAExecutable, way: str) -> GraphReplay | None:
        """The graph form of a plan, where that is the way or, without one, pays."""
        plan, runners, devices = executable.plan, executable.runners, executable.devices
        if way == STREAMS_WAY or not is_replayable_as_graph(runners, plan):
            return None
        if len(devices) > 1:
            pays = is_graph_of_devices_possible(plan, devices, runners)
        else:
            pays = way == REPLAY_WAY or is_graph_replay_worthwhile(plan, runners)
        return GraphReplay(executable) if pays else None

    def synchronize(self) -> None:
        """Wait for all work launched on the device. What failed raises where its arrays are read."""
        try:
            self.context.synchronize()
        except Exception as error:
            raise self._mark_lost(str(error)) from None
        self._transfers.let_go()

    # streams

    def streams_for_plan(self, high: Sequence[bool], after: Sequence[tuple[int, Any]]) -> list[int]:
        """Physical streams for a plan's. The first is that of the latest event to wait for, which then costs nothing;
        else calls take turns, so that independent ones overlap."""
        low, top = self._streams[False], self._streams[True]
        urgent = bool(self._urgent) and any(getattr(event, "stream", 0) in self._urgent for _, event in after)
        if len(low) < len(high):
            self._create_streams_for_calls(len(high))
        count, base = len(low), self._turn
        follows = [n for _, event in after if (n := self._numbers.get(getattr(event, "stream", 0))) is not None]
        if follows:
            base = follows[-1]
        else:
            self._turn = (base + len(high)) % count
        if len(high) == 1 and not (high[0] or urgent):
            return [low[base % count]]
        return [(top if is_high or urgent else low)[(base + s) % count] for s, is_high in enumerate(high)]

    def take_common_streams(self, count: int) -> list[int]:
        """At most so many streams for calls that wait for nothing. Others for the next who asks."""
        low = self._streams[False]
        first, count = self._turn, min(count, len(low))
        self._turn = (first + count) % len(low)
        return [low[(first + i) % len(low)] for i in range(count)]

    def is_common_stream(self, stream: int) -> bool:
        """Whether it is one of those that calls take turns on."""
        return stream in self._numbers

    def new_stream(self, high: bool) -> int:
        """The handle of a stream that lives as long as the device."""
        made = self.context.stream(high)
        self._objects.append(made)
        return int(made.handle)

    def stream(self, priority: int = 0) -> CudaStream:
        """A stream for a caller. priority: below 0 is high."""
        self.context.enter()
        spare = self._spare[priority < 0]
        handle = spare.pop() if spare else self.new_stream(priority < 0)
        if priority < 0:
            self._urgent.add(handle)
        return CudaStream(self, handle, priority, own=True)

    def return_stream(self, handle: int, priority: int) -> None:
        self._spare[priority < 0].append(handle)

    @property
    def handshake_stream(self) -> CudaStream:
        """A stream that other libraries make wait for what they hand over, and wait for."""
        if self._handshake is None:
            self._handshake = CudaStream(self, self.new_stream(False))
        return self._handshake

    def foreign_stream(self, handle: int, owner: Any = None) -> CudaStream:
        """Somebody's stream. handle: the driver's. 0 and 1 are the legacy default stream, 2 is the thread's own. owner:
        what keeps the handle valid."""
        return CudaStream(self, handle or LEGACY, owner=owner)

    def relaxed(self) -> AbstractContextManager[None]:
        """Within it this thread may do what a capture of somebody else's forbids."""
        return _relaxed_capture_on_cuda_device(self.context)

    def elapsed(self, start: CudaEvent, end: CudaEvent) -> float:
        """Milliseconds between two events of `CudaStream.record`; waits for them."""
        self.context.enter()
        start.wait()
        end.wait()
        code, found = self.context.driver.elapsed(start.handle, end.handle)
        if code != SUCCESS:
            raise self.failure(code, "reading the time")
        return found / 1e3

    def _streams_with_launches(self) -> list[int]:
        """The streams that work is launched on."""
        return [*self._streams[False], *self._streams[True], *self.graphs.streams()]

    def _create_streams_for_calls(self, count: int) -> None:
        with self._lock:
            for high, streams in self._streams.items():
                while len(streams) < count:
                    streams.append(self.new_stream(high))
            self._numbers = {handle: i for i, handle in enumerate(self._streams[False])}

    def profiled(self, recorder: ProfileRecorder) -> list[tuple[Any, str, Any]]:
        """Measure steps and copies from now on; what attributes were before, to be put back."""
        self.context.enter()
        before = [(self, "marks", None)]
        self.marks = CudaProfileMarks(recorder, self)
        return [*before, *self.marks.measure_copies()]

    def waits(self) -> list[tuple[Any, str]]:
        """What the host waits for the GPU with."""
        return [(CudaEvent, "wait")]

    # errors

    def after_fork(self) -> None:
        """In the child of a fork: the driver answers it nothing any more."""
        self.lost = lost = DeviceLost(
            f"GPU {self.index} ({self.properties.name}) cannot be used here: the process forked after its first use. "
            "Start processes with multiprocessing's 'spawn' method, or use the GPU in the child alone"
        )

        def refuse_after_fork() -> None:
            raise lost.with_traceback(None)

        self.context.enter = refuse_after_fork  # type: ignore[method-assign]  # to load code would end the process

    def failure(self, code: int, what: str) -> BaseException:
        """The exception for a driver's result code other than success."""
        words = self.context.driver.describe(code)
        if is_cuda_context_lost(code) or self.lost is not None:
            return self._mark_lost(f"{what}: {words}")
        return LaunchError(f"{what} failed: {words}")

    def lose(self, why: str) -> None:
        """What was put on the device cannot be trusted any more: all that has not ended yet fails."""
        self._mark_lost(why)
        for events in (self.events, self.timed_events):
            events.lost_code = min(LOST)

    def _raise_if_lost(self, what: str) -> None:
        """Raises DeviceLost where that is why something else failed."""
        code = self.context.driver.query_stream(self._streams[False][0]) if self._streams[False] else SUCCESS
        if self.lost is not None or is_cuda_context_lost(code):
            raise self.failure(code, what).with_traceback(None)

    def _mark_lost(self, why: str) -> DeviceLost:
        if self.lost is None:
            launches = [*self.recent_launches, *self.graphs.recent_launches()]
            steps = [step for end, steps in launches if not end.is_known_to_be_done for step in steps]
            more = f" and {len(steps) - SHOWN} more" if len(steps) > SHOWN else ""
            self.lost = DeviceLost(
                f"GPU {self.index} ({self.properties.name}) is lost to this process: {why}. Its arrays cannot be read; "
                "start a new process, with KERNELGRAPH_ENGINE=sync to see which step fails"
                + (f". It is one of {'; '.join(steps[:SHOWN])}{more}" if steps else "")
            )
        return self.lost


@contextmanager
def _relaxed_capture_on_cuda_device(context: Any) -> Iterator[None]:
    context.enter()
    before = context.driver.exchange_capture_mode(CAPTURE_RELAXED)
    try:
        yield
    finally:
        context.driver.exchange_capture_mode(before)


_devices: weakref.WeakSet[CUDADevice] = weakref.WeakSet()


def _mark_cuda_devices_lost_after_fork() -> None:
    for device in _devices:
        device.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_mark_cuda_devices_lost_after_fork)


__all__ = ["CUDADevice", "DeviceNotFound"]
