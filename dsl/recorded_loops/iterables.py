"""What loops go over, `zip` and its like one in another: how many items there are, and which one stands where."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from math import prod
from typing import Any

import numpy as np

from ...runtime.core.frozen import dataclass
from ..control_flow.loops import FEW, DeferredIterator
from ..control_flow.turn_number import NUMBERS, container_kind, item_at_turn
from ..trace.aliasing import rows_of_tracer
from ..trace.number_kinds import Kind
from ..trace.operands import to_traced_array
from ..trace.trace import LoopNotRecordable
from ..trace.tracer import Tracer
from .growing_lists import GrowingList
from .kinds import LoopList
from .linear import LinearExpression
from .values import LoopArray, Recorder


@dataclass(frozen=True)
class LoopItems:
    """How many items there are, and which is at a place, counted from 0.

    start: what is added to the place, so that the turn is the item."""

    count: Any
    at: Callable[[Any], Any]
    start: LinearExpression = LinearExpression(0)


class LoopRange:
    """A `range` whose ends differ from turn to turn."""

    def __init__(self, *args: Any) -> None:
        self.start, self.stop, self.step = (0, *args, 1) if len(args) == 1 else (*args, 1)[:3]
        if type(self.step) is not int or self.step == 0:
            raise LoopNotRecordable("the step of a range differs from turn to turn")

    def __iter__(self) -> Iterator[Any]:
        raise LoopNotRecordable("a range whose length differs from turn to turn is used outside of a for")

    def __len__(self) -> int:
        raise LoopNotRecordable("len() of a range whose length differs from turn to turn")


def count_loop_items(iterable: Any) -> int | None:
    """How many items a loop outside of all recorded ones goes over; None of what is not followed."""
    if isinstance(iterable, DeferredIterator) and iterable.function in (np.ndindex, np.ndenumerate):
        shape = axes_of_indices(iterable)
        return prod(shape) if shape and all(type(n) is int and n >= 0 for n in shape) else None
    items = loop_items(iterable)
    return None if items is None else items.count


def goes_over_list(iterable: Any) -> bool:
    """Whether some of the items are those of a list or a tuple."""
    if isinstance(iterable, DeferredIterator):
        return iterable.function in (zip, enumerate, reversed) and any(map(goes_over_list, iterable.args))
    return issubclass(type(iterable), (list, tuple))


def is_array(x: Any) -> bool:
    """Whether its rows may be a loop's items."""
    return type(x) is Tracer or (type(x) is np.ndarray and x.dtype.kind in "biufc")


def axes_of_indices(iterable: Any) -> Sequence[Any]:
    """The lengths of the axes whose indices are the items; none where these are no indices."""
    if not isinstance(iterable, DeferredIterator) or iterable.options:
        return ()
    args = iterable.args
    if iterable.function is np.ndenumerate:
        return args[0].shape if len(args) == 1 and (is_array(args[0]) or isinstance(args[0], LoopArray)) else ()
    if iterable.function is np.ndindex:
        return args[0] if len(args) == 1 and isinstance(args[0], tuple) else args
    return ()


def item_at_indices(recorder: Recorder, iterable: DeferredIterator, index: tuple[Any, ...]) -> Any:
    """What a loop over indices goes over at one of them."""
    return index if iterable.function is np.ndindex else (index, recorder.lift(iterable.args[0])[index])


def loop_items(iterable: Any, recorder: Recorder | None = None) -> LoopItems | None:
    """What a loop goes over; None of what is not followed.

    recorder: of the loop within which it is recorded, or as which: counts and places are linear then. Else counts are
    ints, and a place may be a turn's number."""
    if isinstance(iterable, (range, LoopRange)):
        return _loop_items_of_range(iterable, recorder)
    is_of_loop = recorder is not None and isinstance(iterable, LoopArray)
    if is_of_loop and isinstance(iterable, GrowingList) and iterable.storage is None:
        return None
    if is_of_loop or (is_array(iterable) and iterable.ndim):
        return _loop_items_of_array(iterable, recorder)
    if recorder is None and issubclass(type(iterable), (list, tuple)):
        return _loop_items_of_list(iterable)
    return _loop_items_of_iterator(iterable, recorder) if isinstance(iterable, DeferredIterator) else None


