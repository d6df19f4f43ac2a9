"""What collectives need of the processes that run one program together: the World protocol.

A *rank* is one of them. Every rank runs the same program and calls the same collectives in the same order. Arrays are
C-contiguous NumPy arrays; a world reads `source`, writes `target`, and keeps neither.
"""

from __future__ import annotations

from collections.abc import Sequence
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

    def within(self, groups: tuple[tuple[int, ...], ...]) -> World:
        """The ranks of this one's group, for collectives alone: all ranks call the same ones, each with its group."""
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
