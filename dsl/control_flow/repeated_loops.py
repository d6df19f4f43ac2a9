"""Loops whose turns are known to repeat: one node, of a body that is traced once with a symbol for the turn's number.

What the body reads of an array by the turn is a window that moves, what it writes by the turn or appends to a list is
stacked, what it changes otherwise is carried. All else that may differ from turn to turn raises LoopNotRecordable.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any, TypeAlias

import numpy as np

from ...compiler.core.types import ArrayType, WeakType
from ...compiler.graph.control_flow import (
    ITERATION,
    Cut,
    Loop,
    Window,
    add_control_flow_node,
    cut_body_graphs_from_builder,
)
from ...compiler.graph.graph import Graph, Node, Value
from ...runtime.core.frozen import dataclass, frozen, replace
from ..core.errors import UnsupportedError
from ..core.object_journal import CONTENTS, Slot
from ..core.object_model import UNSET
from ..core.pytree import Tree, flatten, unflatten
from ..functions.gather import GatherView
from ..trace.aliasing import assign_to_tracer, roots_of_array, rows_of_tracer, select_value_by_flag, view_of_tracer
from ..trace.dispatch import METHODS
from ..trace.failures import unneeded_index_checks
from ..trace.items import key_of_every_axis
from ..trace.operands import to_graph_operand
from ..trace.trace import ROUTINE, LoopNotRecordable, Trace
from ..trace.tracer import SCALAR, Tracer
from .effects import Journal, write_array_value_with_journal
from .loops import CarriedLeaf, CarriedSlot, CompiledLoop, Identity, is_array, roots_of_value
from .rewrite import CONTINUED, PREFIX
from .turn_number import AppendedList, TurnNumber

LONGEST = 2048  # nodes of a body
SWAPPED = 3  # names that may take each other's arrays, turn by turn
LATEST = 8  # turns whose values are carried
PLAIN = (bool, int, complex, str, bytes, type(None))
Ints: TypeAlias = tuple[int, ...]
Place: TypeAlias = tuple[int, int]  # an array, and which of the parts that turns write to


@frozen
class MovingPart:
    """The part of an array that a turn looks at: `starts + t * moves`, in `steps`, of so many elements; as `shape`."""

    starts: Ints
    moves: Ints
    steps: Ints
    lengths: Ints
    shape: Ints

    def turns_behind(self, other: MovingPart) -> int | None:
        """How many turns before `other` looks at the same elements; less than none after it, None where none does."""
        if (self.moves, self.steps, self.lengths) != (other.moves, other.steps, other.lengths):
            return None
        apart = [b - a for a, b in zip(self.starts, other.starts, strict=True)]
        (turns, *rest) = {n // m if m else None for n, m in zip(apart, self.moves, strict=True) if n or m}
        even = turns is not None and not rest and all(n == m * turns for n, m in zip(apart, self.moves, strict=True))
        return turns if even else None

    def is_apart_from(self, other: MovingPart) -> bool:
        """Whether no turn of one looks at an element that any turn of the other does."""
        for a, (m, n) in enumerate(zip(self.moves, other.moves, strict=True)):
            first, second = self.starts[a], other.starts[a]
            if m == n == 0 and (first + self.lengths[a] <= second or second + other.lengths[a] <= first):
                return True
            if m == n != 0 and self.lengths[a] == other.lengths[a] == 1 and (first - second) % m:
                return True
        return False


@dataclass(slots=True)
class StackedStore:
    """What each turn assigns to a part of its own of an array. number: among those of the array."""

    root: Tracer
    number: int
    part: MovingPart
    value: Value
    before: Value


@dataclass(slots=True)
class AppendedRows:
    """What each turn appends to a list. known: for each item what it is at a turn; else value: the items as rows."""

    held: list[Any]
    known: list[Callable[[int], Any]]
    value: Value | None = None
    weak: WeakType | None = None
    is_shared: bool = False  # whether names may have these arrays, too,
    shared: Sequence[Tracer] = ()  # and those of before the loop


@dataclass(slots=True)
class BodyOnce:
    """A body that was traced: its cut, and what its results are for."""

    cut: Cut
    raw: Cut
    carried: int
    ends: list[tuple[Slot, Tree, list[Value]]]
    windows: list[tuple[Value, Window]]
    stores: list[StackedStore]
    lasts: list[tuple[Slot, Any]]
    appended: list[AppendedRows]


class RepeatedBodyLoop(CompiledLoop):
    """One loop. A turn of it is `period` turns of the user's, the first of which is `begin`; the last one is `last`."""

    may_be_routine = False  # whether it may be captured otherwise

    def __init__(
        self,
        trace: Trace,
        turns: tuple[int, int, int, bool],
        item: Callable[[Any], Any],
        body: Callable[[Any], Any],
        spoiled: Callable[[str], Any],
    ) -> None:
        """turns: begin, period, how many, and whether those just before have run. item: what the loop goes over at a
        turn of the user's; spoiled: what a name stands for that nobody may ask for."""
        super().__init__(trace, lambda: True, body)  # type: ignore[arg-type]
        self.begin, self.period, count, self.is_peeled = turns
        self.last = count - 1
        self.item, self.turn, self.spoil = item, body, spoiled
        self.stored: dict[int, Tracer] = {}  # arrays that turns write parts of
        self.parts: dict[int, list[MovingPart]] = {}  # of each
        self.grown: dict[int, list[Any]] = {}  # lists that turns append to
        self.tables: dict[tuple[str, bytes], Any] = {}  # numbers of Python's as arrays

    # a body

    def run(self, flag: Any = None) -> bool:
        """Whether it is a node now; else the first turn computes in other types than the others."""
        builder = self.trace.builder
        before = Journal([self.body])
        noticed = self._noticed()
        self.began = len(builder.nodes)
        found = None
        while found is None:
            found = self._traced_once(before, False)
        if any(node.kind == "device" for node in builder.nodes[self.began :]):
            raise LoopNotRecordable("devices exchange arrays in its body")
        again = self._traced_once(before, True)
        if again is None or not _are_same_repeated_bodies(found.raw, again.raw):
            if any(leaf.begins != (leaf.start, leaf.weak) for leaf in self._leaves()):
                return False
            raise LoopNotRecordable("its body is not the same each time it is traced")
        if self._noticed() != noticed:
            raise LoopNotRecordable("its body asks for values when the call has run")
        count = self.last + 1
        ends = [self._zero(v.type) for _, _, values in found.ends for v in values]
        carried = [leaf.start for leaf in self._leaves()] + ends
        carried += [value for store in found.stores for value in self._values_of_turns_before_first(store)]
        carried += [Value(r._held.number, r._held.type) for r in self.roots.values()]
        loop = Loop(found.cut.body, found.carried, tuple(w for _, w in found.windows), count)
        bases = [base for base, _ in found.windows]
        args = [*carried, *bases, *map(builder.at, (*found.cut.inputs, *found.cut.numbers))]
        results = add_control_flow_node(builder, loop, args)
        self._deliver(found, results, count)
        return True

    def check_length(self) -> None:
        """To be called where a trace has become long. Raises LoopNotRecordable where that is the body's."""
        if len(self.trace.builder.nodes) - self.began > LONGEST:
            self._refuse(f"a turn of it has more than {LONGEST} operations")

    def _noticed(self) -> tuple[Any, ...]:
        trace = self.trace
        return (
            len(trace.watched),
            len(trace.caught_refusals()),
            len(trace.errors),
            len(trace.holders),
        )

    def _zero(self, type: ArrayType) -> Value:
        builder = self.trace.builder
        return builder.broadcast(builder.const(0, type.dtype), type.shape)

    def _traced_once(self, before: Journal, as_it_begins: bool) -> BodyOnce | None:
        try:
            return self._trace_turn(before, as_it_begins)
        finally:
            before.undo()

    def _trace_turn(self, before: Journal, as_it_begins: bool) -> BodyOnce | None:
        """The body, traced with the symbol; None where it has to be traced again. as_it_begins: with what is carried
        as it is before the first turn."""
        trace = self.trace
        self.refused: LoopNotRecordable | None = None
        self.turn_index = trace.builder.placeholder(ITERATION)
        self.windows: dict[tuple[Any, ...], tuple[Value, Value, MovingPart]] = {}
        self.rows: list[tuple[Tracer, Tracer, int]] = []
        self.rows_of_stored: list[tuple[Tracer, int, Place | None]] = []
        self.late: dict[Place, list[Value]] = {}  # what stands for what is stored one turn before, two turns, ...
        self.stores: list[StackedStore] = []
        stand_ins: list[Value] = []
        for carried in self.carried.values():
            made = [self._stand_in(leaf, as_it_begins, stand_ins) for leaf in carried.leaves]
            carried.slot.put(unflatten(carried.tree, made))
        for slot in self.temporary.values():
            slot.put(UNSET if slot.name.startswith(PREFIX) else self.spoil(slot.name))
        self.lists = {place: AppendedList(self) for place in self.grown}
        for slot, value in before.slots.values():
            if id(value) in self.grown:
                slot.put(self.lists[id(value)])
        hidden = [*self.stored.values(), *self.spoiled.values()]
        self.helds = helds = {id(root): (root, root._held) for root in (*self.roots.values(), *hidden)}
        inputs = []
        for root in self.roots.values():
            root._held = trace.builder.placeholder(root._held.type)
            inputs.append(root._held)
        self.hidden = set[int]()
        for root in hidden:
            self._hide(root)
        mine = {id(leaf.own): leaf.own for leaf in self._leaves()}
        self.noted = began = Journal([self.body])
        self.checks = len(trace.index_checks)
        trace.loops += 1
        self.loops, self.decided = trace.loops, len(trace.path)
        trace.turn = self
        try:
            with began.opened(trace):
                for turn in range(self.period):
                    self.turn(self.item(TurnNumber(self, (self.period, self.begin + turn))))
            if self.refused is not None:
                raise self.refused
            if self._note_grown_lists(before, began):
                return None
            changed = began.changes()
            self.made = began.made
            now = [(root, root._held) for root, _ in began.written.values()]
            began.undo_array_writes()  # what is carried from now on begins as it was before the loop
            again = self._note_changes(before, changed, mine, began.written)
            for root, held in now:
                root._held = held
            return None if again else self._finished(stand_ins, inputs, changed, began.written)
        finally:
            trace.loops -= 1
            trace.turn = None
            del trace.index_checks[self.checks :]
            began.undo_array_writes()
            for store in reversed(self.stores):
                store.root._held = store.before
            for root, old in helds.values():
                root._held = old

    def _stand_in(self, leaf: CarriedLeaf, as_it_begins: bool, stand_ins: list[Value]) -> Any:
        start, weak = leaf.begins if as_it_begins else (leaf.start, leaf.weak)
        if weak in (int, complex) and not as_it_begins:
            raise LoopNotRecordable(f"{leaf.name} is a number of Python's, and another one in each turn")
        held = self.trace.builder.placeholder(start.type)
        stand_ins.append(held)
        leaf.own = Tracer(self.trace, Value(held.number, held.type, weak), SCALAR if leaf.scalar else None)
        return TurnNumber(self, None, leaf.own) if weak is float else leaf.own

    def _longer_period(self) -> int:
        """How many turns together may be alike where names take each other's arrays."""
        return self.period + 1 if self.period < SWAPPED else 0

    def _hide(self, root: Tracer) -> None:
        """Puts what nobody may read in the place of what an array is."""
        root._held = self.trace.builder.placeholder(root._held.type)
        self.hidden.add(root._held.number)

    def _note_grown_lists(self, before: Journal, began: Journal) -> bool:
        """Notes lists that a turn has appended to. Returns whether there was any."""
        grown = [
            slot.holder
            for slot, then, now in began.changed()
            if slot.key is CONTENTS and type(slot.holder) is list and _begins_with(now[1], then[1])
        ]
        for held in grown:
            if id(held) in self.grown or id(held) in before.kept:
                raise LoopNotRecordable("a list grows that has other names")
            self.grown[id(held)] = held
        return bool(grown)

    def _note_changes(
        self,
        before: Journal,
        changed: dict[Identity, tuple[Slot, Any, Any]],
        mine: dict[int, Tracer],
        written: dict[int, tuple[Tracer, Value]],
    ) -> bool:
        """Adds what was found to be carried, and to be stacked. Returns whether there was anything."""
        known = len(self.carried) + len(self.temporary)
        self._note_changed_slots(before, changed)
        again = len(self.carried) + len(self.temporary) > known
        parts: dict[int, list[MovingPart]] = {}
        for store in self.stores:
            parts.setdefault(id(store.root), []).append(store.part)
        for place, (root, _) in written.items():
            if place in parts:
                raise LoopNotRecordable("it writes to an array by its turn, and otherwise")
            if place in self.spoiled:
                raise LoopNotRecordable(
                    "it writes to an array that another one takes the place of", period=self._longer_period()
                )
            if place not in mine and place not in self.roots:
                self.roots[place] = root
                again = True
        if any(place in self.roots or place in mine for place in parts):
            raise LoopNotRecordable("it writes to an array by its turn, and otherwise", period=self._longer_period())
        again |= parts != self.parts
        self.parts, self.stored = parts, {id(store.root): store.root for store in self.stores}
        return self._spoil_arrays_of_first_turn(changed) or again

    def _spoil_arrays_of_first_turn(self, changed: dict[Identity, tuple[Slot, Any, Any]]) -> bool:
        """Sees to arrays that a turn writes to under a name which has another array afterwards. Returns whether there
        was any."""
        again = False
        began = {id(root) for carried in self.carried.values() for root in carried.roots}
        for key, carried in self.carried.items():
            found: list[Any] = []
            flatten(changed[key][2] if key in changed else None, found)
            is_swapped = any(id(root) in began or id(root) in self.roots for x in found for root in roots_of_value(x))
            for root in carried.roots:
                if id(root) not in self.stored and self.roots.pop(id(root), None) is None:
                    continue
                if is_swapped or id(root) in self.stored or not self.is_peeled or root._owner is not None:
                    text = f"{carried.slot.name} is an array that it writes to, and another one later"
                    raise LoopNotRecordable(text, None, self._longer_period() if is_swapped else 0, int(not is_swapped))
                self.spoiled[id(root)] = root  # which the turn before has made, and nobody else has
                again = True
        return again

    def _note_changed_slots(self, before: Journal, changed: dict[Identity, tuple[Slot, Any, Any]]) -> None:
        for key, (slot, _, value) in changed.items():
            if key in self.carried or key in self.temporary:
                continue
            old = before.slots[key][1] if key in before.slots else UNSET
            counted = type(value) is TurnNumber and type(old) is not float
            plain = type(value) in PLAIN or type(old) in (str, bytes, type(None))
            if old is UNSET or counted or slot.name.startswith(CONTINUED) or (plain and self.is_peeled):
                self.temporary[key] = slot
            elif plain:
                text = f"{slot.name} is a value of Python's, and another one in each turn"
                raise LoopNotRecordable(text, apart=int(not self.is_peeled))
            else:
                self.carried[key] = CarriedSlot(self.trace, slot, old)

    def _finished(
        self,
        stand_ins: list[Value],
        inputs: list[Value],
        changed: dict[Identity, tuple[Slot, Any, Any]],
        written: dict[int, tuple[Tracer, Value]],
    ) -> BodyOnce | None:
        """What the body gives; None where what it carries has other types."""
        trace, builder = self.trace, self.trace.builder
        held = {id(root) for root in self.roots.values()}
        outputs, raw = self._carried_values(changed, held)
        if outputs is None:
            return None
        ends, lasts = self._ends_of_names(changed, held)
        for value in (v for _, _, values in ends for v in values):
            outputs.append(value)
            stand_ins.append(trace.builder.placeholder(value.type))
        for store in self.stores:
            late = self.late.get((id(store.root), store.number), [])
            outputs += [store.value, *late][: len(late)]
            stand_ins += late
        rest = [Value(root._held.number, root._held.type) for root in self.roots.values()]
        carries = len(outputs) + len(rest)
        listed = set[int]()
        appended = [self._appended_rows(place, held, listed) for place in self.grown]
        rest += [store.value for store in self.stores]
        if any(rows.is_shared for rows in appended) and any(id(leaf.own) in written for leaf in self._leaves()):
            raise LoopNotRecordable("it writes to an array that a list has, too")
        rest += [rows.value for rows in appended if rows.value is not None]
        outputs += rest
        if unneeded_index_checks(trace, outputs, self.checks):
            raise LoopNotRecordable("it looks up an element that it does not need")
        windows = [*self.windows.values()]
        self._check_sources(outputs, [base for base, _, _ in windows], written)
        places = [*stand_ins, *inputs, *(p for _, p, _ in windows)]
        index = self.turn_index
        (cut,) = cut_body_graphs_from_builder(builder, [places], [outputs], self.began, index)
        (whole,) = cut_body_graphs_from_builder(builder, [places], [[*raw, *rest]], self.began, index, hoist=False)
        moving = [(base, Window(p.starts, p.steps, p.moves)) for base, _, p in windows]
        return BodyOnce(cut, whole, carries, ends, moving, self.stores, lasts, appended)

    def _carried_values(
        self, changed: dict[Identity, tuple[Slot, Any, Any]], held: set[int]
    ) -> tuple[list[Value] | None, list[Value]]:
        """What is carried after the turn, and that before it was converted; None where it has other types."""
        trace, settled = self.trace, True
        outputs: list[Value] = []
        raw: list[Value] = []
        given: dict[int, Any] = {}
        for key, carried in self.carried.items():
            if key not in changed:
                raise LoopNotRecordable(f"{carried.slot.name} changes in some turns only")
            found: list[Any] = []
            if flatten(changed[key][2], found) != carried.tree:
                raise LoopNotRecordable(f"{carried.slot.name} changes its structure")
            for leaf, x in zip(carried.leaves, found, strict=True):
                given[id(leaf.own)] = x
                if not self._is_array_of_body_turn(x, held) and not self._is_handed_on(x, held):
                    raise LoopNotRecordable(f"{carried.slot.name} shares its memory with another array")
                x = x.traced() if type(x) is TurnNumber else x
                try:
                    taken = leaf.taken(trace, x)
                except UnsupportedError as error:
                    raise LoopNotRecordable(str(error), apart=int(not self.is_peeled)) from None
                settled &= taken is not None
                outputs.append(taken or leaf.start)
                raw.append(trace.builder.value(to_graph_operand(x)))
        self._check_handed_on(given)
        return outputs if settled else None, raw

    def _is_handed_on(self, x: Any, held: set[int]) -> bool:
        """Whether it is what a name had before the turn, and no other name has it after."""
        if id(x) in held or all(leaf.own is not x for leaf in self._leaves()):
            return False
        held.add(id(x))
        return True

    def _check_handed_on(self, given: dict[int, Any]) -> None:
        """Raises LoopNotRecordable where an array of before the loop may still have a name after it. given: what takes
        the place of each stand-in."""
        for x in given.values():
            turns = 0
            while id(x) in given:
                x, turns = given[id(x)], turns + 1
                if turns > min(self.last, LATEST):
                    text = "names have arrays of before the loop after it"
                    raise LoopNotRecordable(text, period=self._longer_period())

    def _appended_rows(self, place: int, named: set[int], listed: set[int]) -> AppendedRows:
        """What a turn appends to a list. named: arrays that names have after the turn; listed: and other lists."""
        builder, items = self.trace.builder, self.lists[place].items
        rows = AppendedRows(self.grown[place], [])
        if all(type(x) in (*PLAIN, float) or (type(x) is TurnNumber and x.is_known) for x in items):
            rows.known = [x.at if type(x) is TurnNumber else partial(_same_at_turn, x) for x in items]
            return rows
        found = [x.traced() if type(x) is TurnNumber else x for x in items]
        kinds = {_kind_of_item(x) for x in found}
        if len(kinds) > 1 or None in kinds:
            raise LoopNotRecordable("a list keeps more than arrays and numbers of one type")
        held: set[int] = set()
        if not all(self._is_array_of_body_turn(x, held) or self._is_handed_on(x, held) for x in found):
            raise LoopNotRecordable("a list keeps views of an array, or an array that others have too")
        self._check_listed_once(held - named, listed)
        values = [builder.reshape(x._value, (1, *x.shape)) for x in found]
        rows.value = builder.concat(values, 0) if len(values) > 1 else values[0]
        rows.weak = found[0]._held.weak
        rows.shared = [root for leaf in self._leaves() if id(leaf.own) in held for root in leaf.first]
        rows.is_shared = bool(rows.shared) or not held.isdisjoint(named)
        return rows

    def _check_listed_once(self, held: set[int], listed: set[int]) -> None:
        """Raises LoopNotRecordable where two lists have one array. listed: those of other lists, which is added to."""
        if not held.isdisjoint(listed):
            raise LoopNotRecordable("two lists keep one array")
        listed |= held

    def _ends_of_names(
        self, changed: dict[Identity, tuple[Slot, Any, Any]], held: set[int]
    ) -> tuple[list[tuple[Slot, Tree, list[Value]]], list[tuple[Slot, Any]]]:
        """What names that a turn assigns stand for after the loop: arrays, and all else."""
        now = {key: changed[key][2] for key in self.carried if key in changed}
        known = {key: x for key, x in now.items() if type(x) is TurnNumber and x.is_known}
        ends, lasts = [], [(self.carried[key].slot, x.at(self.last)) for key, x in known.items()]
        for key, slot in self.temporary.items():
            end = self._end_of(slot, changed[key][2] if key in changed else UNSET, held)
            if isinstance(end, tuple):
                ends.append((slot, *end))
            else:
                lasts.append((slot, end))
        return ends, lasts

    def _is_array_of_body_turn(self, x: Any, held: set[int]) -> bool:
        """Whether the turn has made an array, and nothing else with its memory lives on."""
        if not is_array(x):
            return True
        root, *others = roots_of_array(x)
        row = any(root is made for made, *_ in (*self.rows, *self.rows_of_stored))
        if root._owner is not None or id(root) not in self.made or id(root) in held or row or others:
            return False
        held.add(id(root))
        return True

    def _end_of(self, slot: Slot, value: Any, held: set[int]) -> Any:
        """What a name stands for after the loop: the structure and nodes of arrays, or the value."""
        if slot.name.startswith(PREFIX):
            return UNSET
        if type(value) is TurnNumber:
            return value.at(self.last) if value.is_known else self.spoil(slot.name)
        if type(value) in (*PLAIN, float):
            return value
        found: list[Any] = []
        if value is UNSET or type(value) not in (Tracer, tuple):
            return self.spoil(slot.name)
        tree = flatten(value, found)
        if not all(type(x) is Tracer and self._is_array_of_body_turn(x, held) for x in found):
            return self.spoil(slot.name)
        if any(x._held.weak is not None or x._held.others or (not x.shape and is_array(x)) for x in found):
            return self.spoil(slot.name)
        return tree, [Value(x._value.number, x._value.type) for x in found]

    def _check_sources(
        self, outputs: Sequence[Value], bases: Sequence[Value], written: dict[int, tuple[Tracer, Value]]
    ) -> None:
        """Raises LoopNotRecordable where a turn reads what another one writes. Also where a window moves over what
        changes."""
        nodes = self.trace.builder.nodes
        changing = {number for _, root, number in self.rows if id(root) in written or id(root) in self.stored}
        stored = [(made, number) for made, number, _ in self.rows_of_stored if made._held.number not in self.hidden]
        rows = [*stored, *((made, number) for made, _, number in self.rows)]
        if changing or any(made._held.number != number for made, number in rows):
            raise LoopNotRecordable("it writes to an array that it reads by its turn")
        for values, inside in ((outputs, self.hidden), (bases, None)):
            todo, seen = [v.number for v in values], set[int]()
            while todo:
                number = todo.pop()
                if number < self.began or number in seen:
                    continue
                seen.add(number)
                if nodes[number].op == "placeholder" and (inside is None or number in inside):
                    raise LoopNotRecordable("it reads by its turn what changes from turn to turn")
                todo += nodes[number].args

    # numbers of Python's

    def number_of_turn(self, numbers: Sequence[Any]) -> Tracer:
        """What stands for one of these numbers of one type of Python's, one for each turn."""
        array = np.array(numbers, np.int64 if type(numbers[0]) is int else None)
        known = array.dtype.char, array.tobytes()
        array = self.tables.setdefault(known, array)
        base = self.trace.capture_constant(array)
        row = self._row_of_window(Tracer(self.trace, base), base, MovingPart((0,), (1,), (1,), (1,), ()), (0,))._held
        return Tracer(self.trace, Value(row.number, row.type, type(numbers[0])), SCALAR)

    # parts that move

    def part_at_turn(self, x: Tracer, key: Any) -> Any:
        """`x[key]` where the turn's number is in the key; None where it is not."""
        if not _key_has_body_turn_number(key):
            return None
        keys = key if isinstance(key, tuple) else (key,)
        part = self._moving_part(x, keys)
        root, *others = roots_of_array(x)
        if others:
            self._refuse("it looks by its turn at an array that a value has chosen")
        if id(root) in self.roots or any(leaf.own is root for leaf in self._leaves()):  # which another turn changes
            return self._part_of_changing(x, part, keys)
        if id(root) in self.stored and x is root:
            return self._part_of_stored(x, part, keys)
        return self._row_of_window(x, x._value, part, keys)

    def _row_of_window(self, x: Tracer, base: Value, part: MovingPart, keys: tuple[Any, ...]) -> Tracer:
        """A part of an array that no turn before changes. base: the array's value."""
        made = self._shaped_part(self._window(base, part), part, keys)
        if is_array(made):
            self.rows.append((made, next(iter(roots_of_array(x))), made._held.number))
        return made

    def _window(self, base: Value, part: MovingPart) -> Value:
        """What stands for a part of a value at each turn."""
        known = base.number, part.starts, part.moves, part.steps, part.lengths
        if known not in self.windows:
            self.windows[known] = base, self.trace.builder.placeholder(ArrayType(part.lengths, base.dtype)), part
        return self.windows[known][1]

    def _shaped_part(self, value: Value, part: MovingPart, keys: tuple[Any, ...]) -> Tracer:
        """What a key gives of the elements that it looks at."""
        is_number = not part.shape and not any(k is Ellipsis for k in keys)
        return Tracer(self.trace, self.trace.builder.reshape(value, part.shape), SCALAR if is_number else None)

    def _part_of_stored(self, x: Tracer, part: MovingPart, keys: tuple[Any, ...]) -> Tracer:
        """A part of an array that turns write parts of: what an earlier turn has written, or what was there before."""
        found = [(n, part.turns_behind(other)) for n, other in enumerate(self.parts[id(x)])]
        same = [(n, late) for n, late in found if late is not None]
        others = [other for (_, late), other in zip(found, self.parts[id(x)], strict=True) if late is None]
        if len(same) > 1 or not all(part.is_apart_from(other) for other in others):
            self._refuse("it writes to an array that it reads by its turn")
        number, late = same[0] if same else (0, -1)
        values = [store.value for store in self.stores if store.root is x]
        if late > 0 or (late == 0 and number < len(values)):
            value = self._value_of_turn_before(x, number, late) if late > 0 else values[number]
            made = self._shaped_part(value, part, keys)
        else:
            made = self._row_of_window(x, self.helds[id(x)][1], part, keys)
            self.rows = [row for row in self.rows if row[0] is not made]
        self.rows_of_stored.append((made, made._held.number, (id(x), number) if late == 0 else None))
        return made

    def _value_of_turn_before(self, x: Tracer, number: int, late: int) -> Value:
        """What stands for what so many turns before have stored."""
        if late > LATEST:
            self._refuse("it reads what many turns before have written")
        if self.may_be_routine:  # which goes from turn to turn sooner
            self._refuse("it reads what turns before have written", ROUTINE)
        found = self.late.setdefault((id(x), number), [])
        type = ArrayType(self.parts[id(x)][number].lengths, x.dtype)
        found += [self.trace.builder.placeholder(type) for _ in range(late - len(found))]
        return found[late - 1]

    def _values_of_turns_before_first(self, store: StackedStore) -> list[Value]:
        """What was there before the loop where turns before the first one would have stored."""
        part, builder = store.part, self.trace.builder
        count = len(self.late.get((id(store.root), store.number), ()))
        places = [[s - m * late for s, m in zip(part.starts, part.moves, strict=True)] for late in range(1, count + 1)]
        return [builder.slice(store.root._value, starts, part.steps, part.lengths) for starts in places]

    def _part_of_changing(self, x: Tracer, part: MovingPart, keys: tuple[Any, ...]) -> Tracer:
        """A part that moves over an array which another turn changes: it is found when the turn runs."""
        builder, axes = self.trace.builder, [a for a, move in enumerate(part.moves) if move]
        if any(part.lengths[a] != 1 for a in axes):
            self._refuse("it writes to an array that it reads by its turn")
        ends = zip(part.starts, part.lengths, strict=True)
        fixed = METHODS["__getitem__"](
            x, tuple(slice(None) if part.moves[a] else slice(i, i + n) for a, (i, n) in enumerate(ends))
        )
        indices = []
        for a in axes:
            at = TurnNumber(self, (part.moves[a], part.starts[a])).traced()
            indices.append(builder.reshape(at._value, (1,) * (x.ndim - len(axes))))
        rest = tuple(range(x.ndim - len(axes)))
        shape = tuple(n for a, n in enumerate(part.lengths) if a not in axes)
        view = view_of_tracer(fixed, GatherView(tuple(indices), tuple(axes), rest, shape, checked=False))
        if not part.shape and not any(k is Ellipsis for k in keys):
            return Tracer(self.trace, builder.reshape(view._value, ()), SCALAR)
        shaped: Tracer = METHODS["reshape"](view, part.shape)
        return shaped

    def store_at_body_turn(self, x: Tracer, key: Any, value: Any) -> bool:
        """`x[key] = value` where the turn's number is in the key; False where it is not."""
        if not _key_has_body_turn_number(key):
            return False
        part = self._moving_part(x, key if isinstance(key, tuple) else (key,))
        moving = [a for a, move in enumerate(part.moves) if move]
        outside = x._parent is None and x._step is None and x._owner != SCALAR and id(x) not in self.noted.made
        apart = len(moving) == 1 and part.lengths[moving[0]] == 1
        own = [store for store in self.stores if store.root is x]
        same = next((store for store in own if store.part == part), None)
        if not (outside and apart and all(part.is_apart_from(store.part) for store in own if store is not same)):
            self._refuse("it writes to parts of arrays that may be those of other turns")
        if type(value) is TurnNumber:
            value = value.traced(x)
        array = Tracer(self.trace, self._zero(ArrayType(part.shape, x.dtype)))
        METHODS["__setitem__"](array, Ellipsis if part.shape else (), value)
        made = self.trace.builder.reshape(array._value, part.lengths)
        _, before = self.noted.written.get(id(x), (x, x._held))
        made = self._value_if_reached(x, part, made, same)
        place = id(x), len(own) if same is None else same.number
        if same is not None:
            same.value = made
        else:
            self.stores.append(StackedStore(x, len(own), part, made, before))
        self._hide(x)
        for row in [row for row, _, stored in self.rows_of_stored if stored == place]:
            self._hide(row)  # which is a view of what is written
        return True

    def _value_if_reached(self, x: Tracer, part: MovingPart, value: Value, same: StackedStore | None) -> Value:
        """What a part of an array is after a store that values may have decided on. same: the one before to it."""
        trace, flags = self.trace, self.trace.path[self.decided :]
        if trace.loops != self.loops or (flags and trace.may_raise):
            self._refuse("it writes to an array by its turn where values decide whether it does")
        if not flags:
            return value
        base = self.helds[id(x)][1] if id(x) in self.helds else x._held
        old = same.value if same else self._window(base, part)
        return select_value_by_flag(trace.builder, reduce(partial(trace.builder.map, "logical_and"), flags), value, old)

    def _refuse(self, why: str, way: str = "") -> None:
        self.refused = self.refused or LoopNotRecordable(why, way=way)
        raise self.refused

    def _moving_part(self, x: Tracer, keys: tuple[Any, ...]) -> MovingPart:
        """Where a key looks, turn by turn. Raises LoopNotRecordable where that is not even."""
        if self.trace.turn is not self:
            self._refuse("a turn's number is used in another loop")
        found = [self._slices_of_key(x.shape, keys, t) for t in (0, 1, self.last)]
        (starts, *same), (second, *_), (final, *_) = found
        moves = tuple(b - a for a, b in zip(starts, second, strict=True))
        even = all(a + m * self.last == b for a, m, b in zip(starts, moves, final, strict=True))
        if not even or any(rest != same for _, *rest in found):
            self._refuse("a part of an array does not move evenly from turn to turn")
        steps, lengths, shape = same
        return MovingPart(starts, moves, steps, lengths, shape)

    def _slices_of_key(self, extents: Ints, keys: tuple[Any, ...], turn: int) -> tuple[Ints, Ints, Ints, Ints]:
        """starts, steps and lengths of a key at a turn, and the result's shape."""
        starts, lengths, shape = list[int](), list[int](), list[int]()
        axis = 0
        for entry in key_of_every_axis(keys, len(extents)):
            if entry is None:
                shape.append(1)
                continue
            n = extents[axis]
            axis += 1
            if type(entry) is slice:
                bounds = [_value_at_body_turn(x, turn) for x in (entry.start, entry.stop, entry.step)]
                if any(type(b) is not int and b is not None for b in bounds) or bounds[2] not in (None, 1):
                    self._refuse("a slice has bounds that are not known")
                start, stop, _ = slice(*bounds).indices(n)
                length = max(stop - start, 0)
                start = start if length else 0
                shape.append(length)
            else:
                start, length = _value_at_body_turn(entry, turn), 1
                if type(start) is not int or not -n <= start < n:
                    self._refuse("an index is out of bounds, or not known")
                start %= n
            starts.append(start)
            lengths.append(length)
        return tuple(starts), (1,) * len(starts), tuple(lengths), tuple(shape)

    # after the loop

    def _deliver(self, once: BodyOnce, results: Sequence[Value], count: int) -> None:
        trace, builder, values = self.trace, self.trace.builder, iter(results)
        named: list[Tracer] = []
        for carried in self.carried.values():
            made: list[Any] = []
            for leaf in carried.leaves:
                value = next(values)
                made.append(Tracer(trace, Value(value.number, value.type), SCALAR if leaf.scalar else None))
            named += made
            spoiled = any(leaf.weak is not None for leaf in carried.leaves)
            carried.slot.put(self.spoil(carried.slot.name) if spoiled else unflatten(carried.tree, made))
        for slot, tree, kept in once.ends:
            made = [Tracer(trace, v, None if v.shape else SCALAR) for v in (next(values) for _ in kept)]
            slot.put(unflatten(tree, made))
            named += made
        for _ in itertools.chain(*self.late.values()):
            next(values)
        for root in self.roots.values():
            write_array_value_with_journal(trace, root, next(values))
        for root in self.spoiled.values():  # nobody may look at what they hold now
            write_array_value_with_journal(trace, root, trace.builder.placeholder(root._held.type))
        for store in once.stores:
            whole, part = next(values), store.part
            (axis,) = (a for a, move in enumerate(part.moves) if move)
            rest = part.lengths[:axis] + part.lengths[axis + 1 :]
            rows = builder.reshape(whole, (count, *rest))
            order = [*range(1, axis + 1), 0, *range(axis + 1, len(part.lengths))]
            steps = tuple(part.moves[axis] if a == axis else 1 for a in range(len(part.lengths)))
            value = builder.permute(rows, order)
            new = builder.update(store.root._value, value, part.starts, steps)
            assign_to_tracer(store.root, Tracer(trace, new))
        for appended in once.appended:
            self._append_rows(appended, None if appended.value is None else next(values), count, named)
        for slot, last in once.lasts:
            slot.put(last)

    def _append_rows(self, rows: AppendedRows, whole: Value | None, count: int, named: Sequence[Tracer]) -> None:
        """Appends what all turns did. whole: the items of each, stacked; named: what names have after the loop."""
        trace = self.trace
        items: Sequence[Any] = [at(turn) for turn in range(count) for at in rows.known]
        if whole is not None:
            shape = whole.shape[0] * whole.shape[1], *whole.shape[2:]
            array = Tracer(trace, trace.builder.reshape(whole, shape))
            items = rows_of_tracer(array, rows.weak)
            if rows.is_shared:
                trace.note_possible_aliases([(x, array) for x in (*named, *rows.shared) if is_array(x)])
        rows.held += items


