"""One trace made ready for one kind of arguments on one device, as a function written for it: all that a call pays.

The function's text is made here from facts that the key decides (which leaf is a NumPy array, how many outputs, ...),
so that a call has no decisions left. `Launcher.text` shows it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from struct import Struct
from typing import Any

import numpy as np

from ...compiler.core.types import ArrayType
from ...compiler.passes.materialize import MemoryLayout
from ...runtime.core.errors import OutOfMemory
from ...runtime.core.host_pool import inline_block_class
from ...runtime.core.readable_text import byte_count_in_words
from ...runtime.engine.direct_call import (
    ARENA,
    STACK_ARENA_BYTES,
    DirectArgument,
    Words,
    direct_call_table_packers,
    watched_words_of_object_aspect,
)
from ...runtime.engine.masked_copy import LEAST_BYTES, copy_where
from ...runtime.engine.native_call import native_maker_of_objects
from ...runtime.engine.number_function import make_native_number_function
from ...runtime.program.device import Device, Event, error_of_event
from ...runtime.program.plan import Plan, plan_boundary, root_tasks_of_plan
from ...runtime.schedule.cost_model import machine_model_of_device
from ...runtime.schedule.schedule import schedule
from ...runtime.tune.rivals import Contest
from ..array.array import Array, NumpyMemory
from ..array.devices import name_of
from ..array.in_flight import followed, make_room, track_call, track_host_memory, track_memory
from ..array.memory import owners_in_words
from ..array.mutation import (
    BLOCK_BYTES,
    change_values_of_array,
    lock_of_array,
    memory_before_change,
    own_memory_of_array,
)
from ..array.streams import fork_call_from_streams, join_call_to_streams
from ..core.host_scalars import Respecialise, lines_of_host_scalars
from ..core.python_text import (
    PythonText,
    compiled_functions,
    function_text,
    indented_lines,
    lines_in_try,
    tuple_text,
)
from ..core.pytree import LEAF, MetAgain, Tree, is_counted_container, rebuild_container
from ..core.spec import Spec, address, is_kernel_readable, kernel_readable_copy, native_byte_order, spec_of
from ..environment.guards import Guard, GuardSet, guard_expressions
from ..state.argument_writes import ArgumentWrite
from ..state.writes import objects_watched_by_guards, old_value_expression, source_lines_of_state_change
from .signature import GENERICS, ContentsKey, IdentityKey, StaticArgument, lowest_byte_offset_of_call_array
from .traced_function import TracedFunction
from .write_back import (
    call_array_overlaps_itself,
    check_write_back_allowed,
    copied_array,
    is_assignable_at_a_look,
    refuse_write_back_while_tracing,
    values_before_call,
    write_back_to_arguments,
)

Run = Callable[..., Any]
Execute = Callable[..., tuple[Event, ...]]
Fast = Callable[..., Any]
NOT_TAKEN: Any = object()
UNREAD = -2  # the buffer of what is looked at, and not read
OFTEN = 8  # calls that catch an error, after which those like them run in NumPy at once
SMALL_BYTES = 64  # of memory that is read as bytes sooner than as an array


def not_taken_by_fast_launcher(leaves: Sequence[Any], caller: int = 0) -> Any:
    """The fast path of what has none."""
    return NOT_TAKEN


class Launcher:
    """run(leaves, places, caller=()): starts the plan; places are the addresses of the leaves that are NumPy arrays, in
    order; caller are the streams that the call is forked from and joined to. Its guards have been seen to hold.

    It returns when no NumPy memory of the caller is still to be read, and raises Respecialise if a number does not fit
    the trace. fast(leaves, caller=0) is the same for leaves and guards that nobody has looked at; it gives `NOT_TAKEN`,
    and has done nothing, where they are not as expected. caller: the handle of the stream to run on."""

    __slots__ = (
        "assigned",
        "by_value",
        "caught",
        "contest",
        "fast",
        "guards",
        "opened",
        "repeatable",
        "run",
        "text",
        "used",
        "uses_holders",
    )

    def __init__(
        self,
        run: Run,
        text: str,
        guards: GuardSet,
        assigned: tuple[int, ...] = (),
        fast: Fast = not_taken_by_fast_launcher,
        uses_holders: bool = False,
        repeatable: bool = False,
    ) -> None:
        self.run = run
        self.fast = fast
        self.text = text
        self.guards = guards
        self.assigned = assigned
        self.uses_holders = uses_holders
        self.repeatable = repeatable  # whether `run` may be called again without more than a look at the arguments
        self.by_value: tuple[int, ...] = ()  # the numbers whose values are part of the key
        self.caught: list[Exception] | None = None  # of calls that have met errors, and caught them in NumPy
        self.contest: Contest | None = None  # between it and NumPy, until that is decided
        self.opened: tuple[Fast, Fast | None] | None = None  # `fast`, and the same for opened arguments
        self.used = True


class InNumPy(BaseException):
    """A call runs in NumPy. Not an Exception, so that nobody swallows it.

    error: what it raises where that cannot be. caught: of a call that has met an error, those of earlier ones that the
    function has caught."""

    def __init__(self, error: Exception, caught: list[Exception] | None = None) -> None:
        super().__init__()
        self.error, self.caught = error, caught

    def raise_again(self, *_: Any) -> Any:
        """For the next call of this kind."""
        raise InNumPy(self.error)


class FailedCall:
    """A call's result where the function raised this. It comes when what it had assigned is in place."""

    def __init__(self, error: Exception) -> None:
        self.error = error


def failing_launcher(entry: Launcher, error: Exception) -> Launcher:
    """What runs a call up to an error."""

    def run_and_fail(leaves: Sequence[Any], places: Sequence[int], caller: Sequence[Any] = ()) -> FailedCall:
        entry.run(leaves, places, caller)
        return FailedCall(error)

    return Launcher(run_and_fail, entry.text, entry.guards, entry.assigned, uses_holders=entry.uses_holders)


