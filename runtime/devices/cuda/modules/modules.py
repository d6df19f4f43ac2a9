"""Kernels loaded on a GPU: machine code in, `LoadedKernel` objects out; code is unloaded when nobody holds its object,
and nothing that was launched before the last one let go of it is still running.

The driver waits for all that runs on the GPU before it loads code, and before it unloads any; threads that launch wait
too (measured on an H200; with nothing running, 40 and 10 us). So code is unloaded just before other code is loaded,
which waits anyway, and where somebody asks for memory back.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any
from weakref import ref

from ....program.program import Kernel

RECENT = 256  # kernels that stay loaded although nobody holds them

Compile = Callable[[Sequence[Kernel]], Sequence[bytes]]


class LoadedKernel:
    """A kernel that stays loaded as long as this object lives. function: the driver's handle, to launch it by."""

    __slots__ = ("__weakref__", "function")

    def __init__(self, function: int) -> None:
        self.function = function


class LoadedReference(ref[LoadedKernel]):
    """Leads to a loaded kernel while somebody holds it. What is called afterwards can give it to nobody any more, which
    its own `__del__` could: other threads find the object while that runs."""

    kernel: Kernel
    library: int


class LoadedGpuModules:
    """The kernels of one device. All methods may be called from any thread whose GPU it is."""

    def __init__(self, context: Any, compiled: Compile, launched: Callable[[], tuple[Any, ...]]) -> None:
        """compiled: machine code, where it is not loaded yet. launched: events after all work launched so far."""
        self._context, self._compiled, self._launched = context, compiled, launched
        self._alive: dict[Kernel, LoadedReference] = {}
        self._recent: OrderedDict[Kernel, LoadedKernel] = OrderedDict()  # used longest ago first
        self._dropped: deque[LoadedReference] = deque()  # of kernels that nobody holds; any thread adds to it
        self._leaving: deque[tuple[tuple[Any, ...], list[int]]] = deque()  # and those that may go after some events
        self._lock = threading.RLock()
        self.count = 0  # loaded
        self._sizes: dict[int, tuple[int, int]] = {}  # of their code and of a thread's own memory, by library
        self.local_bytes = 0  # the most that a thread had of its own, of what was loaded since stacks were given back

    def load(self, kernels: Sequence[Kernel]) -> list[LoadedKernel]:
        """Each kernel, compiled or fetched from a cache where it is not loaded. Raises CompileError."""
        with self._lock:
            found = {kernel: known() if (known := self._alive.get(kernel)) else None for kernel in kernels}
            missing = [kernel for kernel, loaded in found.items() if loaded is None]
            if missing:
                self._retire_unheld_libraries()
                codes = self._compiled(missing)
                self._unload_retired()
                for kernel, code in zip(missing, codes, strict=True):
                    found[kernel] = self._load_module(kernel, code)
            every = {kernel: loaded for kernel, loaded in found.items() if loaded is not None}
            for kernel, loaded in every.items():
                self._recent[kernel] = loaded
                self._recent.move_to_end(kernel)
            while len(self._recent) > RECENT:
                self._recent.popitem(last=False)
        return [every[kernel] for kernel in kernels]

    @property
    def nbytes(self) -> int:
        """Bytes of the machine code that is loaded."""
        return sum([code for code, _ in list(self._sizes.values())])

    def trim(self) -> None:
        """Unload all that nobody holds, once what runs is over."""
        with self._lock:
            self.forget_unheld_kernels()
            self._retire_unheld_libraries()
            for events, _ in self._leaving:
                for event in events:
                    with suppress(Exception):  # it stays with the arrays that it concerns
                        event.wait()
            self._unload_retired()
            self._context.shrink_stacks(self.local_bytes)
            self.local_bytes = max((local for _, local in self._sizes.values()), default=0)

    def forget_unheld_kernels(self) -> None:
        """Hold no kernels that nobody else does."""
        with self._lock:
            self._recent.clear()

    def _load_module(self, kernel: Kernel, code: bytes) -> LoadedKernel:
        library, function = self._context.kernel(code, kernel.name)
        self.count += 1
        self._sizes[library] = len(code) if isinstance(code, bytes) else 0, self._context.local_bytes(function)
        self.local_bytes = max(self.local_bytes, self._sizes[library][1])
        loaded = LoadedKernel(function)
        alive = self._alive[kernel] = LoadedReference(loaded, self._dropped.append)
        alive.kernel, alive.library = kernel, library
        return loaded

    def _retire_unheld_libraries(self) -> None:
        """Note after which events the libraries that nobody holds any more may go."""
        dropped = [self._dropped.popleft() for _ in range(len(self._dropped))]
        for one in dropped:
            if self._alive.get(one.kernel) is one:
                del self._alive[one.kernel]
        if dropped:
            self._leaving.append((self._launched(), [one.library for one in dropped]))

    def _unload_retired(self) -> None:
        """Unload what nothing uses any more."""
        while self._leaving:
            events, libraries = self._leaving[0]
            if not all(event.query() for event in events):
                return
            while libraries:
                if self._context.unload(libraries[-1]):
                    return  # not now: it is tried again
                self._sizes.pop(libraries.pop(), None)
                self.count -= 1
            self._leaving.popleft()
