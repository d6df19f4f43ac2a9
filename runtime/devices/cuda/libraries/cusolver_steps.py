"""A host task of `np.linalg` in, the step that cuSOLVER and cuBLAS do it with out, or None.

A matrix of at least LEAST rows is done on its own, one of a stack after another; many smaller ones by one call. A step
waits for its stream, as it must know whether a matrix was singular.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ....program.program import Region, Task
from ..driver.driver import SUCCESS, CudaDriver
from .cusolver import SINGLE, TYPES, CusolverWorkspace, Do
from .factorizations import FACTORS, MANY
from .handles import CublasHandles

LEAST = 64  # rows; below, the host is done before the GPU has begun
_UNKNOWN = {"upper": (None, False), "hermitian": (None, False)}  # options that have to be so


class SolverStep:
    """A call of one of the rows, for each of `count` matrices that lie one after another."""

    numbers = empty = False

    def __init__(
        self,
        driver: CudaDriver,
        blas: CublasHandles,
        task: Task,
        do: Do,
        options: Mapping[str, Any],
        stack: int,
        count: int,
    ) -> None:
        """stack: axes that number the matrices."""
        self._blas, self._do, self._count = blas, do, count
        self._all = *task.reads, *task.writes
        reads, writes = ([_region_of_one_solver_matrix(r, stack) for r in each] for each in (task.reads, task.writes))
        self._steps = [math.prod(r.shape) * r.itemsize for r in (*reads, *writes)]
        self._split, self._open = len(reads), partial(CusolverWorkspace, driver, blas, reads, writes, options)
        self.buffers = frozenset(r.buffer for r in self._all)
        self._work: dict[int, CusolverWorkspace] = {}

    def __call__(self, addresses: Sequence[int], scalars: Sequence[Any], stream: int) -> int:
        if stream not in self._work:
            self._work[stream] = self._open(stream)
        places = [addresses[r.buffer] + r.offset for r in self._all]
        for number in range(self._count):
            these = [p + number * step for p, step in zip(places, self._steps, strict=True)]
            with self._blas.lock:
                self._do(self._work[stream], these[: self._split], these[self._split :])
        return SUCCESS


def _region_of_one_solver_matrix(region: Region, stack: int) -> Region:
    r = region
    return Region(r.buffer, r.offset, r.shape[stack:], r.strides[stack:], r.itemsize, r.dtype)


def _are_solver_arrays_supported(name: str, options: Mapping[str, Any], task: Task, stack: int) -> bool:
    """Whether a call is of matrices of one known dtype, in stacks of one shape, with options that are followed."""
    reads, first = task.reads, task.reads[0]
    results = {"svd": 3 if options.get("compute_uv", True) else 1}.get(name, len(task.writes))
    return (
        stack >= 0
        and all(r.dtype == first.dtype and r.dtype in TYPES for r in reads)
        and len(task.writes) == results
        and all(options.get(option) in allowed for option, allowed in _UNKNOWN.items())
        and not any(0 in r.shape or r.shape[:stack] != first.shape[:stack] for r in (*reads, *task.writes))
        and (not stack or all(len(r.shape) == stack + 2 for r in reads))
    )


def make_cusolver_step(
    driver: CudaDriver, blas: CublasHandles, task: Task, name: str, options: Mapping[str, Any]
) -> SolverStep | None:
    """The step of a task that calls `np.linalg.NAME` with these options."""
    reads, every = task.reads, (*task.reads, *task.writes)
    shape, stack = reads[0].shape, len(reads[0].shape) - 2
    if not _are_solver_arrays_supported(name, options, task, stack) or max(shape[-2:]) >= 1 << 15:
        return None
    count, do = math.prod(shape[:stack]), {**SINGLE, **FACTORS}.get(name)
    if do is not None and min(shape[-2:]) >= LEAST and all(len(r.shape) <= stack + 2 for r in every):
        return SolverStep(driver, blas, task, do, options, stack, count)
    many, fewest, most = MANY.get(name, (None, 0, 0))
    columns = math.prod(reads[-1].shape) == count * shape[-1]  # one for each matrix, where there are such
    worth = count >= fewest and min(shape[-2:]) > 1 and max(shape[-2:]) <= most
    if many is None or not worth or not (columns or len(reads) == 1):
        return None
    return SolverStep(driver, blas, task, many, options, 0, 1)