def generate_launcher(
    captured: TracedFunction,
    plan: Plan,
    execute: Execute,
    device: Device,
    leaves: Sequence[Any],
    arrays: Sequence[int],
    directly: Callable[..., Any] | None = None,
) -> Launcher:
    """execute: an executable's `run`. arrays: the numbers of the leaves that are arguments of the graph. leaves: those
    of a call of the same key. directly: an executable's `direct`, where calls may use it; what it gives takes memory on
    the CPU (see `direct_call.direct`), elsewhere addresses (see `native_launch`)."""
    writer = _LauncherWriter(captured, plan, device, leaves, arrays)
    text = function_text("run", "leaves, places, caller=()", writer.lines())
    rows = captured.guards.rows
    watched = {row: words for row in rows if writer.on_cpu and (words := _launcher_words_of_guard(row))}
    checks, guarded = guard_expressions([row for row in rows if row not in watched or row.how == "item"], watched)
    start = None
    if directly is not None and writer.is_direct():
        words = [word for found in watched.values() for word in found]
        start = directly(writer.taken(), words)
    if captured.reruns and captured.failures:
        checks = [*checks, f"len(caught) <= {OFTEN}"]
    if start is not None:
        lines = (_LEAF.sub(r"x\1", line) for line in writer.fast_lines(checks))
        text += "\n\n" + function_text("fast", "leaves, caller=0", lines)
    scope = {
        **writer.named,
        **guarded,
        "rows": rows,  # whose objects the words that are watched lie in
        "Array": Array,
        "OutOfMemory": OutOfMemory,
        "InNumPy": InNumPy,
        "caught": list[Exception](),
        "Respecialise": Respecialise,
        "allocate": device.allocate,
        "device": device,
        "execute": execute,
        "followed": followed,
        "fork": fork_call_from_streams,
        "join": join_call_to_streams,
        "start": start,
        "NOT_TAKEN": NOT_TAKEN,
        "NumpyMemory": NumpyMemory,
        "capturing": device.is_capturing,
        "track": track_call,
        "track_memory": track_host_memory if writer.on_cpu else track_memory,
        "held": memory_before_change,
        "host": captured.host,
        "settled": is_launched_call_finished,
        "over": [None],
        "pack": writer.pack,
        "words": Struct(f"={len(plan.program.scalars)}Q").unpack,
        "readable": kernel_readable_copy,
        "ready": call_array_ready_on_device,
        "address": address,
        "asarray": np.asarray,
        "change_values": change_values_of_array,
        "lock_of": lock_of_array,
        "own_memory": own_memory_of_array,
        "copied": copied_array,
        "copyto": np.copyto,
        "copy_where": copy_where,
        "values_before_call": values_before_call,
        "write_back": write_back_to_arguments,
        "make_room_for_segments": partial(make_room, device),
        "is_free": is_assignable_at_a_look,
        "check_write_back_allowed": check_write_back_allowed,
        "refuse_change": refuse_write_back_while_tracing,
        "ndarray": np.ndarray,
        "upload": _call_argument_uploader(device),
        "too_large": partial(launcher_out_of_memory_error, plan, device),
        "rebuild": rebuild_container,
        **writer.constants,
    }
    functions = compiled_functions(text, scope)
    assigned = tuple(leaf for leaf, _ in captured.assigned)
    fast = functions.get("fast", not_taken_by_fast_launcher)
    if start is not None and writer.computes_numbers_alone():
        fast = writer.native_number_function(watched) or fast
    made = Launcher(functions["run"], text, captured.guards, assigned, fast, captured.uses_holders, True)
    made.caught = scope["caught"]
    return made


def call_waits(captured: TracedFunction, device: Device, leaves: Sequence[Any], arrays: Sequence[int]) -> bool:
    """Whether a call ends when its work does: the work reads memory that the caller may write to afterwards, or gives
    what is then put into memory that is there."""
    reads = captured.arrays or any(type(leaves[i]) is not Array for i in arrays)
    writes = any(type(leaves[w.leaf]) is Array and not (w.is_whole or w.differing) for w in captured.writes)
    return device.host_memory and bool(reads or writes)


def _launcher_words_of_guard(row: Guard) -> Words | None:
    """Words of memory that are there while the guard holds."""
    aspect = row.native_aspect
    words = None if aspect is None else watched_words_of_object_aspect(aspect, row.holder, row.value)
    return words if row.same is None or row.same(row.value) else None


