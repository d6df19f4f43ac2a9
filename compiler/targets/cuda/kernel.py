"""CUDA kernels from loop nests: Python text for numba.cuda, launch shapes, and the runtime's Kernel."""

from __future__ import annotations

from collections.abc import Callable

from ....runtime.program.program import Kernel
from ...kernel.loop_nest import LoopNest, user_functions_of_loop_nest
from .elementwise import print_cuda_elementwise_kernel
from .launch_shape import CudaShape, choose_cuda_launch_shape, cuda_grid_and_block, cuda_threads_of_resident_row
from .reduce import print_cuda_column_reduction, print_cuda_row_reduction
from .stencil import print_cuda_stencil_kernel, print_cuda_stencil_reduction
from .transpose import print_cuda_transpose_kernel

__all__ = ["cuda_grid_and_block", "cuda_kernel_of_nest", "cuda_threads_of_resident_row", "print_cuda_kernel"]

_PRINTERS: dict[str, Callable[[LoopNest, CudaShape], str]] = {
    "elementwise": print_cuda_elementwise_kernel,
    "window": print_cuda_stencil_kernel,
    "swept window": print_cuda_stencil_reduction,
    "row": print_cuda_row_reduction,
    "column": print_cuda_column_reduction,
    "tile": print_cuda_transpose_kernel,
}


def print_cuda_kernel(nest: LoopNest) -> str:
    """The nest as a Python function over the vocabulary of `runtime/devices/cuda/compile/vocabulary.py`.

    Its parameters are the nest's: addresses, axis lengths and strides (int64), scalars. THREADS is the largest
    block, or a pair of that and the blocks that a multiprocessor should hold at once.
    """
    shape = choose_cuda_launch_shape(nest)
    bounds = shape.threads if shape.blocks == 1 else (shape.threads, shape.blocks)
    return f"THREADS = {bounds}\n" + _PRINTERS[shape.strategy](nest, shape)


def cuda_kernel_of_nest(nest: LoopNest) -> Kernel:
    """The nest as the runtime's kernel for target `cuda`."""
    cluster = choose_cuda_launch_shape(nest).cluster
    options = (("fastmath", nest.fastmath), *((("cluster", cluster),) if cluster > 1 else ()))
    return Kernel(
        nest.name, "cuda", print_cuda_kernel(nest), nest.signature, options, user_functions_of_loop_nest(nest), nest
    )
