"""Linear algebra on the GPU: a host task of `np.linalg` in, the step that cuSOLVER does it with out, or None.

cuSOLVER by nvmath-python's bindings, for single matrices from a size on. It counts columns first, so what it sees of a
C-ordered matrix is the transpose. A step waits for its stream, as it must know whether the matrix was singular.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from ..program import Region, Task
from .cuda_driver import SUCCESS, Driver

if TYPE_CHECKING:
    from .cuda_library import Blas

LEAST = 64  # rows; below, the host is done before the GPU has begun
# dtype: (cudaDataType, that of its real part, cuBLAS's letter, what alpha is)
_TYPES: dict[str, tuple[int, int, str, Any]] = {
    "float32": (0, 0, "s", ctypes.c_float),
    "float64": (1, 1, "d", ctypes.c_double),
    "complex64": (4, 0, "c", ctypes.c_float * 2),
    "complex128": (5, 1, "z", ctypes.c_double * 2),
}
LOWER, UPPER = 0, 1
PLAIN, TRANSPOSED, ADJOINT = 0, 1, 2
LEFT, NON_UNIT = 0, 0


class Solver:
    """One cuSOLVER handle for each stream, and identity matrices."""

    def __init__(self, allocate: Callable[[int], Any]) -> None:
        self.allocate = allocate
        self._handles: dict[int, tuple[int, int]] = {}
        self._ones: dict[tuple[str, int], Any] = {}

    def handle(self, stream: int) -> tuple[int, int]:
        """(handle, parameters) that work on a stream."""
        if stream not in self._handles:
            cusolver: Any = import_module("nvmath.bindings.cusolverDn")
            handle = cusolver.create()
            cusolver.set_stream(handle, stream)
            self._handles[stream] = (handle, cusolver.create_params())
        return self._handles[stream]

    def identity(self, driver: Driver, dtype: str, n: int, stream: int) -> int:
        """The address of an n x n identity matrix."""
        key = (dtype, n)
        if key not in self._ones:
            host = np.eye(n, dtype=dtype)
            memory = self.allocate(host.nbytes)
            driver.to_device(memory.address, host.ctypes.data, host.nbytes, stream)
            driver.synchronize_stream(stream)
            self._ones[key] = memory
        return int(self._ones[key].address)


class Work:
    """What one call needs: the libraries on a stream, and memory of its own, which is kept for the next."""

    def __init__(self, driver: Driver, blas: Blas, dtype: str, stream: int) -> None:
        self.driver, self.blas, self.dtype, self.stream = driver, blas, dtype, stream
        self.kind, self.real, self._letter, self._scalar = _TYPES[dtype]
        self.itemsize = np.dtype(dtype).itemsize
        self.cusolver: Any = import_module("nvmath.bindings.cusolverDn")
        self._cublas: Any = import_module("nvmath.bindings.cublas")
        self._held: dict[str, Any] = {}
        self.info = self.memory("info", 4)

    def memory(self, name: str, nbytes: int) -> int:
        found = self._held.get(name)
        if found is None or found.nbytes < nbytes:
            found = self._held[name] = self.blas.allocate(max(16, nbytes))
        return int(found.address)

    def matrix(self, name: str, count: int) -> int:
        return self.memory(name, count * self.itemsize)

    def copy(self, target: int, source: int, count: int) -> None:
        if code := int(self.driver.on_device(target, source, count * self.itemsize, self.stream)):
            raise RuntimeError(f"CUDA error {code}")

    def do(self, name: str, *arguments: Any) -> None:
        """A function of cuSOLVER's 64-bit interface, of which this gives the workspaces."""
        handle, parameters = self.blas.solver.handle(self.stream)
        sizes = getattr(self.cusolver, f"{name}_buffer_size")(handle, parameters, *arguments, self.kind)
        on_host = ctypes.create_string_buffer(max(16, sizes[1]))
        on_device = self.memory("workspace", sizes[0])
        place = ctypes.addressof(on_host)
        run = getattr(self.cusolver, name)
        run(handle, parameters, *arguments, self.kind, on_device, sizes[0], place, sizes[1], self.info)
        self._on_host = on_host  # until the stream is done

    def turned(self, target: int, source: int, rows: int, columns: int, how: int = TRANSPOSED) -> None:
        """target, rows x columns by columns, becomes the transpose of source."""
        one, zero = self._number(1), self._number(0)
        getattr(self._cublas, f"{self._letter}geam")(
            self.blas.handle(self.stream), how, how, rows, columns, ctypes.addressof(one), source, columns,
            ctypes.addressof(zero), source, columns, target, rows,
        )  # fmt: skip

    def triangle(self, target: int, source: int, n: int, which: int) -> None:
        """The triangle of a matrix, with zeros in the other: its product with the identity, which reads no more."""
        one, ones = self._number(1), self.blas.solver.identity(self.driver, self.dtype, n, self.stream)
        getattr(self._cublas, f"{self._letter}trmm")(
            self.blas.handle(self.stream), LEFT, which, PLAIN, NON_UNIT, n, n, ctypes.addressof(one), source, n,
            ones, n, target, n,
        )  # fmt: skip

    def _number(self, value: float) -> Any:
        return self._scalar(value) if self._letter in "sd" else self._scalar(value, 0)

    def failed(self) -> int:
        """cuSOLVER's `info` once the stream is done."""
        found = ctypes.c_int(-1)
        code = int(self.driver.to_host(ctypes.addressof(found), self.info, 4, self.stream))
        code = code or int(self.driver.synchronize_stream(self.stream))
        if code:
            raise RuntimeError(f"CUDA error {code}")
        return found.value