class _LauncherWriter(PythonText):
    """Writes the lines of one entry."""

    def __init__(
        self, captured: TracedFunction, plan: Plan, device: Device, leaves: Sequence[Any], arrays: Sequence[int]
    ) -> None:
        super().__init__()
        self.captured, self.plan, self.leaves, self.arrays = captured, plan, leaves, arrays
        self.device, self.on_cpu = device, device.host_memory
        self.repeats = any(node.kind is MetAgain for node in captured.tree.nodes())
        self.counted = 0  # containers in the result so far
        self.places = {leaf: i for i, leaf in enumerate(i for i, x in enumerate(leaves) if type(x) is np.ndarray)}
        self.waits = call_waits(captured, device, leaves, arrays)
        self.device_arrays = [i for i in arrays if type(leaves[i]) is Array]
        self.follows = bool(self.on_cpu and self.device_arrays)  # calls may take memory of those that they follow
        stored = () if captured.state is None else captured.state.places()
        self.gives_numbers = any(kind == "number" for kind, _ in (*captured.results, *stored))
        self.uses_host = bool(captured.graph.numbers or captured.checks or self.gives_numbers)
        self.statements: list[str] = []
        self.names: list[str] = []
        self.named: dict[str, Any] = {}
        if captured.text:
            self.statements, self.names, self.named = lines_of_host_scalars(captured.host, captured.text)
        self.numbers = [f"numbers[{i}]" for i in range(len(self.names))]
        self.pack = direct_call_table_packers(0, plan.program.scalars)[0]
        self.state = captured.state
        self.holders = () if captured.state is None else captured.state.holders
        self.count = len(leaves) if captured.state is None else captured.state.leaves
        self.given = "leaves"
        scalars = () if self.state is None else self.state.scalars
        over = dict(zip(plan.program.inputs, arrays, strict=False))
        self.in_place = {n: over[b] for n, b in enumerate(plan.program.outputs) if b in over}  # outputs -> leaves
        self.writes = [write for write in captured.writes if write.output not in self.in_place]
        self.differing = {write.leaf for write in self.writes if write.differing}
        self.copied = {leaf for leaf in self.differing if type(leaves[leaf]) is np.ndarray}
        self.specs = [spec_of(captured.graph.nodes[o].type, i in scalars) for i, o in enumerate(captured.graph.outputs)]
        self.outputs = tuple_text(range(len(self.specs)), "r")

    def lines(self) -> Iterator[str]:
        """Of `run`: what is checked, placed, started, waited for, written and returned."""
        memories = ["None"] * len(self.plan.program.buffers)
        kept: list[str] = []
        yield from self._lines_that_check_call()
        yield from self._lines_that_make_room(memories, kept)
        yield from self._lines_that_execute(memories)
        if self.specs:
            yield from self._lines_that_wait_or_track(tuple_text(kept))
        yield from (f"r{output}.numpy()" for output in self.in_place)
        yield from self._lines_that_raise_failures()
        yield from self._lines_that_write()
        for which, watcher in self.captured.watched:
            yield f"{self.constant(watcher)}({tuple_text(which, 'r')})"
        yield from self._lines_that_return()

    def _lines_that_check_call(self) -> Iterator[str]:
        """Nothing has been done where they raise."""
        if self.captured.reruns:
            yield f"if len(caught) > {OFTEN}: raise InNumPy(caught[0], caught)"
        for leaf, _ in self.captured.assigned:
            overlaps = ", True" if self._overlap_test_of_leaf(leaf) else ""
            yield f"check_write_back_allowed(leaves[{leaf}], {self._arrays_beside_assigned_leaf(leaf)}{overlaps})"
        if met := self._test_of_changed_holders():
            yield f"if {met}: refuse_change()"
        if self.uses_host:
            yield "try: numbers = host(leaves)"
            yield "except Exception: raise Respecialise from None"
        if self.differing:
            yield f"before = values_before_call({self.constant(self.writes)}, leaves)"

    def _lines_that_make_room(self, memories: list[str], kept: list[str]) -> Iterator[str]:
        """`_lines_that_place_buffers`, once more where memory of calls in flight has come free."""
        collects = bool(self.device_arrays or not self.on_cpu)
        yield "after = []" if collects else "after = [] if caller else ()"
        places = list(self._lines_that_place_buffers(memories, kept))
        made = dict.fromkeys(line.split(" = ")[0] for line in places if _ALLOCATES.search(line))
        if not made:
            yield from places
            return
        yield "try:"
        yield from indented_lines(places)
        yield "except OutOfMemory as error:"
        yield f"    {' = '.join(made)} = None"  # what was had goes back, although the traceback lives on
        yield "    if not make_room_for_segments(): raise too_large(error) from None"
        yield "    return run(leaves, places, caller)"

    def _lines_that_execute(self, memories: Sequence[str]) -> Iterator[str]:
        yield f"if caller: forked = fork(caller, after, {len(self.plan.program.buffers)})"
        arena = "arena.address" if self.plan.arena_bytes else "0"  # which holds empty arrays
        if self.follows:
            yield "if before_it is not None: after += before_it.gates"
        yield f"events = execute([{', '.join(memories)}], {arena}, {self._plan_scalar_expressions()}, after)"
        for number, spec in enumerate(self.specs):
            event = "" if self.on_cpu else f", events[{number}]"
            yield f"r{number} = Array(m{number}, {self.constant(spec)}, device{event})"

    def _lines_that_wait_or_track(self, memories: str) -> Iterator[str]:
        """memories: what the work reads and writes, to be kept for as long as it lasts."""
        known = "".join(f"r{i}._event = " for i in range(len(self.specs)))
        into = "    " if self.in_place else ""
        if self.in_place:
            yield "try:"
        exits = plan_boundary(self.plan).exits
        yield f"{into}if caller and join(caller, forked, events, {exits}, {memories}): {known}None"
        if self.on_cpu:
            settled = f"settled(events, {self.outputs}, {self.waits}, over)"
            yield f"{into}elif events is not over[0] and not {settled}:"
            yield f"{into}    track_memory(events, {memories}, {'before_it' if self.follows else 'None'})"
        else:
            held = [array.nbytes for array in (*(self.leaves[i] for i in self.arrays), *self.captured.arrays)]
            held += [self.plan.arena_bytes, *(spec.nbytes for spec in self.specs)]
            yield f"else: track(events, {memories}, {sum(held)})"
        if self.in_place:  # a wait that is interrupted leaves work that writes to the caller's arrays
            yield f"except BaseException: track_memory(events, {memories}); raise"

    def _lines_that_raise_failures(self) -> Iterator[str]:
        """What values have decided to raise, before anything is written."""
        for which, check in self.captured.failures:
            yield f"error = {self.constant(check)}.error({tuple_text(which, 'r')}, {self.outputs})"
            yield f"if error is not None: raise {'InNumPy(error, caught)' if self.captured.reruns else 'error'}"

    def _lines_that_write(self) -> Iterator[str]:
        """What the call assigns to its arguments, and to what they hold."""
        if self.writes:
            before = "before" if self.differing else "{}"
            yield f"write_back({self.constant(self.writes)}, leaves, {self.outputs}, {before})"
        if self.state is not None:
            yield f"given = leaves[{self.count + len(self.holders)}]"
            yield from self._lines_that_store_state("given")

    def _lines_that_store_state(self, given: str) -> Iterator[str]:
        """What the call does to what its arguments hold. given: what names the leaves as the caller has them."""
        state = self.state
        assert state is not None
        self.given = given
        for i, (*rows, (_, last)) in enumerate(state.chosen):
            text = self._result_expression(LEAF, iter([last]))
            for flag, place in rows:
                text = f"{self._result_expression(LEAF, iter([place]))} if r{flag}.numpy() else {text}"
            yield f"q{i} = {text}"
        for i, (tree, places) in enumerate(state.made):
            yield f"n{i} = {self._result_expression(tree, iter(places))}"
        writes: list[str] = []
        for change in state.changes:
            holder = f"leaves[{self.count + change.holder}]"
            writes += source_lines_of_state_change(
                change, state.holders[change.holder], f"o{change.holder}", self.constant
            )
            yield f"o{change.holder} = {holder}"
            for i, (_, place) in enumerate(change.put):
                if place[0] == "old":
                    value = old_value_expression(
                        state.holders[change.holder], f"o{change.holder}", place[1], self.constant
                    )
                else:
                    value = self._result_expression(LEAF, iter([place]))
                yield f"o{change.holder}_{i} = {value}"
        yield from writes

    def _test_of_changed_holders(self) -> str:
        """Whether no holder that changes is what the trace has read by another way; empty where there is none."""
        changes = () if self.state is None else self.state.changes
        if not changes:
            return ""
        watched = self.constant(objects_watched_by_guards(self.captured.guards))
        return " or ".join(f"id(leaves[{self.count + c.holder}]) in {watched}" for c in changes)

    def _overlap_test_of_leaf(self, leaf: int) -> bool:
        """`call_array_overlaps_itself` of all leaves of the same key."""
        return type(self.leaves[leaf]) is np.ndarray and call_array_overlaps_itself(self.leaves[leaf])

    def _arrays_beside_assigned_leaf(self, leaf: int) -> str:
        """The arrays beside one that is assigned to."""
        names = [f"leaves[{i}]" for i in self.arrays if i != leaf] + [*map(self.constant, self.captured.arrays)]
        return tuple_text(names)

    def is_direct(self) -> bool:
        """Whether a call only has to allocate, to run, and to assign to arrays: arrays and numbers in."""
        captured = self.captured
        if captured.watched or (self.state is not None and self.state.chosen and not self.on_cpu):
            return False
        arrays = {type(self.leaves[leaf]) for leaf in self.arrays}
        others = [leaf for i, leaf in enumerate(self.leaves[: self.count]) if i not in self.arrays]
        if not self.on_cpu:
            more = captured.failures or captured.assigned or captured.arrays or not self.specs
            return arrays == {Array} and not more and all(map(self._type_test_of_leaf, others))
        plain = arrays <= {np.ndarray, Array, *GENERICS} and all(map(is_kernel_readable, captured.arrays))
        overlaps = any(self._overlap_test_of_leaf(leaf) for leaf, _ in captured.assigned)
        return plain and not overlaps and all(map(self._type_test_of_leaf, others))

    @property
    def listed(self) -> dict[int, bool]:
        """The outputs that have many numbers of the result, and whether these are Python's."""
        return {place[0]: place[2] for kind, place in self.captured.results if kind == "item"}

    @property
    def lengths(self) -> tuple[int, ...] | None:
        """The numbers of the graph, where all are lengths that the trace knows, and nothing of a call is looked at."""
        if any("leaves[" in line for line in self.statements):
            return None
        found = [self.named.get(name) for name in self.names[: len(self.captured.graph.numbers)]]
        return tuple(found) if all(type(n) is int for n in found) else None  # type: ignore[arg-type]

    def _type_test_of_leaf(self, leaf: Any) -> str:
        return type_test_of_leaf(leaf, self.constant)

    def taken(self) -> list[DirectArgument]:
        """What `start` takes: the arguments of the graph, the arrays of the trace, the outputs, and the arena."""
        program = self.plan.program
        arrays = [*(self.leaves[leaf] for leaf in self.arrays), *self.captured.arrays]
        targets = {leaf for leaf, _ in self.captured.assigned}
        assigned = [leaf in targets for leaf in self.arrays] + [False] * len(self.captured.arrays)
        for i, leaf in enumerate(self.arrays):
            if leaf in self.copied:
                arrays[i], assigned[i] = copied_array(self.leaves[leaf]), False
        found = [_launch_argument_from_array(*given) for given in zip(program.inputs, arrays, assigned, strict=True)]
        found += [_launch_argument_from_array(UNREAD, self.leaves[leaf], True) for leaf in sorted(self.copied)]
        found += [DirectArgument(b) for number, b in enumerate(program.outputs) if number not in self.in_place]
        return [*found, DirectArgument(ARENA)] if self._takes_arena() else found

    def _takes_arena(self) -> bool:
        """Whether the fast way allocates an arena; a small one is on the caller's stack, a GPU's graph has its own."""
        return self.on_cpu and self.plan.arena_bytes > STACK_ARENA_BYTES

    def fast_lines(self, checks: Sequence[str]) -> Iterator[str]:
        """checks: what has to be true of the surroundings. NumPy's objects are looked at by `start`. What is
        `leaves[3]` here is `x3` in the text."""
        if names := "".join(f"leaves[{i}], " for i in range(self.count + len(self.holders))):
            yield f"try: {names}= leaves"
            yield "except ValueError: return NOT_TAKEN"
        else:
            yield "if leaves: return NOT_TAKEN"
        if met := self._test_of_changed_holders():
            yield f"if {met}: return NOT_TAKEN"
        if not self.on_cpu:
            yield "after = ()"
        given: list[str] = []
        before: dict[int, str] = {}  # what the call has read, where what differs is written
        yield from self._lines_that_take_arrays(given, before)
        yield from self._lines_that_test_call(checks)
        given += [self.constant(array) for array in self.captured.arrays]
        given += [f"leaves[{leaf}]" for leaf in sorted(self.copied)]
        sizes = {f"m{n}": max(1, output.nbytes) for n, output in enumerate(self.specs) if n not in self.in_place}
        if self._takes_arena():
            sizes["arena"] = self.plan.arena_bytes
        yield from self._lines_that_allocate(sizes)
        yield from self._lines_that_compute_numbers()
        yield from self._lines_that_start_plan([*given, *sizes], sum(sizes.values()))
        stored = () if self.state is None else self.state.places()
        returned = {place for kind, place in (*self.captured.results, *stored) if kind == "array"}.union(self.listed)
        yield from self._lines_that_write_results(returned, before)
        if self.state is not None:
            yield from self._lines_that_store_state("leaves")
        yield from self._lines_that_return()

    def _lines_that_take_arrays(self, given: list[str], before: dict[int, str]) -> Iterator[str]:
        """What `start` reads of each array argument goes to `given`; what it was, where that is needed, to `before`."""
        for leaf in self.arrays:
            if leaf in self.copied:
                yield f"b{leaf} = copied(leaves[{leaf}])"
                before[leaf] = f"b{leaf}"
            if type(self.leaves[leaf]) is not Array:
                given.append(before.get(leaf, f"leaves[{leaf}]"))
                continue
            a, spec = f"a{leaf}", self.constant(self.leaves[leaf]._spec)
            yield f"{a} = leaves[{leaf}]"
            yield f"if type({a}) is not Array or {a}._spec is not {spec} or {a}._device is not device: return NOT_TAKEN"
            yield from self._lines_that_take_array_memory(a, leaf)
            if leaf in self.differing:
                before[leaf] = f"o{leaf}"
            given.append(a)

    def _lines_that_test_call(self, checks: Sequence[str]) -> Iterator[str]:
        """Whether the numbers, the surroundings and the arrays that are assigned to are as expected."""
        others = [leaf for leaf in range(self.count) if leaf not in self.arrays]
        if tests := [self._type_test_of_leaf(self.leaves[leaf]).format(f"leaves[{leaf}]") for leaf in others]:
            yield f"if not ({' and '.join(tests)}): return NOT_TAKEN"
        if checks:
            yield from lines_in_try([f"if not ({' and '.join(checks)}): return NOT_TAKEN"], "return NOT_TAKEN")
        for leaf, _ in self.captured.assigned:
            if type(self.leaves[leaf]) is Array:
                yield f"if not is_free(leaves[{leaf}], {self._arrays_beside_assigned_leaf(leaf)}): return NOT_TAKEN"
        if not self.on_cpu:
            yield "if caller and capturing(caller): return NOT_TAKEN"

    def _lines_that_allocate(self, sizes: Mapping[str, int]) -> Iterator[str]:
        """sizes: the memories that are to be made, in bytes."""
        allocated = []
        for name, size in sizes.items():
            maker = inline_block_class(size) if self.on_cpu and name != "arena" else None
            if maker is None:
                allocated.append(f"{name} = allocate({size})")
            else:
                yield f"{name} = {self.constant(maker)}()"
        if allocated:
            yield f"try: {'; '.join(allocated)}"
            yield "except OutOfMemory: return NOT_TAKEN"

    def _lines_that_compute_numbers(self) -> Iterator[str]:
        """Python's arithmetic on the call's numbers, and those of the graph in a row of words."""
        numbers = [*self.statements] if self.uses_host else []
        count = len(self.captured.graph.numbers)
        if count and self.lengths is None:
            numbers.append(f"packed = pack({', '.join(self.names[:count])})")
        if numbers:
            yield from lines_in_try(numbers, "return NOT_TAKEN")
        self.numbers = self.names

    def _lines_that_write_results(self, returned: set[int], before: Mapping[int, str]) -> Iterator[str]:
        """Lines that make the arrays that are returned, and write to the arguments."""
        inline = all(map(self._is_written_inline, self.writes))
        needed = returned if inline else returned.union(*(write.outputs for write in self.writes))
        for number in sorted(needed):
            yield f"r{number} = {self._expression_of_new_array(number)}"
        if inline:
            yield from self._lines_that_write_inline(before)
            return
        held = {w.leaf for w in self.writes if type(self.leaves[w.leaf]) is Array and not w.differing}
        yield from (f"a{leaf} = o{leaf} = None" for leaf in sorted(held))  # in place where nobody holds the memory
        results = ", ".join(f"{n}: r{n}" for n in sorted(needed))
        old = ", ".join(f"{leaf}: {name}" for leaf, name in before.items())
        yield f"write_back({self.constant(self.writes)}, leaves, {{{results}}}, {{{old}}})"

    def _is_written_inline(self, write: ArgumentWrite) -> bool:
        """Whether a line writes it: the whole of an array, a part that slices say, or what differs of a small one."""
        target = self.leaves[write.leaf]
        if write.differing and type(target) is np.ndarray:
            return target.nbytes <= BLOCK_BYTES and target.itemsize <= 8 and target.dtype.isnative
        sliced = all(kind == "key" for kind, _ in write.views) and len(write.views) < 2
        return sliced and write.key is None

    def _lines_that_write_inline(self, before: Mapping[int, str]) -> Iterator[str]:
        new = [w for w in self.writes if type(self.leaves[w.leaf]) is Array and (w.is_whole or w.differing)]
        whole = {write.output for write in new}
        for number in sorted({n for write in self.writes for n in write.outputs} - whole):
            yield f"w{number} = {self._expression_of_written_result(number)}"
        parts: dict[int, list[str]] = {}  # of `kg.Array`s, each of which is locked once
        for write in self.writes:
            target = f"leaves[{write.leaf}]"
            if write.differing:
                yield from self._lines_that_write_what_differs(write, target, before[write.leaf])
            elif type(self.leaves[write.leaf]) is not Array:
                yield self._line_that_writes_part(write, target)
            elif write.is_whole:
                yield f"a = {target}; a._memory = m{write.output}; a._event = a._host = None"
            else:
                parts.setdefault(write.leaf, []).append(self._line_that_writes_part(write, "own"))
        for leaf, lines in parts.items():
            yield f"a{leaf} = o{leaf} = None"  # it is done in place where nobody holds the memory
            yield f"with lock_of(leaves[{leaf}]):"
            yield f"    own = own_memory(leaves[{leaf}])"
            yield "    if own is not None:"
            inner = [*indented_lines(indented_lines(lines))]
            yield from inner
            yield "if own is None:"
            yield "    def change(own):"
            yield from inner
            yield f"    change_values(leaves[{leaf}], change)"

    def _lines_that_write_what_differs(self, write: ArgumentWrite, target: str, before: str) -> Iterator[str]:
        """before: what the call has read: an array, or a `kg.Array`'s memory."""
        if type(self.leaves[write.leaf]) is not Array:
            word, new = self.constant(np.dtype(f"u{self.leaves[write.leaf].itemsize}")), f"w{write.output}"
            yield f"copyto({target}, {new}, where={new}.view({word}) != {before}.view({word}))"
            return
        yield f"with lock_of({target}):"
        yield f"    same = {target}._memory is {before}"
        yield f"    if same: {target}._memory = m{write.output}; {target}._event = {target}._host = None"
        results = f"{{{write.output}: {self._expression_of_new_array(write.output)}}}"
        yield f"if not same: write_back({self.constant((write,))}, leaves, {results}, {{{write.leaf}: {before}}})"

    def _line_that_writes_part(self, write: ArgumentWrite, target: str) -> str:
        """One write to a NumPy array, of the results `w`."""
        key = self.constant(tuple(slice(*each) for each in write.views[0][1])) if write.views else "..."
        line = f"{target}[{key}] = w{write.output}"
        if write.mask is None:
            return line
        mask = f"{'' if write.chosen else '~'}w{write.mask}"
        if self.specs[write.mask].size == 1:
            return f"if {mask}: {line}"
        copy = "copy_where" if self.leaves[write.leaf].nbytes >= LEAST_BYTES else "copyto"
        return f"{copy}({target}[{key}], w{write.output}, {'' if copy == 'copy_where' else 'where='}{mask})"

    def _expression_of_written_result(self, number: int) -> str:
        """A result as a NumPy array; of one element, as one without axes."""
        spec = self.specs[number]
        shape = () if spec.size == 1 else spec.shape
        return f"ndarray({self.constant(shape)}, {self.constant(spec.dtype)}, m{number})"

    def _expression_of_failure(self, number: int) -> str:
        """Whether the first element of a result on the CPU, a whole number, is another than 0."""
        spec = self.specs[number]
        if spec.nbytes > SMALL_BYTES:
            return f"ndarray((), {self.constant(spec.dtype)}, m{number})"
        none = bytes(spec.dtype.itemsize)
        return f"m{number}.raw[:{len(none)}] != {self.constant(none)}"  # in a fourth of the time

    def _expression_of_new_array(self, number: int) -> str:
        """An output as an array whose values are there, or, elsewhere than on the CPU, come with the event `e`."""
        spec = self.specs[number]
        others = {"_spec": spec, "_device": self.device, "_host": None, "_part": False}
        given, e = (("_memory",), "") if self.on_cpu else (("_memory", "_event"), ", e")
        make = native_maker_of_objects(Array, given, {"_event": None, **others} if self.on_cpu else others)
        if make is not None:
            return f"{self.constant(make)}(m{number}{e})"
        return f"Array(m{number}, {self.constant(spec)}, device{e})"

    def computes_numbers_alone(self) -> bool:
        """Whether a call has nothing to do but Python's arithmetic."""
        captured = self.captured
        others = captured.arrays or captured.assigned or captured.checks or captured.graph.numbers or self.state
        return self.on_cpu and not (others or self.arrays or self.specs)

    def native_number_function(self, watched: Mapping[Guard, Words]) -> Fast | None:
        """What the lines of `fast` do, natively; None where that cannot be."""
        rows = self.captured.guards.rows
        others = [row for row in rows if row not in watched or row.how == "item"]
        found = [_number_leaf_of_call(leaf) for leaf in self.leaves]
        leaves = {f"x{i}": leaf for i, leaf in enumerate(found) if leaf is not None}
        if not all(row.is_item_of_dict for row in others) or len(leaves) < len(found):
            return None
        items = [(row.holder, row.key, row.value if row.how == "item" else NOT_TAKEN) for row in others]
        self.numbers = self.names
        result = self._whole_result_expression()
        *lines, result = [_LEAF.sub(r"x\1", line) for line in (*self.statements, result)]
        names = {**self.named, **self.constants}
        words = [word for words in watched.values() for word in words]
        return make_native_number_function(lines, result, leaves, names, words, items, NOT_TAKEN, rows)

    def _lines_that_take_array_memory(self, a: str, leaf: int) -> Iterator[str]:
        """An array's memory in its place. On the CPU its values have to be there; elsewhere they are waited for."""
        if self.on_cpu:
            memory = f"held({a})" if leaf in self.differing else f"{a}._memory"
            yield f"o{leaf} = {memory}"  # then the event: see `replace_memory`
            yield f"if {a}._event is not None: return NOT_TAKEN"
            yield f"{a} = o{leaf}"
            yield f"if type({a}) is NumpyMemory: {a} = {a}.array"
        else:
            yield f"e = {a}._event"
            yield "if e is not None and (not e.done or e.error is not None): after += (e,)"
            yield f"{a} = {a}._memory"

    def _lines_that_start_plan(self, memories: Sequence[str], made: int) -> Iterator[str]:
        """made: the bytes that the call has allocated."""
        numbers = []
        if self.captured.graph.numbers:
            numbers = ["packed" if self.lengths is None else self.constant(self.pack(*self.lengths))]
        if self.on_cpu:
            yield f"if not start({', '.join([*memories, *numbers])}): return NOT_TAKEN"
            for number in dict.fromkeys(number for which, _ in self.captured.failures for number in which):
                yield f"if {self._expression_of_failure(number)}: return NOT_TAKEN"  # `run` then raises
            return
        given = [f"{memory}.address" for memory in memories] + [f"*words({packed})" for packed in numbers]
        yield f"e = start(after, caller, {', '.join(given)})"
        yield "if e is None: return NOT_TAKEN"
        yield f"track((e,), ({', '.join(memories)},), {made + sum(self.leaves[leaf].nbytes for leaf in self.arrays)})"

    def _lines_that_place_buffers(self, memories: list[str], kept: list[str]) -> Iterator[str]:
        """Lines that find or make each buffer's memory; its address goes to `memories`, what to hold to `kept`."""
        program = self.plan.program
        read = {region.buffer for task in program.tasks for region in task.reads}
        for leaf, buffer in zip(self.arrays, program.inputs, strict=False):
            if type(self.leaves[leaf]) is Array:
                yield f"a{leaf} = {'before' if leaf in self.differing else 'leaves'}[{leaf}]"
                yield f"if a{leaf}._device is not device or a{leaf}._event is not None:"
                yield f"    a{leaf} = ready(a{leaf}, device, {buffer}, after)"
                memories[buffer] = f"a{leaf}._memory.address"
                kept.append(f"a{leaf}._memory")
            elif not isinstance(self.leaves[leaf], np.ndarray) and self.on_cpu:  # a NumPy scalar
                yield f"a{leaf} = asarray(leaves[{leaf}])"
                memories[buffer] = f"address(a{leaf})"
            elif self.on_cpu:
                if leaf in self.copied:
                    memories[buffer] = f"address(before[{leaf}])"
                    kept.append(f"before[{leaf}]")
                    continue
                memories[buffer] = _lowest_address_text(f"places[{self.places[leaf]}]", self.leaves[leaf])
            elif buffer not in read:  # it is only assigned to
                memories[buffer] = "0"
            else:
                given = f"before[{leaf}]" if leaf in self.copied else f"leaves[{leaf}]"
                yield f"a{leaf} = upload({given}, {buffer}, after)"
                memories[buffer] = f"a{leaf}.address"
                kept.append(f"a{leaf}")
        yield from self._lines_that_place_captured_arrays(memories, kept)
        take = "{}"
        if self.follows:
            roots = root_tasks_of_plan(self.plan)
            touched = [frozenset(region.buffer for region in (*t.reads, *t.writes)) for t in roots]
            yield f"before_it = followed(device, after, {self.constant(touched)}) if after else None"
            take = "{0} if before_it is None else before_it.take({1}) or {0}"
        for number, (buffer, spec) in enumerate(zip(program.outputs, self.specs, strict=True)):
            if number in self.in_place:
                yield f"m{number} = NumpyMemory(leaves[{self.in_place[number]}])"
                kept.append(f"m{number}")
                continue
            size = max(1, spec.nbytes)
            yield f"m{number} = {take.format(f'allocate({size})', size)}"
            memories[buffer] = f"m{number}.address"
            kept.append(f"m{number}")
        if self.plan.arena_bytes:
            size = self.plan.arena_bytes
            yield f"arena = {take.format(f'allocate({size})', size)}"
            kept.append("arena")

    def _lines_that_place_captured_arrays(self, memories: list[str], kept: list[str]) -> Iterator[str]:
        """The same for the arrays of the trace."""
        for number, array in enumerate(self.captured.arrays):
            buffer = self.plan.program.inputs[len(self.arrays) + number]
            name, direct = self.constant(array), is_kernel_readable(array)
            if self.on_cpu and direct:
                memories[buffer] = _lowest_address_text(f"address({name})", array)
            elif self.on_cpu:
                yield f"b{number} = readable({name})"
                memories[buffer] = f"address(b{number})"
                kept.append(f"b{number}")
            else:
                yield f"b{number} = upload({name if direct else f'readable({name})'}, {buffer}, after)"
                memories[buffer] = f"b{number}.address"
                kept.append(f"b{number}")

    def _plan_scalar_expressions(self) -> str:
        """Those of the plan; behind them are numbers that the call gives."""
        count = len(self.captured.graph.numbers)
        return "()" if not count else f"numbers[:{count}]" if self.gives_numbers else "numbers"

    def _lines_that_return(self) -> Iterator[str]:
        for output, is_pythons in self.listed.items():
            yield f"s{output} = r{output}.numpy().ravel()" + (".tolist()" if is_pythons else "")
        yield f"return {self._whole_result_expression()}"

    def _whole_result_expression(self) -> str:
        self.counted = 0
        return self._result_expression(self.captured.tree, iter(self.captured.results))

    def _result_expression(self, tree: Tree, results: Iterator[tuple[str, Any]]) -> str:
        """An expression for the returned structure."""
        if tree == LEAF:
            kind, x = next(results)
            if kind == "fresh":
                from copy import deepcopy

                self.constants["deepcopy"] = deepcopy
            if kind == "holder":
                x += self.count
            if kind == "number":
                return str(self.numbers[x])
            if kind == "item":
                return f"s{x[0]}[{x[1]}]"
            return _RESULTS[kind].format(self.constant(x) if kind in ("static", "fresh") else x, given=self.given)
        if tree.kind is MetAgain:
            return f"same{tree.names[0]}"
        parts = [self._result_expression(child, results) for child in tree.children]
        if tree.kind is tuple:
            return tuple_text(parts)
        if tree.kind is list:
            text = f"[{', '.join(parts)}]"
        else:
            text = f"rebuild({self.constant(tree.kind)}, {self.constant(tree.names)}, [{', '.join(parts)}])"
        if not self.repeats or not is_counted_container(tree.kind):
            return text
        self.counted += 1
        return f"(same{self.counted - 1} := {text})"


