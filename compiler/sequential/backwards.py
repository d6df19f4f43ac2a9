"""A routine in; out the two that go through it backwards.

Backwards each turn needs what it had computed: the forward routine keeps what blocks load, and what stores overwrite,
on a tape, an element for each turn; the backward one undoes the stores, so that what reductions read is in memory
again, and they need no tape. (Griewank and Walther, Evaluating Derivatives, 2008, sections 3.2 and 4.2.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from ...runtime.core.frozen import dataclass
from ..core.types import BOOL, FLOAT32, FLOAT64, INT64, DType
from ..kernel.body_builder import KernelValue
from .body import RoutineBody
from .dead_code import routine_block_without_dead_code
from .form import (
    Block,
    Fold,
    For,
    If,
    Let,
    Routine,
    RoutineMemory,
    Set,
    Stop,
    Store,
    While,
    statements_in_routine_block,
)
from .partials import NoDerivative, is_routine_derivative_bounded, row_result_of_routine_value, tangent_part_in_routine
from .writer import RoutineWriter, Values, check_routine_derivable, is_routine_float

LARGEST = 1 << 27  # elements of a tape
Counter = tuple[KernelValue, int, int]  # of a loop around: its index, the least one, how many at most
Range = tuple[int, int]


@dataclass(frozen=True)
class Backwards:
    """forward: the routine, which writes what it keeps too, as its last array; backward: what goes back through it.

    outputs: arrays of the routine whose cotangents come, and leave as those of what they began as, or of inputs: the
    first arrays of `backward`, in this order. primals: arrays of the routine that come next, as they are at the end (as
    `forward` gives them); then what was kept."""

    forward: Routine
    backward: Routine
    outputs: tuple[int, ...]
    primals: tuple[int, ...]


@lru_cache(16)
def reverse_routines(routine: Routine, ieee: bool = False) -> Backwards:
    """The routines for cotangents. ieee: as of `ReverseOptions`. Raises NoDerivative."""
    check_routine_derivable(routine)
    reads = {
        a
        for s in statements_in_routine_block(routine.body)
        if isinstance(s, Fold)
        for a in _arrays_loaded_in_routine_block(s.body)
    }
    undone = reads - {i for i, a in enumerate(routine.arrays) if a.role == "in"}
    wanted: set[Any] | None = None
    while True:
        tape = _RoutineTape(wanted)
        back = _ReverseRoutineWriter(routine, tape, undone, ieee)
        back.run()
        if wanted is not None:
            break
        body = routine_block_without_dead_code(tuple(back.body.scopes[0].statements), ())
        read = {
            s.instr.args[0]
            for s in _lets_in_routine_block(body)
            if s.instr.op == "load" and s.instr.attr == back.tape_array
        }
        wanted = {slot for place, slot in tape.slots_of.items() if place in read}
    forward = _TapingRoutineWriter(routine, tape, undone)
    forward.block({}, {}, routine.body, ())
    size = (max(tape.size, 1),)
    kept = [a if a.role != "temp" or i not in undone else RoutineMemory(a.dtype, a.shape, "out") for i, a in
            enumerate(routine.arrays)]  # fmt: skip
    arrays = (*kept, RoutineMemory(FLOAT64, size, "out"))
    made = forward.finished(arrays, {i for i, a in enumerate(arrays) if a.role == "temp"})
    own = [RoutineMemory(routine.arrays[i].dtype, routine.arrays[i].shape, "inout") for i in back.outputs]
    own += [
        RoutineMemory(routine.arrays[i].dtype, routine.arrays[i].shape, "inout" if i in undone else "in")
        for i in back.primals
    ]
    return Backwards(made, back.finished((*own, RoutineMemory(FLOAT64, size, "in"))), back.outputs, back.primals)


class _RoutineTape:
    """Where values of turns are kept. A slot is what is kept of a block; slots: those alone."""

    def __init__(self, slots: set[Any] | None) -> None:
        self.slots, self.size = slots, 0
        self.base: dict[Any, int] = {}
        self.slots_of: dict[int, Any] = {}  # the number of a place -> the slot there

    def place_of_slot(self, body: RoutineBody, slot: Any, around: tuple[Counter, ...]) -> KernelValue | None:
        """None where it is not wanted."""
        if self.slots is not None and slot not in self.slots:
            return None
        if slot not in self.base:
            self.base[slot] = self.size
            self.size += math.prod(count for _, _, count in around)
            if self.slots is not None and self.size > LARGEST:
                raise NoDerivative(f"its derivative keeps more than {LARGEST * 8 >> 30} GiB of what its turns compute")
        found, step = body.const(self.base[slot], INT64), 1
        for index, least, count in reversed(around):
            found = found + (index - least) * step
            step *= count
        self.slots_of[found.numbers[0]] = slot
        return found


class _RoutineIntegerRanges:
    """Bounds of the integers of a routine."""

    def __init__(self) -> None:
        self.known: dict[int, Range] = {}

    def note_range_of_let(self, s: Let) -> None:
        instr, known = s.instr, self.known
        if instr.dtype != INT64:
            return
        if instr.op == "const":
            value = int(np.frombuffer(instr.attr, INT64)[0])
            known[s.number] = value, value
            return
        ends = [known.get(a) for a in instr.args]
        if instr.op in _ENDS and all(e is not None for e in ends):
            known[s.number] = _ENDS[instr.op](*ends)

    def range_of_loop(self, s: For | Fold) -> tuple[int, int]:
        """The least index, and how many there are at most. Raises NoDerivative."""
        start, stop = self.known.get(s.start), self.known.get(s.stop)
        if start is None or stop is None:
            raise NoDerivative("the number of turns of a loop has no known bound")
        self.known[s.index] = start[0], max(start[0], stop[1] - 1)
        return start[0], max(0, stop[1] - start[0])


def _product_of_integer_ranges(a: Range, b: Range) -> Range:
    every = [x * y for x in a for y in b]
    return min(every), max(every)


_ENDS: dict[str, Callable[..., Range]] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "neg": lambda a: (-a[1], -a[0]),
    "mul": _product_of_integer_ranges,
    "minimum": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "maximum": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
}


class _TapingRoutineWriter(RoutineWriter):
    """The routine, which keeps what goes back needs."""

    def __init__(self, routine: Routine, tape: _RoutineTape, undone: set[int]) -> None:
        super().__init__(routine)
        self.tape, self.undone, self.ranges = tape, undone, _RoutineIntegerRanges()
        self.tape_array = len(routine.arrays)

    def keep_on_tape(self, slot: Any, value: Callable[[], KernelValue], around: tuple[Counter, ...]) -> None:
        place = self.tape.place_of_slot(self.body, slot, around)
        if place is not None:
            self.body.store_element(self.tape_array, place, value().cast(FLOAT64))

    def block(self, env: Values, _: Any, block: Block, around: tuple[Counter, ...]) -> None:
        body = self.body
        for s in block:
            if isinstance(s, Let):
                env[s.number] = value = self.let(s, env)
                self.ranges.note_range_of_let(s)
                if s.instr.op in ("load", "get"):
                    self.keep_on_tape(s.number, lambda value=value: value, around)  # type: ignore[misc]
            elif isinstance(s, Fold):
                self.ranges.range_of_loop(s)
                env[s.number] = value = self.write_fold_again(s, env)
                self.keep_on_tape(s.number, lambda value=value: value, around)  # type: ignore[misc]
            elif isinstance(s, Store):
                if s.array in self.undone:
                    dtype = self.routine.arrays[s.array].dtype
                    self.keep_on_tape(
                        ("before", id(s)),
                        lambda s=s, dtype=dtype: body.load_element(s.array, dtype, env[s.place]),  # type: ignore[misc]
                        around,
                    )
                body.store_element(s.array, env[s.place], env[s.value])
            elif isinstance(s, Set):
                body.set(s.variable, env[s.value])
            elif isinstance(s, For):
                if s.until is not None:
                    raise NoDerivative("a loop ends early")
                least, count = self.ranges.range_of_loop(s)
                inner = {**env}

                def write_iteration(
                    index: KernelValue, s: For = s, inner: Values = inner, ends: Range = (least, count)
                ) -> None:
                    inner[s.index] = index
                    self.block(inner, None, s.body, (*around, (index, *ends)))

                index, scope, _ = self.write_turns(s, env, write_iteration)
                self.add_for(s, env, index, scope)
            elif isinstance(s, If):
                sides = []
                for side in (s.then, s.otherwise):
                    with body.block() as scope:
                        self.block({**env}, None, side, around)
                    sides.append(tuple(scope.statements))
                body.add(If(env[s.condition].numbers[0], *sides))
            else:
                raise NoDerivative("a while is in it")


class _Level:
    """A block that is gone through backwards: cotangents of its values, and variables for what inner blocks add."""

    def __init__(self) -> None:
        self.cotangents: dict[int, KernelValue] = {}
        self.sums: dict[int, int] = {}
        self.own: set[int] = set()


class _ReverseRoutineWriter(RoutineWriter):
    """The routine backwards."""

    def __init__(self, routine: Routine, tape: _RoutineTape, undone: set[int], ieee: bool) -> None:
        super().__init__(routine)
        self.variables, self.ieee = [], ieee
        self.masks: dict[int, KernelValue] = {}  # of a cotangent, by number: where it may be other than zero
        self.tape, self.undone, self.ranges = tape, undone, _RoutineIntegerRanges()
        self.outputs = tuple(i for i, a in enumerate(routine.arrays) if is_routine_float(a.dtype))
        self.primals = tuple(i for i, a in enumerate(routine.arrays) if a.role == "in" or i in undone)
        self.adjoint = {a: k for k, a in enumerate(self.outputs)}
        self.primal = {a: len(self.outputs) + k for k, a in enumerate(self.primals)}
        self.tape_array = len(self.outputs) + len(self.primals)
        self.of_variable = {v: self.variable(d) for v, d in enumerate(routine.variables) if is_routine_float(d)}
        self.levels: list[_Level] = []

    def run(self) -> None:
        self.zeros = {dtype: self.body.const(0, dtype) for dtype in (FLOAT32, FLOAT64)}
        self.block({}, self.routine.body, (), False)

    def read_from_tape(self, slot: Any, dtype: DType, around: tuple[Counter, ...]) -> KernelValue:
        place = self.tape.place_of_slot(self.body, slot, around)
        if place is None:  # nobody asks for it in the end
            return self.body.const(0, dtype)
        found = self.body.load_element(self.tape_array, FLOAT64, place)
        return found.ne(0) if dtype == BOOL else found.cast(dtype)

    def add(self, number: int, value: KernelValue) -> None:
        """To the cotangent of a value."""
        level = next(x for x in reversed(self.levels) if number in x.own)
        if level is self.levels[-1]:
            before = level.cotangents.get(number)
            if before is not None:
                masks = [self.masks.get(v.numbers[0]) for v in (before, value)]
                value = before + value
                if masks[0] is not None and masks[1] is not None and masks[0].numbers == masks[1].numbers:
                    self.masks[value.numbers[0]] = masks[0]
            level.cotangents[number] = value
            return
        if number not in level.sums:
            level.sums[number] = self.variable(value.dtype)
        sum = level.sums[number]
        self.body.set(sum, self.body.get(sum, value.dtype) + value)

    def cotangent(self, number: int, dtype: DType) -> KernelValue | None:
        level = self.levels[-1]
        found = level.cotangents.pop(number, None)
        if number in level.sums:
            inner = self.body.get(level.sums[number], dtype)
            return inner if found is None else found + inner
        return found

    def block(self, env: Values, block: Block, around: tuple[Counter, ...], folded: bool, seed: Any = None) -> None:
        level = _Level()
        self.levels.append(level)
        start = len(self.body.scopes[-1].statements)
        for s in block:
            self.compute_again(s, env, around, folded)
        level.own = {s.number for s in block if isinstance(s, (Let, Fold))}
        if seed is not None:
            self.add(*seed)
        for s in reversed(block):
            self.reverse_statement(s, env, around, folded)
        self.levels.pop()
        if level.sums:
            first = [Set(v, self.zeros[self.variables[v]].numbers[0]) for v in level.sums.values()]
            self.body.scopes[-1].statements[start:start] = first

    def compute_again(self, s: Any, env: Values, around: tuple[Counter, ...], folded: bool) -> None:
        """What the block had computed."""
        if isinstance(s, Let):
            self.ranges.note_range_of_let(s)
            instr = s.instr
            if instr.op == "load" and (folded or self.routine.arrays[instr.attr].role == "in"):
                env[s.number] = self.body.load_element(self.primal[instr.attr], instr.dtype, env[instr.args[0]])
            elif instr.op in ("load", "get"):
                if folded:
                    raise NoDerivative("a reduction reads a variable")
                env[s.number] = self.read_from_tape(s.number, instr.dtype, around)
            else:
                env[s.number] = self.let(s, env)
        elif isinstance(s, Fold):
            self.ranges.range_of_loop(s)
            if folded:
                raise NoDerivative("a reduction is in another one")
            env[s.number] = self.read_from_tape(s.number, s.dtype, around)

    def reverse_statement(self, s: Any, env: Values, around: tuple[Counter, ...], folded: bool) -> None:
        body = self.body
        if isinstance(s, Let):
            if is_routine_float(s.instr.dtype) and (ct := self.cotangent(s.number, s.instr.dtype)) is not None:
                self.reverse_let(s, ct, env)
        elif isinstance(s, Store):
            dtype = self.routine.arrays[s.array].dtype
            if s.array in self.undone:
                body.store_element(
                    self.primal[s.array], env[s.place], self.read_from_tape(("before", id(s)), dtype, around)
                )
            if s.array in self.adjoint:
                own = self.adjoint[s.array]
                ct = body.load_element(own, dtype, env[s.place])
                body.store_element(own, env[s.place], body.const(0, dtype))
                self.add(s.value, ct)
        elif isinstance(s, Set):
            if s.variable in self.of_variable:
                variable, dtype = self.of_variable[s.variable], self.routine.variables[s.variable]
                ct = body.get(variable, dtype)
                body.set(variable, body.const(0, dtype))
                self.add(s.value, ct)
        elif isinstance(s, Fold):
            if is_routine_float(s.dtype) and (ct := self.cotangent(s.number, s.dtype)) is not None:
                self.reverse_fold(s, ct, env, around)
        elif isinstance(s, For):
            least, count = self.ranges.range_of_loop(s)
            counter = self.body.value(INT64)
            with body.block() as scope:
                index = env[s.start] + env[s.stop] - 1 - counter
                self.block({**env, s.index: index}, s.body, (*around, (index, least, count)), False)
            ends = env[s.start].numbers[0], env[s.stop].numbers[0]
            body.add(For(counter.numbers[0], *ends, tuple(scope.statements)))
        elif isinstance(s, If):
            sides = []
            for side in (s.then, s.otherwise):
                with body.block() as scope:
                    self.block({**env}, side, around, folded)
                sides.append(tuple(scope.statements))
            body.add(If(env[s.condition].numbers[0], *sides))
        elif isinstance(s, (While, Stop)):
            raise NoDerivative("a while is in it")

    def reverse_let(self, s: Let, ct: KernelValue, env: Values) -> None:
        instr, body = s.instr, self.body
        if instr.op == "load":
            own, place = self.adjoint[instr.attr], env[instr.args[0]]
            body.store_element(own, place, body.load_element(own, instr.dtype, place) + ct)
        elif instr.op == "get":
            variable = self.of_variable[instr.attr]
            body.set(variable, body.get(variable, instr.dtype) + ct)
        elif instr.op == "cast":
            source = env[instr.args[0]]
            if is_routine_float(source.dtype):
                self.add(instr.args[0], ct.cast(source.dtype))
        elif instr.op != "const":
            row, mask = row_result_of_routine_value(s, env), self.masks.get(ct.numbers[0])
            args = [env[a] for a in row.args]
            for which, a in enumerate(row.args):
                part = tangent_part_in_routine(row.name, ct, which, args, env[s.number])
                if part is not None:
                    self.add(a, self.under_mask(row.name, args[0], which, part, mask))

    def under_mask(
        self, row: str, condition: KernelValue, place: int, part: KernelValue, mask: KernelValue | None
    ) -> KernelValue:
        """Nothing comes back from what a `where` has not taken, be the factor infinite; unless IEEE's products are
        asked for."""
        if self.ieee:
            return part
        if row == "where":
            mask = condition if place == 1 else ~condition
        elif mask is not None and not is_routine_derivative_bounded(row):
            part = self.body.select(mask, part, part.const(0))
        if mask is not None:
            self.masks[part.numbers[0]] = mask
        return part

    def reverse_fold(self, s: Fold, ct: KernelValue, env: Values, around: tuple[Counter, ...]) -> None:
        if s.combine != "sum":
            raise NoDerivative(f"the derivative of the reduction {s.combine} is not known in a recorded loop")
        self.ranges.range_of_loop(s)

        def write_iteration(index: KernelValue) -> None:
            self.block({**env, s.index: index}, s.body, around, True, (s.value, ct))

        index, scope, _ = self.write_turns(s, env, write_iteration)
        ends = env[s.start].numbers[0], env[s.stop].numbers[0]
        self.body.add(For(index.numbers[0], *ends, tuple(scope.statements)))


def _lets_in_routine_block(block: Block) -> Iterator[Let]:
    return (s for s in statements_in_routine_block(block) if isinstance(s, Let))


def _arrays_loaded_in_routine_block(block: Block) -> set[int]:
    return {s.instr.attr for s in _lets_in_routine_block(block) if s.instr.op == "load"}
