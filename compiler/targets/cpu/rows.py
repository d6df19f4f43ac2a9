"""Rows of a routine's loop side by side in vectors, where each row decides by a `while` how many turns it takes.

A group of rows runs turn by turn, its state in memory that stays in the first cache. A row that has ended makes place
for the next one, and at last for one that has not ended: no turn is done for nothing, and no lane needs a mask.
"""

from __future__ import annotations

from typing import Protocol

from ....runtime.core.frozen import frozen
from ...core.types import BOOL, INT64, DType
from ...sequential.form import (
    Block,
    For,
    If,
    Let,
    Routine,
    Set,
    Statement,
    Store,
    While,
    blocks_in_routine_statement,
    statements_in_routine_block,
    values_used_by_routine_statement,
)
from .gather import gather_vector_lanes
from .inline_math import llvm_any_lane
from .llvm_ir import LlvmFunction, LlvmValue, llvm_mask_below
from .primitives import llvm_memory_type

GROUP = 64  # rows side by side
CACHE, STACK = 1 << 15, 1 << 17  # bytes of a group's state: where it stays in the first cache; what there is room for


@frozen
class DecidingRows:
    """A loop over rows in parts. shared: what is the same for all rows; begin: before the `while` of a row; end: behind
    it. crossing: values of `begin`, and their dtypes, that the rest of the row uses."""

    index: int
    shared: Block
    begin: Block
    turns: While
    end: Block
    crossing: dict[int, DType]


def loop_over_deciding_rows(routine: Routine) -> For | None:
    """The loop of a routine that is nothing else, whose turns are independent and end at times of their own."""
    steps = [s for s in routine.body if not isinstance(s, Let)]
    copies = any(array.role == "inout" for array in routine.arrays)
    if len(steps) != 1 or not isinstance(steps[0], For) or routine.checks or copies:
        return None
    inside = statements_in_routine_block(steps[0].body)
    return steps[0] if steps[0].parallel and any(isinstance(s, While) for s in inside) else None


def lanes_of_rows(width: int) -> int:
    """Rows in a vector. width: bytes of a register; where there are 32 of them each value takes two."""
    return width // 8 * (2 if width == 64 else 1)


def rows_of_group(routine: Routine, rows: DecidingRows, lanes: int) -> int:
    """How many rows run side by side; 0 where their state would have no room."""
    nbytes = sum(max(1, dtype.itemsize) for dtype in (*routine.variables, *rows.crossing.values())) + 9
    found = GROUP
    while found > lanes and found * nbytes > CACHE:
        found //= 2
    return found if found * nbytes <= STACK else 0


def deciding_rows_for_vectors(loop: For) -> DecidingRows | None:
    """The parts of a loop whose rows can run side by side: one `while` each, in which nothing is decided and nothing is
    read that rows write."""
    whiles = [at for at, s in enumerate(loop.body) if isinstance(s, While)]
    if len(whiles) != 1:
        return None
    before, turns, end = loop.body[: whiles[0]], loop.body[whiles[0]], loop.body[whiles[0] + 1 :]
    assert isinstance(turns, While)
    stored = {s.array for s in statements_in_routine_block(loop.body) if isinstance(s, Store)}
    simple = all(isinstance(s, (Let, Set)) for s in before) and all(map(_is_simple_end_of_row, end))
    if not simple or not all(_can_turn_of_row_do(s, stored) for s in (*turns.test, *turns.body)):
        return None
    tested = {s.number for s in turns.test if isinstance(s, Let)} - {turns.condition}
    if tested & _values_used_in_routine_block((*turns.body, *end)):
        return None
    own = _values_of_one_row(loop.index, before, stored)
    shared = tuple([s for s in before if isinstance(s, Let) and s.number not in own])
    begin = tuple([s for s in before if isinstance(s, Set) or (isinstance(s, Let) and s.number in own)])
    used = _values_used_in_routine_block((*turns.test, *turns.body, *end))
    crossing = {s.number: s.instr.dtype for s in begin if isinstance(s, Let) and s.number in used}
    return DecidingRows(loop.index, shared, begin, turns, end, crossing)


