"""The recorder: what the body of a loop does, as statements of a routine, while the body runs once on symbols.

A name that the body assigns is a variable where it holds numbers; the body is run again until no more are found and
all keep their dtypes. Arrays are memory, so they need none of that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...compiler.core.types import BOOL, DType, real_dtype
from ...compiler.kernel.body_builder import KernelValue
from ...compiler.sequential.body import Scope
from ...compiler.sequential.form import For, If, While, blocks_in_routine_statement
from ...runtime.core.frozen import dataclass
from ..control_flow.decisions import not_
from ..control_flow.effects import Journal
from ..control_flow.rewrite import VALUE
from ..core.errors import is_raised_by_user, line_of_traceback
from ..core.object_journal import Slot
from ..core.object_model import UNSET
from ..trace.number_kinds import Kind, may_number_differ
from ..trace.python_operators import COUNTER_BOUND, COUNTER_STEP, INT64_MAX
from ..trace.trace import LoopNotRecordable, Trace
from .arithmetic import RecordedLoopArithmetic
from .growing_lists import ZERO, GrowingLists, ListsOfLoop, new_list_in_loop, note_lists_that_grew
from .iterables import (
    LoopItems,
    LoopRange,
    axes_of_indices,
    item_at_indices,
    loop_items,
)
from .kinds import (
    PLAIN,
    LoopList,
    check_loop_kind_keeps_digits,
    is_number,
    loop_kinds_of,
    magnitude_of_loop_number,
    merged_loop_kinds,
    number_kinds_after_iteration,
    zero_of_number_kind,
)
from .linear import LinearExpression, LoopIntegerAtom
from .sections import recorded_iterations_are_independent
from .short_sorts import sorted_numbers
from .values import FixedLoopError, LoopArray, LoopNumber, LoopSymbol, RecordAgain, SpoiledLoopVariable

UNROLLED = 4  # turns of an inner loop of known length that are written one after the other
NARROW = 4  # a loop whose turns are apart may have so many times fewer than each has independent ones
ATTEMPTS = 200  # at all loops of a nest together
RAISED = object()  # in place of what a side gives that raises an error
RAISABLE = (AssertionError, ValueError, RuntimeError, ArithmeticError, OverflowError, ZeroDivisionError, IndexError)
CONSTANTS = (*PLAIN, str, type(None), bytes)
Part = Callable[[], Any]


class LoopRecorder(RecordedLoopArithmetic):
    """Writes one routine."""

    def __init__(self, trace: Trace, site: Any, unrolled: int) -> None:
        """site: the code of the outermost loop's body. unrolled: turns that are written one after the other."""
        super().__init__(trace)
        self.site, self.unrolled = site, unrolled
        self.known: dict[Any, dict[str, tuple[Kind, ...]]] = {}  # body's code -> its variables
        self.spoiled: dict[Any, set[str]] = {}  # body's code -> names that hold no one kind of value
        self.growing: dict[Any, set[str]] = {}  # body's code -> names of ints that may grow as they like
        self.attempts = 0
        self.lists = GrowingLists()
        self.reached: Any = True  # whether Python comes to it
        self.level = 0  # how many loops and sides of decisions are around
        self.turn_began = 0  # how many arrays there were when the innermost turn began

    def refuse_graph_nodes(self) -> None:
        self.lists.look_for_indexed_list()
        super().refuse_graph_nodes()

    def convert(self, function: Any, args: Sequence[Any], options: dict[str, Any]) -> Any:
        """What a builtin gives of what only loops have; NotImplemented of all else."""
        x = args[0] if args and not options else None
        if function is range and not options and any(isinstance(n, LoopSymbol) for n in args):
            return LoopRange(*args)
        if function is len and isinstance(x, LoopArray):
            return x.shape[0]
        if isinstance(x, LoopList) and len(args) == 1 and any(function is f for f in (max, min, sum)):
            return x.fold(function)
        if function is sorted and len(args) == 1 and isinstance(x, (list, tuple, LoopArray)):
            return sorted_numbers(self, [*x])
        return NotImplemented

    # decisions

    def join(self, test: Any, then: Part, otherwise: Part) -> Any:
        """Both sides of a decision, of which one runs."""
        known = self.known_truth(test) if isinstance(test, LoopSymbol) else None
        if known is not None:
            return then() if known else otherwise()
        if self.trace.handlers and not self.trace.reruns:
            raise LoopNotRecordable("a try is around a decision")
        flag = self.truth(test)
        self.settle_all()
        sides, grown = [], []
        lengths = self.lists.lengths()
        for part in (then, otherwise):
            sides.append(self._record_side(part, Journal([then, otherwise])))
            if sides[-1][1] is not RAISED:
                grown.append(self.lists.lengths()[: len(lengths)])
            self.lists.set_lengths(lengths)
        if any(found != grown[0] for found in grown):
            raise LoopNotRecordable("a list grows where a value decides")
        self.lists.set_lengths(grown[0] if grown else lengths)
        (first, a, one), (second, b, two) = sides
        if a is RAISED or b is RAISED:
            return self._join_branch_that_raises(flag, sides)
        pending = []
        for key in {**one, **two}:
            slot, old, _ = one.get(key) or two[key]
            x, y = (changed[key][2] if key in changed else old for changed in (one, two))
            pending.append((slot, self._value_merged_from_blocks(x, y, first, second, slot.name)))
        result = self._value_merged_from_blocks(a, b, first, second, "what is chosen")
        self.body.add(If(flag.numbers[0], tuple(first.statements), tuple(second.statements)))
        for slot, value in pending:
            slot.put(value())
        return result()

    def _record_side(self, part: Part, before: Journal) -> tuple[Scope, Any, Any]:
        """The statements of a side, what it gives, and what it changes, which is as it was afterwards."""
        self.level += 1
        with self.block() as scope:
            given = self._branch_result_or_raise(part)
            if isinstance(given, LoopArray) and given.section is None:
                self.materialize(given)
        self.level -= 1
        note_lists_that_grew(self.lists, before)
        changes = before.changes()
        before.undo()
        return scope, given, changes

    def _branch_result_or_raise(self, part: Part) -> Any:
        """What a side gives; RAISED where it raises an error of the user's, as a call that takes it then does."""
        try:
            return part()
        except Exception as error:
            said = all(type(x) is str for x in error.args) and len(error.args) < 2
            if not said or type(error) not in RAISABLE or not is_raised_by_user(error):
                raise
            always, line = self.body.const(True, BOOL), line_of_traceback(error.__traceback__)
            self.fail_if(always, self.zero(), FixedLoopError(type(error), *error.args), line)
            return RAISED

    def _join_branch_that_raises(self, flag: KernelValue, sides: Sequence[tuple[Scope, Any, Any]]) -> Any:
        """What goes on after a decision one side of which raises an error."""
        going = [side for side in sides if side[1] is not RAISED]
        if not going:
            raise LoopNotRecordable("both sides of a decision raise an error")
        ((scope, given, changed),) = going
        pending = [(slot, self._value_kept_after_block(value, scope)) for slot, _, value in changed.values()]
        result = self._value_kept_after_block(given, scope)
        self.body.add(If(flag.numbers[0], *(tuple(side[0].statements) for side in sides)))
        for slot, value in pending:
            slot.put(value())
        return result()

    def _value_kept_after_block(self, x: Any, scope: Scope) -> Part:
        """A value of a block, to be asked for after it."""
        if not isinstance(x, LoopNumber):
            return lambda: x
        kinds = loop_kinds_of(x)
        variable = self.number_variable(kinds)
        with self.body.block(scope):
            self.assign_variable(variable, kinds, x)
        return lambda: self.read(variable, kinds, magnitude_of_loop_number(x))

    def _value_merged_from_blocks(self, a: Any, b: Any, first: Scope, second: Scope, name: str) -> Part:
        """What is `a` if the first block has run, else `b`: to be asked for after both."""
        if a is b or (type(a) is type(b) and type(a) in CONSTANTS and repr(a) == repr(b)):
            return lambda: a
        if name.startswith(VALUE) and (a is UNSET or b is UNSET):
            a, b = (zero_of_number_kind(b) if a is UNSET else a), (zero_of_number_kind(a) if b is UNSET else b)
        if a is UNSET or b is UNSET:  # Python says so where it is read
            self.trace.half_bound.add(name)
            return lambda: UNSET
        if not (is_number(a) and is_number(b)):
            return lambda: SpoiledLoopVariable(name)
        kinds = merged_loop_kinds(a, b)
        variable = self.number_variable(kinds)
        for x, scope in ((a, first), (b, second)):
            with self.body.block(scope):
                self.assign_variable(variable, kinds, self.lift(x))
        return lambda: self.read(variable, kinds, max(map(magnitude_of_loop_number, (a, b))))

    def variable(self, dtype: DType) -> int:
        self.check_dtype(dtype)
        self.variables += [real_dtype(dtype)] * (2 if dtype.kind == "c" else 1)
        return len(self.variables) - (2 if dtype.kind == "c" else 1)

    def number_variable(self, kinds: Sequence[Kind]) -> int:
        """A variable for a number, and behind it one that says whether it is not what it is held as."""
        variable = self.variable(kinds[0][0])
        if may_number_differ(kinds):
            self.variable(BOOL)
        return variable

    def assign_variable(self, variable: int, kinds: Sequence[Kind], x: Any) -> None:
        """`x`, a number, as the value of a `number_variable`."""
        dtype = kinds[0][0]
        self.body.set(variable, self.element_value(x, dtype))
        if may_number_differ(kinds):
            flag = self.differs(x, kinds[0])
            flag = self.body.const(False, BOOL) if flag is None else flag
            self.body.set(variable + 1 + (dtype.kind == "c"), flag)

    def read(self, variable: int, kinds: Sequence[Kind], magnitude: int) -> LoopNumber:
        (dtype, weak), *others = kinds
        flag = self.body.get(variable + 1 + (dtype.kind == "c"), BOOL) if may_number_differ(kinds) else None
        found = LoopNumber(self, self.body.get(variable, dtype), weak, None, others, flag)
        found.magnitude = magnitude
        return found

    # loops

    def run_for(
        self, iterable: Any, body: Callable[[Any], Any], stop: Part | None, key: Any = None, few: int | None = None
    ) -> None:
        """`for item in iterable: body(item)`, until `stop()`. key: the user's function in `body`. few: turns that are
        written one after the other."""
        axes = axes_of_indices(iterable)
        if axes:  # which have many turns together, however short each is
            few = self.unrolled if len(axes) == 1 else 1
            self._record_ndindex_loops(
                (), axes, lambda index: body(item_at_indices(self, iterable, index)), stop, few, key or body
            )
            return
        items = loop_items(iterable, self)
        if items is None:
            self._unroll_loop(iterable, body, stop)
            return
        count = items.count.known
        if count is not None and count <= (0 if stop is not None else self.unrolled if few is None else few):
            self._unroll_loop(map(items.at, map(LinearExpression, range(count))), body, stop)
            return
        self._record_loop_over_items(items, body, stop, key or body)

    def _record_ndindex_loops(
        self,
        index: tuple[Any, ...],
        axes: Sequence[Any],
        body: Callable[[Any], Any],
        stop: Part | None,
        few: int,
        key: Any,
    ) -> None:
        """The loops over `np.ndindex(*axes)`, one in another. key: the user's function in `body`."""
        if not axes:
            body(index)
            return
        length = self.linear(axes[0])
        if not length.is_at_least(0):
            raise LoopNotRecordable("a length that np.ndindex is given may be negative")
        self.run_for(
            LoopRange(0, axes[0], 1),
            lambda i: self._record_ndindex_loops((*index, i), axes[1:], body, stop, few, key),
            stop,
            key,
            few,
        )

    def _record_loop_over_items(
        self, items: LoopItems, body: Callable[[Any], Any], stop: Part | None, key: Any
    ) -> None:
        low, high = items.start, items.start + items.count

        def write_loop_over_items(loop: _LoopRecordingAttempt) -> bool:
            before, weight = (self.width, self.wide, self.meets, self.turns, len(self.touched)), self.weight
            self.width = 1.0
            with self.turns_of(low, high, parallel=False, adds=False) as (i, scope):
                turn = LoopIntegerAtom(i, (low,), (high - 1,))
                loop.enter(turn, low)
                body(items.at(LinearExpression(0, ((turn, 1),)) - low))
                until = None if stop is None else self.truth(stop()).numbers[0]
                if not loop.leave():
                    return False
            numbers = i.numbers[0], self.emit(low).numbers[0], self.emit(high).numbers[0]
            width, wide, meets, turns, touched = before
            apart = until is None and recorded_iterations_are_independent(turn, self.touched[touched:])
            if apart and (many := (high - low).greatest) is not None and many * NARROW >= self.width:
                inner = [s for s in scope.statements if blocks_in_routine_statement(s)]
                nested = len(inner) == 1 and isinstance(inner[0], For) and (inner[0].apart or inner[0].parallel)
                self.width = many * (self.width if nested else self.step)
                self.wide, self.meets = wide + self.turns - turns, meets + weight
            else:
                apart = False
            self.width = max(width, self.width)
            self.body.add(For(*numbers, tuple(scope.statements), False, until, apart))
            return True

        count = None if stop is not None else items.count
        self.settle(key, [key, *([stop] if stop else [])], write_loop_over_items, items.count.is_at_least(1), count)

    def _unroll_loop(self, iterable: Any, body: Callable[[Any], Any], stop: Part | None) -> None:
        for item in iterable:
            body(item)
            stopped = False if stop is None else stop()
            if isinstance(stopped, LoopSymbol):
                known = self.known_truth(stopped)
                if known is None:
                    raise LoopNotRecordable("a loop that is not over a long range may end early")
                stopped = known
            if stopped:
                return

    def run_while(self, test: Part, body: Part, stop: Part | None) -> None:
        """`while test(): body()`, until `stop()`."""

        def write_while_loop(loop: _LoopRecordingAttempt) -> bool:
            before, self.weight = self.weight, self.weight * 64
            self.turns += self.weight
            with self.block() as head:
                loop.enter()
                going = self.truth(test())
                if self.reached is not True:  # elsewhere its turns might be without end
                    going = going & self.truth(self.reached)
                if stop is not None:
                    going = going & self.truth(not_(stop()))
            with self.block() as scope:
                loop.enter()
                body()
                if not loop.leave():
                    return False
            self.weight = before
            self.body.add(While(tuple(head.statements), going.numbers[0], tuple(scope.statements)))
            return True

        self.settle(body, [test, body, *([stop] if stop else [])], write_while_loop, False)

    def settle(
        self,
        key: Any,
        functions: Sequence[Callable[..., Any]],
        write: Callable[[_LoopRecordingAttempt], bool],
        ran: bool,
        count: LinearExpression | None = None,
    ) -> None:
        """Writes a loop until it is known which variables it has. ran: it is known to run once or more. count: of its
        turns, where nothing ends it before."""
        if self.trace.handlers and not self.trace.reruns:
            raise LoopNotRecordable("a try is around a loop")
        self.settle_all()
        outermost = not self.level
        while True:
            before = self.turns, self.weight, self.parallel, self.width, self.wide, self.meets, self.step
            checks, touched, began = len(self.checks), len(self.touched), self.turn_began
            alive = {*self.alive}
            first, done = Journal(functions) if outermost else None, False
            with self.body.block() as attempt:
                try:
                    if outermost:
                        self.lists.place_stand_ins(self, functions)
                    loop = _LoopRecordingAttempt(self, key.__code__, Journal(functions))
                    self.level, self.turn_began = self.level + 1, len(self.storages)
                    done = write(loop)
                    self.level -= 1
                    loop.before.undo()
                    if not done:
                        loop.lists.restore_lengths()
                except RecordAgain:
                    if first is None:
                        raise
                    self.level = 0
                    for number in {*self.alive} - alive:
                        self.alive.pop(number, None)
                    first.undo()
            self.turn_began = began
            if done:
                break
            self.turns, self.weight, self.parallel, self.width, self.wide, self.meets, self.step = before
            del self.checks[checks:], self.touched[touched:]
            self.attempts += 1
            if self.attempts > ATTEMPTS:
                raise LoopNotRecordable("the types of what it carries from turn to turn do not settle")
        self.body.scopes[-1].statements += attempt.statements
        loop.after(ran)
        loop.lists.set_lengths_after_loop(count)

    def new_list(self, items: list[Any], key: Any = None) -> Any:
        """A list that may grow while loops are recorded. key: what it is known by, if not by where it is made."""
        return new_list_in_loop(self, items, key)


