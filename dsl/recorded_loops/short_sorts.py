"""Sorts, their orders and medians of windows in a recorded loop: a sorting network of a few elements, in registers."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import product
from math import prod
from typing import Any

import numpy as np

from ...compiler.core.types import FLOAT64, INT64
from ...compiler.kernel.body_builder import KernelValue
from ..trace.dispatch import METHODS
from ..trace.trace import LoopNotRecordable
from .kinds import LoopList, loop_kinds_of
from .values import FixedLoopError, LoopArray, LoopNumber, Recorder

MOST = 64  # elements of a window: a sort of 64 compiles in 1.6 s, of 32 in 0.4; it takes a fourth of NumPy's time


def sorting_network(n: int, exchange: Callable[[int, int], None]) -> None:
    """Batcher's merge exchange: calls `exchange(i, j)`, i < j, which puts the lesser of two elements at i."""
    top = step = 1 << max(n - 1, 0).bit_length() >> 1
    while step:
        last, residue, apart = top, 0, step
        while apart:
            for i in range(n - apart):
                if i & step == residue:
                    exchange(i, i + apart)
            apart, last, residue = last - step, last >> 1, step
        step >>= 1


def call_in_short_windows(recorder: Recorder, function: str, arrays: Sequence[Any], options: dict[str, Any]) -> Any:
    """A sort, its order or a median of short windows. Raises LoopNotRecordable for all else."""
    row, x = ROWS.get(function), recorder.light(recorder.lift(arrays[0]))
    if row is None or not isinstance(x, LoopArray) or x.dtype.kind not in "iuf" or options.get("keepdims"):
        raise LoopNotRecordable(f"np.{function} is called in it")
    axis = options["axis"]
    axes = tuple(range(x.ndim)) if axis is None else (axis,) if isinstance(axis, int) else axis
    sizes = [x.expression.shape[axis].greatest for axis in axes]
    if prod(MOST + 1 if n is None else n for n in sizes) > MOST:
        raise LoopNotRecordable(f"np.{function} of more than {MOST} elements is called in it")
    return row(recorder, x, axes, options)


def sorted_numbers(recorder: Recorder, items: Sequence[Any]) -> Any:
    """What Python's sorted() gives of numbers: of NaN, which are in no order, NumPy's run knows the answer."""
    if not any(isinstance(x, LoopNumber) for x in items):
        return sorted(items)
    kinds = {loop_kinds_of(x) for x in items}
    array = recorder.array_from(items)
    if len(items) > MOST or len(kinds) > 1 or array.dtype.kind not in "iuf":
        raise LoopNotRecordable(f"a list is sorted of more than {MOST} numbers, or of several types")
    nan = recorder.truth(METHODS["any"](recorder.map("not_equal", array, array)))
    _leave_to_numpy(recorder, nan, "sorted() of NaN")
    return LoopList(recorder, _write_rows(recorder, array, 0, False, True).section, kinds.pop(), 1)


def _leave_to_numpy(recorder: Recorder, condition: KernelValue, what: str) -> None:
    """Where the condition holds the call runs again in NumPy, which knows the answer."""
    if not recorder.trace.reruns:
        raise LoopNotRecordable(f"{what} is called in it")
    recorder.fail_if(condition, recorder.zero(), FixedLoopError(ValueError, what))


def _elements(
    recorder: Recorder, x: LoopArray, axes: Sequence[int], kept: Sequence[KernelValue], absent: Any
) -> tuple[list[KernelValue], KernelValue]:
    """Those along axes, at one place of the others, and whether one is NaN. absent: in place of those beyond an end."""
    body, shape, others = recorder.body, x.expression.shape, iter(kept)
    index: list[Any] = [None if axis in axes else next(others) for axis in range(x.ndim)]
    values, nan = [], []
    for place in product(*(range(shape[axis].greatest or 0) for axis in axes)):
        beyond = []
        for axis, i in zip(axes, place, strict=True):
            index[axis] = body.const(i, INT64)
            if not shape[axis].is_at_least(i + 1):
                beyond.append(index[axis] >= recorder.emit(shape[axis]))
                index[axis] = body.select(beyond[-1], recorder.zero(), index[axis])
        value = x.expression.element(index)
        nan.append(value.ne(value))
        last = body.const(absent, x.dtype)
        values.append(body.select(reduce(operator.or_, beyond), last, value) if beyond else value)
    return values, reduce(operator.or_, nan)