def _values_of_one_row(index: int, block: Block, stored: set[int]) -> set[int]:
    """The values that differ from row to row."""
    found = {index}
    for s in block:
        if isinstance(s, Let) and not (found.isdisjoint(s.instr.args) and _is_same_for_all_rows(s, stored)):
            found.add(s.number)
    return found


def _is_same_for_all_rows(s: Let, stored: set[int]) -> bool:
    return s.instr.op != "get" and not (s.instr.op == "load" and s.instr.attr in stored)


def _can_turn_of_row_do(s: Statement, stored: set[int]) -> bool:
    return isinstance(s, Set) or (isinstance(s, Let) and not (s.instr.op == "load" and s.instr.attr in stored))


def _is_simple_end_of_row(s: Statement) -> bool:
    """Whether it is a value or a store, perhaps one that a value decides."""
    inner = [t for block in blocks_in_routine_statement(s) for t in block]
    return isinstance(s, (Let, Store, If)) and all(isinstance(t, Store) for t in inner)


def _values_used_in_routine_block(block: Block) -> set[int]:
    return {n for s in statements_in_routine_block(block) for n in values_used_by_routine_statement(s)}


class RowPrinter(Protocol):
    """What writes a routine's statements."""

    f: LlvmFunction
    routine: Routine
    values: dict[int, LlvmValue]
    pointers: list[LlvmValue]

    def block(self, block: Block) -> None: ...

    def put(self, number: int, value: LlvmValue, dtype: DType) -> None: ...


