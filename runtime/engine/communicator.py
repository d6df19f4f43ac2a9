"""Collectives of one world, done one after another by a thread of their own, beside what the engine computes.

Ranks that come to different collectives would wait for each other for ever, or mix up their arrays. So each group of
collectives begins with an agreement: all ranks exchange a digest of what they are about to do. It costs one small
message, usually while others compute. Where digests differ the ranks exchange texts, and each raises PlanError.
"""

from __future__ import annotations

import hashlib
import itertools
import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import zip_longest

import numpy as np

from ..core.errors import PlanError, RankError
from ..program.device import Event
from ..program.world import World
from .promises import PlainPromise, Promise, make_promise

TEXT_BYTES = 4096  # what each rank tells of its collectives where they differ
Job = tuple[Callable[[], None], Promise | PlainPromise, str, bool]


class Communicator:
    """What does the collectives of a world. failure: why it does none any more."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.failure: BaseException | None = None
        self.before_close: list[Callable[[], None]] = []  # what this rank still has to do when it is about to leave
        self.numbers = itertools.count()  # of what all ranks make in the same order
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._turn = threading.Lock()  # of whoever does a job
        self._under_way = 0  # jobs that were given and are not done
        self._thread: threading.Thread | None = None

    def submit(self, job: Callable[[], None], doing: str, result: bool = True) -> Event:
        """Do a job after those before it; the event when it is done. doing: what it is, for people. result: whether
        somebody reads what it makes."""
        promise = make_promise()
        with self._lock:
            self._under_way += 1
            if self._thread is None:
                self._start()
        self._jobs.put((job, promise, doing, result))
        return promise.event

    def agree(self, lines: Sequence[str], digest: bytes, doing: str) -> Event:
        """All ranks are about to do the same. lines: what, in words, for where they differ."""
        return self.submit(lambda: self._compare(lines, digest), doing, False)

    def run(self, job: Callable[[], None], doing: str) -> None:
        """`agree`, do a job, and wait for it. Raises PlanError, RankError.

        The caller does it itself where nothing is before it: to wake a thread takes longer than a small message."""
        with self._lock:
            alone = self._under_way == 0
            if alone:
                self._under_way = 1
                self._turn.acquire()
        if not alone:
            self.agree([doing], digest_of_collective_lines([doing]), doing)
            self.submit(job, doing).wait()
            return
        try:
            error = self._do(partial(self._compare, [doing], digest_of_collective_lines([doing])), doing) or self._do(
                job, doing
            )
        finally:
            self._turn.release()
            with self._lock:
                self._under_way -= 1
        if error is not None:
            raise error.with_traceback(None)

    def close(self, seconds: float) -> None:
        """Do what is left, but for no longer than that."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._jobs.put(None)
            self._thread.join(seconds)
            self._thread = None
        self.world.leave()
        while self.before_close:
            self.before_close.pop()()

    def _start(self) -> None:
        name = f"collectives of rank {self.world.rank}"
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while (taken := self._jobs.get()) is not None:
            job, promise, doing, result = taken
            with self._turn:
                error = self._do(job, doing)
            promise.complete(error, result)
            with self._lock:
                self._under_way -= 1
            del job, promise, taken, error

    def _do(self, job: Callable[[], None], doing: str) -> BaseException | None:
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
                    self._tell_others(raised)
            return raised
        finally:
            self.world.doing = ""
        return None

    def _tell_others(self, error: BaseException) -> None:
        """This rank does not come to its next collective."""
        where = "; ".join(getattr(error, "__notes__", ()))
        self.world.fail(f"{type(error).__name__}: {error}{f' ({where})' if where else ''}, before {self.world.doing}")

    def _compare(self, lines: Sequence[str], digest: bytes) -> None:
        own = np.frombuffer(digest, np.uint8)
        world = self.world
        digests = np.empty((world.size, len(own)), np.uint8)
        world.all_gather(own, digests)
        if not (digests != digests[0]).any():
            return
        text = np.zeros(TEXT_BYTES, np.uint8)
        content = "\n".join(lines).encode()[:TEXT_BYTES]
        text[: len(content)] = np.frombuffer(content, np.uint8)
        texts = np.empty((world.size, TEXT_BYTES), np.uint8)
        world.all_gather(text, texts)
        told = [bytes(t).rstrip(b"\0").decode(errors="replace").split("\n") for t in texts]
        raise PlanError(text_of_first_differing_collective(told, world.rank))


def digest_of_collective_lines(lines: Iterable[str]) -> bytes:
    """16 bytes that stand for a text."""
    return hashlib.blake2b("\n".join(lines).encode(), digest_size=16).digest()


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
