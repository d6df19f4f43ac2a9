"""Linear algebra of one matrix on the GPU. Addresses of a call's arrays in, work of cuSOLVER on a stream out.

cuSOLVER by nvmath-python's bindings. It counts columns first, so what it sees of a C-ordered matrix is the transpose.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from ....program.program import Region
from ..driver.driver import CudaDriver
from .handles import CublasHandles

# dtype: (cudaDataType, that of its real part, cuBLAS's letter, what alpha is)
TYPES: dict[str, tuple[int, int, str, Any]] = {
    "float32": (0, 0, "s", ctypes.c_float),
    "float64": (1, 1, "d", ctypes.c_double),
    "complex64": (4, 0, "c", ctypes.c_float * 2),
    "complex128": (5, 1, "z", ctypes.c_double * 2),
}
LOWER, UPPER = 0, 1
PLAIN, TRANSPOSED, ADJOINT = 0, 1, 2
LEFT, NON_UNIT = 0, 0


class CusolverWorkspace:
    """What one call needs: the libraries on a stream, what it reads and writes, and memory of its own, kept for the
    next."""

    def __init__(
        self,
        driver: CudaDriver,
        blas: CublasHandles,
        reads: Sequence[Region],
        writes: Sequence[Region],
        options: Mapping[str, Any],
        stream: int,
    ) -> None:
        self.driver, self.blas, self.stream = driver, blas, stream
        self.reads, self.writes, self.options = reads, writes, options
        self.dtype, self.itemsize = reads[0].dtype, reads[0].itemsize
        self.kind, self.real, self.letter, self._scalar = TYPES[self.dtype]
        self.cusolver: Any = import_module("nvmath.bindings.cusolverDn")
        self._held: dict[str, Any] = {}
        self.tables: dict[str, Any] = {}
        self.info = self.memory("info", 4)

    def counts(self) -> tuple[int, int, int]:
        """The rows of a matrix, how many matrices there are, and the elements of all."""
        *_, m, n = self.reads[0].shape
        size = math.prod(self.reads[0].shape)
        return n, size // (n * m), size

    def handle(self) -> tuple[int, int]:
        """(cuSOLVER's on the stream, its parameters)."""
        return self.blas.solver.handle(self.stream)

    def memory(self, name: str, nbytes: int) -> int:
        found = self._held.get(name)
        if found is None or found.nbytes < nbytes:
            found = self._held[name] = self.blas.allocate(max(16, nbytes))
        return int(found.address)

    def matrix_memory(self, name: str, count: int) -> int:
        return self.memory(name, count * self.itemsize)

    def copy(self, target: int, source: int, count: int) -> None:
        if code := int(self.driver.on_device(target, source, count * self.itemsize, self.stream)):
            raise RuntimeError(f"CUDA error {code}")

    def do(self, name: str, *arguments: Any, pivots: Sequence[int] = ()) -> None:
        """A function of cuSOLVER's 64-bit interface, of which this gives the workspaces. pivots: where it puts them."""
        handle, parameters = self.handle()
        sizes = getattr(self.cusolver, f"{name}_buffer_size")(handle, parameters, *arguments, self.kind)
        on_host = ctypes.create_string_buffer(max(16, sizes[1]))
        on_device = self.memory("workspace", sizes[0])
        place = ctypes.addressof(on_host)
        run = getattr(self.cusolver, name)
        run(handle, parameters, *arguments, *pivots, self.kind, on_device, sizes[0], place, sizes[1], self.info)
        self._on_host = on_host  # until the stream is done

    def transposed_matrix(
        self, target: int, source: int, rows: int, columns: int, how: int = TRANSPOSED, lead: int = 0
    ) -> None:
        """target, rows x columns by columns, becomes the transpose of source, which has `lead` rows: at least as many
        as there are columns, the default."""
        one, zero = self._scalar_argument(1), self._scalar_argument(0)
        self.blas.call(
            f"{self.letter}geam", self.stream, how, how, rows, columns, ctypes.addressof(one), source, lead or columns,
            ctypes.addressof(zero), source, lead or columns, target, rows,
        )  # fmt: skip

    def factor(self, n: int, factors: int, pivots: int) -> None:
        """The LU factors of a matrix in its place."""
        self.do("xgetrf", n, n, self.kind, factors, n, pivots=(pivots,))

    def extract_triangle(self, target: int, source: int, n: int, which: int) -> None:
        """The triangle of a matrix, with zeros in the other: its product with the identity, which reads no more."""
        one, ones = self._scalar_argument(1), self.blas.solver.identity(self.driver, self.dtype, n, self.stream)
        self.blas.call(
            f"{self.letter}trmm", self.stream, LEFT, which, PLAIN, NON_UNIT, n, n, ctypes.addressof(one), source, n,
            ones, n, target, n,
        )  # fmt: skip

    def _scalar_argument(self, value: float) -> Any:
        return self._scalar(value) if self.letter in "sd" else self._scalar(value, 0)

    def failed(self) -> int:
        """cuSOLVER's `info` once the stream is done."""
        found = ctypes.c_int(-1)
        code = int(self.driver.to_host(ctypes.addressof(found), self.info, 4, self.stream))
        code = code or int(self.driver.synchronize_stream(self.stream))
        if code:
            raise RuntimeError(f"CUDA error {code}")
        return found.value


Do = Callable[[CusolverWorkspace, Sequence[int], Sequence[int]], None]


def _lu_factors_of_transpose_on_gpu(work: CusolverWorkspace, n: int, source: int) -> tuple[int, int]:
    """(LU factors of the transpose, pivots)."""
    factors, pivots = work.matrix_memory("factors", n * n), work.memory("pivots", 8 * n)
    work.copy(factors, source, n * n)
    work.factor(n, factors, pivots)
    if work.failed():
        raise np.linalg.LinAlgError("Singular matrix")
    return factors, pivots


def _solve_on_gpu(work: CusolverWorkspace, a: Sequence[int], out: Sequence[int]) -> None:
    n, k = work.reads[0].shape[0], math.prod(work.reads[1].shape[1:])
    factors, pivots = _lu_factors_of_transpose_on_gpu(work, n, a[0])
    columns = out[0] if k == 1 else work.matrix_memory("columns", n * k)
    if k == 1:
        work.copy(columns, a[1], n)
    else:
        work.transposed_matrix(columns, a[1], n, k)
    handle, parameters = work.handle()
    work.cusolver.xgetrs(
        handle, parameters, TRANSPOSED, n, k, work.kind, factors, n, pivots, work.kind, columns, n, work.info
    )
    if k > 1:
        work.transposed_matrix(out[0], columns, k, n)


def _inverse_on_gpu(work: CusolverWorkspace, a: Sequence[int], out: Sequence[int]) -> None:
    n = work.reads[0].shape[0]
    factors, pivots = _lu_factors_of_transpose_on_gpu(work, n, a[0])
    work.copy(out[0], work.blas.solver.identity(work.driver, work.dtype, n, work.stream), n * n)
    handle, parameters = work.handle()
    work.cusolver.xgetrs(
        handle, parameters, PLAIN, n, n, work.kind, factors, n, pivots, work.kind, out[0], n, work.info
    )


def _cholesky_on_gpu(work: CusolverWorkspace, a: Sequence[int], out: Sequence[int]) -> None:
    n = work.reads[0].shape[0]
    factor = work.matrix_memory("factors", n * n)
    work.copy(factor, a[0], n * n)
    work.do("xpotrf", UPPER, n, work.kind, factor, n)
    if work.failed():
        raise np.linalg.LinAlgError("Matrix is not positive definite")
    work.extract_triangle(out[0], factor, n, UPPER)


def _eigh_on_gpu(work: CusolverWorkspace, a: Sequence[int], out: Sequence[int]) -> None:
    n, which = work.reads[0].shape[0], LOWER if work.options.get("UPLO", "L") == "U" else UPPER
    vectors, wanted = work.matrix_memory("vectors", n * n), int(len(out) > 1)
    work.copy(vectors, a[0], n * n)
    work.do("xsyevd", wanted, which, n, work.kind, vectors, n, work.real, out[0])
    if work.failed():
        raise np.linalg.LinAlgError("Eigenvalues did not converge")
    if wanted:
        work.transposed_matrix(out[1], vectors, n, n, ADJOINT if work.kind != work.real else TRANSPOSED)


def _svd_on_gpu(work: CusolverWorkspace, a: Sequence[int], out: Sequence[int]) -> None:
    (m, n), wanted = work.reads[0].shape, len(out) > 1
    full = bool(work.options.get("full_matrices", True))
    k, wide = min(m, n), n >= m
    rows, columns = (n, m) if wide else (m, n)  # of what cuSOLVER sees: the transpose of a wide matrix
    given = work.matrix_memory("given", m * n)
    if wide:
        work.copy(given, a[0], m * n)
    else:
        work.transposed_matrix(given, a[0], m, n)
    left_columns = rows if full else k
    job = ord("A" if full else "S") if wanted else ord("N")
    s = out[1] if wanted else out[0]
    left, right = s, s
    if wanted:  # a wide matrix's vectors come out as NumPy lays them
        left = out[2] if wide else work.matrix_memory("left", rows * left_columns)
        right = out[0] if wide else work.matrix_memory("right", columns * columns)
    arguments = (job, job, rows, columns, work.kind, given, rows, work.real, s, work.kind, left, rows, work.kind)
    work.do("xgesvd", *arguments, right, columns)
    if work.failed():
        raise np.linalg.LinAlgError("SVD did not converge")
    if wanted and not wide:
        work.transposed_matrix(out[0], left, left_columns, rows)
        work.transposed_matrix(out[2], right, columns, columns)


SINGLE: dict[str, Do] = {
    "solve": _solve_on_gpu,
    "inv": _inverse_on_gpu,
    "cholesky": _cholesky_on_gpu,
    "eigh": _eigh_on_gpu,
    "eigvalsh": _eigh_on_gpu,
    "svd": _svd_on_gpu,
    "svdvals": _svd_on_gpu,
}
