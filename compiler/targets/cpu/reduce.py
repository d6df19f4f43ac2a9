"""How each reduction is accumulated, on scalars or whole vectors. A table of combine -> identity, step and merge.

An accumulator is a tuple of values (parts). A sum of floats is kept in float64: plain for float32 values, and for
float64 values compensated in blocks, so that its error does not grow with the length (Knuth's TwoSum, 1969;
Neumaier 1974). So is a product, at each step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....runtime.core.frozen import dataclass, field, replace
from ...core.combiners import reduction_identity
from ...core.types import BOOL, FLOAT64, INT64, DType, dtype_kind, integer_dtype
from ...kernel.loop_nest import LOOP, LoopNest, Reduction
from .llvm_ir import LlvmFunction, LlvmValue, llvm_type_bits
from .primitives import MATH, emit_llvm_cast, llvm_memory_type, llvm_register_type

Parts = tuple[LlvmValue, ...]

FOLD = 16


@dataclass(frozen=True)
class LlvmReductionCombine:
    """kinds: dtypes of the accumulator's parts. identity: their start. step: accumulator and values to accumulator.
    merge: two accumulators to one. finish: to the parts of the result. fold: done every FOLD steps or more often, and
    at the end. lost: where infinity, NaN or 0 may come from the order of accumulating alone; all values are then taken
    once more by `again`, whose `finish` gives an accumulator of this row. ordered: one value after the other."""

    kinds: tuple[DType, ...]
    identity: tuple[float, ...]
    step: Callable[[Parts, Parts], Parts]
    merge: Callable[[Parts, Parts], Parts]
    finish: Callable[[Parts], Parts]
    fold: Callable[[Parts], Parts] | None = None
    lost: Callable[[Parts], LlvmValue] | None = None
    again: LlvmReductionCombine | None = None
    ordered: bool = False

    def start(self, f: LlvmFunction, lanes: int) -> Parts:
        return tuple(f.const(n, llvm_register_type(k), lanes) for n, k in zip(self.identity, self.kinds, strict=True))


def llvm_reduction_combine(reduction: Reduction, sources: tuple[DType, ...]) -> LlvmReductionCombine:
    """The row for a reduction whose values have the dtypes `sources`."""
    row = reduction.combiner
    combine = _llvm_arg_extreme_combine if row.carries_index else _COMBINES[row.primitive]
    return combine(reduction.dtype, sources, row.primitive)


def merge_vector_lanes(combine: LlvmReductionCombine, parts: Parts) -> Parts:
    """Merge the lanes of a vector accumulator, by halves."""
    while parts[0].lanes > 1:
        half = parts[0].lanes // 2
        low = tuple(p.shuffle(list(range(half))) for p in parts)
        high = tuple(p.shuffle(list(range(half, 2 * half))) for p in parts)
        parts = combine.merge(low, high)
    return parts


def merge_vector_accumulators(combine: LlvmReductionCombine, copies: Sequence[Parts]) -> Parts:
    """One accumulator of several. Of those that are folded, only the first has more than a running part."""
    if combine.fold is None:
        return _merge_vectors_as_tree(combine.merge, copies)
    return _merge_vectors_as_tree(lambda a, b: (a[0] + b[0],), [(parts[0],) for parts in copies])[0], *copies[0][1:]


def fold_vector_accumulators(combine: LlvmReductionCombine, copies: Sequence[Parts]) -> list[Parts]:
    """Accumulators side by side after FOLD steps: what they added up since is folded into the first."""
    assert combine.fold is not None
    first = combine.fold(merge_vector_accumulators(combine, copies))
    return [first, *((first[0], *parts[1:]) for parts in copies[1:])]  # a running part begins again


def _merge_vectors_as_tree(merge: Callable[[Parts, Parts], Parts], every: Sequence[Parts]) -> Parts:
    while len(every) > 1:
        every = [merge(a, b) for a, b in zip(every[::2], every[1::2], strict=True)]
    return every[0]


def _llvm_sum_combine(dtype: DType, sources: tuple[DType, ...], name: str) -> LlvmReductionCombine:
    if dtype_kind(dtype) == "f" and sources[0] == FLOAT64:
        return _llvm_compensated_sum(dtype)
    wide = FLOAT64 if dtype_kind(dtype) == "f" else dtype
    # -0.0 is the identity of addition: a sum of nothing but -0.0 is -0.0, and NumPy's (from 0.0) is 0.0.
    return _llvm_simple_combine(wide, dtype, sources, 0, lambda a, b: a + b)


def _llvm_product_combine(dtype: DType, sources: tuple[DType, ...], name: str) -> LlvmReductionCombine:
    if dtype_kind(dtype) != "f":
        return _llvm_simple_combine(dtype, dtype, sources, 1, lambda a, b: a * b)
    if sources[0] == FLOAT64:
        return _llvm_compensated_product(dtype)
    plain = _llvm_simple_combine(FLOAT64, dtype, sources, 1, lambda a, b: a * b)
    return replace(plain, **_llvm_product_again(dtype, sources, len(plain.kinds)))


def _llvm_product_again(dtype: DType, sources: tuple[DType, ...], parts: int) -> dict[str, Any]:
    """A product that overflows or underflows does so in NumPy's order: one factor after the other, in the dtype."""
    info = np.finfo(dtype)

    def is_product_lost(acc: Parts) -> LlvmValue:
        size = acc[0].abs()
        return ~((size <= float(info.max)) & (size >= float(info.tiny)))

    def product_as_accumulator(acc: Parts) -> Parts:
        wide = emit_llvm_cast(dtype, FLOAT64, acc[0])
        return (wide, *(wide.f.const(0.0, "double", wide.lanes) for _ in range(parts - 1)))

    one_by_one = _llvm_simple_combine(dtype, dtype, sources, 1, lambda a, b: a * b)
    return {"lost": is_product_lost, "again": replace(one_by_one, finish=product_as_accumulator, ordered=True)}


