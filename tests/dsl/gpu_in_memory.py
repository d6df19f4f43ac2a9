"""A GPU in memory that other libraries use too: their streams, their arrays, their captures. For `test_gpu_sharing`."""

from __future__ import annotations

import ctypes
import threading
from collections import defaultdict, deque
from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np

from kernelgraph import kernel_graph
from kernelgraph.dsl.interop import dlpack
from kernelgraph.runtime.devices.cuda import device as cuda
from tests.runtime.cuda_fake import FakeBlas, FakeContext, FakeDriver

NOT_CAPTURED = 905


ASKED = (
    *("launch", "record", "wait", "query", "query_stream", "synchronize_event", "synchronize_stream", "elapsed"),
    *("to_device", "to_host", "on_device", "launch_graph", "captures", "drain"),
)


def _one_at_a_time(lock: threading.RLock, call: Callable[..., Any]) -> Callable[..., Any]:
    def locked(*args: Any) -> Any:
        with lock:
            return call(*args)

    return locked


class SharedDriver(FakeDriver):
    """Knows the default streams, and captures that are not ours."""

    def __init__(self, context: FakeContext, rng: Any) -> None:
        super().__init__(context, rng)
        self.streams: Any = defaultdict(deque)
        self.making = 0
        self.gone: list[tuple[int, int]] = []
        self.mode = 0
        self.theirs: set[int] = set()  # streams that are not ours
        self.pace = "any order"
        lock = threading.RLock()
        for name in ASKED:  # several threads may
            setattr(self, name, _one_at_a_time(lock, getattr(self, name)))

    def drain(self, until: Callable[[], bool]) -> None:
        """As it is told to, the others' streams come last or first wherever there is a choice."""
        while not until():
            ready = [s for s, queue in [*self.streams.items()] if queue and self._can_go(queue[0])]
            assert ready, "a deadlock: every stream waits for an event that nothing records"
            theirs = [s for s in ready if s in self.theirs]
            ours = [s for s in ready if s not in self.theirs]
            some = {"they are slow": ours or theirs, "they are quick": theirs or ours}.get(self.pace, ready)
            _, function, _ = self.streams[self.rng.choice(some)].popleft()
            self.ticks += 1
            if function is not None:
                function()

    def captures(self, stream: int) -> tuple[int, int]:
        return 0, self.making if stream in self.capturing else 0

    def exchange_capture_mode(self, mode: int) -> int:
        before, self.mode = self.mode, mode
        return before

    def begin_capture(self, stream: int, mode: int) -> int:
        self.making = 77_000 + len(self.log)
        return super().begin_capture(stream, mode)

    def on_graph_destroyed(self, graph: int, argument: int, function: int) -> int:
        self.gone.append((argument, function))
        return 0

    def destroy_all(self) -> None:
        """The graphs die."""
        for argument, function in self.gone:
            ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(function)(argument)
        self.gone.clear()

    def wait(self, stream: int, event: int, flags: int) -> int:
        if stream in self.capturing and event not in self.marks:
            return NOT_CAPTURED
        return super().wait(stream, event, flags)


class SharedContext(FakeContext):
    def __init__(self, seed: int = 0, capacity: int = 1 << 30) -> None:
        super().__init__(seed, capacity)
        self._numbers = count(self._next + 1)
        self.driver = SharedDriver(self, self.driver.rng)

    def _handle(self) -> int:
        return next(self._numbers)


def device_on(context: FakeContext) -> cuda.CUDADevice:
    made = cuda.CUDADevice(0, context)
    made.blas = FakeBlas(context, made.pool.allocate)  # type: ignore[assignment]
    made.graph_replay_of_executable = lambda executable, way: None  # type: ignore[method-assign]
    return made


class Lender:
    """Another library: it has a stream, and puts work on it that is done late."""

    def __init__(self, context: SharedContext, handle: int | None = None) -> None:
        self.context, self.driver = context, context.driver
        self.handle: int = context.stream(False).handle if handle is None else handle
        self.driver.theirs.add(self.handle)

    def put(self, function: Callable[[], None]) -> None:
        self.driver._put(self.handle, "lender", function)

    def array(self, values: Any, order: str = "C") -> Theirs:
        """A new array, whose values come late; it is full of poison until then."""
        host = np.asarray(values)
        memory = self.context.allocate(max(1, host.nbytes) + 64)
        made = Theirs(self, memory, memory.data[: host.nbytes].view(host.dtype).reshape(host.shape, order=order))
        made.late(host)
        return made


class Theirs:
    """An array of the other library. view: how it lies in the device's memory."""

    def __init__(self, lender: Lender, memory: Any, view: np.ndarray[Any, Any], readonly: bool = False) -> None:
        self.lender, self.memory, self.view, self.readonly = lender, memory, view, readonly
        self.alive = 0

    def __getitem__(self, key: Any) -> Theirs:
        return type(self)(self.lender, self.memory, self.view[key], self.readonly)

    def late(self, values: Any) -> None:
        """Write values, when the stream comes to it."""
        kept = np.array(values)
        view = self.view
        self.lender.put(lambda: view.__setitem__(..., kept))

    def later(self, function: Callable[[np.ndarray[Any, Any]], None]) -> None:
        """Do something with the values, when the stream comes to it."""
        view = self.view
        self.lender.put(lambda: function(view))

    def tensor(self) -> dlpack.DLPackTensor:
        v = self.view
        return dlpack.DLPackTensor(v.ctypes.data, (2, 0), v.shape, v.strides, v.dtype, self.readonly)


class ByDlpack(Theirs):
    """Hands over by DLPack: the consumer's stream waits for ours."""

    handshakes = True

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None) -> Any:
        if self.handshakes and stream not in (-1, self.lender.handle):
            driver, event = self.lender.driver, self.lender.context.event().handle
            driver.record(event, self.lender.handle)
            driver.wait(1 if stream is None else stream, event, 0)
        self.alive += 1
        return dlpack.make_capsule(self.tensor(), max_version is not None, self._released)

    def _released(self) -> None:
        self.alive -= 1


class ByInterface(Theirs):
    """Hands over by the CUDA array interface: the consumer is told the stream."""

    version = 3

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        v = self.view
        found = {"shape": v.shape, "typestr": v.dtype.str, "data": (v.ctypes.data, self.readonly), "strides": v.strides}
        return found | {"version": self.version, "stream": None if self.lender.handle == 1 else self.lender.handle}


X = np.arange(12, dtype=np.float32).reshape(3, 4)


def function(device: str = "cuda") -> Any:
    """x -> 2 x + 1, decorated."""
    return kernel_graph(lambda x: x * 2 + 1, device=device)


def given(gpu: cuda.CUDADevice, kind: type[Theirs], values: Any = X, handle: int | None = None) -> Any:
    """An array of another library that has just begun to be written."""
    made = Lender(gpu.context, handle).array(values)
    return kind(made.lender, made.memory, made.view)
