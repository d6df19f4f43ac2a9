"""Memory of somebody else's allocator in place of a pool's own: PyTorch's, CuPy's, RMM's, or any object's.

Such memory is kept by nobody here: a block goes back as soon as its Python object has died and another is asked for.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol

from .errors import KernelGraphError, OutOfMemory
from .readable_text import byte_count_in_words


class Allocator(Protocol):
    """What hands out memory. stream: the driver's handle of the stream that it is for; 0 on a CPU."""

    def allocate(self, nbytes: int, stream: int) -> int:
        """The address of so many bytes. Any exception says that there are none."""
        ...

    def free(self, pointer: int, nbytes: int, stream: int) -> None:
        """Take back what `allocate` has given; no work needs it any more."""
        ...


class Lender:
    """An allocator as one pool uses it. settled: returns when memory just given may be used on every stream."""

    def __init__(self, allocator: Allocator, alignment: int, stream: int = 0, settled: Callable[[], Any] = int) -> None:
        self.allocator, self.alignment, self.stream, self._settled = allocator, alignment, stream, settled
        self.held = 0  # bytes
        self.returned: deque[tuple[int, int]] = deque()  # blocks that died: any thread may be within the allocator then

    def allocate(self, nbytes: int) -> int:
        """Raises OutOfMemory, and KernelGraphError for an address that is of no use."""
        self.take_back()
        try:
            address = int(self.allocator.allocate(nbytes, self.stream))
        except Exception as error:
            text = f"{type(self.allocator).__name__} has no {byte_count_in_words(nbytes)}: {error}"
            raise OutOfMemory(text) from None
        if not address or address % self.alignment:
            self.allocator.free(address, nbytes, self.stream)
            raise KernelGraphError(
                f"{type(self.allocator).__name__}.allocate({nbytes}, {self.stream}) returned the address {address:#x}; "
                f"return one that is a multiple of {self.alignment}"
            )
        self._settled()
        self.held += nbytes
        return address

    def take_back(self) -> int:
        """Give the allocator what has died; the bytes."""
        released = 0
        while self.returned:
            try:
                address, nbytes = self.returned.popleft()
            except IndexError:  # another thread was faster
                break
            self.allocator.free(address, nbytes, self.stream)
            released += nbytes
        self.held -= released
        return released


class TorchAllocator:
    """PyTorch's caching allocator."""

    def __init__(self, index: int) -> None:
        self._cuda, self._index = import_module("torch").cuda, index

    def allocate(self, nbytes: int, stream: int) -> int:
        return int(self._cuda.caching_allocator_alloc(nbytes, self._index, stream))

    def free(self, pointer: int, nbytes: int, stream: int) -> None:
        self._cuda.caching_allocator_delete(pointer)


class CupyAllocator:
    """What `cupy.cuda.set_allocator` has set, CuPy's memory pool by default."""

    def __init__(self, index: int) -> None:
        self._cuda, self._index = import_module("cupy").cuda, index
        self._held: dict[int, Any] = {}  # memory lives as long as its object

    def allocate(self, nbytes: int, stream: int) -> int:
        with self._cuda.Device(self._index), self._cuda.ExternalStream(stream):
            memory = self._cuda.alloc(nbytes)
        self._held[memory.ptr] = memory
        return int(memory.ptr)

    def free(self, pointer: int, nbytes: int, stream: int) -> None:
        with self._cuda.Device(self._index), self._cuda.ExternalStream(stream):
            del self._held[pointer]


class RmmAllocator:
    """RMM's resource of the device: whatever `rmm.mr.set_per_device_resource` has set."""

    def __init__(self, index: int) -> None:
        self._resource = import_module("rmm.mr").get_per_device_resource(index)
        self._stream_type, self._numba = import_module("rmm.pylibrmm.stream").Stream, import_module("numba.cuda")

    def _stream(self, handle: int) -> Any:
        return self._stream_type(self._numba.external_stream(handle))

    def allocate(self, nbytes: int, stream: int) -> int:
        return int(self._resource.allocate(nbytes, self._stream(stream)))

    def free(self, pointer: int, nbytes: int, stream: int) -> None:
        self._resource.deallocate(pointer, nbytes, self._stream(stream))


LIBRARIES: dict[str, Callable[[int], Allocator]] = {"torch": TorchAllocator, "cupy": CupyAllocator, "rmm": RmmAllocator}

# what gives back the free GPU memory that a library keeps
_TRIMS: dict[str, Callable[[Any], Any]] = {
    "torch": lambda torch: torch.cuda.is_initialized() and torch.cuda.empty_cache(),
    "cupy": lambda cupy: cupy.get_default_memory_pool().free_all_blocks(),
}


def trim_gpu_caches_of_other_libraries() -> None:
    """Ask the libraries that are in use here for the GPU memory that they keep and do not need."""
    for name, trim in _TRIMS.items():
        if (library := sys.modules.get(name)) is not None:
            try:
                trim(library)
            except Exception:  # it keeps what it has
                continue
