"""Lists that turns of a recorded loop append to: the rows of one array, of which so many are there as turns have made.

How much a turn appends, and of what kind, is found by recording: what is not as expected is noted, and all begins
again.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Container, Iterator, Sequence
from functools import lru_cache, partial
from types import CellType, CodeType
from typing import Any, NoReturn

from ...compiler.core.types import INT64
from ...runtime.core.frozen import dataclass
from ..control_flow.decisions import call
from ..control_flow.effects import Journal
from ..core.object_journal import Slot
from ..trace.number_kinds import Kind
from ..trace.python_operators import COUNTER_BOUND, COUNTER_STEP, INT64_MAX
from ..trace.trace import LoopNotRecordable
from ..trace.tracer import Tracer
from .indexed_lists import IndexedList, WatchedList, is_list_of_numbers
from .kinds import (
    LoopList,
    check_loop_kind_keeps_digits,
    joined_loop_number_kinds,
    loop_kinds_of,
    magnitude_of_loop_number,
    merged_loop_kind,
)
from .linear import LinearExpression, LoopIntegerAtom
from .short_sorts import sorted_numbers
from .values import LazyLoopElements, LoopArray, LoopArraySection, LoopNumber, RecordAgain, Recorder, whole_section

ZERO = LinearExpression(0)


@dataclass(frozen=True)
class ListElementType:
    """What all elements of a list have in common: their number kinds, how deeply they nest, and their shape."""

    kinds: tuple[Kind, ...]
    depth: int
    shape: tuple[LinearExpression, ...]

    def joined(self, other: ListElementType) -> ListElementType:
        """The type of what is of one or the other. Raises LoopNotRecordable where a list cannot have both."""
        if self == other:
            return self
        if (self.depth, self.shape) != (other.depth, other.shape) or self.shape:
            raise LoopNotRecordable("a list has elements of different kinds")
        held = merged_loop_kind([self.kinds[0], other.kinds[0]])
        if any(dtype != held[0] for dtype, _ in (*self.kinds, *other.kinds)):  # an array of it has either
            raise LoopNotRecordable("a list has numbers of two dtypes")
        return ListElementType(joined_loop_number_kinds([*self.kinds, *other.kinds], held), self.depth, self.shape)


def list_element_and_type(recorder: Recorder, given: Any, began: int) -> tuple[Any, ListElementType]:
    """An element of a list as it is recorded, and its type. began: how many arrays there were when the turn began."""
    if isinstance(given, LoopList) and given.items is not None:
        return recorder.array_from(given.items), _type_of_inner_list(recorder, given.items)
    value = recorder.lift(given)
    kinds, depth = loop_kinds_of(value), 1
    shape: tuple[LinearExpression, ...] = ()
    if isinstance(value, LoopArray):
        shape = value.expression.shape
        if any(n.known is None for n in shape):
            raise LoopNotRecordable("a list has arrays of different lengths")
        if isinstance(value, LoopList):
            kinds, depth = value.kinds, value.depth + 1
        elif isinstance(given, (list, tuple)):
            raise LoopNotRecordable("a list has lists whose elements are not appended or made by a comprehension")
        storage = None if value.section is None else value.section.storage
        computed = storage is None and value.scope is recorder.body.scopes[-1]
        if not (computed if storage is None else storage.value is None and storage.number >= began):
            raise LoopNotRecordable("a list keeps views of an array, or an array that others have too")
    return value, ListElementType(kinds, depth, shape)


def _type_of_inner_list(recorder: Recorder, items: list[Any]) -> ListElementType:
    """The type of a list of these numbers as an element of another list."""
    found: ListElementType | None = None
    for item in items:
        _, one = list_element_and_type(recorder, item, 0)
        found = one if found is None else found.joined(one)
    if found is None or found.shape:
        raise LoopNotRecordable("a list has lists that are empty, or of lists")
    return ListElementType(found.kinds, 2, (LinearExpression(len(items)),))


class GrowingLists:
    """The lists of one recorded nest of loops that grow."""

    def __init__(self) -> None:
        self.element_types: dict[Any, ListElementType] = {}  # by what a list is known by from one attempt to the next
        self.constants: dict[Any, Tracer] = {}  # what lists of Python's numbers begin as
        self.large: set[Any] = set()  # of which the ints may be beyond 64 bits
        self.growth: dict[Any, tuple[LinearExpression, int]] = {}  # what turn t of a loop appends: a + b * t
        self.outside: dict[int, list[Any]] = {}  # lists of before the loops, which were seen to grow
        self.made: list[GrowingList] = []
        self.stand_ins: list[tuple[Slot, list[Any], Any]] = []
        self.before: set[int] = set()  # the lists that there were before the loops
        self.indexed: set[int] = set()  # those whose elements turns read or assign
        self.may_be_indexed = self.is_looking = False  # whether there are such; whether it is being found which

    def note_grown_list(self, held: list[Any]) -> None:
        """Note a list of Python's that has grown. Raises RecordAgain, or LoopNotRecordable."""
        if id(held) not in self.before or id(held) in self.outside:
            raise LoopNotRecordable("a list grows that has other names")
        self.outside[id(held)] = held
        raise RecordAgain

    def look_for_indexed_list(self) -> None:
        """To be called where Python asks which number a turn is. Raises RecordAgain where a list may have asked."""
        if self.may_be_indexed and not self.is_looking:
            self.is_looking = True
            raise RecordAgain

    def _note_indexed_list(self, held: list[Any]) -> NoReturn:
        self.indexed.add(id(held))
        self.is_looking = False
        raise RecordAgain

    def joined_type(self, made: GrowingList | IndexedList, own: ListElementType, value: Any) -> ListElementType:
        """The type of a list's elements, of which `value` becomes one. Raises RecordAgain where it was another one."""
        joined = own if made.element_type is None else made.element_type.joined(own)
        large = value.magnitude if isinstance(value, LoopList) else magnitude_of_loop_number(value)
        if joined.kinds[0][1] is int and large > made.magnitude + COUNTER_STEP:
            self.large.add(made.key)
            raise RecordAgain
        if joined != made.element_type:
            self.element_types[made.key] = joined
            raise RecordAgain
        return joined

    def lengths(self) -> list[LinearExpression]:
        return [made.length for made in self.made]

    def set_lengths(self, lengths: Sequence[LinearExpression]) -> None:
        """As long as they were; those that were made since stay as they are."""
        for made, length in zip(self.made, lengths, strict=False):
            made.length = length

    def place_stand_ins(self, recorder: Recorder, functions: Sequence[Callable[..., Any]]) -> None:
        """Put stand-ins where the lists of before the loops are that grow."""
        self.remove_stand_ins()
        self.stand_ins.clear()
        self.made.clear()
        self.may_be_indexed = False
        taken = Journal(functions)
        self.before = {id(slot.holder) for slot, _ in taken.rows if type(slot.holder) is list}
        appended = frozenset[str]().union(*(names_of_lists_appended_to(f.__code__) for f in functions))
        lists = [(slot, value) for slot, value in taken.slots.values() if type(value) is list]
        grow = {id(value) for slot, value in lists if isinstance(slot.holder, CellType) and slot.name in appended}
        made: dict[int, GrowingList | IndexedList | WatchedList] = {}
        for slot, value in lists:  # whatever names them
            if id(value) in grow or id(value) in self.outside:
                if id(value) in taken.kept:
                    raise LoopNotRecordable("a list grows that a tuple, or a method with a name, holds")
                if id(value) not in made:
                    made[id(value)] = GrowingList(recorder, [*value], id(value))
            elif id(value) in self.indexed:
                if id(value) not in made:
                    _check_no_other_names(value, lists, taken.kept)
                    made[id(value)] = IndexedList(recorder, value, id(value), ListElementType)
            elif type(slot.holder) is not list and is_list_of_numbers(value):
                self.may_be_indexed = True
                if self.is_looking:
                    made[id(value)] = WatchedList(value, partial(self._note_indexed_list, value))
            if id(value) in made:
                self.stand_ins.append((slot, value, made[id(value)]))
                slot.put(made[id(value)])

    def remove_stand_ins(self) -> None:
        """Put the lists of before the loops where they were."""
        for slot, value, _ in self.stand_ins:
            slot.put(value)

    def changed_lists(self) -> list[tuple[Slot, list[Any], GrowingList | IndexedList]]:
        """The lists of before the loops that have changed: what names them, and what stands for them."""
        if self.is_looking:
            raise LoopNotRecordable("Python itself asks which number a value is that differs from turn to turn")
        found = {id(held): (slot, held, made) for slot, held, made in self.stand_ins if made.is_changed}
        return [*found.values()]


