"""What collectives need of the processes that run one program together: the World protocol.

A *rank* is one of them. Every rank runs the same program and calls the same collectives in the same order. Arrays are
C-contiguous NumPy arrays; a world reads `source`, writes `target`, and keeps neither.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from ..core.errors import RankError

Host = np.ndarray[Any, Any]

DIGEST_BYTES = 16  # of what ranks agree on
CONTENT_BYTES = 2048  # of the arrays that are joined with an agreement, at most: MPIs send so much at once
INSTEAD = "leave kg.distributed to the rank, or write kg.distributed.init('alone') for a world of one here"
JOINS: dict[str, np.ufunc] = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


def bytes_of_array(array: Host) -> Host:
    """A C-contiguous array's bytes, in its memory."""
    return array.reshape(-1).view(np.uint8)


def copied_bytes_for_world(array: Host | None) -> Host:
    """An array's bytes, as they are now."""
    return np.empty(0, np.uint8) if array is None else bytes_of_array(array).copy()


def ranks_to_blame(late: Iterable[int], awaited: Mapping[int, Collection[int]]) -> tuple[int, ...]:
    """Who does not come, where others wait for the ranks `late`: one that itself waits is not to blame, but whom it
    waits for. awaited: the ranks that each waits for, as far as is known."""
    late = {*late}
    found, seen, left = set[int](), set[int](), [*late]
    while left:
        if (rank := left.pop()) not in seen:
            seen.add(rank)
            others = {*awaited.get(rank, ())} - {rank}
            left += others
            if not others:
                found.add(rank)
    return tuple(sorted(found or late))


def text_that_blames(
    text: str, late: Collection[int], awaited: Mapping[int, Collection[int]]
) -> tuple[str, tuple[int, ...]]:
    """A text about ranks that others wait for, followed by those to blame in their place, if there are any; and who is
    to blame."""
    blamed = ranks_to_blame(late, awaited)
    instead = ", ".join(str(rank) for rank in blamed if rank not in late)
    return (f"{text}; it waits for rank {instead}" if instead else text), blamed


class NoRank:
    """In place of what a rank exchanges messages by, in a process that is none: whatever is asked raises."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __getattr__(self, name: str) -> Any:
        raise RankError(self._text)


class World(Protocol):
    """The ranks of a program, as one of them sees them. Calls block; collectives of one world come from one thread at a
    time. Raises RankError where another rank failed, ended, or does not come within `collective_timeout` seconds."""

    kind: str  # `alone`, `threads` or `mpi`
    rank: int
    size: int
    local_rank: int  # among the ranks of this machine,
    local_size: int  # of which there are so many
    doing: str  # what this rank waits for, for people
    awaited: dict[Any, Collection[int]]  # the ranks that this one waits for, beside those in collectives, by what waits

    def agree(self, digest: bytes, source: Host, target: Host, join: np.ufunc) -> bool:
        """Whether all ranks come with the same digest. If so, `target` has all ranks' arrays joined, the same bits on
        each. source, target: alike, of at most `CONTENT_BYTES`; the digest says of which dtype and shape."""
        ...

    def all_reduce(self, source: Host, target: Host, op: str) -> None:
        """The elementwise `sum`, `prod`, `max` or `min` of all ranks' arrays, the same bits on each."""
        ...

    def reduce_scatter(self, source: Host, target: Host, op: str) -> None:
        """The same, cut into equal parts along the first axis: part r on rank r."""
        ...

    def all_gather(self, source: Host, target: Host) -> None:
        """All ranks' arrays, one after the other."""
        ...

    def all_to_all(self, source: Host, target: Host) -> None:
        """Part r along the first axis of every rank's array, on rank r."""
        ...

    def broadcast(self, array: Host, root: int) -> None:
        """The array of one rank, written into the others'."""
        ...

    def permute(self, source: Host, target: Host, pairs: Sequence[tuple[int, int]]) -> None:
        """Send arrays from rank to rank: (source, target) pairs. Who is sent nothing gets zeros."""
        ...

    def barrier(self) -> None:
        """Wait until all ranks are here."""
        ...

    def send(self, message: bytes, array: Host | None, to: int, channel: int) -> None:
        """Send a short text and an array's bytes to a rank. May be called from any thread. The array may change after
        it."""
        ...

    def receive(self, channel: int, stop: Callable[[], bool]) -> tuple[int, bytes, Host] | None:
        """The next message on a channel: who sent it, its text and its array's bytes, which lie as any dtype's elements
        do. None once `stop` says so."""
        ...

    def send_array(self, array: Host, to: int, channel: int) -> None:
        """Send an array that does not change any more to a rank that calls `receive_array`, on a channel of its own."""
        ...

    def receive_array(self, array: Host, source: int, channel: int) -> None:
        """Fill an array of so many bytes with the next one of a rank."""
        ...

    def lost(self) -> set[int]:
        """The ranks that are known to have ended, or to have failed."""
        ...

    def fail(self, text: str, ranks: tuple[int, ...] = ()) -> None:
        """Tell all ranks that this one cannot go on: each gets RankError with the text, or ends with it. ranks: those
        to blame, if it is not this one."""
        ...

    def shrink(self) -> World:
        """The world of the ranks that are left, after RankError. Raises RankError where it cannot be made."""
        ...

    def leave(self) -> None:
        """This rank comes to no more collectives; it still sends and receives."""
        ...

    def close(self) -> None:
        """This rank takes part in nothing any more."""
        ...

    def abandon(self, text: str) -> None:
        """This process, a fork of a rank, is none: what it asks for raises RankError with the text."""
        ...
