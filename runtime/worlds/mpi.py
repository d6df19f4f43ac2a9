"""A world whose ranks are processes that MPI joins. The only file that imports mpi4py.

MPI's own collectives block, and cannot be given a limit of time. So each rank has a thread that looks every 50 ms
whether its rank waits for one that has ended, or for longer than `collective_timeout`; the ranks then tell each other
where they are, and all end with that text. In an elastic world (ULFM: user-level failure mitigation) the communicator
is revoked instead: who waits gets RankError, and `shrink` makes the communicator of those that are left.
"""

from __future__ import annotations

import atexit
import copy
import functools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, redirect_stderr, suppress
from io import StringIO
from types import TracebackType
from typing import Any, NoReturn

import mpi4py
import numpy as np

if "mpi4py.MPI" not in sys.modules:
    mpi4py.rc.finalize = False  # in a fork of a rank MPI_Finalize would wait for ever: see `_finalize_mpi`
from mpi4py import MPI

from ..core.errors import RankError
from ..core.readable_text import with_article
from ..core.settings import settings
from ..program.world import CONTENT_BYTES, DIGEST_BYTES, JOINS, Host, NoRank, World

LOOK_SECONDS = 0.05  # how often a rank looks at how the others are
PATIENCE_SECONDS = 0.2  # a rank that has left is waited for so long
FORWARD_SECONDS = 0.1  # of what a launcher has not forwarded before an abort it may lose some
NOTICE_SECONDS = 5.0  # who does not know which rank has failed waits for its notice, at most
ANSWER_SECONDS = 0.5  # and an answer to where a rank is
SPIN_SECONDS, NAP_SECONDS = 2e-4, 1e-3  # who waits: for how long it spins; then it naps, longer and longer
give_core_to_others = getattr(os, "sched_yield", lambda: time.sleep(0))
LARGE_BYTES = 1 << 20  # before a collective of so many a rank sleeps until all are there: MPI would spin
BYE, GONE, WHERE, HERE, FAILED = 1, 2, 3, 4, 5  # what ranks tell each other about themselves
MOST_BYTES = 1 << 30  # that one call of MPI takes, whose counts have 32 bits
BYTE, AGREE = MPI.BYTE, 1  # the datatype and tag of messages in which ranks agree
DIFFERENT = bytes(DIGEST_BYTES)  # in place of a digest: some ranks differ
_latest_world: list[tuple[int, MPIWorld]] = []  # and its process, of which a fork is no rank
OPERATIONS = {"sum": MPI.SUM, "prod": MPI.PROD, "max": MPI.MAX, "min": MPI.MIN}


def agreement_steps(rank: int, size: int) -> list[tuple[int, int, bool]]:
    """The messages by which ranks join what all of them have, by recursive doubling: to whom, from whom, and whether
    what comes is joined; else it is all there is."""
    whole = 1 << size.bit_length() - 1  # so many, a power of two, double; each of the others has one of them do it
    if rank >= whole:
        return [(rank - whole, MPI.PROC_NULL, True), (MPI.PROC_NULL, rank - whole, False)]
    steps = [(rank ^ 1 << i, rank ^ 1 << i, True) for i in range(whole.bit_length() - 1)]
    if rank + whole < size:
        steps = [(MPI.PROC_NULL, rank + whole, True), *steps, (rank + whole, MPI.PROC_NULL, True)]
    return steps


class AgreementMessages:
    """Memory of the messages in which ranks agree: of each a digest, then an array."""

    def __init__(self) -> None:
        self.sent, self.received = (np.zeros(DIGEST_BYTES + CONTENT_BYTES, np.uint8) for _ in range(2))
        self.sent_digest, self.received_digest = self.sent.data[:DIGEST_BYTES], self.received.data[:DIGEST_BYTES]
        self.receiving = [self.received, MPI.BYTE]
        self._arrays: dict[bytes, tuple[Host, Host]] = {}

    def arrays(self, digest: bytes, like: Host) -> tuple[Host, Host]:
        """The arrays in both messages. A digest says of which dtype and shape, if it comes with an array."""
        found = self._arrays.get(digest)
        if found is None or found[0].size != like.size:
            sent, received = (
                np.frombuffer(memory, like.dtype, like.size, DIGEST_BYTES).reshape(like.shape)
                for memory in (self.sent, self.received)
            )
            if len(self._arrays) >= 256:
                self._arrays.clear()
            found = self._arrays[digest] = sent, received
        return found


