"""A collective: what a task of a plan over several devices or ranks does together with all others. Plain data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.frozen import field, frozen


@frozen
class Collective:
    """What this rank and all others do together: each has the reads of the task and gets its writes, as contiguous
    arrays of a dtype.

    op: a method of World. counts: elements of each read; how: the operation of a reduction; root, pairs: of ranks. A
    reduction of several values is one message. line: the user's; meanings: for each read the user's collective, in
    words, on which all ranks must agree. devices: so many of the plan are ranks; then reads and writes are those of the
    first, of the second, and so on. groups: of ranks, each of which does it apart; none for all together."""

    op: str
    counts: tuple[int, ...]
    dtype: str
    how: str = ""
    root: int = 0
    pairs: tuple[tuple[int, int], ...] = ()
    line: str = field(default="", compare=False)
    devices: int = 1
    meanings: tuple[str, ...] = field(default=(), compare=False)
    groups: tuple[tuple[int, ...], ...] = ()

    def of_device(self, values: Sequence[Any], device: int) -> Sequence[Any]:
        """Of reads or writes, or of what belongs to each, those of a device."""
        each = len(self.counts)
        return values[device * each : (device + 1) * each]

    @property
    def meaning(self) -> str:
        """What ranks exchange, in words."""
        detail = self.how or (f"from {self.root}" if self.op == "broadcast" else "")
        if self.op == "permute":
            detail = " ".join(f"{a}->{b}" for a, b in self.pairs)
        sizes = "+".join(map(str, self.counts))
        groups = f" in groups {' '.join(map(str, self.groups))}" if self.groups else ""
        return f"{self.op}{f' {detail}' if detail else ''} {self.dtype}[{sizes}]{groups}"

    def written_count(self, number: int, size: int) -> int:
        """Elements of a write, in a world of so many ranks."""
        count = self.counts[number]
        size = len(self.groups[0]) if self.groups else size
        return count * size if self.op == "all_gather" else count // size if self.op == "reduce_scatter" else count
