"""Users' own GPU kernels as the runtime's: pointers to what they read and write, then numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .....runtime.program.custom_calls import CustomKernel
from .....runtime.program.program import Kernel
from .....runtime.program.user_function import UserFunction
from ....core.types import SHORT_NAMES, ArrayType


def custom_cuda_kernel_of_arrays(own: CustomKernel, arrays: Sequence[ArrayType]) -> Kernel:
    """The kernel of C-contiguous arrays of these types. Of a numba.cuda function it is text that calls it, and has the
    arrays' lengths as further parameters."""
    numbers = tuple(dtype for _, dtype in own.numbers)
    signature = ("ptr",) * len(arrays) + numbers
    if isinstance(own.code, str):
        return Kernel(own.name, "cuda", own.code, signature, (("own", "c++"),))
    function = UserFunction(own.code, tuple(f"{t.dtype.name}[{t.ndim}]" for t in arrays) + numbers, ())
    pointers = [f"a{i}" for i in range(len(arrays))]
    values = [f"x{i}" for i in range(len(numbers))]
    lengths = [[f"n{i}_{axis}" for axis in range(t.ndim)] for i, t in enumerate(arrays)]
    every = [n for own_lengths in lengths for n in own_lengths]
    views = [
        f"array_{SHORT_NAMES[t.dtype]}_{t.ndim}({', '.join([p, *n])})"
        for p, t, n in zip(pointers, arrays, lengths, strict=True)
    ]
    name = f"k_{function.symbol}"
    text = (
        f"THREADS = {math.prod(own.block)}\n"
        f"def {name}({', '.join(pointers + values + every)}):\n"
        f"    {function.symbol}({', '.join(views + values)})\n"
    )
    return Kernel(name, "cuda", text, signature + ("i64",) * len(every), (("own", "numba"),), (function,))
