"""Collectives of a rank: which travel together, and in which order."""

from __future__ import annotations

from kernelgraph.compiler.placement.ranks import BUCKET_BYTES, Meeting, _bucket_small_reductions
from kernelgraph.runtime.program.collective import Collective

LARGE = BUCKET_BYTES // 4 + 1


def summed(read: int, write: int, count: int = 1, dtype: str = "float32", how: str = "sum") -> Meeting:
    return Meeting(Collective("all_reduce", (count,), dtype, how), (read,), (write,))


def reads_of(*given: Meeting) -> list[tuple[int, ...]]:
    return [one.reads for one in _bucket_small_reductions(given)]


def test_small_sums_between_large_ones_are_one_message_with_the_last() -> None:
    """As of a network's weights and biases, last layer first."""
    given = [one for i in range(0, 40, 10) for one in (summed(i, i + 1, LARGE), summed(i + 2, i + 3, 7))]
    found = _bucket_small_reductions([summed(100, 101), *given])
    assert [one.reads for one in found] == [(0,), (10,), (20,), (30,), (100, 2, 12, 22, 32)]
    assert (found[-1].writes, found[-1].kernel.counts) == ((101, 3, 13, 23, 33), (1, 7, 7, 7, 7))


def test_sums_of_other_kinds_or_of_too_much_are_apart() -> None:
    assert reads_of(summed(0, 1), summed(2, 3, dtype="float64"), summed(4, 5)) == [(2,), (0, 4)]
    assert reads_of(summed(0, 1), summed(2, 3, how="max"), summed(4, 5)) == [(2,), (0, 4)]
    half = LARGE // 2
    assert reads_of(summed(0, 1, half), summed(2, 3, half), summed(4, 5, half)) == [(0, 2), (4,)]


def test_what_a_collective_reads_is_summed_before_it() -> None:
    assert reads_of(summed(0, 1), summed(1, 2), summed(3, 4)) == [(0,), (1, 3)]
    assert reads_of(summed(0, 1), summed(1, 2, LARGE), summed(3, 4)) == [(0,), (1,), (3,)]