def type_test_of_leaf(leaf: Any, constant: Callable[[Any], str]) -> str:
    """An expression that is true of leaves of this one's key, which is no array; empty: there is none."""
    value = leaf.value if type(leaf) is StaticArgument else leaf
    if value is None or type(value) is bool:
        return f"{{0}} is {value}"
    if type(leaf) is float or type(leaf) is int:
        return f"type({{0}}) is {type(leaf).__name__}"
    if type(value) is IdentityKey:
        return f"{{0}} is {constant(value.value)}"
    if type(value) is ContentsKey:
        return f"{constant(value.is_like)}({{0}})"
    if type(value) is str:
        return f"(type({{0}}) is str and {{0}} == {constant(value)})"
    kind: Any = type(value)
    if type(leaf) is not StaticArgument:
        return ""
    if kind.__eq__ is object.__eq__:  # a function, a class, an object
        return f"{{0}} is {constant(value)}"
    return f"{constant(leaf.is_like)}({{0}})"


def key_test_of_leaf(leaf: Any, constant: Callable[[Any], str]) -> str:
    """The same, of any leaf; an array's address goes to `places`."""
    if type(leaf) is np.ndarray:
        like = (
            f"{{0}}.dtype == {constant(leaf.dtype)} and {{0}}.shape == {leaf.shape} and {{0}}.strides == {leaf.strides}"
        )
        return (
            f"(type({{0}}) is ndarray and {like} and (p := address({{0}})) & 15 == {address(leaf) & 15} and not add(p))"
        )
    if type(leaf) is Array:
        return f"(type({{0}}) is Array and {{0}}._spec == {constant(leaf._spec)} and {{0}}._device is device)"
    if type(leaf) in GENERICS or type(leaf) is complex:
        return f"type({{0}}) is {constant(type(leaf))}"
    return type_test_of_leaf(leaf, constant)


