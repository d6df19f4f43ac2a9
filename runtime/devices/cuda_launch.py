"""One step of a plan made ready for a GPU: a kernel's argument block, laid out once, or a library call."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import replace
from struct import Struct, error
from typing import Any

import numpy as np

from ..errors import CompileError
from ..program import Int, Pointer, Scalar, Task, members
from .cuda_driver import SUCCESS, Driver, KernelNode, LaunchConfig

_FORMATS = {
    "bool": "?", "int8": "b", "int16": "h", "int32": "i", "int64": "q", "uint8": "B", "uint16": "H", "uint32": "I",
    "uint64": "Q", "float16": "e", "float32": "f", "float64": "d",
}  # fmt: skip
SLOT = 8


class KernelStep:
    """A launch whose addresses and scalars are written into one block at each call.

    The driver copies the block during the launch, so the next call may write it again; calls are made under a lock.
    """

    __slots__ = (
        *("_address", "_block", "_call", "_config", "_handle", "_pack", "_parameters", "_picks", "_scalars", "_slots"),
        *("buffers", "empty", "node", "node_address", "numbers"),
    )

    def __init__(self, driver: Driver, task: Task, kernel: int) -> None:
        count = len(task.arguments)
        self._block = ctypes.create_string_buffer(SLOT * max(1, count))
        start = ctypes.addressof(self._block)
        self._slots = (ctypes.c_void_p * max(1, count))(*(start + SLOT * i for i in range(count)))
        pointers = [a for a in task.arguments if isinstance(a, Pointer)]
        if list(task.arguments[: len(pointers)]) != pointers:
            raise CompileError(f"task {task.name}: pointers must come before numbers")
        self._picks = tuple((p.buffer, p.offset) for p in pointers)
        self._pack = Struct(f"={len(pointers)}Q").pack_into
        self._scalars: list[tuple[int, int, str]] = []
        for i, argument in enumerate(task.arguments):
            if isinstance(argument, Int):
                Struct("=q").pack_into(self._block, SLOT * i, argument.value)
            elif isinstance(argument, Scalar):
                self._scalars.append((SLOT * i, argument.index, argument.dtype))
        self.buffers = frozenset(p.buffer for p in pointers)
        self.numbers = bool(self._scalars)
        self.empty = 0 in task.grid
        self._config = LaunchConfig(*task.grid, *task.block)
        self._call = driver.launch
        self._address, self._parameters = ctypes.addressof(self._config), ctypes.addressof(self._slots)
        self._handle = kernel
        self.node = KernelNode(0, *task.grid, *task.block, 0, self._parameters, 0, kernel, 0)  # the same in a graph
        self.node_address = ctypes.addressof(self.node)

    def fill(self, addresses: Sequence[int], scalars: Sequence[Any]) -> None:
        """Write the call's addresses and scalars."""
        self._pack(self._block, 0, *[addresses[b] + o for b, o in self._picks])
        for offset, index, dtype in self._scalars:
            write_scalar(self._block, offset, scalars[index], dtype)

    def __call__(self, addresses: Sequence[int], scalars: Sequence[Any], stream: int) -> int:
        """Launch on a stream; the driver's result code."""
        if self.empty:
            return SUCCESS
        self._pack(self._block, 0, *[addresses[b] + o for b, o in self._picks])
        if self._scalars:
            self.fill(addresses, scalars)
        self._config.stream = stream
        code: int = self._call(self._address, self._handle, self._parameters, None)
        return code

    def picked(self, addresses: Sequence[int]) -> list[int]:
        """The pointers of a call."""
        return [addresses[b] + o for b, o in self._picks]


def in_one_block(task: Task) -> Task:
    """A packed task with the pointers of all members before their numbers, as `packed_ptx` reads them."""
    parts = members(task)
    if len(parts) == 1:
        return task
    every = [[isinstance(a, Pointer) for a in part.arguments] for part in parts]
    if any(sorted(flags, reverse=True) != flags for flags in every):
        raise CompileError(f"task {task.name}: pointers must come before numbers")
    arguments = [a for part in parts for a in part.arguments]
    return replace(task, arguments=tuple(sorted(arguments, key=lambda a: not isinstance(a, Pointer))))


def write_scalar(block: Any, offset: int, value: Any, dtype: str) -> None:
    """A number as `dtype` (NumPy's conversion where Python's is not exact enough)."""
    try:
        Struct("=" + _FORMATS[dtype]).pack_into(block, offset, value)
    except (KeyError, OverflowError, error, TypeError):
        with np.errstate(all="ignore"):
            raw = np.asarray(value).astype(dtype).tobytes()
        block[offset : offset + len(raw)] = raw


class HostStep:
    """A library call that the GPU has not: its regions come to the host, NumPy does it, the results go back.

    It waits for its stream, so it is right, not fast; `cuda_library.native_step` says what runs on the GPU.
    """

    empty = False

    def __init__(self, driver: Driver, task: Task, call: Callable[[Sequence[int]], None]) -> None:
        """call: `serial.host_call(task)`, which takes the address of every buffer."""
        self._driver, self._host = driver, call
        spans: dict[int, tuple[int, int]] = {}
        for region in (*task.reads, *task.writes):
            low, high = region.span
            if high > low:
                before = spans.get(region.buffer, (low, high))
                spans[region.buffer] = (min(low, before[0]), max(high, before[1]))
        self._spans = spans
        self._written = {w.buffer for w in task.writes}

    def __call__(self, addresses: Sequence[int], scalars: Sequence[Any], stream: int) -> int:
        driver = self._driver
        hosts: dict[int, Any] = {}
        places = [0] * len(addresses)
        for buffer, (low, high) in self._spans.items():
            hosts[buffer] = ctypes.create_string_buffer(high - low)
            place = ctypes.addressof(hosts[buffer])
            places[buffer] = place - low
            if code := int(driver.to_host(place, addresses[buffer] + low, high - low, stream)):
                return code
        if code := driver.synchronize_stream(stream):
            return int(code)
        self._host(places)
        for buffer in self._written & hosts.keys():
            low, high = self._spans[buffer]
            place = ctypes.addressof(hosts[buffer])
            if code := int(driver.to_device(addresses[buffer] + low, place, high - low, stream)):
                return code
        return int(driver.synchronize_stream(stream))
