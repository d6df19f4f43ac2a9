"""Which index comes last, and sums by index, on a GPU. What `x[i] = y` and `np.add.at(x, i, y)` need. The order of work
decides nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ....core.types import INT64, SHORT_NAMES, DType
from ....layout.operands import StridedBufferArray
from .launches import GpuAlgorithmBuilder, cuda_conversion_text
from .privatized_scatter import gpu_scatter_into_few_places, gpu_scatter_op_before_place
from .sort import gpu_sort_rows

THREADS = 256
CHUNK = 64  # values that are combined one after another: at least 8
EVERY = 16  # values to a place from which on a thread takes a chunk
COMBINE = {"add": "add", "subtract": "sub", "multiply": "mul", "maximum": "maximum", "minimum": "minimum"}


def lower_gpu_last_occurrences(
    calls: GpuAlgorithmBuilder,
    reads: Sequence[StridedBufferArray],
    target: StridedBufferArray,
    options: Mapping[str, Any],
) -> None:
    """Where each number comes last among the indices, -1 where it does not. The numbers are those below the length of
    the result."""
    indices, result = calls.contiguous(reads[0]), calls.result(target)
    calls.add_fill(result, -1)
    length, both = math.prod(indices.shape), [indices, result]
    numbers = [length, result.shape[0]]
    calls.add_launch("last_places", LAST_TEXT, both, [result], both, numbers, -(-length // THREADS))
    calls.deliver_result(result, target)


# a0: int64 indices, a1: int64 places. n0: how many indices, n1: how many places.
LAST_TEXT = f"""THREADS = {THREADS}
def NAME(a0, a1, n0, n1):
    j = i64(bid_x()) * {THREADS} + i64(tid_x())
    if j < n0:
        k = load_i64_1x1(a0, j, i32(0), i32(0))
        if k >= 0 and k < n1:
            gmax_i64(a1, k, j)
