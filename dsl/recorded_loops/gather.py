"""Arrays as indices in a recorded loop: elements are read where they lie, and masks become the places of True."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...compiler.core.types import BOOL, INT64
from ...compiler.kernel.body_builder import KernelValue
from ...compiler.sequential.form import If
from ...runtime.core.frozen import dataclass
from ..trace.items import key_of_every_axis
from ..trace.trace import LoopNotRecordable
from ..trace.tracer import Tracer
from .items import loop_section_of_key, slice_start_step_and_length
from .linear import LinearExpression
from .values import FixedLoopError, LazyLoopElements, LoopArray, LoopArraySection, LoopIndexError, LoopNumber, Recorder

WRONG_LENGTH = FixedLoopError(ValueError, "shape mismatch: the values could not be broadcast to the indexing result")


@dataclass(frozen=True)
class GatheredLoopElements:
    """Which elements of a section arrays choose.

    base: the section, with an axis for each array; arrays: by that axis, of one shape, and whether it may be out of
    range. shape: of the result; at, count: which of its axes are the arrays'."""

    base: LoopArraySection
    arrays: tuple[tuple[int, LazyLoopElements, bool], ...]
    shape: tuple[LinearExpression, ...]
    at: int
    count: int

    def axes(self) -> list[int]:
        """For each axis of the base that of the result; behind those the arrays."""
        own = {axis: len(self.shape) + i for i, (axis, _, _) in enumerate(self.arrays)}
        others = iter([n for n in range(len(self.shape)) if not self.at <= n < self.at + self.count])
        return [own[axis] if axis in own else next(others) for axis in range(len(self.base.shape))]

    def element_index(self, recorder: Recorder) -> Callable[[Sequence[KernelValue]], list[KernelValue]]:
        """Gives where an element of the result lies in the base."""
        axes, rank = self.axes(), len(self.shape)
        indices = [
            _loop_indices_counted_from_zero(recorder, e, self.base.shape[axis], unsure)
            for axis, e, unsure in self.arrays
        ]

        def index_in_base(idx: Sequence[KernelValue]) -> list[KernelValue]:
            mine = idx[self.at : self.at + self.count]
            return [idx[a] if a < rank else indices[a - rank](mine) for a in axes]

        return index_in_base


def loop_key_has_index_arrays(key: Any) -> bool:
    """Whether an array, or a list, is among the indices."""
    return any(map(_is_index_array, _items_of_key(key)))


def _is_index_array(item: Any) -> bool:
    if type(item) in (LoopArray, Tracer, np.ndarray):
        return item.ndim > 0  # type: ignore[no-any-return]
    return isinstance(item, list)


def has_changing_step(key: Any) -> bool:
    """Whether the step of a slice among the indices is a number of the turn's."""
    return any(isinstance(item, slice) and type(item.step) is LoopNumber for item in _items_of_key(key))


def _items_of_key(key: Any) -> list[Any]:
    return list(key) if isinstance(key, tuple) else [key]


def record_gather_in_loop(recorder: Recorder, section: LoopArraySection, key: Any) -> LoopArray:
    """`section[key]` with arrays in the key: elements that are read when they are needed. Raises LoopNotRecordable."""
    found = _parse_gather_key_in_loop(recorder, section, key)
    base, moved, index = found.base, found.axes(), found.element_index(recorder)
    leaf = LoopArraySection(
        base.storage,
        tuple((start, step, moved[axis] if axis >= 0 else -1) for start, step, axis in base.subs),
        (*found.shape, *(base.shape[axis] for axis, _, _ in found.arrays)),
    )
    leaves = [leaf]
    axes = [*range(found.at, found.at + found.count)]
    for _, e, _ in found.arrays:
        leaves += recorder.reindexed(e, found.shape, lambda idx: [idx[a] for a in axes], axes).leaves
    return LoopArray(
        recorder,
        LazyLoopElements(found.shape, base.storage.dtype, lambda idx: recorder.load(base, index(idx)), tuple(leaves)),
    )


