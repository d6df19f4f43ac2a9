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
from ..trace.trace import LoopNotRecordable
from .kinds import loop_kinds_of, magnitude_of_loop_number
from .linear import LinearExpression
from .values import FixedLoopError, LoopArray, LoopNumber, Recorder

MOST = 64  # elements of a window: a sort of 64 compiles in 1.6 s, of 32 in 0.4; it takes a fourth of NumPy's time

Exchange = Callable[[int, int], None]


def sorting_network(n: int, exchange: Exchange) -> None:
    """Batcher's merge exchange: calls `exchange(i, j)`, i < j, which puts the lesser of two elements at i."""
    top = step = 1 << max(n - 1, 0).bit_length() >> 1
    while step:
        last, residue, apart = top, 0, step
        while True:
            for i in range(n - apart):
                if i & step == residue:
                    exchange(i, i + apart)
            if last == step:
                break
            apart, last, residue = last - step, last >> 1, step
        step >>= 1


def call_in_short_windows(recorder: Recorder, function: str, arrays: Sequence[Any], options: dict[str, Any]) -> Any:
    """What a call of the host gives of short windows. Raises LoopNotRecordable for other functions and arrays."""
    row, x = ROWS.get(function), recorder.light(recorder.lift(arrays[0]))
    if row is None or not isinstance(x, LoopArray) or x.dtype.kind not in "iuf":
        raise LoopNotRecordable(f"np.{function} is called in it")
    axes = options.pop("axis", None)
    axes = tuple(range(x.ndim)) if axes is None else (axes,) if isinstance(axes, int) else axes
    sizes = [x.expression.shape[axis].greatest for axis in axes]
    if None in sizes or prod(n for n in sizes if n is not None) > MOST:
        raise LoopNotRecordable(f"np.{function} of more than {MOST} elements is called in it")
    return row(recorder, x, axes, options)


class _Window:
    """The elements of an array along axes, at one place of the others. count: how many there are, where it differs."""

    def __init__(self, recorder: Recorder, x: LoopArray, axes: Sequence[int], kept: Sequence[KernelValue]) -> None:
        self.body, shape, others = recorder.body, x.expression.shape, iter(kept)
        index: list[Any] = [None if axis in axes else next(others) for axis in range(x.ndim)]
        lengths = [shape[axis] for axis in axes]
        self.values, self.absent = list[KernelValue](), list[KernelValue | None]()
        for place in product(*(range(n.greatest or 0) for n in lengths)):
            absent = None
            for axis, n, i in zip(axes, lengths, place, strict=True):
                index[axis] = self.body.const(i, INT64)
                if not n.is_at_least(i + 1):
                    beyond = index[axis] >= recorder.emit(n)
                    index[axis] = self.body.select(beyond, recorder.zero(), index[axis])
                    absent = beyond if absent is None else absent | beyond
            self.values.append(x.expression.element(index))
            self.absent.append(absent)
        size: Any = 1
        for n in lengths:
            size = size * recorder.extent(n)
        self.count = recorder.linear(size) if isinstance(size, int) else recorder.linear(recorder.lift(size))

    def any_nan(self) -> KernelValue | None:
        """Whether an element is NaN; None of integers."""
        found = None
        for value, absent in zip(self.values, self.absent, strict=True):
            if value.dtype.kind == "f":
                wrong = value.ne(value) if absent is None else self.body.select(absent, self.false, value.ne(value))
                found = wrong if found is None else found | wrong
        return found

    @property
    def false(self) -> KernelValue:
        return self.body.const(False, np.dtype(bool))

    def sort(self, has_nan: bool, places: list[KernelValue] | None = None) -> None:
        """Sorts the values, NaN behind all numbers, what is absent last. places: what moves with them, which is
        ordered among equals."""
        values, absent, select = self.values, self.absent, self.body.select

        def exchange(i: int, j: int) -> None:
            a, b, none = values[i], values[j], absent[j]
            swap = b < a
            if has_nan and a.dtype.kind == "f":
                swap = swap | a.ne(a)
            if places is not None:
                same = a.eq(b) | (a.ne(a) & b.ne(b)) if has_nan and a.dtype.kind == "f" else a.eq(b)
                numbers = b.eq(b) if has_nan and a.dtype.kind == "f" else None
                swap = (swap if numbers is None else swap & numbers) | (same & (places[j] < places[i]))
            first = absent[i]
            if first is not None or none is not None:
                first, none = (self.false if flag is None else flag for flag in (first, none))
                swap = select(none, self.false, select(first, self.body.const(True, np.dtype(bool)), swap))
                absent[i], absent[j] = select(swap, none, first), select(swap, first, none)
            values[i], values[j] = select(swap, b, a), select(swap, a, b)
            if places is not None:
                places[i], places[j] = (
                    select(swap, *pair) for pair in ((places[j], places[i]), (places[i], places[j]))
                )

        sorting_network(len(values), exchange)

    def at(self, i: LinearExpression, recorder: Recorder) -> KernelValue:
        """A value by its place."""
        if i.known is not None:
            return self.values[i.known]
        found, at = self.values[0], recorder.emit(i)
        for k, value in enumerate(self.values[1:], 1):
            found = self.body.select(at.eq(k), value, found)
        return found


