"""Collectives of one world, done in order by a thread of their own. The engine computes beside them.

Ranks that come to different collectives would wait for each other for ever, or mix up their arrays. So each group of
collectives begins with an agreement: all ranks exchange a digest of what they are about to do. It costs one small
message, usually while others compute. Where digests differ the ranks exchange texts, and each raises PlanError.

To wake a thread takes longer than a small message. So whoever waits for a collective does it, if nobody has begun, and
small arrays travel beside the digest. For a while after a job the thread wakes by itself every half millisecond, and
nobody wakes it for what is small.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import zip_longest

import numpy as np

from ..core.errors import PlanError, RankError
from ..core.frozen import frozen
from ..program.device import DeviceCommunicator, Event, error_of_event
from ..program.world import DIGEST_BYTES, INSTEAD, Host, World
from .promises import EnginePromise, PythonPromise, make_promise

TEXT_BYTES = 4096  # what each rank tells of its collectives where they differ
NOTHING = np.empty(0, np.uint8)
NAP_SECONDS, NAPS = 5e-4, 100  # how long the thread of jobs naps, and how often, before it sleeps until it is woken
SMALL_BYTES = 1 << 18  # a sum of no more takes less than a nap
Job = tuple[Callable[[], object], EnginePromise | PythonPromise, str, bool]


@frozen
class Agreement:
    """What all ranks are about to do. lines: in words, for where they differ. doing: all of it, for people."""

    lines: tuple[str, ...]
    digest: bytes
    doing: str


def rank_agreement_on_collectives(lines: Iterable[str], doing: str) -> Agreement:
    """The agreement on some collectives, in words."""
    lines = tuple(lines)
    return Agreement(lines, hashlib.blake2b("\n".join(lines).encode(), digest_size=DIGEST_BYTES).digest(), doing)


@functools.lru_cache(maxsize=512)
def rank_agreement_on_collective(
    name: str, dtype: np.dtype[np.generic] | None = None, shape: tuple[int, ...] = ()
) -> Agreement:
    """The agreement on one collective. dtype, shape: of the array that it takes, if it takes one."""
    doing = name if dtype is None else f"{name} of {dtype}{list(shape)}"
    return rank_agreement_on_collectives((doing,), doing)


class _Alarm:
    """Wakes one thread. Python 3.11's `SimpleQueue.get` sleeps for ever where its time ends as something is put."""

    def __init__(self) -> None:
        self._silent = threading.Lock()
        self._silent.acquire()

    def ring(self) -> None:
        """Who sleeps wakes, or who sleeps next does not."""
        with suppress(RuntimeError):  # it rings already
            self._silent.release()

    def sleep(self, seconds: float) -> bool:
        """Until it rings, but no longer than that (-1: for ever). Whether it rang."""
        return self._silent.acquire(timeout=seconds)


