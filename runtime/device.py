"""What the engine asks of a device: memory, kernels, and plans run on streams joined by events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from .plan import Plan
from .program import Kernel


class Memory(Protocol):
    """Bytes on a device. They go back to the device's pool when the object dies and no launched work needs them."""

    @property
    def address(self) -> int: ...

    @property
    def nbytes(self) -> int: ...


class Event(Protocol):
    """The moment when some launched work is done."""

    def query(self) -> bool:
        """Whether it has happened; never blocks."""
        ...

    def wait(self) -> None:
        """Block until it has happened. Raises what the work raised."""
        ...


class Stream(Protocol):
    """Work in order, that a caller puts calls on: they follow what is there, and what comes later follows them."""

    handle: int
    priority: int

    @property
    def capturing(self) -> bool:
        """Whether somebody captures it into a graph."""
        ...

    def fork(self, after: list[tuple[int, Any]], buffers: int) -> tuple[Any, ...]:
        """Add to what a run of a plan with so many buffers comes after; the answer is for `join`."""
        ...

    def join(self, events: Sequence[Any], forked: tuple[Any, ...], kept: Sequence[Any]) -> None:
        """Follow the events of a run. kept: its memory, which a captured run needs for longer."""
        ...

    def record(self) -> Event:
        """The moment when all that was put on it before is done; `elapsed` of the device takes two of them."""
        ...

    def wait(self, event: Event) -> None:
        """What is put on it after this starts only when the event has happened; never blocks on the same device."""
        ...

    def query(self) -> bool:
        """Whether all that was put on it is done; never blocks."""
        ...

    def synchronize(self) -> None:
        """Wait for all that was put on it."""
        ...


class Executable(Protocol):
    """A plan made ready: kernels loaded, argument blocks laid out."""

    def run(
        self,
        memories: Sequence[Any],
        arena: Any,
        scalars: Sequence[Any],
        after: Sequence[tuple[int, Event]],
    ) -> tuple[Event, ...]:
        """Start the plan once and return one completion event for each of the program's outputs.

        memories[b] is the address (int) of input or output buffer `b` (None for temporaries, which live in `arena`,
        an address). scalars are Python or NumPy numbers. after: (buffer, event) pairs; work that touches the buffer
        starts only after its event; for the buffer `borders.ENTRY` all work does. The caller keeps all memory alive
        until the completion events have happened.
        """
        ...


class Timing(Protocol):
    """How long a run takes on the device."""

    def query(self) -> float | None:
        """Microseconds from the moment of the call, or that when the work it waits for is done, to the end of its last
        task. None while that is not known; nan where it does not count: it failed, overlapped other work of the device,
        or did not run in the way that the executable is for. Never blocks."""
        ...


class TimedExecutable(Executable, Protocol):
    """An executable that can be measured. Devices whose executables cannot be are left to the cost model."""

    def run_timed(
        self,
        memories: Sequence[Any],
        arena: Any,
        scalars: Sequence[Any],
        after: Sequence[tuple[int, Event]],
    ) -> tuple[tuple[Event, ...], Timing]:
        """As `run`, on the same streams and in the same way, and its time. It blocks no longer than `run` does."""
        ...


class Device(Protocol):
    """A device is a value: kind and index. There is no current device.

    What a device may have beside the methods below:
    ways(plan) -> tuple[str, ...]: the ways it can run a plan (replayed as a graph, or launched step by step), its
    own choice first; `prepare(plan, way)` then takes one. The clock chooses among them.
    identity: a text that tells the device, its driver and settings from others; times are kept under it.
    An executable may have `notes`, lines for people on what it does in another way than the plan says.
    """

    kind: str
    index: int

    def allocate(self, nbytes: int) -> Memory:
        """Uninitialised memory, aligned to 64 bytes or more. Raises OutOfMemory."""
        ...

    def upload(self, host: np.ndarray[Any, Any], memory: Memory) -> Event:
        """Copy a C-contiguous host array into the start of `memory`. The host array has been read on return."""
        ...

    def download(self, memory: Memory, host: np.ndarray[Any, Any]) -> None:
        """Copy the start of `memory` into a C-contiguous host array; done on return."""
        ...

    def load(self, kernels: Sequence[Kernel]) -> None:
        """Compile what neither this process nor the disk cache has, in parallel where that pays."""
        ...

    def prepare(self, plan: Plan) -> Executable:
        """Everything about a plan that can be decided before its calls."""
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
