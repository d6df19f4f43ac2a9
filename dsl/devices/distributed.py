"""`kg.distributed`: several processes that run one program together, each a *rank*, and what they tell each other.

    kg.distributed.init()                        # the ranks that the launcher started; one without a launcher
    mesh = kg.Mesh(kg.distributed.size())        # a mesh of ranks, for functions with `mesh=` and `kg.DataParallel`

Start four with `python -m kernelgraph.run -n 4 script.py`. Functions here are collective: every rank calls them, in the
same order.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

from ...compiler.core.types import bfloat16
from ...compiler.placement.ranks import MPI_REDUCTIONS
from ...runtime.core.errors import RankError
from ...runtime.core.readable_text import with_article
from ...runtime.core.settings import settings
from ...runtime.engine.communicator import (
    Agreement,
    EngineCommunicator,
    rank_agreement_on_collective,
)
from ...runtime.program.world import CONTENT_BYTES, JOINS, Host, World, bytes_of_array
from ...runtime.worlds.alone import SingleRankWorld
from ...runtime.worlds.launched import claim_rank, is_launched, mark_rank
from ...runtime.worlds.threads import run_ranks_as_threads
from ..array.devices import DeviceUnavailableError
from ..core.errors import ArgumentsError, DTypeError, OptionError

Result = TypeVar("Result")
ENGINES = ("mpi", "alone")
LAUNCH = "python -m kernelgraph.run -n 4 script.py"


class _ThreadWorld(threading.local):
    communicator: EngineCommunicator | None = None  # of a rank that is a thread


_process: list[EngineCommunicator] = []
_forked: list[BaseException] = []  # why this process, a fork of a rank, is none
_thread = _ThreadWorld()


def init(engine: str | None = None, elastic: bool = False) -> None:
    """Join the ranks of this program. Call it once, before anything else here; again it does nothing.

    engine: `mpi`, or `alone` for a world of one; None: `mpi` where a launcher started this process, else `alone`.
    elastic: ranks that are left go on when one dies (`shrink`), with Open MPI started with `--with-ft ulfm`; else all
    end. Raises OptionError, DeviceUnavailableError where mpi4py or its MPI is not installed, RankError in a process
    that a rank has started."""
    if not isinstance(elastic, bool):
        raise OptionError(f"elastic={elastic!r}: write True or False")
    if _process or _thread.communicator is not None:
        return
    if engine is None:
        engine = "mpi" if _forked or is_launched() else "alone"
    if engine not in ENGINES:
        raise OptionError(f"engine={engine!r}: write one of {', '.join(map(repr, ENGINES))}")
    if engine == "alone":
        _process.append(EngineCommunicator(SingleRankWorld()))
        return
    _require_no_fork_of_rank()
    claim_rank()
    try:
        from ...runtime.worlds.mpi import join_mpi_world
    except ImportError as error:
        raise DeviceUnavailableError(
            f"kg.distributed.init() needs mpi4py and an MPI ({error}); run pip install '.[mpi]' in kernelgraph's folder"
        ) from None
    world = join_mpi_world(elastic)
    mark_rank(world.rank, world.size)
    _process.append(EngineCommunicator(world))
    atexit.register(_leave_world)  # after mpi4py's own, so before it


def _require_no_fork_of_rank() -> None:
    for error in _forked:
        raise error.with_traceback(None)


def _leave_ranks_in_forked_child() -> None:
    found = _thread.communicator or (_process[0] if _process else None)
    if found is not None and found.world.kind != "alone" and found.failure is not None:
        _forked[:] = [found.failure]
        _process.clear()
        _thread.communicator = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_ranks_in_forked_child)  # after the communicators have been abandoned


def end_all_ranks_of_program(text: str) -> None:
    """All ranks end, with the text, if this process is one of several."""
    for communicator in _process:
        communicator.world.fail(text)


def _leave_world() -> None:
    """What is on its way is done, unless it takes too long; then this rank says that it ends."""
    for communicator in _process:
        communicator.close(settings.collective_timeout)
        communicator.world.close()


def run_threads(size: int, run: Callable[[], Result]) -> list[Result]:
    """What a function returns on each of `size` ranks that are threads of this process: to try a program without MPI.

    Raises what the first rank that failed raised, and OptionError."""
    if isinstance(size, bool) or not isinstance(size, int) or size < 1 or not callable(run):
        raise OptionError(f"run_threads({size!r}, {run!r}): write a number of ranks, 1 or more, and a function")

    def live_as_rank_of_world(world: World) -> Result:
        communicator = _thread.communicator = EngineCommunicator(world)
        try:
            result = run()
            communicator.close(settings.collective_timeout)
            return result
        finally:
            _thread.communicator = None

    return run_ranks_as_threads(size, live_as_rank_of_world)


def current() -> EngineCommunicator:
    """Of the ranks that this thread is one of. Raises ArgumentsError before `init`."""
    found = _thread.communicator or (_process[0] if _process else None)
    if found is None:
        _require_no_fork_of_rank()
        raise ArgumentsError(f"call kg.distributed.init() first, and start the program with {LAUNCH}")
    return found


def rank() -> int:
    """The number of this rank, from 0. Raises ArgumentsError before `init`."""
    return current().world.rank


def size() -> int:
    """How many ranks there are. Raises ArgumentsError before `init`."""
    return current().world.size


def local_rank() -> int:
    """The number of this rank among those of its machine."""
    return current().world.local_rank


def barrier() -> None:
    """Wait until all ranks are here. Raises RankError."""
    current().run(rank_agreement_on_collective("kg.distributed.barrier()"))  # all have told what they are about to do


def all_reduce(x: Any, op: str = "sum") -> np.ndarray[Any, Any]:
    """The elementwise `sum`, `prod`, `max` or `min` of all ranks' arrays. Raises PlanError, RankError."""
    communicator, array = current(), _array_for_ranks(x)
    if not isinstance(op, str):
        raise OptionError(f"op={op!r}: write one of 'sum', 'prod', 'max', 'min'")
    dtype, agreement, join = _all_reduce_dtype_and_agreement(op, array.dtype, array.shape)
    given, result = np.asarray(array, dtype, order="C"), np.empty(array.shape, dtype)
    reduce_arrays_of_ranks(communicator, agreement, given, result, op, join)
    return result if array.dtype is dtype else result.astype(array.dtype)


