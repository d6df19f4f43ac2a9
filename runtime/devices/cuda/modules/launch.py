"""One step of a plan made ready for a GPU. A kernel's argument block, laid out once, or a library call."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from math import prod
from operator import itemgetter
from struct import Struct, error
from typing import Any

import numpy as np

from ....core.errors import CompileError
from ....core.frozen import replace
from ....program.program import Constant, Int, Pointer, Scalar, Task, packed_member_tasks
from ..driver.driver import EXTRA_BLOCK, EXTRA_SIZE, SUCCESS, CudaDriver, KernelNode, LaunchConfig
from .modules import LoadedKernel

_FORMATS = {
    "bool": "?", "int8": "b", "int16": "h", "int32": "i", "int64": "q", "uint8": "B", "uint16": "H", "uint32": "I",
    "uint64": "Q", "float16": "e", "float32": "f", "float64": "d",
}  # fmt: skip
SLOT = 8
ALL_BITS = (1 << 64) - 1
Launched = tuple[bytes, tuple[bytes, ...]]  # see `CudaDriver.launch_of_node`


class KernelStep:
    """A launch whose addresses and scalars are written into one block at each call.

    The driver copies the block during the launch, so the next call may write it again; calls are made under a lock.
    The kernel stays loaded as long as the step lives: a graph that has its launch keeps it.
    """

    __slots__ = (
        *("_block", "_config", "_grid", "_handle", "_loaded", "_pack", "_pick", "_picks", "_scalars", "_slots"),
        *("address", "buffers", "call", "empty", "numbers", "parameters"),
    )

    def __init__(self, driver: CudaDriver, task: Task, loaded: LoadedKernel) -> None:
        count = len(task.arguments)
        self._block = ctypes.create_string_buffer(SLOT * max(1, count))
        start = ctypes.addressof(self._block)
        self._slots = _kernel_argument_block_slots(start, count)
        pointers = [a for a in task.arguments if isinstance(a, Pointer)]
        if list(task.arguments[: len(pointers)]) != pointers:
            raise CompileError(f"task {task.name}: pointers must come before numbers")
        self._picks = tuple((p.buffer, p.offset) for p in pointers)
        self._pack = Struct(f"={len(pointers)}Q").pack_into
        self._pick = _launch_address_picker(self._picks)
        self._scalars: list[tuple[int, int, str]] = []
        for i, argument in enumerate(task.arguments):
            if isinstance(argument, Int | Constant):
                Struct("=Q").pack_into(self._block, SLOT * i, argument.word)
            elif isinstance(argument, Scalar):
                self._scalars.append((SLOT * i, argument.index, argument.dtype))
        self.buffers = frozenset(p.buffer for p in pointers)
        self.numbers = bool(self._scalars)
        self.empty = 0 in task.grid
        self._grid = (*task.grid, *task.block)
        self._config = LaunchConfig(*self._grid)
        self.call = driver.launch
        self.address, self.parameters = ctypes.addressof(self._config), ctypes.addressof(self._slots)
        self._loaded, self._handle = loaded, loaded.function

    def __call__(self, addresses: Sequence[int], scalars: Sequence[Any], stream: int) -> int:
        """Launch on a stream; the driver's result code."""
        if self.empty:
            return SUCCESS
        self._pack(self._block, 0, *self._pick(addresses))
        for offset, index, dtype in self._scalars:
            write_kernel_scalar_argument(self._block, offset, scalars[index], dtype)
        self._config.stream = stream
        code: int = self.call(self.address, self._handle, self.parameters, 0)
        return code

    def node(
        self, handle: int, kept: Sequence[int], moved: dict[int, int], numbers: Sequence[int] | None = None
    ) -> KernelArgumentBlock:
        """The launch in a graph. kept: addresses. moved: the buffers that come with a call, and their places there.
        numbers: which of a call's numbers the launch's are, if not all in order."""
        block = ctypes.create_string_buffer(self._block.raw, len(self._block))
        slots = _kernel_argument_block_slots(ctypes.addressof(block), len(self._slots))
        parameters = KernelNode(self._handle, *self._grid, 0, ctypes.addressof(slots), 0, 0, 0)
        picks = [(moved.get(b), o if b in moved else kept[b] + o) for b, o in self._picks]
        scalars = self._scalars
        if numbers is not None:
            scalars = [(offset, numbers[index], dtype) for offset, index, dtype in scalars]
        return KernelArgumentBlock(handle, block, parameters, slots, self._pack, picks, scalars)


