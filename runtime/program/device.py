"""What the engine asks of a device. Memory, kernels, and plans run on streams joined by events."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..core.allocators import Allocator
from ..core.errors import KernelGraphError
from ..core.frozen import frozen
from ..core.profile import ProfileRecorder
from .dnn import DnnLibrary
from .plan import Plan
from .program import Kernel

if TYPE_CHECKING:
    from .collective import Collective


@frozen
class GpuProperties:
    """One GPU. The defaults are an H200's, which programs are compiled for where there is no GPU.

    bandwidth: what copies reach, in bytes a microsecond; dnn: the library for deep neural networks, where one is there.
    """

    name: str = "NVIDIA H200"
    compute_capability: tuple[int, int] = (9, 0)
    multiprocessors: int = 132
    threads_per_multiprocessor: int = 2048
    blocks_per_multiprocessor: int = 32
    warp: int = 32
    shared_bytes: int = 48 * 1024  # of one block, without opting in to more
    shared_per_multiprocessor: int = 228 * 1024
    l2_bytes: int = 60 * 2**20
    memory_bytes: int = 141 * 10**9
    bandwidth: float = 4.0e6
    dnn: DnnLibrary | None = None

    @property
    def float_lanes(self) -> int:
        """float32 operations a clock of one multiprocessor (CUDA C++ Programming Guide, arithmetic instructions)."""
        return 64 if self.compute_capability in ((7, 0), (7, 5), (8, 0)) else 128


H200 = GpuProperties()


class Memory(Protocol):
    """Bytes on a device. They go back to the device's pool when the object dies and no launched work needs them."""

    @property
    def address(self) -> int: ...

    @property
    def nbytes(self) -> int: ...


class Event(Protocol):
    """The moment when some launched work is done.

    An event of work that can fail before anybody waits may have `error`: what is known to have gone wrong, or None."""

    def query(self) -> bool:
        """Whether it has happened; never blocks."""
        ...

    def wait(self) -> None:
        """Block until it has happened. Raises what the work raised."""
        ...


def error_of_event(event: Event) -> Exception | None:
    """What the work raised, once it is done: nobody has seen it by that. What a signal handler raises is raised."""
    try:
        event.wait()
    except Exception as error:
        if hasattr(event, "failure"):  # another error than that is the handler's
            failure = event.failure if event.query() else None
            if failure is not None and failure.error is error:
                failure.not_seen()
            elif not isinstance(error, KernelGraphError):
                raise
        elif hasattr(event, "not_seen"):
            event.not_seen()
        return error
    return None


class DoneEvent:
    """An event that has happened: well, or badly."""

    __slots__ = ("failure",)

    def __init__(self, failure: Any = None) -> None:
        """failure: what raises the error at every wait."""
        self.failure = failure

    def query(self) -> bool:
        return True

    def finish(self) -> None:
        """There is nothing to wait for."""

    def wait(self) -> None:
        if self.failure is not None:
            self.failure.raise_error()


DONE = DoneEvent()


class Stream(Protocol):
    """Work in order, that a caller puts calls on. They follow what is there, and what comes later follows them."""

    handle: int
    priority: int

    @property
    def capturing(self) -> bool:
        """Whether somebody captures it into a graph."""
        ...

    def fork(self, after: list[tuple[int, Any]], buffers: int) -> tuple[Any, ...]:
        """Add to what a run of a plan with so many buffers comes after. The answer is for `join`."""
        ...

    def join(self, events: Sequence[Any], forked: tuple[Any, ...], kept: Sequence[Any]) -> None:
        """Follow the events of a run. kept: its memory, which a captured run needs for longer."""
        ...

    def record(self) -> Event:
        """The moment when all that was put on it before is done. `elapsed` of the device takes two of them."""
        ...

    def wait(self, event: Event) -> None:
        """What is put on it after this starts only when the event has happened. It never blocks on the same device."""
        ...

    def query(self) -> bool:
        """Whether all that was put on it is done; never blocks."""
        ...

    def synchronize(self) -> None:
        """Wait for all that was put on it."""
        ...


