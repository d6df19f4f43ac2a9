"""Factors of matrices as cuSOLVER and cuBLAS leave them. Of one matrix, and of many small ones by one call.

The rows of `np.linalg` that take them are made of these in `compiler/decompose/linalg.py`. What the libraries see of a
C-ordered matrix is its transpose.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence

import numpy as np

from .cusolver import LOWER, SINGLE, TRANSPOSED, UPPER, CusolverWorkspace, Do

PART_BYTES = 128 << 20  # of workspace; cuSOLVER wants half a megabyte for each small matrix


def lu_on_gpu(work: CusolverWorkspace, a: Sequence[int], out: Sequence[int]) -> None:
    """Factors of the transpose, and pivots (int64) if they are wanted. A singular matrix has them too."""
    n = work.reads[0].shape[0]
    work.copy(out[0], a[0], n * n)
    work.factor(n, out[0], out[1] if len(out) > 1 else work.memory("pivots", 8 * n))
    work.failed()


def qr_on_gpu(work: CusolverWorkspace, a: Sequence[int], out: Sequence[int]) -> None:
    """(Q, R), or Q alone."""
    (m, n), columns = work.reads[0].shape, work.writes[0].shape[1]
    k = min(m, n)
    given, tau = _householder_qr_on_gpu(work, m, n, a[0], m * max(n, columns))
    if len(out) > 1:
        work.transposed_matrix(out[1], given, n, columns, lead=m)
    kind = "ungqr" if work.kind != work.real else "orgqr"
    name, (handle, _) = work.letter + kind, work.handle()
    size = getattr(work.cusolver, f"{name}_buffer_size")(handle, m, columns, k, given, m, tau)
    place = work.matrix_memory("reflections", size)
    getattr(work.cusolver, name)(handle, m, columns, k, given, m, tau, place, size, work.info)
    work.transposed_matrix(out[0], given, columns, m)
    work.failed()


def qr_upper_on_gpu(work: CusolverWorkspace, a: Sequence[int], out: Sequence[int]) -> None:
    """R alone."""
    m, n = work.reads[0].shape
    given, _tau = _householder_qr_on_gpu(work, m, n, a[0], m * n)
    work.transposed_matrix(out[0], given, n, min(m, n), lead=m)
    work.failed()


def _householder_qr_on_gpu(work: CusolverWorkspace, m: int, n: int, source: int, count: int) -> tuple[int, int]:
    """(R above, reflections below; their factors), columns first, in memory of `count` elements."""
    given, tau = work.matrix_memory("given", count), work.matrix_memory("tau", min(m, n))
    work.transposed_matrix(given, source, m, n)
    work.do("xgeqrf", m, n, work.kind, given, m, work.kind, tau)
    return given, tau


FACTORS: dict[str, Do] = {
    "lu": lu_on_gpu,
    "qr_factors": qr_on_gpu,
    "qr_upper": qr_upper_on_gpu,
    "cholesky_factor": SINGLE["cholesky"],
}


# many matrices


def _matrix_pointer_table_on_gpu(work: CusolverWorkspace, name: str, first: int, count: int, step: int) -> int:
    """The address of a table of addresses."""
    table = first + step * np.arange(count, dtype=np.uint64)
    address = work.memory(name, table.nbytes)
    work.driver.to_device(address, table.ctypes.data, table.nbytes, work.stream)
    work.tables[name] = table  # until the stream is done
    return address


def _batched_lu_factors_on_gpu(work: CusolverWorkspace, factors: int, source: int, pivots: int) -> tuple[int, int]:
    """LU factors of the transposes: (the table of them, what is said of each)."""
    n, count, size = work.counts()
    work.copy(factors, source, size)
    table, infos = (
        _matrix_pointer_table_on_gpu(work, "a", factors, count, n * n * work.itemsize),
        work.memory("infos", 4 * count),
    )
    work.blas.call(f"{work.letter}getrf_batched", work.stream, n, table, n, pivots, infos, count)
    return table, infos


def _check_batched_cusolver_infos(work: CusolverWorkspace, infos: int, count: int, words: str) -> None:
    found = np.empty(count, np.int32)
    code = int(work.driver.to_host(found.ctypes.data, infos, found.nbytes, work.stream))
    if code := code or int(work.driver.synchronize_stream(work.stream)):
        raise RuntimeError(f"CUDA error {code}")
    if found.any():
        raise np.linalg.LinAlgError(words)


def batched_lu_on_gpu(work: CusolverWorkspace, a: Sequence[int], out: Sequence[int]) -> None:
    pivots = out[1] if len(out) > 1 else work.memory("pivots", 4 * math.prod(work.reads[0].shape[:-1]))
    _batched_lu_factors_on_gpu(work, out[0], a[0], pivots)
    work.failed()


def _nonsingular_lu_factors_on_gpu(work: CusolverWorkspace, source: int) -> tuple[int, int, int]:
    """(Table of LU factors, pivots, what is said of each) of matrices none of which is singular."""
    n, count, size = work.counts()
    pivots = work.memory("pivots", 4 * n * count)
    table, infos = _batched_lu_factors_on_gpu(work, work.matrix_memory("factors", size), source, pivots)
    _check_batched_cusolver_infos(work, infos, count, "Singular matrix")
    return table, pivots, infos


def batched_inverse_on_gpu(work: CusolverWorkspace, a: Sequence[int], out: Sequence[int]) -> None:
    (n, count, _size), (table, pivots, infos) = (
        work.counts(),
        _nonsingular_lu_factors_on_gpu(work, a[0]),
    )
    results = _matrix_pointer_table_on_gpu(work, "b", out[0], count, n * n * work.itemsize)
    work.blas.call(f"{work.letter}getri_batched", work.stream, n, table, n, pivots, results, n, infos, count)
    work.failed()


def batched_solve_on_gpu(work: CusolverWorkspace, a: Sequence[int], out: Sequence[int]) -> None:
    """With one column for each matrix."""
    (n, count, _size), (table, pivots, _infos) = (
        work.counts(),
        _nonsingular_lu_factors_on_gpu(work, a[0]),
    )
    work.copy(out[0], a[1], n * count)
    results, wrong = _matrix_pointer_table_on_gpu(work, "b", out[0], count, n * work.itemsize), ctypes.c_int(0)
    work.blas.call(
        f"{work.letter}getrs_batched", work.stream, TRANSPOSED, n, 1, table, n, pivots, results, n,
        ctypes.addressof(wrong), count,
    )  # fmt: skip
    work.failed()


def batched_cholesky_on_gpu(work: CusolverWorkspace, a: Sequence[int], out: Sequence[int]) -> None:
    """The other triangles keep what they had."""
    n, count, size = work.counts()
    work.copy(out[0], a[0], size)
    table, infos = (
        _matrix_pointer_table_on_gpu(work, "a", out[0], count, n * n * work.itemsize),
        work.memory("infos", 4 * count),
    )
    handle, _parameters = work.handle()
    getattr(work.cusolver, f"{work.letter}potrf_batched")(handle, UPPER, n, table, n, infos, count)
    _check_batched_cusolver_infos(work, infos, count, "Matrix is not positive definite")


def batched_eigh_on_gpu(work: CusolverWorkspace, a: Sequence[int], out: Sequence[int]) -> None:
    """Eigenvalues, and conjugated eigenvectors as rows if they are wanted."""
    n, count, size = work.counts()
    wanted, which = int(len(out) > 1), LOWER if work.options.get("UPLO", "L") == "U" else UPPER
    vectors, infos = out[1] if wanted else work.matrix_memory("vectors", size), work.memory("infos", 4 * count)
    work.copy(vectors, a[0], size)
    handle, parameters = work.handle()
    sizes, run = work.cusolver.xsyev_batched_buffer_size, work.cusolver.xsyev_batched
    first = (handle, parameters, wanted, which, n, work.kind)
    one = sizes(*first, vectors, n, work.real, out[0], work.kind, 1)[0]
    part = min(count, max(1, PART_BYTES // max(1, one)))
    for start in range(0, count, part):
        number = min(part, count - start)
        place, values = vectors + start * n * n * work.itemsize, out[0] + start * n * work.writes[0].itemsize
        given = (*first, place, n, work.real, values, work.kind)
        on_device, on_host = sizes(*given, number)
        host = work.tables[f"workspace {start}"] = ctypes.create_string_buffer(max(16, on_host))
        memory = work.memory("workspace", on_device)
        run(*given, memory, on_device, ctypes.addressof(host), on_host, infos + 4 * start, number)
    _check_batched_cusolver_infos(work, infos, count, "Eigenvalues did not converge")


def batched_svd_on_gpu(work: CusolverWorkspace, a: Sequence[int], out: Sequence[int]) -> None:
    """Singular values; or conjugated left singular vectors as rows, these, and right ones, all that there are. Vectors
    that nobody wants need memory too: cuSOLVER writes there."""
    n, count, size = work.counts()
    m = work.reads[0].shape[-2]
    given, infos = work.matrix_memory("given", size), work.memory("infos", 4 * count)
    work.copy(given, a[0], size)
    if len(out) > 1:
        left, values, right = out
    else:
        left, values, right = (
            work.matrix_memory("left", count * m * m),
            out[0],
            work.matrix_memory("right", count * n * n),
        )
    name, (handle, _parameters) = f"{work.letter}gesvdj_batched", work.handle()
    jacobi = work.blas.solver.jacobi_svd_parameters()
    first = (handle, 1, n, m, given, n, values, right, n, left, m)  # of the transposes: the other way round
    words = getattr(work.cusolver, f"{name}_buffer_size")(*first, jacobi, count)
    getattr(work.cusolver, name)(*first, work.matrix_memory("workspace", words), words, infos, jacobi, count)
    _check_batched_cusolver_infos(work, infos, count, "SVD did not converge")


# by name: the function, how many matrices are worth it, and the longest axis that it does
MANY: dict[str, tuple[Callable[..., None], int, int]] = {
    "lu": (batched_lu_on_gpu, 128, 1 << 15),
    "inv": (batched_inverse_on_gpu, 128, 1 << 15),
    "solve": (batched_solve_on_gpu, 128, 1 << 15),
    "cholesky_factor": (batched_cholesky_on_gpu, 128, 1 << 15),
    "eigvalsh": (batched_eigh_on_gpu, 32, 1 << 15),
    "eigh_rows": (batched_eigh_on_gpu, 32, 1 << 15),
    "svdvals": (batched_svd_on_gpu, 32, 32),
    "svd_whole": (batched_svd_on_gpu, 32, 32),
}
