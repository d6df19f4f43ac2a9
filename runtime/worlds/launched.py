"""Which rank a launcher has started this process as, from the environment; and that no other process joins as it.

What a rank starts has its environment. So a rank writes there that it has joined: a child that would join as well, as
the same rank, is refused, and so is the second of two that begin at once.
"""

from __future__ import annotations

import hashlib
import os
import socket
import sys

from ..core.errors import RankError
from ..program.world import INSTEAD

# what launchers tell each process of how many there are
LAUNCHED = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "SLURM_STEP_NUM_TASKS", "MPI_LOCALNRANKS", "PALS_NRANKS")
# and of which launch, and which of its ranks, it is
NAMED = (
    "PMIX_NAMESPACE", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMI_FD", "PMI_PORT", "PALS_APID", "PALS_RANKID",
    "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_PROCID", "MPI_LOCALRANKID",
)  # fmt: skip
JOINED = "_KERNELGRAPH_JOINED"  # in a rank's environment: who it is
_claims: list[socket.socket] = []  # held by this process as long as it lives


def is_launched() -> bool:
    """Whether a launcher has started this process, or one that started it."""
    return any(name in os.environ for name in LAUNCHED)


def claim_rank() -> None:
    """Before this process joins. Raises RankError where another has joined as the same rank."""
    who, _, named = os.environ.get(JOINED, "").partition("|")
    if who and named == _names_of_rank():
        raise RankError(f"process {os.getpid()} is no rank: {who} started it; {INSTEAD}")
    if sys.platform == "linux" and "PMIX_NAMESPACE" in os.environ:  # which no two launches share
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            claim.bind(b"\0kernelgraph " + hashlib.blake2b(_names_of_rank().encode(), digest_size=16).digest())
        except OSError:
            text = f"process {os.getpid()} is no rank: another process that its launcher knows as this rank has joined"
            raise RankError(f"{text}; {INSTEAD}") from None
        _claims.append(claim)


def mark_rank(rank: int, size: int) -> None:
    """This process has joined: what it starts from here on is told so."""
    os.environ[JOINED] = f"rank {rank} of {size} (process {os.getpid()})|{_names_of_rank()}"


def _names_of_rank() -> str:
    return " ".join(os.environ.get(name, "") for name in NAMED)


def _drop_claims_in_forked_child() -> None:
    while _claims:
        _claims.pop().close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drop_claims_in_forked_child)