def _llvm_compensated_product(dtype: DType) -> LlvmReductionCombine:
    """Parts: a product, and the sum of its rounding errors, each scaled by the factors after it (Graillat 2009). Lanes
    that multiply like numbers round alike, so that their errors would add up when they are merged."""

    def merge_products(a: Parts, b: Parts) -> Parts:
        product = a[0] * b[0]
        error = a[0].fma(b[0], -product)
        return product, a[0].fma(b[1], a[1].fma(b[0], error))

    def multiply_by_values(acc: Parts, values: Parts) -> Parts:
        product = acc[0] * values[0]
        return product, acc[1].fma(values[0], acc[0].fma(values[0], -product))

    def corrected_product(acc: Parts) -> Parts:
        product, error = acc  # of what is 0, infinite or NaN there is no error
        within = (product.abs() < np.inf) & (product.abs() > np.finfo(np.float64).tiny) & (error.abs() < np.inf)
        return (emit_llvm_cast(FLOAT64, dtype, within.pick(product + error, product)),)

    plain = LlvmReductionCombine((FLOAT64,) * 2, (1.0, 0.0), multiply_by_values, merge_products, corrected_product)
    return replace(plain, **_llvm_product_again(dtype, (FLOAT64,), 2))


def _llvm_simple_combine(
    wide: DType,
    dtype: DType,
    sources: tuple[DType, ...],
    identity: float,
    apply: Callable[[LlvmValue, LlvmValue], LlvmValue],
) -> LlvmReductionCombine:
    return LlvmReductionCombine(
        (wide,),
        (identity,),
        lambda acc, values: (apply(acc[0], emit_llvm_cast(sources[0], wide, values[0])),),
        lambda a, b: (apply(a[0], b[0]),),
        lambda acc: (emit_llvm_cast(wide, dtype, acc[0]),),
    )


def llvm_two_sum(a: LlvmValue, b: LlvmValue) -> tuple[LlvmValue, LlvmValue]:
    """a + b and its rounding error (Knuth 1969)."""
    s = a + b
    back = s - a
    return s, (a - (s - back)) + (b - back)


def _llvm_compensated_sum(dtype: DType) -> LlvmReductionCombine:
    """Parts: the sum of few values, the sum of such sums, and the sum of the latter's rounding errors. Few: FOLD, or a
    tree of so many of each lane and copy, so that its error does not grow with the length either."""

    def fold_partial_sum(acc: Parts) -> Parts:
        total, error = llvm_two_sum(acc[1], acc[0])
        return acc[0].f.const(0.0, "double", acc[0].lanes), total, acc[2] + error

    def merge_sums(a: Parts, b: Parts) -> Parts:
        total, error = llvm_two_sum(a[1], b[1])
        return a[0] + b[0], total, a[2] + b[2] + error

    def add_values(acc: Parts, values: Parts) -> Parts:
        return acc[0] + values[0], acc[1], acc[2]

    def corrected_sum(acc: Parts) -> Parts:
        _, high, low = acc  # folded; an infinite sum has no error term, but NaN in its place
        return (emit_llvm_cast(FLOAT64, dtype, (high.abs() < np.inf).pick(high + low, high)),)

    def is_sum_lost(acc: Parts) -> LlvmValue:
        return ~((acc[1].abs() < np.inf) & (acc[2].abs() < np.inf))  # a sum near the end may have no error term

    return LlvmReductionCombine(
        (FLOAT64,) * 3,
        (0.0,) * 3,
        add_values,
        merge_sums,
        corrected_sum,
        fold_partial_sum,
        is_sum_lost,
        _llvm_scaled_sum(),
    )