def _leave_to_numpy(recorder: Recorder, condition: KernelValue, what: str) -> None:
    """Where the condition holds the call runs again in NumPy, which knows the answer."""
    if not recorder.trace.reruns:
        raise LoopNotRecordable(f"{what} is called in it")
    recorder.fail_if(condition, recorder.zero(), FixedLoopError(ValueError, what))


def _sorted_in_loop(recorder: Recorder, x: LoopArray, axes: Sequence[int], options: dict[str, Any]) -> LoopArray:
    return _in_order(recorder, x, axes, False)


def _order_in_loop(recorder: Recorder, x: LoopArray, axes: Sequence[int], options: dict[str, Any]) -> LoopArray:
    """The order of equal elements is that of a stable sort, or NumPy finds it."""
    return _in_order(recorder, x, axes, True, options.get("kind") in ("stable", "mergesort") or options.get("stable"))


def _in_order(
    recorder: Recorder, x: LoopArray, axes: Sequence[int], gives_places: bool, is_stable: Any = True
) -> LoopArray:
    (axis,) = axes
    shape, body = x.expression.shape, recorder.body
    section = recorder.temporary(shape, INT64 if gives_places else x.dtype)

    def write_row(kept: Sequence[KernelValue]) -> None:
        window = _Window(recorder, x, axes, kept)
        places = [body.const(i, INT64) for i in range(len(window.values))] if gives_places else None
        window.sort(True, places)
        for a, b, none in zip(window.values, window.values[1:], window.absent[1:], strict=False):
            if not is_stable:
                tie = a.eq(b) | (a.ne(a) & b.ne(b))
                tie = tie if none is None else body.select(none, window.false, tie)
                _leave_to_numpy(recorder, tie, "np.argsort without kind='stable'")
        for i, value in enumerate(window.values if places is None else places):
            recorder._put(section, [*kept[:axis], body.const(i, INT64), *kept[axis:]], value)

    recorder.each([n for a, n in enumerate(shape) if a != axis], write_row, parallel=is_stable)
    found: LoopArray = recorder.array_of_section(section)
    return found


def _median_in_loop(recorder: Recorder, x: LoopArray, axes: Sequence[int], options: dict[str, Any]) -> Any:
    for n in (x.expression.shape[axis] for axis in axes):
        if not n.is_at_least(1):
            _leave_to_numpy(recorder, recorder.emit(n) < 1, "np.median of what may have no element")

    def median(kept: Sequence[KernelValue]) -> KernelValue:
        window, body = _Window(recorder, x, axes, kept), recorder.body
        count, nan = window.count, window.any_nan()
        window.sort(False)
        real = x.dtype if x.dtype.kind == "f" else FLOAT64
        if count.known is not None:
            low, high = LinearExpression((count.known - 1) // 2), LinearExpression(count.known // 2)
        else:
            n = recorder.emit(count)
            low, high = (recorder.atom((n - 1).quot(2)), recorder.atom(n.quot(2)))
        a, b = (window.at(i, recorder).cast(real) for i in (low, high))
        middle = a if low == high else (a + b) / 2
        if low.known is None:
            middle = body.select(recorder.emit(low).eq(recorder.emit(high)), a, middle)
        return middle if nan is None else body.select(nan, body.const(np.nan, real), middle)

    if options.get("keepdims"):
        raise LoopNotRecordable("np.median with keepdims=True is called in it")
    return recorder.folded(x.expression, axes, x.dtype if x.dtype.kind == "f" else FLOAT64, median)


def sorted_numbers(recorder: Recorder, items: Sequence[Any], reverse: bool) -> list[Any]:
    """What Python's sorted() gives of numbers: of NaN, which are in no order, NumPy's run knows the answer."""
    if not any(isinstance(x, LoopNumber) for x in items):
        return sorted(items, reverse=reverse)
    kinds = {loop_kinds_of(x) for x in items}
    if len(kinds) > 1 or len(items) > MOST:
        raise LoopNotRecordable(f"a list is sorted of more than {MOST} numbers, or of several types")
    (((dtype, weak), *others),) = kinds
    if others or dtype.kind not in "iuf":
        raise LoopNotRecordable("a list is sorted whose numbers are of several types")
    values = [recorder.element_value(recorder.lift(x), dtype) for x in items]
    if dtype.kind == "f":
        nan = reduce(operator.or_, (value.ne(value) for value in values))
        _leave_to_numpy(recorder, nan, "sorted() of NaN")
    for end in range(1, len(values)):  # neighbours alone are exchanged, so that equal ones keep their order
        for i in range(end, 0, -1):
            a, b = values[i - 1], values[i]
            swap = a < b if reverse else b < a
            values[i - 1], values[i] = (recorder.body.select(swap, *pair) for pair in ((b, a), (a, b)))
    found = [LoopNumber(recorder, value, weak) for value in values]
    for x in found:
        x.magnitude = max(map(magnitude_of_loop_number, items))
    return found


ROWS: dict[str, Callable[..., Any]] = {"sort": _sorted_in_loop, "argsort": _order_in_loop, "median": _median_in_loop}