class KernelArgumentBlock:
    """A kernel node of a graph and its own block of arguments."""

    def __init__(
        self, handle: int, block: Any, parameters: KernelNode, slots: Any, pack: Any, picks: Any, scalars: Any
    ) -> None:
        self.handle, self.address, self._kept = handle, ctypes.addressof(parameters), (parameters, slots)
        self._block, self._pack, self._scalars = block, pack, scalars
        self._moved = all(place is None or o == 0 for place, o in picks)
        self._picks = picks
        self._known: Any = None

    def places(self, count: int, extra: list[int]) -> None:
        """Its fixed addresses go to the end of what is picked from: a call's memories (`count`), then `extra`."""
        if self._moved:
            numbers = []
            for place, address in self._picks:
                if place is None:
                    extra.append(address)
                numbers.append(count + len(extra) - 1 if place is None else place)
            self._pick = _launch_address_picker([(n, 0) for n in numbers])
        else:
            self._pick = lambda m: [o if place is None else m[place] + o for place, o in self._picks]

    def native_rows(self, order: Mapping[int, int], addresses: int) -> tuple[int, int, list[tuple[int, int, int]]]:
        """What `NativeDriverCalls.graph_record` takes of the node. order: which of a call's addresses that of each
        place is. addresses: how many there are; the words of the plan's numbers come behind them."""
        start = ctypes.addressof(self._block)
        rows = [(start + SLOT * i, order[p], add) for i, (p, add) in enumerate(self._picks) if p is not None]
        rows += [(start + offset, addresses + index, 0) for offset, index, _ in self._scalars]
        return self.handle, self.address, rows

    def fill_arguments(self, memories: Sequence[Any], scalars: Sequence[Any]) -> bool:
        """Write a call's addresses and numbers; whether they differ from those of the last call."""
        values = (self._pick(memories), repr(scalars)) if self._scalars else self._pick(memories)  # 0.0 is no -0.0
        if values == self._known:
            return False
        self._pack(self._block, 0, *(values[0] if self._scalars else values))
        for offset, index, dtype in self._scalars:
            write_kernel_scalar_argument(self._block, offset, scalars[index], dtype)
        self._known = values
        return True


class LibraryArgumentBlock(KernelArgumentBlock):
    """A node of a library's kernel and its own block of arguments."""

    def __init__(self, handle: int, launched: Launched, words: Sequence[tuple[int, int, int]]) -> None:
        """words: byte in the block, place of an address in a call, what is added to it."""
        config, arguments = launched
        parts = block_of_library_arguments(arguments)
        self._block = ctypes.create_string_buffer(b"".join(parts))
        start = ctypes.addressof(self._block)
        starts = [start + sum(map(len, parts[:i])) for i in range(len(parts))]
        self._slots = (ctypes.c_void_p * len(starts))(*starts)
        self._parameters = KernelNode.from_buffer_copy(config)
        if self._parameters.extra:  # all arguments are one block
            self._size = ctypes.c_size_t(len(arguments[0]))
            self._slots = (ctypes.c_void_p * 5)(EXTRA_BLOCK, start, EXTRA_SIZE, ctypes.addressof(self._size), None)
            self._parameters.extra = ctypes.addressof(self._slots)
        else:
            self._parameters.parameters = ctypes.addressof(self._slots)
        self.handle, self.address = handle, ctypes.addressof(self._parameters)
        self._words, self._known = [*words], None

    def places(self, count: int, extra: list[int]) -> None:
        """Its fixed addresses lie in its block."""

    def native_rows(self, order: Mapping[int, int], addresses: int) -> tuple[int, int, list[tuple[int, int, int]]]:
        start = ctypes.addressof(self._block)
        return self.handle, self.address, [(start + at, order[place], add) for at, place, add in self._words]

    def fill_arguments(self, memories: Sequence[Any], scalars: Sequence[Any]) -> bool:
        """Write a call's addresses; whether they differ from those of the last call."""
        values = [memories[place] + add & ALL_BITS for _, place, add in self._words]
        if values == self._known:
            return False
        for (at, *_), value in zip(self._words, values, strict=True):
            ctypes.c_uint64.from_buffer(self._block, at).value = value
        self._known = values
        return True


def block_of_library_arguments(arguments: Sequence[bytes]) -> list[bytes]:
    """Each in whole words."""
    return [argument + bytes(-len(argument) % SLOT) for argument in arguments]


def _kernel_argument_block_slots(start: int, count: int) -> Any:
    """The addresses of a block's arguments."""
    return (ctypes.c_void_p * max(1, count))(*(start + SLOT * i for i in range(count)))