def runner_behind_key_tests(entry: Launcher, leaves: Sequence[Any], device: Device) -> Fast | None:
    """`entry.run` behind a look at leaves and guards, for an entry without a fast way. None where more is needed."""
    written = PythonText()
    tests = [key_test_of_leaf(leaf, written.constant) for leaf in leaves]
    if not all(tests):
        return None
    fits = " and ".join(test.format(f"x{i}") for i, test in enumerate(tests)) or "True"
    names = "".join(f"x{i}, " for i in range(len(tests)))
    lines = [f"({names}) = leaves[:{len(tests)}]", "places = []", "add = places.append"]
    lines += [f"if caller or not ({fits}) or not hold(): return NOT_TAKEN"]
    lines += ["if entry.fast is not none: return NOT_TAKEN"]  # it has one by now
    lines += lines_in_try(["return entry.run([*leaves, leaves], places)"], "return NOT_TAKEN", "Respecialise")
    scope = {"ndarray": np.ndarray, "Array": Array, "address": address, "device": device, "NOT_TAKEN": NOT_TAKEN}
    scope |= {"hold": entry.guards.hold, "entry": entry, "none": entry.fast, "Respecialise": Respecialise}
    return compiled_functions(function_text("fast", "leaves, caller=0", lines), {**scope, **written.constants})["fast"]