def _check_no_other_names(held: list[Any], lists: Sequence[tuple[Slot, list[Any]]], kept: Container[int]) -> None:
    """Raises LoopNotRecordable where more than the names of a list hold it or one of its rows."""
    rows = {id(row) for row in held if type(row) is list}
    if any(x in kept for x in (id(held), *rows)) or any(id(x) in rows and slot.holder is not held for slot, x in lists):
        raise LoopNotRecordable("a list is indexed by turns that has other names, or whose rows have")


@lru_cache(maxsize=1024)
def names_of_lists_appended_to(code: CodeType) -> frozenset[str]:
    """The names on which `append` or `extend` is called, in functions within as well."""
    found, last = set[str](), ""
    for instruction in dis.get_instructions(code):
        if instruction.argval in ("append", "extend") and instruction.opname.startswith("LOAD_"):
            found.add(last)
        last = instruction.argval if instruction.opname.startswith("LOAD_") else ""
    inner = (names_of_lists_appended_to(c) for c in code.co_consts if isinstance(c, CodeType))
    return frozenset(found).union(*inner)


def note_lists_that_grew(lists: GrowingLists, before: Journal) -> None:
    """Raises RecordAgain, or LoopNotRecordable, where a list of Python's has grown."""
    for slot, then in before.rows:
        if type(slot.holder) is list and len(slot.holder) > len(then[1]):
            lists.note_grown_list(slot.holder)


