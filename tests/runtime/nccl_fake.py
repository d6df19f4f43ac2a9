"""NCCL in memory, with nccl4py's functions: calls are noted, and done when all ranks have come to them.

Each part is put on its GPU's stream, which stops there until all others have come, as NCCL's kernel does: parts in
another order on two GPUs are a deadlock. What NCCL refuses is refused: calls outside of a group of several GPUs of one
thread, another count, dtype or root on a rank, a dtype that is none of its own.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from functools import reduce
from itertools import count
from typing import Any

import ml_dtypes
import numpy as np

DTYPES = {
    0: np.int8, 1: np.uint8, 2: np.int32, 3: np.uint32, 4: np.int64, 5: np.uint64, 6: np.float16, 7: np.float32,
    8: np.float64, 9: ml_dtypes.bfloat16,
}  # fmt: skip
JOINS: dict[int, Any] = {0: np.add, 1: np.multiply, 2: np.fmax, 3: np.fmin}  # the last two drop NaN
INVALID_USAGE, SYSTEM_ERROR = 5, 2
RESULTS = {1: "UnhandledCudaError", 2: "SystemError", 4: "InvalidArgument", 5: "InvalidUsage"}


class NCCLError(Exception):
    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__(f"{RESULTS[status]} ({status}): of a test")


class UniqueId:
    def __init__(self, content: bytes) -> None:
        self.content = content

    def __bytes__(self) -> bytes:
        return self.content

    @staticmethod
    def from_buffer(content: bytes) -> UniqueId:
        return UniqueId(bytes(content))


class Clique:
    """The ranks of a communicator. arrived: of each rank, how many parts its stream has come to."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.parts: list[dict[int, Any]] = []  # of each collective, by rank
        self.issued = [0] * size
        self.joined = 0


class Comm:
    def __init__(self, clique: Clique | None = None, rank: int = 0, gpu: int = 0) -> None:
        self.clique, self.rank, self.gpu = clique, rank, gpu
        self.state = "alive"
        self.error = 0  # what the next question after errors is told