class Executable(Protocol):
    """A plan made ready: kernels loaded, argument blocks laid out."""

    notes: Sequence[str] = ()  # lines for people on what it does in another way than the plan says

    def run(
        self,
        memories: Sequence[Any],
        arena: Any,
        scalars: Sequence[Any],
        after: Sequence[tuple[int, Event]],
        meetings: Meetings | None = None,
    ) -> tuple[Event, ...]:
        """Start the plan once and return one completion event for each of the program's outputs.

        memories[b] is the address (int) of input or output buffer `b` (None for temporaries, which live in `arena`,
        an address; of a plan over several devices it is that of every buffer, and `arena` is None). scalars are Python
        or NumPy numbers. after: (buffer, event) pairs; work that touches the buffer starts only after its event; for
        the buffer `plan.ENTRY` all work does, and for `plan.AFTER`, on a device with `host_memory`, whether what it
        comes after has failed or not. meetings: of a plan with collectives. The caller keeps all memory
        alive until the completion events have happened.
        """
        ...

    def replay(
        self, memories: Sequence[Any], scalars: Sequence[Any], events: Sequence[Event | None]
    ) -> tuple[Sequence[Event], Sequence[Event]] | None:
        """`run`, of a plan with `devices`, by one launch in memory of its own: the completion events, and those after
        which all is over. None: it takes `run`. memories: of inputs and outputs. events: of each, when it is there."""
        return None

    def run_and_wait(
        self, memories: Sequence[Any], arena: Any, scalars: Sequence[Any], after: Sequence[tuple[int, Event]]
    ) -> tuple[Event, ...]:
        """`run` for a caller that waits for all of it at once. It may be over on return."""
        return self.run(memories, arena, scalars, after)

    def direct(self, taken: Sequence[Any], watched: Sequence[tuple[int, int]] = ()) -> Any:
        """A faster way to start the plan, for calls that only allocate and run. None where there is none.

        taken: what such a call has in its hands, see `direct_call` and `one_launch`. watched: addresses of words in the
        host's memory, and what they must hold for it to start; asked only of a device with `host_memory`."""
        return None

    def run_timed(
        self,
        memories: Sequence[Any],
        arena: Any,
        scalars: Sequence[Any],
        after: Sequence[tuple[int, Event]],
        waits: bool = False,
    ) -> tuple[tuple[Event, ...], Timing]:
        """As `run`, or `run_and_wait` if `waits`, on the same streams and in the same way, and its time.

        It blocks no longer than that does. Asked only of a device that `measures`."""
        raise NotImplementedError


class MarkedExecutable(Executable, Protocol):
    """A plan made ready on a device whose runs of it overlap: with marks at their ends."""

    def run_marked(
        self, memories: Sequence[Any], arena: Any, scalars: Sequence[Any], after: Sequence[tuple[int, Event]]
    ) -> tuple[tuple[Event, ...], Any]:
        """As `run`, beside whatever else is on, and a mark of its end."""
        ...

    def time_between_marks(self, first: Any, last: Any) -> Timing:
        """The time between two ends, of runs of this device."""
        ...


class Timing(Protocol):
    """How long a run takes on the device."""

    def query(self) -> float | None:
        """Microseconds from the moment of the call, or that when the work it waits for is done, to the end of its last
        task. None while that is not known; nan where it does not count: it failed, overlapped other work of the device,
        or did not run in the way that the executable is for. Never blocks."""
        ...


@frozen
class CollectivePart:
    """A device's part of a collective: its arrays, and what they wait for."""

    sources: Sequence[Memory]
    targets: Sequence[Memory]
    before: Sequence[Event]


class DeviceCommunicator(Protocol):
    """What exchanges arrays among devices in their own memory, on a stream of each, beside what they compute.

    Some of the devices, or all, are of this process: `ranks` are their places among all `size`."""

    name: str  # for people: the library and its version
    ranks: Sequence[int]
    size: int

    def start(self, collective: Collective, parts: Sequence[CollectivePart], doing: str) -> Sequence[Event]:
        """Start a collective. An event for each device of this process, which has the error where it could not start.

        parts: of each such device. doing: what this is, for people. Every process starts the same ones in the same
        order; the caller keeps the memory alive."""
        ...

    def close(self) -> None:
        """Nothing is started any more. It waits for what is on its way."""
        ...