class RowsInVectors:
    """Writes the rows from `low` below `high`, `lanes` of them in a vector, `group` of them side by side."""

    def __init__(self, printer: RowPrinter, rows: DecidingRows, lanes: int, group: int) -> None:
        self.printer, self.rows, self.lanes, self.group, self.f = printer, rows, lanes, group, printer.f
        self.mask: LlvmValue | None = None  # of the lanes that have a row
        self.variables = [self.memory(dtype) for dtype in printer.routine.variables]
        self.crossing = {number: self.memory(dtype) for number, dtype in rows.crossing.items()}
        self.index, self.going = self.memory(INT64), self.memory(BOOL)

    def memory(self, dtype: DType) -> tuple[LlvmValue, DType]:
        """Of a value of each row of the group. It is zero first: lanes without a row compute too."""
        elem = llvm_memory_type(dtype)
        place, size = self.f.slot(elem, self.group), self.group * max(1, dtype.itemsize)
        self.f.module.declare("@llvm.memset.p0.i64", "void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
        self.f.do(f"call void @llvm.memset.p0.i64(ptr {place}, i8 0, i64 {size}, i1 false)")
        return place, dtype

    def take(self, memory: tuple[LlvmValue, DType], at: LlvmValue, lanes: int) -> LlvmValue:
        place, dtype = memory
        elem = llvm_memory_type(dtype)
        raw = place.at(at, elem).load(elem, lanes)
        return raw.ne(0) if dtype == BOOL else raw

    def keep(self, memory: tuple[LlvmValue, DType], at: LlvmValue, value: LlvmValue, lanes: int) -> None:
        place, dtype = memory
        wide = value.splat(lanes)
        place.at(at, llvm_memory_type(dtype)).store(wide.to("zext", "i8") if dtype == BOOL else wide)

    def run(self, block: Block, at: LlvmValue, lanes: int) -> None:
        """A block for the rows of the group from `at` on."""
        used = _values_used_in_routine_block(block)
        for number in sorted(used & self.crossing.keys()):
            self.printer.put(number, self.take(self.crossing[number], at, lanes), self.crossing[number][1])
        if self.rows.index in used:
            self.printer.put(self.rows.index, self.take(self.index, at, lanes), INT64)
        for s in block:
            if isinstance(s, Set):
                self.keep(self.variables[s.variable], at, self.printer.values[s.value], lanes)
            elif isinstance(s, Let) and s.instr.op == "get":
                self.printer.put(s.number, self.take(self.variables[s.instr.attr], at, lanes), s.instr.dtype)
            elif isinstance(s, Let) and s.instr.op == "load" and self.printer.values[s.instr.args[0]].lanes > 1:
                self.printer.put(s.number, self.look_up(s), s.instr.dtype)
            else:
                self.printer.block((s,))

    def look_up(self, s: Let) -> LlvmValue:
        """A load from a place of each lane."""
        base, elem = self.printer.pointers[s.instr.attr], llvm_memory_type(s.instr.dtype)
        raw = gather_vector_lanes(base, elem, self.printer.values[s.instr.args[0]], self.mask)
        return raw.ne(0) if s.instr.dtype == BOOL else raw

    def test(self, at: LlvmValue, lanes: int) -> LlvmValue:
        """Whether rows go on; kept too."""
        self.run(self.rows.turns.test, at, lanes)
        going = self.printer.values[self.rows.turns.condition].splat(lanes)
        self.keep(self.going, at, going, lanes)
        return going

    def write(self, low: LlvmValue, high: LlvmValue) -> None:
        f = self.f
        self.printer.block(self.rows.shared)
        count, following, at = (f.slot("i64") for _ in range(3))  # rows of the group; the next row; the row looked at
        count.store(f.const(0, "i64"))
        following.store(low)
        number = f.fresh("")

        def part(name: str) -> str:
            return f"{name}{number}"

        def fork(condition: LlvmValue, yes: str, no: str) -> None:
            f.do(f"br i1 {condition}, label %{part(yes)}, label %{part(no)}")

        def first() -> str:
            at.store(f.const(0, "i64"))
            return "look"

        def look() -> None:
            fork(at.load("i64") < count.load("i64"), "inside", "behind")

        def inside() -> None:
            fork(self.take(self.going, at.load("i64"), 1), "go_on", "end")

        def go_on() -> str:
            at.store(at.load("i64") + 1)
            return "look"

        def end() -> str:
            self.run(self.rows.end, at.load("i64"), 1)
            return "place"

        def behind() -> None:
            some = (count.load("i64") < self.group) & (following.load("i64") < high)
            fork(some, "grow", "turns")

        def grow() -> str:
            count.store(count.load("i64") + 1)
            return "place"

        def place() -> None:
            fork(following.load("i64") < high, "begin", "shrink")

        def begin() -> str:
            here, row = at.load("i64"), following.load("i64")
            following.store(row + 1)
            self.keep(self.index, here, row, 1)
            self.run(self.rows.begin, here, 1)
            for value, memory in self.crossing.items():
                self.keep(memory, here, self.printer.values[value], 1)
            self.test(here, 1)
            return "look"

        def shrink() -> str:
            here, last = at.load("i64"), count.load("i64") - 1
            count.store(last)
            for memory in (*self.variables, *self.crossing.values(), self.index, self.going):
                self.keep(memory, here, self.take(memory, last, 1), 1)
            return "look"

        def turns() -> None:
            fork(count.load("i64") > 0, "turn", "done")

        def turn() -> None:
            rows, ended = count.load("i64"), f.slot("i1")
            ended.store(f.const(0, "i1"))
            with f.loop(0, rows, self.lanes) as lowest:
                self.mask = llvm_mask_below(f, rows - lowest, self.lanes)
                self.run(self.rows.turns.body, lowest, self.lanes)
                ends = ~self.test(lowest, self.lanes) & self.mask
                ended.store(ended.load("i1") | llvm_any_lane(ends))
            fork(ended.load("i1"), "first", "turns")

        f.jump(part("first"))
        for write in (first, look, inside, go_on, end, behind, grow, place, begin, shrink, turns, turn):
            f.block(part(write.__name__))
            if (then := write()) is not None:
                f.jump(part(then))
        f.block(part("done"))