SCALE = 2.0**64  # more than an array has elements


def _llvm_scaled_sum() -> LlvmReductionCombine:
    """A sum that overflows only if its result does. Parts: the sum of the values divided by SCALE, and of the rounding
    errors."""

    def add_scaled(acc: Parts, values: Parts) -> Parts:
        total, error = llvm_two_sum(acc[0], values[0] * (1 / SCALE))
        return total, acc[1] + error

    def merge_scaled(a: Parts, b: Parts) -> Parts:
        total, error = llvm_two_sum(a[0], b[0])
        return total, a[1] + b[1] + error

    def sum_as_accumulator(acc: Parts) -> Parts:
        zero = acc[0].f.const(0.0, "double", acc[0].lanes)
        total = (acc[0].abs() < np.inf).pick(acc[0] + acc[1], acc[0])
        return zero, total * SCALE, zero

    return LlvmReductionCombine((FLOAT64,) * 2, (0.0,) * 2, add_scaled, merge_scaled, sum_as_accumulator)


def _llvm_any_all_combine(dtype: DType, sources: tuple[DType, ...], name: str) -> LlvmReductionCombine:
    either = name == "or"
    apply: Callable[[LlvmValue, LlvmValue], LlvmValue] = (lambda a, b: a | b) if either else (lambda a, b: a & b)
    truth = _llvm_simple_combine(BOOL, BOOL, sources, 0 if either else 1, apply)
    return LlvmReductionCombine(
        truth.kinds, truth.identity, truth.step, truth.merge, lambda acc: (emit_llvm_cast(BOOL, dtype, acc[0]),)
    )


def _llvm_is_better_extreme(a: LlvmValue, b: LlvmValue, dtype: DType, greatest: bool) -> LlvmValue:
    """Whether a is before b: below it, or above it where the greatest is wanted; false for NaN."""
    if dtype_kind(dtype) == "f":
        return a > b if greatest else a < b
    sign = "s" if dtype.kind == "i" else "u"
    return a.compare(f"{sign}{'gt' if greatest else 'lt'}", b)


def _llvm_extreme_combine(dtype: DType, sources: tuple[DType, ...], name: str) -> LlvmReductionCombine:
    """Floats keep the number and, apart from it, ones where a NaN was met: compare-and-select alone is one instruction.

    The ones fill an integer as wide as the number: a vector of i1 has no registers before AVX-512."""
    greatest = name == "maximum"
    first = reduction_identity(name, dtype)

    def better_of(a: LlvmValue, b: LlvmValue) -> LlvmValue:
        return _llvm_is_better_extreme(b, a, dtype, greatest).pick(b, a)

    if dtype_kind(dtype) != "f":
        return _llvm_simple_combine(dtype, dtype, sources, first, better_of)

    def take_values(acc: Parts, values: Parts) -> Parts:
        return better_of(acc[0], values[0]), values[0].is_nan().pick(-1, acc[1])

    def merge_extremes(a: Parts, b: Parts) -> Parts:
        return better_of(a[0], b[0]), a[1] | b[1]

    def extreme_or_nan(acc: Parts) -> Parts:
        return (acc[1].ne(0).pick(np.nan, acc[0]),)

    return LlvmReductionCombine((dtype, integer_dtype(dtype)), (first, 0), take_values, merge_extremes, extreme_or_nan)


