"""The ways to capture a loop of the function that is traced: as a routine, or as one body for all turns."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...compiler.core.types import BOOL, INT64
from ...compiler.graph.graph import Value
from ...compiler.sequential.backwards import reverse_routines
from ...compiler.sequential.body import undefined_routine_value
from ...compiler.sequential.dead_code import routine_block_without_dead_code
from ...compiler.sequential.form import ERROR_WORDS, Routine, RoutineMemory, renumbered_routine
from ...compiler.sequential.partials import NoDerivative
from ...compiler.sequential.tangents import routine_with_tangents
from ...runtime.core.errors import KernelGraphError
from ...runtime.core.frozen import dataclass
from ...runtime.core.readable_text import with_article
from ..control_flow.effects import Journal
from ..control_flow.repeated_loops import RepeatedBodyLoop
from ..control_flow.rewrite import PREFIX
from ..core.errors import is_own_mistake
from ..core.object_journal import Slot
from ..trace.aliasing import assign_to_tracer
from ..trace.failures import fail_in_loop, is_reached
from ..trace.trace import ROUTINE, KnownLoops, LoopNotRecordable, Trace
from ..trace.tracer import SCALAR, Tracer
from .growing_lists import GrowingList
from .indexed_lists import IndexedList
from .iterables import list_of_collected_rows, loop_items
from .recorder import CONSTANTS, UNROLLED, LoopRecorder
from .values import LoopNumber, RecordAgain, SpoiledLoopVariable

MOST = 20000  # statements of one routine
PEELED = 2  # turns before a repeated body at most, which compute in other types
PIECES = 6  # that a loop is taken in, as comparisons of its turn's number are true or not
FEWEST = 3  # turns that a repeated body is for


def record_loop_as_routine(
    trace: Trace, iterable: Any, body: Callable[[Any], Any], stop: Callable[[], Any] | None, is_short: bool
) -> None:
    """Makes the loop `for item in iterable: body(item)`, until `stop()`, a node of the trace.

    is_short: loops of few turns are many. Raises LoopNotRecordable, with the loop as its site."""
    functions: list[Callable[..., Any]] = [body, *([stop] if stop else [])]
    _record_statements(
        trace, body.__code__, functions, is_short, lambda recorder: recorder.run_for(iterable, body, stop)
    )


def record_while_as_routine(
    trace: Trace, test: Callable[[], Any], body: Callable[[], Any], stop: Callable[[], Any] | None
) -> None:
    """Makes `while test(): body()`, until `stop()`, a node of the trace. Raises as `record_loop_as_routine`."""
    functions = [test, body, *([stop] if stop else [])]
    _record_statements(trace, body.__code__, functions, False, lambda recorder: recorder.run_while(test, body, stop))


def _record_statements(
    trace: Trace,
    site: Any,
    functions: Sequence[Callable[..., Any]],
    is_short: bool,
    write: Callable[[LoopRecorder], None],
) -> None:
    """Makes what `write` records a node of the trace."""
    recorder = LoopRecorder(trace, site, 1 if is_short else UNROLLED)
    try:
        recorder.reached = is_reached(trace)
        before = Journal(functions)
        with recorder.recording():
            write(recorder)
            recorder.lists.remove_stand_ins()
            changed = before.changes()
            results = _end_values_in_memory(
                recorder, [slot for slot, _, value in changed.values() if isinstance(value, LoopNumber)]
            )
            results += _changed_lists_in_memory(recorder)
        _place_results_of_recorded_loop(recorder, results)
    except RecordAgain:
        raise LoopNotRecordable(
            "it has turns that are written one after the other, and differ from those that are expected", site
        ) from None
    except (LoopNotRecordable, Exception) as error:
        raise _refusal_of_loop(error, site) from error
    finally:
        recorder.lists.remove_stand_ins()
    recorder.body = EndedLoopValue(site)  # type: ignore[assignment]
    for slot, _, value in changed.values():
        if isinstance(value, SpoiledLoopVariable):
            value.site = site
        elif not isinstance(value, LoopNumber) and type(value) not in CONSTANTS:
            slot.put(SpoiledLoopVariable(slot.name, site))


def record_loop_as_repeated_body(
    trace: Trace, iterable: Any, body: Callable[[Any], Any], count: int, known: KnownLoops
) -> None:
    """Makes the loop `for item in iterable: body(item)` a node of the trace, which has a body for all turns.

    Raises LoopNotRecordable, with the loop as its site, where the turns may differ otherwise than evenly."""
    site, items = body.__code__, loop_items(iterable)
    assert items is not None
    done, end, period, peeled, looped = 0, count, 1, 0, 0
    while done < count:
        turns = (end - done) // period
        if turns >= FEWEST:
            found = _repeated_body(trace, (done, period, turns, done - looped >= period), items.at, body, known)
            if found is True:
                done = looped = done + turns * period
                continue
            if found and found.period > period and found.period * FEWEST <= end - done:
                period = found.period
                continue
            peeled += 1
            if found and found.apart and peeled <= PIECES:
                end = done + found.apart * period
                continue
            if found or peeled > PEELED:
                reason = found.reason if found else "the types of what it carries from turn to turn do not settle"
                raise LoopNotRecordable(reason, site, way=found.way if found else "")
        body(items.at(done))
        done += 1
        end = count if done >= end else end


def _repeated_body(
    trace: Trace,
    turns: tuple[int, int, int, bool],
    item: Callable[[Any], Any],
    body: Callable[[Any], Any],
    known: KnownLoops,
) -> bool | LoopNotRecordable:
    """Makes turns of a loop a node. Returns whether the first of them computes as the others do, or why it is none."""
    site = body.__code__
    try:
        loop = RepeatedBodyLoop(trace, turns, item, body, lambda name: SpoiledLoopVariable(name, site))
        loop.may_be_routine = known.may_capture(site, ROUTINE)
        return loop.run()
    except (LoopNotRecordable, Exception) as error:
        found = _refusal_of_loop(error, site)
        trace.restart = None  # which it is only if it is raised
        return found


_MEANT_FOR_SYMBOLS = (  # what Python and NumPy raise over what stands for a number
    KernelGraphError, ArithmeticError, TypeError, ValueError, LookupError, AttributeError, NameError,
)  # fmt: skip


def _refusal_of_loop(error: Exception | LoopNotRecordable, site: Any) -> LoopNotRecordable:
    """Why a body that raised an error is not recorded. Raises the error where it is a mistake of this package."""
    if isinstance(error, LoopNotRecordable):
        return LoopNotRecordable(error.reason, error.site or site, error.period, error.apart, error.way)
    if is_own_mistake(error):
        raise error
    text = (
        str(error) if isinstance(error, _MEANT_FOR_SYMBOLS) else f"{with_article(type(error).__name__)} is raised in it"
    )
    return LoopNotRecordable(text, site)


class EndedLoopValue:
    """Where values of a turn would go that somebody has kept for later."""

    def __init__(self, site: Any) -> None:
        object.__setattr__(self, "_site", site)

    def __getattr__(self, name: str) -> Any:
        raise LoopNotRecordable("a value of a turn is used outside of its loop", self._site)


PlacedResult = tuple[Callable[[Any], None], int, Any]  # where it goes, the number of its array, and what it was


def _end_values_in_memory(recorder: LoopRecorder, slots: Sequence[Slot]) -> list[PlacedResult]:
    """Numbers that live on, in memory: where each goes, the number of the array, and what it was."""
    found: list[PlacedResult] = []
    for slot in slots:
        number = recorder.lift(slot.held)
        section = recorder.temporary((), number.dtype)
        recorder._put(section, [], number.value)
        found.append((slot.put, section.storage.number, number))
        if number.differs is not None:
            flag = recorder.temporary((), BOOL)
            recorder._put(flag, [], number.differs)
            found.append((partial(_note_differing_number, recorder.trace, slot), flag.storage.number, None))
    return found


def _note_differing_number(trace: Trace, slot: Slot, flag: Tracer) -> None:
    """Notes whether a number that a loop has left in a slot is not what it is held as."""
    trace.differing[slot.held._held.number] = flag._value


def _changed_lists_in_memory(recorder: LoopRecorder) -> list[PlacedResult]:
    """The lists of before the loop that have changed, as `_end_values_in_memory` has numbers."""
    found: list[PlacedResult] = []
    for slot, held, made in recorder.lists.changed_lists():
        count, (dtype, weak) = made.length.known, made.kinds[0]
        if count is None:
            raise LoopNotRecordable("a list has another length as values decide")
        is_list_of_ints = weak is int and dtype == INT64 and made.depth == 1
        if is_list_of_ints and isinstance(made, GrowingList) and not slot.name.startswith(PREFIX):
            raise LoopNotRecordable("a list has ints, which Python may ask for")
        storage = recorder.materialize(made).storage
        storage.shape = (count, *storage.shape[1:])

        def put(array: Tracer, held: list[Any] = held, made: GrowingList | IndexedList = made) -> None:
            made.put_back(held, list_of_collected_rows(array, made))

        found.append((put, storage.number, None))
    return found


def _memory_of_recorded_routine(recorder: LoopRecorder, ends: Container[int]) -> list[RoutineMemory]:
    """ends: the numbers of the arrays that are results."""
    arrays = []
    for storage in recorder.storages:
        given = "inout" if storage.written else "in"
        role = "out" if storage.number in ends else "temp" if storage.value is None else given
        arrays.append(RoutineMemory(storage.dtype, storage.shape, role))
    return [*arrays, *[RoutineMemory(INT64, (ERROR_WORDS,), "out")] * bool(recorder.checks)]


def _place_results_of_recorded_loop(recorder: LoopRecorder, results: Sequence[PlacedResult]) -> None:
    trace = recorder.trace
    ends = {number for _, number, _ in results}
    arrays = _memory_of_recorded_routine(recorder, ends)
    block = tuple(recorder.body.scopes[0].statements)
    if undefined_routine_value(block) is not None:
        raise LoopNotRecordable("a value is used outside of the turn that it belongs to")
    block = routine_block_without_dead_code(block, [n for n, array in enumerate(arrays) if array.role == "temp"])
    routine, kept = renumbered_routine(
        Routine(
            tuple(arrays),
            tuple(recorder.variables),
            block,
            len(recorder.checks),
            recorder.turns,
            recorder.width,
            recorder.wide / recorder.meets,
        ),
        ends,
    )
    if routine.size > MOST:
        raise LoopNotRecordable(f"its body has {routine.size} steps")
    if trace.deriving:
        try:
            reverse_routines(routine)
            routine_with_tangents(routine)
        except NoDerivative as error:
            raise LoopNotRecordable(str(error)) from error
    inputs = [
        recorder.storages[n].value for n in kept if n < len(recorder.storages) and arrays[n].role in ("in", "inout")
    ]
    values = iter(trace.builder.sequential(routine, inputs))
    outputs = {n: next(values) for n in kept if arrays[n].role in ("out", "inout")}
    for number, value in outputs.items():
        if number < len(recorder.storages) and arrays[number].role == "inout":
            assign_to_tracer(recorder.storages[number].root, Tracer(trace, value))
    for put, number, was in results:
        value = outputs[number]
        if was is None:  # rows of a list
            put(Tracer(trace, value))
        else:
            put(Tracer(trace, Value(value.number, value.type, was.weak, tuple(was.others)), SCALAR))
    if recorder.checks and trace.reruns:
        fail_in_loop(trace, outputs[len(recorder.storages)], recorder.checks[0](0))
    elif recorder.checks:
        trace.watched.append(((outputs[len(recorder.storages)],), LoopErrorCheck(tuple(recorder.checks))))


@dataclass(frozen=True)
class LoopErrorCheck:
    """Raises the error of the check that has failed in a routine, if one has."""

    errors: tuple[Callable[[int], Exception], ...]

    def __call__(self, arrays: Sequence[Any]) -> None:
        number, value = (int(word) for word in np.asarray(arrays[0]))
        if number:
            raise self.errors[number - 1](value)
