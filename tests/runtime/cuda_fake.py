"""A GPU in memory: stands where `driver.context.Context` does, runs kernel text, and nothing earlier than it must.

Work waits in its stream until somebody synchronises; then streams take turns at random, so what a plan forgets to
order goes wrong. Kernels run in the emulator of the compiler's tests, on memory that is poisoned at first.
"""

from __future__ import annotations

import ctypes
import random
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kernelgraph.runtime.core.errors import OutOfMemory
from kernelgraph.runtime.devices.cuda.driver.driver import IF, NOT_READY, SUCCESS, KernelNode, LaunchConfig
from kernelgraph.runtime.devices.cuda.libraries.product_ways import USUAL, ChosenProductWay, ProductWay
from kernelgraph.runtime.interpret.library_calls import numpy_matmul_with_epilogue
from kernelgraph.runtime.program.device import H200
from kernelgraph.runtime.program.program import Kernel
from tests.compiler.cuda_emulator import Pointer, run

UNJOINED = 904  # what was forked in a capture is not joined


@dataclass
class Handle:
    """An object of cuda-core: what matters is its handle."""

    handle: int
    data: Any = None


class FakeContext:
    """capacity: bytes of device memory. log: what was asked of the driver, as tuples."""

    def __init__(self, seed: int = 0, capacity: int = 1 << 30) -> None:
        self.properties = H200
        self.capacity, self.used = capacity, 0
        self.fragments = 0  # bytes that the driver's pool keeps
        self.stack_size = 0  # bytes that each thread has
        self.locked: list[tuple[int, Any]] = []  # pinned memory
        self.driver = FakeDriver(self, random.Random(seed))
        self.kernels: dict[int, Kernel] = {}  # loaded, by the function's handle
        self.libraries: dict[int, int] = {}  # and that by the library's
        self.memories: dict[int, np.ndarray[Any, Any]] = {}
        self.high: set[int] = set()  # streams of high priority
        self._next = 1000
        self.entered = 0

    def _handle(self) -> int:
        self._next += 1
        return self._next

    def enter(self) -> None:
        self.entered += 1

    handle, alone = 1, True

    reachable = True  # whether GPUs reach each other's memory

    def open_memory_to_peer(self, other: FakeContext) -> bool:
        self.driver.log.append(("open",))
        return self.reachable

    def stream(self, high: bool) -> Handle:
        made = Handle(self._handle())
        self.driver.streams[made.handle] = deque()
        if high:
            self.high.add(made.handle)
        return made

    def event(self) -> Handle:
        return Handle(self._handle())

    def timed_event(self) -> Handle:
        return Handle(self._handle())

    def kernel(self, code: Any, name: str) -> tuple[int, int]:
        assert code.name == name
        made = self._handle()
        self.kernels[made] = code
        self.libraries[library := self._handle()] = made
        return library, made

    def unload(self, library: int) -> int:
        """Of a kernel that nothing uses: no launch that is to come, and no graph that there is."""
        if code := self.driver._code("unload", library):
            return code
        kernel = self.libraries.pop(library)
        assert kernel not in self.driver.used(), f"{self.kernels[kernel].name} is unloaded while it is in use"
        del self.kernels[kernel]
        return SUCCESS

    def allocate(self, nbytes: int) -> Handle:
        if self.used + nbytes > self.capacity:
            raise OutOfMemory("full")
        self.used += nbytes
        raw = np.full(nbytes + 512, 0xA5, np.uint8)
        start = -raw.ctypes.data % 256
        data = raw[start : start + nbytes]
        self.memories[data.ctypes.data] = data
        return Handle(data.ctypes.data, data)

    def release(self, memory: Handle) -> None:
        self.used -= self.memories.pop(memory.handle).size

    def local_bytes(self, function: int) -> int:
        return 0

    def stack_bytes(self) -> int:
        return 1000 * self.stack_size

    def shrink_stacks(self, local: int) -> None:
        self.stack_size *= self.stack_size > local

    def free_bytes_of_pool(self) -> int:
        return self.fragments

    def shrink_pool(self) -> None:
        self.driver.log.append(("shrink",))

    def pinned(self, nbytes: int) -> Handle:
        data = np.zeros(nbytes, np.uint8)
        self.locked.append((data.ctypes.data, data))
        return Handle(data.ctypes.data, data)

    def synchronize(self) -> None:
        self.driver.drain(lambda: not any([*self.driver.streams.values()]))

    def pointer(self, address: int) -> Pointer:
        """Address of device memory -> the emulator's pointer. Raises LookupError outside of what is allocated."""
        starts = sorted(self.memories)
        start = starts[bisect_right(starts, address) - 1]
        data = self.memories[start]
        if not start <= address <= start + data.size:
            raise LookupError(f"{address:#x} is no device memory")
        return Pointer(data, address - start, hex(address))


