"""Loops whose going on depends on traced values: one node with a body of its own.

What the body changes is found by tracing it: it is carried. It is traced again until nothing new is found and all that
is carried keeps its type.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial, reduce
from typing import Any

import numpy as np

from ...compiler.core.types import BOOL, ArrayType, WeakType
from ...compiler.graph.control_flow import ITERATION, Loop, add_control_flow_node, cut_body_graphs_from_builder
from ...compiler.graph.graph import Value
from ...runtime.core.errors import KernelGraphError
from ..core.errors import TraceError, UnsupportedError, is_numpy_error
from ..core.object_journal import Slot
from ..core.object_model import UNSET
from ..core.pytree import Tree, flatten, unflatten
from ..functions.numpy_creation import traced_ndenumerate
from ..trace.aliasing import arrays_chosen_among, chosen_array, roots_of_array
from ..trace.failures import fail_here, has_not_failed, is_reached
from ..trace.number_kinds import (
    flag_of_operand,
    have_number_kinds_two_dtypes,
    joined_number_kinds,
    may_number_differ,
    number_kinds_of_operand,
)
from ..trace.operands import to_graph_operand
from ..trace.python_operators import COUNTER_BOUND, COUNTER_STEP, INT64_MAX, magnitude_of_dtype, magnitude_of_node
from ..trace.trace import Trace, current_trace, loop_recorder_of_trace
from ..trace.tracer import SCALAR, Tracer
from .decisions import Part, and_test, if_, is_undecided_condition, not_
from .effects import (
    Journal,
    containers_in_control_flow_value,
    write_array_value_with_journal,
)
from .rewrite import CONTINUED, PREFIX, VALUE

LONGEST = 1000  # turns that are traced one by one where a traced value may end them
MANY = 10000  # turns after which a loop that may not be reached is thought to have no end
FEW = 8  # turns for which no loop is made
Identity = tuple[int, Any]

MOST_LOOPS = 128  # of one trace that values end: they take 10 ms each to trace, and 20 to compile


ITERATORS = (zip, enumerate, reversed, map, filter, np.ndindex, np.ndenumerate, itertools.repeat, itertools.product)


class DeferredIterator:
    """A call of one of ITERATORS that a loop goes over: what that is, is still seen."""

    def __init__(self, function: Any, args: Sequence[Any], options: dict[str, Any]) -> None:
        self.function, self.args, self.options = function, args, options

    def __iter__(self) -> Iterator[Any]:
        function: Any = traced_ndenumerate if self.function is np.ndenumerate else self.function
        made: Iterator[Any] = iter(function(*self.args, **self.options))
        return made


def items(function: Any, /, *args: Any, **options: Any) -> Any:
    """`function(*args, **options)`, which a `for` goes over."""
    if current_trace() is not None and isinstance(function, type):
        kind = next((kind for kind in ITERATORS if kind == function), None)  # what stands for NumPy's is equal to it
        if kind is not None:
            return DeferredIterator(kind, args, options)
    return function(*args, **options)


def while_(test: Part, body: Part, stop: Part | None = None) -> None:
    """`while test(): body()`, until `stop()`."""
    recorder = loop_recorder_of_trace()
    if recorder is not None:
        recorder.run_while(test, body, stop)
        return
    trace = current_trace()
    if trace is None or trace.capture is None:
        _run_while_turns(test, body, stop, _go_on)
    else:
        trace.capture.run_while(test, body, stop, partial(_run_while_turns, test, body, stop))


def _run_while_turns(test: Part, body: Part, stop: Part | None, end_turn: Callable[[], None]) -> bool:
    """Returns whether a value ends it, so that it is a node."""
    for turn in itertools.count():
        _check_loop_ends(turn)
        flag = test()
        if is_undecided_condition(flag):
            _run_compiled_while_loop(flag, test, body, stop)
            return True
        if not flag:
            return False
        body()
        stopped = False if stop is None else stop()
        if is_undecided_condition(stopped):
            going = not_(stopped)
            _run_compiled_while_loop(and_test(going, test), test, body, stop)
            return True
        if stopped:
            return False
        end_turn()
    raise AssertionError


def for_(iterable: Iterable[Any], body: Callable[[Any], Any], stop: Part | None = None) -> None:
    """`for item in iterable: body(item)`, until `stop()`."""
    trace = current_trace()
    if trace is not None and trace.recorder is not None:
        trace.recorder.run_for(iterable, body, stop)
        return
    if trace is None or trace.capture is None:
        _run_for_turns(iterable, body, stop, _go_on)
    else:
        trace.capture.run_for(iterable, body, stop, partial(_run_for_turns, iterable, body, stop))


def _go_on() -> None: ...


def _run_for_turns(
    iterable: Iterable[Any], body: Callable[[Any], Any], stop: Part | None, end_turn: Callable[[], None]
) -> None:
    items = iter(iterable)
    for turn, item in enumerate(_items_left(items)):
        _check_loop_ends(turn)
        body(item)
        stopped = False if stop is None else stop()
        if is_undecided_condition(stopped):
            assert stop is not None
            _check_nobody_reads_rest(iterable)
            _run_rest_of_loop(iterable, items, body, stop, stopped)
            return
        if stopped:
            return
        end_turn()


def _items_left(iterator: Iterator[Any]) -> Iterator[Any]:
    """What it gives, without `iter(iterator)`, by which one of the user's may begin anew."""
    with suppress(StopIteration):
        while True:
            yield next(iterator)


