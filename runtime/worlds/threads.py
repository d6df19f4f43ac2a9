"""A world whose ranks are threads of one process. What tests run, and where faults are injected.

Sums are in the order of the ranks, so every run gives the same bits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, TypeVar

import numpy as np

from ..core.errors import RankError
from ..core.settings import settings
from ..program.world import JOINS, Host, NoRank, World

Result = TypeVar("Result")


class RankMeeting:
    """What the ranks share: a place where all come with a value and leave with all values."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.condition = threading.Condition()
        self.turn = 0
        self.arrived: dict[int, tuple[str, Any]] = {}
        self.last: dict[int, tuple[str, Any]] = {}
        self.doing: dict[int, str] = {}  # of each rank, the last collective that it came to
        self.left: dict[int, str] = {}  # ranks that come to no more collectives, and how they ended
        self.ended: dict[int, str] = {}  # of these, ranks that receive nothing any more
        self.failure: tuple[str, tuple[int, ...]] | None = None
        self.survivors: dict[frozenset[int], RankMeeting] = {}

    def exchange(self, rank: int, what: str, value: Any) -> list[Any]:
        """All ranks' values, in their order. what: what the rank does, for people. Raises RankError."""
        with self.condition:
            self.require_no_failure()
            turn, self.arrived[rank], self.doing[rank] = self.turn, (what, value), what
            if len(self.arrived) == self.size:
                self.last, self.arrived = self.arrived, {}
                self.turn += 1
                self.condition.notify_all()
            else:
                self._wait_for_turn(turn, what)
            return [self.last[r][1] for r in range(self.size)]

    def _wait_for_turn(self, turn: int, what: str) -> None:
        until = time.monotonic() + settings.collective_timeout
        while self.turn == turn:
            self.require_no_failure()
            absent = [r for r in range(self.size) if r not in self.arrived]
            gone = [r for r in absent if r in self.left]
            left = until - time.monotonic()
            if gone:
                self.set_failure(f"rank {gone[0]} {self.left[gone[0]]}, and others wait in {what}", (*gone,))
            elif left <= 0:
                text = late_ranks_text(what, {r: self.doing.get(r, "") for r in absent})
                self.set_failure(text, (*absent,))
            else:
                self.condition.wait(left)

    def require_no_failure(self) -> None:
        if self.failure is not None:
            raise RankError(*self.failure)

    def set_failure(self, text: str, ranks: tuple[int, ...]) -> None:
        """The first one counts. The caller holds the condition."""
        if self.failure is None:
            self.failure = text, ranks
        self.condition.notify_all()

    def leave(self, rank: int, how: str) -> None:
        with self.condition:
            self.left.setdefault(rank, how)
            self.condition.notify_all()

    def end(self, rank: int, how: str) -> None:
        with self.condition:
            self.left.setdefault(rank, how)
            self.ended[rank] = how
            self.condition.notify_all()


def late_ranks_text(what: str, absent: dict[int, str]) -> str:
    """That some ranks do not come to a collective, and where they were last."""
    where = "; ".join(f"rank {r} {f'was last in {doing}' if doing else 'came to none'}" for r, doing in absent.items())
    seconds = f"{settings.collective_timeout:g} s"
    return f"not all ranks came to {what} within {seconds} (KERNELGRAPH_COLLECTIVE_TIMEOUT): {where}"