class GrowingList(LoopList):
    """A list in the body of a recorded loop: Python's own elements while it grows nowhere deeper, else rows."""

    __slots__ = ("element_type", "held", "key", "length", "level", "own", "storage")

    def __init__(self, recorder: Recorder, items: list[Any], key: Any) -> None:
        self._recorder, self.own, self.key, self.level = recorder, items, key, recorder.level
        self.scope = recorder.body.scopes[0]
        self.storage: Any = None
        self.held = False
        self.length = LinearExpression(len(items))
        self.element_type: ListElementType | None = recorder.lists.element_types.get(key)
        recorder.lists.made.append(self)
        if self.element_type is not None:
            if self.element_type.depth > 1 and items:
                self._refuse_recording("a list of lists that is not empty grows")
            self._make_storage(len(items), self.element_type)
            for item in items:
                self._add_row(item, 0)

    def _make_storage(self, length: int, element_type: ListElementType) -> None:
        """Memory for the rows. What grows to more than this length has more, in the end."""
        self.element_type, self.length = element_type, LinearExpression(0)
        self.storage = self._recorder.temporary(
            (LinearExpression(length), *element_type.shape), element_type.kinds[0][0]
        ).storage

    # as a LoopList has them

    @property
    def items(self) -> list[Any] | None:  # type: ignore[override]
        return self.own if self.storage is None else None

    @property
    def is_changed(self) -> bool:
        return self.storage is not None

    def put_back(self, held: list[Any], rows: Sequence[Any]) -> None:
        """Gives the list that it stands for its elements."""
        held[:] = rows

    @property
    def kinds(self) -> tuple[Kind, ...]:  # type: ignore[override]
        return self._known_element_type().kinds

    @property
    def depth(self) -> int:  # type: ignore[override]
        return self._known_element_type().depth

    @property
    def magnitude(self) -> int:  # type: ignore[override]
        return INT64_MAX + 1 if self.key in self._recorder.lists.large else COUNTER_BOUND

    @property
    def section(self) -> LoopArraySection:  # type: ignore[override]
        return whole_section(self.storage, (self.length, *self._known_element_type().shape))

    @property
    def expression(self) -> LazyLoopElements:  # type: ignore[override]
        found: LazyLoopElements = self._recorder.array_of_section(self.section).expression
        return found

    def _known_element_type(self) -> ListElementType:
        if self.element_type is None or self.storage is None:
            self._refuse_recording("a list is read in a way that is not followed")
        return self.element_type

    # growing

    def append(self, value: Any, /) -> None:
        recorder = self._recorder
        if self.held:
            self._refuse_recording("a list grows that another list holds")
        if self.storage is None and self.level == recorder.level:
            self.own.append(value)
            self.length = self.length + 1
            return
        self._add_row(value, recorder.turn_began)

    def extend(self, values: Any, /) -> None:
        if not isinstance(values, (list, tuple)):
            self._refuse_recording("a list is extended by more than a list")
        for value in [*values]:
            self.append(value)

    def sort(self) -> None:
        for i, x in enumerate(sorted_numbers(self._recorder, [*self])):
            self[i] = x

    def __iadd__(self, values: Any) -> GrowingList:
        self.extend(values)
        return self

    def _add_row(self, given: Any, began: int) -> None:
        recorder = self._recorder
        value, own = list_element_and_type(recorder, given, began)
        if self.storage is None and not self.own and self.element_type is None:
            recorder.lists.element_types[self.key] = own
            self._make_storage(0, own)
        joined = recorder.lists.joined_type(self, own, value)
        if self.storage is None:
            recorder.lists.element_types[self.key] = joined
            raise RecordAgain
        most = (self.length + 1).greatest
        if most is None:
            self._refuse_recording("a list grows to no known length")
        self.storage.shape = (max(self.storage.shape[0], most), *self.storage.shape[1:])
        whole = self.section
        subs = ((self.length, 0, -1), *((start, step, axis - 1) for start, step, axis in whole.subs[1:]))
        target = LoopArraySection(self.storage, subs, whole.shape[1:])
        if isinstance(value, LoopArray):
            if isinstance(given, GrowingList):
                given.held = True
            recorder.materialize(value).storage.frozen = "an array that a list holds is assigned to"
            recorder.assign(target, value)
        else:
            check_loop_kind_keeps_digits(value, joined.kinds[0])
            recorder._put(target, [], recorder.element_value(value, joined.kinds[0][0]))
        self.length = self.length + 1

    # reading

    @property
    def shape(self) -> tuple[Any, ...]:
        return (self._recorder.extent(self.length), *(() if self.element_type is None else super().shape[1:]))

    def __len__(self) -> int:
        n = self.length.known
        if n is None:
            self._refuse_recording("len() of a list whose length differs from turn to turn")
        return n

    def __iter__(self) -> Iterator[Any]:
        return iter(self.own) if self.storage is None else super().__iter__()

    def __getitem__(self, key: Any) -> Any:
        if self.storage is None:
            if self.level != self._recorder.level and isinstance(key, LoopNumber):
                self._expect_growth()
            return self.own[key]
        return super().__getitem__(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        if self.held:
            self._refuse_recording("a list is changed that another list holds")
        if self.storage is None:
            if self.level != self._recorder.level:
                self._expect_growth()
            self.own[key] = value
        else:
            super().__setitem__(key, value)

    def _expect_growth(self) -> None:
        """Record again with the elements as rows of an array. Raises LoopNotRecordable, or RecordAgain."""
        if not self.own:
            self._refuse_recording("a list is read before it has elements")
        recorder = self._recorder
        joined = None
        for item in self.own:
            other = list_element_and_type(recorder, item, 0)[1]
            joined = other if joined is None else joined.joined(other)
        recorder.lists.element_types[self.key] = joined
        raise RecordAgain

    def fold(self, function: Any) -> Any:
        if self.storage is None:
            return call(function, self.own)
        return super().fold(function)

    def __add__(self, other: Any) -> Any:
        return [*self.own, *other] if self.storage is None else self._refuse_operator()


# how much a loop appends


class ListsOfLoop:
    """The lists that a loop finds, and what its turns append to them."""

    def __init__(self, recorder: Recorder, code: CodeType) -> None:
        self.recorder, self.code = recorder, code
        self.starts = [(made, made.length) for made in recorder.lists.made]
        self.turn: tuple[LoopIntegerAtom, LinearExpression] | None = None
        self.begins: list[LinearExpression] = []

    def enter(self, turn: LoopIntegerAtom | None = None, low: LinearExpression = ZERO) -> None:
        """At the start of a turn, of a loop that begins at `low`; without a number it may append nothing."""
        self.turn = None if turn is None else (turn, low)
        for made, start in self.starts:
            a, b = self._expected_growth(made)
            if turn is not None and (a != ZERO or b):
                number = LinearExpression(0, ((turn, 1),)) - low
                made.length = start + self._growth_after(a, b, number)
        self.begins = [made.length for made, _ in self.starts]

    def leave(self) -> bool:
        """At the end of a turn: whether it has appended what was expected."""
        settled = True
        for (made, _), begin in zip(self.starts, self.begins, strict=True):
            grown = made.length - begin
            if self.turn is None:
                if grown != ZERO:
                    raise LoopNotRecordable("a list grows in a loop that a value may end")
                continue
            turn, low = self.turn
            b = dict(grown.terms).get(turn, 0)
            a = grown - LinearExpression(0, ((turn, b),)) + low * b if b else grown
            if any(atom.order > turn.order for atom, _ in a.terms):
                raise LoopNotRecordable("how much a list grows in a turn differs in a way that is not followed")
            if (a, b) != self._expected_growth(made):
                self.recorder.lists.growth[self.code, made.key] = a, b
                settled = False
        return settled

    def restore_lengths(self) -> None:
        """Give the lists their lengths of before the loop, for another attempt."""
        for made, start in self.starts:
            made.length = start
        del self.recorder.lists.made[len(self.starts) :]

    def set_lengths_after_loop(self, count: LinearExpression | None) -> None:
        """Set how long the lists are after the loop, of so many turns; None: a value may end it."""
        for made, start in self.starts:
            a, b = self._expected_growth(made)
            made.length = start
            if a != ZERO or b:
                if count is None:
                    raise LoopNotRecordable("a list grows in a loop that a value may end")
                count = count if count.is_at_least(0) else self.recorder.greatest(count, LinearExpression(0))
                made.length = start + self._growth_after(a, b, count)

    def _expected_growth(self, made: GrowingList) -> tuple[LinearExpression, int]:
        found: tuple[LinearExpression, int] = self.recorder.lists.growth.get((self.code, made.key), (ZERO, 0))
        return found

    def _growth_after(self, a: LinearExpression, b: int, turns: LinearExpression) -> LinearExpression:
        """What so many turns append."""
        recorder, most = self.recorder, turns.greatest
        if a.known is not None:
            found = turns * a.known
        elif turns.known is not None:
            found = a * turns.known
        else:
            each = a.greatest
            highs = () if most is None or each is None else (LinearExpression(most * each),)
            found = recorder.atom(recorder.emit(a) * recorder.emit(turns), (ZERO,), highs)
        if not b:
            return found
        if turns.known is not None:
            return found + b * (turns.known * (turns.known - 1) // 2)
        n = recorder.emit(turns)
        pairs = (n * (n - 1)).quot(recorder.body.const(2, INT64))
        highs = () if most is None else (LinearExpression(most * (most - 1) // 2),)
        before: LinearExpression = recorder.atom(pairs, (ZERO,), highs)  # of the turns
        return found + before * b


def new_list_in_loop(recorder: Recorder, items: list[Any], key: Any) -> GrowingList:
    """A list that may grow, known by where in the code it is made."""
    frame = sys._getframe(3)
    return GrowingList(recorder, items, (frame.f_code, frame.f_lasti) if key is None else key)
