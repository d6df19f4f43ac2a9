"""The launches of one host call that a GPU does in kernels of its own. Kernel text and arrays in, tasks out."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .....runtime.core.frozen import dataclass
from .....runtime.program.device import GpuProperties
from .....runtime.program.program import Argument, Buffer, Int, Kernel, Region, Task
from ....core.cost import work_cost_model_of_gpu
from ....kernel.body_builder import KernelBody
from ....kernel.loop_nest import POINT, LoopNest, Operand
from ....layout.operands import StridedBufferArray, are_operand_elements_aligned, contiguous_strides
from ..kernel import cuda_kernel_of_nest
from ..launch_shape import cuda_grid_and_block

THREADS = 256


@dataclass(slots=True)
class GpuAlgorithmBuilder:
    """The tasks of one call under construction, and the buffers that they need. gpu: what is to run them."""

    gpu: GpuProperties
    buffers: list[Buffer]
    line: str
    tasks: list[Task]

    def temporary(self, shape: Sequence[int], dtype: Any) -> StridedBufferArray:
        """A contiguous array of its own, of no particular contents."""
        kind = np.dtype(dtype)
        self.buffers.append(Buffer(math.prod(shape) * kind.itemsize, "temp"))
        strides = contiguous_strides(shape, kind.itemsize)
        region = Region(len(self.buffers) - 1, 0, tuple(shape), strides, kind.itemsize, kind.name)
        return StridedBufferArray(region, True)

    def add_launch(
        self, name: str, text: str, reads: Sequence[StridedBufferArray], writes: Sequence[StridedBufferArray],
        pointers: Sequence[StridedBufferArray], numbers: Sequence[int], blocks: int, threads: int = THREADS,
        passes: float = 1.0,
    ) -> None:  # fmt: skip
        """Adds a launch of kernel text, in which NAME stands for its name. blocks: along x. reads, writes: what it
        touches, in both what blocks pass each other by atomic steps; passes: how often it moves them."""
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        own = f"k_{digest}"
        kernel = Kernel(own, "cuda", text.replace("NAME", own), ("ptr",) * len(pointers) + ("i64",) * len(numbers))
        arguments: tuple[Argument, ...] = (*(p.pointer for p in pointers), *map(Int, numbers))
        regions = tuple(a.region for a in reads), tuple(a.region for a in writes)
        moved = passes * sum(math.prod(r.shape) * r.itemsize for rs in regions for r in rs)
        self.tasks.append(
            Task(
                name,
                kernel,
                arguments,
                *regions,
                frozenset(r.buffer for r in regions[0] if r in regions[1]),
                grid=(blocks, 1, 1),
                block=(threads, 1, 1),
                cost=round(work_cost_model_of_gpu(self.gpu).time(moved, 0), 3),
                line=self.line,
            )
        )

    def contiguous(self, source: StridedBufferArray) -> StridedBufferArray:
        """The array, or a copy of it that is contiguous."""
        if source.contiguous:
            return source
        own = self.temporary(source.shape, source.dtype)
        self.add_copy(source, own)
        return own

    def result(self, target: StridedBufferArray) -> StridedBufferArray:
        """Where to write what `target` is to hold: itself, or contiguous memory to `deliver_result` from."""
        return target if target.contiguous else self.temporary(target.shape, target.dtype)

    def deliver_result(self, result: StridedBufferArray, target: StridedBufferArray) -> None:
        """Copy what was written by `result` to where it belongs."""
        if result is not target:
            self.add_copy(result, target)

    def add_copy(self, source: StridedBufferArray, target: StridedBufferArray) -> None:
        """target[...] = source, in the dtype of the target, of one shape."""
        name = "copy" if source.dtype == target.dtype else "cast"
        self._add_elementwise_launch(name, source, target, lambda body: body.load(0, source.dtype).cast(target.dtype))

    def add_fill(self, target: StridedBufferArray, value: Any) -> None:
        """target[...] = value"""
        self._add_elementwise_launch("fill", None, target, lambda body: body.const(value, target.dtype))

    def _add_elementwise_launch(
        self,
        name: str,
        source: StridedBufferArray | None,
        target: StridedBufferArray,
        make: Callable[[KernelBody], Any],
    ) -> None:
        operands, arrays = [], [a for a in (source, target) if a is not None]
        axes = _join_axes_of_copied_regions([a.region for a in arrays])
        sizes = [n for n, _ in axes] or [1]
        numbers = list(sizes)
        wide = math.prod(sizes) >= 2**31
        for k, array in enumerate(arrays):
            layout, itemsize = "", array.region.itemsize
            for n, strides in axes or [(1, (itemsize,) * len(arrays))]:
                step = strides[k] // itemsize
                layout += {0: "0", 1: "1"}.get(step, "s")
                if layout[-1] == "s":
                    numbers.append(step)
                    wide = wide or abs(step) * n >= 2**31
            aligned = array.aligned and are_operand_elements_aligned(itemsize, ((n, strides[k]) for n, strides in axes))
            operands.append(Operand(array.dtype, "out" if array is target else "in", layout, aligned))
        body = KernelBody()
        body.begin_phase(POINT)
        body.store(len(operands) - 1, make(body))
        body.end_phase()
        form = LoopNest("", len(sizes), 0, tuple(operands), (), body.finish(), 64 if wide else 32)
        digest = hashlib.sha256(str(form).encode()).hexdigest()[:16]
        form = LoopNest(f"k_{digest}", *(getattr(form, f) for f in _REST))
        grid, block = cuda_grid_and_block(form, sizes, self.gpu)
        reads = (source.region,) if source is not None else ()
        arguments: tuple[Argument, ...] = (*(a.pointer for a in arrays), *map(Int, numbers))
        cost = round(
            work_cost_model_of_gpu(self.gpu).time(math.prod(sizes) * target.dtype.itemsize * len(arrays), 0), 3
        )
        self.tasks.append(
            Task(
                name,
                cuda_kernel_of_nest(form),
                arguments,
                reads,
                (target.region,),
                grid=grid,
                block=block,
                cost=cost,
                line=self.line,
            )
        )


_REST = ("parallel", "reduced", "operands", "scalars", "phases", "index_bits")


def _join_axes_of_copied_regions(regions: Sequence[Region]) -> list[tuple[int, tuple[int, ...]]]:
    """(length, strides) of the axes of regions of one shape; axes that all walk as one are one."""
    found: list[tuple[int, tuple[int, ...]]] = []
    for axis, n in enumerate(regions[0].shape):
        strides = tuple(r.strides[axis] for r in regions)
        if n == 1:
            continue
        if found and all(p == s * n for p, s in zip(found[-1][1], strides, strict=True)):
            found[-1] = (found[-1][0] * n, strides)
        else:
            found.append((n, strides))
    return found