"""


def lower_gpu_ufunc_at(
    calls: GpuAlgorithmBuilder,
    reads: Sequence[StridedBufferArray],
    target: StridedBufferArray,
    options: Mapping[str, Any],
) -> None:
    """`a` after `ufunc.at(a, indices, values)`, all flat; values may be of another kind than `a`.

    Many values for few places are combined in shared memory, integers in any order. Else the indices are sorted by the
    bytes in which they differ. Up to CHUNK values to a place are then combined one after another, as NumPy does; of
    more the parts between multiples of CHUNK in the order, by a thread each, and these parts in the same way."""
    base, indices, values = reads[0], *map(calls.contiguous, reads[1:])
    op, result = COMBINE[options["ufunc"]], calls.result(target)
    calls.add_copy(base, result)
    _gpu_scatter_by_sorting(calls, indices, values, result, op)
    calls.deliver_result(result, target)


def _gpu_scatter_by_sorting(
    calls: GpuAlgorithmBuilder,
    indices: StridedBufferArray,
    values: StridedBufferArray,
    target: StridedBufferArray,
    op: str,
) -> None:
    if gpu_scatter_into_few_places(calls, indices, values, target, op) or gpu_scatter_integers_atomically(
        calls, indices, values, target, op
    ):
        return
    length, places = math.prod(indices.shape), target.shape[0]
    numbers, keys = (calls.temporary(indices.shape, "u4") for _ in range(2))
    order = calls.temporary(indices.shape, "i8")
    blocks = -(-length // THREADS)
    text = scatter_index_to_u32_text(indices.dtype)
    calls.add_launch("numbers", text, [indices], [numbers], [indices, numbers], [length, places], blocks, THREADS)
    gpu_sort_rows(calls, numbers, keys, order, passes=-(-places.bit_length() // 8))
    each = CHUNK if length >= EVERY * places else 1
    known: StridedBufferArray | None = order
    while length:
        chunks = -(-length // CHUNK) if length > CHUNK else 0
        after = calls.temporary((max(chunks, 1),), "u4"), calls.temporary((max(chunks, 1),), target.dtype)
        text = cuda_combine_sorted_text(target.dtype, values.dtype, op, each, known is not None, chunks > 0)
        reads = [keys, *([known] if known is not None else []), values, target]
        touched = [target, *(after if chunks else ())]
        pointers = [keys, known or keys, values, target, *after]
        threads = -(-length // each)
        calls.add_launch(
            "combine_at", text, reads, touched, pointers, [length, places], -(-threads // THREADS), THREADS
        )
        (keys, values), known, length, each = after, None, chunks, CHUNK


def gpu_scatter_integers_atomically(
    calls: GpuAlgorithmBuilder,
    indices: StridedBufferArray,
    values: StridedBufferArray,
    target: StridedBufferArray,
    op: str,
) -> bool:
    """Integers, which are the same in every order; False for others."""
    t = SHORT_NAMES[target.dtype]
    if target.dtype.kind not in "iu" or target.dtype.itemsize < 4 or op not in ("add", "sub", "maximum"):
        return False
    length, places = indices.shape[0], target.shape[0]
    value = cuda_conversion_text(values.dtype, target.dtype)("v")
    atomic, given = "max" if op == "maximum" else "add", f"neg({value})" if op == "sub" else value
    lines = [
        f"j = i64(bid_x()) * {THREADS} + i64(tid_x())",
        "if j < n0:",
        f"    given = load_{SHORT_NAMES[indices.dtype]}_1x1(a0, j, i32(0), i32(0))",
        f"    k = {cuda_conversion_text(indices.dtype, INT64)('given')}",
        f"    v = load_{SHORT_NAMES[values.dtype]}_1x1(a1, j, i32(0), i32(0))",
        "    if k >= 0 and k < n1:",
        f"        g{atomic}_{t}(a2, k, {given})",
    ]
    text = "\n".join([f"THREADS = {THREADS}", "def NAME(a0, a1, a2, n0, n1):", *("    " + x for x in lines), ""])
    pointers = [indices, values, target]
    calls.add_launch("combine_at", text, pointers, [target], pointers, [length, places], -(-length // THREADS), THREADS)
    return True


def scatter_index_to_u32_text(dtype: DType) -> str:
    """a0: indices, a1: u32 the same; n1 for those that are out of range. n0: how many indices, n1: how many places."""
    t = SHORT_NAMES[dtype]
    return f"""THREADS = {THREADS}
def NAME(a0, a1, n0, n1):
    j = i64(bid_x()) * {THREADS} + i64(tid_x())
    if j < n0:
        given = load_{t}_1x1(a0, j, i32(0), i32(0))
        k = {cuda_conversion_text(dtype, INT64)("given")}
        k = k if k >= 0 and k < n1 else n1
        store_u32_1x1(a1, j, i32(0), i32(0), u32_from_i64(k))
