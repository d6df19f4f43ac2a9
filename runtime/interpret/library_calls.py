"""The table of library calls on the CPU. A name in, the Python function that does it on NumPy views out.

A function takes the task's read views, its write views (both in the order of the task's regions) and its attributes.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..program.program import Region
from .numpy_calls import HOST, WRITES_INTO

View = np.ndarray[Any, Any]
HostFunction = Callable[[Sequence[View], Sequence[View], Mapping[str, Any]], None]


def _numpy_library_gelu(x: View) -> View:
    """x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) (Hendrycks and Gimpel, 2016), rounded once."""
    wide = x.astype(np.float64)
    return np.asarray(0.5 * wide * (1 + np.tanh(math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)))).astype(x.dtype)


ACTIVATIONS: dict[str, Callable[[View], View]] = {
    "relu": lambda x: np.maximum(x, x.dtype.type(0)),  # NaN stays NaN
    "gelu": _numpy_library_gelu,
}


def numpy_matmul_with_epilogue(a: View, b: View, dtype: Any, epilogue: Sequence[str] = (), *bias: View) -> View:
    """The product a @ b with its epilogue: `bias`, one row that is added to each of its rows, and the activations, in
    their order. With 16-bit floats all that is float32, rounded to the dtype once: that of the operands or float32."""
    if a.dtype.itemsize == 2 and (epilogue or a.dtype != dtype):
        a, b, *bias = (array.astype(np.float32) for array in (a, b, *bias))  # type: ignore[assignment]
    result: View = np.matmul(a, b)
    for part in epilogue:
        result = result + bias[0] if part == "bias" else ACTIVATIONS[part](result)
    return result.astype(dtype, copy=False)


def _run_numpy_matmul_call(reads: Sequence[View], writes: Sequence[View], attrs: Mapping[str, Any]) -> None:
    """One product, which may have an `epilogue` (its bias is the third array), or, with the attribute `batch`, as many:
    (a1, b1, a2, b2, ...) -> (c1, c2, ...)."""
    epilogue = attrs.get("epilogue", ())
    for i, result in enumerate(writes):
        a, b, *bias = reads if epilogue else reads[2 * i : 2 * i + 2]
        if epilogue or a.dtype != result.dtype:
            result[...] = numpy_matmul_with_epilogue(a, b, result.dtype, epilogue, *bias)
        else:
            np.matmul(a, b, out=result)


def _run_numpy_copy_call(reads: Sequence[View], writes: Sequence[View], attrs: Mapping[str, Any]) -> None:
    writes[0][...] = reads[0]


def _run_numpy_host_call(reads: Sequence[View], writes: Sequence[View], attrs: Mapping[str, Any]) -> None:
    """A row of HOST; `parts` says which of its results are wanted. Some can be told where to write them."""
    if attrs["function"] in WRITES_INTO:
        HOST[attrs["function"]](*reads, **dict(attrs["options"]), into=dict(zip(attrs["parts"], writes, strict=True)))
        return
    results = HOST[attrs["function"]](*reads, **dict(attrs["options"]))
    every = results if isinstance(results, tuple) else (results,)
    for part, out in zip(attrs["parts"], writes, strict=True):
        out[...] = every[part]


def _raise_reported_index_error(reads: Sequence[View], writes: Sequence[View], attrs: Mapping[str, Any]) -> None:
    """Raises IndexError for the indices that a kernel reported (see `compiler/lowering/gathers.py`); the results
    stay."""
    for index, (axis, length, line) in zip(reads[0].tolist(), attrs["rows"], strict=True):
        if index != 0:  # `gathers.NONE`
            where = f"{line}: " if line else ""
            raise IndexError(f"{where}index {index} is out of bounds for axis {axis} with size {length}")


LIBRARY: dict[str, HostFunction] = {
    "matmul": _run_numpy_matmul_call,
    "copy": _run_numpy_copy_call,
    "host": _run_numpy_host_call,
    "check": _raise_reported_index_error,
}


def numpy_region_viewer(region: Region) -> Callable[[int], View]:
    """A function from a buffer's address to the NumPy view of the region. It owns no memory."""
    low, high = region.span
    kind: Any = ctypes.c_char * max(1, high - low)
    dtype, shape, strides, offset = np.dtype(region.dtype), region.shape, region.strides, region.offset - low
    if 0 in shape:
        return lambda address: np.empty(shape, dtype)
    return lambda address: np.ndarray(shape, dtype, kind.from_address(address + low), offset, strides)