def _number_leaf_of_call(leaf: Any) -> tuple[str, Any] | None:
    """How native code tells leaves of a key like this one's: by their type, or as what they are. None: it cannot."""
    if type(leaf) is float or type(leaf) is int:
        return "type", type(leaf)
    value = leaf.value if type(leaf) is StaticArgument else leaf
    if value is None or type(value) is bool:
        return "itself", value
    return ("itself", value.value) if type(value) is IdentityKey else None


def _launch_argument_from_array(buffer: int, array: Any, assigned: bool) -> DirectArgument:
    if type(array) is Array:  # C-contiguous, as its spec says
        return DirectArgument(buffer)
    if type(array) is not np.ndarray:
        return DirectArgument(buffer, array)
    return DirectArgument(buffer, array, lowest_byte_offset_of_call_array(array.shape, array.strides), assigned)


def _lowest_address_text(first: str, array: np.ndarray[Any, Any]) -> str:
    """Where an array's memory begins. first: where its first element lies."""
    low = lowest_byte_offset_of_call_array(array.shape, array.strides)
    return f"{first} - {-low}" if low else first


_LEAF = re.compile(r"\bleaves\[(\d+)\]")
_ALLOCATES = re.compile(r" = (allocate|upload)\(")
_RESULTS = {
    "array": "r{}",
    "argument": "{given}[{}]",
    "static": "{}",
    "fresh": "deepcopy({})",
    "holder": "leaves[{}]",
    "made": "n{}",
    "chosen": "q{}",
}