def reduce_arrays_of_ranks(
    communicator: EngineCommunicator, agreement: Agreement, given: Host, result: Host, op: str, join: np.ufunc
) -> None:
    """Agree, and join contiguous arrays into `result`. Raises PlanError, RankError."""
    if given.nbytes <= CONTENT_BYTES:  # it travels in the message in which the ranks agree
        communicator.run(agreement, None, given, result, join)
    else:
        flat = given.reshape(-1), result.reshape(-1)
        communicator.run(agreement, lambda: communicator.world.all_reduce(*flat, op))


@lru_cache(maxsize=512)
def _all_reduce_dtype_and_agreement(
    op: str, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> tuple[np.dtype[Any], Agreement, np.ufunc]:
    """In which dtype arrays are joined, what ranks agree on, and what joins. Raises OptionError, DTypeError."""
    if op not in JOINS:
        raise OptionError(f"op={op!r}: write one of 'sum', 'prod', 'max', 'min'")
    kind = "f" if dtype == bfloat16 else dtype.kind
    if kind not in ("iufb" if op in ("max", "min") else "iufc"):
        raise DTypeError(f"{with_article(op)} over ranks of {dtype} makes no sense; convert it with x.astype(...)")
    native = dtype if dtype.isnative else dtype.newbyteorder("=")
    wide = dict(MPI_REDUCTIONS.wider).get(str(native))
    found = native if wide is None else np.dtype(wide)
    return found, rank_agreement_on_collective(f"kg.distributed.all_reduce {op}", dtype, shape), JOINS[op]


def all_gather(x: Any) -> np.ndarray[Any, Any]:
    """All ranks' arrays, along a new first axis. Raises PlanError, RankError."""
    communicator, given = current(), _contiguous_array_for_ranks(x)
    world = communicator.world
    own, result = bytes_of_array(given), np.zeros((world.size, *given.shape), given.dtype)
    agreement = rank_agreement_on_collective("kg.distributed.all_gather", given.dtype, given.shape)
    all_ranks = bytes_of_array(result)
    if result.nbytes <= CONTENT_BYTES:
        all_ranks.reshape(world.size, own.size)[world.rank] = own
        communicator.run(agreement, None, all_ranks, all_ranks, np.bitwise_or)
    else:
        communicator.run(agreement, lambda: world.all_gather(own, all_ranks))
    return result.reshape((world.size, *np.shape(x)))


def broadcast(x: Any, root: int = 0) -> np.ndarray[Any, Any]:
    """The array of one rank, on each; all have arrays of one shape and dtype. Raises PlanError, RankError."""
    communicator, given = current(), _contiguous_array_for_ranks(x)
    if isinstance(root, bool) or not isinstance(root, int) or not 0 <= root < communicator.world.size:
        raise OptionError(f"root={root!r} is none of the {communicator.world.size} ranks")
    result = np.array(given)
    agreement = rank_agreement_on_collective(f"kg.distributed.broadcast from {root}", given.dtype, given.shape)
    own = bytes_of_array(result)
    if given.nbytes <= CONTENT_BYTES:
        own *= communicator.world.rank == root
        communicator.run(agreement, None, own, own, np.bitwise_or)
    else:
        communicator.run(agreement, lambda: communicator.world.broadcast(own, root))
    return result.reshape(np.shape(x))


def _array_for_ranks(x: Any) -> Host:
    """Raises DTypeError for what is no array, or more than one."""
    if type(x) is np.ndarray:
        return x
    if isinstance(x, np.ma.MaskedArray):
        raise DTypeError("ranks exchange arrays without masks; write x.filled(value)")
    try:
        return np.asarray(x)
    except ValueError as error:
        raise DTypeError(f"ranks exchange arrays, which this is not: {error}") from None


def _contiguous_array_for_ranks(x: Any) -> Host:
    """A C-contiguous array with at least one axis, whose bytes may travel. Raises DTypeError."""
    given = np.ascontiguousarray(_array_for_ranks(x))
    if given.dtype.hasobject:
        raise DTypeError(f"ranks exchange arrays of numbers; {given.dtype} holds objects of this process")
    return given


def shrink() -> None:
    """Go on with the ranks that are left, after RankError in an elastic world; meshes and stores are made anew.

    Raises RankError where the world cannot go on."""
    old = current()
    new = EngineCommunicator(old.world.shrink())
    if _thread.communicator is not None:
        _thread.communicator = new
    else:
        _process[:] = [new]


__all__ = [
    "RankError",
    "all_gather",
    "all_reduce",
    "barrier",
    "broadcast",
    "init",
    "local_rank",
    "rank",
    "run_threads",
    "shrink",
    "size",
]