class FakeDriver:
    """The functions of `driver.driver.CudaDriver`. An operation is (label, function or None, event or None)."""

    def __init__(self, context: FakeContext, rng: random.Random) -> None:
        self.context, self.rng = context, rng
        self.streams: dict[int, deque[tuple[str, Callable[[], None] | None, Any]]] = {}
        self.recorded: dict[int, int] = {}  # event -> how often
        self.happened: set[tuple[int, int]] = set()  # (event, which of its records)
        self.log: list[tuple[Any, ...]] = []
        self.ticks, self.when = 0, dict[int, int]()  # operations done, and how many when an event happened
        self.graphs: dict[int, list[FakeNode]] = {}  # graphs, and those made executable
        self.bodies: set[int] = set()  # graphs of conditional nodes
        self.functions: dict[int, dict[int, Callable[[], None]]] = {}  # of an executable graph, by node
        self.conditionals = True
        self.conditions: dict[int, int] = {}  # by handle of a conditional node
        self.handles: dict[int, list[int]] = {}  # of a graph, those of bodies in it too
        self.capturing: dict[int, set[FakeNode]] = {}  # stream -> the nodes that its next one follows
        self.into: dict[int, int] = {}  # stream -> the graph that it is captured into
        self.marks: dict[int, tuple[int, set[FakeNode]]] = {}  # by captured event: its graph, what it follows
        self.refuse: dict[str, int] = {}  # name of a call -> code of its next result
        self.events: dict[tuple[int, int], int] = {}  # by executable graph and node
        self.callbacks: list[Any] = []
        self.executable_bytes = 0

    def address(self, name: str) -> int:
        """As the driver's: of a C function that calls the one here."""
        word = ctypes.c_uint64
        function, count = {
            "cuGraphExecKernelNodeSetParams_v2": (self.update_kernel, 3), "cuGraphLaunch": (self.launch_graph, 2),
            "cuEventRecord": (self.record, 2), "cuCtxSetCurrent": (self.set_context, 1),
        }[name]  # fmt: skip
        made = ctypes.CFUNCTYPE(ctypes.c_int, *[word] * count)(function)
        self.callbacks.append(made)
        return ctypes.cast(made, ctypes.c_void_p).value or 0

    def set_context(self, context: int) -> int:
        return SUCCESS

    def _code(self, name: str, *details: Any) -> int:
        self.log.append((name, *details))
        return self.refuse.pop(name, SUCCESS)

    def memory_info(self) -> tuple[int, int]:
        return self.context.capacity - self.context.used - self.context.fragments, self.context.capacity

    def version(self) -> tuple[int, int]:
        return (13, 0)

    def describe(self, code: int) -> str:
        return f"CUDA error {code}"

    # what streams do

    def used(self) -> set[int]:
        """The kernels of what waits in streams, and of graphs."""
        functions: list[Any] = [function for queue in [*self.streams.values()] for _, function, _ in [*queue]]
        functions += [
            n.function for graph, nodes in [*self.graphs.items()] if graph not in self.bodies for n in [*nodes]
        ]
        functions += [function for executable in [*self.functions.values()] for function in executable.values()]
        for function in functions:
            functions += [node.function for node in self.graphs.get(getattr(function, "body", 0), ())]
        return {getattr(function, "kernel", 0) for function in functions}

    def drain(self, until: Callable[[], bool]) -> None:
        while not until():
            ready = [s for s, queue in [*self.streams.items()] if queue and self._can_go(queue[0])]
            assert ready, "a deadlock: every stream waits for an event that nothing records"
            queue = self.streams[self.rng.choice(ready)]
            _, function, _ = queue.popleft()
            self.ticks += 1
            if function is not None:
                function()

    def _can_go(self, operation: tuple[str, Any, Any]) -> bool:
        label, _, needs = operation
        return label != "wait" or needs in self.happened

    def _put(self, stream: int, label: str, function: Callable[[], None] | None, needs: Any = None) -> None:
        if stream in self.capturing:
            if function is not None:
                node = FakeNode(self.context._handle(), function, set(self.capturing[stream]))
                self.graphs[self.into[stream]].append(node)
                self.capturing[stream] = {node}
        else:
            self.streams[stream].append((label, function, needs))

    # graphs

    def on_graph_destroyed(self, graph: int, argument: int, function: int) -> int:
        return SUCCESS

    def exchange_capture_mode(self, mode: int) -> int:
        return mode

    def begin_capture(self, stream: int, mode: int) -> int:
        if code := self._code("begin_capture", stream):
            return code
        assert not self.capturing
        graph = self.context._handle()
        self.graphs[graph], self.handles[graph] = [], []
        self.capturing, self.into, self.marks = {stream: set()}, {stream: graph}, {}
        return SUCCESS

    def end_capture(self, stream: int) -> tuple[int, int]:
        graph, joined = self.into[stream], set()
        following = list(self.capturing[stream])
        while following:
            node = following.pop()
            if node not in joined:
                joined.add(node)
                following += node.pred
        for each in [s for s, g in [*self.into.items()] if g == graph]:
            del self.capturing[each], self.into[each]
        self.marks = {event: mark for event, mark in [*self.marks.items()] if mark[0] != graph}
        return (SUCCESS, graph) if joined == set(self.graphs[graph]) else (UNJOINED, 0)

    def captures(self, stream: int) -> tuple[int, int]:
        return SUCCESS, self.into.get(stream, 0)

    def is_capturing(self, stream: int) -> int:
        return int(self.captures(stream)[1] != 0)

    def capture_into(self, stream: int, graph: int) -> int:
        assert stream not in self.capturing and not self.graphs[graph]
        self.capturing[stream], self.into[stream] = set(), graph
        return self._code("capture_into")

    def conditional_handle(self, stream: int) -> tuple[int, int]:
        made = self.context._handle()
        self.handles[self.into[stream]].append(made)
        return self._code("conditional_handle"), made

    def add_conditional(self, stream: int, handle: int, kind: int) -> tuple[int, int]:
        if code := self._code("add_conditional", kind):
            return code, 0
        body = self.context._handle()
        self.graphs[body], self.handles[body] = [], self.handles[self.into[stream]]

        def go() -> None:
            while self.conditions[handle]:
                for node in self._order(self.graphs[body]):
                    node.function()
                if kind == IF:
                    break

        go.body = body  # type: ignore[attr-defined]
        self.bodies.add(body)
        self._put(stream, "conditional", go)
        return SUCCESS, body

    def _order(self, nodes: list[FakeNode]) -> Iterator[FakeNode]:
        done: set[FakeNode] = set()
        while len(done) < len(nodes):
            node = self.rng.choice([n for n in nodes if n not in done and n.pred <= done])
            yield node
            done.add(node)

    def captured_node(self, stream: int) -> tuple[int, int]:
        nodes = [node.handle for node in self.capturing[stream]]
        return (SUCCESS, nodes[0]) if len(nodes) == 1 else (NOT_READY, 0)

    def captured_nodes(self, stream: int) -> list[int]:
        return [node.handle for node in self.graphs[self.into[stream]]]

    def launch_of_node(self, node: int) -> tuple[bytes, tuple[bytes, ...]] | None:
        """Of a library's: each of its words is an argument, between others that do not move."""
        (found,) = [n for nodes in self.graphs.values() for n in nodes if n.handle == node]
        if not isinstance(function := found.function, LibraryKernel):
            return None
        words = [w.to_bytes(8, "little") for w in function.words]
        words += [(function.words[0] - function.words[1] & 255 << 32).to_bytes(8, "little")] * function.differences
        return bytes(KernelNode(function.number)), (b"12345", b"".join(words[:2]) + b"67", *words[2:])

    def instantiate(self, graph: int) -> tuple[int, int]:
        if code := self._code("instantiate"):
            return code, 0
        handle = self.context._handle()
        self.graphs[handle] = list(self.graphs[graph])
        self.functions[handle] = {node.handle: node.function for node in self.graphs[graph]}
        self.handles[handle] = self.handles[graph]
        return SUCCESS, handle

    def add_event(self, graph: int, follows: int, event: int) -> tuple[int, int]:
        if code := self._code("add_event"):
            return code, 0
        (before,) = [node for node in self.graphs[graph] if node.handle == follows]
        made = FakeNode(self.context._handle(), lambda: None, {before}, event)
        self.graphs[graph].append(made)
        return SUCCESS, made.handle

    def update_event(self, executable: int, node: int, event: int) -> int:
        self.events[executable, node] = event
        return self._code("update_event")

    def update_kernel(self, executable: int, node: int, parameters: int) -> int:
        given = KernelNode.from_address(parameters)
        before = self.functions[executable][node]
        if isinstance(before, LibraryKernel):
            assert given.function == before.number
            slots = (ctypes.c_void_p * len(before.words)).from_address(given.parameters)
            assert ctypes.string_at(slots[0], 5) == b"12345" and ctypes.string_at(slots[1] + 16, 2) == b"67"
            words = [*(ctypes.c_uint64 * 2).from_address(slots[1])]
            words += [ctypes.c_uint64.from_address(slot).value for slot in slots[2:]]
            self.functions[executable][node] = replace(before, words=words)
        else:
            self.functions[executable][node] = self._kernel(given.function, given, given.parameters)
        return self._code("update_kernel")

    def launch_graph(self, executable: int, stream: int) -> int:
        nodes, functions = self.graphs[executable], dict(self.functions[executable])
        for node in nodes:
            if node.event:
                functions[node.handle] = self._recorded(self.events[executable, node.handle])

        if code := self._code("launch_graph", stream):
            return code
        handles = self.handles[executable]
        self._put(stream, "graph", lambda: self.conditions.update(dict.fromkeys(handles, 0)))
        for node in self._order(nodes):
            self._put_node(stream, node, functions[node.handle])
        return SUCCESS

    def _put_node(self, stream: int, node: FakeNode, function: Callable[[], None]) -> None:
        self._put(stream, "graph", function)

    def destroy_executable(self, executable: int) -> int:
        del self.graphs[executable], self.functions[executable]
        return SUCCESS

    def destroy_graph(self, graph: int) -> int:
        del self.graphs[graph]
        return SUCCESS

    # the driver's calls

    def launch(self, config: int, kernel: int, parameters: int, extra: None) -> int:
        given = LaunchConfig.from_address(config)
        if code := self._code("launch", given.stream, self.context.kernels[kernel].name):
            return code
        self._put(given.stream, "launch", self._kernel(kernel, given, parameters))
        return SUCCESS

    def _kernel(self, kernel: int, given: Any, parameters: int) -> Callable[[], None]:
        """What a launch does: its arguments are read now."""
        grid = (given.grid_x, given.grid_y, given.grid_z)
        block = (given.block_x, given.block_y, given.block_z)
        found = self.context.kernels[kernel]
        options = dict(found.options)
        members = options.get("packed", 1)
        kinds = sorted(found.signature * members, key=lambda kind: kind != "ptr")
        words = 3 if "guarded" in options else 0
        kinds += ["i64"] * words
        slots = (ctypes.c_void_p * len(kinds)).from_address(parameters)
        arguments = [self._argument(kind, slot) for kind, slot in zip(kinds, slots, strict=True)]

        guard = arguments[len(kinds) - words :]
        del kinds[len(kinds) - words :], arguments[len(arguments) - words :]

        moves, given = options.get("advancing", ()), list(arguments)

        def go() -> None:
            if guard and not _holds(guard):
                return
            for i, move in enumerate(moves):
                arguments[i] = given[i] + move * ctypes.c_int64.from_address(guard[0] + 8).value
            if "ptx" in options:
                _TEXTS[options["ptx"]](self, arguments)
                return
            real = [self.context.pointer(a) if k == "ptr" else a for k, a in zip(kinds, arguments, strict=True)]
            pointers = kinds.count("ptr")
            for row in range(members):
                each = [_part(part, row, members) for part in (real[:pointers], real[pointers:])]
                run(found.source, found.name, (grid[0] // members, *grid[1:]), block, [*each[0], *each[1]])

        go.kernel = kernel  # type: ignore[attr-defined]
        return go

    def _argument(self, kind: str, slot: int) -> Any:
        raw = bytes((ctypes.c_char * 8).from_address(slot))
        if kind in ("ptr", "i64"):
            return int.from_bytes(raw, "little", signed=kind == "i64")
        dtype = np.dtype(kind)
        return np.frombuffer(raw[: dtype.itemsize], dtype)

    def is_pinned(self, address: int) -> bool:
        return any(start <= address < start + len(data) for start, data in self.context.locked)

    def record(self, event: int, stream: int) -> int:
        if code := self._code("record", stream, event):
            return code
        if stream in self.capturing:
            self.marks[event] = self.into[stream], set(self.capturing[stream])
            return SUCCESS
        self._put(stream, "record", self._recorded(event))
        return SUCCESS

    def _recorded(self, event: int) -> Callable[[], None]:
        """From now on the event stands for the moment when this is called."""
        count = self.recorded[event] = self.recorded.get(event, 0) + 1

        def go() -> None:
            self.happened.add((event, count))
            self.when[event] = self.ticks

        return go

    def query_stream(self, stream: int) -> int:
        return NOT_READY if self.streams[stream] else SUCCESS

    def elapsed(self, start: int, end: int) -> tuple[int, float]:
        """The number of operations in between."""
        return SUCCESS, float(self.when[end] - self.when[start])

    def wait(self, stream: int, event: int, flags: int) -> int:
        if code := self._code("wait", stream, event):
            return code
        if event in self.marks:
            self.into[stream], nodes = self.marks[event]
            self.capturing[stream] = self.capturing.get(stream, set()) | nodes
        elif event in self.recorded:
            self._put(stream, "wait", None, (event, self.recorded[event]))
        return SUCCESS

    def _done(self, event: int) -> bool:
        return event not in self.recorded or (event, self.recorded[event]) in self.happened

    def query(self, event: int) -> int:
        return self.refuse.get("query", SUCCESS) if self._done(event) else NOT_READY

    def synchronize_event(self, event: int) -> int:
        if "synchronize_event" in self.refuse:
            return self.refuse["synchronize_event"]
        self.drain(lambda: self._done(event))
        return SUCCESS

    def synchronize_stream(self, stream: int) -> int:
        if code := self._code("synchronize_stream", stream):
            return code
        self.drain(lambda: not self.streams[stream])
        return SUCCESS

    def _copy(self, name: str, to: int, source: int, nbytes: int, stream: int, early: bool) -> int:
        if code := self._code(name, stream, nbytes):
            return code
        kept = ctypes.string_at(source, nbytes) if early else None
        self._put(stream, name, lambda: ctypes.memmove(to, kept if kept is not None else source, nbytes) and None)
        return SUCCESS

    def to_device(self, to: int, source: int, nbytes: int, stream: int) -> int:
        pageable = nbytes <= 256 << 10 and not self.is_pinned(source)
        return self._copy("to_device", to, source, nbytes, stream, pageable)

    def to_host(self, to: int, source: int, nbytes: int, stream: int) -> int:
        return self._copy("to_host", to, source, nbytes, stream, False)

    def fill(self, to: int, byte: int, nbytes: int, stream: int) -> int:
        self._put(stream, "fill", lambda: ctypes.memset(to, byte, nbytes) and None)
        return self._code("fill", stream, nbytes)

    def to_peer(self, to: int, to_context: int, source: int, context: int, nbytes: int, stream: int) -> int:
        return self._copy("to_peer", to, source, nbytes, stream, False)

    def on_device(self, to: int, source: int, nbytes: int, stream: int) -> int:
        return self._copy("on_device", to, source, nbytes, stream, False)


@dataclass(eq=False)
class LibraryKernel:
    """A library's launch. words: addresses among its arguments."""

    number: int
    words: list[int]
    run: Callable[[list[int]], None]
    differences: bool = False  # whether it gets the distance of two of them too

    def __call__(self) -> None:
        self.run(self.words)


@dataclass(eq=False)
class FakeNode:
    """A node of a graph: what it does, and what it follows."""

    handle: int
    function: Callable[[], None]
    pred: set[FakeNode]
    event: int = 0  # that it records


def _part(values: list[Any], row: int, rows: int) -> list[Any]:
    each = len(values) // rows
    return values[row * each : (row + 1) * each]


def _copy_rows(driver: FakeDriver, arguments: list[int]) -> None:
    rows = len(arguments) // 3
    for i in range(rows):
        ctypes.memmove(arguments[2 * i], arguments[2 * i + 1], arguments[2 * rows + i])


def _write_table(driver: FakeDriver, arguments: list[int]) -> None:
    table, *words = arguments
    (ctypes.c_uint64 * len(words)).from_address(table)[:] = words


def _holds(guard: list[int]) -> bool:
    address, mask, want = (word & (1 << 64) - 1 for word in guard)
    return ctypes.c_uint64.from_address(address).value & mask == want


def _begin(driver: FakeDriver, arguments: list[int]) -> None:
    flags, byte, *guard = arguments
    first = int(ctypes.c_uint8.from_address(byte).value != 0) if _holds(guard) else 2
    ctypes.memmove(flags, bytes([first, *[1] * 7, *[0] * 8]), 16)


def _count(driver: FakeDriver, arguments: list[int]) -> None:
    flags, source, number, *guard = arguments
    left = max(0, ctypes.c_int64.from_address(source).value if source else number)
    words = (ctypes.c_int64 * 3).from_address(flags)
    words[0], words[1], words[2] = _flags(left) if _holds(guard) else 2, 0, left


def _advance(driver: FakeDriver, arguments: list[int]) -> None:
    words = (ctypes.c_int64 * 3).from_address(arguments[0])
    left = words[2] - arguments[1]
    words[0], words[1], words[2] = _flags(left), words[1] + arguments[1], left


def _flags(left: int) -> int:
    return int.from_bytes([int(i < left) for i in range(8)], "little")


def _decide(driver: FakeDriver, arguments: list[int]) -> None:
    *guard, handle = arguments
    driver.conditions[handle] = int(_holds(guard))


def _leave(driver: FakeDriver, arguments: list[int]) -> None:
    flags = ctypes.string_at(arguments[0], 8)
    rows = (len(arguments) - 1) // 4
    first = next((i for i in range(8) if flags[i] != 1), 8)
    for i in range(rows):
        target, source = arguments[1 + 2 * i : 3 + 2 * i]
        nbytes, mask = arguments[1 + 2 * rows + i], arguments[1 + 3 * rows + i]
        if flags[0] != 2 and mask >> first & 1:
            ctypes.memmove(target, source, nbytes)


_TEXTS: dict[str, Callable[[FakeDriver, list[int]], None]] = {
    "copy": _copy_rows, "table": _write_table, "begin": _begin, "decide": _decide, "leave": _leave,
    "count": _count, "advance": _advance,
}  # fmt: skip


def _relu(dtype: str) -> Callable[[FakeDriver, list[int]], None]:
    def go(driver: FakeDriver, arguments: list[int]) -> None:
        matrix, columns, rows, pitch, matrices, stride = arguments
        for row in (matrix + stride * i + pitch * j for i in range(matrices) for j in range(rows)):
            values = np.frombuffer((ctypes.c_char * (columns * np.dtype(dtype).itemsize)).from_address(row), dtype)
            values[...] = np.maximum(values, 0)

    return go


_TEXTS |= {f"relu_{dtype}": _relu(dtype) for dtype in ("float32", "float16", "bfloat16")}


class FakeBlas:
    """Matrix products by the numbers that cuBLAS would get. whole: whether it has kernels that keep NaN in a relu."""

    whole = True
    movable: bool | None = True  # whether captures tell where a product's kernel has its addresses; None: it moves more
    nbytes = handle_bytes = 0
    chosen: Mapping[int, tuple[ProductWay, str]] = {}  # by how many products are done together

    def __init__(self, context: FakeContext, allocate: Callable[[int], Any] | None = None) -> None:
        self.context, self.allocate = context, allocate

    def prepare(self, streams: Sequence[int]) -> list[Any]:
        return []

    def workspaces(self, streams: Sequence[int]) -> list[Any]:
        return []

    def trim(self) -> None:
        pass

    def can(self, call: Any) -> bool:
        return True

    def way(self, call: Any, predicted: float, count: int = 1) -> ChosenProductWay:
        return ChosenProductWay(*self.chosen.get(count, ()))

    def run(self, call: Any, addresses: tuple[int, ...], stream: int, way: ProductWay = USUAL) -> bool:
        if not self.whole and "relu" in call.epilogue:
            call = replace(call, epilogue=tuple(part for part in call.epilogue if part != "relu"))
            self._put(call, addresses, stream)
            return False
        self._put(call, addresses, stream)
        return True

    def _put(self, call: Any, addresses: tuple[int, ...], stream: int) -> None:
        def go(words: list[int]) -> None:
            self._product(replace(call, offsets=(0,) * len(words)), tuple(words))()

        places = [a + o for a, o in zip(addresses, call.offsets, strict=True)]
        kernel = LibraryKernel(7, places, go, self.movable is None)
        self.context.driver._put(stream, "matmul", (lambda: go(places)) if self.movable is False else kernel)

    def run_batch(self, call: Any, table: int, count: int, stream: int) -> None:
        def go() -> None:
            words = (ctypes.c_uint64 * (3 * count)).from_address(table)
            for i in range(count):
                self._product(replace(call, offsets=(0, 0, 0)), (words[i], words[count + i], words[2 * count + i]))()

        self.context.driver._put(stream, "batch", go)

    def _product(self, call: Any, addresses: tuple[int, ...]) -> Callable[[], None]:
        dtypes = [np.dtype(dtype) for dtype in (call.dtype, call.dtype, call.result)]
        starts: list[Any] = []
        (n, m, k) = call.shape

        def matrix(which: int, batch: int, rows: int, columns: int, transposed: bool) -> Any:
            """A column-major rows x columns operand (stored transposed if told so)."""
            dtype = dtypes[which]
            start = starts[which].origin + call.offsets[which] + batch * call.strides[which] * dtype.itemsize
            ld = call.leading[which] * dtype.itemsize
            shape, strides = ((rows, columns), (dtype.itemsize, ld))
            if transposed:
                strides = (ld, dtype.itemsize)
            assert call.leading[which] >= max(1, columns if transposed else rows)
            return np.ndarray(shape, dtype, starts[which].data, start, strides)

        def go() -> None:
            starts[:] = [self.context.pointer(a) for a in addresses]
            bias = [
                np.ndarray(n, dtypes[2], s.data, s.origin + o)
                for s, o in zip(starts[3:], call.offsets[3:], strict=True)
            ]
            for batch in range(call.batch):
                left = matrix(0, batch, n, k, call.operations[0] == 1)
                right = matrix(1, batch, k, m, call.operations[1] == 1)
                matrix(2, batch, n, m, False)[...] = numpy_matmul_with_epilogue(
                    right.T, left.T, dtypes[2], call.epilogue, *bias
                ).T

        return go
