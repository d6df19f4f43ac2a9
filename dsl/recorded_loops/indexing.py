"""What `dsl/functions/indexing` and `gather` are made of in a recorded loop: axes that are sliced, elements that arrays
choose, places where masks hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...compiler.core.types import BOOL, INT64
from ...compiler.kernel.body_builder import KernelValue
from ...compiler.sequential.form import If
from ..trace.dispatch import METHODS
from ..trace.trace import LoopNotRecordable
from .linear import LinearExpression
from .memory import LoopMemory
from .values import FixedLoopError, LazyLoopElements, LoopArray, LoopArraySection, LoopIndexError, LoopNumber

WRONG_LENGTH = FixedLoopError(ValueError, "shape mismatch: the values could not be broadcast to the indexing result")
NOT_TOGETHER = FixedLoopError(IndexError, "shape mismatch: indexing arrays could not be broadcast together")


class LoopIndexing(LoopMemory):
    """Axes are indexed by integers, slices and arrays that differ from turn to turn."""

    def get_item(self, array: LoopArray, key: Any) -> Any:
        return METHODS["__getitem__"](array, key)

    def set_item(self, array: LoopArray, key: Any, value: Any) -> None:
        METHODS["__setitem__"](array, key, value)

    # by integers and slices

    def index_of_axis(self, index: Any, length: Any, axis: int) -> LinearExpression:
        """An index, from 0 on. What is out of range raises when it runs."""
        i, n = self.linear(index), self.linear(length)
        if i.is_at_least(0) and n.is_at_least(i + 1):
            return i
        if (-i).is_at_least(1) and (i + n).is_at_least(0):
            return i + n
        given, size = self.emit(i), self.emit(n)
        error = LoopIndexError(axis, n.known)
        if i.is_at_least(0):
            self.fail_if(given >= size, given, error)
            return i
        self.fail_if((given >= size) | (given < -size), given, error)
        wrapped = self.body.select(given < 0, given + size, given)
        return self.atom(wrapped, (LinearExpression(0),), (n - 1,))

    def slice_of_axis(
        self, entry: slice, length: Any
    ) -> tuple[LinearExpression, int | LinearExpression, LinearExpression]:
        """Where a slice starts, its step, and how long it is. Raises LoopNotRecordable where its direction differs."""
        n, step = self.linear(length), self.linear(1 if entry.step is None else entry.step)
        up = step.is_at_least(1)
        if not (up or (-step).is_at_least(1)):
            raise LoopNotRecordable("whether the step of a slice is negative differs from turn to turn")
        ends = (LinearExpression(0), n) if up else (LinearExpression(-1), n - 1)
        first, last = ends if up else ends[::-1]
        start = first if entry.start is None else self._slice_bound(entry.start, n, *ends)
        stop = last if entry.stop is None else self._slice_bound(entry.stop, n, *ends)
        by, length = (step, stop - start) if up else (-step, start - stop)
        return start, step if step.known is None else step.known, self._quotient(length, by)

    def _slice_bound(
        self, bound: Any, n: LinearExpression, low: LinearExpression, high: LinearExpression
    ) -> LinearExpression:
        """The bound of a slice within low..high, as NumPy clamps it."""
        i = self.linear(bound)
        if i.is_at_least(0):
            return self.least(i, high)
        if (-i).is_at_least(1):
            return self.greatest(i + n, low)
        given = self.emit(i)
        counted = self.body.select(given < 0, given + self.emit(n), given)
        return self.atom(counted.maximum(self.emit(low)).minimum(self.emit(high)), (low,), (high,))

    def _quotient(self, length: LinearExpression, by: LinearExpression) -> LinearExpression:
        """How many steps of `by` begin in a length; none where that is negative."""
        length = self.greatest(length, LinearExpression(0))
        if by.known == 1:
            return length
        if length.known is not None and by.known is not None:
            return LinearExpression(-(-length.known // by.known))
        most, size = length.greatest, self.emit(by)
        count = (self.emit(length) + size - 1).quot(size)
        least = by.least or 1
        return self.atom(count, (LinearExpression(0),), () if most is None else (LinearExpression(-(-most // least)),))

    def element(self, x: LoopArray) -> LoopNumber:
        """The element of an array of no axis."""
        return LoopNumber(self, self.load(self.materialize(x), []))

    def store_elements(self, target: LoopArray, value: Any) -> None:
        """`target[...] = value`, broadcast and converted."""
        self.assign(self.materialize(target), value)

    # by arrays

    def broadcast_shapes(self: Any, shapes: Sequence[Any]) -> tuple[LinearExpression, ...]:
        found: tuple[LinearExpression, ...] = self.common_shape(
            [tuple(map(self.linear, shape)) for shape in shapes], NOT_TOGETHER
        )
        return found

    def is_in_range(self, index: LoopArray, length: Any) -> bool:
        """Whether indices are known to be in range, and not negative."""
        found = (m for m in self.masks if m[1] is self.body.scopes[-1])
        return any(
            x is index and n == self.linear(length)
            for mask, _, places in found
            for n, x in zip(mask.expression.shape, places, strict=True)
        )

    def check_indices(self, indices: LoopArray, outside: LoopArray, length: Any, axis: int) -> None:
        """Raises NumPy's IndexError, when it runs, for the first index that is outside."""
        error, wrong, index = LoopIndexError(axis, self.linear(length).known), outside.expression, indices.expression
        any_wrong = METHODS["any"](outside)
        with self.block() as scope:
            self.each(
                index.shape, lambda idx: self.fail_if(wrong.element(idx), index.element(idx), error), parallel=False
            )
        self.body.add(If(any_wrong.value.numbers[0], tuple(scope.statements), ()))

    def _chosen(
        self,
        x: LoopArray,
        arrays: Sequence[LoopArray],
        axes: Sequence[int],
        rest: Sequence[int],
        shape: Any,
        own: range,
    ) -> tuple[LoopArraySection, tuple[LinearExpression, ...], Callable[..., Any], list[LoopArraySection]]:
        """The memory of x; the shape of what arrays choose along axes; where an element of it lies; what is read."""
        base, lengths, others = self.materialize(x), tuple(map(self.linear, shape)), iter(rest)
        rank, together = len(lengths), tuple(lengths[a] for a in own)
        places = [rank + axes.index(a) if a in axes else next(others) for a in range(len(base.shape))]
        wide = [self.broadcast(index.expression, together) for index in arrays]
        subs = tuple((start, step, places[axis] if axis >= 0 else -1) for start, step, axis in base.subs)
        leaves = [LoopArraySection(base.storage, subs, (*lengths, *(base.shape[axis] for axis in axes)))]
        for index in wide:
            leaves += self.reindexed(index, lengths, lambda idx: [idx[a] for a in own], own).leaves

        def place(idx: Sequence[KernelValue]) -> list[KernelValue]:
            mine = [idx[a] for a in own]
            return [idx[p] if p < rank else wide[p - rank].element(mine).cast(INT64) for p in places]

        return base, lengths, place, leaves

    def gather(self, *chosen: Any) -> LoopArray:
        """`x[key]` with arrays in the key: elements that are read when they are needed."""
        base, shape, place, leaves = self._chosen(*chosen)
        dtype = base.storage.dtype
        return LoopArray(self, LazyLoopElements(shape, dtype, lambda idx: self.load(base, place(idx)), tuple(leaves)))

    def scatter(self, value: Any, *chosen: Any) -> None:
        """Assigns to what `gather` gives; of places that are the same the last value stays."""
        base, shape, place, leaves = self._chosen(*chosen)
        if any(leaf.storage is base.storage for leaf in leaves[1:]):
            raise LoopNotRecordable("an array is assigned to at places that it holds itself")
        element = self.element_to_store(self.lift(value), shape, base.storage, lambda leaf: False, WRONG_LENGTH)
        self.each(shape, lambda idx: self._put(base, place(idx), element(idx)), parallel=False)
        base.storage.written = True

    # by masks

    def assign_where(self: Any, x: LoopArray, keys: tuple[Any, ...], value: Any) -> bool:
        """`x[mask] = number`, where it is that."""
        if len(keys) > 1 or getattr(keys[0], "dtype", None) != BOOL:
            return False
        section, mask, value = self.materialize(x), self.lift(keys[0]), self.lift(value)
        if isinstance(value, LoopArray) or not isinstance(mask, LoopArray) or mask.expression.shape != section.shape:
            return False
        number = LoopNumber(self, self.element_value(value, x.dtype))
        self.assign(section, self.map("where", mask, number, self.array_of_section(section)), mask)
        return True

    def indices_of_mask(self: Any, mask: LoopArray) -> tuple[LoopArray, ...]:
        """Where a mask is True: the index along each axis, in arrays whose length is counted."""
        scope = self.body.scopes[-1]
        for known, within, found in self.masks:
            if known is mask and within is scope:
                return found  # type: ignore[no-any-return]
        expression = self.light(mask).expression
        shape, most = expression.shape, 1
        for n in shape:
            if n.greatest is None:
                raise LoopNotRecordable("a mask has no known size")
            most *= max(n.greatest, 0)
        bound = shape[0] if len(shape) == 1 else LinearExpression(most)
        memory = [self.temporary((bound,), INT64) for _ in shape]
        body, counter = self.body, self.variable(INT64)
        body.set(counter, self.zero())

        def store(idx: list[KernelValue]) -> None:
            count = body.get(counter, INT64)
            for section, i in zip(memory, idx, strict=True):  # the next one is written over it if this is False
                self._put(section, [count], i)
            body.set(counter, count + expression.element(idx).cast(BOOL).cast(INT64))

        self.each(shape, store, parallel=False)
        count = self.atom(body.get(counter, INT64), (LinearExpression(0),), (bound,))
        found = tuple(
            self.array_of_section(LoopArraySection(section.storage, section.subs, (count,))) for section in memory
        )
        self.masks.append((mask, scope, found))
        return found
