"""Lists of before a recorded loop whose elements its turns read or assign: the elements of one array.

Which lists these are is found by recording: the first one that is asked for the element of a turn is noted, and all
begins again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, NoReturn

import numpy as np

from ...compiler.core.types import INT64
from ..trace.aliasing import whole_array_of_rows
from ..trace.python_operators import COUNTER_BOUND, INT64_MAX
from ..trace.tracer import Tracer
from .kinds import PLAIN, LoopList, check_loop_kind_keeps_digits, is_number, loop_kinds_of
from .linear import LinearExpression
from .values import LoopArray, LoopArraySection, LoopNumber, Recorder

MOST_APART = 1024  # elements that are put into memory one by one


def is_list_of_numbers(held: Any) -> bool:
    """Whether it is a list of numbers, or of lists of as many numbers each that are apart."""
    if type(held) is not list or not held:
        return False
    if type(held[0]) is not list:
        return all(map(is_number, held))
    is_table = all(type(row) is list and row and len(row) == len(held[0]) for row in held)
    return is_table and len({*map(id, held)}) == len(held) and all(is_number(x) for row in held for x in row)


class WatchedList(list[Any]):
    """A list that tells which one it stands for where a turn asks for an element, or for one that is traced."""

    def __init__(self, items: list[Any], note: Callable[[], NoReturn]) -> None:
        super().__init__(WatchedList(x, note) if type(x) is list else x for x in items)
        self.note = note

    def __getitem__(self, key: Any) -> Any:
        if type(key) is LoopNumber or type(found := super().__getitem__(key)) is Tracer:
            self.note()
        return found

    def __setitem__(self, key: Any, value: Any) -> None:
        if type(key) is LoopNumber:
            self.note()
        super().__setitem__(key, value)


class IndexedList(LoopList):
    """A list of numbers, or of rows of such, in the memory of an array. table: the list that a row is one of."""

    __slots__ = ("element_type", "is_changed", "key", "length", "table")

    def __init__(self, recorder: Recorder, items: list[Any], key: Any, type_of: Callable[..., Any]) -> None:
        rows = items if type(items[0]) is list else [items]
        found = [type_of(kinds, 1, ()) for kinds in {loop_kinds_of(x): None for row in rows for x in row}]
        known = recorder.lists.element_types.get(key)
        self.element_type = reduce(lambda a, b: a.joined(b), found if known is None else [*found, known])
        shape = (len(items), len(items[0])) if rows is items else (len(items),)
        dtype = self.element_type.kinds[0][0]
        section = recorder.temporary([*map(LinearExpression, shape)], dtype)
        super().__init__(recorder, section, self.element_type.kinds, len(shape))
        self.table, self.key, self.is_changed, self.length = self, key, False, section.shape[0]
        flat = [x for row in rows for x in row]
        if self.kinds[0][1] is int and any(type(x) not in PLAIN or abs(x) > COUNTER_BOUND for x in flat):
            recorder.lists.large.add(key)
        recorder.assign(section, self._first_elements(items, flat, shape, dtype))

    def _first_elements(self, items: list[Any], flat: list[Any], shape: tuple[int, ...], dtype: Any) -> Any:
        recorder = self._recorder
        if all(type(x) in PLAIN for x in flat):
            if len({*map(repr, flat)}) == 1:
                return flat[0]
            constants, known = recorder.lists.constants, (dtype, shape, repr(flat))
            if known not in constants:
                with recorder.outside():
                    value = recorder.trace.capture_constant(np.array(flat, dtype).reshape(shape))
                constants[known] = Tracer(recorder.trace, value)
            return constants[known]
        whole = whole_array_of_rows(items)
        if whole is not None and whole.dtype == dtype and whole.shape == shape:
            return whole
        if len(flat) > MOST_APART:
            self._refuse_recording(f"a list of more than {MOST_APART} values is indexed by turns")
        made = recorder.temporary([*map(LinearExpression, shape)], dtype)
        for place, x in zip(np.ndindex(shape), flat, strict=True):
            index = [recorder.body.const(n, INT64) for n in place]
            recorder._put(made, index, recorder.element_value(recorder.lift(x), dtype))
        return recorder.array_of_section(made)

    def row(self, section: LoopArraySection) -> IndexedList:
        """One of its rows."""
        found = IndexedList.__new__(IndexedList)
        LoopList.__init__(found, self._recorder, section, self.kinds, self.depth - 1)
        found.table, found.length = self.table, section.shape[0]
        return found

    @property
    def magnitude(self) -> int:  # type: ignore[override]
        return INT64_MAX + 1 if self.table.key in self._recorder.lists.large else COUNTER_BOUND

    def __setitem__(self, key: Any, value: Any) -> None:
        recorder, table = self._recorder, self.table
        value = recorder.lift(value)
        if self.depth > 1 or isinstance(value, LoopArray):
            self._refuse_recording("a row of a list, or an array, is assigned to an element of a list")
        kinds = recorder.lists.joined_type(table, type(table.element_type)(loop_kinds_of(value), 1, ()), value).kinds
        check_loop_kind_keeps_digits(value, kinds[0])
        table.is_changed = True
        recorder.set_item(self, self._index(key), value)

    def put_back(self, held: list[Any], rows: Sequence[Any]) -> None:
        """Gives the list its elements, of which lists stay those that they are."""
        if self.depth == 1:
            held[:] = rows
            return
        for own, new in zip(held, rows, strict=True):
            own[:] = new