def _check_nobody_reads_rest(iterable: Any) -> None:
    """Raises TraceError where a loop that a value ends goes over an iterator, which has a rest afterwards."""
    if isinstance(iterable, DeferredIterator):
        for part in iterable.args:
            _check_nobody_reads_rest(part)
    elif hasattr(type(iterable), "__next__"):
        raise TraceError(
            "how much a loop takes of an iterator is decided by a traced value, which is not known while tracing; loop "
            "over a list, an array or a range"
        )


def _check_loop_ends(turn: int) -> None:
    """Raises UnsupportedError for a loop that might be without end where Python does not come to it."""
    if turn > MANY and (trace := current_trace()) is not None and (trace.path or trace.loops):
        raise UnsupportedError(
            f"a loop of more than {MANY} turns, each of which is traced, may not be reached, as a traced value "
            "decides; let an array hold what decides how often it turns"
        )


def _run_compiled_while_loop(flag: Any, test: Part, body: Part, stop: Part | None) -> None:
    """`while test(): body()`, until `stop()`, of which `flag` says whether it begins."""

    def while_loop_goes_on() -> Any:
        return test() if stop is None else and_test(not_(stop()), test)

    CompiledLoop(flag._trace, while_loop_goes_on, body).run(flag)


def _run_rest_of_loop(
    iterable: Iterable[Any], items: Iterator[Any], body: Callable[[Any], Any], stop: Part, flag: Any
) -> None:
    """The rest of a loop that `stop()` may end. flag: what `stop()` is before it."""
    turns = operator.length_hint(items)
    if isinstance(iterable, range) and turns > FEW:
        number, step, last = iterable[-turns], iterable.step, iterable[-1]

        def run_range_iteration() -> None:
            nonlocal number
            body(number)
            number = number + step

        def range_loop_goes_on() -> Any:
            return and_test(not_(stop()), lambda: number <= last if step > 0 else number >= last)

        trace: Trace = flag._trace
        refusals, watched = len(trace.refusals), len(trace.watched)
        try:
            CompiledLoop(trace, range_loop_goes_on, run_range_iteration).run(not_(flag))
            return
        except KernelGraphError:  # its body needs to know which turn it is
            if turns > LONGEST:
                raise
            del trace.refusals[refusals:], trace.watched[watched:]
    for done, item in enumerate(_items_left(items)):  # one by one: a turn may change what the next ones are
        if max(done, turns) > LONGEST:
            raise TraceError(
                f"a loop of {turns or 'many'} turns that a traced value may end is not over a range; loop over "
                "range(n), and let only the number of the turn change"
            )
        if_(not_(stop()), lambda item=item: body(item), None)  # type: ignore[misc]