Do = Callable[[Work, Sequence[Region], Sequence[Region], Sequence[int], Sequence[int], Mapping[str, Any]], None]


def _factored(work: Work, n: int, source: int) -> tuple[int, int]:
    """(LU factors of the transpose, pivots)."""
    factors, pivots = work.matrix("factors", n * n), work.memory("pivots", 8 * n)
    work.copy(factors, source, n * n)
    handle, parameters = work.blas.solver.handle(work.stream)
    sizes = work.cusolver.xgetrf_buffer_size(handle, parameters, n, n, work.kind, factors, n, work.kind)
    work._on_host = ctypes.create_string_buffer(max(16, sizes[1]))
    work.cusolver.xgetrf(
        handle, parameters, n, n, work.kind, factors, n, pivots, work.kind,
        work.memory("workspace", sizes[0]), sizes[0], ctypes.addressof(work._on_host), sizes[1], work.info,
    )  # fmt: skip
    if work.failed():
        raise np.linalg.LinAlgError("Singular matrix")
    return factors, pivots


def _solve(
    work: Work, reads: Sequence[Region], writes: Sequence[Region], a: Sequence[int], out: Sequence[int], _: Any
) -> None:
    n, k = reads[0].shape[0], math.prod(reads[1].shape[1:])
    factors, pivots = _factored(work, n, a[0])
    columns = out[0] if k == 1 else work.matrix("columns", n * k)
    if k == 1:
        work.copy(columns, a[1], n)
    else:
        work.turned(columns, a[1], n, k)
    handle, parameters = work.blas.solver.handle(work.stream)
    work.cusolver.xgetrs(
        handle, parameters, TRANSPOSED, n, k, work.kind, factors, n, pivots, work.kind, columns, n, work.info
    )
    if k > 1:
        work.turned(out[0], columns, k, n)


def _inv(
    work: Work, reads: Sequence[Region], writes: Sequence[Region], a: Sequence[int], out: Sequence[int], _: Any
) -> None:
    n = reads[0].shape[0]
    factors, pivots = _factored(work, n, a[0])
    work.copy(out[0], work.blas.solver.identity(work.driver, work.dtype, n, work.stream), n * n)
    handle, parameters = work.blas.solver.handle(work.stream)
    work.cusolver.xgetrs(
        handle, parameters, PLAIN, n, n, work.kind, factors, n, pivots, work.kind, out[0], n, work.info
    )


def _cholesky(
    work: Work, reads: Sequence[Region], writes: Sequence[Region], a: Sequence[int], out: Sequence[int], _: Any
) -> None:
    n = reads[0].shape[0]
    factor = work.matrix("factors", n * n)
    work.copy(factor, a[0], n * n)
    work.do("xpotrf", UPPER, n, work.kind, factor, n)
    if work.failed():
        raise np.linalg.LinAlgError("Matrix is not positive definite")
    work.triangle(out[0], factor, n, UPPER)


