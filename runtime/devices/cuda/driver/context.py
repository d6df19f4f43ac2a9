"""One GPU: its properties, streams, events and raw memory through cuda-core, and its kernels. Everything here is the
slow path.

The only file of the device, besides `compile.compile.py`, that knows cuda-core.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from ....core.errors import CompileError, KernelGraphError, OutOfMemory
from ....core.readable_text import byte_count_in_words
from ....core.settings import settings
from ....engine.engine import native_engine_thread_count
from .driver import CudaDriver
from .early_start import query_gpu_properties, start_cuda_context_early

INSTALL = "pip install '.[cuda]' in kernelgraph's folder"
OLDEST_DRIVER = (12, 0)
STACK_ROUNDING = 1024  # bytes of a thread


class DeviceNotFound(KernelGraphError, RuntimeError):
    """There is no such GPU, or what it takes to use it is missing. The message says which, and what to do."""


class Current(threading.local):
    """Which GPU is current in this thread: one fact for all of them, as it is one for the driver."""

    context: GpuDriverContext | None = None


_current = Current()


class GpuDriverContext:
    """GPU number `index`. Raises DeviceNotFound, saying what is missing."""

    def __init__(self, index: int) -> None:
        try:
            self.driver = CudaDriver()
        except OSError as error:
            raise DeviceNotFound(f"no NVIDIA driver was found ({error}); install one, or write device='cpu'") from None
        except AttributeError as error:
            raise DeviceNotFound(f"the NVIDIA driver is too old ({error}); install one for CUDA 12 or newer") from None
        if self.driver.version() < OLDEST_DRIVER:
            had, need = (".".join(map(str, v)) for v in (self.driver.version(), OLDEST_DRIVER))
            raise DeviceNotFound(f"the NVIDIA driver is for CUDA {had}; kernelgraph needs one for {need} or newer")
        starting = start_cuda_context_early(index)
        try:
            self.core: Any = import_module("cuda.core")
        except ImportError as error:
            raise DeviceNotFound(f"cuda-core is missing ({error}); run {INSTALL}") from None
        starting.join()
        try:
            self._device = self.core.Device(index)
            self._device.set_current()
        except Exception as error:
            raise DeviceNotFound(f"GPU {index} cannot be used: {error}") from None
        _current.context = self
        self.alone = self.driver.device_count() == 1  # no library can make another GPU current
        self.index, self.handle = index, self.driver.current_context()
        self._stack_size = self.driver.stack_size()
        self._memory = self._device.memory_resource
        self._side = self.stream(False)  # where memory is allocated
        self._pool = int(getattr(self._memory, "handle", 0) or 0)
        if self._pool:  # cuda-core has it keep all that it ever had
            self.driver.set_release_threshold(self._pool, settings.release_threshold)
        found = query_gpu_properties(index)
        if found is None:
            raise DeviceNotFound(f"GPU {index} cannot be used: the driver does not know it")
        self.properties = found

    @property
    def uuid(self) -> bytes:
        """What tells this GPU from all others."""
        return str(self._device.uuid).encode()

    def enter(self) -> None:
        """Make the GPU current in the calling thread. Where there are several, another library may have made one so."""
        if _current.context is not self or not (self.alone or self.driver.current_context() == self.handle):
            self._device.set_current()
            _current.context = self

    def stream(self, high: bool) -> Any:
        """A new stream (cuda-core's object; `int(stream.handle)` is the driver's). high: of a high priority."""
        self.enter()
        return self._device.create_stream(options=self.core.StreamOptions(priority=-1 if high else 0))

    def event(self) -> Any:
        """A new event without timing."""
        self.enter()
        return self._device.create_event()

    def timed_event(self) -> Any:
        """A new event that tells the time."""
        self.enter()
        code, handle = self.driver.create_event(0)
        if code:
            raise KernelGraphError(f"no event: {self.driver.describe(code)}")
        return SimpleNamespace(handle=handle)

    def kernel(self, cubin: bytes, name: str) -> tuple[int, int]:
        """The library that a cubin becomes, loaded, and the handle of its kernel. Raises CompileError."""
        self.enter()
        code, library = self.driver.load_library(cubin)
        function = 0
        if not code:
            code, function = self.driver.function_of(library, name)
            if code:
                self.driver.unload_library(library)
        if code:
            raise CompileError(f"the driver cannot load kernel {name}: {self.driver.describe(code)}", name)
        return library, function

    def unload(self, library: int) -> int:
        """Result code; nothing uses the library any more."""
        return int(self.driver.unload_library(library))

    def allocate(self, nbytes: int) -> Any:
        """Memory (`int(memory.handle)` is its address) that every stream may use at once. Raises OutOfMemory."""
        self.enter()
        try:
            buffer = self._memory.allocate(nbytes, stream=self._side)
            self._side.sync()
        except Exception as error:
            text = f"there are no {byte_count_in_words(nbytes)} on {self.properties.name}: {error}"
            raise OutOfMemory(text) from None
        return buffer

    def open_memory_to_peer(self, other: GpuDriverContext) -> bool:
        """Let another GPU reach this one's memory directly; whether it does. Else copies go through the host.

        The driver maps the whole pool, which can take seconds: once for each pair of GPUs."""
        self.enter()
        with suppress(Exception):
            if self._device.can_access_peer(other.index):
                self._memory.peer_accessible_by = {*self._memory.peer_accessible_by, other.index}
                return other.index in self._memory.peer_accessible_by
        return False

    def release(self, buffer: Any) -> None:
        """Give back memory that no launched work needs."""
        self.enter()
        buffer.close(self._side)

    def shrink_pool(self) -> None:
        """Make what was released the driver's again, for other libraries and processes."""
        self.enter()
        self._side.sync()
        if self._pool:
            self.driver.trim_pool(self._pool, 0)

    def local_bytes(self, function: int) -> int:
        """Bytes of its own that each thread of a kernel has in the GPU's memory."""
        return self.driver.local_bytes(function)

    def stack_bytes(self) -> int:
        """What the driver has taken for stacks of threads, beside the context's first ones."""
        self.enter()
        threads = self.properties.multiprocessors * self.properties.threads_per_multiprocessor
        return max(0, self.driver.stack_size() - self._stack_size) * threads

    def shrink_stacks(self, local: int) -> None:
        """Give back what stacks have grown by for kernels of so many local bytes; more is somebody's wish."""
        self.enter()
        if self._stack_size < self.driver.stack_size() <= local + STACK_ROUNDING:
            self.driver.set_stack_size(self._stack_size)

    def free_bytes_of_pool(self) -> int:
        """Bytes that the driver's pool keeps, and that nobody uses."""
        return self.driver.free_bytes_of_pool(self._pool) if self._pool else 0

    @property
    def copy_thread_count(self) -> int:
        """How many threads help with large copies."""
        return min(12, native_engine_thread_count() - 1)

    def pinned(self, nbytes: int) -> Any:
        """Page-locked host memory; `int(memory.handle)` is its address."""
        self.enter()
        try:
            return self.core.LegacyPinnedMemoryResource().allocate(nbytes)
        except Exception as error:
            text = f"there are no {byte_count_in_words(nbytes)} of page-locked memory: {error}"
            raise OutOfMemory(text) from None

    def synchronize(self) -> None:
        self.enter()
        self._device.sync()