class CarriedLeaf:
    """One number or array that is carried: what it begins as. kinds: all that it is at some turn; the first is what it
    is held as. own: what stands for it in the body."""

    own: Tracer

    def __init__(self, trace: Trace, value: Any, name: str) -> None:
        self.name = name
        if not isinstance(value, (Tracer, np.ndarray, np.generic, bool, int, float, complex)):
            raise TraceError(
                f"{name} is {value!r} before a loop that a traced value ends, and changes in it; only arrays and "
                "numbers can"
            )
        self.value, self.operand = value, to_graph_operand(value)
        self.kinds = number_kinds_of_operand(self.operand)
        node = trace.builder.value(self.operand)
        self.start = Value(node.number, node.type)
        self.scalar = not (isinstance(value, (Tracer, np.ndarray)) and getattr(value, "_owner", None) != SCALAR)
        self.first = roots_of_value(value)
        self.given: list[Tracer] = []  # those that a turn gives
        self.ways: list[tuple[Any, list[Value]]] = []  # what a turn gives, and the flags that are set then
        self.stays: Any = None  # whether it still is the array that it begins as, at a turn, if that is asked
        self.begins = self.start, self.weak  # as it is before the first turn
        self.magnitude = max(
            COUNTER_BOUND, magnitude_of_node(trace, node.number)
        )  # of an int of Python's, at all turns
        self.is_flag_known = True  # whether a node says at each turn that it is not what it is held as
        self.flags: list[Value] = []  # before the first turn, and after one: where it may be of several kinds

    @property
    def weak(self) -> WeakType | None:
        """The type of Python's that it is of, where it is held as such a number."""
        return self.kinds[0][1]

    def typed(self, held: Value) -> Value:
        """A node as all that this may be."""
        return Value(held.number, held.type, self.weak, self.kinds[1:])

    def stand_in(self, trace: Trace) -> Tracer:
        held = trace.builder.placeholder(self.start.type)
        self.own = self.made(trace, held)
        return self.own

    def made(self, trace: Trace, held: Value) -> Tracer:
        """What stands for a node of it."""
        trace.magnitudes[held.number] = min(self.magnitude, magnitude_of_dtype(held.dtype))
        return Tracer(trace, self.typed(held), SCALAR if self.scalar else None)

    def flag(self, trace: Trace, operand: Any) -> Value | None:
        """Whether an operand is not what this is held as; None where all are, or no node says so."""
        flag = None
        if self.is_flag_known and may_number_differ(self.kinds):
            flag = flag_of_operand(trace, operand, self.typed(self.start))
            self.is_flag_known = flag is not None
        return trace.builder.const(np.bool_(flag)) if isinstance(flag, bool) else flag

    def taken(self, trace: Trace, value: Any) -> Value | None:
        """What the body gives, as the type that it takes; None where that has to be another."""
        new = to_graph_operand(value)
        node = trace.builder.value(new)
        is_flag_known = self.is_flag_known
        if node.shape != self.start.shape:
            raise UnsupportedError(
                f"{self.name} begins with shape {self.start.shape} in a loop that a traced value ends, and a turn "
                f"gives {node.shape}; begin with what it gives"
            )
        kinds = joined_number_kinds([self.operand, new], self.kinds)
        if kinds is None or have_number_kinds_two_dtypes(kinds):
            raise UnsupportedError(
                f"{self.name} begins as {self.operand_text()} in a loop that a traced value ends, and a turn gives "
                f"{node.dtype}; begin with np.{node.dtype}"
            )
        if {*kinds} != {*self.kinds} or kinds[0] != self.kinds[0]:
            self.kinds = kinds
            self.start = trace.builder.cast(self.start, kinds[0][0])
            return None
        if self.magnitude <= INT64_MAX and magnitude_of_node(trace, node.number) > self.magnitude + COUNTER_STEP:
            self.magnitude = INT64_MAX + 1  # it is no counter
            return None
        self.flags = [flag for x in (self.operand, new) if (flag := self.flag(trace, x)) is not None]
        if is_flag_known and not self.is_flag_known:
            return None
        return trace.builder.cast(Value(node.number, node.type), kinds[0][0])

    def operand_text(self) -> str:
        """What it begins as, for people."""
        return str(self.operand.dtype) if isinstance(self.operand, Value) else repr(self.operand)


class CarriedSlot:
    """A slot that the body changes, as the leaves of what it holds."""

    def __init__(self, trace: Trace, slot: Slot, value: Any) -> None:
        found: list[Any] = []
        trace.world.require_opened(value, "__dict__")
        self.slot, self.before = slot, value
        self.tree: Tree = flatten(value, found)
        self.leaves = [CarriedLeaf(trace, x, slot.name) for x in found]
        self.roots = [root for x in found for root in roots_of_value(x)]

    def put(self, trace: Trace, leaves: Sequence[Any]) -> None:
        """Puts there what stands for what it is, at a turn or after the loop."""
        made = unflatten(self.tree, leaves)
        for value in (self.before, made):
            trace.chosen.note(containers_in_control_flow_value(value))
        self.slot.put(made)


def _check_few_loops(trace: Trace) -> None:
    """Raises UnsupportedError for one loop too many, where the function may run in NumPy instead: each is traced and
    compiled for itself, which takes longer than thousands of turns of it in Python."""
    trace.loops_that_values_end += 1
    if trace.reruns and trace.loops_that_values_end > MOST_LOOPS:
        raise UnsupportedError(
            f"the function runs more than {MOST_LOOPS} loops that values end, as a recursion does; write one loop over "
            "all of the data"
        )