class FakeNccl:
    """What `nccl.bindings.nccl` is, over a `Machine`. calls: what was asked, as tuples. refuse: by a call's name, the
    result code of its next one."""

    NCCLError, UniqueId, Comm = NCCLError, UniqueId, Comm

    def __init__(self, machine: Any) -> None:
        self.machine, self.driver = machine, machine.driver
        self.calls: list[tuple[Any, ...]] = []
        self.refuse: dict[str, int] = {}
        self.comms: list[Comm] = []
        self._cliques: dict[bytes, Clique] = {}
        self._ids = count(1)
        self._group = threading.local()
        self._condition = threading.Condition()
        self._arrivals: dict[tuple[int, int], set[int]] = {}

    def _note(self, name: str, *details: Any) -> None:
        self.calls.append((name, *details))
        if code := self.refuse.pop(name, 0):
            raise NCCLError(code)

    def get_version(self) -> int:
        return 22809

    def get_error_string(self, code: int) -> str:
        return f"{RESULTS[code]} of a test"

    def get_last_error(self, comm: Comm) -> str:
        return "what NCCL says of it"

    # communicators

    def get_unique_id(self) -> UniqueId:
        return UniqueId(bytes([next(self._ids)]) * 128)

    def comm_init_all(self, size: int, devices: Sequence[int]) -> list[Comm]:
        self._note("comm_init_all", tuple(devices))
        if len({*devices}) < size:
            raise NCCLError(INVALID_USAGE)
        clique = Clique(size)
        made = [Comm(clique, rank, gpu) for rank, gpu in enumerate(devices)]
        self.comms += made
        return made

    def comm_init_rank_scalable(self, size: int, rank: int, ids: int, id: bytearray, config: int) -> Comm:
        """All ranks, which are threads, wait for each other."""
        assert (ids, config) == (1, 0) and isinstance(id, bytearray) and len(id) == 128
        self._note("comm_init_rank", size, rank, self.machine.current_index)
        with self._condition:
            clique = self._cliques.setdefault(bytes(id), Clique(size))
            made = Comm(clique, rank, self.machine.current_index)
            self.comms.append(made)
            clique.joined += 1
            self._condition.notify_all()
            assert self._condition.wait_for(lambda: clique.joined == size, 20), "a rank never joined"
        return made

    def comm_get_async_error(self, comm: Comm) -> int:
        return comm.error

    def comm_abort(self, comm: Comm) -> None:
        """What waits for other ranks goes on, with whatever is there."""
        self._note("comm_abort", comm.rank)
        assert comm.state == "alive" and comm.clique is not None
        comm.state = "aborted"
        for number, parts in enumerate(comm.clique.parts):
            if comm.rank in parts:
                self.driver.happened.add((id(comm.clique), number, comm.rank))

    def comm_destroy(self, comm: Comm) -> None:
        self._note("comm_destroy", comm.rank)
        assert comm.state == "alive", "a communicator is destroyed twice, or after it was aborted"
        comm.state = "destroyed"

    # groups and calls

    def group_start(self) -> None:
        self._note("group_start")
        assert not getattr(self._group, "calls", None), "a group in a group"
        self._group.calls = []

    def group_end(self) -> None:
        calls, self._group.calls = self._group.calls, None
        self._note("group_end")
        by_rank: dict[int, list[Any]] = {}
        for call in calls:
            by_rank.setdefault(id(call[0]), []).append(call)
        with self._condition:
            for own in by_rank.values():
                self._issue(own)

    def _issue(self, own: list[Any]) -> None:
        """All calls of one rank in a group, as one kernel."""
        comm, stream = own[0][0], own[0][1]
        clique, driver = comm.clique, self.driver
        assert comm.state == "alive" and all(call[1] == stream for call in own)
        assert driver.owner(stream) == comm.gpu, "a stream of another GPU"
        number = clique.issued[comm.rank]
        clique.issued[comm.rank] += 1
        while len(clique.parts) <= number:
            clique.parts.append({})
        parts = clique.parts[number]
        parts[comm.rank] = [call[2:] for call in own]
        names = [[(c[0], *c[3:]) for c in part if c[0] not in ("send", "recv")] for part in parts.values()]
        if any(n != names[0] for n in names):
            raise NCCLError(INVALID_USAGE)

        def come() -> None:
            done = self._arrivals.setdefault((id(clique), number), set())
            done.add(comm.rank)
            if len(done) == clique.size:
                self._compute(clique, parts)
                driver.happened.update((id(clique), number, r) for r in range(clique.size))

        come.addresses = tuple(a for call in own for a in call[3:5] if a)  # type: ignore[attr-defined]
        driver._put(stream, "nccl", come)
        driver._put(stream, "wait", None, (id(clique), number, comm.rank))

    def _compute(self, clique: Clique, parts: dict[int, Any]) -> None:
        size = clique.size
        for each in zip(*([c for c in parts[r] if c[0] not in ("send", "recv")] for r in range(size)), strict=True):
            name, _, _, n, kind, *rest = each[0]
            dtype = DTYPES[kind]
            total = n * size if name == "reduce_scatter" else n
            given = [_array(c[1], total, dtype).copy() for c in each]
            if name in ("all_reduce", "reduce_scatter"):
                joined = reduce(JOINS[rest[0]], given)
                results = [joined if name == "all_reduce" else joined[r * n : (r + 1) * n] for r in range(size)]
            elif name == "all_gather":
                results = [np.concatenate(given)] * size
            else:
                results = [given[rest[0]]] * size
            for call, result in zip(each, results, strict=True):
                _array(call[2], result.size, dtype)[...] = result
        sent = {r: {} for r in range(size)}  # type: ignore[var-annotated]
        for r in range(size):
            for _, source, _, n, kind, other in (c for c in parts[r] if c[0] == "send"):
                sent[r].setdefault(other, []).append(_array(source, n, DTYPES[kind]).copy())
        for r in range(size):
            for _, _, target, n, kind, other in (c for c in parts[r] if c[0] == "recv"):
                _array(target, n, DTYPES[kind])[...] = sent[other][r].pop(0)
        assert not any(queue for queues in sent.values() for queue in queues.values()), "sent, and never received"

    def _call(self, comm: Comm, stream: int, name: str, source: int, target: int, *rest: Any) -> None:
        self._note(name, comm.rank, stream, *rest)
        if rest[1] not in DTYPES:
            raise NCCLError(4)
        assert self._group.calls is not None, "GPUs of one thread are called in a group"
        self._group.calls.append((comm, stream, name, source, target, *rest))

    def all_reduce(self, source: int, target: int, n: int, kind: int, op: int, comm: Comm, stream: int) -> None:
        self._call(comm, stream, "all_reduce", source, target, n, kind, op)

    def reduce_scatter(self, source: int, target: int, n: int, kind: int, op: int, comm: Comm, stream: int) -> None:
        self._call(comm, stream, "reduce_scatter", source, target, n, kind, op)

    def all_gather(self, source: int, target: int, n: int, kind: int, comm: Comm, stream: int) -> None:
        self._call(comm, stream, "all_gather", source, target, n, kind)

    def broadcast(self, source: int, target: int, n: int, kind: int, root: int, comm: Comm, stream: int) -> None:
        self._call(comm, stream, "broadcast", source, target, n, kind, root)

    def send(self, source: int, n: int, kind: int, other: int, comm: Comm, stream: int) -> None:
        self._call(comm, stream, "send", source, 0, n, kind, other)

    def recv(self, target: int, n: int, kind: int, other: int, comm: Comm, stream: int) -> None:
        self._call(comm, stream, "recv", 0, target, n, kind, other)


def _array(address: int, n: int, dtype: Any) -> np.ndarray[Any, Any]:
    nbytes = n * np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_uint8 * nbytes).from_address(address), dtype) if n else np.empty(0, dtype)