def _mpi_operation(op: str, dtype: np.dtype[Any]) -> Any:
    """MPI's, but NumPy's where that may be another: maxima of floats, which may drop NaN, and what fewer than 32 bits
    hold, which Open MPI adds up to the end of its range."""
    differs = dtype.itemsize < 4 or (op in ("max", "min") and dtype.kind == "f")
    return _numpy_operation(op) if differs else OPERATIONS[op]


@functools.cache
def _numpy_operation(op: str) -> Any:
    """One for all dtypes: mpi4py has room for few."""

    def join_arrays(given: Any, result: Any, datatype: Any) -> None:
        dtype = np.dtype(datatype.typestr)
        array = np.frombuffer(result, dtype)
        JOINS[op](np.frombuffer(given, dtype), array, out=array)

    return MPI.Op.Create(join_arrays, commute=True)


class MPIWorld(World):
    """One rank of an MPI program."""

    kind = "mpi"

    def __init__(self, communicator: Any, elastic: bool = False, after_loss: bool = False) -> None:
        """communicator: of mpi4py; what travels here uses copies of it. after_loss: of the ranks that are left."""
        self.elastic, self.after_loss = elastic, after_loss
        self.rank, self.size = communicator.Get_rank(), communicator.Get_size()
        self._data, self._watch = communicator.Dup(), communicator.Dup()
        machine = communicator.Split_type(MPI.COMM_TYPE_SHARED, self.rank)
        self.local_rank, self.local_size = machine.Get_rank(), machine.Get_size()
        machine.Free()
        self._steps, self._messages = agreement_steps(self.rank, self.size), AgreementMessages()
        self.doing = ""
        self.count = 0  # collectives that this rank has come to
        self.left: dict[int, int] = {}  # ranks that come to no more collectives, and how many they have come to
        self._groups: dict[tuple[tuple[int, ...], ...], MPIWorld] = {}
        self.ended: set[int] = set()  # of these, ranks that receive nothing any more
        self.failure: tuple[str, tuple[int, ...]] | None = None  # in an elastic world
        self._since = 0.0  # when this rank began to wait; 0: it does not
        self._answers: dict[int, int] = {}  # how far ranks have come
        self._closed = False
        self._failure_notices: list[Any] = []  # requests of notices of a failure, which are over once they are read
        self._readings = 0  # how often the watcher has read all notices
        _latest_world[:] = [(os.getpid(), self)]
        self._watcher = threading.Thread(target=self._watch_other_ranks, name=f"watch of rank {self.rank}", daemon=True)
        self._watcher.start()

    # collectives

    def _call_mpi_collective(self, name: str, call: Callable[..., Any], *given: Any) -> Any:
        """Call one of MPI's collectives, or what is made of messages to all."""
        if self.failure is not None:
            raise RankError(*self.failure)
        self.count += 1
        self.doing = self.doing or name
        self._since = time.monotonic()
        try:
            if given and isinstance(given[0], np.ndarray) and given[0].nbytes >= LARGE_BYTES:
                self._sleep_until_all_are_there(self._data.Ibarrier().Test)  # the cores are for whoever still computes
            return call(*given)
        except MPI.Exception as error:
            self._since = 0.0
            self._fail_mpi_call(error, self.doing)
        finally:
            self._since = 0.0

    def _fail_mpi_call(self, error: Any, doing: str) -> NoReturn:
        text = f"{error.Get_error_string()} in {doing}"
        if not self.elastic:
            self.fail(text)
        until, readings = time.monotonic() + NOTICE_SECONDS, self._readings
        lost: tuple[int, ...] = ()
        while self.failure is None and time.monotonic() < until:  # who has failed tells it, or MPI finds it out
            lost = lost or self._lost_ranks()  # some may have ended for another that failed: its notice comes first
            if not lost:
                readings = self._readings
            elif self._readings > readings + 1 or not self._watcher.is_alive():
                break
            time.sleep(LOOK_SECONDS / 10)
        if self.failure is None:
            named = f"rank {', '.join(map(str, lost))} died: " if lost else ""
            self._revoke_communicator(f"{named}{text}", lost)
        assert self.failure is not None
        raise RankError(*self.failure) from None

    def _lost_ranks(self) -> tuple[int, ...]:
        group, own = self._data.Get_failed(), self._data.Get_group()
        return tuple(sorted(MPI.Group.Translate_ranks(group, range(group.Get_size()), own)))

    def agree(self, digest: bytes, source: Host, target: Host, join: np.ufunc) -> bool:
        agrees: bool = self._call_mpi_collective("agreement", self._agree_with_ranks, digest, source, target, join)
        return agrees

    def _agree_with_ranks(self, digest: bytes, source: Host, target: Host, join: np.ufunc) -> bool:
        """Who finds another digest says so in the rest of its messages, which come to all."""
        messages, nbytes, agrees, mine = self._messages, DIGEST_BYTES + source.nbytes, True, source
        messages.sent_digest[:] = digest
        own, other = messages.arrays(digest, source) if source.nbytes else (source, source)
        for to, sender, joined in self._steps:
            if source.nbytes:
                own[...] = mine
            self._data.Sendrecv([messages.sent, nbytes, BYTE], to, AGREE, messages.receiving, sender, AGREE)
            if sender < 0:  # nobody
                continue
            if messages.received_digest != digest:
                agrees, nbytes, messages.sent_digest[:] = False, DIGEST_BYTES, DIFFERENT
            elif not source.nbytes:
                continue
            elif not joined:
                target[...] = other
            elif self.rank < sender:  # in the same order on both, for the same bits
                join(own, other, target)
            else:
                join(other, own, target)
            mine = target
        if mine is source:  # the only rank
            target[...] = source
        return agrees

    def all_reduce(self, source: Host, target: Host, op: str) -> None:
        self._call_mpi_collective("all_reduce", self._reduce_pieces, source, target, _mpi_operation(op, source.dtype))

    def _reduce_pieces(self, source: Host, target: Host, operation: Any) -> None:
        for given, result in _pieces_of_arrays(source, target):
            self._data.Allreduce(given, result, operation)

    def reduce_scatter(self, source: Host, target: Host, op: str) -> None:
        call, operation = self._data.Reduce_scatter_block, _mpi_operation(op, source.dtype)
        self._call_mpi_collective(
            "reduce_scatter", self._exchange_parts, source, target, lambda given, result: call(given, result, operation)
        )

    def all_gather(self, source: Host, target: Host) -> None:
        self._call_mpi_collective("all_gather", self._exchange_parts, source, target, self._data.Allgather)

    def all_to_all(self, source: Host, target: Host) -> None:
        self._call_mpi_collective("all_to_all", self._exchange_parts, source, target, self._data.Alltoall)

    def _exchange_parts(self, source: Host, target: Host, call: Callable[[Host, Host], object]) -> None:
        """call(source, target), of which one or both have a part for each rank: so much of each part at once as MPI
        takes."""
        part = min(source.size, target.size) // (1 if source.size != target.size else self.size)
        most = max(1, MOST_BYTES // source.itemsize // self.size)
        if part <= most:
            call(source, target)
            return
        given, result = (array.reshape(-1, part) for array in (source, target))
        for start in range(0, part, most):
            piece = slice(start, start + most)
            came = np.empty_like(result[:, piece], order="C")
            call(np.ascontiguousarray(given[:, piece]), came)
            result[:, piece] = came

    def broadcast(self, array: Host, root: int) -> None:
        self._call_mpi_collective("broadcast", self._broadcast_pieces, array, root)

    def _broadcast_pieces(self, array: Host, root: int) -> None:
        for (piece,) in _pieces_of_arrays(array):
            self._data.Bcast(piece, root)

    def permute(self, source: Host, target: Host, pairs: Sequence[tuple[int, int]]) -> None:
        def exchange_pairs() -> None:
            senders = [a for a, b in pairs if b == self.rank]
            if not senders:
                target[...] = 0
            for given, result in _pieces_of_arrays(source, target):
                requests = [self._data.Irecv(result, a) for a in senders]
                requests += [self._data.Isend(given, b) for a, b in pairs if a == self.rank]
                MPI.Request.Waitall(requests)

        self._call_mpi_collective("permute", exchange_pairs)

    def barrier(self) -> None:
        self._call_mpi_collective("barrier", self._data.Barrier)

    def within(self, groups: tuple[tuple[int, ...], ...]) -> MPIWorld:
        """Made once for the same groups, by all ranks. Who is late or lost is found out by the world of all."""
        found = self._groups.get(groups)
        if found is None:
            number, group = next((i, group) for i, group in enumerate(groups) if self.rank in group)
            found = self._groups[groups] = copy.copy(self)
            found._data = self._data.Split(number, group.index(self.rank))
            found.rank, found.size = found._data.Get_rank(), len(group)
            found._call_mpi_collective = self._call_mpi_collective  # type: ignore[method-assign]
        return found

    def _sleep_until_all_are_there(self, ready: Callable[[], bool]) -> None:
        """At first in a loop that gives the core to others, then asleep in between."""
        start = time.monotonic()
        while not ready():
            waited = time.monotonic() - start
            if waited < SPIN_SECONDS:
                give_core_to_others()
                continue
            if self.failure is not None:
                raise RankError(*self.failure)
            time.sleep(min(waited / 8, NAP_SECONDS))

    # how the other ranks are

    def _watch_other_ranks(self) -> None:
        while not self._closed:
            time.sleep(LOOK_SECONDS)
            try:
                self._read_notices_of_ranks()
                self._readings += 1
                since, count = self._since, self.count
                waited = time.monotonic() - since if since else 0.0
                gone = [r for r, reached in self.left.items() if reached < count]
                if gone and waited > PATIENCE_SECONDS:
                    self._fail_collective_of_ranks(
                        f"rank {gone[0]} has ended, and rank {self.rank} waits in {self.doing}", (*gone,)
                    )
                elif waited > settings.collective_timeout:
                    self._fail_collective_of_ranks(*self._text_of_late_ranks())
            except MPI.Exception as error:
                if not self.elastic:
                    self.fail(error.Get_error_string())
                return

    def _read_notices_of_ranks(self) -> None:
        if not self.elastic:
            self._read_notices_of(MPI.ANY_SOURCE)
            return
        for other in range(self.size):  # one after the other: of any source there is nothing once one is lost
            if other != self.rank:
                with suppress(MPI.Exception):
                    self._read_notices_of(other)

    def _read_notices_of(self, source: int) -> None:
        status = MPI.Status()
        while self._watch.Iprobe(source, MPI.ANY_TAG, status):
            kind, other = status.Get_tag(), status.Get_source()
            count, text, ranks = self._watch.recv(source=other, tag=kind)
            if kind == BYE:
                self.left[other] = count
            elif kind == GONE:
                self.ended.add(other)
            elif kind == WHERE:
                self._watch.isend((self.count, "", ()), other, HERE)
            elif kind == HERE:
                self._answers[other] = count
            elif kind == FAILED:
                self._revoke_communicator(text, ranks)

    def _text_of_late_ranks(self) -> tuple[str, tuple[int, ...]]:
        """Who has not come to what this rank waits in, and where they are."""
        self._ask_other_ranks()
        absent = []
        for other in range(self.size):
            if other != self.rank and other not in self._answers:
                absent.append((other, "does not answer"))
            elif other != self.rank and self._answers[other] < self.count:
                count = self._answers[other]
                absent.append((other, f"has come to {count} of {self.count} collectives, and is in none"))
        where = "; ".join(f"rank {other} {text}" for other, text in absent) or "all ranks wait"
        seconds = f"{settings.collective_timeout:g} s (KERNELGRAPH_COLLECTIVE_TIMEOUT)"
        return f"waited {seconds} in {self.doing}: {where}", tuple(other for other, _ in absent)

    def _ask_other_ranks(self) -> None:
        """How far they have come."""
        self._answers.clear()
        self._notify_other_ranks((0, "", ()), WHERE)
        until = time.monotonic() + ANSWER_SECONDS
        while len(self._answers) < self.size - 1 and time.monotonic() < until:
            self._read_notices_of_ranks()
            time.sleep(LOOK_SECONDS / 10)

    def _fail_collective_of_ranks(self, text: str, ranks: tuple[int, ...]) -> None:
        if self.elastic:
            self._revoke_communicator(text, ranks)
        else:
            self.fail(text)

    def _revoke_communicator(self, text: str, ranks: tuple[int, ...]) -> None:
        if self.failure is None:
            self.failure = text, ranks
            self._notify_other_ranks((self.count, text, ranks), FAILED)
            self._data.Revoke()

    def lost(self) -> set[int]:
        return {*self.ended}

    def fail(self, text: str, ranks: tuple[int, ...] = ()) -> None:
        """In an elastic world the others get RankError. Else all ranks end, with the text on the standard error."""
        if isinstance(self._data, NoRank):
            return
        if self.elastic:
            self._revoke_communicator(text if ranks else f"rank {self.rank} failed: {text}", ranks or (self.rank,))
            return
        print(f"kernelgraph: rank {self.rank} of {self.size}: {text}", file=sys.stderr, flush=True)
        time.sleep(FORWARD_SECONDS)
        self._data.Abort(1)

    def shrink(self) -> MPIWorld:
        if not self.elastic:
            raise RankError("all ranks end with one that dies; write kg.distributed.init(elastic=True)")
        if not self._data.Is_revoked():
            self._data.Revoke()
        self._closed = True
        self._watcher.join()
        late = threading.Timer(settings.collective_timeout, self._abort_shrink)
        late.daemon = True
        late.start()
        try:
            return MPIWorld(self._data.Shrink(), True, after_loss=True)
        finally:
            late.cancel()

    def _abort_shrink(self) -> None:
        seconds = f"{settings.collective_timeout:g} s (KERNELGRAPH_COLLECTIVE_TIMEOUT)"
        print(f"kernelgraph: rank {self.rank} waited {seconds} in shrink for a rank that has not", file=sys.stderr)
        self._data.Abort(1)

    def leave(self) -> None:
        self._notify_other_ranks((self.count, "", ()), BYE)

    def close(self) -> None:
        if not self._closed:
            self._notify_other_ranks((self.count, "", ()), GONE)
            while self.elastic and not self.after_loss and len(self.ended) < self.size - 1:
                if self.failure is not None or not self._watcher.is_alive() or self._lost_ranks():
                    self.after_loss = True
                time.sleep(LOOK_SECONDS / 10)
            self._closed = True
            self._watcher.join(1.0)

    def abandon(self, text: str) -> None:
        self._closed, self.failure = True, (text, ())
        self._data = self._watch = NoRank(text)

    def _notify_other_ranks(self, notice: tuple[int, str, Sequence[int]], kind: int) -> None:
        send = self._watch.issend if kind == FAILED else self._watch.isend
        for other in range(self.size):
            if other != self.rank and other not in self.ended:
                with suppress(MPI.Exception) if self.elastic else nullcontext():  # it may have died
                    request = send(notice, other, kind)
                    if kind == FAILED:
                        self._failure_notices.append(request)

    def wait_until_failure_is_told(self) -> None:
        """Before this rank ends: what it has sent the others about a failure goes with it, unless they have read it."""
        until = time.monotonic() + NOTICE_SECONDS
        while self._failure_notices and time.monotonic() < until:
            with suppress(MPI.Exception):  # that one is lost itself
                if not self._failure_notices[-1].Test():
                    time.sleep(LOOK_SECONDS / 10)
                    continue
            self._failure_notices.pop()


def _pieces_of_arrays(*arrays: Host) -> list[tuple[Host, ...]]:
    """Contiguous arrays of one size, as many elements at once as MPI takes."""
    count, most = arrays[0].size, max(1, MOST_BYTES // arrays[0].itemsize)
    if 0 < count <= most:
        return [arrays]
    flat = [array.reshape(-1) for array in arrays]
    return [tuple(array[start : start + most] for array in flat) for start in range(0, count, most)]


def join_mpi_world(elastic: bool) -> MPIWorld:
    """This process' rank among those that the launcher started. Raises RankError."""
    if mpi4py.rc.finalize is False:
        atexit.register(_finalize_mpi)
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise RankError("this MPI was built without support for threads (MPI_THREAD_MULTIPLE)")
    _wake_threads_on_time()
    world = MPIWorld(MPI.COMM_WORLD, elastic)
    if elastic:
        try:
            world._data.Get_failed()
        except (MPI.Exception, NotImplementedError):
            raise RankError(
                "elastic=True needs Open MPI with ULFM; start with python -m kernelgraph.run --elastic -n 4 script.py"
            ) from None
    _end_all_ranks_with_exceptions()
    return world


def _finalize_mpi() -> None:
    """At the end of a rank's process. Not after a loss: MPI_Finalize waits for all ranks, and those that are lost, or
    have heard of it and ended, do not come. A rank that fails in an elastic world ends as if it were killed: of one
    that ends with a status `shrink` on the others does not hear, and waits for ever (Open MPI 5.0.11)."""
    for process, world in _latest_world:
        if os.getpid() != process or MPI.Is_finalized():
            continue
        world.wait_until_failure_is_told()
        if world.failure is None and not world.after_loss:
            MPI.Finalize()
        elif world.failure is not None and world.rank in world.failure[1]:
            sys.stdout.flush()
            sys.stderr.flush()
            os.kill(process, signal.SIGKILL)


def _wake_threads_on_time() -> None:
    """Linux lets a sleeping thread sleep 50 us longer, ten times what a small message takes. Not this thread, nor those
    that it starts from here on."""
    with suppress(OSError), open("/proc/self/timerslack_ns", "w") as slack:
        slack.write("1")


def _end_all_ranks_with_exceptions() -> None:
    """An exception that nobody handles ends all ranks, with its text; in an elastic world that of those that are left
    by then hears of it."""
    before = sys.excepthook

    def end_all_ranks(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> Any:
        with redirect_stderr(StringIO()) as told:
            before(kind, error, trace)
        sys.stderr.write(told.getvalue())  # in one piece: between its lines a launcher may put words of its own
        for _, world in _latest_world:
            ends = "ended" if world.elastic else "ends all ranks"
            world.fail(f"{ends} by {with_article(kind.__name__)} that nobody handled")

    sys.excepthook = end_all_ranks
