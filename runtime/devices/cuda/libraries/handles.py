"""The handles of cuBLAS and cuSOLVER, one for each stream. Calls in, work on the stream out."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from ....core.disk_cache import sha256_digest
from ....core.errors import OutOfMemory
from ....core.frozen import replace
from ....core.settings import settings
from ..driver.driver import CudaDriver
from ..driver.stopwatch import GpuStopwatch
from .cublaslt import ALIGNED, CublasLt, Enqueue, gemm_alignment_of_address
from .cublaslt_nan_probe import gemm_relu_keeps_nan
from .cudnn import Cudnn
from .gemm import GemmCall
from .product_ways import (
    ONE_BY_ONE,
    USUAL,
    ChosenProductWay,
    ProductWay,
    choose_product_way,
    describe_product_ways,
    load_product_way,
    other_product_ways,
    pin_product_way,
)

SCRATCH_PARTS = 256  # of the memory, of which trials of products may take one
WORKSPACE = 32 << 20  # what cuBLAS asks for on Hopper; smaller GPUs need less

NO_REDUCED_PRECISION = 16  # CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION on the default mode, which has no TF32


class CusolverHandles:
    """One cuSOLVER handle for each stream, and identity matrices."""

    def __init__(self, allocate: Callable[[int], Any]) -> None:
        self.allocate = allocate
        self._handles: dict[int, tuple[int, int]] = {}
        self._ones: dict[tuple[str, int], Any] = {}
        self._jacobi = 0

    def jacobi_svd_parameters(self) -> int:
        """How exact the singular values of many matrices are: as cuSOLVER has it."""
        if not self._jacobi:
            cusolver: Any = import_module("nvmath.bindings.cusolverDn")
            self._jacobi = cusolver.create_gesvdj_info()
        return self._jacobi

    def handle(self, stream: int) -> tuple[int, int]:
        """(handle, parameters) that work on a stream."""
        if stream not in self._handles:
            cusolver: Any = import_module("nvmath.bindings.cusolverDn")
            handle = cusolver.create()
            cusolver.set_stream(handle, stream)
            self._handles[stream] = (handle, cusolver.create_params())
        return self._handles[stream]

    def kept(self) -> list[Any]:
        """Memory that it holds."""
        return list(self._ones.values())

    def identity(self, driver: CudaDriver, dtype: str, n: int, stream: int) -> int:
        """The address of an n x n identity matrix."""
        key = (dtype, n)
        if key not in self._ones:
            host = np.eye(n, dtype=dtype)
            memory = self.allocate(host.nbytes)
            driver.to_device(memory.address, host.ctypes.data, host.nbytes, stream)
            driver.synchronize_stream(stream)
            self._ones[key] = memory
        return int(self._ones[key].address)


class CublasHandles:
    """One cuBLAS handle and workspace for each stream, made at first use. allocate: device memory by size; new_stream:
    for trials; identity: of the GPU and its libraries; dnn: cuDNN, which has handles of its own."""

    def __init__(
        self,
        allocate: Callable[[int], Any],
        memory_bytes: int,
        driver: CudaDriver,
        new_stream: Callable[[], int],
        identity: Callable[[], str],
        dnn: Cudnn | None = None,
    ) -> None:
        self.allocate, self.dnn, self._identity = allocate, dnn, identity
        self._scratch, self._ways = memory_bytes // SCRATCH_PARTS, dict[tuple[GemmCall, int], ChosenProductWay]()
        self.solver = CusolverHandles(allocate)
        self._workspace = min(WORKSPACE, max(4 << 20, memory_bytes // 1024))
        self._driver, self._new_stream, self._trials = driver, new_stream, 0
        self._stopwatch: GpuStopwatch | None = None
        self._lt = CublasLt(self._workspace, self._relu_keeps_nan)
        self._handles: dict[int, tuple[int, Any]] = {}
        self._taken: list[int] = []  # bytes that the driver had less after each handle
        self._cublas: Any = None

    @property
    def handle_bytes(self) -> int:
        """About what cuBLAS itself has taken for handles: others may take and give memory meanwhile."""
        taken = sorted(self._taken)
        return max(0, taken[len(taken) // 2]) * len(taken) if taken else 0

    @property
    def nbytes(self) -> int:
        """Bytes of workspaces, and of what the solver keeps."""
        held = [workspace for _, workspace in list(self._handles.values())]
        return sum(memory.nbytes for memory in (*held, *self.solver.kept()))

    def handle(self, stream: int) -> int:
        found = self._handles.get(stream)
        if found is None:
            if self._cublas is None:
                self._cublas = import_module("nvmath.bindings.cublas")
            before = self._driver.memory_info()
            handle = self._cublas.create()
            after = self._driver.memory_info()
            if before is not None and after is not None:
                self._taken.append(before[0] - after[0])
            workspace = self.allocate(self._workspace)
            self._cublas.set_stream(handle, stream)
            self._cublas.set_workspace(handle, workspace.address, workspace.nbytes)
            self._cublas.set_math_mode(handle, NO_REDUCED_PRECISION)
            found = self._handles[stream] = (handle, workspace)
        return found[0]

    def run_batch(self, call: GemmCall, table: int, count: int, stream: int) -> None:
        """Enqueue `count` products of one form. `table` in device memory holds the addresses of B, of A, and of C."""
        handle = self.handle(stream)
        kinds, compute, scale = call.types
        one, zero = (scale * 2)(1, 0), (scale * 2)(0, 0)
        self._cublas.gemm_batched_ex(
            handle, *call.operations, *call.shape, ctypes.addressof(one),
            table, kinds[0], call.leading[0],
            table + 8 * count, kinds[1], call.leading[1],
            ctypes.addressof(zero), table + 16 * count, kinds[2], call.leading[2],
            count, compute, -1,
        )  # fmt: skip

    def can(self, call: GemmCall) -> bool:
        """Whether there is a call that does it, wherever its arrays lie."""
        return not call.epilogue or self._lt.can(call)

    def _trial_stream(self) -> int:
        self._trials = self._trials or self._new_stream()
        self.handle(self._trials)
        return self._trials

    def _relu_keeps_nan(self, call: GemmCall, enqueue: Enqueue) -> bool:
        stream = self._trial_stream()
        workspace = self._handles[stream][1]
        return gemm_relu_keeps_nan(self._driver, self.allocate, stream, call, lambda at: enqueue(at, workspace, stream))

    def way(self, call: GemmCall, predicted: float, count: int = 1) -> ChosenProductWay:
        """How a product is done: as usual, unless that takes three times the predicted microseconds. It is measured
        once, on arrays of its own, and the same for all functions and plans, whose bits are then the same. count: how
        many of one form are done together, as `run_batch` does."""
        form = replace(call, offsets=tuple(gemm_alignment_of_address(offset) % ALIGNED for offset in call.offsets))
        with self._lt.lock:  # which trials of its relus take too: they share a stream
            if (form, count) not in self._ways:
                key = sha256_digest(self._identity(), form, count)
                found = load_product_way(key)
                if found is None and settings.tune:
                    found = pin_product_way(key, *self._try_product_ways(form, predicted, count))
                found = found or (USUAL, {})
                if found[0].choice is not None:
                    self._lt.has_choice(form, found[0].choice)  # which puts its algorithms to the trial in each process
                note = describe_product_ways(form, count, predicted, *found)
                self._ways[form, count] = ChosenProductWay(found[0], note)
            return self._ways[form, count]

    def _try_product_ways(self, call: GemmCall, predicted: float, count: int) -> tuple[ProductWay, dict[str, float]]:
        sizes = [offset + nbytes for offset, nbytes in zip(call.offsets, call.spans, strict=True)]
        stream, nothing = self._trial_stream(), (USUAL, dict[str, float]())
        if sum(sizes) > self._scratch:
            return nothing
        try:
            memories = [self.allocate(nbytes) for nbytes in (*sizes, 24 * count)]
        except OutOfMemory:
            return nothing
        stopwatch = self._stopwatch = self._stopwatch or GpuStopwatch(self._driver, stream)
        for memory in memories:
            self._driver.fill(memory.address, 0, memory.nbytes, stream)
        *addresses, table = (memory.address for memory in memories)
        rows = np.repeat(np.array([a + o for a, o in zip(addresses, call.offsets, strict=True)][:3], np.uint64), count)
        self._driver.to_device(table, rows.ctypes.data, rows.nbytes, stream)

        def enqueue(way: ProductWay) -> None:
            if count > 1 and way == USUAL:
                self.run_batch(call, table, count, stream)
                return
            for _ in range(count):
                self.run(call, tuple(addresses), stream, way if count == 1 else USUAL)

        def measure(way: ProductWay) -> float | None:
            if way.choice is not None and not self._lt.has_choice(call, way.choice):
                return None
            try:
                return stopwatch.microseconds(lambda: enqueue(way))
            except Exception:  # of the bindings: this way cannot do it, and the usual one says so when it is run
                return None

        ways = other_product_ways(call) if count == 1 else (ONE_BY_ONE,)
        return choose_product_way(ways, measure, predicted)

    def run(self, call: GemmCall, addresses: tuple[int, ...], stream: int, way: ProductWay = USUAL) -> bool:
        """Enqueue one product; addresses of the buffers of B, A, C and a bias. False where it is a relu short of its
        epilogue. Raises what the bindings raise."""
        handle = self.handle(stream)
        if way.one_by_one:
            for one in call.one_by_one():
                self.run(one, addresses, stream)
            return True
        places = tuple(address + offset for address, offset in zip(addresses, call.offsets, strict=True))
        if call.epilogue or way.choice is not None:
            done = self._lt.run(call, places, self._handles[stream][1], stream, way.choice or 0)
            if done is not None:
                return done
        kinds, compute, scale = call.types
        one, zero = (scale * 2)(1, 0), (scale * 2)(0, 0)
        b, a, c = places
        self._cublas.gemm_strided_batched_ex(
            handle, *call.operations, *call.shape, ctypes.addressof(one),
            b, kinds[0], call.leading[0], call.strides[0],
            a, kinds[1], call.leading[1], call.strides[1],
            ctypes.addressof(zero), c, kinds[2], call.leading[2], call.strides[2],
            call.batch, compute, -1,
        )  # fmt: skip
        return True