def _llvm_arg_extreme_combine(dtype: DType, sources: tuple[DType, ...], name: str) -> LlvmReductionCombine:
    """The best value and the least index that has it; NaN is better than every number."""
    greatest = name == "maximum"
    first = reduction_identity(name, dtype)

    def better_pair(acc: Parts, values: Parts) -> Parts:
        (best, at), (x, i) = acc, values
        wins, same = _llvm_is_better_extreme(x, best, dtype, greatest), x.eq(best)
        if dtype_kind(dtype) == "f":
            new, old = x.is_nan(), best.is_nan()
            wins, same = (wins | new) & ~old, same | (new & old)
        wins = wins | (same & (i < at))
        return wins.pick(x, best), wins.pick(i, at)

    def take_values(acc: Parts, values: Parts) -> Parts:
        return better_pair(acc, (emit_llvm_cast(sources[0], dtype, values[0]), values[1]))

    return LlvmReductionCombine(
        (dtype, INT64), (first, int(np.iinfo(np.int64).max)), take_values, better_pair, lambda acc: acc
    )


_COMBINES: dict[str, Callable[[DType, tuple[DType, ...], str], LlvmReductionCombine]] = {
    "add": _llvm_sum_combine,
    "mul": _llvm_product_combine,
    "minimum": _llvm_extreme_combine,
    "maximum": _llvm_extreme_combine,
    "or": _llvm_any_all_combine,
    "and": _llvm_any_all_combine,
}


# Costly values of a row that a later loop would compute again: they are kept in a buffer of the row instead.
# `exp(x - max)` of a softmax is one: its sum needs it, then its quotient does. The buffer holds the whole row if it is
# at most `capacity` long; a longer row is computed again (the buffer then holds nothing of use).
BYTES = 65536  # of a buffer
BUFFERS = 2


@dataclass(frozen=True)
class RowBufferReuse:
    """keep: values to store, by number; take: values to load instead, each with the number of the kept one."""

    keep: tuple[int, ...] = ()
    take: dict[int, int] = field(default_factory=dict)


def vector_values_to_buffer(nest: LoopNest) -> RowBufferReuse:
    """The costly values that loops of one reduced axis have in common."""
    if nest.reduced != 1:
        return RowBufferReuse()
    keys: dict[int, int] = {}  # each value's: the first value that equals it at every point
    known: dict[object, int] = {}
    costly: set[int] = set()
    first: dict[int, int] = {}
    take: dict[int, int] = {}
    for phase in nest.phases:
        here: dict[int, int] = {}
        again: dict[int, int] = {}
        for at, instr in enumerate(phase.instrs, phase.first):
            changing = instr.op == "load" and nest.operands[instr.attr[0]].role != "in"
            own = phase.kind != LOOP or instr.op == "store" or changing
            key = at if own else (instr.op, instr.dtype, tuple(keys[a] for a in instr.args), instr.attr)
            keys[at] = known.setdefault(key, at)
            if phase.kind == LOOP and (instr.op in MATH or not costly.isdisjoint(instr.args)):
                costly.add(at)
                again.update({at: first[keys[at]]} if keys[at] in first else {})
                here.setdefault(keys[at], at)
        outside = [i.args for at, i in enumerate(phase.instrs, phase.first) if at not in again]
        used = {a for args in (*outside, *(r.values for r in phase.reductions)) for a in args}
        take.update({at: kept for at, kept in again.items() if at in used})
        for key, at in here.items():
            first.setdefault(key, at)
    keep = tuple(dict.fromkeys(take.values()))[:BUFFERS]
    return RowBufferReuse(keep, {at: kept for at, kept in take.items() if kept in keep})


def vector_row_buffer_capacity(nest: LoopNest) -> int:
    """The longest row that a buffer can hold, whatever it is of."""
    dtypes = {i.dtype for p in nest.phases for i in p.instrs}
    return BYTES // max((llvm_type_bits(llvm_memory_type(d)) // 8 for d in dtypes), default=8)


def _vector_row_buffer_address(buffer: LlvmValue, dtype: DType, i: LlvmValue) -> LlvmValue:
    """Where index i of a row lies; rows that are too long run round."""
    elem = llvm_memory_type(dtype)
    return buffer.at(i & (8 * BYTES // llvm_type_bits(elem) - 1), elem)


def store_vector_in_row_buffer(buffer: LlvmValue, dtype: DType, i: LlvmValue, value: LlvmValue) -> None:
    """Store a vector of the row, whole: buffers have room for it."""
    _vector_row_buffer_address(buffer, dtype, i).store(value.to("zext", "i8") if dtype == BOOL else value)


def load_vector_from_row_buffer(buffer: LlvmValue, dtype: DType, i: LlvmValue, lanes: int) -> LlvmValue:
    raw = _vector_row_buffer_address(buffer, dtype, i).load(llvm_memory_type(dtype), lanes)
    return raw.ne(0) if dtype == BOOL else raw