def _sort(values: list[KernelValue], places: list[KernelValue], has_nan: bool = True) -> None:
    """Sorts values, NaN last. places: what moves with them, and is in order among equals; or none."""

    def exchange(i: int, j: int) -> None:
        a, b = values[i], values[j]
        swap = b < a
        if has_nan:
            swap = swap | (a.ne(a) & b.eq(b))
        if places:
            swap = swap | (_are_same(a, b) & (places[j] < places[i]))
        for row in (values, places) if places else (values,):
            first, second = row[i], row[j]
            row[i], row[j] = a.body.select(swap, second, first), a.body.select(swap, first, second)

    sorting_network(len(values), exchange)


def _are_same(a: KernelValue, b: KernelValue) -> KernelValue:
    return a.eq(b) | (a.ne(a) & b.ne(b))


def _in_order(recorder: Recorder, x: LoopArray, axes: Sequence[int], options: dict[str, Any]) -> Any:
    return _write_rows(recorder, x, axes[0], False, False)


def _places_in_order(recorder: Recorder, x: LoopArray, axes: Sequence[int], options: dict[str, Any]) -> Any:
    """The order of equal elements is that of a stable sort, or NumPy finds it."""
    is_stable = options.get("kind") in ("stable", "mergesort") or options.get("stable")
    if not is_stable and x.expression.shape[axes[0]].known is None:
        raise LoopNotRecordable("np.argsort of a length that differs is called in it, without kind='stable'")
    return _write_rows(recorder, x, axes[0], True, bool(is_stable))


def _write_rows(recorder: Recorder, x: LoopArray, axis: int, gives_places: bool, is_stable: bool) -> Any:
    """The rows along an axis in order, or their places. is_stable: equal elements keep theirs."""
    shape, body = x.expression.shape, recorder.body
    last = np.nan if x.dtype.kind == "f" else np.iinfo(x.dtype).max
    section = recorder.temporary(shape, INT64 if gives_places else x.dtype)

    def write_row(kept: Sequence[KernelValue]) -> None:
        values, _ = _elements(recorder, x, [axis], kept, last)
        places = [body.const(i, INT64) for i in range(len(values))] if gives_places or is_stable else []
        _sort(values, places)
        if gives_places and not is_stable and len(values) > 1:
            tie = reduce(operator.or_, map(_are_same, values, values[1:]))
            _leave_to_numpy(recorder, tie, "np.argsort without kind='stable'")
        for i, value in enumerate(places if gives_places else values):
            recorder._put(section, [*kept[:axis], body.const(i, INT64), *kept[axis:]], value)

    recorder.each([n for a, n in enumerate(shape) if a != axis], write_row, parallel=is_stable or not gives_places)
    return recorder.array_of_section(section)


def _median(recorder: Recorder, x: LoopArray, axes: Sequence[int], options: dict[str, Any]) -> Any:
    body, real = recorder.body, x.dtype if x.dtype.kind == "f" else FLOAT64
    count, last = recorder.body.const(1, INT64), np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).max
    for n in (x.expression.shape[axis] for axis in axes):
        count = count * recorder.emit(n)
        if not n.is_at_least(1):
            _leave_to_numpy(recorder, recorder.emit(n) < 1, "np.median of what may have no element")
    known = prod(x.expression.shape[axis].known or 0 for axis in axes)

    def median(kept: Sequence[KernelValue]) -> KernelValue:
        values, nan = _elements(recorder, x, axes, kept, last)
        _sort(values, [], False)
        low, high, is_odd = values[(known - 1) // 2], values[known // 2], body.const(known % 2 == 1, np.dtype(bool))
        for i, value in enumerate([] if known else values):
            low = body.select((count - 1).quot(2).eq(i), value, low)
            high = body.select(count.quot(2).eq(i), value, high)
            is_odd = count.rem(2).eq(1)
        low, high = low.cast(real), high.cast(real)
        middle = low if known % 2 else body.select(is_odd, low, (low + high) / 2)
        found: KernelValue = body.select(nan, body.const(np.nan, real), middle)
        return found

    return recorder.folded(x.expression, axes, real, median)


ROWS: dict[str, Callable[..., Any]] = {"sort": _in_order, "argsort": _places_in_order, "median": _median}
