"""Collectives among GPUs by NCCL: a Collective and its arrays in, work on a communication stream of each GPU out.

All collectives of a GPU are on one stream, and parts of this process are issued together, one collective at a time. So
they come in one order on all GPUs, which NCCL asks for. Only this file knows nccl4py, of which it uses the functions
that take addresses.

A thread looks at what is on its way. A collective that has failed, or waits for a GPU for longer than
`collective_timeout`, is aborted, so that nothing spins; what followed it has read anything, so its GPUs are lost to the
process.
"""

from __future__ import annotations

import atexit
import functools
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from importlib import import_module
from typing import Any

import numpy as np

from ....core.errors import LaunchError
from ....core.frozen import frozen
from ....core.settings import settings
from ....program.collective import Collective
from ....program.device import CollectivePart, CommunicatorPeers, DeviceCommunicator, Event, error_of_event
from ..driver.driver import SUCCESS
from ..driver.events import CudaEvent

BYTES = 1  # ncclUint8: what only moves
# ncclDataType_t, and how many of these an element is: complex numbers are summed as pairs
DTYPES = {
    "int8": (0, 1), "uint8": (1, 1), "int32": (2, 1), "uint32": (3, 1), "int64": (4, 1), "uint64": (5, 1),
    "float16": (6, 1), "float32": (7, 1), "float64": (8, 1), "bfloat16": (9, 1), "complex64": (7, 2),
    "complex128": (8, 2),
}  # fmt: skip
OPERATIONS = {"sum": 0, "prod": 1, "max": 2, "min": 3}  # ncclRedOp_t
RUNNING = (0, 7)  # ncclSuccess, ncclInProgress
OLDEST = 21400  # the first NCCL whose communicators can be made, aborted and asked as is done here
LOOK_SECONDS = 0.05  # how often collectives on their way are looked at
PATIENCE_SECONDS = 0.2  # a rank that has left is waited for so long


@functools.cache
def nccl_library() -> Any:
    """nccl4py's functions; None where it, or an NCCL that will do, is not installed."""
    try:
        library: Any = import_module("nccl.bindings.nccl")
        return library if library.get_version() >= OLDEST else None
    except Exception:  # it has several for a library that cannot be loaded
        return None


def communicator_of_gpus(devices: Sequence[Any]) -> NcclCommunicator | None:
    """A communicator of GPUs of this process. None without NCCL, or where two of them are one. Raises LaunchError."""
    library = nccl_library()
    if library is None or len({d.communicator_address for d in devices}) < len(devices):
        return None

    def connect() -> Sequence[Any]:
        return [*library.comm_init_all(len(devices), [d.index for d in devices])]

    made = NcclCommunicator(library, devices, range(len(devices)), len(devices), connect)
    made.connect()
    return made


def communicator_of_rank(device: Any, id: bytes, rank: int, size: int, peers: CommunicatorPeers) -> NcclCommunicator:
    """This process' part of a communicator of several, with one GPU each, which all call this. Raises LaunchError."""
    library = nccl_library()

    def connect() -> Sequence[Any]:
        device.context.enter()
        return [library.comm_init_rank_scalable(size, rank, 1, bytearray(id), 0)]

    made = NcclCommunicator(library, [device], [rank], size, connect, peers)
    made.connect()
    return made


def new_nccl_id() -> bytes:
    return bytes(nccl_library().get_unique_id())


