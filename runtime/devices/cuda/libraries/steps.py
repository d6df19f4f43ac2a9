"""Library calls on the GPU. Matrix products by cuBLAS, Fourier transforms by cuFFT, decompositions by cuSOLVER (all by
nvmath-python's bindings), convolutions and attention by cuDNN, copies by the driver.

What these tables do not hold goes to the host (`modules.launch.NumpyHostStep`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ....core.frozen import replace
from ....program.program import Library, Pointer, Region, Task, packed_member_tasks
from ..driver.driver import SUCCESS, CudaDriver
from ..modules.ptx_kernels import WORDS, make_ptx_pointer_table_task, make_ptx_relu_task
from .cudnn import make_cudnn_step
from .cufft import make_cufft_step
from .cusolver_steps import make_cusolver_step
from .gemm import GemmCall, cublas_calls_of_matmul_task
from .handles import CublasHandles
from .product_ways import USUAL

Load = Callable[[Task], Any]


class MatmulStep:
    """A matmul task on the GPU."""

    numbers = False

    def __init__(self, blas: CublasHandles, task: Task, calls: Sequence[GemmCall], loaded: Load) -> None:
        (a, b, *bias), (c,) = task.reads, task.writes
        chosen = [blas.way(call, task.cost / len(calls)) for call in calls]
        self._blas, self._calls, self._ways = blas, tuple(calls), tuple(each.way for each in chosen)
        self.notes = tuple(dict.fromkeys(each.note for each in chosen if each.note))
        self._relus: list[Any] = [
            loaded(_relu_step_after_gemm(c.buffer, call)) if "relu" in call.epilogue else None for call in calls
        ]
        self._places = (b.buffer, a.buffer, c.buffer, *(r.buffer for r in bias))
        self.buffers = frozenset(self._places)
        self.empty = not self._calls

    def __call__(self, addresses: Sequence[int], scalars: Sequence[Any], stream: int) -> int:
        found = tuple(addresses[b] for b in self._places)
        for call, way, relu in zip(self._calls, self._ways, self._relus, strict=True):
            if not self._blas.run(call, found, stream, way) and (code := int(relu(addresses, (), stream))):
                return code
        return SUCCESS


def _relu_step_after_gemm(buffer: int, call: GemmCall) -> Task:
    """What is left to do of an epilogue."""
    n, m, _ = call.shape
    strides = (call.strides[2] * call.itemsizes[2], call.leading[2] * call.itemsizes[2])
    return make_ptx_relu_task(call.result, Pointer(buffer, call.offsets[2]), (call.batch, m, n), strides)


class BatchedMatmulStep:
    """Products of one form as one call. The addresses of their operands are written into a table before."""

    empty = numbers = False

    def __init__(
        self,
        driver: CudaDriver,
        blas: CublasHandles,
        calls: Sequence[tuple[GemmCall, Task]],
        loaded: Load,
        note: str = "",
    ) -> None:
        """calls: each product with its task."""
        self.notes = (note,) if note else ()
        self._driver, self._blas, self._call, self._count = driver, blas, calls[0][0], len(calls)
        self._loaded, self._tables = loaded, dict[int, Any]()  # by stream, which orders those who use it
        self._writer: Any = None
        operands = [(call.offsets, (t.reads[1], t.reads[0], t.writes[0])) for call, t in calls]
        self.pointers = [Pointer(regions[k].buffer, offsets[k]) for k in range(3) for offsets, regions in operands]
        self.buffers = frozenset(p.buffer for p in self.pointers)
        self.last = 1 + max(self.buffers)

    def __call__(self, addresses: Sequence[int], scalars: Sequence[Any], stream: int) -> int:
        if stream not in self._tables:
            self._tables[stream] = self._blas.allocate(8 * len(self.pointers))
        if self._writer is None:
            self._writer = self._loaded(make_ptx_pointer_table_task(Pointer(self.last), self.pointers))
        table = self._tables[stream].address
        if code := int(self._writer([*addresses[: self.last], table], (), stream)):
            return code
        self.enqueue(table, stream)
        return SUCCESS

    def enqueue(self, table: int, stream: int) -> None:
        """The products alone, of what is in the table."""
        self._blas.run_batch(self._call, table, self._count, stream)


class MatmulSequenceStep:
    """Products that no one call does, one after another."""

    numbers = False

    def __init__(self, steps: Sequence[MatmulStep]) -> None:
        self._steps = tuple(steps)
        self.notes = tuple(dict.fromkeys(note for step in steps for note in step.notes))
        self.buffers = frozenset[int]().union(*(step.buffers for step in steps))
        self.empty = all(step.empty for step in steps)

    def __call__(self, addresses: Sequence[int], scalars: Sequence[Any], stream: int) -> int:
        for step in self._steps:
            step(addresses, scalars, stream)
        return SUCCESS


class CopyStep:
    """A copy between contiguous regions."""

    numbers = False

    def __init__(self, driver: CudaDriver, task: Task) -> None:
        (source,), (target,) = task.reads, task.writes
        self._copy = driver.on_device
        self._source, self._target = (source.buffer, source.offset), (target.buffer, target.offset)
        self._nbytes = math.prod(target.shape) * target.itemsize
        self.buffers = frozenset((source.buffer, target.buffer))
        self.empty = not self._nbytes
        self.row = (Pointer(*self._target), Pointer(*self._source), self._nbytes)  # see `make_ptx_copy_task`

    def __call__(self, addresses: Sequence[int], scalars: Sequence[Any], stream: int) -> int:
        (s, from_), (t, to) = self._source, self._target
        return SUCCESS if self.empty else int(self._copy(addresses[t] + to, addresses[s] + from_, self._nbytes, stream))


class DeviceCopyStep(CopyStep):
    """A copy of all of a buffer from one GPU to another, on a stream of the first."""

    def __init__(self, device: Any, target: Any, task: Task) -> None:
        device.open_peer_memory(target)
        super().__init__(device.context.driver, task)
        driver, here, there = device.context.driver, device.context, target.context
        self._copy = lambda to, at, nbytes, stream: driver.to_peer(to, there.handle, at, here.handle, nbytes, stream)
        self.nbytes = self._nbytes
        self.in_memory_of_both = CopyStep(driver, task)  # where each reaches the other's


def _is_library_copy_contiguous(region: Region) -> bool:
    expected = region.itemsize
    for n, stride in reversed(list(zip(region.shape, region.strides, strict=True))):
        if n > 1 and stride != expected:
            return False
        expected *= n
    return True


def make_gpu_library_step(driver: CudaDriver, blas: CublasHandles, task: Task, loaded: Load) -> Any:
    """The step that does a library task on the GPU. None where the host has to. loaded: the step of a kernel task."""
    assert isinstance(task.kernel, Library)
    maker = _NATIVE.get(task.kernel.name)
    return maker(driver, blas, task, loaded) if maker else None


def _make_cublas_matmul_step(
    driver: CudaDriver, blas: CublasHandles, task: Task, loaded: Load
) -> MatmulStep | BatchedMatmulStep | MatmulSequenceStep | None:
    members = packed_member_tasks(task)
    parts = [replace(part, cost=task.cost / len(members)) for part in members]
    found = [cublas_calls_of_matmul_task(part) for part in parts]
    if any(calls is None or not all(map(blas.can, calls)) for calls in found):
        return None
    steps = [(calls or (), part) for calls, part in zip(found, parts, strict=True)]
    if len(parts) == 1:
        return MatmulStep(blas, task, steps[0][0], loaded)
    chosen = None
    if len(parts) <= WORDS // 3 and all(len(calls) == 1 and calls[0].batch == 1 for calls, _ in steps):
        chosen = blas.way(steps[0][0][0], task.cost, len(parts))
        if chosen.way == USUAL:
            return BatchedMatmulStep(driver, blas, [(calls[0], part) for calls, part in steps], loaded, chosen.note)
    sequence = MatmulSequenceStep([MatmulStep(blas, part, calls, loaded) for calls, part in steps])
    sequence.notes += (chosen.note,) if chosen is not None else ()
    return sequence


def _make_library_copy_step(driver: CudaDriver, blas: CublasHandles, task: Task, loaded: Load) -> CopyStep | None:
    (source,), (target,) = task.reads, task.writes
    same = source.dtype == target.dtype and source.shape == target.shape
    return (
        CopyStep(driver, task)
        if same and _is_library_copy_contiguous(source) and _is_library_copy_contiguous(target)
        else None
    )


def _make_library_step_of_numpy(driver: CudaDriver, blas: CublasHandles, task: Task, loaded: Load) -> Any:
    """A function of NumPy's that a library of the GPU has, all of its results wanted (or values without their vectors)
    and its arrays contiguous."""
    assert isinstance(task.kernel, Library)
    attrs = dict(task.kernel.attrs)
    module, _, name = attrs.get("function", "").partition(".")
    maker = _MODULES.get(module)
    parts = attrs.get("parts")
    if (name, parts) in _VALUES:
        name, parts = _VALUES[name, parts], (0,)
    if (
        maker is None
        or len(packed_member_tasks(task)) > 1
        or parts != tuple(range(len(task.writes)))
        or not _is_evenly_spaced_gemm_batch(task)
    ):
        return None
    return maker(driver, blas, task, name, dict(attrs["options"]))


def _is_evenly_spaced_gemm_batch(task: Task) -> bool:
    return all(_is_library_copy_contiguous(region) for region in (*task.reads, *task.writes))


# by the function and the one result that is wanted of it: that which gives no other
_VALUES: dict[tuple[str, Any], str] = {
    ("eigh", (0,)): "eigvalsh",
    ("eigh_rows", (0,)): "eigvalsh",
    ("svd", (1,)): "svdvals",
    ("svd_whole", (1,)): "svdvals",
}
_MODULES: dict[str, Any] = {"dnn": make_cudnn_step, "fft": make_cufft_step, "linalg": make_cusolver_step}
_NATIVE: dict[str, Callable[[CudaDriver, CublasHandles, Task, Load], Any]] = {
    "matmul": _make_cublas_matmul_step,
    "copy": _make_library_copy_step,
    "host": _make_library_step_of_numpy,
}
