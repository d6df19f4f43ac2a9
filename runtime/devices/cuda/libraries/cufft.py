"""Fourier transforms on the GPU. A host task of `np.fft` in, the step that cuFFT does it with out, or None.

cuFFT by nvmath-python's bindings: contiguous arrays, transforms of the last one to three axes at their own lengths.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any

from ....core.frozen import frozen
from ....program.program import Region, Task
from ..driver.driver import SUCCESS, CudaDriver
from .handles import CublasHandles

FORWARD, INVERSE = -1, 1
MOST_AXES = 3
# (dtype read, dtype written): cufftType, the function that runs it, the function that scales its result
_KINDS = {
    ("complex64", "complex64"): (0x29, "exec_c2c", "sscal"),
    ("complex128", "complex128"): (0x69, "exec_z2z", "dscal"),
    ("float32", "complex64"): (0x2A, "exec_r2c", "sscal"),
    ("float64", "complex128"): (0x6A, "exec_d2z", "dscal"),
    ("complex64", "float32"): (0x2C, "exec_c2r", "sscal"),
    ("complex128", "float64"): (0x6C, "exec_z2d", "dscal"),
}
_SCALARS = {"sscal": ctypes.c_float, "dscal": ctypes.c_double}
# NumPy's name -> (direction, whether one side is real)
_NAMES = {
    **{f"{p}fft{s}": (FORWARD, p == "r") for p in ("", "r") for s in ("", "2", "n")},
    **{f"i{p}fft{s}": (INVERSE, p == "r") for p in ("", "r") for s in ("", "2", "n")},
}


@frozen
class FftTransform:
    """lengths: of the transformed axes, of the real side where there is one. scale: of the result."""

    kind: tuple[str, str]
    direction: int
    lengths: tuple[int, ...]
    batch: int
    scale: float


def cufft_transform_of_call(
    name: str, options: Mapping[str, Any], source: Region, target: Region
) -> FftTransform | None:
    """The transform that a call of `np.fft.NAME` is. None where cuFFT cannot do it as it is."""
    kind = (source.dtype, target.dtype)
    if name not in _NAMES or kind not in _KINDS or 0 in (*source.shape, *target.shape):
        return None
    direction, real = _NAMES[name]
    rank = len(source.shape)
    if real != (kind[0] != kind[1]):
        return None
    if "axis" in options:
        axes: tuple[int, ...] = (options["axis"] % rank,)
    elif "axes" not in options:
        return None
    else:
        axes = tuple(a % rank for a in options["axes"])
    if axes != tuple(range(rank - len(axes), rank)) or not 1 <= len(axes) <= MOST_AXES:
        return None
    whole, half = source.shape, target.shape
    if real and direction == INVERSE:
        whole, half = half, whole
    lengths = tuple(whole[a] for a in axes)
    seen = (*lengths[:-1], lengths[-1] // 2 + 1) if real else lengths
    if tuple(half[a] for a in axes) != seen:  # padded or cut first
        return None
    points = math.prod(lengths)
    norm = options.get("norm") or "backward"
    scaled = {"backward": direction == INVERSE, "forward": direction == FORWARD}.get(norm, False)
    scale = points**-0.5 if norm == "ortho" else 1 / points if scaled else 1.0
    return FftTransform(kind, direction, lengths, math.prod(source.shape[: rank - len(axes)]), scale)


class CufftPlan:
    """A transform on a stream. held: memory of so many bytes for what it overwrites, if there are any. The library's
    workspace is ours too, so that it is in the account. What is left when it dies `CublasHandles.trim` destroys."""

    def __init__(self, blas: CublasHandles, transform: FftTransform, stream: int, nbytes: int) -> None:
        cufft = import_module("nvmath.bindings.cufft")
        lengths, kind = list(transform.lengths), _KINDS[transform.kind][0]
        blas.destroy_dropped()
        self.handle = cufft.create()
        self._drop = partial(blas.dropped.append, partial(cufft.destroy, self.handle))
        cufft.set_auto_allocation(self.handle, 0)
        size = cufft.make_plan_many(self.handle, len(lengths), lengths, 0, 1, 0, 0, 1, 0, kind, transform.batch)
        self._workspace = blas.allocate(max(1, size))
        cufft.set_work_area(self.handle, self._workspace.address)
        cufft.set_stream(self.handle, stream)
        self.held = blas.allocate(nbytes) if nbytes else None

    def __del__(self) -> None:
        if hasattr(self, "_drop"):
            self._drop()


class FftStep:
    """A transform, one plan of cuFFT's for each stream."""

    numbers = empty = False

    def __init__(
        self, driver: CudaDriver, blas: CublasHandles, transform: FftTransform, source: Region, target: Region
    ) -> None:
        self._driver, self._blas, self._transform = driver, blas, transform
        self._source, self._target = source, target
        self.buffers = frozenset((source.buffer, target.buffer))
        self._plans: dict[int, CufftPlan] = {}  # by stream

    def __call__(self, addresses: Sequence[int], scalars: Sequence[Any], stream: int) -> int:
        cufft = import_module("nvmath.bindings.cufft")
        transform, (_, run, scal) = self._transform, _KINDS[self._transform.kind]
        if stream not in self._plans:
            overwrites = transform.kind[0].startswith("c") and transform.kind[1].startswith("f")
            nbytes = self._region_bytes(self._source) if overwrites else 0
            self._plans[stream] = CufftPlan(self._blas, transform, stream, nbytes)
        plan, held = self._plans[stream].handle, self._plans[stream].held
        source = addresses[self._source.buffer] + self._source.offset
        target = addresses[self._target.buffer] + self._target.offset
        if held is not None:
            if code := int(self._driver.on_device(held.address, source, self._region_bytes(self._source), stream)):
                return code
            source = held.address
        both_complex = transform.kind[0] == transform.kind[1]
        getattr(cufft, run)(plan, source, target, *((transform.direction,) if both_complex else ()))
        if transform.scale != 1:
            factor = _SCALARS[scal](transform.scale)
            count = self._region_bytes(self._target) // ctypes.sizeof(factor)
            self._blas.call(scal, stream, count, ctypes.addressof(factor), target, 1)
        return SUCCESS

    @staticmethod
    def _region_bytes(region: Region) -> int:
        return math.prod(region.shape) * region.itemsize


def make_cufft_step(
    driver: CudaDriver, blas: CublasHandles, task: Task, name: str, options: Mapping[str, Any]
) -> FftStep | None:
    """The step of a task that calls `np.fft.NAME` with these options."""
    (source,), (target,) = task.reads, task.writes
    transform = cufft_transform_of_call(name, options, source, target)
    too_many = 2 * math.prod(target.shape) >= 1 << 31 or max(transform.lengths if transform else (0,)) >= 1 << 31
    return None if transform is None or too_many else FftStep(driver, blas, transform, source, target)