class NcclCommunicator(DeviceCommunicator):
    """connect: makes NCCL's communicators, one for each of the devices; those of one process are made again after a
    collective that could not start. peers: the other processes."""

    def __init__(
        self,
        library: Any,
        devices: Sequence[Any],
        ranks: Sequence[int],
        size: int,
        connect: Callable[[], Sequence[Any]],
        peers: CommunicatorPeers | None = None,
    ) -> None:
        version = library.get_version()
        self.name = f"NCCL {version // 10000}.{version // 100 % 100}.{version % 100}"
        self.devices, self.ranks, self.size, self.peers = devices, ranks, size, peers
        self.failure: BaseException | None = None  # why nothing is started any more
        self._library, self._connect = library, connect
        self._comms: Sequence[Any] = ()
        # ranks may be threads, which wait for each other
        self._lock: AbstractContextManager[Any] = _issuing if peers is None else threading.Lock()

    def connect(self) -> None:
        """Make NCCL's communicators, unless they are there. Raises LaunchError."""
        if not self._comms:
            try:
                self._comms = self._connect()
            except Exception as error:
                raise self._launch_error(error, "making a communicator") from None
            if self not in _watch.communicators:
                _watch.communicators.append(self)

    def start(self, collective: Collective, parts: Sequence[CollectivePart], doing: str) -> list[CudaEvent]:
        error = next((e for part in parts for event in part.before if (e := _known_failure(event)) is not None), None)
        with self._lock:
            error = error or self.failure
            if error is None:
                try:
                    self.connect()
                    return self._issue(collective, parts, doing)
                except Exception as raised:
                    error = raised
            events = [device.events.record(device.communication_stream) for device in self.devices]
        for event in events:
            event.error = error
        return events

    def _issue(self, collective: Collective, parts: Sequence[CollectivePart], doing: str) -> list[CudaEvent]:
        """Raises LaunchError, after which NCCL's communicators are gone."""
        library, began = self._library, []
        for device, part in zip(self.devices, parts, strict=True):
            device.context.enter()
            for event in part.before:
                if isinstance(event, CudaEvent) and event.stream != device.communication_stream:
                    code = device.context.driver.wait(device.communication_stream, event.handle, 0)
                    if code != SUCCESS:
                        raise device.failure(code, doing)
            began.append(device.events.record(device.communication_stream))
        marks = [device.marks and device.marks.record(device.communication_stream) for device in self.devices]
        try:
            library.group_start()
            try:
                for device, comm, rank, part in zip(self.devices, self._comms, self.ranks, parts, strict=True):
                    self._put(device, comm, rank, collective, part)
            finally:
                library.group_end()
        except Exception as error:
            raised = self._launch_error(error, doing)
            self._abort()
            raise raised from None
        nbytes = sum(collective.counts) * np.dtype(collective.dtype).itemsize
        for device, mark in zip(self.devices, marks, strict=True):
            if mark is not None:
                name = f"{collective.meaning} by NCCL"
                device.marks.add_span_until_now(
                    mark, "copy", name, device.communication_stream, collective.line, nbytes=nbytes
                )
        ended = [device.events.record(device.communication_stream) for device in self.devices]
        _watch.add(CollectiveOnItsWay(self, began, ended, doing))
        return ended

    def _put(self, device: Any, comm: Any, rank: int, collective: Collective, part: CollectivePart) -> None:
        """One device's part of a collective."""
        library, stream = self._library, device.communication_stream
        for number, (given, taken) in enumerate(zip(part.sources, part.targets, strict=True)):
            source, target, op = given.address, taken.address, collective.op
            count = collective.counts[number]
            if not count:
                continue
            nbytes = count * np.dtype(collective.dtype).itemsize
            if op == "all_reduce":
                kind, each = DTYPES[collective.dtype]
                library.all_reduce(source, target, count * each, kind, OPERATIONS[collective.how], comm, stream)
            elif op == "reduce_scatter":
                kind, each = DTYPES[collective.dtype]
                own = count * each // self.size
                library.reduce_scatter(source, target, own, kind, OPERATIONS[collective.how], comm, stream)
            elif op == "all_gather":
                library.all_gather(source, target, nbytes, BYTES, comm, stream)
            elif op == "broadcast":
                library.broadcast(source, target, nbytes, BYTES, collective.root, comm, stream)
            elif op == "all_to_all":
                each = nbytes // self.size
                for other in range(self.size):
                    library.send(source + other * each, each, BYTES, other, comm, stream)
                    library.recv(target + other * each, each, BYTES, other, comm, stream)
            else:
                if all(b != rank for _, b in collective.pairs):
                    code = device.context.driver.fill(target, 0, nbytes, stream)
                    if code != SUCCESS:
                        raise device.failure(code, "filling an array with zeros")
                for a, b in collective.pairs:
                    if a == rank:
                        library.send(source, nbytes, BYTES, b, comm, stream)
                    if b == rank:
                        library.recv(target, nbytes, BYTES, a, comm, stream)

    def _launch_error(self, error: Exception, doing: str) -> BaseException:
        if isinstance(error, LaunchError) or not isinstance(error, self._library.NCCLError):
            return error
        detail = ""
        with suppress(Exception):
            detail = self._library.get_last_error(self._comms[0] if self._comms else self._library.Comm(0)).strip()
        return LaunchError(f"{self.name} failed: {error}{f', {detail}' if detail else ''}, in {doing}")

    def _abort(self) -> None:
        comms, self._comms = self._comms, ()
        for comm in comms:
            with suppress(Exception):
                self._library.comm_abort(comm)

    def async_failure(self) -> str:
        """What NCCL says has gone wrong with what was started; empty: nothing."""
        for comm in self._comms:
            code = int(self._library.comm_get_async_error(comm))
            if code not in RUNNING:
                return str(self._library.get_error_string(code))
        return ""

    def give_up(self, why: str) -> None:
        """A collective will not end."""
        if self.failure is None:
            self.failure = LaunchError(why)
            for device in self.devices:
                device.lose(why)
            self._abort()
            if self.peers is not None:
                self.peers.fail(why)

    def close(self) -> None:
        with self._lock:
            if self.failure is None:
                self.failure = LaunchError("the communicator is closed")
                for device in self.devices:
                    with suppress(Exception):
                        device.events.record(device.communication_stream).wait()
            comms, self._comms = self._comms, ()
            for comm in comms:
                with suppress(Exception):
                    self._library.comm_destroy(comm)


