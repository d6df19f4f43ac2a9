"""A world of one rank: the same program, without a launcher."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..core.errors import RankError
from ..program.world import Host, World


class SingleRankWorld(World):
    """One rank, whose collectives copy."""

    kind = "alone"
    rank, size, local_rank, local_size = 0, 1, 0, 1

    def __init__(self) -> None:
        self.doing = ""

    def agree(self, digest: bytes, source: Host, target: Host, join: np.ufunc) -> bool:
        target[...] = source
        return True

    def all_reduce(self, source: Host, target: Host, op: str) -> None:
        target[...] = source

    def reduce_scatter(self, source: Host, target: Host, op: str) -> None:
        target[...] = source

    def all_gather(self, source: Host, target: Host) -> None:
        target.reshape(-1)[...] = source.reshape(-1)

    def all_to_all(self, source: Host, target: Host) -> None:
        target[...] = source

    def broadcast(self, array: Host, root: int) -> None:
        """Nothing: the array is there."""

    def permute(self, source: Host, target: Host, pairs: Sequence[tuple[int, int]]) -> None:
        target[...] = source if (0, 0) in [*map(tuple, pairs)] else 0

    def barrier(self) -> None:
        """Nobody to wait for."""

    def within(self, groups: tuple[tuple[int, ...], ...]) -> SingleRankWorld:
        return self

    def lost(self) -> set[int]:
        return set()

    def fail(self, text: str, ranks: tuple[int, ...] = ()) -> None:
        """Nobody to tell."""

    def shrink(self) -> World:
        raise RankError("this is the only rank")

    def leave(self) -> None:
        """Nobody to tell."""

    def close(self) -> None:
        """Nothing to leave."""

    def abandon(self, text: str) -> None:
        """A fork is a world of its own."""
