"""The handle of cuBLAS, with a workspace for each stream, and cuSOLVER's handles. Calls in, work on a stream out.

A handle of cuBLAS takes some 60 MiB of the GPU's memory beside its workspace: there is one, which is set to the stream
of each call. What runs at the same time then shares no workspace, as the library asks for.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from ....core.disk_cache import sha256_digest
from ....core.errors import OutOfMemory
from ....core.frozen import replace
from ....core.settings import settings
from ..driver.driver import CudaDriver, bytes_taken_by
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
    """cuSOLVER's handle, which takes 160 MiB, and identity matrices. It is used by one thread at a time, and what it
    works with by one stream at a time."""

    def __init__(self, allocate: Callable[[int], Any], driver: CudaDriver) -> None:
        self.allocate, self._driver = allocate, driver
        self._handle: tuple[int, int] | None = None
        self._set_to = self.handle_bytes = 0
        self._ones: dict[tuple[str, int], Any] = {}
        self._jacobi = 0

    def jacobi_svd_parameters(self) -> int:
        """How exact the singular values of many matrices are: as cuSOLVER has it."""
        if not self._jacobi:
            cusolver: Any = import_module("nvmath.bindings.cusolverDn")
            self._jacobi = cusolver.create_gesvdj_info()
        return self._jacobi

    def handle(self, stream: int) -> tuple[int, int]:
        """(handle, parameters) that work on a stream, for one who holds the lock of `CublasHandles`."""
        cusolver: Any = import_module("nvmath.bindings.cusolverDn")
        if self._handle is None:
            handle, self.handle_bytes = bytes_taken_by(self._driver.memory_info, cusolver.create)
            self._handle = handle, cusolver.create_params()
        if self._set_to != stream:
            if self._set_to:
                self._driver.synchronize_stream(self._set_to)
            cusolver.set_stream(self._handle[0], stream)
            self._set_to = stream
        return self._handle

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
    """The handle of cuBLAS, and a workspace for each stream, made at first use. allocate: device memory by size;
    new_stream: for trials; identity: of the GPU and its libraries; dnn: cuDNN, which has a handle of its own. lock:
    held by who uses the handle."""

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
        self.solver = CusolverHandles(allocate, driver)
        self._workspace = min(WORKSPACE, max(4 << 20, memory_bytes // 1024))
        self._driver, self._new_stream, self._trials = driver, new_stream, 0
        self._stopwatch: GpuStopwatch | None = None
        self._lt = CublasLt(self._workspace, self._relu_keeps_nan)
        self.lock = self._lt.lock
        self._handle = self._set_to = 0  # and the stream that it works on
        self._workspaces: dict[int, Any] = {}  # by stream
        self._cublas: Any = None
        self.dropped: list[Callable[[], Any]] = []  # what destroys plans of libraries that nobody has any more
        self._handle_bytes = 0

    @property
    def handle_bytes(self) -> int:
        """About what the libraries themselves have taken."""
        return self._handle_bytes + self.solver.handle_bytes + (self.dnn.handle_bytes if self.dnn is not None else 0)

    @property
    def nbytes(self) -> int:
        """Bytes of workspaces, and of what the solver keeps."""
        return sum(memory.nbytes for memory in (*list(self._workspaces.values()), *self.solver.kept()))

    def handle(self, stream: int) -> int:
        """The library's handle, set to a stream, for one who holds `lock`."""
        if self._set_to != stream:
            workspace = self._workspace_of_stream(stream)
            self._cublas.set_stream(self._handle, stream)  # this takes the workspace away
            self._cublas.set_workspace(self._handle, workspace.address, workspace.nbytes)
            self._set_to = stream
        return self._handle

    def call(self, name: str, stream: int, *arguments: Any) -> None:
        """A function of the library on a stream. Raises what the bindings raise."""
        with self.lock:
            handle = self.handle(stream)
            getattr(self._cublas, name)(handle, *arguments)

    def prepare(self, streams: Sequence[int]) -> list[Any]:
        """Make ready for captures of these streams. The memory that what is captured works in, to live as long."""
        with self.lock:
            return [self._workspace_of_stream(stream) for stream in streams]

    def workspaces(self, streams: Sequence[int]) -> list[Any]:
        """Those that there are for these streams."""
        return [found for stream in streams if (found := self._workspaces.get(stream)) is not None]

    def trim(self) -> None:
        """Give back the workspaces of streams that nobody captures. Waits for their work; graphs keep theirs."""
        self.destroy_dropped()
        with self.lock:
            self._set_to = 0
            for stream in list(self._workspaces):
                if not self._driver.is_capturing(stream):
                    self._driver.synchronize_stream(stream)
                    del self._workspaces[stream]

    def destroy_dropped(self) -> None:
        """What is dropped may not be destroyed then and there: somebody may be capturing a stream."""
        while self.dropped:
            try:
                destroy = self.dropped.pop()
            except IndexError:  # another thread was faster
                return
            destroy()

    def _workspace_of_stream(self, stream: int) -> Any:
        if not self._handle:
            self._create_handle()
        if stream not in self._workspaces:
            self._workspaces[stream] = self.allocate(self._workspace)
        return self._workspaces[stream]

    def _create_handle(self) -> None:
        self._cublas = import_module("nvmath.bindings.cublas")
        self._handle, self._handle_bytes = bytes_taken_by(self._driver.memory_info, self._cublas.create)
        self._cublas.set_math_mode(self._handle, NO_REDUCED_PRECISION)

    def run_batch(self, call: GemmCall, table: int, count: int, stream: int) -> None:
        """Enqueue `count` products of one form. `table` in device memory holds the addresses of B, of A, and of C."""
        kinds, compute, scale = call.types
        one, zero = (scale * 2)(1, 0), (scale * 2)(0, 0)
        self.call(
            "gemm_batched_ex", stream, *call.operations, *call.shape, ctypes.addressof(one),
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
        return self._trials

    def _relu_keeps_nan(self, call: GemmCall, enqueue: Enqueue) -> bool:
        stream = self._trial_stream()
        (workspace,) = self.prepare([stream])
        return gemm_relu_keeps_nan(self._driver, self.allocate, stream, call, lambda at: enqueue(at, workspace, stream))

    def way(self, call: GemmCall, predicted: float, count: int = 1) -> ChosenProductWay:
        """How a product is done: as usual, unless that takes three times the predicted microseconds. It is measured
        once, on arrays of its own, and the same for all functions and plans, whose bits are then the same. count: how
        many of one form are done together, as `run_batch` does."""
        form = replace(call, offsets=tuple(gemm_alignment_of_address(offset) % ALIGNED for offset in call.offsets))
        with self.lock:  # which trials of relus take too: they share a stream
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
        if way.one_by_one:
            for one in call.one_by_one():
                self.run(one, addresses, stream)
            return True
        places = tuple(address + offset for address, offset in zip(addresses, call.offsets, strict=True))
        if call.epilogue or way.choice is not None:
            (workspace,) = self.prepare([stream])
            done = self._lt.run(call, places, workspace, stream, way.choice or 0)
            if done is not None:
                return done
        kinds, compute, scale = call.types
        one, zero = (scale * 2)(1, 0), (scale * 2)(0, 0)
        b, a, c = places
        self.call(
            "gemm_strided_batched_ex", stream, *call.operations, *call.shape, ctypes.addressof(one),
            b, kinds[0], call.leading[0], call.strides[0],
            a, kinds[1], call.leading[1], call.strides[1],
            ctypes.addressof(zero), c, kinds[2], call.leading[2], call.strides[2],
            call.batch, compute, -1,
        )  # fmt: skip
        return True