def _known_failure(event: Event) -> BaseException | None:
    """What is known to have gone wrong before an event. What is of another kind of device is waited for."""
    return event.error if isinstance(event, CudaEvent) else error_of_event(event)


@frozen
class CollectiveOnItsWay:
    """began: of each device of this process, when it has come to it; ended: when its part is done."""

    communicator: NcclCommunicator
    began: Sequence[CudaEvent]
    ended: Sequence[CudaEvent]
    doing: str

    def has_ended(self) -> bool:
        return all(event.query() for event in self.ended)

    def absent_devices(self) -> list[str]:
        """Those that have not come to it."""
        pairs = zip(self.communicator.devices, self.began, strict=True)
        return [f"cuda:{device.index}" for device, event in pairs if not event.query()]


class CollectiveWatch:
    """Looks whether collectives end. Its thread sleeps while none is on its way."""

    def __init__(self) -> None:
        self.communicators: list[NcclCommunicator] = []  # to be closed at exit
        self._coming: deque[CollectiveOnItsWay] = deque()
        self._awake = threading.Event()
        self._thread: threading.Thread | None = None
        self._since: dict[int, float] = {}  # when the oldest of a communicator was seen to begin

    def add(self, one: CollectiveOnItsWay) -> None:
        self._coming.append(one)
        if not self._awake.is_set():
            self._awake.set()
            if self._thread is None:
                self._thread = threading.Thread(target=self._look_again_and_again, name="watch of NCCL", daemon=True)
                self._thread.start()

    def _look_again_and_again(self) -> None:
        while True:
            self._awake.wait()
            time.sleep(LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        """Forget what has ended, and give up what will not."""
        self._awake.clear()
        oldest: list[CollectiveOnItsWay] = []  # of each communicator
        for _ in range(len(self._coming)):
            one = self._coming.popleft()
            communicator = one.communicator
            if communicator.failure is not None or one.has_ended():
                continue
            self._coming.append(one)
            if all(other.communicator is not communicator for other in oldest):
                oldest.append(one)
                if why := self._why_it_does_not_end(one):
                    communicator.give_up(f"{one.doing}: {why}")
        waiting = {id(one) for one in oldest}
        self._since = {key: since for key, since in self._since.items() if key in waiting}
        if self._coming:
            self._awake.set()

    def _why_it_does_not_end(self, one: CollectiveOnItsWay) -> str:
        """Empty while it may."""
        communicator, peers = one.communicator, one.communicator.peers
        if failure := communicator.async_failure():
            return f"{communicator.name} failed: {failure}"
        if failed := next((event.error for event in one.ended if event.error is not None), None):
            return str(failed)
        absent = one.absent_devices()
        if len(absent) == len(one.began):  # what comes before it takes its time
            return ""
        waited = time.monotonic() - self._since.setdefault(id(one), time.monotonic())
        if peers is not None and waited > PATIENCE_SECONDS and (absence := peers.absence()):
            return absence
        if waited <= settings.collective_timeout:
            return ""
        who = f"{', '.join(absent)} did not come to it" if absent else "not all ranks came to it"
        return f"it has not ended within {settings.collective_timeout:g} s (KERNELGRAPH_COLLECTIVE_TIMEOUT); {who}"


_issuing = threading.RLock()  # of whoever issues collectives of several devices of this process
_watch = CollectiveWatch()


@atexit.register
def close_nccl_communicators() -> None:
    """In the order in which they were made, before the driver goes."""
    while _watch.communicators:
        _watch.communicators.pop(0).close()
