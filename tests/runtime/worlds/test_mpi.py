"""Messages of MPI ranks: what no run of several processes shows each time."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.mark.parametrize("size", range(1, 20))
def test_messages_of_an_agreement_bring_all_of_all_ranks_to_each(size: int) -> None:
    pytest.importorskip("mpi4py")
    mpi = pytest.importorskip("kernelgraph.runtime.worlds.mpi", exc_type=ImportError)
    left = [mpi.agreement_steps(rank, size) for rank in range(size)]
    known: list[list[int]] = [[rank] for rank in range(size)]
    mail: dict[tuple[int, int], list[list[int]]] = {}
    sent = [0] * size
    longest = max(map(len, left))
    while any(left):
        progress = False
        for rank, steps in enumerate(left):
            if not steps:
                continue
            to, sender, joined = steps[0]
            if sent[rank] != len(steps):  # each is sent once
                sent[rank] = len(steps)
                if to >= 0:
                    mail.setdefault((rank, to), []).append(sorted(known[rank]))
            if sender < 0 or mail.get((sender, rank)):
                came = mail[sender, rank].pop(0) if sender >= 0 else []
                known[rank] = known[rank] + came if joined else came
                del steps[0]
                progress = True
        assert progress
    assert all(sorted(each) == list(range(size)) for each in known)  # nobody's twice
    assert not any(mail.values()) and longest <= size.bit_length() + 1


@pytest.mark.parametrize("size", [2, 3, 100, 1000, 1023, 1024, 1025, 4096])
def test_an_agreement_of_many_ranks_is_few_messages(size: int) -> None:
    """A barrier is one: p log2(p) messages and two more for each rank beyond a power of two, in log2(p) + 2 steps."""
    pytest.importorskip("mpi4py")
    mpi = pytest.importorskip("kernelgraph.runtime.worlds.mpi", exc_type=ImportError)
    steps = [mpi.agreement_steps(rank, size) for rank in range(size)]
    whole = 1 << size.bit_length() - 1
    sent = sum(to >= 0 for each in steps for to, _, _ in each)
    received = sum(sender >= 0 for each in steps for _, sender, _ in each)
    assert sent == received == whole * (whole.bit_length() - 1) + 2 * (size - whole)
    assert max(map(len, steps)) <= whole.bit_length() + 1


def test_what_few_bits_hold_is_joined_as_numpy_does() -> None:
    pytest.importorskip("mpi4py")
    mpi = pytest.importorskip("kernelgraph.runtime.worlds.mpi", exc_type=ImportError)
    for kind in "biufc":
        for size in (1, 2, 4, 8, 16):
            try:
                dtype = np.dtype(f"{kind}{size}")
            except TypeError:
                continue
            for op in ("sum", "prod", "max", "min"):
                own = mpi._mpi_operation(op, dtype) in [mpi._numpy_operation(op)]
                assert own == (size < 4 or (kind == "f" and op in ("max", "min")))
