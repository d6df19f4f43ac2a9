"""Which index comes last, and sums by index, on a GPU: what `x[i] = y` and `np.add.at(x, i, y)` need. The order of work
decides nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..access import Array
from ..types import SHORT_NAMES, DType
from .cuda_calls import Calls
from .cuda_sort import sort_rows

THREADS = 256
COMBINE = {"add": "add", "subtract": "sub", "multiply": "mul", "maximum": "maximum", "minimum": "minimum"}


def last_places(
    calls: Calls, reads: Sequence[Array], writes: Sequence[Array | None], options: Mapping[str, Any]
) -> bool:
    """For each number below the length of the result where it comes last among the indices, -1 where it does not."""
    (indices,), (target,) = reads, writes
    if target is None or not indices.contiguous or not target.contiguous:
        return False
    calls.fill(target, -1)
    length = math.prod(indices.shape)
    numbers = [length, target.shape[0]]
    calls.run(
        "last_places", LAST_TEXT, [indices, target], [target], [indices, target], numbers, -(-length // THREADS)
    )  # fmt: skip
    return True


# a0: int64 indices, a1: int64 places. n0: how many indices, n1: how many places.
LAST_TEXT = f"""THREADS = {THREADS}
def NAME(a0, a1, n0, n1):
    j = i64(bid_x()) * {THREADS} + i64(tid_x())
    if j < n0:
        k = load_i64_1x1(a0, j, i32(0), i32(0))
        if k >= 0 and k < n1:
            gmax_i64(a1, k, j)
"""


def combine_at(
    calls: Calls, reads: Sequence[Array], writes: Sequence[Array | None], options: Mapping[str, Any]
) -> bool:
    """`a` after `ufunc.at(a, indices, values)`, all flat and of one dtype, one value after another as NumPy does: the
    indices are sorted, and one thread does all that go to one place."""
    base, indices, values = reads
    (target,) = writes
    op = COMBINE.get(options["ufunc"])
    every = (base, indices, values, target)
    if (
        target is None
        or op is None
        or base.dtype.kind in "cb"
        or not all(a is not None and a.contiguous for a in every)
    ):
        return False
    length = math.prod(indices.shape)
    if length >= 2**31:
        return False
    order = calls.temp(indices.shape, "i8")
    keys = calls.temp(indices.shape, "i8")
    sort_rows(calls, indices, keys, order)
    calls.copy(base, target)
    reads = [keys, order, values, target]
    numbers = [length, base.shape[0]]
    text = combine_text(base.dtype, op)
    calls.run("combine_at", text, reads, [target], reads, numbers, -(-length // THREADS), THREADS)
    return True


def combine_text(dtype: DType, op: str) -> str:
    """a0: sorted indices, a1: where they come from, a2: values, a3: what they are combined with. n0: how many indices,
    n1: how many places."""
    t = SHORT_NAMES[dtype]
    half = t in ("f16", "bf16")
    wide = (lambda x: f"f32_from_{t}({x})") if half else (lambda x: x)
    narrow = (lambda x: f"{t}_from_f32({x})") if half else (lambda x: x)
    lines = [
        f"j = i64(bid_x()) * {THREADS} + i64(tid_x())",
        "if j < n0:",
        "    k = load_i64_1x1(a0, j, i32(0), i32(0))",
        "    near = load_i64_1x1(a0, j - 1, i32(0), i32(0)) if j > 0 else i64(-1)",
        "    if k >= 0 and k < n1 and near != k:",
        f"        r = load_{t}_1x1(a3, k, i32(0), i32(0))",
        "        again = k",
        "        while again == k:",
        "            p = load_i64_1x1(a1, j, i32(0), i32(0))",
        f"            v = load_{t}_1x1(a2, p, i32(0), i32(0))",
        f"            w = {op}({wide('r')}, {wide('v')})",
        f"            r = {narrow('w')}",
        "            j += 1",
        "            again = load_i64_1x1(a0, j, i32(0), i32(0)) if j < n0 else i64(-1)",
        f"        store_{t}_1x1(a3, k, i32(0), i32(0), r)",
    ]
    return "\n".join([f"THREADS = {THREADS}", "def NAME(a0, a1, a2, a3, n0, n1):", *("    " + x for x in lines), ""])