def record_scatter_in_loop(recorder: Recorder, section: LoopArraySection, key: Any, value: Any) -> None:
    """`section[key] = value` with arrays in the key, or a step; of places that are the same the last value stays."""
    storage = section.storage
    if storage.frozen:
        raise LoopNotRecordable(storage.frozen)
    value = recorder.lift(value)
    if not isinstance(value, LoopArray) and _record_masked_store_in_loop(recorder, section, key, value):
        return
    found = _parse_gather_key_in_loop(recorder, section, key)
    if any(leaf.storage is storage for _, e, _ in found.arrays for leaf in e.leaves):
        raise LoopNotRecordable("an array is assigned to at places that it holds itself")
    index = found.element_index(recorder)
    if isinstance(value, LoopArray):
        if value.section is not None and value.section.storage is storage:
            value = recorder.copied(value)
        elif value.expression.heavy or any(leaf.storage is storage for leaf in value.expression.leaves):
            recorder.materialize(value)
        scattered_scalar_in_loop = recorder.broadcast(value.expression, found.shape, WRONG_LENGTH).element
    else:
        scalar = recorder.element_value(value, storage.dtype)

        def scattered_scalar_in_loop(idx: Sequence[KernelValue]) -> KernelValue:
            return scalar  # type: ignore[no-any-return]

    recorder.settle_readers(storage)

    recorder.each(
        found.shape, lambda idx: recorder._put(found.base, index(idx), scattered_scalar_in_loop(idx)), parallel=False
    )
    storage.written = True


def _record_masked_store_in_loop(recorder: Recorder, section: LoopArraySection, key: Any, value: Any) -> bool:
    """`section[mask] = number`, if it is that."""
    item = key[0] if isinstance(key, tuple) and len(key) == 1 else key
    mask = recorder.lift(item) if _is_index_array(item) else None
    if not isinstance(mask, LoopArray) or mask.dtype != BOOL or mask.ndim != len(section.shape):
        return False
    mask = recorder.light(mask)
    if mask.expression.shape != section.shape:
        return False
    if any(leaf.storage is section.storage and not leaf.same_elements(section) for leaf in mask.expression.leaves):
        recorder.materialize(mask)
    element = mask.expression.element
    scalar = recorder.element_value(value, section.storage.dtype)
    recorder.settle_readers(section.storage, mask)

    def store_where_mask_holds_in_loop(idx: Sequence[KernelValue]) -> None:
        recorder._put(section, idx, recorder.body.select(element(idx), scalar, recorder.load(section, idx)))

    recorder.each(section.shape, store_where_mask_holds_in_loop, recorder._innermost_axis_of_target(section))
    section.storage.written = True
    if mask.section is None:  # what it was computed from is gone
        recorder.forget(mask)
    return True


@dataclass(frozen=True)
class _IndexArray:
    """An array among the indices. unsure: whether it may be out of range."""

    array: LoopArray
    unsure: bool


def _parts_of_key_in_loop(recorder: Recorder, section: LoopArraySection, key: Any) -> list[Any]:
    """The items of a key, its arrays as `_IndexArray`s; a mask is one for each of its axes."""
    items = _items_of_key(key)
    parts: list[Any] = []
    for item in items:
        if has_changing_step(item):
            parts.append(_IndexArray(_indices_of_slice(recorder, item, section, items), False))
            continue
        if not _is_index_array(item):
            parts.append(item)
            continue
        array = recorder.lift(item)
        if not isinstance(array, LoopArray) or array.dtype.kind not in "biu":
            raise LoopNotRecordable("an index is no array of integers or booleans")
        if array.dtype.kind != "b":
            parts.append(_IndexArray(recorder.light(array), True))
            continue
        _check_mask_shape_in_loop(array, section, parts, items)
        parts += [_IndexArray(index, False) for index in record_indices_of_loop_mask(recorder, array)]
    return parts


def _parse_gather_key_in_loop(recorder: Recorder, section: LoopArraySection, key: Any) -> GatheredLoopElements:
    parts = key_of_every_axis(_parts_of_key_in_loop(recorder, section, key), len(section.shape))
    arrays = {i: p for i, p in enumerate(parts) if isinstance(p, _IndexArray)}
    advanced = [i for i, p in enumerate(parts) if p is not None and not isinstance(p, slice)]
    base = loop_section_of_key(recorder, section, tuple(slice(None) if i in arrays else p for i, p in enumerate(parts)))
    kept = [i for i, p in enumerate(parts) if p is None or isinstance(p, (slice, _IndexArray))]
    axes = {i: axis for axis, i in enumerate(kept)}  # of the base, for each part
    apart = advanced[-1] - advanced[0] + 1 != len(advanced)
    first = 0 if apart else sum(i < advanced[0] for i in axes)
    shape = recorder.common_shape([index.array.expression.shape for index in arrays.values()])
    chosen = []
    for i, index in arrays.items():
        wide = recorder.broadcast(index.array.expression, shape)
        if index.unsure:
            axis = sum(p is not None for p in parts[:i])
            _record_index_check_in_loop(recorder, index.array.expression, base.shape[axes[i]], axis)
        chosen.append((axes[i], wide, index.unsure))
    rest = [n for axis, n in enumerate(base.shape) if axis not in {a for a, _, _ in chosen}]
    return GatheredLoopElements(base, tuple(chosen), (*rest[:first], *shape, *rest[first:]), first, len(shape))


