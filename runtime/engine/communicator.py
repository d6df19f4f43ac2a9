"""Collectives of one world, done one after another by a thread of their own, beside what the engine computes.

Ranks that come to different collectives would wait for each other for ever, or mix up their arrays. So each group of
collectives begins with an agreement: all ranks exchange a digest of what they are about to do. It costs one small
message, usually while others compute. Where digests differ the ranks exchange texts, and each raises PlanError.

To wake a thread takes longer than a small message. So whoever waits for a collective does it, if nobody has begun, and
small arrays travel beside the digest.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import zip_longest

import numpy as np

from ..core.errors import PlanError, RankError
from ..core.frozen import dataclass
from ..program.device import Event
from ..program.world import Host, World
from .promises import EnginePromise, PythonPromise, make_promise

TEXT_BYTES = 4096  # what each rank tells of its collectives where they differ
DIGEST_BYTES = 16
CONTENT_BYTES = 240  # of each rank, beside the digest: as many as make no message slower
Job = tuple[Callable[[], None], EnginePromise | PythonPromise, str, bool]


@dataclass(frozen=True, slots=True)
class Agreement:
    """What all ranks are about to do. lines: in words, for where they differ; doing: all of it, for people."""

    lines: tuple[str, ...]
    digest: bytes
    doing: str


def agreement_on(lines: Iterable[str], doing: str) -> Agreement:
    """The agreement on some collectives, in words."""
    lines = tuple(lines)
    return Agreement(lines, hashlib.blake2b("\n".join(lines).encode(), digest_size=DIGEST_BYTES).digest(), doing)


@functools.lru_cache(maxsize=512)
def agreement_on_one(name: str, dtype: np.dtype[np.generic] | None = None, shape: tuple[int, ...] = ()) -> Agreement:
    """The agreement on one collective. dtype, shape: of the array that it takes, if it takes one."""
    doing = name if dtype is None else f"{name} of {dtype}{list(shape)}"
    return agreement_on((doing,), doing)


class RankCommunicator:
    """What does the collectives of a world. failure: why it does none any more."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.failure: BaseException | None = None
        self.before_close: list[Callable[[], None]] = []  # what this rank still has to do when it is about to leave
        self.numbers = itertools.count()  # of what all ranks make in the same order
        self._jobs: deque[Job] = deque()
        self._given: queue.SimpleQueue[bool] = (
            queue.SimpleQueue()
        )  # for each job that somebody may take; False: no more
        self._lock = threading.Lock()
        self._turn = threading.Lock()  # of whoever does jobs
        self._thread: threading.Thread | None = None

    def submit(
        self, job: Callable[[], None], doing: str, result: bool = True, agreement: Agreement | None = None
    ) -> Event:
        """Do a job after those before it; the event when it is done. doing: what it is, for people. result: whether
        somebody reads what it makes. agreement: made before the job."""
        if agreement is not None:
            job = partial(self._agree_and_do, agreement, job)
        promise = make_promise(self._help)
        self._jobs.append((job, promise, doing, result))
        if self._thread is None:
            self._start_thread_of_jobs()
        self._given.put(True)
        return promise.event

    def agree(self, agreement: Agreement) -> Event:
        """All ranks are about to do the same."""
        return self.submit(_do_nothing, agreement.doing, False, agreement)

    def _agree_and_do(self, agreement: Agreement, job: Callable[[], None]) -> None:
        doing, self.world.doing = self.world.doing, agreement.doing
        self._exchange(agreement, b"")
        self.world.doing = doing
        job()

    def run(self, agreement: Agreement, job: Callable[[Host], None], content: bytes = b"") -> None:
        """Agree, do a job, and wait for it, after those before it. content: at most `CONTENT_BYTES`; the job is given
        those of all ranks, a row each. Raises PlanError, RankError."""
        with self._turn:
            while self._do_next():
                pass
            error = self._run_one_job(lambda: job(self._exchange(agreement, content)), agreement.doing)
        if error is not None:
            raise error.with_traceback(None)

    def close(self, seconds: float) -> None:
        """Do what is left, but for no longer than that."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._given.put(False)
            self._thread.join(seconds)
            self._thread = None
        self.world.leave()
        while self.before_close:
            self.before_close.pop()()

    def _start_thread_of_jobs(self) -> None:
        with self._lock:
            if self._thread is None:
                name = f"collectives of rank {self.world.rank}"
                self._thread = threading.Thread(target=self._run_jobs_in_order, name=name, daemon=True)
                self._thread.start()

    def _run_jobs_in_order(self) -> None:
        while self._given.get():
            with self._turn:
                self._do_next()

    def _help(self, event: Event) -> None:
        """Do what comes before an event, and what makes it, unless somebody is at it."""
        while not event.query() and self._turn.acquire(blocking=False):
            try:
                if not self._do_next():
                    return
            finally:
                self._turn.release()

    def _do_next(self) -> bool:
        """Do the next job, if there is one. The caller has the turn."""
        if not self._jobs:
            return False
        job, promise, doing, result = self._jobs.popleft()
        promise.complete(self._run_one_job(job, doing), result)
        return True

    def _run_one_job(self, job: Callable[[], None], doing: str) -> BaseException | None:
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

    def _exchange(self, agreement: Agreement, content: bytes) -> Host:
        """All ranks' contents, a row each, once they agree. Raises PlanError where they do not."""
        world, digest = self.world, agreement.digest
        own = (digest + content).ljust(DIGEST_BYTES + CONTENT_BYTES, b"\0")
        every = np.empty((world.size, DIGEST_BYTES + CONTENT_BYTES), np.uint8)
        world.all_gather(np.frombuffer(own, np.uint8), every)
        if every[:, :DIGEST_BYTES].tobytes() == digest * world.size:
            return every[:, DIGEST_BYTES:]
        text = np.zeros(TEXT_BYTES, np.uint8)
        words = "\n".join(agreement.lines).encode()[:TEXT_BYTES]
        text[: len(words)] = np.frombuffer(words, np.uint8)
        texts = np.empty((world.size, TEXT_BYTES), np.uint8)
        world.all_gather(text, texts)
        told = [bytes(t).rstrip(b"\0").decode(errors="replace").split("\n") for t in texts]
        raise PlanError(text_of_first_differing_collective(told, world.rank))


def _do_nothing() -> None:
    """What all ranks can do at once."""


def text_of_first_differing_collective(texts: Sequence[Sequence[str]], rank: int) -> str:
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