@dataclass(slots=True)
class _RecordedLoopName:
    """A name whose numbers are a variable."""

    slot: Slot
    before: Any
    kinds: tuple[Kind, ...]
    variable: int
    magnitude: int = COUNTER_BOUND  # what an int does not exceed at any turn
    ends: tuple[Kind, ...] = ()  # what it is behind a turn, where that assigns it

    @property
    def starts(self) -> bool:
        """Whether it has a value before the loop, or is not read unless set."""
        return is_number(self.before) or self.slot.name.startswith(VALUE)


class _LoopRecordingAttempt:
    """An attempt at a loop: its variables as far as they are known."""

    def __init__(self, recorder: LoopRecorder, code: Any, before: Journal) -> None:
        self.recorder, self.before = recorder, before
        self.known = recorder.known.setdefault(code, {})
        self.spoiled = recorder.spoiled.setdefault(code, set())
        self.grows = recorder.growing.setdefault(code, set())
        self.carried = []
        for slot, value in self.before.slots.values():
            if slot.name in self.known and slot.name not in self.spoiled:
                kinds = self.known[slot.name]
                if is_number(value):
                    kinds = number_kinds_after_iteration(loop_kinds_of(value), kinds)
                    check_loop_kind_keeps_digits(value, kinds[0])
                first = recorder.lift(value) if is_number(value) else 0
                most = INT64_MAX + 1 if slot.name in self.grows else max(COUNTER_BOUND, magnitude_of_loop_number(first))
                self.carried.append(_RecordedLoopName(slot, value, kinds, recorder.number_variable(kinds), most))
        self.lists = ListsOfLoop(recorder, code)
        for c in self.carried:
            first = recorder.lift(c.before) if is_number(c.before) else 0
            recorder.assign_variable(c.variable, c.kinds, first)

    def enter(self, turn: LoopIntegerAtom | None = None, low: LinearExpression = ZERO) -> None:
        """At the start of a turn, which has a number from `low` on, or none."""
        self.lists.enter(turn, low)
        for c in self.carried:
            self._put(c, c.kinds, c.starts)
        self._spoil_variables_of_recorded_loop()

    def _put(self, c: _RecordedLoopName, kinds: Sequence[Kind], known: bool) -> None:
        """Puts there what a name is. known: whether it has a value."""
        number = self.recorder.read(c.variable, kinds, c.magnitude) if known else SpoiledLoopVariable(c.slot.name)
        c.slot.put(number)

    def _spoil_variables_of_recorded_loop(self) -> None:
        for slot, _ in self.before.slots.values():
            if slot.name in self.spoiled:
                slot.put(SpoiledLoopVariable(slot.name))

    def leave(self) -> bool:
        """At the end of a turn: whether all that changes was known to change."""
        mine = {c.slot.identity: c for c in self.carried}
        settled, ends = self.lists.leave(), []
        note_lists_that_grew(self.recorder.lists, self.before)
        for key, (slot, old, value) in self.before.changes().items():
            c = mine.get(key)
            if not is_number(value):
                if c is not None and not c.starts and isinstance(value, SpoiledLoopVariable):
                    continue  # it was not assigned
                if slot.name not in self.spoiled:
                    self.spoiled.add(slot.name)
                    settled = False
            elif slot.name in self.spoiled:
                continue
            elif c is None:
                found = loop_kinds_of(value)
                if is_number(old):
                    found = number_kinds_after_iteration(loop_kinds_of(old), found)
                    check_loop_kind_keeps_digits(old, found[0])
                self.known[slot.name] = found
                settled = False
            else:
                c.ends = loop_kinds_of(value)
                kinds = number_kinds_after_iteration(c.kinds, c.ends)
                if is_number(c.before):
                    check_loop_kind_keeps_digits(c.before, kinds[0])
                settled &= {*kinds} == {*c.kinds} and kinds[0] == c.kinds[0]
                self.known[slot.name] = kinds
                if c.magnitude <= INT64_MAX and magnitude_of_loop_number(value) > c.magnitude + COUNTER_STEP:
                    self.grows.add(slot.name)
                    settled = False
                ends.append((c, value))
        if settled:
            for c, value in ends:
                self.recorder.assign_variable(c.variable, c.kinds, self.recorder.lift(value))
        return settled

    def after(self, ran: bool) -> None:
        """After the loop."""
        for c in self.carried:
            known = c.starts or ran
            kinds = (c.kinds[0], *(k for k in c.ends if k != c.kinds[0])) if ran and c.ends else c.kinds
            self._put(c, kinds, known)
        self._spoil_variables_of_recorded_loop()