def _indices_of_slice(recorder: Recorder, item: slice, section: LoopArraySection, items: Sequence[Any]) -> LoopArray:
    """The places that a slice chooses, which is the only index that is no whole slice."""
    step = recorder.linear(item.step)
    if len(section.shape) != 1 or len(items) != 1 or not step.is_at_least(1):
        raise LoopNotRecordable("the step of a slice differs from turn to turn")
    start, _, length = slice_start_step_and_length(recorder, slice(item.start, item.stop), section.shape[0])
    first, size = recorder.emit(start), recorder.emit(step)
    count = recorder.atom((recorder.emit(length) + size - 1).quot(size), (LinearExpression(0),), (length,))
    return LoopArray(recorder, LazyLoopElements((count,), INT64, lambda idx: first + idx[0] * size, ()))


def _check_mask_shape_in_loop(
    mask: LoopArray, section: LoopArraySection, before: Sequence[Any], items: Sequence[Any]
) -> None:
    if any(item is Ellipsis for item in items):
        raise LoopNotRecordable("a mask is an index beside an ellipsis")
    at = sum(p is not None for p in before)
    if section.shape[at : at + mask.ndim] != mask.expression.shape:
        raise LoopNotRecordable("the shapes of a mask and of what it chooses from are not seen to be equal")


def _record_index_check_in_loop(recorder: Recorder, index: LazyLoopElements, n: LinearExpression, axis: int) -> None:
    """Raises NumPy's IndexError, when it runs, for the first index that is out of range."""
    length = recorder.emit(n)

    def is_index_outside_in_loop(idx: Sequence[KernelValue]) -> KernelValue:
        i = index.element(idx).cast(INT64)
        wrong: KernelValue = i >= length if index.dtype.kind == "u" else (i >= length) | (i < -length)
        return wrong

    any_wrong = LazyLoopElements(index.shape, BOOL, is_index_outside_in_loop, index.leaves)
    found = recorder.call_function(np.any, (LoopArray(recorder, any_wrong),), {})
    with recorder.block() as scope:
        error = LoopIndexError(axis, n.known)
        recorder.each(
            index.shape,
            lambda idx: recorder.fail_if(is_index_outside_in_loop(idx), index.element(idx).cast(INT64), error),
            parallel=False,
        )
    recorder.body.add(If(found.value.numbers[0], tuple(scope.statements), ()))


def _loop_indices_counted_from_zero(
    recorder: Recorder, index: LazyLoopElements, n: LinearExpression, unsure: bool
) -> Callable[[Sequence[KernelValue]], KernelValue]:
    """An index from 0 on. unsure: it may be negative."""

    def element_index_counted_in_loop(idx: Sequence[KernelValue]) -> KernelValue:
        i = index.element(idx).cast(INT64)
        if index.dtype.kind == "u" or not unsure:
            return i
        wrapped: KernelValue = recorder.body.select(i < 0, i + recorder.emit(n), i)
        return wrapped

    return element_index_counted_in_loop


def record_indices_of_loop_mask(recorder: Recorder, mask: LoopArray) -> tuple[LoopArray, ...]:
    """Where a mask is True: the index along each axis, in arrays whose length is counted."""
    scope = recorder.body.scopes[-1]
    for known, within, found in recorder.masks:
        if known is mask and within is scope:
            return found  # type: ignore[no-any-return]
    expression = recorder.light(mask).expression
    shape, most = expression.shape, 1
    for n in shape:
        if n.greatest is None:
            raise LoopNotRecordable("a mask has no known size")
        most *= max(n.greatest, 0)
    bound = shape[0] if len(shape) == 1 else LinearExpression(most)
    memory = [recorder.temporary((bound,), INT64).storage for _ in shape]
    body = recorder.body
    counter = recorder.variable(INT64)
    body.set(counter, recorder.zero())
    whole = ((LinearExpression(0), 1, 0),)

    def store_index_of_loop_mask(idx: list[KernelValue]) -> None:
        count = body.get(counter, INT64)
        for storage, i in zip(memory, idx, strict=True):  # the next one is written over it if this is False
            recorder._put(LoopArraySection(storage, whole, (bound,)), [count], i)
        body.set(counter, count + expression.element(idx).cast(BOOL).cast(INT64))

    recorder.each(shape, store_index_of_loop_mask, parallel=False)
    count = recorder.atom(body.get(counter, INT64), (LinearExpression(0),), (bound,))
    found = tuple(recorder.array_of_section(LoopArraySection(storage, whole, (count,))) for storage in memory)
    recorder.masks.append((mask, scope, found))
    return found