def _same_at_turn(x: Any, turn: int) -> Any:
    """What is one value at each turn."""
    return x


def _kind_of_item(x: Any) -> Any:
    """What all that is appended to a list has to have in common; None of what is no traced array or number."""
    return (x._held.type, x._held.weak, is_array(x)) if type(x) is Tracer and not x._held.others else None


def _begins_with(parts: Sequence[Any], then: Sequence[Any]) -> bool:
    """Whether a list has grown at its end."""
    return len(parts) > len(then) and all(x is y for x, y in zip(parts, then, strict=False))


def _are_same_repeated_bodies(a: Cut, b: Cut) -> bool:
    return _nodes_in_order_of_use(a.body) == _nodes_in_order_of_use(b.body) and len(a.inputs) == len(b.inputs)


def _nodes_in_order_of_use(graph: Graph) -> list[Node | int]:
    """A graph's nodes, whenever they were made, and which of them are results: constants may have been there before."""
    place: dict[int, int] = {}
    found: list[Node | int] = []
    todo = [*reversed(graph.outputs)]
    while todo:
        number = todo[-1]
        missing = [arg for arg in reversed(graph.nodes[number].args) if arg not in place]
        if missing and number not in place:
            todo += missing
            continue
        if todo.pop() not in place:
            place[number] = len(place)
            node = graph.nodes[number]
            found.append(replace(node, args=tuple(place[arg] for arg in node.args)))
    return found + [place[number] for number in graph.outputs]


def _value_at_body_turn(x: Any, turn: int) -> Any:
    if isinstance(x, np.integer) and not isinstance(x, Tracer):
        return int(x)
    if type(x) is not TurnNumber:
        return x
    return x.refuse() if x._line is None else x.at(turn)  # which moves evenly


def _key_has_body_turn_number(key: Any) -> bool:
    """Whether the turn's number is in a key."""
    return any(
        type(k) is TurnNumber or (type(k) is slice and any(type(x) is TurnNumber for x in (k.start, k.stop, k.step)))
        for k in (key if type(key) is tuple else (key,))
    )