def _launch_address_picker(picks: Sequence[tuple[int, int]]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """A function from the buffers' addresses to those at (buffer, offset)."""
    if len(picks) > 1 and not any(offset for _, offset in picks):
        return itemgetter(*(buffer for buffer, _ in picks))
    return lambda addresses: [addresses[b] + o for b, o in picks]


def pack_member_kernel_arguments(task: Task) -> Task:
    """A packed task, all members' pointers before their numbers, as `compile/entries.py` reads them."""
    parts = packed_member_tasks(task)
    if len(parts) == 1:
        return task
    every = [[isinstance(a, Pointer) for a in part.arguments] for part in parts]
    if any(sorted(flags, reverse=True) != flags for flags in every):
        raise CompileError(f"task {task.name}: pointers must come before numbers")
    arguments = [a for part in parts for a in part.arguments]
    return replace(task, arguments=tuple(sorted(arguments, key=lambda a: not isinstance(a, Pointer))))


def write_kernel_scalar_argument(block: Any, offset: int, value: Any, dtype: str) -> None:
    """A number as `dtype` (NumPy's conversion where Python's is not exact enough)."""
    try:
        Struct("=" + _FORMATS[dtype]).pack_into(block, offset, value)
    except (KeyError, OverflowError, error, TypeError):
        with np.errstate(all="ignore"):
            raw = np.asarray(value).astype(dtype).tobytes()
        block[offset : offset + len(raw)] = raw


def words_of_kernel_scalars(values: Sequence[Any], dtypes: Sequence[str]) -> list[int]:
    """A plan's numbers as natively launched graphs get them."""
    block = ctypes.create_string_buffer(SLOT * len(dtypes))
    for i, (value, dtype) in enumerate(zip(values, dtypes, strict=True)):
        write_kernel_scalar_argument(block, SLOT * i, value, dtype)
    return [*Struct(f"={len(dtypes)}Q").unpack(block.raw)]


def are_kernel_scalars_of_plan(tasks: Sequence[Task], dtypes: Sequence[str]) -> bool:
    """Whether all kernels take a plan's numbers with the dtypes that these have there, each in one word."""
    arguments = (a for task in tasks for part in packed_member_tasks(task) for a in part.arguments)
    return all(d in _FORMATS for d in dtypes) and all(
        a.dtype == dtypes[a.index] for a in arguments if isinstance(a, Scalar)
    )


class NumpyHostStep:
    """A library call that the GPU has not: what it reads comes to the host, NumPy does it, the results go back; so does
    what lies between the elements of a result.

    It waits for its stream, so it is right, not fast; `libraries.steps.native_step` says what runs on the GPU.
    """

    empty = False

    def __init__(self, driver: CudaDriver, task: Task, calls: Sequence[Callable[[Sequence[int]], None]]) -> None:
        """calls: `serial.host_call` of the task's members, each of which takes the address of every buffer."""
        self._driver, self._calls = driver, calls
        spans: dict[int, tuple[int, int]] = {}
        for region in (*task.reads, *task.writes):
            low, high = region.span
            if high > low:
                before = spans.get(region.buffer, (low, high))
                spans[region.buffer] = (min(low, before[0]), max(high, before[1]))
        self._spans = spans
        self._written = {w.buffer for w in task.writes}
        whole = {
            w.buffer for w in task.writes if spans.get(w.buffer) == (w.offset, w.offset + prod(w.shape) * w.itemsize)
        }
        self._brought = (spans.keys() - whole) | {r.buffer for r in task.reads}

    def __call__(self, addresses: Sequence[int], scalars: Sequence[Any], stream: int) -> int:
        hosts: dict[int, Any] = {}
        refused = self._copy_and_call_steps(addresses, hosts, stream)
        ended = int(self._driver.synchronize_stream(stream))  # until then, copies use `hosts`
        return ended or refused

    def _copy_and_call_steps(self, addresses: Sequence[int], hosts: dict[int, Any], stream: int) -> int:
        driver = self._driver
        places = [0] * len(addresses)
        for buffer, (low, high) in self._spans.items():
            hosts[buffer] = ctypes.create_string_buffer(high - low)
            place = ctypes.addressof(hosts[buffer])
            places[buffer] = place - low
            if buffer not in self._brought:
                continue
            if code := int(driver.to_host(place, addresses[buffer] + low, high - low, stream)):
                return code
        if code := driver.synchronize_stream(stream):
            return int(code)
        for call in self._calls:
            call(places)
        for buffer in self._written & hosts.keys():
            low, high = self._spans[buffer]
            place = ctypes.addressof(hosts[buffer])
            if code := int(driver.to_device(addresses[buffer] + low, place, high - low, stream)):
                return code
        return SUCCESS
