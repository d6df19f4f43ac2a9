"""CUDA kernels from loop nests: Python text for numba.cuda, launch shapes, and the runtime's Kernel."""

from __future__ import annotations

from collections.abc import Callable

from ....runtime.program.program import Kernel
from ...kernel.loop_nest import LoopNest, user_functions_of
from .elementwise import print_elementwise
from .launch_shape import Shape, launch, row_width, shape_of
from .reduce import print_column, print_row
from .stencil import print_window
from .transpose import print_tile

__all__ = ["cuda_kernel", "launch", "print_cuda", "row_width"]

_PRINTERS: dict[str, Callable[[LoopNest, Shape], str]] = {
    "elementwise": print_elementwise,
    "window": print_window,
    "row": print_row,
    "column": print_column,
    "tile": print_tile,
}


def print_cuda(nest: LoopNest) -> str:
    """The nest as a Python function over the vocabulary of `runtime/devices/cuda/compile/vocabulary.py`.

    Its parameters are the nest's: addresses, axis lengths and strides (int64), scalars. THREADS is the largest
    block, or a pair of that and the blocks that a multiprocessor should hold at once.
    """
    shape = shape_of(nest)
    bounds = shape.threads if shape.blocks == 1 else (shape.threads, shape.blocks)
    return f"THREADS = {bounds}\n" + _PRINTERS[shape.strategy](nest, shape)


def cuda_kernel(nest: LoopNest) -> Kernel:
    """The nest as the runtime's kernel for target `cuda`."""
    options = (("fastmath", nest.fastmath),)
    return Kernel(nest.name, "cuda", print_cuda(nest), nest.signature, options, user_functions_of(nest), nest)