class EngineCommunicator:
    """What does the collectives of a world. failure: why it does none any more."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.failure: BaseException | None = None
        self.before_close: list[Callable[[], None]] = []  # what this rank still has to do when it is about to leave
        self.numbers = itertools.count()  # of what all ranks make in the same order
        # what the ranks' devices exchange arrays by, or why by nothing, by this rank's device
        self.exchanges: dict[str, tuple[DeviceCommunicator | None, str]] = {}
        self._jobs: deque[Job] = deque()
        self._alarm = _Alarm()  # wakes the thread of jobs
        self._ends = False  # whether that thread ends once there are no jobs
        self._naps = False  # whether that thread wakes by itself
        self._lock = threading.Lock()
        self._turn = threading.Lock()  # of whoever does jobs
        self._thread: threading.Thread | None = None
        _communicators.add(self)

    def promise(self) -> EnginePromise | PythonPromise:
        """Of a job that is submitted later."""
        return make_promise(self._help_event_to_happen)

    def submit(
        self,
        job: Callable[[], object],
        doing: str,
        result: bool = True,
        soon: bool = True,
        promise: EnginePromise | PythonPromise | None = None,
    ) -> Event:
        """Do a job after those before it. The event when it is done. doing: what it is, for people. result: whether
        somebody reads what it makes. soon: now, if nobody waits for it; else in less than a millisecond. promise: whose
        event it is."""
        promise = promise or self.promise()
        self._jobs.append((job, promise, doing, result))
        if self._thread is None:
            self._start_thread_of_jobs()
        if soon or not self._naps:
            self._alarm.ring()
        return promise.event

    def agree(self, agreement: Agreement, arguments: Sequence[Event]) -> Event:
        """All ranks are about to do the same, with arguments."""

        def agree_on_call() -> None:
            self.require_arguments(agreement, arguments)
            self.exchange(agreement)

        return self.submit(agree_on_call, agreement.doing, False)

    def require_arguments(self, agreement: Agreement, arguments: Sequence[Event]) -> None:
        """Raises PlanError, on all ranks, where an argument on any of them has failed by one. For jobs.

        This rank comes to no collective of the call then, and others, whose arguments did not fail, would wait."""
        for event in arguments:
            if isinstance(error := error_of_event(event), PlanError):
                line = f"nothing of {agreement.doing}, which takes an array that no rank has made"
                self.exchange(rank_agreement_on_collectives((line,), agreement.doing))
                raise error

    def run(
        self,
        agreement: Agreement,
        job: Callable[[], object] | None = None,
        source: Host = NOTHING,
        target: Host = NOTHING,
        join: np.ufunc = np.add,
    ) -> None:
        """Agree, do a job, and wait for it, after those before it. source, target, join: see `exchange`. Raises
        PlanError, RankError."""

        def agree_and_do_job() -> None:
            self.exchange(agreement, source, target, join)
            if job is not None:
                job()

        self.perform(agree_and_do_job, agreement.doing)

    def perform(self, job: Callable[[], object], doing: str) -> None:
        """Do a job, after those before it. doing: what it is, for people. Raises what it raises, RankError."""
        with self._turn:
            while self._jobs:
                self._do_next_collective_job()
            error = self._run_one_job(job, doing)
        if error is not None:
            raise error.with_traceback(None)

    def close(self, seconds: float) -> None:
        """Do what is left, but for no longer than that."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self.stop()
            self._thread.join(seconds)
            self._thread = None
        self.world.leave()
        while self.before_close:
            self.before_close.pop()()

    def abandon(self, text: str) -> None:
        """This process is a fork of a rank: it has none of the other threads, and does no collectives."""
        self._lock, self._turn, self._alarm = threading.Lock(), threading.Lock(), _Alarm()
        self._thread, self._naps = None, False
        if self.world.kind != "alone":
            self.failure = RankError(text)
            self.before_close.clear()
            self.world.abandon(text)

    def stop(self) -> None:
        """The thread of jobs ends, after those that there are; whoever waits for later ones does them."""
        self._ends = True
        self._alarm.ring()

    def _start_thread_of_jobs(self) -> None:
        with self._lock:
            if self._thread is None:
                self._ends = False
                name = f"collectives of rank {self.world.rank}"
                self._thread = threading.Thread(target=self._run_jobs_in_order, name=name, daemon=True)
                self._thread.start()

    def _run_jobs_in_order(self) -> None:
        naps = 0
        while self._jobs or not self._ends:
            self._naps = naps < NAPS
            if not self._jobs:  # those that come from here on are seen after the nap, or wake it
                naps = 0 if self._alarm.sleep(NAP_SECONDS if self._naps else -1) else naps + 1
            while self._jobs:
                naps = 0
                with self._turn:
                    self._do_next_collective_job()

    def _help_event_to_happen(self, event: Event) -> None:
        """Do what comes before an event, and what makes it, unless somebody is at it."""
        while not event.query() and self._turn.acquire(blocking=False):
            try:
                if not self._do_next_collective_job():
                    return
            finally:
                self._turn.release()

    def _do_next_collective_job(self) -> bool:
        """Do the next job, if there is one. The caller has the turn."""
        if not self._jobs:
            return False
        job, promise, doing, result = self._jobs.popleft()
        promise.complete(self._run_one_job(job, doing), result)
        return True

    def _run_one_job(self, job: Callable[[], object], doing: str) -> BaseException | None:
        """What the job raised, or why none is done any more."""
        if self.failure is not None:
            return self.failure
        self.world.doing = doing
        try:
            job()
        except BaseException as raised:
            if not isinstance(raised, PlanError):  # which all ranks have, and go on after
                self.failure = raised
                if not isinstance(raised, RankError):
                    self._tell_other_ranks_of_failure(raised)
            return raised
        finally:
            self.world.doing = ""
        return None

    def _tell_other_ranks_of_failure(self, error: BaseException) -> None:
        """This rank does not come to its next collective."""
        where = "; ".join(getattr(error, "__notes__", ()))
        self.world.fail(f"{type(error).__name__}: {error}{f' ({where})' if where else ''}, before {self.world.doing}")

    def exchange(
        self, agreement: Agreement, source: Host = NOTHING, target: Host = NOTHING, join: np.ufunc = np.add
    ) -> None:
        """All ranks agree, and `target` has their arrays joined: see `World.agree`. For jobs.

        Raises PlanError where ranks do not agree."""
        world = self.world
        doing, world.doing = world.doing, agreement.doing
        agrees = world.agree(agreement.digest, source, target, join)
        world.doing = doing
        if agrees:
            return
        text = np.zeros(TEXT_BYTES, np.uint8)
        words = "\n".join(agreement.lines).encode()[:TEXT_BYTES]
        text[: len(words)] = np.frombuffer(words, np.uint8)
        texts = np.empty((world.size, TEXT_BYTES), np.uint8)
        world.all_gather(text, texts)
        told = [bytes(t).rstrip(b"\0").decode(errors="replace").split("\n") for t in texts]
        raise PlanError(text_of_differing_rank_collective(told, world.rank))


_communicators: weakref.WeakSet[EngineCommunicator] = weakref.WeakSet()


def _abandon_worlds_in_forked_child() -> None:
    for communicator in [*_communicators]:
        rank, size = communicator.world.rank, communicator.world.size
        who = f"it is a fork of rank {rank} of {size} (process {os.getppid()})"
        communicator.abandon(f"process {os.getpid()} is no rank: {who}, which goes on without it; {INSTEAD}")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_worlds_in_forked_child)


def text_of_differing_rank_collective(texts: Sequence[Sequence[str]], rank: int) -> str:
    """Where ranks' collectives first differ: this rank's and another's line. texts: of each rank, a line a
    collective."""
    for number, lines in enumerate(zip_longest(*texts, fillvalue="no more")):
        other = next((r for r, line in enumerate(lines) if line != lines[rank]), None)
        if other is not None:
            return (
                f"ranks differ at collective {number}: rank {rank} comes to {lines[rank]}, rank {other} to "
                f"{lines[other]}; every rank calls the same collectives in the same order"
            )
    return "ranks differ in what they are about to do, beyond the first of their collectives"