def is_launched_call_finished(
    events: Sequence[Event], arrays: Sequence[Array], wait: bool, last_finished: list[Any]
) -> bool:
    """Whether the call is over: then the arrays need no events, but for those that failed, which raise when read.

    last_finished: the last events that went well; the CPU has one tuple of them for all calls that it does at once."""
    if not wait:
        for event in events:
            if not event.query():
                for array, its in zip(arrays, events, strict=True):
                    array._event = its
                return False
    elif len(events) > 1:
        finish = getattr(events[0], "finish", None)
        if finish is not None:  # helps with every branch, where waiting for an event helps with its own
            finish()
    well = True
    for array, event in zip(arrays, events, strict=True):
        if error_of_event(event) is not None:
            array._event = event
            well = False
    if well:
        last_finished[0] = events
    return True


class OnAnotherDevice(Exception):
    """An argument is on another device than the function, and of the same kind: nothing has been done yet."""

    def __init__(self, there: Device, here: Device) -> None:
        super().__init__()
        self.there, self.here = there, here


def call_array_ready_on_device(array: Array, device: Device, buffer: int, after: list[tuple[int, Event]]) -> Array:
    """The array on the device; if its values are on their way, the work on `buffer` has to wait for them. Raises
    OnAnotherDevice."""
    if array._device is not device:
        if array._device.kind == device.kind and array._device.index != device.index:
            raise OnAnotherDevice(array._device, device)
        array = array.to_device(f"{device.kind}:{device.index}")
    event = array._event
    if event is not None:
        if event.query() and error_of_event(event) is None:
            array._event = None
            return array
        after.append((buffer, event))  # if it is poisoned, so will be what is made of it
    return array