def _eigh(
    work: Work, reads: Sequence[Region], writes: Sequence[Region], a: Sequence[int], out: Sequence[int], options: Any
) -> None:
    n, which = reads[0].shape[0], LOWER if options.get("UPLO", "L") == "U" else UPPER
    vectors, wanted = work.matrix("vectors", n * n), int(len(out) > 1)
    work.copy(vectors, a[0], n * n)
    work.do("xsyevd", wanted, which, n, work.kind, vectors, n, work.real, out[0])
    if work.failed():
        raise np.linalg.LinAlgError("Eigenvalues did not converge")
    if wanted:
        work.turned(out[1], vectors, n, n, ADJOINT if work.kind != work.real else TRANSPOSED)


def _svd(
    work: Work, reads: Sequence[Region], writes: Sequence[Region], a: Sequence[int], out: Sequence[int], options: Any
) -> None:
    (m, n), wanted = reads[0].shape, len(out) > 1
    full = bool(options.get("full_matrices", True))
    k, wide = min(m, n), n >= m
    rows, columns = (n, m) if wide else (m, n)  # of what cuSOLVER sees: the transpose of a wide matrix
    given = work.matrix("given", m * n)
    if wide:
        work.copy(given, a[0], m * n)
    else:
        work.turned(given, a[0], m, n)
    left_columns = rows if full else k
    job = ord("A" if full else "S") if wanted else ord("N")
    s = out[1] if wanted else out[0]
    left, right = s, s
    if wanted:  # a wide matrix's vectors come out as NumPy lays them
        left = out[2] if wide else work.matrix("left", rows * left_columns)
        right = out[0] if wide else work.matrix("right", columns * columns)
    arguments = (job, job, rows, columns, work.kind, given, rows, work.real, s, work.kind, left, rows, work.kind)
    work.do("xgesvd", *arguments, right, columns)
    if work.failed():
        raise np.linalg.LinAlgError("SVD did not converge")
    if wanted and not wide:
        work.turned(out[0], left, left_columns, rows)
        work.turned(out[2], right, columns, columns)


_DO: dict[str, Do] = {
    "solve": _solve,
    "inv": _inv,
    "cholesky": _cholesky,
    "eigh": _eigh,
    "eigvalsh": _eigh,
    "svd": _svd,
    "svdvals": _svd,
}
_UNKNOWN = {"upper": (None, False), "hermitian": (None, False)}  # options that have to be so


class SolverStep:
    """A call of one of the rows."""

    numbers = empty = False

    def __init__(self, driver: Driver, blas: Blas, task: Task, do: Do, options: Mapping[str, Any]) -> None:
        self._driver, self._blas, self._do, self._options = driver, blas, do, options
        self._reads, self._writes = task.reads, task.writes
        self.buffers = frozenset(r.buffer for r in (*task.reads, *task.writes))
        self._work: dict[int, Work] = {}

    def __call__(self, addresses: Sequence[int], scalars: Sequence[Any], stream: int) -> int:
        if stream not in self._work:
            self._work[stream] = Work(self._driver, self._blas, self._reads[0].dtype, stream)
        work = self._work[stream]
        reads, writes = self._reads, self._writes
        given, made = ([addresses[r.buffer] + r.offset for r in regions] for regions in (reads, writes))
        self._do(work, reads, writes, given, made, self._options)
        return SUCCESS


def solver_step(name: str, options: Mapping[str, Any]) -> Callable[[Driver, Blas, Task], SolverStep | None]:
    """What makes the step of a call of `np.linalg.NAME` with these options."""

    def make(driver: Driver, blas: Blas, task: Task) -> SolverStep | None:
        do, reads = _DO.get(name), task.reads
        same = all(r.dtype == reads[0].dtype and r.dtype in _TYPES for r in reads)
        fits = same and len(reads[0].shape) == 2 and min(reads[0].shape) >= LEAST and max(reads[0].shape) < 1 << 15
        results = 3 if name == "svd" and options.get("compute_uv", True) else len(task.writes)
        plain = len(task.writes) == results and all(
            options.get(option) in allowed for option, allowed in _UNKNOWN.items()
        )
        if do is None or not fits or not plain or any(len(r.shape) > 2 or 0 in r.shape for r in reads):
            return None
        return SolverStep(driver, blas, task, do, options)

    return make
