"""Which host calls a target does in kernels of its own, which fuse with nothing. "" for yes, else why not."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ...runtime.core.frozen import frozen
from ...runtime.core.settings import settings
from ..core.cost import combines_atomically, warps_with_private_copies
from ..core.types import ArrayType, DType

AXIS = 2**31  # an axis of so many elements has no kernel
FEW = 5  # k-th values at a time
COMBINED = ("add", "subtract", "multiply", "maximum", "minimum")


@frozen
class DecomposableCall:
    """One call, typed. strides: of its first array in bytes, as far as they are known before fusion."""

    options: Mapping[str, Any]
    reads: Sequence[ArrayType]
    result: ArrayType
    strides: tuple[int, ...]

    @property
    def axis(self) -> int:
        """The axis along which it works, the last by default, counted from the first."""
        rank = len(self.reads[0].shape)
        return int(self.options.get("axis", -1) or 0) % max(1, rank) if rank else 0


def why_no_sort_kernel(call: DecomposableCall) -> str:
    """np.sort, np.argsort, np.partition, np.argpartition and kg.topk of real numbers"""
    source = call.reads[0]
    if source.dtype.kind == "c" or not source.shape:
        return "complex numbers, or no axis"
    return "an axis of 2**31 elements" if source.shape[call.axis] >= AXIS else ""


def why_no_kth_kernel(call: DecomposableCall) -> str:
    """few k-th values of rows of real numbers"""
    few = len(call.options["kth"]) <= FEW
    return why_no_sort_kernel(call) or ("" if few else f"more than {FEW} places")


def why_no_scan_kernel(call: DecomposableCall, ufunc: str) -> str:
    """np.cumsum and np.cumprod of real numbers, and sums of complex ones"""
    source, target = call.reads[0].dtype, call.result.dtype
    if "c" in source.kind + target.kind:
        return "" if ufunc == "add" and source == target else "products or conversions of complex numbers"
    return "booleans as results" if target.kind == "b" else ""


def why_no_accumulate_kernel(call: DecomposableCall) -> str:
    """ufunc.accumulate of add, multiply, maximum and minimum"""
    ufunc = call.options["ufunc"]
    return (
        why_no_scan_kernel(call, ufunc)
        if ufunc in ("add", "multiply", "maximum", "minimum")
        else f"no kernel for np.{ufunc}"
    )


def why_no_running_kernel(call: DecomposableCall) -> str:
    """running totals of real numbers along rows that lie close together"""
    shape, axis = call.reads[0].shape, call.axis
    if not _has_sum_kernel_for_dtypes(call.reads[0].dtype, call.result.dtype):
        return f"totals of {call.reads[0].dtype} in {call.result.dtype}"
    others = [n for i, n in enumerate(shape) if n != 1 and i != axis]
    close = not others or abs(call.strides[axis]) <= call.reads[0].dtype.itemsize
    return "" if len(others) <= 1 and close else "rows that do not lie close together, or of more than two axes"


def why_no_shifted_rows_kernel(call: DecomposableCall) -> str:
    """products with shifted rows, which are made for that kernel alone"""
    return ""


def _has_sum_kernel_for_dtypes(source: DType, target: DType) -> bool:
    floats = source.kind == target.kind == "f" and min(source.itemsize, target.itemsize) >= 4
    return floats or (source.kind in "biu" and target.kind in "iu")


def why_no_bincount_kernel(call: DecomposableCall) -> str:
    """np.bincount without weights; the kernel tells nobody of a number that has no bin"""
    if settings.verify:
        return "bad values are to be reported"
    plain = len(call.reads) == 1 and call.reads[0].dtype.kind in "iu" and len(call.reads[0].shape) == 1
    return "" if plain else "weights, or numbers that are not integers"


def why_no_last_places_kernel(call: DecomposableCall) -> str:
    """where each number comes last"""
    return ""


def why_no_combine_at_kernel(call: DecomposableCall) -> str:
    """ufunc.at of flat arrays of real numbers, where no order of the values is needed"""
    base, indices, _ = call.reads
    refusal = _why_no_combining_kernel(call, math.prod(indices.shape), base)
    if refusal or combines_atomically(base.dtype, call.options["ufunc"]):
        return refusal
    itemsize = max(4, base.dtype.itemsize)  # of what is added up
    few = warps_with_private_copies(indices.shape[0], base.shape[0], itemsize)
    return "" if few else "values whose order counts"


def why_no_combine_in_order_kernel(call: DecomposableCall) -> str:
    """values combined by places whose order is known"""
    return _why_no_combining_kernel(call, math.prod(call.reads[3].shape), call.reads[0])


def why_no_places_in_order_kernel(call: DecomposableCall) -> str:
    """the order of places, which is made for kernels alone"""
    return ""


def _why_no_combining_kernel(call: DecomposableCall, length: int, base: ArrayType) -> str:
    if call.options["ufunc"] not in COMBINED or base.dtype.kind in "cb":
        return f"np.{call.options['ufunc']} of {base.dtype}"
    return "2**31 indices, or 2**32 places" if length >= 2**31 or base.shape[0] >= 2**32 - 1 else ""