class CompiledLoop:
    """One loop."""

    def __init__(self, trace: Trace, goes_on: Part, body: Part) -> None:
        self.trace, self.goes_on, self.body = trace, goes_on, body
        self.carried: dict[Identity, CarriedSlot] = {}
        self.roots: dict[int, Tracer] = {}
        self.temporary: dict[Identity, Slot] = {}
        self.spoiled: dict[int, Tracer] = {}  # arrays that only the first turn writes to: later ones have another
        self.made: dict[int, Tracer] = {}  # the arrays that a turn makes

    def run(self, flag: Any) -> bool:
        trace, builder = self.trace, self.trace.builder
        _check_few_loops(trace)
        start = builder.cast(Value(flag._value.number, flag._value.type), BOOL)
        start = builder.reshape(start, ())
        if (reached := is_reached(trace)) is not True:  # elsewhere its turns might be without end
            start = builder.map("logical_and", start, reached._value)
        before, found = Journal([self.goes_on, self.body]), None
        began = len(builder.nodes)  # what an earlier attempt has made may be inside
        while found is None:
            try:
                found = self._trace_iteration(before)
            finally:
                before.undo()
        stand_ins, outputs = found
        index = trace.builder.placeholder(ITERATION)
        (cut,) = cut_body_graphs_from_builder(builder, [stand_ins], [outputs], began, index, fixed=trace.may_raise)
        loop = Loop(cut.body, len(outputs), flag=True)
        leaves = [leaf.start for leaf in self._leaves()]
        plain = [Value(r._held.number, r._held.type) for r in self.roots.values()]
        flags = [leaf.flags[0] for leaf in self._flagged_leaves()]
        flags += [builder.const(np.bool_(True)) for _ in self._staying_leaves()]
        args = [start, *leaves, *plain, *flags, *map(builder.at, (*cut.inputs, *cut.numbers))]
        self._set(start, add_control_flow_node(builder, loop, args)[1:])
        return True

    def _trace_iteration(self, before: Journal) -> tuple[list[Value], list[Value]] | None:
        """The body's stand-ins and outputs; None where it has to be traced again."""
        trace = self.trace
        stand_ins = [trace.builder.placeholder(ArrayType((), BOOL))]
        mine: list[Tracer] = []
        for carried in self.carried.values():
            made = [leaf.stand_in(trace) for leaf in carried.leaves]
            mine += made
            stand_ins += [x._held for x in made]
            carried.put(trace, made)
        for slot in self.temporary.values():
            slot.put(UNSET)
        helds = {key: root._held for key, root in self.roots.items()}
        for root in self.roots.values():
            root._held = trace.builder.placeholder(root._held.type)
            stand_ins.append(root._held)
        for leaf in self._flagged_leaves():
            stand_ins.append(trace.builder.placeholder(ArrayType((), BOOL)))
            trace.differing[leaf.own._held.number] = stand_ins[-1]
        for leaf in self._staying_leaves():
            leaf.stays = trace.builder.placeholder(ArrayType((), BOOL))
            stand_ins.append(leaf.stays)
        began = Journal([self.goes_on, self.body])
        path, trace.path = trace.path, []
        trace.loops += 1
        try:
            with began.opened(trace):
                going = self._has_next_iteration()
            changed = began.changes()
            self.made = began.made
            outputs = self._outputs(changed, going)
        finally:
            trace.loops -= 1
            trace.path = path
            began.undo_array_writes()
            for key, held in helds.items():
                self.roots[key]._held = held
        # arrays hold again what they did before the loop: what is carried from now on begins as that
        again = self._note_carried_values(before, changed, {id(x): x for x in mine}, began.written)
        return None if again or outputs is None else (stand_ins, outputs)

    def _has_next_iteration(self) -> Any:
        """Whether there is another turn after this one."""
        trace, going = self.trace, False
        try:
            self.body()
            going = and_test(has_not_failed(trace), self.goes_on)
        except Exception as error:
            if isinstance(error, KernelGraphError) and not is_numpy_error(error):
                raise
            fail_here(trace, error)
        return and_test(going, lambda: has_not_failed(trace))

    def _outputs(self, changed: dict[Identity, tuple[Slot, Any, Any]], going: Any) -> list[Value] | None:
        trace, settled = self.trace, True
        flag = going if isinstance(going, Tracer) else trace.builder.const(bool(going))
        node = flag._value if isinstance(flag, Tracer) else flag
        outputs = [trace.builder.reshape(trace.builder.cast(Value(node.number, node.type), BOOL), ())]
        for key, carried in self.carried.items():
            value = changed[key][2] if key in changed else carried.slot.held
            found: list[Any] = []
            trace.chosen.note(containers_in_control_flow_value(value))
            tree = flatten(value, found)
            if value is UNSET or tree != carried.tree:
                raise TraceError(f"{carried.slot.name} changes its structure in a loop that a traced value ends")
            for leaf, x in zip(carried.leaves, found, strict=True):
                taken = leaf.taken(trace, x)
                leaf.given = roots_of_value(x)
                leaf.ways = [*arrays_chosen_among(x)] if is_array(x) else []
                settled &= taken is not None and not self._begins_to_ask(leaf)
                outputs.append(taken or leaf.start)
        outputs += [Value(root._held.number, root._held.type) for root in self.roots.values()]
        if not settled:
            return None
        outputs += [leaf.flags[1] for leaf in self._flagged_leaves()]
        both = partial(trace.builder.map, "logical_and")
        for leaf in self._staying_leaves():
            flags = next(flags for way, flags in leaf.ways if way is leaf.own)
            outputs.append(reduce(both, [leaf.stays, *flags]))
        return outputs

    def _begins_to_ask(self, leaf: CarriedLeaf) -> bool:
        """Whether from now on a leaf's array that arguments hold, and a turn may leave, is asked whether it stays."""
        held = self.trace.holders and any(root._owner is not None for root in leaf.first)
        if leaf.stays is not None or not held or all(way is not leaf.own for way, _ in leaf.ways):
            return False
        leaf.stays = leaf.start
        return True

    def _staying_leaves(self) -> list[CarriedLeaf]:
        """What is carried of which a flag says whether it stays what it begins as."""
        return [leaf for leaf in self._leaves() if leaf.stays is not None]

    def _leaves(self) -> list[CarriedLeaf]:
        return [leaf for carried in self.carried.values() for leaf in carried.leaves]

    def _flagged_leaves(self) -> list[CarriedLeaf]:
        """What is carried that may be of several kinds, if nodes say of which."""
        return [leaf for leaf in self._leaves() if leaf.is_flag_known and may_number_differ(leaf.kinds)]

    def _note_carried_values(
        self,
        before: Journal,
        changed: dict[Identity, tuple[Slot, Any, Any]],
        mine: dict[int, Tracer],
        written: dict[int, tuple[Tracer, Value]],
    ) -> bool:
        """Adds what was found to be carried. Returns whether there was anything."""
        again = False
        for key, (slot, _, value) in changed.items():
            if key in self.carried or key in self.temporary:
                continue
            again = True
            old = before.slots[key][1] if key in before.slots else UNSET
            if slot.name.startswith(VALUE) and old is UNSET:
                old = zero_value_of_carried_leaf(self.trace, value)
            if old is UNSET or slot.name.startswith(CONTINUED):
                self.temporary[key] = slot
            else:
                self.carried[key] = CarriedSlot(self.trace, slot, old)
        for number, (root, _) in written.items():
            if number not in mine and number not in self.roots and number not in self.spoiled:
                self.roots[number] = root
                again = True
        self._spoil_written_aliases()
        if written:
            self._check_arrays_apart_after_turn(changed)
        return again

    def _spoil_written_aliases(self) -> None:
        """Arrays that are written to under a name which another turn gives to another array."""
        for carried in self.carried.values():
            for root in carried.roots:
                if self.roots.pop(id(root), None) is None and id(root) not in self.spoiled:
                    continue
                if root._owner is not None:
                    raise TraceError(
                        f"{carried.slot.name} begins as an argument that the loop writes to, and is another array "
                        f"later; write {carried.slot.name} = {carried.slot.name}.copy() before the loop"
                    )
                self.spoiled[id(root)] = root

    def _check_arrays_apart_after_turn(self, changed: dict[Identity, tuple[Slot, Any, Any]]) -> None:
        """Raises TraceError where two names have one array after a turn, and arrays are written."""
        seen: set[int] = {*self.roots}
        for key, carried in self.carried.items():
            if carried.slot.name.startswith(VALUE):  # no turn comes after it
                continue
            found: list[Any] = []
            flatten(changed[key][2] if key in changed else carried.slot.held, found)
            for root in {id(r) for x in found for r in roots_of_value(x)}:
                if root in seen:
                    raise TraceError(
                        f"{carried.slot.name} shares its memory with another array that the loop writes to; write "
                        f"{carried.slot.name} = x.copy() in the loop"
                    )
                seen.add(root)

    def _note_loop_aliases(self, after: Sequence[tuple[CarriedLeaf, Tracer]]) -> None:
        """Notes which earlier arrays each carried one may be, and which carried ones coincide."""
        leaves = {id(leaf.own): leaf for leaf, _ in after}

        def reached(leaf: CarriedLeaf) -> dict[int, Tracer]:
            """All that it may be at some turn, through decisions and other names."""
            found: dict[int, Tracer] = {}
            todo = [leaf.own]
            while todo:
                array = todo.pop()
                if id(array) not in found:
                    found[id(array)] = array
                    own = leaves.get(id(array))
                    todo += self.trace.possible_aliases(array)
                    todo += [*own.first, *own.given] if own else []
            return found

        may = [reached(leaf) for leaf, _ in after]
        pairs = []
        for i, (_, x) in enumerate(after):
            before = [r for key, r in may[i].items() if key not in leaves and key not in self.made]
            pairs += [(x, root) for root in before]
            pairs += [
                (x, y) for (_, y), other in zip(after[:i], may[:i], strict=True) if not may[i].keys().isdisjoint(other)
            ]
        self.trace.note_possible_aliases(pairs)

    def _array_after(self, leaf: CarriedLeaf, made: Tracer, start: Value, stays: Value | None) -> Tracer:
        """What is `made` of a leaf after the loop: where turns make arrays anew, or leave it, it may be what it begins
        as. start: whether there is a turn. stays: whether none has made one; None where each does."""
        first: Any = leaf.value
        if not (is_array(first) and first._parent is None and first._held.type == made._held.type):
            return made
        given = [id(way) for other in self._leaves() for way, _ in other.ways]
        own = [way for way, _ in leaf.ways if way is not leaf.own or stays is None]
        alone = all(given.count(id(way)) == 1 and way._parent is None and id(way) in self.made for way in own)
        if not alone or not self.spoiled.keys().isdisjoint(map(id, leaf.first)):
            return made
        negated = partial(self.trace.builder.map, "logical_not")
        flags = [negated(start), start] if stays is None else [stays, negated(stays)]
        found = chosen_array(self.trace, [first, made], flags)
        found._held, found._base = made._held, found._step.versions()
        return found

    def _set(self, start: Value, results: Sequence[Value]) -> None:
        """start: whether there is a turn."""
        trace, values = self.trace, iter(results)
        leaves = self._leaves()
        made = {id(leaf): leaf.made(trace, next(values)) for leaf in leaves}
        helds = [(root, next(values)) for root in self.roots.values()]
        for leaf in self._flagged_leaves():
            trace.differing[made[id(leaf)]._held.number] = next(values)
        stays = {id(leaf): next(values) for leaf in self._staying_leaves()}
        after = {id(leaf): self._array_after(leaf, made[id(leaf)], start, stays.get(id(leaf))) for leaf in leaves}
        for carried in self.carried.values():
            carried.put(trace, [after[id(leaf)] for leaf in carried.leaves])
        self._note_loop_aliases([(leaf, made[key]) for leaf in leaves if after[key := id(leaf)] is made[key]])
        for root, held in helds:
            write_array_value_with_journal(trace, root, held)
        for root in self.spoiled.values():  # nobody may look at what they hold now
            write_array_value_with_journal(trace, root, trace.builder.placeholder(root._held.type))
        for slot in self.temporary.values():
            slot.put(UNSET)
            if not slot.name.startswith(PREFIX):
                trace.half_bound.add(slot.name)


def is_array(x: Any) -> bool:
    return isinstance(x, Tracer) and x._owner != SCALAR


def roots_of_value(x: Any) -> list[Tracer]:
    """The arrays whose memory it may look at; none of what is no array."""
    return [*roots_of_array(x)] if is_array(x) else []


def zero_value_of_carried_leaf(trace: Trace, value: Any) -> Any:
    leaves: list[Any] = []
    tree = flatten(value, leaves)
    made = []
    for leaf in leaves:
        if isinstance(leaf, Tracer):
            zero = trace.builder.const(0, leaf.dtype)
            made.append(Tracer(trace, trace.builder.broadcast(zero, leaf.shape), SCALAR if not leaf.shape else None))
        else:
            made.append(leaf)
    return unflatten(tree, made)