def _call_argument_uploader(device: Device) -> Callable[[Any, int, list[tuple[int, Event]]], Any]:
    """Copies a NumPy array to memory of the device, which `buffer` then is."""

    def upload_call_argument(given: Any, buffer: int, after: list[tuple[int, Event]]) -> Any:
        array = np.asarray(given)
        memory = device.allocate(max(1, array.nbytes))
        after.append((buffer, device.upload(np.ascontiguousarray(array).reshape(array.shape), memory)))
        return memory

    return upload_call_argument


def layout_of_argument(leaf: Any, in_place: bool) -> MemoryLayout:
    """How an array argument lies in the memory that the kernels read. in_place: NumPy's memory itself."""
    if isinstance(leaf, np.ndarray) and not is_kernel_readable(leaf):
        return MemoryLayout(spec_of(ArrayType(leaf.shape, native_byte_order(leaf.dtype))).strides, False)
    if isinstance(leaf, np.ndarray) and in_place and leaf.size:
        dense = spec_of(ArrayType(leaf.shape, leaf.dtype)).strides
        strides = tuple(d if n == 1 else s for n, s, d in zip(leaf.shape, leaf.strides, dense, strict=True))
        return MemoryLayout(strides, address(leaf) % 16 == 0)
    spec = leaf if isinstance(leaf, Spec) else leaf._spec if isinstance(leaf, Array) else None
    if spec is None:
        spec = spec_of(ArrayType(leaf.shape, leaf.dtype))
    return MemoryLayout(spec.strides, spec.aligned)


def launcher_out_of_memory_error(plan: Plan, device: Device, error: OutOfMemory) -> OutOfMemory:
    """Names a call's peak, the memory mode, and what `memory="small"` would need."""
    mode = plan.report.memory if plan.report is not None else "balanced"
    peak, outputs = plan.peak_bytes, plan.peak_bytes - plan.arena_bytes
    if mode == "small":
        advice = "memory='small', the least there is, is in use; pass smaller arrays or free others"
    else:
        small = schedule(
            plan.program, "auto", "small", machine=machine_model_of_device(device.kind, device.properties)
        ).peak_bytes
        advice = f"memory='small' would need {byte_count_in_words(small)}"
        if small >= peak:
            advice += ", no less; pass smaller arrays or free others"
    system = device.system_memory()
    if system is not None and outputs > system[1]:
        advice = (
            f"the outputs alone are more than the {byte_count_in_words(system[1])} that there are; call it on parts of "
            "its arguments, or return what is made of them"
        )
    return OutOfMemory(
        f"a call of {plan.program.name} needs {byte_count_in_words(peak)} beside its inputs on {name_of(device)}: "
        f"{byte_count_in_words(outputs)} of outputs and {byte_count_in_words(plan.arena_bytes)} of temporaries with "
        f"memory={mode!r}; {advice} ({error}; {owners_in_words(device)})"
    )
