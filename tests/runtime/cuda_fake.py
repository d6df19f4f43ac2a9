"""A GPU in memory: stands where `cuda_context.Context` does, runs kernel text, and nothing earlier than it must.

Work waits in its stream until somebody synchronises; then streams take turns at random, so what a plan forgets to
order goes wrong. Kernels run in the emulator of the compiler's tests, on memory that is poisoned at first.
"""

from __future__ import annotations

import ctypes
import random
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelgraph.runtime.devices.cuda_driver import NOT_READY, SUCCESS, LaunchConfig
from kernelgraph.runtime.devices.cuda_properties import H200
from kernelgraph.runtime.errors import OutOfMemory
from kernelgraph.runtime.program import Kernel
from tests.compiler.cuda_emulator import Pointer, run


@dataclass
class Handle:
    """An object of cuda-core: what matters is its handle."""

    handle: int
    data: Any = None


@dataclass
class Stream(Handle):
    """cuda-core's stream, as far as captures need it: what is put on it in between becomes a graph of its own."""

    def create_graph_builder(self) -> Stream:
        return self

    def begin_building(self, mode: str) -> None:
        assert mode == "thread_local" and not self.data.streams[self.handle]

    def end_building(self) -> None:
        self.graph_definition = [function for _, function, _ in self.data.streams[self.handle]]
        self.data.streams[self.handle].clear()


class FakeContext:
    """capacity: bytes of device memory. log: what was asked of the driver, as tuples."""

    def __init__(self, seed: int = 0, capacity: int = 1 << 30) -> None:
        self.properties = H200
        self.capacity, self.used = capacity, 0
        self.driver = FakeDriver(self, random.Random(seed))
        self.kernels: dict[int, Kernel] = {}
        self.memories: dict[int, np.ndarray[Any, Any]] = {}
        self._next = 1000
        self.entered = 0

    def _handle(self) -> int:
        self._next += 1
        return self._next

    def enter(self) -> None:
        self.entered += 1

    def stream(self, high: bool) -> Stream:
        made = Stream(self._handle(), self.driver)
        self.driver.streams[made.handle] = deque()
        return made

    def event(self) -> Handle:
        return Handle(self._handle())

    def kernel(self, code: Any, name: str) -> Handle:
        assert code.name == name
        made = Handle(self._handle())
        self.kernels[made.handle] = code
        return made

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

    def pinned(self, nbytes: int) -> Handle:
        data = np.zeros(nbytes, np.uint8)
        return Handle(data.ctypes.data, data)

    def synchronize(self) -> None:
        self.driver.drain(lambda: not any(self.driver.streams.values()))

    def pointer(self, address: int) -> Pointer:
        """Address of device memory -> the emulator's pointer. Raises LookupError outside of what is allocated."""
        starts = sorted(self.memories)
        start = starts[bisect_right(starts, address) - 1]
        data = self.memories[start]
        if not start <= address <= start + data.size:
            raise LookupError(f"{address:#x} is no device memory")
        return Pointer(data, address - start, hex(address))


class FakeDriver:
    """The functions of `cuda_driver.Driver`. An operation is (label, function or None, event or None)."""

    def __init__(self, context: FakeContext, rng: random.Random) -> None:
        self.context, self.rng = context, rng
        self.streams: dict[int, deque[tuple[str, Callable[[], None] | None, Any]]] = {}
        self.recorded: dict[int, int] = {}  # event -> how often
        self.happened: set[tuple[int, int]] = set()  # (event, which of its records)
        self.log: list[tuple[Any, ...]] = []
        self.refuse: dict[str, int] = {}  # name of a call -> code of its next result

    def _code(self, name: str, *details: Any) -> int:
        self.log.append((name, *details))
        return self.refuse.pop(name, SUCCESS)

    def describe(self, code: int) -> str:
        return f"CUDA error {code}"

    # what streams do

    def drain(self, until: Callable[[], bool]) -> None:
        while not until():
            ready = [s for s, queue in self.streams.items() if queue and self._can_go(queue[0])]
            assert ready, "a deadlock: every stream waits for an event that nothing records"
            queue = self.streams[self.rng.choice(ready)]
            _, function, _ = queue.popleft()
            if function is not None:
                function()

    def _can_go(self, operation: tuple[str, Any, Any]) -> bool:
        label, _, needs = operation
        return label != "wait" or needs in self.happened

    def _put(self, stream: int, label: str, function: Callable[[], None] | None, needs: Any = None) -> None:
        self.streams[stream].append((label, function, needs))

    # the driver's calls

    def launch(self, config: int, kernel: int, parameters: int, extra: None) -> int:
        given = LaunchConfig.from_address(config)
        grid = (given.grid_x, given.grid_y, given.grid_z)
        block = (given.block_x, given.block_y, given.block_z)
        found = self.context.kernels[kernel]
        if code := self._code("launch", given.stream, found.name):
            return code
        slots = (ctypes.c_void_p * len(found.signature)).from_address(parameters)
        arguments = [self._argument(kind, slot) for kind, slot in zip(found.signature, slots, strict=True)]

        def go() -> None:
            given = zip(found.signature, arguments, strict=True)
            run(found.source, found.name, grid, block, [self.context.pointer(a) if k == "ptr" else a for k, a in given])

        self._put(given.stream, "launch", go)
        return SUCCESS

    def _argument(self, kind: str, slot: int) -> Any:
        raw = bytes((ctypes.c_char * 8).from_address(slot))
        if kind in ("ptr", "i64"):
            return int.from_bytes(raw, "little", signed=kind == "i64")
        dtype = np.dtype(kind)
        return np.frombuffer(raw[: dtype.itemsize], dtype)

    def record(self, event: int, stream: int) -> int:
        if code := self._code("record", stream, event):
            return code
        count = self.recorded[event] = self.recorded.get(event, 0) + 1
        self._put(stream, "record", lambda: self.happened.add((event, count)))
        return SUCCESS

    def wait(self, stream: int, event: int, flags: int) -> int:
        if code := self._code("wait", stream, event):
            return code
        if event in self.recorded:
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
        pageable = nbytes <= 256 << 10
        return self._copy("to_device", to, source, nbytes, stream, pageable)

    def to_host(self, to: int, source: int, nbytes: int, stream: int) -> int:
        return self._copy("to_host", to, source, nbytes, stream, False)

    def on_device(self, to: int, source: int, nbytes: int, stream: int) -> int:
        return self._copy("on_device", to, source, nbytes, stream, False)