class Meetings(Protocol):
    """The collectives of one call, as its run comes to them."""

    def promise(self) -> Any:
        """Of the end of a collective that is started later; `event` of it happens then."""
        ...

    def start(self, task: int, before: Event | None, promise: Any = None) -> Sequence[Event]:
        """Start a collective once `before` has happened, well or badly; the events of its end. Those of a run are
        started in the order of the plan's steps. promise: whose event is to be that of the end."""
        ...


class CommunicatorPeers(Protocol):
    """The other processes of a communicator, as its watch asks for them."""

    def absence(self) -> str:
        """Why one of them comes to no more collectives; empty if none is known to."""
        ...

    def fail(self, text: str) -> None:
        """A collective did not end; tell them."""
        ...


class Device(Protocol):
    """A device is a value: kind and index. There is no current device.

    To add one, write a class that derives from this one, and a row in `DEVICES`. What stands first every device has to
    write; what follows `# what a device may do` has an answer here that is right for a device without that ability.
    """

    kind: str
    index: int
    host_memory: bool = False  # its memory is the host's: calls read NumPy arrays where they lie, results are views
    measures: bool = False  # its executables have `run_timed`; else the cost model chooses among plans
    overlaps: bool = False  # runs of one plan overlap each other, and its executables are marked ones
    runs: int = 0  # that it has started, where it `overlaps`
    copies_later: bool = False  # copies go on while the host does: `pinned_empty`, `upload_later`, `read_later`
    computes: bool = True  # results have values: only the fake device makes none
    exchange: int | None = None  # DLPack's number of its kind of memory; None: it has no values for other libraries
    foreign_streams: bool = False  # other libraries put work on streams of it: `foreign_stream` knows them
    communicates: bool = False  # there is a library that exchanges arrays between devices of this kind
    properties: GpuProperties | None = None  # of a GPU
    limit: int  # bytes that it may hold; 0: no limit

    @property
    def kernels(self) -> int:
        """How many are loaded."""
        ...

    def allocate(self, nbytes: int) -> Memory:
        """Uninitialised memory, aligned to 64 bytes or more. Raises OutOfMemory."""
        ...

    def upload(self, host: np.ndarray[Any, Any], memory: Memory) -> Event:
        """Copy a C-contiguous host array into the start of `memory`. The host array has been read on return."""
        ...

    def download(self, memory: Memory, host: np.ndarray[Any, Any]) -> None:
        """Copy the start of `memory` into a C-contiguous host array; done on return."""
        ...

    def load(self, kernels: Sequence[Kernel]) -> Any:
        """Compile what neither this process nor the disk cache has, in parallel where that pays."""
        ...

    def prepare(self, plan: Plan, way: str = "", devices: Sequence[Device] = ()) -> Executable:
        """Everything about a plan that can be decided before its calls. way: one of `ways`. empty: its own choice.
        devices: of a plan over several, all of them, this one first."""
        ...

    def synchronize(self) -> None:
        """Wait for all work launched on the device."""
        ...

    def stream(self, priority: int = 0) -> Stream:
        """A stream for a caller; below 0 is a high priority."""
        ...

    def elapsed(self, start: Any, end: Any) -> float:
        """Milliseconds between two events of `Stream.record`; waits for them."""
        ...

    def statistics(self) -> dict[str, int]:
        """Bytes `in_use`, `cached` (free, kept for reuse), `reserved` (both) and `peak` (the most ever reserved)."""
        ...

    def trim(self) -> int:
        """Give free memory back to the system, and unload kernels that nothing needs. The answer is how many bytes."""
        ...

    def owns(self, memory: Any) -> bool:
        """Whether `allocate` gave this, and `statistics` count it."""
        ...

    def use_allocator(self, allocator: Allocator | None) -> None:
        """Take memory from another allocator from now on; None: from the system, or the driver."""
        ...

    # what a device may do

    def memory_by_owner(self) -> dict[str, int]:
        """Bytes in use, as `statistics` count them, by what is neither an array nor a call."""
        return {}

    def memory_beside(self) -> dict[str, int]:
        """Bytes that `statistics` do not count, by owner: of code, and of the host's memory."""
        return {}

    def memory_at_rest(self) -> AbstractContextManager[Any]:
        """Within it no thread takes memory of the system, or gives any back."""
        return nullcontext()

    def system_memory(self) -> tuple[int, int] | None:
        """Bytes that are free, by what the driver says, and all that there are. None: nobody knows."""
        return None

    @property
    def identity(self) -> str:
        """What tells the device, its driver and settings from others. Measured times are kept under it."""
        return f"{self.kind} {platform.machine()} {self.properties or ''}"

    def ways(self, plan: Plan) -> tuple[str, ...]:
        """The ways it can run a plan, its own choice first. As a graph, or step by step. The clock
        chooses among them."""
        return ("",)

    def read(self, memory: Memory, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """Memory that is written as a new host array."""
        host = np.empty(shape, dtype)
        self.download(memory, host)
        return host

    def pinned_empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any] | None:
        """A host array in page-locked memory. The device copies while the host goes on; None: it has none."""
        return None

    def upload_later(self, host: np.ndarray[Any, Any], memory: Memory) -> Event:
        """As `upload`, but the host array may be read until the event has happened."""
        return self.upload(host, memory)

    def read_later(
        self, memory: Memory, shape: tuple[int, ...], dtype: np.dtype[Any], after: Event | None
    ) -> tuple[np.ndarray[Any, Any], Event]:
        """As `read`, of memory that is written when `after` has happened. The host array is when the event has."""
        raise NotImplementedError

    def copy_from(self, source: Device, memory: Memory, target: Memory, nbytes: int, after: Event | None) -> Event:
        """Copy the first bytes of another device's memory, once `after` has happened, into the start of `target` here.

        source: a device of this kind. The caller keeps both memories alive until the event that is returned."""
        if after is not None:
            after.wait()
        return self.upload(source.read(memory, (nbytes,), np.dtype(np.uint8)), target)

    def replays_plans_with(self, devices: Sequence[Device]) -> bool:
        """Whether plans over this device, the first, and others are started by one call, unless something in them
        stands against it: see `Executable.replay`."""
        return False

    def communicator_with(self, others: Sequence[Device]) -> DeviceCommunicator | None:
        """What exchanges arrays between this device and others of this process; None: nothing but copies does."""
        return None

    @property
    def communicator_address(self) -> bytes:
        """What tells this device from all others, on any machine, for a communicator; empty: it can join none."""
        return b""

    def new_communicator_id(self) -> bytes:
        """What a new communicator of several processes is joined by."""
        raise NotImplementedError

    def join_communicator(self, id: bytes, rank: int, size: int, peers: CommunicatorPeers) -> DeviceCommunicator:
        """Become a rank of a communicator of `size` processes, all of which call this. Raises LaunchError."""
        raise NotImplementedError

    def foreign_stream(self, handle: int, owner: Any = None) -> Stream:
        """A stream of another library. handle: the driver's. owner: what keeps the handle valid."""
        raise NotImplementedError

    def is_capturing(self, handle: int) -> int:
        """Whether the stream with this handle is being captured into a graph: 0 for no."""
        return 0

    def make_current(self) -> None:
        """Make this the driver's device for what this thread asks of it without a name. It does nothing elsewhere."""

    def relaxed(self) -> AbstractContextManager[None]:
        """Within it this thread may do what another library's capture into a graph forbids."""
        return nullcontext()

    @property
    def graph_bytes(self) -> int:
        """Bytes in use by replayed graphs."""
        return 0

    def profiled(self, recorder: ProfileRecorder) -> list[tuple[Any, str, Any]]:
        """Measure steps and copies from now on. The answer is (object, attribute, value) of before, to be put back."""
        return []

    def waits(self) -> Sequence[tuple[Any, str]]:
        """(class, method) of what the host waits for its work with."""
        return ()