"""


def cuda_combine_sorted_text(dtype: DType, values: DType, op: str, each: int, ordered: bool, in_chunks: bool) -> str:
    """a0: sorted u32 indices, those of n1 and above count for nothing, a1: where their values are (ordered; else in
    their own order), a2: values, a3: what they are combined with, a4, a5: of each chunk the index that it goes on with
    and what it has for it (in_chunks). n0: how many indices, n1: how many places. each: indices of a thread."""
    t, given = SHORT_NAMES[dtype], SHORT_NAMES[values]
    half = t in ("f16", "bf16")
    wide = (lambda x: f"f32_from_{t}({x})") if half else (lambda x: x)
    narrow = (lambda x: f"{t}_from_f32({x})") if half else (lambda x: x)
    own = cuda_conversion_text(values, dtype)

    def combine_statement_text(op: str, into: str, value: str) -> str:
        return f"{into} = " + narrow(f"{op}({wide(into)}, {wide(value)})")

    def sorted_key_text(place: str) -> str:
        return f"i64_from_u32(load_u32_1x1(a0, {place}, i32(0), i32(0)))"

    place = "load_i64_1x1(a1, j, i32(0), i32(0))" if ordered else "j"
    value = own(f"load_{given}_1x1(a2, {place}, i32(0), i32(0))")
    if ordered:
        several = own(f"gather_{given}_8x1(a2, i64(0), i32(0), i32(0), load_i64_8x1(a1, j, i32(0), i32(1)))")
    else:
        several = own(f"load_{given}_8x1(a2, j, i32(0), i32(1))")
    part = gpu_scatter_op_before_place(op)
    lines = [
        f"at = (i64(bid_x()) * {THREADS} + i64(tid_x())) * {each}",
        "if at < n0:",
        f"    end = least(at + {each}, n0)",
        "    j = at",
        f"    before = {sorted_key_text('at - 1')} if at > 0 else n1",
        *(["    own = n1", f"    total = {own(f'load_{given}_1x1(a2, i64(0), i32(0), i32(0))')}"] if in_chunks else []),
        "    while j < end:",
        f"        k = {sorted_key_text('j')}",
        "        if k < n1 and before != k:",
        f"            stop = (udiv(j, i64({CHUNK})) + 1) * {CHUNK}",
        f"            long = {sorted_key_text(f'stop + {CHUNK - 1}')} == k if stop + {CHUNK} <= n0 else False",
        "            stop = stop if long else n0",
        f"            r = load_{t}_1x1(a3, k, i32(0), i32(0))",
        f"            p = {place}",
        "            again = k",
        "            while again == k:",
        f"                v = {own(f'load_{given}_1x1(a2, p, i32(0), i32(0))')}",
        "                j += 1",  # what the next turn needs is on its way while this one waits for its value
        f"                p = {place} if j < n0 else i64(0)",
        f"                again = {sorted_key_text('j')} if j < stop else n1",
        f"                {combine_statement_text(op, 'r', 'v')}",
        f"            store_{t}_1x1(a3, k, i32(0), i32(0), r)",
    ]
    if in_chunks:
        goes_on = [
            f"next_ = least(j + {CHUNK}, n0)",
            f"whole = {sorted_key_text(f'j + {CHUNK - 1}')} == k if j + {CHUNK} <= n0 else False",
            f"long = whole or ({sorted_key_text(f'j - {CHUNK + 1}')} == k if j > {CHUNK} else False)",
            "if long:",
            "    own = k",
            "if whole:",
            f"    w = {several}",
            "    total = w[0]",
            *(f"    {combine_statement_text(part, 'total', f'w[{i}]')}" for i in range(1, 8)),
            "    j += 8",
            "    while j < next_:",
            f"        w = {several}",
            *(f"        {combine_statement_text(part, 'total', f'w[{i}]')}" for i in range(8)),
            "        j += 8",
            "elif long:",
            f"    total = {value}",
            "    j += 1",
            f"    while ({sorted_key_text('j')} if j < next_ else n1) == k:",
            f"        v = {value}",
            f"        {combine_statement_text(part, 'total', 'v')}",
            "        j += 1",
            "else:",
            "    j += 1",
        ]
        lines += [f"        elif k < n1 and urem(j, i64({CHUNK})) == 0:", *("            " + x for x in goes_on)]
    lines += ["        else:", "            j += 1", "        before = k"]
    if in_chunks:
        lines += [
            f"    if urem(at, i64({CHUNK})) == 0:",
            f"        c = udiv(at, i64({CHUNK}))",
            "        store_u32_1x1(a4, c, i32(0), i32(0), u32_from_i64(own))",
            f"        store_{t}_1x1(a5, c, i32(0), i32(0), total)",
        ]
    head = "def NAME(a0, a1, a2, a3, a4, a5, n0, n1):"
    return "\n".join([f"THREADS = {THREADS}", head, *("    " + x for x in lines), ""])