def _loop_items_of_iterator(iterable: DeferredIterator, recorder: Recorder | None) -> LoopItems | None:
    function, args, options = iterable.function, iterable.args, iterable.options
    if not _is_recordable_loop_iterator(function, args, options):
        return None
    linear, extent, least = (
        (_same, _same, min) if recorder is None else (recorder.linear, recorder.extent, recorder.least)
    )
    if function is repeat:
        return LoopItems(linear(args[1]), lambda k: args[0])
    parts = [loop_items(x, recorder) for x in (args if function is zip else args[:1])]
    found = [part for part in parts if part is not None]
    if not 0 < len(found) == len(parts):
        return None
    first, count = found[0], found[0].count
    if function is zip:
        if options.get("strict") and any(part.count != count for part in found):
            return None
        for part in found[1:]:
            count = least(count, part.count)
        return LoopItems(count, lambda k: tuple(part.at(k) for part in found), first.start)
    if function is enumerate:
        start = linear([*args, *options.values(), 0][1])
        return LoopItems(count, lambda k: (extent(start + k), first.at(k)), first.start)
    return LoopItems(count, lambda k: first.at(count - 1 - k))


def _same(x: Any) -> Any:
    return x


def _is_recordable_loop_iterator(function: Any, args: Sequence[Any], options: dict[str, Any]) -> bool:
    if function is zip:
        return all(name == "strict" and type(value) is bool for name, value in options.items())
    if function is repeat:
        return not options and len(args) == 2 and type(args[1]) is int and args[1] >= 0
    if function is enumerate:
        return len(args) + len(options) in (1, 2) and [*options] in ([], ["start"]) and len(args) > 0
    return function is reversed and len(args) == 1 and not options and not isinstance(args[0], DeferredIterator)


def _loop_items_of_range(given: range | LoopRange, recorder: Recorder | None) -> LoopItems | None:
    if recorder is None:
        return LoopItems(len(given), lambda k: given.start + k * given.step) if isinstance(given, range) else None
    start, stop, step = recorder.linear(given.start), recorder.linear(given.stop), given.step
    span, size = (stop - start, step) if step > 0 else (start - stop, -step)
    if size == 1:
        count = span
    elif span.known is not None:
        count = LinearExpression(max(0, -(-span.known // size)))
    else:
        count = recorder.linear(recorder.map("floor_divide", recorder.extent(span + (size - 1)), size))
    return LoopItems(count, lambda k: recorder.extent(start + k * step), start if step == 1 else LinearExpression(0))


def _loop_items_of_array(given: Any, recorder: Recorder | None) -> LoopItems | None:
    if recorder is None:
        return LoopItems(len(given), lambda k: (given if type(k) is int else to_traced_array(given))[k])
    array = recorder.lift(given)
    if not array.ndim:
        return None
    recorder.materialize(array)
    return LoopItems(array.expression.shape[0], lambda k: array[recorder.extent(k)])


def _loop_items_of_list(given: Any) -> LoopItems | None:
    """Numbers of one type of Python's, or tuples of such."""
    if len(given) <= FEW or container_kind(type(given)) not in (list, tuple) or not _are_numbers_of_one_type(given):
        return None
    return LoopItems(len(given), lambda k: given[k] if type(k) is int else item_at_turn(given, k))


def _are_numbers_of_one_type(values: Sequence[Any]) -> bool:
    kind, *others = {type(x) for x in values}
    if others or kind in NUMBERS:
        return not others
    is_table = container_kind(kind) is tuple and len({*map(len, values)}) == 1
    return is_table and all(map(_are_numbers_of_one_type, zip(*values, strict=True)))


LARGEST = 1 << 20  # elements that a list of lists outside of loops may have


def list_of_collected_rows(array: Tracer, made: LoopList) -> list[Any]:
    """A list of the loop as one of Python's, of rows of the array that holds it."""
    sizes = [n.known or 0 for n in made.expression.shape]
    if made.depth > 1 and prod(sizes[: made.depth]) > LARGEST:
        raise LoopNotRecordable(f"a list of lists has more than {LARGEST} elements")
    (_, weak), *others = made.kinds
    return _rows_as_lists(array, weak, others, made.depth)


def _rows_as_lists(array: Tracer, weak: Any, others: Sequence[Kind], depth: int) -> list[Any]:
    rows = rows_of_tracer(array, weak, others)
    return rows if depth == 1 else [_rows_as_lists(row, weak, others, depth - 1) for row in rows]