class ThreadsWorld(World):
    """One rank among the threads of a process; see `run_ranks_as_threads`."""

    kind = "threads"

    def __init__(self, meeting: RankMeeting, rank: int) -> None:
        self.meeting, self.rank, self.size = meeting, rank, meeting.size
        self.local_rank, self.local_size = rank, meeting.size
        self.doing = ""

    def _exchange_with_ranks(self, name: str, value: Any, read: Callable[[list[Any]], Result]) -> Result:
        """What `read` makes of all ranks' values, which stay as they are meanwhile."""
        what = self.doing or name
        result = read(self.meeting.exchange(self.rank, what, value))
        self.meeting.exchange(self.rank, what, None)
        return result

    def agree(self, digest: bytes, source: Host, target: Host, join: np.ufunc) -> bool:
        def join_where_digests_agree(given: list[tuple[bytes, Host]]) -> Host | None:
            return reduce(join, [x for _, x in given]) if all(other == digest for other, _ in given) else None

        found = self._exchange_with_ranks("agreement", (digest, source), join_where_digests_agree)
        if found is not None:
            target[...] = found
        return found is not None

    def all_reduce(self, source: Host, target: Host, op: str) -> None:
        found = self._exchange_with_ranks(
            "all_reduce", source, lambda given: reduce(JOINS[op], _require_alike_arrays_of_ranks(given))
        )
        target[...] = found

    def reduce_scatter(self, source: Host, target: Host, op: str) -> None:
        def own_part_of_sum(given: list[Host]) -> Host:
            n = len(source) // self.size
            return np.array(
                reduce(
                    JOINS[op], [x[self.rank * n : (self.rank + 1) * n] for x in _require_alike_arrays_of_ranks(given)]
                )
            )

        target[...] = self._exchange_with_ranks("reduce_scatter", source, own_part_of_sum)

    def all_gather(self, source: Host, target: Host) -> None:
        flat = target.reshape(-1)
        flat[...] = self._exchange_with_ranks(
            "all_gather", source, lambda given: np.concatenate([x.reshape(-1) for x in given])
        )

    def all_to_all(self, source: Host, target: Host) -> None:
        n = len(source) // self.size
        key = slice(self.rank * n, (self.rank + 1) * n)
        target[...] = self._exchange_with_ranks(
            "all_to_all", source, lambda given: np.concatenate([x[key] for x in _require_alike_arrays_of_ranks(given)])
        )

    def broadcast(self, array: Host, root: int) -> None:
        found = self._exchange_with_ranks(
            "broadcast", array, lambda given: np.array(_require_alike_arrays_of_ranks(given)[root])
        )
        array[...] = found

    def permute(self, source: Host, target: Host, pairs: Sequence[tuple[int, int]]) -> None:
        senders = [a for a, b in pairs if b == self.rank]
        target[...] = self._exchange_with_ranks(
            "permute", source, lambda given: np.array(given[senders[0]]) if senders else 0
        )

    def barrier(self) -> None:
        self.meeting.exchange(self.rank, self.doing or "barrier", None)

    def within(self, groups: tuple[tuple[int, ...], ...]) -> ThreadsWorld:
        group = next(group for group in groups if self.rank in group)
        return _GroupOfThreads(self, group)

    def lost(self) -> set[int]:
        failure = self.meeting.failure
        return {*self.meeting.ended, *(failure[1] if failure is not None else ())}

    def fail(self, text: str, ranks: tuple[int, ...] = ()) -> None:
        with self.meeting.condition:
            self.meeting.set_failure(text if ranks else f"rank {self.rank} failed: {text}", ranks or (self.rank,))

    def shrink(self) -> ThreadsWorld:
        """The ranks that have neither ended nor failed, in their order."""
        old = self.meeting
        with old.condition:
            lost = {*old.left, *(old.failure[1] if old.failure else ())}
            left = [r for r in range(old.size) if r not in lost]
            if self.rank not in left:
                raise RankError(f"rank {self.rank} is itself lost")
            new = old.survivors.setdefault(frozenset(left), RankMeeting(len(left)))
        return ThreadsWorld(new, left.index(self.rank))

    def leave(self) -> None:
        self.meeting.leave(self.rank, "has ended")

    def close(self) -> None:
        self.meeting.end(self.rank, "has left the world")

    def abandon(self, text: str) -> None:
        self.meeting.condition = threading.Condition()  # another thread may have held it
        self.meeting = NoRank(text)  # type: ignore[assignment]


class _GroupOfThreads(ThreadsWorld):
    """Some of the ranks, whose collectives are those of all, each of which looks at the values of its group."""

    def __init__(self, world: ThreadsWorld, group: Sequence[int]) -> None:
        super().__init__(world.meeting, group.index(world.rank))
        self.size, self._world, self._group = len(group), world, group

    def _exchange_with_ranks(self, name: str, value: Any, read: Callable[[list[Any]], Result]) -> Result:
        return self._world._exchange_with_ranks(name, value, lambda every: read([every[r] for r in self._group]))


def _require_alike_arrays_of_ranks(given: list[Host]) -> list[Host]:
    """Raises RankError where ranks' arrays differ in shape or dtype."""
    kinds = [f"{x.dtype}{list(x.shape)}" for x in given]
    for rank, kind in enumerate(kinds):
        if kind != kinds[0]:
            raise RankError(f"ranks differ: rank 0 has {kinds[0]}, rank {rank} has {kind}", (rank,))
    return given


def run_ranks_as_threads(size: int, run: Callable[[ThreadsWorld], Result]) -> list[Result]:
    """What a function returns on each of so many ranks, which run it as threads. Raises what the first that failed
    raised; the others get RankError where they wait for it."""
    meeting = RankMeeting(size)
    results: dict[int, Result] = {}
    failures: list[BaseException] = []

    def live_as_rank(rank: int) -> None:
        try:
            results[rank] = run(ThreadsWorld(meeting, rank))
            meeting.end(rank, "has ended")
        except BaseException as error:
            failures.append(error)
            meeting.end(rank, f"raised {type(error).__name__}: {error}")

    threads = [threading.Thread(target=live_as_rank, args=(r,), name=f"rank {r}", daemon=True) for r in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    causes = [e for e in failures if not isinstance(e, RankError)] or failures
    if causes:
        raise causes[0]
    return [results[r] for r in range(size)]
