"""Two GPUs in memory, of one driver: which is current counts, and what runs must still have the memory it was given.

Where a call of the driver comes with the wrong GPU current, it says so as the driver does, or, on the default stream,
goes to the other GPU's. Work is done whenever somebody asks for an event, so that memory comes back at any time.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kernelgraph.runtime.devices.cuda import device as cuda
from kernelgraph.runtime.devices.cuda.driver.driver import LaunchConfig
from kernelgraph.runtime.devices.cuda.memory.pool import DeviceBlock, GpuMemoryPool
from tests.dsl.gpu_in_memory import SharedContext, SharedDriver
from tests.runtime.cuda_fake import FakeBlas

DEFAULT = (0, 1)  # handles that mean another stream on each GPU
OWN_DEFAULT = 10  # the queue of the first GPU's default stream; the other's is next to it
INVALID_CONTEXT = 201


@dataclass(frozen=True, eq=False)
class Block:
    """Memory of one GPU, from when it is handed out until it is given back."""

    nbytes: int
    gpu: int


class Machine:
    """What two GPUs share: the driver, the memory, and which of them is current in a thread."""

    def __init__(self, seed: int) -> None:
        self.current = threading.local()
        self.owners: dict[int, int] = {}  # of streams and events, by handle
        self.blocks: dict[int, Block] = {}  # in use, by address
        self.reads_peers = False  # kernels may read the other GPU's memory, and the test looks at no more than values
        self.first = GpuInMemory(self, 0, seed)
        self.driver = self.first.driver = MachineDriver(self, self.first, self.first.driver.rng)
        self.contexts = [self.first, GpuInMemory(self, 1, seed)]
        self.contexts[1].share(self.first)
        self.devices = [CheckedDevice(self, context) for context in self.contexts]

    @property
    def current_index(self) -> int:
        return getattr(self.current, "index", 0)

    def set_current(self, index: int) -> None:
        """As `torch.cuda.set_device` does."""
        self.current.index = index

    def block_of(self, address: int) -> Block | None:
        """What an address lies in."""
        found = (b for start, b in [*self.blocks.items()] if start <= address < start + max(b.nbytes, 1))
        return next(found, None)


class GpuInMemory(SharedContext):
    """The context of one of them."""

    def __init__(self, machine: Machine, index: int, seed: int) -> None:
        super().__init__(seed)
        self.machine, self.index, self.handle = machine, index, 501 + index
        self.alone = False

    def share(self, other: GpuInMemory) -> None:
        for name in ("driver", "kernels", "libraries", "memories", "_numbers", "locked"):
            setattr(self, name, getattr(other, name))

    @property
    def uuid(self) -> bytes:
        return f"GPU in memory {self.index}".encode()

    def enter(self) -> None:
        super().enter()
        self.machine.set_current(self.index)

    def synchronize(self) -> None:
        """Its own streams: what the other GPU waits for may be still to come."""
        owners, streams = self.machine.owners, self.driver.streams
        self.driver.drain(
            lambda: not any(queue for s, queue in [*streams.items()] if owners.get(s, s - OWN_DEFAULT) == self.index)
        )

    def stream(self, high: bool) -> Any:
        self.enter()
        return self._owned(super().stream(high))

    def event(self) -> Any:
        self.enter()
        return self._owned(super().event())

    timed_event = event

    def _owned(self, made: Any) -> Any:
        self.machine.owners[made.handle] = self.index
        return made


class MachineDriver(SharedDriver):
    """Refuses what the driver refuses, and notes which memory each operation was given."""

    def __init__(self, machine: Machine, context: GpuInMemory, rng: Any) -> None:
        self.machine, self.gpus = machine, dict[int, int]()  # of the nodes of graphs, by handle
        super().__init__(context, rng)

    def current_context(self) -> int:
        return self.machine.contexts[self.machine.current_index].handle

    def set_context(self, context: int) -> int:
        self.machine.set_current(context - self.machine.first.handle)
        return 0

    def owner(self, stream: int) -> int:
        """The GPU whose stream it is."""
        return self.machine.current_index if stream in DEFAULT else self.machine.owners[stream]

    def _put(self, stream: int, label: str, function: Callable[[], None] | None, needs: Any = None) -> None:
        place = self._place(stream)
        if stream in self.capturing:  # a graph's are checked at each launch of it
            super()._put(place, label, function, needs)
            if function is not None:
                self.gpus[self.graphs[self.into[stream]][-1].handle] = self.owner(stream)
            return
        super()._put(place, label, self._with_memory_of(self.owner(stream), label, function), needs)

    def _place(self, stream: int) -> int:
        """The queue of a stream; each GPU has one of its own for its default stream."""
        return OWN_DEFAULT + self.machine.current_index if stream in DEFAULT else stream

    def _put_node(self, stream: int, node: Any, function: Callable[[], None]) -> None:
        made = self._with_memory_of(self.gpus.get(node.handle, 0), "graph", function)
        super()._put(self._place(stream), "graph", made)

    def _with_memory_of(self, gpu: int, label: str, function: Callable[[], None] | None) -> Callable[[], None] | None:
        """The operation, which may use one GPU's memory alone; a copy in a graph may write to the other's."""
        uses = getattr(function, "addresses", ())
        if function is None or not uses:
            return function
        near = uses[1::2] if getattr(function, "copies", False) and label == "graph" else uses
        near = [] if self.machine.reads_peers else near
        for address in near:
            block = self.machine.block_of(address)
            assert block is None or block.gpu == gpu, f"{label} reaches into the other GPU's memory"
        return self._checked(function, uses, label)

    def _checked(self, function: Callable[[], None], addresses: Any, label: str) -> Callable[[], None]:
        """The operation, which fails if the memory that it was given has gone to somebody else."""
        given = {address: self.machine.block_of(address) for address in addresses}

        def go() -> None:
            for address, use in given.items():
                assert self.machine.block_of(address) is use, f"{label} runs on memory {address:#x} that was given back"
            function()

        go.kernel = getattr(function, "kernel", 0)  # type: ignore[attr-defined]
        return go

    def _kernel(self, kernel: int, given: Any, parameters: int) -> Callable[[], None]:
        made = super()._kernel(kernel, given, parameters)
        found = self.context.kernels[kernel]
        count = found.signature.count("ptr") * dict(found.options).get("packed", 1)
        slots = (ctypes.c_void_p * count).from_address(parameters)
        made.addresses = [ctypes.c_uint64.from_address(s).value for s in slots]  # type: ignore[attr-defined]
        made.copies = dict(found.options).get("ptx") == "copy"  # type: ignore[attr-defined]
        return made

    def _copy(self, name: str, to: int, source: int, nbytes: int, stream: int, early: bool) -> int:
        ends = {"to_device": (to,), "to_host": (source,)}.get(name, (to, source))
        before, self._put = self._put, lambda s, label, go: before(s, label, self._checked(go, ends, label))  # type: ignore[method-assign, assignment]
        try:
            return super()._copy(name, to, source, nbytes, stream, early)
        finally:
            del self._put

    def launch_graph(self, executable: int, stream: int) -> int:
        assert self.owner(stream) == self.machine.current_index, "a graph is launched with the other GPU current"
        return super().launch_graph(executable, stream)

    def launch(self, config: int, kernel: int, parameters: int, extra: None) -> int:
        assert self.owner(LaunchConfig.from_address(config).stream) == self.machine.current_index, "a wrong launch"
        return super().launch(config, kernel, parameters, extra)

    def record(self, event: int, stream: int) -> int:
        if self.machine.owners[event] != self.owner(stream):
            return INVALID_CONTEXT
        return super().record(event, stream)

    def query(self, event: int) -> int:
        for _ in range(self.rng.randrange(4)):  # time passes
            ready = [s for s, queue in [*self.streams.items()] if queue and self._can_go(queue[0])]
            if ready:
                _, function, _ = self.streams[self.rng.choice(ready)].popleft()
                if function is not None:
                    function()
        return super().query(event)


class CheckedPool(GpuMemoryPool):
    """Notes which blocks are in use."""

    machine: Machine
    gpu: int

    def allocate(self, nbytes: int) -> DeviceBlock:
        block = super().allocate(nbytes)
        blocks, free = self.machine.blocks, block._free
        assert block.address not in blocks, "memory in use is handed out"
        blocks[block.address] = Block(nbytes, self.gpu)

        def give_back(address: int) -> None:
            del blocks[address]
            free(address)

        block._free = give_back
        return block


class CheckedDevice(cuda.CUDADevice):
    def __init__(self, machine: Machine, context: GpuInMemory) -> None:
        super().__init__(context.index, context)
        self.pool.__class__ = CheckedPool
        self.pool.machine, self.pool.gpu = machine, self.index  # type: ignore[attr-defined]
        self.allocate = self.pool.allocate  # type: ignore[method-assign]
        self.blas = FakeBlas(context, self.pool.allocate)  # type: ignore[assignment, arg-type]