class FakeNode:
    """A node of a graph: what it does, and what it follows."""

    def __init__(self, function: Callable[[], None]) -> None:
        self.function = function
        self.pred: set[FakeNode] = set()


class FakeGraphs:
    """The modules `cuda.core` and `cuda.core.graph`. A launched graph runs its nodes in any order that edges allow."""

    def __init__(self, context: FakeContext) -> None:
        self.context = context
        self.launches = self.updates = 0

    def LaunchConfig(self, grid: Any, block: Any) -> Any:
        return (grid, block)

    def GraphDefinition(self) -> FakeDefinition:
        return FakeDefinition(self)

    def kernel(self, config: Any, kernel: Handle, values: Any) -> Callable[[], None]:
        found, (grid, block) = self.context.kernels[kernel.handle], config

        def go() -> None:
            given = zip(found.signature, values, strict=True)
            run(found.source, found.name, grid, block, [self.context.pointer(v) if k == "ptr" else v for k, v in given])

        return go


class FakeDefinition:
    def __init__(self, graphs: FakeGraphs) -> None:
        self.graphs = graphs
        self.nodes: list[FakeNode] = []

    def _node(self, function: Callable[[], None]) -> FakeNode:
        self.nodes.append(FakeNode(function))
        return self.nodes[-1]

    def launch(self, config: Any, kernel: Handle, *values: Any) -> FakeNode:
        return self._node(self.graphs.kernel(config, kernel, values))

    def memcpy(self, target: int, source: int, nbytes: int) -> FakeNode:
        return self._node(lambda: ctypes.memmove(target, source, nbytes) and None)

    def embed(self, child: list[Callable[[], None]]) -> FakeNode:
        return self._node(lambda: [function() for function in child] and None)

    def instantiate(self) -> FakeGraph:
        return FakeGraph(self)


class FakeGraph:
    """Executable: updates replace what a node will do; a launch does what was there then."""

    def __init__(self, definition: FakeDefinition) -> None:
        self.definition = definition
        self.functions = {node: node.function for node in definition.nodes}

    def __getitem__(self, node: FakeNode) -> Any:
        graphs, functions = self.definition.graphs, self.functions

        class View:
            def update(self, config: Any = None, kernel: Any = None, args: Any = None, **copy: int) -> None:
                graphs.updates += 1
                if copy:
                    functions[node] = lambda: ctypes.memmove(copy["dst"], copy["src"], copy["size"]) and None
                else:
                    functions[node] = graphs.kernel(config, kernel, args)

        return View()

    def launch(self, stream: Handle) -> None:
        graphs, functions = self.definition.graphs, dict(self.functions)
        graphs.launches += 1

        def go() -> None:
            done: set[FakeNode] = set()
            while len(done) < len(functions):
                ready = [n for n in self.definition.nodes if n not in done and n.pred <= done]
                node = graphs.context.driver.rng.choice(ready)
                functions[node]()
                done.add(node)

        graphs.context.driver._put(stream.handle, "graph", go)


class FakeBlas:
    """Matrix products by the numbers that cuBLAS would get."""

    def __init__(self, context: FakeContext) -> None:
        self.context = context

    def handle(self, stream: int) -> int:
        return stream

    def run(self, call: Any, addresses: tuple[int, int, int], stream: int) -> None:
        dtype = np.dtype(call.dtype)
        starts = [self.context.pointer(a) for a in addresses]
        (n, m, k) = call.shape

        def matrix(which: int, batch: int, rows: int, columns: int, transposed: bool) -> Any:
            """A column-major rows x columns operand (stored transposed if told so)."""
            start = starts[which].origin + call.offsets[which] + batch * call.strides[which] * dtype.itemsize
            ld = call.leading[which] * dtype.itemsize
            shape, strides = ((rows, columns), (dtype.itemsize, ld))
            if transposed:
                strides = (ld, dtype.itemsize)
            assert call.leading[which] >= max(1, columns if transposed else rows)
            return np.ndarray(shape, dtype, starts[which].data, start, strides)

        def go() -> None:
            for batch in range(call.batch):
                left = matrix(0, batch, n, k, call.operations[0] == 1)
                right = matrix(1, batch, k, m, call.operations[1] == 1)
                matrix(2, batch, n, m, False)[...] = left @ right

        self.context.driver._put(stream, "matmul", go)
